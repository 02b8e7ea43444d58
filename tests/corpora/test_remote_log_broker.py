"""A real broker reads old records from segments that kfuzz made, by Kafka's LocalTieredStorage."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from conftest import require_kafka_build
from own_topics import workload

from kfuzz.client.address import Access, Address
from kfuzz.client.copying import Live
from kfuzz.conformance.broker.real import Broker
from kfuzz.corpora.generation import generate
from kfuzz.corpora.installation import install, open_finished

pytestmark = [pytest.mark.java, pytest.mark.full]

# The jar with LocalTieredStorage is published for some releases only.
RELEASE = "4.3.1"
JAR = f"org.apache.kafka:kafka-storage:{RELEASE}:jar:test"
PARTITIONS = 2
WAIT_S = 120
# The broker has read what is in remote storage.
READY = b"Initialized for all the 2 assigned user-partitions"
LEVELS = {"org.apache.kafka.server.log.remote.metadata.storage.ConsumerTask": "info"}


def settings(jars: Path, out: Path) -> dict[str, str]:
    """A broker whose remote storage is below ``out``."""
    metadata = "rlmm.config.remote.log.metadata.topic"
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(next(jars.glob("*.jar"))),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rsm.config.dir": str(out),
        f"{metadata}.num.partitions": "5",
        f"{metadata}.replication.factor": "1",
    }


def test_a_broker_serves_old_offsets_from_remote_segments(tmp_path: Path) -> None:
    require_kafka_build()
    jars, out, read = (tmp_path / name for name in ("jars", "corpus", "read"))
    subprocess.run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={JAR}", f"-DoutputDirectory={jars}"], check=True)
    with Broker(settings(jars, out), release=RELEASE, log_levels=LEVELS) as broker:
        config = {"remote.storage.enable": "true", "retention.ms": "-1"}
        request = {"operation": "create-topic", "topic": "topic-000000", "partitions": PARTITIONS, "config": config}
        assert "failure" not in broker.ask(request)
        id = (broker.data / "topic-000000-0/partition.metadata").read_text().split()[-1]
        broker.stop()
        shutil.rmtree(out)
        generate(workload("remote-log-metadata", 5, start="now-1m", topics=1, partitions=PARTITIONS, ids=[id]), out)
        install(open_finished(out), broker.data)
        for folder in out.glob("topic-*"):
            for path in (broker.data / folder.name).glob(f"{0:020d}.*"):
                path.unlink()
            shutil.copytree(folder, broker.data / folder.name, dirs_exist_ok=True)
        broker.start()
        start = time.monotonic()
        while READY not in broker.log:
            assert time.monotonic() < start + WAIT_S, broker.log.decode()[-2000:]
            time.sleep(0.02)
        read.mkdir()
        live = Live(Access(Address("127.0.0.1", broker.port)), 1 << 30, topics="topic-000000")
        assert live.copy(read) == []
        errors = [line for line in broker.log.decode().splitlines() if " ERROR " in line]
    for partition in range(PARTITIONS):
        name = f"topic-000000-{partition}"
        logs = [*sorted(out.glob(f"kafka-tiered-storage/{name}-*/*.log")), *out.glob(f"{name}/*.log")]
        assert len(logs) == 4
        assert b"".join(map(Path.read_bytes, sorted((read / name).glob("*.log")))) == b"".join(
            map(Path.read_bytes, logs)
        )
    assert errors == []
