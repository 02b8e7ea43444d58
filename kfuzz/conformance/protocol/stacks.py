"""Finds in a stack the line of source that explains a crash."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["headline", "library_line"]

# Where the package managers of Go, Rust, Node and Python keep the sources of libraries.
_LIBRARY_LINE: Final = re.compile(
    r"""
      /pkg/mod/(?P<go>[^\s:]+\.go):(?P<go_line>\d+)
    | /registry/src/[^/\s]+/(?P<rust>[^\s:]+\.rs):(?P<rust_line>\d+)
    | /node_modules/(?P<node>[^\s:]+\.[cm]?js):(?P<node_line>\d+)
    | /site-packages/(?P<python>[^\s"]+\.py)",\ line\ (?P<python_line>\d+)
    """,
    re.VERBOSE,
)
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
    places = [_place(found) for found in _LIBRARY_LINE.finditer(text)]
    return next((place for place in places if library in place), places[0] if places else "")


def _place(found: re.Match[str]) -> str:
    language = next(name for name in ("go", "rust", "node", "python") if found[name])
    path = found[language]
    if language == "go":
        path = _GO_CAPITAL.sub(lambda letter: letter[1].upper(), _GO_VERSION.sub("", path))
    return f"{path}:{found[f'{language}_line']}"


def headline(text: str) -> str:
    """The first line in ``text`` in which a runtime says why it ends; empty if there is none."""
    return next((line.strip() for line in text.splitlines() if _HEADLINE.match(line)), "")
