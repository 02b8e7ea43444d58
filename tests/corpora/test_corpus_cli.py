"""`kfuzz corpus`: exit codes, one sentence for each mistake, JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from made_corpora import run
from signals import KFUZZ, interrupt_when, start

from kfuzz.corpora.verification import verify
from kfuzz.spark import jobs

TOML = """size = "256KiB"
segment_bytes = "64KiB"
[[topics]]
name = "t"
"""


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TOML)
    return path


def test_generate_then_verify_exits_0_and_damage_exits_1(
    workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("generate", workload, "--out", out) == 0
    told = capsys.readouterr().out.splitlines()
    assert "4 segments" in told[0]
    # The default timestamps are old: the last line says what a broker does to such a corpus, and the remedy.
    assert told[-1].startswith("timestamps run from 2023-11-14 22:13:20 UTC to 2023-11-14 22:13:")
    assert "set retention.ms=-1 on its topics" in told[-1]
    assert run("verify", out) == 0
    told = capsys.readouterr().out
    assert "no problem in 4 segments" in told
    assert re.search(r", \d+ MB in \d+\.\d s \(\d+ MB/s\)\n$", told)
    (out / "t-0/00000000000000000000.index").unlink()
    assert run("verify", out) == 1
    printed = capsys.readouterr().out
    assert "t-0/00000000000000000000.index: is missing; generate the corpus again [file-missing]" in printed
    assert f"{out}: 1 problem in 4 segments" in printed


def test_json_is_one_document_for_every_verb(
    workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("generate", workload, "--out", out, "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert run("verify", out, "--json") == 0
    verified = json.loads(capsys.readouterr().out)
    assert run("describe", out, "--json") == 0
    described = json.loads(capsys.readouterr().out)
    assert made["segments"] == verified["segments"] == described["segments"] == 4
    assert made["records"] == verified["records"] == described["records"]
    assert verified["problems"] == []
    assert made["min_timestamp"] == 1_700_000_000_000 < made["max_timestamp"]
    assert described["corpus_fingerprint"] == made["fingerprint"]


def test_without_timestamps_and_beyond_the_calendar_nothing_breaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old.toml").write_text(TOML + "[topics.legacy]\nmagic0 = 1.0\n")
    assert run("generate", tmp_path / "old.toml", "--out", tmp_path / "old") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("fingerprint ")
    (tmp_path / "far.toml").write_text(TOML + f"[topics.timestamps]\nstart = {1 << 52}\n")
    assert run("generate", tmp_path / "far.toml", "--out", tmp_path / "far") == 0
    assert f"from {1 << 52} ms to" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("place", "remedy"),
    [
        ("nosuch://bucket/x", "which fsspec does not know; name a directory, or a URI such as s3://bucket/corpus"),
        ("gs:/bucket/x", "gs:/bucket/x lacks a slash; write gs://bucket/x"),
        ("s3:///x", "s3:///x names no bucket; write s3://bucket/corpus"),
        ("file://host/x", "; write file:///"),
    ],
)
@pytest.mark.parametrize("driver", ["kfuzz", "spark"])
def test_a_place_that_no_file_system_has_is_refused_by_every_verb_of_both_drivers(
    workload: Path,
    place: str,
    remedy: str,
    driver: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(workload.parent)
    if driver == "kfuzz":
        codes = [run("generate", workload, "--out", place), run("verify", place), run("describe", place)]
    else:
        codes = [jobs.generate_main(["--workload", str(workload), "--out", place]), jobs.verify_main(["--out", place])]
    assert codes == [2] * len(codes)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(codes)
    assert all(place in line and remedy in line for line in told), told
    assert [path.name for path in workload.parent.iterdir()] == ["small.toml"]


def test_a_file_url_is_the_path_in_it_for_every_verb(
    workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = f"file://{tmp_path}/out"
    assert run("generate", f"file:{workload}", "--out", out) == 0
    assert run("verify", out) == run("describe", f"file://localhost{tmp_path}/out") == 0
    assert f"{tmp_path}/out: no problem" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "small.toml"]
    assert verify(out) == []


def test_an_interrupted_generation_is_one_sentence_and_leaves_no_half_file(tmp_path: Path, workload: Path) -> None:
    out = tmp_path / "out"
    running = start([*KFUZZ, "corpus", "generate", workload, "--out", out, "--size", "8GiB"])
    out_told, told = interrupt_when(running, lambda: len(list(out.glob("t-0/*.log"))) > 2, within_s=60)
    assert running.returncode == 130
    assert out_told == ""
    assert told.splitlines()[-1] == "kfuzz: interrupted"
    assert {line.partition(":")[0] for line in told.splitlines() if line} <= {"segments", "kfuzz"}
    assert list(out.rglob(".*")) == []
    assert not (out / "_SUCCESS").exists()


def test_size_replaces_the_workloads(workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("generate", workload, "--out", tmp_path / "out", "--size", "128KiB") == 0
    assert "2 segments" in capsys.readouterr().out
    assert run("describe", workload, "--size", "1TiB") == 0
    printed = capsys.readouterr().out
    assert f"segments: {(1 << 40) // (64 << 10)}" in printed
    assert "topic t: 1 partitions" in printed
