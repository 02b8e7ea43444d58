"""A replay on Spark sends what one process sends, and sends nothing twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from replay.fake_broker import FakeBroker
from replay.hand_made import batch, marker, seen, write_log

from kfuzz.errors import UsageError
from kfuzz.records import RecordBatch
from kfuzz.replay import Address, Part, Rate, Settings, find_parts
from kfuzz.replay import replay as replay_here

PARTITIONS = 5


def log_of(partition: int) -> list[RecordBatch]:
    plain = [batch(10 * i) for i in range(4 * (partition + 1))]
    at = 10 * len(plain)
    of_producer = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    end = marker(at + 10, 5, 0, commit=partition % 2 == 0)
    return [*plain, batch(at, base_sequence=0, **of_producer), end, batch(at + 11, 0, last=at + 15)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    for partition in range(PARTITIONS):
        write_log(tmp_path / "log", f"t-{partition}", log_of(partition))
    return tmp_path / "log"


def test_shares_divide_partitions_and_bounds(log: Path) -> None:
    shares = pytest.importorskip("kfuzz.spark.replaying").shares
    parts = find_parts(log)
    settings = Settings(Address("h", 1), rate=Rate(records_per_s=1000), records=101, create=True)
    for tasks in (1, 2, 3, 50):
        made = shares(parts, settings, tasks)
        assert len(made) == min(tasks, PARTITIONS)
        assert sorted(place for places, _ in made for place in places) == [("t", i) for i in range(PARTITIONS)]
        assert sum(own.records for _, own in made) == 101
        assert sum(own.rate.records_per_s for _, own in made) == pytest.approx(1000)
        assert not any(own.create for _, own in made)
    numbers = [[number for _, number in places] for places, _ in shares(parts, settings, 2)]
    assert numbers == [[1, 4], [0, 2, 3]]
    assert shares([Part("t", 0, ())], settings, 4)[0][1].records == 0


@pytest.mark.full
@pytest.mark.spark
def test_tasks_send_what_one_process_sends_and_their_reports_add_up(spark: Any, log: Path) -> None:
    from kfuzz.spark.replaying import replay

    with FakeBroker() as broker:
        settings = Settings(Address("127.0.0.1", broker.port), create=True)
        report = replay(spark, log, settings, tasks=3)
    with FakeBroker({"t": PARTITIONS}) as alone:
        expected = replay_here(find_parts(log), Settings(Address("127.0.0.1", alone.port)))
    assert [event[:3] for event in broker.events if event[0] == "create"] == [("create", "t", PARTITIONS)]
    for partition in range(PARTITIONS):
        sent = [seen(record) for one in broker.batches["t", partition] for record in one.records]
        assert sent == [seen(r) for one in log_of(partition) if not one.control for r in one.records]
    ours, theirs = report.to_json(), expected.to_json()
    assert report.topics["t"].latency.get_total_count() == report.sent.batches
    for one in (ours, theirs):
        for name in ("seconds", "records_per_s", "bytes_per_s"):
            assert one.pop(name) > 0
        del one["reached"], one["topics"]["t"]["latency_ms"]
    assert ours == theirs
    assert ours["topics"]["t"]["transactions"] == {"committed": 3, "aborted": 2}
    assert ours["topics"]["t"]["refused"]["record-count-zero"]["batches"] == PARTITIONS


@pytest.mark.spark
def test_a_task_that_dies_is_not_sent_again(spark: Any, log: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from kfuzz.spark import replaying as module

    note = tmp_path / "died"
    first_attempt = module._task

    def deadly(made: Any) -> Any:
        inner = first_attempt(made)

        def task(batches: Any) -> Any:
            rows = list(batches)
            if not note.exists() and any(0 in one.column(0).to_pylist() for one in rows):
                list(inner(iter(rows)))
                note.write_text("sent, and then killed")
                os._exit(9)
            yield from inner(iter(rows))

        return task

    monkeypatch.setattr(module, "_task", deadly)
    with FakeBroker({"t": PARTITIONS}) as broker:
        report = module.replay(spark, log, Settings(Address("127.0.0.1", broker.port)), tasks=2)
    assert report.failure is not None
    assert "an earlier attempt at t-1, t-4 ended without a report" in report.failure
    assert not report.is_clean
    for partition in range(PARTITIONS):
        sent = [seen(record) for one in broker.batches["t", partition] for record in one.records]
        assert sent == [seen(r) for one in log_of(partition) if not one.control for r in one.records]


@pytest.mark.spark
def test_speculation_is_refused(spark: Any, log: Path) -> None:
    from kfuzz.spark.replaying import replay

    class Speculating:
        class conf:
            @staticmethod
            def get(name: str, default: str) -> str:
                return "true" if name == "spark.speculation" else default

    with pytest.raises(UsageError, match="would send batches twice"):
        replay(Speculating, log, Settings(Address("127.0.0.1", 1)))  # type: ignore[arg-type]


@pytest.mark.full
@pytest.mark.spark
def test_the_job_reports_and_refuses_as_the_command_does(spark: Any, log: Path, capsys: Any) -> None:
    from kfuzz.spark.jobs import replay_main

    with FakeBroker() as broker:
        words = ["--log", str(log), "--bootstrap", f"127.0.0.1:{broker.port}"]
        assert replay_main(words) == 2
        assert "has no topic t; create it, or add --create" in capsys.readouterr().err
        assert replay_main([*words, "--create", "--json", "--tasks", "2", "--records", "30", "--convert"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert 0 < report["sent"]["records"] <= 30
        assert replay_main([*words, "--tasks", "1"]) == 1
        assert "not sent: 5 batches, 0 records, 0.0 MB: record-count-zero" in capsys.readouterr().out


@pytest.mark.full
@pytest.mark.spark
def test_tasks_send_a_workload_together(spark: Any, tmp_path: Path, capsys: Any) -> None:
    from kfuzz.spark.jobs import replay_main

    workload = tmp_path / "w.toml"
    workload.write_text('[[topics]]\nname = "t"\npartitions = 3\n')
    with FakeBroker() as broker:
        words = ["--workload", str(workload), "--bootstrap", f"127.0.0.1:{broker.port}", "--create", "--json"]
        assert replay_main([*words, "--tasks", "2", "--records", "4000", "--rate", "20k"]) == 0
        report = json.loads(capsys.readouterr().out)
        # Each task ends before the batch that would be too much.
        assert 3800 <= report["sent"]["records"] <= 4000
        assert set(broker.batches) == {("t", partition) for partition in range(3)}
