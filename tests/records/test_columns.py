"""Columns hold what objects hold: over the suite, over every codec, over buffers of every kind."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

import pyarrow as pa
import pytest
from conftest import counts

from kfuzz import records
from kfuzz.errors import RecordsError
from kfuzz.records import Record, RecordBatch
from kfuzz.vectors import load_suite
from kfuzz.wire.columns.reader import Columns

Row = tuple[int, int | None, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]


def rows_of(data: Any) -> list[Row]:
    return [
        (record.offset, record.timestamp, i, record.key, record.value, tuple(record.headers))
        for i, batch in enumerate(records.decode(data))
        for record in batch.records
    ]


def rows_in(columns: pa.RecordBatch) -> list[Row]:
    columns.validate(full=True)
    return [
        (
            row["offset"],
            row["timestamp"],
            row["batch"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in columns.to_pylist()
    ]


def mixed(offset: int, rng: random.Random, **fields: Any) -> bytes:
    def some(most: int) -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.randrange(most))

    rows = [
        Record(offset + i, rng.randrange(10**9), some(30), some(200), tuple((b"h" * k, some(20)) for k in range(i % 3)))
        for i in range(rng.randrange(1, 200))
    ]
    if fields.get("magic") == 0:
        rows = [Record(row.offset, None, row.key, row.value) for row in rows]
    elif fields.get("magic") == 1:
        rows = [Record(row.offset, row.timestamp, row.key, row.value) for row in rows]
    return records.encode_batch(RecordBatch(offset, rows[-1].offset, rows, **fields))


def test_uncompressed_batches_around_a_message_of_an_older_magic_keep_their_own_bytes() -> None:
    """Each refers to the buffer that it stands in, whoever added one in between."""
    for middle in ({"magic": 1}, {"magic": 0}, {"compression": "gzip"}, {"magic": 1, "compression": "snappy"}):
        parts: list[bytes] = []
        for i in range(4):
            record = Record(i, None if middle.get("magic") == 0 and i % 2 else 1, b"k", bytes([65 + i]) * 20)
            fields: Any = middle if i % 2 else {}
            parts.append(records.encode_batch(RecordBatch(i, i, [record], **fields)))
        data = b"".join(parts)
        assert rows_in(records.columns(data)) == rows_of(data)


@pytest.mark.parametrize("count", [1, 15, 63, 64, 65, 128, 300])
def test_every_length_around_what_a_view_holds(count: int) -> None:
    rng = random.Random(count)
    parts = []
    for at in range(0, 3 * count, count):
        rows = [
            Record(at + i, i, (None, bytes(range(1, 1 + i % 17)))[i % 5 > 0], rng.randbytes(rng.randrange(30)))
            for i in range(count)
        ]
        rows[0].headers = [(rng.randbytes(n), (None, rng.randbytes(n))[n % 4 > 0]) for n in range(rng.randrange(90))]
        parts.append(records.encode_batch(RecordBatch(at, at + count - 1, rows)))
    data = b"".join(parts)
    assert rows_in(records.columns(data)) == rows_of(data)


@pytest.mark.parametrize("bytes_max", counts(1 << 13, 1 << 20))
def test_the_suite_reads_the_same_in_columns_and_is_refused_with_the_same_finding(bytes_max: int) -> None:
    for vector in load_suite():
        if len(vector.data) > bytes_max:
            continue
        fatal = records.read(vector.data).fatal
        if fatal is None:
            assert rows_in(records.columns(vector.data)) == rows_of(vector.data), vector.id
            continue
        with pytest.raises(RecordsError) as caught:
            records.columns(vector.data)
        assert caught.value.finding == fatal, vector.id


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batches_of_every_codec_and_magic_in_one_buffer_read_the_same_in_columns(kind: type) -> None:
    rng = random.Random(11)
    parts = [mixed(1000 * i, rng, compression=records.CODECS[i % 5]) for i in range(10)]
    parts += [mixed(20_000, rng, magic=0, compression="gzip"), mixed(30_000, rng, magic=1, compression="lz4")]
    parts += [mixed(40_000, rng, timestamp_type="log-append", max_timestamp=77), b"partial tail"]
    data = kind(b"".join(parts))
    columns = records.columns(data)
    assert rows_in(columns) == rows_of(data)
    assert columns.column("timestamp").null_count == sum(1 for row in rows_of(data) if row[1] is None) > 0


def test_long_values_stay_where_they_stand() -> None:
    data = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v" * 1000)]))
    buffers = records.columns(data).column("value").buffers()
    assert any(buffer is not None and buffer.size == len(data) for buffer in buffers)


def test_no_record_makes_empty_columns() -> None:
    columns = records.columns(b"")
    assert columns.num_rows == 0
    assert rows_in(columns) == []


def test_a_column_stays_when_its_table_is_gone_and_lets_the_bytes_go_at_last() -> None:
    data = mixed(0, random.Random(3))
    rows = rows_of(data)
    held = sys.getrefcount(data)
    table = records.columns(data)
    assert sys.getrefcount(data) > held
    headers = table.column("headers")
    names = headers.values.field(0)
    del table, headers
    gc.collect()
    noise = [bytes(len(data)) for _ in range(50)]
    assert names.to_pylist() == [name for row in rows for name, _ in row[5]]
    del names, noise
    gc.collect()
    assert sys.getrefcount(data) == held


def test_columns_are_handed_over_once() -> None:
    columns = Columns(0)
    schema = records.columns(b"").schema
    # Whatever is handed over has to be taken, for nobody else will let go of it.
    assert pa.RecordBatch._import_from_c(columns.export(), schema).num_rows == 0
    with pytest.raises(ValueError, match="once"):
        columns.export()
