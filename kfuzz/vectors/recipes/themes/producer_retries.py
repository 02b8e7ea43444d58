"""Producers whose broker answers with errors first, and producers that are idempotent or transactional."""

from __future__ import annotations

from typing import Any

from kfuzz.vectors.recipes.making.builder import Record
from kfuzz.vectors.recipes.making.sent import LARGE, batch_of, of_records
from kfuzz.vectors.recipes.theme import Theme

# The errors of a Produce response after which a producer sends the batch again.
RETRIABLE = (
    "CORRUPT_MESSAGE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT",
    "NETWORK_EXCEPTION",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "KAFKA_STORAGE_ERROR",
)
# Errors for the program: no repetition helps.
LASTING = (
    "MESSAGE_TOO_LARGE",
    "TOPIC_AUTHORIZATION_FAILED",
    "INVALID_RECORD",
    "INVALID_REQUIRED_ACKS",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "UNKNOWN_SERVER_ERROR",
)
# Producers whose sequences have no gap.
IN_ORDER: dict[str, Any] = {"requirements": ["RB-SEQUENCE-1", "SEQ-ORDER-1"], "idempotent": True}
THREE = [Record(value=b"1"), Record(value=b"2"), Record(value=b"3")]


def theme() -> Theme:
    """The recipes of ``vectors/produce/retries.json``."""
    made = Theme("produce/retries", "Errors in a broker's answers, idempotent producers, and transactions.", "produce")
    _errors(made.having(requirements=["MSG-ERRORS-1"]))
    _idempotent(made.having(requirements=["RB-PRODUCER-1", "RB-SEQUENCE-1"], idempotent=True))
    _transactional(made.having(requirements=["RB-PRODUCER-1", "TXN-BATCH-1"]))
    _sends(made)
    _topics(made)
    _offsets(made)
    return made


def _slug(error: str) -> str:
    return error.lower().replace("_", "-")


def _errors(made: Theme) -> None:
    # The documents do not say when a producer must try again, so that is only recommended. It must not lose or repeat
    # records in any case.
    for error in RETRIABLE:
        made.produce(
            _slug(error),
            f"the broker answers once with {error}, and then takes the records",
            batch_of(THREE),
            level="recommended",
            errors=[error],
        )
    for error in LASTING:
        made.produce(
            f"lasting-{_slug(error)}",
            f"the broker answers once with {error}, which no repetition mends",
            batch_of(THREE),
            errors=[error],
            may_refuse=True,
        )
    several = ["NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "REQUEST_TIMED_OUT"]
    made.produce(
        "several-errors",
        "the broker answers with three different errors, and then takes the records",
        batch_of(THREE),
        level="recommended",
        errors=several,
    )
    made.produce(
        "error-and-many-records",
        "the broker answers once with NOT_LEADER_OR_FOLLOWER, and there are 1,000 records",
        LARGE["sent-1000"](),
        requirements=["MSG-ERRORS-1", "RB-COUNT-2"],
        level="recommended",
        errors=several[:1],
        bomb="sent-1000",
    )


def _idempotent(made: Theme) -> None:
    made.produce("idempotent", "one record", batch_of([Record()]))
    made.produce(
        "idempotent-100", "100 records, in as many batches as the producer likes", of_records(100), also=["SEQ-ORDER-1"]
    )
    for codec in ("gzip", "zstd"):
        made.produce(
            f"idempotent-{codec}", f"100 records with {codec}", of_records(100), also=["RB-CODEC-2"], compression=codec
        )
    for error in ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS"):
        made.produce(
            f"idempotent-{_slug(error)}",
            f"after {error}, the batch comes again with the same sequence",
            of_records(20),
            also=["SEQ-ORDER-1"],
            level="recommended",
            errors=[error],
        )
    made.produce(
        "idempotent-two-errors",
        "after two errors in a row, the batch comes again with the same sequence",
        of_records(21),
        also=["SEQ-ORDER-1"],
        level="recommended",
        errors=["NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER"],
    )


def _transactional(made: Theme) -> None:
    # Each vector has an id of its own, so that no transaction of an earlier one matters.

    def transaction(slug: str, *given: Any, **options: Any) -> None:
        made.produce(slug, *given, idempotent=True, transactional_id=f"kfuzz-{slug}", **options)

    transaction("transaction", "a transaction of one record", batch_of([Record()]))
    transaction("transaction-100", "a transaction of 100 records", of_records(100), also=["SEQ-ORDER-1"])
    transaction("transaction-lz4", "a transaction with lz4", of_records(99), also=["RB-CODEC-2"], compression="lz4")
    transaction(
        "transaction-not-leader-or-follower",
        "in a transaction, the broker answers once with NOT_LEADER_OR_FOLLOWER",
        of_records(22),
        also=["SEQ-ORDER-1"],
        level="recommended",
        errors=["NOT_LEADER_OR_FOLLOWER"],
    )


def _sends(made: Theme) -> None:
    # A record that the broker refuses must not stop later sends. Kafka's producer reports that its batch has failed,
    # and takes the next records. If it is idempotent, it begins a new epoch, so no sequence is missing. An idempotent
    # producer may also refuse later records, because Kafka's documentation recommends to close it then.
    once: dict[str, Any] = {"sends": [1, 1, 2], "errors": ["NONE", "INVALID_RECORD"]}
    four = of_records(4)
    made.produce(
        "after-a-failure",
        "the broker refuses the second of three sends, and takes the third",
        four,
        requirements=["MSG-ERRORS-1"],
        **once,
    )
    made.produce(
        "idempotent-after-a-failure",
        "after the second of three sends has failed, the third has the right sequence",
        four,
        **IN_ORDER,
        may_refuse=True,
        **once,
    )
    made.produce(
        "idempotent-after-an-unknown-error",
        "the second of three sends fails, but its records are in the log; the third has other sequences",
        four,
        **IN_ORDER,
        may_refuse=True,
        sends=[1, 1, 2],
        errors=["NONE", "UNKNOWN_SERVER_ERROR"],
    )
    made.produce(
        "idempotent-at-once",
        "three sends at the same time have sequences that do not overlap",
        of_records(6),
        **IN_ORDER,
        sends=[1, 2, 3],
        at_once=True,
    )


def _topics(made: Theme) -> None:
    # A producer that asks for all of its topics at once must not ask for one that it has lost again and again.
    denied = "TOPIC_AUTHORIZATION_FAILED"
    made.produce(
        "after-another-topic-denied",
        "the producer may not write to the topic of the first send; the second one is to another topic",
        of_records(3),
        requirements=["MSG-ERRORS-1"],
        sends=[1, 2],
        topic_errors=[denied, "NONE"],
    )
    made.produce(
        "after-another-topic-invalid",
        "the topic of the first send is not a valid one; the second send is to another topic",
        of_records(4),
        requirements=["MSG-ERRORS-1"],
        sends=[2, 2],
        topic_errors=["INVALID_TOPIC_EXCEPTION", "NONE"],
    )
    made.produce(
        "idempotent-between-another-topic-denied",
        "two sends to one topic have sequences without a gap, although one to another topic has failed between them",
        of_records(4),
        **IN_ORDER,
        sends=[1, 1, 2],
        topic_errors=["NONE", denied, "NONE"],
    )


def _offsets(made: Theme) -> None:
    # A broker that knows a repeated batch only by its sequence gives no offset. Kafka's producer reports -1 for each
    # record then.
    repeated: dict[str, Any] = {
        "level": "recommended",
        "errors": ["REQUEST_TIMED_OUT", "DUPLICATE_SEQUENCE_NUMBER"],
        **IN_ORDER,
    }
    made.produce(
        "idempotent-duplicate-without-offset",
        "a batch that comes again is a duplicate, for which the broker gives no offset",
        of_records(23),
        **repeated,
    )
    made.produce(
        "idempotent-offsets-after-a-duplicate",
        "the broker gives no offset for the first of two sends, and one for the second",
        of_records(5),
        sends=[3, 2],
        **repeated,
    )
    made.produce(
        "offsets-of-sends",
        "three sends, whose records have the offsets 0 to 5",
        of_records(6),
        requirements=["RB-OFFSET-7"],
        sends=[3, 1, 2],
    )
