"""The parts of a buffer of record batches, for dumps: which field is at which byte.

The parts come from the layout tables and the parse loops of ``kfuzz.wire``, so a dump shows what the reader read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kfuzz.annotate.listing import codec_name
from kfuzz.annotate.parts import EVERYTHING, Bounds, Part, preview
from kfuzz.control import ControlRecordType, control_json, decode_control
from kfuzz.errors import RecordsError
from kfuzz.kafka import CODECS, INT32_MAX
from kfuzz.messages.internal import decode_internal
from kfuzz.records.codecs import Decompressed, decompress
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.text import foreign_text
from kfuzz.wire.io.cursor import uvarint_of
from kfuzz.wire.io.layout import (
    ATTRIBUTE_BITS,
    BATCH_HEADER_SIZE,
    CODEC_AT,
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    FRAME_LAYOUT,
    HEADER_LAYOUT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_AT,
    MESSAGE_LAYOUT,
)
from kfuzz.wire.records.framing import next_frame
from kfuzz.wire.records.message_set import parse_message, parse_messages
from kfuzz.wire.records.record_batch import first_places, parse_header

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.wire.records.message_set import Message
    from kfuzz.wire.records.record_batch import Header, Place, Span

    # One of Kafka's own topics, or a function that makes texts of a key and a value.
    RecordsOf = str | Callable[[bytes | None, bytes | None], dict[str, str]] | None

# Of a control record, or of a record of Kafka's own topics.
DECODED_BYTES_MAX: Final = 256 << 10
TEXT_BYTES_MAX: Final = 64 << 10
VARINT_BYTES_MAX: Final = 5


def annotate(
    data: Buffer,
    *,
    at: int = 0,
    under: str = "",
    first: int = 0,
    batches: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    records_of: RecordsOf = None,
    bounds: Bounds = EVERYTHING,
) -> Iterator[Part]:
    """The parts of every batch in ``data``, in order, as far as the bytes can be read. Never raises on bad bytes.

    The first batch begins at byte ``at`` of ``data``, and has the number ``first``. Every path begins with ``under``.
    After ``batches`` batches, one more heading says how many bytes are left. ``records_of`` is one of Kafka's own
    topics (``kfuzz.kafka.INTERNAL_TOPICS``), whose keys and values are decoded, or a function that decodes them. A part
    counts everything that ``bounds`` leave out.
    """
    view = memoryview(data).cast("B")
    index = 0
    while at < len(view):
        path = f"{under}batch[{first + index}]"
        if index == batches:
            yield Part(path, "", at, b"", f"{len(view) - at} bytes, not shown", heading=True)
            return
        made = _Batch(view, path, limits, records_of, bounds)
        size, magic, _ = next_frame(view, at)
        if size <= 0 or magic is None:
            what = "an incomplete batch: a partial tail" if size == 0 else "not a batch"
            yield made.part("", at, len(view), f"{len(view) - at} bytes, {what}", heading=True)
            return
        yield Part(path, "", at, b"", f"magic {magic}, {size} bytes", heading=True)
        yield from made.batch(at, size) if magic == 2 else made.message(at, size)
        at += size
        index += 1


def codec_number(frame: bytes | memoryview) -> int:
    """The number of the codec in the attributes of a batch or message, whether or not there is such a codec."""
    return frame[CODEC_AT[frame[MAGIC_AT]]] & CODEC_MASK


def stream_of(frame: bytes | memoryview) -> Span | None:
    """Where the compressed payload of a batch is, or the value of a wrapper; None if nothing is compressed."""
    if not 0 < codec_number(frame) < len(CODECS):
        return None
    if frame[MAGIC_AT] == 2:
        return BATCH_HEADER_SIZE, len(frame) - BATCH_HEADER_SIZE
    message, _ = parse_message(frame, 0, len(frame))
    return None if message is None or message.value[1] < 0 else message.value


def opened(frame: bytes | memoryview, limits: Limits = DEFAULT_LIMITS) -> Decompressed | None:
    """The decompressed payload of a batch or wrapper; None if nothing is compressed."""
    span = stream_of(frame)
    if span is None:
        return None
    stream = frame[span[0] : sum(span)]
    return decompress(CODECS[codec_number(frame)], stream, limits.decompressed_bytes, magic=frame[MAGIC_AT])


def payload_of(view: memoryview, at: int, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The decompressed payload of the batch at byte ``at``, in which the offsets of its parts count."""
    found = opened(view[at : at + next_frame(view, at)[0]], limits)
    return b"" if found is None else found.data


@dataclass(frozen=True, slots=True)
class _Batch:
    """Makes the parts of a batch or a wrapper, or of its decompressed payload, which are ``data`` and ``path`` then."""

    data: bytes | memoryview
    path: str
    limits: Limits
    records_of: RecordsOf
    bounds: Bounds

    def part(self, field: str, start: int, end: int, text: str, inside: str = "", *, heading: bool = False) -> Part:
        kept, more = self.bounds.kept(self.data, start, end)
        return Part(self.path + inside, field, start, kept, text, heading=heading, cut_bytes=more)

    def left_out(self, what: str, index: int, count: int, at: int, end: int, inside: str = "") -> Part:
        """The part in place of records, headers or messages that are not shown, from number ``index`` on."""
        path = f"{self.path}{inside}.{'headers' if what == 'header' else 'records'}[{index}]"
        text = f"{count:,} more {what}{'' if count == 1 else 's'}, {end - at:,} bytes"
        return Part(path, "", at, b"", text, heading=True, cut_bytes=end - at, left_out=count)

    def of_payload(self, data: bytes) -> _Batch:
        return replace(self, data=data, path=f"{self.path}.payload")

    # --------------------------------------------------------------------------------------------- magic 2

    def batch(self, at: int, size: int) -> Iterator[Part]:
        header = parse_header(self.data, at)
        for (name, offset, width), value in zip(HEADER_LAYOUT, header, strict=True):
            text = _attributes(value) if name == "attributes" else f"{value:#010x}" if name == "crc" else str(value)
            if name == "base_timestamp" and header.attributes & DELETE_HORIZON:
                text += " (the delete horizon)"
            yield Part(self.path, name, at + offset, bytes(self.data[at + offset : at + offset + width]), text)
        start, end = at + BATCH_HEADER_SIZE, at + size
        if start == end:
            return
        if header.attributes & CODEC_MASK == 0:
            yield from replace(self, data=self.data[:end]).records(start, header)
            return
        yield self.part("payload", start, end, f"{end - start} bytes, {codec_name(header.attributes)}")
        out = opened(self.data[at:end], self.limits) if header.record_count > 0 else None
        if out is not None:
            text = f"decompressed: {len(out.data)} bytes" + (
                f", then {out.reason or 'the limit'}" if out.reason else ""
            )
            yield Part(f"{self.path}.payload", "", 0, b"", text, heading=True)
            yield from self.of_payload(out.data).records(0, header)

    def records(self, at: int, header: Header) -> Iterator[Part]:
        bounds, payload = self.bounds, self.data
        places, count, last = first_places(payload, at, header, min(bounds.records, INT32_MAX), bounds.headers)
        end = yield from self.shown(at, places, 0, header)
        around = bounds.around
        if around is not None and len(places) < around < count:
            # The one before it, itself, and the one after it.
            start = max(around - 1, len(places))
            begins = end
            if start > len(places):
                begins = first_places(payload, at, header._replace(record_count=start), 1, 1)[2]
                yield self.left_out("record", len(places), start - len(places), end, begins)
            some = header._replace(record_count=min(around + 2, count) - start)
            few = first_places(payload, begins, some, 0, bounds.headers)[0]
            end = yield from self.shown(begins, few, start, header)
            shown = start + len(few)
        else:
            shown = len(places)
        if shown < count:
            yield self.left_out("record", shown, count - shown, end, last)
            end = last
        if end < len(payload):
            yield self.part("rest", end, len(payload), f"{len(payload) - end} bytes that are not a record")

    def shown(self, at: int, places: list[Place], first: int, header: Header) -> Generator[Part, None, int]:
        """The parts of these records, the first of which is number ``first`` at byte ``at``; returns where they end."""
        end = at
        is_control = header.attributes & CONTROL != 0
        for i, place in enumerate(places, first):
            texts: dict[str, str] = {}
            spans = place.key, place.value
            # Decoded, a byte may take some hundreds.
            if (is_control or self.records_of is not None) and sum(
                max(span[1], 0) for span in spans
            ) <= DECODED_BYTES_MAX:
                key, value = (None if size < 0 else bytes(self.data[start : start + size]) for start, size in spans)
                decode = (
                    self.records_of if callable(self.records_of) else partial(_internal_texts, self.records_of or "")
                )
                texts = _control_texts(key, value) if is_control else decode(key, value)
            end = yield from self.record(place, f".records[{i}]", texts)
        return end

    def record(self, place: Place, inside: str, texts: dict[str, str]) -> Generator[Part, None, int]:
        """The parts of one record; returns where it ends. The bytes between two spans are varints.

        ``texts`` holds texts to show for ``key`` and ``value`` instead of their bytes; control records have them.
        """
        payload = self.data
        at, length, attributes, timestamp_delta, offset_delta, key, value, headers = place
        yield Part(self.path + inside, "", at, b"", f"{length} bytes, plus their length", heading=True)
        body = _varint_end(payload, at)
        yield self.part("length", at, body, str(length), inside)
        yield self.part("attributes", body, body + 1, f"{attributes:#04x}", inside)
        start = _varint_end(payload, body + 1)
        yield self.part("timestamp_delta", body + 1, start, str(timestamp_delta), inside)
        end = _varint_end(payload, start)
        yield self.part("offset_delta", start, end, str(offset_delta), inside)
        end = yield from self.pair(end, key, value, inside, texts)
        start, end = end, _varint_end(payload, end)
        count = _zigzag(payload, start)
        yield self.part("header_count", start, end, str(count), inside)
        for k, header in enumerate(headers):
            end = yield from self.pair(end, *header, f"{inside}.headers[{k}]", {})
        if len(headers) < count:
            start, end = end, body + length
            yield self.left_out("header", len(headers), count - len(headers), start, end, inside)
        return end

    def pair(self, end: int, key: Span, value: Span, inside: str, texts: dict[str, str]) -> Generator[Part, None, int]:
        """The key and the value of a record or a header, from byte ``end`` on; returns where they end."""
        for name, span in (("key", key), ("value", value)):
            yield self.part(f"{name}_length", end, span[0], str(span[1]), inside)
            end = span[0] + max(span[1], 0)
            if span[1] > 0:
                yield self.part(name, span[0], end, texts.get(name) or preview(self.data, span), inside)
        return end

    # --------------------------------------------------------------------------------------------- magic 0 and 1

    def message(self, at: int, size: int) -> Iterator[Part]:
        view = self.data
        message, _ = parse_message(view, at, size)
        if message is None:
            for name, offset, width in FRAME_LAYOUT:
                field = bytes(view[at + offset : at + offset + width])
                yield Part(self.path, name, at + offset, field, str(int.from_bytes(field, "big", signed=True)))
            start, end = at + LOG_OVERHEAD, at + size
            yield self.part("message", start, end, f"{end - start} bytes that are not a message")
            return
        yield from self.message_parts(message)
        out = opened(view[at : at + size], self.limits)
        if out is not None:
            made = self.of_payload(out.data)
            yield Part(made.path, "", 0, b"", f"decompressed: {len(out.data)} bytes", heading=True)
            end = 0
            messages, count, last = parse_messages(out.data, self.bounds.records)
            for i, inner in enumerate(messages):
                inside = f".records[{i}]"
                yield Part(made.path + inside, "", inner.extent[0], b"", f"magic {inner.magic}", heading=True)
                yield from made.message_parts(inner, inside)
                end = inner.extent[1]
            if len(messages) < count:
                yield made.left_out("message", len(messages), count - len(messages), end, last)
                end = last
            if end < len(out.data):
                yield made.part("rest", end, len(out.data), f"{len(out.data) - end} bytes that are not a message")

    def message_parts(self, message: Message, inside: str = "") -> Iterator[Part]:
        view, path = self.data, self.path + inside
        offset, magic, attributes, timestamp, key, (value_at, value_length), (start, end) = message
        crc_at = start + MESSAGE_AT[0]["crc"]
        values = {
            "base_offset": str(offset),
            "batch_length": str(end - start - LOG_OVERHEAD),
            "crc": f"0x{bytes(view[crc_at : crc_at + 4]).hex()}",
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
            yield self.part("key", here, here + len(key), preview(view, (here, len(key))), inside)
        yield Part(path, "value_length", value_at - 4, bytes(view[value_at - 4 : value_at]), str(value_length))
        rest = value_at + max(value_length, 0)
        if value_length > 0:
            yield self.part("value", value_at, rest, preview(view, (value_at, value_length)), inside)
        if rest < end:
            yield self.part("rest", rest, end, f"{end - rest} bytes after the message", inside)


# ------------------------------------------------------------------------------------------------- texts


def _control_texts(key: bytes | None, value: bytes | None) -> dict[str, str]:
    """Texts for a control record's key and value. If one is refused, the only text is the reason."""
    try:
        record = decode_control(key, value)
    except RecordsError as error:
        return {error.finding.path.partition(".")[0]: error.finding.message}
    names = {int(known): known.name for known in ControlRecordType}
    texts = {"key": names.get(record.key.type, f"unknown type {record.key.type}")}
    _, shown = control_json(key, value)
    if shown is not None and "data" in shown:
        texts["value"] = f"{shown['type']} version {shown['version']}: {_bounded(shown['data'])}"
    return texts


def _bounded(value: Any) -> str:
    """A decoded value as JSON on one line; a very long one is cut."""
    return foreign_text(json.dumps(value, ensure_ascii=False), bytes_max=TEXT_BYTES_MAX)


def _internal_texts(topic: str, key: bytes | None, value: bytes | None) -> dict[str, str]:
    """Texts for the key and the value of a record of one of Kafka's own topics."""
    record = decode_internal(topic, key, value)
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
    raw, _ = uvarint_of(payload[at : _varint_end(payload, at)], VARINT_BYTES_MAX)
    return raw >> 1 ^ -(raw & 1)


def _attributes(value: int) -> str:
    names = [codec_name(value)]
    names += [name for name, bit in ATTRIBUTE_BITS.items() if value & bit]
    return f"{value & 0xFFFF:#06x} ({', '.join(names)})"
