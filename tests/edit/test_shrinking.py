"""The shrinker: what breaks stays, all else goes, and lengths, counts and CRCs stay right if they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from kfuzz import records
from kfuzz.edit.shrinking import CANDIDATES_AT_ONCE, FindFirst, shrink
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import encode, read
from kfuzz.messages.sample import filled
from kfuzz.records import CODECS, Codec, Record, RecordBatch, RecordsError
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, MAGIC_AT

# The smallest batch of one record with one header: its key is "bad", and key and value are empty.
BAD_BATCH_BYTES = 73
TRIES_MOST = 400


def first_that(breaks: Callable[[bytes], bool]) -> FindFirst:
    return lambda candidates: next((i for i, data in enumerate(candidates) if breaks(data)), None)


def batches(codec: Codec = "none") -> bytes:
    """Three batches of ten records. In one record of each, a header is called "bad"."""
    headers = [((b"h", b"x" * 9), (b"bad" if i == 6 else b"good", None)) for i in range(10)]
    made = [Record(5 + i, 1000, b"k%d" % i, b"v" * 50, headers[i]) for i in range(10)]
    return records.encode([RecordBatch(5, 14, made, compression=codec)] * 3)


def has_bad_header(data: bytes) -> bool:
    try:
        return any(name == b"bad" for record in records.iterate(data) for name, _ in record.headers)
    except RecordsError:
        return False


def counted(breaks: Callable[[bytes], bool]) -> tuple[Callable[[bytes], bool], list[bytes]]:
    asked: list[bytes] = []

    def one(data: bytes) -> bool:
        asked.append(data)
        return breaks(data)

    return one, asked


@pytest.mark.parametrize("codec", CODECS)
def test_one_record_with_one_header_is_left_of_three_batches(codec: Codec) -> None:
    breaks, asked = counted(has_bad_header)
    small = shrink(batches(codec), first_that(breaks))
    assert len(small) == BAD_BATCH_BYTES
    [batch] = records.decode(small)
    [record] = batch.records
    assert batch.compression == "none"
    assert [name for name, _ in record.headers] == [b"bad"]
    assert (record.key, record.value) == (b"", b"")
    # It knows the structure: cutting bytes alone would need thousands.
    assert len(asked) < TRIES_MOST
    assert len(set(asked)) == len(asked)


def test_messages_of_old_formats_keep_their_crc() -> None:
    data = records.encode([RecordBatch(i, i, [Record(i, 1000, b"k", b"v" * 50)], magic=1) for i in range(5)])

    def breaks(data: bytes) -> bool:
        try:
            return any(record.value and record.value.endswith(b"vvv") for record in records.iterate(data))
        except RecordsError:
            return False

    small = shrink(data, first_that(breaks))
    [batch] = records.decode(small)
    value = batch.records[0].value
    assert value is not None
    assert value.rstrip(b"v") == bytes(len(value) - 3)
    assert len(small) < len(data) // 5


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_a_wrapper_loses_its_messages_and_its_compression(codec: Codec) -> None:
    made = [Record(i, 1000, b"k", b"the bad one" if i == 4 else b"v" * 50) for i in range(9)]
    data = records.encode([RecordBatch(0, 8, made, compression=codec, magic=1)])

    def breaks(data: bytes) -> bool:
        try:
            return any(b"bad" in (record.value or b"") for record in records.iterate(data))
        except RecordsError:
            return False

    small = shrink(data, first_that(breaks))
    [batch] = records.decode(small)
    assert [record.value for record in batch.records] == [b"bad"]
    assert batch.compression == "none"


def test_a_message_loses_elements_tagged_fields_and_contents() -> None:
    definition = catalogue().find("FetchRequest")
    zero = dict.fromkeys(("maxWaitMs", "minBytes", "maxBytes", "sessionId", "sessionEpoch"), 0)
    data = encode(definition, 17, filled(definition, 17, 3))
    breaks, asked = counted(lambda data: len(reading(data).get("rackId", "")) > 3)

    def reading(data: bytes) -> Mapping[str, Any]:
        return read(definition, 17, data).message or {}

    assert breaks(data)
    small = shrink(data, first_that(breaks), message=(definition, 17))
    assert small == encode(definition, 17, zero | {"rackId": "\0" * 4})
    assert len(asked) < TRIES_MOST // 4


def test_shrinking_keeps_the_fault() -> None:
    """A wrong count, a wrong length of a record and a wrong CRC are not repaired."""
    good = records.encode([RecordBatch(0, 3, [Record(i, i, b"key", b"value") for i in range(4)])])
    too_many = good[: BATCH_HEADER_SIZE - 1] + b"\x09" + good[BATCH_HEADER_SIZE:]

    def finding(data: bytes) -> str:
        fatal = records.read(data).fatal
        return fatal.code if fatal and data[MAGIC_AT] == 2 else ""

    assert finding(too_many) == "crc-mismatch"
    small = shrink(too_many, first_that(lambda data: finding(data) == "crc-mismatch"))
    assert finding(small) == "crc-mismatch"
    assert len(small) == BATCH_HEADER_SIZE


def test_anything_else_is_cut_and_cleared() -> None:
    data = bytes(range(1, 200)) * 3
    small = shrink(data, first_that(lambda data: b"\x07\x08" in data and len(data) > 9))
    assert sorted(small) == sorted(b"\x07\x08" + bytes(8))


def test_equal_questions_get_equal_results_and_are_never_too_many_at_once() -> None:
    asked: list[list[Sequence[bytes]]] = [[], []]
    for rounds in asked:

        def find_first(candidates: Sequence[bytes], rounds: list[Sequence[bytes]] = rounds) -> int | None:
            rounds.append(candidates)
            return first_that(has_bad_header)(candidates)

        shrink(batches("gzip"), find_first)
    assert asked[0] == asked[1]
    assert max(map(len, asked[0])) <= CANDIDATES_AT_ONCE


def test_an_input_that_cannot_be_smaller_stays() -> None:
    assert shrink(b"abc", first_that(lambda data: False)) == b"abc"
    assert shrink(b"", first_that(lambda data: True)) == b""
    assert shrink(batches(), first_that(lambda data: True), rounds=1) != batches()
    # An input without bytes is never asked about.
    assert shrink(b"x" * 500, first_that(lambda data: True)) == b"\0"
