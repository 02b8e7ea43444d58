"""The listing of batches: it agrees with the readers, goes on after damage, and its memory does not grow."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfuzz import records, strategies
from kfuzz.annotate.listing import Entry, Listing, heading, is_one_batch, line_of, opened_with_neighbours
from kfuzz.kafka import CODECS
from kfuzz.records import Record, RecordBatch
from kfuzz.vectors import load_suite
from kfuzz.wire.walk.search import Search, find_batch


def batch(offset: int, count: int = 2, **options: object) -> bytes:
    rows = [Record(offset + i, 1000 + offset + i, b"k", b"value") for i in range(count)]
    return records.encode_batch(RecordBatch(offset, offset + count - 1, rows, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_an_entry_says_what_read_says(codec: records.Codec, magic: int) -> None:
    if magic < 2 and codec == "zstd":
        pytest.skip("older formats have no zstd")
    # Without a codec, a message of an older format is a batch of its own.
    first = 1 if magic < 2 and codec == "none" else 3
    data = batch(8 - first, first, compression=codec, magic=magic) + batch(8, 1, magic=magic)
    reading = records.read(data)
    listing = Listing(data)
    found = list(listing)
    assert [(one.kind, one.number) for one in found] == [("batch", i) for i in range(len(found))]
    assert sum(one.size for one in found) == len(data)
    for entry, expected in zip(found, reading.batches, strict=True):
        assert (entry.magic, entry.records) == (expected.magic, len(expected.records))
        assert (entry.base_offset, entry.last_offset) == (expected.records[0].offset, expected.records[-1].offset)
        assert (entry.producer_id, entry.base_sequence) == (-1, -1)
        last = expected.records[-1].timestamp
        assert entry.max_timestamp == (-1 if last is None else last)
    assert (listing.batches, listing.records, listing.offsets) == (2, first + 1, (8 - first, 8))


def test_findings_have_the_places_and_paths_of_check_and_those_after_damage_too() -> None:
    odd = bytearray(batch(4))
    odd[21] = 1
    odd[17:21] = records.encode_batch(records.decode(batch(4))[0])[17:21]
    for profile in records.PROFILES:
        data = batch(0) + bytes(odd) + batch(6) + bytes(odd)
        (first, *_) = records.check(data, profile=profile).findings  # type: ignore[arg-type]
        found = [one for entry in Listing(data, profile=profile) for one in entry.findings]  # type: ignore[arg-type]
        assert found[0] == first
        size = len(odd)
        assert [(one.path, one.at) for one in found] == [("batch[1].crc", size + 17), ("batch[3].crc", 3 * size + 17)]


def test_the_listing_continues_where_a_length_is_wrong() -> None:
    one = batch(0)
    for length in (0, 7, len(one) - 13, len(one) - 11, 1 << 20):
        bad = one[:8] + length.to_bytes(4, "big") + one[12:]
        data = one + bad + batch(4)
        before, wrong, after = Listing(data)
        assert (before.kind, after.kind, after.base_offset) == ("batch", "batch", 4)
        assert (wrong.kind, wrong.at, wrong.size) == ("unreadable", len(one), len(one))
        assert wrong.is_refused
        assert len(line_of(wrong)) == 2


def test_a_tail_is_no_damage() -> None:
    data = batch(0) + batch(2)
    listing = Listing(data[:-5])
    assert [one.kind for one in listing] == ["batch", "tail"]
    assert (listing.batches, listing.refused) == (1, 0)


@pytest.mark.full
@given(strategies.batch_bytes(hostile=True, magics=(0, 1, 2)) | st.binary(max_size=100))
def test_any_bytes_are_listed_from_the_first_to_the_last(data: bytes) -> None:
    at = 0
    for number, entry in enumerate(Listing(data)):
        assert entry.at == at
        assert entry.number == number
        at += entry.size
        line_of(entry)
        entry.to_json()
    assert at == len(data)


@pytest.mark.full
def test_the_vectors_are_listed_as_check_judges_them() -> None:
    for vector in load_suite():
        if vector.kind != "records" or not vector.data or len(vector.data) > 1 << 20:
            continue
        verdict = records.check(vector.data)
        listing = Listing(vector.data)
        taken = []
        for entry in listing:
            taken += entry.findings
            if entry.is_refused:
                break
        assert taken == verdict.findings[: len(taken)], vector.id
        if verdict.fatal is not None:
            assert listing.refused, vector.id


def test_more_batches_take_no_more_memory() -> None:
    data = batch(0, 1) * 20_000
    tracemalloc.start()
    count = sum(1 for _ in Listing(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 200_000


def test_the_batch_that_is_wanted_comes_with_its_neighbours() -> None:
    bad = bytearray(batch(4))
    bad[-1] ^= 1
    data = batch(0) + batch(2) + bytes(bad) + batch(6)

    def opened(wanted: Callable[[Entry], bool], better: Callable[[Entry], bool] | None = None) -> list[int | None]:
        found = opened_with_neighbours(Listing(data), wanted, better)
        return [None if one is None else one.number for one in found or ()]

    assert opened(lambda one: one.number == 0) == [None, 0, 1]
    assert opened(lambda one: one.number == 1) == [0, 1, 2]
    assert opened(lambda one: one.number == 3) == [2, 3, None]
    assert opened(lambda one: one.number == 9) == []
    assert opened(lambda one: True, lambda one: one.is_refused) == [1, 2, 3]
    # The rest after the neighbour is not read.
    listing = Listing(batch(0) * 10)
    assert opened_with_neighbours(listing, lambda one: one.number == 3)
    assert listing.batches == 5
    # No entry is the better one, so the first wanted one is taken, with its own neighbours.
    assert opened(lambda one: one.number > 0, lambda one: False) == [0, 1, 2]


def test_a_buffer_with_one_batch_is_known_as_such() -> None:
    one = batch(0)
    assert is_one_batch(b"")
    assert is_one_batch(one)
    assert is_one_batch(one + one[:20])
    assert is_one_batch(b"nothing here")
    assert not is_one_batch(one + one)
    assert not is_one_batch(b"nothing here" + one)
    assert not is_one_batch(one[:8] + bytes(4) + one[12:] + one)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_search_finds_the_first_batch_with_a_right_crc(magic: int) -> None:
    one = batch(3, 1, magic=magic)
    bad = one[:-1] + bytes([one[-1] ^ 1])
    data = b"\x02" * 40 + bad + one + one
    at = 40 + len(bad)
    assert find_batch(data, 0, len(data)) == at
    assert find_batch(data, at + 1, len(data)) == at + len(one)
    assert find_batch(data, 0, at) is None
    assert find_batch(data, at + 1, at + len(one)) is None
    assert [place for place in range(len(data)) if Search(data).holds(place)] == [at, at + len(one)]
    for start, end in ((-1, 5), (0, len(data) + 1)):
        with pytest.raises(IndexError):
            find_batch(data, start, end)


def test_the_search_ends_soon_in_bytes_that_look_like_headers_again_and_again() -> None:
    # Each of these headers would have a CRC over the 4 MiB after it: half a TiB in all.
    header = batch(0, 1)[:8] + (4 << 20).to_bytes(4, "big") + batch(0, 1)[12:61]
    data = header * ((8 << 20) // len(header))
    assert find_batch(data, 0, len(data)) is None
    assert find_batch(b"\1" * (8 << 20), 0, 8 << 20) is None
    # A few of them hide nothing.
    data = header * 5 + bytes(4 << 20) + batch(0)
    assert find_batch(data, 0, len(data)) == len(data) - len(batch(0))


@pytest.mark.parametrize("width", [40, 80, 109, 110, 120, 146, 147, 200])
def test_a_line_fits_the_terminal(width: int) -> None:
    made = RecordBatch(
        2**62, 2**62, [Record(2**62, 1_700_000_000_000, b"k", b"v")], producer_id=2**62, producer_epoch=3
    )
    for entry in Listing(records.encode([made, RecordBatch(0, 0, [Record(0, 1, b"k", b"v")])])):
        assert len(line_of(entry, width)[0]) <= max(width, 147 + 40 * (width >= 147))
        if width >= 80 and entry.number:
            assert "none" in line_of(entry, width)[0]
    assert len(heading(width)) <= width
    assert heading(None) == heading(147)
