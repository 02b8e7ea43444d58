"""Writes the records of Kafka's own topics to a log, like ``Synthesiser`` those of other topics."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from typing import Any, Final

from kfuzz import records
from kfuzz.corpora.clock import clock_of
from kfuzz.corpora.own import contents_of
from kfuzz.corpora.plan import Segment
from kfuzz.corpora.synth import DIGEST_BYTES
from kfuzz.logs.stored import entry_struct
from kfuzz.records import Record, RecordBatch
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE

CHUNK_BYTES: Final = 1 << 20
# The batch's length and its CRC, which the fingerprint of the contents leaves out.
_LENGTH, _CRC = slice(8, 12), slice(17, 21)


class OwnSynthesiser:
    """Makes the bytes of a segment of one of Kafka's own topics in chunks. It has the members of ``Synthesiser``."""

    def __init__(self, segment: Segment, index_interval_bytes: int) -> None:
        self.segment, self.interval = segment, index_interval_bytes
        self.contents = contents_of(segment.topic, segment.key_seed)[segment.partition]
        self.clock = clock_of(segment.topic.timestamps)
        self.codec: Any = segment.topic.batches.codecs[0][0]
        self.view = memoryview(b"")
        self.labels: list[tuple[int, int, int, int]] = []
        self.batches = self.control_batches = self.records = self.aborted_records = self.size = self.crc32c = 0
        self.min_timestamp, self.max_timestamp = -1, -1
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._next, self._indexed_at = segment.first_offset, 0
        self._newest = (-1, 0)
        self._offsets: list[tuple[int, int]] = []
        self._times: list[tuple[int, int]] = []

    def fill(self) -> int:
        """Make batches until a chunk is full. Returns the number of bytes made; 0 at the segment's end."""
        chunk = bytearray()
        while len(chunk) < CHUNK_BYTES and self._next <= self.segment.last_offset:
            chunk += self._batch()
        self.crc32c = crc32c(chunk, self.crc32c)
        self.view = memoryview(chunk)
        return len(chunk)

    def _batch(self) -> bytes:
        first, segment = self._next, self.segment
        part, at, left = self.contents.run(first)
        count = min(left, segment.topic.batches.records.max, segment.last_offset + 1 - first)
        made, times = [], []
        units = segment.first_units + (first - segment.first_offset) * self.clock.units_per_offset
        for number in range(count):
            ms = self.clock.moment(units + number * self.clock.units_per_offset).ms
            thing, of_thing = divmod(at + number, part.each)
            times.append(ms)
            made.append(Record(first + number, ms, *part.make(part.things[thing], of_thing, ms)))
        self._next = first + count
        plain = RecordBatch(first, self._next - 1, made, partition_leader_epoch=0)
        data = records.encode([plain])
        content = crc32c(memoryview(data)[BATCH_HEADER_SIZE:])
        if self.codec != "none":
            data = records.encode([replace(plain, compression=self.codec)])
        self._count(data, content, count, times[0], times[-1])
        return data

    def _count(self, data: bytes, content: int, count: int, first_ms: int, last_ms: int) -> None:
        """Add a batch to the sums and, as Kafka does when it recovers a log, to the indexes."""
        header = bytearray(data[:BATCH_HEADER_SIZE])
        header[_LENGTH] = header[_CRC] = bytes(4)
        self._digest.update(struct.pack(">II", crc32c(header), content))
        if not self.batches:
            self.min_timestamp = first_ms
        last = self._next - 1 - self.segment.first_offset
        if last_ms > self.max_timestamp:
            self.max_timestamp = last_ms
            self._newest = (last_ms, last)
        if self.size - self._indexed_at > self.interval:
            self._offsets.append((last, self.size))
            self._time()
            self._indexed_at = self.size
        self.batches += 1
        self.records += count
        self.size += len(data)

    def _time(self) -> None:
        if not self._times or self._newest[0] > self._times[-1][0]:
            self._times.append(self._newest)

    def offset_index_bytes(self) -> bytes:
        """The ``.index`` file."""
        return b"".join(entry_struct(".index").pack(*entry) for entry in self._offsets)

    def time_index_bytes(self) -> bytes:
        """The ``.timeindex`` file, with the entry that Kafka adds when a segment becomes inactive."""
        self._time()
        return b"".join(entry_struct(".timeindex").pack(*entry) for entry in self._times)

    def transaction_index_bytes(self) -> bytes:
        """Nothing: coordinators write without producer ids."""
        return b""

    def producers(self) -> list[tuple[int, int, int, int, int, int, int, int]]:
        """None, see above."""
        return []

    def fingerprint(self) -> str:
        """The content fingerprint in hex."""
        return self._digest.hexdigest()
