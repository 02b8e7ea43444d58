"""``kfuzz fuzz``: exit codes and sentences."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from fuzzer_stub import CANARY_INPUT

from kfuzz import records
from kfuzz.cli.main import main
from kfuzz.conformance.judge.causes import Deviation, causes_of
from kfuzz.fuzz import campaign
from kfuzz.fuzz.targets import TARGETS
from kfuzz.records import Record, RecordBatch

GOOD = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")]))


def kfuzz(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["fuzz", *arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_list_shows_every_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert kfuzz("--targets") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(TARGETS)


def test_list_as_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert kfuzz("--targets", "--json") == 0
    assert json.loads(capsys.readouterr().out)["targets"][0]["name"] == "record-batch"


def test_reproducing_an_input_that_breaks_nothing_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good").write_bytes(GOOD)
    assert kfuzz("record-batch", "--reproduce", str(tmp_path / "good")) == 0
    assert "does not break it" in capsys.readouterr().out


def test_reproducing_a_crash_exits_with_1_and_shows_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.hex").write_text(f"# opens every gate\n{CANARY_INPUT.hex()}\n")
    assert kfuzz("canary", "--reproduce", str(tmp_path / "bad.hex")) == 1
    out = capsys.readouterr().out
    assert out.startswith("canary: kfuzz.fuzz.targets.PlantedBug: the canary is found")
    assert "in fuzz_canary" in out


def test_reproducing_as_json_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad").write_bytes(CANARY_INPUT)
    assert kfuzz("canary", "--reproduce", str(tmp_path / "bad"), "--json") == 1
    assert json.loads(capsys.readouterr().out)["find"]["input_hex"] == CANARY_INPUT.hex()


def test_a_file_with_two_inputs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two.hex").write_text("00\n01\n")
    assert kfuzz("canary", "--reproduce", str(tmp_path / "two.hex")) == 2
    assert "holds 2 inputs" in capsys.readouterr().err


def test_the_command_of_a_cause_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "my causes"
    file.write_bytes(CANARY_INPUT)
    [cause] = causes_of([Deviation("kfuzz", "panics", error="PlantedBug", data=CANARY_INPUT)])
    result = campaign.Result("canary", 1, "none", causes={file: cause})
    monkeypatch.setattr(campaign, "run", lambda *arguments, **options: [result])
    assert kfuzz("canary", "--out", str(tmp_path)) == 1
    command = capsys.readouterr().out.splitlines()[-1].removeprefix("    to run it again: ")
    assert kfuzz(*shlex.split(command)[2:]) == 1
    assert "the canary is found" in capsys.readouterr().out


@pytest.mark.parametrize(("interrupted", "code"), [(True, 130), (False, 0)])
def test_an_interrupted_campaign_ends_with_130_and_its_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, interrupted: bool, code: int
) -> None:
    result = campaign.Result("canary", 1, "none", executions=77, interrupted=interrupted)
    monkeypatch.setattr(campaign, "run", lambda *arguments, **options: [result])
    assert kfuzz("canary", "--out", str(tmp_path)) == code
    assert "77" in capsys.readouterr().out
