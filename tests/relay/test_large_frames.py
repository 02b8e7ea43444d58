"""Large responses through a whole proxy: the same bytes, and what is inside is found or replaced all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kfuzz import messages, records
from kfuzz.client.address import Address
from kfuzz.messages.catalogues import newest
from kfuzz.messages.headers import request_header_version, response_header_version
from kfuzz.relay import Proxy, Settings, frames
from kfuzz.relay.pipe import framed
from kfuzz.relay.rules import parse_rule
from kfuzz.relay.watching import Watch

PATIENCE_S = 20
# The size of a frame that is never read.
HUGE = (1 << 30).to_bytes(4, "big")
# A batch of about 16 KiB.
BATCH = records.encode([records.RecordBatch(0, 15, [records.Record(at, 1, None, bytes(1000)) for at in range(16)])])
DAMAGED = BATCH[:-1] + bytes([BATCH[-1] ^ 1])
ELSEWHERE = {"nodeId": 5, "host": "broker-five.example", "port": 9092}


def request(version: int) -> bytes:
    header = {"requestApiKey": 1, "requestApiVersion": version, "correlationId": 7, "clientId": "test"}
    definition = newest("FetchRequest", version)
    head = messages.encode("RequestHeader", request_header_version(definition, version), header)
    return framed(head + messages.encode(definition, version, {}))


def response(version: int, batches: bytes, values: dict[str, Any] | None = None) -> bytes:
    definition = newest("FetchResponse", version)
    head = messages.encode("ResponseHeader", response_header_version(definition, version), {"correlationId": 7})
    partitions = [{"partitionIndex": 0, "records": batches}, {"partitionIndex": 1, "errorCode": 6, "records": BATCH}]
    answered = {"responses": [{"partitions": partitions}]} | (values or {})
    return framed(head + messages.encode(definition, version, answered))


def through(version: int, answer: bytes, **settings: Any) -> tuple[bytes, Proxy]:
    """The bytes that a client gets when a broker answers twice, and the proxy after its end."""

    async def work() -> tuple[bytes, Proxy]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(2):
                await reader.readexactly(len(request(version)))
                writer.write(answer)
                await writer.drain()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with asyncio.timeout(PATIENCE_S), server, Proxy([Address(host, port)], Settings(**settings)) as proxy:
            [(_, place)] = proxy.places.values()
            reader, writer = await asyncio.open_connection("127.0.0.1", place)
            got = b""
            for _ in range(2):
                writer.write(request(version))
                size = await reader.readexactly(4)
                got += size + await reader.readexactly(int.from_bytes(size, "big"))
            writer.close()
            while proxy.connections:
                await asyncio.sleep(0.001)
            return got, proxy

    return asyncio.run(work())


@pytest.mark.parametrize("version", [4, 11, 12, 17])
@pytest.mark.parametrize("count", [1, 20, 64, 200])
def test_a_fetch_of_any_size_comes_as_it_is_and_is_read(version: int, count: int) -> None:
    answer = response(version, BATCH * count)
    got, proxy = through(version, answer)
    assert got == answer * 2
    sums = proxy.watch.by_api["Fetch"]
    assert (sums.responses, sums.response_bytes) == (2, 2 * len(answer))
    assert sums.errors == {"NOT_LEADER_OR_FOLLOWER": 2}
    assert not proxy.watch.remarks
    # The kernel moves the larger ones, if they fit into the memory of a pipe.
    assert (proxy.buffers.kernel_pipes_made > 0) == (count in (20, 64))


def test_addresses_after_large_batches_are_replaced() -> None:
    answer = response(17, BATCH * 64, {"nodeEndpoints": [ELSEWHERE]})
    got, proxy = through(17, answer)
    assert proxy.buffers.kernel_pipes_made
    assert b"broker-five" not in got
    host, port = proxy.places[Address("broker-five.example", 9092)]
    assert got == response(17, BATCH * 64, {"nodeEndpoints": [ELSEWHERE | {"host": host, "port": port}]}) * 2


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("batches", [True, False])
def test_batches_of_a_large_fetch_are_checked_if_that_is_wanted(version: int, batches: bool) -> None:
    answer = response(version, BATCH * 40 + DAMAGED)
    got, proxy = through(version, answer, batches=batches)
    assert got == answer * 2
    found = [(one.code, one.count) for one in proxy.watch.remarks.values()]
    assert found == ([("crc-mismatch", 2)] if batches else [])
    if batches:
        [remark] = proxy.watch.remarks.values()
        assert "FetchResponse.responses[0].partitions[0].records.batch[40]" in remark.first


@pytest.mark.parametrize("version", [12, 17])
def test_strict_and_batches_together_pass_no_bad_batch_on(version: int) -> None:
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        through(version, response(version, BATCH * 40 + DAMAGED), batches=True, strict=True)


@pytest.mark.parametrize("version", [12, 17])
def test_rules_change_large_fetches(version: int) -> None:
    answer = response(version, BATCH * 40)
    rule = parse_rule("Fetch set=responses[0].partitions[0].highWatermark=77")
    got, _ = through(version, answer, rules=(rule,))
    assert got != answer * 2
    assert got.count(BATCH * 40) == 2


@pytest.mark.parametrize("version", [12, 17])
def test_a_cut_within_large_batches_is_noted_and_passed_on(version: int) -> None:
    answer = response(version, BATCH * 40)

    async def work() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(len(request(version)))
            writer.write(answer[:400_000])
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with asyncio.timeout(PATIENCE_S), server, Proxy([Address(host, port)], Settings()) as proxy:
            [(_, place)] = proxy.places.values()
            reader, writer = await asyncio.open_connection("127.0.0.1", place)
            writer.write(request(version))
            assert await reader.read(-1) == answer[:400_000]
            writer.close()
            while proxy.connections:
                await asyncio.sleep(0.001)
            assert [one.code for one in proxy.watch.remarks.values()] == ["connection-cut"]

    asyncio.run(work())


def test_hundreds_of_connections_pass_their_frames() -> None:
    count = 300
    answer = response(12, BATCH)

    async def work() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(len(request(12)))
            writer.write(answer)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=count)
        host, port = server.sockets[0].getsockname()
        async with asyncio.timeout(PATIENCE_S), server, Proxy([Address(host, port)], Settings()) as proxy:
            [(_, place)] = proxy.places.values()
            ends = [await asyncio.open_connection("127.0.0.1", place) for _ in range(count)]
            for _, writer in ends:
                writer.write(request(12))
            for reader, _ in ends:
                assert await reader.readexactly(len(answer)) == answer
            assert proxy.buffers.bytes == 0
            for _, writer in ends:
                writer.close()
            assert proxy.watch.by_api["Fetch"].responses == count

    asyncio.run(work())


def test_a_response_with_too_many_elements_does_not_lead_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "ELEMENTS_MAX", 2)
    said: list[str] = []
    monkeypatch.setattr(Watch, "note", lambda self, code, direction, exchange, sentence: said.append(code))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        through(17, response(17, BATCH, {"nodeEndpoints": [ELSEWHERE]}))
    assert said == ["response-not-inside"]


def test_a_strict_proxy_passes_no_frame_on_unread() -> None:
    async def work() -> bytes:
        got = bytearray()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.extend(await reader.read())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        at = Address(*server.sockets[0].getsockname())
        async with asyncio.timeout(PATIENCE_S), server, Proxy([at], Settings(strict=True)) as proxy:
            reader, writer = await asyncio.open_connection(*proxy.places[at])
            writer.write(HUGE + request(9)[4:])
            assert await reader.read() == b""
            writer.close()
        return bytes(got)

    assert asyncio.run(work()) == b""


def test_a_response_with_addresses_is_not_passed_on_unread() -> None:
    async def work() -> tuple[bytes, Proxy]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4)
            writer.write(HUGE + (7).to_bytes(4, "big") + b"broker-five.example")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        at = Address(*server.sockets[0].getsockname())
        async with asyncio.timeout(PATIENCE_S), server, Proxy([at], Settings()) as proxy:
            reader, writer = await asyncio.open_connection(*proxy.places[at])
            writer.write(framed(bytes([0, 3, 0, 9, 0, 0, 0, 7, 255, 255, 0, 0, 0, 0])))
            got = await reader.read()
            writer.close()
        return got, proxy

    got, proxy = asyncio.run(work())
    assert got == b""
    assert {"frame-too-large", "response-not-inside"} <= {one.code for one in proxy.watch.remarks.values()}
