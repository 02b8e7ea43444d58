"""Writes a DataFrame as a Kafka log: ``df.write.format("kafka-log")``. docs/dataframes.md is the guide.

Tasks write segments whose offsets begin with 0 into a folder of the job. When all have ended, the driver gives them
their offsets and their names: a base offset is outside of a batch's CRC, and the entries of indexes are relative.
So a failed or repeated task leaves nothing under a final name.
"""

from __future__ import annotations

import re
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
from kfuzz.kafka import CODECS, Codec
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.logs.segments import NAME, find_segments, log_end
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT, checkpoint_text, encode, snapshot_name
from kfuzz.logs.stored import FOLDER, META_PROPERTIES
from kfuzz.places import opened
from kfuzz.records import Limits, RecordBatch, encode_columns
from kfuzz.records.read.reader import check_with
from kfuzz.spark.arrow_reader import require_known, size_of
from kfuzz.storage import Target, in_parallel
from kfuzz.text import printable
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.io.layout import HEADER_AT
from kfuzz.wire.records.framing import frames

OPTIONS: Final = ("path", "topic", "partitions", "codec", "batch_records", "segment_bytes", "error_if_exists")
COLUMNS: Final = ("key", "value", "headers", "timestamp", "topic", "partition")
SEGMENT_BYTES: Final = 64 << 20
# A task holds its segments in memory until they are full, or until all of them have more. Then it writes the largest.
HELD_BYTES_MAX: Final = 128 << 20
INDEX_INTERVAL_BYTES: Final = 4096
OFFSET: Final = struct.Struct(">q")
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


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """The options of a write; docs/dataframes.md lists them."""

    path: str
    topic: str | None
    partitions: int
    codec: Codec
    batch_records: int
    segment_bytes: int

    @staticmethod
    def of(options: Mapping[str, str], columns: list[str]) -> WriteSettings:
        """``UsageError`` for an unknown option or a wrong value, and for columns that no record has."""
        require_known(options, OPTIONS)
        if "path" not in options:
            raise UsageError("no path is given; name a log directory: .save(DIR)")
        for name in columns:
            if name not in COLUMNS:
                raise UsageError(f"column {name!r} is of no record; select some of {', '.join(COLUMNS)}")
        if ("topic" in columns) == ("topic" in options):
            raise UsageError("the rows need a topic: give either a column topic or the option topic")
        if "partition" in columns and "partitions" in options:
            raise UsageError("the column partition says the partitions; leave out the option partitions")
        codec = options.get("codec", "none")
        if codec not in CODECS:
            raise UsageError(f"codec {codec!r} does not exist; take one of {', '.join(CODECS)}")
        return WriteSettings(
            Target.of(options["path"]).uri,
            options.get("topic"),
            _count(options, "partitions", 1),
            codec,
            _count(options, "batch_records", 500),
            min(size_of(options, "segment_bytes", SEGMENT_BYTES), HELD_BYTES_MAX),
        )


def _count(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise UsageError(f"option {name} is {text!r}; give a number from 1 to 999999999")
    return int(text)


class KafkaLogWriter(DataSourceArrowWriter):
    """Writes the rows as record batches of magic 2. A partition has the rows in the order of tasks, then of rows."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.settings, self.overwrite = WriteSettings.of(options, schema.names), overwrite
        self.staging = f"_writing-{uuid4().hex}x"
        held = Target.of(self.settings.path).list().files
        if found := next((name for name in (META_PROPERTIES, WORKLOAD) if name in held), None):
            what = "a broker's" if found == META_PROPERTIES else "a corpus"
            raise UsageError(f"{self.settings.path} is {what} ({found} is there); name another directory")
        if options.get("error_if_exists", "false").lower() == "true" and _partitions(Target.of(self.settings.path)):
            raise UsageError(f"{self.settings.path} holds a log; name another directory, or leave out error_if_exists")

    def write(self, iterator: Iterator[Any]) -> Written:
        context = TaskContext.get()
        number = context.partitionId() if context else 0
        # Each attempt has its own folder.
        task = _Task(self.settings, f"{self.staging}/{uuid4().hex}")
        for batch in iterator:
            for folder, rows in _divided(batch, self.settings, number):
                task.add(folder, rows)
        return Written(task.finish())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        target = Target.of(self.settings.path)
        held = _partitions(target)
        rows: list[Row] = []
        ends: dict[str, int] = {}
        if self.overwrite:
            for name in (*held, MANIFEST):
                target.remove_directory(name)
        elif held:
            for name in held:
                with opened(f"{self.settings.path}/{name}") as place:
                    ends[name], _ = log_end(find_segments(place)[-1])
            rows = list(Manifest(target.child(MANIFEST)))
        placed: list[tuple[Staged, int]] = []
        for message in messages:
            for staged in cast(Written, message).segments if message else ():
                placed.append((staged, ends.get(staged.folder, 0)))
                ends[staged.folder] = placed[-1][1] + staged.records
        for _, row in in_parallel(partial(self._place, target), enumerate(placed, len(rows)), target.default_jobs()):
            rows.append(row)
        for folder in {staged.folder for staged, _ in placed} - {*(() if self.overwrite else held)}:
            target.write(f"{folder}/{LEADER_EPOCH_CHECKPOINT}", checkpoint_text([(0, 0)]))
        write_manifest(target.child(MANIFEST), rows)
        target.remove_directory(self.staging)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        Target.of(self.settings.path).remove_directory(self.staging)

    def _place(self, target: Target, what: tuple[int, tuple[Staged, int]]) -> Row:
        """Give a segment its offsets and its name. The row has no fingerprint of contents."""
        segment_id, (staged, first) = what
        held = [target.read(staged.stem + suffix) or b"" for suffix in SUFFIXES]
        log, offsets, times_of = bytearray(held[0]), held[1], held[2]
        times = list[tuple[int, int]]()
        for at, _, _ in frames(log):
            OFFSET.pack_into(log, at, OFFSET.unpack_from(log, at)[0] + first)
            times.append(TIMES.unpack_from(log, at + HEADER_AT["base_timestamp"]))
        last, snapshot = first + staged.records - 1, encode(())
        with target.stage(staged.folder, self.staging) as stage:
            for suffix, data in zip(SUFFIXES, (bytes(log), offsets, times_of), strict=True):
                stage.write(f"{first:020d}{suffix}", [data])
            stage.write(snapshot_name(last), [snapshot])
            stage.publish()
        target.sync(staged.folder)
        newest = max(newest for _, newest in times)
        walked: Any = SimpleNamespace(
            **{"crc32c": crc32c(log), "fingerprint": str, "batches": staged.batches, "records": staged.records},
            **{"control_batches": 0, "aborted_records": 0, "max_timestamp": newest},
            min_timestamp=min(oldest for oldest, _ in times),
        )
        return Row(
            segment_id=segment_id,
            path=f"{staged.folder}/{first:020d}.log",
            first_offset=first,
            last_offset=last,
            snapshot_crc32c=crc32c(snapshot),
            codec_versions=codec_versions(),
            **sums_of(walked, len(log), (offsets, times_of, b""), []),
        )


def _partitions(target: Target) -> list[str]:
    """The folders that hold a partition's log; others may have such names."""
    named = [name for name in target.list().directories if FOLDER.fullmatch(name)]
    return [name for name, found in target.list_all(named) if any(map(NAME.fullmatch, found.files))]


class _Task:
    """The partitions of a task: rows that are no whole batch yet, and batches that are no whole segment yet."""

    def __init__(self, settings: WriteSettings, place: str) -> None:
        self.settings, self.place, self.target = settings, place, Target.of(settings.path)
        self.rows: dict[str, list[pa.RecordBatch]] = {}
        self.logs: dict[str, bytearray] = {}
        self.written: list[Staged] = []
        self.like = RecordBatch(0, 0, compression=settings.codec, partition_leader_epoch=0)

    def add(self, folder: str, rows: pa.RecordBatch) -> None:
        held = self.rows.setdefault(folder, [])
        held.append(rows)
        whole = sum(len(one) for one in held)
        whole -= whole % self.settings.batch_records
        if whole:
            table = pa.Table.from_batches(held)
            self._encode(folder, table.slice(0, whole))
            self.rows[folder] = table.slice(whole).to_batches()
        while sum(map(len, self.logs.values())) > HELD_BYTES_MAX:
            self._close(max(self.logs, key=lambda one: len(self.logs[one])))

    def finish(self) -> list[Staged]:
        for folder, held in self.rows.items():
            if held:
                self._encode(folder, pa.Table.from_batches(held))
        for folder in [*self.logs]:
            self._close(folder)
        return self.written

    def _encode(self, folder: str, rows: pa.Table) -> None:
        data = memoryview(encode_columns(rows, like=self.like, batch_records=self.settings.batch_records))
        for at, size, _ in frames(data):
            if len(self.logs.get(folder, b"")) + size > self.settings.segment_bytes:
                self._close(folder)
            self.logs.setdefault(folder, bytearray()).extend(data[at : at + size])

    def _close(self, folder: str) -> None:
        """Write the segment of a partition. Its offsets begin with 0."""
        if not (log := self.logs.pop(folder, bytearray())):
            return
        walk, offset = IndexWalk(0, INDEX_INTERVAL_BYTES), 0
        for at, _, _ in frames(log):
            OFFSET.pack_into(log, at, offset)
            offset += int.from_bytes(log[at + HEADER_AT["last_offset_delta"] :][:4], "big") + 1
        check_with(log, walk, limits=Limits(len(log) << 10)).raise_fatal()
        stem = str(len(self.written))
        with self.target.stage(self.place, self.place.replace("/", "-")) as stage:
            for suffix, data in zip(SUFFIXES, (bytes(log), walk.offset_index, walk.time_index), strict=True):
                stage.write(stem + suffix, [data])
            stage.publish()
        self.written.append(Staged(folder, f"{self.place}/{stem}", walk.batches, walk.records))


def _divided(batch: pa.RecordBatch, settings: WriteSettings, task: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each partition, with the columns of ``encode_columns``."""
    columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
    topics, partitions = columns.pop("topic", None), columns.pop("partition", None)
    if any(column is not None and column.null_count for column in (topics, partitions)):
        raise UsageError("a row has no topic or no partition; leave such rows out")
    names = [settings.topic]
    places = np.zeros(len(batch), np.int64)
    if topics is not None:
        coded = topics.dictionary_encode()
        names, places = coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)
    for name in names:
        if not TOPIC_NAME.fits(name):
            raise UsageError(f"{printable(repr(name))} is no topic's name; give letters, digits, '.', '_' and '-'")
    if partitions is not None:
        numbers = partitions.cast(pa.int64()).to_numpy()
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < 1 << 31:
            raise UsageError(f"rows have partitions {numbers.min()} to {numbers.max()}; give 0 to 2147483647")
    elif settings.partitions > 1:
        keys = columns["key"].cast(pa.binary()).to_pylist() if "key" in columns else [None] * len(batch)
        chosen = (None if key is None else partition_of("murmur2", key, settings.partitions) for key in keys)
        numbers = np.array([task % settings.partitions if one is None else one for one in chosen], np.int64)
    else:
        numbers = np.zeros(len(batch), np.int64)
    if (times := columns.get("timestamp")) is not None and pa.types.is_timestamp(times.type):
        # Spark's are microseconds; the division rounds down, also before 1970.
        micros = times.cast(pa.timestamp("us", times.type.tz)).view(pa.int64()).fill_null(-1000).to_numpy()
        columns["timestamp"] = pa.array(micros // 1000)
    rows = pa.RecordBatch.from_pydict(columns)
    found = (places << 31) | numbers
    for place in np.unique(found):
        folder = f"{names[int(place) >> 31]}-{int(place) & 0x7FFFFFFF}"
        mine = np.flatnonzero(found == place)
        yield folder, rows if len(mine) == len(rows) else rows.take(mine)
