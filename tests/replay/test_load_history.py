"""Consumers check what they read of a load: brokers with planted faults are found out, and sound ones are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfuzz import cluster, records
from kfuzz.corpora.workload import parse
from kfuzz.errors import UsageError
from kfuzz.kafka import ISOLATIONS
from kfuzz.relay.local import LocalCluster
from kfuzz.replay import Address, Load, Report, Settings, run_load
from kfuzz.replay.history import Verification
from kfuzz.serve.topics import Step
from kfuzz.serve.written import WrittenPartition

WORKLOAD = """
[[topics]]
name = "t"
batches.records = 10
"""
TRANSACTIONS = "transactions = { share = 0.6, records = 30, abort_share = 0.5 }"
# A change of what a partition serves: its batches, and the offset after each.
Change = Callable[[list[Step]], list[Step]]


def checked(brokers: LocalCluster, more: str = "", **settings: Any) -> Report:
    address = Address.parse(brokers.bootstrap)
    asked = Settings(address, **{"records": 300, "check_history": True, "restamp": True, **settings})
    return run_load(Load(parse(WORKLOAD + more, "w")), asked)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setattr("kfuzz.replay.history.QUIET_S", 0.1)
    with cluster() as made:
        made.topic("t")
        yield made


def plant(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    served = WrittenPartition._from

    def changed(self: WrittenPartition, offset: int, committed: bool, room: int) -> Step:
        # The faults are in the fifth batch, or in the sixth one.
        stored, self._stored = self._stored, change(list(self._stored)) if len(self._stored) > 5 else self._stored
        try:
            return served(self, offset, committed, room)
        finally:
            self._stored = stored

    monkeypatch.setattr(WrittenPartition, "_from", changed)


def at_place_of(one: Step, place: Step) -> Step:
    """A batch with the offsets of another one. They are not within the CRC."""
    return Step(place.data[:8] + one.data[8:], place.end)


def lost(steps: list[Step]) -> list[Step]:
    return steps[:4] + steps[5:]


def twice(steps: list[Step]) -> list[Step]:
    return [*steps[:4], at_place_of(steps[3], steps[4]), *steps[5:]]


def reordered(steps: list[Step]) -> list[Step]:
    return [*steps[:4], at_place_of(steps[5], steps[4]), at_place_of(steps[4], steps[5]), *steps[6:]]


def wrong(steps: list[Step]) -> list[Step]:
    [one] = records.decode(steps[4].data)
    one.records[7].value = b"other"
    return [*steps[:4], Step(records.encode([one]), steps[4].end), *steps[5:]]


def damaged(steps: list[Step]) -> list[Step]:
    data = bytearray(steps[4].data)
    data[-3] ^= 1
    return [*steps[:4], Step(bytes(data), steps[4].end), *steps[5:]]


def stuck(steps: list[Step]) -> list[Step]:
    data = bytearray(steps[4].data)
    # The sign of the last offset's delta.
    data[23] ^= 0x80
    return [*steps[:4], Step(bytes(data), steps[4].end), *steps[5:]]


def old(steps: list[Step]) -> list[Step]:
    # It is shorter than a header of magic 2.
    last = steps[4].end - 1
    message = records.RecordBatch(last, last, [records.Record(last, 1, None, b"x")], magic=1)
    return [*steps[:4], Step(records.encode([message]), steps[4].end), *steps[5:]]


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (lost, {"lost": 10}),
        (twice, {"lost": 10, "twice": 10, "twice_idempotent": 10}),
        (reordered, {"reordered": 10}),
        (wrong, {"wrong": 10}),
        (damaged, {"wrong": 10}),
        (stuck, {"lost": 10}),
        (old, {"wrong": 1}),
    ],
)
def test_each_planted_fault_is_named_in_both_isolations(
    brokers: LocalCluster, monkeypatch: pytest.MonkeyPatch, change: Change, faults: dict[str, int]
) -> None:
    plant(monkeypatch, change)
    report = checked(brokers)
    assert [level.faults() for level in report.levels.values()] == [faults] * 4
    assert not report.is_clean


def test_a_load_without_acks_that_ends_before_its_readers_are_connected_is_sound(brokers: LocalCluster) -> None:
    assert str(checked(brokers, acks=0, records=5).why).startswith("the first batch has 10 records")
    assert checked(brokers, acks=0, records=10).is_clean


def test_aborted_transactions_that_a_broker_hides_are_found(
    brokers: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = checked(brokers, TRANSACTIONS, transactional_id="sound")
    assert sound.topics["t"].transactions.keys() >= {"committed", "aborted"}
    assert sound.is_clean
    assert sound.levels["read_committed"].read < sound.levels["read_uncommitted"].read == sound.sent.records
    monkeypatch.setattr(WrittenPartition, "aborted_between", lambda self, offset, end: [])
    report = checked(brokers, TRANSACTIONS, transactional_id="planted")
    assert report.levels["read_uncommitted"].faults() == {}
    assert report.levels["read_committed"].faults().keys() == {"aborted"}


def test_what_an_open_transaction_hides_is_not_lost(brokers: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # The fifth batch is lost too.
    plant(monkeypatch, lost)
    stable = WrittenPartition.last_stable_offset.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(WrittenPartition, "last_stable_offset", property(lambda self: min(stable(self), 100)))
    report = checked(brokers)
    found = {isolation: report.levels[isolation].faults() for isolation in ISOLATIONS}
    assert found == {"read_uncommitted": {"lost": 10}, "read_committed": {"lost": 10, "hidden": 200}}
    assert any("200 hidden by an open transaction" in line for line in report.lines("it"))


def test_records_that_are_gone_after_they_were_read_went_back(
    brokers: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, labels = Verification._start, list[str]()

    def start(self: Verification, label: str, first_bit: int) -> None:
        labels.append(label)
        begin(self, label, first_bit)

    monkeypatch.setattr(Verification, "_start", start)
    # The batch is there until both readers have read to the end.
    plant(monkeypatch, lambda steps: lost(steps) if any(labels) else steps)
    report = checked(brokers)
    expected = {
        f"{one}{again}": {"lost": 10, "went_back": 10} if again else {}
        for one in ISOLATIONS
        for again in ("", " again")
    }
    assert {name: level.faults() for name, level in report.levels.items()} == expected
    assert any("10 gone after they were read" in line for line in report.lines("it"))


def test_a_log_that_loses_its_end_went_back(brokers: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    served = WrittenPartition.end.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(WrittenPartition, "end", property(lambda self: min(served(self), 105)))
    report = checked(brokers, acks=1)
    assert report.levels["read_uncommitted"].faults()["lost"] == 190
    assert report.levels["read_uncommitted"].faults()["went_back"] >= 5


def test_records_of_others_are_no_fault_of_the_broker_but_named(
    brokers: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = WrittenPartition.append

    def both(self: WrittenPartition, data: bytes) -> tuple[int, int]:
        if self.end == 40:
            other = records.RecordBatch(0, 0, [records.Record(0, 1, None, b"x")])
            sender(self, records.encode([other]))
        return sender(self, data)

    monkeypatch.setattr(WrittenPartition, "append", both)
    report = checked(brokers)
    assert [level.faults() for level in report.levels.values()] == [{"foreign": 1}] * 4


def test_a_topic_whose_batches_the_broker_changes_is_refused(
    brokers: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def config(self: Any, topic: str, name: str) -> str:
        return "gzip"

    monkeypatch.setattr("kfuzz.client.cluster.Cluster.config", config)
    with pytest.raises(UsageError, match=r"compression\.type=gzip"):
        checked(brokers)
