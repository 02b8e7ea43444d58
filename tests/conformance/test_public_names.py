"""The door of kfuzz.conformance: its example runs, and everything that it names is there."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import kfuzz.conformance


def test_the_example_of_the_door_runs() -> None:
    outcome = doctest.testmod(kfuzz.conformance)
    assert outcome.attempted >= 6
    assert outcome.failed == 0


def test_the_door_explains_everything_that_it_exports() -> None:
    assert [name for name in kfuzz.conformance.__all__ if name not in (kfuzz.conformance.__doc__ or "")] == []


@pytest.mark.parametrize("room", ["differential", "broker", "report"])
def test_everything_that_a_rooms_door_names_is_there(room: str) -> None:
    door = importlib.import_module(f"kfuzz.conformance.{room}")
    assert [name for name in door.__all__ if not hasattr(door, name)] == []


def test_testees_can_be_built_before_anything_is_installed_or_compiled() -> None:
    """``make build`` lets Maven begin while the environment is still being made."""
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); "
        "import kfuzz.conformance.protocol.testees; "
        "print(sorted(name for name in sys.modules if name.startswith(('kfuzz.wire', 'kfuzz.records', 'psutil'))))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_name_that_the_door_does_not_have_is_an_error_of_the_usual_kind() -> None:
    assert not hasattr(kfuzz.conformance, "nosuch")
    assert sorted(kfuzz.conformance._MODULES) == sorted(kfuzz.conformance.__all__)
