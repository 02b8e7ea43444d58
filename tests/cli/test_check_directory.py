"""kfuzz check DIR and kfuzz show of the files beside segments."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

from cli_driver import kfuzz, refused
from made_corpora import copy_of, once
from made_segments import bad
from signals import KFUZZ, interrupt_when, start

from kfuzz.corpora.workload import KIB, Topic, Workload

FIRST = f"{0:020d}"


made = once(Workload(topics=(Topic("orders", partitions=2),), size=512 * KIB, segment_bytes=128 * KIB, seed=8))
logs = copy_of("made")


def test_a_sound_directory_is_one_line(logs: Path) -> None:
    (line,) = kfuzz("check", logs, code=0).stdout.splitlines()
    assert line.startswith(f"{logs}: ok, 2 partitions, 4 segments, ")
    assert kfuzz("check", logs, "--role", "log", "--profile", "strict").returncode == 0


def test_damage_is_reported_by_file_and_by_code_and_does_not_end_the_walk(logs: Path) -> None:
    segment = logs / "orders-0" / f"{FIRST}.log"
    data = segment.read_bytes()
    segment.write_bytes(bad(bad(bad(data, 200), len(data) // 2), -5))
    index = logs / "orders-1" / f"{FIRST}.index"
    index.write_bytes(index.read_bytes() + b"x")
    start, kept, *lines = kfuzz("check", logs, code=1).stdout.splitlines()
    assert start == (
        f"{logs / 'orders-0'}: at a start without a clean shutdown, a broker truncates it to offset 0, then deletes "
        f"the segment after {segment.name}; after a clean shutdown, it loads it"
    )
    assert kept.endswith(f"; after a clean shutdown, it keeps the damaged {index.name}")
    assert lines[0].startswith(f"{segment}: fatal: batch[0].crc at byte 17: the stored CRC is")
    assert lines[0].endswith("[crc-mismatch] (3 such places in this file)")
    assert lines[1] == f"{segment}: offsets 0 to 99 are lost; go on at 100"
    assert lines[3].startswith(f"{segment}: offsets ")
    assert lines[4].startswith("to pass over the first: kafka-consumer-groups.sh ")
    assert lines[4].endswith(" --topic orders:0 --reset-offsets --to-offset 100 --execute")
    assert lines[5].startswith(f"{index}: fatal: size at byte {index.stat().st_size - 1}: the file has ")
    assert lines[6].startswith(f"{logs}: refused, 2 partitions, 4 segments, ")
    assert lines[7:] == [
        "2 of the files cannot be read as a whole",
        f"  fatal crc-mismatch: 3 places in 1 file, first in {segment}",
        f"  fatal index-size-uneven: 1 place in 1 file, first in {index}",
    ]
    (document,) = json.loads(kfuzz("check", logs, "--json").stdout)
    assert document["codes"]["crc-mismatch"]["places"] == 3
    assert [Path(one["file"]) for one in document["files"]] == [segment, index]
    assert document["files"][0]["lost"][0]["first_lost"] == 0
    assert document["accepted"] is False
    assert (document["segments"], document["refused_files"]) == (4, 2)
    assert [(one["path"], one["after_clean_shutdown"]) for one in document["starts"]] == [
        (str(logs / "orders-0"), "loads it"),
        (str(logs / "orders-1"), f"keeps the damaged {index.name}"),
    ]
    # The partition alone, and the file alone.
    assert kfuzz("check", logs / "orders-1").returncode == 1
    assert kfuzz("check", logs / "orders-1" / f"{FIRST}.log").returncode == 0
    assert kfuzz("check", index).stdout.splitlines()[-1].startswith(f"{index}: refused, offset index, ")


def test_a_partial_tail_is_named_with_its_segment_and_its_size(logs: Path) -> None:
    segment = sorted((logs / "orders-1").glob("*.log"))[-1]
    data = segment.read_bytes()
    segment.write_bytes(data + data[:100])
    assert kfuzz("check", segment).stdout.endswith(", then a partial tail of 100 bytes\n")
    start, line, *_ = kfuzz("check", logs, code=0).stdout.splitlines()
    assert "a broker cuts off the partial batch at the end of " in start
    assert line == f"{segment}: a partial tail of 100 bytes"
    (document,) = json.loads(kfuzz("check", logs, "--json").stdout)
    assert [(one["file"], one["partial_tail"]) for one in document["files"]] == [(str(segment), 100)]


def test_what_many_partitions_have_is_one_line_below_the_start_of_the_directory(logs: Path) -> None:
    (logs / "replication-offset-checkpoint").write_text("0\n0\n")
    start, *lines = kfuzz("check", logs).stdout.splitlines()
    assert start.startswith(f"{logs}: at its next start, a broker refuses to start, because of meta.properties")
    assert lines[:2] == [
        f"{logs / 'orders-0'} and 1 more: at its next start, a broker renames it to -stray and begins an empty one",
        f"{logs / 'orders-0/partition.metadata'} and 1 more: fatal: the file with the topic id is missing; a broker "
        "renames the partition to -stray and begins an empty one [partition-metadata-missing]",
    ]


def test_folders_that_are_passed_over_have_a_start_too(logs: Path) -> None:
    for why in ("delete", "future", "stray"):
        shutil.copytree(logs / "orders-0", logs / f"orders-0.{'0f' * 16}-{why}")
    lines = [line.partition(": ")[2] for line in kfuzz("check", logs).stdout.splitlines()]
    assert lines[:3] == [
        "at its next start, a broker deletes it",
        "at its next start, a broker refuses to start if orders-0, which is here too, is assigned to this directory",
        "at its next start, a broker loads it, and leaves it alone",
    ]
    assert not kfuzz("check", logs, "--role", "consumer").stdout.startswith(f"{logs}/orders-0.")


def test_an_interrupt_ends_the_verb_with_one_sentence(logs: Path, tmp_path: Path) -> None:
    # A pipe that the user names is read.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    run = start([*KFUZZ, "check", logs, pipe])
    writers: list[int] = []

    def is_open() -> bool:
        # The pipe can be opened for writing when the verb has opened it; then the verb waits for bytes.
        with contextlib.suppress(OSError):
            writers.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(writers)

    # A shell's background jobs ignore SIGINT.
    _, told = interrupt_when(run, is_open, within_s=60, number=signal.SIGTERM)
    os.close(*writers)
    assert (run.returncode, told.strip()) == (128 + signal.SIGTERM, "kfuzz: terminated")


def test_show_prints_entries_as_text_and_as_json(logs: Path) -> None:
    index = logs / "orders-0" / f"{FIRST}.timeindex"
    lines = kfuzz("show", index).stdout.splitlines()
    assert lines[0].startswith(f"{index}: time index, ")
    assert lines[2].split() == ["entry", "byte", "timestamp", "offset"]
    document = json.loads(kfuzz("show", "--json", index).stdout)
    assert document["kind"] == "time index"
    assert len(document["entries"]) == len(lines) - 3 == index.stat().st_size // 12
    epochs = logs / "orders-0" / "leader-epoch-checkpoint"
    assert (
        kfuzz("show", "-", stdin=epochs.read_bytes()).stdout.splitlines()[1:]
        == (kfuzz("show", epochs).stdout.splitlines()[1:])
    )
    assert "--offset is about record batches" in refused("show", index, "--offset", "3")


def test_explain_knows_the_findings_of_stored_files() -> None:
    assert "a finding of stored files" in kfuzz("explain", "index-size-uneven").stdout
    assert "the entry's … is N" in kfuzz("explain", "index-not-rising").stdout
