"""A testee reads a hostile corpus on Spark: the result does not depend on the tasks, and a death costs one batch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import require_tool

from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import parse
from kfuzz.errors import KfuzzError, UsageError

pytestmark = pytest.mark.spark

WORKLOAD = parse(
    'size = "150KiB"\nsegment_bytes = "64KiB"\nseed = 3\n[[topics]]\nname = "traps"\nadversarial.share = 0.2\n',
    "the test",
)
# kfuzz's own testee: it dies of a record that is cut, and takes one kind of bad batch for good.
TESTEE = """
import json, os, sys
import helper
from kfuzz.conformance.judge import own

own._put(sys.stdout.buffer, own._handshake("kafka"))
for line in sys.stdin.buffer:
    found = own._answer(line, "kafka")
    if helper.dies(found):
        os._exit(9)
    if helper.lies(found):
        found = {"id": found["id"], "outcome": "accepted", "batches": []}
    print(json.dumps(found), flush=True)
"""
HELPER = """
def dies(found):
    return found.get("finding") == "record-truncated"

def lies(found):
    return found.get("finding") == "record-count-too-low"
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_tool("java", "install a Java runtime of version 17 or newer")
    out = tmp_path_factory.mktemp("hostile") / "out"
    generate(WORKLOAD, out)
    return out


@pytest.mark.full
def test_results_are_equal_for_any_number_of_tasks_and_name_what_was_wrong(corpus: Path, tmp_path: Path) -> None:
    from kfuzz.spark.conformance import conform
    from kfuzz.spark.sessions import session

    (tmp_path / "my_testee.py").write_text(TESTEE)
    (tmp_path / "helper.py").write_text(HELPER)
    argv = [sys.executable, "my_testee.py"]
    ship = [tmp_path / "my_testee.py", tmp_path / "helper.py"]
    spark = session("local[2,4]", "kfuzz tests")
    one, three = (conform(spark, corpus, argv, ship=ship, tasks=tasks) for tasks in (1, 3))
    assert one == three
    deviations = [deviation for result in one for deviation in result.deviations]
    assert {deviation.harm for deviation in deviations} == {"accepts", "kills"}
    assert all(deviation.reason for deviation in deviations)
    labels = sum(result.hostile for result in one)
    assert 0 < len(deviations) < labels < sum(result.batches for result in one)
    with pytest.raises(UsageError, match=r"no-such\.py is not a file; name the files of the testee"):
        conform(spark, corpus, argv, ship=[tmp_path / "no-such.py"])
    with pytest.raises(KfuzzError, match="the testee /bin/false does not start"):
        conform(spark, corpus, ["/bin/false"], tasks=2)


@pytest.mark.full
def test_the_entry_point_prints_the_result_and_its_exit_code_says_it(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kfuzz.spark.jobs import conform_main

    master = ["--master", "local[2,4]"]
    assert conform_main(["--out", str(corpus), "--tasks", "2", *master]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith(": 0 deviations, 0 unsupported")
    assert conform_main(["--out", str(corpus), "--json", *master]) == 0
    assert len(json.loads(capsys.readouterr().out)) == int(last.partition(" ")[0])
    assert conform_main(["--out", str(corpus), "--command", "  "]) == 2
    assert "--command is empty; give the command that starts the testee" in capsys.readouterr().err
    assert conform_main(["--out", str(corpus), "--command", "'x"]) == 2
    assert "correct the quotes" in capsys.readouterr().err
