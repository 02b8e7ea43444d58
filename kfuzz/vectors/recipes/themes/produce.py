"""Produced batches, right and wrong, that are checked only by the broker."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.builder import CREATED_MS, Raw, Record, batch
from kfuzz.vectors.recipes.theme import Theme, accepts, refuses


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/produce.json``."""
    made = Theme("records/v2/produce", "Rules that a broker applies to a producer's batch, and a consumer does not.")
    _offsets(made)
    _timestamps(made)
    _right(made)
    return made


def _disordered(deltas: tuple[int, ...], codec: str = "none") -> Raw:
    """Records with these offset deltas; the last offset delta matches their number."""
    records = [Record(offset_delta=delta) for delta in deltas]
    return batch(*records, codec=codec, last_offset_delta=len(deltas) - 1, hostile=["last_offset_delta"])


def _offsets(made: Theme) -> None:
    offset_delta_not_index = made.flag(
        "OffsetDeltaNotIndex", requirements=["RB-OFFSET-3", "RB-OFFSET-7"], finding="offset-delta-not-increasing"
    )
    for slug, deltas, what in (
        ("zeros", (0, 0), "all 0"),
        ("decreasing", (2, 1, 0), "2, 1, 0"),
        ("repeated-last", (0, 1, 1), "0, 1, 1"),
    ):
        offset_delta_not_index.acceptable(
            f"offset-deltas-{slug}",
            f"the offset deltas of an uncompressed batch are {what}; a broker stores it unchanged",
            _disordered(deltas),
            broker=accepts(finding="offset-delta-not-index"),
        )
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            offset_delta_not_index.acceptable(
                f"offset-deltas-{slug}-{codec}",
                f"the offset deltas of the {codec} batch are {what}; a broker checks them and refuses it",
                _disordered(deltas, codec),
                broker=refuses("compressed-offset-delta-not-index"),
            )
    made.acceptable(
        "base-offset-minus-one",
        "two records start at offset -1: the batch ends at 0, but its leader epoch would start below 0",
        batch(Record(), Record(offset_delta=1), base_offset=-1),
        requirements=["RB-OFFSET-1", "RB-OFFSET-7"],
        finding="base-offset-negative",
        log=refuses("leader-epoch-offset-negative"),
    )


def _timestamps(made: Theme) -> None:
    for codec in ("none", "gzip"):
        record = Record()
        made.flag("MaxTimestampNotMaximum").valid(
            "max-timestamp-above" + ("" if codec == "none" else f"-{codec}"),
            "the max timestamp is an hour above the only record's"
            + ("; a broker corrects it" if codec == "none" else f" ({codec})"),
            batch(record, codec=codec, max_timestamp=CREATED_MS + 3_600_000),
            requirements=["RB-TIMESTAMP-2"],
            broker=accepts(finding="max-timestamp-not-maximum"),
        )


def _right(made: Theme) -> None:
    requirements = ["LIM-DEFAULT-1", "PRO-CONTROL-1", "PRO-COUNT-1", "PRO-MAGIC-1", "PRO-REQUEST-1", "RB-OFFSET-7"]
    made.valid(
        "idempotent",
        "a correct batch of an idempotent producer",
        batch(Record(), Record(offset_delta=1), producer_id=4000, producer_epoch=0, base_sequence=0),
        requirements=[*requirements, "RB-PRODUCER-1", "RB-SEQUENCE-1"],
        broker=accepts(),
    )
    made.valid(
        "transactional",
        "a correct batch of a transaction",
        batch(Record(), transactional=True, producer_id=4000, producer_epoch=0, base_sequence=0),
        requirements=[*requirements, "TXN-BATCH-1"],
        broker=accepts(),
    )
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        records = (Record(), Record(offset_delta=1))
        made.valid(
            codec,
            f"a correct {codec} batch",
            batch(*records, codec=codec),
            requirements=[*requirements, "RB-CODEC-4", "RB-CODEC-8"],
            broker=accepts(),
        )
