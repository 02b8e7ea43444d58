"""All parts of lz4 frames: descriptor bits, block sizes, checksums, blocks.

Kafka has its own frame reader. It is stricter than the usual libraries in some places and laxer in others.
"""

from __future__ import annotations

import struct

from xxhash import xxh32_intdigest

from kfuzz.vectors.recipes.making.builder import Record, batch
from kfuzz.vectors.recipes.making.containers import LZ4_MAGIC, LZ4_STORED, lz4_frame
from kfuzz.vectors.recipes.making.containers import lz4_compressed as compressed
from kfuzz.vectors.recipes.making.containers import lz4_parts as frame
from kfuzz.vectors.recipes.making.containers import lz4_stored as stored
from kfuzz.vectors.recipes.theme import SMALL, Theme
from kfuzz.vectors.recipes.themes.codec import HALF, JUNK, PLAIN, Streams

KIB = 1024
FRAME = lz4_frame(PLAIN)
# The frame's descriptor has flags and a block size code; a checksum byte follows.
FLAGS, BLOCK_SIZE, BLOCKS_AT = 0x60, 0x40, 7
END_MARK = bytes(4)


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/lz4.json``."""
    made = Streams(
        "records/v2/lz4", "The lz4 frame: descriptor, block sizes, checksums, and the blocks inside it.", codec="lz4"
    )
    _descriptor(made)
    _bad_descriptor(made)
    _blocks(made)
    _bad_blocks(made)
    _checksums(made)
    _cuts(made)
    _small_batches(made)
    return made


def literals(data: bytes) -> bytes:
    """The last sequence of a block, which has only literals."""
    if len(data) < 15:
        return bytes([len(data) << 4]) + data
    full, rest = divmod(len(data) - 15, 255)
    return b"\xf0" + b"\xff" * full + bytes([rest]) + data


def _descriptor(made: Streams) -> None:
    cases = (
        ("block-max-256-kib", "blocks of at most 256 KiB", frame(stored(PLAIN), block_size=0x50)),
        ("block-max-1-mib", "blocks of at most 1 MiB", frame(stored(PLAIN), block_size=0x60)),
        ("block-max-4-mib", "blocks of at most 4 MiB", frame(stored(PLAIN), block_size=0x70)),
        (
            "all-options",
            "block checksums, a content checksum and the content's size at once",
            lz4_frame(PLAIN, block_checksums=True, content_checksum=True, content_size=len(PLAIN)),
        ),
    )
    for slug, what, stream in cases:
        made.valid(slug, f"a frame with {what}", stream)
    dictionary = frame(stored(PLAIN), flags=FLAGS | 1, fields=b"\x01\x00\x00\x00")
    others = (
        (
            "dependent-blocks",
            "the blocks depend on one another, as in the lz4 tool's output",
            frame(stored(PLAIN), flags=0x40),
        ),
        ("dictionary-id", "the frame names a dictionary", dictionary),
    )
    for slug, summary, stream in others:
        made.flag("Lz4Descriptor").acceptable(
            slug, f"{summary}; Kafka refuses it", stream, finding="decompression-failed"
        )


def _bad_descriptor(made: Streams) -> None:
    cases = (
        ("magic-byte-swapped", "the magic is big-endian", FRAME[3::-1] + FRAME[4:]),
        (
            "magic-of-legacy-frame",
            "the magic is that of the legacy lz4 frame",
            struct.pack("<I", 0x184C2102) + FRAME[4:],
        ),
        ("magic-last-byte", "the magic's last byte is 19", FRAME[:3] + b"\x19" + FRAME[4:]),
        ("no-frame", "the payload is an lz4 block without a frame", literals(PLAIN)),
        ("version-zero", "the version is 0", frame(stored(PLAIN), flags=0x20)),
        ("version-three", "the version is 3", frame(stored(PLAIN), flags=0xE0)),
        ("reserved-flag", "the reserved flag bit is set", frame(stored(PLAIN), flags=FLAGS | 2)),
        ("block-size-zero", "the block size code is 0", frame(stored(PLAIN), block_size=0)),
        ("block-size-three", "the block size code is 3, one below the smallest", frame(stored(PLAIN), block_size=0x30)),
        (
            "block-size-reserved-high",
            "the highest bit of the block size byte is set",
            frame(stored(PLAIN), block_size=0xC0),
        ),
        ("block-size-reserved-low", "a low bit of the block size byte is set", frame(stored(PLAIN), block_size=0x41)),
        ("header-checksum-zero", "the header's checksum is 0", lz4_frame(PLAIN, header_checksum=0)),
        (
            "header-checksum-low-byte",
            "the header's checksum is the hash's lowest byte instead of its second",
            lz4_frame(PLAIN, header_checksum=xxh32_intdigest(b"\x60\x40") & 0xFF),
        ),
        (
            "header-checksum-with-magic",
            "the header's checksum also covers the magic, as in old Kafka",
            lz4_frame(PLAIN, header_checksum=xxh32_intdigest(LZ4_MAGIC + b"\x60\x40") >> 8 & 0xFF),
        ),
    )
    for slug, summary, stream in cases:
        flags = ["Lz4DescriptorBroken"]
        made.invalid(slug, summary, stream, flags=flags, budget=SMALL)


def _blocks(made: Streams) -> None:
    last = PLAIN[-4:]
    cases = (
        ("compressed-literals", "a compressed block has only literals", frame(compressed(literals(PLAIN)))),
        (
            "block-of-each-kind",
            "a stored block and a compressed one",
            frame(stored(PLAIN[:HALF]), compressed(literals(PLAIN[HALF:]))),
        ),
        (
            "blocks-of-a-byte",
            "each stored block holds a single byte",
            frame(*(stored(PLAIN[i : i + 1]) for i in range(len(PLAIN)))),
        ),
    )
    for slug, summary, stream in cases:
        made.valid(slug, summary, stream)
    value = b"ab" * 60
    record = Record(value=value)
    data = record.encode()
    ahead, after = data[: -(len(value) + 1)] + b"ab", value[-5:] + data[-1:]
    length = len(data) - len(ahead) - len(after)
    # One sequence of literals and a copy from two bytes back (an extra byte holds its length above 19), then literals.
    token = bytes([len(ahead) << 4 | 15])
    block = token + ahead + b"\x02\x00" + bytes([length - 19]) + literals(after)
    made.valid(
        "overlapping-copy",
        "a copy in a compressed block overlaps its own output",
        frame(compressed(block)),
        records=[record],
    )
    lz4_end_mark = made.flag("Lz4EndMark", requirements=["RB-LZ4-1", "RB-CODEC-2"])
    lz4_end_mark.acceptable(
        "end-mark-with-high-bit",
        "the end mark has the bit for uncompressed blocks set",
        frame(stored(PLAIN), end=struct.pack("<I", LZ4_STORED)),
        requirements=["RB-LZ4-1"],
    )
    lz4_end_mark.invalid(
        "end-mark-first",
        "the end mark comes before the block with the records",
        frame(end=END_MARK + stored(PLAIN) + END_MARK),
        finding="record-count-too-high",
    )
    lz4_end_mark.invalid(
        "end-mark-between",
        "an end mark is between two blocks",
        frame(stored(PLAIN[:HALF]), end=END_MARK + stored(PLAIN[HALF:]) + END_MARK),
        finding="record-length-exceeds-payload",
    )
    for slug, tail in (
        ("frame-of-nothing", lz4_frame(b"")),
        ("skippable-frame", struct.pack("<II", 0x184D2A50, 4) + JUNK),
        ("zero-byte", b"\x00"),
        ("last-bytes-again", last),
    ):
        lz4_end_mark.acceptable(
            f"then-{slug}",
            f"other bytes follow the frame ({slug.replace('-', ' ')}): {tail.hex()}; Kafka ignores them",
            FRAME + tail,
            finding="bytes-after-compressed-stream",
        )


def _bad_blocks(made: Streams) -> None:
    lz4_block_broken = made.flag("Lz4BlockBroken", budget=SMALL)
    ahead = literals(PLAIN[:10])
    cases = (
        (
            "stored-beyond-maximum",
            "a stored block is one byte longer than the frame's maximum",
            frame(stored(bytes(64 * KIB + 1))),
        ),
        ("stored-largest", "a stored block claims 2 GiB", frame(struct.pack("<I", 0xFFFFFFFF) + PLAIN)),
        (
            "stored-beyond-payload",
            "a stored block is longer than the payload",
            frame(struct.pack("<I", 5000 | LZ4_STORED) + PLAIN),
        ),
        (
            "compressed-beyond-payload",
            "a compressed block is longer than the payload",
            frame(struct.pack("<I", 5000) + literals(PLAIN)),
        ),
        (
            "length-one-too-high",
            "a compressed block's length is one too high",
            frame(struct.pack("<I", len(literals(PLAIN)) + 1) + literals(PLAIN)),
        ),
        (
            "length-one-too-low",
            "a compressed block's length is one too low",
            frame(struct.pack("<I", len(literals(PLAIN)) - 1) + literals(PLAIN)),
        ),
        ("length-big-endian", "a block's length is big-endian", frame(struct.pack(">I", len(PLAIN)) + PLAIN)),
        (
            "copy-offset-beyond",
            "a copy reaches before the start of the block",
            frame(stored(PLAIN[:HALF]), compressed(b"\x14A\x10\x00\x50" + bytes(5))),
        ),
        ("copy-offset-cut", "the block ends within a copy's offset", frame(compressed(b"\x14A\x01"))),
        (
            "copy-length-endless",
            "the block ends within a copy's length",
            frame(compressed(b"\x1fA\x01\x00" + b"\xff" * 20)),
        ),
        ("ends-in-copy", "the block ends in a copy, not in literals", frame(compressed(b"\x14A\x01\x00"))),
        ("literals-cut", "the block's last literals are truncated", frame(compressed(ahead[:-3]))),
        ("literal-length-cut", "the block ends within a literal's length", frame(compressed(b"\xf0"))),
    )
    for slug, what, stream in cases:
        lz4_block_broken.invalid(f"block-{slug}", what, stream)

    lz4_block_broken.invalid(
        "block-copy-offset-zero",
        "a copy has offset 0; Kafka's library accepts it, but the output is not a record",
        frame(compressed(b"\x14A\x00\x00\x50" + bytes(5))),
        finding="record-length-negative",
    )


def _checksums(made: Streams) -> None:
    lz4_checksum_wrong = made.flag("Lz4ChecksumWrong", budget=SMALL)
    halves = (PLAIN[:HALF], PLAIN[HALF:])
    right = struct.pack("<I", xxh32_intdigest(halves[0]))
    wrong = struct.pack("<I", xxh32_intdigest(halves[1]) ^ 1)
    cases = (
        (
            "block-checksum-second",
            "the second block's checksum is wrong",
            frame(stored(halves[0]) + right, stored(halves[1]) + wrong, flags=FLAGS | 0x10),
        ),
        (
            "block-checksum-missing",
            "the frame declares block checksums, but has none",
            frame(stored(PLAIN), flags=FLAGS | 0x10),
        ),
        (
            "block-checksum-cut",
            "the payload ends within a block's checksum",
            frame(stored(PLAIN) + right[:2], flags=FLAGS | 0x10, end=b""),
        ),
    )
    for slug, summary, stream in cases:
        lz4_checksum_wrong.invalid(slug, summary, stream)
    lenient = (
        ("content-size-zero", "the frame claims a content of 0 bytes", lz4_frame(PLAIN, content_size=0)),
        (
            "content-size-largest",
            "the frame claims a content of 2^64 - 1 bytes",
            lz4_frame(PLAIN, content_size=2**64 - 1),
        ),
        (
            "content-size-one-too-low",
            "the frame claims one byte less than it has",
            lz4_frame(PLAIN, content_size=len(PLAIN) - 1),
        ),
        ("content-checksum-zero", "the content's checksum is 0", lz4_frame(PLAIN, content_checksum=0)),
    )
    for slug, summary, stream in lenient:
        lz4_checksum_wrong.acceptable(
            slug, f"{summary}; Kafka does not check it", stream, finding="compressed-content-mismatch"
        )


def _cuts(made: Streams) -> None:
    lz4_cut = made.flag("Lz4Cut", finding="decompression-failed")
    sized = lz4_frame(PLAIN, content_size=len(PLAIN))
    cases = (
        ("behind-magic", "after the magic", FRAME[:4]),
        ("in-magic", "within the magic", FRAME[:3]),
        ("behind-flags", "after the flags", FRAME[:5]),
        ("before-header-checksum", "before the header's checksum", FRAME[:6]),
        ("in-content-size", "within the content's size", sized[:10]),
        ("behind-header", "after the header", FRAME[:BLOCKS_AT]),
        ("behind-block-length", "after a block's length", FRAME[: BLOCKS_AT + 4]),
        ("in-block", "within a block", FRAME[: BLOCKS_AT + 14]),
        (
            "before-second-block",
            "before the second block",
            lz4_frame(PLAIN[:HALF], PLAIN[HALF:])[: BLOCKS_AT + 4 + HALF],
        ),
        ("in-end-mark", "within the end mark", FRAME[:-2]),
    )
    for slug, where, stream in cases:
        lz4_cut.invalid(f"cut-{slug}", f"the frame ends {where}", stream)
    lz4_cut.acceptable(
        "cut-before-content-checksum",
        "the frame declares a content checksum, but ends before it",
        lz4_frame(PLAIN, content_checksum=True)[:-4],
    )


def _small_batches(made: Streams) -> None:
    batches = [
        batch(
            Record(value=b"%d" % index),
            codec="lz4",
            payload=frame(stored(Record(value=b"%d" % index).encode()), block_size=0x70),
            base_offset=index,
        )
        for index in range(100)
    ]
    made.flag("Lz4BufferPerBatch").valid(
        "hundred-small-batches",
        "a hundred batches of one record, each in a frame that allows blocks of 4 MiB",
        *batches,
        requirements=["RB-LZ4-1", "RB-CODEC-7"],
        budget={"cpu_ms": 2000, "memory_bytes": 64 * KIB * KIB},
    )
