"""Bytes to record batches and findings: one walk for every magic, profile and role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from kfuzz.errors import RecordsError, UsageError
from kfuzz.findings import PROFILES, Finding, Profile
from kfuzz.findings.records import CODES, from_note
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS, ROLES, Codec, Role
from kfuzz.records.codecs import Decompressed, decompress, open_stream
from kfuzz.records.model import Record, RecordBatch
from kfuzz.records.read.roles import (
    DEFAULT_TOPIC,
    Header,
    Row,
    Segment,
    Topic,
    is_tail,
    produced_batch,
    produced_header,
    produced_records,
    request,
    rows_of,
)
from kfuzz.wire.framing import next_frame
from kfuzz.wire.layout import (
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
)
from kfuzz.wire.message_set import first_and_last
from kfuzz.wire.record_batch import LIMIT_BYTES
from kfuzz.wire.scan import END, PAYLOAD, REFUSED, EachRecord, Scan

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.wire.report import Note

__all__ = ["Limits", "Reading", "Verdict", "Walk", "batches", "check", "decode", "iterate", "read"]

# org.apache.kafka.common.record.ControlRecordType: abort, commit, leader change, snapshot header and footer, KRaft
# version, voters.
CONTROL_TYPES = range(7)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that the caller sets. Kafka has none of them: docs/differences.md.

    ``decompressed_bytes``: the most that one batch's payload may grow to; below 2 GiB.
    """

    decompressed_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        if not 0 < self.decompressed_bytes < LIMIT_BYTES:
            raise UsageError(
                f"decompressed_bytes is {self.decompressed_bytes}; it must be between 1 and {LIMIT_BYTES - 1}"
            )


DEFAULT_LIMITS = Limits()


@dataclass(slots=True)
class Verdict:
    """What :func:`check` says of some bytes.

    ``batch_count`` and ``record_count`` count the batches before the first one that cannot be read, and their records.
    A batch that only profile strict refuses can be read, so it counts. ``consumed``: the end of the last complete batch
    among them, in bytes. ``partial_tail``: a cut batch follows, which is no error in a fetch or at the end of a log.
    ``findings``: everything that is wrong or odd. ``fatal``: the first finding that refuses the bytes, or None.
    ``largest_timestamp``: for a broker, the largest of the records (milliseconds), which becomes the max timestamp.
    """

    batch_count: int = 0
    record_count: int = 0
    consumed: int = 0
    partial_tail: bool = False
    findings: list[Finding] = field(default_factory=list)
    largest_timestamp: int = -1

    @property
    def fatal(self) -> Finding | None:
        return next((finding for finding in self.findings if finding.severity == "fatal"), None)

    def raise_fatal(self) -> None:
        """``RecordsError`` if there is a fatal finding."""
        if self.findings and (fatal := self.fatal) is not None:
            raise RecordsError(fatal)


@dataclass(slots=True)
class Reading(Verdict):
    """A verdict and the batches that it counts."""

    batches: list[RecordBatch] = field(default_factory=list)


def read(
    data: Buffer,
    *,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    topic: Topic = DEFAULT_TOPIC,
) -> Reading:
    """Read every batch in ``data`` with its records. Never raises on bad bytes: ``Reading.fatal`` says what was
    refused.

    ``topic`` is what a broker knows of the partition. ``UsageError`` for another role with a topic, and for an unknown
    role or profile.

    Mirrors ``MemoryRecords.batches()`` and, per batch, ``ensureValid()`` and ``streamingIterator()``; for a broker
    ``ProduceRequest.validateRecords`` and ``LogValidator``, for a log ``LogSegment.recover``.
    """
    reading = Reading()
    walk = _walk(data, profile, role, limits, topic, into=reading, objects=True)
    reading.batches += walk.batches()
    walk.count()
    return reading


def check(
    data: Buffer,
    *,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    topic: Topic = DEFAULT_TOPIC,
) -> Verdict:
    """As :func:`read`, by the same loop, without making objects."""
    verdict = Verdict()
    _walk(data, profile, role, limits, topic, into=verdict, objects=False).run()
    return verdict


def batches(
    data: Buffer,
    *,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    topic: Topic = DEFAULT_TOPIC,
) -> Iterator[RecordBatch]:
    """The batches in ``data`` one at a time, so that no more than one batch's records are in memory.

    ``RecordsError`` with the first fatal finding, when iteration reaches the batch that has it.
    """
    walk = _walk(data, profile, role, limits, topic, into=Verdict(), objects=True)
    for batch in walk.batches():
        walk.verdict.raise_fatal()
        yield batch
    walk.verdict.raise_fatal()


def iterate(data: Buffer, *, profile: Profile = "kafka", limits: Limits = DEFAULT_LIMITS) -> Iterator[Record]:
    """The records in ``data`` as a consumer gets them, control records too, one at a time.

    The cheapest way to get objects, for they are reused: unless you keep a reference to a record, its key or its value,
    the object is filled again two iterations later. What you keep never changes. This depends on the reference counts
    of CPython; where a count says that someone else has the object, a new one is made.

    An iterator is for one thread at a time: ``ValueError`` or ``RuntimeError`` where two ask at once. Each batch is
    judged whole before its first record comes. ``RecordsError`` with the first fatal finding, when its batch
    is come to.
    Mirrors ``org.apache.kafka.common.record.MemoryRecords.records``.

    >>> from kfuzz import records
    >>> data = records.encode([records.RecordBatch(7, 8, [records.Record(i, 0, b"k", b"v") for i in (7, 8)])])
    >>> [record.offset for record in records.iterate(data)]
    [7, 8]
    """
    walk = _walk(data, profile, "consumer", limits, DEFAULT_TOPIC, into=Verdict(), objects=True)
    return EachRecord(walk.scan, walk.look_or_raise)


def decode(
    data: Buffer,
    *,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    topic: Topic = DEFAULT_TOPIC,
) -> list[RecordBatch]:
    """The batches in ``data``; ``RecordsError`` with the first fatal finding where the bytes are refused."""
    return list(batches(data, profile=profile, role=role, limits=limits, topic=topic))


def _walk(
    data: Buffer, profile: Profile, role: Role, limits: Limits, topic: Topic, *, into: Verdict, objects: bool
) -> Walk:
    if role == "broker":
        return _ProduceWalk(data, profile, role, limits, topic, into=into, objects=objects)
    if topic is not DEFAULT_TOPIC:
        raise UsageError(f"role {role!r} does not look at a topic; take role 'broker', or leave topic out")
    kind = _SegmentWalk if role == "log" else Walk
    return kind(data, profile, role, limits, into=into, objects=objects)


class _Refused(Exception):
    """This batch cannot be read; its findings are noted."""


class Walk:
    """One pass over a buffer. Notes of the parse loops become findings here, and nowhere else."""

    # Whether rows are kept even where nobody wants objects.
    with_rows = False

    def __init__(
        self, data: Buffer, profile: Profile, role: Role, limits: Limits, *, into: Verdict, objects: bool
    ) -> None:
        if profile not in PROFILES:
            raise UsageError(f"profile {profile!r} does not exist; take one of {', '.join(PROFILES)}")
        if role not in ROLES:
            raise UsageError(f"role {role!r} does not exist; take one of {', '.join(ROLES)}")
        self.data = data
        self.scan = Scan(data, objects or self.with_rows)
        self.profile: Profile = profile
        self.role: Role = role
        self.limits = limits
        self.objects = objects
        self.verdict = into

    @cached_property
    def view(self) -> memoryview:
        """The bytes as Python reads them. A verdict on good bytes without a codec never asks for them."""
        return memoryview(self.data).cast("B")

    def run(self) -> None:
        """Judge all batches and keep none."""
        while self.look(self.scan.next()):
            pass
        self.count()

    def count(self) -> None:
        verdict = self.verdict
        verdict.batch_count, verdict.record_count, verdict.consumed = self.scan.sums

    def batches(self) -> Iterator[RecordBatch]:
        """The batches up to the first that cannot be read."""
        while self.look(self.scan.next()):
            yield self.batch()

    def look(self, stop: int) -> bool:
        """Note what is wrong where the scan has stopped. False at the end, and where the batch cannot be read."""
        scan = self.scan
        if stop == END:
            self.verdict.partial_tail = scan.is_cut
            return False
        if notes := scan.notes():
            self.take(notes)
        if stop == REFUSED:
            return False
        if stop == PAYLOAD:
            try:
                self.compressed(scan)
            except _Refused:
                return False
        if scan.control:
            self.control(scan.at, scan.records(), ".payload" if stop == PAYLOAD else "")
        return True

    def look_or_raise(self, stop: int) -> bool:
        """The same; ``RecordsError`` with the first fatal finding."""
        is_readable = self.look(stop)
        self.verdict.raise_fatal()
        return is_readable

    # -- findings

    def take(self, notes: list[Note], *, inside: str = "", detail: str = "") -> None:
        path = f"batch[{self.scan.batch_count}]{inside}"
        for note in notes:
            self.verdict.findings.append(from_note(note, path, self.profile, self.role, detail))

    def note(
        self,
        code: str,
        field: str,
        at: int,
        found: int = 0,
        allowed: int = 0,
        *,
        record: int = -1,
        detail: str = "",
        inside: str = "",
    ) -> None:
        self.take([(code, field, at, record, -1, found, allowed, 1)], inside=inside, detail=detail)

    def refuse(self, notes: list[Note], *, inside: str = "") -> None:
        """Take the notes, and go no further where Kafka would not."""
        self.take(notes, inside=inside)
        if any(CODES[note[0]].severity("kafka", self.role) == "fatal" for note in notes):
            raise _Refused

    def poison(self, findings: list[Finding]) -> None:
        """Keep what a consumer will find in a batch that is stored all the same; it will refuse it, and nobody else."""
        cause = next(finding for finding in findings if CODES[finding.code].kafka == "fatal")
        self.verdict.findings += [finding for finding in findings if finding is not cause]
        note = ("records-unreadable", "", cause.at, -1, -1, 0, 0, 1)
        self.verdict.findings.append(from_note(note, cause.path, self.profile, self.role, cause.message))

    # -- batches

    def batch(self, *, unreadable: bool = False) -> RecordBatch:
        """The batch that the scan stopped at, as an object; ``unreadable`` leaves its records out."""
        return (self.record_batch if self.scan.magic == 2 else self.message)(self.scan, unreadable=unreadable)

    def message(self, scan: Scan, *, unreadable: bool) -> RecordBatch:
        offset, timestamp, attributes = scan.message_fields()
        records = [] if unreadable else scan.records()
        return RecordBatch(
            base_offset=records[0].offset if records else offset,
            last_offset=offset,
            records=records,
            magic=scan.magic,
            compression=CODECS[scan.codec] if scan.codec < len(CODECS) else "none",
            timestamp_type="none" if scan.magic == 0 else "log-append" if attributes & LOG_APPEND_TIME else "create",
            base_timestamp=records[0].timestamp if records else None,
            max_timestamp=timestamp if scan.magic else None,
            unreadable=unreadable,
        )

    def record_batch(self, scan: Scan, *, unreadable: bool) -> RecordBatch:
        (
            base_offset, _, leader_epoch, _, _, attributes, last_offset_delta,
            base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, _,
        ) = scan.header()  # fmt: skip
        return RecordBatch(
            base_offset=base_offset,
            last_offset=wrap64(base_offset + last_offset_delta),
            records=[] if unreadable else scan.records(),
            # A segment may hold a batch of a codec that does not exist; nobody can read it.
            compression=CODECS[scan.codec] if scan.codec < len(CODECS) else "none",
            timestamp_type="log-append" if attributes & LOG_APPEND_TIME else "create",
            transactional=bool(attributes & TRANSACTIONAL),
            control=bool(attributes & CONTROL),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            partition_leader_epoch=leader_epoch,
            delete_horizon=base_timestamp if attributes & DELETE_HORIZON else None,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            unreadable=unreadable,
        )

    def compressed(self, scan: Scan) -> None:
        """Decompress the payload that the scan stopped at, and let it go on inside."""
        codec = CODECS[scan.codec]
        at, size = scan.payload
        body = self.view[at : at + size]
        if scan.magic == 2 and scan.found == 0:
            self.opened(codec, body, at)
        elif not self.parsed(scan, self.decompressed(codec, body, at, scan.magic)):
            raise _Refused

    def opened(self, codec: Codec, body: memoryview, body_at: int) -> None:
        """The payload of a batch without records, of which nobody reads more than the beginning.

        Kafka opens the stream of a compressed batch before it looks at the count, and reads no record of any.
        """
        self.refuse_broken(open_stream(codec, body, self.limits.decompressed_bytes), body, body_at)
        if len(body) and not _is_empty_stream(codec, body):
            self.note("payload-without-records", "payload", body_at, len(body))

    def parsed(self, scan: Scan, payload: bytes) -> bool:
        ok = scan.parse(payload)
        if notes := scan.notes(inside=True):
            self.take(notes, inside=".payload")
        if notes := scan.notes_of_wrapper():
            self.take(notes)
        return ok

    def decompressed(self, codec: Codec, data: memoryview, at: int, magic: int) -> bytes:
        out = decompress(codec, data, self.limits.decompressed_bytes, magic=magic)
        if out.ended != "whole":
            self.refuse_broken(out, data, at)
        if out.reason:
            self.note("compressed-content-mismatch", "payload", at, len(out.data), detail=out.reason)
        if out.consumed < len(data):
            self.note("bytes-after-compressed-stream", "payload", at + out.consumed, len(data) - out.consumed)
        return out.data

    def refuse_broken(self, out: Decompressed, data: memoryview, at: int) -> None:
        if out.ended == "broken":
            self.note("decompression-failed", "payload", at, len(data), detail=out.reason)
            raise _Refused
        if out.ended == "limit":
            self.note("decompressed-size-exceeded", "payload", at, len(data), self.limits.decompressed_bytes)
            raise _Refused

    def control(self, at: int, records: list[Record], inside: str) -> None:
        if len(records) != 1:
            self.note("control-record-count", "record_count", at + HEADER_AT["record_count"], len(records), 1)
        for i, record in enumerate(records):
            key = record.key or b""
            version, kind = key[:2], int.from_bytes(key[2:4], "big", signed=True)
            if len(key) < 4 or version[0] & 0x80 or kind not in CONTROL_TYPES:
                # The key's own place is not kept; the header's is where a reader looks first.
                self.note("control-key-invalid", "key", at + BATCH_HEADER_SIZE, record=i, inside=inside)
                break


class _BrokerWalk(Walk):
    """What a broker looks at is a batch with its rows, whoever asks."""

    with_rows = True

    def run(self) -> None:
        for _ in self.batches():
            pass
        self.count()


# --- a broker's request ---------------------------------------------------------------------------------------------

# What a skimming broker passes over, though it is noted: PartialDefaultRecord knows no wall at a record's length.
SKIMMED_OVER = ("record-length-exceeds-payload", "record-length-mismatch")


class _ProduceWalk(_BrokerWalk):
    """The one batch of a Produce request, as a broker takes it: ProduceRequest, UnifiedLog, LogValidator."""

    def __init__(
        self,
        data: Buffer,
        profile: Profile,
        role: Role,
        limits: Limits,
        topic: Topic,
        *,
        into: Verdict,
        objects: bool,
    ) -> None:
        super().__init__(data, profile, role, limits, into=into, objects=objects)
        self.topic = topic

    def batches(self) -> Iterator[RecordBatch]:
        with suppress(_Refused):
            magic, size = self.frame()
            base_offset = int.from_bytes(self.view[:8], "big", signed=True)
            self.refuse(produced_batch(base_offset, magic, size, 0, self.topic))
            unreadable = self.produced()
            if self.objects:
                yield self.batch(unreadable=unreadable)
            self.scan.next()
            self.verdict.partial_tail = self.scan.at < len(self.view)

    def frame(self) -> tuple[int, int]:
        """Magic and size of the one batch."""
        sizes, magics, at = [], [], 0
        while True:
            size, magic, notes = next_frame(self.view, at)
            if size <= 0:
                break
            at += size
            sizes.append(size)
            magics.append(magic or 0)
        self.refuse(notes)
        self.refuse(request(len(self.view), len(sizes), self.topic))
        return magics[0], sizes[0]

    def produced(self) -> bool:
        """Judge the batch; whether no consumer will be able to read what is stored of it."""
        scan = self.scan
        stop = scan.next()
        notes = scan.notes()
        header = Header(*scan.header())
        if not any(note[0] in ("crc-mismatch", "codec-unknown") for note in notes):
            self.refuse(produced_header(header, 0))
        self.refuse(notes)
        codec = CODECS[scan.codec]
        if stop != PAYLOAD:
            self.records(header, rows_of(scan.records()), BATCH_HEADER_SIZE, skimmed=False, inside="")
            return False
        body = self.view[BATCH_HEADER_SIZE : scan.size]
        payload = self.decompressed(codec, body, BATCH_HEADER_SIZE, 2)
        skimmed = self.topic.compression in ("producer", codec)
        rows = self.skimmed(payload, header)
        self.records(header, rows, 0, skimmed=skimmed, inside=".payload")
        return self.is_poison(payload, refuse=not skimmed)

    def records(self, header: Header, rows: list[Row], at: int, *, skimmed: bool, inside: str) -> None:
        self.verdict.largest_timestamp = max((row.timestamp for row in rows), default=-1)
        self.refuse(produced_records(header, rows, at, self.topic, skimmed=skimmed), inside=inside)

    def skimmed(self, payload: bytes, header: Header) -> list[Row]:
        """The rows of a payload that is to be kept as it is."""
        scan = self.scan
        if not scan.parse(payload, skim=True):
            self.refuse([note for note in scan.notes(inside=True) if note[0] not in SKIMMED_OVER], inside=".payload")
        stamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        return [
            Row(
                wrap64(header.base_offset + offset_delta),
                wrap64(header.base_timestamp + timestamp_delta) if stamp is None else stamp,
                key[1] >= 0,
                length,
            )
            for _, length, _, timestamp_delta, offset_delta, key, _, _ in scan.places()
        ]

    def is_poison(self, payload: bytes, *, refuse: bool) -> bool:
        """Whether a payload that a broker lets pass cannot be read in full; ``refuse`` if that is fatal."""
        ok = self.scan.parse(payload)
        notes = self.scan.notes(inside=True)
        if ok or refuse:
            self.refuse(notes, inside=".payload")
            return False
        path = f"batch[{self.scan.batch_count}].payload"
        self.poison([from_note(note, path, self.profile, self.role) for note in notes])
        return True


class _SegmentWalk(_BrokerWalk):
    """The batches of a log segment, as a broker takes them that starts after a crash: LogSegment.recover."""

    def __init__(
        self, data: Buffer, profile: Profile, role: Role, limits: Limits, *, into: Verdict, objects: bool
    ) -> None:
        super().__init__(data, profile, role, limits, into=into, objects=objects)
        self.segment = Segment()

    def count(self) -> None:
        """Batches are counted as they are kept; the scan counts those that it reads."""

    def batches(self) -> Iterator[RecordBatch]:
        verdict = self.verdict
        with suppress(_Refused):
            while not self.is_at_end():
                batch = self.kept(self.scan.next())
                verdict.batch_count += 1
                verdict.record_count += len(batch.records)
                verdict.consumed += self.scan.size
                yield batch
            self.refuse(self.segment.end(verdict.consumed))

    def is_at_end(self) -> bool:
        at = self.verdict.consumed
        left = len(self.view) - at
        length = int.from_bytes(self.view[at + HEADER_AT["batch_length"] : at + LOG_OVERHEAD], "big", signed=True)
        self.verdict.partial_tail = left > 0 and is_tail(length, left)
        return left == 0 or self.verdict.partial_tail

    def kept(self, stop: int) -> RecordBatch:
        """The batch that the scan stopped at. Its frame and CRC must be right; its records may be anything."""
        scan = self.scan
        notes = scan.notes()
        if scan.size <= 0 or any(note[0] in ("crc-mismatch", "wrapper-crc-mismatch") for note in notes):
            self.refuse(notes)
        findings, self.verdict.findings = self.verdict.findings, []
        batch = self.batch(unreadable=not self.look(stop))
        found, self.verdict.findings = self.verdict.findings, findings
        if batch.unreadable:
            self.poison(found)
        else:
            findings += found
        self.in_segment(batch)
        return batch

    def in_segment(self, batch: RecordBatch) -> None:
        """Refuse a batch that may not stand where it stands, or in no segment at all."""
        segment, scan = self.segment, self.scan
        base_offset = int.from_bytes(self.view[scan.at : scan.at + 8], "big", signed=True)
        max_timestamp = -1 if batch.max_timestamp is None else batch.max_timestamp
        begins = self.wrapper_start if batch.magic < 2 and scan.codec else None
        self.refuse(segment.batch(base_offset, batch.last_offset, max_timestamp, scan.size, scan.at, begins))
        if batch.magic == 2:
            header = Header(*scan.header())
            self.refuse(segment.leader(header, scan.at))
            self.refuse(segment.producer(header, self.first_record(header, batch), scan.at))

    def wrapper_start(self) -> int | None:
        """The offset of the first message in the wrapper that the scan stopped at; None where it cannot be told.

        Asked of few, and so read again: what a consumer refuses in the messages themselves may pass here. Mirrors
        ``AbstractLegacyRecordBatch.DeepRecordsIterator``.
        """
        scan = self.scan
        offset, _, _ = scan.message_fields()
        at, size = scan.payload
        if size < 0 or scan.codec >= len(CODECS) or CODECS[scan.codec] == "zstd":
            return None
        out = decompress(
            CODECS[scan.codec], self.view[at : at + size], self.limits.decompressed_bytes, magic=scan.magic
        )
        if out.ended == "limit":
            # It may well begin where it should; the bound is ours, and said elsewhere.
            return offset
        found = None if out.ended == "broken" else first_and_last(out.data)
        if found is None:
            return None
        first, last = found
        if scan.magic == 0 or offset == 0:
            return first
        return None if offset < last else wrap64(offset - last + first)

    def first_record(self, header: Header, batch: RecordBatch) -> Record | None:
        """The first record of a control batch, from which a broker learns what became of a transaction.

        ``_Refused`` where it cannot be read: without a codec Kafka reads no further than this record, with one it reads
        all.
        """
        if not batch.control or batch.producer_id < 0 or header.record_count == 0:
            return None
        if batch.unreadable:
            records = self.scan.records() if header.attributes & CODEC_MASK == 0 and header.record_count > 1 else []
            if not records:
                at = self.scan.at + BATCH_HEADER_SIZE
                self.refuse([("end-marker-invalid", "records[0]", at, -1, -1, batch.producer_id, 0, 1)])
            return records[0]
        return batch.records[0]


def _is_empty_stream(codec: Codec, data: memoryview) -> bool:
    """Whether this is what compressing no bytes gives, which the documents allow an empty batch to hold."""
    return decompress(codec, data, 0) == (b"", len(data), "whole", "")
