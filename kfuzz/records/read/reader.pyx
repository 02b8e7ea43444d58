"""Bytes to record batches and findings: the calls.

Each runs the compiled scan; at a stop that Python has to look at, ``walk.Walk`` goes on. It is made when it is first
needed, so that a call on good bytes costs little more than the scan.
"""

cimport cython

from kfuzz.records.model cimport Reading, RecordBatch, Verdict, batch_of, new_verdict
from kfuzz.wire.policy cimport ENDED, PICKED, REFUSED, Choice, Policy
from kfuzz.wire.produced cimport ProduceRules, rules_like
from kfuzz.wire.scan cimport AT_BATCH, AT_END, AT_PAYLOAD, Scan, each_record, open_scan

from kfuzz.errors import UsageError
from kfuzz.findings import PROFILES as NAMES_OF_PROFILES
from kfuzz.kafka import INDEX_INTERVAL_BYTES
from kfuzz.kafka import ROLES as NAMES_OF_ROLES
from kfuzz.records.read.limits import DEFAULT_LIMITS
from kfuzz.records.read.topic import DEFAULT_TOPIC
from kfuzz.records.read.walk import Walk, require_profile_and_role
from kfuzz.wire.segment import SegmentRules

__all__ = ["batches", "check", "chosen", "decode", "iterate", "read", "readings"]

# The last topic that was asked for, and its rules: a broker has many requests for one topic. They are one object, so
# that no thread sees the topic of another with the rules of its own.
cdef tuple known = (None, None)

cdef tuple PROFILES = tuple(NAMES_OF_PROFILES)
cdef tuple ROLES = tuple(NAMES_OF_ROLES)


@cython.final
@cython.freelist(8)
cdef class Reader:
    """One pass over some bytes."""

    cdef Scan scan
    # None until there is something to say, where nobody else asks for it.
    cdef Verdict verdict
    cdef object data
    cdef object profile
    cdef object role
    cdef object limits
    cdef object walk
    # Whether the batch of this stop is stored though no consumer can read it.
    cdef bint unreadable

    cdef bint look(self, int stop) except -1:
        """Note what is wrong where the scan has stopped; False where nothing more is to be read."""
        cdef bint is_readable
        if stop == AT_BATCH and self.scan.report.count == 0:
            self.unreadable = False
            return True
        if stop == AT_END:
            return False
        if self.verdict is None:
            self.verdict = new_verdict(Verdict.__new__(Verdict))
        if self.walk is None:
            self.walk = Walk(self.scan, self.data, self.profile, self.limits, into=self.verdict, role=self.role)
        is_readable = self.walk.look(stop)
        self.unreadable = self.walk.unreadable
        return is_readable

    def __call__(self, int stop):
        """The same; ``RecordsError`` with the first fatal finding."""
        cdef bint is_readable = self.look(stop)
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


cdef Reader reader_of(Verdict into, data, profile, role, limits, topic, bint objects):
    """A pass that has not begun; ``UsageError`` for a profile, a role or a topic that does not fit."""
    cdef Policy policy = None
    if profile not in PROFILES or role not in ROLES:
        require_profile_and_role(profile, role)
    if role == "broker":
        policy = rules_of(topic)
    elif topic is not DEFAULT_TOPIC:
        raise UsageError(f"role {role!r} does not look at a topic; take role 'broker', or leave topic out")
    elif role == "log":
        policy = SegmentRules(INDEX_INTERVAL_BYTES)
    return reader_with(policy, into, data, profile, role, limits, objects)


cdef Reader reader_with(Policy policy, Verdict into, data, profile, role, limits, bint objects):
    cdef Reader reader = Reader.__new__(Reader)
    reader.scan = open_scan(data, objects, policy, limits.decompressed_bytes)
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
    """Read every batch in ``data`` with its records. Never raises on bad bytes: ``Reading.fatal`` says what was
    refused.

    ``topic`` is what a broker knows of the partition. ``UsageError`` for another role with a topic, and for an unknown
    role or profile.

    Mirrors ``MemoryRecords.batches()`` and, per batch, ``ensureValid()`` and ``streamingIterator()``; for a broker
    ``ProduceRequest.validateRecords`` and ``LogValidator``, for a log ``LogSegment.recover``.
    """
    cdef Reading reading = new_verdict(Reading.__new__(Reading))
    cdef Reader reader = reader_of(reading, data, profile, role, limits, topic, True)
    reading.batches = []
    while reader.look(reader.scan.go_on()):
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
):
    """As :func:`read`, by the same loop, without making objects."""
    cdef Verdict verdict = new_verdict(Verdict.__new__(Verdict))
    cdef Reader reader = reader_of(verdict, data, profile, role, limits, topic, False)
    while reader.look(reader.scan.go_on()):
        pass
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
    """The batches in ``data`` one at a time, so that no more than one batch's records are in memory.

    ``RecordsError`` with the first fatal finding, when iteration reaches the batch that has it.
    """
    cdef Reader reader = reader_of(None, data, profile, role, limits, topic, True)
    cdef RecordBatch batch
    while reader.look(reader.scan.go_on()):
        reader.raise_fatal()
        batch = batch_of(reader.scan, reader.unreadable)
        yield batch
    reader.raise_fatal()


def readings(data, *, limits=DEFAULT_LIMITS):
    """Each batch in ``data`` in a reading of its own, and its place: where it begins, and its size, in bytes.

    Findings have places in ``data``. ``RecordsError`` as :func:`batches` raises it. One batch is in memory at a time.
    """
    cdef Reader reader = reader_with(None, None, data, "kafka", "consumer", limits, True)
    cdef Reading reading
    while reader.look(reader.scan.go_on()):
        reader.raise_fatal()
        reading = new_verdict(Reading.__new__(Reading))
        reading.batches = [batch_of(reader.scan, reader.unreadable)]
        if reader.verdict is not None:
            reading.findings = reader.verdict.findings
            reader.verdict.findings = []
        yield reading, reader.scan.at, reader.scan.size
    reader.raise_fatal()


def chosen(data, Choice choice not None):
    """The batches in ``data`` that ``choice`` picks, one at a time; of the others no objects are made.

    The generator returns the batch that ``choice`` refuses, or None. ``RecordsError`` with the first fatal finding of a
    consumer, when the scan reaches the batch that has it.
    """
    cdef Reader reader = reader_with(choice, None, data, "kafka", "consumer", DEFAULT_LIMITS, False)
    cdef RecordBatch batch
    cdef int stop
    while True:
        stop = reader.scan.go_on()
        if not reader.look(stop):
            break
        reader.raise_fatal()
        if stop == AT_PAYLOAD:
            # Its records were not there when the scan came by.
            reader.scan.ask()
        if choice.said == PICKED:
            batch = batch_of(reader.scan, False)
            yield batch
        elif choice.said == REFUSED:
            return batch_of(reader.scan, False)
        elif choice.said == ENDED:
            return None
    reader.raise_fatal()


def iterate(data, *, profile="kafka", limits=DEFAULT_LIMITS):
    """The records in ``data`` as a consumer gets them, control records too, one at a time.

    The cheapest way to get objects, for they are reused: unless you keep a reference to a record, its key or its value,
    the object is filled again two iterations later. What you keep never changes. This depends on the reference counts
    of CPython; where a count says that someone else has the object, a new one is made.

    An iterator is for one thread at a time: ``ValueError`` or ``RuntimeError`` where two ask at once. Each batch is
    judged whole before its first record comes. ``RecordsError`` with the first fatal finding, when
    iteration reaches its batch.
    Mirrors ``org.apache.kafka.common.record.MemoryRecords.records``.

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
    """The batches in ``data``; ``RecordsError`` with the first fatal finding where the bytes are refused."""
    return list(batches(data, profile=profile, role=role, limits=limits, topic=topic))
