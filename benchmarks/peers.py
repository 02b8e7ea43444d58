"""The peers for records: each library is used as its own consumer and producer use it.

Imports ``mixed``, ``measure`` and ``kfuzz_work``; a peer's library only when that peer is requested.
"""

from __future__ import annotations

import importlib
import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.kfuzz_work import census_of
from benchmarks.measure import InProcess, Lap, NotTheSameWork, Work
from benchmarks.mixed import CallCensus, Census, Content, MixedSet, count
from kfuzz.errors import UsageError
from kfuzz.kafka import LATEST
from kfuzz.records import CODECS, Codec

# A builder refuses records beyond this size; it is large enough for every batch.
BUILDER_BYTES: Final = 1 << 30
HERE: Final = Path(__file__).resolve().parent
JAVA_LIBRARIES: Final = HERE.parent / "testees" / "kafka-clients" / "target" / LATEST / "lib"
# In a second an operation handles about twenty million records: the JVM has compiled all hot code by then.
WARM_UP_CPU_MS: Final = 1500
JAVA_CENSUS: Final = -1


class PeerMissing(UsageError):
    """This peer cannot run here; the message says what to install."""


def library(module: str, extra: str = "testees") -> Any:
    """Import a module of a peer. ``PeerMissing`` names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PeerMissing(f"{error}; install the extra {extra}") from None


class Peer:
    """A library under comparison. Each way of a path that it knows is a method that makes work with a set."""

    name: str
    version: str
    # This library's fixed compression levels, if they differ from Kafka's defaults. kfuzz then uses the same levels.
    levels: Mapping[Codec, int] = {}

    def verdict(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        """Check CRCs and read all records, but none of their fields."""
        raise NotImplementedError

    def eager(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        """Like ``verdict``, and read each record's key, value and headers."""
        raise NotImplementedError

    def encode(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        """Build the set's batches from values that are ready."""
        raise NotImplementedError


class PythonPeer(Peer):
    """The common part of aiokafka and kafka-python. It is nearly everything, because one derives from the other."""

    # The package with its modules.
    package: str

    def __init__(self) -> None:
        self.memory_records = library(f"{self.package}.memory_records").MemoryRecords
        self.builder = library(f"{self.package}.default_records").DefaultRecordBatchBuilder
        self.legacy_builder = library(f"{self.package}.legacy_records").LegacyRecordBatchBuilder
        self.version = version(self.name)

    def verdict(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        fetches = mixed.fetches(codec)
        return InProcess(lambda: self._read(fetches) + 1, lambda: self._census(fetches))

    def call(self, mixed: MixedSet) -> Work:
        """Like ``verdict``, of one batch at a time."""
        batches = mixed.encoded()

        def run() -> int:
            self._read(batches)
            return len(batches)

        return InProcess(run, lambda: CallCensus.of(len(batches), self._census(batches)))

    def _read(self, fetches: Sequence[bytes]) -> int:
        memory_records = self.memory_records
        for fetch in fetches:
            memory = memory_records(fetch)
            while (batch := memory.next_batch()) is not None:
                if not batch.validate_crc():
                    raise NotTheSameWork(f"{self.name} reports a wrong CRC")
                for record in batch:  # noqa: B007
                    pass
        return int(record.offset)

    def eager(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        fetches = mixed.fetches(codec)

        def run() -> int:
            for fetch in fetches:
                memory = self.memory_records(fetch)
                while (batch := memory.next_batch()) is not None:
                    if not batch.validate_crc():
                        raise NotTheSameWork(f"{self.name} reports a wrong CRC")
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

    # Of uniform batches.
    encode_uniform = encode

    def _census(self, fetches: Sequence[bytes]) -> Census:
        memories = map(self.memory_records, fetches)
        batches = (batch for memory in memories for batch in iter(memory.next_batch, None))
        return count((record.key, record.value, record.headers) for batch in batches for record in batch)


class AioKafka(PythonPeer):
    """aiokafka's compiled reader and builder, never its fallback in Python."""

    name = "aiokafka"
    package = "aiokafka.record"
    levels: Mapping[Codec, int] = {"gzip": 9, "lz4": 9}

    def __init__(self) -> None:
        super().__init__()
        for kind in (self.memory_records, self.builder, self.legacy_builder):
            if "._crecords." not in kind.__module__:
                raise PeerMissing(f"its {kind.__name__} is not the compiled one; install a wheel that has it")


class KafkaPython(PythonPeer):
    """kafka-python's reader and builder, plain Python."""

    name = "kafka-python"
    package = "kafka.record"
    levels: Mapping[Codec, int] = {"gzip": 9}


class KafkaClients(Peer):
    """Kafka's own reader and builder in a warm JVM, one JVM for each work."""

    name = "kafka-clients"
    version = LATEST

    def __init__(self) -> None:
        for tool in ("java", "javac"):
            if not shutil.which(tool):
                raise PeerMissing(f"{tool} is missing; install a JDK")
        from kfuzz.conformance.protocol.building import BuildFailed
        from kfuzz.conformance.protocol.testees import all_testees, select

        try:
            # The testee's build provides the library. It does nothing if the library is already there.
            select(all_testees(), [f"{self.name}@{self.version}"])[0].make_ready()
        except BuildFailed as error:
            raise PeerMissing(f"its library cannot be built: {error}") from None

    def verdict(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        return _JavaWork("verdict", codec, mixed.fetches(codec))

    def eager(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        return _JavaWork("eager", codec, mixed.fetches(codec))

    def encode(self, mixed: MixedSet, codec: Codec = "none") -> Work:
        return _JavaWork("encode", codec, mixed.fetches())


class _JavaWork:
    """A JVM that does one contestant's work. It ends when its input is closed.

    Its time is the CPU time of the thread that does the work. The JVM's own threads (compiler, garbage collector) are
    not counted, which favours Java.
    """

    def __init__(self, operation: str, codec: Codec, fetches: Sequence[bytes]) -> None:
        java = ["java", "-Xmx1g", "-XX:+UseSerialGC", "-cp", f"{JAVA_LIBRARIES}/*", str(HERE / "RecordsBench.java")]
        self.process = subprocess.Popen([*java, operation, codec], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send(struct.pack(">i", len(fetches)), *(struct.pack(">i", len(one)) + one for one in fetches))

    def census(self) -> Census:
        """The counts of the batches that Java builds again from what it has read."""
        self._send(struct.pack(">i", JAVA_CENSUS))
        (batches,) = self._receive(">i")
        return census_of([self._bytes(*self._receive(">i")) for _ in range(batches)])

    def warm_up(self) -> None:
        self.lap(WARM_UP_CPU_MS)

    def lap(self, lap_ms: int) -> Lap:
        self._send(struct.pack(">i", lap_ms))
        return Lap(*self._receive(">qq"))

    def close(self) -> None:
        self.process.communicate()

    def _send(self, *parts: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.writelines(parts)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise UsageError("the JVM of kafka-clients has ended; see its output above") from None

    def _receive(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))

    def _bytes(self, size: int) -> bytes:
        assert self.process.stdout is not None
        found = self.process.stdout.read(size)
        if len(found) < size:
            raise UsageError("the JVM of kafka-clients has ended; see its output above")
        return found


PEERS: Final[dict[str, Callable[[], Peer]]] = {peer.name: peer for peer in (AioKafka, KafkaPython, KafkaClients)}
