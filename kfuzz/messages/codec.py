"""Turns the bytes of a message into values, and values into bytes.

A message is a dict. Its keys are the definition's field names with the first letter in lower case. Its values are
numbers, text, ``bytes`` (16 for a uuid), lists, dicts and None. Fields that are not given have their defaults. Tagged
fields that this version does not know are pairs of tag and bytes under ``_unknownTaggedFields``.

:func:`decode` can also make objects with attributes of the same names, in a third of the time. The writer takes both.
Mirrors the classes of ``org.apache.kafka.common.message``.

Objects always have the fields that the version lacks, with their defaults. Dicts have them if ``defaults`` is set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from kfuzz.errors import MessageError, UsageError
from kfuzz.findings import PROFILES, Finding, Profile
from kfuzz.findings.messages import from_message_note
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.model import Definition
from kfuzz.messages.schemas import schema
from kfuzz.wire.messages.values import StructValue

if TYPE_CHECKING:
    from kfuzz.wire.messages import Note, Schema

Message = dict[str, Any]
_Verdict = TypeVar("_Verdict", bound="MessageVerdict")


@dataclass
class MessageVerdict:
    """The result of :func:`check`. ``consumed`` is where the message ends, in bytes, or 0 if it is refused."""

    consumed: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def fatal(self) -> Finding | None:
        """The first finding that refuses the bytes, or None."""
        return next((finding for finding in self.findings if finding.severity == "fatal"), None)


@dataclass
class MessageReading(MessageVerdict):
    """The result of :func:`read`: a verdict, and the values. ``message`` is None if the bytes are refused."""

    message: Message | None = None


def _program(message: str | Definition, version: int) -> Schema:
    return schema(catalogue().find(message) if isinstance(message, str) else message, version)


def require_profile(profile: Profile) -> None:
    """Raises ``UsageError`` for an unknown profile."""
    if profile not in PROFILES:
        raise UsageError(f"profile {profile!r} does not exist; take one of {', '.join(PROFILES)}")


def _excess(program: Schema, data: bytes, elements_max: int | None) -> Finding | None:
    """The finding for a message with too many elements in all of its arrays together.

    Kafka bounds each array only. Values take up to a hundred times the memory of their bytes.
    """
    if elements_max is None or (count := program.elements(data)) <= elements_max:
        return None
    sentence = f"all arrays have {count} elements together; at most {elements_max} are read here"
    return Finding("count-too-large", "fatal", 0, program.name, None, sentence)


def read(
    message: str | Definition,
    version: int,
    data: bytes,
    *,
    profile: Profile = "kafka",
    defaults: bool = False,
    elements_max: int | None = None,
) -> MessageReading:
    """Read a message: its values and the findings. Bad bytes become findings, not exceptions.

    ``message`` is a definition, or the name of a message of the latest release. Profile ``kafka`` refuses what the
    generated classes of that release refuse. ``strict`` refuses everything that a writer must not write. For
    ``defaults`` and ``elements_max`` see :func:`decode`. Raises ``UsageError`` for an unknown message, version or
    profile.

    >>> from kfuzz.messages import read
    >>> reading = read("ApiVersionsRequest", 3, bytes.fromhex("066b66757a7a02310000"))
    >>> reading.message, reading.consumed
    ({'clientSoftwareName': 'kfuzz', 'clientSoftwareVersion': '1'}, 9)
    >>> print(reading.findings[0])
    ApiVersionsRequest at byte 9: 1 bytes follow the message [bytes-after-message]
    """
    require_profile(profile)
    program = _program(message, version)
    if excess := _excess(program, bytes(data), elements_max):
        return MessageReading(0, [excess])
    consumed, notes, value = (program.decode_whole if defaults else program.decode)(bytes(data))
    return reading_of(program.name, consumed, notes, value, profile)


def check(message: str | Definition, version: int, data: bytes, *, profile: Profile = "kafka") -> MessageVerdict:
    """Check the bytes of a message as :func:`read` does, without making values.

    >>> from kfuzz.messages import check
    >>> print(check("ApiVersionsRequest", 3, bytes.fromhex("066b6675")).fatal)
    ApiVersionsRequest.clientSoftwareName at byte 0: the length is 5, and 3 bytes are left [length-exceeds-message]
    """
    require_profile(profile)
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
    elements_max: int | None = None,
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
    elements_max: int | None = None,
) -> StructValue: ...
def decode(
    message: str | Definition,
    version: int,
    data: bytes,
    *,
    profile: Profile = "kafka",
    objects: bool = False,
    defaults: bool = False,
    elements_max: int | None = None,
) -> Message | StructValue:
    """The values of a message, as dicts or as ``objects``. Raises ``MessageError`` with the first fatal finding.

    With ``defaults``, dicts also have the fields that the version lacks, each with its default. Kafka's generated
    classes have these fields too, and so do objects in any case.

    ``elements_max`` bounds the elements of all arrays together, and tagged fields, before any value is made. Kafka
    bounds each array only, so bytes from strangers need this bound.

    >>> from kfuzz.messages import decode
    >>> decode("ApiVersionsRequest", 3, bytes.fromhex("066b66757a7a023100"))
    {'clientSoftwareName': 'kfuzz', 'clientSoftwareVersion': '1'}
    >>> decode("ApiVersionsRequest", 3, bytes.fromhex("066b66757a7a023100"), objects=True).clientSoftwareName
    'kfuzz'
    >>> decode("ApiVersionsRequest", 0, b"", defaults=True)
    {'clientSoftwareName': '', 'clientSoftwareVersion': '', 'clusterId': None, 'nodeId': -1}
    """
    require_profile(profile)
    program = _program(message, version)
    if excess := _excess(program, bytes(data), elements_max):
        raise MessageError(excess)
    reader = program.decode_objects if objects else program.decode_whole if defaults else program.decode
    consumed, notes, value = reader(bytes(data))
    if notes:
        fatal = _judged(MessageVerdict(consumed), program.name, notes, profile).fatal
        if fatal is not None:
            raise MessageError(fatal)
    assert value is not None
    return value


def encode(message: str | Definition, version: int, values: Mapping[str, Any] | StructValue) -> bytes:
    """The bytes of a message. Raises ``EncodeError`` with the field's path if a value does not fit.

    A struct may be any mapping, a number any object with ``__index__`` (``IntEnum``), and bytes any bytes-like object
    (``bytearray``, ``memoryview``). Dicts, ints and ``bytes`` are the fastest. A value for a field that this version
    lacks is an error, unless it is the default or the field is ignorable.

    >>> from kfuzz.messages import encode
    >>> encode("ApiVersionsRequest", 3, {"clientSoftwareName": "kfuzz", "clientSoftwareVersion": "1"}).hex()
    '066b66757a7a023100'
    """
    return _program(message, version).encode(values)


def size(message: str | Definition, version: int, values: Mapping[str, Any] | StructValue) -> int:
    """The number of bytes that :func:`encode` makes of the values. Raises the same errors.

    >>> from kfuzz.messages import size
    >>> size("ApiVersionsRequest", 3, {"clientSoftwareName": "kfuzz", "clientSoftwareVersion": "1"})
    9
    """
    return _program(message, version).size(values)


def reading_of(
    name: str, consumed: int, notes: Sequence[Note], value: Message | None, profile: Profile
) -> MessageReading:
    """The reading for a program's notes. Paths in its findings begin with ``name``."""
    reading = _judged(MessageReading(consumed, message=value), name, notes, profile)
    if reading.fatal is not None:
        reading.message = None
    return reading


def _judged(verdict: _Verdict, name: str, notes: Sequence[Note], profile: Profile) -> _Verdict:
    """The verdict with findings for the notes, sorted by offset."""
    if notes:
        ordered = sorted(notes, key=lambda note: (note[1], note[0]))
        verdict.findings = [from_message_note(name, note, profile) for note in ordered]
        if verdict.fatal is not None:
            verdict.consumed = 0
    return verdict
