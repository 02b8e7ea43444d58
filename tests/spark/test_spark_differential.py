"""A differential on Spark: equal results for any number of tasks, and an entry point that says what differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import require_tool

from kfuzz.conformance.differential.sharing import Shared
from kfuzz.conformance.protocol.testees import all_testees


@pytest.fixture(scope="module", autouse=True)
def java_here() -> None:
    pytest.importorskip("pyspark")
    require_tool("java", "install a Java runtime of version 17 or newer")


@pytest.mark.full
def test_results_are_equal_for_any_number_of_tasks() -> None:
    from kfuzz.spark.differing import differ_shared
    from kfuzz.spark.sessions import session

    [testee] = [testee for testee in all_testees() if testee.name == "kfuzz"]
    spark = session("local[2,4]", "kfuzz tests")
    shared = Shared("records", 5, 400, part_inputs=100)
    one, three = (differ_shared(spark, shared, testee, tasks=tasks) for tasks in (1, 3))
    assert one == three
    assert (one.inputs, one.agreed, one.deviations) == (400, 400, [])


@pytest.mark.full
def test_the_entry_point_prints_the_result_and_its_exit_code_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kfuzz.spark.jobs import differential_main

    common = ["--testee", "kfuzz", "--out", str(tmp_path), "--master", "local[2,4]"]
    assert differential_main([*common, "--count", "300", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["inputs"], document["agreed"], document["causes"]) == (300, 300, [])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--testee", "kafka-clinets"], "did you mean kafka-clients"),
        (["--testee", "kafka-clients"], "name one of them"),
        (["--count", "0"], "--count must be 1 or more"),
        (["--what", "streams", "--role", "log"], "--role is about records; leave it out with --what streams"),
        (["--testee", "kfuzz", "--out", __file__], "is not a directory; name another place"),
    ],
)
def test_wrong_use_is_one_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str) -> None:
    from kfuzz.spark.jobs import differential_main

    assert differential_main(arguments) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.out == ""
