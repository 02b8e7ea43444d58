"""Keys and values with a schema's id before them, or in a header: their JSON."""

from __future__ import annotations

import contextlib
import os.path
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

from kfuzz.documents import load_json
from kfuzz.errors import UsageError, needs
from kfuzz.schemas.store import Schema, Store
from kfuzz.text import foreign_text, printable

Side = Literal["key", "value"]
# The JSON of the value that begins at a byte; a third argument has message indexes from a header.
Decode = Callable[..., bytes]

MAGIC: Final = 0
# Before the GUID in a header.
GUID_MAGIC: Final = 1
GUID_BYTES: Final = 16
# The magic byte and Confluent's id, or Apicurio's of eight bytes: that begins like id 0, which Confluent never gives.
FRAME_BYTES: Final = 5
LONG_FRAME_BYTES: Final = 9
VALUE_BYTES_MAX: Final = 8 << 20
REASON_BYTES_MAX: Final = 300
# Bytes may claim any number of schemas; the reasons why others are not known are found again.
DECODERS_MAX: Final = 10_000
REMEDY: Final = "; correct it, or name another file"
FIRST_REMEDY: Final = f"{REMEDY}, or the files that it needs after it"
# Headers that have a schema's id, for a key or a value.
HEADERS: Final = ("__{}_schema_id", "apicurio.{}.globalId", "apicurio.{}.contentId")


class Schemas:
    """The schemas of some places, and what they make of keys and values.

    ``places`` are asked in this order. A ``Schema`` among them decodes every value, with or without an id before it;
    more of them are those that it needs, in the order of their use, named as from its folder.
    ``checks`` also compares JSON with its JSON Schema. ``failures`` counts what had a schema's id and was not decoded;
    ``first_failure`` is the first reason. ``without_id`` counts what had none, although others of its topic had one.
    ``UsageError`` if msgspec is missing, and if that ``Schema`` is wrong.
    """

    def __init__(self, places: Iterable[Store | Schema] = (), *, checks: bool = False) -> None:
        with needs("values with schemas need msgspec; pip install 'kfuzz[schemas]'"):
            from kfuzz.schemas import plain
        self._plain = plain
        given = list(places)
        self._stores = [one for one in given if isinstance(one, Store)]
        self._only = _whole([one for one in given if isinstance(one, Schema)])
        self._checks = checks
        # The first bytes of values with an id that only eight bytes hold. They begin like another id of four bytes.
        ids = (key for one in self._stores for key in one.ids if isinstance(key, int) and 1 << 32 <= key < 1 << 64)
        self._long = {bytes([MAGIC]) + key.to_bytes(LONG_FRAME_BYTES - 1, "big") for key in ids}
        self._long_starts = {one[:FRAME_BYTES] for one in self._long}
        self.failures = 0
        self.first_failure = ""
        self._raw = 0
        self._raw_of: Counter[tuple[str | None, Side]] = Counter()
        self._with_id: set[tuple[str | None, Side]] = set()
        self._decoders: dict[int | str | None, Decode | str] = {}
        # The function for values that begin with these bytes.
        self._known: dict[bytes, Callable[[bytes], bytes]] = {}
        # Whether the first values may show that the only schema is the wrong one.
        self._is_doubted = self._only is not None and not checks
        if self._only is not None:
            self._decoders[None] = found = self._made(None)
            if isinstance(found, str):
                raise UsageError(found.removesuffix(REMEDY) + (REMEDY if self._only.needed else FIRST_REMEDY))

    def texts(
        self, side: Side, values: Sequence[bytes | None], ids: Sequence[bytes | None] = (), topic: str | None = None
    ) -> list[bytes | None]:
        """The JSON of keys or of values; None stays None. ``ids`` are those of ``HEADERS``, if there are any.

        Without a schema's id, they are text, or ``{"hex": "ff00"}``. One that cannot be decoded is an object with the
        ``schema_id``, the ``error`` and its bytes as ``hex``. ``UsageError`` if none of the first values fits the only
        schema.
        """
        before, raw = self.failures, self._raw
        known, other = self._known, partial(self._first, side)
        made: list[bytes | None] = []
        for row, data in enumerate(values):
            if data is None:
                made.append(None)
            elif ids and (one := ids[row]) is not None and len(data) <= VALUE_BYTES_MAX:
                made.append(self._with_header(side, data, one))
            else:
                try:
                    if len(data) > VALUE_BYTES_MAX:
                        raise ValueError(f"it has more than {VALUE_BYTES_MAX >> 20} MiB")
                    made.append(known.get(data[:FRAME_BYTES], other)(data))
                # A library may raise anything for bytes that do not fit.
                except Exception as error:
                    made.append(self._failed(data, self._framed(data)[0], error))
        tried, raw = len(values) - made.count(None), self._raw - raw
        self._raw_of[topic, side] += raw
        if tried > raw:
            self._with_id.add((topic, side))
        if self._is_doubted and side == "value" and tried:
            self._is_doubted = False
            if self.failures - before == tried and self._only is not None:
                raise UsageError(
                    f"{self._only.name} is not the schema of these values: {self.first_failure}; name another one, or "
                    "choose its topic by --topics"
                )
        return made

    @property
    def without_id(self) -> int:
        return sum(count for place, count in self._raw_of.items() if place in self._with_id)

    def shown(self, key: bytes | None, value: bytes | None) -> dict[str, str]:
        """The texts of a key and a value for a person, without those that are null."""
        self._is_doubted = False
        made = {"key": self.texts("key", [key])[0], "value": self.texts("value", [value])[0]}
        return {side: printable(foreign_text(text)) for side, text in made.items() if text is not None}

    def _first(self, side: Side, data: bytes) -> bytes:
        """The JSON of a value whose first bytes are new, or no schema's id."""
        key, at = self._framed(data)
        if self._only is not None and side == "value":
            decode = self._decoder(None)
            for start in () if key is None else sorted({at, LONG_FRAME_BYTES}):
                # The first byte may be the value's own.
                with contextlib.suppress(Exception):
                    return decode(data, start)
            return decode(data, 0, self._only.indexes)
        if key is None or all(one.is_whole and not one.find(key) for one in self._stores):
            self._raw += 1
            return self._plain.text_or_hex(data)
        decode = self._decoder(key)
        if at == FRAME_BYTES and data[:FRAME_BYTES] not in self._long_starts:
            self._known[data[:FRAME_BYTES]] = partial(decode, at=FRAME_BYTES)
        return decode(data, at)

    def _framed(self, data: bytes) -> tuple[int | None, int]:
        """The schema's id before a value, and where the value begins; None if there is none."""
        if len(data) < FRAME_BYTES or data[0] != MAGIC:
            return None, 0
        number = int.from_bytes(data[1:FRAME_BYTES], "big")
        if number and data[:LONG_FRAME_BYTES] not in self._long:
            return number, FRAME_BYTES
        if len(data) < LONG_FRAME_BYTES:
            return None, 0
        return int.from_bytes(data[1:LONG_FRAME_BYTES], "big"), LONG_FRAME_BYTES

    def _with_header(self, side: Side, data: bytes, header: bytes) -> bytes:
        key: int | str | None = None
        indexes = b""
        if header[:1] == bytes([GUID_MAGIC]) and len(header) > GUID_BYTES:
            key, indexes = str(UUID(bytes=header[1 : 1 + GUID_BYTES])), header[1 + GUID_BYTES :]
        elif len(header) == LONG_FRAME_BYTES - 1:
            key = int.from_bytes(header, "big")
        elif header[:1] == bytes([MAGIC]) and len(header) >= FRAME_BYTES:
            key, indexes = int.from_bytes(header[1:FRAME_BYTES], "big"), header[FRAME_BYTES:]
        try:
            if not self._stores and (self._only is None or side == "key"):
                return self._plain.text_or_hex(data)
            if key is None:
                raise ValueError("the header with the schema's id is damaged")
            return self._decoder(None if self._only and side == "value" else key)(data, 0, indexes or b"\0")
        except Exception as error:
            return self._failed(data, key, error)

    def _failed(self, data: bytes, key: int | str | None, error: Exception) -> bytes:
        # A missing package, or a registry that does not answer, is no fault of the value.
        if isinstance(error, UsageError):
            raise error
        self.failures += 1
        reason = str(error) if isinstance(error, ValueError) and str(error) else f"{type(error).__name__} {error}"
        if isinstance(error, EOFError | IndexError):
            reason = "the value does not fit the schema: it ends too early, or has a wrong number"
        named: Mapping[str, Any] = {} if key is None else {"schema_id": key}
        made = {**named, "error": foreign_text(reason.strip(), bytes_max=REASON_BYTES_MAX), "hex": data.hex()}
        where = "" if key is None else f"schema {key}: "
        self.first_failure = self.first_failure or f"{where}{made['error']}"
        return self._plain.encode(made)

    def _decoder(self, key: int | str | None) -> Decode:
        """The function for values of a schema; None is the only schema. ``ValueError`` says why there is none."""
        found = self._decoders.get(key) or self._made(key)
        if len(self._decoders) < DECODERS_MAX:
            self._decoders[key] = found
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def _made(self, key: int | str | None) -> Decode | str:
        store, schema = Store("the places of schemas"), self._only
        if key is not None:
            found = ((one, one.find(key)) for one in self._stores)
            store, schema = next((pair for pair in found if pair[1] is not None), (store, None))
        if schema is None:
            return f"no schema has this id in {', '.join(one.place for one in self._stores) or 'the given file'}"
        try:
            needed = dict(schema.needed) | {path: one.text for path, one in store.needed(schema).items()}
        except UsageError as error:
            return str(error)
        name = schema.name if key is None else f"schema {key}"
        return decoder(schema.kind, schema.text, needed, name, checks=self._checks)


def _whole(schemas: Sequence[Schema]) -> Schema | None:
    """The first schema, with the others as those that it needs; None without any."""
    if not schemas:
        return None
    first, *others = schemas
    if other := next((one for one in others if one.kind != first.kind), None):
        raise UsageError(f"{first.name} cannot refer to {other.name}, which is of another kind; name one of them")
    names = [os.path.relpath(one.name, os.path.dirname(first.name) or ".") for one in others]
    needed = tuple((name, one.text) for name, one in zip(names, others, strict=True))
    return replace(first, needed=(*first.needed, *needed))


def decoder(kind: str, text: str, needed: Mapping[str, str], name: str, *, checks: bool) -> Decode | str:
    """The function for values of a schema, or the reason why there is none.

    ``needed`` are the schemas that it refers to, by their names, in the order of their use. ``checks`` also compares
    JSON with its JSON Schema. ``UsageError`` if a package is missing.
    """
    try:
        if kind == "AVRO":
            from kfuzz.schemas import avro

            return avro.decoder(text, needed.items(), name)
        if kind == "PROTOBUF":
            from kfuzz.schemas import proto

            return proto.decoder(text, needed.items(), name)
        if kind == "JSON":
            from kfuzz.schemas import plain

            check: Callable[[bytes], bytes] = plain.json_form
            load_json(text, name)
            if checks:
                from kfuzz.schemas import checked

                check = checked.checker(text, needed.items(), name)
            return lambda data, at, indexes=b"": check(data[at:])
    except ImportError as error:
        raise UsageError(f"{kind} schemas need {error.name}; pip install 'kfuzz[schemas]'") from None
    except UsageError as error:
        return str(error)
    # Libraries may refuse what their compilers accept.
    except Exception as error:
        return f"its schema cannot be used: {foreign_text(error, bytes_max=REASON_BYTES_MAX)}"
    return f"its schema is of kind {foreign_text(kind, bytes_max=40)}, which kfuzz does not know"
