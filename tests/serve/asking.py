"""The other side of a conversation with `kfuzz serve`: requests as bytes, answers as values, and a raw socket."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from kfuzz import messages
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.headers import request_header_version, response_header_version
from kfuzz.serve import Broker, Cluster, Server, Settings, Topics, cluster, feed, topics_of
from kfuzz.serve import server as serving
from kfuzz.serve.cluster import Caller
from kfuzz.vectors import load_suite

MINIMAL = "records/v2/header/minimal"
INVALID = "records/v2/count/negative-one"
SECONDS_MAX = 30
HERE = Caller("127.0.0.1", 9092)


def topics(*globs: str) -> Topics:
    made = Topics()
    for topic in topics_of(load_suite(globs or (MINIMAL, INVALID), kinds=("records", "stream"))).values():
        made.put(topic)
    return made


def request(api: str, version: int, values: dict[str, Any], number: int = 7) -> bytes:
    definition = catalogue().find(f"{api}Request")
    header = {"requestApiKey": definition.api_key, "requestApiVersion": version}
    header |= {"correlationId": number, "clientId": "test"}
    head = messages.encode("RequestHeader", request_header_version(definition, version), header)
    return head + messages.encode(definition, version, values)


def response(api: str, version: int, answer: bytes, number: int = 7) -> dict[str, Any]:
    definition = catalogue().find(f"{api}Response")
    header = messages.read("ResponseHeader", response_header_version(definition, version), answer)
    assert header.message is not None
    assert header.message["correlationId"] == number
    return messages.decode(definition, version, answer[header.consumed :], profile="strict")


class Client:
    """A raw socket's side of the conversation."""

    def __init__(self, server: Server, port: int | None = None) -> None:
        self.server = server
        self.port = port or server.port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection(self.server.host, self.port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()

    async def ask(self, api: str, version: int, values: dict[str, Any]) -> dict[str, Any]:
        return response(api, version, await self.exchange(request(api, version, values)))

    async def exchange(self, frame: bytes) -> bytes:
        self.writer.write(sized(frame))
        return await self.answer()

    async def answer(self) -> bytes:
        [size] = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def is_closed_after(self, data: bytes) -> bool:
        self.writer.write(data)
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def run(scenario: Callable[[Server], Coroutine[Any, Any, Any]], of: Topics | None = None, **settings: Any) -> list[str]:
    """Run ``scenario`` with a server. Returns the sentences that the server has printed."""
    printed: list[str] = []

    async def bounded() -> None:
        async with (
            asyncio.timeout(SECONDS_MAX),
            Server(of or topics(), Settings(**settings), tell=printed.append) as server,
        ):
            await scenario(server)

    asyncio.run(bounded())
    return printed


@contextmanager
def started(*words: str, **more: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of ``kfuzz WORDS…``, which is killed in the end, and the first line that it prints."""
    command = [sys.executable, "-m", "kfuzz", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more) as process:
        try:
            assert process.stdout
            yield process, process.stdout.readline()
        finally:
            process.kill()


Scenario = Callable[..., Coroutine[Any, Any, None]]
Made = Callable[[Scenario], Callable[..., None]]
Limits = Mapping[str, Any]
NONE: Limits = {}


def as_test(
    scenario: Scenario, run: Callable[[Scenario], None], limits: Limits, *of: ModuleType, given: int = 2
) -> Callable[..., None]:
    """A test that lets ``run`` run a scenario, which gets so many things from it, and then fixtures.

    ``limits``: other values of constants of these modules.
    """

    @functools.wraps(scenario)
    def test(**fixtures: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in limits.items():
                patch.setattr(next(one for one in of if hasattr(one, name)), name, value)
            run(functools.partial(scenario, **fixtures))

    signature = inspect.signature(scenario)
    fixtures = list(signature.parameters.values())[given:]
    test.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
    return test


def served(*says: str, of: Callable[[], Topics] = topics, limits: Limits = NONE, **settings: Any) -> Made:
    """Make a test of a scenario with a server of topics, which says this and nothing else. The rest are fixtures.

    ``limits``: other values of constants of ``kfuzz.serve``.
    """

    def check(scenario: Scenario) -> None:
        said = run(scenario, of(), **settings)
        assert [one.partition(": connection closed: ")[2] or one for one in said] == list(says)

    return lambda scenario: as_test(scenario, check, limits, cluster, serving, given=1)


def fetch_of(name: str, version: int, topic_id: bytes, offset: int, max_wait_ms: int = 0) -> dict[str, Any]:
    partition = {"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}
    named = {"topicId": topic_id} if version >= 13 else {"topic": name}
    return {"maxWaitMs": max_wait_ms, "minBytes": 1, "topics": [{**named, "partitions": [partition]}]}


def writes(data: bytes, acks: int = -1, topic: str = "t", **more: Any) -> dict[str, Any]:
    """The values of a Produce request."""
    partition = {"index": 0, "records": data}
    return {"acks": acks, "topicData": [{"name": topic, "partitionData": [partition]}], **more}


def asked(broker: Broker, api: str, version: int, values: dict[str, Any], caller: Caller = HERE) -> dict[str, Any]:
    """The answer to a request, without a socket."""
    data = broker.answer(request(api, version, values), caller).data
    assert data is not None
    return response(api, version, data)


def with_topics(*lines: dict[str, Any]) -> Broker:
    """A cluster of three after these lines of the feeding program."""
    broker = Broker(Topics())
    broker.cluster.ports = {1: 1, 2: 2, 3: 3}
    assert not [one for one in fed(broker.cluster, *lines) if "error" in one]
    return broker


def fed(of: Cluster, *given: Any) -> list[dict[str, Any]]:
    """The answers to lines of the feeding program."""

    async def lines() -> Any:
        for one in given:
            yield one if isinstance(one, bytes) else json.dumps(one).encode()

    said: list[dict[str, Any]] = []
    # Nothing waits, so it needs no event loop.
    with pytest.raises(StopIteration):
        feed(of, lines(), said.append).send(None)
    return said
