"""Kafka's own topics are as their workload says, as `kfuzz state` reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_driver import kfuzz
from own_topics import state, workload

from kfuzz.corpora.generated import read
from kfuzz.corpora.generation import generate
from kfuzz.corpora.own import group_id, transactional_id
from kfuzz.corpora.own_remote import SUFFIXES
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import KIB, Workload, parse, render
from kfuzz.errors import UsageError
from kfuzz.logs.internal_topics import TRANSACTIONS, partitions_of, transactional_ids
from kfuzz.logs.producers import Notes


def made(one: Workload, out: Path) -> Path:
    """A corpus in which `verify` and `check` find nothing, which has as many records as the plan."""
    generate(one, out)
    assert verify(out) == []
    kfuzz("check", out)
    assert parse(render(one), "again") == one
    assert sum(batch.num_rows for batch in read(one, rows="records", columns=["key"])) == Plan(one).records
    return out


def test_groups_are_hashed_to_partitions_and_have_their_last_commits(tmp_path: Path) -> None:
    things = {"groups": 40, "topics": 2, "partitions": 5, "members": 3, "consumer_share": 0.25, "gone_share": 0.1}
    one = workload("consumer-offsets", 7, segment_bytes=64 * KIB, **things)
    assert len(Plan(one)) > 7
    found = state("groups", made(one, tmp_path))
    kinds = [(one["group"], one["type"], one["state"], len(one["members"])) for one in found["groups"]]
    left = [one for one in range(40) if one % 10 != 9]
    assert kinds == [(group_id(one), "consumer" if one < 10 else "classic", "Stable", 3) for one in left]
    assert {int(one["offset"]) // 1000 for one in found["offsets"]} == {2}
    assert len(found["offsets"]) == 36 * 10
    lines = kfuzz("cat", tmp_path, "--topics", "__*").stdout.splitlines()
    [line] = [one for one in lines if '"group":"group-0000010"}}' in one]
    # abs("group-0000010".hashCode()) % 7
    assert json.loads(line)["partition"] == 119432959 % 7 == 2


def test_a_snapshot_of_the_metadata_is_the_state_at_the_end_of_the_log(tmp_path: Path) -> None:
    things = {"brokers": 4, "topics": 10, "partitions": 30, "changes": 2, "gone_share": 0.2, "snapshot": True}
    out = made(workload("cluster-metadata", 1, segment_bytes=64 * KIB, **things), tmp_path)
    from_snapshot = state("metadata", out)
    [snapshot] = out.glob("*/*.checkpoint")
    snapshot.rename(tmp_path / "kept")
    from_log = state("metadata", out)
    assert (from_snapshot["snapshot"], from_log["snapshot"]) == (snapshot.name, "")
    assert from_snapshot["metadata"] == from_log["metadata"]
    assert from_log["leaders"] == [{"offset": 0, "epoch": 0, "leader": 901}]
    partitions = from_log["metadata"]["partitions"]
    assert len(partitions) == 8 * 30
    assert {(one["leader"] == one["replicas"][2], one["leaderEpoch"]) for one in partitions.values()} == {(True, 2)}
    data = bytearray((tmp_path / "kept").read_bytes())
    data[5000] ^= 1
    snapshot.write_bytes(data)
    (tmp_path / "kept").unlink()
    assert [(one.path, one.code) for one in verify(out)] == [
        (f"__cluster_metadata-0/{snapshot.name}", "snapshot-mismatch")
    ]


@pytest.mark.parametrize("gone", [1, 5])
def test_transactional_ids_have_the_state_of_their_last_transaction(tmp_path: Path, gone: int) -> None:
    one = workload("transaction-state", 5, transactional_ids=40, gone_share=gone / 10, open_share=0.25)
    found, _ = transactional_ids(partitions_of(made(one, tmp_path), TRANSACTIONS, Notes()), Notes())
    left = [one for one in range(40) if (one + 1) * gone % 10 >= gone]
    states = {transactional_id(one): "Ongoing" if at % 4 == 3 else "CompleteCommit" for at, one in enumerate(left)}
    assert {one["transactionalId"]: one["state"] for one in found.values()} == states


def test_share_partitions_have_their_last_start_offset(tmp_path: Path) -> None:
    one = workload("share-group-state", 5, groups=10, topics=2, partitions=3, changes=4, gone_share=0.1)
    found = state("shares", made(one, tmp_path))["shares"]
    assert sorted(one["groupId"] for one in found) == [group_id(one // 6) for one in range(54)]
    assert {(one["startOffset"], len(one["stateBatches"])) for one in found} == {("4000", 1)}


def test_remote_segments_are_where_their_metadata_says(tmp_path: Path) -> None:
    ids = ["LWgrMmVrT0a__7a4SasuPA"]
    things = {"topics": 2, "partitions": 3, "segments": 2, "gone_share": 0.2, "ids": ids}
    out = made(workload("remote-log-metadata", 5, **things), tmp_path)
    said = kfuzz("state", "remote", out, "--json")
    found = json.loads(said.stdout)
    assert found["notes"] == ["remote segments of topic-000001-2 are being deleted, or were (3 times)"]
    logs = {path: path.stat().st_size for path in out.glob("kafka-tiered-storage/*/*.log")}
    for one in found["segments"]:
        folder = out / "kafka-tiered-storage" / f"{one['name']}-{one['partition']}-{one['id']}"
        own = folder / f"{int(one['startOffset']):020d}-{one['segment']}.log"
        assert logs.pop(own) == one["segmentSizeInBytes"]
        assert one["remoteLogSegmentState"] == "copied"
        kept = {own.with_suffix(suffix).stat().st_size > 0 for suffix in SUFFIXES}
        assert kept == {True}
    assert (len(found["segments"]), logs) == (2 * 5, {})
    assert (out / "kafka-tiered-storage" / f"topic-000000-0-{ids[0]}").is_dir()
    # Remote segments are read as a log directory; the broker's own log begins after them.
    kfuzz("check", out / "kafka-tiered-storage")
    [log] = out.glob("topic-000000-1/*.log")
    assert int(log.stem) == 1 + max(int(one["endOffset"]) for one in found["segments"])
    log.write_bytes(log.read_bytes()[:-1])
    assert [(one.path, one.code) for one in verify(out)] == [(str(log.relative_to(out)), "remote-mismatch")]
    log.unlink()
    assert [one.code for one in verify(out)] == ["file-missing"]
    generate(workload("remote-log-metadata", 5, **(things | {"topics": 1})), out, overwrite=True)
    assert not list(out.glob("*/topic-000001-*"))


OWN = 'name = "__consumer_offsets"\nkind = "consumer-offsets"\n'
REMOTE = 'name = "__remote_log_metadata"\nkind = "remote-log-metadata"\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('name = "__consumer_offsets"', 'set its kind to "consumer-offsets"'),
        ('name = "orders"\nkind = "consumer-offsets"', "consumer-offsets. are in __consumer_offsets"),
        ('name = "orders"\nthings.groups = 3', "things needs a kind"),
        (OWN + "values.size = 9", "cannot have values"),
        (OWN + "things.brokers = 9", "cannot have things.brokers"),
        (OWN + "timestamps.jitter_ms = 9", "cannot have timestamps besides"),
        (OWN + "batches.codecs = { none = 1, lz4 = 1 }", "cannot have batches of several codecs"),
        (OWN + "things.groups = 10_000_000\nthings.topics = 200_000", "cannot have so many things"),
        ('name = "__cluster_metadata"\nkind = "cluster-metadata"\npartitions = 2', "cannot have 2 partitions"),
        ('name = "__cluster_metadata"\nkind = "cluster-metadata"\nthings.replicas = 4', "cannot have more replicas"),
        ('name = "__remote_log_metadata"', 'set its kind to "remote-log-metadata"'),
        (REMOTE + "things.changes = 9", "cannot have things.changes"),
        (REMOTE + 'things.ids = ["orders"]', "give the id of a topic"),
        (REMOTE + 'things.topics = 1\nthings.ids = ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"]', "more ids"),
    ],
)
def test_a_topic_of_kafkas_own_with_other_contents_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse(f"[[topics]]\n{text}", "w")


def test_random_bytes_under_a_name_of_kafkas_own_are_not_installed(tmp_path: Path) -> None:
    generate(parse('size = "64KiB"\n[[topics]]\nname = "orders"', "w"), tmp_path)
    path = tmp_path / "_workload.toml"
    path.write_text(path.read_text().replace('"orders"', '"__transaction_state"'))
    said = kfuzz("corpus", "install", tmp_path, "--log-dir", tmp_path).stderr
    assert "a topic of Kafka's own, whose records only Kafka writes; set its kind to" in said
