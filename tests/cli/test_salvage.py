"""kfuzz salvage: what it prints, its exit codes, and wrong use."""

from __future__ import annotations

import json
from pathlib import Path

from cli_driver import kfuzz

from kfuzz import records
from kfuzz.records import Record, RecordBatch


def batch(offset: int) -> bytes:
    return records.encode([RecordBatch(offset, offset, [Record(offset, 1, b"k", b"v")])])


def test_losses_are_listed_and_the_exit_code_tells(tmp_path: Path) -> None:
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(batch(0) + batch(1))
    good = kfuzz("salvage", path, "--out", tmp_path / "good")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.splitlines()[-1] == f"1 segment: kept {2 * len(batch(0))} bytes, lost 0 bytes"
    path.write_bytes(batch(0) + batch(1)[:-1] + b"\1")
    bad = kfuzz("salvage", path, "--out", tmp_path / "bad")
    assert bad.returncode == 1
    assert "1 batches, 1 records, offsets 0 to 0" in bad.stdout
    assert f"lost {len(batch(1))} bytes at byte {len(batch(0))} of {path}: the stored CRC" in bad.stdout
    told = kfuzz("salvage", path, "--out", tmp_path / "json", "--json")
    assert told.returncode == 1
    [one] = json.loads(told.stdout)
    assert (one["lost_bytes"], one["first_offset"], one["last_offset"]) == (len(batch(1)), 0, 0)


def test_wrong_use_is_one_sentence(tmp_path: Path) -> None:
    assert kfuzz("salvage", tmp_path / "nothing", "--out", tmp_path).returncode == 2
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batch(0))
    shown = kfuzz("salvage", path, "--out", tmp_path)
    assert shown.returncode == 2
    assert "name another folder with --out" in shown.stderr
    shown = kfuzz("salvage", path, "--out", path)
    assert shown.returncode == 2
    assert len(shown.stderr.splitlines()) == 1
