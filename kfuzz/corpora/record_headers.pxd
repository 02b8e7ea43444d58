# The headers of records: random ones, and those with the ids of schemas, which come first.
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kfuzz.corpora.draws cimport cell, draw, high, low, range_t, threshold, to_range
from kfuzz.wire.io.sink cimport put_bytes, put_varlong, size_of_varlong, span_t

cdef enum:
    HEADER_NAME_BYTES = 8
    HEADER_NAMES = 8
    # The purposes of random numbers; synth.pyx has the others.
    DRAW_HEADERS = 2
    DRAW_HEADER_SIZES = 4

# ``key`` and ``value`` are the headers with ids, as they are written, of keys and of values that are not null.
cdef struct headers_t:
    uint64_t share
    range_t count, size
    span_t key, value
    bint any

# ``ids`` has the bytes of the headers with ids, ``key_bytes`` of them for the key; the caller keeps it.
cdef inline headers_t to_headers(topic, bytes ids, int64_t key_bytes):
    cdef headers_t h
    h.share = threshold(topic.headers.share)
    h.count, h.size = to_range(topic.headers.count), to_range(topic.headers.size)
    h.key.p, h.key.n = <const uint8_t *> PyBytes_AS_STRING(ids), key_bytes
    h.value.p, h.value.n = h.key.p + key_bytes, <int64_t> len(ids) - key_bytes
    h.any = h.share != 0 or len(ids) > 0
    return h

# Set the number of headers of a record, and return their size; it has neither a key nor a value of a negative size.
cdef inline int64_t measure_headers(const headers_t *h, uint64_t seed, int32_t key_size, int32_t value_size,
                                    int32_t *count) noexcept nogil:
    cdef uint64_t u = cell(seed, DRAW_HEADERS)
    cdef int64_t total = 0
    cdef int64_t size
    cdef int32_t k
    count[0] = <int32_t> draw(&h.count, high(u)) if low(u) < h.share else 0
    for k in range(count[0]):
        size = draw(&h.size, low(cell(cell(seed, DRAW_HEADER_SIZES), <uint64_t> k)))
        total += 1 + HEADER_NAME_BYTES + size_of_varlong(size) + size
    if key_size >= 0 and h.key.n > 0:
        count[0] += 1
        total += h.key.n
    if value_size >= 0 and h.value.n > 0:
        count[0] += 1
        total += h.value.n
    return size_of_varlong(count[0]) + total

# Write ``count`` headers over a filled payload. The bytes skipped here are the values of random ones.
cdef inline uint8_t *put_headers(uint8_t *p, const headers_t *h, uint64_t seed, int32_t key_size, int32_t value_size,
                                 int32_t count) noexcept nogil:
    cdef const uint8_t *names = b"trace-idapp-nameschema-vencodingprioritylocationlanguagechecksum"
    cdef int64_t size
    cdef int32_t k
    cdef uint64_t u
    p = put_varlong(p, count)
    if key_size >= 0 and h.key.n > 0:
        p = put_bytes(p, h.key.p, h.key.n)
        count -= 1
    if value_size >= 0 and h.value.n > 0:
        p = put_bytes(p, h.value.p, h.value.n)
        count -= 1
    for k in range(count):
        u = cell(cell(seed, DRAW_HEADER_SIZES), <uint64_t> k)
        size = draw(&h.size, low(u))
        p = put_varlong(p, HEADER_NAME_BYTES)
        p = put_bytes(p, names + HEADER_NAME_BYTES * (high(u) % HEADER_NAMES), HEADER_NAME_BYTES)
        p = put_varlong(p, size) + size
    return p
