"""A consumer meets these while it fetches: every codec, nulls and headers, markers, compacted ends, positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kfuzz.vectors.recipes.making.builder import CREATED_MS, Raw, Record, batch, message
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.legacy import wrapper
from kfuzz.vectors.recipes.themes.stream import (
    ABORT,
    COMMIT,
    EPOCH,
    OTHER,
    PRODUCER,
    Part,
    Stream,
    dropped,
    ended,
    ending,
    plain,
    txn,
)

CONSUMER = ["consumer"]
CODECS = ("gzip", "lz4", "snappy", "zstd")
POSITION = ["RB-OFFSET-5", "RB-OFFSET-6"]
# librdkafka doubles the size of its fetches after each one that shows nothing: ten times, up to the limit of 1 GiB.
MANY_FETCHES = 12


def theme() -> Theme:
    """The recipes of ``vectors/stream/fetching.json``."""
    made = Stream("stream/fetching", "Fetches that made public clients lose records, or fetch the same bytes for ever.")
    _codecs(made)
    _contents(made)
    _markers(made)
    _ends(made.having(isolation="read_uncommitted"))
    _positions(made)
    return made


def _packed(codec: str, base_offset: int, base_sequence: int = -1, **fields: Any) -> Raw:
    records = (Record(value=b"a"), Record(offset_delta=1, value=b"b"))
    return batch(*records, codec=codec, base_offset=base_offset, base_sequence=base_sequence, **fields)


def _transaction(codec: str, base_offset: int, base_sequence: int) -> Raw:
    return _packed(codec, base_offset, base_sequence, producer_id=PRODUCER, producer_epoch=EPOCH, transactional=True)


def _codecs(made: Stream) -> None:
    for codec in CODECS:
        made.reading(
            f"batches-{codec}",
            f"two batches of {codec}, then one that is not compressed",
            Part(_packed(codec, 0)),
            Part(_packed(codec, 2)),
            Part(plain(2, base_offset=4)),
            isolation="read_uncommitted",
            requirements=["RB-CODEC-3", "RB-SEVERAL-1"],
        )
        made.reading(
            f"transactions-{codec}",
            f"an aborted transaction and a committed one, both of {codec}",
            dropped(_transaction(codec, 0, 0)),
            ending(ABORT, 2),
            Part(_transaction(codec, 3, 2)),
            ending(COMMIT, 5),
            requirements=["TXN-FILTER-1", "RB-CODEC-3"],
        )
        last = _packed(codec, 4)
        made.reading(
            f"inside-{codec}",
            f"the fetch begins at the second record of a batch of {codec}",
            Part(last, shown=last.batches[0]["records"][1:]),
            Part(plain(base_offset=6)),
            fetch_offset=5,
            isolation="read_uncommitted",
            requirements=["RB-OFFSET-6", "RB-CODEC-3"],
        )


def _contents(made: Stream) -> None:
    odd = (
        Record(key=None, value=b"null key"),
        Record(offset_delta=1, key=b"null value", value=None),
        Record(offset_delta=2, key=None, value=None),
        Record(offset_delta=3, key=b"", value=b""),
    )
    made.reading(
        "nulls-after-aborted",
        "null keys and values follow an aborted transaction",
        dropped(batch(*odd, producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=0, transactional=True)),
        ending(ABORT, 4),
        Part(batch(*odd, base_offset=5)),
    )
    headers = ((b"h", b"1"), (b"h", b"2"), (b"null", None), (b"empty", b""), (b"h", b"3"))
    made.reading(
        "headers",
        "records with repeated headers, null and empty header values, and none",
        Part(batch(Record(headers=headers), Record(offset_delta=1), Record(offset_delta=2, headers=headers[2:3]))),
        Part(plain(base_offset=3)),
        isolation="read_uncommitted",
        requirements=["TXN-FILTER-1", "RB-HEADERS-1"],
    )


def _markers(made: Stream) -> None:
    nothing_to_show = made.flag("NothingToShow")
    nothing_to_show.reading(
        "markers-at-the-end",
        "the last two batches are markers: the next fetch begins after them",
        *ended(COMMIT, 0),
        ending(COMMIT, 3, producer_id=OTHER),
    )
    nothing_to_show.reading(
        "aborted-without-marker",
        "the fetch has only records of an aborted transaction; its marker is beyond the fetch",
        dropped(txn(0)),
        dropped(txn(2, 2)),
        roles=CONSUMER,
    )
    end = 2 * MANY_FETCHES
    nothing_to_show.reading(
        "aborted-over-many-fetches",
        f"{MANY_FETCHES} fetches in a row have only records of an aborted transaction; its marker and a record follow",
        *(dropped(txn(offset, offset)) for offset in range(0, end, 2)),
        ending(ABORT, end),
        Part(plain(base_offset=end + 1)),
        fetches_at_end=2,
    )
    made.reading(
        "abort-marker-first",
        "the fetch begins at an abort marker, whose transaction is not listed",
        ending(ABORT, 2),
        *ended(COMMIT, 3, 2),
        aborted=(),
        fetch_offset=2,
    )
    made.reading(
        "unlisted-abort-then-listed",
        "an abort marker that nothing lists comes before a transaction that is listed",
        ending(ABORT, 0),
        *ended(ABORT, 1),
        *ended(COMMIT, 4, 2),
    )
    made.reading(
        "unlisted-abort-between",
        "an abort marker that nothing lists comes between two transactions that are listed",
        *ended(ABORT, 0),
        ending(ABORT, 3),
        *ended(ABORT, 4, 2),
        Part(plain(base_offset=7)),
    )
    made.reading(
        "committed-aborted-committed",
        "a producer's second transaction of three is aborted",
        *ended(COMMIT, 0),
        *ended(ABORT, 3, 2),
        *ended(COMMIT, 6, 4),
    )


def _ends(made: Stream) -> None:
    nothing_to_show = made.flag("NothingToShow", requirements=POSITION)
    nothing_to_show.reading(
        "compacted-tail",
        "the fetch begins after the only record that compaction left of a batch; another batch follows",
        dropped(batch(Record(value=b"left"), base_offset=0, last_offset_delta=4)),
        Part(plain(base_offset=5)),
        fetch_offset=1,
    )
    nothing_to_show.reading(
        "compacted-tail-alone",
        "the fetch begins after the only record that compaction left of a batch; nothing follows yet",
        dropped(batch(Record(value=b"left"), base_offset=0, last_offset_delta=4)),
        fetch_offset=1,
    )
    empty = batch(base_offset=1, last_offset_delta=1, max_timestamp=CREATED_MS)
    nothing_to_show.reading(
        "empty-before-a-gap",
        "compaction emptied a batch, and removed those after it: the next offset is far away",
        Part(plain(base_offset=0)),
        Part(empty, shown=False),
        Part(plain(base_offset=1_000_000)),
        requirements=[*POSITION, "RB-COUNT-3"],
    )
    nothing_to_show.reading(
        "empty-alone",
        "the fetch has only a batch that compaction emptied",
        Part(batch(base_offset=0, last_offset_delta=6, max_timestamp=CREATED_MS), shown=False),
        requirements=[*POSITION, "RB-COUNT-3"],
    )


def _positions(made: Stream) -> None:
    # Inner offsets of magic 0 are absolute, those of magic 1 relative.
    for magic, inner_first, first in ((0, 4, 0), (1, 0, 4)):
        inner = [message(magic, offset=inner_first + index, value=b"v%d" % index) for index in range(3)]
        raw = wrapper(magic, inner, first=first)
        made.reading(
            f"inside-wrapper-{magic}",
            f"the fetch begins at the second message of a gzip wrapper of magic {magic}",
            Part(raw, shown=_from(raw, 5)),
            Part(message(magic, offset=7)),
            fetch_offset=5,
            isolation="read_uncommitted",
            requirements=["MS-WRAPPER-1", "RB-OFFSET-6"],
        )


def _from(raw: Raw, offset: int) -> Sequence[Any]:
    return [record for contents in raw.batches for record in contents["records"] if int(record["offset"]) >= offset]
