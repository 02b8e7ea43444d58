"""kfuzz reads the files of a real broker: its own topics, indexes and batches. A broker serves a salvaged log.

Kafka's DumpLogSegments is asked the same.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import CorruptRecordException
from conftest import require_kafka_build
from corpora.test_corpus_broker import LOADED, LOG_LEVELS
from corpora.test_corpus_logs_broker import consume
from programs import run_program

from kfuzz import logs
from kfuzz.annotate.frames import frames_of
from kfuzz.annotate.listing import Listing
from kfuzz.conformance.broker.real import Broker
from kfuzz.logs.checking import Counts, check_directory
from kfuzz.logs.lost import lost_at
from kfuzz.logs.printing import Request, json_lines
from kfuzz.logs.salvaging import salvage
from kfuzz.logs.stored import kind_of
from kfuzz.wire.io.layout import CONTROL

pytestmark = [pytest.mark.java, pytest.mark.full]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
# The topics of a broker's own have three replicas by default.
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
RECORDS = 400
PATIENCE_S = 60
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}


@dataclass
class Written:
    """The log directory of a stopped broker, and the tools of its release."""

    broker: Broker
    topic: str
    said: tuple[bytes, bytes]
    committed: list[tuple[int, bytes | None, bytes | None]]

    def dump(self, path: Path, *options: str) -> list[str]:
        """The lines that Kafka's DumpLogSegments prints about a file."""
        argv = self.broker.tool(DUMP, *options, "--files", str(path))
        done = run_program(*argv)
        return done.stdout.splitlines()


async def recorded(port: int) -> tuple[bytes, bytes]:
    """The bytes that a client and the broker sent each other when the client asked for the cluster's metadata."""
    sent, received = bytearray(), bytearray()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
        while piece := await reader.read(1 << 16):
            kept += piece
            writer.write(piece)
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back, sent), copy(there, writer, received))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        client = AIOKafkaClient(bootstrap_servers=f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await client.bootstrap()
        await client.close()
    return bytes(sent), bytes(received)


async def work(port: int, topic: str) -> None:
    """Records, a transaction that is committed and one that is aborted, and a group that commits its offsets."""
    server = f"127.0.0.1:{port}"
    place = TopicPartition(topic, 0)
    async with asyncio.timeout(PATIENCE_S):
        async with AIOKafkaProducer(bootstrap_servers=server) as producer:
            for number in range(RECORDS):
                await producer.send(topic, b"%d" % number * 20, key=b"%d" % number)
                if number % 20 == 19:
                    await producer.flush()
        for commit in (True, False):
            async with AIOKafkaProducer(bootstrap_servers=server, transactional_id="tx-1") as producer:
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"in a transaction", partition=0)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=server, group_id="readers", auto_offset_reset="earliest")
        async with consumer:
            await consumer.getone()
            await consumer.commit({place: 17})


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    require_kafka_build()
    with Broker(SETTINGS, log_levels=LOG_LEVELS) as broker:
        topic = broker.create_topic(1, {"segment.bytes": str(1 << 20), "index.interval.bytes": "1000"})
        asyncio.run(work(broker.port, topic))
        said = asyncio.run(recorded(broker.port))
        committed, _ = asyncio.run(consume(broker.port, topic))
        broker.stop()
        yield Written(broker, topic, said, committed)


@pytest.mark.parametrize("topic", DECODERS)
def test_the_records_of_kafkas_own_topics_are_those_that_its_tool_prints(topic: str, written: Written) -> None:
    (segment,) = written.broker.data.glob(f"{topic}-0/*.log")
    theirs = []
    for line in written.dump(segment, "--print-data-log", "--deep-iteration", DECODERS[topic]):
        if not line.startswith("| offset") or (" isTransactional" in line and " endTxnMarker" in line):
            continue
        sides = {}
        for name in ("key", "payload"):
            found = re.search(rf"{name}: (\{{.*?\}}|null|<null>|<EMPTY>)(?= payload:|$)", line)
            if found and found[1].startswith("{"):
                sides[name] = json.loads(found[1])
        offset = re.search(r"offset: (\d+)", line)
        assert offset
        if sides:
            theirs.append((int(offset[1]), sides))
    ours: dict[int, dict[str, Any]] = {}
    for text in json_lines(Request(segment)):
        for line in bytes(text).splitlines():
            row = json.loads(line)
            ours[row["offset"]] = {name: row[name] for name in ("key", "value") if row[name] is not None}
    assert theirs
    names = set()
    for offset, sides in theirs:
        for name, side in sides.items():
            mine = ours[offset]["value" if name == "payload" else "key"]
            assert "error" not in mine, mine
            names.add(mine["type"])
            if not same(side["data"], mine["data"]):
                pytest.fail(f"{json.dumps(side)} {json.dumps(mine)}")
    expected = {
        "__consumer_offsets": {"OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"},
        "__transaction_state": {"TransactionLogKey", "TransactionLogValue"},
        "__cluster_metadata": {"RegisterBrokerRecord", "TopicRecord", "PartitionRecord", "FeatureLevelRecord"},
    }
    assert expected[topic] <= names


# The states of a transaction, as the tool of Kafka 4.4 prints their numbers: TransactionState.
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")


def same(theirs: Any, mine: Any) -> bool:
    """Whether a value in the JSON of Kafka's tool is ours: numbers may be text here, bytes base64 there."""
    if isinstance(theirs, dict) and isinstance(mine, dict) and mine.keys() == {"type", "version", "data"}:
        # A member of a group says this in bytes.
        return same(theirs, mine["data"])
    if isinstance(theirs, dict):
        return isinstance(mine, dict) and all(same(value, mine.get(name)) for name, value in theirs.items())
    if isinstance(theirs, list):
        return isinstance(mine, list) and len(theirs) == len(mine) and all(map(same, theirs, mine))
    if isinstance(theirs, int) and not isinstance(theirs, bool):
        return str(theirs) == str(mine)
    if theirs in STATES:
        return STATES.index(theirs) == mine
    if isinstance(theirs, str) and isinstance(mine, str) and theirs != mine:
        return base64.b64decode(theirs).hex() == mine
    return bool(theirs == mine)


def test_a_brokers_own_files_have_no_findings(written: Written) -> None:
    counts = Counts()
    bad = [
        (one.path, one.findings)
        for one in check_directory(written.broker.data, counts, profile="strict", role="log")
        if one.findings
    ]
    assert bad == []
    assert counts.segments >= 4
    names = {path.name for path in written.broker.data.rglob("*") if path.is_file() and kind_of(path.name)}
    assert {"leader-epoch-checkpoint", "partition.metadata", "recovery-point-offset-checkpoint"} <= names


def test_entries_of_indexes_are_those_that_kafkas_tool_prints(written: Written) -> None:
    folder = written.broker.data / f"{written.topic}-0"
    for suffix, pattern in (
        (".index", r"offset: (\d+) position: (\d+)"),
        (".timeindex", r"timestamp: (\d+) offset: (\d+)"),
        (".txnindex", r"version: (\d+) producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"),
    ):
        path = folder / f"{0:020d}{suffix}"
        kind = kind_of(path.name)
        assert kind is not None
        made = kind.read(path, path.read_bytes(), "kafka")
        theirs = [tuple(map(int, found.groups())) for line in written.dump(path) if (found := re.match(pattern, line))]
        assert [row for _, row in made.entries()] == theirs
        assert theirs, suffix
    (snapshot,) = folder.glob("*.snapshot")
    kind = kind_of(snapshot.name)
    assert kind is not None
    made = kind.read(snapshot, snapshot.read_bytes(), "kafka")
    text = "\n".join(written.dump(snapshot))
    assert made.count == text.count("producerId: ") > 0
    for _, row in made.entries():
        assert f"producerId: {row[0]} producerEpoch: {row[1]} " in text


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        (".index", lambda data: data + b"x"),
        (".index", lambda data: data[:-8] + b"\xff\xff\xff\xff" + data[-4:]),
        (".timeindex", lambda data: data + b"x"),
        (".timeindex", lambda data: data[:-12] + bytes(7) + b"\1" + data[-4:]),
    ],
)
def test_an_index_is_refused_exactly_if_kafkas_sanity_check_refuses_it(
    suffix: str, change: Any, written: Written, tmp_path: Path
) -> None:
    source = written.broker.data / f"{written.topic}-0" / f"{0:020d}.log"
    for path in source.parent.glob(f"{source.stem}.*"):
        shutil.copy(path, tmp_path)
    path = tmp_path / f"{source.stem}{suffix}"
    sound = path.read_bytes()
    for data, is_refused in ((sound, False), (change(sound), True)):
        path.write_bytes(data)
        argv = written.broker.tool(DUMP, "--index-sanity-check", "--files", str(path))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        refused = "passed sanity check" not in done.stdout
        kind = kind_of(path.name)
        assert kind is not None
        assert kind.read(path, data, "kafka").is_refused == refused == is_refused, done.stdout + done.stderr


def test_a_listing_has_the_batches_that_kafkas_tool_prints(written: Written) -> None:
    path = written.broker.data / f"{written.topic}-0" / f"{0:020d}.log"
    pattern = re.compile(
        r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: -?\d+ "
        r"producerId: (-?\d+) producerEpoch: (-?\d+) partitionLeaderEpoch: (\d+) isTransactional: (\w+) "
        r"isControl: (\w+) .*position: (\d+) CreateTime: (\d+) size: (\d+) magic: 2 compresscodec: (\w+)"
    )
    theirs = [found.groups() for line in written.dump(path) if (found := pattern.match(line))]
    ours = []
    for one in Listing(path.read_bytes()):
        shown = one.to_json()
        flags = shown["flags"]
        numbers = (
            one.base_offset,
            one.last_offset,
            one.records,
            one.base_sequence,
            one.producer_id,
            one.producer_epoch,
        )
        kinds = ("transactional" in flags, "control" in flags)
        rest = (one.at, one.max_timestamp, one.size, shown["codec"])
        ours.append((*map(str, numbers), str(one.leader_epoch), *(str(k).lower() for k in kinds), *map(str, rest)))
    assert ours == theirs
    assert len(ours) > 20


def test_every_frame_of_a_real_connection_is_read(written: Written) -> None:
    found = list(frames_of(*written.said, profile="strict"))
    assert {"ApiVersionsRequest", "MetadataRequest"} <= {one.name for one in found}
    assert [one for one in found if one.is_refused or one.answer is None or one.answer.is_refused] == []
    assert sum(one.size for one in found) == len(written.said[0])


def test_a_salvaged_log_is_loaded_and_served_by_a_broker(written: Written, tmp_path: Path) -> None:
    source = written.broker.data / f"{written.topic}-0"
    damaged = Path(shutil.copytree(source, tmp_path / "damaged" / source.name))
    segment = damaged / f"{0:020d}.log"
    listed = list(Listing(segment.read_bytes()))
    data = bytearray(segment.read_bytes())
    lost = set()
    # A wrong bit in a record, and a wrong length.
    for entry, at in ((listed[5], 100), (listed[12], 9)):
        data[entry.at + at] ^= 4
        lost |= set(range(entry.base_offset, entry.last_offset + 1))
    segment.write_bytes(data)
    (made,) = salvage(damaged, tmp_path / "rescued")
    assert len(made.lost) == 2
    expected = [
        (row["offset"], row["key"], row["value"])
        for batch in logs.read(source, isolation="read_committed")
        for row in batch.to_pylist()
        if row["offset"] not in lost
    ]
    broker = written.broker
    broker.start()
    try:
        topic = broker.create_topic(1)
        broker.replace_log(topic, (tmp_path / "rescued" / source.name).iterdir())
        log = broker.log.decode()
        assert "Found invalid messages" not in log
        assert "orrupt" not in log
        found, _ = asyncio.run(consume(broker.port, topic))
        assert found == expected
        broker.stop()
        kept = broker.data / f"{topic}-0" / segment.name
        assert kept.read_bytes() == (tmp_path / "rescued" / source.name / segment.name).read_bytes()
    finally:
        broker.stop()


def flipped(segment: Path, *places: int) -> None:
    data = bytearray(segment.read_bytes())
    for place in places:
        data[place] ^= 1
    segment.write_bytes(data)


def test_a_broker_loads_a_salvaged_directory_as_it_is_and_every_transaction_ends_as_before(
    written: Written, tmp_path: Path
) -> None:
    broker, name = written.broker, f"{written.topic}-0"
    damaged = Path(shutil.copytree(broker.data, tmp_path / "damaged"))
    segment = damaged / name / f"{0:020d}.log"
    listed = list(Listing(segment.read_bytes()))
    markers = [entry for entry in listed if entry.attributes & CONTROL]
    assert len(markers) == 2
    flipped(segment, listed[5].at + 100, *(entry.at + 70 for entry in markers))
    made = next(one for one in salvage(damaged, tmp_path / "out") if one.path == segment)
    assert [(one.offset, one.is_abort) for one in made.markers] == [
        (one.base_offset, one is markers[1]) for one in markers
    ]
    assert made.changes == []
    index = f"{name}/{segment.stem}.txnindex"
    assert (tmp_path / "out" / index).read_bytes() == (broker.data / index).read_bytes()
    before = Path(shutil.copytree(broker.data, tmp_path / "before"))
    shutil.rmtree(broker.data / name)
    shutil.copytree(tmp_path / "out", broker.data, dirs_exist_ok=True)
    try:
        broker.start()
        said = [line for line in broker.log.decode().splitlines() if re.search(rf"[=/]{name}\b", line)]
        assert [line for line in said if not any(re.search(one, line) for one in LOADED)] == []
        assert len(said) == len(LOADED)
        found, _ = asyncio.run(consume(broker.port, written.topic))
        lost = range(listed[5].base_offset, listed[5].last_offset + 1)
        assert found == [row for row in written.committed if row[0] not in lost]
    finally:
        broker.stop()
        shutil.rmtree(broker.data)
        shutil.move(before, broker.data)


async def read_as(group: str, port: int, topic: str) -> int:
    """The first offset that a consumer of this group reads."""
    server = f"127.0.0.1:{port}"
    async with AIOKafkaConsumer(topic, bootstrap_servers=server, group_id=group) as consumer:
        return int((await asyncio.wait_for(consumer.getone(), PATIENCE_S)).offset)


def test_a_group_passes_over_damage_with_the_command_that_names_the_next_offset(written: Written) -> None:
    broker = written.broker
    segment = broker.data / f"{written.topic}-0" / f"{0:020d}.log"
    # The group has read up to offset 17.
    entry = next(one for one in Listing(segment.read_bytes()) if one.base_offset <= 17 <= one.last_offset)
    flipped(segment, entry.at + 100)
    lost = lost_at(segment, Listing(segment.read_bytes()), entry.at)
    assert lost
    assert (lost.first, lost.next) == (entry.base_offset, entry.last_offset + 1)
    broker.start()
    try:
        with pytest.raises(CorruptRecordException):
            asyncio.run(read_as("readers", broker.port, written.topic))
        command = (lost.skip or "").replace("HOST:PORT", f"127.0.0.1:{broker.port}").replace("GROUP", "readers")
        tool, *words = shlex.split(command)
        assert tool == "kafka-consumer-groups.sh"
        argv = broker.tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *words)
        run_program(*argv, timeout=PATIENCE_S)
        assert asyncio.run(read_as("readers", broker.port, written.topic)) == lost.next
    finally:
        broker.stop()
        flipped(segment, entry.at + 100)
