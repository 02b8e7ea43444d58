"""What a corpus is to be: a TOML file read into frozen values, every mistake answered by one sentence.

May import the standard library and ``kfuzz.errors`` / ``kfuzz.files`` only. ``docs/corpora.md`` explains each key.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from kfuzz.errors import UsageError
from kfuzz.files import read_bytes

__all__ = [
    "Batches",
    "Headers",
    "Keys",
    "Legacy",
    "Producers",
    "Range",
    "Timestamps",
    "Topic",
    "Transactions",
    "Values",
    "Workload",
    "load",
    "parse",
    "parse_size",
    "render",
]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 1 << 40, "PIB": 1 << 50,
}  # fmt: skip
SIZE_MAX = 1 << 60
# A record batch must be decodable under the reader's default bound on decompressed bytes (64 MiB), with room to spare.
BATCH_BYTES_MAX = 32 * MIB
SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX = 64 * KIB, GIB
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# The message formats before record batches: the codecs that kfuzz writes them with.
LEGACY_CODECS = ("none", "gzip")
# What org.apache.kafka.common.internals.Topic accepts.
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

Weights = tuple[tuple[str, int], ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Range:
    """A whole number drawn from ``min`` to ``max``; ``skew`` 1 is uniform, higher values favour the low end.

    The draw is ``min + floor((max - min + 1) · u^skew)`` for a uniform ``u`` in [0, 1), in integer arithmetic only: no
    platform's floating point can change a byte of a corpus.
    """

    min: int
    max: int
    skew: int = 1

    @property
    def mean(self) -> float:
        """The expected value, in closed form (exact but for the floor's half)."""
        if self.min == self.max:
            return float(self.min)
        return self.min + max(0.0, (self.max - self.min + 1) / (self.skew + 1) - 0.5)


@dataclass(frozen=True, slots=True)
class Keys:
    """Record keys: ``cardinality`` different ones, of ``size`` bytes each; ``skew`` makes some of them hot."""

    size: Range = Range(10, 10)
    cardinality: int = 1_000_000
    skew: int = 1
    null_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Values:
    """Record values: ``random`` bytes do not compress, ``text`` does."""

    size: Range = Range(100, 100)
    kind: str = "random"
    null_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Headers:
    """Record headers, on ``share`` of the records."""

    share: float = 0.0
    count: Range = Range(1, 3)
    size: Range = Range(8, 16)


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Record timestamps: a steady rate from ``start_ms`` on, each moved forward by up to ``jitter_ms``."""

    type: str = "create"
    start_ms: int = 1_700_000_000_000
    records_per_second: int = 1000
    jitter_ms: int = 0


@dataclass(frozen=True, slots=True)
class Batches:
    """How many records stand in a record batch, and which codecs compress it (weights)."""

    records: Range = Range(100, 100)
    codecs: Weights = (("none", 1),)


@dataclass(frozen=True, slots=True)
class Producers:
    """Idempotent producers, which write ``share`` of the offsets."""

    count: int = 4
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactional producers, which write ``share`` of the offsets in transactions of ``records`` on average."""

    producers: int = 4
    share: float = 0.0
    records: int = 500
    abort_share: float = 0.1


@dataclass(frozen=True, slots=True)
class Legacy:
    """Messages in the formats before record batches: shares of the offsets per magic, and their codecs (weights)."""

    magic0: float = 0.0
    magic1: float = 0.0
    codecs: Weights = (("none", 1),)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the corpus; ``weight`` is its part of the corpus' size."""

    name: str
    partitions: int = 1
    weight: int = 1
    keys: Keys = Keys()
    values: Values = Values()
    headers: Headers = Headers()
    timestamps: Timestamps = Timestamps()
    batches: Batches = Batches()
    producers: Producers = Producers()
    transactions: Transactions = Transactions()
    legacy: Legacy = Legacy()


@dataclass(frozen=True, slots=True)
class Workload:
    """A whole corpus. ``size`` and ``segment_bytes`` count uncompressed bytes."""

    topics: tuple[Topic, ...]
    size: int = 256 * MIB
    segment_bytes: int = 64 * MIB
    index_interval_bytes: int = 4096
    seed: int = 0

    def resized(self, size: int | None) -> Workload:
        """The same workload with another ``size``; None changes nothing."""
        return self if size is None else replace(self, size=size)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical text: equal for equal workloads, however their files were written."""
        return hashlib.sha256(render(self).encode()).hexdigest()


def load(path: str | Path) -> Workload:
    """Read a workload file. Raises ``UsageError``: one sentence with the file, the key and the remedy."""
    data = read_bytes(path)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}); name a workload in TOML") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Workload:
    """Read a workload from TOML ``text``; ``name`` stands for the file in errors."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {str(error)[:1].lower()}{str(error)[1:]}; mend it there") from None
    reader = _Table(table, name, "")
    topics = reader.tables("topics", _topic)
    workload = Workload(
        topics=topics,
        size=reader.size("size", 256 * MIB, 1, SIZE_MAX),
        segment_bytes=reader.size("segment_bytes", 64 * MIB, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
        index_interval_bytes=reader.size("index_interval_bytes", 4096, 1, GIB),
        seed=reader.integer("seed", 0, 0, (1 << 63) - 1),
    )
    reader.finish(Workload)
    names = [topic.name for topic in topics]
    for topic_name in names:
        if names.count(topic_name) > 1:
            raise UsageError(f"{name}: topics has the name {topic_name!r} twice; give each topic its own")
    return workload


def parse_size(value: str | int) -> int | None:
    """Bytes in ``"64MiB"``, ``"1.5 GB"`` or a plain number; None when it is none of these."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    match = re.fullmatch(r"\s*(\d{1,18})(?:\.(\d{1,9}))?\s*([A-Za-z]*)\s*", value)
    if match is None or match[3].upper() not in UNITS:
        return None
    unit = UNITS[match[3].upper()]
    fraction = match[2] or "0"
    return int(match[1]) * unit + int(fraction) * unit // int("1" + "0" * len(fraction))


def _topic(reader: _Table) -> Topic:
    topic = Topic(
        name=reader.matching("name", TOPIC_NAME, "1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"),
        partitions=reader.integer("partitions", 1, 1, 100_000),
        weight=reader.integer("weight", 1, 1, 1_000_000),
        keys=reader.table("keys", _keys),
        values=reader.table("values", _values),
        headers=reader.table("headers", _headers),
        timestamps=reader.table("timestamps", _timestamps),
        batches=reader.table("batches", _batches),
        producers=reader.table("producers", _producers),
        transactions=reader.table("transactions", _transactions),
        legacy=reader.table("legacy", _legacy),
    )
    reader.finish(Topic)
    if topic.name in (".", ".."):
        raise reader.error("name", f"is {topic.name!r}, which Kafka does not allow", "choose another name")
    shares = topic.producers.share + topic.transactions.share + topic.legacy.magic0 + topic.legacy.magic1
    # Sums of decimal fractions (0.1 + 0.2 + 0.7) may pass 1 by a rounding error.
    if shares > 1 + 1e-9:
        raise reader.error(
            "producers.share",
            f"makes {shares:.10g} with transactions.share, legacy.magic0 and legacy.magic1",
            "lower one of them until their sum is at most 1",
        )
    return topic


def _keys(reader: _Table) -> Keys:
    plain = Keys()
    return Keys(
        size=reader.range("size", plain.size, 0, MIB),
        cardinality=reader.integer("cardinality", plain.cardinality, 1, (1 << 32) - 1),
        skew=reader.integer("skew", plain.skew, 1, 16),
        null_share=reader.share("null_share", plain.null_share),
    )


def _values(reader: _Table) -> Values:
    plain = Values()
    return Values(
        size=reader.range("size", plain.size, 0, 8 * MIB),
        kind=reader.choice("kind", plain.kind, ("random", "text")),
        null_share=reader.share("null_share", plain.null_share),
    )


def _headers(reader: _Table) -> Headers:
    plain = Headers()
    return Headers(
        share=reader.share("share", plain.share),
        count=reader.range("count", plain.count, 0, 100),
        size=reader.range("size", plain.size, 0, 64 * KIB),
    )


def _timestamps(reader: _Table) -> Timestamps:
    plain = Timestamps()
    return Timestamps(
        type=reader.choice("type", plain.type, ("create", "log-append")),
        start_ms=reader.integer("start_ms", plain.start_ms, 0, 1 << 52),
        records_per_second=reader.integer("records_per_second", plain.records_per_second, 1, 10**9),
        jitter_ms=reader.integer("jitter_ms", plain.jitter_ms, 0, (1 << 31) - 1),
    )


def _batches(reader: _Table) -> Batches:
    plain = Batches()
    return Batches(
        records=reader.range("records", plain.records, 1, 1_000_000),
        codecs=reader.weights("codecs", plain.codecs, CODECS),
    )


def _producers(reader: _Table) -> Producers:
    plain = Producers()
    return Producers(
        count=reader.integer("count", plain.count, 1, 10_000),
        share=reader.share("share", plain.share),
    )


def _transactions(reader: _Table) -> Transactions:
    plain = Transactions()
    return Transactions(
        producers=reader.integer("producers", plain.producers, 1, 10_000),
        share=reader.share("share", plain.share),
        records=reader.integer("records", plain.records, 1, 1_000_000_000),
        abort_share=reader.share("abort_share", plain.abort_share),
    )


def _legacy(reader: _Table) -> Legacy:
    plain = Legacy()
    return Legacy(
        magic0=reader.share("magic0", plain.magic0),
        magic1=reader.share("magic1", plain.magic1),
        codecs=reader.weights("codecs", plain.codecs, LEGACY_CODECS),
    )


class _Table:
    """One TOML table being read: each method takes a key and says in one sentence what is wrong with it."""

    def __init__(self, table: dict[str, Any], name: str, place: str) -> None:
        self._table = table
        self._name = name
        self._place = place

    def error(self, key: str, problem: str, remedy: str) -> UsageError:
        return UsageError(f"{self._name}: {self._place}{key} {problem}; {remedy}")

    def finish(self, kind: type) -> None:
        """Refuse keys that ``kind``, a dataclass, does not have; the nearest one is suggested."""
        known = [field.name for field in fields(kind)]
        for key in self._table:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
                remedy = f"did you mean {near[0]}?" if near else f"the keys here are {', '.join(known)}"
                raise self.error(key, "is not a key of a workload", remedy)

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        value = self._table.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, f"is {_shown(value)}", f"give a whole number from {low} to {high}")
        if not low <= value <= high:
            raise self.error(key, f"is {value}", f"give a whole number from {low} to {high}")
        return value

    def share(self, key: str, default: float) -> float:
        value = self._table.get(key, default)
        # `0 <= nan` is false, so NaN is refused as well.
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
            raise self.error(key, f"is {_shown(value)}", "give a share from 0 to 1")
        return float(value)

    def size(self, key: str, default: int, low: int, high: int) -> int:
        value = self._table.get(key, default)
        size = parse_size(value) if isinstance(value, int | str) else None
        if size is None:
            raise self.error(key, f"is {_shown(value)}", 'give a size such as 4096 or "256MiB"')
        if not low <= size <= high:
            raise self.error(key, f"is {_shown(value)}", f"give {show_size(low)} to {show_size(high)}")
        return size

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._table.get(key, default)
        if value not in choices:
            raise self.error(key, f"is {_shown(value)}", f"choose {_alternatives(choices)}")
        return str(value)

    def matching(self, key: str, pattern: re.Pattern[str], rule: str) -> str:
        if key not in self._table:
            raise self.error(key, "is missing", f"give {rule}")
        value = self._table[key]
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self.error(key, f"is {_shown(value)}", f"give {rule}")
        return value

    def range(self, key: str, default: Range, low: int, high: int) -> Range:
        """A number, or ``{ min = …, max = …, skew = … }``."""
        value = self._table.get(key, default)
        if isinstance(value, Range):
            return value
        if isinstance(value, dict):
            inner = _Table(value, self._name, f"{self._place}{key}.")
            for end in ("min", "max"):
                if end not in value:
                    raise inner.error(end, "is missing", "give min and max, or one number instead of the table")
            result = Range(
                min=inner.integer("min", low, low, high),
                max=inner.integer("max", high, low, high),
                skew=inner.integer("skew", 1, 1, 16),
            )
            inner.finish(Range)
            if result.min > result.max:
                raise inner.error("min", f"is {result.min}, above max ({result.max})", "swap them")
            return result
        number = self.integer(key, low, low, high)
        return Range(number, number)

    def weights(self, key: str, default: Weights, names: tuple[str, ...]) -> Weights:
        """A name, or a table of whole-number weights; the order is that of ``names``, not of the file."""
        value = self._table.get(key, dict(default))
        if isinstance(value, str) and value in names:
            return ((value, 1),)
        if not isinstance(value, dict):
            raise self.error(key, f"is {_shown(value)}", f"choose {_alternatives(names)}, or weigh them in a table")
        inner = _Table(value, self._name, f"{self._place}{key}.")
        for name in value:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
                remedy = f"did you mean {near[0]}?" if near else f"choose {_alternatives(names)}"
                raise inner.error(name, "is not a codec here", remedy)
        result = tuple((name, inner.integer(name, 0, 0, 1_000_000)) for name in names if value.get(name, 0) != 0)
        if not result:
            raise self.error(key, "has no weight above 0", f"weigh at least one of {_alternatives(names)}")
        return result

    def table(self, key: str, read: Callable[[_Table], T]) -> T:
        value = self._table.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"is {_shown(value)}", f"make it a table, [{self._place}{key}]")
        inner = _Table(value, self._name, f"{self._place}{key}.")
        result = read(inner)
        inner.finish(type(result))
        return result

    def tables(self, key: str, read: Callable[[_Table], T]) -> tuple[T, ...]:
        value = self._table.get(key, [])
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            raise self.error(key, "is missing or not a list of tables", f"give at least one [[{key}]]")
        return tuple(read(_Table(item, self._name, f"{key}[{at}].")) for at, item in enumerate(value))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _alternatives(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def show_size(size: int) -> str:
    """``size`` in the largest unit that divides it: 268435456 is ``256 MiB``."""
    for unit, name in ((1 << 50, "PiB"), (1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def render(workload: Workload) -> str:
    """The canonical TOML of ``workload``: every key, defaults included, in one order. ``parse`` gives it back."""
    lines = ["# The workload that this corpus was made from, with every default filled in."]
    lines += [f"{key} = {_toml(value)}" for key, value in _items(workload) if key != "topics"]
    for topic in workload.topics:
        lines += ["", "[[topics]]"]
        lines += [f"{key} = {_toml(value)}" for key, value in _items(topic) if not _is_table(value)]
        for key, value in _items(topic):
            if _is_table(value):
                lines += [f"[topics.{key}]", *(f"{name} = {_toml(inner)}" for name, inner in _items(value))]
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, Range)


def _items(value: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(value, field.name)) for field in fields(value)]


def _toml(value: object) -> str:
    if isinstance(value, Range):
        return f"{{ min = {value.min}, max = {value.max}, skew = {value.skew} }}"
    if isinstance(value, tuple):
        return "{ " + ", ".join(f"{name} = {weight}" for name, weight in value) + " }"
    # Strings here are codec, kind and topic names: none of their characters needs an escape.
    return f'"{value}"' if isinstance(value, str) else repr(value)
