"""Finds the fields that kill: those whose bytes an input needs to break something in the way that it does.

:func:`killing_fields` replaces one field at a time by an ordinary value, repairs lengths and CRCs as far as they were
right, and asks whether the changed input still breaks in the same way. Equal inputs and equal answers give equal
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from kfuzz.annotate.messages import walk
from kfuzz.annotate.parts import Part, scope_of, uvarint_size
from kfuzz.annotate.records import annotate as annotate_records
from kfuzz.kafka import CODECS, INT32_MAX, MESSAGE_CODECS
from kfuzz.messages.model import Definition
from kfuzz.mutate.shrinking import PLAIN, has_crc, sealed, zigzag
from kfuzz.records.codecs import compress, decompress
from kfuzz.wire.io.cursor import uvarint_of
from kfuzz.wire.io.layout import (
    BATCH_HEADER_SIZE,
    CODEC_AT,
    CODEC_MASK,
    HEADER_AT,
    HEADER_LAYOUT,
    LOG_OVERHEAD,
    MAGIC_AT,
)
from kfuzz.wire.records.framing import frames, next_frame
from kfuzz.wire.records.message_set import encode_message, parse_message
from kfuzz.wire.records.record_batch import parse_header, parse_places

__all__ = ["KillingField", "Message", "killing_fields", "mark"]

Message = tuple[Definition, int]

PAYLOAD_BYTES_MAX: Final = 1 << 20
# An opaque part (a broken payload, bytes that are no record) is searched byte by byte up to this length.
OPAQUE_BYTES_MAX: Final = 256
TRIES_MAX: Final = 1500
VARINT_BYTES_MAX: Final = 10
FIELDS: Final = {name: i for i, (name, _, _) in enumerate(HEADER_LAYOUT)}
LEGACY_PLAIN: Final = {"base_offset": 0, "timestamp": 0}
# In place of the bytes of a CRC: the right ones.
CRC: Final = b"right CRC"
# Fields that say how much follows. Another value moves all bytes after it, which proves nothing about the field.
FRAMING: Final = frozenset({"batch_length", "magic", "key_length", "value_length", "header_count", "length"})
OPAQUE: Final = frozenset({"rest", "payload", "message", ""})
# The order in which fields are named: what contradicts the other bytes, then unusual numbers, then contents. Only if
# none of them is found: bytes without a known meaning, one by one, and then a whole payload.
LIE, NUMBER, CONTENT, BYTES, WHOLE = range(5)
STAGES: Final = ((LIE, NUMBER, CONTENT), (BYTES,), (WHOLE,))


@dataclass(frozen=True, slots=True)
class KillingField:
    """A field by its whole path, as a dump shows it, and its place: in the buffer, or in the decompressed payload if
    the path goes through one. ``at`` and ``size`` are in bytes.
    """

    field: str
    at: int
    size: int

    def __str__(self) -> str:
        return f"{self.field} at byte {self.at} ({self.size} byte{'' if self.size == 1 else 's'})"

    def to_json(self) -> dict[str, Any]:
        """The form in which it is kept beside an input."""
        return {"field": self.field, "at": self.at, "size": self.size}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> KillingField:
        """The field that ``to_json`` wrote; ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        return cls(str(value["field"]), int(value["at"]), int(value["size"]))


@dataclass(frozen=True, slots=True)
class _Splice:
    """New bytes in place of ``size`` bytes at ``at`` of a buffer or of the payload of the batch in ``scope``."""

    scope: str
    at: int
    size: int
    new: bytes


@dataclass(frozen=True, slots=True)
class _Edit:
    """One change of one field. ``is_plain``: the new value is an ordinary one, and the old one is not."""

    field: KillingField
    tier: int
    is_plain: bool
    splices: tuple[_Splice, ...]


def killing_fields(
    data: bytes, breaks: Callable[[bytes], bool], message: Message | None = None
) -> tuple[KillingField, ...]:
    """The fields without which ``data`` does not break in the same way, the most telling one first; empty if there are
    none.

    ``breaks`` says whether an input breaks in that way; it must be true for ``data``. ``data`` holds record batches,
    or the bytes of ``message``, without a header.

    Each field alone is enough to make it go away. If no single one is, the result is a smallest set of fields that
    does so together. A field that is as in an ordinary batch is named only if no other field is.
    """
    body = _Body(data, message)
    asked = 0
    answers: dict[bytes, bool] = {}

    def goes_away(edits: Sequence[_Edit]) -> bool:
        nonlocal asked
        changed = body.changed([splice for edit in edits for splice in edit.splices])
        if changed is None or changed == data:
            return False
        if changed not in answers:
            if asked >= TRIES_MAX:
                return False
            asked += 1
            answers[changed] = not breaks(changed)
        return answers[changed]

    edits = list(body.edits())
    for is_plain in (True, False):
        chosen = [edit for edit in edits if edit.is_plain is is_plain]
        for tiers in STAGES:
            of_tiers = [edit for edit in chosen if edit.tier in tiers]
            found = {edit.field: edit for edit in reversed(of_tiers) if goes_away([edit])}
            if found:
                return tuple(_ordered(found.values()))
            together = _together(of_tiers, goes_away) if is_plain else []
            if together:
                return tuple(_ordered(together))
    return ()


def _together(edits: Sequence[_Edit], goes_away: Callable[[Sequence[_Edit]], bool]) -> list[_Edit]:
    """A smallest set of edits of different fields that make it go away together; empty if even all do not."""
    needed = list({edit.field: edit for edit in reversed(edits)}.values())
    if not goes_away(needed):
        return []
    for edit in list(needed):
        fewer = [one for one in needed if one is not edit]
        if goes_away(fewer):
            needed = fewer
    return needed


def _ordered(edits: Iterable[_Edit]) -> Iterator[KillingField]:
    """The fields, the most telling one first. Neighbouring bytes of one opaque part become one field."""

    def rank(edit: _Edit) -> tuple[int, int, int, int]:
        inside = edit.field.field.count(".")
        return edit.tier, -inside, edit.field.size, edit.field.at

    fields: list[KillingField] = []
    for field in (edit.field for edit in sorted(edits, key=rank)):
        last = fields[-1] if fields else None
        if last is not None and last.field == field.field and last.at + last.size == field.at:
            fields[-1] = replace(last, size=last.size + field.size)
        else:
            fields.append(field)
    yield from fields


def mark(parts: Sequence[Part], field: KillingField) -> int | None:
    """The index of the part of a dump that holds the field; None if the dump does not show it.

    A field of a record or message that cannot be read to its end lies in a part without a meaning.
    """
    scope = scope_of(field.field)
    holding = None
    for i, part in enumerate(parts):
        if part.at <= field.at < part.at + part.size and scope_of(f"{part.path}.{part.field}") == scope:
            if _name(part) == field.field:
                return i
            holding = i
    return holding


def _name(part: Part) -> str:
    return f"{part.path}.{part.field}" if part.field else part.path


class _Body:
    """An input that is taken apart, and changed field by field."""

    def __init__(self, data: bytes, message: Message | None) -> None:
        self.data = data
        self.is_message = message is not None
        if message is None:
            self.parts = list(annotate_records(data))
            self.kinds: dict[int, str] = {}
            self.stops: list[tuple[str, int, int]] = []
        else:
            self.parts, self.kinds, self.stops = walk(*message, data)
        # The batches by their paths: where each begins, and its size.
        self.batches = {
            part.path: (part.at, next_frame(data, part.at)[0])
            for part in self.parts
            if part.heading and not part.data and part.path == scope_of(part.path) and part.at < len(data)
        }
        # Those whose compressed payload cannot be decompressed to its end.
        self.broken = {name for name, (at, size) in self.batches.items() if _is_broken(data[at : at + size])}

    # --------------------------------------------------------------------------------------------- changes

    def changed(self, splices: Sequence[_Splice]) -> bytes | None:
        """The input with these changes, and with lengths and CRCs that are right if they were; None if that is not
        possible.
        """
        direct = [splice for splice in splices if _batch_of(splice.scope) not in self.batches]
        made = _spliced(self.data, direct)
        inside = [splice for splice in splices if _batch_of(splice.scope) in self.batches]
        # From the last batch to the first, so that places stay right.
        for name, group in groupby(
            sorted(inside, key=lambda splice: -self.batches[_batch_of(splice.scope)][0]),
            key=lambda splice: _batch_of(splice.scope),
        ):
            at, size = self.batches[name]
            frame = self._changed_batch(self.data[at : at + size], at, list(group))
            # The message around the batch has a length of its own.
            if frame is None or (self.is_message and len(frame) != size):
                return None
            made = made[:at] + frame + made[at + size :]
        return made

    def _changed_batch(self, frame: bytes, at: int, splices: Sequence[_Splice]) -> bytes | None:
        magic = frame[MAGIC_AT]
        of_payload = [splice for splice in splices if splice.scope.endswith(".payload")]
        direct = [replace(splice, at=splice.at - at) for splice in splices if splice not in of_payload]
        made: bytes | None = _spliced(frame, direct)
        if of_payload:
            made = _with_payload(made or b"", magic, lambda payload: _spliced_payload(payload, magic, of_payload))
        if made is None:
            return None
        return sealed(made, magic, has_crc(frame, magic) or any(splice.new == CRC for splice in splices))

    # --------------------------------------------------------------------------------------------- fields

    def edits(self) -> Iterator[_Edit]:
        """All changes of single fields, in the order of the fields."""
        if self.is_message:
            yield from self._of_message()
        parts = [part for part in self.parts if part.data]
        # Each record and each header of a batch is a group of its own.
        for path, group in groupby(parts, key=lambda part: part.path):
            if scope_of(path):
                yield from self._of_group(path, list(group))

    def _of_group(self, path: str, parts: Sequence[Part]) -> Iterator[_Edit]:
        scope = scope_of(f"{path}.")
        name = _batch_of(scope)
        if name not in self.batches:
            for part in parts:
                yield from _of_no_batch(part)
                yield from _opaque("", part)
            return
        at, size = self.batches[name]
        frame = self.data[at : at + size]
        magic = frame[MAGIC_AT]
        # The readable part of a broken payload would be whole again after any change.
        if scope != name and name in self.broken:
            return
        for i, part in enumerate(parts):
            following = parts[i + 1] if i + 1 < len(parts) else None
            if self._is_stream(name, part, magic):
                if name in self.broken:
                    yield from _opaque(scope, part, LIE)
                plain = b"" if magic == 2 else encode_message(magic, 0, 0, 0, None, b"")
                yield _edit(scope, part, WHOLE, True, compress(CODECS[_codec(frame)], plain, magic=magic))
            elif part.field in OPAQUE:
                yield from self._of_rest(scope, part)
                yield from _opaque(scope, part)
                yield _edit(scope, part, WHOLE, True, b"")
            elif part.field == "crc":
                # Splices of right CRCs change nothing.
                yield _edit(scope, part, LIE, True, CRC)
            elif magic == 2 and path == name:
                yield from self._of_header(scope, part, at, size)
            elif magic == 2:
                yield from self._of_record(scope, part, following, path)
            else:
                yield from _of_message_field(scope, part, magic)

    def _is_stream(self, name: str, part: Part, magic: int) -> bool:
        """Whether the part is the compressed payload of a batch."""
        at, size = self.batches[name]
        is_field = part.path == name and part.field == ("payload" if magic == 2 else "value")
        return is_field and 0 < _codec(self.data[at : at + size]) < len(CODECS)

    def _of_rest(self, scope: str, part: Part) -> Iterator[_Edit]:
        """The field at which the reader of records or messages stops."""
        name = _batch_of(scope)
        at, size = self.batches[name]
        frame = self.data[at : at + size]
        if frame[MAGIC_AT] != 2:
            if scope != name:
                return
            notes = parse_message(self.data, at, size)[1]
        elif scope == name:
            notes = parse_places(self.data[: at + size], at + BATCH_HEADER_SIZE, parse_header(self.data, at))[2]
        else:
            notes = parse_places(self._payload(frame), 0, parse_header(frame, 0))[2]
        for _, field, field_at, record, header, _, allowed, _ in notes:
            start = field_at - part.at
            if field in FRAMING and 0 <= start < len(part.data):
                path = part.path if record < 0 else f"{part.path}.records[{record}]"
                path += "" if header < 0 else f".headers[{header}]"
                width = 4 if frame[MAGIC_AT] != 2 else uvarint_size(part.data[start:])
                whole = Part(path, field, field_at, part.data[start : start + width], "")
                for number in dict.fromkeys((max(allowed, 0), 0, 1)):
                    new = number.to_bytes(4, "big") if frame[MAGIC_AT] != 2 else _padded(number, width)
                    if new is not None:
                        yield _edit(scope, whole, LIE, True, new)

    def _payload(self, frame: bytes) -> bytes:
        return decompress(CODECS[_codec(frame)], frame[BATCH_HEADER_SIZE:], PAYLOAD_BYTES_MAX).data

    def _of_header(self, scope: str, part: Part, at: int, size: int) -> Iterator[_Edit]:
        """A field of the header of a batch of magic 2."""
        value = int.from_bytes(part.data, "big", signed=True)
        if part.field in FRAMING:
            return
        plain = PLAIN.get(part.field, value)
        tier = NUMBER
        if part.field == "attributes":
            # The codec belongs to the payload, unless there is no such codec or no payload.
            codec = value & CODEC_MASK
            has_payload = size > BATCH_HEADER_SIZE
            plain, tier = (codec, NUMBER) if codec < len(CODECS) and has_payload else (0, LIE if codec else NUMBER)
        elif part.field == "record_count":
            count = self._readable(at, size)
            plain, tier = (value if count is None else count), LIE
        elif part.field == "last_offset_delta":
            count = int.from_bytes(self.data[at + BATCH_HEADER_SIZE - 4 : at + BATCH_HEADER_SIZE], "big", signed=True)
            plain = value if value == max(count - 1, 0) else max(count - 1, 0)
        yield from _numbers(scope, part, tier, value, plain)

    def _readable(self, at: int, size: int) -> int | None:
        """How many records the batch holds, whatever it says; None if that cannot be known."""
        header = parse_header(self.data, at)
        codec = header[FIELDS["attributes"]] & CODEC_MASK
        payload = self.data[at + BATCH_HEADER_SIZE : at + size]
        if codec >= len(CODECS) or _batch_path(self.batches, at) in self.broken:
            return None
        if codec:
            payload = self._payload(self.data[at : at + size])
        if not payload:
            return 0
        most = tuple(INT32_MAX if i == FIELDS["record_count"] else number for i, number in enumerate(header))
        _, places, notes = parse_places(payload, 0, most)  # type: ignore[arg-type]
        # The records end in bytes that are none: the count may be right.
        at_end = all(field == "record_count" for _, field, *_ in notes)
        return len(places) if at_end else None

    def _of_record(self, scope: str, part: Part, following: Part | None, path: str) -> Iterator[_Edit]:
        """A field of a record of magic 2, or of one of its headers."""
        if part.field in ("key", "value"):
            yield from _contents(scope, part)
        elif part.field == "attributes":
            yield from _numbers(scope, part, NUMBER, int.from_bytes(part.data, "big", signed=True), 0)
        elif part.field in ("timestamp_delta", "offset_delta"):
            value = _unzigzag(part.data)
            index = int(path.rpartition("[")[2].rstrip("]"))
            plain = index if part.field == "offset_delta" else 0
            yield from _varints(scope, part, NUMBER, value, plain)
        elif part.field == "length":
            yield from self._of_length(scope, part, path)
        elif part.field in ("key_length", "value_length"):
            yield from _presence(scope, part)
            if following is not None and following.field == part.field.removesuffix("_length"):
                yield from self._shorter(scope, part, following, path)
        elif part.field == "header_count" and part.data == b"\x01":
            # A negative count without headers.
            yield _edit(scope, part, LIE, True, b"\x00")

    def _record_end(self, path: str) -> int:
        inside = [part for part in self.parts if part.data and f"{part.path}.".startswith(f"{path}.")]
        return inside[-1].at + len(inside[-1].data)

    def _of_length(self, scope: str, part: Part, path: str) -> Iterator[_Edit]:
        right = self._record_end(path) - part.at - len(part.data)
        if _unzigzag(part.data) != right and (new := _padded(right, len(part.data))) is not None:
            yield _edit(scope, part, LIE, True, new)

    def _shorter(self, scope: str, part: Part, following: Part, path: str) -> Iterator[_Edit]:
        """The length, with the last byte of the contents left out."""
        record = path.partition(".headers[")[0]
        length = next(one for one in self.parts if one.path == record and one.field == "length")
        fewer = _padded(_unzigzag(part.data) - 1, len(part.data))
        within = _padded(_unzigzag(length.data) - 1, len(length.data))
        if fewer is not None and within is not None:
            yield _Edit(
                _field(part),
                LIE,
                False,
                (
                    _Splice(scope, length.at, len(length.data), within),
                    _Splice(scope, part.at, len(part.data), fewer),
                    _Splice(scope, following.at + len(following.data) - 1, 1, b""),
                ),
            )

    # --------------------------------------------------------------------------------------------- messages

    def _of_message(self) -> Iterator[_Edit]:
        """The fields of a message outside of its record batches."""
        parts = [part for part in self.parts if part.data and not scope_of(_name(part))]
        for i, part in enumerate(parts):
            kind = self.kinds.get(part.at, "rest")
            is_last = i + 1 < len(parts) and parts[i + 1].field == "rest"
            if kind == "rest":
                yield from self._of_stop(part)
                yield from _opaque("", part)
            elif kind == "value":
                yield from _message_value(part)
            # The message cannot be read beyond the last of its fields, so its value moves nothing.
            elif is_last or kind == "tag":
                for tier, plain, new in ((LIE, is_last, bytes(len(part.data))), (LIE, False, _stepped(part.data))):
                    yield _edit("", part, tier, plain, new)

    def _of_stop(self, part: Part) -> Iterator[_Edit]:
        """The length or count at which the walk of a message stops."""
        for path, at, size in self.stops:
            start = at - part.at
            if 0 <= start < len(part.data):
                owner, _, name = path.rpartition(".")
                whole = Part(owner, name, at, part.data[start : start + size], "")
                for number in (0, 1):
                    # As an unsigned varint of as many bytes, and as a number of fixed width.
                    more = bytes([number | 0x80]) + b"\x80" * (size - 2) + b"\0" if size > 1 else bytes([number])
                    yield _edit("", whole, LIE, True, more)
                    yield _edit("", whole, LIE, True, number.to_bytes(size, "big"))


# --------------------------------------------------------------------------------------------------- kinds of fields


def _field(part: Part) -> KillingField:
    return KillingField(_name(part), part.at, len(part.data))


def _edit(scope: str, part: Part, tier: int, is_plain: bool, new: bytes) -> _Edit:
    return _Edit(_field(part), tier, is_plain, (_Splice(scope, part.at, len(part.data), new),))


def _numbers(scope: str, part: Part, tier: int, value: int, plain: int) -> Iterator[_Edit]:
    """A number of fixed width: its ordinary value if it has another one, and its neighbours."""
    width = len(part.data)

    def encoded(number: int) -> bytes:
        return (number & ((1 << 8 * width) - 1)).to_bytes(width, "big")

    if value != plain:
        yield _edit(scope, part, tier, True, encoded(plain))
    elif tier == NUMBER and part.field != "attributes":
        yield from (_edit(scope, part, tier, False, encoded(number)) for number in (value + 1, value - 1))


def _varints(scope: str, part: Part, tier: int, value: int, plain: int) -> Iterator[_Edit]:
    """A zigzag varint. Its new value takes as many bytes, so that nothing after it moves."""
    numbers = [(plain, True)] if value != plain else [(value + 1, False), (value - 1, False)]
    for number, is_plain in numbers:
        if (new := _padded(number, len(part.data))) is not None:
            yield _edit(scope, part, tier, is_plain, new)


def _contents(scope: str, part: Part) -> Iterator[_Edit]:
    """Bytes of a key or value: letters, zeros."""
    for letter in (b"x", b"\0", b"y"):
        yield _edit(scope, part, CONTENT, part.data.strip(b"x\0") != b"", letter * len(part.data))


def _presence(scope: str, part: Part) -> Iterator[_Edit]:
    """The length of something null or empty: the other one of the two."""
    value = _unzigzag(part.data)
    if value < -1 and (null := _padded(-1, len(part.data))) is not None:
        yield _edit(scope, part, LIE, True, null)
    if value in (-1, 0) and (new := _padded(-1 - value, len(part.data))) is not None:
        yield _edit(scope, part, LIE, False, new)


def _opaque(scope: str, part: Part, tier: int = BYTES) -> Iterator[_Edit]:
    """Bytes without a known meaning, one at a time."""
    name = _name(part)
    for i, byte in enumerate(part.data[:OPAQUE_BYTES_MAX]):
        at = part.at + i
        yield _Edit(KillingField(name, at, 1), tier, True, (_Splice(scope, at, 1, bytes([byte == 0])),))


def _of_no_batch(part: Part) -> Iterator[_Edit]:
    """The length and the magic of bytes that are no whole batch."""
    if len(part.data) < LOG_OVERHEAD:
        return
    at = HEADER_AT["batch_length"]
    length = Part(part.path, "batch_length", part.at + at, part.data[at:LOG_OVERHEAD], "")
    right = (len(part.data) - LOG_OVERHEAD).to_bytes(4, "big")
    if right != length.data:
        yield _edit("", length, LIE, True, right)
    if len(part.data) > MAGIC_AT and part.data[MAGIC_AT] > 2:
        magic = Part(part.path, "magic", part.at + MAGIC_AT, part.data[MAGIC_AT : MAGIC_AT + 1], "")
        yield _edit("", magic, LIE, True, b"\x02")


def _of_message_field(scope: str, part: Part, magic: int) -> Iterator[_Edit]:
    """A field of a message of magic 0 or 1, or of one inside a wrapper of ``magic``."""
    if part.field in ("key", "value"):
        yield from _contents(scope, part)
    elif part.field in LEGACY_PLAIN:
        value = int.from_bytes(part.data, "big", signed=True)
        yield from _numbers(scope, part, NUMBER, value, LEGACY_PLAIN[part.field])
    elif part.field == "attributes" and part.data[0] & ~CODEC_MASK:
        yield _edit(scope, part, NUMBER, True, bytes([part.data[0] & CODEC_MASK]))
    elif part.field == "attributes" and part.data[0] >= len(MESSAGE_CODECS):
        yield _edit(scope, part, LIE, True, b"\0")
    elif part.field == "magic" and part.data[0] != magic:
        yield _edit(scope, part, LIE, True, bytes([magic]))
    elif part.field in ("key_length", "value_length"):
        value = int.from_bytes(part.data, "big", signed=True)
        if value < -1:
            yield _edit(scope, part, LIE, True, b"\xff" * 4)
        elif value <= 0:
            yield _edit(scope, part, LIE, False, (-1 - value).to_bytes(4, "big", signed=True))


def _message_value(part: Part) -> Iterator[_Edit]:
    """A value in a message, whatever its type: zeros, and another value of as many bytes."""
    if any(part.data):
        yield _edit("", part, NUMBER, True, bytes(len(part.data)))
    yield _edit("", part, NUMBER, False, _stepped(part.data))


def _stepped(data: bytes) -> bytes:
    """The bytes with another last byte."""
    return data[:-1] + bytes([data[-1] ^ 1])


# --------------------------------------------------------------------------------------------------- bytes


def _batch_of(scope: str) -> str:
    return scope.removesuffix(".payload")


def _batch_path(batches: Mapping[str, tuple[int, int]], at: int) -> str:
    return next(name for name, (begin, _) in batches.items() if begin == at)


def _codec(frame: bytes) -> int:
    return frame[CODEC_AT[frame[MAGIC_AT]]] & CODEC_MASK


def _is_broken(frame: bytes) -> bool:
    """Whether the batch has a compressed payload that cannot be decompressed to its end."""
    magic, codec = frame[MAGIC_AT], _codec(frame)
    if not 0 < codec < len(CODECS):
        return False
    if magic == 2:
        payload = frame[BATCH_HEADER_SIZE:]
    else:
        message, _ = parse_message(frame, 0, len(frame))
        if message is None or message[6][1] < 0:
            return False
        payload = frame[message[6][0] : sum(message[6])]
    return decompress(CODECS[codec], payload, PAYLOAD_BYTES_MAX, magic=magic).ended != "whole"


def _spliced(data: bytes, splices: Iterable[_Splice]) -> bytes:
    for splice in sorted(splices, key=lambda splice: -splice.at):
        # A CRC is repaired when the batch is sealed.
        if splice.new != CRC:
            data = data[: splice.at] + splice.new + data[splice.at + splice.size :]
    return data


def _spliced_payload(payload: bytes, magic: int, splices: Sequence[_Splice]) -> bytes:
    made = _spliced(payload, splices)
    if magic == 2 or len(made) != len(payload):
        return made
    # The messages inside a wrapper have a CRC of their own, and their sizes stay.
    out = bytearray(made)
    for at, size, inner in frames(payload, any_magic=True):
        is_new = any(splice.new == CRC and at <= splice.at < at + size for splice in splices)
        out[at : at + size] = sealed(made[at : at + size], inner, is_new or has_crc(payload[at : at + size], inner))
    return bytes(out)


def _with_payload(frame: bytes, magic: int, change: Callable[[bytes], bytes]) -> bytes | None:
    """The batch with another payload under the same codec; its CRC is not right yet."""
    codec = frame[CODEC_AT[magic]] & CODEC_MASK
    if not 0 < codec < len(CODECS):
        return None
    if magic == 2:
        opened = decompress(CODECS[codec], frame[BATCH_HEADER_SIZE:], PAYLOAD_BYTES_MAX)
        return frame[:BATCH_HEADER_SIZE] + compress(CODECS[codec], change(opened.data))
    message, _ = parse_message(frame, 0, len(frame))
    if message is None:
        return None
    offset, _, _, attributes, timestamp, key, (value_at, value_length), _ = message
    opened = decompress(CODECS[codec], frame[value_at : value_at + value_length], PAYLOAD_BYTES_MAX, magic=magic)
    value = compress(CODECS[codec], change(opened.data), magic=magic)
    return encode_message(magic, offset, attributes, timestamp, key, value)


def _unzigzag(data: bytes) -> int:
    value, _ = uvarint_of(data, VARINT_BYTES_MAX)
    return value >> 1 ^ -(value & 1)


def _padded(number: int, width: int) -> bytes | None:
    """The zigzag varint in exactly ``width`` bytes; None if it needs more."""
    short = zigzag(number)
    if len(short) > width:
        return None
    head = bytes(byte | 0x80 for byte in short)
    return (head + b"\x80" * (width - len(short)))[: width - 1] + bytes([0 if len(short) < width else short[-1]])
