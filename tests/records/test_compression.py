"""Codec containers: bounds that hold, other writers' streams that read, broken ones that say so."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import subprocess
import sys
import zlib

import lz4.block
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from kfuzz.kafka import CODECS, Codec
from kfuzz.records.codecs import compress, decompress
from kfuzz.wire.io.unpack import unpacked

COMPRESSING: tuple[Codec, ...] = CODECS[1:]
TEXT = b"the same words, the same words, the same words " * 4_000
NOISE = random.Random(1).randbytes(70_000)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.builds(bytes.__mul__, st.binary(max_size=100), st.integers(1, 2000)), magic=st.sampled_from((0, 1, 2)))
@example(data=NOISE, magic=0)
@example(data=NOISE, magic=1)
@example(data=NOISE, magic=2)
def test_every_codec_gives_back_the_bytes_and_its_bound_is_exact(codec: Codec, data: bytes, magic: int) -> None:
    packed = compress(codec, data, magic=magic)
    assert decompress(codec, packed, len(data) or 1, magic=magic) == (data, len(packed), "whole", "")
    if len(data) > 1 and codec != "none":
        assert decompress(codec, packed, len(data) - 1, magic=magic).ended == "limit"


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_cut_of_a_stream_ends_it_broken_or_short_and_never_raises(codec: Codec) -> None:
    packed = compress(codec, TEXT[:500] + NOISE[:500])
    for n in range(len(packed)):
        out = decompress(codec, packed[:n], 1 << 20)
        assert out.ended == "broken" or len(out.data) < 1000


@pytest.mark.parametrize("codec", COMPRESSING)
def test_no_flipped_byte_raises(codec: Codec) -> None:
    packed = compress(codec, TEXT[:300])
    for at in range(len(packed)):
        for flip in (1, 0x80, 0xFF):
            broken = bytearray(packed)
            broken[at] ^= flip
            assert decompress(codec, bytes(broken), 1 << 20).ended in ("whole", "broken", "limit")


BOMB = """
import resource, sys, zlib, zstandard, lz4.frame, snappy, struct
from kfuzz.records.codecs import decompress
size = 1 << 28
codec = sys.argv[1]
if codec == "gzip":
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join(deflater.compress(bytes(1 << 20)) for _ in range(size >> 20)) + deflater.flush()
elif codec == "zstd":
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    data = b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()
elif codec == "lz4":
    frame = lz4.frame.compress(bytes(1 << 16), block_size=4, block_linked=False, store_size=False)
    data = frame[:7] + frame[7:-4] * (size >> 16) + frame[-4:]
else:
    block = snappy.compress(bytes(1 << 20))
    data = bytes.fromhex("82534e415050590000000001 00000001") + (struct.pack(">i", len(block)) + block) * 200
decompress(codec, data[:1000], 1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = decompress(codec, data, 8 << 20)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(out.ended, len(out.data) <= 8 << 20, (after - before) << 10)
"""


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_stops_at_the_bound_having_allocated_no_more_than_a_small_multiple_of_it(codec: Codec) -> None:
    done = subprocess.run([sys.executable, "-c", BOMB, codec], capture_output=True, text=True, check=True)
    ended, bounded, grown_bytes = done.stdout.split()
    assert (ended, bounded) == ("limit", "True")
    assert int(grown_bytes) < 4 * (8 << 20)


def test_a_snappy_length_that_the_block_cannot_hold_is_refused_before_it_is_allocated() -> None:
    out = decompress("snappy", bytes.fromhex("ffffffff0f") + b"\x00x", 2**31 - 2)
    assert out.ended == "broken"
    assert "claims to hold 4294967295" in out.reason


def test_raw_snappy_reads_as_well_as_the_xerial_framing() -> None:
    assert decompress("snappy", snappy.compress(TEXT), len(TEXT)).data == TEXT


@pytest.mark.parametrize("length_bytes", [1, 2, 3, 4])
@pytest.mark.parametrize("content", [b"a", b"ab", b"abcd"])
def test_a_raw_snappy_block_may_end_in_a_literal_whose_length_has_bytes_of_its_own(
    length_bytes: int, content: bytes
) -> None:
    # The tag 60 to 63 says how many bytes hold the length less one. cramjam alone refuses the shortest of these.
    literal = bytes([59 + length_bytes << 2]) + (len(content) - 1).to_bytes(length_bytes, "little")
    block = bytes([len(content)]) + literal + content
    assert decompress("snappy", block, 100).data == content
    after = bytes([1 + len(content), 0]) + b"x" + literal + content
    assert decompress("snappy", after, 100).data == b"x" + content
    # One byte more than the literal has, one byte less, and a literal that says more than there is.
    assert decompress("snappy", block + b"?", 100).ended == "broken"
    assert decompress("snappy", block[:-1], 100).ended == "broken"
    wrong = bytes([len(content) + 1]) + literal + content
    assert decompress("snappy", wrong, 100).ended == "broken"


def test_concatenated_streams_read_through_but_for_lz4() -> None:
    for codec in ("gzip", "snappy", "zstd"):
        packed = compress(codec, b"one") + compress(codec, b"two")
        assert decompress(codec, packed, 100) == (b"onetwo", len(packed), "whole", "")
    frame = compress("lz4", b"one")
    out = decompress("lz4", frame + compress("lz4", b"two"), 100)
    assert (out.data, out.consumed, out.ended) == (b"one", len(frame), "whole")


def test_bytes_after_a_gzip_stream_are_left_and_reported() -> None:
    packed = gzip.compress(b"x", mtime=0)
    for tail in (b"\0", b"padding of no kind", bytes(100)):
        out = decompress("gzip", packed + tail, 100)
        assert (out.data, out.consumed, out.ended) == (b"x", len(packed), "whole")


@pytest.mark.parametrize("after", [18, 19])
def test_a_gzip_member_is_looked_for_where_more_than_26_bytes_are_left_with_the_trailer(after: int) -> None:
    """The beginning of a member follows, cut: ``java.util.zip.GZIPInputStream`` fails where it looks."""
    packed = gzip.compress(b"x", mtime=0)
    out = decompress("gzip", packed + gzip.compress(NOISE, mtime=0)[:after], 1 << 20)
    assert out.ended == ("whole" if after + 8 <= 26 else "broken")
    assert out.data.startswith(b"x")


def test_gzip_header_fields_are_stepped_over_and_their_checksum_checked() -> None:
    body = zlib.compressobj(wbits=-15)
    deflated = body.compress(b"x") + body.flush() + struct.pack("<II", zlib.crc32(b"x"), 1)
    head = bytes.fromhex("1f8b081e00000000 0003") + b"\x03\x00abc" + b"name\0" + b"comment\0"
    good = head + struct.pack("<H", zlib.crc32(head) & 0xFFFF) + deflated
    assert decompress("gzip", good, 10).data == b"x"
    bad = head + struct.pack("<H", ~zlib.crc32(head) & 0xFFFF) + deflated
    assert decompress("gzip", bad, 10).reason == "a gzip header's checksum is wrong"


def test_the_lz4_header_checksum_counts_except_in_magic_0() -> None:
    frame = bytearray(compress("lz4", b"x"))
    frame[6] ^= 1
    assert decompress("lz4", bytes(frame), 10, magic=1).reason == "the lz4 header checksum is wrong"
    assert decompress("lz4", bytes(frame), 10, magic=0).data == b"x"


def test_lz4_block_checksums_count_and_content_checksums_do_not() -> None:
    frame = bytearray(lz4.frame.compress(TEXT, block_linked=False, block_checksum=True, content_checksum=True))
    assert decompress("lz4", bytes(frame), len(TEXT)).data == TEXT
    frame[-1] ^= 1
    out = decompress("lz4", bytes(frame), len(TEXT))
    assert (out.data, out.ended, out.reason) == (TEXT, "whole", "the lz4 content checksum is wrong")
    frame[-9] ^= 1
    assert decompress("lz4", bytes(frame), len(TEXT)).reason == "an lz4 block checksum is wrong"


def test_an_lz4_block_larger_than_its_header_allows_is_refused_though_its_bytes_are_there() -> None:
    # Stored, not compressed: what it takes is then what it holds.
    content = bytes(random.Random(1).randbytes(1 << 16))
    frame = bytearray(lz4.frame.compress(content, block_size=4, block_linked=False, store_size=False))
    assert frame[7:11] == struct.pack("<I", 1 << 31 | 1 << 16)
    assert decompress("lz4", bytes(frame), 1 << 20).data == content
    frame[7:11] = struct.pack("<I", 1 << 31 | 1 << 16 | 1)
    frame[11:11] = b"x"
    out = decompress("lz4", bytes(frame), 1 << 20)
    assert (out.ended, out.reason) == ("broken", "an lz4 block claims 65537 bytes; at most 65536 are possible")


def test_linked_lz4_blocks_are_refused_as_kafka_does() -> None:
    assert decompress("lz4", lz4.frame.compress(TEXT, block_linked=True), len(TEXT)).ended == "broken"


def test_zstd_frames_without_a_content_size_read() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)
    assert decompress("zstd", packed, len(TEXT)).data == TEXT


def test_a_zstd_window_beyond_what_kafka_allows_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=False)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = packed.compress(TEXT) + packed.flush()
    assert "zstd window" in decompress("zstd", data, len(TEXT)).reason


def zstd_stream(content: bytes, window_log: int) -> bytes:
    """A frame as a stream makes it: a window of its own, whatever the content, and no content size."""
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(content) + stream.flush()


# Random, so that nothing compresses but the second half: a copy of the first, from as far away.
FAR = random.Random(3).randbytes(300_000) * 2


@pytest.mark.parametrize("window_log", [10, 17, 20, 27])
def test_a_zstd_window_larger_than_the_content_changes_nothing(window_log: int) -> None:
    for content in (b"x", TEXT, FAR):
        packed = zstd_stream(content, window_log)
        assert decompress("zstd", packed, len(content)) == (content, len(packed), "whole", "")
        assert decompress("zstd", packed, 64 << 20).data == content
        assert decompress("zstd", packed, len(content) - 1).ended == "limit"
        assert decompress("zstd", packed * 2, 2 * len(content)).data == content * 2


def zstd_blocks(window: int, *blocks: tuple[int, int, bytes], content: int | None = None) -> bytes:
    """A frame. ``window`` is its window descriptor, ``content`` its content size; a block is its type, size, bytes."""
    made = [
        (size << 3 | kind << 1 | (i == len(blocks) - 1)).to_bytes(3, "little") + data
        for i, (kind, size, data) in enumerate(blocks)
    ]
    head = bytes([window]) if content is None else bytes([window]) + content.to_bytes(4, "little")
    return b"\x28\xb5\x2f\xfd" + (b"\x00" if content is None else b"\x80") + head + b"".join(made)


# A window descriptor of 0 means 1 KiB, 8 means 2 KiB, 0x38 128 KiB and 0x40 256 KiB; no block is larger than 128 KiB.
@pytest.mark.parametrize(
    ("window", "size", "is_read"),
    [
        (0, 1024, True),
        (0, 1025, False),
        (8, 2048, True),
        (8, 2049, False),
        (0x38, 1 << 17, True),
        (0x38, (1 << 17) + 1, False),
        (0x40, 1 << 17, True),
        (0x40, (1 << 17) + 1, False),
    ],
)
@pytest.mark.parametrize("is_repeated", [False, True], ids=["raw", "repeated"])
def test_a_zstd_block_larger_than_the_window_is_refused_by_both_paths(
    window: int, size: int, is_read: bool, is_repeated: bool
) -> None:
    """Kafka's reader is a streaming one. The library's other function would read these blocks."""
    frame = zstd_blocks(window, (1, size, b"x") if is_repeated else (0, size, b"x" * size), (0, 1, b"y"))
    out = decompress("zstd", frame, 1 << 20)
    assert (out.ended == "whole") == is_read
    assert unpacked(CODECS.index("zstd"), frame, 1 << 20) in (None, out.data if is_read else None)


@pytest.mark.parametrize(("size", "is_read"), [(16_384, True), (16_385, False)])
def test_a_zstd_frame_whose_content_is_known_to_fit_in_kafkas_buffer_may_have_any_window(
    size: int, is_read: bool
) -> None:
    """Both for a window beyond the limit, and for blocks beyond the window."""
    for window, most in ((0x9C, 1 << 17), (0, 3000)):
        blocks = [min(most, size - at) for at in range(0, size, most)]
        frame = zstd_blocks(window, *((0, block, b"x" * block) for block in blocks), content=size)
        out = decompress("zstd", frame, 1 << 20)
        assert out.ended == ("whole" if is_read else "broken")
        assert out.data == b"x" * size or not is_read
        assert unpacked(CODECS.index("zstd"), frame, 1 << 20) in (None, out.data if is_read else None)


@pytest.mark.parametrize("window_log", [20, 27, None], ids=["1-mib", "128-mib", "single-segment"])
def test_a_cut_zstd_frame_gives_what_stands_before_the_cut_whatever_its_window(window_log: int | None) -> None:
    # A cut shows only where the frame before it ended in the same 128 KiB.
    some = random.Random(4).randbytes(20_000)
    content = (some + bytes(300_000)) * 3
    packed = zstd_stream(content, window_log) if window_log else zstandard.ZstdCompressor().compress(content)
    first = compress("zstd", b"one")
    sizes = []
    for end in (5, 6, 9, 15_000, len(packed) - 1):
        out = decompress("zstd", first + packed[:end], 64 << 20)
        assert out.ended == "whole"
        assert (b"one" + content).startswith(out.data)
        # A bound that holds the content, but not the window.
        assert decompress("zstd", first + packed[:end], len(out.data)) == out
        sizes.append(len(out.data))
    assert sizes[-1] > len(content) // 2


def test_a_broken_gzip_stream_gives_the_same_bytes_whole_and_byte_by_byte() -> None:
    packed = bytearray(compress("gzip", random.Random(2).randbytes(40_000).hex().encode()))
    packed[len(packed) // 2 :] = random.Random(3).randbytes(20_000)
    inflater, expected = zlib.decompressobj(wbits=31), b""
    with contextlib.suppress(zlib.error):
        for byte in packed:
            expected += inflater.decompress(bytes([byte]))
    assert len(expected) > 40_000
    out = decompress("gzip", bytes(packed), 1 << 20)
    assert (out.ended, out.data) == ("broken", expected)
    assert out.reason.startswith("deflate: ")
    # Up to the bound, which is reached first.
    assert decompress("gzip", bytes(packed), 9_000).data == expected[:9_000]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_bytes_before_the_fault_of_a_stream_are_kept(codec: Codec) -> None:
    """Kafka reads a stream piece by piece, and acts on what it has got before it comes to the fault."""
    noise = random.Random(2).randbytes(400_000)
    packed = bytearray(compress(codec, noise))
    packed[len(packed) // 2 :] = b"\xff" * 5_000
    out = decompress(codec, bytes(packed), 1 << 20)
    assert out.ended == "broken"
    assert len(out.data) > 100_000
    assert noise.startswith(out.data[:100_000])


def test_the_bound_keeps_what_fits() -> None:
    assert decompress("gzip", compress("gzip", TEXT), 1_000).data == TEXT[:1_000]


def test_a_block_that_begins_like_a_length_is_a_block() -> None:
    """1267 stands in its first four bytes, which is less than the room that the block may take."""
    frame = bytes.fromhex(
        "04224d1860401a30000000f3040000fc00000000050000000ea7ec68030000ff010000170040000000061a00e0e38a6876"
        "0000000000000000000000000000"
    )
    found = decompress("lz4", frame, 1 << 20, magic=0)
    assert (found.ended, found.consumed) == ("whole", len(frame))
    assert found.data == lz4.block.decompress(frame[11:-4], uncompressed_size=1000)
