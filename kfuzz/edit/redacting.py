"""Replaces what people wrote in batches and messages, and keeps their structure. ``kfuzz redact`` is the verb.

Only bytes with a known harmless meaning are kept: lengths, counts, numbers, names that Kafka defines. Bytes without a
known meaning become ``x``. A CRC that was wrong stays wrong.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import shake_256
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from kfuzz.annotate.frames import LENGTH_BYTES, Frame, frames_of
from kfuzz.annotate.listing import Listing
from kfuzz.annotate.messages import field_of
from kfuzz.annotate.parts import Bounds, Part
from kfuzz.annotate.records import annotate, codec_number, opened, stream_of
from kfuzz.edit.tree import has_crc
from kfuzz.findings import Finding
from kfuzz.kafka import CODECS, Role
from kfuzz.messages.catalogues import newest
from kfuzz.messages.model import Definition
from kfuzz.messages.schemas import schema
from kfuzz.mutate.engine import seal
from kfuzz.records.codecs import compress
from kfuzz.wire.io.cursor import uvarint, uvarint_of
from kfuzz.wire.io.layout import CODEC_AT, CONTROL, HEADER_UP_TO_MAGIC, LOG_OVERHEAD, MAGIC_AT, MESSAGE_AT
from kfuzz.wire.records.framing import frames

if TYPE_CHECKING:
    from typing_extensions import Buffer

# The bytes that may be a secret; all other fields of a batch are numbers.
CONTENTS: Final = ("key", "value")
# Bytes that begin with a record or a message that cannot be read.
REFUSED: Final = ("rest", "message")
# More are replaced as a whole, because each takes some hundred bytes of memory.
RECORDS_MAX: Final = 50_000
HEADERS_MAX: Final = 10_000
FEW_HEADERS_MAX: Final = 50
LARGE_BYTES: Final = 4 << 20
# The first bytes of control records' keys and values: numbers, and all of a transaction marker. Others may name a host.
CONTROL_BYTES: Final = 6
# The version and the type at the start of such a key.
CONTROL_KEY: Final = slice(4)
# Texts of messages that come from Kafka or a client's library.
OF_KAFKA: Final = re.compile(
    r"\.(clientSoftware(Name|Version)|mechanisms?(\[\d+\])?|(supported|finalized)Features\[\d+\]\.name)"
)
INT_BYTES: Final = 4
# Bytes of text are not below this; a record's attributes are 0.
TEXT_FROM: Final = ord(" ")
# An offset below 2^56, or a negative one.
OFFSET_BEGINS: Final = (b"\0", b"\xff")
WORD: Final = re.compile(rb"[ -~]{4}")
VARINT_BYTES_MAX: Final = 5
LONG: Final = re.compile(rb"[\x80-\xff]{0,10}")
# The places of the attributes, of the timestamp, which is a long, and of the number of headers among the fields of a
# record.
ATTRIBUTES_STEP: Final = 1
DELTA_STEP: Final = 2
COUNT_STEP: Final = 6
# A message with more parts is replaced as a whole, because each takes some hundred bytes of memory.
PLACES_MAX: Final = 4_000_000
# Any byte as a small letter.
LETTERS: Final = bytes(ord("a") + byte % 26 for byte in range(256))
# Of texts up to this size, different ones stay different as long as there are other texts left. Longer ones do anyway.
SHORT_BYTES: Final = 8
SHORT_MOST: Final = 1_000_000
ATTEMPTS: Final = 20
# Codes about a number in front of bytes or items.
NUMERIC: Final = re.compile("length|count|null|negative")
PIECE_BYTES: Final = 1 << 20
NUMBER: Final = re.compile(r"\d+")


@dataclass(slots=True)
class Redactor:
    """Replaces bytes by others of the same length: the same bytes by the same ones, text by letters, null by null.

    Without ``key``, nobody can find out whether guessed bytes were there. ``whole`` counts what was replaced as a
    whole, with its structure.
    """

    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    keeps_header_keys: bool = False
    whole: Counter[str] = field(default_factory=Counter)
    _taken: dict[bytes, bytes] = field(default_factory=dict)

    def swap(self, data: bytes) -> bytes:
        """Other bytes in place of ``data``."""
        made = b""
        for attempt in range(ATTEMPTS):
            made = shake_256(self.key + bytes([attempt]) + data).digest(len(data))
            made = made.translate(LETTERS) if _is_text(data) else bytes([made[0] | 0x80]) + made[1:]
            is_short = len(data) <= SHORT_BYTES and len(self._taken) < SHORT_MOST
            owner = self._taken.setdefault(made, data) if is_short else data
            if made != data and owner == data and _is_text(made) == _is_text(data):
                break
        return made

    # ---------------------------------------------------------------------------------------------- batches

    def batches(self, data: Buffer) -> Iterator[bytes]:
        """The batches of a segment or a fetch, one after the other, also after damage."""
        listing = Listing(data)
        for entry in listing:
            end = entry.at + entry.size
            if entry.kind == "batch":
                yield self._batch(bytes(listing.view[entry.at : end]))
                continue
            self.whole["bytes that are not a whole batch"] += 1
            start = min(entry.at + HEADER_UP_TO_MAGIC, end) if _is_head(listing.view[entry.at : end]) else entry.at
            yield bytes(listing.view[entry.at : start])
            for at in range(start, end, PIECE_BYTES):
                piece = bytes(listing.view[at : min(at + PIECE_BYTES, end)])
                # The zeros of a file that was made larger before it is written.
                yield piece if not piece.strip(b"\0") else hidden(piece)

    def _batch(self, frame: bytes) -> bytes:
        magic, is_right = frame[MAGIC_AT], has_crc(frame)
        span, stream = stream_of(frame), opened(frame)
        # Bytes that are in no part stay hidden.
        outside, inside = bytearray(hidden(frame)), bytearray(b"" if stream is None else hidden(stream.data))
        is_large = max(len(frame), len(inside)) > LARGE_BYTES
        bounds = Bounds(records=RECORDS_MAX, headers=FEW_HEADERS_MAX if is_large else HEADERS_MAX)
        # The records that the flag and the key show to be control records. The flag alone may be damage.
        controls: set[str] = set()
        for part in annotate(frame, bounds=bounds):
            made = inside if part.path.startswith("batch[0].payload") else outside
            # The codec's byte has the other attributes too.
            may_control = magic == 2 and frame[CODEC_AT[2]] & CONTROL and ".headers[" not in part.path
            if may_control and part.field == "key" and max(part.data[CONTROL_KEY]) < TEXT_FROM:
                controls.add(part.path)
            made[part.at : part.at + part.size] = self._part(part, magic, is_control=part.path in controls)
        if span is None or stream is None:
            return seal(bytes(outside), False, is_right)
        start, end = span[0], sum(span)
        if stream.ended == "whole":
            payload = bytes(inside) if magic == 2 else _sealed_messages(stream.data, bytes(inside))
            packed = compress(CODECS[codec_number(frame)], payload, magic=magic)
            packed += hidden(frame[start + stream.consumed : end])
        else:
            self.whole["a compressed payload that cannot be decompressed"] += 1
            packed = hidden(frame[start:end])
        before = (
            outside[:start] if magic == 2 else outside[: start - INT_BYTES] + len(packed).to_bytes(INT_BYTES, "big")
        )
        return seal(bytes(before + packed + outside[end:]), True, is_right)

    def _part(self, part: Part, magic: int, *, is_control: bool) -> bytes:
        """The new bytes of a part of a batch."""
        if part.left_out:
            self.whole["the records or headers after the first ones of a large batch"] += 1
        if part.left_out or part.field == "payload":
            return b"x" * part.size
        if part.field in REFUSED:
            start = MESSAGE_AT[magic]["attributes"] + 1 + 8 * magic if magic < 2 else 0
            return self._begun(part.data, magic, start - LOG_OVERHEAD if part.field == "message" else start)
        if part.field not in CONTENTS or (self.keeps_header_keys and part.field == "key" and ".headers[" in part.path):
            return part.data
        kept = CONTROL_BYTES if is_control else 0
        return part.data[:kept] + self.swap(part.data[kept:])

    def _begun(self, data: bytes, magic: int, start: int) -> bytes:
        """The first record of ``data``, as far as its fields can be told apart; all that follows is hidden.

        Of a message, the ``start`` bytes of its first fields are kept.
        """
        made = bytearray(hidden(data))
        at, end = min(start, len(data)), len(data)
        made[:at] = data[:at]
        # A size in bytes; 0: a number; -1: a number of bytes, and these bytes.
        steps = [-1, -1] if magic < 2 else [0, 1, 0, 0, -1, -1, 0]
        for i, step in enumerate(steps):
            number, size = 0, step
            if step <= 0 and magic < 2:
                number, size = int.from_bytes(data[at : at + INT_BYTES], "big", signed=True), INT_BYTES
            elif step <= 0:
                number, size = uvarint_of(data[at:end], 2 * VARINT_BYTES_MAX if i == DELTA_STEP else VARINT_BYTES_MAX)
                number = number >> 1 ^ -(number & 1)
            if i == ATTRIBUTES_STEP and magic == 2 and at < end and data[at] >= TEXT_FROM:
                # No record begins here. These bytes may be a part of what somebody wrote.
                return hidden(data)
            if size <= 0 or at + size > end:
                # A varint without an end stays one.
                run = LONG.match(data, at, end) if magic == 2 else None
                made[at : run.end() if run else at] = b"\xff" * (run.end() - at if run else 0)
                break
            made[at : at + size] = data[at : at + size]
            at += size
            if step < 0 and number > 0:
                made[at : min(at + number, end)] = self.swap(data[at : min(at + number, end)])
                at += number
            elif magic == 2 and i == 0 and number >= 0:
                end = min(end, at + number)
            elif i == COUNT_STEP:
                steps += [-1] * min(2 * max(number, 0), 2 * HEADERS_MAX)
        return bytes(made)

    # ---------------------------------------------------------------------------------------------- messages

    def message(self, definition: Definition, version: int, data: bytes) -> bytes:
        """A message without its header. Numbers, uuids and null are kept."""
        _, notes, places = schema(definition, version).places(data, PLACES_MAX)
        if len(places) == PLACES_MAX:
            self.whole[f"a message with more than {PLACES_MAX:,} parts"] += 1
            return hidden(data)
        made: list[bytes] = []
        end = 0
        for at, size, path, what, value in places:
            new = data[at : at + size]
            if what == "value" and not isinstance(value, int | float) and not OF_KAFKA.search(path):
                found = field_of(definition, path)
                kind = found.type.name if found else "bytes"
                if kind == "records":
                    new = b"".join(self.batches(new))
                    made[-1] = _resized(made[-1], len(new) - size)
                elif kind != "uuid":
                    new = self.swap(new)
            made += hidden(data[end:at]), new
            end = at + size
        # The number at which a message is refused, such as a length, or a part of it.
        is_number = any(note[1] == end and NUMERIC.search(note[0]) for note in notes)
        kept = max(INT_BYTES, uvarint_of(data[end:], VARINT_BYTES_MAX)[1]) if is_number else 0
        return b"".join(made) + data[end : end + kept] + hidden(data[end + kept :])

    def frame(self, data: memoryview, one: Frame, *, is_response: bool) -> bytes:
        """A request or a response of ``data``, with its length."""
        raw = bytes(data[one.at : one.at + one.size])
        length, rest = raw[:LENGTH_BYTES], raw[LENGTH_BYTES:]
        if one.definition is None:
            # kfuzz does not know what these bytes mean. After a SaslHandshake of version 0, they are a log-in.
            made = hidden(rest)
        elif one.body_at:
            at = one.body_at - one.at - LENGTH_BYTES
            header = newest("ResponseHeader" if is_response else "RequestHeader", one.header_version)
            made = self.message(header, one.header_version, rest[:at])
            made += self.message(one.definition, one.version, rest[at:])
        else:
            # The API's key and version, and the correlation id.
            kept = INT_BYTES if is_response else 2 * INT_BYTES
            made = rest[:kept] + hidden(rest[kept:])
        if one.error or one.definition is None:
            self.whole["a frame that cannot be read"] += 1
        is_whole = int.from_bytes(length, "big") == len(rest)
        return (len(made).to_bytes(LENGTH_BYTES, "big") if is_whole else length) + made

    def capture(self, sent: Buffer, received: Buffer | None) -> tuple[list[tuple[int, bytes]], ...]:
        """The requests and the responses of a connection, each with the byte at which it begins in ``sent`` or
        ``received``.
        """
        found = list(frames_of(sent, received))
        requests = [one for one in found if not one.is_stray]
        responses = [one for one in found if one.is_stray] + [one.answer for one in requests if one.answer]
        view, other = memoryview(sent).cast("B"), memoryview(b"" if received is None else received).cast("B")
        return (
            [(one.at, self.frame(view, one, is_response=False)) for one in requests],
            [(one.at, self.frame(other, one, is_response=True)) for one in sorted(responses, key=lambda one: one.at)],
        )


def _is_head(data: memoryview) -> bool:
    """Whether a batch may begin here, rather than something that somebody wrote."""
    head = bytes(data[:HEADER_UP_TO_MAGIC])
    return head[:1] in OFFSET_BEGINS and not WORD.search(head)


def hidden(data: bytes) -> bytes:
    """Bytes in place of those whose meaning is not known."""
    return b"x" * len(data)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sealed_messages(before: bytes, after: bytes) -> bytes:
    """The messages of a wrapper; each CRC that was right is right again."""
    made = bytearray(after)
    for at, size, _ in frames(before, any_magic=True):
        made[at : at + size] = seal(after[at : at + size], False, has_crc(before[at : at + size]))
    return bytes(made)


def _resized(length: bytes, by: int) -> bytes:
    """The length of a field of records that grew ``by`` so many bytes: an int32, or a varint of one more."""
    number = int.from_bytes(length, "big", signed=True)
    if len(length) == INT_BYTES and not length[0] & 0x80:
        return (number + by).to_bytes(INT_BYTES, "big")
    return uvarint(uvarint_of(length, VARINT_BYTES_MAX)[0] + by)


# --------------------------------------------------------------------------------------------------- the check


def changed_batches(before: Buffer, after: Buffer) -> Iterator[str]:
    """A sentence about each batch that has other findings than it had, for a consumer or a broker's log."""
    roles: tuple[Role, ...] = ("consumer", "log")
    for role in roles:
        for one, other in zip_longest(Listing(before, role=role), Listing(after, role=role)):
            found = [None if entry is None else (entry.kind, _codes(entry.findings)) for entry in (one, other)]
            if found[0] != found[1]:
                entry = one or other
                yield f"batch {entry.number}, as role {role}: {_text(found[0])} became {_text(found[1])}"


def changed_frames(before: Iterable[Frame], after: Iterable[Frame]) -> Iterator[str]:
    """A sentence about each frame that has other findings than it had."""
    for one, other in zip_longest(before, after):
        found = []
        for frame in (one, other):
            both = [half for half in (frame, frame and frame.answer) if half]
            codes = [code for half in both for code in _codes(half.findings)]
            found.append(
                ("frame", codes + [NUMBER.sub("N", half.error) for half in both if half.error]) if both else None
            )
        if found[0] != found[1]:
            yield f"frame {(one or other).number}: {_text(found[0])} became {_text(found[1])}"


def _codes(findings: Iterable[Finding]) -> list[str]:
    return sorted(f"{one.severity} {one.code} at {one.path}" for one in findings)


def _text(found: tuple[str, list[str]] | None) -> str:
    return "nothing" if found is None else f"{found[0]} with {', '.join(found[1]) or 'no finding'}"
