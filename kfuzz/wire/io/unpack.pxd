# Decompresses ordinary streams without Python; unpack.pyx says which ones.
from libc.stdint cimport int64_t, uint8_t

cdef extern from "decompressor.h":
    cdef enum:
        GZIP "KFUZZ_GZIP"
        LZ4 "KFUZZ_LZ4"
        ZSTD "KFUZZ_ZSTD"

    ctypedef struct inflater_t "kfuzz_zlib_stream":
        pass

    ctypedef struct decompressor_t "kfuzz_decompressor":
        uint8_t *out
        int64_t size
        int64_t capacity
        inflater_t *inflater
        void *zstd

cdef bint unpack(decompressor_t *decompressor, int codec, const uint8_t *p, int64_t n, int64_t limit) noexcept nogil
cdef void free_decompressor(decompressor_t *decompressor) noexcept nogil
cdef void keep_decompressor(decompressor_t *decompressor) noexcept
cdef void take_decompressor(decompressor_t *decompressor) noexcept
