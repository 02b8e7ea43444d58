"""Code that all containers share: the result of decompression, and the exceptions for a bad stream."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Decompressed(NamedTuple):
    """The result of decompressing a payload.

    ``ended`` is one of:

    - "whole": the stream ended after ``consumed`` bytes. ``reason`` is set if its content does not match its header.
    - "limit": the output would be larger than the bound.
    - "broken": the stream is bad; ``reason`` says why.

    ``data`` holds all bytes that a reader of the stream gets up to that point.
    """

    data: bytes
    consumed: int
    ended: Literal["whole", "limit", "broken"]
    reason: str = ""


class Broken(Exception):
    """The stream cannot be read further; the text says why."""


class Cut(Broken):
    """The stream ends too early."""


def require_memory(error: Exception, sign: str, library: str) -> None:
    """Raise ``MemoryError`` if the library's error says so by ``sign``. Then it says nothing about the stream."""
    if sign in str(error):
        raise MemoryError(f"{library} does not have enough memory to decompress") from None
