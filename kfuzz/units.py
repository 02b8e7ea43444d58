"""Numbers with units, as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kfuzz.errors import UsageError

__all__ = ["NUMBER", "parse_duration"]

NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,9})?")
SECONDS: Final[Mapping[str, float]] = {"": 1, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> float:
    """Seconds: ``90``, ``90s``, ``1.5m``, ``2h``, ``1d``. ``UsageError`` for anything else, and for 0."""
    match = re.fullmatch(r"\s*([\d.]+)\s*([a-z]*)\s*", text)
    if match is None or not NUMBER.fullmatch(match[1]) or match[2] not in SECONDS or float(match[1]) <= 0:
        raise UsageError(f"{text!r} is not a time; give seconds, or a number with ms, s, m, h or d, such as 90s")
    return float(match[1]) * SECONDS[match[2]]
