"""The parts of a buffer of record batches, for dumps: which field is at which byte.

The parts come from the layout tables and the parse loops of ``kfuzz.wire``, so a dump shows what the reader read.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from kfuzz.annotate.parts import Part, preview
from kfuzz.control import ControlRecordType, decode_control
from kfuzz.errors import RecordsError
from kfuzz.kafka import CODECS
from kfuzz.messages.internal import decode_internal
from kfuzz.records.codecs import decompress
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.wire.framing import next_frame
from kfuzz.wire.layout import (
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    FRAME_LAYOUT,
    HEADER_LAYOUT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MESSAGE_LAYOUT,
    TRANSACTIONAL,
)
from kfuzz.wire.message_set import parse_message, parse_messages
from kfuzz.wire.record_batch import parse_header, parse_places

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.wire.message_set import MessageTuple
    from kfuzz.wire.record_batch import HeaderTuple, PlaceTuple, Span

__all__ = ["annotate"]


def annotate(
    data: Buffer,
    *,
    at: int = 0,
    under: str = "",
    first: int = 0,
    batches: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    records_of: str | None = None,
) -> Iterator[Part]:
    """The parts of every batch in ``data``, in order, as far as the bytes can be read. Never raises on bad bytes.

    The first batch begins at byte ``at`` of ``data``, and has the number ``first``. Every path begins with ``under``.
    After ``batches`` batches, one more heading says how many bytes are left. ``records_of`` is one of Kafka's own
    topics (``kfuzz.kafka.INTERNAL_TOPICS``), whose keys and values are decoded.
    """
    view = memoryview(data).cast("B")
    index = 0
    while at < len(view):
        path = f"{under}batch[{first + index}]"
        if index == batches:
            yield Part(path, "", at, b"", f"{len(view) - at} bytes, not shown", heading=True)
            return
        size, magic, _ = next_frame(view, at)
        if size <= 0 or magic is None:
            what = "an incomplete batch: a partial tail" if size == 0 else "not a batch"
            yield Part(path, "", at, bytes(view[at:]), f"{len(view) - at} bytes, {what}", heading=True)
            return
        yield Part(path, "", at, b"", f"magic {magic}, {size} bytes", heading=True)
        if magic == 2:
            yield from _batch(view, at, size, path, limits, records_of)
        else:
            yield from _message(view, at, size, path, limits)
        at += size
        index += 1


# ------------------------------------------------------------------------------------------------- magic 2


def _batch(view: memoryview, at: int, size: int, path: str, limits: Limits, records_of: str | None) -> Iterator[Part]:
    header = parse_header(view, at)
    for (name, offset, width), value in zip(HEADER_LAYOUT, header, strict=True):
        text = _attributes(value) if name == "attributes" else f"{value:#010x}" if name == "crc" else str(value)
        if name == "base_timestamp" and header[5] & DELETE_HORIZON:
            text += " (the delete horizon)"
        yield Part(path, name, at + offset, bytes(view[at + offset : at + offset + width]), text)
    codec = header[5] & CODEC_MASK
    body = view[at + BATCH_HEADER_SIZE : at + size]
    if not len(body):
        return
    if codec == 0:
        yield from _records(view[: at + size], at + BATCH_HEADER_SIZE, header, path, records_of)
        return
    yield Part(path, "payload", at + BATCH_HEADER_SIZE, bytes(body), f"{len(body)} bytes, {_codec(codec)}")
    if codec < len(CODECS) and header[12] > 0:
        out = decompress(CODECS[codec], body, limits.decompressed_bytes)
        text = f"decompressed: {len(out.data)} bytes" + (f", then {out.reason or 'the limit'}" if out.reason else "")
        yield Part(f"{path}.payload", "", 0, b"", text, heading=True)
        yield from _records(out.data, 0, header, f"{path}.payload", records_of)


def _records(
    payload: bytes | memoryview, at: int, header: HeaderTuple, path: str, records_of: str | None
) -> Iterator[Part]:
    _, places, _ = parse_places(payload, at, header)
    end = at
    control = bool(header[5] & CONTROL)
    for i, place in enumerate(places):
        texts: dict[str, str] = {}
        if control:
            texts = _control_texts(payload, place[5], place[6])
        elif records_of is not None:
            texts = _internal_texts(records_of, payload, place[5], place[6])
        end = yield from _record(payload, place, f"{path}.records[{i}]", texts)
    if end < len(payload):
        rest = bytes(payload[end:])
        yield Part(path, "rest", end, rest, f"{len(rest)} bytes that are not a record")


def _record(
    payload: bytes | memoryview, place: PlaceTuple, path: str, texts: dict[str, str]
) -> Generator[Part, None, int]:
    """The parts of one record; returns where it ends. The bytes between two spans are varints.

    ``texts`` holds texts to show for ``key`` and ``value`` instead of their bytes; control records have them.
    """
    at, length, attributes, timestamp_delta, offset_delta, key, value, headers = place
    yield Part(path, "", at, b"", f"{length} bytes, plus their length", heading=True)
    body = _varint_end(payload, at)

    def part(field: str, start: int, end: int, text: str, inside: str = "") -> Part:
        return Part(path + inside, field, start, bytes(payload[start:end]), text)

    yield part("length", at, body, str(length))
    yield part("attributes", body, body + 1, f"{attributes:#04x}")
    start = _varint_end(payload, body + 1)
    yield part("timestamp_delta", body + 1, start, str(timestamp_delta))
    end = _varint_end(payload, start)
    yield part("offset_delta", start, end, str(offset_delta))
    for name, span in (("key", key), ("value", value)):
        yield part(f"{name}_length", end, span[0], str(span[1]))
        end = span[0] + max(span[1], 0)
        if span[1] > 0:
            yield part(name, span[0], end, texts.get(name) or preview(payload, span))
    start, end = end, _varint_end(payload, end)
    yield part("header_count", start, end, str(len(headers)))
    for k, (name_span, value_span) in enumerate(headers):
        for name, span in (("key", name_span), ("value", value_span)):
            yield part(f"{name}_length", end, span[0], str(span[1]), f".headers[{k}]")
            end = span[0] + max(span[1], 0)
            if span[1] > 0:
                yield part(name, span[0], end, preview(payload, span), f".headers[{k}]")
    return end


def _control_texts(payload: bytes | memoryview, key: Span, value: Span) -> dict[str, str]:
    """Texts for a control record's key and value. If one is refused, the only text is the reason."""
    parts = [None if length < 0 else bytes(payload[at : at + length]) for at, length in (key, value)]
    try:
        record = decode_control(*parts)
    except RecordsError as error:
        return {error.finding.path.partition(".")[0]: error.finding.message}
    names = {int(known): known.name for known in ControlRecordType}
    texts = {"key": names.get(record.key.type, f"unknown type {record.key.type}")}
    if record.value is not None and not isinstance(record.value, bytes):
        texts["value"] = str(record.value)
    return texts


def _internal_texts(topic: str, payload: bytes | memoryview, key: Span, value: Span) -> dict[str, str]:
    """Texts for the key and the value of a record of one of Kafka's own topics."""
    parts = [None if length < 0 else bytes(payload[at : at + length]) for at, length in (key, value)]
    record = decode_internal(topic, *parts)
    texts = {}
    for name, side in (("key", record.key), ("value", record.value)):
        if side is not None:
            kind = f"{side.name} version {side.version}" if side.name else "cannot be decoded"
            what = side.error or json.dumps(side.values, ensure_ascii=False)
            texts[name] = f"{kind}: {what}"
    return texts


def _varint_end(payload: bytes | memoryview, at: int) -> int:
    """Where the varint at ``at`` ends. The parse loop has already read it, so it is complete."""
    while payload[at] & 0x80:
        at += 1
    return at + 1


# ------------------------------------------------------------------------------------------------- magic 0 and 1


def _message(view: memoryview, at: int, size: int, path: str, limits: Limits) -> Iterator[Part]:
    message, _ = parse_message(view, at, size)
    if message is None:
        for name, offset, width in FRAME_LAYOUT:
            field = bytes(view[at + offset : at + offset + width])
            yield Part(path, name, at + offset, field, str(int.from_bytes(field, "big", signed=True)))
        rest = bytes(view[at + LOG_OVERHEAD : at + size])
        yield Part(path, "message", at + LOG_OVERHEAD, rest, f"{len(rest)} bytes that are not a message")
        return
    yield from _message_parts(view, message, path)
    codec = message[3] & CODEC_MASK
    value_at, value_length = message[6]
    if codec and codec < len(CODECS) and value_length >= 0:
        value = view[value_at : value_at + value_length]
        out = decompress(CODECS[codec], value, limits.decompressed_bytes, magic=message[2])
        inside = f"{path}.payload"
        yield Part(inside, "", 0, b"", f"decompressed: {len(out.data)} bytes", heading=True)
        end = 0
        for i, inner in enumerate(parse_messages(out.data)):
            yield Part(f"{inside}.records[{i}]", "", inner[7][0], b"", f"magic {inner[2]}", heading=True)
            yield from _message_parts(memoryview(out.data), inner, f"{inside}.records[{i}]")
            end = inner[7][1]
        if end < len(out.data):
            yield Part(inside, "rest", end, out.data[end:], f"{len(out.data) - end} bytes that are not a message")


def _message_parts(view: memoryview, message: MessageTuple, path: str) -> Iterator[Part]:
    offset, crc, magic, attributes, timestamp, key, (value_at, value_length), (start, end) = message
    values = {
        "base_offset": str(offset),
        "batch_length": str(end - start - LOG_OVERHEAD),
        "crc": f"{crc:#010x}",
        "magic": str(magic),
        "attributes": _attributes(attributes & (CODEC_MASK | (LOG_APPEND_TIME if magic else 0))),
        "timestamp": str(timestamp),
        "key_length": str(-1 if key is None else len(key)),
    }
    here = start
    for name, offset_, width in MESSAGE_LAYOUT[0 if magic == 0 else 1]:
        here = start + offset_ + width
        yield Part(path, name, here - width, bytes(view[here - width : here]), values[name])
    if key:
        yield Part(path, "key", here, key, preview(view, (here, len(key))))
    yield Part(path, "value_length", value_at - 4, bytes(view[value_at - 4 : value_at]), str(value_length))
    if value_length > 0:
        value = bytes(view[value_at : value_at + value_length])
        yield Part(path, "value", value_at, value, preview(view, (value_at, value_length)))
    rest = value_at + max(value_length, 0)
    if rest < end:
        yield Part(path, "rest", rest, bytes(view[rest:end]), f"{end - rest} bytes after the message")


# ------------------------------------------------------------------------------------------------- texts


def _codec(number: int) -> str:
    return CODECS[number] if number < len(CODECS) else f"codec {number}"


def _attributes(value: int) -> str:
    names = [_codec(value & CODEC_MASK)]
    for bit, name in (
        (LOG_APPEND_TIME, "log-append"),
        (TRANSACTIONAL, "transactional"),
        (CONTROL, "control"),
        (DELETE_HORIZON, "delete horizon"),
    ):
        if value & bit:
            names.append(name)
    return f"{value & 0xFFFF:#06x} ({', '.join(names)})"
