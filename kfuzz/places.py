"""Logs that are no folder of this machine, read as if they were: object stores, archives, tiered storage.

:func:`opened` makes a temporary folder that looks like the log directory. Each file has its name and size there, but no
content: when ``kfuzz.files`` opens it, its bytes are fetched. Few copies are kept at a time, so the disk needs room for
little more than the largest file. Only a packed archive is unpacked as a whole, into at most half of the free disk.
Packed segments in a folder are unpacked one by one. Bytes before a cut are read too; at the end, an error names it.

The files of tiered storage get the names that they have in a log directory. Every text names the real place.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import shutil
import sys
import tarfile
import tempfile
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import zstandard

from kfuzz import files, text
from kfuzz.documents import load_json
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import URL, local_path, open_regular, writing
from kfuzz.forms import integer
from kfuzz.storage import LocalTarget, RemoteTarget, Target, in_parallel
from kfuzz.units import counted

FILES_MAX: Final = 1_000_000
# Copies of fetched files are dropped, the oldest first, while all of them together are larger. The last copy of each
# thread stays.
KEPT_BYTES: Final = 1 << 30
PIECE_BYTES: Final = 1 << 20
# Packed bytes are taken in such pieces: zstd makes up to 128 KiB of four bytes.
PACKED_BYTES: Final = 4096
# All that a tar file says about a file.
HEADER_BYTES_MAX: Final = 16 << 20
PACKED_NAME: Final = re.compile(r"(.+?)(\.tar|\.tar\.gz|\.tar\.zst|\.tgz|\.tzst|\.gz|\.zst)")
GZIP, ZSTD, TAR, TAR_AT = b"\x1f\x8b\x08", (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"), b"ustar", 257
# The names of Kafka's LocalTieredStorage: orders-0-ID/00000000000000000000-ID.log; and those of Aiven's plugin:
# orders-ID/0/00000000000000000000-ID.log, with .indexes, and .rsm-manifest that describes both.
SEGMENT: Final = re.compile(r"(\d{20}\.log)|\d{20}(-[\w-]{22}\.log|\.log\.gz|\.log\.zst)", re.ASCII)
TIERED: Final = re.compile(r"(\d{20})-[\w-]{22}(\.[a-z_-]+)", re.ASCII)
PACKED_FILE: Final = re.compile(r"(\d{20}\.[a-z]+)\.(gz|zst)", re.ASCII)
WITH_ID: Final = re.compile(r".-[\w-]{22}$", re.ASCII)
LOG, INDEXES, MANIFEST = ".log", ".indexes", ".rsm-manifest"
# By suffix, the names of indexes in a manifest. A producer snapshot has the offset of the next segment, which the
# names do not say.
INDEX_NAMES: Final = {".index": "offset", ".timeindex": "timestamp", ".txnindex": "transaction"}
SIZE: Final = integer(0, (1 << 31) - 1)


@contextlib.contextmanager
def opened(place: str | Path, *, on_left_out: Callable[[str], None] = lambda sentence: None) -> Iterator[Path]:
    """The path of a folder or file that has the log at ``place``: a path, an archive, or a URI that fsspec knows.

    An archive is a tar file or a packed file (gzip, zstd); ``backup.tar/broker-1`` is a folder in one. Any other path
    stays as it is. ``on_left_out`` is called with a sentence for each file of the archive that is not read. Use the
    path only inside the block, and open files by functions of ``kfuzz.files``.

    Raises ``UsageError`` if the store does not answer or has nothing there, if the archive is too large or no part of
    it can be read, and at the end of the block if it was damaged or cut off.
    """
    with contextlib.ExitStack() as stack:
        opening = _Opening(stack, on_left_out)
        try:
            yield opening.path(place)
        except KfuzzError as error:
            # The real names are forgotten when this block ends.
            error.args = ("; ".join((*opening.cut, text.really(str(error)))), *error.args[1:])
            raise
        if opening.cut:
            raise UsageError(f"{'; '.join(opening.cut)}; get another copy")


def is_tiered(folder: Path) -> bool:
    """Whether a partition's folder inside :func:`opened` is one of tiered storage."""
    return any(TIERED.fullmatch(text.really(str(one)).rpartition("/")[2]) for one in folder.iterdir())


@contextlib.contextmanager
def stand_in(names: dict[str, str], fetch: Callable[[str], str | Path] = Path, *, name: str = "") -> Iterator[Path]:
    """A new folder that is called ``name`` in texts, and paths in it by ``names``; ``fetch`` gives the file to open."""
    with tempfile.TemporaryDirectory(prefix="kfuzz-place-") as made:
        # Paths in it are compared, also after their links are resolved.
        folder = Path(made).resolve()
        names[str(folder)] = name
        text.ELSEWHERE[str(folder)], files.ELSEWHERE[str(folder)] = names, fetch
        try:
            yield folder
        finally:
            del text.ELSEWHERE[str(folder)], files.ELSEWHERE[str(folder)]


@dataclass(frozen=True, slots=True)
class _Part:
    """A file, and where its bytes are: in the file ``source``; with ``stored``, so many of them from byte ``at`` on."""

    name: str
    size: int
    source: str
    at: int = 0
    stored: int | None = None
    is_packed: bool = False
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class _Opening:
    stack: contextlib.ExitStack
    on_left_out: Callable[[str], None]
    # The sentences about archives that are damaged or cut off.
    cut: list[str] = field(default_factory=list)

    def path(self, place: str | Path) -> Path:
        match = URL.fullmatch(str(place))
        if match is not None and match[1].lower() != "file":
            return self._remote(str(place))
        path = local_path(place)
        if path.is_dir():
            here = LocalTarget(path)
            return self._laid(here, _files(here), str(place)) if _has_other_names(path) else path
        archive = next((one for one in (path, *path.parents) if one.is_file()), None)
        found = archive and self._unpacked(archive, str(archive), str(path.relative_to(archive)))
        return found or path

    def _remote(self, uri: str) -> Path:
        target, uri = Target.of(uri), uri.rstrip("/")
        if found := list(_files(target)):
            return self._laid(target, found, uri)
        parent, _, name = uri.rpartition("/")
        listed = {} if parent.endswith(":/") else (target := Target.of(parent)).list().files
        if name not in listed:
            raise UsageError(f"{uri} has no files; check the name, and that the bucket exists")
        packed = PACKED_NAME.fullmatch(name)
        # The files beside a segment may be needed too.
        beside = [_Part(one, size, one) for one, size in listed.items() if one == name or not packed]
        path = self._laid(target, beside, parent, name)
        return (packed and self._unpacked(path, uri, ".")) or path

    def _unpacked(self, path: Path, name: str, inner: str) -> Path | None:
        """The content of the archive or packed file ``path``, called ``name``, or ``inner`` of it; None if it is no
        such file.
        """
        head = _head(path)
        if is_packed := head.startswith((GZIP, *ZSTD)):
            names: dict[str, str] = {}
            folder = self.stack.enter_context(stand_in(names))
            unpacked = folder.joinpath(*_above(name))
            unpacked.parent.mkdir()
            names |= {str(unpacked.parent): name.rpartition("/")[0], str(unpacked): name}
            with _written(unpacked) as copy:
                copy.writelines(_upto_cut(_content(_pieces(path, size=PACKED_BYTES), name), self.cut))
            if self.cut and not unpacked.stat().st_size:
                raise UsageError(f"{self.cut.pop()}; get another copy")
            path, head = unpacked, _head(unpacked)
        if not head[TAR_AT:].startswith(TAR):
            return path if is_packed else None
        return self._laid(LocalTarget(path.parent), _members(path, name, self), name, inner)

    def _laid(self, target: Target, parts: Iterable[_Part], place: str, inner: str = ".") -> Path:
        """A folder that stands for the files of ``target``; or ``inner`` of it."""
        names: dict[str, str] = {}
        copies = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="kfuzz-copies-"))
        source = _Source(target, place, Path(copies), self.cut)
        folder, above = self.stack.enter_context(stand_in(names, source.fetch)), _above(place)
        root = folder.joinpath(*above)
        names |= {str(root.parent): place.rpartition("/")[0], str(root): place}
        # Copies of one segment by two leaders have one name; the largest is used.
        for part in sorted(source.described(parts), key=lambda one: -one.size):
            laid = folder.joinpath(*_in_log_directory([*above, *part.name.split("/")]))
            real = f"{place}/{part.name}"
            if laid.exists():
                self.on_left_out(f"{real} is left out: {text.really(str(laid))} has the same offsets")
                continue
            laid.parent.mkdir(parents=True, exist_ok=True)
            with _written(laid) as file:
                file.truncate(part.size)
            source.parts[str(laid)] = part
            if laid != root / part.name:
                names |= {str(laid.parent): real.rpartition("/")[0], str(laid): real}
        if inner != ".":
            return folder.joinpath(*_in_log_directory([*above, *inner.split("/")]))
        if not root.is_dir():
            # A partition of tiered storage was named, and its folder has another name here.
            root = Path(os.path.commonpath({os.path.dirname(path) for path in source.parts}))
        # Archives and stores often have folders around the log directory.
        while len(only := list(root.iterdir())) == 1 and only[0].is_dir():
            root = only[0]
        return root


@contextlib.contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    with writing(tempfile.gettempdir()), open(path, "w+b") as file:
        yield file


def _above(place: str) -> list[str]:
    """The last two folders of a place: the topic may be in their names."""
    around, name = os.path.abspath(place).split("/")[-2:]
    packed = PACKED_NAME.fullmatch(name)
    return [re.sub(r"[^\w.-]", "_", part) or "_" for part in (around, packed[1] if packed else name)]


def _has_other_names(path: Path) -> bool:
    """Whether segments in a folder have other names than a broker's: in tiered storage, or packed.

    The first folder with segments decides, in the order of names.
    """
    for folder, inner, names in os.walk(path):
        inner.sort()
        if found := [*filter(None, map(SEGMENT.fullmatch, names))]:
            return any(one[1] is None for one in found)
        if len(Path(folder).parts) - len(path.parts) > 2:
            inner.clear()
    return False


def _in_log_directory(parts: list[str]) -> list[str]:
    """The parts of a path, as Kafka names them in a log directory; others than those of tiered storage stay."""
    *folders, name = parts
    if packed := PACKED_FILE.fullmatch(name):
        return [*folders, packed[1]]
    if (file := TIERED.fullmatch(name)) is None:
        return parts
    at = -2 if folders[-1].isdigit() else -1
    if WITH_ID.search(folders[at]):
        # The partition is before the id, or the name of the folder inside.
        folders[at:] = ["-".join((folders[at][:-23], *folders[at:][1:]))]
    return [*folders, file[1] + file[2]]


def _files(target: Target) -> Iterator[_Part]:
    """All files below a place."""
    level = [""]
    while level:
        inner: list[str] = []
        for directory, listing in target.list_all(level):
            at = f"{directory}/" if directory else ""
            yield from (_Part(at + name, size, at + name) for name, size in listing.files.items())
            inner += [at + name for name in listing.directories]
        level = inner


class _Headers(io.FileIO):
    """A tar file, of which a header cannot fill the memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Of the content, tarfile reads nothing here."""
        if size is None or not 0 <= size <= HEADER_BYTES_MAX:
            raise tarfile.ReadError("it has a header that is too large")
        return super().read(size) or b""


def _members(path: Path, name: str, opening: _Opening) -> Iterator[_Part]:
    """The regular files in a tar file; no links, no pipes, and no names that lead out of it."""
    last, count = "", 0
    with open_regular(path, follow=True) as file:
        end = os.fstat(file.fileno()).st_size
        try:
            with tarfile.open(fileobj=_Headers(file.fileno(), closefd=False), mode="r:") as archive:
                for member in archive:
                    parts = [part for part in member.name.split("/") if part not in ("", ".")]
                    if member.isreg() and parts and ".." not in parts and not member.issparse():
                        size = max(min(member.size, end - member.offset_data), 0)
                        last, count = f"{'/'.join(parts)} up to its byte {size} of {member.size}", count + 1
                        yield _Part("/".join(parts), size, path.name, member.offset_data, size)
                    elif not member.isdir():
                        opening.on_left_out(
                            f"{name}/{member.name} is left out: it is no regular file inside the archive"
                        )
                # Where a header is damaged, tarfile stops in silence.
                if any(os.pread(file.fileno(), tarfile.BLOCKSIZE, archive.offset) or b"\1"):
                    raise tarfile.ReadError(f"no file begins at byte {archive.offset}, and no end mark")
        except (tarfile.TarError, OSError, ValueError) as error:
            if not count:
                raise UsageError(f"{name} is damaged or cut off: {error}; get another copy") from None
            # It may be known that the packed file around it is cut off.
            opening.cut[:] = opening.cut or [f"{name} is damaged or cut off: {error}"]
            opening.cut.append(
                f"{counted(count, 'file')} of it {'was' if count == 1 else 'were'} read, the last one {last}"
            )


@dataclass(slots=True)
class _Source:
    """Fetches the files that a folder stands for, for several threads. ``parts`` has them by their paths in the folder,
    and the folder ``copies`` has what was fetched. ``kept`` has these copies with their sizes.
    """

    target: Target
    place: str
    copies: Path
    cut: list[str]
    parts: dict[str, _Part] = field(default_factory=dict)
    kept: OrderedDict[str, tuple[Path, int]] = field(default_factory=OrderedDict)
    kept_bytes: int = 0
    # The last file of each thread: its copy may not be open yet.
    last: dict[int, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def described(self, parts: Iterable[_Part]) -> Iterator[_Part]:
        """The files of a log directory that ``parts`` have: of tiered storage, as manifests describe them."""
        found = {}
        for part in parts:
            found[part.name] = part
            if len(found) > FILES_MAX:
                raise UsageError(f"{self.place} has more than {FILES_MAX} files; name a folder in it, or unpack a part")
        manifests = [found.pop(one) for one in [*found] if one.endswith(MANIFEST) and _log(one) in found]
        for manifest, data in in_parallel(self._read, manifests):
            name = f"{self.place}/{manifest.name}"
            indexes = found.get(manifest.name.removesuffix(MANIFEST) + INDEXES)
            try:
                yield from _of_manifest(found.pop(_log(manifest.name)), indexes, load_json(data, name))
            except (AttributeError, KeyError, TypeError, ValueError):
                raise UsageError(f"{name} is not a manifest of tiered storage that kfuzz knows") from None
        for name, part in found.items():
            if PACKED_FILE.fullmatch(name.rpartition("/")[2]):
                size = sum(map(len, _upto_cut(self._unpacked(part), self.cut)))
                yield replace(part, size=size, is_packed=True)
            elif not TIERED.fullmatch(name.rpartition("/")[2]) or name.endswith((LOG, *INDEX_NAMES)):
                yield part

    def _read(self, part: _Part) -> bytes:
        if part.stored is None:
            return self.target.read(part.source) or b""
        return b"".join(_pieces(self._whole(part.source), part.at, min(part.stored, HEADER_BYTES_MAX)))

    def fetch(self, path: str) -> str | Path:
        """The path of a file with the bytes of the file ``path`` of the folder."""
        if (part := self.parts.get(path)) is None:
            return path
        if part.is_encrypted:
            raise UsageError(f"{path} is encrypted by tiered storage, and kfuzz has no keys; decrypt it first")
        if part.is_packed:
            pieces = _upto_cut(self._unpacked(part), [])
        elif part.stored is None:
            return self._whole(part.source)
        else:
            pieces = _pieces(self._whole(part.source), part.at, part.stored)
        return self._copy(path, lambda copy: copy.writelines(pieces))

    def _unpacked(self, part: _Part) -> Iterator[bytes]:
        left = sys.maxsize if part.stored is None else part.stored
        packed = _pieces(self._whole(part.source), part.at, left, size=PACKED_BYTES)
        return _content(packed, f"{self.place}/{part.name}")

    def _whole(self, name: str) -> Path:
        """A file on this machine with the bytes of a file of the target."""
        if isinstance(self.target, LocalTarget):
            return self.target.root / name

        def write(copy: BinaryIO) -> None:
            if not cast(RemoteTarget, self.target).copy(name, copy):
                raise UsageError(f"{self.place}/{name} is not there any longer; try again")

        return self._copy(name, write)

    def _copy(self, key: str, write: Callable[[BinaryIO], None]) -> Path:
        if (copy := self._kept(key)) is None:
            with _written(made := self.copies / str(next(self.numbers))) as file:
                write(file)
            copy = self._kept(key, made)
        return cast(Path, copy)

    def _kept(self, key: str, made: Path | None = None) -> Path | None:
        """The copy of a file, or None; ``made`` is a new one. It stays until this thread asks for another file."""
        with self.lock:
            if key in self.kept:
                if made is not None:
                    # Another thread was faster.
                    made.unlink()
            elif made is None:
                return None
            else:
                self.kept[key] = made, (size := made.stat().st_size)
                self.kept_bytes += size
            self.kept.move_to_end(key)
            self.last[threading.get_ident()] = key
            while self.kept_bytes > KEPT_BYTES:
                old = next((one for one in self.kept if one not in self.last.values()), None)
                if old is None:
                    break
                # A program that still reads the copy can do so to its end.
                path, size = self.kept.pop(old)
                path.unlink()
                self.kept_bytes -= size
            return self.kept[key][0]


def _log(manifest: str) -> str:
    return manifest.removesuffix(MANIFEST) + LOG


def _of_manifest(log: _Part, indexes: _Part | None, manifest: Any) -> Iterator[_Part]:
    """The files of a segment, by its manifest. ``ValueError`` and others if it is none."""
    is_encrypted = manifest.get("encryption") is not None
    size, is_packed = _size(manifest["chunkIndex"]["originalFileSize"]), manifest["compression"] is True
    yield replace(log, size=size, is_packed=is_packed, is_encrypted=is_encrypted)
    for suffix, name in INDEX_NAMES.items():
        if indexes is not None and (index := manifest["segmentIndexes"][name]) is not None:
            size, at = _size(index["size"]), indexes.at + _size(index["position"])
            yield _Part(log.name.removesuffix(LOG) + suffix, size, indexes.source, at, size, False, is_encrypted)


def _size(value: Any) -> int:
    SIZE.check(value)
    return int(value)


def _head(path: Path) -> bytes:
    """The bytes that say whether a file is packed, or an archive."""
    return b"".join(_pieces(path, left=TAR_AT + len(TAR)))


def _pieces(path: Path, at: int = 0, left: int = sys.maxsize, *, size: int = PIECE_BYTES) -> Iterator[bytes]:
    """At most ``left`` bytes of a file, in pieces of ``size`` bytes."""
    with open_regular(path, follow=True) as file:
        file.seek(at)
        while left > 0 and (piece := file.read(min(size, left))):
            left -= len(piece)
            yield piece


class _Cut(UsageError):
    """The end of a packed file is missing or damaged."""


def _upto_cut(pieces: Iterable[bytes], cut: list[str]) -> Iterator[bytes]:
    """The pieces up to where the packed file is cut off, which ``cut`` gets."""
    try:
        yield from pieces
    except _Cut as error:
        cut.append(str(error))


def _content(packed: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The bytes that are packed in the pieces of a file, by gzip or zstd."""
    room = shutil.disk_usage(tempfile.gettempdir()).free // 2
    unpacker: Any = None
    try:
        for piece in packed:
            while piece:
                if unpacker is None or unpacker.eof:
                    gzip, zstd = partial(zlib.decompressobj, wbits=31), zstandard.ZstdDecompressor().decompressobj
                    unpacker = gzip() if piece.startswith(GZIP[:1]) else zstd()
                chunk = unpacker.decompress(piece)
                room -= len(chunk)
                if room < 0:
                    raise UsageError(
                        f"{name} holds more than half of the free disk at {tempfile.gettempdir()}; unpack it yourself, "
                        "or set TMPDIR to a folder with more room"
                    )
                yield chunk
                # Several may follow each other, and zeros the last one.
                piece = unpacker.unused_data.lstrip(b"\0") if unpacker.eof else b""
    except (zlib.error, zstandard.ZstdError) as error:
        raise _Cut(f"{name} is damaged: {error}") from None
    if unpacker is not None and not unpacker.eof:
        raise _Cut(f"{name} is cut off: its end is missing")
