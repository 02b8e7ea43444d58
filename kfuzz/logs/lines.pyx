"""Rows of Arrow batches as lines of JSON; lines.pyi describes the interface.

The loop over rows is compiled and holds no lock. It checks the room before each row: a byte takes at most six bytes of
JSON, in headers eight. A row that takes too much room for that is written in pieces.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, int16_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcmp, memcpy

import json

from kfuzz.errors import UsageError

from kfuzz.wire.columns.writer cimport (
    Bytes,
    column_t,
    kfuzz_bit_at,
    kfuzz_get_piece,
    kfuzz_int32_at,
    kfuzz_int64_at,
    piece_t,
    start_of,
)
from kfuzz.wire.io.cursor cimport find_uvarint, unzigzag, valid_utf8
from kfuzz.wire.io.format cimport VARINT

cdef extern from "Python.h":
    bint Py_UNICODE_ISPRINTABLE(uint32_t char) nogil

cdef enum:
    # How a column's values are stored and written.
    NUMBER16
    NUMBER32
    NUMBER64
    TRUTH
    TEXT
    # Text that is JSON already.
    JSON
    # The bytes of a record's headers.
    HEADERS
    # A call ends after the row with which its lines reach this size.
    CHUNK_BYTES = 1 << 20
    # The most bytes of JSON for one byte, for a number, and around a value.
    BYTES_EACH = 6
    # A header has two bytes or more besides its key and value, and brackets and a comma around it.
    HEADER_BYTES_EACH = 8
    NUMBER_BYTES = 20
    AROUND = 16
    # A row that takes more room than this is written in pieces, each of which has so many bytes of a text.
    LARGE_BYTES = 8 << 20
    PIECE_BYTES = 128 << 10
    # The parts of a cut row that are shown: so many bytes of each text, and so many headers.
    CUT_BYTES = 256
    CUT_HEADERS = 64

KINDS = {"int16": NUMBER16, "int32": NUMBER32, "int64": NUMBER64, "timestamp[ms, tz=UTC]": NUMBER64, "bool": TRUTH,
         "string": TEXT, "binary": TEXT, "binary_view": TEXT}

cdef struct field_t:
    int kind
    # The name as JSON, with the text before and after it.
    const uint8_t *name
    int64_t name_bytes
    # Numbers and truth values from the first row on; the bits of those that are not null.
    const uint8_t *numbers
    int64_t first_bit
    const uint8_t *valid
    int64_t valid_bit
    # Texts, or the bytes of headers.
    column_t texts

cdef const uint8_t *DIGITS = b"0123456789abcdef"
cdef uint64_t ONES = 0x0101010101010101ULL
cdef uint64_t HIGHS = 0x8080808080808080ULL


cdef inline bint is_visible(uint64_t word) noexcept nogil:
    """Whether all of the eight bytes are visible ASCII."""
    return not ((word | (word - ONES * 0x20) | (word + ONES)) & HIGHS)


cdef inline bint is_plain(uint64_t word) noexcept nogil:
    """Whether none of the eight bytes needs a closer look: all are visible ASCII, and neither quote nor backslash."""
    cdef uint64_t quotes = word ^ (ONES * 0x22)
    cdef uint64_t slashes = word ^ (ONES * 0x5C)
    # As there, a byte's high bit is set if it is below the number that was subtracted, or if a neighbour borrowed from
    # it; in the sum, if it is 0x7f or above.
    return is_visible(word) and not (((quotes - ONES) | (slashes - ONES)) & HIGHS)


cdef inline int64_t multibyte(const uint8_t *p, int64_t n) noexcept nogil:
    """The size of the UTF-8 sequence of two to four bytes at ``p``; 0 if there is none. It is the shortest form of its
    character, no surrogate, and not above U+10FFFF.
    """
    cdef uint8_t first = p[0]
    if 0xC2 <= first <= 0xDF:
        return 2 if n >= 2 and p[1] >> 6 == 2 else 0
    if first >> 4 == 0xE:
        if n < 3 or p[1] >> 6 != 2 or p[2] >> 6 != 2:
            return 0
        if (first == 0xE0 and p[1] < 0xA0) or (first == 0xED and p[1] >= 0xA0):
            return 0
        return 3
    if 0xF0 <= first <= 0xF4:
        if n < 4 or p[1] >> 6 != 2 or p[2] >> 6 != 2 or p[3] >> 6 != 2:
            return 0
        if (first == 0xF0 and p[1] < 0x90) or (first == 0xF4 and p[1] >= 0x90):
            return 0
        return 4
    return 0


cdef inline uint8_t *put_escaped(uint8_t *out, uint8_t byte) noexcept nogil:
    """A quote, a backslash or a control character in JSON's form."""
    out[0] = 0x5C
    if byte == 0x22 or byte == 0x5C:
        out[1] = byte
        return out + 2
    if byte == 0x0A or byte == 0x0D or byte == 0x09:
        out[1] = 0x6E if byte == 0x0A else 0x72 if byte == 0x0D else 0x74
        return out + 2
    out[1] = 0x75
    out[2] = out[3] = 0x30
    out[4] = DIGITS[byte >> 4]
    out[5] = DIGITS[byte & 15]
    return out + 6


cdef inline uint8_t *put_unit(uint8_t *out, uint32_t unit) noexcept nogil:
    """A number of 16 bits as JSON's escape."""
    cdef int i
    out[0] = 0x5C
    out[1] = 0x75
    for i in range(4):
        out[2 + i] = DIGITS[unit >> (12 - 4 * i) & 15]
    return out + 6


cdef inline uint8_t *put_multibyte(uint8_t *out, const uint8_t *p, int64_t size) noexcept nogil:
    """The character of ``size`` bytes, or its escape if it is invisible: a terminal could obey it."""
    cdef uint32_t char = p[0] & (0x1F if size == 2 else 0x0F if size == 3 else 0x07)
    cdef int64_t i
    for i in range(1, size):
        char = char << 6 | (p[i] & 0x3F)
    if Py_UNICODE_ISPRINTABLE(char):
        memcpy(out, p, <size_t> size)
        return out + size
    if char < 0x10000:
        return put_unit(out, char)
    # JSON writes it as two.
    char -= 0x10000
    return put_unit(put_unit(out, 0xD800 | char >> 10), 0xDC00 | (char & 0x3FF))


cdef uint8_t *put_text(uint8_t *out, const uint8_t *p, int64_t n) noexcept nogil:
    """The bytes as a JSON text if they are UTF-8, otherwise NULL. Needs room for six bytes each, and for 16 more."""
    out[0] = 0x22
    out = put_characters(out + 1, p, n, False)
    if out == NULL:
        return NULL
    out[0] = 0x22
    return out + 1


cdef uint8_t *put_characters(uint8_t *out, const uint8_t *p, int64_t n, bint is_json) noexcept nogil:
    """The same without the quotes around it. JSON (``is_json``) keeps its own quotes and escapes."""
    cdef int64_t i = 0
    cdef int64_t size
    cdef uint64_t word
    while i < n:
        if n - i >= 8:
            memcpy(&word, p + i, 8)
            if is_visible(word) if is_json else is_plain(word):
                memcpy(out, &word, 8)
                out += 8
                i += 8
                continue
        # A byte at a time to the end of what made the word special.
        if p[i] >= 0x80:
            size = multibyte(p + i, n - i)
            if size == 0:
                return NULL
            out = put_multibyte(out, p + i, size)
            i += size
        elif p[i] < 0x20 or p[i] == 0x7F or not is_json and (p[i] == 0x22 or p[i] == 0x5C):
            out = put_escaped(out, p[i])
            i += 1
        else:
            out[0] = p[i]
            out += 1
            i += 1
    return out


cdef uint8_t *put_digits(uint8_t *out, const uint8_t *p, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        out[0] = DIGITS[p[i] >> 4]
        out[1] = DIGITS[p[i] & 15]
        out += 2
    return out


cdef uint8_t *put_hex(uint8_t *out, const uint8_t *p, int64_t n) noexcept nogil:
    memcpy(out, b'{"hex":"', 8)
    out = put_digits(out + 8, p, n)
    memcpy(out, b'"}', 2)
    return out + 2


cdef inline uint8_t *put_piece(uint8_t *out, const piece_t *piece) noexcept nogil:
    """Needs room for six times the piece's bytes, and for 16 more."""
    cdef uint8_t *end
    if piece.n < 0:
        memcpy(out, b"null", 4)
        return out + 4
    end = put_text(out, piece.p, piece.n)
    return end if end != NULL else put_hex(out, piece.p, piece.n)


cdef inline void get_entry(const column_t *texts, int64_t i, piece_t *piece) noexcept nogil:
    """An entry of a column, for which ``room_for`` has looked whether it is within the data."""
    if not kfuzz_get_piece(texts, i, piece):
        piece.p = NULL
        piece.n = -1


cdef inline uint8_t *put_number(uint8_t *out, int64_t number) noexcept nogil:
    cdef uint8_t digits[NUMBER_BYTES]
    cdef uint64_t left = <uint64_t> number
    cdef int64_t n = 0
    if number < 0:
        out[0] = 0x2D
        out += 1
        left = 0 - left
    while True:
        digits[n] = <uint8_t> (0x30 + left % 10)
        n += 1
        left //= 10
        if left == 0:
            break
    while n:
        n -= 1
        out[0] = digits[n]
        out += 1
    return out


cdef const uint8_t *take_piece(const uint8_t *p, const uint8_t *end, piece_t *piece) noexcept nogil:
    """The key or the value of a header at ``p``: its length, then its bytes. Returns its end, or NULL."""
    cdef uint64_t raw
    cdef int size = find_uvarint(p, end - p, VARINT, &raw)
    cdef int64_t n = unzigzag(<uint32_t> raw)
    if size < 0 or n > end - p - size:
        return NULL
    piece.p = p + size
    piece.n = max(n, -1)
    return p + size + max(n, 0)


cdef const uint8_t *take_header(const uint8_t *p, const uint8_t *end, piece_t *key, piece_t *value) noexcept nogil:
    p = take_piece(p, end, key)
    if p == NULL:
        return NULL
    return take_piece(p, end, value)


def values_of(column not None, bytes name=None):
    """See ``lines.pyi``."""
    cdef Bytes entries = Bytes(column)
    cdef piece_t piece
    cdef list made = []
    cdef int64_t row
    for row in range(len(column)):
        piece.n = -1
        if name is None:
            get_entry(&entries.column, row, &piece)
        else:
            has_header(&entries.column, row, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), NULL, -1, &piece)
        made.append(piece.p[:piece.n] if piece.n >= 0 else None)
    return made


def matching(column not None, bytes wanted, bytes name=None):
    """See ``lines.pyi``."""
    cdef Bytes entries = Bytes(column)
    cdef int64_t rows = len(column)
    cdef bytearray made = bytearray(rows)
    cdef uint8_t *out = <uint8_t *> PyByteArray_AS_STRING(made)
    cdef const char *p = NULL if wanted is None else PyBytes_AS_STRING(wanted)
    cdef int64_t n = -1 if wanted is None else PyBytes_GET_SIZE(wanted)
    cdef const char *header = NULL if name is None else PyBytes_AS_STRING(name)
    cdef int64_t size = 0 if name is None else PyBytes_GET_SIZE(name)
    cdef piece_t piece
    cdef int64_t row
    with nogil:
        for row in range(rows):
            if header != NULL:
                out[row] = has_header(&entries.column, row, header, size, p, n, &piece)
            else:
                get_entry(&entries.column, row, &piece)
                out[row] = piece.n == n and not memcmp(piece.p, p, <size_t> n)
    return made


cdef bint has_header(const column_t *column, int64_t row, const char *name, int64_t size, const char *wanted, int64_t n,
                     piece_t *value) noexcept nogil:
    """Whether a row has a header with this name, and with the wanted value unless ``n`` is negative. ``value`` becomes
    that of the last one.
    """
    cdef piece_t raw
    cdef piece_t key
    cdef piece_t one
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef bint found = False
    get_entry(column, row, &raw)
    p, end = raw.p, raw.p + max(raw.n, 0)
    while p < end:
        p = take_header(p, end, &key, &one)
        if p == NULL:
            break  # unreachable: the reader has judged the record
        if key.n == size and not memcmp(key.p, name, <size_t> size) and (
                n < 0 or one.n == n and not memcmp(one.p, wanted, <size_t> n)):
            value[0] = one
            found = True
    return found


@cython.final
cdef class Lines:
    """See ``lines.pyi``."""

    cdef list names
    cdef list kinds
    # Keeps the columns of the current batch in memory.
    cdef list held
    cdef field_t *fields
    cdef int64_t count
    cdef uint8_t *buffer
    cdef int64_t capacity
    cdef int64_t large_bytes

    def __cinit__(self, schema, int64_t large_bytes=LARGE_BYTES):
        self.large_bytes = large_bytes
        cdef int64_t i
        self.names = []
        self.kinds = []
        for field in schema:
            kind = KINDS.get(str(field.type))
            if field.name == "headers" and kind == TEXT:
                kind = HEADERS
            elif field.name.removesuffix("_json") in ("key", "value") and str(field.type) == "string":
                kind = JSON
            if kind is None:
                raise UsageError(f"column {field.name} is {field.type}, which has no form in JSON here")
            self.names.append((',' if self.names else '{').encode() + json.dumps(field.name).encode() + b":")
            self.kinds.append(kind)
        self.count = len(self.names)
        self.fields = <field_t *> PyMem_Malloc(<size_t> (self.count or 1) * sizeof(field_t))
        if self.fields == NULL:
            raise MemoryError
        for i in range(self.count):
            self.fields[i].kind = self.kinds[i]
            self.fields[i].name = <const uint8_t *> PyBytes_AS_STRING(self.names[i])
            self.fields[i].name_bytes = PyBytes_GET_SIZE(self.names[i])

    def __dealloc__(self):
        PyMem_Free(self.fields)
        PyMem_Free(self.buffer)

    def of(self, batch not None, int64_t first=0, int64_t most=INT64_MAX):
        cdef int64_t rows = batch.num_rows
        cdef int64_t row = first
        cdef int64_t lines = 0
        cdef int64_t at = 0
        cdef int64_t needed
        self.reserve(CHUNK_BYTES)
        self.begin(batch, first)
        while row < rows and lines < most and at < CHUNK_BYTES:
            needed = self.room_for(row)
            if needed < 0:
                raise ValueError(f"row {row} is not valid Arrow data")
            if needed > self.large_bytes:
                break
            self.reserve(at + needed)
            with nogil:
                # As many rows as the room is enough for.
                while (row < rows and lines < most and at < CHUNK_BYTES
                       and 0 <= needed <= min(self.capacity - at, self.large_bytes)):
                    at = self.put_row(self.buffer + at, row) - self.buffer
                    lines += 1
                    row += 1
                    needed = self.room_for(row) if row < rows else 0
        self.held = []
        return PyMemoryView_FromMemory(<char *> self.buffer, at, PyBUF_READ), lines, row

    def pieces(self, batch not None, int64_t row, bint is_cut=False):
        cdef field_t *field
        cdef piece_t piece
        cdef int64_t i
        cdef list held
        self.reserve(2 * CHUNK_BYTES)
        if not 0 <= row < batch.num_rows:
            raise ValueError(f"row {row} does not exist")
        self.begin(batch, row)
        # The next batch replaces those of the object.
        held, self.held = self.held, []
        if self.room_for(row) < 0:
            raise ValueError(f"row {row} is not valid Arrow data")
        for i in range(self.count):
            field = &self.fields[i]
            if field.kind == TEXT:
                yield field.name[:field.name_bytes]
                get_entry(&field.texts, row, &piece)
                yield from self.text_pieces(<uintptr_t> piece.p, piece.n, is_cut)
            elif field.kind == JSON and not self.is_null(field, row):
                yield field.name[:field.name_bytes]
                get_entry(&field.texts, row, &piece)
                yield from self.text_pieces(<uintptr_t> piece.p, piece.n, False, True)
            elif field.kind == HEADERS and not self.is_null(field, row):
                yield field.name[:field.name_bytes]
                yield from self.header_pieces(i, row, is_cut)
            else:
                yield self.buffer[:self.put_field(self.buffer, field, row) - self.buffer]
        yield b"}\n"
        del held

    def text_pieces(self, uintptr_t address, int64_t n, bint is_cut, bint is_json=False):
        """A key or a value in pieces; JSON (``is_json``) is never cut."""
        cdef const uint8_t *p = <const uint8_t *> address
        cdef bint as_text
        cdef int64_t end
        cdef piece_t piece
        if not is_json and (n <= PIECE_BYTES and not is_cut or n <= CUT_BYTES):
            piece.p, piece.n = p, n
            yield self.buffer[:put_piece(self.buffer, &piece) - self.buffer]
            return
        with nogil:
            as_text = is_json or valid_utf8(p, n)
        yield b"" if is_json else b'"' if as_text else b'{"hex":"'
        while n:
            end = min(n, CUT_BYTES if is_cut else PIECE_BYTES)
            # A character is not divided.
            while as_text and end < n and p[end] >> 6 == 2:
                end -= 1
            if as_text:
                yield self.buffer[:put_characters(self.buffer, p, end, is_json) - self.buffer]
            else:
                yield self.buffer[:put_digits(self.buffer, p, end) - self.buffer]
            p += end
            n = 0 if is_cut else n - end
        yield b"" if is_json else b'"' if as_text else b'"}'

    def header_pieces(self, int64_t column, int64_t row, bint is_cut):
        """The headers of a row in pieces."""
        cdef piece_t raw
        cdef piece_t key
        cdef piece_t value
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef int64_t at = 0
        cdef int64_t number = 0
        get_entry(&self.fields[column].texts, row, &raw)
        p, end = raw.p, raw.p + max(raw.n, 0)
        yield b"["
        while p < end and not (is_cut and number == CUT_HEADERS):
            p = take_header(p, end, &key, &value)
            if p == NULL:
                raise ValueError(f"the headers of row {row} are not those of a record")
            if number:
                self.buffer[at] = 0x2C
                at += 1
            number += 1
            if not is_cut and max(key.n, 0) + max(value.n, 0) <= PIECE_BYTES:
                at = put_header(self.buffer + at, &key, &value) - self.buffer
                if at < CHUNK_BYTES:
                    continue
                yield self.buffer[:at]
            else:
                yield self.buffer[:at] + b"["
                yield from self.text_pieces(<uintptr_t> key.p, key.n, is_cut)
                yield b","
                yield from self.text_pieces(<uintptr_t> value.p, value.n, is_cut)
                yield b"]"
            at = 0
        yield self.buffer[:at] + b"]"

    cdef int begin(self, batch, int64_t first) except -1:
        """Look at the columns of a batch."""
        cdef int64_t i
        if batch.num_columns != self.count:
            raise ValueError(f"the batch has {batch.num_columns} columns, not {self.count}")
        if first < 0:
            raise ValueError(f"row {first} does not exist")
        self.held = []
        for i in range(self.count):
            self.look_at(&self.fields[i], batch.column(i), batch.num_rows)
        return 0

    cdef int look_at(self, field_t *field, column, int64_t rows) except -1:
        """Find the column's buffers, and check that they have all rows."""
        cdef int64_t first = column.offset
        cdef list buffers = column.buffers()
        cdef int64_t width
        cdef Bytes texts
        self.held.append(buffers)
        field.valid = NULL
        if column.null_count and rows:
            field.valid = start_of(buffers[0], 0, (first + rows + 7) / 8)
            field.valid_bit = first
        if field.kind in (TEXT, JSON, HEADERS):
            texts = Bytes(column)
            self.held.append(texts)
            field.texts = texts.column
        elif field.kind == TRUTH:
            field.numbers = start_of(buffers[1], 0, (first + rows + 7) / 8)
            field.first_bit = first
        else:
            width = 2 if field.kind == NUMBER16 else 4 if field.kind == NUMBER32 else 8
            field.numbers = start_of(buffers[1], width * first, width * rows)
        return 0

    cdef int reserve(self, int64_t size) except -1:
        cdef uint8_t *larger
        if size <= self.capacity:
            return 0
        size = max(size, 2 * <int64_t> CHUNK_BYTES)
        larger = <uint8_t *> PyMem_Realloc(self.buffer, <size_t> size)
        if larger == NULL:
            raise MemoryError
        self.buffer = larger
        self.capacity = size
        return 0

    cdef int64_t room_for(self, int64_t row) noexcept nogil:
        """The most bytes that the row takes; negative if its bytes are not within the data."""
        cdef const field_t *field
        cdef piece_t piece
        cdef int64_t i
        cdef int64_t size = AROUND
        for i in range(self.count):
            field = &self.fields[i]
            size += field.name_bytes + NUMBER_BYTES + AROUND
            if field.kind == TEXT or field.kind == JSON or field.kind == HEADERS:
                if not kfuzz_get_piece(&field.texts, row, &piece):
                    return -1
                size += (HEADER_BYTES_EACH if field.kind == HEADERS else BYTES_EACH) * max(piece.n, 0)
        return size

    cdef inline bint is_null(self, const field_t *field, int64_t row) noexcept nogil:
        return field.valid != NULL and not kfuzz_bit_at(field.valid, field.valid_bit + row)

    cdef uint8_t *put_row(self, uint8_t *out, int64_t row) noexcept nogil:
        """Write the row at ``out``, where there is ``room_for`` it. Returns the end."""
        cdef int64_t i
        for i in range(self.count):
            out = self.put_field(out, &self.fields[i], row)
        memcpy(out, b"}\n", 2)
        return out + 2

    cdef inline uint8_t *put_field(self, uint8_t *out, const field_t *field, int64_t row) noexcept nogil:
        cdef piece_t piece
        cdef int16_t number16
        cdef bint truth
        memcpy(out, field.name, <size_t> field.name_bytes)
        out += field.name_bytes
        if field.kind == TEXT:
            get_entry(&field.texts, row, &piece)
            return put_piece(out, &piece)
        if self.is_null(field, row):
            memcpy(out, b"null", 4)
            return out + 4
        if field.kind == JSON:
            get_entry(&field.texts, row, &piece)
            return put_characters(out, piece.p, piece.n, True)
        if field.kind == HEADERS:
            return put_headers(out, field, row)
        if field.kind == TRUTH:
            truth = kfuzz_bit_at(field.numbers, field.first_bit + row)
            memcpy(out, b"true" if truth else b"false", 4 if truth else 5)
            return out + (4 if truth else 5)
        if field.kind == NUMBER64:
            return put_number(out, kfuzz_int64_at(field.numbers, row))
        if field.kind == NUMBER32:
            return put_number(out, kfuzz_int32_at(field.numbers, row))
        memcpy(&number16, field.numbers + 2 * row, 2)
        return put_number(out, number16)


cdef inline uint8_t *put_header(uint8_t *out, const piece_t *key, const piece_t *value) noexcept nogil:
    out[0] = 0x5B
    out = put_piece(out + 1, key)
    out[0] = 0x2C
    out = put_piece(out + 1, value)
    out[0] = 0x5D
    return out + 1


cdef uint8_t *put_headers(uint8_t *out, const field_t *field, int64_t row) noexcept nogil:
    cdef piece_t raw
    cdef piece_t key
    cdef piece_t value
    cdef const uint8_t *p
    cdef const uint8_t *end
    out[0] = 0x5B
    out += 1
    get_entry(&field.texts, row, &raw)
    if raw.n > 0:
        p, end = raw.p, raw.p + raw.n
        while p < end:
            if p > raw.p:
                out[0] = 0x2C
                out += 1
            p = take_header(p, end, &key, &value)
            if p == NULL:
                break  # unreachable: the reader has judged the record
            out = put_header(out, &key, &value)
    out[0] = 0x5D
    return out + 1
