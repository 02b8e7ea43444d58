"""Makes the smallest input of a cause smaller, and finds the fields that kill in it. A process of its own tries the
inputs, because they may end it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kfuzz.annotate.killing import KillingField
from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.judge.harm import HANGS, KILLS, MEMORY
from kfuzz.edit.shrinking import shrink
from kfuzz.fuzz.building import Build
from kfuzz.fuzz.causes import Causes, cause_of
from kfuzz.fuzz.decoded_bytes import body_of, killing_fields_of
from kfuzz.fuzz.recorder import Find
from kfuzz.fuzz.targets import Target
from kfuzz.fuzz.trial import Trier

# Limits on the work for one cause. An input that ends the process costs its start, one that hangs costs the time limit.
TRIES_MAX: Final = 4000
ENDS_MAX: Final = 60
HANGS_MAX: Final = 6
WALK_BREAKS: Final = frozenset({KILLS.name, HANGS.name, MEMORY.name})


def shrink_causes(made: Build, target: Target, causes: Causes) -> None:
    """Make the smallest input of each new cause smaller, and replace it in ``causes``.

    What counts as the same is the class of harm and the place in the code.
    """
    with Trier(made, target) as trier:
        for cause in causes.new():
            find = _smaller(trier, target, cause)
            smallest = cause_of(target, find).smallest if find else cause.smallest
            kills = _killing(trier, target, cause, smallest.data)
            causes.replace(cause.id, replace(smallest, kills=kills))


def killing_fields_again(made: Build, target: Target, cause: Cause) -> tuple[KillingField, ...]:
    """The fields that kill in the input of a cause of an earlier campaign; empty if there are none, or if the input
    does not break the target in the same way any more.
    """
    with Trier(made, target) as trier:
        return _killing(trier, target, cause, cause.smallest.data)


class _Asking:
    """Asks whether inputs break the target like ``cause``, as long as that does not cost too much."""

    def __init__(self, trier: Trier, target: Target, cause: Cause) -> None:
        self._trier = trier
        self._target = target
        self._id = cause.id
        self._tries = self._ends = self._hangs = 0

    @property
    def is_over(self) -> bool:
        """Whether it has cost too much."""
        return self._tries >= TRIES_MAX or self._ends >= ENDS_MAX or self._hangs >= HANGS_MAX

    def find_of(self, data: bytes) -> Find | None:
        """The find of the input, if it has the same cause."""
        find = self._trier.run(data)
        self._tries += 1
        # Memory is found by taking it, which is as slow.
        self._ends += find is not None and find.kind in ("crash", "memory")
        self._hangs += find is not None and find.kind == "timeout"
        return find if find is not None and cause_of(self._target, find).id == self._id else None


def _may_walk(target: Target, cause: Cause) -> bool:
    """Whether this process may take the input of a cause apart. It walks through a message as the target does; if that
    does not end, neither would this process.
    """
    return target.flat_schema_of is None or cause.harm not in WALK_BREAKS


def _smaller(trier: Trier, target: Target, cause: Cause) -> Find | None:
    """Look for a smaller input with the same cause, and return its find; None if no smaller input has it."""
    best: dict[bytes, Find] = {}
    asking = _Asking(trier, target, cause)

    def find_first(candidates: Sequence[bytes]) -> int | None:
        for i, data in enumerate(candidates):
            if (find := asking.find_of(data)) is not None:
                best[data] = find
                return i
            if asking.is_over:
                break
        return None

    try:
        # The place may be another one here, without libFuzzer.
        if asking.find_of(cause.smallest.data) is None:
            return None
        data = cause.smallest.data
        body = body_of(target, data)
        if body is not None and body.message is not None and _may_walk(target, cause):
            of_body = body.input_of
            data = of_body(shrink(body.data, lambda some: find_first([*map(of_body, some)]), message=body.message))
        return best.get(shrink(data, find_first))
    except Exception:
        # The process may not start, or the input may break the code that takes it apart. The campaign continues with
        # the input as it was.
        return None


def _killing(trier: Trier, target: Target, cause: Cause, data: bytes) -> tuple[KillingField, ...]:
    """The fields that kill in ``data``, an input of ``cause``; empty if there are none, or if it costs too much."""
    if not _may_walk(target, cause):
        return ()
    asking = _Asking(trier, target, cause)

    def breaks(changed: bytes) -> bool:
        # An input that was not asked about counts as no change.
        return asking.is_over or asking.find_of(changed) is not None

    try:
        return killing_fields_of(target, data, breaks)
    except Exception:
        # As above. The campaign continues without the fields.
        return ()
