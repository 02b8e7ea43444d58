"""A real broker loads Kafka's own topics as kfuzz makes them, ignores nothing, and says what their workload says.

Each test prints the time that loading took. docs/corpora.md has these times.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import require_kafka_build
from own_topics import state, workload

from kfuzz.client.address import Address, Security
from kfuzz.client.link import Link
from kfuzz.conformance.broker.real import Broker, kafka_tool
from kfuzz.corpora.generation import generate
from kfuzz.corpora.installation import install, open_finished, topic_settings
from kfuzz.corpora.own import topic_name
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import Workload
from kfuzz.logs.internal_topics import TRANSACTIONS, partitions_of, transactional_ids
from kfuzz.logs.producers import Notes

pytestmark = [pytest.mark.java, pytest.mark.full]

WAIT_S = 120
LEVELS = {"org.apache.kafka.coordinator": "info", "kafka.coordinator": "info"}
NOISE = re.compile(r" WARN | ERROR |[Uu]nknown|Ignoring|[Ee]xception")
# A controller reports records that it cannot use as faults. A broker asks it for much while it is not active yet.
FAULTS = re.compile("Fault| fault|[Uu]nknown|[Uu]nsupported|Ignoring|[Ii]nvalid|[Cc]orrupt")
USUAL = re.compile("log.cleaner.enable|Performing controller activation")
FINISHED = r"Finished loading .*from ({topic}-\d+) (?:in|with)"


@contextmanager
def loaded(one: Workload, out: Path, setting: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Broker]:
    """A broker that has loaded each partition of the topic, and said nothing about mistakes."""
    require_kafka_build()
    generate(one, out)
    corpus = open_finished(out)
    [topic] = topic_settings(corpus)
    with Broker({setting: "1"}, log_levels=LEVELS) as broker:
        request = {"operation": "create-topic", "topic": topic.name, "partitions": topic.partitions}
        assert "failure" not in broker.ask({**request, "config": topic.config})
        broker.stop()
        install(corpus, broker.data)
        start = time.monotonic()
        broker.start()
        while len(set(re.findall(FINISHED.format(topic=topic.name), broker.log.decode()))) < topic.partitions:
            assert time.monotonic() < start + WAIT_S, broker.log.decode()[-2000:]
            time.sleep(0.02)
        say(capsys, f"{topic.name} with {Plan(one).records} records", start)
        assert noise(broker, NOISE) == set()
        yield broker


def say(capsys: pytest.CaptureFixture[str], what: str, start: float) -> None:
    with capsys.disabled():
        print(f"\n{what}: loaded {time.monotonic() - start:.1f} s after the start of the broker began")


def noise(broker: Broker, noise: re.Pattern[str]) -> set[str]:
    """The lines of the broker's log about mistakes, without numbers, and without those that it always has."""
    lines = [line for line in broker.log.decode().splitlines() if not USUAL.search(line)]
    return {re.sub("[0-9]+", "#", line) for line in lines if noise.search(line)}


def call(broker: Broker, api: str, values: dict[str, Any]) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        link = Link(Address("127.0.0.1", broker.port), Security(), in_flight=1, timeout_ms=60_000)
        await link.open()
        answer = dict(await link.call(api, values))
        link.close()
        return answer

    return asyncio.run(ask())


def test_a_group_coordinator_loads_a_thousand_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = workload("consumer-offsets", 50, start="now-1m", groups=1000, topics=3, partitions=4, gone_share=0.1)
    with loaded(one, tmp_path, "offsets.topic.replication.factor", capsys) as broker:
        groups = call(broker, "ListGroups", {})["groups"]
        found = state("groups", tmp_path)
        ours = {one["group"]: (one["type"], one["state"]) for one in found["groups"]}
        assert {one["groupId"]: (one["groupType"], one["groupState"]) for one in groups} == ours
        asked = [{"groupId": one, "memberId": None, "memberEpoch": -1, "topics": None} for one in ours]
        answered = call(broker, "OffsetFetch", {"groups": asked, "requireStable": False})["groups"]
    theirs = {
        (group["groupId"], topic["name"], one["partitionIndex"]): one["committedOffset"]
        for group in answered
        for topic in group["topics"]
        for one in topic["partitions"]
    }
    assert theirs == {(one["group"], one["topic"], one["partition"]): int(one["offset"]) for one in found["offsets"]}
    assert len(theirs) == 900 * 3 * 4


@pytest.mark.nightly
def test_a_transaction_coordinator_loads_a_thousand_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    things = {"transactional_ids": 1000, "gone_share": 0.1, "open_share": 0.2}
    one = workload("transaction-state", 50, start="now-1m", **things)
    with loaded(one, tmp_path, "transaction.state.log.replication.factor", capsys) as broker:
        answer = call(broker, "ListTransactions", {})["transactionStates"]
    known, _ = transactional_ids(partitions_of(tmp_path, TRANSACTIONS, Notes()), Notes())
    theirs = {one["producerId"]: (one["transactionalId"], one["transactionState"]) for one in answer}
    assert theirs == {id: (one["transactionalId"], one["state"]) for id, one in known.items()}
    assert len(theirs) == 900


@pytest.mark.nightly
def test_a_share_coordinator_loads_a_thousand_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = workload("share-group-state", 50, start="now-1m", groups=1000, topics=2, partitions=2, gone_share=0.1)
    with loaded(one, tmp_path, "share.coordinator.state.topic.replication.factor", capsys) as broker:
        counts = re.findall(r"__share_group_state-.*Loaded (\d+) records", broker.log.decode())
    assert sum(map(int, counts)) == Plan(one).records == 1000 * 4 * (1 + 3) + 100 * 4


@pytest.mark.parametrize("has_snapshot", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_controller_loads_a_hundred_thousand_partitions(
    has_snapshot: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_kafka_build()
    things = {"brokers": 5, "topics": 112, "partitions": 1000, "gone_share": 0.1, "changes": 1}
    one = workload("cluster-metadata", 1, start="now-1m", segment_bytes=64 << 20, snapshot=has_snapshot, **things)
    generate(one, tmp_path)
    # The brokers of the corpus never answer.
    with Broker({"broker.session.timeout.ms": "600000"}, log_levels=LEVELS) as broker:
        broker.stop()
        shutil.rmtree(broker.data / "__cluster_metadata-0")
        install(open_finished(tmp_path), broker.data)
        start = time.monotonic()
        broker.start()
        say(capsys, f"{'a snapshot' if has_snapshot else 'a log'} of 101000 partitions", start)
        assert noise(broker, FAULTS) == set()
        # kfuzz's client takes answers of limited size.
        names = [{"name": topic_name(one), "topicId": bytes(16)} for one in range(112)]
        answers = [call(broker, "Metadata", {"topics": names[at : at + 16]}) for at in range(0, 112, 16)]
    theirs = {
        f"{topic['name']}-{one['partitionIndex']}": (one["leaderId"], one["leaderEpoch"], one["replicaNodes"])
        for answer in answers
        for topic in answer["topics"]
        for one in topic["partitions"]
    }
    found = state("metadata", tmp_path)["metadata"]["partitions"]
    assert theirs == {name: (one["leader"], one["leaderEpoch"], one["replicas"]) for name, one in found.items()}
    assert len(theirs) == 101_000


@pytest.mark.nightly
def test_kafkas_tool_reads_the_metadata_of_a_million_partitions(tmp_path: Path) -> None:
    require_kafka_build()
    things = {"brokers": 20, "topics": 1000, "partitions": 1000, "changes": 0, "snapshot": True}
    generate(workload("cluster-metadata", 1, segment_bytes=256 << 20, **things), tmp_path)
    for pattern in ("*.log", "*.checkpoint"):
        [path] = (tmp_path / "__cluster_metadata-0").glob(pattern)
        argv = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(path))
        said = subprocess.run(argv, capture_output=True, timeout=300, check=True).stdout
        assert said.count(b'"type":"PARTITION_RECORD"') == 1_000_000
        assert b"Could not decode" not in said
