"""Kafka's own client holds the suite's conversations: with a real broker where that can be, else with kfuzz's own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from kfuzz.client.address import Access, Address
from kfuzz.client.cluster import BOOTSTRAP, Cluster
from kfuzz.client.protocol import first_error
from kfuzz.conformance.broker.real import Broker, BrokerFailed
from kfuzz.conformance.judge.compare import Case, Cell, cases_of
from kfuzz.conformance.judge.confirmation import Confirmation
from kfuzz.conformance.judge.runner import cells, judged_answer
from kfuzz.conformance.protocol.lines import Handshake
from kfuzz.conformance.protocol.peer import Result, TesteeProcess
from kfuzz.conformance.protocol.session import Trouble
from kfuzz.conformance.protocol.testees import all_testees, select
from kfuzz.relay.frames import Pairing
from kfuzz.vectors.kinds import CLIENT, CONVERSATION
from kfuzz.vectors.model import Vector

KAFKA_CLIENT: Final = "kafka-consumer"
VARIABLE: Final = "KFUZZ_BOOTSTRAP"
# Clients send this while they wait. An answer with nothing in it is smaller than this.
WAITING: Final = ("Fetch", "ShareFetch")
IDLE_BYTES_MAX: Final = 80
OLDER_STEPS: Final = {"AddPartitionsToTxn", "AddOffsetsToTxn"}
SAFE_DOWNGRADE: Final = 2
WAIT_MS: Final = 10_000
# A cluster of one broker, without the waits of a large one.
SETTINGS: Final = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
}


def is_for_real_broker(vector: Vector) -> bool:
    """Whether nothing happens that only kfuzz's own brokers can do."""
    acts = {act["do"] for act in vector.options["application"]}
    return not {"brokers", "broker"} & vector.options.keys() and "move" not in acts


def talk(vectors: Sequence[Vector]) -> Confirmation:
    """Ask Kafka's own client about the conversations. ``frames`` of the result has what was sent in each.

    ``UsageError`` if Java or Maven is missing; ``BrokerFailed`` if the broker does not start.
    """
    found = Confirmation()
    asked = [vector for vector in vectors if vector.kind == CONVERSATION]
    real = [vector for vector in asked if is_for_real_broker(vector)]
    for is_older in (False, True):
        if chosen := [vector for vector in real if _adds_partitions(vector) is is_older]:
            with Broker(SETTINGS) as broker, _bootstrap(f"127.0.0.1:{broker.port}"):
                if is_older:
                    asyncio.run(_take_back_transactions(broker.port))
                _ask(chosen, found, "a real broker")
    _ask([vector for vector in asked if vector not in real], found, "brokers of kfuzz's own")
    return found


def _adds_partitions(vector: Vector) -> bool:
    """Whether the conversation is about a step that clients leave out since the second version of transactions."""
    apis = {one["api"] for one in (*vector.options.get("rules", ()), *vector.expect[CLIENT].get("follows", ()))}
    return bool(apis & OLDER_STEPS)


async def _take_back_transactions(port: int) -> None:
    """Let the broker have transactions of the first version."""
    cluster = Cluster(Access(bootstrap=Address("127.0.0.1", port)), lambda: None)
    try:
        await cluster.open()
        link = await cluster.link(BOOTSTRAP)
        update = {"feature": "transaction.version", "maxVersionLevel": 1, "upgradeType": SAFE_DOWNGRADE}
        code, message = first_error(
            await link.call("UpdateFeatures", {"featureUpdates": [update], "timeoutMs": WAIT_MS})
        )
        if code:
            raise BrokerFailed(f"the broker keeps its version of transactions: {message}")
    finally:
        await cluster.close()


def _ask(vectors: Sequence[Vector], found: Confirmation, broker: str) -> None:
    [testee] = select(all_testees(), [KAFKA_CLIENT])
    testee.make_ready()
    # On a busy machine a client may join its group too late. So what it contradicts is asked again, in a new process.
    asked = vectors
    for is_last in (False, True):
        again: list[Vector] = []
        with TesteeProcess(testee.argv, cwd=testee.folder) as peer:
            answers: dict[str, dict[str, Any]]
            answers = found.answers.setdefault(CLIENT, {}).setdefault(peer.handshake.version, {})
            for case, cell in cells(peer, cases_of(asked, [CLIENT]), _kept):
                vector = case.vector
                if not cell.text:
                    answers[vector.id] = {"outcome": "accepted"}
                    found.frames[vector.id] = trimmed(cell.answer["frames"], cell.answer["troubles"])
                elif is_last:
                    found.contradictions.append(
                        f"{vector.id}: Kafka's client contradicts it with {broker}: {cell.text}"
                    )
                else:
                    again.append(vector)
        if not (asked := again):
            return


def _kept(case: Case, handshake: Handshake, result: Result) -> Cell:
    """The judgement, with the frames of the answer."""
    cell = judged_answer(case, handshake, result)
    text = cell.text or ("" if cell.outcome == "pass" else cell.outcome)
    return replace(cell, text=text, answer={} if isinstance(result, Trouble) else dict(result.raw))


def trimmed(frames: Sequence[Mapping[str, Any]], troubles: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """The frames without their times, and without a connection's last ones in which nothing came.

    Those of exchanges that met ``troubles`` are marked.
    """
    met = {tuple(one) for one in troubles}
    made: list[dict[str, Any]] = []
    pairings: dict[int, Pairing] = {}
    # Of each connection, the place of the last frame that matters.
    last: dict[int, int] = {}
    for at, one in enumerate(frames):
        data, number = bytes.fromhex(one["hex"]), one["connection"]
        pairing = pairings.setdefault(number, Pairing(number))
        exchange = pairing.exchange("request" if one["from"] == "client" else "response", data)
        waits = exchange is not None and exchange.name in WAITING
        is_idle = waits and (one["from"] == "client" or len(data) < IDLE_BYTES_MAX)
        has_trouble = exchange is not None and (number, exchange.number) in met
        if not is_idle or has_trouble:
            last[number] = at
        kept = {name: one[name] for name in ("connection", "from", "place", "hex")}
        made.append(kept | ({"trouble": True} if has_trouble else {}))
    return [one for at, one in enumerate(made) if at <= last.get(one["connection"], -1)]


@contextmanager
def _bootstrap(address: str) -> Iterator[None]:
    """The testee finds a real broker there."""
    os.environ[VARIABLE] = address
    try:
        yield
    finally:
        del os.environ[VARIABLE]
