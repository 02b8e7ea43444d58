"""The result of a differential on records, messages or streams, and the loop that asks and compares."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from kfuzz.annotate.killing import KillingField
from kfuzz.conformance.judge.causes import BatchFacts, Cause, Deviation, batch_facts, causes_of
from kfuzz.conformance.judge.harm import DIFFERS, HARM_OF
from kfuzz.conformance.protocol.peer import Peer, Question
from kfuzz.conformance.protocol.session import Trouble
from kfuzz.conformance.protocol.words import Answer
from kfuzz.errors import UsageError

__all__ = ["Asked", "Differential", "Disagreement", "compared"]

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
class Asked(Generic[T]):
    """What a question is about: its number in the run, kfuzz's own result, and the input that it was made from, if the
    request does not hold it.
    """

    index: int
    expected: T
    input: bytes = b""


def compared(
    found: Differential,
    peer: Peer,
    questions: Iterable[Question[Asked[T]]],
    compare: Callable[[Question[Asked[T]], Answer], None],
    finding_of: Callable[[T], str] = lambda expected: "",
) -> None:
    """Ask ``questions`` and give each answer to ``compare``.

    A question that breaks the testee becomes a disagreement in ``found``; ``finding_of`` tells what kfuzz finds in it.
    """
    breaks, unexplained = peer.breaks, len(peer.unexplained)
    for question, result in peer.answers(questions):
        if isinstance(result, Trouble):
            found.inputs += 1
            found.disagreements.append(_breaks(found.testee, question, result, finding_of(question.about.expected)))
        else:
            compare(question, result)
    found.restarts = peer.breaks - breaks
    found.unconfirmed = len(peer.unexplained) - unexplained


def _breaks(testee: str, question: Question[Asked[T]], trouble: Trouble, finding: str) -> Disagreement:
    answer = {"outcome": trouble.outcome, "error": trouble.text, "at": trouble.at}
    return Disagreement(
        question.about.index,
        f"{testee} {trouble.deed}",
        question.request,
        answer,
        harm=HARM_OF[trouble.outcome],
        finding=finding,
        error=trouble.text,
        input=question.about.input,
    )
