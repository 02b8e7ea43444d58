"""A client's side of a conversation with `kfuzz serve` through a proxy that has rules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Self

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
            at = Address(server.host, server.port)
            return await _between(at, rules, seed, lambda port: Client(server, port), scenario)

    return run(bounded())


Scripted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Ends(Client):
    """A client of a port whose server is nothing to look into."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self


def before(broker: Scripted, *rules: str, scenario: Scenario) -> Proxy:
    """Run ``scenario`` with a client whose connection goes through a proxy to a broker that does as ``broker`` says."""

    async def bounded() -> Proxy:
        async with asyncio.timeout(SECONDS_MAX), await asyncio.start_server(broker, "127.0.0.1", 0) as server:
            return await _between(Address(*server.sockets[0].getsockname()), rules, 1, Ends, scenario)

    return run(bounded())


async def _between(
    broker: Address, rules: Iterable[str], seed: int, client_of: Callable[[int], Client], scenario: Scenario
) -> Proxy:
    async with Proxy([broker], Settings(rules=tuple(map(parse_rule, rules)), seed=seed)) as proxy:
        async with client_of(proxy.places[broker][1]) as client:
            await scenario(client, proxy)
        return proxy


def counts(proxy: Proxy) -> list[tuple[int, int]]:
    """For each rule, how many frames it matched, and to how many it was applied."""
    return [(one.matched, one.applied) for one in proxy.rules]


def codes(proxy: Proxy) -> set[str]:
    """The codes of what the proxy remarked."""
    return {one.code for one in proxy.watch.remarks.values()}
