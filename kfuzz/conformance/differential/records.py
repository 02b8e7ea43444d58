"""The differential: kfuzz and a testee get the same inputs, and their answers must agree.

kfuzz's result for an input is the expectation. ``compare.judge`` compares the testee's answer with it: outcome,
consumed bytes and contents, and for a broker also the stored bytes. If kfuzz differs from Kafka on purpose, a rule of
docs/differences.md excuses the input. A rule never names an input; it looks at the input and both results.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kfuzz.annotate.records import codec_number, opened, stream_of
from kfuzz.conformance.differential.found import Asked, Differential, compared
from kfuzz.conformance.judge.causes import Cause, Deviation
from kfuzz.conformance.judge.compare import Case, declared_unsupported, judge, request, wrong_reading
from kfuzz.conformance.judge.harm import HANGS, KILLS, LOSES, MEMORY
from kfuzz.conformance.judge.reference import OwnVerdict, as_vector, verdict
from kfuzz.conformance.protocol.lines import Answer, Handshake
from kfuzz.conformance.protocol.peer import Question, started
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.edit.killing import killing_fields
from kfuzz.edit.shrinking import shrink
from kfuzz.findings.stored import LENGTH_WRONG
from kfuzz.records import Role
from kfuzz.records.codecs.snappy import XERIAL_MAGIC
from kfuzz.vectors.model import Vector
from kfuzz.wire.io.cursor import uvarint_of
from kfuzz.wire.io.layout import (
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    CODEC_AT,
    CODEC_MASK,
    HEADER_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_AT,
)
from kfuzz.wire.records.framing import frames

KAFKA: Final = "kafka-clients"
# The end of the message of `decompressed-size-exceeded`, also where another finding quotes it.
OVER_LIMIT: Final = "bytes; raise the limit to read it"
# In a longer seed, most changes would have no effect.
SEED_BYTES_MAX: Final = 4096
# Each asks about up to 128 inputs.
SHRINK_ROUNDS: Final = 60
# An input that ends the testee costs its start, and one on which it hangs the time limit.
ROUNDS_OF: Final = {KILLS.name: 20, MEMORY.name: 20, HANGS.name: 3}
# The search for the fields that kill asks about this many inputs at most.
KILLING_TRIES: Final = 500
GZIP_CODEC: Final = 1
SNAPPY_CODEC: Final = 2
LZ4_CODEC: Final = 3
XERIAL_HEADER_BYTES: Final = 16
# The first four bytes of the header of a snappy stream, and not the rest.
FALSE_HEADER: Final = re.compile(re.escape(XERIAL_MAGIC[:4]) + b"(?!" + re.escape(XERIAL_MAGIC[4:]) + b")", re.DOTALL)
LAST_MAGIC: Final = 2
# Java's two messages for an allocation that is too large.
OUT_OF_MEMORY: Final = ("Java heap space", "Requested array size exceeds VM limit")
# The Java testee's heap has 512 MiB (testees/kafka-clients/testee.toml), which has no room for one array of this size.
CLAIM_BYTES_MIN: Final = 256 * 1024 * 1024
NEGATIVE_LIMIT: Final = re.compile(r"IllegalArgumentException: newLimit < 0: \((-\d+) < 0\)$")
UNKNOWN_CODEC: Final = re.compile(r"IllegalArgumentException: Unknown compression type id: (\d+)$")
INVALID_EPOCH: Final = re.compile(
    r"IllegalArgumentException: Received invalid partition leader epoch entry "
    r"EpochEntry\[epoch=(-?\d+), startOffset=(-?\d+)\]$"
)
OVERRUN: Final = re.compile(r"IllegalArgumentException: newLimit > capacity: \((\d+) > (\d+)\)$")
# Other exceptions than KafkaException that bad bytes cause in Kafka, and kfuzz's findings for the same faults. A pair
# that is not listed is a deviation, and a person must look at it.
# Opening a broken wrapper fails in the same way for a log as for a consumer.
BROKEN: Final = frozenset({"decompression-failed", "wrapper-start-unknown"})
UNDECLARED: Final = tuple(
    (re.compile(error), codes)
    for error, codes in (
        (r"BufferUnderflowException", BROKEN | {"end-marker-invalid"}),
        (r"IllegalArgumentException: Attempted to complete (a )?transaction", frozenset({"end-marker-invalid"})),
        (r"IllegalArgumentException: Invalid control record type", frozenset({"end-marker-invalid"})),
        (r"IllegalArgumentException: The last offset of appended transactions", frozenset({"end-marker-invalid"})),
        (r"IllegalArgumentException: Var(int|long) is too long", frozenset({"varint-too-long", "end-marker-invalid"})),
        (r"IllegalArgumentException: newLimit < 0", frozenset({"batch-length-too-large"})),
        (r"NegativeArraySizeException", BROKEN | {"end-marker-invalid"}),
        (r"NullPointerException: Cannot invoke \"java.nio.ByteBuffer", frozenset({"end-marker-invalid"})),
        # After a stream that seems to end, Kafka asks for another byte, and then finds what follows it.
        (r"SnappyError", BROKEN | {"end-marker-invalid", "record-count-too-high"}),
        (r"UnsupportedOperationException: key is skipped", frozenset({"compressed-offset-delta-not-index"})),
    )
)


# --- the rules ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """A difference on purpose. ``name`` is the first column of its row in docs/differences.md. ``fits`` gets the input,
    kfuzz's verdict and Kafka's answer, in which the batches before the difference agree with kfuzz's.
    """

    name: str
    fits: Callable[[bytes, OwnVerdict, Answer], bool]
    roles: tuple[Role, ...] = ("consumer", "broker", "log")


def _bounded(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    """kfuzz stopped at its limit; in a log it keeps such a batch, and cannot read it."""
    if made.fatal is not None:
        return made.fatal.code == "decompressed-size-exceeded"
    return any(finding.code == "records-unreadable" and OVER_LIMIT in finding.message for finding in made.findings)


def _allocates(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    """Kafka ran out of memory in a batch that claims a size beyond its bytes, and beyond Kafka's heap."""
    if answer.outcome == "accepted" or (answer.outcome == "rejected" and made.fatal is not None):
        # The testee reports a batch without records if it keeps the batch in a segment but lacks memory to read it.
        pairs = zip(_frames(data), made.batches, answer.batches or (), strict=False)
        unread = [frame for frame, want, have in pairs if "records" in want and "records" not in have]
        return bool(unread) and all(map(_claims_too_much, unread))
    if answer.outcome != "fault" or not any(words in answer.error for words in OUT_OF_MEMORY):
        return False
    return any(map(_claims_too_much, _stopped(data, answer)))


def _claims_too_much(frame: bytes) -> bool:
    return any(claim >= CLAIM_BYTES_MIN for claim in _claims(frame))


def _claims(frame: bytes) -> Iterator[int]:
    """The sizes in bytes that a compressed batch claims; Kafka allocates each of them before it reads."""
    payload = opened(frame)
    if payload is None:
        return
    if frame[MAGIC_AT] == LAST_MAGIC:
        # Kafka puts the records of a segment's control batch into a list, which takes at least four bytes per record.
        yield 4 * _int32(frame, HEADER_AT["record_count"])
    if codec_number(frame) == SNAPPY_CODEC:
        yield from _snappy_claims(_stream(frame))
    at, left = 0, len(payload.data)
    while left >= 0:
        if frame[MAGIC_AT] == LAST_MAGIC:
            number, at = _uvarint(payload.data, at)
            size = number >> 1 ^ -(number & 1)
        else:
            size, at = _int32(payload.data, at + MESSAGE_AT[0]["batch_length"]), at + LOG_OVERHEAD
        left = len(payload.data) - at - size
        if left < 0:
            yield size
        if size <= 0:
            return
        at += size


def _int32(data: bytes, at: int) -> int:
    """The number of four bytes at ``at``; 0 if it is cut off."""
    return int.from_bytes(data[at : at + 4], "big", signed=True) if len(data) - at >= 4 else 0


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned varint of 32 bits at ``at``, and where it ends; 0 and ``at`` if there is none."""
    number, size = uvarint_of(data[at : at + 5], 5)
    return (number & 0xFFFFFFFF, at + size) if size > 0 else (0, at)


def _snappy_claims(stream: bytes) -> Iterator[int]:
    """The sizes that the chunks claim, and the decompressed sizes that the blocks in them claim."""
    if not stream.startswith(XERIAL_MAGIC):
        yield _uvarint(stream, 0)[0]
        return
    at = XERIAL_HEADER_BYTES
    while len(stream) - at >= 4:
        size = _int32(stream, at)
        yield size
        yield _uvarint(stream, at + 4)[0]
        if size < 0:
            return
        at += 4 + size


def _codec_without_a_name(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    """Kafka looks up a codec of 5 to 7, and the batch or a message inside it has that codec."""
    error = UNKNOWN_CODEC.match(answer.error)
    if error is None or not _both_refuse(made, answer):
        return False
    stopped = _stopped(data, answer)
    codecs = {codec_number(frame) for frame in stopped}
    codecs |= {message[CODEC_AT[0]] & CODEC_MASK for frame in stopped for message in _messages(frame)}
    return int(error[1]) in codecs


def _epoch_before_the_log(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    """Kafka enters a batch's leader epoch with its base offset, and the batch has that epoch and a negative offset."""
    error = INVALID_EPOCH.match(answer.error)
    if error is None or not _both_refuse(made, answer) or int(error[2]) >= 0:
        return False
    entry = struct.pack(">q", int(error[2])), struct.pack(">i", int(error[1]))
    at = HEADER_AT["partition_leader_epoch"]
    return any((frame[:8], frame[at : at + 4]) == entry for frame in _stopped(data, answer))


def _legacy_length_beyond_its_message(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    """Kafka cuts a key or value out of a message that is too short for it, or reads a length after the message."""
    overrun = OVERRUN.match(answer.error)
    outside = answer.error.startswith("IndexOutOfBoundsException")
    if not (overrun or outside) or not _both_refuse(made, answer):
        return False
    found = {_beyond(message) for frame in _stopped(data, answer) for message in _messages(frame)} - {None}
    return bool(found) if overrun is None else (int(overrun[1]), int(overrun[2])) in found


def _both_refuse(made: OwnVerdict, answer: Answer) -> bool:
    """Both refuse, and Kafka read no more batches than kfuzz."""
    return made.fatal is not None and answer.outcome == "fault" and len(answer.batches or ()) <= len(made.batches)


def _stopped(data: bytes, answer: Answer) -> list[bytes]:
    """The batch at which Kafka stopped, the one after those that it reported. If it reported no list or all batches,
    all of them: any may be the cause, because Kafka opens a segment's batches after it has read them all.
    """
    frames = _frames(data)
    return frames if answer.batches is None else frames[len(answer.batches) :][:1] or frames


def _messages(frame: bytes) -> list[bytes]:
    """A message of magic 0 or 1; if it is a wrapper, also the messages inside it, up to the first broken size."""
    if frame[MAGIC_AT] == LAST_MAGIC:
        return []
    payload = opened(frame)
    return [frame, *([] if payload is None else _frames(payload.data, any_magic=True))]


def _beyond(message: bytes) -> tuple[int, int] | None:
    """The first length field of a legacy message that has more bytes than are left, and how many are left. Both are 0
    if the field itself lies beyond the end. None if the lengths are sound.
    """
    # Inside a wrapper, Kafka takes every magic but 0 as 1.
    at = MESSAGE_AT[min(message[MAGIC_AT], 1)]["key_length"]
    for _ in ("key", "value"):
        left = len(message) - at - 4
        if left < 0:
            return 0, 0
        length = _int32(message, at)
        if length > left:
            return length, left
        at += 4 + max(length, 0)
    return None


def _undeclared(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    """Both refuse the same batch for the same fault, but Kafka with an undeclared exception. A broker's check looks for
    the next batch before it reads the first one, so there the fault may be that batch's length.
    """
    if not _both_refuse(made, answer):
        return False
    if any(
        error.match(answer.error) and made.fatal is not None and made.fatal.code in codes for error, codes in UNDECLARED
    ):
        return True
    negative = NEGATIVE_LIMIT.match(answer.error)
    return negative is not None and int(negative[1]) + (1 << 32) in _claimed_sizes(data)


def _claimed_sizes(data: bytes) -> Iterator[int]:
    """The size that each batch claims, as Kafka goes from one to the next: also one that does not fit."""
    at = 0
    while len(data) - at > MAGIC_AT:
        length = _int32(data, at + HEADER_AT["batch_length"])
        if length < BATCH_LENGTH_MIN[0]:
            return
        yield LOG_OVERHEAD + length
        at += LOG_OVERHEAD + length


def _recurses(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    if answer.outcome != "fault" or not answer.error.startswith("StackOverflowError"):
        return False
    return any(codec_number(frame) == GZIP_CODEC for frame in _frames(data)[len(answer.batches or ()) :][:1])


def _empty_lz4_block(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    """The batch at which they differ has an empty lz4 block."""
    frames = _differing(data, made, answer)
    return any(codec_number(frame) == LZ4_CODEC and _has_empty_block(_stream(frame)) for frame in frames)


def _snappy_stream_that_continues(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    """The batch at which they differ has what begins like the header of another snappy stream, and is none."""
    return any(
        frame[MAGIC_AT] == LAST_MAGIC
        and codec_number(frame) == SNAPPY_CODEC
        and FALSE_HEADER.search(frame, BATCH_HEADER_SIZE + XERIAL_HEADER_BYTES) is not None
        for frame in _differing(data, made, answer)
    )


def _differing(data: bytes, made: OwnVerdict, answer: Answer) -> list[bytes]:
    """The first batch that kfuzz or Kafka refuses. All of them if both accept all, or if Kafka refuses a segment after
    it has read all of its batches: then any of them may be the cause.
    """
    ours = len(made.batches) if made.fatal else None
    theirs = len(answer.batches or ()) if answer.outcome != "accepted" else None
    frames = _frames(data)
    return frames[min((at for at in (ours, theirs) if at is not None), default=len(frames)) :][:1] or frames


def _unknown_magic(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    if made.fatal is None or made.fatal.code != "magic-unknown":
        return False
    return answer.outcome != "rejected" or len(answer.batches or ()) > len(made.batches)


def _hides(data: bytes, made: OwnVerdict, answer: Answer) -> bool:
    """Kafka cut a segment off where kfuzz says that sound batches follow."""
    if made.fatal is None or made.fatal.code != LENGTH_WRONG:
        return False
    return answer.outcome == "accepted" and len(answer.batches or ()) == len(made.batches)


RULES: Final = (
    Rule("`decompressed-size-exceeded`", _bounded),
    Rule("sizes inside a compressed payload", _allocates),
    Rule("a codec without a name", _codec_without_a_name),
    Rule("a legacy length beyond its message", _legacy_length_beyond_its_message),
    Rule("a leader epoch before the log's start", _epoch_before_the_log, roles=("log",)),
    Rule("undeclared exceptions", _undeclared),
    Rule("empty gzip members", _recurses),
    Rule("an lz4 block of no bytes", _empty_lz4_block),
    Rule("a snappy stream that continues", _snappy_stream_that_continues),
    Rule("a magic above 2 in a segment", _unknown_magic, roles=("log",)),
    Rule("`batch-length-wrong`", _hides, roles=("log",)),
)


def _frames(data: bytes, *, any_magic: bool = False) -> list[bytes]:
    return [data[at : at + size] for at, size, _ in frames(data, any_magic=any_magic)]


def _stream(frame: bytes) -> bytes:
    """The compressed payload of a batch or wrapper; empty if there is none."""
    at, size = stream_of(frame) or (0, 0)
    return frame[at : at + size]


def _has_empty_block(payload: bytes) -> bool:
    """Whether an lz4 frame has a block without bytes that is not the end mark."""
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
    first: int = 0,
    judged: Callable[[bytes, Role], OwnVerdict] = verdict,
    on_progress: Callable[[int], None] = lambda done: None,
    begun: Callable[[Differential], None] = lambda found: None,
    shrunk: int = 0,
) -> Differential:
    """Give ``inputs`` to kfuzz (``judged``) and to ``testee``, 64 ahead of its answers, and compare the results.

    The inputs have numbers from ``first`` on. ``begun`` gets the result before the first question; it grows with each
    answer. At the end the smallest input of each of the worst ``shrunk`` causes is made smaller.

    If the testee breaks, the input that breaks it is found, and the run continues. ``UsageError`` if it does not start.
    """
    names = tuple(rule.name for rule in RULES if role in rule.roles)
    with started(testee) as peer:

        def asked(
            inputs: Iterable[bytes],
            found: Differential,
            on_progress: Callable[[int], None] = lambda done: None,
            first: int = 0,
        ) -> Differential:
            run = _Run(found, peer.handshake, role, judged, on_progress)
            compared(found, peer, run.questions(inputs, first), run.compare, _finding)
            return found

        found = Differential(peer.handshake.label, setting=f"as {role}", rule_names=names)
        begun(found)
        asked(inputs, found, on_progress, first)
        for cause in found.causes[:shrunk]:
            made = _shrunk(found.testee, cause, asked)
            found.deviations.remove(cause.smallest)
            found.deviations.append(made)
    return found


def _shrunk(testee: str, cause: Cause, ask: Callable[..., Differential]) -> Deviation:
    """A smaller input with the same cause, in place of its smallest one, with the fields that kill in it."""
    item = cause.smallest
    smaller = {item.data: item}

    def find_first(candidates: Sequence[bytes]) -> int | None:
        # Few at first: each that ends the testee costs its start.
        at, size = 0, 1
        while at < len(candidates):
            tried = ask(candidates[at : at + size], Differential(testee))
            same = [one for one in tried.deviations if one.key == item.key]
            if same:
                first = min(same, key=lambda one: one.number)
                smaller[first.data] = replace(first, number=item.number, input=item.input, shrunk_from=len(item.data))
                return at + first.number
            at, size = at + size, 2 * size
        return None

    rounds = ROUNDS_OF.get(item.harm, SHRINK_ROUNDS)
    made = smaller[shrink(item.data, find_first, rounds=rounds)]
    left = ROUNDS_OF.get(item.harm, KILLING_TRIES)

    def breaks(changed: bytes) -> bool:
        nonlocal left
        if not left:
            return True
        there = find_first([changed]) is not None
        # Only an input that breaks the testee costs a start.
        left -= there or item.harm not in ROUNDS_OF
        return there

    return replace(made, kills=killing_fields(made.data, breaks))


def seeds_of(vectors: Iterable[Vector]) -> list[bytes]:
    """The bytes of the vectors that a mutator may start from: records without a budget, at most 4096 bytes each."""
    return [
        vector.data
        for vector in vectors
        if vector.kind == "records" and not vector.budget and len(vector.data) <= SEED_BYTES_MAX
    ]


@dataclass(frozen=True, slots=True)
class _Expected:
    case: Case
    made: OwnVerdict


@dataclass(frozen=True, slots=True)
class _Run:
    found: Differential
    handshake: Handshake
    role: Role
    judged: Callable[[bytes, Role], OwnVerdict]
    on_progress: Callable[[int], None]

    def questions(self, inputs: Iterable[bytes], first: int = 0) -> Iterator[Question[Asked[_Expected]]]:
        """One question for each input, with numbers from ``first`` on.

        An input that the testee declares unsupported is counted, but not asked.
        """
        for index, data in enumerate(inputs, first):
            made = self.judged(data, self.role)
            case = Case(as_vector(f"differential/{index}", data, made, self.role), self.role)
            if declared_unsupported(case, self.handshake):
                self.found.unsupported += 1
                self._done()
            else:
                yield Question(request(case), Asked(index, _Expected(case, made)))

    def _done(self) -> None:
        self.found.inputs += 1
        self.on_progress(self.found.inputs)

    def compare(self, question: Question[Asked[_Expected]], answer: Answer) -> None:
        """Compare the testee's answer with kfuzz's verdict on the input."""
        case, made = question.about.expected.case, question.about.expected.made
        cell = judge(case, self.handshake, answer)
        wrong = "" if cell.outcome == "pass" else cell.text
        if not wrong and answer.outcome == "accepted":
            wrong = _wrong_bytes(made, answer)
        if cell.outcome == "unsupported":
            self.found.unsupported += 1
        elif not wrong:
            self.found.agreements[answer.outcome] += 1
        elif rule := self._rule(case.vector.data, made, answer):
            self.found.rules[rule.name] += 1
        else:
            theirs = f"{answer.outcome} ({answer.error})" if answer.error else answer.outcome
            reason = f"{wrong}; kfuzz: {made.fatal or 'accepted'}; {self.found.testee}: {theirs}"
            self.found.add(
                question,
                answer.raw,
                reason=reason,
                error=wrong,
                # A cell that passes has no harm; then the stored bytes differ.
                harm=cell.harm or LOSES.name,
                finding=made.fatal.code if made.fatal else "",
            )
        self._done()

    def _rule(self, data: bytes, made: OwnVerdict, answer: Answer) -> Rule | None:
        # The rules excuse only Kafka, and only if the batches before the difference agree.
        if self.handshake.name != KAFKA or self._differs_before(made, answer):
            return None
        return next((rule for rule in RULES if self.role in rule.roles and rule.fits(data, made, answer)), None)

    def _differs_before(self, made: OwnVerdict, answer: Answer) -> bool:
        """Whether the batches before the one at which Kafka stopped differ from kfuzz's."""
        if answer.outcome == "accepted" or not answer.batches:
            return False
        # For a log, Kafka reports every batch that recovery kept, also the one that stops the broker.
        if self.role == "log":
            return False
        theirs = answer.batches if made.fatal is None else answer.batches[: len(made.batches)]
        both = made.batches[: len(theirs)]
        return wrong_reading(both, self.handshake, replace(answer, batches=theirs)) is not None


def _finding(expected: _Expected) -> str:
    return expected.made.fatal.code if expected.made.fatal else ""


def _wrong_bytes(made: OwnVerdict, answer: Answer) -> str:
    """Compares the bytes that a broker stores, unless it compressed them again."""
    if made.stored is None or answer.data is None or not made.in_place or made.stored == answer.data:
        return ""
    at = next((i for i, (a, b) in enumerate(zip(made.stored, answer.data, strict=False)) if a != b), None)
    return f"the stored bytes differ at byte {at}" if at is not None else f"stored {len(answer.data)} bytes"
