"""A client's side of a conversation with `kfuzz serve` through a proxy that has rules."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, closing
from functools import wraps
from typing import Any, ParamSpec, Self

from serve.asking import NONE, SECONDS_MAX, Client, Limits, Made, as_test, topics

from kfuzz.client.address import Address
from kfuzz.relay import connection
from kfuzz.relay import proxy as proxies
from kfuzz.relay.loop import run
from kfuzz.relay.proxy import Proxy, Settings
from kfuzz.relay.rule import parse_rule
from kfuzz.serve import Server
from kfuzz.serve import Settings as ServerSettings
from kfuzz.serve.topics import Topics

P = ParamSpec("P")
Scenario = Callable[[Client, Proxy], Awaitable[None]]


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs in a loop of its own, for a bounded time."""

    @wraps(test)
    def runs(*given: P.args, **named: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(SECONDS_MAX):
                await test(*given, **named)

        asyncio.run(bounded())

    return runs


def through(*rules: str, scenario: Scenario, of: Topics | None = None, seed: int = 1) -> Proxy:
    """Run ``scenario`` with a client whose connection goes through a proxy. The proxy, after its end."""

    async def bounded() -> Proxy:
        async with asyncio.timeout(SECONDS_MAX), Server(of or topics(), ServerSettings()) as server:
            at = Address(server.host, server.port)
            return await _between(at, rules, seed, lambda port: Client(server, port), scenario)

    return run(bounded())


def proxied(*rules: str, limits: Limits = NONE) -> Made:
    """Make a test of a scenario with a client of a proxy with rules. ``limits``: other values of constants."""
    return lambda scenario: as_test(scenario, lambda one: through(*rules, scenario=one), limits, connection, proxies)


Scripted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Ends(Client):
    """A client of a proxy in front of any broker, with TLS or without."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self.port = port
        self.context = context

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)
        return self


def asking(proxy: Proxy, context: ssl.SSLContext | None = None) -> Ends:
    """A client of the place of a proxy's first broker."""
    return Ends(next(iter(proxy.places.values())).port, context)


async def no_connection(proxy: Proxy) -> None:
    """Wait until the last connection has ended."""
    while proxy.connections:
        await asyncio.sleep(0.001)


@asynccontextmanager
async def listening(broker: Scripted) -> AsyncIterator[Address]:
    """Where a broker listens that does with each connection as ``broker`` says."""
    # Python 3.12 waits for each connection of a server at the end of an `async with`.
    with closing(await asyncio.start_server(broker, "127.0.0.1", 0)) as server:
        yield Address(*server.sockets[0].getsockname())


def before(broker: Scripted, *rules: str, scenario: Scenario) -> Proxy:
    """Run ``scenario`` with a client whose connection goes through a proxy to a broker that does as ``broker`` says."""

    async def bounded() -> Proxy:
        async with asyncio.timeout(SECONDS_MAX), listening(broker) as at:
            return await _between(at, rules, 1, Ends, scenario)

    return run(bounded())


async def _between(
    broker: Address, rules: Iterable[str], seed: int, client_of: Callable[[int], Client], scenario: Scenario
) -> Proxy:
    async with Proxy([broker], Settings(rules=tuple(map(parse_rule, rules)), seed=seed)) as proxy:
        async with client_of(proxy.places[broker].port) as client:
            await scenario(client, proxy)
        return proxy


def counts(proxy: Proxy) -> list[tuple[int, int]]:
    """For each rule, how many frames it matched, and to how many it was applied."""
    return [(one.matched, one.applied) for one in proxy.rules]


def codes(proxy: Proxy) -> set[str]:
    """The codes of what the proxy remarked."""
    return {one.code for one in proxy.watch.remarks.values()}
