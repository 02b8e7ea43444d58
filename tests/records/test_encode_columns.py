"""Columns to record batches: the bytes that the writer makes of the same records, or one clear error."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from guarded import printed
from hypothesis import assume, given
from hypothesis import strategies as st

from kfuzz import records
from kfuzz.errors import EncodeError, UsageError
from kfuzz.records import CODECS, Record, RecordBatch, arrow
from kfuzz.wire.columns.writer import ColumnWriter

HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
KINDS = [pa.binary(), pa.large_binary(), pa.binary_view()]


def content(rng: random.Random, size: int = 300) -> bytes | None:
    return None if rng.random() < 0.2 else rng.randbytes(rng.randrange(size))


def batches_of(seed: int, counts: tuple[int, ...] = (1, 40, 3, 200)) -> list[RecordBatch]:
    """Batches of which each goes on where the one before ended, with everything that a column can say."""
    rng = random.Random(seed)
    made = []
    offset = rng.randrange(1 << 40)
    for count in counts:
        at = [offset + i for i in range(count)]
        rows = [
            Record(
                i,
                rng.randrange(1 << 41) if rng.random() < 0.1 else 1_700_000_000_000 + rng.randrange(40_000),
                content(rng, 20),
                content(rng),
                [(rng.randbytes(rng.randrange(70)), content(rng, 90)) for _ in range(rng.choice((0, 0, 0, 1, 2, 70)))],
            )
            for i in at
        ]
        made.append(RecordBatch(offset, at[-1], partition_leader_epoch=3, records=rows))
        offset = at[-1] + 1
    return made


def table_of(batches: list[RecordBatch], kind: pa.DataType | None = None) -> pa.RecordBatch:
    rows = [record for batch in batches for record in batch.records]
    kind = kind or pa.binary()
    return pa.record_batch(
        {
            "offset": pa.array([row.offset for row in rows], pa.int64()),
            "timestamp": pa.array([row.timestamp for row in rows], pa.int64()),
            "batch": pa.array([i for i, batch in enumerate(batches) for _ in batch.records], pa.int32()),
            "key": pa.array([row.key for row in rows], kind),
            "value": pa.array([row.value for row in rows], kind),
            "headers": pa.array([[{"key": k, "value": v} for k, v in row.headers] for row in rows], HEADERS),
        }
    )


LIKE = RecordBatch(0, 0, partition_leader_epoch=3)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_the_bytes_are_those_of_the_writer(kind: pa.DataType, seed: int) -> None:
    batches = batches_of(seed)
    assert records.encode_columns(table_of(batches, kind), like=LIKE) == records.encode(batches)


@pytest.fixture(params=[True, False], ids=["wide", "narrow"])
def registers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways that ordinary rows are written in."""
    monkeypatch.setattr(arrow, "ColumnWriter", partial(ColumnWriter, wide=request.param))


def ordinary(rng: random.Random, count: int) -> list[Record]:
    """Rows as most are, which are written in blocks."""
    return [
        Record(
            i,
            1_700_000_000_000 + 20 * i + rng.randrange(300),
            content(rng, 80),
            content(rng, 700),
            [(rng.randbytes(5), content(rng, 70)) for _ in range(rng.choice((0, 0, 0, 0, 1, 3)))],
        )
        for i in range(count)
    ]


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_blocks_of_ordinary_rows_have_the_bytes_of_the_writer(kind: pa.DataType, count: int) -> None:
    rng = random.Random(count)
    rows = ordinary(rng, count)
    whole = table_of([RecordBatch(0, count - 1, rows)], kind)
    for first in (0, 1, 5, 8, 62):
        some = rows[first:]
        if some:
            batch = RecordBatch(first, count - 1, some, partition_leader_epoch=3)
            assert records.encode_columns(whole.slice(first), like=LIKE) == records.encode([batch])


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("name", ["timestamp", "offset", "key", "value", "headers"])
@pytest.mark.parametrize(
    "position", [256, *(pytest.param(one, marks=pytest.mark.full) for one in (200, 255, 319, 399))]
)
def test_a_row_that_is_not_ordinary_does_not_change_its_neighbours(name: str, position: int) -> None:
    """Numbers and lengths at, and on both sides of, each width that a varint can have."""
    rng = random.Random(position)
    for bits in (6, 7, 13, 14, 20, 21, 24, 25, 26, 27, 28, 31 if name == "offset" else 34):
        if name in ("key", "value", "headers") and bits > 21 and (bits, position) != (25, 256):
            continue
        for more in (-1, 0, 1):
            rows = ordinary(rng, 400)
            number = (1 << bits - 1) + more
            if name == "offset":
                for i in range(position, len(rows)):
                    rows[i].offset = min(number, (1 << 31) - 400) + i
            elif name == "timestamp":
                rows[position].timestamp = (rows[0].timestamp or 0) + rng.choice((number, -number))
            elif name == "headers":
                rows[position].headers = [(b"h", bytes(number)), (bytes(number), None)]
            else:
                setattr(rows[position], name, bytes(number))
            batch = RecordBatch(0, rows[-1].offset, rows, partition_leader_epoch=3)
            assert records.encode_columns(table_of([batch]), like=LIKE) == records.encode([batch]), (bits, more)


@pytest.mark.usefixtures("registers")
def test_columns_that_are_not_there_are_written_in_blocks_too() -> None:
    rows = ordinary(random.Random(1), 200)
    whole = table_of([RecordBatch(0, 199, rows)]).drop_columns(["batch"])
    for name, missing in (("key", None), ("value", None), ("headers", ()), ("timestamp", -1)):
        others = [replace_field(row, name, missing) for row in rows]
        batch = RecordBatch(0, 199, others, partition_leader_epoch=3)
        assert records.encode_columns(whole.drop_columns([name]), like=LIKE) == records.encode([batch])
    assert records.encode_columns(whole.drop_columns(["offset"]), like=LIKE) == records.encode_columns(whole, like=LIKE)


def replace_field(record: Record, name: str, value: Any) -> Record:
    made = Record(record.offset, record.timestamp, record.key, record.value, record.headers)
    setattr(made, name, value)
    return made


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_is_bytes(kind: pa.DataType) -> None:
    table = pa.record_batch({"value": pa.array(["eins", None, "zwölf ist länger als eine Sicht"], kind)})
    [batch] = records.decode(records.encode_columns(table))
    assert [record.value for record in batch.records] == [
        b"eins",
        None,
        "zwölf ist länger als eine Sicht".encode(),
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_encode_columns_writes_the_tables_of_columns_unchanged(codec: Any) -> None:
    batches = [replace(batch, compression=codec) for batch in batches_of(7)]
    data = records.encode(batches)
    again = records.encode_columns(records.columns(data), like=replace(LIKE, compression=codec))
    assert again == data


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_slice_of_a_table_is_written_as_its_own_rows(kind: pa.DataType) -> None:
    """Arrow keeps the whole buffers of a slice and says where it begins, down to the bit of a null."""
    batches = batches_of(3, (50,))
    whole = table_of(batches, kind)
    for first, count in ((0, 50), (1, 49), (7, 9), (8, 1), (13, 30), (49, 1)):
        rows = batches[0].records[first : first + count]
        wanted = RecordBatch(rows[0].offset, rows[-1].offset, partition_leader_epoch=3, records=rows)
        assert records.encode_columns(whole.slice(first, count), like=LIKE) == records.encode([wanted])


def test_a_table_of_chunks_is_written_as_one() -> None:
    batches = batches_of(4)
    whole = table_of(batches)
    table = pa.Table.from_batches([whole.slice(0, 17), whole.slice(17, 60), whole.slice(77)])
    assert records.encode_columns(table, like=LIKE) == records.encode(batches)


def test_no_rows_are_no_bytes() -> None:
    assert records.encode_columns(table_of([])) == b""
    assert records.encode_columns(pa.table({"value": pa.chunked_array([], pa.binary())})) == b""


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_fields_that_are_missing_have_their_defaults(codec: Any) -> None:
    like = RecordBatch(100, 100, compression=codec, producer_id=7, producer_epoch=1, base_sequence=(1 << 31) - 2)
    table = pa.record_batch({"value": pa.array([b"a", b"b", None, b"d", b"e"])})
    batches = records.decode(records.encode_columns(table, like=like, batch_records=2))
    assert [[record.offset for record in batch.records] for batch in batches] == [[100, 101], [102, 103], [104]]
    assert [batch.base_sequence for batch in batches] == [(1 << 31) - 2, 0, 2]
    assert [batch.producer_id for batch in batches] == [7, 7, 7]
    rows = [record for batch in batches for record in batch.records]
    assert [(row.key, row.timestamp, row.headers) for row in rows] == [(None, -1, ())] * 5
    assert [row.value for row in rows] == [b"a", b"b", None, b"d", b"e"]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_offsets_keep_their_gaps(codec: Any) -> None:
    table = pa.record_batch({"offset": pa.array([5, 9, 30]), "value": pa.array([b"a", b"b", b"c"])})
    [batch] = records.decode(records.encode_columns(table, like=replace(LIKE, compression=codec)))
    assert (batch.base_offset, batch.last_offset) == (5, 30)
    assert [record.offset for record in batch.records] == [5, 9, 30]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_template_says_what_columns_cannot(codec: Any) -> None:
    like = RecordBatch(
        0, 0, compression=codec, timestamp_type="log-append", max_timestamp=5000, transactional=True,
        producer_id=9, producer_epoch=2, base_sequence=0, delete_horizon=77,
    )  # fmt: skip
    table = pa.record_batch({"timestamp": pa.array([80, 90]), "key": pa.array([b"k", b"l"])})
    [batch] = records.decode(records.encode_columns(table, like=like))
    wanted = ("log-append", 5000, True, 9, 2, 0, 77)
    assert (
        batch.timestamp_type, batch.max_timestamp, batch.transactional, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, batch.delete_horizon,
    ) == wanted  # fmt: skip


def test_null_timestamps_and_null_header_lists_are_none_of_them() -> None:
    table = pa.record_batch(
        {
            "timestamp": pa.array([None, 5], pa.timestamp("ms")),
            "headers": pa.array([None, [{"key": b"k", "value": None}]], HEADERS),
        }
    )
    [batch] = records.decode(records.encode_columns(table))
    assert [(record.timestamp, record.headers) for record in batch.records] == [(-1, ()), (5, ((b"k", None),))]


@pytest.mark.parametrize("body", [62, 63, 64, 8190, 8191, 8192, 1 << 20, 1 << 21])
def test_a_record_with_headers_has_the_length_that_its_varint_needs(body: int) -> None:
    """Its length is known after its headers; the record moves where the length takes another number of bytes."""
    value = bytes(body % 251 for _ in range(body - 12))
    batch = RecordBatch(0, 0, partition_leader_epoch=3, records=[Record(0, 0, None, value, [(b"k", b"")])])
    assert records.encode_columns(table_of([batch]), like=LIKE) == records.encode([batch])


BYTES = pa.array([b"a"])


@pytest.mark.parametrize(
    ("table", "options", "says"),
    [
        ({"values": BYTES}, {}, "column 'values' is unknown"),
        ({"value": pa.array([1])}, {}, "column value is int64; it must be binary"),
        ({"value": pa.array([[b"a"]])}, {}, "column value is list"),
        ({"offset": pa.array([1.0])}, {}, "column offset is double; it must be int64"),
        ({"offset": pa.array([None], pa.int64())}, {}, "column offset has nulls"),
        ({"timestamp": pa.array([1], pa.timestamp("us"))}, {}, "column timestamp is timestamp[us]"),
        ({"batch": pa.array([None], pa.int32())}, {}, "column batch has nulls"),
        ({"headers": BYTES}, {}, "column headers is binary; it must be a list of structs"),
        ({"headers": pa.array([[{"key": b"k"}]])}, {}, "its structs must have a key and a value"),
        ({"headers": pa.array([[{"key": 1, "value": b""}]])}, {}, "column headers.key is int64"),
        ({"value": BYTES}, {"batch_records": 0}, "batch_records is 0; it must be 1 or more"),
        ({"value": BYTES, "batch": pa.array([0])}, {"batch_records": 5}, "leave one of them out"),
        ({"value": BYTES}, {"batch_records": 1.5}, "batch_records is 1.5; it must be 1 or more"),
        ({"value": BYTES}, {"like": RecordBatch(0, 0, magic=1)}, "the template has magic 1"),
        ({"value": BYTES}, {"like": RecordBatch(0, 0, compression="gzip"), "level": 99}, "no compression level 99"),
        ({"offset": pa.array([1], pa.timestamp("ms"))}, {}, "column offset is timestamp[ms]; it must be int64"),
        ({"batch": pa.array([[1]])}, {}, "column batch is list"),
        ({"batch": pa.array(["a"]).dictionary_encode()}, {}, "column batch is dictionary"),
    ],
)  # fmt: skip
def test_other_columns_are_refused_in_a_sentence(
    table: dict[str, pa.Array], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError) as refused:
        records.encode_columns(pa.record_batch(table), **options)
    assert says in str(refused.value)


@pytest.mark.parametrize("other", [None, [1], {"value": BYTES}, b"bytes"])
def test_a_value_that_is_no_table_is_refused_in_one_sentence(other: Any) -> None:
    with pytest.raises(UsageError, match=r"pyarrow\.RecordBatch or pyarrow\.Table"):
        records.encode_columns(other)


def test_a_column_that_is_there_twice_is_refused() -> None:
    table = pa.RecordBatch.from_arrays([BYTES, BYTES], names=["key", "key"])
    for columns in (table, pa.Table.from_batches([table])):
        with pytest.raises(UsageError, match="'key' occurs twice"):
            records.encode_columns(columns)


@pytest.mark.parametrize(
    ("like", "says"),
    [
        (RecordBatch(0, 0, producer_epoch=99_999), "does not fit its width"),
        (RecordBatch(0, 0, base_timestamp=1 << 70), "does not fit its width"),
        (RecordBatch(0, 0, timestamp_type="none"), "timestamp type 'none' does not exist in magic 2"),
        (RecordBatch(0, 0, compression="brotli"), "compression 'brotli' does not exist"),  # type: ignore[arg-type]
    ],
)
def test_a_template_that_cannot_be_written_is_an_encode_error(like: RecordBatch, says: str) -> None:
    for codec in (like.compression, "gzip") if like.compression == "none" else (like.compression,):
        with pytest.raises(EncodeError, match=says):
            records.encode_columns(pa.record_batch({"value": BYTES}), like=replace(like, compression=codec))


def test_the_templates_own_last_offset_does_not_count() -> None:
    [batch] = records.decode(records.encode_columns(pa.record_batch({"value": BYTES}), like=RecordBatch(7, 1 << 40)))
    assert (batch.base_offset, batch.last_offset) == (7, 7)


@pytest.mark.parametrize("codec", ["none", "snappy"])
@pytest.mark.parametrize("offsets", [[0, 1 << 31], [5, 5 - (1 << 31) - 1]])
def test_an_offset_too_far_from_its_base_is_an_encode_error(codec: Any, offsets: list[int]) -> None:
    table = pa.record_batch({"offset": pa.array(offsets)})
    with pytest.raises(EncodeError, match="row 1 of the columns does not fit a batch"):
        records.encode_columns(table, like=replace(LIKE, compression=codec))


def test_a_header_without_a_key_is_an_encode_error() -> None:
    table = pa.record_batch({"headers": pa.array([[], [{"key": None, "value": b""}]], HEADERS)})
    with pytest.raises(EncodeError, match="row 1 of the columns is not valid Arrow data"):
        records.encode_columns(table)


# ------------------------------------------------------------------------------------ Arrow data that is not valid


def damaged(kind: pa.DataType, place: int, raw: bytes) -> pa.RecordBatch:
    """Three rows of 20 bytes whose places have ``raw`` at ``place``; Arrow itself looks at the first and the last."""
    valid, places, *data = pa.array([b"x" * 20] * 3, kind).buffers()
    changed = bytearray(places)
    changed[place : place + len(raw)] = raw
    column = pa.Array.from_buffers(kind, 3, [valid, pa.py_buffer(bytes(changed)), *data])
    return pa.RecordBatch.from_arrays([column], names=["value"])


def le(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little", signed=True)


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_places_are_refused_if_arrow_finds_them_not_valid(codec: Any, kind: pa.DataType) -> None:
    width = 8 if kind == pa.large_binary() else 4
    # The second number of a view is the value's beginning, which no writer needs.
    places = [place for place in range(0, 48, 4) if place % 16 != 4] if kind == pa.binary_view() else [width, 2 * width]
    most = 1 << 8 * width - 1

    @given(st.sampled_from(places), st.integers(-70, 70) | st.integers(-most, most - 1))
    def check(place: int, value: int) -> None:
        # A short value lies in the view itself, and Arrow alone wants zeros after it.
        assume(kind != pa.binary_view() or place % 16 or not 0 <= value <= 12)
        table = damaged(kind, place, le(value, width))
        try:
            table.validate(full=True)
        except pa.ArrowInvalid:
            with pytest.raises(EncodeError, match=r"row [012] of the columns is not valid Arrow data"):
                records.encode_columns(table, like=replace(LIKE, compression=codec))
        else:
            data = records.encode_columns(table, like=replace(LIKE, compression=codec))
            assert [record.value for record in records.iterate(data)] == table["value"].to_pylist()

    check()


LONGER = (0, 1000, 10, 20)


@pytest.mark.parametrize("headers", [(), (b"h",)])
def test_a_row_that_is_longer_than_all_rows_together_is_an_encode_error(headers: tuple[bytes, ...]) -> None:
    """The room for the rows is what lies between the first and the last end."""
    ends = b"".join(le(end, 4) for end in LONGER)
    values = pa.Array.from_buffers(pa.binary(), 3, [None, pa.py_buffer(ends), pa.py_buffer(bytes(1000))])
    lists = pa.array([[{"key": key, "value": b"v"} for key in headers]] * 3, HEADERS)
    table = pa.RecordBatch.from_arrays([values, lists], names=["value", "headers"])
    with pytest.raises(EncodeError, match="row 0 of the columns is not valid Arrow data"):
        records.encode_columns(table)


def test_a_header_that_is_longer_than_all_headers_together_is_an_encode_error() -> None:
    ends = b"".join(le(end, 4) for end in LONGER)
    values = pa.Array.from_buffers(pa.binary(), 3, [None, pa.py_buffer(ends), pa.py_buffer(bytes(1000))])
    inner = pa.StructArray.from_arrays([pa.array([b"k"] * 3), values], names=["key", "value"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), inner)
    with pytest.raises(EncodeError, match="row 0 of the columns is not valid Arrow data"):
        records.encode_columns(pa.RecordBatch.from_arrays([lists], names=["headers"]))


def test_header_ends_that_go_back_and_forth_are_an_encode_error() -> None:
    _, ends, *_ = pa.array([[{"key": b"k", "value": b"v"}]] * 3, HEADERS).buffers()
    inner = pa.array([{"key": b"k", "value": b"v"}] * 3, HEADERS.value_type)
    for place, value in ((1, -1), (1, 5), (2, 0), (2, (1 << 31) - 1)):
        changed = bytearray(ends)
        changed[4 * place : 4 * place + 4] = le(value, 4)
        column = pa.Array.from_buffers(HEADERS, 3, [None, pa.py_buffer(bytes(changed))], children=[inner])
        with pytest.raises(EncodeError, match="not valid Arrow data"):
            records.encode_columns(pa.RecordBatch.from_arrays([column], names=["headers"]))


def test_null_rows_of_lists_that_are_not_valid_are_no_headers() -> None:
    """Of a null nothing is looked at, neither by us nor by pyarrow."""
    inner = pa.array([{"key": b"k", "value": b"v"}] * 3, HEADERS.value_type)
    ends = b"".join(le(end, 4) for end in (0, 1, 1 << 30, -5, 3))
    column = pa.Array.from_buffers(HEADERS, 4, [pa.py_buffer(b"\x09"), pa.py_buffer(ends)], children=[inner])
    table = pa.RecordBatch.from_arrays([column], names=["headers"])
    with pytest.raises(EncodeError, match="row 3 of the columns is not valid"):
        records.encode_columns(table)
    [batch] = records.decode(records.encode_columns(table.slice(0, 3)))
    assert [record.headers for record in batch.records] == [((b"k", b"v"),), (), ()]


def test_no_byte_is_read_beyond_a_columns_own() -> None:
    """Copies are longer than what they copy where that is there to read, and only there."""
    assert printed(Path(__file__).with_name("guarded_columns.py")) == f"{3 * 140 * 167 + 40 * 2}\n"
