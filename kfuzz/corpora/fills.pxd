# Fills payloads in bulk. Each may overwrite some bytes after its end.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kfuzz.corpora.draws cimport cell, high, low, scaled
from kfuzz.wire.io.cursor cimport kfuzz_be64
from kfuzz.wire.io.splitmix cimport mix

cdef extern from "fill.h":
    enum:
        LANES "KFUZZ_LANES"
    void kfuzz_fill(uint8_t *p, int64_t n, const uint64_t *seeds, int printable) nogil

cdef enum:
    PHRASE_BYTES = 16
    # As in kfuzz.corpora.workload.
    FRESH_PERIOD = 512
    SHORT_PERIOD = 128

# Write ``n`` bytes that do not compress, or with ``printable`` random ones from 33 to 126. May overwrite up to 63 bytes
# after them.
cdef inline void fill_fresh(uint8_t *p, int64_t n, uint64_t seed, bint printable) noexcept nogil:
    cdef uint64_t seeds[LANES]
    cdef int i
    for i in range(LANES):
        seeds[i] = cell(seed, <uint64_t> i)
    kfuzz_fill(p, n, seeds, printable)

# Write ``n`` bytes made of 256 phrases. May overwrite up to 127 bytes after them.
cdef inline void fill_text(uint8_t *p, int64_t n, uint64_t seed, const uint8_t *phrases) noexcept nogil:
    cdef int64_t i
    cdef int _
    cdef uint64_t word
    for i in range((n + 127) >> 7):
        word = cell(seed, <uint64_t> i)
        for _ in range(8):
            memcpy(p, phrases + PHRASE_BYTES * (word & 0xff), PHRASE_BYTES)
            word >>= 8
            p += PHRASE_BYTES

# Write ``n`` bytes: in each ``period`` ``fresh`` bytes that repeat nothing, then 16 bytes again and again.
#
# The first period is cut off at a random place, so that short batches have their share of both. With ``phrases`` the
# bytes are text. May overwrite up to 63 bytes after them.
cdef inline void fill_mixed(uint8_t *p, int64_t n, uint64_t seed, int64_t period, int64_t fresh,
                            const uint8_t *phrases) noexcept nogil:
    cdef int64_t at = -scaled(high(cell(seed, 0)), period)
    cdef int64_t start, end
    cdef uint64_t one[2]
    cdef uint64_t u
    while at < n:
        seed = mix(seed + 1)
        start = max(at, 0)
        end = min(at + fresh, n)
        if start < end:
            fill_fresh(p + start, end - start, seed, phrases != NULL)
        u = cell(seed, FRESH_PERIOD)
        if phrases != NULL:
            memcpy(one, phrases + PHRASE_BYTES * (u & 0xff), PHRASE_BYTES)
        else:
            one[0] = kfuzz_be64(u)
            one[1] = one[0]
        start = max(at + fresh, 0)
        end = min(at + period, n)
        while start < end:
            memcpy(p + start, one, PHRASE_BYTES)
            start += PHRASE_BYTES
        at += period
