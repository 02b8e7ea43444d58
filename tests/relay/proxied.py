"""A client's side of a conversation with `kfuzz serve` through a proxy that has rules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from serve.asking import SECONDS_MAX, Client, topics

from kfuzz.client.address import Address
from kfuzz.relay import Proxy, Settings
from kfuzz.relay.loop import run
from kfuzz.relay.rules import parse_rule
from kfuzz.serve import Server
from kfuzz.serve import Settings as ServerSettings
from kfuzz.serve.topics import Topics

Scenario = Callable[[Client, Proxy], Awaitable[None]]


def through(*rules: str, scenario: Scenario, of: Topics | None = None, seed: int = 1) -> Proxy:
    """Run ``scenario`` with a client whose connection goes through a proxy. The proxy, after its end."""

    async def bounded() -> Proxy:
        async with asyncio.timeout(SECONDS_MAX), Server(of or topics(), ServerSettings()) as server:
            settings = Settings(rules=tuple(map(parse_rule, rules)), seed=seed)
            async with Proxy([Address(server.host, server.port)], settings) as proxy:
                [(_, port)] = proxy.places.values()
                async with Client(server, port) as client:
                    await scenario(client, proxy)
                return proxy

    return run(bounded())


Scripted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Ends(Client):
    """A client of a proxy in front of a scripted broker."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Ends:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self


def before(broker: Scripted, *rules: str, scenario: Scenario) -> Proxy:
    """Run ``scenario`` with a client whose connection goes through a proxy to a broker that does as ``broker`` says."""

    async def bounded() -> Proxy:
        async with asyncio.timeout(SECONDS_MAX), await asyncio.start_server(broker, "127.0.0.1", 0) as server:
            at = Address(*server.sockets[0].getsockname())
            async with Proxy([at], Settings(rules=tuple(map(parse_rule, rules)))) as proxy:
                async with Ends(proxy.places[at][1]) as client:
                    await scenario(client, proxy)
                return proxy

    return run(bounded())


def counts(proxy: Proxy) -> list[tuple[int, int]]:
    """For each rule, how many frames it matched, and to how many it was applied."""
    return [(one.matched, one.applied) for one in proxy.rules]


def codes(proxy: Proxy) -> set[str]:
    """The codes of what the proxy remarked."""
    return {one.code for one in proxy.watch.remarks.values()}


async def is_ended(client: Client) -> bool:
    """Whether the next thing that comes is the end of the connection."""
    try:
        return await client.reader.read(1) == b""
    except ConnectionResetError:
        return True


Values = dict[str, Any]
