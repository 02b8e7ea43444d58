from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef uint32_t crc32c_of(const uint8_t *data, int64_t n) noexcept nogil
# The same of bytes that follow others, whose CRC-32C is ``crc``.
cdef uint32_t crc32c_on(uint32_t crc, const uint8_t *data, int64_t n) noexcept nogil

# The CRC-32C of A and B is crc32c_moved(crc of A, crc32c_over(bytes of B)) ^ crc of B; B has less than 4 GiB.
cdef uint32_t crc32c_over(int64_t n) noexcept nogil
cdef uint32_t crc32c_moved(uint32_t crc, uint32_t factor) noexcept nogil

# The same functions for CRC-32.
cdef uint32_t crc32_of(const uint8_t *data, int64_t n) noexcept nogil
cdef uint32_t crc32_on(uint32_t crc, const uint8_t *data, int64_t n) noexcept nogil
cdef uint32_t crc32_over(int64_t n) noexcept nogil
cdef uint32_t crc32_moved(uint32_t crc, uint32_t factor) noexcept nogil

# The same without this machine's fastest instructions. The fuzz targets compare them.
cdef uint32_t plain_crc32c_of(const uint8_t *data, int64_t n) noexcept nogil
cdef uint32_t plain_crc32_of(const uint8_t *data, int64_t n) noexcept nogil
