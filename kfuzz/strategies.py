"""hypothesis strategies for property tests of a reader or writer: record batches, message sets, messages of any API.

Needs hypothesis (``pip install 'kfuzz[strategies]'``). Valid bytes have no findings, even in profile ``strict``.
Hostile ones are valid ones after up to three changes of ``kfuzz.mutate``. All shrink: to fewer changes, batches,
records and bytes. See docs/strategies.md.

>>> from hypothesis import given
>>> from kfuzz import records, strategies
>>> @given(strategies.batch_bytes(hostile=True))
... def test_my_reader_agrees(data):
...     assert records.check(data).consumed <= len(data)
>>> test_my_reader_agrees()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, cycle, islice
from typing import Any, Final, NamedTuple

from kfuzz.control import ControlRecord, ControlRecordKey, ControlRecordType, EndTransactionMarker, encode_control
from kfuzz.errors import UsageError, needs
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS, Codec, codecs_of
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.model import INT_RANGES, Definition, Field, key_of
from kfuzz.messages.schemas import schema
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.engine import Engine
from kfuzz.mutate.message import MessageMutator
from kfuzz.records import Record, RecordBatch, encode
from kfuzz.records.stream import next_sequence
from kfuzz.wire.messages.values import UNKNOWN_TAGGED_FIELDS

with needs("kfuzz.strategies needs hypothesis; install it with: pip install 'kfuzz[strategies]'"):
    from hypothesis import strategies as st

__all__ = [
    "MessageBytes",
    "batch_bytes",
    "batches",
    "hostile_batches",
    "logs",
    "message_bytes",
    "message_sets",
    "messages",
    "records",
]

MAGICS: Final = (0, 1, 2)
INT32_MAX: Final = (1 << 31) - 1
# Room for the deltas of a few batches above it.
OFFSET_MAX: Final = 1 << 62
# The year 10889, in milliseconds.
TIMESTAMP_MAX: Final = 1 << 48
SIZE_MAX: Final = 1 << 16
# Above the tags that Kafka uses. The largest int32 means "no tag".
UNKNOWN_TAGS: Final = st.integers(10_000, INT32_MAX - 1)


def _text(max_size: int, *, without: str = "") -> st.SearchStrategy[str]:
    """Text that UTF-8 can hold: any characters but surrogates. ``codec="utf-8"`` says the same, but tries every one
    of them at its first use, which takes so long that a health check of hypothesis fails.
    """
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters=without), max_size=max_size)


SPAN_BYTES: Final = 64
RECORDS: Final = 6
_SPANS: Final = st.none() | st.binary(max_size=SPAN_BYTES)
# A header's key is UTF-8 without a NUL.
_HEADERS: Final = st.lists(st.tuples(_text(12, without="\0").map(str.encode), _SPANS), max_size=3).map(tuple)
_ANY_HEADERS: Final = st.lists(st.tuples(st.binary(max_size=9), _SPANS), max_size=3).map(tuple)
_INT16: Final = st.integers(*INT_RANGES["int16"])
_INT32: Final = st.integers(*INT_RANGES["int32"])
_INT64: Final = st.integers(*INT_RANGES["int64"])
_SEQUENCES: Final = st.integers(0, INT32_MAX)
_CHANGES: Final = st.lists(st.integers(0, (1 << 32) - 1), max_size=3)
_ENGINE: Final = Engine(0.95)


# --- records and batches --------------------------------------------------------------------------------------------


def records(*, magic: int = 2, hostile: bool = False, span_bytes_max: int = SPAN_BYTES) -> st.SearchStrategy[Record]:
    """Records with offset 0. Those of magic 0 have no timestamp, and only those of magic 2 have headers.

    ``hostile``: timestamps are any int64, and header keys any bytes. ``span_bytes_max``: the longest key, value, and
    value of a header; above 63 bytes, the length of one takes two bytes.
    """
    _require_magics((magic,))
    spans, headers = _SPANS, _ANY_HEADERS if hostile else _HEADERS
    if span_bytes_max != SPAN_BYTES:
        # By themselves, most are short.
        long = st.binary(min_size=SPAN_BYTES, max_size=span_bytes_max) if span_bytes_max > SPAN_BYTES else st.nothing()
        spans = st.none() | st.binary(max_size=span_bytes_max) | long
        keys = st.binary(max_size=9) if hostile else _text(max(span_bytes_max // 4, 1), without="\0").map(str.encode)
        headers = st.lists(st.tuples(keys, spans), max_size=3).map(tuple)
    return st.builds(
        Record,
        st.just(0),
        st.none() if magic == 0 else _INT64 if hostile else st.integers(-1, TIMESTAMP_MAX),
        spans,
        spans,
        st.just(()) if magic < 2 else headers,
    )


def batches(
    *,
    magics: Sequence[int] = (2,),
    codecs: Sequence[Codec] = CODECS,
    first_offset: int | None = None,
    records_max: int = RECORDS,
    span_bytes_max: int = SPAN_BYTES,
) -> st.SearchStrategy[RecordBatch]:
    """A valid batch of up to ``records_max`` records: plain, idempotent or transactional, also with gaps as after
    compaction. Above 64 records, a reader that works on several records at once shows its faults.

    ``magics`` and ``codecs``: those to choose from; magic 0 and 1 have no zstd. A batch of magic 0 or 1 is one message,
    or a wrapper if it has a codec. ``first_offset``: the lowest base offset; without it, any. ``span_bytes_max`` is
    that of :func:`records`. Raises ``UsageError`` for an unknown magic or codec, if a magic has none of the codecs, and
    if ``records_max`` is below 1.
    """
    if records_max < 1:
        raise UsageError(f"records_max is {records_max}; give 1 or more")
    return _batches(_forms(magics, codecs), first_offset, records_max, span_bytes_max)


def _forms(magics: Sequence[int], codecs: Sequence[Codec]) -> st.SearchStrategy[tuple[int, Codec]]:
    """A magic with a codec that it has. Raises ``UsageError`` as :func:`batches` says."""
    _require_magics(magics)
    if unknown := set(codecs) - set(CODECS):
        raise UsageError(f"codecs are {', '.join(CODECS)}; {', '.join(sorted(unknown))} is none of them")
    forms = []
    for magic in sorted(magics, reverse=True):
        there = [codec for codec in codecs if codec in codecs_of(magic)]
        if not there:
            raise UsageError(f"magic {magic} has none of the codecs {', '.join(codecs)}; add another codec")
        forms.append(st.tuples(st.just(magic), st.sampled_from(there)))
    return st.one_of(forms)


@st.composite
def _batches(
    draw: st.DrawFn,
    forms: st.SearchStrategy[tuple[int, Codec]],
    first_offset: int | None,
    records_max: int = RECORDS,
    span_bytes_max: int = SPAN_BYTES,
) -> RecordBatch:
    magic, codec = draw(forms)
    single = magic < 2 and codec == "none"
    base = draw(st.integers(0, OFFSET_MAX)) if first_offset is None else first_offset + draw(st.integers(0, 9))
    most = 1 if single else records_max
    count = draw(st.integers(int(magic < 2), most))
    # More records than this are the same ones again: hypothesis draws only some thousand values for an example.
    own = min(count, RECORDS)
    steps = draw(st.lists(st.integers(1, 1 + 1000 // most), min_size=own, max_size=own))
    drawn = [draw(records(magic=magic, span_bytes_max=span_bytes_max)) for _ in steps]
    deltas = [delta - 1 for delta in accumulate(islice(cycle(steps), count))]
    if magic < 2:
        deltas = [delta - deltas[0] for delta in deltas]
    log_append = magic > 0 and draw(st.booleans())
    stamp = draw(st.integers(0, TIMESTAMP_MAX))
    contents = []
    for delta, record in zip(deltas, cycle(drawn), strict=False):
        timestamp = stamp if log_append else record.timestamp
        contents.append(Record(base + delta, timestamp, record.key, record.value, record.headers))
    batch = RecordBatch(
        base,
        contents[-1].offset if contents else base + draw(st.integers(0, 9)),
        contents,
        magic=magic,
        compression=codec,
        timestamp_type="log-append" if log_append else "none" if magic == 0 else "create",
        max_timestamp=stamp if log_append and magic == 2 else None,
    )
    if magic == 2:
        batch.partition_leader_epoch = draw(st.integers(-1, INT32_MAX))
        if draw(st.booleans()):
            batch.producer_id = draw(st.integers(0, OFFSET_MAX))
            batch.producer_epoch = draw(st.integers(0, (1 << 15) - 1))
            batch.base_sequence = draw(st.integers(0, INT32_MAX))
            batch.transactional = draw(st.booleans())
    return batch


def logs(*, codecs: Sequence[Codec] = CODECS, batches_max: int = 12) -> st.SearchStrategy[list[RecordBatch]]:
    """A partition's log as a broker writes it: batches of two or three producers in turn, idempotent, transactional or
    plain, with COMMIT and ABORT markers. Sequences continue, also beyond the largest; transactions may stay open.
    """
    return _logs(_forms((2,), codecs), batches_max)


@st.composite
def _logs(draw: st.DrawFn, forms: st.SearchStrategy[tuple[int, Codec]], batches_max: int) -> list[RecordBatch]:
    made: list[RecordBatch] = []
    producers = draw(st.lists(st.integers(0, OFFSET_MAX), min_size=2, max_size=3, unique=True))
    epochs = {one: draw(st.integers(0, INT_RANGES["int16"][1])) for one in producers}
    sequences = {one: draw(st.sampled_from((0, INT32_MAX - 2)) | _SEQUENCES) for one in producers}
    is_open = dict.fromkeys(producers, False)
    marker = EndTransactionMarker(draw(st.integers(0, 9)))
    ends = {"commit": ControlRecordType.COMMIT, "abort": ControlRecordType.ABORT}
    kinds = st.sampled_from(("plain", "data", "data", "data", *ends))
    for _ in range(draw(st.integers(0, batches_max))):
        kind = draw(kinds)
        offset = made[-1].last_offset + 1 if made else draw(st.integers(0, OFFSET_MAX))
        one = draw(st.sampled_from(producers))
        if kind in ends:
            if not is_open[one]:
                continue
            key, value = encode_control(ControlRecord(ControlRecordKey(ends[kind]), marker))
            end = RecordBatch(offset, offset, [Record(offset, draw(st.integers(0, TIMESTAMP_MAX)), key, value)])
            made.append(replace(end, control=True, transactional=True, producer_id=one, producer_epoch=epochs[one]))
            is_open[one] = False
            continue
        batch = draw(_batches(forms, offset))
        if not batch.records:
            continue
        if kind == "plain":
            batch = replace(batch, producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False)
        else:
            is_open[one] = is_open[one] or draw(st.booleans())
            batch = replace(
                batch,
                producer_id=one,
                producer_epoch=epochs[one],
                base_sequence=sequences[one],
                transactional=is_open[one],
            )
            sequences[one] = next_sequence(sequences[one], batch.last_offset - batch.base_offset + 1)
        made.append(batch)
    return made


@st.composite
def hostile_batches(draw: st.DrawFn, *, codecs: Sequence[Codec] = CODECS) -> RecordBatch:
    """A batch of magic 2 whose fields hold any values, also those that no producer writes. It can be written."""
    base = draw(_INT64)
    deltas = sorted(draw(st.sets(st.integers(0, INT32_MAX), max_size=6)))
    log_append = draw(st.booleans())
    stamp = draw(_INT64)
    contents = []
    for delta in deltas:
        record = draw(records(hostile=True))
        record.offset = wrap64(base + delta)
        if log_append:
            record.timestamp = stamp
        contents.append(record)
    return RecordBatch(
        base,
        contents[-1].offset if contents else base,
        contents,
        compression=draw(st.sampled_from(codecs)),
        timestamp_type="log-append" if log_append else "create",
        transactional=draw(st.booleans()),
        producer_id=draw(_INT64),
        producer_epoch=draw(_INT16),
        base_sequence=draw(_INT32),
        partition_leader_epoch=draw(_INT32),
        delete_horizon=draw(st.none() | _INT64),
        max_timestamp=stamp if log_append else None,
    )


def batch_bytes(
    *,
    hostile: bool = False,
    magics: Sequence[int] = (2,),
    codecs: Sequence[Codec] = CODECS,
    batches_max: int = 3,
) -> st.SearchStrategy[bytes]:
    """The bytes of one to ``batches_max`` batches whose offsets grow, as a consumer gets them.

    ``hostile``: after up to three changes of structure, of which most have correct lengths and CRCs. Raises
    ``UsageError`` as :func:`batches` does.
    """
    return _batch_bytes(_forms(magics, codecs), hostile, batches_max)


@st.composite
def _batch_bytes(
    draw: st.DrawFn, forms: st.SearchStrategy[tuple[int, Codec]], hostile: bool, batches_max: int
) -> bytes:
    made: list[RecordBatch] = []
    for _ in range(draw(st.integers(1, batches_max))):
        first = made[-1].last_offset + 1 if made else None
        made.append(draw(_batches(forms, first)))
    data = encode(made)
    for seed in draw(_CHANGES) if hostile else ():
        data = _ENGINE.mutate(data, b"", Dice(seed), SIZE_MAX)
    return data


def message_sets(*, hostile: bool = False, codecs: Sequence[Codec] = CODECS) -> st.SearchStrategy[bytes]:
    """The bytes of messages of magic 0 and 1, which brokers stored until Kafka 3: plain ones and wrappers."""
    return batch_bytes(hostile=hostile, magics=(0, 1), codecs=codecs)


def _require_magics(magics: Sequence[int]) -> None:
    if not magics or not set(magics) <= set(MAGICS):
        raise UsageError(f"magics are {', '.join(map(str, magics)) or 'none'}; give any of 0, 1 and 2")


# --- messages -------------------------------------------------------------------------------------------------------


class MessageBytes(NamedTuple):
    """A message without its header: its name, its version, and its bytes."""

    name: str
    version: int
    data: bytes


def messages(name: str, version: int | None = None) -> st.SearchStrategy[dict[str, Any]]:
    """The values of a message, as ``kfuzz.messages.encode`` takes them: all fields of ``version`` (by default the last
    one), some tagged ones, and unknown tagged fields. ``UsageError`` if the message or the version does not exist.
    """
    definition = catalogue().find(name)
    return _struct(definition, definition.fields, _version(definition, version))


def message_bytes(
    name: str | None = None, version: int | None = None, *, hostile: bool = False
) -> st.SearchStrategy[MessageBytes]:
    """The bytes of a message. Without ``name`` it is any request, response or header of the newest Kafka; without
    ``version``, any of its versions.

    ``hostile``: after up to three changes by its schema, of which most have correct counts and sizes. Raises
    ``UsageError`` if the message or the version does not exist.
    """
    # The catalogue is read here: hypothesis allows each example 200 ms.
    definitions = _definitions() if name is None else [catalogue().find(name)]
    if version is not None:
        for definition in definitions:
            _version(definition, version)
    return _message_bytes(definitions, version, hostile)


@st.composite
def _message_bytes(
    draw: st.DrawFn, definitions: Sequence[Definition], version: int | None, hostile: bool
) -> MessageBytes:
    definition = draw(st.sampled_from(definitions))
    if version is None:
        version = draw(st.sampled_from(list(definition.valid_versions)))
    program = schema(definition, version)
    data = program.encode(draw(_struct(definition, definition.fields, version)))
    for seed in draw(_CHANGES) if hostile else ():
        data = MessageMutator(program).mutate(data, Dice(seed))
    return MessageBytes(definition.name, version, data)


@cache
def _definitions() -> list[Definition]:
    """All requests, responses and headers that have a version."""
    return sorted(
        (
            definition
            for definition in catalogue().messages.values()
            if definition.kind in ("request", "response", "header") and definition.valid_versions
        ),
        key=lambda definition: definition.name,
    )


def _version(definition: Definition, version: int | None) -> int:
    if version is None:
        return definition.valid_versions.highest
    if version not in definition.valid_versions:
        raise UsageError(f"{definition.name} has no version {version}; it has {definition.valid_versions}")
    return version


@st.composite
def _struct(draw: st.DrawFn, definition: Definition, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for field in fields:
        if version in field.versions and (version not in field.tagged or draw(st.booleans())):
            made[key_of(field.name)] = draw(_value(definition, field, version))
    if version in definition.flexible_versions:
        unknown = draw(st.dictionaries(UNKNOWN_TAGS, st.binary(max_size=9), max_size=2))
        if unknown:
            made[UNKNOWN_TAGGED_FIELDS] = sorted(unknown.items())
    return made


def _value(definition: Definition, field: Field, version: int) -> st.SearchStrategy[Any]:
    found = _element(definition, field, version)
    if field.type.array:
        found = st.lists(found, max_size=3)
    return st.none() | found if version in field.nullable else found


def _element(definition: Definition, field: Field, version: int) -> st.SearchStrategy[Any]:
    name = field.type.name
    if field.type.struct is not None:
        return _struct(definition, definition.fields_of(field.type), version)
    if name in INT_RANGES:
        return st.integers(*INT_RANGES[name])
    if name == "bool":
        return st.booleans()
    if name == "float64":
        return st.floats(allow_nan=False)
    if name == "string":
        return _text(30)
    return st.binary(min_size=16, max_size=16) if name == "uuid" else st.binary(max_size=64)
