"""What the oracles of all targets share."""

from __future__ import annotations

from array import array

__all__ = ["OracleFailure", "exact_buffer"]


class OracleFailure(Exception):
    """A target's promise does not hold; the text says which."""


def exact_buffer(data: bytes) -> array[int]:
    """``data`` in a block of exactly its size: a ``bytes`` ends in a NUL, behind which an over-read by one byte hides.

    An array made from bytes is over-allocated; a slice of it is not.
    """
    return array("B", data)[:]
