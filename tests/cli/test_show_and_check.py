"""kfuzz show and kfuzz check: what they print, how they exit, and that no input makes them stumble."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from cli_driver import kfuzz

from kfuzz import records
from kfuzz.records import Record, RecordBatch
from kfuzz.wire.checksum import crc32c


@pytest.fixture
def good(tmp_path: Path) -> Path:
    batch = RecordBatch(7, 8, [Record(7, 1, b"first", b"v"), Record(8, 2, b"second", None, ((b"h", b"x"),))])
    file = tmp_path / "good.log"
    file.write_bytes(records.encode_batch(batch))
    return file


@pytest.fixture
def bad(good: Path, tmp_path: Path) -> Path:
    data = bytearray(good.read_bytes())
    data[-1] ^= 1
    file = tmp_path / "bad.log"
    file.write_bytes(data)
    return file


def test_check_says_what_was_read_and_exits_0(good: Path) -> None:
    done = kfuzz("check", good)
    assert done.returncode == 0
    assert done.stdout == f"{good}: ok, 1 batches, 2 records, {good.stat().st_size} bytes\n"


def test_check_exits_1_with_the_place_of_the_fault(good: Path, bad: Path) -> None:
    done = kfuzz("check", good, bad)
    assert done.returncode == 1
    assert f"{bad}: fatal: batch[0].crc at byte 17: the stored CRC is 0x" in done.stdout


def test_check_tells_a_partial_tail_and_calls_it_no_error(good: Path) -> None:
    good.write_bytes(good.read_bytes() + b"\0" * 5)
    done = kfuzz("check", good)
    assert done.returncode == 0
    assert "then a partial tail of 5 bytes" in done.stdout


def test_check_in_strict_refuses_a_deviation_that_kafka_accepts(tmp_path: Path) -> None:
    file = tmp_path / "deviation.log"
    file.write_bytes(records.encode_batch(RecordBatch(0, 0, [Record(0, 1, None, None, attributes=1)])))
    assert kfuzz("check", file).returncode == 0
    done = kfuzz("check", "--profile", "strict", file)
    assert done.returncode == 1
    assert "record-attributes-nonzero" in done.stdout


@pytest.mark.parametrize(
    ("role", "words", "accepts"),
    [
        ("consumer", "ok, 2 batches, 2 records", True),
        ("broker", "[batch-count-not-one]", False),
        ("log", "a segment that begins at 5 reaches no further [offset-outside-segment]", False),
    ],
)
def test_check_judges_as_the_role_that_is_named(role: str, words: str, accepts: bool, tmp_path: Path) -> None:
    file = tmp_path / "falling.log"
    file.write_bytes(b"".join(records.encode_batch(RecordBatch(at, at, [Record(at, 1, None, None)])) for at in (5, 4)))
    done = kfuzz("check", "--role", role, file)
    assert words in done.stdout
    assert done.returncode == (0 if accepts else 1)


def test_check_as_broker_in_strict_holds_the_rules_of_producers(tmp_path: Path) -> None:
    file = tmp_path / "produced.bin"
    file.write_bytes(records.encode_batch(RecordBatch(0, 0, [Record(0, 1, None, None)], transactional=True)))
    assert kfuzz("check", "--role", "broker", file).returncode == 0
    done = kfuzz("check", "--role", "broker", "--profile", "strict", file)
    assert done.returncode == 1
    assert "[transactional-without-id]" in done.stdout


def test_check_as_log_accepts_a_batch_that_no_consumer_can_read(tmp_path: Path) -> None:
    batch = bytearray(records.encode_batch(RecordBatch(0, 0, [Record(0, 1, None, b"v")])))
    batch[61] = 0x7F
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    file = tmp_path / "poisoned.log"
    file.write_bytes(batch)
    assert kfuzz("check", file).returncode == 1
    done = kfuzz("check", "--role", "log", file)
    assert "[records-unreadable]" in done.stdout
    assert done.returncode == 0


def test_a_role_that_does_not_exist_is_wrong_use(good: Path) -> None:
    assert kfuzz("check", "--role", "judge", good).returncode == 2


def test_check_json_is_one_document(bad: Path) -> None:
    (entry,) = json.loads(kfuzz("check", "--json", bad).stdout)
    assert entry["accepted"] is False
    assert entry["findings"][0]["code"] == "crc-mismatch"
    assert entry["findings"][0]["at"] == 17


def test_show_names_every_byte_of_a_batch_once(good: Path) -> None:
    document = json.loads(kfuzz("show", "--json", good).stdout)
    covered = [at for part in document["parts"] for at in range(part["at"], part["at"] + part["size"])]
    assert sorted(covered) == list(range(good.stat().st_size))
    assert len(covered) == len(set(covered))


def test_show_marks_the_bytes_that_a_finding_is_about(bad: Path) -> None:
    lines = kfuzz("show", bad).stdout.splitlines()
    (line,) = [line for line in lines if "<--" in line]
    assert line.startswith("00000011")
    assert "crc-mismatch at 0x11" in line


@pytest.mark.parametrize("codec", records.CODECS[1:])
def test_show_looks_into_compressed_batches(tmp_path: Path, codec: records.Codec) -> None:
    file = tmp_path / "compressed.log"
    file.write_bytes(records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"inside", None)], compression=codec)))
    out = kfuzz("show", file).stdout
    assert "batch[0].payload.records[0]" in out
    assert "key: 'inside'" in out


def test_show_reads_standard_input(good: Path) -> None:
    assert "base_offset: 7" in kfuzz("show", "-", stdin=good.read_bytes()).stdout


def test_show_and_check_call_an_empty_file_an_empty_log(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert "valid" in kfuzz("show", empty).stdout
    assert kfuzz("check", empty).stdout == f"{empty}: ok, 0 batches, 0 records, 0 bytes\n"


@pytest.mark.parametrize("verb", ["show", "check"])
def test_a_wrong_name_gets_one_sentence_and_exit_2(verb: str, tmp_path: Path) -> None:
    for name in (tmp_path, tmp_path / "nowhere"):
        done = kfuzz(verb, name)
        assert done.returncode == 2
        assert done.stderr.startswith(f"kfuzz: {name} ")
        assert done.stderr.count("\n") == 1


def test_no_bytes_make_show_or_check_stumble(good: Path, tmp_path: Path) -> None:
    source = random.Random(5)
    data = good.read_bytes()
    inputs = [source.randbytes(n) for n in (1, 12, 17, 61, 500)] + [data[:n] for n in (5, 16, 20, 62)]
    for magic in (0, 1, 2):
        inputs.append(data[:8] + (40).to_bytes(4, "big") + bytes(4) + bytes([magic]) + source.randbytes(60))
    for i, content in enumerate(inputs):
        file = tmp_path / f"input{i}"
        file.write_bytes(content)
        assert kfuzz("show", file).returncode == 0
        assert kfuzz("check", file).returncode in (0, 1)
