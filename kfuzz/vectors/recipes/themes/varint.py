"""Varints and varlongs inside records: boundaries, overlong and endless forms, excess bits."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.builder import Record, batch, overlong, varint
from kfuzz.vectors.recipes.theme import SMALL, Theme


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/varint.json``."""
    made = Theme(
        "records/v2/varint", "The variable-length integers of a record: size boundaries, overlong and endless forms."
    )
    _boundaries(made)
    _widths(made)
    _overlong(made)
    _overlong_by_width(made)
    _excess_bits(made)
    _too_long(made)
    _cut(made)
    return made


def _boundaries(made: Theme) -> None:
    for size in (63, 64, 8191, 8192):
        made.valid(
            f"value-length-{size}",
            f"the value has {size} bytes, the {'largest' if size % 2 else 'smallest'} length of its varint size",
            batch(Record(key=None, value=bytes(index % 251 for index in range(size)))),
            requirements=["RB-VARINT-1"],
        )
    deltas = (
        ("one-byte-largest", 63),
        ("two-bytes-smallest", 64),
        ("negative-one-byte", -64),
        ("negative-two-bytes", -65),
        ("five-bytes", 2**33),
        ("beyond-32-bits-negative", -(2**40)),
        ("beyond-32-bits", 2**40),
        ("nine-bytes", 2**61),
    )
    for slug, delta in deltas:
        made.valid(
            f"timestamp-delta-{slug}",
            f"the timestamp delta is {delta}",
            batch(Record(timestamp_delta=delta), base_timestamp=max(1000, -2 * delta)),
            requirements=["RB-VARINT-1", "RB-TIMESTAMP-1"],
            flags=["TimestampDeltaWide"] if abs(delta) > INT32_MAX else [],
        )
    for slug, delta in (("two-bytes", 64), ("three-bytes", 8192), ("largest", INT32_MAX)):
        made.valid(
            f"offset-delta-{slug}",
            f"the second record's offset delta is {delta}",
            batch(Record(), Record(offset_delta=delta)),
            requirements=["RB-VARINT-1", "RB-OFFSET-4"],
        )


def _widths(made: Theme) -> None:
    """The last value of each width and the first of the next, unless ``_boundaries`` already has them."""
    for bits in (13, 20, 27, 34, 41, 48, 55, 62):
        for sign, slug in ((1, "first"), (-1, "negative-first")):
            # Zigzag: 2^(7n-1) is the smallest positive number of n + 1 bytes; -2^(7n-1) - 1 is its negative counterpart
            # (closest to 0).
            delta = (1 << bits) if sign > 0 else -(1 << bits) - 1
            size = bits // 7 + 2
            made.valid(
                f"timestamp-delta-{slug}-of-{size}-bytes",
                f"the timestamp delta is {delta}, the first {'' if sign > 0 else 'negative '}one with {size} bytes",
                batch(Record(timestamp_delta=delta), base_timestamp=max(1000, 7 - delta)),
                requirements=["RB-VARINT-1", "RB-TIMESTAMP-1"],
                flags=["TimestampDeltaWide"] if bits >= 34 else [],
            )
    for slug, delta in (
        ("last-of-one-byte", 63),
        ("last-of-two-bytes", 8191),
        ("last-of-three-bytes", 2**20 - 1),
        ("four-bytes", 2**20),
        ("last-of-four-bytes", 2**27 - 1),
        ("five-bytes", 2**27),
    ):
        made.valid(
            f"offset-delta-{slug}",
            f"the second record's offset delta is {delta}; compaction removed the records between",
            batch(Record(), Record(offset_delta=delta)),
            requirements=["RB-VARINT-1", "RB-OFFSET-4"],
        )
    for size in (63, 64, 8191, 8192):
        made.valid(
            f"key-length-{size}",
            f"the key has {size} bytes, the {'largest' if size % 2 else 'smallest'} length of its varint size",
            batch(Record(key=bytes(index % 251 for index in range(size)), value=None)),
            requirements=["RB-VARINT-1"],
        )
    for size in (63, 64):
        made.valid(
            f"header-key-length-{size}",
            f"a header's key has {size} bytes",
            batch(Record(headers=[(b"h" * size, b"")])),
            requirements=["RB-VARINT-1", "RB-HEADERS-2"],
        )
        made.valid(
            f"header-value-length-{size}",
            f"a header's value has {size} bytes",
            batch(Record(headers=[(b"h", b"v" * size)])),
            requirements=["RB-VARINT-1", "RB-HEADERS-6"],
        )
        made.valid(
            f"header-count-{size}",
            f"there are {size} headers: the count takes {1 + size // 64} byte{'s' * (size // 64)}",
            batch(Record(headers=[(b"h", None)] * size)),
            requirements=["RB-VARINT-1", "RB-HEADERS-1"],
        )
        # Six bytes of the record are not part of its value.
        made.valid(
            f"record-length-{size}",
            f"the record's length is {size}",
            batch(Record(key=None, value=bytes(size - 6))),
            requirements=["RB-VARINT-1", "RB-RECORD-1", "RB-RECORD-4"],
        )


def _overlong(made: Theme) -> None:
    fields = (
        ("record-length", "length", 8, 5),
        ("timestamp-delta", "timestamp_delta", 0, 10),
        ("offset-delta", "offset_delta", 0, 5),
        ("key-length", "key_length", 1, 5),
        ("value-length", "value_length", 1, 2),
        ("header-count", "header_count", 0, 5),
    )
    for slug, name, value, size in fields:
        made.flag("VarintOverlong").acceptable(
            f"{slug}-overlong",
            f"the {slug.replace('-', ' ')} takes {size} bytes, but one is enough",
            batch(Record(raw={name: overlong(value, size)})),
            requirements=["RB-VARINT-2"],
            finding="varint-overlong",
        )
    varint_excess_bits = made.flag("VarintExcessBits", requirements=["RB-VARINT-2"], finding="varint-excess-bits")
    varint_excess_bits.acceptable(
        "key-length-excess-bits",
        "the fifth byte of the key length has bits above the 32nd; without them the length is 1",
        batch(Record(raw={"key_length": b"\x82\x80\x80\x80\x70"})),
    )
    varint_excess_bits.acceptable(
        "timestamp-delta-excess-bits",
        "the tenth byte of the timestamp delta has bits above the 64th; without them the delta is 0",
        batch(Record(raw={"timestamp_delta": b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7e"})),
    )


# Every varint of a record with one header: slug, field path, value, and longest size in bytes.
FIELDS = (
    ("record-length", "length", 13, 5),
    ("timestamp-delta", "timestamp_delta", 0, 10),
    ("offset-delta", "offset_delta", 0, 5),
    ("key-length", "key_length", 1, 5),
    ("value-length", "value_length", 1, 5),
    ("header-count", "header_count", 1, 5),
    ("header-key-length", "headers[0].key_length", 1, 5),
    ("header-value-length", "headers[0].value_length", 2, 5),
)


def with_header(raw: dict[str, bytes]) -> Record:
    """The record that ``FIELDS`` describes; ``raw`` replaces the bytes of fields."""
    return Record(headers=[(b"h", b"vv")], raw=raw)


def _overlong_by_width(made: Theme) -> None:
    varint_overlong = made.flag("VarintOverlong", finding="varint-overlong")
    for slug, name, value, widest in FIELDS:
        sizes = {2, widest} if slug.startswith("header-") and slug != "header-count" else {2}
        if slug == "timestamp-delta":
            sizes = {2, 6, 9}
        for size in sorted(sizes):
            varint_overlong.acceptable(
                f"{slug}-padded-to-{size}",
                f"the {slug.replace('-', ' ')} is {value}, padded to {size} bytes",
                batch(with_header({name: overlong(value, size)})),
                requirements=["RB-VARINT-2"],
            )
    nulls = (
        ("null-key", Record(key=None, raw={"key_length": overlong(-1, 5)})),
        ("null-value", Record(value=None, raw={"value_length": overlong(-1, 2)})),
        ("null-header-value", Record(headers=[(b"h", None)], raw={"headers[0].value_length": overlong(-1, 3)})),
    )
    for slug, record in nulls:
        varint_overlong.acceptable(
            f"{slug}-overlong",
            f"the length -1 of a {slug.replace('-', ' ')} is padded; a reader that looks for the byte 01 misses it",
            batch(record),
            requirements=["RB-VARINT-2", "RB-RECORD-3"],
        )


def _excess_bits(made: Theme) -> None:
    for slug, name, value, widest in FIELDS:
        if slug in ("key-length", "timestamp-delta"):
            continue
        made.acceptable(
            f"{slug}-excess-bits",
            f"the fifth byte of the {slug.replace('-', ' ')} has bits above the 32nd; without them it is {value}",
            batch(with_header({name: overlong(value, widest)[:-1] + b"\x50"})),
            requirements=["RB-VARINT-2"],
            flags=["VarintExcessBits"],
            finding="varint-excess-bits",
        )


def _cut(made: Theme) -> None:
    """Varints that are incomplete because the record ends, and varints that never end."""
    varint_too_long = made.flag("VarintTooLong", requirements=["RB-VARINT-1"], finding="varint-too-long", budget=SMALL)
    parts = Record(headers=[(b"h", b"vv")]).parts()[1:]
    cut = {"offset_delta", "key_length", "value_length", "headers[0].key_length", "headers[0].value_length"}
    for index, (name, _) in enumerate(parts):
        if name not in cut:
            continue
        slug = name.replace("headers[0].", "header-").replace("_", "-")
        body = b"".join(data for _, data in parts[:index]) + b"\x80"
        # A header needs at least two bytes, but only one is left.
        promised = name == "headers[0].key_length"
        made.invalid(
            f"{slug}-cut",
            f"the record ends within its {slug.replace('-', ' ')}",
            batch(payload=varint(len(body)) + body, record_count=1, hostile=["payload"]),
            requirements=["RB-VARINT-1", "RB-RECORD-1"],
            flags=["VarintCut"],
            finding="header-count-exceeds-record" if promised else "record-truncated",
            budget=SMALL,
        )
    for slug, name, _, _ in FIELDS[2:]:
        varint_too_long.invalid(
            f"{slug}-endless",
            f"40 bytes of the {slug.replace('-', ' ')} each claim that another byte follows",
            batch(with_header({name: b"\xff" * 40})),
        )
    for slug, name, value, widest in FIELDS[-2:]:
        varint_too_long.invalid(
            f"{slug}-six-bytes",
            f"the {slug.replace('-', ' ')} is a varint of six bytes",
            batch(with_header({name: overlong(value, widest + 1)})),
        )


def _too_long(made: Theme) -> None:
    fields = (
        ("record-length-six-bytes", "length", overlong(8, 6)),
        ("record-length-endless", "length", b"\xff" * 12),
        ("timestamp-delta-eleven-bytes", "timestamp_delta", overlong(0, 11)),
        ("offset-delta-six-bytes", "offset_delta", overlong(0, 6)),
        ("key-length-six-bytes", "key_length", overlong(1, 6)),
        ("value-length-six-bytes", "value_length", overlong(1, 6)),
        ("header-count-six-bytes", "header_count", overlong(0, 6)),
    )
    for slug, name, data in fields:
        made.flag("VarintTooLong").invalid(
            slug,
            f"the record's {name.replace('_', ' ')} is a varint of {len(data)} bytes",
            batch(Record(raw={name: data})),
            requirements=["RB-VARINT-1"],
            finding="varint-too-long",
            budget=SMALL,
        )
    varint_cut = made.flag("VarintCut", requirements=["RB-VARINT-1", "RB-RECORD-1"], finding="record-truncated")
    varint_cut.invalid(
        "record-length-cut", "the batch ends within the first record's length", batch(payload=b"\x80", record_count=1)
    )
    varint_cut.invalid(
        "header-count-cut", "the record ends within its header count", batch(Record(raw={"header_count": b"\x80"}))
    )
    varint_cut.invalid(
        "timestamp-delta-cut",
        "the record ends within its timestamp delta",
        batch(payload=varint(2) + b"\x00\x80", record_count=1),
    )
