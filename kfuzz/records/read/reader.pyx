"""The calls that read record batches from bytes.

Each call runs the compiled scan. At stops that need Python, ``walk.Walk`` takes over. It is created when it is first
needed, so a call on good bytes costs little more than the scan.
"""

from collections import namedtuple

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t

from kfuzz.records.model cimport Reading, RecordBatch, Verdict, batch_of, new_verdict
from kfuzz.wire.io.cursor cimport load64
from kfuzz.wire.io.format cimport LAST_MAGIC, MESSAGE_AT_ATTRIBUTES
from kfuzz.wire.walk.policy cimport ENDED, PICKED, REFUSED, Choice, Policy
from kfuzz.wire.walk.produced cimport ProduceRules, rules_like
from kfuzz.wire.walk.scan cimport AT_BATCH, AT_END, AT_PAYLOAD, Scan, each_record, open_scan

from kfuzz.errors import UsageError
from kfuzz.findings import PROFILES as NAMES_OF_PROFILES
from kfuzz.findings.stored import length_wrong
from kfuzz.kafka import INDEX_INTERVAL_BYTES
from kfuzz.kafka import ROLES as NAMES_OF_ROLES
from kfuzz.records.read.limits import DEFAULT_LIMITS
from kfuzz.records.read.topic import DEFAULT_TOPIC
from kfuzz.records.read.walk import Walk, require_profile_and_role
from kfuzz.wire.walk.search import find_batch
from kfuzz.wire.walk.segment import SegmentRules

__all__ = ["batches", "check", "check_with", "chosen", "decode", "headers", "iterate", "read", "readings"]

BatchHeader = namedtuple("BatchHeader", (
    "number", "at", "size", "magic", "record_count", "base_offset", "last_offset", "base_timestamp", "max_timestamp",
    "attributes", "producer_id", "producer_epoch", "base_sequence", "leader_epoch", "is_readable", "findings",
))

# A cache with the last topic and its rules, because a broker gets many requests for one topic. Both are in one tuple,
# so that a thread never sees one topic with the rules of another.
cdef tuple known = (None, None)

cdef tuple PROFILES = tuple(NAMES_OF_PROFILES)
cdef tuple ROLES = tuple(NAMES_OF_ROLES)
# The defaults, which are compared by identity: most calls leave them as they are.
cdef str KAFKA = "kafka"
cdef str CONSUMER = "consumer"
cdef object DEFAULT = DEFAULT_LIMITS
cdef object TOPIC = DEFAULT_TOPIC
cdef int64_t DEFAULT_BYTES = DEFAULT_LIMITS.decompressed_bytes


@cython.final
@cython.freelist(8)
cdef class Reader:
    """One pass over some bytes."""

    cdef Scan scan
    # None until there is a finding, unless the caller gave one.
    cdef Verdict verdict
    cdef object data
    cdef object profile
    cdef object role
    cdef object limits
    cdef object walk
    # True if a log stores the batch of this stop although no consumer can read it.
    cdef bint unreadable

    cdef bint handle_stop(self, int stop) except -1:
        """Add the findings of this stop. Returns False if the scan ends here."""
        cdef bint is_readable
        if stop == AT_BATCH and self.scan.report.count == 0:
            self.unreadable = False
            return True
        if stop == AT_END:
            if self.scan.is_cut and self.role == "log":
                self.look_behind_cut()
            return False
        if self.verdict is None:
            self.verdict = new_verdict(Verdict.__new__(Verdict))
        if self.walk is None:
            self.walk = Walk(self.scan, self.data, self.profile, self.limits, into=self.verdict, role=self.role)
        is_readable = self.walk.handle_stop(stop)
        self.unreadable = self.walk.unreadable
        return is_readable

    cdef int look_behind_cut(self) except -1:
        """A broker cuts a segment off at a batch that is not whole. That is an error if sound batches follow it."""
        after = find_batch(self.data, self.scan.at + 1, self.scan.n)
        if after is None:
            return 0
        self.scan.is_cut = False
        if self.verdict is None:
            self.verdict = new_verdict(Verdict.__new__(Verdict))
        self.verdict.next_batch = after
        self.verdict.findings.append(length_wrong(self.scan.batch_count, self.scan.at, after, self.profile))
        return 0

    def __call__(self, int stop):
        """The same, but raises ``RecordsError`` with the first fatal finding."""
        cdef bint is_readable = self.handle_stop(stop)
        self.raise_fatal()
        return is_readable

    cdef int raise_fatal(self) except -1:
        if self.verdict is not None:
            self.verdict.raise_fatal()
        return 0


cdef ProduceRules rules_of(topic):
    global known
    cdef tuple pair = known
    if pair[0] is not topic:
        pair = known = (topic, topic.rules())
    return rules_like(pair[1])


cdef Reader reader_of(Verdict into, data, profile, role, limits, topic, bint objects, Policy also=None):
    """A pass that has not begun. Raises ``UsageError`` for a wrong profile, role or topic. ``also``: of role log."""
    cdef Policy policy = None
    if role is CONSUMER and profile is KAFKA and topic is TOPIC:
        return reader_with(None, into, data, KAFKA, CONSUMER, limits, objects)
    if profile not in PROFILES or role not in ROLES:
        require_profile_and_role(profile, role)
    if role == "broker":
        policy = rules_of(topic)
    elif topic is not DEFAULT_TOPIC:
        raise UsageError(f"role {role!r} does not use a topic; take role 'broker', or leave topic out")
    elif role == "log":
        policy = SegmentRules(INDEX_INTERVAL_BYTES, also)
    return reader_with(policy, into, data, profile, role, limits, objects)


cdef Reader reader_with(Policy policy, Verdict into, data, profile, role, limits, bint objects):
    cdef Reader reader = Reader.__new__(Reader)
    cdef int64_t most = DEFAULT_BYTES if limits is DEFAULT else limits.decompressed_bytes
    reader.scan = open_scan(data, objects, policy, most)
    reader.verdict = into
    reader.data = data
    reader.profile = profile
    reader.role = role
    reader.limits = limits
    return reader


def read(
    data,
    *,
    profile="kafka",
    role="consumer",
    limits=DEFAULT_LIMITS,
    topic=DEFAULT_TOPIC,
):
    """Read every batch in ``data`` with its records. Bad bytes raise no error: look at ``Reading.fatal``.

    ``topic`` describes the partition, for role ``broker`` only. Raises ``UsageError`` for an unknown role or profile,
    and for a topic with another role.

    Mirrors ``MemoryRecords.batches()``, and for each batch ``ensureValid()`` and ``streamingIterator()``. For role
    ``broker`` it mirrors ``ProduceRequest.validateRecords`` and ``LogValidator``, for ``log`` ``LogSegment.recover``.
    What is cut off at the end is a partial tail; for role ``log`` only if no batch with a right CRC follows it.

    >>> from kfuzz import records
    >>> data = records.encode([records.RecordBatch(7, 7, [records.Record(7, 1, b"k", b"v")])])
    >>> reading = records.read(data + data[:20])
    >>> len(reading.batches), reading.consumed, reading.partial_tail, reading.fatal
    (1, 70, True, None)
    """
    cdef Reading reading = new_verdict(Reading.__new__(Reading))
    cdef Reader reader = reader_of(reading, data, profile, role, limits, topic, True)
    reading.batches = []
    while reader.handle_stop(reader.scan.next_stop()):
        reading.batches.append(batch_of(reader.scan, reader.unreadable))
    reading.take_sums(reader.scan)
    return reading


def check(
    data,
    *,
    profile="kafka",
    role="consumer",
    limits=DEFAULT_LIMITS,
    topic=DEFAULT_TOPIC,
    int64_t findings_max=INT64_MAX,
):
    """Judge ``data`` as :func:`read` does, with the same loop, but create no batches and no records.

    With ``findings_max``, the verdict has at most so many findings, and the first fatal one if that is a later one:
    each of millions of batches may have some.

    >>> from kfuzz import records
    >>> data = bytearray(records.encode([records.RecordBatch(7, 7, [records.Record(7, 1, b"k", b"v")])]))
    >>> records.check(data).record_count
    1
    >>> data[-2] ^= 1
    >>> records.check(data).fatal.code
    'crc-mismatch'
    """
    cdef Verdict verdict = new_verdict(Verdict.__new__(Verdict))
    cdef Reader reader = reader_of(verdict, data, profile, role, limits, topic, False)
    while reader.handle_stop(reader.scan.next_stop()):
        # Not after each finding: this copies the list.
        if len(verdict.findings) >> 1 > findings_max:
            verdict.leave_out(findings_max)
    if len(verdict.findings) > findings_max:
        verdict.leave_out(findings_max)
    verdict.take_sums(reader.scan)
    return verdict


def check_with(data, Policy policy not None, *, profile="kafka", limits=DEFAULT_LIMITS):
    """As :func:`check` of a consumer; ``policy`` is asked about each batch that is not refused."""
    cdef Verdict verdict = new_verdict(Verdict.__new__(Verdict))
    cdef Reader reader = reader_with(policy, verdict, data, profile, "consumer", limits, False)
    cdef int stop = reader.scan.next_stop()
    while reader.handle_stop(stop):
        if stop == AT_PAYLOAD:
            # Its records were not there when the scan came by.
            reader.scan.apply_policy()
        stop = reader.scan.next_stop()
    verdict.take_sums(reader.scan)
    return verdict


def batches(
    data,
    *,
    profile="kafka",
    role="consumer",
    limits=DEFAULT_LIMITS,
    topic=DEFAULT_TOPIC,
):
    """Yield the batches in ``data``. Only one batch's records are in memory at a time.

    Raises ``RecordsError`` with the first fatal finding when iteration reaches the bad batch.

    >>> from kfuzz import records
    >>> data = records.encode([records.RecordBatch(i, i, [records.Record(i, 1, b"k", b"v")]) for i in (0, 1)])
    >>> [batch.base_offset for batch in records.batches(data)]
    [0, 1]
    """
    cdef Reader reader = reader_of(None, data, profile, role, limits, topic, True)
    cdef RecordBatch batch
    while reader.handle_stop(reader.scan.next_stop()):
        reader.raise_fatal()
        batch = batch_of(reader.scan, reader.unreadable)
        yield batch
    reader.raise_fatal()


def readings(data, *, limits=DEFAULT_LIMITS):
    """Yield a ``Reading`` for each batch in ``data``, with the batch's start and size in bytes.

    The findings' offsets count from the start of ``data``. Raises ``RecordsError`` as :func:`batches` does. Only one
    batch is in memory at a time.
    """
    cdef Reader reader = reader_with(None, None, data, "kafka", "consumer", limits, True)
    cdef Reading reading
    while reader.handle_stop(reader.scan.next_stop()):
        reader.raise_fatal()
        reading = new_verdict(Reading.__new__(Reading))
        reading.batches = [batch_of(reader.scan, reader.unreadable)]
        if reader.verdict is not None:
            reading.findings = reader.verdict.findings
            reader.verdict.findings = []
        yield reading, reader.scan.at, reader.scan.size
    reader.raise_fatal()


def headers(data, *, profile="kafka", role="consumer", limits=DEFAULT_LIMITS, Policy also=None):
    """Yield the header of each batch in ``data``, with its place and its findings.

    Each is a :class:`BatchHeader`. Records are judged as :func:`check` does, with the same loop; no objects are made of
    them. A message of magic 0 or 1 has -1 in each field that its format lacks. A batch without timestamps has -1 there.

    A refused batch is the last one; its size is -1 if its frame is refused. Otherwise the last tuple has the size 0: it
    is the end of the data, or a batch that is cut off there, and then the reading ends. Raises ``UsageError``
    as :func:`check` does.

    ``also``, for role ``log`` only, is asked about each batch that is not refused. Only the batches with findings are
    yielded then, and those at which it stops the walk.
    """
    cdef Reader reader = reader_of(None, data, profile, role, limits, DEFAULT_TOPIC, False, also)
    cdef Scan scan = reader.scan
    cdef list findings
    cdef int stop
    cdef bint is_readable
    scan.each = also is None
    while True:
        stop = scan.next_stop()
        # Only callers that know the whole file say whether batches follow a cut.
        is_readable = stop != AT_END and reader.handle_stop(stop)
        findings = None
        if reader.verdict is not None and reader.verdict.findings:
            findings = reader.verdict.findings
            reader.verdict.findings = []
        if scan.size == 0:
            yield BatchHeader(
                scan.batch_count, scan.at, 0, -1, 0, -1, -1, -1, -1, 0, -1, -1, -1, -1, not scan.is_cut, findings,
            )
            return
        yield header_at(scan, is_readable, findings)
        if not is_readable:
            return


cdef object header_at(Scan scan, bint is_readable, list findings):
    """The header of the batch of this stop."""
    cdef int attributes = scan.h.attributes & 0xffff
    cdef int64_t base
    cdef const uint8_t *p = scan.base + scan.at
    if scan.size < 0:
        return BatchHeader(scan.batch_count, scan.at, -1, -1, 0, -1, -1, -1, -1, 0, -1, -1, -1, -1, False, findings)
    if scan.magic == LAST_MAGIC:
        return BatchHeader(
            scan.batch_count, scan.at, scan.size, scan.magic, scan.found, scan.h.base_offset,
            <int64_t> (<uint64_t> scan.h.base_offset + <uint64_t> scan.h.last_offset_delta),
            scan.h.base_timestamp, scan.h.max_timestamp, attributes, scan.h.producer_id, scan.h.producer_epoch,
            scan.h.base_sequence, scan.h.partition_leader_epoch, is_readable, findings,
        )
    if not is_readable:
        # A refused message was not read as a whole.
        base = <int64_t> load64(p)
        return BatchHeader(
            scan.batch_count, scan.at, scan.size, scan.magic, 0, base, base, -1, -1, p[MESSAGE_AT_ATTRIBUTES], -1, -1,
            -1, -1, False, findings,
        )
    # The offset of a wrapper is that of its last message.
    base = scan.first_offset if scan.is_opened else scan.message.offset
    return BatchHeader(
        scan.batch_count, scan.at, scan.size, scan.magic, scan.found, base, scan.message.offset, scan.message.timestamp,
        scan.message.timestamp, scan.message.attributes & 0xff, -1, -1, -1, -1, True, findings,
    )


def chosen(data, Choice choice not None):
    """Yield the batches in ``data`` that ``choice`` picks. No objects are created for the others.

    The generator returns the batch that ``choice`` refuses, or None. Raises ``RecordsError`` with the first finding
    that is fatal for a consumer, when the scan reaches the bad batch.
    """
    cdef Reader reader = reader_with(choice, None, data, "kafka", "consumer", DEFAULT_LIMITS, False)
    cdef RecordBatch batch
    cdef int stop
    while True:
        stop = reader.scan.next_stop()
        if not reader.handle_stop(stop):
            break
        reader.raise_fatal()
        if stop == AT_PAYLOAD:
            # The payload was still compressed when the scan passed, so ask ``choice`` now.
            reader.scan.apply_policy()
        if choice.said == PICKED:
            batch = batch_of(reader.scan, False)
            yield batch
        elif choice.said == REFUSED:
            return batch_of(reader.scan, False)
        elif choice.said == ENDED:
            return None
    reader.raise_fatal()


def iterate(data, *, profile="kafka", limits=DEFAULT_LIMITS):
    """Iterate over the records in ``data`` as a consumer gets them, including control records.

    This is the fastest way to get objects: each is created when the loop reaches it, so they need little memory.

    Only one thread may use an iterator at a time; otherwise ``ValueError`` or ``RuntimeError`` may be raised. Each
    batch is judged as a whole before its first record is returned. Raises ``RecordsError`` with the first fatal
    finding when iteration reaches the bad batch. Mirrors ``org.apache.kafka.common.record.MemoryRecords.records``.

    >>> from kfuzz import records
    >>> data = records.encode([records.RecordBatch(7, 8, [records.Record(i, 0, b"k", b"v") for i in (7, 8)])])
    >>> [record.offset for record in records.iterate(data)]
    [7, 8]
    """
    cdef Reader reader = reader_of(None, data, profile, "consumer", limits, DEFAULT_TOPIC, True)
    return each_record(reader.scan, reader)


def decode(
    data,
    *,
    profile="kafka",
    role="consumer",
    limits=DEFAULT_LIMITS,
    topic=DEFAULT_TOPIC,
):
    """Return the batches in ``data``. Raises ``RecordsError`` with the first fatal finding if the bytes are refused.

    >>> from kfuzz import records
    >>> data = records.encode([records.RecordBatch(7, 7, [records.Record(7, 1, b"k", b"v")])])
    >>> records.decode(data)[0].records[0].value
    b'v'
    """
    return list(batches(data, profile=profile, role=role, limits=limits, topic=topic))
