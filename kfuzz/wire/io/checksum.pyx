"""The two checksums of the record formats, under one name each: ``crc32c`` for magic 2, ``crc32`` for magic 0 and 1.

Both names are the libraries' own functions, which already use the processor's CRC instructions. Loops without the GIL
call ``crc32c_of`` and ``crc32_of``; these call the library if the kernel cannot run.
"""

from zlib import crc32

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint32_t

from crc32c import crc32c

from kfuzz.wire.io.buffer cimport HeldBuffer, hold

__all__ = ["crc32", "crc32_joined", "crc32c", "crc32c_joined", "kernel", "zlib_kernel"]

cdef extern from "crc32c.h":
    int KFUZZ_CRC_THERE
    int KFUZZ_CRC_256_THERE
    void kfuzz_crc_init() nogil
    uint32_t kfuzz_crc32c(uint32_t crc, const uint8_t *p, size_t n) nogil
    uint32_t kfuzz_crc32c_256(uint32_t crc, const uint8_t *p, size_t n) nogil

cdef extern from "crc32.h":
    int KFUZZ_CRC32_THERE
    void kfuzz_crc32_init() nogil
    uint32_t kfuzz_crc32(uint32_t crc, const uint8_t *p, size_t n) nogil
    uint32_t kfuzz_crc32_plain(uint32_t crc, const uint8_t *p, size_t n) nogil

cdef extern from "crc_join.h":
    int KFUZZ_CRC_JOIN_THERE
    void kfuzz_crc_join_init(int by_product) nogil
    uint32_t kfuzz_crc_over(uint32_t n) nogil
    uint32_t kfuzz_crc_times(uint32_t crc, uint32_t factor) nogil
    uint32_t kfuzz_crc32_over(uint32_t n) nogil
    uint32_t kfuzz_crc32_times(uint32_t crc, uint32_t factor) nogil

cdef enum:
    # From this length on zlib is faster than the tables, even though calling it needs the GIL.
    LONG_BYTES = 2048

cdef extern from "portable.h":
    bint kfuzz_portable()

cdef bint there = KFUZZ_CRC_THERE
cdef bint there_256 = KFUZZ_CRC_256_THERE and not kfuzz_portable()
cdef bint zlib_there = KFUZZ_CRC32_THERE and not kfuzz_portable()
if there:
    kfuzz_crc_init()
kfuzz_crc32_init()
kfuzz_crc_join_init(KFUZZ_CRC_JOIN_THERE and not kfuzz_portable())


cdef uint32_t by_library(uint32_t crc, const uint8_t *data, int64_t n) with gil:  # unreachable: for old processors
    return crc32c(PyMemoryView_FromMemory(<char *> data, n, PyBUF_READ), crc)  # unreachable: for old processors


cdef uint32_t crc32c_of(const uint8_t *data, int64_t n) noexcept nogil:
    return crc32c_on(0, data, n)


cdef uint32_t crc32c_on(uint32_t crc, const uint8_t *data, int64_t n) noexcept nogil:
    if there_256:
        return kfuzz_crc32c_256(crc, data, <size_t> n)
    if there:
        return kfuzz_crc32c(crc, data, <size_t> n)
    return by_library(crc, data, n)  # unreachable: for processors without CRC-32C


cdef uint32_t crc32c_over(int64_t n) noexcept nogil:
    return kfuzz_crc_over(<uint32_t> n)


cdef uint32_t crc32c_moved(uint32_t crc, uint32_t factor) noexcept nogil:
    return kfuzz_crc_times(crc, factor)


def crc32c_joined(uint32_t first, uint32_t second, uint32_t second_bytes):
    return crc32c_moved(first, crc32c_over(second_bytes)) ^ second


cdef uint32_t by_zlib(uint32_t crc, const uint8_t *data, int64_t n) with gil:  # unreachable: for old processors
    return crc32(PyMemoryView_FromMemory(<char *> data, n, PyBUF_READ), crc)


cdef uint32_t crc32_of(const uint8_t *data, int64_t n) noexcept nogil:
    return crc32_on(0, data, n)


cdef uint32_t crc32_on(uint32_t crc, const uint8_t *data, int64_t n) noexcept nogil:
    if zlib_there:
        return kfuzz_crc32(crc, data, <size_t> n)
    return kfuzz_crc32_plain(crc, data, <size_t> n) if n < LONG_BYTES else by_zlib(crc, data, n)


cdef uint32_t crc32_over(int64_t n) noexcept nogil:
    return kfuzz_crc32_over(<uint32_t> n)


cdef uint32_t crc32_moved(uint32_t crc, uint32_t factor) noexcept nogil:
    return kfuzz_crc32_times(crc, factor)


def crc32_joined(uint32_t first, uint32_t second, uint32_t second_bytes):
    return crc32_moved(first, crc32_over(second_bytes)) ^ second


cdef uint32_t plain_crc32c_of(const uint8_t *data, int64_t n) noexcept nogil:
    return kfuzz_crc32c(0, data, <size_t> n) if there else by_library(0, data, n)


cdef uint32_t plain_crc32_of(const uint8_t *data, int64_t n) noexcept nogil:
    return kfuzz_crc32_plain(0, data, <size_t> n)


def zlib_kernel(data not None, uint32_t value=0):
    cdef HeldBuffer held = hold(data)
    return kfuzz_crc32(value, held.p, <size_t> held.n) if zlib_there else None


def zlib_tables(data not None, uint32_t value=0):
    cdef HeldBuffer held = hold(data)
    return kfuzz_crc32_plain(value, held.p, <size_t> held.n)


def kernel(data not None, uint32_t value=0, int bits=64):
    cdef HeldBuffer held = hold(data)
    cdef size_t n = <size_t> held.n
    if bits == 64:
        return kfuzz_crc32c(value, held.p, n) if there else None
    return kfuzz_crc32c_256(value, held.p, n) if there_256 else None
