"""Topics: what their one partition holds, and which offsets it has."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from kfuzz.errors import UsageError
from kfuzz.kafka import INT64_MAX
from kfuzz.text import foreign_text
from kfuzz.vectors import Vector
from kfuzz.wire.records.framing import next_frame

__all__ = ["Topic", "Topics", "topics_of"]

CONSUMER: Final = "consumer"
# org.apache.kafka.common.internals.Topic
NAME_LENGTH_MAX: Final = 249
# The high watermark of bytes that must be refused. It is so high that a client which skips them asks for more.
FAR: Final = 1_000_000_000_000
OFFSET: Final = struct.Struct(">q")
LAST_OFFSET_DELTA: Final = struct.Struct(">i")
LAST_OFFSET_DELTA_AT: Final = 23


class Topic:
    """A topic with one partition. Every fetch below :attr:`end` gets all of its bytes.

    ``end`` is the offset after the last record. ``high_watermark`` is the value that clients get.
    """

    name: str
    # The offset of the last fetch, and how many fetches in a row had it.
    fetch_offset: int = -1
    times: int = 0

    @property
    def data(self) -> bytes:
        """The bytes that a fetch returns."""
        raise NotImplementedError

    @property
    def end(self) -> int:
        """The first offset without records."""
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        """The high watermark in answers to Fetch and ListOffsets."""
        return self.end

    @cached_property
    def id(self) -> bytes:
        """The topic's id: the same in each run."""
        return hashlib.sha256(f"kfuzz topic {self.name}".encode()).digest()[:16]

    def fetched(self, offset: int) -> bytes:
        """The bytes for a fetch at ``offset``: all of them, or none if nothing is left from there on."""
        self.times = self.times + 1 if offset == self.fetch_offset else 1
        self.fetch_offset = offset
        return self.data if offset < self.end else b""


class VectorTopic(Topic):
    """A vector as a topic. Bombs are built when a client first asks for them."""

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.name = vector.id.replace("/", ".")

    @property
    def data(self) -> bytes:
        return self.vector.data

    @cached_property
    def end(self) -> int:
        batches = self.vector.expect[CONSUMER].get("batches")
        if batches is None:
            return end_of(self.data)
        # Batches may go backwards.
        return _bounded(max((int(batch["next_offset"]) for batch in batches), default=0), self.data)

    @cached_property
    def high_watermark(self) -> int:
        refused = self.vector.expect[CONSUMER]["verdict"] == "invalid"
        return max(self.end, FAR) if refused else self.end


class GivenTopic(Topic):
    """Bytes that another program has given, with the offset after them if the program knows it."""

    def __init__(self, name: str, data: bytes, next_offset: int | None) -> None:
        self.name = name
        self._data = data
        self._end = end_of(data) if next_offset is None else _bounded(next_offset, data)

    @property
    def data(self) -> bytes:
        return self._data

    @property
    def end(self) -> int:
        return self._end


def end_of(data: bytes) -> int:
    """The offset after the last whole batch, according to the headers. It is far away if a frame cannot be read.

    A broker cannot pass over such bytes, so a client that asks for what comes next gets them again.
    """
    at, last = 0, -1
    while at < len(data):
        size, magic, _ = next_frame(data, at)
        if size < 0:
            return max(FAR, _bounded(last + 1, data))
        if not size:
            break
        [offset] = OFFSET.unpack_from(data, at)
        if magic == 2:
            offset += LAST_OFFSET_DELTA.unpack_from(data, at + LAST_OFFSET_DELTA_AT)[0]
        last = max(last, offset)
        at += size
    return _bounded(last + 1, data)


def _bounded(offset: int, data: bytes) -> int:
    """The end offset that clients see: at least 1 if there are bytes, so that a client at offset 0 fetches them."""
    return min(max(offset, 1), INT64_MAX) if data else 0


@dataclass
class Topics:
    """The topics of a broker, by name and by id, in the order in which they came."""

    by_name: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[bytes, Topic] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def put(self, topic: Topic) -> None:
        """Add a topic, or replace the one with its name. ``UsageError`` if the name is not legal."""
        if not is_legal(topic.name):
            raise UsageError(
                f"{foreign_text(repr(topic.name))} is no name of a topic; take 1 to {NAME_LENGTH_MAX} letters, digits "
                "and any of . _ -"
            )
        self.by_name[topic.name] = self.by_id[topic.id] = topic

    def remove(self, name: str) -> None:
        """Remove a topic; nothing happens if there is none."""
        if (topic := self.by_name.pop(name, None)) is not None:
            del self.by_id[topic.id]


def is_legal(name: str) -> bool:
    """Whether Kafka allows this name of a topic. Mirrors ``org.apache.kafka.common.internals.Topic.validate``."""
    # The loop takes ASCII only; isalnum alone would take any alphabet.
    return (
        0 < len(name) <= NAME_LENGTH_MAX
        and name not in (".", "..")
        and all(one.isascii() and (one.isalnum() or one in "._-") for one in name)
    )


def topics_of(vectors: Iterable[Vector]) -> dict[str, Topic]:
    """By the ids of the vectors, a topic for each vector that a consumer can be shown."""
    return {vector.id: VectorTopic(vector) for vector in vectors if CONSUMER in vector.expect}
