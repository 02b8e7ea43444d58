"""The forms that values have in JSON, whatever schema they were decoded by. Imported on first use: it needs msgspec."""

from __future__ import annotations

import math
import struct
from typing import Final

import msgspec

from kfuzz.records.contents import bytes_form

# Also writes times and dates as text (ISO 8601).
encode: Final = msgspec.json.Encoder().encode
_SINGLE: Final = struct.Struct("<f")


def number_form(value: float) -> float | str:
    """The number; a text for those that JSON lacks: ``NaN``, ``Infinity`` and ``-Infinity``."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def single_form(value: float) -> float | str:
    """The same for a number of 32 bits, with the fewest digits that give it."""
    if not math.isfinite(value):
        return number_form(value)
    data = _SINGLE.pack(value)
    shortest = (float(f"{value:.{digits}g}") for digits in range(6, 10))
    return next((one for one in shortest if abs(one) < 3.4e38 and _SINGLE.pack(one) == data), value)


def json_form(data: bytes) -> bytes:
    """The JSON document without spaces between its parts, and with its numbers as they are. Any exception if it is no
    JSON.
    """
    data.decode()
    return msgspec.json.format(data, indent=-1)


def text_or_hex(data: bytes) -> bytes:
    """The JSON of bytes that no schema is known for."""
    return encode(bytes_form(data))
