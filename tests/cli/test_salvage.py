"""kfuzz salvage: what it prints, its exit codes, and wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_driver import kfuzz, refused
from made_segments import bad, batch, written

from kfuzz.records import Record, RecordBatch, encode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A segment of one batch."""
    return written(tmp_path / "t-0", batch(0))


def test_losses_are_listed_and_the_exit_code_tells(path: Path, tmp_path: Path) -> None:
    path.write_bytes(batch(0) + batch(1))
    good = kfuzz("salvage", path, "--out", tmp_path / "good")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.splitlines()[-1] == f"1 segment: kept {2 * len(batch(0))} bytes, lost 0 bytes"
    path.write_bytes(batch(0) + batch(1)[:-1] + b"\1")
    bad = kfuzz("salvage", path, "--out", tmp_path / "bad", code=1)
    assert "1 batches, 1 records, offsets 0 to 0" in bad.stdout
    assert f"lost {len(batch(1))} bytes at byte {len(batch(0))} of {path}: the stored CRC" in bad.stdout
    [one] = json.loads(kfuzz("salvage", path, "--out", tmp_path / "json", "--json", code=1).stdout)
    assert (one["lost_bytes"], one["first_offset"], one["last_offset"]) == (len(batch(1)), 0, 0)


def test_a_wrong_name_costs_nothing_and_a_second_copy_is_left_out(tmp_path: Path) -> None:
    wrong = written(tmp_path / "t-0", batch(10), batch(11), base=11)
    named = kfuzz("salvage", tmp_path / "t-0", "--out", tmp_path / "named", code=0).stdout
    assert f"the name of {wrong} is wrong; the copy is named after the first offset in it" in named
    written(tmp_path / "t-0", batch(10), batch(11), base=10)
    both = kfuzz("salvage", tmp_path / "t-0", "--out", tmp_path / "both", code=1).stdout
    assert f"{wrong}: left out\n  lost {2 * len(batch(10))} bytes at byte 0 of {wrong}: another segment" in both
    of = json.loads(kfuzz("salvage", tmp_path / "t-0", "--out", tmp_path / "json", "--json", code=1).stdout)
    assert [one["copy"] and Path(one["copy"]).stem for one in of] == [f"{10:020d}", None]


def test_a_batch_that_is_there_twice_costs_no_offset(path: Path, tmp_path: Path) -> None:
    path.write_bytes(batch(0) + batch(0) + batch(1))
    shown = kfuzz("salvage", path, "--out", tmp_path / "out", code=1).stdout
    assert "no offset is lost" in shown
    assert "of offsets" not in shown


def test_transactions_that_one_lost_marker_may_have_ended_are_one_line(path: Path, tmp_path: Path) -> None:
    def of(producer: int, offset: int, key: bytes = b"", value: bytes = b"") -> bytes:
        fields = {"producer_id": producer, "producer_epoch": 0, "transactional": True, "control": bool(key)}
        return encode([RecordBatch(offset, offset, [Record(offset, 1, key, value)], **fields)])

    commit, end = b"\0\0\0\1", bytes(6)
    data = [of(producer, producer) for producer in range(7)]
    ends = [of(producer, 10 + producer, commit, end) for producer in range(6)]
    path.write_bytes(b"".join([*data, bad(batch(7)), *ends]))
    shown = kfuzz("salvage", path, "--out", tmp_path / "out", code=1).stdout.splitlines()
    assert [line for line in shown if "producer" in line] == [
        "  producers 0, 1, 2, 3, 4 and 1 more, offsets 0 to 5: committed now; how their transactions ended is lost",
        "  producer 6, offsets 6 to 6: open now; how their transaction ended is lost; "
        "a reader in read_committed stops at 6",
    ]


def test_a_copy_inside_the_log_is_refused(path: Path, tmp_path: Path) -> None:
    for log in (tmp_path, path.parent):
        shown = kfuzz("salvage", log, "--out", log / "rescued", code=2)
        assert shown.stderr == f"kfuzz: {log / 'rescued'} is inside {log}, which is only read; name a folder outside\n"
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_the_topic_of_a_partition_folder_must_be_one_of_those_chosen(path: Path) -> None:
    for place in (path, path.parent):
        assert refused("cat", place, "--topics", "orders") == f"kfuzz: no topic in {place} matches 'orders'; it has t\n"
        assert kfuzz("cat", place, "--topics", "t*").stdout.count("\n") == 1


def test_kafkas_own_topics_are_named_if_they_are_left_out(path: Path, tmp_path: Path) -> None:
    own = written(tmp_path / "__consumer_offsets-3", batch(0))
    said = "kfuzz: left out __consumer_offsets, which are Kafka's own topics; --topics '__*' chooses them\n"
    copying = ("salvage", tmp_path, "--dry-run", "--out", "nowhere")
    for verb, times in (copying, 1), (("diff", tmp_path, tmp_path), 2):
        assert kfuzz(*verb, code=0).stderr == said * times
        assert kfuzz(*verb, "--topics", "t", code=0).stderr == ""
        assert kfuzz(*verb, "--topics", "__*", code=0).stderr == ""
    assert kfuzz("salvage", own.parent, "--dry-run", "--out", "nowhere", code=0).stderr == ""
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    for more in ((), ("--topics", "__*")):
        kfuzz("salvage", tmp_path, "--out", f"{tmp_path}-out", *more, code=0)
    assert {one.name for one in Path(f"{tmp_path}-out").iterdir()} >= {"t-0", own.parent.name, "meta.properties"}


def test_the_id_of_a_topic_is_copied_unless_a_broker_refuses_it(path: Path, tmp_path: Path) -> None:
    metadata = path.with_name("partition.metadata")
    for number, (text, code) in enumerate(
        (("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n", 0), ("version: 0\ntopic_id: A\n", 1))
    ):
        metadata.write_text(text)
        shown = kfuzz("salvage", path.parent, "--out", tmp_path / str(number), code=code).stdout
        assert f"{metadata} is damaged and not copied; take that of another partition" in shown or not code
        assert (tmp_path / str(number) / "t-0" / metadata.name).exists() is not bool(code)
        [one] = json.loads(kfuzz("salvage", path.parent, "--out", "none", "--dry-run", "--json", code=code).stdout)
        assert one["is_stray"] is bool(code)


def test_partitions_beside_segments_are_not_passed_over_in_silence(path: Path, tmp_path: Path) -> None:
    written(tmp_path, batch(0))
    for verb in ("salvage", tmp_path, "--dry-run", "--out", "nowhere"), ("cat", tmp_path):
        assert kfuzz(*verb, code=1).stderr == f"kfuzz: {path.parent} is skipped: it is a partition beside segments\n"
    assert kfuzz("salvage", path.parent, "--dry-run", "--out", "nowhere", code=0).stderr == ""
    inner = written(path.parent / "inner-0", batch(0)).parent
    (tmp_path / path.name).unlink()
    for verb in ("salvage", tmp_path, "--dry-run", "--out", "nowhere"), ("cat", tmp_path):
        assert kfuzz(*verb, code=1).stderr == f"kfuzz: {inner} is skipped: it is a partition inside another one\n"


def test_a_second_folder_of_a_partition_is_not_copied_over_the_first(path: Path, tmp_path: Path) -> None:
    again = written(tmp_path / "t-00", batch(0), batch(1)).parent
    shown = kfuzz("salvage", tmp_path, "--out", tmp_path.parent / f"{tmp_path.name}-out", code=1)
    assert shown.stderr == f"kfuzz: {again} is skipped: it is the same partition as t-0\n"
    assert shown.stdout.startswith(f"{tmp_path}-out/t-0/{path.name}: 1 batches")


@pytest.mark.parametrize("pieces", [[batch(1)], [batch(1), batch(2)]])
def test_a_segment_whose_name_is_no_offset_is_copied_under_its_first_one(
    path: Path, tmp_path: Path, pieces: list[bytes]
) -> None:
    above = written(path.parent, *pieces, base=10**20 - 1)
    for number, named in enumerate((path.parent, above)):
        shown = kfuzz("salvage", named, "--out", tmp_path / str(number), code=0)
        assert shown.stderr == ""
        copy = tmp_path / str(number) / "t-0" / f"{1:020d}.log"
        assert (copy.read_bytes(), copy.with_suffix(".index").exists()) == (b"".join(pieces), True)
        assert f"the name of {above} is wrong; the copy is named after the first offset in it" in shown.stdout
        assert not copy.with_name(above.name).exists()


def test_a_directory_whose_meta_properties_no_broker_takes_is_named(path: Path, tmp_path: Path) -> None:
    meta = tmp_path / "meta.properties"
    meta.write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n")
    for more in (), ("--dry-run",):
        shown = kfuzz("salvage", tmp_path, "--out", f"{tmp_path}-out{len(more)}", *more, code=1)
        assert shown.stderr == f"kfuzz: {meta} has no node.id; add it to the copy, or no broker starts with it\n"


def test_a_place_where_no_copy_can_be_made_is_refused_before_and_without_a_run(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for taken in out, out / path.parent.name:
        taken.parent.mkdir(exist_ok=True)
        taken.touch()
        for more in (), ("--dry-run",):
            shown = kfuzz("salvage", path.parent, "--out", out, *more, code=2)
            assert shown.stdout == ""
            assert shown.stderr.endswith(f" cannot be written: {taken} is not a directory; name another place\n")
        taken.unlink()
