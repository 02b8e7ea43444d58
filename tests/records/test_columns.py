"""Columns hold what objects hold: over the suite, over every codec, over buffers of every kind."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from kfuzz import records
from kfuzz.errors import RecordsError
from kfuzz.records import Record, RecordBatch
from kfuzz.vectors import load_suite

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


def test_the_suite_reads_the_same_in_columns_and_is_refused_with_the_same_finding() -> None:
    for vector in load_suite():
        if len(vector.data) > 1 << 20:
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
