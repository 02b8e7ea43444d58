"""Makes the smallest input of a fault smaller, and finds the fields that kill in it. A process of its own tries the
inputs, because they may end it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kfuzz.annotate.killing import KillingField
from kfuzz.conformance.judge.harm import HANGS, KILLS, MEMORY
from kfuzz.edit.shrinking import shrink
from kfuzz.fuzz.bodies import body_of, killing_fields_of
from kfuzz.fuzz.building import Build
from kfuzz.fuzz.faults import Fault, Faults
from kfuzz.fuzz.recorder import Find
from kfuzz.fuzz.targets import Target
from kfuzz.fuzz.trying import CannotTry, Trier

__all__ = ["killing_fields_again", "shrink_faults"]

# What one fault may cost. An input that ends the process costs its start, one that hangs costs the time limit.
TRIES_MAX: Final = 4000
ENDS_MAX: Final = 60
HANGS_MAX: Final = 6
WALK_BREAKS: Final = frozenset({KILLS.name, HANGS.name, MEMORY.name})


def shrink_faults(made: Build, target: Target, faults: Faults) -> None:
    """Make the smallest input of each new fault smaller, and replace it in ``faults``.

    What counts as the same is the class of harm and the place in the code.
    """
    with Trier(made, target) as trier:
        for fault in faults.new():
            smaller = _smaller(trier, target, faults, fault)
            if smaller is not None:
                faults.replace(fault.id, smaller)
            faults.set_killing(fault.id, _killing(trier, target, faults, fault, faults.smallest(fault.id)))


def killing_fields_again(made: Build, target: Target, faults: Faults, fault: Fault) -> tuple[KillingField, ...]:
    """The fields that kill in the input of a fault of an earlier campaign; empty if there are none, or if the input
    does not break the target in the same way any more.
    """
    with Trier(made, target) as trier:
        return _killing(trier, target, faults, fault, fault.data)


class _Asking:
    """Asks whether inputs break the target like ``fault``, as long as that does not cost too much."""

    def __init__(self, trier: Trier, faults: Faults, fault: Fault) -> None:
        self._trier = trier
        self._faults = faults
        self._id = fault.id
        self._tries = self._ends = self._hangs = 0

    @property
    def is_over(self) -> bool:
        """Whether it has cost too much."""
        return self._tries >= TRIES_MAX or self._ends >= ENDS_MAX or self._hangs >= HANGS_MAX

    def find_of(self, data: bytes) -> Find | None:
        """What the input breaks, if that is the same fault."""
        find = self._trier.run(data)
        self._tries += 1
        # Memory is found by taking it, which is as slow.
        self._ends += find is not None and find.kind in ("crash", "memory")
        self._hangs += find is not None and find.kind == "timeout"
        return find if find is not None and self._faults.id_of(find) == self._id else None


def _may_walk(target: Target, fault: Fault) -> bool:
    """Whether this process may take the input of a fault apart. It walks through a message as the target does; if that
    does not end, neither would this process.
    """
    return target.flat_schema_of is None or fault.harm not in WALK_BREAKS


def _smaller(trier: Trier, target: Target, faults: Faults, fault: Fault) -> Find | None:
    """Look for a smaller input of ``fault``. Returns what it breaks, or None if there is none."""
    best: dict[bytes, Find] = {}
    asking = _Asking(trier, faults, fault)

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
        if asking.find_of(fault.data) is None:
            return None
        data = fault.data
        body = body_of(target, data)
        if body is not None and body.message is not None and _may_walk(target, fault):
            of_body = body.input_of
            data = of_body(shrink(body.data, lambda some: find_first([*map(of_body, some)]), message=body.message))
        return best.get(shrink(data, find_first))
    except CannotTry:
        return None
    except Exception:
        # What takes the input apart may be what the input breaks. The campaign continues with the input as it was.
        return None


def _killing(trier: Trier, target: Target, faults: Faults, fault: Fault, data: bytes) -> tuple[KillingField, ...]:
    """The fields that kill in ``data``, an input of ``fault``; empty if there are none, or if it costs too much."""
    if not _may_walk(target, fault):
        return ()
    asking = _Asking(trier, faults, fault)

    def breaks(changed: bytes) -> bool:
        # What was not asked counts as no change.
        return asking.is_over or asking.find_of(changed) is not None

    try:
        return killing_fields_of(target, data, breaks)
    except CannotTry:
        return ()
    except Exception:
        # As in _smaller. The campaign continues without the fields.
        return ()
