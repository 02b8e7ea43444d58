"""Write record batches as bytes. Uncompressed batches are written without running Python code."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint64_t

from kfuzz.records.model cimport RecordBatch
from kfuzz.wire.io.format cimport (
    CONTROL,
    DELETE_HORIZON,
    LAST_CODEC,
    LAST_MESSAGE_CODEC,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
)
from kfuzz.wire.io.scratch cimport Scratch, reserve
from kfuzz.wire.io.sink cimport put_bytes
from kfuzz.wire.records.batch_writer cimport as_record, put_batch, put_payload, put_records
from kfuzz.wire.records.message_set cimport put_messages
from kfuzz.wire.records.record cimport Record, is_record
from kfuzz.wire.records.record_batch cimport header_t

from kfuzz.errors import EncodeError
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS as NAMES_OF_CODECS
from kfuzz.kafka import NO_TIMESTAMP
from kfuzz.records.codecs import compress, compress_parts
from kfuzz.wire.records.message_set import encode_message, encode_messages

__all__ = ["encode", "encode_batch", "header_fields", "require_known"]

cdef tuple CODECS = tuple(NAMES_OF_CODECS)
cdef enum:
    UNKNOWN = -1


def encode(batches, *, level=None):
    """Return the bytes of ``batches``, one after the other; see :func:`encode_batch`.

    >>> from kfuzz import records
    >>> data = records.encode([records.RecordBatch(i, i, [records.Record(i, 1, b"k", b"v")]) for i in (0, 1)])
    >>> len(data), records.check(data).batch_count
    (140, 2)
    """
    cdef Scratch made = Scratch.__new__(Scratch)
    for batch in batches:
        put(made, batch, level)
    return bytes_of(made)


def encode_batch(RecordBatch batch not None, *, level=None):
    """Return the bytes of one batch. ``level`` is the codec's compression level.

    Raises ``EncodeError`` if a value does not fit the format. Mirrors
    ``org.apache.kafka.common.record.MemoryRecordsBuilder``, but writes every field as it is given.

    >>> from kfuzz import records
    >>> data = records.encode_batch(records.RecordBatch(5, 5, [records.Record(5, 1, b"k", b"v")]))
    >>> data[:8].hex(), len(data)
    ('0000000000000005', 70)
    """
    cdef Scratch made = Scratch.__new__(Scratch)
    put(made, batch, level)
    return bytes_of(made)


cdef bytes bytes_of(Scratch made):
    return PyBytes_FromStringAndSize(<const char *> made.out.start, made.out.p - made.out.start)


cdef int put(Scratch made, RecordBatch batch, object level) except -1:
    """Append one batch."""
    cdef int codec = codec_of(batch)
    require(batch, codec)
    try:
        if batch.magic != 2:
            put_legacy(made, batch, codec, level)
        elif codec:
            append(made, compressed(batch, codec, level))
        else:
            put_plain(made, batch)
    except OverflowError as error:
        raise EncodeError(f"a field does not fit its width: {error}") from None
    return 0


cdef int append(Scratch made, bytes data) except -1:
    reserve(&made.out, len(data))
    made.out.p = put_bytes(made.out.p, <const uint8_t *> <const char *> data, len(data))
    return 0


# --- fields ---------------------------------------------------------------------------------------------------------

cdef int codec_of(RecordBatch batch) except -2:
    """The number of the batch's codec; -1 if it does not exist."""
    cdef int codec
    given = batch.compression
    for codec in range(LAST_CODEC + 1):
        if CODECS[codec] is given:
            return codec
    return CODECS.index(given) if given in CODECS else UNKNOWN


def require_known(RecordBatch batch not None):
    """Raise ``EncodeError`` if the batch's magic, codec or timestamp type does not exist."""
    require(batch, codec_of(batch))


cdef int require(RecordBatch batch, int codec) except -1:
    if batch.magic not in (0, 1, 2):
        raise EncodeError(f"magic {batch.magic} does not exist; it must be 0, 1 or 2")
    if codec == UNKNOWN:
        raise EncodeError(f"compression {batch.compression!r} does not exist; it must be one of {', '.join(CODECS)}")
    if batch.magic == 2 and batch.timestamp_type not in ("create", "log-append"):
        raise EncodeError(f"timestamp type {batch.timestamp_type!r} does not exist in magic 2; "
                          "it must be create or log-append")
    return 0


cdef int attributes_of(RecordBatch batch, int codec) except -1:
    cdef int attributes = codec
    if batch.timestamp_type == "log-append":
        attributes |= LOG_APPEND_TIME
    if batch.transactional:
        attributes |= TRANSACTIONAL
    if batch.control:
        attributes |= CONTROL
    if batch.delete_horizon is not None:
        attributes |= DELETE_HORIZON
    return attributes


cdef object base_timestamp_of(RecordBatch batch):
    return batch.base_timestamp if batch.delete_horizon is None else batch.delete_horizon


def header_fields(RecordBatch batch not None, int count=0):
    """The header of a batch of ``count`` records, without its length and CRC, in the order of ``HEADER_LAYOUT``.

    Timestamps that the batch does not set are None.
    """
    return (
        batch.base_offset, 0, batch.partition_leader_epoch, 2, 0, attributes_of(batch, codec_of(batch)),
        wrap64(batch.last_offset - batch.base_offset), base_timestamp_of(batch), batch.max_timestamp,
        batch.producer_id, batch.producer_epoch, batch.base_sequence, count,
    )


cdef header_t header_of(RecordBatch batch, int codec) except *:
    """The same in C, except that timestamps that the batch does not set are 0."""
    cdef header_t h
    cdef int64_t last_offset = batch.last_offset
    cdef int64_t delta
    h.base_offset = batch.base_offset
    # The difference wraps around, as in Java.
    delta = <int64_t> (<uint64_t> last_offset - <uint64_t> h.base_offset)
    if not INT32_MIN <= delta <= INT32_MAX:
        raise OverflowError(f"the last offset is {delta} from the base offset, which is an int32")
    h.last_offset_delta = <int32_t> delta
    h.partition_leader_epoch = batch.partition_leader_epoch
    h.attributes = attributes_of(batch, codec)
    h.base_timestamp = 0
    h.max_timestamp = 0 if batch.max_timestamp is None else batch.max_timestamp
    h.producer_id = batch.producer_id
    h.producer_epoch = batch.producer_epoch
    h.base_sequence = batch.base_sequence
    h.batch_length = h.record_count = 0
    h.crc = 0
    return h


# --- magic 2 --------------------------------------------------------------------------------------------------------

cdef int put_plain(Scratch made, RecordBatch batch) except -1:
    cdef header_t h = header_of(batch, 0)
    cdef list records = <list?> batch.records
    return put_batch(&made.out, records, &h, base_timestamp_of(batch), batch.max_timestamp is not None)


cdef bytes compressed(RecordBatch batch, int codec, object level):
    cdef header_t h = header_of(batch, codec)
    cdef Scratch payload = Scratch.__new__(Scratch)
    cdef int64_t largest
    cdef list records = <list?> batch.records
    put_records(&payload.out, records, h.base_offset, base_timestamp_of(batch), &h.base_timestamp, &largest)
    if batch.max_timestamp is None:
        h.max_timestamp = largest
    h.record_count = <int32_t> len(records)
    # Kafka writes empty batches without a codec. With a codec, its reader needs a compressed stream even of no bytes.
    return put_payload(&h, compress_parts(CODECS[codec], payload, level=level))


# --- magic 0 and 1 --------------------------------------------------------------------------------------------------

cdef bint has_headers(list records) except -1:
    cdef Record record
    for given in records:
        if is_record(given):
            record = given
            if record.headers_unread or record.c_headers is not None and record.c_headers:
                return True
    return False


cdef int refuse_lost(RecordBatch batch, int codec) except -1:
    """Raise ``EncodeError`` if the batch has something that a message of magic 0 or 1 cannot hold."""
    cdef int64_t producer_id = batch.producer_id
    cdef bint headers = has_headers(batch.records)
    cdef bint is_newer = codec > LAST_MESSAGE_CODEC
    if not headers and not batch.transactional and not batch.control and producer_id == -1 and not is_newer:
        return 0
    lost = [
        name
        for name, present in (
            ("headers", headers),
            ("a transaction", batch.transactional),
            ("control records", batch.control),
            ("a producer id", producer_id != -1),
            (batch.compression, is_newer),
        )
        if present
    ]
    raise EncodeError(f"magic {batch.magic} cannot carry {', '.join(lost)}")


cdef int put_legacy(Scratch made, RecordBatch batch, int codec, object level) except -1:
    """Write a message, or a wrapper with messages inside."""
    cdef int magic = batch.magic
    cdef int attributes = LOG_APPEND_TIME if magic == 1 and batch.timestamp_type == "log-append" else 0
    cdef list records = <list?> batch.records
    cdef int64_t first
    cdef int64_t last
    cdef int64_t last_offset = batch.last_offset
    refuse_lost(batch, codec)
    if len(records) == 0 or (codec == 0 and len(records) > 1):
        wanted = "at least one record" if codec else "exactly one record"
        raise EncodeError(f"a message of magic {magic} has {wanted}; this one has {len(records)}")
    first = as_record(records[0], 0).c_offset
    last = as_record(records[len(records) - 1], len(records) - 1).c_offset
    if last != last_offset and (codec == 0 or (magic == 1 and last_offset != 0)):
        raise EncodeError(f"the last record's offset is {last}, the batch's last offset is {last_offset}; "
                          "a message can hold only one of them")
    if codec == 0:
        return put_messages(&made.out, records, magic, 0, attributes, None)
    # Inner offsets are absolute in magic 0. In magic 1 they count from the first record, and the wrapper has the last
    # offset, so a reader can count back from it. If it cannot (the last offset is 0, or offsets are below 0), they are
    # absolute too.
    base = first if magic == 1 and 0 < first <= last_offset else 0
    inner = encode_messages(records, magic, base, 0)
    timestamp = batch.max_timestamp
    if timestamp is None:
        timestamp = max([NO_TIMESTAMP if record.timestamp is None else record.timestamp for record in records])
    value = compress(CODECS[codec], inner, magic=magic, level=level)
    return append(made, encode_message(magic, last_offset, attributes | codec, timestamp, None, value))
