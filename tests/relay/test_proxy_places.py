"""Where a proxy listens, what clients see of it, and that it never connects to itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from relay.proxied import codes

from kfuzz.client.address import Address
from kfuzz.errors import UsageError
from kfuzz.relay import Proxy, Settings

BROKER = Address("127.0.0.1", 9)


def within(do: Callable[[Proxy], Awaitable[None]], settings: Settings, *brokers: Address) -> Proxy:
    """Do something while a proxy runs."""

    async def bounded() -> Proxy:
        async with asyncio.timeout(10), Proxy(brokers or (BROKER,), settings) as proxy:
            await do(proxy)
        return proxy

    return asyncio.run(bounded())


async def nothing(proxy: Proxy) -> None:
    """Do nothing."""


async def is_closed_at(port: int) -> bool:
    """Whether a connection to this port of the machine is closed by the other side."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True
    finally:
        writer.close()


def test_a_broker_that_names_the_proxy_itself_gets_no_other_place() -> None:
    async def do(proxy: Proxy) -> None:
        [place] = proxy.places.values()
        assert proxy.place(*place) == place
        assert proxy.place("localhost", place[1]) == place
        assert len(proxy.places) == 1

    within(do, Settings())


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_proxy_does_not_connect_to_itself(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def do(proxy: Proxy) -> None:
        assert await is_closed_at(port)

    proxy = within(do, Settings(host, port, open_to_others=True), Address("127.0.0.1", port))
    assert proxy.connections_total == 1
    assert codes(proxy) == {"broker-unreachable"}


def test_a_client_gets_the_address_that_it_uses_if_the_proxy_listens_at_all() -> None:
    async def do(proxy: Proxy) -> None:
        [(_, port)] = proxy.places.values()
        _, writer = await asyncio.open_connection("127.0.0.2", port)
        while not proxy.connections:
            await asyncio.sleep(0)
        [connection] = proxy.connections
        assert connection.host == "127.0.0.2"
        writer.close()

    with socket.create_server(("127.0.0.1", 0)) as broker:
        within(do, Settings("0.0.0.0", open_to_others=True), Address("127.0.0.1", broker.getsockname()[1]))


def test_a_broker_that_is_given_twice_has_one_place() -> None:
    proxy = within(nothing, Settings(), BROKER, BROKER)
    assert (proxy.brokers, len(proxy.places)) == ((BROKER,), 1)


def test_brokers_beyond_the_last_port_are_one_sentence() -> None:
    with pytest.raises(UsageError, match="2 brokers need the ports 65535 to 65536"):
        within(nothing, Settings(port=65535), BROKER, Address("127.0.0.1", 10))


def test_a_broker_that_cannot_be_reached_is_said_in_the_systems_words() -> None:
    async def do(proxy: Proxy) -> None:
        [(_, port)] = proxy.places.values()
        assert await is_closed_at(port)

    proxy = within(do, Settings())
    [remark] = proxy.watch.remarks.values()
    assert remark.first == "127.0.0.1:9: it cannot be reached: Connection refused"
