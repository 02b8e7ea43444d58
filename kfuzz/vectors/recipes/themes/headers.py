"""A record's headers: count, keys, values."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.builder import Json, Record, batch, varint
from kfuzz.vectors.recipes.theme import SMALL, Theme


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/headers.json``."""
    made = Theme("records/v2/headers", "A record's headers: their count, keys and values.")
    _contents(made.having(requirements=["RB-HEADERS-1"]))
    _count(made)
    _key(made)
    _value(made)
    return made


def _contents(made: Theme) -> None:
    headers_repeated = made.flag("HeadersRepeated", requirements=["RB-HEADERS-5"])
    made.valid(
        "one",
        "the record has one header",
        batch(Record(headers=[(b"trace", b"\x01\x02")])),
        requirements=["RB-HEADERS-1", "RB-HEADERS-2", "RB-HEADERS-4"],
    )
    headers_repeated.valid(
        "repeated-key",
        "two of three headers have the same key; all values must keep their order",
        batch(Record(headers=[(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])),
    )
    headers_repeated.valid(
        "repeated-header",
        "the same header occurs twice, with the same value",
        batch(Record(headers=[(b"a", b"1"), (b"a", b"1")])),
    )
    cases = (
        ("null-value", "a header's value is null", [(b"h", None)]),
        ("empty-value", "a header's value is empty, which is not null", [(b"h", b"")]),
        ("null-and-empty-values", "one header's value is null, the next one's is empty", [(b"n", None), (b"e", b"")]),
    )
    for slug, summary, headers in cases:
        made.flag("NullIsNotEmpty").valid(slug, summary, batch(Record(headers=headers)), requirements=["RB-HEADERS-6"])
    made.valid(
        "empty-key",
        "a header's key is the empty string",
        batch(Record(headers=[(b"", b"v")])),
        requirements=["RB-HEADERS-2"],
    )
    made.valid(
        "hundred",
        "there are 100 headers: the count takes two bytes",
        batch(Record(headers=[(b"h%d" % index, b"%d" % index) for index in range(100)])),
    )
    headers_repeated.valid(
        "thousand",
        "there are 1000 headers with null values",
        batch(Record(headers=[(b"h", None)] * 1000)),
        requirements=["RB-HEADERS-1"],
    )
    headers_repeated.valid(
        "order",
        "the headers are unsorted, with equal keys apart; a reader must keep the producer's order",
        batch(Record(headers=[(b"z", b"1"), (b"a", b"2"), (b"Z", b"3"), (b"a", b"4"), (b"z", b"5")])),
    )
    made.valid(
        "second-record-only",
        "only the second record has a header; headers belong to one record",
        batch(Record(), Record(offset_delta=1, headers=[(b"h", b"v")])),
    )
    made.valid(
        "key-beyond-ascii",
        "the header keys use characters of two, three and four bytes",
        batch(Record(headers=[("ключ".encode(), b"1"), ("鍵".encode(), b"2"), ("🔑".encode(), b"3")])),
        requirements=["RB-HEADERS-3"],
    )
    unusual = (
        ("byte-order-mark", "\ufeffh", "a byte order mark"),
        ("noncharacter", "\uffff", "a code point that is not a character"),
        ("last-code-point", "\U0010ffff", "the last Unicode code point"),
        ("replacement-character", "\ufffd", "U+FFFD itself, which is not a decoding error here"),
        ("combining", "e\u0301", "an e and a combining accent, which must stay two code points"),
        ("right-to-left", "\u202eab", "two letters after a mark that changes the direction of the text"),
        ("line-break", "a\r\nb", "two letters with a line break between them"),
        ("space", "  ", "two spaces"),
        ("smallest-of-each-size", "\x01\x80\u0800\U00010000", "characters at the start of each encoded size"),
        ("largest-of-each-size", "\x7f\u07ff\uffef\U0010fffd", "characters near the end of each encoded size"),
        ("beside-surrogates", "\ud7ff\ue000", "the code points just before and after the surrogates"),
    )
    for slug, key, what in unusual:
        made.flag("HeaderKeyUnusual").valid(
            f"key-{slug}",
            f"a header's key is {what}",
            batch(Record(headers=[(key.encode(), b"v")])),
            requirements=["RB-HEADERS-3"],
        )
    header_key_null_character = made.flag(
        "HeaderKeyNullCharacter",
        requirements=["RB-HEADERS-4"],
        finding="header-key-null-character",
        level="recommended",
    )
    header_key_null_character.acceptable(
        "key-with-null-character",
        "a header's key is 'a', a null character and 'b'; keys should not contain null characters",
        batch(Record(headers=[(b"a\x00b", b"v")], raw={"headers[0].key": b"a\x00b"})),
    )

    for slug, octets in (("only-null-character", b"\x00"), ("null-character-last", b"ab\x00")):
        header_key_null_character.acceptable(
            f"key-{slug}",
            f"a header's key is {octets.hex()}: it {'is' if len(octets) == 1 else 'ends in'} a null character",
            batch(Record(headers=[(octets, b"v")], raw={"headers[0].key": octets})),
        )


def _count(made: Theme) -> None:
    header_count_wrong = made.flag(
        "HeaderCountWrong", requirements=["RB-HEADERS-1"], finding="header-count-exceeds-record", budget=SMALL
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
            header_count_wrong.invalid(
                f"count-{slug}" + ("" if codec == "none" else f"-{codec}"),
                f"the header count is {count}, but no header follows" + ("" if codec == "none" else f" ({codec})"),
                batch(record, codec=codec),
                finding=finding,
            )
    header_count_wrong.invalid(
        "count-one-too-low",
        "the header count is 1, but two headers follow",
        batch(Record(headers=[(b"a", b"1"), (b"b", b"2")], raw={"header_count": varint(1)})),
        requirements=["RB-HEADERS-1", "RB-RECORD-1"],
        finding="record-length-mismatch",
    )
    headers = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    for slug, count, finding in (
        ("fourth-missing", 4, "record-truncated"),
        ("none-of-three", 0, "record-length-mismatch"),
        ("negative-before-three", -3, "header-count-negative"),
    ):
        header_count_wrong.invalid(
            f"count-{slug}",
            f"the header count is {count}, but three headers follow",
            batch(Record(headers=headers, raw={"header_count": varint(count)})),
            finding=finding,
        )
    # A reader that takes this for none, and continues after it, finds no header of a batch there.
    header_count_wrong.invalid(
        "count-negative-before-long",
        "the header count is -1, but a header of 48 bytes follows",
        batch(Record(headers=[(b"header", b"v" * 40)], raw={"header_count": varint(-1)})),
        finding="header-count-negative",
    )
    for codec in ("gzip", "snappy", "zstd"):
        header_count_wrong.invalid(
            f"count-largest-{codec}",
            f"the header count is {INT32_MAX}, but no header follows ({codec})",
            batch(Record(raw={"header_count": varint(INT32_MAX)}), codec=codec),
        )
    header_count_wrong.invalid(
        "count-of-what-follows-in-next-record",
        "the header count exceeds the record; the batch has enough bytes left, but they are the next record's",
        batch(Record(raw={"header_count": varint(20)}), Record(offset_delta=1, value=bytes(60))),
    )
    header_count_wrong.invalid(
        "count-fits-bytes-not-headers",
        "the header count is 3, but three bytes are left; each header needs two",
        batch(Record(raw={"header_count": varint(3), "tail": b"\x00\x00\x00"})),
    )


def _key(made: Theme) -> None:
    for slug, length in (("null", -1), ("length-minus-two", -2), ("length-smallest", -(2**31))):
        made.flag("HeaderKeyNull").invalid(
            f"key-{slug}",
            f"the length of a header's key is {length}",
            batch(Record(headers=[(b"", b"v")], raw={"headers[0].key_length": varint(length)})),
            requirements=["RB-HEADERS-2"],
            finding="header-key-null",
            budget=SMALL,
        )
    for part in ("key", "value"):
        for slug, length in (("one-too-high", 8), ("largest", INT32_MAX)):
            made.flag("HeaderLengthBeyondRecord").invalid(
                f"{part}-length-{slug}",
                f"the length of a header's {part} is {length}, more than the rest of the record",
                batch(
                    Record(headers=[(b"h", b"v")], raw={f"headers[0].{part}_length": varint(length)}),
                    Record(offset_delta=1, value=bytes(30)),
                ),
                requirements=["RB-HEADERS-2" if part == "key" else "RB-HEADERS-6"],
                finding="length-exceeds-record",
                budget=SMALL,
            )
    cases = (
        ("invalid-byte", b"h\xff", "h\ufffd"),
        ("cut-character", b"h\xe9\x8d", "h\ufffd"),
        ("surrogate", b"\xed\xa0\x80", "\ufffd"),
        ("overlong-slash", b"\xc0\xaf", "\ufffd\ufffd"),
        ("overlong-null", b"\xc0\x80", "\ufffd\ufffd"),
        ("overlong-three-bytes", b"\xe0\x80\xaf", "\ufffd\ufffd\ufffd"),
        ("overlong-four-bytes", b"\xf0\x80\x80\xaf", "\ufffd\ufffd\ufffd\ufffd"),
        ("surrogate-pair", b"\xed\xa0\xbd\xed\xb4\x91", "\ufffd\ufffd"),
        ("low-surrogate", b"a\xed\xbf\xbfb", "a\ufffdb"),
        ("beyond-last-character", b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        ("five-byte-form", b"\xf8\x88\x80\x80\x80", "\ufffd" * 5),
        ("continuation-alone", b"a\x80b", "a\ufffdb"),
        ("two-bytes-cut", b"\xc3", "\ufffd"),
        ("three-bytes-cut-by-ascii", b"\xe2\x82a", "\ufffda"),
        ("four-bytes-cut-at-three", b"\xf0\x9f\x94", "\ufffd"),
        ("four-bytes-cut-at-two", b"\xf0\x9f", "\ufffd"),
        ("never-a-byte", b"\xfe\xff", "\ufffd\ufffd"),
        ("latin-1", "grün".encode("latin-1"), "gr\ufffdn"),
    )
    for slug, key, read in cases:
        raw = batch(Record(headers=[(key, b"v")], raw={"headers[0].key": key}))
        made.flag("HeaderKeyNotUtf8").acceptable(
            f"key-not-utf8-{slug}",
            f"a header's key is {key.hex()}, which is not UTF-8; Kafka reads U+FFFD",
            raw,
            requirements=["RB-HEADERS-3"],
            finding="header-key-not-utf8",
            read=[_with_key(raw.batches[0], read)],
            alternatives=[raw.batches],
        )


def _with_key(contents: Json, key: str) -> Json:
    """The batch's contents; the key of its only header is the text that Kafka decodes."""
    record = contents["records"][0]
    return {**contents, "records": [{**record, "headers": [[key, record["headers"][0][1]]]}]}


def _value(made: Theme) -> None:
    header_value_below_minus_one = made.flag(
        "HeaderValueBelowMinusOne", requirements=["RB-HEADERS-6"], finding="length-below-minus-one"
    )
    header_value_below_minus_one.acceptable(
        "value-length-minus-two",
        "a header value's length is -2; Kafka reads null",
        batch(Record(headers=[(b"h", None)], raw={"headers[0].value_length": varint(-2)})),
    )
    header_value_below_minus_one.acceptable(
        "value-length-smallest",
        "a header value's length is INT32_MIN; Kafka reads null",
        batch(Record(headers=[(b"h", None)], raw={"headers[0].value_length": varint(-(2**31))})),
    )
