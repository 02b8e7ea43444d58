"""Codec containers as Apache Kafka reads and writes them. Libraries do the compression of blocks.

A decompressor makes no findings. It returns the output, the number of consumed bytes and how the stream ended, and it
never returns more than the given bound. If a library is stricter or more lenient than Kafka's Java classes, the code
here walks the container itself. Each codec has its own module, with the same three functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol

from kfuzz.errors import UsageError
from kfuzz.kafka import Codec
from kfuzz.records.codecs import gzip, lz4, snappy, zstd
from kfuzz.records.codecs.container import Broken, Decompressed
from kfuzz.wire.io import pack, unpack
from kfuzz.wire.io.output import Full, Output

if TYPE_CHECKING:
    from typing_extensions import Buffer

# The libraries that compiled code calls itself; a codec without its library is left to Python.
# zlib-ng is the only faster library that accepts and refuses the same streams as zlib, and so as Kafka. ISA-L and
# libdeflate read incomplete Huffman codes and symbols that do not exist. Without it, gzip is read by the zlib that
# Python itself loads. The lz4 package exports the functions of its library. zstandard has two extensions: the default
# one hides the functions, and `_cffi` exports them. cramjam hides the functions of snappy.
ZLIB_NG_LIBRARY = getattr(find_spec("zlib_ng.zlib_ng"), "origin", None) if find_spec("zlib_ng") else None
ZLIB_LIBRARY = "libz.so.1"
LZ4_LIBRARY = getattr(sys.modules["lz4.frame._frame"], "__file__", None)
ZSTD_LIBRARY = getattr(find_spec("zstandard._cffi"), "origin", None)
unpack.use(zlib_ng=ZLIB_NG_LIBRARY, zlib=ZLIB_LIBRARY, lz4=LZ4_LIBRARY, zstd=ZSTD_LIBRARY)
pack.use(lz4=LZ4_LIBRARY, zstd=ZSTD_LIBRARY)

__all__ = ["Decompressed", "compress", "compress_parts", "decompress", "library_versions", "open_stream"]

# Walks a container: takes the data, the output and the magic, and returns where the stream ends.
_Reader = Callable[[memoryview, Output, int], int]


class _Container(Protocol):
    """The functions of each codec's module."""

    @property
    def open_stream(self) -> _Reader: ...
    @property
    def read_stream(self) -> _Reader: ...
    @property
    def write_stream(self) -> Callable[[Buffer, int | None, int], list[Buffer]]: ...
    # The name and version of the library, which the compressed bytes depend on.
    @property
    def LIBRARY(self) -> tuple[str, str]: ...


_CONTAINERS: Final[Mapping[str, _Container]] = {"gzip": gzip, "snappy": snappy, "lz4": lz4, "zstd": zstd}


def library_versions() -> dict[str, str]:
    """The versions of the codecs' libraries, by the library's name."""
    return dict(container.LIBRARY for container in _CONTAINERS.values())


def decompress(codec: Codec, data: bytes | memoryview, limit_bytes: int, *, magic: int = 2) -> Decompressed:
    """Decompress ``data`` to at most ``limit_bytes``. Never raises on bad bytes.

    ``magic`` 0 skips the lz4 header checksum, which old writers got wrong (KAFKA-3160). Mirrors
    ``org.apache.kafka.common.compress``.
    """
    if codec == "none":
        return Decompressed(bytes(data), len(data), "whole")
    return _run(_CONTAINERS[codec].read_stream, memoryview(data), limit_bytes, magic)


def open_stream(codec: Codec, data: bytes | memoryview, limit_bytes: int, *, magic: int = 2) -> Decompressed:
    """Read only what Kafka reads when it opens a stream. It opens, but never reads, the stream of an empty batch.

    That is the gzip header, the lz4 frame descriptor, the xerial header or a whole raw snappy block, and nothing of
    zstd.
    """
    return _run(_CONTAINERS[codec].open_stream, memoryview(data), limit_bytes, magic)


def _run(reader: _Reader, data: memoryview, limit_bytes: int, magic: int) -> Decompressed:
    output = Output(limit_bytes)
    try:
        consumed = reader(data, output, magic)
    except Full:
        return Decompressed(output.close(), len(data), "limit")
    except Broken as error:
        return Decompressed(output.close(), len(data), "broken", str(error))
    return Decompressed(output.close(), consumed, "whole", output.mismatch)


def compress(codec: Codec, data: Buffer, *, magic: int = 2, level: int | None = None) -> bytes:
    """Compress ``data`` into the container that Kafka's producer writes.

    These are gzip, xerial snappy, an lz4 frame with independent blocks, and zstd. ``level`` is the codec's compression
    level; None is Kafka's default. The bytes may differ between versions of the libraries.
    """
    return b"".join(compress_parts(codec, data, magic=magic, level=level))


def compress_parts(codec: Codec, data: Buffer, *, magic: int = 2, level: int | None = None) -> list[Buffer]:
    """As :func:`compress`, but returns separate pieces. A caller can put a header first and join everything once."""
    if codec == "none":
        return [data]
    write = _CONTAINERS[codec].write_stream
    if level is None:
        return write(data, None, magic)
    try:
        return write(data, level, magic)
    except (ValueError, OverflowError, RuntimeError, TypeError) as error:
        raise UsageError(f"{codec} has no compression level {level!r}: {error}") from None
