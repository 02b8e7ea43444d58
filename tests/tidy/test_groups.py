"""How conftest.py shares out the tests between processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import conftest
import pytest


class Item(SimpleNamespace):
    """The parts of a pytest item that are asked for. ``wanted``: its fixtures."""

    def __hash__(self) -> int:
        return id(self)

    def iter_markers(self) -> list[Any]:
        return self.marks

    def add_marker(self, decorator: Any) -> None:
        self.marks = [*self.marks, decorator.mark]


def test_the_slowest_group_is_first_and_those_with_a_shared_fixture_are_one(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "durations.toml"
    table.write_text('["not full"]\n"tests/slow.py" = 9\n"broker" = 5\n"tests/gone.py" = 99\n')
    monkeypatch.setattr(conftest, "DURATIONS", table)
    items = [
        Item(nodeid="tests/new.py::test_a", fixturenames=["tmp_path"], marks=[]),
        Item(nodeid="tests/new.py::test_b", fixturenames=["broker"], marks=[]),
        Item(nodeid="tests/slow.py::test_c[x@y]", fixturenames=[], marks=[]),
        Item(nodeid="tests/slow.py::test_d", fixturenames=[], marks=[pytest.mark.spark.mark]),
    ]
    config: Any = SimpleNamespace(option=SimpleNamespace(loadgroup=True, markexpr="not full"))
    conftest.pytest_collection_modifyitems(config, items)
    # As pytest-xdist does.
    names = [item.nodeid + "".join(f"@{m.args[0]}" for m in item.marks if m.name == "xdist_group") for item in items]
    assert [name.partition("::test_")[2] for name in names] == ["c[x@y]", "b@broker", "a", "d@spark"]
    assert [conftest.group_of(name) for name in names] == ["tests/slow.py", "broker", "tests/new.py", "spark"]
