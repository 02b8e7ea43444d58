"""Producers whose broker throttles them, offers old versions beside new ones, or ends."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.sent import of_records
from kfuzz.vectors.recipes.theme import Theme

LOST = ["NETWORK_EXCEPTION"]


def theme() -> Theme:
    """The recipes of ``vectors/produce/brokers.json``."""
    made = Theme(
        "produce/brokers", "Brokers that throttle a producer, offer old versions beside new ones, or end.", "produce"
    )
    made.produce(
        "throttled",
        "the broker takes the records, and throttles the producer by 1 ms",
        of_records(20),
        requirements=["RB-COUNT-2"],
        broker={"throttle_ms": 1},
    )
    # No release of Kafka is like this, but other brokers are.
    made.produce(
        "metadata-without-topic-ids",
        "the broker offers Metadata up to version 9, which has no topic ids, and all versions of Produce",
        of_records(19),
        requirements=["RB-COUNT-2"],
        level="recommended",
        broker={"versions": {"Metadata": 9}},
    )
    ends = made.having(level="recommended", broker={"ends": True})
    ends.produce(
        "leader-ends",
        "the leader ends after it has got the records, and another broker leads",
        of_records(18),
        requirements=["MSG-ERRORS-1"],
        errors=LOST,
    )
    ends.produce(
        "coordinator-ends",
        "in a transaction, the broker that leads and coordinates ends after it has got the records",
        of_records(17),
        requirements=["RB-PRODUCER-1", "TXN-BATCH-1"],
        idempotent=True,
        transactional_id="kfuzz-coordinator-ends",
        errors=LOST,
    )
    ends.produce(
        "group-coordinator-ends",
        "two transactions commit offsets of a group; in the second one, the broker that leads and coordinates all ends",
        of_records(2),
        requirements=["RB-PRODUCER-1", "TXN-BATCH-1"],
        idempotent=True,
        transactional_id="kfuzz-group-coordinator-ends",
        group="kfuzz-group",
        sends=[1, 1],
        errors=["NONE", *LOST],
    )
    # While a batch is sent again, the records after it wait for its answer. A producer may then ask the same broker for
    # the leader, or another one. So there are several brokers, and several batches are lost.
    made.produce(
        "lost-then-slow",
        "of three answers, the broker loses one with its connection, and takes 100 ms for each of the others",
        of_records(12),
        requirements=["MSG-ERRORS-1"],
        level="recommended",
        sends=[2] * 6,
        errors=[*LOST, "NONE", "NONE"] * 6,
        broker={"produce_ms": 100, "brokers": 5},
    )
    return made
