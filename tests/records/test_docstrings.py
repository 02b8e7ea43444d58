"""The examples in the docstrings of kfuzz.records hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from kfuzz import records

MODULES = ["kfuzz.records", *(f"kfuzz.records.{found.name}" for found in pkgutil.iter_modules(records.__path__))]
# What a user calls has an example.
WITH_EXAMPLES = {"kfuzz.records", *(f"kfuzz.records.{name}" for name in ("compact", "control", "convert", "rebuild"))}


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    done = doctest.testmod(importlib.import_module(name))
    assert done.failed == 0
    assert done.attempted > 0 or name not in WITH_EXAMPLES
