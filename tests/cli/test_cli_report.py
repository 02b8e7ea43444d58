"""``kfuzz report``: the result of a run in other forms, and wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_driver import kfuzz_process

GLOB = "records/v2/count/*"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("run") / "result.json"
    kfuzz_process("conform", GLOB, "--testee", "kfuzz", "--testee", "kafka-python", "--json", file)
    return file


def test_a_result_becomes_every_other_form(result: Path, tmp_path: Path) -> None:
    page, tests = tmp_path / "result.html", tmp_path / "result.xml"
    done = kfuzz_process("report", result, "--html", page, "--junit", tests)
    assert done.returncode == 0, done.stderr
    assert "accepts what Kafka refuses: " in done.stdout
    assert "records/v2/count" in page.read_text()
    assert tests.read_text().startswith("<?xml")
    again = kfuzz_process("report", result, "--json")
    assert json.loads(again.stdout) == json.loads(result.read_text())


def test_two_results_are_compared_by_their_causes(result: Path, tmp_path: Path) -> None:
    same = kfuzz_process("report", result, result)
    assert (same.returncode, same.stdout) == (0, "nothing changed\n")
    document = json.loads(result.read_text())
    mended = {cell["text"]: cell for case in document["cases"] for cell in case["cells"].values() if "harm" in cell}
    for cell in mended.values():
        cell.clear()
        cell.update({"outcome": "pass", "standing": "ok"})
    (tmp_path / "newer.json").write_text(json.dumps(document))
    done = kfuzz_process("report", result, tmp_path / "newer.json")
    assert done.returncode == 1
    assert done.stdout.startswith("gone: kafka-python@")
    changes = json.loads(kfuzz_process("report", result, tmp_path / "newer.json", "--json").stdout)
    assert changes["gone"]
    assert changes["new"] == changes["moved"] == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["README.md"], "README.md: not JSON"),
        (["vectors/schema.json"], "not a report of `kfuzz conform --json`"),
        (["nowhere.json"], "nowhere.json"),
        (["a.json", "b.json", "--html", "out.html"], "are about one result"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: list[str], complaint: str) -> None:
    done = kfuzz_process("report", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
