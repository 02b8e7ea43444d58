"""The partitioners of Kafka's producers, and the keys of a topic in the order of the partitions that they go to."""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kfuzz.corpora.rounds cimport kind_of, row_at, schedule_t, to_schedule
from kfuzz.corpora.draws cimport cell, key_of, put_key, range_t, size_of_key, to_range
from kfuzz.corpora.value_writer cimport ValueWriter, owner_t
from kfuzz.wire.io.checksum cimport crc32_of

from kfuzz.corpora.workload import HASHING, KEY_FORMS, program_of, sizes_of

cdef enum:
    # As in HASHING.
    MURMUR2 = 0
    CRC32 = 1
    CONSISTENT_RANDOM = 2
    ANYWHERE = -1


cdef uint32_t murmur2(const uint8_t *key, int64_t size) noexcept nogil:
    """MurmurHash2 with the seed of ``org.apache.kafka.common.utils.Utils.murmur2``."""
    cdef uint32_t times = 0x5bd1e995
    cdef uint32_t found = <uint32_t> 0x9747b28c ^ <uint32_t> size
    cdef uint32_t word = 0
    cdef int64_t at
    for at in range(size):
        word |= <uint32_t> key[at] << 8 * (at & 3)
        if at & 3 == 3:
            word *= times
            found = found * times ^ (word ^ word >> 24) * times
            word = 0
    if size & 3:
        found = (found ^ word) * times
    found = (found ^ found >> 13) * times
    return found ^ found >> 15


cdef inline int64_t place_of(int partitioner, const uint8_t *key, int64_t size, uint32_t partitions) noexcept nogil:
    """The partition of a key, or ``ANYWHERE``."""
    if partitioner == MURMUR2:
        return (murmur2(key, size) & 0x7fffffff) % partitions
    if partitioner == CONSISTENT_RANDOM and size == 0:
        return ANYWHERE
    return crc32_of(key, size) % partitions


cdef class _Keys:
    """Writes keys by their numbers."""
    cdef ValueWriter writer
    cdef uint64_t seed
    cdef int form
    cdef range_t sizes
    cdef bytearray room
    cdef uint8_t *key

    def __cinit__(self, keys, uint64_t key_seed):
        made = program_of(keys, keys)
        self.writer = None if made is None else ValueWriter(made)
        self.seed, self.form, self.sizes = key_seed, KEY_FORMS.index(keys.form), to_range(keys.size)
        self.room = bytearray(sizes_of(keys, keys)[1] + 8)
        self.key = <uint8_t *> PyByteArray_AS_STRING(self.room)

    cdef int32_t write(self, uint64_t number) noexcept nogil:
        """Write a key to ``key``; its size."""
        cdef int32_t size = size_of_key(self.seed, number, &self.sizes)
        cdef owner_t owner
        if self.writer is not None:
            owner = owner_t(<int64_t> number, 0, key_of(self.seed, number, self.form), size, self.form, NULL)
            return <int32_t> (self.writer.write(self.key, cell(self.seed, number), &owner) - self.key)
        put_key(self.key, self.form, key_of(self.seed, number, self.form), size)
        return size


def partition_of(str partitioner, bytes key not None, uint32_t partitions):
    found = place_of(HASHING.index(partitioner), <const uint8_t *> key, len(key), partitions)
    return None if found == ANYWHERE else found


def keys_by_partition(keys, uint64_t key_seed, uint32_t partitions):
    cdef uint32_t count = keys.cardinality
    cdef int partitioner = HASHING.index(keys.partitioner)
    cdef _Keys writer = _Keys(keys, key_seed)
    cdef bytearray made = bytearray(4 * count)
    cdef bytearray found = bytearray(4 * count)
    # A counting sort: first the number of keys of partition p at p + 2, in the end the place of the first one at p.
    cdef bytearray edges = bytearray(4 * (<int64_t> partitions + 2))
    cdef uint32_t *order = <uint32_t *> PyByteArray_AS_STRING(made)
    cdef uint32_t *place = <uint32_t *> PyByteArray_AS_STRING(found)
    cdef uint32_t *edge = <uint32_t *> PyByteArray_AS_STRING(edges)
    cdef uint32_t at
    cdef int64_t chosen
    with nogil:
        for at in range(count):
            chosen = place_of(partitioner, writer.key, writer.write(at), partitions)
            place[at] = at % partitions if chosen == ANYWHERE else <uint32_t> chosen
            edge[place[at] + 2] += 1
        for at in range(partitions):
            edge[at + 2] += edge[at + 1]
        for at in range(count):
            order[edge[place[at] + 1]] = at
            edge[place[at] + 1] += 1
    return made, edges


def key_bytes(keys, uint64_t key_seed, numbers):
    cdef _Keys writer = _Keys(keys, key_seed)
    cdef int32_t size
    cdef list made = []
    for number in numbers:
        size = writer.write(number)
        made.append((<char *> writer.key)[:size])
    return made


def changed_rows(uint64_t rows, uint64_t seed, int64_t updates, offsets):
    cdef schedule_t schedule = to_schedule(rows, seed, updates)
    cdef int64_t offset
    cdef uint64_t row
    cdef list made = []
    for offset in offsets:
        row = row_at(&schedule, offset)
        made.append((row, kind_of(&schedule, row, offset // <int64_t> rows)))
    return made
