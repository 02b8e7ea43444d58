"""kfuzz's work on uniform records: calls on one small batch, the roles of a broker and of a log, and a broker's other
operations on batches. Imports ``mixed``, ``measure``, ``kfuzz_work`` and ``kfuzz.records``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benchmarks.kfuzz_work import census_of
from benchmarks.measure import InProcess, NotTheSameWork
from benchmarks.mixed import CallCensus, Census, Content, MixedSet
from kfuzz import records
from kfuzz.records import Codec, Record, RecordBatch, Role, Topic
from kfuzz.records.appending import append as append_batch
from kfuzz.records.compaction import compact as compact_log
from kfuzz.records.conversion import convert as convert_log

__all__ = [
    "append",
    "call_check",
    "call_iterate",
    "call_read",
    "check_log",
    "check_requests",
    "compact",
    "convert",
    "plain_log",
    "read_committed",
    "transactional_log",
]

PRODUCERS: Final = 5
# Batches of a transaction before its marker.
TRANSACTION_BATCHES: Final = 3
# One transaction in this many is aborted.
ABORTED_EACH: Final = 4
# An end marker. Its key is version and type, its value is version and coordinator epoch.
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
MARKER_VALUE: Final = bytes(6)


# --- calls ----------------------------------------------------------------------------------------------------------


def call_check(mixed: MixedSet) -> InProcess:
    """Call ``records.check`` on each batch."""
    data = mixed.encoded()

    def run() -> int:
        for batch in data:
            records.check(batch)
        return len(data)

    return InProcess(run, lambda: _calls(data))


def check_requests(mixed: MixedSet, role: Role) -> InProcess:
    """Call ``records.check`` on each batch, in the form in which a producer sends it."""
    data = _requests(mixed)

    def run() -> int:
        for batch in data:
            records.check(batch, role=role)
        return len(data)

    def census() -> CallCensus:
        for batch in data:
            _require_kept(batch, role)
        return _calls(data)

    return InProcess(run, census)


def call_iterate(mixed: MixedSet) -> InProcess:
    """Make a list of each batch's records with ``records.iterate``."""
    data = mixed.encoded()

    def run() -> int:
        for batch in data:
            list(records.iterate(batch))
        return len(data)

    return InProcess(run, lambda: _calls(data))


def call_read(mixed: MixedSet) -> InProcess:
    """Call ``records.read`` on each batch."""
    data = mixed.encoded()

    def run() -> int:
        for batch in data:
            records.read(batch)
        return len(data)

    return InProcess(run, lambda: _calls(data))


def _calls(data: list[bytes]) -> CallCensus:
    return CallCensus.of(len(data), census_of(data))


def _requests(mixed: MixedSet) -> list[bytes]:
    """Each batch in the form in which a producer sends it, with offsets from 0."""
    return [
        records.encode_batch(RecordBatch(0, len(batch) - 1, [_record(i, content) for i, content in enumerate(batch)]))
        for batch in mixed.contents
    ]


def _require_kept(data: bytes, role: Role) -> None:
    records.check(data, role=role).raise_fatal()


# --- roles ----------------------------------------------------------------------------------------------------------


def check_log(log: Callable[[MixedSet], list[RecordBatch]], mixed: MixedSet, role: Role) -> InProcess:
    """Call ``records.check`` on a segment with the batches that ``log`` makes from ``mixed``."""
    segment = records.encode(log(mixed))

    def run() -> int:
        verdict = records.check(segment, role=role)
        verdict.raise_fatal()
        return verdict.record_count

    return InProcess(run, lambda: census_of([segment]))


def plain_log(mixed: MixedSet) -> list[RecordBatch]:
    """The batches of ``mixed``, unchanged."""
    return mixed.record_batches


def transactional_log(mixed: MixedSet) -> list[RecordBatch]:
    """The batches of ``mixed`` from alternating transactional producers, with markers that end every transaction."""
    log: list[RecordBatch] = []
    sequences = dict.fromkeys(range(PRODUCERS), 0)
    left = dict.fromkeys(range(PRODUCERS), 0)
    offset = ended = 0

    def end(producer: int) -> None:
        nonlocal offset, ended
        ended += 1
        marker = Record(offset, 0, COMMIT if ended % ABORTED_EACH else ABORT, MARKER_VALUE)
        log.append(
            RecordBatch(
                offset,
                offset,
                [marker],
                transactional=True,
                control=True,
                producer_id=producer,
                producer_epoch=0,
                partition_leader_epoch=0,
            )
        )
        left[producer] = 0
        offset += 1

    for turn, batch in enumerate(mixed.contents):
        producer = turn % PRODUCERS
        rows = [_record(offset + i, content) for i, content in enumerate(batch)]
        log.append(
            RecordBatch(
                offset,
                rows[-1].offset,
                rows,
                transactional=True,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                partition_leader_epoch=0,
            )
        )
        offset += len(rows)
        sequences[producer] += len(rows)
        left[producer] += 1
        if left[producer] == TRANSACTION_BATCHES:
            end(producer)
    for producer in [producer for producer, batches in left.items() if batches]:
        end(producer)
    return log


def _record(offset: int, content: Content) -> Record:
    return Record(offset, content.timestamp, content.key, content.value)


# --- a broker's other operations ------------------------------------------------------------------------------------


def append(mixed: MixedSet, codec: Codec | None = None) -> InProcess:
    """Append each batch as a broker does: in place, or built again if the topic has another ``codec``."""
    data = _requests(mixed)
    topic = Topic(compression=codec or "producer")

    def run() -> int:
        stored = 0
        for batch in data:
            done = append_batch(batch, topic)
            stored += done.last_offset - done.first_offset + 1
        return stored

    return InProcess(run, lambda: census_of([append_batch(batch, topic).data for batch in data]))


def convert(mixed: MixedSet) -> InProcess:
    """Convert the log to messages of magic 1, as a broker of Kafka 3 did for old consumers."""
    log = b"".join(mixed.encoded())
    count = mixed.census.records

    def run() -> int:
        convert_log(log, 1)
        return count

    return InProcess(run, lambda: census_of([convert_log(log, 1).data]))


def compact(mixed: MixedSet) -> InProcess:
    """Run one pass of the log cleaner, which keeps the last record of each key."""
    log = b"".join(mixed.encoded())
    latest = {content.key: at for at, content in enumerate(content for batch in mixed.contents for content in batch)}

    def retain(batch: RecordBatch, record: Record) -> bool:
        return latest[record.key] == record.offset

    def run() -> int:
        return compact_log(log, retain, now_ms=0).records_read

    def census() -> Census:
        kept = [record.offset for record in records.iterate(compact_log(log, retain, now_ms=0).data)]
        if kept != sorted(latest.values()):
            raise NotTheSameWork(f"compact keeps {len(kept)} records, not the last of each of {len(latest)} keys")
        return census_of([log])

    return InProcess(run, census)


def read_committed(mixed: MixedSet) -> InProcess:
    """Read a transactional log as a ``read_committed`` consumer does."""
    batches = transactional_log(mixed)
    log = records.encode(batches)
    whole = mixed.census
    # Count the visible records once, before anything is timed.
    visible = sum(len(batch.records) for batch in _committed(batches))

    def run() -> int:
        seen = sum(len(batch.records) for batch in records.read_committed(log))
        return whole.records if seen == visible else seen

    def census() -> Census:
        seen = [record for batch in records.read_committed(log) for record in batch.records]
        if seen != [record for batch in _committed(batches) for record in batch.records]:
            raise NotTheSameWork("read_committed gives other records than those of the committed transactions")
        return whole

    return InProcess(run, census)


def _committed(log: list[RecordBatch]) -> list[RecordBatch]:
    """The batches whose producer commits with its next marker; the log is searched from its end."""
    found = []
    commits: dict[int, bool] = {}
    for batch in reversed(log):
        if batch.control:
            commits[batch.producer_id] = batch.records[0].key == COMMIT
        elif commits[batch.producer_id]:
            found.append(batch)
    return found[::-1]
