"""Compressed payloads of each codec: well-formed, unusual, and broken."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kfuzz.kafka import CODECS
from kfuzz.vectors.recipes.making.builder import Raw, Record, batch
from kfuzz.vectors.recipes.making.containers import (
    XERIAL_MAGIC,
    ZSTD_MAGIC,
    gzip_member,
    lz4_frame,
    packed,
    raw_snappy,
    stored,
    xerial,
    zstd_frame,
)
from kfuzz.vectors.recipes.theme import SMALL, Json, Theme

COMPRESSED = CODECS[1:]
RECORDS = (Record(), Record(offset_delta=1, value=b"second"), Record(offset_delta=2, value=None))
PLAIN = b"".join(record.encode() for record in RECORDS)
HALF = len(PLAIN) // 2
JUNK = b"\xde\xad\xbe\xef"


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/codec.json``."""
    made = Streams("records/v2/codec", "The compressed payload of a batch, in the forms that each codec allows.")
    _every_codec(made)
    _gzip(made.of("gzip"))
    _snappy(made.of("snappy"))
    _lz4(made.of("lz4"))
    _zstd(made.of("zstd"))
    return made


@dataclass(slots=True)
class Streams(Theme):
    """A theme of compressed payloads. Instead of a batch, a vector may give the payload: a stream of ``codec``.

    Such a batch has ``records``, by default ``RECORDS``. A vector cites the codec's requirement. If it is invalid, it
    also cites ``RB-CODEC-2``, and the decompression fails.
    """

    codec: str = ""

    def of(self, codec: str) -> Streams:
        """The same theme, for streams of another codec."""
        return replace(self, codec=codec)

    def _records(self, verdict: str, slug: str, summary: str, *raws: Raw | bytes, **options: Any) -> None:
        usual: Json = {"requirements": [f"RB-{self.codec.upper()}-1"]}
        if verdict == "invalid":
            usual["requirements"].append("RB-CODEC-2")
            usual["finding"] = "decompression-failed"
        options = usual | self.options | options
        records = options.pop("records", RECORDS)
        batches = (one if isinstance(one, Raw) else holding(self.codec, one, records) for one in raws)
        Theme._records(self, verdict, slug, summary, *batches, **options)


def holding(codec: str, stream: bytes, records: Sequence[Record] = RECORDS) -> Raw:
    """A batch of ``records`` whose compressed payload is ``stream``."""
    return batch(*records, codec=codec, payload=stream)


def _every_codec(made: Theme) -> None:
    stream_broken = made.flag("StreamBroken", requirements=["RB-CODEC-2"])
    many = [Record(offset_delta=index, value=b"value %d " % index * 20) for index in range(50)]
    for codec in COMPRESSED:
        own = f"RB-{codec.upper()}-1"
        made.valid(
            codec,
            f"50 records, compressed by the usual library for {codec}",
            batch(
                *many,
                codec=codec,
                payload=packed(codec, b"".join(record.encode() for record in many)),
                by_content=True,
            ),
            requirements=["RB-CODEC-1", "RB-CODEC-2", "RB-CODEC-3", "RB-CODEC-4", "RB-CODEC-6", own],
        )
        made.valid(
            f"{codec}-stored",
            f"the {codec} stream holds the records uncompressed",
            holding(codec, stored(codec, PLAIN)),
            requirements=["RB-CODEC-4", own],
        )
        stream_broken.invalid(
            f"{codec}-empty",
            f"the {codec} batch has the record count 3, but no payload",
            holding(codec, b""),
            finding="record-count-too-high" if codec == "zstd" else "decompression-failed",
        )
        stream_broken.invalid(
            f"{codec}-garbage",
            f"the payload of the {codec} batch is not a stream of this codec",
            holding(codec, bytes(range(0x30, 0x60))),
        )
        stream_broken.invalid(
            f"{codec}-cut",
            f"the {codec} stream is truncated in the middle",
            holding(codec, stored(codec, PLAIN)[:-HALF]),
        )
    _no_records(made)
    _mislabelled(made)


def _no_records(made: Theme) -> None:
    empty_compressed_batch = made.flag("EmptyCompressedBatch", requirements=["RB-CODEC-5", "RB-COUNT-3"])
    for codec in COMPRESSED:
        empty_compressed_batch.valid(
            f"{codec}-no-records",
            f"the {codec} stream is empty, and the record count is 0; batches without records may be compressed",
            holding(codec, stored(codec, b""), ()),
        )
        # Kafka opens the stream even if the count is 0. Opening a zstd stream accepts any bytes.
        lazy = codec == "zstd"
        empty_compressed_batch.acceptable(
            f"{codec}-no-records-no-payload",
            f"the attributes name {codec}, the record count is 0, and there is no payload",
            holding(codec, b"", ()),
            finding=None if lazy else "decompression-failed",
        )
        add = made.acceptable if lazy else made.invalid
        add(
            f"{codec}-no-records-garbage",
            f"the record count is 0, and the payload is not a stream of {codec}",
            holding(codec, b"garbage!", ()),
            requirements=["RB-CODEC-2", "RB-COUNT-3"],
            flags=["EmptyCompressedBatch"],
            finding="payload-without-records" if lazy else "decompression-failed",
        )


def _mislabelled(made: Theme) -> None:
    codec_mislabelled = made.flag("CodecMislabelled", finding="record-length-negative")
    for named, real in (("gzip", "zstd"), ("snappy", "gzip"), ("lz4", "snappy"), ("zstd", "lz4")):
        codec_mislabelled.invalid(
            f"{named}-is-{real}",
            f"the attributes name {named}, but the payload is a stream of {real}",
            holding(named, stored(real, PLAIN)),
            requirements=["RB-CODEC-1", "RB-CODEC-2"],
            finding="decompression-failed",
        )
    codec_mislabelled.invalid(
        "none-is-gzip",
        "the attributes name no codec, but the payload is a gzip stream",
        holding("none", stored("gzip", PLAIN)),
        requirements=["RB-CODEC-1"],
    )
    codec_mislabelled.invalid(
        "gzip-in-gzip",
        "the records are compressed twice; compression must not be nested",
        holding("gzip", stored("gzip", stored("gzip", PLAIN))),
        requirements=["RB-CODEC-6"],
    )


def _gzip(made: Streams) -> None:
    extra = struct.pack("<H", 4) + b"ABCD"
    headers = (
        ("name", 0x08, b"records\x00", "a file name"),
        ("comment", 0x10, b"by hand\x00", "a comment"),
        ("extra", 0x04, extra, "an extra field"),
        ("all-fields", 0x1C, extra + b"records\x00" + b"by hand\x00", "an extra field, a file name and a comment"),
    )
    for slug, flags, fields, what in headers:
        made.valid(f"gzip-header-{slug}", f"the gzip header has {what}", gzip_member(PLAIN, flags=flags, fields=fields))
    made.valid(
        "gzip-two-members",
        "two gzip members; the first one ends in the middle of a record",
        gzip_member(PLAIN[:HALF]) + gzip_member(PLAIN[HALF:]),
    )
    made.valid(
        "gzip-empty-member-first",
        "an empty gzip member precedes the one with the records",
        gzip_member(b"") + gzip_member(PLAIN),
    )
    for slug, tail in (("zeros", bytes(16)), ("garbage", JUNK * 8), ("one-byte", b"\x00")):
        made.acceptable(
            f"gzip-then-{slug}",
            f"{len(tail)} bytes follow the gzip stream; Kafka ignores them",
            gzip_member(PLAIN) + tail,
            flags=["BytesAfterStream"],
            finding="bytes-after-compressed-stream",
        )
    member = gzip_member(PLAIN)
    broken = (
        ("crc-wrong", "the gzip trailer's CRC is wrong", gzip_member(PLAIN, crc=0)),
        ("size-wrong", "the gzip trailer's size is wrong", gzip_member(PLAIN, size=len(PLAIN) + 1)),
        ("no-trailer", "the gzip stream has no trailer", member[:-8]),
        ("trailer-cut", "the gzip trailer lacks its last byte", member[:-1]),
        ("header-cut", "the gzip header lacks its last byte", member[:9]),
        ("method", "the gzip header names compression method 7", gzip_member(PLAIN, method=7)),
        ("header-crc-wrong", "the gzip header's own CRC is wrong", gzip_member(PLAIN, flags=2, fields=b"\x00\x00")),
        (
            "deflate-damaged",
            "the first deflate block is of the reserved type",
            gzip_member(PLAIN, deflate=b"\x07" + JUNK),
        ),
        (
            "stored-length-damaged",
            "a stored block's length does not match its complement",
            member[:13] + b"\x00" + member[14:],
        ),
    )
    for slug, summary, stream in broken:
        made.invalid(f"gzip-{slug}", summary, stream, flags=["StreamBroken"])


def _snappy(made: Streams) -> None:
    bytes_after_stream = made.flag("BytesAfterStream", requirements=["RB-SNAPPY-1", "RB-CODEC-2"])
    snappy_framing = made.flag("SnappyFraming")
    valid = (
        (
            "xerial-two-blocks",
            "two blocks, split in the middle of a record",
            xerial(raw_snappy(PLAIN[:HALF]), raw_snappy(PLAIN[HALF:])),
        ),
        (
            "xerial-many-blocks",
            "each block holds a single byte",
            xerial(*(raw_snappy(PLAIN[at : at + 1]) for at in range(len(PLAIN)))),
        ),
        (
            "xerial-empty-block",
            "an empty block between two others",
            xerial(raw_snappy(PLAIN[:HALF]), raw_snappy(b""), raw_snappy(PLAIN[HALF:])),
        ),
        ("raw", "a raw snappy block without xerial framing", raw_snappy(PLAIN)),
    )
    for slug, summary, stream in valid:
        snappy_framing.valid(f"snappy-{slug}", summary, stream)
    snappy_framing.acceptable(
        "snappy-xerial-twice",
        "two xerial streams, each with its own header; Kafka reads both",
        xerial(raw_snappy(PLAIN[:HALF])) + xerial(raw_snappy(PLAIN[HALF:])),
    )
    snappy_framing.acceptable(
        "snappy-xerial-later-version",
        "the xerial header names version 2, compatible with version 1",
        xerial(raw_snappy(PLAIN), versions=struct.pack(">ii", 2, 1)),
    )
    for slug, version in (("zero", 0), ("negative", -1)):
        snappy_framing.acceptable(
            f"snappy-xerial-version-{slug}",
            f"the xerial header names version {version}, which does not exist; Kafka does not check",
            xerial(raw_snappy(PLAIN), versions=struct.pack(">ii", version, version)),
        )
    snappy_framing.acceptable(
        "snappy-xerial-version-little-endian",
        "the xerial header's versions are little-endian, as a broker once wrote them; Kafka does not check",
        xerial(raw_snappy(PLAIN), versions=struct.pack("<ii", 1, 1)),
    )
    stream = xerial(raw_snappy(PLAIN))
    huge = (
        (
            "chunk-length-largest",
            "a chunk's length is INT32_MAX",
            XERIAL_MAGIC + stream[8:16] + b"\x7f\xff\xff\xff" + stream[20:],
        ),
        (
            "chunk-length-negative",
            "a chunk's length is -1",
            XERIAL_MAGIC + stream[8:16] + b"\xff\xff\xff\xff" + stream[20:],
        ),
        (
            "block-length-largest",
            "a block claims an uncompressed length of 2^32 - 1",
            xerial(raw_snappy(PLAIN, claimed=2**32 - 1)),
        ),
        (
            "block-length-2gib",
            "a block claims an uncompressed length of 2^31 - 1",
            xerial(raw_snappy(PLAIN, claimed=2**31 - 1)),
        ),
        (
            "raw-length-2gib",
            "a raw block claims an uncompressed length of 2^31 - 1",
            raw_snappy(PLAIN, claimed=2**31 - 1),
        ),
    )
    for slug, summary, data in huge:
        made.flag("SnappyLengthHuge").invalid(
            f"snappy-{slug}", summary, data, requirements=["RB-SNAPPY-1", "RB-CODEC-2", "RB-CODEC-7"], budget=SMALL
        )
    broken = (
        ("copy-before-start", "a copy reaches before the start of the block", xerial(b"\x08\x00A\x0d\x09")),
        (
            "block-length-wrong",
            "a block claims one byte more than it holds",
            xerial(raw_snappy(PLAIN, claimed=len(PLAIN) + 1)),
        ),
        ("chunk-cut", "the last chunk lacks a byte", stream[:-1]),
        (
            "frame-format",
            "the payload uses the standard snappy framing format; Kafka does not",
            b"\xff\x06\x00\x00sNaPpY" + JUNK,
        ),
    )
    for slug, summary, data in broken:
        made.invalid(f"snappy-{slug}", summary, data, flags=["StreamBroken"])
    bytes_after_stream.acceptable(
        "snappy-then-two-bytes",
        "two bytes follow the last chunk, too few for another length; Kafka ignores them",
        stream + b"\x00\x00",
        finding="bytes-after-compressed-stream",
    )
    bytes_after_stream.invalid(
        "snappy-then-garbage",
        "the last chunk is followed by a length of 4 and four garbage bytes",
        stream + b"\x00\x00\x00\x04" + JUNK,
    )


def _lz4(made: Streams) -> None:
    valid = (
        ("two-blocks", "has two blocks, split in the middle of a record", lz4_frame(PLAIN[:HALF], PLAIN[HALF:])),
        ("content-checksum", "has a content checksum", lz4_frame(PLAIN, content_checksum=True)),
        ("block-checksums", "has block checksums", lz4_frame(PLAIN[:HALF], PLAIN[HALF:], block_checksums=True)),
        ("content-size", "has the content's size in the header", lz4_frame(PLAIN, content_size=len(PLAIN))),
    )
    for slug, summary, stream in valid:
        made.valid(f"lz4-{slug}", f"an lz4 frame {summary}", stream)
    lenient = (
        ("content-checksum-wrong", "the frame's content checksum is wrong", lz4_frame(PLAIN, content_checksum=1)),
        ("content-size-wrong", "the frame's content size is wrong", lz4_frame(PLAIN, content_size=7)),
    )
    for slug, summary, stream in lenient:
        made.flag("Lz4ChecksumUnchecked").acceptable(
            f"lz4-{slug}", summary, stream, finding="compressed-content-mismatch"
        )
    for slug, tail in (("zeros", bytes(8)), ("garbage", JUNK)):
        made.acceptable(
            f"lz4-then-{slug}",
            f"{len(tail)} bytes follow the lz4 frame; Kafka ignores them",
            lz4_frame(PLAIN) + tail,
            flags=["BytesAfterStream"],
            finding="bytes-after-compressed-stream",
        )
    frame = lz4_frame(PLAIN)
    others = (
        (
            "two-frames",
            "two lz4 frames; Kafka stops after the first",
            lz4_frame(PLAIN[:HALF]) + lz4_frame(PLAIN[HALF:]),
            "record-length-exceeds-payload",
        ),
        (
            "skippable-frame-first",
            "a skippable frame precedes the lz4 frame",
            struct.pack("<II", 0x184D2A50, 4) + JUNK + frame,
            "decompression-failed",
        ),
    )
    for slug, summary, stream, finding in others:
        made.flag("Lz4Frames").acceptable(f"lz4-{slug}", summary, stream, finding=finding)
    broken = (
        (
            "header-checksum-wrong",
            "the frame header's checksum is wrong",
            lz4_frame(PLAIN, header_checksum=frame[6] ^ 1),
        ),
        ("block-checksum-wrong", "a block's checksum is wrong", lz4_frame(PLAIN, block_checksums=1)),
        ("no-end-mark", "the lz4 frame has no end mark", lz4_frame(PLAIN, end_mark=False)),
        ("version-2", "the lz4 frame has version 2", lz4_frame(PLAIN, version=2)),
        ("header-cut", "the payload ends within the frame's header", frame[:5]),
        ("block-length-cut", "the payload ends within a block's length", frame[:9]),
        (
            "block-too-large",
            "a block is larger than the frame's maximum",
            frame[:7] + struct.pack("<I", 0x7FFFFFFF) + frame[11:],
        ),
    )
    for slug, summary, stream in broken:
        made.invalid(f"lz4-{slug}", summary, stream, flags=["StreamBroken"], budget=SMALL)
    blocks = (
        ("copy-before-start", "copies from before the start of the content", b"\x10A\xff\xff\x50" + bytes(5)),
        ("literals-beyond-end", "claims more literals than the block has", b"\xf0\x20" + PLAIN[:20]),
        ("length-endless", "holds a literal length that never ends", b"\xf0" + b"\xff" * 30),
        (
            "output-beyond-maximum",
            "grows beyond the frame's maximum block size",
            b"\x1fA\x01\x00" + b"\xff" * 300 + b"\x00\x50" + bytes(5),
        ),
    )
    for slug, what, block in blocks:
        made.flag("Lz4BlockDamaged").invalid(
            f"lz4-block-{slug}",
            f"a compressed block {what}",
            frame[:7] + struct.pack("<I", len(block)) + block + bytes(4),
            budget=SMALL,
        )


def _zstd(made: Streams) -> None:
    skippable = struct.pack("<II", 0x184D2A50, 4) + JUNK
    frame = zstd_frame(PLAIN)
    valid = (
        (
            "two-frames",
            "two zstd frames, split in the middle of a record",
            zstd_frame(PLAIN[:HALF]) + zstd_frame(PLAIN[HALF:]),
        ),
        (
            "content-size",
            "a zstd frame has the content's size in its header",
            zstd_frame(PLAIN, content_size=len(PLAIN)),
        ),
        ("empty-frame-first", "an empty zstd frame precedes the one with the records", zstd_frame(b"") + frame),
        ("skippable-frame-first", "a skippable frame precedes the zstd frame", skippable + frame),
        ("skippable-frame-last", "a skippable frame follows the zstd frame", frame + skippable),
    )
    for slug, summary, stream in valid:
        made.valid(f"zstd-{slug}", summary, stream)
    for slug, tail in (("zeros", bytes(8)), ("garbage", JUNK)):
        made.invalid(
            f"zstd-then-{slug}",
            f"{len(tail)} bytes follow the zstd frame; Kafka refuses them",
            frame + tail,
            flags=["BytesAfterStream"],
        )
    broken = (
        ("checksum-wrong", "the content checksum is wrong", zstd_frame(PLAIN, checksum=1)),
        ("no-last-block", "no block is marked as the last one", zstd_frame(PLAIN, last=False)),
        ("reserved-bit", "the frame header's reserved bit is set", ZSTD_MAGIC + b"\x08" + frame[5:]),
        ("block-reserved-type", "a block is of the reserved type", ZSTD_MAGIC + b"\x00\x38\x0f\x00\x00" + JUNK),
        (
            "content-size-wrong",
            "the content size in the header is one too high",
            zstd_frame(PLAIN, content_size=len(PLAIN) + 1),
        ),
        (
            "dictionary",
            "the frame requires a dictionary, which Kafka does not have",
            ZSTD_MAGIC + b"\x01\x38\x07" + frame[6:],
        ),
    )
    for slug, summary, stream in broken:
        made.flag("StreamBroken").invalid(f"zstd-{slug}", summary, stream, budget=SMALL)
    made.flag("ZstdWindowHuge").invalid(
        "zstd-window-huge", "the frame requests a window of 2 TiB", ZSTD_MAGIC + b"\x00\xf8" + frame[6:], budget=SMALL
    )
