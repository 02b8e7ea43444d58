"""The tool of ``make mutants``: which changes it makes, which tests it asks, and what it makes of them."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.mutants.__main__ import LISTED, ROOT, main
from tools.mutants.changes import Change, changes, sample
from tools.mutants.compiled import SUFFIXES
from tools.mutants.run import FAR_SECONDS, NEAR_SECONDS, Copy, Map, copies, mapped, saved

FAST = "not full"
CODE = tomllib.loads(Path(__file__).with_name("code_changes.toml").read_text())


def after(source: str) -> set[str]:
    """All new texts of the one line of ``source`` that changes."""
    return {change.before_and_after()[1] for change in changes("m.py", source)}


@pytest.mark.parametrize("source", CODE["changed"])
def test_a_line_is_changed_in_every_small_way(source: str) -> None:
    assert after(source) == set(CODE["changed"][source])


@pytest.mark.parametrize("source", CODE["left_alone"])
def test_types_words_and_assertions_are_left_alone(source: str) -> None:
    assert changes("m.py", source) == []


def test_characters_beyond_ascii_do_not_move_the_place_of_a_change() -> None:
    assert after('x = "zwölf€", 7') == {'x = "zwölf€", 8', 'x = "zwölf€", 6'}


def test_a_change_knows_its_function_or_the_names_that_it_gives_another_value() -> None:
    [_, one] = changes("m.py", "class A:\n    def b(self):\n        return 7")[:2]
    assert (one.where, one.names, one.lines) == ("A.b", (), (3, 3))
    [one, _] = changes("m.py", "LIMIT = 7")
    assert (one.where, one.names) == ("", ("LIMIT",))


def test_a_sample_is_the_same_again_and_stays_when_other_code_comes(tmp_path: Path) -> None:
    folder = tmp_path / "kfuzz"
    folder.mkdir()
    code = "".join(f"def f{i}(a, b):\n    return a + {i} < b\n" for i in range(100))
    (folder / "a.py").write_text(code)
    first = sample(tmp_path, 50, 1)
    assert sample(tmp_path, 50, 1) == first
    assert sample(tmp_path, 50, 2) != first
    (folder / "a.py").write_text("import os\n\n\ndef first():\n    return 1\n\n\n" + code)
    stays = {(one.where, one.text) for one in sample(tmp_path, 50, 1)} & {(one.where, one.text) for one in first}
    assert len(stays) >= 49
    # And every one of them is another line.
    assert len({one.lines for one in first}) == 50


def test_themes_of_vectors_are_data_and_are_left_out() -> None:
    assert sample(ROOT, 10, 1, ["kfuzz/vectors/recipes/themes/*"]) == []
    assert sample(ROOT, 1, 1, ["kfuzz/vectors/*"])


# --- which tests are asked ------------------------------------------------------------------------------------------


def part(file: str, tests: dict[str, float], lines: dict[str, list[int]]) -> dict[str, Any]:
    named = [(f"{file}::{name}", seconds) for name, seconds in tests.items()]
    return {"tests": named, "failed": [], "lines": {"kfuzz/a.py": lines}}


def change_at(line: int, **more: Any) -> Change:
    return Change("kfuzz/a.py", "", "number", 0, 0, "", (line, line), "f", **more)


def names(found: list[tuple[str, float]]) -> list[str]:
    return [name.split("::")[1] for name, _ in found]


A, B = "tests/cli/test_a.py", "tests/spark/test_b.py"


def test_tests_that_run_the_line_come_before_the_others_of_the_module(tmp_path: Path) -> None:
    tests = Map(tmp_path, {A: part(A, {"far": 0.1, "near": 1.0, "other": 0.1}, {"1": [1], "2": [0, 1]})})
    assert names(tests.chosen(change_at(1))) == ["near", "far"]


def test_a_fixture_counts_for_every_test_of_its_file(tmp_path: Path) -> None:
    tests = Map(tmp_path, {A: part(A, {"one": 1, "two": 2}, {"1": [-1]}), B: part(B, {"no": 1}, {})})
    assert names(tests.chosen(change_at(1))) == ["one", "two"]


def test_a_constant_is_looked_for_where_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "kfuzz").mkdir()
    (tmp_path / "kfuzz" / "a.py").write_text("LIMIT = 7\n\n\ndef f():\n    return LIMIT\n")
    tests = Map(tmp_path, {A: part(A, {"reads": 1, "slow": FAR_SECONDS + 1}, {"5": [0], "2": [1]})})
    assert names(tests.chosen(change_at(1, names=("LIMIT",)))) == ["reads"]


def test_the_shortest_tests_that_fit_are_chosen_and_of_each_function_first_one(tmp_path: Path) -> None:
    cases = {f"many[{i}]": NEAR_SECONDS / 10 for i in range(20)} | {
        "slow": NEAR_SECONDS / 4,
        "endless": NEAR_SECONDS * 2,
    }
    tests = Map(tmp_path, {A: part(A, cases, {"1": list(range(22))})})
    found = names(tests.chosen(change_at(1)))
    assert "slow" in found
    assert "endless" not in found
    assert len(found) == 1 + 7


def test_a_module_that_runs_in_other_processes_alone_has_the_tests_of_its_folder(tmp_path: Path) -> None:
    tests = Map(tmp_path, {A: part(A, {"one": 1}, {}), B: part(B, {"other": 1}, {})})
    assert names(tests.chosen(Change("kfuzz/cli/a.py", "", "number", 0, 0, "", (1, 1), "f"))) == ["one"]


# --- a checkout, from one end to the other --------------------------------------------------------------------------

MODULE = """
def held(a, b):
    return a < b


def loose(a, b):
    return a < b


def looping(n):
    while n > 0:
        n -= 1
    return n


def elsewhere(a):
    return a + 1


def forgotten(a):
    return a + 1
"""
TESTS = """
import subprocess, sys
from kfuzz.a import held, loose, looping

def test_held():
    assert held(1, 2) and not held(2, 2)

def test_loose():
    assert loose(1, 2)

def test_looping():
    assert looping(3) == 0

def test_broken():
    assert not loose(1, 2)

def test_in_another_process():
    code = "from kfuzz.a import elsewhere; print(elsewhere(1))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stdout == b"2\\n"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name, text in {"kfuzz/__init__.py": "", "kfuzz/a.py": MODULE, "tests/test_a.py": TESTS}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def copy(checkout: Path) -> Iterator[Copy]:
    with copies(checkout, 1, FAST) as free:
        yield free.get()


def change(source: str, where: str, text: str) -> Change:
    (found,) = [one for one in changes("kfuzz/a.py", source) if one.where == where and one.text == text]
    return found


@pytest.mark.full
def test_a_tested_change_is_noticed_and_an_untested_one_survives(checkout: Path, tmp_path: Path) -> None:
    told: list[str] = []
    with copies(checkout, 1, FAST) as free:
        tests = mapped(free, checkout, tmp_path / "lines", told.append)
        copy = free.get()
        assert tests.parts["tests/test_a.py"]["failed"] == ["tests/test_a.py::test_broken"]

        def judged(where: str, text: str) -> tuple[str, str]:
            one = change(MODULE, where, text)
            result = copy.judge(one, tests.chosen(one))
            return result.outcome, result.by

        assert judged("held", "a <= b") == ("noticed", "tests/test_a.py::test_held")
        assert judged("loose", "a <= b") == ("survived", "")
        assert judged("elsewhere", "(a - 1)") == ("noticed", "tests/test_a.py::test_in_another_process")
        # Nothing runs this one, and the other tests of the module pass.
        assert judged("forgotten", "return None") == ("survived", "")
        assert (copy.root / "kfuzz" / "a.py").read_text() == MODULE
    assert (checkout / "kfuzz" / "a.py").read_text() == MODULE
    # The lines that tests run are kept as long as neither they nor the code change.
    assert saved(tmp_path / "lines", checkout, "tests/test_a.py") is not None
    (checkout / "kfuzz" / "a.py").write_text(MODULE + "\n")
    assert saved(tmp_path / "lines", checkout, "tests/test_a.py") is None


@pytest.mark.full
def test_a_change_that_makes_a_test_endless_times_out(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.mutants.run.CPU_SECONDS", 2.0)
    result = copy.judge(change(MODULE, "looping", "n += 1"), [("tests/test_a.py::test_looping", 0.1)])
    assert result.outcome == "timed out"


def test_a_change_that_only_renames_a_case_survives(copy: Copy) -> None:
    tests = [("tests/test_a.py::test_held", 0.1), ("tests/test_a.py::test_loose[7]", 0.1)]
    assert copy.judge(change(MODULE, "forgotten", "return None"), tests).outcome == "survived"


def test_code_that_cannot_be_imported_is_noticed(copy: Copy) -> None:
    broken = Change("kfuzz/a.py", MODULE, "number", 0, 0, "1 / 0", (1, 1), "")
    assert copy.judge(broken, [("tests/test_a.py::test_held", 0.1)]).outcome == "noticed"


# --- the list of survivors ------------------------------------------------------------------------------------------


def test_every_listed_survivor_has_a_reason_and_its_line_exists() -> None:
    # A file may have moved to another folder since.
    sources: dict[str, str] = defaultdict(str)
    for file in (ROOT / "kfuzz").rglob("*"):
        if file.suffix in (".py", *SUFFIXES):
            sources[file.name] += " ".join(file.read_text().split())
    for one in tomllib.loads(LISTED.read_text())["survivor"]:
        assert set(one) == {"path", "in", "before", "after", "why"}
        assert len(one["why"]) > 20
        # A compiled change shows its brackets with spaces inside.
        before, source = " ".join(one["before"].split()), sources[Path(one["path"]).name]
        assert before in source or before.replace("( ", "(").replace(", )", ",)") in source.replace("( ", "("), one


def test_no_module_of_that_name_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--module", "kfuzz/nothing.py"]) == 2
    assert "no changes match the options" in capsys.readouterr().err
