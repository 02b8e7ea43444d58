"""A real broker loads Kafka's own topics as kfuzz makes them, ignores nothing, and says of them what the workload says.

Each test prints the time that loading took. docs/corpora.md has these times.
"""

from __future__ import annotations

import asyncio
import json
import re
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
from kfuzz.corpora.workload import Workload

pytestmark = [pytest.mark.java, pytest.mark.full]

WAIT_S = 120
NOISE = re.compile(r" WARN | ERROR |[Uu]nknown|Ignoring|[Ee]xception")
USUAL = re.compile("log.cleaner.enable|Performing controller activation")


def loaded(tmp_path: Path, made: Workload, settings: dict[str, str], done: str) -> tuple[Broker, float]:
    """A broker, to be left, that has loaded each partition of the topic; and the seconds since its start."""
    generate(made, tmp_path / "corpus")
    broker = Broker(settings, log_levels={"org.apache.kafka.coordinator": "info", "kafka.coordinator": "info"})
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


def noise(broker: Broker) -> set[str]:
    """The lines of the broker's log that are wrong, without numbers, and without what it always says."""
    lines = [line for line in broker.log.decode().splitlines() if not USUAL.search(line)]
    return {re.sub("[0-9]+", "#", line) for line in lines if NOISE.search(line)}


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
