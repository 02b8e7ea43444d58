"""Paths in messages: the fields of a version that somebody looks for, and what they lead to in values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Final

from kfuzz.forms import Wrong
from kfuzz.messages.catalogues import newest
from kfuzz.messages.model import Definition, Field, key_of

_PART: Final = re.compile(r"([A-Za-z_]\w{0,99})(?:\[(\d{1,9}|\*)\])?", re.ASCII)
PATH_CHARACTERS_MAX: Final = 500


class Each:
    """The step of a path to all elements of a list."""


EACH: Final = Each()
# A field's name, an element's index, or all elements.
PathStep = str | int | Each
Steps = tuple[PathStep, ...]


def fields(
    definition: Definition, version: int, wanted: Callable[[Field], bool], inside: Field | None = None
) -> Iterator[tuple[Steps, Field]]:
    """All fields of a version that are wanted, with their paths."""
    for one in definition.fields if inside is None else definition.fields_of(inside.type):
        if version not in one.versions:
            continue
        steps: Steps = (key_of(one.name), EACH) if one.type.array else (key_of(one.name),)
        if wanted(one):
            yield steps, one
        elif one.type.struct is not None:
            for more, found in fields(definition, version, wanted, one):
                yield steps + more, found


@cache
def paths_of(name: str, version: int, wanted: Callable[[Field], bool]) -> tuple[Steps, ...]:
    """The paths to all fields of a message that are wanted."""
    return tuple(steps for steps, _ in fields(newest(name, version), version, wanted))


def is_records(field: Field) -> bool:
    """Whether a field has record batches."""
    return field.type.name == "records"


def slots(value: Any, steps: Steps) -> Iterator[tuple[Any, Any]]:
    """The structs and lists that hold what the path leads to, each with the key or index in it."""
    first, rest = steps[0], steps[1:]
    keys: Iterable[Any] = ()
    if isinstance(value, list):
        if first is EACH:
            keys = range(len(value))
        elif isinstance(first, int) and first < len(value):
            keys = (first,)
    elif isinstance(value, dict) and first in value:
        keys = (first,)
    for key in keys:
        if rest:
            yield from slots(value[key], rest)
        else:
            yield value, key


def steps_of(path: str) -> Steps:
    """The steps of a path such as ``responses[0].partitions[*].highWatermark``. ``Wrong`` for another text."""
    steps: list[PathStep] = []
    for part in path.split(".") if len(path) <= PATH_CHARACTERS_MAX else [""]:
        match = _PART.fullmatch(part)
        if match is None:
            raise Wrong("is not the path of a field", 'give one such as "responses[0].partitions[*].errorCode"')
        steps.append(match[1])
        if match[2]:
            steps.append(EACH if match[2] == "*" else int(match[2]))
    return tuple(steps)
