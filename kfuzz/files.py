"""Small file manners shared by every layer: nothing half-written ever keeps a final name. Imports the standard
library only.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kfuzz.errors import UsageError

__all__ = ["map_bytes", "open_whole", "read_bytes", "write_whole"]


@contextlib.contextmanager
def open_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """Open ``path`` for writing; the file gets its name only when the block ends without an exception."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        # mkstemp makes private files; an ordinary one follows the umask.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write_whole(path: str | Path, data: bytes | str) -> None:
    """Write ``data`` (text as UTF-8) to ``path`` in one step: readers see the old file or the new one, never a part."""
    with open_whole(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a regular file; ``UsageError`` says what else the path is and what to do."""
    with _readable(path) as file:
        return file.read()


def map_bytes(path: str | Path) -> bytes | mmap.mmap:
    """As :func:`read_bytes`, mapped rather than read: a segment of any size then takes no memory of its own."""
    with _readable(path) as file:
        # An empty file cannot be mapped.
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""


@contextlib.contextmanager
def _readable(path: str | Path) -> Iterator[IO[bytes]]:
    path = Path(path)
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a directory; name a file in it")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; check the name") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
