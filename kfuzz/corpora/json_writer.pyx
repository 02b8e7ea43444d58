"""Writes JSON values by the steps of a program. ``kfuzz.corpora.json_values`` makes the program from a workload."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfuzz.corpora.draws cimport (
    KEY_INT,
    KEY_LONG,
    cell,
    draw,
    high,
    low,
    put_key,
    put_number,
    put_uuid,
    range_t,
    scaled,
    threshold,
    to_range,
)
from kfuzz.wire.io.sink cimport put_int8
from kfuzz.wire.io.splitmix cimport mix

cdef enum:
    # As in kfuzz.corpora.json_values.
    END = 0
    COUNTER = 1
    NUMBER = 2
    CHOICE = 3
    WORDS = 4
    MILLIS = 5
    DATE = 6
    UUID = 7
    KEY = 8
    PICK = 9
    TURN = 10
    DAY_MS = 86400000

cdef struct step_t:
    int kind
    int32_t text_at, text_size       # the text before the value
    uint64_t nulls
    range_t numbers
    int64_t times                    # of the offset
    int decimals
    int32_t choices_at, choice_count

cdef struct choice_t:
    uint64_t limit                   # a random number of 32 bits below it chooses this or an earlier one
    int32_t text_at, text_size


cdef class JsonWriter:
    """See ``json_writer.pyi``."""

    def __cinit__(self, program):
        cdef step_t *s
        cdef choice_t *c
        cdef int at = 0
        self.texts = program.texts
        self.text_bytes = <const uint8_t *> PyBytes_AS_STRING(self.texts)
        self.step_count = <int> len(program.steps)
        self.steps = <step_t *> PyMem_Calloc(self.step_count, sizeof(step_t))
        self.choices = <choice_t *> PyMem_Calloc(max(1, sum(len(step.choices) for step in program.steps)),
                                                 sizeof(choice_t))
        if self.steps == NULL or self.choices == NULL:
            raise MemoryError
        for number, step in enumerate(program.steps):
            s = &self.steps[<int> number]
            s.kind, s.text_at, s.text_size = step.kind, step.text_at, step.text_size
            s.nulls = threshold(step.null_share)
            s.numbers = to_range(step.numbers)
            s.times, s.decimals = step.times, step.decimals
            s.choices_at, s.choice_count = at, <int> len(step.choices)
            for limit, text_at, text_size in step.choices:
                c = &self.choices[at]
                c.limit, c.text_at, c.text_size = limit, text_at, text_size
                at += 1

    def __dealloc__(self):
        PyMem_Free(self.steps)
        PyMem_Free(self.choices)

    cdef uint8_t *write(self, uint8_t *p, uint64_t seed, int64_t offset, int64_t timestamp, uint64_t key,
                        int32_t key_size, int key_form) noexcept nogil:
        cdef const step_t *s
        cdef const choice_t *choices
        cdef uint64_t u
        cdef int i
        for i in range(self.step_count):
            s = &self.steps[i]
            p = put_text(p, self.text_bytes + s.text_at, s.text_size)
            if s.kind == END:
                break
            choices = self.choices + s.choices_at
            u = cell(seed, <uint64_t> i)
            if s.nulls != 0 and high(u) < s.nulls:
                p = put_text(p, b"null", 4)
            elif s.kind == COUNTER:
                # Numbers of 53 bits are exact in every JSON reader.
                p = put_decimal(p, <int64_t> (<uint64_t> s.numbers.low + <uint64_t> offset * <uint64_t> s.times
                                              & 0x1fffffffffffffULL), 0)
            elif s.kind == NUMBER:
                p = put_decimal(p, draw(&s.numbers, low(u)), s.decimals)
            elif s.kind == CHOICE:
                p = put_choice(p, self.text_bytes, choices, s.choice_count, low(u))
            elif s.kind == PICK:
                p = put_pick(p, self.text_bytes, choices, s.choice_count, low(u))
            elif s.kind == TURN:
                choices += offset % s.choice_count
                p = put_text(p, self.text_bytes + choices.text_at, choices.text_size)
            elif s.kind == WORDS:
                p = put_words(p, self.text_bytes, choices, s, u)
            elif s.kind == MILLIS:
                p = put_decimal(p, timestamp, 0)
            elif s.kind == DATE:
                p = put_date(p, timestamp)
            elif s.kind == KEY and key_size < 0:
                p = put_text(p, b"null", 4)
            elif s.kind == KEY and (key_form == KEY_INT or key_form == KEY_LONG):
                p = put_decimal(p, <int64_t> key, 0)
            else:
                p = put_int8(p, c'"')
                p = put_uuid(p, u) if s.kind == UUID else put_key(p, key_form, key, key_size)
                p = put_int8(p, c'"')
        return p


cdef inline uint8_t *put_text(uint8_t *p, const uint8_t *text, int64_t size) noexcept nogil:
    memcpy(p, text, <size_t> size)
    return p + size


cdef inline uint8_t *put_choice(uint8_t *p, const uint8_t *texts, const choice_t *c, int32_t count,
                                uint64_t u) noexcept nogil:
    """Write the first of the ``count`` choices at ``c`` whose limit is above ``u``."""
    cdef int32_t half
    # Few are found faster one by one.
    while count > 16:
        half = count // 2
        if u >= c[half - 1].limit:
            c += half
            count -= half
        else:
            count = half
    while u >= c.limit:
        c += 1
    return put_text(p, texts + c.text_at, c.text_size)


cdef inline uint8_t *put_pick(uint8_t *p, const uint8_t *texts, const choice_t *c, int32_t count,
                              uint32_t u) noexcept nogil:
    """Write one of the ``count`` choices at ``c``; each is equally likely."""
    c += scaled(u, count)
    return put_text(p, texts + c.text_at, c.text_size)


cdef uint8_t *put_words(uint8_t *p, const uint8_t *texts, const choice_t *c, const step_t *s,
                        uint64_t u) noexcept nogil:
    """Write words from the choices at ``c``, each equally likely, with a space between them, in quotes."""
    cdef int64_t count = draw(&s.numbers, low(u))
    cdef int64_t i
    p = put_int8(p, c'"')
    for i in range(count):
        if i > 0:
            p = put_int8(p, c' ')
        p = put_pick(p, texts, c, s.choice_count, high(cell(mix(u), <uint64_t> i)))
    return put_int8(p, c'"')


cdef uint8_t *put_decimal(uint8_t *p, int64_t number, int decimals) noexcept nogil:
    """Write ``number``, with a point in front of its last ``decimals`` digits."""
    cdef uint64_t rest = <uint64_t> number
    cdef uint64_t left
    cdef int32_t size = 1
    if number < 0:
        p = put_int8(p, c'-')
        rest = 0 - rest
    left = rest
    while left >= 10:
        left //= 10
        size += 1
    if decimals == 0:
        return put_number(p, rest, size)
    size = max(size, decimals + 1)
    put_number(p + 1, rest, size)
    for left in range(<uint64_t> (size - decimals)):
        p[left] = p[left + 1]
    p[size - decimals] = c'.'
    return p + size + 1


cdef uint8_t *put_date(uint8_t *p, int64_t timestamp) noexcept nogil:
    """Write a date as in RFC 3339, in UTC with milliseconds, in quotes."""
    # The last moment is that of the year 9999.
    cdef int64_t ms = min(max(timestamp, 0), 253402300799999LL)
    cdef int64_t days = ms // DAY_MS
    cdef int64_t era, day_of_era, year_of_era, day_of_year, month, year
    ms %= DAY_MS
    # Years that begin in March end with the leap day. 719468 days lie between 0000-03-01 and 1970-01-01.
    days += 719468
    era = days // 146097
    day_of_era = days % 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    year = year_of_era + 400 * era + (1 if month >= 10 else 0)
    p = put_part(p, c'"', year, 4)
    p = put_part(p, c'-', month + 3 if month < 10 else month - 9, 2)
    p = put_part(p, c'-', day_of_year - (153 * month + 2) // 5 + 1, 2)
    p = put_part(p, c'T', ms // 3600000, 2)
    p = put_part(p, c':', ms // 60000 % 60, 2)
    p = put_part(p, c':', ms // 1000 % 60, 2)
    p = put_part(p, c'.', ms % 1000, 3)
    return put_int8(put_int8(p, c'Z'), c'"')


cdef inline uint8_t *put_part(uint8_t *p, uint8_t before, int64_t number, int32_t size) noexcept nogil:
    return put_number(put_int8(p, before), <uint64_t> number, size)
