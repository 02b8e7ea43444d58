"""The target ``messages``: selects the message that an input holds, and checks reading and writing.

The first three bytes of an input select the message: an index into ``KINDS``, the API key (for a header, an index into
``HEADERS``), and the version. The rest is the message. Definitions come from the newest catalogue.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kfuzz.annotate.messages import annotate
from kfuzz.errors import EncodeError, MessageError
from kfuzz.fuzz.oracle import OracleFailure, exact_buffer
from kfuzz.messages import codec
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message, MessageReading
from kfuzz.messages.jsonform import from_json, to_json
from kfuzz.messages.model import Definition, Kind
from kfuzz.messages.schemas import schema
from kfuzz.wire.messages.values import UNKNOWN_TAGGED_FIELDS

if TYPE_CHECKING:
    from kfuzz.wire.messages import Note, Place, Schema
    from kfuzz.wire.messages.values import StructValue

# Saved inputs contain these indexes, so add new kinds at the end.
KINDS: Final[tuple[Kind, ...]] = ("request", "response", "header")
HEADERS: Final = ("RequestHeader", "ResponseHeader")
SELECTOR_SIZE: Final = 3

STRING_MOST: Final = 0x7FFF
# Kafka's writers use the largest int32 to mean "no tag".
TAG_LIMIT: Final = (1 << 31) - 1
# Findings that canonical bytes may have: an encoder writes unknown tags, and bytes after the message are cut off.
NOT_ODD: Final = {"tag-unknown", "bytes-after-message"}
# A cut or overlong varint is refused after its first bytes. A varint has at most five bytes.
VARINT_MOST: Final = 5
UNKNOWN_TAGS: Final = "._unknownTaggedFields["
# How much memory decoding may take. A struct of a few bytes becomes a dict, which is up to 90 times as large. The fixed
# part is for the notes of a refusal.
MEMORY_PER_BYTE: Final = 128
MEMORY_BYTES: Final = 8192


# ------------------------------------------------------------------------------------------------- which message


def selector(definition: Definition, version: int) -> bytes:
    """The three bytes that select this message and version at the start of an input."""
    number = HEADERS.index(definition.name) if definition.kind == "header" else definition.api_key
    assert number is not None
    return bytes((KINDS.index(definition.kind), number, version))


def chosen(data: bytes) -> tuple[Definition, int] | None:
    """The message and version that an input selects; None if they do not exist."""
    return choices().get(data[:SELECTOR_SIZE])


@cache
def choices() -> dict[bytes, tuple[Definition, int]]:
    """All messages and versions, by the three bytes that select them."""
    return {
        selector(definition, version): (definition, version)
        for definition in catalogue().messages.values()
        if definition.kind in KINDS
        for version in definition.valid_versions
    }


def schema_of(data: bytes) -> Schema | None:
    """The schema of the message that an input selects; None if there is none."""
    choice = chosen(data)
    return schema(*choice) if choice else None


def flat_schema_of(data: bytes) -> bytes | None:
    """The same as a flat table, for the mutation hook."""
    found = schema_of(data)
    return found.flat() if found else None


# ------------------------------------------------------------------------------------------------- the oracle


def fuzz_messages(data: bytes) -> None:
    """Any request, response or header: read, annotate, write, JSON. Checks the promises of kfuzz.messages."""
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
    """The three walks (check, decode, places) end at the same byte with the same notes."""
    buffer = exact_buffer(body)
    decoded_end, decoded_notes, values = program.decode(body)
    for name, said in (("check", program.check(buffer)), ("decode", (decoded_end, decoded_notes))):
        if said != (end, notes):
            raise OracleFailure(f"{name} says {said!r}, places {(end, notes)!r}")
    if (values is None) != (end < 0):
        raise OracleFailure(f"the message ends at {end}, but decode returns {values!r}")


def check_places(places: list[Place], end: int, notes: tuple[Note, ...]) -> None:
    """Each byte has exactly one place, up to the message's end or, in a refused message, up to the error."""
    at = 0
    for place in places:
        if place[0] != at or place[1] < 1:
            raise OracleFailure(f"the place {place!r} should begin at {at} and have at least one byte")
        at += place[1]
    if end >= 0 and at != end:
        raise OracleFailure(f"the places end at {at}, but the message at {end}")
    if end < 0 and not 0 <= max(note[1] for note in notes) - at <= VARINT_MOST:
        raise OracleFailure(f"the places end at {at}, but the message is refused with {notes!r}")


def check_findings(definition: Definition, version: int, body: bytes, reading: MessageReading) -> None:
    """Findings lie in the message, and both profiles find the same. ``strict`` only accepts unknown tags."""
    strict = codec.check(definition, version, body, profile="strict")
    if [(f.code, f.at, f.path) for f in reading.findings] != [(f.code, f.at, f.path) for f in strict.findings]:
        raise OracleFailure(f"profile kafka finds {reading.findings!r}, strict {strict.findings!r}")
    for finding in strict.findings:
        if not 0 <= finding.at <= len(body):
            raise OracleFailure(f"{finding!r} lies outside the {len(body)} bytes")
        if (finding.severity == "fatal") == (finding.code == "tag-unknown"):
            raise OracleFailure(f"profile strict says {finding!r}")
    try:
        codec.decode(definition, version, body)
    except MessageError as error:
        if error.finding != reading.fatal:
            raise OracleFailure(f"read refuses {reading.fatal}, but decode {error.finding}") from error
        return
    if reading.fatal is not None:
        raise OracleFailure(f"read refuses {reading.fatal}, but decode does not")


def check_memory(program: Schema, body: bytes) -> None:
    """Memory grows with the message's actual size, not with lengths that it claims."""
    tracemalloc.start()
    try:
        program.decode(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > MEMORY_BYTES + MEMORY_PER_BYTE * len(body):
        raise OracleFailure(f"decode uses {peak} bytes of memory for a message of {len(body)} bytes")


def check_annotation(definition: Definition, version: int, body: bytes, reading: MessageReading) -> None:
    """A dump shows every byte once, and everything that the reader found."""
    made = annotate(definition, version, body)
    parts = (part for part in made.parts if not part.payload)
    if (shown := b"".join(part.data for part in parts)) != body:
        raise OracleFailure(f"annotate shows {shown.hex()}")
    if made.findings[: len(reading.findings)] != reading.findings:
        raise OracleFailure(f"read finds {reading.findings!r}, but annotate {made.findings!r}")


# ------------------------------------------------------------------------------------------------- written again


def check_written(definition: Definition, version: int, body: bytes, reading: MessageReading) -> None:
    """Values that Kafka can write are written, and read back the same, as bytes and as JSON."""
    values = reading.message
    assert values is not None
    check_json(definition, version, values)
    check_objects(schema(definition, version), body, values)
    refusals = set(cannot_be_written(values, definition.name))
    try:
        encoded = codec.encode(definition, version, values)
    except EncodeError as error:
        if str(error) not in refusals:
            raise OracleFailure(f"encode refuses values that read returned: {error}") from error
        return
    if refusals:
        raise OracleFailure(f"the writer accepts what Kafka cannot write: {', '.join(sorted(refusals))}")
    if (size := codec.size(definition, version, values)) != len(encoded):
        raise OracleFailure(f"size says {size}, but encode writes {len(encoded)} bytes")
    check_again(definition, version, values, encoded)
    if not {finding.code for finding in reading.findings} - NOT_ODD:
        compare_bytes(schema(definition, version), body[: reading.consumed], encoded)


def check_again(definition: Definition, version: int, values: Message, encoded: bytes) -> None:
    """Written bytes have no findings but unknown tags, hold the same values, and stay the same when written again."""
    again = codec.read(definition, version, encoded)
    if odd := [finding for finding in again.findings if finding.code != "tag-unknown"]:
        raise OracleFailure(f"the written bytes have a finding: {odd[0]}")
    if unlike := difference(values, again.message, definition.name):
        raise OracleFailure(f"after writing and reading, {unlike}")
    assert again.message is not None
    if codec.encode(definition, version, again.message) != encoded:
        raise OracleFailure(f"a second write differs from the first: {encoded.hex()}")


def check_objects(program: Schema, body: bytes, values: Message) -> None:
    """Objects hold the same values as dicts, and are written as the same bytes."""
    made = program.decode_objects(body)[2]
    assert made is not None
    if unlike := difference(values, made.to_dict(), program.name):
        raise OracleFailure(f"as objects, {unlike}")
    if (found := _written(program, made)) != (expected := _written(program, values)):
        raise OracleFailure(f"objects are written as {found!r}, but dicts as {expected!r}")


def _written(program: Schema, values: Message | StructValue) -> bytes | str:
    """The written bytes, or the error text if there are none."""
    try:
        return program.encode(values)
    except EncodeError as error:
        return str(error)


def check_json(definition: Definition, version: int, values: Message) -> None:
    """Values stay the same through JSON."""
    text = json.dumps(to_json(definition, version, values), allow_nan=False)
    if unlike := difference(values, from_json(definition, version, json.loads(text)), definition.name):
        raise OracleFailure(f"after JSON, {unlike}")


def compare_bytes(program: Schema, before: bytes, encoded: bytes) -> None:
    """Canonical bytes stay the same, except that known tagged fields with their default value may be left out."""
    places = [program.places(data)[2] for data in (before, encoded)]
    given, written = (sum(place[3] == "tag" for place in of_one) for of_one in places)
    unknown = [[(place[2], place[4]) for place in of_one if UNKNOWN_TAGS in place[2]] for of_one in places]
    if unknown[0] != unknown[1]:
        raise OracleFailure(f"unknown tagged fields change: {unknown[0]!r} becomes {unknown[1]!r}")
    if before != encoded and not (written < given and len(encoded) < len(before)):
        raise OracleFailure(f"canonical bytes change: {before.hex()} becomes {encoded.hex()}")


def cannot_be_written(value: Any, path: str) -> Iterator[str]:
    """The errors that the writer must give for values that Kafka, too, can read but not write.

    These are tags that are out of order, repeated or too large for an int32, and strings that have become too long:
    each byte that is not UTF-8 is read as U+FFFD, which takes three bytes.
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
                yield f"{path}.{UNKNOWN_TAGGED_FIELDS}: tag {tag} is not valid; tags go from 0 to {TAG_LIMIT - 1}"
        for before, tag in pairwise(tags):
            if tag <= before:
                yield (
                    f"{path}.{UNKNOWN_TAGGED_FIELDS}: tag {tag} comes after tag {before}; give tags in ascending "
                    "order, each once"
                )
        for name, field in value.items():
            if name != UNKNOWN_TAGGED_FIELDS:
                yield from cannot_be_written(field, f"{path}.{name}")


def difference(before: Any, after: Any, path: str) -> str | None:
    """A sentence about the first difference of two values; None if they are the same. NaN equals NaN."""
    if isinstance(before, dict) and isinstance(after, dict):
        if before.keys() != after.keys():
            return f"{path} has {sorted(before)} before, and {sorted(after)} after"
        return _first(difference(before[name], after[name], f"{path}.{name}") for name in before)
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return f"{path} has {len(before)} elements before, and {len(after)} after"
        pairs = enumerate(zip(before, after, strict=True))
        return _first(difference(old, new, f"{path}[{i}]") for i, (old, new) in pairs)
    # The texts of two NaNs are equal, and True differs from 1.
    return None if repr(before) == repr(after) else f"{path}: {before!r} becomes {after!r}"


def _first(found: Iterator[str | None]) -> str | None:
    return next((one for one in found if one is not None), None)
