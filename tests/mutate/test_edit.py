"""The mutator's byte work: what it finds in records it finds rightly, and what it mends a reader accepts."""

from __future__ import annotations

import pytest

from kfuzz import records
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.edit import frame_spans, record_numbers, record_spans, scramble, seal, varlong
from kfuzz.records import Record, RecordBatch
from kfuzz.wire.layout import BATCH_HEADER_SIZE

BATCH = records.encode_batch(
    RecordBatch(5, 6, [Record(5, 9, b"key", None, ((b"h", b"x"), (b"i", None))), Record(6, 10, None, b"value")])
)
MESSAGE = records.encode_batch(RecordBatch(1, 1, [Record(1, 9, b"k", b"v")], magic=1))


def test_dice_draw_in_range_and_all_of_it() -> None:
    dice = Dice(1, 2)
    assert {dice.below(7) for _ in range(500)} == set(range(7))
    assert 400 < sum(dice.chance(0.5) for _ in range(1_000)) < 600
    assert not any(dice.chance(0) for _ in range(100))
    assert all(dice.chance(1) for _ in range(100))
    assert len(dice.octets(33)) == 33
    with pytest.raises(ValueError, match="n is 0"):
        dice.below(0)


def test_records_and_their_varints_are_found() -> None:
    payload = BATCH[BATCH_HEADER_SIZE:]
    spans = record_spans(payload)
    assert len(spans) == 2
    assert spans[0][0] == 0
    assert spans[0][1] == spans[1][0]
    assert spans[1][1] == len(payload)
    values = [value for _, _, value in record_numbers(payload[: spans[0][1]])]
    # Length, timestamp and offset delta, key, value, header count, then two lengths a header.
    assert values == [spans[0][1] - 1, 0, 0, 3, -1, 2, 1, 1, 1, -1]


def test_what_cannot_be_followed_ends_a_walk() -> None:
    assert record_spans(b"\xff" * 11) == []
    assert record_spans(b"\x01") == []
    assert record_spans(b"\x02\x00\x10") == [(0, 2)]
    assert frame_spans(BATCH + MESSAGE + BATCH[:-1]) == [(0, len(BATCH)), (len(BATCH), len(BATCH) + len(MESSAGE))]
    assert frame_spans(b"\xff" * 40) == []


@pytest.mark.parametrize("value", [0, -1, 63, 64, -65, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("smallest", [1, 5, 10, 11])
def test_a_stretched_varint_keeps_its_value(value: int, smallest: int) -> None:
    shortest, stretched = varlong(value), varlong(value, smallest)
    assert len(stretched) == max(smallest, len(shortest))
    if len(stretched) <= 10:
        assert record_numbers(stretched)[0] == (0, len(stretched), value)
    else:
        assert record_numbers(stretched) == []


@pytest.mark.parametrize("frame", [BATCH, MESSAGE], ids=["batch", "message"])
def test_a_sealed_frame_has_the_length_and_crc_that_belong_to_it(frame: bytes) -> None:
    broken = frame[:8] + b"\x7f\xff\xff\xff" + (frame[12:17] + bytes(4) if frame[16] == 2 else bytes(4) + frame[16:17])
    broken += frame[len(broken) :]
    assert seal(broken, True, True) == frame
    assert seal(broken, True, False) != frame
    assert seal(broken, False, True)[8:12] == b"\x7f\xff\xff\xff"
    assert seal(frame[:20], True, True) == frame[:20]


def test_scrambling_changes_little_and_grows_within_its_bound() -> None:
    for stream in range(3_000):
        out = scramble(BATCH, Dice(1, stream))
        assert len(BATCH) - 30 < len(out) <= len(BATCH) + 120
    assert scramble(b"", Dice(1)) != b""
