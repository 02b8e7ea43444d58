"""The calls that meet failing allocations: every way into the library, over inputs as small as show its work."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow
from made_corpora import generate_segment

from kfuzz import control, records
from kfuzz.annotate import messages as message_annotate
from kfuzz.annotate import records as annotate
from kfuzz.corpora.plan import Plan, Segment
from kfuzz.corpora.workload import load
from kfuzz.messages import codec, headers, jsonform, primitives
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.language import parse_definition
from kfuzz.messages.schemas import schema
from kfuzz.mutate import Mutator
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.message import MessageMutator, scrambled
from kfuzz.records import Limits, Record, RecordBatch, stream
from kfuzz.records import appending as append
from kfuzz.records import compaction as compact
from kfuzz.records import conversion as convert
from kfuzz.records.read.topic import Topic as BrokerTopic
from kfuzz.vectors import find_vector
from kfuzz.wire.walk.transaction_walk import TransactionWalk

Act = Callable[[Any], Any]


@dataclass(frozen=True)
class Path:
    """``act(state)``, whose allocations fail, for a ``state`` that ``prepare`` made.

    ``shown`` is what of the result is compared. Where the state ``lasts``, the same call must work on the same state
    after one that failed; what is used up by a call, as an iterator is, does not last.
    """

    name: str
    act: Act
    prepare: Callable[[], Any] = lambda: None
    shown: Act = lambda result: result
    lasts: bool = True


def always(value: Any) -> Callable[[], Any]:
    return lambda: value


# ------------------------------------------------------------------------------------------------- records

LEGACY_CODECS = ("none", "gzip", "snappy", "lz4")


def batch_of(magic: int, compression: str, count: int = 3) -> RecordBatch:
    """Nulls, headers where the format has them, texts long enough for a codec to find something."""
    alone = magic < 2 and compression == "none"
    made = [
        Record(i, 1_700_000_000_000 + i if magic else None, None if i == 1 else b"key%d" % i, b"value " * 20)
        for i in range(1 if alone else count)
    ]
    if magic == 2:
        made[-1].headers = ((b"name", b"x" * 20), ("été".encode(), None))
    return RecordBatch(
        0,
        len(made) - 1,
        made,
        magic=magic,
        compression=compression,  # type: ignore[arg-type]
        timestamp_type="none" if magic == 0 else "create",
    )


def formats() -> Iterator[tuple[str, RecordBatch]]:
    for magic in (0, 1, 2):
        for compression in records.CODECS if magic == 2 else LEGACY_CODECS:
            yield f"magic {magic} {compression}", batch_of(magic, compression)


# A transaction that is committed, and one that is aborted.
MARKED = b"".join(bytes.fromhex(step["hex"]) for step in find_vector("stream/isolation/committed-then-aborted").steps)
MANY = records.encode_batch(
    RecordBatch(0, 149, [Record(i, i, b"key", b"v", ((b"h", b"%d" % i),) if i % 3 == 0 else ()) for i in range(150)])
)


def fields(given: Iterator[Record]) -> list[tuple[Any, ...]]:
    """Everything of each record, the lazy way."""
    return [(r.offset, r.timestamp, r.key, r.value, r.headers, r.attributes) for r in given]


def iterated(data: bytes) -> list[tuple[Any, ...]]:
    return fields(records.iterate(data))


def found_transactions(data: bytes) -> list[Any]:
    """Those that end in ``data``, when one more is open before it."""
    walk = TransactionWalk()
    walk.begin(9, 0)
    walk.walk(data)
    return walk.ends()


def lazy_records(_: object = None) -> list[Record]:
    return records.decode(RECORDS_2)[0].records


def spoiled(data: bytes, at: int) -> bytes:
    """A byte of the payload changed, under a CRC that belongs to it."""
    from kfuzz.mutate.engine import seal

    return seal(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :], False, True)


RECORDS_2 = records.encode_batch(batch_of(2, "none"))
KEY_NOT_TEXT = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v", ((b"\xff", b"\xfe"),))]))
TABLE = pyarrow.record_batch(
    {
        "offset": pyarrow.array([0, 1, 2]),
        "timestamp": pyarrow.array([5, None, 7]),
        "key": pyarrow.array([b"a", None, b"long enough for a view"]),
        "value": pyarrow.array([b"b", b"c", None], pyarrow.large_binary()),
        "headers": pyarrow.array(
            [[{"key": b"h", "value": b"x"}], [], None],
            pyarrow.list_(pyarrow.struct([("key", pyarrow.binary()), ("value", pyarrow.binary())])),
        ),
    }
)
BROKER_TOPIC = BrokerTopic(first_offset=100, leader_epoch=3)


def record_paths() -> Iterator[Path]:
    for name, batch in formats():
        data = records.encode_batch(batch)
        yield Path(f"encode {name}", lambda batch: records.encode_batch(batch), partial(lambda b: replace(b), batch))
        yield Path(f"check {name}", lambda data: records.check(data), partial(bytes, data))
        yield Path(f"read {name}", lambda data: records.read(data), partial(bytes, data))
        yield Path(f"iterate {name}", iterated, partial(bytes, data))
        yield Path(f"columns {name}", lambda data: records.columns(data), partial(bytes, data), lambda t: t.to_pylist())
        # A reader that is told too little, or reads what is broken, says so and never that there was no memory.
        yield Path(f"check broken {name}", lambda data: records.check(data), partial(spoiled, data, len(data) - 9))
        if batch.compression != "none":
            small = Limits(decompressed_bytes=60)
            yield Path(
                f"check over the limit {name}",
                partial(lambda s, d: records.check(d, limits=s), small),
                partial(bytes, data),
            )
    data = RECORDS_2
    given = partial(bytes, data)
    yield Path("decode", lambda data: records.decode(data), given)
    yield Path("batches", lambda data: list(records.batches(data)), given)
    yield Path("check a bytearray", lambda data: records.check(data), lambda: bytearray(data))
    yield Path("decode a bytearray", lambda data: records.decode(data), lambda: bytearray(data))
    yield Path("check strict, key not text", lambda d: records.check(d, profile="strict"), lambda: KEY_NOT_TEXT)
    yield Path("check many records", lambda data: records.check(data), lambda: MANY)
    yield Path("read many records", lambda data: records.read(data).batches[0].records, lambda: MANY)
    yield Path("iterate many records", iterated, lambda: MANY)
    yield Path("columns of many records", lambda d: records.columns(d), lambda: MANY, lambda table: table.to_pylist())
    yield Path("go on with an iterator", fields, lambda: records.iterate(MANY), lasts=False)
    for role in ("broker", "log"):
        yield Path(f"read as {role}", partial(lambda role, d: records.read(d, role=role), role), given)
    compressed = records.encode_batch(batch_of(2, "zstd"))
    yield Path("read compressed as broker", lambda d: records.read(d, role="broker"), lambda: compressed)
    yield Path("read control batches", lambda data: records.read(data, role="log"), lambda: MARKED)
    yield Path("a lazy record's fields", fields, lazy_records)
    # Not one with headers: CPython 3.11 takes a tuple for one that holds itself after its text could not be made.
    yield Path("lazy records as text", lambda given: [repr(record) for record in given[:2]], lazy_records)
    yield Path("records compared", lambda given: given == batch_of(2, "none").records, lazy_records)
    yield Path("encode lazy records", lambda given: records.encode_batch(RecordBatch(0, 2, given)), lazy_records)
    odd = [Record(0, 1, bytearray(b"key"), memoryview(b"value"), [(bytearray(b"h"), None)])]  # type: ignore[arg-type]
    yield Path("encode what must be copied", lambda r: records.encode_batch(RecordBatch(0, 0, r)), lambda: odd)
    yield Path("encode_columns", lambda table: records.encode_columns(table), lambda: TABLE)
    like = RecordBatch(0, 0, compression="lz4")
    yield Path("encode_columns compressed", lambda t: records.encode_columns(t, like=like), lambda: TABLE)
    yield Path("to_json", lambda batches: records.to_json(batches), lambda: records.decode(data))
    form = records.to_json(records.decode(data))
    yield Path("from_json", lambda form: records.from_json(form), lambda: form)


def record_tool_paths() -> Iterator[Path]:
    data = RECORDS_2
    packed = records.encode_batch(batch_of(2, "gzip"))
    old = records.encode_batch(batch_of(1, "snappy"))
    yield Path("annotate", lambda data: list(annotate.annotate(data)), lambda: packed)
    yield Path("append", lambda data: append.append(data, BROKER_TOPIC), lambda: data)
    other = replace(BROKER_TOPIC, compression="lz4")
    yield Path("append under another codec", lambda data: append.append(data, other), lambda: packed)
    yield Path("recompress", lambda data: append.recompress(data, "zstd"), lambda: packed)
    yield Path("convert down", lambda data: convert.convert(data, 1), lambda: packed)
    yield Path("convert up", lambda data: convert.convert(data, 2), lambda: old)
    yield Path("convert appended", lambda d: convert.convert_appended(d, 2, base_offset=9), lambda: old)
    keep = lambda batch, record: record.offset != 1  # noqa: E731
    yield Path("compact", lambda data: compact.compact(data, keep, now_ms=0), lambda: packed)
    yield Path("compact legacy", lambda data: compact.compact(data, keep, now_ms=0), lambda: old)
    yield Path("check_stream", lambda data: stream.check_stream(data), lambda: MARKED)
    yield Path("find transactions", lambda data: found_transactions(data), lambda: MARKED)
    yield Path("read_committed", lambda data: list(stream.read_committed(data)), lambda: MARKED)
    voters = control.ControlRecord(
        control.ControlRecordKey(control.ControlRecordType.KRAFT_VOTERS),
        control.VotersRecord(
            (control.Voter(1, bytes(16), (control.Endpoint("C", "host", 9093),), control.KRaftVersionFeature(0, 1)),)
        ),
    )
    yield Path("encode control", lambda record: control.encode_control(record), lambda: voters)
    yield Path("decode control", lambda pair: control.decode_control(*pair), lambda: control.encode_control(voters))


# ------------------------------------------------------------------------------------------------- messages

FETCH = {
    "responses": [
        {
            "topic": "t\u00e9",
            "partitions": [
                {
                    "partitionIndex": 1,
                    "highWatermark": 1 << 40,
                    "records": RECORDS_2,
                    "divergingEpoch": {"epoch": 3, "endOffset": 4},
                    "_unknownTaggedFields": [(90, b"x")],
                },
                {"abortedTransactions": [{"producerId": 1000, "firstOffset": 2000}]},
            ],
        }
    ]
}
METADATA = {
    "brokers": [{"nodeId": 1000 + i, "host": f"h{i}", "port": 9092} for i in range(2)],
    "topics": [{"name": "a", "partitions": [{"leaderId": 1}]}, {"name": "b", "topicId": bytes(range(16))}],
}
SMALL_DEFINITION = """{
  "apiKey": 77, "type": "request", "listeners": ["broker"], "name": "SmallRequest", "validVersions": "0-1",
  "flexibleVersions": "1+", "fields": [
    { "name": "Names", "type": "[]string", "versions": "0+", "nullableVersions": "1+" },
    { "name": "Ratio", "type": "float64", "versions": "1+", "ignorable": true },
    { "name": "Parts", "type": "[]Part", "versions": "0+", "fields": [
      { "name": "Key", "type": "int32", "versions": "0+", "mapKey": true },
      { "name": "Extra", "type": "bytes", "versions": "1+", "tag": 0, "taggedVersions": "1+" } ] } ] }"""


@dataclass
class Told:
    """A message, its values and its bytes."""

    name: str
    version: int
    values: dict[str, Any]
    data: bytes

    @classmethod
    def of(cls, name: str, version: int, values: dict[str, Any]) -> Told:
        return cls(name, version, values, codec.encode(name, version, values))


MESSAGES = [Told.of("FetchResponse", 12, FETCH), Told.of("MetadataResponse", 12, METADATA)]
OBJECTS = {"dicts": False, "objects": True}


def fresh_programs(told: Told) -> Told:
    """The message's programs are compiled again, and with them the types of its objects."""
    catalogue().find(told.name).programs.clear()
    return told


def keyed_topics() -> Any:
    return codec.decode("MetadataResponse", 12, MESSAGES[1].data)["topics"]


def changed_topics(topics: Any) -> Any:
    """Elements are added, looked up and taken away again."""
    topics.append({"name": "c"})
    found = topics.find(name="c")
    topics.pop()
    return found


# The name of the client's software is no UTF-8: what Java makes of it is made by Python, with an error handler of ours.
BAD_TEXT = Told("ApiVersionsRequest", 3, {}, b"\x06\xff\xfe\xfdab\x021\0")


def paths_of(told: Told) -> Iterator[Path]:
    name, version, data, given = told.name, told.version, told.data, always(told)
    called = f"{name} {version}"
    definition = catalogue().find(name)
    program = schema(definition, version)

    def decoded(objects: bool = False) -> Any:
        return codec.decode(name, version, data, objects=objects)

    fresh = partial(fresh_programs, told)
    yield Path(f"compile {called}", lambda t: codec.check(name, version, data), fresh)
    yield Path(f"compile objects of {called}", lambda t: decoded(objects=True), fresh)
    yield Path(f"decode with defaults {called}", lambda t: codec.decode(name, version, data, defaults=True), given)
    yield Path(f"check {called}", lambda t: codec.check(name, version, t.data), given)
    yield Path(f"check more than {called}", lambda t: codec.check(name, version, t.data + b"!"), given)
    yield Path(f"check a part of {called}", lambda t: codec.check(name, version, t.data[:-7]), given)
    yield Path(f"read {called}", lambda t: codec.read(name, version, t.data), given)
    yield Path(f"size {called}", lambda t: codec.size(name, version, t.values), given)
    for kind, objects in OBJECTS.items():
        yield Path(f"decode {kind} of {called}", lambda t, objects=objects: decoded(objects), given)
        values = always(decoded(objects))
        yield Path(f"encode {kind} of {called}", lambda values: codec.encode(name, version, values), values)
        if name == "MetadataResponse":
            other = f"encode {kind} of another version of {called}"
            yield Path(other, lambda values: codec.encode(name, version - 1, values), values)
        if objects:
            pair = always((decoded(objects), decoded(objects)))
            yield Path(f"{kind} of {called} as dicts", lambda value: value.to_dict(), values)
            yield Path(f"{kind} of {called} compared", lambda pair: pair[0] == pair[1], pair)
    yield Path(f"places of {called}", lambda data: program.places(data), always(data))
    yield Path(f"annotate {called}", lambda t: message_annotate.annotate(name, version, t.data), given)
    form = jsonform.to_json(definition, version, told.values)
    yield Path(f"to_json {called}", lambda t: jsonform.to_json(definition, version, t.values), given)
    yield Path(f"from_json {called}", lambda form: jsonform.from_json(definition, version, form), always(form))
    mutator = lambda: MessageMutator(program)  # noqa: E731
    yield Path(f"mutate {called}", lambda t: [mutator().mutate(data, Dice(i), other=data) for i in range(6)], given)


def message_paths() -> Iterator[Path]:
    bad = always(BAD_TEXT)
    yield Path("check text that is no UTF-8", lambda t: codec.check(t.name, t.version, t.data), bad)
    yield Path("read text that is no UTF-8", lambda t: codec.read(t.name, t.version, t.data), bad)
    yield Path("decode text that is no UTF-8", lambda t: codec.decode(t.name, t.version, t.data), bad)
    for told in MESSAGES:
        yield from paths_of(told)
    struct = codec.decode("FetchResponse", 12, MESSAGES[0].data, objects=True).responses[0].partitions[0].divergingEpoch
    yield Path("an object as text", lambda value: repr(value), lambda: struct)
    yield Path("check UTF-8", lambda data: codec.check("ApiVersionsRequest", 3, data), lambda: b"\x03\xc3\xa9\x021\x00")
    keys = lambda topics: [topics.find(name=name) for name in ("b", "a", "none")]  # noqa: E731
    yield Path("find in a list", keys, keyed_topics)
    yield Path("change a list that was looked up in", changed_topics, keyed_topics)
    yield Path(
        "find in a tuple",
        lambda data: codec.decode("MetadataResponse", 12, data, objects=True).topics.find(name="b"),
        lambda: MESSAGES[1].data,
    )
    yield Path("parse a definition", lambda text: parse_definition(text), lambda: SMALL_DEFINITION)
    yield Path(
        "encode by a new definition",
        lambda text: codec.encode(parse_definition(text), 1, {"parts": [{"key": 70000, "extra": b"e"}], "ratio": 2}),
        lambda: SMALL_DEFINITION,
    )
    request = catalogue().find("MetadataRequest")
    yield Path("request header version", lambda d: headers.request_header_version(d, 12), lambda: request)
    yield Path("read a primitive", lambda data: primitives.read("compact-string", data), lambda: b"\x03ab")
    yield Path("write a primitive", lambda value: primitives.write("compact-nullable-array", value), lambda: [70000, 2])
    yield Path("scramble", lambda data: [scrambled(data, Dice(i)) for i in range(6)], lambda: MESSAGES[1].data)


# ------------------------------------------------------------------------------------------------- the rest


def mutator_paths() -> Iterator[Path]:
    for role in ("consumer", "broker"):
        yield Path(
            f"inputs of a mutator as {role}",
            lambda m: [m.input_at(i) for i in range(0, 60, 5)],
            partial(lambda role: Mutator(seed=3, seeds=[RECORDS_2], role=role), role),
        )
    yield Path("mutate", lambda m: [m.mutate(RECORDS_2) for _ in range(6)], lambda: Mutator(seed=4), lasts=False)


HERE = pathlib.Path(__file__).parent
# Smaller than the file of a workload may say.
SMALL = {"size": 32 * 1024, "segment_bytes": 32 * 1024, "index_interval_bytes": 64}
WORKLOAD = replace(load(HERE / "mixed.toml"), **SMALL)
OPEN = load(HERE / "open.toml")


def planned(at: int) -> Segment:
    return Plan(OPEN)[at]


def corpus_paths() -> Iterator[Path]:
    yield Path("a segment", lambda segment: generate_segment(segment, WORKLOAD), lambda: next(iter(Plan(WORKLOAD))))
    # A transaction is open before the second segment, and the first one is cleaned.
    for at in (0, 1):
        yield Path(
            f"segment {at} of transactions", lambda segment: generate_segment(segment, OPEN), partial(planned, at)
        )
    yield Path("an open plan", lambda workload: list(Plan(workload)), lambda: OPEN)
    yield Path("a plan", lambda workload: list(Plan(workload)), lambda: WORKLOAD)


# ------------------------------------------------------------------------------------------------- planted faults


def swallows(_: object) -> list[int]:
    try:
        return [1000 + i for i in range(20)]
    except MemoryError:
        return []


def says_another_error(_: object) -> list[int]:
    try:
        return [1000 + i for i in range(20)]
    except MemoryError:
        raise ValueError("a sentence") from None


def does_half(given: list[int]) -> int:
    """The state is not as it was where the second half fails."""
    given.append(1)
    made = [1000 + i for i in range(20)]
    given.pop()
    return len(given) + len(made)


def ends_the_process(_: object) -> list[int]:
    try:
        return [1000 + i for i in range(20)]
    except MemoryError:
        os.abort()


def planted() -> list[Path]:
    """Faults that must be found."""
    return [
        Path("planted: swallows", swallows),
        Path("planted: another error", says_another_error),
        Path("planted: half done", does_half, list),
        Path("planted: crash", ends_the_process),
    ]


def paths() -> list[Path]:
    """All of them, by names that differ."""
    made = [*record_paths(), *record_tool_paths(), *message_paths(), *mutator_paths(), *corpus_paths()]
    names = [path.name for path in made]
    if len(set(names)) < len(names):
        sys.exit("two paths have one name")
    return made
