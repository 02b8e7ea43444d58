from libc.stdint cimport int64_t, uint8_t, uint64_t

from kfuzz.wire.message.plan cimport op_t, plan_t

# How deep structs may be nested. The deepest definition of Kafka has five levels.
cdef enum:
    DEEPEST = 64

# A step of the path to a field: the field, and the index in an array, -1 for no index.
cdef struct step_t:
    const plan_t *plan
    const op_t *op
    int64_t element

# The first note with its code.
cdef struct message_note_t:
    int64_t at
    int64_t found
    int64_t allowed
    int depth
    step_t steps[DEEPEST]

# One walk over a message.
cdef struct walk_t:
    const uint8_t *base
    const uint8_t *end
    int depth
    step_t steps[DEEPEST]
    uint64_t seen              # one bit for each code
    message_note_t *notes      # indexed by code; the caller sets it

cdef enum:
    CODE_COUNT = 21

# The end of the message, NULL where it is refused.
cdef const uint8_t *check_message(walk_t *w, const plan_t *root, const uint8_t *p, int64_t n) noexcept nogil
cdef tuple notes_of(const walk_t *w)
