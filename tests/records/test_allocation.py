"""Reading never allocates more than a small multiple of its input or the caller's bound; large files take nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import run_program

from kfuzz import records
from kfuzz.records import Record, RecordBatch
from kfuzz.vectors import load_suite

MIB = 1 << 20
PROBE = Path(__file__).with_name("allocation_probe.py")
MEMORY_PROBE = Path(__file__).with_name("memory_probe.py")
# Memory that libraries take once (zstd's working space is half of it), and malloc's page for each large block.
SLACK_BYTES = MIB
# Pieces that a codec's output comes in, then the whole they make.
CODEC_MULTIPLE = 3
# A message or batch is held a few times at most while it is judged; objects and their JSON take more than its bytes.
INPUT_MULTIPLE = {"check": 4, "read": 64, "planted": 4}
FILE_BYTES = 256 * MIB
ABOVE_MAPPING_BYTES = 64 * MIB

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the probes read /proc")


def probed(*words: str) -> list[dict[str, Any]]:
    done = run_program(sys.executable, PROBE, *words, variables={"PYTHONMALLOC": "malloc"}, timeout=300)
    # A step that did not come to its end says why there.
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def most_bytes(line: dict[str, Any], step: str) -> int:
    return int(SLACK_BYTES + INPUT_MULTIPLE[step] * line["size"] + CODEC_MULTIPLE * line["limit"])


def excesses(lines: list[dict[str, Any]]) -> list[str]:
    return [
        f"{line['id']}: {step} took {peak} bytes under a limit of {line['limit']}; {line['size']} were given"
        for line in lines
        for step, peak in line["peaks"].items()
        if peak > most_bytes(line, step)
    ]


@pytest.mark.full
def test_no_vector_and_no_mutant_makes_the_reader_allocate_beyond_its_input_and_its_bound() -> None:
    lines = probed("--mutants")
    assert {line["id"] for line in lines} >= {vector.id for vector in load_suite()}
    assert len(lines) > len(load_suite())
    assert all(list(line["peaks"]) == ["check", "read"] for line in lines)
    assert excesses(lines) == []
    # A probe that sees nothing would be content with everything: under 64 MiB the bombs must show.
    shown = [line["peaks"]["check"] for line in lines if line["limit"] >= 64 * MIB and "zstd-value" in line["id"]]
    assert shown
    assert all(peak >= 64 * MIB for peak in shown)


def test_an_allocation_by_an_unchecked_count_is_an_excess() -> None:
    lines = probed("--plant", "records/v2/count/*")
    caught = {text.partition(":")[0] for text in excesses(lines)}
    assert "records/v2/count/hundred-million" in caught
    assert "records/v2/count/of-3" not in caught


def batch_file(path: Path, size_bytes: int) -> int:
    """A file of at least ``size_bytes``: one MiB of batches of several shapes, over and over. Its number of batches."""
    several = [
        RecordBatch(0, 999, [Record(i, i, b"k" * 10, b"v" * 100) for i in range(1000)]),
        RecordBatch(0, 0, [Record(0, 1, None, b"v" * 50_000)]),
        *(
            RecordBatch(0, 99, [Record(i, i, b"k", b"v" * 100) for i in range(100)], compression=c)
            for c in records.CODECS
        ),
        RecordBatch(0, 0, [Record(0, None, b"k", b"v" * 1000)], magic=0, timestamp_type="none"),
        RecordBatch(0, 1, [Record(i, 1, b"k", b"v" * 1000) for i in range(2)], magic=1, compression="gzip"),
    ]
    piece = records.encode(several)
    times = -(-size_bytes // len(piece))
    with path.open("wb") as file:
        for _ in range(times):
            file.write(piece)
    return times * len(several)


def checked(how: str, path: Path) -> dict[str, int]:
    command = [sys.executable, str(MEMORY_PROBE), how, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    report: dict[str, int] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A file of batches, and how many there are. KFUZZ_LARGE_FILE_BYTES makes it larger, for a campaign."""
    path = tmp_path_factory.mktemp("large") / "large.log"
    return path, batch_file(path, int(os.environ.get("KFUZZ_LARGE_FILE_BYTES", FILE_BYTES)))


@pytest.mark.parametrize("how", ["records.check", "kfuzz check"])
def test_checking_a_large_file_takes_little_above_its_mapping(how: str, large_file: tuple[Path, int]) -> None:
    path, batches = large_file
    report = checked(how, path)
    assert report["batches"] == batches
    assert 0 < report["above_mapping_bytes"] < ABOVE_MAPPING_BYTES


def test_a_reader_that_took_the_whole_file_would_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "file.log"
    batches = batch_file(path, ABOVE_MAPPING_BYTES)
    report = checked("whole file", path)
    assert report["batches"] == batches
    assert report["above_mapping_bytes"] >= ABOVE_MAPPING_BYTES
