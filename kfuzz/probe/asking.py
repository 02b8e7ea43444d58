"""Asks a broker about one vector: a Produce request with exactly its bytes, then a fetch of the partition."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kfuzz.client.cluster import Cluster
from kfuzz.client.link import Link
from kfuzz.client.protocol import ConnectionLost, ProduceForm, error_name, throttle_ms
from kfuzz.messages.codec import Message
from kfuzz.probe.observed import Observed, is_excessive
from kfuzz.serve.topics import headers
from kfuzz.text import foreign_text
from kfuzz.wire.io.layout import HEADER_AT, TRANSACTIONAL
from kfuzz.wire.records.framing import frames

ALL: Final = -1
# Without a transactional id, a broker refuses a transactional batch before it reads it.
TRANSACTIONAL_ID: Final = "kfuzz-probe"
# The connection for batches; Cluster has another one for everything else.
BATCHES: Final = 0
FETCH_BYTES_MAX: Final = 16 << 20
# A fetch that ends in the middle of what was stored is followed by another one.
FETCHES_MAX: Final = 16
# An accepted batch may not be served at once.
SERVED_WITHIN_S: Final = 1.0
PAUSE_S: Final = 0.05
THROTTLE_S_MAX: Final = 5.0
# A new partition has no leader for a moment: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER.
NOT_READY: Final = (3, 5, 6)


class Place(NamedTuple):
    """A partition that nothing has been written to."""

    topic: str
    partition: int


def is_transactional(data: bytes) -> bool:
    """Whether a batch of magic 2 has the bit of transactions."""
    at = HEADER_AT["attributes"] + 1
    return any(magic == 2 and data[start + at] & TRANSACTIONAL for start, _, magic in frames(data))


async def ask(cluster: Cluster, place: Place, data: bytes) -> Observed:
    """The broker's reaction to ``data``. The way in which a connection is lost is an observation too.

    ``ConnectionLost`` if the broker cannot be reached before the request.
    """
    seen = await _produce(cluster, place, data)
    if seen.outcome not in ("accepted", "rejected"):
        return seen
    stored, failure = await _fetch(cluster, place, wait_s=SERVED_WITHIN_S if seen.outcome == "accepted" else 0)
    if is_excessive(data, stored):
        stored, failure = b"", "garbled"
    elif seen.outcome == "rejected":
        # There is nothing to fetch, so how that failed says nothing about the vector.
        failure = ""
    return replace(seen, stored=stored, fetch=failure)


async def _leader(cluster: Cluster, place: Place) -> Link | None:
    generation = cluster.generation
    link = await cluster.leader(*place, BATCHES)
    if link is None:
        await asyncio.sleep(PAUSE_S)
        await cluster.refresh_leaders(place.topic, generation)
    return link


async def _produce(cluster: Cluster, place: Place, data: bytes) -> Observed:
    timeout_ms = cluster.settings.timeout_ms
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        link = await _leader(cluster, place)
        if link is None:
            if time.monotonic() < deadline:
                continue
            return Observed("rejected", "LEADER_NOT_AVAILABLE")
        version = link.version("Produce")
        form = ProduceForm(version, *place, ALL, timeout_ms, TRANSACTIONAL_ID if is_transactional(data) else None)
        number = link.next_number()
        try:
            values = link.read("Produce", version, await link.answer(number, form.around(number, data)))
            said = values["responses"][0]["partitionResponses"][0]
        except ConnectionLost:
            return Observed(link.lost_how, text=link.lost or "")
        except IndexError:
            link.lose("the answer to Produce has no partition", "garbled")
            return Observed("garbled", text=link.lost or "")
        await _rest(values)
        code = said["errorCode"]
        if code in NOT_READY and time.monotonic() < deadline:
            await asyncio.sleep(PAUSE_S)
            await cluster.refresh_leaders(place.topic, cluster.generation)
            continue
        text = foreign_text(said.get("errorMessage") or "")
        if code:
            return Observed("rejected", error_name(code), text)
        return Observed("accepted", "NONE", text, said["baseOffset"])


async def _rest(values: Message) -> None:
    """Wait as long as the broker's throttle time says, but at most ``THROTTLE_S_MAX``."""
    if wait_ms := throttle_ms(values):
        await asyncio.sleep(min(wait_ms / 1000, THROTTLE_S_MAX))


async def _fetch(cluster: Cluster, place: Place, *, wait_s: float) -> tuple[bytes, str]:
    """All bytes of a partition, and how the last fetch failed. Waits for the first bytes at most ``wait_s``."""
    stored = b""
    offset = 0
    deadline = time.monotonic() + wait_s
    for _ in range(FETCHES_MAX):
        while True:
            try:
                said = await _fetched(cluster, place, offset)
            except ConnectionLost:
                return stored, "closed"
            if isinstance(said, str):
                return stored, said
            if said["records"] or time.monotonic() >= deadline:
                break
            await asyncio.sleep(PAUSE_S)
        data = bytes(said["records"] or b"")
        stored += data
        end = 0
        for one in headers(data):
            end = one.last_offset + 1
        if not data or end <= offset or end >= said["highWatermark"] or len(stored) > FETCH_BYTES_MAX:
            break
        offset = end
    return stored, ""


async def _fetched(cluster: Cluster, place: Place, offset: int) -> Any:
    """The partition in the answer to a Fetch, or how the fetch failed."""
    link = await _leader(cluster, place)
    if link is None:
        return "LEADER_NOT_AVAILABLE"
    partition = {"partition": place.partition, "fetchOffset": offset, "partitionMaxBytes": FETCH_BYTES_MAX}
    values = {
        "replicaId": -1,
        "maxWaitMs": 0,
        "minBytes": 0,
        "maxBytes": FETCH_BYTES_MAX,
        "topics": [{"topic": place.topic, "partitions": [partition]}],
    }
    try:
        answer = await link.call("Fetch", values)
        said = answer["responses"][0]["partitions"][0] if not answer.get("errorCode") else answer
    except ConnectionLost:
        return link.lost_how
    except IndexError:
        return "garbled"
    await _rest(answer)
    return error_name(said["errorCode"]) if said["errorCode"] else said
