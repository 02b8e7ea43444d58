"""Helpers that the oracles of all targets share."""

from __future__ import annotations

from array import array

__all__ = ["MemoryRefused", "OracleFailure", "exact_buffer"]


class OracleFailure(Exception):
    """A promise of the target is broken. The text says which one."""


class MemoryRefused(MemoryError):
    """An input made the target ask for more memory at once than the input justifies, and it went on without."""


def exact_buffer(data: bytes) -> array[int]:
    """Copy ``data`` into a block of exactly its size, so that a sanitizer sees an over-read by one byte.

    A ``bytes`` object ends in a NUL byte, which would hide it. An array made from bytes is over-allocated, but a slice
    of that array is not.
    """
    return array("B", data)[:]
