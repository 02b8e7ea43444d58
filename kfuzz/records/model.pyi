# The docstrings are in model.pyx, where ``help`` finds them.
from dataclasses import dataclass, field

from kfuzz.findings import Finding
from kfuzz.kafka import Codec, TimestampType
from kfuzz.wire.records.record import Record as Record
from kfuzz.wire.walk.scan import Scan

Header = tuple[bytes, bytes | None]

@dataclass(slots=True)
class RecordBatch:
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
    def next_offset(self) -> int: ...

@dataclass(slots=True)
class Verdict:
    batch_count: int = 0
    record_count: int = 0
    consumed: int = 0
    partial_tail: bool = False
    findings: list[Finding] = field(default_factory=list)
    largest_timestamp: int = -1
    next_batch: int = -1
    more_findings: int = 0

    @property
    def fatal(self) -> Finding | None: ...
    def raise_fatal(self) -> None: ...

@dataclass(slots=True)
class Reading(Verdict):
    batches: list[RecordBatch] = field(default_factory=list)

def read_batch(scan: Scan, unreadable: bool) -> RecordBatch:
    """The batch at which the scan stopped. If ``unreadable``, its list of records stays empty."""
