"""Lines of the logs of brokers and clients, for ``kfuzz explain``: ``log_lines.toml`` has the known ones."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from kfuzz.text import printable

# Of a longer line, the rest is not looked at.
LINE_CHARACTERS_MAX: Final = 64 << 10
# How a path of Unix or Windows begins: not in a URL, and it is no address such as /10.0.0.1 or /::1.
ROOT: Final = r"(?:/(?!\d+\.\d+\.\d+\.\d|[\da-fA-F]*:)|\b[A-Za-z]:[\\/])"
STOPS: Final = r"""'",;:()\[\]{}<>"""
PATH: Final = re.compile(rf"(?<![\w:/.]){ROOT}[^\s{STOPS}]+")
# A path with spaces begins after such a character, and ends with the name of one of Kafka's files.
SPACED: Final = re.compile(rf"(?<![^\s'\"(=\[]){ROOT}")
FILE: Final = re.compile(
    r"(?<=[\\/])(?:\d{20}[\w.-]*|[a-z-]+-checkpoint|meta\.properties|partition\.metadata)(?![\w-])"
)
LOG: Final = re.compile(r"\bpartition=([\w.-]{1,260}), dir=([^\],]+)")
OFFSET: Final = re.compile(r"(?<!byte )\boffset:? (\d{1,19})\b")
# The files of a segment.
SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")
BYTE: Final = re.compile(r"\bbyte offset (\d{1,19})\b")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that is known, as ``log_lines.toml`` describes it."""

    words: tuple[str, ...]
    said_by: str
    means: str
    look: str
    command: str
    thread: str
    example: str

    @property
    def name(self) -> str:
        """The words as one text, which is such a line too."""
        return " … ".join(self.words)

    def is_in(self, text: str) -> bool:
        """Whether the words are in ``text``, in their order."""
        for word in self.words:
            _, found, text = text.partition(word)
            if not found:
                return False
        return True

    def command_for(self, text: str) -> str:
        """The command with the places that the line names."""
        values = _places(text[:LINE_CHARACTERS_MAX])
        return printable(shlex.join(word.format_map(values) for word in self.command.split()))


@cache
def known_lines() -> tuple[LogLine, ...]:
    """All known lines, in the order of the file."""
    found = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["line"]
    return tuple(LogLine(**one | {"words": tuple(one["words"])}) for one in found)


def lines_in(text: str) -> Iterator[LogLine]:
    """The known lines whose words are in ``text``."""
    text = text[:LINE_CHARACTERS_MAX]
    return (one for one in known_lines() if one.is_in(text))


def _places(text: str) -> dict[str, str]:
    """File, segment, folder, offset and byte from a line; a word in capitals for each that it does not name."""
    log, file = LOG.search(text), _path(text)
    offset, byte = OFFSET.search(text), BYTE.search(text)
    slash = "\\" if "\\" in (log[2] if log else file) else "/"
    folder = f"{log[2]}{slash}{log[1]}" if log else ""
    name = file[max(map(file.rfind, "/\\")) + 1 :]
    if not file.startswith(folder):
        file = folder
    elif file and not folder:
        # Names of topics may have dots too.
        folder = file[: -len(name) - 1] if name.endswith(SUFFIXES) or FILE.search(file) else file
    segment = f"{name.partition('.')[0]}.log" if file.endswith(SUFFIXES) else "SEGMENT.log"
    return {
        "file": file or "FILE",
        "segment": f"{folder}{slash}{segment}" if folder else segment,
        "folder": folder or "FOLDER",
        "offset": offset[1] if offset else "OFFSET",
        "byte": byte[1] if byte else "BYTE",
    }


def _path(text: str) -> str:
    """The first path in a line. If it has spaces, it ends with the name of one of Kafka's files."""
    if file := FILE.search(text):
        *_, root = None, *SPACED.finditer(text, 0, file.start())
        if root and not re.search(f"[{STOPS}]", text[root.end() : file.end()]):
            return text[root.start() : file.end()].rstrip(".")
    path = PATH.search(text)
    return path[0].rstrip(".") if path else ""
