from dataclasses import dataclass, field

from kfuzz.findings import Finding
from kfuzz.kafka import Codec, TimestampType
from kfuzz.wire.record import Record as Record
from kfuzz.wire.scan import Scan

Header = tuple[bytes, bytes | None]

@dataclass(slots=True)
class RecordBatch:
    """A record batch of magic 2, or a message of magic 0 or 1 (a wrapper, where ``compression`` is not "none").

    ``base_timestamp`` and ``max_timestamp`` (milliseconds) may be None for a writer, which then takes them from the
    records.
    ``delete_horizon`` (milliseconds) stands in for the base timestamp, as in the format. For magic 0 and 1 the
    producer's
    fields are -1 and ``base_offset`` is the first record's. ``unreadable``: the batch stands in a log, or would, though
    no consumer can read its records; it has none here.

    Mirrors ``org.apache.kafka.common.record.RecordBatch``.
    """

    base_offset: int
    last_offset: int
    records: list[Record] = field(default_factory=list)
    magic: int = 2
    compression: Codec = "none"
    timestamp_type: TimestampType = "create"
    transactional: bool = False
    control: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    partition_leader_epoch: int = -1
    delete_horizon: int | None = None
    base_timestamp: int | None = None
    max_timestamp: int | None = None
    unreadable: bool = False

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last one, whether or not a record has that one."""

@dataclass(slots=True)
class Verdict:
    """What :func:`check` says of some bytes.

    ``batch_count`` and ``record_count`` count the batches before the first one that cannot be read, and their records.
    A batch that only profile strict refuses can be read, so it counts. ``consumed``: the end of the last complete batch
    among them, in bytes. ``partial_tail``: a cut batch follows, which is no error in a fetch or at the end of a log.
    ``findings``: everything that is wrong or odd. ``fatal``: the first finding that refuses the bytes, or None.
    ``largest_timestamp``: for a broker, the largest of the records (milliseconds), which becomes the max timestamp.
    """

    batch_count: int = 0
    record_count: int = 0
    consumed: int = 0
    partial_tail: bool = False
    findings: list[Finding] = field(default_factory=list)
    largest_timestamp: int = -1

    @property
    def fatal(self) -> Finding | None: ...
    def count(self, scan: Scan) -> None:
        """Take the sums of a walk."""

    def raise_fatal(self) -> None:
        """``RecordsError`` if there is a fatal finding."""

@dataclass(slots=True)
class Reading(Verdict):
    """A verdict and the batches that it counts."""

    batches: list[RecordBatch] = field(default_factory=list)

def read_batch(scan: Scan, unreadable: bool) -> RecordBatch:
    """The batch that the scan stopped at; without its records where no consumer can read them."""
