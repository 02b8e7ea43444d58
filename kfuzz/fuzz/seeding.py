"""The seeds of a campaign: the vectors, the inputs in ``corpus/``, and a batch of every shape or every message.

``corpus/seeds/<target>.hex`` and ``corpus/regressions/<target>/*.hex`` are text files: hex digits, one input per line;
``#`` begins a comment. An installed package has no ``corpus/`` and uses only the other seeds.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kfuzz import records
from kfuzz.client.protocol import request
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes
from kfuzz.fuzz.logins import ANSWER, BYTES, FRAME, MECHANISMS, REQUEST
from kfuzz.fuzz.logins import KINDS as KINDS_OF_PARTS
from kfuzz.fuzz.messages import KINDS, selector
from kfuzz.fuzz.targets import Target
from kfuzz.fuzz.wholes import AVRO, FILES, PROTO, chained
from kfuzz.kafka import MESSAGE_CODECS
from kfuzz.logs.snapshot import Producer
from kfuzz.logs.snapshot import encode as snapshot
from kfuzz.messages import encode
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import schema
from kfuzz.records import CODECS, Record, RecordBatch, TimestampType
from kfuzz.records.codecs import compress
from kfuzz.vectors import Vector, load_suite
from kfuzz.vectors.kinds import CONVERSATION, FRAMES
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, CODEC_AT
from kfuzz.wire.records.message_set import encode_message

CORPUS = Path(__file__).resolve().parent.parent.parent / "corpus"
TIME_MS = 1_700_000_000_000
FRAMES_MAX = 16


def seeds(target: Target, *, say: Callable[[str], None] = lambda line: None) -> list[bytes]:
    """The seeds of a campaign on ``target``, in a fixed order, without duplicates and without inputs that are too long.

    If the vectors cannot be loaded, the campaign runs without their seeds and ``say`` gets the reason.
    """
    found = set(_own(target))
    if target.vectors:
        try:
            found.update(data for _, data in _suite(target))
        except UsageError as error:
            say(f"no seeds from the vectors: {error}")
    return sorted((data for data in found if 0 < len(data) <= target.length_max), key=lambda data: (len(data), data))


def inputs(target: Target) -> list[tuple[str, bytes]]:
    """All known inputs for ``target``, of any length, each with a readable name.

    These are every vector of its kinds (each step of a stream, and the bombs), the inputs in ``corpus/``, and a batch
    of every shape or every message.
    """
    named = [*(_suite(target) if target.vectors else ()), *((file.stem, data) for file, data in regressions(target))]
    known = {data for _, data in named}
    own = sorted(set(_own(target)) - known, key=lambda data: (len(data), data))
    return [*named, *((f"seed {i}", data) for i, data in enumerate(own))]


def shapes(target: Target) -> list[bytes]:
    """A batch of every shape, or every message; these inputs are made here, and no campaign has found them."""
    return list(_SHAPES[target.seeds_of or target.name]())


def by_digest(known: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """The names of inputs by their SHA-1, which is how libFuzzer names files."""
    return {hashlib.sha1(data).hexdigest(): name for name, data in known}


def _own(target: Target) -> Iterator[bytes]:
    """The inputs that do not come from the vectors."""
    file = CORPUS / "seeds" / f"{target.seeds_of or target.name}.hex"
    yield from shapes(target)
    yield from read_hex(file) if file.is_file() else ()
    yield from (data for _, data in regressions(target))


def _suite(target: Target) -> list[tuple[str, bytes]]:
    found = ((vector, _input(vector)) for vector in load_suite(kinds=target.vectors))
    return [(vector.id, data) for vector, data in found if data is not None]


def _input(vector: Vector) -> bytes | None:
    """The vector's bytes, after a selector if it is a message; None for a version that only older releases have."""
    if vector.kind == CONVERSATION:
        # The input of ``fuzz_connection`` is one connection; its later frames are like the first ones.
        frames = vector.options.get(FRAMES, ())
        of_one = [frame for frame in frames if frame["connection"] == frames[0]["connection"]][:FRAMES_MAX]
        return chained((int(frame["from"] != "client"), bytes.fromhex(frame["hex"])) for frame in of_one)
    if vector.kind != "message":
        return vector.data
    definition = catalogue().messages.get(vector.options["message"])
    version = vector.options["version"]
    if definition is None or definition.kind not in KINDS or version not in definition.valid_versions:
        return None
    return selector(definition, version) + vector.data


def regressions(target: Target) -> list[tuple[Path, bytes]]:
    """The inputs that once broke ``target``, each with its file."""
    files = sorted((CORPUS / "regressions" / (target.seeds_of or target.name)).glob("*.hex"))
    return [(file, data) for file in files for data in read_hex(file)]


def dictionary(target: Target) -> Path | None:
    """The file with the target's dictionary for libFuzzer; None if it does not exist."""
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


def _records(base: int) -> list[Record]:
    headers = ((b"h", b"x"), (b"", None), (b"\xc3\xa9", b""))
    return [
        Record(base, TIME_MS, b"k", b"v"),
        Record(base + 1, TIME_MS + 1, None, b"w" * 20),
        Record(base + 3, TIME_MS + 200, b"key", None, headers),
    ]


def _batches() -> Iterator[RecordBatch]:
    """One batch of each shape: codecs, timestamp types, control, transactions, compaction, magic 0 and 1."""
    for codec in CODECS:
        yield RecordBatch(5, 8, _records(5), compression=codec)
    one = [Record(7, TIME_MS, b"k", b"v")]
    yield RecordBatch(7, 7, one, timestamp_type="log-append", max_timestamp=TIME_MS + 9)
    yield RecordBatch(7, 9, [], producer_id=9, producer_epoch=1, base_sequence=4)
    yield RecordBatch(7, 7, one, transactional=True, producer_id=9, producer_epoch=1, base_sequence=0)
    marker = [Record(7, TIME_MS, b"\0\0\0\1", b"\0\0\0\0\0\2")]
    yield RecordBatch(7, 7, marker, transactional=True, control=True, producer_id=9, producer_epoch=1)
    yield RecordBatch(7, 7, one, delete_horizon=TIME_MS)
    # Any topic takes this from a producer. Its first key is empty.
    yield RecordBatch(0, 1, [Record(0, TIME_MS, b"", b""), Record(1, TIME_MS, b"k", None)])
    # Wide loops work in blocks of 64 records. Two of three timestamps lie before the first one.
    for codec, count in ((CODECS[0], 80), (CODECS[4], 500)):
        many = [Record(7 + i, TIME_MS + (-i if i % 3 else i), b"k", None) for i in range(count)]
        yield RecordBatch(7, 6 + count, many, compression=codec)
    for magic in (0, 1):
        stamps = [None if magic == 0 else TIME_MS, None if magic == 0 else TIME_MS + 5]
        pair = [Record(7 + i, stamp, b"k", b"v" * i) for i, stamp in enumerate(stamps)]
        kind: TimestampType = "none" if magic == 0 else "create"
        yield RecordBatch(7, 7, pair[:1], magic=magic, timestamp_type=kind)
        for codec in CODECS[1:4]:
            yield RecordBatch(7, 8, pair, magic=magic, timestamp_type=kind, compression=codec)


def _record_batches() -> list[bytes]:
    single = [records.encode_batch(batch) for batch in _batches()]
    # A fetch with three different batches, the last one cut; then a batch cut in its header.
    return [*single, single[0] + single[-1] + single[1][:40], single[0][:16]]


def _unpacked() -> list[bytes]:
    """Batches with a codec in their attributes and an uncompressed payload, as ``fuzz_compressed_batch`` expects."""
    out = []
    for codec in range(1, len(CODECS)):
        for base, count in ((5, 3), (5, 0)):
            plain = records.encode_batch(RecordBatch(base, base + 3, _records(base)[:count]))
            at = CODEC_AT[2]
            out.append(plain[:at] + bytes([plain[at] | codec]) + plain[at + 1 :])
    for magic in (0, 1):
        inner = b"".join(encode_message(magic, i, 0, TIME_MS + i, b"k", b"v" * i) for i in range(3))
        for codec in range(1, len(MESSAGE_CODECS)):
            out += [encode_message(magic, offset, codec, TIME_MS, None, inner) for offset in (0, 2, 9)]
    return out


def _compressed() -> list[bytes]:
    """Inputs of ``fuzz_compression``: a selector byte and a compressed stream, then two concatenated streams."""
    messages = b"".join(encode_message(0, offset, 0, -1, b"k", b"value" * 9) for offset in range(2))
    several = records.encode_batch(RecordBatch(0, 3, _records(0)))[BATCH_HEADER_SIZE:]
    out = []
    for magic, plain in enumerate((messages, several)):
        for i, codec in enumerate(CODECS[1:]):
            stream = compress(codec, plain, magic=magic)
            selector = bytes([i | magic << 2])
            out += [selector + stream, selector + stream + stream]
    return out


def _messages() -> list[bytes]:
    """Each message at its first and its last version, with default values and with every field filled."""
    out = []
    for definition in catalogue().messages.values():
        versions = definition.valid_versions
        # Some messages have no versions left.
        if definition.kind in KINDS and versions:
            for version in {versions.lowest, versions.highest}:
                program, front = schema(definition, version), selector(definition, version)
                out += [front + program.encode(values) for values in ({}, filled(definition, version, 1))]
    return out


def _log_directories() -> list[bytes]:
    """A log directory with every file, and for each of them one with that file alone beside the log."""
    log = b"".join(records.encode_batch(RecordBatch(at, at + 3, _records(at))) for at in (0, 4))
    topic_id, one = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n", b"0\n1\nt 0 4\n"
    contents = {
        ".log": log,
        ".index": struct.pack(">ii", 4, len(log) // 2),
        ".timeindex": struct.pack(">qi", TIME_MS + 200, 3),
        ".txnindex": struct.pack(">hqqqq", 0, 9, 0, 3, 4),
        ".snapshot": snapshot([Producer(9, 1, 3, 3, 3, TIME_MS, -1, -1)]),
        "leader-epoch-checkpoint": b"0\n1\n0 0\n",
        "partition.metadata": topic_id,
        "meta.properties": b"version=1\nnode.id=1\ncluster.id=AAECAwQFBgcICQoLDA0ODw\n",
    }
    files = [
        (at, next((made for end, made in contents.items() if name.endswith(end)), one)) for at, name in enumerate(FILES)
    ]
    return [chained(files), *(chained([files[0], file]) for file in files)]


def _logins() -> list[bytes]:
    """Logins by each mechanism: right ones, refused ones, with frames that are early, doubled, cut or for nobody."""
    keys = [{"apiKey": key, "minVersion": 0, "maxVersion": most} for key, most in ((17, 1), (18, 3), (36, 2))]
    offers = encode("ApiVersionsResponse", 3, {"apiKeys": keys})
    takes = (ANSWER, encode("SaslHandshakeResponse", 1, {"mechanisms": ["PLAIN"]}))
    wrong = (ANSWER, encode("SaslHandshakeResponse", 1, {"errorCode": 33, "mechanisms": ["GSSAPI"]}))
    early, cut = (FRAME, b"\0\0\0\2" + takes[1]), (BYTES, b"\0\0\0\x09\0")
    asks = [(REQUEST, request(api, 1, 2, {})[4:]) for api in ("ApiVersions", "SaslHandshake")]
    out = []
    for at in range(len(MECHANISMS)):
        first = (at * KINDS_OF_PARTS, offers)
        words = b"r=a,s=YWFhYWFhYWFhYWFh,i=4096" if at == 1 else b""
        lets, refuses = (
            (ANSWER, b"\0" + encode("SaslAuthenticateResponse", 2, {"errorCode": code, "authBytes": words}))
            for code in (0, 58)
        )
        for rest in ((lets, lets), (refuses,), (early, lets), (cut, lets), (*asks, lets)):
            out.append(chained([first, takes, *rest]))
        out += [chained([first, wrong]), chained([first, early]), chained([first, *asks[::-1], takes])]
    return out


def _texts() -> list[bytes]:
    """Texts for ``fuzz_readers``, after the byte that chooses their reader."""
    workload = (
        '[[topics]]\nname = "t"\npartitions = 2\n[topics.keys]\nsize = 4\n[topics.values]\nsize = {min = 1, max = 9}\n'
    )
    fields = '[topics.values]\nfields = [{name = "n", type = "int", min = 1, max = 5}]\n'
    rules = (
        *("Fetch error=NOT_LEADER_OR_FOLLOWER nth=2", "Produce delay_ms=5 probability=0.5", "EndTxn disconnect=before"),
        "Fetch set.responses[0].partitions[0].highWatermark=5",
    )
    # The header of a pcap file without packets: magic, version, zone, accuracy, the longest packet, Ethernet.
    capture = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
    texts = (
        (0, workload),
        (0, workload.replace("[topics.values]\nsize = {min = 1, max = 9}\n", fields)),
        (0, workload + "[topics.transactions]\nabort_share = 0.5\n"),
        (3, AVRO),
        (4, PROTO),
        (5, schema),
    )
    found = [chained([(choice, text.encode())]) for choice, text in (*texts, *((1, rule) for rule in rules))]
    return [*found, chained([(2, capture)])]


def _values() -> list[bytes]:
    """Values of the schemas of ``fuzz_values``: Avro, Protobuf, JSON."""
    first = b"\x0a\0\2\x7d\2\2\2a\0\2\2x\2\0"
    avro = first + b"\2" + first + b"\0"
    proto = bytes.fromhex("0805120202041a060a01611201622a02080131000000000000e03f")
    texts = (
        (avro, first + b"\0", first, b""),
        (proto, proto[:6], proto[:2], proto + proto),
        (b'{"a": [1, 2.5, {"b": null}]}', b'"\\u00e9"', b"{}", b"1e309"),
    )
    return [chained([(at, text)]) for at, some in enumerate(texts) for text in some]


def _columns() -> list[bytes]:
    """Three rows of ``fuzz_arrow``: columns of each type, with and without nulls."""
    words, wide = struct.pack("<4i", 0, 1, 3, 3) + b"abc", struct.pack("<4q", 0, 1, 3, 3) + b"abc"
    numbers, runs = struct.pack("<3q", 1, 2, 3), struct.pack("<3i", 1, 1, 2)
    key, value, timestamp, offset, batch = range(5)
    whole = [
        (key, bytes([3, 0, 16]) + words),
        (value + 5, bytes([3, 1, 32]) + b"\5" + wide),
        (timestamp + 15, bytes([3, 0, 0]) + numbers),
        (offset + 15, bytes([3, 0, 0]) + numbers),
        (batch + 20, bytes([3, 0, 0]) + runs),
    ]
    kinds = (16, words), (32, wide), (16, words), (0, numbers), (0, runs)
    each = [(value + 5 * kind, bytes([3, len(bits), size]) + bits + body)
            for kind, (size, body) in enumerate(kinds) for bits in (b"", b"\5")]  # fmt: skip
    return [chained(whole), *(chained([one]) for one in each)]


def _canary() -> list[bytes]:
    """One ordinary batch. The fuzzer must find the rest itself."""
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
    "log-directory": _log_directories,
    "connection": lambda: [],
    "login": _logins,
    "readers": _texts,
    "values": _values,
    "arrow": _columns,
    "canary": _canary,
}
