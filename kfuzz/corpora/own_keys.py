"""The keys that a partitioner puts into each partition of a topic.

Segments are made independently, so each process needs the table of a topic's keys. It is kept for the segments that
follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

from kfuzz.corpora.partitioners import keys_by_partition
from kfuzz.corpora.workload import Keys
from kfuzz.corpora.zipf import Zipf, table_of_some

# The tables of so many topics are kept; one takes up to 40 MB.
_by_partition = lru_cache(maxsize=3)(keys_by_partition)
# Threads that begin together make a table only once.
_LOCK = Lock()


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """A partition's keys: ``count`` rising numbers of 32 bits in ``order``, from ``first`` on."""

    order: bytearray
    first: int
    count: int

    @property
    def numbers(self) -> memoryview[int]:
        """The numbers, as a sequence."""
        return memoryview(self.order).cast("I")[self.first : self.first + self.count]


def own_keys(keys: Keys, key_seed: int, partitions: int, partition: int) -> OwnKeys:
    """The own keys of ``partition``, one of ``partitions``; the partitioner of ``keys`` must be one of ``HASHING``."""
    with _LOCK:
        order, edges = _by_partition(keys, key_seed, partitions)
    first, end = memoryview(edges).cast("I")[partition : partition + 2]
    return OwnKeys(order, first, end - first)


@lru_cache(maxsize=64)
def zipf_of(keys: Keys, key_seed: int, partitions: int, partition: int) -> Zipf:
    """The table that draws from :func:`own_keys` by Zipf's law."""
    own = own_keys(keys, key_seed, partitions, partition)
    return table_of_some(keys.cardinality, keys.exponent, own.numbers)


@lru_cache(maxsize=1024)
def partition_without_keys(keys: Keys, key_seed: int, partitions: int) -> int | None:
    """The first partition that has no own key; None if all have some."""
    return next((one for one in range(partitions) if not own_keys(keys, key_seed, partitions, one).count), None)
