# Draws ranks that follow Zipf's law; kfuzz.corpora.zipf makes the tables and explains them.
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint32_t, uint64_t

from kfuzz.corpora.draws cimport cell

cdef enum:
    # As in kfuzz.corpora.zipf.
    SINGLE_RANKS = 128
    BLOCKS_PER_OCTAVE_BITS = 6
    ZIPF_BITS = 31
    ZIPF_TERMS = 7

cdef struct column_t:
    uint64_t limit
    uint32_t other
    uint32_t unused

cdef struct zipf_t:
    const column_t *columns
    int rest_bits                # of a random number of 64 bits, beside those that choose a column
    uint64_t cardinality
    int64_t keep_always
    int64_t terms[ZIPF_TERMS]
    # With a partitioner: the place of each block's first key among the partition's own keys, and their number.
    const uint32_t *edges

# The numbers and addresses of the table, as long as it lives.
cdef inline zipf_t to_zipf(object table):
    cdef zipf_t made
    cdef int i
    made.columns = <const column_t *> PyBytes_AS_STRING(table.columns)
    made.edges = <const uint32_t *> PyBytes_AS_STRING(table.edges)
    made.rest_bits = 64 - table.column_bits
    made.cardinality, made.keep_always = table.cardinality, table.keep_always
    for i in range(ZIPF_TERMS):
        made.terms[i] = table.terms[i]
    return made

# Whether ``u``, a fraction of 2³¹, is below (``first`` / ``rank``) to the power of the exponent.
cdef inline bint keeps(const zipf_t *z, uint64_t first, uint64_t rank, int64_t u) noexcept nogil:
    cdef int64_t y, result
    cdef int i
    if u < z.keep_always:
        return True
    y = <int64_t> ((rank - first << BLOCKS_PER_OCTAVE_BITS + ZIPF_BITS) // first)
    result = z.terms[ZIPF_TERMS - 1]
    for i in range(ZIPF_TERMS - 2, -1, -1):
        result = z.terms[i] + (result * y >> ZIPF_BITS)
    return u < result

# The block that the alias method chooses by ``u``.
cdef inline uint64_t block_at(const zipf_t *z, uint64_t u) noexcept nogil:
    cdef uint64_t block = u >> z.rest_bits
    cdef const column_t *column = &z.columns[block]
    return column.other if u - (block << z.rest_bits) >= column.limit else block

# The first rank of a block of 2^``octave`` ranks.
cdef inline uint64_t first_of(uint64_t block, int *octave) noexcept nogil:
    octave[0] = <int> (block - SINGLE_RANKS >> BLOCKS_PER_OCTAVE_BITS) + 1
    return ((1 << BLOCKS_PER_OCTAVE_BITS) + (block & (1 << BLOCKS_PER_OCTAVE_BITS) - 1)) << octave[0]

# A place among a partition's ``own`` keys, the numbers of which begin with 0.
cdef inline uint64_t zipf_place(const zipf_t *z, const uint32_t *own, uint64_t seed) noexcept nogil:
    cdef uint64_t attempt = 0
    cdef uint64_t u, block, at
    cdef int octave
    while True:
        block = block_at(z, cell(seed, attempt))
        at = z.edges[block]
        if block < SINGLE_RANKS:
            return at
        # A block of at most 10 million keys has at most 2^17.
        at += (cell(seed, attempt + 1) >> 17) * (z.edges[block + 1] - at) >> 47
        u = cell(seed, attempt + 2)
        if keeps(z, first_of(block, &octave), <uint64_t> own[at] + 1, <int64_t> (u >> 64 - ZIPF_BITS)):
            return at
        attempt += 3

# A rank from 1 on; see ``kfuzz.corpora.zipf``.
cdef inline uint64_t zipf_rank(const zipf_t *z, uint64_t seed) noexcept nogil:
    cdef uint64_t attempt = 0
    cdef uint64_t u, block, first, rank
    cdef int octave
    while True:
        block = block_at(z, cell(seed, attempt))
        if block < SINGLE_RANKS:
            return block
        first = first_of(block, &octave)
        u = cell(seed, attempt + 1)
        rank = first + (u & (<uint64_t> 1 << octave) - 1)
        if rank <= z.cardinality and keeps(z, first, rank, <int64_t> (u >> 64 - ZIPF_BITS)):
            return rank
        attempt += 2
