"""The classes that readers return and writers take.

They are compiled because small reads and verdicts spend most of their time creating these objects.
"""

from cython.dataclasses cimport dataclass, field
from libc.stdint cimport int64_t, uint64_t

from kfuzz.wire.io.format cimport (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LAST_CODEC,
    LAST_MAGIC,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
)
from kfuzz.wire.walk.scan cimport Scan

from kfuzz.errors import RecordsError
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS as NAMES_OF_CODECS
from kfuzz.wire.records.record import Record

__all__ = ["Header", "Reading", "Record", "RecordBatch", "Verdict", "read_batch"]

Header = tuple[bytes, bytes | None]
cdef tuple CODECS = tuple(NAMES_OF_CODECS)


@dataclass
cdef class RecordBatch:
    """A record batch of magic 2, or a message of magic 0 or 1 (a wrapper if ``compression`` is not "none").

    - ``base_timestamp``, ``max_timestamp`` (milliseconds): if one is None, a writer takes it from the records.
    - ``delete_horizon`` (milliseconds): if set, it is written in place of the base timestamp, as in the format.
    - ``base_offset``: for magic 0 and 1, the offset of the first record.
    - ``producer_id``, ``producer_epoch``, ``base_sequence``: -1 for magic 0 and 1.
    - ``unreadable``: a log stores this batch, but no consumer can read its records. ``records`` is then empty.

    Mirrors ``org.apache.kafka.common.record.RecordBatch``.

    >>> from kfuzz import records
    >>> batch = records.RecordBatch(5, 5, [records.Record(5, 1000, b"k", b"v")], compression="zstd")
    >>> batch.magic, batch.next_offset
    (2, 6)
    """

    base_offset: object
    last_offset: object
    records: object = field(default_factory=list)
    magic: object = 2
    compression: object = "none"
    timestamp_type: object = "create"
    transactional: object = False
    control: object = False
    producer_id: object = -1
    producer_epoch: object = -1
    base_sequence: object = -1
    partition_leader_epoch: object = -1
    delete_horizon: object = None
    base_timestamp: object = None
    max_timestamp: object = None
    unreadable: object = False

    @property
    def next_offset(self):
        """The offset after ``last_offset``. The last offset counts even if no record has it."""
        return wrap64(self.last_offset + 1)


@dataclass
cdef class Verdict:
    """The result of :func:`check`.

    - ``batch_count``, ``record_count``: the batches before the first unreadable one, and their records. A batch that
      only profile ``strict`` refuses is readable, so it counts.
    - ``consumed``: where the last of these batches ends, in bytes.
    - ``partial_tail``: a cut batch follows. In a fetch, or at the end of a log, that is not an error. For role ``log``,
      it is one if sound batches follow the cut: ``batch-length-wrong``.
    - ``findings``: everything that is wrong or unusual.
    - ``fatal``: the first finding that refuses the bytes, or None.
    - ``largest_timestamp``: only for role ``broker``: the largest timestamp of the records (milliseconds), which
      becomes the max timestamp. Otherwise -1.
    - ``next_batch``: only for role ``log``: the byte at which sound batches follow a cut one; then there is a finding
      ``batch-length-wrong``. Otherwise -1.
    - ``more_findings``: how many findings ``findings_max`` of :func:`check` left out of ``findings``.
    """

    batch_count: int64_t = 0
    record_count: int64_t = 0
    consumed: int64_t = 0
    partial_tail: bint = False
    findings: list = field(default_factory=list)
    largest_timestamp: int64_t = -1
    next_batch: int64_t = -1
    more_findings: int64_t = 0

    @property
    def fatal(self):
        for finding in self.findings:
            if finding.severity == "fatal":
                return finding
        return None

    cdef int leave_out(self, int64_t most) except -1:
        """Keep the first ``most`` findings, and the first fatal one."""
        cdef list kept = self.findings[:most]
        fatal = self.fatal
        if fatal is not None and fatal not in kept:
            kept.append(fatal)
        self.more_findings += len(self.findings) - len(kept)
        self.findings = kept
        return 0

    cdef void take_sums(self, Scan scan) noexcept:
        self.batch_count = scan.batch_count
        self.record_count = scan.record_count
        self.consumed = scan.at
        self.partial_tail = scan.is_cut
        if scan.has_policy:
            self.largest_timestamp = scan.policy.largest_timestamp

    def raise_fatal(self):
        """Raise ``RecordsError`` if there is a fatal finding."""
        if self.findings and (fatal := self.fatal) is not None:
            raise RecordsError(fatal)


@dataclass
cdef class Reading(Verdict):
    """The result of :func:`read`: a verdict, and ``batches``, the batches that it counts."""

    batches: list = field(default_factory=list)


cdef Verdict new_verdict(Verdict verdict):
    """Set the defaults of a ``verdict`` that ``__new__`` made. Calling the class would take five times as long."""
    verdict.findings = []
    verdict.largest_timestamp = verdict.next_batch = -1
    return verdict


cdef RecordBatch batch_of(Scan scan, bint unreadable):
    """The batch at which the scan stopped. Setting its fields one by one is much faster than calling the class."""
    cdef RecordBatch batch = RecordBatch.__new__(RecordBatch)
    cdef int codec = scan.h.attributes & CODEC_MASK
    batch.records = [] if unreadable else scan.all_records()
    batch.magic = scan.magic
    # A segment may hold a batch whose codec does not exist. Such a batch is unreadable.
    batch.compression = CODECS[codec] if codec <= LAST_CODEC else "none"
    batch.unreadable = unreadable
    if scan.magic == LAST_MAGIC:
        set_fields(batch, scan)
    else:
        set_message(batch, scan)
    return batch


cdef int set_fields(RecordBatch batch, Scan scan) except -1:
    """Set the fields of magic 2. Sums wrap around, as in Java."""
    cdef int attributes = scan.h.attributes
    batch.base_offset = scan.h.base_offset
    batch.last_offset = <int64_t> (<uint64_t> scan.h.base_offset + <uint64_t> scan.h.last_offset_delta)
    batch.timestamp_type = "log-append" if attributes & LOG_APPEND_TIME else "create"
    batch.transactional = attributes & TRANSACTIONAL != 0
    batch.control = attributes & CONTROL != 0
    batch.producer_id = scan.h.producer_id
    batch.producer_epoch = scan.h.producer_epoch
    batch.base_sequence = scan.h.base_sequence
    batch.partition_leader_epoch = scan.h.partition_leader_epoch
    batch.base_timestamp = scan.h.base_timestamp
    batch.delete_horizon = batch.base_timestamp if attributes & DELETE_HORIZON else None
    batch.max_timestamp = scan.h.max_timestamp
    return 0


cdef int set_message(RecordBatch batch, Scan scan) except -1:
    """Set the fields of a message or wrapper of magic 0 or 1. It has no producer."""
    first = batch.records[0] if batch.records else None
    batch.last_offset = scan.message.offset
    batch.base_offset = batch.last_offset if first is None else first.offset
    batch.timestamp_type = "create"
    if scan.magic == 0:
        batch.timestamp_type = "none"
    elif scan.message.attributes & LOG_APPEND_TIME:
        batch.timestamp_type = "log-append"
    batch.transactional = batch.control = False
    batch.producer_id = batch.producer_epoch = batch.base_sequence = batch.partition_leader_epoch = -1
    batch.delete_horizon = None
    batch.base_timestamp = None if first is None else first.timestamp
    batch.max_timestamp = scan.message.timestamp if scan.magic else None
    return 0


def read_batch(Scan scan not None, bint unreadable):
    return batch_of(scan, unreadable)
