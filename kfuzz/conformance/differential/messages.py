"""The differential of messages: kfuzz and a testee must agree on each message and version of a catalogue.

Each message is asked with its defaults, with filled fields, and as mutants of those. Equal seeds give equal inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from zlib import crc32

from kfuzz.conformance.differential.found import Asked, Differential, compared
from kfuzz.conformance.judge.harm import ACCEPTS, HARM_OF, LOSES, REFUSES, Harm
from kfuzz.conformance.protocol.lines import DECODE_MESSAGE, ENCODE_MESSAGE, Answer
from kfuzz.conformance.protocol.peer import Question, started
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.errors import EncodeError
from kfuzz.kafka import LATEST, RELEASES
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import encode, read
from kfuzz.messages.jsonform import from_json, to_json
from kfuzz.messages.model import Definition, Kind
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import schema
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.message import MessageMutator, scrambled
from kfuzz.records import Finding

# Messages that go over the network, and messages in logs, in files and within other messages.
KINDS: Final[tuple[Kind, ...]] = ("request", "response", "header")
RECORD_KINDS: Final[tuple[Kind, ...]] = ("data", "metadata", "coordinator-key", "coordinator-value")
BOUNDED_COUNTS: Final = "counts that Kafka 4 bounds"


@dataclass(frozen=True, slots=True)
class Sample:
    """A request of the testee protocol, and kfuzz's result for it: parts of the answer, or a refusal."""

    what: str
    request: Mapping[str, Any]
    expected: Mapping[str, Any] | Finding | EncodeError


def versions_of(name: str, kinds: Collection[Kind] = KINDS) -> Iterator[tuple[Definition, int]]:
    """Every version of each message of these kinds in a catalogue."""
    for definition in catalogue(name).messages.values():
        if definition.kind in kinds:
            yield from ((definition, version) for version in definition.valid_versions)


def _ask(definition: Definition, version: int, seed: int, samples: int, mutants: int) -> list[Sample]:
    """The questions about a message: its defaults, ``samples`` filled messages, ``mutants`` of these."""
    program = schema(definition, version)
    dice = Dice(seed, crc32(f"{definition.name} {version}".encode()))
    named = {"message": definition.name, "version": version}
    asked = []
    bodies = []
    for i in range(1 + samples):
        values = filled(definition, version, seed * 1000 + i) if i else {}
        data = program.encode(values)
        bodies.append(data)
        form = to_json(definition, version, values)
        asked.append(Sample("encoded", {"operation": ENCODE_MESSAGE, **named, "body": form}, {"hex": data.hex()}))
        asked.append(_to_decode("decoded", definition, version, data))
    mutator = MessageMutator(program)
    for _ in range(mutants):
        asked += _both_ways("mutants", definition, version, _changed(dice, mutator, bodies))
    return asked


def _both_ways(what: str, definition: Definition, version: int, data: bytes) -> list[Sample]:
    """Bytes to decode, and what was read from them to encode."""
    asked = _to_decode(what, definition, version, data)
    if not isinstance(asked.expected, Mapping):
        return [asked]
    return [asked, _to_write_again(definition, version, asked.expected["message"])]


def _changed(dice: Dice, mutator: MessageMutator, bodies: Sequence[bytes]) -> bytes:
    """A mutant of one of the messages: a quarter are changed blindly, the others by their schema."""
    data = dice.pick(bodies)
    return scrambled(data, dice) if dice.chance(0.25) else mutator.mutate(data, dice, other=dice.pick(bodies))


def _to_write_again(definition: Definition, version: int, form: Mapping[str, Any]) -> Sample:
    """The message that was read from a mutant, as a message to encode. Some messages can be read but not written."""
    request = {"operation": ENCODE_MESSAGE, "message": definition.name, "version": version, "body": form}
    try:
        data = encode(definition, version, from_json(definition, version, form))
    except EncodeError as error:
        return Sample("rewritten", request, error)
    return Sample("rewritten", request, {"hex": data.hex()})


def _to_decode(what: str, definition: Definition, version: int, data: bytes) -> Sample:
    reading = read(definition, version, data)
    request = {"operation": DECODE_MESSAGE, "message": definition.name, "version": version, "hex": data.hex()}
    if reading.fatal is not None:
        return Sample(what, request, reading.fatal)
    assert reading.message is not None
    expected = {"consumed": reading.consumed, "message": to_json(definition, version, reading.message)}
    return Sample(what, request, expected)


def differ_messages(
    testee: Testee,
    name: str,
    *,
    kinds: Collection[Kind] = KINDS,
    seed: int = 1,
    samples: int = 3,
    mutants: int = 200,
    only: range | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
    begun: Callable[[Differential], None] = lambda found: None,
) -> Differential:
    """Ask ``testee`` about every message and version of a catalogue, and compare its answers with kfuzz's results.

    ``name`` names one of kfuzz's catalogues; only its messages of these ``kinds`` are asked for, and of these only the
    versions with the numbers ``only``, in the order of :func:`versions_of`. ``begun`` gets the result before the first
    question; it grows with each answer.

    ``UsageError`` if the testee does not start. If kfuzz refuses and the testee lets an undeclared exception escape,
    that counts as agreement, as for records: docs/differences.md.
    """
    found = Differential(testee.label, of="message", rule_names=(BOUNDED_COUNTS,))
    begun(found)

    def asked() -> Iterator[tuple[Sample, bytes]]:
        chosen = (only.start, only.stop) if only else (None,)
        for done, (definition, version) in enumerate(islice(versions_of(name, kinds), *chosen), 1):
            found.setting = f"in {done} versions"
            yield from ((one, b"") for one in _ask(definition, version, seed, samples, mutants))
            on_progress(done)

    _ask_all(testee, found, asked())
    return found


def differ_inputs(
    testee: Testee,
    inputs: Iterable[tuple[Definition, int, bytes]],
    *,
    begun: Callable[[Differential], None] = lambda found: None,
) -> Differential:
    """Give ``inputs`` (message, version, bytes) to kfuzz and to ``testee``, and compare what they read and write again.

    Calls ``begun``, and raises, as :func:`differ_messages` does.
    """
    found = Differential(testee.label, of="message", rule_names=(BOUNDED_COUNTS,))
    begun(found)
    # The values to write come from these bytes, and the request does not have them.
    _ask_all(testee, found, ((one, made[2]) for made in inputs for one in _both_ways("inputs", *made)))
    return found


def _ask_all(testee: Testee, found: Differential, asked: Iterable[tuple[Sample, bytes]]) -> None:
    """Ask about these samples, each with the input that it was made from, if its request does not hold that."""
    questions = (
        Question({"id": str(index), **one.request}, Asked(index, one, data)) for index, (one, data) in enumerate(asked)
    )
    with started(testee) as peer:
        compared(found, peer, questions, lambda question, answer: _compare(found, question, answer), _finding)


def release_of(testee: Testee) -> str:
    """The catalogue for ``testee``: the one of its own Kafka release; for any other testee the latest."""
    return testee.version if testee.version in RELEASES else LATEST


def _compare(found: Differential, question: Question[Asked[Sample]], answer: Answer) -> None:
    asked, expected = question.about.expected, question.about.expected.expected
    found.inputs += 1
    if isinstance(expected, Finding | EncodeError):
        if answer.outcome in ("rejected", "fault"):
            found.agreements[asked.what] += 1
        elif isinstance(expected, Finding) and (rule := _rule(expected, found.testee)):
            found.rules[rule] += 1
        else:
            finding = expected.code if isinstance(expected, Finding) else ""
            reason = f"kfuzz refuses ({expected}), {found.testee} {answer.outcome}"
            _differ(found, question, answer, reason, ACCEPTS, finding)
        return
    given = {name: answer.raw.get(name) for name in expected}
    if answer.outcome == "accepted" and given == expected:
        found.agreements[asked.what] += 1
    else:
        words = f" ({answer.error})" if answer.error else ""
        reason = f"{found.testee} {answer.outcome}{words}; kfuzz has another result"
        _differ(found, question, answer, reason, LOSES if answer.outcome == "accepted" else REFUSES)


def _finding(asked: Sample) -> str:
    return asked.expected.code if isinstance(asked.expected, Finding) else ""


def _rule(finding: Finding, testee: str) -> str | None:
    """The rule that excuses an older Kafka for accepting what the latest one refuses; None if no rule applies."""
    is_older = testee in (f"kafka-clients@{release}" for release in RELEASES if release != LATEST)
    if is_older and finding.code in ("tag-count-exceeds-message", "count-too-large", "tag-count-too-large"):
        return BOUNDED_COUNTS
    return None


def _differ(
    found: Differential, question: Question[Asked[Sample]], answer: Answer, reason: str, harm: Harm, finding: str = ""
) -> None:
    name, version, what = question.request["message"], question.request["version"], question.about.expected.what
    found.add(
        question,
        answer.raw,
        reason=f"{name} {version}, {what}: {reason}",
        error=f"{what}: {reason}",
        harm=HARM_OF.get(answer.outcome, harm.name),
        finding=finding,
    )
