"""How a deviation harms the users of a decoder: eight classes of harm, the worst first (their texts: harm.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Harm:
    """A class of harm: its ``name`` in documents, its ``title`` in tables, and why it matters.

    ``to_readers`` says that for a client that reads, ``to_brokers`` for a broker that gets the bytes of a producer, and
    ``to_producers`` for the program that uses a producer, where that is not the same as for readers.
    """

    name: str
    title: str
    to_readers: str
    to_brokers: str
    to_producers: str = ""

    def why(self, role: str) -> str:
        """Why it matters if an implementation in ``role`` does this."""
        told = {"broker": self.to_brokers, "produce": self.to_producers}.get(role)
        return told or self.to_readers


# Worst first.
HARMS: Final = tuple(
    Harm(name, **fields) for name, fields in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
)
KILLS, HANGS, MEMORY, PANICS, LOSES, ACCEPTS, REFUSES, DIFFERS = HARMS

# The class of an outcome that is always wrong. A ``fail`` has its class from what is wrong with the answer.
HARM_OF: Final = {
    "crash": KILLS.name,
    "timeout": HANGS.name,
    "stall": HANGS.name,
    "memory": MEMORY.name,
    "panic": PANICS.name,
    "fault": PANICS.name,
    "protocol-error": PANICS.name,
}
RANK: Final = {harm.name: rank for rank, harm in enumerate(HARMS)}
_BY_NAME: Final = {harm.name: harm for harm in HARMS}


def harm_named(name: str) -> Harm:
    """The class of this name; ``KeyError`` if there is none."""
    return _BY_NAME[name]


def worst(names: Iterable[str]) -> str:
    """The worst of these classes. At least one of the names must be one; others do not count."""
    return min((name for name in names if name in RANK), key=RANK.__getitem__)
