"""The docstrings of the public rooms: their examples hold, and every public name has one, and types."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType
from typing import Any

import griffe
import pytest
from docs.pages import PUBLIC, ROOT

ROOMS = ("records", "messages", "annotate", "mutate", "findings")
MODULES = [
    "kfuzz.kafka",
    "kfuzz.java",
    "kfuzz.control",
    *(f"kfuzz.{room}" for room in ROOMS),
    *(
        found.name
        for room in ROOMS
        for found in pkgutil.walk_packages(importlib.import_module(f"kfuzz.{room}").__path__, f"kfuzz.{room}.")
    ),
]
# Modules that a user calls have an example.
WITH_EXAMPLES = {
    "kfuzz.records", "kfuzz.records.compaction", "kfuzz.records.conversion", "kfuzz.records.builder", "kfuzz.messages",
    "kfuzz.messages.codec", "kfuzz.control", "kfuzz.mutate",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({*MODULES, *PUBLIC}))
def test_the_examples_of_a_module_hold(name: str) -> None:
    done = doctest.testmod(importlib.import_module(name))
    assert done.failed == 0
    assert done.attempted > 0 or name not in WITH_EXAMPLES


@pytest.fixture(scope="module")
def package() -> griffe.Module:
    extensions = griffe.load_extensions(str(ROOT / "tools" / "docstrings.py"))
    package = griffe.load("kfuzz", search_paths=[ROOT], extensions=extensions, allow_inspection=False)
    assert isinstance(package, griffe.Module)
    return package


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring_and_types(name: str, package: griffe.Module) -> None:
    module = package[name.removeprefix("kfuzz.")]
    assert module.docstring
    live = importlib.import_module(name)
    bare = []
    for exported in live.__all__:
        found = module.members[exported]
        if found.is_module and not isinstance(getattr(live, exported), ModuleType):
            # A module and a function have one name (kfuzz.records.read).
            value = getattr(live, exported)
            found = package[f"{value.__module__}.{exported}".removeprefix("kfuzz.")]
        bare += list(_bare(found.final_target if isinstance(found, griffe.Alias) else found))
    assert bare == []


def _bare(found: griffe.Object) -> Any:
    """The things without a docstring or types, of this name and of the public methods of a class."""
    if not found.is_attribute and not found.docstring:
        yield f"{found.path}: no docstring"
    if isinstance(found, griffe.Function):
        for parameter in found.parameters:
            if parameter.annotation is None and parameter.name not in ("self", "cls"):
                yield f"{found.path}: no type of {parameter.name}"
    if isinstance(found, griffe.Class):
        for name, member in found.members.items():
            if isinstance(member, griffe.Function) and not name.startswith("_"):
                yield from _bare(member)
