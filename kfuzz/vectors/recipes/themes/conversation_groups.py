"""Members of groups, classic and of KIP-848, whose coordinator fails, moves, or does not know them any more."""

from __future__ import annotations

from functools import partial
from typing import Any

from kfuzz.vectors.recipes.making.conversation import (
    GIVEN,
    Act,
    act,
    asks,
    at_most,
    fails,
    happens,
    opens,
    reads,
    trouble,
    writes,
)
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.conversation_reading import CLOSE, LAST

__all__ = ["theme"]

find = partial(trouble, "FindCoordinator")
join = partial(trouble, "JoinGroup")
sync = partial(trouble, "SyncGroup")
beat = partial(trouble, "Heartbeat")
committed = partial(trouble, "OffsetFetch")
commits = partial(trouble, "OffsetCommit")
leave = partial(trouble, "LeaveGroup")
member = partial(trouble, "ConsumerGroupHeartbeat")
GROUP: dict[str, Any] = {"group": "kfuzz-group", "reset": "earliest"}
NEW: dict[str, Any] = {**GROUP, "protocol": "consumer"}
COMMIT = act("commit")
# Long enough for several heartbeats.
BEATS = act("wait", ms=200)


def whole(how: dict[str, Any]) -> tuple[Act, ...]:
    """A member reads everything, and commits."""
    return opens(**how), reads(LAST), COMMIT, CLOSE


def later(how: dict[str, Any], *between: Act) -> tuple[Act, ...]:
    """A member reads, something happens, and it reads what is written then."""
    return writes(3), opens(**how), reads(2), COMMIT, *between, writes(3, first=3), reads(5, first=3), COMMIT, CLOSE


def handed_over(how: dict[str, Any]) -> tuple[Act, ...]:
    """A second member continues where the first one has committed."""
    return (
        *(writes(3), opens(**how), reads(2), COMMIT, CLOSE),
        *(writes(3, first=3), opens(by=2, **how), reads(5, first=3, by=2), act("close", by=2)),
    )


def theme() -> Theme:
    """The recipes of ``vectors/conversation/groups.json``."""
    made = Theme(
        "conversation/groups", "Members of groups whose coordinator fails, moves or forgets them.", "conversation"
    )
    _classic(made)
    _beats(made)
    _commits(made)
    _newer(made)
    return made


def _classic(made: Theme) -> None:
    group = partial(made.conversation, given=GIVEN, requirements=["TALK-GROUP-1"])
    group(
        "joined",
        "a member joins, reads and commits",
        *whole(GROUP),
        follows=[
            asks("JoinGroup"),
            asks("SyncGroup"),
            asks("OffsetFetch"),
            asks("Fetch"),
            asks("OffsetCommit", __committedOffset=15),
        ],
    )
    for name, step, coordinated in (
        ("find", find, False),
        ("join", join, True),
        ("sync", sync, True),
        ("committed", committed, True),
    ):
        api = step.args[0]
        error = "COORDINATOR_LOAD_IN_PROGRESS" if coordinated else "COORDINATOR_NOT_AVAILABLE"
        retried = partial(made.conversation, given=GIVEN, requirements=["TALK-RETRY-1"])
        if name != "sync":
            retried(
                f"{name}-loading",
                f"the coordinator is loading at {api}",
                *whole(GROUP),
                rules=[step("1-2", error=error)],
                follows=[asks(api)],
            )
        retried(
            f"{name}-lost",
            f"the answer to {api} is lost",
            *whole(GROUP),
            rules=[step(disconnect="before")],
            follows=[asks("Fetch"), asks("OffsetCommit")],
        )
        retried(
            f"{name}-lost-often",
            f"three answers to {api} are lost",
            *whole(GROUP),
            rules=[step("1-3", disconnect="before")],
            follows=[asks("Fetch"), asks("OffsetCommit")],
        )
        retried(
            f"{name}-slow",
            f"the answer to {api} takes 200 ms",
            *whole(GROUP),
            rules=[step(delay_ms=200)],
            follows=[asks("Fetch")],
        )
        made.conversation(
            f"{name}-forbidden",
            f"the group may not be used at {api}",
            opens(**GROUP),
            fails(-1, "GroupAuthorizationException"),
            CLOSE,
            given=GIVEN,
            requirements=["TALK-FATAL-1"],
            rules=[step("1-1000", error="GROUP_AUTHORIZATION_FAILED")],
            follows=[at_most(0, "Fetch")],
        )
        if coordinated:
            made.conversation(
                f"{name}-not-coordinator",
                f"the coordinator is elsewhere at {api}",
                *whole(GROUP),
                given=GIVEN,
                requirements=["TALK-COORDINATOR-1"],
                rules=[step(error="NOT_COORDINATOR")],
                follows=[asks("FindCoordinator"), asks("Fetch")],
            )
    again = [asks("JoinGroup"), asks("Fetch")]
    group(
        "join-unknown-member",
        "the coordinator has forgotten the id that it gave",
        *whole(GROUP),
        rules=[join(2, error="UNKNOWN_MEMBER_ID")],
        follows=again,
    )
    group(
        "sync-rebalance",
        "another rebalance begins before the member has its assignment",
        *whole(GROUP),
        rules=[sync(error="REBALANCE_IN_PROGRESS")],
        follows=again,
    )
    group(
        "sync-unknown-member",
        "the coordinator has forgotten the member before it has its assignment",
        *whole(GROUP),
        rules=[sync(error="UNKNOWN_MEMBER_ID")],
        follows=again,
    )
    group(
        "offsets-unstable",
        "a transaction with offsets of the group is not yet over",
        *whole(GROUP),
        rules=[committed("1-3", error="UNSTABLE_OFFSET_COMMIT")],
        follows=[asks("OffsetFetch"), asks("Fetch")],
    )
    group(
        "each-lost-once",
        "the answer to each step is lost once",
        *whole(GROUP),
        rules=[one(disconnect="before") for one in (find, join, sync, committed)],
        follows=[asks("JoinGroup"), asks("SyncGroup"), asks("OffsetFetch"), asks("Fetch")],
    )
    group("handed-over", "a second member continues where the first one has committed", *handed_over(GROUP), given=())
    group(
        "handed-over-leave-lost",
        "the answer is lost when the first member leaves",
        *handed_over(GROUP),
        given=(),
        rules=[leave(disconnect="before")],
        follows=[asks("JoinGroup")],
    )
    group(
        "handed-over-not-committed",
        "a second member reads again what the first one has not committed",
        *(opens(**GROUP), reads(LAST), CLOSE, opens(by=2, **GROUP), reads(LAST, by=2), act("close", by=2)),
        follows=[asks("OffsetFetch"), asks("OffsetFetch")],
    )
    group(
        "second-joins",
        "a second member joins, and gets nothing of the one partition until the first one leaves",
        *(writes(3), opens(**GROUP), reads(2), COMMIT, CLOSE, opens(by=2, **GROUP), act("wait", ms=100)),
        *(writes(3, first=3), reads(5, first=3, by=2), act("commit", by=2), act("close", by=2)),
        given=(),
    )
    fatal = partial(made.conversation, given=GIVEN, requirements=["TALK-FATAL-1"])
    fatal(
        "join-inconsistent",
        "the group has other protocols",
        opens(**GROUP),
        fails(-1, "InconsistentGroupProtocol"),
        CLOSE,
        rules=[join("1-1000", error="INCONSISTENT_GROUP_PROTOCOL")],
    )
    fatal(
        "join-full",
        "the group is full",
        opens(**GROUP),
        fails(-1, "GroupMaxSizeReached"),
        CLOSE,
        rules=[join("1-1000", error="GROUP_MAX_SIZE_REACHED")],
    )
    made.conversation(
        "old-join",
        "the broker offers JoinGroup up to version 3, which gives ids at once",
        *whole(GROUP),
        given=GIVEN,
        requirements=["TALK-VERSION-1"],
        broker={"versions": {"JoinGroup": 3}},
    )
    made.conversation(
        "coordinator-moves",
        "another broker coordinates after the first commit",
        *later(GROUP, act("move", key="kfuzz-group", to=2), BEATS),
        brokers=2,
        requirements=["TALK-COORDINATOR-1"],
    )


def _beats(made: Theme) -> None:
    group = partial(made.conversation, requirements=["TALK-GROUP-1"])
    again = [asks("JoinGroup"), asks("SyncGroup")]

    def beaten(*rules: dict[str, Any], beats: int = 1) -> tuple[Act, ...]:
        return later(GROUP, happens(*rules), *[BEATS, reads(2, first=3)] * beats)

    for slug, what, error in (
        ("rebalance", "another rebalance begins", "REBALANCE_IN_PROGRESS"),
        ("forgotten", "the coordinator has forgotten the member", "UNKNOWN_MEMBER_ID"),
        ("generation-old", "the member's generation is old", "ILLEGAL_GENERATION"),
    ):
        group(slug, f"{what} while a member reads", *beaten(beat(error=error)), follows=again)
    group(
        "rebalance-twice",
        "two rebalances follow one another",
        *beaten(beat("every 3", error="REBALANCE_IN_PROGRESS") | {"times": 2}, beats=3),
        follows=again * 2,
    )
    group(
        "rebalance-and-join-lost",
        "a rebalance begins, and the answer to the next join is lost",
        *beaten(beat(error="REBALANCE_IN_PROGRESS"), join(disconnect="before")),
        follows=again,
    )
    group(
        "forgotten-and-coordinator-moved",
        "the member is forgotten, and the coordinator is elsewhere",
        *beaten(beat(error="UNKNOWN_MEMBER_ID"), join(error="NOT_COORDINATOR"), beats=2),
        follows=[asks("JoinGroup"), asks("FindCoordinator"), asks("JoinGroup")],
    )
    group("beat-lost", "the answer to a heartbeat is lost", *beaten(beat(disconnect="before")), follows=[asks("Fetch")])
    group(
        "beat-not-coordinator",
        "the coordinator is elsewhere when a heartbeat comes",
        *beaten(beat(error="NOT_COORDINATOR")),
        follows=[asks("FindCoordinator"), asks("Fetch")],
    )
    group("beat-slow", "the answer to a heartbeat takes 150 ms", *beaten(beat(delay_ms=150)), follows=[asks("Fetch")])


def _commits(made: Theme) -> None:
    kept = partial(made.conversation, requirements=["TALK-RETRY-1"], given=GIVEN)
    again = [asks("OffsetCommit", __committedOffset="same")]
    kept(
        "commit-loading",
        "the coordinator is loading when a member commits",
        *whole(GROUP),
        rules=[commits("1-2", error="COORDINATOR_LOAD_IN_PROGRESS")],
        follows=again,
    )
    kept(
        "commit-lost",
        "the answer to a commit is lost",
        *whole(GROUP),
        rules=[commits(disconnect="before")],
        follows=again,
    )
    kept(
        "commit-lost-often",
        "the answers to three commits are lost",
        *whole(GROUP),
        rules=[commits("1-3", disconnect="before")],
        follows=again * 3,
    )
    kept(
        "commit-not-coordinator",
        "the coordinator is elsewhere when a member commits",
        *whole(GROUP),
        rules=[commits(error="NOT_COORDINATOR")],
        follows=[asks("FindCoordinator"), *again],
    )
    kept(
        "commit-slow",
        "the answer to a commit takes 200 ms",
        *whole(GROUP),
        rules=[commits(delay_ms=200)],
        follows=[at_most(0, "OffsetCommit")],
    )
    failed = partial(made.conversation, requirements=["TALK-GROUP-1"], given=GIVEN)
    for slug, what, error, name in (
        ("commit-rebalance", "a rebalance begins", "REBALANCE_IN_PROGRESS", "RebalanceInProgressException"),
        ("commit-forgotten", "the member was forgotten", "UNKNOWN_MEMBER_ID", "CommitFailedException"),
        ("commit-generation-old", "the member's generation is old", "ILLEGAL_GENERATION", "CommitFailedException"),
        ("commit-too-large", "the metadata is too large", "OFFSET_METADATA_TOO_LARGE", "OffsetMetadataTooLarge"),
    ):
        failed(
            slug,
            f"{what} when a member commits",
            opens(**GROUP),
            reads(LAST),
            act("commit", error=name),
            CLOSE,
            rules=[commits("1-1000", error=error)],
        )
    failed(
        "commit-forgotten-then-read",
        "a member that was forgotten at its commit joins again and reads on",
        *(writes(3), opens(**GROUP), reads(2), act("commit", error="CommitFailedException"), writes(3, first=3)),
        *(reads(5, first=3), COMMIT, CLOSE),
        given=(),
        rules=[commits(error="UNKNOWN_MEMBER_ID")],
        follows=[asks("JoinGroup"), asks("OffsetCommit")],
    )


def _newer(made: Theme) -> None:
    """The protocol of KIP-848: heartbeats do everything."""
    group = partial(made.conversation, requirements=["TALK-GROUP-1"], given=GIVEN)
    again = [asks("ConsumerGroupHeartbeat"), asks("Fetch")]
    group(
        "new-joined",
        "a member of the new protocol joins, reads and commits",
        *whole(NEW),
        follows=[asks("ConsumerGroupHeartbeat", memberEpoch=0), asks("Fetch"), asks("OffsetCommit")],
    )
    group(
        "new-handed-over",
        "a second member of the new protocol continues where the first one has committed",
        *handed_over(NEW),
        given=(),
    )
    for slug, what, action, first in (
        ("new-loading", "the coordinator is loading", {"error": "COORDINATOR_LOAD_IN_PROGRESS"}, again),
        (
            "new-not-coordinator",
            "the coordinator is elsewhere",
            {"error": "NOT_COORDINATOR"},
            [asks("FindCoordinator"), *again],
        ),
        ("new-lost", "the answer is lost", {"disconnect": "before"}, again),
        ("new-slow", "the answer takes 200 ms", {"delay_ms": 200}, [asks("Fetch")]),
    ):
        group(
            slug,
            f"{what} at the first heartbeat of the new protocol",
            *whole(NEW),
            rules=[member(**action)],
            follows=first,
        )
    group(
        "new-lost-often",
        "the answers to three heartbeats are lost",
        *whole(NEW),
        rules=[member("1-3", disconnect="before")],
        follows=again,
    )
    joined_again = [asks("ConsumerGroupHeartbeat", memberEpoch=0)]
    long = writes(3), opens(**NEW), reads(2), COMMIT, act("wait", ms=300), writes(3, first=3)
    for slug, what, error in (
        ("new-fenced", "is fenced", "FENCED_MEMBER_EPOCH"),
        ("new-forgotten", "is forgotten", "UNKNOWN_MEMBER_ID"),
    ):
        group(
            slug,
            f"a member of the new protocol {what} at its second heartbeat, and joins again",
            *long,
            reads(5, first=3),
            CLOSE,
            given=(),
            rules=[member(2, error=error)],
            follows=joined_again,
        )
    fatal = partial(made.conversation, requirements=["TALK-FATAL-1"], given=GIVEN)
    for slug, what, error, name in (
        ("new-forbidden", "the group may not be used", "GROUP_AUTHORIZATION_FAILED", "GroupAuthorizationException"),
        ("new-invalid", "the heartbeat is not valid", "INVALID_REQUEST", "InvalidRequestException"),
    ):
        fatal(
            slug,
            f"{what}, says the first heartbeat of the new protocol",
            opens(**NEW),
            fails(-1, name),
            CLOSE,
            rules=[member("1-1000", error=error)],
            follows=[at_most(0, "Fetch")],
        )
    group(
        "new-commit-lost",
        "the answer to a commit of the new protocol is lost",
        *whole(NEW),
        rules=[commits(disconnect="before")],
        follows=[asks("OffsetCommit", __committedOffset="same")],
    )
    group(
        "new-commit-fenced",
        "the epoch of a commit of the new protocol is old",
        opens(**NEW),
        reads(LAST),
        act("commit", error="CommitFailed"),
        CLOSE,
        rules=[commits("1-1000", error="UNKNOWN_MEMBER_ID")],
    )
    group(
        "new-leave-lost",
        "the answer is lost when a member of the new protocol leaves",
        *handed_over(NEW),
        given=(),
        rules=[member("every 3", disconnect="before") | {"times": 2}],
    )
