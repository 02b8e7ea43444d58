"""Code that the data sources share: filters that the reader applies itself, options, and Arrow's types for Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
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

from kfuzz import logs
from kfuzz.errors import UsageError
from kfuzz.units import parse_size

SPLIT_BYTES_MIN: Final = 4096
# For each filter of whole numbers: what is added to its number to get the lowest one that passes, and the highest.
# None: it has no such bound.
BOUNDS: Final[dict[type, tuple[int | None, int | None]]] = {
    EqualTo: (0, 0),
    GreaterThan: (1, None),
    GreaterThanOrEqual: (0, None),
    LessThan: (None, -1),
    LessThanOrEqual: (None, 0),
}
EPOCH: Final = datetime(1970, 1, 1)
MICROSECOND: Final = timedelta(microseconds=1)
# Spark's timestamps count microseconds in 64 bits.
MS_MAX: Final = (1 << 63) // 1000 - 1
HEADER: Final = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
TYPES: Final[dict[pa.DataType, DataType]] = {
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.binary(): BinaryType(),
    pa.binary_view(): BinaryType(),
}


def spark_schema(wanted: pa.Schema) -> StructType:
    """The columns of the DataFrame for these columns of Arrow."""
    return StructType([StructField(field.name, _spark_type(field.type)) for field in wanted])


def _spark_type(kind: pa.DataType) -> DataType:
    if pa.types.is_timestamp(kind):
        return TimestampType()
    if pa.types.is_list(kind):
        return ArrayType(HEADER)
    # A string has one type in Arrow, and several in Spark.
    return StringType() if pa.types.is_string(kind) else TYPES[kind]


# ------------------------------------------------------------------------------------------------- options


def require_known(options: Mapping[str, str], known: Iterable[str]) -> None:
    """``UsageError`` if one of the options is not known."""
    for name in options:
        if name.lower() not in known:
            raise UsageError(f"option {name!r} does not exist; take some of {', '.join(known)}")


def names_of(options: Mapping[str, str], name: str) -> list[str] | None:
    """The value of an option that lists names with commas between them; None without it."""
    value = options.get(name)
    return None if value is None else [one.strip() for one in value.split(",")]


def size_of(options: Mapping[str, str], name: str, default: int, least: int = SPLIT_BYTES_MIN) -> int:
    """The value of an option in bytes. ``UsageError`` if it is below ``least``, or no size."""
    if name not in options:
        return default
    size = parse_size(options[name])
    if size is None or size < least:
        raise UsageError(f'option {name} is {options[name]!r}; give at least {least} bytes, such as "64MiB"')
    return size


# -------------------------------------------------------------------------------------------------- reader


class Share(InputPartition):
    """The parts that one task reads."""

    def __init__(self, parts: list[Any]) -> None:
        super().__init__(None)
        self.parts = parts


def shares(parts: Iterable[Any], size_of: Callable[[Any], int], most: int) -> list[InputPartition]:
    """``parts``, in order, in shares of at most this size, or of a single larger part. Spark wants at least one."""
    made, held, size = [], list[Any](), 0
    for part in parts:
        if held and size + size_of(part) > most:
            made.append(Share(held))
            held, size = [], 0
        held.append(part)
        size += size_of(part)
    return [*made, Share(held)] if held or not made else [*made]


class ArrowReader(DataSourceReader):
    """Gives Spark Arrow batches with the columns of ``wanted``. Leaves out what filters do not let through.

    ``bounded`` names the columns of offsets and of timestamps that ``selection`` bounds. ``UsageError`` if ``schema``
    has other columns.
    """

    bounded: tuple[str, str] = ("offset", "timestamp")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for part in cast(Share, partition).parts:
            yield from map(self.for_spark, self.rows_of(part))

    def rows_of(self, part: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one part of a share."""
        raise NotImplementedError

    def __init__(self, wanted: pa.Schema, schema: StructType) -> None:
        self.wanted = wanted
        self.arrow = to_arrow_schema(schema, timezone="UTC")
        own = spark_schema(wanted)
        if schema.simpleString() != own.simpleString():
            raise UsageError(
                f"the schema {schema.simpleString()} is not that of the source, {own.simpleString()}; "
                "leave schema out, and choose columns by the option columns"
            )
        self.selection = logs.EVERYTHING
        # The topics and the partitions that filters name.
        self.chosen: dict[str, set[Any]] = {}

    def chooses(self, topic: str | None, partition: int | None) -> bool:
        """Whether filters let this partition through."""
        place = {"topic": topic, "partition": partition}
        return all(place[name] in values for name, values in self.chosen.items())

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return [one for one in filters if not self._push(one)]

    def _push(self, one: Filter) -> bool:
        """Whether the reader applies this filter itself, to the row."""
        [name, *inner] = getattr(one, "attribute", (None,))
        if inner:
            return False
        if name in ("topic", "partition"):
            return self._choose(name, one)
        if name not in self.bounded:
            return False
        bounds = _bounds(one)
        if bounds is None:
            return False
        low, high = bounds
        is_offset = name == self.bounded[0]
        if not is_offset:
            # A timestamp that Spark cannot hold is null, and null is within no bounds.
            low = -MS_MAX if low is None else -(-low // 1000)
            high = MS_MAX if high is None else high // 1000
        lowest, highest = ("first_offset", "last_offset") if is_offset else ("min_timestamp", "max_timestamp")
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
        self.chosen[name] = values & self.chosen.get(name, values)
        return True

    def for_spark(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows with the types that Spark takes; keys and values are copied."""
        columns = []
        for column, field in zip(batch.columns, self.arrow, strict=True):
            if pa.types.is_timestamp(field.type):
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
    value, shifts = _number(getattr(one, "value", None)), BOUNDS.get(type(one))
    if value is None or shifts is None:
        return None
    low, high = (None if shift is None else value + shift for shift in shifts)
    return low, high


def _number(value: Any) -> int | None:
    """A whole number: an offset, or microseconds since 1970; None if the value is something else."""
    if isinstance(value, datetime):
        utc = value if value.tzinfo is None else (value - value.utcoffset()).replace(tzinfo=None)  # type: ignore[operator]
        return (utc - EPOCH) // MICROSECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _tighter(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else choose(one, other)
