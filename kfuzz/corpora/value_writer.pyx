"""Writes values by the steps of a program; ``kfuzz.corpora.programs`` says what the steps are."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kfuzz.corpora.draws cimport (
    KEY_INT,
    KEY_LONG,
    cell,
    draw,
    high,
    key_of,
    low,
    put_key,
    put_letters,
    put_number,
    put_uuid,
    range_t,
    scaled,
    size_of_key,
    skewed,
    threshold,
    to_range,
    uuid_half,
)
from kfuzz.wire.io.scratch cimport Scratch, reserve
from kfuzz.wire.io.sink cimport put_bytes, put_int8, put_int64, put_uvarint, put_varlong
from kfuzz.wire.io.splitmix cimport mix

cdef enum:
    # As in kfuzz.corpora.programs: numbers, then texts, then what leads to other steps.
    COUNTER = 0
    NUMBER = 1
    MOMENT = 2
    ITEM = 3
    CHOICE = 4
    PICK = 5
    TURN = 6
    WORDS = 7
    DATE = 8
    UUID = 9
    KEY = 10
    LETTERS = 11
    RAW = 12
    REFERENCE = 13
    TEXT = 14
    BRANCH = 15
    LOOP = 16
    SCOPE = 17
    SINCE = 18
    ROW = 19
    # The encodings of numbers and of the lengths of texts.
    JSON = 0
    NO_LENGTH = 1
    ZIGZAG = 2
    VARINT = 3
    LITTLE = 4
    FLOAT = 5
    DOUBLE = 6
    BIG = 7
    BIG_SIZED = 8
    # The form of a turn that the kind of change decides.
    BY_CHANGE = 1
    BILLION = 1000000000
    DAY_MS = 86400000
    DATE_BYTES = 24
    # An unsigned varint has at most these bytes.
    LENGTH_BYTES = 10

cdef struct step_t:
    int kind, form
    int32_t text_at, text_size       # the text before the value
    uint64_t nulls
    range_t numbers
    uint64_t mask                    # of a counter
    int64_t times, divide, modulo    # of the offset or the timestamp
    double scale
    int decimals                     # digits after the point
    int cut_at, size                 # the part of a date, the steps of a row; bytes of a number or of a length
    int32_t choices_at, choice_count
    int next                         # the step after a text, or after the steps inside
    bint omits                       # nothing is written for 0

cdef struct choice_t:
    uint64_t limit                   # a random number of 32 bits below it chooses this or an earlier one
    int32_t text_at, text_size
    int target                       # the step that follows, in a branch

# The keys that a reference names, as kfuzz.corpora.programs.Target has them.
cdef struct target_t:
    uint64_t seed
    int form
    range_t size
    int64_t cardinality, beyond, dangling, start_ms, longest_ms, rate, units_per_offset, partitions


cdef class ValueWriter:
    """See ``value_writer.pyi``."""

    def __cinit__(self, program):
        cdef step_t *s
        cdef choice_t *c
        cdef target_t *t
        cdef int at = 0
        self.program, self.texts = program, program.texts
        self.text_bytes = <const uint8_t *> PyBytes_AS_STRING(self.texts)
        self.step_count = <int> len(program.steps)
        self.steps = <step_t *> PyMem_Calloc(self.step_count, sizeof(step_t))
        self.choices = <choice_t *> PyMem_Calloc(max(1, sum(len(step.choices) for step in program.steps)),
                                                 sizeof(choice_t))
        self.targets = <target_t *> PyMem_Calloc(self.step_count, sizeof(target_t))
        if self.steps == NULL or self.choices == NULL or self.targets == NULL:
            raise MemoryError
        for number, step in enumerate(program.steps):
            s = &self.steps[<int> number]
            s.kind, s.form, s.text_at, s.text_size = step.kind, step.form, step.text_at, step.text_size
            s.nulls = threshold(step.null_share)
            s.numbers, s.mask = to_range(step.numbers), step.mask
            s.times, s.divide, s.modulo = step.times, step.divide, step.modulo
            s.scale, s.decimals = <double> 10 ** step.decimals, step.decimals
            s.cut_at, s.size, s.next, s.omits = step.cut_at, step.size, step.next, step.omits
            s.choices_at, s.choice_count = at, <int> len(step.choices)
            if (target := step.target) is not None:
                t = &self.targets[<int> number]
                t.seed, t.form, t.size, t.dangling = target.seed, target.form, to_range(target.size), target.dangling
                t.cardinality, t.beyond, t.partitions = target.cardinality, target.beyond, target.partitions
                t.start_ms, t.rate, t.units_per_offset = target.start_ms, target.rate, target.units_per_offset
                t.longest_ms = target.longest_ms
            for limit, text_at, text_size, target in step.choices:
                c = &self.choices[at]
                c.limit, c.text_at, c.text_size, c.target = limit, text_at, text_size, target
                at += 1

    def __dealloc__(self):
        PyMem_Free(self.steps)
        PyMem_Free(self.choices)
        PyMem_Free(self.targets)

    def sample(self, int64_t count, int64_t timestamp, int32_t key_size=-1):
        cdef change_t change = change_t(0, 0, 0, 0, 0)
        cdef owner_t owner = owner_t(0, timestamp, 0, key_size, 0, &change)
        cdef Scratch room = Scratch.__new__(Scratch)
        cdef uint8_t *start
        cdef list made = []
        # A key may overwrite seven bytes after it.
        reserve(&room.out, self.program.bytes_max + self.program.key_fields * max(2, key_size) + 8)
        start = room.out.start
        for owner.offset in range(count):
            made.append((<char *> start)[:self.write(start, <uint64_t> owner.offset, &owner) - start])
        return made

    cdef uint8_t *write(self, uint8_t *p, uint64_t seed, const owner_t *owner) noexcept nogil:
        return self.run(p, 0, self.step_count, seed, owner, 0 if owner.change == NULL else owner.change.partition)

    cdef uint8_t *run(self, uint8_t *p, int at, int end, uint64_t seed, const owner_t *owner,
                      int64_t item) noexcept nogil:
        """Run the steps from ``at`` to ``end``; ``item`` counts the rounds of the loop around them."""
        cdef const step_t *s
        cdef const choice_t *choices
        cdef uint8_t *start
        cdef uint64_t u
        cdef int64_t i, count
        cdef int kind
        while at < end:
            s = &self.steps[at]
            kind, start = s.kind, p
            p = put_text(p, self.text_bytes + s.text_at, s.text_size)
            choices = self.choices + s.choices_at
            u = cell(seed, <uint64_t> at)
            at += 1
            if s.nulls != 0 and high(u) < s.nulls:
                p = put_bytes(p, b"null", 4)
            elif kind <= ITEM:
                if kind == NUMBER:
                    i = draw(&s.numbers, low(u))
                elif kind == COUNTER:
                    i = owner.offset
                    if s.modulo != 0:
                        i %= s.modulo
                    if s.divide != 1:
                        i //= s.divide
                    i = <int64_t> (<uint64_t> s.numbers.low + <uint64_t> i * <uint64_t> s.times & s.mask)
                elif kind == ITEM:
                    i = item
                else:
                    i = (owner.timestamp % s.modulo if s.modulo != 0 else owner.timestamp) // s.divide * s.times
                p = start if s.omits and i == 0 else put_as(p, s, i)
            elif kind <= TURN:
                if kind == CHOICE:
                    choices = chosen(choices, s.choice_count, low(u))
                elif kind == PICK:
                    choices += scaled(low(u), s.choice_count)
                else:
                    choices += owner.change.kind if s.form == BY_CHANGE else owner.offset % s.choice_count
                p = put_text(p, self.text_bytes + choices.text_at, choices.text_size)
            elif kind == WORDS:
                p = put_words(p, self.text_bytes, choices, s, u)
            elif kind <= RAW:
                p = put_single(p, s, u, owner)
            elif kind == REFERENCE:
                p = put_reference(p, s, &self.targets[at - 1], u, owner)
            elif kind == BRANCH:
                choices = chosen(choices, s.choice_count, low(u))
                # At the start of an object, there is no comma before a name.
                i = s.omits and choices.text_size > 0 and (p - 1)[0] == c'{'
                p = put_text(p, self.text_bytes + choices.text_at + i, choices.text_size - i)
                at = choices.target
            elif kind != SINCE or owner.change.round < s.numbers.low:
                if kind == LOOP:
                    count = draw(&s.numbers, low(u))
                    if count > 0 and s.form == ZIGZAG:
                        p = put_varlong(p, count)
                    for i in range(count):
                        if i > 0:
                            p = put_text(p, self.text_bytes + choices.text_at, choices.text_size)
                        p = self.run(p, at, s.next, cell(mix(u), <uint64_t> i), owner, i)
                elif kind == SCOPE:
                    p = put_size(start, p, self.run(p + s.size, at, s.next, seed, owner, item), s)
                elif kind == SINCE:
                    p = put_text(p, self.text_bytes + choices.text_at, choices.text_size)
                elif kind == ROW:
                    p = self.run_row(p, s, owner) if s.mask >> owner.change.kind & 1 else put_bytes(p, b"null", 4)
                at = s.next
        return p

    cdef uint8_t *run_row(self, uint8_t *p, const step_t *s, const owner_t *owner) noexcept nogil:
        """Write the row as this change or the one before left it. It depends only on the rank and the round."""
        cdef change_t change = owner.change[0]
        cdef owner_t inner = owner[0]
        change.round += s.numbers.low
        inner.change, inner.offset, inner.timestamp = &change, change.rank + change.round, 0
        return self.run(p, s.cut_at, s.size, cell(change.rows, <uint64_t> change.round), &inner, 0)


cdef inline uint8_t *put_text(uint8_t *p, const uint8_t *text, int64_t size) noexcept nogil:
    """Write a text of the program. Nearly all are short, and a call of ``memcpy`` would take longer than they do."""
    cdef uint64_t eight[2]
    cdef uint32_t four[2]
    if size > 16:
        memcpy(p, text, <size_t> size)
    elif size >= 8:
        memcpy(eight, text, 8)
        memcpy(eight + 1, text + size - 8, 8)
        memcpy(p, eight, 8)
        memcpy(p + size - 8, eight + 1, 8)
    elif size >= 4:
        memcpy(four, text, 4)
        memcpy(four + 1, text + size - 4, 4)
        memcpy(p, four, 4)
        memcpy(p + size - 4, four + 1, 4)
    elif size > 0:
        p[0], p[size >> 1], p[size - 1] = text[0], text[size >> 1], text[size - 1]
    return p + size


cdef uint8_t *put_reference(uint8_t *p, const step_t *s, const target_t *t, uint64_t u,
                            const owner_t *owner) noexcept nogil:
    """Write a key of another topic, or one that it does not have. See kfuzz.corpora.programs.Target."""
    cdef int64_t rank
    cdef int64_t count = t.cardinality
    cdef int64_t passed_ms
    cdef int32_t size
    if t.rate != 0:
        passed_ms = min(owner.timestamp - t.start_ms, t.longest_ms)
        # The offset that the clock reached in the last ms, and all before it.
        count = 0 if passed_ms < 0 else ((passed_ms + 1) * t.rate - 1) // t.units_per_offset + 1
        count = min(t.cardinality, count * t.partitions)
    if count == 0 or owner.offset % BILLION * t.dangling % BILLION + t.dangling >= BILLION:
        rank = t.cardinality + <int64_t> skewed(low(u), <uint64_t> t.beyond, 1)
    else:
        rank = <int64_t> skewed(low(u), <uint64_t> count, 1)
    if t.form == KEY_INT or t.form == KEY_LONG:
        return put_as(p, s, rank)
    size = size_of_key(t.seed, <uint64_t> rank, &t.size)
    p = open_text(p, s, size)
    return close_text(put_key(p, t.form, key_of(t.seed, <uint64_t> rank, t.form), size), s)


cdef uint8_t *put_size(uint8_t *start, uint8_t *p, uint8_t *end, const step_t *s) noexcept nogil:
    """Write the length of a scope at ``p``. Its bytes are ``s.size`` after that, up to ``end``, and may move."""
    cdef uint8_t[LENGTH_BYTES] length
    cdef int64_t bytes_inside = end - p - s.size
    cdef int64_t size = put_uvarint(length, <uint64_t> bytes_inside) - length
    if s.omits and bytes_inside == 0:
        return start
    if size != s.size:
        memmove(p + size, p + s.size, <size_t> bytes_inside)
    return put_uvarint(p, <uint64_t> bytes_inside) + bytes_inside


cdef inline uint8_t *put_little(uint8_t *p, uint64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        p[i] = <uint8_t> (value >> 8 * i)
    return p + size


cdef inline uint8_t *put_big(uint8_t *p, int64_t number, int size) noexcept nogil:
    """Write ``number`` in two's complement, the highest byte first."""
    cdef int i
    for i in range(size):
        p[size - 1 - i] = <uint8_t> (number >> min(8 * i, 63))
    return p + size


cdef uint8_t *put_as(uint8_t *p, const step_t *s, int64_t number) noexcept nogil:
    """Write a number in the step's encoding."""
    cdef double wide
    cdef float narrow
    cdef uint64_t bits = 0
    cdef uint32_t few = 0
    cdef int size = 1
    if s.form == JSON:
        return put_decimal(p, number, s.decimals)
    if s.form == ZIGZAG:
        return put_varlong(p, number)
    if s.form == VARINT:
        return put_uvarint(p, <uint64_t> number)
    if s.form == NO_LENGTH:
        return put_number(p, <uint64_t> number, s.size)
    if s.form == LITTLE:
        return put_little(p, <uint64_t> number, s.size)
    if s.form == BIG_SIZED:
        return put_big(p, number, s.size)
    if s.form == BIG:
        while size < 8 and number >> 8 * size - 1 != number >> 63:
            size += 1
        return put_big(put_varlong(p, size), number, size)
    wide = <double> number / s.scale
    if s.form == DOUBLE:
        memcpy(&bits, &wide, 8)
        return put_little(p, bits, 8)
    narrow = <float> wide
    memcpy(&few, &narrow, 4)
    return put_little(p, few, 4)


cdef inline uint8_t *open_text(uint8_t *p, const step_t *s, int64_t size) noexcept nogil:
    """Write what is before the ``size`` bytes of a text."""
    if s.form == JSON:
        return put_int8(p, c'"')
    if s.form == NO_LENGTH:
        return p
    return put_varlong(p, size) if s.form == ZIGZAG else put_uvarint(p, <uint64_t> size)


cdef inline uint8_t *close_text(uint8_t *p, const step_t *s) noexcept nogil:
    return put_int8(p, c'"') if s.form == JSON else p


cdef uint8_t *put_single(uint8_t *p, const step_t *s, uint64_t u, const owner_t *owner) noexcept nogil:
    """Write a text that is no choice: a date, a UUID, the record's key, letters or random bytes."""
    cdef uint8_t[DATE_BYTES] date
    cdef int64_t size, i
    if s.kind == DATE:
        put_date(date, owner.timestamp)
        p = put_text(open_text(p, s, s.size), date + s.cut_at, s.size)
    elif s.kind == UUID:
        if s.form == NO_LENGTH:
            return put_int64(put_int64(p, <int64_t> uuid_half(u, False)), <int64_t> uuid_half(u, True))
        p = put_uuid(open_text(p, s, 36), u)
    elif s.kind == KEY:
        if owner.key_size < 0:
            return put_bytes(p, b"null", 4) if not s.omits else close_text(open_text(p, s, 0), s)
        if owner.key_form == KEY_INT or owner.key_form == KEY_LONG:
            return put_decimal(p, <int64_t> owner.key, 0)
        p = put_key(open_text(p, s, owner.key_size), owner.key_form, owner.key, owner.key_size)
    else:
        size = draw(&s.numbers, low(u))
        p = open_text(p, s, size)
        if s.kind == LETTERS:
            p = put_letters(p, mix(u), <int32_t> size)
        else:
            for i in range((size + 7) >> 3):
                put_int64(p + 8 * i, <int64_t> cell(mix(u), <uint64_t> i))
            p += size
    return close_text(p, s)


cdef inline const choice_t *chosen(const choice_t *c, int32_t count, uint64_t u) noexcept nogil:
    """The first of the ``count`` choices at ``c`` whose limit is above ``u``."""
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
    return c


cdef uint8_t *put_words(uint8_t *p, const uint8_t *texts, const choice_t *c, const step_t *s,
                        uint64_t u) noexcept nogil:
    """Write words from the choices at ``c``, which have one size and are equally likely, with a space between them."""
    cdef int64_t count = draw(&s.numbers, low(u))
    cdef int64_t i
    cdef const choice_t *word
    p = open_text(p, s, max(0, count * (c.text_size + 1) - 1))
    for i in range(count):
        if i > 0:
            p = put_int8(p, c' ')
        word = c + scaled(high(cell(mix(u), <uint64_t> i)), s.choice_count)
        p = put_text(p, texts + word.text_at, word.text_size)
    return close_text(p, s)


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
    """Write a date as in RFC 3339, in UTC with milliseconds."""
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
    p = put_number(p, <uint64_t> year, 4)
    p = put_part(p, c'-', month + 3 if month < 10 else month - 9, 2)
    p = put_part(p, c'-', day_of_year - (153 * month + 2) // 5 + 1, 2)
    p = put_part(p, c'T', ms // 3600000, 2)
    p = put_part(p, c':', ms // 60000 % 60, 2)
    p = put_part(p, c':', ms // 1000 % 60, 2)
    p = put_part(p, c'.', ms % 1000, 3)
    return put_int8(p, c'Z')


cdef inline uint8_t *put_part(uint8_t *p, uint8_t before, int64_t number, int32_t size) noexcept nogil:
    return put_number(put_int8(p, before), <uint64_t> number, size)
