"""kfuzz's work with messages. Imports ``measure``, ``message_set`` and kfuzz.

Definitions are found and compiled before anything is timed, and so are the other libraries' readers and writers.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.measure import InProcess
from benchmarks.message_set import MessageCensus, MessageSet, looking
from kfuzz.messages.codec import Message
from kfuzz.messages.model import key_of
from kfuzz.messages.schemas import schema


def verdict(messages: MessageSet) -> InProcess:
    """Check every rule and find the end of the message; no values are made."""
    works = [(schema(sample.definition, sample.version).check, sample.data) for sample in messages.samples]

    def census() -> MessageCensus:
        found = [check(data) for check, data in works]
        notes = [note for _, noted in found for note in noted]
        return MessageCensus(len(found), sum(end for end, _ in found), str(notes[0]) if notes else "none")

    return InProcess(partial(_one_by_one, works), census)


def decode(messages: MessageSet) -> InProcess:
    """Decode to objects and check every rule."""
    works = [(schema(sample.definition, sample.version).decode_objects, sample.data) for sample in messages.samples]

    def census() -> MessageCensus:
        found = (read(data)[2] for read, data in works)
        return messages.census_of_values([values.to_dict() if values else {} for values in found])

    return InProcess(partial(_one_by_one, works), census)


def look(messages: MessageSet) -> InProcess:
    """Decode to objects and read every field once: an object creates its numbers only when they are read."""
    works = [
        (schema(sample.definition, sample.version).decode_objects, sample.data, looking(sample, key_of))
        for sample in messages.samples
    ]

    def run() -> int:
        for read, data, look_at in works:
            look_at(read(data)[2])
        return len(works)

    return InProcess(run, decode(messages).census)


def dicts(messages: MessageSet) -> InProcess:
    """Decode to dicts and check every rule."""
    works = [(schema(sample.definition, sample.version).decode, sample.data) for sample in messages.samples]

    def census() -> MessageCensus:
        return messages.census_of_values(read(data)[2] or {} for read, data in works)

    return InProcess(partial(_one_by_one, works), census)


def bare_dicts(messages: MessageSet) -> InProcess:
    """Let CPython's marshal make the same dicts from its own format."""
    works = [(marshal.loads, marshal.dumps(_builtin(sample.values))) for sample in messages.samples]
    return InProcess(partial(_one_by_one, works), lambda: messages.census_of_values(load(data) for load, data in works))


def _builtin(value: Any) -> Any:
    """The same value without subclasses of ``list``, which marshal refuses."""
    if isinstance(value, dict):
        return {key: _builtin(inner) for key, inner in value.items()}
    return [_builtin(inner) for inner in value] if isinstance(value, list) else value


def size(messages: MessageSet) -> InProcess:
    """Find how many bytes dicts take, and check every value; no ``bytes`` object is made."""
    works = [(program.size, values) for program, values in _read(messages)]
    total = MessageCensus(len(works), sum(size_of(values) for size_of, values in works))
    return InProcess(partial(_one_by_one, works), lambda: total)


def encode(messages: MessageSet) -> InProcess:
    """Encode dicts that have every field and that kfuzz has decoded itself."""
    works = [(program.encode, values) for program, values in _read(messages)]
    return InProcess(
        partial(_one_by_one, works), lambda: messages.census_of_bytes(write(values) for write, values in works)
    )


def _read(messages: MessageSet) -> list[tuple[Any, Message]]:
    """Values from the reader, which places those of a message close together in memory."""
    programs = [schema(sample.definition, sample.version) for sample in messages.samples]
    return [
        (program, program.decode(sample.data)[2] or {})
        for program, sample in zip(programs, messages.samples, strict=True)
    ]


def _one_by_one(works: Sequence[tuple[Callable[[Any], object], bytes | Message]]) -> int:
    for call, argument in works:
        call(argument)
    return len(works)
