# Compresses without Python, at Kafka's default levels; pack.pyi says what.
from libc.stdint cimport int64_t, uint8_t

# A writer's compressors; each is created when it is first needed. The caller sets ``zstd`` to NULL before, and calls
# ``free_packer`` at the end.
cdef struct packer_t:
    void *zstd

# The most bytes that ``n`` bytes can take; -1 if the codec is left to Python.
cdef int64_t packed_bound(int codec, int64_t n) noexcept nogil
# Compress into ``out``, which has room for ``packed_bound``. Returns the size, or -1 if the library fails.
cdef int64_t pack(packer_t *packer, int codec, const uint8_t *p, int64_t n, uint8_t *out, int64_t room) noexcept nogil
cdef void free_packer(packer_t *packer) noexcept nogil
