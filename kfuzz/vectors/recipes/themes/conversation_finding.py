"""Consumers that look for versions, leaders and offsets, and meet trouble before their first fetch."""

from __future__ import annotations

from functools import partial

from kfuzz.vectors.recipes.making.conversation import GIVEN, act, asks, fails, opens, reads, trouble, writes
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.conversation_reading import CLOSE, LAST, WHOLE

__all__ = ["theme"]

versions = partial(trouble, "ApiVersions")
metadata = partial(trouble, "Metadata")
fetch = partial(trouble, "Fetch")
listing = partial(trouble, "ListOffsets")
TOO_NEW = {"api": "ApiVersions", "direction": "request", "nth": 1, "answer": {"errorCode": "UNSUPPORTED_VERSION"}}
EARLIEST = opens(reset="earliest")
RESET = EARLIEST, reads(LAST), CLOSE


def theme() -> Theme:
    """The recipes of ``vectors/conversation/finding.json``."""
    made = Theme(
        "conversation/finding",
        "Consumers that look for versions, leaders and offsets, and meet trouble.",
        "conversation",
    )
    _versions(made)
    _metadata(made)
    _offsets(made)
    return made


def _versions(made: Theme) -> None:
    offered = partial(made.conversation, requirements=["TALK-VERSION-1"])
    for slug, what, highest in (
        ("no-sessions", "Fetch up to version 6, which has no sessions", {"Fetch": 6}),
        ("no-epochs", "no leader epochs: Fetch up to version 8, Metadata up to 6", {"Fetch": 8, "Metadata": 6}),
        ("no-topic-ids", "no topic ids: Fetch up to version 12, Metadata up to 9", {"Fetch": 12, "Metadata": 9}),
        ("topic-ids-of-metadata-only", "topic ids in Metadata, but Fetch up to version 12", {"Fetch": 12}),
    ):
        offered(slug, f"the broker offers {what}", *WHOLE, given=GIVEN, broker={"versions": highest})
    offered(
        "produces-old",
        "the broker offers Produce up to version 3, and Metadata up to 4",
        *(writes(4, idempotent=True), opens(), reads(3), CLOSE),
        broker={"versions": {"Produce": 3, "Metadata": 4}},
        written=["v0", "v1", "v2", "v3"],
    )
    offered(
        "transactions-old",
        "the broker offers the first versions of what transactions need",
        writes(3, idempotent=True, transactional_id="t"),
        *(opens(isolation="read_committed"), reads(2), CLOSE),
        broker={"versions": {"InitProducerId": 1, "AddPartitionsToTxn": 1, "EndTxn": 1, "FindCoordinator": 2}},
        written=["v0", "v1", "v2"],
    )
    # A client may give its application an error where it finds no cluster at first.
    lost = partial(made.conversation, given=GIVEN, requirements=["TALK-LOST-1"], level="recommended")
    asked = [asks("ApiVersions"), asks("Fetch")]
    lost(
        "versions-lost",
        "the connection is lost before the versions are there",
        *WHOLE,
        rules=[versions(disconnect="before")],
        follows=asked,
    )
    lost(
        "versions-lost-of-leader",
        "the connection to the leader is lost before its versions are there",
        *WHOLE,
        rules=[versions(2, disconnect="before")],
        follows=asked,
    )
    lost(
        "versions-lost-often",
        "four connections are lost before the versions are there",
        *WHOLE,
        rules=[versions("1-4", disconnect="before")],
        follows=[asks("ApiVersions")] * 4,
    )
    lost(
        "versions-cut",
        "the versions end in the middle, and the connection is closed",
        *WHOLE,
        rules=[versions(cut=60)],
        follows=asked,
    )
    lost("versions-slow", "the versions take 300 ms", *WHOLE, rules=[versions(delay_ms=300)])
    lost(
        "lost-after-versions",
        "the connection is lost after the versions",
        *WHOLE,
        rules=[versions(disconnect="after")],
        follows=asked,
    )


def _metadata(made: Theme) -> None:
    leader = partial(made.conversation, given=GIVEN, requirements=["TALK-LEADER-1"])
    again = [asks("Metadata"), asks("Fetch")]
    for slug, what, nth in (
        ("no-leader", "the topic has no leader at first", 1),
        ("no-leader-for-long", "the topic has no leader in the first four answers", "1-4"),
    ):
        leader(slug, what, *WHOLE, rules=[metadata(nth, error="LEADER_NOT_AVAILABLE")], follows=again)
    leader(
        "leaderless-partition",
        "the partition has no leader at first",
        *WHOLE,
        rules=[
            metadata(
                set={
                    "topics[0].partitions[0].leaderId": -1,
                    "topics[0].partitions[0].errorCode": "LEADER_NOT_AVAILABLE",
                }
            )
        ],
        follows=again,
    )
    leader(
        "unknown-at-first",
        "the topic is not known yet",
        *WHOLE,
        rules=[metadata("1-2", error="UNKNOWN_TOPIC_OR_PARTITION")],
        follows=again,
    )
    leader(
        "leader-of-yesterday",
        "the first metadata names a broker that does not lead",
        *WHOLE,
        brokers=2,
        rules=[metadata("1-2", set={"topics[0].partitions[0].leaderId": 2})],
        follows=again,
    )
    leader(
        "leader-unknown",
        "the first metadata names a leader that is not among the brokers",
        *WHOLE,
        rules=[metadata(set={"topics[0].partitions[0].leaderId": 9})],
        follows=again,
    )
    leader(
        "metadata-with-old-epoch",
        "metadata has an older leader epoch than before",
        *WHOLE,
        rules=[fetch(2, error="NOT_LEADER_OR_FOLLOWER"), metadata(3, set={"topics[0].partitions[0].leaderEpoch": 0})],
        follows=again,
    )
    lost = partial(made.conversation, given=GIVEN, requirements=["TALK-LOST-1"], level="recommended")
    lost(
        "metadata-lost",
        "the connection is lost before the metadata is there",
        *WHOLE,
        rules=[metadata(disconnect="before")],
        follows=again,
    )
    lost(
        "metadata-lost-often",
        "three connections are lost before the metadata is there",
        *WHOLE,
        rules=[metadata("1-3", disconnect="before")],
        follows=again,
    )
    lost(
        "metadata-cut",
        "the metadata ends in the middle, and the connection is closed",
        *WHOLE,
        rules=[metadata(cut=30)],
        follows=again,
    )
    lost("metadata-slow", "the metadata takes 300 ms", *WHOLE, rules=[metadata(delay_ms=300)])
    lost(
        "metadata-lost-then-leaderless",
        "the metadata is lost, and then has no leader",
        *WHOLE,
        rules=[metadata(disconnect="before"), metadata(2, error="LEADER_NOT_AVAILABLE")],
        follows=again,
    )
    refused = partial(made.conversation, given=GIVEN, requirements=["TALK-FATAL-1"])
    refused(
        "forbidden",
        "the topic may not be described",
        opens(),
        fails(-1, "TopicAuthorizationException"),
        CLOSE,
        rules=[metadata("1-1000", error="TOPIC_AUTHORIZATION_FAILED")],
    )
    refused(
        "invalid-topic",
        "the broker calls the topic's name invalid",
        opens(),
        fails(-1, "InvalidTopicException"),
        CLOSE,
        rules=[metadata("1-1000", error="INVALID_TOPIC_EXCEPTION")],
    )
    made.conversation(
        "metadata-throttled",
        "the metadata says that the client is throttled for 200 ms",
        *WHOLE,
        given=GIVEN,
        requirements=["TALK-THROTTLE-1"],
        rules=[metadata(throttle_ms=200)],
        follows=[asks("Fetch")],
    )


def _offsets(made: Theme) -> None:
    offset = partial(made.conversation, given=GIVEN, requirements=["TALK-OFFSET-1"])
    offset("earliest", "a consumer begins at the earliest offset", *RESET, follows=[asks("ListOffsets"), asks("Fetch")])
    offset(
        "latest",
        "a consumer begins at the latest offset, and gets what is written then",
        writes(2),
        opens(reset="latest"),
        reads(1, first=2),
        writes(2, first=2),
        reads(3, first=2),
        CLOSE,
        given=(),
    )
    offset(
        "reset-after-out-of-range",
        "a fetch is out of range, and the consumer begins again at the earliest offset",
        EARLIEST,
        act("read", count=18, gives={"offsets": [*map(str, range(3)), *map(str, range(15))]}),
        CLOSE,
        rules=[fetch(2, error="OFFSET_OUT_OF_RANGE")],
        follows=[asks("ListOffsets"), asks("Fetch")],
    )
    retried = partial(made.conversation, given=GIVEN, requirements=["TALK-RETRY-1"])
    again = [asks("ListOffsets"), asks("Fetch")]
    retried(
        "offset-not-available",
        "the new leader does not know the latest offset yet",
        *RESET,
        rules=[listing("1-2", error="OFFSET_NOT_AVAILABLE")],
        follows=again,
    )
    retried(
        "offsets-of-other-leader",
        "the broker that is asked for the earliest offset does not lead",
        *RESET,
        rules=[listing(error="NOT_LEADER_OR_FOLLOWER")],
        follows=[asks("Metadata"), *again],
    )
    retried(
        "offsets-fenced",
        "the leader epoch of a question for offsets is old",
        *RESET,
        rules=[listing(error="FENCED_LEADER_EPOCH")],
        follows=[asks("Metadata"), *again],
    )
    retried(
        "offsets-lost",
        "the connection is lost before the earliest offset is there",
        *RESET,
        rules=[listing(disconnect="before")],
        follows=again,
    )
    retried(
        "offsets-lost-often",
        "the earliest offset is lost three times",
        *RESET,
        rules=[listing("1-3", disconnect="before")],
        follows=again,
    )
    retried("offsets-slow", "the earliest offset takes 300 ms", *RESET, rules=[listing(delay_ms=300)])
    retried(
        "offsets-lost-after-reset",
        "after a fetch out of range, the earliest offset is lost",
        EARLIEST,
        act("read", count=18, gives={"offsets": [*map(str, range(3)), *map(str, range(15))]}),
        CLOSE,
        rules=[fetch(2, error="OFFSET_OUT_OF_RANGE"), listing(2, disconnect="before")],
        follows=[asks("ListOffsets"), *again],
    )
    made.conversation(
        "offsets-forbidden",
        "the offsets may not be read",
        EARLIEST,
        fails(-1, "TopicAuthorizationException"),
        CLOSE,
        given=GIVEN,
        requirements=["TALK-FATAL-1"],
        rules=[listing("1-1000", error="TOPIC_AUTHORIZATION_FAILED")],
    )
