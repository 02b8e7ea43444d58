"""Text from others: errors, names, versions and labels of testees, brokers, peers, files and folders.

:func:`foreign_text` takes such a text in: bounded, and valid Unicode. :func:`printable` makes a text harmless for a
terminal, :func:`file_name` for the name of a file. Nothing else prints text from others or makes file names of it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Final

# An error's first lines say what is wrong. The referee holds, groups and prints thousands of them.
FOREIGN_BYTES_MAX: Final = 4096
# Every `name@version` of the testee protocol fits whole.
FILE_NAME_CHARACTERS_MAX: Final = 140
_NOT_IN_FILE_NAMES: Final = re.compile(r"[^A-Za-z0-9.@_+-]+")
# Everything that may have to be escaped; `str.isprintable` decides.
_SUSPECT: Final = re.compile(r"[^\x20-\x7e]")
_SUSPECT_IN_JSON: Final = re.compile(r"[^\x20-\x7e\n]")
# How Python keeps the byte 0x80 + n of a file name that is not UTF-8.
_SURROGATE_OF_BYTE: Final = range(0xDC80, 0xDD00)
# The folders of `kfuzz.places`, whose files stand for files elsewhere: paths in them, and the names of the real places.
ELSEWHERE: Final[dict[str, dict[str, str]]] = {}


def foreign_text(value: object, *, bytes_max: int = FOREIGN_BYTES_MAX) -> str:
    r"""``value`` as valid Unicode of at most ``bytes_max`` bytes of UTF-8; a text that was cut says so at its end.

    Lone surrogates become their escapes, as do bytes that are not UTF-8. Control characters stay: a document escapes
    them, and :func:`printable` does so for a terminal.

    >>> foreign_text("half of a pair: \ud800")
    'half of a pair: \\ud800'
    >>> foreign_text("A" * 5000)[-30:]
    'AAAA… (cut from 5000 characters)'
    """
    if isinstance(value, bytes | bytearray):
        text = value[: bytes_max + 1].decode("utf-8", "backslashreplace")
        whole = f"{len(value)} bytes" if len(value) > bytes_max else ""
    else:
        text = value if isinstance(value, str) else str(value)
        whole = f"{len(text)} characters"
        text = text[: bytes_max + 1]
    # Most texts are short ASCII.
    if len(text) <= bytes_max and text.isascii():
        return text
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= bytes_max:
        return data.decode()
    mark = f"… (cut from {whole or f'{len(text)} characters'})"
    # A character that the cut divides is dropped.
    return data[: max(bytes_max - len(mark.encode()), 0)].decode("utf-8", "ignore") + mark


def printable(text: str) -> str:
    r"""``text`` on one line for a terminal: control, format and other invisible characters become escapes.

    >>> printable("ok\x1b[2J\u202e\udcff")
    'ok\\x1b[2J\\u202e\\xff'
    """
    text = really(text)
    return text if text.isprintable() else _SUSPECT.sub(_escaped, text)


def shell_word(text: object) -> str:
    r"""``text`` as one word of a command that a reader pastes. :func:`printable` changes nothing in it.

    A POSIX shell since 2024, like bash and zsh before, reads escapes between ``$'`` and ``'``.

    >>> print(shell_word("my causes"), shell_word("a'\\udcff"))
    'my causes' $'a\\x27\\xff'
    """
    text = really(str(text))
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped_in_shell, text))}'"


def json_printable(document: str) -> str:
    r"""A JSON document whose strings have JSON's escapes for all invisible characters; its contents stay the same.

    >>> json_printable('{"key": "a\x9b"}')
    '{"key": "a\\u009b"}'
    """
    return _SUSPECT_IN_JSON.sub(_escaped_in_json, really(document, lambda name: json.dumps(name)[1:-1]))


def really(text: str, escape: Callable[[str], str] = str) -> str:
    """``text`` with the real names of files that stand for files elsewhere."""
    for folder, names in [*ELSEWHERE.items()]:
        if folder in text:
            for path in sorted(filter(text.__contains__, names), key=len, reverse=True):
                text = text.replace(path, escape(names[path]))
    return text


def file_name(text: str) -> str:
    """``text`` as one component of a path: letters, digits and ``.@_+-`` only, never empty and never a hidden file.

    >>> file_name("../../etc"), file_name(".."), file_name("kafka-clients@4.4.0")
    ('-..-etc', 'unnamed', 'kafka-clients@4.4.0')
    """
    return _NOT_IN_FILE_NAMES.sub("-", text[:FILE_NAME_CHARACTERS_MAX]).lstrip(".") or "unnamed"


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code - 0xDC00:02x}" if code in _SURROGATE_OF_BYTE else repr(char)[1:-1]


def _escaped_in_shell(char: str) -> str:
    if char.isprintable() and char not in "\\'":
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def _escaped_in_json(match: re.Match[str]) -> str:
    char = match[0]
    if char.isprintable():
        return char
    # JSON writes a character beyond U+FFFF as two.
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
