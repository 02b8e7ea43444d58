"""Documents from others: whatever they hold, they are read in bounded time, or refused with one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kfuzz.documents import DEPTH_MAX, load_json, load_toml
from kfuzz.errors import UsageError

MANY = 50_000


@pytest.mark.parametrize(
    ("load", "document", "reason"),
    [
        (load_json, "[" * MANY, "is nested deeper than 100 levels"),
        (load_json, '{"a":' * MANY, "is nested deeper than 100 levels"),
        (load_json, "[" * 150 + "]" * 150, "is nested deeper than 100 levels"),
        (load_json, "9" * 5000, "a number has too many digits"),
        (load_json, b'"\xff"', "byte 1 is not UTF-8"),
        (load_json, '{\n"a" 1}', "line 2, column 5: expecting ':' delimiter"),
        (load_toml, "a" + ".a" * MANY + "=1", "is nested deeper than 100 levels (line 1)"),
        (load_toml, "b=1\n[a" + ".a" * MANY + "]", "is nested deeper than 100 levels (line 2)"),
        (load_toml, "b={a" + '."a"' * MANY + "=1}", "is nested deeper than 100 levels"),
        (load_toml, "a=" + "[" * MANY, "is nested deeper than 100 levels"),
        (load_toml, "a=" + "{a=" * MANY, "is nested deeper than 100 levels"),
        (load_toml, "a=" + "[" * 150 + "]" * 150, "is nested deeper than 100 levels"),
        (load_toml, "a=" + "9" * 5000, "a number has too many digits"),
        (load_toml, b"a='\xff'", "byte 3 is not UTF-8"),
        (load_toml, "a=1\na=2", "cannot overwrite a value (at end of document)"),
        (load_toml, " " * ((1 << 20) + 1), "is too large for TOML"),
    ],
)
def test_a_hostile_document_is_refused_with_its_name_and_the_reason(
    load: Callable[[bytes | str, str], Any], document: bytes | str, reason: str
) -> None:
    with pytest.raises(UsageError) as raised:
        load(document, "given.file")
    assert str(raised.value).startswith("given.file ")
    assert reason in str(raised.value)


def test_json_above_its_bound_is_refused() -> None:
    with pytest.raises(UsageError, match="is too large for JSON"):
        load_json("[1, 2, 3]", "given.json", bytes_max=8)


def test_documents_up_to_the_bounds_are_read() -> None:
    deepest = "[" * DEPTH_MAX + "]" * DEPTH_MAX
    assert load_json(deepest, "name") == load_json(f"\ufeff{deepest}".encode(), "name")
    # Words with dots are a key only where nothing but dots is between them.
    assert load_toml("a='''\n" + "so. and so. " * MANY + "'''", "name")["a"].startswith("so. ")
    assert load_toml("a" + ".a" * (DEPTH_MAX - 2) + "=1", "name")
