"""Compares what a broker did with what Apache Kafka does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from kfuzz.conformance.broker.settings import MAX_MESSAGE_BYTES, OF_BROKERS, handshake_of
from kfuzz.conformance.judge.compare import Case, Cell, judge
from kfuzz.conformance.judge.harm import HARM_OF, worst
from kfuzz.conformance.judge.matrix import Run
from kfuzz.conformance.judge.reference import as_vector, for_broker, verdict
from kfuzz.conformance.protocol.lines import Answer
from kfuzz.errors import UsageError
from kfuzz.kafka import BROKER_RELEASE
from kfuzz.probe.observed import TOO_LARGE, Observed
from kfuzz.records.read.topic import DEFAULT_TOPIC, Topic
from kfuzz.vectors import Vector
from kfuzz.vectors.kinds import TOPIC

BROKER: Final = "broker"
BATCH_TOO_LARGE: Final = "batch-too-large"
UNFORESEEN: Final = "UNKNOWN_SERVER_ERROR"
STORAGE_ERROR: Final = "KAFKA_STORAGE_ERROR"
# The outcome for each way a connection can be lost, and its text.
LOST: Final = {
    "closed": ("fault", "closed the connection instead of an answer"),
    "silent": ("timeout", "gave no answer"),
    "garbled": ("protocol-error", "answered with bytes that cannot be read"),
    "gone": ("crash", "the broker ended"),
}


def cases_for_broker(vectors: Sequence[Vector]) -> tuple[Case, ...]:
    """The cases for a broker: every vector of records.

    If the suite has no verdict for brokers, kfuzz's own verdict is used.
    """
    return tuple(Case(for_broker(vector), BROKER) for vector in vectors if vector.kind == "records")


def with_limit(case: Case, max_message_bytes: int | None) -> Case:
    """The case for a broker with this ``max.message.bytes``; None if that is not known.

    Only verdicts that depend on this limit change. The suite's were confirmed with the default.
    """
    topic = case.vector.options.get(TOPIC, {})
    if max_message_bytes in (None, DEFAULT_TOPIC.max_message_bytes) or "max_message_bytes" in topic:
        return case
    made = verdict(case.vector.data, BROKER, topic=Topic.from_json({**topic, "max_message_bytes": max_message_bytes}))
    found = made.fatal.code if made.fatal is not None else ""
    if BATCH_TOO_LARGE not in (case.expectation.get("finding"), found):
        return case
    expectation = as_vector(case.vector.id, case.vector.data, made, BROKER).expect[BROKER]
    # Other brokers have other limits than kfuzz for what a batch may decompress to.
    if found == TOO_LARGE:
        expectation = {"verdict": "acceptable"}
    return replace(case, vector=replace(case.vector, expect={**case.vector.expect, BROKER: expectation}))


def limit_notes(cases: Sequence[Case], reported: int | None) -> list[str]:
    """A note on what judgements depend on, if that is not Kafka's default of ``max.message.bytes``, or if the broker
    does not report its own and it decides about one of the cases.
    """
    default = DEFAULT_TOPIC.max_message_bytes
    if reported is not None:
        own = f"the broker's {MAX_MESSAGE_BYTES} is {reported}, and it is judged by that"
        return [own] if reported != default else []
    other_limit = {"max_message_bytes", *OF_BROKERS}
    by_default = [case for case in cases if not other_limit & case.vector.options.get(TOPIC, {}).keys()]
    if not any(case.expectation.get("finding") == BATCH_TOO_LARGE for case in by_default):
        return []
    return [f"the broker does not report its {MAX_MESSAGE_BYTES}, so it is judged by Kafka's default of {default}"]


def cell_of(case: Case, seen: Observed) -> Cell:
    """The judgement on one vector, with the observation as its answer."""
    told = seen.to_json(case.vector.data)
    if seen.outcome == "not judged":
        return Cell("unsupported", seen.text, declared=True, answer=told)
    return replace(_judged(case, seen), answer=told)


def _judged(case: Case, seen: Observed) -> Cell:
    if seen.outcome in LOST:
        return _lost(seen.outcome, "")
    if _is_undeclared(case, seen):
        return Cell("fault", _spoken(seen), HARM_OF["fault"])
    cell = judge(case, handshake_of(BROKER), _answer(case, seen))
    if cell.harm == "loses" and _contents_are_kept(case, seen):
        cell = replace(cell, harm="differs")
    trouble = _trouble_after(case, seen)
    if trouble is None:
        return cell
    # The worse of the two; of two equals the one that says more.
    return trouble if worst({cell.harm, trouble.harm}) == trouble.harm else cell


def _lost(how: str, where: str) -> Cell:
    outcome, text = LOST[how]
    return Cell(outcome, text + where, HARM_OF[outcome])


def _is_undeclared(case: Case, seen: Observed) -> bool:
    """Whether the error says that something went wrong inside. Kafka's broker itself answers so to some bytes."""
    if seen.error == STORAGE_ERROR:
        return True
    return seen.error == UNFORESEEN and case.vector.kafka.get(BROKER_RELEASE, {}).get("error") != UNFORESEEN


def _spoken(seen: Observed) -> str:
    return f"{seen.error} ({seen.text})" if seen.text else seen.error


def _answer(case: Case, seen: Observed) -> Answer:
    """The observation as a testee's answer."""
    if seen.outcome != "accepted":
        return Answer(case.vector.id, "rejected", _spoken(seen))
    if not seen.stored:
        # This checks only whether the broker may accept the bytes. The stored bytes are checked elsewhere.
        batches = case.expectation.get("batches", [])
        return Answer(case.vector.id, "accepted", batches=list(batches))
    return Answer(case.vector.id, "accepted", batches=seen.batches())


def _trouble_after(case: Case, seen: Observed) -> Cell | None:
    """The fault of the served bytes, whatever the answer was."""
    if seen.outcome != "accepted":
        return Cell("fail", f"answered {seen.error}, but serves the batch", "accepts") if seen.stored else None
    if seen.fetch in LOST:
        return _lost(seen.fetch, ", when the accepted batch was fetched")
    if seen.fetch:
        return Cell("fault", f"accepted the batch, but a fetch of it gets {seen.fetch}", HARM_OF["fault"])
    if not seen.stored:
        return Cell("fail", "accepted the batch, but does not serve it", "loses")
    batches = seen.batches()
    if batches and int(batches[0]["base_offset"]) != seen.base_offset:
        text = f"answered base offset {seen.base_offset}, but serves the batch at {batches[0]['base_offset']}"
        return Cell("fail", text, "differs")
    if not seen.refusal:
        return None
    if case.expectation["verdict"] == "invalid":
        why = case.expectation["finding"]
        text = f"accepted bytes that must be refused ({why}), and consumers refuse what it serves"
        return Cell("fail", text, "accepts")
    if all("records" in batch for batch in case.expectation.get("batches", ())):
        return Cell("fail", f"serves what consumers refuse ({seen.refusal}), but it got good data", "loses")
    return None


def _contents_are_kept(case: Case, seen: Observed) -> bool:
    """Whether the served records are the expected ones, whatever the headers of their batches say."""
    expected = [batch.get("records") for batch in case.expectation.get("batches", ())]
    return bool(expected) and expected == [batch.get("records") for batch in seen.batches()]


def summary(run: Run, wanted: int) -> list[str]:
    """Lines that say what the broker answered, stored and served. Withheld outcomes are left out.

    ``wanted``: the number of vectors that the probe was asked for.
    """
    (broker,) = run.testees
    told: list[dict[str, Any]] = [dict(cell.answer) for key, cell in broker.cells.items() if not broker.hides(key)]
    clear = [one for one in told if one.get("outcome") != "not judged"]
    served = [one for one in clear if "consumer" in one]
    lines = [f"judged    {len(clear)} of {wanted}"]
    for title, names in (
        ("answered", [one.get("error") or one.get("outcome", "") for one in clear]),
        ("stored", [one["stored"] for one in clear if "stored" in one]),
        ("consumers", ["read it" if one["consumer"] == "accepted" else "refuse it" for one in served]),
    ):
        if names:
            counts = sorted(Counter(names).items(), key=lambda one: (-one[1], one[0]))
            lines.append(f"{title:<9} {', '.join(f'{name} {count}' for name, count in counts)}")
    return lines


def checked_name(name: str) -> str:
    """``NAME@VERSION``; ``UsageError`` for anything else."""
    who, at, version = name.partition("@")
    if not (at and who and version) or "/" in name:
        raise UsageError(f"{name!r} names no broker; give NAME@VERSION, such as broker-kafka@{BROKER_RELEASE}")
    return name
