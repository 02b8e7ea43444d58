"""Prints digests of everything that compiled code answers about inputs of the mutator.

``python -m tools.mutants.agreeing COUNT [NAME…]`` runs in a copy in which one wrong change is on. If the digests are
the same as without it, the change alters no answer about so many inputs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
MESSAGES: Final = "messages"


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


# The questions about records, by name. Each gets its share of the inputs.
WORK: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "consumer": partial(records.check, role="consumer"),
    "broker": partial(records.check, role="broker"),
    "log": partial(records.check, role="log"),
    "written": _written,
    "columns": _columns,
    "facts": _facts,
}


def _wholes() -> list[tuple[Definition, int, bytes]]:
    """A message of each version of each definition."""
    both = [(one, version) for one in catalogue().messages.values() for version in one.valid_versions]
    return [(one, version, codec.encode(one, version, filled(one, version, SEED))) for one, version in both]


def digests(count: int, only: Sequence[str] = ()) -> dict[str, str]:
    """For each question, the digest of its answers. The questions share ``count`` inputs; messages get a quarter.

    With ``only``, no other question is asked, and the digests of the others say nothing.
    """
    made = {name: hashlib.blake2b(digest_size=16) for name in (*WORK, MESSAGES)}
    for data, (name, work) in zip(islice(Mutator(SEED), count - count // 4), cycle(WORK.items()), strict=False):
        if only and name not in only:
            continue
        try:
            answer = work(data)
        except (KfuzzError, ValueError, OverflowError) as error:
            answer = error
        made[name].update(data + repr(answer).encode())
    messages = count // 4 if not only or MESSAGES in only else 0
    for i, (one, version, whole) in enumerate(islice(cycle(_wholes()), messages)):
        data = MessageMutator(schema(one, version)).mutate(whole, Dice(SEED, i), other=whole)
        reading = codec.read(one, version, data)
        try:
            again = codec.encode(one, version, reading.message or {})
        except KfuzzError as error:
            again = str(error).encode()
        made[MESSAGES].update(data + repr(reading).encode() + again)
    return {name: one.hexdigest() for name, one in made.items()}


if __name__ == "__main__":
    print(json.dumps(digests(int(sys.argv[1]), sys.argv[2:])))
