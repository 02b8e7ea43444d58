from collections.abc import Iterable

from kfuzz.corpora.workload import Keys

def partition_of(partitioner: str, key: bytes, partitions: int) -> int | None:
    """The partition of ``partitions`` that a producer chooses for a key; None if it takes any.

    ``partitioner`` is one of ``HASHING``: ``murmur2`` is ``BuiltInPartitioner.partitionForKey`` of Kafka's producer,
    ``crc32`` and ``consistent-random`` are ``consistent`` and ``consistent_random`` of librdkafka.
    """

def keys_by_partition(keys: Keys, key_seed: int, partitions: int) -> tuple[bytearray, bytearray]:
    """The numbers of all keys, sorted by partition and then by number, and where each partition begins there.

    Both are numbers of 32 bits. The keys of partition ``p`` end where those of ``p`` + 1 begin.
    """

def key_bytes(keys: Keys, key_seed: int, numbers: Iterable[int]) -> list[bytes]:
    """The bytes of the keys with these numbers."""

def changed_rows(rows: int, seed: int, updates: int, offsets: Iterable[int]) -> list[tuple[int, int]]:
    """The place of the row that changes at each of these offsets of a partition, and the kind of the change."""
