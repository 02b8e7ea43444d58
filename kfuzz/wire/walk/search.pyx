"""Finds batches after damage; search.pyi describes the interface."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kfuzz.wire.io.checksum cimport (
    crc32_moved, crc32_on, crc32_over, crc32c_moved, crc32c_on, crc32c_over,
)
from kfuzz.wire.io.cursor cimport load32
from kfuzz.wire.io.format cimport (
    AT_ATTRIBUTES, AT_CRC, AT_MAGIC, AT_RECORD_COUNT, CODEC_MASK, HEADER_SIZE, KEY_AT_V0, KEY_AT_V1, LAST_MAGIC,
    LENGTHS_BYTES, LOG_OVERHEAD, MESSAGE_AT_ATTRIBUTES, MESSAGE_AT_CRC,
)
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.records.framing cimport message_size

cdef extern from "search.h":
    enum:
        PLACES "KFUZZ_PLACES"
        SMALLEST_SIZE "KFUZZ_SMALLEST_SIZE"
    uint64_t kfuzz_places(const uint8_t *p, int count, uint8_t high) nogil
    int kfuzz_lowest(uint64_t bits) nogil

cdef enum:
    NOWHERE = -1
    NO_MEMORY = -2
    SIGN = 0x80
    # The search looks for signals after so many bytes.
    STEP_BYTES = 1 << 20
    # Sums are at distances of at least so many bytes, and there are at most so many of them.
    DISTANCE_BITS = 6
    SUMS_MOST = 1 << 22
    # So many bytes may be read for checksums before sums are made.
    SPARE_BYTES = 1 << 20


@cython.final
cdef class Search:
    """See ``search.pyi``.

    A checksum of wrong bytes costs as much as that of a batch, and bytes may look like headers of long batches again
    and again. So checksums are taken from the bytes only as long as they read no more bytes than there are. After that
    they are computed from the checksums of two beginnings of the data, which need few bytes each: at each multiple of
    a distance, the checksum of all bytes before it is kept in ``sums``, one list for each of the two kinds.
    """

    cdef HeldBuffer held
    cdef int64_t left
    cdef int distance_bits
    cdef uint32_t *sums[2]

    def __cinit__(self, data not None):
        self.held = hold(data)
        self.left = self.held.n + SPARE_BYTES
        self.distance_bits = DISTANCE_BITS
        while self.held.n >> self.distance_bits >= SUMS_MOST:
            self.distance_bits += 1

    def __dealloc__(self):
        PyMem_RawFree(self.sums[0])
        PyMem_RawFree(self.sums[1])

    def holds(self, int64_t at):
        cdef int found
        if at < 0 or at > self.held.n:
            raise IndexError(f"no batch can begin at {at} in {self.held.n} bytes")
        with nogil:
            found = self.is_batch(at, False)
        if found < 0:
            raise MemoryError
        return found > 0

    def find(self, int64_t start, int64_t end):
        cdef int64_t n = self.held.n
        cdef int64_t at = start
        cdef int64_t last, stop
        cdef int64_t found = NOWHERE
        if start < 0 or end > n:
            raise IndexError(f"the bytes from {start} to {end} are not inside {n} bytes")
        last = min(end, n - SMALLEST_SIZE + 1)
        while at < last and found == NOWHERE:
            stop = min(at + STEP_BYTES, last)
            with nogil:
                while at < stop and found == NOWHERE:
                    found = self.first_match(at, min(PLACES, stop - at))
                    at += PLACES
            PyErr_CheckSignals()
        if found == NO_MEMORY:
            raise MemoryError  # unreachable: only if memory runs out
        return None if found == NOWHERE else found

    def after(self, int64_t bad, int64_t size, int64_t end):
        cdef int64_t next_at = bad + size
        if size <= 0 or (next_at != self.held.n and not self.holds(next_at)):
            found = self.find(bad + 1, end)
            return end if found is None else found
        if self.is_plain(bad) and not self.holds(bad):
            found = self.find(bad + 1, next_at)
            if found is not None and self.leads_to(found, next_at):
                return found
        return next_at

    cdef bint is_plain(self, int64_t at) noexcept nogil:
        """Whether the batch at ``at`` is not compressed: a compressed message has others inside, to its last byte."""
        cdef const uint8_t *p = self.held.p + at
        return not p[AT_ATTRIBUTES + 1 if p[AT_MAGIC] == LAST_MAGIC else MESSAGE_AT_ATTRIBUTES] & CODEC_MASK

    cdef bint leads_to(self, int64_t at, int64_t end):
        """Whether sound batches, one after the other, are all that is between ``at`` and ``end``."""
        while at < end and self.holds(at):
            at += message_size(self.held.p + at, end - at) or end
        return at == end

    cdef int64_t first_match(self, int64_t at, int count) noexcept nogil:
        """The first of ``count`` places from ``at`` on at which a batch begins; NOWHERE or NO_MEMORY."""
        cdef int64_t longest = self.held.n - at - LOG_OVERHEAD
        cdef uint64_t places = kfuzz_places(self.held.p + at, count, <uint8_t> min(longest >> 24, SIGN - 1))
        cdef int64_t place
        cdef int found
        while places:
            place = at + kfuzz_lowest(places)
            places &= places - 1
            found = self.is_batch(place, True)
            if found:
                return place if found > 0 else NO_MEMORY
        return NOWHERE

    cdef int is_batch(self, int64_t at, bint ordinary) noexcept nogil:
        """Whether a whole batch with a right CRC begins at ``at``, and if asked, one with an ordinary header. -1 if
        memory runs out.
        """
        cdef const uint8_t *p = self.held.p + at
        # As get_frame judges it, which would note each of these places.
        cdef int64_t size = message_size(p, self.held.n - at)
        cdef int magic = p[AT_MAGIC] if size else 0
        if size == 0 or size > INT32_MAX or magic > LAST_MAGIC or magic == LAST_MAGIC and size < HEADER_SIZE:
            return False
        if ordinary and not is_ordinary(p, size, magic):
            return False
        if magic < LAST_MAGIC:
            return self.has_checksum(1, at + MESSAGE_AT_CRC + 4, at + size, load32(p + MESSAGE_AT_CRC))
        return self.has_checksum(0, at + AT_ATTRIBUTES, at + size, load32(p + AT_CRC))

    cdef int has_checksum(self, int kind, int64_t start, int64_t end, uint32_t stored) noexcept nogil:
        """Whether the bytes from ``start`` to ``end`` have this checksum: 0 is CRC-32C, 1 is CRC-32."""
        cdef uint32_t before
        if end - start <= self.left:
            self.left -= end - start
            return sum_on(kind, 0, self.held.p + start, end - start) == stored
        if self.sums[kind] == NULL and not self.make_sums(kind):
            return -1  # unreachable: only if memory runs out
        before = self.sum_before(kind, start)
        if kind:
            before = crc32_moved(before, crc32_over(end - start))
        else:
            before = crc32c_moved(before, crc32c_over(end - start))
        return before ^ self.sum_before(kind, end) == stored

    cdef uint32_t sum_before(self, int kind, int64_t end) noexcept nogil:
        """The checksum of all bytes before ``end``."""
        cdef int64_t whole = end >> self.distance_bits
        cdef int64_t start = whole << self.distance_bits
        return sum_on(kind, self.sums[kind][whole], self.held.p + start, end - start)

    cdef bint make_sums(self, int kind) noexcept nogil:
        cdef int64_t count = self.held.n >> self.distance_bits
        cdef int64_t i
        cdef uint32_t *sums = <uint32_t *> PyMem_RawMalloc(<size_t> (count + 1) * sizeof(uint32_t))
        if sums == NULL:
            return False  # unreachable: only if memory runs out
        self.sums[kind] = sums
        sums[0] = 0
        for i in range(count):
            sums[i + 1] = sum_on(kind, sums[i], self.held.p + (i << self.distance_bits), 1 << self.distance_bits)
        return True


cdef uint32_t sum_on(int kind, uint32_t sum, const uint8_t *p, int64_t n) noexcept nogil:
    """The checksum of the ``n`` bytes at ``p`` after others, whose checksum is ``sum``: 0 is CRC-32C, 1 is CRC-32."""
    return crc32_on(sum, p, n) if kind else crc32c_on(sum, p, n)


cdef bint is_ordinary(const uint8_t *p, int64_t size, int magic) noexcept nogil:
    """Whether the lengths and the count in a header are as Kafka writes them, after ``kfuzz_places``."""
    cdef int64_t key_at
    cdef int64_t key_length
    cdef int64_t value_length
    if magic == LAST_MAGIC:
        return not p[AT_RECORD_COUNT] & SIGN
    # A message ends where its value does.
    key_at = KEY_AT_V0 if magic == 0 else KEY_AT_V1
    if size < key_at + LENGTHS_BYTES:
        return False
    key_length = <int32_t> load32(p + key_at)
    if not -1 <= key_length <= size - key_at - LENGTHS_BYTES:
        return False
    value_length = <int32_t> load32(p + key_at + 4 + max(key_length, 0))
    return value_length >= -1 and key_at + LENGTHS_BYTES + max(key_length, 0) + max(value_length, 0) == size


def find_batch(data not None, int64_t start, int64_t end):
    return Search(data).find(start, end)
