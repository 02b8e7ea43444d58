"""kio as a testee: its messages of every API and version, its primitives, and its record batches.

kio is a library of types, not a client. Its entry points are ``entity_reader`` and ``entity_writer`` for messages, and
``read_batch`` and ``write_batch`` for one whole batch. It knows magic 2 only, and compresses nothing.

kio has its own names and types for some fields: a duration is a timedelta, a time is a datetime, and both have lost
the ``Ms`` of Kafka's name. This module converts them back. kio refuses bytes whose values its types cannot hold.
"""

from __future__ import annotations

import datetime
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args, get_origin

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_testee
from kfuzz_testee import Codec, Unsupported, from_json, to_json

# kio's types register with hypothesis where that is installed, which takes time and leaves files in this folder.
sys.modules["hypothesis"] = None  # type: ignore[assignment]

try:
    from kio.index import load_entity_schema
    from kio.records.readers import read_batch
    from kio.records.schema import NewRecordBatch, Record, RecordHeader
    from kio.records.writers import write_batch
    from kio.schema.errors import ErrorCode
    from kio.schema.index import schema_name_map
    from kio.serial import entity_reader, entity_writer, readers, writers
    from kio.serial.errors import SerialError
except ImportError as error:
    sys.exit(f"kio cannot be imported ({error}); install it into {sys.executable}")

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)

# Maps Kafka's message name and version to kio's API name and entity type.
# The index gives the place of each class, which ends with the class's name.
MESSAGES: dict[str, dict[int, tuple[str, Any]]] = {}
for api, versions in schema_name_map.items():
    for at_version, places in versions.items():
        for entity_type, place in places.items():
            MESSAGES.setdefault(place.rpartition(":")[2], {})[at_version] = (api, entity_type)


def entity(message: str, at_version: int) -> Any:
    """kio's class of a message; there is one for each version."""
    try:
        api, entity_type = MESSAGES[message][at_version]
    except KeyError:
        raise Unsupported(f"no version {at_version} of {message}") from None
    return load_entity_schema(api, at_version, entity_type)


def decode_message(message: str, at_version: int, data: bytes) -> tuple[dict[str, Any], int]:
    value, size = entity_reader(entity(message, at_version))(data, 0)
    return struct_json(message, value), size


def encode_message(message: str, at_version: int, body: dict[str, Any]) -> bytes:
    entity_class = entity(message, at_version)
    buffer = io.BytesIO()
    entity_writer(entity_class)(buffer, struct_of(message, entity_class, body))
    return buffer.getvalue()


def key_of(message: str, field: Field[Any]) -> str:
    """Kafka's name of a field, with a small first letter."""
    # A trailing underscore is Python's: ``type_`` and ``id_`` would hide a builtin.
    name = re.sub("_(.)", lambda match: match[1].upper(), field.name.rstrip("_"))
    name += "Ms" if kind_of(field).startswith(("timedelta", "datetime")) else ""
    return kfuzz_testee.NEWER_NAMES.get((message, name), name)


def kind_of(field: Field[Any]) -> str:
    """kio's word for the type of a field, or of the elements of an array; empty for structs."""
    return str(field.metadata.get("kafka_type", ""))


def array_in(hint: Any) -> Any:
    """The tuple in a type like ``tuple[X, ...] | None``, or None if it is no array."""
    return next((one for one in (hint, *get_args(hint)) if get_origin(one) is tuple), None)


def struct_in(hint: Any) -> Any:
    """The struct's class in a type like ``tuple[X, ...] | None`` or ``X | None``, or None if there is none."""
    return next((one for one in (hint, *get_args(array_in(hint) or hint)) if is_dataclass(one)), None)


# --- from kio's objects -----------------------------------------------------------------------------------------------


def struct_json(message: str, value: Any) -> dict[str, Any]:
    return {key_of(message, field): field_json(message, field, getattr(value, field.name)) for field in fields(value)}


def field_json(message: str, field: Field[Any], value: Any) -> Any:
    if array_in(field.type):
        return None if value is None else [element_json(message, field, element) for element in value]
    return element_json(message, field, value)


def element_json(message: str, field: Field[Any], value: Any) -> Any:
    if is_dataclass(value):
        return struct_json(message, value)
    kind = kind_of(field)
    if kind == "error_code":
        return int(value)
    if kind.startswith("timedelta"):
        number = value // MILLISECOND
    elif kind.startswith("datetime"):
        number = -1 if value is None else (value - EPOCH) // MILLISECOND
    else:
        return to_json(kind, value)
    return to_json("int64", number) if kind.endswith("i64") else number


# --- to kio's objects -------------------------------------------------------------------------------------------------


def struct_of(message: str, entity_class: Any, body: dict[str, Any]) -> Any:
    if "_unknownTaggedFields" in body:
        raise Unsupported("no class of kio has a place for unknown tagged fields")
    by_key = {key_of(message, field): field for field in fields(entity_class)}
    values = {}
    for key, value in body.items():
        field = by_key.get(key)
        # kio's class refuses a name that it does not know.
        values[field.name if field else key] = field_of(message, field, value) if field else value
    return entity_class(**values)


def field_of(message: str, field: Field[Any], value: Any) -> Any:
    if value is not None and array_in(field.type):
        return tuple(element_of(message, field, element) for element in value)
    return element_of(message, field, value)


def element_of(message: str, field: Field[Any], value: Any) -> Any:
    if value is None:
        return None
    if nested := struct_in(field.type):
        return struct_of(message, nested, value)
    kind = kind_of(field)
    try:
        if kind == "error_code":
            return ErrorCode(value)
        if kind.startswith("timedelta"):
            return int(value) * MILLISECOND
        if kind.startswith("datetime"):
            # kio represents -1 (no time) as None.
            return None if int(value) == -1 else readers.tz_aware_from_i64(int(value))
    except (ValueError, OverflowError, SerialError) as error:
        raise Unsupported(f"kio has no such value of type {kind}: {error}") from error
    converted = from_json(kind, value)
    # kio represents the zero uuid as None.
    return None if kind == "uuid" and not converted.int else converted


# --- primitives -------------------------------------------------------------------------------------------------------

# A reader, a writer, and the type that gives the JSON form. kio has no reader for arrays that must not be null: its
# readers of such fields are those for arrays that may be.
PRIMITIVES: dict[str, tuple[Any, Any, str]] = {
    "bool": (readers.read_boolean, writers.write_boolean, "bool"),
    "int8": (readers.read_int8, writers.write_int8, "int8"),
    "int16": (readers.read_int16, writers.write_int16, "int16"),
    "uint16": (readers.read_uint16, writers.write_uint16, "uint16"),
    "int32": (readers.read_int32, writers.write_int32, "int32"),
    "uint32": (readers.read_uint32, writers.write_uint32, "uint32"),
    "int64": (readers.read_int64, writers.write_int64, "int64"),
    "float64": (readers.read_float64, writers.write_float64, "float64"),
    "uuid": (readers.read_uuid, writers.write_uuid, "uuid"),
    "varint": (readers.read_signed_varint, writers.write_signed_varint, "varint"),
    "varlong": (readers.read_signed_varlong, writers.write_signed_varlong, "varlong"),
    "unsigned-varint": (readers.read_unsigned_varint, writers.write_unsigned_varint, "unsigned-varint"),
    "string": (readers.read_legacy_string, writers.write_legacy_string, "string"),
    "nullable-string": (readers.read_nullable_legacy_string, writers.write_nullable_legacy_string, "string"),
    "compact-string": (readers.read_compact_string, writers.write_compact_string, "string"),
    "compact-nullable-string": (readers.read_compact_string_nullable, writers.write_nullable_compact_string, "string"),
    "bytes": (readers.read_legacy_bytes, writers.write_legacy_bytes, "bytes"),
    "nullable-bytes": (readers.read_nullable_legacy_bytes, writers.write_nullable_legacy_bytes, "bytes"),
    "compact-bytes": (readers.read_compact_string_as_bytes, writers.write_compact_string, "bytes"),
    "compact-nullable-bytes": (
        readers.read_compact_string_as_bytes_nullable,
        writers.write_nullable_compact_string,
        "bytes",
    ),
    "nullable-array": (
        readers.legacy_array_reader(readers.read_int32),
        writers.legacy_array_writer(writers.write_int32),
        "array",
    ),
    "compact-nullable-array": (
        readers.compact_array_reader(readers.read_int32),
        writers.compact_array_writer(writers.write_int32),
        "array",
    ),
}


def decode_primitive(primitive: str, data: bytes) -> tuple[Any, int]:
    read, _, kind = PRIMITIVES[primitive]
    value, size = read(data, 0)
    return to_json(kind, list(value) if isinstance(value, tuple) else value), size


def encode_primitive(primitive: str, value: Any) -> bytes:
    _, write, kind = PRIMITIVES[primitive]
    buffer = io.BytesIO()
    write(buffer, from_json(kind, value))
    return buffer.getvalue()


# --- records ----------------------------------------------------------------------------------------------------------

LOG_APPEND, TRANSACTIONAL, CONTROL, HAS_DELETE_HORIZON = 1 << 3, 1 << 4, 1 << 5, 1 << 6


def read_records(data: bytes) -> Iterator[tuple[dict[str, Any], int]]:
    at = 0
    while at < len(data):
        batch, size = read_batch(data, at)
        yield batch_json(batch) | {"records": [record_json(record) for record in batch.records]}, size
        at += size


def record_json(record: Any) -> dict[str, Any]:
    # kio accepts a null header key. Kafka refuses it, so the protocol cannot express it.
    headers = [(header.key or b"", header.value) for header in record.headers]
    timestamp_ms = (record.timestamp - EPOCH) // MILLISECOND
    return kfuzz_testee.record_json(record.offset, timestamp_ms, record.key, record.value, headers)


def batch_json(batch: Any) -> dict[str, Any]:
    """kio returns attributes as a number, and the last offset as a delta."""
    codec = batch.attributes & 7
    # kio reads a batch of a codec that Kafka does not have, and the protocol has no name for it.
    compression = {"compression": kfuzz_testee.codec_name(codec)} if codec < len(kfuzz_testee.CODECS) else {}
    return compression | {
        "base_offset": str(batch.base_offset),
        "magic": batch.magic,
        "timestamp_type": "log-append" if batch.attributes & LOG_APPEND else "create",
        "transactional": bool(batch.attributes & TRANSACTIONAL),
        "control": bool(batch.attributes & CONTROL),
        "producer_id": str(batch.producer_id),
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "delete_horizon": str(batch.base_timestamp) if batch.attributes & HAS_DELETE_HORIZON else None,
    }


def write_records(batches: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    for batch in batches:
        offsets = [record["offset"] for record in batch["records"]]
        if [batch["base_offset"], batch["last_offset"]] != [*offsets[:1], *offsets[-1:]]:
            raise Unsupported("the writer takes the offsets of a batch from its first and last record")
        if batch["delete_horizon"] is not None:
            raise Unsupported("the writer sets no delete horizon")
        log_append = LOG_APPEND if batch["timestamp_type"] == "log-append" else 0
        attributes = log_append | TRANSACTIONAL * batch["transactional"] | CONTROL * batch["control"]
        new = NewRecordBatch(
            producer_id=int(batch["producer_id"]),
            producer_epoch=batch["producer_epoch"],
            partition_leader_epoch=batch["partition_leader_epoch"],
            base_sequence=batch["base_sequence"],
            attributes=attributes,
            records=tuple(map(record_of, batch["records"])),
        )
        write_batch(buffer, new)
    return buffer.getvalue()


def record_of(record: dict[str, Any]) -> Any:
    offset, timestamp_ms, key, value, headers = kfuzz_testee.record_of(record)
    try:
        timestamp = EPOCH + timestamp_ms * MILLISECOND
    except OverflowError as error:
        raise Unsupported(f"kio's timestamps are datetimes: {error}") from error
    named = tuple(RecordHeader(key=name.encode(), value=header) for name, header in headers)
    return Record(attributes=0, timestamp=timestamp, offset=offset, key=key, value=value, headers=named)


if __name__ == "__main__":
    # kio has its own error classes, but often raises a plain ValueError.
    rejections = (SerialError, ValueError)
    # Its writer refuses a null with a TypeError, and its classes a name that they do not know.
    refusals = (SerialError, ValueError, TypeError)
    kfuzz_testee.serve(
        {
            "name": "kio",
            "version": version("kio"),
            "roles": ["consumer"],
            "magic": [2],
            "codecs": ["none"],
            "checks_crc": True,
            "control": "shown",
            "outcomes": ["panic"],
            # The range of kio's datetimes. They can hold milliseconds, so read_batch loses data when it drops them.
            "timestamps": {"low": "0", "high": "253402300799999", "resolution_ms": 1},
            # read_batch takes one whole batch.
            "tails": "refused",
            "messages": {name: [min(versions), max(versions)] for name, versions in sorted(MESSAGES.items())},
            "primitives": list(PRIMITIVES),
        },
        read_records,
        rejections,
        write=write_records,
        messages=Codec(decode_message, encode_message, rejections, refusals),
        primitives=Codec(decode_primitive, encode_primitive, rejections, refusals),
        package="kio",
    )
