"""Rules of a proxy in front of `kfuzz serve`: what a raw client and the broker see."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest
from relay.proxied import asking, before, codes, counts, proxied, through
from serve.asking import MINIMAL, Client, fed, fetch_of, request, response, topics

from kfuzz.relay import pipe
from kfuzz.relay.frames import api_key
from kfuzz.relay.pipe import framed
from kfuzz.relay.proxy import Proxy
from kfuzz.relay.rule import parse_rule
from kfuzz.serve.answers import released
from kfuzz.vectors import find_vector

NAME = MINIMAL.replace("/", ".")
BATCH = find_vector(MINIMAL).data


def versions_request(number: int) -> bytes:
    return framed(request("ApiVersions", 0, {}, number))


def heartbeat(number: int) -> bytes:
    return framed(request("Heartbeat", 4, {"groupId": "g", "generationId": 1, "memberId": "m"}, number))


def produce_without_acks(number: int) -> bytes:
    data = {"name": "written", "partitionData": [{"index": 0, "records": BATCH}]}
    return framed(request("Produce", 9, {"acks": 0, "topicData": [data]}, number))


def slow_fetch(number: int) -> bytes:
    """The broker waits with its answer."""
    return framed(request("Fetch", 12, fetch_of(NAME, 12, b"", 1, max_wait_ms=50), number))


async def number_of_next(client: Client) -> int:
    """The correlation id of the next frame."""
    return int.from_bytes((await client.answer())[:4], "big")


FRAMES = {"B": heartbeat, "V": versions_request, "P": produce_without_acks, "F": slow_fetch}


@pytest.mark.parametrize(
    ("rules", "sent", "come", "arrive"),
    [
        pytest.param(["Heartbeat direction=request drop nth=1"], "BBV", [2, 3], "B", id="drop a request"),
        pytest.param(["Heartbeat drop nth=1"], "BBV", [2, 3], "BB", id="drop a response"),
        pytest.param(["Heartbeat direction=request duplicate"], "BVBV", [1, 2, 3, 4], "BBBB", id="duplicate a request"),
        pytest.param(["Heartbeat duplicate"], "BV", [1, 1, 2], "B", id="duplicate a response"),
        pytest.param(["Heartbeat direction=request reorder"], "BVBBV", [2, 1, 4, 3, 5], "BBB", id="reorder requests"),
        pytest.param(["Heartbeat reorder"], "BVBBV", [2, 1, 4, 3, 5], "BBB", id="reorder responses"),
        pytest.param(["Heartbeat direction=request reorder"], "B", [1], "B", id="the client ends after a kept request"),
        pytest.param(['Heartbeat answer={"errorCode":27}'], "FBVBB", [1, 2, 3, 4, 5], "", id="answers keep the order"),
        pytest.param(["Produce direction=request drop"], "PV", [2], "", id="drop without acks"),
        pytest.param(["Produce direction=request duplicate"], "PV", [2], "PP", id="duplicate without acks"),
        pytest.param(["Produce direction=request delay_ms=1"], "PV", [2], "P", id="delay without acks"),
        pytest.param(['Produce answer={"throttleTimeMs":9}'], "PV", [2], "", id="answer without acks"),
        pytest.param(["Produce error=UNKNOWN_SERVER_ERROR"], "PV", [2], "P", id="error without acks"),
    ],
)
def test_which_requests_arrive_and_in_which_order_responses_come(
    rules: list[str], sent: str, come: list[int], arrive: str
) -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        fed(client.server.broker.cluster, {"topic": "written", "produce": True})
        client.writer.write(b"".join(FRAMES[one](number) for number, one in enumerate(sent, 1)))
        client.writer.write_eof()
        assert [await number_of_next(client) for _ in come] == come
        assert await client.reader.read() == b""
        seen = client.server.report.requests
        assert "B" * seen["Heartbeat"] + "P" * seen["Produce"] == arrive

    assert codes(through(*rules, scenario=scenario)) == set()


@proxied("fetch error=not_leader_or_follower nth=2-4 times=1")
async def test_an_error_changes_the_frame_that_is_meant_among_pipelined_ones(client: Client, proxy: Proxy) -> None:
    version = released("Fetch").highest
    topic_id = next(one.id for one in topics() if one.name == NAME)
    asks = [request("Fetch", version, fetch_of(NAME, version, topic_id, 0), number) for number in range(4)]
    client.writer.write(b"".join(map(framed, asks)))
    answers = [response("Fetch", version, await client.answer(), number) for number in range(4)]
    got = [one["responses"][0]["partitions"][0] for one in answers]
    assert [(one["errorCode"], one["records"]) for one in got] == [(0, BATCH), (6, b""), (0, BATCH), (0, BATCH)]
    assert counts(proxy) == [(1, 1)]
    assert [one.is_used_up for one in proxy.rules] == [True]


@proxied("Metadata set=brokers[0].port=1")
async def test_a_path_sees_the_addresses_that_clients_get(client: Client, proxy: Proxy) -> None:
    answer = await client.ask("Metadata", 12, {"topics": []})
    assert [(one["host"], one["port"]) for one in answer["brokers"]] == [("127.0.0.1", 1)]
    assert all(broker.port != 1 for broker in proxy.places)


def leave(number: int) -> bytes:
    return framed(request("LeaveGroup", 3, {"groupId": "g", "members": []}, number))


def beat(number: int) -> bytes:
    """The response to a heartbeat."""
    return framed(struct.pack(">iBihB", number, 0, 0, 0, 0))


async def taken(reader: asyncio.StreamReader) -> int:
    """The correlation id of the next request."""
    [size] = struct.unpack(">i", await reader.readexactly(4))
    return int.from_bytes((await reader.readexactly(size))[4:8], "big")


@pytest.mark.parametrize("rule", ["LeaveGroup delay_ms=1", "Heartbeat delay_ms=1"], ids=["passed on", "held"])
def test_an_answer_of_the_proxy_never_comes_before_or_within_a_frame_that_has_begun(rule: str) -> None:
    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await taken(reader) == 1
        writer.write(beat(1)[:10])
        began.set()
        await answered.wait()
        writer.write(beat(1)[10:] + beat(3))

    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1))
        await began.wait()
        [connection] = proxy.connections
        while len(connection.pairing):
            await asyncio.sleep(0.001)
        client.writer.write(leave(2) + heartbeat(3))
        while counts(proxy)[0] != (1, 1) or len(connection.pairing) < 1:
            await asyncio.sleep(0.001)
        answered.set()
        assert [await number_of_next(client) for _ in range(3)] == [1, 2, 3]

    began, answered = asyncio.Event(), asyncio.Event()
    before(broker, "LeaveGroup answer={}", rule, scenario=scenario)


@pytest.mark.parametrize(
    ("written", "come", "code"),
    [
        pytest.param(framed(beat(1)[4:] + bytes(100)), [1, 2], "frame-too-large", id="passed on unread"),
        pytest.param(beat(2) + beat(1), [2, 1, 2], "correlation-unknown", id="answered by the broker too"),
    ],
)
def test_an_answer_of_the_proxy_comes_after_whatever_the_broker_sends_before_it(
    monkeypatch: pytest.MonkeyPatch, written: bytes, come: list[int], code: str
) -> None:
    monkeypatch.setattr(pipe, "FRAME_BYTES_MAX", 100)

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answered.wait()
        writer.write(written)
        await reader.read()

    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1) + leave(2))
        while counts(proxy) != [(1, 1)]:
            await asyncio.sleep(0.001)
        answered.set()
        assert [await number_of_next(client) for _ in come] == come
        assert not next(iter(proxy.connections)).holds("response")

    answered = asyncio.Event()
    assert codes(before(broker, "LeaveGroup answer={}", scenario=scenario)) == {code}


def test_the_proxys_answers_come_although_the_broker_leaves_out_requests_before_them() -> None:
    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert [await taken(reader) for _ in range(2)] == [1, 3]
        writer.write(beat(3))
        assert await taken(reader) == 4
        writer.write(beat(4))

    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1) + leave(2) + heartbeat(3))
        assert [await number_of_next(client) for _ in range(2)] == [2, 3]
        [connection] = proxy.connections
        assert not connection.holds("response")
        client.writer.write(heartbeat(4))
        assert await number_of_next(client) == 4

    assert codes(before(broker, "LeaveGroup answer={}", scenario=scenario)) == {"no-response"}


@pytest.mark.parametrize("direction", ["request", "response"])
@proxied(limits={"KEPT_S_MAX": 0.01})
async def test_a_reordered_frame_without_a_next_one_comes_all_the_same(
    client: Client, proxy: Proxy, direction: str
) -> None:
    proxy.rules.add(parse_rule(f"Heartbeat direction={direction} reorder"))
    client.writer.write(heartbeat(1))
    assert await number_of_next(client) == 1


@pytest.mark.parametrize(
    ("rule", "come"),
    [
        ("direction=request disconnect=before", 0),
        ("direction=request disconnect=after", 0),
        ("disconnect=before", 0),
        ("disconnect=after", 16),
        ("cut=6", 6),
    ],
)
@proxied()
async def test_a_connection_ends_before_within_or_after_a_frame(
    client: Client, proxy: Proxy, rule: str, come: int
) -> None:
    proxy.rules.add(parse_rule(f"Heartbeat {rule}"))
    client.writer.write(heartbeat(1) + heartbeat(2))
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while data := await client.reader.read(1000):
            got += data
    assert len(got) == come


@proxied("Heartbeat half_open connection=1")
async def test_a_half_open_connection_stays_open_and_silent_until_its_client_ends(client: Client, proxy: Proxy) -> None:
    client.writer.write(versions_request(1) + heartbeat(2) + versions_request(3))
    assert await number_of_next(client) == 1
    [connection] = proxy.connections
    while not connection.is_half_open:
        await asyncio.sleep(0)
    client.writer.write(versions_request(4))
    # Another connection of the client is not touched.
    async with asking(proxy) as other:
        assert (await other.ask("ApiVersions", 0, {}))["errorCode"] == 0
    # Those of 1, 3 and the other: the broker gets nothing more.
    assert client.server.report.requests["ApiVersions"] <= 3
    # The client does not see the end of the broker's side.
    client.server._end(1)
    while not connection.pipes["response"].is_finished:
        await asyncio.sleep(0.001)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.reader.read(1), 0.05)
    assert connection in proxy.connections
    client.writer.close()
    while connection in proxy.connections:
        await asyncio.sleep(0.001)


@proxied("Heartbeat delay_ms=100")
async def test_delays_count_from_when_frames_come_so_pipelined_ones_wait_together(client: Client, proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    client.writer.write(b"".join(map(heartbeat, range(20))) + versions_request(20))
    assert [await number_of_next(client) for _ in range(21)] == list(range(21))
    # One after another, the delays would take two seconds.
    assert 0.1 <= loop.time() - began < 2


@proxied("* direction=request mutate", "* direction=request hex=00", "Heartbeat direction=request drop")
async def test_rules_without_values_work_on_frames_that_cannot_be_read(client: Client, proxy: Proxy) -> None:
    # No release has this version of Heartbeat.
    unknown = struct.pack(">hhih", api_key("Heartbeat"), 99, 5, -1)
    client.writer.write(framed(unknown) + versions_request(6))
    assert await number_of_next(client) == 6
    assert codes(proxy) == {"api-unknown", "rule-not-applied"}
    assert [one[1] for one in counts(proxy)] == [1, 1, 1]
    [line, *_] = [one for one in proxy.lines() if "rule-not-applied" in one]
    assert "rule 1 cannot change it: HeartbeatRequest at byte 0: the header of version 99 cannot be read" in line


def test_equal_seeds_mutate_equally_and_another_seed_does_not() -> None:
    def answers(seed: int) -> list[bytes]:
        async def scenario(client: Client, proxy: Proxy) -> None:
            got.extend([await client.exchange(heartbeat(number)[4:]) for number in range(8)])

        got: list[bytes] = []
        through("Heartbeat mutate", scenario=scenario, seed=seed)
        return got

    assert answers(5) == answers(5) != answers(6)
