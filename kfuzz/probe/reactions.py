"""The reactions of a broker to hostile requests, the harm in them, and reports grouped by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from kfuzz.client.link import Lost
from kfuzz.client.protocol import error_name
from kfuzz.probe.hostile import Case
from kfuzz.relay.frames import Api, api_of
from kfuzz.text import foreign_text, printable
from kfuzz.units import counted

# "held": the broker may wait for as long as the request allows, which is longer than the probe waits.
# "unanswered": the request wants no answer. "abandoned": the frame was not whole, and the probe closed the connection.
Outcome = Lost | Literal["answered", "held", "unanswered", "abandoned"]
Harm = Literal[
    "", "gone", "unhealthy", "silent", "malformed", "differs", "memory", "threads", "unforeseen", "hung up", "logged"
]
# The worst first.
HARMS: Final[Mapping[Harm, str]] = {
    "gone": "the broker does not listen any more",
    "unhealthy": "the health conversation fails",
    "silent": "no answer",
    "malformed": "the answer cannot be read, or is not as Kafka writes it",
    "differs": "the reference reacts in another way, also when both are asked again",
    "memory": "the broker's process takes more memory",
    "threads": "the broker's process takes more threads",
    "unforeseen": "the answer has UNKNOWN_SERVER_ERROR",
    "hung up": "the broker closes the connection, although the request can be read",
    "logged": "the broker logs an error",
}
# For these, the exit code is 1. Apache Kafka itself does the others.
FOUND: Final = frozenset({"gone", "unhealthy", "silent", "malformed", "differs"})
# Cases of any kind are one cause, if they have the same ``about``.
OF_ANY_KIND: Final = frozenset({"differs", "memory", "threads", "logged"})
HEX_BYTES_MAX: Final = 16 << 10
OTHERS_MAX: Final = 10
UNFORESEEN_CODE: Final = -1
API_VERSIONS_KEY: Final = 18


@dataclass(frozen=True, slots=True)
class Reaction:
    """``errors``: names of the answer's errors.

    ``harm``: one of ``HARMS``, or empty. ``text``: what is known about it; ``about``: what its cause has in common.
    """

    outcome: Outcome
    errors: tuple[str, ...] = ()
    harm: Harm = ""
    text: str = ""
    answer: bytes = b""
    about: str = ""

    @property
    def changes(self) -> bool:
        """Whether the request may have changed the state of its conversation."""
        return self.outcome not in ("answered", "closed", "abandoned") or (
            self.outcome == "answered" and not self.errors
        )


def api_asked(sent: bytes) -> Api | None:
    """The API and version of a request that was sent; None if there is none."""
    key, version = (int.from_bytes(sent[at : at + 2], "big", signed=True) for at in (4, 6))
    api = api_of(key, version)
    # To a version that is too new, a broker answers in version 0.
    return api_of(key, 0) if api is None and key == API_VERSIONS_KEY else api


def answered(sent: bytes, data: bytes) -> Reaction:
    """The reaction of a broker that answered these bytes, without their size, to a request with its size."""
    api = api_asked(sent)
    if api is None:
        return Reaction("answered", (), "malformed", "there is no such API or version, and yet an answer", data)
    at, findings, picked = api.response.check(data)
    if at < 0 or picked is None:
        why = str(findings[-1]) if findings else "its header cannot be read"
        return Reaction("answered", (), "malformed", foreign_text(why), data)
    _, errors, _ = picked
    names = tuple(error_name(code) for code in sorted(errors) if code)
    if findings:
        return Reaction("answered", names, "malformed", foreign_text(findings[0]), data)
    return Reaction("answered", names, "unforeseen" if UNFORESEEN_CODE in errors else "", answer=data)


@dataclass(frozen=True, slots=True)
class Asked:
    """A case with what was sent, and how the broker reacted. ``alone``: whether it did so again in a new conversation.

    ``alone`` is None if that was not tried. ``reference``: how the reference reacted.
    """

    case: Case
    sent: bytes
    reaction: Reaction
    alone: bool | None = None
    reference: Reaction | None = None

    def with_harm(self, harm: Harm, text: str, about: str = "") -> Asked:
        """The same case with other harm."""
        return replace(self, reaction=replace(self.reaction, harm=harm, text=text, about=about))


@dataclass
class Cause:
    """Cases of one API and kind with the same harm and the same errors. ``smallest``: the one with the fewest bytes.

    ``others``: ids of some of them. ``alone``: whether one did the same when it was asked alone; None if none was.
    ``at_reference``: for how many of them the reference does the same.
    """

    smallest: Asked
    count: int = 0
    at_reference: int = 0
    alone: bool | None = None
    others: list[str] = field(default_factory=list)

    @property
    def harm(self) -> Harm:
        """One of ``HARMS``."""
        return self.smallest.reaction.harm

    def add(self, asked: Asked) -> None:
        self.count += 1
        self.smallest = min(self.smallest, asked, key=lambda one: (len(one.sent), one.case.id))
        self.at_reference += asked.reference is not None and asked.reference.harm == self.harm
        if asked.alone is not None:
            self.alone = self.alone or asked.alone
        if len(self.others) <= OTHERS_MAX:
            self.others.append(asked.case.id)

    def to_json(self) -> dict[str, Any]:
        one, said = self.smallest, self.smallest.reaction
        smallest = {"id": one.case.id, "size": len(one.sent), "text": said.text} | _hex(one.sent)
        if one.reference is not None:
            for who, reaction in (("answer", said), ("reference", one.reference)):
                smallest[who] = {"outcome": reaction.outcome, "errors": list(reaction.errors)} | _hex(reaction.answer)
        made: dict[str, Any] = {
            "api": one.case.api,
            "kind": one.case.kind,
            "harm": self.harm,
            "found": self.harm in FOUND,
            "cases": self.count,
            "smallest": smallest,
            "others": [id for id in self.others if id != one.case.id][:OTHERS_MAX],
            "errors": list(said.errors),
        }
        made |= {"about": said.about} if said.about else {}
        made |= {"at_reference": self.at_reference} if one.reference is not None else {}
        return made | ({"alone": self.alone} if self.alone is not None else {})


def _hex(data: bytes) -> dict[str, Any]:
    return {"hex": data.hex()} if len(data) <= HEX_BYTES_MAX else {}


@dataclass
class Report:
    """The result of a probe of all APIs. ``left_out``: why conversations or cases were not asked, with how many.

    - ``not_asked``: why no good request of an API was made hostile, by API.
    - ``compared``: how many cases the reference was asked too; ``once``: differences that did not come again.
    - ``machine``: what the broker's process needed.
    """

    seed: int
    total: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    by_cause: dict[tuple[str, ...], Cause] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    not_asked: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    health: tuple[str, ...] = ()
    checks: int = 0
    compared: int = 0
    once: int = 0
    machine: str = ""
    ended: str = ""

    def add(self, asked: Asked) -> None:
        self.total += 1
        said = asked.reaction
        self.outcomes[said.outcome] += 1
        if said.outcome == "answered":
            self.answers.update(said.errors or ("NONE",))
        if said.harm:
            self.note(asked)

    def note(self, asked: Asked) -> None:
        """Count the harm of a case."""
        case, said = asked.case, asked.reaction
        key = (case.api, said.about) if said.harm in OF_ANY_KIND else (case.api, case.kind, *said.errors)
        if said.harm in ("memory", "threads") or (said.harm == "logged" and said.outcome == "closed"):
            # Kafka logs the same for all requests that it cannot read.
            key = (said.about,)
        self.by_cause.setdefault((said.harm, *key), Cause(asked)).add(asked)

    @property
    def causes(self) -> list[Cause]:
        """Worst first, then those with the smallest case."""
        order = list(HARMS)
        return sorted(
            self.by_cause.values(),
            key=lambda one: (order.index(one.harm), len(one.smallest.sent), one.smallest.case.api),
        )

    @property
    def failed(self) -> bool:
        """Whether something was found for which the exit code is 1."""
        return bool(self.ended) or any(one.harm in FOUND for one in self.by_cause.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "kfuzz-probe-apis/1",
            "seed": self.seed,
            "cases": self.total,
            "outcomes": dict(sorted(self.outcomes.items())),
            "answers": dict(sorted(self.answers.items())),
            "health": {"parts": list(self.health), "checks": self.checks},
            "causes": [one.to_json() for one in self.causes],
            "left_out": dict(sorted(self.left_out.items())),
            "not_asked": dict(sorted(self.not_asked.items())),
            "compared": {"cases": self.compared, "once": self.once},
            "machine": self.machine,
            "skipped": dict(sorted(self.skipped.items())),
            "ended": self.ended,
        }


def lines(report: Report, causes_shown: int) -> Iterator[str]:
    yield f"asked     {counted(report.total, 'hostile request')}, seed {report.seed}"
    yield f"broker    {_counts(report.outcomes)}"
    yield f"answers   {_counts(report.answers)}"
    yield f"health    {', '.join(report.health) or 'nothing works'}: checked {counted(report.checks, 'time')}"
    if report.compared:
        yield f"compared  {counted(report.compared, 'case')}; {report.once} differed, but not again"
    if report.machine:
        yield f"machine   {report.machine}"
    for why in dict.fromkeys(report.not_asked.values()):
        apis = (api for api, other in report.not_asked.items() if other == why)
        yield f"not asked {why}: {', '.join(apis)}"
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
        case, said = smallest.case, smallest.reaction
        mark = "!" if one.harm in FOUND else " "
        again = {None: "", True: "; again when asked alone", False: "; not when asked alone"}[one.alone]
        again += f"; the reference too in {one.at_reference}" if one.at_reference else ""
        what = (said.about,) if one.harm in OF_ANY_KIND else (case.kind, ", ".join(said.errors))
        yield f"  {mark} {' '.join(filter(None, (case.api, *what)))}: {counted(one.count, 'case')}{again}"
        yield f"      smallest {smallest.case.id} ({counted(len(smallest.sent), 'byte')})"
        if smallest.reaction.text:
            yield f"      {printable(smallest.reaction.text)}"
    if len(causes) > causes_shown:
        yield f"{counted(len(causes) - causes_shown, 'more cause')}; --causes shows more"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "nothing"
