"""The writer: what was read can be written and reads the same; what cannot be written is refused before a byte is."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import pytest
from hypothesis import given

from kfuzz import records, strategies
from kfuzz.errors import EncodeError, UsageError
from kfuzz.kafka import CODECS, codecs_of
from kfuzz.mutate.engine import seal
from kfuzz.records import Record, RecordBatch
from kfuzz.wire.io.layout import CODEC_AT, CODEC_MASK


@given(strategies.hostile_batches())
def test_written_batches_are_read_unchanged(batch: RecordBatch) -> None:
    reading = records.read(records.encode_batch(batch))
    assert reading.fatal is None
    assert records.to_json(reading.batches) == records.to_json([batch])


@given(strategies.hostile_batches())
def test_the_json_form_loses_nothing(batch: RecordBatch) -> None:
    told = json.loads(json.dumps(records.to_json([batch])))
    assert records.to_json(records.from_json(told)) == records.to_json([batch])


RECORD = Record(0, 1, b"k", b"v")


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_magic_is_read_and_written_with_the_codecs_that_it_knows(magic: int) -> None:
    """kfuzz.kafka names them; compiled code has their numbers."""
    at = CODEC_AT[magic]
    plain = records.encode_batch(RecordBatch(0, 0, [RECORD], magic=magic))
    known = codecs_of(magic)
    for number in range(CODEC_MASK + 1):
        data = plain[:at] + bytes([number]) + plain[at + 1 :]
        if magic == 2:
            data = seal(data, length=False, crc=True)
        found = {one.code for one in records.check(data).findings}
        unknown = (
            {"codec-unknown"} if number >= len(CODECS) else {"codec-not-allowed"} if number >= len(known) else set()
        )
        assert found & {"codec-unknown", "codec-not-allowed"} == unknown, number
    for codec in CODECS:
        if codec in known:
            [batch] = records.decode(records.encode_batch(RecordBatch(0, 0, [RECORD], magic=magic, compression=codec)))
            assert batch.compression == codec
        else:
            with pytest.raises(EncodeError, match=f"cannot carry {codec}"):
                records.encode_batch(RecordBatch(0, 0, [RECORD], magic=magic, compression=codec))


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        (RecordBatch(0, 0, [RECORD], magic=3), "magic 3 does not exist"),
        (RecordBatch(0, 0, [RECORD], compression="lzo"), "compression 'lzo' does not exist"),  # type: ignore[arg-type]
        (RecordBatch(0, 0, [RECORD], timestamp_type="none"), "timestamp type 'none' does not exist in magic 2"),
        (RecordBatch(0, 0, [RECORD], producer_epoch=2**15), "a field does not fit its width"),
        (RecordBatch(2**63, 2**63, []), "a field does not fit its width"),
        (RecordBatch(0, 2**31, []), "a field does not fit its width"),
        (RecordBatch(0, 0, [Record(2**31, 1, None, None)]), r"records\[0\].offset is 2147483648"),
        (RecordBatch(0, 0, [Record(0, 1, "k", None)]), r"records\[0\].key is str; it must be bytes or None"),  # type: ignore[arg-type]
        (RecordBatch(0, 0, [Record(0, 1, None, None, ((None, b""),))]), r"records\[0\].headers key is NoneType"),  # type: ignore[arg-type]
        (RecordBatch(0, 0, [Record(0, 1, None, None, (b"h",))]), r"records\[0\].headers are not pairs"),
        (RecordBatch(0, 0, [(0, 1, None, None)]), r"records\[0\] is tuple; it must be a Record"),  # type: ignore[list-item]
        (RecordBatch(0, 0, [Record(0, 1, None, None, ((b"h", None),))], magic=1), "magic 1 cannot carry headers"),
        (RecordBatch(0, 0, [RECORD], magic=0, compression="zstd"), "magic 0 cannot carry zstd"),
        (RecordBatch(0, 0, [RECORD], magic=1, transactional=True), "magic 1 cannot carry a transaction"),
        (RecordBatch(0, 1, [RECORD, RECORD], magic=1), "a message of magic 1 has exactly one record; this one has 2"),
        (RecordBatch(0, 5, [RECORD], magic=0), "the last record's offset is 0, the batch's last offset is 5"),
        (
            RecordBatch(0, 5, [RECORD], magic=1, compression="gzip"),
            "the last record's offset is 0, the batch's last offset is 5",
        ),
        (RecordBatch(0, 0, [], magic=1, compression="gzip"), "has at least one record; this one has 0"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_one_sentence(batch: RecordBatch, sentence: str) -> None:
    with pytest.raises(EncodeError, match=sentence):
        records.encode_batch(batch)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"offset": 2**63}, "offset is 9223372036854775808; it must fit 64 bits"),
        ({"timestamp": -(2**63) - 1}, "timestamp is -9223372036854775809; it must fit 64 bits"),
        ({"attributes": 256}, "attributes are 256; they must fit a byte"),
    ],
)
def test_a_record_refuses_what_its_fields_cannot_hold(fields: dict[str, int], sentence: str) -> None:
    with pytest.raises(EncodeError, match=sentence):
        Record(**{"offset": 0, "timestamp": 0, "key": None, "value": None} | fields)


def test_a_record_is_a_value() -> None:
    record = Record(3, None, b"k", None, ((b"h", b"x"),), 1)
    assert record == pickle.loads(pickle.dumps(record))
    assert record != Record(3, -1, b"k", None, ((b"h", b"x"),), 1)
    assert (
        repr(record) == "Record(offset=3, timestamp=None, key=b'k', value=None, headers=((b'h', b'x'),), attributes=1)"
    )
    with pytest.raises(TypeError, match="unhashable"):
        hash(record)


def test_any_buffer_and_any_sequence_of_headers_is_written_as_bytes_are() -> None:
    odd = Record(0, 1, bytearray(b"k"), memoryview(b"v"), [[bytearray(b"h"), None]])  # type: ignore[arg-type, list-item]
    same = Record(0, 1, b"k", b"v", ((b"h", None),))
    assert records.encode_batch(RecordBatch(0, 0, [odd])) == records.encode_batch(RecordBatch(0, 0, [same]))


def test_a_record_that_changes_while_another_is_copied_is_written_as_it_was() -> None:
    first = Record(0, 1, b"k", None, ((b"h", None),))

    def headers() -> Iterator[tuple[bytes, None]]:
        first.headers = [(b"much longer than before", None)]
        yield b"h", None

    data = records.encode_batch(RecordBatch(0, 1, [first, Record(1, 1, None, None, headers())]))  # type: ignore[arg-type]
    assert [record.headers for record in records.decode(data)[0].records] == [((b"h", None),), ((b"h", None),)]


def test_a_list_that_shrinks_while_it_is_written_is_refused() -> None:
    rows = [Record(0, 1, b"k", None), Record(1, 1, None, None)]

    def headers() -> Iterator[tuple[bytes, None]]:
        rows.pop()
        yield b"h", None

    rows[1].headers = headers()  # type: ignore[assignment]
    with pytest.raises(EncodeError, match="records has 1 entries, 2 were written"):
        records.encode_batch(RecordBatch(0, 1, rows))


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"base_ofset": "0"}, r"batches\[0\].base_ofset is not a field of a batch"),
        ({"base_offset": "ten"}, r"batches\[0\].base_offset is 'ten'; it must be a decimal integer"),
        ({"records": [{}]}, r"batches\[0\].records\[0\] is not a record: 'offset'"),
        ({"records": [{"offset": "0", "key": "xy"}]}, r"records\[0\].key is 'xy'; it must be hex or null"),
        ({"records": [{"offset": "0", "headers": [[7, None]]}]}, r"headers\[0\] has key 7"),
    ],
)
def test_a_wrong_json_form_is_refused_with_its_place(form: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        records.from_json([form])


@pytest.mark.parametrize(
    ("offsets", "last"),
    [([3, 4, 7], 7), ([0, 1], 1), ([1 << 53, 5], 0), ([-3, 2], 2), ([2**63 - 1], 2**63 - 1), ([9, 4, 6], 6)],
)
def test_offsets_of_a_wrapper_of_magic_1_come_back(offsets: list[int], last: int) -> None:
    contents = [Record(offset, 1, None, b"v") for offset in offsets]
    batch = RecordBatch(offsets[0], last, contents, magic=1, compression="snappy")
    (read,) = records.decode(records.encode_batch(batch))
    assert [record.offset for record in read.records] == offsets
    assert read.last_offset == last


def test_a_compacted_empty_batch_has_no_payload_and_keeps_its_offsets() -> None:
    batch = RecordBatch(10, 14, producer_id=5, producer_epoch=0, base_sequence=3)
    data = records.encode_batch(batch)
    assert len(data) == 61
    assert records.decode(data)[0].next_offset == 15


@pytest.mark.parametrize("codec", records.CODECS[1:])
def test_an_empty_batch_may_be_compressed(codec: records.Codec) -> None:
    batch = RecordBatch(10, 14, compression=codec)
    reading = records.read(records.encode_batch(batch))
    assert reading.findings == []
    assert records.to_json(reading.batches) == records.to_json([batch])
