"""Makes the bytes of one segment, batch by batch, in a reused buffer.

A batch takes three passes: ``measure`` draws the sizes and sums them, ``fill_payload`` fills the payload in bulk, and
``frame_records`` writes the framing over it. All of it runs ``nogil``, so several threads can make segments at a time.
Python is called only for hostile batches, and for codecs that ``pack`` leaves to it. Every random number is a hash of
(segment seed, batch, record, purpose), so the bytes depend on nothing else.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfuzz.corpora.rounds cimport TOMBSTONE, kind_of, offset_after, row_at, schedule_t, to_schedule
from kfuzz.corpora.codecs cimport CODEC_COUNT, codecs_t, to_codecs, weighed
from kfuzz.corpora.draws cimport (
    KEY_LETTERS,
    cell,
    draw,
    high,
    key_of,
    low,
    put_key,
    put_letters,
    range_t,
    scaled,
    size_of_key,
    skewed,
    threshold,
    to_range,
)
from kfuzz.corpora.fills cimport (
    FRESH_PERIOD,
    PHRASE_BYTES,
    SHORT_PERIOD,
    fill_fresh,
    fill_mixed,
    fill_text,
)
from kfuzz.corpora.messages cimport message_fields, put_message, put_message_crc, size_of_message
from kfuzz.corpora.ranks cimport to_zipf, zipf_place, zipf_rank, zipf_t
from kfuzz.corpora.record_headers cimport headers_t, measure_headers, put_headers, to_headers
from kfuzz.corpora.segment_index cimport append_aborted, append_time, index_batch, index_t, more_of
from kfuzz.corpora.ticks cimport free_ticks, rate_of, set_ticks, ticks_t, turn_pieces, turn_to
from kfuzz.corpora.turns cimport HOSTILE, MAGIC_0, MAGIC_1, TRANSACTIONS, Writers, ends_transaction, stream_t
from kfuzz.corpora.value_writer cimport ValueWriter, change_t, owner_t
from kfuzz.wire.io.checksum cimport crc32c_moved, crc32c_of, crc32c_on, crc32c_over
from kfuzz.wire.io.format cimport (
    AT_ATTRIBUTES,
    AT_BATCH_LENGTH,
    AT_CRC,
    AT_PARTITION_LEADER_EPOCH,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    KEY_AT_V1,
    LENGTHS_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
)
from kfuzz.wire.io.pack cimport free_packer, pack, packed_bound, packer_t
from kfuzz.wire.io.scratch cimport Scratch, out_t, reserve
from kfuzz.wire.io.sink cimport (
    put_bytes,
    put_int8,
    put_int16,
    put_int32,
    put_int64,
    put_varlong,
    size_of_varlong,
)
from kfuzz.wire.io.splitmix cimport mix
from kfuzz.wire.records.record_batch cimport header_t, put_header

from functools import lru_cache
from hashlib import blake2b

from kfuzz.corpora import zipf
from kfuzz.corpora.relations import rows_of, schedule_seed
from kfuzz.corpora.clock import clock_of
from kfuzz.corpora.hostile import hostile_of
from kfuzz.corpora.partition_keys import own_keys, zipf_of
from kfuzz.corpora.workload import HASHING, KEY_FORMS, program_of, sizes_of
from kfuzz.errors import UsageError
from kfuzz.kafka import CODECS

cdef enum:
    # Small enough for the L2 cache, large enough that a write call costs little per byte.
    CHUNK_BYTES = 65536
    # The purposes of random numbers, beside those of record_headers. Each record has DRAWS numbers of 64 bits.
    DRAW_SIZES = 0
    DRAW_NULLS = 1
    DRAW_JITTER = 3
    DRAW_LATE = 5
    DRAW_KEY = 6
    DRAW_FIELDS = 7
    DRAW_KEPT = 8
    DRAWS = 16
    NO_CODEC = 0
    # A fill may overwrite so many bytes after its end.
    FILL_SLACK = 128

cdef enum:
    KEYS_UNIFORM = 0
    KEYS_ZIPF = 1
    KEYS_SEQUENTIAL = 2

KEY_KINDS = {"uniform": KEYS_UNIFORM, "zipf": KEYS_ZIPF, "sequential": KEYS_SEQUENTIAL}
DIGEST_BYTES = 16

cdef struct record_t:
    uint64_t seed
    uint64_t key
    uint64_t row                 # that changes, by its place among those of the partition
    int64_t timestamp
    int64_t body
    int64_t delta                # the offset in the batch
    int64_t value_at             # of a value with fields or a schema, in the values of this batch
    int64_t key_at               # of a key with a schema, in the keys of this batch
    int32_t key_size
    int32_t value_size
    int32_t header_count


@lru_cache(maxsize=16)
def writer_of(side, keys):
    """The writer of these values or keys, or None; it holds nothing of a segment."""
    made = program_of(side, keys)
    return None if made is None else ValueWriter(made)


cdef inline int64_t size_of_small(int64_t value) noexcept nogil:
    """The size of a varlong that is mostly small and seldom changes its size."""
    return 1 if 0 <= value < 64 else 2 if 0 <= value < 8192 else size_of_varlong(value)


cdef inline int32_t add_to(out_t *made, ValueWriter writer, uint64_t seed, const owner_t *owner,
                           int64_t *at) noexcept nogil:
    """Write a value or a key after those in ``made``; returns its size."""
    at[0] = made.p - made.start
    made.p = writer.write(made.p, seed, owner)
    return <int32_t> (made.p - made.start - at[0])


@cython.final
cdef class Synthesiser(Writers):
    """See ``synth.pyi``."""

    cdef readonly object view
    cdef readonly int64_t batches, control_batches, records, aborted_records, size, max_timestamp, min_timestamp
    cdef readonly uint32_t crc32c
    cdef readonly list labels
    cdef tuple hostile
    cdef object buffer, compress, digest
    # The payload before compression.
    cdef object plain
    cdef packer_t packer
    cdef bytes phrases
    cdef const uint8_t *phrase_bytes
    cdef uint8_t *base
    cdef uint8_t *payload
    cdef int64_t used, capacity
    cdef uint64_t key_seed
    cdef record_t *drawn
    cdef range_t key_size, value_size
    # With a partitioner that hashes: the numbers of the partition's own keys in rising order; otherwise NULL.
    cdef bytes own
    cdef const uint32_t *own_keys
    # The number of keys to draw from.
    cdef uint64_t key_count
    cdef uint64_t key_nulls, value_nulls, tombstones
    # The headers with the ids of schemas.
    cdef bytes id_headers
    cdef headers_t headers
    cdef int key_kind, key_form
    cdef object zipf_table
    cdef zipf_t zipf
    cdef bint text, log_append
    cdef bint is_written
    # For values that are changes of rows: the offset after the cleaned segments, and the seed of rows.
    cdef bint is_changes
    cdef schedule_t schedule
    cdef int64_t cleaned_end
    cdef uint64_t row_seed
    # For values with a compression ratio: fresh bytes per period, for each codec and for this batch.
    cdef int64_t[CODEC_COUNT] fresh_bytes
    cdef int64_t fresh, period
    # The values and keys of one batch that a program writes, one after the other: before the batch, because their sizes
    # are not known before.
    cdef ValueWriter value_writer, key_writer
    cdef Scratch made_values, made_keys
    cdef bint cleaned
    cdef uint64_t keep
    cdef int64_t horizon, base_timestamp
    cdef uint64_t late_share
    cdef int64_t jitter_ms, late_ms
    cdef ticks_t clock
    cdef codecs_t codecs, legacy_codecs
    cdef index_t index
    cdef Scratch offset_entries, time_entries, aborted_entries, digests

    def __cinit__(self, segment, int64_t index_interval_bytes, int64_t batch_bytes_max, bytes phrases not None,
                  compress):
        topic = segment.topic
        if len(phrases) != 256 * PHRASE_BYTES:
            raise ValueError("phrases must be 256 times 16 bytes")
        self.phrases = phrases
        self.phrase_bytes = <const uint8_t *> PyBytes_AS_STRING(phrases)
        self.compress = compress
        # A fill may overwrite 127 bytes after its end. A codec may lengthen incompressible data (snappy by a sixth).
        self.capacity = CHUNK_BYTES + batch_bytes_max + batch_bytes_max // 4 + 65536
        self.buffer = bytearray(self.capacity)
        self.offset_entries, self.time_entries = Scratch.__new__(Scratch), Scratch.__new__(Scratch)
        self.aborted_entries, self.digests = Scratch.__new__(Scratch), Scratch.__new__(Scratch)
        self.view = memoryview(self.buffer)
        self.base = <uint8_t *> PyByteArray_AS_STRING(self.buffer)
        self.plain = bytearray(batch_bytes_max + FILL_SLACK if is_compressed(topic) else 0)
        self.payload = <uint8_t *> PyByteArray_AS_STRING(self.plain)
        self.key_seed = segment.key_seed
        self.cleaned, self.horizon = segment.is_cleaned, segment.delete_horizon_ms
        self.keep, self.cleaned_end = threshold(topic.compaction.keep), segment.cleaned_end
        self.digest = blake2b(digest_size=DIGEST_BYTES)
        self.index.base_offset, self.index.interval_bytes = self.first_offset, index_interval_bytes
        self.max_timestamp = self.index.top_timestamp = self.index.top_offset = self.index.time_indexed = -1
        self.min_timestamp = INT64_MAX
        self.partition, self.partitions = segment.partition, topic.partitions
        self.set_topic(topic)
        self.labels = []
        if topic.adversarial.share:
            self.hostile = hostile_of(topic.adversarial)
        set_ticks(&self.clock, clock_of(topic.timestamps), segment.first_units, self.first_offset)
        self.drawn = <record_t *> PyMem_Calloc(topic.batches.records.max, sizeof(record_t))
        if self.drawn == NULL:
            raise MemoryError

    def __dealloc__(self):
        free_packer(&self.packer)
        free_ticks(&self.clock)
        PyMem_Free(self.drawn)

    cdef int set_topic(self, topic) except -1:
        cdef int i
        self.key_size = to_range(topic.keys.size)
        self.key_count, self.key_kind = topic.keys.cardinality, KEY_KINDS[topic.keys.kind]
        self.key_form = KEY_FORMS.index(topic.keys.form)
        if topic.keys.partitioner in HASHING:
            self.own = own_keys(topic.keys, self.key_seed, self.partitions, self.partition)
            self.own_keys = <const uint32_t *> PyBytes_AS_STRING(self.own)
            self.key_count = <uint64_t> len(self.own) // 4
        if topic.values.is_changes:
            self.is_changes = True
            seed = schedule_seed(topic, self.key_seed, self.partition)
            rows = rows_of(topic, self.key_seed, self.partition)
            self.schedule = to_schedule(rows, seed, topic.values.changes.updates)
            self.row_seed = schedule_seed(topic, self.key_seed)
        if self.key_kind == KEYS_ZIPF:
            self.zipf_table = (zipf.table_of(topic.keys.cardinality, topic.keys.exponent) if self.own is None else
                               zipf_of(topic.keys, self.key_seed, self.partitions, self.partition))
            self.zipf = to_zipf(self.zipf_table)
        if (writer := writer_of(topic.keys, topic.keys)) is not None:
            self.key_writer, self.made_keys = writer, Scratch.__new__(Scratch)
            reserve(&self.made_keys.out, topic.batches.records.max * sizes_of(topic.keys, topic.keys)[1] + 8)
        self.key_nulls = threshold(topic.keys.null_share)
        self.value_size = to_range(topic.values.size)
        self.value_nulls = threshold(topic.values.null_share)
        self.tombstones = threshold(topic.values.tombstone_share)
        self.text = topic.values.kind == "text"
        for i in range(CODEC_COUNT):
            self.fresh_bytes[i] = -1
        if topic.values.ratio:
            self.set_fresh(topic)
        if (writer := writer_of(topic.values, topic.keys)) is not None:
            self.is_written = True
            self.value_writer, self.made_values = writer, Scratch.__new__(Scratch)
            reserve(&self.made_values.out, topic.batches.records.max * sizes_of(topic.values, topic.keys)[1] + 8)
        keys = topic.keys.header_bytes("key")
        self.id_headers = keys + topic.values.header_bytes("value")
        self.headers = to_headers(topic, self.id_headers, len(keys))
        self.codecs, self.legacy_codecs = (
            to_codecs([(CODECS.index(name), weight) for name, weight in given])
            for given in (topic.batches.codecs, topic.legacy.codecs)
        )
        self.log_append = topic.timestamps.type == "log-append"
        self.jitter_ms, self.late_ms = topic.timestamps.jitter_ms, topic.timestamps.late_ms
        self.late_share = threshold(topic.timestamps.late_share)
        return 0

    cdef int set_fresh(self, topic) except -1:
        cdef dict found = dict(topic.values.fresh_bytes)
        # Codecs look at ever fewer places in a long run without repetitions, and then overlook short repetitions.
        self.period = SHORT_PERIOD if topic.values.ratio < 2 else FRESH_PERIOD
        if not found:
            raise UsageError(f"topic {topic.name}: values.ratio is not resolved; call kfuzz.corpora.resolution.resolve")
        # Uncompressed batches look like those of one of the codecs.
        for number, codec in enumerate(CODECS):
            self.fresh_bytes[<int> number] = found.get(codec, max(found.values()))
        return 0

    def fill(self):
        """Make batches until a chunk is full. Returns the number of bytes made; 0 at the segment's end."""
        cdef stream_t *s
        self.used = 0
        with nogil:
            while self.left > 0 and self.used < CHUNK_BYTES:
                s = self.next_writer()
                if ends_transaction(s):
                    self.put_marker(s)
                elif s.kind == MAGIC_0 or s.kind == MAGIC_1:
                    self.put_messages(s)
                elif s.kind == HOSTILE:
                    with gil:
                        self.put_hostile(s)
                else:
                    self.put_batch(s)
        self.digest.update(self.digests)
        self.digests.out.p = self.digests.out.start
        self.size += self.used
        return self.used

    @property
    def offset_index(self):
        return bytes(self.offset_entries)

    @property
    def time_index(self):
        """The time index with the entry that Kafka appends when a segment becomes inactive."""
        cdef int64_t used = len(self.time_entries)
        cdef int64_t indexed = self.index.time_indexed
        append_time(&self.index, &self.time_entries.out)
        result = bytes(self.time_entries)
        self.time_entries.out.p, self.index.time_indexed = self.time_entries.out.start + used, indexed
        return result

    @property
    def transaction_index(self):
        return bytes(self.aborted_entries)

    @property
    def producers(self):
        cdef stream_t *s
        cdef list found = []
        cdef int i
        for i in range(self.stream_count):
            s = &self.streams[i]
            if s.producer_id >= 0 and s.timestamp >= 0:
                found.append((s.producer_id, s.producer_epoch, s.data_sequence, s.data_offset, s.data_delta,
                              s.timestamp, s.coordinator_epoch, s.first_offset))
        return found

    def fingerprint(self):
        return self.digest.hexdigest()

    cdef int64_t measure(self, int64_t count, int magic) noexcept nogil:
        """Draw the next ``count`` records; returns their size in the format of ``magic``, without batch header."""
        cdef uint64_t seed = mix(self.batch_seed)
        cdef uint64_t sizes, nulls
        cdef int64_t now_ms, units, rate, piece_end_ms, ms
        cdef int64_t units_per_offset = self.clock.units_per_offset
        cdef bint any_null = self.key_nulls != 0 or self.value_nulls != 0 or self.tombstones != 0
        cdef int64_t total = 0
        cdef int64_t i, body
        # The last sizes of a key and a value, and what both take in a record.
        cdef int32_t sized_key = -2
        cdef int32_t sized_value = -2
        cdef int64_t sized = 0
        cdef int64_t base_timestamp = 0
        # Copies: what is written to the records might be fields of this object, for all the compiler knows.
        cdef range_t value_size = self.value_size
        cdef range_t key_size = self.key_size
        cdef uint64_t key_seed = self.key_seed
        cdef uint64_t key_count = self.key_count
        cdef bint has_times = self.jitter_ms != 0 or self.late_share != 0
        cdef bint has_headers = self.headers.any
        cdef bint is_written = self.is_written
        cdef bint is_changes = self.is_changes
        cdef bint is_plain = (self.key_kind == KEYS_UNIFORM and self.key_form == KEY_LETTERS and self.own_keys == NULL
                              and self.key_writer is None and not is_changes)
        cdef record_t *r = self.drawn
        now_ms = turn_to(&self.clock, self.offset)
        units, rate, piece_end_ms = self.clock.units, rate_of(&self.clock), self.clock.piece_end_ms
        if is_written:
            self.made_values.out.p = self.made_values.out.start
        if self.key_writer is not None:
            self.made_keys.out.p = self.made_keys.out.start
        for i in range(count):
            if i != 0:
                r += 1
            r.seed = seed + <uint64_t> (DRAWS * i) * 0x9e3779b97f4a7c15ULL
            sizes = cell(r.seed, DRAW_SIZES)
            r.value_size = <int32_t> draw(&value_size, low(sizes))
            if is_plain:
                r.key = cell(key_seed, skewed(high(sizes), key_count, 1))
                r.key_size = <int32_t> draw(&key_size, low(r.key))
            else:
                self.choose_key(r, i)
            if any_null:
                nulls = cell(r.seed, DRAW_NULLS)
                if low(nulls) < self.key_nulls:
                    r.key_size = -1
                if high(nulls) < (self.value_nulls if r.key_size < 0 else self.value_nulls + self.tombstones):
                    r.value_size = -1
            r.timestamp = now_ms
            if has_times:
                r.timestamp += self.measure_time(r)
            if is_changes and self.kind_of_change(r, i) == TOMBSTONE:
                r.value_size = -1
            if is_written and r.value_size >= 0:
                self.write_value(r, i)
            # As in turn_to(), which would load and store all of this for each record.
            units += units_per_offset
            if units >= rate:
                ms = 1 if units < 2 * rate else units // rate
                if now_ms + ms < piece_end_ms:
                    now_ms += ms
                    units -= ms * rate
                else:
                    self.clock.ms = now_ms
                    turn_pieces(&self.clock, units)
                    now_ms, units, rate = self.clock.ms, self.clock.units, rate_of(&self.clock)
                    piece_end_ms = self.clock.piece_end_ms
            r.delta = i
            if magic < 2:
                total += size_of_message(message_fields(magic), r.key_size, r.value_size)
                continue
            if i == 0:
                base_timestamp = r.timestamp
            body = 1 + size_of_small(r.timestamp - base_timestamp) + size_of_small(i)
            if r.key_size != sized_key or r.value_size != sized_value:
                sized_key, sized_value = r.key_size, r.value_size
                sized = size_of_varlong(sized_key) + max(sized_key, 0)
                sized += size_of_varlong(sized_value) + max(sized_value, 0)
            body += sized
            r.header_count = 0
            if has_headers:
                body += measure_headers(&self.headers, r.seed, r.key_size, r.value_size, &r.header_count)
            else:
                body += 1
            r.body = body
            total += size_of_small(body) + body
        self.clock.offset = self.offset + count
        self.clock.ms, self.clock.units = now_ms, units
        return total

    cdef inline void write_value(self, record_t *r, int64_t i) noexcept nogil:
        """Write the value of the batch's record ``i`` after those before it."""
        cdef owner_t owner = owner_t(self.offset + i, r.timestamp, r.key, r.key_size, self.key_form, NULL)
        cdef change_t change
        if self.is_changes:
            change.rank, change.partition = <int64_t> self.rank_of(r.row), <int> self.partition
            change.rows, change.round = cell(self.row_seed, <uint64_t> change.rank), self.round_of(i)
            change.kind = self.kind_of_change(r, i)
            owner.change = &change
            # The key itself may be an object that has it.
            owner.key_size = size_of_key(self.key_seed, <uint64_t> change.rank, &self.key_size)
            # From the end of the snapshot on.
            owner.offset -= <int64_t> self.schedule.rows
        r.value_size = add_to(&self.made_values.out, self.value_writer, cell(r.seed, DRAW_FIELDS), &owner, &r.value_at)

    cdef inline int64_t round_of(self, int64_t i) noexcept nogil:
        return <int64_t> (<uint64_t> (self.offset + i) // self.schedule.rows)

    cdef inline int kind_of_change(self, const record_t *r, int64_t i) noexcept nogil:
        return kind_of(&self.schedule, r.row, self.round_of(i))

    cdef inline uint64_t rank_of(self, uint64_t row) noexcept nogil:
        """The number of the key of the partition's row."""
        if self.own_keys != NULL:
            return self.own_keys[row]
        return row * <uint64_t> self.partitions + <uint64_t> self.partition

    cdef int64_t measure_time(self, record_t *r) noexcept nogil:
        """The ms that jitter and lateness add to a record's timestamp."""
        cdef uint64_t late
        cdef int64_t added = 0
        if self.jitter_ms != 0:
            added += scaled(high(cell(r.seed, DRAW_JITTER)), self.jitter_ms + 1)
        if self.late_share != 0:
            late = cell(r.seed, DRAW_LATE)
            if low(late) < self.late_share:
                added -= 1 + scaled(high(late), self.late_ms)
        return added

    cdef void choose_key(self, record_t *r, int64_t i) noexcept nogil:
        """Choose the key of the batch's record ``i``; ``measure`` chooses the plain ones."""
        cdef const uint32_t *own = self.own_keys
        cdef uint64_t at
        if self.is_changes:
            r.row = row_at(&self.schedule, self.offset + i)
            at = self.rank_of(r.row)
        elif self.key_kind == KEYS_ZIPF:
            at = cell(r.seed, DRAW_KEY)
            at = zipf_rank(&self.zipf, at) - 1 if own == NULL else zipf_place(&self.zipf, own, at)
        elif self.key_kind == KEYS_UNIFORM:
            at = skewed(high(cell(r.seed, DRAW_SIZES)), self.key_count, 1)
        else:
            # Across the partitions of the topic, as a producer that alternates between them would write them.
            at = <uint64_t> (self.offset + i)
            at = (at * self.partitions + self.partition if own == NULL else at) % self.key_count
        if own != NULL and not self.is_changes:
            at = own[at]
        r.key = key_of(self.key_seed, at, self.key_form)
        r.key_size = size_of_key(self.key_seed, at, &self.key_size)
        if self.key_writer is not None:
            self.write_key(r, <int64_t> at)

    cdef void write_key(self, record_t *r, int64_t number) noexcept nogil:
        """Write the key with this number by its program, after those before it. It depends on nothing else."""
        cdef owner_t owner = owner_t(number, 0, r.key, r.key_size, self.key_form, NULL)
        r.key_size = add_to(&self.made_keys.out, self.key_writer, key_of(self.key_seed, number, KEY_LETTERS), &owner,
                            &r.key_at)

    cdef inline void fill_payload(self, uint8_t *p, int64_t n) noexcept nogil:
        cdef uint64_t seed = mix(~self.batch_seed)
        if self.is_written and self.headers.share == 0:
            # Every byte will be written by the framing.
            return
        if self.fresh >= 0:
            fill_mixed(p, n, seed, self.period, self.fresh * self.period // FRESH_PERIOD,
                       self.phrase_bytes if self.text else NULL)
        elif self.text or self.is_written:
            fill_text(p, n, seed, self.phrase_bytes)
        else:
            fill_fresh(p, n, seed, False)

    cdef void frame_records(self, uint8_t *p, int64_t count) noexcept nogil:
        """Write the framing of the drawn records over a filled payload. The bytes skipped here are the values."""
        cdef int64_t base_timestamp = self.base_timestamp
        cdef const record_t *r = self.drawn
        cdef int64_t _
        for _ in range(count):
            p = put_varlong(p, r.body)
            p = put_int8(p, 0)
            p = put_varlong(p, r.timestamp - base_timestamp)
            p = put_varlong(p, r.delta)
            p = put_varlong(p, r.key_size)
            if r.key_size > 0:
                p = self.put_key_exactly(p, r)
            p = put_varlong(p, r.value_size)
            p = self.put_value(p, r)
            if r.header_count == 0:
                p = put_int8(p, 0)
            else:
                p = put_headers(p, &self.headers, r.seed, r.key_size, r.value_size, r.header_count)
            r += 1

    cdef inline uint8_t *put_value(self, uint8_t *p, const record_t *r) noexcept nogil:
        """Skip a filled value, or copy a JSON value."""
        if r.value_size <= 0:
            return p
        if self.is_written:
            memcpy(p, self.made_values.out.start + r.value_at, <size_t> r.value_size)
        return p + r.value_size

    cdef inline uint8_t *put_key_exactly(self, uint8_t *p, const record_t *r) noexcept nogil:
        """Like ``put_key``, but restores the filled bytes after the key that ``put_key`` may overwrite."""
        cdef uint64_t beyond
        if self.key_writer is not None:
            return put_bytes(p, self.made_keys.out.start + r.key_at, r.key_size)
        if self.key_form != KEY_LETTERS:
            return put_key(p, self.key_form, r.key, r.key_size)
        memcpy(&beyond, p + r.key_size, 8)
        put_letters(p, r.key, r.key_size)
        memcpy(p + r.key_size, &beyond, 8)
        return p + r.key_size

    cdef int64_t top_of_drawn(self, int64_t count) noexcept nogil:
        cdef int64_t i
        cdef int64_t top = self.drawn[0].timestamp
        for i in range(count):
            top = max(top, self.drawn[i].timestamp)
        return top

    cdef int codec_of(self, const codecs_t *codecs) noexcept nogil:
        """One of the weighted codecs, chosen by this batch's random number. It decides how the values are filled."""
        cdef int codec = weighed(codecs, self.batch_seed)
        self.fresh = self.fresh_bytes[codec]
        return codec

    cdef int64_t compressed(self, int64_t at, int64_t size, int codec, int magic) except -1 nogil:
        """Compress the ``size`` bytes of ``payload`` to byte ``at`` of the chunk; returns the compressed size."""
        cdef int64_t bound = packed_bound(codec, size)
        cdef int64_t found
        # Writers of magic 0 made other lz4 headers.
        if magic == 0 or bound < 0 or bound > self.capacity - at:
            return self.compressed_by_python(at, size, codec, magic)
        found = pack(&self.packer, codec, self.payload, size, self.base + at, bound)
        if found < 0:
            with gil:
                raise MemoryError
        return found

    cdef int64_t compressed_by_python(self, int64_t at, int64_t size, int codec, int magic) except -1 with gil:
        cdef str name = CODECS[codec]
        cdef bytes packed = self.compress(name, memoryview(self.plain)[:size], magic=magic)
        if at + len(packed) > self.capacity:
            raise MemoryError(f"{name} made {len(packed)} bytes of {size}")
        memcpy(self.base + at, PyBytes_AS_STRING(packed), <size_t> len(packed))
        return len(packed)

    cdef int put_batch(self, stream_t *s) except -1 nogil:
        """Write one record batch (magic 2) of data records."""
        cdef int64_t at = self.used
        cdef int64_t count = self.claim(s)
        cdef int64_t kept = count
        cdef int64_t size, top
        cdef header_t h
        cdef int codec = self.codec_of(&self.codecs)
        cdef uint8_t *payload = self.base + at + HEADER_SIZE if codec == NO_CODEC else self.payload
        h.attributes = 0
        size = self.measure(count, 2)
        self.base_timestamp = self.drawn[0].timestamp
        h.max_timestamp = top = self.top_of_drawn(count)
        if self.cleaned:
            kept = self.clean(s, count, &size, &h)
        if kept > 0:
            self.fill_payload(payload, size)
            self.frame_records(payload, kept)
        if kept == 0:
            # An empty batch has no payload and no base timestamp (DefaultRecordBatch.writeEmptyHeader).
            codec, self.base_timestamp = NO_CODEC, -1
        h.attributes |= <int16_t> codec
        if s.kind == TRANSACTIONS:
            h.attributes |= TRANSACTIONAL
        if self.log_append:
            h.attributes |= LOG_APPEND_TIME
        h.base_timestamp = self.base_timestamp
        h.producer_id = s.producer_id
        h.producer_epoch = <int16_t> s.producer_epoch
        h.base_sequence = <int32_t> s.sequence
        h.record_count = <int32_t> kept
        h.last_offset_delta = <int32_t> count - 1
        if s.producer_id >= 0:
            # Kafka's sequences wrap from INT32_MAX to 0.
            s.sequence = (s.sequence + count) & 0x7fffffff
            # The log cleaner leaves snapshots as they were.
            s.data_offset, s.data_delta = self.offset + count - 1, count - 1
            s.data_sequence, s.timestamp = (h.base_sequence + count - 1) & 0x7fffffff, top
        if kept < 0:
            self.offset += count
            self.left -= count
            return 0
        if s.kind == TRANSACTIONS and s.aborts:
            self.aborted_records += kept
        self.finish_batch(at, size, codec, &h)
        return 0

    cdef int put_hostile(self, stream_t *s) except -1:
        """Write a vector of the golden suite, with this log's offset and leader epoch, and label it."""
        cdef int64_t at = self.used
        cdef int64_t count = self.claim(s)
        cdef bytes data = self.hostile[s.number].vector.data
        cdef int64_t size = len(data)
        cdef uint8_t *p = self.base + at
        cdef int64_t epoch = self.offset // self.leader_epoch_offsets if self.leader_epoch_offsets else 0
        memcpy(p, PyBytes_AS_STRING(data), <size_t> size)
        put_int64(p, self.offset)
        put_int32(p + AT_PARTITION_LEADER_EPOCH, <int32_t> epoch)
        self.labels.append((self.size + at, size, self.offset, s.number))
        memcpy(more_of(&self.digests.out, size), p, <size_t> size)
        self.crc32c = crc32c_on(self.crc32c, p, size)
        self.used = at + size
        # Its timestamps and its count of records may be anything.
        self.appended(at, count, -1, -1)
        self.records -= count
        return 0

    cdef int64_t clean(self, stream_t *s, int64_t count, int64_t *size, header_t *h) noexcept nogil:
        """Do to the drawn batch of ``count`` records what the log cleaner does in two passes soon after each other.

        Returns the number of records that remain, or -1 if nothing remains of the batch. The records move to the front
        of the drawn ones. Changes the payload's size and the fields of ``h`` that have been set.
        """
        cdef int64_t old_base = self.base_timestamp
        cdef int64_t old_top = h.max_timestamp
        cdef int64_t kept = 0
        cdef bint has_tombstone = False
        cdef int64_t i, timestamp
        cdef record_t *r
        for i in range(count):
            r = &self.drawn[i]
            # The cleaner drops records without a key, and those of aborted transactions.
            if s.kind == TRANSACTIONS and s.aborts or r.key_size < 0 or not self.is_kept(r):
                continue
            has_tombstone |= r.value_size < 0
            self.drawn[kept] = r[0]
            kept += 1
        if kept == 0:
            size[0] = 0
            # Keep the header of a producer's last batch, because it holds the sequence.
            if s.producer_id < 0 or s.records > 0:
                return -1
        s.remains = True
        if kept == 0 or kept == count and not has_tombstone:
            return kept
        if has_tombstone:
            h.attributes |= DELETE_HORIZON
            self.base_timestamp = self.horizon
        else:
            self.base_timestamp = old_top if self.log_append else self.drawn[0].timestamp
        if not self.log_append:
            h.max_timestamp = self.top_of_drawn(kept)
        size[0] = 0
        for i in range(kept):
            r = &self.drawn[i]
            # With log-append, every record has the batch's max timestamp.
            timestamp = old_top if self.log_append else r.timestamp
            r.body += size_of_varlong(timestamp - self.base_timestamp) - size_of_varlong(r.timestamp - old_base)
            r.timestamp = timestamp
            size[0] += size_of_varlong(r.body) + r.body
        return kept

    cdef bint is_kept(self, const record_t *r) noexcept nogil:
        """Whether no later record that the cleaner sees has the same key."""
        if self.is_changes:
            return offset_after(&self.schedule, r.row, self.round_of(r.delta)) >= self.cleaned_end
        return low(cell(r.seed, DRAW_KEPT)) < self.keep

    cdef int put_marker(self, stream_t *s) except -1 nogil:
        """Write the control batch that ends the transaction of ``s``: ``EndTransactionMarker``, version 0."""
        cdef int64_t at = self.used
        cdef uint8_t *p = self.base + at + HEADER_SIZE
        cdef int64_t coordinator_epoch = 0
        cdef int64_t millis = turn_to(&self.clock, self.offset)
        cdef int64_t base_timestamp = millis
        cdef header_t h
        h.attributes = TRANSACTIONAL | CONTROL
        if self.cleaned and not s.remains:
            # Nothing else remains of the transaction.
            h.attributes |= DELETE_HORIZON
            base_timestamp = self.horizon
        if self.coordinator_epoch_transactions != 0:
            coordinator_epoch = s.transaction // self.coordinator_epoch_transactions
        # Attributes, timestamp delta, offset delta, key of 4 bytes, value of 6, no headers.
        p = put_varlong(p, 15 + size_of_varlong(millis - base_timestamp))
        p = put_int8(p, 0)
        p = put_varlong(p, millis - base_timestamp)
        p = put_varlong(p, 0)
        p = put_varlong(p, 4)
        p = put_int16(p, 0)
        p = put_int16(p, 0 if s.aborts else 1)
        p = put_varlong(p, 6)
        p = put_int16(p, 0)
        p = put_int32(p, <int32_t> coordinator_epoch)
        p = put_varlong(p, 0)
        if self.log_append:
            h.attributes |= LOG_APPEND_TIME
        h.base_timestamp, h.max_timestamp = base_timestamp, millis
        h.producer_id = s.producer_id
        h.producer_epoch = <int16_t> s.producer_epoch
        h.base_sequence = -1
        h.record_count = 1
        h.last_offset_delta = 0
        if s.aborts and not h.attributes & DELETE_HORIZON:
            append_aborted(&self.aborted_entries.out, s.producer_id, s.first_offset, self.offset, self.stable(s))
        s.timestamp, s.coordinator_epoch = millis, coordinator_epoch
        self.end(s)
        self.control_batches += 1
        self.finish_batch(at, p - (self.base + at + HEADER_SIZE), NO_CODEC, &h)
        return 0

    cdef int finish_batch(self, int64_t at, int64_t size, int codec, header_t *h) except -1 nogil:
        """Compress the payload, write the header, update the sums. Fills in the missing fields of ``h``."""
        cdef uint8_t *p = self.base + at
        cdef uint32_t content = crc32c_of(p + HEADER_SIZE if codec == NO_CODEC else self.payload, size)
        cdef uint32_t crc
        cdef int64_t offsets = h.last_offset_delta + 1
        cdef bint has_base = not self.log_append and not h.attributes & DELETE_HORIZON and h.record_count > 0
        cdef int64_t earliest = h.base_timestamp if has_base else h.max_timestamp
        cdef bint packed = codec != NO_CODEC
        if packed:
            size = self.compressed(at + HEADER_SIZE, size, codec, 2)
        h.base_offset = self.offset
        h.partition_leader_epoch = 0
        if self.leader_epoch_offsets != 0:
            h.partition_leader_epoch = <int32_t> (self.offset // self.leader_epoch_offsets)
        h.batch_length = 0
        h.crc = 0
        # The length and the CRC depend on the codec library, so the content fingerprint treats them as 0.
        put_header(p, h)
        self.digest_batch(p, HEADER_SIZE, content)
        put_int32(p + AT_BATCH_LENGTH, <int32_t> (HEADER_SIZE - LOG_OVERHEAD + size))
        self.used = at + HEADER_SIZE + size
        # Each byte is summed once, and compressed bytes twice. The other sums are combined from these.
        if packed:
            crc = crc32c_of(p + AT_ATTRIBUTES, HEADER_SIZE - AT_ATTRIBUTES + size)
        else:
            crc = crc32c_of(p + AT_ATTRIBUTES, HEADER_SIZE - AT_ATTRIBUTES)
            crc = crc32c_moved(crc, crc32c_over(size)) ^ content
        put_int32(p + AT_CRC, <int32_t> crc)
        self.add_to_log_crc(p, AT_ATTRIBUTES, HEADER_SIZE - AT_ATTRIBUTES + size, crc)
        self.appended(at, offsets, h.max_timestamp, earliest)
        self.records += h.record_count - offsets
        return 0

    cdef int digest_batch(self, const uint8_t *header, int64_t size, uint32_t content) except -1 nogil:
        """Add a batch to the content fingerprint: the CRC-32C of its header and of its uncompressed payload.

        BLAKE2b over the header itself would take a third of the time of a small batch.
        """
        cdef uint8_t *entry = more_of(&self.digests.out, 8)
        put_int32(put_int32(entry, <int32_t> crc32c_of(header, size)), <int32_t> content)
        return 0

    cdef inline void add_to_log_crc(self, const uint8_t *p, int64_t size, int64_t rest, uint32_t crc) noexcept nogil:
        """Add to the log's CRC-32C ``size`` bytes at ``p``, then ``rest`` bytes whose own CRC-32C is ``crc``."""
        self.crc32c = crc32c_moved(crc32c_on(self.crc32c, p, size), crc32c_over(rest)) ^ crc

    cdef int put_messages(self, stream_t *s) except -1 nogil:
        """Write messages of magic 0 or 1: one after the other without a codec, otherwise compressed in one wrapper."""
        cdef int magic = 0 if s.kind == MAGIC_0 else 1
        cdef int64_t count = self.claim(s)
        cdef int64_t at = self.used
        cdef int64_t fields = message_fields(magic)
        cdef int64_t i, size, packed, top, offset
        cdef uint32_t content
        cdef int attributes = LOG_APPEND_TIME if self.log_append and magic == 1 else 0
        cdef int codec = self.codec_of(&self.legacy_codecs)
        size = self.measure(count, magic)
        top = self.top_of_drawn(count)
        if self.log_append:
            for i in range(count):
                self.drawn[i].timestamp = top
        if codec == NO_CODEC:
            self.fill_payload(self.base + at, size)
            self.frame_messages(self.base + at, count, magic, attributes, self.offset)
            for i in range(count):
                size = size_of_message(fields, self.drawn[i].key_size, self.drawn[i].value_size)
                content = crc32c_of(self.base + at + fields, size - fields)
                self.sum_message(at, size, fields, content)
                self.add_to_log_crc(self.base + at, fields, size - fields, content)
                self.used = at + size
                top = self.drawn[i].timestamp if magic == 1 else -1
                self.appended(at, 1, top, top)
                at += size
            return 0
        # Inside a wrapper, offsets of magic 1 count from 0; those of magic 0 are absolute.
        offset = 0 if magic == 1 else self.offset
        self.fill_payload(self.payload, size)
        self.frame_messages(self.payload, count, magic, attributes, offset)
        self.sum_inner(self.payload, count, fields)
        content = crc32c_of(self.payload, size)
        packed = self.compressed(at + fields + LENGTHS_BYTES, size, codec, magic)
        attributes |= codec
        put_message(self.base + at, self.offset + count - 1, magic, attributes, top, -1, packed)
        self.sum_message(at, fields + LENGTHS_BYTES + packed, fields, content)
        self.crc32c = crc32c_on(self.crc32c, self.base + at, fields + LENGTHS_BYTES + packed)
        self.used = at + fields + LENGTHS_BYTES + packed
        top = top if magic == 1 else -1
        self.appended(at, count, top, top)
        return 0

    cdef void frame_messages(self, uint8_t *p, int64_t count, int magic, int attributes, int64_t offset) noexcept nogil:
        cdef int64_t i
        cdef record_t *r
        for i in range(count):
            r = &self.drawn[i]
            p = put_message(p, offset + i, magic, attributes, r.timestamp, r.key_size, r.value_size)
            if r.key_size > 0:
                # put_message wrote the value's length where the key belongs. Write the key there, then the length.
                p = self.put_key_exactly(p - 4, r)
                p = put_int32(p, r.value_size)
            p = self.put_value(p, r)

    cdef void sum_inner(self, uint8_t *p, int64_t count, int64_t fields) noexcept nogil:
        """Write the CRCs of the messages inside a wrapper."""
        cdef int64_t i, size
        for i in range(count):
            size = size_of_message(fields, self.drawn[i].key_size, self.drawn[i].value_size)
            put_message_crc(p, size)
            p += size

    cdef int sum_message(self, int64_t at, int64_t size, int64_t fields, uint32_t content) except -1 nogil:
        """Write the CRC of the message of ``size`` bytes at ``at``; add its fields to the content fingerprint."""
        cdef uint8_t[KEY_AT_V1] header
        memcpy(header, self.base + at, <size_t> fields)
        put_int32(put_int32(header + AT_BATCH_LENGTH, 0), 0)
        self.digest_batch(header, fields, content)
        put_message_crc(self.base + at, size)
        return 0

    cdef int appended(self, int64_t at, int64_t count, int64_t max_timestamp, int64_t min_timestamp) except -1 nogil:
        """Update the indexes like ``LogSegment.append``, and the sums, for ``count`` records at byte ``at``."""
        index_batch(&self.index, &self.offset_entries.out, &self.time_entries.out, self.size + at,
                    self.offset + count - 1, max_timestamp)
        self.batches += 1
        self.records += count
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        if min_timestamp >= 0:
            self.min_timestamp = min(self.min_timestamp, min_timestamp)
        self.offset += count
        self.left -= count
        return 0


cdef bint is_compressed(topic):
    return any(name != "none" for name, _ in (*topic.batches.codecs, *topic.legacy.codecs))
