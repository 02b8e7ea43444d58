"""No pattern takes quadratic time: texts come from testees, brokers and files, and no budget bounds the referee."""

from __future__ import annotations

import importlib
import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

import pytest
from conftest import counts

from kfuzz.conformance.judge.causes import Deviation, masked
from kfuzz.conformance.judge.harm import HARMS
from kfuzz.conformance.protocol.stacks import headline, library_line
from kfuzz.fuzz import causes
from kfuzz.text import file_name, foreign_text, printable

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("match", "fullmatch", "search", "sub", "findall", "finditer", "split")
# CPU time, so that a busy machine fails no test. A linear pattern takes milliseconds.
BOUND_S = 1
# Letters that stand for a class of them.
EXAMPLES = {"CATEGORY_DIGIT": "7", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "w", "CATEGORY_NOT_SPACE": "x"}


def modules_with_patterns() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "kfuzz").rglob("*.py")):
        source = file.read_text()
        if "re.compile" in source:
            yield ".".join(file.relative_to(ROOT).with_suffix("").parts), source


def patterns_in(value: Any, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, tuple | list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from patterns_in(one, depth - 1)


def used(name: str, sources: str) -> Iterable[str]:
    """The methods by which a pattern is used."""
    found = set(re.findall(rf"\b{name}\.({'|'.join(METHODS)})\b", sources))
    return sorted(found) or ("match", "fullmatch", "search")


def atoms(pattern: re.Pattern[Any]) -> list[str]:
    """The literal texts of a pattern, and a letter of each class that it names."""
    found: dict[str, None] = {}

    def walk(parsed: Any) -> None:
        text = ""
        for kind, value in parsed:
            if kind is _constants.LITERAL:
                text += chr(value)
                found[chr(value)] = None
                continue
            if text:
                found[text] = None
            text = ""
            if kind is _constants.CATEGORY:
                found[EXAMPLES.get(str(value), "-")] = None
            elif kind is _constants.RANGE:
                found[chr(value[0])] = None
            elif isinstance(value, tuple | list | _parser.SubPattern):
                look_into(value)
        if text:
            found[text] = None

    def look_into(value: Any) -> None:
        for one in value:
            if isinstance(one, _parser.SubPattern):
                walk(one)
            elif isinstance(one, list):
                for inner in one:
                    walk(inner if isinstance(inner, _parser.SubPattern) else [inner])
            elif isinstance(one, tuple) and one and isinstance(one[0], _constants._NamedIntConstant):
                walk([one])

    walk(_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))
    return list(found)


def adversaries(pattern: re.Pattern[Any], size: int) -> Iterator[Any]:
    """Texts that look like the beginnings of many matches, and are none."""
    own = atoms(pattern)
    for atom in dict.fromkeys((*own, "".join(own), "A", "\\'", '"\\', " ")):
        for text in (atom * (size // len(atom)), own[0] + atom * (size // len(atom)) if own else ""):
            yield (text + "\0").encode() if isinstance(pattern.pattern, bytes) else text + "\0"


def bound_s(size: int) -> float:
    return BOUND_S * max(1.0, size / 200_000)


class TooSlow(Exception):
    pass


@pytest.fixture
def in_time() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def the_patterns() -> Iterator[tuple[str, str, re.Pattern[Any], Iterable[str]]]:
    sources = list(modules_with_patterns())
    text = "\n".join(source for _, source in sources)
    for module, _ in sources:
        try:
            names = vars(importlib.import_module(module))
        except ImportError:
            continue
        for name, value in names.items():
            for pattern in patterns_in(value):
                yield module, name, pattern, used(name, text)
    for name in ("UNDEFINED", "FRAME", "NAMELESS_FRAME", "PYTHON_FRAME"):
        yield "kfuzz.fuzz.causes", name, causes._pattern(getattr(causes, name), "kfuzz"), ("match",)


@pytest.mark.parametrize("size", counts(20_000, 100_000, 1_000_000))
def test_each_pattern_is_linear(size: int, in_time: None) -> None:
    slow = []
    tried = 0
    for module, name, pattern, methods in the_patterns():
        tried += 1
        for text in adversaries(pattern, size):
            for method in methods:
                signal.setitimer(signal.ITIMER_VIRTUAL, bound_s(size))
                try:
                    empty = b"" if isinstance(text, bytes) else ""
                    found = getattr(pattern, method)(*((empty, text) if method == "sub" else (text,)))
                    if method == "finditer":
                        list(found)
                except TooSlow:
                    slow.append(f"{module}.{name}.{method}: {text[:40]!r}")
                    break
                finally:
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if slow and slow[-1].startswith(f"{module}.{name}."):
                break
    assert tried > 50
    assert not slow


HOSTILE = (
    "A", "'", "\\'", 'b"', "x is ", "; expected ", "x is null; expected ", "._unknownTaggedFields[", "0x1", "1_", "1.",
    "/pkg/mod/", "/node_modules/a.js:", "/site-packages/", "kfuzz/", "fatal error", "Error", "\ud800", "\0", "\n", " ",
)  # fmt: skip


@pytest.mark.parametrize("size", counts(20_000, 100_000, 1_000_000))
@pytest.mark.parametrize("letters", HOSTILE, ids=repr)
def test_a_long_text_of_any_letters_is_read_at_once(letters: str, size: int, in_time: None) -> None:
    text = letters * (size // len(letters))
    signal.setitimer(signal.ITIMER_VIRTUAL, 5 * bound_s(size))
    assert len(masked(text)) < 200
    for harm in HARMS:
        assert Deviation("toy@1", harm.name, "crc-mismatch", text, "", "toy/one", "consumer", 1).key
    assert len(library_line(text)) < 5000
    headline(text)
    causes.explain([text], 1)
    causes._place([f"  {text}"], "kfuzz")
    foreign_text(text), printable(text), file_name(text)
