"""The result of a differential on records, messages or streams, and the loop that asks and compares."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from kfuzz.conformance.judge.causes import BatchFacts, Cause, Deviation, batch_facts, causes_of
from kfuzz.conformance.judge.harm import HARM_OF
from kfuzz.conformance.protocol.lines import Answer
from kfuzz.conformance.protocol.peer import Question, TesteeProcess
from kfuzz.conformance.protocol.session import Trouble
from kfuzz.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """The origin of a question: its number in the run, kfuzz's own result, and the input that it was made from, if the
    request does not hold it.
    """

    index: int
    expected: T
    input: bytes = b""


@dataclass(slots=True)
class Differential:
    """The result of a run.

    ``restarts`` counts how often the testee ended, hung or broke the protocol, and was started again. In
    ``unconfirmed`` of these cases no input did that alone; each of the others is a deviation.
    """

    testee: str
    # The kind of inputs; also part of the kept files' names.
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
    deviations: list[Deviation] = field(default_factory=list)
    restarts: int = 0
    unconfirmed: int = 0
    # By cause: how many more inputs differ than there are deviations. Merged results keep only the smallest.
    others: Counter[str] = field(default_factory=Counter)

    @property
    def agreed(self) -> int:
        """The number of inputs on which kfuzz and the testee agree."""
        return self.agreements.total()

    @property
    def failed(self) -> bool:
        """Whether the run found a deviation, or the testee broke."""
        return bool(self.deviations or self.restarts)

    @property
    def differing(self) -> int:
        """The number of inputs that differ."""
        return len(self.deviations) + self.others.total()

    def reduced(self) -> Differential:
        """The same with one deviation for each cause, which has the smallest input."""
        causes = self.causes
        others = self.others + Counter({cause.id: len(cause.deviations) - 1 for cause in causes})
        return replace(self, deviations=[cause.smallest for cause in causes], others=others)

    @property
    def causes(self) -> list[Cause]:
        """The deviations by their cause, worst class first. An input is named by its number."""
        return [replace(cause, others=self.others[cause.id]) for cause in causes_of(self.deviations)]

    def add(
        self,
        question: Question[Asked[T]],
        answer: Mapping[str, Any],
        *,
        reason: str,
        error: str,
        harm: str,
        finding: str = "",
    ) -> None:
        """Add a deviation of this question. ``error`` is the part of the ``reason`` that says what is wrong."""
        request, asked = question.request, question.about
        data = asked.input or bytes.fromhex(request.get("hex", ""))
        facts = batch_facts(data) if "records" in request.get("operation", "") else BatchFacts()
        self.deviations.append(
            Deviation(
                self.testee,
                harm,
                finding,
                error,
                str(answer.get("at", "")),
                f"{self.of} {asked.index}",
                str(request.get("role", "consumer")),
                len(data) or len(json.dumps(request)),
                **facts._asdict(),
                number=asked.index,
                reason=reason,
                data=data,
                request=request,
                answer=answer,
            )
        )

    def require_support(self) -> None:
        """Raise ``UsageError`` if the testee supports no input, because then nothing was compared."""
        if self.inputs and self.unsupported == self.inputs:
            raise UsageError(
                f"{self.testee} supports none of the {self.inputs} inputs; name another testee or another --role"
            )


def compared(
    found: Differential,
    peer: TesteeProcess,
    questions: Iterable[Question[Asked[T]]],
    compare: Callable[[Question[Asked[T]], Answer], None],
    finding_of: Callable[[T], str] = lambda expected: "",
) -> None:
    """Ask ``questions`` and give each answer to ``compare``.

    A question that breaks the testee becomes a deviation in ``found``; ``finding_of`` gives kfuzz's finding in it.
    """
    breaks, unexplained = peer.breaks, len(peer.unexplained)
    for question, result in peer.answers(questions):
        if isinstance(result, Trouble):
            found.inputs += 1
            answer = {"outcome": result.outcome, "error": result.text, "at": result.at}
            found.add(
                question,
                answer,
                reason=f"{found.testee} {result.deed}",
                error=result.text,
                harm=HARM_OF[result.outcome],
                finding=finding_of(question.about.expected),
            )
        else:
            compare(question, result)
    found.restarts = peer.breaks - breaks
    found.unconfirmed = len(peer.unexplained) - unexplained
