"""Kit for testees that are whole clients: a client reads each request's bytes from `kfuzz serve`.

``serve`` speaks the protocol. For each request it adds a topic to a broker of its own, and starts a fresh client. The
testee says how to start one (:class:`Client`). A client in any language is driven by a program of its own
(:class:`Driver`). Then the testee is this module with the program's command:

    python kfuzz_serving.py NAME LANGUAGE COMMAND...

A client that finds nothing to read says nothing: it asks the broker again. So the broker is asked how often it was
asked, and for which offset.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple, NoReturn, Protocol

import psutil

POLL_S = 0.02
# librdkafka doubles the size of its fetches ten times before it gives up on a batch that seems to be cut.
FETCHES_MAX = 30
# How long to wait if the client neither fetches nor works. On a busy machine, work takes long.
SILENCE_S_MAX = 3
# This many looks must be without success too: on a busy machine, time passes in which nobody works.
LOOKS_MIN = 50
IDLE_CPU_S_MAX = 0.5
# The CPU time for what is fetched at once. Only a bomb needs as much.
WORK_CPU_S_MAX = 1
# How often a client may ask for another offset without handing out a record. It gets all bytes in one answer.
SKIPS_MAX = 100
# How often a client may hand out the same record.
AGAIN_MAX = 100
# So many fetches at the end of a log show that the client is there. If more are asked for, it has so long for them.
AT_END = 2
AT_END_S_MAX = 3
JUST_NOW_S = 0.5
# A consumer that connects to read one partition more often than this does so for nothing.
CONNECTIONS_MAX = 10
CONTROL = 0x20
# A driver has this long for its first line, and this long or this much CPU time for the answer to a line.
START_S_MAX = 60
CALL_S_MAX = 10
CALL_CPU_S_MAX = 5
LOOK_S = 0.1
DRIVER_LINE_BYTES_MAX = 64 << 20
# The first poll of a process loads most of a client's code. That time is no vector's, so it reads this topic first.
WARM_UP = "warm-up"
WARM_UP_POLLS_MAX = 20
WARM_UP_HEX = (
    "00000000000000000000003a0000000002e99b8dd80000000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff"
    "0000000110000000026b027600"
)
UNCOMMITTED = "read_uncommitted"
# The offsets that a consumer may report.
OFFSETS = ("position", "high_watermark", "last_stable_offset")
# The faults of a client that its broker may note, and how the answer says so.
FAULTS = {
    "not_offered": "asks in {}, which its broker does not offer",
    "unreadable": "its group cannot read what it writes: {}",
}
# A record that every producer can send.
PLAIN = {"timestamp": "1700000000000", "key": None, "value": "76", "headers": []}

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


class Client(Protocol):
    """A consumer of one topic's partition 0.

    It may have ``offsets``: those that the library reports after the last call of ``poll``, as fields of an answer.

    It may have ``allocated_bytes``: the most that was allocated for one call of ``poll``, or since the start. Then it
    may also have ``allocated_at``: the library's line of source that allocated most of it.
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


Start = Callable[[str, str, str, int], Client]
"""Takes the broker's address, the name of a topic, the isolation level, and the offset of the first fetch."""

Offsets = list["str | None"]
Produce = Callable[..., "Stopped | list[Stopped | Offsets]"]
"""Sends records to partition 0, in order. Takes the broker's address and the name of a topic, and as keywords:
``records`` in their JSON form without offsets, ``compression``, ``idempotent``, and ``transactional_id`` (None, or that
of a transaction that is to be committed). For several sends, it also takes ``sends`` and ``at_once`` of the protocol,
``topics`` if they are to several, and ``group`` if each is a transaction that commits an offset of this group. Returns
why nothing could be sent, or a list with the result of each send: why it has failed, or the offsets that the library
reports for the first records when all are acknowledged."""


class Asked(NamedTuple):
    """The offset of the last fetch, how many in a row had it, and how many connections have fetched the topic."""

    offset: int
    times: int
    connections: int


class Broker:
    """`kfuzz serve`, which gives each client its bytes. ``behaviour``: its settings, for one question."""

    def __init__(self, behaviour: dict[str, Any] | None = None) -> None:
        behaviour = dict(behaviour or {})
        # The first broker leads all partitions. If there are others, clients get the address of the last one.
        brokers = behaviour.pop("brokers", 2 if "ends" in behaviour else 1)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kfuzz", "serve", "--from-stdin", "--json", "--cluster", str(brokers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        ready = self.hear()
        port = ready["brokers"][-1]["port"] if brokers > 1 else ready["port"]
        self.address = f"{ready['host']}:{port}"
        self.ask(topic=WARM_UP, hex=WARM_UP_HEX)
        self.ask(broker=behaviour)

    def ask(self, **line: Any) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout
        answer = json.loads(self.process.stdout.readline() or sys.exit("`kfuzz serve` has ended"))
        return answer if "error" not in answer else sys.exit(answer["error"])

    def asked(self, topic: str) -> Asked:
        answer = self.ask(topic=topic)
        return Asked(int(answer["fetch_offset"]), answer["times"], answer["connections"])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


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


def consume(
    client: Client, broker: Broker, topic: str, said: Promised, records: list[Record], at_end: int = AT_END
) -> Stopped:
    """Append what the client hands out to ``records``, and return the outcome with a text.

    It must fetch ``at_end`` times at the end of the log, unless it is slow.
    """

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
        # A client that is to stay at the end does so after it has said that it is there.
        if got is not None and not (got is END and at_end > AT_END):
            if got is END or (got.short_at is not None and said.whole and got.short_at >= said.end):
                return ended()
            return got
        # Trust the broker's state only if the client has nothing more afterwards.
        offset, times, connections = broker.asked(topic)
        if connections > CONNECTIONS_MAX and at_end > AT_END:
            return Stopped("rejected", f"connects again and again: {connections} times for one partition")
        is_behind = said.whole and offset >= said.end and times > 1
        stalled = watch.verdict(offset, times, FETCHES_MAX if not is_behind else at_end)
        is_done = is_behind and (times >= at_end or watch.is_slow())
        if is_last_look and is_done:
            return ended()
        if is_last_look and stalled:
            return Stopped("stalled", stalled)
        is_last_look = is_done or bool(stalled)


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
        self.looks = 0
        self.restart()

    def restart(self) -> None:
        """Begin again with the next look, because reading the CPU time for each record would take long."""
        self.is_fresh = True

    def is_slow(self) -> bool:
        """Whether the client has asked for one offset for a long time, and did so just now."""
        now_s = time.monotonic()
        return now_s - self.here_s > AT_END_S_MAX and now_s - self.since_s < JUST_NOW_S

    def verdict(self, offset: int, times: int, times_max: int = FETCHES_MAX) -> str:
        """Why the client makes no progress, from the broker's state; "" if it may continue."""
        self.looks += 1
        if self.is_fresh:
            self.skips = 0
        if self.is_fresh or (offset, times) != self.seen:
            self.skips += offset != self.seen[0]
            if self.is_fresh or offset != self.seen[0]:
                self.here_s = time.monotonic()
            self.seen, self.is_fresh = (offset, times), False
            self.since_s, self.cpu_s, self.looks = time.monotonic(), self.client.cpu_s(), 0
        if self.skips > SKIPS_MAX:
            return "asks for other offsets again and again"
        if times > max(times_max, FETCHES_MAX):
            return f"asks for offset {offset} again and again"
        cpu_s = self.client.cpu_s() - self.cpu_s
        if cpu_s > WORK_CPU_S_MAX:
            return "computes without an end"
        silent = time.monotonic() - self.since_s > SILENCE_S_MAX and self.looks > LOOKS_MIN
        if silent and cpu_s < IDLE_CPU_S_MAX:
            return "asks for nothing more"
        return ""


class Kit:
    """Answers requests with clients of a broker."""

    def __init__(self, broker: Broker, start: Start, produce: Produce | None, drivers: Drivers | None = None) -> None:
        self.broker = broker
        self.start = start
        self.produce = produce
        self.drivers = drivers
        self.operations = {"decode-records": self._decode_records, "decode-stream": self._decode_stream}
        if produce:
            self.operations["produce-records"] = self._produce_records
        if drivers:
            self.operations["converse"] = self._converse

    def answer(self, request: dict[str, Any], topic: str) -> dict[str, Any]:
        operation = request.get("operation")
        if operation not in self.operations or request.get("role", "consumer") != "consumer":
            return {"outcome": "unsupported", "error": f"a client has no {operation} in role {request.get('role')}"}
        if operation == "converse":
            return self._converse(request, topic)
        if "broker" in request:
            return self._with_broker(request, topic)
        try:
            return self.operations[operation](request, topic)
        finally:
            self.broker.ask(topic=topic, hex=None)

    def _with_broker(self, request: dict[str, Any], topic: str) -> dict[str, Any]:
        """The answer if the broker is to behave in its own way. It is a new one, so no earlier client disturbs it."""
        broker = Broker(request["broker"])
        try:
            kit = Kit(broker, self.start, self.produce)
            answer = kit.operations[request["operation"]](request, topic)
            noted = broker.ask(broker={})
            if text := next((form.format(noted[name]) for name, form in FAULTS.items() if name in noted), ""):
                if answer["outcome"] in ("accepted", "nothing"):
                    answer["outcome"] = "rejected"
                answer["error"] = f"{text}; {answer['error']}" if "error" in answer else text
            return answer
        finally:
            broker.stop()

    def _decode_records(self, request: dict[str, Any], topic: str) -> dict[str, Any]:
        data = bytes.fromhex(request["hex"])
        if len(data) > 16 and data[0] & 0x80:
            return {"outcome": "unsupported", "error": "a consumer cannot ask for a negative offset"}
        self.broker.ask(topic=topic, hex=request["hex"])
        return self._consumed(promised(data), topic, UNCOMMITTED, 0)

    def _decode_stream(self, request: dict[str, Any], topic: str) -> dict[str, Any]:
        """The steps are the data of one fetch. How many records a reader hands out of them, only the referee knows."""
        data = "".join(request["steps"])
        always = request["isolation"] == UNCOMMITTED
        aborted = {"aborted": request["aborted"], "aborted_always": always} if request.get("aborted") else {}
        # One step after the other, if the client is to ask many times.
        log = {"steps": request["steps"]} if "fetches_at_end" in request else {"hex": data}
        self.broker.ask(topic=topic, **log, **aborted)
        said = promised(bytes.fromhex(data))._replace(records=0)
        offset, at_end = int(request.get("fetch_offset", "0")), request.get("fetches_at_end", AT_END)
        return self._consumed(said, topic, request["isolation"], offset, at_end)

    def _consumed(
        self, said: Promised, topic: str, isolation: str, offset: int, at_end: int = AT_END
    ) -> dict[str, Any]:
        client = self.start(self.broker.address, topic, isolation, offset)
        records: list[Record] = []
        end = consume(client, self.broker, topic, said, records, at_end)
        answer: dict[str, Any] = {"outcome": end.outcome, "records": records} | getattr(client, "offsets", {})
        answer |= {name: text for name, text in (("error", end.text), ("at", end.at)) if text}
        if (allocated := getattr(client, "allocated_bytes", None)) is not None:
            # A stalled client may have fetched the same bytes many times.
            fetches = self.broker.asked(topic).times if end.outcome == "stalled" else 1
            answer["allocated_bytes"] = allocated // max(fetches, 1)
            answer |= {"allocated_at": client.allocated_at} if getattr(client, "allocated_at", "") else {}
        client.is_odd |= end.outcome not in ("accepted", "rejected")
        try:
            client.close()
        except Hung:
            # Whatever it has said before.
            answer |= {"outcome": "stalled", "error": "cannot be closed"}
        return answer

    def _produce_records(self, request: dict[str, Any], topic: str) -> dict[str, Any]:
        """The records that arrived at the broker, also those of a producer that has failed."""
        assert self.produce
        how = {
            "compression": request.get("compression", "none"),
            "idempotent": request.get("idempotent", False),
            "transactional_id": request.get("transactional_id"),
        }
        if how["transactional_id"] is not None:
            # The broker knows the id from here on, whatever was asked before: such an id outlives its producers.
            before = f"{topic}-before"
            self.broker.ask(topic=before, produce=True)
            self.produce(self.broker.address, before, records=[PLAIN], **how)
            self.broker.ask(topic=before, hex=None)
        self.broker.ask(topic=topic, produce=True, errors=request.get("errors", []))
        how |= {name: request[name] for name in ("sends", "at_once", "group") if name in request}
        names = {"NONE": topic}
        for error in request.get("topic_errors", ()):
            if error not in names:
                names[error] = f"{topic}-{len(names)}"
                self.broker.ask(topic=names[error], produce=True, metadata_error=error)
        if "topic_errors" in request:
            how["topics"] = [names[error] for error in request["topic_errors"]]
        end = self.produce(self.broker.address, topic, records=request["records"], **how)
        answer = {"outcome": "accepted", "produced": self.broker.ask(topic=topic)["produced"]}
        for name in list(names.values())[1:]:
            self.broker.ask(topic=name, hex=None)
        if isinstance(end, list):
            stopped = [one if isinstance(one, Stopped) else None for one in end]
            odd = [one for one in stopped if one and one.outcome != "rejected"]
            if "sends" in how and not odd:
                answer["sends"] = [one.outcome if one else "accepted" for one in stopped]
            answer["offsets"] = []
            for one, count in zip(end, how.get("sends", [len(request["records"])]), strict=False):
                answer["offsets"] += [*([] if isinstance(one, Stopped) else one), *[None] * count][:count]
            # A producer must continue after a failed send, so the last one counts. Of sends at once, each counts.
            failed = [one for one in stopped if one] if "at_once" in how else stopped[-1:]
            end = next(iter(odd or failed), None)
        if end is None:
            return answer
        return answer | {"outcome": end.outcome, "error": end.text} | ({"at": end.at} if end.at else {})

    def _converse(self, request: dict[str, Any], topic: str) -> dict[str, Any]:
        """A conversation has brokers of its own."""
        # Only conversations need kfuzz itself in this process.
        from kfuzz_conversing import converse

        assert self.drivers
        return converse(request, self.drivers.ask)


def die_of(number: int) -> NoReturn:
    """End this process by the signal that has ended its client, so that the referee sees a crash."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    sys.exit(f"signal {number}")


# --- clients that a program drives -----------------------------------------------------------------------------------


class Hung(Exception):
    """A driver neither answers nor ends. Its process has been killed."""


class Driver:
    """A program that drives one whole client, by lines of JSON: testees/README.md has them.

    Its process serves one client after the other. It is started again after anything odd. If it ends by itself, this
    process ends the same way, so that the referee sees a crash.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.is_warm = False
        # The program's own words about itself: the library's version, and other fields of the handshake.
        self.hello = self._begin()

    def _begin(self) -> dict[str, Any]:
        try:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            sys.exit(f"the driver `{self.command[0]}` cannot be started: {error.strerror}")
        assert self.process.stdout
        # None is the end.
        self.lines: queue.Queue[bytes | None] = queue.Queue(4)
        threading.Thread(target=_read_lines, args=(self.process.stdout, self.lines), daemon=True).start()
        self.family = [psutil.Process(self.process.pid)]
        self.is_warm = False
        try:
            return self._parsed(self.lines.get(timeout=START_S_MAX))
        except queue.Empty:
            self.stop()
            sys.exit(f"the driver `{self.command[0]}` said nothing within {START_S_MAX} s")

    def make_ready(self, address: str) -> None:
        """Start the process if there is none, and let a new one read something."""
        if self.process is None:
            self._begin()
        if not self.is_warm:
            self.is_warm = True
            warm_up = Driven(self, address, WARM_UP, UNCOMMITTED, 0)
            for _ in range(WARM_UP_POLLS_MAX):
                if warm_up.poll(LOOK_S) is not None:
                    break
            with contextlib.suppress(Hung):
                warm_up.close()
            if self.process is None:
                sys.exit(f"the driver `{self.command[0]}` hangs when it is to read a good record")
            with contextlib.suppress(psutil.Error):
                self.family += self.family[0].children(recursive=True)

    def open(self, address: str, topic: str, isolation: str, offset: int) -> Driven:
        self.make_ready(address)
        return Driven(self, address, topic, isolation, offset)

    def produce(self, address: str, topic: str, **how: Any) -> Stopped | list[Stopped | Offsets]:
        self.make_ready(address)
        try:
            said = self.ask(do="produce", address=address, topic=topic, **how)
        except Hung as error:
            return Stopped("stalled", str(error))
        if "outcome" in said:
            return _stopped(said, address, topic)
        results = said.get("sends", [said])
        return [_stopped(one, address, topic) if "outcome" in one else one.get("offsets") or [] for one in results]

    def ask(self, **line: Any) -> dict[str, Any]:
        """The answer to a line. Raises ``Hung`` if there is none in time."""
        assert self.process
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(line).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._end()
        began_s, cpu_s, looks = time.monotonic(), self.cpu_s(), 0
        while True:
            try:
                return self._parsed(self.lines.get(timeout=LOOK_S))
            except queue.Empty:
                looks += 1
            computes = self.cpu_s() - cpu_s > CALL_CPU_S_MAX
            if computes or (time.monotonic() - began_s > CALL_S_MAX and looks > LOOKS_MIN):
                self.stop()
                raise Hung("computes without an end" if computes else f"does not return from {line['do']}")

    def _parsed(self, line: bytes | None) -> dict[str, Any]:
        if line is None:
            self._end()
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict):
                return said
        self.stop()
        sys.exit(f"the driver wrote another line than an object of JSON: {line[:60]!r}")

    def _end(self) -> NoReturn:
        assert self.process
        status = self.process.wait()
        if status < 0:
            die_of(-status)
        sys.exit(status or "the driver has ended")

    def cpu_s(self) -> float:
        used = 0.0
        for one in self.family:
            with contextlib.suppress(psutil.Error):
                times = one.cpu_times()
                used += times.user + times.system
        return used

    def stop(self) -> None:
        """Kill the process, and all that it has started."""
        if self.process is None:
            return
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    child.kill()
        self.process.kill()
        self.process.wait()
        self.process = None


class Drivers:
    """Processes of one driver, by numbers from 1, for conversations with several clients."""

    def __init__(self, first: Driver, address: str) -> None:
        self.known = {1: first}
        self.address = address

    def ask(self, by: int, **line: Any) -> dict[str, Any]:
        """The answer to a line."""
        driver = self.known.get(by) or self.known.setdefault(by, Driver(self.known[1].command))
        driver.make_ready(self.address)
        try:
            return driver.ask(**line)
        except Hung as error:
            return {"outcome": "stalled", "error": str(error)}


def _read_lines(stream: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    with contextlib.suppress(ValueError, OSError):
        while line := stream.readline(DRIVER_LINE_BYTES_MAX):
            lines.put(line)
    lines.put(None)


class Driven:
    """One consumer in the process of a driver."""

    def __init__(self, driver: Driver, address: str, topic: str, isolation: str, offset: int) -> None:
        self.driver = driver
        self.address, self.topic = address, topic
        self.waiting: list[Record] = []
        self.is_odd = False
        self.allocated_bytes: int | None = None
        self.allocated_at = ""
        self.offsets: dict[str, str] = {}
        self.failed = self._ask(do="open", address=address, topic=topic, isolation=isolation, offset=str(offset))

    def _ask(self, **line: Any) -> dict[str, Any]:
        try:
            return self.driver.ask(**line)
        except Hung as error:
            return {"outcome": "stalled", "error": str(error)}

    def poll(self, timeout_s: float) -> Record | Stopped | None:
        if not self.waiting:
            said = self.failed or self._ask(do="poll", timeout_ms=round(timeout_s * 1000))
            if "allocated_bytes" in said:
                self.allocated_bytes = max(self.allocated_bytes or 0, said["allocated_bytes"])
                self.allocated_at = said.get("allocated_at", self.allocated_at)
            if "outcome" in said:
                return _stopped(said, self.address, self.topic)
            self.offsets |= {name: said[name] for name in OFFSETS if name in said}
            if said.get("end"):
                return END
            self.waiting = said["records"][::-1]
        return self.waiting.pop() if self.waiting else None

    def cpu_s(self) -> float:
        return self.driver.cpu_s()

    def close(self) -> None:
        if self.is_odd:
            self.driver.stop()
        elif self.driver.process is not None:
            self.driver.ask(do="close")


def _stopped(said: dict[str, Any], address: str, topic: str) -> Stopped:
    """The outcome that a driver tells. Its text must not depend on names that are new in each run."""
    text = str(said.get("error", "")).replace(address, "the broker")
    text = re.sub(rf"\b{topic}-0\b", "the partition", text)
    text = re.sub(rf"\b{topic}\b", "the topic", text)
    short = said.get("short_at")
    return Stopped(said["outcome"], text, None if short is None else int(short), said.get("at", ""))


# --- the protocol -----------------------------------------------------------------------------------------------------


def serve(
    handshake: dict[str, Any],
    start: Start,
    *,
    produce: Produce | None = None,
    broker: Broker | None = None,
    drivers: Drivers | None = None,
) -> None:
    """Answer requests until the input ends. ``handshake`` needs only a name, a version and a language."""
    out, sys.stdout = sys.stdout, sys.stderr  # stdout is for the protocol only; a library may print
    kit = Kit(broker or Broker(), start, produce, drivers)
    hello = {
        "protocol": "kfuzz-testee/1",
        "operations": list(kit.operations),
        "roles": ["consumer"],
        "magic": [0, 1, 2],
        "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
        "checks_crc": True,
        "control": "hidden",
        "outcomes": ["nothing", "stalled", "panic"],
    }
    print(json.dumps(hello | handshake), file=out, flush=True)
    for number, line in enumerate(sys.stdin.buffer):
        request: dict[str, Any] = {}
        try:
            request = json.loads(line)
            said = {"id": request["id"]} | kit.answer(request, f"t{number}")
        except (ValueError, TypeError, LookupError) as error:
            said = {"id": request.get("id"), "outcome": "fault", "error": f"BadRequest: {error}"}
        print(json.dumps(said), file=out, flush=True)


def main() -> None:
    name, language, *command = sys.argv[1:]
    driver, broker = Driver(command), Broker()
    driver.make_ready(broker.address)
    produce = driver.produce if "produces" in driver.hello else None
    hello = {"name": name, "language": language} | driver.hello
    serve(hello, driver.open, produce=produce, broker=broker, drivers=Drivers(driver, broker.address))


if __name__ == "__main__":
    main()
