"""Finds in a stack the line of source that explains a crash."""

from __future__ import annotations

import re
from typing import Final

from kfuzz.text import foreign_text

# A path with a line of source. It matches every path, so that no character is looked at twice.
_PATH: Final = re.compile(r'(?P<path>[^\s:"]++)(?::(?P<line>[0-9]++)|", line (?P<python_line>[0-9]++))?')
# Where the package managers of Go, Rust, Node and Python keep the sources of libraries.
_GO: Final = "/pkg/mod/"
_RUST: Final = "/registry/src/"
_PYTHON: Final = "/site-packages/"
_ENDINGS: Final = {_GO: (".go",), _RUST: (".rs",), "/node_modules/": (".js", ".cjs", ".mjs"), _PYTHON: (".py",)}
_GO_VERSION: Final = re.compile(r"@v[^/]*")
_GO_CAPITAL: Final = re.compile(r"!([a-z])")
# How runtimes begin a crash message. Its last lines are the end of a long stack.
_HEADLINE: Final = re.compile(
    r"^(?:fatal error|panic|memory allocation of|FATAL ERROR|Fatal Python error|thread '[^']*' (?:\(\d+\) )?panicked)\b"
)


def library_line(text: str, library: str = "") -> str:
    """The first line of a library's source that a stack in ``text`` names, without this machine's folders.

    Empty if there is none. Lines whose path has ``library`` in it come before those of the packages that it uses. The
    first line is the innermost one, except in Python's stacks, which end with it.

    >>> from kfuzz.conformance.protocol.stacks import library_line
    >>> library_line("main.go:7 +0x1d\\n\\t/go/pkg/mod/example.org/kafka@v1.2.3/record.go:40 +0x2f\\n")
    'example.org/kafka/record.go:40'
    """
    places = [place for found in _PATH.finditer(text) if (place := _place(found))]
    return next((place for place in places if library in place), places[0] if places else "")


def _place(found: re.Match[str]) -> str:
    """The path inside the packages, with the line; empty if it is not a library's."""
    whole = found["path"]
    starts = [
        (at, folder)
        for folder, endings in _ENDINGS.items()
        if found["python_line" if folder == _PYTHON else "line"]
        and whole.endswith(endings)
        and (at := whole.find(folder)) >= 0
    ]
    if not starts:
        return ""
    at, folder = min(starts)
    path = whole[at + len(folder) :]
    if folder == _RUST:
        # The registry's own folder comes first.
        path = path.partition("/")[2]
    elif folder == _GO:
        path = _GO_CAPITAL.sub(lambda letter: letter[1].upper(), _GO_VERSION.sub("", path))
    return foreign_text(f"{path}:{found['line'] or found['python_line']}") if path else ""


def headline(text: str) -> str:
    """The first line in ``text`` in which a runtime says why it ends; empty if there is none."""
    return next((line.strip() for line in text.splitlines() if _HEADLINE.match(line)), "")
