"""Writes a DataFrame as a Kafka log: ``df.write.format("kafka-log")``. docs/dataframes.md is the guide.

Tasks write segments whose offsets begin with 0 into a folder of the job. When all have ended, the driver gives them
their offsets and their names: a base offset is outside of a batch's CRC, and the entries of indexes are relative.
So a failed or repeated task leaves nothing under a final name.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kfuzz.corpora.labels import sums_of
from kfuzz.corpora.layout import MANIFEST, WORKLOAD
from kfuzz.corpora.manifest import Manifest, Row, codec_versions, write_manifest
from kfuzz.corpora.partitioners import partition_of
from kfuzz.corpora.workload import TOPIC_NAME
from kfuzz.errors import UsageError
from kfuzz.kafka import CODECS, INDEX_INTERVAL_BYTES, INT32_MAX
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.logs.segments import NAME, find_segments, log_end
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT, checkpoint_text, encode, snapshot_name
from kfuzz.logs.stored import FOLDER, META_PROPERTIES, OFFSET, last_offset
from kfuzz.places import opened
from kfuzz.records import Limits, RecordBatch, encode_columns
from kfuzz.records.read.reader import check_with
from kfuzz.spark.arrow_reader import require_known, size_of
from kfuzz.storage import Target, in_parallel
from kfuzz.text import printable
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, HEADER_AT
from kfuzz.wire.records.framing import frames

OPTIONS: Final = ("path", "topic", "partitions", "codec", "batch_records", "segment_bytes", "error_if_exists")
COLUMNS: Final = ("key", "value", "headers", "timestamp", "topic", "partition")
SEGMENT_BYTES: Final = 64 << 20
# A task holds its segments in memory until they are full, or until all of them have more. Then it writes the largest.
HELD_BYTES_MAX: Final = 128 << 20
TIMES: Final = struct.Struct(">qq")
SUFFIXES: Final = (".log", ".index", ".timeindex")


@dataclass(frozen=True, slots=True)
class Staged:
    """A segment that a task has written: ``stem`` is its path without a suffix."""

    folder: str
    stem: str
    batches: int
    records: int


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The segments of a task, in the order of their records."""

    segments: list[Staged]


class KafkaLogWriter(DataSourceArrowWriter):
    """Writes the rows as record batches of magic 2. A partition has the rows in the order of tasks, then of rows.

    ``UsageError`` for an unknown option or a wrong value, and for columns that no record has.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        require_known(options, OPTIONS)
        if "path" not in options:
            raise UsageError("no path is given; name a log directory: .save(DIR)")
        if other := next((name for name in schema.names if name not in COLUMNS), None):
            raise UsageError(f"column {other!r} is of no record; select some of {', '.join(COLUMNS)}")
        if ("topic" in schema.names) == ("topic" in options):
            raise UsageError("the rows need a topic: give either a column topic or the option topic")
        codec = options.get("codec", "none")
        if codec not in CODECS:
            raise UsageError(f"codec {codec!r} does not exist; take one of {', '.join(CODECS)}")
        self.overwrite, self.topic, self.codec = overwrite, options.get("topic"), codec
        self.partitions, self.batch_records = (
            _count(options, name, usual) for name, usual in (("partitions", 1), ("batch_records", 500))
        )
        self.segment_bytes = min(size_of(options, "segment_bytes", SEGMENT_BYTES), HELD_BYTES_MAX)
        target = Target.of(options["path"])
        self.path, self.staging = target.uri, f"_writing-{uuid4().hex}x"
        is_others = not {META_PROPERTIES, WORKLOAD}.isdisjoint(target.list().files)
        if is_others or (options.get("error_if_exists", "false").lower() == "true" and _partitions(target)):
            raise UsageError(f"{target} is {'a broker or a corpus' if is_others else 'a log'}; name another directory")

    def write(self, iterator: Iterator[Any]) -> Written:
        context = TaskContext.get()
        task = _Task(self, context.partitionId() if context else 0)
        for batch in iterator:
            task.add(batch)
        return Written(task.finish())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        target = Target.of(self.path)
        held, rows, ends = _partitions(target), list[Row](), dict[str, int]()
        if self.overwrite:
            for name in (*held, MANIFEST):
                target.remove_directory(name)
        elif held:
            rows += Manifest(target.child(MANIFEST))
            for name in held:
                with opened(f"{self.path}/{name}") as place:
                    ends[name], _ = log_end(find_segments(place)[-1])
        placed: list[tuple[Staged, int]] = []
        for message in filter(None, messages):
            for staged in cast(Written, message).segments:
                first = ends.get(staged.folder, 0)
                placed.append((staged, first))
                ends[staged.folder] = first + staged.records
                if not first:
                    target.write(f"{staged.folder}/{LEADER_EPOCH_CHECKPOINT}", checkpoint_text([(0, 0)]))
        places = in_parallel(partial(self._place, target), enumerate(placed, len(rows)), target.default_jobs())
        write_manifest(target.child(MANIFEST), [*rows, *(row for _, row in places)])
        self._remove_staging()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._remove_staging()

    def _remove_staging(self) -> None:
        # Readers do not look at what is left there. After a commit, an error would let the caller write the rows again.
        with contextlib.suppress(UsageError):
            Target.of(self.path).remove_directory(self.staging)

    def _place(self, target: Target, what: tuple[int, tuple[Staged, int]]) -> Row:
        """Give a segment its offsets and its name. The row has no fingerprint of contents."""
        segment_id, (staged, first) = what
        data, *indexes = (target.read(staged.stem + suffix) or b"" for suffix in SUFFIXES)
        log, times = bytearray(data), list[tuple[int, int]]()
        for at, _, _ in frames(data):
            OFFSET.pack_into(log, at, OFFSET.unpack_from(log, at)[0] + first)
            times.append(TIMES.unpack_from(log, at + HEADER_AT["base_timestamp"]))
        last, snapshot = first + staged.records - 1, encode(())
        with target.stage(staged.folder, self.staging) as stage:
            for suffix, content in zip(SUFFIXES, (bytes(log), *indexes), strict=True):
                stage.write(f"{first:020d}{suffix}", [content])
            stage.write(snapshot_name(last), [snapshot])
            stage.publish()
        target.sync(staged.folder)
        sums: Any = SimpleNamespace(
            **{"crc32c": crc32c(log), "fingerprint": str, "batches": staged.batches, "records": staged.records},
            **{"control_batches": 0, "aborted_records": 0},
            min_timestamp=min(oldest for oldest, _ in times),
            max_timestamp=max(newest for _, newest in times),
        )
        return Row(
            segment_id=segment_id,
            path=f"{staged.folder}/{first:020d}.log",
            first_offset=first,
            last_offset=last,
            snapshot_crc32c=crc32c(snapshot),
            codec_versions=codec_versions(),
            **sums_of(sums, len(log), (*indexes, b""), []),
        )


def _count(options: Mapping[str, str], name: str, usual: int) -> int:
    text = options.get(name, str(usual))
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:11]) <= INT32_MAX):
        raise UsageError(f"option {name} is {text!r}; give a number from 1 to {INT32_MAX}")
    return int(text)


def _partitions(target: Target) -> list[str]:
    """The folders that hold a partition's log; others may have such names."""
    named = [name for name in target.list().directories if FOLDER.fullmatch(name)]
    return [name for name, found in target.list_all(named) if any(map(NAME.fullmatch, found.files))]


class _Task:
    """The partitions of a task: rows that are no whole batch yet, and batches that are no whole segment yet."""

    def __init__(self, writer: KafkaLogWriter, number: int) -> None:
        # Each attempt has its own folder.
        self.writer, self.number, self.place = writer, number, f"{writer.staging}/{uuid4().hex}"
        self.rows: dict[str, list[pa.RecordBatch]] = {}
        self.logs: dict[str, bytearray] = {}
        self.written: list[Staged] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for folder, rows in self._divided(batch):
            table = pa.Table.from_batches([*self.rows.get(folder, ()), rows])
            whole = len(table) - len(table) % self.writer.batch_records
            self._encode(folder, table.slice(0, whole))
            self.rows[folder] = table.slice(whole).to_batches()

    def finish(self) -> list[Staged]:
        for folder, held in self.rows.items():
            if held:
                self._encode(folder, pa.Table.from_batches(held))
        for folder in [*self.logs]:
            self._close(folder)
        return self.written

    def _encode(self, folder: str, rows: pa.Table) -> None:
        like = RecordBatch(0, 0, compression=self.writer.codec, partition_leader_epoch=0)
        data = memoryview(encode_columns(rows, like=like, batch_records=self.writer.batch_records))
        for at, size, _ in frames(data) if data else ():
            if len(self.logs.get(folder, b"")) + size > self.writer.segment_bytes:
                self._close(folder)
            self.logs.setdefault(folder, bytearray()).extend(data[at : at + size])
        while sum(map(len, self.logs.values())) > HELD_BYTES_MAX:
            self._close(max(self.logs, key=lambda one: len(self.logs[one])))

    def _close(self, folder: str) -> None:
        """Write the segment of a partition. Its offsets begin with 0."""
        log, offset = self.logs.pop(folder, bytearray()), 0
        if not log:
            return
        for at, _, _ in frames(bytes(log)):
            OFFSET.pack_into(log, at, offset)
            offset = last_offset(bytes(log[at : at + BATCH_HEADER_SIZE])) + 1
        walk, data = IndexWalk(0, INDEX_INTERVAL_BYTES), bytes(log)
        check_with(data, walk, limits=Limits(INT32_MAX - 1)).raise_fatal()
        stem = str(len(self.written))
        with Target.of(self.writer.path).stage(self.place, stem) as stage:
            for suffix, content in zip(SUFFIXES, (data, walk.offset_index, walk.time_index), strict=True):
                stage.write(stem + suffix, [content])
            stage.publish()
        self.written.append(Staged(folder, f"{self.place}/{stem}", walk.batches, walk.records))

    def _divided(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each partition, with the columns of ``encode_columns``."""
        columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
        topics, partitions = columns.pop("topic", None), columns.pop("partition", None)
        if any(column is not None and column.null_count for column in (topics, partitions)):
            raise UsageError("a row has no topic or no partition; leave such rows out")
        names, found = [self.writer.topic], np.zeros(len(batch), np.int64)
        if topics is not None:
            coded = topics.dictionary_encode()
            names, found = coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64) << 31
        if other := next((name for name in names if not TOPIC_NAME.fits(name)), None):
            raise UsageError(f"{printable(repr(other))} is no topic's name; give letters, digits, '.', '_' and '-'")
        if partitions is not None:
            numbers = partitions.cast(pa.int64()).to_numpy()
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() <= INT32_MAX:
                raise UsageError(f"rows have partitions {numbers.min()} to {numbers.max()}; give 0 to {INT32_MAX}")
            found = found | numbers
        elif (count := self.writer.partitions) > 1:
            keys = columns["key"].cast(pa.binary()).to_pylist() if "key" in columns else [None] * len(batch)
            own = self.number % count
            found = found | [own if key is None else partition_of("murmur2", key, count) or 0 for key in keys]
        if (times := columns.get("timestamp")) is not None and pa.types.is_timestamp(times.type):
            # Spark's are microseconds; the division rounds down, also before 1970.
            micros = times.cast(pa.timestamp("us", times.type.tz)).view(pa.int64()).fill_null(-1000)
            columns["timestamp"] = pa.array(micros.to_numpy() // 1000)
        columns.setdefault("value", pa.nulls(len(batch), pa.binary()))
        rows = pa.RecordBatch.from_pydict(columns)
        for place in np.unique(found):
            mine = np.flatnonzero(found == place)
            folder = f"{names[int(place) >> 31]}-{int(place) & INT32_MAX}"
            yield folder, rows if len(mine) == len(rows) else rows.take(mine)
