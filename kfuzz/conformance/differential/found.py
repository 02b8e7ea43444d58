"""What a differential found, and the loop that asks and compares: one form for records, messages and streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from kfuzz.conformance.protocol.pipeline import Pipeline
from kfuzz.conformance.protocol.session import Limits, Session, Trouble
from kfuzz.conformance.protocol.words import Answer
from kfuzz.errors import UsageError

__all__ = ["Differential", "Disagreement", "Question", "compare_ahead"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What the two judge differently: its number in the run, why, the request that shows it again, and the answer."""

    index: int
    reason: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """The bytes of the input; empty for a request that has none."""
        return bytes.fromhex(self.request.get("hex", ""))


@dataclass(slots=True)
class Differential:
    """What a run found. ``broken`` says how the testee ended, if it did; nothing was asked after that."""

    testee: str
    # What is compared; it names the kept files.
    of: Literal["input", "message", "stream"] = "input"
    # What belongs to the run besides its seed: "as consumer", "622 versions".
    setting: str = ""
    # Answered, or declared unsupported.
    inputs: int = 0
    # How many agreed, by what was agreed on: accepted and rejected, or what was done with a message.
    agreements: Counter[str] = field(default_factory=Counter)
    unsupported: int = 0
    # Inputs per rule of docs/differences.md, by the rule's name; `rule_names` are all that apply.
    rules: Counter[str] = field(default_factory=Counter)
    rule_names: tuple[str, ...] = ()
    disagreements: list[Disagreement] = field(default_factory=list)
    broken: str = ""
    # Sent before the testee broke, and not answered; any of them may be the cause.
    unanswered: list[Disagreement] = field(default_factory=list)

    @property
    def agreed(self) -> int:
        """On how many inputs the two agree."""
        return self.agreements.total()

    @property
    def failed(self) -> bool:
        """Whether the run found something."""
        return bool(self.disagreements or self.broken)

    def differ(self, index: int, reason: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Note a disagreement."""
        self.disagreements.append(Disagreement(index, reason, dict(request), dict(answer)))

    def require_support(self) -> None:
        """``UsageError`` where the testee declared every input unsupported: then nothing was compared."""
        if self.inputs and self.unsupported == self.inputs:
            raise UsageError(
                f"{self.testee} supports none of the {self.inputs} inputs; name another testee or another --role"
            )


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One request, its number in the run, and what kfuzz makes of the same."""

    index: int
    request: Mapping[str, Any]
    expected: T


def compare_ahead(
    found: Differential,
    session: Session,
    questions: Iterable[Question[T]],
    compare: Callable[[Question[T], Answer], None],
) -> None:
    """Ask ``questions`` ahead of their answers and give each answer to ``compare``.

    Ends at the first question that breaks the testee; ``found`` says so then.
    """
    budget = Limits().budget(None)
    pipeline: Pipeline[Question[T]] = Pipeline(session, lambda question: budget)
    for question, result in pipeline.answers((question, question.request) for question in questions):
        if isinstance(result, Trouble):
            found.broken = f"{found.testee} {result.deed}, with {found.of} {question.index} the first unanswered"
            found.unanswered = [Disagreement(item.index, "unanswered", item.request) for item in pipeline.waiting]
            return
        compare(question, result)
