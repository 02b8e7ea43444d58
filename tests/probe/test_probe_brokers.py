"""Real brokers do with every vector what vectors/expected/ says of them: Apache Kafka, and franz-go's kfake."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import require_tool

from kfuzz.conformance.broker.real import Broker
from kfuzz.conformance.judge.matrix import Column, Places
from kfuzz.conformance.protocol import testees
from kfuzz.kafka import BROKER_RELEASE
from kfuzz.probe import Address, Settings, cases_for_broker, probe
from kfuzz.vectors import default_root, load_suite

KFAKE = testees.default_root() / "kfake"
WAIT_S = 60


def judged(address: Address, name: str, glob: str) -> Column:
    done = probe(
        cases_for_broker(load_suite(glob)),
        Settings(address, timeout_ms=30_000),
        places=Places.beside(default_root()),
        name=name,
        whole=glob == "*",
    )
    assert done.ended == ""
    (column,) = done.run.testees
    assert column.notes == ()
    return column


@pytest.mark.java
@pytest.mark.full
def test_kafka_does_what_the_vectors_say() -> None:
    require_tool("java", "the broker needs it")
    require_tool("mvn", "the broker comes from Maven")
    with Broker() as broker:
        column = judged(Address("127.0.0.1", broker.port), f"broker-kafka@{BROKER_RELEASE}", "*")
        # Kafka takes its time to delete a topic, and renames its directories first.
        deadline = time.monotonic() + WAIT_S
        while left := [path.name for path in broker.data.glob("kfuzz-probe-*") if not path.name.endswith("-delete")]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
    assert column.stale == ()
    assert {key: column.cells[key].text for key in column.unexpected} == {}
    answers = {id: cell.answer for (id, _), cell in column.cells.items()}
    for vector in cases_for_broker(load_suite()):
        said, answer = vector.vector.kafka[BROKER_RELEASE], answers[vector.vector.id]
        if answer["outcome"] != "not judged":
            assert answer["error"] == said.get("error", "NONE"), vector.vector.id


@pytest.mark.parametrize("glob", ["records/v2/count/*", pytest.param("*", marks=pytest.mark.full)])
def test_kfake_does_what_its_expected_outcomes_say(glob: str) -> None:
    require_tool("go", "kfake is built with it")
    with kfake() as address:
        column = judged(address, f"broker-kfake@{pinned()}", glob)
    assert column.stale == ()
    assert {key: column.cells[key].text for key in column.unexpected} == {}
    assert column.totals()["fail"] > 0


def pinned() -> str:
    """The version of kfake in go.mod."""
    (version,) = re.findall(
        r"^require github.com/twmb/franz-go/pkg/kfake v(\S+)$", (KFAKE / "go.mod").read_text(), re.M
    )
    return str(version)


@contextmanager
def kfake() -> Iterator[Address]:
    """kfake on the loopback address. It ends with its standard input."""
    program = Path(KFAKE, "target/kfake")
    subprocess.run(["go", "build", "-o", program, "."], cwd=KFAKE, check=True, timeout=600)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdin
        assert broker.stdout
        try:
            yield Address.parse(broker.stdout.readline().strip())
        finally:
            broker.stdin.close()
            try:
                broker.wait(WAIT_S)
            finally:
                broker.kill()
