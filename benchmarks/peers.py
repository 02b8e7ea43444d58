"""The peers for records. Each Python library is used as its own consumer and producer use it.

Imports ``mixed``, ``measure``, ``java`` and ``kfuzz_work``; a peer's library only when that peer is requested.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Final, Protocol

from benchmarks.java import KafkaClients
from benchmarks.kfuzz_work import census_of
from benchmarks.measure import InProcess, NotTheSameWork, Work
from benchmarks.mixed import CallCensus, Census, Content, MixedSet, count
from kfuzz.errors import UsageError
from kfuzz.records import CODECS, Codec

__all__ = ["PEERS", "AioKafka", "KafkaPython", "Peer", "PeerMissing", "library"]

# A builder refuses records beyond this size; it is large enough for every batch.
BUILDER_BYTES: Final = 1 << 30


class PeerMissing(UsageError):
    """This peer cannot run here; the message says what to install."""


class Peer(Protocol):
    """A library under comparison."""

    name: str
    version: str
    # Whether each of its works is already a process.
    own_process: bool
    # This library's fixed compression levels, if they differ from Kafka's defaults. kfuzz then uses the same levels.
    levels: Mapping[Codec, int]

    def verdict(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        """Check CRCs and read all records, but none of their fields."""

    def eager(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        """Like ``verdict``, and read each record's key, value and headers."""

    def encode(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        """Build the set's batches from values that are ready."""

    def close(self) -> None:
        """Release what was started for this peer."""


def library(module: str, extra: str = "testees") -> Any:
    """Import a module of a peer. ``PeerMissing`` names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PeerMissing(f"{error}; install the extra {extra}") from None


class _PythonPeer:
    """The common part of aiokafka and kafka-python. It is nearly everything, because one derives from the other."""

    name: str
    version: str
    own_process = False
    levels: Mapping[Codec, int]
    builder: Any
    legacy_builder: Any

    def batches(self, fetch: bytes) -> Iterator[Iterable[Any]]:
        """Yield a fetch's batches as the library's consumer gets them, each with its CRC checked."""
        raise NotImplementedError

    def verdict(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        fetches = mixed.fetches(codec)

        def run() -> int:
            for fetch in fetches:
                for batch in self.batches(fetch):
                    for record in batch:  # noqa: B007
                        pass
            return int(record.offset) + 1

        return InProcess(run, lambda: self._census(fetches))

    def eager(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        fetches = mixed.fetches(codec)

        def run() -> int:
            for fetch in fetches:
                for batch in self.batches(fetch):
                    for record in batch:
                        record.key  # noqa: B018
                        record.value  # noqa: B018
                        record.headers  # noqa: B018
            return int(record.offset) + 1

        return InProcess(run, lambda: self._census(fetches))

    def encode(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        number = CODECS.index(codec)
        contents = mixed.contents

        make = partial(self.builder, 2, number, 0, -1, -1, -1, BUILDER_BYTES)
        if mixed.magic < 2:
            make = partial(self.legacy_builder, mixed.magic, number, BUILDER_BYTES)

        def build(batch: Sequence[Content]) -> bytearray:
            builder = make()
            append = builder.append
            for position, (timestamp, key, value, headers) in enumerate(batch):
                append(position, timestamp, key, value, headers)
            built: bytearray = builder.build()
            return built

        def run() -> int:
            written = 0
            for batch in contents:
                build(batch)
                written += len(batch)
            return written

        return InProcess(run, lambda: census_of([build(batch) for batch in contents]))

    def call(self, mixed: MixedSet) -> Work:
        data = mixed.encoded()
        read = self.read

        def run() -> int:
            for batch in data:
                read(batch)
            return len(data)

        return InProcess(run, lambda: CallCensus.of(len(data), self._census(data)))

    def read(self, fetch: bytes) -> None:
        """Read all records of a fetch in one loop: a generator would cost as much as a record."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing was started."""

    def _census(self, fetches: Sequence[bytes]) -> Census:
        return count((r.key, r.value, r.headers) for fetch in fetches for batch in self.batches(fetch) for r in batch)


class AioKafka(_PythonPeer):
    """aiokafka's compiled reader and builder, never its fallback in Python."""

    name = "aiokafka"
    levels: Mapping[Codec, int] = {"gzip": 9, "lz4": 9}

    def __init__(self) -> None:
        self.memory_records = library("aiokafka.record.memory_records").MemoryRecords
        self.builder = library("aiokafka.record.default_records").DefaultRecordBatchBuilder
        self.legacy_builder = library("aiokafka.record.legacy_records").LegacyRecordBatchBuilder
        self.version = version("aiokafka")
        for kind in (self.memory_records, self.builder, self.legacy_builder):
            if "._crecords." not in kind.__module__:
                raise PeerMissing(f"its {kind.__name__} is not the compiled one; install a wheel that has it")

    def batches(self, fetch: bytes) -> Iterator[Iterable[Any]]:
        memory = self.memory_records(fetch)
        while memory.has_next():
            batch = memory.next_batch()
            if not batch.validate_crc():
                raise NotTheSameWork("aiokafka reports a wrong CRC")
            yield batch

    def read(self, fetch: bytes) -> None:
        memory = self.memory_records(fetch)
        while memory.has_next():
            batch = memory.next_batch()
            if not batch.validate_crc():
                raise NotTheSameWork("aiokafka reports a wrong CRC")
            for record in batch:  # noqa: B007
                pass


class KafkaPython(_PythonPeer):
    """kafka-python's reader and builder, plain Python."""

    name = "kafka-python"
    levels: Mapping[Codec, int] = {"gzip": 9}

    def __init__(self) -> None:
        self.memory_records = library("kafka.record.memory_records").MemoryRecords
        self.builder = library("kafka.record.default_records").DefaultRecordBatchBuilder
        self.legacy_builder = library("kafka.record.legacy_records").LegacyRecordBatchBuilder
        self.version = version("kafka-python")

    def batches(self, fetch: bytes) -> Iterator[Iterable[Any]]:
        memory = self.memory_records(fetch)
        while (batch := memory.next_batch()) is not None:
            if not batch.validate_crc():
                raise NotTheSameWork("kafka-python reports a wrong CRC")
            yield batch

    def read(self, fetch: bytes) -> None:
        memory = self.memory_records(fetch)
        while (batch := memory.next_batch()) is not None:
            if not batch.validate_crc():
                raise NotTheSameWork("kafka-python reports a wrong CRC")
            for record in batch:  # noqa: B007
                pass


def _kafka_clients() -> Peer:
    try:
        return KafkaClients()
    except UsageError as error:
        raise PeerMissing(str(error)) from None


PEERS: Final[Mapping[str, Callable[[], Peer]]] = {
    "aiokafka": AioKafka,
    "kafka-python": KafkaPython,
    "kafka-clients": _kafka_clients,
}
