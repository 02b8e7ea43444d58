"""The search for batches after damage: it finds the first sound one, and takes linear time on any bytes."""

from __future__ import annotations

import random
import time

import pytest
from made_segments import bad

from kfuzz import records
from kfuzz.mutate.engine import seal
from kfuzz.records import Record, RecordBatch
from kfuzz.wire.io.checksum import crc32, crc32_joined
from kfuzz.wire.io.layout import MESSAGE_AT
from kfuzz.wire.records.message_set import encode_message
from kfuzz.wire.walk.search import Search, find_batch


def batch(offset: int, value: bytes = b"value", magic: int = 2) -> bytes:
    return records.encode_batch(RecordBatch(offset, offset, [Record(offset, 1000, b"k", value)], magic=magic))


def header(magic: int, size: int) -> bytes:
    """The header of a batch or message of ``size`` bytes, as Kafka writes it, with a wrong CRC."""
    made = bytearray(batch(0, bytes(size - len(batch(0, b"", magic=magic))), magic=magic)[: 61 if magic == 2 else 34])
    made[8:12] = (size - 12).to_bytes(4, "big")
    made[17 if magic == 2 else 12] ^= 1
    if magic == 1:
        made[26:34] = b"\xff" * 4 + (size - 34).to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize("magic", [1, 2])
def test_many_headers_of_long_batches_hide_nothing_and_take_linear_time(magic: int) -> None:
    # A CRC over what each of these headers claims would read 140 GB.
    fakes = header(magic, 2 << 20) * ((4 << 20) // len(header(magic, 2 << 20)))
    sound = batch(7, random.Random(1).randbytes(3 << 20), magic=magic)
    data = fakes + b"\x01" + sound
    start = time.process_time()
    assert find_batch(data, 0, len(data)) == len(fakes) + 1
    search = Search(data)
    for _ in range(2):
        assert search.find(0, len(data)) == len(fakes) + 1
        assert search.find(len(fakes) + 2, len(data)) is None
    assert search.holds(len(fakes) + 1)
    assert not search.holds(0)
    # It takes a tenth of a second.
    assert time.process_time() - start < 20


def test_the_search_finds_what_looking_at_each_place_finds() -> None:
    source = random.Random(3)
    for _ in range(60):
        pieces = []
        for _ in range(source.randrange(1, 8)):
            made = bytearray(batch(source.randrange(9), source.randbytes(source.randrange(90)), source.randrange(3)))
            if source.random() < 0.5:
                made[source.randrange(len(made))] ^= 1 << source.randrange(8)
            pieces += [bytes(made), source.choice([b"", bytes(70), source.randbytes(source.randrange(200))])]
        data = b"".join(pieces)
        search, found, at = Search(data), [], 0
        places = [at for at in range(len(data)) if Search(data).holds(at)]
        while (place := search.find(at, len(data))) is not None:
            found.append(place)
            at = place + 1
        # A batch with bits that Kafka does not set is passed over.
        assert set(found) <= set(places)
        assert [
            place for place in places if place not in found and data[place + 16] == 2 and not data[place + 21]
        ] == []


@pytest.mark.parametrize("gap", [0, 1, 15, 16, 17, 63, 64, 65, 1000])
def test_the_search_ends_where_it_is_told(gap: int) -> None:
    search = Search(bytes(gap) + batch(3))
    assert search.find(0, gap) is None
    assert search.find(0, gap + 1) == gap


def test_a_length_that_swallows_sound_batches_is_not_believed() -> None:
    one = batch(0)
    wrong = bytearray(one)
    wrong[8:12] = (3 * len(one) - 12).to_bytes(4, "big")
    data = bytes(wrong) + one * 4
    assert Search(data).after(0, 3 * len(one), len(data)) == len(one)
    # Bytes of a value may be a batch, but other bytes of the record follow them.
    outer = bad(batch(0, one), 17)
    assert Search(outer + one).after(0, len(outer), len(outer) + len(one)) == len(outer)
    # A message that is compressed has messages inside, up to its end.
    inner = bytearray(batch(0, one + one, magic=1))
    assert Search(bytes(inner) + one).after(0, len(inner), len(inner) + len(one)) == len(inner)
    inner[17] |= 1
    assert Search(bytes(inner) + one).after(0, len(inner), len(inner) + len(one)) == len(inner)


def test_the_crc_32_of_two_parts_is_that_of_the_whole() -> None:
    data = random.Random(2).randbytes(70_000)
    for first, second in (
        (0, 0),
        (0, 5),
        (5, 0),
        (5, 1),
        (7, 255),
        (7, 256),
        (100, 65_535),
        (100, 65_536),
        (1, 69_999),
    ):
        whole = data[: first + second]
        assert crc32_joined(crc32(whole[:first]), crc32(whole[first:]), second) == crc32(whole)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_with_unused_bits_in_its_attributes_is_passed_over(magic: int) -> None:
    message = encode_message(magic, 7, 0, 5 if magic else -1, b"k", b"v" * 40)
    at = MESSAGE_AT[magic]["attributes"]
    for bit in range(8):
        # Bits 0 to 2 are the codec, bit 3 the type of the timestamp.
        made = seal(message[:at] + bytes([message[at] | 1 << bit]) + message[at + 1 :], True, True)
        assert Search(b"\x55" * 9 + made).find(0, 9 + len(made)) == (9 if bit < 4 else None)
