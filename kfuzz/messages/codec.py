"""Bytes of a message and its values.

A message is a dict with the definitions' field names, the first letter small: numbers, text, ``bytes`` (a uuid has 16),
lists, dicts, None. What is not given has its default; tagged fields that this version does not know stand under
``_unknownTaggedFields`` as pairs of tag and bytes. :func:`decode` makes objects with attributes of the same names as
well, which take a third of the time; the writer takes both. Mirrors the classes of ``org.apache.kafka.common.message``.

A field that the version lacks has its default in objects, and in dicts where ``defaults`` asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from kfuzz.errors import MessageError, UsageError
from kfuzz.findings import PROFILES, Finding, Profile
from kfuzz.findings.messages import CODES, from_message_note
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.model import Definition
from kfuzz.messages.schemas import schema
from kfuzz.wire.values import StructValue

if TYPE_CHECKING:
    from kfuzz.wire.message import Note, Schema

__all__ = [
    "CODES",
    "Message",
    "MessageReading",
    "MessageVerdict",
    "StructValue",
    "check",
    "decode",
    "encode",
    "read",
    "reading_of",
    "size",
]

Message = dict[str, Any]
_Verdict = TypeVar("_Verdict", bound="MessageVerdict")


@dataclass
class MessageVerdict:
    """What :func:`check` says of some bytes: where the message ends (0 where it is refused), and what was found."""

    consumed: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def fatal(self) -> Finding | None:
        """The first finding that refuses the bytes, or None."""
        return next((finding for finding in self.findings if finding.severity == "fatal"), None)


@dataclass
class MessageReading(MessageVerdict):
    """A verdict and the values, None where the bytes are refused."""

    message: Message | None = None


def _program(message: str | Definition, version: int) -> Schema:
    return schema(catalogue().find(message) if isinstance(message, str) else message, version)


def _require_profile(profile: Profile) -> None:
    if profile not in PROFILES:
        raise UsageError(f"profile {profile!r} does not exist; take one of {', '.join(PROFILES)}")


def read(
    message: str | Definition, version: int, data: bytes, *, profile: Profile = "kafka", defaults: bool = False
) -> MessageReading:
    """Values and findings; never raises on bad bytes. ``message`` is a definition, or the name of one of the latest.

    Profile ``kafka`` refuses what the generated classes of the release refuse; ``strict`` all that a writer may not do.
    ``defaults`` is that of :func:`decode`. ``UsageError`` for an unknown message, version or profile.
    """
    _require_profile(profile)
    program = _program(message, version)
    consumed, notes, value = (program.decode_whole if defaults else program.decode)(bytes(data))
    return reading_of(program.name, consumed, notes, value, profile)


def check(message: str | Definition, version: int, data: bytes, *, profile: Profile = "kafka") -> MessageVerdict:
    """As :func:`read`, but no values are made."""
    _require_profile(profile)
    program = _program(message, version)
    consumed, notes = program.check(data)
    return _judged(MessageVerdict(consumed), program.name, notes, profile)


@overload
def decode(
    message: str | Definition,
    version: int,
    data: bytes,
    *,
    profile: Profile = "kafka",
    objects: Literal[False] = False,
    defaults: bool = False,
) -> Message: ...
@overload
def decode(
    message: str | Definition,
    version: int,
    data: bytes,
    *,
    profile: Profile = "kafka",
    objects: Literal[True],
    defaults: bool = False,
) -> StructValue: ...
def decode(
    message: str | Definition,
    version: int,
    data: bytes,
    *,
    profile: Profile = "kafka",
    objects: bool = False,
    defaults: bool = False,
) -> Message | StructValue:
    """The values, in dicts or as ``objects``; ``MessageError`` with the first fatal finding.

    With ``defaults`` the dicts hold the fields that the version lacks as well, each with its default, as Kafka's
    generated classes have them; objects always do.

    >>> from kfuzz.messages import decode
    >>> decode("ApiVersionsRequest", 3, bytes.fromhex("066b66757a7a023100"))
    {'clientSoftwareName': 'kfuzz', 'clientSoftwareVersion': '1'}
    >>> decode("ApiVersionsRequest", 3, bytes.fromhex("066b66757a7a023100"), objects=True).clientSoftwareName
    'kfuzz'
    >>> decode("ApiVersionsRequest", 0, b"", defaults=True)
    {'clientSoftwareName': '', 'clientSoftwareVersion': '', 'clusterId': None, 'nodeId': -1}
    """
    _require_profile(profile)
    program = _program(message, version)
    reader = program.decode_objects if objects else program.decode_whole if defaults else program.decode
    consumed, notes, value = reader(bytes(data))
    if notes:
        fatal = _judged(MessageVerdict(consumed), program.name, notes, profile).fatal
        if fatal is not None:
            raise MessageError(fatal)
    assert value is not None
    return value


def encode(message: str | Definition, version: int, values: Mapping[str, Any] | StructValue) -> bytes:
    """The bytes; ``EncodeError`` with the field's path where a value does not fit, before a byte is given out.

    A struct may be any mapping, a number anything with ``__index__`` (``IntEnum``), bytes anything bytes-like
    (``bytearray``, ``memoryview``); dicts, ints and ``bytes`` are the fastest. A value that this version has no place
    for is an error, unless it is the default or the field is ignorable.

    >>> from kfuzz.messages import encode
    >>> encode("ApiVersionsRequest", 3, {"clientSoftwareName": "kfuzz", "clientSoftwareVersion": "1"}).hex()
    '066b66757a7a023100'
    """
    return _program(message, version).encode(values)


def size(message: str | Definition, version: int, values: Mapping[str, Any] | StructValue) -> int:
    """How many bytes :func:`encode` makes of the values."""
    return _program(message, version).size(values)


def reading_of(
    name: str, consumed: int, notes: Sequence[Note], value: Message | None, profile: Profile
) -> MessageReading:
    """The reading that the program's notes make; ``name`` is what paths begin with."""
    reading = _judged(MessageReading(consumed, message=value), name, notes, profile)
    if reading.fatal is not None:
        reading.message = None
    return reading


def _judged(verdict: _Verdict, name: str, notes: Sequence[Note], profile: Profile) -> _Verdict:
    """The verdict with the findings that the notes make, in the order of their places."""
    if notes:
        ordered = sorted(notes, key=lambda note: (note[1], note[0]))
        verdict.findings = [from_message_note(name, note, profile) for note in ordered]
        if verdict.fatal is not None:
            verdict.consumed = 0
    return verdict
