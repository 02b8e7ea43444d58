"""kfuzz state: transactions, producers, groups, share groups, remote logs and metadata of small logs made here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from cli_driver import kfuzz, outcome
from made_segments import batch, written
from made_state import FIRST_MS, MARKERS, make_logs

from kfuzz import records
from kfuzz.errors import UsageError
from kfuzz.kafka import LATEST
from kfuzz.logs import internal_topics
from kfuzz.records import Record, RecordBatch
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE
from kfuzz.wire.records.framing import frames


def state(*words: str | Path) -> dict[str, Any]:
    done = kfuzz("state", *words, "--json")
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make_logs(tmp_path, "orders")
    return tmp_path


def test_open_transactions_are_listed_and_hanging_ones_with_the_command_that_ends_them(data: Path) -> None:
    lines = kfuzz("state", "transactions", data, code=1).stdout.splitlines()
    assert lines[0] == f"{data}: 1 partition, 3 open transactions, 2 of them hanging"
    assert lines[1].endswith("the last stable offset is 2, 12 before the end 14; producer 3 holds it back")
    assert lines[2].endswith("abort --topic orders --partition 0 --start-offset 10")
    found = state("transactions", data / "orders-0")["open"]
    names = ("producer_id", "first_offset", "since", "records", "transactional_id", "hangs", "reason")
    assert [[one[name] for name in names] for one in found] == [
        [3, 2, FIRST_MS + 1000, 4, "tx-3", False, "Ongoing in __transaction_state"],
        [4, 10, FIRST_MS + 6000, 2, None, True, "__transaction_state does not know the producer"],
        [5, 12, FIRST_MS + 7000, 2, "tx-5", True, "CompleteCommit in __transaction_state, without this partition"],
    ]


def test_without_the_coordinators_log_the_age_decides(data: Path) -> None:
    (data / "__transaction_state-0").rename(data / "__transaction_state-1")
    # The coordinator of producer 4 may be in partition 0.
    found = {one["producer_id"]: one for one in state("transactions", data, "--now", "2023-11-14T22:28:00Z")["open"]}
    assert [found[producer]["hangs"] for producer in (3, 4, 5)] == [False, False, True]
    assert found[4]["reason"].endswith("partitions of __transaction_state are missing")
    (data / "__transaction_state-1").rename(data / "away")
    early, late = (outcome("state", "transactions", data, "--now", f"2023-11-14T22:{at}:00Z") for at in ("28", "29"))
    assert (early[0], late[0]) == (0, 1)
    assert "its last batch is older than transaction.max.timeout.ms; there is no __transaction_state" in late[1]
    assert outcome("state", "transactions", data, "--transaction-state", data / "orders-0")[0] == 2


def test_a_coordinators_log_that_cannot_be_read_is_said(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Mock(side_effect=UsageError("it cannot be read"))
    monkeypatch.setattr(internal_topics, "transactional_ids", refused)
    code, out, err = outcome("state", "transactions", data)
    assert (code, "there is no __transaction_state" in out, err) == (1, True, "kfuzz: it cannot be read\n")
    assert outcome("state", "transactions", data, "--transaction-state", data)[0] == 2


def test_aborted_transactions_are_compared_with_the_index(data: Path) -> None:
    entry = b"".join(n.to_bytes(size, "big") for n, size in ((0, 2), (2, 8), (5, 8), (7, 8), (2, 8)))
    (data / "orders-0" / f"{0:020d}.txnindex").write_bytes(entry)
    assert "does not have" not in outcome("state", "transactions", data, "--aborted")[1]
    found = state("transactions", data, "--aborted")["aborted"]
    assert [(one["producer_id"], one["first_offset"], one["last_offset"]) for one in found] == [(2, 5, 7)]
    (data / "orders-0" / f"{0:020d}.txnindex").write_bytes(entry[:-1] + b"\3")
    assert (
        "00000000000000000000.txnindex does not have the aborted"
        in outcome("state", "transactions", data, "--aborted")[1]
    )
    # The lost bytes may have ended transactions, so the indexes after them are not blamed.
    path = written(data / "orders-0", base=99)
    path.with_suffix(".txnindex").write_bytes(entry)
    assert f"{path.stem}.txnindex does not" in outcome("state", "transactions", data, "--aborted")[1]
    before = path.with_name(f"{0:020d}.log")
    before.write_bytes(before.read_bytes()[:-1])
    assert "does not have" not in outcome("state", "transactions", data, "--aborted")[1]


def test_a_marker_with_a_wrong_crc_ends_nothing(data: Path) -> None:
    path = data / "orders-0" / f"{0:020d}.log"
    logged = bytearray(path.read_bytes())
    _, _, _, begins, at, after, *_ = (at for at, _, _ in frames(logged))
    # ABORT becomes COMMIT.
    logged[logged.index(MARKERS["abort"][0], at + BATCH_HEADER_SIZE) + 3] ^= 1
    path.write_bytes(logged)
    code, out, err = outcome("state", "transactions", data)
    assert (code, out.splitlines()[0]) == (1, f"{data}: 1 partition, 4 open transactions, 3 of them hanging")
    assert f"{path} is damaged or cut at byte {at}; offset 7 is lost; go on at 8; a transaction may" in err
    assert [
        one["producer_id"] for one in json.loads(kfuzz("state", "producers", data, "--json").stdout)["producers"]
    ] == [1, 2, 3, 4, 5]
    # No other transaction is open.
    path.write_bytes(logged[begins:after])
    assert f"{data}: 1 partition, 1 open transaction, " in outcome("state", "transactions", data)[1]


def test_a_wrong_length_before_sound_batches_is_damage_without_an_open_transaction(tmp_path: Path) -> None:
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    path.parent.mkdir()
    one = records.encode([RecordBatch(0, 0, [Record(0, 1, b"k", b"v")])])
    path.write_bytes(one + one[:8] + b"\x7f" + one[9:] + one)
    for verb in ("transactions", "producers", "partitions"):
        code, _, said = outcome("state", verb, tmp_path)
        assert (code, f"is damaged or cut at byte {len(one)}" in said) == (1, True)


@pytest.mark.parametrize(
    ("beside", "code", "sentence"),
    [
        (
            11,
            1,
            "is damaged or cut at byte 70; offsets 1 to 10 are lost; go on at 11; "
            "a transaction may have ended in these bytes",
        ),
        # Nothing is lost, or a broker may be writing the batch.
        (1, 0, "is damaged or cut at byte 70; a transaction may"),
        (None, 0, "is damaged or cut at byte 70; a transaction may"),
    ],
)
def test_a_cut_end_before_another_segment_is_lost_data(
    tmp_path: Path, beside: int | None, code: int, sentence: str
) -> None:
    one = records.encode([RecordBatch(0, 0, [Record(0, 1, b"k", b"v")])])
    path = written(tmp_path / "orders-0", one, one[:-1])
    if beside is not None:
        written(tmp_path / "orders-0", beside.to_bytes(8, "big") + one[8:], base=beside)
    for verb in ("transactions", "producers"):
        found, _, said = outcome("state", verb, tmp_path)
        assert (found, sentence in said) == (code, True)
    assert outcome("state", "partitions", tmp_path)[0] == (beside is not None)
    path.write_bytes(one)
    code, _, said = outcome("state", "producers", tmp_path)
    assert (code, "orders:0: offsets 1 to 10 are in no segment; `kfuzz check`" in said) == (0, beside == 11)


def test_producers_have_their_last_batches(data: Path) -> None:
    found = state("producers", data)["producers"]
    names = ("producer_id", "epoch", "last_sequence", "last_offset", "coordinator_epoch", "current_txn_first_offset")
    assert [[one[name] for name in names] for one in found] == [
        [1, 2, 1, 1, 7, -1],
        [2, 2, 1, 6, 7, -1],
        [3, 2, 3, 9, -1, 2],
        [4, 2, 1, 11, -1, 10],
        [5, 2, 1, 13, -1, 12],
    ]


def test_a_control_batch_of_kraft_has_no_producer(tmp_path: Path) -> None:
    leader_change = RecordBatch(0, 0, [Record(0, FIRST_MS, b"\0\0\0\2", b"\0\0" + bytes(8))], control=True)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(records.encode_batch(leader_change))
    assert state("producers", tmp_path)["producers"] == []


def test_groups_have_their_latest_offsets_and_lags(data: Path) -> None:
    make_logs(data, "groups")
    found = state("groups", data)
    offsets = [(one["group"], one["offset"], one["end"], one["lag"], one["stableLag"]) for one in found["offsets"]]
    assert offsets == [("a", "4", 14, 10, 0), ("b", "3", 14, 11, 0)]
    groups = [(one["group"], one["type"], one["state"], one["epoch"], one["lag"]) for one in found["groups"]]
    assert groups == [
        ("a", "classic", "Empty", None, 10),
        ("b", "classic", "Stable", 6, 11),
        ("k", "consumer", "Assigning", 5, None),
    ]
    assert found["groups"][2]["members"][0]["clientId"] == "c"
    assert found["notes"] == [
        "records of the open transaction of producer 8, which do not count yet",
        "offsets that expired are left out",
        f"a record of __consumer_offsets is left out: Kafka {LATEST} knows no record of kind 99 in this topic",
    ]
    path = data / "__consumer_offsets-0" / f"{0:020d}.log"
    assert [one["producer_id"] for one in state("transactions", path.parent)["open"]] == [8]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\1")
    damaged = outcome("state", "groups", path.parent)
    assert (damaged[0], damaged[1].splitlines()[0]) == (1, f"{path.parent}: 2 groups, 2 offsets")
    assert "damage: " in damaged[2]
    # A length that leads beyond the file's end is damage if batches follow it.
    path.write_bytes(whole[:8] + b"\x7f" + whole[9:])
    assert outcome("state", "groups", path.parent)[0] == 1
    # A cut end is one only in the last segment.
    path.write_bytes(whole[:-1])
    assert outcome("state", "groups", path.parent)[0] == 0
    path.with_stem(f"{1000:020d}").touch()
    assert outcome("state", "groups", path.parent)[0] == 1


def test_an_offset_after_the_end_of_its_log_is_said(data: Path) -> None:
    make_logs(data, "groups")
    path = data / "orders-0" / f"{0:020d}.log"
    [_, (second, _, _), *_] = frames(path.read_bytes())
    path.write_bytes(path.read_bytes()[:second])
    found = state("groups", data)
    assert [one["lag"] for one in found["offsets"]] == [0, 0]
    assert found["notes"][1].startswith("orders-0 ends at 2, before an offset that a group has; its log was cut off")
    assert found["notes"][1].endswith("(2 times)")


def test_each_topic_and_partition_has_its_offsets_bytes_and_times(data: Path) -> None:
    (data / "empty-3").mkdir()
    (data / "empty-3" / f"{7:020d}.log").touch()
    found = state("partitions", data)
    orders = (data / "orders-0" / f"{0:020d}.log").stat().st_size
    assert [one["topic"] for one in found["topics"]] == ["orders", "__transaction_state", "empty"]
    assert found["topics"][0]["bytes"] == orders
    assert sum(one["percent"] for one in found["topics"]) == 100
    of = {one["topic"]: one for one in found["partitions"]}
    assert [of["orders"][name] for name in ("first_offset", "end_offset", "newest")] == [0, 14, FIRST_MS + 7000]
    assert [of["empty"][name] for name in ("partition", "first_offset", "end_offset", "newest")] == [3, 7, 7, None]
    assert len(state("partitions", data, "--topics", "orders")["partitions"]) == 1
    assert len(state("partitions", data / "__transaction_state-0")["partitions"]) == 1
    (data / "empty-3" / f"{7:020d}.log").write_bytes(b"x" * 100)
    damaged = kfuzz("state", "partitions", data, "--topics", "empty", code=1)
    assert f"{7:020d}.log is damaged or cut at byte 0; the batches from there on are not counted" in damaged.stderr


def test_a_directory_with_only_committed_offsets_is_read_once(tmp_path: Path) -> None:
    path = written(tmp_path / "__consumer_offsets-3", batch(0, transactional=True, producer_id=1, producer_epoch=0))
    for place in tmp_path, path.parent:
        for verb, table in ("transactions", "open"), ("partitions", "partitions"):
            [found] = json.loads(outcome("state", verb, place, "--json")[1])[table]
            assert (found["topic"], found["partition"]) == ("__consumer_offsets", 3)


@pytest.mark.parametrize("swallowed", [2, 3])
def test_a_length_that_leads_over_other_batches_is_damage(tmp_path: Path, swallowed: int) -> None:
    one, two, *others = (batch(offset) for offset in range(4))
    wrong = two[:8] + (len(two) * swallowed - 12).to_bytes(4, "big") + two[12:]
    path = written(tmp_path / "orders-0", one, wrong, *others)
    shown = kfuzz("state", "partitions", path.parent, code=1).stderr
    assert f"{path} is damaged or cut at byte {len(one)}; the batches from there on are not counted" in shown


def test_share_groups_have_their_snapshot_and_what_changed_it(tmp_path: Path) -> None:
    make_logs(tmp_path, "shares")
    (tmp_path / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    [found] = state("shares", tmp_path)["shares"]
    names = ("groupId", "topic", "startOffset", "end", "lag", "stateEpoch", "leaderEpoch")
    assert [found[name] for name in names] == ["g", "orders", "5", 20, 12, 3, 0]
    assert found["stateBatches"] == [{"firstOffset": "6", "lastOffset": "8", "deliveryState": 2, "deliveryCount": 1}]


def test_remote_segments_have_their_last_state(tmp_path: Path) -> None:
    make_logs(tmp_path, "remote")
    [found] = state("remote", tmp_path)["segments"]
    assert [found[name] for name in ("name", "partition", "endOffset", "remoteLogSegmentState")] == [
        "orders",
        0,
        "9",
        "copied",
    ]


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    make_logs(tmp_path, "metadata")
    return tmp_path


def test_metadata_are_a_snapshot_and_what_follows_it(metadata: Path) -> None:
    found = state("metadata", metadata, "--at", "12")
    sections = found["metadata"]
    partition = sections["partitions"]["orders-0"]
    assert [partition[name] for name in ("leader", "leaderEpoch", "partitionEpoch", "isr")] == [2, 4, 0, [2]]
    assert sections["scram"] == {"alice SCRAM-SHA-256": {"iterations": 4096}}
    assert sections["configs"] == {"broker 1": {"ssl.key.password": "hidden"}}
    assert (sections["features"], sections["brokers"]["1"]["fenced"]) == ({}, False)
    assert found["snapshots"] == ["00000000000000000005-0000000002.checkpoint"]
    assert state("metadata", metadata)["metadata"]["topics"] == {}
    newest = metadata / "__cluster_metadata-0" / found["snapshots"][0]
    for offset in (2, 3):
        shutil.copy(newest, newest.with_name(f"{offset:020d}-{1:010d}.checkpoint"))
    line = outcome("state", "metadata", metadata)[1].splitlines()[1]
    assert line == f"snapshots: 1 older, 00000000000000000003-0000000001.checkpoint, {newest.name}"
    path = metadata / "__cluster_metadata-0" / f"{5:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert "damage: " in outcome("state", "metadata", metadata)[2]


def test_changes_of_metadata_are_places_with_values_before_and_after(metadata: Path) -> None:
    found = state("metadata", metadata, "--changes", "4", "5")["changes"]
    assert [(one["entry"], one["before"], one["after"]) for one in found] == [
        ("partitions orders-0 isr", [1, 2], [2]),
        ("partitions orders-0 leader", 1, 2),
        ("partitions orders-0 leaderEpoch", 3, 4),
        ("partitions orders-0 partitionEpoch", -1, 0),
    ]


def test_an_offset_that_nothing_leads_to_is_one_sentence(metadata: Path) -> None:
    for words, told in ((["--at", "3"], "below offset 5"), (["--at", "99"], "ends at offset 13"), ([], "")):
        code, _, err = outcome("state", "metadata", metadata / "__cluster_metadata-0", *words)
        assert (code, told in err) == (2 if told else 0, True)
    assert outcome("state", "groups", metadata)[0] == 2
