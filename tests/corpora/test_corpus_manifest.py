"""The manifest: what its fingerprint depends on, and which files are refused as manifests."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfuzz.corpora import manifest
from kfuzz.corpora.manifest import FORMAT, Manifest, Row, corpus_fingerprint, read_manifest, schema, write_manifest
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
    assert read_manifest(tmp_path / "one") == ROWS
    part = "part-00000.parquet"
    assert (tmp_path / "one" / part).read_bytes() == (tmp_path / "two" / part).read_bytes()
    (tmp_path / "two" / part).rename(tmp_path / "one" / "part-00001.parquet")
    assert [row.segment_id for row in read_manifest(tmp_path / "one")] == [0, 0, 1, 1]


@pytest.mark.parametrize("count", [0, 1, 6, 7, 12, 13, 25])
def test_a_manifest_of_many_parts_is_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(manifest, "ROWS_PER_FILE", 6)
    monkeypatch.setattr(manifest, "ROWS_PER_GROUP", 2)
    rows = [replace(ROW, segment_id=at, bytes=at, min_timestamp=None if at % 3 else at) for at in range(count)]
    write_manifest(tmp_path, rows)
    assert len(list(tmp_path.iterdir())) == max(1, -(-count // 6))
    found = Manifest(tmp_path)
    assert found == rows
    assert len(found) == count
    assert found != [*rows[:-1], ROW, ROW][: max(1, count)]
    assert found.total("bytes") == sum(range(count))
    assert (found.lowest("min_timestamp"), found.highest("bytes")) == (
        0 if count else None,
        count - 1 if count else None,
    )
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
        read_manifest(tmp_path)


def test_nullable_columns_are_those_that_a_row_may_have_without_value() -> None:
    assert {one.name for one in schema() if one.nullable} == {"min_timestamp", "max_timestamp", "txnindex_crc32c"}
    assert schema().metadata == {b"format": FORMAT}
