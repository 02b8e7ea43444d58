"""Copies Python files without their annotations, which Python 3.6 cannot evaluate: ``plain.py FOLDER FILE…``."""

from __future__ import annotations

import ast
import sys
from pathlib import Path


class Plain(ast.NodeTransformer):
    """Removes annotations. Those of attributes say that there is one, so they become ``object``."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Name("object")
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        return None if node.module == "__future__" else node


folder, *files = map(Path, sys.argv[1:])
folder.mkdir(parents=True, exist_ok=True)
for file in files:
    (folder / file.name).write_text(ast.unparse(Plain().visit(ast.parse(file.read_text()))) + "\n")
