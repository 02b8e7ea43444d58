"""Compares what a corpus holds with the distributions that its workload asks for.

Exact numbers, such as the producers' shares, may differ by rounding only. For random ones, a bound says how far chance
may take them: Bernstein's for shares, that of Dvoretzky, Kiefer and Wolfowitz for distributions, McDiarmid's for the
number of different keys. They hold for every sample size. Together they raise a false alarm on at most one right corpus
in a thousand million.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kfuzz.corpora.clock import first_units
from kfuzz.corpora.distributions import (
    HOT_KEYS,
    Distribution,
    Numbers,
    alike_share,
    chance,
    different_keys,
    drawn,
    hot_keys,
    moments,
    moved,
    own_shares,
    weighed,
)
from kfuzz.corpora.layout import STATISTICS, WORKLOAD
from kfuzz.corpora.own_log import LIMITS
from kfuzz.corpora.partition_keys import own_keys
from kfuzz.corpora.partitioners import key_bytes, partition_of
from kfuzz.corpora.plan import Segment
from kfuzz.corpora.relations import TOMBSTONE, changes_at
from kfuzz.corpora.schemed import decoder_of
from kfuzz.corpora.verification import Corpus, Problem
from kfuzz.corpora.workload import HASHING, Keys, Topic, Values
from kfuzz.corpora.writers import IDEMPOTENT, PLAIN
from kfuzz.kafka import CODECS
from kfuzz.logs.arrow_rows import beginnings, select_rows
from kfuzz.logs.heads import BatchHeads
from kfuzz.logs.reading import PAYLOAD_BYTES, WINDOW_BYTES
from kfuzz.logs.segments import batch_bytes
from kfuzz.records.arrow import Part, next_part
from kfuzz.schemas.values import Side

FORMAT: Final = "kfuzz-statistics/1"
# The probability that a right corpus is said to be wrong.
FALSE_ALARM: Final = 1e-9
# At most so many comparisons of a topic have a bound for chance.
CHECKS_PER_TOPIC: Final = 24
# How much of each topic is read.
SAMPLE_BYTES: Final = 256 << 20
# Probabilities are exact up to 32 random bits and the rounding of floating point.
ROUNDING: Final = 1e-9
# So many keys and values of a topic are decoded by their schemas.
DECODED: Final = 20_000
BATCHES_MOST: Final = 1 << 32
# Settings for segments that have only an old format.
OLD_FORMATS: Final = ("legacy.magic0_segments", "legacy.magic1_segments")


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison. ``name`` is the workload's key; ``count`` is how many things were looked at.

    ``expected`` and ``found`` are shares, means, numbers, or distances between distributions (then 0 is expected).
    They may differ by ``bound``.
    """

    topic: str
    name: str
    count: int
    expected: float
    found: float
    bound: float

    @property
    def is_right(self) -> bool:
        """Whether chance or rounding explains the difference."""
        return bool(abs(self.found - self.expected) <= self.bound)

    def __str__(self) -> str:
        return (
            f"topic {self.topic}, {self.name}: {self.found:.6g} in {self.count}; the workload gives "
            f"{self.expected:.6g}, and at most {self.bound:.3g} more or less"
        )


@dataclass(slots=True)
class _Sample:
    """The counts from reading one topic.

    ``partition_units`` are the clock's units at offset 0. ``alarm`` is the probability that a right check fails.
    ``numbers`` has lists of arrays, one for each window or segment.

    ``sums`` has ``offsets`` and ``segments`` without segments of an old format, and among these the ``last`` ones of
    their partitions; ``data`` records, those of each kind of writer, and ``markers``. Of cleaned segments, it has the
    records not removed by an abort as ``cleaned``, and as ``kept`` how many remain.
    """

    topic: Topic
    partition_units: int
    alarm: float
    key_seed: int = 0
    # The number of records with a key, of each partition.
    keyed: Counter[int] = field(default_factory=Counter)
    keys: list[pa.Array[Any]] = field(default_factory=list)
    numbers: defaultdict[str, list[Numbers]] = field(default_factory=lambda: defaultdict(list))
    sums: Counter[str] = field(default_factory=Counter)
    # Things that chance cannot change: how many were looked at, and how many are wrong.
    exact: dict[str, tuple[int, int]] = field(default_factory=dict)

    def all(self, name: str) -> Numbers:
        """The numbers of this name together."""
        return np.concatenate([np.empty(0, np.int64), *self.numbers[name]])

    def see(self, name: str, wrong: npt.NDArray[np.bool_]) -> None:
        """Add to the things that are exactly as the workload's key ``name`` says."""
        if len(wrong):
            seen, bad = self.exact.get(name, (0, 0))
            self.exact[name] = seen + len(wrong), bad + int(wrong.sum())

    def share(self, name: str, found: int, count: int, share: float) -> Check:
        """Whether ``found`` of ``count`` things are about the expected share."""
        return Check(self.topic.name, name, count, share, found / max(count, 1), _bernstein(count, share, self.alarm))

    def spread(self, name: str, found: Numbers, probability: Distribution, alarm: float | None = None) -> Check:
        """The largest distance between the distribution of ``found`` and the expected one."""
        if not len(found):
            return Check(self.topic.name, name, 0, 0.0, 0.0, 0.0)
        values, counts = np.unique(found, return_counts=True)
        ours = np.cumsum(counts) / len(found)
        # Between the values found, the expected one grows, up to just below the next value.
        before = np.concatenate(([0.0], ours[:-1]))
        distance = max(
            float(np.abs(ours - probability(values)).max()), float(np.abs(before - probability(values - 1)).max())
        )
        bound = ROUNDING + math.sqrt(math.log(2 / (alarm or self.alarm)) / (2 * len(found)))
        return Check(self.topic.name, name, len(found), 0.0, distance, bound)


def check_statistics(
    corpus: Corpus, *, set_done: Callable[[int], None] = lambda done: None
) -> tuple[list[Check], list[Problem]]:
    """Compare a corpus with its workload, and write the results to ``_verify.json``; the checks, and what is wrong.

    For a large topic, only evenly spaced segments are read. ``set_done`` is called with the number of topics done.
    ``UsageError`` if the corpus cannot be read or the results cannot be written.
    """
    checks: list[Check] = []
    for done in range(len(corpus.workload.topics)):
        checks += examine(corpus, done, FALSE_ALARM / len(corpus.workload.topics) / CHECKS_PER_TOPIC)
        set_done(done + 1)
    shown = [{**asdict(check), "right": check.is_right} for check in checks]
    told = {"format": FORMAT, "false_alarm": FALSE_ALARM, "sample_bytes": SAMPLE_BYTES, "checks": shown}
    corpus.out.write(STATISTICS, json.dumps(told, indent=2) + "\n")
    wrong = [check for check in checks if not check.is_right]
    return checks, [Problem(WORKLOAD, None, "statistics-off-workload", str(check)) for check in wrong]


def examine(corpus: Corpus, at: int, alarm: float) -> list[Check]:
    """The checks of the workload's topic ``at``. ``alarm`` is the probability that one check of a right topic fails."""
    topic, planned = corpus.workload.topics[at], corpus.plan.topics[at]
    if topic.adversarial.share or topic.is_own:
        # A hostile batch can say anything, and the records between two of them are too few. Nothing in Kafka's own
        # topics is a matter of chance.
        return []
    sample = _Sample(topic, first_units(topic.timestamps, planned.offsets_per_partition - 1), alarm)
    for segment_id in _chosen(corpus, at):
        # Tests compare a corpus with another workload.
        segment = replace(corpus.plan[segment_id], topic=topic)
        sample.key_seed = segment.key_seed
        with corpus.out.view(segment.path) as view:
            if view:
                _read_segment(view, segment, sample)
    return list(_checks(sample)) if sample.sums["data"] else []


def _chosen(corpus: Corpus, at: int) -> list[int]:
    """The ids of segments of topic ``at``, of about ``SAMPLE_BYTES`` together.

    They are at equal distances among the cleaned ones, among those of an old format and among the others.
    """
    topic, planned = corpus.workload.topics[at], corpus.plan.topics[at]
    count = planned.segments_per_partition
    ids, sizes = [], []
    for batch in corpus.rows.batches(["segment_id", "bytes"]):
        numbers = [np.asarray(batch.column(name).to_numpy(zero_copy_only=False)) for name in ("segment_id", "bytes")]
        is_ours = (numbers[0] >= planned.first_id) & (numbers[0] < planned.first_id + count * topic.partitions)
        ids.append(numbers[0][is_ours].astype(np.int64))
        sizes.append(numbers[1][is_ours].astype(np.int64))
    held = np.concatenate([np.empty(0, np.int64), *ids])
    step = max(1, math.ceil(sum(int(one.sum()) for one in sizes) / SAMPLE_BYTES))
    index = (held - planned.first_id) % count
    is_first = index < max(topic.compaction.segments, topic.legacy.magic0_segments + topic.legacy.magic1_segments)
    is_first &= index < count - 1
    return sorted(int(one) for group in (held[is_first], held[~is_first]) for one in group[::step])


# ------------------------------------------------------------------------------------------------ reading


def _read_segment(view: memoryview, segment: Segment, sample: _Sample) -> None:
    """Read one segment. Reading ends at bad bytes, which :func:`kfuzz.corpora.verification.verify_segment` reports."""
    if segment.is_cleaned:
        # Compaction changes everything else: a record without a key is gone, and offsets have gaps.
        sample.sums["cleaned"] += sum(one.records for one in segment.streams if one.kind in (PLAIN, IDEMPOTENT))
        for heads, part in _windows(view):
            mine = ~heads.values("transactional", np.bool_) & ~heads.values("control", np.bool_)
            sample.sums["kept"] += int(np.asarray(part.counts)[mine].sum())
        return
    magic = _old_magic(segment)
    if magic is None:
        sample.sums.update(segments=1, last=segment.is_last, offsets=segment.offsets)
    written: list[Numbers] = []
    for heads, part in _windows(view):
        counts = np.asarray(part.counts, np.int64)
        written.append(_count_batches(heads, counts, sample, magic))
        _count_records(heads, counts, part.columns, segment, sample)
    if written:
        _count_sizes(np.concatenate(written, axis=1), segment, sample)


def _windows(view: memoryview) -> Iterator[tuple[BatchHeads, Part]]:
    at, window = 0, WINDOW_BYTES
    while at < len(view):
        data = view[at : at + window]
        part = next_part(data, limits=LIMITS, payload_bytes=PAYLOAD_BYTES)
        if part.places:
            yield BatchHeads(data, part.places, at), part
        at += part.consumed
        if part.finding is not None or (not part.places and len(data) == len(view) - at):
            return
        # The window may have less than one batch.
        window = WINDOW_BYTES if part.places else max(batch_bytes(data), len(data) + 1)


def _old_magic(segment: Segment) -> int | None:
    """The magic of a segment that has an old format only."""
    legacy = segment.topic.legacy
    if segment.index < legacy.magic0_segments:
        return 0
    return 1 if segment.index < legacy.magic0_segments + legacy.magic1_segments else None


def _count_batches(heads: BatchHeads, counts: Numbers, sample: _Sample, magic: int | None) -> Numbers:
    """Add the batches of a window. Returns producer, count and base offset of those that no transaction cuts short."""
    topic = sample.topic
    control, transactional = heads.values("control", np.bool_), heads.values("transactional", np.bool_)
    producers = heads.values("producer_id", np.int64)
    codecs = heads.values("codec", np.int64)
    mine = heads.is_new & ~control
    sample.numbers["codecs"].append(codecs[mine])
    legacy = [CODECS.index(codec) for codec, _ in topic.legacy.codecs]
    sample.see("legacy.codecs", ~np.isin(codecs[~heads.is_new], legacy))
    is_append = topic.timestamps.type == "log-append"
    sample.see("timestamps.type", heads.values("timestamp_type", np.int64)[heads.magic > 0] != is_append)
    if is_append and not topic.timestamps.jitter_ms and not topic.timestamps.late_share:
        # The batch has the time of its last record.
        planned = moments(topic.timestamps, sample.partition_units, heads.values("last_offset", np.int64)[mine])
        sample.see("timestamps.records_per_second", heads.values("max_timestamp", np.int64)[mine] != planned)
    if magic is not None:
        sample.see(OLD_FORMATS[magic], heads.magic != magic)
        return np.empty((3, 0), np.int64)
    plain = mine & ~transactional
    for name, mask in (
        ("magic0", heads.magic == 0),
        ("magic1", heads.magic == 1),
        ("idempotent", plain & (producers >= 0)),
        ("transactional", mine & transactional),
    ):
        sample.sums[name] += int(counts[mask].sum())
    sample.sums["markers"] += int((control & transactional).sum())
    return np.stack([producers[plain], counts[plain], heads.values("base_offset", np.int64)[plain]])


def _count_records(
    heads: BatchHeads, counts: Numbers, columns: pa.RecordBatch, segment: Segment, sample: _Sample
) -> None:
    """Add the records of a window."""
    topic = sample.topic
    control = heads.values("control", np.bool_)
    rows = np.flatnonzero(np.repeat(~control, counts))
    chosen = select_rows(columns, rows)
    everything = np.arange(len(rows))
    offsets = np.asarray(chosen.column("offset").to_numpy(), np.int64)
    sample.sums["data"] += len(rows)
    key_sizes, _ = beginnings(chosen.column("key"), everything)
    has_key = key_sizes >= 0
    keys = pc.drop_null(chosen.column("key").cast(pa.binary()))
    sample.keyed[segment.partition] += len(keys)
    value_sizes = beginnings(chosen.column("value"), everything)[0].astype(np.int64)
    sample.numbers["values with key"].append(value_sizes[has_key])
    sample.numbers["values without key"].append(value_sizes[~has_key])
    if not topic.keys.is_written:
        sizes, asked = key_sizes[has_key], topic.keys.size
        wrong = ~np.isin(sizes, [one for one, _ in asked.weights]) if asked.weights else (sizes < asked.min)
        sample.see("keys.size", wrong | (sizes > asked.max))
    if (name := topic.keys.partitioner) in HASHING:
        found = (partition_of(name, key or b"", topic.partitions) for key in keys.unique().to_pylist())
        sample.see("keys.partitioner", np.array([one not in (None, segment.partition) for one in found], np.bool_))
    wanted: list[int] | None = None
    if topic.values.is_changes:
        changed = changes_at(topic, segment.key_seed, segment.partition, offsets.tolist())
        wanted = [rank for rank, _ in changed]
        sample.see("values.changes", (value_sizes < 0) != np.array([kind == TOMBSTONE for _, kind in changed]))
    elif topic.keys.kind == "sequential":
        wanted = ((offsets[has_key] * topic.partitions + segment.partition) % topic.keys.cardinality).tolist()
        if name in HASHING:
            own = np.frombuffer(own_keys(topic.keys, segment.key_seed, topic.partitions, segment.partition), np.uint32)
            wanted = own[offsets[has_key] % len(own)].tolist()
    else:
        sample.keys.append(keys)
    if wanted is not None:
        made = key_bytes(topic.keys, segment.key_seed, wanted)
        sample.see("keys.kind", np.array([one != other for one, other in zip(keys.to_pylist(), made, strict=True)]))
    headers: Any = chosen.column("headers")
    is_new = np.repeat(heads.is_new[~control], counts[~control])
    counts_of = np.diff(headers.offsets.to_numpy()).astype(np.int64)
    inner, record_of = headers.flatten(), np.repeat(everything, counts_of)
    own = np.ones(len(inner), np.bool_)
    side: Side
    for side, kind, there in (("key", topic.keys, has_key), ("value", topic.values, value_sizes >= 0)):
        if kind.schema:
            _decode(kind, side, chosen.column(side), sample)
        if (header := kind.header(side)) is not None:
            ours = _equal(inner.field("key"), header[0]) & _equal(inner.field("value"), header[1])
            sample.see(f"{side}s.framing", np.bincount(record_of[ours], minlength=len(rows)) != there)
            own &= ~ours
    sizes_of = beginnings(inner.field("value"), np.arange(len(inner)))[0].astype(np.int64)
    sample.numbers["header sizes"].append(sizes_of[own])
    sample.numbers["header counts"].append(np.bincount(record_of[own], minlength=len(rows))[is_new])
    times: Any = chosen.column("timestamp")
    if topic.timestamps.type == "create":
        # Messages of magic 0 have no timestamp.
        has_time = np.asarray(times.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        planned = moments(topic.timestamps, sample.partition_units, offsets[has_time])
        sample.numbers["moves"].append(np.asarray(times.drop_null().to_numpy(), np.int64) - planned)
    if control.any() and (topic.transactions.partitions == 1 or segment.partition == 0):
        # Transactions of several partitions have one outcome in all of them. So they are counted in one partition.
        first = np.cumsum(counts) - counts
        _, marks = beginnings(columns.column("key"), first[control])
        sample.sums.update(ends=len(marks), commits=int(marks[:, 3].sum()))


def _equal(column: pa.Array[Any], data: bytes) -> npt.NDArray[np.bool_]:
    compute: Any = pc
    found = compute.fill_null(compute.equal(column.cast(pa.binary()), pa.scalar(data, pa.binary())), False)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def _decode(kind: Keys | Values, side: str, column: pa.Array[Any], sample: _Sample) -> None:
    """Decode some keys or values by a kept library, and compare them with their schema and its framing."""
    name = f"{side}s.schema"
    left = DECODED - sample.exact.get(name, (0, 0))[0]
    given = [data for data in column[: max(0, left)].to_pylist() if data is not None]
    decode, prefix = decoder_of(kind), kind.prefix
    indexes = b"" if prefix else kind.indexes or b"\0"
    wrong = np.zeros(len(given), np.bool_)
    for at, data in enumerate(given):
        try:
            wrong[at] = not data.startswith(prefix)
            decode(data, len(prefix), indexes)
        # A library may raise anything for bytes that do not fit.
        except Exception:
            wrong[at] = True
    sample.see(name, wrong)


def _count_sizes(written: Numbers, segment: Segment, sample: _Sample) -> None:
    """Add the sizes of the batches that nothing can have cut short: the largest batch would have fitted.

    The stream's end, the next epoch of the leader and that of the producer cut batches short. All of them are known
    before a batch's size is drawn, so what is left out depends on no size.
    """
    topic, most = sample.topic, sample.topic.batches.records.max
    producers, counts, base = written
    fits = np.zeros(len(counts), np.bool_)
    for stream in segment.streams:
        if stream.kind not in (PLAIN, IDEMPOTENT):
            continue
        mine = producers == stream.producer_id
        before = np.cumsum(counts[mine]) - counts[mine]
        enough = before <= stream.records - most
        each = topic.producers.epoch_records
        if stream.kind == IDEMPOTENT and each:
            enough &= each - (stream.written + before) % each >= most
        fits[mine] = enough
    if topic.leader_epoch_offsets:
        fits &= topic.leader_epoch_offsets - base % topic.leader_epoch_offsets >= most
    sample.numbers["batch records"].append(counts[fits])


# ------------------------------------------------------------------------------------------------- checks


def _checks(sample: _Sample) -> Iterator[Check]:
    topic = sample.topic
    name, records = topic.name, sample.sums["data"]
    nulls = chance(topic.keys.null_share)
    yield sample.share("keys.null_share", records - sample.keyed.total(), records, nulls)
    yield from _keys(sample)
    yield from _values(sample)
    counts = sample.all("header counts")
    # A record may draw no header although it has headers.
    there = chance(topic.headers.share) * (1 - float(drawn(topic.headers.count)(np.zeros(1, np.int64))[0]))
    if len(counts):
        yield sample.share("headers.share", int((counts > 0).sum()), len(counts), there)
    if topic.headers.share and (counts > 0).any() and topic.headers.count.min > 0:
        yield sample.spread("headers.count", counts[counts > 0], drawn(topic.headers.count))
    if len(sizes := sample.all("header sizes")):
        yield sample.spread("headers.size", sizes, drawn(topic.headers.size))
    if len(sizes := sample.all("batch records")):
        # How many there are depends on chance too, so the bound holds for each number up to this.
        yield sample.spread("batches.records", sizes, drawn(topic.batches.records), sample.alarm / BATCHES_MOST)
    if len(codecs := sample.all("codecs")):
        for codec, share in weighed(topic.batches.codecs).items():
            found = int((codecs == CODECS.index(codec)).sum())
            yield sample.share(f"batches.codecs.{codec}", found, len(codecs), share)
    yield from _times(sample)
    yield from _writers(sample)
    if sample.sums["cleaned"] and not topic.values.is_changes:
        # The cleaner drops records without a key.
        kept = chance(topic.compaction.keep) * (1 - nulls)
        yield sample.share("compaction.keep", sample.sums["kept"], sample.sums["cleaned"], kept)
    for key, (seen, bad) in sorted(sample.exact.items()):
        yield Check(name, key, seen, 0.0, bad / seen, 0.0)


def _values(sample: _Sample) -> Iterator[Check]:
    values = sample.topic.values
    if values.is_changes:
        return
    with_key, without = sample.all("values with key"), sample.all("values without key")
    nulls = chance(values.null_share)
    if values.tombstone_share:
        with_tombstones = min(1.0, nulls + chance(values.tombstone_share))
        yield sample.share("values.tombstone_share", int((with_key < 0).sum()), len(with_key), with_tombstones)
    else:
        without = np.concatenate([with_key, without])
    if len(without):
        yield sample.share("values.null_share", int((without < 0).sum()), len(without), nulls)
    everything = np.concatenate([with_key, without]) if values.tombstone_share else without
    # The fields decide the size.
    if not values.is_written:
        yield sample.spread("values.size", everything[everything >= 0], drawn(values.size))


def _times(sample: _Sample) -> Iterator[Check]:
    """How far records are from the clock. A wrong rate, hour or burst shows here too."""
    moves = sample.all("moves")
    if not len(moves):
        return
    probability = moved(sample.topic.timestamps)
    if not sample.topic.timestamps.late_share:
        yield sample.spread("timestamps.jitter_ms", moves, probability)
        return
    back = float(probability(np.array([-1]))[0])
    yield sample.share("timestamps.late_share", int((moves < 0).sum()), len(moves), back)
    if back > 0:
        yield sample.spread("timestamps.late_ms", moves[moves < 0], lambda at: probability(at) / back)
    if back < 1:
        ahead = moves[moves >= 0]
        yield sample.spread("timestamps.jitter_ms", ahead, lambda at: (probability(at) - back) / (1 - back))


def _writers(sample: _Sample) -> Iterator[Check]:
    """The shares of the offsets, which the plan rounds in each segment, and the transactions."""
    topic, sums = sample.topic, sample.sums
    transactions, offsets, markers = topic.transactions, sums["offsets"], sums["markers"]
    # A partition's last segment has one more marker for each transaction that is open before it. Only there are
    # markers of transactions whose records were counted before.
    crossing = transactions.producers * sums["last"] if transactions.cross_share else 0
    for key, found, share, rounded in (
        ("producers.share", sums["idempotent"], topic.producers.share, 1),
        ("transactions.share", sums["transactional"] + markers, transactions.share, transactions.records + 1),
        ("legacy.magic0", sums["magic0"], topic.legacy.magic0, 2),
        ("legacy.magic1", sums["magic1"], topic.legacy.magic1, 2),
    ):
        if offsets:
            bound = (rounded * sums["segments"] + crossing) / offsets if share else 0.0
            yield Check(topic.name, key, offsets, share, found / offsets, bound)
    if ends := sums["ends"]:
        aborted = chance(transactions.abort_share)
        yield sample.share("transactions.abort_share", ends - sums["commits"], ends, aborted)
    if markers:
        bound = ROUNDING + transactions.records * crossing / markers
        mean = sums["transactional"] / markers
        yield Check(topic.name, "transactions.records", markers, transactions.records, mean, bound)


def _keys(sample: _Sample) -> Iterator[Check]:
    """How many different keys there are, and how often each of the first ones occurs."""
    topic, keys = sample.topic, sample.topic.keys
    count = sample.keyed.total()
    if not sample.keys or not count:
        return
    compute: Any = pc
    found = pa.chunked_array(sample.keys)
    log = math.log(4 / sample.alarm)
    own = own_shares(topic, sample.key_seed, sample.keyed) if keys.partitioner in HASHING else []
    if keys.schema is None:
        mean, slack = different_keys(keys, count, own)
        # Different keys may have equal letters. Two things are random: the keys and their letters.
        seen = min(count, keys.cardinality)
        alike = seen * (seen - 1) / 2 * alike_share(keys)
        letters = alike + math.sqrt(seen * log / 2) if alike > sample.alarm / 2 else 0.0
        bound = slack + math.sqrt(count * log / 2) + letters
        yield Check(topic.name, "keys.cardinality", count, mean, float(compute.count_distinct(found).as_py()), bound)
        if keys.size.weights and alike <= sample.alarm / 2:
            # Each key's size is drawn once.
            sizes = compute.binary_length(found.unique()).to_numpy().astype(np.int64)
            yield sample.spread("keys.size", sizes, drawn(keys.size))
    elif keys.cardinality > HOT_KEYS:
        # Any other key may have the bytes of one of the first, for all that is known here.
        return
    hot = hot_keys(keys, sample.key_seed, own)
    ranks = compute.fill_null(compute.index_in(found, value_set=hot.keys), len(hot.keys)).to_numpy()
    ours = np.cumsum(np.bincount(ranks, minlength=len(hot.keys) + 1)[:-1]) / count
    distance = float(np.abs(ours - np.cumsum(hot.shares)).max())
    # Other keys may have the letters of one of these. Bernstein's inequality bounds the number of their records.
    other = hot.alike + math.sqrt(2 * hot.alike * hot.other_most * log) + hot.other_most * log / 3
    name = "keys.exponent" if keys.kind == "zipf" else "keys.kind"
    # Draws of several distributions need Bretagnolle's constant: e times as many events.
    log += 1 if own else 0
    yield Check(topic.name, name, count, 0.0, distance, ROUNDING + other + math.sqrt(log / (2 * count)))


# ------------------------------------------------------------------------------------------------- bounds


def _bernstein(count: int, share: float, alarm: float) -> float:
    """How far the share found in ``count`` draws is from ``share``, unless an event of probability ``alarm`` happens.

    A share of 0 or 1 is exact.
    """
    if share <= 0 or share >= 1 or not count:
        return 0.0 if count else 1.0
    log = math.log(2 / alarm)
    return ROUNDING + log / (3 * count) + math.sqrt((log / (3 * count)) ** 2 + 2 * log * share * (1 - share) / count)
