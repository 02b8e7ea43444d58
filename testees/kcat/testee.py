"""kcat as a testee: it fetches the bytes from `kfuzz serve`, with the librdkafka of the system.

Each request gets a topic and a process of kcat. Its records come as JSON, in which it passes bytes through: with one
character for each byte, no byte is lost. It hides control batches. Its checks of CRCs are on.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import psutil

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_driver
import kfuzz_serving
import kfuzz_testee
from kfuzz_serving import END, Record, Stopped

SETTINGS = ("check.crcs=true", "fetch.wait.max.ms=1", "fetch.error.backoff.ms=1", "log_level=0")
# When the broker has seen that kcat is done, kcat still has to say so.
LAST_LOOK_S = 0.5
ERROR = b"% ERROR: "


class Client:
    """One process of kcat."""

    is_odd = False

    def __init__(self, address: str, topic: str, isolation: str, offset: int) -> None:
        self.topic = topic
        command = ["kcat", "-C", "-b", address, "-t", topic, "-p", "0", "-o", str(offset), "-e", "-J", "-u"]
        settings = (*SETTINGS, f"isolation.level={isolation}")
        self.process = subprocess.Popen(
            [*command, *(word for setting in settings for word in ("-X", setting))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.use = psutil.Process(self.process.pid)
        self.last_cpu_s = 0.0
        self.errors: list[bytes] = []
        # None is the end. The bound holds up a process that writes without an end.
        self.lines: queue.Queue[bytes | None] = queue.Queue(1000)
        self.readers = [
            threading.Thread(target=self._read_records, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self.process.stderr,), daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def _read_records(self, stream: IO[bytes]) -> None:
        for line in stream:
            self.lines.put(line)
        self.lines.put(None)

    def _read_errors(self, stream: IO[bytes]) -> None:
        self.errors += (line for line in stream if line.startswith(ERROR))

    def poll(self, timeout_s: float) -> Record | Stopped | None:
        try:
            line = self.lines.get(timeout=timeout_s or LAST_LOOK_S)
        except queue.Empty:
            return None
        return self._ended() if line is None else _record(line)

    def _ended(self) -> Stopped:
        status = self.process.wait()
        self.readers[1].join()
        if status < 0:
            kfuzz_serving.die_of(-status)
        if not status:
            return END
        text = b" ".join(self.errors).decode("utf-8", "replace").strip() or f"% ERROR: status {status}"
        text = re.sub(rf"\b{self.topic}\b", "the topic", text.removeprefix(ERROR.decode()))
        return Stopped("rejected", text, kfuzz_driver.short_at(text))

    def cpu_s(self) -> float:
        # It may have ended, while its last lines are still to be read.
        with contextlib.suppress(psutil.Error):
            times = self.use.cpu_times()
            self.last_cpu_s = float(times.user + times.system)
        return self.last_cpu_s

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self.readers:
            while reader.is_alive():
                with contextlib.suppress(queue.Empty):
                    self.lines.get(timeout=0.01)


def _record(line: bytes) -> Record:
    record = json.loads(line.decode("latin-1"))
    headers = [_bytes(one) for one in record.get("headers", ())]
    return kfuzz_testee.record_json(
        record["offset"],
        record.get("ts"),
        _bytes(record["key"]),
        _bytes(record["payload"]),
        [(name or b"", value) for name, value in zip(headers[::2], headers[1::2], strict=True)],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def version() -> str:
    """Those of kcat and of its librdkafka."""
    told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    found = re.search(r"^Version (\S+).*librdkafka (\S+)", told, re.MULTILINE)
    return f"{found[1]}+librdkafka-{found[2]}" if found else sys.exit("`kcat -V` does not print its version")


if __name__ == "__main__":
    # librdkafka answers streams too; kcat adds nothing to them.
    hello = {"name": "kcat", "version": version(), "language": "c", "operations": ["decode-records"]}
    kfuzz_serving.serve(hello, Client)
