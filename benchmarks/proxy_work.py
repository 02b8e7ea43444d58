"""``kfuzz proxy``, socat and Toxiproxy between the same client and the same broker, on loopback.

The broker and the proxy have processes of their own; the contestant is the client. A lap's time is the CPU time of the
proxy's processes alone, in user and system mode; in :func:`delay` it is the median time that an answer takes longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, NamedTuple

import psutil

from benchmarks.contestant import ROOT
from benchmarks.measure import InProcess, Lap
from benchmarks.mixed import UniformSet
from benchmarks.peers import PeerMissing
from kfuzz import messages, records
from kfuzz.errors import KfuzzError
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.headers import request_header_version, response_header_version

Through = Literal["kfuzz", "kfuzz --check-batches", "kfuzz --record", "socat", "toxiproxy", "nothing"]

TOXIPROXY: Final = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
BUILT: Final = ROOT / "build/toxiproxy/server"
BUILD_S_MAX: Final = 600
SIZE: Final = struct.Struct(">i")
MIB: Final = 1 << 20
TOPIC_ID: Final = bytes(range(16))
# A batch has 16 KiB, as a producer sends by default.
BATCH_RECORDS: Final = 138
BATCHES: Final = 64
# Exchanges before anything is timed, and between two looks at the clock.
EXCHANGES: Final = 16
PINGS: Final = 100
# A shorter delay cannot be told from none.
RESOLUTION_NS: Final = 1000
# A recording never reaches it while it is timed.
RECORD_MAX: Final = "1TiB"
START_S_MAX: Final = 20.0
POLL_S: Final = 0.01
# The processors of this process, if the system says so.
CPUS: Final[set[int]] = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
# A client waits so long for one answer.
ANSWER_S_MAX: Final = 30.0


class Exchanged(NamedTuple):
    """Answers that came, and their bytes."""

    answers: int
    bytes: int


@dataclass(frozen=True)
class Conversation:
    """Requests of one kind, and the answer that each of them gets. ``batches``: those in an answer to Fetch."""

    api: str
    version: int
    batches: int = BATCHES

    @cached_property
    def request(self) -> bytes:
        """A request, with its size in front."""
        values: dict[str, Any] = {}
        if self.api == "Fetch":
            values = {"topics": [{"topicId": TOPIC_ID, "partitions": [{"partition": 0, "partitionMaxBytes": MIB}]}]}
        definition = catalogue().find(f"{self.api}Request")
        header = {"requestApiKey": definition.api_key, "requestApiVersion": self.version, "clientId": "bench"}
        head = messages.encode("RequestHeader", request_header_version(definition, self.version), header)
        return _framed(head + messages.encode(definition, self.version, values))

    @cached_property
    def answer(self) -> bytes:
        """The answer, with its size in front."""
        values: dict[str, Any] = {}
        if self.api == "ApiVersions":
            values = {"apiKeys": [{"apiKey": key, "minVersion": 0, "maxVersion": 1} for key in range(60)]}
        if self.api == "Fetch":
            partition = {"partitionIndex": 0, "highWatermark": 1, "records": self.records}
            values = {"responses": [{"topicId": TOPIC_ID, "partitions": [partition]}]}
        definition = catalogue().find(f"{self.api}Response")
        head = messages.encode("ResponseHeader", response_header_version(definition, self.version), {})
        return _framed(head + messages.encode(definition, self.version, values))

    @property
    def records(self) -> bytes:
        """The batches in an answer."""
        return records.encode(UniformSet(self.batches, batch_records=(BATCH_RECORDS,) * 2).record_batches)

    @cached_property
    def census(self) -> Exchanged:
        """The counts of one exchange."""
        return Exchanged(1, len(self.answer))


def _framed(data: bytes) -> bytes:
    return SIZE.pack(len(data)) + data


class Client:
    """A connection that sends a request and discards its answer, again and again."""

    def __init__(self, conversation: Conversation, port: int) -> None:
        self._request = conversation.request
        self._answer = conversation.answer
        self._room = memoryview(bytearray(MIB))
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self) -> int:
        """The bytes of the answer."""
        self._socket.sendall(self._request)
        left = len(self._answer)
        while left:
            count = self._socket.recv_into(self._room, min(left, MIB))
            if not count:
                raise KfuzzError(f"the connection was closed {left} bytes before the end of an answer")
            left -= count
        return len(self._answer)

    def close(self) -> None:
        self._socket.close()


class _Between:
    """A broker, and something between it and a client. ``port`` is where the client connects."""

    def __init__(self, conversation: Conversation, through: Through) -> None:
        self._stack = ExitStack()
        self.process: psutil.Process | None = None
        try:
            broker = self._start([sys.executable, str(ROOT / "benchmarks/answerer.py")], stdin=subprocess.PIPE)
            assert broker.stdin is not None
            broker.stdin.write(conversation.answer)
            broker.stdin.flush()
            self.broker = self.port = int(self._line(broker))
            if through != "nothing":
                self._put(through)
        except BaseException:
            self.close()
            raise

    def _put(self, through: Through) -> None:
        if through.startswith("kfuzz"):
            argv = [sys.executable, "-m", "kfuzz", "proxy", "127.0.0.1:0", f"127.0.0.1:{self.broker}", "--json"]
            options = through.split()[1:]
            if options == ["--record"]:
                options += [f"{self._folder()}/conversation", "--record-max", RECORD_MAX]
            proxy = self._start([*argv, *options])
            [place] = json.loads(self._line(proxy))["brokers"].values()
            self.port = int(place.rpartition(":")[2])
        else:
            self.port = _free_port()
            proxy = self._start(
                [*socat(), f"TCP-LISTEN:{self.port},fork", f"TCP:127.0.0.1:{self.broker}"]
                if through == "socat"
                else [*toxiproxy(), "-port", str(_free_port()), "-config", self._toxics()]
            )
            self._wait(proxy)
        self.process = psutil.Process(proxy.pid)

    def _toxics(self) -> str:
        one = {"name": "broker", "listen": f"127.0.0.1:{self.port}", "upstream": f"127.0.0.1:{self.broker}"}
        file = self._folder() / "toxiproxy.json"
        file.write_text(json.dumps([one | {"enabled": True}]))
        return str(file)

    def _folder(self) -> Path:
        return Path(self._stack.enter_context(TemporaryDirectory(prefix="kfuzz-bench-")))

    def _start(self, argv: Sequence[str], stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._stack.callback(_end, process)
        return process

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        if not (line := process.stdout.readline()):
            raise KfuzzError(f"{process.args!r} ended with exit code {process.wait()}")
        return line

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Until somebody listens at the port."""
        until = time.monotonic() + START_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise KfuzzError(f"{process.args!r} does not listen") from None
                time.sleep(POLL_S)
            else:
                return

    def cpu_ns(self) -> int:
        """The CPU time of the proxy until now, with its children."""
        assert self.process is not None
        return sum(_cpu_ns(one.pid) for one in (self.process, *self.process.children(recursive=True)))

    def close(self) -> None:
        """End all processes."""
        self._stack.close()


def _cpu_ns(pid: int) -> int:
    # The number that clock_getcpuclockid gives: the clock of all threads of a process, in user and system mode.
    return time.clock_gettime_ns(~pid << 3 | 2)


def _end(process: subprocess.Popen[bytes]) -> None:
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    for one in (*children, process):
        # A child may end by itself meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.communicate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Relayed:
    """Work that is exchanges through a proxy."""

    def __init__(self, conversation: Conversation, through: Through) -> None:
        self._between = _Between(conversation, through)
        self._client = Client(conversation, self._between.port)

    def census(self) -> Exchanged:
        return Exchanged(1, self._client.exchange())

    def warm_up(self) -> None:
        for _ in range(EXCHANGES):
            self._client.exchange()

    def lap(self, lap_ms: int) -> Lap:
        start = self._between.cpu_ns()
        passes = spent = 0
        while spent < lap_ms * 1_000_000:
            for _ in range(EXCHANGES):
                self._client.exchange()
            passes += EXCHANGES
            spent = self._between.cpu_ns() - start
        return Lap(spent // passes, 1)

    def close(self) -> None:
        self._client.close()
        self._between.close()


class Delay:
    """Work whose time is by how much a proxy makes the median answer later.

    All processes share one processor. Otherwise the system moves them from one to another now and then, and waking a
    processor takes several times as long as what a proxy does.
    """

    def __init__(self, conversation: Conversation, through: Through) -> None:
        _use(set(sorted(CPUS)[-1:]))
        self._between = _Between(conversation, through)
        self._through = Client(conversation, self._between.port)
        self._direct = Client(conversation, self._between.broker)

    def census(self) -> Exchanged:
        self._direct.exchange()
        return Exchanged(1, self._through.exchange())

    def warm_up(self) -> None:
        self.lap(0)

    def lap(self, lap_ms: int) -> Lap:
        taken: dict[Client, list[int]] = {self._through: [], self._direct: []}
        until = time.monotonic_ns() + lap_ms * 1_000_000
        while True:
            for client, times in taken.items():
                for _ in range(PINGS):
                    start = time.perf_counter_ns()
                    client.exchange()
                    times.append(time.perf_counter_ns() - start)
            if time.monotonic_ns() >= until:
                later = statistics.median(taken[self._through]) - statistics.median(taken[self._direct])
                return Lap(max(round(later), RESOLUTION_NS), 1)

    def close(self) -> None:
        self._through.close()
        self._direct.close()
        self._between.close()
        _use(CPUS)


def _use(cpus: set[int]) -> None:
    if cpus:
        os.sched_setaffinity(0, cpus)


def verdict(conversation: Conversation) -> InProcess:
    """The verdict of kfuzz on the batches of an answer."""
    data = conversation.records

    def run() -> int:
        assert not records.check(data).findings
        return 1

    return InProcess(run, lambda: conversation.census)


def socat() -> list[str]:
    """The command of socat; ``PeerMissing`` without it."""
    if (found := shutil.which("socat")) is None:
        raise PeerMissing("socat is not installed; install Debian's package socat")
    return [found, "-b", str(MIB)]


def toxiproxy() -> list[str]:
    """The command of Toxiproxy, which Go builds once; ``PeerMissing`` without it."""
    if not BUILT.exists():
        if (go := shutil.which("go")) is None:
            raise PeerMissing("Toxiproxy is built by Go, which is not installed")
        BUILT.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "GOBIN": str(BUILT.parent)}
        done = subprocess.run(
            [go, "install", TOXIPROXY], env=environment, capture_output=True, text=True, timeout=BUILD_S_MAX
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["no error was printed"]
            raise PeerMissing(f"Toxiproxy cannot be built: {last[0]}")
    return [str(BUILT)]
