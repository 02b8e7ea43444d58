"""Prints a digest of everything that compiled code answers about inputs of the mutator.

``python -m tools.mutants.agreeing COUNT`` runs in a copy in which one wrong change is on. If the digest is the same as
without it, the change alters no answer about so many inputs.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any, Final

from kfuzz import records
from kfuzz.errors import KfuzzError
from kfuzz.logs.log_facts import LogFacts
from kfuzz.messages import codec
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.model import Definition
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import schema
from kfuzz.mutate import Mutator
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.message import MessageMutator
from kfuzz.records.read.reader import check_with

SEED: Final = 11


def _checked(data: bytes) -> Any:
    return [records.check(data, role=role) for role in ("consumer", "broker", "log")]


def _written(data: bytes) -> Any:
    return bytes(records.encode(records.read(data).batches))


def _columns(data: bytes) -> Any:
    table = records.columns(data)
    return table.to_pydict(), bytes(records.encode_columns(table))


def _facts(data: bytes) -> Any:
    facts = LogFacts(1 << 20)
    facts.begin_segment(0)
    found = check_with(data, facts)
    return found, facts.recent, facts.is_cleaned, facts.epoch_fell_at, facts.producers, facts.transaction_index


WORK: Final[tuple[Callable[[bytes], Any], ...]] = (_checked, _written, _columns, _facts)


def _wholes() -> list[tuple[Definition, int, bytes]]:
    """A message of each version of each definition."""
    both = [(one, version) for one in catalogue().messages.values() for version in one.valid_versions]
    return [(one, version, codec.encode(one, version, filled(one, version, SEED))) for one, version in both]


def digest(count: int) -> str:
    """The digest over ``count`` inputs, of which a quarter are messages."""
    made = hashlib.blake2b(digest_size=16)
    kinds = cycle(WORK)
    for data in islice(Mutator(SEED), count - count // 4):
        made.update(data)
        try:
            answer = next(kinds)(data)
        except (KfuzzError, ValueError, OverflowError) as error:
            answer = error
        made.update(repr(answer).encode())
    for i, (one, version, whole) in enumerate(islice(cycle(_wholes()), count // 4)):
        data = MessageMutator(schema(one, version)).mutate(whole, Dice(SEED, i), other=whole)
        reading = codec.read(one, version, data)
        made.update(data + repr(reading).encode())
        try:
            made.update(codec.encode(one, version, reading.message or {}))
        except KfuzzError as error:
            made.update(str(error).encode())
    return made.hexdigest()


if __name__ == "__main__":
    print(digest(int(sys.argv[1])))
