"""The differential: one stream of inputs to kfuzz and to a testee, whose answers must agree.

What kfuzz makes of an input becomes the expectation, and ``compare.judge`` holds the testee's answer to it: outcome,
consumed bytes and contents; for a broker also the bytes that it stores. Where we differ from Kafka on purpose, a rule
of docs/differences.md says so; rules never name an input, and look at the reasons of both sides. May import
``kfuzz.records`` and the rest of this folder.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kfuzz.conformance.differential.differing import told
from kfuzz.conformance.judge.compare import Case, declared_unsupported, judge, request, wrong_reading
from kfuzz.conformance.judge.reference import Verdict, verdict
from kfuzz.conformance.protocol.session import Limits, Session, Trouble
from kfuzz.conformance.protocol.start import started
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.conformance.protocol.words import AHEAD, Answer, Handshake, ProtocolError, parse_answer, to_line
from kfuzz.files import write_whole
from kfuzz.kafka import CODECS
from kfuzz.records import Role
from kfuzz.records.codecs import decompress
from kfuzz.records.codecs.snappy import XERIAL_MAGIC
from kfuzz.records.read.reader import DEFAULT_LIMITS
from kfuzz.vectors.model import Vector
from kfuzz.wire.framing import next_frame
from kfuzz.wire.message_set import parse_message
from kfuzz.wire.record_batch import BATCH_HEADER_SIZE

__all__ = ["RULES", "Differential", "Disagreement", "Rule", "differ", "keep", "outcome_of", "sentences", "to_json"]

KAFKA: Final = "kafka-clients"
GZIP_CODEC: Final = 1
LZ4_CODEC: Final = 3
XERIAL_HEADER_BYTES: Final = 16
# Of the 512 MiB that the Java testee's heap has, no one array gets as much (testees/kafka-clients/testee.toml).
CLAIM_BYTES_MIN: Final = 256 * 1024 * 1024
# What bad bytes make Kafka throw besides its own KafkaException, and for which of kfuzz's findings: the two must have
# met the same fault. A new pair is a disagreement, to be looked at.
TRUNCATED: Final = frozenset({"length-exceeds-record", "message-truncated"})
# A wrapper at which a log is to be looked into fails as it does before a consumer.
BROKEN: Final = frozenset({"decompression-failed", "wrapper-start-unknown"})
UNDECLARED: Final = tuple(
    (re.compile(error), codes)
    for error, codes in (
        (r"BufferUnderflowException", BROKEN | {"end-marker-invalid"}),
        (r"IllegalArgumentException: Attempted to complete a transaction", frozenset({"end-marker-invalid"})),
        (r"IllegalArgumentException: Invalid control record type", frozenset({"end-marker-invalid"})),
        (r"IllegalArgumentException: Received invalid partition leader", frozenset({"leader-epoch-offset-negative"})),
        (r"IllegalArgumentException: The last offset of appended transactions", frozenset({"end-marker-invalid"})),
        (
            r"IllegalArgumentException: Unknown compression type id",
            TRUNCATED | {"codec-unknown", "wrapper-nested", "end-marker-invalid", "wrapper-start-unknown"},
        ),
        (r"IllegalArgumentException: Var(int|long) is too long", frozenset({"varint-too-long", "end-marker-invalid"})),
        (r"IllegalArgumentException: newLimit < 0", frozenset({"batch-length-too-large"})),
        (r"IllegalArgumentException: newLimit > capacity", TRUNCATED | {"wrapper-start-unknown"}),
        (r"IndexOutOfBoundsException", TRUNCATED | {"wrapper-start-unknown"}),
        (r"NegativeArraySizeException", BROKEN | {"end-marker-invalid"}),
        (r"NullPointerException: Cannot invoke \"java.nio.ByteBuffer", frozenset({"end-marker-invalid"})),
        (r"SnappyError", BROKEN | {"end-marker-invalid"}),
        (r"UnsupportedOperationException: key is skipped", frozenset({"compressed-offset-delta-not-index"})),
    )
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
    role: Role = "consumer"
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
    made of it and what Kafka answered, whose batches so far are kfuzz's.
    """

    name: str
    fits: Callable[[bytes, Verdict, Answer], bool]
    roles: tuple[Role, ...] = ("consumer", "broker", "log")


def _bounded(data: bytes, made: Verdict, answer: Answer) -> bool:
    return made.fatal is not None and made.fatal.code == "decompressed-size-exceeded"


def _allocates(data: bytes, made: Verdict, answer: Answer) -> bool:
    """Kafka ran out of memory in a batch of which something claims more than is there, and more than its heap has."""
    frames = list(_frames(data))
    if answer.outcome == "accepted":
        # What it keeps in a segment and has no memory to read comes without records.
        unread = [
            index
            for index, (want, have) in enumerate(zip(made.batches, answer.batches or (), strict=False))
            if "records" in want and "records" not in have
        ]
        return bool(unread) and all(_claims_too_much(frames[index]) for index in unread)
    if answer.outcome != "fault" or "Java heap space" not in answer.error:
        return False
    # The batches before were told; of a segment it tells all, and opens one or another when it has read them.
    stopped = frames[len(answer.batches or ()) :][:1] or frames
    return any(map(_claims_too_much, stopped))


def _claims_too_much(frame: bytes) -> bool:
    return any(claim >= CLAIM_BYTES_MIN for claim in _claims(frame))


def _claims(frame: bytes) -> Iterator[int]:
    """What a compressed batch claims beyond what is there, in bytes; Kafka makes room for each before it reads."""
    magic, codec = frame[16], _codec(frame)
    if not 0 < codec < len(CODECS):
        return
    payload = frame[BATCH_HEADER_SIZE:]
    if magic == 2:
        # A segment's control batch goes into a list that has four bytes or more for each of its records.
        yield 4 * int.from_bytes(frame[BATCH_HEADER_SIZE - 4 : BATCH_HEADER_SIZE], "big", signed=True)
    else:
        message, _ = parse_message(frame, 0, len(frame))
        if message is None or message[6][1] < 0:
            return
        payload = frame[message[6][0] : sum(message[6])]
    if CODECS[codec] == "snappy":
        yield from _snappy_claims(payload)
    inner = decompress(CODECS[codec], payload, DEFAULT_LIMITS.decompressed_bytes, magic=magic).data
    at = 0
    while True:
        size, begin = _varint(inner, at, zigzag=True) if magic == 2 else _message_size(inner, at)
        if size > len(inner) - begin:
            yield size
        if size <= 0 or size > len(inner) - begin:
            return
        at = begin + size


def _message_size(payload: bytes, at: int) -> tuple[int, int]:
    """The size of the message at ``at``, 0 where there is none, and where what it counts begins."""
    return int.from_bytes(payload[at + 8 : at + 12], "big", signed=True) if len(payload) - at >= 12 else 0, at + 12


def _varint(payload: bytes, at: int, *, zigzag: bool) -> tuple[int, int]:
    """The varint of up to five bytes at ``at``, 0 where there is none, and where it ends."""
    value = 0
    for index, byte in enumerate(payload[at : at + 5]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return (value >> 1 ^ -(value & 1)) if zigzag else value, at + index + 1
    return 0, at


def _snappy_claims(payload: bytes) -> Iterator[int]:
    """What the chunks claim to be, and what the blocks in them claim to become."""
    if not payload.startswith(XERIAL_MAGIC):
        yield _varint(payload, 0, zigzag=False)[0]
        return
    at = XERIAL_HEADER_BYTES
    while len(payload) - at >= 4:
        size = int.from_bytes(payload[at : at + 4], "big", signed=True)
        yield size
        yield _varint(payload, at + 4, zigzag=False)[0]
        if size < 0:
            return
        at += 4 + size


def _undeclared(data: bytes, made: Verdict, answer: Answer) -> bool:
    """Both refuse the same batch, for the same fault."""
    return (
        made.fatal is not None
        and answer.outcome == "fault"
        and any(error.match(answer.error) and made.fatal.code in codes for error, codes in UNDECLARED)
    )


def _recurses(data: bytes, made: Verdict, answer: Answer) -> bool:
    return (
        answer.outcome == "fault"
        and answer.error.startswith("StackOverflowError")
        and _codec_of(_frames(data), len(answer.batches or ())) == GZIP_CODEC
    )


def _empty_lz4_block(data: bytes, made: Verdict, answer: Answer) -> bool:
    """The batch at which the two part has such a block."""
    at = len(answer.batches or ()) if answer.outcome != "accepted" else len(made.batches) if made.fatal else None
    payloads = list(_lz4_payloads(data))
    return any(_has_empty_block(payload) for index, payload in payloads if at is None or index == at)


def _unknown_magic(data: bytes, made: Verdict, answer: Answer) -> bool:
    if made.fatal is None or made.fatal.code != "magic-unknown":
        return False
    return answer.outcome != "rejected" or len(answer.batches or ()) > len(made.batches)


RULES: Final = (
    Rule("`decompressed-size-exceeded`", _bounded),
    Rule("sizes inside a compressed payload", _allocates),
    Rule("undeclared exceptions", _undeclared),
    Rule("empty gzip members", _recurses),
    Rule("an lz4 block of no bytes", _empty_lz4_block),
    Rule("a magic above 2 in a segment", _unknown_magic, roles=("log",)),
)


def _frames(data: bytes) -> Iterator[bytes]:
    at = 0
    while True:
        size, _, _ = next_frame(data, at)
        if size <= 0:
            return
        yield data[at : at + size]
        at += size


def _codec(frame: bytes) -> int:
    return frame[22 if frame[16] == 2 else 17] & 7


def _codec_of(frames: Iterable[bytes], index: int) -> int | None:
    return next((_codec(frame) for at, frame in enumerate(frames) if at == index), None)


def _lz4_payloads(data: bytes) -> Iterator[tuple[int, bytes]]:
    """What stands behind the headers of the batches and wrappers that name lz4, each with its batch's index."""
    for index, frame in enumerate(_frames(data)):
        if _codec(frame) == LZ4_CODEC:
            # A wrapper's key is nearly always null; a frame's magic number is found behind any other.
            yield index, frame[61:] if frame[16] == 2 else frame[max(frame.find(b"\x04\x22\x4d\x18"), 0) :]


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
    role: Role = "consumer",
    limits: Limits | None = None,
    judged: Callable[[bytes, Role], Verdict] = verdict,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Differential:
    """Give ``inputs`` to kfuzz (``judged``) and to ``testee``, 64 ahead, and compare what they make of them.

    Stops at the first input that breaks the testee, with one sentence in ``broken``. Raises ``UsageError`` where the
    testee does not begin.
    """
    with started(testee, limits or Limits()) as (session, handshake):
        return _Run(session, handshake, role, limits or Limits(), judged, on_progress).run(inputs)


class _Run:
    def __init__(
        self,
        session: Session,
        handshake: Handshake,
        role: Role,
        limits: Limits,
        judged: Callable[[bytes, Role], Verdict],
        on_progress: Callable[[int], None],
    ) -> None:
        self.session = session
        self.handshake = handshake
        self.budget = limits.budget(None)
        self.role = role
        self.judged = judged
        self.on_progress = on_progress
        self.found = Differential(handshake.label, role)
        self.in_flight: deque[tuple[int, Case, Verdict]] = deque()

    def run(self, inputs: Iterable[bytes]) -> Differential:
        for index, data in enumerate(inputs):
            made = self.judged(data, self.role)
            case = Case(_as_vector(index, data, made, self.role), self.role)
            if declared_unsupported(case, self.handshake):
                self.found.unsupported += 1
                self._done()
                continue
            self.session.send(to_line(request(case)))
            self.in_flight.append((index, case, made))
            if len(self.in_flight) == AHEAD and not self._receive():
                return self.found
        while self.in_flight and self._receive():
            pass
        return self.found

    def _receive(self) -> bool:
        """Take the oldest answer; False if the testee broke instead."""
        index, case, made = self.in_flight[0]
        line = self.session.next_line(self.budget)
        if isinstance(line, Trouble):
            words = self.session.last_words() if line.outcome == "crash" else ""
            return self._broken(f"{line.text}: {words}" if words else line.text)
        try:
            answer = parse_answer(line, id=case.vector.id, operation=case.operation)
        except ProtocolError as error:
            return self._broken(f"broke the protocol: {error}")
        self.in_flight.popleft()
        self._judge(index, case, made, answer)
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

    def _judge(self, index: int, case: Case, made: Verdict, answer: Answer) -> None:
        cell = judge(case, self.handshake, answer)
        wrong = "" if cell.outcome == "pass" else cell.text
        if not wrong and answer.outcome == "accepted":
            wrong = _wrong_bytes(made, answer)
        if cell.outcome == "unsupported":
            self.found.unsupported += 1
        elif not wrong:
            self.found.agreed += 1
            self.found.accepted += answer.outcome == "accepted"
            self.found.rejected += answer.outcome == "rejected"
        elif rule := self._rule(case.vector.data, made, answer):
            self.found.rules[rule.name] += 1
        else:
            theirs = f"{answer.outcome} ({answer.error})" if answer.error else answer.outcome
            reason = f"{wrong}; kfuzz: {made.fatal or 'accepted'}; {self.found.testee}: {theirs}"
            self.found.disagreements.append(Disagreement(index, case.vector.data, reason, dict(answer.raw)))
        self._done()

    def _rule(self, data: bytes, made: Verdict, answer: Answer) -> Rule | None:
        # The rules are Kafka's; no other testee is excused by them. None excuses what was read before.
        if self.handshake.name != KAFKA or self._differs_before(made, answer):
            return None
        return next((rule for rule in RULES if self.role in rule.roles and rule.fits(data, made, answer)), None)

    def _differs_before(self, made: Verdict, answer: Answer) -> bool:
        """Whether the batches before the one at which Kafka stopped are not kfuzz's."""
        if answer.outcome == "accepted" or not answer.batches:
            return False
        # A segment's batches are all that recovery kept, the one of which the broker dies among them.
        if self.role == "log":
            return False
        return wrong_reading(made.batches[: len(answer.batches)], self.handshake, answer) is not None


def _wrong_bytes(made: Verdict, answer: Answer) -> str:
    """What a broker stores is compared byte for byte where nothing was compressed anew."""
    if made.stored is None or answer.data is None or not made.in_place or made.stored == answer.data:
        return ""
    at = next((i for i, (a, b) in enumerate(zip(made.stored, answer.data, strict=False)) if a != b), None)
    return f"the stored bytes differ at byte {at}" if at is not None else f"stored {len(answer.data)} bytes"


def _as_vector(index: int, data: bytes, made: Verdict, role: Role) -> Vector:
    """What kfuzz made of the input, as the expectation that the testee's answer is held to."""
    expectation: dict[str, Any] = {"verdict": "valid", "batches": made.batches, "consumed": made.consumed}
    if made.fatal is not None:
        expectation = {"verdict": "invalid", "finding": made.fatal.code, "batches": made.batches}
    return Vector(
        id=f"differential/{index}",
        kind="records",
        summary="an input of the mutator",
        level="required",
        requirements=(),
        flags=(),
        source=data,
        canonical=False,
        layout=(),
        expect={role: expectation},
        kafka={},
        budget=None,
        file=Path("differential"),
    )


# --- what is told ---------------------------------------------------------------------------------------------------


def to_json(found: Differential, *, seed: int) -> dict[str, Any]:
    """The run as one JSON document."""
    return {
        "testee": found.testee,
        "role": found.role,
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
            role = {} if found.role == "consumer" else {"role": found.role}
            document = {"testee": found.testee, **role, **outcome_of(item.answer)}
            write_whole(files[-1].with_suffix(".json"), json.dumps(document, indent=2, sort_keys=True) + "\n")
    return files


def sentences(found: Differential, files: Sequence[Path], *, seed: int, shown: int) -> list[str]:
    """What a person is told: the first ``shown`` disagreements with their hex and ``files``, then the counts."""
    reasons = [
        f"input {item.index} of seed {seed}: {item.reason}\n  {_cut(item.data.hex())} " for item in found.disagreements
    ]
    # What was left unanswered has its files behind those.
    lines = told(reasons, files[: len(reasons)], shown=shown)
    # Each rule, those that excused nothing too: a reader must see how far agreement rests on them.
    lines += [f"{found.rules[rule.name]} under the rule: {rule.name}" for rule in RULES]
    if found.unsupported:
        lines.append(f"{found.unsupported} unsupported by {found.testee}")
    if found.broken:
        lines.append(f"{found.broken}; what was on its way is in {files[0].parent}")
    lines.append(
        f"{found.testee} as {found.role}, seed {seed}: {found.agreed} of {found.inputs} inputs agree "
        f"({found.accepted} accepted, {found.rejected} rejected), {len(found.disagreements)} differ"
    )
    return lines


def _cut(text: str, width: int = 400) -> str:
    return text if len(text) <= width else f"{text[:width]}…"
