"""Consumers that look for versions, leaders and offsets, and meet trouble before their first fetch."""

from __future__ import annotations

from functools import partial

from kfuzz.vectors.recipes.making.conversation import act, fails, opens, reads, trouble, writes
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.conversation_reading import CLOSE, LAST, LATER, PATIENT, WHOLE

versions = partial(trouble, "ApiVersions")
metadata = partial(trouble, "Metadata")
fetch = partial(trouble, "Fetch")
listing = partial(trouble, "ListOffsets")
TOO_NEW = {"api": "ApiVersions", "direction": "request", "nth": 1, "answer": {"errorCode": "UNSUPPORTED_VERSION"}}
NO_LEADER = "LEADER_NOT_AVAILABLE"
EARLIEST = opens(reset="earliest")
RESET = EARLIEST, reads(LAST), CLOSE
AGAIN = EARLIEST, act("read", count=18, gives={"offsets": [*map(str, range(3)), *map(str, range(15))]}), CLOSE


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
        offered(slug, f"the broker offers {what}", broker={"versions": highest}, acts=WHOLE)
    offered(
        "produces-old",
        "the broker offers Produce up to version 3, and Metadata up to 4",
        broker={"versions": {"Produce": 3, "Metadata": 4}},
        written=["v0", "v1", "v2", "v3"],
        acts=(writes(4, idempotent=True), opens(), reads(3), CLOSE),
    )
    offered(
        "transactions-old",
        "the broker offers the first versions of what transactions need",
        broker={"versions": {"InitProducerId": 1, "AddPartitionsToTxn": 1, "EndTxn": 1, "FindCoordinator": 2}},
        written=["v0", "v1", "v2"],
        acts=(writes(3, idempotent=True, transactional_id="t"), opens(isolation="read_committed"), reads(2), CLOSE),
    )
    asked = ["ApiVersions", "Fetch"]
    # A client may give its application an error where it finds no cluster at first.
    lost = partial(made.conversation, acts=WHOLE, requirements=["TALK-LOST-1"], follows=asked, level="recommended")
    lost("versions-lost", "the connection is lost before the versions are there", versions(1, "lost"))
    lost(
        "versions-lost-of-leader",
        "the connection to the leader is lost before its versions are there",
        versions(2, "lost"),
    )
    lost(
        "versions-lost-often",
        "four connections are lost before the versions are there",
        versions("1-4", "lost"),
        follows=["ApiVersions"] * 4,
    )
    lost("versions-cut", "the versions end in the middle, and the connection is closed", versions(cut=60))
    lost("versions-slow", "the versions take 300 ms", versions(delay_ms=300), follows=())
    lost("lost-after-versions", "the connection is lost after the versions", versions(disconnect="after"))


def _metadata(made: Theme) -> None:
    again = ["Metadata", "Fetch"]
    leader = partial(made.conversation, acts=WHOLE, requirements=["TALK-LEADER-1"], follows=again)
    leader("no-leader", "the topic has no leader at first", metadata(1, NO_LEADER))
    leader("no-leader-for-long", "the topic has no leader in the first four answers", metadata("1-4", NO_LEADER))
    leader(
        "leaderless-partition",
        "the partition has no leader at first",
        metadata(set={"topics[0].partitions[0].leaderId": -1, "topics[0].partitions[0].errorCode": NO_LEADER}),
    )
    leader("unknown-at-first", "the topic is not known yet", metadata("1-2", "UNKNOWN_TOPIC_OR_PARTITION"))
    leader(
        "leader-of-yesterday",
        "the first metadata names a broker that does not lead",
        metadata("1-2", set={"topics[0].partitions[0].leaderId": 2}),
        brokers=2,
    )
    leader(
        "leader-unknown",
        "the first metadata names a leader that is not among the brokers",
        metadata(set={"topics[0].partitions[0].leaderId": 9}),
    )
    leader(
        "metadata-with-old-epoch",
        "metadata has an older leader epoch than before",
        fetch(2, "NOT_LEADER_OR_FOLLOWER"),
        metadata(3, set={"topics[0].partitions[0].leaderEpoch": 0}),
        acts=PATIENT,
    )
    lost = partial(made.conversation, acts=WHOLE, requirements=["TALK-LOST-1"], follows=again, level="recommended")
    lost("metadata-lost", "the connection is lost before the metadata is there", metadata(1, "lost"))
    lost("metadata-lost-often", "three connections are lost before the metadata is there", metadata("1-3", "lost"))
    lost("metadata-cut", "the metadata ends in the middle, and the connection is closed", metadata(cut=30))
    lost("metadata-slow", "the metadata takes 300 ms", metadata(delay_ms=300), follows=())
    lost(
        "metadata-lost-then-leaderless",
        "the metadata is lost, and then has no leader",
        metadata(1, "lost"),
        metadata(2, NO_LEADER),
    )
    for slug, what, error, name in (
        ("forbidden", "the topic may not be described", "TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"),
        (
            "invalid-topic",
            "the broker calls the topic's name invalid",
            "INVALID_TOPIC_EXCEPTION",
            "InvalidTopicException",
        ),
    ):
        acts = opens(), fails(-1, name), CLOSE
        made.conversation(slug, what, metadata("1-1000", error), requirements=["TALK-FATAL-1"], acts=acts)
    made.conversation(
        "metadata-throttled",
        "the metadata says that the client is throttled for 200 ms",
        metadata(throttle_ms=200),
        requirements=["TALK-THROTTLE-1"],
        follows=["Fetch"],
        acts=WHOLE,
    )


def _offsets(made: Theme) -> None:
    offset = partial(made.conversation, requirements=["TALK-OFFSET-1"], follows=["ListOffsets", "Fetch"])
    offset("earliest", "a consumer begins at the earliest offset", acts=RESET)
    offset(
        "latest",
        "a consumer begins at the latest offset, and gets what is written then",
        # Until the consumer knows the latest offset, it must not be another one.
        acts=(
            *(writes(2), opens(reset="latest"), reads(1, first=2), act("wait", ms=1500), reads(1, first=2)),
            *(writes(2, first=2), reads(3, first=2), CLOSE),
        ),
        follows=(),
    )
    offset(
        "reset-after-out-of-range",
        "a fetch is out of range, and the consumer begins again at the earliest offset",
        fetch(2, "OFFSET_OUT_OF_RANGE"),
        # A library may know the earliest offset from the fetch before.
        follows=["Fetch"],
        acts=AGAIN,
    )
    again = ["ListOffsets", "Fetch"]
    retried = partial(made.conversation, acts=RESET, requirements=["TALK-RETRY-1"], follows=again)
    retried(
        "offset-not-available",
        "the new leader does not know the latest offset yet",
        listing("1-2", "OFFSET_NOT_AVAILABLE"),
    )
    looked_up = partial(retried, follows=["Metadata", *again], acts=(EARLIEST, reads(LAST), *LATER, CLOSE))
    looked_up(
        "offsets-of-other-leader",
        "the broker that is asked for the earliest offset does not lead",
        listing(1, "NOT_LEADER_OR_FOLLOWER"),
    )
    fenced = listing(1, "FENCED_LEADER_EPOCH")
    looked_up("offsets-fenced", "the leader epoch of a question for offsets is old", fenced)
    retried("offsets-lost", "the connection is lost before the earliest offset is there", listing(1, "lost"))
    retried("offsets-lost-often", "the earliest offset is lost three times", listing("1-3", "lost"))
    retried("offsets-slow", "the earliest offset takes 300 ms", listing(delay_ms=300), follows=())
    retried(
        "offsets-lost-after-reset",
        "after a fetch out of range, the earliest offset is lost",
        fetch(2, "OFFSET_OUT_OF_RANGE"),
        listing(2, "lost"),
        follows=["Fetch"],
        acts=AGAIN,
    )
    made.conversation(
        "offsets-forbidden",
        "the offsets may not be read",
        listing("1-1000", "TOPIC_AUTHORIZATION_FAILED"),
        requirements=["TALK-FATAL-1"],
        acts=(EARLIEST, fails(-1, "TopicAuthorizationException"), CLOSE),
    )
