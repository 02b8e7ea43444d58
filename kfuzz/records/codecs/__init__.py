"""Codec containers as Apache Kafka reads and writes them; the block codecs are the libraries'.

A decompressor never judges: it says which bytes came out, how many it consumed and how it ended, and never gives more
than the bound it is given. Where a library is stricter or laxer than Kafka's Java classes, the container is walked
here. Each codec has a module of its own with the same three functions.
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
from kfuzz.wire.output import Full, Output
from kfuzz.wire.unpack import use

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Python itself loads this zlib. The lz4 package exports the functions of its library. zstandard has two extensions: the
# usual one hides them, and `_cffi` exports them. cramjam hides those of snappy.
use(
    zlib="libz.so.1",
    lz4=getattr(sys.modules["lz4.frame._frame"], "__file__", None),
    zstd=getattr(find_spec("zstandard._cffi"), "origin", None),
)

__all__ = ["Decompressed", "compress", "compress_parts", "decompress", "open_stream"]

# What walks a container: from the data into the output, to where the stream ends.
_Reader = Callable[[memoryview, Output, int], int]


class _Container(Protocol):
    """What the module of each codec offers."""

    @property
    def open_stream(self) -> _Reader: ...
    @property
    def read_stream(self) -> _Reader: ...
    @property
    def write_stream(self) -> Callable[[Buffer, int | None, int], list[Buffer]]: ...


_CONTAINERS: Final[Mapping[str, _Container]] = {"gzip": gzip, "snappy": snappy, "lz4": lz4, "zstd": zstd}


def decompress(codec: Codec, data: bytes | memoryview, limit_bytes: int, *, magic: int = 2) -> Decompressed:
    """Decompress ``data`` to at most ``limit_bytes``. Never raises on bad bytes.

    ``magic`` 0 skips the lz4 header checksum, which old writers got wrong (KAFKA-3160). Mirrors
    ``org.apache.kafka.common.compress``.
    """
    if codec == "none":
        return Decompressed(bytes(data), len(data), "whole")
    return _run(_CONTAINERS[codec].read_stream, memoryview(data), limit_bytes, magic)


def open_stream(codec: Codec, data: bytes | memoryview, limit_bytes: int, *, magic: int = 2) -> Decompressed:
    """As far as Kafka goes with a stream that it opens and never reads, as for a batch without records.

    That is the gzip header, the lz4 frame descriptor, the whole of a raw snappy block, and nothing of zstd.
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
    """``data`` in the container that Kafka's producer writes: gzip; xerial snappy; an lz4 frame of independent
    blocks; zstd.

    ``level`` is the codec's own; None is Kafka's default. The bytes may differ between versions of the libraries.
    """
    return b"".join(compress_parts(codec, data, magic=magic, level=level))


def compress_parts(codec: Codec, data: Buffer, *, magic: int = 2, level: int | None = None) -> list[Buffer]:
    """What :func:`compress` makes, in the pieces that it comes in, for whoever puts something in front of it."""
    if codec == "none":
        return [data]
    write = _CONTAINERS[codec].write_stream
    if level is None:
        return write(data, None, magic)
    try:
        return write(data, level, magic)
    except (ValueError, OverflowError, RuntimeError, TypeError) as error:
        raise UsageError(f"compression level {level!r} is none of {codec}'s: {error}") from None
