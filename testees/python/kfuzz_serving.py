"""Kit for testees whose library can only fetch: a client reads each request's bytes from `kfuzz serve`.

``serve`` speaks the protocol. For each request it adds a topic to a broker of its own, and starts a fresh client. The
testee says how to start one (:class:`Client`).

A client that finds nothing to read says nothing: it asks the broker again. So the broker is asked how often it was
asked, and for which offset.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol

POLL_S = 0.02
# librdkafka doubles the size of its fetches ten times before it gives up on a batch that seems to be cut.
FETCHES_MAX = 30
# How long to wait if the client neither fetches nor works. On a busy machine, work takes long.
SILENCE_S_MAX = 3
IDLE_CPU_S_MAX = 0.5
# The CPU time for what is fetched at once. Only a bomb needs as much.
WORK_CPU_S_MAX = 1
# How often a client may hand out the same record.
AGAIN_MAX = 100
# Without computing. Usually it takes a hundredth of a second.
CLOSE_S_MAX = 10
CONTROL = 0x20

Record = dict[str, Any]


class Stopped(NamedTuple):
    """Why a client hands out no more: it is at the end of the topic, or an ``outcome`` of the protocol with a text.

    ``short_at``: the offset from which the client wants larger fetches, as for a batch that is cut. ``at``: the
    library's line of source in which it failed, if it is known.
    """

    outcome: str
    text: str = ""
    short_at: int | None = None
    at: str = ""


END = Stopped("end")
# librdkafka's message about a fetch that gives it nothing.
TOO_LARGE = re.compile(r"Message at offset (\d+) might be too large")


def short_at(text: str) -> int | None:
    """The offset in librdkafka's error about a message that is too large; None in any other error."""
    found = TOO_LARGE.search(text)
    return int(found[1]) if found else None


class Client(Protocol):
    """A consumer of one topic, from offset 0 of partition 0 on.

    It may have ``allocated_bytes``: the most that was allocated for one call of ``poll``.
    """

    # Whether something happened that could harm the next client, so that this one's process must end.
    is_odd: bool

    def poll(self, timeout_s: float) -> Record | Stopped | None:
        """The next record in its JSON form, the end, or None if there is nothing new within ``timeout_s``.

        If the client has already handed something out, this must return it even if ``timeout_s`` is 0.
        """

    def cpu_s(self) -> float:
        """The CPU time that the client has used so far."""

    def close(self) -> None:
        """End the client."""


Start = Callable[[str, str], Client]
"""Takes the broker's address and the name of a topic."""


class Broker:
    """`kfuzz serve`, which gives each client its bytes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kfuzz", "serve", "--from-stdin", "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        ready = self.hear()
        self.address = f"{ready['host']}:{ready['port']}"

    def ask(self, **line: Any) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout
        answer = json.loads(self.process.stdout.readline() or sys.exit("`kfuzz serve` has ended"))
        return answer if "error" not in answer else sys.exit(answer["error"])

    def asked(self, topic: str) -> tuple[int, int]:
        """The offset of the last fetch, and how many in a row had it."""
        answer = self.ask(topic=topic)
        return int(answer["fetch_offset"]), answer["times"]


class Promised(NamedTuple):
    """The headers' counts: how many records a consumer hands out, and the offset after them.

    ``whole`` is true if the bytes are whole batches. The last batch may be incomplete.
    """

    records: int
    end: int
    whole: bool


def promised(data: bytes) -> Promised:
    """Needed only to see records that the library leaves out in silence, and to know when it is done."""
    at, records, end = 0, 0, 0
    while len(data) - at > 16:
        offset, size = struct.unpack_from(">qi", data, at)
        if size < 14:  # the overhead of the smallest message, of magic 0
            return Promised(records, end, False)
        if at + 12 + size > len(data):
            break
        count = 1
        if data[at + 16] == 2 and size >= 49:
            attributes, last_offset_delta = struct.unpack_from(">hi", data, at + 21)
            [count] = struct.unpack_from(">i", data, at + 57)
            offset += last_offset_delta
            if attributes & CONTROL:
                count = 0
        # The end is at least 1, so that a consumer at offset 0 fetches the bytes.
        records, end = records + max(count, 0), max(end, offset + 1, 1)
        at += 12 + size
    return Promised(records, end, True)


def consume(client: Client, broker: Broker, topic: str, said: Promised, records: list[Record]) -> Stopped:
    """Append what the client hands out to ``records``, and return the outcome with a text."""

    def ended() -> Stopped:
        if said.whole and len(records) >= said.records:
            return Stopped("accepted")
        return Stopped("nothing", f"hands out {len(records)} records of {said.records}")

    watch, seen = _Watch(client), Counter[str]()
    is_last_look = False
    while True:
        got = client.poll(0 if is_last_look else POLL_S)
        if isinstance(got, dict):
            text = json.dumps(got)
            seen[text] += 1
            if seen[text] > AGAIN_MAX:
                del records[_first_repeated(records) :]
                return Stopped("stalled", "hands out the same records again and again")
            records.append(got)
            is_last_look = False
            watch.restart()
            continue
        if got is not None:
            if got is END or (got.short_at is not None and said.whole and got.short_at >= said.end):
                return ended()
            return got
        # Trust the broker's state only if the client has nothing more afterwards.
        offset, times = broker.asked(topic)
        is_behind = said.whole and offset >= said.end and times > 1
        stalled = watch.verdict(offset, times)
        if is_last_look and is_behind:
            return ended()
        if is_last_look and stalled:
            return Stopped("stalled", stalled)
        is_last_look = is_behind or bool(stalled)


def _first_repeated(records: list[Record]) -> int:
    """The place of the first record that an earlier one is equal to. One round is enough to see what a loop has."""
    seen: set[str] = set()
    for place, record in enumerate(records):
        text = json.dumps(record)
        if text in seen:
            return place
        seen.add(text)
    return len(records)


class _Watch:
    """Sees that a client will never hand out anything again."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen = (-1, 0)
        self.restart()

    def restart(self) -> None:
        self.since_s, self.cpu_s = time.monotonic(), self.client.cpu_s()

    def verdict(self, offset: int, times: int) -> str:
        """Why the client makes no progress, from the broker's state; "" if it may continue."""
        if (offset, times) != self.seen:
            self.seen = offset, times
            self.restart()
        if times > FETCHES_MAX:
            return f"asks for offset {offset} again and again"
        cpu_s = self.client.cpu_s() - self.cpu_s
        if cpu_s > WORK_CPU_S_MAX:
            return "computes without an end"
        if time.monotonic() - self.since_s > SILENCE_S_MAX and cpu_s < IDLE_CPU_S_MAX:
            return "asks for nothing more"
        return ""


def answer(broker: Broker, start: Start, forks: bool, request: dict[str, Any], topic: str) -> dict[str, Any]:
    if request.get("operation") != "decode-records" or request.get("role", "consumer") != "consumer":
        return {"outcome": "unsupported", "error": "only reads records, as a consumer"}
    data = bytes.fromhex(request["hex"])
    if len(data) > 16 and data[0] & 0x80:
        return {"outcome": "unsupported", "error": "a consumer cannot ask for a negative offset"}

    def work(client: Client) -> dict[str, Any]:
        records: list[Record] = []
        end = consume(client, broker, topic, promised(data), records)
        said: dict[str, Any] = {"outcome": end.outcome, "records": records}
        allocated = getattr(client, "allocated_bytes", None)
        said |= {name: text for name, text in (("error", end.text), ("at", end.at)) if text}
        return said if allocated is None else said | {"allocated_bytes": allocated}

    broker.ask(topic=topic, hex=request["hex"])
    if forks:
        said = _in_fresh_process(lambda: start(broker.address, topic), work)
    else:
        client = start(broker.address, topic)
        said = work(client)
        client.is_odd |= said["outcome"] not in ("accepted", "rejected")
        client.close()
    broker.ask(topic=topic, hex=None)
    return said


def _in_fresh_process(make: Callable[[], Client], work: Callable[[Client], dict[str, Any]]) -> dict[str, Any]:
    """The result of ``work`` for a new client in a copy of this process. If it dies, this process dies the same way.

    A client that cannot be closed has stalled, whatever it has said before.
    """
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            client = make()
            said = work(client)
            with open(writable, "w") as out:
                json.dump(said, out)
            if said["outcome"] != "stalled":
                _limit_time()
                client.close()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            # Threads of the library must not hold up the end.
            os._exit(status)
    os.close(writable)
    with open(readable) as given:
        text = given.read()
    _, ended = os.waitpid(pid, 0)
    if ended and (not text or os.WTERMSIG(ended) not in (signal.SIGXCPU, signal.SIGALRM)):
        _end_like(ended)
    answer: dict[str, Any] = json.loads(text)
    return answer | ({"outcome": "stalled", "error": "cannot be closed"} if ended else {})


def _limit_time() -> None:
    """Let the system end this process soon: a call into a library that never returns cannot be ended otherwise."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + WORK_CPU_S_MAX), resource.RLIM_INFINITY))
    signal.alarm(CLOSE_S_MAX)


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        die_of(os.WTERMSIG(status))
    sys.exit(os.WEXITSTATUS(status))


def die_of(number: int) -> NoReturn:
    """End this process by the signal that has ended its client, so that the referee sees a crash."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    sys.exit(f"signal {number}")


def serve(handshake: dict[str, Any], start: Start, *, forks: bool = False) -> None:
    """Answer requests until the input ends. ``handshake`` needs only a name, a version and a language.

    With ``forks``, each request has a copy of this process: for a library that runs inside it, and could harm it.
    """
    out, sys.stdout = sys.stdout, sys.stderr  # stdout is for the protocol only; a library may print
    broker = Broker()
    hello = {
        "protocol": "kfuzz-testee/1",
        "operations": ["decode-records"],
        "roles": ["consumer"],
        "magic": [0, 1, 2],
        "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
        "checks_crc": True,
        "control": "hidden",
        "outcomes": ["nothing", "stalled"],
    }
    print(json.dumps(hello | handshake), file=out, flush=True)
    for number, line in enumerate(sys.stdin.buffer):
        request: dict[str, Any] = {}
        try:
            request = json.loads(line)
            said = {"id": request["id"]} | answer(broker, start, forks, request, f"t{number}")
        except (ValueError, TypeError, LookupError) as error:
            said = {"id": request.get("id"), "outcome": "fault", "error": f"BadRequest: {error}"}
        print(json.dumps(said), file=out, flush=True)
