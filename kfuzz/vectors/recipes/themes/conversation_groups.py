"""Members of groups, classic and of KIP-848, whose coordinator fails, moves, or does not know them any more."""

from __future__ import annotations

from functools import partial
from typing import Any

from kfuzz.vectors.recipes.making.conversation import (
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
LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
ELSEWHERE = "NOT_COORDINATOR"


def whole(how: dict[str, Any]) -> tuple[Act, ...]:
    """A member reads everything, and commits."""
    return opens(**how), reads(LAST), COMMIT, CLOSE


def later(how: dict[str, Any], *between: Act, committed: Act = COMMIT) -> tuple[Act, ...]:
    """A member reads, something happens, and it reads what is written then."""
    first = writes(3), opens(**how), reads(2), committed
    return *first, *between, writes(3, first=3), reads(5, first=3), COMMIT, CLOSE


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
    again = ["JoinGroup", "Fetch"]
    group = partial(made.conversation, acts=whole(GROUP), requirements=["TALK-GROUP-1"], follows=again)
    group(
        "joined",
        "a member joins, reads and commits",
        follows=["JoinGroup", "SyncGroup", "OffsetFetch", "Fetch", asks("OffsetCommit", __committedOffset=15)],
    )
    for name, step in (("find", find), ("join", join), ("sync", sync), ("committed", committed)):
        api, coordinated = step.args[0], name != "find"
        error = LOADING if coordinated else "COORDINATOR_NOT_AVAILABLE"
        done = ["Fetch", "OffsetCommit"]
        retried = partial(made.conversation, acts=whole(GROUP), requirements=["TALK-RETRY-1"], follows=done)
        if name != "sync":
            retried(f"{name}-loading", f"the coordinator is loading at {api}", step("1-2", error), follows=[api])
        retried(f"{name}-lost", f"the answer to {api} is lost", step(1, "lost"))
        retried(f"{name}-lost-often", f"three answers to {api} are lost", step("1-3", "lost"))
        retried(f"{name}-slow", f"the answer to {api} takes 200 ms", step(delay_ms=200), follows=["Fetch"])
        made.conversation(
            f"{name}-forbidden",
            f"the group may not be used at {api}",
            step("1-1000", "GROUP_AUTHORIZATION_FAILED"),
            requirements=["TALK-FATAL-1"],
            follows=[at_most(0, "Fetch")],
            acts=(opens(**GROUP), fails(-1, "GroupAuthorizationException"), CLOSE),
        )
        if coordinated:
            retried(
                f"{name}-not-coordinator",
                f"the coordinator is elsewhere at {api}",
                step(1, ELSEWHERE),
                requirements=["TALK-COORDINATOR-1"],
                follows=["FindCoordinator", "Fetch"],
            )
    group("join-unknown-member", "the coordinator has forgotten the id that it gave", join(2, "UNKNOWN_MEMBER_ID"))
    for slug, what, error in (
        ("rebalance", "another rebalance begins before the member has", "REBALANCE_IN_PROGRESS"),
        ("unknown-member", "the coordinator has forgotten the member before it has", "UNKNOWN_MEMBER_ID"),
    ):
        group(f"sync-{slug}", f"{what} its assignment", sync(1, error))
    group(
        "offsets-unstable",
        "a transaction with offsets of the group is not yet over",
        committed("1-3", "UNSTABLE_OFFSET_COMMIT"),
        follows=["OffsetFetch", "Fetch"],
    )
    group(
        "each-lost-once",
        "the answer to each step is lost once",
        *[one(1, "lost") for one in (find, join, sync, committed)],
        follows=["JoinGroup", "SyncGroup", "OffsetFetch", "Fetch"],
    )
    handed = partial(group, acts=handed_over(GROUP))
    handed("handed-over", "a second member continues where the first one has committed", follows=())
    handed(
        "handed-over-leave-lost",
        "the answer is lost when the first member leaves",
        leave(1, "lost"),
        follows=["JoinGroup"],
    )
    group(
        "handed-over-not-committed",
        "a second member reads again what the first one has not committed",
        follows=["OffsetFetch", "OffsetFetch"],
        acts=(opens(**GROUP), reads(LAST), CLOSE, opens(by=2, **GROUP), reads(LAST, by=2), act("close", by=2)),
    )
    group(
        "second-joins",
        "a second member joins, and gets nothing of the one partition until the first one leaves",
        acts=(
            writes(3),
            opens(**GROUP),
            reads(2),
            COMMIT,
            CLOSE,
            opens(by=2, **GROUP),
            act("wait", ms=100),
            writes(3, first=3),
            reads(5, first=3, by=2),
            act("commit", by=2),
            act("close", by=2),
        ),
        follows=(),
    )
    for slug, what, error, name in (
        ("inconsistent", "the group has other protocols", "INCONSISTENT_GROUP_PROTOCOL", "InconsistentGroupProtocol"),
        ("full", "the group is full", "GROUP_MAX_SIZE_REACHED", "GroupMaxSizeReached"),
    ):
        acts = opens(**GROUP), fails(-1, name), CLOSE
        made.conversation(f"join-{slug}", what, join("1-1000", error), requirements=["TALK-FATAL-1"], acts=acts)
    made.conversation(
        "old-join",
        "the broker offers JoinGroup up to version 3, which gives ids at once",
        requirements=["TALK-VERSION-1"],
        broker={"versions": {"JoinGroup": 3}},
        acts=whole(GROUP),
    )
    made.conversation(
        "coordinator-moves",
        "another broker coordinates after the first commit",
        brokers=2,
        requirements=["TALK-COORDINATOR-1"],
        acts=later(GROUP, act("move", key="kfuzz-group", to=2), BEATS),
    )


def _beats(made: Theme) -> None:
    again = ["JoinGroup", "SyncGroup"]
    group = partial(made.conversation, requirements=["TALK-GROUP-1"], follows=again)

    def beaten(*rules: dict[str, Any], beats: int = 1) -> tuple[Act, ...]:
        return later(GROUP, happens(*rules), *[BEATS, reads(2, first=3)] * beats)

    for slug, what, error in (
        ("rebalance", "another rebalance begins", "REBALANCE_IN_PROGRESS"),
        ("forgotten", "the coordinator has forgotten the member", "UNKNOWN_MEMBER_ID"),
        ("generation-old", "the member's generation is old", "ILLEGAL_GENERATION"),
    ):
        group(slug, f"{what} while a member reads", acts=beaten(beat(1, error)))
    group(
        "rebalance-twice",
        "two rebalances follow one another",
        acts=beaten(beat("every 3", "REBALANCE_IN_PROGRESS", times=2), beats=3),
    )
    group(
        "rebalance-and-join-lost",
        "a rebalance begins, and the answer to the next join is lost",
        acts=beaten(beat(1, "REBALANCE_IN_PROGRESS"), join(1, "lost")),
    )
    group(
        "forgotten-and-coordinator-moved",
        "the member is forgotten, and the coordinator is elsewhere",
        follows=["JoinGroup", "FindCoordinator", "JoinGroup"],
        acts=beaten(beat(1, "UNKNOWN_MEMBER_ID"), join(1, ELSEWHERE), beats=2),
    )
    group("beat-lost", "the answer to a heartbeat is lost", follows=["Fetch"], acts=beaten(beat(1, "lost")))
    group(
        "beat-not-coordinator",
        "the coordinator is elsewhere when a heartbeat comes",
        follows=["FindCoordinator", "Fetch"],
        acts=beaten(beat(1, ELSEWHERE)),
    )
    group("beat-slow", "the answer to a heartbeat takes 150 ms", follows=["Fetch"], acts=beaten(beat(delay_ms=150)))


def _commits(made: Theme) -> None:
    again = [asks("OffsetCommit", __committedOffset="same")]
    kept = partial(made.conversation, acts=whole(GROUP), requirements=["TALK-RETRY-1"], follows=again)
    kept("commit-loading", "the coordinator is loading when a member commits", commits("1-2", LOADING))
    kept("commit-lost", "the answer to a commit is lost", commits(1, "lost"))
    kept("commit-lost-often", "the answers to three commits are lost", commits("1-3", "lost"), follows=again * 3)
    kept(
        "commit-not-coordinator",
        "the coordinator is elsewhere when a member commits",
        commits(1, ELSEWHERE),
        follows=["FindCoordinator", *again],
    )
    no_more = [at_most(0, "OffsetCommit")]
    kept("commit-slow", "the answer to a commit takes 200 ms", commits(delay_ms=200), follows=no_more)
    failed = partial(made.conversation, requirements=["TALK-GROUP-1"])
    for slug, what, error, name in (
        ("commit-rebalance", "a rebalance begins", "REBALANCE_IN_PROGRESS", "RebalanceInProgressException"),
        ("commit-forgotten", "the member was forgotten", "UNKNOWN_MEMBER_ID", "CommitFailedException"),
        ("commit-generation-old", "the member's generation is old", "ILLEGAL_GENERATION", "CommitFailedException"),
        ("commit-too-large", "the metadata is too large", "OFFSET_METADATA_TOO_LARGE", "OffsetMetadataTooLarge"),
    ):
        failed(
            slug,
            f"{what} when a member commits",
            commits("1-1000", error),
            acts=(opens(**GROUP), reads(LAST), act("commit", error=name), CLOSE),
        )
    failed(
        "commit-forgotten-then-read",
        "a member that was forgotten at its commit joins again and reads on",
        commits(1, "UNKNOWN_MEMBER_ID"),
        follows=["JoinGroup", "OffsetCommit"],
        acts=later(GROUP, committed=act("commit", error="CommitFailedException")),
    )


def _newer(made: Theme) -> None:
    """The protocol of KIP-848: heartbeats do everything."""
    again = ["ConsumerGroupHeartbeat", "Fetch"]
    group = partial(made.conversation, acts=whole(NEW), requirements=["TALK-GROUP-1"], follows=again)
    group(
        "new-joined",
        "a member of the new protocol joins, reads and commits",
        follows=[asks("ConsumerGroupHeartbeat", memberEpoch=0), "Fetch", "OffsetCommit"],
    )
    group(
        "new-handed-over",
        "a second member of the new protocol continues where the first one has committed",
        acts=handed_over(NEW),
        follows=(),
    )
    for slug, what, rule, follows in (
        ("loading", "the coordinator is loading", member(1, LOADING), again),
        ("not-coordinator", "the coordinator is elsewhere", member(1, ELSEWHERE), ["FindCoordinator", *again]),
        ("lost", "the answer is lost", member(1, "lost"), again),
        ("slow", "the answer takes 200 ms", member(delay_ms=200), ["Fetch"]),
    ):
        group(f"new-{slug}", f"{what} at the first heartbeat of the new protocol", rule, follows=follows)
    group("new-lost-often", "the answers to three heartbeats are lost", member("1-3", "lost"))
    joined_again = [asks("ConsumerGroupHeartbeat", memberEpoch=0)]
    long = writes(3), opens(**NEW), reads(2), COMMIT, act("wait", ms=300), writes(3, first=3)
    for slug, what, error in (
        ("new-fenced", "is fenced", "FENCED_MEMBER_EPOCH"),
        ("new-forgotten", "is forgotten", "UNKNOWN_MEMBER_ID"),
    ):
        group(
            slug,
            f"a member of the new protocol {what} at its second heartbeat, and joins again",
            member(2, error),
            follows=joined_again,
            acts=(*long, reads(5, first=3), CLOSE),
        )
    for slug, what, error, name in (
        ("forbidden", "the group may not be used", "GROUP_AUTHORIZATION_FAILED", "GroupAuthorizationException"),
        ("invalid", "the heartbeat is not valid", "INVALID_REQUEST", "InvalidRequestException"),
    ):
        made.conversation(
            f"new-{slug}",
            f"{what}, says the first heartbeat of the new protocol",
            member("1-1000", error),
            requirements=["TALK-FATAL-1"],
            follows=[at_most(0, "Fetch")],
            acts=(opens(**NEW), fails(-1, name), CLOSE),
        )
    group(
        "new-commit-lost",
        "the answer to a commit of the new protocol is lost",
        commits(1, "lost"),
        follows=[asks("OffsetCommit", __committedOffset="same")],
    )
    group(
        "new-commit-fenced",
        "the epoch of a commit of the new protocol is old",
        commits("1-1000", "UNKNOWN_MEMBER_ID"),
        acts=(opens(**NEW), reads(LAST), act("commit", error="CommitFailed"), CLOSE),
        follows=(),
    )
    group(
        "new-leave-lost",
        "the answer is lost when a member of the new protocol leaves",
        member("every 3", "lost", times=2),
        acts=handed_over(NEW),
        follows=(),
    )
