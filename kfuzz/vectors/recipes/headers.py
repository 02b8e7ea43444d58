"""A record's headers: count, keys, values. May import ``builder`` and ``containers``."""

from __future__ import annotations

from kfuzz.vectors.recipes.builder import Json, Raw, Record, batch, varint
from kfuzz.vectors.recipes.containers import stored
from kfuzz.vectors.recipes.theme import SMALL, Theme

INT32_MAX = 2**31 - 1


def theme() -> Theme:
    """records/v2/headers"""
    made = Theme("records/v2/headers", "A record's headers: how many, their keys, their values.")
    _contents(made)
    _count(made)
    _key(made)
    _value(made)
    return made


def _contents(made: Theme) -> None:
    made.flag(
        "HeadersRepeated",
        "lost-data",
        "The same header key occurs more than once.",
        "A reader that keeps headers in a map loses all but one, and often their order.",
        links=["kafkajs #1121", "platformatic kafka #373"],
    )
    made.valid(
        "one",
        "one header",
        batch(Record(headers=[(b"trace", b"\x01\x02")])),
        requirements=["RB-HEADERS-1"],
    )
    made.valid(
        "repeated-key",
        "three headers, two with the same key and values in this order",
        batch(Record(headers=[(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])),
        requirements=["RB-HEADERS-5"],
        flags=["HeadersRepeated"],
    )
    made.valid(
        "repeated-header",
        "the same header twice, value and all",
        batch(Record(headers=[(b"a", b"1"), (b"a", b"1")])),
        requirements=["RB-HEADERS-5"],
        flags=["HeadersRepeated"],
    )
    made.flag(
        "NullIsNotEmpty",
        "lost-data",
        "A null stands beside an empty one.",
        "A reader that makes them one loses what the producer said.",
        links=["kafka-protocol-rs #134"],
    )
    cases = (
        ("null-value", "a header's value is null", [(b"h", None)]),
        ("empty-value", "a header's value is empty, which is not null", [(b"h", b"")]),
        ("null-and-empty-values", "a null value beside an empty one", [(b"n", None), (b"e", b"")]),
    )
    for slug, summary, headers in cases:
        made.valid(
            slug, summary, batch(Record(headers=headers)), requirements=["RB-HEADERS-6"], flags=["NullIsNotEmpty"]
        )
    made.valid(
        "empty-key",
        "a header's key is the empty string",
        batch(Record(headers=[(b"", b"v")])),
        requirements=["RB-HEADERS-2"],
    )
    made.valid(
        "hundred",
        "a hundred headers: the count takes two bytes",
        batch(Record(headers=[(b"h%d" % index, b"%d" % index) for index in range(100)])),
        requirements=["RB-HEADERS-1"],
    )
    made.valid(
        "key-beyond-ascii",
        "header keys of two, three and four bytes a character",
        batch(Record(headers=[("ключ".encode(), b"1"), ("鍵".encode(), b"2"), ("🔑".encode(), b"3")])),
        requirements=["RB-HEADERS-3"],
    )
    made.flag(
        "HeaderKeyNullCharacter",
        "interoperability",
        "A header's key contains a null character.",
        "A reader that ends strings at it sees another key.",
    )
    made.acceptable(
        "key-with-null-character",
        "a header's key is 'a', a null character and 'b', which keys should not contain",
        batch(Record(headers=[(b"a\x00b", b"v")], raw={"headers[0].key": b"a\x00b"})),
        requirements=["RB-HEADERS-4"],
        flags=["HeaderKeyNullCharacter"],
        finding="header-key-null-character",
        level="recommended",
    )


def _count(made: Theme) -> None:
    made.flag(
        "HeaderCountWrong",
        "allocation",
        "The header count is negative, or promises more headers than the record can hold.",
        "A list made with that many places is gigabytes, or an exception that ends the process.",
        links=["redpanda #26482", "Dekaf #954", "kafka-go #319", "KAFKA-14063"],
    )
    cases = (
        ("negative-one", -1, "header-count-negative"),
        ("smallest", -(2**31), "header-count-negative"),
        ("one-too-high", 1, "header-count-exceeds-record"),
        ("thousand", 1000, "header-count-exceeds-record"),
        ("largest", INT32_MAX, "header-count-exceeds-record"),
    )
    for codec in ("none", "lz4"):
        for slug, count, finding in cases:
            if codec != "none" and slug not in ("negative-one", "largest"):
                continue
            record = Record(raw={"header_count": varint(count)})
            made.invalid(
                f"count-{slug}" + ("" if codec == "none" else f"-{codec}"),
                f"the header count is {count} and no header follows" + ("" if codec == "none" else f", under {codec}"),
                batch(record) if codec == "none" else _compressed(codec, record),
                requirements=["RB-HEADERS-1"],
                flags=["HeaderCountWrong"],
                finding=finding,
                budget=SMALL,
            )
    made.invalid(
        "count-one-too-low",
        "the header count is 1 and two headers follow",
        batch(Record(headers=[(b"a", b"1"), (b"b", b"2")], raw={"header_count": varint(1)})),
        requirements=["RB-HEADERS-1", "RB-RECORD-1"],
        flags=["HeaderCountWrong"],
        finding="record-length-mismatch",
        budget=SMALL,
    )
    made.invalid(
        "count-fits-bytes-not-headers",
        "the header count is 3 with three bytes left: enough for a byte each, not for a header each",
        batch(Record(raw={"header_count": varint(3), "tail": b"\x00\x00\x00"})),
        requirements=["RB-HEADERS-1"],
        flags=["HeaderCountWrong"],
        finding="header-count-exceeds-record",
        budget=SMALL,
    )


def _compressed(codec: str, record: Record) -> Raw:
    return batch(record, codec=codec, payload=stored(codec, record.encode()), hostile=["payload"])


def _key(made: Theme) -> None:
    made.flag(
        "HeaderKeyNull",
        "strictness",
        "A header's key length is negative: the key would be null, which no key is.",
        "A reader that lets it through hands null to code that has never seen one.",
    )
    for slug, length in (("null", -1), ("length-minus-two", -2), ("length-smallest", -(2**31))):
        made.invalid(
            f"key-{slug}",
            f"a header's key has the length {length}",
            batch(Record(headers=[(b"", b"v")], raw={"headers[0].key_length": varint(length)})),
            requirements=["RB-HEADERS-2"],
            flags=["HeaderKeyNull"],
            finding="header-key-null",
            budget=SMALL,
        )
    made.flag(
        "HeaderLengthBeyondRecord",
        "bounds",
        "The length of a header's key or value reaches beyond the record.",
        "A reader that checks against the batch alone reads the next record's bytes as this one's.",
    )
    for part in ("key", "value"):
        for slug, length in (("one-too-high", 8), ("largest", INT32_MAX)):
            made.invalid(
                f"{part}-length-{slug}",
                f"a header's {part} has the length {length}, more than the record has left",
                batch(
                    Record(headers=[(b"h", b"v")], raw={f"headers[0].{part}_length": varint(length)}),
                    Record(offset_delta=1, value=bytes(30)),
                ),
                requirements=["RB-HEADERS-2" if part == "key" else "RB-HEADERS-6"],
                flags=["HeaderLengthBeyondRecord"],
                finding="length-exceeds-record",
                budget=SMALL,
            )
    made.flag(
        "HeaderKeyNotUtf8",
        "interoperability",
        "A header's key is not UTF-8.",
        "Kafka puts U+FFFD for what it cannot read; others refuse the record, or the process ends in a decoding error.",
    )
    cases = (
        ("invalid-byte", b"h\xff", "h\ufffd"),
        ("cut-character", b"h\xe9\x8d", "h\ufffd"),
        ("surrogate", b"\xed\xa0\x80", "\ufffd"),
        ("overlong-slash", b"\xc0\xaf", "\ufffd\ufffd"),
    )
    for slug, key, read in cases:
        raw = batch(Record(headers=[(key, b"v")], raw={"headers[0].key": key}))
        made.acceptable(
            f"key-not-utf8-{slug}",
            f"a header's key is {key.hex()}, which is not UTF-8; Kafka reads U+FFFD",
            raw,
            requirements=["RB-HEADERS-3"],
            flags=["HeaderKeyNotUtf8"],
            finding="header-key-not-utf8",
            read=[_with_key(raw.batches[0], read)],
            alternatives=[raw.batches],
        )


def _with_key(contents: Json, key: str) -> Json:
    """The batch's contents, the key of its only header as Kafka makes text of it."""
    record = contents["records"][0]
    return {**contents, "records": [{**record, "headers": [[key, record["headers"][0][1]]]}]}


def _value(made: Theme) -> None:
    made.flag(
        "HeaderValueBelowMinusOne",
        "confusion",
        "A header value's length is below -1, where -1 is null.",
        "Kafka reads null; a reader that tests for -1 alone goes back in the buffer.",
    )
    made.acceptable(
        "value-length-minus-two",
        "a header value's length is -2; Kafka reads null",
        batch(Record(headers=[(b"h", None)], raw={"headers[0].value_length": varint(-2)})),
        requirements=["RB-HEADERS-6"],
        flags=["HeaderValueBelowMinusOne"],
        finding="length-below-minus-one",
    )
