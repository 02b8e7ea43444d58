"""Checks compiled modules and docs/architecture.md against the layers in pyproject.toml, and finds circles of imports.

lint-imports checks Python modules and whole packages; it sees no compiled module. ``python -m tools.layers`` prints one
line per problem and then exits with 1.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
IMPORT: Final = re.compile(r"^\s*(?:from|c?import)\s+kfuzz\.(\w+)(?:\.(\w+))?")
# The layers inside kfuzz/wire/, the highest first. It has no Python modules for lint-imports.
WIRE: Final = {"messages": 0, "walk": 0, "columns": 1, "records": 2, "io": 3}
# The names may stand in brackets, over several lines.
FROM: Final = re.compile(r"^[ \t]*from[ ]+(kfuzz[\w.]*)[ ]+c?import[ ]+(\([^)]*\)|.*)", re.MULTILINE)
ROW: Final = re.compile(r"^\| `kfuzz/(\w+)(?:\.py|/)` ")


def floors(root: Path = ROOT) -> dict[str, int]:
    """The layer number of each folder and top-level module, counted from the top."""
    with (root / "pyproject.toml").open("rb") as file:
        contract = tomllib.load(file)["tool"]["importlinter"]["contracts"][0]
    return {room: floor for floor, rooms in enumerate(contract["layers"]) for room in rooms.split(" | ")}


def upward(root: Path = ROOT) -> Iterator[str]:
    """One sentence for each import in a compiled module that goes up or stays on the same layer."""
    floor = floors(root)
    compiled = (path for path in (root / "kfuzz").rglob("*") if path.suffix in (".pyx", ".pxd"))
    for path in sorted(compiled):
        own, inner = path.relative_to(root / "kfuzz").parts[:2]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not (found := IMPORT.match(line)):
                continue
            where = f"{path.relative_to(root)}:{number}"
            if found[1] != own and floor[found[1]] <= floor[own]:
                yield f"{where}: {own}/ may not import {found[1]}; it is not on a lower layer"
            elif found[1] == own == "wire" and found[2] != inner and WIRE.get(found[2], 0) <= WIRE[inner]:
                yield f"{where}: wire/{inner}/ may not import wire/{found[2]}; it is not on a lower layer"


def undocumented(root: Path = ROOT) -> Iterator[str]:
    """A sentence if the table in docs/architecture.md differs from the layers in pyproject.toml."""
    rows = [found[1] for line in (root / "docs/architecture.md").read_text().splitlines() if (found := ROW.match(line))]
    floor = floors(root)
    if sorted(rows) != sorted(floor):
        odd = ", ".join(sorted(set(rows) ^ set(floor))) or "a row is there twice"
        yield f"docs/architecture.md: its table and the layers in pyproject.toml differ: {odd}"
    elif [floor[room] for room in rows] != sorted(floor.values()):
        yield "docs/architecture.md: its table is not in the order of the layers in pyproject.toml"


def circles(root: Path = ROOT) -> Iterator[str]:
    """A sentence for a circle of imports between modules. Imports inside functions count, those for types do not."""
    files = [path for path in (root / "kfuzz").rglob("*") if path.suffix in (".py", ".pyx", ".pxd")]
    names = {path: ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for path in files}
    modules: dict[str, set[str]] = {name: set() for name in names.values()}
    for path, name in names.items():
        for package, imported in _imports(path):
            module = f"{package}.{imported}"
            modules[name] |= {module if module in modules else package} & modules.keys() - {name}
    try:
        TopologicalSorter(modules).prepare()
    except CycleError as error:
        yield f"these modules import each other: {' <- '.join(error.args[1])}"


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    """Each imported name with the module or package that it comes from."""
    text = path.read_text()
    if path.suffix != ".py":
        for found in FROM.finditer(text):
            yield from ((found[1], name) for name in re.findall(r"\w+", found[2]))
        return
    blocks: list[ast.AST] = [ast.parse(text)]
    for node in blocks:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            blocks += ast.iter_child_nodes(node)


def main() -> int:
    """Print the problems. Returns 1 if there are any."""
    problems = [*upward(), *undocumented(), *circles()]
    for problem in problems:
        print(problem, file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
