"""Messages with something wrong in them: bytes of a good one changed, taken out, put in. Imports nothing of kfuzz.

What a length, a count or a null may be wrong by is drawn more often than anything else.
"""

from __future__ import annotations

import random
from typing import Final

__all__ = ["mutant"]

_BYTES: Final = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF)
_WORDS: Final = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
)


def mutant(rng: random.Random, data: bytes) -> bytes:
    """``data`` after one to three changes, drawn from ``rng``."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not made:
            made += rng.randbytes(1)
        at = rng.randrange(len(made))
        way = rng.random()
        if way < 0.35:
            made[at] = rng.choice((*_BYTES, rng.randrange(256)))
        elif way < 0.5:
            made[at] ^= 1 << rng.randrange(8)
        elif way < 0.65:
            del made[at:]
        elif way < 0.75:
            made[at:at] = rng.randbytes(rng.randint(1, 4))
        elif way < 0.85:
            del made[at : at + rng.randint(1, 4)]
        elif way < 0.95:
            word = rng.choice(_WORDS)
            made[at : at + len(word)] = word
        else:
            made += rng.randbytes(rng.randint(1, 3))
    return bytes(made)
