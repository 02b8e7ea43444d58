# Columns to record batches; column_writer.pyi describes the interface.
cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef extern from "rows.h":
    # How a column says where its bytes are: by views, or not at all.
    int KFUZZ_VIEWS
    int KFUZZ_ABSENT
    # A view holds up to this many bytes itself.
    int KFUZZ_INLINE_BYTES
    ctypedef struct column_t "kfuzz_column":
        int kind
        const uint8_t *valid
        int64_t first_bit
        const uint8_t *places
        int64_t rows
        const uint8_t **data
        const int64_t *sizes
        int64_t data_count
    # The n bytes of a row (n is -1 for null), and how many bytes may be read from p on.
    ctypedef struct piece_t "kfuzz_piece":
        const uint8_t *p
        int64_t n
        int64_t readable
    # The bytes of row i; False if they are not within the column's data.
    bint kfuzz_get_piece(const column_t *column, int64_t i, piece_t *out) nogil
    bint kfuzz_bit_at(const uint8_t *bits, int64_t i) nogil
    int64_t kfuzz_int32_at(const uint8_t *numbers, int64_t i) nogil
    int64_t kfuzz_int64_at(const uint8_t *numbers, int64_t i) nogil
    ctypedef struct table_t "kfuzz_table":
        column_t keys
        column_t values
        column_t header_keys
        column_t header_values
        const uint8_t *timestamps
        const uint8_t *offsets
        const uint8_t *header_ends
        const uint8_t *timestamps_valid
        int64_t timestamps_bit
        const uint8_t *headers_valid
        int64_t headers_bit

cdef const uint8_t *start_of(object buffer, int64_t at, int64_t size) except NULL


@cython.final
cdef class Bytes:
    cdef column_t column
    cdef const uint8_t **data
    cdef int64_t *sizes
    cdef list held


# The row that cannot be written. `invalid`: the columns are not valid Arrow data; otherwise the row does not fit.
cdef struct fault_t:
    int64_t row
    bint invalid

cdef class ColumnWriter:
    cdef table_t table
    cdef list held
    cdef bint wide
    cdef readonly int64_t length

    cdef int check(self, str name, bint good) except -1
    cdef const uint8_t *numbers(self, str name, array, int64_t width, int64_t more) except? NULL
    cdef const uint8_t *bits(self, array, int64_t *first) except? NULL
    cdef int64_t timestamp(self, int64_t i) noexcept nogil
    cdef int64_t header_count(self, int64_t i) noexcept nogil
    cdef int64_t room(self, int64_t first, int64_t last) noexcept nogil
    cdef uint8_t *put_batch(self, uint8_t *p, uint8_t *end, int64_t first, int64_t last, int64_t base_offset,
                            int64_t base_timestamp, int64_t *largest, fault_t *fault) noexcept nogil
    cdef uint8_t *put_rows(self, const uint8_t *begin, uint8_t *p, uint8_t *end, int64_t batch_first, int64_t first,
                           int64_t last, int64_t base_offset, int64_t base_timestamp, int64_t *largest,
                           fault_t *fault) noexcept nogil
    cdef object refusal(self, const fault_t *fault)
