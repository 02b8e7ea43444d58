"""The workload: a TOML file that describes a corpus, read into frozen dataclasses. Mistakes raise ``UsageError``.

Each key is declared once, below: its type, its default and its allowed values. ``corpora.forms`` makes the validation
and the JSON Schema from these declarations. ``docs/corpora.md`` explains each key.
"""

# ruff: noqa: RUF009 - the calls in these dataclasses return dataclass fields.

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from kfuzz.corpora import forms
from kfuzz.corpora.forms import GIB, KIB, MIB, Range, Weights, parse_size, show_size
from kfuzz.corpora.json_values import FIELDS, Field, check_fields
from kfuzz.documents import TOML_BYTES_MAX, load_toml
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes
from kfuzz.kafka import CODECS, INDEX_INTERVAL_BYTES, INT32_MAX, TIMESTAMP_TYPES, Codec

__all__ = [
    "BATCH_BYTES_MAX",
    "GIB",
    "KIB",
    "LEGACY_CODECS",
    "MIB",
    "Adversarial",
    "Batches",
    "Compaction",
    "Field",
    "Headers",
    "Keys",
    "Legacy",
    "Producers",
    "Range",
    "Timestamps",
    "Topic",
    "Transactions",
    "Values",
    "Weights",
    "Workload",
    "load",
    "parse",
    "parse_size",
    "render",
    "schema",
    "show_size",
]

SIZE_MAX = 1 << 60
# The reader decompresses at most 64 MiB by default. A record batch must stay well below that.
BATCH_BYTES_MAX = 32 * MIB
SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX = 64 * KIB, GIB
PRODUCERS_MAX, PARTITIONS_MAX, COUNT_MAX = 10_000, 100_000, 1 << 53
DAY_HOURS = 24
# Shorter bursts would make a long table of the day.
BURST_EVERY_S_MIN = 10
RATIO_MIN, RATIO_MAX = 1.2, 8
# Values with a ratio alternate fresh and repeated bytes in periods of this size.
FRESH_PERIOD_BYTES = 512
# The codecs that kfuzz can write messages of magic 0 and 1 with.
LEGACY_CODECS: tuple[Codec, ...] = ("none", "gzip")
VECTORS_GLOB = "[a-zA-Z0-9*?/._-]{1,200}"
# The names that org.apache.kafka.common.internals.Topic accepts.
TOPIC_NAME = "[a-zA-Z0-9._-]{1,249}"
TOPIC_NAME_RULE = "1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"


@dataclass(frozen=True, slots=True)
class Keys:
    """Record keys: ``cardinality`` different keys, of ``size`` bytes each.

    ``zipf`` makes some of them hot: the share of the n-th key is proportional to n to the power of -``exponent``.
    ``sequential`` keys are decimal numbers that rise with the offset.
    """

    kind: str = forms.choice("uniform", "uniform", "zipf", "sequential")
    size: Range = forms.ranged(Range(10, 10), 0, MIB)
    cardinality: int = forms.integer(1_000_000, 1, (1 << 32) - 1)
    exponent: float = forms.decimal(1.0, 0, 4, places=3)
    null_share: float = forms.share()


@dataclass(frozen=True, slots=True)
class Values:
    """Record values: ``random`` bytes do not compress, ``text`` does; ``json`` is an object with ``fields``.

    With a ``ratio``, random bytes and text repeat themselves just so much that the codec reaches that ratio.
    ``fresh_bytes`` says how much: the number of bytes in each 512 that repeat nothing. kfuzz finds it by measurement.
    Tombstones are null values of records with a key; ``null_share`` counts all records.
    """

    size: Range = forms.ranged(Range(100, 100), 0, 8 * MIB)
    kind: str = forms.choice("random", "random", "text", "json")
    fields: tuple[Field, ...] = forms.variants(FIELDS)
    ratio: float = forms.decimal(0.0, 0, RATIO_MAX, places=2)
    fresh_bytes: Weights = forms.numbers(CODECS, 0, FRESH_PERIOD_BYTES)
    tombstone_share: float = forms.share()
    null_share: float = forms.share()


@dataclass(frozen=True, slots=True)
class Headers:
    """Record headers, on ``share`` of the records."""

    share: float = forms.share()
    count: Range = forms.ranged(Range(1, 3), 0, 100)
    size: Range = forms.ranged(Range(8, 16), 0, 64 * KIB)


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Record timestamps: from ``start`` on, or up to ``end``, at a rate that may follow the hours and have bursts.

    ``records_per_second`` is the mean rate of a partition over a day, without its bursts. Each record is moved forward
    by up to ``jitter_ms``; a ``late_share`` of them is moved back by up to ``late_ms``.
    """

    type: str = forms.choice("create", *(one for one in TIMESTAMP_TYPES if one != "none"))
    start: int | str = forms.moment(1_700_000_000_000)
    end: int | str | None = forms.moment(None)
    records_per_second: int = forms.integer(1000, 1, 10**9)
    hour_weights: tuple[int, ...] = forms.integers((1,) * DAY_HOURS, 1000)
    burst_every_s: int = forms.integer(0, 0, DAY_HOURS * 3600)
    burst_length_s: int = forms.integer(60, 1, DAY_HOURS * 3600)
    burst_factor: int = forms.integer(10, 1, 1000)
    jitter_ms: int = forms.integer(0, 0, INT32_MAX)
    late_share: float = forms.share()
    late_ms: int = forms.integer(60_000, 1, INT32_MAX)

    @property
    def resolved(self) -> bool:
        """Whether nothing here is relative to now."""
        return not isinstance(self.start, str) and not isinstance(self.end, str)


@dataclass(frozen=True, slots=True)
class Batches:
    """The number of records in a record batch, and the codecs that compress it (weights)."""

    records: Range = forms.ranged(Range(100, 100), 1, 1_000_000)
    codecs: Weights = forms.weights(CODECS)


@dataclass(frozen=True, slots=True)
class Producers:
    """Idempotent producers. Together they write ``share`` of the offsets.

    ``epoch_records``: after so many records in a partition, a producer takes the next epoch (0: never).
    ``first_sequence``: the sequence of its first record in a partition.
    """

    count: int = forms.integer(4, 1, PRODUCERS_MAX)
    share: float = forms.share()
    epoch_records: int = forms.integer(0, 0, COUNT_MAX)
    first_sequence: int = forms.integer(0, 0, INT32_MAX)


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactional producers. Together they write ``share`` of the offsets.

    A transaction covers ``partitions`` partitions of the topic, with ``records`` records in each on average.
    ``cross_share``: for each producer, the share of the segments' boundaries at which a transaction is open.
    ``epoch_transactions``: after so many transactions, a producer takes the next epoch (0: never);
    ``coordinator_epoch_transactions`` does the same for its coordinator.
    """

    producers: int = forms.integer(4, 1, PRODUCERS_MAX)
    share: float = forms.share()
    records: int = forms.integer(500, 1, 1_000_000_000)
    abort_share: float = forms.share(0.1)
    partitions: int = forms.integer(1, 1, PARTITIONS_MAX)
    cross_share: float = forms.share()
    epoch_transactions: int = forms.integer(0, 0, COUNT_MAX)
    coordinator_epoch_transactions: int = forms.integer(0, 0, COUNT_MAX)
    first_sequence: int = forms.integer(0, 0, INT32_MAX)


@dataclass(frozen=True, slots=True)
class Legacy:
    """Messages of the old formats, magic 0 and 1: the share of the offsets for each, and their codecs (weights).

    ``magic0_segments``, ``magic1_segments``: so many first segments of each partition have the old format only.
    """

    magic0: float = forms.share()
    magic1: float = forms.share()
    magic0_segments: int = forms.integer(0, 0, COUNT_MAX)
    magic1_segments: int = forms.integer(0, 0, COUNT_MAX)
    codecs: Weights = forms.weights(LEGACY_CODECS)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The first ``segments`` segments of each partition are as the log cleaner leaves them.

    ``keep``: the share of the records that have no later record with their key. It is a matter of chance, not of keys.
    """

    segments: int = forms.integer(0, 0, COUNT_MAX)
    keep: float = forms.share(0.5)


@dataclass(frozen=True, slots=True)
class Adversarial:
    """Hostile batches: vectors of the golden suite take ``share`` of the offsets, each at a place that is labelled.

    ``vectors`` is a glob of their ids. ``digest`` says which vectors these were when the corpus was begun; kfuzz finds
    it itself.
    """

    share: float = forms.share()
    vectors: str = forms.text("*", VECTORS_GLOB, "a glob of vector ids, such as records/v2/count/*")
    digest: str = forms.text("", "[0-9a-f]{0,64}", "what kfuzz has found, or leave it out")


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the corpus; ``weight`` sets its part of the corpus' size.

    ``leader_epoch_offsets``: after so many offsets, a partition takes the next leader epoch (0: never).
    """

    name: str = forms.name(TOPIC_NAME, TOPIC_NAME_RULE, refused=(".", ".."))
    partitions: int = forms.integer(1, 1, PARTITIONS_MAX)
    weight: int = forms.integer(1, 1, 1_000_000)
    leader_epoch_offsets: int = forms.integer(0, 0, COUNT_MAX)
    keys: Keys = forms.table(Keys)
    values: Values = forms.table(Values)
    headers: Headers = forms.table(Headers)
    timestamps: Timestamps = forms.table(Timestamps)
    batches: Batches = forms.table(Batches)
    producers: Producers = forms.table(Producers)
    transactions: Transactions = forms.table(Transactions)
    legacy: Legacy = forms.table(Legacy)
    compaction: Compaction = forms.table(Compaction)
    adversarial: Adversarial = forms.table(Adversarial)

    @property
    def compressing_codecs(self) -> list[str]:
        """The codecs of this topic's batches and messages, without ``none``."""
        used = dict(self.batches.codecs)
        if self.legacy.magic0 or self.legacy.magic1:
            used |= dict(self.legacy.codecs)
        return [codec for codec in CODECS if codec in used and codec != "none"]


@dataclass(frozen=True, slots=True)
class Workload:
    """A whole corpus. ``size`` and ``segment_bytes`` count uncompressed bytes.

    ``segment_bytes`` is 0 if the file does not give it; then the plan decides it when the corpus is begun.
    """

    topics: tuple[Topic, ...] = forms.tables(Topic)
    size: int = forms.size(256 * MIB, 1, SIZE_MAX)
    segment_bytes: int = forms.size(forms.LATER, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    index_interval_bytes: int = forms.size(INDEX_INTERVAL_BYTES, 1, GIB)
    seed: int = forms.integer(0, 0, (1 << 63) - 1)

    def resized(self, size: int | None) -> Workload:
        """The same workload with another ``size``; None changes nothing."""
        return self if size is None else replace(self, size=size)

    @property
    def can_grow(self) -> bool:
        """Whether a larger corpus begins with this one. It does not if a topic's timestamps have an ``end``."""
        return all(topic.timestamps.end is None for topic in self.topics)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical text. Equal workloads have equal fingerprints, even if their files differ."""
        return hashlib.sha256(render(self).encode()).hexdigest()


def load(path: str | Path) -> Workload:
    """Read a workload file. Raises ``UsageError`` with the file, the key and the remedy in one sentence."""
    data = read_bytes(path, bytes_max=TOML_BYTES_MAX)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}); name a workload in TOML") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Workload:
    """Read a workload from TOML ``text``. Raises ``UsageError`` like :func:`load`, with ``name`` as the file's name."""
    workload = forms.read(Workload, forms.Table(load_toml(text, name, remedy="correct it there"), name))
    for at, topic in enumerate(workload.topics):
        _check_shares(topic, f"{name}: topics[{at}]")
        _check_keys(topic.keys, f"{name}: topics[{at}].keys")
        _check_transactions(topic, f"{name}: topics[{at}]")
        _check_values(topic.values, f"{name}: topics[{at}].values")
        _check_ratio(topic, f"{name}: topics[{at}].values")
        _check_compaction(topic, f"{name}: topics[{at}]")
        _check_timestamps(topic.timestamps, f"{name}: topics[{at}].timestamps")
    names = [topic.name for topic in workload.topics]
    for topic_name in names:
        if names.count(topic_name) > 1:
            raise UsageError(f"{name}: topics has the name {topic_name!r} twice; give each topic its own")
    return workload


def _check_shares(topic: Topic, place: str) -> None:
    shares = topic.producers.share + topic.transactions.share + topic.legacy.magic0 + topic.legacy.magic1
    shares += topic.adversarial.share
    # Sums of decimal fractions (0.2 + 0.4 + 0.3 + 0.1) may pass 1 by a rounding error.
    if shares > 1 + 1e-9:
        raise UsageError(
            f"{place}.producers.share, transactions.share, legacy.magic0, legacy.magic1 and adversarial.share add up "
            f"to {shares:.10g}; lower one of them until the sum is at most 1"
        )


def _check_keys(keys: Keys, place: str) -> None:
    if keys.kind != "zipf" and keys.exponent != Keys().exponent:
        raise UsageError(
            f'{place}.exponent is {keys.exponent}, but keys.kind is "{keys.kind}"; choose the kind "zipf" or remove it'
        )
    digits = len(str(keys.cardinality - 1))
    if keys.kind == "sequential" and keys.size.min < digits:
        raise UsageError(
            f"{place}.size is at least {keys.size.min} B, but sequential keys up to {keys.cardinality - 1} need "
            f"{digits} digits; raise size or lower cardinality"
        )


def _check_transactions(topic: Topic, place: str) -> None:
    transactions = topic.transactions
    if transactions.partitions > topic.partitions:
        raise UsageError(
            f"{place}.transactions.partitions is {transactions.partitions}, more than the topic's {topic.partitions}; "
            "lower it"
        )
    # Each of the two parts of a transaction has a record.
    if transactions.cross_share and transactions.records < 2:
        raise UsageError(f"{place}.transactions.cross_share needs transactions of several records; raise records to 2")


def _check_values(values: Values, place: str) -> None:
    if values.tombstone_share + values.null_share > 1:
        raise UsageError(
            f"{place}.tombstone_share and null_share add up to {values.tombstone_share + values.null_share:.10g}; "
            "lower one of them until the sum is at most 1"
        )
    if values.kind == "json":
        if not values.fields:
            raise UsageError(f'{place}.fields is empty; list fields, such as {{ name = "id", type = "counter" }}')
        if values.size != Values().size:
            raise UsageError(f"{place}.size does not apply to JSON, whose size comes from its fields; remove it")
        check_fields(values.fields, f"{place}.fields")
    elif values.fields:
        raise UsageError(f'{place}.fields needs the kind "json", not "{values.kind}"; set kind or remove fields')


def _check_ratio(topic: Topic, place: str) -> None:
    values = topic.values
    if values.ratio == 0:
        if values.fresh_bytes:
            raise UsageError(f"{place}.fresh_bytes needs a ratio; remove it, or give a ratio and let kfuzz find it")
        return
    if values.ratio < RATIO_MIN:
        raise UsageError(
            f"{place}.ratio is {values.ratio:g}; give {RATIO_MIN} to {RATIO_MAX}, or 0 to leave it to the kind"
        )
    if values.kind == "json":
        raise UsageError(f'{place}.ratio does not apply to JSON; remove it, or choose the kind "random" or "text"')
    if not topic.compressing_codecs:
        raise UsageError(f"{place}.ratio needs a codec; choose one in batches.codecs, or remove ratio")
    missing = [codec for codec in topic.compressing_codecs if codec not in dict(values.fresh_bytes)]
    if values.fresh_bytes and missing:
        raise UsageError(
            f"{place}.fresh_bytes has no number for {missing[0]}; remove fresh_bytes, and kfuzz will find it"
        )


def _check_compaction(topic: Topic, place: str) -> None:
    if topic.compaction.segments and topic.adversarial.share:
        raise UsageError(
            f"{place}.compaction does not go with adversarial, because the log cleaner stops at a bad batch; "
            "leave out one of the two tables"
        )
    legacy = topic.legacy
    has_old = legacy.magic0 or legacy.magic1 or legacy.magic0_segments or legacy.magic1_segments
    if topic.compaction.segments and has_old:
        raise UsageError(
            f"{place}.compaction does not go with legacy, because the log cleaner rewrites messages of old formats; "
            "leave out one of the two tables"
        )


def _check_timestamps(times: Timestamps, place: str) -> None:
    if times.end is not None and times.start != Timestamps().start:
        raise UsageError(f"{place} has both start and end; remove one, since the rate gives the other")
    every_s, day_s = times.burst_every_s, DAY_HOURS * 3600
    if every_s and (every_s < BURST_EVERY_S_MIN or day_s % every_s):
        raise UsageError(
            f"{place}.burst_every_s is {every_s}; give 0 for no bursts, or {BURST_EVERY_S_MIN} or more seconds that "
            f"divide a day, such as 600 or 3600"
        )
    if every_s and times.burst_length_s >= every_s:
        raise UsageError(
            f"{place}.burst_length_s is {times.burst_length_s}, not below burst_every_s ({every_s}); lower it"
        )


def schema() -> dict[str, Any]:
    """The JSON Schema of a workload file.

    It does not contain the rules about several keys at once: a range's ends, the sum of the shares, weights that are
    all 0, duplicate names, a transaction's partitions, compaction of old formats, and sizes and epochs that the plan
    cannot meet.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A workload of kfuzz",
        **forms.schema(Workload),
        "$defs": forms.variant_schema(FIELDS),
    }


def render(workload: Workload) -> str:
    """The canonical TOML of ``workload``: every key that is not empty, in a fixed order. ``parse`` reads it back."""
    lines = ["# The workload that this corpus was made from, with every default filled in."]
    lines += [
        f"{key} = {_toml(value)}"
        for key, value in _items(workload)
        if key != "topics" and (key != "segment_bytes" or value)
    ]
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
    found = [(field.name, getattr(value, field.name)) for field in fields(value)]
    return [(name, one) for name, one in found if one != () and one is not None]


def _toml(value: object) -> str:
    if isinstance(value, Range):
        return f"{{ min = {value.min}, max = {value.max}, skew = {value.skew} }}"
    if is_dataclass(value):
        return "{ " + ", ".join(f"{name} = {_toml(inner)}" for name, inner in _items(value)) + " }"
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return "{ " + ", ".join(f"{_name(name)} = {weight}" for name, weight in value) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        # Texts are printable, and TOML's escapes for those are JSON's.
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _name(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
