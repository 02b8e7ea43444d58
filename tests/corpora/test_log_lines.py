"""Records as lines of JSON: what Python's own JSON and UTF-8 say, for any bytes and any columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfuzz import logs, records, strategies
from kfuzz.errors import RecordsError, UsageError
from kfuzz.logs import printing, reading
from kfuzz.logs.lines import Lines
from kfuzz.logs.printing import Request, json_lines
from kfuzz.records import Record, RecordBatch
from kfuzz.wire.io.layout import HEADER_AT

# Texts and bytes around what the fast loop looks at: eight bytes at a time, with characters of every length.
PIECES = st.sampled_from([b"a", b'"', b"\\", b"\n", b"\0", b"\x1f", b"\x7f", b"12345678", "é€😀".encode(), b"\xff"])


def as_json(*values: bytes | None) -> list[bytes]:
    """Each value as ``Lines`` writes it."""
    table = pa.record_batch({"x": pa.array(values, pa.binary())})
    lines = Lines(table.schema)
    return [line[len(b'{"x":') : -1] for line in bytes(lines.of(table)[0]).splitlines()]


def plain(data: bytes | None) -> Any:
    """The value that a reader of JSON must see."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


@given(st.binary(max_size=40) | st.text(max_size=30).map(str.encode) | st.lists(PIECES, max_size=20).map(b"".join))
def test_a_value_is_text_if_python_can_decode_it(data: bytes) -> None:
    assert list(map(json.loads, as_json(data))) == [plain(data)]


def test_every_pair_of_bytes_after_every_beginning_is_judged_as_python_does() -> None:
    for start in (b"", b"\xe0", b"\xe1\x80", b"\xed", b"\xf0", b"\xf0\x90", b"\xf4", b"\xf4\x8f\x80", b"1234567"):
        lasts = (0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)
        values = [start + bytes((first, last)) for first in range(256) for last in lasts]
        assert list(map(json.loads, as_json(*values))) == list(map(plain, values))


def write(folder: Path, *batches: RecordBatch, name: str = "00000000000000000000.log") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(records.encode(batches))
    return folder


def printed(path: Path, **options: Any) -> list[Any]:
    return [json.loads(line) for text in json_lines(Request(path, **options)) for line in bytes(text).splitlines()]


def row(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": plain(record.key),
        "value": plain(record.value),
        "headers": [[plain(key), plain(value)] for key, value in record.headers],
    }


COLUMNS = ("offset", "timestamp", "key", "value", "headers")


@given(batches=st.lists(strategies.batches(), min_size=1, max_size=2))
def test_the_lines_hold_what_decode_gives(tmp_path_factory: pytest.TempPathFactory, batches: list[RecordBatch]) -> None:
    folder = write(tmp_path_factory.mktemp("log") / "orders-0", *batches)
    wanted = [row(record) for batch in records.decode(records.encode(batches)) for record in batch.records]
    assert printed(folder, columns=COLUMNS, isolation="log") == wanted


def many(first: int, count: int, *, magic: int = 2) -> RecordBatch:
    made = [Record(i, 1_700_000_000_000 + i, b"k%d" % (i % 3), b"v%d" % i) for i in range(first, first + count)]
    return RecordBatch(first, first + count - 1, made, magic=magic)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two partitions of a topic; the first has two segments of two batches."""
    first = tmp_path / "orders-0"
    write(first, many(0, 50), many(50, 50))
    write(first, many(100, 50), many(150, 50), name="00000000000000000100.log")
    write(tmp_path / "orders-1", many(0, 10))
    return tmp_path


def offsets(lines: Sequence[Any]) -> list[tuple[int, int]]:
    return [(line["partition"], line["offset"]) for line in lines]


def test_the_last_records_of_each_partition_are_found_from_its_end(folder: Path) -> None:
    assert offsets(printed(folder, tail=3)) == [(0, 197), (0, 198), (0, 199), (1, 7), (1, 8), (1, 9)]
    assert len(printed(folder, tail=10_000)) == 210
    assert offsets(printed(folder / "orders-0", tail=120)) == [(0, i) for i in range(80, 200)]


def test_bounds_are_offsets_or_times(folder: Path) -> None:
    assert offsets(printed(folder / "orders-0", first=98, last=101)) == [(0, i) for i in range(98, 102)]
    moment = datetime.fromtimestamp(1_700_000_000.195, UTC)
    assert offsets(printed(folder, first=moment)) == [(0, i) for i in range(195, 200)]


def test_only_records_with_the_key_are_counted(folder: Path) -> None:
    found = printed(folder / "orders-0", key=b"k1", most=4)
    assert [line["offset"] for line in found] == [1, 4, 7, 10]
    assert [line["offset"] for line in printed(folder / "orders-0", key=b"k1", tail=2)] == [196, 199]
    assert printed(folder / "orders-0", key=b"k1", most=2, columns=("offset",)) == [{"offset": 1}, {"offset": 4}]


def test_a_null_has_no_key_and_a_file_outside_a_partition_no_topic(tmp_path: Path) -> None:
    path = tmp_path / "fetched.bin"
    path.write_bytes(records.encode([RecordBatch(7, 7, [Record(7, 3, None, b"")])]))
    assert printed(path) == [{"offset": 7, "timestamp": 3, "key": None, "value": "", "headers": []}]
    assert printed(path, columns=("topic", "partition")) == [{"topic": None, "partition": None}]
    assert printed(path, key=b"") == []


def test_magic_0_has_no_timestamp(tmp_path: Path) -> None:
    [line] = printed(write(tmp_path / "old-0", RecordBatch(0, 0, [Record(0, None, b"k", b"v")], magic=0)))
    assert line["timestamp"] is None


def test_damage_ends_the_lines_or_is_reported(folder: Path) -> None:
    path = folder / "orders-1" / "00000000000000000000.log"
    good = records.encode([many(0, 10)])
    bad = bytearray(good)
    bad[-1] ^= 1
    path.write_bytes(good + bad + records.encode([many(20, 1)]))
    with pytest.raises(RecordsError, match="crc"):
        printed(path)
    told: list[str] = []
    found = [json.loads(line) for text in json_lines(Request(path), told.append) for line in bytes(text).splitlines()]
    assert [line["offset"] for line in found] == [*range(10), 20]
    assert len(told) == 1
    assert f"at byte {len(good) + HEADER_AT['crc']}:" in told[0]
    assert str(path) in told[0]


def test_all_columns_have_a_form(folder: Path) -> None:
    [line] = printed(folder / "orders-0", columns=tuple(logs.COLUMNS), most=1)
    [wanted] = next(logs.read(folder / "orders-0")).slice(0, 1).to_pylist()
    assert set(line) == set(wanted) == set(logs.COLUMNS)
    for name in ("topic", "partition", "offset", "producer_id", "producer_epoch", "transactional", "position"):
        assert line[name] == wanted[name]


def test_one_call_gives_about_a_mebibyte() -> None:
    table = pa.record_batch({"value": pa.array([b"x" * 1000] * 3000, pa.binary_view())})
    lines = Lines(table.schema)
    text, count, after = lines.of(table)
    assert 1 << 20 <= len(text) < (1 << 20) + 8000
    assert count == after < 3000
    assert lines.of(table, 2999)[1:] == (1, 3000)
    assert lines.of(table, 0, 5)[1:] == (5, 5)


def test_a_column_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="column x is double"):
        Lines(pa.schema([("x", pa.float64())]))


def test_views_outside_their_data_are_refused() -> None:
    good = pa.array([b"x" * 100], pa.binary_view())
    views = bytearray(good.buffers()[1].to_pybytes())
    views[12:16] = (1000).to_bytes(4, "little")
    bad = pa.Array.from_buffers(good.type, 1, [None, pa.py_buffer(bytes(views)), good.buffers()[2]])
    table = pa.RecordBatch.from_arrays([bad], ["value"])
    with pytest.raises(ValueError, match="row 0 is not valid Arrow data"):
        Lines(table.schema).of(table)


# ---------------------------------------------------------------------------------- long lines, many rows


LONG = [
    Record(0, 1, b"k", b"a\xe2\x82\xac" * 100_000, ((b"h", None), (b"", b"\xff" * 300_000), (b"\x1b\xc2\x9b", b""))),
    Record(1, 2, None, b"\xff" + b"x" * 400_000, tuple((b"%d" % i, b"v") for i in range(40_000))),
    Record(2, 3, b"", None),
    Record(3, 4, b"k", b"short", ((b"one", b"two"),)),
]


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("options", [{}, {"most": 2}, {"tail": 3}, {"key": b"k"}, {"key": b"k", "tail": 1}])
def test_long_lines_come_in_pieces_and_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: Any, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(printing, "LARGE_BYTES", 10_000)
    folder = write(tmp_path / "orders-0", RecordBatch(0, 3, LONG, compression=compression))
    texts = [bytes(text) for text in json_lines(Request(folder, columns=COLUMNS, **options))]
    assert max(map(len, texts)) < 2 << 20
    wanted = [record for record in LONG if options.get("key") in (None, record.key)]
    wanted = wanted[-options["tail"] :] if "tail" in options else wanted[: options.get("most")]
    assert [json.loads(line) for line in b"".join(texts).splitlines()] == list(map(row, wanted))


def test_a_table_gets_the_beginning_of_long_values_and_headers(tmp_path: Path) -> None:
    long = (Record(0, 1, b"k" * 2_000_000, "€".encode() * 700_000, tuple((b"h", b"v") for _ in range(300_000))),)
    folder = write(tmp_path / "orders-0", RecordBatch(0, 0, list(long)))
    [line] = printed(folder, columns=COLUMNS, is_cut=True)
    assert (line["key"], line["value"], len(line["headers"])) == ("k" * 256, "€" * 85, 64)


@pytest.mark.parametrize(("magic", "compression"), [(2, "none"), (2, "gzip"), (1, "snappy"), (0, "gzip")])
def test_a_batch_with_very_many_records_is_read_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, magic: Any, compression: Any
) -> None:
    batches = [
        RecordBatch(at, at + 299, many(at, 300).records, magic=magic, compression=compression) for at in (0, 300)
    ]
    folder = write(tmp_path / "orders-0", *batches)
    before = [batch.to_pylist() for batch in logs.read(folder)], printed(folder)
    monkeypatch.setattr(reading, "ROWS_MOST", 64)
    tables = list(logs.read(folder))
    assert max(table.num_rows for table in tables) <= 64
    assert [one for table in tables for one in table.to_pylist()] == [one for rows in before[0] for one in rows]
    assert printed(folder) == before[1]
    assert [line["offset"] for line in printed(folder, first=290, last=310, key=b"k1")] == [
        292,
        295,
        298,
        301,
        304,
        307,
        310,
    ]
    assert [line["offset"] for line in printed(folder, tail=70)] == list(range(530, 600))


def test_terminal_controls_are_escaped_without_loss() -> None:
    text = "".join(map(chr, [*range(0x2100), *range(0xFE00, 0x10000), *range(0x1F600, 0x1F650), 0xE0001, 0x10FFFF]))
    beside = [b"a" * i + b"\x7f" + b"b" * 8 for i in range(9)]
    made, visible, *others = as_json(text.encode(), "é€😀 ~".encode(), *beside)
    assert made.decode().isprintable()
    assert json.loads(made) == text
    assert visible.decode() == '"é€😀 ~"'
    assert others == [b'"' + one.replace(b"\x7f", b"\\u007f") + b'"' for one in beside]


def test_a_folder_whose_name_is_not_utf8_has_a_topic(tmp_path: Path) -> None:
    folder = write(tmp_path / "bad\udcff-0", many(0, 1))
    assert printed(folder, columns=("topic", "partition")) == [{"topic": "bad\\udcff", "partition": 0}]
