"""Topics: what their partitions hold, and which offsets these have."""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from kfuzz import records
from kfuzz.errors import RecordsError, UsageError
from kfuzz.kafka import INT64_MAX, TOPIC_NAME
from kfuzz.text import foreign_text
from kfuzz.vectors import Vector
from kfuzz.wire.io.layout import CONTROL, HEADER_AT
from kfuzz.wire.records.framing import frames, next_frame
from kfuzz.wire.walk.transactions import ABORT, control_type

CONSUMER: Final = "consumer"
# A topic that a program feeds has at most so many partitions.
PARTITIONS_MAX: Final = 100
# The high watermark of bytes that must be refused. It is so high that a client which skips them asks for more.
FAR: Final = 1_000_000_000_000
OFFSET: Final = struct.Struct(">q")
INT32: Final = struct.Struct(">i")
ATTRIBUTES: Final = struct.Struct(">h")


class Step(NamedTuple):
    """The bytes that one fetch returns, and the offset after them."""

    data: bytes
    end: int


class AbortedRange(NamedTuple):
    """An aborted transaction. ``last_offset`` is that of its marker, or the largest offset if it has none."""

    producer_id: int
    first_offset: int
    last_offset: int


class Header(NamedTuple):
    """A whole batch in some bytes: its place, and the offsets of its header."""

    at: int
    size: int
    magic: int
    base_offset: int
    last_offset: int


class Partition:
    """The log of a partition, from offset ``start`` to :attr:`end`, the offset after the last record.

    :attr:`high_watermark` and :attr:`last_stable_offset` are the values that clients get. The first step whose end is
    above the offset of a fetch answers it. If that offset lies inside the step, the answer begins with its batch.
    """

    # The offset of the last fetch, and how many fetches in a row had it.
    fetch_offset: int = -1
    times: int = 0
    # How many connections have fetched it.
    connections: int = 0
    start: int = 0
    # How many bytes the answers take of memory that a client has filled.
    written_bytes: int = 0
    # The broker that leads the partition, and the leader's epoch.
    leader: int = 1
    leader_epoch: int = 0
    # Whether the epochs of requests and batches are compared. Those of vectors are arbitrary.
    has_epochs: bool = False
    # Whether the limits of a request do not cut the first records.
    is_exact: bool = True
    # The next answer with records is cut after so many bytes.
    cut_bytes: int | None = None
    # Known aborted transactions, in the order in which they are listed.
    aborted: Sequence[AbortedRange] = ()
    # Whether they are listed in read_uncommitted too, as older versions of Redpanda do.
    aborted_always: bool = False

    def __init__(self) -> None:
        # The errors of the next answers to Produce.
        self.errors: deque[int] = deque()

    @property
    def steps(self) -> Iterable[Step]:
        """The bytes of the fetches, one after the other."""
        raise NotImplementedError

    @property
    def end(self) -> int:
        """The first offset without records."""
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        """The high watermark in answers to Fetch and ListOffsets."""
        return self.end

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: nothing from there on is given to a fetch in read_committed."""
        return self.high_watermark

    def fetched(self, offset: int, *, committed: bool = False, room: int = INT64_MAX) -> Step:
        """The answer to a fetch at ``offset``. There are no bytes if nothing is left from there on.

        ``committed`` leaves out what is not stable. ``room`` is the limit in bytes. The first batch ignores it, and
        the last one may be cut.
        """
        self.times = self.times + 1 if offset == self.fetch_offset else 1
        self.fetch_offset = offset
        data, end = self._from(offset, committed, room)
        if len(data) > room and not self.is_exact:
            data = _limited(data, offset, room)
        if data and self.cut_bytes is not None:
            data, self.cut_bytes = data[: self.cut_bytes], None
        return Step(data, end)

    def _from(self, offset: int, committed: bool, room: int) -> Step:
        stable = self.last_stable_offset
        begin = self.start
        if offset < (min(self.end, stable) if committed else self.end):
            for data, end in self.steps:
                if committed and end > stable:
                    data, end = _before(data, stable), stable
                if end > offset:
                    # A step may begin with batches that lie before it: a fetch at its beginning gets them.
                    return Step(_after(data, offset) if offset > begin else data, end)
                begin = end
        return Step(b"", offset)

    def aborted_between(self, offset: int, end: int) -> list[AbortedRange]:
        """The aborted transactions that a fetch from ``offset`` to ``end`` lists.

        Mirrors ``org.apache.kafka.storage.internals.log.TransactionIndex.collectAbortedTxns``.
        """
        return [one for one in self.aborted if one.last_offset >= offset and one.first_offset < end]

    def move(self, leader: int) -> None:
        """Let another broker lead the partition, in a new epoch."""
        self.leader, self.has_epochs = leader, True
        self.leader_epoch += 1

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch`` in the log, and the offset after it; -1 and -1 if it is unknown.

        Mirrors ``org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache.endOffsetFor``.
        """
        if not self.has_epochs:
            return epoch, self.high_watermark
        begun = self._epochs()
        if epoch < 0 or epoch > begun[-1][0]:
            return -1, -1
        if epoch == begun[-1][0]:
            return epoch, self.end
        before = [one for one, _ in begun if one <= epoch]
        return before[-1] if before else epoch, next(first for one, first in begun if one > epoch)

    def _epochs(self) -> list[tuple[int, int]]:
        """The leader epochs in the headers of the batches, and the present one, each with its first offset."""
        begun: list[tuple[int, int]] = []
        for step in self.steps:
            for frame in headers(step.data):
                if frame.magic == 2:
                    [epoch] = INT32.unpack_from(step.data, frame.at + HEADER_AT["partition_leader_epoch"])
                    if not begun or epoch > begun[-1][0]:
                        begun.append((max(epoch, 0), frame.base_offset))
        if not begun or self.leader_epoch > begun[-1][0]:
            begun.append((self.leader_epoch, self.end))
        return begun


class VectorPartition(Partition):
    """A vector of kind ``records``. Bombs are built when a client first asks for them."""

    def __init__(self, vector: Vector) -> None:
        super().__init__()
        self.vector = vector

    @property
    def steps(self) -> Iterable[Step]:
        return (Step(self.vector.data, self.end),)

    @cached_property
    def end(self) -> int:
        batches = self.vector.expect[CONSUMER].get("batches")
        if batches is None:
            return end_of(self.vector.data)
        # Batches may go backwards.
        return _bounded(max((int(batch["next_offset"]) for batch in batches), default=0), self.vector.data)

    @cached_property
    def high_watermark(self) -> int:
        refused = self.vector.expect[CONSUMER]["verdict"] == "invalid"
        return max(self.end, FAR) if refused else self.end


class GivenPartition(Partition):
    """Bytes in one or several steps, with the offset after them if it is known.

    ``aborted`` has pairs of producer id and first offset.
    """

    steps: Sequence[Step] = ()
    end = 0
    last_stable_offset = 0

    def __init__(
        self,
        steps: Sequence[bytes],
        next_offset: int | None = None,
        *,
        is_exact: bool = True,
        start: int = 0,
        aborted: Sequence[tuple[int, int]] = (),
        aborted_always: bool = False,
        last_stable_offset: int | None = None,
    ) -> None:
        super().__init__()
        self.is_exact, self.start, self.aborted_always = is_exact, start, aborted_always
        made: list[Step] = []
        # An empty step is none: no fetch could pass it.
        for data in filter(None, steps):
            self.end = max(self.end, end_of(data))
            made.append(Step(data, self.end))
        if next_offset is not None and made:
            self.end = _bounded(next_offset, made[-1].data)
            made[-1] = Step(made[-1].data, self.end)
        self.steps = made
        self.last_stable_offset = self.end if last_stable_offset is None else last_stable_offset
        markers = [one for step in self.steps for one in _abort_markers(step.data)] if aborted else []
        self.aborted = [
            AbortedRange(
                producer_id,
                first_offset,
                min((at for who, at in markers if who == producer_id and at >= first_offset), default=INT64_MAX),
            )
            for producer_id, first_offset in aborted
        ]


def stream_partition(vector: Vector) -> GivenPartition:
    """A vector of kind ``stream``: each of its steps is the answer to a fetch.

    If its consumer is one in read_uncommitted and it has a list of aborted transactions, each fetch gets the list.
    """
    return GivenPartition(
        [bytes.fromhex(step["hex"]) for step in vector.steps],
        start=int(vector.options.get("fetch_offset", 0)),
        aborted=[(int(one["producer_id"]), int(one["first_offset"])) for one in vector.options.get("aborted", ())],
        aborted_always="aborted" in vector.options and vector.options.get("isolation") == "read_uncommitted",
    )


def headers(data: bytes) -> Iterator[Header]:
    """The headers of the whole batches in ``data``, until one that is cut or has an impossible length."""
    delta_at = HEADER_AT["last_offset_delta"]
    for at, size, magic in frames(data):
        [offset] = OFFSET.unpack_from(data, at)
        # A frame may be shorter than a header of its format.
        is_whole = magic == 2 and size >= delta_at + INT32.size
        last = offset + INT32.unpack_from(data, at + delta_at)[0] if is_whole else offset
        yield Header(at, size, magic, offset, last)


def _abort_markers(data: bytes) -> Iterator[tuple[int, int]]:
    """The producer and the offset of each abort marker that can be read."""
    for frame in headers(data):
        if frame.magic == 2 and ATTRIBUTES.unpack_from(data, frame.at + HEADER_AT["attributes"])[0] & CONTROL:
            try:
                [batch] = records.decode(data[frame.at : frame.at + frame.size])
            except RecordsError:
                continue
            if batch.records and control_type(batch.records[0].key) == ABORT:
                yield batch.producer_id, batch.base_offset


def _before(data: bytes, offset: int) -> bytes:
    """The batches that begin before ``offset``."""
    return next((data[: frame.at] for frame in headers(data) if frame.base_offset >= offset), data)


def _after(data: bytes, offset: int) -> bytes:
    """The bytes from the batch with ``offset`` on, as a broker looks it up; all bytes if no header reaches so far.

    Mirrors ``org.apache.kafka.common.record.FileRecords.searchForOffsetFromPosition``.
    """
    return next((data[frame.at :] for frame in headers(data) if frame.last_offset >= offset), data)


def _limited(data: bytes, offset: int, room: int) -> bytes:
    """At most ``room`` bytes, or one batch that is larger, from the batch with ``offset`` on; the last may be cut."""
    data = _after(data, offset)
    return data[: max(room, next((frame.size for frame in headers(data)), len(data)))]


def end_of(data: bytes) -> int:
    """The offset after the last whole batch, according to the headers. It is far away if a frame cannot be read.

    A broker cannot pass over such bytes, so a client that asks for what comes next gets them again.
    """
    at, last = 0, -1
    for frame in headers(data):
        at, last = frame.at + frame.size, max(last, frame.last_offset)
    is_broken = at < len(data) and next_frame(data, at)[0] < 0
    return max(FAR, _bounded(last + 1, data)) if is_broken else _bounded(last + 1, data)


def _bounded(offset: int, data: bytes) -> int:
    """The end offset that clients see: at least 1 if there are bytes, so that a client at offset 0 fetches them."""
    return min(max(offset, 1), INT64_MAX) if data else 0


class Topic:
    """A topic: its name, and the logs of its partitions. With an :attr:`error`, no client gets anything else of it."""

    error: int = 0

    def __init__(self, name: str, *partitions: Partition) -> None:
        self.name = name
        self.partitions = list(partitions)

    @cached_property
    def id(self) -> bytes:
        """The topic's id: the same in each run."""
        return hashlib.sha256(f"kfuzz topic {self.name}".encode()).digest()[:16]


@dataclass
class Topics:
    """The topics of a broker, by name and by id, in the order in which they came."""

    by_name: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[bytes, Topic] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def written_bytes(self) -> int:
        """How many bytes clients have written."""
        return sum(one.written_bytes for topic in self for one in topic.partitions)

    def put(self, topic: Topic) -> None:
        """Add a topic, or replace the one with its name. ``UsageError`` if the name is not legal."""
        if not TOPIC_NAME.fullmatch(topic.name):
            raise UsageError(
                f"{foreign_text(repr(topic.name))} is no name of a topic; take 1 to 249 letters, digits "
                "and any of . _ -"
            )
        self.by_name[topic.name] = self.by_id[topic.id] = topic

    def put_partition(self, name: str, index: int, partition: Partition) -> None:
        """Add the next partition of a topic, or replace one. A topic begins with partition 0, which replaces it."""
        topic = self.by_name.get(name)
        if not index:
            self.put(Topic(name, partition))
            return
        if topic is None or index > len(topic.partitions) or index >= PARTITIONS_MAX:
            raise UsageError(
                f"topic {foreign_text(repr(name))} gets partition 0 first, then 1, then 2, up to {PARTITIONS_MAX - 1}"
            )
        topic.partitions[index : index + 1] = [partition]

    def partition(self, name: str, index: int) -> Partition | None:
        """A partition of a topic; None if it is not there."""
        topic = self.by_name.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def remove(self, name: str) -> None:
        """Remove a topic; nothing happens if there is none."""
        if (topic := self.by_name.pop(name, None)) is not None:
            del self.by_id[topic.id]


def topics_of(vectors: Iterable[Vector]) -> dict[str, Topic]:
    """By the ids of the vectors, a topic for each vector that a consumer can be shown: records and streams."""
    made = {}
    for vector in vectors:
        if vector.kind == "stream" and all(CONSUMER in step["expect"] for step in vector.steps):
            made[vector.id] = Topic(vector.id.replace("/", "."), stream_partition(vector))
        elif CONSUMER in vector.expect:
            made[vector.id] = Topic(vector.id.replace("/", "."), VectorPartition(vector))
    return made
