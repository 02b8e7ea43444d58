# Random numbers, and what the generator makes of them. A number depends only on a seed and on its place. All arithmetic
# is in integers.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cpython.bytes cimport PyBytes_AS_STRING

from kfuzz.wire.io.cursor cimport kfuzz_be64
from kfuzz.wire.io.sink cimport put_int32, put_int64
from kfuzz.wire.io.splitmix cimport mix, nth

cdef enum:
    # The forms of a key's bytes: the places in KEY_FORMS of kfuzz.corpora.workload.
    KEY_LETTERS = 0
    KEY_DIGITS = 1
    KEY_INT = 2
    KEY_LONG = 3
    KEY_UUID = 4

# As COLUMN in kfuzz.corpora.quantities.
cdef struct column_t:
    uint64_t limit
    int64_t number

cdef struct range_t:
    int64_t low
    uint64_t span
    int skew                         # 0: the numbers are in the table
    const column_t *table
    int32_t half                     # of the table

cdef inline uint64_t cell(uint64_t seed, uint64_t at) noexcept nogil:
    return nth(seed, at + 1)

cdef inline uint32_t low(uint64_t value) noexcept nogil:
    return <uint32_t> value

cdef inline uint32_t high(uint64_t value) noexcept nogil:
    return <uint32_t> (value >> 32)

# ``floor(span · u)`` for ``u`` as a fraction of 2³²; ``span`` is below 2³².
cdef inline int64_t scaled(uint32_t u, int64_t span) noexcept nogil:
    return <int64_t> (<uint64_t> u * <uint64_t> span >> 32)

# ``floor(span · u^skew)`` for ``u`` as a fraction of 2³²; ``span`` is at most 2³².
cdef inline uint64_t skewed(uint32_t u, uint64_t span, int skew) noexcept nogil:
    cdef uint64_t power = u
    while skew > 1:
        power = power * u >> 32
        skew -= 1
    return span * power >> 32

cdef inline int64_t draw(const range_t *r, uint32_t u) noexcept nogil:
    if r.span == 1:
        return r.low
    return r.low + <int64_t> skewed(u, r.span, r.skew) if r.skew else pick(r.table, r.half, u)

# The first number of the table whose limit is above ``u``. The steps have no branches to predict.
cdef inline int64_t pick(const column_t *c, int32_t half, uint64_t u) noexcept nogil:
    while half > 0:
        c += half if u >= c[half - 1].limit else 0
        half >>= 1
    return c.number

cdef inline range_t to_range(object value):
    cdef range_t r
    r.low = value.min
    r.span = value.max - value.min + 1
    r.skew = value.skew
    # kfuzz.corpora.quantities keeps these bytes.
    r.table = <const column_t *> PyBytes_AS_STRING(value.table)
    r.half = <int32_t> (len(value.table) // sizeof(column_t) // 2)
    return r

# A random number of 32 bits is below the result with probability ``share``.
cdef inline uint64_t threshold(double share):
    return <uint64_t> (share * 4294967296.0)

# Write ``size`` letters from a to p that depend only on ``key``. May overwrite up to seven bytes after them.
cdef inline uint8_t *put_letters(uint8_t *p, uint64_t key, int32_t size) noexcept nogil:
    cdef int32_t i
    cdef uint64_t word
    for i in range((size + 7) >> 3):
        word = kfuzz_be64((cell(key, <uint64_t> i) & 0x0f0f0f0f0f0f0f0fULL) + 0x6161616161616161ULL)
        memcpy(p + 8 * i, &word, 8)
    return p + size

# Write ``number`` in ``size`` decimal digits, with zeros in front.
cdef inline uint8_t *put_number(uint8_t *p, uint64_t number, int32_t size) noexcept nogil:
    cdef int32_t i
    for i in range(size - 1, -1, -1):
        p[i] = <uint8_t> (48 + number % 10)
        number //= 10
    return p + size

# The first or the second half of a UUID, version 4. Numbers that differ give UUIDs that differ.
cdef inline uint64_t uuid_half(uint64_t number, bint second) noexcept nogil:
    if second:
        return mix(~number) & 0x3fffffffffffffffULL | 0x8000000000000000ULL
    return mix(number) & ~(<uint64_t> 0xf000) | 0x4000

# Write a UUID, version 4, in 36 characters.
cdef inline uint8_t *put_uuid(uint8_t *p, uint64_t number) noexcept nogil:
    cdef int i
    cdef uint64_t word = uuid_half(number, False)
    for i in range(32):
        if i == 16:
            word = uuid_half(number, True)
        if i == 8 or i == 12 or i == 16 or i == 20:
            p[0] = c'-'
            p += 1
        p[0] = (<const uint8_t *> b"0123456789abcdef")[word >> (60 - 4 * (i & 15)) & 15]
        p += 1
    return p

# The number that the bytes of key ``at`` are made from.
cdef inline uint64_t key_of(uint64_t seed, uint64_t at, int form) noexcept nogil:
    return cell(seed, at) if form == KEY_LETTERS or form == KEY_UUID else at

# The number of bytes of key ``at``.
cdef inline int32_t size_of_key(uint64_t seed, uint64_t at, const range_t *size) noexcept nogil:
    return <int32_t> draw(size, low(cell(seed, at)))

# Write a key. May overwrite up to seven bytes after it, but only if it is letters.
cdef inline uint8_t *put_key(uint8_t *p, int form, uint64_t key, int32_t size) noexcept nogil:
    if form == KEY_DIGITS:
        return put_number(p, key, size)
    if form == KEY_LETTERS:
        return put_letters(p, key, size)
    if form == KEY_UUID:
        return put_uuid(p, key)
    return put_int32(p, <int32_t> key) if form == KEY_INT else put_int64(p, <int64_t> key)
