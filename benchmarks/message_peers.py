"""The other Python libraries that read and write messages, each with its own classes.

Imports ``measure``, ``message_set`` and ``peers``; it imports a peer's library only when that peer is requested.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Final, Protocol

from benchmarks.measure import InProcess
from benchmarks.message_set import NOT_KNOWN, MessageCensus, MessageSet, Sample, looking
from benchmarks.peers import library
from kfuzz.messages.codec import Message
from kfuzz.messages.model import Field, key_of
from kfuzz.messages.schemas import default_of

__all__ = ["MESSAGE_PEERS", "KafkaPythonMessages", "Kio", "MessagePeer"]


class MessagePeer(Protocol):
    """A library under comparison."""

    name: str
    version: str

    def decode(self, messages: MessageSet) -> InProcess:
        """Decode to the library's own objects."""

    def look(self, messages: MessageSet) -> InProcess:
        """Decode, and read every field of the objects once."""

    def encode(self, messages: MessageSet) -> InProcess:
        """Encode the library's own objects, which it has decoded itself."""


class Kio:
    """kio: its reader is compiled, its writer is Python. It has its own classes for structs and for some values."""

    name = "kio"

    def __init__(self) -> None:
        serial = library("kio.serial", "bench")
        self.entity_reader = serial.entity_reader
        self.entity_writer = serial.entity_writer
        self.version = version("kio")

    def decode(self, messages: MessageSet) -> InProcess:
        works = [(self.entity_reader(self.entity(sample)), sample.data) for sample in messages.samples]

        def run() -> int:
            for read, data in works:
                read(data, 0)
            return len(works)

        return InProcess(run, lambda: messages.census_of_values(_of_kio(read(data, 0)[0]) for read, data in works))

    def look(self, messages: MessageSet) -> InProcess:
        works = [
            (self.entity_reader(self.entity(sample)), sample.data, looking(sample, _name_of_kio))
            for sample in messages.samples
        ]

        def run() -> int:
            for read, data, look_at in works:
                look_at(read(data, 0)[0])
            return len(works)

        return InProcess(run, self.decode(messages).census)

    def encode(self, messages: MessageSet) -> InProcess:
        works = []
        for sample in messages.samples:
            entity = self.entity(sample)
            works.append((self.entity_writer(entity), self.entity_reader(entity)(sample.data, 0)[0]))

        def encoded(write: Callable[[io.BytesIO, Any], None], value: Any) -> bytes:
            buffer = io.BytesIO()
            write(buffer, value)
            return buffer.getvalue()

        def run() -> int:
            for write, value in works:
                encoded(write, value)
            return len(works)

        return InProcess(run, lambda: messages.census_of_bytes(encoded(write, value) for write, value in works))

    def entity(self, sample: Sample) -> Any:
        """The class of a message; kio has one for each version."""
        api, _, kind = _snake(sample.definition.name).rpartition("_")
        module = library(f"kio.schema.{api}.v{sample.version}.{kind}", "bench")
        return getattr(module, sample.definition.name)


def _name_of_kio(name: str) -> str:
    return _snake(name).removesuffix("_ms")


def _of_kio(value: Any) -> Any:
    """Convert a value to kfuzz's form. In kio, durations and times are objects, and their names have no unit."""
    if dataclasses.is_dataclass(value):
        return dict(_field_of_kio(field, getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple):
        return [_of_kio(element) for element in value]
    # Error codes are an IntEnum.
    return int(value) if isinstance(value, enum.IntEnum) else value


def _field_of_kio(field: dataclasses.Field[Any], value: Any) -> tuple[str, Any]:
    name = re.sub("_(.)", lambda match: match[1].upper(), field.name)
    kind = field.metadata.get("kafka_type", "")
    if kind.startswith("timedelta"):
        return f"{name}Ms", value // datetime.timedelta(milliseconds=1)
    if kind.startswith("datetime"):
        return f"{name}Ms", -1 if value is None else round(value.timestamp() * 1000)
    return name, _of_kio(value)


class KafkaPythonMessages:
    """kafka-python: it generates its classes from the definitions, and plain Python code for each version."""

    name = "kafka-python"

    def __init__(self) -> None:
        self.modules = [library(f"kafka.protocol.{module}") for module in ("admin", "consumer", "metadata", "producer")]
        self.version = version("kafka-python")

    def decode(self, messages: MessageSet) -> InProcess:
        works = [(self.kind(sample).decode, sample.data, sample.version) for sample in messages.samples]

        def run() -> int:
            for read, data, at_version in works:
                read(data, version=at_version)
            return len(works)

        def census() -> MessageCensus:
            read = [read(data, version=at_version) for read, data, at_version in works]
            return messages.census_of_values(map(_of_kafka_python, read, messages.samples))

        return InProcess(run, census)

    def look(self, messages: MessageSet) -> InProcess:
        works = [
            (self.kind(sample).decode, sample.data, sample.version, looking(sample, _name_of_kafka_python))
            for sample in messages.samples
        ]

        def run() -> int:
            for read, data, at_version, look_at in works:
                look_at(read(data, version=at_version))
            return len(works)

        return InProcess(run, self.decode(messages).census)

    def encode(self, messages: MessageSet) -> InProcess:
        works = [self.kind(sample).decode(sample.data, version=sample.version) for sample in messages.samples]

        def run() -> int:
            for message in works:
                message.encode()
            return len(works)

        return InProcess(run, lambda: messages.census_of_bytes(bytes(message.encode()) for message in works))

    def kind(self, sample: Sample) -> Any:
        """The class of a message; kafka-python has one for all versions."""
        return next(found for module in self.modules if (found := getattr(module, sample.definition.name, None)))


# kafka-python has these fields as a set of bit numbers, and None if they are unknown.
_SETS_OF_KAFKA_PYTHON: Final = ("ClusterAuthorizedOperations", "TopicAuthorizedOperations")


def _name_of_kafka_python(name: str) -> str:
    return "authorized_operations" if name in _SETS_OF_KAFKA_PYTHON else _snake(name)


def _of_kafka_python(value: Any, sample: Sample) -> Message:
    """Convert an object to kfuzz's form by the definition, because objects also have the fields of other versions."""
    definition, version = sample.definition, sample.version

    def of_struct(struct: Any, fields: tuple[Field, ...]) -> Message:
        return {key_of(field.name): of_field(struct, field) for field in fields if version in field.versions}

    def of_field(struct: Any, field: Field) -> Any:
        found = getattr(struct, _name_of_kafka_python(field.name))
        if field.name in _SETS_OF_KAFKA_PYTHON:
            return NOT_KNOWN if found is None else sum(1 << bit for bit in found)
        if found is None and version in field.tagged:
            return default_of(definition, field, version)
        if field.type.struct is None or found is None:
            return found
        inner = definition.fields_of(field.type)
        return [of_struct(element, inner) for element in found] if field.type.array else of_struct(found, inner)

    return of_struct(value, definition.fields)


def _snake(name: str) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


MESSAGE_PEERS: Final[Mapping[str, Callable[[], MessagePeer]]] = {"kio": Kio, "kafka-python": KafkaPythonMessages}
