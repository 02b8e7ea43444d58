"""aiokafka as a testee: reads the records of a fetch like its consumer, and checks CRCs. Reads and writes messages.

It follows ``aiokafka.consumer.fetcher.PartitionRecords``, but it also reads and shows control batches, which the
consumer skips. For streams it uses that class itself. aiokafka does not expose a batch's size and leader epoch, and it
exposes almost nothing of a legacy batch. Batches are written with the builders of its producer.

Messages go through the classes of ``aiokafka.protocol``, as in ``aiokafka.conn``. There is one for each version, but
some are missing. Their schemas have the fields in Kafka's order, but many under other names, which ``names.txt`` has.
"""

from __future__ import annotations

import importlib.util
import io
import re
import struct
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_testee
from kfuzz_testee import Unsupported, from_json, to_json

try:
    import aiokafka
    from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, PartitionRecords
    from aiokafka.errors import CorruptRecordException, KafkaError
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
    from aiokafka.record.memory_records import MemoryRecords
    from aiokafka.structs import TopicPartition

    # Before 0.8 an unknown codec is an error of kafka-python.
    errors = importlib.import_module("aiokafka.errors")
    UnsupportedCodecError = (
        errors if hasattr(errors, "UnsupportedCodecError") else importlib.import_module("kafka.errors")
    ).UnsupportedCodecError
    # Before 0.9 it uses the codecs of kafka-python.
    codec = importlib.import_module("aiokafka.codec" if importlib.util.find_spec("aiokafka.codec") else "kafka.codec")
except ImportError as error:
    sys.exit(f"aiokafka cannot be imported ({error}); install it into {sys.executable}")

# Older versions have other classes, or those of kafka-python: they are judged by records only.
HAS_MESSAGES = True
try:
    from aiokafka.protocol.api import RequestStruct, Response, ResponseHeader_v0, ResponseHeader_v1
    from aiokafka.protocol.types import Array, Bytes, CompactBytes, Float64, Int64, Schema, TaggedFields
except ImportError:
    HAS_MESSAGES = False

# The exceptions that the library documents for bad records.
REJECTIONS = (KafkaError,)


def read(data: bytes) -> Iterator[tuple[dict[str, Any], None]]:
    memory = MemoryRecords(data)
    while memory.has_next():
        batch = memory.next_batch()
        if not batch.validate_crc():
            raise CorruptRecordException("Invalid CRC")
        records = [kfuzz_testee.record_json(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch]
        yield batch_json(batch) | {"records": records}, None


def read_stream(
    data: bytes, committed: bool, aborted: list[tuple[int, int]], fetch_offset: int, records: list[dict[str, Any]]
) -> int:
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    fetch = PartitionRecords(
        TopicPartition("kfuzz", 0), MemoryRecords(data), aborted, fetch_offset, None, None, True, isolation
    )
    for r in fetch:
        records.append(kfuzz_testee.record_json(r.offset, r.timestamp, r.key, r.value, r.headers))
    return int(fetch.next_fetch_offset)


def batch_json(batch: Any) -> dict[str, Any]:
    exposed = {
        "next_offset": str(batch.next_offset),
        "transactional": bool(batch.is_transactional),
        "control": bool(batch.is_control_batch),
    }
    if not hasattr(batch, "base_offset"):  # a legacy batch
        return exposed
    return exposed | {
        "base_offset": str(batch.base_offset),
        "last_offset": str(batch.base_offset + batch.last_offset_delta),
        "magic": batch.magic,
        "compression": kfuzz_testee.codec_name(batch.compression_type),
        "timestamp_type": kfuzz_testee.TIMESTAMP_TYPES[batch.timestamp_type],
        "producer_id": str(batch.producer_id),
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
    }


# --- messages ---------------------------------------------------------------------------------------------------------

# Kafka's name of each API that aiokafka has another one for.
APIS = {"ApiVersion": "ApiVersions", "Offset": "ListOffsets", "SaslHandShake": "SaslHandshake"}


def classes() -> Iterator[tuple[str, int, Any]]:
    """Each message, its version and its class."""
    yield from (("ResponseHeader", 0, ResponseHeader_v0), ("ResponseHeader", 1, ResponseHeader_v1))
    package = import_module("aiokafka.protocol")
    for module in iter_modules(package.__path__, "aiokafka.protocol."):
        for name, value in vars(import_module(module.name)).items():
            found = re.fullmatch(r"(\w+?)(Request|Response)_v(\d+)", name)
            if found and isinstance(value, type) and issubclass(value, (RequestStruct, Response)):
                yield APIS.get(found[1], found[1]) + found[2], int(found[3]), value


MESSAGES: dict[str, dict[int, Any]] = {}
for message, version, message_class in classes() if HAS_MESSAGES else ():
    MESSAGES.setdefault(message, {})[version] = message_class

# Kafka's name of a field by its place, or by "*".
NAMES = {
    (place, words[0]): words[1]
    for words in map(str.split, Path(__file__).with_name("names.txt").read_text().splitlines()[1:])
    for place in words[2:]
}
TAGS = "_unknownTaggedFields"


def key_of(place: str, name: str) -> str:
    usual = re.sub("_(.)", lambda letter: letter[1].upper(), name)
    return NAMES.get((place, name)) or NAMES.get(("*", name)) or usual


def class_of(message: str, version: int) -> Any:
    try:
        return MESSAGES[message][version]
    except KeyError:
        raise Unsupported(f"no version {version} of {message}") from None


def decode_message(message: str, version: int, data: bytes) -> tuple[dict[str, Any], int]:
    buffer = io.BytesIO(data)
    value = class_of(message, version).decode(buffer)
    return struct_json(message, value.SCHEMA, [value.get_item(name) for name in value.SCHEMA.names]), buffer.tell()


def encode_message(message: str, version: int, body: dict[str, Any]) -> bytes:
    message_class = class_of(message, version)
    # Not the constructor, which some classes have another one of: Struct's.
    return bytes(message_class.SCHEMA.encode(struct_of(message, message_class.SCHEMA, body)))


def fields_of(place: str, schema: Any) -> Iterator[tuple[str, str, Any]]:
    """The Kafka name, the place and the type of each field."""
    for name, kind in zip(schema.names, schema.fields, strict=True):
        yield TAGS if kind is TaggedFields else key_of(place, name), f"{place}.{name}", kind


def struct_json(place: str, schema: Any, values: Any) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for (key, inner, kind), value in zip(fields_of(place, schema), values, strict=True):
        if key == TAGS:
            said |= {TAGS: [{"tag": tag, "hex": data.hex()} for tag, data in value.items()]} if value else {}
        elif isinstance(kind, Schema):  # Kafka has no struct here: its fields are those of the outer one
            said |= struct_json(inner, kind, value)
        else:
            said[key] = field_json(inner, kind, value)
    return said


def field_json(place: str, kind: Any, value: Any) -> Any:
    if isinstance(kind, Array) and value is not None:
        if isinstance(kind.array_of, Schema):
            return [struct_json(place, kind.array_of, element) for element in value]
        elements = [field_json(f"{place}[]", kind.array_of, element) for element in value]
        return [{SINGLE[place]: element} for element in elements] if place in SINGLE else elements
    return to_json(primitive_of(kind), value)


# Lists of structs with one field, which aiokafka has as lists of that field.
SINGLE = {
    "CreatePartitionsRequest.topic_partitions.new_partitions.assignment": "brokerIds",
    "MetadataRequest.topics": "name",
}


def primitive_of(kind: Any) -> str:
    if kind in (Bytes, CompactBytes):
        return "bytes"
    return {Int64: "int64", Float64: "float64"}.get(kind, "") if isinstance(kind, type) else ""


def struct_of(place: str, schema: Any, body: dict[str, Any]) -> list[Any]:
    """The values of a struct in the order of its schema. The bodies' names that it does not have are refused."""
    left = dict(body)
    values = take(place, schema, left)
    if left:
        raise ValueError(f"{place} has no {next(iter(left))}")
    return values


def take(place: str, schema: Any, left: dict[str, Any]) -> list[Any]:
    values: list[Any] = []
    for key, inner, kind in fields_of(place, schema):
        if key == TAGS:
            values.append({tagged["tag"]: bytes.fromhex(tagged["hex"]) for tagged in left.pop(TAGS, ())})
        elif isinstance(kind, Schema):
            values.append(take(inner, kind, left))
        else:
            values.append(value_of(inner, kind, left.pop(key, None)))
    return values


def value_of(place: str, kind: Any, value: Any) -> Any:
    if isinstance(kind, Array) and value is not None:
        if isinstance(kind.array_of, Schema):
            return [struct_of(place, kind.array_of, element) for element in value]
        elements = [element[SINGLE[place]] for element in value] if place in SINGLE else value
        return [value_of(f"{place}[]", kind.array_of, element) for element in elements]
    return from_json(primitive_of(kind), value)


if __name__ == "__main__":
    installed = {
        "gzip": codec.has_gzip(),
        "snappy": codec.has_snappy(),
        "lz4": codec.has_lz4(),
        "zstd": codec.has_zstd(),
    }
    kfuzz_testee.serve(
        {
            "name": "aiokafka",
            "version": aiokafka.__version__,
            "roles": ["consumer"],
            "magic": [0, 1, 2],
            "codecs": ["none", *(name for name, there in installed.items() if there)],
            "checks_crc": True,
            "control": "shown",
            "messages": {name: [min(versions), max(versions)] for name, versions in sorted(MESSAGES.items())},
        },
        read,
        rejections=REJECTIONS,
        stream=read_stream,
        write=kfuzz_testee.producer_writer(
            DefaultRecordBatchBuilder, LegacyRecordBatchBuilder, (UnsupportedCodecError,)
        ),
        messages=kfuzz_testee.Codec(
            decode_message, encode_message, rejections=(KafkaError, ValueError, struct.error), refusals=(ValueError,)
        ),
        package="aiokafka",
    )
