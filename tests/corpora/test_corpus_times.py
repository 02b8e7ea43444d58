"""Timestamps: rates that change with the hour and in bursts, late records, starts and ends that are relative to now."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from made_corpora import batches_of, generate_segment

from kfuzz.corpora.clock import DAY_MS, clock_of
from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import Plan, Segment, offset_bytes_mean
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.workload import (
    KIB,
    MIB,
    Batches,
    Legacy,
    Producers,
    Range,
    Timestamps,
    Topic,
    Transactions,
    Values,
    Workload,
    load,
    parse,
)
from kfuzz.errors import UsageError
from kfuzz.storage import Target

HOUR_MS = 3_600_000
NOON_MS = 1_772_366_400_000
OFFICE = (0, 0, 0, 0, 0, 1, 3, 7, 12, 11, 10, 6, 8, 11, 12, 9, 5, 2, 1, 0, 0, 0, 0, 0)
STEADY = Timestamps(start=NOON_MS, records_per_second=1)
RATES = {
    "steady": replace(STEADY, records_per_second=7),
    "fast": replace(STEADY, records_per_second=1_000_000_000),
    "office hours": replace(STEADY, start=NOON_MS + 4 * HOUR_MS + 12_345, hour_weights=OFFICE),
    "bursts": replace(STEADY, start=NOON_MS + 10 * HOUR_MS - 1, burst_every_s=600, burst_length_s=45, burst_factor=13),
    "bursts in office hours": replace(
        STEADY, start=NOON_MS + 5 * HOUR_MS, hour_weights=OFFICE, burst_every_s=5400, burst_length_s=4000
    ),
    "a start in an hour without records": replace(STEADY, start=NOON_MS - 10 * HOUR_MS, hour_weights=OFFICE),
}


def topic_of(times: Timestamps, **more: Any) -> Topic:
    return Topic("t", timestamps=times, values=Values(size=Range(0, 0)), batches=Batches(Range(1, 300)), **more)


def workload_of(times: Timestamps, size: int = 2 * MIB, **more: Any) -> Workload:
    return Workload(topics=(topic_of(times, **more),), size=size, segment_bytes=256 * KIB)


def stamped(segment: Segment, workload: Workload) -> list[tuple[int, int | None]]:
    return [(record.offset, record.timestamp) for batch in batches_of(segment, workload) for record in batch.records]


def rate_at(times: Timestamps, ms: int) -> Fraction:
    """The records in a millisecond."""
    weights = times.hour_weights
    rate = Fraction(times.records_per_second * 24 * weights[ms // HOUR_MS % 24], sum(weights) * 1000)
    bursts = times.burst_every_s and ms // 1000 % times.burst_every_s < times.burst_length_s
    return rate * times.burst_factor if bursts else rate


def one_after_the_other(times: Timestamps) -> Iterator[int]:
    """The time of each offset, each from the one before, with exact fractions."""
    assert isinstance(times.start, int)
    step_ms = math.gcd(HOUR_MS, times.burst_every_s * 1000, times.burst_length_s * 1000 if times.burst_every_s else 0)
    now = Fraction(times.start)
    left = Fraction(0)
    while True:
        until = (math.floor(now) // step_ms + 1) * step_ms
        rate = rate_at(times, math.floor(now))
        if rate * (until - now) <= left:
            left -= rate * (until - now)
            now = Fraction(until)
            continue
        now += left / rate
        left = Fraction(1)
        yield math.floor(now)


@pytest.mark.parametrize("name", RATES)
def test_every_segment_continues_where_adding_up_all_records_before_it_leads(name: str) -> None:
    workload = replace(workload_of(RATES[name], size=512 * KIB), segment_bytes=64 * KIB)
    expected = one_after_the_other(RATES[name])
    days = set()
    for segment in Plan(workload):
        for offset, timestamp in stamped(segment, workload):
            assert (offset, timestamp) == (offset, next(expected))
            assert timestamp is not None
            days.add(timestamp // DAY_MS)
    assert len(days) == (2 if "office" in name or "bursts" in name else 1)


def test_hours_have_records_in_proportion_to_their_weights() -> None:
    workload = workload_of(replace(RATES["office hours"], start=NOON_MS - 12 * HOUR_MS))
    # The first day is whole: 86,400 records.
    day = [
        at for one in Plan(workload) for _, at in stamped(one, workload) if at is not None and at < NOON_MS + DAY_MS / 2
    ]
    assert len(day) == 86_400
    whole = Counter(at // HOUR_MS % 24 for at in day)
    assert [whole[hour] for hour in range(24)] == pytest.approx([86_400 * w / sum(OFFICE) for w in OFFICE], abs=1)


def test_markers_and_messages_of_the_old_formats_follow_the_same_clock() -> None:
    times = RATES["bursts"]
    more = {
        "producers": Producers(share=0.3),
        "transactions": Transactions(share=0.4, records=9),
        "legacy": Legacy(magic1=0.2),
    }
    workload = workload_of(times, size=512 * KIB, **more)
    expected = one_after_the_other(times)
    for segment in Plan(workload):
        for offset, timestamp in stamped(segment, workload):
            assert (offset, timestamp) == (offset, next(expected))


def test_late_records_lie_up_to_the_limit_in_the_past_and_others_up_to_the_jitter_ahead() -> None:
    times = Timestamps(start=NOON_MS, records_per_second=100, late_share=0.2, late_ms=5000, jitter_ms=30)
    workload = workload_of(times)
    late, sizes = [], 0
    for segment in Plan(workload):
        for offset, timestamp in stamped(segment, workload):
            assert timestamp is not None
            moved = timestamp - (NOON_MS + offset * 10)
            assert -5000 <= moved <= 30
            if moved < 0:
                late.append(moved)
        sizes += len(generate_segment(segment, workload).log)
    total = Plan(workload).records
    assert len(late) / total == pytest.approx(0.2, abs=0.01)
    assert min(late) < -4900
    assert sum(late) / len(late) == pytest.approx(-2500, rel=0.05)
    assert sizes / total == pytest.approx(offset_bytes_mean(workload.topics[0]), rel=0.03)


@pytest.mark.parametrize("jitter_ms", [0, 500])
@pytest.mark.parametrize("name", ["steady", "office hours", "bursts"])
def test_with_an_end_the_last_record_lies_there_and_the_rate_stays(name: str, jitter_ms: int) -> None:
    times = replace(RATES[name], start=Timestamps().start, end=NOON_MS, jitter_ms=jitter_ms)
    workload = workload_of(times, size=MIB)
    plan = Plan(workload)
    found = [at for one in plan for _, at in stamped(one, workload) if at is not None]
    assert NOON_MS - jitter_ms <= found[-1] <= NOON_MS
    assert max(found) <= NOON_MS
    if not jitter_ms:
        assert found[-1] == NOON_MS
        expected = one_after_the_other(replace(times, end=None, start=found[0]))
        assert all(abs(at - next(expected)) <= 1000 for at in found)


def test_an_end_in_an_hour_without_records_comes_after_the_last_record() -> None:
    times = replace(RATES["office hours"], start=Timestamps().start, end=NOON_MS + 11 * HOUR_MS)
    workload = workload_of(times, size=MIB)
    plan = Plan(workload)
    assert [at for _, at in stamped(plan[len(plan) - 1], workload)][-1] == NOON_MS + 7 * HOUR_MS - 1


def test_all_partitions_of_a_topic_end_together() -> None:
    topic = replace(topic_of(Timestamps(end=NOON_MS)), partitions=3)
    workload = Workload(topics=(topic, replace(topic, name="u", weight=5)), size=MIB, segment_bytes=128 * KIB)
    plan = Plan(workload)
    last = {one.directory: stamped(one, workload)[-1][1] for one in plan}
    assert last == dict.fromkeys(plan.directories(), NOON_MS)


TEXT = 'size = "128KiB"\nsegment_bytes = "64KiB"\n[[topics]]\nname = "t"\n[topics.timestamps]\n'


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("1772366400000", NOON_MS),
        ('"2026-03-01T12:00:00Z"', NOON_MS),
        ('"2026-03-01t12:00:00.000z"', NOON_MS),
        ('"2026-03-01 17:30:00.25+05:30"', NOON_MS + 250),
        ("2026-03-01T12:00:00Z", NOON_MS),
        ("2026-03-01T04:00:00-08:00", NOON_MS),
        ('"now"', 99 * DAY_MS),
        ('"now-1d"', 98 * DAY_MS),
        ('"now-6h"', 99 * DAY_MS - 6 * HOUR_MS),
        ('"now+250ms"', 99 * DAY_MS + 250),
        ('"now-2w"', 85 * DAY_MS),
    ],
)
@pytest.mark.parametrize("key", ["start", "end"])
def test_a_moment_can_be_written_in_many_ways(key: str, written: str, ms: int) -> None:
    workload = resolve(parse(f"{TEXT}{key} = {written}\n", "w"), now_ms=99 * DAY_MS)
    assert getattr(workload.topics[0].timestamps, key) == ms
    assert parse(f"{TEXT}{key} = {ms}\n", "w") == workload
    found = [at for one in Plan(workload) for _, at in stamped(one, workload)]
    assert found[0 if key == "start" else -1] == ms


def test_a_relative_start_is_fixed_when_the_corpus_is_begun(tmp_path: Path) -> None:
    workload = parse(TEXT + 'start = "now-1d"\n', "w")
    with pytest.raises(UsageError, match=r"timestamps are relative to now; call kfuzz\.corpora\.resolution\.resolve"):
        Plan(workload)[0]
    rows = list(generate(workload, tmp_path / "out"))
    begun = load(tmp_path / "out" / "_workload.toml")
    start = begun.topics[0].timestamps.start
    assert isinstance(start, int)
    assert rows[0].min_timestamp == start
    # Later, `now` is another moment. The corpus keeps its own.
    moved = replace(begun, topics=(replace(begun.topics[0], timestamps=Timestamps(start=start - DAY_MS)),))
    assert resolve(workload, Target.of(tmp_path / "out"), now_ms=start + 9 * DAY_MS) == begun
    assert resolve(workload, now_ms=start) == moved
    assert list(generate(workload, tmp_path / "out")) == rows
    # A fixed start is another workload.
    with pytest.raises(UsageError, match="another workload"):
        generate(moved, tmp_path / "out")


def test_a_corpus_with_an_end_cannot_grow_and_the_sentence_says_so(tmp_path: Path) -> None:
    workload = parse(TEXT + 'end = "now"\n', "w")
    generate(workload, tmp_path / "out")
    assert not workload.can_grow
    with pytest.raises(UsageError, match=r"its timestamps\.end is fixed, so it cannot change its size; .*start"):
        generate(workload.resized(MIB), tmp_path / "out")
    assert parse(TEXT + 'start = "now"\n', "w").can_grow


def test_a_clock_knows_the_moment_of_any_number_of_units() -> None:
    for times in RATES.values():
        clock = clock_of(times)
        for ms in (0, 1, HOUR_MS * 9, NOON_MS, NOON_MS + 45_001, 1 << 52):
            units = clock.units_at(ms)
            found = clock.moment(units)
            assert found.ms >= ms
            assert clock.units_at(found.ms) + found.units == units
            if clock.units_at(ms + 1) > units:
                assert found.ms == ms


def test_toml_dates_without_a_time_zone_are_no_moments() -> None:
    text = TEXT + "start = 2026-03-01T12:00:00\n"
    assert tomllib.loads(text)["topics"][0]["timestamps"]["start"].tzinfo is None
    with pytest.raises(UsageError, match=r"timestamps\.start is .*; give milliseconds from 1970 on, a date such as"):
        parse(text, "w")
