"""Where a proxy listens, what clients see of it, and that it never connects to itself."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from unittest.mock import Mock

import pytest
from relay.proxied import asking, codes, in_loop, through
from serve.asking import Client

from kfuzz.client.address import Address
from kfuzz.errors import UsageError
from kfuzz.relay.proxy import Proxy, Settings

BROKER = Address("127.0.0.1", 9)


@in_loop
async def test_a_broker_that_is_given_twice_or_is_the_proxy_itself_gets_no_other_place() -> None:
    async with Proxy((BROKER, BROKER), Settings()) as proxy:
        [place] = proxy.places.values()
        assert proxy.place(place.host, place.port) == proxy.place("localhost", place.port) == place
        assert (proxy.brokers, len(proxy.places)) == ((BROKER,), 1)


@in_loop
async def test_a_broker_for_which_no_handle_is_left_has_no_place_until_there_is_one() -> None:
    async with Proxy((BROKER,), Settings()) as proxy:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("socket.create_server", Mock(side_effect=OSError(errno.EMFILE, "")))
            assert proxy.place("127.0.0.1", 10) == Address("127.0.0.1", 1)
        assert proxy.place("127.0.0.1", 10) != Address("127.0.0.1", 1)
        [remark] = proxy.watch.remarks.values()
        assert (remark.code, remark.count) == ("broker-without-place", 1)
        assert remark.first.endswith("clients cannot reach it through the proxy: Too many open files")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@in_loop
async def test_a_proxy_does_not_connect_to_itself(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Proxy((Address("127.0.0.1", port),), Settings(host, port, open_to_others=True)) as proxy:
        async with asking(proxy) as client:
            assert await client.is_closed_after(b"")
        assert proxy.connections_total == 1
        assert codes(proxy) == {"broker-unreachable"}


@in_loop
async def test_a_client_gets_the_address_that_it_uses_if_the_proxy_listens_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        at = Address("127.0.0.1", broker.getsockname()[1])
        async with Proxy((at,), Settings("0.0.0.0", open_to_others=True)) as proxy:
            _, writer = await asyncio.open_connection("127.0.0.2", proxy.places[at].port)
            while not proxy.connections:
                await asyncio.sleep(0)
            [connection] = proxy.connections
            assert connection.host == "127.0.0.2"
            writer.close()


@in_loop
async def test_brokers_beyond_the_last_port_are_one_sentence() -> None:
    with pytest.raises(UsageError, match="2 brokers need the ports 65535 to 65536"):
        await Proxy((BROKER, Address("127.0.0.1", 10)), Settings(port=65535)).__aenter__()


@in_loop
async def test_a_broker_that_cannot_be_reached_is_said_in_the_systems_words() -> None:
    async with Proxy((BROKER,), Settings()) as proxy, asking(proxy) as client:
        assert await client.is_closed_after(b"")
        [remark] = proxy.watch.remarks.values()
        assert remark.first == "127.0.0.1:9: it cannot be reached: Connection refused"


def test_ended_connections_are_freed_although_kfuzz_searches_for_cycles_seldom() -> None:
    left = []

    def count() -> int:
        names = (str(getattr(type(one), "__module__", "")) for one in gc.get_objects())
        return sum(name.startswith("kfuzz.relay.") for name in names)

    async def many(_: Client, proxy: Proxy) -> None:
        before = count()
        for _ in range(900):
            async with asking(proxy) as client:
                await client.ask("ApiVersions", 0, {})
        left.append(count() - before)

    usual = gc.get_threshold()
    gc.set_threshold(1_000_000)
    try:
        through(scenario=many)
    finally:
        gc.set_threshold(*usual)
    # All connections together leave 5400.
    assert left[0] < 3000
