"""What a campaign starts from: the vectors, the kept corpus, and a batch of every shape, or every message.

``corpus/seeds/<target>.hex`` and ``corpus/regressions/<target>/*.hex`` are text: hex digits, one input a line, ``#``
begins a comment. An installed package has no ``corpus/``; it starts from the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from kfuzz import records
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes
from kfuzz.fuzz.messages import KINDS, selector
from kfuzz.fuzz.targets import Target
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import schema
from kfuzz.records import CODECS, Record, RecordBatch, TimestampType
from kfuzz.records.codecs import compress
from kfuzz.vectors import Vector, load_suite
from kfuzz.wire.layout import CODEC_AT
from kfuzz.wire.message_set import encode_message

__all__ = ["CORPUS", "dictionary", "inputs", "read_hex", "regressions", "seeds"]

CORPUS = Path(__file__).resolve().parent.parent.parent / "corpus"
TIME_MS = 1_700_000_000_000


def seeds(target: Target, *, say: Callable[[str], None] = lambda line: None) -> list[bytes]:
    """What a campaign on ``target`` starts from: each input once, none above the target's longest, in a fixed order.

    A suite of vectors that cannot be loaded costs its seeds, not the campaign: ``say`` is told.
    """
    found = set(_own(target))
    if target.vectors:
        try:
            found.update(data for _, data in _suite(target))
        except UsageError as error:
            say(f"no seeds from the vectors: {error}")
    return sorted((data for data in found if 0 < len(data) <= target.length_max), key=lambda data: (len(data), data))


def inputs(target: Target) -> list[tuple[str, bytes]]:
    """Everything that is known to be worth running through ``target``, of any length, with names for people.

    That is every vector of its kinds (each step of a stream, and the bombs), the kept corpus, and a batch of every
    shape or every message.
    """
    named = [*(_suite(target) if target.vectors else ()), *((file.stem, data) for file, data in regressions(target))]
    known = {data for _, data in named}
    own = sorted(set(_own(target)) - known, key=lambda data: (len(data), data))
    return [*named, *((f"seed {i}", data) for i, data in enumerate(own))]


def _own(target: Target) -> Iterator[bytes]:
    """What is not the suite's."""
    yield from _SHAPES[target.name]()
    yield from _kept(CORPUS / "seeds" / f"{target.name}.hex")
    yield from (data for _, data in regressions(target))


def _suite(target: Target) -> list[tuple[str, bytes]]:
    found = ((vector, _input(vector)) for vector in load_suite(kinds=target.vectors))
    return [(vector.id, data) for vector, data in found if data is not None]


def _input(vector: Vector) -> bytes | None:
    """The vector's bytes, behind what says which message they are; None of a version that only older releases have."""
    if vector.kind != "message":
        return vector.data
    definition = catalogue().messages.get(vector.options["message"])
    version = vector.options["version"]
    if definition is None or definition.kind not in KINDS or version not in definition.valid_versions:
        return None
    return selector(definition, version) + vector.data


def regressions(target: Target) -> list[tuple[Path, bytes]]:
    """The inputs that once broke ``target``, with the files they are kept in."""
    files = sorted((CORPUS / "regressions" / target.name).glob("*.hex"))
    return [(file, data) for file in files for data in read_hex(file)]


def dictionary(target: Target) -> Path | None:
    """The target's dictionary for libFuzzer, where there is one here."""
    path = CORPUS / "dictionaries" / f"{target.dictionary}.dict"
    return path if path.is_file() else None


def read_hex(path: Path) -> list[bytes]:
    """The inputs in a ``.hex`` file; ``UsageError`` names the line that is not hex."""
    inputs = []
    for number, line in enumerate(read_bytes(path).decode(errors="replace").splitlines(), 1):
        digits = line.partition("#")[0].strip()
        if digits:
            try:
                inputs.append(bytes.fromhex(digits))
            except ValueError:
                raise UsageError(f"{path}: line {number} is not hex; give an even number of hex digits") from None
    return inputs


def _kept(path: Path) -> list[bytes]:
    return read_hex(path) if path.is_file() else []


def _records(base: int) -> list[Record]:
    headers = ((b"h", b"x"), (b"", None), (b"\xc3\xa9", b""))
    return [
        Record(base, TIME_MS, b"k", b"v"),
        Record(base + 1, TIME_MS + 1, None, b"w" * 20),
        Record(base + 3, TIME_MS + 200, b"key", None, headers),
    ]


def _batches() -> Iterator[RecordBatch]:
    """One batch of each shape that the formats know."""
    for codec in CODECS:
        yield RecordBatch(5, 8, _records(5), compression=codec)
    one = [Record(7, TIME_MS, b"k", b"v")]
    yield RecordBatch(7, 7, one, timestamp_type="log-append", max_timestamp=TIME_MS + 9)
    yield RecordBatch(7, 9, [], producer_id=9, producer_epoch=1, base_sequence=4)
    yield RecordBatch(7, 7, one, transactional=True, producer_id=9, producer_epoch=1, base_sequence=0)
    marker = [Record(7, TIME_MS, b"\0\0\0\1", b"\0\0\0\0\0\2")]
    yield RecordBatch(7, 7, marker, transactional=True, control=True, producer_id=9, producer_epoch=1)
    yield RecordBatch(7, 7, one, delete_horizon=TIME_MS)
    for magic in (0, 1):
        stamps = [None if magic == 0 else TIME_MS, None if magic == 0 else TIME_MS + 5]
        pair = [Record(7 + i, stamp, b"k", b"v" * i) for i, stamp in enumerate(stamps)]
        kind: TimestampType = "none" if magic == 0 else "create"
        yield RecordBatch(7, 7, pair[:1], magic=magic, timestamp_type=kind)
        for codec in CODECS[1:4]:
            yield RecordBatch(7, 8, pair, magic=magic, timestamp_type=kind, compression=codec)


def _record_batches() -> list[bytes]:
    single = [records.encode_batch(batch) for batch in _batches()]
    # A fetch of several batches, mixed, with a cut tail.
    return [*single, single[0] + single[-1] + single[1][:40], single[0][:16]]


def _unpacked() -> list[bytes]:
    """Compressed batches with the payload not yet compressed, as ``fuzz_compressed_batch`` wants them."""
    out = []
    for codec in range(1, len(CODECS)):
        for base, count in ((5, 3), (5, 0)):
            plain = records.encode_batch(RecordBatch(base, base + 3, _records(base)[:count]))
            at = CODEC_AT[2]
            out.append(plain[:at] + bytes([plain[at] | codec]) + plain[at + 1 :])
    for magic in (0, 1):
        inner = b"".join(encode_message(magic, i, 0, TIME_MS + i, b"k", b"v" * i) for i in range(3))
        for codec in range(1, CODECS.index("zstd")):
            out += [encode_message(magic, offset, codec, TIME_MS, None, inner) for offset in (0, 2, 9)]
    return out


def _compressed() -> list[bytes]:
    """The selector of ``fuzz_compression`` and a container; twice over, for concatenated streams."""
    plain = bytes(range(40)) * 4
    out = []
    for magic in (0, 1):
        for i, codec in enumerate(CODECS[1:]):
            stream = compress(codec, plain, magic=magic)
            selector = bytes([i | magic << 2])
            out += [selector + stream, selector + stream + stream]
    return out


def _messages() -> list[bytes]:
    """Each message at its first and its last version, as by default and with every field filled."""
    out = []
    for definition in catalogue().messages.values():
        versions = definition.valid_versions
        # Of some messages no version is left.
        if definition.kind in KINDS and versions:
            for version in {versions.lowest, versions.highest}:
                program, front = schema(definition, version), selector(definition, version)
                out += [front + program.encode(values) for values in ({}, filled(definition, version, 1))]
    return out


def _canary() -> list[bytes]:
    """One ordinary batch: what the fuzzer needs beyond it, it must find."""
    pair = [Record(0, 1000, b"k", b"v", ((b"h", b"x"), (b"g", None))), Record(1, 1001, None, b"w" * 20)]
    return [records.encode_batch(RecordBatch(0, 1, pair))]


_SHAPES: dict[str, Callable[[], list[bytes]]] = {
    "record-batch": _record_batches,
    "columns": _record_batches,
    "broker": _record_batches,
    "log-tools": _record_batches,
    "compressed-batch": _unpacked,
    "compression": _compressed,
    "messages": _messages,
    "canary": _canary,
}
