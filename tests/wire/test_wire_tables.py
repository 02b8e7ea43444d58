"""The tables that everyone else reads: layouts without holes, codes without strays."""

from __future__ import annotations

import pytest

from kfuzz.findings.records import CODES
from kfuzz.wire.framing import FRAME_LAYOUT, LOG_OVERHEAD, next_frame
from kfuzz.wire.message_set import MESSAGE_LAYOUT, parse_message
from kfuzz.wire.record_batch import BATCH_HEADER_SIZE, HEADER_LAYOUT, parse_header, parse_places
from kfuzz.wire.report import CODES as WIRE_CODES


@pytest.mark.parametrize(
    ("layout", "size"),
    [
        (HEADER_LAYOUT, BATCH_HEADER_SIZE),
        (FRAME_LAYOUT, LOG_OVERHEAD),
        (MESSAGE_LAYOUT[0], 22),
        (MESSAGE_LAYOUT[1], 30),
    ],
)
def test_a_layout_has_no_hole_and_no_overlap(layout: tuple[tuple[str, int, int], ...], size: int) -> None:
    at = 0
    for _, offset, width in layout:
        assert offset == at
        at += width
    assert at == size


def test_every_code_that_a_loop_can_note_has_a_meaning() -> None:
    assert set(WIRE_CODES.values()) <= set(CODES)


def test_every_sentence_can_be_formatted() -> None:
    for code in CODES.values():
        sentence = code.sentence.format(found=1, allowed=2, count=3)
        assert "{" not in sentence
        assert not sentence.endswith(".")


def test_the_header_parser_reads_the_fields_where_the_layout_says() -> None:
    data = bytes(2 if i == 17 else i for i in range(1, 62))
    for (_, offset, width), value in zip(HEADER_LAYOUT, parse_header(data, 0), strict=True):
        assert value == int.from_bytes(data[offset : offset + width], "big")


@pytest.mark.parametrize("at", [-1, 1, 2**40])
def test_places_outside_the_buffer_are_refused(at: int) -> None:
    with pytest.raises(IndexError):
        parse_header(bytes(61), at)
    with pytest.raises(IndexError):
        parse_message(bytes(26), at, 26)
    with pytest.raises(IndexError):
        next_frame(b"", at)
    with pytest.raises(IndexError):
        parse_places(b"", at, (0,) * 13)
