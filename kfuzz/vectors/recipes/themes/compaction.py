"""Batches after log compaction: empty batches, gaps, delete horizons."""

from __future__ import annotations

from typing import Any

from kfuzz.vectors.recipes.making.builder import CREATED_MS, Raw, Record, batch
from kfuzz.vectors.recipes.theme import Theme, accepts, refuses


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/compaction.json``."""
    made = Theme("records/v2/compaction", "Compacted batches: empty, with gaps, with a delete horizon.")
    _empty(made.having(requirements=["RB-COUNT-3", "CMP-KEEP-1"]))
    _gaps(made.having(requirements=["CMP-GAP-1", "RB-OFFSET-6"]))
    _horizon(made.having(requirements=["RB-ATTRIBUTES-5", "CMP-HORIZON-1"]))
    _compressed(made)
    _odd(made.having(requirements=["RB-ATTRIBUTES-5", "CMP-HORIZON-1"]))
    return made


def _cleaned(base_offset: int, last_offset_delta: int, **fields: Any) -> Raw:
    """A batch whose records were all removed by compaction."""
    fields = {"max_timestamp": CREATED_MS} | fields
    return batch(base_offset=base_offset, last_offset_delta=last_offset_delta, **fields)


def _empty(made: Theme) -> None:
    empty_batch = made.flag("EmptyBatch")
    empty_batch.valid(
        "empty", "a batch spans ten offsets but has no record; the next offset is ten higher", _cleaned(20, 9)
    )
    empty_batch.valid(
        "empty-with-producer",
        "an empty batch that keeps producer id, epoch and sequence",
        _cleaned(20, 4, producer_id=4000, producer_epoch=3, base_sequence=17),
    )
    empty_batch.valid(
        "empty-transactional",
        "an empty batch of a transaction",
        _cleaned(20, 4, producer_id=4000, producer_epoch=3, base_sequence=17, transactional=True),
    )
    empty_batch.valid(
        "empty-between-full",
        "an empty batch is between two batches with records",
        batch(Record()),
        _cleaned(1, 4),
        batch(Record(), base_offset=6),
        also=["SEG-OFFSET-1", "SEG-OFFSET-2"],
    )
    empty_batch.valid(
        "several-empty",
        "three empty batches in a row, then one with a record",
        *(_cleaned(offset, 2) for offset in (0, 3, 6)),
        batch(Record(), base_offset=9),
    )
    empty_batch.valid(
        "empty-last",
        "the fetch ends with an empty batch; only its header gives the next offset",
        batch(Record()),
        _cleaned(1, 99),
        also=["RB-OFFSET-5"],
    )
    empty_batch.valid("empty-log-append", "an empty batch with LogAppendTime", _cleaned(20, 4, log_append=True))
    empty_batch.valid(
        "empty-no-timestamp",
        "an empty batch has the base and max timestamp -1",
        _cleaned(20, 4, base_timestamp=-1, max_timestamp=-1),
    )


def _gaps(made: Theme) -> None:
    cases = (
        ("first-removed", "compaction removed the first three records", (3, 4), 4),
        ("last-removed", "compaction removed the last three records", (0, 1), 4),
        ("middle-removed", "compaction removed the records in the middle", (0, 4), 4),
        ("one-left", "one record out of a thousand is left", (500,), 999),
        ("last-left", "only the last record is left", (999,), 999),
    )
    for slug, summary, deltas, last in cases:
        made.valid(
            slug,
            f"{summary}; base offset and last offset delta stay the same",
            batch(*(Record(offset_delta=delta) for delta in deltas), base_offset=1000, last_offset_delta=last),
            also=["RB-OFFSET-2"],
            flags=["CompactedTail"] if deltas[-1] < last else [],
        )
    made.valid(
        "gap-between-batches",
        "whole batches are gone: the second batch begins 1001 offsets after the first",
        batch(Record()),
        batch(Record(), base_offset=1001),
    )
    made.valid(
        "gap-with-sequence",
        "a batch of an idempotent producer has gaps; a record's sequence follows from its offset delta",
        batch(
            Record(offset_delta=1),
            Record(offset_delta=3),
            last_offset_delta=4,
            producer_id=4000,
            producer_epoch=3,
            base_sequence=10,
        ),
        also=["RB-SEQUENCE-1"],
    )
    made.valid(
        "base-timestamp-of-second",
        "the first record is gone, and the base timestamp is that of the second",
        batch(Record(offset_delta=1), base_timestamp=CREATED_MS + 5000),
        requirements=["RB-TIMESTAMP-3"],
    )


def _horizon(made: Theme) -> None:
    delete_horizon = made.flag("DeleteHorizon")
    horizon = CREATED_MS + 86_400_000
    delete_horizon.valid(
        "delete-horizon",
        "a tombstone waits for its delete horizon; its timestamp delta is negative, relative to the horizon",
        batch(Record(value=None, timestamp_delta=-86_400_000), delete_horizon=True, base_timestamp=horizon),
        broker=accepts(finding="delete-horizon-produced"),
    )
    delete_horizon.valid(
        "delete-horizon-transaction",
        "an aborted transaction's marker waits for its delete horizon",
        batch(
            Record(key=b"\x00\x00\x00\x00", value=b"\x00\x00\x00\x00\x00\x00", timestamp_delta=-86_400_000),
            delete_horizon=True,
            base_timestamp=horizon,
            transactional=True,
            control=True,
            producer_id=4000,
            producer_epoch=3,
        ),
    )
    made.valid(
        "delete-horizon-empty",
        "an empty batch has a delete horizon",
        _cleaned(20, 4, delete_horizon=True, base_timestamp=horizon),
        also=["RB-COUNT-3"],
        flags=["DeleteHorizon", "EmptyBatch"],
    )


def _compressed(made: Theme) -> None:
    kept = Record(offset_delta=3)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        made.valid(
            f"one-left-{codec}",
            f"one record out of ten is left in the {codec} batch",
            batch(kept, codec=codec, last_offset_delta=9),
            requirements=["CMP-GAP-1", "RB-OFFSET-6", "RB-CODEC-3"],
        )


def _odd(made: Theme) -> None:
    """Batches that no log cleaner leaves; no document forbids them, or Kafka's reader does not check them."""
    compaction_odd = made.flag("CompactionOdd")
    horizon = CREATED_MS + 86_400_000
    for slug, base, what in (
        ("delete-horizon-none", -1, "-1, which means 'none' in other fields"),
        ("delete-horizon-zero", 0, "0, the epoch"),
        ("delete-horizon-largest", 2**63 - 1, "INT64_MAX"),
    ):
        compaction_odd.acceptable(
            slug,
            f"the delete horizon is {what}",
            batch(
                delete_horizon=True, base_timestamp=base, base_offset=5, last_offset_delta=2, hostile=["base_timestamp"]
            ),
        )
    compaction_odd.acceptable(
        "delete-horizon-without-tombstone",
        "a batch has a delete horizon, but no record to delete",
        batch(Record(timestamp_delta=-86_400_000), delete_horizon=True, base_timestamp=horizon),
    )
    compaction_odd.acceptable(
        "delete-horizon-log-append",
        "a delete horizon with LogAppendTime: the max timestamp is the records' time, the base timestamp the horizon",
        batch(
            Record(value=None),
            delete_horizon=True,
            log_append=True,
            base_timestamp=horizon,
            max_timestamp=CREATED_MS,
            hostile=["base_timestamp"],
        ),
        also=["RB-TIMESTAMP-5"],
    )
    compaction_odd.acceptable(
        "deltas-beyond-last",
        "the last record is still there, but its offset is above base offset plus last offset delta",
        batch(Record(), Record(offset_delta=9), last_offset_delta=4),
        requirements=["CMP-KEEP-1", "RB-OFFSET-2"],
        finding="offset-delta-beyond-last",
    )
    compaction_odd.acceptable(
        "base-offset-of-first-left",
        "the base offset was raised to the remaining record, but its delta stayed: the record's offset is too high",
        batch(Record(offset_delta=3), base_offset=103, last_offset_delta=2),
        requirements=["CMP-KEEP-1", "RB-OFFSET-4"],
        finding="offset-delta-beyond-last",
    )
    disordered = compaction_odd.having(requirements=["CMP-GAP-1", "RB-OFFSET-3"])
    disordered.acceptable(
        "batches-overlap",
        "the second batch begins before the first one ends",
        batch(Record(), Record(offset_delta=4), last_offset_delta=9),
        batch(Record(), base_offset=5, hostile=["base_offset"]),
        log=accepts(finding="offset-not-increasing"),
    )
    disordered.acceptable(
        "batches-backwards",
        "the offsets of the second batch are below those of the first",
        batch(Record(), base_offset=100),
        batch(Record(), base_offset=50, hostile=["base_offset"]),
        log=refuses("offset-outside-segment"),
    )
    disordered.acceptable(
        "same-batch-twice",
        "the same batch occurs twice",
        batch(Record(), base_offset=100),
        batch(Record(), base_offset=100, hostile=["base_offset"]),
        log=accepts(finding="offset-not-increasing"),
    )
