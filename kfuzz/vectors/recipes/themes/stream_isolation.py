"""The records that a reader returns: aborted transactions, control batches, the last stable offset."""

from __future__ import annotations

import struct
from typing import Any

from kfuzz.vectors.recipes.making.builder import CREATED_MS, Raw, Record, batch, concat, message
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.stream import (
    ABORT,
    COMMIT,
    EPOCH,
    OTHER,
    PRODUCER,
    Part,
    Stream,
    data,
    dropped,
    ended,
    ending,
    marker,
    plain,
    txn,
)

CONSUMER, LOG = ["consumer"], ["log"]


def theme() -> Theme:
    """The recipes of ``vectors/stream/isolation.json``."""
    made = Stream(
        "stream/isolation",
        "Records returned from a fetch with a list of aborted transactions, and from a log with markers.",
    )
    _ends(made)
    _interleaved(made)
    _uncommitted(made.having(isolation="read_uncommitted"))
    _unstable(made.having(requirements=["TXN-FILTER-1", "TXN-STABLE-1"], roles=LOG))
    _aborted_lists(made)
    _positions(made)
    _shapes(made)
    _control(made)
    _refused(made)
    _logs(made.having(roles=LOG))
    return made


def _ends(made: Stream) -> None:
    aborted_shown = made.flag("AbortedShown")
    made.reading("committed", "a committed transaction is returned", *ended(COMMIT, 0), aborted=())
    aborted_shown.reading("aborted", "an aborted transaction is filtered out", *ended(ABORT, 0))
    aborted_shown.reading(
        "aborted-in-two-batches",
        "both batches of an aborted transaction are filtered out, but the batch after it is not",
        dropped(txn(0)),
        *ended(ABORT, 2, 2),
        Part(plain(base_offset=5)),
    )
    aborted_shown.reading(
        "aborted-then-committed",
        "a producer's first transaction is aborted, and its second is committed",
        *ended(ABORT, 0),
        *ended(COMMIT, 3, 2),
    )
    aborted_shown.reading(
        "committed-then-aborted",
        "a producer's first transaction is committed, and its second is aborted",
        *ended(COMMIT, 0),
        *ended(ABORT, 3, 2),
    )
    made.reading(
        "aborted-twice", "two transactions of a producer are both aborted", *ended(ABORT, 0), *ended(ABORT, 3, 2)
    )
    made.reading(
        "aborted-by-newer-epoch",
        "a coordinator aborted a transaction with the producer's next epoch",
        dropped(txn(0)),
        ending(ABORT, 2, producer_epoch=EPOCH + 1),
        *ended(COMMIT, 3, producer_epoch=EPOCH + 1),
    )


def _interleaved(made: Stream) -> None:
    aborted_shown = made.flag("AbortedShown")
    for slug, ends in (
        ("first-aborted", (ABORT, COMMIT)),
        ("second-aborted", (COMMIT, ABORT)),
        ("both-aborted", (ABORT, ABORT)),
    ):
        aborted_shown.reading(
            f"interleaved-{slug}",
            f"the transactions of two producers are interleaved: {slug.replace('-', ' ')}",
            Part(txn(0), shown=ends[0] == COMMIT),
            Part(txn(2, producer_id=OTHER), shown=ends[1] == COMMIT),
            Part(txn(4, 2), shown=ends[0] == COMMIT),
            ending(ends[0], 6),
            Part(txn(7, 2, producer_id=OTHER), shown=ends[1] == COMMIT),
            ending(ends[1], 9, producer_id=OTHER),
        )
    aborted_shown.reading(
        "plain-batches-between",
        "batches without a transaction are between the batches of an aborted one",
        dropped(txn(0)),
        Part(plain(base_offset=2)),
        Part(data(0, base_offset=3, producer_id=OTHER)),
        ending(ABORT, 5),
    )


def _uncommitted(made: Stream) -> None:
    made.flag("ListedUncommitted").reading(
        "uncommitted-aborted",
        "with read_uncommitted, an aborted transaction is returned, but not its marker",
        Part(txn(0)),
        ending(ABORT, 2),
        aborted=[(PRODUCER, 0)],
    )
    made.reading(
        "uncommitted-open",
        "with read_uncommitted, an open transaction is returned",
        Part(txn(0)),
        Part(plain(base_offset=2)),
    )
    made.reading(
        "uncommitted-control-alone",
        "the fetch has only markers: no record is returned, and the next fetch begins after them",
        ending(COMMIT, 7),
        ending(ABORT, 8, producer_id=OTHER),
        requirements=["TXN-FILTER-1", "TXN-BATCH-1"],
    )


def _unstable(made: Stream) -> None:
    made.reading(
        "open-at-the-end",
        "a log ends with an open transaction: nothing from its first offset on is stable",
        Part(plain(base_offset=0)),
        Part(txn(1), shown=False, beyond=True),
    )
    made.reading(
        "committed-behind-open",
        "a committed transaction and a plain batch after an open transaction are held back with it",
        Part(plain(base_offset=0)),
        Part(txn(1), shown=False, beyond=True),
        Part(txn(3, producer_id=OTHER), shown=False, beyond=True),
        Part(marker(COMMIT, base_offset=5, producer_id=OTHER), shown=False, beyond=True),
        Part(plain(base_offset=6), shown=False, beyond=True),
    )
    made.reading(
        "committed-before-open",
        "a committed transaction before an open one is returned",
        *ended(COMMIT, 0),
        Part(txn(3, 2), shown=False, beyond=True),
    )
    made.reading(
        "open-and-told",
        "a consumer gets an open transaction, which no broker sends; the consumer cannot know and returns it",
        Part(txn(0)),
        roles=CONSUMER,
        aborted=(),
    )


def _aborted_lists(made: Stream) -> None:
    of_consumer = made.having(roles=CONSUMER)
    aborted_shown = of_consumer.flag("AbortedShown")
    log = (*ended(ABORT, 0), *ended(COMMIT, 3, 2), dropped(txn(6, 4)))
    made.flag("AbortedShown").reading(
        "told-unordered",
        "the list of aborted transactions is in descending order",
        *log,
        ending(ABORT, 8),
        aborted=[(PRODUCER, 6), (PRODUCER, 0)],
    )
    of_consumer.reading(
        "told-twice",
        "an aborted transaction is listed twice",
        *log,
        ending(ABORT, 8),
        aborted=[(PRODUCER, 0), (PRODUCER, 6), (PRODUCER, 6)],
    )
    aborted_shown.reading("told-without-marker", "a listed aborted transaction has no marker in the fetch", *log)
    aborted_shown.reading(
        "told-for-another-producer",
        "a listed aborted transaction is of a producer without batches in the fetch",
        *ended(COMMIT, 0),
        aborted=[(OTHER, 0)],
    )
    aborted_shown.reading(
        "told-from-later-offset",
        "a listed aborted transaction begins after the producer's committed one",
        Part(txn(0)),
        *ended(COMMIT, 2, 2),
        aborted=[(PRODUCER, 5)],
    )
    of_consumer.reading(
        "told-from-inside-a-batch",
        "the listed first offset is inside a batch; the whole batch is filtered out",
        Part(txn(0)),
        dropped(txn(2, 2, 3)),
        ending(ABORT, 5),
        aborted=[(PRODUCER, 4)],
    )
    aborted_shown.reading(
        "told-from-before-the-fetch",
        "the aborted transaction began before the fetch",
        *ended(ABORT, 100, 40),
        *ended(COMMIT, 103, 42),
        aborted=[(PRODUCER, 17)],
        fetch_offset=100,
    )
    of_consumer.reading(
        "told-but-committed",
        "only an abort marker ends a listed aborted transaction; a commit marker does not",
        dropped(txn(0)),
        ending(COMMIT, 2),
        *ended(ABORT, 3, 2),
        Part(txn(6, 4)),
        aborted=[(PRODUCER, 0)],
    )
    of_consumer.reading(
        "told-nothing",
        "no aborted transaction is listed; an abort marker alone filters nothing",
        Part(txn(0)),
        ending(ABORT, 2),
        aborted=(),
    )


def _positions(made: Stream) -> None:
    made.reading(
        "fetch-from-inside-a-batch",
        "the fetch begins at a batch's second record",
        Part(raw := plain(3, base_offset=4), shown=raw.batches[0]["records"][1:]),
        fetch_offset=5,
        isolation="read_uncommitted",
        requirements=["RB-OFFSET-6"],
    )
    made.reading(
        "fetch-from-inside-an-aborted-batch",
        "the fetch begins at the second record of an aborted batch",
        *ended(ABORT, 0),
        Part(plain(base_offset=3)),
        fetch_offset=1,
    )
    made.reading(
        "offset-gaps",
        "offsets have gaps inside an aborted transaction and around it",
        Part(plain(base_offset=3)),
        dropped(txn(10)),
        dropped(txn(40, 2)),
        ending(ABORT, 50),
        Part(plain(base_offset=60)),
        requirements=["TXN-FILTER-1", "RB-OFFSET-6"],
    )
    made.reading(
        "last-record-compacted",
        "compaction removed a batch's last records; the next fetch begins after their offsets",
        Part(batch(Record(value=b"left"), base_offset=0, last_offset_delta=4)),
        isolation="read_uncommitted",
        requirements=["RB-OFFSET-5", "RB-OFFSET-6"],
    )


def _emptied(base_offset: int, last_offset_delta: int, **fields: Any) -> Raw:
    fields = {"transactional": True, "producer_id": PRODUCER, "producer_epoch": EPOCH} | fields
    return batch(base_offset=base_offset, last_offset_delta=last_offset_delta, max_timestamp=CREATED_MS, **fields)


def _shapes(made: Stream) -> None:
    made.reading(
        "compacted-empty-inside-aborted",
        "compaction removed all records of a batch in an aborted transaction",
        Part(_emptied(0, 1, base_sequence=0), shown=False),
        *ended(ABORT, 2, 2),
        Part(plain(base_offset=5)),
        aborted=[(PRODUCER, 0)],
        requirements=["TXN-FILTER-1", "RB-COUNT-3"],
    )
    made.reading(
        "compacted-empty-inside-committed",
        "compaction removed all records of a batch in a committed transaction",
        Part(txn(0)),
        Part(_emptied(2, 1, base_sequence=2), shown=False),
        ending(COMMIT, 4),
        requirements=["TXN-FILTER-1", "RB-COUNT-3"],
    )
    records = (Record(value=b"a"), Record(offset_delta=1, value=b"b"))
    for slug, kind in (("aborted", ABORT), ("committed", COMMIT)):
        raw = batch(
            *records, codec="gzip", transactional=True, producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=0
        )
        made.reading(
            f"compressed-{slug}",
            f"the {slug} transaction has a compressed batch",
            Part(raw, shown=kind == COMMIT),
            ending(kind, 2),
            aborted=[(PRODUCER, 0)] if kind == ABORT else [],
            requirements=["TXN-FILTER-1", "RB-CODEC-3"],
        )
    made.reading(
        "log-append-time",
        "with LogAppendTime, a committed record has the broker's time, and an aborted one is filtered out",
        Part(txn(0, log_append=True, max_timestamp=CREATED_MS + 5)),
        ending(COMMIT, 2),
        dropped(txn(3, 2, log_append=True, max_timestamp=CREATED_MS + 9)),
        ending(ABORT, 5),
        requirements=["TXN-FILTER-1", "RB-TIMESTAMP-5"],
    )
    made.reading(
        "legacy-between",
        "messages of magic 0 and 1 are inside an aborted transaction",
        dropped(txn(0)),
        Part(message(1, offset=2)),
        Part(message(0, offset=3)),
        ending(ABORT, 4),
        requirements=["TXN-FILTER-1", "RB-SEVERAL-1"],
    )
    made.reading(
        "several-batches-a-step",
        "one step has both an aborted and a committed transaction",
        Part(
            concat(
                txn(0),
                txn(2, producer_id=OTHER),
                marker(ABORT, base_offset=4),
                marker(COMMIT, base_offset=5, producer_id=OTHER),
            ),
            shown=txn(2, producer_id=OTHER).batches[0]["records"],
        ),
        aborted=[(PRODUCER, 0)],
        requirements=["TXN-FILTER-1", "RB-SEVERAL-1"],
    )
    made.reading(
        "plain-batch-of-aborted-producer",
        "a batch that is not transactional is returned, even inside its producer's aborted transaction",
        dropped(txn(0)),
        Part(data(2, base_offset=2)),
        ending(ABORT, 4),
        roles=CONSUMER,
        flags=["AbortedShown"],
    )


def _control(made: Stream) -> None:
    made.reading(
        "marker-without-transaction",
        "an abort marker has no batch of its transaction in the fetch",
        ending(ABORT, 0),
        *ended(COMMIT, 1),
        aborted=(),
    )
    made.reading(
        "marker-of-other-producer-between",
        "another producer's abort marker does not end the aborted transaction",
        dropped(txn(0)),
        ending(ABORT, 2, producer_id=OTHER),
        *ended(ABORT, 3, 2),
    )
    made.reading(
        "marker-emptied-between",
        "a control batch without a record does not end the aborted transaction",
        dropped(txn(0)),
        Part(_emptied(2, 0, control=True), shown=False),
        *ended(ABORT, 3, 2),
        aborted=[(PRODUCER, 0)],
        requirements=["TXN-FILTER-1", "RB-COUNT-3"],
    )
    made.reading(
        "marker-key-of-later-version",
        "an abort marker's key has version 1 and two more bytes; it still ends the aborted transaction",
        dropped(txn(0)),
        ending(ABORT, 2, key=struct.pack(">hh", 1, ABORT) + b"\x00\x09"),
        *ended(COMMIT, 3, 2),
        requirements=["TXN-FILTER-1", "RB-CONTROL-2"],
    )
    change = Record(key=struct.pack(">hh", 0, 2), value=b"\x00\x00")
    made.reading(
        "leader-change-between",
        "a control batch of another type, without a producer, is not returned and ends no transaction",
        dropped(txn(0)),
        Part(batch(change, control=True, base_offset=2), shown=False),
        ending(ABORT, 3),
        Part(plain(base_offset=4)),
        requirements=["TXN-FILTER-1", "RB-CONTROL-3"],
    )
    made.reading(
        "transaction-without-batches",
        "a producer has two markers without a batch between them",
        ending(COMMIT, 0),
        ending(ABORT, 1),
        Part(plain(base_offset=2)),
        aborted=(),
    )


def _refused(made: Stream) -> None:
    for slug, what, key in (
        ("null", "is null", None),
        ("short", "has three bytes", b"\x00\x00\x00"),
        ("version-negative", "has version -1", struct.pack(">hh", -1, ABORT)),
    ):
        made.flag("MarkerUnreadable").reading(
            f"marker-key-{slug}",
            f"a marker's key {what}; with read_committed, Kafka refuses it",
            Part(plain(base_offset=0)),
            Part(marker(ABORT, base_offset=1, key=key), shown=False, finding="end-marker-invalid"),
            aborted=(),
            roles=CONSUMER,
            requirements=["TXN-FILTER-1", "RB-CONTROL-2"],
        )
    made.reading(
        "uncommitted-marker-key-null",
        "a marker's key is null; with read_uncommitted, readers do not check it",
        Part(plain(base_offset=0)),
        ending(ABORT, 1, key=None),
        Part(plain(base_offset=2)),
        isolation="read_uncommitted",
        aborted=(),
        roles=CONSUMER,
        requirements=["TXN-FILTER-1", "RB-CONTROL-2"],
    )


def _logs(made: Stream) -> None:
    requirements = ["TXN-FILTER-1", "TXN-MARKER-1"]
    made.reading(
        "log-sequence-gap",
        "the sequences in a log have a gap, as after compaction; readers of a log do not check sequences",
        Part(txn(0)),
        *ended(COMMIT, 7, 7),
        requirements=["TXN-FILTER-1", "SEQ-ORDER-1"],
    )
    made.reading(
        "log-sequence-twice",
        "the same sequences occur twice in a log; it is too late to drop one batch",
        Part(txn(0)),
        *ended(COMMIT, 2),
        requirements=["TXN-FILTER-1", "SEQ-DUPLICATE-1"],
    )
    made.reading(
        "log-epoch-stale",
        "a log has a batch of an older epoch; a broker that loads it only warns",
        Part(data(0, base_offset=0, producer_epoch=EPOCH + 1)),
        Part(data(2, base_offset=2), finding="producer-epoch-stale"),
        requirements=["SEQ-EPOCH-1"],
    )
    made.reading(
        "log-coordinator-epoch-lower",
        "a log has a marker of an older coordinator epoch; a broker that loads it only warns",
        Part(txn(0)),
        ending(COMMIT, 2, coordinator_epoch=12),
        dropped(txn(3, 2)),
        Part(marker(ABORT, base_offset=5, coordinator_epoch=11), shown=False, finding="coordinator-epoch-stale"),
        requirements=requirements,
    )
    log_unloadable = made.flag("LogUnloadable")
    log_unloadable.reading(
        "log-plain-batch-inside",
        "a batch that is not transactional is inside its producer's open transaction",
        Part(txn(0)),
        Part(data(2, base_offset=2), finding="transaction-not-ended"),
        ending(COMMIT, 4),
        requirements=["TXN-BATCH-1"],
    )
    for slug, what, odd in (
        ("key-null", "key is null", {"key": None}),
        ("type-leader-change", "type is 2, leader change", {"key": struct.pack(">hh", 0, 2)}),
        ("value-null", "value is null", {"value": None}),
    ):
        bad = marker(COMMIT, base_offset=2, **odd)
        log_unloadable.reading(
            f"log-marker-{slug}",
            f"a log has a producer's control batch whose {what}",
            Part(plain(2, base_offset=0)),
            Part(bad, shown=False, finding="end-marker-invalid"),
            requirements=requirements,
        )
    made.reading(
        "marker-value-null",
        "a marker's value is null; a consumer checks only its key",
        dropped(txn(0)),
        ending(ABORT, 2, value=None),
        Part(txn(3, 2)),
        roles=CONSUMER,
        requirements=["TXN-FILTER-1", "RB-CONTROL-4"],
    )
