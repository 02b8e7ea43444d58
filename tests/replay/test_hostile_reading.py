"""A broker that means harm: whatever it answers to a client that reads, the copy ends, with a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replay.hand_made import batch

import kfuzz
from kfuzz import records
from kfuzz.client import Access, Address
from kfuzz.client.copying import Live
from kfuzz.errors import KfuzzError
from kfuzz.relay.local import LocalProxy
from kfuzz.replay.history import SEEN, History, Reader
from kfuzz.replay.report import Level

FIRST, *OTHERS = (records.encode([batch(10 * i)]) for i in range(3))


@pytest.fixture
def broker() -> Iterator[LocalProxy]:
    """Has topic t with 30 records; a test adds rules."""
    with kfuzz.cluster() as cluster, kfuzz.proxy(cluster.bootstrap) as proxy:
        cluster.line(topic="t", steps=[b"".join([FIRST, *OTHERS]).hex()])
        yield proxy


def copied(broker: LocalProxy, folder: Path) -> list[str]:
    """The sentences of a copy about partitions that are not whole."""
    access = Access(Address.parse(broker.bootstrap), timeout_ms=300, retries=1)
    return Live(access, 1 << 20).copy(folder)


@pytest.mark.parametrize(
    ("api", "answer"),
    [
        ("ListOffsets", {}),
        ("ListOffsets", {"topics": [{"name": "t", "partitions": []}]}),
        ("Fetch", {}),
        ("Fetch", {"responses": [{"topic": "t", "partitions": []}]}),
    ],
)
def test_an_answer_without_the_partition_ends_the_copy(
    broker: LocalProxy, tmp_path: Path, api: str, answer: dict[str, Any]
) -> None:
    broker.rule(api, answer=answer)
    with pytest.raises(KfuzzError, match=f"^t-0: {api}: the answer has no partition; look at the broker$"):
        copied(broker, tmp_path)


@pytest.mark.parametrize(
    ("api", "sentence"),
    [
        ("Metadata", "; the brokers are asked again"),
        ("ListOffsets", "; t-0: ListOffsets is tried again"),
        ("ApiVersions", "; the next broker is tried"),
    ],
)
def test_a_broker_that_never_answers_is_said_once_and_left_soon(
    broker: LocalProxy, tmp_path: Path, api: str, sentence: str
) -> None:
    broker.rule(api, drop=True)
    place, said = Address.parse(broker.bootstrap), list[str]()
    access = Access(place, timeout_ms=300, again_ms=900, retries=1000, others=(place,), on_wait=said.append)
    with pytest.raises(KfuzzError, match="no answer"):
        Live(access, 1 << 20).copy(tmp_path)
    assert len(said) == 1
    assert "no answer" in said[0]
    assert said[0].endswith(sentence)
    # Without a bound, each of them is tried a thousand times.
    assert 2 <= len(broker.applied()) <= 6


def test_an_end_that_no_partition_has_ends_the_copy(broker: LocalProxy, tmp_path: Path) -> None:
    broker.rule("ListOffsets", set={"topics[*].partitions[*].offset": "-5"})
    with pytest.raises(KfuzzError, match=r"^t-0: ListOffsets: the answer has offset -5; look at the broker$"):
        copied(broker, tmp_path)


def test_records_that_lead_no_further_are_not_asked_for_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    class Repeats:
        """Has records up to offset 30, and sends the first ones for every offset."""

        asked = 0

        async def fetched(self, *arguments: Any) -> Any:
            self.asked += 1
            return {"highWatermark": 30, "lastStableOffset": 30, "records": FIRST, "abortedTransactions": None}

    async def read(source: Any) -> None:
        asyncio.get_running_loop().call_later(0.7, (ended := asyncio.Event()).set)
        await Reader(source, History(), Level(), "read_uncommitted", SEEN, 20).run(ended)

    monkeypatch.setattr("kfuzz.replay.history.QUIET_S", 0.0)
    asyncio.run(read(source := Repeats()))
    assert 1 < source.asked <= 3


def test_a_new_leader_that_does_not_know_its_offsets_yet_is_asked_again(broker: LocalProxy, tmp_path: Path) -> None:
    broker.rule("ListOffsets", error="OFFSET_NOT_AVAILABLE", times=1)
    assert copied(broker, tmp_path) == []


def test_records_that_are_deleted_meanwhile_are_named_and_the_others_copied(broker: LocalProxy, tmp_path: Path) -> None:
    broker.rule("Fetch", error="OFFSET_OUT_OF_RANGE", nth=1)
    # The start and the end were asked for before.
    broker.rule("ListOffsets", set={"topics[*].partitions[*].offset": "10"}, nth=3)
    assert copied(broker, tmp_path) == ["t-0: offsets 0 to 9 were deleted before they were read"]
    [log] = tmp_path.glob("t-0/*.log")
    assert log.read_bytes() == b"".join(OTHERS)


def test_a_topic_without_a_name_is_none(broker: LocalProxy, tmp_path: Path) -> None:
    broker.rule("Metadata", set={"topics[*].name": None})
    with pytest.raises(KfuzzError, match=r"^no topic of \S+ matches '\*'; there are none$"):
        copied(broker, tmp_path)


@pytest.mark.parametrize("data", [FIRST[:50], FIRST, b""])
def test_records_that_lead_no_further_end_the_copy(broker: LocalProxy, tmp_path: Path, data: bytes) -> None:
    path = "responses[*].partitions[*].records"
    broker.rule("Fetch", set={path: data.hex()}, nth="2-1000")
    broker.rule("Fetch", set={path: FIRST.hex()}, nth=1)
    assert copied(broker, tmp_path) == ["t-0: the broker sends no whole batch from offset 10 on"]
