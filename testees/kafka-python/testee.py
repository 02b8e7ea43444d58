"""kafka-python as a testee: reads the records of a fetch like its consumer, and checks CRCs. Reads and writes messages
and varints.

For records it follows ``kafka.consumer.fetcher.Fetcher.PartitionRecords``, but it also reads and shows control batches,
which the consumer skips. For streams it uses that class itself. kafka-python does not expose a delete horizon. Of a
legacy batch it exposes no offsets except those of the records. Batches are written with the builders of its producer.

Messages go through the classes that kafka-python makes from Kafka's definitions, as in ``kafka.protocol.parser``, which
takes ``ValueError`` and ``struct.error`` for bad input. Each class has all versions from 0, also those that Kafka has
dropped. The fields are found by the definitions that kafka-python carries: it has its own names and types for some.
CreatePartitionsRequest is what the admin client makes of a user's call.
"""

from __future__ import annotations

import inspect
import io
import struct
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_testee
from kfuzz_testee import Unsupported, from_json, to_json

try:
    import kafka
    from kafka import codec
    from kafka.consumer import fetcher
    from kafka.errors import CorruptRecordException as CorruptRecordError
    from kafka.errors import KafkaError
    from kafka.record.default_records import DefaultRecord, DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords
    from kafka.structs import TopicPartition

    # Before that, each version of a message has a class of its own.
    HAS_MESSAGES = int(kafka.__version__.partition(".")[0]) >= 3
    if HAS_MESSAGES:
        from kafka import KafkaAdminClient
        from kafka.protocol import admin, consumer, metadata, producer, sasl
        from kafka.protocol.api_data import ApiData
        from kafka.protocol.api_header import ApiHeader, RequestHeader, ResponseHeader
        from kafka.protocol.api_message import ApiMessage
        from kafka.protocol.schemas import BaseField, load_json
        from kafka.protocol.schemas.fields.codecs import types
    else:
        from kafka.protocol import types

        try:
            from kafka.protocol.api_versions import ApiVersionsRequest  # since 2.1
        except ImportError:
            ApiVersionsRequest = None
except ImportError as error:
    sys.exit(f"kafka-python cannot be imported ({error}); install it into {sys.executable}")


class AbortedTransaction(NamedTuple):
    """The fields of an aborted transaction in a fetch response that the library uses."""

    producer_id: int
    first_offset: int


# The exceptions that the library documents for bad records.
REJECTIONS = (KafkaError,)
# The consumer of version 2.0 checks no CRC, and knows nothing of transactions.
CHECKS_CRC = hasattr(DefaultRecord, "validate_crc")
PartitionRecords = fetcher.Fetcher.PartitionRecords
HAS_STREAMS = "isolation_level" in inspect.signature(PartitionRecords).parameters


def read(data: bytes) -> Iterator[tuple[dict[str, Any], int | None]]:
    memory = MemoryRecords(data)
    batch = memory.next_batch()
    while batch is not None:
        if CHECKS_CRC and not batch.validate_crc():
            raise CorruptRecordError(f"Record batch at offset {batch.base_offset} failed crc check")
        size_bytes = getattr(batch, "size_in_bytes", None)
        records = []
        for record in batch:
            if CHECKS_CRC and not record.validate_crc():
                raise CorruptRecordError(f"Record at offset {record.offset} failed crc check")
            records.append(
                kfuzz_testee.record_json(record.offset, record.timestamp, record.key, record.value, record.headers)
            )
        yield batch_json(batch) | {"records": records}, size_bytes
        batch = memory.next_batch()


def read_stream(
    data: bytes, committed: bool, aborted: list[tuple[int, int]], fetch_offset: int, records: list[dict[str, Any]]
) -> int:
    transactions = [AbortedTransaction(producer_id, first_offset) for producer_id, first_offset in aborted]
    levels = getattr(fetcher, "IsolationLevel", fetcher)
    fetch = PartitionRecords(
        fetch_offset,
        TopicPartition("kfuzz", 0),
        MemoryRecords(data),
        isolation_level=levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED,
        aborted_transactions=transactions,
    )
    while fetch and (taken := fetch.take(1)):
        for r in taken:
            records.append(kfuzz_testee.record_json(r.offset, r.timestamp, r.key, r.value, r.headers))
    return int(fetch.next_fetch_offset)


# The fields of a batch of magic 2: the protocol's name, the library's name, and how it is shown. Old versions have few.
FIELDS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("magic", "magic", int),
    ("base_offset", "base_offset", str),
    ("last_offset", "last_offset", str),
    ("next_offset", "next_offset", str),
    ("transactional", "is_transactional", bool),
    ("control", "is_control_batch", bool),
    ("producer_id", "producer_id", str),
    ("producer_epoch", "producer_epoch", int),
    ("base_sequence", "base_sequence", int),
    ("partition_leader_epoch", "leader_epoch", int),
)


def batch_json(batch: Any) -> dict[str, Any]:
    exposed = {
        "compression": kfuzz_testee.codec_name(batch.compression_type),
        "timestamp_type": kfuzz_testee.TIMESTAMP_TYPES[batch.timestamp_type],
    }
    # A legacy batch's base_offset is the wrapper's own offset, which is not Kafka's base offset.
    fields = FIELDS if getattr(batch, "magic", 0) == 2 else FIELDS[:1]
    return exposed | {name: show(getattr(batch, own)) for name, own, show in fields if hasattr(batch, own)}


# --- messages ---------------------------------------------------------------------------------------------------------

MESSAGES: dict[str, Any] = {}
if HAS_MESSAGES:
    MESSAGES = {
        name: value
        for module in (admin, consumer, metadata, producer, sasl)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, (ApiMessage, ApiData)) and value not in (ApiMessage, ApiData)
    } | {"RequestHeader": RequestHeader, "ResponseHeader": ResponseHeader}

# The first version of ApiVersionsRequest that has fields.
FIRST_FLEXIBLE = 3
# Kafka's number for unknown operations. kafka-python uses None, otherwise a set of bit numbers.
NOT_KNOWN = -(1 << 31)


def versions_of(message: Any) -> list[int]:
    if issubclass(message, ApiHeader):
        low, high = BaseField.parse_versions(message._json["validVersions"])
        return [low, high]
    return [message.min_version, message.max_version]


def is_flexible(header: Any, version: int) -> bool:
    return bool(version >= BaseField.parse_versions(header._json["flexibleVersions"])[0])


@cache
def definition_of(name: str) -> list[Any]:
    """The fields in Kafka's own names and types. The classes' fields are the same in the same order."""
    fields: list[Any] = load_json(name)["fields"]
    return fields


def message_of(name: str, version: int) -> Any:
    if name not in MESSAGES or not versions_of(MESSAGES[name])[0] <= version <= versions_of(MESSAGES[name])[1]:
        raise Unsupported(f"no version {version} of {name}")
    return MESSAGES[name]


def decode_message(name: str, version: int, data: bytes) -> tuple[dict[str, Any], int | None]:
    message = message_of(name, version)
    buffer, consumed = io.BytesIO(data), None
    if issubclass(message, ApiMessage):
        value = message[version].decode(data)
    elif issubclass(message, ApiData):
        value, consumed = message.decode(buffer, version=version, header=False), buffer.tell()
    else:
        value, consumed = message.decode(buffer, flexible=is_flexible(message, version)), buffer.tell()
    return Form(name, version).of_struct(definition_of(name), message.fields, value), consumed


def encode_message(name: str, version: int, body: dict[str, Any]) -> bytes:
    message = message_of(name, version)
    made = create_partitions(body) if name == "CreatePartitionsRequest" else None
    value = made or Form(name, version).to_struct(definition_of(name), message, body)
    if issubclass(message, ApiMessage):
        return bytes(value.encode(version=version))
    if issubclass(message, ApiData):
        return bytes(value.encode(version=version, header=False))
    return bytes(value.encode(flexible=is_flexible(message, version)))


def create_partitions(body: dict[str, Any]) -> Any:
    """The request that the admin client makes of its user's arguments; None if no arguments say this."""
    # For the timeout 0 it takes another.
    if not (body.get("topics") and body.get("timeoutMs")) or "_unknownTaggedFields" in str(body):
        return None

    class Unsent(KafkaAdminClient):
        def __init__(self) -> None:
            self._manager = self

        def run(self, send: Any, request: Any, *rest: Any) -> Any:
            return request

    wanted: dict[str, Any] = {}
    for topic in body["topics"]:
        name, count, assignments = topic["name"], topic["count"], topic.get("assignments", ())
        brokers = [one["brokerIds"] for one in assignments or ()]
        wanted[name] = count if assignments is None else {"count": count, "assignments": brokers}
    if len(wanted) < len(body["topics"]):
        return None
    options = {"timeout_ms": body["timeoutMs"], "validate_only": body.get("validateOnly", False)}
    return Unsent().create_partitions(wanted, **options)


class Form(NamedTuple):
    """Converts the values of one message, in one version, to the protocol's JSON form and back."""

    message: str
    version: int

    def key_of(self, defined: dict[str, Any]) -> str:
        name = defined["name"]
        key = name[0].lower() + name[1:]
        return kfuzz_testee.NEWER_NAMES.get((self.message, key), key)

    def of_struct(self, definition: list[Any], fields: dict[str, Any], value: Any) -> dict[str, Any]:
        said = {
            self.key_of(defined): self.of_field(defined, field, getattr(value, field.name))
            for defined, field in zip(definition, fields.values(), strict=True)
            if field.for_version_q(self.version)
        }
        if value.unknown_tags:
            unknown = value.unknown_tags.items()
            said["_unknownTaggedFields"] = [{"tag": int(name[1:]), "hex": tagged.hex()} for name, tagged in unknown]
        return said

    def of_field(self, defined: dict[str, Any], field: Any, value: Any) -> Any:
        is_default = value is None and field.is_struct() and field.tagged_field_q(self.version)
        if is_default and not field.nullable_for_version_q(self.version):
            # kafka-python uses None for a missing tagged struct. Kafka uses its default.
            value = field(version=self.version)
        if field.type_str == "bitfield":
            bits = NOT_KNOWN if value is None else sum(1 << bit for bit in value)
            return bits - (1 << 32) if bits >= 1 << 31 else bits
        if value is None and defined["type"] != "uuid":
            return None
        if field.is_struct_array():
            return [self.of_struct(defined["fields"], field.fields, element) for element in value]
        if field.is_struct():
            return self.of_struct(defined["fields"], field.fields, value)
        if field.is_array():
            return [to_json(defined["type"].removeprefix("[]"), element) for element in value]
        return to_json(defined["type"], value)

    def to_struct(self, definition: list[Any], kind: Any, body: dict[str, Any]) -> Any:
        """An object of ``kind``, a class of a message or a field with a struct."""
        known = {
            self.key_of(defined): (defined, field)
            for defined, field in zip(definition, kind.fields.values(), strict=True)
        }
        values = {}
        for key, value in body.items():
            if key == "_unknownTaggedFields":
                values |= {f"_{unknown['tag']}": bytes.fromhex(unknown["hex"]) for unknown in value}
            elif key in known:
                defined, field = known[key]
                values[field.name] = self.to_field(defined, field, value)
            else:
                # The class refuses a name that it does not know.
                values[BaseField.underscore_name(key)] = value
        return kind(version=self.version, **values)

    def to_field(self, defined: dict[str, Any], field: Any, value: Any) -> Any:
        if field.type_str == "bitfield":
            return None if value == NOT_KNOWN else {bit for bit in range(32) if value >> bit & 1}
        if value is None:
            return None
        if field.is_struct_array():
            return [self.to_struct(defined["fields"], field, element) for element in value]
        if field.is_struct():
            return self.to_struct(defined["fields"], field, value)
        if field.is_array():
            return [from_json(defined["type"].removeprefix("[]"), element) for element in value]
        converted = from_json(defined["type"], value)
        # kafka-python represents the zero uuid as None.
        return None if defined["type"] == "uuid" and not converted.int else converted


# Before version 3.0 of the library only ApiVersionsRequest, the request with which each connection begins.


def decode_first_request(name: str, version: int, data: bytes) -> tuple[dict[str, Any], int]:
    stream, said = io.BytesIO(data), {}
    for field, value in vars(ApiVersionsRequest[version].decode(stream)).items():
        if field.startswith("client"):
            head, *rest = field.split("_")
            said[head + "".join(map(str.title, rest))] = to_json("string", value)
        elif field == "_tagged_fields" and value:
            said["_unknownTaggedFields"] = [{"tag": tag, "hex": tagged.hex()} for tag, tagged in value.items()]
    return said, stream.tell()


def encode_first_request(name: str, version: int, body: dict[str, Any]) -> bytes:
    unknown = {one["tag"]: bytes.fromhex(one["hex"]) for one in body.get("_unknownTaggedFields", ())}
    names = ("clientSoftwareName", "clientSoftwareVersion")
    values = (*(from_json("string", body[name]) for name in names), unknown) if version >= FIRST_FLEXIBLE else ()
    request = ApiVersionsRequest[version](*values)  # whose `encode` ends with it
    encoded: bytes = request.encode()
    return encoded


# --- primitives -------------------------------------------------------------------------------------------------------

# Those that no message shows: the codec of a message does not use these classes, but a user of the library may.
PRIMITIVES = {
    name: getattr(types, its)
    for name, its in (("varint", "VarInt32"), ("varlong", "VarInt64"), ("unsigned-varint", "UnsignedVarInt32"))
    if hasattr(types, its)  # since 2.1
}


def decode_primitive(primitive: str, data: bytes) -> tuple[Any, int]:
    stream = io.BytesIO(data)
    return to_json(primitive, PRIMITIVES[primitive].decode(stream)), stream.tell()


def encode_primitive(primitive: str, value: Any) -> bytes:
    encoded: bytes = PRIMITIVES[primitive].encode(from_json(primitive, value))
    return encoded


if __name__ == "__main__":
    installed = {name: getattr(codec, f"has_{name}", bool)() for name in ("gzip", "snappy", "lz4", "zstd")}
    messages = kfuzz_testee.Codec(
        decode_message, encode_message, rejections=(KafkaError, ValueError, struct.error), refusals=(ValueError,)
    )
    handshake = {
        "name": "kafka-python",
        "version": kafka.__version__,
        "roles": ["consumer"],
        "magic": [0, 1, 2],
        "codecs": ["none", *(name for name, there in installed.items() if there)],
        "checks_crc": CHECKS_CRC,
        "control": "shown",
    }
    if not HAS_MESSAGES and ApiVersionsRequest:
        handshake["messages"] = {"ApiVersionsRequest": [0, len(ApiVersionsRequest) - 1]}
        messages = messages._replace(decode=decode_first_request, encode=encode_first_request)
    elif HAS_MESSAGES:
        handshake["messages"] = {name: versions_of(message) for name, message in sorted(MESSAGES.items())}
    if PRIMITIVES:
        handshake["primitives"] = list(PRIMITIVES)
    kfuzz_testee.serve(
        handshake,
        read,
        rejections=REJECTIONS,
        stream=read_stream if HAS_STREAMS else None,
        write=kfuzz_testee.producer_writer(DefaultRecordBatchBuilder, LegacyRecordBatchBuilder),
        messages=messages if "messages" in handshake else None,
        primitives=kfuzz_testee.Codec(decode_primitive, encode_primitive, (ValueError, struct.error))
        if PRIMITIVES
        else None,
        package="kafka",
    )
