"""Transactions whose requests fail, get lost, or are fenced, and what consumers see of them."""

from __future__ import annotations

from functools import partial
from typing import Any

from kfuzz.vectors.recipes.making.conversation import Act, act, asks, at_most, opens, phrased, trouble, values, writes
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.conversation_reading import CLOSE

find = partial(trouble, "FindCoordinator")
init = partial(trouble, "InitProducerId")
add = partial(trouble, "AddPartitionsToTxn")
send = partial(trouble, "Produce")
end = partial(trouble, "EndTxn")
add_offsets = partial(trouble, "AddOffsetsToTxn")
commit_offsets = partial(trouble, "TxnOffsetCommit")
TXN: dict[str, Any] = {"idempotent": True, "transactional_id": "kfuzz-txn"}
COMMITTED = opens(isolation="read_committed")
FENCED = "ProducerFenced"
ELSEWHERE = "NOT_COORDINATOR"


def seen(*offsets: int) -> tuple[Act, ...]:
    """A consumer of committed records gets these."""
    return COMMITTED, act("read", count=len(offsets), gives={"offsets": [str(at) for at in offsets]}), CLOSE


def with_offset(count: int, **gives: Any) -> Act:
    """Send each record in a transaction of its own, with an offset of the group."""
    return act("produce", records=values(count), sends=[1] * count, group="kfuzz-group", gives=gives, **TXN)


WHOLE = writes(3, **TXN), *seen(0, 1, 2)
# A marker follows each transaction.
GROUP = with_offset(2, sends=["accepted"] * 2), *seen(0, 2)


def theme() -> Theme:
    """The recipes of ``vectors/conversation/transactions.json``."""
    made = Theme("conversation/transactions", "Transactions that meet trouble, and what consumers see.", "conversation")
    _plain(made)
    _steps(made)
    _together(made)
    _fenced(made)
    _offsets(made)
    return made


def _plain(made: Theme) -> None:
    plain = partial(made.conversation, requirements=["TXN-FILTER-1"])
    plain("committed", "a transaction is committed, and read", written=values(3), acts=WHOLE)
    plain(
        "aborted",
        "a transaction is aborted, and nothing of it is read",
        written=values(5),
        acts=(writes(3, abort=True, **TXN), writes(2, first=3, **TXN), *seen(4, 5)),
    )
    plain(
        "aborted-and-read",
        "a consumer of all records gets those of an aborted transaction too",
        written=values(4),
        acts=(
            writes(2, abort=True, **TXN),
            writes(2, first=2, **TXN),
            opens(),
            act("read", count=4, gives={"offsets": ["0", "1", "3", "4"]}),
            CLOSE,
        ),
    )
    plain(
        "committed-aborted-committed",
        "an aborted transaction is between two committed ones",
        written=values(6),
        acts=(writes(2, **TXN), writes(2, first=2, abort=True, **TXN), writes(2, first=4, **TXN), *seen(0, 1, 6, 7)),
    )
    plain(
        "two-producers",
        "the transactions of two producers follow one another",
        written=values(4),
        acts=(
            writes(2, **TXN),
            writes(2, first=2, **TXN | {"transactional_id": "kfuzz-other"}, by=2),
            *seen(0, 1, 3, 4),
        ),
    )
    plain(
        "beside-plain-records",
        "records without a transaction are between transactions",
        written=values(4),
        acts=(
            writes(1, **TXN),
            writes(1, first=1),
            writes(1, first=2, abort=True, **TXN),
            writes(1, first=3),
            *seen(0, 2, 5),
        ),
    )
    plain(
        "moves",
        "another broker leads after a transaction, and another transaction follows",
        written=values(4),
        brokers=2,
        acts=(writes(2, **TXN), act("move", to=2), writes(2, first=2, **TXN), *seen(0, 1, 3, 4)),
    )


def _steps(made: Theme) -> None:
    """Each step of a transaction fails for a while, or gets lost, before or after the broker has done it."""
    for name, step, what in (
        ("find", find, "looks for its coordinator"),
        ("init", init, "asks for its id"),
        ("add", add, "adds its partition"),
        ("end", end, "commits"),
    ):
        api, coordinated = step.args[0], name != "find"
        again = [api]
        whole = partial(phrased, made.conversation, f"{name}-{{}}", f"{{}} when the producer {what}", acts=WHOLE)
        retried = whole(requirements=["TALK-RETRY-1"], written=values(3))
        loading = "COORDINATOR_LOAD_IN_PROGRESS" if coordinated else "COORDINATOR_NOT_AVAILABLE"
        retried("loading", "the coordinator is loading", step("1-2", loading), follows=again * 2)
        lost = whole(requirements=["TALK-LOST-1"], written=values(3), follows=again)
        lost("lost", "the connection is lost before the answer", step(1, "lost"))
        unsent = step(1, "lost", direction="request")
        lost("lost-request", "the connection is lost before the request arrives", unsent)
        lost("lost-often", "three connections are lost", step("1-3", "lost"), follows=again * 3)
        # A coordinator may be looked for as often as a library likes.
        no_more = [at_most(0, api)] if coordinated else ()
        lost("slow", "the answer takes 200 ms", step(delay_ms=200), follows=no_more)
        if not coordinated:
            continue
        elsewhere = step(1, ELSEWHERE)
        found = whole(requirements=["TALK-COORDINATOR-1"], written=values(3), follows=["FindCoordinator", *again])
        found("not-coordinator", "the coordinator is elsewhere", elsewhere)
        made.conversation(
            f"{name}-not-coordinator-then-lost",
            f"the coordinator is elsewhere when the producer {what}, and the search for it gets lost",
            elsewhere,
            find(2, "lost"),
            acts=WHOLE,
            requirements=["TALK-COORDINATOR-1"],
            written=values(3),
            follows=["FindCoordinator", "FindCoordinator", *again],
        )
        concurrent = step("1-3", "CONCURRENT_TRANSACTIONS")
        retried("concurrent", "the transaction before is not yet over", concurrent, follows=again * 3)
        failed = act("produce", records=values(3), error="TransactionalIdAuthorization", **TXN)
        whole(requirements=["TALK-FATAL-1"])(
            "forbidden",
            "the transactional id may not be used",
            step("1-1000", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
            acts=(failed, *(seen() if name != "end" else ())),
        )


def _together(made: Theme) -> None:
    """Trouble in two steps, or in the records of a transaction."""
    both = partial(made.conversation, acts=WHOLE, requirements=["TALK-TXN-1"], written=values(3))
    both(
        "send-not-leader",
        "the records of a transaction find no leader there",
        send(1, "NOT_LEADER_OR_FOLLOWER"),
        follows=["Produce", "EndTxn"],
    )
    both(
        "send-lost",
        "the answer to the records of a transaction is lost",
        send(1, "lost"),
        follows=["Produce", asks("EndTxn", committed=True)],
    )
    both(
        "send-and-end-lost",
        "the answers to the records and to the commit are lost",
        send(1, "lost"),
        end(1, "lost"),
        follows=["Produce", "EndTxn", "EndTxn"],
    )
    both(
        "add-and-send-lost",
        "the answers to the partition and to the records are lost",
        add(1, "lost"),
        send(1, "lost"),
        follows=["AddPartitionsToTxn", "Produce", "EndTxn"],
    )
    both(
        "all-lost-once",
        "the answer to each step is lost once",
        *[one(1, "lost") for one in (find, init, add, send, end)],
        follows=["FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"],
    )
    both(
        "all-slow",
        "the answer to each step takes 60 ms",
        *[one(delay_ms=60) for one in (find, init, add, send, end)],
        follows=["InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"],
    )
    both(
        "coordinator-moves",
        "another broker coordinates before the second transaction",
        brokers=2,
        acts=(writes(1, **TXN), act("move", key="kfuzz-txn", to=2), writes(2, first=1, **TXN), *seen(0, 2, 3)),
    )
    made.conversation(
        "send-refused",
        "the broker refuses the records of a transaction, so it is not committed",
        send("1-1000", "INVALID_RECORD"),
        requirements=["TALK-TXN-1"],
        follows=[at_most(0, "EndTxn", committed=True)],
        acts=(act("produce", records=values(2), error="", **TXN), *seen()),
    )
    aborts = writes(2, abort=True, **TXN), writes(1, first=2, **TXN), *seen(3)
    aborted = partial(made.conversation, acts=aborts, written=values(3))
    aborted(
        "abort-lost",
        "the answer to the abort is lost",
        end(1, "lost"),
        requirements=["TALK-LOST-1"],
        follows=[asks("EndTxn", committed=False), asks("EndTxn", committed=True)],
    )
    aborted(
        "abort-not-coordinator",
        "the coordinator is elsewhere when the producer aborts",
        end(1, ELSEWHERE),
        requirements=["TALK-COORDINATOR-1"],
        follows=["FindCoordinator", asks("EndTxn", committed=False)],
    )


def _fenced(made: Theme) -> None:
    no_commit = [at_most(0, "EndTxn", committed=True)]
    fenced = partial(made.conversation, requirements=["TALK-FENCE-1"], follows=no_commit)
    for name, step in (("init", init), ("add", add), ("end", end)):
        fenced(
            f"{name}-fenced",
            f"another producer has the transactional id when this one sends {step.args[0]}",
            step("1-1000", "PRODUCER_FENCED"),
            follows=no_commit if name != "end" else [at_most(1, "EndTxn")],
            acts=(act("produce", records=values(2), error=FENCED, **TXN),),
        )
    fenced(
        "send-fenced",
        "the records of a transaction have an old epoch",
        send("1-1000", "INVALID_PRODUCER_EPOCH"),
        acts=(act("produce", records=values(2), error="", **TXN), *seen()),
    )
    fenced(
        "end-in-wrong-state",
        "the coordinator knows no transaction when the producer commits",
        end("1-1000", "INVALID_TXN_STATE"),
        follows=[at_most(1, "EndTxn", committed=True)],
        acts=(act("produce", records=values(2), error="", **TXN),),
    )
    fenced(
        "fenced-then-new",
        "after a producer was fenced, a new one commits",
        add(1, "PRODUCER_FENCED"),
        follows=["InitProducerId", asks("EndTxn", committed=True)],
        acts=(act("produce", records=["v0"], error=FENCED, **TXN), writes(2, first=1, **TXN)),
    )


def _offsets(made: Theme) -> None:
    """Transactions that commit offsets of a group."""
    offsets = partial(made.conversation, acts=GROUP, requirements=["TALK-TXN-1"], written=values(2))
    offsets("offsets", "two transactions commit offsets of a group")
    for name, step in (("add-offsets", add_offsets), ("commit-offsets", commit_offsets)):
        api = step.args[0]
        again = [api, asks("EndTxn", committed=True)]
        for slug, what, rule, follows in (
            ("loading", f"the coordinator is loading at {api}", step("1-2", "COORDINATOR_LOAD_IN_PROGRESS"), [api] * 2),
            ("not-coordinator", f"the coordinator is elsewhere at {api}", step(1, ELSEWHERE), ["FindCoordinator", api]),
            ("lost", f"the answer to {api} is lost", step(1, "lost"), again),
            ("of-second-lost", f"the answer to {api} of the second transaction is lost", step(2, "lost"), again),
        ):
            offsets(f"{name}-{slug}", what, rule, follows=follows)
        made.conversation(
            f"{name}-forbidden",
            f"the group may not be used at {api}, so nothing is committed",
            step("1-1000", "GROUP_AUTHORIZATION_FAILED"),
            requirements=["TALK-FATAL-1"],
            follows=[at_most(0, "EndTxn", committed=True)],
            acts=(with_offset(2, outcome="any", sends=["rejected"] * 2),),
        )
    made.conversation(
        "commit-offsets-fenced",
        "the group has a new generation, so the transaction is not committed",
        commit_offsets("1-1000", "ILLEGAL_GENERATION"),
        requirements=["TALK-FENCE-1"],
        follows=[at_most(0, "EndTxn", committed=True)],
        acts=(with_offset(1, outcome="any", sends=["rejected"]),),
    )
