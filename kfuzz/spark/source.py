"""The Spark data sources ``kafka-log`` and ``kfuzz``. docs/dataframes.md is the guide.

``kafka-log`` reads, follows and writes any Kafka log directory. ``kfuzz`` makes a workload's batches or records in
memory. Spark starts one task per share; a task reads with ``kfuzz.logs`` or ``kfuzz.corpora.generated``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceWriter, InputPartition
from pyspark.sql.types import StructType

from kfuzz import logs
from kfuzz.corpora import generated
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import Workload, load, require_topics
from kfuzz.errors import UsageError
from kfuzz.files import is_elsewhere, local_path
from kfuzz.logs.schemas import open_schemas
from kfuzz.logs.segments import log_end
from kfuzz.logs.transactions import last_stable_offset
from kfuzz.places import opened
from kfuzz.records import Limits
from kfuzz.schemas.values import Schemas
from kfuzz.spark.arrow_reader import ArrowReader, names_of, require_known, shares, size_of, spark_schema
from kfuzz.units import parse_size

FORMAT: Final = "kafka-log"
GENERATED_FORMAT: Final = "kfuzz"
# Spark refuses a source that takes filters unless this is set.
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
OPTIONS: Final = (
    *("path", "topics", "columns", "mode", "isolation", "split_bytes", "decompressed_bytes"),
    *("schema", "registry"),
)
GENERATED_OPTIONS: Final = ("workload", "size", "rows", "topics", "columns", "isolation", "split_bytes")
# A task costs about 30 ms, and reading 64 MiB about 150 ms.
SPLIT_BYTES: Final = 64 << 20
Ends = dict[str, int]


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("kafka-log")`` and ``format("kfuzz")`` known to ``spark``, and let it pass filters."""
    spark.dataSource.register(KafkaLogSource)
    spark.dataSource.register(GeneratedSource)
    spark.conf.set(PUSHDOWN, "true")


# ----------------------------------------------------------------------------------------------- kafka-log


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a read; docs/dataframes.md lists them."""

    path: str
    topics: str
    wanted: pa.Schema
    isolation: logs.Isolation
    split_bytes: int
    limits: Limits
    schema: str | None
    registry: str | None

    @staticmethod
    def of(options: MutableMapping[str, str]) -> Settings:
        """``UsageError`` for an unknown option or a wrong value."""
        require_known(options, OPTIONS)
        if "path" not in options:
            raise UsageError(f'no path is given; name a log directory: spark.read.format("{FORMAT}").load(DIR)')
        isolation = cast(Any, options.get("isolation", "log"))
        logs.require_isolation(isolation)
        return Settings(
            options["path"],
            options.get("topics", "*"),
            logs.schema(names_of(options, "columns"), mode=cast(Any, options.get("mode", "strict"))),
            isolation,
            size_of(options, "split_bytes", SPLIT_BYTES),
            Limits(size_of(options, "decompressed_bytes", Limits().decompressed_bytes, 1)),
            options.get("schema"),
            options.get("registry"),
        )

    @contextlib.contextmanager
    def segments(self) -> Iterator[tuple[Path, list[logs.Segment]]]:
        """The path of the log on this machine, inside the block, and all segments of the chosen topics."""
        with opened(self.path) as place:
            yield place, logs.find_segments(place, topics=self.topics)

    def shares(
        self, place: Path, chosen: Iterable[tuple[Sequence[logs.Segment], logs.Selection]]
    ) -> list[InputPartition]:
        """Slices of these segments below ``place``, each with its selection."""
        parts: list[tuple[logs.Slice, logs.Selection]] = []
        # To cut a segment of a store is to fetch it, and then the reader of each part fetches it again.
        cuts = not is_elsewhere(place)
        for segments, selection in chosen:
            found = logs.slices(segments, selection, slice_bytes=self.split_bytes, isolation=self.isolation, cuts=cuts)
            for part in found:
                # An executor has another path for a log that is elsewhere.
                moved = replace(part.segment, path=part.segment.path.relative_to(place))
                parts.append((replace(part, segment=moved), selection))
        return shares(parts, lambda part: part[0].end - part[0].start, self.split_bytes)


class KafkaLogSource(DataSource):
    """A Kafka log directory, a partition folder or a segment file; also in an archive, or at a URI."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        # Spark asks for it at ``load``, so a wrong option or path is reported there.
        settings = Settings.of(self.options)
        with settings.segments():
            return spark_schema(settings.wanted)

    def reader(self, schema: StructType) -> KafkaLogReader:
        return KafkaLogReader(Settings.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return KafkaLogStream(self.reader(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kfuzz.spark.writing import KafkaLogWriter

        return KafkaLogWriter(self.options, schema, overwrite)


class KafkaLogReader(ArrowReader):
    """Reads a log directory; filters on topic, partition, offset and timestamp leave out what they can."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        super().__init__(settings.wanted, schema)
        self.settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        with self.settings.segments() as (place, found):
            chosen = [one for one in found if self.chooses(one.topic, one.partition)]
            return self.settings.shares(place, [(chosen, self.selection)])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with opened(self.settings.path) as self.place:
            yield from super().read(partition)

    def rows_of(self, part: tuple[logs.Slice, logs.Selection]) -> Iterator[pa.RecordBatch]:
        settings, (found, selection) = self.settings, part
        rows = logs.read_slice(
            replace(found, segment=replace(found.segment, path=self.place / found.segment.path)),
            self.wanted,
            selection,
            isolation=settings.isolation,
            limits=settings.limits,
            schemas=_schemas(settings.schema, settings.registry),
        )
        if selection == logs.EVERYTHING or "finding" not in self.wanted.names:
            return rows
        # No filter on a null offset or timestamp is true.
        return (one for one in rows if one.column("finding").null_count)


class KafkaLogStream(DataSourceStreamReader):
    """Follows a log while it is written, up to the last whole batch; in ``read_committed``, the last stable offset.

    By partition, the stream's offset is the one after the last record that was read: ``{"orders-0": 120}``.
    ``UsageError`` if records were deleted before the stream has read them.
    """

    def __init__(self, reader: KafkaLogReader) -> None:
        self.reader, self.settings = reader, reader.settings

    def initialOffset(self) -> Ends:
        return {}

    # Spark 4.0 and 4.1 give no arguments.
    def latestOffset(self, start: Ends | None = None, limit: object = None) -> Ends:
        found: Ends = {}
        with self.settings.segments() as (_, segments):
            for name, partition in _partitions(segments):
                found[name], _ = log_end(partition[-1])
                if self.settings.isolation == "read_committed":
                    stable = last_stable_offset(partition[0])
                    found[name] = found[name] if stable is None else stable
                read = (start or {}).get(name, 0)
                if read > found[name] or (read and read < (partition[0].base_offset or 0)):
                    raise UsageError(
                        f"{partition[0].path.parent} has offsets {partition[0].base_offset} to {found[name] - 1}, and "
                        f"the stream has read all before {read}: records were deleted; begin with a new checkpoint"
                    )
        return found

    def partitions(self, start: Ends, end: Ends) -> Sequence[InputPartition]:
        chosen = []
        with self.settings.segments() as (place, segments):
            for name, partition in _partitions(segments):
                # Beyond it, a batch may be written just now.
                partition[-1] = replace(partition[-1], size=log_end(partition[-1])[1])
                chosen.append((partition, logs.Selection(start.get(name, 0), end.get(name, 0) - 1)))
            return self.settings.shares(place, chosen)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reader.read(partition)

    def commit(self, end: Ends) -> None:
        """Nothing is kept of what was read."""


def _partitions(segments: Sequence[logs.Segment]) -> Iterator[tuple[str, list[logs.Segment]]]:
    for (topic, partition), group in groupby(segments, lambda one: (one.topic, one.partition)):
        yield f"{topic}-{partition}", list(group)


@cache
def _schemas(place: str | None, registry: str | None) -> Schemas | None:
    """The schemas of a session, which an executor reads once."""
    return open_schemas([place] if place else [], registry) if place or registry else None


# --------------------------------------------------------------------------------------------------- kfuzz


@dataclass(frozen=True, slots=True)
class GeneratedSettings:
    """The options of a read of a workload; docs/dataframes.md lists them."""

    workload: Workload
    name: str
    query: generated.Query
    topics: str
    split_bytes: int

    @staticmethod
    def of(options: MutableMapping[str, str]) -> GeneratedSettings:
        """``UsageError`` for an unknown option or a wrong value, and for a workload that cannot be read or planned."""
        require_known(options, GENERATED_OPTIONS)
        if "workload" not in options:
            raise UsageError(
                f'no workload is given; name a TOML file: spark.read.format("{GENERATED_FORMAT}")'
                '.option("workload", FILE).load()'
            )
        size = parse_size(options["size"]) if "size" in options else None
        if "size" in options and not size:
            raise UsageError(f'option size is {options["size"]!r}; give a size such as "64MiB"')
        rows = cast(Any, options.get("rows", "batches"))
        query = generated.Query(
            rows,
            generated.schema(rows, names_of(options, "columns")),
            isolation=cast(Any, options.get("isolation", "log")),
        )
        workload = load(local_path(options["workload"])).resized(size)
        topics = options.get("topics", "*")
        require_topics(workload, topics)
        Plan(workload, options["workload"])
        split_bytes = size_of(options, "split_bytes", SPLIT_BYTES)
        return GeneratedSettings(workload, options["workload"], query, topics, split_bytes)


class GeneratedSource(DataSource):
    """The batches or the records of a workload, made by the executors."""

    @classmethod
    def name(cls) -> str:
        return GENERATED_FORMAT

    def schema(self) -> StructType:
        return spark_schema(GeneratedSettings.of(self.options).query.wanted)

    def reader(self, schema: StructType) -> GeneratedReader:
        return GeneratedReader(GeneratedSettings.of(self.options), schema)


class GeneratedReader(ArrowReader):
    """Makes the segments of a workload; filters on topic, partition and offset leave out whole segments."""

    def __init__(self, settings: GeneratedSettings, schema: StructType) -> None:
        super().__init__(settings.query.wanted, schema)
        self.settings = settings
        self.plan = Plan(settings.workload)
        if settings.query.rows == "batches":
            self.bounded = ("base_offset", "max_timestamp")

    def _query(self) -> generated.Query:
        return replace(self.settings.query, selection=self.selection)

    def partitions(self) -> Sequence[InputPartition]:
        most = max(1, self.settings.split_bytes // self.settings.workload.segment_bytes)
        found = generated.segment_ids(self.plan, self._query(), topics=self.settings.topics, partitions=self.chooses)
        return shares((one for ids in found for one in ids), lambda segment_id: 1, most)

    def rows_of(self, part: int) -> Iterator[pa.RecordBatch]:
        return generated.read_segment(self.plan, part, self._query())
