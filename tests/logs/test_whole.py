"""kfuzz check DIR judges partitions and a broker's directory as a whole. test_whole_broker.py asks a broker."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path

import pytest
from logs.log_damages import ALL, LOGS, Damage, ends, make
from made_corpora import once
from made_segments import bad, batch, written

from kfuzz.kafka import Role
from kfuzz.logs.checking import Checked, Counts, check_directory
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.logs.salvaging import salvage
from kfuzz.logs.stored import kind_of
from kfuzz.records.read.reader import check_with

ID = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
META = "version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\ndirectory.id=N8QLSm3hvIixcKONI7cFkA\n"


made = once(LOGS)


@pytest.fixture
def broker(made: Path, tmp_path: Path) -> Path:
    """A broker's directory with one partition."""
    shutil.copytree(made / "orders-0", tmp_path / "data" / "orders-0")
    (tmp_path / "data/orders-0/partition.metadata").write_text(ID)
    (tmp_path / "data/meta.properties").write_text(META)
    (tmp_path / "data/recovery-point-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    return tmp_path / "data"


def judged(folder: Path) -> tuple[dict[str, Path], list[Checked]]:
    """Each code with the file or folder that has it, and what is said of starts."""
    found = list(check_directory(folder, Counts(), role="log"))
    return {one.code: made.path for made in found for one, _ in made.findings}, [one for one in found if one.start]


@pytest.mark.parametrize("damage", ALL.values(), ids=ALL)
def test_a_damage_is_found_and_its_start_is_said(damage: Damage, broker: Path) -> None:
    make(damage, broker / "orders-0")
    codes, starts = judged(broker)
    assert sorted(codes) == damage.get("codes", [])
    # A directory has a start only if a broker may not start.
    assert ([one.title for one in starts] == ["partition", "log directory"]) == ("ends" in damage)
    for title, start in ((one.title, one.start) for one in starts):
        assert start is not None
        for is_clean, sentence in ((True, start.clean), (False, start.unclean)):
            if ends(damage, is_clean=is_clean):
                # Of a file beside the partitions, only the directory says it.
                assert sentence.startswith("refuses to start, because of ") or title == "partition"
            elif title == "partition":
                assert sentence.startswith(damage.get("clean" if is_clean else "unclean", "loads it"))
            else:
                assert sentence == "loads it"


@pytest.mark.parametrize("role", ["log", "consumer"])
def test_a_check_leaves_no_file_open(broker: Path, role: Role) -> None:
    # A directory may have more files than a process may have open.
    for path in sorted((broker / "orders-0").glob("*index"))[:2]:
        path.write_bytes(b"\1" * path.stat().st_size)
    gc.disable()
    try:
        before = os.listdir("/proc/self/fd")
        assert any(one.findings for one in check_directory(broker, Counts(), role=role))
        assert os.listdir("/proc/self/fd") == before
    finally:
        gc.enable()


def test_checkpoints_are_compared_with_the_partitions(broker: Path) -> None:
    def write(name: str, *lines: str) -> None:
        (broker / f"{name}-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))

    write("recovery-point-offset", "orders 0 778")
    write("replication-offset", "orders 0 777", "gone 3 1", "gone 4 1")
    codes, starts = judged(broker)
    assert codes == {
        "checkpoint-offset-beyond-log": broker / "recovery-point-offset-checkpoint",
        "checkpoint-partition-missing": broker / "replication-offset-checkpoint",
    }
    assert [one.start.is_plain for one in starts if one.start] == [True]
    write("log-start-offset", "orders 0 1000")
    codes, (partition, *_) = judged(broker)
    assert codes["log-start-beyond-log"] == broker / "log-start-offset-checkpoint"
    assert str(partition.start) == (
        "at its next start, a broker deletes its segments and begins an empty log at offset 1000"
    )


def test_a_broker_refuses_to_start_with_a_cleaner_checkpoint_that_cannot_be_read(broker: Path) -> None:
    # The broker of the other tests has no cleaner.
    (broker / "cleaner-offset-checkpoint").write_text("0\n2\norders 0 5\n")
    codes, (*_, whole) = judged(broker)
    assert set(codes) == {"checkpoint-count-mismatch"}
    assert str(whole.start) == "at its next start, a broker refuses to start, because of cleaner-offset-checkpoint"


def test_a_partition_without_segments_had_some_if_a_snapshot_says_so(broker: Path) -> None:
    for path in (broker / "orders-0").glob("*.log"):
        path.unlink()
    found = [one for one in judged(broker)[0].items() if one[0] == "snapshot-beyond-log"]
    assert found == [("snapshot-beyond-log", broker / "orders-0" / f"{777:020d}.snapshot")]


def test_the_epochs_of_a_partition_beside_the_partitions_say_nothing(broker: Path) -> None:
    (broker / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert judged(broker)[0] == {}


def test_only_segments_from_the_recovery_point_on_are_recovered(broker: Path) -> None:
    make(ALL["a bit of another segment"], broker / "orders-0")
    (broker / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 600\n")
    _, (partition, *_) = judged(broker)
    assert partition.start is not None
    assert partition.start.is_plain
    (broker / ".kafka_cleanshutdown").write_text("{}")
    (broker / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 300\n")
    _, (partition, *_) = judged(broker)
    assert str(partition.start).startswith(
        "at its next start, a broker loads it; without a clean shutdown, it truncates"
    )


def test_a_gap_is_a_warning_where_the_cleaner_was(broker: Path) -> None:
    make(ALL["a segment is missing"], broker / "orders-0")
    (broker / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 500\n")
    assert set(judged(broker)[0]) == {"segment-gap-compacted"}


def test_partitions_of_a_topic_have_one_id_and_directories_of_a_node_one_cluster(broker: Path) -> None:
    shutil.copytree(broker / "orders-0", broker / "orders-1")
    other = Path(shutil.copytree(broker, broker.parent / "data2"))
    (broker / "orders-1/partition.metadata").write_text("version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBAQ\n")
    assert judged(broker)[0] == {"topic-ids-differ": broker / "orders-1/partition.metadata"}
    (other / "meta.properties").write_text(META.replace("cluster.id=A", "cluster.id=B"))
    assert judged(broker.parent)[0]["meta-properties-differ"] == other / "meta.properties"
    (other / "meta.properties").write_text(META.replace("node.id=1", "node.id=2").replace("N8", "M8"))
    assert judged(broker.parent)[0]["meta-properties-other-node"] == other / "meta.properties"


def test_a_directory_of_a_broker_with_zookeeper_needs_no_partition_metadata(broker: Path) -> None:
    (broker / "orders-0/partition.metadata").unlink()
    old = META.replace("version=1", "version=0").replace("node.id", "broker.id")
    (broker / "meta.properties").write_text(old.partition("directory.id")[0])
    codes, starts = judged(broker)
    assert codes == {"meta-properties-zookeeper": broker / "meta.properties"}
    assert all(one.start and one.start.is_plain for one in starts)
    # A broker of Kafka 4 kept the version.
    (broker / "meta.properties").write_text(old)
    assert set(judged(broker)[0]) == {"partition-metadata-missing"}


def test_a_partition_in_two_folders_of_a_node_is_found_unless_one_is_stray(broker: Path) -> None:
    other = Path(shutil.copytree(broker, broker.parent / "data2"))
    (other / "meta.properties").write_text(META.replace("N8", "M8"))
    codes, starts = judged(broker.parent)
    assert codes == {"partition-twice": other / "orders-0"}
    assert str(starts[-1].start) == "at its next start, a broker refuses to start, because of orders-0"
    (other / "orders-0/partition.metadata").write_text(ID.replace("AQ", "Ag"))
    assert judged(broker.parent)[0] == {}
    again = Path(shutil.copytree(broker / "orders-0", broker / "orders-00"))
    codes, starts = judged(broker)
    assert codes == {"partition-twice": again}
    assert str(starts[-1].start) == "at its next start, a broker refuses to start, because of orders-00"


def test_a_lost_abort_marker_without_its_index_is_said(broker: Path) -> None:
    # The marker of producer 7 at offset 564.
    make({"flip": [2, 5910], "remove": ["{2}.txnindex"]}, broker / "orders-0")
    found = [str(one) for made in check_directory(broker, Counts(), role="log") for one, _ in made.findings]
    assert any("no entry of producer 7 and offsets up to 564" in one for one in found)


def test_each_gap_says_where_to_go_on(broker: Path) -> None:
    make({"remove": ["{1}.log"], "keep": {"{2}.log": 32054}}, broker / "orders-0")
    lost = [str(one) for made in check_directory(broker, Counts(), role="log") for one in made.lost]
    assert lost == [
        "offsets 259 to 517 are lost; go on at 518",
        "the offsets from 772 on are lost, at least to 776; nothing follows them",
    ]


def test_a_gap_and_the_damage_after_it_are_one_loss(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    written(folder, batch(0, 5))
    written(folder, bad(batch(20, 5)), batch(25), bad(batch(26)), batch(27), base=20)
    found = list(check_directory(tmp_path, Counts(), role="log"))
    lost = [(one.path.stem[-2:], str(lost)) for one in found for lost in one.lost]
    assert lost == [("20", "offsets 5 to 24 are lost; go on at 25"), ("20", "offset 26 is lost; go on at 27")]
    assert {code.code for one in found for code, _ in one.findings} == {"crc-mismatch", "segment-gap"}
    assert [gap for one in salvage(folder, tmp_path / "out") for gap in map(str, one.gaps)] == [one for _, one in lost]
    # The cleaner may have removed them.
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    first = next(one for made in check_directory(tmp_path, Counts(), role="log") for one in made.lost)
    assert str(first) == "offsets 20 to 24 are lost; go on at 25"


def test_a_recovery_point_shows_lost_offsets_unless_the_log_was_closed_where_it_ends(broker: Path) -> None:
    def lost() -> list[str]:
        return [str(one) for made in check_directory(broker, Counts(), role="log") for one in made.lost]

    (broker / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 5000\n")
    assert lost() == []
    (broker / "replication-offset-checkpoint").write_text("0\n1\norders 0 800\n")
    assert lost() == ["the offsets from 777 on are lost, at least to 4999; nothing follows them"]
    (broker / "replication-offset-checkpoint").unlink()
    (broker / "orders-0" / f"{777:020d}.snapshot").unlink()
    assert lost() == ["the offsets from 777 on are lost, at least to 4999; nothing follows them"]


def test_damage_is_no_sign_of_a_cleaner(broker: Path) -> None:
    make({"flip": [0, 5000], "remove": ["{1}.log"]}, broker / "orders-0")
    assert "segment-gap" in judged(broker)[0]


def test_leader_epochs_that_fall_are_found_across_segments(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    for offset, epoch in ((0, 4), (1, 3)):
        written(folder, batch(offset, partition_leader_epoch=epoch), base=offset)
    assert judged(folder)[0] == {"leader-epoch-falls": folder}


@pytest.mark.parametrize("change", [lambda at: at, lambda at: at + 1, lambda at: 1 << 30])
def test_a_walk_finds_the_misplaced_entry_that_a_look_into_the_segment_finds(broker: Path, change: object) -> None:
    folder = broker / "orders-0"
    log, index = (folder / f"{0:020d}.log").read_bytes(), folder / f"{0:020d}.index"
    walk = IndexWalk(0, 4096)
    check_with(log, walk)
    entries = bytearray(walk.offset_index)
    entries[20:24] = change(int.from_bytes(entries[20:24], "big")).to_bytes(4, "big")  # type: ignore[operator]
    index.write_bytes(entries)
    kind = kind_of(index.name)
    assert kind is not None
    alone = [one.path for one in kind.read(index, bytes(entries), "kafka").findings]
    whole = [one.path for made in check_directory(folder, Counts(), role="log") for one, _ in made.findings]
    assert alone == [path for path in whole if path.startswith("entry")]
    assert bool(alone) == (bytes(entries) != walk.offset_index)
