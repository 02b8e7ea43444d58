"""Small file manners shared by every layer: nothing half-written ever keeps a final name."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kfuzz.errors import UsageError

__all__ = [
    "cannot_write",
    "local_path",
    "locked",
    "map_bytes",
    "open_whole",
    "read_bytes",
    "require_writable",
    "write_whole",
]

# A disk without room, a quota that is used up, a limit on the size of one file.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# One letter before the colon would be a drive of Windows. One slash: `Path` drops the second.
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(.*)", re.DOTALL)


def local_path(place: str | Path) -> Path:
    """The path that ``place`` names on this machine; ``file:///data`` is ``/data``.

    ``UsageError`` for any other scheme (``s3a://``, ``hdfs://``, …): taken as a path, it would make a folder ``s3a:``.
    """
    match = URL.fullmatch(str(place))
    if match is None:
        return Path(place)
    scheme, rest = match[1].lower(), match[2]
    if scheme != "file":
        raise UsageError(
            f"{place} is on {scheme}:, which kfuzz neither reads nor writes; name a directory of a mounted file system"
        )
    if rest.startswith("/"):
        host, slash, rest = rest[1:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise UsageError(f"{place} names the machine {host!r}; write file:///, then the path from the root")
    return Path("/" + rest)


def cannot_write(path: str | Path, error: OSError) -> UsageError:
    """The sentence for ``error``, met while ``path`` was written: the path, the reason and the remedy."""
    remedy = "free space there or name a place on another disk" if error.errno in FULL else "name another place"
    return UsageError(f"{path} cannot be written: {error.strerror}; {remedy}")


@contextlib.contextmanager
def open_whole(path: str | Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Open ``path`` for writing; the file gets its name only when the block ends without an exception.

    ``mode`` is what the umask takes from: 0o777 for a program.
    A device or a pipe (/dev/null, /dev/stdout) is written to as it is: to rename over it would take it away.
    ``UsageError`` where no file can be made.
    """
    path = require_writable(path)
    if path.exists() and not path.is_file():
        with _full_as_sentence(path), path.open("wb") as file:
            yield file
        return
    # A link stays one: what it names is replaced.
    path = path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise cannot_write(path, error) from None
    try:
        with _full_as_sentence(path), os.fdopen(descriptor, "wb") as file:
            yield file
        # mkstemp makes private files; others follow the umask.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, mode & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def _full_as_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # An error with a name is about another file.
        if error.errno in FULL and error.filename is None:
            raise cannot_write(path, error) from None
        raise


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the existing ``directory`` against other processes that ask for it here, and wait while one holds it.

    For builds: two processes that need the same product at the same time make it once. The lock is on the directory
    itself, so nothing is left behind, and it ends with the process.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def require_writable(path: str | Path, *, directory: bool = False) -> Path:
    """The path on this machine; ``UsageError`` where plainly no file (or ``directory``) can be made there.

    For use before long work.
    """
    path = local_path(path)
    try:
        if not directory and path.is_dir():
            raise UsageError(f"{path} is a directory; name a file in it")
        there = next(place for place in ([path] if directory else []) + list(path.absolute().parents) if place.exists())
    except OSError as error:
        raise cannot_write(path, error) from None
    if not there.is_dir():
        raise UsageError(f"{path} cannot be written: {there} is not a directory; name another place")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written: {there} does not let you; name another place")
    return path


def write_whole(path: str | Path, data: bytes | str, *, mode: int = 0o666) -> None:
    """Write ``data`` (text as UTF-8) to ``path`` in one step: readers see the old file or the new one, never a part."""
    with open_whole(path, mode=mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file or a pipe; ``UsageError`` says what else the path is and what to do."""
    with _readable(path) as file:
        return file.read()


def map_bytes(path: str | Path) -> bytes | mmap.mmap:
    """As :func:`read_bytes`, mapped rather than read: a segment of any size then takes no memory of its own."""
    with _readable(path) as file:
        # Neither an empty file nor a pipe can be mapped.
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else file.read()


@contextlib.contextmanager
def _readable(path: str | Path) -> Iterator[IO[bytes]]:
    path = Path(path)
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a directory; name a file in it")
        # A device (/dev/zero, a terminal) may have no end.
        if path.is_char_device() or path.is_block_device():
            raise UsageError(f"{path} is a device; name a file, or - for standard input")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; check the name") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
