"""A raw builder of record batches and messages: any field accepts any value, or any bytes.

Fields that a recipe does not set are right: the builder computes lengths, counts, deltas and the CRC from the rest. A
field that the recipe sets stays as it is. A :class:`Raw` holds the bytes, the positions of the fields that were set,
and the contents. The contents come from the recipe's own values, never from kfuzz's reader.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import crc32c

from kfuzz.java import wrap64
from kfuzz.kafka import CODECS
from kfuzz.vectors.recipes.making.containers import stored
from kfuzz.wire.io.cursor import uvarint
from kfuzz.wire.io.layout import (
    BATCH_HEADER_SIZE,
    CONTROL,
    DELETE_HORIZON,
    HEADER_LAYOUT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MESSAGE_LAYOUT,
    TRANSACTIONAL,
)

# The timestamp of all recipes where the time does not matter: 2023-11-14T22:13:20Z.
CREATED_MS = 1_700_000_000_000

LOG_APPEND = LOG_APPEND_TIME

# The builder computes these fields from the rest, so setting one by hand marks it as hostile.
DERIVED = frozenset({"batch_length", "length", "crc", "record_count"})

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """The position of a field in the bytes; ``hostile`` marks the field that a decoder may mishandle."""

    name: str
    at: int
    size: int
    hostile: bool = False

    def to_json(self) -> Json:
        hostile = {"hostile": True} if self.hostile else {}
        return {"at": self.at, "field": self.name, "size": self.size, **hostile}


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes under construction: whole batches, their contents, and the positions of the fields that matter.

    ``by_content``: a compression library made part of the bytes, so another version may make different ones.
    ``canonical``: an encoder that gets ``batches`` writes exactly these bytes.
    """

    data: bytes
    layout: tuple[Field, ...]
    batches: tuple[Json, ...]
    canonical: bool = True
    by_content: bool = False


def varint(value: int, *, bits: int = 32) -> bytes:
    """Kafka's varint (32 bits) or varlong (64 bits): zigzag and base-128. Raises ``ValueError`` for a wider value."""
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"{value} does not fit {bits} bits")
    return uvarint((value << 1) ^ (value >> (bits - 1)))


def overlong(value: int, size: int) -> bytes:
    """The varint of ``value``, padded to ``size`` bytes with groups of zero bits."""
    short = varint(value, bits=64)
    if size <= len(short):
        return short
    return bytes(byte | 0x80 for byte in short) + b"\x80" * (size - len(short) - 1) + b"\x00"


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A record of magic 2, given by its values. ``raw`` replaces the bytes of fields, by the field's path.

    Paths: length, attributes, timestamp_delta, offset_delta, key_length, key, value_length, value, header_count,
    headers[i].key_length, headers[i].key, headers[i].value_length, headers[i].value, and tail (bytes after the
    headers).
    """

    offset_delta: int = 0
    timestamp_delta: int = 0
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    attributes: int = 0
    raw: Mapping[str, bytes] = field(default_factory=dict)

    def parts(self) -> list[tuple[str, bytes]]:
        """The record's fields in order. The length matches the bytes after it, unless ``raw`` sets it."""
        body = [
            ("attributes", self.attributes.to_bytes(1, "big")),
            ("timestamp_delta", varint(self.timestamp_delta, bits=64)),
            ("offset_delta", varint(self.offset_delta)),
            *_nullable("key", self.key),
            *_nullable("value", self.value),
            ("header_count", varint(len(self.headers))),
        ]
        for index, (key, value) in enumerate(self.headers):
            body += [*_nullable(f"headers[{index}].key", key), *_nullable(f"headers[{index}].value", value)]
        body.append(("tail", b""))
        unknown = self.raw.keys() - {name for name, _ in body} - {"length"}
        if unknown:
            raise ValueError(f"a record has no {', '.join(sorted(unknown))}")
        body = [(name, self.raw.get(name, data)) for name, data in body]
        length = self.raw.get("length", varint(sum(len(data) for _, data in body)))
        return [("length", length), *body]

    def encode(self) -> bytes:
        return b"".join(data for _, data in self.parts())

    def contents(self, base_offset: int, base_timestamp: int, append_time: int | None = None) -> Json:
        """The contents that a reader must see, in the testee protocol's JSON form."""
        timestamp = wrap64(base_timestamp + self.timestamp_delta) if append_time is None else append_time
        return record_contents(wrap64(base_offset + self.offset_delta), timestamp, self.key, self.value, self.headers)


def _nullable(name: str, data: bytes | None) -> list[tuple[str, bytes]]:
    return [(f"{name}_length", varint(-1 if data is None else len(data))), (name, data or b"")]


def record_contents(
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[bytes, bytes | None]] = (),
) -> Json:
    """A record in the testee protocol's JSON form."""
    return {
        "headers": [[_header_key(name), _hex(data)] for name, data in headers],
        "key": _hex(key),
        "offset": str(offset),
        "timestamp": None if timestamp is None else str(timestamp),
        "value": _hex(value),
    }


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _header_key(key: bytes) -> str | Json:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"hex": key.hex()}


def batch(
    *records: Record,
    codec: str = "none",
    log_append: bool = False,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
    payload: bytes | None = None,
    by_content: bool = False,
    contents: Sequence[Json] | None = None,
    canonical: bool | None = None,
    hostile: Sequence[str] = (),
    annotate: bool = False,
    **fields: int,
) -> Raw:
    """A record batch (magic 2) of ``records``.

    ``payload`` replaces the records' bytes: it follows the header, and is a compressed stream if ``codec`` names one.
    Without it, the stream holds the records uncompressed.
    ``contents`` replaces the contents that a reader must see. ``fields`` are header fields, by the names in
    ``HEADER_LAYOUT``. ``hostile`` names fields to mark in the layout, in addition to those that are always marked;
    ``annotate`` puts every field of the header and the records into the layout.
    """
    flags = LOG_APPEND * log_append | TRANSACTIONAL * transactional | CONTROL * control
    flags |= DELETE_HORIZON * delete_horizon
    if payload is None and codec != "none":
        payload = stored(codec, b"".join(record.encode() for record in records))
    if payload is None:
        body, record_places = _payload(records, annotate)
    else:
        body, record_places = payload, [Field("payload", BATCH_HEADER_SIZE, len(payload))]
    base_timestamp = fields.get("base_timestamp", CREATED_MS)
    values = {
        "base_offset": 0,
        "batch_length": BATCH_HEADER_SIZE - LOG_OVERHEAD + len(body),
        "partition_leader_epoch": 0,
        "magic": 2,
        "crc": 0,
        "attributes": CODECS.index(codec) | flags,
        "last_offset_delta": max((record.offset_delta for record in records), default=0),
        "base_timestamp": base_timestamp,
        "max_timestamp": max((wrap64(base_timestamp + record.timestamp_delta) for record in records), default=-1),
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": len(records),
        **fields,
    }
    data = _header(values) + body
    if "crc" not in fields:
        at, size = next((at, size) for name, at, size in HEADER_LAYOUT if name == "crc")
        data = data[:at] + crc32c.crc32c(data[at + size :]).to_bytes(size, "big") + data[at + size :]
    header_places = [
        Field(name, at, size, name in DERIVED & fields.keys())
        for name, at, size in HEADER_LAYOUT
        if annotate or name in fields
    ]
    layout = _mark([*header_places, *record_places], hostile)
    read = _read_records(values, records, log_append) if contents is None else list(contents)
    if canonical is None:
        as_encoded = payload is None and codec == "none" and not any(place.hostile for place in layout)
        canonical = as_encoded and _timestamps_follow(values, records)
    return Raw(data, layout, (_batch_contents(values, codec, read),), canonical, by_content)


def _payload(records: Sequence[Record], annotate: bool) -> tuple[bytes, list[Field]]:
    """The records' bytes, and the positions of the fields set by ``raw`` (with ``annotate``, of all fields)."""
    data = bytearray()
    places = []
    for index, record in enumerate(records):
        for name, part in record.parts():
            hostile = name in record.raw
            if hostile or (annotate and part):
                places.append(Field(f"records[{index}].{name}", BATCH_HEADER_SIZE + len(data), len(part), hostile))
            data += part
    return bytes(data), places


def _header(values: Mapping[str, int]) -> bytes:
    unknown = values.keys() - {name for name, _, _ in HEADER_LAYOUT}
    if unknown:
        raise ValueError(f"a batch header has no {', '.join(sorted(unknown))}")
    return b"".join((values[name] % (1 << (8 * size))).to_bytes(size, "big") for name, _, size in HEADER_LAYOUT)


def _mark(places: Iterable[Field], hostile: Sequence[str]) -> tuple[Field, ...]:
    places = list(places)
    unknown = set(hostile) - {place.name for place in places}
    if unknown:
        raise ValueError(f"hostile, but not set: {', '.join(sorted(unknown))}")
    return tuple(replace(place, hostile=place.hostile or place.name in hostile) for place in places)


def _read_records(values: Mapping[str, int], records: Sequence[Record], log_append: bool) -> list[Json]:
    append_time = values["max_timestamp"] if log_append else None
    return [record.contents(values["base_offset"], values["base_timestamp"], append_time) for record in records]


def _timestamps_follow(values: Mapping[str, int], records: Sequence[Record]) -> bool:
    """Whether an encoder that knows only the records' timestamps writes this base timestamp and max timestamp."""
    if not records:
        return False
    deltas = [record.timestamp_delta for record in records]
    if values["attributes"] & LOG_APPEND:
        return not any(deltas) and values["base_timestamp"] == values["max_timestamp"]
    latest = max(wrap64(values["base_timestamp"] + delta) for delta in deltas)
    return values["max_timestamp"] == latest and bool(deltas[0] == 0 or values["attributes"] & DELETE_HORIZON)


def _batch_contents(values: Mapping[str, int], codec: str, records: list[Json]) -> Json:
    attributes = values["attributes"]
    last_offset = wrap64(values["base_offset"] + values["last_offset_delta"])
    return {
        "base_offset": str(values["base_offset"]),
        "base_sequence": values["base_sequence"],
        "compression": codec,
        "control": bool(attributes & CONTROL),
        "delete_horizon": str(values["base_timestamp"]) if attributes & DELETE_HORIZON else None,
        "last_offset": str(last_offset),
        "magic": 2,
        "next_offset": str(wrap64(last_offset + 1)),
        "partition_leader_epoch": values["partition_leader_epoch"],
        "producer_epoch": values["producer_epoch"],
        "producer_id": str(values["producer_id"]),
        "records": records,
        "timestamp_type": "log-append" if attributes & LOG_APPEND else "create",
        "transactional": bool(attributes & TRANSACTIONAL),
    }


def concat(*raws: Raw) -> Raw:
    """Batches one after another, as in a fetch; field names in the layout begin with their batch."""
    data = b""
    layout: list[Field] = []
    for index, raw in enumerate(raws):
        layout += [replace(place, name=f"batch[{index}].{place.name}", at=place.at + len(data)) for place in raw.layout]
        data += raw.data
    return Raw(
        data,
        tuple(layout),
        tuple(contents for raw in raws for contents in raw.batches),
        all(raw.canonical for raw in raws),
        any(raw.by_content for raw in raws),
    )


def message(
    magic: int,
    *,
    offset: int = 0,
    timestamp: int = CREATED_MS,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    codec: str = "none",
    attributes: int = 0,
    raw: Mapping[str, bytes] | None = None,
    by_content: bool = False,
    contents: Sequence[Json] | None = None,
    canonical: bool | None = None,
    hostile: Sequence[str] = (),
) -> Raw:
    """One message of magic 0 or 1. For a wrapper, pass a compressed ``value`` and its inner messages as ``contents``.

    ``raw`` replaces the bytes of fields: base_offset, batch_length, crc, magic, attributes, timestamp, key_length, key,
    value_length, value, tail. ``attributes`` adds bits to those of the codec. The layout marks the fields named in
    ``raw`` and ``hostile``.
    """
    raw = raw or {}
    flags = CODECS.index(codec) | attributes
    fixed = {
        "base_offset": offset,
        "batch_length": 0,
        "crc": 0,
        "magic": magic,
        "attributes": flags,
        "timestamp": timestamp,
        "key_length": -1 if key is None else len(key),
    }
    head = [(name, (fixed[name] % (1 << (8 * size))).to_bytes(size, "big")) for name, _, size in MESSAGE_LAYOUT[magic]]
    value_length = (-1 if value is None else len(value)).to_bytes(4, "big", signed=True)
    parts = [*head, ("key", key or b""), ("value_length", value_length), ("value", value or b""), ("tail", b"")]
    parts = _repair([(name, raw.get(name, data)) for name, data in parts], raw)
    layout = _places(parts, {*raw, *hostile})
    if contents is None:
        contents = [record_contents(offset, None if magic == 0 else timestamp, key, value)]
    if canonical is None:
        canonical = codec == "none" and not attributes and not any(place.hostile for place in layout)
    data = b"".join(part for _, part in parts)
    return Raw(data, layout, (_message_contents(magic, offset, codec, flags, list(contents)),), canonical, by_content)


def _repair(parts: list[tuple[str, bytes]], raw: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """The parts with the right length and CRC, unless ``raw`` sets them."""
    behind_length = b"".join(data for name, data in parts if name not in ("base_offset", "batch_length"))
    behind_crc = b"".join(data for name, data in parts if name not in ("base_offset", "batch_length", "crc"))
    right = {"batch_length": len(behind_length).to_bytes(4, "big"), "crc": zlib.crc32(behind_crc).to_bytes(4, "big")}
    return [(name, data if name in raw else right.get(name, data)) for name, data in parts]


def _places(parts: Sequence[tuple[str, bytes]], hostile: Set[str]) -> tuple[Field, ...]:
    unknown = hostile - {name for name, _ in parts}
    if unknown:
        raise ValueError(f"a message has no {', '.join(sorted(unknown))}")
    places, at = [], 0
    for name, data in parts:
        if name in hostile:
            places.append(Field(name, at, len(data), True))
        at += len(data)
    return tuple(places)


def _message_contents(magic: int, offset: int, codec: str, attributes: int, records: list[Json]) -> Json:
    appended = "log-append" if attributes & LOG_APPEND else "create"
    return {
        "base_offset": records[0]["offset"] if records else str(offset),
        "base_sequence": -1,
        "compression": codec,
        "control": False,
        "delete_horizon": None,
        "last_offset": str(offset),
        "magic": magic,
        "next_offset": str(wrap64(offset + 1)),
        "partition_leader_epoch": -1,
        "producer_epoch": -1,
        "producer_id": "-1",
        "records": records,
        "timestamp_type": "none" if magic == 0 else appended,
        "transactional": False,
    }
