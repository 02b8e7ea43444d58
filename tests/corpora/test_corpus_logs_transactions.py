"""Records of aborted transactions are marked, and ``read_committed`` gives what a consumer is given.

``records.stream.read_committed`` follows transactions in another way: forwards, over the whole log. It is the truth.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from made_corpora import rows_of as rows
from replay.hand_made import marker

from kfuzz import logs, records
from kfuzz.errors import UsageError
from kfuzz.kafka import CODECS
from kfuzz.logs import Selection, find_segments, read_slice, schema, slices
from kfuzz.logs.arrow_rows import select_rows
from kfuzz.logs.transactions import last_stable_offset
from kfuzz.records import Record, RecordBatch
from kfuzz.records.stream import read_committed
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.records.framing import frames
from kfuzz.wire.walk.transaction_walk import TransactionWalk

PRODUCERS = 5
# A part of the batches has an entry in the offset index.
INDEXED = 3


@dataclass
class Log:
    """A partition folder, and its whole log."""

    folder: Path
    data: bytearray = field(default_factory=bytearray)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)

    def rows(self, **options: Any) -> list[dict[str, Any]]:
        return rows(logs.read(self.folder, **options))


def data_batch(offset: int, count: int, dice: Random, **fields: Any) -> RecordBatch:
    made = [
        Record(
            at,
            at,
            None if at % 5 == 0 else b"key-%d" % at,
            dice.randbytes(dice.randrange(40)),
            ((b"h", b"v"),) * (at % 3),
        )
        for at in range(offset, offset + count)
    ]
    return RecordBatch(
        offset, offset + count - 1, made, compression=dice.choice(CODECS), partition_leader_epoch=0, **fields
    )


def make_log(folder: Path, seed: int, *, batches: int = 240, per_segment: int = 25, txnindex: bool = True) -> Log:
    """Interleaved transactions of several producers, long and short, over segments; some are open at the end."""
    dice = Random(seed)
    folder.mkdir(parents=True)
    log = Log(folder)
    opened: dict[int, int] = {}
    sequences = dict.fromkeys(range(PRODUCERS), 0)
    offset = 0
    segment, index, aborted, base = bytearray(), bytearray(), bytearray(), 0

    def roll() -> None:
        stem = folder / f"{base:020}"
        stem.with_suffix(".log").write_bytes(segment)
        stem.with_suffix(".index").write_bytes(index)
        if aborted and txnindex:
            stem.with_suffix(".txnindex").write_bytes(aborted)

    for number in range(batches):
        producer = dice.randrange(PRODUCERS)
        if producer in opened and dice.random() < (0.3 if producer else 0.02):
            commit = dice.random() < 0.5
            batch = marker(offset, producer, 0, commit=commit)
            first = opened.pop(producer)
            if not commit:
                stable = min(opened.values(), default=offset + 1)
                log.aborted.append((producer, first, offset, stable))
                aborted += struct.pack(">hqqqq", 0, *log.aborted[-1])
        elif dice.random() < 0.15:
            batch = data_batch(offset, dice.randrange(1, 9), dice)
        else:
            count = dice.randrange(1, 9)
            batch = data_batch(
                offset,
                count,
                dice,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                transactional=True,
            )
            sequences[producer] += count
            opened.setdefault(producer, offset)
        if number % INDEXED == 1:
            index += struct.pack(">ii", batch.last_offset - base, len(segment))
        encoded = records.encode_batch(batch)
        segment += encoded
        log.data += encoded
        offset = batch.last_offset + 1
        if number % per_segment == per_segment - 1 or number == batches - 1:
            roll()
            segment, index, aborted, base = bytearray(), bytearray(), bytearray(), offset
    return log


def committed(log: Log) -> list[int]:
    return [record.offset for batch in read_committed(bytes(log.data)) for record in batch.records]


def in_aborted(log: Log) -> list[int]:
    """The offsets of all records of aborted transactions."""
    return [
        record.offset
        for batch in records.batches(bytes(log.data))
        for record in batch.records
        if batch.transactional
        and not batch.control
        and any(p == batch.producer_id and first <= record.offset <= last for p, first, last, _ in log.aborted)
    ]


@pytest.mark.parametrize("txnindex", [True, False])
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 6))])
def test_records_of_aborted_transactions_are_marked(tmp_path: Path, seed: int, txnindex: bool) -> None:
    log = make_log(tmp_path / "orders-0", seed, txnindex=txnindex)
    expected = in_aborted(log)
    assert expected
    # Transactions end in later segments too.
    segments = find_segments(tmp_path)
    assert any(
        one.base_offset <= first < one.next_offset <= last  # type: ignore[operator]
        for _, first, last, _ in log.aborted
        for one in segments[:-1]
    )
    found = log.rows()
    assert [row["offset"] for row in found if row["aborted"]] == expected
    # An answer does not depend on which part is read, nor on how much of it at once.
    for part in slices(segments, slice_bytes=200):
        assert rows(read_slice(part, schema())) == [
            row
            for row in found
            if row["segment"] == part.segment.base_offset and part.start <= row["position"] < part.end
        ]
    assert log.rows(first_offset=300, last_offset=420) == [row for row in found if 300 <= row["offset"] <= 420]


@pytest.mark.parametrize("seed", range(3))
def test_the_size_of_windows_changes_no_answer(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(tmp_path / "orders-0", seed)
    expected, seen = log.rows(), log.rows(isolation="read_committed")
    monkeypatch.setattr("kfuzz.logs.reading.WINDOW_BYTES", 64)
    monkeypatch.setattr("kfuzz.logs.transactions.STRETCH_BYTES", 64)
    assert log.rows() == expected
    assert log.rows(isolation="read_committed") == seen


@pytest.mark.parametrize("txnindex", [True, False])
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 6))])
def test_read_committed_gives_what_a_consumer_gets(tmp_path: Path, seed: int, txnindex: bool) -> None:
    log = make_log(tmp_path / "orders-0", seed, txnindex=txnindex)
    expected = committed(log)
    found = log.rows(isolation="read_committed")
    assert [row["offset"] for row in found] == expected
    assert found == [row for row in log.rows() if row["offset"] in set(expected)]
    # Something is left out at the end.
    stable = last_stable_offset(find_segments(tmp_path)[0])
    assert stable is not None
    assert expected[-1] < stable <= log.rows()[-1]["offset"]
    parts = slices(find_segments(tmp_path), slice_bytes=200, isolation="read_committed")
    assert rows(row for part in parts for row in read_slice(part, schema(), isolation="read_committed")) == found
    bounded = Selection(first_offset=200, last_offset=10_000)
    parts = slices(find_segments(tmp_path), bounded, isolation="read_committed")
    assert rows(row for part in parts for row in read_slice(part, schema(), bounded, isolation="read_committed")) == [
        row for row in found if row["offset"] >= 200
    ]


def test_read_uncommitted_leaves_out_control_records_alone(tmp_path: Path) -> None:
    log = make_log(tmp_path / "orders-0", 1)
    found = log.rows()
    assert log.rows(isolation="read_uncommitted") == [row for row in found if not row["control"]]
    assert any(row["control"] for row in found)


def test_each_partition_ends_at_its_own_last_stable_offset(tmp_path: Path) -> None:
    made = [make_log(tmp_path / f"orders-{at}", at) for at in range(3)]
    found = rows(logs.read(tmp_path, isolation="read_committed"))
    for at, log in enumerate(made):
        assert [row["offset"] for row in found if row["partition"] == at] == committed(log)


def test_one_segment_file_has_the_answers_of_its_partition(tmp_path: Path) -> None:
    log = make_log(tmp_path / "orders-0", 2, txnindex=False)
    found = log.rows()
    for segment in find_segments(tmp_path):
        assert rows(logs.read(segment.path)) == [row for row in found if row["segment"] == segment.base_offset]


@pytest.mark.parametrize("stretch", [64, 1000, 16 << 20])
def test_a_wrong_length_hides_no_marker_behind_its_batch(
    tmp_path: Path, stretch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.logs.transactions.STRETCH_BYTES", stretch)
    log = make_log(tmp_path / "orders-0", 2, per_segment=240, txnindex=False)
    segment = find_segments(tmp_path)[0]
    segment.path.with_suffix(".index").unlink()
    seen, stable = log.rows(isolation="read_committed"), last_stable_offset(segment)
    plain = [row["position"] for row in log.rows() if row["producer_id"] < 0]
    for bit in range(4, 15):
        at = plain[bit * len(plain) // 32]
        damaged = bytearray(log.data)
        damaged[at + 11 - bit // 8] ^= 1 << bit % 8
        segment.path.write_bytes(damaged)
        assert last_stable_offset(segment) == stable
        found = log.rows(isolation="read_committed", mode="tolerant")
        assert [row | {"finding": None} for row in seen if row["position"] != at] == [
            row for row in found if row["finding"] is None
        ]


def test_a_transaction_index_spares_the_headers_that_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_log(tmp_path / "orders-0", 3)
    walked: list[int] = []
    took = logs.transactions.Ahead.took

    def spy(self: Any, data: memoryview) -> int:
        walked.append(len(data))
        return took(self, data)

    monkeypatch.setattr("kfuzz.logs.reading.WINDOW_BYTES", 1000)
    monkeypatch.setattr("kfuzz.logs.transactions.STRETCH_BYTES", 1000)
    monkeypatch.setattr("kfuzz.logs.transactions.Ahead.took", spy)
    part = next(slices(find_segments(tmp_path)))
    list(read_slice(part, schema()))
    with_index = sum(walked)
    for path in (tmp_path / "orders-0").glob("*.txnindex"):
        path.unlink()
    walked.clear()
    list(read_slice(part, schema()))
    assert with_index < sum(walked)


@pytest.mark.parametrize(
    "damage",
    [
        lambda entries: entries[:-40] + bytes(40),
        lambda entries: b"\0\1" + entries[2:],
        lambda entries: struct.pack(">hqqqq", 0, 1, 5, 4, 5),
        lambda entries: struct.pack(">hqqqq", 0, 1, 0, 1 << 40, 5),
        lambda entries: entries[:-8] + struct.pack(">q", 1 << 40),
    ],
    ids=["zeros", "version", "last before first", "offset of no record here", "stable offset beyond"],
)
def test_a_damaged_transaction_index_is_not_used(tmp_path: Path, damage: Any) -> None:
    log = make_log(tmp_path / "orders-0", 4)
    expected, seen = log.rows(), log.rows(isolation="read_committed")
    for path in (tmp_path / "orders-0").glob("*.txnindex"):
        path.write_bytes(damage(path.read_bytes()))
    assert log.rows() == expected
    assert log.rows(isolation="read_committed") == seen


def snapshot(opened: dict[int, int]) -> bytes:
    """As ``ProducerStateManager.writeSnapshot`` writes it."""
    entries = b"".join(
        struct.pack(">qhiqiqiq", producer, 0, 9, 99, 0, 1000, 0, first) for producer, first in opened.items()
    )
    body = struct.pack(">i", len(opened)) + entries
    return struct.pack(">hI", 1, crc32c(body)) + body


def test_a_producer_snapshot_spares_the_segments_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(tmp_path / "orders-0", 5, txnindex=False)
    segments = find_segments(tmp_path)
    expected = last_stable_offset(segments[0])
    last = segments[-1]
    assert last.base_offset is not None
    walk = TransactionWalk()
    before = len(log.data) - last.size
    walk.walk(memoryview(log.data)[:before])
    first = walk.first_open
    assert first is not None
    walked: list[Path] = []
    step = logs.transactions.FileAhead.step

    def spy(self: Any) -> bool:
        walked.append(self.segment.path)
        return step(self)

    monkeypatch.setattr("kfuzz.logs.transactions.FileAhead.step", spy)
    place = last.path.with_suffix(".snapshot")
    # The oldest of the open transactions is of this producer; -1 stands for a producer without one.
    producer = next(row["producer_id"] for row in log.rows() if row["offset"] == first)
    place.write_bytes(snapshot({producer: first, 99: -1}))
    walked.clear()
    assert last_stable_offset(segments[0]) == expected
    assert set(walked) == {last.path}
    # A transaction that no later marker ends.
    place.write_bytes(snapshot({77: 3}))
    assert last_stable_offset(segments[0]) == 3
    place.write_bytes(snapshot({77: 3})[:-1] + b"\1")
    walked.clear()
    assert last_stable_offset(segments[0]) == expected
    assert set(walked) == {one.path for one in segments}


def test_a_log_without_transactions_is_not_looked_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Random(1)
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"".join(records.encode_batch(data_batch(8 * i, 8, dice)) for i in range(20)))
    monkeypatch.setattr("kfuzz.logs.transactions.FileAhead.step", None)
    assert {row["aborted"] for row in rows(logs.read(tmp_path))} == {False}


def test_markers_without_records_or_with_a_wrong_crc_and_other_control_records_end_nothing(tmp_path: Path) -> None:
    dice = Random(1)
    transactional: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    abort = marker(9, 1, 0, commit=False)
    other = Record(8, 8, struct.pack(">hh", 0, 7), struct.pack(">hi", 0, 7))
    odd = replace(marker(8, 1, 0, commit=False), records=[other])
    empty = replace(marker(7, 1, 0, commit=False), records=[])
    short = replace(marker(6, 1, 0, commit=False), records=[Record(6, 6, struct.pack(">hh", 0, 0), b"\0\0")])
    batches = [data_batch(0, 6, dice, **transactional), short, empty, odd, abort]
    parts = [bytearray(records.encode_batch(one)) for one in batches]
    # A marker with a wrong CRC: it has another coordinator's epoch.
    parts.insert(1, bytearray(records.encode_batch(marker(6, 1, 0, commit=True))))
    parts[1][-2] ^= 1
    data = b"".join(parts)
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(data)
    found = rows(logs.read(tmp_path, mode="tolerant"))
    assert [row["offset"] for row in found if row["aborted"]] == [*range(6)]
    walk = TransactionWalk()
    assert walk.walk(data) == len(data)
    assert walk.ends() == [(1, 9, True)]
    assert walk.ends() == []


def test_the_walk_goes_over_whole_batches_and_stops_at_what_is_refused(tmp_path: Path) -> None:
    log = make_log(tmp_path / "orders-0", 6)
    data = bytes(log.data)
    begins = [at for at, _, _ in frames(data)]
    whole = TransactionWalk()
    assert whole.walk(data) == len(data)
    ends = whole.ends()
    assert [(producer, last) for producer, last, is_abort in ends if is_abort] == [
        (producer, last) for producer, _, last, _ in log.aborted
    ]
    parts = TransactionWalk()
    at = 0
    while at < len(data):
        # A part ends inside a batch.
        at += parts.walk(data[at : at + 900]) or len(data)
    assert parts.ends() == ends
    assert parts.first_open == whole.first_open
    assert TransactionWalk().walk(data[:-1]) == begins[-1]
    bad = bytearray(data)
    bad[begins[7] + 16] = 9
    assert TransactionWalk().walk(bad) == begins[7]
    with pytest.raises(IndexError):
        TransactionWalk().walk(data, len(data) + 1)


def test_damage_on_the_way_to_a_marker_is_passed_over(tmp_path: Path) -> None:
    log = make_log(tmp_path / "orders-0", 7, txnindex=False, per_segment=1000)
    [segment] = find_segments(tmp_path)
    begins = [at for at, _, _ in frames(bytes(log.data))]
    data = bytearray(log.data)
    # The index knows the batch after it.
    data[begins[99] + 16] = 9
    segment.path.write_bytes(data)
    before = log.rows(mode="tolerant")
    expected = set(in_aborted(log))
    first_bad = next(row["position"] for row in before if row["finding"] is not None)
    assert first_bad == begins[99]
    marked = {row["offset"] for row in before if row["finding"] is None and row["aborted"]}
    assert marked == expected & {row["offset"] for row in before}


def test_a_marker_right_after_damage_ends_its_transaction(tmp_path: Path) -> None:
    dice = Random(1)
    transactional: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    batches = [data_batch(0, 6, dice, **transactional), data_batch(6, 2, dice), marker(8, 1, 0, commit=False)]
    parts = [bytearray(records.encode_batch(one)) for one in batches]
    parts[1][16] = 9
    path = tmp_path / "orders-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(parts))
    found = rows(logs.read(tmp_path, mode="tolerant"))
    assert [row["offset"] for row in found if row["aborted"]] == [*range(6)]


def test_an_unknown_isolation_is_answered_in_one_sentence(tmp_path: Path) -> None:
    told = "isolation 'serial' does not exist; take one of log, read_uncommitted, read_committed"
    with pytest.raises(UsageError, match=told):
        logs.read(tmp_path, isolation="serial")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=told):
        next(slices([], isolation="serial"))  # type: ignore[arg-type]


def test_rows_are_taken_of_views_and_lists_as_of_objects(tmp_path: Path) -> None:
    dice = Random(3)
    table = records.columns(b"".join(records.encode_batch(data_batch(9 * i, 9, dice)) for i in range(30)))
    everything = table.to_pylist()
    for sliced in (table, table.slice(31, 150)):
        base = everything if sliced is table else everything[31:181]
        for rows_taken in ([], [3], [4, 5, 6], sorted(dice.sample(range(len(base)), 60))):
            made = select_rows(sliced, np.array(rows_taken, np.int64))
            made.validate(full=True)
            assert made.to_pylist() == [base[at] for at in rows_taken]
