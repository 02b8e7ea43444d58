"""The messages for all message paths: five requests and their responses, each in three sizes.

The values are generated from a seed and the definitions: every field of a version gets a value of its type. Imports
only ``kfuzz.messages``.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, get_args

from kfuzz.messages import codec
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message
from kfuzz.messages.model import INT_RANGES, Definition, Field, key_of
from kfuzz.messages.schemas import default_of

Size = Literal["small", "medium", "large"]
SIZES: Final[tuple[Size, ...]] = get_args(Size)

# All libraries have these versions. They are the newest with topic names instead of ids: an id is an object in the
# other libraries but 16 bytes in kfuzz, which would favour kfuzz.
VERSIONS: Final = {"Produce": 12, "Fetch": 12, "Metadata": 9, "OffsetCommit": 9, "CreateTopics": 6}


class _Shape(NamedTuple):
    """``samples`` of each message, and the most ``elements`` in arrays of each depth: topics (or brokers), the
    partitions of each, and the arrays in those.
    """

    samples: int
    elements: tuple[int, int, int]


# With few samples the processor would learn every branch.
_SHAPES: Final[dict[Size, _Shape]] = {
    "small": _Shape(24, (1, 2, 2)),
    "medium": _Shape(6, (4, 8, 3)),
    "large": _Shape(1, (40, 24, 3)),
}
NULLS: Final = 0.2
# The share of tagged fields that are set. Brokers seldom send them.
TAGS: Final = 0.05
ERRORS: Final = 0.1
# All libraries know the error codes up to this one; kio refuses codes that it does not know.
ERROR_CODES_MAX: Final = 87
RECORDS_BYTES: Final = (70, 600)
# The value of authorized operations if the request did not ask for them.
NOT_KNOWN: Final = -(1 << 31)
NUMBER_BITS: Final = 20
LONG_NUMBER_BITS: Final = 40
WORDS: Final = ("orders", "payments", "eu-west-1a", "consumer", "cleanup.policy", "compact", "invoice-lines", "b-7")


class Sample(NamedTuple):
    """A message at one version: values for all its fields, and its bytes."""

    definition: Definition
    version: int
    values: Message
    data: bytes


class MessageCensus(NamedTuple):
    """The number of messages that were read or written, their bytes, and the first that differs from the set's."""

    messages: int
    bytes: int
    differing: str = "none"


@dataclass(frozen=True)
class MessageSet:
    """Requests and responses of one size, from ``seed``."""

    size: Size
    seed: int = 5

    def __getstate__(self) -> dict[str, Any]:
        # A pickle has only the seed and the size: the other process makes the messages itself.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def samples(self) -> list[Sample]:
        rng = random.Random(f"{self.seed} {self.size}")
        shape = _SHAPES[self.size]
        made = []
        for _ in range(shape.samples):
            for name, version in VERSIONS.items():
                for kind in ("Request", "Response"):
                    definition = catalogue().find(name + kind)
                    values = _Values(rng, definition, version, shape.elements).of(definition.fields, 0)
                    made.append(Sample(definition, version, values, codec.encode(definition, version, values)))
        return made

    @cached_property
    def census(self) -> MessageCensus:
        return MessageCensus(len(self.samples), sum(len(sample.data) for sample in self.samples))

    def census_of_values(self, found: Iterable[Message]) -> MessageCensus:
        """The census for values ``found`` in the set's bytes, in kfuzz's form."""
        return self._compared(zip(found, (sample.values for sample in self.samples), strict=True))

    def census_of_bytes(self, found: Iterable[bytes]) -> MessageCensus:
        """The census for bytes ``found``, written from the set's values."""
        return self._compared(zip(found, (sample.data for sample in self.samples), strict=True))

    def _compared(self, pairs: Iterable[tuple[Any, Any]]) -> MessageCensus:
        named = zip(self.samples, pairs, strict=True)
        other = (sample.definition.name for sample, (found, expected) in named if found != expected)
        return self.census._replace(differing=next(other, "none"))


def looking(sample: Sample, named: Callable[[str], str]) -> Callable[[Any], None]:
    """Return a function that reads every field of this message's object once, structs included.

    ``named`` converts a field's name in the definition to the attribute's name.
    """

    def of_struct(fields: tuple[Field, ...]) -> Callable[[Any], None]:
        there = [field for field in fields if sample.version in field.versions]
        names = [named(field.name) for field in there]
        get = operator.attrgetter(*names) if len(names) > 1 else lambda struct: (getattr(struct, names[0]),)
        inner = [
            (place, of_struct(sample.definition.fields_of(field.type)), field.type.array)
            for place, field in enumerate(there)
            if field.type.struct is not None
        ]

        def look(struct: Any) -> None:
            values = get(struct)
            for place, look_inside, array in inner:
                found = values[place]
                if found is not None:
                    for element in found if array else (found,):
                        look_inside(element)

        return look

    return of_struct(sample.definition.fields)


@dataclass
class _Values:
    rng: random.Random
    definition: Definition
    version: int
    elements: tuple[int, int, int]

    def of(self, fields: tuple[Field, ...], depth: int) -> Message:
        return {key_of(field.name): self.value(field, depth) for field in fields if self.version in field.versions}

    def value(self, field: Field, depth: int) -> Any:
        if self.version in field.tagged and self.rng.random() >= TAGS:
            return default_of(self.definition, field, self.version)
        # A null instead of all topics would leave nothing to read.
        if self.version in field.nullable and not (field.type.array and depth == 0) and self.rng.random() < NULLS:
            return None
        if not field.type.array:
            return self.element(field, depth)
        most = self.elements[depth]
        return [
            self.element(field, depth + 1) for _ in range(self.rng.randint(0 if depth > 1 else most // 2 or 1, most))
        ]

    def element(self, field: Field, depth: int) -> Any:
        name = field.type.name
        if field.type.struct is not None:
            return self.of(self.definition.fields_of(field.type), depth)
        if name in INT_RANGES:
            return self.integer(field)
        if name == "bool":
            return self.rng.random() < 0.5
        if name == "string":
            return "-".join(self.rng.choices(WORDS, k=self.rng.randint(1, 3)))
        return self.rng.randbytes(self.rng.randint(*RECORDS_BYTES))

    def integer(self, field: Field) -> int:
        if field.name.endswith("ErrorCode"):
            return self.rng.randint(1, ERROR_CODES_MAX) if self.rng.random() < ERRORS else 0
        if field.name.endswith("AuthorizedOperations"):
            return NOT_KNOWN
        # Indices, epochs and ids are usually small; offsets have all magnitudes.
        bits = LONG_NUMBER_BITS if field.type.name == "int64" else NUMBER_BITS
        return min(self.rng.getrandbits(self.rng.randint(1, bits)), INT_RANGES[field.type.name][1])
