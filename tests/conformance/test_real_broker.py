"""A real broker: it says of the vectors what their cells say, names what it dies of, and leaves nothing over.

A seeded sample of each kind of answer is asked, a larger one with the marker ``full``; KFUZZ_CAMPAIGN=1
(``make campaign``) asks every vector.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import require_kafka_build

from kfuzz import records
from kfuzz.conformance.broker import talk
from kfuzz.conformance.broker.real import (
    Broker,
    BrokerFailed,
    Marker,
    artefacts,
    is_for_broker,
    judge,
    play,
    produce,
    recover,
)
from kfuzz.errors import RecordsError, UsageError
from kfuzz.kafka import BROKER_RELEASE
from kfuzz.records.appending import append
from kfuzz.records.read.topic import Topic
from kfuzz.vectors import Vector, load_suite
from kfuzz.vectors.confirm import BROKER_CELLS
from kfuzz.vectors.kinds import CONVERSATION, KINDS

# Topics, as Kafka's settings and as kfuzz's.
TOPICS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "plain": ({}, {}),
    "log-append": ({"message.timestamp.type": "LogAppendTime"}, {"timestamp_type": "log-append"}),
    "compacted": ({"cleanup.policy": "compact"}, {"compacted": True}),
    "small": ({"max.message.bytes": "75"}, {"max_message_bytes": 75}),
    "uncompressed": ({"compression.type": "uncompressed"}, {"compression": "none"}),
    "gzip": ({"compression.type": "gzip"}, {"compression": "gzip"}),
    "snappy": ({"compression.type": "snappy"}, {"compression": "snappy"}),
    "lz4": ({"compression.type": "lz4"}, {"compression": "lz4"}),
    "zstd-log-append": (
        {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"},
        {"compression": "zstd", "timestamp_type": "log-append"},
    ),
}
ERRORS = {
    "base-offset-not-zero": "INVALID_RECORD",
    "batch-count-not-one": "INVALID_RECORD",
    "codec-unknown": "UNKNOWN_SERVER_ERROR",
    "control-batch-produced": "INVALID_RECORD",
    "crc-mismatch": "CORRUPT_MESSAGE",
    "last-offset-delta-not-count": "INVALID_RECORD",
    "log-append-time-produced": "INVALID_TIMESTAMP",
    "magic-not-produced": "INVALID_RECORD",
    "magic-unknown": "CORRUPT_MESSAGE",
}
MAX_TIMESTAMP = slice(35, 43)
SEED = 20
# At most so many vectors of each answer.
SAMPLES = 12
ENDED_WITHIN_S = 60

Cell = dict[str, str]


@pytest.fixture(scope="module")
def vectors() -> Sequence[Vector]:
    """Some vectors of each answer that stands in the cells, or all in a campaign."""
    vectors = [vector for vector in load_suite(kinds=KINDS) if is_for_broker(vector)]
    if os.environ.get("KFUZZ_CAMPAIGN") == "1":
        return vectors
    by_answer: dict[tuple[str, ...], list[Vector]] = defaultdict(list)
    for vector in vectors:
        by_answer[vector.kind, *cell(vector).values()].append(vector)
    chosen = random.Random(SEED)
    return [
        vector for _, alike in sorted(by_answer.items()) for vector in chosen.sample(alike, min(len(alike), SAMPLES))
    ]


def cell(vector: Vector) -> Cell:
    said = vector.kafka.get(BROKER_RELEASE, {})
    return {name: said[name] for name in sorted(BROKER_CELLS) if name in said}


def vector(name: str) -> Vector:
    (found,) = load_suite(name, kinds=KINDS)
    return found


def appended(data: bytes, stored: bytes, **topic: Any) -> bytes | None:
    """The batch that kfuzz stores for a Produce request, at the time that ``stored`` tells; None where it refuses."""
    if "timestamp_type" in topic and stored:
        topic["now"] = int.from_bytes(stored[MAX_TIMESTAMP], "big")
    try:
        return append(data, Topic(**topic)).data
    except RecordsError:
        return None


def contents(data: bytes) -> Any:
    """All that is in a batch but its size and its CRC; the bytes where no reader can read it."""
    try:
        return records.to_json(records.decode(data))
    except RecordsError:
        return data


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    require_kafka_build()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


pytestmark = pytest.mark.java


def test_the_broker_is_the_one_that_the_cells_name() -> None:
    assert artefacts().version == BROKER_RELEASE


@pytest.mark.full
def test_the_committed_cells_are_what_the_broker_says_and_it_contradicts_no_vector(vectors: Sequence[Vector]) -> None:
    found = judge(vectors)
    done = found.broker_cells
    said = {vector.id: (cell(vector), dict(sorted(done[vector.id].items()))) for vector in vectors}
    assert {name: cells for name, cells in said.items() if cells[0] != cells[1]} == {}
    assert found.contradictions == []
    # Every kind of answer was given.
    cells = done.values()
    assert {cell["produce"] for cell in cells} == {"accepted", "rejected", "fault"}
    assert {cell["recovery"] for cell in cells if "recovery" in cell} == {"kept", "truncated", "aborts"}
    errors = {cell.get("error") for cell in cells}
    assert errors >= {None, "CORRUPT_MESSAGE", "INVALID_RECORD", "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_SERVER_ERROR"}


@pytest.mark.full
@pytest.mark.parametrize("name", TOPICS)
def test_kfuzz_appends_what_the_broker_stores(broker: Broker, vectors: Sequence[Vector], name: str) -> None:
    """To the byte where the payload stays as it came; where it is compressed anew, the compressors may differ."""
    config, topic = TOPICS[name]
    judged = [v for v in vectors if v.kind == "records" and not v.budget]
    said = produce(broker, judged, config)
    accepted = {v.id: said[v.id].stored or None for v in judged}
    mine = {v.id: appended(v.data, said[v.id].stored, **topic) for v in judged}
    differing = {name for name in mine if mine[name] != accepted[name]}
    if "compression" in topic:
        differing = {
            name
            for name in differing
            if (a := mine[name]) is None or (b := accepted[name]) is None or contents(a) != contents(b)
        }
    assert differing == set()
    assert {answer.outcome for answer in said.values()} >= {"accepted", "rejected"}


def test_the_broker_accepts_what_its_own_classes_accept() -> None:
    differing = [
        v.id
        for v in load_suite()
        if (v.kafka[BROKER_RELEASE]["broker"] == "accepted") != (v.kafka[BROKER_RELEASE]["produce"] == "accepted")
    ]
    assert differing == []


def test_findings_in_a_batchs_header_have_one_error_each() -> None:
    errors: dict[str, set[str | None]] = defaultdict(set)
    for vector in (v for v in load_suite() if not v.budget):
        try:
            append(vector.data)
        except RecordsError as error:
            errors[error.finding.code].add(vector.kafka[BROKER_RELEASE].get("error"))
    assert {code: errors[code] for code in ERRORS} == {code: {error} for code, error in ERRORS.items()}


@pytest.mark.full
def test_accepted_bytes_are_stored_under_the_partitions_own_offsets_and_epoch(broker: Broker) -> None:
    """Base offset and leader epoch are not covered by the CRC: all else is as it was sent."""
    minimal = vector("records/v2/header/minimal")
    first, second = play(broker, {minimal.id: [minimal.data, minimal.data]})[minimal.id]
    assert (first.outcome, first.error, first.base_offset) == ("accepted", "NONE", 0)
    assert second.stored[:8] == second.base_offset.to_bytes(8, "big")
    assert second.base_offset > first.base_offset
    assert [stored[16:] for stored in (first.stored[: len(minimal.data)], second.stored)] == [minimal.data[16:]] * 2


@pytest.mark.full
def test_a_start_that_dies_of_two_segments_names_both_and_judges_the_others() -> None:
    names = {
        "records/v2/header/minimal": "kept",
        "records/v2/control/key-null": "aborts",
        "records/framing/good-then-bad-crc": "truncated",
        "records/v2/header/last-offset-delta-negative": "aborts",
        "records/v2/header/crc-wrong": "truncated",
    }
    with Broker() as broker:
        recovered = recover(broker, [vector(name) for name in names])
        assert broker.is_alive()
    assert {name: recovered[name].outcome for name in names} == names
    assert recovered["records/framing/good-then-bad-crc"].size == len(vector("records/v2/header/minimal").data)
    assert recovered["records/v2/header/crc-wrong"].size == 0


@pytest.mark.full
def test_each_stream_begins_without_a_producer_and_continues_where_it_was(broker: Broker) -> None:
    steps = [bytes.fromhex(step["hex"]) for step in vector("stream/sequence/gap-of-one").steps]
    answers = play(broker, {"whole": steps, "last step alone": steps[-1:]})
    assert [answer.error for answer in answers["whole"]] == ["NONE", "OUT_OF_ORDER_SEQUENCE_NUMBER"]
    assert [answer.error for answer in answers["last step alone"]] == ["NONE"]


@pytest.mark.full
def test_a_coordinators_marker_ends_a_transaction(broker: Broker) -> None:
    open_transaction = vector("records/v2/transaction/open").data
    producer_id = int.from_bytes(open_transaction[43:51], "big")
    producer_epoch = int.from_bytes(open_transaction[51:53], "big")
    marker = Marker(producer_id, producer_epoch, coordinator_epoch=0, commit=True)
    begun, ended = play(broker, {"transaction": [open_transaction, marker]})["transaction"]
    assert (begun.error, begun.last_stable_offset) == ("NONE", 0)
    assert (ended.error, ended.last_stable_offset) == ("NONE", ended.base_offset + 1)


def test_no_stream_with_a_marker_that_no_coordinator_writes_is_asked() -> None:
    assert not is_for_broker(vector("stream/transaction/marker-key-null"))
    assert is_for_broker(vector("stream/transaction/commit"))


@pytest.mark.full
def test_a_clean_restart_keeps_batches_and_a_failed_start_says_why_and_leaves_nothing() -> None:
    minimal = vector("records/v2/header/minimal")
    others = set(psutil.Process().children())
    broker = Broker()
    with contextlib.suppress(ZeroDivisionError), broker:
        (before,) = produce(broker, [minimal]).values()
        broker.stop()
        assert not broker.is_alive()
        broker.start()
        after = broker.ask({"operation": "fetch", "topic": "topic1", "partition": 0, "offset": "0"})
        assert after["hex"] == before.stored.hex()
        broker.stop()
        (broker.data / "meta.properties").unlink()
        with pytest.raises(BrokerFailed, match=r"the broker ended at start: .*meta\.properties"):
            broker.start()
        raise ZeroDivisionError
    assert set(psutil.Process().children()) == others
    assert not broker.data.parent.exists()


@pytest.mark.full
def test_a_broker_ends_with_the_process_that_started_it() -> None:
    script = (
        "import os, signal\n"
        "from kfuzz.conformance.broker.real import Broker\n"
        "broker = Broker().__enter__()\n"
        "print(broker._process.pid, broker.data.parent, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=ENDED_WITHIN_S)
    pid, home = done.stdout.split()
    try:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(pid))
            assert home in " ".join(process.cmdline())
            process.wait(ENDED_WITHIN_S)
    finally:
        # A killed process cannot clear away.
        shutil.rmtree(home)


def test_without_maven_the_reason_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="it needs java and javac and mvn; install that"), Broker():
        pass


@pytest.mark.nightly
def test_kafkas_own_client_confirms_every_conversation() -> None:
    conversations = load_suite(kinds=[CONVERSATION])
    found = talk(conversations)
    assert found.contradictions == []
    assert found.frames.keys() == {one.id for one in conversations}
