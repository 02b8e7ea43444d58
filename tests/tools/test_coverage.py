"""`make coverage` counts the lines of .pyx, .pxd and C that the tests run, and compiles what has changed."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest
from conftest import require_tool

from tools.coverage import __main__ as coverage

ONE = """\
cimport kfuzz.wire.two as two


cdef extern from "three.h":
    int three(int number) nogil


cdef class Kind:
    def of(self, int number):
        if number > 5:
            return two.of(number)
        if number > 7:
            number = 0  # unreachable: a larger number has returned
        try:
            return three(number)
        except ValueError:  # unreachable: C raises nothing
            return None  # unreachable: C raises nothing


def never():
    return 1
"""
TWO = "cdef inline int of(int number) noexcept:\n    return number + 1\n"
THREE = """\
static inline int three(int number)
{
    if (number < 0)
        return -1;
    return 3 * number;
}
"""
TEST = """\
import os

import kfuzz.wire.other
from kfuzz.wire.one import Kind


def test_one():
    assert Kind().of(1) == 3
    # A process that ends at once counts too.
    child = os.fork()
    if not child:
        os._exit(Kind().of(6) != 7)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.full
def test_the_lines_that_tests_run_are_counted_and_too_few_are_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_tool("gcov", "apt-get install gcc")
    root = tmp_path / "checkout"
    for name in ("kfuzz/wire", "kfuzz/mutate", "kfuzz/fuzz", "tests"):
        (root / name).mkdir(parents=True)
    shutil.copytree(coverage.ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(coverage.ROOT / "setup.py", root)
    wire = root / "kfuzz" / "wire"
    for folder in (wire.parent, wire):
        (folder / "__init__.py").touch()
    (wire / "one.pyx").write_text(ONE)
    (wire / "two.pxd").write_text(TWO)
    (wire / "three.h").write_text(THREE)
    (wire / "other.pyx").write_text("NUMBER = 1\n")
    # Modules of the checkout, which do not count.
    for name in ("one", "other"):
        (wire / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"no module")
    test = root / "tests" / "test_one.py"
    test.write_text(TEST)
    (root / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nmarkers = ["full", "clang", "java", "spark"]\npythonpath = ["."]\n'
    )
    monkeypatch.setattr(coverage, "ROOT", root)

    def run() -> tuple[int, dict[str, list[str]], dict[str, int]]:
        code = coverage.main(["tests", "--processes", "1", "--out", str(tmp_path / "out")])
        table = [line.split() for line in capfd.readouterr().out.splitlines() if line.startswith(("kfuzz/", "TOTAL"))]
        objects = (root / "build" / "coverage" / "checkout" / "build").rglob("*.o")
        return code, {row[0]: row[1:] for row in table}, {path.stem: path.stat().st_mtime_ns for path in objects}

    code, table, first = run()
    assert code == 1
    # Lines, those that run, percent, and the others.
    assert table["kfuzz/wire/one.pyx"] == ["9", "8", "88%", "21"]
    assert table["kfuzz/wire/two.pxd"] == ["2", "2", "100%"]
    assert table["kfuzz/wire/three.h"] == ["4", "3", "75%", "4"]
    assert "unreachable: C raises nothing" in (tmp_path / "out" / "index.html").read_text().replace("&nbsp;", " ")
    test.write_text(TEST + "    assert Kind().of(-1) == -1\n")
    (wire / "one.pyx").write_text(ONE.replace("\n\ndef never():\n    return 1\n", ""))
    code, table, second = run()
    assert table["TOTAL"][-1] == "100%", table
    assert code == 0
    assert {name for name in first if first[name] != second[name]} == {"one"}
    test.write_text(TEST.replace("== 3", "== 4"))
    assert run()[0] == 1
