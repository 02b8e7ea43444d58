"""The messages of ``kfuzz-testee/1`` (docs/testee-protocol.md): what is sent, and a strict check of what comes back.

A testee is a foreign program: nothing that it prints is trusted. ``parse_handshake`` and ``parse_answer`` either return
a checked value or raise ``ProtocolError`` with one sentence. A field with an unknown name is refused, for a misspelt
``base_ofset`` would otherwise never be compared and so pass for ever. Imports the standard library and
``kfuzz.errors`` only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kfuzz.errors import KfuzzError
from kfuzz.kafka import CODECS, ROLES
from kfuzz.wire.values import UNKNOWN_TAGGED_FIELDS

__all__ = [
    "AHEAD",
    "APPEND_STREAM",
    "CODECS",
    "DECODE",
    "DECODE_MESSAGE",
    "DECODE_PRIMITIVE",
    "DECODE_STREAM",
    "ENCODE",
    "ENCODE_MESSAGE",
    "ENCODE_PRIMITIVE",
    "LINE_BYTES_MAX",
    "OPERATIONS",
    "PROTOCOL",
    "READER",
    "ROLES",
    "Answer",
    "Handshake",
    "ProtocolError",
    "parse_answer",
    "parse_handshake",
    "to_line",
]

PROTOCOL: Final = "kfuzz-testee/1"
DECODE: Final = "decode-records"
ENCODE: Final = "encode-records"
# Rules that need memory: what a consumer hands out of several batches, and what a broker appends of them.
DECODE_STREAM: Final = "decode-stream"
APPEND_STREAM: Final = "append-stream"
# One request, response, header or other message, which the request names with its version.
DECODE_MESSAGE: Final = "decode-message"
ENCODE_MESSAGE: Final = "encode-message"
# One value of one of the types that messages are made of.
DECODE_PRIMITIVE: Final = "decode-primitive"
ENCODE_PRIMITIVE: Final = "encode-primitive"
OPERATIONS: Final = (
    DECODE,
    ENCODE,
    DECODE_STREAM,
    APPEND_STREAM,
    DECODE_MESSAGE,
    ENCODE_MESSAGE,
    DECODE_PRIMITIVE,
    ENCODE_PRIMITIVE,
)
# A message has one reader, whoever that is.
READER: Final = "reader"
OUTCOMES: Final = ("accepted", "rejected", "unsupported", "fault")
# The runner sends this many requests before it waits for an answer.
AHEAD: Final = 64
# Of objects and arrays in a message, far beyond those of Kafka's own.
MESSAGE_DEPTH_MAX: Final = 32
# Longer lines are rubbish: values over 64 KiB may be given by their hash.
LINE_BYTES_MAX: Final = 64 * 1024 * 1024


class ProtocolError(KfuzzError):
    """A line of a testee is not what the protocol allows; the text says which part and what belongs there."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """A testee's first line: who it is and what it declares to support."""

    name: str
    version: str
    language: str
    operations: frozenset[str]
    roles: frozenset[str] = frozenset()
    magic: frozenset[int] = frozenset()
    codecs: frozenset[str] = frozenset()
    checks_crc: bool = True
    control: str = "shown"
    # The lowest and the highest version of each message, by the definitions' names.
    messages: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    primitives: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """``name@version``, which also names the file of expected outcomes."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Answer:
    """One checked answer. ``batches`` and ``records`` are in the record's JSON form, ``message`` in that of messages.

    What was left out is None.
    """

    id: str
    outcome: str
    error: str = ""
    finding: str | None = None
    consumed: int | None = None
    batches: list[dict[str, Any]] | None = None
    records: list[dict[str, Any]] | None = None
    data: bytes | None = None
    message: dict[str, Any] | None = None
    value: Any = None
    allocated_bytes: int | None = None
    # Of a stream: what became of each step, and the offsets after the last.
    steps: list[dict[str, Any]] | None = None
    next_offset: str | None = None
    last_stable_offset: str | None = None
    # The answer as the testee wrote it, for the report.
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False)


def to_line(message: Mapping[str, Any]) -> bytes:
    """One message as a line of JSON: ASCII, so that no testee trips over an encoding."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


# --- checks: each takes a value and returns None, or what belongs there ---------------------------------------------

_Check = Callable[[Any], str | None]
# Wider than 64 bits: a library that reads an impossible offset or timestamp has read wrong, not spoken wrong.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,38}")
_HEX = re.compile(r"[0-9a-f]*")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_MESSAGE = re.compile(r"[A-Z][A-Za-z0-9]{0,99}")
_PRIMITIVE = re.compile(r"[a-z0-9-]{1,40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integer(low: int, high: int) -> _Check:
    return lambda value: None if _is_int(value) and low <= value <= high else f"an integer from {low} to {high}"


def _integer_text(value: Any) -> str | None:
    return None if isinstance(value, str) and _INTEGER.fullmatch(value) else "an integer as a decimal string"


def _or_null(check: _Check) -> _Check:
    def checked(value: Any) -> str | None:
        wanted = None if value is None else check(value)
        return wanted and f"{wanted}, or null"

    return checked


def _one_of(*allowed: str) -> _Check:
    return lambda value: None if isinstance(value, str) and value in allowed else "one of " + ", ".join(allowed)


def _boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a text"


def _label(value: Any) -> str | None:
    return None if isinstance(value, str) and _LABEL.fullmatch(value) else "a word of letters, digits and . _ + -"


def _hex(value: Any) -> str | None:
    return None if isinstance(value, str) and len(value) % 2 == 0 and _HEX.fullmatch(value) else "lower-case hex"


def _octets(value: Any) -> str | None:
    """A key or a value: hex, null, or {"sha256", "size"} for long ones."""
    if value is None or _hex(value) is None:
        return None
    if isinstance(value, dict) and set(value) == {"sha256", "size"}:
        sha256, size = value["sha256"], value["size"]
        if isinstance(sha256, str) and _SHA256.fullmatch(sha256) and _is_int(size) and size >= 0:
            return None
    return 'lower-case hex, null, or {"sha256": …, "size": …}'


def _header_key(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and set(value) == {"hex"} and _hex(value["hex"]) is None)


def _header(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and _header_key(pair[0]) and _octets(pair[1]) is None


def _headers(value: Any) -> str | None:
    if isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and _header_key(pair[0]) and _octets(pair[1]) is None
        for pair in value
    ):
        return None
    return 'a list of [key, value], the key a text or {"hex": …}, the value hex or null'


def _subset_of(*allowed: Any) -> _Check:
    def checked(value: Any) -> str | None:
        good = isinstance(value, list) and all(type(item) is type(allowed[0]) and item in allowed for item in value)
        return None if good else "a list of any of " + ", ".join(map(str, allowed))

    return checked


_RECORD: dict[str, _Check] = {
    "offset": _integer_text,
    "timestamp": _or_null(_integer_text),
    "key": _octets,
    "value": _octets,
    "headers": _headers,
}
_RECORD_REQUIRED = ("offset", "timestamp", "key", "value", "headers")


def _records(value: Any) -> str | None:
    if not isinstance(value, list):
        return "a list of records"
    for index, record in enumerate(value):
        if wanted := _object(record, _RECORD, _RECORD_REQUIRED):
            return f"a list of records, but [{index}]{wanted}"
    return None


_BATCH: dict[str, _Check] = {
    "base_offset": _integer_text,
    "last_offset": _integer_text,
    "next_offset": _integer_text,
    # Any byte: a library that takes an unknown magic for a batch has read wrong, not spoken wrong.
    "magic": _integer(-128, 255),
    "compression": _one_of(*CODECS),
    "timestamp_type": _one_of("create", "log-append", "none"),
    "transactional": _boolean,
    "control": _boolean,
    "producer_id": _integer_text,
    "producer_epoch": _integer(-(2**15), 2**15 - 1),
    "base_sequence": _integer(-(2**31), 2**31 - 1),
    "partition_leader_epoch": _integer(-(2**31), 2**31 - 1),
    "delete_horizon": _or_null(_integer_text),
    "records": _records,
}


def _batches(value: Any) -> str | None:
    if not isinstance(value, list):
        return "a list of batches"
    for index, batch in enumerate(value):
        # A batch that a broker stored though no reader can read it has no records; nothing else is a must.
        if wanted := _object(batch, _BATCH, ()):
            return f"a list of batches, but [{index}]{wanted}"
    return None


_STEP: dict[str, _Check] = {
    "outcome": _one_of("appended", "duplicate", "rejected"),
    "base_offset": _integer_text,
    "last_stable_offset": _integer_text,
    "error": _text,
    "finding": _label,
}


def _steps(value: Any) -> str | None:
    if not isinstance(value, list):
        return "a list of steps"
    for index, step in enumerate(value):
        if wanted := _object(step, _STEP, ("outcome",)):
            return f"a list of steps, but [{index}]{wanted}"
    return None


_FIELD = re.compile(r"[a-z][A-Za-z0-9]*")
_TAGGED_FIELD: dict[str, _Check] = {"tag": _integer(0, 2**32 - 1), "hex": _hex}


def _message(value: Any) -> str | None:
    """A message, as far as it can be judged without its definition: names, numbers, unknown tags."""
    wrong = _struct(value, 0) if isinstance(value, dict) else f" is {_shown(value)}"
    return wrong and f"an object of a message's fields, but it{wrong}"


def _struct(struct: dict[str, Any], depth: int) -> str | None:
    """None, or what is wrong, worded to follow the place of the struct."""
    for name, value in struct.items():
        if name == UNKNOWN_TAGGED_FIELDS:
            wrong = _tagged_fields(value)
        elif _FIELD.fullmatch(name):
            wrong = _value(value, depth + 1)
        else:
            return f" has the field {_shown(name)}, whose name is not in camelCase"
        if wrong:
            return f".{name}{wrong}"
    return None


def _value(value: Any, depth: int) -> str | None:
    if depth > MESSAGE_DEPTH_MAX:
        return f" is nested more than {MESSAGE_DEPTH_MAX} deep"
    if isinstance(value, dict):
        return _struct(value, depth)
    if isinstance(value, list):
        found = ((index, _value(item, depth + 1)) for index, item in enumerate(value))
        return next((f"[{index}]{wrong}" for index, wrong in found if wrong), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f' is {_shown(value)}; what JSON has no number for is "NaN", "Infinity" or "-Infinity"'
    return None


def _one_value(value: Any) -> str | None:
    wrong = _value(value, 0)
    return wrong and f"a value of a primitive, but it{wrong}"


def _tagged_fields(value: Any) -> str | None:
    if not isinstance(value, list) or not value:
        return f" is {_shown(value)}; where there are none, it is left out"
    found = ((index, _object(item, _TAGGED_FIELD, ("tag", "hex"))) for index, item in enumerate(value))
    return next((f"[{index}]{wrong}" for index, wrong in found if wrong), None)


_ANSWER: dict[str, _Check] = {
    "id": _text,
    "outcome": _one_of(*OUTCOMES),
    "error": _text,
    "finding": _label,
    "consumed": _integer(0, 2**63 - 1),
    "batches": _batches,
    "records": _records,
    "hex": _hex,
    "message": _message,
    "value": _one_value,
    "allocated_bytes": _integer(0, 2**63 - 1),
    "steps": _steps,
    "next_offset": _integer_text,
    "last_stable_offset": _integer_text,
}


def _versions(value: Any) -> str | None:
    wanted = "an object of messages, each with its lowest and highest version"
    if not isinstance(value, dict):
        return wanted
    for name, pair in value.items():
        if not (_MESSAGE.fullmatch(name) and isinstance(pair, list) and len(pair) == 2 and all(map(_is_int, pair))):
            return wanted
        if not 0 <= pair[0] <= pair[1] <= 32767:
            return wanted
    return None


def _primitives(value: Any) -> str | None:
    is_list = isinstance(value, list) and all(isinstance(name, str) and _PRIMITIVE.fullmatch(name) for name in value)
    return None if is_list else "a list of primitives by their names"


_HANDSHAKE: dict[str, _Check] = {
    "protocol": _one_of(PROTOCOL),
    "name": _label,
    "version": _label,
    "language": _text,
    "operations": _subset_of(*OPERATIONS),
    "roles": _subset_of(*ROLES),
    "magic": _subset_of(0, 1, 2),
    "codecs": _subset_of(*CODECS),
    "checks_crc": _boolean,
    "control": _one_of("shown", "hidden"),
    "messages": _versions,
    "primitives": _primitives,
}


def _object(value: Any, checks: Mapping[str, _Check], required: tuple[str, ...]) -> str | None:
    """None, or what is wrong, worded to follow the name of the place: `.offset is …; it must be …`."""
    if not isinstance(value, dict):
        return f" is {_shown(value)}; it must be a JSON object"
    for name in required:
        if name not in value:
            return f" lacks {name}"
    for name, item in value.items():
        check = checks.get(name)
        if check is None:
            return f" has the unknown field {_shown(name)}; known are {', '.join(checks)}"
        if wanted := check(item):
            return f".{name} is {_shown(item)}; it must be {wanted}"
    return None


def _shown(value: Any, width: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= width else text[:width] + "…"


def _parse(line: bytes, what: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        shown = line[:60].decode("ascii", "backslashreplace") + ("…" if len(line) > 60 else "")
        raise ProtocolError(f"{what} is not a line of JSON: {shown!r}; print nothing else on standard output") from None


# --- the two messages that come from a testee -----------------------------------------------------------------------


def parse_handshake(line: bytes) -> Handshake:
    """The first line of a testee; raises ``ProtocolError``."""
    raw = _parse(line, "the handshake")
    if wrong := _object(raw, _HANDSHAKE, ("protocol", "name", "version", "language", "operations")):
        raise ProtocolError(f"the handshake{wrong}")
    operations = frozenset(raw["operations"])
    needed = ["roles"] if operations & {DECODE, DECODE_STREAM, APPEND_STREAM} else []
    if operations & {DECODE, ENCODE, DECODE_STREAM, APPEND_STREAM}:
        needed += ["magic", "codecs"]
    if operations & {DECODE_MESSAGE, ENCODE_MESSAGE}:
        needed.append("messages")
    if operations & {DECODE_PRIMITIVE, ENCODE_PRIMITIVE}:
        needed.append("primitives")
    for name in needed:
        if name not in raw:
            raise ProtocolError(f"the handshake lacks {name}: what is unsupported must be declared")
    return Handshake(
        name=raw["name"],
        version=raw["version"],
        language=raw["language"],
        operations=operations,
        roles=frozenset(raw.get("roles", ())),
        magic=frozenset(raw.get("magic", ())),
        codecs=frozenset(raw.get("codecs", ())),
        checks_crc=raw.get("checks_crc", True),
        control=raw.get("control", "shown"),
        messages={name: (low, high) for name, (low, high) in raw.get("messages", {}).items()},
        primitives=frozenset(raw.get("primitives", ())),
    )


def parse_answer(line: bytes, *, id: str, operation: str) -> Answer:
    """The answer to the request ``id``; raises ``ProtocolError`` for anything else, an answer out of order included."""
    raw = _parse(line, "the answer")
    if wrong := _object(raw, _ANSWER, ("id", "outcome")):
        raise ProtocolError(f"the answer{wrong}")
    if raw["id"] != id:
        raise ProtocolError(f"the answer is to {_shown(raw['id'])}, but {_shown(id)} was asked: answers come in order")
    if raw["outcome"] == "accepted":
        if operation in (ENCODE, ENCODE_MESSAGE, ENCODE_PRIMITIVE) and "hex" not in raw:
            raise ProtocolError("the answer lacks hex: who accepts to encode must give the bytes")
        if operation == DECODE and ("batches" in raw) == ("records" in raw):
            raise ProtocolError("the answer must have either batches or records: who accepts must say what was read")
        if operation == DECODE_MESSAGE and "message" not in raw:
            raise ProtocolError("the answer lacks message: who accepts must say what was read")
        if operation == DECODE_PRIMITIVE and "value" not in raw:
            raise ProtocolError("the answer lacks value: who accepts must say what was read")
        if operation == DECODE_STREAM and "records" not in raw:
            raise ProtocolError("the answer lacks records: who accepts must say what was handed out")
        if operation == APPEND_STREAM and "steps" not in raw:
            raise ProtocolError("the answer lacks steps: who accepts must say what became of each")
    return Answer(
        id=raw["id"],
        outcome=raw["outcome"],
        error=raw.get("error", ""),
        finding=raw.get("finding"),
        consumed=raw.get("consumed"),
        batches=raw.get("batches"),
        records=raw.get("records"),
        data=bytes.fromhex(raw["hex"]) if "hex" in raw else None,
        message=raw.get("message"),
        value=raw.get("value"),
        allocated_bytes=raw.get("allocated_bytes"),
        steps=raw.get("steps"),
        next_offset=raw.get("next_offset"),
        last_stable_offset=raw.get("last_stable_offset"),
        raw=raw,
    )
