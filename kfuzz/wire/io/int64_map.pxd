# A map from 64-bit numbers to 64-bit numbers with open addressing. It needs no Python objects and no GIL.
from libc.stdint cimport int64_t

cdef struct entry_t:
    int64_t key
    int64_t value
    int64_t used

cdef struct map_t:
    entry_t *entries           # NULL for an empty map
    int64_t count
    int64_t capacity           # a power of two

cdef entry_t *find(const map_t *map, int64_t key) noexcept nogil
cdef bint put(map_t *map, int64_t key, int64_t value) noexcept nogil
cdef void remove(map_t *map, entry_t *entry) noexcept nogil
cdef void free_map(map_t *map) noexcept nogil
