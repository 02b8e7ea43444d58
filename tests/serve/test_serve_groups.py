"""Consumer groups of the classic kind: members wait for each other, and each gets what the leader says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from serve.asking import HERE, Client, asked, fed, request, served

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.serve import Broker, Server, Topics, groups
from kfuzz.serve import cluster as serving

BOTH = [{"name": "range", "metadata": b"r"}, {"name": "sticky", "metadata": b"s"}]
JOIN = {"groupId": "g", "protocolType": "consumer", "protocols": BOTH}


@pytest.fixture(autouse=True)
def members_are_gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "FIRST_RETURN_S_MAX", 0.1)
    monkeypatch.setattr(groups, "RETURN_S_MAX", 0.1)


async def join(client: Client, member_id: str = "", protocols: Any = BOTH, **more: Any) -> dict[str, Any]:
    return await client.ask("JoinGroup", 5, JOIN | {"memberId": member_id, "protocols": protocols} | more)


async def sync(client: Client, joined: dict[str, Any], assignments: Any = ()) -> dict[str, Any]:
    return await client.ask("SyncGroup", 3, _as(joined) | {"assignments": list(assignments)})


def _as(joined: dict[str, Any]) -> dict[str, Any]:
    return {"groupId": "g", "generationId": joined["generationId"], "memberId": joined["memberId"]}


@served()
async def test_two_members_share_a_group_and_one_that_goes_leaves_it_to_the_other(server: Server) -> None:
    async with Client(server) as one:
        first = await join(one)
        assert (first["leader"], len(first["members"])) == (first["memberId"], 1)
        given = [{"memberId": first["memberId"], "assignment": b"all"}]
        assert (await sync(one, first, given))["assignment"] == b"all"
        assert (await one.ask("Heartbeat", 3, _as(first)))["errorCode"] == 0
        async with Client(server) as two:
            waiting = asyncio.create_task(join(two, protocols=BOTH[1:]))
            while (await one.ask("Heartbeat", 3, _as(first)))["errorCode"] != 27:
                await asyncio.sleep(0)
            again = await join(one, first["memberId"])
            second = await waiting
            assert again["generationId"] == second["generationId"] == 2
            # Both have it.
            assert (again["protocolName"], second["leader"], second["members"]) == ("sticky", again["memberId"], [])
            assert [each["metadata"] for each in again["members"]] == [b"s", b"s"]
            waiting = asyncio.create_task(sync(two, second))
            both = [{"memberId": each["memberId"], "assignment": b"half"} for each in again["members"]]
            assert (await sync(one, again, both))["assignment"] == b"half"
            assert (await waiting)["assignment"] == b"half"
            stale = await one.ask("Heartbeat", 3, _as(first))
            assert stale["errorCode"] == 22
        # The second connection is closed, and its member gone.
        while (await one.ask("Heartbeat", 3, _as(again)))["errorCode"] != 27:
            await asyncio.sleep(0)
        assert len((await join(one, first["memberId"]))["members"]) == 1


@served(limits={"HELD_S_MAX": 0.05})
async def test_a_group_that_all_have_left_while_one_waits_for_its_assignment_is_empty(server: Server) -> None:
    async with Client(server) as one, Client(server) as two:
        first = await join(one)
        waiting = asyncio.create_task(join(two))
        while (await one.ask("Heartbeat", 3, _as(first)))["errorCode"] != 27:
            await asyncio.sleep(0)
        members = [await join(one, first["memberId"]), await waiting]
        waiting = asyncio.create_task(sync(two, members[1]))
        await asyncio.sleep(0)
        left = [{"memberId": one["memberId"]} for one in members]
        await one.ask("LeaveGroup", 3, {"groupId": "g", "members": left})
        assert (await waiting)["errorCode"] == ERROR_CODES["UNKNOWN_MEMBER_ID"]


@served(limits={"HELD_S_MAX": 600})
async def test_a_member_that_does_not_join_again_has_the_rebalance_timeout_for_it(server: Server) -> None:
    async with Client(server) as one, Client(server) as two:
        await join(one, rebalanceTimeoutMs=1)
        second = await join(two, rebalanceTimeoutMs=20)
        assert (second["generationId"], len(second["members"])) == (2, 1)


@served()
async def test_a_member_that_does_not_join_again_is_left_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HELD_S_MAX", 0.05)
    async with Client(server) as one, Client(server) as two:
        first = await join(one)
        second = await join(two)
        assert [each["memberId"] for each in second["members"]] == [second["memberId"]]
        assert (await one.ask("Heartbeat", 3, _as(first)))["errorCode"] == 25
        # The leader never says who gets what, so a follower has to join again.
        monkeypatch.setattr(serving, "HELD_S_MAX", 5)
        waiting = asyncio.create_task(join(one))
        await asyncio.sleep(0)
        again = await join(two, second["memberId"])
        third = await waiting
        monkeypatch.setattr(serving, "HELD_S_MAX", 0.05)
        assert again["leader"] == second["memberId"] != third["memberId"]
        assert (await sync(one, third))["errorCode"] == 27


TOPIC = "00000001 000174"  # t
PARTITION = f"{TOPIC} 00000001 00000000"


@pytest.mark.parametrize(
    ("subscription", "assignment", "unreadable"),
    [
        (f"0000 {TOPIC} ffffffff", f"0000 {PARTITION} ffffffff", ""),
        (f"0001 {TOPIC} ffffffff {PARTITION}", "", ""),
        # Those of a newer version may have more at their end.
        (f"7fff {TOPIC} ffffffff 00000000 00000000 0000 00", f"7fff {PARTITION} 00000000 00", ""),
        (f"0001 {TOPIC} ffffffff", "", "version 1 of ConsumerProtocolSubscription.ownedPartitions at byte 11"),
        (f"0000 {TOPIC}", "00", "version 0 of ConsumerProtocolSubscription.userData at byte 7"),
        (f"0000 {TOPIC} ffffffff", f"0000 {PARTITION}", "version 0 of ConsumerProtocolAssignment.userData at byte 15"),
        ("ffff", "", "ConsumerProtocolSubscription has no version"),
    ],
)
@served()
async def test_a_coordinator_that_reads_groups_notes_what_members_cannot_read(
    server: Server, subscription: str, assignment: str, unreadable: str
) -> None:
    cluster = server.broker.cluster
    protocols = [{"name": "range", "metadata": bytes.fromhex(subscription)}]
    for reads in (False, True):
        cluster.reads_groups = reads
        async with Client(server) as client:
            joined = await join(client, protocols=protocols)
            given = [{"memberId": joined["memberId"], "assignment": bytes.fromhex(assignment)}]
            assert (await sync(client, joined, given))["errorCode"] == 0
        assert cluster.unreadable.partition(":")[0] == (unreadable if reads else "")


@served()
async def test_protocols_that_not_all_members_have_are_refused(server: Server) -> None:
    async with Client(server) as one, Client(server) as two:
        await join(one, protocols=BOTH[:1])
        assert (await join(two, protocols=BOTH[1:]))["errorCode"] == 23
        assert (await join(two, "nobody"))["errorCode"] == 25


@served(brokers=2)
async def test_a_group_survives_the_move_of_its_coordinator(server: Server) -> None:
    async with Client(server) as old:
        joined = await join(old)
        server.broker.cluster.coordinators["g"] = 2
        assert (await old.ask("Heartbeat", 3, _as(joined)))["errorCode"] == 16
    async with Client(server, port=server.broker.cluster.ports[2]) as new:
        while len(server._open) > 1:
            await asyncio.sleep(0)
        assert (await new.ask("Heartbeat", 3, _as(joined)))["errorCode"] == 0


@served()
async def test_a_member_may_come_back_on_another_connection(server: Server) -> None:
    async with Client(server) as new:
        async with Client(server) as old:
            joined = await join(old)
            await new.ask("Heartbeat", 3, _as(joined))
        while len(server._open) > 1:
            await asyncio.sleep(0)
        assert (await new.ask("Heartbeat", 3, _as(joined)))["errorCode"] == 0


@served()
async def test_a_member_whose_connection_is_lost_stays_if_it_has_spoken(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "FIRST_RETURN_S_MAX", 0)
    monkeypatch.setattr(groups, "RETURN_S_MAX", 60)
    codes = []
    async with Client(server) as new:
        for speaks in (False, True):
            async with Client(server) as old:
                joined = await join(old)
                if speaks:
                    await old.ask("Heartbeat", 3, _as(joined))
            while len(server._open) > 1:
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            codes.append((await new.ask("Heartbeat", 3, _as(joined)))["errorCode"])
    assert codes == [25, 0]


def test_members_leave_one_by_one_or_several_at_a_time() -> None:
    broker = Broker(Topics())
    member_id = asked(broker, "JoinGroup", 5, JOIN)["memberId"]
    left = {"groupId": "g", "members": [{"memberId": member_id}, {"memberId": "x"}]}
    assert [one["errorCode"] for one in asked(broker, "LeaveGroup", 3, left)["members"]] == [0, 25]
    member_id = asked(broker, "JoinGroup", 5, JOIN)["memberId"]
    one = {"groupId": "g", "memberId": member_id}
    assert [asked(broker, "LeaveGroup", 2, one)["errorCode"] for _ in range(2)] == [0, 25]


def test_commits_are_kept_when_the_members_have_left() -> None:
    broker = Broker(Topics())
    fed(broker.cluster, {"topic": "t", "hex": ""})
    joined = asked(broker, "JoinGroup", 5, JOIN)
    partitions = [{"partitionIndex": 0, "committedOffset": 7, "committedMetadata": "m"}]
    commit = {"groupId": "g", "generationIdOrMemberEpoch": 1, "memberId": joined["memberId"]}
    topics = [{"name": name, "partitions": partitions} for name in ("t", "no")]
    asked(broker, "OffsetCommit", 7, commit | {"topics": topics})

    def committed() -> list[int]:
        wanted = [{"name": name, "partitionIndexes": [0]} for name in ("t", "no")]
        got = asked(broker, "OffsetFetch", 5, {"groupId": "g", "topics": wanted})["topics"]
        return [one["partitions"][0]["committedOffset"] for one in got]

    assert committed() == [7, -1]
    stale = asked(broker, "OffsetCommit", 7, commit | {"generationIdOrMemberEpoch": 9, "topics": topics})
    assert stale["topics"][0]["partitions"][0]["errorCode"] == 22
    for number, error in ((4096, 0), (4097, 12)):
        large = [{"name": "t", "partitions": [{"committedOffset": number, "committedMetadata": "m" * number}]}]
        [topic] = asked(broker, "OffsetCommit", 7, commit | {"topics": large})["topics"]
        assert topic["partitions"][0]["errorCode"] == error
    assert committed() == [4096, -1]
    asked(broker, "OffsetCommit", 7, commit | {"topics": topics})
    asked(broker, "LeaveGroup", 1, {"groupId": "g", "memberId": joined["memberId"]})
    assert committed() == [7, -1]


def test_groups_and_transactional_ids_of_a_hostile_client_are_bounded() -> None:
    broker = Broker(Topics())
    for number in range(serving.KEPT_MAX + 5):
        broker.answer(request("Heartbeat", 3, {"groupId": f"g{number}", "memberId": "", "generationId": 0}), HERE)
    assert len(broker._groups._groups) == serving.KEPT_MAX
    for member in ("a", "b", ""):
        asked(broker, "ConsumerGroupHeartbeat", 0, {"groupId": "g", "memberId": member, "memberEpoch": 0})
    assert len(broker._groups._groups["g"].members) == 1


def test_a_member_of_the_newer_kind_of_group_gets_all_partitions_of_its_topics() -> None:
    broker = Broker(Topics())
    fed(broker.cluster, {"topic": "t", "hex": ""}, {"topic": "t", "partition": 1, "hex": ""})
    topic = broker.cluster.topics.by_name["t"]

    def beat(epoch: int, member_id: str, names: list[str] | None = None) -> dict[str, Any]:
        values = {"groupId": "g", "memberId": member_id, "memberEpoch": epoch, "subscribedTopicNames": names}
        return asked(broker, "ConsumerGroupHeartbeat", 0, values)

    joined = beat(0, "", ["t", "no"])
    assert joined["assignment"] == {"topicPartitions": [{"topicId": topic.id, "partitions": [0, 1]}]}
    member_id = joined["memberId"]
    again = beat(joined["memberEpoch"], member_id)
    assert (again["errorCode"], again["assignment"]) == (0, None)
    assert beat(-1, member_id)["errorCode"] == 0
    assert beat(1, member_id)["errorCode"] == 25
