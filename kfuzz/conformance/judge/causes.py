"""Groups deviations by their cause, so that a person reads each fault of an implementation once.

One model serves vectors, differentials and campaigns: each turns what it found into :class:`Deviation` objects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kfuzz.conformance.judge.compare import ENCODE_ROLE, Case, Cell
from kfuzz.conformance.judge.harm import ACCEPTS, DIFFERS, HANGS, KILLS, LOSES, MEMORY, RANK, worst
from kfuzz.wire.layout import MAGIC_AT

__all__ = ["Cause", "Deviation", "causes_of", "deviation", "form_of", "masked"]

TEXT_CHARACTERS_MAX: Final = 160
# The parts of an error that differ from input to input: quoted texts, bytes in hex, and numbers.
_QUOTED = re.compile(r"b?'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_HEX = re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b")
_NUMBER = re.compile(r"[-+]?\b\d[\d_]*(?:\.\d+)?\b")
# Which field is null instead of empty does not matter: one conversion makes both from all fields.
_NULLITY = re.compile(r"\S+ is (null|empty); expected (empty|null)")
# Findings that one check of a reader decides. A reader without this check accepts all of them.
_ONE_CHECK: Final = {
    finding: check
    for check, findings in {
        "a record's length against what it holds": (
            "record-length-mismatch",
            "record-length-exceeds-payload",
            "record-length-negative",
            "record-truncated",
            "length-exceeds-record",
            "header-count-exceeds-record",
        ),
        "what follows the last record": ("record-count-too-low", "decompressed-size-exceeded"),
        "a wrapper's content": ("wrapper-empty", "wrapper-value-null"),
    }.items()
    for finding in findings
}


@dataclass(frozen=True, slots=True)
class Deviation:
    """One input on which an implementation does not do what it must.

    - ``implementation``: ``name@version``.
    - ``harm``: the name of a class in :mod:`kfuzz.conformance.judge.harm`.
    - ``finding``: the code of what is wrong with the input; empty if the input is good.
    - ``error``: what went wrong, in words. ``at``: the library's line of source, if a stack names it.
    - ``input``, ``role``, ``size_bytes``: the input's name, its role, its size.
    - ``requirements``: the requirements that the input tests.
    - ``status``: the standing of the outcome: ``listed``, ``miss`` or ``unexpected``.
    - ``form``: the format of the input, because libraries have a reader for each: ``v2``, ``legacy``, or empty.
    """

    implementation: str
    harm: str
    finding: str
    error: str
    at: str
    input: str
    role: str
    size_bytes: int
    requirements: tuple[str, ...] = ()
    status: str = "unexpected"
    form: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What deviations with one cause have in common.

        A source line identifies a fault better than any text. Whether a line takes much memory or ends the process
        depends only on the size that the input claims. A decoder that ignores an error or hangs does so for any damage,
        so the finding is not part of the key. A decoder that loses data from damaged inputs often loses it from good
        ones too. Some vectors with the same missing check allow either outcome; the worst class counts.
        """
        if self.at:
            return self.implementation, MEMORY.name if self.harm == KILLS.name else self.harm, self.at
        if self.finding and self.harm in (ACCEPTS.name, DIFFERS.name):
            return self.implementation, ACCEPTS.name, self.form, _ONE_CHECK.get(self.finding, self.finding)
        if self.harm == HANGS.name:
            return self.implementation, self.harm, self.form, "damaged" if self.finding else "", masked(self.error)
        if self.harm == LOSES.name:
            return self.implementation, self.harm, self.form, masked(self.error)
        return self.implementation, self.harm, self.finding, masked(self.error)


@dataclass(frozen=True, slots=True)
class Cause:
    """A fault of an implementation: all deviations with one key, the smallest input first."""

    deviations: tuple[Deviation, ...]

    @property
    def smallest(self) -> Deviation:
        """The deviation with the smallest input."""
        return self.deviations[0]

    @property
    def id(self) -> str:
        """Eight hex digits that depend on the key alone, so that they are the same in every run."""
        return hashlib.sha256("\0".join(self.smallest.key).encode()).hexdigest()[:8]

    @property
    def harm(self) -> str:
        """The name of the worst class of harm among the deviations."""
        found = worst({one.harm for one in self.deviations})
        assert found
        return found

    @property
    def finding(self) -> str:
        """What is wrong with the inputs: a code, or how many kinds of damage there are; empty for good inputs."""
        kinds = {one.finding for one in self.deviations if one.finding}
        return f"{len(kinds)} kinds of damage" if len(kinds) > 1 else "".join(kinds)

    @property
    def text(self) -> str:
        """The error with its numbers masked."""
        return masked(self.smallest.error)

    @property
    def what(self) -> str:
        """The finding, the text and the line of source, as far as there are any, for people."""
        what = f"{self.finding}: {self.text}" if self.finding else self.text
        return f"{what} ({self.smallest.at})" if self.smallest.at else what

    @property
    def count(self) -> int:
        """The number of deviations."""
        return len(self.deviations)

    @property
    def is_new(self) -> bool:
        """Whether a deviation is not as expected."""
        return any(one.status == "unexpected" for one in self.deviations)


def masked(error: str) -> str:
    """The error without the parts that differ between inputs, shortened.

    >>> from kfuzz.conformance.judge.causes import masked
    >>> masked("batch[0].records[12].key is 6b6579316b657932; expected 'a key'")
    'batch[#].records[#].key is #; expected #'
    """
    text = " ".join(error.split())
    text = _NULLITY.sub(r"a field is \1; expected \2", text)
    for pattern in (_QUOTED, _NUMBER, _HEX):
        text = pattern.sub("#", text)
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "…"


def deviation(implementation: str, case: Case, cell: Cell, status: str) -> Deviation | None:
    """The deviation of a judged case; None if its cell has no class of harm."""
    if not cell.harm:
        return None
    expectation = case.expectation if case.role != ENCODE_ROLE else {}
    return Deviation(
        implementation,
        cell.harm,
        str(expectation.get("finding", "")),
        cell.text,
        str(cell.answer.get("at", "")),
        case.vector.id,
        case.role,
        len(case.vector.data),
        tuple(case.vector.requirements),
        status,
        "" if case.vector.kind in ("message", "primitive") else form_of(case.vector.data),
    )


def form_of(data: bytes) -> str:
    """The format of records at the start of ``data``: ``v2``, ``legacy`` (magic 0 and 1), or empty if it is neither."""
    return {0: "legacy", 1: "legacy", 2: "v2"}.get(data[MAGIC_AT], "") if len(data) > MAGIC_AT else ""


def causes_of(deviations: Iterable[Deviation]) -> list[Cause]:
    """The causes, worst class first, then the implementation, then the number of deviations, then the text."""
    groups: dict[tuple[str, ...], list[Deviation]] = {}
    for one in deviations:
        groups.setdefault(one.key, []).append(one)
    causes = [Cause(tuple(sorted(group, key=_by_size))) for group in groups.values()]
    return sorted(causes, key=_by_harm)


def _by_size(one: Deviation) -> tuple[int, str, str]:
    return one.size_bytes, one.input, one.role


def _by_harm(cause: Cause) -> tuple[int, str, int, Sequence[str]]:
    return RANK[cause.harm], cause.smallest.implementation, -cause.count, cause.smallest.key
