"""Kit for drivers in Python: programs that drive one whole client, for kfuzz_serving.

A driver calls ``drive`` with the version of its library, with a class of consumers, and with one of producers.
testees/README.md describes the lines that it reads and writes.

Imports only the standard library, so that a driver can run in an interpreter of its own, without kfuzz. Python 3.7 must
do, because the oldest versions of a library have no wheels for newer ones.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kfuzz_testee import describe, from_json, place_of, record_json

if TYPE_CHECKING:
    from typing import Protocol

    Answer = dict[str, Any]
    # Starts to send records to their topics, in order. Returns what waits until all are acknowledged, or raises. That
    # returns the offsets that the library reports; None if it knows none.
    Send = Callable[[list["Given"]], Callable[[], list[int | None]]]
else:
    Protocol = object
LARGEST_REQUEST_BYTES = 64 << 20
# A producer has this long for all records of a line, less than a call may take. librdkafka asks for its producer's id
# only twice a second, and the broker may lose several answers.
PRODUCE_S_MAX = 8
# librdkafka's message about a fetch that gives it nothing.
TOO_LARGE = re.compile(r"Message at offset (\d+) might be too large")


def short_at(text: str) -> int | None:
    """The offset in librdkafka's error about a message that is too large; None in any other error."""
    found = TOO_LARGE.search(text)
    return int(found[1]) if found else None


class Failed(Exception):
    """An outcome that the library tells, where an exception of its own does not.

    ``short_at``: the offset from which the client wants larger fetches, as for a batch that is cut.
    """

    def __init__(self, outcome: str, text: str, short_at: int | None = None) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.short_at = short_at


class Ended(Exception):
    """The library says that it is at the end of the topic."""


class Opening(NamedTuple):
    """The settings of a consumer: its broker's address, the topic, the isolation level, and the offset that it seeks.

    Conversations have more. None is the library's own. ``reset``: what the library does without an offset, and
    then it does not seek. ``group``: it subscribes to the topic as a member, and does not commit by itself.
    ``protocol``: "consumer" for a group of KIP-848.
    """

    address: str
    topic: str
    isolation: str
    offset: int
    request_timeout_ms: int | None
    reset: str | None
    group: str | None
    protocol: str | None


class Consumer(Protocol):
    """A consumer of partition 0 of a topic, made with an ``Opening``."""

    def poll(self, timeout_s: float) -> list[dict[str, Any]]:
        """The next records in their JSON form; none if there is nothing new.

        Those that are already there must come even if ``timeout_s`` is 0. An exception is an answer too.
        """

    def offsets(self) -> dict[str, int | None]:
        """The offsets that the library reports after a ``poll``, by their names in the answer; None if unknown."""

    def commit(self) -> None:
        """Commit what was handed out, and wait; only a member of a group is asked."""

    def close(self) -> None:
        """End the consumer."""


class Given(NamedTuple):
    """A record to send. ``timestamp`` is in milliseconds, or None if the library has to choose it."""

    topic: str
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@contextmanager
def refusals() -> Iterator[None]:
    """A block that gives a library a record to send. A library for Python refuses a value with these exceptions."""
    try:
        yield
    except (TypeError, ValueError, AssertionError) as error:
        raise Failed("rejected", describe(error)) from error


# Kafka's numbers; None in magic 0.
TIMESTAMP_TYPES = {None: "none", 0: "create", 1: "log-append"}


def in_json(records: Iterable[Any]) -> list[dict[str, Any]]:
    """The JSON form of records that have the fields of aiokafka's and kafka-python's."""
    return [
        {
            **record_json(one.offset, one.timestamp, one.key, one.value, getattr(one, "headers", [])),
            "timestamp_type": TIMESTAMP_TYPES.get(one.timestamp_type, str(one.timestamp_type)),
        }
        for one in records
    ]


# The producer's other abilities, in the words of the handshake.
ALL_PRODUCES = ("idempotent", "transactions", "sends", "topics")
# An offset of partition 0, for a transaction of a group.
COMMITTED_OFFSET = 1
# A member of a classic group sends a heartbeat so often, and has so long for a commit.
HEARTBEAT_MS = 50
COMMIT_S_MAX = 5


def drive(
    hello: dict[str, Any],
    consumer: Callable[[Opening], Consumer],
    producer: Callable[..., AbstractContextManager[Send]] | None = None,
    *,
    rejections: tuple[type[BaseException], ...],
    package: str = "",
) -> None:
    """Answer lines until the input ends.

    ``hello`` has the library's version, and other fields of the handshake: ``produces`` if there is a ``producer``.
    That takes the broker's address, and as keywords ``compression``, ``idempotent`` and ``transactional_id``. It is a
    context with a ``Send``, and commits a transaction at its end. If ``hello`` says that it can commit for groups, it
    also takes a ``group``: then each send is a transaction, which commits ``COMMITTED_OFFSET`` of its topic for that.
    If ``hello`` says so in ``converses``, it takes ``abort`` (whether the transaction is aborted instead) and
    ``request_timeout_ms``.
    ``rejections`` are the exceptions that the library documents; others are faults. ``package`` is its top-level
    package: errors then name its innermost line.
    """
    out, sys.stdout = sys.stdout, sys.stderr  # stdout is for the protocol only; a library may print
    open_one: list[Consumer] = []

    def answer(line: dict[str, Any]) -> Answer:
        do = line["do"]
        if do == "open":
            asked = {name: line.get(name) for name in Opening._fields}
            asked["offset"] = int(line["offset"])
            open_one[:] = [consumer(Opening(**asked))]
        elif do == "poll":
            try:
                answer = {"records": open_one[0].poll(line["timeout_ms"] / 1000)}
            except Ended:
                answer = {"end": True}
            return {**answer, **{name: str(at) for name, at in open_one[0].offsets().items() if at is not None}}
        elif do == "commit":
            open_one[0].commit()
        elif do == "close":
            for one in open_one:
                one.close()
            open_one.clear()
        else:
            return produced(line)
        return {}

    def produced(line: dict[str, Any]) -> Answer:
        assert producer
        counts = line.get("sends", [len(line["records"])])
        records = iter(line["records"])
        topics = line.get("topics") or [line["topic"]] * len(counts)
        sends = [[_given(one, topics[i]) for one in islice(records, count)] for i, count in enumerate(counts)]
        how = {name: line[name] for name in ("compression", "idempotent", "transactional_id")}
        how.update({name: line[name] for name in ("group", "abort", "request_timeout_ms") if name in line})
        with producer(line["address"], **how) as send:
            if "sends" not in line:
                return sent(send(sends[0]))
            if line.get("at_once"):
                waits = [send(one) for one in sends]
                return {"sends": [answered(sent, wait) for wait in waits]}
            return {"sends": [answered(sent, lambda one=one: send(one)()) for one in sends]}

    def sent(wait: Callable[[], list[int | None]]) -> Answer:
        return {"offsets": [None if at is None else str(at) for at in wait()]}

    def answered(answer: Callable[[Any], Answer], about: Any) -> Answer:
        try:
            return answer(about)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in a Rust extension is not an Exception
            return _failure(error, rejections, package)

    print(json.dumps(hello), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answered(answer, json.loads(line))), file=out, flush=True)


def _failure(error: BaseException, rejections: tuple[type[BaseException], ...], package: str) -> Answer:
    if isinstance(error, Failed):
        short = {} if error.short_at is None else {"short_at": str(error.short_at)}
        return {"outcome": error.outcome, "error": str(error), **short}
    outcome = "rejected" if isinstance(error, rejections) else "fault"
    if type(error).__name__ == "PanicException":
        outcome = "panic"
    at = place_of(error, package)
    return {"outcome": outcome, "error": describe(error), **({"at": at} if at else {})}


def _given(record: dict[str, Any], topic: str) -> Given:
    if any(isinstance(name, dict) for name, _ in record["headers"]):
        raise Failed("unsupported", "the key of a header is not UTF-8")
    return Given(
        topic,
        from_json("int64", record.get("timestamp")),
        from_json("bytes", record.get("key")),
        from_json("bytes", record["value"]),
        [(name, from_json("bytes", value)) for name, value in record["headers"]],
    )
