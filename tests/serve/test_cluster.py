"""The brokers do this on demand: sessions, limits, throttling, the version fallback, leaders that move, epochs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from typing import Any

import pytest
from made_segments import batch
from serve.asking import Client, asked, fed, fetch_of, request, served, sized, topics, with_topics, writes

from kfuzz import records
from kfuzz.broker_errors import ERROR_CODES, ERROR_NAMES
from kfuzz.errors import UsageError
from kfuzz.serve import Broker, Server, Settings
from kfuzz.serve.cluster import Caller, Refused

ONE, TWO = Caller("127.0.0.1", 1, 1), Caller("127.0.0.1", 2, 2)


def fetch(
    broker: Broker, wanted: list[tuple[str, int]], caller: Caller = ONE, version: int = 12, **values: Any
) -> dict[str, Any]:
    limit = values.pop("partitionMaxBytes", 1 << 20)
    more = values.pop("partition", {})
    given = [
        {"topic": name, "partitions": [{"partition": 0, "fetchOffset": offset, "partitionMaxBytes": limit, **more}]}
        for name, offset in wanted
    ]
    return asked(broker, "Fetch", version, {"topics": given, **values}, caller)


def first(got: dict[str, Any]) -> dict[str, Any]:
    partition: dict[str, Any] = got["responses"][0]["partitions"][0]
    return partition


def test_a_port_of_a_further_broker_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server

    def taken(address: tuple[str, int], **more: Any) -> socket.socket:
        if address[1] == 3:
            raise OSError(errno.EADDRINUSE, "")
        return create((address[0], 0), **more)

    async def opened() -> None:
        async with Server(topics(), Settings(port=1, brokers=3)):
            pass

    monkeypatch.setattr("socket.create_server", taken)
    with pytest.raises(UsageError, match=r"^port 3 of 127\.0\.0\.1 cannot be opened: another program uses it; "):
        asyncio.run(opened())


# -- limits


def test_the_limits_of_a_fetch_cut_a_log_but_never_its_first_batch() -> None:
    small, large = batch(0), batch(1, value=b"x" * 500)
    broker = with_topics({"topic": "t", "steps": [(small + large).hex()]}, {"topic": "u", "steps": [small.hex()]})

    def sizes(offset: int, limit: int, whole: int = 1 << 20) -> list[int]:
        got = fetch(broker, [("t", offset), ("u", 0)], partitionMaxBytes=limit, maxBytes=whole)["responses"]
        return [len(one["partitions"][0]["records"]) for one in got]

    both = len(small) + len(large)
    assert sizes(0, 1 << 20) == [both, len(small)]
    # The second batch is cut, as a broker cuts it.
    assert sizes(0, len(small) + 100) == [len(small) + 100, len(small)]
    assert sizes(0, 1) == [len(small), 0]
    # Too large for the limit, but the first of the answer.
    assert sizes(1, 100) == [len(large), len(small)]
    assert sizes(0, 1 << 20, both) == [both, 0]


def test_a_written_log_is_served_from_the_batch_with_the_offset_and_in_parts() -> None:
    broker = with_topics({"topic": "t", "produce": True})
    for _ in range(3):
        asked(broker, "Produce", 9, writes(batch(0)), ONE)
    size = len(batch(0))
    got = [len(first(fetch(broker, [("t", offset)]))["records"]) for offset in (0, 1, 2, 3)]
    assert got == [3 * size, 2 * size, size, 0]
    assert len(first(fetch(broker, [("t", 0)], partitionMaxBytes=size + 10))["records"]) == size + 10


@pytest.mark.parametrize("form", ["hex", "steps"])
def test_one_answer_is_cut_on_demand(form: str) -> None:
    data = (batch(0) + batch(1)).hex()
    broker = with_topics({"topic": "t", form: data if form == "hex" else [data], "cut_bytes": 100})
    assert [len(first(fetch(broker, [("t", 0)]))["records"]) for _ in range(2)] == [100, len(data) // 2]
    fed(broker.cluster, {"topic": "t", "cut_bytes": 5})
    assert len(first(fetch(broker, [("t", 0)]))["records"]) == 5


# -- how the brokers behave


@served()
async def test_a_throttled_client_is_told_so_and_waits_for_its_next_answer(server: Server) -> None:
    fed(server.broker.cluster, {"topic": "t", "hex": batch(0).hex()}, {"broker": {"throttle_ms": 50}})
    async with Client(server) as client:
        got = await client.ask("Fetch", 12, fetch_of("t", 12, b"", 0))
        assert got["throttleTimeMs"] == 0
        assert first(got)["records"]
        began = time.monotonic()
        got = await client.ask("Fetch", 12, fetch_of("t", 12, b"", 1))
        assert got["throttleTimeMs"] == 50
        await client.ask("ApiVersions", 0, {})
        assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize(("acks", "wait_ms"), [(-1, 50), (0, 0)])
def test_a_slow_broker_holds_back_its_answers_to_produce(acks: int, wait_ms: int) -> None:
    broker = with_topics({"topic": "t", "produce": True}, {"broker": {"produce_ms": 50}})
    assert broker.answer(request("Produce", 9, writes(batch(0), acks)), ONE).wait_ms == wait_ms
    assert broker.answer(request("ApiVersions", 0, {}), ONE).wait_ms == 0


def test_versions_above_the_highest_that_a_broker_is_given_are_neither_listed_nor_answered() -> None:
    broker = with_topics({"topic": "t", "hex": batch(0).hex()})
    highest = {"Fetch": 11, "Metadata": 9}
    lines = {"broker": {"versions": highest}}, {"broker": {"versions": {"Fetch": 99}}}
    assert fed(broker.cluster, *lines)[0]["broker"]["versions"] == highest
    listed = {one["apiKey"]: one["maxVersion"] for one in asked(broker, "ApiVersions", 3, {}, ONE)["apiKeys"]}
    assert (listed[1], listed[3]) == (11, 9)
    assert first(fetch(broker, [("t", 0)], version=11))["records"] == batch(0)
    with pytest.raises(Refused, match="version 12 of Fetch is not offered"):
        fetch(broker, [("t", 0)], version=12)
    assert fed(broker.cluster, {"broker": {}})[0]["not_offered"] == "version 12 of Fetch"


@served("the answer is lost, as asked for", "as asked for", "1 more connection closed: requests to write", brokers=2)
async def test_a_broker_ends_on_demand_when_it_loses_an_answer_and_another_one_takes_its_place(server: Server) -> None:
    lines = {"topic": "t", "produce": True, "errors": ["NETWORK_EXCEPTION"] * 2}, {"broker": {"ends": True}}
    fed(server.broker.cluster, *lines)
    first_port, second_port = server.broker.cluster.ports.values()
    produce = writes(batch(0))
    sent = sized(request("Produce", 9, produce))
    async with Client(server, first_port) as client, Client(server, first_port) as idle:
        assert await client.is_closed_after(sent)
        assert await idle.is_closed_after(b"")
    with pytest.raises(ConnectionRefusedError):
        await Client(server, first_port).__aenter__()
    async with Client(server, second_port) as client:
        got = await client.ask("Metadata", 12, {"topics": [{"name": "t"}]})
        assert [one["nodeId"] for one in got["brokers"]] == [2]
        assert got["topics"][0]["partitions"][0]["leaderId"] == 2
        got = await client.ask("FindCoordinator", 4, {"keyType": 1, "coordinatorKeys": ["x"]})
        assert got["coordinators"][0]["nodeId"] == 2
        # The last broker only closes the connection.
        assert await client.is_closed_after(sent)
    async with Client(server, second_port) as client:
        assert (await client.ask("Produce", 9, produce))["responses"][0]["partitionResponses"][0]["errorCode"] == 0


def test_an_older_broker_answers_api_versions_in_version_0_and_the_client_asks_again() -> None:
    broker = Broker(topics())
    broker.cluster.api_versions_fallback = True
    caller = Caller("127.0.0.1", 1)

    def body(version: int) -> bytes:
        data = broker.answer(request("ApiVersions", version, {}), caller).data
        assert data is not None
        return data[4:]

    refusal = bytes.fromhex("0023 00000001 0012 0000 0003")
    assert body(4) == refusal
    assert body(4) == refusal
    assert body(3)[:2] == bytes(2)
    # A client whose newest version is 3 falls back once, too.
    caller = Caller("127.0.0.1", 1)
    assert (body(3), body(3)[:2], body(0)[:2]) == (refusal, bytes(2), bytes(2))
    keys = asked(broker, "ApiVersions", 3, {}, caller)["apiKeys"]
    assert [one["maxVersion"] for one in keys if one["apiKey"] == 18] == [3]


# -- fetch sessions


def session_of(broker: Broker, *names: str) -> int:
    got = fetch(broker, [(name, 0) for name in names], sessionEpoch=0)
    number: int = got["sessionId"]
    return number


def test_a_fetch_session_tells_only_what_is_new() -> None:
    broker = with_topics(
        {"topic": "a", "steps": [batch(0).hex()]}, {"topic": "b", "produce": True}, {"broker": {"fetch_sessions": True}}
    )
    session = session_of(broker, "a", "b")
    assert session > 0

    def told(epoch: int, *wanted: tuple[str, int], **values: Any) -> list[str]:
        got = fetch(broker, list(wanted), sessionId=session, sessionEpoch=epoch, **values)
        assert (got["errorCode"], got["sessionId"]) == (0, session)
        return [one["topic"] for one in got["responses"]]

    assert told(1) == ["a"]  # It has records at the offset that the session knows.
    assert told(2, ("a", 1)) == []
    asked(broker, "Produce", 9, writes(batch(0), topic="b"), ONE)
    assert told(3) == ["b"]
    assert told(4, ("a", 0), ("b", 1)) == ["a"]
    assert told(5, forgottenTopicsData=[{"topic": "a", "partitions": [0]}]) == []
    assert told(6, ("a", 1)) == ["a"]  # New in the session again.
    assert told(7, ("none", 0)) == ["none"]


def test_a_session_that_is_not_there_or_asked_out_of_order_is_refused() -> None:
    broker = with_topics({"topic": "a", "hex": batch(0).hex()})
    assert session_of(broker, "a") == 0
    broker.cluster.fetch_sessions = True
    session = session_of(broker, "a")

    def refusal(session: int, epoch: int) -> str:
        return ERROR_NAMES[fetch(broker, [], sessionId=session, sessionEpoch=epoch)["errorCode"]]

    assert refusal(session, 2) == "INVALID_FETCH_SESSION_EPOCH"
    assert refusal(99, 1) == "FETCH_SESSION_ID_NOT_FOUND"
    closed = fetch(broker, [("a", 0)], sessionId=session, sessionEpoch=-1)
    assert (closed["errorCode"], closed["sessionId"], len(closed["responses"])) == (0, 0, 1)
    assert refusal(session, 1) == "FETCH_SESSION_ID_NOT_FOUND"
    # A client whose connection was lost closes it again, and may begin another one with that.
    assert refusal(session, -1) == ERROR_NAMES[0]
    assert fetch(broker, [("a", 0)], sessionId=session, sessionEpoch=0)["sessionId"] not in (0, session)


def test_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfuzz.serve.fetching.ELEMENTS_MAX", 3)
    broker = with_topics({"topic": "a", "hex": ""}, {"topic": "b", "hex": ""}, {"broker": {"fetch_sessions": True}})
    old, new = session_of(broker, "a", "b"), session_of(broker, "a", "b")
    assert [fetch(broker, [], sessionId=one, sessionEpoch=1)["errorCode"] for one in (old, new)] == [70, 0]


# -- leaders and coordinators


def test_a_moved_partition_is_led_by_another_broker_in_a_new_epoch() -> None:
    broker = with_topics({"topic": "t", "produce": True})
    assert fed(broker.cluster, {"move": "t", "to": 2}) == [{"topic": "t", "leader": 2, "leader_epoch": 1}]
    answer = asked(broker, "Metadata", 12, {"topics": None}, ONE)
    assert [(one["nodeId"], one["port"]) for one in answer["brokers"]] == [(1, 1), (2, 2), (3, 3)]
    [partition] = answer["topics"][0]["partitions"]
    assert (partition["leaderId"], partition["leaderEpoch"], partition["isrNodes"]) == (2, 1, [1, 2, 3])
    assert [first(fetch(broker, [("t", 0)], one))["errorCode"] for one in (ONE, TWO)] == [6, 0]
    for caller, error in ((ONE, 6), (TWO, 0)):
        got = asked(broker, "Produce", 9, writes(batch(0)), caller)["responses"][0]
        assert got["partitionResponses"][0]["errorCode"] == error
    for epoch, name in ((0, "FENCED_LEADER_EPOCH"), (2, "UNKNOWN_LEADER_EPOCH")):
        stale = fetch(broker, [("t", 0)], TWO, partition={"currentLeaderEpoch": epoch})
        assert first(stale)["errorCode"] == ERROR_CODES[name]
    [stored] = records.decode(first(fetch(broker, [("t", 0)], TWO))["records"])
    assert stored.partition_leader_epoch == 1


def test_a_moved_coordinator_is_found_and_the_others_refuse() -> None:
    broker = with_topics({"coordinator": "g", "to": 2}, {"coordinator": "x", "to": 3})
    found = asked(broker, "FindCoordinator", 4, {"coordinatorKeys": ["g", "x", "other"]}, ONE)["coordinators"]
    assert [one["nodeId"] for one in found] == [2, 3, 1]
    join = {"groupId": "g", "protocolType": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    assert [asked(broker, "JoinGroup", 5, join, one)["errorCode"] for one in (ONE, TWO)] == [16, 0]
    end = {"transactionalId": "x", "producerId": 1, "producerEpoch": 0}
    offsets = {"groups": [{"groupId": "g", "topics": None}]}
    assert asked(broker, "InitProducerId", 4, {"transactionalId": "x"}, ONE)["errorCode"] == 16
    assert asked(broker, "EndTxn", 3, end, ONE)["errorCode"] == 16
    assert asked(broker, "OffsetFetch", 8, offsets, ONE)["groups"][0]["errorCode"] == 16


@pytest.mark.parametrize(
    "line", [{"move": "t", "to": 4}, {"move": "no", "to": 1}, {"coordinator": "g", "to": 0}, {"broker": {"x": 1}}]
)
def test_a_wrong_command_changes_nothing(line: dict[str, Any]) -> None:
    broker = with_topics({"topic": "t", "hex": ""})
    assert list(fed(broker.cluster, line)[0]) == ["error"]
    assert (broker.cluster.topics.by_name["t"].partitions[0].leader, broker.cluster.coordinators) == (1, {})


@served(brokers=3)
async def test_three_brokers_are_ready_at_once_and_each_answers_for_itself(server: Server) -> None:
    ports = server.broker.cluster.ports
    assert len(set(ports.values())) == len(ports) == 3
    name = next(iter(server.broker.cluster.topics)).name
    errors = []
    for node, port in ports.items():
        async with Client(server, port) as client:
            metadata = await client.ask("Metadata", 12, {"topics": []})
            assert {one["nodeId"]: one["port"] for one in metadata["brokers"]} == ports
            fed(server.broker.cluster, {"move": name, "to": node})
            errors.append(first(await client.ask("Fetch", 12, fetch_of(name, 12, b"", 0)))["errorCode"])
    assert errors == [0, 0, 0]


def test_the_brokers_of_a_cluster_have_the_ports_after_the_given_one() -> None:
    async def ports() -> dict[int, int]:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        async with Server(topics(), Settings(port=port, brokers=2)) as server:
            assert server.broker.cluster.ports == {1: port, 2: port + 1}
            return server.broker.cluster.ports

    for _ in range(20):
        # Another program may have one of the two.
        with contextlib.suppress(UsageError):
            assert asyncio.run(ports())
            return
    pytest.fail("no two ports are free")


# -- epochs


def epoch_end(broker: Broker, epoch: int, current: int = -1) -> tuple[int, int, int]:
    partition = {"partition": 0, "currentLeaderEpoch": current, "leaderEpoch": epoch}
    got = asked(broker, "OffsetForLeaderEpoch", 4, {"topics": [{"topic": "t", "partitions": [partition]}]}, ONE)
    [one] = got["topics"][0]["partitions"]
    return one["errorCode"], one["leaderEpoch"], one["endOffset"]


def test_a_log_of_a_later_epoch_shows_where_a_client_has_to_go_back_to() -> None:
    old = b"".join(batch(offset, partition_leader_epoch=1) for offset in range(3)).hex()
    new = (batch(0, partition_leader_epoch=1) + batch(1, value=b"other", partition_leader_epoch=3)).hex()
    broker = with_topics({"topic": "t", "hex": old, "leader_epoch": 1})
    assert epoch_end(broker, 1) == (0, 1, 3)
    fed(broker.cluster, {"topic": "t", "hex": new, "leader_epoch": "4"})
    ends = [(-1, -1), (0, 0), (1, 1), (1, 1), (3, 2), (4, 2), (-1, -1)]
    assert [epoch_end(broker, epoch) for epoch in range(-1, 6)] == [(0, *end) for end in ends]
    assert epoch_end(broker, 1, current=1)[0] == ERROR_CODES["FENCED_LEADER_EPOCH"]

    def diverging(offset: int, epoch: int) -> tuple[int, int, int, bool]:
        got = first(fetch(broker, [("t", offset)], partition={"lastFetchedEpoch": epoch}))
        where = got.get("divergingEpoch", {"epoch": -1, "endOffset": -1})
        return got["errorCode"], where["epoch"], where["endOffset"], bool(got["records"])

    assert diverging(3, 1) == (0, 1, 1, False)
    assert diverging(1, 1) == (0, -1, -1, True)
    assert diverging(3, 9)[0] == ERROR_CODES["OFFSET_OUT_OF_RANGE"]


def test_the_epochs_of_vectors_send_nobody_back() -> None:
    broker = with_topics({"topic": "t", "hex": batch(0, partition_leader_epoch=7).hex()})
    assert epoch_end(broker, 7, current=7) == (0, 7, 1)
    assert first(fetch(broker, [("t", 0)], partition={"lastFetchedEpoch": 9, "currentLeaderEpoch": 7}))["records"]
