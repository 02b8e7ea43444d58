# Which row each offset of a partition changes, and how; kfuzz.corpora.changes has the rules in words.
from libc.stdint cimport int64_t, uint64_t

from kfuzz.corpora.draws cimport cell
from kfuzz.wire.io.splitmix cimport mix

cdef enum:
    # The kinds of changes, as in kfuzz.corpora.relations.
    SNAPSHOT = 0
    CREATE = 1
    UPDATE = 2
    DELETE = 3
    TOMBSTONE = 4
    SHUFFLES = 4

# The partition has ``rows``; a place among them has ``half`` bits twice.
cdef struct schedule_t:
    uint64_t rows, seed
    int64_t updates
    int half

cdef inline schedule_t to_schedule(uint64_t rows, uint64_t seed, int64_t updates) noexcept nogil:
    cdef schedule_t made = schedule_t(rows, seed, updates, 0)
    while (<uint64_t> 1 << 2 * made.half) < rows:
        made.half += 1
    return made

# The row that is the ``at``-th of a round; ``back``: the place in the round of row ``at``. A Feistel network, until its
# number is one of a row. It is its own inverse with the keys in reverse order.
cdef inline uint64_t shuffled(const schedule_t *s, uint64_t at, int64_t round, bint back) noexcept nogil:
    cdef uint64_t seed = cell(s.seed, <uint64_t> round)
    cdef uint64_t mask = (<uint64_t> 1 << s.half) - 1
    cdef uint64_t left, right
    cdef int i
    # The snapshot is in order.
    while round > 0:
        left, right = at >> s.half, at & mask
        for i in range(SHUFFLES):
            left, right = right, left ^ mix(right ^ cell(seed, SHUFFLES - 1 - i if back else i)) & mask
        at = right << s.half | left
        if at < s.rows:
            break
    return at

cdef inline uint64_t row_at(const schedule_t *s, int64_t offset) noexcept nogil:
    return shuffled(s, <uint64_t> offset % s.rows, <int64_t> (<uint64_t> offset // s.rows), False)

# The offset of the change of row ``at`` that follows ``round``.
cdef inline int64_t offset_after(const schedule_t *s, uint64_t at, int64_t round) noexcept nogil:
    return <int64_t> (<uint64_t> (round + 1) * s.rows + shuffled(s, at, round + 1, True))

cdef inline int kind_of(const schedule_t *s, uint64_t at, int64_t round) noexcept nogil:
    cdef int64_t turn = (<int64_t> at % (s.updates + 1) + round) % (s.updates + 3)
    if round == 0:
        return SNAPSHOT
    if turn <= s.updates:
        return CREATE if turn == 0 else UPDATE
    return DELETE if turn == s.updates + 1 else TOMBSTONE
