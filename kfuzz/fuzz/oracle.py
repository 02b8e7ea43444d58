"""Helpers that the oracles of all targets share."""

from __future__ import annotations

import ctypes
from array import array
from functools import cache
from typing import Any, Final

# Further than the fields of any header.
BEYOND: Final = 4096
# Where CPython keeps the size of an object: after its count of references and its type.
SIZE_AT: Final = object.__basicsize__


class OracleFailure(Exception):
    """A promise of the target is broken. The text says which one."""


class MemoryRefused(MemoryError):
    """An input made the target ask for more memory at once than the input justifies, and it continued without."""


class Undeclared(Exception):
    """A peer raised an exception that it does not document; it is the cause of this one.

    ``at`` is the peer's innermost line in the stack, or empty.
    """

    def __init__(self, text: str, at: str) -> None:
        super().__init__(text)
        self.at = at


def exact_buffer(data: bytes) -> array[int]:
    """Copy ``data`` into a block of exactly its size, so that a sanitizer sees an over-read by one byte.

    A ``bytes`` object ends in a NUL byte, which would hide it. An array made from bytes is over-allocated, but a slice
    of that array is not.
    """
    return array("B", data)[:]


def exact_bytes(data: bytes) -> bytes:
    """Copy ``data`` into a ``bytes`` object that no code may read beyond its end, for readers that take only ``bytes``.

    Under the address sanitizer, its block continues for :data:`BEYOND` bytes that must not be read, the last NUL byte
    among them. Other objects in memory would hide a read that goes far. This needs Python's allocator ``malloc``, so
    that the object has a block of its own. Without the sanitizer it is only a copy.
    """
    poison = _poison()
    if poison is None:
        return bytes(bytearray(data))
    copy = bytes(bytearray(data) + bytes(BEYOND))
    begin = id(copy) + bytes.__basicsize__ - 1
    ctypes.c_ssize_t.from_address(id(copy) + SIZE_AT).value = len(data)
    poison(ctypes.c_void_p(begin + len(data)), ctypes.c_size_t(BEYOND + 1))
    return copy


@cache
def _poison() -> Any:
    return getattr(ctypes.CDLL(None), "__asan_poison_memory_region", None)
