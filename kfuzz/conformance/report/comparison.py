"""The difference between two runs: which causes are new, which are gone, and which have other outcomes.

Runs of two versions of one implementation are compared too. Only what both runs asked is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.judge.compare import NOT_ASKED
from kfuzz.conformance.judge.expected import same_outcome
from kfuzz.conformance.judge.matrix import Column, Run
from kfuzz.conformance.report.document import cause_json
from kfuzz.errors import UsageError
from kfuzz.text import printable
from kfuzz.units import counted

Key = tuple[str, str]

# How many outcomes are listed under one cause.
OUTCOMES_SHOWN: Final = 10
UNKNOWN: Final = (NOT_ASKED, "withheld")
# The places of one fault in two versions differ in these parts: the lines, and the version in the name of a folder.
_NUMBERS: Final = re.compile(r"[\d.]+")


@dataclass(frozen=True, slots=True)
class Change:
    """One question that an implementation answers with another outcome than before."""

    key: Key
    old: str
    new: str

    def __str__(self) -> str:
        return f"{question(self.key)} was {self.old}, is {self.new}"

    def to_json(self) -> dict[str, str]:
        """The change as a JSON object."""
        return {"id": self.key[0], "role": self.key[1], "old": self.old, "new": self.new}


@dataclass(frozen=True, slots=True)
class Changes:
    """Causes that only the newer run has, and causes that only the older one has. False if nothing changed."""

    appeared: list[Cause] = field(default_factory=list)
    gone: list[Cause] = field(default_factory=list)
    # The same cause in both runs with other outcomes: the older one, the newer one, and what changed.
    moved: list[tuple[Cause, Cause, list[Change]]] = field(default_factory=list)
    # Other outcomes that are in no cause, by the newer label: a question that is not supported any more, for example.
    others: dict[str, list[Change]] = field(default_factory=dict)
    # Sentences about testees that only one of the runs could ask.
    alone: list[str] = field(default_factory=list)
    # Sentences about what is compared with what, and what is left out.
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.appeared or self.gone or self.moved or self.others or self.alone)

    def to_json(self) -> dict[str, Any]:
        """The changes as a document; each cause has the form that it has in ``kfuzz-report/1``."""
        return {
            "new": [cause_json(cause) for cause in self.appeared],
            "gone": [cause_json(cause) for cause in self.gone],
            "moved": [
                {"old": cause_json(old), "new": cause_json(new), "outcomes": [one.to_json() for one in changed]}
                for old, new, changed in self.moved
            ],
            "others": [
                {"testee": label, "outcomes": [one.to_json() for one in changed]}
                for label, changed in self.others.items()
            ],
            "notes": [*self.notes, *self.alone],
        }

    def sentences(self) -> list[str]:
        """One sentence per change, worst first, then a count."""
        said = [*self.notes, *self.alone]
        said += [f"new: {_described(cause)}" for cause in self.appeared]
        said += [f"gone: {_described(cause)}" for cause in self.gone]
        for old, new, changed in self.moved:
            is_same = inputs_of(old) == inputs_of(new)
            said.append(f"{'other outcomes' if is_same else f'other vectors, {old.count} before'}: {_described(new)}")
            said += _listed(changed)
        for label, changed in self.others.items():
            said.append(f"{printable(label)}: {counted(len(changed), 'other outcome')} without a cause")
            said += _listed(changed)
        if not self:
            return [*said, "nothing changed"]
        same = sum(inputs_of(old) == inputs_of(new) for old, new, _ in self.moved)
        count = f"{len(self.appeared)} new, {len(self.gone)} gone, {len(self.moved) - same} with other vectors"
        return [*said, f"{count}, {same} with other outcomes" if same else count]


def changes(older: Run, newer: Run) -> Changes:
    """Compare two runs. A testee is compared with the one of the same label, or else with the other version of it.

    Raises ``UsageError`` if the runs have no testee and question in common.
    """
    pairs, alone = _paired(older, newer)
    found = Changes(alone=alone, notes=list(_questions(older, newer)))
    comparable = [_compare(older, newer, old, new, found) for old, new in pairs]
    if not any(comparable):
        labels = [", ".join(testee.label for testee in run.testees) for run in (older, newer)]
        raise UsageError(
            f"the results have nothing in common: one is about {printable(labels[0])}, the other about "
            f"{printable(labels[1])}, and no testee answered a question in both; name two results of one implementation"
        )
    return found


def _paired(older: Run, newer: Run) -> tuple[list[tuple[Column, Column]], list[str]]:
    """Which testee is compared with which, and a sentence about each that has no partner."""
    pairs: list[tuple[Column, Column]] = []
    old, new = ([one for one in run.testees if not one.broken] for run in (older, newer))
    broken = [{one.label: one.broken for one in run.testees if one.broken} for run in (older, newer)]

    def pair(one: Column, other: Column) -> None:
        pairs.append((one, other))
        old.remove(one)
        new.remove(other)

    for one in tuple(new):
        if same := [other for other in old if other.label == one.label]:
            pair(same[0], one)
    # Another version, if there is no doubt which one; and whatever is called otherwise, if there is only that.
    for one in tuple(new):
        before, now = ([other for other in some if other.name == one.name] for some in (old, new))
        if len(before) == len(now) == 1:
            pair(before[0], one)
    if len(older.testees) == len(newer.testees) == len(old) == len(new) == 1:
        pair(old[0], new[0])
    alone = []
    for which, left, own, others in (("older", old, broken[0], broken[1]), ("newer", new, broken[1], broken[0])):
        for one in left:
            if one.label not in others:
                alone.append(f"{printable(one.label)} is only in the {which} result, and is not compared")
        for label in own.keys() - others.keys():
            alone.append(f"{printable(label)} could not be asked in the {which} result: {printable(own[label])}")
    return pairs, sorted(alone)


def _compare(older: Run, newer: Run, old: Column, new: Column, found: Changes) -> bool:
    """Add the changes in one implementation to ``found``. Returns whether there was anything to compare."""
    if old.label != new.label:
        found.notes.append(f"{printable(old.label)} is compared with {printable(new.label)}")
    keys = {case.key for case in older.cases} & old.cells.keys() & new.cells.keys()
    both = {key for key in keys if not unknown_in(old, key) and not unknown_in(new, key)}
    if unknown := len(keys - both):
        words = f"{counted(unknown, 'question')} left out, because a result has no outcome (not asked, or withheld)"
        found.notes.append(f"{printable(new.label)}: {words}")
    cases = [case for case in newer.cases if case.key in both]
    before, now = (list(Run(tuple(cases), (testee,), ()).causes) for testee in (old, new))
    changed = {
        case.key: Change(case.key, old.shown(case.key), new.shown(case.key))
        for case in cases
        if not same_outcome(old.shown(case.key), new.shown(case.key))
    }
    stays = staying(before, now)
    for one, other in stays:
        of_both = inputs_of(one) | inputs_of(other)
        if inputs_of(one) != inputs_of(other) or of_both & changed.keys():
            found.moved.append((one, other, [change for key, change in changed.items() if key in of_both]))
    found.gone.extend(cause for cause in before if not any(cause is one for one, _ in stays))
    found.appeared.extend(cause for cause in now if not any(cause is other for _, other in stays))
    told = {key for cause in (*before, *now) for key in inputs_of(cause)}
    if rest := [change for key, change in changed.items() if key not in told]:
        found.others[new.label] = rest
    return bool(both)


def unknown_in(column: Column, key: Key) -> bool:
    """Whether the outcome says nothing about what the implementation does: it was not asked, or is withheld."""
    return column.shown(key) in UNKNOWN


def staying(before: Sequence[Cause], now: Sequence[Cause]) -> list[tuple[Cause, Cause]]:
    """The causes that both have.

    A cause is the same if its key is, whatever the version. Another cause is the same if it does the same harm to the
    same questions, or most of it in the same file: lines and words change from version to version.
    """
    left = list(before)
    pairs: list[tuple[Cause, Cause]] = []
    for fits in (_has_same_key, _has_same_questions, _has_same_file):
        for other in now:
            if not any(other is two for _, two in pairs):
                found = next((one for one in left if fits(one, other)), None)
                if found is not None:
                    left.remove(found)
                    pairs.append((found, other))
    return pairs


def _has_same_key(one: Cause, other: Cause) -> bool:
    return one.key[1:] == other.key[1:]


def _has_same_questions(one: Cause, other: Cause) -> bool:
    return one.harm == other.harm and inputs_of(one) == inputs_of(other)


def _has_same_file(one: Cause, other: Cause) -> bool:
    files = [_NUMBERS.sub("", cause.at) for cause in (one, other)]
    inputs = [inputs_of(cause) for cause in (one, other)]
    most = 2 * len(inputs[0] & inputs[1]) > min(map(len, inputs))
    return one.harm == other.harm and files[0] == files[1] != "" and most


def _questions(older: Run, newer: Run) -> Iterator[str]:
    """Sentences about questions that only one of the runs asked."""
    old, new = (dict.fromkeys(case.key for case in run.cases) for run in (older, newer))
    for which, own, others in (("older", old, new), ("newer", new, old)):
        if only := [key for key in own if key not in others]:
            yield f"{counted(len(only), 'question')} only in the {which} result, not compared: {question(only[0])}" + (
                " and others" if len(only) > 1 else ""
            )


def inputs_of(cause: Cause) -> set[Key]:
    """The questions to which the cause gives wrong answers."""
    return {(one.input, one.role) for one in cause.deviations}


def question(key: Key) -> str:
    """The question for people: the vector's id, and the role unless it is the consumer's."""
    return key[0] if key[1] == "consumer" else f"{key[0]} [{key[1]}]"


def _listed(changed: Sequence[Change]) -> list[str]:
    said = [f"  {one}" for one in changed[:OUTCOMES_SHOWN]]
    more = len(changed) - OUTCOMES_SHOWN
    return [*said, f"  … and {more} more; --json has them all"] if more > 0 else said


def _described(cause: Cause) -> str:
    one = cause.smallest
    words = f"{cause.harm}: {cause.what}; {counted(cause.count, 'vector')}, smallest {question((one.input, one.role))}"
    return f"{printable(one.implementation)} {words}"
