"""`kfuzz serve`: any client gets exactly the bytes of the vectors, in every version; a bad request harms only itself.

Loopback only. Servers run in the test's own event loop, or as a child that the test ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import random
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_driver import outcome
from conftest import missing, require_tool
from docs.pages import commands, shows
from programs import run_program
from serve.asking import (
    HERE,
    INVALID,
    MINIMAL,
    SECONDS_MAX,
    Client,
    asked,
    fed,
    fetch_of,
    request,
    response,
    run,
    served,
    sized,
    started,
    topics,
    writes,
)

from kfuzz import records
from kfuzz.errors import UsageError
from kfuzz.kafka import TOPIC_NAME
from kfuzz.messages.model import Versions
from kfuzz.serve import Broker, Server, Topics, topics_of
from kfuzz.serve import server as serving
from kfuzz.serve.answers import APIS, released
from kfuzz.serve.cluster import ELEMENTS_MAX, Caller, Cluster, Refused
from kfuzz.serve.fetching import WAIT_MS_MAX
from kfuzz.serve.topics import FAR, GivenPartition, Topic, end_of
from kfuzz.vectors import find_vector, load_suite

ROOT = Path(__file__).resolve().parents[2]


def _part(name: str, by_id: bool) -> dict[str, Any]:
    return {**({"topicId": bytes(16)} if by_id else {"name": name}), "partitionIndexes": [0]}


# Fields that a version needs and that have no default.
NEEDED: dict[str, Callable[[int], dict[str, Any]]] = {
    "Fetch": lambda version: fetch_of("t", version, bytes(16), 0),
    "Produce": lambda version: writes(b"", topic="t" if version < 13 else ""),
    "OffsetFetch": lambda version: (
        {"groups": [{"groupId": "g", "topics": [_part("t", version >= 10)]}]}
        if version >= 8
        else {"groupId": "g", "topics": [_part("t", False)]}
    ),
    "InitProducerId": lambda version: {"transactionalId": None},
    "JoinGroup": lambda version: {"groupId": "g", "protocolType": "consumer", "protocols": [{"name": "range"}]},
    "FindCoordinator": lambda version: {"coordinatorKeys": ["g"]} if version >= 4 else {"key": "g"},
}


# The errors for a member or a producer that the broker does not know.
STRANGERS = {"AddOffsetsToTxn": 49, "EndTxn": 49, "Heartbeat": 25, "SyncGroup": 25, "LeaveGroup": 25}


@pytest.mark.parametrize("version", [released("Fetch").lowest, released("Fetch").highest])
@pytest.mark.parametrize("vector", [MINIMAL, INVALID])
@served()
async def test_a_raw_client_gets_exactly_the_bytes_of_a_vector(server: Server, vector: str, version: int) -> None:
    async with Client(server) as client:
        offered = (await client.ask("ApiVersions", 4, {"clientSoftwareName": "test"}))["apiKeys"]
        assert (1, 4, 18) in [(one["apiKey"], one["minVersion"], one["maxVersion"]) for one in offered]
        metadata = await client.ask("Metadata", 12, {"topics": None})
        assert [(one["host"], one["port"]) for one in metadata["brokers"]] == [(server.host, server.port)]
        name = vector.replace("/", ".")
        topic_id = next(one["topicId"] for one in metadata["topics"] if one["name"] == name)
        for timestamp, wanted in ((-2, 0), (-1, 1 if vector == MINIMAL else FAR)):
            asked = {"name": name, "partitions": [{"partitionIndex": 0, "timestamp": timestamp}]}
            offsets = await client.ask("ListOffsets", 7, {"replicaId": -1, "topics": [asked]})
            assert offsets["topics"][0]["partitions"][0]["offset"] == wanted
        got = await client.ask("Fetch", version, fetch_of(name, version, topic_id, 0))
        [partition] = got["responses"][0]["partitions"]
        assert partition["records"] == find_vector(vector).data
        assert partition["highWatermark"] == wanted


@served()
async def test_after_the_end_there_is_nothing_and_the_answer_waits(server: Server) -> None:
    name = MINIMAL.replace("/", ".")
    async with Client(server) as client:
        began = asyncio.get_running_loop().time()
        got = await client.ask("Fetch", 12, fetch_of(name, 12, b"", 1, max_wait_ms=60_000))
        took = asyncio.get_running_loop().time() - began
        [partition] = got["responses"][0]["partitions"]
        assert (partition["errorCode"], partition["records"], partition["highWatermark"]) == (0, b"", 1)
        assert WAIT_MS_MAX / 1000 <= took < 10


def test_every_version_of_every_api_is_answered() -> None:
    for api in APIS:
        for version in released(api):
            # The members of a group wait for each other.
            broker = Broker(topics())
            values = NEEDED.get(api, lambda version: {})(version)
            answer = response(api, version, broker.answer(request(api, version, values), HERE).data)
            # From version 3 on, each member that leaves has an error of its own.
            wanted = 0 if (api == "LeaveGroup" and version >= 3) else STRANGERS.get(api, 0)
            assert answer.get("errorCode", 0) == wanted, (api, version)
            assert broker.report.requests == {api: 1}


@served()
async def test_a_version_of_api_versions_that_is_too_new_gets_version_0(server: Server) -> None:
    async with Client(server) as client:
        known = request("ApiVersions", released("ApiVersions").highest, {})
        newer = known[:2] + struct.pack(">h", 99) + known[4:]
        told = response("ApiVersions", 0, await client.exchange(newer))
        assert told["errorCode"] == 35
        assert [(one["apiKey"], one["maxVersion"]) for one in told["apiKeys"]] == [(18, 5)]
        # The same connection goes on.
        assert (await client.ask("ApiVersions", 0, {}))["errorCode"] == 0


def test_topics_that_are_not_there_have_kafkas_errors() -> None:
    broker = Broker(topics())
    unknown = asked(broker, "Metadata", 12, {"topics": [{"name": "no"}, {"name": None, "topicId": b"x" * 16}]})
    assert [one["errorCode"] for one in unknown["topics"]] == [3, 100]
    named = asked(broker, "Fetch", 12, fetch_of("no", 12, b"", 0))["responses"][0]["partitions"][0]
    by_id = asked(broker, "Fetch", 13, fetch_of("no", 13, b"x" * 16, 0))["responses"][0]["partitions"][0]
    below = asked(broker, "Fetch", 12, fetch_of(MINIMAL.replace("/", "."), 12, b"", -1))["responses"][0]["partitions"][
        0
    ]
    assert [one["errorCode"] for one in (named, by_id, below)] == [3, 100, 1]
    assert asked(broker, "Fetch", 12, {"sessionId": 9, "sessionEpoch": 1})["errorCode"] == 70
    assert asked(broker, "Metadata", 0, {"topics": []})["topics"]
    assert asked(broker, "Metadata", 1, {"topics": []})["topics"] == []


def test_the_first_records_of_an_answer_come_however_little_room_there_is() -> None:
    made = topics()
    parts = [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1}]
    values = {"maxBytes": 1, "topics": [{"topic": topic.name, "partitions": parts} for topic in made]}
    got = asked(Broker(made), "Fetch", 12, values)
    sizes = [len(one["partitions"][0]["records"]) for one in got["responses"]]
    assert sizes == [len(next(iter(made)).partitions[0].fetched(0).data), 0]


def test_an_answer_does_not_wait_until_its_size_has_been_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    connected, delays = Server._connected, []

    async def seen(self: Server, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        delays.append(not writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        await connected(self, node_id, reader, writer)

    async def scenario(server: Server) -> None:
        async with Client(server) as client:
            await client.ask("ApiVersions", 0, {})

    monkeypatch.setattr(Server, "_connected", seen)
    run(scenario)
    assert delays == [False]


def test_nothing_can_be_written() -> None:
    got = asked(Broker(topics()), "Produce", 9, writes(b"", topic=MINIMAL.replace("/", ".")))
    assert got["responses"][0]["partitionResponses"][0]["errorCode"] == 29


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", serving.FRAME_BYTES_MAX + 1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">ihhi", 8, 1, 3, 1),
        struct.pack(">ihhi", 8, 1, 12, 1),
        struct.pack(">ihhi", 60, 1, 4, 1) + b"\xff" * 52,
        sized(request("Produce", 12, writes(b"", acks=0))),
    ],
)
def test_garbage_closes_its_own_connection_only(garbage: bytes) -> None:
    async def scenario(server: Server) -> None:
        async with Client(server) as good, Client(server) as bad:
            assert await bad.is_closed_after(garbage)
            assert (await good.ask("ApiVersions", 0, {}))["apiKeys"]

    [sentence] = run(scenario)
    assert ": connection closed: " in sentence


def test_damaged_requests_are_answered_or_refused() -> None:
    broker = Broker(topics())
    dice = random.Random(1)
    outcomes = Counter[str]()
    for api in APIS:
        for version in released(api):
            good = request(api, version, NEEDED.get(api, lambda version: {})(version))
            for _ in range(100):
                bad = bytearray(good)
                for _ in range(dice.randint(1, 3)):
                    bad[dice.randrange(8, len(bad))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
                try:
                    broker.answer(bytes(bad[: dice.randint(8, 2 * len(bad))]), HERE)
                    outcomes["answered"] += 1
                except Refused:
                    outcomes["refused"] += 1
    assert outcomes["answered"] > 1000 < outcomes["refused"]
    # Each byte that is not UTF-8 becomes three.
    frame = request("JoinGroup", 5, {"groupId": "g", "memberId": "m" * 30_000, "protocolType": "", "protocols": []})
    with pytest.raises(Refused, match="cannot be written"):
        broker.answer(frame.replace(b"m" * 30_000, b"\xff" * 30_000), HERE)


@served()
async def test_an_answer_comes_in_one_piece(server: Server) -> None:
    """Otherwise its second piece waits until the client has confirmed the first one, which takes 40 ms."""
    async with Client(server) as client:
        frame = request("ApiVersions", 0, {})
        for _ in range(10):
            client.writer.write(sized(frame))
            piece = await client.reader.read(1 << 20)
            assert len(piece) == 4 + int.from_bytes(piece[:4])


@served()
async def test_a_client_may_go_away_in_the_middle_of_a_frame(server: Server) -> None:
    async with Client(server) as client:
        client.writer.write(b"\0\0")
    async with Client(server) as client:
        assert (await client.ask("ApiVersions", 0, {}))["apiKeys"]


@served("there are 1 connections already", limits={"CONNECTIONS_MAX": 1})
async def test_there_is_a_bound_on_connections(server: Server) -> None:
    async with Client(server) as first:
        await first.ask("ApiVersions", 0, {})
        async with Client(server) as second:
            assert await second.is_closed_after(b"")
    assert (server.report.connections, server.report.refused) == (1, 1)


def test_only_the_versions_of_fetch_that_were_asked_for_are_offered() -> None:
    broker = Broker(topics(), fetch_versions=Versions(5, 6))
    offered = asked(broker, "ApiVersions", 0, {})["apiKeys"]
    assert [one for one in offered if one["apiKey"] == 1] == [{"apiKey": 1, "minVersion": 5, "maxVersion": 6}]
    with pytest.raises(UsageError, match="4-18 of Fetch"):
        Broker(topics(), fetch_versions=Versions(3, 6))


def test_two_runs_give_the_same_bytes() -> None:
    frames = [request("Metadata", 12, {"topics": None}), request("Fetch", 12, fetch_of("t", 12, b"", 0))]
    frames += [request("ApiVersions", 3, {}), request("FindCoordinator", 4, {"coordinatorKeys": ["g"]})]
    one, two = Broker(topics("records/v2/*")), Broker(topics("records/v2/*"))
    assert [one.answer(frame, HERE) for frame in frames] == [two.answer(frame, HERE) for frame in frames]


def test_every_vector_has_a_legal_topic_of_its_own_and_a_client_at_0_gets_its_bytes() -> None:
    suite = load_suite("*")
    made = topics_of(suite)
    assert len({topic.name for topic in made.values()}) == len({topic.id for topic in made.values()}) == len(made)
    for vector in suite:
        if vector.id in made and isinstance(vector.source, bytes):
            [partition] = made[vector.id].partitions
            assert TOPIC_NAME.fullmatch(made[vector.id].name)
            assert partition.fetched(0).data == vector.data
            assert partition.high_watermark >= partition.end >= (1 if vector.data else 0)


def test_bytes_that_never_become_a_batch_have_no_end() -> None:
    whole = find_vector(MINIMAL).data
    assert end_of(b"") == 0
    assert end_of(whole) == end_of(whole[:-1]) == end_of(whole + whole[:30]) == 1
    assert end_of(whole + bytes(30)) == FAR
    assert not any(TOPIC_NAME.fullmatch(name) for name in ("", ".", "..", "a/b", "ä", "a" * 250))


# -- real consumers


@served()
async def test_the_consumer_of_kafka_python_reads_a_vector(server: Server) -> None:
    kafka = pytest.importorskip("kafka")

    def read(group: str | None) -> Any:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=f"{server.host}:{server.port}",
            group_id=group,
            auto_offset_reset="earliest",
            consumer_timeout_ms=SECONDS_MAX * 1000,
        )
        try:
            consumer.assign([kafka.TopicPartition(MINIMAL.replace("/", "."), 0)])
            return next(consumer)
        finally:
            consumer.close()

    for group in (None, "g"):
        assert_minimal(await asyncio.to_thread(read, group))


@served()
async def test_the_consumer_of_aiokafka_reads_a_vector_alone_and_in_a_group(server: Server) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    for group in (None, "g"):
        consumer = aiokafka.AIOKafkaConsumer(
            MINIMAL.replace("/", "."),
            bootstrap_servers=f"{server.host}:{server.port}",
            group_id=group,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            assert_minimal(await consumer.getone())
        finally:
            await consumer.stop()


def assert_minimal(record: Any) -> None:
    [batch] = find_vector(MINIMAL).expect["consumer"]["batches"]
    [wanted] = batch["records"]
    got = [str(record.offset), str(record.timestamp), record.key.hex(), record.value.hex(), list(record.headers)]
    assert got == [wanted[name] for name in ("offset", "timestamp", "key", "value", "headers")]


def test_the_testee_of_librdkafka_reads_and_refuses() -> None:
    if importlib.util.find_spec("confluent_kafka") is None:
        missing("confluent-kafka", "install it as in pyproject.toml")
    # Nothing but a control batch: that is the end, and no stall.
    steps = [step["hex"] for step in find_vector("stream/isolation/uncommitted-control-alone").steps]
    record = {"timestamp": "1700000000000", "key": None, "value": "76", "headers": [["h", None]]}
    bare, produce = {"value": "76", "headers": []}, {"operation": "produce-records", "compression": "none"}
    asked = [
        {"id": "good", "operation": "decode-records", "role": "consumer", "hex": find_vector(MINIMAL).data.hex()},
        {"id": "bad", "operation": "decode-records", "hex": find_vector(MINIMAL).data[:-1].hex() + "ff"},
        {"id": "cut", "operation": "decode-records", "hex": find_vector(MINIMAL).data[:-1].hex()},
        {"id": "empty", "operation": "decode-records", "hex": ""},
        {"id": "other", "operation": "encode-records", "batches": []},
        {"id": "control", "operation": "decode-stream", "isolation": "read_committed", "steps": steps},
        {"id": "sends", **produce, "records": [bare] * 3, "sends": [1, 2], "errors": ["INVALID_RECORD"]},
        {"id": "sent", **produce, "records": [record], "idempotent": True},
    ]
    kit, driver = "testees/python/kfuzz_serving.py", "testees/librdkafka/drive.py"
    done = run_program(
        *(sys.executable, kit, "librdkafka", "python", sys.executable, driver),
        cwd=ROOT,
        input="".join(json.dumps(one) + "\n" for one in asked),
        timeout=SECONDS_MAX,
    )
    hello, *answers = map(json.loads, done.stdout.splitlines())
    assert hello["name"] == "librdkafka"
    outcomes = [(one["id"], one["outcome"]) for one in answers]
    assert outcomes == [
        ("good", "accepted"),
        ("bad", "rejected"),
        ("cut", "accepted"),
        ("empty", "accepted"),
        ("other", "unsupported"),
        ("control", "accepted"),
        ("sends", "accepted"),
        ("sent", "accepted"),
    ]
    assert answers[-3]["records"] == []
    assert answers[-2]["sends"] == ["rejected", "accepted"]
    [sent] = answers[-1]["produced"]
    [arrived] = records.decode(bytes.fromhex(sent["hex"]))
    assert records.to_json([arrived])[0]["records"] == [{"offset": "0"} | record]
    [batch] = find_vector(MINIMAL).expect["consumer"]["batches"]
    assert answers[0]["records"] == [record | {"timestamp_type": "create"} for record in batch["records"]]
    assert answers[0]["position"] == batch["next_offset"]


@pytest.mark.parametrize("number", [0, 1])
def test_the_program_of_the_documentation_prints_what_the_page_shows(tmp_path: Path, number: int) -> None:
    page = (ROOT / "docs/serve.md").read_text()
    found = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(found) == page.count("```python\n") == 2
    program, output = found[number]
    if "confluent_kafka" in program and importlib.util.find_spec("confluent_kafka") is None:
        missing("confluent-kafka", "install it as in pyproject.toml")
    (tmp_path / "mine.py").write_text(program)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = run_program(sys.executable, "mine.py", cwd=tmp_path, variables={"PATH": path}, timeout=2 * SECONDS_MAX)
    assert shows(output, done.stdout), done.stdout


# -- topics from another program


def test_topics_are_added_replaced_asked_and_removed() -> None:
    made = Topics()
    data = find_vector(MINIMAL).data

    def told(*given: Any) -> list[Any]:
        return fed(Cluster(made), *given)

    assert told({"topic": "t", "hex": data.hex()}, b"\n") == [{"topic": "t", "next_offset": "1"}]
    assert told({"topic": "t", "hex": data.hex(), "next_offset": "5"}) == [{"topic": "t", "next_offset": "5"}]
    assert told({"topic": "t"}) == [{"topic": "t", "fetch_offset": "-1", "times": 0, "connections": 0}]
    for offset, caller in ((0, HERE), (5, HERE), (5, Caller("127.0.0.1", 9092))):
        Broker(made).answer(request("Fetch", 12, fetch_of("t", 12, b"", offset)), caller)
    assert told({"topic": "t"}) == [{"topic": "t", "fetch_offset": "5", "times": 2, "connections": 2}]
    assert told({"topic": "t", "hex": None}) == [{"topic": "t"}]
    assert len(made) == len(made.by_id) == 0
    bad = [b"[", b"[]", b"{}", {"topic": 1}, {"topic": "t"}, {"topic": "t", "hxe": ""}, {"topic": "t", "hex": "0"}]
    bad += [{"topic": "t", "hex": "", "next_offset": "x"}, {"topic": "a/b", "hex": ""}]
    bad += [{"topic": "t", "produce": True, "leader_epoch": "2"}]
    assert [list(one) for one in told(*bad)] == [["error"]] * len(bad)
    assert len(made) == 0


# -- the verb


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_verb_says_where_it_is_and_in_the_end_what_was_asked(number: int) -> None:
    with started("serve", "--json", MINIMAL, stderr=subprocess.PIPE) as (process, first):
        ready = json.loads(first)
        assert ready["topics"] == {MINIMAL: MINIMAL.replace("/", ".")}
        with socket.create_connection((ready["host"], ready["port"]), timeout=SECONDS_MAX) as one:
            frame = request("ApiVersions", 0, {})
            one.sendall(sized(frame))
            assert one.recv(4)
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS_MAX)
        assert json.loads(out) == {"connections": 1, "refused": 0, "requests": {"ApiVersions": 1}}
        assert (err, process.returncode) == ("", 0)


def test_the_command_of_the_page_prints_what_it_shows() -> None:
    kcat = require_tool("kcat", "install it")
    page = [one for one in commands() if one.page == "docs/serve.md"]
    [shown] = [one for one in page if "--port 9092" in one.text]
    [client] = [one for one in page if one.text.startswith("kcat ")]
    assert shown.output
    assert client.output
    words = shlex.split(shown.text.replace("--port 9092", "--port 0"))[1:]
    with started(*words, stderr=subprocess.STDOUT) as (process, ready):
        place = ready.split()[-1]
        arguments = shlex.split(client.text.replace("127.0.0.1:9092", place))[1:]
        done = subprocess.run([kcat, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=SECONDS_MAX)
    assert shows(client.output, done.stdout), (done.stdout, done.stderr)
    # A terminal shows ^C for the key.
    text = f"{ready.replace(place, '127.0.0.1:9092')}^C{rest}"
    # On a slow machine the client asks more often, and the most frequent request comes first.
    assert shows(_by_name(shown.output), _by_name(text)), text


def _by_name(output: str) -> str:
    return "\n".join(sorted(output.splitlines(), key=lambda line: line.split()[-1]))


def test_the_verb_ends_with_its_standard_input() -> None:
    with started("serve", "--json", "--from-stdin", "--cluster", "3", stdin=subprocess.PIPE) as (process, first):
        ready = json.loads(first)
        assert ready["topics"] == {}
        assert [one["node_id"] for one in ready["brokers"]] == [1, 2, 3]
        assert ready["port"] == ready["brokers"][0]["port"]
        lines = '{"topic": "t1", "hex": ""}\n{"move": "t1", "to": 3}\n'
        out, _ = process.communicate(lines, timeout=SECONDS_MAX)
        added, moved, summary = map(json.loads, out.splitlines())
        assert moved == {"topic": "t1", "leader": 3, "leader_epoch": 1}
        assert (added, summary["requests"]) == ({"topic": "t1", "next_offset": "0"}, {})
        assert process.returncode == 0


def test_without_a_pipe_there_is_nothing_to_wait_for() -> None:
    command = (sys.executable, "-m", "kfuzz", "serve", "--from-stdin", "--json")
    done = run_program(*command, stdin=subprocess.DEVNULL, timeout=SECONDS_MAX)
    assert (done.stderr, len(done.stdout.splitlines())) == ("", 2)


def test_the_topics_of_a_file_are_served_until_the_server_is_stopped(tmp_path: Path) -> None:
    file = tmp_path / "topics.jsonl"
    file.write_text('{"topic": "t1", "hex": ""}\n')
    with file.open() as given, started("serve", "--json", "--from-stdin", stdin=given) as (process, _):
        assert process.stdout
        assert json.loads(process.stdout.readline()) == {"topic": "t1", "next_offset": "0"}
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0


def test_a_port_that_another_program_uses_is_refused_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, err = outcome("serve", MINIMAL, "--port", str(taken.getsockname()[1]))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "another program uses it; take another" in err


# -- clients that mean harm


def repeated(count: int) -> dict[str, Any]:
    """A request that names as many partitions, in arrays that are each below Kafka's limit."""
    half = {"name": "t", "partitionIndexes": [0] * (count // 2)}
    return {"groupId": "g", "topics": [half, half]}


@pytest.mark.parametrize(
    ("api", "version", "values"),
    [
        ("OffsetFetch", 1, repeated(ELEMENTS_MAX)),
        ("Metadata", 1, {"topics": [{"name": "t"}] * (ELEMENTS_MAX + 1)}),
        ("Fetch", 4, {"topics": [{"topic": "t", "partitions": [{"partition": 0, "fetchOffset": 0}] * ELEMENTS_MAX}]}),
    ],
)
def test_a_request_with_too_many_elements_is_refused_before_it_is_decoded(
    api: str, version: int, values: dict[str, Any]
) -> None:
    frame = request(api, version, values)
    broker = Broker(topics())
    # Loads the definitions.
    broker.answer(request(api, version, NEEDED.get(api, lambda version: {})(version)), HERE)
    with pytest.raises(Refused, match=f"at most {ELEMENTS_MAX} are read here"), allocating_at_most(2 * len(frame)):
        broker.answer(frame, HERE)


@contextmanager
def allocating_at_most(size: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= size + (1 << 20)


@served(
    "there are 4 others, and it has asked nothing",
    "6 more connections closed: too many connections at a time",
    limits={"CONNECTIONS_MAX": 4},
)
async def test_connections_that_ask_nothing_lock_nobody_out(server: Server) -> None:
    async with Client(server) as first:
        await first.ask("ApiVersions", 0, {})
        async with contextlib.AsyncExitStack() as stack:
            idle = [await stack.enter_async_context(Client(server)) for _ in range(9)]
            for one in idle[:5]:
                assert await one.is_closed_after(b"")
            idle[8].writer.write(b"\0")
            async with Client(server) as late:
                assert (await late.ask("ApiVersions", 0, {}))["apiKeys"]
            # A client that has asked something stays, also if it has been idle for longer.
            assert (await first.ask("ApiVersions", 0, {}))["apiKeys"]


@served("there are 2 others, and it has asked nothing", limits={"CONNECTIONS_MAX": 2, "MAKES_ROOM_AFTER_S": 0})
async def test_the_client_that_is_idle_for_longest_makes_room(server: Server) -> None:
    async with Client(server) as one, Client(server) as two, contextlib.AsyncExitStack() as stack:
        for client in (one, two, one):
            await client.ask("ApiVersions", 0, {})
        third = await stack.enter_async_context(Client(server))
        assert (await third.ask("ApiVersions", 0, {}))["apiKeys"]
        assert (await one.ask("ApiVersions", 0, {}))["apiKeys"]
        assert await two.is_closed_after(b"")


@pytest.mark.parametrize("begun", [b"\0", b"\0\0\0\x40", b"\0\0\0\x40" + b"x" * 63])
@served("a request that has begun is not whole after 0.1 s", limits={"SLOW_S_MAX": 0.1})
async def test_a_request_that_does_not_end_is_closed(server: Server, begun: bytes) -> None:
    async with Client(server) as slow, Client(server) as good:
        assert await slow.is_closed_after(begun)
        # Between two requests, a client may take its time.
        assert (await good.ask("ApiVersions", 0, {}))["apiKeys"]


@served(limits={"IDLE_S_MAX": 0.1})
async def test_a_connection_without_requests_is_closed_quietly_in_the_end(server: Server) -> None:
    async with Client(server) as idle:
        await idle.ask("ApiVersions", 0, {})
        assert await idle.is_closed_after(b"")


def large() -> Topics:
    made = Topics()
    # More than the buffers of a socket.
    made.put(Topic("large", GivenPartition([bytes(16 << 20)], 1)))
    return made


@served("an answer is not taken after 0.2 s", of=large, limits={"SLOW_S_MAX": 0.2})
async def test_an_answer_that_nobody_takes_is_dropped(server: Server) -> None:
    async with Client(server) as slow, Client(server) as good:
        frame = request("Fetch", 12, fetch_of("large", 12, b"", 0))
        slow.writer.write(sized(frame))
        while not server.report.refused:
            assert (await good.ask("ApiVersions", 0, {}))["apiKeys"]
            await asyncio.sleep(0.02)


@served(
    "others need the memory",
    "3 more connections closed: too many bytes on their way",
    of=large,
    limits={"HELD_BYTES_MAX": 40 << 20},
)
async def test_answers_that_nobody_takes_are_bounded_together(server: Server) -> None:
    async with contextlib.AsyncExitStack() as stack:
        frame = request("Fetch", 12, fetch_of("large", 12, b"", 0))
        for _ in range(5):
            slow = await stack.enter_async_context(Client(server))
            slow.writer.write(sized(frame))
        while server.report.refused < 3:
            await asyncio.sleep(0.02)
        good = await stack.enter_async_context(Client(server))
        got = await good.ask("Fetch", 12, fetch_of("large", 12, b"", 0))
        assert len(got["responses"][0]["partitions"][0]["records"]) == 16 << 20


@served()
async def test_a_client_that_asks_far_ahead_leaves_others_their_turn(server: Server) -> None:
    # Each turn of the event loop is one in which another client could have got its answer.
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Client(server) as greedy:
        greedy.writer.write(sized(request("ApiVersions", 0, {})) * 500)
        counting = asyncio.create_task(count())
        while server.report.requests["ApiVersions"] < 500:
            await greedy.answer()
        counting.cancel()
    assert turns >= 500


@served(
    "a request of -1 bytes",
    "the API with the number 900 is not offered",
    "9 more connections closed: requests of a wrong size",
    "9 more connections closed: APIs or versions that are not offered",
)
async def test_refusals_are_reported_once_for_each_kind_and_counted(server: Server) -> None:
    for number in range(10):
        async with Client(server) as size, Client(server) as api:
            assert await size.is_closed_after(struct.pack(">i", -1 - number))
            assert await api.is_closed_after(struct.pack(">ihhi", 8, 900 + number, 0, 1))
    assert server.report.refused == 20


@pytest.mark.parametrize("in_json", [False, True])
def test_a_line_that_is_too_long_ends_the_server(in_json: bool) -> None:
    words = ["serve", "--from-stdin", *(["--json"] if in_json else [])]
    program = f"from kfuzz.cli import main, serve; serve.LINE_BYTES_MAX = 10; main.main({words})"
    done = run_program(sys.executable, "-c", program, input="x" * 20, code=2)
    assert done.stderr == "kfuzz: a line has more than 10 bytes; send shorter ones\n"
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"topic": "t", "hex": "", "next_offset": ' + b"9" * 5000 + b"}",
        b'{"topic": "t", "hex": "", "next_offset": 1e999}',
        b'{"topic": "t", "hex": "", "next_offset": NaN}',
        b'{"topic": "t", "hex": "", "next_offset": true}',
        b'{"topic": "t", "hex": "", "next_offset": 1.9}',
        b'{"topic": "t", "hex": 5}',
        b'{"topic": "\\ud800\\u001b", "hex": ""}',
        b'{"topic": "' + b"t" * 1_000_000 + b'"}',
        b'{"topic": "t", "' + b"x" * 1_000_000 + b'": 1}',
        b'"topic"',
        b"\xff\xfe",
    ],
)
def test_a_hostile_line_gets_a_short_error(line: bytes) -> None:
    made = Topics()
    said = fed(Cluster(made), line)
    [answer] = said
    assert list(answer) == ["error"]
    assert len(answer["error"]) < 5000
    assert answer["error"].isprintable()
    assert len(made) == 0
