# The entries of a segment's indexes, as ``LogSegment.append`` makes them.
from libc.stdint cimport int32_t, int64_t, uint8_t

from kfuzz.wire.io.scratch cimport out_t, reserve
from kfuzz.wire.io.sink cimport put_int16, put_int32, put_int64

cdef struct index_t:
    int64_t base_offset, interval_bytes
    int64_t indexed_at               # the position of the last entry
    int64_t top_timestamp, top_offset
    int64_t time_indexed             # the timestamp of the last entry

# Append room for ``size`` bytes and return where it begins; the caller writes them.
cdef inline uint8_t *more_of(out_t *out, int64_t size) except NULL nogil:
    reserve(out, size)
    out.p += size
    return out.p - size

# A batch at byte ``position`` was appended.
cdef inline int index_batch(index_t *i, out_t *offsets, out_t *times, int64_t position, int64_t last_offset,
                            int64_t max_timestamp) except -1 nogil:
    cdef uint8_t *entry
    if max_timestamp > i.top_timestamp:
        i.top_timestamp, i.top_offset = max_timestamp, last_offset
    if position - i.indexed_at > i.interval_bytes:
        entry = more_of(offsets, 8)
        put_int32(put_int32(entry, <int32_t> (last_offset - i.base_offset)), <int32_t> position)
        append_time(i, times)
        i.indexed_at = position
    return 0

# Like ``TimeIndex.maybeAppend``: an entry is added only if its timestamp is above that of the last entry.
cdef inline int append_time(index_t *i, out_t *times) except -1 nogil:
    cdef uint8_t *entry
    if i.top_timestamp > i.time_indexed:
        entry = more_of(times, 12)
        put_int32(put_int64(entry, i.top_timestamp), <int32_t> (i.top_offset - i.base_offset))
        i.time_indexed = i.top_timestamp
    return 0

# Add an entry of a transaction index (``AbortedTxn``, version 0).
cdef inline int append_aborted(out_t *aborted, int64_t producer_id, int64_t first_offset, int64_t last_offset,
                               int64_t stable_offset) except -1 nogil:
    cdef uint8_t *entry = put_int16(more_of(aborted, 34), 0)
    put_int64(put_int64(put_int64(put_int64(entry, producer_id), first_offset), last_offset), stable_offset)
    return 0
