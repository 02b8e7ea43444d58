"""Counts the records and batches in the log of a topic, in one pass, in memory that does not grow with the log.

Sizes are counted after rounding to three digits, so there are at most some thousands of them. Up to ``KEYS_MAX``
different keys are counted exactly. Of more, a sample is kept by their hashes, and the most frequent ones. Of the
values, a sample at equal distances is kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kfuzz import control
from kfuzz.corpora.clock import HOUR_MS
from kfuzz.corpora.distributions import Numbers
from kfuzz.corpora.workload import DAY_HOURS
from kfuzz.kafka import CODECS
from kfuzz.logs.arrow_rows import beginnings, select_rows
from kfuzz.logs.choosing import json_column
from kfuzz.logs.heads import BatchHeads
from kfuzz.logs.reading import RowMaker
from kfuzz.logs.transactions import Ahead
from kfuzz.records.arrow import Part
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, LOG_OVERHEAD

if TYPE_CHECKING:
    from kfuzz.schemas.values import Schemas

KEYS_MAX: Final = 1 << 20
PENDING_MIN: Final = 1 << 16
HOT_KEYS: Final = 1000
SAMPLE_MAX: Final = 20_000
SAMPLE_BYTES_MAX: Final = 64 << 20
VALUE_BYTES_MAX: Final = 64 << 10
IDS_MAX: Final = 10_000
# The bytes of a record besides key, value and headers, and those of its header that a batch counts in its length.
RECORD_BYTES: Final = 7
HEAD_BYTES: Final = BATCH_HEADER_SIZE - LOG_OVERHEAD
ABORT: Final = control.KEY.pack(0, control.ControlRecordType.ABORT)


class Sizes(Counter[int]):
    """How often each size occurs, rounded to three digits. Sizes below 0, which are those of nulls, are left out."""

    def see(self, sizes: npt.NDArray[Any]) -> None:
        """Count these."""
        sizes = sizes[sizes >= 0].astype(np.int64)
        step = 10 ** np.maximum(np.log10(np.maximum(sizes, 1)).astype(np.int64) - 2, 0)
        found, counts = np.unique((sizes + step // 2) // step * step, return_counts=True)
        self.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))


@dataclass(slots=True)
class KeyCounts:
    """How often each key occurs, by its hash. Those whose hash is above ``highest`` are left out if they are rare."""

    highest: int = (1 << 64) - 1
    parts: list[tuple[npt.NDArray[np.uint64], Numbers]] = field(default_factory=list)

    def see(self, keys: pa.Array[Any]) -> None:
        """Count these."""
        counted: Any = keys
        found = counted.value_counts()
        hashes = b"".join(blake2b(key, digest_size=8).digest() for key in found.field("values").to_pylist())
        self.parts.append((np.frombuffer(hashes, np.uint64), found.field("counts").to_numpy()))
        if sum(len(one) for one, _ in self.parts) > 2 * max(len(self.parts[0][0]), PENDING_MIN):
            self.merged()

    def merged(self) -> tuple[npt.NDArray[np.uint64], Numbers]:
        """The hashes and the count of each of them."""
        hashes, places = np.unique(np.concatenate([one for one, _ in self.parts]), return_inverse=True)
        counts = np.bincount(places, np.concatenate([counts for _, counts in self.parts])).astype(np.int64)
        if len(hashes) > KEYS_MAX:
            while (kept := hashes <= np.uint64(self.highest)).sum() > KEYS_MAX // 2:
                self.highest //= 2
            kept[np.argpartition(counts, -HOT_KEYS)[-HOT_KEYS:]] = True
            hashes, counts = hashes[kept], counts[kept]
        self.parts = [(hashes, counts)]
        return hashes, counts

    @property
    def cardinality(self) -> int:
        """The number of different keys; an estimate if some were left out."""
        return round(int((self.merged()[0] <= np.uint64(self.highest)).sum()) * ((1 << 64) / (self.highest + 1)))


@dataclass(slots=True)
class Observed:
    """The counts of one topic.

    ``sums`` has the numbers of records and of some kinds of them, and of the offsets of each kind of writer.
    ``places`` has of each partition the first and the next offset, and the newest timestamp. ``values`` are sampled
    ones, as JSON if ``schemas`` decode them, each with its timestamp and key.
    """

    schemas: Schemas | None
    keys: KeyCounts = field(default_factory=KeyCounts)
    sums: Counter[str] = field(default_factory=Counter)
    sizes: defaultdict[str, Sizes] = field(default_factory=lambda: defaultdict(Sizes))
    codecs: defaultdict[bool, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    producers: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    places: dict[int, list[int]] = field(default_factory=dict)
    hours: Numbers = field(default_factory=lambda: np.zeros(DAY_HOURS, np.int64))
    first_ms: int = 1 << 62
    values: list[tuple[bytes, int, bytes | None]] = field(default_factory=list)
    stride: int = 1
    damage: str = ""

    def see(self, heads: BatchHeads, counts: Numbers, columns: pa.RecordBatch, partition: int) -> None:
        """Add some batches, in the order of the log."""
        control, transactional = heads.values("control", np.bool_), heads.values("transactional", np.bool_)
        producers, codecs = heads.values("producer_id", np.int64), heads.values("codec", np.int64)
        first, last = heads.values("base_offset", np.int64), heads.values("last_offset", np.int64)
        data = heads.is_new & ~control & (counts > 0)
        place = self.places.setdefault(partition, [int(first[0]), 0, -1])
        place[:2] = min(place[0], int(first.min())), max(place[1], int(last.max()) + 1)
        self.sizes["batch"].see(counts[data])
        for is_new, mask in ((True, data), (False, ~heads.is_new)):
            found = np.bincount(codecs[mask], minlength=len(CODECS)).tolist()
            self.codecs[is_new] += Counter(dict(zip(CODECS, found, strict=False)))
        for name, mask in (
            ("idempotent", data & ~transactional & (producers >= 0)),
            ("transactions", heads.is_new & transactional),
            ("magic0", heads.magic == 0),
            ("magic1", heads.magic == 1),
        ):
            self.sums[name] += int(counts[mask].sum())
            if len(self.producers[name]) < IDS_MAX:
                self.producers[name].update(np.unique(producers[mask]).tolist())
        packed = heads.values("batch_length", np.int64)[data & (codecs > 0)]
        self.sums["packed_bytes"] += int((packed - HEAD_BYTES).sum())
        self.sums["append_batches"] += int((heads.values("timestamp_type", np.int64)[data] == 1).sum())
        self.sums["offsets"] += int(counts.sum())
        is_control = np.repeat(control, counts)
        ends = select_rows(columns, np.flatnonzero(is_control)).column("key").to_pylist()
        self.sums.update(aborts=ends.count(ABORT), markers=len(ends))
        if not is_control.all():
            self._see_records(select_rows(columns, np.flatnonzero(~is_control)), partition)

    def _see_records(self, rows: pa.RecordBatch, partition: int) -> None:
        compute: Any = pc
        count, everything = rows.num_rows, np.arange(rows.num_rows)
        keys, values = (beginnings(rows.column(name), everything)[0] for name in ("key", "value"))
        headers: Any = rows.column("headers")
        each, inner = np.diff(headers.offsets.to_numpy()), headers.flatten().field("value")
        sizes = np.maximum(beginnings(inner, np.arange(len(inner)))[0], 0)
        for name, found in (("key", keys), ("value", values), ("headers", each[each > 0]), ("header", sizes)):
            self.sizes[name].see(found)
        self.keys.see(compute.drop_null(rows.column("key").cast(pa.binary())))
        times = compute.fill_null(rows.column("timestamp").cast(pa.int64()), -1).to_numpy()
        self._sample(rows, times)
        self.sums.update(
            records=count,
            tombstones=int(((values < 0) & (keys >= 0)).sum()),
            nulls=int(((values < 0) & (keys < 0)).sum()),
            with_headers=int((each > 0).sum()),
            plain_bytes=sum(int(np.maximum(one, 0).sum()) for one in (keys, values, sizes)) + RECORD_BYTES * count,
        )
        times = times[times >= 0]
        if len(times):
            place = self.places[partition]
            newest = np.maximum.accumulate(np.concatenate(([place[2]], times)))
            late = np.maximum(newest[:-1] - times, 0)
            self.sums.update(late=int((late > 0).sum()), late_ms=int(late.sum(dtype=np.float64)))
            self.hours += np.bincount(times // HOUR_MS % DAY_HOURS, minlength=DAY_HOURS)
            self.first_ms, place[2] = min(self.first_ms, int(times.min())), int(newest[-1])

    def _sample(self, rows: pa.RecordBatch, times: Numbers) -> None:
        wanted = np.arange(-self.sums["records"] % self.stride, rows.num_rows, self.stride)
        few = select_rows(rows, wanted)
        values: list[Any] = few.column("value").cast(pa.binary()).to_pylist()
        if self.schemas is not None and len(wanted):
            from kfuzz.schemas.plain import text_or_hex

            made: Any = json_column(self.schemas, "value", few.column("value"), few.column("headers")).cast(pa.binary())
            # One that no schema is known for stays as it is.
            for at, (raw, text) in enumerate(zip(values, made.to_pylist(), strict=True)):
                if raw is not None and text != text_or_hex(raw):
                    values[at] = text
                    self.sums["decoded"] += 1
        found = zip(values, times[wanted].tolist(), few.column("key").to_pylist(), strict=True)
        self.values += [one for one in found if one[0] is not None and len(one[0]) <= VALUE_BYTES_MAX]
        while len(self.values) > SAMPLE_MAX or sum(len(one[0]) for one in self.values) > SAMPLE_BYTES_MAX:
            self.values, self.stride = self.values[::2], self.stride * 2


@dataclass(frozen=True, slots=True)
class Watching(RowMaker):
    """Gives the batches of a segment to ``seen``, and makes no rows."""

    seen: Observed = field(default_factory=lambda: Observed(None))

    def of(self, view: memoryview, made: Part, at: int, ahead: Ahead | None) -> None:
        """Count the batches of ``made``."""
        if made.places:
            heads = BatchHeads(view, made.places, at)
            self.seen.see(heads, np.asarray(made.counts, np.int64), made.columns, self.segment.partition or 0)
