"""A map of 64-bit numbers; the interface is described in int64_map.pxd."""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    SMALLEST_CAPACITY = 16


cdef int64_t place_of(const map_t *map, int64_t key) noexcept nogil:
    """The index where the search for a key begins. The finalizer of SplitMix64 spreads keys that are close together."""
    cdef uint64_t x = <uint64_t> key
    x = (x ^ x >> 30) * <uint64_t> 0xbf58476d1ce4e5b9
    x = (x ^ x >> 27) * <uint64_t> 0x94d049bb133111eb
    return <int64_t> ((x ^ x >> 31) & <uint64_t> (map.capacity - 1))


cdef entry_t *slot_of(const map_t *map, int64_t key) noexcept nogil:
    """The entry with the key, or the free entry that a new one would take."""
    cdef int64_t i = place_of(map, key)
    while map.entries[i].used and map.entries[i].key != key:
        i = (i + 1) & (map.capacity - 1)
    return &map.entries[i]


cdef entry_t *find(const map_t *map, int64_t key) noexcept nogil:
    """The entry with the key, or NULL."""
    cdef entry_t *entry
    if map.count == 0:
        return NULL
    entry = slot_of(map, key)
    return entry if entry.used else NULL


cdef bint grow(map_t *map) noexcept nogil:
    cdef map_t larger
    cdef int64_t i
    larger.count = map.count
    larger.capacity = 2 * map.capacity if map.capacity else SMALLEST_CAPACITY
    larger.entries = <entry_t *> PyMem_RawCalloc(<size_t> larger.capacity, sizeof(entry_t))
    if larger.entries == NULL:
        return False
    for i in range(map.capacity):
        if map.entries[i].used:
            slot_of(&larger, map.entries[i].key)[0] = map.entries[i]
    PyMem_RawFree(map.entries)
    map[0] = larger
    return True


cdef bint put(map_t *map, int64_t key, int64_t value) noexcept nogil:
    """Set the key's value. False if there is no memory."""
    cdef entry_t *entry
    # A quarter of the entries stays free, so that searches are short.
    if map.count >= map.capacity - map.capacity // 4 and not grow(map):
        return False
    entry = slot_of(map, key)
    if not entry.used:
        map.count += 1
    entry[0] = entry_t(key, value, 1)
    return True


cdef void remove(map_t *map, entry_t *entry) noexcept nogil:
    """Remove an entry. Later entries move up to fill the hole, because a search stops at the first free entry."""
    cdef int64_t hole = entry - map.entries
    cdef int64_t i = hole
    cdef int64_t place
    map.count -= 1
    while True:
        i = (i + 1) & (map.capacity - 1)
        if not map.entries[i].used:
            break
        place = place_of(map, map.entries[i].key)
        # The search for this entry begins at `place`. It may move if the hole lies between `place` and its index.
        if (i - place) & (map.capacity - 1) >= (i - hole) & (map.capacity - 1):
            map.entries[hole] = map.entries[i]
            hole = i
    map.entries[hole].used = 0


cdef void free_map(map_t *map) noexcept nogil:
    PyMem_RawFree(map.entries)
    map.entries = NULL
    map.count = map.capacity = 0
