"""Header counts between 1,000 and 2^31 - 1: true ones, and claims without the headers."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.bombs import MANY_HEADERS, MIB, raw_of, zstd_zeros
from kfuzz.vectors.recipes.making.builder import Record, batch, varint
from kfuzz.vectors.recipes.theme import SMALL, Theme

# A slow reader needs half a second for 65,536 headers. One that copies all headers for each header needs ten.
READ_MS = {"10000": 10_000, "65536": 3_000}
# More than 1,000, so that a reader with a limit does not stop there, and still few enough for a file.
FILLED_BYTES = 2600


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/header-count.json``."""
    made = Theme("records/v2/header-count", "Header counts from 1,000 on: true ones, and claims without the headers.")
    _true(made)
    _claims(made)
    _nearly(made)
    return made


def _true(made: Theme) -> None:
    for name in MANY_HEADERS:
        _, count, *rest = name.split("-")
        made.flag("HeadersMany").valid(
            "true-" + name.removeprefix("headers-"),
            f"the record has {int(count):,} headers{f' ({rest[0]})' if rest else ''}",
            raw_of(name),
            requirements=["RB-HEADERS-1", "RB-HEADERS-5"],
            budget={"cpu_ms": READ_MS[count], "memory_bytes": 256 * MIB},
            bomb=name,
        )


def _claims(made: Theme) -> None:
    """Claims with a few bytes after them."""
    header_count_claimed = made.flag(
        "HeaderCountClaimed", requirements=["RB-HEADERS-1"], finding="header-count-exceeds-record", budget=SMALL
    )
    counts = (
        (1001, "1001"),
        (10_000, "10000"),
        (2**16 - 1, "2-to-16-less-1"),
        (2**16, "2-to-16"),
        (1_000_000, "million"),
        (2**24, "2-to-24"),
        (2**28, "2-to-28"),
        (2**30, "2-to-30"),
    )
    for count, name in counts:
        _add(made, f"claims-{name}", f"the header count is {count:,}, but no header follows", count)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        _add(made, f"claims-2-to-24-{codec}", f"the header count is {2**24:,}, but no header follows", 2**24, codec)
    headers = [(b"h", b"%d" % index) for index in range(3)]
    for count, name in ((1001, "1001"), (2**24, "2-to-24"), (2**31 - 1, "largest")):
        header_count_claimed.invalid(
            f"claims-{name}-has-three",
            f"the header count is {count:,}, but three headers follow",
            batch(Record(headers=headers, raw={"header_count": varint(count)})),
        )
    header_count_claimed.invalid(
        "claims-2-to-24-in-second-record",
        f"the second record's header count is {2**24:,}, but no header follows; the first record is right",
        batch(Record(headers=headers), Record(offset_delta=1, raw={"header_count": varint(2**24)})),
    )


def _add(made: Theme, slug: str, summary: str, count: int, codec: str = "none") -> None:
    record = Record(raw={"header_count": varint(count)})
    made.invalid(
        slug,
        summary + ("" if codec == "none" else f" ({codec})"),
        batch(record, codec=codec),
        requirements=["RB-HEADERS-1"],
        flags=["HeaderCountClaimed"],
        finding="header-count-exceeds-record",
        budget=SMALL,
    )


def _nearly(made: Theme) -> None:
    """Claims that the bytes could hold if each header were as small as possible, but there is one large one."""
    header_count_claimed = made.flag("HeaderCountClaimed")
    large = [(b"h", bytes(FILLED_BYTES))]
    for slug, count, finding, what in (
        ("claims-two-bytes-each", FILLED_BYTES // 2, "record-truncated", "two bytes for each"),
        ("claims-one-byte-each", FILLED_BYTES, "header-count-exceeds-record", "one byte for each"),
    ):
        record = Record(headers=large, raw={"header_count": varint(count)})
        for codec in ("none", "zstd"):
            header_count_claimed.invalid(
                slug + ("" if codec == "none" else f"-{codec}"),
                f"the header count is {count:,}, and the record has {what}, but there is one large header"
                + ("" if codec == "none" else f" ({codec})"),
                batch(record, codec=codec),
                requirements=["RB-HEADERS-1"],
                finding=finding,
                budget=SMALL,
            )
    size = MIB
    record = Record(headers=[(b"h", bytes(size))], raw={"header_count": varint(size // 2)})
    head = record.encode()[:-size]
    header_count_claimed.invalid(
        "claims-half-a-million-behind-zeros",
        f"the header count is {size // 2:,}, but there is one header, with a value of 1 MiB of zeros (zstd)",
        batch(record, codec="zstd", payload=zstd_zeros(head, size)),
        requirements=["RB-HEADERS-1", "RB-CODEC-7"],
        finding="record-truncated",
        budget={"cpu_ms": 10_000, "memory_bytes": 256 * MIB},
    )
