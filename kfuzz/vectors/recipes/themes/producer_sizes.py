"""Records of all sizes and in all numbers, and what each codec makes of them."""

from __future__ import annotations

from typing import Any

from kfuzz.kafka import CODECS
from kfuzz.vectors.recipes.making.builder import Record
from kfuzz.vectors.recipes.making.sent import LARGE, NEAR, POWERS_ALONE, POWERS_TOGETHER, batch_of, of_records
from kfuzz.vectors.recipes.theme import Theme


def theme() -> Theme:
    """The recipes of ``vectors/produce/sizes.json``."""
    made = Theme(
        "produce/sizes", "Sizes and numbers of records, with each codec, up to the limit of a batch.", "produce"
    )
    _sizes(made)
    _numbers(made)
    _codecs(made)
    return made


def _large(made: Theme, slug: str, summary: str, recipe: str, *requirements: str, **options: Any) -> None:
    made.produce(slug, summary, LARGE[recipe](), requirements=requirements, bomb=recipe, **options)


def _sizes(made: Theme) -> None:
    requirements = ("RB-LENGTH-1", "RB-RECORD-1")
    for size in (57, 58, 8183, 8184):
        made.produce(
            f"value-{size}",
            f"a value of {size} bytes, so that the length of the record has the most or least of its digits",
            batch_of([Record(key=None, value=b"v" * size)]),
            requirements=requirements,
        )
    for power in POWERS_TOGETHER:
        slug = f"values-near-{1 << power}"
        _large(
            made,
            slug,
            f"values of all sizes from {(1 << power) - NEAR} to {(1 << power) + NEAR} bytes",
            slug,
            *requirements,
        )
    for power in POWERS_ALONE:
        for near, where in ((-NEAR, f"{NEAR} below"), (0, "exactly"), (NEAR, f"{NEAR} above")):
            slug = f"value-{(1 << power) + near}"
            _large(made, slug, f"a value of {where} 2^{power} bytes", slug, *requirements)
    for slug, summary in (
        ("value-largest", "the largest batch that a broker takes by default; a client's own limit may be lower"),
        ("value-largest-less-20", "a batch of 20 bytes below the largest"),
    ):
        _large(made, slug, summary, slug, *requirements, "LIM-DEFAULT-1", may_refuse=True)
    _large(made, "header-name-10000", "a header's name of 10,000 bytes", "header-name-long", "RB-HEADERS-2")
    _large(made, "headers-1000", "a record with 1,000 headers", "headers-1000", "RB-HEADERS-1")


def _numbers(made: Theme) -> None:
    for count in (2, 63, 64, 65, 127, 128, 129):
        made.produce(
            f"records-{count}",
            f"{count} records",
            of_records(count),
            requirements=["RB-COUNT-2", "RB-OFFSET-7"],
        )
    for count in (8_192, 8_193, 20_000):
        _large(made, f"records-{count}", f"{count} records", f"sent-{count}", "RB-COUNT-2", "RB-OFFSET-7")


def _codecs(made: Theme) -> None:
    cases = (
        ("zeros", "a value of 100,000 zeros", "value-zeros"),
        ("random", "a value of 50,000 random bytes, which no codec makes smaller", "value-random"),
        ("random-key", "a random key and no value", "key-random"),
        ("records-1000", "1,000 records", "sent-1000"),
    )
    for codec in CODECS[1:]:
        made.produce(
            f"{codec}-small",
            f"one small record with {codec}",
            batch_of([Record()]),
            requirements=["RB-CODEC-2", "RB-CODEC-3"],
            compression=codec,
        )
        made.produce(
            f"{codec}-nulls",
            f"nulls and empty values, with {codec}",
            batch_of([Record(key=None, value=b""), Record(key=b"", value=None), Record(headers=[(b"h", b"")])]),
            requirements=["RB-CODEC-2", "RB-RECORD-3", "RB-HEADERS-6"],
            compression=codec,
        )
        for slug, summary, recipe in cases:
            _large(made, f"{codec}-{slug}", f"{summary}, with {codec}", recipe, "RB-CODEC-2", compression=codec)
    # No document limits the blocks. Kafka's producer writes 64 KiB.
    blocks: dict[str, Any] = {"flags": ["LargeBlocks"], "level": "recommended", "compression": "lz4"}
    made.produce(
        "lz4-blocks",
        "400 zeros with lz4, whose blocks are at most 64 KiB",
        batch_of([Record(value=bytes(400))]),
        requirements=["RB-CODEC-2"],
        **blocks,
    )
    _large(
        made,
        "lz4-blocks-100000",
        "100,000 zeros with lz4, whose blocks are at most 4 times as large",
        "value-zeros",
        "RB-CODEC-2",
        **blocks,
    )
    _large(
        made,
        "zstd-random-header",
        "a random header value, with zstd",
        "header-random",
        "RB-CODEC-2",
        compression="zstd",
    )
