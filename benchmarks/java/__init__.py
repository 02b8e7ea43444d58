"""Kafka's own reader and builder in a warm JVM, one JVM for each path.

Its time is the CPU time of the thread that does the work. The JVM's own threads (compiler, garbage collector) are not
counted, which favours Java. Imports ``mixed``, ``measure`` and ``kfuzz_work``.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.kfuzz_work import census_of
from benchmarks.measure import Lap
from benchmarks.mixed import Census, MixedSet
from kfuzz.conformance.protocol.testees import BuildFailed, all_testees, select
from kfuzz.errors import UsageError
from kfuzz.kafka import LATEST
from kfuzz.records import Codec

__all__ = ["KafkaClients"]

HERE: Final = Path(__file__).resolve().parent
LIBRARIES: Final = HERE.parents[1] / "testees" / "kafka-clients" / "target" / LATEST / "lib"
# In a second an operation handles about twenty million records: the JVM has compiled all hot code by then.
WARM_UP_CPU_MS: Final = 1500
COMPILE_TIMEOUT_S: Final = 120


class KafkaClients:
    """The latest kafka-clients. ``UsageError`` if Java or the library is missing."""

    name = "kafka-clients"
    own_process = True
    version = LATEST
    levels: Mapping[Codec, int] = {}

    def __init__(self) -> None:
        for tool in ("java", "javac"):
            if not shutil.which(tool):
                raise UsageError(f"{tool} is missing; install a JDK")
        try:
            # The testee's build provides the library. It does nothing if the library is already there.
            select(all_testees(), [f"{self.name}@{self.version}"])[0].make_ready()
        except BuildFailed as error:
            raise UsageError(f"its library cannot be built: {error}") from None
        self._folder = tempfile.TemporaryDirectory(prefix="kfuzz-bench-")
        self._files: dict[tuple[MixedSet, Codec], Path] = {}
        try:
            self._compile()
        except BaseException:
            self._folder.cleanup()
            raise

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    def verdict(self, mixed: MixedSet, codec: Codec = "none") -> _JavaWork:
        return _JavaWork(self, "verdict", codec, self.file(mixed, codec))

    def eager(self, mixed: MixedSet, codec: Codec = "none") -> _JavaWork:
        return _JavaWork(self, "eager", codec, self.file(mixed, codec))

    def encode(self, mixed: MixedSet, codec: Codec = "none") -> _JavaWork:
        return _JavaWork(self, "encode", codec, self.file(mixed, "none"))

    def close(self) -> None:
        """Remove the compiled classes and the files of the sets."""
        self._folder.cleanup()

    def file(self, mixed: MixedSet, codec: Codec) -> Path:
        """A file with the fetches of ``mixed`` for the Java side."""
        path = self._files.setdefault((mixed, codec), self.folder / f"set-{len(self._files)}")
        if not path.exists():
            with path.open("wb") as file:
                for fetch in mixed.fetches(codec):
                    file.write(struct.pack(">i", len(fetch)) + fetch)
        return path

    def _compile(self) -> None:
        done = subprocess.run(
            ["javac", "-nowarn", "-d", str(self.folder), "-cp", f"{LIBRARIES}/*", str(HERE / "RecordsBench.java")],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise UsageError(f"benchmarks/java/RecordsBench.java does not compile: {done.stderr.strip()}")


class _JavaWork:
    """A JVM that does one contestant's work. It ends when its input is closed."""

    def __init__(self, peer: KafkaClients, operation: str, codec: Codec, file: Path) -> None:
        self.peer, self.operation, self.codec, self.file = peer, operation, codec, file
        self.process = subprocess.Popen(
            ["java", "-Xmx1g", "-XX:+UseSerialGC", "-cp", f"{peer.folder}:{LIBRARIES}/*", "RecordsBench"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def census(self) -> Census:
        if self.operation != "encode":
            return Census(*map(int, self.ask("census")))
        out = self.peer.folder / "written"
        self.ask("write", out)
        return census_of(_frames(out.read_bytes()))

    def warm_up(self) -> None:
        self.ask("warm", WARM_UP_CPU_MS)

    def lap(self, lap_ms: int) -> Lap:
        cpu_ns, records = self.ask("lap", lap_ms)
        return Lap(int(cpu_ns), int(records))

    def close(self) -> None:
        self.process.communicate()

    def ask(self, verb: str, *rest: object) -> list[str]:
        """Send one request and return the words of its answer. ``UsageError`` if the JVM has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        words = (verb, self.operation, self.codec, self.file, *rest)
        try:
            self.process.stdin.write("\t".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise UsageError("the JVM of kafka-clients has ended; see its output above") from None
        answer = self.process.stdout.readline().split()
        if not answer:
            raise UsageError("the JVM of kafka-clients has ended; see its output above")
        return answer


def _frames(data: bytes) -> Sequence[bytes]:
    found = []
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found
