"""The parts of a buffer of record batches, for dumps: which field is at which byte.

The parts come from the layout tables and the parse loops of ``kfuzz.wire``, so a dump shows what the reader read.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

from kfuzz.annotate.parts import EVERYTHING, Bounds, Part, preview
from kfuzz.control import ControlRecordType, ControlValue, EndTransactionMarker, decode_control
from kfuzz.errors import RecordsError
from kfuzz.kafka import CODECS, INT32_MAX
from kfuzz.messages import read
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.internal import decode_internal
from kfuzz.messages.jsonform import to_json
from kfuzz.records.codecs import decompress
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.text import foreign_text
from kfuzz.wire.io.layout import (
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
from kfuzz.wire.records.framing import next_frame
from kfuzz.wire.records.message_set import parse_message, parse_messages
from kfuzz.wire.records.record_batch import first_places, parse_header

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.wire.records.message_set import Message
    from kfuzz.wire.records.record_batch import Header, Place, Span

__all__ = ["annotate", "payload_of"]

# Of a control record, or of a record of Kafka's own topics.
DECODED_BYTES_MAX: Final = 256 << 10
TEXT_BYTES_MAX: Final = 64 << 10


def annotate(
    data: Buffer,
    *,
    at: int = 0,
    under: str = "",
    first: int = 0,
    batches: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    records_of: str | None = None,
    bounds: Bounds = EVERYTHING,
) -> Iterator[Part]:
    """The parts of every batch in ``data``, in order, as far as the bytes can be read. Never raises on bad bytes.

    The first batch begins at byte ``at`` of ``data``, and has the number ``first``. Every path begins with ``under``.
    After ``batches`` batches, one more heading says how many bytes are left. ``records_of`` is one of Kafka's own
    topics (``kfuzz.kafka.INTERNAL_TOPICS``), whose keys and values are decoded. What ``bounds`` leave out has a part
    that counts it.
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
            rest, more = bounds.kept(view, at, len(view))
            yield Part(path, "", at, rest, f"{len(view) - at} bytes, {what}", heading=True, cut_bytes=more)
            return
        yield Part(path, "", at, b"", f"magic {magic}, {size} bytes", heading=True)
        if magic == 2:
            yield from _batch(view, at, size, path, limits, records_of, bounds)
        else:
            yield from _message(view, at, size, path, limits, bounds)
        at += size
        index += 1


# ------------------------------------------------------------------------------------------------- magic 2


def _batch(
    view: memoryview, at: int, size: int, path: str, limits: Limits, records_of: str | None, bounds: Bounds
) -> Iterator[Part]:
    header = parse_header(view, at)
    for (name, offset, width), value in zip(HEADER_LAYOUT, header, strict=True):
        text = _attributes(value) if name == "attributes" else f"{value:#010x}" if name == "crc" else str(value)
        if name == "base_timestamp" and header.attributes & DELETE_HORIZON:
            text += " (the delete horizon)"
        yield Part(path, name, at + offset, bytes(view[at + offset : at + offset + width]), text)
    codec = header.attributes & CODEC_MASK
    body = view[at + BATCH_HEADER_SIZE : at + size]
    if not len(body):
        return
    if codec == 0:
        yield from _records(view[: at + size], at + BATCH_HEADER_SIZE, header, path, records_of, bounds)
        return
    data, more = bounds.kept(body, 0, len(body))
    text = f"{len(body)} bytes, {_codec(codec)}"
    yield Part(path, "payload", at + BATCH_HEADER_SIZE, data, text, cut_bytes=more)
    if codec < len(CODECS) and header.record_count > 0:
        out = decompress(CODECS[codec], body, limits.decompressed_bytes)
        text = f"decompressed: {len(out.data)} bytes" + (f", then {out.reason or 'the limit'}" if out.reason else "")
        yield Part(f"{path}.payload", "", 0, b"", text, heading=True)
        yield from _records(out.data, 0, header, f"{path}.payload", records_of, bounds)


def payload_of(view: memoryview, at: int, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The decompressed payload of the batch at byte ``at``, in which the offsets of its parts count."""
    size, magic, _ = next_frame(view, at)
    if magic == 2:
        body = view[at + BATCH_HEADER_SIZE : at + size]
        return decompress(CODECS[parse_header(view, at).attributes & CODEC_MASK], body, limits.decompressed_bytes).data
    message, _ = parse_message(view, at, size)
    if message is None:
        return b""
    start, length = message.value
    body = view[start : start + length]
    codec = CODECS[message.attributes & CODEC_MASK]
    return decompress(codec, body, limits.decompressed_bytes, magic=message.magic).data


def _records(
    payload: bytes | memoryview, at: int, header: Header, path: str, records_of: str | None, bounds: Bounds
) -> Iterator[Part]:
    places, count, last = first_places(payload, at, header, min(bounds.records, INT32_MAX), bounds.headers)
    end = yield from _shown(payload, at, places, 0, header, path, records_of, bounds)
    around = bounds.around
    if around is not None and len(places) < around < count:
        # The one before it, itself, and the one behind it.
        start = max(around - 1, len(places))
        begins = end
        if start > len(places):
            begins = first_places(payload, at, header._replace(record_count=start), 1, 1)[2]
            yield _left_out(path, "record", len(places), start - len(places), end, begins)
        some = header._replace(record_count=min(around + 2, count) - start)
        few = first_places(payload, begins, some, 0, bounds.headers)[0]
        end = yield from _shown(payload, begins, few, start, header, path, records_of, bounds)
        shown = start + len(few)
    else:
        shown = len(places)
    if shown < count:
        yield _left_out(path, "record", shown, count - shown, end, last)
        end = last
    if end < len(payload):
        rest, more = bounds.kept(payload, end, len(payload))
        yield Part(path, "rest", end, rest, f"{len(payload) - end} bytes that are not a record", cut_bytes=more)


def _left_out(path: str, what: str, index: int, count: int, at: int, end: int) -> Part:
    """The part that stands for records, headers or messages that are not shown, from number ``index`` on."""
    field = "headers" if what == "header" else "records"
    text = f"{count:,} more {what}{'' if count == 1 else 's'}, {end - at:,} bytes"
    return Part(f"{path}.{field}[{index}]", "", at, b"", text, heading=True, cut_bytes=end - at, left_out=count)


def _shown(
    payload: bytes | memoryview,
    at: int,
    places: list[Place],
    first: int,
    header: Header,
    path: str,
    records_of: str | None,
    bounds: Bounds,
) -> Generator[Part, None, int]:
    """The parts of these records, the first of which is number ``first`` at byte ``at``; returns where they end."""
    end = at
    for i, place in enumerate(places, first):
        texts: dict[str, str] = {}
        if header.attributes & CONTROL:
            texts = _control_texts(payload, place.key, place.value)
        elif records_of is not None:
            texts = _internal_texts(records_of, payload, place.key, place.value)
        end = yield from _record(payload, place, f"{path}.records[{i}]", texts, bounds)
    return end


def _record(
    payload: bytes | memoryview, place: Place, path: str, texts: dict[str, str], bounds: Bounds
) -> Generator[Part, None, int]:
    """The parts of one record; returns where it ends. The bytes between two spans are varints.

    ``texts`` holds texts to show for ``key`` and ``value`` instead of their bytes; control records have them.
    """
    at, length, attributes, timestamp_delta, offset_delta, key, value, headers = place
    yield Part(path, "", at, b"", f"{length} bytes, plus their length", heading=True)
    body = _varint_end(payload, at)

    def part(field: str, start: int, end: int, text: str, inside: str = "") -> Part:
        data, more = bounds.kept(payload, start, end)
        return Part(path + inside, field, start, data, text, cut_bytes=more)

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
    count = _zigzag(payload, start)
    yield part("header_count", start, end, str(count))
    for k, (name_span, value_span) in enumerate(headers):
        for name, span in (("key", name_span), ("value", value_span)):
            yield part(f"{name}_length", end, span[0], str(span[1]), f".headers[{k}]")
            end = span[0] + max(span[1], 0)
            if span[1] > 0:
                yield part(name, span[0], end, preview(payload, span), f".headers[{k}]")
    if len(headers) < count:
        start, end = end, body + length
        yield _left_out(path, "header", len(headers), count - len(headers), start, end)
    return end


def _control_texts(payload: bytes | memoryview, key: Span, value: Span) -> dict[str, str]:
    """Texts for a control record's key and value. If one is refused, the only text is the reason."""
    if not _is_decoded(key, value):
        return {}
    parts = [None if length < 0 else bytes(payload[at : at + length]) for at, length in (key, value)]
    try:
        record = decode_control(*parts)
    except RecordsError as error:
        return {error.finding.path.partition(".")[0]: error.finding.message}
    names = {int(known): known.name for known in ControlRecordType}
    texts = {"key": names.get(record.key.type, f"unknown type {record.key.type}")}
    if record.value is not None and not isinstance(record.value, bytes):
        texts["value"] = _control_text(type(record.value), parts[1] or b"")
    return texts


def _control_text(kind: type[ControlValue], data: bytes) -> str:
    """A control record's value as JSON, with the names of Kafka's definition."""
    name = "EndTxnMarker" if kind is EndTransactionMarker else kind.__name__
    definition = catalogue().find(name)
    version = min(int.from_bytes(data[:2], "big"), definition.valid_versions.highest)
    values = read(definition, version, data).message
    return f"{name} version {version}: {_bounded(to_json(definition, version, values or {}))}"


def _is_decoded(key: Span, value: Span) -> bool:
    """Whether a record's key and value are small enough: decoded, a byte may take some hundreds."""
    return max(key[1], 0) + max(value[1], 0) <= DECODED_BYTES_MAX


def _bounded(value: Any) -> str:
    """A decoded value as JSON on one line; a very long one is cut."""
    return foreign_text(json.dumps(value, ensure_ascii=False), bytes_max=TEXT_BYTES_MAX)


def _internal_texts(topic: str, payload: bytes | memoryview, key: Span, value: Span) -> dict[str, str]:
    """Texts for the key and the value of a record of one of Kafka's own topics."""
    if not _is_decoded(key, value):
        return {}
    parts = [None if length < 0 else bytes(payload[at : at + length]) for at, length in (key, value)]
    record = decode_internal(topic, *parts)
    texts = {}
    for name, side in (("key", record.key), ("value", record.value)):
        if side is not None:
            kind = f"{side.name} version {side.version}" if side.name else "cannot be decoded"
            what = side.error or _bounded(side.values)
            texts[name] = f"{kind}: {what}"
    return texts


def _varint_end(payload: bytes | memoryview, at: int) -> int:
    """Where the varint at ``at`` ends. The parse loop has already read it, so it is complete."""
    while payload[at] & 0x80:
        at += 1
    return at + 1


def _zigzag(payload: bytes | memoryview, at: int) -> int:
    """The varint at ``at``."""
    raw = shift = 0
    for byte in payload[at : _varint_end(payload, at)]:
        raw |= (byte & 0x7F) << shift
        shift += 7
    return raw >> 1 ^ -(raw & 1)


# ------------------------------------------------------------------------------------------------- magic 0 and 1


def _message(view: memoryview, at: int, size: int, path: str, limits: Limits, bounds: Bounds) -> Iterator[Part]:
    message, _ = parse_message(view, at, size)
    if message is None:
        for name, offset, width in FRAME_LAYOUT:
            field = bytes(view[at + offset : at + offset + width])
            yield Part(path, name, at + offset, field, str(int.from_bytes(field, "big", signed=True)))
        start = at + LOG_OVERHEAD
        rest, more = bounds.kept(view, start, at + size)
        yield Part(path, "message", start, rest, f"{at + size - start} bytes that are not a message", cut_bytes=more)
        return
    yield from _message_parts(view, message, path, bounds)
    codec = message.attributes & CODEC_MASK
    value_at, value_length = message.value
    if codec and codec < len(CODECS) and value_length >= 0:
        value = view[value_at : value_at + value_length]
        out = decompress(CODECS[codec], value, limits.decompressed_bytes, magic=message.magic)
        inside = f"{path}.payload"
        yield Part(inside, "", 0, b"", f"decompressed: {len(out.data)} bytes", heading=True)
        end = 0
        messages, count, last = parse_messages(out.data, bounds.records)
        for i, inner in enumerate(messages):
            yield Part(f"{inside}.records[{i}]", "", inner.extent[0], b"", f"magic {inner.magic}", heading=True)
            yield from _message_parts(memoryview(out.data), inner, f"{inside}.records[{i}]", bounds)
            end = inner.extent[1]
        if len(messages) < count:
            yield _left_out(inside, "message", len(messages), count - len(messages), end, last)
            end = last
        if end < len(out.data):
            rest, more = bounds.kept(out.data, end, len(out.data))
            yield Part(inside, "rest", end, rest, f"{len(out.data) - end} bytes that are not a message", cut_bytes=more)


def _message_parts(view: memoryview, message: Message, path: str, bounds: Bounds) -> Iterator[Part]:
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
        data, more = bounds.kept(view, here, here + len(key))
        yield Part(path, "key", here, data, preview(view, (here, len(key))), cut_bytes=more)
    yield Part(path, "value_length", value_at - 4, bytes(view[value_at - 4 : value_at]), str(value_length))
    if value_length > 0:
        data, more = bounds.kept(view, value_at, value_at + value_length)
        yield Part(path, "value", value_at, data, preview(view, (value_at, value_length)), cut_bytes=more)
    rest = value_at + max(value_length, 0)
    if rest < end:
        data, more = bounds.kept(view, rest, end)
        yield Part(path, "rest", rest, data, f"{end - rest} bytes after the message", cut_bytes=more)


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
