"""Logs that are no folder of this machine, read as if they were: object stores, archives, tiered storage.

:func:`opened` makes a temporary folder that looks like the log directory. Of a store, each file has its name and size
there, but no content: when ``kfuzz.files`` opens it, its bytes are fetched. Few copies are kept at a time, so the disk
needs room for little more than the largest file. An archive is unpacked as a whole, into at most half of the free disk.

The files of tiered storage get the names that they have in a log directory. Every text names the real place.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tarfile
import tempfile
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import zstandard

from kfuzz import files, text
from kfuzz.documents import load_json
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import URL, cannot_write, local_path, open_regular
from kfuzz.storage import LocalTarget, RemoteTarget, Target, in_parallel

FILES_MAX: Final = 1_000_000
# Copies of fetched files are dropped, the oldest first, while all of them together are larger.
KEPT_BYTES: Final = 1 << 30
# Packed bytes are taken in such pieces: zstd makes up to 128 KiB of four bytes.
PIECE_BYTES: Final = 4096
HEADER_BYTES_MAX: Final = 16 << 20
SEGMENT_BYTES_MAX: Final = (1 << 31) - 1
PACKED_NAME: Final = re.compile(r"(.+?)(\.tar\.gz|\.tar\.zst|\.tar|\.tgz|\.tzst|\.gz|\.zst)")
GZIP, ZSTD, TAR, TAR_AT = b"\x1f\x8b\x08", (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"), b"ustar", 257
# The names of Kafka's LocalTieredStorage: orders-0-ID/00000000000000000000-ID.log; and those of Aiven's plugin:
# orders-ID/0/00000000000000000000-ID.log, with .indexes, and .rsm-manifest that describes both.
ID: Final = "[A-Za-z0-9_-]{22}"
SEGMENT: Final = re.compile(rf"(\d{{20}})(?:-{ID})?\.log")
TIERED: Final = re.compile(rf"(\d{{20}})-{ID}(\.[a-z_-]+)")
PARTITION: Final = re.compile(r".+-\d+")
PARTITION_WITH_ID: Final = re.compile(rf"({PARTITION.pattern})-{ID}")
TOPIC_WITH_ID: Final = re.compile(rf"(.+)-{ID}")
LOG, INDEXES, MANIFEST = ".log", ".indexes", ".rsm-manifest"
# By suffix, the names of indexes in a manifest. A producer snapshot has the offset of the next segment, which the
# names do not say.
INDEX_NAMES: Final = {".index": "offset", ".timeindex": "timestamp", ".txnindex": "transaction"}


@contextlib.contextmanager
def opened(place: str | Path, *, on_left_out: Callable[[str], None] = lambda sentence: None) -> Iterator[Path]:
    """The path of a folder or file that has the log at ``place``: a path, an archive, or a URI that fsspec knows.

    An archive is a tar file or a packed file (gzip, zstd); ``backup.tar/broker-1`` is a folder in one. Any other path
    is returned as it is. ``on_left_out`` gets a sentence about each file that is not there. The path is only good
    inside the block, and files must be opened by functions of ``kfuzz.files``.

    Raises ``UsageError`` if the store does not answer or has nothing there, and if the archive is damaged or too large.
    """
    with contextlib.ExitStack() as stack:
        try:
            yield _Opening(stack, on_left_out).path(place)
        except KfuzzError as error:
            # The real names are forgotten when this block ends.
            error.args = (text.really(str(error)), *error.args[1:])
            raise


@contextlib.contextmanager
def stand_in(name: str, names: dict[str, str], fetch: Callable[[str], str | Path] = Path) -> Iterator[Path]:
    """A new folder that is called ``name`` in texts, and paths in it by ``names``; ``fetch`` gives the file to open."""
    with tempfile.TemporaryDirectory(prefix="kfuzz-place-") as made:
        # Paths in it are compared, also after their links are resolved.
        folder = Path(made).resolve()
        text.ELSEWHERE[str(folder)] = names
        names[str(folder)] = name
        files.ELSEWHERE[str(folder)] = fetch
        try:
            yield folder
        finally:
            del text.ELSEWHERE[str(folder)], files.ELSEWHERE[str(folder)]


@dataclass(frozen=True, slots=True)
class _Opening:
    stack: contextlib.ExitStack
    on_left_out: Callable[[str], None]

    def path(self, place: str | Path) -> Path:
        match = URL.fullmatch(str(place))
        if match is not None and match[1].lower() != "file":
            return self._remote(str(place).rstrip("/"))
        path = local_path(place)
        if path.is_dir():
            here = LocalTarget(path)
            return self._laid(here, _files(here), str(place)) if _is_tiered(path) else path
        if path.is_file():
            return self._unpacked(path, str(place))
        if (archive := next((parent for parent in path.parents if parent.is_file()), None)) is None:
            return path
        found = self._unpacked(archive, str(archive), str(path.relative_to(archive)))
        return path if found == archive else found

    # -- stores and tiered storage

    def _remote(self, uri: str) -> Path:
        target = Target.of(uri)
        if found := _files(target):
            return self._laid(target, found, uri)
        parent, _, name = uri.rpartition("/")
        target = Target.of(parent)
        found = target.list().files
        if name not in found:
            raise UsageError(f"{uri} has no files; check the name, and that the bucket exists")
        packed = PACKED_NAME.fullmatch(name)
        # The files beside a segment may be needed too.
        path = self._laid(target, {name: found[name]} if packed else found, parent, name)
        return self._unpacked(path, uri) if packed else path

    def _laid(self, target: Target, found: dict[str, int], place: str, chosen: str = "") -> Path:
        """A folder that stands for the files of ``target``; or the file ``chosen`` in it."""
        names: dict[str, str] = {}
        source = _Source(target, place)
        folder = self.stack.enter_context(stand_in("", names, source.fetch))
        # The names of a partition folder and of the folder around it may be needed to know the topic.
        above = [re.sub(r"[^\w.-]", "_", part) for part in os.path.abspath(place).split("/")[-2:]]
        names |= {
            str(folder): "",
            str(folder / above[0]): place.rpartition("/")[0],
            str(folder.joinpath(*above)): place,
        }
        parts = list(_parts(target, found))
        # Copies of one segment by two leaders have one name; the largest is used.
        for part in sorted(parts, key=lambda one: -one.size):
            laid = folder.joinpath(*_in_log_directory([*above, *part.named.split("/")]))
            if laid.exists():
                self.on_left_out(f"{place}/{part.named} is left out: {text.really(str(laid))} has the same offsets")
                continue
            laid.parent.mkdir(parents=True, exist_ok=True)
            with open(laid, "xb") as file:
                file.truncate(part.size)
            source.parts[str(laid)] = part
            names[str(laid)] = f"{place}/{part.named}"
            names.setdefault(str(laid.parent), f"{place}/{part.named}".rpartition("/")[0])
        if chosen:
            return folder.joinpath(*_in_log_directory([*above, *chosen.split("/")]))
        root = folder.joinpath(*above)
        # A partition of tiered storage was named, so that its folder has another name.
        return root if root.is_dir() else Path(os.path.commonpath([*{Path(path).parent for path in source.parts}]))

    # -- archives

    def _unpacked(self, path: Path, name: str, inner: str = "") -> Path:
        """The content of the archive or packed file ``path``, called ``name``, or ``inner`` of it; any other file as it
        is.
        """
        file = self.stack.enter_context(open_regular(path, follow=True))
        head = file.read(TAR_AT + len(TAR))
        file.seek(0)
        if not head.startswith((GZIP, *ZSTD)) and not head[TAR_AT:].startswith(TAR):
            return path
        stream = _Stream(_chunks(file, head, name), name)
        names: dict[str, str] = {}
        folder = self.stack.enter_context(stand_in("", names))
        base = name.rpartition("/")[2]
        match = PACKED_NAME.fullmatch(base)
        stem = re.sub(r"[^\w.-]", "_", match[1] if match else base)
        try:
            if stream.head(TAR_AT + len(TAR))[TAR_AT:] == TAR:
                root = folder / stem
                root.mkdir()
                names[str(root)] = name
                stream.extract(root)
                while not inner and len(only := list(root.iterdir())) == 1 and _is_around(only[0]):
                    root = only[0]
                return self.path(root / inner)
            around = re.sub(r"[^\w.-]", "_", os.path.abspath(name).split("/")[-2]) or "log"
            made = folder / around / stem
            made.parent.mkdir()
            names |= {str(made.parent): name.rpartition("/")[0], str(made): name}
            with open(made, "xb") as out:
                shutil.copyfileobj(stream, out)
            return made
        except tarfile.TarError as error:
            raise UsageError(f"{name} is damaged or cut off: {error}; get another copy") from None
        except OSError as error:
            raise cannot_write(tempfile.gettempdir(), error) from None


def _is_around(path: Path) -> bool:
    """Whether a path is a folder that holds no partition itself."""
    return path.is_dir() and not PARTITION.fullmatch(path.name) and not TOPIC_WITH_ID.fullmatch(path.name)


def _is_tiered(path: Path) -> bool:
    """Whether the segments in a folder have names of tiered storage; the first one decides."""
    depth = len(path.parts)
    for folder, inner, names in os.walk(path):
        if found := next((name for name in names if SEGMENT.fullmatch(name)), None):
            return bool(TIERED.fullmatch(found))
        if len(Path(folder).parts) - depth > 2:
            inner.clear()
    return False


def _in_log_directory(parts: list[str]) -> list[str]:
    """The parts of a path, as Kafka names them in a log directory; others than those of tiered storage stay."""
    *folders, name = parts
    if (file := TIERED.fullmatch(name)) is None:
        return parts
    if folders[-1].isdigit() and (topic := TOPIC_WITH_ID.fullmatch(folders[-2])):
        folders[-2:] = [f"{topic[1]}-{folders[-1]}"]
    elif partition := PARTITION_WITH_ID.fullmatch(folders[-1]):
        folders[-1] = partition[1]
    return [*folders, file[1] + file[2]]


def _files(target: Target) -> dict[str, int]:
    """The names and sizes of all files below a place."""
    found: dict[str, int] = {}
    level = [""]
    while level:
        inner: list[str] = []
        for directory, listing in target.list_all(level):
            at = f"{directory}/" if directory else ""
            found |= {at + name: size for name, size in listing.files.items()}
            inner += [at + name for name in listing.directories]
            if len(found) > FILES_MAX:
                raise UsageError(f"{target} has more than {FILES_MAX} files; name a folder in it")
        level = inner
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """Where the bytes of a file are: in ``name``, from byte ``at`` on. ``named`` is its own name; None is all of it."""

    named: str
    size: int
    name: str
    at: int | None = None
    is_packed: bool = False
    is_encrypted: bool = False


def _parts(target: Target, found: dict[str, int]) -> Iterator[_Part]:
    """The files of a log directory that are in ``found``."""
    described = [name for name in found if name.endswith(MANIFEST) and name.removesuffix(MANIFEST) + LOG in found]
    segments = {name.removesuffix(MANIFEST) for name in described}
    for name, size in found.items():
        base, dot, suffix = name.rpartition(".")
        is_tiered = TIERED.fullmatch(name.rpartition("/")[2])
        if base not in segments and (not is_tiered or dot + suffix in (LOG, *INDEX_NAMES)):
            yield _Part(name, size, name)
    for name, data in in_parallel(target.read, described):
        yield from _described(name.removesuffix(MANIFEST), load_json(data or b"", f"{target}/{name}"))


def _described(base: str, manifest: Any) -> Iterator[_Part]:
    """The files of a segment, by its manifest."""
    try:
        is_encrypted = manifest.get("encryption") is not None
        size = manifest["chunkIndex"]["originalFileSize"]
        found = [_Part(base + LOG, size, base + LOG, None, manifest["compression"] is True, is_encrypted)]
        for suffix, name in INDEX_NAMES.items():
            if (index := manifest["segmentIndexes"][name]) is not None:
                place = base + suffix, index["size"], base + INDEXES, index["position"]
                found.append(_Part(*place, is_encrypted=is_encrypted))
        if not all(0 <= number <= SEGMENT_BYTES_MAX for one in found for number in (one.size, one.at or 0)):
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UsageError(f"{base}{MANIFEST} is not a manifest of tiered storage that kfuzz knows") from None
    yield from found


class _Source:
    """Fetches the files that a folder stands for. ``parts`` has them by their paths in the folder."""

    def __init__(self, target: Target, place: str) -> None:
        self._target, self._place = target, place
        self.parts: dict[str, _Part] = {}
        self._copies: OrderedDict[str, Path] = OrderedDict()
        self._lock = threading.Lock()
        self._made = tempfile.TemporaryDirectory(prefix="kfuzz-copies-")

    def fetch(self, path: str) -> str | Path:
        """The path of a file with the bytes of the file ``path`` of the folder."""
        if (part := self.parts.get(path)) is None:
            return path
        if part.is_encrypted:
            raise UsageError(f"{path} is encrypted by tiered storage, and kfuzz has no keys; decrypt it first")
        with self._lock:
            whole = self._whole(part.name)
            if part.at is None and not part.is_packed:
                return whole
            with open_regular(whole) as file:
                if part.is_packed:
                    head = file.read(len(ZSTD[0]))
                    file.seek(0)
                    pieces = _chunks(file, head, f"{self._place}/{part.name}")
                else:
                    file.seek(part.at or 0)
                    pieces = iter([file.read(part.size)])
                return self._copy(path, lambda copy: copy.writelines(pieces))

    def _whole(self, name: str) -> Path:
        if isinstance(self._target, LocalTarget):
            return self._target.root / name
        return self._copy(name, lambda copy: self._fetched(name, copy))

    def _fetched(self, name: str, copy: BinaryIO) -> None:
        assert isinstance(self._target, RemoteTarget)
        if not self._target.copy(name, copy):
            raise UsageError(f"{self._place}/{name} is not there any longer; try again")

    def _copy(self, key: str, write: Callable[[BinaryIO], object]) -> Path:
        """The file that ``write`` writes, or an earlier copy of it."""
        if key in self._copies:
            self._copies.move_to_end(key)
            return self._copies[key]
        descriptor, made = tempfile.mkstemp(dir=self._made.name)
        copy = Path(made)
        try:
            with open(descriptor, "wb") as file:
                write(file)
        except OSError as error:
            raise cannot_write(tempfile.gettempdir(), error) from None
        self._copies[key] = copy
        while len(self._copies) > 1 and sum(one.stat().st_size for one in self._copies.values()) > KEPT_BYTES:
            # A program that still reads the copy can do so to its end.
            self._copies.popitem(last=False)[1].unlink()
        return copy


class _Stream:
    """Reads ``chunks``, the content of the archive ``name``, as a file."""

    def __init__(self, chunks: Iterable[bytes], name: str) -> None:
        self._chunks, self._name = iter(chunks), name
        self._held = memoryview(b"")
        # How many bytes may be read until the next file of the archive begins.
        self._most: float = float("inf")

    def head(self, size: int) -> bytes:
        """The first bytes, which are read again later."""
        head = b""
        while len(head) < size and (chunk := next(self._chunks, b"")):
            head += chunk
        self._held = memoryview(head)
        return head[:size]

    def read(self, size: int = PIECE_BYTES, /) -> bytes:
        """At most so many bytes; none at the end."""
        if not self._held:
            self._held = memoryview(next(self._chunks, b""))
        piece, self._held = self._held[:size], self._held[size:]
        self._most -= len(piece)
        if self._most < 0:
            raise UsageError(f"{self._name} has a header of more than {HEADER_BYTES_MAX} bytes; unpack it yourself")
        return bytes(piece)

    def extract(self, root: Path) -> None:
        """Write the regular files of a tar archive below ``root``: no links, no pipes, and nothing outside."""
        left, count = _room(), 0
        self._most = HEADER_BYTES_MAX
        # tarfile only calls `read`.
        with tarfile.open(fileobj=self, mode="r|") as archive:  # type: ignore[call-overload]
            for member in archive:
                self._most = HEADER_BYTES_MAX + member.size
                parts = [part for part in member.name.split("/") if part not in ("", ".")]
                if not member.isreg() or not parts or ".." in parts:
                    continue
                # A sparse file may be larger than the whole archive.
                left, count = left - member.size, count + 1
                if left < 0 or count > FILES_MAX:
                    raise _too_large(self._name)
                path = root.joinpath(*parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "wb") as out:
                    shutil.copyfileobj(archive.extractfile(member), out)


def _room() -> int:
    return shutil.disk_usage(tempfile.gettempdir()).free // 2


def _too_large(name: str) -> UsageError:
    return UsageError(
        f"{name} holds more than {FILES_MAX} files, or more bytes than half of the free disk that has "
        f"{tempfile.gettempdir()}; unpack it yourself, or set TMPDIR to a folder with more room"
    )


def _chunks(file: BinaryIO, head: bytes, name: str) -> Iterator[bytes]:
    """The content of the file ``name``, unpacked if its ``head`` is that of a packed file."""
    left = _room()
    try:
        for chunk in _pieces(file, head):
            left -= len(chunk)
            if left < 0:
                raise _too_large(name)
            yield chunk
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        raise UsageError(f"{name} is damaged or cut off: {error}; get another copy") from None


def _pieces(file: BinaryIO, head: bytes) -> Iterator[bytes]:
    if not head.startswith((GZIP, *ZSTD)):
        yield from iter(lambda: file.read(PIECE_BYTES << 8), b"")
        return

    def new() -> Any:
        return zlib.decompressobj(wbits=31) if head.startswith(GZIP) else zstandard.ZstdDecompressor().decompressobj()

    unpacker = new()
    while piece := file.read(PIECE_BYTES):
        while piece:
            if unpacker.eof:
                unpacker = new()
            yield unpacker.decompress(piece)
            # Several may follow each other, and zeros the last one of a tape.
            piece = unpacker.unused_data.lstrip(b"\0") if unpacker.eof else b""
    if not unpacker.eof:
        raise EOFError("its end is missing")
