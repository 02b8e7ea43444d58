"""The tables that everyone else reads: layouts without holes, codes without strays."""

from __future__ import annotations

import pytest

from kfuzz import records
from kfuzz.findings.records import CODES
from kfuzz.kafka import CODECS, Codec
from kfuzz.records import Record, RecordBatch
from kfuzz.wire.io.layout import (
    BATCH_CRC_COVERS_FROM,
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    CODEC_AT,
    CODEC_MASK,
    FRAME_LAYOUT,
    HEADER_AT,
    HEADER_LAYOUT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_AT,
    MESSAGE_CRC_COVERS_FROM,
    MESSAGE_LAYOUT,
)
from kfuzz.wire.io.report import CODES as WIRE_CODES
from kfuzz.wire.records.framing import next_frame
from kfuzz.wire.records.message_set import parse_message
from kfuzz.wire.records.record_batch import parse_header, parse_places


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


def test_the_places_agree_with_the_layouts() -> None:
    assert HEADER_AT["magic"] == MESSAGE_AT[0]["magic"] == MESSAGE_AT[1]["magic"] == MAGIC_AT
    assert HEADER_AT["crc"] + 4 == BATCH_CRC_COVERS_FROM
    assert MESSAGE_AT[0]["crc"] + 4 == MESSAGE_CRC_COVERS_FROM
    # A record batch has two bytes of attributes, and the codec in the second one.
    assert {magic: at - (magic == 2) for magic, at in CODEC_AT.items()} == {
        0: MESSAGE_AT[0]["attributes"],
        1: MESSAGE_AT[1]["attributes"],
        2: HEADER_AT["attributes"],
    }
    # The smallest message has null key and null value, whose lengths take eight bytes.
    assert (
        dict.fromkeys((0, 1), MESSAGE_AT[0]["key_length"] + 8 - LOG_OVERHEAD) | {2: BATCH_HEADER_SIZE - LOG_OVERHEAD}
        == BATCH_LENGTH_MIN
    )


@pytest.mark.parametrize("codec", CODECS)
def test_a_codecs_place_in_the_list_of_names_is_its_number_in_the_attributes(codec: Codec) -> None:
    data = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")], compression=codec))
    assert data[CODEC_AT[2]] & CODEC_MASK == CODECS.index(codec)
    assert records.read(data).fatal is None


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
