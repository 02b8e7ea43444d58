"""A producer must not change these: nulls, empty values, headers and timestamps."""

from __future__ import annotations

from kfuzz.kafka import INT64_MAX
from kfuzz.vectors.recipes.making.builder import CREATED_MS, Record
from kfuzz.vectors.recipes.making.sent import batch_of
from kfuzz.vectors.recipes.theme import Theme

TEXT = {"null": None, "empty": b"", "text": b"text"}


def theme() -> Theme:
    """The recipes of ``vectors/produce/contents.json``."""
    made = Theme(
        "produce/contents", "Records with nulls, empty values, all kinds of headers, and timestamps.", "produce"
    )
    made.produce(
        "plain",
        "one record of a producer without an id, which sends -1 as id, epoch and sequence",
        batch_of([Record()]),
        requirements=["PRO-MAGIC-1", "RB-PRODUCER-1"],
    )
    made.produce(
        "no-timestamp",
        "the record has no timestamp, so the producer gives it that of its clock",
        batch_of([Record()]),
        requirements=["RB-TIMESTAMP-4"],
        left_out=["timestamp"],
    )
    made.produce(
        "no-key",
        "the record has no key, which is sent as null",
        batch_of([Record(key=None)]),
        requirements=["RB-RECORD-3"],
        left_out=["key"],
    )
    _nulls(made.having(requirements=["RB-RECORD-3"]))
    _headers(made)
    _timestamps(made)
    return made


def _nulls(made: Theme) -> None:
    for key_name, key in TEXT.items():
        for value_name, value in TEXT.items():
            made.produce(
                f"key-{key_name}-value-{value_name}",
                f"the key is {key_name}, the value is {value_name}",
                batch_of([Record(key=key, value=value)]),
            )
    made.produce(
        "every-null-in-one-batch",
        "all pairs of null, empty and filled keys and values, one after another",
        batch_of(Record(key=key, value=value) for key in TEXT.values() for value in TEXT.values()),
    )
    made.produce(
        "bytes-that-are-no-text",
        "key and value have all bytes from 0 to 255, which are no text in any encoding",
        batch_of([Record(key=bytes(range(256)), value=bytes(range(255, -1, -1)))]),
    )


def _headers(made: Theme) -> None:
    null_header_value = made.flag("NullHeaderValue")
    cases: tuple[tuple[str, str, list[tuple[bytes, bytes | None]], list[str]], ...] = (
        ("header", "one header", [(b"h", b"v")], ["RB-HEADERS-1"]),
        ("header-value-empty", "a header has an empty value", [(b"h", b"")], ["RB-HEADERS-6"]),
        ("header-name-empty", "a header has an empty name", [(b"", b"v")], ["RB-HEADERS-2"]),
        ("header-all-empty", "a header has an empty name and an empty value", [(b"", b"")], ["RB-HEADERS-2"]),
        ("headers-repeated", "one name, three values", [(b"h", b"1"), (b"h", b"2"), (b"h", b"3")], ["RB-HEADERS-5"]),
        ("headers-equal", "one header twice", [(b"h", b"v"), (b"h", b"v")], ["RB-HEADERS-5"]),
        (
            "headers-repeated-apart",
            "a name comes again after another one",
            [(b"b", b"1"), (b"a", b"2"), (b"b", b"3")],
            ["RB-HEADERS-5"],
        ),
        ("headers-unsorted", "names that are not sorted", [(b"%d" % n, b"v") for n in (10, 9, 1, 2)], ["RB-HEADERS-1"]),
        ("header-name-accent", "a name with an accent", [("é".encode(), b"v")], ["RB-HEADERS-3"]),
        ("header-name-chinese", "a name of Chinese characters", [("消息".encode(), b"v")], ["RB-HEADERS-3"]),
        ("header-name-emoji", "a name outside the basic plane", [("😀".encode(), b"v")], ["RB-HEADERS-3"]),
        ("header-value-bytes", "a value of all bytes", [(b"h", bytes(range(256)))], ["RB-HEADERS-6"]),
        ("header-names-special", "names that objects of JavaScript have", _SPECIAL, ["RB-HEADERS-1"]),
        ("header-name-63", "a name of 63 bytes: its length needs one byte", [(b"n" * 63, b"v")], ["RB-HEADERS-2"]),
        ("header-name-64", "a name of 64 bytes: its length needs two bytes", [(b"n" * 64, b"v")], ["RB-HEADERS-2"]),
        ("headers-63", "63 headers: their number needs one byte", [(b"h", b"v")] * 63, ["RB-HEADERS-1"]),
        ("headers-64", "64 headers: their number needs two bytes", [(b"h", b"v")] * 64, ["RB-HEADERS-1"]),
    )
    for slug, summary, headers, requirements in cases:
        made.produce(slug, summary, batch_of([Record(headers=headers)]), requirements=requirements)
    nulls: tuple[tuple[str, str, list[tuple[bytes, bytes | None]]], ...] = (
        ("header-value-null", "a header has null as its value", [(b"h", None)]),
        (
            "header-values-null-and-empty",
            "a null, an empty and a filled value",
            [(b"h", None), (b"h", b""), (b"h", b"v")],
        ),
        (
            "header-value-null-last",
            "only the last of three headers is null",
            [(b"a", b"1"), (b"b", b"2"), (b"c", None)],
        ),
    )
    for slug, summary, headers in nulls:
        raw = batch_of([Record(headers=headers)])
        null_header_value.produce(slug, summary, raw, requirements=["RB-HEADERS-6"])
    made.produce(
        "headers-in-some-records",
        "records with headers, between records without",
        batch_of(Record(headers=[(b"h", b"%d" % number)] * (number % 3)) for number in range(10)),
        requirements=["RB-HEADERS-1"],
    )
    null_header_value.produce(
        "all-null",
        "key, value and header value are null",
        batch_of([Record(key=None, value=None, headers=[(b"h", None)])]),
        requirements=["RB-RECORD-3", "RB-HEADERS-6"],
    )


_SPECIAL: list[tuple[bytes, bytes | None]] = [(name, b"v") for name in (b"__proto__", b"constructor", b"0")]


def _timestamps(made: Theme) -> None:
    requirements = ["RB-TIMESTAMP-1", "RB-TIMESTAMP-4"]
    whole = (
        ("timestamp-zero", "the timestamp is 0", 0),
        ("timestamp-one", "the timestamp is 1 ms", 1),
        ("timestamp-int32-max", "the timestamp is the largest int32", (1 << 31) - 1),
        ("timestamp-above-int32", "the timestamp is one above the largest int32", 1 << 31),
        ("timestamp-odd-ms", "the timestamp has all digits of milliseconds", CREATED_MS + 789),
        ("timestamp-year-9999", "the timestamp is the last millisecond of the year 9999", 253_402_300_799_999),
    )
    for slug, summary, timestamp in whole:
        made.produce(slug, summary, batch_of([Record()], base_timestamp=timestamp), requirements=requirements)
    for slug, summary, timestamp in (
        ("timestamp-above-2-53", "the timestamp is one above 2^53, which no float holds", (1 << 53) + 1),
        ("timestamp-largest", "the timestamp is the largest int64", INT64_MAX),
        ("timestamp-minus-one", "the timestamp is -1, which means that there is none", -1),
    ):
        raw = batch_of([Record()], base_timestamp=timestamp)
        made.produce(slug, summary, raw, requirements=requirements, may_refuse=True)
    several = (
        ("timestamps-rising", "each record is a few milliseconds younger than the one before it", [0, 3, 7]),
        ("timestamps-decreasing", "each record is older than the one before it", [0, -1, -1000, -86_400_000]),
        (
            "timestamps-far-apart",
            "a record 50 years later, and one 50 years earlier",
            [0, 50 * _YEAR_MS, -50 * _YEAR_MS],
        ),
        (
            "timestamps-varint",
            "deltas that just do or do not need another byte",
            [0, 63, 64, -64, -65, 8191, 8192, -8193],
        ),
    )
    for slug, summary, deltas in several:
        raw = batch_of(Record(timestamp_delta=delta) for delta in deltas)
        made.produce(slug, summary, raw, requirements=[*requirements, "RB-TIMESTAMP-2", "RB-TIMESTAMP-3"])


_YEAR_MS = 365 * 86_400_000
