"""Growing: whole segments stay untouched, and the result is the corpus that was made at once."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from test_corpus_resume import Writes, digests, writes

from kfuzz.corpora import generation
from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import MANY_BYTES, Plan, decided
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import GIB, KIB, MIB, Batches, Keys, Producers, Range, Topic, Transactions, Values, Workload
from kfuzz.corpora.workload import parse as parse_workload
from kfuzz.errors import UsageError

__all__ = ["writes"]

TOPICS = (
    Topic("a", partitions=3, transactions=Transactions(producers=2, share=0.4, records=30, abort_share=0.5)),
    Topic("b-c", partitions=2, weight=2, producers=Producers(share=0.5), batches=Batches(records=Range(1, 40))),
)
WORKLOAD = Workload(topics=TOPICS, size=1100 * KIB, segment_bytes=64 * KIB)


@pytest.mark.parametrize("sizes", [(1100, 1101), (1100, 1700, 2500), (500, 4000), (1120, 1120 + 7 * 64)])
def test_a_corpus_that_grew_is_the_one_made_at_once(tmp_path: Path, writes: Writes, sizes: tuple[int, ...]) -> None:
    out = tmp_path / "out"
    generate(WORKLOAD.resized(sizes[0] * KIB), out)
    for smaller, larger in pairwise(sizes):
        held, plan = Plan(WORKLOAD.resized(smaller * KIB)), Plan(WORKLOAD.resized(larger * KIB))
        lasts = {max(s.path for s in held if s.directory == directory) for directory in held.directories()}
        kept = {segment.path for segment in held} - lasts
        before = {path: (out / path).stat().st_mtime_ns for path in kept}
        writes.ids.clear()
        rows = generate(plan.workload, out)
        assert {plan[segment_id].path for segment_id in writes.ids} == {s.path for s in plan} - kept
        assert {path: (out / path).stat().st_mtime_ns for path in kept} == before
        assert len(rows) == len(plan)
    generate(WORKLOAD.resized(sizes[-1] * KIB), tmp_path / "once")
    assert digests(out) == digests(tmp_path / "once")
    assert verify(out) == []


def test_the_ids_of_kept_segments_are_those_of_equal_segments_in_the_larger_plan() -> None:
    chance = random.Random(1)
    for _ in range(50):
        size = chance.randrange(600, 5000) * KIB
        held, plan = Plan(WORKLOAD.resized(size)), Plan(WORKLOAD.resized(size + chance.randrange(1, 5000) * KIB))
        carried = [held.carried(segment_id, plan) for segment_id in range(len(held))]
        assert carried.count(None) == len(held.directories())
        for segment, segment_id in zip(held, carried, strict=True):
            if segment_id is not None:
                assert plan[segment_id] == segment


@pytest.mark.parametrize("step", ["_carry", "render", "success_text", "write_segment"])
def test_growth_that_stops_anywhere_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    out, larger = tmp_path / "out", WORKLOAD.resized(2000 * KIB)
    generate(WORKLOAD, out)
    plain, calls = getattr(generation, step), []

    def stops(*rest: Any) -> Any:
        calls.append(step)
        if len(calls) == (4 if step == "write_segment" else 1):
            raise KeyboardInterrupt
        return plain(*rest)

    with monkeypatch.context() as patch:
        patch.setattr(generation, step, stops)
        with pytest.raises(KeyboardInterrupt):
            generate(larger, out)
    generate(larger, out, resume="sizes")
    generate(larger, tmp_path / "once")
    assert digests(out) == digests(tmp_path / "once")


def test_an_unfinished_corpus_grows_while_it_is_resumed(tmp_path: Path, writes: Writes) -> None:
    out, larger = tmp_path / "out", WORKLOAD.resized(2000 * KIB)
    writes.limit = 7
    with pytest.raises(KeyboardInterrupt):
        generate(WORKLOAD, out, jobs=1)
    writes.limit = 1000
    with pytest.raises(UsageError, match="unfinished corpus of this workload; add --resume"):
        generate(larger, out)
    writes.ids.clear()
    generate(larger, out, resume="sizes")
    held = Plan(WORKLOAD)
    lasts = sum(held.carried(segment_id, Plan(larger)) is None for segment_id in range(7))
    assert 0 < lasts < 7
    assert len(writes.ids) == len(Plan(larger)) - 7 + lasts
    generate(larger, tmp_path / "once")
    assert digests(out) == digests(tmp_path / "once")


def test_growth_that_the_disk_cannot_hold_is_refused_at_once(tmp_path: Path) -> None:
    generate(WORKLOAD, tmp_path / "out")
    before = digests(tmp_path / "out")
    with pytest.raises(UsageError, match=r"the corpus takes \d+ KiB more, but \d+ B are free"):
        generate(WORKLOAD.resized(1 << 59), tmp_path / "out")
    assert digests(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"size": 1099 * KIB}, r"holds 1100 KiB of this workload, and a corpus cannot shrink to 1099 KiB; raise size"),
        ({"seed": 1}, r"another workload \(seed = 0 there, seed = 1 here\), and only its size can grow; .*--overwrite"),
        ({"segment_bytes": 128 * KIB}, r"\(segment_bytes = 65536 there, segment_bytes = 131072 here\)"),
        ({"topics": TOPICS[:1]}, r"\( there, nothing here\)|\(.* there, nothing here\)"),
        ({"topics": (replace(TOPICS[0], values=Values(size=Range(9, 9))), TOPICS[1])}, r"max = 100.* max = 9"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_any_other_change_is_refused_and_changes_nothing(
    tmp_path: Path, change: dict[str, Any], sentence: str, finished: bool
) -> None:
    out = tmp_path / "out"
    generate(WORKLOAD, out)
    if not finished:
        (out / "_SUCCESS").unlink()
    before = digests(out)
    with pytest.raises(UsageError, match=sentence):
        generate(replace(WORKLOAD, **change), out, resume="sizes")
    assert digests(out) == before


def test_the_size_of_segments_is_decided_when_a_corpus_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.corpora.plan.SEGMENT_BYTES", 64 * KIB)
    monkeypatch.setattr("kfuzz.corpora.plan.MANY_BYTES", MIB)
    open_size = parse_workload('[[topics]]\nname = "t"\n', "w")
    generate(open_size.resized(MIB), tmp_path / "out")
    assert "segment_bytes = 65536\n" in (tmp_path / "out/_workload.toml").read_text()
    generate(open_size.resized(2 * MIB), tmp_path / "out")
    generate(replace(open_size, segment_bytes=64 * KIB, size=2 * MIB), tmp_path / "once")
    assert digests(tmp_path / "out") == digests(tmp_path / "once")


def test_segments_are_larger_above_a_tebibyte_where_kafka_can_hold_them() -> None:
    large = Workload(topics=(Topic("t"),), size=MANY_BYTES + 1)
    tiny = Topic("t", keys=Keys(size=Range(0, 0)), values=Values(size=Range(1, 1)))
    assert decided(large).segment_bytes == GIB
    assert decided(large.resized(MANY_BYTES)).segment_bytes == 64 * MIB
    small = decided(replace(large, topics=(tiny,))).segment_bytes
    assert 64 * MIB <= small < GIB
    assert decided(replace(large, segment_bytes=MIB)).segment_bytes == MIB
    assert len(Plan(large.resized(100 << 40))) > 100_000
