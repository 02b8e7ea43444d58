from libc.stdint cimport int64_t, uint8_t, uint64_t

from kfuzz.wire.messages.plan cimport op_t, plan_t

# The deepest nesting of structs that is accepted. Kafka's deepest definition has five levels.
cdef enum:
    DEEPEST = 64

# A step of the path to a field: the field, and the index in an array, -1 for no index.
cdef struct step_t:
    const plan_t *plan
    const op_t *op
    int64_t element

# The codes of notes.
cdef enum:
    BOOL_NOT_0_OR_1
    BYTES_AFTER_MESSAGE
    COUNT_EXCEEDS_MESSAGE
    COUNT_TOO_LARGE
    LENGTH_BELOW_MINUS_ONE
    LENGTH_EXCEEDS_MESSAGE
    MESSAGE_CUT
    NESTED_TOO_DEEP
    NULL_NOT_ALLOWED
    STRING_NOT_UTF8
    STRING_TOO_LONG
    TAG_COUNT_EXCEEDS_MESSAGE
    TAG_COUNT_TOO_LARGE
    TAG_NOT_ASCENDING
    TAG_NOT_IN_VERSION
    TAG_REPEATED
    TAG_SIZE_EXCEEDS_MESSAGE
    TAG_SIZE_MISMATCH
    TAG_UNKNOWN
    VARINT_OVERLONG
    VARINT_TOO_LONG
    CODE_COUNT

# The first occurrence of a code.
cdef struct message_note_t:
    int64_t at
    int64_t found
    int64_t allowed
    int depth
    step_t steps[DEEPEST]

# The state of a message's check.
cdef struct walk_t:
    const uint8_t *base
    const uint8_t *end
    int depth
    step_t steps[DEEPEST]
    int64_t elements           # of all arrays so far, and tagged fields
    uint64_t seen              # one bit for each code
    message_note_t notes[CODE_COUNT]

# The end of the message, or NULL if it is refused.
cdef const uint8_t *check_message(walk_t *w, const plan_t *root, const uint8_t *p, int64_t n) noexcept nogil
cdef tuple notes_of(const walk_t *w)
