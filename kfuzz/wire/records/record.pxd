from libc.stdint cimport int32_t, int64_t, uint8_t

cdef class Record:
    cdef int64_t c_offset
    cdef int64_t c_timestamp
    # A part that has not been read yet is in `source`, a bytes object, at its offset from `base`. Then key_unread and
    # value_unread are the length plus 1 and headers_unread is the number of headers. If they are 0, c_key, c_value and
    # c_headers hold the Python objects.
    cdef object source
    cdef const uint8_t *base
    cdef int32_t key_at
    cdef int32_t key_unread
    cdef int32_t value_at
    cdef int32_t value_unread
    cdef int32_t headers_at
    cdef int32_t headers_unread
    cdef int c_attributes
    cdef bint has_timestamp
    cdef object c_key
    cdef object c_value
    cdef object c_headers

    cdef object get_key(self)
    cdef object get_value(self)
    cdef object get_headers(self)

cdef inline void drop_parts(Record record) noexcept:
    """Drop the objects of key, value and headers."""
    record.c_key = None
    record.c_value = None
    record.c_headers = None

cdef inline bint is_record(object given) noexcept:
    return type(given) is Record

cdef tuple read_headers(const uint8_t *p, const uint8_t *end, int32_t count)
