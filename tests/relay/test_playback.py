"""Recorded clients are played to a fresh broker, recorded brokers to a fresh client, and what differs is found."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.cli_driver import outcome as run_kfuzz
from conformance.conversation import SETTINGS
from conftest import require_tool
from relay.conversing import TOPIC, at, everything, joins, reads, recorded, served, writes
from relay.framing import exchange, frame
from serve import test_clients
from serve.asking import SECONDS_MAX, Client, asked, request
from serve.test_clients import (
    COMMITTED,
    aiokafka_reads,
    aiokafka_writes,
    kafka_python_reads,
    kafka_python_writes,
    librdkafka_reads,
    librdkafka_reads_in_a_newer_group,
    librdkafka_writes,
)

import kfuzz
from kfuzz.client.address import Address
from kfuzz.conformance.broker.real import Broker as RealBroker
from kfuzz.errors import UsageError
from kfuzz.relay.frames import HEAD, Frame
from kfuzz.relay.identities import Identities
from kfuzz.relay.local import LocalCluster
from kfuzz.relay.playback import Outcome, RecordedBroker, Settings, play_clients
from kfuzz.relay.recording import CONVERSATION, Recording
from kfuzz.relay.rules import parse_rule
from kfuzz.serve import Server, Topics
from kfuzz.serve import Settings as ServeSettings
from kfuzz.serve.cluster import Caller, Refused

Writes = Callable[[Any], list[int]]
Reads = Callable[[Any], list[tuple[int, bytes]]]


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded with a broker that already had a transaction and a member."""
    folder = tmp_path_factory.mktemp("recorded") / "out"
    recorded(folder, everything)
    return folder


def played(
    folder: Path, *lines: bytes, before: Callable[[Client], Awaitable[Any]] | None = None, timeout_ms: int = 5000
) -> Outcome:
    """Play the clients to a broker that has its topic, after ``before`` has changed what it knows."""

    async def scenario(server: Server) -> Outcome:
        if before is not None:
            async with Client(server) as client:
                await before(client)
        return await play_clients(Recording(folder), Settings(Address(server.host, server.port), timeout_ms=timeout_ms))

    made: Outcome = asyncio.run(served(scenario, *lines))
    return made


def test_nothing_differs_with_a_fresh_broker(conversation: Path) -> None:
    made = played(conversation)
    assert list(made.lines()) == ["13 requests, 13 frames compared: nothing differs"]


def test_nothing_differs_with_a_broker_that_gives_other_ids_epochs_and_offsets(conversation: Path) -> None:
    async def before(client: Client) -> None:
        # Other producer ids, a later epoch of this one, other offsets, other members and a later generation.
        await writes(client, transaction="y")
        await writes(client)
        await writes(client)
        await joins(client)

    async def scenario(server: Server) -> tuple[Outcome, list[bytes | None]]:
        async with Client(server) as client:
            await before(client)
            made = await play_clients(Recording(conversation), Settings(Address(server.host, server.port)))
            return made, await reads(client, 0)

    made, values = asyncio.run(served(scenario))
    assert list(made.lines()) == ["13 requests, 13 frames compared: nothing differs"]
    # The transaction was written, although its producer id, its epoch and its offset are others.
    assert values == [b"v"] * 4


def test_a_difference_is_shown_with_its_path_and_both_values(conversation: Path) -> None:
    made = played(conversation, b'{"topic": "t", "produce": true, "errors": ["NOT_LEADER_OR_FOLLOWER"]}')
    first = next(iter(made.found.values()))
    path = "responses[0].partitionResponses[0].errorCode"
    assert (first.api, first.direction, first.path, first.recorded, first.fresh) == ("Produce", "response", path, 0, 6)
    assert str(first) == f"connection 1, response 6, Produce 9: {path} is 6; in the record it is 0"
    assert first.to_json()["fresh"] == "6"
    assert not made.is_same


def test_an_id_that_became_another_and_is_the_recorded_one_again_is_said_in_words() -> None:
    def produced(offset: int) -> Frame:
        partitions = [{"index": 0, "baseOffset": offset}]
        made = frame(
            exchange("Produce", 9), "response", {"responses": [{"name": "t", "partitionResponses": partitions}]}
        )
        made.check()
        return made

    old, new = produced(3), produced(5)
    outcome, identities = Outcome(), Identities()
    outcome.compare(identities, old, new, {})
    assert outcome.is_same
    outcome.compare(identities, old, old, {})
    [said] = map(str, outcome.found.values())
    assert said.endswith("baseOffset is 3, as in the record; but an earlier response had another value for it")


def test_what_many_connections_have_is_said_once(tmp_path: Path) -> None:
    async def thrice(proxy: Any) -> None:
        for _ in range(3):
            await everything(proxy)

    recorded(tmp_path / "out", thrice)
    made = played(tmp_path / "out", b'{"broker": {"versions": {"Fetch": 12}}}')
    assert [(one.api, one.count) for one in made.found.values()] == [("ApiVersions", 3)]
    assert next(iter(made.lines())).endswith("(3 times)")


def test_a_broker_that_closes_the_connection_is_said_once_and_the_others_continue(conversation: Path) -> None:
    made = played(conversation, b'{"broker": {"versions": {"InitProducerId": 3}}}')
    lost = [str(one) for one in made.found.values() if "left out" in one.what]
    assert lost == [
        "connection 1, response 4, InitProducerId 4: none came: the broker closed the connection; what follows on this "
        "connection is left out"
    ]
    assert made.requests == 13 - 3


def test_a_broker_that_does_not_answer_is_said_once(conversation: Path) -> None:
    async def scenario() -> Outcome:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await play_clients(Recording(conversation), Settings(Address("127.0.0.1", port), timeout_ms=50))

    made = asyncio.run(scenario())
    assert {one.what for one in made.found.values()} == {
        "none came within 0.05 s; what follows on this connection is left out"
    }
    assert made.total == 2


def test_a_request_is_sent_again_while_the_broker_is_not_ready(conversation: Path) -> None:
    errors = b'["COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"]'
    made = played(conversation, b'{"topic": "t", "produce": true, "errors": %s}' % errors)
    assert list(made.lines()) == ["13 requests, 13 frames compared: nothing differs"]
    # It ends at some time.
    endless = b'{"topic": "t", "produce": true, "errors": [%s]}' % b", ".join([b'"COORDINATOR_LOAD_IN_PROGRESS"'] * 99)
    first = next(iter(played(conversation, endless, timeout_ms=300).found.values()))
    assert (first.api, first.recorded, first.fresh) == ("Produce", 0, 14)


def test_a_request_that_the_recorded_client_sent_again_is_sent_once(tmp_path: Path) -> None:
    async def again(proxy: Any) -> None:
        async with at(proxy) as client:
            said = [await client.ask("FindCoordinator", 4, {"coordinatorKeys": ["g"]}) for _ in range(3)]
            assert [one["coordinators"][0]["errorCode"] for one in said] == [15, 15, 0]

    recorded(tmp_path / "out", again, rules=(parse_rule("FindCoordinator error=COORDINATOR_NOT_AVAILABLE times=2"),))
    assert list(played(tmp_path / "out").lines()) == [
        "2 recorded requests left out: they got an error that ends by itself, and were sent again",
        "1 request, 1 frame compared: nothing differs",
    ]


def test_the_command_says_what_differs_and_what_is_wrong(conversation: Path, tmp_path: Path) -> None:
    with kfuzz.cluster(3) as brokers:
        brokers.line(broker={"fetch_sessions": True})
        brokers.topic(TOPIC)
        code, out, _ = run_kfuzz("play", conversation, "--bootstrap", brokers.bootstrap.split(",")[0], "--json")
    made = json.loads(out)
    assert code == 1
    assert {one["api"] for one in made["found"]} == {"Metadata"}
    for words, sentence in {
        (): "give either --bootstrap HOST:PORT, to play the clients, or --listen HOST:PORT",
        ("--bootstrap", "127.0.0.1:1"): "127.0.0.1:1 cannot be reached: Connection refused; start a broker there",
        ("--bootstrap", "192.0.2.1:9092"): "192.0.2.1:9092 is not on this machine; add --yes",
        ("--listen", "nowhere"): "is no place to listen at",
        ("--listen", "0.0.0.0:0"): "add --yes",
    }.items():
        code, _, said = run_kfuzz("play", conversation, *words)
        assert (code, sentence in said) == (2, True), said


# ------------------------------------------------------------------------------------- the brokers, to a fresh client


def test_a_fresh_client_gets_the_recorded_responses(conversation: Path) -> None:
    async def scenario() -> RecordedBroker:
        broker = RecordedBroker(Recording(conversation))
        async with Server(Topics(), ServeSettings(), broker=broker) as server:
            async with Client(server) as producer, Client(server) as consumer:
                await joins(consumer)
                assert await writes(producer) == 0
                said = await producer.ask("Metadata", 12, {"topics": [{"name": TOPIC}]})
                assert said["brokers"] == [{"nodeId": 1, "host": server.host, "port": server.port, "rack": None}]
                assert await reads(consumer, 0) == [b"v"]
            await asyncio.wait_for(broker.done.wait(), 10)
        return broker

    broker = asyncio.run(scenario())
    # The client asked for the topic once more than in the record.
    [found] = broker.end().found.values()
    assert str(found) == (
        "connection 2, request 8, Metadata 12: the record has fewer of these; a response is given again"
    )


@pytest.mark.full
def test_the_command_that_listens_ends_with_its_client(conversation: Path) -> None:
    words = [sys.executable, "-m", "kfuzz.cli.main", "play", conversation, "--listen", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        [(_, place)] = json.loads(process.stdout.readline())["brokers"].items()
        host, port = place.split(":")
        server = type("Place", (), {"host": host, "port": int(port)})

        async def scenario() -> None:
            async with Client(server) as producer, Client(server) as consumer:  # type: ignore[arg-type]
                await joins(consumer)
                await writes(producer)
                await reads(consumer, 0)

        asyncio.run(scenario())
        out, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0
    assert json.loads(out) == {
        "requests": 13,
        "left_out": 0,
        "compared": 13,
        "differences": 0,
        "found": [],
        "missing": {},
    }


def test_a_request_of_another_version_gets_the_response_in_its_own(conversation: Path) -> None:
    broker = RecordedBroker(Recording(conversation))
    topic = {"topics": [{"name": TOPIC}]}
    for version in (0, 4, 13):
        broker.outcome = Outcome()
        said = asked(broker, "Metadata", version, topic)
        assert [one["name"] for one in said["topics"]] == [TOPIC]


def test_the_response_is_that_of_the_request_that_asked_most_alike(tmp_path: Path) -> None:
    async def two(proxy: Any) -> None:
        async with at(proxy) as client:
            for group in ("a", "b"):
                await client.ask("FindCoordinator", 4, {"coordinatorKeys": [group]})

    recorded(tmp_path / "out", two)
    broker = RecordedBroker(Recording(tmp_path / "out"))
    for group in ("b", "a"):
        said = asked(broker, "FindCoordinator", 4, {"coordinatorKeys": [group]})
        assert said["coordinators"][0]["key"] == group
    assert broker.end().is_same


def test_a_response_that_was_given_is_given_again_if_those_left_are_about_other_things(tmp_path: Path) -> None:
    async def two(proxy: Any) -> None:
        async with at(proxy) as client:
            for group in ("a", "b"):
                await client.ask("FindCoordinator", 4, {"coordinatorKeys": [group]})

    recorded(tmp_path / "out", two)
    broker = RecordedBroker(Recording(tmp_path / "out"))
    for group in ("a", "a", "b"):
        said = asked(broker, "FindCoordinator", 4, {"coordinatorKeys": [group]})
        assert said["coordinators"][0]["key"] == group
    [found] = broker.end().found.values()
    assert found.what == "the record has fewer of these; a response is given again"
    again = broker.answer(request("FindCoordinator", 4, {"coordinatorKeys": ["b"]}), Caller("127.0.0.1", 1))
    # So a client that polls does not use up the processor.
    assert again.wait_ms >= 100


def test_what_the_record_does_not_have_is_said_and_what_did_not_come_too(conversation: Path) -> None:
    broker = RecordedBroker(Recording(conversation))
    with pytest.raises(Refused, match="DescribeGroups is not in the record"):
        broker.answer(request("DescribeGroups", 5, {}), Caller("127.0.0.1", 1))
    *found, missing, sums = broker.end().lines()
    assert found[0] == "connection 1, request 1, DescribeGroups 5: the record has no request of this API"
    assert missing == "1 recorded request of SyncGroup did not come"
    assert sums.startswith("1 request, 0 frames compared: ")


def test_a_member_id_that_the_client_chose_is_in_its_responses(tmp_path: Path) -> None:
    def beat(member: str) -> dict[str, Any]:
        topics = {"subscribedTopicNames": [TOPIC], "topicPartitions": []}
        return {"groupId": "g", "memberId": member, "memberEpoch": 0, "rebalanceTimeoutMs": 1000, **topics}

    async def one(proxy: Any) -> None:
        async with at(proxy) as client:
            said = await client.ask("ConsumerGroupHeartbeat", 1, beat("old"))
            assert said["memberId"] == "old"

    recorded(tmp_path / "out", one)
    broker = RecordedBroker(Recording(tmp_path / "out"))
    assert asked(broker, "ConsumerGroupHeartbeat", 1, beat("new"))["memberId"] == "new"
    assert broker.end().is_same


def test_a_recording_without_responses_cannot_be_played_to_clients(tmp_path: Path) -> None:
    first = {"format": "kfuzz-conversation/1", "brokers": []}
    (tmp_path / CONVERSATION).write_text(json.dumps(first) + "\n")
    with pytest.raises(UsageError, match="has no response, so there is nothing to play"):
        RecordedBroker(Recording(tmp_path))


def test_a_version_that_no_release_has_is_refused(conversation: Path) -> None:
    broker = RecordedBroker(Recording(conversation))
    with pytest.raises(Refused, match="no release that kfuzz knows has Metadata 99"):
        broker.answer(HEAD.pack(3, 99, 7) + b"\xff\xff", Caller("127.0.0.1", 1))
    [first, *_] = broker.end().lines()
    assert first == "connection 1, request 1, Metadata 99: no release that kfuzz knows has this API at this version"


def test_a_recording_without_responses_cannot_be_compared(tmp_path: Path) -> None:
    first = {"format": "kfuzz-conversation/1", "brokers": []}
    (tmp_path / CONVERSATION).write_text(json.dumps(first) + "\n")
    with pytest.raises(UsageError, match="nothing to compare"):
        asyncio.run(play_clients(Recording(tmp_path), Settings(Address("127.0.0.1", 9))))


def test_recorded_frames_that_belong_to_no_request_are_counted(conversation: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(conversation, damaged)
    [*_, last] = sorted(damaged.glob("*.responses"))
    # The size and the correlation id of its first response.
    data = bytearray(last.read_bytes())
    data[4:8] = b"\xff\xff\xff\xff"
    last.write_bytes(data)
    made = played(damaged)
    assert made.unread == 1
    assert "1 recorded frame left out: no frame, or a response without a request" in made.lines()


# ------------------------------------------------------------------------------------- whole clients


def findings(shown: dict[str, Any]) -> list[Any]:
    """The findings of all frames of a list."""
    sides = [side for frame in shown["frames"] for side in (frame, frame["answer"] or {})]
    return [one for side in sides for one in side.get("findings", [])]


@contextlib.contextmanager
def fresh_brokers() -> Iterator[str]:
    """Brokers with two empty topics."""
    with kfuzz.cluster(3) as brokers:
        for topic in ("t", "i"):
            brokers.topic(topic)
        yield brokers.bootstrap


@pytest.mark.full
@pytest.mark.parametrize(
    ("writes", "reads"),
    [
        (aiokafka_writes, aiokafka_reads),
        (kafka_python_writes, kafka_python_reads),
        (librdkafka_writes, librdkafka_reads),
        (librdkafka_writes, librdkafka_reads_in_a_newer_group),
    ],
)
def test_the_conversation_of_a_client_is_read_strictly_and_played_to_both_sides(
    tmp_path: Path, writes: Writes, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idempotent and transactional producers, and a consumer in a group."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    monkeypatch.setattr(test_clients, "move", lambda brokers, number: None)
    folder = tmp_path / "out"
    with fresh_brokers() as address, kfuzz.proxy(address, record=folder) as proxy:
        assert (writes(proxy), reads(proxy)) == ([0, 1, 2], COMMITTED)
    shown = json.loads(run_kfuzz("show", "--frames", folder, "--profile", "strict", "--json")[1])
    assert (findings(shown), shown["strays"], shown["refused"]) == ([], 0, 0)
    with fresh_brokers() as address:
        made = asyncio.run(play_clients(Recording(folder), Settings(Address.parse(address.split(",")[0]))))
    assert list(made.lines())[:-1] == []
    assert made.compared > 30
    broker = RecordedBroker(Recording(folder))
    with LocalCluster(ServeSettings(brokers=len(broker.places)), broker) as place:
        assert (writes(place), reads(place)) == ([0, 1, 2], COMMITTED)


@pytest.mark.java
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("writes", "reads"),
    [(kafka_python_writes, kafka_python_reads), (librdkafka_writes, librdkafka_reads_in_a_newer_group)],
)
def test_nothing_differs_with_a_fresh_apache_kafka(
    tmp_path: Path, writes: Writes, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topics, members and cluster have other ids, and its coordinators need a while to begin."""
    import kafka.admin

    monkeypatch.setattr(test_clients, "move", lambda brokers, number: None)
    for tool in ("java", "mvn"):
        require_tool(tool, "install a JDK of version 17 or newer and Maven")
    for is_recorded in (False, True):
        with RealBroker(SETTINGS) as broker:
            address = f"127.0.0.1:{broker.port}"
            admin = kafka.admin.KafkaAdminClient(bootstrap_servers=address)
            admin.create_topics([kafka.admin.NewTopic(name, 1, 1) for name in ("t", "i")])
            admin.close()
            if is_recorded:
                made = asyncio.run(play_clients(Recording(tmp_path / "out"), Settings(Address.parse(address))))
                assert list(made.found.values()) == []
                assert made.compared > 30
                continue
            with kfuzz.proxy(address, record=tmp_path / "out") as proxy:
                assert (writes(proxy), reads(proxy)) == ([0, 1, 2], COMMITTED)
    shown = json.loads(run_kfuzz("show", "--frames", tmp_path / "out", "--profile", "strict", "--json")[1])
    assert findings(shown) == []
