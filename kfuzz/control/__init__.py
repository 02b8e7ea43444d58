"""Control records with typed keys and values: transaction markers and KRaft's control records.

``model`` defines the values; ``codec`` reads and writes them with the catalogue's definitions.

>>> from kfuzz import control
>>> control.decode_control(bytes.fromhex("00000001"), bytes.fromhex("000000000007")).value
EndTransactionMarker(coordinator_epoch=7, version=0)
"""

from kfuzz.control.codec import control_json, decode_control, encode_control
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
