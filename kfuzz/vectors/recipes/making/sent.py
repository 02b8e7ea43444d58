"""Records for producers: the batch that holds them, and those that are too large for a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from kfuzz.vectors.recipes.making.builder import CREATED_MS, Raw, Record, batch
from kfuzz.vectors.recipes.making.produced import BATCH_BYTES_MAX
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE

# Sizes 2^k of values: near the smaller ones, all sizes in one vector; near the larger ones, a vector for each size.
POWERS_TOGETHER = range(5, 14)
POWERS_ALONE = range(14, 20)
NEAR = 20
# A record of one value in a batch of its own: the record's attributes and deltas, null key, and header count. The
# lengths of the record and of its value have three bytes each near the limit of a batch.
LARGEST_VALUE_BYTES = BATCH_BYTES_MAX - BATCH_HEADER_SIZE - 3 - 3 - 5


def incompressible(size: int) -> bytes:
    """Bytes in which no codec finds anything; always the same for one size."""
    return hashlib.shake_128(size.to_bytes(4, "big")).digest(size)


def batch_of(records: Iterable[Record], base_timestamp: int = CREATED_MS) -> Raw:
    """One batch with the records in this order. Their offset deltas count from 0."""
    numbered = [replace(record, offset_delta=number) for number, record in enumerate(records)]
    return batch(*numbered, base_timestamp=base_timestamp)


def of_records(count: int) -> Raw:
    """A batch of small records. Each has its own number as its value."""
    return batch_of(Record(key=None, value=str(number).encode()) for number in range(count))


def _of_value(size: int) -> Raw:
    return batch_of([Record(key=None, value=incompressible(size))])


def _of_sizes(power: int) -> Raw:
    sizes = range((1 << power) - NEAR, (1 << power) + NEAR + 1)
    return batch_of(Record(key=None, value=incompressible(size)) for size in sizes)


# The batches by the names of their recipes.
LARGE: dict[str, Callable[[], Raw]] = {
    **{
        f"value-{size}": partial(_of_value, size)
        for power in POWERS_ALONE
        for size in ((1 << power) + near for near in (-NEAR, 0, NEAR))
    },
    **{f"values-near-{1 << power}": partial(_of_sizes, power) for power in POWERS_TOGETHER},
    **{f"sent-{count}": partial(of_records, count) for count in (1_000, 8_192, 8_193, 20_000)},
    "value-largest": partial(_of_value, LARGEST_VALUE_BYTES),
    "value-largest-less-20": partial(_of_value, LARGEST_VALUE_BYTES - NEAR),
    "value-zeros": lambda: batch_of([Record(value=bytes(100_000))]),
    "value-random": lambda: batch_of([Record(value=incompressible(50_000))]),
    "key-random": lambda: batch_of([Record(key=incompressible(50_001), value=None)]),
    "header-random": lambda: batch_of([Record(headers=[(b"h", incompressible(50_002))])]),
    "header-name-long": lambda: batch_of([Record(headers=[(b"n" * 10_000, b"v")])]),
    "headers-1000": lambda: batch_of([Record(headers=[(b"h%d" % number, b"v") for number in range(1000)])]),
}
