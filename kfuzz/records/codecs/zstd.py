"""The zstd frame, as the stream class of zstd-jni reads it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import zstandard

from kfuzz.records.codecs.container import Broken, Cut, require_memory
from kfuzz.wire.io.output import Full, Output

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Its name and version: the compressed bytes depend on them.
LIBRARY = ("zstd", ".".join(map(str, zstandard.ZSTD_VERSION)))

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# The low four bits of the first byte may have any value.
ZSTD_SKIPPABLE = b"\x50\x2a\x4d\x18"
# com.github.luben.zstd.ZstdInputStreamNoFinalizer reads in pieces of this size (ZSTD_DStreamInSize).
ZSTD_BUFFER = 128 * 1024 + 3
ZSTD_LARGEST_BLOCK = 128 * 1024
# The default limit of a streaming decoder. zstd-jni does not change it.
ZSTD_LARGEST_WINDOW = (1 << 27) + 1
# Kafka asks for so many bytes at once (ZstdCompression.decompressionOutputSize). A frame whose content is known to fit
# is decompressed in one pass, if all of it is at hand: its window does not matter. For a long value Kafka asks for more
# at once; a frame that begins inside one is judged as if it did not.
ZSTD_ONE_PASS = 16 * 1024
# The window of level 19, the highest ordinary level.
ZSTD_KEPT_WINDOW = 1 << 23
ZSTD_SINGLE_SEGMENT = 0x20
# The library's error text if an allocation of its own fails.
NO_MEMORY = "not enough memory"


class _Contexts(threading.local):
    """One set of contexts for each thread: making a context costs more than decompressing a small batch."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}

    def decompressor_of(self, window: int) -> zstandard.ZstdDecompressor:
        """The decompressor for this window. One keeps memory for its largest window, so a large one is not reused."""
        return self.decompressor if window <= ZSTD_KEPT_WINDOW else zstandard.ZstdDecompressor()

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        if level not in self.compressors:
            self.compressors[level] = zstandard.ZstdCompressor(level=level)
        return self.compressors[level]


_contexts = _Contexts()


def _header(data: memoryview, at: int) -> tuple[int, bool, int | None, int]:
    """Read the frame header at ``at``.

    Returns where the blocks begin, whether a checksum follows them, the content size, and the window size.
    """
    try:
        descriptor = data[at + 4]
        at += 5
        single = descriptor >> 5 & 1
        window = 0
        if not single:
            exponent, mantissa = data[at] >> 3, data[at] & 7
            window = (1 << (10 + exponent)) + ((1 << (10 + exponent)) >> 3) * mantissa
            at += 1
    except IndexError:
        raise Cut("a zstd frame header is cut") from None
    at += (0, 1, 2, 4)[descriptor & 3]
    width = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    field = data[at : at + width]
    at += width
    if at > len(data):
        raise Cut("a zstd frame header is cut")
    content: int | None = None
    if width:
        content = int.from_bytes(field, "little") + (256 if width == 2 else 0)
    if single and content is not None:
        window = content
    return at, bool(descriptor & 4), content, window


def _require_window(window: int) -> None:
    if window > ZSTD_LARGEST_WINDOW:
        raise Broken(f"a zstd window of {window} bytes")


def _blocks(data: memoryview, at: int, window: int) -> tuple[int, int, int]:
    """Walk the blocks from ``at`` without decompressing them.

    Returns where they end, the most they can hold, and the size of the largest, compressed or not.
    """
    most = largest = 0
    while True:
        header = data[at : at + 3]
        if len(header) < 3:
            raise Cut("the zstd frame is cut")
        word = int.from_bytes(header, "little")
        at += 3
        kind, size = word >> 1 & 3, word >> 3
        if kind == 3:
            raise Broken("a reserved zstd block type")
        at += 1 if kind == 1 else size
        most += min(ZSTD_LARGEST_BLOCK, max(window, 1024)) if kind == 2 else size
        largest = max(largest, size)
        if at > len(data):
            raise Cut("the zstd frame is cut")
        if word & 1:
            return at, most, largest


def open_stream(data: memoryview, output: Output, magic: int) -> int:
    return 0


def read_stream(data: memoryview, output: Output, magic: int) -> int:
    at = 0
    while at < len(data):
        try:
            end = _next(data, at, output)
        except Broken as fault:
            # If an earlier frame ended in the same buffer, zstd-jni does not notice that the next one is cut. The data
            # then ends here without an error.
            starts_buffer = at % ZSTD_BUFFER == 0
            if not isinstance(fault, Cut) or starts_buffer or len(data) > (at // ZSTD_BUFFER + 1) * ZSTD_BUFFER:
                with contextlib.suppress(Broken, Full):
                    _rest(data[at:], output)
                raise
            _rest(data[at:], output)
            return at
        at = end
    return at


def _next(data: memoryview, at: int, output: Output) -> int:
    """Decompress the frame that begins at ``at``, or skip a skippable one. Returns where it ends."""
    start = at
    if len(data) - at < 4:
        rest = bytes(data[at:])
        if not ZSTD_MAGIC.startswith(rest) and not (
            rest[0] & 0xF0 == ZSTD_SKIPPABLE[0] and ZSTD_SKIPPABLE[1:].startswith(rest[1:])
        ):
            raise Broken("not a zstd frame")
        raise Cut("a zstd frame is cut in its magic")
    if data[at] & 0xF0 == ZSTD_SKIPPABLE[0] and data[at + 1 : at + 4] == ZSTD_SKIPPABLE[1:]:
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if len(data) - at < 8 or size > len(data) - at - 8:
            raise Cut("a skippable zstd frame is cut")
        return at + 8 + size
    if data[at : at + 4] != ZSTD_MAGIC:
        raise Broken("not a zstd frame")
    at, checksum, content, window = _header(data, at)
    fits = content is not None and content <= ZSTD_ONE_PASS
    if not fits:
        _require_window(window)
    try:
        at, most, largest = _blocks(data, at, window)
        at += 4 if checksum else 0
        if at > len(data):
            raise Cut("the zstd checksum is cut")
    except Cut:
        _require_window(window)
        raise
    # zstd-jni reads the data in pieces, and not all of the frame may be in one.
    if not fits or at > (start // ZSTD_BUFFER + 1) * ZSTD_BUFFER:
        _require_window(window)
        if largest > (limit := min(window, ZSTD_LARGEST_BLOCK)):
            raise Broken(f"a zstd block of {largest} bytes; the limit is {limit}")
    if content is not None and content > most:
        raise Broken(f"a zstd frame claims {content} bytes; its blocks hold at most {most}")
    _frame(data[start:at], content, most, window, output)
    return at


def _lean(frame: memoryview, window: int, needed: int) -> tuple[memoryview | bytes, int]:
    """``frame`` with its window reduced to what ``needed`` bytes of content can use, and the new window.

    The library allocates the window before it reads a block, so a header could make it allocate 128 MiB for one byte of
    content. A single-segment frame states its window as its content size. It gets a window field instead.
    """
    # A window smaller than the largest block would limit the block size, so never go below that.
    exponent = (max(needed, ZSTD_LARGEST_BLOCK) - 1).bit_length()
    if window <= 1 << exponent:
        return frame, window
    descriptor, rest = frame[4], frame[6:]
    if descriptor & ZSTD_SINGLE_SEGMENT:
        # Keep the dictionary id, and drop the content size after it.
        ids = 5 + (0, 1, 2, 4)[descriptor & 3]
        rest = frame[ids + (1 << (descriptor >> 6)) :]
        return b"".join((frame[:4], bytes([descriptor & 0x1F, exponent - 10 << 3]), frame[5:ids], rest)), 1 << exponent
    return b"".join((frame[:5], bytes([exponent - 10 << 3]), rest)), 1 << exponent


def _rest(data: memoryview, output: Output) -> None:
    """Decompress a cut or broken frame up to that point."""
    frame: memoryview | bytes = data
    window = 0
    with contextlib.suppress(Cut):
        window = _header(data, 0)[3] if data[:4] == ZSTD_MAGIC else 0
    _require_window(window)
    if window:
        frame, window = _lean(data, window, output.room + ZSTD_LARGEST_BLOCK)
    try:
        with _contexts.decompressor_of(window).stream_reader(frame) as reader:
            while piece := reader.read(ZSTD_LARGEST_BLOCK):
                output.add(piece)
    except zstandard.ZstdError as error:
        require_memory(error, NO_MEMORY, "zstd")
        raise Broken(f"zstd: {error}") from None


def _frame(frame: memoryview, content: int | None, most: int, window: int, output: Output) -> None:
    if content is not None and content > output.room:
        raise Full
    room = min(most, output.room)
    lean, window = _lean(frame, window, room + ZSTD_LARGEST_BLOCK) if content is None else (frame, window)
    try:
        piece = _contexts.decompressor_of(window).decompress(lean, max_output_size=max(room, 1))
    except zstandard.ZstdError as error:
        require_memory(error, NO_MEMORY, "zstd")
        # The frame is whole, so this error means that the output buffer is too small.
        if room < most and ("too small" in str(error) or "full frame" in str(error)):
            raise Full from None
        raise Broken(f"zstd: {error}") from None
    output.add(piece)


def write_stream(data: Buffer, level: int | None, magic: int) -> list[Buffer]:
    return [_contexts.compressor(3 if level is None else level).compress(memoryview(data))]
