"""A real broker loads Kafka's own topics as kfuzz makes them, ignores nothing, and says of them what the workload says.

Each test prints the time that loading took. docs/corpora.md has these times.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz
from conftest import require_kafka_build
from own_topics import workload

from kfuzz.client.address import Address, Security
from kfuzz.client.link import Link
from kfuzz.conformance.broker.real import Broker
from kfuzz.corpora.generation import generate
from kfuzz.corpora.installation import install, open_finished, topic_settings
from kfuzz.corpora.own import topic_name
from kfuzz.corpora.workload import Workload

pytestmark = [pytest.mark.java, pytest.mark.full]

WAIT_S = 120
LEVELS = {"org.apache.kafka.coordinator": "info", "kafka.coordinator": "info"}
NOISE = re.compile(r" WARN | ERROR |[Uu]nknown|Ignoring|[Ee]xception")
USUAL = re.compile("log.cleaner.enable|Performing controller activation")
# A controller reports records that it cannot use as faults. A broker asks it for much while it is not active yet.
FAULTS = re.compile("Fault| fault|[Uu]nknown|[Uu]nsupported|Ignoring|[Ii]nvalid|[Cc]orrupt")


def loaded(tmp_path: Path, made: Workload, settings: dict[str, str], done: str) -> tuple[Broker, float]:
    """A broker, to be left, that has loaded each partition of the topic; and the seconds since its start."""
    generate(made, tmp_path / "corpus")
    broker = Broker(settings, log_levels=LEVELS)
    corpus = open_finished(tmp_path / "corpus")
    broker.__enter__()
    [topic] = topic_settings(corpus)
    request = {"operation": "create-topic", "topic": topic.name, "partitions": topic.partitions}
    assert "failure" not in broker.ask({**request, "config": topic.config})
    broker.stop()
    install(corpus, broker.data)
    start = time.monotonic()
    broker.start()
    while len(set(re.findall(done, broker.log.decode()))) < topic.partitions:
        assert time.monotonic() < start + WAIT_S, broker.log.decode()[-2000:]
        time.sleep(0.02)
    return broker, time.monotonic() - start


def noise(broker: Broker, noise: re.Pattern[str] = NOISE) -> set[str]:
    """What the broker's log says that is wrong, without numbers, and without what it always says."""
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


def state(what: str, path: Path) -> Any:
    return json.loads(kfuzz("state", what, path, "--json").stdout)


def test_a_group_coordinator_loads_a_thousand_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_kafka_build()
    made = workload("consumer-offsets", 50, start="now-1m", groups=1000, topics=3, partitions=4, gone_share=0.1)
    done = r"Finished loading of metadata from (__consumer_offsets-\d+) with epoch"
    broker, seconds = loaded(tmp_path, made, {"offsets.topic.replication.factor": "1"}, done)
    try:
        assert noise(broker) == set()
        groups = call(broker, "ListGroups", {})["groups"]
        found = state("groups", tmp_path / "corpus")
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
        mine = {(one["group"], one["topic"], one["partition"]): int(one["offset"]) for one in found["offsets"]}
        assert theirs == mine
        assert len(mine) == 900 * 3 * 4
    finally:
        broker.__exit__()
    with capsys.disabled():
        print(f"\n1,000 groups with {len(mine)} offsets: loaded {seconds:.1f} s after the broker's start")


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_controller_loads_a_hundred_thousand_partitions(
    has_snapshot: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_kafka_build()
    things = {
        "brokers": 5,
        "topics": 112,
        "partitions": 1000,
        "gone_share": 0.1,
        "changes": 1,
        "snapshot": has_snapshot,
    }
    generate(workload("cluster-metadata", 1, start="now-1m", segment_bytes=64 << 20, **things), tmp_path / "corpus")
    # The brokers of the corpus never answer.
    with Broker({"broker.session.timeout.ms": "600000"}, log_levels=LEVELS) as broker:
        broker.stop()
        shutil.rmtree(broker.data / "__cluster_metadata-0")
        install(open_finished(tmp_path / "corpus"), broker.data)
        start = time.monotonic()
        broker.start()
        seconds = time.monotonic() - start
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
    found = state("metadata", tmp_path / "corpus")["metadata"]["partitions"]
    assert theirs == {name: (one["leader"], one["leaderEpoch"], one["replicas"]) for name, one in found.items()}
    assert len(theirs) > 100_000
    with capsys.disabled():
        source = "a snapshot" if has_snapshot else "the log"
        print(f"\n{len(theirs)} partitions: a controller and a broker had loaded {source} after {seconds:.1f} s")
