"""A record's own fields: length, attributes, offset delta, key and value."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.builder import Raw, Record, batch, varint
from kfuzz.vectors.recipes.theme import SMALL, Expectation, Theme, accepts


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/record.json``."""
    made = Theme("records/v2/record", "The fields of a record: length, attributes, offset delta, key, value.")
    _contents(made)
    _length(made)
    _attributes(made)
    _nullable(made)
    _lengths_by_codec(made.having(budget=SMALL))
    _offset_delta(made)
    return made


def _contents(made: Theme) -> None:
    cases = (
        ("null-key", "the key is null", Record(key=None)),
        ("null-value", "the value is null; such a record is a tombstone", Record(value=None)),
        ("null-key-and-value", "key and value are null", Record(key=None, value=None)),
        ("empty-key", "the key is empty, which is not null", Record(key=b"")),
        ("empty-value", "the value is empty, which is not null", Record(value=b"")),
        (
            "empty-key-and-value",
            "key and value are empty, so the record is as short as possible",
            Record(key=b"", value=b""),
        ),
        (
            "binary",
            "key and value contain every possible byte",
            Record(key=bytes(range(256)), value=bytes(range(255, -1, -1))),
        ),
        ("value-4096", "the value has 4096 bytes", Record(value=bytes(index * 7 % 256 for index in range(4096)))),
        (
            "value-like-a-batch",
            "the value is itself a whole record batch; a reader must not decode it",
            Record(value=batch(Record()).data),
        ),
    )
    for slug, summary, record in cases:
        made.valid(slug, summary, batch(record), requirements=["RB-RECORD-3"])


def _length(made: Theme) -> None:
    record_length_wrong = made.flag(
        "RecordLengthWrong", requirements=["RB-RECORD-1", "RB-RECORD-4"], finding="record-length-mismatch"
    )
    right = len(Record().encode()) - 1
    wrong = (
        ("length-one-too-low", right - 1, "record-truncated"),
        ("length-one-too-high", right + 1, "record-length-exceeds-payload"),
        ("length-zero", 0, "record-truncated"),
    )
    for slug, length, finding in wrong:
        record_length_wrong.invalid(
            slug,
            f"the length of the only record is {length}; its fields take {right}",
            batch(Record(raw={"length": varint(length)})),
            finding=finding,
        )
    record_length_wrong.invalid(
        "length-reaches-into-next",
        "the length of the first of two records is one too high",
        batch(Record(raw={"length": varint(right + 1)}), Record(offset_delta=1)),
    )
    record_length_wrong.invalid(
        "bytes-after-headers",
        "an extra byte follows the headers, and the length includes it",
        batch(Record(raw={"tail": b"\x00"})),
        requirements=["RB-RECORD-1", "RB-HEADERS-1"],
    )
    for delta in (-1, 1):
        record = Record(raw={"length": varint(right + delta)})
        made.invalid(
            f"length-gzip-{'low' if delta < 0 else 'high'}",
            f"the length of the first of two gzip records is one too {'low' if delta < 0 else 'high'}",
            batch(record, Record(offset_delta=1), codec="gzip"),
            requirements=["RB-RECORD-1", "RB-RECORDS-1"],
            flags=["RecordLengthWrong", "PoisonPill"],
            finding="record-truncated" if delta < 0 else "record-length-mismatch",
            broker=unreadable(batch(record, Record(offset_delta=1), codec="gzip")),
            log=unreadable(batch(record, Record(offset_delta=1), codec="gzip")),
        )
    _length_extremes(made, right)


def unreadable(raw: Raw, finding: str = "records-unreadable") -> Expectation:
    """The broker or log may store the unreadable batch, or refuse it for ``finding``; the contents omit the records."""
    stored_only = [{name: value for name, value in contents.items() if name != "records"} for contents in raw.batches]
    return accepts(finding=finding, batches=stored_only)


def _skimmed(raw: Raw, length: int) -> Expectation | None:
    """A broker's expectation for an impossible length in a compressed batch; Kafka before 4.4 stored such batches."""
    if raw.batches[0]["compression"] == "none":
        return None
    return unreadable(raw, "record-too-large" if length > 0 else "record-length-negative")


def _length_extremes(made: Theme, right: int) -> None:
    for codec in ("none", "gzip", "zstd"):
        for slug, length in (("largest", INT32_MAX), ("negative-one", -1), ("smallest", -(2**31))):
            huge = length > 0
            record = Record(raw={"length": varint(length)})
            raw = batch(record, codec=codec)
            made.invalid(
                f"length-{slug}" + ("" if codec == "none" else f"-{codec}"),
                f"the record's length is {length}" + ("" if codec == "none" else f" ({codec})"),
                raw,
                requirements=["RB-RECORD-1"],
                flags=["RecordLengthHuge" if huge else "RecordLengthNegative"],
                finding="record-length-exceeds-payload" if huge else "record-length-negative",
                budget=SMALL,
                broker=_skimmed(raw, length),
            )


def _attributes(made: Theme) -> None:
    for attributes in (0x01, 0x80, 0xFF):
        made.flag("RecordAttributes").acceptable(
            f"attributes-{attributes:02x}",
            f"the record's attributes are 0x{attributes:02x}",
            batch(Record(raw={"attributes": bytes([attributes])})),
            requirements=["RB-RECORD-2"],
            finding="record-attributes-nonzero",
        )


def _nullable(made: Theme) -> None:
    length_below_minus_one = made.flag(
        "LengthBelowMinusOne", requirements=["RB-RECORD-3"], finding="length-below-minus-one", budget=SMALL
    )
    cases = (
        ("key", Record(key=None, raw={"key_length": varint(-2)})),
        ("value", Record(value=None, raw={"value_length": varint(-2)})),
    )
    for name, record in cases:
        length_below_minus_one.acceptable(
            f"{name}-length-minus-two", f"the {name}'s length is -2; Kafka reads null", batch(record)
        )
    length_below_minus_one.acceptable(
        "value-length-smallest",
        "the value's length is INT32_MIN; Kafka reads null",
        batch(Record(value=None, raw={"value_length": varint(-(2**31))})),
    )
    for name in ("key", "value"):
        for slug, length in (("one-too-high", 10), ("largest", INT32_MAX)):
            made.flag("LengthBeyondRecord").invalid(
                f"{name}-length-{slug}",
                f"the {name}'s length is {length}, more than the rest of the record",
                batch(Record(raw={f"{name}_length": varint(length)}), Record(offset_delta=1, value=bytes(40))),
                requirements=["RB-RECORD-3"],
                finding="length-exceeds-record",
                budget=SMALL,
            )


def _lengths_by_codec(made: Theme) -> None:
    """Lengths beyond the record in compressed batches: a streaming reader does not know how many bytes follow."""
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        for name in ("key", "value"):
            record = Record(raw={f"{name}_length": varint(INT32_MAX)})
            made.invalid(
                f"{name}-length-largest-{codec}",
                f"the {name}'s length is INT32_MAX ({codec})",
                batch(record, Record(offset_delta=1, value=bytes(40)), codec=codec),
                requirements=["RB-RECORD-3"],
                flags=["LengthBeyondRecord"],
                finding="length-exceeds-record",
            )
        null = Record(value=None, raw={"value_length": varint(-2)})
        made.acceptable(
            f"value-length-minus-two-{codec}",
            f"the value's length is -2 ({codec}); Kafka reads null",
            batch(null, codec=codec),
            requirements=["RB-RECORD-3"],
            flags=["LengthBelowMinusOne"],
            finding="length-below-minus-one",
        )
    for codec in ("snappy", "lz4"):
        for slug, length in (("largest", INT32_MAX), ("negative-one", -1), ("smallest", -(2**31))):
            raw = batch(Record(raw={"length": varint(length)}), codec=codec)
            made.invalid(
                f"length-{slug}-{codec}",
                f"the record's length is {length} ({codec})",
                raw,
                requirements=["RB-RECORD-1"],
                flags=["RecordLengthHuge" if length > 0 else "RecordLengthNegative"],
                finding="record-length-exceeds-payload" if length > 0 else "record-length-negative",
                broker=_skimmed(raw, length),
            )


def _offset_delta(made: Theme) -> None:
    offset_delta_disorder = made.flag("OffsetDeltaDisorder", requirements=["RB-OFFSET-3", "RB-OFFSET-4"], harmless=True)
    cases = (
        ("offset-delta-repeated", (0, 0), "offset-delta-not-increasing"),
        ("offset-delta-decreasing", (1, 0), "offset-delta-not-increasing"),
        ("offset-delta-negative", (-1, 0), "offset-delta-negative"),
        ("offset-delta-all-zero", (0, 0, 0, 0), "offset-delta-not-increasing"),
        ("offset-delta-back-to-zero", (0, 1, 0), "offset-delta-not-increasing"),
    )
    for slug, deltas, finding in cases:
        offset_delta_disorder.acceptable(
            slug,
            f"the offset deltas are {', '.join(map(str, deltas[:-1]))} and {deltas[-1]}",
            batch(*(Record(offset_delta=delta) for delta in deltas), base_offset=10),
            finding=finding,
        )
    offset_delta_disorder.acceptable(
        "offset-delta-smallest",
        "the offset delta is INT32_MIN",
        batch(Record(offset_delta=-(2**31)), base_offset=2**33, last_offset_delta=0),
        finding="offset-delta-negative",
    )
    offset_delta_disorder.acceptable(
        "offset-beyond-64-bits",
        "base offset plus offset delta exceeds INT64_MAX; in Kafka the offset wraps",
        batch(Record(), Record(offset_delta=2), base_offset=2**63 - 2, hostile=["base_offset"]),
        requirements=["RB-OFFSET-4", "SEG-OFFSET-1"],
        finding="offset-overflow",
        log=accepts(finding="log-end-overflow"),
    )
    made.valid(
        "offset-delta-gap",
        "the offset deltas are 0, 5 and 9: compaction removed the other records",
        batch(Record(), Record(offset_delta=5), Record(offset_delta=9)),
        requirements=["RB-OFFSET-6", "CMP-GAP-1"],
    )
