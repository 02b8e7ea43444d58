"""docs/log-directory.ipynb runs, and shows what it shows."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from docs.pages import ROOT

NOTEBOOK = ROOT / "docs" / "log-directory.ipynb"


def result_of(source: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last line as a notebook does."""
    tree = ast.parse(source)
    last = tree.body[-1]
    value = ast.Expression(tree.body.pop().value) if isinstance(last, ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return eval(compile(value, str(NOTEBOOK), "eval"), names) if value else None


def test_the_notebook_shows_what_its_cells_return() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    names: dict[str, Any] = {}
    shown = 0
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            result = result_of("".join(cell["source"]), names)
            assert len(cell["outputs"]) == (result is not None)
            for output in cell["outputs"]:
                assert repr(result) == "".join(output["data"]["text/plain"])
                shown += 1
    assert shown >= 6
