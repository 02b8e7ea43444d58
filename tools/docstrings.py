"""Lets griffe show kfuzz's docstrings: mkdocs.yml and tests/tidy name this extension.

A compiled module has its signatures in a stub and its docstrings in itself, so they come from the imported module.
Docstrings become Markdown: examples in fences, and no roles of Sphinx.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any, Final

import griffe

# Cross-references as Sphinx has them.
ROLE: Final = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):`~?([^`]+)`")
# An example ends at an empty line.
EXAMPLE: Final = re.compile(r"^>>> .*?(?=\n[ \t]*\n(?!>>> )|\Z)", re.MULTILINE | re.DOTALL)


class Docstrings(griffe.Extension):
    """Gives the objects of stubs their docstrings, and makes all docstrings Markdown."""

    def on_object(self, *, obj: griffe.Object, loader: Any, **unused: Any) -> None:
        stub = not isinstance(obj.filepath, list) and obj.filepath.suffix == ".pyi"
        if stub and obj.docstring is None and obj.name[0] != "_" and (text := _text_of_compiled(obj)):
            obj.docstring = griffe.Docstring(text, parent=obj)
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```python\n\g<0>\n```", ROLE.sub(r"`\1`", obj.docstring.value))


def _text_of_compiled(obj: griffe.Object) -> str:
    """The docstring without the signature or type that Cython puts in front; empty for what only the stub has."""
    live: Any = importlib.import_module(obj.module.path)
    for name in obj.path.removeprefix(obj.module.path).split(".")[1:]:
        live = getattr(live, name, None)
    if live is None or (obj.is_attribute and not inspect.isdatadescriptor(live)):
        return ""
    text = inspect.getdoc(live) or ""
    first, _, rest = text.partition("\n")
    return rest.strip() if first.startswith((f"{obj.name}(", f"{obj.name}: ")) else text
