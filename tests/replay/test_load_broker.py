"""Loads of a real broker that is stopped, or killed and started again: honest latencies, and nothing lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kfuzz.conformance.broker.real import Broker
from kfuzz.corpora.workload import parse
from kfuzz.replay import Address, Load, Rate, Report, Settings, run_load

pytestmark = pytest.mark.java

# A broker alone has no others for the replicas of its own topics.
ALONE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
WORKLOAD = """
[[topics]]
name = "orders"
partitions = 4
batches.records = 20
transactions = { share = 0.3, records = 100, abort_share = 0.3 }
"""


def loaded(broker: Broker, trouble: Callable[[], Any], seconds: float, **settings: Any) -> Report:
    """A load during which there is trouble after 2 s."""
    asked = Settings(
        Address("127.0.0.1", broker.port),
        create=True,
        restamp=True,
        retries=120,
        reconnects=10_000,
        rate=Rate(records_per_s=4000),
        duration_s=seconds,
        **settings,
    )
    timer = threading.Timer(2, trouble)
    timer.start()
    try:
        return run_load(Load(parse(WORKLOAD, "w")), asked)
    finally:
        timer.join()


def test_a_broker_that_does_nothing_for_a_quarter_of_the_time_shows_in_the_percentiles() -> None:
    with Broker(ALONE) as broker:
        assert broker._process is not None
        pid = broker._process.pid

        def stop() -> None:
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(2.5, os.kill, (pid, signal.SIGCONT)).start()

        report = loaded(broker, stop, 10, verify=True)
    assert report.is_clean
    latency = report.topics["orders"].latency_ms()
    assert latency["p99"] > 2000
    assert latency["p90"] > 1000


@pytest.mark.parametrize("acks", [1, -1])
def test_a_broker_that_is_killed_and_started_again_loses_nothing_and_stores_nothing_twice(acks: Any) -> None:
    with Broker(ALONE) as broker:

        def kill() -> None:
            assert broker._process is not None
            broker._process.kill()
            broker._process.wait()
            broker.start()

        report = loaded(broker, kill, 20, check_history=True, acks=acks, transactional_id=f"acks{acks}")
    assert report.failure is None
    assert report.reconnects > 0
    faults = {fault for level in report.levels.values() for fault in level.faults()}
    # Without an idempotent producer, a batch whose answer was lost is sent twice.
    assert faults <= ({"twice"} if acks == 1 else set())
    assert report.levels["read_uncommitted again"].read >= report.sent.records
    assert not report.is_late
