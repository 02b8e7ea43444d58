"""The messages of ``kfuzz-testee/1`` (docs/testee-protocol.md), each declared once: type, check and JSON Schema.

A testee is a foreign program, so this module checks everything that it prints. ``parse_handshake`` and ``parse_answer``
either return a checked value or raise ``ProtocolError`` with one sentence. They refuse a field with an unknown name:
otherwise a misspelt ``base_ofset`` would never be compared, and would always pass. ``schema`` makes the published
schema from the same declarations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.conformance.protocol.contents import HEADERS, HIDDEN, MESSAGE, MESSAGE_NAME, OCTETS, VALUE, VERSION, VERSIONS
from kfuzz.documents import check_depth
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.forms import (
    BOOLEAN,
    HEX,
    TEXT,
    Either,
    Form,
    ListOf,
    Object,
    Wrong,
    choice,
    integer,
    matching,
    object_of,
    optional,
    shown,
)
from kfuzz.kafka import CODECS, ISOLATIONS, ROLES
from kfuzz.text import foreign_text

PROTOCOL: Final = "kfuzz-testee/1"
DECODE: Final = "decode-records"
ENCODE: Final = "encode-records"
# Rules that need several batches: which records a consumer hands out, and which batches a broker appends.
DECODE_STREAM: Final = "decode-stream"
APPEND_STREAM: Final = "append-stream"
# One Kafka request, response, header or other message. The testee request gives its name and version.
DECODE_MESSAGE: Final = "decode-message"
ENCODE_MESSAGE: Final = "encode-message"
# One value of a type that messages consist of.
DECODE_PRIMITIVE: Final = "decode-primitive"
ENCODE_PRIMITIVE: Final = "encode-primitive"
# A whole producer sends records to a broker. The answer is what arrived there.
PRODUCE: Final = "produce-records"
# A whole client talks with brokers, while something happens on the way. The answer has the frames too.
CONVERSE: Final = "converse"
# A producer may be able to do this besides sending records.
PRODUCES: Final = ("idempotent", "transactions", "sends", "topics", "groups")
# A client may be able to do this besides reading a partition and sending records.
CONVERSES: Final = ("reset", "group", "consumer-group", "share", "abort", "timeout", "admin")
# The only role for messages and primitives.
READER: Final = "reader"
OUTCOMES: Final = ("accepted", "rejected", "unsupported", "fault")
# Outcomes that a testee may use if its handshake declares them.
STALLED: Final = "stalled"
MORE_OUTCOMES: Final = ("nothing", STALLED, "panic")
# How a snappy payload is framed: one raw block, or the blocks of the library snappy-java.
SNAPPY_FRAMINGS: Final = ("raw", "xerial")
# The runner sends this many requests before it waits for an answer.
AHEAD: Final = 64
# No answer needs a longer line, because a testee may give the hash of a value over 64 KiB.
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
# Lists, objects and their members in one line. Python takes up to 100 bytes for each. The largest answer to a vector
# has 917,516: 131,071 records.
ELEMENTS_MAX: Final = 2_000_000
# Batches, records and headers nest in 5 levels, and a message in 32.
LINE_DEPTH_MAX: Final = 64


class ProtocolError(KfuzzError):
    """A testee's line breaks the protocol; the text says which part is wrong and what it must be."""


# --- forms ----------------------------------------------------------------------------------------------------------

# Allows more than 64 bits: an impossible offset or timestamp is a wrong reading, not a protocol error.
_INTEGER_TEXT: Final = matching("0|-?[1-9][0-9]{0,38}", "give an integer as a decimal string")
_LABEL: Final = matching("[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", "give a word of letters, digits and . _ + -")
_PRIMITIVE: Final = matching("[a-z0-9-]{1,40}", "give a primitive's name")
_SIZE: Final = integer(0, 2**63 - 1)
_BROKERS: Final = integer(2, 9)
_NUMBER: Final = integer(1, 2**31 - 1)
_INT16: Final = integer(-(2**15), 2**15 - 1)
_INT32: Final = integer(-(2**31), 2**31 - 1)
_ROLE: Final = choice(*ROLES)
# The highest versions of APIs, by the APIs' names.
_HIGHEST: Final = Form(
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
    "give an object of APIs, each with its highest version",
    lambda value: isinstance(value, dict) and all(type(one) is int and one >= 0 for one in value.values()),
)
ANY_OBJECT: Final = Form({"type": "object"}, "give an object", lambda value: isinstance(value, dict))


def _object(needed: Mapping[str, Form], **more: Form) -> Object:
    """An object that has the keys ``needed``, and may have ``more``."""
    return Object({**needed, **more}, needed)


# Any text as a type of timestamps, and any byte as a magic: unknown ones are wrong readings, not protocol errors.
_RECORD: Final = _object(
    {
        "offset": _INTEGER_TEXT,
        "timestamp": optional(_INTEGER_TEXT),
        "key": OCTETS,
        "value": OCTETS,
        "headers": HEADERS,
    },
    timestamp_type=TEXT,
)
RECORDS: Final = ListOf(_RECORD, "give a list of records")
# ``records`` is missing if a broker stored what no reader can read.
_BATCH: Final = _object(
    {},
    base_offset=_INTEGER_TEXT,
    last_offset=_INTEGER_TEXT,
    next_offset=_INTEGER_TEXT,
    magic=integer(-128, 255),
    compression=choice(*CODECS),
    timestamp_type=choice("create", "log-append", "none"),
    transactional=BOOLEAN,
    control=BOOLEAN,
    producer_id=_INTEGER_TEXT,
    producer_epoch=_INT16,
    base_sequence=_INT32,
    partition_leader_epoch=_INT32,
    delete_horizon=optional(_INTEGER_TEXT),
    records=RECORDS,
)
BATCHES: Final = ListOf(_BATCH, "give a list of batches")
# The result of one step of a stream that is appended.
_STEP: Final = _object(
    {"outcome": choice("appended", "duplicate", "rejected")},
    base_offset=_INTEGER_TEXT,
    last_stable_offset=_INTEGER_TEXT,
    error=TEXT,
    finding=_LABEL,
)
# The records of one partition in one Produce request, and the error and the offset in the answer to it.
_ARRIVED: Final = _object(
    {"hex": HEX},
    error=_INT16,
    base_offset=_INTEGER_TEXT,
    acks=integer(-1, 1),
    transactional_id=optional(TEXT),
)
PRODUCED: Final = ListOf(
    Either(HEX, _ARRIVED), 'give a list of hex texts and of objects such as {"hex": "00", "error": 6}'
)
_OFFSETS: Final = ListOf(optional(_INTEGER_TEXT), "give a list of offsets")
_SENT: Final = ListOf(choice("accepted", "rejected"))
# The result of an act of an application.
_ACT: Final = _object(
    {"outcome": choice("accepted", "rejected", STALLED, "fault", "panic")},
    error=TEXT,
    at=TEXT,
    records=RECORDS,
    offsets=_OFFSETS,
    sends=_SENT,
)
_FRAME: Final = _object(
    {"from": choice("client", "broker"), "connection": _NUMBER, "place": TEXT, "ms": _SIZE, "hex": HEX}
)
# The timestamps that a library can hold, in milliseconds: the least, the greatest, and the smallest step.
_TIMESTAMPS: Final = _object({"low": _INTEGER_TEXT, "high": _INTEGER_TEXT, "resolution_ms": integer(1, 86_400_000)})


# --- to a testee ----------------------------------------------------------------------------------------------------


# A broker's configuration. A missing field has its default from docs/testee-protocol.md.
_TOPIC: Final = _object(
    {},
    compacted=BOOLEAN,
    compression=choice("producer", *CODECS),
    timestamp_type=choice("create", "log-append"),
    timestamp_before_max_ms=_INTEGER_TEXT,
    timestamp_after_max_ms=_INTEGER_TEXT,
    max_message_bytes=_INT32,
    max_request_bytes=_INT32,
    now=_INTEGER_TEXT,
    first_offset=_INTEGER_TEXT,
    leader_epoch=_INT32,
)
# An aborted transaction, as a fetch response lists it.
_ABORTED: Final = _object({"producer_id": _INTEGER_TEXT, "first_offset": _INTEGER_TEXT})
# How the broker of a whole client behaves.
_BROKER: Final = _object(
    {},
    throttle_ms=integer(1, 10_000),
    produce_ms=integer(1, 1000),
    versions=_HIGHEST,
    brokers=_BROKERS,
    ends=choice(True),
    reads_groups=choice(True),
)
# A record as a program gives it to a producer: without an offset. It may leave out more.
_GIVEN: Final = _object({"value": OCTETS, "headers": HEADERS}, timestamp=_INTEGER_TEXT, key=OCTETS)
_HEX_TEXTS: Final = ListOf(HEX, "give a list of hex texts")
_ERRORS: Final = ListOf(choice(*ERROR_CODES), "give a list of Kafka's error names")
_OF_MESSAGE: Final = {"message": MESSAGE_NAME, "version": VERSION}


def _request(operation: str, needed: Mapping[str, Form], **more: Form) -> tuple[str, Object]:
    return operation, _object({"id": TEXT, "operation": choice(operation), **needed}, **more)


REQUESTS: Final[Mapping[str, Object]] = dict(
    [
        # In role broker, it may have a topic.
        _request(DECODE, {"role": _ROLE, "hex": HEX}, topic=_TOPIC),
        _request(ENCODE, {"batches": BATCHES}),
        _request(
            DECODE_STREAM,
            {"role": _ROLE, "isolation": choice(*ISOLATIONS), "steps": _HEX_TEXTS},
            aborted=ListOf(_ABORTED, "give a list of aborted transactions"),
            fetch_offset=_INTEGER_TEXT,
            broker=_BROKER,
            fetches_at_end=integer(1, 10_000),
        ),
        _request(APPEND_STREAM, {"role": choice("broker"), "steps": _HEX_TEXTS}, transaction_version=integer(0, 2)),
        _request(DECODE_MESSAGE, {**_OF_MESSAGE, "hex": HEX}),
        _request(ENCODE_MESSAGE, {**_OF_MESSAGE, "body": MESSAGE}),
        _request(DECODE_PRIMITIVE, {"primitive": _PRIMITIVE, "hex": HEX}),
        _request(ENCODE_PRIMITIVE, {"primitive": _PRIMITIVE, "value": VALUE}),
        # The first answers to the producer have ``errors``. ``sends``: how many records each send has; with
        # ``at_once``, no send waits for the one before. ``topic_errors``: for each send, the error of its topic in
        # Metadata. With ``group``, each send is a transaction, which also commits an offset of this group.
        _request(
            PRODUCE,
            {
                "records": ListOf(_GIVEN, "give a list of records"),
                "compression": choice(*CODECS),
                "idempotent": BOOLEAN,
            },
            transactional_id=TEXT,
            errors=_ERRORS,
            sends=ListOf(_SIZE),
            at_once=BOOLEAN,
            topic_errors=_ERRORS,
            group=TEXT,
            broker=_BROKER,
        ),
        # An application does these acts, while the rules of a proxy apply to its frames.
        _request(
            CONVERSE,
            {"application": ListOf(ANY_OBJECT, "give a list of acts")},
            given=_HEX_TEXTS,
            brokers=_BROKERS,
            broker=_BROKER,
            rules=ListOf(ANY_OBJECT, "give a list of rules"),
        ),
    ]
)
OPERATIONS: Final = tuple(REQUESTS)


# --- from a testee --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Handshake:
    """A testee's first line: its name, its version, and what it supports."""

    name: Annotated[str, _LABEL]
    version: Annotated[str, _LABEL]
    language: Annotated[str, TEXT]
    operations: Annotated[frozenset[str], ListOf(choice(*OPERATIONS))]
    roles: Annotated[frozenset[str], ListOf(choice(*ROLES))] = frozenset()
    magic: Annotated[frozenset[int], ListOf(choice(0, 1, 2))] = frozenset()
    codecs: Annotated[frozenset[str], ListOf(choice(*CODECS))] = frozenset()
    checks_crc: Annotated[bool, BOOLEAN] = True
    control: Annotated[str, choice("shown", "hidden")] = "shown"
    # The lowest and the highest version of each message, by the definitions' names.
    messages: Annotated[Mapping[str, tuple[int, int]], VERSIONS] = field(default_factory=dict)
    # Whether the library has both directions of these messages, or only those of a client.
    side: Annotated[str, choice("both", "client")] = "both"
    # The fields that it reads but does not show, by message; the steps of a place have dots between them.
    hidden: Annotated[Mapping[str, list[str]], HIDDEN] = field(default_factory=dict)
    # KIP-482 lets a reader skip the tagged fields that it does not know.
    unknown_tags: Annotated[str, choice("shown", "skipped")] = "shown"
    primitives: Annotated[frozenset[str], ListOf(_PRIMITIVE, "give a list of primitives by their names")] = frozenset()
    outcomes: Annotated[frozenset[str], ListOf(choice(*MORE_OUTCOMES))] = frozenset()
    timestamps: Annotated[Mapping[str, Any] | None, _TIMESTAMPS] = None
    headers: Annotated[str, choice("list", "map")] = "list"
    tails: Annotated[str, choice("ignored", "refused")] = "ignored"
    snappy: Annotated[frozenset[str], ListOf(choice(*SNAPPY_FRAMINGS))] = frozenset(SNAPPY_FRAMINGS)
    produces: Annotated[frozenset[str], ListOf(choice(*PRODUCES))] = frozenset()
    converses: Annotated[frozenset[str], ListOf(choice(*CONVERSES))] = frozenset()

    @property
    def label(self) -> str:
        """``name@version``, which also names the file of expected outcomes."""
        return f"{self.name}@{self.version}"


class Produced(NamedTuple):
    """The records of one partition in one Produce request, and the broker's error code; 0 if it accepted them.

    ``transactional_id`` and ``acks`` are those of the request, ``base_offset`` is that of the answer, -1 for none. They
    are None if the testee does not give them.
    """

    data: bytes
    error: int = 0
    transactional_id: str | None = None
    acks: int | None = None
    base_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One checked answer. ``batches`` and ``records`` use the JSON form of records; ``message`` that of messages.

    A field that the testee left out is None.
    """

    id: Annotated[str, TEXT]
    outcome: Annotated[str, choice(*OUTCOMES, *MORE_OUTCOMES)]
    error: Annotated[str, TEXT] = ""
    # The library's innermost line of source in the stack of an error: `path/in/library.go:123`.
    at: Annotated[str, TEXT] = ""
    finding: Annotated[str | None, _LABEL] = None
    consumed: Annotated[int | None, _SIZE] = None
    batches: Annotated[list[dict[str, Any]] | None, BATCHES] = None
    records: Annotated[list[dict[str, Any]] | None, RECORDS] = None
    data: Annotated[bytes | None, HEX, "hex"] = None
    message: Annotated[dict[str, Any] | None, MESSAGE] = None
    value: Annotated[Any, VALUE] = None
    allocated_bytes: Annotated[int | None, _SIZE] = None
    # The library's line of source that allocated most of it, in the form of ``at``.
    allocated_at: Annotated[str, TEXT] = ""
    # For a stream: the result of each step, and the offsets after the last step.
    steps: Annotated[list[dict[str, Any]] | None, ListOf(_STEP, "give a list of steps")] = None
    next_offset: Annotated[str | None, _INTEGER_TEXT] = None
    last_stable_offset: Annotated[str | None, _INTEGER_TEXT] = None
    # Offsets that a consumer reports at the end: of the record that its user gets next, and of the end of the log.
    position: Annotated[str | None, _INTEGER_TEXT] = None
    high_watermark: Annotated[str | None, _INTEGER_TEXT] = None
    # In the order in which it arrived at the broker.
    produced: Annotated[tuple[Produced, ...] | None, PRODUCED] = None
    # Whether each of several sends was acknowledged.
    sends: Annotated[list[str] | None, _SENT] = None
    # Of each record that was sent: the offset that the producer reports, -1 if it says that it knows none.
    offsets: Annotated[list[str | None] | None, _OFFSETS] = None
    # Of a conversation: what each act gave; the frames, and those that met trouble, by connection and number.
    acts: Annotated[list[dict[str, Any]] | None, ListOf(_ACT, "give a list of acts")] = None
    frames: Annotated[list[dict[str, Any]] | None, ListOf(_FRAME, "give a list of frames")] = None
    troubles: Annotated[list[list[int]] | None, ListOf(ListOf(_NUMBER), "give pairs of numbers")] = None
    # The answer as the testee wrote it, for the report.
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False)


_DECLARED: Final = object_of(Handshake)
HANDSHAKE: Final = Object({"protocol": choice(PROTOCOL), **_DECLARED.keys}, ("protocol", *_DECLARED.required))
ANSWER: Final = object_of(Answer)


# --- lines ----------------------------------------------------------------------------------------------------------


# One encoder for all lines, because json.dumps makes a new one on each call. No message contains itself, so the check
# for circular references is off.
_JSON: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def to_line(message: Mapping[str, Any]) -> bytes:
    """One message as a line of JSON, in ASCII so that no testee has trouble with the encoding."""
    return _JSON.encode(message).encode() + b"\n"


def _parse(line: bytes, what: str) -> Any:
    brackets = line.count(b"[") + line.count(b"{")
    if (elements := brackets + line.count(b",")) > ELEMENTS_MAX:
        raise ProtocolError(f"{what} has about {elements} elements; at most {ELEMENTS_MAX} are allowed")
    try:
        value = json.loads(line)
        if brackets > LINE_DEPTH_MAX:
            check_depth(value, what, remedy="no answer needs that", depth_max=LINE_DEPTH_MAX)
    except RecursionError:
        raise ProtocolError(f"{what} is nested deeper than {LINE_DEPTH_MAX} levels; no answer needs that") from None
    except UsageError as error:
        raise ProtocolError(str(error)) from None
    except ValueError as error:
        if "digits" in str(error):
            # Python refuses to convert such a number, because that takes quadratic time.
            raise ProtocolError(f"{what} has a number with too many digits; write it as a text") from None
        start = line[:60].decode("ascii", "backslashreplace") + ("…" if len(line) > 60 else "")
        raise ProtocolError(f"{what} is not a line of JSON: {start!r}; print nothing else on standard output") from None
    return value


def _check(form: Object, raw: Any, what: str) -> None:
    try:
        form.check(raw)
    except Wrong as wrong:
        raise ProtocolError(wrong.sentence(what)) from None


def _take_in_texts(raw: dict[str, Any]) -> None:
    """Bound the texts of an answer that people read. Its contents stay as they are, because they are compared."""
    for one in (raw, *raw.get("steps", ()), *raw.get("acts", ())):
        for name in _SAID & one.keys():
            one[name] = foreign_text(one[name])


# The fields of an answer and of its steps that are about it, and not part of its contents.
_SAID: Final = frozenset({"error", "at", "allocated_at"})
# The fields that a handshake must have if it offers one of these operations.
_DECLARED_FOR: Final = (
    ("roles", {DECODE, DECODE_STREAM, APPEND_STREAM}),
    ("magic", {DECODE, ENCODE, DECODE_STREAM, APPEND_STREAM}),
    ("codecs", {DECODE, ENCODE, DECODE_STREAM, APPEND_STREAM, PRODUCE}),
    ("messages", {DECODE_MESSAGE, ENCODE_MESSAGE}),
    ("primitives", {DECODE_PRIMITIVE, ENCODE_PRIMITIVE}),
    ("produces", {PRODUCE}),
)
_ENCODED: Final = ("hex", "an accepted answer must give the encoded bytes")
_READ: Final = "an accepted answer must say what was read"
# The field that an `accepted` answer must have, and why.
_CONTENTS: Final = {
    ENCODE: _ENCODED,
    ENCODE_MESSAGE: _ENCODED,
    ENCODE_PRIMITIVE: _ENCODED,
    DECODE_MESSAGE: ("message", _READ),
    DECODE_PRIMITIVE: ("value", _READ),
    DECODE_STREAM: ("records", "an accepted answer must say what was handed out"),
    APPEND_STREAM: ("steps", "an accepted answer must give the result of each step"),
    PRODUCE: ("produced", "an accepted answer must give what arrived at the broker"),
    CONVERSE: ("acts", "an accepted answer must say what each act gave"),
}


def parse_handshake(line: bytes) -> Handshake:
    """Parse the first line of a testee; raises ``ProtocolError``."""
    raw = _parse(line, "the handshake")
    _check(HANDSHAKE, raw, "the handshake")
    operations = frozenset(raw["operations"])
    for name, needing in _DECLARED_FOR:
        if operations & needing and name not in raw:
            raise ProtocolError(f"the handshake lacks {name}: it must declare what it supports")
    lists = ("operations", "roles", "magic", "codecs", "primitives", "outcomes", "snappy", "produces", "converses")
    declared: dict[str, Any] = {name: frozenset(value) if name in lists else value for name, value in raw.items()}
    del declared["protocol"]
    declared["language"] = foreign_text(raw["language"])
    declared["messages"] = {name: (low, high) for name, (low, high) in raw.get("messages", {}).items()}
    return Handshake(**declared)


def parse_answer(line: bytes, *, id: str, operation: str) -> Answer:
    """Parse the answer to the request ``id``; ``ProtocolError`` for any other line, also for an answer out of order."""
    raw = _parse(line, "the answer")
    _check(ANSWER, raw, "the answer")
    if raw["id"] != id:
        raise ProtocolError(f"the answer is to {shown(raw['id'])}, but {shown(id)} is next: answer in order")
    if raw["outcome"] == "accepted":
        if operation == DECODE and ("batches" in raw) == ("records" in raw):
            raise ProtocolError(f"the answer must have either batches or records: {_READ}")
        name, why = _CONTENTS.get(operation, ("id", ""))
        if name not in raw:
            raise ProtocolError(f"the answer lacks {name}: {why}")
    _take_in_texts(raw)
    given = {name: value for name, value in raw.items() if name not in ("hex", "produced")}
    produced = tuple(map(_arrived, raw["produced"])) if "produced" in raw else None
    return Answer(**given, data=bytes.fromhex(raw["hex"]) if "hex" in raw else None, produced=produced, raw=raw)


def _arrived(given: str | Mapping[str, Any]) -> Produced:
    if isinstance(given, str):
        return Produced(bytes.fromhex(given))
    base_offset = int(given["base_offset"]) if "base_offset" in given else None
    more = {name: given[name] for name in ("error", "transactional_id", "acks") if name in given}
    return Produced(bytes.fromhex(given["hex"]), **more, base_offset=base_offset)
