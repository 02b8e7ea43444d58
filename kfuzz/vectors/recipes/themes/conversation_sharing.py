"""Consumers of share groups, and calls of an admin client. Only a real broker can be asked."""

from __future__ import annotations

from functools import partial
from typing import Any

from kfuzz.vectors.recipes.making.conversation import Act, act, asks, happens, opens, reads, trouble, writes
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.conversation_reading import CLOSE

SHARE: dict[str, Any] = {"group": "kfuzz-share", "protocol": "share"}
COMMIT = act("commit")
# A share group begins at the end of the log, once its first member has asked.
ASKED = reads(-1), *(act("wait", ms=700), reads(-1)) * 5
GROUP = writes(1), opens(group="kfuzz-group", reset="earliest"), reads(0), COMMIT, CLOSE
call = partial(act, "call")
fetch = partial(trouble, "ShareFetch")
beat = partial(trouble, "ShareGroupHeartbeat")


def shared(*rules: dict[str, Any], before: tuple[Act, ...] = (), **how: Any) -> tuple[Act, ...]:
    """A member joins, something happens, and it reads and acknowledges what is written then.

    ``before``: what it does between the rules and the records.
    """
    happened = (happens(*rules), *before) if rules else ()
    return opens(**SHARE, **how), *ASKED, *happened, writes(3), reads(2), COMMIT, CLOSE


def called(name: str, before: tuple[Act, ...], rule: dict[str, Any], error: str | None = None) -> tuple[Act, ...]:
    """An admin client calls, and meets trouble."""
    of_group: dict[str, Any] = {"group": "kfuzz-group"} if before is GROUP else {}
    return *before, happens(rule), call(name=name, error=error, **of_group)


def theme() -> Theme:
    """The recipes of ``vectors/conversation/sharing.json``."""
    made = Theme("conversation/sharing", "Share groups, and calls of an admin client.", "conversation")
    _share(made)
    _admin(made)
    return made


def _share(made: Theme) -> None:
    share = partial(made.conversation, requirements=["TALK-SHARE-1"])
    share("shared", "a member of a share group reads, and acknowledges what it has read", acts=shared())
    share("accepted", "a member accepts each record", acts=shared(acknowledge=["accept"]))
    share(
        "rejected",
        "a member rejects each record, and gets none of them again",
        acts=(opens(**SHARE, acknowledge=["reject"]), *ASKED, writes(3), reads(2), COMMIT, reads(-1), CLOSE),
    )
    share(
        "released",
        "a member releases the first record of three, and gets it again",
        acts=(
            opens(**SHARE, acknowledge=["release", "accept", "accept", "accept"]),
            *ASKED,
            writes(3),
            act("read", count=4, gives={"offsets": ["0", "1", "2", "0"]}),
            COMMIT,
            CLOSE,
        ),
    )
    again, fresh = ["ShareFetch"], [asks("ShareFetch", shareSessionEpoch=0)]
    for slug, what, rule, follows in (
        ("lost", "the answer to a fetch is lost", fetch(1, "lost"), again),
        ("session-lost", "the share session is lost", fetch(1, "SHARE_SESSION_NOT_FOUND"), fresh),
        (
            "session-epoch-wrong",
            "the epoch of the share session is wrong",
            fetch(1, "INVALID_SHARE_SESSION_EPOCH"),
            fresh,
        ),
        ("not-leader", "a fetch finds no leader there", fetch(1, "NOT_LEADER_OR_FOLLOWER"), ["Metadata", *again]),
        ("slow", "a fetch takes 300 ms", fetch(delay_ms=300), again),
    ):
        share(slug, f"{what} in a share group", follows=follows, acts=shared(rule))
    # An answer with records that is lost leaves them with the member until their lock ends, so there are none yet.
    share(
        "lost-often",
        "the answers to three fetches are lost in a share group",
        follows=again * 3,
        acts=shared(fetch("1-3", "lost"), before=ASKED),
    )
    again = ["ShareGroupHeartbeat"]
    for slug, what, rule, follows in (
        ("lost", "the answer to the first heartbeat is lost", beat(1, "lost"), again),
        (
            "loading",
            "the coordinator is loading at the first heartbeats",
            beat("1-2", "COORDINATOR_LOAD_IN_PROGRESS"),
            again * 2,
        ),
        (
            "not-coordinator",
            "the coordinator is elsewhere at the first heartbeat",
            beat(1, "NOT_COORDINATOR"),
            ["FindCoordinator", *again],
        ),
    ):
        share(f"beat-{slug}", f"{what} of a share group", rule, follows=follows, acts=shared())


def _admin(made: Theme) -> None:
    admin = partial(made.conversation, requirements=["TALK-ADMIN-1"])
    for name, api, before in (
        ("create-topic", "CreateTopics", ()),
        ("delete-topic", "DeleteTopics", ()),
        ("list-offsets", "ListOffsets", ()),
        ("delete-records", "DeleteRecords", (writes(2),)),
        ("list-committed", "OffsetFetch", GROUP),
        ("describe-cluster", "DescribeCluster", ()),
    ):
        # The broker has done it, so the second request finds it done.
        error = "" if name in ("create-topic", "delete-topic") else None
        lost, unsent = trouble(api, 1, "lost"), trouble(api, 1, "lost", direction="request")
        acts = called(name, before, lost, error)
        admin(f"{name}-lost", f"the answer to {name} is lost", follows=[api], acts=acts)
        what = f"the connection is lost before the broker gets {name}"
        admin(f"{name}-lost-request", what, follows=[api], acts=called(name, before, unsent))
        acts = called(name, before, trouble(api, delay_ms=200))
        admin(f"{name}-slow", f"the answer to {name} takes 200 ms", acts=acts)
    for name, api, before, error, follows in (
        ("list-offsets", "ListOffsets", (), "NOT_LEADER_OR_FOLLOWER", ["Metadata", "ListOffsets"]),
        ("delete-records", "DeleteRecords", (writes(2),), "NOT_LEADER_OR_FOLLOWER", ["Metadata", "DeleteRecords"]),
        ("list-committed", "OffsetFetch", GROUP, "NOT_COORDINATOR", ["FindCoordinator", "OffsetFetch"]),
        ("delete-group", "DeleteGroups", GROUP, "NOT_COORDINATOR", ["FindCoordinator", "DeleteGroups"]),
    ):
        acts = called(name, before, trouble(api, 1, error), "" if name == "delete-group" else None)
        admin(f"{name}-elsewhere", f"{name} must go to another broker", follows=follows, acts=acts)
    fatal = partial(made.conversation, requirements=["TALK-FATAL-1"])
    fatal(
        "create-topic-forbidden",
        "a topic may not be created",
        acts=(
            happens(trouble("CreateTopics", "1-1000", "TOPIC_AUTHORIZATION_FAILED")),
            call(name="create-topic", error="TopicAuthorizationException"),
        ),
    )
    fatal(
        "create-topic-twice",
        "a topic is created that is there already",
        acts=(call(name="create-topic"), call(name="create-topic", error="TopicExistsException")),
    )
    fatal(
        "delete-group-unknown",
        "a group is deleted that is not there",
        acts=(call(name="delete-group", group="kfuzz-none", error="GroupIdNotFoundException"),),
    )
