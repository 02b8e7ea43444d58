# The docstrings are in builder.pyx, where ``help`` finds them.
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import Buffer

from kfuzz.kafka import Codec, TimestampType
from kfuzz.records.model import Reading, Record, RecordBatch
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits

@dataclass(frozen=True)
class Rebuilt:
    data: bytes
    max_timestamp: int
    offset_of_max_timestamp: int

def rebuild(
    records: Sequence[Record],
    *,
    magic: int,
    base_offset: int,
    compression: Codec = "none",
    timestamp_type: TimestampType = "create",
    log_append_time: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    partition_leader_epoch: int = -1,
    delete_horizon: int | None = None,
    last_offset: int | None = None,
    without_headers: bool = False,
) -> Rebuilt: ...
def empty_batch(batch: RecordBatch) -> bytes: ...
def frames(data: Buffer, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[Reading, memoryview]]: ...
