"""Writes columns, and reads batches to columns, that end where memory ends; a read beyond kills it.

Run by test_encode_columns.py.
"""

from __future__ import annotations

import pyarrow as pa
from guarded import Guarded

from kfuzz import records


def buffer(pages: int, data: bytes) -> pa.Buffer:
    """``data`` right before a page that may not be touched."""
    return pa.py_buffer(Guarded(pages).put(data))


def main() -> None:
    rows = 0
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        for size in range(140):
            some = [bytes(size), None], [None, bytes(size)], [bytes(size)], [b"x" * size, b"", None, b"y"]
            for values in (*some, [bytes(size)] * 150, [None, *[bytes(size)] * 7]):
                buffers = [None if part is None else part.to_pybytes() for part in pa.array(values, kind).buffers()]
                # Arrow makes buffers larger than they must be.
                buffers[0] = buffers[0] and buffers[0][: (len(values) + 7) // 8]
                guarded = [None if part is None else buffer(6, part) for part in buffers]
                column = pa.Array.from_buffers(kind, len(values), guarded)
                [batch] = records.decode(records.encode_columns(pa.RecordBatch.from_arrays([column], names=["value"])))
                assert [record.value for record in batch.records] == values
                rows += len(values)
    for size in range(40):
        data = records.encode_batch(records.RecordBatch(0, 0, [records.Record(0, 0, None, bytes(size), [(b"", None)])]))
        # Also where the last value is the last of all: without headers, but for their count.
        for last in (data, records.encode_batch(records.RecordBatch(0, 0, [records.Record(0, 0, b"", bytes(size))]))):
            guarded_data = Guarded(1).put(last)
            [row] = records.columns(guarded_data).to_pylist()
            assert row["value"] == bytes(size)
            rows += 1
    times = [None, *[7] * 7]
    guarded = [buffer(1, b"\xfe"), buffer(1, b"".join((time or 0).to_bytes(8, "little") for time in times))]
    column = pa.Array.from_buffers(pa.int64(), len(times), guarded)
    [batch] = records.decode(records.encode_columns(pa.RecordBatch.from_arrays([column], names=["timestamp"])))
    assert [record.timestamp for record in batch.records] == [-1, *times[1:]]
    print(rows)


if __name__ == "__main__":
    main()
