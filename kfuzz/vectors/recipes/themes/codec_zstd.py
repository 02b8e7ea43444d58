"""All parts of zstd frames: windows, content sizes, checksums, blocks."""

from __future__ import annotations

import struct

from xxhash import xxh64_intdigest

from kfuzz.vectors.recipes.making.builder import Record
from kfuzz.vectors.recipes.making.containers import ZSTD_MAGIC, zstd_frame
from kfuzz.vectors.recipes.making.containers import zstd_block as block
from kfuzz.vectors.recipes.making.containers import zstd_parts as frame
from kfuzz.vectors.recipes.theme import SMALL, Theme
from kfuzz.vectors.recipes.themes.codec import HALF, JUNK, PLAIN, Streams

MIB = 1024 * 1024
RAW, RLE, COMPRESSED, RESERVED = 0, 1, 2, 3
# The descriptor's bits, without those for the sizes of its fields.
SINGLE_SEGMENT, UNUSED, RESERVED_BIT, CHECKSUM = 0x20, 0x10, 0x08, 0x04
FRAME = zstd_frame(PLAIN)
SKIPPABLE = 0x184D2A50


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/zstd.json``."""
    made = Streams(
        "records/v2/zstd",
        "The zstd frame (RFC 8878): windows, sizes, checksums, and the blocks inside it.",
        codec="zstd",
    )
    _descriptor(made)
    _windows(made)
    _bad_descriptor(made)
    _blocks(made)
    _bad_blocks(made)
    _frames(made)
    _cuts(made)
    return made


def _descriptor(made: Streams) -> None:
    size = len(PLAIN)
    plain = block(PLAIN)
    checksum = struct.pack("<I", xxh64_intdigest(PLAIN) & 0xFFFFFFFF)
    large = Record(value=bytes(index % 251 for index in range(500)))
    encoded = large.encode()
    cases = (
        (
            "content-size-one-byte",
            "the content's size in one byte and no window",
            frame(plain, descriptor=SINGLE_SEGMENT, window=None, fields=bytes([size])),
        ),
        (
            "content-size-four-bytes",
            "the content's size in four bytes",
            frame(plain, descriptor=0x80, fields=struct.pack("<I", size)),
        ),
        (
            "content-size-eight-bytes",
            "the content's size in eight bytes and a window",
            frame(plain, descriptor=0xC0, fields=struct.pack("<Q", size)),
        ),
        ("checksum", "a content checksum", frame(plain, descriptor=CHECKSUM, end=checksum)),
        ("unused-bit", "the unused bit of the descriptor set; decoders ignore it", frame(plain, descriptor=UNUSED)),
        ("dictionary-id-zero", "a dictionary id of 0, which means none", frame(plain, descriptor=0x01, fields=b"\x00")),
        (
            "dictionary-id-zero-wide",
            "a dictionary id of 0 in four bytes",
            frame(plain, descriptor=0x03, fields=bytes(4)),
        ),
    )
    for slug, what, stream in cases:
        made.valid(slug, f"a frame with {what}", stream)
    made.valid(
        "content-size-two-bytes",
        "a frame with the content's size in two bytes, stored minus 256",
        frame(
            block(encoded), descriptor=0x40 | SINGLE_SEGMENT, window=None, fields=struct.pack("<H", len(encoded) - 256)
        ),
        records=[large],
    )


def _windows(made: Streams) -> None:
    zstd_window_large = made.flag("ZstdWindowLarge", requirements=["RB-ZSTD-1", "RB-CODEC-7"])
    sizes = (
        ("1-kib", 0, "1 KiB, the smallest"),
        ("1-kib-and-seven-eighths", 7, "1 KiB and seven eighths"),
        ("8-mib", 13 << 3, "8 MiB"),
    )
    for slug, window, what in sizes:
        made.valid(f"window-{slug}", f"the window has {what}", frame(block(PLAIN), window=window))
    zstd_window_large.acceptable(
        "window-128-mib",
        "the window has 128 MiB, the largest size that Kafka's library accepts",
        frame(block(PLAIN), window=17 << 3),
        level="recommended",
        budget={"cpu_ms": 2000, "memory_bytes": 320 * MIB},
    )
    for slug, window, what in (
        ("144-mib", 17 << 3 | 1, "144 MiB"),
        ("256-mib", 18 << 3, "256 MiB"),
        ("3-75-tib", 31 << 3 | 7, "3.75 TiB, the largest"),
    ):
        zstd_window_large.acceptable(
            f"window-{slug}",
            f"the window has {what}; the format permits it, but Kafka's library refuses it",
            frame(block(PLAIN), window=window),
            finding="decompression-failed",
            budget=SMALL,
        )


def _bad_descriptor(made: Streams) -> None:
    size = len(PLAIN)
    plain = block(PLAIN)
    checksum = struct.pack("<I", (xxh64_intdigest(PLAIN) + 1) & 0xFFFFFFFF)
    cases = (
        ("magic-byte-swapped", "the magic is big-endian", FRAME[3::-1] + FRAME[4:]),
        ("magic-of-version-0-7", "the magic is the one of zstd 0.7", struct.pack("<I", 0xFD2FB527) + FRAME[4:]),
        ("magic-missing", "the frame has no magic", FRAME[4:]),
        ("reserved-bit-set", "the descriptor's reserved bit is set", frame(plain, descriptor=RESERVED_BIT)),
        (
            "dictionary-two-bytes",
            "the frame has a two-byte dictionary id of an unknown dictionary",
            frame(plain, descriptor=0x02, fields=b"\x07\x01"),
        ),
        (
            "dictionary-four-bytes",
            "the frame has a four-byte dictionary id",
            frame(plain, descriptor=0x03, fields=b"\xff\xff\xff\x7f"),
        ),
        (
            "content-size-too-low",
            "the content's size is one too low",
            frame(plain, descriptor=0xC0, fields=struct.pack("<Q", size - 1)),
        ),
        (
            "content-size-largest",
            "the content's size is 2^64 - 3",
            frame(plain, descriptor=0xC0, fields=struct.pack("<Q", 2**64 - 3)),
        ),
        (
            "content-size-largest-without-window",
            "the content's size is 2^40, and so is the window",
            frame(plain, descriptor=0xC0 | SINGLE_SEGMENT, window=None, fields=struct.pack("<Q", 2**40)),
        ),
        ("checksum-off", "the content checksum is one too high", frame(plain, descriptor=CHECKSUM, end=checksum)),
        (
            "checksum-of-other-half",
            "the checksum is the hash's upper half",
            frame(plain, descriptor=CHECKSUM, end=struct.pack("<I", xxh64_intdigest(PLAIN) >> 32)),
        ),
        ("checksum-missing", "the frame declares a checksum, but has none", frame(plain, descriptor=CHECKSUM)),
    )
    for slug, summary, stream in cases:
        made.flag("ZstdHeaderBroken").invalid(slug, summary, stream, budget=SMALL)


def _blocks(made: Streams) -> None:
    raw_literals = bytes([len(PLAIN) << 3]) if len(PLAIN) < 32 else struct.pack("<H", len(PLAIN) << 4 | 0b0100)
    run = Record(value=bytes(2000))
    encoded = run.encode()
    cases = (
        (
            "empty-block-first",
            "an empty raw block precedes the one with the records",
            frame(block(b"", last=False), block(PLAIN)),
        ),
        (
            "empty-block-last",
            "an empty raw block follows the one with the records",
            frame(block(PLAIN, last=False), block(b"")),
        ),
        (
            "blocks-of-a-byte",
            "each raw block holds a single byte",
            frame(*(block(PLAIN[i : i + 1], last=i == len(PLAIN) - 1) for i in range(len(PLAIN)))),
        ),
        (
            "compressed-raw-literals",
            "a compressed block has raw literals and no sequence",
            frame(block(raw_literals + PLAIN + b"\x00", COMPRESSED)),
        ),
    )
    for slug, summary, stream in cases:
        made.valid(slug, summary, stream)
    made.valid(
        "run-length-block",
        "a block that repeats one byte is between two raw blocks",
        frame(block(encoded[:-2001], last=False), block(b"\x00", RLE, last=False, size=2000), block(encoded[-1:])),
        records=[run],
    )


def _bad_blocks(made: Streams) -> None:
    zstd_block_broken = made.flag("ZstdBlockBroken", budget=SMALL)
    largest = (1 << 21) - 1
    cases = (
        ("beyond-payload", "a raw block is longer than the payload", frame(block(PLAIN, size=5000))),
        ("raw-beyond-maximum", "a raw block has 128 KiB and one byte", frame(block(bytes(128 * 1024 + 1)))),
        (
            "run-beyond-maximum",
            "a block repeats one byte 2^21 - 1 times, more than a block may hold",
            frame(block(b"\x00", RLE, size=largest)),
        ),
        ("beyond-window", "a raw block has 2 KiB, but the window has 1 KiB", frame(block(bytes(2048)), window=0)),
        ("run-cut", "the payload ends before the byte that the block repeats", frame(block(b"", RLE, size=100))),
        ("reserved-kind", "the only block is of the reserved kind", frame(block(PLAIN, RESERVED))),
        (
            "reserved-kind-second",
            "the second block is of the reserved kind",
            frame(block(PLAIN[:HALF], last=False), block(PLAIN[HALF:], RESERVED)),
        ),
        ("compressed-one-byte", "a compressed block has only one byte", frame(block(b"\x00", COMPRESSED))),
        ("compressed-garbage", "a compressed block is garbage", frame(block(JUNK * 4, COMPRESSED))),
        (
            "literals-beyond-block",
            "a compressed block's literals are longer than the block",
            frame(block(b"\xf8" + PLAIN[:10], COMPRESSED)),
        ),
        (
            "literals-repeat-no-tree",
            "a compressed block repeats a Huffman tree, but there was none",
            frame(block(b"\x03\x40\x01" + PLAIN[:10], COMPRESSED)),
        ),
        (
            "sequences-beyond-block",
            "a compressed block claims sequences, but ends before them",
            frame(block(b"\x20abcd\x7f", COMPRESSED)),
        ),
        ("not-last", "no block is marked as the last one", frame(block(PLAIN, last=False))),
    )
    for slug, what, stream in cases:
        zstd_block_broken.invalid(f"block-{slug}", what, stream)

    run = Record(value=bytes(2000))
    encoded = run.encode()
    repeated = block(b"\x00", RLE, last=False, size=2000)
    # A decoder that knows the size of its output from elsewhere needs no window, and may not look at it.
    zstd_block_broken.invalid(
        "block-run-beyond-window",
        "a block repeats one byte 2,000 times, but the window has 1 KiB and the frame states no content size",
        frame(block(encoded[:-2001], last=False), repeated, block(encoded[-1:]), window=0),
        records=[run],
    )

    # Kafka's library and kfuzz's end these streams at different places, but neither finds a record.
    for slug, what, stream in (
        ("block-compressed-empty", "a compressed block is empty", frame(block(b"", COMPRESSED))),
        (
            "content-size-zero",
            "the content's size is 0, but a block with the records follows",
            frame(block(PLAIN), descriptor=0xC0, fields=bytes(8)),
        ),
    ):
        zstd_block_broken.invalid(slug, what, stream, finding="record-count-too-high")


def skippable(data: bytes, kind: int = 0, *, size: int | None = None) -> bytes:
    """A skippable frame; ``kind`` is 0 to 15."""
    return struct.pack("<II", SKIPPABLE + kind, len(data) if size is None else size) + data


def _frames(made: Streams) -> None:
    first, second = zstd_frame(PLAIN[:HALF]), zstd_frame(PLAIN[HALF:])
    cases = (
        (
            "skippable-of-each-kind",
            "all 16 kinds of skippable frames precede the frame with the records",
            b"".join(skippable(JUNK, kind) for kind in range(16)) + FRAME,
        ),
        ("skippable-empty", "an empty skippable frame precedes the one with the records", skippable(b"") + FRAME),
        ("skippable-between", "a skippable frame between two with records", first + skippable(JUNK) + second),
        ("empty-frame-last", "an empty frame follows the one with the records", FRAME + zstd_frame(b"")),
        ("empty-frame-between", "an empty frame between two with records", first + zstd_frame(b"") + second),
        (
            "three-frames",
            "three frames, each with a different header",
            zstd_frame(PLAIN[:5], content_size=5) + zstd_frame(PLAIN[5:HALF]) + frame(block(PLAIN[HALF:]), window=0),
        ),
    )
    for slug, summary, stream in cases:
        made.valid(slug, summary, stream)
    zstd_frames = made.flag("ZstdFrames", requirements=["RB-ZSTD-1", "RB-CODEC-2"])
    broken = (
        ("skippable-only", "the payload is only a skippable frame", skippable(PLAIN), "record-count-too-high"),
        (
            "skippable-largest",
            "a skippable frame that claims 4 GiB precedes the one with the records",
            skippable(b"", size=2**32 - 1) + FRAME,
            "decompression-failed",
        ),
        ("second-frame-cut", "the second frame is truncated", first + second[:-3], "record-length-exceeds-payload"),
        (
            "second-frame-magic",
            "the second frame's magic is wrong",
            first + b"\x27" + second[1:],
            "decompression-failed",
        ),
        (
            "second-frame-checksum",
            "the second frame's checksum is wrong",
            first + frame(block(PLAIN[HALF:]), descriptor=CHECKSUM, end=bytes(4)),
            "decompression-failed",
        ),
        ("one-zero", "a zero byte follows the frame with the records", FRAME + b"\x00", "decompression-failed"),
    )
    for slug, summary, stream, finding in broken:
        zstd_frames.invalid(slug, summary, stream, finding=finding, budget=SMALL)
    unfinished = (
        ("magic-again", "only a magic", ZSTD_MAGIC),
        ("skippable-cut", "a truncated skippable frame", skippable(JUNK, size=100)),
        ("skippable-header-cut", "a truncated header of a skippable frame", skippable(b"")[:6]),
    )
    for slug, what, tail in unfinished:
        zstd_frames.acceptable(
            slug,
            f"{what} follows the frame with the records; Kafka already has all records",
            FRAME + tail,
            finding="bytes-after-compressed-stream",
        )


def _cuts(made: Streams) -> None:
    checked = frame(block(PLAIN), descriptor=CHECKSUM, end=bytes(4))
    cases = (
        ("in-magic", "within the magic", FRAME[:3]),
        ("behind-magic", "after the magic", FRAME[:4]),
        ("behind-descriptor", "after the descriptor", FRAME[:5]),
        ("behind-header", "after the header", FRAME[:6]),
        ("in-block-header", "within a block's header", FRAME[:8]),
        ("behind-block-header", "after a block's header", FRAME[:9]),
        ("in-content-size", "within the content's size", zstd_frame(PLAIN, content_size=len(PLAIN))[:9]),
        ("in-checksum", "within the checksum", checked[:-2]),
        ("before-second-block", "before the second block", frame(block(PLAIN[:HALF], last=False))),
    )
    for slug, where, stream in cases:
        made.flag("ZstdCut").invalid(f"cut-{slug}", f"the frame ends {where}", stream)
