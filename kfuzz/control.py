"""Control records with typed keys and values: transaction markers and KRaft's control records.

The values are messages. The catalogue of the latest release defines them; here, their field names are in snake_case.
The value of a type or version that this release does not know stays bytes.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

from kfuzz.errors import EncodeError, RecordsError
from kfuzz.findings import Finding
from kfuzz.findings.messages import from_message_note
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import decode
from kfuzz.messages.jsonform import to_json
from kfuzz.messages.model import ALL, Definition, Field, Struct, Type
from kfuzz.messages.schemas import schema
from kfuzz.wire.messages.values import UNKNOWN_TAGGED_FIELDS

__all__ = [
    "ControlRecord",
    "ControlRecordKey",
    "ControlRecordType",
    "ControlValue",
    "EndTransactionMarker",
    "Endpoint",
    "KRaftVersionFeature",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "LeaderChangeVoter",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "TaggedField",
    "Voter",
    "VotersRecord",
    "control_json",
    "decode_control",
    "encode_control",
]

NO_UUID: Final = bytes(16)
# A key's version and its type.
KEY: Final = struct.Struct(">hh")
MARKER_VERSION_BYTES: Final = 2


class ControlRecordType(IntEnum):
    """The types of control records that Kafka 4.4 knows; ``org.apache.kafka.common.record.ControlRecordType``."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class ControlRecordKey:
    """A control record's key. ``type`` may be unknown to Kafka. ``rest`` holds the bytes after the known fields, which
    a later version may have added. Mirrors ``ControlRecordTypeSchema``.
    """

    type: int
    version: int = 0
    rest: bytes = b""


class TaggedField(NamedTuple):
    """A tagged field that the struct's definition does not know."""

    tag: int
    data: bytes


TaggedFields = tuple[TaggedField, ...]


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The value of ABORT and COMMIT. Later versions begin with the fields of version 0; mirrors ``EndTxnMarker``."""

    coordinator_epoch: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class LeaderChangeVoter:
    """A voter of a :class:`LeaderChangeMessage`; it has a directory id from version 1."""

    voter_id: int
    voter_directory_id: bytes = NO_UUID
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True)
class LeaderChangeMessage:
    """The value of LEADER_CHANGE: the new leader of the quorum, its voters, and those who voted for the leader."""

    leader_id: int
    voters: tuple[LeaderChangeVoter, ...] = ()
    granting_voters: tuple[LeaderChangeVoter, ...] = ()
    version: int = 0
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True)
class SnapshotHeaderRecord:
    """The value of SNAPSHOT_HEADER, the first record of a snapshot; the timestamp is in milliseconds."""

    last_contained_log_timestamp: int
    version: int = 0
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True)
class SnapshotFooterRecord:
    """The value of SNAPSHOT_FOOTER, the last record of a snapshot."""

    version: int = 0
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True)
class KRaftVersionRecord:
    """The value of KRAFT_VERSION: the version of the quorum's protocol from this record on."""

    kraft_version: int
    version: int = 0
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one listener of a :class:`Voter`."""

    name: str
    host: str
    port: int
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True)
class KRaftVersionFeature:
    """The versions of the quorum's protocol that a :class:`Voter` supports."""

    min_supported_version: int
    max_supported_version: int
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter of a :class:`VotersRecord`; ``voter_directory_id`` is a uuid's 16 bytes."""

    voter_id: int
    voter_directory_id: bytes
    endpoints: tuple[Endpoint, ...]
    kraft_version_feature: KRaftVersionFeature
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True)
class VotersRecord:
    """The value of KRAFT_VOTERS: the quorum's voters from this record on."""

    voters: tuple[Voter, ...] = ()
    version: int = 0
    tagged_fields: TaggedFields = ()


ControlValue = (
    EndTransactionMarker
    | LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
)


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A control record. ``value`` is bytes (or None for null) if Kafka 4.4 has no definition for it. ``rest`` holds the
    bytes after the value's last field, which Kafka does not read.
    """

    key: ControlRecordKey
    value: ControlValue | bytes | None
    rest: bytes = b""


# ------------------------------------------------------------------------------------------------- bytes

# The class of the value, for each type of control record.
_KINDS: Final[dict[int, type[ControlValue]]] = {
    ControlRecordType.ABORT: EndTransactionMarker,
    ControlRecordType.COMMIT: EndTransactionMarker,
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}
_T = TypeVar("_T")


def decode_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Decode a control record's ``key`` and ``value``; ``RecordsError`` if one is refused.

    A KRaft value of a version above those that Kafka 4.4 defines stays bytes; Kafka itself would read it as version 0.
    Mirrors ``org.apache.kafka.common.record.ControlRecordUtils`` and ``EndTransactionMarker``.

    >>> from kfuzz.control import decode_control
    >>> decode_control(bytes.fromhex("00000001"), bytes.fromhex("000000000007")).value
    EndTransactionMarker(coordinator_epoch=7, version=0)
    """
    if key is None:
        raise _refused("control-key-invalid", "key", 0, "the key is null; a control record's key is its type")
    if len(key) < KEY.size:
        raise _refused("control-key-invalid", "key", 0, f"the key has {len(key)} bytes; version and type take 4")
    version, type_ = KEY.unpack_from(key)
    if version < 0:
        raise _refused("control-key-invalid", "key.version", 0, f"the version is {version}; it must be 0 or more")
    parsed = ControlRecordKey(type_, version, key[KEY.size :])
    if type_ not in _KINDS:
        return ControlRecord(parsed, value)
    if value is None:
        name = ControlRecordType(type_).name
        raise _refused("control-value-invalid", "value", 0, f"the value is null; a record of type {name} has one")
    kind = _KINDS[type_]
    definition = _definition(_name(kind))
    newest = definition.valid_versions.highest
    # A value too short for a version is refused below, like every truncated value.
    version = int.from_bytes(value[:2], "big", signed=True) if len(value) > 1 else 0
    if version < 0:
        raise _refused("control-value-invalid", "value.version", 0, f"the version is {version}; it must be 0 or more")
    if version > newest and kind is not EndTransactionMarker:
        return ControlRecord(parsed, value)
    end, notes, values = schema(definition, min(version, newest)).decode(value)
    if values is None:
        findings = [from_message_note("value", note, "kafka") for note in notes]
        cause = next(finding for finding in findings if finding.severity == "fatal")
        raise _refused("control-value-invalid", cause.path, cause.at, cause.message)
    return ControlRecord(parsed, _from_dict(kind, values), value[end:])


def encode_control(record: ControlRecord) -> tuple[bytes, bytes | None]:
    """Key and value of ``record``, as Kafka writes them; ``EncodeError`` if a field does not fit.

    >>> from kfuzz.control import ControlRecord, ControlRecordKey, ControlRecordType
    >>> from kfuzz.control import EndTransactionMarker, encode_control
    >>> marker = ControlRecord(ControlRecordKey(ControlRecordType.COMMIT), EndTransactionMarker(7))
    >>> [part.hex() for part in encode_control(marker)]
    ['00000001', '000000000007']
    """
    try:
        key = KEY.pack(record.key.version, record.key.type) + record.key.rest
    except struct.error:
        raise EncodeError(f"{record.key} does not fit; version and type are int16") from None
    if record.value is None or isinstance(record.value, bytes):
        return key, record.value
    kind = _KINDS.get(record.key.type)
    if kind is None or not isinstance(record.value, kind):
        raise EncodeError(
            f"a control record of type {record.key.type} cannot have a value of class {type(record.value).__name__}"
        )
    definition, version = _definition(_name(kind)), record.value.version
    newest = definition.valid_versions.highest
    if version < 0 or (version > newest and kind is not EndTransactionMarker):
        raise EncodeError(f"value.version is {version}; {type(record.value).__name__} has versions 0 to {newest}")
    return key, schema(definition, min(version, newest)).encode(_to_dict(record.value)) + record.rest


def control_json(key: bytes | None, value: bytes | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Key and value of a control record as JSON objects: the key's type, and the value in the JSON form of messages.

    ``{"error": …}`` if one of them is refused; ``{"hex": …}`` for a value of a type or version that is not known.

    >>> from kfuzz.control import control_json
    >>> control_json(bytes.fromhex("00000001"), bytes.fromhex("000000000007"))[1]
    {'type': 'EndTxnMarker', 'version': 0, 'data': {'coordinatorEpoch': 7}}
    """
    shown: dict[str, Any] = {}
    if key is not None and len(key) >= KEY.size:
        version, type_ = KEY.unpack_from(key)
        shown = {"type": ControlRecordType(type_).name if type_ in _KINDS else type_, "version": version}
        if value is None:
            return shown, None
    try:
        record = decode_control(key, value)
    except RecordsError as error:
        refused = {"error": str(error)}
        return shown or refused, None if value is None else refused
    if value is None or record.value is None or isinstance(record.value, bytes):
        return shown, None if value is None else {"hex": value.hex()}
    kind = type(record.value)
    definition = catalogue().find(_name(kind))
    version = min(record.value.version, definition.valid_versions.highest)
    # Kafka writes a marker's version in front of the message; the other values have it as their first field.
    values = decode(definition, version, value[MARKER_VERSION_BYTES:] if kind is EndTransactionMarker else value)
    return shown, {
        "type": definition.name,
        "version": record.value.version,
        "data": to_json(definition, version, values),
    }


def _refused(code: str, path: str, at: int, message: str) -> RecordsError:
    return RecordsError(Finding(code, "fatal", at, path, "RB-CONTROL-2", message))


# ------------------------------------------------------------------------------------------------- definitions


def _name(kind: type[ControlValue]) -> str:
    """The name that the catalogue has for a class."""
    return "EndTxnMarker" if kind is EndTransactionMarker else kind.__name__


@cache
def _definition(name: str) -> Definition:
    """The catalogue's definition of a value with the Python names of its fields; paths begin with ``value``."""
    found = catalogue().find(name)
    inside = tuple(_snake_cased(field) for field in found.fields)
    if name == _name(EndTransactionMarker):
        # Kafka writes a marker's version in front of the message; the other values have it as their first field.
        inside = (Field("version", Type("int16"), ALL, default=0), *inside)
    structs = {
        name: Struct(name, one.versions, tuple(_snake_cased(field) for field in one.fields), one.common)
        for name, one in found.structs.items()
    }
    return replace(found, name="value", fields=inside, structs=structs)


def _snake_cased(field: Field) -> Field:
    """The field with its Python name: ``KRaftVersion`` becomes ``kraft_version``."""
    return replace(field, name=re.sub(r"(?<=[a-z])(?=[A-Z])", "_", field.name).lower())


# ------------------------------------------------------------------------------------------------- values


def _structs_of(kind: type) -> dict[str, type]:
    """The struct's class for each field that holds a struct or a tuple of structs."""
    held = {name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(kind).items()}
    return {name: one for name, one in held.items() if is_dataclass(one) and isinstance(one, type)}


_STRUCTS: Final[dict[type, dict[str, type]]] = {
    kind: _structs_of(kind) for kind in (*_KINDS.values(), LeaderChangeVoter, Voter, Endpoint, KRaftVersionFeature)
}


def _from_dict(kind: type[_T], values: dict[str, Any]) -> _T:
    structs = _STRUCTS[kind]
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name == UNKNOWN_TAGGED_FIELDS:
            found["tagged_fields"] = tuple(TaggedField(*pair) for pair in value)
        elif name not in structs:
            found[name] = value
        elif isinstance(value, list):
            found[name] = tuple(_from_dict(structs[name], one) for one in value)
        else:
            found[name] = _from_dict(structs[name], value)
    return kind(**found)


def _to_dict(value: Any) -> dict[str, Any]:
    found = {field.name: getattr(value, field.name) for field in fields(value)}
    if tagged := found.pop("tagged_fields", ()):
        found[UNKNOWN_TAGGED_FIELDS] = [tuple(pair) for pair in tagged]
    for name in _STRUCTS[type(value)]:
        given = found[name]
        found[name] = [_to_dict(one) for one in given] if isinstance(given, tuple) else _to_dict(given)
    return found
