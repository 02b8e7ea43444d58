"""The records of Kafka's own topics: what their keys and values mean.

Coordinators (``__consumer_offsets``, ``__transaction_state``, ``__share_group_state``) write a key and a value that
begin with an int16: that of a key is the kind of record, that of a value the version. The records of a KRaft log
(``__cluster_metadata``) and of ``__remote_log_metadata`` have no key; their value begins with three varints: the
version of this frame, the kind and the version.

Mirrors ``CoordinatorRecordSerde`` and ``AbstractApiMessageSerde``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from kfuzz.errors import MessageError
from kfuzz.kafka import INTERNAL_TOPICS, LATEST
from kfuzz.messages.catalogues import RECORDS, catalogue
from kfuzz.messages.codec import decode, encode
from kfuzz.messages.jsonform import to_json
from kfuzz.messages.model import Definition
from kfuzz.wire.io.cursor import uvarint_of

# The topics whose records have no keys.
FRAMED: Final = ("__cluster_metadata", "__remote_log_metadata")
# A snapshot of a KRaft log, or the records with which a cluster begins.
SNAPSHOT: Final = re.compile(r"(\d{20}-\d{10}|bootstrap)\.checkpoint")
FRAME_VERSION: Final = 1
VARINT_BYTES_MAX: Final = 5
VERSION_BYTES: Final = 2
# The messages that members of a consumer group send as bytes. Mirrors ``ConsumerProtocol``.
CONSUMER: Final = "consumer"
MEMBER_BYTES: Final = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
# The names of the definitions that begin so belong to a topic of their own.
SHARE_STATE: Final = ("ShareSnapshot", "ShareUpdate")
TRANSACTION: Final = ("TransactionLog",)
REMOTE: Final = ("Remote",)


@dataclass(frozen=True, slots=True)
class Side:
    """A key or a value. ``name`` is that of its definition; ``values`` are in the JSON form of messages.

    If it cannot be decoded, ``error`` says why, and ``values`` is None. ``name`` is empty if its kind is unknown.
    """

    name: str
    version: int
    values: dict[str, Any] | None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        if self.error:
            return {"type": self.name, "error": self.error} if self.name else {"error": self.error}
        return {"type": self.name, "version": self.version, "data": self.values}


@dataclass(frozen=True, slots=True)
class InternalRecord:
    """A record of one of Kafka's own topics; a side is None if it is null."""

    key: Side | None
    value: Side | None


def topic_of_path(path: str | Path) -> str | None:
    """The topic of ``INTERNAL_TOPICS`` in whose partition folder the file is; None if it is in none.

    A snapshot of the metadata log is known by its own name, wherever it is.
    """
    if SNAPSHOT.fullmatch(Path(path).name):
        return "__cluster_metadata"
    folder = Path(path).absolute().parent.name
    topic, dash, partition = folder.rpartition("-")
    return topic if dash and partition.isdigit() and topic in INTERNAL_TOPICS else None


def decode_internal(topic: str, key: bytes | None, value: bytes | None) -> InternalRecord:
    """The record of ``topic``, one of ``INTERNAL_TOPICS``. Bad bytes become errors of their side.

    >>> from kfuzz.messages.internal import decode_internal
    >>> record = decode_internal("__transaction_state", bytes.fromhex("0000000474782d31"), None)
    >>> record.key.name, record.key.values, record.value
    ('TransactionLogKey', {'transactionalId': 'tx-1'}, None)
    """
    if topic in FRAMED:
        other = None if key is None else Side("", 0, None, "the records of this topic have no key")
        return InternalRecord(other, None if value is None else _framed(topic, value))
    kind = _int16(key)
    if key is None or kind is None:
        what = "the key is null" if key is None else f"the key has {len(key)} bytes; its kind takes {VERSION_BYTES}"
        return InternalRecord(Side("", 0, None, what), None if value is None else Side("", 0, None, what))
    keys, values = _definitions(topic, "coordinator-key"), _definitions(topic, "coordinator-value")
    if kind not in keys:
        unknown = Side("", 0, None, f"Kafka {LATEST} knows no record of kind {kind} in this topic")
        return InternalRecord(unknown, None if value is None else unknown)
    # The first int16 of a key is its kind. A key has no version of its own; version 0 of its schema reads it.
    left = _decoded(keys[kind], 0, key[VERSION_BYTES:])
    if value is None:
        return InternalRecord(left, None)
    version = _int16(value)
    if version is None:
        error = f"the value has {len(value)} bytes; its version takes {VERSION_BYTES}"
        return InternalRecord(left, Side(values[kind].name, 0, None, error))
    return InternalRecord(left, _decoded(values[kind], version, value[VERSION_BYTES:]))


def encode_internal(
    topic: str, name: str, version: int, key: dict[str, Any], value: dict[str, Any] | None = None
) -> tuple[bytes | None, bytes | None]:
    """The key and the value of a record of ``topic``, from values as ``messages.encode`` takes them.

    ``name`` is that of its definitions, without ``Key``, ``Value`` or ``Record``. ``version`` is that of the value; a
    value of None is a tombstone. In a topic whose records have no keys, ``key`` is empty. Raises like
    ``messages.encode``.

    >>> from kfuzz.messages.internal import encode_internal
    >>> key, value = encode_internal("__transaction_state", "TransactionLog", 0, {"transactionalId": "tx-1"})
    >>> key.hex(), value
    ('0000000474782d31', None)
    """
    known = catalogue(RECORDS[LATEST])
    if topic in FRAMED:
        definition = known.find(f"{name}Record")
        assert definition.api_key is not None
        return None, bytes((FRAME_VERSION, definition.api_key, version)) + encode(definition, version, value or {})
    keys = known.find(f"{name}Key")
    assert keys.api_key is not None
    left = keys.api_key.to_bytes(VERSION_BYTES, "big") + encode(keys, 0, key)
    if value is None:
        return left, None
    return left, version.to_bytes(VERSION_BYTES, "big") + encode(known.find(f"{name}Value"), version, value)


def _framed(topic: str, value: bytes) -> Side:
    at = 0
    numbers = []
    for name in ("version of the frame", "kind", "version"):
        number, size = uvarint_of(value[at:], VARINT_BYTES_MAX)
        if size < 0:
            return Side("", 0, None, f"the {name} is not a varint")
        numbers.append(number)
        at += size
    frame, kind, version = numbers
    if frame != FRAME_VERSION:
        return Side("", 0, None, f"the version of the frame is {frame}; Kafka {LATEST} knows {FRAME_VERSION}")
    known = _definitions(topic, "metadata")
    if kind not in known:
        return Side("", 0, None, f"Kafka {LATEST} knows no record of kind {kind} in this topic")
    return _decoded(known[kind], version, value[at:])


def _decoded(definition: Definition, version: int, data: bytes) -> Side:
    if version not in definition.valid_versions:
        error = f"the version is {version}; Kafka {LATEST} knows {definition.valid_versions}"
        return Side(definition.name, version, None, error)
    try:
        values = decode(definition, version, data)
    except MessageError as error_:
        return Side(definition.name, version, None, str(error_))
    if definition.name == "GroupMetadataValue" and values["protocolType"] == CONSUMER:
        return Side(definition.name, version, _with_members(to_json(definition, version, values), values["members"]))
    return Side(definition.name, version, to_json(definition, version, values))


def _with_members(form: dict[str, Any], members: list[dict[str, Any]]) -> dict[str, Any]:
    """A group of consumers with what they subscribe to: members send it as bytes, in a message of the clients' own."""
    for made, member in zip(form["members"], members, strict=True):
        for name, message in MEMBER_BYTES.items():
            definition = catalogue().find(message)
            version = _int16(member[name])
            if version is not None and version >= 0:
                # A newer version only has more fields at its end.
                side = _decoded(
                    definition, min(version, definition.valid_versions.highest), member[name][VERSION_BYTES:]
                )
                made[name] = made[name] if side.error else side.to_json() | {"version": version}
    return form


def _int16(data: bytes | None) -> int | None:
    if data is None or len(data) < VERSION_BYTES:
        return None
    return int.from_bytes(data[:VERSION_BYTES], "big", signed=True)


@cache
def _definitions(topic: str, kind: str) -> Mapping[int, Definition]:
    """The definitions of this kind whose records are in ``topic``, by their numbers."""
    belongs = _OWN[topic]
    own = (one for one in catalogue(RECORDS[LATEST]).messages.values() if one.kind == kind and belongs(one.name))
    return {one.api_key: one for one in own if one.api_key is not None}


_OWN: Final[Mapping[str, Callable[[str], bool]]] = {
    "__consumer_offsets": lambda name: not name.startswith((*SHARE_STATE, *TRANSACTION)),
    "__transaction_state": lambda name: name.startswith(TRANSACTION),
    "__share_group_state": lambda name: name.startswith(SHARE_STATE),
    "__cluster_metadata": lambda name: not name.startswith(REMOTE),
    "__remote_log_metadata": lambda name: name.startswith(REMOTE),
}
