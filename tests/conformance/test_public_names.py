"""The door of kfuzz.conformance: its example runs, and everything that it names is there."""

from __future__ import annotations

import doctest
import importlib

import pytest

import kfuzz.conformance


def test_the_example_of_the_door_runs() -> None:
    outcome = doctest.testmod(kfuzz.conformance)
    assert outcome.attempted >= 6
    assert outcome.failed == 0


def test_the_door_explains_everything_that_it_exports() -> None:
    assert [name for name in kfuzz.conformance.__all__ if name not in (kfuzz.conformance.__doc__ or "")] == []


@pytest.mark.parametrize("room", ["", ".differential", ".broker", ".report"])
def test_everything_that_a_rooms_door_names_is_there(room: str) -> None:
    door = importlib.import_module(f"kfuzz.conformance{room}")
    assert [name for name in door.__all__ if not hasattr(door, name)] == []


def test_a_name_that_the_door_does_not_have_is_an_error_of_the_usual_kind() -> None:
    assert not hasattr(kfuzz.conformance, "nosuch")
    assert sorted(kfuzz.conformance._MODULES) == sorted(kfuzz.conformance.__all__)
