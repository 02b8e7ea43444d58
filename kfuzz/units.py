"""Numbers with units, as people write them, and times as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from kfuzz.errors import UsageError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES: Final[Mapping[str, int]] = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 1 << 40, "PIB": 1 << 50,
}  # fmt: skip
RELATIVE_MS: Final[Mapping[str, int]] = {
    "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip
# The end of the year 9999, the last that Python's dates can hold.
DATE_MS_MAX: Final = 253_402_300_799_999

NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,9})?")
SECONDS: Final[Mapping[str, float]] = {"": 1, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> float:
    """Seconds: ``90``, ``90s``, ``1.5m``, ``2h``, ``1d``. ``UsageError`` for anything else, and for 0."""
    match = re.fullmatch(r"\s*([\d.]+)\s*([a-z]*)\s*", text)
    if match is None or not NUMBER.fullmatch(match[1]) or match[2] not in SECONDS or float(match[1]) <= 0:
        raise UsageError(f"{text!r} is not a time; give seconds, or a number with ms, s, m, h or d, such as 90s")
    return float(match[1]) * SECONDS[match[2]]


def parse_size(value: str | int) -> int | None:
    """The bytes in a size such as ``"64MiB"``, ``"1.5 GB"`` or a plain number; None if ``value`` is not a size."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    match = re.fullmatch(r"\s*(\d{1,18})(?:\.(\d{1,9}))?\s*([A-Za-z]*)\s*", value)
    if match is None or match[3].upper() not in SIZES:
        return None
    unit = SIZES[match[3].upper()]
    fraction = match[2] or "0"
    return int(match[1]) * unit + int(fraction) * unit // int("1" + "0" * len(fraction))


def show_size(size: int) -> str:
    """``size`` in the largest unit that divides it: 268435456 is ``256 MiB``."""
    for unit, name in ((1 << 50, "PiB"), (1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def relative_ms(text: str) -> int | None:
    """The milliseconds that a text such as ``now-6h`` adds to now; None if it is no such text."""
    match = re.fullmatch(rf"now(?:([+-])(\d{{1,9}})({'|'.join(RELATIVE_MS)}))?", text)
    if match is None:
        return None
    return int(f"{match[1]}{match[2]}") * RELATIVE_MS[match[3]] if match[1] else 0


def parse_moment(value: object) -> int | str | None:
    """Milliseconds since 1970 for a number or a date with a time zone; a text relative to now stays; else None."""
    if isinstance(value, str):
        if relative_ms(value) is not None:
            return value
        try:
            value = datetime.fromisoformat(value.upper())
        except ValueError:
            return None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def counted(number: int, one: str, several: str = "") -> str:
    """The number with its noun: ``1 testee``, ``2 testees``. ``several`` is the plural if it is irregular."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def date(ms: int) -> str:
    """The date of ``ms`` since 1970 in UTC, to the second."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if ms <= DATE_MS_MAX else f"{ms} ms"


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
