"""A differential in parts that many processes can share. Each part is a range of inputs.

Equal seeds give equal parts, so the result is the same for any number of processes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, Final, Literal, get_args

from kfuzz.conformance.differential.found import Differential
from kfuzz.conformance.differential.messages import differ_messages, release_of, versions_of
from kfuzz.conformance.differential.records import differ, seeds_of
from kfuzz.conformance.differential.streams import differ_streams
from kfuzz.conformance.judge.causes import Deviation
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.mutate import Mutator
from kfuzz.records import Role
from kfuzz.vectors import load_suite

What = Literal["records", "messages", "streams"]
WHAT: Final[tuple[What, ...]] = get_args(What)
# A part takes some seconds: long beside the start of a testee, short beside a run. Of messages, it counts versions.
PART_INPUTS: Final = {"records": 20_000, "streams": 5_000, "messages": 16}

# These of two parts are added.
SUMMED: Final = ("inputs", "agreements", "unsupported", "rules", "deviations", "others", "restarts", "unconfirmed")


@dataclass(frozen=True, slots=True)
class Shared:
    """A differential: what is asked, as which role (of records), the seed, and how many inputs.

    For messages, ``count`` is the number of mutants of each version of each message. ``part_inputs`` is the number of
    inputs in a part; 0 is the default. The result does not depend on it, unless the testee breaks for no input alone.
    """

    what: What
    seed: int
    count: int
    role: Role = "consumer"
    part_inputs: int = 0

    @property
    def _size(self) -> int:
        return self.part_inputs or PART_INPUTS[self.what]

    def parts(self, testee: Testee) -> int:
        """The number of parts."""
        count = self.count if self.what != "messages" else sum(1 for _ in versions_of(release_of(testee)))
        return -(-count // self._size)

    def run(self, part: int, testee: Testee) -> Differential:
        """The result of one part: the smallest input of each cause. ``UsageError`` if the testee does not start."""
        size = self._size
        if self.what == "messages":
            versions = range(part * size, (part + 1) * size)
            found = differ_messages(testee, release_of(testee), seed=self.seed, mutants=self.count, only=versions)
            return replace(found, setting="").reduced()
        first, last = part * size, min((part + 1) * size, self.count)
        if self.what == "streams":
            return differ_streams(testee, seed=self.seed, first=first, count=last - first).reduced()
        mutator = Mutator(self.seed, seeds=seeds_of(load_suite()), role=self.role)
        inputs = (mutator.input_at(i) for i in range(first, last))
        return differ(testee, inputs, role=self.role, first=first).reduced()


def merged(parts: Iterable[Differential]) -> Differential:
    """One result of many, in any order. There must be at least one."""
    return reduce(_both, parts)


def _both(one: Differential, other: Differential) -> Differential:
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in SUMMED}).reduced()


def to_text(found: Differential) -> str:
    """The result as one line of JSON."""
    # Not `asdict` of all: it would count the pairs of a Counter.
    given = {one.name: getattr(found, one.name) for one in fields(found)}
    return json.dumps({**given, "deviations": [one.to_json() for one in found.deviations]}, sort_keys=True)


def from_text(text: str) -> Differential:
    """The result that ``to_text`` wrote."""
    given: dict[str, Any] = json.loads(text)
    given["deviations"] = list(map(Deviation.from_json, given["deviations"]))
    given["rule_names"] = tuple(given["rule_names"])
    for name in ("agreements", "rules", "others"):
        given[name] = Counter(given[name])
    return Differential(**{one.name: given[one.name] for one in fields(Differential)})
