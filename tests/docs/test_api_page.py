"""docs/api.md: its examples hold, and it has what the public modules export."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tools import api


def test_the_examples_of_the_page_hold() -> None:
    done = doctest.testfile(str(api.PAGE), module_relative=False)
    assert done.failed == 0
    assert done.attempted > 50


@pytest.mark.parametrize("name", api.MODULES)
def test_every_exported_name_has_an_entry(name: str) -> None:
    text = api.PAGE.read_text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert [exported for exported in importlib.import_module(name).__all__ if f"\n### {exported}\n" not in text] == []
