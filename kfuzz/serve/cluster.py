"""State that all brokers of a process share, the form of requests and answers, and which broker may answer."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakSet

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.errors import KfuzzError
from kfuzz.serve.topics import Partition, Topics

NO_ERROR: Final = 0

# The broker that leads everything until something is moved.
FIRST_NODE: Final = 1
NODES_MAX: Final = 9
NO_TOPIC_ID: Final = bytes(16)
# The elements of all arrays of a request together. One that names each topic of the suite has some ten thousand.
ELEMENTS_MAX: Final = 50_000
# Of each kind of thing that clients make, such as groups. For more, the oldest ones are forgotten.
KEPT_MAX: Final = 1000
# How long a member of a group waits for the others.
HELD_S_MAX: Final = 5.0

Values = dict[str, Any]
K = TypeVar("K")
V = TypeVar("V")


def remember(kept: dict[K, V], key: K, value: V) -> None:
    """Keep a value. If there are too many, forget the oldest one."""
    kept[key] = value
    if len(kept) > KEPT_MAX:
        del kept[next(iter(kept))]


class Refused(KfuzzError):
    """A request that no broker answers: the connection is to be closed. ``kind`` names what all such requests share."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Answered(NamedTuple):
    """An answer: its bytes, or None if there is none, and how long it is held back.

    After it, the client's next request waits for ``mute_ms``.
    """

    data: bytes | None
    wait_ms: int = 0
    mute_ms: int = 0
    # Gives the bytes later, if there are none yet.
    later: Callable[[], Awaitable[bytes]] | None = None


@dataclass(eq=False)
class Caller:
    """A client's connection. ``host`` and ``port`` are where the client has found the broker ``node_id``."""

    host: str
    port: int
    node_id: int = FIRST_NODE
    # Whether it was told that its version of ApiVersions is not supported.
    has_fallen_back: bool = False
    # The partitions that it has fetched.
    fetched: WeakSet[Partition] = field(default_factory=WeakSet)


class Asked(NamedTuple):
    """A request: the fields of its header, and the values of its body."""

    api: str
    version: int
    client_id: str
    caller: Caller
    values: Values


class Held:
    """An answer that waits for other clients, for ``wait_s`` or less. If none comes in time, ``expire`` makes one."""

    def __init__(self, expire: Callable[[], None], wait_s: float = math.inf) -> None:
        self.values: Values | None = None
        self.wait_s = wait_s
        self._expire = expire
        self._given = asyncio.Event()

    def give(self, values: Values) -> None:
        """Let the answer go."""
        self.values = values
        self._given.set()

    async def taken(self) -> Values:
        """The answer, when it is there."""
        try:
            async with asyncio.timeout(min(self.wait_s, HELD_S_MAX)):
                await self._given.wait()
        except TimeoutError:
            self._expire()
        return self.values or {"errorCode": ERROR_CODES["UNKNOWN_MEMBER_ID"]}


Answer = Values | Held | None
Handler = Callable[[Asked], tuple[Answer, int]]


@dataclass
class Report:
    """Counts of the clients' requests. ``reasons``: how many connections were closed, by the kind of refusal."""

    requests: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def refused(self) -> int:
        """How many connections were closed because of what they sent, or did not."""
        return self.reasons.total()


@dataclass
class Cluster:
    """The topics, where each broker is, who coordinates what, and how all brokers behave.

    ``ports`` are the brokers' ports by their numbers. ``coordinators`` has the groups and transactional ids that were
    moved.
    """

    topics: Topics
    ports: dict[int, int] = field(default_factory=dict)
    coordinators: dict[str, int] = field(default_factory=dict)
    # Answer newer versions of ApiVersions as a broker that knows version 3 does.
    api_versions_fallback: bool = False
    # Open fetch sessions (KIP-227).
    fetch_sessions: bool = False
    # Answers to Produce, and those to Fetch without records, say that the client is throttled for so long.
    throttle_ms: int = 0
    # Answers to Produce wait for so long.
    produce_ms: int = 0
    # The highest versions that are offered, of APIs that have newer ones.
    versions: dict[str, int] = field(default_factory=dict)
    # The first request in a version above these.
    not_offered: str = ""
    # Whether the coordinator reads what members of a group write for each other, and the first that cannot be read.
    reads_groups: bool = False
    unreadable: str = ""
    # The next broker that is to lose an answer ends.
    ends: bool = False
    # Closes what the broker with this number listens to and all of its connections.
    close: Callable[[int], None] = lambda node: None

    def places(self, caller: Caller) -> Mapping[int, int]:
        """The port of each broker, by its number."""
        return self.ports or {caller.node_id: caller.port}

    def nodes(self, caller: Caller) -> list[Values]:
        """The brokers, as Metadata names them."""
        return [{"nodeId": node, "host": caller.host, "port": port} for node, port in self.places(caller).items()]

    def coordinator(self, key: str) -> int:
        """The broker that coordinates a group or a transactional id."""
        node = self.coordinators.get(key, FIRST_NODE)
        return node if node in self.ports else min(self.ports, default=FIRST_NODE)

    def is_elsewhere(self, asked: Asked, key: str) -> bool:
        """Whether another broker than the one that was asked coordinates this group or transactional id."""
        return self.coordinator(key) != asked.caller.node_id

    def end(self, node: int) -> None:
        """End a broker for good, but not the last one. The first of the others leads and coordinates in its place."""
        if len(self.ports) > 1:
            del self.ports[node]
            for partition in (one for topic in self.topics for one in topic.partitions if one.leader == node):
                partition.move(min(self.ports))
            self.ends = False
            self.close(node)

    def name_of(self, asked: Values) -> str:
        """The name of the topic that a part of a request is about, by name or by id; "" if there is none."""
        topic = self.topics.by_id.get(asked.get("topicId", NO_TOPIC_ID))
        return topic.name if topic else asked.get("name", "")

    def found(
        self, caller: Caller, name: str, topic_id: bytes, index: int, epoch: int = -1
    ) -> tuple[Partition | None, int]:
        """The partition that this broker leads, or why not; ``epoch`` is the leader epoch that the client knows."""
        by_id = topic_id != NO_TOPIC_ID
        topic = self.topics.by_id.get(topic_id) if by_id else self.topics.by_name.get(name)
        if topic is None:
            return None, ERROR_CODES["UNKNOWN_TOPIC_ID" if by_id else "UNKNOWN_TOPIC_OR_PARTITION"]
        if topic.error:
            return None, topic.error
        if not 0 <= index < len(topic.partitions):
            return None, ERROR_CODES["UNKNOWN_TOPIC_OR_PARTITION"]
        partition = topic.partitions[index]
        if partition.leader != caller.node_id:
            return None, ERROR_CODES["NOT_LEADER_OR_FOLLOWER"]
        if partition.has_epochs and epoch >= 0 and epoch != partition.leader_epoch:
            return None, ERROR_CODES[
                "FENCED_LEADER_EPOCH" if epoch < partition.leader_epoch else "UNKNOWN_LEADER_EPOCH"
            ]
        return partition, NO_ERROR
