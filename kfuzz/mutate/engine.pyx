"""The native mutator for Python; records.h has the changes. The interface is described in engine.pyi."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from kfuzz.mutate.dice cimport Dice, dice_t

from kfuzz.records.codecs import ZLIB_LIBRARY, ZSTD_LIBRARY

cdef extern from "messages.h" nogil:
    ctypedef struct text_t "kfuzz_text":
        uint8_t *p
        int64_t n

    ctypedef struct decompressor_t "kfuzz_decompressor":
        uint8_t *out
        int64_t size

    ctypedef struct mutator_t "kfuzz_mutator":
        dice_t dice
        double repair
        bint is_produced
        text_t other
        text_t text
        text_t packed
        decompressor_t decompressor
        uint64_t *kinds

    ctypedef struct flat_schema_t "kfuzz_flat_schema":
        pass

    bint kfuzz_memory_failed
    int KFUZZ_KIND_COUNT
    int KFUZZ_MESSAGE_KIND_COUNT
    const char **kfuzz_message_kind_names
    void kfuzz_mutate_message(mutator_t *m, const flat_schema_t *schema, int64_t start)
    bint kfuzz_apply_to_message(mutator_t *m, int kind, const flat_schema_t *schema, int64_t start)
    void kfuzz_scramble(text_t *text, int64_t start, int64_t end, dice_t *dice)
    const char **kfuzz_kind_names
    void kfuzz_mutator_init(const char *zlib, const char *zstd)
    void kfuzz_mutator_free(mutator_t *m)
    void kfuzz_mutate(mutator_t *m)
    bint kfuzz_reserve(text_t *text, int64_t room)
    bint kfuzz_put(text_t *text, int64_t at, int64_t old, const uint8_t *data, int64_t n)
    void kfuzz_seal(text_t *text, int64_t at, int64_t end, bint length, bint crc)
    bint kfuzz_pack(text_t *packed, int codec, int magic, dice_t *dice, const uint8_t *p, int64_t n)
    bint kfuzz_open(decompressor_t *decompressor, int codec, int magic, const uint8_t *p, int64_t n)

kfuzz_mutator_init((ZLIB_LIBRARY or "").encode(), (ZSTD_LIBRARY or "").encode())

KINDS = tuple([kfuzz_kind_names[i].decode() for i in range(KFUZZ_KIND_COUNT)])

MESSAGE_KINDS = tuple([kfuzz_message_kind_names[i].decode() for i in range(KFUZZ_MESSAGE_KIND_COUNT)])


cdef class Engine:
    cdef mutator_t m

    def __cinit__(self, double repair=1.0, bint produced=False):
        memset(&self.m, 0, sizeof(self.m))
        self.m.repair = repair
        self.m.is_produced = produced

    def __dealloc__(self):
        kfuzz_mutator_free(&self.m)

    # The GIL is kept meanwhile: other threads may use the same engine, which has one set of buffers.

    cdef int begin(self, bytes data, bytes other, Dice dice, int64_t size_max) except -1:
        global kfuzz_memory_failed
        cdef mutator_t *m = &self.m
        kfuzz_memory_failed = False
        m.text.n = 0
        m.other.p = <uint8_t *> PyBytes_AS_STRING(other)
        m.other.n = PyBytes_GET_SIZE(other)
        m.dice = dice.state
        if not kfuzz_reserve(&m.text, max(size_max, PyBytes_GET_SIZE(data))):
            raise MemoryError
        kfuzz_put(&m.text, 0, 0, <uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return 0

    cdef bytes end(self, Dice dice):
        dice.state = self.m.dice
        if kfuzz_memory_failed:
            raise MemoryError
        return PyBytes_FromStringAndSize(<char *> self.m.text.p, <Py_ssize_t> self.m.text.n)

    def mutate(self, bytes data not None, bytes other not None, Dice dice not None, int64_t size_max):
        self.begin(data, other, dice, size_max)
        kfuzz_mutate(&self.m)
        return self.end(dice)

    def mutate_message(self, bytes data not None, bytes other not None, bytes schema not None, Dice dice not None,
                       int64_t size_max, str kind=None):
        cdef const flat_schema_t *flat = <const flat_schema_t *> PyBytes_AS_STRING(schema)
        cdef int number = -1 if kind is None else MESSAGE_KINDS.index(kind)
        self.begin(data, other, dice, size_max)
        if number < 0:
            kfuzz_mutate_message(&self.m, flat, 0)
        else:
            kfuzz_apply_to_message(&self.m, number, flat, 0)
        return self.end(dice)

    def scramble(self, bytes data not None, Dice dice not None, int64_t size_max):
        self.begin(data, b"", dice, size_max)
        kfuzz_scramble(&self.m.text, 0, self.m.text.n, &self.m.dice)
        return self.end(dice)

    @property
    def kinds(self):
        return {KINDS[i]: self.m.kinds[i] for i in range(KFUZZ_KIND_COUNT) if self.m.kinds[i]}

    def packed(self, int codec, int magic, bytes payload not None, Dice dice not None):
        if codec < 1 or codec > 4:
            raise ValueError(f"codec is {codec}; it must be from 1 to 4")
        if not kfuzz_pack(&self.m.packed, codec, magic, &dice.state, <uint8_t *> PyBytes_AS_STRING(payload),
                          PyBytes_GET_SIZE(payload)):
            raise MemoryError  # unreachable: only if memory runs out
        return PyBytes_FromStringAndSize(<char *> self.m.packed.p, <Py_ssize_t> self.m.packed.n)

    def opened(self, int codec, int magic, bytes data not None):
        if not kfuzz_open(&self.m.decompressor, codec, magic, <uint8_t *> PyBytes_AS_STRING(data),
                          PyBytes_GET_SIZE(data)):
            return None
        return PyBytes_FromStringAndSize(<char *> self.m.decompressor.out, <Py_ssize_t> self.m.decompressor.size)


def seal(bytes frame not None, bint length, bint crc):
    cdef text_t text
    out = PyBytes_FromStringAndSize(PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
    text.p = <uint8_t *> PyBytes_AS_STRING(out)
    text.n = PyBytes_GET_SIZE(out)
    kfuzz_seal(&text, 0, text.n, length, crc)
    return out
