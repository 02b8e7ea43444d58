# Decompresses ordinary streams without Python; unpack.pyx says which ones.
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    GZIP = 1
    LZ4 = 3
    ZSTD = 4

# A scan's decompressors and output buffer; each is created when it is first needed.
cdef struct tools_t:
    uint8_t *out
    int64_t size               # bytes of output
    int64_t capacity
    void *inflater
    void *zstd

cdef bint unpack(tools_t *tools, int codec, const uint8_t *p, int64_t n, int64_t limit) noexcept nogil
cdef void free_tools(tools_t *tools) noexcept nogil
cdef void keep_tools(tools_t *tools) noexcept
cdef void take_tools(tools_t *tools) noexcept
