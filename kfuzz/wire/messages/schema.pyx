"""A message at one version: the entry points of the checker, the reader, the writer and the explainer."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.scratch cimport Scratch
from kfuzz.wire.messages.checker cimport check_message, notes_of, walk_t
from kfuzz.wire.messages.explainer cimport places_of
from kfuzz.wire.messages.models cimport make_models
from kfuzz.wire.messages.picker cimport picked_of
from kfuzz.wire.messages.plan cimport Program, flat_of
from kfuzz.wire.messages.reader cimport add_absent, make_message
from kfuzz.wire.messages.writer cimport put_message

cdef tuple NOTHING = ()


@cython.final
@cython.auto_pickle(False)
cdef class Schema(Program):
    """The interface is described in schema.pyi."""

    def check(self, data, /):
        cdef HeldBuffer held
        if type(data) is bytes:
            return self.checked(<const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        held = hold(data)
        return self.checked(held.p, held.n)

    cdef tuple checked(self, const uint8_t *start, int64_t n):
        cdef walk_t w
        cdef const uint8_t *end = check_message(&w, &self.root.c, start, n)
        return -1 if end == NULL else end - start, notes_of(&w) if w.seen else NOTHING

    def elements(self, bytes data not None, /):
        cdef walk_t w
        check_message(&w, &self.root.c, <const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return w.elements

    def decode(self, bytes data not None, /):
        return self.decoded(data, False)

    def decode_whole(self, bytes data not None, /):
        cdef tuple found = self.decode(data)
        if found[2] is not None:
            add_absent(self.root, found[2])
        return found

    def decode_objects(self, bytes data not None, /):
        if self.root.model is None:
            make_models(self)
        return self.decoded(data, True)

    cdef tuple decoded(self, bytes data, bint as_objects):
        cdef walk_t w
        cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef const uint8_t *end = check_message(&w, &self.root.c, start, PyBytes_GET_SIZE(data))
        notes = notes_of(&w) if w.seen else NOTHING
        if end == NULL:
            return -1, notes, None
        return end - start, notes, make_message(self, start, as_objects)

    def places(self, bytes data not None, int64_t most=0, /):
        cdef walk_t w
        cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef const uint8_t *end = check_message(&w, &self.root.c, start, PyBytes_GET_SIZE(data))
        cdef int64_t refused_at
        notes = notes_of(&w) if w.seen else NOTHING
        if end != NULL:
            return end - start, notes, places_of(self, start, end, most)
        # The checker has accepted all bytes before a refusal.
        refused_at = max([note[1] for note in notes])
        return -1, notes, places_of(self, start, start + refused_at, most)

    def pick(self, data, /):
        cdef walk_t w
        cdef HeldBuffer held = hold(data)
        cdef const uint8_t *end = check_message(&w, &self.root.c, held.p, held.n)
        notes = notes_of(&w) if w.seen else NOTHING
        if end == NULL:
            return -1, notes, None
        return end - held.p, notes, picked_of(self, held.p, end)

    def flat(self):
        return flat_of(self)

    def encode(self, message not None, /):
        cdef Scratch scratch = Scratch.__new__(Scratch)
        put_message(self, &scratch.out, message)
        return PyBytes_FromStringAndSize(<const char *> scratch.out.start, scratch.out.p - scratch.out.start)

    def size(self, message not None, /):
        cdef Scratch scratch = Scratch.__new__(Scratch)
        put_message(self, &scratch.out, message)
        return scratch.out.p - scratch.out.start
