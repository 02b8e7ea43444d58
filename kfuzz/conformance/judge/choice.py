"""Which vectors a testee is asked whose ``testee.toml`` says ``vectors = "chosen"``: about 300 that stand for all.

A client of a broker needs a connection, and often a time limit, for each vector. Asked about all vectors, it would
take most of the time of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kfuzz.conformance.judge.compare import Case
from kfuzz.kafka import ROLES
from kfuzz.vectors.kinds import CONVERSATION

Key = tuple[str, str]


def chosen_keys(cases: Iterable[Case]) -> frozenset[Key]:
    """The keys of the chosen cases. Cases of streams, messages, primitives and encoders are always chosen.

    A conversation is chosen if it is the first with one of its requirements. In each family of records, a vector is
    chosen if it is the first with one of its flags, or the first with its verdict for one of its requirements or for
    its finding. So each kind of danger is asked, and each requirement with each verdict.
    """
    found, seen = set(), set[tuple[str, ...]]()
    for case in cases:
        is_choice = case.vector.kind == CONVERSATION or (case.role in ROLES and case.vector.kind == "records")
        about = set(_about(case)) if is_choice else None
        if about is None or about - seen:
            found.add(case.key)
            seen |= about or set()
    return frozenset(found)


def _about(case: Case) -> Iterator[tuple[str, ...]]:
    """The groups in which a case can be the first."""
    if case.vector.kind == CONVERSATION:
        yield from ((case.role, requirement) for requirement in case.vector.requirements)
        return
    family = case.vector.id.rpartition("/")[0]
    verdict = case.expectation["verdict"]
    yield case.role, family, verdict, "finding", case.expectation.get("finding", "")
    for requirement in case.vector.requirements:
        yield case.role, family, verdict, "requirement", requirement
    for flag in case.vector.flags:
        yield case.role, family, "flag", flag
