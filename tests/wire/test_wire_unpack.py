"""Streams that are decompressed without Python: the containers of ``kfuzz.records.codecs`` say the same of each."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
import zlib
from types import ModuleType

import lz4.frame
import pytest
import zstandard
from conftest import counts
from deflate_streams import ODD, mutants
from zlib_ng import zlib_ng

from kfuzz import records
from kfuzz.kafka import CODECS, Codec
from kfuzz.records import Limits, Record, RecordBatch
from kfuzz.records.codecs import compress, decompress
from kfuzz.records.model import read_batch
from kfuzz.records.read.walk import Walk
from kfuzz.wire.io.unpack import codecs, unpacked
from kfuzz.wire.walk.scan import Scan

LIMIT_BYTES = 1 << 20
TEXT = b"".join(b"line %d of a text that can be made smaller\n" % (i * i) for i in range(5000))
NOISE = random.Random(1).randbytes(70_000)
CONTENTS = (b"x", TEXT[:300], TEXT, NOISE, bytes(200_000))
HERE: tuple[Codec, ...] = ("gzip", "lz4", "zstd")


def number(codec: Codec) -> int:
    return CODECS.index(codec)


def test_the_libraries_are_found() -> None:
    assert [CODECS[found] for found in codecs()] == list(HERE)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("codec", HERE)
def test_payloads_of_kfuzz_are_decompressed_without_python(codec: Codec, content: bytes) -> None:
    assert unpacked(number(codec), compress(codec, content), LIMIT_BYTES) == content


def test_payloads_of_other_writers_are_decompressed_without_python() -> None:
    # As zstd-jni writes it: no content size in the header.
    stream = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    for data in (stream, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)):
        assert unpacked(number("zstd"), data, LIMIT_BYTES) == TEXT
    # As java.util.zip.GZIPOutputStream does: no time, no operating system.
    assert unpacked(number("gzip"), gzip.compress(TEXT, mtime=0), LIMIT_BYTES) == TEXT


@pytest.mark.parametrize("codec", HERE)
def test_nothing_grows_beyond_the_bound(codec: Codec) -> None:
    data = compress(codec, TEXT)
    assert unpacked(number(codec), data, len(TEXT)) == TEXT
    assert unpacked(number(codec), data, len(TEXT) - 1) is None
    assert unpacked(number(codec), data, 1) is None


def odd_streams() -> dict[str, tuple[Codec, bytes]]:
    plain = compress("gzip", TEXT)
    named = plain[:3] + b"\x08" + plain[4:10] + b"name\0" + plain[10:]
    block = lz4.frame.compress(TEXT, content_checksum=True, block_linked=False)
    sized = lz4.frame.compress(TEXT, store_size=True, block_linked=False)
    framed = zstandard.ZstdCompressor().compress(TEXT)
    return {
        "a gzip file name": ("gzip", named),
        "two gzip members": ("gzip", plain + plain),
        "bytes after a gzip stream": ("gzip", plain + b"\0"),
        "a gzip trailer with another size": ("gzip", plain[:-4] + bytes(4)),
        "a cut gzip stream": ("gzip", plain[:-9]),
        "an lz4 content checksum": ("lz4", block),
        "an lz4 content size": ("lz4", sized),
        "two lz4 frames": ("lz4", compress("lz4", TEXT) * 2),
        "an lz4 frame without an end": ("lz4", compress("lz4", TEXT)[:-4]),
        "two zstd frames": ("zstd", framed * 2),
        "a skippable zstd frame": ("zstd", b"\x50\x2a\x4d\x18" + bytes(4) + framed),
        "a cut zstd frame": ("zstd", framed[:-1]),
        "nothing": ("zstd", b""),
    }


@pytest.mark.parametrize("name", odd_streams())
def test_odd_payloads_are_left_to_the_containers(name: str) -> None:
    codec, data = odd_streams()[name]
    assert unpacked(number(codec), data, LIMIT_BYTES) is None


@pytest.mark.parametrize("codec", HERE)
def test_of_broken_streams_the_containers_say_the_same(codec: Codec) -> None:
    rng = random.Random(number(codec))
    whole = 0
    for _ in range(3000):
        content = rng.choice((TEXT[:500], NOISE[:200], TEXT[:70_000], bytes(3000)))
        data = bytearray(compress(codec, content))
        for _ in range(rng.choice((0, 1, 1, 2))):
            at = rng.randrange(min(len(data), 40) if rng.random() < 0.5 else len(data))
            data[at] = rng.randrange(256)
        if codec == "gzip" and rng.random() < 0.5:
            # The trailer of whatever comes out.
            came = decompress(codec, bytes(data), LIMIT_BYTES).data
            data[-8:] = zlib.crc32(came).to_bytes(4, "little") + len(came).to_bytes(4, "little")
        found = unpacked(number(codec), bytes(data), LIMIT_BYTES)
        if found is not None:
            whole += 1
            assert decompress(codec, bytes(data), LIMIT_BYTES) == (found, len(data), "whole", "")
    assert 500 < whole < 3000


# The header of a gzip stream of kfuzz's writer.
GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\x03"


def inflated(library: ModuleType, data: bytes) -> tuple[bytes, bool, int] | None:
    """The output, whether the stream ends, and how many bytes it leaves; None for a refused stream."""
    inflater = library.decompressobj(-zlib.MAX_WBITS)
    try:
        out = inflater.decompress(data, LIMIT_BYTES)
    except library.error:
        return None
    return out, inflater.eof, len(inflater.unused_data)


def member(data: bytes, content: bytes) -> bytes:
    return GZIP_HEADER + data + zlib.crc32(content).to_bytes(4, "little") + len(content).to_bytes(4, "little")


@pytest.mark.parametrize("name", ODD)
def test_odd_deflate_streams_are_refused_where_zlib_refuses_them(name: str) -> None:
    data, is_good = ODD[name]
    found = inflated(zlib, data)
    assert (found is not None and found[1]) == is_good
    assert inflated(zlib_ng, data) == found
    for content in (b"A", b"AA", b"AAAA"):
        expected = content if found is not None and is_good and found[0] == content else None
        assert unpacked(number("gzip"), member(data, content), LIMIT_BYTES) == expected


@pytest.mark.parametrize("count", counts(3_000, 60_000, 300_000))
def test_mutants_of_deflate_streams_are_refused_where_zlib_refuses_them(count: int) -> None:
    good = 0
    for data in mutants(random.Random(7), count):
        found = inflated(zlib, data)
        assert inflated(zlib_ng, data) == found, data.hex()
        whole = found is not None and found[1]
        content = found[0] if found is not None else b""
        expected = content if found is not None and whole and not found[2] else None
        assert unpacked(number("gzip"), member(data, content), LIMIT_BYTES) == expected, data.hex()
        good += whole
    assert count / 4 < good < count * 3 / 4


def test_gzip_is_read_without_zlib_ng_too() -> None:
    code = """
import sys
sys.modules["zlib_ng"] = None
from kfuzz.records.codecs import compress
from kfuzz.wire.io.unpack import codecs, unpacked
print(codecs(), unpacked(1, compress("gzip", bytes(50)), 100) == bytes(50))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[1, 3, 4] True\n"


@pytest.mark.parametrize(
    # zstd is younger than messages of magic 0 and 1.
    ("codec", "magic"),
    [(codec, magic) for codec in CODECS for magic in ((2,) if codec == "zstd" else (0, 1, 2))],
)
def test_a_batch_is_the_same_with_python_and_without(codec: Codec, magic: int) -> None:
    last = 0 if magic < 2 and codec == "none" else 40
    rows = [Record(i, i, b"k%d" % i, TEXT[: 10 * i]) for i in range(last + 1)]
    data = records.encode_batch(RecordBatch(0, last, rows, magic=magic, compression=codec))
    batches = records.decode(data)
    assert [record.value for record in batches[0].records] == [row.value for row in rows]
    # Without a limit of its own the scan leaves every payload to Python.
    scan, verdict = Scan(data, with_rows=True), records.Verdict()
    assert Walk(scan, data, "kafka", Limits(), into=verdict).handle_stop(scan.next())
    assert (read_batch(scan, False), verdict.findings) == (batches[0], [])
    assert list(records.iterate(data)) == batches[0].records
    assert records.check(data) == records.Verdict(1, last + 1, len(data))
    if codec != "none":
        with pytest.raises(records.RecordsError, match="grows beyond the limit"):
            records.decode(data, limits=Limits(decompressed_bytes=20))
