"""The keys and values of control records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

__all__ = [
    "KEY_VERSION",
    "NO_UUID",
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
    "TaggedFields",
    "Voter",
    "VotersRecord",
]

KEY_VERSION: Final = 0
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
    """A control record's key. ``type`` may be unknown to Kafka. ``rest`` holds the bytes after the known fields, which
    a later version may have added. Mirrors ``ControlRecordTypeSchema``.
    """

    type: int
    version: int = KEY_VERSION
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
