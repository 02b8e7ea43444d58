"""The texts of the codec libraries' errors that kfuzz looks at are those of the versions that are installed.

A new version of a library with other texts fails here and shows the text that it has now, for ``records/codecs`` to
learn. The text of zlib without memory is asked for in ``tests/memory``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
import zstandard

from kfuzz.records.codecs import decompress, zstd

LIMIT_BYTES = 1 << 20
RANDOM = random.Random(1)
CONTENTS = {
    "one run": bytes(1000),
    "compressible": b"value of a record " * 50,
    "incompressible": RANDOM.randbytes(1000),
    "many blocks": b"".join(b"%d" % i for i in range(60_000)),
    "many incompressible blocks": RANDOM.randbytes(300_000),
}


def error_of(frame: bytes, room: int) -> str:
    """The error of zstandard where there is room for so many bytes; empty where there is none."""
    try:
        zstandard.ZstdDecompressor().decompress(frame, max_output_size=room)
    except zstandard.ZstdError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("checksum", [False, True])
def test_a_whole_zstd_frame_without_a_content_size_is_over_the_limit_and_never_broken(
    name: str, checksum: bool
) -> None:
    content = CONTENTS[name]
    frame = zstandard.ZstdCompressor(write_content_size=False, write_checksum=checksum).compress(content)
    for room in (1, len(content) // 2, len(content) - 1):
        found = decompress("zstd", frame, room)
        assert found.ended == "limit", f"zstandard {zstandard.__version__} now says: {error_of(frame, room)!r}"
    assert decompress("zstd", frame, len(content)) == (content, len(frame), "whole", "")


def zstd_faults() -> dict[str, bytes]:
    """Frames that are broken, each in its own way."""
    content = CONTENTS["compressible"]
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(content)
    plain = zstandard.ZstdCompressor(write_content_size=False).compress(CONTENTS["incompressible"])
    raw = frame.index(b"value")
    return {
        "not a frame": b"\x00" + frame[1:],
        "checksum": frame[:-1] + bytes([frame[-1] ^ 1]),
        "literals": frame[: raw - 1] + b"\xff" + frame[raw:],
        "reserved block": plain[:6] + bytes([plain[6] | 6]) + plain[7:],
        "cut": frame[:-6],
    }


@pytest.mark.parametrize("fault", zstd_faults())
def test_a_broken_zstd_frame_is_broken_and_never_over_the_limit(fault: str) -> None:
    frame = zstd_faults()[fault]
    found = decompress("zstd", frame, LIMIT_BYTES)
    assert found.ended == "broken", f"zstandard {zstandard.__version__} now says: {error_of(frame, LIMIT_BYTES)!r}"
    assert found.reason


def test_a_text_of_zstd_that_kfuzz_does_not_know_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        def decompress(self, *_: object, **__: object) -> bytes:
            raise zstandard.ZstdError("no place is left")

        stream_reader = decompress

    monkeypatch.setattr(zstd._contexts, "decompressor", Other())
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(CONTENTS["one run"])
    assert decompress("zstd", frame, 500).ended == "broken"


@pytest.mark.skipif(sys.platform != "linux", reason="the limit counts from what /proc tells")
def test_zstd_without_memory_for_its_window_says_nothing_about_the_frame() -> None:
    """Its window is the library's own, beyond the interpreter's allocators and the tests that let those fail."""
    program = """
import random, resource
import zstandard
from kfuzz.records.codecs import decompress

MIB = 1 << 20
window = zstandard.ZstdCompressionParameters(window_log=23, write_content_size=False)
frame = zstandard.ZstdCompressor(compression_params=window).compress(random.Random(1).randbytes(9 * MIB))
with open("/proc/self/statm") as pages:
    size = int(pages.read().split()[0]) * resource.getpagesize()
for more in range(0, 40):
    resource.setrlimit(resource.RLIMIT_AS, (size + more * MIB, resource.RLIM_INFINITY))
    try:
        print(decompress("zstd", frame, 10 * MIB).ended)
    except MemoryError as error:
        print("memory", error)
"""
    # Memory that is let go goes back to the system at once, so that it does not serve again.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert said[0].startswith("memory")
    assert said[-1] == "whole"
    assert {line.split()[0] for line in said} == {"memory", "whole"}
    assert "memory zstd does not have enough memory to decompress" in said
