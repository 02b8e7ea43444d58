"""The other Python libraries that read and write messages, each with its own classes.

Imports ``measure``, ``message_set`` and ``peers``; it imports a peer's library only when that peer is requested.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from benchmarks.measure import InProcess
from benchmarks.message_set import NOT_KNOWN, MessageCensus, MessageSet, Sample, looking
from benchmarks.peers import library
from kfuzz.messages.codec import Message
from kfuzz.messages.model import Field, key_of
from kfuzz.messages.schemas import default_of


class MessagePeer:
    """A library under comparison."""

    name: str

    def __init__(self) -> None:
        self.version = version(self.name)

    def reader(self, sample: Sample) -> tuple[Callable[..., Any], Sequence[Any]]:
        """The call that reads the sample's bytes, and its arguments."""
        raise NotImplementedError

    def found(self, read: Any) -> Any:
        """The object in what the call returned."""
        return read

    def writer(self, sample: Sample) -> Callable[[], bytes]:
        """The call that writes the library's own object, which it has read itself."""
        raise NotImplementedError

    def attribute(self, name: str) -> str:
        """The library's name of a field."""
        raise NotImplementedError

    def values(self, found: Any, sample: Sample) -> Message:
        """Convert an object to kfuzz's form."""
        raise NotImplementedError

    def decode(self, messages: MessageSet) -> InProcess:
        """Decode to the library's own objects."""
        works = [self.reader(sample) for sample in messages.samples]

        def run() -> int:
            for read, arguments in works:
                read(*arguments)
            return len(works)

        def census() -> MessageCensus:
            found = (self.found(read(*arguments)) for read, arguments in works)
            return messages.census_of_values(map(self.values, found, messages.samples))

        return InProcess(run, census)

    def look(self, messages: MessageSet) -> InProcess:
        """Decode, and read every field of the objects once."""
        works = [(*self.reader(sample), looking(sample, self.attribute)) for sample in messages.samples]

        def run() -> int:
            for read, arguments, look_at in works:
                look_at(self.found(read(*arguments)))
            return len(works)

        return InProcess(run, self.decode(messages).census)

    def encode(self, messages: MessageSet) -> InProcess:
        """Encode the library's own objects, which it has decoded itself."""
        works = [self.writer(sample) for sample in messages.samples]

        def run() -> int:
            for write in works:
                write()
            return len(works)

        return InProcess(run, lambda: messages.census_of_bytes(bytes(write()) for write in works))


class Kio(MessagePeer):
    """kio: its reader is compiled, its writer is Python. It has its own classes for structs and for some values."""

    name = "kio"

    def __init__(self) -> None:
        self.serial = library("kio.serial", "bench")
        super().__init__()

    def reader(self, sample: Sample) -> tuple[Callable[..., Any], Sequence[Any]]:
        return self.serial.entity_reader(self.entity(sample)), (sample.data, 0)

    def found(self, read: Any) -> Any:
        return read[0]

    def writer(self, sample: Sample) -> Callable[[], bytes]:
        read, arguments = self.reader(sample)
        value = self.found(read(*arguments))
        write = self.serial.entity_writer(self.entity(sample))

        def encoded() -> bytes:
            buffer = io.BytesIO()
            write(buffer, value)
            return buffer.getvalue()

        return encoded

    def attribute(self, name: str) -> str:
        return _snake(name).removesuffix("_ms")

    def values(self, found: Any, sample: Sample) -> Message:
        values: Message = _of_kio(found)
        return values

    def entity(self, sample: Sample) -> Any:
        """The class of a message; kio has one for each version."""
        api, _, kind = _snake(sample.definition.name).rpartition("_")
        module = library(f"kio.schema.{api}.v{sample.version}.{kind}", "bench")
        return getattr(module, sample.definition.name)


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


class KafkaPythonMessages(MessagePeer):
    """kafka-python: it generates its classes from the definitions, and plain Python code for each version."""

    name = "kafka-python"
    # It has these fields as a set of bit numbers, and None if they are unknown.
    sets = ("ClusterAuthorizedOperations", "TopicAuthorizedOperations")

    def __init__(self) -> None:
        self.modules = [library(f"kafka.protocol.{module}") for module in ("admin", "consumer", "metadata", "producer")]
        super().__init__()

    def reader(self, sample: Sample) -> tuple[Callable[..., Any], Sequence[Any]]:
        # It has one class for all versions of a message.
        kind = next(found for module in self.modules if (found := getattr(module, sample.definition.name, None)))
        return partial(kind.decode, version=sample.version), (sample.data,)

    def writer(self, sample: Sample) -> Callable[[], bytes]:
        read, arguments = self.reader(sample)
        write: Callable[[], bytes] = read(*arguments).encode
        return write

    def attribute(self, name: str) -> str:
        return "authorized_operations" if name in self.sets else _snake(name)

    def values(self, found: Any, sample: Sample) -> Message:
        """Convert by the definition, because objects also have the fields of other versions."""
        definition, version = sample.definition, sample.version

        def of_struct(struct: Any, fields: tuple[Field, ...]) -> Message:
            return {key_of(field.name): of_field(struct, field) for field in fields if version in field.versions}

        def of_field(struct: Any, field: Field) -> Any:
            found = getattr(struct, self.attribute(field.name))
            if field.name in self.sets:
                return NOT_KNOWN if found is None else sum(1 << bit for bit in found)
            if found is None and version in field.tagged:
                return default_of(definition, field, version)
            if field.type.struct is None or found is None:
                return found
            inner = definition.fields_of(field.type)
            return [of_struct(element, inner) for element in found] if field.type.array else of_struct(found, inner)

        return of_struct(found, definition.fields)


def _snake(name: str) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


MESSAGE_PEERS: Final[dict[str, Callable[[], MessagePeer]]] = {"kio": Kio, "kafka-python": KafkaPythonMessages}
