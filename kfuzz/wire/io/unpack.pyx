"""Decompresses ordinary streams, as writers make them; the interface is described in unpack.pyi.

It takes only one gzip member without optional fields, one lz4 frame without checksums of its content, or one zstd
frame. The stream must be whole and fill the payload. For these, ``kfuzz.records.codecs`` gives the same result. Streams
that are unusual, broken or beyond the size limit are left to that package, which alone implements Kafka's treatment of
them.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree as free
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t

from kfuzz.wire.io.checksum cimport crc32_of
from kfuzz.wire.io.buffer cimport HeldBuffer, hold

cdef extern from "unpack.h" nogil:
    bint kfuzz_use_zlib(const char *path)
    bint kfuzz_use_zlib_ng(const char *path)
    bint kfuzz_use_lz4(const char *path)
    bint kfuzz_use_zstd(const char *path)
    bint kfuzz_gunzip(decompressor_t *decompressor, const uint8_t *p, int64_t n, int64_t limit, uint32_t *crc)
    bint kfuzz_unlz4(decompressor_t *decompressor, const uint8_t *p, int64_t n, int64_t limit, bint covers_magic)
    bint kfuzz_unzstd(decompressor_t *decompressor, const uint8_t *p, int64_t n, int64_t limit)
    void kfuzz_free_decompressor(decompressor_t *decompressor)
    void kfuzz_show_spare(const decompressor_t *decompressor)
    void kfuzz_hide_spare(const decompressor_t *decompressor)

cdef enum:
    # The largest buffer that is kept from one scan to the next; a batch of Kafka's default limit fits.
    KEPT_BYTES = 1 << 20

cdef bint has_gzip = False
cdef bint has_lz4 = False
cdef bint has_zstd = False


def use(zlib_ng, zlib, lz4, zstd):
    global has_gzip, has_lz4, has_zstd
    has_gzip = zlib_ng is not None and kfuzz_use_zlib_ng(zlib_ng.encode()) or kfuzz_use_zlib(zlib.encode())
    has_lz4 = lz4 is not None and kfuzz_use_lz4(lz4.encode())
    has_zstd = zstd is not None and kfuzz_use_zstd(zstd.encode())


def codecs():
    return [codec for codec, is_there in ((GZIP, has_gzip), (LZ4, has_lz4), (ZSTD, has_zstd)) if is_there]


cdef bint unpack(decompressor_t *decompressor, int codec, const uint8_t *p, int64_t n, int64_t limit) noexcept nogil:
    """Decompress into ``decompressor``. False leaves the payload to Python, also if there is no memory."""
    cdef bint is_whole
    kfuzz_show_spare(decompressor)
    is_whole = unpack_open(decompressor, codec, p, n, limit)
    kfuzz_hide_spare(decompressor)
    return is_whole


cdef bint unpack_open(decompressor_t *decompressor, int codec, const uint8_t *p, int64_t n,
                      int64_t limit) noexcept nogil:
    cdef uint32_t crc = 0
    decompressor.size = 0
    if n >= INT32_MAX:
        return False  # unreachable: needs 2 GiB of contents
    if codec == GZIP:
        return (has_gzip and kfuzz_gunzip(decompressor, p, n, limit, &crc)
                and crc32_of(decompressor.out, decompressor.size) == crc)
    if codec == LZ4:
        return has_lz4 and kfuzz_unlz4(decompressor, p, n, limit, False)
    return codec == ZSTD and has_zstd and kfuzz_unzstd(decompressor, p, n, limit)


# --- from one scan to the next --------------------------------------------------------------------------------------

# Tools that no scan uses now; taking them clears this slot.
cdef decompressor_t spare = decompressor_t(NULL, 0, 0, NULL, NULL)


cdef void take_decompressor(decompressor_t *decompressor) noexcept:
    global spare
    decompressor[0] = spare
    spare = decompressor_t(NULL, 0, 0, NULL, NULL)


cdef void keep_decompressor(decompressor_t *decompressor) noexcept:
    """Keep the decompressor for the next scan, or free them if others are kept already."""
    global spare
    if decompressor.capacity > KEPT_BYTES:
        free(decompressor.out)
        decompressor.out = NULL
        decompressor.capacity = 0
    if spare.inflater == NULL and spare.zstd == NULL and spare.out == NULL:
        spare = decompressor[0]
    else:
        free_decompressor(decompressor)


cdef void free_decompressor(decompressor_t *decompressor) noexcept nogil:
    kfuzz_free_decompressor(decompressor)


def unpacked(int codec, data not None, int64_t limit):
    cdef HeldBuffer held = hold(data)
    cdef decompressor_t decompressor
    cdef bint is_whole
    take_decompressor(&decompressor)
    is_whole = unpack(&decompressor, codec, held.p, held.n, limit)
    try:
        if not is_whole:
            return None
        return PyBytes_FromStringAndSize(<const char *> decompressor.out, <Py_ssize_t> decompressor.size)
    finally:
        keep_decompressor(&decompressor)
