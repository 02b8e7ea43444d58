"""The one walk over frames: what it yields, and where it ends."""

from __future__ import annotations

import pytest

from kfuzz import records
from kfuzz.records import Record, RecordBatch
from kfuzz.wire.io.layout import HEADER_AT, LOG_OVERHEAD, MAGIC_AT
from kfuzz.wire.records.framing import frames, next_frame


def batch(offset: int, magic: int = 2) -> bytes:
    return records.encode_batch(RecordBatch(offset, offset, [Record(offset, 1, b"k", b"v" * offset)], magic=magic))


WHOLE = [batch(0), batch(1, 0), batch(2, 1), batch(3)]
DATA = b"".join(WHOLE)
STARTS = [sum(len(one) for one in WHOLE[:i]) for i in range(len(WHOLE))]
EXPECTED = list(zip(STARTS, map(len, WHOLE), [2, 0, 1, 2], strict=True))


def with_magic(frame: bytes, magic: int) -> bytes:
    return frame[:MAGIC_AT] + bytes([magic]) + frame[MAGIC_AT + 1 :]


def with_length(frame: bytes, length: int) -> bytes:
    return frame[: HEADER_AT["batch_length"]] + length.to_bytes(4, "big", signed=True) + frame[LOG_OVERHEAD:]


@pytest.mark.parametrize("any_magic", [False, True])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_whole_batches_and_messages_are_yielded_in_their_order(kind: type, any_magic: bool) -> None:
    assert list(frames(kind(DATA), any_magic=any_magic)) == EXPECTED
    assert list(frames(kind(DATA), STARTS[2], any_magic=any_magic)) == EXPECTED[2:]
    assert list(frames(kind(DATA), len(DATA), any_magic=any_magic)) == []
    assert list(frames(kind(b""), any_magic=any_magic)) == []


@pytest.mark.parametrize("any_magic", [False, True])
def test_the_walk_ends_at_a_partial_tail_whatever_its_size(any_magic: bool) -> None:
    for cut in range(1, len(WHOLE[3])):
        assert list(frames(DATA[:-cut], any_magic=any_magic)) == EXPECTED[:3]


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 13, 48])
def test_the_walk_ends_at_a_frame_that_is_refused(length: int) -> None:
    assert list(frames(WHOLE[0] + with_length(WHOLE[3], length) + WHOLE[1])) == EXPECTED[:1]


@pytest.mark.parametrize("magic", [3, 0x7F, 0x82, 0xFF])
def test_an_unknown_magic_ends_the_walk_unless_lengths_alone_are_followed(magic: int) -> None:
    data = with_magic(WHOLE[0], magic) + WHOLE[1]
    assert list(frames(data)) == []
    assert list(frames(data, any_magic=True)) == [(0, len(WHOLE[0]), magic), (len(WHOLE[0]), len(WHOLE[1]), 0)]


def test_the_walk_takes_the_steps_of_next_frame() -> None:
    for at, size, magic in frames(DATA):
        assert next_frame(DATA, at) == (size, magic, [])


@pytest.mark.parametrize("at", [-1, len(DATA) + 1])
@pytest.mark.parametrize("any_magic", [False, True])
def test_a_walk_that_begins_outside_is_refused(at: int, any_magic: bool) -> None:
    with pytest.raises(IndexError, match="no frame can begin"):
        next(frames(DATA, at, any_magic=any_magic))
