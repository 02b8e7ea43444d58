"""Recorded clients are played to a fresh broker, recorded brokers to a fresh client, and what differs is found."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from cli.cli_driver import outcome as run_kfuzz
from conformance.conversation import SETTINGS
from conftest import require_tool
from relay.conversing import TOPIC, everything, joins, reads, recorded, recorded_client, served, talk, writes
from relay.framing import exchange, frame
from relay.proxied import Ends
from serve import test_clients as clients
from serve.asking import SECONDS_MAX, Client, asked, request, started

import kfuzz
from kfuzz.client.address import Access, Address
from kfuzz.conformance.broker.real import Broker as RealBroker
from kfuzz.errors import UsageError
from kfuzz.relay import playback
from kfuzz.relay.frames import HEAD, Frame
from kfuzz.relay.identities import Identities
from kfuzz.relay.local import LocalCluster
from kfuzz.relay.playback import Outcome, RecordedBroker, play_clients
from kfuzz.relay.recording import CONVERSATION, Recording
from kfuzz.relay.rule import parse_rule
from kfuzz.serve import Server, Settings, Topics
from kfuzz.serve.cluster import Caller, Refused


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded with a broker that already had a transaction and a member."""
    folder = tmp_path_factory.mktemp("recorded") / "out"
    recorded(folder, everything)
    return folder


async def played_to(server: Server, folder: Path, timeout_ms: int = 5000) -> Outcome:
    return await play_clients(Recording(folder), Access(Address(server.host, server.port), timeout_ms=timeout_ms))


def played(folder: Path, *lines: bytes, timeout_ms: int = 5000) -> Outcome:
    """Play the clients to a fresh broker that has its topic."""
    made: Outcome = asyncio.run(served(lambda server: played_to(server, folder, timeout_ms), *lines))
    return made


SAME = "13 requests, 13 frames compared: nothing differs"


@pytest.mark.parametrize(
    "earlier",
    [pytest.param("", id="a fresh broker"), pytest.param("yxx", id="other ids, epochs, offsets, generations")],
)
def test_nothing_differs_and_all_is_written(conversation: Path, earlier: str) -> None:
    async def scenario(server: Server) -> Outcome:
        async with Client(server) as client:
            for transaction in earlier:
                await writes(client, transaction=transaction)
                await joins(client)
            made = await played_to(server, conversation)
            assert await reads(client, 0) == [b"v"] * (1 + len(earlier))
            return made

    assert list(asyncio.run(served(scenario)).lines()) == [SAME]


def test_a_difference_is_shown_with_its_path_and_both_values(conversation: Path) -> None:
    made = played(conversation, b'{"topic": "t", "produce": true, "errors": ["NOT_LEADER_OR_FOLLOWER"]}')
    first = next(iter(made.found.values()))
    path = "responses[0].partitionResponses[0].errorCode"
    assert str(first) == f"connection 1, response 6, Produce 9: {path} is 6; in the record it is 0"
    assert first.to_json().items() >= {"path": path, "recorded": "0", "fresh": "6"}.items()
    assert not made.is_same


def test_an_id_that_became_another_and_is_the_recorded_one_again_is_said_in_words() -> None:
    def produced(offset: int) -> Frame:
        topics = [{"name": "t", "partitionResponses": [{"index": 0, "baseOffset": offset}]}]
        return frame(exchange("Produce", 9), "response", {"responses": topics})

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
    assert [(one.exchange.name, one.count) for one in made.found.values()] == [("ApiVersions", 3)]
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
    # The system accepts the connections, but no program reads from them.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = Access(Address(*silent.getsockname()), timeout_ms=50)
        made = asyncio.run(play_clients(Recording(conversation), place))
    assert {one.what for one in made.found.values()} == {
        "none came within 0.05 s; what follows on this connection is left out"
    }
    assert made.total == 2


def test_a_request_is_sent_again_while_the_broker_is_not_ready(
    conversation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playback, "AGAIN_MS", 1)

    def with_errors(*errors: str, timeout_ms: int) -> Outcome:
        line = json.dumps({"topic": TOPIC, "produce": True, "errors": errors})
        return played(conversation, line.encode(), timeout_ms=timeout_ms)

    made = with_errors("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", timeout_ms=5000)
    assert list(made.lines()) == [SAME]
    # It ends at some time.
    endless = with_errors(*["COORDINATOR_LOAD_IN_PROGRESS"] * 999, timeout_ms=300)
    first = next(iter(endless.found.values()))
    assert (first.exchange.name, first.recorded, first.fresh) == ("Produce", 0, 14)


async def coordinator(client: Client, *groups: str) -> list[int]:
    """The errors of looking for the coordinators of these groups, one after another."""
    said = [await client.ask("FindCoordinator", 4, {"coordinatorKeys": [group]}) for group in groups]
    return [one["coordinators"][0]["errorCode"] for one in said]


def test_a_request_that_the_recorded_client_sent_again_is_sent_once(tmp_path: Path) -> None:
    async def again(client: Client) -> None:
        assert await coordinator(client, "g", "g", "g") == [15, 15, 0]

    rule = parse_rule("FindCoordinator error=COORDINATOR_NOT_AVAILABLE times=2")
    recorded_client(tmp_path / "out", again, rules=(rule,))
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
        async with Server(Topics(), Settings(), broker=broker) as server:
            await talk(lambda: Client(server))
            await asyncio.wait_for(broker.done.wait(), 10)
            async with Client(server) as other:
                said = await other.ask("Metadata", 12, {"topics": [{"name": TOPIC}]})
            assert said["brokers"] == [{"nodeId": 1, "host": server.host, "port": server.port, "rack": None}]
        return broker

    [found] = asyncio.run(scenario()).end().found.values()
    assert str(found) == (
        "connection 3, request 1, Metadata 12: the record has fewer of these; a response is given again"
    )


@pytest.mark.full
def test_the_command_that_listens_ends_with_its_client(conversation: Path) -> None:
    with started("play", str(conversation), "--listen", "0", "--json") as (process, first):
        [(_, place)] = json.loads(first)["brokers"].items()
        port = place.partition(":")[2]
        asyncio.run(talk(lambda: Ends(int(port))))
        out, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0
    sums = {"requests": 13, "left_out": 0, "unread": 0, "compared": 13, "differences": 0}
    assert json.loads(out) == sums | {"found": [], "missing": {}}


def test_a_request_of_another_version_gets_the_response_in_its_own(conversation: Path) -> None:
    broker = RecordedBroker(Recording(conversation))
    for version in (0, 4, 13):
        broker.outcome = Outcome()
        said = asked(broker, "Metadata", version, {"topics": [{"name": TOPIC}]})
        assert [one["name"] for one in said["topics"]] == [TOPIC]


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        pytest.param("ba", [], id="the response of the request that asked most alike"),
        pytest.param("aab", ["the record has fewer of these; a response is given again"], id="given again"),
    ],
)
def test_a_response_is_about_what_the_request_asked_for(tmp_path: Path, groups: str, found: list[str]) -> None:
    recorded_client(tmp_path / "out", lambda client: coordinator(client, "a", "b"))
    broker = RecordedBroker(Recording(tmp_path / "out"))
    for group in groups:
        said = asked(broker, "FindCoordinator", 4, {"coordinatorKeys": [group]})
        assert said["coordinators"][0]["key"] == group
    assert [one.what for one in broker.end().found.values()] == found
    again = broker.answer(request("FindCoordinator", 4, {"coordinatorKeys": ["b"]}), Caller("127.0.0.1", 1))
    # So a client that polls does not use up the processor.
    assert again.wait_ms >= 100


def test_a_member_gets_the_assignment_that_it_asked_for(tmp_path: Path) -> None:
    async def twice(client: Client) -> None:
        for assignment in (b"early", b"late"):
            await joins(client, assignment)

    recorded_client(tmp_path / "out", twice)
    broker = RecordedBroker(Recording(tmp_path / "out"))
    asks = {"groupId": "g", "memberId": "m", "assignments": [{"memberId": "m", "assignment": b"late"}]}
    assert asked(broker, "SyncGroup", 3, asks)["assignment"] == b"late"


@pytest.mark.parametrize(
    ("frame", "refused", "what"),
    [
        (request("DescribeGroups", 5, {}), "DescribeGroups is not in the record",
         "DescribeGroups 5: the record has no request of this API"),
        (HEAD.pack(3, 99, 7) + b"\xff\xff", "no release that kfuzz knows has Metadata 99",
         "Metadata 99: no release that kfuzz knows has this API at this version"),
    ],
)  # fmt: skip
def test_what_the_record_does_not_have_is_said_and_what_did_not_come_too(
    conversation: Path, frame: bytes, refused: str, what: str
) -> None:
    broker = RecordedBroker(Recording(conversation))
    with pytest.raises(Refused, match=refused):
        broker.answer(frame, Caller("127.0.0.1", 1))
    said = list(broker.end().lines())
    assert said[0] == f"connection 1, request 1, {what}"
    assert said[-2] == "1 recorded request of SyncGroup did not come"
    assert said[-1].startswith("1 request, 0 frames compared: ")


def test_a_member_gets_the_id_that_it_chose_and_its_heartbeats_are_answered(tmp_path: Path) -> None:
    def beat(member: str) -> dict[str, Any]:
        return {"groupId": "g", "memberId": member, "subscribedTopicNames": [TOPIC], "topicPartitions": []}

    async def old(client: Client) -> None:
        assert (await client.ask("ConsumerGroupHeartbeat", 1, beat("old")))["memberId"] == "old"

    recorded_client(tmp_path / "out", old)
    broker = RecordedBroker(Recording(tmp_path / "out"))
    assert asked(broker, "ConsumerGroupHeartbeat", 1, beat("new"))["memberId"] == "new"
    # The record has none of these.
    assert asked(broker, "Heartbeat", 4, {})["errorCode"] == 0
    assert broker.end().is_same


def test_a_recording_without_responses_cannot_be_played(tmp_path: Path) -> None:
    (tmp_path / CONVERSATION).write_text('{"format": "kfuzz-conversation/1", "brokers": []}\n')
    with pytest.raises(UsageError, match="has no response, so there is nothing to play"):
        RecordedBroker(Recording(tmp_path))
    with pytest.raises(UsageError, match="nothing to compare"):
        asyncio.run(play_clients(Recording(tmp_path), Access(Address("127.0.0.1", 9))))


def test_recorded_frames_that_belong_to_no_request_are_counted(tmp_path: Path) -> None:
    twice = parse_rule("FindCoordinator duplicate=true")
    recorded_client(tmp_path / "out", lambda client: coordinator(client, "g"), rules=(twice,))
    made = played(tmp_path / "out")
    assert made.unread == 1
    assert "1 recorded frame left out: no frame, or a response without a request" in made.lines()


# ------------------------------------------------------------------------------------- whole clients


WRITES_AND_READS = {
    "aiokafka": (clients.aiokafka_writes, clients.aiokafka_reads),
    "kafka-python": (clients.kafka_python_writes, clients.kafka_python_reads),
    "librdkafka": (clients.librdkafka_writes, clients.librdkafka_reads),
    "librdkafka, newer group": (clients.librdkafka_writes, clients.librdkafka_reads_in_a_newer_group),
}


def talks(client: str, place: Any) -> None:
    """Idempotent and transactional producers, and a consumer in a group."""
    writes, reads = WRITES_AND_READS[client]
    assert (writes(place), reads(place)) == ([0, 1, 2], clients.COMMITTED)


def recorded_and_played(
    client: str, folder: Path, fresh: Callable[[], AbstractContextManager[str]]
) -> tuple[dict[str, Any], Outcome]:
    """Record a client, read its frames strictly, and play it to other fresh brokers."""
    with fresh() as address, kfuzz.proxy(address, record=folder) as proxy:
        talks(client, proxy)
    shown = json.loads(run_kfuzz("show", "--frames", folder, "--profile", "strict", "--json")[1])
    sides = [side for frame in shown["frames"] for side in (frame, frame["answer"] or {})]
    assert [one for side in sides for one in side.get("findings", [])] == []
    with fresh() as address:
        made = asyncio.run(play_clients(Recording(folder), Access(Address.parse(address.split(",")[0]))))
    assert list(made.found.values()) == []
    assert made.compared > 30
    return shown, made


@contextlib.contextmanager
def fresh_brokers() -> Iterator[str]:
    """Brokers with two empty topics."""
    with kfuzz.cluster(3) as brokers:
        for topic in ("t", "i"):
            brokers.topic(topic)
        yield brokers.bootstrap


@contextlib.contextmanager
def fresh_kafka() -> Iterator[str]:
    """Its topics, members and cluster have other ids, and its coordinators need a while to begin."""
    import kafka.admin

    with RealBroker(SETTINGS) as broker:
        address = f"127.0.0.1:{broker.port}"
        admin = kafka.admin.KafkaAdminClient(bootstrap_servers=address)
        admin.create_topics([kafka.admin.NewTopic(name, 1, 1) for name in ("t", "i")])
        admin.close()
        yield address


@pytest.mark.full
@pytest.mark.parametrize("client", WRITES_AND_READS)
def test_the_conversation_of_a_client_is_read_strictly_and_played_to_both_sides(
    tmp_path: Path, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    monkeypatch.setattr(clients, "move", lambda brokers, number: None)
    shown, made = recorded_and_played(client, tmp_path / "out", fresh_brokers)
    assert (shown["strays"], shown["refused"]) == (0, 0)
    assert list(made.lines())[:-1] == []
    broker = RecordedBroker(Recording(tmp_path / "out"))
    with LocalCluster(Settings(brokers=len(broker.places)), broker) as place:
        talks(client, place)


@pytest.mark.java
@pytest.mark.nightly
@pytest.mark.parametrize("client", ["kafka-python", "librdkafka, newer group"])
def test_nothing_differs_with_a_fresh_apache_kafka(
    tmp_path: Path, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "move", lambda brokers, number: None)
    for tool in ("java", "mvn"):
        require_tool(tool, "install a JDK of version 17 or newer and Maven")
    recorded_and_played(client, tmp_path / "out", fresh_kafka)
