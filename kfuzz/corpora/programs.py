"""Programs of steps that write values, and what puts them together.

``kfuzz.corpora.value_writer`` runs a program once for each record, without Python objects. A step writes a fixed text,
then one value: a number, or a text. ``form`` is its encoding. Six kinds lead to other steps:

- ``TEXT`` writes its text only, and continues at ``next``.
- ``BRANCH`` chooses one of several texts, writes it, and continues at the step that belongs to it.
- ``LOOP`` runs the steps up to ``next`` several times, with a text between the rounds.
- ``SCOPE`` runs the steps up to ``next`` and writes their length in front of them.
- ``SINCE`` writes a text and continues at ``next`` before a row's change of that number.
- ``ROW`` runs the steps of a row, or writes null. ``mask`` has a bit for each kind of change that has the row.

A step's random number depends only on the record's seed, the step's place, and the rounds of the loops around it. So
equal records have equal bytes, wherever they are made.

``Drawn`` says how the values of a field are drawn. A workload's JSON fields become a program in ``json_values``. A
schema becomes one in ``avro_program``, ``proto_program`` or ``json_schema_program``; ``shaping`` has what these share.
A record that contains itself is written out, at most RECURSION_MAX levels of it, so a program has a bounded size.
"""

# ruff: noqa: RUF009 - a Range is frozen, so that it can be a default.

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from kfuzz.corpora.quantities import LABEL, LABELS, SKEW, Range, Share, Weights, limits_of, ranged
from kfuzz.corpora.words import NAMES
from kfuzz.corpora.words import WORDS as WORD_LIST
from kfuzz.forms import Wrong, choice, integer, number, table_of
from kfuzz.wire.io.cursor import uvarint

# The steps, as in kfuzz.corpora.value_writer.
COUNTER, NUMBER, MOMENT, ITEM, CHOICE, PICK, TURN, WORDS, DATE, UUID, KEY, LETTERS, RAW, REFERENCE = range(14)
TEXT, BRANCH, LOOP, SCOPE, SINCE, ROW = range(14, 20)
# The encodings. JSON is text, with quotes around what is no number.
JSON, NO_LENGTH, ZIGZAG, VARINT, LITTLE, FLOAT, DOUBLE, BIG, BIG_SIZED = range(9)
# The form of a turn that the kind of change decides.
BY_CHANGE: Final = 1

# A random number of 32 bits chooses among so many.
CHOICES_MAX: Final = 1 << 32
VALUE_BYTES_MAX: Final = 8 << 20
TEXTS_BYTES_MAX: Final = 64 << 20
# The places of int and long in KEY_FORMS.
NUMBER_FORMS: Final = (2, 3)
STEPS_MAX: Final = 20_000
RECURSION_MAX: Final = 3
NUMBER_MAX: Final = (1 << 53) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
WORD_BYTES: Final = len(WORD_LIST[0]) + 1
# As in kfuzz.corpora.value_writer.
DATE_BYTES: Final = 24
# Characters of a counter whose offset is not known yet; it may have up to 16.
COUNTER_BYTES: Final = 7
ITEMS_MAX: Final = 10_000
TEXT_BYTES_MAX: Final = 1 << 20

Choices = tuple[tuple[int, int, int, int], ...]
Body = Callable[[], None]


class TooMany(Wrong):
    """A program would have too many steps."""


class Endless(Exception):
    """A type contains itself once more than a program may write it."""


@dataclass(frozen=True, slots=True)
class Target:
    """The keys that a reference names: those of ``seed``, ``size`` and ``form`` (of ``KEY_FORMS``).

    Of 10⁹ offsets, ``dangling`` name one of ``beyond`` numbers that the other topic does not have. The n-th of them is
    where ``n · dangling`` passes a multiple of 10⁹.

    With a ``rate``, the other topic writes its keys in turn to ``partitions`` partitions from ``start_ms`` on, in units
    as of ``kfuzz.corpora.clock``, and a reference names one that is written. After ``longest_ms``, all are.
    """

    seed: int = 0
    form: int = 0
    size: Range = Range(10, 10)
    cardinality: int = 1
    beyond: int = 1
    dangling: int = 0
    start_ms: int = 0
    longest_ms: int = 0
    rate: int = 0
    units_per_offset: int = 1
    partitions: int = 1

    @property
    def is_number(self) -> bool:
        """Whether keys are numbers in a field."""
        return self.form in NUMBER_FORMS


@dataclass(frozen=True, slots=True, kw_only=True)
class To:
    """A reference to a key of another topic, or of a key space.

    A share of ``dangling`` names keys that the other topic does not have. With ``lag_ms``, a record names only keys
    that the other topic has written so many ms before or earlier. ``target`` is found with the workload's other topics.
    """

    topic: Annotated[str | None, LABEL] = None
    space: Annotated[str | None, LABEL] = None
    dangling: Share = 0.0
    lag_ms: Annotated[int | None, integer(0, 1 << 40)] = None
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """How the values of one field of a schema are drawn. The field's type decides the keys that are left out."""

    type: Annotated[str | None, choice("counter", "key", "name", "text", "timestamp", "uuid")] = None
    min: Annotated[int | None, integer(INT64_MIN, INT64_MAX)] = None
    max: Annotated[int | None, integer(INT64_MIN, INT64_MAX)] = None
    skew: Annotated[int | None, SKEW] = None
    decimals: Annotated[int | None, integer(0, 6)] = None
    start: Annotated[int | None, integer(0, NUMBER_MAX)] = None
    step: Annotated[int | None, integer(0, NUMBER_MAX)] = None
    share: Annotated[float | None, number(0, 1)] = None
    values: Annotated[Weights, LABELS] = ()
    words: Annotated[Range | None, ranged(1, 10_000)] = None
    size: Annotated[Range | None, ranged(0, TEXT_BYTES_MAX)] = None
    count: Annotated[Range | None, ranged(0, ITEMS_MAX)] = None
    reference: Annotated[To | None, table_of(To)] = None
    null_share: Annotated[float | None, number(0, 1)] = None


def quoted(value: Any) -> bytes:
    """The value in JSON."""
    return json.dumps(value, ensure_ascii=False).encode()


def varint(value: int) -> bytes:
    """The zigzag varint of a number of 64 bits, as Kafka and Avro write it."""
    return uvarint((value << 1 ^ value >> 63) & (1 << 64) - 1)


def between(first: float, last: float, unit: int, skew: int) -> Range:
    """The numbers from ``first`` to ``last``, times ``unit``. ``Wrong`` if there are none or too many."""
    if first > last:
        raise Wrong(f"is {first}, above max ({last})", "swap them", ".min")
    if (last - first) * unit >= CHOICES_MAX:
        raise Wrong("is more than 2^32 numbers above min", "narrow them, or lower decimals", ".max")
    return Range(math.ceil(first * unit), math.floor(last * unit), skew)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: write ``text_size`` bytes from ``text_at`` of the program's texts, then a value of ``kind``.

    ``choices`` are (limit, text_at, text_size, next step): a random number of 32 bits below the limit chooses that
    text or an earlier one.

    - A counter is ``numbers`` plus ``times`` the offset, and ``mask``; the offset modulo ``modulo``, or by ``divide``.
    - A row has the steps from ``cut_at`` to ``size``; ``numbers`` is -1 for the row before the change.
    - A moment is the timestamp modulo ``modulo`` (0: all of it), divided by ``divide``, ``times`` that.
    - A date is ``size`` bytes of 2026-01-31T08:00:00.000Z, from ``cut_at`` on.
    - ``omits``: nothing is written for 0, for an empty scope, and for a branch's comma at the start of an object;
      without a key, a text is empty instead of null.
    """

    kind: int
    text_at: int
    text_size: int
    null_share: float = 0.0
    form: int = JSON
    numbers: Range = Range(0, 0)
    mask: int = NUMBER_MAX
    times: int = 1
    divide: int = 1
    modulo: int = 0
    decimals: int = 0
    cut_at: int = 0
    size: int = 0
    next: int = 0
    omits: bool = False
    choices: Choices = ()
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """The steps for one record, the texts that they name, and the size of a value in bytes.

    ``key_fields`` is the number of fields that hold the key; the bytes of keys are not in ``bytes_mean`` and
    ``bytes_max``, but their quotes are.
    """

    steps: tuple[Step, ...]
    texts: bytes
    bytes_mean: float
    bytes_max: int
    key_fields: int


class Builder:
    """Puts a program together. ``ahead`` is the text before the next step, ``most`` the largest size so far."""

    # The encodings of texts and whole numbers, and the bytes of a text.
    text_form = number_form = JSON

    def __init__(self) -> None:
        self.texts = bytearray()
        self.steps: list[Step] = []
        self.mean = 0.0
        self.most = 0
        self.key_fields = 0
        self.ahead = b""

    def add(self, kind: int, most: int, null_share: float = 0.0, mean: float = 0.0, **more: Any) -> int:
        """Add a step whose value has at most ``most`` bytes, and ``mean`` on average; its number."""
        at = len(self.texts)
        self.texts += self.ahead
        self.steps.append(Step(kind, at, len(self.ahead), null_share, **more))
        self.mean += len(self.ahead) + null_share * 4 + (1 - null_share) * mean
        self.grow(len(self.ahead) + max(most, 4 if null_share else 0))
        self.ahead = b""
        if len(self.steps) > STEPS_MAX:
            raise TooMany(f"has more than {STEPS_MAX} places for values", "name a smaller schema")
        return len(self.steps) - 1

    def choose(
        self, weighed: Sequence[tuple[bytes, int]], null_share: float = 0.0, kind: int | None = None, **more: Any
    ) -> None:
        """Add a step that writes one of some texts with weights; ``kind`` TURN is a way that ignores them."""
        weighed = [(text, weight) for text, weight in weighed if weight]
        total = sum(weight for _, weight in weighed)
        mean = sum(len(text) * weight for text, weight in weighed) / total
        kind = kind or (PICK if len({weight for _, weight in weighed}) == 1 else CHOICE)
        most = max(len(text) for text, _ in weighed)
        self.add(kind, most, null_share, mean, choices=self.texts_of(weighed), **more)

    def texts_of(self, weighed: Sequence[tuple[bytes, int]], targets: Sequence[int] = ()) -> Choices:
        """The choices with these texts and weights, and the steps that follow them."""
        limits, found = limits_of([weight for _, weight in weighed]), []
        for limit, (text, _), target in zip(limits, weighed, targets or [0] * len(weighed), strict=True):
            found.append((limit, len(self.texts), len(text), target))
            self.texts += text
        return tuple(found)

    def encoded(self, text: str) -> bytes:
        """The text as ``text_form`` says: in JSON, or after its size."""
        if self.text_form == JSON:
            return quoted(text)
        data = text.encode()
        return (varint if self.text_form == ZIGZAG else uvarint)(len(data)) + data

    def counter(self, drawn: Drawn, most: int, **more: Any) -> None:
        """Add a number that rises with the offset."""
        start, step = drawn.start or 0, 1 if drawn.step is None else drawn.step
        self.add(COUNTER, most, mean=COUNTER_BYTES, numbers=Range(start, start), times=step, **more)

    def boolean(self, share: float, true: bytes, false: bytes, **more: Any) -> None:
        """Add one of two texts: the first one in ``share`` of the records."""
        per_billion = round(share * 10**9)
        self.choose([(true, per_billion), (false, 10**9 - per_billion)], **more)

    def single(self, drawn: Drawn, **more: Any) -> None:
        """Add a text: a key of another topic, one of some values, or what the type or the sizes ask for."""
        more["form"] = self.text_form
        if drawn.reference:
            self.refer(drawn.reference.target or Target(), **more)
        elif drawn.values or drawn.type == "name":
            weighed = drawn.values or [(name, 1) for name in NAMES]
            self.choose([(self.encoded(text), weight) for text, weight in weighed], **more)
        elif drawn.type == "key":
            self.key(**more)
        elif drawn.type == "timestamp":
            self.add(DATE, DATE_BYTES + 2, mean=DATE_BYTES + 2, size=DATE_BYTES, **more)
        elif drawn.type == "uuid":
            self.add(UUID, 38, mean=38, **more)
        elif drawn.size is not None:
            self.add(LETTERS, 5 + drawn.size.max, numbers=drawn.size, **more)
        else:
            self.words(drawn.words or Range(3, 8), **more)

    def key(self, **more: Any) -> None:
        """Add the record's key as a text, or null."""
        self.add(KEY, 4, mean=2, **more)
        self.key_fields += 1

    def words(self, count: Range, null_share: float = 0.0, **more: Any) -> None:
        """Add a text of words."""
        choices = self.texts_of([(word.encode(), 1) for word in WORD_LIST])
        mean, most = count.mean * WORD_BYTES + 1, count.max * WORD_BYTES + 5
        self.add(WORDS, most, null_share, mean, numbers=count, choices=choices, **more)

    def refer(self, target: Target, most: int = 0, null_share: float = 0.0, **more: Any) -> None:
        """Add a key of another topic."""
        size = target.size if not target.is_number else Range(1, len(str(target.cardinality + target.beyond)))
        self.add(REFERENCE, max(most, 5 + size.max), null_share, size.mean + 2, target=target, **more)

    def since(self, round_: int, body: Body, otherwise: bytes = b"") -> None:
        """Add the steps of ``body`` for a row's changes from the one with this number on."""
        self._over(body, SINCE, 0, numbers=Range(round_, round_), choices=self.texts_of([(otherwise, 1)]))

    def _over(self, body: Body, kind: int, most: int, **more: Any) -> int:
        """Add a step and those of ``body``, whose end it knows; how many bytes those write at most."""
        at = self.add(kind, most, **more)
        before = self.most
        body()
        self.flush()
        self._change(at, next=len(self.steps))
        return self.most - before

    def _change(self, at: int, **more: Any) -> None:
        self.steps[at] = replace(self.steps[at], **more)

    def flush(self, *, always: bool = False) -> int | None:
        """Make a step of the text ahead, if there is any; its number."""
        return self.add(TEXT, 0, next=len(self.steps) + 1) if self.ahead or always else None

    def attempt(self, body: Body) -> bool:
        """Add the steps of ``body``; nothing and False if it contains itself too often."""
        steps, texts, ahead, most = len(self.steps), len(self.texts), self.ahead, self.most
        try:
            body()
        except Endless:
            del self.steps[steps:], self.texts[texts:]
            self.ahead, self.most = ahead, most
            return False
        return True

    def loop(self, count: Range, body: Body, between: bytes = b"", **more: Any) -> None:
        """Add the steps of ``body``, to be run several times; never, if it contains itself too often."""

        def rounds() -> None:
            each = self._over(body, LOOP, 10, numbers=count, choices=self.texts_of([(between, 1)]), **more)
            self.grow((count.max - 1) * each + count.max * len(between))

        if not self.attempt(rounds) and count.min:
            raise Endless

    def scope(self, body: Body, *, omits: bool = False) -> None:
        """Add the steps of ``body``, with their length in front."""
        at = len(self.steps)
        most = self._over(body, SCOPE, 5, omits=omits)
        # Most sizes are far below the largest; a wrong guess costs a move.
        self._change(at, size=1 if most < 1 << 9 else 2)

    def branch(self, alternatives: Sequence[tuple[int, bytes, Body | None]], *, omits: bool = False) -> None:
        """Add alternatives with a weight and a text in front. Those that contain themselves too often are left out."""
        at = self.add(BRANCH, 0, omits=omits)
        outside = top = self.most
        kept: list[tuple[bytes, int]] = []
        targets, jumps = [], []
        # Those without a weight only if no others are left.
        for weight, text, body in sorted(alternatives, key=lambda one: not one[0]):
            target, self.most = len(self.steps), outside + len(text)
            if (not weight and kept) or (body and not self.attempt(body)):
                continue
            kept.append((text, max(weight, 1)))
            targets.append(target)
            # Each of them ends with a step that leads to what follows all.
            jumps.append(self.flush(always=True) or 0)
            top = max(top, self.most)
        if not kept:
            raise Endless
        self.most = top
        for jump in jumps:
            self._change(jump, next=len(self.steps))
        self._change(at, choices=self.texts_of(kept, targets))

    def program(self) -> Program:
        """The program of the steps so far."""
        self.flush(always=True)
        return Program(tuple(self.steps), bytes(self.texts), self.mean, self.most, self.key_fields)

    def grow(self, most: int) -> None:
        """Note that values may have so many bytes more."""
        self.most += most
        if self.most > VALUE_BYTES_MAX or len(self.texts) > TEXTS_BYTES_MAX:
            raise Wrong(f"makes values of more than {VALUE_BYTES_MAX >> 20} MiB", "lower its counts or sizes")
