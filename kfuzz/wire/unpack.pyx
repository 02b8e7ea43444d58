"""Decompresses ordinary streams, as writers make them; the interface is described in unpack.pyi.

It takes only one gzip member without optional fields, one lz4 frame without checksums of its content, or one zstd
frame. The stream must be whole and fill the payload. For these, ``kfuzz.records.codecs`` gives the same result. Streams
that are unusual, broken or beyond the size limit are left to that package, which alone implements Kafka's treatment of
them.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree as free
from cpython.mem cimport PyMem_RawCalloc
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kfuzz.wire.arrays cimport resize
from kfuzz.wire.checksum cimport crc32_of
from kfuzz.wire.held cimport Held, hold

cdef extern from "unpack.h":
    ctypedef struct inflater_t "kfuzz_zlib_stream":
        const uint8_t *next_in
        unsigned avail_in
        uint8_t *next_out
        unsigned avail_out

    int KFUZZ_ZLIB_FINISH
    int KFUZZ_ZLIB_STREAM_END
    int (*kfuzz_inflate_init)(inflater_t *, int, const char *, int) nogil
    int (*kfuzz_inflate_reset)(inflater_t *) nogil
    int (*kfuzz_inflate)(inflater_t *, int) nogil
    int (*kfuzz_inflate_end)(inflater_t *) nogil
    int (*kfuzz_lz4_block)(const char *, char *, int, int) nogil
    void *(*kfuzz_zstd_new)() nogil
    size_t (*kfuzz_zstd_free)(void *) nogil
    size_t (*kfuzz_zstd_decompress)(void *, void *, size_t, const void *, size_t) nogil
    unsigned (*kfuzz_zstd_is_error)(size_t) nogil
    bint kfuzz_use_zlib(const char *path)
    bint kfuzz_use_lz4(const char *path)
    bint kfuzz_use_zstd(const char *path)
    uint32_t kfuzz_xxh32_short(const uint8_t *p, size_t n) nogil

cdef enum:
    GZIP_HEADER_BYTES = 10
    GZIP_TRAILER_BYTES = 8
    # The most bytes of output that deflate makes from one byte.
    GZIP_MOST = 1032
    LZ4_HEADER_BYTES = 7
    LZ4_MOST = 255
    ZSTD_BLOCK_BYTES = 128 * 1024
    # The largest window that a streaming decoder accepts by default, and so zstd-jni.
    ZSTD_WINDOW_MAX = (1 << 27) + 1
    # The largest buffer that is kept from one scan to the next; a batch of Kafka's default limit fits.
    KEPT_BYTES = 1 << 20

cdef bint has_gzip = False
cdef bint has_lz4 = False
cdef bint has_zstd = False


def use(zlib, lz4, zstd):
    global has_gzip, has_lz4, has_zstd
    has_gzip = zlib is not None and kfuzz_use_zlib(zlib.encode())
    has_lz4 = lz4 is not None and kfuzz_use_lz4(lz4.encode())
    has_zstd = zstd is not None and kfuzz_use_zstd(zstd.encode())


def codecs():
    return [codec for codec, is_there in ((GZIP, has_gzip), (LZ4, has_lz4), (ZSTD, has_zstd)) if is_there]


cdef uint32_t little32(const uint8_t *p) noexcept nogil:
    return p[0] | <uint32_t> p[1] << 8 | <uint32_t> p[2] << 16 | <uint32_t> p[3] << 24


cdef bint room_for(tools_t *tools, int64_t size) noexcept nogil:
    """Make room for ``size`` bytes in total. The caller has checked that the input can hold that many."""
    cdef int64_t capacity = max(size, 2 * tools.capacity)
    if size <= tools.capacity:
        return True
    if not resize(<void **> &tools.out, capacity, 1):
        return False
    tools.capacity = capacity
    return True


cdef bint unpack(tools_t *tools, int codec, const uint8_t *p, int64_t n, int64_t limit) noexcept nogil:
    """Decompress into ``tools``. False leaves the payload to Python, also if there is no memory."""
    tools.size = 0
    if n >= INT32_MAX:
        return False
    if codec == GZIP:
        return has_gzip and gunzip(tools, p, n, limit)
    if codec == LZ4:
        return has_lz4 and unlz4(tools, p, n, limit)
    return codec == ZSTD and has_zstd and unzstd(tools, p, n, limit)


cdef bint gunzip(tools_t *tools, const uint8_t *p, int64_t n, int64_t limit) noexcept nogil:
    """One gzip member without optional fields. Its trailer has the output's size modulo 2**32."""
    cdef inflater_t *z
    cdef const uint8_t *trailer = p + n - GZIP_TRAILER_BYTES
    cdef int64_t size
    if n < GZIP_HEADER_BYTES + GZIP_TRAILER_BYTES or p[0] != 0x1f or p[1] != 0x8b or p[2] != 8 or p[3] != 0:
        return False
    size = little32(trailer + 4)
    if size > limit or size > n * GZIP_MOST or not room_for(tools, size) or not ready_inflater(tools):
        return False
    z = <inflater_t *> tools.inflater
    z.next_in = p + GZIP_HEADER_BYTES
    z.avail_in = <unsigned> (n - GZIP_HEADER_BYTES - GZIP_TRAILER_BYTES)
    z.next_out = tools.out
    z.avail_out = <unsigned> size
    if kfuzz_inflate(z, KFUZZ_ZLIB_FINISH) != KFUZZ_ZLIB_STREAM_END or z.avail_in or z.avail_out:
        return False
    tools.size = size
    return crc32_of(tools.out, size) == little32(trailer)


cdef bint ready_inflater(tools_t *tools) noexcept nogil:
    cdef inflater_t *z = <inflater_t *> tools.inflater
    if z != NULL:
        return kfuzz_inflate_reset(z) == 0
    z = <inflater_t *> PyMem_RawCalloc(1, sizeof(inflater_t))
    # Raw deflate: this module reads the gzip header and trailer itself.
    if z == NULL or kfuzz_inflate_init(z, -15, b"1", sizeof(inflater_t)) != 0:
        free(z)
        return False
    tools.inflater = z
    return True


cdef bint unlz4(tools_t *tools, const uint8_t *p, int64_t n, int64_t limit) noexcept nogil:
    """One lz4 frame of independent blocks, with no content size and no checksum except the header's."""
    cdef int64_t at = LZ4_HEADER_BYTES
    cdef int64_t largest
    cdef int64_t most
    cdef int64_t size
    cdef bint is_stored
    if n < LZ4_HEADER_BYTES + 4 or little32(p) != 0x184d2204 or p[4] != 0x60 or p[5] & 0x8f or p[5] < 0x40:
        return False
    if p[6] != (kfuzz_xxh32_short(p + 4, 2) >> 8 & 0xff):
        return False
    largest = (<int64_t> 1) << (8 + 2 * (p[5] >> 4))
    while True:
        if n - at < 4:
            return False
        size = little32(p + at) & 0x7fffffff
        is_stored = p[at + 3] & 0x80
        at += 4
        if size == 0:
            return not is_stored and at == n
        if size > largest or size > n - at:
            return False
        most = size if is_stored else min(largest, size * LZ4_MOST + 16)
        most = min(most, limit - tools.size)
        if not room_for(tools, tools.size + most):
            return False
        if not is_stored:
            most = kfuzz_lz4_block(<const char *> p + at, <char *> tools.out + tools.size, <int> size, <int> most)
        elif most == size:
            memcpy(tools.out + tools.size, p + at, size)
        else:
            return False
        # Kafka takes a block without bytes as the end.
        if most <= 0:
            return False
        tools.size += most
        at += size


cdef bint unzstd(tools_t *tools, const uint8_t *p, int64_t n, int64_t limit) noexcept nogil:
    """One zstd frame without a dictionary."""
    cdef int64_t most = zstd_most(p, n)
    cdef size_t came
    if most < 0 or not room_for(tools, max(min(most, limit), 1)):
        return False
    if tools.zstd == NULL:
        tools.zstd = kfuzz_zstd_new()
        if tools.zstd == NULL:
            return False
    came = kfuzz_zstd_decompress(tools.zstd, tools.out, <size_t> min(most, limit), p, <size_t> n)
    if kfuzz_zstd_is_error(came):
        return False
    tools.size = <int64_t> came
    return True


cdef int64_t zstd_most(const uint8_t *p, int64_t n) noexcept nogil:
    """The most bytes of output from the single frame in ``[p, p + n)``; -1 if the bytes are not exactly one frame."""
    cdef int64_t at = 5
    cdef int64_t most = 0
    cdef int64_t window = 0
    cdef int64_t size
    cdef uint32_t word
    cdef int descriptor
    cdef int width
    if n < 9 or little32(p) != <uint32_t> 0xfd2fb528:
        return -1
    descriptor = p[4]
    # The frame needs a dictionary, and there are none here.
    if descriptor & 3:
        return -1
    width = 1 << (descriptor >> 6)
    if not descriptor & 0x20:
        window = (<int64_t> 8 + (p[5] & 7)) << (7 + (p[5] >> 3))
        at += 1
        width = 0 if width == 1 else width
    elif width >= 4:
        # A single-segment frame has no window descriptor: its window is its content size.
        window = ZSTD_WINDOW_MAX + 1 if width == 8 or n < 13 else little32(p + at)
    at += width
    if window > ZSTD_WINDOW_MAX:
        return -1
    while True:
        if n - at < 3:
            return -1
        word = p[at] | <uint32_t> p[at + 1] << 8 | <uint32_t> p[at + 2] << 16
        at += 3
        size = word >> 3
        if word >> 1 & 3 == 3:
            return -1
        most += ZSTD_BLOCK_BYTES if word >> 1 & 3 == 2 else size
        at += 1 if word >> 1 & 3 == 1 else size
        if at > n:
            return -1
        if word & 1:
            break
    at += 4 if descriptor & 4 else 0
    return most if at == n else -1


# --- from one scan to the next --------------------------------------------------------------------------------------

# Tools that no scan uses now; taking them clears this slot.
cdef tools_t spare = tools_t(NULL, 0, 0, NULL, NULL)


cdef void take_tools(tools_t *tools) noexcept:
    global spare
    tools[0] = spare
    spare = tools_t(NULL, 0, 0, NULL, NULL)


cdef void keep_tools(tools_t *tools) noexcept:
    """Keep the tools for the next scan, or free them if others are kept already."""
    global spare
    if tools.capacity > KEPT_BYTES:
        free(tools.out)
        tools.out = NULL
        tools.capacity = 0
    if spare.inflater == NULL and spare.zstd == NULL and spare.out == NULL:
        spare = tools[0]
    else:
        free_tools(tools)


cdef void free_tools(tools_t *tools) noexcept nogil:
    free(tools.out)
    if tools.inflater != NULL:
        kfuzz_inflate_end(<inflater_t *> tools.inflater)
        free(tools.inflater)
    if tools.zstd != NULL:
        kfuzz_zstd_free(tools.zstd)


def unpacked(int codec, data not None, int64_t limit):
    cdef Held held = hold(data)
    cdef tools_t tools
    cdef bint is_whole
    take_tools(&tools)
    is_whole = unpack(&tools, codec, held.p, held.n, limit)
    try:
        return PyBytes_FromStringAndSize(<const char *> tools.out, <Py_ssize_t> tools.size) if is_whole else None
    finally:
        keep_tools(&tools)
