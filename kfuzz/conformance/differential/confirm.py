"""What Apache Kafka itself says of the streams: its cells, and where it contradicts a recipe.

The testee ``kafka-clients`` is asked each stream in each role. May import the rest of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kfuzz.conformance.judge.compare import Case, cases_of, judge, request
from kfuzz.conformance.protocol.session import Limits, Session, Trouble
from kfuzz.conformance.protocol.start import started
from kfuzz.conformance.protocol.testees import Testee, all_testees, select
from kfuzz.conformance.protocol.words import Answer, Handshake, parse_answer, to_line
from kfuzz.errors import UsageError
from kfuzz.vectors.model import Vector

__all__ = ["Confirmation", "confirm_streams"]


@dataclass(slots=True)
class Confirmation:
    """``answers[role][version][id]`` is what Kafka said, by its ``outcome``: accepted, rejected (of a broker: in some
    step) or fault. ``contradictions`` are sentences; there must be none.
    """

    answers: dict[str, dict[str, dict[str, dict[str, Any]]]] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)


def confirm_streams(vectors: Sequence[Vector]) -> Confirmation:
    """Ask every version of ``kafka-clients`` what it makes of the vectors of kind ``stream``.

    What a version does not support gets no cell. ``UsageError`` where it cannot be built or run here.
    """
    found = Confirmation()
    cases = cases_of([vector for vector in vectors if vector.kind == "stream"])
    for testee in select(all_testees(), ["kafka-clients"]):
        with started(testee, Limits()) as (session, handshake):
            for case in cases:
                _take(found, testee.version, case, handshake, _ask(session, testee, case))
    return found


def _take(found: Confirmation, version: str, case: Case, handshake: Handshake, answer: Answer) -> None:
    cell = judge(case, handshake, answer)
    if cell.outcome == "unsupported":
        return
    # Who lets an exception escape has not read the bytes, which confirms a refusal.
    refused = cell.outcome == "fault" and case.expectation["verdict"] != "valid"
    if cell.outcome != "pass" and not refused:
        found.contradictions.append(f"{case.vector.id}: Kafka {version} as {case.role} contradicts it: {cell.text}")
    said = found.answers.setdefault(case.role, {}).setdefault(version, {})
    said[case.vector.id] = {"outcome": _outcome(answer)}


def _ask(session: Session, testee: Testee, case: Case) -> Answer:
    session.send(to_line(request(case)))
    line = session.next_line(Limits().budget(case.vector.budget))
    if isinstance(line, Trouble):
        raise UsageError(
            f"{testee.label} {line.text} at {case.vector.id}; judge that vector alone with `kfuzz conform`"
        )
    return parse_answer(line, id=case.vector.id, operation=case.operation)


def _outcome(answer: Answer) -> str:
    refused = any(step["outcome"] == "rejected" for step in answer.steps or ())
    return "rejected" if refused else answer.outcome
