"""The ready workloads in spark_jobs/workloads: each says whom it serves, and its corpus is whole."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from cli_driver import kfuzz
from made_corpora import generate_segment
from ready_workloads import READY, clean, small

from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import Topic, load

# Of each workload, the digest of a small corpus. A change of one is a change for users: CHANGELOG.md says it.
DIGESTS = Path(__file__).with_name("digests.toml")
PAGE = Path(__file__).parents[2] / "docs" / "corpora.md"


def names(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


def test_there_are_eight_or_more_and_the_guide_lists_them_all() -> None:
    assert len(READY) >= 8
    section = PAGE.read_text().partition("## Ready workloads")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == names(READY)


def test_no_two_have_a_topic_or_a_seed_in_common() -> None:
    """So one broker can hold the corpora of all."""
    topics = [topic.name for path in READY for topic in load(path).topics]
    seeds = [load(path).seed for path in READY]
    assert len(set(topics)) == len(topics)
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_each_says_whom_it_serves_and_is_described(path: Path) -> None:
    schema, about, *_ = path.read_text().splitlines()
    assert schema.startswith("#:schema ")
    assert re.fullmatch(r"# [A-Z].{40,}", about)
    done = kfuzz("corpus", "describe", path)
    assert (done.returncode, "segments: " in done.stdout) == (0, True)


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_the_small_corpus_of_each_is_whole(path: Path, tmp_path: Path) -> None:
    rows = generate(small(path), tmp_path / "out")
    assert verify(tmp_path / "out") == []
    assert sum(row.bytes for row in rows) < 32 << 20


def uncompressed(topic: Topic) -> Topic:
    """The topic without codecs, whose bytes change with the versions of their libraries."""
    none = (("none", 1),)
    batches, legacy = replace(topic.batches, codecs=none), replace(topic.legacy, codecs=none)
    return replace(topic, batches=batches, legacy=legacy, values=replace(topic.values, ratio=0))


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_the_bytes_of_each_never_change(path: Path) -> None:
    workload = small(path)
    workload = replace(workload, topics=tuple(map(uncompressed, workload.topics)))
    workload = resolve(workload, now_ms=1_700_000_000_000)
    digest = hashlib.sha256()
    for segment in Plan(workload):
        for data in generate_segment(segment, workload):
            digest.update(len(data).to_bytes(4, "big") + data)
    assert digest.hexdigest() == tomllib.loads(DIGESTS.read_text())[path.stem]


def test_all_but_the_one_with_hostile_batches_are_for_brokers() -> None:
    assert list(clean()) == [name for name in names(READY) if name != "hostile"]
