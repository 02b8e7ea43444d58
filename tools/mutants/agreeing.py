"""Prints digests of everything that compiled code answers about inputs of the mutator.

``python -m tools.mutants.agreeing COUNT [NAME…]`` runs in a copy in which one wrong change is on. If the digests are
the same as without it, the change alters no answer about so many inputs.

The mutator is compiled code too. Where its changes must not count, ``… --make FILE COUNT`` first writes inputs without
any change, and FILE instead of COUNT takes them.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
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
# The question, the bytes, and a message's name and version.
Input = tuple[str, bytes, str, int]


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


def inputs(count: int) -> Iterator[Input]:
    """So many inputs. The questions about records share three quarters, messages get the rest."""
    for data, name in zip(islice(Mutator(SEED), count - count // 4), cycle(WORK), strict=False):
        yield name, data, "", 0
    for i, (one, version, whole) in enumerate(islice(cycle(_wholes()), count // 4)):
        data = MessageMutator(schema(one, version)).mutate(whole, Dice(SEED, i), other=whole)
        yield MESSAGES, data, one.name, version


def digests(given: Iterable[Input], only: Sequence[str] = ()) -> dict[str, str]:
    """For each question, the digest of its answers; with ``only``, no other question is asked."""
    made = {name: hashlib.blake2b(digest_size=16) for name in only or (*WORK, MESSAGES)}
    for name, data, message, version in given:
        if name not in made:
            continue
        try:
            answer = WORK[name](data) if name != MESSAGES else _message(data, message, version)
        except (KfuzzError, ValueError, OverflowError) as error:
            answer = error
        made[name].update(data + repr(answer).encode())
    return {name: one.hexdigest() for name, one in made.items()}


def _message(data: bytes, name: str, version: int) -> Any:
    definition = catalogue().find(name)
    reading = codec.read(definition, version, data)
    try:
        return reading, codec.encode(definition, version, reading.message or {})
    except KfuzzError as error:
        return reading, str(error)


def main(first: str, *more: str) -> None:
    """The command of the module."""
    if first == "--make":
        file, count = more
        Path(file).write_bytes(marshal.dumps(list(inputs(int(count)))))
    else:
        given = inputs(int(first)) if first.isdecimal() else marshal.loads(Path(first).read_bytes())
        print(json.dumps(digests(given, more)))


if __name__ == "__main__":
    main(*sys.argv[1:])
