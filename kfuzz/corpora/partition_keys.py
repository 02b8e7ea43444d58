"""The keys that a partitioner puts into each partition of a topic.

Segments are made independently, so each process needs a table of the topic's keys. It keeps the last ones.
"""

from __future__ import annotations

from functools import lru_cache
from threading import Lock

from kfuzz.corpora.partitioners import keys_by_partition
from kfuzz.corpora.workload import Keys
from kfuzz.corpora.zipf import Zipf, table_of_some

# Threads that begin together make a table only once.
_LOCK = Lock()


@lru_cache(maxsize=3)
def _table(keys: Keys, key_seed: int, partitions: int) -> tuple[memoryview[int], memoryview[int]]:
    """A table takes up to 40 MB."""
    order, edges = keys_by_partition(keys, key_seed, partitions)
    return memoryview(order).cast("I"), memoryview(edges).cast("I")


def own_keys(keys: Keys, key_seed: int, partitions: int, partition: int) -> bytes:
    """The rising numbers of a partition's keys, 32 bits each; the partitioner of ``keys`` must be in ``HASHING``."""
    with _LOCK:
        order, edges = _table(keys, key_seed, partitions)
    return order[edges[partition] : edges[partition + 1]].tobytes()


@lru_cache(maxsize=64)
def zipf_of(keys: Keys, key_seed: int, partitions: int, partition: int) -> Zipf:
    """The table that draws from :func:`own_keys` by Zipf's law."""
    own = memoryview(own_keys(keys, key_seed, partitions, partition)).cast("I")
    return table_of_some(keys.cardinality, keys.exponent, own)


@lru_cache(maxsize=1024)
def partition_without_keys(keys: Keys, key_seed: int, partitions: int) -> int | None:
    """The first partition that has no own key; None if all have some."""
    with _LOCK:
        edges = _table(keys, key_seed, partitions)[1]
    return next((one for one in range(partitions) if edges[one] == edges[one + 1]), None)
