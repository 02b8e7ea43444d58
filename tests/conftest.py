"""Fixtures and rules shared by all tests; tests/README.md is the map."""

from __future__ import annotations

import importlib
import os
import shutil
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

# Hypothesis tries the same examples in every run, and measures no time: a busy machine, or the first use of a large
# table, must not fail a test.
settings.register_profile(
    "seeded", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("seeded")


def counts(reduced: int, full: int) -> list[Any]:
    """Two values for ``pytest.mark.parametrize`` or a fixture's ``params``: ``make test`` runs the first, and the
    second belongs to ``make test-all`` (marker ``full``).
    """
    assert reduced < full
    return [pytest.param(reduced), pytest.param(full, marks=pytest.mark.full)]


def releases() -> list[Any]:
    """Kafka's releases for ``pytest.mark.parametrize``: ``make test`` asks the latest, ``make test-full`` the older."""
    from kfuzz.kafka import LATEST, RELEASES

    return [pytest.param(one, marks=[] if one == LATEST else pytest.mark.full) for one in RELEASES]


def missing(what: str, remedy: str) -> NoReturn:
    """Skip for want of a toolchain, with the reason; a failure with CI=true, so that it is not unseen."""
    text = f"{what} is missing; {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def require_tool(name: str, remedy: str) -> str:
    """The path of the program ``name``, or a skip (a failure with CI=true) that says how to get it."""
    path = shutil.which(name)
    return path if path else missing(name, remedy)


@pytest.fixture
def some_themes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds of the suite are of four themes: all of them take seconds, which one test spends for all."""
    from kfuzz.vectors import building
    from kfuzz.vectors.recipes import themes

    names = ("header", "count", "codec", "framing")
    chosen = tuple(importlib.import_module(f"{themes.__name__}.{name}").theme() for name in names)
    monkeypatch.setattr(building, "all_themes", lambda: chosen)
