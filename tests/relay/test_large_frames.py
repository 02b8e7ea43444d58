"""Large responses through a whole proxy: the same bytes, and what is inside is found or replaced all the same."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from made_segments import bad, batch
from relay.framing import Values, exchange, frame
from relay.proxied import asking, codes, in_loop, listening, no_connection
from serve.asking import request

from kfuzz.client.address import Address
from kfuzz.relay import frames
from kfuzz.relay.pipe import framed
from kfuzz.relay.proxy import Proxy, Settings
from kfuzz.relay.rule import parse_rule

# The size of a frame that is never read.
HUGE = (1 << 30).to_bytes(4, "big")
# A batch of about 16 KiB.
BATCH = batch(0, 16, bytes(1000))
DAMAGED = bad(BATCH)
ELSEWHERE = {"nodeId": 5, "host": "broker-five.example", "port": 9092}
both_headers = pytest.mark.parametrize("version", [12, 17])


def fetch(version: int) -> bytes:
    return framed(request("Fetch", version, {}))


def response(version: int, batches: bytes, **values: Any) -> bytes:
    partitions = [{"partitionIndex": 0, "records": batches}, {"partitionIndex": 1, "errorCode": 6, "records": BATCH}]
    answered: Values = {"responses": [{"partitions": partitions}], **values}
    return framed(frame(exchange("Fetch", version), "response", answered).data)


async def through(asked: bytes, answer: bytes, **settings: Any) -> tuple[bytes, Proxy]:
    """The bytes that a client gets when a broker answers once and ends, and the proxy after its end."""

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(asked))
        writer.write(answer)
        writer.close()

    got = b""
    async with listening(broker) as at, Proxy([at], Settings(**settings)) as proxy:
        async with asking(proxy) as client:
            client.writer.write(asked)
            with contextlib.suppress(ConnectionResetError):
                while more := await client.reader.read(1 << 20):
                    got += more
        await no_connection(proxy)
    return got, proxy


@pytest.mark.parametrize("version", [4, 11, 12, 17])
@pytest.mark.parametrize("count", [1, 20, 64, 140])
@in_loop
async def test_a_fetch_of_any_size_comes_as_it_is_and_is_read(version: int, count: int) -> None:
    answer = response(version, BATCH * count)
    got, proxy = await through(fetch(version), answer)
    assert got == answer
    sums = proxy.watch.by_api["Fetch"]
    assert (sums.responses, sums.response_bytes) == (1, len(answer))
    assert sums.errors == {"NOT_LEADER_OR_FOLLOWER": 1}
    assert not proxy.watch.remarks


@in_loop
async def test_addresses_after_large_batches_are_replaced() -> None:
    got, proxy = await through(fetch(17), response(17, BATCH * 64, nodeEndpoints=[ELSEWHERE]))
    place = proxy.places[Address("broker-five.example", 9092)]
    assert got == response(17, BATCH * 64, nodeEndpoints=[ELSEWHERE | {"host": place.host, "port": place.port}])


@both_headers
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("batches", [True, False])
@in_loop
async def test_batches_of_a_large_fetch_are_checked_if_that_is_wanted(
    version: int, batches: bool, strict: bool
) -> None:
    answer = response(version, BATCH * 40 + DAMAGED)
    got, proxy = await through(fetch(version), answer, batches=batches, strict=strict)
    assert got == (b"" if batches and strict else answer)
    assert codes(proxy) >= {"crc-mismatch"} if batches else not codes(proxy)
    if batches:
        first = next(one.first for one in proxy.watch.remarks.values() if one.code == "crc-mismatch")
        assert "FetchResponse.responses[0].partitions[0].records.batch[40]" in first


@both_headers
@in_loop
async def test_rules_change_large_fetches(version: int) -> None:
    rule = parse_rule("Fetch set=responses[0].partitions[0].highWatermark=77")
    got, _ = await through(fetch(version), response(version, BATCH * 40), rules=(rule,))
    assert got != response(version, BATCH * 40)
    assert got.count(BATCH * 40) == 1


@both_headers
@in_loop
async def test_a_cut_within_large_batches_is_noted_and_passed_on(version: int) -> None:
    cut = response(version, BATCH * 40)[:400_000]
    got, proxy = await through(fetch(version), cut)
    assert got == cut
    assert codes(proxy) == {"connection-cut"}


@in_loop
async def test_a_response_with_too_many_elements_does_not_lead_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "ELEMENTS_MAX", 2)
    got, proxy = await through(fetch(17), response(17, BATCH, nodeEndpoints=[ELSEWHERE]))
    assert got == b""
    assert "response-not-inside" in codes(proxy)


@in_loop
async def test_a_strict_proxy_passes_no_frame_on_unread() -> None:
    received = asyncio.get_running_loop().create_future()

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(await reader.read())
        writer.close()

    async with listening(broker) as at, Proxy([at], Settings(strict=True)) as proxy, asking(proxy) as client:
        assert await client.is_closed_after(HUGE + fetch(9)[4:])
        assert await received == b""


@in_loop
async def test_a_response_with_addresses_is_not_passed_on_unread() -> None:
    asked = framed(request("Metadata", 9, {"topics": []}))
    got, proxy = await through(asked, HUGE + (7).to_bytes(4, "big") + b"broker-five.example")
    assert got == b""
    assert codes(proxy) >= {"frame-too-large", "response-not-inside"}
