"""Memory that ends at a page which may not be touched: a read beyond it kills the process."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

from programs import SAME_PATHS, run_program

LIBC = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """``pages`` pages and one after them that may not be touched."""

    def __init__(self, pages: int) -> None:
        self.map = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        self.bytes = pages * mmap.PAGESIZE
        end = ctypes.addressof(ctypes.c_char.from_buffer(self.map)) + self.bytes
        if LIBC.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def put(self, data: bytes) -> memoryview:
        """``data`` right before the guarded page."""
        self.map[self.bytes - len(data) : self.bytes] = data
        return memoryview(self.map)[self.bytes - len(data) : self.bytes]


def printed(script: Path) -> str:
    """The output of a script that reads guarded memory. It fails if the script does."""
    return run_program(sys.executable, script, variables=SAME_PATHS).stdout
