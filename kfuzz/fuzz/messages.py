"""The target ``messages``: which message an input is, what reading and writing promise of it, how it is mutated.

An input's first three bytes say which message the rest is: a number of ``KINDS``, the API key (of a header, a number of
``HEADERS``), the version. The catalogue is the newest.
"""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kfuzz.annotate.messages import annotate
from kfuzz.annotate.parts import scope_of
from kfuzz.errors import EncodeError, MessageError
from kfuzz.fuzz.oracle import OracleFailure, exact_buffer
from kfuzz.messages import codec
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message, MessageReading
from kfuzz.messages.jsonform import from_json, to_json
from kfuzz.messages.model import Definition, Kind
from kfuzz.messages.schemas import schema
from kfuzz.mutate.message import mutant, restructured
from kfuzz.wire.values import UNKNOWN_TAGGED_FIELDS

if TYPE_CHECKING:
    from kfuzz.wire.message import Note, Place, Schema
    from kfuzz.wire.values import StructValue

__all__ = ["KINDS", "SELECTOR_SIZE", "chosen", "fuzz_messages", "mutate", "selector"]

# Their places are in every kept input: new ones come last.
KINDS: Final[tuple[Kind, ...]] = ("request", "response", "header")
HEADERS: Final = ("RequestHeader", "ResponseHeader")
SELECTOR_SIZE: Final = 3

STRING_MOST: Final = 0x7FFF
# The last int32 stands for no tag at all among Kafka's writers.
TAG_LIMIT: Final = (1 << 31) - 1
# What is found in bytes that an encoder makes, and in what stands behind them.
NOT_ODD: Final = {"tag-unknown", "bytes-after-message"}
# A varint that is cut or too long is refused behind its first bytes, of which there are five at most.
VARINT_MOST: Final = 5
# What values may take of memory: a struct of a few bytes becomes a dict, 90 times their size in the worst message; and
# what the notes of a refusal take.
MEMORY_PER_BYTE: Final = 128
MEMORY_BYTES: Final = 8192


# ------------------------------------------------------------------------------------------------- which message


def selector(definition: Definition, version: int) -> bytes:
    """The bytes that say so in front of an input."""
    number = HEADERS.index(definition.name) if definition.kind == "header" else definition.api_key
    assert number is not None
    return bytes((KINDS.index(definition.kind), number, version))


def chosen(data: bytes) -> tuple[Definition, int] | None:
    """The message and version that an input is of; None where there is none such."""
    return _choices().get(data[:SELECTOR_SIZE])


@cache
def _choices() -> dict[bytes, tuple[Definition, int]]:
    return {
        selector(definition, version): (definition, version)
        for definition in catalogue().messages.values()
        if definition.kind in KINDS
        for version in definition.valid_versions
    }


@cache
def _versions() -> dict[bytes, list[bytes]]:
    """The selectors of all versions of a message, by what they have in common."""
    made: dict[bytes, list[bytes]] = {}
    for one in _choices():
        made.setdefault(one[:-1], []).append(one)
    return made


# ------------------------------------------------------------------------------------------------- mutation


def mutate(data: bytes, size_max: int, seed: int) -> bytes:
    """``data`` after one to three changes, by the message's structure mostly; one in ten becomes another version's.

    Empty where the input is of no message. Equal arguments give equal bytes.
    """
    choice = chosen(data)
    if choice is None:
        return b""
    rng = random.Random(seed)
    front, body = data[:SELECTOR_SIZE], data[SELECTOR_SIZE:]
    if rng.random() < 0.1:
        front = rng.choice(_versions()[front[:-1]])
    program = schema(*choice)
    for _ in range(rng.choice((1, 1, 2, 3))):
        body = restructured(rng, body, program.places(body)[2]) if rng.random() < 0.9 else mutant(rng, body)
    return (front + body)[:size_max]


# ------------------------------------------------------------------------------------------------- the oracle


def fuzz_messages(data: bytes) -> None:
    """Everything that reading, explaining and writing promise about any bytes of any message."""
    choice = chosen(data)
    if choice is None:
        return
    definition, version = choice
    program = schema(definition, version)
    body = data[SELECTOR_SIZE:]
    end, notes, places = program.places(body)
    compare_walks(program, body, end, notes)
    check_places(places, end, notes)
    reading = codec.read(definition, version, body)
    check_findings(definition, version, body, reading)
    check_memory(program, body)
    check_annotation(definition, version, body, reading)
    if reading.message is not None:
        check_written(definition, version, body, reading)


def compare_walks(program: Schema, body: bytes, end: int, notes: tuple[Note, ...]) -> None:
    """The walk that only checks, that for values and that for places end alike and note the same."""
    buffer = exact_buffer(body)
    decoded_end, decoded_notes, values = program.decode(body)
    for name, said in (("check", program.check(buffer)), ("decode", (decoded_end, decoded_notes))):
        if said != (end, notes):
            raise OracleFailure(f"{name} says {said!r}, places {(end, notes)!r}")
    if (values is None) != (end < 0):
        raise OracleFailure(f"the message ends at {end}, and decode makes {values!r} of it")


def check_places(places: list[Place], end: int, notes: tuple[Note, ...]) -> None:
    """Each byte up to the end has one place; where the message is refused, each up to what it is refused for."""
    at = 0
    for place in places:
        if place[0] != at or place[1] < 1:
            raise OracleFailure(f"the place {place!r} should begin at {at} and have a byte")
        at += place[1]
    if end >= 0 and at != end:
        raise OracleFailure(f"the places end at {at}, the message at {end}")
    if end < 0 and not 0 <= max(note[1] for note in notes) - at <= VARINT_MOST:
        raise OracleFailure(f"the places end at {at}; the message is refused with {notes!r}")


def check_findings(definition: Definition, version: int, body: bytes, reading: MessageReading) -> None:
    """Findings lie in the message; both profiles have the same; strict lets unknown tags alone pass."""
    strict = codec.check(definition, version, body, profile="strict")
    if [(f.code, f.at, f.path) for f in reading.findings] != [(f.code, f.at, f.path) for f in strict.findings]:
        raise OracleFailure(f"profile kafka finds {reading.findings!r}, strict {strict.findings!r}")
    for finding in strict.findings:
        if not 0 <= finding.at <= len(body):
            raise OracleFailure(f"{finding!r} lies outside of {len(body)} bytes")
        if (finding.severity == "fatal") == (finding.code == "tag-unknown"):
            raise OracleFailure(f"profile strict says {finding!r}")
    try:
        codec.decode(definition, version, body)
    except MessageError as error:
        if error.finding != reading.fatal:
            raise OracleFailure(f"read refuses {reading.fatal}, decode {error.finding}") from error
        return
    if reading.fatal is not None:
        raise OracleFailure(f"read refuses {reading.fatal}; decode does not")


def check_memory(program: Schema, body: bytes) -> None:
    """Nothing is allocated by a number that the input claims and does not keep."""
    tracemalloc.start()
    try:
        program.decode(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > MEMORY_BYTES + MEMORY_PER_BYTE * len(body):
        raise OracleFailure(f"decode takes {peak} bytes of memory for a message of {len(body)}")


def check_annotation(definition: Definition, version: int, body: bytes, reading: MessageReading) -> None:
    """A dump has every byte once, and what the reader found."""
    made = annotate(definition, version, body)
    parts = (part for part in made.parts if not scope_of(f"{part.path}.{part.field}").endswith(".payload"))
    if (shown := b"".join(part.data for part in parts)) != body:
        raise OracleFailure(f"annotate shows {shown.hex()}")
    if made.findings[: len(reading.findings)] != reading.findings:
        raise OracleFailure(f"read finds {reading.findings!r}, annotate {made.findings!r}")


# ------------------------------------------------------------------------------------------------- written again


def check_written(definition: Definition, version: int, body: bytes, reading: MessageReading) -> None:
    """What was read is written, as far as Kafka can write it, and reads the same; so does its JSON form."""
    values = reading.message
    assert values is not None
    check_json(definition, version, values)
    check_objects(schema(definition, version), body, values)
    refusals = set(cannot_be_written(values, definition.name))
    try:
        encoded = codec.encode(definition, version, values)
    except EncodeError as error:
        if str(error) not in refusals:
            raise OracleFailure(f"what was read cannot be written: {error}") from error
        return
    if refusals:
        raise OracleFailure(f"what nobody can write is written: {', '.join(sorted(refusals))}")
    if (size := codec.size(definition, version, values)) != len(encoded):
        raise OracleFailure(f"the size is {size}; there are {len(encoded)} bytes")
    check_again(definition, version, values, encoded)
    if not {finding.code for finding in reading.findings} - NOT_ODD:
        compare_bytes(schema(definition, version), body[: reading.consumed], encoded)


def check_again(definition: Definition, version: int, values: Message, encoded: bytes) -> None:
    """Written bytes are whole and in order, hold the values, and are written again as they are."""
    again = codec.read(definition, version, encoded)
    if odd := [finding for finding in again.findings if finding.code != "tag-unknown"]:
        raise OracleFailure(f"what was written is found fault with: {odd[0]}")
    if unlike := difference(values, again.message, definition.name):
        raise OracleFailure(f"written and read again, {unlike}")
    assert again.message is not None
    if codec.encode(definition, version, again.message) != encoded:
        raise OracleFailure(f"written twice, the bytes are others than {encoded.hex()}")


def check_objects(program: Schema, body: bytes, values: Message) -> None:
    """Objects have the values that dicts have, and are written as they are."""
    made = program.decode_objects(body)[2]
    assert made is not None
    if unlike := difference(values, made.to_dict(), program.name):
        raise OracleFailure(f"as objects, {unlike}")
    if (found := _written(program, made)) != (expected := _written(program, values)):
        raise OracleFailure(f"objects are written as {found!r}, dicts as {expected!r}")


def _written(program: Schema, values: Message | StructValue) -> bytes | str:
    """The bytes, or why there are none."""
    try:
        return program.encode(values)
    except EncodeError as error:
        return str(error)


def check_json(definition: Definition, version: int, values: Message) -> None:
    """Values are the same after they were JSON."""
    text = json.dumps(to_json(definition, version, values), allow_nan=False)
    if unlike := difference(values, from_json(definition, version, json.loads(text)), definition.name):
        raise OracleFailure(f"from JSON, {unlike}")


def compare_bytes(program: Schema, before: bytes, encoded: bytes) -> None:
    """Bytes with nothing odd in them stay; tagged fields alone that are as by default may be left out."""
    given, written = (sum(place[3] == "tag" for place in program.places(data)[2]) for data in (before, encoded))
    if before != encoded and not (written < given and len(encoded) < len(before)):
        raise OracleFailure(f"canonical bytes change: {before.hex()} becomes {encoded.hex()}")


def cannot_be_written(value: Any, path: str) -> Iterator[str]:
    """What the writer must say of values that Kafka reads, and cannot write either.

    Tags that do not rise, or that no int32 holds; and texts that became longer than a string may be, for
    each of their bytes that is no UTF-8 is read as U+FFFD, which takes three.
    """
    if isinstance(value, str) and (size := len(value.encode())) > STRING_MOST:
        yield f"{path} takes {size} bytes; a string takes {STRING_MOST} at most"
    elif isinstance(value, list):
        for i, element in enumerate(value):
            yield from cannot_be_written(element, f"{path}[{i}]")
    elif isinstance(value, dict):
        tags = [tag for tag, _ in value.get(UNKNOWN_TAGGED_FIELDS, ())]
        for tag in tags:
            if tag >= TAG_LIMIT:
                yield f"{path}.{UNKNOWN_TAGGED_FIELDS}: tag {tag} is none; tags go from 0 to {TAG_LIMIT - 1}"
        for before, tag in pairwise(tags):
            if tag <= before:
                yield (
                    f"{path}.{UNKNOWN_TAGGED_FIELDS}: tag {tag} comes after tag {before}; give them by rising numbers, "
                    "each once"
                )
        for name, field in value.items():
            if name != UNKNOWN_TAGGED_FIELDS:
                yield from cannot_be_written(field, f"{path}.{name}")


def difference(before: Any, after: Any, path: str) -> str | None:
    """The first place where two values differ, as a sentence; None where they are the same, NaN among them."""
    if isinstance(before, dict) and isinstance(after, dict):
        if before.keys() != after.keys():
            return f"{path} has {sorted(before)}, and then {sorted(after)}"
        return _first(difference(before[name], after[name], f"{path}.{name}") for name in before)
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return f"{path} has {len(before)} elements, and then {len(after)}"
        pairs = enumerate(zip(before, after, strict=True))
        return _first(difference(old, new, f"{path}[{i}]") for i, (old, new) in pairs)
    # As text a NaN is itself, and a flag is no number.
    return None if repr(before) == repr(after) else f"{path}: {before!r} becomes {after!r}"


def _first(found: Iterator[str | None]) -> str | None:
    return next((one for one in found if one is not None), None)
