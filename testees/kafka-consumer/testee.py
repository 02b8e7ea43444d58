"""Kafka's consumer as a testee: a `KafkaConsumer` fetches the bytes from `kfuzz serve`.

Each request gets a topic and a fresh consumer. The consumers run in one Java process (`Consume.java`); after anything
odd, the next one gets a new process. Its checks of CRCs are on. It hides control batches, and shows records only.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_serving
import kfuzz_testee
from kfuzz_serving import Record, Stopped

# -Xmx makes a huge allocation fail on every machine. A runner that needs a smaller heap sets _JAVA_OPTIONS.
# The second compiler would cost more time than it saves.
OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-OmitStackTraceInFastThrow")

# A topic that does not exist.
WARM_UP = "warm-up"


class Java:
    """The process with the consumers."""

    def __init__(self, version: str) -> None:
        built = Path(__file__).resolve().parent / "target" / version
        self.process = subprocess.Popen(
            ["java", *OPTIONS, "-cp", f"{built / 'classes'}:{built / 'lib'}/*", "kfuzz.testee.Consume"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.use = psutil.Process(self.process.pid)

    def ask(self, line: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return (self.process.stdout.readline() or sys.exit("the Java process has ended")).rstrip("\n")


class Client:
    """One consumer."""

    java: Java | None = None

    def __init__(self, address: str, topic: str) -> None:
        if Client.java is None:
            # The first poll of a process loads most of the client's classes. That time is not the vector's.
            Client.java = Java(sys.argv[1])
            Client.java.ask(f"open {address} {WARM_UP}")
            Client.java.ask("poll 100")
            Client.java.ask("close")
        self.java = Client.java
        self.topic = topic
        self.waiting: list[str] = []
        self.is_odd = False
        self.allocated_bytes = 0
        self.java.ask(f"open {address} {topic}")

    def poll(self, timeout_s: float) -> Record | Stopped | None:
        assert self.java
        if not self.waiting:
            allocated, _, text = self.java.ask(f"poll {timeout_s * 1000:.0f}").partition(" ")
            self.allocated_bytes = max(self.allocated_bytes, int(allocated))
            if (outcome := text.partition(" ")[0]) in ("rejected", "short", "fault"):
                return self._stopped(outcome, text.replace(f"{self.topic}-0", "the partition"))
            self.waiting = text.split()[::-1]
        return _record(self.waiting.pop()) if self.waiting else None

    def _stopped(self, outcome: str, text: str) -> Stopped:
        if outcome == "rejected":
            return Stopped(outcome, text.split(" ", 1)[1])
        _, place, error = text.split(" ", 2)
        if outcome == "short":
            return Stopped("rejected", error, short_at=int(place))
        self.is_odd = True
        return Stopped("fault", error, at=place.strip("-"))

    def cpu_s(self) -> float:
        assert self.java
        times = self.java.use.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        assert self.java
        if self.is_odd:
            self.java.process.kill()
            self.java.process.wait()
            Client.java = None
        else:
            self.java.ask("close")


def _record(text: str) -> Record:
    offset, timestamp, key, value, *headers = text.split(",")
    record = kfuzz_testee.record_json(
        int(offset),
        None if timestamp == "null" else int(timestamp),
        _bytes(key),
        None if value[:1] == "@" else _bytes(value),
        [(bytes.fromhex(name), _bytes(data)) for name, data in zip(headers[::2], headers[1::2], strict=True)],
    )
    if value[:1] == "@":
        size, _, digest = value[1:].partition(":")
        record["value"] = {"sha256": digest, "size": int(size)}
    return record


def _bytes(text: str) -> bytes | None:
    return None if text == "null" else bytes.fromhex(text)


if __name__ == "__main__":
    kfuzz_serving.serve({"name": "kafka-consumer", "version": sys.argv[1], "language": "java"}, Client)
