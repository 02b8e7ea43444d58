"""kfuzz state says of a running broker's log directory what the broker says itself, and what Kafka's tool finds."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz
from conftest import require_kafka_build

from kfuzz import records
from kfuzz.client.address import Address, Security
from kfuzz.client.link import Link
from kfuzz.client.protocol import RETRIABLE, first_error
from kfuzz.conformance.broker.real import Broker
from kfuzz.logs.snapshot import decode
from kfuzz.messages.jsonform import uuid_text
from kfuzz.records import Record, RecordBatch

pytestmark = [pytest.mark.java, pytest.mark.full]

# The settings of the broker, and the requests before and after those that depend on answers: API, values, version.
REQUESTS = json.loads(Path(__file__).with_name("state_requests.json").read_text())
MEMBER = "AAAAAAAAAAAAAAAAAAAAAg"
ATTEMPTS = 600
ORDERS = {"name": "orders", "partitions": [0]}
SUBSCRIPTION = bytes.fromhex("0000000000010006") + b"orders" + b"\xff" * 4
# A new member of a group gets its id with this error.
MEMBER_ID_REQUIRED = 79


class Talk:
    """A connection, and requests by the names of APIs."""

    def __init__(self, link: Link) -> None:
        self.link = link

    async def call(self, api: str, version: int | None = None, /, **values: Any) -> dict[str, Any]:
        for _ in range(ATTEMPTS):
            answer = await self.link.call(api, values, version)
            if first_error(answer)[0] not in RETRIABLE:
                break
            await asyncio.sleep(0.1)
        assert first_error(answer)[0] in (0, MEMBER_ID_REQUIRED), (api, answer)
        return dict(answer)

    async def producer(self, id: str) -> dict[str, Any]:
        await self.call("FindCoordinator", 3, key=id, keyType=1)
        made = await self.call("InitProducerId", transactionalId=id, transactionTimeoutMs=600_000)
        return {"transactionalId": id, "producerId": made["producerId"], "producerEpoch": made["producerEpoch"]}

    async def produce(self, id: str, producer_id: int, epoch: int) -> None:
        made = [Record(i, round(time.time() * 1000), b"k", b"v") for i in (0, 1)]
        header = {"transactional": True, "producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
        data = [{"index": 0, "records": records.encode([RecordBatch(0, 1, made, **header)])}]
        values = {"topicData": [{"name": "orders", "partitionData": data}], "acks": -1, "timeoutMs": 9000}
        await self.call("Produce", transactionalId=id, **values)

    async def commit(self, group: str, member: str, epoch: int, *offsets: int) -> None:
        places = [
            {"partitionIndex": i, "committedOffset": one, "committedMetadata": ""} for i, one in enumerate(offsets)
        ]
        topics = [{"name": "orders", "partitions": places}]
        await self.call("FindCoordinator", 3, key=group, keyType=0)
        await self.call("OffsetCommit", groupId=group, memberId=member, generationIdOrMemberEpoch=epoch, topics=topics)


async def live(port: int) -> dict[str, Any]:
    """Everything that `kfuzz state` shows happens; returns what the broker says of it."""
    link = Link(Address("127.0.0.1", port), Security(), in_flight=100, timeout_ms=60_000)
    await link.open()
    talk = Talk(link)
    call = talk.call
    for api, values in REQUESTS["first"]:
        await call(api, **values)
    user = {"name": "a", "mechanism": 1, "iterations": 4096, "salt": b"salt1234", "saltedPassword": bytes(32)}
    await call("AlterUserScramCredentials", upsertions=[user])
    for id in ("commit", "abort", "open"):
        made = await talk.producer(id)
        values = {f"v3AndBelow{name[0].upper()}{name[1:]}": one for name, one in made.items()}
        await call("AddPartitionsToTxn", v3AndBelowTopics=[ORDERS], **values)
        await talk.produce(id, made["producerId"], made["producerEpoch"])
        if id != "open":
            await call("EndTxn", **made, committed=id == "commit")
    # No coordinator knows this producer.
    await talk.produce("", 777, 3)
    await talk.commit("simple", "", -1, 2, 0)
    await talk.commit("deleted", "", -1, 1)
    await call("OffsetDelete", groupId="deleted", topics=[{"name": "orders", "partitions": [{"partitionIndex": 0}]}])
    for id, partition in (("commit", 0), ("abort", 1)):
        made = await talk.producer(id)
        await call("AddOffsetsToTxn", groupId="tx", **made)
        offset = [{"partitionIndex": partition, "committedOffset": 1}]
        await call("TxnOffsetCommit", 4, groupId="tx", topics=[{"name": "orders", "partitions": offset}], **made)
        await call("EndTxn", **made, committed=id == "commit")
    joins = {"groupId": "classic", "sessionTimeoutMs": 45_000, "rebalanceTimeoutMs": 60_000, "protocolType": "consumer"}
    joins["protocols"] = [{"name": "range", "metadata": SUBSCRIPTION}]
    member = (await call("JoinGroup", memberId="", **joins))["memberId"]
    generation = (await call("JoinGroup", memberId=member, **joins))["generationId"]
    protocol = {"protocolType": "consumer", "protocolName": "range"}
    await call("SyncGroup", groupId="classic", generationId=generation, memberId=member, assignments=[], **protocol)
    await talk.commit("classic", member, generation, 4)
    epochs = {}
    for api, group in (("ConsumerGroupHeartbeat", "consumer"), ("ShareGroupHeartbeat", "share")):
        values = {"groupId": group, "memberId": MEMBER, "subscribedTopicNames": ["orders"]}
        extra = {"rebalanceTimeoutMs": 60_000, "topicPartitions": []} if group == "consumer" else {}
        said = await call(api, memberEpoch=0, **values, **extra)
        for _ in range(ATTEMPTS):
            if (said["assignment"] or {}).get("topicPartitions"):
                break
            await asyncio.sleep(0.1)
            said = await call(api, groupId=group, memberId=MEMBER, memberEpoch=said["memberEpoch"])
        epochs[group] = said["memberEpoch"]
        id = said["assignment"]["topicPartitions"][0]["topicId"]
    await talk.commit("consumer", MEMBER, epochs["consumer"], 3)
    fetch = {"groupId": "share", "memberId": MEMBER, "maxWaitMs": 500, "minBytes": 1, "maxBytes": 1 << 20}
    for epoch in range(ATTEMPTS):
        wanted = [{"topicId": id, "partitions": [{"partitionIndex": 0}]}] if not epoch else []
        said = await call("ShareFetch", 1, shareSessionEpoch=epoch, maxRecords=2, batchSize=2, topics=wanted, **fetch)
        if any(one["acquiredRecords"] for topic in said["responses"] for one in topic["partitions"]):
            break
    done = [{"firstOffset": 0, "lastOffset": 0, "acknowledgeTypes": [1]}]
    place = {"partitionIndex": 0, "acknowledgementBatches": done}
    fetch = {"groupId": "share", "memberId": MEMBER, "shareSessionEpoch": epoch + 1}
    await call("ShareAcknowledge", 1, topics=[{"topicId": id, "partitions": [place]}], **fetch)
    await call("DeleteTopics", topicNames=["gone"], timeoutMs=9000)
    answers = {}
    # The start offset of the share group moves a little later than the acknowledgement.
    for _ in range(ATTEMPTS):
        for name, (api, values, *version) in REQUESTS["last"].items():
            answers[name] = await call(api, *version, **values)
        if any(one["startOffset"] == 1 for one in answers["share"]["groups"][0]["topics"][0]["partitions"]):
            break
        await asyncio.sleep(0.1)
    link.close()
    return answers


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Broker, dict[str, Any]]]:
    require_kafka_build()
    with Broker(REQUESTS["settings"]) as broker:
        yield broker, asyncio.run(live(broker.port))


def state(what: str, path: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(kfuzz("state", what, path, "--json").stdout)
    return made


def test_producers_are_those_that_the_broker_describes(cluster: tuple[Broker, dict[str, Any]]) -> None:
    broker, said = cluster
    names = (
        "producerId",
        "producerEpoch",
        "lastSequence",
        "lastTimestamp",
        "coordinatorEpoch",
        "currentTxnStartOffset",
    )
    [partition] = said["producers"]["topics"][0]["partitions"]
    ours = ("producer_id", "epoch", "last_sequence", "timestamp", "coordinator_epoch", "current_txn_first_offset")
    found = state("producers", broker.data / "orders-0")["producers"]
    theirs = sorted([one[name] for name in names] for one in partition["activeProducers"])
    assert [[one[name] for name in ours] for one in found] == theirs
    assert len(found) == 4


def test_groups_have_the_states_and_offsets_that_the_broker_gives(cluster: tuple[Broker, dict[str, Any]]) -> None:
    broker, said = cluster
    found = state("groups", broker.data)
    # Until it looks at them again, a broker lists groups that have lost all of their offsets.
    theirs = {one["groupId"]: (one["groupType"], one["groupState"]) for one in said["groups"]["groups"]}
    del theirs["deleted"]
    assert {one["group"]: (one["type"], one["state"]) for one in found["groups"]} == theirs
    offsets = {
        (group["groupId"], topic["name"], one["partitionIndex"]): one["committedOffset"]
        for group in said["offsets"]["groups"]
        for topic in group["topics"]
        for one in topic["partitions"]
    }
    assert {(one["group"], one["topic"], one["partition"]): int(one["offset"]) for one in found["offsets"]} == offsets
    assert len(offsets) == 5


def test_share_groups_have_the_start_and_lag_that_the_broker_gives(cluster: tuple[Broker, dict[str, Any]]) -> None:
    broker, said = cluster
    [topic] = said["share"]["groups"][0]["topics"]
    theirs = {
        one["partitionIndex"]: (one["startOffset"], one["leaderEpoch"], one["lag"]) for one in topic["partitions"]
    }
    found = state("shares", broker.data)["shares"]
    assert theirs[0][0] == 1
    lag = {one["partition"]: -1 if one["lag"] is None else one["lag"] for one in found}
    assert {
        one["partition"]: (int(one["startOffset"]), one["leaderEpoch"], lag[one["partition"]]) for one in found
    } == theirs


def test_the_metadata_are_what_the_broker_answers(cluster: tuple[Broker, dict[str, Any]]) -> None:
    broker, said = cluster
    found = state("metadata", broker.data)["metadata"]
    topics = {one["name"]: uuid_text(one["topicId"]) for one in said["metadata"]["topics"]}
    assert {name: one["topicId"] for name, one in found["topics"].items()} == topics
    names = ("leaderId", "leaderEpoch", "replicaNodes", "isrNodes")
    theirs = {
        f"{topic['name']}-{one['partitionIndex']}": [one[name] for name in names]
        for topic in said["metadata"]["topics"]
        for one in topic["partitions"]
    }
    ours = ("leader", "leaderEpoch", "replicas", "isr")
    assert {name: [one[field] for field in ours] for name, one in found["partitions"].items()} == theirs
    configs = said["configs"]["results"][0]["configs"]
    # 1 is a configuration of the topic.
    assert found["configs"]["topic orders"] == {
        one["name"]: one["value"] for one in configs if one["configSource"] == 1
    }
    [entry] = found["acls"].values()
    assert [entry[name] for name in ("operation", "patternType", "principal")] == ["read", "prefixed", "User:a"]
    assert len(said["acls"]["resources"]) == 1
    assert [one["value"] for one in found["quotas"].values()] == [said["quotas"]["entries"][0]["values"][0]["value"]]
    [user] = said["users"]["results"]
    assert found["scram"] == {"a SCRAM-SHA-256": {"iterations": user["credentialInfos"][0]["iterations"]}}


def test_the_hanging_transaction_is_the_one_that_kafkas_tool_finds_and_its_command_ends_it(
    cluster: tuple[Broker, dict[str, Any]],
) -> None:
    broker, _ = cluster

    def tool(*words: str) -> str:
        argv = broker.tool("org.apache.kafka.tools.TransactionsCommand", *words)
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True).stdout

    server = ("--bootstrap-server", f"127.0.0.1:{broker.port}")
    found = state("transactions", broker.data)["open"]
    [hanging] = [one for one in found if one["hangs"]]
    assert [one["transactional_id"] for one in found] == ["open", None]
    asked = kfuzz("state", "transactions", "--bootstrap", server[1], "--topics", "orders", "--json")
    live = json.loads(asked.stdout)["open"]
    assert [(one["first_offset"], one["records"]) for one in live] == [(one["first_offset"], 2) for one in found]
    theirs = tool(*server, "find-hanging", "--topic", "orders", "--max-transaction-timeout", "0").splitlines()
    assert [line.split()[:3] for line in theirs[1:]] == [["orders", "0", str(hanging["producer_id"])]]
    words = hanging["command"].split()
    tool(*server, *words[words.index("abort") :])
    assert [one["transactional_id"] for one in state("transactions", broker.data)["open"]] == ["open"]
    broker.stop()
    [snapshot] = (broker.data / "orders-0").glob("*.snapshot")
    names = ("producer_id", "epoch", "last_sequence", "last_offset", "coordinator_epoch", "current_txn_first_offset")
    ours = state("producers", broker.data / "orders-0")["producers"]
    theirs_left = sorted([getattr(one, name) for name in names] for one in decode(snapshot.read_bytes()) or ())
    assert [[one[name] for name in names] for one in ours] == theirs_left
