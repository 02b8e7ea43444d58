"""The differential: one stream of inputs to kfuzz's reader and to a testee, whose answers must agree.

What kfuzz reads becomes the expectation, and ``compare.judge`` holds the testee's answer to it: outcome, consumed bytes
and contents. Where we differ from Kafka on purpose, a rule of docs/differences.md says so; rules never name an input.
May import ``kfuzz.records`` and the rest of this folder.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kfuzz import records
from kfuzz.conformance.compare import Case, declared_unsupported, judge, request
from kfuzz.conformance.process import Limits, NoHandshake, Session, Trouble
from kfuzz.conformance.protocol import AHEAD, Answer, Handshake, ProtocolError, parse_answer, to_line
from kfuzz.conformance.testees import BuildFailed, Testee
from kfuzz.errors import UsageError
from kfuzz.files import write_whole
from kfuzz.records import Reading
from kfuzz.vectors.model import Vector
from kfuzz.wire.framing import next_frame

__all__ = ["RULES", "Differential", "Disagreement", "Rule", "differ", "keep", "outcome_of", "sentences", "to_json"]

KAFKA: Final = "kafka-clients"
ROLE: Final = "consumer"
LZ4_CODEC: Final = 3
# What bad bytes make Kafka throw besides its own KafkaException; a new name is a disagreement, to be looked at.
UNDECLARED: Final = frozenset(
    {
        "BufferUnderflowException",
        "IllegalArgumentException",
        "IndexOutOfBoundsException",
        "NegativeArraySizeException",
        "SnappyError",
    }
)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An input on which the two differ: its number in the stream, and why, in a sentence."""

    index: int
    data: bytes
    reason: str
    answer: dict[str, Any]


@dataclass(slots=True)
class Differential:
    """What a run found. ``broken`` says how the testee died, if it did; what came after was not asked."""

    testee: str
    inputs: int = 0
    agreed: int = 0
    accepted: int = 0
    rejected: int = 0
    unsupported: int = 0
    # Inputs per rule of docs/differences.md, by the rule's name.
    rules: Counter[str] = field(default_factory=Counter)
    disagreements: list[Disagreement] = field(default_factory=list)
    broken: str = ""
    # Those on their way when the testee broke; any of them may be the cause.
    unanswered: list[Disagreement] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether the run found something."""
        return bool(self.disagreements or self.broken)


# --- the rules ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """A difference on purpose. ``name`` is its first column in docs/differences.md; ``fits`` sees the input, what kfuzz
    read and what Kafka answered.
    """

    name: str
    fits: Callable[[bytes, Reading, Answer], bool]


def _bounded(data: bytes, reading: Reading, answer: Answer) -> bool:
    return reading.fatal is not None and reading.fatal.code == "decompressed-size-exceeded"


def _allocates(data: bytes, reading: Reading, answer: Answer) -> bool:
    return answer.outcome == "fault" and "OutOfMemoryError" in answer.error


def _undeclared(data: bytes, reading: Reading, answer: Answer) -> bool:
    return (
        reading.fatal is not None
        and answer.outcome == "fault"
        and answer.error.partition(":")[0].partition(" ")[0] in UNDECLARED
    )


def _recurses(data: bytes, reading: Reading, answer: Answer) -> bool:
    return answer.outcome == "fault" and "StackOverflowError" in answer.error


def _empty_lz4_block(data: bytes, reading: Reading, answer: Answer) -> bool:
    return any(_has_empty_block(payload) for payload in _lz4_payloads(data))


RULES: Final = (
    Rule("`decompressed-size-exceeded`", _bounded),
    Rule("size of a message inside a wrapper", _allocates),
    Rule("undeclared exceptions", _undeclared),
    Rule("empty gzip members", _recurses),
    Rule("an lz4 block of no bytes", _empty_lz4_block),
)


def _lz4_payloads(data: bytes) -> Iterator[bytes]:
    """What stands behind the headers of the batches and wrappers that name lz4."""
    at = 0
    while True:
        size, magic, _ = next_frame(data, at)
        if size <= 0:
            return
        frame = data[at : at + size]
        if frame[22 if magic == 2 else 17] & 7 == LZ4_CODEC:
            # A wrapper's key is nearly always null; a frame's magic number is found behind any other.
            yield frame[61:] if magic == 2 else frame[max(frame.find(b"\x04\x22\x4d\x18"), 0) :]
        at += size


def _has_empty_block(payload: bytes) -> bool:
    """Whether an lz4 frame has a block that holds no bytes and is not the end mark."""
    if len(payload) < 7:
        return False
    flags = payload[4]
    at = 15 if flags & 0x08 else 7
    while len(payload) - at >= 4:
        (word,) = struct.unpack_from("<I", payload, at)
        size = word & 0x7FFFFFFF
        if word == 0:
            return False
        if size == 0 or (size == 1 and payload[at + 4 : at + 5] == b"\0" and word == 1):
            return True
        at += 4 + size + (4 if flags & 0x10 else 0)
    return False


# --- the run --------------------------------------------------------------------------------------------------------


def differ(
    testee: Testee,
    inputs: Iterable[bytes],
    *,
    limits: Limits | None = None,
    read: Callable[[bytes], Reading] = records.read,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Differential:
    """Give ``inputs`` to ``read`` and to ``testee``, 64 ahead, and compare.

    Stops at the first input that breaks the testee, with one sentence in ``broken``. Raises ``UsageError`` where the
    testee does not begin.
    """
    if reason := testee.missing():
        raise UsageError(f"{reason}; install that, or name another with --testee")
    try:
        testee.make_ready()
        with Session(testee.argv, cwd=testee.folder) as session:
            handshake = session.start(limits or Limits())
            return _Run(session, handshake, limits or Limits(), read, on_progress).run(inputs)
    except (BuildFailed, NoHandshake) as error:
        raise UsageError(f"{testee.label}: {error}; docs/testee-protocol.md says how a testee begins") from None


class _Run:
    def __init__(
        self,
        session: Session,
        handshake: Handshake,
        limits: Limits,
        read: Callable[[bytes], Reading],
        on_progress: Callable[[int], None],
    ) -> None:
        self.session = session
        self.handshake = handshake
        self.budget = limits.budget(None)
        self.read = read
        self.on_progress = on_progress
        self.found = Differential(handshake.label)
        self.in_flight: deque[tuple[int, Case, Reading]] = deque()

    def run(self, inputs: Iterable[bytes]) -> Differential:
        for index, data in enumerate(inputs):
            reading = self.read(data)
            case = Case(_as_vector(index, data, reading), ROLE)
            if declared_unsupported(case, self.handshake):
                self.found.unsupported += 1
                self._done()
                continue
            self.session.send(to_line(request(case)))
            self.in_flight.append((index, case, reading))
            if len(self.in_flight) == AHEAD and not self._receive():
                return self.found
        while self.in_flight and self._receive():
            pass
        return self.found

    def _receive(self) -> bool:
        """Take the oldest answer; False if the testee broke instead."""
        index, case, reading = self.in_flight[0]
        line = self.session.next_line(self.budget)
        if isinstance(line, Trouble):
            words = self.session.last_words() if line.outcome == "crash" else ""
            return self._broken(f"{line.text}: {words}" if words else line.text)
        try:
            answer = parse_answer(line, id=case.vector.id, operation=case.operation)
        except ProtocolError as error:
            return self._broken(f"broke the protocol: {error}")
        self.in_flight.popleft()
        self._judge(index, case, reading, answer)
        return True

    def _broken(self, what: str) -> bool:
        self.found.broken = f"{self.found.testee} {what}, with input {self.in_flight[0][0]} the first unanswered"
        self.found.unanswered = [
            Disagreement(index, case.vector.data, "unanswered", {}) for index, case, _ in self.in_flight
        ]
        return False

    def _done(self) -> None:
        self.found.inputs += 1
        self.on_progress(self.found.inputs)

    def _judge(self, index: int, case: Case, reading: Reading, answer: Answer) -> None:
        cell = judge(case, self.handshake, answer)
        if cell.outcome == "unsupported":
            self.found.unsupported += 1
        elif cell.outcome == "pass":
            self.found.agreed += 1
            self.found.accepted += answer.outcome == "accepted"
            self.found.rejected += answer.outcome == "rejected"
        elif rule := self._rule(case.vector.data, reading, answer):
            self.found.rules[rule.name] += 1
        else:
            theirs = f"{answer.outcome} ({answer.error})" if answer.error else answer.outcome
            reason = f"{cell.text}; kfuzz: {reading.fatal or 'accepted'}; {self.found.testee}: {theirs}"
            self.found.disagreements.append(Disagreement(index, case.vector.data, reason, dict(answer.raw)))
        self._done()

    def _rule(self, data: bytes, reading: Reading, answer: Answer) -> Rule | None:
        # The rules are Kafka's; no other testee is excused by them.
        if self.handshake.name != KAFKA:
            return None
        return next((rule for rule in RULES if rule.fits(data, reading, answer)), None)


def _as_vector(index: int, data: bytes, reading: Reading) -> Vector:
    """What kfuzz read, as the expectation that the testee's answer is held to."""
    batches = records.to_json(reading.batches)
    expectation: dict[str, Any] = {"verdict": "valid", "batches": batches, "consumed": reading.consumed}
    if reading.fatal is not None:
        expectation = {"verdict": "invalid", "finding": reading.fatal.code, "batches": batches}
    return Vector(
        id=f"differential/{index}",
        kind="records",
        summary="an input of the mutator",
        level="required",
        requirements=(),
        flags=(),
        data=data,
        canonical=False,
        layout=(),
        expect={ROLE: expectation},
        kafka={},
        budget=None,
        file=Path("differential"),
    )


# --- what is told ---------------------------------------------------------------------------------------------------


def to_json(found: Differential, *, seed: int) -> dict[str, Any]:
    """The run as one JSON document."""
    return {
        "testee": found.testee,
        "role": ROLE,
        "seed": seed,
        "inputs": found.inputs,
        "agreed": found.agreed,
        "accepted": found.accepted,
        "rejected": found.rejected,
        "unsupported": found.unsupported,
        "rules": dict(sorted(found.rules.items())),
        "broken": found.broken or None,
        "unanswered": [{"index": item.index, "hex": item.data.hex()} for item in found.unanswered],
        "disagreements": [
            {"index": item.index, "reason": item.reason, "hex": item.data.hex(), "answer": item.answer}
            for item in found.disagreements
        ],
    }


def outcome_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer in short: outcome and error, or outcome, consumed bytes and the hash of the contents."""
    if answer["outcome"] != "accepted":
        return {name: answer[name] for name in ("outcome", "error") if name in answer}
    contents = json.dumps(answer.get("batches", answer.get("records")), sort_keys=True)
    return {
        "outcome": "accepted",
        "consumed": answer.get("consumed"),
        "contents_sha256": hashlib.sha256(contents.encode()).hexdigest(),
    }


def keep(found: Differential, directory: Path, *, seed: int) -> list[Path]:
    """Write the inputs that differ, then those left unanswered, whole to ``directory``; returns the files in order.

    Beside each that was answered stands what the testee made of it, in the form of corpus/regressions/differential/.
    """
    files = []
    for item in (*found.disagreements, *found.unanswered):
        files.append(directory / f"seed-{seed}-input-{item.index}.bin")
        write_whole(files[-1], item.data)
        if item.answer:
            document = {"testee": found.testee, **outcome_of(item.answer)}
            write_whole(files[-1].with_suffix(".json"), json.dumps(document, indent=2, sort_keys=True) + "\n")
    return files


def sentences(found: Differential, files: Sequence[Path], *, seed: int, shown: int) -> list[str]:
    """What a person is told: the first ``shown`` disagreements with their hex and ``files``, then the counts."""
    told = []
    for item, file in list(zip(found.disagreements, files, strict=False))[:shown]:
        told.append(f"input {item.index} of seed {seed}: {item.reason}")
        told.append(f"  {_cut(item.data.hex())}  ({file})")
    if len(found.disagreements) > shown:
        told.append(f"… and {len(found.disagreements) - shown} more in {files[0].parent}")
    told += [f"{count} under the rule: {name}" for name, count in sorted(found.rules.items())]
    if found.unsupported:
        told.append(f"{found.unsupported} unsupported by {found.testee}")
    if found.broken:
        told.append(f"{found.broken}; what was on its way is in {files[0].parent}")
    told.append(
        f"{found.testee}, seed {seed}: {found.agreed} of {found.inputs} inputs agree "
        f"({found.accepted} accepted, {found.rejected} rejected), {len(found.disagreements)} differ"
    )
    return told


def _cut(text: str, width: int = 400) -> str:
    return text if len(text) <= width else f"{text[:width]}…"
