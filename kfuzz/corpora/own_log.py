"""Writes the records of Kafka's own topics to a log, like ``Synthesiser`` those of other topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from kfuzz import records
from kfuzz.corpora.clock import clock_of
from kfuzz.corpora.log_walk import LogWalk
from kfuzz.corpora.own import Cluster, Contents
from kfuzz.corpora.own_remote import contents as contents_in
from kfuzz.corpora.own_remote import remote_files
from kfuzz.corpora.plan import Segment
from kfuzz.corpora.workload import BATCH_BYTES_MAX
from kfuzz.records import Limits, Record, RecordBatch
from kfuzz.records.read.reader import check_with

CHUNK_BYTES: Final = 1 << 20
# A batch of a corpus stays below this.
LIMITS: Final = Limits(2 * BATCH_BYTES_MAX)


class OwnSynthesiser(LogWalk):
    """Makes the bytes of a segment of one of Kafka's own topics in chunks, like ``Synthesiser``.

    Indexes and sums come from the walk that verifies a corpus: it reads each chunk. ``contents``: those of a file that
    is no segment.
    """

    def __init__(self, segment: Segment, index_interval_bytes: int, contents: Contents | None = None) -> None:
        super().__init__(segment, index_interval_bytes)
        self.segment, self.made = segment, segment.first_offset
        self.contents = contents or contents_in(segment)
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
        # A controller refuses a batch of several times, and coordinators write none.
        ms, found = self.clock.moment(units).ms, []
        for number in range(count):
            thing, of_thing = divmod(at + number, part.each)
            found.append(Record(first + number, ms, *part.make(part.things[thing], of_thing, ms)))
        self.made = first + count
        header: dict[str, Any] = {"compression": self.codec, "control": part.control, "partition_leader_epoch": 0}
        return records.encode([RecordBatch(first, self.made - 1, found, **header)])


def files_beside(segment: Segment) -> Iterator[tuple[str, Iterator[memoryview]]]:
    """The paths and the contents of the files that a segment of one of Kafka's own topics has besides the usual ones.

    Each chunk is valid only until the next is requested.
    """
    if beside_end := snapshot_file(segment):
        yield f"{segment.directory}/{beside_end[0]}", beside_end[1]
    yield from ((path, iter([memoryview(data)])) for path, data in remote_files(segment))


def snapshot_file(segment: Segment) -> tuple[str, Iterator[memoryview]] | None:
    """The name and the content of the snapshot beside the end of a metadata log; None if there is none.

    Each chunk of the content is valid only until the next is requested.
    """
    if not (segment.topic.things.snapshot and segment.is_last):
        return None
    clock = clock_of(segment.topic.timestamps)
    last_ms = clock.moment(segment.first_units + (segment.offsets - 1) * clock.units_per_offset).ms
    contents = Contents.of(Cluster(segment.topic.things).snapshot(last_ms))
    # It is named after its end offset and its epoch. Its own offsets begin with 0.
    name = f"{segment.last_offset + 1:020d}-{0:010d}.checkpoint"
    making = OwnSynthesiser(replace(segment, first_offset=0, offsets=contents.count), 1 << 30, contents)
    return name, (making.view[:used] for used in iter(making.fill, 0))
