"""Builders for the themes of primitives.

``Single`` is the bytes of one primitive and their value. The recipe states the value and the expected finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kfuzz.errors import UsageError
from kfuzz.messages.primitives import read, to_json_value, write

# Stands for the missing value if the bytes must be refused.
NOTHING: Any = object()


@dataclass(frozen=True, slots=True)
class Single:
    """Bytes of one primitive. ``value`` is in JSON form, or ``NOTHING``; ``size`` is the value's length in bytes."""

    primitive: str
    data: bytes
    value: Any
    size: int
    finding: str | None = None

    @property
    def verdict(self) -> str:
        if self.value is NOTHING:
            return "invalid"
        return "valid" if self.finding is None else "acceptable"


def of(primitive: str, value: Any) -> Single:
    """A value with its correct encoding."""
    data = write(primitive, value)
    return Single(primitive, data, to_json_value(primitive, value), len(data))


def broken(primitive: str, data: bytes, finding: str, value: Any = NOTHING, *, size: int | None = None) -> Single:
    """Bytes that cause ``finding``. ``value`` is the value that may still be read, ``size`` its length in bytes."""
    reading = read(primitive, data)
    found = [one.code for one in reading.findings]
    if (finding not in found) or ((reading.fatal is None) == (value is NOTHING)):
        raise UsageError(f"the recipe of {primitive} {data.hex()} expects {finding}; the reader finds {found}")
    stated = NOTHING if value is NOTHING else to_json_value(primitive, value)
    return Single(primitive, data, stated, len(data) if size is None else size, finding)
