"""A conversation through the proxy with `kfuzz serve`, which other tests look at, show and play back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import made_segments
from relay.proxied import asking
from serve.asking import SECONDS_MAX, Client, fed, fetch_of
from serve.asking import writes as produce_of

from kfuzz import records
from kfuzz.relay.proxy import Proxy, Settings
from kfuzz.serve import Server, Topics
from kfuzz.serve import Settings as ServeSettings

TOPIC = "t"
GROUP = "g"
PROTOCOLS = [{"name": "range", "metadata": b"\0\0"}]
Scenario = Callable[[Proxy], Awaitable[Any]]


def batch(value: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    """A batch of one transactional record."""
    of = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return made_segments.batch(0, value=value, transactional=True, **of)


async def writes(client: Client, value: bytes = b"v", transaction: str = "x") -> int:
    """A transaction of one record. Returns the record's offset."""
    await client.ask("ApiVersions", 3, {"clientSoftwareName": "test", "clientSoftwareVersion": "1"})
    await client.ask("Metadata", 12, {"topics": [{"name": TOPIC}]})
    await client.ask("FindCoordinator", 4, {"keyType": 1, "coordinatorKeys": [transaction]})
    made = await client.ask("InitProducerId", 4, {"transactionalId": transaction, "transactionTimeoutMs": 60_000})
    number, epoch = made["producerId"], made["producerEpoch"]
    old = {"TransactionalId": transaction, "ProducerId": number, "ProducerEpoch": epoch}
    old |= {"Topics": [{"name": TOPIC, "partitions": [0]}]}
    await client.ask("AddPartitionsToTxn", 3, {f"v3AndBelow{name}": one for name, one in old.items()})
    values = produce_of(batch(value, number, epoch, 0), topic=TOPIC, transactionalId=transaction)
    said = await client.ask("Produce", 9, values)
    [partition] = said["responses"][0]["partitionResponses"]
    assert partition["errorCode"] == 0
    ended = {"transactionalId": transaction, "producerId": number, "producerEpoch": epoch, "committed": True}
    await client.ask("EndTxn", 3, ended)
    return int(partition["baseOffset"])


async def joins(client: Client, assignment: bytes = b"\0\0") -> None:
    """A member joins a group, commits an offset and leaves."""
    join: dict[str, Any] = {"groupId": GROUP, "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 10_000}
    join |= {"protocolType": "consumer", "protocols": PROTOCOLS, "memberId": ""}
    said = await client.ask("JoinGroup", 5, join)
    if said["errorCode"]:
        said = await client.ask("JoinGroup", 5, join | {"memberId": said["memberId"]})
    name, generation = said["memberId"], said["generationId"]
    member = {"groupId": GROUP, "generationId": generation, "memberId": name}
    await client.ask("SyncGroup", 3, member | {"assignments": [{"memberId": name, "assignment": assignment}]})
    assert (await client.ask("Heartbeat", 3, member))["errorCode"] == 0
    partition = {"partitionIndex": 0, "committedOffset": 1, "committedMetadata": ""}
    commit = {"groupId": GROUP, "generationIdOrMemberEpoch": generation, "memberId": name}
    said = await client.ask("OffsetCommit", 7, commit | {"topics": [{"name": TOPIC, "partitions": [partition]}]})
    assert said["topics"][0]["partitions"][0]["errorCode"] == 0
    await client.ask("LeaveGroup", 3, {"groupId": GROUP, "members": [{"memberId": name}]})


async def reads(client: Client, offset: int) -> list[bytes | None]:
    """The values of a fetch that begins at this offset."""
    said = await client.ask("Fetch", 12, fetch_of(TOPIC, 12, b"", offset, max_wait_ms=10))
    data = said["responses"][0]["partitions"][0]["records"]
    return [one.value for made in records.decode(data) if not made.control for one in made.records]


async def talk(connect: Callable[[], Client]) -> None:
    """Two clients, one after the other began."""
    async with connect() as producer, connect() as consumer:
        await joins(consumer)
        offset = await writes(producer)
        assert await reads(consumer, offset) == [b"v"]


async def everything(proxy: Proxy) -> None:
    """Both clients, through a proxy."""
    await talk(lambda: asking(proxy))


async def served(scenario: Callable[[Server], Awaitable[Any]], *lines: bytes) -> Any:
    """Run a scenario with a broker that has one topic, after these lines of `kfuzz serve --from-stdin`."""
    settings = ServeSettings(fetch_sessions=True)
    async with asyncio.timeout(SECONDS_MAX), Server(Topics(), settings) as server:
        fed(server.broker.cluster, b'{"topic": "t", "produce": true}', *lines)
        return await scenario(server)


def recorded(folder: Path, scenario: Scenario = everything, **settings: Any) -> list[str]:
    """Record a scenario into a folder. Returns the sentences of the proxy."""
    sentences: list[str] = []

    async def through(server: Server) -> None:
        async with Proxy(server.places, Settings(record=folder, **settings), tell=sentences.append) as proxy:
            await scenario(proxy)

    asyncio.run(served(through))
    return sentences


def recorded_client(folder: Path, talk: Callable[[Client], Awaitable[Any]], **settings: Any) -> list[str]:
    """Record what one client says. Returns the sentences of the proxy."""

    async def alone(proxy: Proxy) -> None:
        async with asking(proxy) as client:
            await talk(client)

    return recorded(folder, alone, **settings)
