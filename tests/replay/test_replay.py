"""Replays to a fake broker: what is sent, what is sent again, what is counted, and how a replay ends."""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate
from cli_driver import kfuzz
from docs.pages import ROOT, commands, shows
from replay.fake_broker import HANG_UP, LATE_HANG_UP, OFFERED, SILENCE, FakeBroker
from replay.hand_made import FIRST_MS, batch, marker, old, seen, write_log
from signals import KFUZZ, interrupt_when, start

from kfuzz import records
from kfuzz.client.link import Link
from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import load
from kfuzz.errors import UsageError
from kfuzz.kafka import CODECS
from kfuzz.records import RecordBatch
from kfuzz.replay import (
    Address,
    Part,
    Rate,
    Report,
    Security,
    Settings,
    find_parts,
    parse_duration,
    parse_rate,
    parse_speed,
    replay,
)
from kfuzz.replay.batches import Batch, Left, set_header, steps
from kfuzz.replay.pace import Bounds, Pace

NOT_LEADER = 6
TOO_LARGE = 10
BATCHES = 12


def at(broker: FakeBroker, **settings: Any) -> Settings:
    return Settings(Address("127.0.0.1", broker.port), **{"timeout_ms": 20_000, **settings})


def plain(count: int = BATCHES, **fields: Any) -> list[RecordBatch]:
    return [batch(10 * i, **fields) for i in range(count)]


def idempotent(count: int = BATCHES, *, producer_id: int = 9, first: int = 70) -> list[RecordBatch]:
    return [
        batch(10 * i, producer_id=producer_id, producer_epoch=2, base_sequence=first + 10 * i) for i in range(count)
    ]


def values(batches: list[RecordBatch]) -> list[Any]:
    return [seen(record) for one in batches if not one.control for record in one.records]


def play(out: Path, broker: FakeBroker, **settings: Any) -> Report:
    return replay(find_parts(out), at(broker, **settings))


def replayed(
    out: Path, log: list[RecordBatch], broker: FakeBroker | None = None, **settings: Any
) -> tuple[Report, FakeBroker]:
    """Replay a log of one partition to a broker, whose contents are looked at afterwards."""
    write_log(out, "t-0", log)
    with broker or FakeBroker({"t": 1}) as taken:
        return play(out, taken, **settings), taken


# ------------------------------------------------------------------------------------------------- bytes


def test_a_batch_is_sent_as_its_bytes_are(tmp_path: Path) -> None:
    for partition in range(3):
        codecs = CODECS[partition:] + CODECS[:partition]
        write_log(tmp_path, f"t-{partition}", [batch(7 + 10 * i, compression=codec) for i, codec in enumerate(codecs)])
    with FakeBroker({"t": 3}) as broker:
        report = play(tmp_path, broker, connections=2)
    assert report.is_clean
    for partition in range(3):
        [log] = tmp_path.glob(f"t-{partition}/*.log")
        expected = log.read_bytes()
        # Base offset and leader epoch are the broker's. All else is the log's.
        sent = broker.raw["t", partition]
        assert len(sent) == len(CODECS)
        for data in sent:
            own, expected = expected[: len(data)], expected[len(data) :]
            assert data[:8] == bytes(8)
            assert data[8:12] + data[16:] == own[8:12] + own[16:]
            assert data[12:16] == b"\xff" * 4
        assert expected == b""
    # Two for batches, and one for everything else.
    assert broker.connections == 3


@pytest.mark.parametrize("codec", CODECS)
def test_a_new_producer_gives_the_crc_of_the_new_bytes(codec: Any) -> None:
    one = batch(0, 50, compression=codec, producer_id=4, producer_epoch=1, base_sequence=9)
    data = bytearray(records.encode([one]))
    set_header(memoryview(data), (1 << 40, 300, 2**31 - 7))
    [found] = records.decode(data)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (1 << 40, 300, 2**31 - 7)
    assert values([found]) == values([one])
    # A batch that was damaged must not look sound afterwards.
    broken = bytearray(records.encode([one]))
    broken[-1] ^= 1
    set_header(memoryview(broken), (5, 0, 0))
    fatal = records.check(broken).fatal
    assert fatal is not None
    assert fatal.code == "crc-mismatch"


@pytest.mark.parametrize("versions", [(3, 3), (3, 8), (9, 9), (3, 13)])
def test_every_form_of_produce_request_is_written(tmp_path: Path, versions: tuple[int, int]) -> None:
    report, broker = replayed(
        tmp_path,
        [*plain(3), batch(30, 400)],
        FakeBroker({"t": 1}, versions={**OFFERED, "Produce": versions, "ApiVersions": (0, 2)}),
    )
    assert report.is_clean
    assert values(broker.batches["t", 0]) == values([*plain(3), batch(30, 400)])


@pytest.mark.parametrize("tls", [False, True])
def test_a_socket_that_takes_little_at_a_time_gets_every_byte(
    tmp_path: Path, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [batch(10_000 * i, 9000) for i in range(4)]
    calls = 0

    def transmit(link: Link) -> int:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise BlockingIOError
        assert link._socket is not None
        return link._socket.send(link._out[0][:7001])

    monkeypatch.setattr(Link, "_transmit", transmit)
    context, security = None, Security()
    if tls:
        made = certificate(tmp_path)
        context, ca = made.context(), made.cert
        security = Security(tls=True, ca=str(ca))
    slow = FakeBroker({"t": 1}, receive_bytes=20_011, context=context)
    report, broker = replayed(tmp_path, large, slow, pipelined=True, security=security)
    assert report.is_clean
    assert values(broker.batches["t", 0]) == values(large)
    assert calls > 2 * report.sent.bytes / 7001


@pytest.mark.full
def test_many_batches_fill_a_connection(tmp_path: Path) -> None:
    large = [batch(20_000 * i, 20_000) for i in range(20)]
    report, broker = replayed(tmp_path, large, FakeBroker({"t": 1}, receive_bytes=3001), pipelined=True, in_flight=50)
    assert report.is_clean
    assert values(broker.batches["t", 0]) == values(large)


# ------------------------------------------------------------------------------------------------- what is not sent


def test_bad_bytes_are_counted_and_what_follows_is_sent(tmp_path: Path) -> None:
    good = [records.encode([one]) for one in plain(6)]
    flipped = bytearray(good[1])
    flipped[-1] ^= 4
    unknown = good[3][:16] + b"\x09" + good[3][17:]
    write_log(tmp_path, "t-0", [good[0], bytes(flipped), good[2], unknown, good[4], good[3][:-9]])
    write_log(tmp_path, "t-0", [good[5]], base_offset=50)
    with FakeBroker({"t": 1}) as broker:
        for convert in (False, True):
            broker.batches.clear()
            report = play(tmp_path, broker, convert=convert)
            refused = {reason: count.batches for reason, count in report.topics["t"].refused.items()}
            assert refused == {"crc-mismatch": 1, "magic-unknown": 1, "file-truncated": 1}
            assert not report.is_clean
            assert values(broker.batches["t", 0]) == values([plain()[i] for i in (0, 2, 4, 5)])


@pytest.mark.parametrize("convert", [False, True])
def test_a_wrong_length_costs_its_own_batch_alone(tmp_path: Path, convert: bool) -> None:
    log = [*plain(3), *(old(30 + i, 1, magic=i % 2) for i in range(9)), *plain(3)]
    for number, bit in ((1, 7), (1, 11), (4, 5), (4, 3), (5, 9), (12, 7)):
        pieces = [records.encode([one]) for one in log]
        bad = bytearray(pieces[number])
        bad[11 - bit // 8] ^= 1 << bit % 8
        pieces[number] = bytes(bad)
        [part] = find_parts(write_log(tmp_path, "t-0", pieces).parent)
        found = list(steps(part.segments, convert=convert))
        assert sum(step.log_bytes for step in found) == part.size
        left_out = {number} if convert else {number, *range(3, 12)}
        reasons = [step.reason for step in found if isinstance(step, Left)]
        assert (len(reasons), "batch-length-wrong" in reasons) == (len(left_out), bit == 11)
        sent = sum(step.records for step in found if isinstance(step, Batch))
        assert sent == sum(len(one.records) for i, one in enumerate(log) if i not in left_out)


def test_conversion_joins_old_messages_and_keeps_their_order(tmp_path: Path) -> None:
    log = [old(i, 1, magic=i % 3 // 2) for i in range(300)] + [batch(300)] + [old(310, 5, magic=1, compression="gzip")]
    report, broker = replayed(tmp_path, log, convert=True)
    assert report.is_clean
    assert values(broker.batches["t", 0]) == values(log)
    assert report.topics["t"].converted.records == 305
    parts = find_parts(tmp_path)
    assert sum(step.log_bytes for step in steps(parts[0].segments, convert=True)) == parts[0].size
    left = [step for step in steps(parts[0].segments) if isinstance(step, Left)]
    assert sum(step.records for step in left) == 305


def test_a_batch_larger_than_a_window_is_sent(tmp_path: Path) -> None:
    value = bytes(6 << 20)
    large = RecordBatch(0, 0, [records.Record(0, 1, None, value)])
    write_log(tmp_path, "t-0", [plain(1)[0], large, plain(1)[0]])
    found = [step for step in steps(find_parts(tmp_path)[0].segments) if isinstance(step, Batch)]
    assert [len(step.data) > len(value) for step in found] == [False, True, False]


# ------------------------------------------------------------------------------------------------- errors


def once(number: int, told: int | str) -> Callable[[str, int, int], int | str | None]:
    return lambda topic, partition, count: told if count == number else None


@pytest.mark.parametrize("told", [NOT_LEADER, 7, HANG_UP, LATE_HANG_UP, SILENCE])
@pytest.mark.parametrize("log", [plain(), idempotent()], ids=["plain", "idempotent"])
def test_a_batch_is_sent_again_and_the_order_stays(tmp_path: Path, log: list[RecordBatch], told: int | str) -> None:
    report, broker = replayed(tmp_path, log, FakeBroker({"t": 1}, trouble=once(4, told)), timeout_ms=700)
    topic = report.topics["t"]
    assert (topic.refused, topic.failed, report.failure) == ({}, {}, None)
    assert sum(topic.retried.values()) >= 1
    assert report.reconnects == (told in (HANG_UP, LATE_HANG_UP, SILENCE))
    got = values(broker.batches["t", 0])
    if log[0].producer_id >= 0:
        assert got == values(log)
        assert report.is_clean
        sequences = [one.base_sequence for one in broker.batches["t", 0]]
        assert sequences == [10 * i for i in range(BATCHES)]
    else:
        # Nobody knows whether a batch that was not answered has arrived.
        twice = told == LATE_HANG_UP
        assert got == values(log[:5] + log[4:] if twice else log)
        assert topic.repeated == (0 if told == NOT_LEADER else 10)
        assert report.is_clean == (told == NOT_LEADER)
    assert topic.reordered == 0
    assert topic.sent.records == 10 * BATCHES


def test_a_batch_is_sent_again_before_the_next_one_is_due(tmp_path: Path) -> None:
    # The second batch is due after an hour, and the end is after two seconds.
    broker = FakeBroker({"t": 1}, trouble=once(0, NOT_LEADER))
    report, _ = replayed(tmp_path, plain(2), broker, rate=Rate(records_per_s=1 / 360), duration_s=2)
    assert (report.topics["t"].failed, report.sent.batches) == ({}, 1)
    assert any(line.startswith("target 0.0028/s, reached ") for line in report.lines(""))


@pytest.mark.parametrize("pipelined", [False, True])
def test_nothing_overtakes_the_first_batch_of_a_producer(tmp_path: Path, pipelined: bool) -> None:
    # A broker takes any sequence from a producer that it does not know.
    report, broker = replayed(
        tmp_path, idempotent(), FakeBroker({"t": 1}, trouble=once(0, NOT_LEADER)), pipelined=pipelined
    )
    assert report.is_clean
    assert values(broker.batches["t", 0]) == values(idempotent())


def test_a_pipeline_tells_what_came_out_of_order(tmp_path: Path) -> None:
    report, broker = replayed(tmp_path, plain(), FakeBroker({"t": 1}, trouble=once(0, NOT_LEADER)), pipelined=True)
    got = values(broker.batches["t", 0])
    assert got != values(plain())
    assert sorted(got, key=lambda one: one.timestamp) == values(plain())
    assert report.topics["t"].reordered == 10
    assert not report.is_clean


@pytest.mark.parametrize("log", [plain(), idempotent()], ids=["plain", "idempotent"])
def test_an_error_that_stays_is_counted_by_name_and_partition(tmp_path: Path, log: list[RecordBatch]) -> None:
    for partition in range(2):
        write_log(tmp_path, f"t-{partition}", log)
    with FakeBroker({"t": 2}, trouble=lambda topic, partition, n: TOO_LARGE if (partition, n) == (1, 3) else None) as b:
        report = play(tmp_path, b)
    failed = {place: (count.batches, count.records) for place, count in report.topics["t"].failed.items()}
    assert failed == {(1, "MESSAGE_TOO_LARGE"): (1, 10)}
    assert not report.is_clean
    assert values(b.batches["t", 0]) == values(log)
    # The sequences of what follows close the gap.
    assert values(b.batches["t", 1]) == values(log[:3] + log[4:])


def test_retries_are_bounded(tmp_path: Path) -> None:
    report, _ = replayed(tmp_path, plain(2), FakeBroker({"t": 1}, trouble=lambda *_: NOT_LEADER), retries=2)
    assert report.topics["t"].retried == {"NOT_LEADER_OR_FOLLOWER": 4}
    [count] = report.topics["t"].failed.values()
    assert count.batches == 2


def test_connections_are_opened_again_a_bounded_number_of_times(tmp_path: Path) -> None:
    broker = FakeBroker({"t": 1}, trouble=lambda topic, partition, n: HANG_UP if n >= 2 else None)
    report, _ = replayed(tmp_path, plain(), broker, reconnects=2)
    assert report.failure is not None
    assert "--reconnects" in report.failure
    assert report.reconnects == 2
    assert report.topics["t"].sent.batches == 2


def test_without_acknowledgements_everything_arrives_or_the_replay_fails(tmp_path: Path) -> None:
    write_log(tmp_path, "t-0", plain(200))
    with FakeBroker({"t": 1}) as broker:
        report = play(tmp_path, broker, acks=0)
        # The last answer came after the last batch.
        assert values(broker.batches["t", 0]) == values(plain(200))
    assert report.is_clean
    assert report.topics["t"].latency_ms() == {}
    report, _ = replayed(tmp_path, plain(200), FakeBroker({"t": 1}, trouble=once(5, HANG_UP)), acks=0)
    assert report.failure is not None
    assert not report.is_clean


def test_a_throttled_replay_waits_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(delay: float) -> None:
        waits.append(delay)
        await real(delay)

    real = asyncio.sleep
    monkeypatch.setattr("kfuzz.client.link.asyncio.sleep", sleep)
    report, _ = replayed(tmp_path, plain(3), FakeBroker({"t": 1}, throttle_ms=60))
    assert report.is_clean
    assert (report.throttled_ms, report.sent.batches) == (180, 3)
    # Before the second batch, and before the third. Others wait longer, for other things.
    assert len([delay for delay in waits if delay <= 0.06]) >= 2


# ------------------------------------------------------------------------------------------------- transactions


def transactional(first: int, producer_id: int, sequence: int) -> RecordBatch:
    return batch(first, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


def in_transactions() -> Iterator[RecordBatch]:
    yield transactional(0, 5, 0)
    yield transactional(10, 6, 0)
    yield transactional(20, 5, 10)
    yield marker(30, 6, 0, commit=False)
    yield marker(31, 5, 0, commit=True)
    yield transactional(32, 5, 20)
    yield marker(42, 8, 0, commit=True)
    yield transactional(43, 6, 10)
    yield marker(53, 6, 0, commit=True)


def ends(broker: FakeBroker) -> list[tuple[str, str]]:
    ended = [event for event in broker.events if event[0] in ("begin", "commit", "abort")]
    return [(what, name.rsplit("-", 1)[1]) for what, name in ended]


def test_transactions_begin_and_end_as_in_the_log(tmp_path: Path) -> None:
    report, broker = replayed(tmp_path, list(in_transactions()))
    assert ends(broker) == [
        ("begin", "5"),
        ("begin", "6"),
        ("abort", "6"),
        ("commit", "5"),
        ("begin", "5"),
        ("begin", "6"),
        ("commit", "6"),
    ]
    assert report.topics["t"].transactions == {"committed": 2, "aborted": 1, "unmatched": 1, "open": 1}
    assert values(broker.batches["t", 0]) == values(list(in_transactions()))
    assert report.is_clean


def test_a_transaction_that_the_bound_cuts_is_aborted(tmp_path: Path) -> None:
    report, broker = replayed(tmp_path, list(in_transactions()), records=25)
    assert report.sent.records == 20
    assert ends(broker)[2:] == [("abort", "5"), ("abort", "6")]
    assert report.topics["t"].transactions == {"cut": 2}


def test_a_fenced_producer_loses_its_transaction_and_continues_with_the_next(tmp_path: Path) -> None:
    log = [transactional(0, 5, 0), transactional(10, 5, 10), transactional(20, 5, 20), marker(30, 5, 0, commit=True)]
    log += [transactional(31, 5, 30), marker(41, 5, 0, commit=True)]
    report, broker = replayed(tmp_path, log, FakeBroker({"t": 1}, trouble=once(1, 90)))
    failed = {error: count.batches for (_, error), count in report.topics["t"].failed.items()}
    assert failed == {"PRODUCER_FENCED": 1, "TRANSACTION_LOST": 1}
    assert ends(broker) == [("begin", "5"), ("abort", "5"), ("begin", "5"), ("commit", "5")]
    assert report.topics["t"].transactions == {"failed": 1, "committed": 1}


# ------------------------------------------------------------------------------------------------- pace and bounds


def paced(monkeypatch: pytest.MonkeyPatch, settings: Settings, batches: list[tuple[int, int]]) -> list[float | None]:
    """When batches of so many records, with these timestamps, are due after the start, if nothing takes time."""
    monkeypatch.setattr("kfuzz.replay.pace.time.monotonic", lambda: 100.0)
    pace = Pace(Bounds(settings, settings.first_timestamp or 0))
    made = [Batch(memoryview(bytes(1000)), count, -1, False, timestamp, 0) for count, timestamp in batches]
    return [due if (due := pace._due(one)) is None else round(due - 100.0, 6) for one in made]


def test_a_rate_and_a_speed_say_when_a_batch_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address("h", 1)
    three = [(10, 5000), (40, 6000), (1, 5500)]
    assert paced(monkeypatch, Settings(address, rate=parse_rate("20")), three) == [0, 0.5, 2.5]
    assert paced(monkeypatch, Settings(address, rate=parse_rate("2kB/s")), three) == [0, 0.5, 1]
    by_speed = Settings(address, speed=parse_speed("10x"), first_timestamp=5000)
    assert paced(monkeypatch, by_speed, [*three, (1, -1)]) == [0, 0.1, 0.05, None]
    assert paced(monkeypatch, Settings(address), three) == [None, None, None]


def test_words_for_rates_speeds_and_times() -> None:
    assert parse_rate("50000") == parse_rate("50000/s") == parse_rate("50k/s") == Rate(records_per_s=50000)
    assert parse_rate("20MB/s") == parse_rate("20 MB") == Rate(bytes_per_s=20_000_000)
    assert (parse_duration("90"), parse_duration("1.5m"), parse_duration("200ms")) == (90, 90, 0.2)
    for parse, word in [(parse_rate, "fast"), (parse_rate, "0"), (parse_speed, "x"), (parse_duration, "5w")]:
        with pytest.raises(UsageError, match=f"'{word}' is not a"):
            parse(word)


@pytest.mark.parametrize("limit", [0, 5, 35, 40, 1000])
def test_the_bound_on_records_is_never_passed(tmp_path: Path, limit: int) -> None:
    for partition in range(3):
        write_log(tmp_path, f"t-{partition}", plain())
    with FakeBroker({"t": 3}) as broker:
        report = play(tmp_path, broker, records=limit)
    assert report.sent.records == min(limit // 10 * 10, 30 * BATCHES)
    assert sum(len(values(one)) for one in broker.batches.values()) == report.sent.records
    # Nothing fits.
    assert report.is_clean == (limit != 5)
    assert str(report.why).startswith("the first batch has 10 records, more than --records allows") == (limit == 5)


def test_the_bound_on_time_ends_a_slow_replay(tmp_path: Path) -> None:
    # The second batch is due after an hour.
    report, _ = replayed(tmp_path, plain(), rate=Rate(records_per_s=1 / 360), duration_s=0.2)
    assert report.sent.batches == 1
    assert report.is_clean


def test_a_rate_changes_nothing_but_the_times(tmp_path: Path) -> None:
    log = [*plain(2), *in_transactions()]
    at_once, first = replayed(tmp_path / "a", log)
    paced, second = replayed(tmp_path / "b", log, rate=Rate(records_per_s=200))
    assert second.batches == first.batches
    assert ends(second) == ends(first)
    assert paced.topics["t"].transactions == at_once.topics["t"].transactions != {}
    assert paced.sent == at_once.sent
    assert paced.is_clean


@pytest.mark.parametrize("log", [plain, idempotent])
def test_a_batch_that_is_due_waits_for_an_answer_that_may_be_an_error(
    tmp_path: Path, log: Callable[[], list[RecordBatch]]
) -> None:
    def first_answer(topic: str, partition: int, number: int) -> int | None:
        # Several batches become due meanwhile.
        time.sleep(0.2 if number == 0 else 0)
        return NOT_LEADER if number == 0 else None

    report, broker = replayed(tmp_path, log(), FakeBroker({"t": 1}, trouble=first_answer), rate=Rate(1000))
    assert values(broker.batches["t", 0]) == values(log())
    assert report.is_clean


def test_a_log_that_gets_lost_between_two_sends_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def require_whole(data: memoryview) -> None:
        asked.append(data)
        if len(asked) == 3:
            raise UsageError("the log is cut")

    monkeypatch.setattr("kfuzz.replay.sending.require_whole", require_whole)
    report, _ = replayed(tmp_path, plain(), rate=Rate(records_per_s=1000))
    assert (report.failure, report.sent.batches) == ("the log is cut", 2)


def test_a_batch_with_an_old_timestamp_is_not_late(tmp_path: Path) -> None:
    write_log(
        tmp_path, "t-0", [RecordBatch(i, i, [records.Record(i, FIRST_MS - i * 2 * 10**9, None, b"x")]) for i in (0, 1)]
    )
    with FakeBroker({"t": 1}) as broker:
        report = play(tmp_path, broker, speed=10.0**6)
    assert report.sent.batches == 2
    assert report.is_clean


def test_the_speed_begins_at_the_lowest_timestamp(tmp_path: Path) -> None:
    write_log(tmp_path, "t-0", plain(2))
    late = [RecordBatch(0, 0, [records.Record(0, FIRST_MS + 3_600_000, None, b"late")])]
    write_log(tmp_path, "t-1", late)
    with FakeBroker({"t": 2}) as broker:
        report = play(tmp_path, broker, speed=1.0, duration_s=0.3)
    assert report.sent.batches == 2
    assert broker.batches["t", 1] == []


# ------------------------------------------------------------------------------------------------- reports


def test_reports_of_parts_add_up_to_the_report_of_the_whole(tmp_path: Path) -> None:
    for partition in range(2):
        write_log(tmp_path, f"t-{partition}", [*plain(), old(0, 1, magic=0), *in_transactions()])
    parts = find_parts(tmp_path)
    with FakeBroker({"t": 2}, trouble=lambda topic, partition, n: (TOO_LARGE, NOT_LEADER, None)[min(n, 2)]) as broker:
        whole = play(tmp_path, broker)
    total = Report()
    for part in parts:
        with FakeBroker({"t": 2}, trouble=lambda topic, partition, n: (TOO_LARGE, NOT_LEADER, None)[min(n, 2)]) as one:
            report = replay([part], at(one))
        total.add(pickle.loads(pickle.dumps(report)))
    assert total.topics["t"].latency.get_total_count() == whole.topics["t"].latency.get_total_count() == 40 - 8
    ours, theirs = total.to_json(), whole.to_json()
    for report in (ours, theirs):
        for name in ("seconds", "records_per_s", "bytes_per_s", "reached"):
            del report[name]
        for topic in report["topics"].values():
            assert topic.pop("latency_ms").keys() == {"p50", "p90", "p99", "p99.9", "max"}
    assert ours == theirs
    assert ours["topics"]["t"]["failed"][0]["error"] == "MESSAGE_TOO_LARGE"


# ------------------------------------------------------------------------------------------------- the command


def run(*words: str | Path) -> tuple[int, str]:
    done = kfuzz("corpus", "replay", *words)
    return done.returncode, done.stdout + done.stderr


def test_the_command_reports_and_its_exit_code_says_whether_all_was_sent(tmp_path: Path) -> None:
    write_log(tmp_path, "t-0", plain())
    with FakeBroker() as broker:
        place = f"127.0.0.1:{broker.port}"
        code, text = run(tmp_path, "--bootstrap", place, "--create", "--topic", "t=copy")
        assert code == 0, text
        assert f"{tmp_path} to {place}: 12 batches, 120 records" in text
        assert "copy: 12 batches" in text
        assert broker.events[0] == ("create", "copy", 1)
        write_log(tmp_path, "old-0", [old(0, 1, magic=0)])
        code, text = run(tmp_path, "--bootstrap", place, "--create", "--json")
        assert code == 1
        assert json.loads(text)["topics"]["old"]["refused"]["magic-not-produced"]["records"] == 1
        assert run(tmp_path, "--bootstrap", place, "--convert")[0] == 0


@pytest.mark.full
def test_the_command_of_the_page_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [shown, *_] = [one for one in commands() if one.page == "docs/replay.md"]
    assert shown.output
    monkeypatch.chdir(tmp_path)
    generate(load(ROOT / "spark_jobs" / "workloads" / "demo.toml").resized(64 << 20), tmp_path / "out" / "corpus")
    with FakeBroker(trouble=once(0, NOT_LEADER)) as broker:
        place = f"127.0.0.1:{broker.port}"
        done = kfuzz(*shown.text.replace("127.0.0.1:9092", place).split()[1:])
    assert shows(shown.output, done.stdout.replace(place, "127.0.0.1:9092")), done.stdout
    assert done.returncode == 0


def test_wrong_use_gives_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    write_log(tmp_path, "t-0", plain())
    write_log(tmp_path, "t-1", plain())
    both = tmp_path / "both"
    for name in ("a-0", "b-0", "__consumer_offsets-0"):
        write_log(both, name, plain())
    with FakeBroker({"small": 1, "none": 0}, login=("me", "right")) as broker:
        place = f"127.0.0.1:{broker.port}"
        free = FakeBroker()
        with free:
            closed = f"127.0.0.1:{free.port}"
        for words, sentence in [
            ((tmp_path, "--bootstrap", place), "has no topic t; create it, or add --create"),
            ((tmp_path, "--bootstrap", place, "--topic", "t=small"), "has 1 partition, but needs 2; add"),
            ((tmp_path, "--bootstrap", place, "--topic", "t=none"), "has 0 partitions, but needs 2; add"),
            ((tmp_path, "--bootstrap", place, "--topic", "x=small"), "there is no topic x"),
            ((tmp_path, "--bootstrap", place, "--topic", "t"), "give A=B"),
            ((both, "--bootstrap", place, "--topic", "a=b"), "a and b would both go to b"),
            ((both, "--bootstrap", place, "--create", "--topics", "__*"), "lets no client write to __consumer_offsets"),
            ((tmp_path, "--bootstrap", closed), "cannot be reached"),
            ((tmp_path, "--bootstrap", "nowhere"), "HOST:PORT"),
            ((tmp_path, "--bootstrap", place, "--rate", "fast"), "is not a rate"),
            ((tmp_path, "--bootstrap", place, "--rate", "1", "--speed", "1"), "exclude each other"),
            ((tmp_path / "none", "--bootstrap", place), "does not exist"),
            ((tmp_path, "--bootstrap", place, "--user", "me"), "refuses the user me"),
        ]:
            code, text = run(*words)
            assert code == 2, text
            assert sentence in text
            assert "Traceback" not in text


def test_sasl_plain_logs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, "t-0", plain())
    monkeypatch.setenv("KFUZZ_PASSWORD", "right")
    with FakeBroker({"t": 1}, login=("me", "right")) as broker:
        assert run(tmp_path, "--bootstrap", f"127.0.0.1:{broker.port}", "--user", "me")[0] == 0
        assert broker.asked["SaslAuthenticate"] >= 2
    with FakeBroker({"t": 1}) as broker:
        code, text = run(tmp_path, "--bootstrap", f"127.0.0.1:{broker.port}", "--user", "me")
    assert code == 2
    assert "does not offer SASL/PLAIN" in text


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_an_interrupt_ends_with_the_report_so_far(tmp_path: Path, number: int) -> None:
    write_log(tmp_path, "t-0", [*list(in_transactions())[:3], *(batch(100 + 10 * i) for i in range(50))])
    with FakeBroker({"t": 1}) as broker:
        words = ["corpus", "replay", tmp_path, "--bootstrap", f"127.0.0.1:{broker.port}", "--rate", "30", "--json"]
        process = start([*KFUZZ, *words])
        out, errors = interrupt_when(process, lambda: len(broker.batches["t", 0]) >= 4, within_s=60, number=number)
    assert process.returncode == 128 + number, errors
    report = json.loads(out)
    assert report["interrupted"]
    assert report["sent"]["batches"] == len(broker.batches["t", 0]) < 53
    assert report["topics"]["t"]["transactions"] == {"cut": 2}
    assert "Traceback" not in errors


def test_a_segment_outside_of_a_partition_folder_is_refused(tmp_path: Path) -> None:
    path = write_log(tmp_path, "t-0", plain())
    alone = shutil.copy(path, tmp_path / "alone.log")
    with pytest.raises(UsageError, match="is in no partition folder"):
        find_parts(alone)
    assert find_parts(path) == [Part("t", 0, find_parts(tmp_path)[0].segments)]


def test_the_second_interrupt_is_left_to_python(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    replayed(tmp_path, plain())
    assert signal.getsignal(signal.SIGINT) is before
