"""Log directories as Arrow batches: every record as ``kfuzz.records`` reads it; damage is told and passed over."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_corpora import MIXED, in_ms, once
from made_corpora import rows_of as rows

from kfuzz import logs, records
from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import KIB, MIB, load
from kfuzz.errors import RecordsError, UsageError
from kfuzz.logs import Selection, find_segments, read_slice, schema, slices
from kfuzz.logs.salvaging import salvage
from kfuzz.logs.segments import log_end
from kfuzz.logs.stored import last_offset
from kfuzz.records import Record, RecordBatch
from kfuzz.records.codecs import compress
from kfuzz.records.stream import read_committed
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.records.framing import frames

TIMES = st.integers(1_700_000_000_000, 1_700_000_003_000)
BOUNDS = st.fixed_dictionaries(
    {},
    optional={
        "first_offset": st.integers(0, 4000),
        "last_offset": st.integers(0, 4000),
        "min_timestamp": TIMES,
        "max_timestamp": TIMES,
    },
)
GUIDE = Path(__file__).parents[2] / "docs" / "dataframes.md"
SEQUENCES = 1 << 31


# All codecs and magics, headers, producers and transactions, in several segments.
corpus = once(replace(load(MIXED), size=6 * MIB, segment_bytes=MIB, seed=5))


def test_a_log_ends_with_its_last_whole_batch_also_where_the_index_leads_to_a_cut_one(
    corpus: Path, tmp_path: Path
) -> None:
    found = find_segments(corpus)[0].path
    folder = tmp_path / found.parent.name
    folder.mkdir()
    data = found.read_bytes()
    shutil.copy(found.with_suffix(".index"), folder)
    _, position = list(struct.iter_unpack(">ii", found.with_suffix(".index").read_bytes()))[-1]
    before, cut = ([at for at, _, _ in frames(data) if at < position][-1], position + 70)
    for end, last in ((len(data), [at for at, _, _ in frames(data)][-1]), (cut, before)):
        (folder / found.name).write_bytes(data[:end])
        offset, at = log_end(find_segments(tmp_path)[0])
        assert (offset, at) == (last_offset(data[last:]) + 1, position if end == cut else end)


def expected_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The same rows by way of objects, from another reader of kfuzz."""
    for segment in find_segments(path):
        data = segment.path.read_bytes()
        whole = b"".join(one.read_bytes() for one in sorted(segment.path.parent.glob("*.log")))
        # No transaction is open at the end.
        committed = {record.offset for batch in read_committed(whole) for record in batch.records}
        for (at, _, _), batch in zip(frames(data), records.batches(data), strict=True):
            is_new = batch.magic == 2
            for record in batch.records:
                sequence = (batch.base_sequence + record.offset - batch.base_offset) % SEQUENCES
                moment = record.timestamp
                yield {
                    "aborted": batch.transactional and not batch.control and record.offset not in committed,
                    "topic": segment.topic,
                    "partition": segment.partition,
                    "offset": record.offset,
                    "timestamp": None if moment is None else moment,
                    "timestamp_type": {"create": 0, "log-append": 1}[batch.timestamp_type] if batch.magic else -1,
                    "key": record.key,
                    "value": record.value,
                    "headers": [{"key": key, "value": value} for key, value in record.headers],
                    "leader_epoch": batch.partition_leader_epoch if is_new else -1,
                    "producer_id": batch.producer_id,
                    "producer_epoch": batch.producer_epoch,
                    "sequence": sequence if batch.base_sequence >= 0 else -1,
                    "transactional": batch.transactional,
                    "control": batch.control,
                    "segment": segment.base_offset,
                    "position": at,
                }


def comparable(found: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Their rows with timestamps in milliseconds."""
    return in_ms(rows(found), "timestamp")


def test_every_record_has_the_columns_that_objects_give(corpus: Path) -> None:
    found = comparable(logs.read(corpus))
    expected = list(expected_rows(corpus))
    assert len(found) == len(expected) > 5000
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs
    for name in ("timestamp_type", "producer_id", "sequence", "transactional", "control", "aborted"):
        assert len({row[name] for row in found}) > 1, name


def test_sequences_wrap_as_those_of_a_producer(tmp_path: Path) -> None:
    made = [Record(offset, 0, None, b"v") for offset in (70, 71, 74)]
    batch = RecordBatch(70, 74, made, producer_id=1, producer_epoch=0, base_sequence=SEQUENCES - 2)
    (tmp_path / "a.log").write_bytes(records.encode([batch]))
    assert [row["sequence"] for row in rows(logs.read(tmp_path / "a.log"))] == [SEQUENCES - 2, SEQUENCES - 1, 2]


def test_the_size_of_windows_and_payloads_changes_no_row(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rows(logs.read(corpus))
    monkeypatch.setattr("kfuzz.logs.reading.WINDOW_BYTES", 64)
    monkeypatch.setattr("kfuzz.logs.reading.PAYLOAD_BYTES", 1)
    batches = list(logs.read(corpus))
    assert rows(batches) == expected
    # Each batch of the log comes alone.
    assert len(batches) == sum(len(list(frames(one.path.read_bytes()))) for one in find_segments(corpus))


def test_batches_that_decompress_to_much_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        RecordBatch(i, i, [Record(i, 0, None, bytes(MIB))], compression="zstd", partition_leader_epoch=0)
        for i in range(12)
    ]
    (tmp_path / "bombs.log").write_bytes(records.encode(made))
    monkeypatch.setattr("kfuzz.logs.reading.PAYLOAD_BYTES", 3 * MIB)
    assert [batch.num_rows for batch in logs.read(tmp_path / "bombs.log")] == [3, 3, 3, 3]


def test_bounds_select_the_same_rows_with_and_without_indexes(corpus: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(corpus, tmp_path / "bare", ignore=shutil.ignore_patterns("*index"))
    everything = comparable(logs.read(corpus))

    @settings(max_examples=4)
    @given(BOUNDS)
    @hypothesis.example({"first_offset": 500, "last_offset": 499})
    @hypothesis.example({"first_offset": 1 << 40})
    @hypothesis.example({"first_offset": 333, "last_offset": 1333})
    @hypothesis.example({"min_timestamp": 1_700_000_001_000, "max_timestamp": 1_700_000_001_500})
    def check(bounds: dict[str, int]) -> None:
        lowest, highest = bounds.get("first_offset", -1), bounds.get("last_offset", 1 << 62)
        earliest, latest = bounds.get("min_timestamp"), bounds.get("max_timestamp")
        expected = [
            row
            for row in everything
            if lowest <= row["offset"] <= highest
            and (earliest is None or (row["timestamp"] is not None and row["timestamp"] >= earliest))
            and (latest is None or (row["timestamp"] is not None and row["timestamp"] <= latest))
        ]
        for place in (corpus, bare):
            assert comparable(logs.read(place, **bounds)) == expected

    check()


def test_a_bound_may_be_a_moment_between_two_milliseconds(corpus: Path) -> None:
    low, high = datetime(2023, 11, 14, 22, 13, 20, 100_001, UTC), datetime(2023, 11, 14, 22, 13, 20, 102_999, UTC)
    found = {row["timestamp"] for row in comparable(logs.read(corpus, min_timestamp=low, max_timestamp=high))}
    assert found == {1_700_000_000_101, 1_700_000_000_102}
    with pytest.raises(UsageError, match="has no time zone; add one"):
        logs.read(corpus, min_timestamp=low.replace(tzinfo=None))


def test_the_indexes_spare_the_bytes_before_and_after_what_is_selected(corpus: Path) -> None:
    segment = find_segments(corpus, topics="audit")[0]
    [everything] = slices([segment])
    assert (everything.start, everything.end) == (0, segment.size)
    found = rows(read_slice(everything, schema()))
    middle = found[len(found) // 2]
    [part] = slices([segment], Selection(middle["offset"], middle["offset"]))
    assert part.start <= middle["position"] < part.end
    assert part.end - part.start < segment.size / 4
    [part] = slices([segment], Selection(min_timestamp=found[-1]["timestamp"].timestamp() * 1000))
    assert segment.size - part.start < segment.size / 4
    after = segment.next_offset
    assert after is not None
    found = rows(logs.read(corpus, topics="audit", first_offset=after - 1, last_offset=after))
    assert [row["offset"] for row in found] == [after - 1, after]
    beyond = Selection(first_offset=segment.next_offset)
    assert list(slices(find_segments(corpus, topics="audit")[:1], beyond)) == []


def test_slices_cover_a_segment_and_are_cut_between_batches(corpus: Path) -> None:
    for segment in find_segments(corpus):
        begins = {at for at, _, _ in frames(segment.path.read_bytes())}
        parts = list(slices([segment], slice_bytes=32 * KIB))
        assert len(parts) > 2
        assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
        assert parts[-1].end == segment.size
        assert {part.start for part in parts} <= begins
        apart = rows(batch for part in parts for batch in read_slice(part, schema()))
        assert apart == rows(read_slice(next(slices([segment])), schema()))


@pytest.mark.parametrize("damage", ["shifted", "reversed", "offsets of another log", "zeros at the end"])
def test_an_index_that_does_not_fit_its_log_loses_no_record(corpus: Path, tmp_path: Path, damage: str) -> None:
    source = find_segments(corpus, topics="orders")[0]
    place = tmp_path / "orders-0"
    place.mkdir()
    for path in source.path.parent.glob(f"{source.path.stem}.*"):
        shutil.copy(path, place)
    index = place / f"{source.path.stem}.index"
    entries = index.read_bytes()
    halves = struct.unpack(f">{len(entries) // 4}i", entries)
    index.write_bytes(
        {
            "shifted": entries[4:],
            "reversed": entries[::-1],
            "offsets of another log": struct.pack(
                f">{len(halves)}i", *(half if i % 2 else half // 2 for i, half in enumerate(halves))
            ),
            "zeros at the end": entries + bytes(8000),
        }[damage]
    )
    [segment] = find_segments(tmp_path)
    expected = rows(read_slice(next(slices([source])), schema()))
    parts = list(slices([segment], slice_bytes=16 * KIB))
    assert rows(batch for part in parts for batch in read_slice(part, schema())) == expected
    assert (len(parts) > 2) == (damage == "zeros at the end")
    last = expected[-1]["offset"]
    for first in (last - 5, last // 2):
        found = rows(logs.read(tmp_path, first_offset=first))
        assert [row["offset"] for row in found] == [row["offset"] for row in expected if row["offset"] >= first]


# ------------------------------------------------------------------------------------------------- damage


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition of one segment of 40 batches of ten records; its index knows every fourth batch."""
    place = tmp_path / "log" / "orders-3"
    place.mkdir(parents=True)
    log, index = bytearray(), bytearray()
    for i in range(40):
        if i % 4 == 3:
            index += (10 * i + 9).to_bytes(4, "big") + len(log).to_bytes(4, "big")
        made = [Record(offset, 1000 + offset, b"k", bytes(100)) for offset in range(10 * i, 10 * i + 10)]
        log += records.encode_batch(RecordBatch(10 * i, 10 * i + 9, made, partition_leader_epoch=0))
    (place / f"{0:020}.log").write_bytes(log)
    (place / f"{0:020}.index").write_bytes(index)
    return place


def damaged(partition: Path, batch: int, at: int, value: bytes) -> int:
    """Overwrite bytes of a batch; where it begins."""
    path = partition / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    begin = [place for place, _, _ in frames(data)][batch]
    data[begin + at : begin + at + len(value)] = value
    path.write_bytes(data)
    return begin


@pytest.mark.parametrize(
    ("at", "value", "place", "code"),
    [
        pytest.param(80, b"\xff", 17, "crc-mismatch", id="payload"),
        pytest.param(16, b"\x07", 16, "magic-unknown", id="magic"),
        pytest.param(8, b"\xff\xff\xff\xff", 8, "batch-length-below-minimum", id="length-negative"),
        pytest.param(8, b"\0\0\0\x31", 17, "crc-mismatch", id="length-short"),
        pytest.param(8, b"\x7f\0\0\0", 0, "batch-length-wrong", id="length-beyond-the-file"),
        pytest.param(8, b"\0\0\x20\0", 17, "crc-mismatch", id="length-over-other-batches"),
    ],
)
def test_damage_costs_one_batch(partition: Path, at: int, value: bytes, place: int, code: str) -> None:
    path = partition / f"{0:020}.log"
    # Batch 6 is sound; the index knows only batch 7.
    begin = damaged(partition, 5, at, value)
    with pytest.raises(RecordsError) as caught:
        rows(logs.read(partition.parent))
    assert str(caught.value).startswith(f"{path} at byte {begin + place}: ")
    assert str(caught.value).endswith(f"[{code}]")
    found = rows(logs.read(partition.parent, mode="tolerant"))
    good = [row for row in found if row["finding"] is None]
    bad = [row for row in found if row["finding"] is not None]
    assert [row["offset"] for row in good] == [*range(50), *range(60, 400)]
    assert bad[0]["finding"] == str(caught.value)
    assert [bad[0][name] for name in ("topic", "partition", "segment", "position")] == ["orders", 3, 0, begin]
    assert {bad[0][name] for name in ("offset", "timestamp", "key", "value", "headers", "control")} == {None}
    # Slices are places to go on from too, so they lose no more.
    parts = slices(find_segments(partition), slice_bytes=4096)
    apart = rows(batch for part in parts for batch in read_slice(part, schema(mode="tolerant")))
    assert [row for row in apart if row["finding"] is None] == good


def test_positions_of_damage_count_from_the_file_after_the_first_window_too(
    partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.logs.reading.WINDOW_BYTES", 3000)
    begin = damaged(partition, 30, 16, b"\x07")
    with pytest.raises(RecordsError, match=f" at byte {begin + 16}: "):
        rows(logs.read(partition))
    [bad] = [row for row in rows(logs.read(partition, mode="tolerant")) if row["finding"] is not None]
    assert bad["position"] == begin


def test_damage_in_a_compressed_payload_names_the_batch_and_the_place_in_the_payload(tmp_path: Path) -> None:
    good = RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], partition_leader_epoch=0)
    payload = b"\x7f" + bytes(20)
    data = bytearray(records.encode([good]))
    bad = records.encode([replace(good, compression="gzip")])
    squeezed = compress("gzip", payload)
    head = bytearray(bad[:61])
    head[8:12] = (49 + len(squeezed)).to_bytes(4, "big")
    body = bytes(head[21:]) + squeezed
    head[17:21] = crc32c(body).to_bytes(4, "big")
    begin = len(data)
    data += head + squeezed
    (tmp_path / "a.log").write_bytes(data)
    with pytest.raises(RecordsError, match=rf"a\.log, batch at byte {begin}, payload at byte \d+: .*\[record-"):
        rows(logs.read(tmp_path / "a.log"))


def test_a_partial_batch_at_the_end_is_reported(partition: Path) -> None:
    path = partition / f"{0:020}.log"
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + path.read_bytes()[:100])
    with pytest.raises(RecordsError) as caught:
        rows(logs.read(partition))
    assert str(caught.value) == f"{path} at byte {whole}: the last 100 bytes are not a whole batch [file-truncated]"
    found = rows(logs.read(partition, mode="tolerant"))
    assert len(found) == 401
    assert found[-1]["finding"] == str(caught.value)
    assert len(rows(logs.read(partition, mode="tolerant", first_offset=395))) == 6
    assert len(rows(logs.read(partition, mode="tolerant", first_offset=395, last_offset=399))) == 5


# ------------------------------------------------------------------------------------------- what is there


def test_a_log_directory_a_partition_folder_and_a_file_are_read(corpus: Path, tmp_path: Path) -> None:
    folder = corpus / "orders-1"
    whole = rows(logs.read(folder))
    assert {row["topic"] for row in whole} == {"orders"}
    assert {row["partition"] for row in whole} == {1}
    assert whole == [row for row in rows(logs.read(f"file://{corpus}", topics="ord*")) if row["partition"] == 1]
    one = sorted(folder.glob("*.log"))[1]
    assert rows(logs.read(one)) == [row for row in whole if row["segment"] == int(one.stem)]
    alone = tmp_path / "fetch.bin"
    shutil.copy(one, alone)
    assert {(row["topic"], row["partition"], row["segment"]) for row in rows(logs.read(alone))} == {(None, None, None)}


def test_only_the_wanted_columns_are_made_in_the_order_that_was_asked_for(corpus: Path) -> None:
    batch = next(logs.read(corpus, columns=["value", "offset"]))
    assert batch.schema.names == ["value", "offset"]
    assert next(logs.read(corpus)).schema == schema()


def test_folders_of_kafka_itself_are_read_when_they_are_named(corpus: Path, tmp_path: Path) -> None:
    for name in ("orders-0", "__offsets-0", "orders-0.abc-delete"):
        shutil.copytree(corpus / "orders-0", tmp_path / name)
    (tmp_path / "meta.properties").write_text("version=1\n")
    assert {one.topic for one in find_segments(tmp_path)} == {"orders"}
    assert {one.topic for one in find_segments(tmp_path, topics="__*")} == {"__offsets"}


def test_a_wrong_request_is_answered_in_one_sentence(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copytree(corpus / "orders-0", tmp_path / "own" / "__offsets-0")
    folder = tmp_path / "bad" / "t-0" / f"{0:020}.log"
    folder.mkdir(parents=True)
    for ask, told in (
        (lambda: logs.read(tmp_path / "absent"), "absent does not exist; name a log directory"),
        (lambda: logs.read("/dev/null"), "/dev/null is a device; name a log directory"),
        (lambda: logs.read(tmp_path / "empty"), "empty has no log segments; they are files such as orders-0/"),
        (lambda: logs.read(corpus, topics="x*"), r"no topic in .* matches 'x\*'; there are audit, orders"),
        (
            lambda: logs.read(tmp_path / "own"),
            "own has only Kafka's own topics: __offsets; --topics '__\\*' chooses them",
        ),
        (lambda: logs.read(corpus, columns=["colour"]), "column 'colour' does not exist; take some of topic, "),
        (lambda: logs.read(corpus, columns=["key", "key"]), "column 'key' is named twice"),
        (lambda: logs.read(corpus, mode="lax"), "mode 'lax' does not exist; take one of strict, tolerant"),  # type: ignore[arg-type]
        (lambda: logs.read("nothing://bucket/log"), "has the scheme nothing:, which fsspec does not know"),
        (lambda: list(logs.read(tmp_path / "bad")), "log is a directory, which kfuzz does not open"),
    ):
        with pytest.raises(UsageError, match=told) as caught:
            ask()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [f"{2**63:020}", "9" * 20])
def test_a_segment_whose_name_is_no_offset_is_read_without_its_index(
    partition: Path, tmp_path: Path, name: str
) -> None:
    for path in partition.iterdir():
        path.rename(path.with_name(name + path.suffix))
    log = partition.rename(partition.with_name("a\nb-0")).parent
    for asked, count in (({}, 400), ({"min_timestamp": 1399}, 1), ({"first_offset": 398}, 2)):
        assert sum(batch.num_rows for batch in logs.read(log, **asked)) == count  # type: ignore[arg-type]
    assert salvage(log, tmp_path / "out")[0].records == 400


# ----------------------------------------------------------------------------------------------- the guide


def test_the_examples_of_the_guide_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spark_jobs").symlink_to(MIXED.parents[1])
    generate(load(MIXED).resized(64 * MIB), tmp_path / "out" / "corpus")
    text = GUIDE.read_text()
    shown = re.findall(r"^```python\n([^`]*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    plain = [(example, output) for example, output in shown if "kfuzz.spark" not in example]
    assert len(plain) == 3
    for example, output in plain:
        exec(example, {})
        assert capsys.readouterr().out == output
    table = text.partition("## The columns")[2].partition("You get")[0]
    listed = re.findall(r"^\| (`.*?`) \| [a-z]", table, re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(listed)) == list(logs.COLUMNS)
