"""Asks Apache Kafka itself about vectors, through its testee ``kafka-clients``, and finds where it contradicts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from kfuzz.conformance.judge.compare import Case, cases_of, declared_unsupported, judge, request
from kfuzz.conformance.protocol.lines import READER, Answer, Handshake
from kfuzz.conformance.protocol.peer import Question, started
from kfuzz.conformance.protocol.session import Trouble
from kfuzz.conformance.protocol.testees import Testee, all_testees, select
from kfuzz.errors import UsageError
from kfuzz.kafka import BROKER_RELEASE, ROLES
from kfuzz.messages.catalogues import has_same_names
from kfuzz.vectors.confirm import contradiction, with_broker, with_cells
from kfuzz.vectors.kinds import FRAMES, KINDS
from kfuzz.vectors.model import Vector

# answers[version][id]: the answer of each Kafka version to each vector, in the protocol's JSON form.
Answers = dict[str, dict[str, dict[str, Any]]]
# Takes a title and a total; returns a context manager that yields a function to report how much is done.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def silent(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A :data:`Progress` that shows nothing."""
    yield lambda done: None


@dataclass(slots=True)
class Confirmation:
    """``answers[role][version][id]`` is Kafka's answer, with its ``outcome``: accepted, rejected or fault. A stream is
    rejected if any of its steps is. ``broker_cells[id]`` has what the real broker did, in the form of a vector's cell.
    ``frames[id]`` has those of a conversation. ``contradictions`` holds sentences and must be empty.
    """

    answers: dict[str, Answers] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)
    broker_cells: dict[str, dict[str, str]] = field(default_factory=dict)
    frames: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def filled(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A vector file's document with these answers in its cells."""
        made = dict(document)
        for role, answers in self.answers.items():
            made = with_cells(made, answers, role)
        for item in made["vectors"] if self.frames else ():
            item |= {FRAMES: self.frames[item["id"]]} if item["id"] in self.frames else {}
        return with_broker(made, BROKER_RELEASE, self.broker_cells) if self.broker_cells else made


def confirm(vectors: Sequence[Vector], *, progress: Progress = silent) -> Confirmation:
    """Ask every version of ``kafka-clients`` about all vectors, in every role and of every kind.

    A version has no answer for a vector that it does not support. ``UsageError`` if it cannot be built or run here.
    """
    found = Confirmation()
    for role in (*ROLES, READER):
        kinds = [kind.name for kind in KINDS.values() if role in kind.roles and kind.contents]
        asked = [vector for vector in vectors if vector.kind in kinds]
        found.answers[role] = ask_kafka(asked, role, progress=progress)
        for version, said in found.answers[role].items():
            for vector in (one for one in asked if role in one.expect and one.id in said):
                text = contradiction(vector, said[vector.id], role)
                if text and _is_renamed(vector, version):
                    del said[vector.id]
                elif text:
                    found.contradictions.append(f"{vector.id}: Kafka {version} as {role} contradicts it: {text}")
    return confirm_streams(vectors, found, progress=progress)


def _is_renamed(vector: Vector, release: str) -> bool:
    """Whether the release has other names for fields of the vector's message, so that its JSON must differ."""
    return vector.kind == "message" and not has_same_names(
        release, vector.options["message"], vector.options["version"]
    )


def ask_kafka(vectors: Sequence[Vector], role: str = "consumer", *, progress: Progress = silent) -> Answers:
    """The answer of each version of ``kafka-clients`` to each vector in ``role``: ``answers[version][id]``.

    A version is asked only for the roles and messages that its handshake offers. ``UsageError`` if it cannot be built
    or run here, or breaks.
    """
    answers: Answers = {}
    cases = [Case(vector, role) for vector in vectors]

    def offered(handshake: Handshake) -> list[Case]:
        if role == READER:
            return [case for case in cases if not declared_unsupported(case, handshake)]
        return cases if role in handshake.roles else []

    for testee, _, case, answer in _ask_all_versions(offered, progress):
        answers.setdefault(testee.version, {})[case.vector.id] = dict(answer.raw)
    return answers


def confirm_streams(
    vectors: Sequence[Vector], found: Confirmation | None = None, *, progress: Progress = silent
) -> Confirmation:
    """Ask every version of ``kafka-clients`` about the vectors of kind ``stream``; see :func:`confirm`.

    The result is added to ``found``, if that is given.
    """
    found = found or Confirmation()
    cases = cases_of([vector for vector in vectors if vector.kind == "stream"])
    for testee, handshake, case, answer in _ask_all_versions(lambda handshake: cases, progress):
        _take(found, testee.version, case, handshake, answer)
    return found


def _ask_all_versions(
    cases_for: Callable[[Handshake], Sequence[Case]], progress: Progress
) -> Iterator[tuple[Testee, Handshake, Case, Answer]]:
    for testee in select(all_testees(), ["kafka-clients"]):
        with started(testee) as peer:
            cases = cases_for(peer.handshake)
            # A vector's own budget needs a process of its own. Here the default budget applies.
            questions = (Question(request(case), case) for case in cases)
            if cases:
                with progress(f"asking {testee.label}", len(cases)) as set_done:
                    for done, (question, result) in enumerate(peer.answers(questions), 1):
                        if isinstance(result, Trouble):
                            raise UsageError(
                                f"{testee.label} {result.deed} at {question.about.vector.id}; "
                                "judge that vector alone with `kfuzz conform`"
                            )
                        yield testee, peer.handshake, question.about, result
                        set_done(done)


def _take(found: Confirmation, version: str, case: Case, handshake: Handshake, answer: Answer) -> None:
    cell = judge(case, handshake, answer)
    if cell.outcome == "unsupported":
        return
    # An exception that escapes means that Kafka did not read the bytes, which confirms a refusal.
    refused = cell.outcome == "fault" and case.expectation["verdict"] != "valid"
    if cell.outcome != "pass" and not refused:
        found.contradictions.append(f"{case.vector.id}: Kafka {version} as {case.role} contradicts it: {cell.text}")
    said = found.answers.setdefault(case.role, {}).setdefault(version, {})
    is_refused = any(step["outcome"] == "rejected" for step in answer.steps or ())
    said[case.vector.id] = {"outcome": "rejected" if is_refused else answer.outcome}
