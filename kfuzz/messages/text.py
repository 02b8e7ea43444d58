"""Parses JSON with ``//`` comments, and keeps the line of every value.

Kafka's definitions have this form. An error in a definition should say on which line it is, but the standard library's
parser supports neither line numbers nor comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final, NoReturn

from kfuzz.errors import UsageError
from kfuzz.text import foreign_text

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
# Even the smallest float, written without an exponent, needs only some 300 digits.
_LONGEST_NUMBER: Final = 400
# Each level of structs in a definition takes two levels of brackets.
_DEEPEST: Final = 64


@dataclass(slots=True)
class Node:
    """A value and the line it begins on. The value is a str, number, bool, None, list of nodes or dict of nodes."""

    value: Any
    line: int


def parse(text: str, file: str) -> Node:
    """Parse the one value in ``text``. Raises ``UsageError`` with ``file`` and line if this is not possible."""
    return _Parser(text, file).document()


def plain(node: Node) -> Any:
    """The value without nodes, as the standard library's parser would return it."""
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
        # `line` is the line of offset `counted`; `here` counts on from there.
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
        raise UsageError(f"{self.file}:{self.here()}: {foreign_text(what)}")

    def blank(self) -> str:
        """Skip blanks and comments. Returns the next character, or an empty string at the end."""
        following = self.text[self.at : self.at + 1]
        # The usual case, because catalogues have no blanks.
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
            self.fail(f"there are more than {_DEEPEST} levels of brackets; remove some")
        if first == "{":
            return Node(self.object(depth), line)
        if first == "[":
            return Node(self.array(depth), line)
        if first == '"':
            return Node(self.string(), line)
        if number := _NUMBER.match(self.text, self.at):
            if len(number[0]) > _LONGEST_NUMBER:
                self.fail(f"the number has {len(number[0])} digits; at most {_LONGEST_NUMBER} are allowed")
            self.at = number.end()
            return Node(json.loads(number[0]), line)
        word = next((word for word in _WORDS if self.text.startswith(word, self.at)), None)
        if word is None:
            self.fail(f"expected a value, found {first!r}" if first else "expected a value, found the end")
        self.at += len(word)
        return Node(_WORDS[word], line)

    def string(self) -> str:
        try:
            value, self.at = scanstring(self.text, self.at + 1, True)
        except json.JSONDecodeError as error:
            self.fail(f"invalid string: {error.msg}")
        return str(value)

    def object(self, depth: int) -> dict[str, Node]:
        made: dict[str, Node] = {}

        def member() -> None:
            if self.blank() != '"':
                self.fail("expected a name in quotation marks")
            name = self.string()
            if self.blank() != ":":
                self.fail(f'expected a colon after "{name}"')
            self.at += 1
            value = self.value(depth + 1)
            # Two definitions of Kafka 3.9 repeat a member, and Kafka's own parser accepts that.
            if name in made and plain(made[name]) != plain(value):
                self.fail(f'"{name}" has two different values; keep one of them')
            made[name] = value

        self.members("}", member)
        return made

    def array(self, depth: int) -> list[Node]:
        made: list[Node] = []
        self.members("]", lambda: made.append(self.value(depth + 1)))
        return made

    def members(self, end: str, member: Callable[[], None]) -> None:
        """Parse members and the commas between them, from the opening bracket at ``at`` to the bracket ``end``."""
        self.at += 1
        if self.blank() == end:
            self.at += 1
            return
        while True:
            member()
            found = self.blank()
            if found not in (",", end):
                self.fail(f"expected a comma or {end!r}, found {f'{found!r}' if found else 'the end'}")
            self.at += 1
            if found == end:
                return
            if self.blank() == end:
                self.fail(f"a comma before {end!r}; take it out")
