"""The pytest plugin of ``python -m tools.mutants``: names to coverage.py the test that runs, or runs only chosen tests.

Environment variables name its files: ``MUTANTS_NOTES`` receives the CPU seconds of each test, ``MUTANTS_CHOSEN`` lists
the tests to run in order, and ``MUTANTS_SEEN`` receives the name of the test that failed.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    import kfuzz

    if not Path(kfuzz.__file__).is_relative_to(Path.cwd()):
        raise pytest.UsageError(f"the tests would import {kfuzz.__file__} instead of the copy in {Path.cwd()}")
    if "MUTANTS_NOTES" in os.environ:
        config.pluginmanager.register(_Notes(Path(os.environ["MUTANTS_NOTES"])))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUTANTS_CHOSEN" in os.environ:
        chosen: list[str] = json.loads(Path(os.environ["MUTANTS_CHOSEN"]).read_text())
        order = {name: i for i, name in enumerate(chosen)}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "MUTANTS_SEEN" in os.environ:
        Path(os.environ["MUTANTS_SEEN"]).write_text(report.nodeid)


class _Notes:
    """The CPU seconds that each test takes, and coverage.py's contexts."""

    def __init__(self, file: Path) -> None:
        import coverage

        self.file = file
        current = coverage.Coverage.current()
        assert current is not None
        self.coverage = current
        self.seconds: dict[str, float] = defaultdict(float)
        self.ended: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        # A module's fixtures run once for all of its tests, so their lines count for every test.
        yield from self._phase(item, "fixtures")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield from self._phase(item, item.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        yield from self._phase(item, "fixtures")

    def _phase(self, item: pytest.Item, context: str) -> Iterator[None]:
        self.coverage.switch_context(context)
        before = _cpu_seconds()
        yield
        self.seconds[item.nodeid] += _cpu_seconds() - before
        self.coverage.switch_context("between")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.when == "call":
            self.ended[report.outcome].add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        tests = [[name, round(self.seconds[name], 3)] for name in sorted(self.ended["passed"] - self.ended["failed"])]
        self.file.write_text(json.dumps({"tests": tests, "failed": sorted(self.ended["failed"])}))


def _cpu_seconds() -> float:
    """CPU time of this process and its finished children. Unlike wall-clock time it does not depend on other work."""
    return sum(os.times()[:4])
