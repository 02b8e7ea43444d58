"""The result of a differential on records, messages or streams, and the loop that asks and compares."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from kfuzz.conformance.judge.causes import Cause, Deviation, causes_of, form_of
from kfuzz.conformance.judge.harm import DIFFERS
from kfuzz.conformance.protocol.pipeline import Pipeline
from kfuzz.conformance.protocol.session import Limits, Session, Trouble
from kfuzz.conformance.protocol.words import Answer
from kfuzz.errors import UsageError

__all__ = ["Differential", "Disagreement", "Question", "compare_ahead"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An input on which kfuzz and the testee differ: its number in the run, the reason, the request, the answer.

    ``harm``, ``finding`` and ``error`` are those of a :class:`~kfuzz.conformance.judge.causes.Deviation`.
    """

    index: int
    reason: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any] = field(default_factory=dict)
    harm: str = DIFFERS.name
    finding: str = ""
    error: str = ""

    @property
    def data(self) -> bytes:
        """The bytes of the input; empty for a request that has none."""
        return bytes.fromhex(self.request.get("hex", ""))


@dataclass(slots=True)
class Differential:
    """The result of a run. ``broken`` says how the testee broke, if it did; nothing was asked after that."""

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
    broken: str = ""
    # Inputs that were sent before the testee broke and not answered; any of them may be the cause.
    unanswered: list[Disagreement] = field(default_factory=list)

    @property
    def agreed(self) -> int:
        """The number of inputs on which kfuzz and the testee agree."""
        return self.agreements.total()

    @property
    def failed(self) -> bool:
        """Whether the run found a disagreement or the testee broke."""
        return bool(self.disagreements or self.broken)

    @property
    def causes(self) -> list[Cause]:
        """The disagreements by their cause, worst class first. An input is named by its number."""
        return causes_of(
            Deviation(
                self.testee,
                item.harm,
                item.finding,
                item.error or item.reason,
                str(item.answer.get("at", "")),
                f"{self.of} {item.index}",
                str(item.request.get("role", "consumer")),
                len(item.data) or len(json.dumps(item.request)),
                form=form_of(item.data) if "records" in item.request.get("operation", "") else "",
            )
            for item in self.disagreements
        )

    def require_support(self) -> None:
        """Raise ``UsageError`` if the testee supports no input, because then nothing was compared."""
        if self.inputs and self.unsupported == self.inputs:
            raise UsageError(
                f"{self.testee} supports none of the {self.inputs} inputs; name another testee or another --role"
            )


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One request, its number in the run, and kfuzz's own result for it."""

    index: int
    request: Mapping[str, Any]
    expected: T


def compare_ahead(
    found: Differential,
    session: Session,
    questions: Iterable[Question[T]],
    compare: Callable[[Question[T], Answer], None],
) -> None:
    """Send ``questions`` ahead of their answers and give each answer to ``compare``.

    Stops when the testee breaks; then ``found.broken`` says how, and ``found.unanswered`` lists the open questions.
    """
    budget = Limits().budget(None)
    pipeline: Pipeline[Question[T]] = Pipeline(session, lambda question: budget)
    for question, result in pipeline.answers((question, question.request) for question in questions):
        if isinstance(result, Trouble):
            found.broken = f"{found.testee} {result.deed}; {found.of} {question.index} is the first without an answer"
            found.unanswered = [Disagreement(item.index, "unanswered", item.request) for item in pipeline.waiting]
            return
        compare(question, result)
