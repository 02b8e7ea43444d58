"""Consumers whose broker throttles them, or is older than they are."""

from __future__ import annotations

from typing import Any

from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.stream import Part, Stream, plain

# The highest versions that Kafka 2.6 has of the APIs that clients need.
KAFKA_2_6 = {
    "Produce": 8,
    "Fetch": 11,
    "ListOffsets": 5,
    "OffsetForLeaderEpoch": 3,
    "Metadata": 9,
    "OffsetCommit": 8,
    "OffsetFetch": 7,
    "FindCoordinator": 3,
    "JoinGroup": 7,
    "Heartbeat": 4,
    "LeaveGroup": 4,
    "SyncGroup": 5,
    "ApiVersions": 3,
    "InitProducerId": 3,
    "AddPartitionsToTxn": 1,
    "AddOffsetsToTxn": 1,
    "EndTxn": 1,
    "TxnOffsetCommit": 3,
}
# Enough to see a client that connects again after each of them.
THROTTLED_FETCHES = 100
# Bytes do not show how a broker behaves, so only consumers are asked.
ROLES = ["consumer"]


def theme() -> Theme:
    """The recipes of ``vectors/stream/brokers.json``."""
    made = Stream("stream/brokers", "Brokers that throttle a consumer, or are older than it.")
    throttled: dict[str, Any] = {
        "roles": ROLES,
        "isolation": "read_uncommitted",
        "requirements": ["RB-SEVERAL-1"],
        "broker": {"throttle_ms": 1},
        "fetches_at_end": THROTTLED_FETCHES,
    }
    made.reading(
        "throttled-at-the-end",
        "each fetch gets one batch; after the last one, the broker throttles the consumer by 1 ms again and again",
        *(Part(plain(base_offset=offset)) for offset in range(12)),
        **throttled,
    )
    made.reading(
        "quiet",
        "after one batch nothing new comes: the broker answers without records again and again, and throttles by 1 ms",
        Part(plain()),
        **throttled,
    )
    made.reading(
        "read-groups",
        "the members of a consumer's group can read what it writes for them",
        Part(plain()),
        roles=ROLES,
        isolation="read_uncommitted",
        requirements=["MSG-FIELDS-1"],
        broker={"reads_groups": True},
    )
    # No document says how old a broker may be.
    older: dict[str, Any] = {"roles": ROLES, "level": "recommended", "broker": {"versions": KAFKA_2_6}}
    made.reading(
        "older-versions",
        "the broker offers the versions of Kafka 2.6: no topic ids, and Fetch up to version 11",
        *(Part(plain(2, base_offset=offset)) for offset in (0, 2)),
        requirements=["RB-SEVERAL-1"],
        **older,
    )
    # Offsets that a consumer reports do not count here, so this asks only whether it can fetch. A consumer need not
    # check the CRC: librdkafka does not by default.
    made.reading(
        "older-versions-damaged",
        "the broker offers the versions of Kafka 2.6, and the CRC of the only batch is wrong",
        Part(plain(crc=0), finding="crc-mismatch"),
        requirements=["RB-CRC-1"],
        **older,
    )
    return made
