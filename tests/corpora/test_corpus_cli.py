"""`kfuzz corpus`: exit codes, one sentence for each mistake, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kfuzz.cli.main import main

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


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["corpus", *map(str, arguments)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_generate_then_verify_exits_0_and_damage_exits_1(
    workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("generate", workload, "--out", out) == 0
    assert "4 segments" in capsys.readouterr().out
    assert run("verify", out) == 0
    assert "no problem in 4 segments" in capsys.readouterr().out
    (out / "t-0/00000000000000000000.index").unlink()
    assert run("verify", out) == 1
    printed = capsys.readouterr().out
    assert "t-0/00000000000000000000.index: is missing; generate the corpus again [file-missing]" in printed


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
    assert described["corpus_fingerprint"] == made["fingerprint"]


def test_size_replaces_the_workloads(workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("generate", workload, "--out", tmp_path / "out", "--size", "128KiB") == 0
    assert "2 segments" in capsys.readouterr().out
    assert run("describe", workload, "--size", "1TiB") == 0
    printed = capsys.readouterr().out
    assert f"segments: {(1 << 40) // (64 << 10)}" in printed
    assert "topic t: 1 partitions" in printed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate", "absent.toml", "--out", "out"], "absent.toml does not exist; check the name"),
        (["generate", "small.toml", "--out", "small.toml"], "small.toml is not a directory; name a new or empty one"),
        (["generate", "small.toml", "--out", "."], "is not empty and holds no corpus; name a new or empty directory"),
        (["generate", "small.toml", "--out", "out", "--size", "much"], "'much' is no size; give one such as \"64MiB\""),
        (["generate", "small.toml", "--out", "out", "--size", "3"], "less than one record"),
        (["verify", "absent"], "absent holds no corpus"),
        (["describe", "."], "holds no corpus"),
        (["describe", "absent"], "absent does not exist; check the name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    workload: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(workload.parent)
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert [path.name for path in workload.parent.iterdir()] == ["small.toml"]
