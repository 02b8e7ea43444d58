from libc.stdint cimport int64_t

cdef class Record:
    cdef int64_t c_offset
    cdef int64_t c_timestamp
    cdef bint has_timestamp
    cdef int c_attributes
    cdef public object key
    cdef public object value
    cdef public object headers
