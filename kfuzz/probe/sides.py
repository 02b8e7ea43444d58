"""A broker that is asked hostile requests: its connections and topics, the states of conversations, and its health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.client.address import Address, Security
from kfuzz.client.link import Link
from kfuzz.client.protocol import BrokerError, ConnectionLost, frame, spoken
from kfuzz.errors import DecodeError, KfuzzError, UsageError
from kfuzz.messages import decode
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message
from kfuzz.messages.model import NONE, Versions
from kfuzz.probe.conversations import CONVERSATIONS, REBALANCE_TIMEOUT_MS, Context, Conversation, Place, batch, produced
from kfuzz.probe.hostile import Case, Shot
from kfuzz.probe.reactions import Asked, Harm, Reaction, answered
from kfuzz.probe.settings import Settings
from kfuzz.text import foreign_text

# A broker creates its own topics for groups and transactions when they are first needed.
FIRST_S: Final = 60.0
# How long to wait for an answer that the broker need not give in time.
HELD_S: Final = 0.3
PARTITIONS: Final = 2
ELEMENTS_MAX: Final = 200_000
# The fields that say how long a broker may wait; the first one that a version has counts.
WAITS: Final = ("rebalanceTimeoutMs", "timeoutMs", "maxWaitMs", "sessionTimeoutMs")


class Side:
    """A broker, by the addresses of its places. ``topic``: one that may be written to; None to create them.

    ``patience_s``: how long a state may take to be reached. ``topics``: those that were created. ``name`` makes names
    for what the health conversation needs.
    """

    def __init__(
        self, addresses: dict[Place, Address], settings: Settings, topic: str | None, name: Callable[[], str]
    ) -> None:
        self._addresses = addresses
        self._settings = settings
        self._topic = topic
        self._timeout_s = settings.timeout_ms / 1000
        self.patience_s = FIRST_S
        self.topics: list[str] = []
        self.health = Health(self, name)
        self._known: tuple[str, bytes] | None = None
        # The connections for good and for hostile requests, by place.
        self._good: dict[Place, Link] = {}
        self._hostile: dict[Place, Link] = {}

    async def link(self, place: Place = "broker") -> Link:
        """A new connection; ``ConnectionLost`` if there is none."""
        security = self._settings.security
        link = Link(
            self._addresses.get(place, self._addresses["broker"]),
            Security(security.tls, security.ca) if place == "stranger" else security,
            timeout_ms=self._settings.timeout_ms,
            permit=self._settings.permit,
        )
        await link.open()
        return link

    async def _kept(self, links: dict[Place, Link], place: Place) -> Link:
        """The connection of a place. Logging in needs a new one every time."""
        link = links.get(place)
        if link is None or link.lost is not None or place == "stranger":
            if link is not None:
                link.close()
            link = links[place] = await self.link(place)
        return link

    async def offers(self, place: Place = "broker") -> dict[str, Versions]:
        """The versions of each API that both the broker and kfuzz know."""
        offered = (await self._kept(self._good, place)).offered
        return {
            one.name.removesuffix("Request"): both
            for one in catalogue().messages.values()
            if one.kind == "request" and (both := offered.get(one.api_key, NONE) & one.valid_versions)
        }

    async def new_topic(self, prefix: str, patience_s: float | None = None) -> tuple[str, bytes]:
        """The name and the id of a topic that can be written to. ``BrokerError`` if there is none."""
        deadline = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        context = Context(prefix, link=await self._kept(self._good, "broker"), deadline=deadline)
        name = self._topic
        if name is None and not spoken("CreateTopics", context.connection.offered):
            raise UsageError(
                "the broker creates no topics for clients; name one that may be written to with --write-to"
            )
        if name is None:
            name = prefix
            self.topics.append(name)
            created = {"numPartitions": PARTITIONS, "replicationFactor": self._settings.replication}
            more = {"assignments": [], "configs": [], "validateOnly": False, "timeoutMs": self._settings.timeout_ms}
            await context.ask("CreateTopics", {"name": name, **created, **more})
        # The topic's own errors and those of its partitions can be retried until it has leaders.
        answer = await context.ask("Metadata", {"name": name, "topicId": bytes(16)})
        if not answer["topics"]:
            raise BrokerError(f"Metadata of {name}", ERROR_CODES["UNKNOWN_TOPIC_OR_PARTITION"])
        return name, answer["topics"][0].get("topicId", bytes(16))

    async def check_topic(self) -> None:
        """Refuse a topic that was named and is not there. Otherwise each conversation would wait for it."""
        if self._topic is None:
            return
        try:
            await self.new_topic("", self._timeout_s)
        except BrokerError as error:
            name = foreign_text(self._topic)
            raise UsageError(f"the topic {name!r} cannot be used: {error}; create it, or name another") from None

    async def reach(self, conversation: Conversation, prefix: str) -> Context:
        """The state of a conversation. ``BrokerError``, ``ConnectionLost`` or ``TimeoutError`` if it is not reached."""
        try:
            async with asyncio.timeout(self.patience_s + self._timeout_s):
                if self._known is None:
                    self._known = await self.new_topic(f"{prefix}-topic")
                # No good request is asked of a broker that does not know the client.
                place: Place = "broker" if conversation.place == "stranger" else conversation.place
                link = await self._kept(self._good, place)
                context = Context(prefix, *self._known, link=link, deadline=time.monotonic() + self.patience_s)
                await conversation.state.reach(context)
        except BaseException:
            self.forget()
            raise
        return context

    def forget(self) -> None:
        """Take a new topic and new connections for the next state."""
        self._known = None
        for link in self._good.values():
            link.close()

    async def leave(self) -> str:
        """Close everything, and delete the topics. Returns why they may still be there."""
        self.forget()
        for link in self._hostile.values():
            link.close()
        if not self.topics or self._settings.keep:
            return ""
        try:
            async with asyncio.timeout(self._timeout_s):
                with closing(await self.link()) as link:
                    values = {"topicNames": self.topics, "timeoutMs": self._settings.timeout_ms}
                    await link.call("DeleteTopics", values)
        except (KfuzzError, TimeoutError) as error:
            return f"{', '.join(self.topics)} may still be there: {str(error) or 'no answer in time'}"
        return ""

    async def ask(self, case: Case, context: Context) -> Asked:
        """Send a case, and see what happens. ``EncodeError`` if the context's values leave no place for it."""
        try:
            link = await self._kept(self._hostile, CONVERSATIONS[case.conversation].place)
        except ConnectionLost as error:
            return Asked(case, b"", Reaction("closed", harm="gone", text=str(error)))
        body = case.make(context)
        shot = case.shot(body, link.next_number)
        sent = b"".join(shot.pieces)
        values = _read(case, body)
        # For how long the request allows the broker to wait.
        allowed_ms = next((int(values[name]) for name in WAITS if name in values), 0) if values else 0
        is_long = allowed_ms > max(self._settings.timeout_ms, REBALANCE_TIMEOUT_MS)
        wait_s = HELD_S if is_long else self._timeout_s + max(allowed_ms, 0) / 1000
        wants_none = case.api == "Produce" and values is not None and values.get("acks") == 0
        takes = await _send(link, shot, takes=shot.waits and not wants_none)
        if wants_none:
            # A good request on the same connection: its answer comes after everything else.
            number = link.next_number()
            takes = [link.later(number, [frame("ApiVersions", 0, number, b"")])]
        if not shot.waits:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            link.close()
            return Asked(case, sent, Reaction("abandoned"))
        _, left = await asyncio.wait(takes, timeout=wait_s)
        if left and link.lost is None:
            link.lose("no answer", "silent")
            if is_long:
                return Asked(case, sent, Reaction("held"))
            return Asked(case, sent, Reaction("silent", harm="silent", text=f"no answer within {wait_s:g} s"))
        answer = takes[-1].result()
        if answer is None:
            is_good = values is not None and case.kind != "frame"
            harm: Harm = "malformed" if link.lost_how == "garbled" else "hung up" if is_good else ""
            text = foreign_text(link.lost or "") if harm else ""
            return Asked(case, sent, Reaction(link.lost_how, harm=harm, text=text))
        return Asked(case, sent, Reaction("unanswered") if wants_none else answered(sent, answer))


async def _send(link: Link, shot: Shot, *, takes: bool) -> list[asyncio.Future[bytes | None]]:
    """Send all pieces. With ``takes``, the futures get the answers, or None if the connection is lost before."""
    for piece in shot.pieces[:-1]:
        link.send(0, [piece], None)
        # Each piece is sent by itself.
        await asyncio.sleep(0)
    if not takes:
        link.send(0, shot.pieces[-1:], None)
        return []
    return [link.later(number, [] if at else shot.pieces[-1:]) for at, number in enumerate(shot.numbers)]


def _read(case: Case, body: bytes) -> Message | None:
    """The values of a request, as Kafka reads them; None if it does not, or if the frame is not a good one."""
    if case.shape is not None:
        return None
    try:
        return decode(f"{case.api}Request", case.version, body, elements_max=ELEMENTS_MAX)
    except DecodeError:
        return None


class Unwell(KfuzzError):
    """A broker answers without errors, and yet not what it should."""


class Health:
    """Parts that worked at the start and must work ever after. ``name`` makes names for what they need."""

    def __init__(self, side: Side, name: Callable[[], str]) -> None:
        self._side = side
        self._name = name
        self._known: tuple[str, bytes] | None = None
        self.parts: tuple[str, ...] = ()
        self.checks = 0

    async def learn(self) -> Mapping[str, str]:
        """Find out which parts work, and return why the others do not."""
        missing = {name: failure for name in PARTS if (failure := await self._failure(name))}
        self.parts = tuple(name for name in PARTS if name not in missing)
        return missing

    async def failure(self) -> str:
        """Why the broker is not well; empty if it is."""
        self.checks += 1
        for name in self.parts or (CONNECT,):
            if failure := await self._failure(name):
                return f"{name}: {failure}"
        return ""

    async def _failure(self, name: str) -> str:
        side = self._side
        try:
            with closing(await side.link()) as link:
                if name == CONNECT:
                    return ""
                context = Context(self._name(), link=link, deadline=time.monotonic() + side.patience_s)
                async with asyncio.timeout(side.patience_s):
                    self._known = self._known or await side.new_topic(self._name())
                    context.topic, context.topic_id = self._known
                    await PARTS[name](context)
        except IndexError:
            self._known = None
            return "an answer lacks what was asked for"
        except (KfuzzError, TimeoutError) as error:
            # A hostile request may have deleted the topic, as anybody may.
            self._known = None
            return foreign_text(str(error) or "no answer in time")
        return ""


async def _produce_and_fetch(context: Context) -> None:
    data = batch()
    answer = await context.ask("Produce", produced(data, timeoutMs=5000))
    offset = answer["responses"][0]["partitionResponses"][0]["baseOffset"]
    asked = {"clusterId": None, "fetchOffset": offset, "maxWaitMs": 500, "minBytes": 1}
    while True:
        answer = await context.ask("Fetch", asked)
        found = answer["responses"][0]["partitions"][0]["records"] or b""
        # The broker sets the offset and the leader epoch, which the CRC does not cover.
        if bytes(found)[16 : len(data)] == data[16:]:
            return
        if found or time.monotonic() > context.deadline:
            raise Unwell("the batch that was accepted is not served")


async def _whole(name: str, context: Context) -> None:
    """Reach the state of a conversation, and leave it."""
    state, mine = CONVERSATIONS[name].state, replace(context)
    await state.reach(mine)
    if state.end is not None:
        await state.end(mine)


# The part for a broker with which nothing else works.
CONNECT: Final = "connect"
PARTS: Final[Mapping[str, Callable[[Context], Awaitable[None]]]] = {
    "produce and fetch": _produce_and_fetch,
    "join a group": partial(_whole, "classic-group"),
    "commit a transaction": partial(_whole, "transaction"),
}
