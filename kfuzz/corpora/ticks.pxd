# The time of each offset of a segment; see kfuzz.corpora.clock.
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t

cdef enum:
    DAY_MS = 86400000

cdef struct piece_t:
    int64_t end_ms               # of the day
    int64_t rate                 # units in a millisecond

# The time of ``offset``: the ms, and the units since it began. It lies in a piece of the day that begins at ``day_ms``.
cdef struct ticks_t:
    piece_t *pieces
    int piece_count
    int piece
    int64_t units_per_offset
    int64_t offset
    int64_t ms
    int64_t units
    int64_t day_ms
    int64_t piece_end_ms

# ``first_units`` is the time of ``first_offset``. The caller frees the pieces.
cdef inline int set_ticks(ticks_t *t, clock, first_units, int64_t first_offset) except -1:
    cdef int at
    now = clock.moment(first_units)
    t.units_per_offset, t.offset = clock.units_per_offset, first_offset
    t.ms, t.units = now.ms, now.units
    t.piece_count = <int> len(clock.pieces)
    t.pieces = <piece_t *> PyMem_Calloc(t.piece_count, sizeof(piece_t))
    if t.pieces == NULL:
        raise MemoryError
    for at in range(t.piece_count):
        t.pieces[at].end_ms, t.pieces[at].rate = clock.pieces[at].end_ms, clock.pieces[at].rate
    t.day_ms = t.ms - t.ms % DAY_MS
    while t.day_ms + t.pieces[t.piece].end_ms <= t.ms:
        t.piece += 1
    t.piece_end_ms = t.day_ms + t.pieces[t.piece].end_ms
    return 0

cdef inline void free_ticks(ticks_t *t):
    PyMem_Free(t.pieces)
    t.pieces = NULL

cdef inline int64_t rate_of(const ticks_t *t) noexcept nogil:
    return t.pieces[t.piece].rate

# Let ``units`` pass since the current millisecond began, into later pieces of the day or the next days.
cdef inline void turn_pieces(ticks_t *t, int64_t units) noexcept nogil:
    cdef int64_t rate, left_ms
    while True:
        rate = rate_of(t)
        left_ms = t.piece_end_ms - t.ms
        if rate != 0 and units // rate < left_ms:
            t.ms += units // rate
            t.units = units % rate
            return
        units -= left_ms * rate
        t.ms = t.piece_end_ms
        t.piece += 1
        if t.piece == t.piece_count:
            t.piece = 0
            t.day_ms += t.pieces[t.piece_count - 1].end_ms
        t.piece_end_ms = t.day_ms + t.pieces[t.piece].end_ms

# The time of ``offset`` in ms; it is not before those asked for earlier.
cdef inline int64_t turn_to(ticks_t *t, int64_t offset) noexcept nogil:
    cdef int64_t rate = rate_of(t)
    cdef int64_t units, ms
    if offset == t.offset:
        return t.ms
    units = t.units + (offset - t.offset) * t.units_per_offset
    t.offset = offset
    if units < rate:
        t.units = units
        return t.ms
    ms = 1 if units < 2 * rate else units // rate
    if t.ms + ms < t.piece_end_ms:
        t.ms += ms
        t.units = units - ms * rate
    else:
        turn_pieces(t, units)
    return t.ms
