"""Batches one after another as a segment holds them, and what the next start of a broker makes of their offsets. May
import ``builder``.
"""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.builder import Record, batch
from kfuzz.vectors.recipes.theme import Theme, accepts, refuses

# Of a batch's value: more than index.interval.bytes, so that each batch gets an entry in the offset index.
INDEXED_BYTES = 4100


def theme() -> Theme:
    """records/v2/segment"""
    made = Theme("records/v2/segment", "The offsets of a segment's batches, as recovery puts them into the indexes.")
    made.flag(
        "OffsetBeyondIndex",
        "integer-overflow",
        "A segment's offsets reach further from its first one than the int32 of an index entry does.",
        "Brokers have written such segments (KAFKA-6264) and then could not load them; who cuts the number finds the "
        "wrong record.",
        links=["https://issues.apache.org/jira/browse/KAFKA-6264"],
    )
    made.flag(
        "OffsetsGoBack",
        "crash",
        "A batch's offsets are below those of the batch before.",
        "The offset index takes increasing offsets alone: where an entry is due, the broker does not start.",
    )
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
    made.valid(
        "offset-beyond-int32",
        "the second batch's offset is one more than INT32_MAX above the segment's first",
        batch(Record()),
        batch(Record(), base_offset=INT32_MAX + 1),
        requirements=["SEG-OFFSET-1"],
        flags=["OffsetBeyondIndex"],
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
        "three batches with increasing offsets, the latter two with entries in the offset index",
        batch(large),
        batch(large, base_offset=20),
        batch(Record(), base_offset=21),
        requirements=["SEG-OFFSET-2"],
        log=accepts(),
    )
    made.valid(
        "indexed-offset-goes-back",
        "the third batch is due an entry in the offset index, and its offset is below the second's",
        batch(large),
        batch(large, base_offset=20),
        batch(Record(), base_offset=10),
        requirements=["SEG-OFFSET-2"],
        flags=["OffsetsGoBack"],
        log=refuses("indexed-offset-not-increasing"),
    )
