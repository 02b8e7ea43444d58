"""JSON and TOML from others, with bounds on size, depth and the digits of a number.

Python's parsers end in a ``RecursionError`` on deep nesting, and take minutes for a key of very many parts. Here each
of these is a ``UsageError`` with one sentence that names the document.
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, Final

from kfuzz.errors import UsageError

# The largest documents of kfuzz's own are results of whole runs, of some 30 MB.
JSON_BYTES_MAX: Final = 256 << 20
# Lists, objects and their members. Python takes up to 100 bytes for each; a result of all testees has about a million.
JSON_ELEMENTS_MAX: Final = 5_000_000
TOML_BYTES_MAX: Final = 1 << 20
# No document of kfuzz's own nests deeper than 20 levels; walks over values may call themselves.
DEPTH_MAX: Final = 100
# A key of too many parts, also in an inline table. Prose has spaces between its words, so it is no such key.
_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\."""
_DOTTED: Final = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_PART}[ \t]*+){{{DEPTH_MAX}}}")


def load_json(
    data: bytes | str,
    name: str,
    *,
    remedy: str = "correct it, or name another file",
    bytes_max: int = JSON_BYTES_MAX,
    depth_max: int = DEPTH_MAX,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """The value of a JSON document in UTF-8. ``UsageError`` names the document, the place, and ``remedy``."""
    with _explained(data, name, "JSON", remedy, bytes_max, depth_max):
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        brackets = text.count("[") + text.count("{")
        if (elements := brackets + text.count(",")) > JSON_ELEMENTS_MAX:
            raise UsageError(f"{name} has about {elements} elements; kfuzz reads at most {JSON_ELEMENTS_MAX}")
        value = json.loads(text, object_pairs_hook=object_pairs_hook)
    # Only a document with that many brackets can be so deep.
    if brackets > depth_max:
        check_depth(value, name, remedy=remedy, depth_max=depth_max)
    return value


def load_toml(
    data: bytes | str, name: str, *, remedy: str = "correct it, or name another file", bytes_max: int = TOML_BYTES_MAX
) -> dict[str, Any]:
    """The table of a TOML document in UTF-8. ``UsageError`` names the document, the place, and ``remedy``."""
    with _explained(data, name, "TOML", remedy, bytes_max, DEPTH_MAX):
        text = data if isinstance(data, str) else data.decode()
        if dotted := _DOTTED.search(text):
            line = text.count("\n", 0, dotted.start()) + 1
            raise UsageError(f"{name} is nested deeper than {DEPTH_MAX} levels (line {line}); {remedy}")
        value = tomllib.loads(text)
    check_depth(value, name, remedy=remedy)
    return value


def check_depth(value: Any, name: str, *, remedy: str, depth_max: int = DEPTH_MAX) -> None:
    """Raise ``UsageError`` if lists and objects in ``value`` nest deeper than ``depth_max`` levels."""
    level = [value]
    for _ in range(depth_max + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        if not inner:
            return
        level = inner
    raise UsageError(f"{name} is nested deeper than {depth_max} levels; {remedy}")


@contextlib.contextmanager
def _explained(data: bytes | str, name: str, kind: str, remedy: str, bytes_max: int, depth_max: int) -> Iterator[None]:
    """Raise ``UsageError`` if ``data`` is too large, and in place of each error of a parser in the block."""
    if len(data) > bytes_max:
        raise UsageError(f"{name} is too large for {kind} that kfuzz reads: {len(data)} bytes, at most {bytes_max}")
    try:
        yield
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not {kind}: byte {error.start} is not UTF-8; {remedy}") from None
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:]
        raise UsageError(f"{name} is not JSON: line {error.lineno}, column {error.colno}: {what}; {remedy}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {str(error)[:1].lower()}{str(error)[1:]}; {remedy}") from None
    except RecursionError:
        raise UsageError(f"{name} is nested deeper than {depth_max} levels; {remedy}") from None
    except ValueError as error:
        # Python refuses to convert numbers of more than 4,300 digits, because that takes quadratic time.
        what = "a number has too many digits" if "digits" in str(error) else str(error)
        raise UsageError(f"{name} cannot be read: {what}; {remedy}") from None
