"""Batches of one segment, and how a starting broker handles their offsets. May import ``builder``."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.builder import Record, batch
from kfuzz.vectors.recipes.theme import Theme, accepts, refuses

# The size of a large value: above index.interval.bytes, so that the next batch gets an offset index entry.
INDEXED_BYTES = 4100


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/segment.json``."""
    made = Theme("records/v2/segment", "The offsets of a segment's batches, which recovery puts into the indexes.")
    _reach(made)
    _order(made)
    return made


def _reach(made: Theme) -> None:
    made.valid(
        "offset-at-int32",
        "the second batch's offset is INT32_MAX above the segment's first",
        batch(Record()),
        batch(Record(), base_offset=INT32_MAX),
        requirements=["SEG-OFFSET-1", "SEG-OFFSET-2"],
        log=accepts(),
    )
    made.flag("OffsetBeyondIndex").valid(
        "offset-beyond-int32",
        "the second batch's offset is one more than INT32_MAX above the segment's first",
        batch(Record()),
        batch(Record(), base_offset=INT32_MAX + 1),
        requirements=["SEG-OFFSET-1"],
        log=refuses("offset-outside-segment"),
    )
    made.valid(
        "offset-below-first",
        "the second batch's offset is below the segment's first",
        batch(Record(), base_offset=5),
        batch(Record(), base_offset=4),
        requirements=["SEG-OFFSET-1", "SEG-OFFSET-2"],
        flags=["OffsetsGoBack"],
        log=refuses("offset-outside-segment"),
    )


def _order(made: Theme) -> None:
    large = Record(value=bytes(INDEXED_BYTES))
    made.valid(
        "indexed-offsets-increase",
        "three batches have increasing offsets; the last two get entries in the offset index",
        batch(large),
        batch(large, base_offset=20),
        batch(Record(), base_offset=21),
        requirements=["SEG-OFFSET-2"],
        log=accepts(),
    )
    made.valid(
        "indexed-offset-goes-back",
        "the third batch needs an offset index entry, but its offset is below the second's",
        batch(large),
        batch(large, base_offset=20),
        batch(Record(), base_offset=10),
        requirements=["SEG-OFFSET-2"],
        flags=["OffsetsGoBack"],
        log=refuses("indexed-offset-not-increasing"),
    )
