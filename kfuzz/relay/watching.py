"""The sums of all that the proxy has seen: counts, sizes, latencies and errors of each API; remarks about frames."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kfuzz.broker_errors import ERROR_NAMES
from kfuzz.findings import Finding
from kfuzz.relay.frames import Direction, Exchange, Frame
from kfuzz.text import printable

# Different remarks that are kept. All are counted.
REMARKS_MAX: Final = 1000
# A latency is kept as the number of its bucket; eight buckets double it.
BUCKETS_PER_DOUBLING: Final = 8
NS_PER_MS: Final = 1_000_000


class Latencies:
    """Durations in ns, as counts in buckets that are 9 % wide."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.highest_ns = 0

    def add(self, ns: int) -> None:
        self._buckets[int(math.log2(ns + 1) * BUCKETS_PER_DOUBLING)] += 1
        self.highest_ns = max(self.highest_ns, ns)

    def quantile_ms(self, share: float) -> float | None:
        """The duration in ms that this share of all does not exceed; None if there is none."""
        left = self._buckets.total() * share
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(2 ** ((bucket + 0.5) / BUCKETS_PER_DOUBLING), self.highest_ns) / NS_PER_MS
        return None


@dataclass(slots=True)
class Sums:
    """The sums of one API. ``errors``: how often responses have each of Kafka's errors, by its name."""

    requests: int = 0
    responses: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    versions: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    latencies: Latencies = field(default_factory=Latencies)

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("requests", "responses", "request_bytes", "response_bytes")},
            "versions": {str(one): self.versions[one] for one in sorted(self.versions)},
            "errors": dict(sorted(self.errors.items())),
            "latency_ms": {
                name: None if (found := self.latencies.quantile_ms(share)) is None else round(found, 3)
                for name, share in (("median", 0.5), ("p99", 0.99), ("highest", 1.0))
            },
        }


@dataclass(slots=True)
class Remark:
    """Something about an API or a broker that is not as it should be. ``first`` is a sentence about the first time."""

    code: str
    direction: Direction | None
    about: str
    count: int
    first: str


class Watch:
    """Takes note of the frames of all connections. ``tell`` gets a sentence for the first of each kind of remark."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.by_api: defaultdict[str, Sums] = defaultdict(Sums)
        self.remarks: dict[tuple[str, Direction | None, str], Remark] = {}
        self._tell = tell

    def sums(self, exchange: Exchange) -> Sums:
        # Keys come from strangers: APIs that no release has share one entry.
        return self.by_api[exchange.name if exchange.is_known else "unknown"]

    def asked(self, frame: Frame, size: int) -> None:
        """Count a request of ``size`` bytes."""
        sums = self.sums(frame.exchange)
        sums.requests += 1
        sums.request_bytes += size
        if frame.exchange.api is not None:
            sums.versions[frame.exchange.version] += 1

    def answered(self, frame: Frame, size: int, now_ns: int) -> None:
        """Count a response of ``size`` bytes."""
        sums = self.sums(frame.exchange)
        sums.responses += 1
        sums.response_bytes += size
        if frame.exchange.sent_ns:
            sums.latencies.add(now_ns - frame.exchange.sent_ns)
        for code, count in frame.errors.items():
            sums.errors[ERROR_NAMES.get(code, f"ERROR_{code}")] += count

    def found(self, frame: Frame, findings: list[Finding]) -> None:
        """Note findings about a frame."""
        for one in findings:
            known = self.remarks.get((one.code, frame.direction, frame.exchange.name))
            if known is None:
                self.note(one.code, frame.direction, frame.exchange, str(one))
            else:
                known.count += 1

    def note(self, code: str, direction: Direction, exchange: Exchange, sentence: str) -> None:
        """Note something about a frame of an exchange."""
        if exchange.number:
            where, about = f"{direction} {exchange.number}, {exchange.name} {exchange.version}", exchange.name
        else:
            # It belongs to no request.
            where, about = f"{direction}s", ""
        self._remark(code, direction, about, f"connection {exchange.connection}, {where}: {sentence}")

    def note_broker(self, broker: object, code: str, sentence: str) -> None:
        """Note something about a broker, whose address this is."""
        self._remark(code, None, str(broker), f"{broker}: {sentence}")

    def _remark(self, code: str, direction: Direction | None, about: str, sentence: str) -> None:
        key = (code, direction, about)
        if key not in self.remarks and len(self.remarks) >= REMARKS_MAX:
            key = ("more-remarks", None, "")
        remark = self.remarks.get(key)
        if remark is None:
            remark = self.remarks[key] = Remark(code, direction, about, 0, printable(sentence))
            self._tell(remark.first)
        remark.count += 1

    def lines(self) -> Iterator[str]:
        yield (
            f"{'API':<28} {'requests':>9} {'responses':>9} {'bytes asked':>12} {'answered':>12}"
            f" {'median ms':>10} {'p99 ms':>9}  errors"
        )
        for name, sums in sorted(self.by_api.items(), key=lambda one: (-one[1].requests, one[0])):
            times = ["" if ms is None else f"{ms:.2f}" for ms in map(sums.latencies.quantile_ms, (0.5, 0.99))]
            errors = ", ".join(f"{count} {error}" for error, count in sorted(sums.errors.items()))
            yield (
                f"{name:<28} {sums.requests:>9} {sums.responses:>9} {sums.request_bytes:>12} {sums.response_bytes:>12}"
                f" {times[0]:>10} {times[1]:>9}  {errors}"
            ).rstrip()
        for remark in sorted(self.remarks.values(), key=lambda one: (-one.count, one.code, one.about)):
            yield f"{remark.count} times {remark.code}: first {remark.first}"

    def to_json(self) -> dict[str, Any]:
        return {
            "apis": {name: self.by_api[name].to_json() for name in sorted(self.by_api)},
            "remarks": [asdict(one) for one in self.remarks.values()],
        }
