"""Transactions and their markers, as the appending broker sees them."""

from __future__ import annotations

import struct
from typing import Any

from kfuzz.vectors.recipes.making.builder import Raw, batch
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.stream import (
    ABORT,
    COMMIT,
    EPOCH,
    OTHER,
    PRODUCER,
    Appends,
    Stream,
    data,
    marker,
    plain,
)

BATCHES, MARKER, STABLE = ["TXN-BATCH-1"], ["TXN-MARKER-1"], ["TXN-STABLE-1"]


def theme() -> Theme:
    """The recipes of ``vectors/stream/transaction.json``."""
    made = Stream("stream/transaction", "Open and ended transactions of a partition, and the last stable offset.")
    _ends(made)
    _stable(made.having(requirements=STABLE))
    _mixed(made)
    _coordinators(made.having(requirements=MARKER))
    _odd_markers(made.having(requirements=MARKER))
    _bad_markers(made)
    return made


def _txn(base_sequence: int, count: int = 2, **fields: Any) -> Raw:
    return data(base_sequence, count, transactional=True, **fields)


def _open() -> Appends:
    return Appends().accept(_txn(0), begins=True)


def _ends(made: Stream) -> None:
    made.stream(
        "open",
        "an open transaction keeps the last stable offset at its first offset",
        *_open().accept(_txn(2)),
        requirements=[*BATCHES, *STABLE],
    )
    for slug, kind in (("commit", COMMIT), ("abort", ABORT)):
        made.stream(
            f"{slug}",
            f"a transaction of two batches, then its {slug} marker; everything is stable after it",
            *_open().accept(_txn(2)).accept(marker(kind), ends=True),
            requirements=[*BATCHES, *MARKER, *STABLE],
        )
        made.stream(
            f"{slug}-then-another",
            f"after the {slug} marker, the producer's next transaction is open from its own first offset",
            *_open().accept(marker(kind), ends=True).accept(_txn(2), begins=True),
            requirements=[*BATCHES, *STABLE],
        )
    made.stream(
        "duplicate-inside",
        "a batch of an open transaction is sent again",
        *_open().drop(_txn(0), at=0).accept(marker(COMMIT), ends=True),
        requirements=["SEQ-DUPLICATE-1", *STABLE],
    )
    made.stream(
        "duplicate-after-the-end",
        "a batch of a committed transaction is sent again and opens no new transaction",
        *_open().accept(marker(COMMIT), ends=True).drop(_txn(0), at=0),
        requirements=["SEQ-DUPLICATE-1", *STABLE],
    )
    made.stream(
        "gap-inside",
        "a batch is missing inside a transaction",
        *_open().refuse(_txn(5), "sequence-gap").accept(marker(ABORT), ends=True),
        requirements=["SEQ-ORDER-1"],
    )


def _stable(made: Stream) -> None:
    other = _txn(0, producer_id=OTHER)
    made.stream(
        "older-ends-first",
        "the older of two open transactions ends: the last stable offset moves to the first offset of the younger",
        *_open().accept(other, begins=True).accept(marker(COMMIT), ends=True),
    )
    made.stream(
        "younger-ends-first",
        "the younger of two open transactions ends: the last stable offset stays at the first offset of the older",
        *_open()
        .accept(other, begins=True)
        .accept(marker(COMMIT, producer_id=OTHER), ends=True)
        .accept(marker(COMMIT), ends=True),
    )
    made.stream(
        "others-behind-open",
        "batches of others after an open transaction are not stable before it ends",
        *_open().accept(plain(4)).accept(data(0, producer_id=OTHER)).accept(marker(ABORT), ends=True),
    )
    made.stream(
        "refused-opens-nothing",
        "a refused batch does not open a transaction",
        *Appends().accept(data(0)).refuse(_txn(7), "sequence-gap").accept(plain()),
        requirements=[*STABLE, "SEQ-ORDER-1"],
    )
    made.stream(
        "marker-of-other-producer",
        "another producer's marker leaves the transaction open",
        *_open().accept(marker(COMMIT, producer_id=OTHER), verdict="acceptable"),
        requirements=[*MARKER, *STABLE],
    )


def _mixed(made: Stream) -> None:
    made.stream(
        "plain-batch-inside",
        "a producer with an open transaction sends a batch that is not transactional; the documents are silent",
        *_open().refuse(data(2), "transaction-not-ended", verdict="acceptable"),
        requirements=BATCHES,
    )
    made.stream(
        "plain-batch-after-the-end",
        "a producer sends a batch that is not transactional after its transaction has ended",
        *_open().accept(marker(COMMIT), ends=True).accept(data(2)),
        requirements=BATCHES,
    )
    made.stream(
        "plain-batch-before",
        "a producer sends a batch that is not transactional, then one that is",
        *Appends().accept(data(0)).accept(_txn(2), begins=True),
        requirements=[*BATCHES, *STABLE],
    )
    made.stream(
        "plain-batch-of-new-epoch-inside",
        "a new epoch does not end the old epoch's transaction: the broker refuses a batch that is not transactional",
        *_open().refuse(data(0, producer_epoch=4), "transaction-not-ended", verdict="acceptable"),
        requirements=[*BATCHES, "SEQ-EPOCH-1"],
    )
    made.stream(
        "new-epoch-inside",
        "a batch of a new epoch continues the old epoch's transaction, whose first offset stays the same",
        *_open().accept(_txn(0, producer_epoch=4), verdict="acceptable"),
        requirements=[*BATCHES, "SEQ-EPOCH-1"],
    )


def _coordinators(made: Stream) -> None:
    def ended() -> Appends:
        return _open().accept(marker(COMMIT, coordinator_epoch=12), ends=True).accept(_txn(2), begins=True)

    for slug, epoch in (("equal", 12), ("higher", 13)):
        made.stream(
            f"coordinator-epoch-{slug}",
            f"a marker of coordinator epoch 12 is followed by one of epoch {epoch}",
            *ended().accept(marker(ABORT, coordinator_epoch=epoch), ends=True),
        )
    made.stream(
        "coordinator-epoch-lower",
        "a marker of coordinator epoch 12 is followed by one of epoch 11, from a replaced coordinator",
        *ended().refuse(marker(ABORT, coordinator_epoch=11), "coordinator-epoch-stale", verdict="acceptable"),
    )
    made.stream(
        "coordinator-epoch-of-other-producer",
        "each producer has its own coordinator epoch: another producer's may be lower",
        *ended()
        .accept(_txn(0, producer_id=OTHER), begins=True)
        .accept(marker(ABORT, coordinator_epoch=11, producer_id=OTHER), ends=True),
    )


def _odd_markers(made: Stream) -> None:
    made.stream(
        "marker-without-transaction",
        "the broker also writes a marker that ends no transaction",
        *Appends().accept(marker(ABORT), verdict="acceptable"),
    )
    made.stream(
        "marker-twice",
        "a marker is sent twice, as after a lost answer to the coordinator",
        *_open().accept(marker(COMMIT), ends=True).accept(marker(COMMIT), verdict="acceptable"),
    )
    made.stream(
        "marker-emptied",
        "a control batch without a record, as after compaction, does not end the transaction",
        *_open().accept(_emptied(), verdict="acceptable"),
        requirements=[*MARKER, "RB-COUNT-3"],
    )
    made.stream(
        "marker-without-producer",
        "a control batch without a producer id is not a marker",
        *_open().accept(marker(COMMIT, producer_id=-1, producer_epoch=-1, transactional=False), verdict="acceptable"),
    )
    made.stream(
        "marker-not-transactional",
        "a marker in a batch without the transactional bit ends the transaction",
        *_open().accept(marker(COMMIT, transactional=False), ends=True, verdict="acceptable"),
    )
    longer = struct.pack(">hh", 1, COMMIT) + b"\x00\x09"
    made.stream(
        "marker-key-of-later-version",
        "a marker's key has version 1 and two more bytes; the broker reads it like version 0",
        *_open().accept(marker(COMMIT, key=longer), ends=True, verdict="acceptable"),
        requirements=[*MARKER, "RB-CONTROL-2"],
    )
    made.stream(
        "marker-value-of-later-version",
        "a marker's value has version 1 and two more bytes; the broker reads it like version 0",
        *_open().accept(marker(COMMIT, value=struct.pack(">hih", 1, 0, 9)), ends=True, verdict="acceptable"),
        requirements=[*MARKER, "RB-CONTROL-4"],
    )


def _emptied() -> Raw:
    return batch(
        control=True,
        transactional=True,
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        max_timestamp=1_700_000_000_000,
    )


def _bad_markers(made: Stream) -> None:
    unforeseen, invalid = "UNKNOWN_SERVER_ERROR", "INVALID_RECORD"
    cases: tuple[tuple[str, str, dict[str, Any], str], ...] = (
        ("key-null", "key is null", {"key": None}, unforeseen),
        ("key-empty", "key is empty", {"key": b""}, invalid),
        ("key-short", "key has three bytes", {"key": b"\x00\x00\x00"}, invalid),
        ("key-version-negative", "key has version -1", {"key": struct.pack(">hh", -1, COMMIT)}, invalid),
        ("type-leader-change", "type is 2, leader change", {"key": struct.pack(">hh", 0, 2)}, unforeseen),
        ("type-unknown", "type is 7", {"key": struct.pack(">hh", 0, 7)}, unforeseen),
        ("value-null", "value is null", {"value": None}, unforeseen),
        ("value-version-negative", "value has version -1", {"value": struct.pack(">hi", -1, 0)}, invalid),
    )
    for slug, what, odd, error in cases:
        made.flag("MarkerUnreadable").stream(
            f"marker-{slug}",
            f"a producer's control batch whose {what} is refused, so the transaction stays open",
            *_open().refuse(marker(COMMIT, **odd), "end-marker-invalid", error=error, verdict="acceptable"),
            requirements=[*MARKER, "RB-CONTROL-2" if "key" in odd else "RB-CONTROL-4"],
        )
