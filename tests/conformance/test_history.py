"""``kfuzz report --history NAME``: which causes each version of an implementation has, what came, and what went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz
from made_results import made_result

from kfuzz.conformance.judge.compare import cases_of
from kfuzz.vectors import load_suite

CASES = cases_of(load_suite("records/v2/header/*"), ["consumer"])[:6]
PASS = {"outcome": "pass", "standing": "ok"}
NONE = {"outcome": "unsupported", "standing": "ok"}
UNASKED = {"outcome": "not-asked", "standing": "ok"}


def fault(line: int, error: str = "TypeError: no list") -> dict[str, Any]:
    answer = {"outcome": "fault", "error": error, "at": f"lib/read.py:{line}"}
    return {"outcome": "fault", "standing": "listed", "harm": "panics", "text": error, "answer": answer}


def hang() -> dict[str, Any]:
    return {"outcome": "stall", "standing": "listed", "harm": "hangs", "text": "asks for offset 0 again and again"}


def result(file: Path, versions: dict[str, list[dict[str, Any]]], broken: str = "") -> Path:
    """A result in which each version of ``lib`` has these cells, one for each of ``CASES``."""
    document = made_result(CASES, ["other@1.0.0"])
    [testee] = document["testees"]
    document["testees"] += [
        testee | {"label": f"lib@{version}", "name": "lib", "version": version, "standings": {}} for version in versions
    ]
    for one in document["testees"]:
        one.pop("standings", None)
        if one["version"] == broken:
            one["broken"] = "`make` ended with 2: no rule"
    for i, case in enumerate(document["cases"]):
        case["cells"] |= {f"lib@{version}": cells[i] for version, cells in versions.items() if version != broken}
    file.write_text(json.dumps(document))
    return file


@pytest.fixture
def results(tmp_path: Path) -> list[Path]:
    """Two results. The fault in two questions moves from line to line, and is mended in 1.10.0. The hang comes with a
    question that no version supports before 1.10.0. Another fault comes and goes.
    """
    first = {
        "1.9.0": [fault(7), fault(7), PASS, PASS, NONE, PASS],
        "1.2.0": [fault(5), fault(5), PASS, PASS, NONE, PASS],
    }
    second = {
        "1.10.0": [PASS, PASS, PASS, fault(80, "ValueError: x"), hang(), PASS],
        "2.0.0": [NONE] * 6,
        "2.1.0": [PASS, PASS, PASS, PASS, hang(), UNASKED],
    }
    return [
        result(tmp_path / "second.json", second, broken="2.0.0"),
        result(tmp_path / "first.json", first),
    ]


def test_a_matrix_shows_the_causes_of_all_versions_in_their_order(results: list[Path], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "130")
    done = kfuzz("report", "--history", "lib", *results)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "3 causes of lib: number of vectors by version"
    assert "cause harm 1.2.0 1.9.0 1.10.0 2.0.0 2.1.0 what" in lines
    rows = {row[1]: row[2:7] for row in map(str.split, lines) if len(row) > 6 and row[1] in ("hangs", "panics")}
    assert rows["hangs"] == ["u", "u", "1", "broken", "1"]
    assert ["2", "2", "·", "broken", "·"] in [row.split()[2:7] for row in lines]
    told = lines[lines.index("1.9.0: nothing changed") :]
    assert [line for line in told if not line.startswith(("came", "went", "first"))] == [
        "1.9.0: nothing changed",
        "1.10.0: 1 came, 1 went, 1 in what it supports first",
        "2.1.0: 0 came, 1 went",
        "2.0.0 is broken: `make` ended with 2: no rule",
        "1 question left out, because a version has no outcome",
    ]


def test_the_document_names_each_release_with_what_came_and_went(results: list[Path]) -> None:
    found = json.loads(kfuzz("report", "--history", "lib", *results, "--json").stdout)
    assert found["format"] == "kfuzz-history/1"
    assert [one["version"] for one in found["versions"]] == ["1.2.0", "1.9.0", "1.10.0", "2.0.0", "2.1.0"]
    cells = [list(map(one["cells"].get, ("1.2.0", "1.9.0", "1.10.0", "2.1.0"))) for one in found["causes"]]
    assert cells[0] == ["unsupported", "unsupported", "1", "1"]
    assert sorted(cells[1:]) == [["2", "2", "right", "right"], ["right", "right", "1", "right"]]
    names = ("came", "came_with_support", "went")
    counts = {one["version"]: tuple(len(one[name]) for name in names) for one in found["releases"]}
    assert counts == {
        "1.9.0": (0, 0, 0),
        "1.10.0": (1, 1, 1),
        "2.1.0": (0, 0, 1),
    }


def test_what_a_version_stops_to_support_is_not_called_mended(tmp_path: Path) -> None:
    file = result(tmp_path / "r.json", {"1.0.0": [fault(5), *[PASS] * 5], "2.0.0": [NONE, *[PASS] * 5]})
    done = kfuzz("report", "--history", "lib", file)
    assert done.stdout.splitlines()[-1] == "2.0.0: nothing changed"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--history", "lib", "one.json"], "needs results of two versions of it; the only version of lib is 1.0.0"),
        (["--history", "none", "one.json"], "needs results of two versions of it; they are about lib, other"),
        (["--history", "lib", "apart.json"], "no question is answered by all versions; judge them in one run"),
        (["--history", "lib", "one.json", "--html", "x.html"], "give only one, without --history"),
        (["one.json", "one.json", "one.json"], "3 results; give one, two to compare them, or add --history NAME"),
    ],
)
def test_what_makes_no_history_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result(Path("one.json"), {"1.0.0": [PASS] * 6})
    result(Path("apart.json"), {"1.0.0": [PASS, *[UNASKED] * 5], "2.0.0": [UNASKED, *[PASS] * 5]})
    done = kfuzz("report", *words)
    assert (done.returncode, error in done.stderr) == (2, True), done.stderr
