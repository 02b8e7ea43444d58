"""The pytest plugin of ``python -m tools.mutants``: records which test runs which line, or runs only chosen tests.

Environment variables name its files: ``MUTANTS_MAP`` receives the recorded lines, ``MUTANTS_CHOSEN`` lists the tests to
run in order, and ``MUTANTS_SEEN`` receives the name of the test that failed.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    import kfuzz

    if not Path(kfuzz.__file__).is_relative_to(Path.cwd()):
        raise pytest.UsageError(f"the tests would import {kfuzz.__file__} instead of the copy in {Path.cwd()}")
    if "MUTANTS_MAP" in os.environ:
        config.pluginmanager.register(_Map(Path(os.environ["MUTANTS_MAP"])))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUTANTS_CHOSEN" not in os.environ:
        return
    chosen: list[str] = json.loads(Path(os.environ["MUTANTS_CHOSEN"]).read_text())
    order = {name: i for i, name in enumerate(chosen)}
    items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "MUTANTS_SEEN" in os.environ:
        Path(os.environ["MUTANTS_SEEN"]).write_text(report.nodeid)


class _Map:
    """Records the lines that each test runs, and the CPU seconds that it takes."""

    def __init__(self, file: Path) -> None:
        import coverage

        self.file = file
        self.children = Path.cwd() / "children"
        shutil.rmtree(self.children, ignore_errors=True)
        self.children.mkdir()
        os.environ["MUTANTS_CHILDREN"] = str(self.children)
        root = str(Path.cwd() / "kfuzz")
        self.coverage = coverage.Coverage(data_file=None, source=[root], config_file=False, messages=False)
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self.passed: set[str] = set()

    def pytest_sessionstart(self) -> None:
        self.coverage.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        # A module's fixtures run once for all of its tests, so their lines count for every test.
        yield from self._phase(item, "")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield from self._phase(item, item.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        yield from self._phase(item, "")

    def _phase(self, item: pytest.Item, context: str) -> Iterator[None]:
        self.coverage.switch_context(context or "fixtures")
        before = _cpu_seconds()
        yield
        self.seconds[item.nodeid] += _cpu_seconds() - before
        self.coverage.switch_context("between")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        tests = sorted(self.passed - self.failed)
        number = {name: i for i, name in enumerate(tests)} | {"fixtures": -1}
        lines: dict[str, dict[int, list[int]]] = {}
        for name in sorted(data.measured_files()):
            path = Path(name).relative_to(Path.cwd()).as_posix()
            lines[path] = {
                line: sorted(number[context] for context in contexts if context in number)
                for line, contexts in sorted(data.contexts_by_lineno(name).items())
                if any(context in number for context in contexts)
            }
        made: dict[str, Any] = {
            "tests": [[name, round(self.seconds[name], 3)] for name in tests],
            "failed": sorted(self.failed),
            "lines": lines,
        }
        self._add_children(number, lines)
        self.file.write_text(json.dumps(made))

    def _add_children(self, number: dict[str, int], lines: dict[str, dict[int, list[int]]]) -> None:
        """Add the lines inside functions that child processes of the tests have run; see ``child/``."""
        insides: dict[str, set[int]] = {}
        for file in sorted(self.children.glob("*.json")):
            document = json.loads(file.read_text())
            if document["test"] not in number:
                continue
            test = number[document["test"]]
            for name, ran in document["lines"].items():
                path = Path(name).relative_to(Path.cwd()).as_posix()
                if path not in insides:
                    insides[path] = _insides(Path(name).read_text())
                here = lines.setdefault(path, {})
                for line in insides[path].intersection(ran):
                    if test not in here.setdefault(line, []):
                        here[line].append(test)


def _insides(source: str) -> set[int]:
    """The lines inside functions. All other lines run whenever a module is imported."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {
        line
        for function in functions
        for statement in function.body
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    }


def _cpu_seconds() -> float:
    """CPU time of this process and its finished children. Unlike wall-clock time it does not depend on other work."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
