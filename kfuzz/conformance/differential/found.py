"""The result of a differential on records, messages or streams, and the loop that asks and compares."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Generic, Literal, TypeVar

from kfuzz.annotate.killing import KillingField
from kfuzz.conformance.judge.causes import BatchFacts, Cause, Deviation, batch_facts, causes_of
from kfuzz.conformance.judge.harm import DIFFERS, HARM_OF
from kfuzz.conformance.protocol.pipeline import Pipeline, ask
from kfuzz.conformance.protocol.session import Limits, Session, Trouble
from kfuzz.conformance.protocol.start import started
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.conformance.protocol.words import Answer, Handshake
from kfuzz.errors import UsageError

__all__ = ["Asker", "Differential", "Disagreement", "Question"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An input on which kfuzz and the testee differ: its number in the run, the reason, the request, the answer.

    ``harm``, ``finding`` and ``error`` are those of a :class:`~kfuzz.conformance.judge.causes.Deviation`.
    ``shrunk_from`` is the number of bytes of the run's input, if this is a smaller one with the same cause. ``kills``
    are the fields without which the cause goes away, the most telling one first; empty if they were not looked for.
    ``input`` is what the request was made from, if the request does not hold it.
    """

    index: int
    reason: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any] = field(default_factory=dict)
    harm: str = DIFFERS.name
    finding: str = ""
    error: str = ""
    shrunk_from: int = 0
    kills: tuple[KillingField, ...] = ()
    input: bytes = b""

    @property
    def data(self) -> bytes:
        """The bytes of the input; empty for a request that has none."""
        return self.input or bytes.fromhex(self.request.get("hex", ""))


@dataclass(slots=True)
class Differential:
    """The result of a run.

    ``restarts`` counts how often the testee ended, hung or broke the protocol, and was started again. In
    ``unconfirmed`` of these cases no input did that alone; each of the others is a disagreement.
    """

    testee: str
    # What is compared; also part of the kept files' names.
    of: Literal["input", "message", "stream"] = "input"
    # The run's setting besides its seed: "as consumer", "in 622 versions".
    setting: str = ""
    # How many inputs were answered or declared unsupported.
    inputs: int = 0
    # How many inputs agreed, by kind: the outcome, the kind of question about a message, or the operation on a stream.
    agreements: Counter[str] = field(default_factory=Counter)
    unsupported: int = 0
    # How many inputs each rule of docs/differences.md excused, by its name. `rule_names` has all rules that apply.
    rules: Counter[str] = field(default_factory=Counter)
    rule_names: tuple[str, ...] = ()
    disagreements: list[Disagreement] = field(default_factory=list)
    restarts: int = 0
    unconfirmed: int = 0
    # By cause: how many more inputs differ than there are disagreements. Merged results keep only the smallest.
    others: Counter[str] = field(default_factory=Counter)

    @property
    def agreed(self) -> int:
        """The number of inputs on which kfuzz and the testee agree."""
        return self.agreements.total()

    @property
    def failed(self) -> bool:
        """Whether the run found a disagreement, or the testee broke."""
        return bool(self.disagreements or self.restarts)

    @property
    def differing(self) -> int:
        """The number of inputs that differ."""
        return len(self.disagreements) + self.others.total()

    def count_of(self, cause: Cause) -> int:
        """The number of inputs that differ for this cause."""
        return cause.count + self.others[cause.id]

    def reduced(self) -> Differential:
        """The same with one disagreement for each cause, which has the smallest input."""
        smallest = self.smallest
        others = self.others + Counter({cause.id: cause.count - 1 for cause, _ in smallest})
        return replace(self, disagreements=[item for _, item in smallest], others=others)

    @property
    def smallest(self) -> list[tuple[Cause, Disagreement]]:
        """Each cause with the disagreement that has its smallest input."""
        named = {self.name_of(item): item for item in self.disagreements}
        return [(cause, named[cause.smallest.input]) for cause in self.causes]

    def name_of(self, item: Disagreement) -> str:
        """The name of an input: its number in the run."""
        return f"{self.of} {item.index}"

    @property
    def causes(self) -> list[Cause]:
        """The disagreements by their cause, worst class first. An input is named by its number."""
        return causes_of(map(self.deviation_of, self.disagreements))

    def deviation_of(self, item: Disagreement) -> Deviation:
        """A disagreement in the model of causes."""
        has_batches = "records" in item.request.get("operation", "")
        facts = batch_facts(item.data) if has_batches else BatchFacts()
        return Deviation(
            self.testee,
            item.harm,
            item.finding,
            item.error or item.reason,
            str(item.answer.get("at", "")),
            self.name_of(item),
            str(item.request.get("role", "consumer")),
            len(item.data) or len(json.dumps(item.request)),
            form=facts.form,
            holds=facts.holds,
            codec=facts.codec,
        )

    def require_support(self) -> None:
        """Raise ``UsageError`` if the testee supports no input, because then nothing was compared."""
        if self.inputs and self.unsupported == self.inputs:
            raise UsageError(
                f"{self.testee} supports none of the {self.inputs} inputs; name another testee or another --role"
            )


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One request, its number in the run, kfuzz's own result for it, and the input that it was made from, if any."""

    index: int
    request: Mapping[str, Any]
    expected: T
    input: bytes = b""


class Asker:
    """Asks a testee, and starts it again when it breaks. ``handshake`` is the testee's own.

    ``UsageError`` if it does not start.
    """

    def __init__(self, testee: Testee) -> None:
        self._testee = testee
        self._stack = ExitStack()
        self._session: Session | None = None
        self.handshake = self._start()

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start(self) -> Handshake:
        self._stack.close()
        self._session, handshake = self._stack.enter_context(started(self._testee, Limits()))
        return handshake

    def ask(
        self,
        found: Differential,
        questions: Iterable[Question[T]],
        compare: Callable[[Question[T], Answer], None],
        finding_of: Callable[[T], str] = lambda expected: "",
    ) -> None:
        """Send ``questions`` ahead of their answers and give each answer to ``compare``.

        When the testee breaks, the questions without an answer are asked again one by one, in a fresh process. The one
        that breaks it there becomes a disagreement in ``found``; ``finding_of`` tells what kfuzz finds in it. Then the
        run goes on.
        """
        rest = iter(questions)
        assert self._session is not None
        waiting = _ask_ahead(self._session, rest, compare)
        while waiting:
            found.restarts += 1
            self._start()
            culprit, waiting = _ask_alone(self._session, waiting, compare)
            if culprit is None:
                found.unconfirmed += 1
            else:
                question, trouble = culprit
                found.inputs += 1
                found.disagreements.append(_breaks(found.testee, question, trouble, finding_of(question.expected)))
                self._start()
            waiting = _ask_ahead(self._session, chain(waiting, rest), compare)


def _ask_ahead(
    session: Session, questions: Iterable[Question[T]], compare: Callable[[Question[T], Answer], None]
) -> list[Question[T]]:
    """Ask until the testee breaks. Returns the questions that were sent and have no answer."""
    budget = Limits().budget(None)
    pipeline: Pipeline[Question[T]] = Pipeline(session, lambda question: budget)
    for question, result in pipeline.answers((question, question.request) for question in questions):
        if isinstance(result, Trouble):
            return list(pipeline.waiting)
        compare(question, result)
    return []


def _ask_alone(
    session: Session, questions: Sequence[Question[T]], compare: Callable[[Question[T], Answer], None]
) -> tuple[tuple[Question[T], Trouble] | None, list[Question[T]]]:
    """Ask one by one until the testee breaks. Returns the question that broke it, and those behind it."""
    budget = Limits().budget(None)
    for i, question in enumerate(questions):
        result = ask(session, question.request, budget)
        if isinstance(result, Trouble):
            return (question, result), list(questions[i + 1 :])
        compare(question, result)
    return None, []


def _breaks(testee: str, question: Question[T], trouble: Trouble, finding: str) -> Disagreement:
    answer = {"outcome": trouble.outcome, "error": trouble.text, "at": trouble.at}
    return Disagreement(
        question.index,
        f"{testee} {trouble.deed}",
        question.request,
        answer,
        harm=HARM_OF[trouble.outcome],
        finding=finding,
        error=trouble.text,
        input=question.input,
    )
