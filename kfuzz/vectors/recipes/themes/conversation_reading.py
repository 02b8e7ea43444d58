"""Consumers of one partition whose fetches fail, get lost, come late, or come from another broker."""

from __future__ import annotations

from functools import partial
from itertools import chain

from kfuzz.vectors.recipes.making.conversation import STEP, TOTAL, Act, act, asks, fails, opens, reads, trouble, writes
from kfuzz.vectors.recipes.theme import Theme

LAST = TOTAL - 1
CLOSE = act("close")
WHOLE = opens(), reads(LAST), CLOSE
# A library may read on before it asks for metadata, which some do every 100 ms at most.
LATER = act("wait", ms=200), reads(LAST, first=TOTAL)
PATIENT = opens(), reads(LAST), *LATER, CLOSE
# A consumer has read so many records, and something happens before the others are written.
READ = 2 * STEP
fetch = partial(trouble, "Fetch")
NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"
NO_SESSION = "FETCH_SESSION_ID_NOT_FOUND"
FULL = asks("Fetch", sessionEpoch=[0, -1], __partition=0)


def between(*acts: Act) -> tuple[Act, ...]:
    """A consumer in whose midst something happens."""
    later = writes(TOTAL - READ, first=READ)
    return writes(READ), opens(), reads(READ - 1), *acts, later, reads(LAST, first=READ), CLOSE


def moved(*leaders: int) -> tuple[Act, ...]:
    """A consumer reads three records from each of several leaders."""
    each = (
        (act("move", to=one), writes(3, first=at), reads(at + 2, first=at))
        for at, one in zip((3, 6), leaders, strict=True)
    )
    return writes(3), opens(), reads(2), *chain.from_iterable(each), CLOSE


def theme() -> Theme:
    """The recipes of ``vectors/conversation/reading.json``."""
    made = Theme("conversation/reading", "Consumers whose fetches fail, get lost, or come late.", "conversation")
    _plain(made)
    _leaders(made)
    _lost(made)
    _sessions(made)
    _refused(made)
    _epochs(made)
    return made


def _plain(made: Theme) -> None:
    plain = partial(made.conversation, acts=WHOLE, requirements=["TALK-OFFSET-1"])
    plain("plain", "a consumer reads a partition", follows=[asks("Fetch", __fetchOffset=3)])
    plain(
        "from-inside-a-batch",
        "a consumer begins at an offset inside a batch",
        follows=[asks("Fetch", __fetchOffset=7), asks("Fetch", __fetchOffset=9)],
        acts=(opens(offset="7"), reads(LAST, first=7), CLOSE),
    )
    plain(
        "closed-and-opened",
        "a second consumer continues where the first one stopped",
        follows=[asks("Fetch", __fetchOffset=READ)],
        acts=(
            writes(READ),
            opens(),
            reads(READ - 1),
            CLOSE,
            writes(3, first=READ),
            opens(offset=str(READ)),
            reads(READ + 2, first=READ),
            CLOSE,
        ),
    )
    plain(
        "two-consumers",
        "two consumers read the same partition in turns",
        acts=(opens(), opens(by=2), reads(LAST), reads(LAST, by=2), CLOSE, act("close", by=2)),
    )
    plain(
        "waits-at-the-end",
        "a consumer at the end of the log gets what is written then",
        written=["v0", "v1", "v2", "v3"],
        acts=(writes(2), opens(), reads(1), writes(2, first=2, by=2), reads(3, first=2), CLOSE),
    )
    plain(
        "empty-then-written",
        "a consumer of an empty partition gets the first record",
        written=["v0", "v1", "v2", "v3"],
        acts=(writes(1, sends=()), opens(offset="1"), writes(3, first=1, by=2), reads(3, first=1), CLOSE),
    )
    plain("slow", "a fetch takes 300 ms", fetch(2, delay_ms=300))
    plain("all-slow", "each fetch takes 40 ms", fetch("1-8", delay_ms=40))
    plain("slow-first", "the first fetch takes 500 ms", fetch(1, delay_ms=500))
    throttled = partial(made.conversation, acts=WHOLE, requirements=["TALK-THROTTLE-1"], level="recommended")
    throttled(
        "throttled",
        "the second fetch says that the client is throttled for 200 ms",
        fetch(2, throttle_ms=200),
        follows=[asks("Fetch", after_ms=190)],
    )
    throttled(
        "throttled-twice",
        "two fetches after another say that the client is throttled for 150 ms",
        fetch("2-3", throttle_ms=150),
        follows=[asks("Fetch", after_ms=140), asks("Fetch", after_ms=280)],
    )


def _leaders(made: Theme) -> None:
    to_leader = ["Metadata", "Fetch"]
    leader = partial(made.conversation, acts=PATIENT, requirements=["TALK-LEADER-1"], follows=to_leader)
    for slug, when, nth in (
        ("not-leader", "the second fetch finds", 2),
        ("not-leader-first", "the first fetch finds", 1),
        ("not-leader-last", "the last fetch with records finds", TOTAL // STEP),
        ("not-leader-twice", "two fetches in a row find", "2-3"),
        ("not-leader-often", "five fetches in a row find", "2-6"),
        ("not-leader-each-second", "every second fetch finds", "every 2"),
    ):
        leader(
            slug,
            f"{when} no leader there",
            fetch(nth, NOT_LEADER) | ({"times": 4} if slug.endswith("second") else {}),
        )
    for slug, what, error in (
        ("epoch-fenced", "is told that its leader epoch is old", "FENCED_LEADER_EPOCH"),
        ("storage-failed", "meets a broken disk", "KAFKA_STORAGE_ERROR"),
        ("partition-unknown", "finds no such partition", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("topic-id-unknown", "finds no topic with this id", "UNKNOWN_TOPIC_ID"),
        ("topic-id-changed", "finds another topic id in its session", "INCONSISTENT_TOPIC_ID"),
    ):
        # Where nothing says that another broker leads, a library may take its time for metadata.
        asked = ["Fetch"] if error.startswith("UNKNOWN") else to_leader
        leader(slug, f"the second fetch {what}", fetch(2, error), level="recommended", follows=asked)
    retried = partial(
        made.conversation,
        acts=WHOLE,
        requirements=["TALK-RETRY-1"],
        follows=[asks("Fetch", __fetchOffset="same")],
        level="recommended",
    )
    retried(
        "epoch-unknown",
        "the second fetch is told that its leader epoch is newer than the broker's",
        fetch(2, "UNKNOWN_LEADER_EPOCH"),
    )
    retried("server-failed", "the second fetch gets an unknown error", fetch(2, "UNKNOWN_SERVER_ERROR"))
    two = partial(leader, brokers=3, follows=(), acts=between(act("move", to=2)))
    two("moves", "another broker leads after some records")
    two("moves-and-returns", "another broker leads for some records, then the first one again", acts=moved(2, 1))
    unknown = trouble("Metadata", 3, "LEADER_NOT_AVAILABLE")
    two("moves-while-unknown", "another broker leads, and the next metadata does not know which", unknown)
    two(
        "moves-and-metadata-lost",
        "another broker leads, and the connection is lost when the client asks for metadata",
        trouble("Metadata", 4, "lost"),
    )
    before = writes(3), opens(), act("move", to=2), reads(2), CLOSE
    two("moves-before", "another broker leads before the first fetch", acts=before)
    two(
        "moves-three-brokers",
        "the leader moves over three brokers, and a fetch of each gets lost",
        fetch("every 5", "lost", times=3),
        acts=moved(2, 3),
    )
    two(
        "sent-to-a-replica",
        "a fetch names another replica to read from, which does not have the partition",
        fetch(2, set={"responses[0].partitions[0].preferredReadReplica": 2}, versions="11+"),
        follows=["Fetch"],
        acts=WHOLE,
    )


def _lost(made: Theme) -> None:
    again = [asks("Fetch", __fetchOffset="same")]
    lost = partial(made.conversation, acts=WHOLE, requirements=["TALK-LOST-1"], follows=again)
    for slug, what, nth in (
        ("lost", "the second fetch", 2),
        ("lost-first", "the first fetch", 1),
        ("lost-three-times", "three fetches in a row", "2-4"),
        ("lost-each-second", "every second fetch", "every 2"),
    ):
        several = {"times": 3} if "every" in str(nth) else {}
        lost(slug, f"the connection is lost before the response to {what}", fetch(nth, "lost") | several)
    lost(
        "lost-after",
        "the connection is lost after the response to the second fetch",
        fetch(2, disconnect="after"),
        follows=[asks("Fetch", __fetchOffset=6)],
    )
    unsent = fetch(2, "lost", direction="request")
    lost("lost-request", "the connection is lost before the broker gets the second fetch", unsent)
    for slug, what, size in (
        ("cut-in-records", "inside its records", 100),
        ("cut-in-size", "inside its size", 2),
        ("cut-after-header", "after its header", 8),
    ):
        lost(slug, f"the response to the second fetch ends {what}, and the connection is closed", fetch(2, cut=size))
    lost(
        "cut-twice",
        "the responses to two fetches end inside their records",
        fetch("2-3", cut=90),
        follows=[*again, asks("Fetch", __fetchOffset=6)],
    )
    lost(
        "lost-and-metadata-lost",
        "the connection of a fetch is lost, and then that of the next metadata",
        fetch(2, "lost"),
        trouble("Metadata", 3, "lost"),
    )
    lost(
        "lost-then-not-leader",
        "a fetch is lost, and the next one finds no leader there",
        fetch(2, "lost"),
        fetch(3, NOT_LEADER),
        follows=["Fetch", "Metadata", "Fetch"],
        acts=PATIENT,
    )
    lost(
        "not-leader-then-lost",
        "a fetch finds no leader there, and the next metadata is lost",
        fetch(2, NOT_LEADER),
        trouble("Metadata", 3, "lost"),
        follows=["Metadata", "Fetch"],
        acts=PATIENT,
    )
    lost("lost-slow", "a fetch takes 200 ms, and is lost then", fetch(3, "lost", delay_ms=200))
    lost(
        "lost-in-the-midst",
        "connections are lost while the application does not read",
        fetch("4-5", "lost"),
        follows=["Fetch"],
        acts=(opens(), reads(LAST), act("wait", ms=50), reads(LAST, first=TOTAL), CLOSE),
    )


def _sessions(made: Theme) -> None:
    # A client without sessions never gets these errors from a broker.
    session = partial(
        made.conversation, acts=WHOLE, requirements=["TALK-SESSION-1"], level="recommended", follows=[FULL, FULL]
    )
    for slug, what, error in (
        ("lost", "the broker does not know the fetch session any more", NO_SESSION),
        ("epoch-wrong", "the broker refuses the epoch of the fetch session", "INVALID_FETCH_SESSION_EPOCH"),
        ("topic-id-wrong", "the fetch session has another topic id", "FETCH_SESSION_TOPIC_ID_ERROR"),
    ):
        session(f"session-{slug}", what, fetch(3, error), follows=[FULL])
    session("session-lost-twice", "the fetch session is lost, and the next one at once too", fetch("3-4", NO_SESSION))
    session("session-lost-often", "every third fetch loses its session", fetch("every 3", NO_SESSION, times=4))
    session(
        "session-lost-then-not-leader",
        "the fetch session is lost, then the leader",
        fetch(3, NO_SESSION),
        fetch(4, NOT_LEADER),
        follows=[FULL, "Metadata", "Fetch"],
        acts=PATIENT,
    )
    session(
        "session-lost-then-lost",
        "the fetch session is lost, then the connection",
        fetch(3, NO_SESSION),
        fetch(4, "lost"),
    )
    session("session-never", "the broker makes no fetch sessions", fetch("1-1000", set={"sessionId": 0}))
    session(
        "session-lost-with-connection",
        "the connection is lost, and the session with it",
        fetch(3, "lost"),
        fetch(4, NO_SESSION),
        follows=["Fetch", FULL],
    )
    session(
        "session-lost-at-the-end",
        "the fetch session is lost while nothing is left to read",
        fetch("7-8", NO_SESSION),
        follows=[],
        acts=(opens(), reads(LAST), act("wait", ms=30), CLOSE),
    )


def _refused(made: Theme) -> None:
    refused = partial(made.conversation, requirements=["TALK-FATAL-1"])
    refused(
        "forbidden",
        "the second fetch is not allowed",
        fetch("2-1000", "TOPIC_AUTHORIZATION_FAILED"),
        acts=(opens(), fails(2, "TopicAuthorizationException"), CLOSE),
    )
    refused(
        "forbidden-once",
        "the second fetch is not allowed, and the application reads on after the error",
        fetch(2, "TOPIC_AUTHORIZATION_FAILED"),
        acts=(opens(), fails(2, "TopicAuthorizationException"), reads(LAST, first=3), CLOSE),
    )
    refused(
        "beyond-the-end",
        "a consumer that is not to be reset begins beyond the end of the log",
        acts=(writes(3), opens(offset="100"), fails(-1, "OffsetOutOfRangeException"), CLOSE),
    )
    refused(
        "out-of-range",
        "the second fetch is out of range for a consumer that is not to be reset",
        fetch("2-1000", "OFFSET_OUT_OF_RANGE"),
        acts=(opens(), fails(2, "OffsetOutOfRangeException"), CLOSE),
    )
    refused(
        "damaged-once",
        "the records of the second fetch are damaged, and those of the next one are not",
        fetch(2, vector="records/v2/codec/gzip-crc-wrong"),
        acts=(opens(), fails(2, "KafkaException"), CLOSE),
        level="recommended",
    )


def _epochs(made: Theme) -> None:
    """A new leader may have lost records that a consumer has read."""
    # Not every client asks where an epoch ends.
    epoch = partial(made.conversation, requirements=["TALK-LEADER-1"], brokers=2, level="recommended")
    ends = partial(trouble, "OffsetForLeaderEpoch")
    shorter = ends(set={"topics[0].partitions[0].endOffset": 3})
    moved = writes(READ), opens(), reads(READ - 1), act("move", to=2)
    later = writes(3, first=READ), reads(READ + 2, first=READ), CLOSE
    failed = *moved, fails(-1, "LogTruncationException"), CLOSE
    epoch("log-shorter", "the new leader has lost records, and the consumer is not to be reset", shorter, acts=failed)
    epoch(
        "log-shorter-and-reset",
        "the new leader has lost records, and the consumer begins there again",
        shorter,
        follows=[asks("Fetch", __fetchOffset=3)],
        acts=(
            writes(READ),
            opens(reset="earliest"),
            reads(READ - 1),
            act("move", to=2),
            reads(READ - 1, first=3),
            CLOSE,
        ),
    )
    again = ["OffsetForLeaderEpoch", "Fetch"]
    for slug, what, rule, follows in (
        ("lost", "the connection is lost before the end of the old epoch is there", ends(1, "lost"), again),
        ("not-leader", "the end of the old epoch is asked where no leader is", ends(1, NOT_LEADER), again),
        ("slow", "the end of the old epoch takes 200 ms", ends(delay_ms=200), ["Fetch"]),
    ):
        epoch(f"epoch-end-{slug}", what, rule, follows=follows, acts=(*moved, *later))
    epoch(
        "epoch-end-unknown",
        "the new leader does not know the old epoch",
        ends(set={"topics[0].partitions[0].endOffset": -1, "topics[0].partitions[0].leaderEpoch": -1}),
        acts=failed,
    )
    epoch(
        "epoch-end-forbidden",
        "the end of the old epoch may not be read",
        ends("1-1000", "TOPIC_AUTHORIZATION_FAILED"),
        acts=(*moved, fails(-1, "TopicAuthorizationException"), CLOSE),
    )
