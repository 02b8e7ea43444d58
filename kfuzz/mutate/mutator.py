"""The structure-aware mutator: it changes the structure of a well-formed input, then repairs parts of it at random."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kfuzz.errors import UsageError
from kfuzz.kafka import CODECS, Codec, Role
from kfuzz.mutate import source
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.edit import frame_spans, record_numbers, record_spans, scramble, seal, varlong
from kfuzz.records.codecs import compress, decompress
from kfuzz.records.writer import encode_batch
from kfuzz.wire.layout import (
    BATCH_HEADER_SIZE,
    CODEC_AT,
    CODEC_MASK,
    HEADER_AT,
    HEADER_LAYOUT,
    MAGIC_AT,
    MESSAGE_AT,
    MESSAGE_LAYOUT,
)

__all__ = ["KINDS", "Mutator"]

# Share of inputs that stay unchanged, to test that readers still accept valid input.
UNCHANGED: Final = 0.05
# Share of inputs that begin with a seed, if seeds were given.
FROM_SEED: Final = 0.4
PAYLOAD_BYTES_MAX: Final = 1 << 20
FORMATS: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
LAYOUTS: Final = {**MESSAGE_LAYOUT, 2: HEADER_LAYOUT}
# Repair overwrites these fields, so it must leave out the field that was changed.
SEALED: Final = ("batch_length", "crc")


def _telling(width: int) -> tuple[int, ...]:
    """Values of a signed field of ``width`` bytes that have caused errors in readers."""
    top = 1 << (8 * width - 1)
    values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 14, 16, 32, 49, 64, 100, 127, -1, -2, -128, top - 1, top - 2, -top, -top + 1}
    for small in (1, 2, 4):
        if width > small:
            edge = 1 << (8 * small - 1)
            values |= {edge, edge - 1, 2 * edge, 2 * edge - 1, -edge}
    return tuple(sorted(value for value in values if -top <= value < top))


TELLING: Final = {width: _telling(width) for width in FORMATS}

# The kinds of changes and their weights; docs/mutate.md explains each kind.
WEIGHTS: Final = {
    "field": 4,
    "record-number": 4,
    "record-overlong": 2,
    "record-scramble": 3,
    "record-duplicate": 1,
    "record-drop": 1,
    "record-reorder": 1,
    "record-splice": 1,
    "payload-scramble": 4,
    "container-scramble": 3,
    "frame-scramble": 2,
    "batch-concatenate": 1,
    "batch-duplicate": 1,
    "batch-swap": 1,
    "batch-truncate": 1,
    "batch-magic": 1,
    "raw-scramble": 1,
}
KINDS: Final = tuple(WEIGHTS)
# After these, the positions of records no longer match their offset deltas.
MOVES: Final = ("record-duplicate", "record-drop", "record-reorder", "record-splice")
# The index of the offset delta in ``record_numbers``: length, timestamp delta, offset delta, …
OFFSET_DELTA: Final = 2
_DRAWN: Final = tuple(kind for kind, weight in WEIGHTS.items() for _ in range(weight))


class Mutator:
    """An endless source of inputs; the same arguments give the same inputs.

    ``repair``: the probability, from 0 to 1, that each length, count, CRC and compression is repaired after a change.
    ``seeds``: inputs to change, besides the generated ones.
    ``codecs``: the codecs of generated batches; must include "none". Compressed bytes depend on the versions of the
    codec libraries; with ``codecs=("none",)`` and no seeds, inputs are the same everywhere.
    ``role``: for "broker", inputs begin as Produce requests (one batch from offset 0 on) and repair keeps that form.

    Raises ``UsageError`` for other values of ``repair`` and ``codecs``.
    """

    def __init__(
        self,
        seed: int,
        *,
        repair: float = 0.95,
        seeds: Sequence[bytes] = (),
        codecs: Sequence[Codec] = CODECS,
        role: Role = "consumer",
    ) -> None:
        if not 0 <= repair <= 1:
            raise UsageError(f"repair is {repair}; give a probability from 0 to 1")
        if "none" not in codecs or not set(codecs) <= set(CODECS):
            raise UsageError(f'codecs are {", ".join(codecs)}; give any of {", ".join(CODECS)}, and always "none"')
        self.seed = seed
        self.repair = repair
        self.seeds = tuple(seeds)
        self.codecs = tuple(codecs)
        self.produced = role == "broker"
        self.index = 0
        # How often each of ``KINDS`` was applied so far.
        self.kinds: Counter[str] = Counter()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.input()

    def input(self) -> bytes:
        """The next input."""
        self.index += 1
        return self.input_at(self.index - 1)

    def input_at(self, index: int) -> bytes:
        """Input number ``index``, counted from 0. It does not depend on earlier calls."""
        dice = Dice(self.seed, index)
        data = self._begin(dice)
        return data if dice.chance(UNCHANGED) else self._mutate(data, dice)

    def mutate(self, data: bytes) -> bytes:
        """``data`` after one to three changes and repair. Accepts any bytes; changes batches by their structure."""
        self.index += 1
        return self._mutate(data, Dice(self.seed, self.index - 1))

    def _begin(self, dice: Dice) -> bytes:
        if self.produced:
            return self._begin_produced(dice)
        if self.seeds and dice.chance(FROM_SEED):
            return dice.pick(self.seeds)
        data = encode_batch(source.batch(dice, self.codecs))
        if dice.chance(0.05):
            data += encode_batch(source.batch(dice, self.codecs))
        return data

    def _begin_produced(self, dice: Dice) -> bytes:
        if self.seeds and dice.chance(FROM_SEED / 2):
            # A broker requires base offset 0, which few seeds have. The CRC does not cover it, so overwrite it.
            return bytes(8) + dice.pick(self.seeds)[8:] if dice.chance(self.repair) else dice.pick(self.seeds)
        return encode_batch(source.produced(dice, self.codecs))

    def _mutate(self, data: bytes, dice: Dice) -> bytes:
        mutation = _Mutation(dice, self.repair, self.codecs, self.produced)
        for _ in range(dice.pick((1, 1, 1, 2, 3))):
            kind = dice.pick(_DRAWN)
            changed = mutation.apply(kind, data)
            if changed is not None:
                self.kinds[kind] += 1
                data = changed
        return data


def _with_offset(record: bytes, delta: int) -> bytes:
    """The record with the offset delta ``delta``; unchanged if its offset delta cannot be read."""
    numbers = record_numbers(record)
    if len(numbers) <= OFFSET_DELTA:
        return record
    (_, length_size, length), (at, size, _) = numbers[0], numbers[OFFSET_DELTA]
    new = varlong(delta)
    return varlong(length + len(new) - size) + record[length_size:at] + new + record[at + size :]


class _Mutation:
    """The changes to one input. Each returns None if the input lacks the part that it would change."""

    def __init__(self, dice: Dice, repair: float, codecs: Sequence[Codec], produced: bool) -> None:
        self.dice = dice
        self.repair = repair
        self.codecs = codecs
        self.produced = produced

    def apply(self, kind: str, data: bytes) -> bytes | None:
        part, _, what = kind.partition("-")
        if part == "raw":
            return scramble(data, self.dice)
        if part == "batch":
            return self._batches(what, data)
        spans = frame_spans(data)
        if not spans:
            return None
        start, end = self.dice.pick(spans)
        frame = self._frame(kind, data[start:end])
        return None if frame is None else data[:start] + frame + data[end:]

    def mend(self) -> bool:
        return self.dice.chance(self.repair)

    def sealed(self, frame: bytes) -> bytes:
        return seal(frame, self.mend(), self.mend())

    # -- whole batches

    def _batches(self, what: str, data: bytes) -> bytes | None:
        dice = self.dice
        if what == "truncate":
            return data[: dice.below(len(data) + 1)]
        if what == "concatenate":
            other = encode_batch(source.batch(dice, self.codecs))
            return data + other if dice.chance(0.5) else other + data
        spans = frame_spans(data)
        if not spans:
            return None
        start, end = dice.pick(spans)
        if what == "duplicate":
            return data[:end] + data[start:end] + data[end:]
        if what == "magic":
            at = start + MAGIC_AT
            frame = data[start:at] + bytes([dice.pick((0, 1, 2, 0, 1, 2, 3, 0x82, 0xFF))]) + data[at + 1 : end]
            return data[:start] + self.sealed(frame) + data[end:]
        frames = [data[a:b] for a, b in spans]
        return b"".join([*reversed(frames), data[spans[-1][1] :]]) if len(frames) > 1 else None

    # -- one batch or message

    def _frame(self, kind: str, frame: bytes) -> bytes | None:
        magic = frame[MAGIC_AT]
        if magic > 2 or (magic == 2 and len(frame) < BATCH_HEADER_SIZE):
            return self.sealed(scramble(frame, self.dice))
        if kind == "field":
            return self._field(frame, magic)
        if kind == "frame-scramble":
            return self.sealed(scramble(frame, self.dice))
        number = frame[CODEC_AT[magic]] & CODEC_MASK
        if number >= len(CODECS):
            return None
        codec = CODECS[number]
        if kind == "container-scramble" and codec == "none":
            return None
        if magic == 2:
            return self._record_batch(kind, frame, codec)
        if codec == "none":
            return self._message(kind, frame, magic)
        return self._wrapper(kind, frame, magic, codec)

    def _field(self, frame: bytes, magic: int) -> bytes | None:
        name, at, width = self.dice.pick(LAYOUTS[magic])
        if len(frame) < at + width:
            return None
        value = struct.pack(">" + FORMATS[width], self._value(frame[at : at + width], width))
        frame = frame[:at] + value + frame[at + width :]
        if name in SEALED:
            return seal(frame, name != "batch_length", name != "crc")
        return self.sealed(frame)

    def _value(self, now: bytes, width: int) -> int:
        """A new value for a signed field: one of ``TELLING``, the old value plus or minus 1, or one flipped bit."""
        top = 1 << (8 * width - 1)
        value = int.from_bytes(now, "big", signed=True)
        roll = self.dice.below(8)
        if roll < 5:
            return self.dice.pick(TELLING[width])
        if roll < 7:
            return (value + self.dice.pick((-1, 1)) + top) % (2 * top) - top
        flipped = (value & (2 * top - 1)) ^ (1 << self.dice.below(8 * width))
        return (flipped + top) % (2 * top) - top

    def _record_batch(self, kind: str, frame: bytes, codec: Codec) -> bytes | None:
        header, body = frame[:BATCH_HEADER_SIZE], frame[BATCH_HEADER_SIZE:]
        if kind == "container-scramble":
            return self.sealed(header + scramble(body, self.dice))
        payload = decompress(codec, body, PAYLOAD_BYTES_MAX).data if body else b""
        if kind == "payload-scramble":
            return self.sealed(header + self._compressed(codec, scramble(payload, self.dice), 2))
        spans = record_spans(payload)
        parts = [payload[start:end] for start, end in spans]
        tail = payload[spans[-1][1] :] if spans else payload
        if not self._parts(kind, parts, self._number_of_record, self._other_records):
            return None
        if self.mend():
            header = header[: HEADER_AT["record_count"]] + struct.pack(">i", len(parts))
        if self.produced and kind in MOVES:
            header, parts = self._renumbered(header, parts)
        return self.sealed(header + self._compressed(codec, b"".join(parts) + tail, 2))

    def _renumbered(self, header: bytes, parts: list[bytes]) -> tuple[bytes, list[bytes]]:
        """Offset deltas 0, 1, 2, … and the matching last offset delta, as a broker requires of a producer."""
        if self.mend():
            at = HEADER_AT["last_offset_delta"]
            header = header[:at] + struct.pack(">i", len(parts) - 1) + header[at + 4 :]
        if self.mend():
            parts = [_with_offset(part, i) for i, part in enumerate(parts)]
        return header, parts

    def _message(self, kind: str, frame: bytes, magic: int) -> bytes | None:
        """Change an uncompressed message, which is its own record: a field or length, or the bytes after its header."""
        key_at = MESSAGE_AT[magic]["key_length"]
        if kind == "payload-scramble":
            return self.sealed(frame[:key_at] + scramble(frame[key_at:], self.dice))
        if kind == "record-number":
            changed = self._number_of_message(frame)
            return None if changed is None else self.sealed(changed)
        return None

    def _wrapper(self, kind: str, frame: bytes, magic: int, codec: Codec) -> bytes | None:
        value_at = self._value_length_at(frame, magic)
        if value_at is None:
            return None
        body = frame[value_at + 4 :]
        if kind == "container-scramble":
            body = scramble(body, self.dice)
        else:
            inner = decompress(codec, body, PAYLOAD_BYTES_MAX, magic=magic).data
            changed = self._inner(kind, inner)
            if changed is None:
                return None
            body = self._compressed(codec, changed, magic)
        length = struct.pack(">i", len(body)) if self.mend() else frame[value_at : value_at + 4]
        return self.sealed(frame[:value_at] + length + body)

    def _inner(self, kind: str, inner: bytes) -> bytes | None:
        """Change the messages inside a wrapper; the CRC of each is repaired at random."""
        scrambled = kind == "payload-scramble"
        if scrambled:
            inner = scramble(inner, self.dice)
        # Use the lengths as they are after scrambling.
        spans = frame_spans(inner)
        parts = [inner[start:end] for start, end in spans]
        tail = inner[spans[-1][1] :] if spans else inner
        if not scrambled and not self._parts(kind, parts, self._number_of_message, self._other_messages):
            return None
        return b"".join(self._with_crc(part) for part in parts) + tail

    def _with_crc(self, message: bytes) -> bytes:
        return seal(message, False, True) if message[MAGIC_AT : MAGIC_AT + 1] != b"\x02" and self.mend() else message

    def _value_length_at(self, frame: bytes, magic: int) -> int | None:
        key_at = MESSAGE_AT[magic]["key_length"]
        if len(frame) < key_at + 8:
            return None
        (key_length,) = struct.unpack_from(">i", frame, key_at)
        at: int = key_at + 4 + max(0, key_length)
        return at if at + 4 <= len(frame) else None

    def _compressed(self, codec: Codec, payload: bytes, magic: int) -> bytes:
        return compress(codec, payload, magic=magic) if self.mend() else payload

    # -- the records of a batch, or the messages in a wrapper

    def _parts(
        self,
        kind: str,
        parts: list[bytes],
        number: Callable[[bytes], bytes | None],
        others: Callable[[], list[bytes]],
    ) -> bool:
        """Change the list ``parts`` or one part in it; False if that is not possible."""
        dice = self.dice
        if kind == "record-splice":
            new = others()
            if new:
                parts.insert(dice.below(len(parts) + 1), dice.pick(new))
            return bool(new)
        if not parts:
            return False
        at = dice.below(len(parts))
        if kind == "record-duplicate":
            parts.insert(at, parts[at])
        elif kind == "record-drop":
            del parts[at]
        elif kind == "record-reorder":
            parts.insert(dice.below(len(parts)), parts.pop(at))
        else:
            changed = self._part(kind, parts[at], number)
            if changed is None:
                return False
            parts[at] = changed
        return True

    def _part(self, kind: str, part: bytes, number: Callable[[bytes], bytes | None]) -> bytes | None:
        if kind == "record-number":
            return number(part)
        if number == self._number_of_message:
            # Messages have no varints.
            return seal(scramble(part, self.dice), self.mend(), False) if kind == "record-scramble" else None
        if kind == "record-overlong":
            return self._overlong(part)
        return self._with_length(scramble(self._body(part), self.dice))

    def _number_of_record(self, record: bytes) -> bytes | None:
        """Give one of a record's varints another value."""
        numbers = record_numbers(record)
        which = self.dice.below(len(numbers))
        at, size, value = numbers[which]
        width = self.dice.pick((1, 2, 4, 4, 8))
        new = value + self.dice.pick((-1, 1, -2, 2)) if self.dice.chance(0.4) else self.dice.pick(TELLING[width])
        record = record[:at] + varlong(max(-(1 << 63), min(new, (1 << 63) - 1))) + record[at + size :]
        return record if which == 0 else self._with_length(self._body(record))

    def _overlong(self, record: bytes) -> bytes:
        """Stretch one of a record's varints: up to the five or ten bytes that readers allow, or beyond."""
        numbers = record_numbers(record)
        which = self.dice.below(len(numbers))
        at, size, value = numbers[which]
        record = record[:at] + varlong(value, self.dice.pick((size + 1, 4, 5, 5, 6, 9, 10, 11))) + record[at + size :]
        return record if which == 0 else self._with_length(self._body(record))

    def _body(self, record: bytes) -> bytes:
        """The bytes after the record's length."""
        _, size, _ = record_numbers(record)[0]
        return record[size:]

    def _with_length(self, body: bytes) -> bytes:
        return varlong(len(body) if self.mend() else self.dice.below(2 * len(body) + 2)) + body

    def _number_of_message(self, message: bytes) -> bytes | None:
        """Give a header field or the value length of a message of magic 0 or 1 another value."""
        magic = message[MAGIC_AT]
        if magic > 1:
            return None
        places = [(at, width) for name, at, width in LAYOUTS[magic] if name != "crc"]
        value_at = self._value_length_at(message, magic)
        if value_at is not None:
            places.append((value_at, 4))
        at, width = self.dice.pick(places)
        if at + width > len(message):
            return None
        value = struct.pack(">" + FORMATS[width], self._value(message[at : at + width], width))
        return message[:at] + value + message[at + width :]

    def _other_records(self) -> list[bytes]:
        batch = source.batch(self.dice, ("none",))
        if batch.magic != 2:
            return []
        payload = encode_batch(batch)[BATCH_HEADER_SIZE:]
        return [payload[start:end] for start, end in record_spans(payload)]

    def _other_messages(self) -> list[bytes]:
        """A message or wrapper of magic 0 or 1, or a whole record batch."""
        return [encode_batch(source.batch(self.dice, self.codecs))]
