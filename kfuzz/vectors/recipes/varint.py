"""Varints and varlongs inside records: boundaries, overlong forms, excess bits, no end. May import ``builder``."""

from __future__ import annotations

from kfuzz.vectors.recipes.builder import Record, batch, overlong, varint
from kfuzz.vectors.recipes.theme import SMALL, Theme

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


def theme() -> Theme:
    """records/v2/varint"""
    made = Theme(
        "records/v2/varint", "The variable-length integers of a record: where they change size, overlong and endless."
    )
    _boundaries(made)
    _overlong(made)
    _too_long(made)
    return made


def _boundaries(made: Theme) -> None:
    for size in (63, 64, 8191, 8192):
        made.valid(
            f"value-length-{size}",
            f"a value of {size} bytes: its length is the {'last' if size % 2 else 'first'} of its varint size",
            batch(Record(key=None, value=bytes(index % 251 for index in range(size)))),
            requirements=["RB-VARINT-1"],
        )
    made.flag(
        "TimestampDeltaWide",
        "integer-overflow",
        "The timestamp delta needs more than 32 bits: it is a varlong, no varint.",
        "A reader that takes it for a varint loses its place, and blames the fields that follow.",
        links=["kafka-protocol-rs #158"],
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


def _overlong(made: Theme) -> None:
    made.flag(
        "VarintOverlong",
        "strictness",
        "A varint is padded with groups that add nothing.",
        "Readers of Protocol Buffers accept it, and so does Kafka; others refuse a batch that a broker has stored.",
    )
    fields = (
        ("record-length", "length", 8, 5),
        ("timestamp-delta", "timestamp_delta", 0, 10),
        ("offset-delta", "offset_delta", 0, 5),
        ("key-length", "key_length", 1, 5),
        ("value-length", "value_length", 1, 2),
        ("header-count", "header_count", 0, 5),
    )
    for slug, name, value, size in fields:
        made.acceptable(
            f"{slug}-overlong",
            f"the {slug.replace('-', ' ')} takes {size} bytes where one would do",
            batch(Record(raw={name: overlong(value, size)})),
            requirements=["RB-VARINT-2"],
            flags=["VarintOverlong"],
            finding="varint-overlong",
        )
    made.flag(
        "VarintExcessBits",
        "confusion",
        "The last byte of the longest varint carries bits that do not fit the type.",
        "Kafka drops them; a reader that keeps them reads another value from the same bytes.",
    )
    made.acceptable(
        "key-length-excess-bits",
        "the fifth byte of the key length carries bits above the 32nd; without them the length is 1",
        batch(Record(raw={"key_length": b"\x82\x80\x80\x80\x70"})),
        requirements=["RB-VARINT-2"],
        flags=["VarintExcessBits"],
        finding="varint-excess-bits",
    )
    made.acceptable(
        "timestamp-delta-excess-bits",
        "the tenth byte of the timestamp delta carries bits above the 64th; without them the delta is 0",
        batch(Record(raw={"timestamp_delta": b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7e"})),
        requirements=["RB-VARINT-2"],
        flags=["VarintExcessBits"],
        finding="varint-excess-bits",
    )


def _too_long(made: Theme) -> None:
    made.flag(
        "VarintTooLong",
        "hang",
        "A varint does not end within its five (varlong: ten) bytes.",
        "A reader that shifts on reads past the record, or shifts by more bits than there are.",
    )
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
        made.invalid(
            slug,
            f"the record's {name.replace('_', ' ')} is a varint of {len(data)} bytes",
            batch(Record(raw={name: data})),
            requirements=["RB-VARINT-1"],
            flags=["VarintTooLong"],
            finding="varint-too-long",
            budget=SMALL,
        )
    made.flag(
        "VarintCut",
        "bounds",
        "The bytes end in the middle of a varint.",
        "A reader without a check at each byte reads what stands behind the buffer.",
    )
    made.invalid(
        "record-length-cut",
        "the batch ends within the first record's length",
        batch(payload=b"\x80", record_count=1),
        requirements=["RB-VARINT-1", "RB-RECORD-1"],
        flags=["VarintCut"],
        finding="record-truncated",
    )
    made.invalid(
        "header-count-cut",
        "the record ends within its header count",
        batch(Record(raw={"header_count": b"\x80"})),
        requirements=["RB-VARINT-1", "RB-RECORD-1"],
        flags=["VarintCut"],
        finding="record-truncated",
    )
    made.invalid(
        "timestamp-delta-cut",
        "the record ends within its timestamp delta",
        batch(payload=varint(2) + b"\x00\x80", record_count=1),
        requirements=["RB-VARINT-1", "RB-RECORD-1"],
        flags=["VarintCut"],
        finding="record-truncated",
    )
