"""JSON with ``//`` comments, in which every value knows its line.

Kafka's definitions are written in it. The standard library's reader knows neither comments nor places, and a wrong
definition should be told where it is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final, NoReturn

from kfuzz.errors import UsageError

__all__ = ["Node", "parse", "plain"]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
# The longest, of the least float, has some three hundred places; nobody writes it.
_LONGEST_NUMBER: Final = 400
# Definitions nest as deep as their structs, with two levels for each.
_DEEPEST: Final = 64


@dataclass(slots=True)
class Node:
    """A value and the line it begins on: text, number, flag, None, a list of nodes, or a dict of nodes."""

    value: Any
    line: int


def parse(text: str, file: str) -> Node:
    """The one value in ``text``; ``UsageError`` with the line where it is no JSON. ``file`` is what errors call it."""
    return _Parser(text, file).document()


def plain(node: Node) -> Any:
    """The value as the standard library's reader would give it."""
    if isinstance(node.value, dict):
        return {key: plain(member) for key, member in node.value.items()}
    if isinstance(node.value, list):
        return [plain(member) for member in node.value]
    return node.value


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.at = 0
        # Where the line that `at` was last asked for begins.
        self.line = 1
        self.counted = 0

    def document(self) -> Node:
        node = self.value(0)
        self.blank()
        if self.at < len(self.text):
            self.fail("text after the end of the definition; take it out, or write it as a // comment")
        return node

    def here(self) -> int:
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line

    def fail(self, what: str) -> NoReturn:
        raise UsageError(f"{self.file}:{self.here()}: {what}")

    def blank(self) -> str:
        """Step over what means nothing; the next character, or nothing at the end."""
        following = self.text[self.at : self.at + 1]
        # The usual case: catalogues are written without blanks.
        if following and following not in " \t\r\n/":
            return following
        found = _BLANK.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Node:
        first = self.blank()
        line = self.here()
        if depth > _DEEPEST:
            self.fail(f"more than {_DEEPEST} levels of brackets; no definition nests so deep")
        if first == "{":
            return Node(self.object(depth), line)
        if first == "[":
            return Node(self.array(depth), line)
        if first == '"':
            return Node(self.string(), line)
        if number := _NUMBER.match(self.text, self.at):
            if len(number[0]) > _LONGEST_NUMBER:
                self.fail(f"a number of {len(number[0])} digits; none takes more than {_LONGEST_NUMBER}")
            self.at = number.end()
            return Node(json.loads(number[0]), line)
        word = next((word for word in _WORDS if self.text.startswith(word, self.at)), None)
        if word is None:
            self.fail(f"{first!r} where a value belongs" if first else "the text ends where a value belongs")
        self.at += len(word)
        return Node(_WORDS[word], line)

    def string(self) -> str:
        try:
            value, self.at = scanstring(self.text, self.at + 1, True)
        except json.JSONDecodeError as error:
            self.fail(f"a text is broken: {error.msg}")
        return str(value)

    def object(self, depth: int) -> dict[str, Node]:
        made: dict[str, Node] = {}

        def member() -> None:
            if self.blank() != '"':
                self.fail("a name in quotation marks belongs here")
            name = self.string()
            if self.blank() != ":":
                self.fail(f'a colon belongs behind "{name}"')
            self.at += 1
            value = self.value(depth + 1)
            # Two definitions of Kafka 3.9 say a thing twice, and Kafka's own reader does not mind.
            if name in made and plain(made[name]) != plain(value):
                self.fail(f'"{name}" is there twice, and not the same; keep one of them')
            made[name] = value

        self.members("}", member)
        return made

    def array(self, depth: int) -> list[Node]:
        made: list[Node] = []
        self.members("]", lambda: made.append(self.value(depth + 1)))
        return made

    def members(self, end: str, member: Callable[[], None]) -> None:
        """What stands between the bracket at ``at`` and ``end``, commas in between."""
        self.at += 1
        if self.blank() == end:
            self.at += 1
            return
        while True:
            member()
            found = self.blank()
            if found not in (",", end):
                self.fail(f"{f'{found!r}' if found else 'the end'} where a comma or {end!r} belongs")
            self.at += 1
            if found == end:
                return
            if self.blank() == end:
                self.fail(f"a comma before {end!r}; take it out")
