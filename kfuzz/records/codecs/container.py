"""What every container shares: the result of reading one, and the ways in which a stream can be wrong."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Broken", "Cut", "Decompressed"]


class Decompressed(NamedTuple):
    """What came out of a compressed payload.

    ``ended``: "whole", the stream came to its end after ``consumed`` bytes; "limit", the output would exceed the bound;
    "broken", for ``reason``; a stream that is whole may have a reason too: its content is not what its header says.
    ``data`` holds what a reader of the stream has got up to there.
    """

    data: bytes
    consumed: int
    ended: Literal["whole", "limit", "broken"]
    reason: str = ""


class Broken(Exception):
    """The stream cannot go on; the text says why."""


class Cut(Broken):
    """The stream ends too early."""
