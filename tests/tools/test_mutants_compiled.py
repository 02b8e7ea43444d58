"""Wrong changes of Cython and C: which ones are made, and how one build holds all of them."""

from __future__ import annotations

import ctypes
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import require_tool
from programs import run_program

from tools.mutants import agreeing, compiled
from tools.mutants.agreeing import digests, inputs
from tools.mutants.compiled import HEADER, SWITCH, VARIABLE, Page, changes, switched


def after(source: str, path: str) -> set[str]:
    return {change.before_and_after()[1] for change in changes(path, source)}


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("return a < b", {"return a <= b", "return a >= b"}),
        ("return <int64_t> a + <uint8_t> (b)", {"return <int64_t> a - <uint8_t> (b)"}),
        ("x = &a[3]", {"x = &a[4]", "x = &a[2]", "pass"}),
        ("cdef int x = -a & b", {"cdef int x = -a | b"}),
        ("if not a and b:", {"if  a and b:", "if not a or b:", "if True:", "if False:"}),
        ("while a != 0:", {"while a == 0:", "while a != 1:", "while a != (-1):", "while False:"}),
        ("x += a", {"pass"}),
    ],
)
def test_statements_of_cython_are_changed_in_every_small_way(statement: str, changed: set[str]) -> None:
    body = f"{statement}\n        pass" if statement.endswith(":") else statement
    assert after(f"cdef int f(int a, int b) noexcept nogil:\n    {body}\n", "m.pyx") == changed


@pytest.mark.parametrize(
    "statement",
    ["cdef int a = 1, b = 2", "return a, 1", "x = [i + 1 for i in a]", 'raise ValueError("a < 3")', "import a"],
)
def test_what_a_switch_cannot_stand_in_is_left_alone(statement: str) -> None:
    assert [one for one in after(f"def f(a):\n    {statement}\n", "m.pyx") if one != "pass"] == []
    assert after(f"{statement}\n", "m.pyx") == set()


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("if (a > 0)", {"if (a >= 0)", "if (a <= 0)", "if (a > 1)", "if (a > (-1))", "if (0)"}),
        ("return *p + a;", {"return *p - a;"}),
        ("const int64_t n = a << b;", {"const int64_t n = a >> b;"}),
        ("n += a && !b;", {"n += a || !b;", "n += a && b;"}),
        ("static const int n = 3;", set()),
        ("for (i = 0; i < n; i++)", set()),
        ("x = a++ < 3;", set()),
    ],
)
def test_statements_of_c_are_changed_in_every_small_way(statement: str, changed: set[str]) -> None:
    assert after(f"int f(int a)\n{{\n    {statement}\n}}\n", "m.h") == changed


def test_a_change_knows_the_class_and_the_function_around_it() -> None:
    source = "cdef class A:\n    cdef int f(self):\n        return 1\n\n    def g(self):\n        return 1\n\nx = 1\n"
    assert {change.where for change in changes("m.pyx", source)} == {"A.f", "A.g"}


def test_one_build_holds_all_changes_of_c_and_says_which_were_reached(tmp_path: Path) -> None:
    compiler = require_tool("cc", "apt-get install gcc")
    source = "int smaller(int a)\n{\n    return a < 3;\n}\nint larger(int a)\n{\n    return a > 3;\n}\n"
    found = changes("m.h", source)
    chosen = [next(one for one in found if one.text == text) for text in ("a <= 3", "a > 4")]
    (tmp_path / "m.h").write_text(switched(source, [*enumerate(chosen, 1)], is_c=True))
    (tmp_path / Path(HEADER).name).write_text(SWITCH)
    (tmp_path / "m.c").write_text('#include "m.h"\n')
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", "m.so", "m.c"], cwd=tmp_path, check=True)
    page = Page(tmp_path / "page")

    def results() -> tuple[list[int], list[int]]:
        program = "import ctypes, json; m = ctypes.CDLL('./m.so'); print(json.dumps([m.smaller(3), m.larger(4)]))"
        done = run_program(sys.executable, "-c", program, cwd=tmp_path, variables={VARIABLE: str(page.path)})
        return json.loads(done.stdout), page.reached()

    assert (results(), page.reached()) == (([0, 1], [1, 2]), [])
    page.turn_on(1)
    assert results() == ([1, 1], [1, 2])
    page.turn_on(2)
    assert results() == ([0, 0], [1, 2])
    # Without the file, nothing is on.
    assert ctypes.CDLL(str(tmp_path / "m.so")).smaller(3) == 0


def test_a_file_of_cython_declares_the_switch_after_its_docstring() -> None:
    source = (
        '# cython: language_level=3\n"""About\n\nit."""\nfrom a import b\n\ndef f(a):\n    a = a + 1\n    return a\n'
    )
    (plus,) = (one for one in changes("m.pyx", source) if one.text == "a - 1")
    (line,) = (one for one in changes("m.pyx", source) if one.kind == "statement")
    text = switched(source, [(7, plus)], is_c=False)
    assert text.startswith('# cython: language_level=3\n"""About\n\nit."""\n' + compiled.DECLARED + "from a import b\n")
    assert "    a = ((a - 1) if kfuzz_changed(7) else (a + 1))\n" in text
    assert "    if not kfuzz_changed(8): a = a + 1\n" in switched(source, [(8, line)], is_c=False)


def test_one_answer_that_is_altered_gives_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    given = list(inputs(400))
    usual, first = digests(given), agreeing.WORK["consumer"]
    assert digests(inputs(400)) == usual
    asked = itertools.count()
    altered = {"consumer": lambda data: next(asked) != 40 and first(data)}
    monkeypatch.setattr(agreeing, "WORK", {**agreeing.WORK, **altered})
    assert {name for name, one in digests(given).items() if one != usual[name]} == {"consumer"}


def test_inputs_that_were_made_before_get_the_same_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agreeing.main("--make", str(tmp_path / "inputs"), "200")
    agreeing.main("200", "messages", "log")
    agreeing.main(str(tmp_path / "inputs"), "messages", "log")
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert json.loads(first).keys() == {"messages", "log"}
