"""The pytest plugin of ``python -m tools.mutants``: limits the tests, and names to coverage.py the test that runs.

``MUTANTS_CPU_SECONDS`` in the environment is the limit of this process and of each one that it starts. The file
``MUTANTS_NOTES`` receives the CPU seconds of each test.
"""

from __future__ import annotations

import json
import os
import resource
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

from tools.mutants.compiled import VARIABLE, Page

# A module's fixtures run once for all of its tests, so their lines count for every test.
FIXTURES = "fixtures"
MEMORY_BYTES_MAX = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    import kfuzz

    if not Path(kfuzz.__file__).is_relative_to(Path.cwd()):
        raise pytest.UsageError(f"the tests would import {kfuzz.__file__} instead of the copy in {Path.cwd()}")
    cpu_seconds = int(os.environ["MUTANTS_CPU_SECONDS"])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    if "MUTANTS_REACHED" in os.environ:
        config.pluginmanager.register(_Reached(Page(Path(os.environ[VARIABLE]))))
    elif "MUTANTS_NOTES" in os.environ:
        config.pluginmanager.register(_Notes())


class _Seconds:
    """The CPU seconds that each test takes, and whether it passes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        # Unlike wall-clock time, CPU time does not depend on other work. That of finished children counts too.
        before = sum(os.times()[:4])
        yield
        self.seconds[item.nodeid] += sum(os.times()[:4]) - before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def tests(self) -> list[list[Any]]:
        return [[name, round(self.seconds[name], 3)] for name in sorted(self.passed - self.failed)]


class _Reached(_Seconds):
    """The changes of compiled code that each test reaches."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page = page
        self.reached: dict[str, list[int]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        yield
        self.reached[item.nodeid] = self.page.reached()

    def pytest_sessionfinish(self) -> None:
        tests = [[*test, self.reached[test[0]]] for test in self.tests()]
        Path(os.environ["MUTANTS_REACHED"]).write_text(json.dumps({"tests": tests, "failed": sorted(self.failed)}))


class _Notes(_Seconds):
    """The same, with coverage.py's contexts."""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        _switch(FIXTURES)
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        _switch(item.nodeid)
        yield
        _switch(FIXTURES)

    def pytest_sessionfinish(self) -> None:
        Path(os.environ["MUTANTS_NOTES"]).write_text(json.dumps({"tests": self.tests(), "failed": sorted(self.failed)}))


def _switch(context: str) -> None:
    current = coverage.Coverage.current()
    assert current is not None
    current.switch_context(context)
