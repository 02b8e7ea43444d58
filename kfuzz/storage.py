"""Where a corpus or a log is stored: a directory, or a place that fsspec knows (``s3://``, ``gs://``, …).

Everything that touches the files of a corpus goes through a :class:`Target`, as does `kfuzz.places`. Names are relative
to the place, with ``/`` between their parts. A file gets its name only when it is whole:

* A directory: temporary name, fsync, rename, fsync of the directory.
* An object store: a put, in parts for large files. Nothing is visible before the put is complete.
* Other file systems of fsspec (``hdfs://``, ``sftp://``, ``memory://``): temporary name, rename.

pyarrow's own file systems are not used, because their streams cannot be abandoned: even the destructor completes an
upload, so a failed attempt would leave half a file under its final name.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import shutil
import stat
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, cast

from kfuzz.errors import KfuzzError, UsageError, needs
from kfuzz.files import (
    URL,
    file_kind,
    local_path,
    map_file,
    map_regular,
    read_small,
    require_no_link,
    require_writable,
    sync_directory,
    writing,
)
from kfuzz.mapped import require_whole

A = TypeVar("A")
T = TypeVar("T")

# The package to install for a scheme, where kfuzz knows it. For other schemes, fsspec's own text says it.
# Their URIs begin with a bucket or a container.
BUCKETS: Final = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az")
PACKAGES: Final = {
    **dict.fromkeys(("s3", "s3a"), ("s3fs", "pip install 'kfuzz[s3]'")),
    **dict.fromkeys(("gs", "gcs"), ("gcsfs", "pip install gcsfs")),
    **dict.fromkeys(("abfs", "abfss", "az"), ("adlfs", "pip install adlfs")),
}
# The smallest part that S3 takes. Its 10,000 parts are far above the 2 GiB of a segment.
PART_BYTES = 5 << 20
# How much of a log is given to an upload at once: the upload's buffer grows to PART_BYTES plus this.
PIECE_BYTES = 1 << 20
# How much of a file is copied at once from a remote file system.
COPY_BYTES = 4 << 20
# The most that is read of a file which is small in every corpus: the largest are the indexes of large segments.
READ_BYTES_MAX = 256 << 20
# How long a file system may take for an answer, or for the next piece of a file.
ANSWER_S_MAX = 60
# After a call without an answer, or an interrupt: how long the next calls may take, which only clean up, and for how
# long that holds.
HURRIED_ANSWER_S_MAX = 1
HURRY_S = 30
# Listings wait for the network or the disk, so many run at a time, on any number of cores.
LISTERS = 16


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of one directory: file names with sizes in bytes, and the names of its directories.

    ``others`` says of each name that is neither what it is, such as "a link" or "a pipe"; these are never opened.
    """

    files: dict[str, int]
    directories: list[str]
    others: dict[str, str] = field(default_factory=dict)


class Stage(ABC):
    """The files of one attempt. Nothing has a final name until ``publish``; without ``publish`` they are dropped."""

    def __enter__(self) -> Stage:
        return self

    @abstractmethod
    def write(self, name: str, chunks: Iterable[memoryview] | Iterable[bytes]) -> None:
        """Store the file ``name``. Each chunk is used up before the next is taken."""

    @abstractmethod
    def publish(self) -> None:
        """Give the files their final names. The one written first is last, so a visible log always has its indexes."""

    @abstractmethod
    def __exit__(self, *error: object) -> None: ...


class Target(ABC):
    """A place for a corpus. Every method raises ``UsageError``, with path and remedy, if the file system refuses."""

    @staticmethod
    def of(place: str | Path | Target) -> Target:
        """The target that ``place`` names: a path, ``file:///…`` or a URI of a file system that fsspec knows.

        Raises ``UsageError`` if the scheme is unknown or its package is not installed. Nothing is contacted.
        """
        if isinstance(place, Target):
            return place
        match = URL.fullmatch(str(place))
        if match is None or match[1].lower() == "file":
            return LocalTarget(local_path(place))
        scheme, rest = match[1].lower(), match[2].removeprefix("/")
        if "::" in match[0]:
            raise UsageError(f"{place} names several file systems, with :: between them; name one")
        if rest == match[2]:
            raise UsageError(f"{place} lacks a slash; write {scheme}://{rest}")
        if scheme in BUCKETS and not rest.partition("/")[0]:
            raise UsageError(f"{place} names no bucket; write {scheme}://bucket/corpus")
        return RemoteTarget(f"{scheme}://{rest.rstrip('/')}")

    @property
    @abstractmethod
    def uri(self) -> str:
        """The name under which another process finds the target: an absolute path, or a URI."""

    @abstractmethod
    def child(self, name: str) -> Target:
        """The directory ``name`` of this target, as a target."""

    @abstractmethod
    def list(self, directory: str = "") -> Listing:
        """The entries directly in ``directory``; nothing if it does not exist."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if it is missing. ``UsageError`` beyond ``READ_BYTES_MAX``.

        ``NotRegular`` for a link, a pipe or a device, here and in :meth:`view`.
        """

    @abstractmethod
    def view(self, name: str) -> contextlib.AbstractContextManager[memoryview | None]:
        """The content of a large file without holding it in memory; None if it is missing."""

    @abstractmethod
    def modified_s(self, name: str) -> float | None:
        """When ``name`` was written, in seconds, by the clock of the file system; None if it is missing."""

    @abstractmethod
    def stage(self, directory: str, attempt: str) -> Stage:
        """Begin to write files into ``directory``. ``attempt`` differs between attempts that may run at a time."""

    def sync(self, directory: str = "") -> None:  # noqa: B027 - elsewhere, a put is durable when it is complete.
        """Make the names in ``directory`` durable."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def remove_directory(self, name: str) -> None:
        """Remove a directory with everything in it, if it is there."""

    def exists(self) -> bool:
        """Whether the target's own directory is there. An object store has no directories: there it always is."""
        return True

    def remove_if_empty(self) -> None:  # noqa: B027
        """Remove the target's own directory if nothing is in it."""

    def free_bytes(self) -> int | None:
        """How much can be written, in bytes; None if the file system does not say."""
        return None

    @abstractmethod
    def default_jobs(self, *, reading: bool = False) -> int:
        """How many segments are written here at a time, or read, unless the caller says otherwise."""

    def check_writable(self) -> None:  # noqa: B027 - of an object store, only the first put can show it.
        """Raise ``UsageError`` if it is clear, without writing, that nothing can be made here."""

    def write(self, name: str, data: bytes | str) -> None:
        """Write a small file as a whole: readers see the old one or the new one, never a part."""
        directory, _, base = name.rpartition("/")
        with self.stage(directory, f"whole-{threading.get_ident()}") as stage:
            stage.write(base, [data.encode() if isinstance(data, str) else data])
            stage.publish()
        self.sync(directory)

    def walk(self, directory: str = "") -> Iterator[tuple[str, str]]:
        """The names of all files below ``directory``, in no particular order. With each comes what it is, if it is no
        regular file; otherwise an empty text.
        """
        listing = self.list(directory)
        place = f"{directory}/" if directory else ""
        yield from ((place + name, "") for name in listing.files)
        yield from ((place + name, kind) for name, kind in listing.others.items())
        for inner in listing.directories:
            yield from self.walk(place + inner)

    def list_all(self, directories: Iterable[str]) -> Iterator[tuple[str, Listing]]:
        """The content of each of ``directories``, in their order. A few listings run at the same time."""
        return in_parallel(self.list, directories)

    def sweep(self, directories: Iterable[str], owner: str = "") -> None:
        """Remove the temporary files of dead attempts from ``directories``, but only those whose attempts' names begin
        with ``owner``.

        The worker of a killed executor cannot remove its own. A worker that outlives its executor finds its temporary
        file gone and fails. That is harmless, because no job waits for it.
        """
        for directory, listing in self.list_all(directories):
            for name in listing.files:
                if name.startswith(".") and name.endswith(".tmp") and (not owner or f".{owner}" in name):
                    self.remove(f"{directory}/{name}" if directory else name)


def _processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(
    function: Callable[[A], T], arguments: Iterable[A], jobs: int = LISTERS
) -> Generator[tuple[A, T], None, None]:
    """Each of ``arguments`` with its result, in their order. ``jobs`` calls run at a time, and few results wait."""
    if jobs == 1:
        yield from ((argument, function(argument)) for argument in arguments)
        return
    with ThreadPoolExecutor(jobs) as pool, _hurry_at_end():
        submitted = ((argument, pool.submit(function, argument)) for argument in arguments)
        waiting: deque[tuple[A, Future[T]]] = deque()
        try:
            waiting.extend(islice(submitted, 2 * jobs))
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
                waiting.extend(islice(submitted, 1))
        finally:
            for _, future in waiting:
                future.cancel()


def as_they_end(
    function: Callable[[A], T], arguments: Iterable[A], jobs: int, stop: Callable[[], None] = lambda: None
) -> Generator[T, None, None]:
    """The results of ``arguments`` as they come. ``jobs`` calls run at a time.

    When a call fails or the caller takes no more results, ``stop`` is called before the other calls are waited for.
    """
    if jobs == 1:
        yield from map(function, arguments)
        return
    with ThreadPoolExecutor(jobs) as pool, _hurry_at_end():
        running: set[Future[T]] = set()
        try:
            for argument in arguments:
                running.add(pool.submit(function, argument))
                if len(running) >= jobs:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            yield from (future.result() for future in as_completed(running))
        except BaseException:
            stop()
            raise


class LocalTarget(Target):
    """A directory of this machine, or of a file system that is mounted here.

    ``named`` is the directory that the user named, if ``root`` is inside it. Links inside it are never followed.
    """

    def __init__(self, root: Path, named: Path | None = None) -> None:
        self.root = root
        self._named = root if named is None else named

    def __str__(self) -> str:
        return str(self.root)

    @property
    def uri(self) -> str:
        return str(self.root.resolve())

    def child(self, name: str) -> Target:
        return LocalTarget(self.root / name, self._named)

    def list(self, directory: str = "") -> Listing:
        files: dict[str, int] = {}
        directories: list[str] = []
        others: dict[str, str] = {}
        try:
            with os.scandir(self._place(directory)) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(found.st_mode):
                            directories.append(entry.name)
                        elif stat.S_ISREG(found.st_mode):
                            files[entry.name] = found.st_size
                        else:
                            others[entry.name] = file_kind(found.st_mode)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise UsageError(f"{self.root / directory} cannot be read: {error.strerror}; check its rights") from None
        return Listing(files, sorted(directories), others)

    def read(self, name: str) -> bytes | None:
        path = self.root / name
        return read_small(path, bytes_max=READ_BYTES_MAX) if self._is_there(name) else None

    @contextlib.contextmanager
    def view(self, name: str) -> Iterator[memoryview | None]:
        if not self._is_there(name):
            yield None
            return
        with _view(map_regular(self.root / name)) as view:
            yield view

    def _is_there(self, name: str) -> bool:
        """Whether there is something else than a directory; ``NotRegular`` if a link is on the way to it."""
        with contextlib.suppress(OSError):
            return not stat.S_ISDIR(os.lstat(self._parent(name) / name.rpartition("/")[2]).st_mode)
        return False

    def _place(self, directory: str) -> Path:
        """The path of a directory; ``NotRegular`` if a link is on the way to it, which may lead anywhere."""
        path = self.root / directory
        require_no_link(self._named, path.relative_to(self._named))
        return path

    def _parent(self, name: str) -> Path:
        return self._place(name.rpartition("/")[0])

    def modified_s(self, name: str) -> float | None:
        try:
            return os.stat(self.root / name).st_mtime
        except OSError:
            return None

    def stage(self, directory: str, attempt: str) -> Stage:
        return _LocalStage(self._place(directory), attempt)

    def sync(self, directory: str = "") -> None:
        sync_directory(self.root / directory)

    def remove(self, name: str) -> None:
        with self._removing(name):
            os.unlink(self._parent(name) / name.rpartition("/")[2])

    def remove_directory(self, name: str) -> None:
        with self._removing(name):
            shutil.rmtree(self._place(name))

    @contextlib.contextmanager
    def _removing(self, name: str) -> Iterator[None]:
        try:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                yield
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"{self.root / name} cannot be removed: {reason}; remove it yourself") from None

    def exists(self) -> bool:
        return self.root.is_dir()

    def remove_if_empty(self) -> None:
        with contextlib.suppress(OSError):
            self.root.rmdir()

    def default_jobs(self, *, reading: bool = False) -> int:
        # A job waits while the disk takes its files.
        return _processors() if reading else _processors() + 1

    def free_bytes(self) -> int | None:
        existing = next(path for path in (self.root.absolute(), *self.root.absolute().parents) if path.is_dir())
        return shutil.disk_usage(existing).free

    def check_writable(self) -> None:
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{self.root} is not a directory; name a new or empty one")
        require_writable(self.root, directory=True)


class _LocalStage(Stage):
    def __init__(self, directory: Path, attempt: str) -> None:
        self._directory = directory
        self._suffix = f"{attempt}.{os.getpid()}.tmp"
        self._names: list[str] = []

    def __enter__(self) -> Stage:
        with writing(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
        return self

    def write(self, name: str, chunks: Iterable[memoryview] | Iterable[bytes]) -> None:
        """Write and fsync ``name`` under its temporary name."""
        self._names.append(name)
        temporary = self._temporary(name)
        # Unbuffered, because the chunks are large and a buffer would only add a copy.
        with writing(self._directory / name), open(temporary, "wb", buffering=0, opener=_new) as file:
            for chunk in chunks:
                _write_fully(file.fileno(), chunk)
            os.fsync(file.fileno())

    def publish(self) -> None:
        for name in reversed(self._names):
            with writing(self._directory / name):
                os.replace(self._temporary(name), self._directory / name)

    def __exit__(self, *error: object) -> None:
        for name in self._names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary(name))

    def _temporary(self, name: str) -> Path:
        return self._directory / f".{name}.{self._suffix}"


def _new(name: str, flags: int) -> int:
    """Open a file to write; somebody may have put a link or a pipe under its name."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _write_fully(descriptor: int, data: memoryview | bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextlib.contextmanager
def _view(data: bytes | mmap.mmap) -> Iterator[memoryview]:
    """The content of a mapped file; ``UsageError`` at the end if it became shorter meanwhile."""
    with memoryview(data) as view:
        try:
            yield view
        finally:
            require_whole(data)


class _Small(io.BytesIO):
    """The content of a small file; ``UsageError`` if it is larger. A store may say a wrong size."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place

    def write(self, data: Any, /) -> int:
        if self.tell() + len(data) > READ_BYTES_MAX:
            raise UsageError(f"{self._place} is larger than {READ_BYTES_MAX} bytes, the most that kfuzz reads of it")
        return super().write(data)


class RemoteTarget(Target):
    """A place on a file system of fsspec. Credentials come from where its package looks for them, never from kfuzz."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._fs, self._root = _file_system(uri)

    def __str__(self) -> str:
        return self._uri

    @property
    def uri(self) -> str:
        return self._uri

    def child(self, name: str) -> Target:
        return RemoteTarget(f"{self._uri}/{name}")

    def path(self, name: str) -> str:
        """The name of a file of the corpus in the file system."""
        return f"{self._root}/{name}" if name else self._root

    def list(self, directory: str = "") -> Listing:
        files, directories = {}, []
        path = self.path(directory)
        with self.explained("read", directory):
            try:
                entries = self._fs.ls(path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                entries = []
        for entry in entries:
            name = str(entry["name"]).rstrip("/")
            # Some stores have an empty object with the directory's own name.
            if name == path.rstrip("/"):
                continue
            if entry["type"] == "directory":
                directories.append(name.rpartition("/")[2])
            else:
                files[name.rpartition("/")[2]] = int(entry["size"] or 0)
        return Listing(files, sorted(directories))

    def read(self, name: str) -> bytes | None:
        copy = _Small(f"{self._uri}/{name}")
        return copy.getvalue() if self.copy(name, copy) else None

    @contextlib.contextmanager
    def view(self, name: str) -> Iterator[memoryview | None]:
        with tempfile.TemporaryFile(prefix="kfuzz-") as copy:
            if not self.copy(name, copy):
                yield None
                return
            with _view(map_file(cast(BinaryIO, copy))) as view:
                yield view

    def copy(self, name: str, copy: Any) -> bool:
        """Write the content of a file into the open file ``copy``; False if it is missing."""
        with self.explained("read", name):
            try:
                path = self.path(name)
                with self._fs.open(path, "rb", block_size=COPY_BYTES, cache_type="none") as file:
                    while piece := _within(file.read, COPY_BYTES):
                        with writing(tempfile.gettempdir()):
                            copy.write(piece)
                copy.flush()
            except (FileNotFoundError, IsADirectoryError):
                return False
        return True

    def modified_s(self, name: str) -> float | None:
        with self.explained("read", name):
            try:
                return float(self._fs.modified(self.path(name)).timestamp())
            except FileNotFoundError:
                return None

    def stage(self, directory: str, attempt: str) -> Stage:
        return _RemoteStage(self, self._fs, directory, attempt)

    def remove(self, name: str) -> None:
        with self.explained("remove", name), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self.path(name))

    def remove_directory(self, name: str) -> None:
        # One folder at a time, because a call has little time.
        for inner in self.list(name).directories:
            self.remove_directory(f"{name}/{inner}" if name else inner)
        with self.explained("remove", name), contextlib.suppress(FileNotFoundError):
            self._fs.rm(self.path(name), recursive=True)

    def has_multipart(self) -> bool:
        """Whether the file system can abandon an upload, as those of object stores can."""
        from fsspec.asyn import AsyncFileSystem

        return isinstance(self._fs.inner, AsyncFileSystem)

    def default_jobs(self, *, reading: bool = False) -> int:
        # Reading first copies a segment to a temporary file, which needs room. And the packages of some file systems do
        # not allow that several threads call them.
        return 1 if reading or not self.has_multipart() else _processors() + 1

    def sweep(self, directories: Iterable[str], owner: str = "") -> None:
        """Also abort unfinished uploads of S3, which cost money and which no listing shows.

        An upload does not say who began it. So this is safe only for the driver that has the lock.
        """
        super().sweep(directories, owner)
        if not hasattr(self._fs, "abort_mpu"):
            return
        bucket, _, prefix = self._root.partition("/")
        with self.explained("read", ""):
            more: dict[str, str] = {}
            while True:
                found = self._fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{prefix}/", **more)
                for upload in found.get("Uploads", []):
                    with contextlib.suppress(FileNotFoundError):
                        self._fs.abort_mpu(bucket, upload["Key"], upload["UploadId"])
                if not found.get("IsTruncated"):
                    return
                more = {"KeyMarker": found["NextKeyMarker"], "UploadIdMarker": found["NextUploadIdMarker"]}

    @contextlib.contextmanager
    def explained(self, deed: str, name: str) -> Iterator[None]:
        """Raise any error of the file system as one sentence. Each package of fsspec has exceptions of its own."""
        try:
            yield
        except (KfuzzError, CancelledError):
            raise
        except Exception as error:
            done = {"read": "read", "write": "written", "remove": "removed"}[deed]
            raise _refused(f"{self._uri}{'/' if name else ''}{name} cannot be {done}", error) from error


class _RemoteStage(Stage):
    """Small files are kept until ``publish`` and put at once. Large ones are uploaded in parts, which are completed by
    ``publish``. Where the file system has no such uploads, all files have temporary names."""

    def __init__(self, target: RemoteTarget, fs: Any, directory: str, attempt: str) -> None:
        self._target, self._fs = target, fs
        self._directory = directory
        self._suffix = f"{attempt}.{os.getpid()}.tmp"
        self._staged: list[tuple[str, bytes | str | Any]] = []
        self._temporary: list[str] = []

    def write(self, name: str, chunks: Iterable[memoryview] | Iterable[bytes]) -> None:
        name = f"{self._directory}/{name}" if self._directory else name
        held, file = bytearray(), None
        with self._target.explained("write", name):
            if not self._target.has_multipart():
                file = self._open(name)
            for chunk in chunks:
                view = memoryview(chunk)
                for at in range(0, len(view), PIECE_BYTES):
                    piece = view[at : at + PIECE_BYTES]
                    if file is not None:
                        file.write(piece)
                        continue
                    held += piece
                    if len(held) >= PART_BYTES:
                        file = self._open(name)
                        file.write(held)
                        held = bytearray()
            if file is None:
                self._staged.append((name, bytes(held)))
            else:
                # The last part is sent here, so that `publish` only completes the upload.
                file.close()

    def _open(self, name: str) -> Any:
        path = self._target.path(name)
        if self._target.has_multipart():
            file = _Patient(self._fs.open(path, "wb", block_size=PART_BYTES, autocommit=False))
            self._staged.append((name, file))
            return file
        directory, _, base = path.rpartition("/")
        self._fs.makedirs(directory, exist_ok=True)
        temporary = f"{directory}/.{base}.{self._suffix}"
        self._staged.append((name, temporary))
        self._temporary.append(temporary)
        return _Patient(self._fs.open(temporary, "wb"))

    def publish(self) -> None:
        for name, content in reversed(self._staged):
            with self._target.explained("write", name):
                path = self._target.path(name)
                if isinstance(content, bytes):
                    self._fs.pipe_file(path, content)
                elif isinstance(content, str):
                    self._fs.mv(content, path)
                else:
                    content.commit()
        self._staged.clear()

    def __exit__(self, *error: object) -> None:
        for _, content in self._staged:
            if not isinstance(content, bytes | str):
                # The destructor would complete the upload, unless the file counts as closed.
                content.inner.closed = True
                with contextlib.suppress(Exception):
                    content.discard()
        for temporary in self._temporary:
            with contextlib.suppress(Exception):
                self._fs.rm_file(temporary)


class _Patient:
    """A file system of fsspec, or a file of it. Its methods raise ``TimeoutError`` if they take too long."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return partial(_within, getattr(self.inner, name))


_unanswered: Final[set[Future[Any]]] = set()
# By thread, and for all threads under None.
_hurried_until_s: Final[dict[int | None, float]] = {}


def _within(ask: Callable[..., T], *what: Any, **how: Any) -> T:
    """The result of ``ask``; ``TimeoutError`` if it takes too long. Then its thread is left to itself."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            said = partial(answer.set_result, ask(*what, **how))
        except BaseException as error:
            said = partial(answer.set_exception, error)
        # Nobody may wait for it any longer.
        if answer.set_running_or_notify_cancel():
            said()

    _unanswered.add(answer)
    threading.Thread(target=run, daemon=True).start()
    try:
        with _hurry_at_end():
            until_s = max(_hurried_until_s.get(one, 0) for one in (None, threading.get_ident()))
            return answer.result(HURRIED_ANSWER_S_MAX if time.monotonic() < until_s else ANSWER_S_MAX)
    finally:
        _unanswered.discard(answer)


@contextlib.contextmanager
def _hurry_at_end() -> Iterator[None]:
    """If the block ends without an answer, its thread gives the next calls little time. If it is interrupted, all do,
    and none waits any longer.
    """
    try:
        yield
    except (KeyboardInterrupt, TimeoutError, UsageError) as error:
        is_interrupted = isinstance(error, KeyboardInterrupt)
        if is_interrupted or isinstance(error.__cause__ or error, TimeoutError):
            _hurried_until_s[None if is_interrupted else threading.get_ident()] = time.monotonic() + HURRY_S
        for answer in [*_unanswered] if is_interrupted else ():
            answer.cancel()
        raise


def _refused(what: str, error: Exception) -> UsageError:
    if isinstance(error, TimeoutError):
        error = TimeoutError(f"no answer within {ANSWER_S_MAX} s")
    reason = " ".join(str(error).split()) or type(error).__name__
    return UsageError(f"{what}: {reason[:300]}; check the address, the bucket, the credentials and their rights")


def _file_system(uri: str) -> tuple[Any, str]:
    scheme = uri.partition("://")[0]
    package, remedy = PACKAGES.get(scheme, ("", ""))
    with needs(f"{uri} needs {package or 'fsspec'}, which is not installed; {remedy or 'pip install fsspec'}"):
        from fsspec.core import url_to_fs
        from fsspec.registry import known_implementations
    try:
        # A listing that was kept would hide what other machines write.
        fs, root = _within(url_to_fs, uri, use_listings_cache=False)
    except ImportError as error:
        told = known_implementations.get(scheme, {}).get("err", str(error))
        missing = f"{package}, which is not installed; {remedy}" if package else f"another package; {told}"
        raise UsageError(f"{uri} needs {missing}") from None
    except ValueError as error:
        if "rotocol" not in str(error):
            raise UsageError(f"{uri} is not a place that fsspec can open: {error}; correct the URI") from None
        raise UsageError(
            f"{uri} has the scheme {scheme}:, which fsspec does not know; name a directory, or a URI such as "
            "s3://bucket/corpus"
        ) from None
    # Some packages ask the store here.
    except Exception as error:
        raise _refused(f"{uri} cannot be opened", error) from error
    return _Patient(fs), str(root)
