"""Small inputs that hold very many records, headers, batches, messages or elements, or one very large value."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kfuzz.kafka import CODECS
from kfuzz.records.codecs import compress
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.io.cursor import uvarint
from kfuzz.wire.io.layout import CONTROL

MIB: Final = 1 << 20
# A process that only imports kfuzz and pyarrow has 60 MiB.
MEMORY_KIB_MAX: Final = 300 * 1024


def varint(number: int) -> bytes:
    """A zigzag varint."""
    return uvarint(number << 1 ^ number >> 63)


def batch(payload: bytes, count: int, *, codec: str = "none", last_delta: int = 0, attributes: int = 0) -> bytes:
    """A batch of magic 2 with a right CRC around any payload."""
    body = payload if codec == "none" else compress(codec, payload)  # type: ignore[arg-type]
    bits = CODECS.index(codec) | attributes  # type: ignore[arg-type]
    rest = struct.pack(">hiqqqhii", bits, last_delta, 0, 0, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, crc32c(rest)) + rest


def record(key: bytes | None, value: bytes | None, headers: bytes = b"", count: int = 0) -> bytes:
    """A record of magic 2 whose headers are given as bytes."""
    out = b"\0\0\0"
    for part in (key, value):
        out += varint(-1) if part is None else varint(len(part)) + part
    out += varint(count) + headers
    return varint(len(out)) + out


def message(value: bytes, *, attributes: int = 0, offset: int = 0) -> bytes:
    """A message of magic 1."""
    rest = struct.pack(">bbqi", 1, attributes, 0, -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(rest) + 4, zlib.crc32(rest)) + rest


def headers_bomb(codec: str, size: int) -> bytes:
    """One record with ``size`` / 2 headers, each with an empty key and an empty value."""
    return batch(record(None, b"v", bytes(size), size // 2), 1, codec=codec)


def records_bomb(codec: str, size: int, attributes: int = 0) -> bytes:
    """Records of seven bytes, whose offset deltas are all 0."""
    one = record(None, None)
    return batch(one * (size // len(one)), size // len(one), codec=codec, attributes=attributes)


def value_bomb(codec: str, size: int, fill: bytes = b"\0") -> bytes:
    """One record with one large value."""
    return batch(record(b"k", fill * size), 1, codec=codec)


def both_bomb(codec: str, size: int) -> bytes:
    """Records that have sixty headers each."""
    one = record(b"", b"", bytes(120), 60)
    return batch(one * (size // len(one)), size // len(one), codec=codec)


def wrapper_bomb(codec: str, size: int) -> bytes:
    """A wrapper of magic 1 around very many messages."""
    one = message(b"")
    return message(compress(codec, one * (size // len(one))), attributes=CODECS.index(codec))  # type: ignore[arg-type]


class Bomb(NamedTuple):
    """``make`` gives the bytes. ``name`` is the path that they get. ``options`` say what they are, for `show`."""

    name: str
    make: Callable[[], bytes]
    options: tuple[str, ...] = ()


def _metadata(elements: int) -> bytes:
    """MetadataRequest 12: an array of topics, each an id, a null name and no tagged fields."""
    return uvarint(elements + 1) + (bytes(16) + b"\0\0") * elements + b"\1\0\0"


def _tags(count: int) -> bytes:
    """ApiVersionsRequest 3 with tagged fields that nobody knows."""
    return b"\2k\2v" + uvarint(count) + b"".join(uvarint(tag) + b"\0" for tag in range(count))


def _fetched(partitions: int) -> bytes:
    """FetchResponse 12 whose partitions each have a batch without records."""
    one = struct.pack(">ihqqq", 0, 0, 0, 0, 0) + b"\1" + struct.pack(">i", -1) + uvarint(62) + batch(b"", 0) + b"\0"
    head = struct.pack(">ihi", 0, 0, 0) + b"\2" + b"\2t" + uvarint(partitions + 1)
    return head + one * partitions + b"\0\0"


def _frames(count: int) -> bytes:
    one = struct.pack(">hhih", 18, 0, 7, 1) + b"c"
    return (struct.pack(">i", len(one)) + one) * count


def _offsets_value(size: int) -> bytes:
    # GroupMetadataValue 0: a protocol type, a generation, two nulls, and an array of members of 22 bytes.
    one = struct.pack(">hhhiii", 0, 0, 0, 0, 0, 0)[:18]
    return struct.pack(">hhihhi", 0, 0, 0, -1, -1, size // 18) + one * (size // 18)


def _internal(size: int) -> bytes:
    key = struct.pack(">hh", 2, 1) + b"g"
    return batch(record(key, _offsets_value(size)), 1, codec="zstd")


def _spread(size: int) -> bytes:
    """Headers with real keys and values."""
    one = varint(3) + b"abc" + varint(5) + b"\x1b[31m"
    return batch(record(b"k", b"v", one * (size // len(one)), size // len(one)), 1, codec="zstd")


BOMBS: Final = (
    *(Bomb(f"headers-{codec}.log", lambda c=codec: headers_bomb(c, 50 * MIB)) for codec in CODECS),
    Bomb("headers-spread.log", lambda: _spread(60 * MIB)),
    *(Bomb(f"records-{codec}.log", lambda c=codec: records_bomb(c, 60 * MIB)) for codec in CODECS),
    Bomb("both.log", lambda: both_bomb("zstd", 60 * MIB)),
    Bomb("value-zeros.log", lambda: value_bomb("zstd", 60 * MIB)),
    Bomb("value-text.log", lambda: value_bomb("zstd", 60 * MIB, b"\x1b")),
    Bomb("value-hex.log", lambda: value_bomb("zstd", 60 * MIB, b"\xff")),
    *(Bomb(f"wrapper-{codec}.log", lambda c=codec: wrapper_bomb(c, 60 * MIB)) for codec in ("gzip", "snappy", "lz4")),
    Bomb("many-bombs.log", lambda: headers_bomb("zstd", 50 * MIB) * 30),
    Bomb("many-records-bombs.log", lambda: records_bomb("zstd", 60 * MIB) * 10),
    Bomb("batches.log", lambda: batch(b"", 0) * (60 * MIB // 61)),
    Bomb("batches-odd.log", lambda: batch(b"", 0, attributes=1 << 10) * (60 * MIB // 61)),
    Bomb("batches-damaged.log", lambda: (batch(b"", 0)[:-1] + b"\1") * (60 * MIB // 61)),
    Bomb("garbage.log", lambda: (batch(b"", 0)[:17] + bytes(3)) * (60 * MIB // 20)),
    Bomb("values-many.log", lambda: value_bomb("zstd", 60 * MIB) * 20),
    Bomb("control.log", lambda: records_bomb("zstd", 60 * MIB, attributes=CONTROL)),
    Bomb("__consumer_offsets-0/00000000000000000000.log", lambda: _internal(50 * MIB)),
    Bomb("elements.bin", lambda: _metadata(900_000), ("--message", "MetadataRequest", "--version", "12")),
    Bomb("too-many-elements.bin", lambda: _metadata(3_000_000), ("--message", "MetadataRequest", "--version", "12")),
    Bomb("fetched.bin", lambda: _fetched(500_000), ("--message", "FetchResponse", "--version", "12")),
    Bomb("tags.bin", lambda: _tags(10_000), ("--message", "ApiVersionsRequest", "--version", "3")),
    Bomb("frames.bin", lambda: _frames(2_000_000), ("--frames",)),
    Bomb(
        "frame-huge.bin",
        lambda: (lambda body: struct.pack(">i", len(body)) + body)(
            struct.pack(">hhih", 3, 12, 7, 1) + b"c\0" + _metadata(900_000)
        ),
        ("--frames",),
    ),
    Bomb("00000000000000000000.index", lambda: b"".join(struct.pack(">ii", i, i) for i in range(8_000_000))),
    Bomb("00000000000000000000.timeindex", lambda: b"".join(struct.pack(">qi", i, i) for i in range(5_000_000))),
    Bomb("00000000000000000007.txnindex", lambda: bytes(34) * 2_000_000),
    Bomb("00000000000000000009.snapshot", lambda: b"\0\1" + bytes(4) + struct.pack(">i", 350_000) + bytes(16_100_000)),
)

# The commands that look at each kind of file. {} stands for the file.
LOG_LOOKS: Final = (
    ("check", "{}"),
    ("show", "{}"),
    ("show", "--list", "{}"),
    ("show", "--json", "{}"),
    ("show", "--dump", "{}"),
    ("show", "--json", "--dump", "{}"),
    ("show", "--finding", "{}"),
    ("show", "--batch", "0", "{}"),
    ("cat", "{}"),
    ("cat", "--table", "-n", "100000", "{}"),
    ("cat", "-n", "1", "--columns", "offset", "{}"),
    ("cat", "--tail", "1", "{}"),
    ("cat", "--key", "k", "{}"),
    ("browse", "{}"),
    ("salvage", "{}", "--out", "{out}"),
)
LOOKS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    ".log": LOG_LOOKS,
    "--message": (("show", "{}"), ("show", "--json", "{}"), ("browse", "{}")),
    "--frames": (("show", "{}"), ("show", "--json", "{}"), ("show", "--frame", "0", "{}")),
    "index": (("check", "{}"), ("show", "{}"), ("show", "--json", "{}")),
}


class Looked(NamedTuple):
    """How a verb ended: exit code (negative for a signal), peak memory in KiB, and end of the output."""

    code: int
    memory_kib: int
    told: str


# Runs a verb in a process of its own and says how much memory it took. A browser has no terminal here: its document
# and each page are made as the browser makes them.
CHILD: Final = """
import atexit, pathlib, sys

def tell():
    # For a child, getrusage begins with the memory of its parent.
    status = pathlib.Path("/proc/self/status")
    peak = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")] if status.exists() else []
    sys.stderr.write("\\n".join(["", *peak]))
    sys.stderr.flush()

atexit.register(tell)
words = sys.argv[1:]
if words[0] == "browse":
    import kfuzz.cli.browse as verb
    words = words[1:]
    context = verb.command.make_context("browse", list(words))
    with context:
        params = dict(context.params)
        name = params.pop("name"); params.pop("place")
        document = verb.document_of(name, **params)
        for _ in document.load():
            pass
        for row in range(min(3, len(document.rows))):
            page = document.open(row)
            for index in {0, len(page.parts) // 2, len(page.parts) - 1}:
                page.bytes_around(index)
            print(len(page.parts), "parts, cut" if page.is_cut else "parts")
else:
    from kfuzz.cli.main import main
    main(words)
"""


def look(words: tuple[str, ...]) -> Looked:
    """Run a looking verb in a process of its own."""
    with tempfile.TemporaryFile() as told:
        # A filter, not a file: what a verb prints is not kept.
        with subprocess.Popen([sys.executable, "-c", CHILD, *words], stdout=subprocess.PIPE, stderr=told) as child:
            assert child.stdout
            last = b""
            while piece := os.read(child.stdout.fileno(), MIB):
                last = (last + piece)[-400:]
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        told.seek(0)
        text = (last + told.read()[-600:]).decode("utf-8", "replace")
    text, _, peak = text.partition("\nVmHWM:")
    memory_kib = int(peak.split()[0]) if peak else used.ru_maxrss
    return Looked(child.returncode, memory_kib, text)


def looks_at(bomb: Bomb) -> Iterator[tuple[str, ...]]:
    """The verbs with which a bomb is looked at."""
    if bomb.options:
        yield from LOOKS[bomb.options[0]]
    elif bomb.name.endswith(".log"):
        yield from LOG_LOOKS
    else:
        yield from LOOKS["index"]


def words_of(look_: tuple[str, ...], bomb: Bomb, path: Path, out: Path) -> tuple[str, ...]:
    """The words of a command line."""
    made = [word.replace("{}", str(path)).replace("{out}", str(out)) for word in look_]
    return (made[0], *bomb.options, *made[1:])
