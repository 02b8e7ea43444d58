"""One record as a Python object, cheap enough to make by the million."""

from sys import intern

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t

from kfuzz.errors import EncodeError, UsageError

from kfuzz.wire.io.cursor cimport cursor_t, get_zigzag, unlikely
from kfuzz.wire.io.format cimport VARINT
from kfuzz.wire.io.report cimport F_HEADER_KEY_LENGTH, F_HEADER_VALUE_LENGTH, clear, report_t


cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject *op)
    object PyObject_GenericGetAttr(object op, object name)
    int PyObject_GenericSetAttr(object op, object name, object value) except -1

cdef str OFFSET = intern("offset")
cdef str KEY = intern("key")
cdef str VALUE = intern("value")
cdef str HEADERS = intern("headers")


cdef int64_t fits(object value, str name) except? -1:
    try:
        return value
    except OverflowError:
        raise EncodeError(f"a record's {name} is {value}; it must fit 64 bits") from None


cdef object new_bytes(const uint8_t *p, int64_t n):
    return PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n)


cdef object changed():  # unreachable: only if another thread writes
    """Parsed bytes can be invalid later only if other code has written into their buffer."""
    return UsageError("the buffer was changed while it was read; pass bytes")  # unreachable: only another thread


cdef tuple read_headers(const uint8_t *p, const uint8_t *end, int32_t count):
    """The headers at ``p``, which a parse has checked before, as pairs of key and value."""
    cdef tuple pairs = PyTuple_New(count)
    cdef tuple pair
    cdef cursor_t c
    cdef report_t report
    cdef object item
    cdef int64_t n
    cdef Py_ssize_t i
    # Tuples of bytes cannot be part of a cycle. The collector would untrack them too, but only after visiting them.
    PyObject_GC_UnTrack(<PyObject *> pairs)
    clear(&report)
    c = cursor_t(base=p, end=end, report=&report, record=-1, header=-1)
    for i in range(count):
        pair = PyTuple_New(2)
        PyObject_GC_UnTrack(<PyObject *> pair)
        Py_INCREF(pair)
        PyTuple_SET_ITEM(pairs, i, pair)
        p = get_zigzag(&c, p, end, F_HEADER_KEY_LENGTH, VARINT, &n)
        if unlikely(p == NULL or not 0 <= <int32_t> n <= end - p):
            raise changed()  # unreachable: only if another thread writes
        item = new_bytes(p, <int32_t> n)
        Py_INCREF(item)
        PyTuple_SET_ITEM(pair, 0, item)
        p += <int32_t> n
        p = get_zigzag(&c, p, end, F_HEADER_VALUE_LENGTH, VARINT, &n)
        if unlikely(p == NULL or <int32_t> n > end - p):
            raise changed()  # unreachable: only if another thread writes
        item = None
        if <int32_t> n >= 0:
            item = new_bytes(p, <int32_t> n)
            p += <int32_t> n
        Py_INCREF(item)
        PyTuple_SET_ITEM(pair, 1, item)
    return pairs


# The objects in a record cannot refer back to it, so the garbage collector need not track it.
@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Record:
    """One record.

    ``timestamp`` is in milliseconds, None for magic 0. Header keys are bytes, because Kafka does not check that they
    are UTF-8. ``EncodeError`` if the offset, the timestamp or the attributes do not fit their fields. A record that was
    read may create its key, value and headers on first access; it keeps the bytes it was read from. Mirrors
    ``org.apache.kafka.common.record.Record``.
    """

    __match_args__ = ("offset", "timestamp", "key", "value", "headers", "attributes")

    def __init__(self, offset, timestamp, key, value, headers=(), attributes=0):
        self.offset = offset
        self.timestamp = timestamp
        self.key_unread = self.value_unread = self.headers_unread = 0
        self.c_key = key
        self.c_value = value
        self.c_headers = () if headers is None else headers
        self.attributes = attributes

    cdef object get_key(self):
        if self.key_unread:
            self.c_key = new_bytes(self.base + self.key_at, self.key_unread - 1)
            self.key_unread = 0
        return self.c_key

    cdef object get_value(self):
        if self.value_unread:
            self.c_value = new_bytes(self.base + self.value_at, self.value_unread - 1)
            self.value_unread = 0
        return self.c_value

    cdef object get_headers(self):
        cdef const uint8_t *end
        if self.headers_unread:
            end = <const uint8_t *> PyBytes_AS_STRING(self.source) + PyBytes_GET_SIZE(self.source)
            headers = read_headers(self.base + self.headers_at, end, self.headers_unread)
            # Making the tuples may run the garbage collector, and so code that reads or sets this record's headers.
            if self.headers_unread:
                self.c_headers = headers
                self.headers_unread = 0
        return () if self.c_headers is None else self.c_headers

    def __getattribute__(self, name):
        # A property would be looked up in the type's dictionary each time, and these four are read by the million.
        if name is KEY:
            return self.get_key()
        if name is VALUE:
            return self.get_value()
        if name is OFFSET:
            return self.c_offset
        if name is HEADERS:
            return self.get_headers()
        return PyObject_GenericGetAttr(self, name)

    # Dropping the old object may run `__del__`, so `before` keeps it until the new one is in place.
    def __setattr__(self, name, value):
        cdef object before
        if name == KEY:
            before = self.c_key
            self.key_unread = 0
            self.c_key = value
        elif name == VALUE:
            before = self.c_value
            self.value_unread = 0
            self.c_value = value
        elif name == HEADERS:
            before = self.c_headers
            self.headers_unread = 0
            self.c_headers = () if value is None else value
        else:
            PyObject_GenericSetAttr(self, name, value)

    def __delattr__(self, name):
        raise AttributeError(f"a record's {name} cannot be deleted")

    @property
    def offset(self):
        return self.c_offset

    @offset.setter
    def offset(self, value):
        self.c_offset = fits(value, "offset")

    @property
    def key(self):
        return self.get_key()

    @property
    def value(self):
        return self.get_value()

    @property
    def headers(self):
        return self.get_headers()

    @property
    def timestamp(self):
        return self.c_timestamp if self.has_timestamp else None

    @timestamp.setter
    def timestamp(self, value):
        self.c_timestamp = -1 if value is None else fits(value, "timestamp")
        self.has_timestamp = value is not None

    @property
    def attributes(self):
        return self.c_attributes

    @attributes.setter
    def attributes(self, value):
        if not 0 <= value <= 255:
            raise EncodeError(f"a record's attributes are {value}; they must fit a byte, 0 to 255")
        self.c_attributes = value

    def _fields(self):
        return self.offset, self.timestamp, self.get_key(), self.get_value(), self.get_headers(), self.attributes

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == (<Record> other)._fields()

    __hash__ = None

    def __repr__(self):
        fields = zip(self.__match_args__, self._fields())
        return f"Record({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __reduce__(self):
        return Record, self._fields()
