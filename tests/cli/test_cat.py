"""kfuzz cat: what it prints, what it says of damage and of wrong use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz, on_terminal, outcome, refused

from kfuzz import records
from kfuzz.cli.cat import _cell
from kfuzz.records import Record, RecordBatch


@pytest.fixture
def log(tmp_path: Path) -> Path:
    made = [Record(i, 1_700_000_000_000 + i, b"k", b"v%d" % i, ((b"h", b"\xff"),)) for i in range(5)]
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    return written(path, *made)


def written(path: Path, *rows: Record) -> Path:
    """A segment of one batch."""
    path.write_bytes(records.encode([RecordBatch(rows[0].offset, rows[-1].offset, list(rows))]))
    return path


def printed(*words: str | Path) -> list[dict[str, Any]]:
    """The records that are printed as JSON, and nothing else."""
    code, out, said = outcome("cat", *words)
    assert (code, said) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def damaged(log: Path) -> Path:
    good = log.read_bytes()
    log.write_bytes(good[:-1] + b"\0" + good)
    return log


def test_each_record_is_a_line_of_json(log: Path) -> None:
    first, *others = printed(log.parent.parent)
    assert first == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value": "v0",
        "headers": [["h", {"hex": "ff"}]],
    }
    assert len(others) == 4


def test_standard_input_is_read(log: Path) -> None:
    shown = kfuzz("cat", "-", "--tail", "1", stdin=log.read_bytes())
    assert json.loads(shown.stdout)["offset"] == 4


def test_the_table_has_readable_times_and_no_control_characters(log: Path) -> None:
    written(log, Record(0, 1_700_000_000_123, b"\x1b[31m", b"a\nb" * 40))
    head, line = kfuzz("cat", str(log), "--table").stdout.splitlines()
    assert head.split() == ["topic", "part", "offset", "timestamp", "key", "value", "headers"]
    assert "2023-11-14T22:13:20.123Z" in line
    assert r"\x1b[31m" in line
    assert line.endswith("…")


def test_damage_exits_with_1_and_names_the_remedy(log: Path) -> None:
    code, out, said = outcome("cat", damaged(log))
    assert (code, out) == (1, "")
    assert "crc-mismatch" in said
    assert "--keep-going reads what follows" in said
    code, out, said = outcome("cat", log, "--keep-going")
    assert (code, out.count("\n"), "crc-mismatch" in said) == (1, 5, True)
    assert kfuzz("cat", "-", stdin=log.read_bytes(), code=1).stderr.startswith("kfuzz: standard input at byte ")


@pytest.mark.parametrize(
    ("bounds", "is_said"),
    [
        (("--from", "5"), True),
        (("--from", "9", "--to", "9"), True),
        (("--to", "5"), True),
        (("--from", "2023-11-14"), True),
        (("--from", "10"), False),
        (("--to", "4"), False),
    ],
)
def test_damage_is_said_if_its_offsets_may_be_within_the_bounds(
    log: Path, bounds: tuple[str, ...], is_said: bool
) -> None:
    good = [
        records.encode([RecordBatch(i, i + 4, [Record(i + j, 1, b"k", b"v") for j in range(5)])]) for i in (0, 5, 10)
    ]
    log.write_bytes(good[0] + good[1][:-1] + b"\1" + good[2])
    code, _, said = outcome("cat", log, "--keep-going", *bounds)
    assert (code, "offsets 5 to 9 are lost; go on at 10" in said) == (int(is_said), is_said)


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


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (0x7F000042, "the batch is longer than the {} bytes before the next one"),
        # This one swallows a whole batch.
        (None, "the stored CRC is"),
    ],
)
def test_reading_continues_after_a_wrong_length_without_an_index(log: Path, length: int | None, words: str) -> None:
    one = log.read_bytes()
    length = 2 * len(one) - 12 if length is None else length
    log.write_bytes(one + one[:8] + length.to_bytes(4, "big") + one[12:] + one + one)
    code, out, said = outcome("cat", log, "--keep-going", "--columns", "offset")
    assert (code, out.count("\n"), said.count("\n")) == (1, 15, 1)
    assert words.format(len(one)) in said


# A batch of the metadata log, with a control record.
SNAPSHOT_HEADER = bytes.fromhex(
    "00000000000000000000004700000001025de0c5b10020000000000000019a1321221b0000019a1321221bffffffffffff"
    "ffffffffffffffff000000012a00000008000000031600000000019a132121ec0000"
)
SHOWN = {
    "key": {"type": "SNAPSHOT_HEADER", "version": 0},
    "value": {
        "type": "SnapshotHeaderRecord",
        "version": 0,
        "data": {"version": 0, "lastContainedLogTimestamp": "1761257529836"},
    },
}


@pytest.mark.parametrize(
    "name",
    [
        "__cluster_metadata-0/00000000000000000000.log",
        "__cluster_metadata-0/00000000000000001234-0000000005.checkpoint",
        "00000000000000001234-0000000005.checkpoint",
        "bootstrap.checkpoint",
    ],
)
def test_control_records_of_the_metadata_log_and_its_snapshots_are_decoded(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(SNAPSHOT_HEADER)
    [line] = printed(file, "--isolation", "log")
    assert {side: line[side] for side in SHOWN} == SHOWN
    assert "control" not in line
    assert printed(file, "--isolation", "log", "--columns", "control,key,value") == [{"control": True} | SHOWN]
    assert printed(file, "--isolation", "log", "--columns", "key") == [{"key": SHOWN["key"]}]
    # Nothing is decoded if that is what was asked for.
    [line] = printed(file, "--isolation", "log", "--records-of", "none")
    assert line["key"] == "\0\0\0\x03"
    assert kfuzz("cat", file).stdout == ""
    assert kfuzz("check", tmp_path).returncode == 0


def test_markers_are_decoded_in_every_topic_and_other_records_stay_as_they_are(log: Path) -> None:
    producer = {"transactional": True, "producer_id": 5, "producer_epoch": 0}
    value = b'"control":true}'
    made = [
        RecordBatch(0, 0, [Record(0, 1, b"k", value)], base_sequence=0, **producer),  # type: ignore[arg-type]
        *(
            RecordBatch(i, i, [Record(i, 1, bytes([0, 0, 0, kind]), bytes(5) + b"\7")], control=True, **producer)  # type: ignore[arg-type]
            for i, kind in ((1, 1), (2, 0))
        ),
    ]
    log.write_bytes(records.encode(made))
    lines = printed(log, "--isolation", "log")
    assert [line["key"] for line in lines] == ["k", {"type": "COMMIT", "version": 0}, {"type": "ABORT", "version": 0}]
    marker = {"type": "EndTxnMarker", "version": 0, "data": {"coordinatorEpoch": 7}}
    assert [line["value"] for line in lines] == [value.decode(), marker, marker]
    assert kfuzz("cat", log).stdout.count("\n") == 1


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_number_that_looks_like_a_time_is_told_to_be_an_offset(log: Path, option: str) -> None:
    for path in (log, log.parent.parent):
        said = refused("cat", path, option, "1713541792000")
        assert said.endswith(f"all offsets are lower; for that time, give {option} 2024-04-19T15:49:52.000Z\n")
    assert kfuzz("cat", log, option, "2024-04-19T15:49:52.000Z").returncode == 0
    assert kfuzz("cat", log, "--to", "99").stdout.count("\n") == 5
    assert " UTC" in kfuzz("cat", "--help").stdout


def test_a_key_that_no_record_has_is_answered_with_what_keys_are_like(log: Path, tmp_path: Path) -> None:
    assert kfuzz("cat", log, "--key", "x").stderr == ""
    key = bytes.fromhex("0001000167000174") + bytes([0, 0, 0, 1])
    file = tmp_path / "__consumer_offsets-3" / log.name
    file.parent.mkdir()
    code, out, said = outcome("cat", written(file, Record(0, 1, key, None)), "--key", "g")
    assert (code, out) == (0, "")
    assert f"such as hex:{key.hex()} for " in said
    assert '"group": "g"' in said
    assert kfuzz("cat", file, "--key", f"hex:{key.hex()}").stdout.count("\n") == 1


@pytest.mark.parametrize("suffix", [f".{'0f' * 16}-delete", f".{'0f' * 16}-future", f".{'0f' * 16}-stray", "-stray"])
def test_folders_that_a_broker_leaves_are_passed_over_and_named(log: Path, suffix: str) -> None:
    root = log.parent.parent
    left = root / f"gone-1{suffix}"
    left.mkdir()
    (left / log.name).write_bytes(log.read_bytes()[:-1] + b"?")
    for verb in ("cat", "check"):
        code, out, said = outcome(verb, root)
        assert (code, f"passed over {left.name}: " in out + said) == (0, True)
        # It is read if it is named.
        assert kfuzz(verb, left).returncode == 1
    (left / log.name).write_bytes(log.read_bytes())
    assert printed(left, "-n", "1")[0]["topic"] == "gone"
    log.unlink()
    log.parent.rmdir()
    for verb in ("cat", "check"):
        code, _, said = outcome(verb, root)
        assert (code, f"passed over {left.name}: " in said) == (2, True)


# ------------------------------------------------------------------------------------------------- choosing


def offsets(log: Path, *arguments: str) -> list[int]:
    return [one["offset"] for one in printed(log, *arguments, "--columns", "offset")]


def test_offsets_between_two_segments_are_named_unless_the_cleaner_removed_them(log: Path) -> None:
    written(log.with_name(f"{9:020d}.log"), Record(9, 1, b"k", b"v"))
    words = "offsets 5 to 8 are in no segment; the next record has offset 9; `kfuzz check` says"
    for path in (log.parents[1], log.parent):
        code, out, said = outcome("cat", path)
        assert (code, len(out.splitlines())) == (0, 6)
        assert f"orders:0: {words}" in said
    assert len(printed(log.parent, "--from", "9")) == 1
    (log.parents[1] / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    assert len(printed(log.parent)) == 6


@pytest.fixture
def chosen(log: Path) -> Path:
    """Keys a, b, c and none; the last value of b is null. Two records have a header twice."""
    rows = [(b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"a", b"4"), (b"b", None), (b"c", b"6")]
    headers = [(), ((b"h", b"x"),), ((b"h", b"x"), (b"h", b"y")), ((b"h", None), (b"i", b"")), (), ((b"hh", b"x"),)]
    made = [Record(i, 1_700_000_000_000 + i * 1000, *row, headers[i]) for i, row in enumerate(rows)]
    # A key's records are in two batches.
    log.write_bytes(records.encode([RecordBatch(0, 2, made[:3]), RecordBatch(3, 5, made[3:])]))
    return log


def test_records_are_chosen_by_headers_and_null_values(chosen: Path) -> None:
    assert offsets(chosen, "--header", "h") == [1, 2, 3]
    assert offsets(chosen, "--header", "h=x") == [1, 2]
    assert offsets(chosen, "--header", "h=x", "--header", "h=hex:79") == [2]
    assert offsets(chosen, "--header", "i=") == [3]
    assert offsets(chosen, "--tombstones") == [4]
    assert offsets(chosen, "--key", "a", "--header", "h") == [3]
    rows = [tuple(one.values()) for one in printed(chosen, "--columns", "header.h,header.i", "--records", "4")]
    assert rows == [(None, None), ("x", None), ("y", None), (None, "")]
    # Python has a byte of the command line that is not UTF-8 as such a character.
    written(chosen, Record(0, 1, b"\xff", b"v", ((b"\xfe", b"\xff"),)), Record(1, 1, b"a", b"v"))
    for chooser in ("--key", "\udcff"), ("--header", "\udcfe"), ("--header", "\udcfe=\udcff"):
        assert offsets(chosen, *chooser) == [0]


def test_the_latest_record_of_each_key_is_that_within_the_bounds(chosen: Path) -> None:
    assert offsets(chosen, "--latest") == [3, 5]
    assert offsets(chosen, "--latest", "--tombstones") == [4]
    assert offsets(chosen, "--latest", "--to", "3") == [1, 3]
    assert offsets(chosen, "--latest", "--key", "b", "--to", "3") == [1]
    # It is chosen first: the last record of c has no such header.
    assert offsets(chosen, "--latest", "--header", "h") == [3]
    assert offsets(chosen, "--latest", "--tail", "1") == [5]
    assert offsets(chosen.parent.parent, "--latest", "--records", "1") == [3]


def test_the_latest_records_are_found_past_damage(chosen: Path) -> None:
    assert kfuzz("cat", damaged(chosen), "--latest").returncode == 1
    shown = kfuzz("cat", chosen, "--latest", "--keep-going", "--columns", "offset")
    assert [json.loads(line)["offset"] for line in shown.stdout.splitlines()] == [3, 5]
    assert shown.stderr.count("crc-mismatch") == 1


def test_times_without_a_zone_are_utc_in_a_pipe_and_local_on_a_terminal(chosen: Path) -> None:
    assert offsets(chosen, "--from", "2023-11-14T22:13:23", "--to", "2023-11-14T22:13:24") == [3, 4]
    assert offsets(chosen, "--from", "2023-11-14T23:13:25+01:00") == [5]
    for more, zone in (
        ((), "2023-11-15T07:13:25.000+09:00"),
        (("--utc", "--from", "2023-11-14T22:13:25"), "22:13:25.000Z"),
    ):
        words = ("cat", chosen, "--from", "2023-11-15T07:13:25", "--table", *more)
        shown = on_terminal(*words, TZ="Asia/Tokyo", COLUMNS="200")
        assert zone in shown
        assert ("times without a zone are local: 2023-11-15 07:13:25+09:00" in shown) == (not more)


# ------------------------------------------------------------------------------------------------- schemas


def test_values_have_the_schemas_beside_them_and_what_is_not_decoded_is_counted(chosen: Path) -> None:
    key, schema = b'{"keytype":"SCHEMA"}', b'{"subject":"o","version":1,"id":7,"schema":"\\"string\\""}'
    framed = b"\0\0\0\0\7"
    made = [Record(0, 1, b"k", framed + b"\4ho"), Record(1, 1, framed + b"\4k\x1b", b"v"), Record(2, 1, b"k", framed)]
    written(chosen, *made)
    topic = chosen.parent.parent / "_schemas-0"
    topic.mkdir()
    written(topic / chosen.name, Record(0, 1, key, schema))
    shown = kfuzz("cat", chosen, "--columns", "key,value")
    first, second, third = shown.stdout.splitlines()
    assert (first, second) == ('{"key":"k","value":"ho"}', '{"key":"k\\u001b","value":"v"}')
    assert json.loads(third)["value"]["hex"] == framed.hex()
    assert shown.returncode == 1
    assert "1 key or value cannot be decoded; the first: schema 7: the value does not fit" in shown.stderr
    # Two keys and a value.
    left = "kfuzz: 3 keys or values have no schema's id, although others of the topic have one, and stay as they are\n"
    assert shown.stderr.startswith(left)
    # Only printed records count.
    assert kfuzz("cat", chosen, "--records", "2").returncode == 0
    assert kfuzz("cat", chosen, "--tail", "1").stderr == shown.stderr.removeprefix(left)
    assert printed(chosen, "--schema", "none", "--tail", "1")[0]["value"] == framed.decode()
    assert kfuzz("cat", chosen, "--table", "--columns", "value").stdout.splitlines()[1] == "ho"
    assert 'such as hex:0000000007046b1b for "k\\u001b"' in kfuzz("cat", chosen, "--key", "nobody").stderr


@pytest.mark.parametrize(("value", "cell"), [({"hex": 5}, '{"hex": 5}'), ({"data": 5, "n": 1}, '{"data": 5, "n": 1}')])
def test_a_cell_of_the_table_has_every_field_of_a_value(value: dict[str, int], cell: str) -> None:
    assert _cell("value", value) == cell
