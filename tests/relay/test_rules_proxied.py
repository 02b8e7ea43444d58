"""Rules of a proxy in front of `kfuzz serve`: what a raw client and the broker see."""

from __future__ import annotations

import asyncio
import struct

import pytest
from relay.proxied import Values, before, codes, counts, is_ended, through
from serve.asking import INVALID, MINIMAL, Client, fetch_of, request, response, topics

from kfuzz.relay import Proxy
from kfuzz.relay import connection as connections
from kfuzz.relay.frames import api_key, versions_of
from kfuzz.serve.answers import released
from kfuzz.serve.feeding import done
from kfuzz.vectors import find_vector

NAME = MINIMAL.replace("/", ".")
BATCH = find_vector(MINIMAL).data
ERROR = "UNKNOWN_TOPIC_OR_PARTITION"


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def versions_request(number: int) -> bytes:
    return framed(request("ApiVersions", 0, {}, number))


def heartbeat(number: int) -> bytes:
    return framed(request("Heartbeat", 4, {"groupId": "g", "generationId": 1, "memberId": "m"}, number))


async def number_of_next(client: Client) -> int:
    """The correlation id of the next frame."""
    return int.from_bytes((await next_frame(client))[:4], "big")


async def next_frame(client: Client) -> bytes:
    [size] = struct.unpack(">i", await client.reader.readexactly(4))
    return await client.reader.readexactly(size)


def fetch(version: int = 12, number: int = 7) -> bytes:
    topic_id = next(one.id for one in topics() if one.name == NAME)
    return request("Fetch", version, fetch_of(NAME, version, topic_id, 0), number)


def partition_of(version: int, answer: bytes, number: int = 7) -> Values:
    [topic] = response("Fetch", version, answer, number)["responses"]
    [partition] = topic["partitions"]
    return dict(partition)


@pytest.mark.parametrize("version", [released("Fetch").lowest, released("Fetch").highest])
def test_an_error_of_a_partition_has_no_records_and_later_frames_stay_as_they_are(version: int) -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        got = [partition_of(version, await client.exchange(fetch(version))) for _ in range(2)]
        assert [(one["errorCode"], one["records"]) for one in got] == [(6, b""), (0, BATCH)]

    proxy = through("fetch error=not_leader_or_follower times=1", scenario=scenario)
    assert counts(proxy) == [(1, 1)]
    assert [one.is_used_up for one in proxy.rules] == [True]


@pytest.mark.parametrize("version", [0, released("ApiVersions").highest])
def test_fields_of_the_oldest_and_of_the_newest_version_can_be_set(version: int) -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        software = {} if version < 3 else {"clientSoftwareName": "test"}
        told = await client.ask("ApiVersions", version, software)
        assert told["apiKeys"][0]["maxVersion"] == 3
        assert {one["minVersion"] for one in told["apiKeys"]} == {1}

    rule = "ApiVersions set=apiKeys[0].maxVersion=3 set=apiKeys[*].minVersion=1"
    assert counts(through(rule, scenario=scenario)) == [(1, 1)]


def test_a_path_sees_the_addresses_that_clients_get() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        told = await client.ask("Metadata", 12, {"topics": []})
        assert [(one["host"], one["port"]) for one in told["brokers"]] == [("127.0.0.1", 1)]
        assert all(broker.port != 1 for broker in proxy.places)

    through("Metadata set=brokers[0].port=1", scenario=scenario)


def test_a_vector_takes_the_place_of_the_records_of_a_fetch() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        assert partition_of(12, await client.exchange(fetch()))["records"] == find_vector(INVALID).data

    through(f"Fetch vector={INVALID}", scenario=scenario)


def produce(version: int, acks: int, number: int = 7) -> bytes:
    named = {"topicId": bytes(16)} if version >= 13 else {"name": "written"}
    data = {**named, "partitionData": [{"index": 0, "records": BATCH}]}
    return framed(request("Produce", version, {"acks": acks, "topicData": [data]}, number))


def test_a_vector_takes_the_place_of_the_records_of_a_produce_request() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        done(client.server.broker.cluster, b'{"topic": "written", "produce": true}')
        client.writer.write(produce(11, 1))
        answer = response("Produce", 11, await next_frame(client))
        assert answer["responses"][0]["partitionResponses"][0]["errorCode"] != 0
        [arrived] = done(client.server.broker.cluster, b'{"topic": "written"}')["produced"]
        assert arrived["hex"] == find_vector(INVALID).data.hex()

    through(f"Produce direction=request vector={INVALID}", scenario=scenario)


@pytest.mark.parametrize(
    ("rule", "arrive"),
    [
        ("Produce direction=request drop", 0),
        ("Produce direction=request duplicate", 2),
        ("Produce direction=request delay_ms=1", 1),
        ('Produce answer={"throttleTimeMs":9}', 0),
        ("Produce error=UNKNOWN_SERVER_ERROR", 1),
    ],
)
def test_a_produce_request_without_an_answer_gets_none_by_a_rule(rule: str, arrive: int) -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        done(client.server.broker.cluster, b'{"topic": "written", "produce": true}')
        client.writer.write(produce(9, 0) + versions_request(8))
        assert await number_of_next(client) == 8
        arrived.append(client.server.report.requests["Produce"])

    arrived: list[int] = []
    proxy = through(rule, scenario=scenario)
    assert arrived == [arrive]
    assert codes(proxy) == set()


def test_the_proxy_answers_in_the_order_of_requests_although_brokers_answer_later() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        # The broker waits with its answer to the first.
        waiting = request("Fetch", 12, fetch_of(NAME, 12, b"", 1, max_wait_ms=50), 1)
        client.writer.write(framed(waiting) + heartbeat(2) + versions_request(3) + heartbeat(4) + heartbeat(5))
        assert [await number_of_next(client) for _ in range(5)] == [1, 2, 3, 4, 5]
        assert "Heartbeat" not in client.server.report.requests

    through('Heartbeat answer={"errorCode":27}', scenario=scenario)


def leave(number: int) -> bytes:
    return framed(request("LeaveGroup", 3, {"groupId": "g", "members": []}, number))


def beat(number: int) -> bytes:
    """The response to a heartbeat."""
    return framed(struct.pack(">iBihB", number, 0, 0, 0, 0))


async def taken(reader: asyncio.StreamReader) -> int:
    """The correlation id of the next request."""
    [size] = struct.unpack(">i", await reader.readexactly(4))
    return int.from_bytes((await reader.readexactly(size))[4:8], "big")


def test_an_answer_of_the_proxy_never_comes_within_a_frame_that_is_passed_on() -> None:
    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await taken(reader) == 1
        writer.write(beat(1)[:10])
        await answered.wait()
        writer.write(beat(1)[10:] + beat(3))

    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1))
        assert await client.reader.readexactly(10) == beat(1)[:10]
        client.writer.write(leave(2) + heartbeat(3))
        while counts(proxy) != [(1, 1)] or len(next(iter(proxy.connections)).pairing) < 1:
            await asyncio.sleep(0.001)
        answered.set()
        assert await client.reader.readexactly(len(beat(1)) - 10) == beat(1)[10:]
        assert [await number_of_next(client) for _ in range(2)] == [2, 3]

    answered = asyncio.Event()
    before(broker, "LeaveGroup answer={}", scenario=scenario)


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


@pytest.mark.parametrize("version", [0, 4])
def test_an_answer_has_the_values_of_the_rule_in_each_version(version: int) -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        told = await client.ask("Heartbeat", version, {"groupId": "g", "generationId": 1, "memberId": "m"})
        assert told["errorCode"] == 27

    through('Heartbeat answer={"errorCode":27}', scenario=scenario)


def test_a_dropped_request_never_arrives_and_a_dropped_response_never_comes() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1) + heartbeat(2) + heartbeat(3) + versions_request(4))
        assert [await number_of_next(client) for _ in range(2)] == [3, 4]
        assert client.server.report.requests["Heartbeat"] == 2

    rules = ("Heartbeat direction=request drop nth=1", "Heartbeat drop nth=1")
    proxy = through(*rules, scenario=scenario)
    assert counts(proxy) == [(1, 1), (1, 1)]
    assert codes(proxy) == set()


def test_a_client_gets_one_response_to_a_request_that_the_proxy_sends_twice() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1) + versions_request(2) + heartbeat(3))
        assert [await number_of_next(client) for _ in range(3)] == [1, 2, 3]
        # The copy of the last arrives before the next request.
        client.writer.write(versions_request(4))
        assert await number_of_next(client) == 4
        assert client.server.report.requests["Heartbeat"] == 4

    assert codes(through("Heartbeat direction=request duplicate", scenario=scenario)) == set()


def test_a_duplicate_response_comes_twice() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1) + versions_request(2))
        assert [await number_of_next(client) for _ in range(3)] == [1, 1, 2]

    through("Heartbeat duplicate", scenario=scenario)


@pytest.mark.parametrize("direction", ["request", "response"])
def test_a_reordered_frame_follows_the_next_one(direction: str) -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1) + versions_request(2) + heartbeat(3) + heartbeat(4) + versions_request(5))
        assert [await number_of_next(client) for _ in range(5)] == [2, 1, 4, 3, 5]

    assert codes(through(f"Heartbeat direction={direction} reorder", scenario=scenario)) == set()


@pytest.mark.parametrize("direction", ["request", "response"])
def test_a_reordered_frame_without_a_next_one_comes_all_the_same(
    direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1))
        assert await number_of_next(client) == 1

    monkeypatch.setattr(connections, "KEPT_S_MAX", 0.01)
    through(f"Heartbeat direction={direction} reorder", scenario=scenario)


def test_a_kept_request_is_sent_when_its_client_ends() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1))
        client.writer.write_eof()
        assert await number_of_next(client) == 1

    through("Heartbeat direction=request reorder", scenario=scenario)


@pytest.mark.parametrize(("size", "left"), [(0, b""), (3, b"\0\0\0"), (6, b"\0\0\0\x0c\0\0")])
def test_a_cut_frame_ends_the_connection(size: int, left: bytes) -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1) + versions_request(2))
        assert await client.reader.read() == left

    through(f"Heartbeat cut={size}", scenario=scenario)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("direction", ["request", "response"])
def test_a_connection_ends_before_or_after_a_frame(when: str, direction: str) -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(versions_request(1) + heartbeat(2) + heartbeat(3))
        if direction == "response":
            assert await number_of_next(client) == 1
            if when == "after":
                assert await number_of_next(client) == 2
            assert await is_ended(client)
        else:
            await client.reader.read()

    through(f"Heartbeat direction={direction} disconnect={when}", scenario=scenario)


def test_half_open_connections_stay_open_and_silent() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(versions_request(1) + heartbeat(2) + versions_request(3))
        assert await number_of_next(client) == 1
        [connection] = proxy.connections
        while not connection.is_half_open:
            await asyncio.sleep(0)
        client.writer.write(versions_request(4))
        # Another connection of the client is not touched.
        [(_, port)] = proxy.places.values()
        async with Client(client.server, port) as other:
            assert (await other.ask("ApiVersions", 0, {}))["errorCode"] == 0
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.05)
        assert connection in proxy.connections
        # A client that is gone needs no connection any more.
        client.writer.close()
        while connection in proxy.connections:
            await asyncio.sleep(0.001)

    through("Heartbeat half_open connection=1", scenario=scenario)


def test_the_end_of_a_broker_does_not_reach_the_client_of_a_half_open_connection() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1))
        [connection] = proxy.connections
        while not connection.is_half_open:
            await asyncio.sleep(0.001)
        client.server._end(1)
        while not connection.pipes["response"].is_finished:
            await asyncio.sleep(0.001)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.05)
        assert connection in proxy.connections

    through("Heartbeat half_open", scenario=scenario)


def test_delays_count_from_when_frames_come_so_pipelined_ones_wait_together() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        client.writer.write(b"".join(map(heartbeat, range(20))) + versions_request(20))
        assert [await number_of_next(client) for _ in range(21)] == list(range(21))
        # One after another, the delays would take two seconds.
        assert 0.1 <= loop.time() - began < 2

    through("Heartbeat delay_ms=100", scenario=scenario)


def test_two_rules_change_one_frame_in_their_order() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        told = await client.ask("ApiVersions", 0, {})
        assert (told["errorCode"], told["apiKeys"][0]["maxVersion"]) == (42, 5)
        assert await number_of_next(client) == 7

    rules = (
        "ApiVersions error=35",
        "ApiVersions set=apiKeys[0].maxVersion=5",
        "ApiVersions error=42",
        "ApiVersions duplicate",
    )
    assert counts(through(*rules, scenario=scenario)) == [(1, 1)] * 4


def test_no_rule_has_a_turn_after_one_that_ends_a_frame() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(heartbeat(1) + versions_request(2))
        assert await number_of_next(client) == 2

    rules = ("Heartbeat error=1", "Heartbeat drop", "Heartbeat error=2")
    assert counts(through(*rules, scenario=scenario)) == [(1, 1), (1, 1), (0, 0)]


def test_a_pipelined_frame_alone_is_changed() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(b"".join(map(heartbeat, range(10))))
        answers = [response("Heartbeat", 4, await next_frame(client), number) for number in range(10)]
        assert [one["errorCode"] for one in answers] == [25] * 3 + [27] + [25] * 6

    proxy = through("Heartbeat error=REBALANCE_IN_PROGRESS nth=4", scenario=scenario)
    assert counts(proxy) == [(1, 1)]


def test_rules_are_added_and_removed_while_the_proxy_runs() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        async def error() -> int:
            return int((await client.ask("ApiVersions", 0, {}))["errorCode"])

        assert await error() == 0
        other = proxy.rules.add({"api": "ApiVersions", "delay_ms": 1})
        assert await error() == 0
        first = proxy.rules.add({"api": "ApiVersions", "error": 35, "times": 1})
        second = proxy.rules.add({"api": "ApiVersions", "error": 42, "nth": "2-9"})
        assert [await error() for _ in range(2)] == [35, 42]
        proxy.rules.set_times(first, 2)
        assert await error() == 42
        proxy.rules.remove(second)
        assert await error() == 0
        assert proxy.rules[other].applied == 5
        proxy.rules.clear()
        assert await error() == 0

    through(scenario=scenario)


def test_rules_without_values_work_on_frames_that_cannot_be_read() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        # No release has this version of Heartbeat.
        unknown = struct.pack(">hhih", api_key("Heartbeat"), 99, 5, -1)
        client.writer.write(framed(unknown) + versions_request(6))
        assert await number_of_next(client) == 6

    rules = ("* direction=request mutate", "* direction=request hex=00", "Heartbeat direction=request drop")
    proxy = through(*rules, scenario=scenario)
    assert codes(proxy) == {"api-unknown", "rule-not-applied"}
    assert [one[1] for one in counts(proxy)] == [1, 1, 1]
    [line, *_] = [one for one in proxy.lines() if "rule-not-applied" in one]
    assert "rule 1 cannot change it: HeartbeatRequest at byte 0: the header of version 99 cannot be read" in line


def test_equal_seeds_mutate_equally_and_another_seed_does_not() -> None:
    def answers(seed: int) -> list[bytes]:
        async def scenario(client: Client, proxy: Proxy) -> None:
            got.extend([await client.exchange(fetch(number=number)) for number in range(8)])

        got: list[bytes] = []
        through("Fetch mutate", scenario=scenario, seed=seed)
        return got

    first = answers(5)
    assert answers(5) == first
    assert answers(6) != first
    # Neither are all frames changed alike.
    assert len({one[4:] for one in first}) > 4


def test_a_frame_that_a_rule_held_is_the_same_if_nothing_was_changed() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        assert partition_of(12, await client.exchange(fetch()))["records"] == BATCH

    proxy = through("Fetch drop probability=0", "Fetch error=3 versions=17+", scenario=scenario)
    assert counts(proxy) == [(0, 0), (0, 0)]
    assert [str(one).rpartition(": ")[2] for one in proxy.rules] == ["no frame matched"] * 2


def test_all_apis_and_versions_take_rules_for_all() -> None:
    async def scenario(client: Client, proxy: Proxy) -> None:
        assert (await client.ask("ApiVersions", 0, {}))["errorCode"] == 3
        assert (await client.ask("Heartbeat", 4, {"groupId": "g"}))["errorCode"] == 3

    assert versions_of(api_key("Heartbeat")) is not None
    assert counts(through(f"* error={ERROR} delay_ms=1", scenario=scenario)) == [(2, 2)]
