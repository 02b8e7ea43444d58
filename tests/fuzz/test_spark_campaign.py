"""Campaigns on Spark: one corpus for all tasks, causes that do not depend on their number, and lost executors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from conftest import require_tool
from fuzzer_stub import CANARY_INPUT

from kfuzz.errors import KfuzzError
from kfuzz.storage import LocalTarget


@pytest.fixture(scope="module", autouse=True)
def java_here() -> None:
    pytest.importorskip("pyspark")
    require_tool("java", "install a Java runtime of version 17 or newer")


def share(place: Path, *inputs: bytes) -> None:
    for data in inputs:
        LocalTarget(place).write(f"canary/corpus/{hashlib.sha1(data).hexdigest()}", data)


@pytest.mark.full
@pytest.mark.clang
@pytest.mark.spark
def test_causes_of_a_replay_are_equal_for_any_number_of_tasks(tmp_path: Path) -> None:
    from kfuzz.spark.campaigns import replay_shared
    from kfuzz.spark.sessions import session

    share(tmp_path, CANARY_INPUT, CANARY_INPUT[:-1], CANARY_INPUT + CANARY_INPUT)
    spark, place = session("local[2,4]", "kfuzz tests"), LocalTarget(tmp_path)
    one, three = (replay_shared(spark, ["canary", "compression"], place, tasks=tasks) for tasks in (1, 3))
    assert one == three
    inputs, causes = one
    assert inputs > 50
    assert causes["compression"] == []
    [cause] = causes["canary"]
    assert (cause.count, cause.smallest.data) == (2, CANARY_INPUT)


@pytest.mark.full
@pytest.mark.clang
@pytest.mark.spark
def test_the_entry_point_says_what_was_found_and_its_exit_code_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kfuzz.spark.jobs import campaign_main

    share(tmp_path, CANARY_INPUT)
    common = ["--out", str(tmp_path), "--time", "2s", "--master", "local[2,4]"]
    assert campaign_main(["compression", "canary", *common, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [task["target"] for task in document["tasks"]] == ["compression", "canary"]
    assert document["inputs"] == sum(task["executions"] for task in document["tasks"]) > 1000
    [cause] = document["causes"]["canary"]
    assert (tmp_path / f"canary/causes/panics-{cause['id']}").is_file()
    assert campaign_main(["compression", *common]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "compression: 0 causes"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["canery"], "did you mean canary"),
        (["canary", "--time", "0s"], "'0s' is not a time"),
        (["canary", "--time", "8d"], "--time must be at most 604800s"),
        (["canary", "--seed", "0"], "--seed a whole number from 1"),
        (["canary", "--tasks", "0"], "--tasks is 0; give a whole number"),
        (["canary", "--out", __file__], "is not a directory"),
    ],
)
def test_wrong_use_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    from kfuzz.spark.jobs import campaign_main

    assert campaign_main([*arguments, *([] if "--out" in arguments else ["--out", str(tmp_path / "out")])]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_executor_with_other_code_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import kfuzz
    from kfuzz.spark import campaigns

    own = campaigns._code()
    campaigns._begin(own)
    monkeypatch.setattr(kfuzz, "__file__", str(tmp_path / "__init__.py"))
    tmp_path.joinpath("part.py").touch()
    with pytest.raises(KfuzzError, match=r"an executor has kfuzz 0\.1\S* \(code \w+\), and the driver has"):
        campaigns._begin(own)
