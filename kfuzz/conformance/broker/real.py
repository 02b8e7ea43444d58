"""Asks a real Apache Kafka broker, started from its published artefacts, about vectors (docs/real-broker.md).

``Broker`` is one broker in its own directory. ``produce`` sends it vectors unchanged. ``recover`` writes vectors into
the partitions of a stopped broker as segments, starts it, and compares the segments. ``play`` sends streams of batches.
``RealBroker`` answers the questions that testees get.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from kfuzz import records
from kfuzz.conformance.broker.settings import OF_BROKERS, OF_TOPICS, by_settings, handshake_of
from kfuzz.conformance.judge.compare import Case, Cell, request
from kfuzz.conformance.judge.confirmation import Confirmation
from kfuzz.conformance.judge.runner import cells
from kfuzz.conformance.protocol.building import BuildFailed
from kfuzz.conformance.protocol.lines import APPEND_STREAM, DECODE, Handshake
from kfuzz.conformance.protocol.peer import Question
from kfuzz.conformance.protocol.testees import Testee, default_root
from kfuzz.control import ControlRecordKey, ControlRecordType, EndTransactionMarker, decode_control
from kfuzz.documents import JSON_BYTES_MAX, load_json
from kfuzz.errors import KfuzzError, RecordsError, UsageError
from kfuzz.kafka import BROKER_RELEASE
from kfuzz.logs.stored import CLEAN_SHUTDOWN, META_PROPERTIES, METADATA_NAME, RECOVERY_POINT, REPLICATION
from kfuzz.text import foreign_text
from kfuzz.vectors.confirm import contradiction, step_contradiction
from kfuzz.vectors.model import Vector

T = TypeVar("T")
HEAP_BYTES: Final = 512 * 1024 * 1024
# On an idle machine the broker is ready after two seconds, also if it recovers a thousand partitions.
START_TIMEOUT_S: Final = 120
STOP_TIMEOUT_S: Final = 60
ANSWER_TIMEOUT_MS: Final = 60_000
POLL_S: Final = 0.02
LOG_TAIL_CHARS: Final = 2000
STARTED: Final = b"Kafka Server started"
# LogManager's message for a partition whose log it could not load.
NOT_LOADED: Final = re.compile(rb"Error while loading logs in (\S+) in \d+ms")
# The first line of an exception in a log, and the first line of its cause.
TROUBLE: Final = re.compile(r"(Caused by: )?([a-z]\w*\.)+[A-Z]\w*(Exception|Error)\b")
JAVA_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOG_LEVELS: Final = {
    "defaultLogLevel": "warn",
    "log.org.apache.kafka.storage.internals.log.LogManager": "info",
    "log.kafka.server.KafkaRaftServer": "info",
}
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
# Kafka's error for an unexpected exception.
UNFORESEEN: Final = "UNKNOWN_SERVER_ERROR"
NO_ERROR: Final = "NONE"

# docs/real-broker.md says why those for vectors differ from Kafka's defaults.
PROPERTIES: Final = Path(__file__).with_name("server.properties").read_text()
FOR_VECTORS: Final = Path(__file__).with_name("vectors.properties").read_text()


class BrokerFailed(KfuzzError):
    """The broker did not start, ended too early or gave no usable answer; the text says why."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a producer's transaction. Only a coordinator has it written; a Produce request cannot contain it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int = 0

    def to_request(self) -> dict[str, Any]:
        """The request to the sender that writes this marker, without topic and partition."""
        return {"operation": "write-marker", **asdict(self), "producer_id": str(self.producer_id)}


@dataclass(frozen=True, slots=True)
class Produced:
    """A broker's answer to one request.

    ``outcome``: accepted, rejected, or fault for an unexpected error or a missing answer. ``error``: the protocol's
    name of the error (``NONE`` without one), or empty if there was no answer. ``text``: the broker's message, or why
    there was no answer. ``stored``: the bytes that a Fetch from ``base_offset`` returns. ``last_stable_offset``: that
    of the partition after the request.
    """

    outcome: str
    error: str
    text: str = ""
    base_offset: int = -1
    stored: bytes = b""
    last_stable_offset: int = 0

    def to_cell(self) -> dict[str, str]:
        """The answer as a vector's cell: ``produce``, and the ``error`` of a refusal."""
        return {"produce": self.outcome} | ({"error": self.error} if self.error not in ("", NO_ERROR) else {})

    def to_step(self) -> dict[str, str]:
        """The answer in the form of a stream's step; offsets are decimal strings, as in the vectors."""
        return {
            "outcome": self.outcome,
            "error": self.error,
            "base_offset": str(self.base_offset),
            "last_stable_offset": str(self.last_stable_offset),
        }

    def to_answer(self) -> dict[str, Any]:
        """The answer in the form of a testee in role broker, with the stored batches as kfuzz reads them."""
        if self.outcome != "accepted":
            return {"outcome": self.outcome, "error": self.error or self.text}
        answer: dict[str, Any] = {"outcome": self.outcome}
        with contextlib.suppress(RecordsError):  # A broker may store a batch that no consumer can read.
            answer["batches"] = records.to_json(records.decode(self.stored))
        return answer


@dataclass(frozen=True, slots=True)
class Recovered:
    """A start's effect on a segment: ``kept``, ``truncated`` (to ``size`` bytes), or ``aborts`` (the broker ends)."""

    outcome: str
    size: int
    text: str = ""


# --- the artefacts --------------------------------------------------------------------------------------------------


@cache
def artefacts(release: str = BROKER_RELEASE) -> Testee:
    """The Maven project that builds the sender and fetches the broker's jars; its ``version`` is the broker's.

    ``UsageError`` if kfuzz is installed without ``testees/``.
    """
    folder = default_root() / "kafka-broker"
    pom = folder / "pom.xml"
    if not pom.is_file():
        raise UsageError(f"{pom} is missing; run the real broker from a checkout of kfuzz")
    return Testee(
        name="kafka-broker",
        version=release,
        argv=(),
        folder=folder,
        requires=("java", "javac", "mvn"),
        build=("mvn", "-q", "-B", f"-Dkafka.version={release}", "prepare-package"),
        product=folder / "target" / release / "classes/kfuzz/broker/Sender.class",
    )


def make_broker_ready(release: str) -> Path:
    """The folder with the jars of a release, made if it is not there. ``UsageError`` if that fails."""
    made = artefacts(release)
    if reason := made.missing():
        raise UsageError(f"{reason}; install that to ask a real broker")
    try:
        made.make_ready()
    except BuildFailed as error:
        raise UsageError(f"{made.label}: {error}; repair its build") from None
    assert made.folder
    return made.folder / "target" / release


def kafka_tool(main: str, *arguments: str, java_options: Sequence[str] = ()) -> list[str]:
    """The command line of one of Kafka's tools in this release, with these options of Java; it needs no broker.

    ``UsageError`` if Java or Maven is missing.
    """
    return java_command(
        make_broker_ready(BROKER_RELEASE), main, arguments, log_levels={"defaultLogLevel": "off"}, options=java_options
    )


def java_command(
    folder: Path,
    main: str,
    arguments: Iterable[str],
    *,
    log_levels: Mapping[str, str],
    options: Sequence[str] = JAVA_OPTIONS,
) -> list[str]:
    """The command line of a main class of the release in ``folder``. ``log_levels``: by slf4j-simple's names."""
    levels = [f"-Dorg.slf4j.simpleLogger.{name}={level}" for name, level in log_levels.items()]
    classpath = f"{folder / 'classes'}:{folder / 'lib'}/*"
    return ["java", f"-Xmx{HEAP_BYTES}", *options, *levels, "-cp", classpath, main, *arguments]


# --- one broker -----------------------------------------------------------------------------------------------------


class Broker:
    """One broker with its own controller on the loopback address, in its own temporary directory.

    Use it in a ``with`` block. Entry formats the directory and starts the broker. Exit ends its processes and removes
    the directory, whatever happened inside.

    ``settings``: further lines of server.properties, by Kafka's names. ``log_levels``: what the broker's log has beyond
    its warnings: levels by the names of Kafka's loggers.

    ``release``: which Apache Kafka, from 4.3 on.

    Only one thread may use a broker. ``UsageError`` if Java or Maven is missing; ``BrokerFailed`` if it does not start.
    """

    # The main program, and its stdin. Both Java programs of kfuzz end when their stdin closes.
    _main = "kfuzz.broker.Server"
    _stdin = subprocess.PIPE
    _usual = FOR_VECTORS

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        log_levels: Mapping[str, str] | None = None,
        release: str = BROKER_RELEASE,
    ) -> None:
        self._release = release
        self._settings = dict(settings or {})
        self._log_levels = LOG_LEVELS | {f"log.{name}": level for name, level in (log_levels or {}).items()}
        self._folder: Path
        self._home: Path
        self._process: subprocess.Popen[bytes] | None = None
        self._sender: subprocess.Popen[bytes] | None = None
        self._topics = 0
        # The port on the loopback address that the broker listens on.
        self.port: int

    def __enter__(self) -> Broker:
        self._folder = make_broker_ready(self._release)
        self._home = Path(tempfile.mkdtemp(prefix="kfuzz-broker-"))
        try:
            self._format()
            self.start()
        except BaseException:
            self._clear_away()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._clear_away()

    @property
    def data(self) -> Path:
        """The log directory, with one directory for each partition."""
        return self._home / "data"

    @property
    def log(self) -> bytes:
        """The broker's log since its last start."""
        return (self._home / "broker.log").read_bytes()

    def start(self) -> None:
        """Start the broker and wait until it is ready; ``BrokerFailed`` if it ends or takes too long."""
        process = self._launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        while STARTED not in self.log:
            if process.poll() is not None:
                raise BrokerFailed(f"the broker ended at start: {self.last_words()}")
            if time.monotonic() > deadline:
                raise BrokerFailed(f"the broker did not start within {START_TIMEOUT_S} s: {self.last_words()}")
            time.sleep(POLL_S)

    def _launch(self) -> subprocess.Popen[bytes]:
        argv = java_command(self._folder, self._main, [str(self._properties)], log_levels=self._log_levels)
        with (self._home / "broker.log").open("wb") as log:
            self._process = _spawn(argv, stdin=self._stdin, stdout=log, stderr=subprocess.STDOUT, cwd=self._home)
        return self._process

    def stop(self) -> None:
        """Stop the broker cleanly, as SIGTERM would. Safe if it has already ended."""
        self._end_processes(STOP_TIMEOUT_S)

    def is_alive(self) -> bool:
        """Whether the broker runs."""
        return self._process is not None and self._process.poll() is None

    def last_words(self) -> str:
        """The last errors in its log, or the end of the log if there are none; for reports."""
        lines = [line.strip() for line in self.log.decode("utf-8", "replace").splitlines()]
        errors = [line for line in lines if " ERROR " in line or TROUBLE.match(line)]
        return foreign_text(" | ".join((errors or lines)[-3:])[-LOG_TAIL_CHARS:])

    def create_topic(self, partitions: int, config: Mapping[str, str] | None = None) -> str:
        """Create a new topic and return its name."""
        self._topics += 1
        topic = f"topic{self._topics}"
        request = {"operation": "create-topic", "topic": topic, "partitions": partitions, "config": dict(config or {})}
        answer = self.ask(request)
        if "failure" in answer:
            why = foreign_text(answer["failure"])
            raise BrokerFailed(f"cannot create a topic with {partitions} partitions: {why}")
        return topic

    def replace_log(self, topic: str, files: Iterable[Path]) -> None:
        """Make copies of ``files``, segments and what belongs to them, the log of partition 0 of ``topic``.

        The broker is started again and reads all of it, as after a crash. ``BrokerFailed`` if it does not start.
        """
        self.stop()
        folder = self.data / f"{topic}-0"
        _empty(folder)
        for path in files:
            if path.name != METADATA_NAME:
                shutil.copy(path, folder)
        # With these, it would believe them instead of reading the log.
        for name in (CLEAN_SHUTDOWN, RECOVERY_POINT, REPLICATION):
            (self.data / name).unlink(missing_ok=True)
        self.start()

    def tool(self, main: str, *arguments: str) -> list[str]:
        """The command line of one of Kafka's tools in this release, such as ``kafka.tools.StorageTool``."""
        return kafka_tool(main, *arguments, java_options=JAVA_OPTIONS)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The sender's answer to a request (see ``Sender.java``); ``BrokerFailed`` if the sender ended."""
        sender = self._ready_sender()
        assert sender.stdin
        assert sender.stdout
        with contextlib.suppress(BrokenPipeError):
            sender.stdin.write(json.dumps(request).encode() + b"\n")
            sender.stdin.flush()
        line = sender.stdout.readline(JSON_BYTES_MAX + 1)
        if not line:
            raise BrokerFailed("the sender ended without an answer")
        answer: dict[str, Any] = load_json(line, "the sender's answer")
        return answer

    def _ready_sender(self) -> subprocess.Popen[bytes]:
        if self._sender is None:
            arguments = [str(self.port), str(ANSWER_TIMEOUT_MS)]
            argv = java_command(self._folder, "kfuzz.broker.Sender", arguments, log_levels={"defaultLogLevel": "off"})
            self._sender = _spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self._home)
        return self._sender

    def _format(self, port: int = 0) -> None:
        """Write the settings, with any free port for 0, and format the log directory unless it is formatted."""
        with _free_ports([port, 0]) as (self.port, controller_port):
            properties = PROPERTIES.format(port=self.port, controller_port=controller_port, data=self.data)
        properties += self._usual
        properties += "".join(f"{name}={value}\n" for name, value in self._settings.items())
        self._properties = self._home / "server.properties"
        self._properties.write_text(properties)
        if (self.data / META_PROPERTIES).is_file():
            return
        self.data.mkdir(exist_ok=True)
        for name, content in _formatted(self._folder).items():
            path = self.data / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    def _end_processes(self, timeout_s: float) -> None:
        for process in (self._sender, self._process):
            if process:
                _end(process, timeout_s)
        self._sender = self._process = None

    def _clear_away(self) -> None:
        try:
            self._end_processes(0)
        finally:
            shutil.rmtree(self._home)


@cache
def _formatted(folder: Path) -> dict[str, bytes]:
    """The files of a formatted log directory.

    Cached, because they are the same for every broker, and Kafka's tool takes as long as a start of the broker.
    """
    with tempfile.TemporaryDirectory(prefix="kfuzz-format-") as home:
        properties = Path(home, "server.properties")
        data = Path(home, "data")
        properties.write_text(PROPERTIES.format(port=1, controller_port=2, data=data))
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(properties)]
        argv = java_command(folder, "kafka.tools.StorageTool", arguments, log_levels={"defaultLogLevel": "off"})
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, cwd=home, timeout=START_TIMEOUT_S)
        if done.returncode != 0:
            said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
            raise BrokerFailed(f"the log directory could not be formatted: {said[-LOG_TAIL_CHARS:]}")
        return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


@contextlib.contextmanager
def _free_ports(wanted: Sequence[int]) -> Iterator[list[int]]:
    """Different free ports on the loopback address: these, and any for 0. ``UsageError`` if one is not free."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in wanted]
        for one, port in zip(sockets, wanted, strict=True):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError as error:
                raise UsageError(f"port {port} cannot be used: {error.strerror}; name another one") from None
        yield [one.getsockname()[1] for one in sockets]


def _spawn(
    argv: Sequence[str], *, stdin: int = subprocess.PIPE, stdout: Any, stderr: Any, cwd: Path
) -> subprocess.Popen[bytes]:
    """Start a process in its own group."""
    return subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, start_new_session=True)


def _end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Close the process's stdin; kill its group if it has not ended after ``timeout_s`` seconds."""
    if process.stdin:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout:
        process.stdout.close()


# --- as a peer ------------------------------------------------------------------------------------------------------


class RealBroker:
    """Kafka's own broker as a peer. In role broker, it gets the bytes of records in a Produce request, or the steps of
    a stream one by one; in role log, it gets them as a segment at its start.

    Brokers are started for the questions: one for each configuration, with topics that are configured as the question
    says, and another one for the segments, because a broker may append a batch that stops its next start.
    """

    handshake = replace(
        handshake_of(f"broker-kafka@{BROKER_RELEASE}"),
        operations=frozenset({DECODE, APPEND_STREAM}),
        roles=frozenset({"broker", "log"}),
    )

    def answers(self, questions: Iterable[Question[T]]) -> Iterator[tuple[Question[T], list[Produced] | Recovered]]:
        """The broker's answer to each request of a question, or the effect of its start.

        ``UsageError`` if Java or Maven is missing; ``BrokerFailed`` if a stream ends the broker.
        """
        appends: list[Question[T]] = []
        segments: dict[str, Question[T]] = {}
        for question in questions:
            if question.request["role"] == "log":
                segments[question.request["id"]] = question
            else:
                appends.append(question)
        for settings, asked in by_settings(appends, OF_BROKERS):
            with Broker(settings) as broker:
                for config, those in by_settings(asked, OF_TOPICS):
                    streams = {one.request["id"]: _sent(one.request) for one in those}
                    yield from zip(those, play(broker, streams, config).values(), strict=True)
        if segments:
            with Broker() as broker:
                found = _recover(broker, {name: bytes.fromhex(one.request["hex"]) for name, one in segments.items()})
            yield from ((one, found[name]) for name, one in segments.items())


def judge(vectors: Sequence[Vector]) -> Confirmation:
    """Show a real broker the vectors that it can be asked about."""
    cases = []
    for vector in filter(is_for_broker, vectors):
        # The suite has no expectation in the role broker for vectors about readers.
        asked = replace(vector, expect={"broker": {}, "log": {}, **vector.expect})
        cases += [Case(asked, role) for role in (("broker", "log") if vector.kind == "records" else ("broker",))]
    found = Confirmation()
    for case, cell in cells(RealBroker(), cases, _confirmed):
        found.broker_cells.setdefault(case.vector.id, {}).update(cell.answer)
        if cell.text:
            found.contradictions.append(f"{case.vector.id}: the broker {BROKER_RELEASE} contradicts it: {cell.text}")
    return found


def _confirmed(case: Case, handshake: Handshake, result: list[Produced] | Recovered) -> Cell:
    """A cell with the answer as a vector has it. It fails if that contradicts the vector."""
    if isinstance(result, Recovered):
        return Cell("pass", answer={"recovery": result.outcome})
    # The last of the worst answers: a fault if there is one, otherwise a refusal, otherwise the last answer.
    worst = max(reversed(result), key=lambda answer: ("accepted", "rejected", "fault").index(answer.outcome))
    text: str | None = None
    if case.vector.kind == "stream":
        text = step_contradiction(case.vector, [answer.to_step() for answer in result])
    elif case.expectation:
        text = contradiction(case.vector, worst.to_answer(), "broker")
    return Cell("fail" if text else "pass", text or "", answer=worst.to_cell())


def is_for_broker(vector: Vector) -> bool:
    """Whether a real broker can be asked about the vector: records always, and streams of appends if clients and
    coordinators can send each step.
    """
    if vector.kind == "records":
        return True
    is_append = bool(vector.steps) and all("broker" in step["expect"] for step in vector.steps)
    return is_append and bool(_sent(request(Case(vector, "broker"))))


def _sent(asked: Mapping[str, Any]) -> list[bytes | Marker]:
    """The requests that send the bytes of a question; empty if a step of a stream cannot be sent."""
    if asked["operation"] == DECODE:
        return [bytes.fromhex(asked["hex"])]
    found: list[bytes | Marker] = []
    for step in asked["steps"]:
        data = bytes.fromhex(step)
        is_control = any(batch.control for batch in records.read(data).batches)
        sent = _marker(data, asked.get("transaction_version", 0)) if is_control else data
        if sent is None:
            return []
        found.append(sent)
    return found


def _marker(data: bytes, transaction_version: int) -> Marker | None:
    """The marker that the batch holds, if a coordinator would have exactly this batch written; otherwise None."""
    (batch, *more) = records.read(data).batches
    if more or not batch.transactional or len(batch.records) != 1:
        return None
    (record,) = batch.records
    try:
        control = decode_control(record.key, record.value)
    except RecordsError:
        return None
    if control.key != ControlRecordKey(control.key.type) or control.rest:
        return None
    if not isinstance(control.value, EndTransactionMarker) or control.value.version:
        return None
    return Marker(
        batch.producer_id,
        batch.producer_epoch,
        control.value.coordinator_epoch,
        control.key.type == ControlRecordType.COMMIT,
        transaction_version,
    )


# --- questions to a broker ------------------------------------------------------------------------------------------


def produce(broker: Broker, vectors: Sequence[Vector], config: Mapping[str, str] | None = None) -> dict[str, Produced]:
    """The broker's answers to Produce requests with the vectors' bytes, by vector id. Each gets its own partition.

    ``config`` is the topic's configuration, by Kafka's names.
    """
    answers = play(broker, {vector.id: [vector.data] for vector in vectors}, config)
    return {name: answer for name, (answer,) in answers.items()}


def play(
    broker: Broker, streams: Mapping[str, Sequence[bytes | Marker]], config: Mapping[str, str] | None = None
) -> dict[str, list[Produced]]:
    """The broker's answers to each stream's requests in turn, by the stream's name.

    Bytes are sent in a Produce request; a marker is written as by a coordinator. Each stream has its own new partition,
    which knows no producer yet. ``BrokerFailed`` if a stream ends the broker.
    """
    if not streams:
        return {}
    topic = broker.create_topic(len(streams), config)
    answers = {}
    for partition, (name, steps) in enumerate(streams.items()):
        answers[name] = [_append(broker, {"topic": topic, "partition": partition}, step) for step in steps]
        if not broker.is_alive():
            raise BrokerFailed(f"the broker ended because of {name}: {broker.last_words()}")
    return answers


def _append(broker: Broker, place: Mapping[str, Any], step: bytes | Marker) -> Produced:
    request = step.to_request() if isinstance(step, Marker) else {"operation": "produce", "hex": step.hex()}
    said = broker.ask({**request, **place})
    if "failure" in said:
        return Produced("fault", "", foreign_text(said["failure"]))
    base_offset = int(said.get("base_offset", -1))
    fetched = broker.ask({"operation": "fetch", **place, "offset": str(max(base_offset, 0))})
    if fetched.get("error") != NO_ERROR:
        raise BrokerFailed(f"the batch that was produced to {place} cannot be fetched: {foreign_text(fetched)}")
    error, text, stable = said["error"], foreign_text(said.get("message", "")), int(fetched["last_stable_offset"])
    if error != NO_ERROR:
        outcome = "fault" if error == UNFORESEEN else "rejected"
        return Produced(outcome, error, text, last_stable_offset=stable)
    if isinstance(step, Marker):
        # The response to a marker has no offset; the marker has the partition's last one.
        base_offset = int(fetched["high_watermark"]) - 1
    return Produced("accepted", error, text, base_offset, bytes.fromhex(fetched["hex"]), stable)


def recover(broker: Broker, vectors: Sequence[Vector]) -> dict[str, Recovered]:
    """The effect of the broker's start on each vector's bytes as the segment of its own partition, by vector id.

    If segments stop the broker from starting, they are replaced with empty ones, and it starts again for the others.
    """
    return _recover(broker, {vector.id: vector.data for vector in vectors})


def _recover(broker: Broker, segments: Mapping[str, bytes]) -> dict[str, Recovered]:
    if not segments:
        return {}
    topic = broker.create_topic(len(segments))
    partitions = {f"{topic}-{index}": name for index, name in enumerate(segments)}
    aborting: dict[str, Recovered] = {}
    while True:
        broker.stop()
        # Undo the changes of an earlier start: each start must see the original bytes.
        (broker.data / CLEAN_SHUTDOWN).unlink(missing_ok=True)
        for folder, name in partitions.items():
            data = b"" if name in aborting else segments[name]
            _empty(broker.data / folder)
            (broker.data / folder / _segment_name(data)).write_bytes(data)
        try:
            broker.start()
            break
        except BrokerFailed as error:
            stopping = {Path(one[1].decode()).name: one[0].decode() for one in NOT_LOADED.finditer(broker.log)}
            culprits = {partitions[folder]: text for folder, text in stopping.items() if folder in partitions}
            if not culprits.keys() - aborting.keys():
                raise BrokerFailed(f"the broker's log does not say which partition is the cause: {error}") from None
            aborting |= {name: Recovered("aborts", 0, text) for name, text in culprits.items()}
    others = {folder: name for folder, name in partitions.items() if name not in aborting}
    return aborting | {name: _recovered(broker.data / folder, segments[name]) for folder, name in others.items()}


def _empty(folder: Path) -> None:
    """Remove everything but the metadata from a partition's directory."""
    for file in folder.iterdir():
        if file.name != METADATA_NAME:
            file.unlink()


def _segment_name(data: bytes) -> str:
    # A segment is named after its first base offset. A file name has no sign, so a negative offset becomes 0.
    base_offset = int.from_bytes(data[:8], "big", signed=True) if len(data) >= 8 else 0
    return f"{max(base_offset, 0):020d}.log"


def _recovered(folder: Path, data: bytes) -> Recovered:
    segment = folder / _segment_name(data)
    # The broker deletes the whole log if its end seems to be lower than its start.
    found = segment.read_bytes() if segment.exists() else b""
    if found == data:
        return Recovered("kept", len(found))
    if not data.startswith(found):
        raise BrokerFailed(f"{folder.name}: the broker changed the segment's bytes at its start")
    return Recovered("truncated", len(found))
