"""Loads: batches are sent when they are due, latency counts from then, and the bounds of the settings end a load."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz
from docs.pages import ROOT, commands, shows
from replay.fake_broker import FakeBroker
from replay.hand_made import batch, write_log

from kfuzz import cluster, records
from kfuzz.client.address import Access
from kfuzz.client.cluster import Cluster
from kfuzz.client.protocol import BrokerError, ProduceForm
from kfuzz.corpora import generated
from kfuzz.corpora.workload import Workload, parse
from kfuzz.errors import UsageError
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import encode
from kfuzz.records import RecordBatch
from kfuzz.replay import Address, Load, Rate, Report, Settings, find_parts, replay, run_load
from kfuzz.replay.batches import Batch
from kfuzz.replay.made import load_sources
from kfuzz.replay.report import new_histogram

WORKLOAD = """
size = "300KiB"
segment_bytes = "64KiB"
seed = 3

[[topics]]
name = "t"
partitions = 2
batches.records = 10
timestamps.jitter_ms = 50
"""
OTHERS = """
adversarial = { share = 0.1, vectors = "records/v2/count/*" }
legacy = { magic0 = 0.1, magic1 = 0.1 }
timestamps.type = "log-append"
compaction.segments = 0
"""


def workload(more: str = "") -> Workload:
    return parse(WORKLOAD + more, "w")


def at(place: str | FakeBroker, **settings: Any) -> Settings:
    address = f"127.0.0.1:{place.port}" if isinstance(place, FakeBroker) else place
    return Settings(Address.parse(address), **{"timeout_ms": 20_000, "restamp": True, **settings})


def loaded(broker: FakeBroker, more: str = "", **settings: Any) -> Report:
    with broker:
        return run_load(Load(workload(more)), at(broker, **settings))


# ------------------------------------------------------------------------------------------------- bytes


def contents(batches: list[RecordBatch]) -> list[Any]:
    return [
        (one.key, one.value, (one.timestamp or 0) - (found.max_timestamp or 0))
        for found in batches
        for one in found.records
    ]


def test_a_load_sends_the_bytes_of_the_corpus_and_then_more_with_the_time_of_sending() -> None:
    broker = FakeBroker({"t": 2})
    began = round(time.time() * 1000)
    report = loaded(broker, records=4000, rate=Rate(records_per_s=20_000))
    assert report.is_clean
    assert 3990 < report.sent.records <= 4000
    for partition in range(2):
        rows = [row for one in generated.read(workload(), columns=["partition", "batch"]) for row in one.to_pylist()]
        made = [records.decode(row["batch"])[0] for row in rows if row["partition"] == partition]
        got = broker.batches["t", partition]
        # Only the last segment of a corpus is another one when it grows.
        assert len(got) > len(made) > 60
        assert contents(got)[:450] == contents(made)[:450]
        assert all(one.producer_id > 1000 for one in got)
        assert all(began <= one.max_timestamp <= time.time() * 1000 for one in got)


def test_only_what_a_producer_can_send_is_made_of_a_workload() -> None:
    broker = FakeBroker({"copy": 2})
    with broker:
        settings = at(broker, records=300, acks=1, names={"t": "copy"})
        report = run_load(Load(workload(OTHERS)), settings)
    assert report.is_clean
    assert report.topics["copy"].sent.records == 300
    # With acks 1, no producer is idempotent.
    assert {one.producer_id for held in broker.batches.values() for one in held} == {-1}


def test_a_load_of_a_part_has_its_part_of_the_partitions_and_of_the_rate() -> None:
    settings = at("h:1", rate=Rate(records_per_s=1000))
    parts = [load_sources(Load(workload(), part=part, parts=2), settings)[0] for part in range(2)]
    assert [[(one.partition, one.share) for one in part] for part in parts] == [[(0, 0.5)], [(1, 0.5)]]


# ------------------------------------------------------------------------------------------------- when


def dues(count: int, records_per_s: float | None = 2000) -> list[float]:
    """Gaps of partition 0 that are 10 ms in the mean."""
    load = Load(workload(), arrivals="poisson")
    [first, *_], _, _ = load_sources(load, at("h:1", rate=Rate(records_per_s)))
    assert first.gap is not None
    return [first.gap(0.01) for _ in range(count)]


def test_poisson_arrivals_are_drawn_by_the_seed() -> None:
    gaps = dues(5000)
    assert gaps == dues(5000)
    # Mean and standard deviation of an exponential distribution are the same.
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.01, rel=0.1)
    assert (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 == pytest.approx(mean, rel=0.1)
    with pytest.raises(UsageError, match="add --rate"):
        dues(1, None)


def test_arrivals_of_the_workload_follow_its_bursts_at_its_own_rate() -> None:
    bursts = "timestamps = { records_per_second = 100, burst_every_s = 10, burst_length_s = 5, burst_factor = 4 }"
    own = WORKLOAD.replace("timestamps.jitter_ms = 50", bursts)
    sources, _, settings = load_sources(Load(parse(own, "w"), arrivals="workload"), at("h:1"))
    assert settings.rate == Rate(records_per_s=200)
    gap = sources[0].gap
    assert gap is not None
    at_s = list(itertools.accumulate(gap(0.1) for _ in range(2000)))
    # In each 10 s, 5 s have 10 batches a second and 5 s have 40.
    assert at_s[-1] == pytest.approx(2000 / 25, abs=8)
    assert {round(b - a, 2) for a, b in itertools.pairwise(at_s)} >= {0.1, 0.03}


# ------------------------------------------------------------------------------------------------- latency


def stalls(number: int, seconds: float) -> Any:
    """A broker that does nothing for a while when one batch comes."""

    def trouble(topic: str, partition: int, count: int) -> None:
        if (partition, count) == (0, number):
            time.sleep(seconds)

    return trouble


def replayed(folder: Path, broker: FakeBroker, batches: int, rate: Rate) -> Report:
    """The report of a log with so many batches in each of both partitions."""
    for partition in range(2):
        write_log(folder, f"t-{partition}", [batch(10 * i) for i in range(batches)])
    with broker:
        return replay(find_parts(folder), at(broker, rate=rate, restamp=False))


@pytest.mark.parametrize("from_log", [False, True])
def test_the_latency_of_what_is_due_while_the_broker_stalls_counts_from_then(tmp_path: Path, from_log: bool) -> None:
    # 100 batches a second for each of both partitions; the broker does nothing for half of the second.
    broker = FakeBroker({"t": 2}, trouble=stalls(5, 0.5))
    rate = Rate(records_per_s=2000)
    report = replayed(tmp_path, broker, 100, rate) if from_log else loaded(broker, rate=rate, records=2000)
    topic = report.topics["t"]
    assert topic.sent.batches in (200, 201)
    # At least 40 batches of each partition were due in the first 0.4 s of it.
    slow = sum(one > 100_000 for second in report.by_second.values() for one in second.latencies_us)
    assert slow >= 70
    assert topic.latency_ms()["p90"] > 100
    assert sum(second.answered for second in report.by_second.values()) == topic.sent.records
    assert report.is_clean


def test_a_batch_that_is_sent_again_is_as_late_as_its_first_try() -> None:
    broker = FakeBroker({"t": 2}, trouble=lambda topic, partition, count: 6 if count < 3 else None)
    topic = loaded(broker, records=20).topics["t"]
    # Before the third try it waits for 50 and 100 ms.
    assert topic.retried["NOT_LEADER_OR_FOLLOWER"] >= 6
    assert topic.latency_ms()["max"] >= 150


@pytest.mark.parametrize("from_log", [False, True])
def test_a_rate_that_cannot_be_reached_is_named_beside_what_was_reached(tmp_path: Path, from_log: bool) -> None:
    broker = FakeBroker({"t": 2}, trouble=lambda topic, partition, count: time.sleep(0.1))
    rate = Rate(records_per_s=1_000_000)
    report = replayed(tmp_path, broker, 10, rate) if from_log else loaded(broker, rate=rate, duration_s=1.2)
    [line] = [line for line in report.lines("it") if line.startswith("target")]
    assert line.startswith("target 1,000,000/s, reached ")
    assert "; the rate was not reached: at the end, batches were " in line
    assert not report.is_clean
    assert report.sent.records == sum(len(one.records) for held in broker.batches.values() for one in held)


def test_a_log_that_is_sent_in_a_loop_ends_with_the_bound_and_one_that_is_too_short_says_so(tmp_path: Path) -> None:
    write_log(tmp_path, "t-0", [batch(10 * i) for i in range(3)])
    write_log(tmp_path, "t-1", [])
    with FakeBroker({"t": 2}) as broker:
        report = replay(find_parts(tmp_path), at(broker, loop=True, records=100, restamp=False))
        assert (report.sent.records, report.is_clean, report.short_s) == (100, True, None)
        report = replay(find_parts(tmp_path), at(broker, duration_s=60, restamp=False))
    assert report.sent.records == 30
    assert any("s of 60 s; add --loop to send it again" in line for line in report.lines("it"))


def test_a_loop_continues_the_timestamps_for_a_speed(tmp_path: Path) -> None:
    write_log(tmp_path, "t-0", [batch(10 * i) for i in range(3)])
    from kfuzz.replay.running import _walk

    [part] = find_parts(tmp_path)
    walk = _walk(part, at("h:1", loop=True))
    times = [step.timestamp for step in itertools.islice(walk, 9) if isinstance(step, Batch)]
    assert times == sorted(set(times))


# ------------------------------------------------------------------------------------------------- the command


def test_the_command_loads_a_cluster_of_which_one_address_is_down(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(WORKLOAD)
    with cluster(2) as brokers:
        brokers.topic("t", partitions=2)
        words = ["--bootstrap", f"127.0.0.1:1,{brokers.bootstrap}", "--rate", "5k", "--duration", "0.5s", "--json"]
        done = kfuzz("load", tmp_path / "w.toml", *words)
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["target"] == {"records_per_s": 5000, "bytes_per_s": None}
    assert report["sent"]["records"] > 500
    refused = kfuzz("load", tmp_path / "w.toml", "--bootstrap", "127.0.0.1:1,127.0.0.1:2", code=2)
    assert "127.0.0.1:1 cannot be reached" in refused.stderr
    assert "127.0.0.1:2 cannot be reached" in refused.stderr


@pytest.mark.full
def test_the_command_of_the_page_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    [shown, *_] = [one for one in commands() if one.page == "docs/load.md"]
    assert shown.output
    monkeypatch.chdir(ROOT)
    with FakeBroker() as broker:
        place = f"127.0.0.1:{broker.port}"
        done = kfuzz(*shown.text.replace("127.0.0.1:9092", place).replace("20s", "2s").split()[1:])
    assert shows(shown.output, done.stdout.replace(place, "127.0.0.1:9092")), done.stdout
    assert done.returncode == 0


def test_a_run_that_nobody_wants_by_second_keeps_only_histograms() -> None:
    report = loaded(FakeBroker({"t": 2}), records=100, rate=Rate(records_per_s=1000), by_second=False)
    assert not report.by_second
    assert report.topics["t"].latency.get_total_count() == report.sent.batches == 10


def test_reports_of_processes_add_up(tmp_path: Path) -> None:
    one = loaded(FakeBroker({"t": 2}), records=100, rate=Rate(records_per_s=1000))
    total = Report()
    for part in (one, one):
        total.add(pickle.loads(pickle.dumps(part)))
    assert total.target == Rate(records_per_s=2000)
    assert total.sent.records == 200
    assert sum(len(second.latencies_us) for second in total.by_second.values()) == 20
    assert replace(total, late_s=2).is_late
    # Also without a rate: a speed has none.
    assert "the rate was not reached: at the end, batches were 2.0 s late" in list(Report(late_s=2.0).lines("it"))


@pytest.mark.full
def test_processes_share_a_load_and_files_have_its_seconds(tmp_path: Path) -> None:
    from hdrh.log import HistogramLogReader

    (tmp_path / "w.toml").write_text(WORKLOAD)
    with FakeBroker() as broker:
        words = f"--bootstrap 127.0.0.1:{broker.port} --create --rate 2k --duration 1s --jobs 2".split()
        files = ["--histograms", tmp_path / "h.hlog", "--html", tmp_path / "page.html"]
        done = kfuzz("load", tmp_path / "w.toml", *words, *files, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert {partition for _, partition in broker.batches} == {0, 1}
    assert report["sent"]["batches"] == sum(len(held) for held in broker.batches.values())
    assert report["target"]["records_per_s"] == 2000
    assert sum(one["records"] for one in report["by_second"]) == report["sent"]["records"]
    counted = 0
    log = HistogramLogReader(str(tmp_path / "h.hlog"), new_histogram())
    while (histogram := log.get_next_interval_histogram()) is not None:
        counted += histogram.get_total_count()
    assert counted == report["sent"]["batches"]
    assert (tmp_path / "page.html").read_text().count("<polyline") == 4


# ------------------------------------------------------------------------------------------------- turns and ends


def test_late_partitions_get_turns_on_a_full_connection() -> None:
    broker = FakeBroker({"t": 2})
    # So many that it hardly matters which one begins a little later on a busy machine.
    report = loaded(broker, records=24_000, rate=Rate(records_per_s=10_000_000))
    counts = sorted(len(broker.batches["t", partition]) for partition in range(2))
    assert report.sent.records > 23_900
    assert counts[0] > counts[1] / 2


def test_only_an_answer_without_errors_and_waits_is_usual() -> None:
    definition, usual = catalogue().find("ProduceResponse"), {"index": 7, "baseOffset": 12345, "logStartOffset": 9}
    for version in (9, 10, 11):
        form = ProduceForm(version, "t" * 200, 7, -1, 1000, None)

        def answer(version: int = version, name: str = "t" * 200, wait_ms: int = 0, **changed: Any) -> bytes:
            responses = [{"name": name, "partitionResponses": [usual | changed]}]
            values = {"responses": responses, "throttleTimeMs": wait_ms}
            return b"\0\0\0\x05\0" + encode(definition, version, values)

        assert form.is_usual(answer())
        others = [answer(errorCode=46), answer(index=8), answer(name="u" * 200), answer(wait_ms=1)]
        others += [answer(errorMessage="no"), answer()[:-1], answer() + b"\0", b"\0\0\0\x05\x01" + answer()[5:]]
        assert not any(map(form.is_usual, others))


def test_an_error_that_stays_after_the_end_is_not_waited_for_longer_than_an_answer() -> None:
    asked = 0

    async def gone() -> Any:
        nonlocal asked
        asked += 1
        return {"errorCode": 3}

    async def ask() -> None:
        cluster = Cluster(Access(Address("h", 1), timeout_ms=1, retries=120), lambda: None)
        cluster.end()
        await cluster.until_done("t-0: Fetch", gone)

    with pytest.raises(BrokerError, match="t-0: Fetch: UNKNOWN_TOPIC_OR_PARTITION"):
        asyncio.run(ask())
    assert 1 <= asked < 3
