"""kfuzz's generator, in memory, and the records that it makes, ready for the other contestants.

Imports ``measure``, ``mixed``, ``kfuzz_work`` and ``kfuzz.corpora``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from benchmarks.kfuzz_work import census_of
from benchmarks.measure import InProcess
from benchmarks.mixed import Content, MixedSet
from kfuzz import records
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import log_chunks, synthesiser
from kfuzz.corpora.workload import MIB, Batches, Legacy, Range, Topic, Values, Workload
from kfuzz.records import Codec

__all__ = ["GeneratedSet", "generate_log"]


@dataclass(frozen=True)
class GeneratedSet(MixedSet):
    """The records of one segment of ``megabytes`` MiB before compression: keys of 10 bytes, values of 100."""

    batches: int = 0
    each: int = 100
    codec: Codec = "none"
    kind: Literal["random", "text"] = "random"
    megabytes: int = 64

    @property
    def workload(self) -> Workload:
        """The generator's output: ``each`` records to a batch, all in one format."""
        codecs = ((self.codec, 1),)
        topic = Topic(
            "generated",
            values=Values(size=Range(100, 100), kind=self.kind),
            batches=Batches(records=Range(self.each, self.each), codecs=codecs),
            legacy=Legacy(magic1=float(self.magic == 1), codecs=codecs),
        )
        return Workload(topics=(topic,), size=self.megabytes * MIB, segment_bytes=self.megabytes * MIB)

    @cached_property
    def log(self) -> bytes:
        """The segment's log."""
        workload = self.workload
        return b"".join(bytes(chunk) for segment in Plan(workload) for chunk in log_chunks(segment, workload))

    @cached_property
    def contents(self) -> list[list[Content]]:
        rows = [
            [Content(one.timestamp or 0, one.key, one.value, []) for one in batch.records]
            for batch in records.decode(self.log)
        ]
        if self.magic == 2:
            return rows
        # Each message is a batch of its own here; a builder gets as many as a batch of magic 2 has.
        flat = [content for batch in rows for content in batch]
        return [flat[at : at + self.each] for at in range(0, len(flat), self.each)]


def generate_log(made: GeneratedSet) -> InProcess:
    """Make the segment's log, indexes and sums in memory. Nothing is written."""
    workload = made.workload
    plan = Plan(workload)

    def run() -> int:
        count = 0
        for segment in plan:
            making = synthesiser(segment, workload.index_interval_bytes)
            while making.fill():
                pass
            count += making.records
        return count

    return InProcess(run, lambda: census_of([made.log]))
