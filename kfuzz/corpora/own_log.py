"""Writes the records of Kafka's own topics to a log, like ``Synthesiser`` those of other topics."""

from __future__ import annotations

from typing import Any, Final

from kfuzz import records
from kfuzz.corpora.clock import clock_of
from kfuzz.corpora.log_walk import LogWalk
from kfuzz.corpora.own import contents_of
from kfuzz.corpora.plan import Segment
from kfuzz.corpora.workload import BATCH_BYTES_MAX
from kfuzz.records import Limits, Record, RecordBatch
from kfuzz.records.read.reader import check_with

CHUNK_BYTES: Final = 1 << 20
LIMITS: Final = Limits(2 * BATCH_BYTES_MAX)


class OwnSynthesiser(LogWalk):
    """Makes the bytes of a segment of one of Kafka's own topics in chunks, like ``Synthesiser``.

    Indexes and sums come from the walk that verifies a corpus: it reads each chunk.
    """

    def __init__(self, segment: Segment, index_interval_bytes: int) -> None:
        super().__init__(segment, index_interval_bytes)
        self.segment, self.made = segment, segment.first_offset
        self.contents = contents_of(segment.topic, segment.key_seed)[segment.partition]
        self.clock = clock_of(segment.topic.timestamps)
        self.codec: Any = segment.topic.batches.codecs[0][0]
        self.labels: list[tuple[int, int, int, int]] = []
        self.view = memoryview(b"")

    @property
    def size(self) -> int:
        """The bytes that were made."""
        return self.from_at

    def fill(self) -> int:
        """Make batches until a chunk is full. Returns the number of bytes made; 0 at the segment's end."""
        chunk = bytearray()
        while len(chunk) < CHUNK_BYTES and self.made <= self.segment.last_offset:
            chunk += self._batch()
        if chunk:
            check_with(chunk, self, limits=LIMITS)
        self.from_at += len(chunk)
        self.view = memoryview(chunk)
        return len(chunk)

    def _batch(self) -> bytes:
        first, segment = self.made, self.segment
        part, at, left = self.contents.run(first)
        count = min(left, segment.topic.batches.records.max, segment.last_offset + 1 - first)
        units = segment.first_units + (first - segment.first_offset) * self.clock.units_per_offset
        found = []
        for number in range(count):
            ms = self.clock.moment(units + number * self.clock.units_per_offset).ms
            thing, of_thing = divmod(at + number, part.each)
            found.append(Record(first + number, ms, *part.make(part.things[thing], of_thing, ms)))
        self.made = first + count
        last = self.made - 1
        return records.encode([RecordBatch(first, last, found, compression=self.codec, partition_leader_epoch=0)])
