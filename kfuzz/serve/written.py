"""A partition that clients write to: a broker's checks and offsets, from ``kfuzz.records``."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

from kfuzz import records
from kfuzz.broker_errors import ERROR_CODES
from kfuzz.control import ControlRecord, ControlRecordKey, ControlRecordType, EndTransactionMarker, encode_control
from kfuzz.errors import RecordsError
from kfuzz.records.appending import append
from kfuzz.records.read.limits import Limits
from kfuzz.records.read.topic import DEFAULT_TOPIC
from kfuzz.records.read.topic import Topic as TopicSettings
from kfuzz.records.stream import Append, ProducerState
from kfuzz.serve.topics import AbortedRange, Partition, Step
from kfuzz.wire.io.layout import TRANSACTIONAL
from kfuzz.wire.records.record_batch import parse_header

# The errors for findings; all others are INVALID_RECORD.
REFUSALS: Final = {
    "crc-mismatch": "CORRUPT_MESSAGE",
    "batch-length-below-minimum": "CORRUPT_MESSAGE",
    "batch-length-too-large": "UNKNOWN_SERVER_ERROR",
    "compressed-offset-delta-not-index": "UNKNOWN_SERVER_ERROR",
    "batch-too-large": "MESSAGE_TOO_LARGE",
    "decompressed-size-exceeded": "MESSAGE_TOO_LARGE",
    "log-append-time-produced": "INVALID_TIMESTAMP",
    "timestamp-out-of-range": "INVALID_TIMESTAMP",
}
# A batch of a MiB may hold far more; its records become objects for a moment.
LIMITS: Final = Limits(decompressed_bytes=16 << 20)
# The memory of a batch besides its bytes.
BATCH_BYTES: Final = 1000


class Arrived(NamedTuple):
    """The records of a Produce request for this partition, as they arrived, and the answer's error and offset."""

    data: bytes
    transactional_id: str | None
    acks: int
    error: int
    base_offset: int

    def json(self) -> dict[str, Any]:
        return {
            "hex": self.data.hex(),
            "transactional_id": self.transactional_id,
            "acks": self.acks,
            "error": self.error,
            "base_offset": str(self.base_offset),
        }


class WrittenPartition(Partition):
    """An empty log to which clients append. ``produced`` has what arrived, also what was refused."""

    has_epochs = True
    is_exact = False

    def __init__(self) -> None:
        super().__init__()
        self.state = ProducerState()
        self.produced: list[Arrived] = []
        self.aborted: list[AbortedRange] = []
        # A step is a batch, which begins where the one before ends.
        self._stored: list[Step] = []

    @property
    def steps(self) -> Iterable[Step]:
        return self._stored

    @property
    def end(self) -> int:
        return self.state.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.state.last_stable_offset

    def _from(self, offset: int, committed: bool, room: int) -> Step:
        """Whole batches from the one with ``offset`` on, until they need more than ``room``."""
        limit = self.last_stable_offset if committed else self.end
        found, size, end = [], 0, offset
        first = bisect_right(self._stored, offset, key=lambda one: one.end)
        begin = self._stored[first - 1].end if first else 0
        for data, after in islice(self._stored, first, None):
            if begin >= limit or size > room:
                break
            found.append(data)
            size, begin, end = size + len(data), after, after
        return Step(b"".join(found), end)

    def arrive(self, arrived: Arrived) -> None:
        """Remember what a request had for this partition."""
        self.produced.append(arrived)
        self.written_bytes += len(arrived.data) + BATCH_BYTES

    def append(self, data: bytes) -> tuple[int, int]:
        """Append a producer's batch as a broker does. Its base offset in the log and no error, or -1 and the error."""
        topic = TopicSettings(first_offset=self.end, leader_epoch=self.leader_epoch)
        try:
            stored = append(data, topic, limits=LIMITS).data
        except RecordsError as error:
            return -1, ERROR_CODES[REFUSALS.get(error.finding.code, "INVALID_RECORD")]
        done = self._store(stored, _headed(stored))
        return (-1, ERROR_CODES[done.error]) if done.error else (done.base_offset or 0, 0)

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Append a coordinator's marker."""
        kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        key, value = encode_control(ControlRecord(ControlRecordKey(kind), EndTransactionMarker(0)))
        batch = records.RecordBatch(
            self.end,
            self.end,
            [records.Record(self.end, DEFAULT_TOPIC.now, key, value)],
            transactional=True,
            control=True,
            producer_id=producer_id,
            producer_epoch=epoch,
            partition_leader_epoch=self.leader_epoch,
        )
        done = self._store(records.encode([batch]), batch)
        if done.completed is not None and done.completed.aborted:
            self.aborted.append(AbortedRange(*done.completed[:3]))

    def _store(self, data: bytes, batch: records.RecordBatch) -> Append:
        done = self.state.append(batch)
        if done.outcome == "appended":
            self._stored.append(Step(data, batch.last_offset + 1))
            self.written_bytes += len(data) + BATCH_BYTES
        return done


def _headed(data: bytes) -> records.RecordBatch:
    """A batch with its header only: no more is needed to judge what a producer sends."""
    header = parse_header(data, 0)
    return records.RecordBatch(
        header.base_offset,
        header.base_offset + header.last_offset_delta,
        transactional=bool(header.attributes & TRANSACTIONAL),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
