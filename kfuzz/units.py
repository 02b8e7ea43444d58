"""Numbers with units, as people write them, and times as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from kfuzz.errors import UsageError

__all__ = ["NUMBER", "counted", "parse_duration", "utc_text"]

NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,9})?")
SECONDS: Final[Mapping[str, float]] = {"": 1, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> float:
    """Seconds: ``90``, ``90s``, ``1.5m``, ``2h``, ``1d``. ``UsageError`` for anything else, and for 0."""
    match = re.fullmatch(r"\s*([\d.]+)\s*([a-z]*)\s*", text)
    if match is None or not NUMBER.fullmatch(match[1]) or match[2] not in SECONDS or float(match[1]) <= 0:
        raise UsageError(f"{text!r} is not a time; give seconds, or a number with ms, s, m, h or d, such as 90s")
    return float(match[1]) * SECONDS[match[2]]


def counted(number: int, one: str, several: str = "") -> str:
    """The number with its noun: ``1 testee``, ``2 testees``. ``several`` is the plural if it is irregular."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def utc_text(milliseconds: int) -> str:
    """A timestamp (milliseconds since 1970) as a time in UTC; a number that is beyond the calendar stays a number.

    >>> utc_text(1_700_000_000_001)
    '2023-11-14T22:13:20.001Z'
    """
    seconds, rest = divmod(milliseconds, 1000)
    moment = _second(seconds)
    return f"{moment}.{rest:03d}Z" if moment else str(milliseconds)


# Timestamps that follow each other are often in the same second.
@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""
