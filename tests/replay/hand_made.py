"""Logs for replays: partitions written batch by batch, and what a consumer should find after a replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kfuzz import control, records
from kfuzz.control import ControlRecord, ControlRecordKey, ControlRecordType, EndTransactionMarker
from kfuzz.records import Record, RecordBatch
from kfuzz.replay import find_parts
from kfuzz.wire.records.framing import frames

FIRST_MS = 1_700_000_000_000


class Seen(NamedTuple):
    """A record as a consumer sees it, without its offset."""

    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def rows(first: int, count: int, *, step: int = 1) -> list[Record]:
    """Records with nulls and headers; ``step`` above 1 leaves gaps between their offsets."""
    return [
        Record(
            first + i * step,
            FIRST_MS + first + i,
            None if i % 7 == 3 else b"key-%d" % (first + i),
            None if i % 5 == 4 else b"value-%d" % (first + i) * (i % 4),
            ((b"trace", b"%d" % i), (b"null", None)) if i % 3 == 0 else (),
        )
        for i in range(count)
    ]


def batch(first: int, count: int = 10, *, step: int = 1, last: int | None = None, **fields: Any) -> RecordBatch:
    """A batch with offsets from ``first`` on."""
    made = rows(first, count, step=step)
    end = last if last is not None else (made[-1].offset if made else first)
    return RecordBatch(first, end, made, **{"partition_leader_epoch": 3, **fields})


def old(first: int, count: int, *, magic: int, **fields: Any) -> RecordBatch:
    """A message of magic 0 or 1, or a wrapper if it has a codec."""
    made = [Record(one.offset, one.timestamp if magic else None, one.key, one.value) for one in rows(first, count)]
    return RecordBatch(
        first, made[-1].offset, made, magic=magic, timestamp_type="create" if magic else "none", **fields
    )


def marker(offset: int, producer_id: int, epoch: int, *, commit: bool) -> RecordBatch:
    """The marker that ends a transaction."""
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    key, value = control.encode_control(ControlRecord(ControlRecordKey(kind), EndTransactionMarker(7)))
    return RecordBatch(
        offset,
        offset,
        [Record(offset, FIRST_MS, key, value)],
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=True,
        control=True,
        partition_leader_epoch=3,
    )


def write_log(out: Path, name: str, batches: Iterable[RecordBatch | bytes], *, base_offset: int = 0) -> Path:
    """A segment in the folder of a partition."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(one if isinstance(one, bytes) else records.encode([one]) for one in batches))
    return path


def seen(record: Record) -> Seen:
    """A record as a consumer sees it; magic 0 has no timestamp, which is -1 in magic 2."""
    timestamp = -1 if record.timestamp is None else record.timestamp
    return Seen(timestamp, record.key, record.value, tuple(record.headers))


def sendable(out: Path, *, convert: bool) -> dict[tuple[str, int], tuple[list[Seen], list[Seen]]]:
    """By partition, what a consumer should find after a replay: in read_uncommitted, and in read_committed.

    This reads each frame on its own with ``records.decode``, as a consumer would.
    """
    found: dict[tuple[str, int], tuple[list[Seen], list[Seen]]] = {}
    for part in find_parts(out):
        logs = [segment.path.read_bytes() for segment in part.segments]
        batches = [one for log in logs for at, size, _ in frames(log) for one in records.decode(log[at : at + size])]
        kept = [one for one in batches if convert or one.control or _is_plain(one)]
        found[part.topic, part.partition] = _of_partition(kept)
    return found


def _is_plain(one: RecordBatch) -> bool:
    """Whether a producer may send this batch."""
    offsets = [record.offset for record in one.records]
    return (
        one.magic == 2
        and one.timestamp_type == "create"
        and one.delete_horizon is None
        and bool(offsets)
        and offsets == list(range(one.base_offset, one.last_offset + 1))
    )


def _of_partition(batches: Sequence[RecordBatch]) -> tuple[list[Seen], list[Seen]]:
    # Each record with the number of its transaction, or None.
    everything: list[tuple[Seen, int | None]] = []
    transactions: dict[int, int] = {}
    outcomes: list[bool | None] = []
    for one in batches:
        if one.control:
            if one.producer_id in transactions:
                kind = control.decode_control(one.records[0].key, one.records[0].value).key.type
                outcomes[transactions.pop(one.producer_id)] = kind == ControlRecordType.COMMIT
            continue
        number = None
        if one.transactional and one.records:
            if one.producer_id not in transactions:
                transactions[one.producer_id] = len(outcomes)
                outcomes.append(None)
            number = transactions[one.producer_id]
        everything += [(seen(record), number) for record in one.records]
    stable = []
    for record, number in everything:
        if number is not None and outcomes[number] is None:
            break
        if number is None or outcomes[number]:
            stable.append(record)
    return [record for record, _ in everything], stable
