"""Transactions and idempotence, as visible in a single fetch."""

from __future__ import annotations

from typing import Any

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.builder import Raw, Record, batch
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.control import ABORT, COMMIT, marker


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/transaction.json``."""
    made = Theme("records/v2/transaction", "Idempotent and transactional batches, and the markers between them.")
    _transactions(made.having(requirements=["TXN-BATCH-1", "RB-ATTRIBUTES-3"]))
    _sequences(made.having(requirements=["RB-SEQUENCE-1", "RB-PRODUCER-1"]))
    return made


def _data(base_offset: int, base_sequence: int, count: int = 2, producer_id: int = 4000, **fields: Any) -> Raw:
    records = (Record(offset_delta=index, value=b"%d" % (base_sequence + index)) for index in range(count))
    fields = {"transactional": True, "producer_epoch": 3} | fields
    return batch(*records, base_offset=base_offset, base_sequence=base_sequence, producer_id=producer_id, **fields)


def _transactions(made: Theme) -> None:
    made.valid("open", "a batch of a transaction that is still open", _data(0, 0))
    made.valid(
        "committed",
        "two batches of a transaction, then its commit marker",
        _data(0, 0),
        _data(2, 2),
        marker(COMMIT, base_offset=4),
    )
    made.valid(
        "aborted",
        "a batch of an aborted transaction, then its marker; a reader without filtering returns the records",
        _data(0, 0),
        marker(ABORT, base_offset=2),
    )
    made.valid(
        "interleaved",
        "the transactions of two producers, one committed and one open, and a batch outside of transactions",
        _data(0, 0),
        _data(2, 0, producer_id=5000),
        batch(Record(), base_offset=4),
        marker(COMMIT, base_offset=5),
        _data(6, 2, producer_id=5000),
    )
    made.valid(
        "marker-first",
        "an abort marker for a transaction that began in an earlier fetch",
        marker(ABORT, base_offset=10),
        _data(11, 0),
    )
    two = (Record(), Record(offset_delta=1))
    made.valid(
        "committed-gzip",
        "a compressed batch of a transaction, then its commit marker",
        batch(*two, codec="gzip", transactional=True, producer_id=4000, producer_epoch=3, base_sequence=0),
        marker(COMMIT, base_offset=2),
        also=["RB-CODEC-3"],
    )


def _sequences(made: Theme) -> None:
    made.valid(
        "idempotent",
        "three batches of an idempotent producer without transactions",
        _data(0, 0, transactional=False),
        _data(2, 2, transactional=False),
        _data(4, 4, transactional=False),
    )
    made.valid(
        "first-sequence-seven",
        "a producer's first visible batch begins at sequence 7: older batches were deleted",
        _data(100, 7, transactional=False),
    )
    made.valid(
        "epoch-grows",
        "a producer's next epoch restarts at sequence 0",
        _data(0, 5, transactional=False),
        _data(2, 0, transactional=False, producer_epoch=4),
    )
    made.valid(
        "sequence-wraps-between-batches",
        "a batch ends at sequence INT32_MAX and the next one begins at 0",
        _data(0, INT32_MAX - 1, transactional=False),
        _data(2, 0, transactional=False),
        requirements=["SEQ-WRAP-1"],
    )
    made.valid(
        "sequence-wraps-within-batch",
        "a batch of three records begins at sequence INT32_MAX",
        _data(0, INT32_MAX, count=3, transactional=False),
        requirements=["SEQ-WRAP-1"],
    )
    made.valid(
        "producer-id-zero",
        "producer id, epoch and sequence are 0, which does not mean 'none'",
        _data(0, 0, producer_id=0, producer_epoch=0, transactional=False),
    )
