"""The examples in the docstrings of the public rooms hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

ROOMS = ("records", "messages", "control", "annotate", "mutate", "findings")
MODULES = [
    "kfuzz.kafka",
    "kfuzz.java",
    *(f"kfuzz.{room}" for room in ROOMS),
    *(
        found.name
        for room in ROOMS
        for found in pkgutil.walk_packages(importlib.import_module(f"kfuzz.{room}").__path__, f"kfuzz.{room}.")
    ),
]
# What a user calls has an example.
WITH_EXAMPLES = {
    "kfuzz.records", "kfuzz.records.compaction", "kfuzz.records.conversion", "kfuzz.records.builder", "kfuzz.messages",
    "kfuzz.messages.codec", "kfuzz.control", "kfuzz.control.codec", "kfuzz.mutate",
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    done = doctest.testmod(importlib.import_module(name))
    assert done.failed == 0
    assert done.attempted > 0 or name not in WITH_EXAMPLES
