"""Compresses payloads without Python; the interface is described in pack.pyi."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.unpack cimport LZ4, ZSTD

cdef extern from "pack.h":
    ctypedef struct preferences_t "kfuzz_lz4_preferences":
        int block_size
        int block_mode

    int KFUZZ_LZ4_64KIB
    int KFUZZ_LZ4_INDEPENDENT
    size_t (*kfuzz_lz4_bound)(size_t, const preferences_t *) nogil
    size_t (*kfuzz_lz4_compress)(void *, size_t, const void *, size_t, const preferences_t *) nogil
    unsigned (*kfuzz_lz4_is_error)(size_t) nogil
    void *(*kfuzz_zstd_new)() nogil
    size_t (*kfuzz_zstd_free)(void *) nogil
    size_t (*kfuzz_zstd_bound)(size_t) nogil
    size_t (*kfuzz_zstd_compress)(void *, void *, size_t, const void *, size_t) nogil
    unsigned (*kfuzz_zstd_is_error)(size_t) nogil
    bint kfuzz_pack_by_lz4(const char *path)
    bint kfuzz_pack_by_zstd(const char *path)

cdef bint has_lz4 = False
cdef bint has_zstd = False
# Everything else is 0: no checksums, no content size, the default level.
cdef preferences_t as_kafka
memset(&as_kafka, 0, sizeof(as_kafka))
as_kafka.block_size, as_kafka.block_mode = KFUZZ_LZ4_64KIB, KFUZZ_LZ4_INDEPENDENT


def use(lz4, zstd):
    global has_lz4, has_zstd
    has_lz4 = lz4 is not None and kfuzz_pack_by_lz4(lz4.encode())
    has_zstd = zstd is not None and kfuzz_pack_by_zstd(zstd.encode())


def codecs():
    return [codec for codec, is_there in ((LZ4, has_lz4), (ZSTD, has_zstd)) if is_there]


cdef int64_t packed_bound(int codec, int64_t n) noexcept nogil:
    if codec == LZ4 and has_lz4:
        return <int64_t> kfuzz_lz4_bound(<size_t> n, &as_kafka)
    if codec == ZSTD and has_zstd:
        return <int64_t> kfuzz_zstd_bound(<size_t> n)
    return -1


cdef int64_t pack(packer_t *packer, int codec, const uint8_t *p, int64_t n, uint8_t *out, int64_t room) noexcept nogil:
    cdef size_t size
    if codec == LZ4:
        size = kfuzz_lz4_compress(out, <size_t> room, p, <size_t> n, &as_kafka)
        return -1 if kfuzz_lz4_is_error(size) else <int64_t> size
    if packer.zstd == NULL:
        packer.zstd = kfuzz_zstd_new()
        if packer.zstd == NULL:
            return -1  # unreachable: only if memory runs out
    size = kfuzz_zstd_compress(packer.zstd, out, <size_t> room, p, <size_t> n)
    return -1 if kfuzz_zstd_is_error(size) else <int64_t> size


cdef void free_packer(packer_t *packer) noexcept nogil:
    if packer.zstd != NULL:
        kfuzz_zstd_free(packer.zstd)
        packer.zstd = NULL


def packed(int codec, data not None):
    cdef HeldBuffer held = hold(data)
    cdef packer_t packer
    cdef int64_t room = packed_bound(codec, held.n)
    cdef int64_t size
    cdef bytes out
    cdef uint8_t *start
    if room < 0:
        return None
    packer.zstd = NULL
    out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> room)
    start = <uint8_t *> PyBytes_AS_STRING(out)
    with nogil:
        size = pack(&packer, codec, held.p, held.n, start, room)
        free_packer(&packer)
    if size < 0:
        raise MemoryError  # unreachable: only if memory runs out
    return out[:size]
