"""Java's arithmetic and text, where Kafka's behaviour follows from them."""

from __future__ import annotations

import codecs
from typing import Final

__all__ = ["AS_JAVA", "through_java", "wrap64"]


def wrap64(number: int) -> int:
    """``number`` as Java's long arithmetic leaves it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def through_java(data: bytes) -> bytes:
    """``data`` after Java has read it as UTF-8 text and written it again: bad bytes have become U+FFFD.

    Java takes the bytes of an encoded surrogate together, where Python replaces each.

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


# The name of the error handler that reads text as Java does.
AS_JAVA: Final = "kfuzz-as-java"
codecs.register_error(AS_JAVA, _replace_as_java)
