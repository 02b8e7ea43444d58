"""Producers whose requests fail, get lost, come late, or must go to another broker."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kfuzz.vectors.recipes.making.conversation import (
    Act,
    act,
    asks,
    at_most,
    opens,
    phrased,
    reads,
    trouble,
    values,
    writes,
)
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.conversation_reading import CLOSE

send = partial(trouble, "Produce")
metadata = partial(trouble, "Metadata")
init = partial(trouble, "InitProducerId")
# A retry writes records twice where the broker cannot know them; with an idempotent producer it does not.
PLAIN: dict[str, Any] = {"idempotent": False}
IDEMPOTENT: dict[str, Any] = {"idempotent": True}
NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"


def theme() -> Theme:
    """The recipes of ``vectors/conversation/writing.json``."""
    made = Theme("conversation/writing", "Producers whose requests fail, get lost, or come late.", "conversation")
    for name, how in (("plain", PLAIN), ("idempotent", IDEMPOTENT)):
        _both(made, name, how)
    _idempotent(made)
    _several(made)
    _refused(made)
    return made


def _both(made: Theme, name: str, how: dict[str, Any]) -> None:
    """Trouble of any producer."""
    once = name == "idempotent"
    whole = writes(6, **how), opens(), reads(5), CLOSE
    # After an error of the leader, a producer may ask the same broker again before metadata is due. Where another
    # broker leads, the records arrive only if it has looked.
    again = ["Produce"]
    acked = opens(), reads(5), CLOSE
    # Records that a broker has written before it gave an error are there twice, unless the producer is idempotent.
    unsure = writes(6, **how), *(acked if once else ())
    certain: dict[str, Any] = {"acts": whole, "repeats": False}
    usual: dict[str, Any] = {"acts": unsure, "written": values(6), "repeats": not once}
    both = partial(phrased, made.conversation, f"{name}-{{}}", f"{name}: {{}}")
    made.conversation(
        name,
        f"a producer ({name}) writes, and a consumer reads what it has written",
        requirements=["TALK-RETRY-1"],
        **usual | certain,
    )
    retried = both(**usual, requirements=["TALK-RETRY-1"])
    retried("not-leader", "the first request finds no leader there", send(1, NOT_LEADER), follows=again)
    retried(
        "not-leader-often",
        "four requests find no leader there",
        send("1-4", NOT_LEADER),
        follows=again * 3,
        # Some libraries try four times at most.
        level="recommended",
    )
    retried(
        "too-few-replicas",
        "there are too few replicas for three requests",
        send("1-3", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
        follows=again * 3,
    )
    retried("slow", "the answer takes 300 ms", send(delay_ms=300), **certain)
    lost = both(**usual, requirements=["TALK-LOST-1"], follows=again)
    before = send(1, "lost", direction="request")
    lost("lost-before", "the connection is lost before the broker gets the records", before, **certain)
    lost("lost-ack", "the records are written, and the connection is lost before the answer", send(1, "lost"))
    lost("lost-ack-twice", "the answers to two requests are lost", send("1-2", "lost"))
    lost("cut-ack", "the answer ends in the middle, and the connection is closed", send(cut=20))
    cut = send(cut=40, direction="request")
    lost("cut-request", "the request ends in the middle, and the connection is closed", cut, **certain)
    lost(
        "silent",
        "the answer never comes, and the connection stays open",
        send(drop=True),
        # A library may give its user an error when the time of a request is over.
        level="recommended",
        acts=(writes(6, request_timeout_ms=800, **how), *(acked if once else ())),
    )
    both(requirements=["TALK-THROTTLE-1"])(
        "throttled",
        "the answer throttles the producer for 200 ms before its next send",
        send(throttle_ms=200),
        written=values(2),
        follows=[asks("Produce", after_ms=190)],
        acts=(_each(2, **how),),
    )
    leader = both(requirements=["TALK-LEADER-1"], written=values(4), brokers=2)
    leader(
        "moves",
        "another broker leads before the second producer writes",
        acts=(writes(2, **how), act("move", to=2), writes(2, first=2, **how), opens(), reads(3), CLOSE),
    )
    leader(
        "leader-of-yesterday",
        "metadata names a broker that does not lead",
        metadata("1-2", set={"topics[0].partitions[0].leaderId": 2}),
        follows=["Metadata", *again],
        acts=(writes(4, **how), opens(), reads(3), CLOSE),
    )


def _each(count: int, **how: Any) -> Act:
    """Send each record when the one before is acknowledged."""
    done, gives = writes(count, sends=[1] * count, **how)
    return done, gives | {"sends": ["accepted"] * count}


def _idempotent(made: Theme) -> None:
    whole = writes(4, **IDEMPOTENT), opens(), reads(3), CLOSE
    again = ["InitProducerId", "Produce"]
    begun = partial(made.conversation, acts=whole, requirements=["TALK-RETRY-1"], written=values(4), follows=again)
    loading = init("1-2", "COORDINATOR_LOAD_IN_PROGRESS")
    begun("id-loading", "the coordinator is still loading when the producer asks for its id", loading)
    begun("id-lost", "the connection is lost before the producer gets its id", init(1, "lost"))
    begun("id-lost-often", "the producer's id is lost three times", init("1-3", "lost"))
    begun("id-slow", "the producer's id takes 300 ms", init(delay_ms=300), follows=["Produce"])
    begun(
        "duplicate", "the broker has the batch already, and says so", send(1, "DUPLICATE_SEQUENCE_NUMBER"), follows=()
    )
    for slug, what, then, follows in (
        ("then-not-leader", "then the leader is elsewhere", send(1, NOT_LEADER), ["Produce", "Produce"]),
        ("and-metadata-lost", "so is the next metadata", metadata(3, "lost"), ["Produce"]),
        ("then-slow", "the next one takes 200 ms", send(delay_ms=200), ["Produce"]),
    ):
        begun(f"lost-ack-{slug}", f"the answer is lost, and {what}", send(1, "lost"), then, follows=follows)
    made.conversation(
        "id-forbidden",
        "the producer gets no id",
        init("1-1000", "CLUSTER_AUTHORIZATION_FAILED"),
        requirements=["TALK-FATAL-1"],
        written=(),
        follows=[at_most(0, "Produce")],
        acts=(act("produce", records=values(2), error="Authorization", **IDEMPOTENT),),
    )


def _several(made: Theme) -> None:
    """Several sends of one producer: the others must not suffer."""
    gets = opens(), reads(3), CLOSE
    four = _each(4, **IDEMPOTENT), *gets
    at_once = writes(4, sends=[1] * 4, at_once=True, **IDEMPOTENT), *gets
    sends = partial(made.conversation, acts=four, requirements=["TALK-RETRY-1"], written=values(4), follows=["Produce"])
    for slug, what, rule, times in (
        ("third-not-leader", "of four sends, the third finds no leader there", send(3, NOT_LEADER), 2),
        ("each-lost", "the first answer to each of four sends is lost", send("every 2", "lost"), 4),
        ("slow", "the answer to each of four sends takes 50 ms", send("1-4", delay_ms=50), 3),
    ):
        sends(f"sends-{slug}", what, rule, follows=["Produce"] * times)
    first = phrased(sends, "at-once-first-{}", "of four sends at once, the first {}", acts=at_once)
    first("lost", "answer is lost", send(1, "lost"))
    first("not-leader", "finds no leader there", send(1, NOT_LEADER))
    sends(
        "two-producers",
        "two producers write in turns, and an answer to each is lost",
        send("every 2", "lost", times=2),
        acts=(writes(2, **IDEMPOTENT), writes(2, first=2, by=2, **IDEMPOTENT), *gets),
    )


def _failing(count: int, failed: Sequence[int], **how: Any) -> Act:
    done, gives = writes(count, sends=[1] * count, **how)
    said = ["rejected" if number in failed else "accepted" for number in range(count)]
    return done, gives | {"sends": said}


def _refused(made: Theme) -> None:
    refused = partial(made.conversation, requirements=["TALK-FATAL-1"], follows=["Produce"])
    at_once = partial(refused, follows=[at_most(0, "Produce")])
    for slug, what, error, name in (
        ("forbidden", "the topic may not be written to", "TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"),
        ("too-large", "the record is too large", "MESSAGE_TOO_LARGE", "RecordTooLargeException"),
        ("invalid", "the broker refuses the record", "INVALID_RECORD", "InvalidRecordException"),
    ):
        at_once(slug, what, send("1-1000", error), acts=(act("produce", records=["v0"], error=name),))
    at_once(
        "forbidden-topic",
        "the topic may not be described",
        metadata("1-1000", "TOPIC_AUTHORIZATION_FAILED"),
        written=(),
        acts=(act("produce", records=["v0"], error="Authorization"),),
    )
    # The broker has written what it says it refuses, which only a proxy sees.
    answer = send(2, error="INVALID_RECORD")
    failing = [_failing(3, [1], **PLAIN)]
    refused("second-invalid", "of three sends, the broker refuses the second", answer, acts=failing)
    refused(
        "second-invalid-idempotent",
        "of three sends of an idempotent producer, the broker refuses the second",
        answer,
        # Here the broker has the records. A producer that gives their sequence to others gets an error.
        level="recommended",
        acts=(_failing(3, [1], **IDEMPOTENT),),
    )
    large = send(2, "MESSAGE_TOO_LARGE")
    refused("second-too-large", "of three sends, the second is too large", large, acts=failing)
    refused(
        "out-of-order",
        "the broker says that sequences are missing, for ever",
        send("1-1000", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        acts=(act("produce", records=["v0"], gives={"outcome": "any"}, **IDEMPOTENT),),
        follows=(),
    )
