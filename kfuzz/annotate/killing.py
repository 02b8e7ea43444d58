"""A field that kills, and its place in a dump. ``kfuzz.edit.killing`` looks for such fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kfuzz.annotate.parts import Part, scope_of


@dataclass(frozen=True, slots=True)
class KillingField:
    """A field by its whole path, as a dump shows it, and its place: in the buffer, or in the decompressed payload if
    the path goes through one. ``at`` and ``size`` are in bytes.
    """

    field: str
    at: int
    size: int

    def __str__(self) -> str:
        return f"{self.field} at byte {self.at} ({self.size} byte{'' if self.size == 1 else 's'})"

    def to_json(self) -> dict[str, Any]:
        """The form in which it is kept beside an input."""
        return {"field": self.field, "at": self.at, "size": self.size}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> KillingField:
        """The field that ``to_json`` wrote; ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        return cls(str(value["field"]), int(value["at"]), int(value["size"]))


def mark(parts: Sequence[Part], field: KillingField) -> int | None:
    """The index of the part of a dump that holds the field; None if the dump does not show it.

    A field of a record or message that cannot be read to its end lies in a part without a meaning.
    """
    scope = scope_of(field.field)
    holding = None
    for i, part in enumerate(parts):
        if part.at <= field.at < part.at + part.size and part.scope == scope:
            if part.name == field.field:
                return i
            holding = i
    return holding
