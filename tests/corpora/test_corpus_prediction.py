"""The figures that `kfuzz corpus describe` predicts, compared with what generation makes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_corpora import generate_segment

from kfuzz.cli.main import main
from kfuzz.corpora import prediction
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.prediction import TASK_BYTES, TASKS_MAX, predict, tasks_of
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.summary import show_bytes
from kfuzz.corpora.workload import MIB, Topic, Workload, load, parse

WORKLOADS = Path(__file__).parents[2] / "spark_jobs" / "workloads"
RATIO = """
size = "16MiB"
segment_bytes = "4MiB"
[[topics]]
name = "big"
partitions = 2
values = { size = 5000, ratio = 4 }
batches = { records = 50, codecs = "zstd" }
[[topics]]
name = "json"
values = { kind = "json", fields = [{ name = "id", type = "uuid" }, { name = "n", type = "name" }] }
timestamps = { end = "now" }
batches = { codecs = "snappy" }
"""


def made(workload: Workload) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for segment in Plan(workload):
        name = segment.topic.name
        sizes[name] = sizes.get(name, 0) + len(generate_segment(segment, workload).log)
    return sizes


@pytest.mark.parametrize("name", ["mixed", "ratio"])
def test_the_predicted_bytes_are_those_that_generation_makes(name: str) -> None:
    workload = load(WORKLOADS / "mixed.toml").resized(32 * MIB) if name == "mixed" else parse(RATIO, "ratio")
    workload = resolve(workload)
    found = predict(Plan(workload))
    sizes = made(workload)
    assert {topic.name: topic.compressed_bytes for topic in found.topics} == pytest.approx(sizes, rel=0.06)
    assert found.compressed_bytes == sum(topic.compressed_bytes for topic in found.topics)
    none = (("none", 1),)
    plain = replace(
        workload,
        topics=tuple(
            replace(topic, batches=replace(topic.batches, codecs=none), legacy=replace(topic.legacy, codecs=none))
            for topic in workload.topics
            if not topic.values.ratio
        ),
    )
    assert found.bytes == pytest.approx(workload.size, rel=0.01)
    for topic_name, size in made(replace(plain, size=plain.size)).items():
        weights = sum(topic.weight for topic in workload.topics)
        kept = sum(topic.weight for topic in plain.topics)
        [predicted] = [topic.bytes for topic in found.topics if topic.name == topic_name]
        assert predicted == pytest.approx(size * kept / weights, rel=0.03)


def test_a_larger_corpus_takes_more_of_everything_in_proportion() -> None:
    workload = resolve(parse(RATIO, "ratio"))
    small, large = predict(Plan(workload)), predict(Plan(workload.resized(workload.size << 20)))
    assert large.bytes / small.bytes == pytest.approx(1 << 20, rel=0.01)
    assert large.compressed_bytes / small.compressed_bytes == pytest.approx(1 << 20, rel=0.01)
    assert (small.tasks, large.tasks) == (1, 16 << 10)
    assert 0 < small.core_hours < large.core_hours


def test_a_task_has_about_a_gibibyte_and_at_least_one_segment() -> None:
    assert tasks_of(1, 1) == 1
    assert tasks_of(5 * TASK_BYTES, 1000) == 5
    assert tasks_of(5 * TASK_BYTES + 1, 1000) == 6
    assert tasks_of(5 * TASK_BYTES, 3) == 3
    assert tasks_of(1 << 50, 1 << 20) == TASKS_MAX


@pytest.mark.parametrize("path", sorted(WORKLOADS.glob("*.toml")), ids=lambda path: path.stem)
def test_a_ready_workload_has_a_plan_of_a_pebibyte(path: Path) -> None:
    plan = Plan(resolve(load(path).resized(1 << 50)))
    assert len(plan) >= 1 << 20
    assert plan[len(plan) - 1].last_offset > 0


def test_describe_shows_the_estimate_as_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.toml"
    path.write_text(RATIO)
    for arguments in ([], ["--json"]):
        with pytest.raises(SystemExit) as caught:
            main(["corpus", "describe", str(path), "--size", "1TiB", *arguments])
        assert caught.value.code == 0
    text, _, document = capsys.readouterr().out.partition("{")
    [estimate] = [line for line in text.splitlines() if line.startswith("estimate: ")]
    assert " GB on disk (1.1 TB uncompressed, " in estimate
    assert ", 1024 tasks, " in estimate
    assert estimate.endswith(" core-hours here without the disk")
    found = json.loads("{" + document)
    assert found["estimate"].keys() == {"bytes", "compressed_bytes", "tasks", "core_hours"}
    assert found["estimate"]["tasks"] == 1024
    big, other = found["topics"]
    assert big["estimate"]["bytes"] / big["estimate"]["compressed_bytes"] == pytest.approx(4, rel=0.1)
    assert big["first_timestamp"] == 1_700_000_000_000 < big["last_timestamp"]
    assert other["first_timestamp"] < other["last_timestamp"]
    assert list(tmp_path.iterdir()) == [path]


def test_sizes_are_shown_in_three_digits() -> None:
    shown = [show_bytes(size) for size in (0, 999, 1000, 123_456, 999_499, 999_500, 10**9, 1_234 * 10**12, 10**18)]
    assert shown == ["0 B", "999 B", "1 kB", "123 kB", "999 kB", "1 MB", "1 GB", "1.234 PB", "1000 PB"]


def test_topics_that_differ_only_in_name_and_weight_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [f'[[topics]]\nname = "t{at}"\nweight = {at % 3 + 1}\n' for at in range(300)]
    plan = Plan(parse("\n".join(['size = "64MiB"', *topics, '[[topics]]\nname = "u"\nvalues = { size = 9 }']), "many"))
    measured: list[str] = []
    done: list[int] = []
    sample = prediction._sample

    def noted(topic: Topic, workload: Workload) -> tuple[int, int, float]:
        measured.append(topic.name)
        return sample(topic, workload)

    monkeypatch.setattr(prediction, "_sample", noted)
    found = predict(plan, set_done=done.append)
    assert (measured, done) == (["t0", "u"], list(range(1, 302)))
    assert found.topics[2].compressed_bytes == pytest.approx(3 * found.topics[0].compressed_bytes, rel=0.01)
