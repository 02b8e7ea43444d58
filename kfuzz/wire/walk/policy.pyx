"""A role's rules for a batch; the interface is described in policy.pxd."""


cdef class Policy:
    def __cinit__(self):
        self.largest_timestamp = -1

    cdef bint data(self, const uint8_t *p, int64_t n, report_t *report) noexcept nogil:
        """Judge the whole data before its first batch is read."""
        return True

    cdef bint is_end(self, const uint8_t *p, int64_t left) noexcept nogil:
        """Whether the last ``left`` bytes are a partial tail to this role, even if a consumer would refuse them."""
        return False

    cdef bint frame(self, const uint8_t *p, int64_t size, int magic, report_t *report) noexcept nogil:
        """Judge a whole batch before its CRC is checked."""
        return True

    cdef bint header(self, const header_t *h, report_t *report) noexcept nogil:
        """Judge the header of a batch of magic 2 whose CRC is right and whose codec exists."""
        return True

    cdef bint batch(self, const batch_t *b, report_t *report) noexcept nogil:  # unreachable: every policy has its own
        """Judge a batch whose records have been read."""
        return True  # unreachable: every policy has its own

    cdef bint end(self, int64_t at, report_t *report) noexcept nogil:
        """Judge the end of the last batch, at byte ``at`` of the data."""
        return True


cdef class Choice(Policy):
    pass
