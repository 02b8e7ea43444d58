"""The manifest: what its fingerprint depends on, and which files are refused as manifests."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_driver import refused
from made_corpora import copy_of, once

from kfuzz.corpora import manifest
from kfuzz.corpora.generation import generate
from kfuzz.corpora.manifest import FORMAT, Manifest, Row, corpus_fingerprint, schema, write_manifest
from kfuzz.corpora.workload import KIB, Topic, Workload, parse, render
from kfuzz.errors import UsageError

ROW = Row(
    segment_id=0,
    path="z-0/00000000000000000000.log",
    bytes=100,
    crc32c=0xABC,
    fingerprint="f0",
    batches=1,
    control_batches=0,
    aborted_records=0,
    records=1,
    first_offset=0,
    last_offset=0,
    min_timestamp=0,
    max_timestamp=0,
    index_crc32c=0,
    timeindex_crc32c=0,
    txnindex_crc32c=None,
    snapshot_crc32c=0,
    valid=1,
    acceptable=0,
    invalid=0,
    codec_versions="{}",
)
# The plan's order is neither that of the paths nor that of the sizes.
ROWS = [ROW, replace(ROW, segment_id=1, path="a-0/00000000000000000000.log", bytes=7, fingerprint="f1")]


def test_the_corpus_fingerprint_is_over_the_rows_in_the_plans_order() -> None:
    text = f"{ROWS[0].path} 100 00000abc f0\n{ROWS[1].path} 7 00000abc f1\n"
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert corpus_fingerprint(ROWS) == expected
    assert corpus_fingerprint(ROWS[::-1]) != expected


@pytest.mark.parametrize("change", [{"path": "b"}, {"bytes": 8}, {"crc32c": 1}, {"fingerprint": "f2"}])
def test_the_corpus_fingerprint_depends_on_each_of_its_parts(change: dict[str, int | str]) -> None:
    changed = [replace(ROWS[0], **change), ROWS[1]]  # type: ignore[arg-type]
    assert corpus_fingerprint(changed) != corpus_fingerprint(ROWS)


def test_equal_rows_give_equal_bytes_and_come_back(tmp_path: Path) -> None:
    write_manifest(tmp_path / "one", ROWS)
    write_manifest(tmp_path / "two", iter(ROWS))
    assert list(Manifest(tmp_path / "one")) == ROWS
    part = "part-00000.parquet"
    assert (tmp_path / "one" / part).read_bytes() == (tmp_path / "two" / part).read_bytes()


@pytest.mark.parametrize("count", [0, 1, 6, 7, 12, 13, 25])
def test_a_manifest_of_many_parts_is_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(manifest, "ROWS_PER_FILE", 6)
    monkeypatch.setattr(manifest, "ROWS_PER_GROUP", 2)
    rows = [replace(ROW, segment_id=at, bytes=at, min_timestamp=None if at % 3 else at) for at in range(count)]
    write_manifest(tmp_path, rows)
    assert len(list(tmp_path.iterdir())) == max(1, -(-count // 6))
    found = Manifest(tmp_path)
    assert list(found) == rows
    assert len(found) == count
    assert found.total("bytes") == sum(range(count))
    assert found.ends("min_timestamp", "bytes") == ((0, count - 1) if count else (None, None))
    assert found.distinct("codec_versions") == (["{}"] if count else [])
    for first, last in ((0, 0), (5, 6), (3, 100), (-5, 2), (12, 12)):
        assert list(found.between(first, last)) == [row for row in rows if first <= row.segment_id <= last]


def columns_of(kind: str) -> pa.Schema:
    """The manifest's columns with one thing wrong."""
    right = list(schema())
    wrong = {
        "one more": [*right, pa.field("later", pa.int64())],
        "one less": right[:-1],
        "another order": right[::-1],
        "another type": [pa.field("segment_id", pa.int32(), nullable=False), *right[1:]],
        "null where none may be": [pa.field("segment_id", pa.int64()), *right[1:]],
        "null where it may not": [
            pa.field(one.name, one.type, nullable=False) if one.name == "txnindex_crc32c" else one for one in right
        ],
    }
    return pa.schema(wrong[kind], metadata={b"format": FORMAT})


@pytest.mark.parametrize(
    "kind",
    ["one more", "one less", "another order", "another type", "null where none may be", "null where it may not"],
)
def test_a_file_with_other_columns_is_refused_with_the_remedy(tmp_path: Path, kind: str) -> None:
    columns = columns_of(kind)
    values = {**{name: getattr(ROW, name) for name in schema().names}, "later": 1, "txnindex_crc32c": 0}
    table = pa.Table.from_pylist([{name: values[name] for name in columns.names}], schema=columns)
    pq.write_table(table, tmp_path / "part-00000.parquet")
    with pytest.raises(
        UsageError, match="has other columns than a manifest of this version; generate the corpus again"
    ):
        list(Manifest(tmp_path))


@pytest.mark.parametrize("number", [(1 << 63) - 1, 1 << 31, -1])
@pytest.mark.parametrize("column", ["bytes", "aborted_records"])
def test_a_row_with_a_number_that_no_segment_has_is_refused(tmp_path: Path, column: str, number: int) -> None:
    write_manifest(tmp_path, [replace(ROW, **{column: number}), *ROWS])  # type: ignore[arg-type]
    rows = Manifest(tmp_path)
    said = rf"part-00000\.parquet has a row with {number} {column.replace('_', ' ')}, and a segment has 0 to 2147483647"
    for read in (lambda: list(rows), lambda: rows.total(column)):
        with pytest.raises(UsageError, match=said):
            read()


def test_nullable_columns_are_those_that_a_row_may_have_without_value() -> None:
    assert {one.name for one in schema() if one.nullable} == {"min_timestamp", "max_timestamp", "txnindex_crc32c"}
    assert schema().metadata == {b"format": FORMAT}


# ------------------------------------------------------------------------------------------ manifests from others


def claiming(folder: Path, *, rows: int, text: str = "") -> None:
    """A manifest of one part with this many equal rows, in few bytes."""
    row = next(iter(Manifest(folder)))
    columns = {}
    for one in schema():
        value = text if text and one.name == "fingerprint" else getattr(row, one.name)
        if one.name == "segment_id":
            columns[one.name] = pa.array(np.arange(rows), one.type)
        else:
            indices = pa.array(np.zeros(rows, np.int32), mask=np.full(rows, value is None))
            values = pa.array([0 if value is None and one.type == pa.int64() else value], one.type)
            packed = pa.DictionaryArray.from_arrays(indices, values)
            columns[one.name] = packed if one.type == pa.string() else packed.dictionary_decode()
    for old in folder.glob("part-*"):
        old.unlink()
    found = pa.table(columns)
    required = [one.with_nullable(schema().field(one.name).nullable) for one in found.schema]
    pq.write_table(
        pa.Table.from_arrays(found.columns, schema=pa.schema(required)),
        folder / "part-00000.parquet",
        compression="zstd",
        store_schema=False,
    )


# A corpus of one segment.
pristine, small = once(Workload(topics=(Topic("t"),), size=64 * KIB)), copy_of("pristine")


@pytest.mark.parametrize("words", [("verify",), ("install", "--log-dir", "."), ("verify", "--statistics")])
def test_a_manifest_with_more_rows_than_segments_is_refused_before_its_rows_are_read(
    small: Path, words: tuple[str, ...]
) -> None:
    claiming(small / "_manifest", rows=300_000)
    assert (small / "_manifest" / "part-00000.parquet").stat().st_size < 1 << 20
    assert f"{small} has 1 segments, but its manifest has 300000 rows" in refused("corpus", *words, small)


def test_a_column_that_repeats_one_long_text_takes_no_memory(small: Path) -> None:
    # 10,000 rows of a MiB would be 10 GB.
    claiming(small / "_manifest", rows=10_000, text="x" * (1 << 20))
    said = refused("corpus", "verify", small)
    assert "part-00000.parquet is not a readable Parquet file (a text has more than 1024 bytes)" in said


def test_a_workload_with_more_segments_than_there_are_is_refused(small: Path) -> None:
    huge = Workload(topics=(Topic("t", partitions=1000),), size=1 << 50, segment_bytes=1 << 20)
    (small / "_workload.toml").write_text(render(huge))
    said = refused("corpus", "verify", small)
    assert "has 1 segments, but its manifest has 1 rows and its workload 10" in said


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"segment_id": ' + b"9" * 5000 + b"}",
        b"[]",
        b'{"segment_id": "1"}',
        b"\xff",
    ],
)
def test_kept_rows_that_are_none_are_written_again(small: Path, line: bytes) -> None:
    before = list(Manifest(small / "_manifest"))
    (small / "_SUCCESS").unlink()
    workload = parse((small / "_workload.toml").read_text(), "workload")
    folder = small / "_rows" / workload.fingerprint[:16]
    folder.mkdir(parents=True)
    for name in ("000001-000000000000-000000000000-x.jsonl", "a-b-c-d.jsonl"):
        (folder / name).write_bytes(line + b"\n")
    generate(workload, small, resume="sizes")
    assert list(Manifest(small / "_manifest")) == before
