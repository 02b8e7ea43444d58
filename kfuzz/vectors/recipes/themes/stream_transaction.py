"""Transactions and their markers, as the broker that appends to a partition sees them."""

from __future__ import annotations

import struct
from typing import Any

from kfuzz.vectors.recipes.making.builder import Raw, batch
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.stream import ABORT, COMMIT, EPOCH, OTHER, PRODUCER, Appends, data, marker, plain

BATCHES, MARKER, STABLE = ["TXN-BATCH-1"], ["TXN-MARKER-1"], ["TXN-STABLE-1"]


def theme() -> Theme:
    """stream/transaction"""
    made = Theme(
        "stream/transaction", "Open and ended transactions of a partition, and its last stable offset.", kind="stream"
    )
    _ends(made)
    _stable(made)
    _mixed(made)
    _coordinators(made)
    _odd_markers(made)
    _bad_markers(made)
    return made


def _txn(base_sequence: int, count: int = 2, **fields: Any) -> Raw:
    return data(base_sequence, count, transactional=True, **fields)


def _open() -> Appends:
    return Appends().take(_txn(0), begins=True)


def _ends(made: Theme) -> None:
    made.stream(
        "open",
        "a transaction that has not ended keeps the last stable offset at its first offset",
        *_open().take(_txn(2)).steps,
        requirements=[*BATCHES, *STABLE],
    )
    for slug, kind in (("commit", COMMIT), ("abort", ABORT)):
        made.stream(
            f"{slug}",
            f"a transaction of two batches and its {slug} marker, behind which all is stable",
            *_open().take(_txn(2)).take(marker(kind), ends=True).steps,
            requirements=[*BATCHES, *MARKER, *STABLE],
        )
        made.stream(
            f"{slug}-then-another",
            f"after the {slug} marker the same producer's next transaction is open from its own first offset on",
            *_open().take(marker(kind), ends=True).take(_txn(2), begins=True).steps,
            requirements=[*BATCHES, *STABLE],
        )
    made.stream(
        "duplicate-inside",
        "a batch of an open transaction comes again",
        *_open().drop(_txn(0), at=0).take(marker(COMMIT), ends=True).steps,
        requirements=["SEQ-DUPLICATE-1", *STABLE],
    )
    made.stream(
        "duplicate-after-the-end",
        "a batch of a committed transaction comes again: it opens none",
        *_open().take(marker(COMMIT), ends=True).drop(_txn(0), at=0).steps,
        requirements=["SEQ-DUPLICATE-1", *STABLE],
    )
    made.stream(
        "gap-inside",
        "a batch is missing inside a transaction",
        *_open().refuse(_txn(5), "sequence-gap").take(marker(ABORT), ends=True).steps,
        requirements=["SEQ-ORDER-1"],
    )


def _stable(made: Theme) -> None:
    other = _txn(0, producer_id=OTHER)
    made.stream(
        "older-ends-first",
        "of two open transactions the older ends: the younger's first offset is the last stable one",
        *_open().take(other, begins=True).take(marker(COMMIT), ends=True).steps,
        requirements=STABLE,
    )
    made.stream(
        "younger-ends-first",
        "of two open transactions the younger ends: the older's first offset stays the last stable one",
        *_open()
        .take(other, begins=True)
        .take(marker(COMMIT, producer_id=OTHER), ends=True)
        .take(marker(COMMIT), ends=True)
        .steps,
        requirements=STABLE,
    )
    made.stream(
        "others-behind-open",
        "what others write behind an open transaction is not stable before it ends",
        *_open().take(plain(4)).take(data(0, producer_id=OTHER)).take(marker(ABORT), ends=True).steps,
        requirements=STABLE,
    )
    made.stream(
        "refused-opens-nothing",
        "a batch that is refused does not open a transaction",
        *Appends().take(data(0)).refuse(_txn(7), "sequence-gap").take(plain()).steps,
        requirements=[*STABLE, "SEQ-ORDER-1"],
    )
    made.stream(
        "marker-of-other-producer",
        "another producer's marker leaves the transaction open",
        *_open().take(marker(COMMIT, producer_id=OTHER), verdict="acceptable").steps,
        requirements=[*MARKER, *STABLE],
    )


def _mixed(made: Theme) -> None:
    made.stream(
        "plain-batch-inside",
        "a producer whose transaction is open sends a batch that is not transactional; the documents are silent",
        *_open().refuse(data(2), "transaction-not-ended", verdict="acceptable").steps,
        requirements=BATCHES,
    )
    made.stream(
        "plain-batch-after-the-end",
        "a producer whose transaction has ended sends a batch that is not transactional",
        *_open().take(marker(COMMIT), ends=True).take(data(2)).steps,
        requirements=BATCHES,
    )
    made.stream(
        "plain-batch-before",
        "a producer sends a batch that is not transactional, then one that is",
        *Appends().take(data(0)).take(_txn(2), begins=True).steps,
        requirements=[*BATCHES, *STABLE],
    )
    made.stream(
        "plain-batch-of-new-epoch-inside",
        "a new epoch does not end the transaction of the one before: a batch that is not transactional is refused",
        *_open().refuse(data(0, producer_epoch=4), "transaction-not-ended", verdict="acceptable").steps,
        requirements=[*BATCHES, "SEQ-EPOCH-1"],
    )
    made.stream(
        "new-epoch-inside",
        "a batch of a new epoch goes on in the transaction of the one before, whose first offset stays",
        *_open().take(_txn(0, producer_epoch=4), verdict="acceptable").steps,
        requirements=[*BATCHES, "SEQ-EPOCH-1"],
    )


def _coordinators(made: Theme) -> None:
    def ended() -> Appends:
        return _open().take(marker(COMMIT, coordinator_epoch=12), ends=True).take(_txn(2), begins=True)

    for slug, epoch in (("equal", 12), ("higher", 13)):
        made.stream(
            f"coordinator-epoch-{slug}",
            f"after a marker of coordinator epoch 12 comes one of {epoch}",
            *ended().take(marker(ABORT, coordinator_epoch=epoch), ends=True).steps,
            requirements=MARKER,
        )
    made.stream(
        "coordinator-epoch-lower",
        "after a marker of coordinator epoch 12 comes one of 11, from a coordinator that was replaced",
        *ended().refuse(marker(ABORT, coordinator_epoch=11), "coordinator-epoch-stale", verdict="acceptable").steps,
        requirements=MARKER,
    )
    made.stream(
        "coordinator-epoch-of-other-producer",
        "coordinator epochs are kept by producer: another's may be lower",
        *ended()
        .take(_txn(0, producer_id=OTHER), begins=True)
        .take(marker(ABORT, coordinator_epoch=11, producer_id=OTHER), ends=True)
        .steps,
        requirements=MARKER,
    )


def _odd_markers(made: Theme) -> None:
    made.stream(
        "marker-without-transaction",
        "a marker that ends nothing is written all the same",
        *Appends().take(marker(ABORT), verdict="acceptable").steps,
        requirements=MARKER,
    )
    made.stream(
        "marker-twice",
        "a marker comes twice, as it does when a coordinator has lost the answer",
        *_open().take(marker(COMMIT), ends=True).take(marker(COMMIT), verdict="acceptable").steps,
        requirements=MARKER,
    )
    made.stream(
        "marker-emptied",
        "a control batch without a record, as compaction leaves it, ends nothing",
        *_open().take(_emptied(), verdict="acceptable").steps,
        requirements=[*MARKER, "RB-COUNT-3"],
    )
    made.stream(
        "marker-without-producer",
        "a control batch without a producer id is no marker",
        *_open()
        .take(marker(COMMIT, producer_id=-1, producer_epoch=-1, transactional=False), verdict="acceptable")
        .steps,
        requirements=MARKER,
    )
    made.stream(
        "marker-not-transactional",
        "a marker in a batch without the transactional bit ends the transaction",
        *_open().take(marker(COMMIT, transactional=False), ends=True, verdict="acceptable").steps,
        requirements=MARKER,
    )
    longer = struct.pack(">hh", 1, COMMIT) + b"\x00\x09"
    made.stream(
        "marker-key-of-later-version",
        "a marker whose key has version 1 and two more bytes is read as one of version 0",
        *_open().take(marker(COMMIT, key=longer), ends=True, verdict="acceptable").steps,
        requirements=[*MARKER, "RB-CONTROL-2"],
    )
    made.stream(
        "marker-value-of-later-version",
        "a marker whose value has version 1 and two more bytes is read as one of version 0",
        *_open().take(marker(COMMIT, value=struct.pack(">hih", 1, 0, 9)), ends=True, verdict="acceptable").steps,
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


def _bad_markers(made: Theme) -> None:
    made.flag(
        "MarkerUnreadable",
        "crash",
        "A control batch of a producer does not say how its transaction ended.",
        "A broker that writes it dies when it loads the segment; one that ignores it never moves its stable offset.",
    )
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
        made.stream(
            f"marker-{slug}",
            f"a control batch of a producer whose {what}: the transaction stays open",
            *_open().refuse(marker(COMMIT, **odd), "end-marker-invalid", error=error, verdict="acceptable").steps,
            requirements=[*MARKER, "RB-CONTROL-2" if "key" in odd else "RB-CONTROL-4"],
            flags=["MarkerUnreadable"],
        )
