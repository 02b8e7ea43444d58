"""Reads and writes control records: transaction markers and KRaft's control records.

The values are messages. The catalogue of the latest release defines them; here, their field names are in snake_case.
The value of a type or version that this release does not know stays bytes.
"""

from __future__ import annotations

import re
import struct
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_type_hints

from kfuzz.control.model import (
    ControlRecord,
    ControlRecordKey,
    ControlRecordType,
    ControlValue,
    Endpoint,
    EndTransactionMarker,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TaggedField,
    Voter,
    VotersRecord,
)
from kfuzz.errors import EncodeError, RecordsError
from kfuzz.findings import Finding
from kfuzz.findings.messages import from_message_note
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import decode
from kfuzz.messages.jsonform import to_json
from kfuzz.messages.model import ALL, Definition, Field, Struct, Type
from kfuzz.messages.schemas import schema
from kfuzz.wire.messages import Schema
from kfuzz.wire.messages.values import UNKNOWN_TAGGED_FIELDS

__all__ = ["control_json", "decode_control", "encode_control"]

# A key's version and its type.
KEY: Final = struct.Struct(">hh")
MARKER_VERSION_BYTES: Final = 2

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
# The catalogue's name for each class that has another name here.
_NAMES: Final[dict[type[ControlValue], str]] = {EndTransactionMarker: "EndTxnMarker"}
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
    newest = _newest(kind)
    # A value too short for a version is refused below, like every truncated value.
    version = int.from_bytes(value[:2], "big", signed=True) if len(value) > 1 else 0
    if version < 0:
        raise _refused("control-value-invalid", "value.version", 0, f"the version is {version}; it must be 0 or more")
    if version > newest and kind is not EndTransactionMarker:
        return ControlRecord(parsed, value)
    end, notes, values = _program(kind, min(version, newest)).decode(value)
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
    newest = _newest(kind)
    version = record.value.version
    if version < 0 or (version > newest and kind is not EndTransactionMarker):
        raise EncodeError(f"value.version is {version}; {type(record.value).__name__} has versions 0 to {newest}")
    return key, _program(kind, min(version, newest)).encode(_to_dict(record.value)) + record.rest


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
    definition = catalogue().find(_NAMES.get(kind, kind.__name__))
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


def _definition(kind: type[ControlValue]) -> Definition:
    return _renamed(_NAMES.get(kind, kind.__name__))


@cache
def _renamed(name: str) -> Definition:
    """The catalogue's definition of a value, with the Python names of its fields; paths begin with ``value``."""
    found = catalogue().find(name)
    inside = tuple(_snake_cased(field) for field in found.fields)
    if name == _NAMES[EndTransactionMarker]:
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


def _program(kind: type[ControlValue], version: int) -> Schema:
    return schema(_definition(kind), version)


def _newest(kind: type[ControlValue]) -> int:
    return _definition(kind).valid_versions.highest


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
    structs = _STRUCTS[type(value)]
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(value)):
        given = getattr(value, name)
        if name == "tagged_fields":
            if given:
                found[UNKNOWN_TAGGED_FIELDS] = [tuple(pair) for pair in given]
        elif name not in structs:
            found[name] = given
        elif isinstance(given, tuple):
            found[name] = [_to_dict(one) for one in given]
        else:
            found[name] = _to_dict(given)
    return found
