"""The parts of a partition's log that a producer may send: batches and the ends of transactions, in the log's order.

The segments are mapped privately. So the fields that a broker wants otherwise are written into the mapped batch: the
system copies one page of it, and the rest is sent from the file's own pages. Of these fields only the producer's are
within the CRC. The new CRC follows from the old one, without reading the payload again.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from kfuzz import records
from kfuzz.control import ControlRecordType, decode_control
from kfuzz.errors import DecodeError, EncodeError, UsageError
from kfuzz.findings.stored import LENGTH_WRONG
from kfuzz.kafka import INT32_MAX, NO_TIMESTAMP
from kfuzz.logs.segments import Segment, batch_bytes, find_segments
from kfuzz.mapped import became_shorter, mapped, require_whole
from kfuzz.records import Limits, Record, Topic
from kfuzz.records.builder import rebuild
from kfuzz.records.read.limits import DEFAULT_LIMITS
from kfuzz.wire.io.checksum import crc32c, crc32c_joined
from kfuzz.wire.io.layout import (
    BATCH_CRC_COVERS_FROM,
    BATCH_HEADER_SIZE,
    CODEC_AT,
    CODEC_MASK,
    CONTROL,
    HEADER_AT,
    MAGIC_AT,
    TRANSACTIONAL,
)
from kfuzz.wire.records.framing import frames, next_frame
from kfuzz.wire.walk.record_list import renumbered
from kfuzz.wire.walk.search import Search

if TYPE_CHECKING:
    from kfuzz.logs.indexes import Starts

WINDOW_BYTES: Final = 4 << 20
# Old messages come one by one. As many as this go into one batch.
RUN_BYTES: Final = 64 << 10
# The sizes that a broker takes are for the broker to say.
TOPIC: Final = Topic(max_message_bytes=INT32_MAX, max_request_bytes=INT32_MAX)
# A broker takes the first two, but a consumer would read other timestamps, or later miss tombstones. The third has no
# transaction that it could belong to.
CHANGED: Final = ("timestamp-type-not-create", "delete-horizon-produced", "transactional-without-id")
# Reasons for a refusal that rewriting cannot mend.
NOT_MENDED: Final = ("base-sequence-negative", "transactional-without-id")
CONTROL_BATCH: Final = "control-batch-produced"
OLD: Final = "magic-not-produced"
# Whether the end of a transaction commits it, by the type of its record.
COMMITS: Final[Mapping[int, bool]] = {ControlRecordType.COMMIT: True, ControlRecordType.ABORT: False}

BASE_OFFSET: Final = bytes(8)
EPOCH_AT: Final = HEADER_AT["partition_leader_epoch"]
NO_EPOCH: Final = b"\xff\xff\xff\xff"
ATTRIBUTES: Final = struct.Struct(">h")
ATTRIBUTES_AT: Final = HEADER_AT["attributes"]
# The base timestamp and the max timestamp, which follows it.
TIMES: Final = struct.Struct(">qq")
TIMES_AT: Final = HEADER_AT["base_timestamp"]
COUNT: Final = struct.Struct(">i")
COUNT_AT: Final = HEADER_AT["record_count"]
PRODUCER: Final = struct.Struct(">qhi")
PRODUCER_AT: Final = HEADER_AT["producer_id"]
CRC: Final = struct.Struct(">I")
CRC_AT: Final = HEADER_AT["crc"]


@dataclass(frozen=True, slots=True)
class Part:
    """A partition of the log with its segments, which are in the order of their offsets."""

    topic: str
    partition: int
    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.segments)


@dataclass(slots=True)
class Batch:
    """A batch that a broker takes: magic 2, base offset 0.

    ``producer_id`` is the log's, or -1. ``timestamp`` is the batch's max timestamp in ms, or -1. ``log_bytes`` is what
    it takes in the log.
    """

    data: memoryview
    records: int
    producer_id: int
    transactional: bool
    timestamp: int
    log_bytes: int
    converted: bool = False


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a producer's transaction."""

    producer_id: int
    commit: bool
    log_bytes: int


@dataclass(frozen=True, slots=True)
class Left:
    """Bytes that are not sent. ``reason`` is a finding's code, or ``empty`` for a batch that lost all its records."""

    reason: str
    batches: int
    records: int
    log_bytes: int


Step = Batch | Marker | Left
EMPTY: Final = "empty"


def find_parts(path: str | Path, *, topics: str = "*") -> list[Part]:
    """The partitions in ``path``: a corpus, a log directory, a partition folder or a segment file.

    Raises ``UsageError`` as ``logs.find_segments`` does, and for a file that is in no partition folder.
    """
    found: dict[tuple[str, int], list[Segment]] = {}
    for segment in find_segments(path, topics=topics):
        if segment.topic is None or segment.partition is None:
            raise UsageError(
                f"{segment.path} is in no partition folder, so its topic is not known; put it into a folder such as "
                f"orders-0, as {'0' * 20}.log"
            )
        found.setdefault((segment.topic, segment.partition), []).append(segment)
    return [Part(topic, partition, tuple(segments)) for (topic, partition), segments in found.items()]


def steps(segments: Sequence[Segment], *, convert: bool = False, limits: Limits | None = None) -> Iterator[Step]:
    """The steps for each batch of a partition, in order. ``convert`` rewrites what a broker would refuse.

    ``UsageError`` if a file cannot be read, or becomes shorter. A batch keeps its window of the file mapped.
    """
    for segment in segments:
        if segment.size:
            with segment.open() as file:
                yield from _Reader(segment, file, convert, limits or Limits()).steps()


def step_of(batch: memoryview, limits: Limits = DEFAULT_LIMITS) -> Step:
    """The step for one batch of magic 2, which is not checked. In its header, the broker's own fields are reset."""
    size = len(batch)
    [attributes] = ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)
    producer_id = PRODUCER.unpack_from(batch, PRODUCER_AT)[0]
    if attributes & CONTROL:
        # Other control batches are a broker's own, as are those of producers that it does not know.
        try:
            [record] = records.decode(batch, limits=limits)[0].records
            return Marker(producer_id, COMMITS[decode_control(record.key, record.value).key.type], size)
        except (DecodeError, ValueError, KeyError):
            return Left(CONTROL_BATCH, 1, 1, size)
    batch[: len(BASE_OFFSET)] = BASE_OFFSET
    batch[EPOCH_AT : EPOCH_AT + len(NO_EPOCH)] = NO_EPOCH
    [count] = COUNT.unpack_from(batch, COUNT_AT)
    newest = TIMES.unpack_from(batch, TIMES_AT)[1]
    return Batch(batch, count, producer_id, bool(attributes & TRANSACTIONAL), newest, size)


def payload_crc(batch: memoryview) -> int:
    """The CRC-32C of a batch's payload, from that of the batch and from its header: the payload is not read."""
    [stored] = CRC.unpack_from(batch, CRC_AT)
    # Joining with an empty payload's CRC, which is 0, gives the header's share of the whole CRC.
    size = len(batch) - BATCH_HEADER_SIZE
    return int(stored) ^ crc32c_joined(crc32c(batch[BATCH_CRC_COVERS_FROM:BATCH_HEADER_SIZE]), 0, size)


def set_header(batch: memoryview, producer: tuple[int, int, int] | None, newest: int | None = None) -> None:
    """Write fields into the header of a batch of magic 2, and the CRC that follows from its old one.

    ``producer`` is the producer's id, epoch and sequence. ``newest`` moves all timestamps (ms) so that the newest is
    this one. A batch whose CRC was wrong stays wrong.
    """
    covered = batch[BATCH_CRC_COVERS_FROM:BATCH_HEADER_SIZE]
    before = crc32c(covered)
    if newest is not None:
        base, last = TIMES.unpack_from(batch, TIMES_AT)
        TIMES.pack_into(batch, TIMES_AT, base + newest - last, newest)
    if producer is not None:
        PRODUCER.pack_into(batch, PRODUCER_AT, *producer)
    # A CRC is linear: it changes by that of the change, and the payload is not read.
    change = crc32c_joined(before ^ crc32c(covered), 0, len(batch) - BATCH_HEADER_SIZE)
    CRC.pack_into(batch, CRC_AT, CRC.unpack_from(batch, CRC_AT)[0] ^ change)


@dataclass(slots=True)
class _Reader:
    """One pass over a segment."""

    segment: Segment
    file: BinaryIO
    convert: bool
    limits: Limits
    starts: Starts | None = None

    def steps(self) -> Iterator[Step]:
        at = 0
        end = self.segment.size
        if os.fstat(self.file.fileno()).st_size < end:
            raise became_shorter(self.segment.path)
        window = WINDOW_BYTES
        while at < end:
            view = mapped(self.file, at, min(at + window, end), private=True)
            began = at
            for step in chain.from_iterable(map(self._of_run, self._runs(view))):
                if isinstance(step, Left) and not Search(view[at - began : at - began + step.log_bytes]).holds(0):
                    # The length may be wrong, so sound batches may be where it leads over.
                    after = self._after(at, step.log_bytes)
                    if after != at + step.log_bytes:
                        yield replace(step, log_bytes=after - at)
                        at = after
                        break
                at += step.log_bytes
                yield step
            require_whole(view)
            if at > began:
                window = WINDOW_BYTES
                continue
            notes = next_frame(view, 0)[2]
            # The window may have less than one batch.
            if not notes and len(view) < (needed := batch_bytes(view)) <= end - at:
                window = needed
                continue
            after = self._after(at, 0)
            code = "file-truncated" if after == end else LENGTH_WRONG
            yield Left(notes[0][0] if notes else code, 1, 0, after - at)
            at = after

    def _after(self, bad: int, size: int) -> int:
        """Where the next batch begins after the bad one of this size."""
        # It needs numpy, whose import would take as long as all others together.
        from kfuzz.logs.indexes import Starts

        self.starts = self.starts or Starts(self.segment, self.file)
        return self.starts.resume(bad, size, self.segment.size)

    def _of_run(self, run: list[memoryview]) -> Iterable[Step]:
        return [self._new(run[0])] if run[0][MAGIC_AT] == 2 else self._old(run)

    def _runs(self, view: memoryview) -> Iterator[list[memoryview]]:
        """The batches in a window; old messages without a codec that follow each other, together."""
        run: list[memoryview] = []
        run_bytes = 0
        for start, size, magic in frames(view):
            one = view[start : start + size]
            is_joined = self.convert and magic < 2 and not one[CODEC_AT[magic]] & CODEC_MASK
            if run and (not is_joined or run_bytes + size > RUN_BYTES or run[0][MAGIC_AT] != magic):
                yield run
                run, run_bytes = [], 0
            if is_joined:
                run.append(one)
                run_bytes += size
            else:
                yield [one]
        if run:
            yield run

    def _new(self, batch: memoryview) -> Step:
        """A batch of magic 2."""
        size = len(batch)
        step = step_of(batch, self.limits)
        if not isinstance(step, Batch):
            return step
        verdict = records.check(batch, role="broker", topic=TOPIC, limits=self.limits)
        reason = verdict.fatal.code if verdict.fatal else ""
        if verdict.findings and not reason:
            reason = next((finding.code for finding in verdict.findings if finding.code in CHANGED), "")
        if not reason:
            return step
        made = self._rebuilt([batch]) if self.convert and reason not in NOT_MENDED else None
        return Left(reason, 1, max(step.records, 0), size) if made is None else _converted(made, 1, size)

    def _old(self, messages: Sequence[memoryview]) -> Iterator[Step]:
        """One message or wrapper of magic 0 or 1, or a run of uncompressed messages."""
        size = sum(map(len, messages))
        if not self.convert:
            count = records.check(messages[0], limits=self.limits).record_count
            yield Left(OLD, 1, count, size)
            return
        made = self._rebuilt(messages)
        if made is not None:
            yield _converted(made, len(messages), size)
        elif len(messages) > 1:
            for one in messages:
                yield from self._old([one])
        else:
            verdict = records.check(messages[0], limits=self.limits)
            reason = verdict.fatal.code if verdict.fatal else OLD
            yield Left(reason, 1, verdict.record_count, size)

    def _rebuilt(self, batches: Sequence[memoryview]) -> memoryview | None:
        """One batch with the records of ``batches``, empty without any; None if it cannot be read or written so."""
        try:
            found = [one for data in batches for one in records.decode(data, limits=self.limits)]
            rows: list[Record] = [record for one in found for record in one.records]
            if not rows:
                return memoryview(b"")
            first = found[0]
            made = rebuild(
                renumbered(rows, 0, keep_attributes=False),
                magic=2,
                base_offset=0,
                compression=first.compression,
                log_append_time=NO_TIMESTAMP,
                producer_id=first.producer_id,
                producer_epoch=first.producer_epoch,
                base_sequence=first.base_sequence,
                transactional=first.transactional,
            )
        except (DecodeError, EncodeError):
            return None
        # The producer's fields will be written into it.
        return memoryview(bytearray(made.data))


def _converted(made: memoryview, batches: int, log_bytes: int) -> Step:
    """The step for what ``batches`` batches of the log, of so many bytes, were rewritten to."""
    if not made:
        return Left(EMPTY, batches, 0, log_bytes)
    step = step_of(made)
    return replace(step, log_bytes=log_bytes, converted=True) if isinstance(step, Batch) else step
