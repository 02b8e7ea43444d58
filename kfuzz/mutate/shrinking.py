"""Makes an input smaller while it still breaks something in the same way.

The shrinker knows record batches: it drops batches, records and headers, empties and shortens fields, and sets numbers
to zero. Each time it repairs lengths, counts and the CRC, if they were right before. Then it drops and clears bytes,
which also serves messages and anything else. Equal inputs and equal answers give equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kfuzz.kafka import CODECS
from kfuzz.records.codecs import compress, decompress
from kfuzz.wire.io.checksum import crc32, crc32c
from kfuzz.wire.io.cursor import uvarint
from kfuzz.wire.io.layout import (
    BATCH_CRC_COVERS_FROM,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    HEADER_AT,
    HEADER_LAYOUT,
    LOG_OVERHEAD,
    MESSAGE_AT,
    MESSAGE_CRC_COVERS_FROM,
)
from kfuzz.wire.records.framing import frames
from kfuzz.wire.records.record_batch import parse_header, parse_places

if TYPE_CHECKING:
    from kfuzz.wire.records.record_batch import Place, Span

__all__ = ["CANDIDATES_AT_ONCE", "FindFirst", "first_that", "has_crc", "sealed", "shrink", "zigzag"]

# Takes inputs, the most promising first; returns the index of the first one that breaks in the same way, or None.
FindFirst = Callable[[Sequence[bytes]], int | None]

CANDIDATES_AT_ONCE: Final = 128
ROUNDS_MAX: Final = 400
PAYLOAD_BYTES_MAX: Final = 1 << 20
FIELDS: Final = {name: i for i, (name, _, _) in enumerate(HEADER_LAYOUT)}
# What a field of a batch's header is in the plainest batch. Length, CRC, count and magic follow from the rest.
PLAIN: Final = {
    "base_offset": 0,
    "partition_leader_epoch": 0,
    "attributes": 0,
    "last_offset_delta": 0,
    "base_timestamp": 0,
    "max_timestamp": 0,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
}
LENGTH_AT: Final = HEADER_AT["batch_length"]
CRC_AT: Final = HEADER_AT["crc"]
COUNT_AT: Final = HEADER_AT["record_count"]


def shrink(data: bytes, find_first: FindFirst, *, rounds: int = ROUNDS_MAX) -> bytes:
    """The smallest input found that breaks in the same way as ``data``; ``data`` itself if there is none.

    Each round asks about at most ``CANDIDATES_AT_ONCE`` inputs. Each of them is smaller than the best so far, or
    plainer and as long.
    """
    best = data
    refused: set[bytes] = set()
    for _ in range(rounds):
        # An input without bytes says nothing.
        fresh = (one for one in _candidates(best) if one and _size(one) < _size(best) and one not in refused)
        candidates = list(islice(dict.fromkeys(islice(fresh, 4 * CANDIDATES_AT_ONCE)), CANDIDATES_AT_ONCE))
        if not candidates:
            break
        found = find_first(candidates)
        refused.update(candidates[:found])
        if found is not None:
            best = candidates[found]
    return best


def first_that(breaks: Callable[[bytes], bool]) -> FindFirst:
    """The first input for which ``breaks`` is true."""
    return lambda candidates: next((i for i, data in enumerate(candidates) if breaks(data)), None)


def _size(data: bytes) -> tuple[int, int, bytes]:
    """What is made smaller: the length, then the bytes that are not 0, then their values."""
    return len(data), len(data) - data.count(0), data


def _candidates(data: bytes) -> Iterator[bytes]:
    """Smaller or plainer inputs, the largest steps first."""
    spans = [(at, size, magic) for at, size, magic in frames(data, any_magic=True)]
    end = spans[-1][0] + spans[-1][1] if spans else 0
    if spans and end < len(data):
        yield data[:end]
    for start, stop in _chunks(len(spans)):
        yield b"".join(data[at : at + size] for at, size, _ in (*spans[:start], *spans[stop:])) + data[end:]
    for at, size, magic in spans:
        frame = data[at : at + size]
        plainer = _plainer_batches(frame) if magic == 2 and size >= BATCH_HEADER_SIZE else _fewer_bytes(frame, magic)
        yield from (data[:at] + one + data[at + size :] for one in plainer)
    yield from _cut(data, 0)


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    """Ranges of ``count`` things to drop: halves first, single ones last."""
    size = count
    while size:
        yield from ((at, min(at + size, count)) for at in range(0, count, size))
        size //= 2


def _cut(data: bytes, begin: int) -> Iterator[bytes]:
    """``data`` without some bytes from ``begin`` on, and with some of them 0."""
    for start, stop in _chunks(len(data) - begin):
        yield data[: begin + start] + data[begin + stop :]
        if data.count(0, begin + start, begin + stop) < stop - start:
            yield data[: begin + start] + bytes(stop - start) + data[begin + stop :]


def _fewer_bytes(frame: bytes, magic: int) -> Iterator[bytes]:
    """The frame without some of its bytes, with its length and its CRC repaired if they were right."""
    crc_at = CRC_AT if magic == 2 else MESSAGE_AT[0]["crc"]
    yield from (sealed(one, magic, has_crc(frame, magic)) for one in _cut(frame, crc_at + 4) if len(one) > crc_at + 4)


def has_crc(frame: bytes, magic: int) -> bool:
    """Whether the CRC of a batch or message is right."""
    if magic == 2:
        return frame[CRC_AT : CRC_AT + 4] == crc32c(frame[BATCH_CRC_COVERS_FROM:]).to_bytes(4, "big")
    at = MESSAGE_AT[0]["crc"]
    return frame[at : at + 4] == crc32(frame[MESSAGE_CRC_COVERS_FROM:]).to_bytes(4, "big")


def sealed(frame: bytes, magic: int, with_crc: bool) -> bytes:
    """The batch or message with its right length and, ``with_crc``, its right CRC."""
    made = bytearray(frame)
    made[LENGTH_AT : LENGTH_AT + 4] = (len(made) - LOG_OVERHEAD).to_bytes(4, "big")
    if with_crc and magic == 2:
        made[CRC_AT : CRC_AT + 4] = crc32c(made[BATCH_CRC_COVERS_FROM:]).to_bytes(4, "big")
    elif with_crc:
        at = MESSAGE_AT[0]["crc"]
        made[at : at + 4] = crc32(made[MESSAGE_CRC_COVERS_FROM:]).to_bytes(4, "big")
    return bytes(made)


# --- record batches of magic 2 --------------------------------------------------------------------------------------


class _Header(NamedTuple):
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class _Record:
    """A record. ``longer`` is by how much its stated length exceeds its bytes."""

    attributes: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[_Header, ...]
    longer: int = 0

    def body(self) -> bytes:
        """The bytes after the length."""
        made = bytes([self.attributes & 0xFF]) + zigzag(self.timestamp_delta) + zigzag(self.offset_delta)
        made += _span(self.key) + _span(self.value) + zigzag(len(self.headers))
        return made + b"".join(_span(header.key) + _span(header.value) for header in self.headers)

    def encoded(self) -> bytes:
        body = self.body()
        return zigzag(len(body) + self.longer) + body


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch. ``rest`` are the bytes behind the last record that can be read, ``more`` is by how much its stated count
    exceeds its records, ``with_crc`` whether its CRC is right.
    """

    numbers: dict[str, int]
    codec: int
    records: tuple[_Record, ...]
    rest: bytes
    more: int
    with_crc: bool

    def encoded(self) -> bytes:
        header = b"".join(
            (self.numbers[name] & ((1 << 8 * width) - 1)).to_bytes(width, "big") for name, _, width in HEADER_LAYOUT
        )
        made = bytearray(header)
        made[COUNT_AT : COUNT_AT + 4] = ((len(self.records) + self.more) & 0xFFFFFFFF).to_bytes(4, "big")
        payload = b"".join(record.encoded() for record in self.records) + self.rest
        return sealed(bytes(made) + compress(CODECS[self.codec], payload), 2, self.with_crc)


def _parsed(frame: bytes) -> _Batch | None:
    """The batch; None if it cannot be taken apart and put together again."""
    header = parse_header(frame, 0)
    codec = header[FIELDS["attributes"]] & CODEC_MASK
    payload = frame[BATCH_HEADER_SIZE:]
    if codec >= len(CODECS):
        return None
    if codec:
        opened = decompress(CODECS[codec], payload, PAYLOAD_BYTES_MAX)
        if opened.ended != "whole":
            return None
        payload = opened.data
    _, places, _ = parse_places(payload, 0, header)
    records, end = [], 0
    for place in places:
        record = _record(payload, place)
        size = len(record.encoded())
        # Varints in a longer form than necessary are left as they are.
        if payload[end : end + size] != record.encoded():
            break
        records.append(record)
        end += size
    numbers = {name: header[i] for name, i in FIELDS.items()}
    more = numbers["record_count"] - len(records)
    made = _Batch(numbers, codec, tuple(records), payload[end:], more, has_crc(frame, 2))
    return made if codec or made.encoded() == frame else None


def _record(payload: bytes, place: Place) -> _Record:
    _, length, attributes, timestamp_delta, offset_delta, key, value, headers = place

    def bytes_of(span: Span) -> bytes | None:
        return None if span[1] < 0 else payload[span[0] : span[0] + span[1]]

    made = _Record(
        attributes,
        timestamp_delta,
        offset_delta,
        bytes_of(key),
        bytes_of(value),
        tuple(_Header(bytes_of(name) or b"", bytes_of(text)) for name, text in headers),
    )
    return replace(made, longer=length - len(made.body()))


def _plainer_batches(frame: bytes) -> Iterator[bytes]:
    batch = _parsed(frame)
    if batch is not None:
        for one in _plainer(batch):
            yield one.encoded()
    yield from _fewer_bytes(frame, 2)


def _plainer(batch: _Batch) -> Iterator[_Batch]:
    if batch.codec:
        numbers = {**batch.numbers, "attributes": batch.numbers["attributes"] & ~CODEC_MASK}
        yield replace(batch, codec=0, numbers=numbers)
    if batch.rest:
        yield replace(batch, rest=b"")
    for start, stop in _chunks(len(batch.records)):
        yield replace(batch, records=batch.records[:start] + batch.records[stop:])
    for name, plain in PLAIN.items():
        if batch.numbers[name] != plain:
            kept = batch.numbers["attributes"] & CODEC_MASK if name == "attributes" else 0
            yield replace(batch, numbers={**batch.numbers, name: plain | kept})
    for i, record in enumerate(batch.records):
        for one in _plainer_records(record):
            yield replace(batch, records=(*batch.records[:i], one, *batch.records[i + 1 :]))


def _plainer_records(record: _Record) -> Iterator[_Record]:
    for start, stop in _chunks(len(record.headers)):
        yield replace(record, headers=record.headers[:start] + record.headers[stop:])
    for key in _shorter(record.key):
        yield replace(record, key=key)
    for value in _shorter(record.value):
        yield replace(record, value=value)
    for i, header in enumerate(record.headers):
        changed = [header._replace(key=key or b"") for key in _shorter(header.key)]
        changed += [header._replace(value=value) for value in _shorter(header.value)]
        yield from (replace(record, headers=(*record.headers[:i], one, *record.headers[i + 1 :])) for one in changed)
    plain = (replace(record, attributes=0), replace(record, timestamp_delta=0), replace(record, offset_delta=0))
    yield from (one for one in (*plain, replace(record, longer=0)) if one != record)


def _shorter(data: bytes | None) -> list[bytes | None]:
    return [None, *(data[:size] for size in (0, len(data) // 2, len(data) - 1) if size < len(data))] if data else []


def _span(data: bytes | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def zigzag(number: int) -> bytes:
    """The signed varint of a number, in as few bytes as possible."""
    return uvarint(number << 1 if number >= 0 else (-number << 1) - 1)
