"""Fingerprints: by segment, partition and corpus, of contents and of bytes."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from programs import run_program
from test_corpus_manifest import ROW

from kfuzz.corpora.fingerprints import Fingerprints, fingerprint_lines, of_corpus, of_partitions
from kfuzz.corpora.generation import generate
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import KIB, Topic, Workload

ROWS = [
    ROW,
    replace(ROW, segment_id=1, path="z-0/00000000000000000001.log", fingerprint="f1", txnindex_crc32c=0xB),
    replace(ROW, segment_id=2, path="a-0/00000000000000000000.log"),
]
WORKLOAD = Workload(topics=(Topic("t", partitions=2),), size=256 * KIB, segment_bytes=64 * KIB)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_partitions_fingerprints_are_over_its_segments_in_order() -> None:
    found = of_partitions(ROWS)
    assert list(found) == ["z-0", "a-0"]
    one, two = "00000000000000000000.log", "00000000000000000001.log"
    assert found["z-0"].contents == sha(f"{one} f0\n{two} f1\n")
    sums = "00000abc 00000000 00000000"
    assert found["z-0"].bytes == sha(f"{one} 100 {sums} - 00000000\n{two} 100 {sums} 0000000b 00000000\n")


def test_a_corpus_fingerprints_are_over_those_of_its_partitions() -> None:
    parts = {"z-0": Fingerprints("c1", "b1"), "a-0": Fingerprints("c2", "b2")}
    assert of_corpus(parts) == Fingerprints(sha("z-0 c1\na-0 c2\n"), sha("z-0 b1\na-0 b2\n"))


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"fingerprint": "f2"}, {"contents"}),
        ({"crc32c": 1}, {"bytes"}),
        ({"bytes": 7}, {"bytes"}),
        ({"index_crc32c": 1}, {"bytes"}),
        ({"timeindex_crc32c": 1}, {"bytes"}),
        ({"txnindex_crc32c": None}, {"bytes"}),
        ({"snapshot_crc32c": 1}, {"bytes"}),
        ({"codec_versions": "{x}", "segment_id": 7}, set()),
    ],
)
def test_contents_and_bytes_change_apart_and_only_in_their_partition(
    change: dict[str, int | str | None], parts: set[str]
) -> None:
    rows = [ROWS[2], ROWS[0], replace(ROWS[1], **change)]  # type: ignore[arg-type]
    before, after = of_partitions(ROWS), of_partitions(rows)
    assert after["a-0"] == before["a-0"]
    assert {
        name for name in ("contents", "bytes") if getattr(after["z-0"], name) != getattr(before["z-0"], name)
    } == parts


def test_success_holds_them_and_sha256sum_still_reads_it(tmp_path: Path) -> None:
    rows = generate(WORKLOAD, tmp_path)
    lines = (tmp_path / "_SUCCESS").read_text().splitlines()
    assert lines[3:] == fingerprint_lines(rows)
    assert [line.split(" ")[3:] for line in lines[5:]] == [["t-0"], ["t-0"], ["t-1"], ["t-1"]]
    if program := shutil.which("sha256sum"):
        sums = "\n".join(lines[1:]) + "\n"
        run_program(program, "--check", "--strict", cwd=tmp_path, input=sums)


def test_a_changed_fingerprint_of_a_partition_is_found(tmp_path: Path) -> None:
    generate(WORKLOAD, tmp_path)
    success = tmp_path / "_SUCCESS"
    text = success.read_text()
    # The last digit before the name " t-1".
    success.write_text(text[:-6] + ("1" if text[-6] == "0" else "0") + text[-5:])
    [problem] = verify(tmp_path)
    assert (problem.path, problem.code) == ("_SUCCESS", "fingerprint-mismatch")
