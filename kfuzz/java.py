"""Java's arithmetic and text decoding, for behaviour that Kafka inherits from Java."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Final


def wrap64(number: int) -> int:
    """``number`` wrapped to 64 bits, as Java's ``long`` arithmetic does."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def text_hash(text: str) -> int:
    """``String.hashCode`` of characters that take one ``char`` in Java.

    >>> text_hash("group-7"), text_hash("Aa") == text_hash("BB")
    (293427305, True)
    """
    code = 0
    for char in text:
        code = code * 31 + ord(char) & 0xFFFFFFFF
    return code - (code >> 31 << 32)


def hash_map_order(keys: Iterable[int]) -> list[int]:
    """Different non-negative 64-bit ``keys`` in the order in which Java's ``HashMap<Long, …>`` returns them.

    That order is by bucket. In a bucket, Java keeps the order in which keys came; here, smaller keys are first.

    >>> hash_map_order(range(14, 18))
    [16, 17, 14, 15]
    """
    found = sorted(keys)
    buckets = 16
    while len(found) * 4 > buckets * 3:
        buckets *= 2
    return sorted(found, key=lambda key: _spread(key) % buckets)


def _spread(key: int) -> int:
    """The bits that a ``HashMap`` takes of a ``Long``: ``Long.hashCode``, with its upper half over the lower."""
    code = (key ^ key >> 32) & 0xFFFFFFFF
    return code ^ code >> 16


def through_java(data: bytes) -> bytes:
    """``data`` after Java has decoded it as UTF-8 and encoded it again: invalid bytes become U+FFFD.

    Java replaces all bytes of an encoded surrogate with one U+FFFD; Python replaces each byte.

    >>> through_java(b"k\\xff").hex()
    '6befbfbd'
    """
    return data.decode(errors=AS_JAVA).encode()


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and data[start + 1 : start + 2] >= b"\xa0":
        while end < min(start + 3, len(data)) and data[end] & 0xC0 == 0x80:
            end += 1
    return "\ufffd", end


# The name of the codec error handler that decodes text as Java does.
AS_JAVA: Final = "kfuzz-as-java"
codecs.register_error(AS_JAVA, _replace_as_java)
