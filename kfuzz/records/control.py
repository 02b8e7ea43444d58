"""Control records with typed keys and values: transaction markers and KRaft's own. May import its neighbours.

Values are in the layout of Kafka's message definitions (flexible versions: compact lengths, tagged fields), which
``_LAYOUTS`` repeats with the definitions' names in snake_case. A type or version that Kafka 4.4 does not know stays
bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from kfuzz.errors import EncodeError, RecordsError
from kfuzz.records.findings import Finding
from kfuzz.records.rebuild import through_java
from kfuzz.wire.cursor import uvarint

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
# Kafka's bounds on what a message claims; org.apache.kafka.common.protocol.MessageUtil.
ARRAY_LENGTH_MAX: Final = 1_000_000
TAGGED_FIELDS_MAX: Final = 10_000
TAG_LIMIT: Final = (1 << 31) - 1
STRING_BYTES_MAX: Final = 0x7FFF
UUID_BYTES: Final = 16
NO_UUID: Final = bytes(UUID_BYTES)


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
    cursor = _Cursor(key, "control-key-invalid", "key")
    version = cursor.integer(16, "version")
    if version < 0:
        raise cursor.refuse(0, "version", f"the version is {version}; it must be 0 or more")
    parsed = ControlRecordKey(cursor.integer(16, "type"), version, cursor.rest())
    if parsed.type not in _VALUES:
        return ControlRecord(parsed, value)
    if value is None:
        name = ControlRecordType(parsed.type).name
        raise _refused("control-value-invalid", "value", 0, f"the value is null; a record of type {name} has one")
    kind, newest = _VALUES[parsed.type]
    cursor = _Cursor(value, "control-value-invalid", "value")
    version = cursor.peek_version()
    if version > newest and kind is not EndTransactionMarker:
        return ControlRecord(parsed, value)
    return ControlRecord(parsed, cursor.structure(kind, version, ""), cursor.rest())


def encode_control(record: ControlRecord) -> tuple[bytes, bytes | None]:
    """Key and value of ``record``, as Kafka writes them; ``EncodeError`` where a field does not fit.

    >>> marker = ControlRecord(ControlRecordKey(ControlRecordType.COMMIT), EndTransactionMarker(7))
    >>> [part.hex() for part in encode_control(marker)]
    ['00000001', '000000000007']
    """
    out = bytearray()
    _put_integer(16, out, record.key.version, "key.version")
    _put_integer(16, out, record.key.type, "key.type")
    key = bytes(out) + record.key.rest
    if record.value is None or isinstance(record.value, bytes):
        return key, record.value
    kind, newest = _VALUES.get(record.key.type, (None, 0))
    if not isinstance(record.value, kind or ()):
        raise EncodeError(f"a control record of type {record.key.type} has no value {type(record.value).__name__}")
    version = record.value.version
    if version < 0 or (version > newest and kind is not EndTransactionMarker):
        raise EncodeError(f"value.version is {version}; {type(record.value).__name__} has versions 0 to {newest}")
    out = bytearray()
    _put_structure(out, record.value, version, "value")
    return key, bytes(out) + record.rest


# ------------------------------------------------------------------------------------------------- layouts


class _Kind(NamedTuple):
    """How a field is read and written; both are told its name, for the error."""

    get: Callable[[_Cursor, int, str], Any]
    put: Callable[[bytearray, Any, int, str], None]


class _Field(NamedTuple):
    name: str
    kind: _Kind
    since: int = 0


_T = TypeVar("_T")


def _refused(code: str, path: str, at: int, message: str) -> RecordsError:
    return RecordsError(Finding(code, "fatal", at, path, "RB-CONTROL-2", message))


class _Cursor:
    """Reads a value as Kafka's ``ByteBufferAccessor`` and generated classes do; what does not fit is refused."""

    def __init__(self, data: bytes, code: str, path: str) -> None:
        self.data = data
        self.code = code
        self.path = path
        self.at = 0

    def refuse(self, at: int, name: str, message: str) -> RecordsError:
        return _refused(self.code, f"{self.path}.{name}" if name else self.path, at, message)

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int, name: str) -> bytes:
        if size > self.left:
            raise self.refuse(self.at, name, f"{size} bytes are needed where {self.left} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def rest(self) -> bytes:
        return self.take(self.left, "")

    def peek_version(self) -> int:
        version = self.integer(16, "version")
        if version < 0:
            raise self.refuse(0, "version", f"the version is {version}; it must be 0 or more")
        self.at = 0
        return version

    def integer(self, bits: int, name: str, *, signed: bool = True) -> int:
        return int.from_bytes(self.take(bits // 8, name), "big", signed=signed)

    def unsigned_varint(self, name: str) -> int:
        """As Java reads one into an int: excess bits of a fifth byte are dropped, and the result may be below 0."""
        start, number = self.at, 0
        for shift in range(0, 35, 7):
            byte = self.take(1, name)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return struct.unpack(">i", struct.pack(">I", number & 0xFFFFFFFF))[0]  # type: ignore[no-any-return]
        raise self.refuse(start, name, "the varint does not end within 5 bytes")

    def length(self, name: str, most: int) -> int:
        """A compact length: one more than it says, 0 for null, which none of these fields may be."""
        start = self.at
        length = self.unsigned_varint(name) - 1
        if length < 0:
            raise self.refuse(start, name, "it is null, which it may not be")
        if length > most:
            raise self.refuse(start, name, f"the length is {length}; it must be at most {most}")
        return length

    def string(self, name: str) -> str:
        return through_java(self.take(self.length(name, STRING_BYTES_MAX), name)).decode()

    def array(self, kind: type, version: int, name: str) -> tuple[Any, ...]:
        start = self.at
        count = self.length(name, ARRAY_LENGTH_MAX)
        if count > self.left:
            raise self.refuse(start, name, f"the length is {count}, but {self.left} bytes are left")
        return tuple(self.structure(kind, version, f"{name}[{i}]") for i in range(count))

    def tagged_fields(self, name: str) -> TaggedFields:
        start = self.at
        count = self.unsigned_varint(name)
        if not 0 <= count <= min(self.left, TAGGED_FIELDS_MAX):
            most = min(self.left, TAGGED_FIELDS_MAX)
            raise self.refuse(start, name, f"there are {count} tagged fields; here there may be 0 to {most}")
        found = []
        for i in range(count):
            tag = self.unsigned_varint(f"{name}[{i}].tag")
            at, size = self.at, self.unsigned_varint(f"{name}[{i}].size")
            if size < 0:
                raise self.refuse(at, f"{name}[{i}].size", f"the size is {size}; it must be 0 or more")
            found.append(TaggedField(tag, self.take(size, f"{name}[{i}].data")))
        return tuple(found)

    def structure(self, kind: type[_T], version: int, name: str) -> _T:
        """The fields of ``kind`` in the layout of ``version``; Kafka's generated ``read``."""
        prefix = f"{name}." if name else ""
        found = {
            field.name: field.kind.get(self, version, prefix + field.name)
            for field in _LAYOUTS[kind]
            if field.since <= version
        }
        return kind(**found)


# ------------------------------------------------------------------------------------------------- writing


def _put_integer(bits: int, out: bytearray, value: int, name: str, *, signed: bool = True) -> None:
    try:
        out += value.to_bytes(bits // 8, "big", signed=signed)
    except OverflowError:
        sign = "int" if signed else "uint"
        raise EncodeError(f"{name} is {value}, which is no {sign}{bits}") from None


def _put_string(out: bytearray, value: str, name: str) -> None:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"{name} is {value!r}, which is no Unicode text") from None
    if len(data) > STRING_BYTES_MAX:
        raise EncodeError(f"{name} takes {len(data)} bytes; it may take {STRING_BYTES_MAX}")
    out += uvarint(len(data) + 1)
    out += data


def _put_uuid(out: bytearray, value: bytes, name: str) -> None:
    if len(value) != UUID_BYTES:
        raise EncodeError(f"{name} has {len(value)} bytes; a uuid has {UUID_BYTES}")
    out += value


def _put_array(out: bytearray, values: Iterable[Any], version: int, name: str) -> None:
    values = tuple(values)
    out += uvarint(len(values) + 1)
    for i, value in enumerate(values):
        _put_structure(out, value, version, f"{name}[{i}]")


def _put_tagged_fields(out: bytearray, fields: TaggedFields, name: str) -> None:
    out += uvarint(len(fields))
    last = -1
    for tag, data in fields:
        if not last < tag < TAG_LIMIT:
            raise EncodeError(f"{name} has tag {tag} after {last}; tags must increase, from 0 to {TAG_LIMIT - 1}")
        out += uvarint(tag)
        out += uvarint(len(data))
        out += data
        last = tag


def _put_structure(out: bytearray, value: object, version: int, name: str) -> None:
    for field in _LAYOUTS[type(value)]:
        given = getattr(value, field.name)
        if field.since <= version:
            field.kind.put(out, given, version, f"{name}.{field.name}")
        elif given != NO_UUID:
            raise EncodeError(f"{name}.{field.name} is set; version {version} has no such field")


def _integer(bits: int, *, signed: bool = True) -> _Kind:
    return _Kind(
        lambda cursor, _, name: cursor.integer(bits, name, signed=signed),
        lambda out, value, _, name: _put_integer(bits, out, value, name, signed=signed),
    )


def _array(kind: type) -> _Kind:
    return _Kind(lambda cursor, version, name: cursor.array(kind, version, name), _put_array)


def _structure(kind: type) -> _Kind:
    return _Kind(lambda cursor, version, name: cursor.structure(kind, version, name), _put_structure)


_INT16: Final = _integer(16)
_INT32: Final = _integer(32)
_INT64: Final = _integer(64)
_UINT16: Final = _integer(16, signed=False)
_STRING: Final = _Kind(
    lambda cursor, _, name: cursor.string(name), lambda out, value, _, name: _put_string(out, value, name)
)
_UUID: Final = _Kind(
    lambda cursor, _, name: cursor.take(UUID_BYTES, name), lambda out, value, _, name: _put_uuid(out, value, name)
)
_VERSION: Final = _Field("version", _INT16)
_TAGGED: Final = _Field(
    "tagged_fields",
    _Kind(
        lambda cursor, _, name: cursor.tagged_fields(name),
        lambda out, value, _, name: _put_tagged_fields(out, value, name),
    ),
)

# The fields in their order on the wire; org/apache/kafka/common/message/*.json.
_LAYOUTS: Final[dict[type, tuple[_Field, ...]]] = {
    EndTransactionMarker: (_VERSION, _Field("coordinator_epoch", _INT32)),
    LeaderChangeVoter: (_Field("voter_id", _INT32), _Field("voter_directory_id", _UUID, 1), _TAGGED),
    LeaderChangeMessage: (
        _VERSION,
        _Field("leader_id", _INT32),
        _Field("voters", _array(LeaderChangeVoter)),
        _Field("granting_voters", _array(LeaderChangeVoter)),
        _TAGGED,
    ),
    SnapshotHeaderRecord: (_VERSION, _Field("last_contained_log_timestamp", _INT64), _TAGGED),
    SnapshotFooterRecord: (_VERSION, _TAGGED),
    KRaftVersionRecord: (_VERSION, _Field("kraft_version", _INT16), _TAGGED),
    Endpoint: (_Field("name", _STRING), _Field("host", _STRING), _Field("port", _UINT16), _TAGGED),
    KRaftVersionFeature: (_Field("min_supported_version", _INT16), _Field("max_supported_version", _INT16), _TAGGED),
    Voter: (
        _Field("voter_id", _INT32),
        _Field("voter_directory_id", _UUID),
        _Field("endpoints", _array(Endpoint)),
        _Field("kraft_version_feature", _structure(KRaftVersionFeature)),
        _TAGGED,
    ),
    VotersRecord: (_VERSION, _Field("voters", _array(Voter)), _TAGGED),
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
