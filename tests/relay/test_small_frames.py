"""Small frames are passed on before they are checked and counted, and lose nothing by it."""

from __future__ import annotations

import asyncio
import socket
import struct

from relay.proxied import before, codes, counts, proxied
from serve.asking import Client, request, response

from kfuzz.relay import proxy as proxies
from kfuzz.relay.loop import run, unwatch, watch
from kfuzz.relay.pipe import framed
from kfuzz.relay.proxy import Proxy
from kfuzz.relay.rule import parse_rule

HEARTBEAT = {"groupId": "g", "generationId": 1, "memberId": "m"}


def pairs(proxy: Proxy, api: str) -> tuple[int, int]:
    sums = proxy.watch.by_api[api]
    return sums.requests, sums.responses


@proxied(limits={"UNSETTLED_S_MAX": 1000})
async def test_frames_are_counted_as_soon_as_somebody_looks(client: Client, proxy: Proxy) -> None:
    settled, settle = [], proxy.settle
    proxy.settle = lambda: settled.append(1) or settle()  # type: ignore[func-returns-value,method-assign]
    await client.ask("Heartbeat", 4, HEARTBEAT)
    await client.ask("Heartbeat", 4, HEARTBEAT)
    assert not settled
    assert pairs(proxy, "Heartbeat") == (2, 2)
    assert proxy.watch.by_api["Heartbeat"].latencies.highest_ns > 0


@proxied(limits={"UNSETTLED_S_MAX": 1000})
async def test_only_a_few_frames_wait_for_their_check(client: Client, proxy: Proxy) -> None:
    for count in range(1, proxies.UNSETTLED_MAX):
        await client.ask("Heartbeat", 4, HEARTBEAT)
        assert proxy._watch.by_api.get("Heartbeat") is None or 2 * count >= proxies.UNSETTLED_MAX
    assert proxy._watch.by_api["Heartbeat"].responses >= proxies.UNSETTLED_MAX // 2


@proxied()
async def test_a_response_whose_addresses_were_replaced_before_is_changed_in_the_same_way(
    client: Client, proxy: Proxy
) -> None:
    [place] = proxy.places.values()
    asked = {"topics": None, "includeTopicAuthorizedOperations": False}
    for number in (3, 4, 5):
        answer = response("Metadata", 12, await client.exchange(request("Metadata", 12, asked, number)), number)
        assert [one["port"] for one in answer["brokers"]] == [place.port]
    assert len(proxy.known) == 1
    assert pairs(proxy, "Metadata") == (3, 3)


@proxied(limits={"KNOWN_MAX": 2})
async def test_the_proxy_keeps_few_responses_that_it_knows(client: Client, proxy: Proxy) -> None:
    for name in "abcde":
        await client.ask("Metadata", 12, {"topics": [{"name": name}]})
        assert 1 <= len(proxy.known) <= 2


@proxied()
async def test_a_rule_applies_from_the_next_frame_on(client: Client, proxy: Proxy) -> None:
    assert (await client.ask("Heartbeat", 4, HEARTBEAT))["errorCode"] != 27
    number = proxy.rules.add(parse_rule("Heartbeat error=REBALANCE_IN_PROGRESS"))
    assert (await client.ask("Heartbeat", 4, HEARTBEAT))["errorCode"] == 27
    assert counts(proxy) == [(1, 1)]
    proxy.rules.remove(number)
    assert (await client.ask("Heartbeat", 4, HEARTBEAT))["errorCode"] != 27
    assert pairs(proxy, "Heartbeat") == (3, 3)


def test_a_response_that_nobody_asked_for_is_passed_on_and_noted() -> None:
    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(asked))
        writer.write(framed(struct.pack(">i", 8)) + framed(struct.pack(">ibih", 7, 0, 0, 0) + b"\0"))
        await reader.read()
        writer.close()

    asked = framed(request("Heartbeat", 4, HEARTBEAT))

    async def scenario(client: Client, proxy: Proxy) -> None:
        client.writer.write(asked)
        assert await client.reader.readexactly(8) == framed(struct.pack(">i", 8))
        assert len(await client.reader.readexactly(16)) == 16
        assert codes(proxy) == {"correlation-unknown"}
        assert pairs(proxy, "Heartbeat") == (1, 1)

    before(broker, scenario=scenario)


def test_the_loop_does_what_a_reader_has_asked_for_and_calls_a_writer_of_the_same_socket() -> None:
    done = []

    async def work() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        ours, theirs = socket.socketpair()

        def readable() -> None:
            done.append(ours.recv(10).decode())
            loop.call_soon(done.append, "soon")
            if done[-1] == "a":
                loop.call_later(0, theirs.send, b"b")
            else:
                # From now on the socket is read and written.
                loop.add_writer(ours, written)

        def written() -> None:
            loop.remove_writer(ours)
            unwatch(loop, ours.fileno())
            ended.set()

        with ours, theirs:
            watch(loop, ours.fileno(), readable)
            theirs.send(b"a")
            async with asyncio.timeout(30):
                await ended.wait()

    run(work())
    assert done == ["a", "soon", "b", "soon"]
