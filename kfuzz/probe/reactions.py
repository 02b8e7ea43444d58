"""The reactions of a broker to hostile requests, the harm in them, and reports grouped by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kfuzz.client.link import CLOSED, SILENT
from kfuzz.client.protocol import error_name
from kfuzz.probe.hostile import Case
from kfuzz.relay.frames import api_of
from kfuzz.text import foreign_text, printable
from kfuzz.units import counted

__all__ = [
    "ABANDONED",
    "ANSWERED",
    "FOUND",
    "GONE",
    "HELD",
    "HUNG_UP",
    "MALFORMED",
    "UNANSWERED",
    "UNFORESEEN",
    "UNHEALTHY",
    "Asked",
    "Cause",
    "Reaction",
    "answered",
    "lines",
]

ANSWERED: Final = "answered"
# The broker may wait for as long as the request allows, which is longer than the probe waits.
HELD: Final = "held"
# The request wants no answer.
UNANSWERED: Final = "unanswered"
# The frame was not whole, and the probe closed the connection.
ABANDONED: Final = "abandoned"

# Harm, worst first.
GONE: Final = "gone"
UNHEALTHY: Final = "unhealthy"
MALFORMED: Final = "malformed"
UNFORESEEN: Final = "unforeseen"
HUNG_UP: Final = "hung up"
HARMS: Final[Mapping[str, str]] = {
    GONE: "the broker does not listen any more",
    UNHEALTHY: "the health conversation fails",
    SILENT: "no answer",
    MALFORMED: "the answer cannot be read, or is not as Kafka writes it",
    UNFORESEEN: "the answer has UNKNOWN_SERVER_ERROR",
    HUNG_UP: "the broker closes the connection, although the request can be read",
}
# For these, the exit code is 1. Apache Kafka itself does the others.
FOUND: Final = frozenset({GONE, UNHEALTHY, SILENT, MALFORMED})
HEX_BYTES_MAX: Final = 16 << 10
OTHERS_MAX: Final = 10
UNFORESEEN_CODE: Final = -1


@dataclass(frozen=True, slots=True)
class Reaction:
    """``outcome``: one of the words above, or of ``kfuzz.client.link``. ``errors``: names of the answer's errors.

    ``harm``: one of ``HARMS``, or empty. ``text``: what is known about it.
    """

    outcome: str
    errors: tuple[str, ...] = ()
    harm: str = ""
    text: str = ""

    @property
    def changes(self) -> bool:
        """Whether the request may have changed the state of its conversation."""
        return self.outcome not in (ANSWERED, CLOSED, ABANDONED) or (self.outcome == ANSWERED and not self.errors)


def answered(key: int, version: int, data: bytes) -> Reaction:
    """The reaction of a broker that answered these bytes, without their size, to a request of this API."""
    api = api_of(key, version)
    if api is None:
        return Reaction(ANSWERED, (), MALFORMED, "there is no such API or version, and yet an answer")
    at, findings, picked = api.response.check(data)
    if at < 0 or picked is None:
        why = str(findings[-1]) if findings else "its header cannot be read"
        return Reaction(ANSWERED, (), MALFORMED, foreign_text(why))
    _, errors, _ = picked
    names = tuple(error_name(code) for code in sorted(errors) if code)
    if findings:
        return Reaction(ANSWERED, names, MALFORMED, foreign_text(findings[0]))
    return Reaction(ANSWERED, names, UNFORESEEN if UNFORESEEN_CODE in errors else "")


@dataclass(frozen=True, slots=True)
class Asked:
    """A case with what was sent, and how the broker reacted. ``alone``: whether it did so again in a new conversation.

    ``alone`` is None if that was not tried.
    """

    case: Case
    sent: bytes
    reaction: Reaction
    alone: bool | None = None


@dataclass
class Cause:
    """Cases of one API and kind with the same harm and the same errors."""

    api: str
    kind: str
    harm: str
    asked: list[Asked] = field(default_factory=list)

    @property
    def smallest(self) -> Asked:
        """The case with the fewest bytes."""
        return min(self.asked, key=lambda one: (len(one.sent), one.case.id))

    @property
    def alone(self) -> bool | None:
        """Whether one of the cases did the same when it was asked alone; None if none was."""
        tried = [one.alone for one in self.asked if one.alone is not None]
        return any(tried) if tried else None

    def to_json(self) -> dict[str, Any]:
        """The cause for a report."""
        one = self.smallest
        said: dict[str, Any] = {
            "api": self.api,
            "kind": self.kind,
            "harm": self.harm,
            "found": self.harm in FOUND,
            "cases": len(self.asked),
            "smallest": {"id": one.case.id, "size": len(one.sent), "text": one.reaction.text},
            "others": [each.case.id for each in self.asked if each is not one][:OTHERS_MAX],
        }
        said["smallest"] |= {"hex": one.sent.hex()} if len(one.sent) <= HEX_BYTES_MAX else {}
        said |= {"alone": self.alone} if self.alone is not None else {}
        return said | {"errors": list(one.reaction.errors)}


@dataclass
class Report:
    """The result of a probe of all APIs. ``left_out``: why conversations or cases were not asked, with how many."""

    seed: int
    total: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    by_cause: dict[tuple[str, ...], Cause] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    health: tuple[str, ...] = ()
    checks: int = 0
    ended: str = ""

    def add(self, asked: Asked) -> None:
        """Count a case."""
        self.total += 1
        said = asked.reaction
        self.outcomes[said.outcome] += 1
        if said.outcome == ANSWERED:
            self.answers.update(said.errors or ("NONE",))
        if said.harm:
            case = asked.case
            key = case.api, case.kind, said.harm, *said.errors
            self.by_cause.setdefault(key, Cause(case.api, case.kind, said.harm)).asked.append(asked)

    @property
    def causes(self) -> list[Cause]:
        """Worst first, then those with the smallest case."""
        order = list(HARMS)
        return sorted(self.by_cause.values(), key=lambda one: (order.index(one.harm), len(one.smallest.sent), one.api))

    @property
    def failed(self) -> bool:
        """Whether something was found for which the exit code is 1."""
        return bool(self.ended) or any(one.harm in FOUND for one in self.by_cause.values())

    def to_json(self) -> dict[str, Any]:
        """The report in JSON."""
        return {
            "format": "kfuzz-probe-apis/1",
            "seed": self.seed,
            "cases": self.total,
            "outcomes": dict(sorted(self.outcomes.items())),
            "answers": dict(sorted(self.answers.items())),
            "health": {"parts": list(self.health), "checks": self.checks},
            "causes": [one.to_json() for one in self.causes],
            "left_out": dict(sorted(self.left_out.items())),
            "skipped": dict(sorted(self.skipped.items())),
            "ended": self.ended,
        }


def lines(report: Report, causes_shown: int) -> Iterator[str]:
    """The report for people."""
    yield f"asked     {counted(report.total, 'hostile request')}, seed {report.seed}"
    yield f"broker    {_counts(report.outcomes)}"
    yield f"answers   {_counts(report.answers)}"
    yield f"health    {', '.join(report.health) or 'nothing works'}: checked {counted(report.checks, 'time')}"
    for name, why in report.left_out.items():
        yield f"left out  {name}: {printable(why)}"
    for name, count in report.skipped.items():
        yield f"left out  {counted(count, 'more case')} of {name}"
    causes = report.causes
    if not causes:
        yield "no cause of harm"
        return
    yield f"{counted(len(causes), 'cause')}, worst first (! for exit code 1)"
    harm = ""
    for one in causes[:causes_shown]:
        if one.harm != harm:
            harm = one.harm
            yield f"{harm}: {HARMS[harm]}"
        smallest = one.smallest
        mark = "!" if one.harm in FOUND else " "
        again = {None: "", True: "; again when asked alone", False: "; not when asked alone"}[one.alone]
        detail = f" {', '.join(smallest.reaction.errors)}" if smallest.reaction.errors else ""
        yield f"  {mark} {one.api} {one.kind}{detail}: {counted(len(one.asked), 'case')}{again}"
        yield f"      smallest {smallest.case.id} ({counted(len(smallest.sent), 'byte')})"
        if smallest.reaction.text:
            yield f"      {printable(smallest.reaction.text)}"
    if len(causes) > causes_shown:
        yield f"{counted(len(causes) - causes_shown, 'more cause')}; --causes shows more"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "nothing"
