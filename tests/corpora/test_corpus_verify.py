"""Verification: each kind of damage is found, named, and placed."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import counts
from made_corpora import copy_of, flip, once

from kfuzz import records
from kfuzz.corpora import generation, segment
from kfuzz.corpora.generation import generate
from kfuzz.corpora.log_walk import LogWalk
from kfuzz.corpora.manifest import Manifest, corpus_fingerprint, write_manifest
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.verification import Problem, verify
from kfuzz.corpora.workload import KIB, Batches, Legacy, Producers, Range, Timestamps, Topic, Transactions, Workload
from kfuzz.errors import UsageError
from kfuzz.kafka import CODECS
from kfuzz.logs import snapshot
from kfuzz.records.read.reader import check_with
from kfuzz.storage import READ_BYTES_MAX
from kfuzz.wire.io.checksum import crc32c

TOPIC = Topic(
    "t",
    partitions=2,
    batches=Batches(records=Range(5, 40), codecs=(("none", 3), ("lz4", 1))),
    producers=Producers(count=2, share=0.4),
    transactions=Transactions(producers=2, share=0.3, records=30, abort_share=0.5),
    legacy=Legacy(magic1=0.1),
)
WORKLOAD = Workload(topics=(TOPIC,), size=512 * KIB, segment_bytes=128 * KIB)
FIRST = "t-0/00000000000000000000"
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
MISSING = "{}: is missing; generate the corpus again [file-missing]"


pristine, corpus = once(WORKLOAD), copy_of("pristine")


def codes(problems: list[Problem]) -> list[str]:
    return [problem.code for problem in problems]


def batches_of(log: Path) -> list[tuple[int, int, int]]:
    """Place, size and magic of each batch."""
    data, at, found = log.read_bytes(), 0, []
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append((at, size, data[at + 16]))
        at += size
    return found


def replace_bytes(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def test_a_whole_corpus_has_no_problem(pristine: Path) -> None:
    done: list[int] = []
    assert verify(pristine, set_done=done.append) == []
    assert done == list(range(1, len(Plan(WORKLOAD)) + 1))


@pytest.mark.parametrize("seed", range(20))
def test_one_flipped_bit_anywhere_in_a_log_is_found_in_its_batch(pristine: Path, corpus: Path, seed: int) -> None:
    log = corpus / f"{FIRST}.log"
    at = random.Random(seed).randrange(log.stat().st_size)
    flip(log, at, 1 << seed % 8)
    problems = verify(corpus)
    assert problems
    assert {problem.path for problem in problems} == {f"{FIRST}.log"}
    start = max(place for place, _, _ in batches_of(pristine / f"{FIRST}.log") if place <= at)
    located = [problem.at for problem in problems if problem.at is not None]
    # The CRC does not cover base offset and leader epoch: these show as a break in the plan or the sums.
    if located:
        assert start <= located[0] <= at + 61, (start, at, [str(problem) for problem in problems])
    else:
        assert codes(problems) == ["manifest-mismatch"] * len(problems)


def test_a_changed_payload_is_reported_as_the_batchs_crc(corpus: Path) -> None:
    log = corpus / f"{FIRST}.log"
    at = next(at for at, _, magic in batches_of(log)[5:] if magic == 2)
    replace_bytes(log, at + 70, b"\xa5\x5a\xa5")
    problems = verify(corpus)
    assert codes(problems) == ["crc-mismatch"]
    assert problems[0].at == at + 17
    assert f"{FIRST}.log at byte {at + 17}" in str(problems[0])


def rebase(log: Path, change: Callable[[records.RecordBatch], None]) -> int:
    """Change the first idempotent batch and mend its CRC: only the plan can tell. Where the batch begins."""
    for (at, _, _), batch in zip(batches_of(log), records.decode(log.read_bytes()), strict=True):
        if batch.producer_id >= 0 and not batch.transactional and batch.compression == "none":
            change(batch)
            replace_bytes(log, at, records.encode_batch(batch))
            return at
    raise AssertionError("no such batch")


@pytest.mark.parametrize(
    ("name", "by", "words"),
    [("base_sequence", 1, "; the plan gives "), ("producer_id", 1000, "; the plan has no such producer")],
)
def test_a_wrong_producer_or_sequence_under_a_right_crc_is_found(corpus: Path, name: str, by: int, words: str) -> None:
    at = rebase(corpus / f"{FIRST}.log", lambda batch: setattr(batch, name, getattr(batch, name) + by))
    problem = verify(corpus)[0]
    assert (problem.code, problem.at) == ("sequence-off-plan", at)
    assert words in problem.message


def test_a_wrong_base_offset_is_found_though_no_crc_covers_it(corpus: Path) -> None:
    log = corpus / f"{FIRST}.log"
    replace_bytes(log, 0, struct.pack(">q", 1))
    problems = verify(corpus)
    assert problems[0].code == "offset-off-plan"
    assert problems[0].at == 0


def test_a_value_changed_under_a_right_crc_is_found_by_the_sums(corpus: Path) -> None:
    def change(batch: records.RecordBatch) -> None:
        value = batch.records[0].value or b""
        batch.records[0].value = bytes(len(value))

    rebase(corpus / f"{FIRST}.log", change)
    problems = verify(corpus)
    assert codes(problems) == ["manifest-mismatch", "manifest-mismatch"]
    assert "has crc32c" in problems[0].message
    assert "has fingerprint" in problems[1].message


@pytest.mark.parametrize("cut", [1, 30, 5000, "a batch", "everything"])
def test_a_cut_log_is_found(corpus: Path, cut: int | str) -> None:
    log = corpus / f"{FIRST}.log"
    sizes = {"a batch": batches_of(log)[-1][1], "everything": log.stat().st_size}
    log.write_bytes(log.read_bytes()[: -sizes.get(cut, cut)])  # type: ignore[arg-type, operator]
    found = codes(verify(corpus))
    if cut == "a batch":
        assert "offset-off-plan" in found
    else:
        assert found[0] in ("file-truncated", "offset-off-plan")
    assert cut != "everything" or found == ["file-truncated"]


def test_an_index_of_any_size_is_judged(corpus: Path) -> None:
    """Segments of 2 GiB with small batches have larger ones than is read of small files."""
    index = corpus / f"{FIRST}.timeindex"
    os.truncate(index, READ_BYTES_MAX + 12)
    assert codes(verify(corpus)) == ["index-mismatch"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_the_index_of_another_segment_is_found_at_its_first_wrong_entry(corpus: Path, suffix: str) -> None:
    here, there = sorted((corpus / "t-0").glob(f"*{suffix}"))[:2]
    mine, other = here.read_bytes(), there.read_bytes()
    here.write_bytes(other)
    there.write_bytes(mine)
    problems = verify(corpus)
    assert codes(problems) == ["index-mismatch"] * 2
    assert [problem.path for problem in problems] == [f"t-0/{here.name}", f"t-0/{there.name}"]
    width = {".index": 8, ".timeindex": 12, ".txnindex": 34}[suffix]
    first = next(at for at in range(0, len(mine), width) if mine[at : at + width] != other[at : at + width])
    assert problems[0].at == first


@pytest.mark.parametrize("name", ["t-0/.00000000000000000000.log.task-7.99.tmp", "t-1/notes.txt", "_manifest/x"])
def test_a_file_that_does_not_belong_is_named(corpus: Path, name: str) -> None:
    (corpus / name).write_text("")
    assert [(problem.code, problem.path) for problem in verify(corpus)] == [("file-unexpected", name)]


def wrong_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(Plan(WORKLOAD).topics[0])
    plain = kind.leader_epochs
    monkeypatch.setattr(kind, "leader_epochs", lambda topic: [(epoch, at + 1) for epoch, at in plain(topic)])


def wrong_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "checkpoint_text", lambda epochs: f"0\n{len(epochs)}\n")


def wrong_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = snapshot.encode
    for module in (snapshot, segment):
        monkeypatch.setattr(module, "encode", lambda made: plain(replace(one, timestamp=7) for one in made))


@pytest.mark.parametrize(
    ("break_generator", "code"),
    [
        (wrong_epochs, "checkpoint-mismatch"),
        (wrong_checkpoint, "checkpoint-mismatch"),
        (wrong_snapshot, "snapshot-mismatch"),
    ],
)
def test_verification_notices_a_mistake_of_the_generators_functions(
    break_generator: Callable[[pytest.MonkeyPatch], None],
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload = replace(WORKLOAD, topics=(replace(TOPIC, leader_epoch_offsets=300, legacy=Legacy(magic0_segments=1)),))
    generate(workload, tmp_path / "right")
    assert verify(tmp_path / "right") == []
    break_generator(monkeypatch)
    generate(workload, tmp_path / "wrong")
    assert set(codes(verify(tmp_path / "wrong"))) == {code}


def test_a_changed_checkpoint_is_found(corpus: Path) -> None:
    (corpus / "t-1/leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    assert codes(verify(corpus)) == ["checkpoint-mismatch"]


def test_a_missing_success_says_that_generation_did_not_finish(corpus: Path) -> None:
    (corpus / "_SUCCESS").unlink()
    assert codes(verify(corpus)) == ["not-finished"]


def test_a_manifest_row_that_was_changed_is_found_by_the_fingerprint_the_file_and_the_segment(corpus: Path) -> None:
    rows = list(Manifest(corpus / "_manifest"))
    rows[1] = replace(rows[1], records=rows[1].records + 1, bytes=rows[1].bytes + 1)
    write_manifest(corpus / "_manifest", rows)
    problems = verify(corpus)
    assert codes(problems) == ["fingerprint-mismatch", "file-changed", "manifest-mismatch", "manifest-mismatch"]
    assert f"the manifest says {rows[1].records}" in problems[3].message


def test_a_missing_a_foreign_and_a_wrong_manifest_row_are_found(corpus: Path) -> None:
    rows = list(Manifest(corpus / "_manifest"))
    changed = [*rows[1:-1], replace(rows[-1], last_offset=5), replace(rows[0], segment_id=77)]
    write_manifest(corpus / "_manifest", changed)
    (corpus / "_SUCCESS").write_text(corpus_fingerprint(changed) + "\n")
    found = codes(verify(corpus))
    assert {"row-missing", "row-off-plan", "row-unexpected"} <= set(found)


def test_a_repeated_manifest_row_is_found(corpus: Path) -> None:
    rows = list(Manifest(corpus / "_manifest"))
    write_manifest(corpus / "_manifest", [*rows, rows[0]])
    assert "row-repeated" in codes(verify(corpus))


def test_a_workload_that_was_changed_but_gives_the_same_plan_is_found(corpus: Path) -> None:
    """Other keys give other bytes, but the same offsets and sequences."""
    path = corpus / "_workload.toml"
    path.write_text(path.read_text().replace("cardinality = 1000000", "cardinality = 7"))
    assert [(problem.code, problem.path) for problem in verify(corpus)] == [("file-changed", "_workload.toml")]


def test_a_corpus_whose_success_has_no_sums_is_said_to_have_none(corpus: Path) -> None:
    success = corpus / "_SUCCESS"
    success.write_text(success.read_text().splitlines(keepends=True)[0])
    problems = verify(corpus)
    assert codes(problems) == ["file-changed", "file-changed"]
    assert all("has no SHA-256 in _SUCCESS" in problem.message for problem in problems)


def said(corpus: Path) -> str:
    """The error of a verification; empty if it finds nothing."""
    try:
        return "\n".join(str(problem) for problem in verify(corpus))
    except UsageError as error:
        return str(error)


def files_of(corpus: Path) -> list[Path]:
    return sorted(path for path in corpus.rglob("*") if path.is_file())


# A campaign flips more: each flip verifies the corpus.
@pytest.mark.parametrize("count", counts(40, 150, 10_000 if os.environ.get("KFUZZ_CAMPAIGN") == "1" else 2_500))
def test_one_flipped_bit_in_any_file_is_found_and_the_file_is_named(corpus: Path, count: int) -> None:
    files = files_of(corpus)
    # The logs have most bytes, and many other files are small: each file has the same chance, then each bit of it.
    chance = random.Random(count)
    silent = []
    for _ in range(count):
        path = chance.choice(files)
        whole = path.read_bytes()
        bit = chance.randrange(8 * len(whole))
        flip(path, bit // 8, 1 << bit % 8)
        name = path.relative_to(corpus).as_posix()
        if name not in said(corpus):
            silent.append((name, bit))
        path.write_bytes(whole)
    assert silent == []
    assert said(corpus) == ""


@pytest.mark.parametrize("kept", ["nothing", "half", "all but the last byte", "one byte more"])
def test_a_file_of_another_length_is_found_and_named(corpus: Path, kept: str) -> None:
    silent = []
    for path in files_of(corpus):
        whole = path.read_bytes()
        cut = {"nothing": b"", "half": whole[: len(whole) // 2], "all but the last byte": whole[:-1]}
        path.write_bytes(cut.get(kept, whole + b"\0"))
        name = path.relative_to(corpus).as_posix()
        if name not in said(corpus):
            silent.append(name)
        path.write_bytes(whole)
    assert silent == []


def test_each_file_that_is_missing_is_named(corpus: Path) -> None:
    silent = []
    for path in files_of(corpus):
        whole = path.read_bytes()
        path.unlink()
        name = path.relative_to(corpus).as_posix()
        what = said(corpus)
        if name not in what or (path.suffix in SUFFIXES and what != MISSING.format(name)):
            silent.append(name)
        path.write_bytes(whole)
    assert silent == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_two_files_that_were_swapped_are_both_named(corpus: Path, suffix: str) -> None:
    """Within a partition, and between partitions, where the offsets are the same."""
    paths = sorted(corpus.glob(f"t-*/*{suffix}"))
    for other in (paths[1], next(path for path in paths if path.parent.name == "t-1")):
        first, second = paths[0].read_bytes(), other.read_bytes()
        assert first != second
        paths[0].write_bytes(second)
        other.write_bytes(first)
        found = {problem.path for problem in verify(corpus)}
        swapped = {path.relative_to(corpus).as_posix() for path in (paths[0], other)}
        # The faults of a log come first, up to the limit of its segment. The snapshot of a swapped log, which has
        # the name of the next segment, is named only if that leaves room.
        assert found >= swapped
        same = [path for path in found if path.endswith(".snapshot") == (suffix == ".snapshot")]
        assert {path.partition(".")[0] for path in same} == {path.partition(".")[0] for path in swapped}
        assert len(found) - len(same) <= (2 if suffix == ".log" else 0)
        paths[0].write_bytes(first)
        other.write_bytes(second)


def change_last_marker(log: Path, change: Callable[[records.RecordBatch], None]) -> int:
    """Change the last marker and mend its CRC. Where it begins."""
    found = zip(batches_of(log), records.decode(log.read_bytes()), strict=True)
    at, batch = [(place[0], batch) for place, batch in found if batch.control][-1]
    change(batch)
    replace_bytes(log, at, records.encode_batch(batch))
    return at


def test_a_marker_of_another_producer_leaves_one_transaction_open_and_ends_an_unknown_one(corpus: Path) -> None:
    def change(batch: records.RecordBatch) -> None:
        batch.producer_id += 1000

    log = corpus / f"{FIRST}.log"
    size = log.stat().st_size
    at = change_last_marker(log, change)
    problems = {problem.code: problem for problem in verify(corpus)}
    assert problems["transaction-unknown"].at == at
    assert problems["transaction-open"].at == size


def test_a_control_record_that_is_no_marker_leaves_the_transaction_open(corpus: Path) -> None:
    """Type 2 is a leader change, which ends no transaction."""

    def change(batch: records.RecordBatch) -> None:
        batch.records[0].key = struct.pack(">hh", 0, 2)

    change_last_marker(corpus / f"{FIRST}.log", change)
    assert "transaction-open" in codes(verify(corpus))


def test_the_sums_are_right_for_every_codec_and_format(tmp_path: Path) -> None:
    """The generator sums the bytes that it writes; verification combines the CRCs of batches and payloads."""
    batches = Batches(records=Range(1, 60), codecs=tuple((codec, 1) for codec in CODECS))
    legacy = Legacy(magic0=0.2, magic1=0.3, codecs=(("none", 1), ("gzip", 1)))
    topic = Topic("t", batches=batches, legacy=legacy, transactions=TOPIC.transactions)
    [row] = generate(Workload(topics=(topic,), size=256 * KIB, segment_bytes=256 * KIB), tmp_path / "out")
    log = (tmp_path / "out" / row.path).read_bytes()
    walk = LogWalk(Plan(Workload(topics=(topic,), size=256 * KIB, segment_bytes=256 * KIB))[0], 4096)
    assert check_with(log, walk, profile="strict").findings == []
    found = {(batch.magic, batch.compression) for batch in records.batches(log)}
    old = {(magic, codec) for magic in (0, 1) for codec in ("none", "gzip")}
    assert found == old | {(2, codec) for codec in CODECS}
    assert (walk.crc32c, walk.fingerprint()) == (crc32c(log), row.fingerprint)
    assert verify(tmp_path / "out") == []


def at_zero(kind: str) -> Timestamps:
    return Timestamps(type=kind, start=0, records_per_second=10**9)


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (Topic("t", timestamps=at_zero("create"), legacy=Legacy(magic1=0.2)), 0),
        (Topic("t", timestamps=at_zero("log-append"), legacy=Legacy(magic1=0.2)), 0),
        (Topic("t", legacy=Legacy(magic0=1.0)), None),
    ],
)
def test_a_corpus_with_timestamps_of_zero_or_without_any_is_whole_and_its_rows_say_so(
    tmp_path: Path, topic: Topic, said: int | None
) -> None:
    [row] = generate(Workload(topics=(topic,), size=64 * KIB, segment_bytes=64 * KIB), tmp_path / "out")
    assert (row.min_timestamp, row.max_timestamp) == (said, said)
    assert verify(tmp_path / "out") == []


@pytest.mark.parametrize("kind", ["create", "log-append"])
def test_the_lowest_timestamp_of_a_row_is_that_of_a_batch_as_its_kind_has_it(tmp_path: Path, kind: str) -> None:
    """With log-append, all records of a batch have its max timestamp; the base timestamp says nothing."""
    topic = Topic("t", batches=Batches(records=Range(20, 20)), timestamps=Timestamps(type=kind))
    [row] = generate(Workload(topics=(topic,), size=64 * KIB, segment_bytes=64 * KIB), tmp_path / "out")
    first = next(iter(records.batches((tmp_path / "out" / row.path).read_bytes())))
    assert row.min_timestamp == (first.base_timestamp if kind == "create" else first.max_timestamp)
    assert first.base_timestamp < first.max_timestamp
    assert verify(tmp_path / "out") == []


def test_a_folder_that_cannot_be_verified_is_refused_in_one_sentence(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no corpus"):
        verify(tmp_path)
    (corpus / "_manifest/part-00000.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UsageError, match="not a readable Parquet file"):
        verify(corpus)
