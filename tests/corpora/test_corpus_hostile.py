"""Hostile batches: each is where its label says and equals its vector. Verification finds a wrong batch or label."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from crc32c import crc32c
from made_corpora import flip, once
from ready_workloads import READY

from kfuzz import records
from kfuzz.corpora.generation import generate
from kfuzz.corpora.hostile import hostile_of, hostile_vectors, moved
from kfuzz.corpora.installation import open_finished
from kfuzz.corpora.labels import Label, encode_labels
from kfuzz.corpora.manifest import Manifest, Row
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import KIB, Workload, load
from kfuzz.errors import UsageError
from kfuzz.wire.records.framing import frames

[FILE] = [path for path in READY if path.stem == "hostile"]


def hostile_workload() -> Workload:
    workload = replace(load(FILE), size=900 * KIB, segment_bytes=128 * KIB)
    [topic] = workload.topics
    transactions = replace(topic.transactions, cross_share=0.5)
    return replace(workload, topics=(replace(topic, leader_epoch_offsets=300, transactions=transactions),))


out = once(hostile_workload())


def rows_of(out: Path) -> list[Row]:
    return list(Manifest(out / "_manifest"))


def labels_of(out: Path) -> list[Label]:
    files = sorted(out.glob("_labels/*.parquet"))
    return [Label(**row) for path in files for row in pq.read_table(path).to_pylist()]


def test_each_label_stands_at_its_vector(out: Path) -> None:
    vectors = {one.vector.id: one for one in hostile_vectors()}
    labels = labels_of(out)
    assert len(labels) > 100
    for label in labels:
        data = (out / label.path).read_bytes()[label.at : label.at + label.bytes]
        one = vectors[label.vector]
        offset, length, epoch = struct.unpack_from(">qii", data)
        assert (offset, length + 12, epoch) == (label.base_offset, label.bytes, label.base_offset // 300)
        assert data[16:] == one.vector.data[16:]
        assert (label.verdict, label.finding) == (one.verdict, one.finding)
    assert {label.verdict for label in labels} == {"valid", "acceptable", "invalid"}


def test_everything_between_the_labels_is_valid_and_the_manifest_counts_it(out: Path) -> None:
    for row in rows_of(out):
        data = (out / row.path).read_bytes()
        here = {label.at: label for label in labels_of(out) if label.path == row.path}
        places = [(at, size) for at, size, _ in frames(data)]
        assert sum(size for _, size in places) == len(data)
        clean = [data[at : at + size] for at, size in places if at not in here]
        assert len(clean) + len(here) == len(places) == row.batches
        checked = [records.check(batch, profile="strict") for batch in clean]
        assert not any(one.findings for one in checked)
        assert sum(one.record_count for one in checked) == row.records
        verdicts = Counter(label.verdict for label in here.values())
        assert (row.acceptable, row.invalid) == (verdicts["acceptable"], verdicts["invalid"])
        assert row.valid + row.acceptable + row.invalid == row.batches
        assert row.crc32c == crc32c(data)


def test_offsets_continue_after_hostile_batches(out: Path) -> None:
    taken = {one.vector.id: one.offsets for one in hostile_vectors()}
    for row in rows_of(out):
        data = (out / row.path).read_bytes()
        here = {label.at: label for label in labels_of(out) if label.path == row.path}
        offset = row.first_offset
        for at, size, _ in frames(data):
            assert int.from_bytes(data[at : at + 8], "big") == offset
            if at in here:
                offset += taken[here[at].vector]
            else:
                [batch] = records.decode(data[at : at + size])
                offset = batch.last_offset + 1
        assert offset == row.last_offset + 1


def test_a_larger_size_and_a_second_run_change_no_whole_segment(out: Path, tmp_path: Path) -> None:
    grown = tmp_path / "out"
    generate(hostile_workload().resized(500 * KIB), grown)
    generate(hostile_workload(), grown)
    assert verify(grown) == []
    assert rows_of(grown) == rows_of(out)
    assert labels_of(grown) == labels_of(out)


def said(out: Path) -> set[tuple[str, str]]:
    return {(problem.path, problem.code) for problem in verify(out)}


@pytest.mark.full
def test_verify_finds_a_wrong_label_and_a_wrong_batch(out: Path) -> None:
    assert said(out) == set()
    file = sorted(out.glob("_labels/*.parquet"))[0]
    name = file.relative_to(out).as_posix()
    whole = file.read_bytes()
    labels = [Label(**row) for row in pq.read_table(file).to_pylist()]
    log = out / labels[0].path

    def with_labels(changed: Sequence[Label]) -> set[tuple[str, str]]:
        file.write_bytes(encode_labels(changed))
        found = said(out)
        file.write_bytes(whole)
        return found

    first, *others = labels
    assert (name, "label-mismatch") in with_labels([replace(first, verdict="none"), *others])
    assert (name, "label-mismatch") in with_labels([replace(first, vector="records/v2/no-such"), *others])
    assert (name, "label-mismatch") in with_labels([replace(first, base_offset=first.base_offset + 1), *others])
    assert with_labels(labels[::-1])
    # Without its label, a bad batch is bad, and a valid one is off the plan.
    bad = next(at for at, label in enumerate(labels) if label.verdict == "invalid")
    assert any(path == first.path for path, _ in with_labels(labels[:bad] + labels[bad + 1 :]))
    file.unlink()
    assert (name, "file-missing") in said(out)
    file.write_bytes(whole)
    for place in (first.at + 5, first.at + 14, first.at + 20, first.at + first.bytes - 1):
        flip(log, place)
        assert any(path == first.path for path, _ in said(out)), place
        flip(log, place)
    assert said(out) == set()
    # A damaged file of labels does not hide other damage.
    other = rows_of(out)[-1].path
    (out / other).write_bytes(b"")
    for damaged in (whole[: len(whole) // 2], encode_labels(labels * 100)):
        file.write_bytes(damaged)
        assert said(out) == {(name, "label-mismatch"), (other, "file-truncated")}


def test_the_resolved_workload_names_its_vectors_and_another_suite_is_refused() -> None:
    workload = resolve(hostile_workload())
    [topic] = workload.topics
    assert len(topic.adversarial.digest) == 64
    assert resolve(workload) == workload
    other = replace(topic.adversarial, digest="0" * 64)
    with pytest.raises(UsageError, match="are not those that the corpus was begun with"):
        hostile_of(other)
    with pytest.raises(UsageError, match=r"no vector that matches records/v0/\* is one whole batch of magic 2"):
        hostile_vectors("records/v0/*")
    with pytest.raises(UsageError, match="no vector matches"):
        hostile_vectors("nothing/*")


def test_only_the_chosen_vectors_are_used(tmp_path: Path) -> None:
    workload = hostile_workload()
    [topic] = workload.topics
    chosen = replace(topic.adversarial, vectors="records/v2/count/*")
    generate(replace(workload, topics=(replace(topic, adversarial=chosen),)), tmp_path / "out")
    names = {label.vector for label in labels_of(tmp_path / "out")}
    assert len(names) > 5
    assert all(name.startswith("records/v2/count/") for name in names)
    assert verify(tmp_path / "out") == []


def test_a_broker_gets_no_hostile_corpus(out: Path) -> None:
    with pytest.raises(UsageError, match="has hostile batches in topic traps, and a broker would cut its log there"):
        open_finished(out)


def test_every_moved_vector_is_judged_as_before() -> None:
    for one in hostile_vectors():
        before = records.check(one.vector.data)
        after = records.check(moved(one.vector.data, 1 << 40, 3))
        assert [(found.code, found.at) for found in after.findings] == [
            (found.code, found.at) for found in before.findings
        ]
