"""Control records with typed keys and values: transaction markers and KRaft's own. May import its neighbours.

Values are messages: ``_LAYOUTS`` repeats Kafka's definitions with their names in snake_case, and ``kfuzz.wire.message``
reads and writes them. A type or version that Kafka 4.4 does not know stays bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from kfuzz.errors import EncodeError, RecordsError
from kfuzz.findings import Finding
from kfuzz.findings.messages import from_message_note
from kfuzz.java import AS_JAVA
from kfuzz.wire.message import Schema
from kfuzz.wire.values import UNKNOWN_TAGGED_FIELDS

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
    "decode_control",
    "encode_control",
]

KEY_VERSION: Final = 0
# Its version and its type.
KEY: Final = struct.Struct(">hh")
NO_UUID: Final = bytes(16)


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
    """What a control record's key says. ``type`` may be one that Kafka does not know; ``rest`` are bytes after the
    fields, which a later version may have added. Mirrors ``ControlRecordTypeSchema``.
    """

    type: int
    version: int = KEY_VERSION
    rest: bytes = b""


class TaggedField(NamedTuple):
    """A tagged field that this layout does not define."""

    tag: int
    data: bytes


TaggedFields = tuple[TaggedField, ...]


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The value of ABORT and COMMIT. Later versions begin as version 0 does; ``EndTxnMarker``."""

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
    """The value of LEADER_CHANGE: who leads the quorum from here on, and who voted for that."""

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
    """The value of KRAFT_VERSION: the version of the quorum's protocol from here on."""

    kraft_version: int
    version: int = 0
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a listener of a :class:`Voter` is reached."""

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
    """The value of KRAFT_VOTERS: who votes from here on."""

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
    """A control record. ``value`` is bytes (or None for null) where Kafka 4.4 knows no layout for it; ``rest`` are
    bytes after the value's last field, which Kafka leaves unread.
    """

    key: ControlRecordKey
    value: ControlValue | bytes | None
    rest: bytes = b""


def decode_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """The control record that ``key`` and ``value`` are; ``RecordsError`` where they are refused.

    A value of a version above those that Kafka 4.4 defines stays bytes, where Kafka itself would read it as version 0.
    Mirrors ``org.apache.kafka.common.record.ControlRecordUtils`` and ``EndTransactionMarker``.

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
    if type_ not in _VALUES:
        return ControlRecord(parsed, value)
    if value is None:
        name = ControlRecordType(type_).name
        raise _refused("control-value-invalid", "value", 0, f"the value is null; a record of type {name} has one")
    kind, newest = _VALUES[type_]
    # Of a value without a version the program says so.
    version = int.from_bytes(value[:2], "big", signed=True) if len(value) > 1 else 0
    if version < 0:
        raise _refused("control-value-invalid", "value.version", 0, f"the version is {version}; it must be 0 or more")
    if version > newest and kind is not EndTransactionMarker:
        return ControlRecord(parsed, value)
    end, notes, values = _program(type_, min(version, newest)).decode(value)
    if values is None:
        findings = [from_message_note("value", note, "kafka") for note in notes]
        cause = next(finding for finding in findings if finding.severity == "fatal")
        raise _refused("control-value-invalid", cause.path, cause.at, cause.message)
    return ControlRecord(parsed, _from_dict(kind, values), value[end:])


def encode_control(record: ControlRecord) -> tuple[bytes, bytes | None]:
    """Key and value of ``record``, as Kafka writes them; ``EncodeError`` where a field does not fit.

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
    kind, newest = _VALUES.get(record.key.type, (type(None), 0))
    if not isinstance(record.value, kind):
        raise EncodeError(f"a control record of type {record.key.type} has no value {type(record.value).__name__}")
    version = record.value.version
    if version < 0 or (version > newest and kind is not EndTransactionMarker):
        raise EncodeError(f"value.version is {version}; {type(record.value).__name__} has versions 0 to {newest}")
    return key, _program(record.key.type, min(version, newest)).encode(_to_dict(record.value)) + record.rest


# ------------------------------------------------------------------------------------------------- layouts


class _Field(NamedTuple):
    """A field of type ``kind``, or a ``struct``; there from version ``since``."""

    name: str
    kind: str = "struct"
    struct: type | None = None
    array: bool = False
    since: int = 0


_T = TypeVar("_T")


def _refused(code: str, path: str, at: int, message: str) -> RecordsError:
    return RecordsError(Finding(code, "fatal", at, path, "RB-CONTROL-2", message))


@cache
def _program(type_: int, version: int) -> Schema:
    kinds: list[type] = [_VALUES[type_][0]]
    # Structs are met on the way.
    for met in kinds:
        for field in _LAYOUTS[met]:
            if field.struct and field.struct not in kinds:
                kinds.append(field.struct)
    return Schema("value", version, [_plan(one, version, kinds) for one in kinds], AS_JAVA)


def _plan(kind: type, version: int, kinds: list[type]) -> dict[str, Any]:
    """What a program is told of a struct."""
    return {
        "name": kind.__name__,
        "flexible": _is_flexible(kind),
        "fields": [
            {
                "name": field.name,
                "kind": field.kind,
                "array": field.array,
                "nullable": False,
                "compact": True,
                "there": True,
                "tag": -1,
                "plan": kinds.index(field.struct) if field.struct else 0,
                # Nothing is ever left out.
                "default": None,
            }
            for field in _LAYOUTS[kind]
            if field.since <= version
        ],
        "tagged": [],
        # There is no other that later versions have.
        "absent": {field.name: (NO_UUID, False) for field in _LAYOUTS[kind] if field.since > version},
        "map_keys": (),
    }


def _is_flexible(kind: type) -> bool:
    return kind is not EndTransactionMarker


def _from_dict(kind: type[_T], values: dict[str, Any]) -> _T:
    found: dict[str, Any] = {}
    for field in _LAYOUTS[kind]:
        if field.name in values:
            given = found[field.name] = values[field.name]
            if field.struct and field.array:
                found[field.name] = tuple(_from_dict(field.struct, one) for one in given)
            elif field.struct:
                found[field.name] = _from_dict(field.struct, given)
    if _is_flexible(kind):
        found["tagged_fields"] = tuple(TaggedField(*pair) for pair in values.get(UNKNOWN_TAGGED_FIELDS, ()))
    return kind(**found)


def _to_dict(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in _LAYOUTS[type(value)]:
        given = found[field.name] = getattr(value, field.name)
        if field.struct and field.array:
            found[field.name] = [_to_dict(one) for one in given]
        elif field.struct:
            found[field.name] = _to_dict(given)
    if _is_flexible(type(value)) and value.tagged_fields:
        found[UNKNOWN_TAGGED_FIELDS] = [tuple(pair) for pair in value.tagged_fields]
    return found


_VERSION: Final = _Field("version", "int16")

# The fields in their order on the wire; org/apache/kafka/common/message/*.json.
_LAYOUTS: Final[dict[type, tuple[_Field, ...]]] = {
    EndTransactionMarker: (_VERSION, _Field("coordinator_epoch", "int32")),
    LeaderChangeVoter: (_Field("voter_id", "int32"), _Field("voter_directory_id", "uuid", since=1)),
    LeaderChangeMessage: (
        _VERSION,
        _Field("leader_id", "int32"),
        _Field("voters", struct=LeaderChangeVoter, array=True),
        _Field("granting_voters", struct=LeaderChangeVoter, array=True),
    ),
    SnapshotHeaderRecord: (_VERSION, _Field("last_contained_log_timestamp", "int64")),
    SnapshotFooterRecord: (_VERSION,),
    KRaftVersionRecord: (_VERSION, _Field("kraft_version", "int16")),
    Endpoint: (_Field("name", "string"), _Field("host", "string"), _Field("port", "uint16")),
    KRaftVersionFeature: (_Field("min_supported_version", "int16"), _Field("max_supported_version", "int16")),
    Voter: (
        _Field("voter_id", "int32"),
        _Field("voter_directory_id", "uuid"),
        _Field("endpoints", struct=Endpoint, array=True),
        _Field("kraft_version_feature", struct=KRaftVersionFeature),
    ),
    VotersRecord: (_VERSION, _Field("voters", struct=Voter, array=True)),
}

# What the value of each type is, and the newest version of it.
_VALUES: Final[dict[int, tuple[type[ControlValue], int]]] = {
    ControlRecordType.ABORT: (EndTransactionMarker, 0),
    ControlRecordType.COMMIT: (EndTransactionMarker, 0),
    ControlRecordType.LEADER_CHANGE: (LeaderChangeMessage, 1),
    ControlRecordType.SNAPSHOT_HEADER: (SnapshotHeaderRecord, 0),
    ControlRecordType.SNAPSHOT_FOOTER: (SnapshotFooterRecord, 0),
    ControlRecordType.KRAFT_VERSION: (KRaftVersionRecord, 0),
    ControlRecordType.KRAFT_VOTERS: (VotersRecord, 0),
}
