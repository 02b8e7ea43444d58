"""The Spark data source ``kafka-log``: any Kafka log directory as a DataFrame. docs/dataframes.md is the guide.

Spark starts one task per :class:`Share`. A task reads its slices of segments with ``kfuzz.corpora.logs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kfuzz.corpora import logs
from kfuzz.corpora.workload import parse_size
from kfuzz.errors import UsageError
from kfuzz.records import Limits

__all__ = ["FORMAT", "KafkaLogSource", "register"]

FORMAT: Final = "kafka-log"
# Spark refuses a source that takes filters unless this is set.
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
OPTIONS: Final = ("path", "topics", "columns", "mode", "isolation", "split_bytes", "decompressed_bytes")
# A task costs about 30 ms, and reading 64 MiB about 150 ms.
SPLIT_BYTES: Final = 64 << 20
SPLIT_BYTES_MIN: Final = 4096
EPOCH: Final = datetime(1970, 1, 1)
MICROSECOND: Final = timedelta(microseconds=1)
# Spark's timestamps count microseconds in 64 bits.
MS_MAX: Final = (1 << 63) // 1000 - 1

TYPES: Final[dict[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.binary_view(): BinaryType(),
}


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("kafka-log")`` known to ``spark``, and let Spark pass filters to it."""
    spark.dataSource.register(KafkaLogSource)
    spark.conf.set(PUSHDOWN, "true")


def _spark_type(field: pa.Field[Any]) -> DataType:
    if field.name == "timestamp":
        return TimestampType()
    if field.name == "headers":
        return ArrayType(StructType([StructField("key", BinaryType()), StructField("value", BinaryType())]))
    return StringType() if field.name == "topic" else TYPES[field.type]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a read; docs/dataframes.md lists them."""

    path: str
    topics: str
    wanted: pa.Schema
    isolation: logs.Isolation
    split_bytes: int
    limits: Limits

    @staticmethod
    def of(options: MutableMapping[str, str]) -> Settings:
        """``UsageError`` for an unknown option or a wrong value."""
        for name in options:
            if name.lower() not in OPTIONS:
                raise UsageError(f"option {name!r} does not exist; take some of {', '.join(OPTIONS)}")
        if "path" not in options:
            raise UsageError(f'no path is given; name a log directory: spark.read.format("{FORMAT}").load(DIR)')
        names = options.get("columns")
        columns = None if names is None else [name.strip() for name in names.split(",")]
        isolation = cast(Any, options.get("isolation", "log"))
        logs.require_isolation(isolation)
        return Settings(
            options["path"],
            options.get("topics", "*"),
            logs.schema(columns, mode=cast(Any, options.get("mode", "strict"))),
            isolation,
            _size(options, "split_bytes", SPLIT_BYTES, SPLIT_BYTES_MIN),
            Limits(_size(options, "decompressed_bytes", Limits().decompressed_bytes, 1)),
        )

    def schema(self) -> StructType:
        """The columns of the DataFrame."""
        return StructType([StructField(field.name, _spark_type(field)) for field in self.wanted])

    def segments(self) -> list[logs.Segment]:
        """All segments of the chosen topics."""
        return logs.find_segments(self.path, topics=self.topics)


class KafkaLogSource(DataSource):
    """A Kafka log directory, a partition folder or a segment file."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        # Spark asks for it at ``load``, so a wrong option or path is reported there.
        settings = Settings.of(self.options)
        settings.segments()
        return settings.schema()

    def reader(self, schema: StructType) -> KafkaLogReader:
        return KafkaLogReader(Settings.of(self.options), schema)


def _size(options: MutableMapping[str, str], name: str, default: int, least: int) -> int:
    if name not in options:
        return default
    size = parse_size(options[name])
    if size is None or size < least:
        raise UsageError(f'option {name} is {options[name]!r}; give at least {least} bytes, such as "64MiB"')
    return size


class Share(InputPartition):
    """What one task reads."""

    def __init__(self, slices: list[logs.Slice]) -> None:
        super().__init__(None)
        self.slices = slices


class KafkaLogReader(DataSourceReader):
    """Reads a log directory; filters on topic, partition, offset and timestamp leave out what they can."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        self.settings = settings
        self.wanted = settings.wanted
        self.arrow = to_arrow_schema(schema, timezone="UTC")
        if schema.simpleString() != settings.schema().simpleString():
            raise UsageError(
                f"the schema {schema.simpleString()} is not that of the source, {settings.schema().simpleString()}; "
                "leave schema out, and choose columns by the option columns"
            )
        self.selection = logs.EVERYTHING
        self.topics: set[str] | None = None
        self.numbers: set[int] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return [one for one in filters if not self._push(one)]

    def _push(self, one: Filter) -> bool:
        """Whether the reader applies this filter itself, to the row."""
        [name, *inner] = getattr(one, "attribute", (None,))
        if inner:
            return False
        if name in ("topic", "partition"):
            return self._choose(name, one)
        if name not in ("offset", "timestamp"):
            return False
        bounds = _bounds(one)
        if bounds is None:
            return False
        low, high = bounds
        if name == "timestamp":
            # A timestamp that Spark cannot hold is null, and null is within no bounds.
            low = -MS_MAX if low is None else -(-low // 1000)
            high = MS_MAX if high is None else high // 1000
        lowest, highest = ("first_offset", "last_offset") if name == "offset" else ("min_timestamp", "max_timestamp")
        before = self.selection
        low = _tighter(max, getattr(before, lowest), low)
        high = _tighter(min, getattr(before, highest), high)
        self.selection = replace(before, **{lowest: low, highest: high})
        return True

    def _choose(self, name: str, one: Filter) -> bool:
        if isinstance(one, EqualTo):
            values = {one.value}
        elif isinstance(one, In):
            values = set(one.value)
        else:
            return False
        if name == "topic":
            self.topics = values if self.topics is None else self.topics & values
        else:
            self.numbers = values if self.numbers is None else self.numbers & values
        return True

    def partitions(self) -> Sequence[InputPartition]:
        chosen = [
            segment
            for segment in self.settings.segments()
            if (self.topics is None or segment.topic in self.topics)
            and (self.numbers is None or segment.partition in self.numbers)
        ]
        shares: list[InputPartition] = []
        held: list[logs.Slice] = []
        size = 0
        for part in logs.slices(
            chosen, self.selection, slice_bytes=self.settings.split_bytes, isolation=self.settings.isolation
        ):
            if held and size + part.end - part.start > self.settings.split_bytes:
                shares.append(Share(held))
                held, size = [], 0
            held.append(part)
            size += part.end - part.start
        # Spark wants at least one.
        return [*shares, Share(held)] if held or not shares else shares

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settings = self.settings
        for part in cast(Share, partition).slices:
            for batch in logs.read_slice(
                part, self.wanted, self.selection, isolation=settings.isolation, limits=settings.limits
            ):
                yield self._for_spark(batch)

    def _for_spark(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows with the types that Spark takes; keys and values are copied."""
        columns = []
        for column, field in zip(batch.columns, self.arrow, strict=True):
            if field.name == "timestamp":
                column = _in_range(column)
            columns.append(column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)


def _in_range(column: pa.Array[Any]) -> pa.Array[Any]:
    """Timestamps that Spark can hold; the others become null."""
    # The types of pyarrow's stubs do not allow a comparison with a number.
    compute: Any = pc
    numbers = column.view(pa.int64())
    seen = compute.min_max(numbers).as_py()
    if seen["min"] is None or (seen["min"] >= -MS_MAX and seen["max"] <= MS_MAX):
        return column
    within = compute.and_(compute.greater_equal(numbers, -MS_MAX), compute.less_equal(numbers, MS_MAX))
    kept: pa.Array[Any] = compute.if_else(within, column, pa.scalar(None, column.type))
    return kept


# ------------------------------------------------------------------------------------------------- filters


def _bounds(one: Filter) -> tuple[int | None, int | None] | None:
    """The lowest and the highest value that a filter lets through, as whole numbers; None for other filters."""
    value = _number(getattr(one, "value", None))
    if value is None:
        return None
    if isinstance(one, EqualTo):
        return value, value
    if isinstance(one, GreaterThan):
        return value + 1, None
    if isinstance(one, GreaterThanOrEqual):
        return value, None
    if isinstance(one, LessThan):
        return None, value - 1
    if isinstance(one, LessThanOrEqual):
        return None, value
    return None


def _number(value: Any) -> int | None:
    """A whole number: an offset, or microseconds since 1970; None if the value is something else."""
    if isinstance(value, datetime):
        utc = value if value.tzinfo is None else (value - value.utcoffset()).replace(tzinfo=None)  # type: ignore[operator]
        return (utc - EPOCH) // MICROSECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _tighter(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else choose(one, other)
