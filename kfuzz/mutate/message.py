"""Makes broken messages: changes, removes or inserts bytes of a good message.

Values that are typical mistakes in lengths, counts and nulls are drawn most often. ``mutant`` ignores the structure.
``restructured`` changes one field of the message, and mostly corrects the counts and sizes around it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from kfuzz.wire.cursor import uvarint

if TYPE_CHECKING:
    from kfuzz.wire.message import Place

__all__ = ["mutant", "restructured"]

_BYTES: Final = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF)
_WORDS: Final = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
)


def mutant(rng: random.Random, data: bytes) -> bytes:
    """``data`` after one to three changes, drawn from ``rng``."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not made:
            made += rng.randbytes(1)
        at = rng.randrange(len(made))
        way = rng.random()
        if way < 0.35:
            made[at] = rng.choice((*_BYTES, rng.randrange(256)))
        elif way < 0.5:
            made[at] ^= 1 << rng.randrange(8)
        elif way < 0.65:
            del made[at:]
        elif way < 0.75:
            made[at:at] = rng.randbytes(rng.randint(1, 4))
        elif way < 0.85:
            del made[at : at + rng.randint(1, 4)]
        elif way < 0.95:
            word = rng.choice(_WORDS)
            made[at : at + len(word)] = word
        else:
            made += rng.randbytes(rng.randint(1, 3))
    return bytes(made)


# ------------------------------------------------------------------------------------------------- by structure

# A replacement: the offset, the number of old bytes, and the new bytes.
_Edit = tuple[int, int, bytes]
_Change = Callable[[random.Random, bytes, "Sequence[Place]"], list[_Edit]]

_COUNTS: Final = ("count", "tag-count")
# Boundary values: where a varint grows by a byte, Kafka's limits, and the limits of int16 and int32.
_NUMBERS: Final = (
    *(0, 1, 2, 0x7F, 0x80, 0x3FFF, 0x4000, 0x7FFF, 0x8000, 0xFFFF),
    *(10_000, 10_001, 1_000_000, 1_000_001, 1_000_002),
    *((1 << 31) - 1, 1 << 31, (1 << 32) - 1),
)
# Tags of known and unknown fields, up to the highest that a writer accepts, and two above it.
_TAGS: Final = (0, 1, 2, 3, 4, 9, 127, 128, 10_000, (1 << 31) - 2, (1 << 31) - 1, (1 << 32) - 1)
_SIZES: Final = (0, 1, 2, 126, 127, 128, 255, 256, 1000)
# Mostly invalid UTF-8: a lone byte, an overlong NUL, half a surrogate pair, above U+10FFFF, a truncated sequence.
_TEXTS: Final = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\0", "\u20ac".encode())
_KEEPS_COUNT: Final = 0.25
_KEEPS_SIZES: Final = 0.25
_OVERLONG: Final = 0.1


def restructured(rng: random.Random, data: bytes, places: Sequence[Place]) -> bytes:
    """``data`` after one change, drawn from ``rng``, at one of its ``places`` (``Schema.places``).

    The change is one of these:

    * a length, count, tag or value gets another value
    * a string or bytes field gets another length
    * an element or a tagged field is removed, copied or moved
    * a tagged field with random content is added

    If ``data`` has no suitable place, ``mutant`` changes it.
    """
    change = rng.choices(_CHANGES, _WEIGHTS)[0]
    edits = change(rng, data, places)
    if not edits:
        return mutant(rng, data)
    if rng.random() >= _KEEPS_SIZES:
        edits += _sizes_around(places, edits)
    made = bytearray(data)
    for at, size, new in sorted(edits, reverse=True):
        made[at : at + size] = new
    return bytes(made)


def _other_number(rng: random.Random, data: bytes, places: Sequence[Place]) -> list[_Edit]:
    """Another length, count, tag, size or presence."""
    numbers = [place for place in places if place[3] != "value"]
    if not numbers:
        return []
    place = rng.choice(numbers)
    at, size, _, _, value = place
    new = _written(data, place, value + rng.randint(-2, 2) if rng.random() < 0.5 else rng.choice(_NUMBERS))
    if not _is_fixed(data, place) and rng.random() < _OVERLONG:
        new = new[:-1] + bytes([new[-1] | 0x80]) + b"\x80" * rng.choice((0, 0, 1, 3, 4)) + b"\0"
    return [(at, size, new)]


def _other_value(rng: random.Random, data: bytes, places: Sequence[Place]) -> list[_Edit]:
    """Another number, or other bytes, of the same size."""
    values = [place for place in places if place[3] == "value"]
    if not values:
        return []
    at, size, _, _, value = rng.choice(values)
    if isinstance(value, str):
        new = rng.choice(_TEXTS)[:size]
        at += rng.randrange(size - len(new) + 1)
        return [(at, len(new), new)]
    ends = (bytes(size), b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), b"\x80" + bytes(size - 1))
    return [
        (at, size, rng.choice((*ends, bytes(size - 1) + b"\1", b"\x7f\xf8" + bytes(size), rng.randbytes(size)))[:size])
    ]


def _other_size(rng: random.Random, data: bytes, places: Sequence[Place]) -> list[_Edit]:
    """Make a string or bytes field longer, shorter, or null, with a matching length."""
    lengths = [i for i, place in enumerate(places) if place[3] == "length"]
    if not lengths:
        return []
    i = rng.choice(lengths)
    at, size, path, _, _ = places[i]
    has_bytes = i + 1 < len(places) and places[i + 1][2:4] == (path, "value")
    end = at + size + (places[i + 1][1] if has_bytes else 0)
    bias = 0 if _is_fixed(data, places[i]) else 1
    if rng.random() < 0.2:
        return [(at, end - at, _written(data, places[i], bias - 1))]
    n = rng.choice(_SIZES)
    old = data[at + size : end] or b"x"
    new = (old * (n // len(old) + 1))[:n]
    return [(at, end - at, _written(data, places[i], n + bias) + new)]


def _other_elements(rng: random.Random, data: bytes, places: Sequence[Place]) -> list[_Edit]:
    """Remove, copy or move an element of an array or a tagged field; mostly correct the count too."""
    counts = [i for i in range(len(places) - 1) if places[i][3] in _COUNTS and _is_within(places[i], places[i + 1])]
    if not counts:
        return []
    i = rng.choice(counts)
    spans = _elements(places, i)
    k = rng.randrange(len(spans))
    start, end = spans[k]
    way = rng.random()
    if way < 0.2 and k + 1 < len(spans):
        last = spans[k + 1][1]
        return [(start, last - start, data[end:last] + data[start:end])]
    times = 0 if way < 0.5 else rng.choice((2, 2, 2, 3, 9))
    edits = [(start, end - start, data[start:end] * times)]
    if rng.random() >= _KEEPS_COUNT:
        at, size, _, _, value = places[i]
        edits.append((at, size, _written(data, places[i], value + times - 1)))
    return edits


def _one_more_tag(rng: random.Random, data: bytes, places: Sequence[Place]) -> list[_Edit]:
    """Add a tagged field before or after the other tagged fields of a struct."""
    counts = [i for i, place in enumerate(places) if place[3] == "tag-count"]
    if not counts:
        return []
    i = rng.choice(counts)
    at, size, _, _, value = places[i]
    count = _written(data, places[i], value + 1)
    inside = rng.randbytes(rng.choice((0, 1, 2, 127, 128)))
    field = uvarint(rng.choice(_TAGS)) + uvarint(len(inside)) + inside
    spans = _elements(places, i)
    if not spans or rng.random() < 0.3:
        return [(at, size, count + field)]
    start, end = spans[-1]
    return [(at, size, count), (start, end - start, data[start:end] + field)]


_CHANGES: Final[tuple[_Change, ...]] = (_other_number, _other_value, _other_size, _other_elements, _one_more_tag)
_WEIGHTS: Final = (35, 20, 15, 20, 10)


def _elements(places: Sequence[Place], i: int) -> list[tuple[int, int]]:
    """The [start, end) of each element or tagged field that the count at place ``i`` counts."""
    _, _, path, part, _ = places[i]
    starts: list[int] = []
    end = 0
    before = None
    for place in islice(places, i + 1, None):
        if not _is_within(places[i], place):
            break
        at, size, where, what, _ = place
        # All places of one element have its number in their path. A tag begins a new tagged field.
        element = where[: where.index("]", len(path))] if part == "count" else before
        if element != before or (part == "tag-count" and what == "tag" and where == path):
            starts.append(at)
            before = element
        end = at + size
    return list(zip(starts, [*starts[1:], end], strict=False))


def _is_within(count: Place, place: Place) -> bool:
    """Whether ``place``, which follows ``count``, belongs to an element or field that it counts."""
    if count[3] == "count":
        return place[2].startswith(f"{count[2]}[")
    return place[2].startswith(f"{count[2]}.") or place[2:4] == (count[2], "tag")


def _sizes_around(places: Sequence[Place], edits: Sequence[_Edit]) -> list[_Edit]:
    """Edits that correct the sizes of the tagged fields around ``edits``."""
    first = min(at for at, _, _ in edits)
    last = max(at + size for at, size, _ in edits)
    grown = sum(len(new) - size for _, size, new in edits)
    made: list[_Edit] = []
    # From the inside out: if an inner size takes one byte more, the outer sizes grow too.
    for at, size, _, part, value in reversed(places):
        if part == "tag-size" and at + size <= first and last <= at + size + value:
            new = uvarint((value + grown) & 0xFFFFFFFF)
            made.append((at, size, new))
            grown += len(new) - size
    return made


def _is_fixed(data: bytes, place: Place) -> bool:
    """Whether the number at ``place`` has a fixed size (int8, int16, int32) and is not a varint.

    The first bit of a varint of two or four bytes is 1, so an integer of fixed size would be negative.
    """
    at, size, _, part, value = place
    return part == "presence" or (size in (2, 4) and int.from_bytes(data[at : at + size], "big", signed=True) == value)


def _written(data: bytes, place: Place, number: int) -> bytes:
    """``number`` encoded like the number at ``place``: fixed size or varint."""
    if _is_fixed(data, place):
        size = place[1]
        return (number & ((1 << 8 * size) - 1)).to_bytes(size, "big")
    return uvarint(number & 0xFFFFFFFF)
