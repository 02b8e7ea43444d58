"""Writes docs/api.md: each public name with its signature and docstring.

Run as ``python -m tools.api``. With ``--check`` it writes nothing, and exits with 1 if the page is out of date. griffe
reads the signatures from the sources and stubs. The docstrings come from the imported modules, because a compiled
module keeps them there.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import griffe
from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "api.md"
# The public modules, in the order of the page.
MODULES: Final = (
    "kfuzz.records",
    "kfuzz.records.builder",
    "kfuzz.records.stream",
    "kfuzz.records.appending",
    "kfuzz.records.conversion",
    "kfuzz.records.compaction",
    "kfuzz.messages",
    "kfuzz.control",
    "kfuzz.mutate",
    "kfuzz.strategies",
    "kfuzz.findings",
    "kfuzz.vectors",
    "kfuzz.corpora.logs",
    "kfuzz.corpora.generated",
    "kfuzz.conformance",
    "kfuzz.errors",
)
LINE_MOST: Final = 100
# Cross-references as Sphinx has them.
ROLE: Final = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):`~?([^`]+)`")


class Entry(NamedTuple):
    """One public name. ``shown`` is how it is written, as Python; ``text`` its docstring."""

    name: str
    shown: str
    text: str
    members: list[Entry]


class Module(NamedTuple):
    name: str
    text: str
    entries: list[Entry]


def _shown(name: str, parameters: griffe.Parameters, returns: str, receiver: bool) -> str:
    """A signature, on one line if it fits."""
    listed = [p for p in parameters if not (receiver and p.name in ("self", "cls"))]
    words = []
    starred = False
    for p in listed:
        if p.kind is griffe.ParameterKind.keyword_only and not starred:
            words.append("*")
            starred = True
        starred = starred or p.kind is griffe.ParameterKind.var_positional
        prefix = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(p.kind, "")
        annotation = f": {p.annotation}" if p.annotation is not None else ""
        required = p.default is None or prefix
        default = "" if required else f" = {p.default}" if annotation else f"={p.default}"
        words.append(f"{prefix}{p.name}{annotation}{default}")
    tail = f") -> {returns}" if returns else ")"
    line = f"{name}({', '.join(words)}{tail}"
    if len(line) <= LINE_MOST:
        return line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), tail])


def _text(name: str, value: object) -> str:
    """The docstring as Markdown, without the signature that Cython and dataclasses put in front."""
    text = inspect.getdoc(value) or ""
    first, _, rest = text.partition("\n")
    if first.startswith(f"{name}("):
        text = rest.strip()
    return _markdown(ROLE.sub(r"`\1`", text))


def _markdown(text: str) -> str:
    """Examples in fences. A doctest ends at an empty line, so one stands in front of the closing fence."""
    blocks = re.split(r"\n[ \t]*\n", text)
    fenced = [f"```python\n{block}\n\n```" if block.startswith(">>> ") else block for block in blocks]
    return "\n\n".join(fenced).replace("\n\n```\n\n```python\n", "\n\n")


def _members(found: griffe.Class, live: type) -> Iterator[Entry]:
    """The public methods and properties with a docstring of their own."""
    for name, member in sorted(found.members.items(), key=lambda item: item[0]):
        if name.startswith("_") or name not in vars(live):
            continue
        value = vars(live)[name]
        text = _text(name, getattr(value, "__func__", value))
        if not text:
            continue
        if isinstance(member, griffe.Function):
            yield Entry(name, _shown(name, member.parameters, str(member.returns or ""), True), text, [])
        elif isinstance(member, griffe.Attribute):
            annotation = f": {member.annotation}" if member.annotation is not None else ""
            yield Entry(name, f"{name}{annotation}", text, [])


def _entry(name: str, found: griffe.Object, live: Any) -> Entry:
    if isinstance(found, griffe.Function):
        return Entry(name, _shown(name, found.parameters, str(found.returns or ""), False), _text(name, live), [])
    if isinstance(found, griffe.Class):
        bases = ", ".join(str(base) for base in found.bases)
        takes = any(p.name != "self" for p in found.parameters)
        shown = f"class {_shown(name, found.parameters, '', True)}" if takes else f"class {name}"
        text = _text(name, live)
        if bases:
            text = f"Bases: `{bases}`.\n\n{text}"
        return Entry(name, shown, text, list(_members(found, live)))
    assert isinstance(found, griffe.Attribute)
    value = str(found.value) if found.value is not None else ""
    shown = f"{name} = {value}" if value and len(value) <= LINE_MOST else name
    return Entry(name, shown, "", [])


def _find(root: griffe.Module, path: str) -> griffe.Object:
    found = root[path.removeprefix("kfuzz.")]
    return found.final_target if isinstance(found, griffe.Alias) else found


def modules() -> list[Module]:
    """The public modules and what they export."""
    root = griffe.load("kfuzz", search_paths=[ROOT], allow_inspection=False)
    assert isinstance(root, griffe.Module)
    made = []
    for path in MODULES:
        live = importlib.import_module(path)
        entries = []
        for name in sorted(live.__all__, key=str.lower):
            value = getattr(live, name)
            # A module and a function may have one name (kfuzz.records.read): the object knows where it was defined.
            home = getattr(value, "__module__", None) if callable(value) else None
            try:
                found = _find(root, f"{home}.{name}" if home else f"{path}.{name}")
            except KeyError:
                found = _find(root, f"{path}.{name}")
            entries.append(_entry(name, found, value))
        made.append(Module(path, _text(path, live), entries))
    return made


def page() -> str:
    """The page's text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.get_template("api.md.j2").render(modules=modules())
    return re.sub(r"\n{3,}", "\n\n", text)


def main(words: list[str]) -> int:
    text = page()
    if words == ["--check"]:
        if PAGE.read_text() == text:
            return 0
        print("docs/api.md is out of date; run python -m tools.api")
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
