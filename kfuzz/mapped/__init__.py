"""Files as mapped memory that a process survives when they become shorter: a broker trims and truncates its logs.

``guard`` replaces the pages that a file has lost by zeros; without it, SIGBUS ends the process. So code that maps a
file must ask :func:`require_whole` before a result of its bytes counts. The command line asks :func:`cut_file` at its
end.
"""

from __future__ import annotations

import mmap
import weakref
from typing import BinaryIO, Final

from kfuzz.errors import UsageError
from kfuzz.mapped.guard import Guard

__all__ = ["Mapped", "became_shorter", "cut_file", "forget_files", "mapped", "require_whole"]


class Mapped(mmap.mmap):
    """The bytes of an open file from ``start`` to ``end``, of which there must be at least one; ``name`` is its path.

    ``start`` must be a multiple of ``mmap.ALLOCATIONGRANULARITY``. Writes into a ``private`` mapping do not
    reach the file. Raises ``UsageError`` if the file ends earlier.
    """

    name: str
    _end: int
    _guard: Guard

    def __new__(cls, file: BinaryIO, start: int, end: int, *, private: bool = False) -> Mapped:
        access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
        try:
            self = super().__new__(cls, file.fileno(), end - start, access=access, offset=start)
        except ValueError:
            raise became_shorter(str(file.name)) from None
        except OSError as error:
            raise UsageError(f"{file.name} cannot be mapped: {error.strerror}") from None
        self.name, self._end = str(file.name), end
        self._guard = Guard(self, is_writable=private)
        OPEN.add(self)
        return self

    @property
    def is_cut(self) -> bool:
        """Whether the file is shorter than it was, or lost bytes in between. The mapping must be open."""
        # In the last page that is left, lost bytes read as zeros without a signal.
        return self._guard.is_cut or self.size() < self._end

    def close(self) -> None:
        if self.closed:
            return
        self._end_watch()
        try:
            super().close()
        except BufferError:
            self._guard.resume()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_guard") and not self.closed:
            self._end_watch()

    def _end_watch(self) -> None:
        if self in OPEN and self.is_cut:
            CUT.append(self.name)
        # Once it is unmapped, the memory may belong to somebody else.
        self._guard.pause()


# The mappings that are open, and the paths of files that were cut when their mapping ended.
OPEN: Final[weakref.WeakSet[Mapped]] = weakref.WeakSet()
CUT: Final[list[str]] = []


def mapped(file: BinaryIO, start: int, end: int, *, private: bool = False) -> memoryview:
    """The bytes of ``file`` from ``start`` to ``end``, of which there must be at least one, as a :class:`Mapped`."""
    first = start - start % mmap.ALLOCATIONGRANULARITY
    return memoryview(Mapped(file, first, end, private=private))[start - first :]


def require_whole(data: object) -> None:
    """``UsageError`` if ``data`` is mapped from a file that became shorter meanwhile; other data is whole."""
    if isinstance(data, memoryview):
        data = data.obj
    if isinstance(data, Mapped) and not data.closed and data.is_cut:
        raise became_shorter(data.name)


def forget_files() -> None:
    """From now on, :func:`cut_file` is about files that are mapped later."""
    CUT.clear()
    OPEN.clear()


def cut_file() -> str | None:
    """A sentence about a file that became shorter while this process had mapped it; None if there is none."""
    names = [*CUT, *(one.name for one in OPEN if not one.closed and one.is_cut)]
    return str(became_shorter(names[0])) if names else None


def became_shorter(name: object) -> UsageError:
    """The error to raise when the file ``name`` has lost bytes while it was read."""
    return UsageError(f"{name} became shorter while it was read; try again, or copy it first")
