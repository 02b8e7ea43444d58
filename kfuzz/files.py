"""File helpers for every layer. A half-written file never gets its final name."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, BinaryIO, Final

from kfuzz.errors import NotRegular, UsageError

# The disk is full, the quota is used up, or the file reached its size limit.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PIECE_BYTES: Final = 1 << 20
FILE_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# At least two letters before the colon: one letter is a Windows drive. One slash, because `Path` drops the second.
# fsspec joins several by "::", as in simplecache::s3://bucket. The last one may be a path, after a cache any path.
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+(?:::[A-Za-z0-9+.-]+)*)(?:::?/|(?<=cache)::)(.*)", re.DOTALL)

# The folders of `kfuzz.places`, whose files stand for files elsewhere. Each has a function: it gets the path of such a
# file, and returns that of a file with its bytes.
ELSEWHERE: Final[dict[str, Callable[[str], str | Path]]] = {}


def _fetch_of(path: str | Path) -> Callable[[str], str | Path] | None:
    return next((fetch for folder, fetch in [*ELSEWHERE.items()] if str(path).startswith(folder)), None)


def is_elsewhere(path: str | Path) -> bool:
    """Whether this file stands for one in a store or an archive, so that opening it copies the whole one."""
    return _fetch_of(path) is not None


def _fetched(path: str | Path) -> str | Path:
    """The file to open for ``path``: another one if it stands for a file elsewhere."""
    fetch = _fetch_of(path)
    return path if fetch is None else fetch(str(path))


def local_path(place: str | Path) -> Path:
    """The path that ``place`` names on this machine; ``file:///data`` is ``/data``.

    Raises ``UsageError`` for other schemes (``s3a://``, ``hdfs://``, …): as paths, they would make a folder ``s3a:``.
    An empty name is refused too: ``Path`` takes it for the current folder, but a script's variable was not set.
    So is a link that leads in a circle: Python 3.12 and older end with a ``RuntimeError`` when they resolve it.
    """
    if place == "":
        raise UsageError("a name is empty; name a file or a folder")
    match = URL.fullmatch(str(place))
    if match is None:
        try:
            os.stat(place)
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) == errno.ELOOP:
                raise UsageError(f"{place} is a link that leads in a circle; name another place") from None
        return Path(place)
    scheme, rest = match[1].lower(), match[2]
    if scheme != "file":
        raise UsageError(
            f"{place} is on {scheme}:, which kfuzz cannot read or write; name a directory of a mounted file system"
        )
    if rest.startswith("/"):
        host, slash, rest = rest[1:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise UsageError(f"{place} names the machine {host!r}; write file:///, then the path from the root")
    return Path("/" + rest)


def cannot_write(path: str | Path, error: OSError) -> UsageError:
    """The error to raise when writing ``path`` failed with ``error``: it names the path, the reason and the remedy."""
    number, reason = error.errno, error.strerror
    if isinstance(error, shutil.Error):
        # A folder was copied, and the error has only the texts of those of its files.
        number = next((one for one in FULL if os.strerror(one) in str(error)), None)
        reason = os.strerror(number) if number else "not all files can be copied"
    remedy = "free space there or name a place on another disk" if number in FULL else "name another place"
    return UsageError(f"{path} cannot be written: {reason}; {remedy}")


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """An error of the file system in the block is raised as that of :func:`cannot_write`."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from None


@contextlib.contextmanager
def open_whole(path: str | Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Open ``path`` for writing; the file gets its name only when the block ends without an exception.

    ``mode`` holds the permissions before the umask is applied: 0o777 for a program.
    A device or a pipe (/dev/null, /dev/stdout) is written directly, because a rename would replace it with a file.
    Raises ``UsageError`` if no file can be made.
    """
    path = require_writable(path)
    if path.exists() and not path.is_file():
        with _full_as_sentence(path), path.open("wb") as file:
            yield file
        return
    # A symbolic link stays a link: only its target is replaced.
    path = path.resolve()
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # With all of a long name, this one would be too long.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:50]}.", suffix=".tmp", dir=path.parent)
    try:
        with _full_as_sentence(path), os.fdopen(descriptor, "wb") as file:
            yield file
        # mkstemp makes private files; this one must follow the umask.
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
        # An error with a file name is about another file.
        if error.errno in FULL and error.filename is None:
            raise cannot_write(path, error) from None
        raise


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the existing ``directory`` against other processes that call this; wait while another process holds it.

    For builds: when two processes need the same product at the same time, only one builds it. The lock is on the
    directory itself, so it leaves no file, and it ends with the process.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def require_writable(path: str | Path, *, directory: bool = False) -> Path:
    """The path on this machine; ``UsageError`` if no file (or ``directory``) can be made there.

    Call this before long work, to fail early. It makes nothing, so the write itself can still fail.
    """
    path = local_path(path)
    with writing(path):
        if not directory and path.is_dir():
            raise UsageError(f"{path} is a directory; name a file in it")
        there = next(place for place in ([path] if directory else []) + list(path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise UsageError(f"{path} cannot be written: {there} is not a directory; name another place")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written: you have no permission in {there}; name another place")
    return path


def require_empty(directory: str | Path, *, remedy: str = "name another folder") -> Path:
    """The path of a folder to make; ``UsageError`` with ``remedy`` if it holds something, or if none can be made there.

    Like :func:`require_writable`, it makes nothing.
    """
    target = require_writable(directory, directory=True)
    if target.is_dir() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty; {remedy}")
    return target


@contextlib.contextmanager
def whole_directory(directory: str | Path) -> Iterator[Path]:
    """Yield a folder to fill, which does not exist yet. It gets its name when the block ends without an exception.

    ``directory`` must be empty or not exist, as :func:`require_empty` says. Raises ``UsageError`` if it cannot be
    written; then no part of it is left.
    """
    target = Path(directory).resolve()
    missing = [folder for folder in (target, *target.parents) if not folder.exists()]
    there = next(folder for folder in target.parents if folder.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".kfuzz-made.", dir=there) as staging:
            made = Path(staging) / "made"
            yield made
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(made, target)
    except OSError as error:
        remove_empty(missing)
        raise cannot_write(target, error) from None


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove these folders, inner ones first. Missing folders and folders that are not empty are skipped."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def write_whole(path: str | Path, data: bytes | str, *, mode: int = 0o666) -> None:
    """Write ``data`` (text as UTF-8) to ``path`` atomically: readers see the old file or the new one, never a part."""
    with open_whole(path, mode=mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write several files: all of them, or none. ``UsageError`` if one of them cannot be written; then those that were
    replaced have their old contents again, and those that are new are gone.
    """
    before = {path: path.read_bytes() if path.is_file() else None for path in contents}
    try:
        with contextlib.ExitStack() as stack:
            # Each file is complete under another name before the first one gets its own.
            for path, data in contents.items():
                file = stack.enter_context(open_whole(path))
                file.write(data)
                file.flush()
    except BaseException:
        for path, old in before.items():
            if old is None:
                path.unlink(missing_ok=True)
            elif path.read_bytes() != old:
                write_whole(path, old)
        raise


def copy_if_changed(source: Path, target: Path) -> None:
    """Copy a file, unless ``target`` has the same bytes.

    For copies of a checkout that compile by time: what has not changed must not be newer than what was made of it. So
    the first copy has the time of its source, and a later copy has the present time.
    """
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    elif target.read_bytes() != source.read_bytes():
        shutil.copyfile(source, target)


def sync_directory(path: Path) -> None:
    """Wait until the names of the files in ``path`` are on the disk; ``UsageError`` if that fails."""
    with writing(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_bytes(path: str | Path, *, bytes_max: int = -1) -> bytes:
    """The bytes of a file or a pipe. ``UsageError`` for any other path says what the path is and what to do.

    ``UsageError`` also if there are more than ``bytes_max`` bytes; -1 is no bound.
    """
    with _readable(path) as file:
        return _read_up_to(file, path, bytes_max)


def read_most(file: BinaryIO, bytes_max: int) -> bytes:
    """The first bytes of a file, at most so many. ``file.read`` takes memory for all of them, also of a small file."""
    parts = list[bytes]()
    while bytes_max > 0 and (part := file.read(min(bytes_max, PIECE_BYTES))):
        parts.append(part)
        bytes_max -= len(part)
    return b"".join(parts)


def _read_up_to(file: BinaryIO, path: str | Path, bytes_max: int) -> bytes:
    data = file.read() if bytes_max < 0 else read_most(file, bytes_max + 1)
    if len(data) > bytes_max >= 0:
        raise UsageError(f"{path} is larger than {bytes_max} bytes, the most that kfuzz reads of such a file")
    return data


def map_bytes(path: str | Path, *, remedy: str = "name a file") -> bytes | mmap.mmap:
    """Like :func:`read_bytes`, but maps the file, so that a large segment takes no memory of its own.

    Ask ``kfuzz.mapped.require_whole`` before a result counts: the file may become shorter while it is read.
    """
    with _readable(path, remedy) as file:
        return map_file(file)


def map_regular(path: str | Path) -> bytes | mmap.mmap:
    """Like :func:`map_bytes`, for a file inside a folder that somebody else made; see :func:`open_regular`."""
    with open_regular(path) as file:
        return map_file(file)


def map_file(file: BinaryIO) -> bytes | mmap.mmap:
    """The bytes of an open file, as :func:`map_bytes`."""
    # `make build` builds the testees with this module while the modules of kfuzz.mapped are still being compiled.
    from kfuzz.mapped import Mapped

    size = os.fstat(file.fileno()).st_size
    # Empty files and pipes cannot be mapped; both report size 0.
    return Mapped(file, 0, size) if size else file.read()


@contextlib.contextmanager
def _readable(path: str | Path, remedy: str = "name a file") -> Iterator[BinaryIO]:
    path = local_path(path)
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a directory; name a file in it")
        # A device (/dev/zero, a terminal) may have no end.
        if path.is_char_device() or path.is_block_device() or path.is_socket():
            raise UsageError(f"{path} is {file_kind(path.stat().st_mode)}; {remedy}")
        with open(_fetched(path), "rb") as file:
            yield file
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; check the name") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def open_regular(path: str | Path, *, follow: bool = False) -> BinaryIO:
    """Open a file inside a folder that somebody else made; ``NotRegular`` unless it is a regular file.

    A link could lead out of the folder, and a pipe or a device could keep the reader for ever. ``follow`` allows a
    link, for a path that the user named; what it leads to must still be a regular file. ``UsageError`` if it cannot be
    opened.
    """
    remedy = "name a regular file" if follow else "in a folder, kfuzz reads only regular files"
    try:
        # Without O_NONBLOCK, opening a pipe waits for its writer. A regular file does not know the flag.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        descriptor = os.open(_fetched(path), flags)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; check the name") from None
    except (OSError, ValueError) as error:
        # Linux's error for a link that it must not follow ("too many levels of symbolic links") explains nothing.
        if getattr(error, "errno", None) == errno.ELOOP:
            raise NotRegular(f"{path} is a link, which kfuzz does not follow; name the file that it leads to") from None
        # Only a socket cannot be opened at all; a device may lack its driver.
        if getattr(error, "errno", None) in (errno.ENXIO, errno.ENODEV):
            raise NotRegular(f"{path} is a socket or a device; {remedy}") from None
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {reason}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        kind = file_kind(os.fstat(descriptor).st_mode)
        os.close(descriptor)
        raise NotRegular(f"{path} is {kind}; {remedy}")
    # So the file knows its name.
    return open(path, "rb", opener=lambda *_: descriptor)


def read_small(path: str | Path, *, bytes_max: int, follow: bool = False) -> bytes:
    """The bytes of a small regular file: a checkpoint, a mark, a description. ``UsageError`` if it is larger."""
    with open_regular(path, follow=follow) as file:
        try:
            return _read_up_to(file, path, bytes_max)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def require_no_link(root: Path, name: str | Path) -> None:
    """``NotRegular`` if ``name`` or a folder on the way to it from ``root`` is a link: it may lead anywhere.

    To be called before anything in a folder that somebody else may have filled is read, written or removed.
    """
    path = root
    for part in Path(name).parts:
        path /= part
        if path.is_symlink():
            raise NotRegular(f"{path} is a link, which kfuzz does not follow; remove it, or name another folder")


def file_kind(mode: int) -> str:
    """The kind of file at a path, by its ``st_mode``: ``a regular file``, ``a directory``, ``a link``, ``a pipe``, …"""
    return FILE_KINDS.get(stat.S_IFMT(mode), "no file")
