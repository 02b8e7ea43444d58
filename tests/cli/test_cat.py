"""kfuzz cat: what it prints, what it says of damage and of wrong use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_driver import kfuzz

from kfuzz import records
from kfuzz.records import Record, RecordBatch


@pytest.fixture
def log(tmp_path: Path) -> Path:
    made = [Record(i, 1_700_000_000_000 + i, b"k", b"v%d" % i, ((b"h", b"\xff"),)) for i in range(5)]
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(records.encode([RecordBatch(0, 4, made)]))
    return path


def damaged(log: Path) -> Path:
    good = log.read_bytes()
    log.write_bytes(good[:-1] + b"\0" + good)
    return log


def test_each_record_is_a_line_of_json(log: Path) -> None:
    shown = kfuzz("cat", str(log.parent.parent))
    assert shown.returncode == 0
    assert json.loads(shown.stdout.splitlines()[0]) == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value": "v0",
        "headers": [["h", {"hex": "ff"}]],
    }
    assert len(shown.stdout.splitlines()) == 5


def test_standard_input_is_read(log: Path) -> None:
    shown = kfuzz("cat", "-", "--tail", "1", stdin=log.read_bytes())
    assert json.loads(shown.stdout)["offset"] == 4


def test_the_table_has_readable_times_and_no_control_characters(log: Path) -> None:
    log.write_bytes(records.encode([RecordBatch(0, 0, [Record(0, 1_700_000_000_123, b"\x1b[31m", b"a\nb" * 40)])]))
    head, line = kfuzz("cat", str(log), "--table").stdout.splitlines()
    assert head.split() == ["topic", "part", "offset", "timestamp", "key", "value", "headers"]
    assert "2023-11-14T22:13:20.123Z" in line
    assert r"\x1b[31m" in line
    assert line.endswith("…")


def test_damage_exits_with_1_and_names_the_remedy(log: Path) -> None:
    shown = kfuzz("cat", str(damaged(log)))
    assert shown.returncode == 1
    assert shown.stdout == ""
    assert "crc-mismatch" in shown.stderr
    assert "--keep-going reads what follows" in shown.stderr
    went_on = kfuzz("cat", str(log), "--keep-going")
    assert went_on.returncode == 1
    assert len(went_on.stdout.splitlines()) == 5
    assert "crc-mismatch" in went_on.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "nowhere does not exist"),
        (("LOG", "--from", "soon"), "'soon' is neither an offset nor a time"),
        (("LOG", "--columns", "offset,size"), "column 'size' does not exist"),
        (("LOG", "--key", "hex:0"), "'hex:0' is not hex"),
        (("LOG", "--tail", "1", "--count", "1"), "--tail and --count exclude each other"),
        (("LOG", "--topics", "x*", "--tail", "0"), "0 is not in the range"),
    ],
)
def test_wrong_use_is_one_sentence(log: Path, words: tuple[str, ...], sentence: str) -> None:
    shown = kfuzz("cat", *(str(log) if word == "LOG" else word for word in words))
    assert shown.returncode == 2
    assert sentence in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_a_reader_that_leaves_ends_it_before_the_damage_at_the_end(log: Path) -> None:
    good = records.encode([RecordBatch(0, 0, [Record(0, 1, b"k", b"v" * 1000)])])
    log.write_bytes(good * 10_000 + good[:-1] + b"\1")
    command = [sys.executable, "-m", "kfuzz", "cat", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert kfuzz("cat", log).returncode == 1
