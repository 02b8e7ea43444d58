"""The report of a run: counts, latencies, and everything that was not sent. Reports of parts can be added."""

from __future__ import annotations

import copyreg
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, field, fields, is_dataclass
from typing import Any, Final

from kfuzz.errors import needs
from kfuzz.replay.choices import Rate
from kfuzz.units import counted

# Latencies from 1 µs to an hour, with an error of at most 0.1 %.
LATENCY_US_MAX: Final = 3_600_000_000
DIGITS: Final = 3
PERCENTILES: Final = (50, 90, 99, 99.9)
# A run that is later than this at its end, and than this share of its time, has not reached its rate.
LATE_S: Final = 1.0
LATE_SHARE: Final = 0.01


def require_histogram() -> None:
    """``UsageError``, with the remedy, if the package ``hdrhistogram`` is missing. Only the extra ``replay`` has it."""
    with needs("a replay needs hdrhistogram, which is not installed; pip install 'kfuzz[replay]'"):
        import hdrh.histogram  # noqa: F401


def new_histogram() -> Any:
    """An empty histogram of latencies in µs."""
    from hdrh.histogram import HdrHistogram

    copyreg.pickle(HdrHistogram, lambda one: (_decoded, (one.encode(),)))
    return HdrHistogram(1, LATENCY_US_MAX, DIGITS)


def _decoded(text: bytes) -> Any:
    histogram = new_histogram()
    histogram.decode_and_add(text)
    return histogram


def percentiles_ms(histogram: Any) -> dict[str, float]:
    """Percentiles of a histogram in µs, and its highest value; empty if it has none."""
    if not histogram.get_total_count():
        return {}
    found = {f"p{one}": histogram.get_value_at_percentile(one) / 1000 for one in PERCENTILES}
    return {**found, "max": histogram.get_max_value() / 1000}


@dataclass(slots=True)
class Count:
    """Batches, their records, and their bytes."""

    batches: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, batches: int, records: int, size: int) -> None:
        """Count more of them."""
        self.batches += batches
        self.records += records
        self.bytes += size

    def to_json(self) -> dict[str, int]:
        """The three numbers."""
        return asdict(self)


@dataclass
class TopicReport:
    """The counts of one topic's batches.

    - ``sent``: what the broker acknowledged (with acks 0: what it received). ``converted`` is the part of it that was
      rewritten.
    - ``refused``: what was not sent, by reason. ``dropped``: batches without records, which conversion left out.
    - ``failed``: what the broker answered with an error, by partition and error.
    - ``retried``: how many times a batch was sent again, by error.
    - ``reordered``: records that came after later ones of their partition, because they were sent again.
    - ``repeated``: records that may be there twice: the connection was lost before the answer.
    - ``transactions``: by ``committed``, ``aborted``, ``open`` (as in the log), ``cut`` (aborted because the replay
      ended before the marker), ``unmatched`` (markers without a batch before them), ``failed``.
    - ``latency``: from the time when a batch is due to its answer, in µs; without a rate, from when it is first sent.
    """

    sent: Count = field(default_factory=Count)
    converted: Count = field(default_factory=Count)
    dropped: Count = field(default_factory=Count)
    refused: dict[str, Count] = field(default_factory=dict)
    failed: dict[tuple[int, str], Count] = field(default_factory=dict)
    retried: Counter[str] = field(default_factory=Counter)
    transactions: Counter[str] = field(default_factory=Counter)
    reordered: int = 0
    repeated: int = 0
    latency: Any = field(default_factory=new_histogram)

    def latency_ms(self) -> dict[str, float]:
        """Percentiles, and the highest; empty if nothing was answered."""
        return percentiles_ms(self.latency)

    def to_json(self) -> dict[str, Any]:
        """Everything except the single latencies."""
        return {
            "sent": self.sent.to_json(),
            "converted": self.converted.to_json(),
            "dropped": self.dropped.to_json(),
            "refused": {reason: count.to_json() for reason, count in sorted(self.refused.items())},
            "failed": [
                {"partition": partition, "error": error, **count.to_json()}
                for (partition, error), count in sorted(self.failed.items())
            ],
            "retried": dict(sorted(self.retried.items())),
            "transactions": dict(sorted(self.transactions.items())),
            "reordered_records": self.reordered,
            "repeated_records": self.repeated,
            "latency_ms": self.latency_ms(),
        }


@dataclass(slots=True)
class Second:
    """One second of a run. ``answered``: the records that were acknowledged in it. ``latencies_us``: those of the
    batches that were due in it.
    """

    answered: int = 0
    latencies_us: array[int] = field(default_factory=lambda: array("q"))

    @property
    def latency(self) -> Any:
        """The latencies as a histogram in µs."""
        histogram = new_histogram()
        for latency_us in self.latencies_us:
            histogram.record_value(min(latency_us, LATENCY_US_MAX))
        return histogram


@dataclass
class Level:
    """The records that the consumers of one isolation read, and those that were not as they were sent.

    - ``lost``: acknowledged, and not read; in read_committed, only if their transaction was committed.
    - ``twice``: read again. ``twice_idempotent`` is the part of it whose producer is idempotent.
    - ``reordered``: read after later ones of their partition.
    - ``wrong``: with other bytes than those that were sent. ``foreign``: never sent.
    - ``aborted``: of a transaction that was aborted, and read in read_committed.
    - ``went_back``: read, and later no longer in the log.
    - ``hidden``: not read in read_committed, because a transaction before them was still open at the end.
    """

    read: int = 0
    lost: int = 0
    twice: int = 0
    twice_idempotent: int = 0
    reordered: int = 0
    wrong: int = 0
    foreign: int = 0
    aborted: int = 0
    went_back: int = 0
    hidden: int = 0
    latency: Any = field(default_factory=new_histogram)

    def faults(self) -> dict[str, int]:
        """The number of records with each kind of fault; kinds that do not occur are left out."""
        return {one: count for one, count in self.to_json().items() if one in FAULTS and count}

    def to_json(self) -> dict[str, Any]:
        """The counts, and the latency from when batches were due until they were read."""
        counts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "latency"}
        return {**counts, "latency_ms": percentiles_ms(self.latency)}


# The counts of a level that a report has a sentence for.
FAULTS: Final = {
    "lost": "lost though acknowledged",
    "twice": "read twice",
    "twice_idempotent": "read twice though their producer is idempotent",
    "reordered": "read after later ones",
    "wrong": "with wrong bytes",
    "foreign": "that were never sent",
    "aborted": "of aborted transactions",
    "went_back": "gone after they were read",
    "hidden": "hidden by an open transaction",
}


@dataclass
class Report:
    """The counts of a run, by topic of the broker.

    ``failure`` is the sentence that ended it early, if one did. ``over`` is the number of records of a batch that did
    not fit into the bound on records, or 0. ``signal`` is the number of the signal that ended it,
    or 0. ``began`` is when the first batch could be sent, in seconds since 1970, and ``seconds`` how long it took.
    ``target`` is the rate that was asked for, and ``reached`` that of the parts together. ``late_s`` says how late the
    latest partition was when the run ended. ``short_s`` is the time that was asked for, if the log ended before it.
    ``by_second`` counts from the beginning. ``levels`` has what consumers read, by isolation; those that read again
    afterwards have names of their own. A report can be pickled.
    """

    topics: dict[str, TopicReport] = field(default_factory=dict)
    target: Rate = field(default_factory=Rate)
    reached: Rate = field(default_factory=Rate)
    late_s: float = 0.0
    short_s: float | None = None
    by_second: dict[int, Second] = field(default_factory=lambda: defaultdict(Second))
    levels: dict[str, Level] = field(default_factory=dict)
    began: float = 0.0
    seconds: float = 0.0
    throttled_ms: int = 0
    reconnects: int = 0
    signal: int = 0
    failure: str | None = None
    over: int = 0
    _answers: list[tuple[TopicReport, int, float, int]] = field(default_factory=list)

    @property
    def why(self) -> str | None:
        """The sentence that ended it early, also if nothing fits into the bound on records."""
        if self.over and not self.failure and not self.sent.batches:
            return f"the first batch has {self.over} records, more than --records allows, so nothing was sent"
        return self.failure

    def topic(self, name: str) -> TopicReport:
        """The report of one topic, which is made if it is not there yet."""
        # Making one takes as long as sending a batch, so not `setdefault`.
        if (topic := self.topics.get(name)) is None:
            topic = self.topics[name] = TopicReport()
        return topic

    def answered(self, topic: TopicReport, records: int, at_s: float, latency_us: int) -> None:
        """Note a batch that was acknowledged so many seconds after the beginning; :meth:`settle` counts it."""
        self._answers.append((topic, records, at_s, latency_us))

    def settle(self, *, by_second: bool = True) -> None:
        """Count the answers since the last call. Together they cost less than one by one, each after a sleep."""
        for topic, records, at_s, latency_us in self._answers:
            topic.latency.record_value(min(latency_us, LATENCY_US_MAX))
            if by_second:
                self.by_second[int(at_s)].answered += records
                self.by_second[int(max(0.0, at_s - latency_us / 1e6))].latencies_us.append(latency_us)
        self._answers.clear()

    @property
    def sent(self) -> Count:
        """The sent batches of all topics."""
        total = Count()
        for topic in self.topics.values():
            _sum(total, topic.sent)
        return total

    @property
    def is_late(self) -> bool:
        """Whether the run ended before what was due had been sent, so that the rate was not reached."""
        return self.late_s > max(LATE_S, LATE_SHARE * self.seconds)

    @property
    def is_clean(self) -> bool:
        """Whether everything that was reached was sent, once, in order and at its rate."""
        if self.why or self.is_late or any(level.faults() for level in self.levels.values()):
            return False
        return not any(
            topic.refused or topic.failed or topic.reordered or topic.repeated or topic.transactions["failed"]
            for topic in self.topics.values()
        )

    def add(self, other: Report) -> None:
        """Add the report of another part. The time is that from the first beginning to the last end."""
        for one in ("topics", "target", "reached", "by_second", "levels", "throttled_ms", "reconnects"):
            setattr(self, one, _sum(getattr(self, one), getattr(other, one)))
        self.late_s = max(self.late_s, other.late_s)
        self.short_s = self.short_s or other.short_s
        if other.began:
            end = max(self.began + self.seconds, other.began + other.seconds)
            self.began = min(self.began or other.began, other.began)
            self.seconds = end - self.began
        self.signal = self.signal or other.signal
        self.failure = self.failure or other.failure
        self.over = self.over or other.over

    def to_json(self) -> dict[str, Any]:
        """The report for ``--json``."""
        sent = self.sent
        seconds = self.seconds or 1e-9
        return {
            "seconds": round(self.seconds, 6),
            "sent": sent.to_json(),
            "records_per_s": round(sent.records / seconds, 1),
            "bytes_per_s": round(sent.bytes / seconds, 1),
            "target": asdict(self.target),
            "reached": asdict(self.reached),
            "late_s": round(self.late_s, 3),
            "log_ended_before_s": self.short_s,
            "levels": {name: level.to_json() for name, level in self.levels.items()},
            "throttled_ms": self.throttled_ms,
            "reconnects": self.reconnects,
            "interrupted": self.signal != 0,
            "failure": self.why,
            "topics": {name: topic.to_json() for name, topic in sorted(self.topics.items())},
        }

    # -- text

    def lines(self, what: str) -> Iterator[str]:
        """The report as text; ``what`` names the replay."""
        seconds = self.seconds or 1e-9
        sent = self.sent
        yield (
            f"{what}: {_counted(sent)} in {self.seconds:.1f} s "
            f"({sent.records / seconds:.0f} records/s, {sent.bytes / 1e6 / seconds:.1f} MB/s)"
        )
        late = f"the rate was not reached: at the end, batches were {self.late_s:.1f} s late" if self.is_late else ""
        # A replay at a speed, or as fast as it can, has no target rate.
        if words := "; ".join(filter(None, (self._rates(), late))):
            yield words
        for name, topic in sorted(self.topics.items()):
            yield from _topic_lines(name, topic)
        for name, level in self.levels.items():
            faults = ", ".join(f"{count} {FAULTS[fault]}" for fault, count in level.faults().items())
            latency = _latency_words(level.latency)
            yield f"{name}: {level.read} records read: {faults or 'all as they were sent'}{latency}"
        if self.short_s is not None:
            yield f"the log ended after {self.seconds:.1f} s of {self.short_s:g} s; add --loop to send it again"
        if self.reconnects:
            yield f"connections opened again: {self.reconnects}"
        if self.throttled_ms:
            yield f"throttled by the broker: {self.throttled_ms} ms"
        if self.why is not None:
            yield f"ended early: {self.why}"
        elif self.signal:
            yield "ended early: interrupted"

    def _rates(self) -> str:
        target, reached = self.target, self.reached
        if target.bytes_per_s is not None:
            return f"target {_rate(target.bytes_per_s, 1, 1e6)} MB/s, reached {_rate(reached.bytes_per_s, 1, 1e6)} MB/s"
        if target.records_per_s is not None:
            return f"target {_rate(target.records_per_s)}/s, reached {_rate(reached.records_per_s)}/s"
        return ""


def _rate(per_s: float | None, digits: int = 0, unit: float = 1) -> str:
    """A rate with so many digits after the point; a low one with two that are not zero."""
    count = (per_s or 0) / unit
    return f"{count:,.{digits}f}" if count >= 10 or not count else f"{count:.2g}"


def _sum(ours: Any, theirs: Any) -> Any:
    """The sum of two values of a report, which may change the first one."""
    if isinstance(ours, Rate):
        return Rate(*map(_sum, astuple(ours), astuple(theirs)))
    if is_dataclass(ours):
        for one in fields(ours):
            setattr(ours, one.name, _sum(getattr(ours, one.name), getattr(theirs, one.name)))
    elif isinstance(ours, dict):
        for key, value in theirs.items():
            ours[key] = _sum(ours[key], value) if key in ours else value
    elif hasattr(ours, "get_total_count"):
        ours.add(theirs)
    else:
        return ours + theirs if ours and theirs else ours or theirs
    return ours


def _counted(count: Count) -> str:
    return f"{counted(count.batches, 'batch', 'batches')}, {count.records} records, {count.bytes / 1e6:.1f} MB"


def _latency_words(latency: Any) -> str:
    words = ", ".join(f"{point} {value:.3g}" for point, value in percentiles_ms(latency).items())
    return words and f"; latency in ms: {words}"


def _topic_lines(name: str, topic: TopicReport) -> Iterator[str]:
    yield f"{name}: {_counted(topic.sent)}{_latency_words(topic.latency)}"
    if topic.transactions:
        yield f"{name}: transactions: " + ", ".join(f"{n} {how}" for how, n in sorted(topic.transactions.items()))
    if topic.converted.batches:
        yield f"{name}: converted: {_counted(topic.converted)}"
    if topic.dropped.batches:
        yield f"{name}: left out: {counted(topic.dropped.batches, 'batch', 'batches')} without records"
    for reason, count in sorted(topic.refused.items()):
        yield f"{name}: not sent: {_counted(count)}: {reason}"
    for (partition, error), count in sorted(topic.failed.items()):
        yield f"{name}-{partition}: failed: {_counted(count)}: {error}"
    for error, times in sorted(topic.retried.items()):
        yield f"{name}: sent again: {counted(times, 'batch', 'batches')}: {error}"
    if topic.reordered:
        yield f"{name}: out of order: {topic.reordered} records came after later ones, because they were sent again"
    if topic.repeated:
        yield f"{name}: perhaps twice: {topic.repeated} records, because a connection was lost before the answer"
