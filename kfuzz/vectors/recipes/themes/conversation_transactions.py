"""Transactions whose requests fail, get lost, or are fenced, and what consumers see of them."""

from __future__ import annotations

from functools import partial
from typing import Any

from kfuzz.vectors.recipes.making.conversation import Act, act, asks, at_most, opens, trouble, values, writes
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.conversation_reading import CLOSE

__all__ = ["theme"]

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


def seen(*offsets: int) -> tuple[Act, ...]:
    """A consumer of committed records gets these."""
    return COMMITTED, act("read", count=len(offsets), gives={"offsets": [str(at) for at in offsets]}), CLOSE


WHOLE = writes(3, **TXN), *seen(0, 1, 2)
EACH = act("produce", records=values(2), sends=[1, 1], group="kfuzz-group", gives={"sends": ["accepted"] * 2}, **TXN)
# A marker follows each transaction.
GROUP = EACH, *seen(0, 2)


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
    plain("committed", "a transaction is committed, and read", *WHOLE, written=values(3))
    plain(
        "aborted",
        "a transaction is aborted, and nothing of it is read",
        writes(3, abort=True, **TXN),
        writes(2, first=3, **TXN),
        *seen(4, 5),
        written=values(5),
    )
    plain(
        "aborted-and-read",
        "a consumer of all records gets those of an aborted transaction too",
        writes(2, abort=True, **TXN),
        writes(2, first=2, **TXN),
        opens(),
        act("read", count=4, gives={"offsets": ["0", "1", "3", "4"]}),
        CLOSE,
        written=values(4),
    )
    plain(
        "committed-aborted-committed",
        "an aborted transaction is between two committed ones",
        writes(2, **TXN),
        writes(2, first=2, abort=True, **TXN),
        writes(2, first=4, **TXN),
        *seen(0, 1, 6, 7),
        written=values(6),
    )
    plain(
        "two-producers",
        "the transactions of two producers follow one another",
        writes(2, **TXN),
        writes(2, first=2, **TXN | {"transactional_id": "kfuzz-other"}, by=2),
        *seen(0, 1, 3, 4),
        written=values(4),
    )
    plain(
        "beside-plain-records",
        "records without a transaction are between transactions",
        writes(1, **TXN),
        writes(1, first=1),
        writes(1, first=2, abort=True, **TXN),
        writes(1, first=3),
        *seen(0, 2, 5),
        written=values(4),
    )
    plain(
        "moves",
        "another broker leads after a transaction, and another transaction follows",
        writes(2, **TXN),
        act("move", to=2),
        writes(2, first=2, **TXN),
        *seen(0, 1, 3, 4),
        written=values(4),
        brokers=2,
    )


def _steps(made: Theme) -> None:
    """Each step of a transaction fails for a while, or gets lost, before or after the broker has done it."""
    for name, step, coordinated in (
        ("find", find, False),
        ("init", init, True),
        ("add", add, True),
        ("end", end, True),
    ):
        api = step.args[0]
        again = [asks(api)]
        what = {
            "find": "looks for its coordinator",
            "init": "asks for its id",
            "add": "adds its partition",
            "end": "commits",
        }[name]
        retried = partial(made.conversation, requirements=["TALK-RETRY-1"], written=values(3))
        retried(
            f"{name}-loading",
            f"the coordinator is loading when the producer {what}",
            *WHOLE,
            rules=[step("1-2", error="COORDINATOR_LOAD_IN_PROGRESS" if coordinated else "COORDINATOR_NOT_AVAILABLE")],
            follows=again * 2,
        )
        lost = partial(made.conversation, requirements=["TALK-LOST-1"], written=values(3))
        lost(
            f"{name}-lost",
            f"the connection is lost before the answer when the producer {what}",
            *WHOLE,
            rules=[step(disconnect="before")],
            follows=again,
        )
        lost(
            f"{name}-lost-request",
            f"the connection is lost before the request arrives when the producer {what}",
            *WHOLE,
            rules=[step(disconnect="before", direction="request")],
            follows=again,
        )
        lost(
            f"{name}-lost-often",
            f"three connections are lost when the producer {what}",
            *WHOLE,
            rules=[step("1-3", disconnect="before")],
            follows=again * 3,
        )
        lost(
            f"{name}-slow",
            f"the answer takes 200 ms when the producer {what}",
            *WHOLE,
            rules=[step(delay_ms=200)],
            follows=[at_most(1 if name == "find" else 0, api)],
        )
        if not coordinated:
            continue
        found = partial(made.conversation, requirements=["TALK-COORDINATOR-1"], written=values(3))
        found(
            f"{name}-not-coordinator",
            f"the coordinator is elsewhere when the producer {what}",
            *WHOLE,
            rules=[step(error="NOT_COORDINATOR")],
            follows=[asks("FindCoordinator"), *again],
        )
        found(
            f"{name}-not-coordinator-then-lost",
            f"the coordinator is elsewhere when the producer {what}, and the search for it gets lost",
            *WHOLE,
            rules=[step(error="NOT_COORDINATOR"), find(2, disconnect="before")],
            follows=[asks("FindCoordinator"), asks("FindCoordinator"), *again],
        )
        retried(
            f"{name}-concurrent",
            f"the transaction before is not yet over when the producer {what}",
            *WHOLE,
            rules=[step("1-3", error="CONCURRENT_TRANSACTIONS")],
            follows=again * 3,
        )
        made.conversation(
            f"{name}-forbidden",
            f"the transactional id may not be used when the producer {what}",
            act("produce", records=values(3), error="TransactionalIdAuthorization", **TXN),
            *(seen() if name != "end" else ()),
            requirements=["TALK-FATAL-1"],
            rules=[step("1-1000", error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED")],
        )


def _together(made: Theme) -> None:
    """Trouble in two steps, or in the records of a transaction."""
    both = partial(made.conversation, requirements=["TALK-TXN-1"], written=values(3))
    both(
        "send-not-leader",
        "the records of a transaction find no leader there",
        *WHOLE,
        rules=[send(error="NOT_LEADER_OR_FOLLOWER")],
        follows=[asks("Metadata"), asks("Produce"), asks("EndTxn")],
    )
    both(
        "send-lost",
        "the answer to the records of a transaction is lost",
        *WHOLE,
        rules=[send(disconnect="before")],
        follows=[asks("Produce"), asks("EndTxn", committed=True)],
    )
    both(
        "send-and-end-lost",
        "the answers to the records and to the commit are lost",
        *WHOLE,
        rules=[send(disconnect="before"), end(disconnect="before")],
        follows=[asks("Produce"), asks("EndTxn"), asks("EndTxn")],
    )
    both(
        "add-and-send-lost",
        "the answers to the partition and to the records are lost",
        *WHOLE,
        rules=[add(disconnect="before"), send(disconnect="before")],
        follows=[asks("AddPartitionsToTxn"), asks("Produce"), asks("EndTxn")],
    )
    both(
        "all-lost-once",
        "the answer to each step is lost once",
        *WHOLE,
        rules=[one(disconnect="before") for one in (find, init, add, send, end)],
        follows=[asks(one) for one in ("FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn")],
    )
    both(
        "all-slow",
        "the answer to each step takes 60 ms",
        *WHOLE,
        rules=[one(delay_ms=60) for one in (find, init, add, send, end)],
        follows=[asks(one) for one in ("InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn")],
    )
    both(
        "coordinator-moves",
        "another broker coordinates before the second transaction",
        writes(1, **TXN),
        act("move", key="kfuzz-txn", to=2),
        writes(2, first=1, **TXN),
        *seen(0, 2, 3),
        brokers=2,
    )
    made.conversation(
        "send-refused",
        "the broker refuses the records of a transaction, so it is not committed",
        act("produce", records=values(2), error="", **TXN),
        *seen(),
        requirements=["TALK-TXN-1"],
        rules=[send("1-1000", error="INVALID_RECORD")],
        follows=[at_most(0, "EndTxn", committed=True)],
    )
    made.conversation(
        "abort-lost",
        "the answer to the abort is lost",
        writes(2, abort=True, **TXN),
        writes(1, first=2, **TXN),
        *seen(3),
        requirements=["TALK-LOST-1"],
        rules=[end(disconnect="before")],
        written=values(3),
        follows=[asks("EndTxn", committed=False), asks("EndTxn", committed=True)],
    )
    made.conversation(
        "abort-not-coordinator",
        "the coordinator is elsewhere when the producer aborts",
        writes(2, abort=True, **TXN),
        writes(1, first=2, **TXN),
        *seen(3),
        requirements=["TALK-COORDINATOR-1"],
        rules=[end(error="NOT_COORDINATOR")],
        written=values(3),
        follows=[asks("FindCoordinator"), asks("EndTxn", committed=False)],
    )


def _fenced(made: Theme) -> None:
    fenced = partial(made.conversation, requirements=["TALK-FENCE-1"])
    no_commit = [at_most(0, "EndTxn", committed=True)]
    for name, step in (("init", init), ("add", add), ("end", end)):
        fenced(
            f"{name}-fenced",
            f"another producer has the transactional id when this one sends {step.args[0]}",
            act("produce", records=values(2), error=FENCED, **TXN),
            requirements=["TALK-FENCE-1"],
            rules=[step("1-1000", error="PRODUCER_FENCED")],
            follows=no_commit if name != "end" else [at_most(1, "EndTxn")],
        )
    fenced(
        "send-fenced",
        "the records of a transaction have an old epoch",
        act("produce", records=values(2), error="", **TXN),
        *seen(),
        rules=[send("1-1000", error="INVALID_PRODUCER_EPOCH")],
        follows=no_commit,
    )
    fenced(
        "end-in-wrong-state",
        "the coordinator knows no transaction when the producer commits",
        act("produce", records=values(2), error="", **TXN),
        rules=[end("1-1000", error="INVALID_TXN_STATE")],
        follows=[at_most(1, "EndTxn", committed=True)],
    )
    fenced(
        "fenced-then-new",
        "after a producer was fenced, a new one commits",
        act("produce", records=["v0"], error=FENCED, **TXN),
        writes(2, first=1, **TXN),
        rules=[add(error="PRODUCER_FENCED")],
        follows=[asks("InitProducerId"), asks("EndTxn", committed=True)],
    )


def _offsets(made: Theme) -> None:
    """Transactions that commit offsets of a group."""
    offsets = partial(made.conversation, requirements=["TALK-TXN-1"], written=values(2))
    offsets("offsets", "two transactions commit offsets of a group", *GROUP)
    for name, step, errors in (
        ("add-offsets", add_offsets, ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")),
        ("commit-offsets", commit_offsets, ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")),
    ):
        api = step.args[0]
        offsets(
            f"{name}-loading",
            f"the coordinator is loading at {api}",
            *GROUP,
            rules=[step("1-2", error=errors[0])],
            follows=[asks(api)] * 2,
        )
        offsets(
            f"{name}-not-coordinator",
            f"the coordinator is elsewhere at {api}",
            *GROUP,
            rules=[step(error=errors[1])],
            follows=[asks("FindCoordinator"), asks(api)],
        )
        offsets(
            f"{name}-lost",
            f"the answer to {api} is lost",
            *GROUP,
            rules=[step(disconnect="before")],
            follows=[asks(api), asks("EndTxn", committed=True)],
        )
        offsets(
            f"{name}-of-second-lost",
            f"the answer to {api} of the second transaction is lost",
            *GROUP,
            rules=[step(2, disconnect="before")],
            follows=[asks(api), asks("EndTxn", committed=True)],
        )
        made.conversation(
            f"{name}-forbidden",
            f"the group may not be used at {api}, so nothing is committed",
            act(
                "produce",
                records=["v0", "v1"],
                sends=[1, 1],
                group="kfuzz-group",
                gives={"outcome": "any", "sends": ["rejected"] * 2},
                **TXN,
            ),
            requirements=["TALK-FATAL-1"],
            rules=[step("1-1000", error="GROUP_AUTHORIZATION_FAILED")],
            follows=[at_most(0, "EndTxn", committed=True)],
        )
    made.conversation(
        "commit-offsets-fenced",
        "the group has a new generation, so the transaction is not committed",
        act(
            "produce",
            records=["v0"],
            sends=[1],
            group="kfuzz-group",
            gives={"outcome": "any", "sends": ["rejected"]},
            **TXN,
        ),
        requirements=["TALK-FENCE-1"],
        rules=[commit_offsets("1-1000", error="ILLEGAL_GENERATION")],
        follows=[at_most(0, "EndTxn", committed=True)],
    )
