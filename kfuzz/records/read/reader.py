"""Bytes to record batches and findings: one walk for every magic, profile and role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from kfuzz.errors import RecordsError, UsageError
from kfuzz.findings import PROFILES, Finding, Profile
from kfuzz.findings.records import CODES, from_note
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS, INDEX_INTERVAL_BYTES, ROLES, Codec, Role
from kfuzz.records.codecs import Decompressed, decompress, open_stream
from kfuzz.records.model import Record, RecordBatch
from kfuzz.records.read.topic import DEFAULT_TOPIC, Topic
from kfuzz.wire.layout import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from kfuzz.wire.message_set import first_and_last
from kfuzz.wire.produced import ProduceRules
from kfuzz.wire.record_batch import LIMIT_BYTES
from kfuzz.wire.scan import BATCH, END, PAYLOAD, REFUSED, EachRecord, Scan
from kfuzz.wire.segment import SegmentRules

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.wire.report import Note

__all__ = ["Limits", "Reading", "Verdict", "Walk", "batches", "check", "decode", "iterate", "read"]

# What is wrong with a frame, so that nothing of it is stored.
OF_A_FRAME = ("crc-mismatch", "wrapper-crc-mismatch")
# What a skimming broker passes over, though it is noted: PartialDefaultRecord knows no wall at a record's length.
SKIMMED_OVER = ("record-length-exceeds-payload", "record-length-mismatch")


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

    def count(self, scan: Scan) -> None:
        """Take the sums of a walk."""
        self.batch_count, self.record_count, self.consumed, self.partial_tail, self.largest_timestamp = scan.sums

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
    scan = _scan(data, role, topic, objects=True)
    reading.batches += Walk(scan, data, profile, limits, into=reading, role=role).batches()
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
    scan = _scan(data, role, topic, objects=False)
    Walk(scan, data, profile, limits, into=verdict, role=role).run()
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
    verdict = Verdict()
    scan = _scan(data, role, topic, objects=True)
    for batch in Walk(scan, data, profile, limits, into=verdict, role=role).batches():
        verdict.raise_fatal()
        yield batch
    verdict.raise_fatal()


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
    scan = Scan(data, True)
    return EachRecord(scan, Walk(scan, data, profile, limits, into=Verdict()).look_or_raise)


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


def _scan(data: Buffer, role: Role, topic: Topic, *, objects: bool) -> Scan:
    """The compiled walk, with what the role asks."""
    if role == "broker":
        return Scan(data, objects, policy=topic.rules())
    if topic is not DEFAULT_TOPIC:
        raise UsageError(f"role {role!r} does not look at a topic; take role 'broker', or leave topic out")
    return Scan(data, objects, policy=SegmentRules(INDEX_INTERVAL_BYTES) if role == "log" else None)


class _Refused(Exception):
    """Nothing is read from here on; the findings are noted."""


class Walk:
    """What Python does at the stops of a scan. Notes of the parse loops become findings here, and nowhere else."""

    __slots__ = ("data", "limits", "profile", "role", "scan", "unreadable", "verdict")

    def __init__(
        self,
        scan: Scan,
        data: Buffer,
        profile: Profile,
        limits: Limits,
        *,
        into: Verdict,
        role: Role = "consumer",
    ) -> None:
        if profile not in PROFILES:
            raise UsageError(f"profile {profile!r} does not exist; take one of {', '.join(PROFILES)}")
        if role not in ROLES:
            raise UsageError(f"role {role!r} does not exist; take one of {', '.join(ROLES)}")
        self.scan = scan
        self.data = data
        self.profile: Profile = profile
        self.role: Role = role
        self.limits = limits
        self.verdict = into
        # Whether the batch of this stop is stored though no consumer can read it.
        self.unreadable = False

    @property
    def view(self) -> memoryview:
        """The bytes as Python reads them. A verdict on good bytes without a codec never asks for them."""
        return memoryview(self.data).cast("B")

    def run(self) -> None:
        """Judge all batches and keep none."""
        while (stop := self.scan.next()) and self.look(stop):
            pass
        self.verdict.count(self.scan)

    def batches(self) -> Iterator[RecordBatch]:
        """The batches up to the first that cannot be read."""
        while (stop := self.scan.next()) and self.look(stop):
            yield self.batch()
        self.verdict.count(self.scan)

    def look(self, stop: int) -> bool:
        """Note what is wrong where the scan has stopped; False where nothing more is to be read."""
        self.unreadable = False
        try:
            if self.role == "log":
                self.stored(stop)
            elif self.role == "broker":
                self.produced(stop)
            else:
                self.consumed(stop)
        except _Refused:
            return False
        return stop != END

    def look_or_raise(self, stop: int) -> bool:
        """The same; ``RecordsError`` with the first fatal finding."""
        is_readable = self.look(stop)
        self.verdict.raise_fatal()
        return is_readable

    # -- what each role makes of a stop

    def consumed(self, stop: int) -> None:
        self.refuse(self.scan.notes())
        if stop == REFUSED:
            raise _Refused
        if stop == PAYLOAD:
            self.compressed()

    def stored(self, stop: int) -> None:
        """A batch of a segment. Its frame and CRC must be right; its records may be anything."""
        scan = self.scan
        if stop == BATCH or scan.size <= 0 or any(note[0] in OF_A_FRAME for note in scan.notes()):
            self.refuse(scan.notes())
            return
        findings = self.verdict.findings
        known = len(findings)
        try:
            self.consumed(stop)
        except _Refused:
            self.unreadable = True
            found = findings[known:]
            del findings[known:]
            self.poison(found)
        scan.ask(self.unreadable)
        rules = cast(SegmentRules, scan.policy)
        if rules.wants_start:
            rules.starts_at(self.wrapper_start())
        self.refuse(scan.notes())

    def produced(self, stop: int) -> None:
        """The batch of a Produce request."""
        scan = self.scan
        self.refuse(scan.notes())
        if stop == REFUSED:
            raise _Refused
        if stop != PAYLOAD:
            return
        at, size = scan.payload
        payload = self.decompressed(CODECS[scan.codec], self.view[at : at + size], at, 2)
        is_kept = cast(ProduceRules, scan.policy).keeps_codec(scan.codec)
        # A broker looks at keys and values only where it builds the batch anew.
        if not scan.parse(payload, skim=True):
            self.refuse([note for note in scan.notes(inside=True) if note[0] not in SKIMMED_OVER], inside=".payload")
        scan.ask()
        self.refuse(scan.notes(inside=True), inside=".payload")
        ok = scan.parse(payload)
        notes = scan.notes(inside=True)
        if ok or not is_kept:
            self.refuse(notes, inside=".payload")
            return
        path = f"batch[{scan.batch_count}].payload"
        self.poison([from_note(note, path, self.profile, self.role) for note in notes])
        self.unreadable = True

    # -- findings

    def take(self, notes: list[Note], *, inside: str = "", detail: str = "") -> None:
        # What is found at the end of a segment is said of its last batch.
        index = self.scan.batch_count - (self.scan.size == 0)
        path = f"batch[{max(index, 0)}]{inside}"
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

    def batch(self) -> RecordBatch:
        """The batch that the scan stopped at, as an object; without records where no consumer can read them."""
        return (self.record_batch if self.scan.magic == 2 else self.message)(self.scan, unreadable=self.unreadable)

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

    def compressed(self) -> None:
        """Decompress the payload that the scan stopped at, and let it go on inside."""
        scan = self.scan
        codec = CODECS[scan.codec]
        at, size = scan.payload
        body = self.view[at : at + size]
        if scan.magic == 2 and scan.found == 0:
            payload = self.opened(codec, body, at)
        else:
            payload = self.decompressed(codec, body, at, scan.magic)
        ok = scan.parse(payload)
        self.take(scan.notes(inside=True), inside=".payload")
        self.take(scan.notes_of_batch())
        if not ok:
            raise _Refused

    def opened(self, codec: Codec, body: memoryview, at: int) -> bytes:
        """The payload of a batch without records, of which nobody reads more than the beginning.

        Kafka opens the stream of a compressed batch before it looks at the count, and reads no record of any.
        """
        self.refuse_broken(open_stream(codec, body, self.limits.decompressed_bytes), body, at)
        if len(body) and not _is_empty_stream(codec, body):
            self.note("payload-without-records", "payload", at, len(body))
        return b""

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


def _is_empty_stream(codec: Codec, data: memoryview) -> bool:
    """Whether this is what compressing no bytes gives, which the documents allow an empty batch to hold."""
    return decompress(codec, data, 0) == (b"", len(data), "whole", "")
