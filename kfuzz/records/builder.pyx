"""Build one new batch from records, byte for byte as Kafka's builder writes it. Conversion and compaction use it.

``kfuzz.records.writer`` writes every field as it is given. This module takes the arguments of Kafka's builder, refuses
what that refuses, and computes the other fields.
"""

from cython.dataclasses cimport dataclass
from libc.stdint cimport int32_t, int64_t

from kfuzz.wire.io.format cimport CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from kfuzz.wire.io.scratch cimport Scratch
from kfuzz.wire.records.batch_writer cimport put_payload, put_records
from kfuzz.wire.records.record cimport Record
from kfuzz.wire.records.record_batch cimport header_t

from dataclasses import replace

from kfuzz.errors import EncodeError, RecordsError
from kfuzz.java import through_java, wrap64
from kfuzz.kafka import CODECS, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, codecs_of
from kfuzz.records.codecs import compress, compress_parts
from kfuzz.records.read.limits import DEFAULT_LIMITS
from kfuzz.records.read.reader import readings
from kfuzz.wire.records.batch_writer import encode_payload
from kfuzz.wire.records.message_set import encode_message, encode_messages
from kfuzz.wire.walk.record_list import FALLS, FAR, HAS_HEADERS, TIMESTAMP_LOW, survey

__all__ = ["Rebuilt", "empty_batch", "frames", "rebuild"]

OF_A_BROKEN_PAYLOAD = ("decompression-failed", "decompressed-size-exceeded")


@dataclass(frozen=True)
cdef class Rebuilt:
    """A new batch, and the values that a broker adds to its time index.

    - ``data``: the bytes. For magic 0 or 1 without a codec, these are one message for each record.
    - ``max_timestamp``: milliseconds; -1 if there is none.
    - ``offset_of_max_timestamp``: the offset for it in the time index; -1 if there is none.

    Mirrors ``org.apache.kafka.common.record.MemoryRecordsBuilder.RecordsInfo``.
    """

    data: object
    max_timestamp: object
    offset_of_max_timestamp: object


def rebuild(
    records,
    *,
    magic,
    base_offset,
    compression="none",
    timestamp_type="create",
    log_append_time=NO_TIMESTAMP,
    producer_id=NO_PRODUCER_ID,
    producer_epoch=NO_PRODUCER_EPOCH,
    base_sequence=-1,
    transactional=False,
    control=False,
    partition_leader_epoch=-1,
    delete_horizon=None,
    last_offset=None,
    without_headers=False,
):
    """Build one batch from ``records`` (at least one). The records keep their offsets and timestamps.

    - ``log_append_time`` (milliseconds): the max timestamp if ``timestamp_type`` is "log-append". Messages of magic 1
      get it as their timestamp too.
    - ``delete_horizon`` (milliseconds; below 0 means none): replaces the base timestamp.
    - ``last_offset``: the batch's last offset, if it is not the last record's. Only for magic 2.
    - ``without_headers``: leaves out headers, which magic 0 and 1 cannot hold.

    Raises ``EncodeError`` if Kafka's builder refuses the records.

    Mirrors ``org.apache.kafka.common.record.MemoryRecordsBuilder``.

    >>> from kfuzz.records import Record
    >>> from kfuzz.records.builder import rebuild
    >>> rebuild([Record(7, 1000, b"k", b"v")], magic=2, base_offset=5).data[:8].hex()
    '0000000000000005'
    """
    cdef header_t h
    cdef Scratch payload
    cdef int64_t largest_written
    cdef bint log_append
    _require_format(magic, compression, timestamp_type, transactional, control, delete_horizon)
    _require_producer(magic, producer_id, producer_epoch, base_sequence, transactional, control)
    try:
        h.base_offset = base_offset
        h.max_timestamp = log_append_time
        h.producer_id = producer_id
        h.producer_epoch = producer_epoch
        h.base_sequence = base_sequence
        h.partition_leader_epoch = partition_leader_epoch
        h.base_timestamp = delete_horizon or 0
    except OverflowError:
        _require_widths(
            base_offset, log_append_time, producer_id, producer_epoch, base_sequence, partition_leader_epoch,
            delete_horizon or 0,
        )
    records = list(records)
    found = _surveyed(records, magic, base_offset, magic == 2 or without_headers)
    log_append = timestamp_type == "log-append"
    largest = found.largest_timestamp
    if magic == 0:
        largest = NO_TIMESTAMP
    elif log_append and magic == 1:
        largest = log_append_time
    max_timestamp = log_append_time if log_append else largest
    final_offset = records[len(records) - 1].offset if last_offset is None else last_offset
    if magic < 2:
        stamp = log_append_time if log_append else None
        data = _messages(records, stamp, magic, compression, log_append, base_offset, max_timestamp)
        # Without a codec each record is a message of its own, so the time index can point at exactly that message.
        if compression == "none" and largest != NO_TIMESTAMP:
            final_offset = base_offset if log_append else records[found.largest_timestamp_at].offset
    else:
        horizon = delete_horizon if delete_horizon is not None and delete_horizon >= 0 else None
        plain = records if found.is_plain else [_plain(record, base_offset) for record in records]
        payload = Scratch.__new__(Scratch)
        put_records(&payload.out, plain, h.base_offset, horizon, &h.base_timestamp, &largest_written)
        h.batch_length = 0
        h.crc = 0
        h.attributes = _attributes(timestamp_type, transactional, control, compression, horizon)
        h.last_offset_delta = <int32_t> _int32(final_offset - base_offset)
        h.max_timestamp = max_timestamp
        h.record_count = <int32_t> len(records)
        data = put_payload(&h, compress_parts(compression, payload))
    nothing = not log_append and largest == NO_TIMESTAMP
    return Rebuilt(data, max_timestamp, -1 if nothing else final_offset)


def empty_batch(batch):
    """Return the header that compaction leaves when it removes all records of ``batch``.

    Offsets, producer fields, sequence and max timestamp stay. The codec and the delete horizon are dropped. Mirrors
    ``DefaultRecordBatch.writeEmptyHeader``.

    >>> from kfuzz import records
    >>> from kfuzz.records.builder import empty_batch
    >>> batch = records.RecordBatch(3, 4, [], producer_id=7, producer_epoch=0, base_sequence=12)
    >>> left = records.decode(empty_batch(batch))[0]
    >>> left.base_offset, left.last_offset, left.base_sequence, left.records
    (3, 4, 12, [])
    """
    if batch.magic < 2:
        raise EncodeError(f"magic {batch.magic} has no empty batches; only magic 2 has")
    attributes = _attributes(batch.timestamp_type, batch.transactional, batch.control, "none", None)
    max_timestamp = NO_TIMESTAMP if batch.max_timestamp is None else batch.max_timestamp
    return encode_payload(
        (
            batch.base_offset, 0, batch.partition_leader_epoch, 2, 0, attributes,
            _int32(batch.last_offset - batch.base_offset), NO_TIMESTAMP, max_timestamp, batch.producer_id,
            batch.producer_epoch, batch.base_sequence, 0,
        ),
        [],
    )  # fmt: skip


def frames(data, *, limits=DEFAULT_LIMITS):
    """Yield a ``Reading`` and the bytes of each batch in ``data``. A partial tail is left out.

    Only one batch is in memory at a time. Raises ``RecordsError`` if a consumer of profile ``kafka`` refuses the bytes.

    >>> from kfuzz import records
    >>> from kfuzz.records.builder import frames
    >>> data = records.encode([records.RecordBatch(i, i, [records.Record(i, 1, b"k", b"v")]) for i in (0, 1)])
    >>> [(reading.batches[0].base_offset, len(raw)) for reading, raw in frames(data)]
    [(0, 70), (1, 70)]
    """
    view = memoryview(data).cast("B")
    # Records point into ``bytes`` objects, which cannot change. From any other buffer, they need a copy.
    end = 0
    try:
        for reading, at, size in readings(data if isinstance(data, bytes) else view, limits=limits):
            end = at + size
            yield reading, view[at:end]
    except RecordsError as error:
        finding = error.finding
        if finding.code not in OF_A_BROKEN_PAYLOAD:
            raise
        # For a broken payload, this function reports the place relative to the batch.
        raise RecordsError(replace(finding, at=finding.at - end)) from None


# ------------------------------------------------------------------------------------------------- what is refused


cdef int _require_format(magic, compression, timestamp_type, transactional, control, delete_horizon) except -1:
    if magic not in (0, 1, 2):
        raise EncodeError(f"magic {magic} does not exist; it must be 0, 1 or 2")
    if magic > 0 and timestamp_type == "none":
        raise EncodeError(f"magic {magic} needs a timestamp type; it must be create or log-append")
    if magic == 2:
        return 0
    for name, present in (
        ("a transaction", transactional),
        ("control records", control),
        (compression, compression not in codecs_of(magic)),
        ("a delete horizon", delete_horizon is not None),
    ):
        if present:
            raise EncodeError(f"magic {magic} cannot carry {name}; only magic 2 can")
    return 0


cdef int _require_producer(magic, producer_id, producer_epoch, base_sequence, transactional, control) except -1:
    if producer_id == NO_PRODUCER_ID:
        if transactional:
            raise EncodeError("a transactional batch needs a producer id")
        return 0
    if producer_epoch == NO_PRODUCER_EPOCH:
        raise EncodeError(f"producer id {producer_id} has no producer epoch; it must be 0 or more")
    if base_sequence < 0 and not control:
        raise EncodeError(f"producer id {producer_id} has base sequence {base_sequence}; it must be 0 or more")
    if magic < 2:
        raise EncodeError(f"magic {magic} cannot carry a producer id; only magic 2 can")
    return 0


def _require_widths(*values):
    """Raise ``EncodeError`` for the first header field that does not fit."""
    names = (
        ("base_offset", 64), ("log_append_time", 64), ("producer_id", 64), ("producer_epoch", 16),
        ("base_sequence", 32), ("partition_leader_epoch", 32), ("delete_horizon", 64),
    )  # fmt: skip
    for (name, bits), value in zip(names, values, strict=True):
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise EncodeError(f"{name} is {value}; it is an int{bits}")


cdef object _surveyed(list records, magic, base_offset, bint with_headers):
    """Check all records in one pass. Raises ``EncodeError`` for the first record that the builder refuses."""
    if not records:
        raise EncodeError("a batch needs at least one record; there is none")
    found = survey(records, base_offset, with_headers)
    if (i := found.refused_at) < 0:
        return found
    record = records[i]
    # ``FALLS`` needs a previous record, so ``before`` is set whenever its message is used.
    before = records[i - 1].offset if i > 0 else None
    raise EncodeError(
        {
            FALLS: f"records[{i}].offset is {record.offset} after {before}; offsets must increase",
            TIMESTAMP_LOW: f"records[{i}].timestamp is {record.timestamp}; it must be -1 or more",
            HAS_HEADERS: f"records[{i}] has headers; magic {magic} cannot carry them",
            FAR: f"records[{i}].offset is {record.offset}, too far from the base offset {base_offset}; "
            "the delta is an int32",
        }[found.why]
    )


# ------------------------------------------------------------------------------------------------- bytes


cdef bytes _messages(list records, stamp, magic, compression, bint log_append, base_offset, wrapper_timestamp):
    """The messages, inside a wrapper if there is a codec. Only in magic 1 do inner offsets count from the base offset.
    """
    attributes = LOG_APPEND_TIME if log_append and magic > 0 else 0
    base = base_offset if magic > 0 and compression != "none" else 0
    data = encode_messages(records, magic, base, attributes, stamp)
    if compression == "none":
        return bytes(data)
    value = compress(compression, data, magic=magic)
    return encode_message(
        magic, records[len(records) - 1].offset, attributes | CODECS.index(compression), wrapper_timestamp, None, value
    )


cdef int _attributes(timestamp_type, transactional, control, compression, delete_horizon) except -1:
    return (
        CODECS.index(compression)
        | (LOG_APPEND_TIME if timestamp_type == "log-append" else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (DELETE_HORIZON if delete_horizon is not None else 0)
    )


cdef object _int32(number):
    """``number`` cast to an int32, as Java's ``(int)`` does."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


cdef Record _plain(Record record, base_offset):
    """The record as Kafka rewrites it: no attributes, header keys decoded and encoded by Java, the offset delta cast to
    an int32.
    """
    offset = wrap64(base_offset + _int32(record.offset - base_offset))
    if offset == record.offset and record.attributes == 0 and all(_is_utf8(key) for key, _ in record.headers):
        return record
    headers = tuple((through_java(key), value) for key, value in record.headers)
    return Record(offset, record.timestamp, record.key, record.value, headers)


def _is_utf8(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
