"""Makes broken messages: changes one part of a good message by its schema, or bytes without regard to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfuzz.mutate.engine import MESSAGE_KINDS, Engine

if TYPE_CHECKING:
    from kfuzz.mutate.dice import Dice
    from kfuzz.wire.messages import Schema

__all__ = ["MESSAGE_KINDS", "MessageMutator", "scrambled"]

# The largest message that a mutation makes of a smaller one.
SIZE_MAX: Final = 1 << 20
# With this probability a count goes with its elements, and the sizes of tagged fields with what they hold.
REPAIR: Final = 0.75

_ENGINE: Final = Engine()


class MessageMutator:
    """Changes messages of one schema. ``repair``: the probability of each repair after a change, from 0 to 1."""

    def __init__(self, schema: Schema, *, repair: float = REPAIR) -> None:
        self._flat = schema.flat()
        self._engine = Engine(repair)

    def mutate(self, data: bytes, dice: Dice, *, other: bytes = b"", kind: str | None = None) -> bytes:
        """``data`` after one to three changes, or after one of this ``kind``. Accepts any bytes.

        ``other`` is a message of the same schema, from which elements are taken. ``kind`` is one of ``MESSAGE_KINDS``.
        A message that has no part for it stays as it is. Equal arguments give equal bytes.
        """
        return self._engine.mutate_message(data, other, self._flat, dice, SIZE_MAX, kind)


def scrambled(data: bytes, dice: Dice) -> bytes:
    """``data`` after one to three changes that ignore its structure."""
    return _ENGINE.scramble(data, dice, SIZE_MAX)
