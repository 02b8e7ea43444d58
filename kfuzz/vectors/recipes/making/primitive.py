"""What the themes of primitives are made with.

``Single`` is bytes of one primitive and what they hold; the recipe states the value, and what there is to be found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kfuzz.errors import UsageError
from kfuzz.messages.primitives import read, to_json_value, write

__all__ = ["NOTHING", "Single", "broken", "of"]

# In the place of a value where the bytes must be refused.
NOTHING: Any = object()


@dataclass(frozen=True, slots=True)
class Single:
    """Bytes of a primitive: ``value`` is what they hold, in JSON form, or ``NOTHING``; ``size`` is what it takes."""

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
    """A value as it is written."""
    data = write(primitive, value)
    return Single(primitive, data, to_json_value(primitive, value), len(data))


def broken(primitive: str, data: bytes, finding: str, value: Any = NOTHING, *, size: int | None = None) -> Single:
    """Bytes with something to be found in them; ``value`` is what is read all the same, ``size`` of how many bytes."""
    reading = read(primitive, data)
    found = [one.code for one in reading.findings]
    if (finding not in found) or ((reading.fatal is None) == (value is NOTHING)):
        raise UsageError(f"the recipe of {primitive} {data.hex()} says {finding}; there is {found}")
    stated = NOTHING if value is NOTHING else to_json_value(primitive, value)
    return Single(primitive, data, stated, len(data) if size is None else size, finding)
