"""The parts of a message and of the record batches inside it, for dumps: which field is at which byte.

The parts come from the walk that reads the message (``kfuzz.wire.messages``), so a dump shows what the reader read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kfuzz.annotate.parts import EVERYTHING, PREVIEW_SIZE, Bounds, Part, moved, preview, uvarint_size
from kfuzz.annotate.records import annotate as annotate_records
from kfuzz.findings import Finding, Profile
from kfuzz.kafka import INT32_MAX
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import MessageVerdict, check
from kfuzz.messages.jsonform import uuid_text
from kfuzz.messages.model import Definition, Field, key_of
from kfuzz.messages.schemas import is_compact, schema
from kfuzz.records import Verdict
from kfuzz.records import check as check_records
from kfuzz.wire.messages.values import UNKNOWN_TAGGED_FIELDS

if TYPE_CHECKING:
    from kfuzz.wire.messages import Place

_INDICES: Final = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Annotation:
    """A message's ``parts``, in order. They cover every byte of the data, except for what is not shown.

    If the message ends or is refused before the data ends, the last part holds the remaining bytes. ``reading`` is the
    verdict on the message, without values. ``records`` are the verdicts on its fields of type ``records``, in order.
    ``findings`` begins with those of the message; those of each such field follow, with their offsets and paths in the
    message. ``is_cut``: there are more parts; fields of type ``records`` after them are not judged.
    """

    parts: list[Part]
    reading: MessageVerdict
    records: list[Verdict]
    findings: list[Finding]
    is_cut: bool = False


def annotate(
    message: str | Definition,
    version: int,
    data: bytes,
    *,
    profile: Profile = "kafka",
    batches: int | None = None,
    bounds: Bounds = EVERYTHING,
    parts_most: int = 0,
) -> Annotation:
    """The parts of a message, and the findings for it and its record batches; never raises on bad bytes.

    Each field of type ``records`` shows at most ``batches`` batches. If ``parts_most`` is not 0, there are only so many
    parts. Raises ``UsageError`` for an unknown message, version or profile.
    """
    definition = catalogue().find(message) if isinstance(message, str) else message
    reading = check(definition, version, data, profile=profile)
    end, _, places = schema(definition, version).places(data, parts_most)
    parts = _Parts(definition, version, data, batches, bounds)
    inside = [place for place in places if parts.holds_records(place)]
    readings = [check_records(memoryview(data)[at : at + size], profile=profile) for at, size, *_ in inside]
    of_records = [
        moved(finding, at, f"{path}.{finding.path}")
        for (at, _, path, *_), one in zip(inside, readings, strict=True)
        for finding in one.findings
    ]
    is_full = 0 < parts_most <= len(places)
    made = parts.of(places, cut=end < 0, is_full=is_full)
    shown = list(islice(made, parts_most or None))
    is_cut = is_full or next(made, None) is not None
    return Annotation(shown, reading, readings, reading.findings + of_records, is_cut)


class Walk(NamedTuple):
    """A message as its bytes were walked, without a verdict on it.

    ``places`` are those of ``kfuzz.wire.messages`` by their offsets. ``stops`` are the lengths and counts that the walk
    could not take: path, offset, bytes.
    """

    parts: list[Part]
    places: dict[int, Place]
    stops: list[tuple[str, int, int]]


def walk(definition: Definition, version: int, data: bytes, *, bounds: Bounds = EVERYTHING) -> Walk:
    """The parts of a message of any bytes; never raises on bad ones. ``UsageError`` for an unknown version."""
    end, notes, places = schema(definition, version).places(data)
    parts = _Parts(definition, version, data, None, bounds)
    stops = []
    for _, at, _, _, steps in notes:
        path = definition.name + "".join(f".{name}" + (f"[{i}]" if i >= 0 else "") for name, i in steps)
        if at < len(data) and steps and UNKNOWN_TAGGED_FIELDS not in path:
            stops.append((path, at, parts.length_size(path, data[at:])))
    return Walk(list(parts.of(places, cut=end < 0)), {place[0]: place for place in places}, stops)


class _Parts:
    """Turns the places in a message into parts."""

    def __init__(self, definition: Definition, version: int, data: bytes, batches: int | None, bounds: Bounds) -> None:
        self.definition = definition
        self.version = version
        self.data = data
        self.batches = batches
        self.bounds = bounds
        # Caches by the path without indices.
        self.fields: dict[str, Field] = {}
        # The structs that already have a heading.
        self.opened: set[str] = set()

    def of(self, places: list[Place], *, cut: bool, is_full: bool = False) -> Iterator[Part]:
        """All parts. ``cut`` is true if the message was refused, so that its places end too early; ``is_full`` if there
        may be more places than these.
        """
        name = self.definition.name
        end = 0
        yield Part(name, "", 0, b"", f"version {self.version}", heading=True)
        self.opened.add(name)
        for place in places:
            yield from self.headings(place)
            yield from self.records(place) if self.holds_records(place) else self.part(place)
            end = place[0] + place[1]
        if is_full:
            return
        rest = len(self.data) - end
        data, more = self.bounds.kept(self.data, end, len(self.data))
        if cut:
            text = f"{rest} bytes, not read" if rest else "nothing is left"
            yield Part(name, "rest", end, data, text, cut_bytes=more)
        elif rest:
            yield Part(name, "rest", end, data, f"{rest} bytes after the message", cut_bytes=more)

    def headings(self, place: Place) -> Iterator[Part]:
        """One heading for each struct that begins at this place."""
        at, _, path, part, _ = place
        owner = _owner(path, part)
        begun: list[str] = []
        while owner not in self.opened:
            begun.append(owner)
            self.opened.add(owner)
            owner = owner.rpartition(".")[0]
        for one in reversed(begun):
            yield Part(one, "", at, b"", str(self.field(one).type.struct), heading=True)

    def part(self, place: Place) -> Iterator[Part]:
        at, size, path, part, value = place
        owner = _owner(path, part)
        name = path[len(owner) + 1 :]
        if part in ("tag-count", "tag", "tag-size"):
            name = part.replace("-", " ")
        elif part == "length" and self.amount(path, value) is not None:
            name += " length"
        data, more = self.bounds.kept(self.data, at, at + size)
        yield Part(owner, name, at, data, self.text(place), cut_bytes=more)

    def records(self, place: Place) -> Iterator[Part]:
        """The parts of the batches in a field of type ``records``."""
        at, size, path, *_ = place
        within = memoryview(self.data)[: at + size]
        return annotate_records(within, at=at, under=f"{path}.", batches=self.batches, bounds=self.bounds)

    # --------------------------------------------------------------------------------------------- texts

    def text(self, place: Place) -> str:
        at, size, path, part, value = place
        match part:
            case "length" | "count":
                amount = self.amount(path, value)
                if amount is None:
                    return "null"
                return f"{amount} bytes" if part == "length" else f"{amount} element{'' if amount == 1 else 's'}"
            case "presence":
                return "null" if value < 0 else "present"
            case "tag":
                return f"{value} {self.name_of_tag(path, value)}"
            case "tag-size":
                return f"{value} bytes"
            case "tag-count":
                return str(value)
        return self.value(path, (at, size), value)

    def amount(self, path: str, value: int) -> int | None:
        """The length or count that ``value`` encodes. A number outside 0 to INT32_MAX means null: None."""
        number = value - is_compact(self.definition, self.field(path), self.version)
        return number if 0 <= number <= INT32_MAX else None

    def length_size(self, path: str, data: bytes) -> int:
        """The size in bytes of the field's length or count at the start of ``data``."""
        field = self.field(path)
        if is_compact(self.definition, field, self.version):
            return uvarint_size(data)
        return min(len(data), 2 if field.type.name == "string" and not field.type.array else 4)

    def name_of_tag(self, path: str, tag: int) -> str:
        return next((key_of(field.name) for field in self.struct(path) if field.tag == tag), "unknown")

    def value(self, path: str, span: tuple[int, int], value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str):
            return repr(value[:PREVIEW_SIZE]) + ("…" if len(value) > PREVIEW_SIZE else "")
        if isinstance(value, bytes):
            return uuid_text(value) if self.holds(path, "uuid") else preview(self.data, span)
        return str(value)

    # --------------------------------------------------------------------------------------------- definitions

    def holds_records(self, place: Place) -> bool:
        return place[3] == "value" and self.holds(place[2], "records")

    def holds(self, path: str, kind: str) -> bool:
        """Whether the field has this type. The content of an unknown tag has no known type."""
        return f".{UNKNOWN_TAGGED_FIELDS}[" not in path and self.field(path).type.name == kind

    def field(self, path: str) -> Field:
        path = _INDICES.sub("", path)
        if path not in self.fields:
            found = field_of(self.definition, path)
            assert found is not None, path
            self.fields[path] = found
        return self.fields[path]

    def struct(self, path: str) -> tuple[Field, ...]:
        if path == self.definition.name:
            return self.definition.fields
        return self.definition.fields_of(self.field(path).type)


def field_of(definition: Definition, path: str) -> Field | None:
    """The field at a path such as ``FetchRequest.topics[0].partitions``; None if the definition has none there."""
    fields, found = definition.fields, None
    for name in _INDICES.sub("", path).split(".")[1:]:
        found = next((field for field in fields if key_of(field.name) == name), None)
        if found is None:
            return None
        fields = definition.fields_of(found.type)
    return found


def _owner(path: str, part: str) -> str:
    """The path of the struct that contains this part. For a tag or a tag count, ``path`` is already the struct's."""
    return path if part in ("tag-count", "tag") else path.rpartition(".")[0]
