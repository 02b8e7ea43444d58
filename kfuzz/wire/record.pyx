"""One record as a Python object, cheap enough to make by the million."""

cimport cython
from libc.stdint cimport int64_t

from kfuzz.errors import EncodeError


cdef int64_t fits(object value, str name) except? -1:
    try:
        return value
    except OverflowError:
        raise EncodeError(f"a record's {name} is {value}; it must fit 64 bits") from None


# A record refers to bytes and tuples of bytes, which cannot refer back: no work for the garbage collector.
@cython.no_gc
@cython.final
@cython.freelist(64)
cdef class Record:
    """One record.

    ``timestamp`` is in milliseconds, None for magic 0; header keys are bytes, for Kafka does not ask for UTF-8.
    ``EncodeError`` where the offset, the timestamp or the attributes do not fit their fields. Mirrors
    ``org.apache.kafka.common.record.Record``.
    """

    __match_args__ = ("offset", "timestamp", "key", "value", "headers", "attributes")

    def __init__(self, offset, timestamp, key, value, headers=(), attributes=0):
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.attributes = attributes

    @property
    def offset(self):
        return self.c_offset

    @offset.setter
    def offset(self, value):
        self.c_offset = fits(value, "offset")

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
        return self.offset, self.timestamp, self.key, self.value, self.headers, self.attributes

    def __eq__(self, other):
        if type(other) is not Record:
            return NotImplemented
        return self._fields() == (<Record> other)._fields()

    __hash__ = None

    def __repr__(self):
        fields = zip(self.__match_args__, self._fields())
        return f"Record({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __reduce__(self):
        return Record, self._fields()
