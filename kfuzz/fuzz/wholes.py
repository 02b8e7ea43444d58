"""Targets over things of several parts, or of text: log directories, connections, files that people write, columns, and
values with schemas.

An input is a chain of parts (:func:`parts`): a byte that chooses, two bytes with a size, and the content. No input is
wrong: a chooser counts from the start again, and the last part may be cut.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfuzz import records
from kfuzz.errors import DecodeError, EncodeError, KfuzzError, UsageError
from kfuzz.fuzz.oracle import OracleFailure, exact_buffer
from kfuzz.logs import stored
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT
from kfuzz.records import Limits

if TYPE_CHECKING:
    from kfuzz.relay.frames import Direction

LIMITS: Final = Limits(decompressed_bytes=64 * 1024)
SHARED_MEMORY: Final = Path("/dev/shm")
SEGMENT: Final = f"{0:020d}"
PARTITION_FILES: Final = (
    *(f"{SEGMENT}.{suffix}" for suffix in ("log", "index", "timeindex", "txnindex", "snapshot")),
    f"{5:020d}.log",
    f"{5:020d}.snapshot",
    LEADER_EPOCH_CHECKPOINT,
    stored.METADATA_NAME,
)
# Every file of the log directory of an input, in the order of the byte that chooses.
FILES: Final = (
    *(f"t-0/{name}" for name in PARTITION_FILES),
    stored.META_PROPERTIES,
    *(stored.REPLICATION, stored.RECOVERY_POINT, stored.LOG_START, stored.CLEANER),
)
AVRO: Final = """{"type": "record", "name": "R", "fields": [
    {"name": "id", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
    {"name": "next", "type": ["null", "R"]}]}"""
PROTO: Final = """syntax = "proto3";
message R {
  int64 id = 1;
  repeated sint32 counts = 2;
  map<string, bytes> tags = 3;
  oneof one { string name = 4; R next = 5; }
  double share = 6;
}"""


def parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The parts of an input: what the first byte chooses, and the content."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 3], "big")
        yield data[at], data[at + 3 : at + 3 + size]
        at += 3 + size


def chained(found: Iterable[tuple[int, bytes]]) -> bytes:
    """The input with these parts, for seeds."""
    return b"".join(bytes([choice]) + len(content).to_bytes(2, "big") + content for choice, content in found)


def fuzz_log_directory(data: bytes) -> None:
    """A broker's log directory, each of its files damaged: check, read, salvage. A salvaged copy has no damage."""
    from kfuzz import logs
    from kfuzz.logs.salvaging import salvage

    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as made:
        root = Path(made) / "log"
        (root / "t-0").mkdir(parents=True)
        for choice, content in parts(data):
            (root / FILES[choice % len(FILES)]).write_bytes(content)
        first, second = _checked(root), _checked(root)
        if first != second:
            raise OracleFailure(f"check says {first!r}, then {second!r}")
        with contextlib.suppress(KfuzzError):
            for _ in logs.read(root):
                pass
        copy = Path(made) / "copy"
        with contextlib.suppress(KfuzzError):
            salvage(root, copy, pass_over=lambda path, why: None)
        for file in copy.rglob("*.log"):
            if fatal := records.check(file.read_bytes(), role="log", limits=LIMITS).fatal:
                raise OracleFailure(f"a salvaged file is damaged: {fatal!r}")


def _checked(root: Path) -> list[tuple[Any, ...]]:
    """The report of ``check`` on a log directory: each file with the codes of its findings."""
    from kfuzz.logs.checking import Counts, check_directory

    with contextlib.suppress(KfuzzError):
        return [
            (one.path, one.title, one.skipped, [finding.code for finding, _ in one.findings], one.start, one.lost)
            for one in check_directory(root, Counts(), role="log", limits=LIMITS)
        ]
    return []


def fuzz_connection(data: bytes) -> None:
    """Requests and responses of one connection: how the proxy pairs, reads, judges and writes them."""
    from kfuzz.relay.frames import Frame, Pairing

    pairing = Pairing(1)
    for choice, content in parts(data):
        direction: Direction = "response" if choice % 2 else "request"
        if (exchange := pairing.exchange(direction, content)) is None:
            continue
        frame = Frame(exchange, direction, content)
        frame.check()
        frame.check_batches()
        try:
            values = frame.values()
        except DecodeError:
            continue
        if frame.findings:
            continue
        try:
            again = bytes(frame.with_values(values).data)
        except EncodeError as error:
            raise OracleFailure(f"{frame.name}: encode refuses what was decoded: {error}") from error
        if again != content:
            raise OracleFailure(f"{frame.name}: a frame without findings is written as {again.hex()}")


def _read_capture(data: bytes) -> None:
    from kfuzz.relay.captures import Capture

    for _ in Capture("capture", data).events:
        pass


def _read_workload(data: bytes) -> None:
    from kfuzz.corpora.workload import parse, render

    workload = parse(data.decode(), "workload")
    if parse(render(workload), "rendered") != workload:
        raise OracleFailure("a workload is another one after it was written")


def _read_rules(data: bytes) -> None:
    from kfuzz.relay.rule import Rule, parse_rule

    rule = parse_rule(data.decode())
    if Rule(rule.to_json()).to_json() != rule.to_json():
        raise OracleFailure("a rule is another one after it was written")


def _read_schema(kind: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        from kfuzz.schemas.values import decoder

        made = decoder(kind, data.decode(), {}, "schema", checks=True)
        if not isinstance(made, str):
            with contextlib.suppress(Exception):
                made(b"\0\2\2", 0, b"\0")

    return read


READERS: Final[tuple[Callable[[bytes], None], ...]] = (
    _read_workload,
    _read_rules,
    _read_capture,
    _read_schema("AVRO"),
    _read_schema("PROTOBUF"),
    _read_schema("JSON"),
)


def fuzz_readers(data: bytes) -> None:
    """Files that people write or bring: workloads, rules, captures, schemas. Each is read, or refused in a sentence."""
    for choice, content in parts(data):
        with contextlib.suppress(KfuzzError, UnicodeDecodeError):
            READERS[choice % len(READERS)](content)


@cache
def _schemas() -> tuple[Any, ...]:
    from kfuzz.schemas.store import Schema
    from kfuzz.schemas.values import Schemas

    texts = (("AVRO", AVRO), ("PROTOBUF", PROTO), ("JSON", '{"type": "object"}'))
    return tuple(Schemas([Schema(kind, text)]) for kind, text in texts)


def fuzz_values(data: bytes) -> None:
    """Values with schemas: Avro, Protobuf, JSON. The text is JSON, also of what cannot be decoded."""
    import msgspec

    # JSON bounds no number. Without the hook, msgspec refuses those that no double holds.
    decoder = msgspec.json.Decoder(float_hook=str)
    for choice, content in parts(data):
        schemas = _schemas()[choice % len(_schemas())]
        schemas.shown(None, b"")
        [text] = schemas.texts("value", [content])
        try:
            decoder.decode(text)
        except msgspec.DecodeError as error:
            raise OracleFailure(f"the text of a value is no JSON: {error}") from error


def fuzz_arrow(data: bytes) -> None:
    """Arrow columns with any offsets, sizes and bits: they are written as batches that hold the rows, or refused."""
    import pyarrow as pa

    kinds = (pa.binary(), pa.large_binary(), pa.string(), pa.int64(), pa.int32())
    names = ("key", "value", "timestamp", "offset", "batch")
    columns: dict[str, Any] = {}
    rows = data[3] if len(data) > 3 else 0
    for choice, content in parts(data):
        name, kind = names[choice % len(names)], kinds[choice // len(names) % len(kinds)]
        # The sizes of the bits that say which rows are null, and of the offsets; the bytes follow.
        bits_size, offsets_size = (*content[1:3], 0, 0)[:2]
        body = content[3:]
        bits, offsets = body[:bits_size], body[bits_size : bits_size + offsets_size]
        kept = [offsets, body[bits_size + offsets_size :]] if not pa.types.is_integer(kind) else [body[bits_size:]]
        buffers = [None if bits_size == 0 else exact_buffer(bits), *map(exact_buffer, kept)]
        with contextlib.suppress(pa.ArrowInvalid):
            given = [one if one is None else pa.py_buffer(one) for one in buffers]
            columns[name] = pa.Array.from_buffers(kind, rows, given)
    if not columns:
        return
    table = pa.RecordBatch.from_pydict(columns)
    try:
        written = records.encode_columns(table)
    except (EncodeError, UsageError):
        return
    found = [record for batch in records.decode(written) for record in batch.records]
    if len(found) != rows:
        raise OracleFailure(f"{rows} rows are written as {len(found)} records")
    with contextlib.suppress(pa.ArrowInvalid):
        table.validate(full=True)
        for name in columns.keys() & {"key", "value"}:
            wanted = [
                None if one is None else bytes(one, "utf-8") if isinstance(one, str) else one
                for one in columns[name].to_pylist()
            ]
            if [getattr(record, name) for record in found] != wanted:
                raise OracleFailure(f"the column {name} {wanted!r} is written as {found!r}")
