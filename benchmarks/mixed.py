"""The records for all record paths: nulls, random sizes, a fifth of the records with headers, batches of 1 to 1,000
records. Uniform records make every reader up to three times faster, because the processor learns their branches.

Imports only ``kfuzz.records``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, NamedTuple

from kfuzz import records
from kfuzz.records import Codec

BATCH_RECORDS: Final = (1, 1000)
# A consumer's default limit for the data of one partition (max.partition.fetch.bytes).
FETCH_BYTES: Final = 1024 * 1024
FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000

NULL_KEYS: Final = 0.25
NULL_VALUES: Final = 0.1
KEY_BYTES_MAX: Final = 40
# About 40 % of the lengths, with nulls, are varints of one byte; the others take two. The mean is the usual 100 bytes.
VALUE_BYTES_MAX: Final = 200
WITH_HEADERS: Final = 0.2
HEADERS_MAX: Final = 3
HEADER_VALUE_BYTES_MAX: Final = 32
NULL_HEADER_VALUES: Final = 0.1
# Timestamps are slightly out of order, as from several threads of one producer.
GAP_MS_MAX: Final = 40
JITTER_MS_MAX: Final = 300
# Values are made of this many words, so that they compress like logs and JSON: about 2 to 1.
WORDS: Final = 2000

# The sizes in uniform records.
UNIFORM_KEY_BYTES: Final = 10
UNIFORM_VALUE_BYTES: Final = 100


class Content(NamedTuple):
    """A record's content as a producer has it; ``timestamp`` in milliseconds."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def record_of(offset: int, content: Content) -> records.Record:
    """The content as kfuzz's object."""
    headers = tuple((name.encode(), value) for name, value in content.headers)
    return records.Record(offset, content.timestamp, content.key, content.value, headers)


class Census(NamedTuple):
    """Counts of what was read or written. Two libraries with the same counts did the same work."""

    records: int
    null_keys: int
    key_bytes: int
    null_values: int
    value_bytes: int
    headers: int
    header_bytes: int


class CallCensus(NamedTuple):
    """Like :class:`Census`, for paths whose times are given per call."""

    calls: int
    records: int
    key_bytes: int
    value_bytes: int

    @classmethod
    def of(cls, calls: int, census: Census) -> CallCensus:
        return cls(calls, census.records, census.key_bytes, census.value_bytes)


def count(
    contents: Iterable[tuple[bytes | None, bytes | None, Iterable[tuple[str | bytes, bytes | None]]]],
) -> Census:
    """Count ``(key, value, headers)`` tuples. The set's header keys are ASCII, so each character is a byte."""
    total = [0] * 7
    for key, value, headers in contents:
        total[0] += 1
        total[1] += key is None
        total[2] += len(key or b"")
        total[3] += value is None
        total[4] += len(value or b"")
        for name, header in headers:
            total[5] += 1
            total[6] += len(name) + len(header or b"")
    return Census(*total)


@dataclass(frozen=True)
class MixedSet:
    """``batches`` batches generated from ``seed``. Their record counts are uniform random numbers in ``batch_records``.

    In magic 0 and 1 the records have no headers. Without a codec each record is a message; with one each batch is a
    wrapper.
    """

    batches: int
    seed: int = 4
    batch_records: tuple[int, int] = BATCH_RECORDS
    magic: int = 2

    def __getstate__(self) -> dict[str, Any]:
        # A pickle has only the seed and the parameters: the other process makes the records itself.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def contents(self) -> list[list[Content]]:
        """The records, by batch."""
        rng = random.Random(self.seed)
        words = [
            "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=rng.randint(2, 12))) for _ in range(WORDS)
        ]
        made = []
        clock = FIRST_TIMESTAMP_MS
        for _ in range(self.batches):
            batch = []
            for _ in range(rng.randint(*self.batch_records)):
                clock += rng.randrange(GAP_MS_MAX)
                content = _content(rng, words, clock + rng.randrange(JITTER_MS_MAX))
                batch.append(content if self.magic == 2 else content._replace(headers=[]))
            made.append(batch)
        return made

    @cached_property
    def census(self) -> Census:
        return count((c.key, c.value, c.headers) for batch in self.contents for c in batch)

    @property
    def record_batches(self) -> list[records.RecordBatch]:
        """The batches as kfuzz's objects; offsets continue from batch to batch."""
        made = []
        offset = 0
        for batch in self.contents:
            rows = [record_of(offset + i, content) for i, content in enumerate(batch)]
            made.append(records.RecordBatch(offset, rows[-1].offset, rows, magic=self.magic, partition_leader_epoch=0))
            offset += len(rows)
        return made

    def encoded(self, codec: Codec = "none") -> list[bytes]:
        """Each batch's bytes."""
        made = []
        for batch in self.record_batches:
            batch.compression = codec
            parts = _messages(batch) if self.magic < 2 and codec == "none" else [batch]
            made.append(records.encode(parts))
        return made

    @property
    def messages(self) -> list[list[records.RecordBatch]]:
        """The records of each batch as messages of magic 0 or 1, without a codec."""
        return [_messages(batch) for batch in self.record_batches]

    def fetches(self, codec: Codec = "none") -> list[bytes]:
        """The batches in buffers like those of fetches: as many as fit into 1 MiB uncompressed, and at least one.

        The same batches share a buffer with every codec. Otherwise a codec would also change how many records are in
        memory at a time.
        """
        batches = iter(self.encoded(codec))
        return [b"".join(itertools.islice(batches, size)) for size in self._batches_a_fetch]

    @cached_property
    def _batches_a_fetch(self) -> list[int]:
        sizes = [0]
        held_bytes = 0
        for batch in self.encoded():
            if sizes[-1] and held_bytes + len(batch) > FETCH_BYTES:
                sizes.append(0)
                held_bytes = 0
            sizes[-1] += 1
            held_bytes += len(batch)
        return sizes


class UniformSet(MixedSet):
    """Records with keys of 10 bytes and values of 100, without nulls and headers.

    They measure the cost of a call; it does not matter if the processor learns the branches of its one or ten records.
    Each key occurs twice on average, so that a log cleaner has records to drop.
    """

    @cached_property
    def contents(self) -> list[list[Content]]:
        rng = random.Random(self.seed)
        sizes = [rng.randint(*self.batch_records) for _ in range(self.batches)]
        keys = [rng.randbytes(UNIFORM_KEY_BYTES) for _ in range(max(1, sum(sizes) // 2))]
        clock = itertools.count(FIRST_TIMESTAMP_MS)
        return [
            [Content(next(clock), rng.choice(keys), rng.randbytes(UNIFORM_VALUE_BYTES), []) for _ in range(size)]
            for size in sizes
        ]


def _messages(batch: records.RecordBatch) -> list[records.RecordBatch]:
    return [records.RecordBatch(row.offset, row.offset, [row], magic=batch.magic) for row in batch.records]


def _content(rng: random.Random, words: list[str], timestamp: int) -> Content:
    key = None if rng.random() < NULL_KEYS else rng.randbytes(rng.randint(0, KEY_BYTES_MAX))
    value = None if rng.random() < NULL_VALUES else _text(rng, words, rng.randint(0, VALUE_BYTES_MAX))
    headers: list[tuple[str, bytes | None]] = []
    if rng.random() < WITH_HEADERS:
        for _ in range(rng.randint(1, HEADERS_MAX)):
            empty = rng.random() < NULL_HEADER_VALUES
            header = None if empty else rng.randbytes(rng.randint(0, HEADER_VALUE_BYTES_MAX))
            headers.append((rng.choice(words), header))
    return Content(timestamp, key, value, headers)


def _text(rng: random.Random, words: list[str], size: int) -> bytes:
    return " ".join(rng.choices(words, k=size // 3 + 1)).encode()[:size]
