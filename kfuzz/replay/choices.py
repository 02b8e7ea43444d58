"""The settings of a replay or a load, and the words for them on the command line: rates, speeds and times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from kfuzz.client.address import Access
from kfuzz.errors import UsageError
from kfuzz.kafka import CLOSED_TOPICS
from kfuzz.records import Limits
from kfuzz.records.read.limits import DEFAULT_LIMITS
from kfuzz.units import NUMBER, parse_size

Acks = Literal[-1, 0, 1]

# Letters for thousands and millions of records.
MANY: Final[Mapping[str, int]] = {"k": 1000, "M": 1_000_000}
# The words for acks.
ACKS: Final[Mapping[str, Acks]] = {"0": 0, "1": 1, "all": -1}


@dataclass(frozen=True, slots=True)
class Rate:
    """The most that is sent in a second. None is no bound."""

    records_per_s: float | None = None
    bytes_per_s: float | None = None

    def part(self, share: float) -> Rate:
        """The same bound for a ``share`` of the work, from 0 to 1."""
        return Rate(
            None if self.records_per_s is None else self.records_per_s * share,
            None if self.bytes_per_s is None else self.bytes_per_s * share,
        )


@dataclass(frozen=True, slots=True)
class Settings(Access):
    """The log to send, the broker, and the speed. ``retries`` counts for each batch, ``reconnects`` for all.

    - ``connections``: the number of connections for batches to each broker.
    - ``pipelined``: whether several batches of a partition may be on their way even if they have no producer id. Then a
      batch that is sent again may come after later ones.
    - ``acks``: 0, 1, or -1 for all. Batches with a producer id are always sent with -1.
    - ``speed``: how much faster than the log's own timestamps; None to ignore them. ``first_timestamp`` is the moment
      (ms) at which the replay begins; None takes the lowest of the partitions' first batches.
    - ``duration_s``, ``records``: bounds; None is no bound.
    - ``restamp``: whether the newest timestamp of a batch becomes the time at which it is due.
    - ``verify``: whether consumers read what is sent, and check it; ``check_history``: also once more afterwards.
    - ``loop``: whether the log is sent again and again.
    - ``convert``: whether to rewrite batches that a broker refuses, if possible.
    - ``names``: other topics to send to, by the log's topic.
    - ``transactional_id``: how the transactional ids begin.
    - ``by_second``: whether the report has each second, which takes 8 bytes for each batch.
    """

    connections: int = 1
    pipelined: bool = False
    acks: Acks = -1
    rate: Rate = Rate()
    speed: float | None = None
    first_timestamp: int | None = None
    duration_s: float | None = None
    records: int | None = None
    restamp: bool = False
    verify: bool = False
    check_history: bool = False
    loop: bool = False
    convert: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    transactional_id: str = "kfuzz-replay"
    limits: Limits = DEFAULT_LIMITS
    by_second: bool = True

    def __post_init__(self) -> None:
        for name, least, most in (
            ("connections", 1, 1000),
            ("in_flight", 1, 10_000),
            ("retries", 0, 1000),
            ("reconnects", 0, 1_000_000),
            ("timeout_ms", 1, 3_600_000),
            ("transaction_timeout_ms", 1, (1 << 31) - 1),
        ):
            if not least <= getattr(self, name) <= most:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be from {least} to {most}")
        if self.records is not None and self.records < 0:
            raise UsageError(f"records is {self.records}; it must be 0 or more")
        if self.speed is not None and self.rate != Rate():
            raise UsageError("a rate and a speed exclude each other; give one of them")

    def part(self, before: int, own: int, total: int) -> Settings:
        """For a part of the work: ``own`` of ``total``, after ``before``. The bounds on records add up to this one."""
        records = self.records
        if records is not None:
            records = records * (before + own) // total - records * before // total
        return replace(self, records=records, create=False)

    def wanted(self, places: Iterable[tuple[str, int]]) -> dict[str, int]:
        """How many partitions each topic of the broker must have, for these topics and partitions.

        ``UsageError`` if two of the topics would become one, if ``names`` has another one, or if a broker lets no
        client write to one.
        """
        wanted: dict[str, int] = {}
        sources: dict[str, str] = {}
        for topic, partition in places:
            name = self.names.get(topic, topic)
            if sources.setdefault(name, topic) != topic:
                raise UsageError(f"topics {sources[name]} and {topic} would both go to {name}; give each its own name")
            if name in CLOSED_TOPICS:
                remedy = f"install it with kfuzz corpus install, or send it to another topic with --topic {topic}=NAME"
                raise UsageError(f"a broker lets no client write to {name}; {remedy}")
            wanted[name] = max(wanted.get(name, 0), partition + 1)
        if unknown := sorted(self.names.keys() - set(sources.values())):
            raise UsageError(f"there is no topic {unknown[0]} that could go to {self.names[unknown[0]]}; check it")
        return wanted


def parse_name(text: str) -> tuple[str, str]:
    """``A=B`` as a pair, for ``Settings.names``. ``UsageError`` for anything else."""
    old, equals, new = text.partition("=")
    if not equals or not old or not new:
        raise UsageError(f"{text!r} maps no topic; give A=B to send topic A of the log to topic B")
    return old, new


def parse_rate(text: str) -> Rate:
    """``50000``, ``50k`` or ``50000/s`` is records, ``20MB/s`` is bytes. ``UsageError`` for anything else, and for 0.

    >>> from kfuzz.replay import parse_rate
    >>> parse_rate("20MB/s")
    Rate(records_per_s=None, bytes_per_s=20000000)
    """
    amount = text.strip().removesuffix("/s").strip()
    number, times = (amount[:-1], MANY[amount[-1]]) if amount[-1:] in MANY else (amount, 1)
    if NUMBER.fullmatch(number):
        if float(number) > 0:
            return Rate(records_per_s=float(number) * times)
    elif size := parse_size(amount):
        return Rate(bytes_per_s=size)
    raise UsageError(f"{text!r} is not a rate; give records per second, such as 50000, or bytes, such as 20MB/s")


def parse_speed(text: str) -> float:
    """``10x`` or ``10`` is ten times as fast as the timestamps. ``UsageError`` for anything else, and for 0."""
    number = text.strip().removesuffix("x")
    if not NUMBER.fullmatch(number) or float(number) <= 0:
        raise UsageError(f"{text!r} is not a speed; give a number above 0, such as 10x")
    return float(number)
