"""Learns a workload from a log, for ``kfuzz corpus learn``. docs/corpora.md says how each part is fitted.

``kfuzz.corpora.observed`` counts in one pass. Here these counts become a workload. No byte of a key, a value or a
header gets into it.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from kfuzz.corpora import generated
from kfuzz.corpora import workload as workloads
from kfuzz.corpora.clock import DAY_MS, HOUR_MS
from kfuzz.corpora.distributions import seen
from kfuzz.corpora.learned_fields import USUAL, Fields, Json, two_digits, weighed
from kfuzz.corpora.observed import Observed, Sizes, Watching
from kfuzz.corpora.plan import SEGMENT_BYTES, Plan, batch_bytes_max, offset_bytes_mean
from kfuzz.corpora.quantities import MOMENT_MAX, WEIGHT_MAX
from kfuzz.corpora.resolution import resolve
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.kafka import INT32_MAX, INTERNAL_TOPICS
from kfuzz.logs.reading import schema, walk_slice
from kfuzz.logs.segments import EVERYTHING, find_segments
from kfuzz.logs.slicing import slices
from kfuzz.schemas.values import Schemas
from kfuzz.text import foreign_text, printable, really
from kfuzz.units import counted

QUANTILES: Final = (0.5, 0.95, 0.99)
CLOSE: Final = 0.05
# In thousandths.
EXPONENT_MAX: Final = 4000
CARDINALITY_MAX: Final = INT32_MAX
# Ranks are counted in so many steps; so many first ones are drawn to find how often the most frequent key occurs.
RANK_STEPS: Final = 4096
RANKS_DRAWN: Final = 1 << 17
TOP: Final = 10
OFTEN_ZERO: Final = ("null_share", "tombstone_share")
# An age of the log in hours, from which all hours of the day have the same part of it.
HOURS_MAX: Final = 10_000
CHECKED_OFFSETS: Final = 5000
# A segment with rare large values could be too large for Kafka.
SMALLER_BYTES: Final = (SEGMENT_BYTES, 16 << 20, 1 << 20)
TEXT: Final = bytes([*range(32, 127), *b"\t\r\n"])


def learn(
    path: str,
    *,
    topics: str = "*",
    anonymous: bool = False,
    schemas: Schemas | None = None,
    is_decoded: bool = False,
    set_done: Callable[[int], None] = lambda done: None,
) -> Json:
    """The workload of the segments in ``path``, as the values of its TOML; ``notes`` has sentences about each topic.

    Values that are JSON, also by ``schemas``, become JSON if their fields have the right sizes, or if ``is_decoded``.
    ``set_done`` is called with the number of bytes done. Raises ``UsageError`` if there is nothing to learn from.
    """
    seen: dict[str, Observed] = {}
    notes: list[str] = []

    def pass_over(one: Path, what: str) -> None:
        # The name of a folder has that of its topic.
        notes.append(f"{'a file or a folder' if anonymous else one.name} is {what}")

    segments = find_segments(path, topics=topics, pass_over=pass_over)
    wanted, done = schema(["key", "value", "headers", "timestamp"], mode="tolerant"), 0
    for segment in segments:
        if segment.topic in INTERNAL_TOPICS:
            raise UsageError(
                f"{segment.topic} is Kafka's own: a workload describes it by its kind and things (docs/corpora.md), "
                "not by a log; choose other topics by --topics"
            )
        observed = seen.setdefault(foreign_text(segment.topic or "learned"), Observed(schemas))
        # A path has the name of its topic.
        hidden = really(str(segment.path)) if anonymous else ""
        for part in slices([segment], EVERYTHING, isolation="log"):
            # It gives only rows of damage.
            for row in walk_slice(part, Watching(segment, wanted, EVERYTHING, "log", seen=observed)):
                observed.damage = observed.damage or str(row.column("finding")[0]).removeprefix(hidden).lstrip(" ,")
                observed.sums["damage"] += 1
        done += segment.size
        set_done(done)
    made: Json = {"size": 0, "topics": []}
    sizes: list[float] = []
    segment_bytes = SEGMENT_BYTES
    for at, (name, observed) in enumerate(seen.items()):
        named = name if workloads.TOPIC_NAME.fits(name) and not anonymous else f"topic-{at + 1}"
        while named != name and named in seen and not anonymous:
            named += "-renamed"
        if not observed.sums["records"]:
            why = f" ({observed.damage})" if observed.damage else ""
            notes.append(f"topic {named if anonymous else name} has no data records{why}")
            continue
        fit = _Fit(observed, named, anonymous, is_decoded and observed.sums["decoded"] > 0)
        if named != name and not anonymous:
            fit.notes.append(f"its name in the log is {name}, which Kafka refuses")
        topic, planned = fit.topic()
        made["topics"].append({**topic, "notes": fit.notes})
        segment_bytes = min(segment_bytes, planned.segment_bytes)
        sizes.append(offset_bytes_mean(planned.topics[0]) * max(observed.sums["offsets"], 2 * topic["partitions"]))
    if not sizes:
        raise UsageError(f"{path} has no data records, so there is nothing to learn; {'; '.join(notes)}")
    unit = max(sizes) / 1_000_000
    weights = [max(1, round(size / unit)) for size in sizes] if len(sizes) > 1 else [1]
    made["size"] = math.ceil(max(size / weight for size, weight in zip(sizes, weights, strict=True)) * sum(weights)) + 1
    for topic, weight in zip(made["topics"], weights, strict=True):
        topic |= {"weight": weight} if len(weights) > 1 else {}
    made |= {"segment_bytes": segment_bytes} if segment_bytes < SEGMENT_BYTES else {}
    return made | {"notes": notes}


def toml(learned: Json) -> str:
    """A workload's file, with the notes as comments."""
    lines = [f"# {printable(note)}" for note in ("Made by kfuzz corpus learn.", *learned["notes"])]
    lines += [f"{key} = {learned[key]}" for key in ("size", "segment_bytes") if key in learned]
    for topic in learned["topics"]:
        lines += ["", "[[topics]]", *(f"# {printable(note)}" for note in topic["notes"])]
        plain = {key: one for key, one in topic.items() if not isinstance(one, dict) and key != "notes"}
        for head, table in {"": plain, **{key: one for key, one in topic.items() if isinstance(one, dict)}}.items():
            lines += [f"[topics.{head}]"] * bool(head)
            kept = {key: one for key, one in table.items() if key not in OFTEN_ZERO or one}
            lines += [f"{key} = {workloads.value_text(one)}" for key, one in kept.items()]
    return "\n".join(lines) + "\n"


def _quantiles(sizes: Counter[int]) -> list[int]:
    numbers = sorted(sizes)
    below = np.cumsum([sizes[one] for one in numbers])
    return [numbers[int(np.searchsorted(below, share * below[-1]))] for share in QUANTILES] if numbers else []


def _share(part: float, whole: float) -> float:
    return math.floor(part / max(1, whole) * 1e6) / 1e6


@dataclass(frozen=True, slots=True)
class _Law:
    """Zipf's law that gives ``distinct`` keys in ``records`` draws. ``letters`` are shares of the sizes of letters."""

    records: int
    distinct: int
    letters: dict[int, float]

    def shares(self, cardinality: int, exponent: float) -> tuple[Any, Any]:
        """The widths of steps of ranks, and the share of each rank in them."""
        edges = np.unique(np.geomspace(1, cardinality + 1, RANK_STEPS).astype(np.int64))
        weights = ((edges[:-1] + edges[1:] - 1) / 2) ** -exponent
        return np.diff(edges), weights / (np.diff(edges) * weights).sum()

    def seen(self, cardinality: int, exponent: float) -> float:
        """How many different keys are drawn."""
        width, share = self.shares(cardinality, exponent)
        keys = float((width * seen(share, self.records)).sum())
        # Short keys may have equal letters. Long ones have not.
        sizes = ((16.0 ** min(size, 100), part) for size, part in self.letters.items())
        return sum(-texts * math.expm1(-keys * part / texts) for texts, part in sizes) or keys

    def cardinality(self, exponent: float) -> int:
        """The number of keys to draw from, to see ``distinct`` ones."""
        wanted = self.distinct - 0.5
        return bisect_left(range(CARDINALITY_MAX), wanted, self.distinct, key=lambda one: self.seen(one, exponent))

    @property
    def most(self) -> int:
        """How many keys are the most frequent ones: ten, or half of a few."""
        return max(1, min(TOP, self.distinct // 2))

    def top(self, exponent: float) -> float:
        """The share of the most frequent keys, on average of some draws."""
        width, share = self.shares(self.cardinality(exponent), exponent)
        first = np.diff(np.minimum(np.cumsum(width), RANKS_DRAWN), prepend=0)
        each = np.repeat(share, first) * self.records
        drawn = np.random.default_rng(0).poisson(each, (4, len(each)))
        return float(np.sort(drawn, axis=1)[:, -self.most :].sum() / 4 / self.records)


@dataclass(slots=True)
class _Fit:
    """Makes a topic of what was observed."""

    seen: Observed
    name: str
    anonymous: bool
    is_decoded: bool
    notes: list[str] = field(default_factory=list)

    def topic(self) -> tuple[Json, workloads.Workload]:
        """The topic as a table of TOML, and the workload of it alone, as the plan has it."""
        sums, sizes, places = self.seen.sums, self.seen.sizes, self.seen.places
        self.notes.append(f"{counted(sums['records'], 'record')} in {counted(len(places), 'partition')}")
        if count := sums["damage"]:
            self.notes.append(f"{counted(count, 'place')} of damage left out; the first: {self.seen.damage}")
        span = sum(end - first for first, end, _ in places.values())
        if sums["offsets"] < span:
            self.notes.append(f"{1 - sums['offsets'] / span:.1%} of the offsets are gone, as after compaction")
        if (largest := max(end - first for first, end, _ in places.values())) > 1.2 * span / len(places):
            self.notes.append(f"the largest partition has {largest / span:.1%} of the offsets; here all have the same")
        keyed = sizes["key"].total()
        nulls = _share(sums["nulls"], sums["records"] - keyed)
        if (partitions := max(places) + 1) > workloads.PARTITIONS_MAX:
            self.notes.append(f"partitions have numbers up to {max(places)}; here they are numbered without gaps")
            partitions = len(places)
        values: Json = {"kind": self._kind(), "size": self._range("value", 0, workloads.MIB * 8, "values.size")}
        values |= {"null_share": nulls, "tombstone_share": max(0.0, _share(sums["tombstones"], keyed) - nulls)}
        codecs = self.seen.codecs[True]
        ratio = sums["plain_bytes"] / max(1, sums["packed_bytes"])
        if codecs["none"] < (1 - USUAL) * codecs.total() and ratio >= workloads.RATIO_MIN:
            values["ratio"] = round(min(ratio, workloads.RATIO_MAX), 2)
        topic = {
            "name": self.name,
            "partitions": partitions,
            "keys": self._keys(),
            "values": values,
            "timestamps": self._timestamps(),
            "batches": {"records": self._range("batch", 1, 1_000_000, "batches.records"), "codecs": _weights(codecs)},
            **self._writers(),
        }
        if sums["with_headers"]:
            share = _share(sums["with_headers"], sums["records"])
            count = self._range("headers", 0, 100, "headers.count")
            size = self._range("header", 0, 64 * workloads.KIB, "headers.size")
            topic["headers"] = {"share": share, "count": count, "size": size}
        try:
            planned = self._planned(topic)
        except UsageError as error:
            if topic["values"].pop("ratio", None) is None:
                raise
            self.notes.append(f"values.ratio is left out: {error}")
            planned = self._planned(topic)
        return self._with_fields(topic, planned)

    def _range(self, name: str, low: int, high: int, key: str = "") -> Any:
        """A range for ``key`` of a workload with the sizes of this name, all moved into ``low`` to ``high``."""
        sizes, moved = self.seen.sizes[name] or Counter([100 if name == "batch" else 0]), Counter[int]()
        for size, count in sizes.items():
            moved[min(max(size, low), high)] += count
        if key and max(sizes) > high:
            self.notes.append(f"{key} is at most {high}, in the log up to {max(sizes)}")
        return weighed(moved) if len(moved) > 1 else max(low, *moved)

    def _planned(self, topic: Json) -> workloads.Workload:
        """The workload of this topic, as the plan has it. Batches get fewer records if they could be too large."""
        text = toml({"size": workloads.GIB, "topics": [topic | {"notes": []}], "notes": []})
        read = workloads.parse(text, f"a workload like {printable(self.name)}")
        if (largest := batch_bytes_max(read.topics[0])) > workloads.BATCH_BYTES_MAX:
            most = max(1, int(read.topics[0].batches.records.max * workloads.BATCH_BYTES_MAX / largest * USUAL))
            self.notes.append(f"no batch has more than {most} records, because all of its values could be the largest")
            fewer = self._range("batch", 1, most)
            topic["batches"] = topic["batches"] | {"records": fewer}
            return self._planned(topic)
        resolved = resolve(read)
        for smaller in SMALLER_BYTES:
            with contextlib.suppress(UsageError):
                return Plan(replace(resolved, segment_bytes=smaller)).workload
        return Plan(resolved).workload

    def _keys(self) -> Json:
        keys, sizes = self.seen.keys, self.seen.sizes["key"]
        total = sizes.total()
        if not total:
            return {"null_share": 1.0}
        is_binary = any(key and b"\0" in key for _, _, key in self.seen.values)
        types = {size: name for name, size in workloads.KEY_TYPES.items() if is_binary or name == "uuid"}
        kind = types.get(min(sizes)) if len(sizes) == 1 else None
        letters = {} if kind else {size: count / total for size, count in sizes.items()}
        law = _Law(total, keys.cardinality, letters)
        hottest = np.sort(keys.merged()[1])[: -law.most - 1 : -1] / total
        top, flat = float(hottest.sum()), law.top(0.0)
        made: Json = {"kind": "uniform", "cardinality": law.cardinality(0.0)}
        is_flat = law.distinct == total > 1 or (law.distinct > TOP and top < USUAL * flat)
        least = 0 if kind else len(str(law.distinct - 1))
        if is_flat and (least <= min(sizes) or law.distinct < total or law.seen(CARDINALITY_MAX, 0) < 0.96 * total):
            made = {"kind": "sequential", "cardinality": law.distinct}
            if least > min(sizes):
                self.notes.append(f"keys have at least {least} bytes, in the log from {min(sizes)} on")
        elif law.distinct > 1 and top > (1 + CLOSE) * flat:
            exponent = bisect_left(range(EXPONENT_MAX), top, 1, key=lambda one: law.top(one / 1000)) / 1000
            made = {"kind": "zipf", "cardinality": law.cardinality(exponent), "exponent": exponent}
            shares = np.sort(law.shares(made["cardinality"], exponent)[1])[: -len(hottest) - 1 : -1]
            if (apart := float(np.abs(hottest[: len(shares)] - shares).max())) > CLOSE:
                self.notes.append(f"some keys have up to {apart:.0%} of the records more or less than in the log")
        if (most := law.seen(CARDINALITY_MAX, 0)) < (1 - CLOSE) * law.distinct:
            self.notes.append(f"keys are so short that {most:.0f} are different here, in the log {law.distinct}")
        size = self._range("key", least if made["kind"] == "sequential" else 0, workloads.MIB, "keys.size")
        made |= {"type": kind} if kind else {"size": size}
        return made | {"null_share": _share(self.seen.sums["records"] - total, self.seen.sums["records"])}

    def _kind(self) -> str:
        texts = sum(one.isascii() and not one.translate(None, TEXT) for one, _, _ in self.seen.values)
        return "text" if texts > USUAL * len(self.seen.values) else "random"

    def _with_fields(self, topic: Json, planned: workloads.Workload) -> tuple[Json, workloads.Workload]:
        """The topic with JSON values, if these have about the sizes that are in the log."""
        objects = []
        for text, ms, key in self.seen.values:
            with contextlib.suppress(UsageError):
                objects.append((load_json(text, "a value"), ms, None if key is None else foreign_text(key)))
        objects = [one for one in objects if isinstance(one[0], dict) and not one[0].keys() >= {"error", "hex"}]
        fields = Fields(self.anonymous)
        if len(objects) <= USUAL * len(self.seen.values) or not (fitted := fields.of(objects)):
            return topic, planned
        values = {key: one for key, one in topic["values"].items() if key not in ("size", "ratio")}
        changed = topic | {"values": values | {"kind": "json", "fields": fitted}}
        try:
            made = self._planned(changed)
        except UsageError as error:
            self.notes.append(f"fields of JSON are left out: {error}")
            return topic, planned
        sizes, one = Sizes(), replace(made.topics[0], partitions=1)
        sample = replace(made, topics=(one,), size=math.ceil(offset_bytes_mean(one) * CHECKED_OFFSETS))
        for rows in generated.read(sample, rows="records", columns=["value"]):
            sizes.see(np.array([-1 if value is None else len(value) for value in rows.column(0).to_pylist()]))
        ours, theirs = _quantiles(sizes), _quantiles(self.seen.sizes["value"])
        both = f"{ours} bytes at p50, p95 and p99, in the log {theirs}"
        if self.is_decoded:
            self.notes.append(f"values are decoded by their schemas, and JSON here: {both}")
        elif any(abs(our - their) > CLOSE * their for our, their in zip(ours, theirs, strict=False)):
            self.notes.append(f"values are not JSON here, because fitted fields give other sizes: {both}. The fields:")
            self.notes += workloads.value_text(fitted).splitlines()
            return topic, planned
        self.notes += fields.notes
        return changed, made

    def _timestamps(self) -> Json:
        seen = self.seen
        last_ms = max(newest for _, _, newest in seen.places.values())
        if last_ms < 0:
            self.notes.append("records have no timestamps")
            return {}
        if seen.first_ms > MOMENT_MAX:
            self.notes.append(f"timestamps begin at {seen.first_ms} ms, too late for a workload; they are not learned")
            return {}
        span_ms = max(1, last_ms - seen.first_ms)
        rate = seen.sums["offsets"] / len(seen.places) / span_ms * 1000
        made: Json = {
            "start": seen.first_ms // HOUR_MS * HOUR_MS,
            "records_per_second": min(max(1, round(rate)), 10**9),
        }
        if seen.sums["append_batches"] > USUAL * seen.codecs[True].total() > 0:
            made["type"] = "log-append"
        if rate < 1:
            self.notes.append(f"a partition gets {rate:.2g} records per second; here 1, which is the least")
        if span_ms >= DAY_MS:
            last_ms = min(last_ms, seen.first_ms + HOURS_MAX * HOUR_MS)
            hours = np.arange(seen.first_ms // HOUR_MS, last_ms // HOUR_MS + 1)
            lengths = np.minimum((hours + 1) * HOUR_MS, last_ms + 1) - np.maximum(hours * HOUR_MS, seen.first_ms)
            each = seen.hours / np.bincount(hours % workloads.DAY_HOURS, lengths, workloads.DAY_HOURS)
            made["hour_weights"] = np.ceil(each / each.max() * 100).astype(int).tolist()
        else:
            self.notes.append("the log has less than a day, so the hours of the day are not learned")
        if late := seen.sums["late"]:
            wanted = two_digits(2 * seen.sums["late_ms"] / late, up=True)
            if (late_ms := min(wanted, made["start"], INT32_MAX)) < wanted:
                self.notes.append(f"late records are up to {late_ms} ms late, in the log {wanted / 2:.2g} on average")
            made |= {"late_share": _share(late, seen.sums["records"]), "late_ms": late_ms} if late_ms else {}
        return made

    def _writers(self) -> Json:
        sums = self.seen.sums
        made: Json = {}
        count = {name: min(max(1, len(ids)), workloads.PRODUCERS_MAX) for name, ids in self.seen.producers.items()}
        shares = {name: _share(sums[name], sums["offsets"]) for name in (*count, "magic0", "magic1")}
        if shares["idempotent"]:
            made["producers"] = {"count": count["idempotent"], "share": shares["idempotent"]}
        if shares["transactions"]:
            markers = max(1, sums["markers"])
            made["transactions"] = {
                "producers": count["transactions"],
                "share": shares["transactions"],
                "records": max(1, round((sums["transactions"] - sums["markers"]) / markers)),
                "abort_share": _share(sums["aborts"], markers),
            }
            self.notes.append("each transaction is in one partition: how many it covers is not learned")
        if sums["magic0"] + sums["magic1"]:
            old = self.seen.codecs[False]
            known = Counter({name: old[name] for name in workloads.LEGACY_CODECS})
            if known.total() < old.total():
                self.notes.append("messages of old formats have codecs that kfuzz does not write there")
            made["legacy"] = {name: shares[name] for name in ("magic0", "magic1")} | {"codecs": _weights(known)}
        return made


def _weights(counts: Counter[Any]) -> dict[str, int] | str:
    scale = min(1, WEIGHT_MAX / max(1, counts.total()))
    return {name: max(1, round(count * scale)) for name, count in counts.items() if count} or "none"
