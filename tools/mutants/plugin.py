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

import coverage
import pytest

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
    if "MUTANTS_NOTES" in os.environ:
        config.pluginmanager.register(_Notes())


class _Notes:
    """The CPU seconds that each test takes, and coverage.py's contexts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        # Unlike wall-clock time, CPU time does not depend on other work. That of finished children counts too.
        before = sum(os.times()[:4])
        _switch(FIXTURES)
        yield
        self.seconds[item.nodeid] += sum(os.times()[:4]) - before

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        _switch(item.nodeid)
        yield
        _switch(FIXTURES)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        tests = [[name, round(self.seconds[name], 3)] for name in sorted(self.passed - self.failed)]
        Path(os.environ["MUTANTS_NOTES"]).write_text(json.dumps({"tests": tests, "failed": sorted(self.failed)}))


def _switch(context: str) -> None:
    current = coverage.Coverage.current()
    assert current is not None
    current.switch_context(context)
