"""kfuzz show and kfuzz check: what they print, how they exit, and that no input makes them stumble."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from cli_driver import kfuzz, kfuzz_process, on_terminal, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from made_segments import bad as damaged
from made_segments import batch, written

from kfuzz import records, strategies
from kfuzz.control import (
    ControlRecord,
    ControlRecordKey,
    ControlRecordType,
    LeaderChangeMessage,
    LeaderChangeVoter,
    encode_control,
)
from kfuzz.kafka import KAFKA_3
from kfuzz.messages.codec import encode
from kfuzz.mutate.engine import seal
from kfuzz.records import Record, RecordBatch

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    batch = RecordBatch(7, 8, [Record(7, 1, b"first", b"v"), Record(8, 2, b"second", None, ((b"h", b"x"),))])
    file = tmp_path / "good.log"
    file.write_bytes(records.encode_batch(batch))
    return file


@pytest.fixture
def bad(good: Path, tmp_path: Path) -> Path:
    file = tmp_path / "bad.log"
    file.write_bytes(damaged(good.read_bytes()))
    return file


def test_check_says_what_was_read_and_exits_0(good: Path) -> None:
    assert kfuzz("check", good, code=0).stdout == f"{good}: ok, 1 batches, 2 records, {good.stat().st_size} bytes\n"


@pytest.mark.parametrize("run", [kfuzz, kfuzz_process])
def test_check_exits_1_with_the_place_of_the_fault(run: Run, good: Path, bad: Path) -> None:
    done = run("check", good, bad)
    assert done.returncode == 1
    assert f"{bad}: fatal: batch[0].crc at byte 17: the stored CRC is 0x" in done.stdout


@pytest.mark.parametrize("options", [(), ("--role", "log"), ("--role", "broker"), ("--profile", "strict")])
def test_check_refuses_a_tail_that_hides_sound_batches_and_agrees_with_check_of_the_directory(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    made = [records.encode_batch(RecordBatch(i, i, [Record(i, 1700000000000, b"k", b"v")])) for i in range(6)]
    wrong = made[1][:8] + (0x7F000042).to_bytes(4, "big") + made[1][12:]
    file = tmp_path / "orders-0" / f"{0:020}.log"
    file.parent.mkdir()
    file.write_bytes(made[0] + wrong + b"".join(made[2:]))
    done = kfuzz("check", file, *options, code=1)
    lines = [line for line in done.stdout.splitlines() if "base-offset" not in line and "offset-delta" not in line]
    size = len(made[0])
    finding = (
        f"{file}: fatal: batch[1].batch_length at byte {size + 8}: the length leads beyond the end of the file, but "
        f"{size} bytes further on is a batch [batch-length-wrong]"
    )
    assert finding in lines
    assert f"{file}: 4 sound batches with 4 records from byte {2 * size} on; a broker that recovers" in done.stdout
    (document,) = json.loads(kfuzz("check", "--json", file, *options).stdout)
    assert (document["accepted"], document["partial_tail"]) == (False, False)
    if "broker" not in options:
        assert finding in kfuzz("check", file.parent, *options).stdout
    # Standard input has no name, and the same rule.
    assert kfuzz("check", "-", *options, stdin=file.read_bytes()).returncode == 1


FOREIGN = {
    "object.json": (b'{"a":1}', "JSON"),
    "lines.ndjson": (b"[1]\n[2]\n", "JSON"),
    "settings.toml": (b"name = 1\n", "a text"),
    "server.log": (b"[2026-11-24 10:00:00,000] INFO started\n" * 200, "a text"),
    "word": (b"hello", "a text"),
    "little.pcap": (b"\xd4\xc3\xb2\xa1\x02\0\x04\0" + bytes(16), "a pcap capture, not record batches"),
    "big.pcap": (b"\xa1\xb2\xc3\xd4\0\x02\0\x04" + bytes(16), "a pcap capture, not record batches"),
    "new.pcapng": (b"\n\r\r\n\x1c\0\0\0", "a pcapng capture, not record batches"),
    "log.Z": (b"\x1f\x9d\x90", "a file packed by compress"),
    "log.rar": (b"Rar!\x1a\x07\0", "a RAR archive"),
    "picture.gif": (b"GIF89a", "a GIF image"),
    "notes.txt": ("a text".encode("utf-16"), "a text in UTF-16"),
    "log.lz4": (b"\x04\x22\x4d\x18\x64", "an lz4 file"),
    "made.jar": (b"PK\x03\x04\x14\0", "a zip or jar archive"),
    "rows.parquet": (b"PAR1\x15\0", "a Parquet file"),
    "made.db": (b"SQLite format 3\0" + bytes(84), "an SQLite database"),
    "offsets": (b"".join(struct.pack(">ii", 35 * i, 4200 * i) for i in range(9)) + bytes(40), "an offset index"),
    "times": (b"".join(struct.pack(">qi", 1_700_000_000_000 + i, i) for i in range(3)) + bytes(24), "a time index"),
    "aborted": (struct.pack(">hqqqq", 0, 7, 3, 9, 9), "a transaction index"),
}

# As files, they are unpacked (tests/test_opened_places.py).
PACKED = {
    "parallel.zst": (b"\x50\x2a\x4d\x18\4\0\0\0", "a zstd file"),
    "log.zst": (b"\x28\xb5\x2f\xfd\x04", "a zstd file"),
    "made.tar": (b"a" + bytes(256) + b"ustar\x0000" + bytes(247), "a tar archive"),
}


def test_two_bytes_of_a_signature_do_not_hide_sound_batches(tmp_path: Path) -> None:
    file = tmp_path / "damaged.log"
    one = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")]))
    file.write_bytes(b"\x1f\x8b" + one[2:17] + b"\0" + one[18:] + one)
    done = kfuzz("check", file)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("name", [*FOREIGN, *PACKED])
def test_a_file_that_has_no_record_batches_is_named_and_exits_2(tmp_path: Path, name: str) -> None:
    content, what = (FOREIGN | PACKED)[name]
    file = tmp_path / name
    file.write_bytes(content)
    verbs = (
        ("check", file),
        ("show", file),
        ("cat", file),
        ("browse", file),
        ("salvage", file, "--out", tmp_path / "out"),
        ("corpus", "replay", file, "--bootstrap", "127.0.0.1:9"),
    )
    # All verbs ask the same function.
    for words in verbs if name in ("object.json", "little.pcap", "offsets") else verbs[:1]:
        said = refused(*words)
        assert said.startswith(f"kfuzz: {file} ")
        assert name in PACKED or what in said
    said = refused("check", "-", stdin=content)
    assert said.startswith("kfuzz: standard input ")
    assert what in said
    # As the content of a segment it is damage, which does not end the walk.
    segment = tmp_path / "log" / "orders-0" / f"{0:020}.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(content)
    assert "[not-record-batches]" in kfuzz("check", tmp_path / "log", code=1).stdout


def test_a_file_of_kafkas_own_is_named_by_cat_and_judged_by_check(tmp_path: Path) -> None:
    file = tmp_path / "epochs"
    file.write_bytes(b"0\n1\n0 0\n")
    assert kfuzz("check", file).stdout == f"{file}: ok, leader epochs, 1 entry\n"
    done = kfuzz("cat", file)
    assert (done.returncode, done.stderr.count("`kfuzz show`")) == (2, 1)
    index = tmp_path / f"{0:020}.index"
    index.write_bytes(bytes(8))
    assert "is offset index, and has no record batches" in kfuzz("cat", index).stderr


def test_only_a_possible_start_of_a_batch_counts_as_a_tail(good: Path, tmp_path: Path) -> None:
    whole = good.read_bytes()
    for cut in (1, 8, 12, 40, 70):
        good.write_bytes(whole[:cut])
        done = kfuzz("check", good)
        assert (done.returncode, f"then a partial tail of {cut} bytes" in done.stdout) == (0, True)
    other = tmp_path / "other"
    other.write_bytes(b"\x93\x01\x02\x03\x04")
    done = kfuzz("check", other)
    assert (done.returncode, "does not begin like one [not-record-batches]" in done.stdout) == (1, True)
    # A log of which only the beginning was overwritten with a text is a damaged log.
    other.write_bytes(b"lorem ipsum " * 10 + whole)
    assert kfuzz("check", other).returncode == 1
    assert kfuzz("cat", other, "--keep-going").stdout.count("\n") == 2


def test_check_in_strict_refuses_a_deviation_that_kafka_accepts() -> None:
    data = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, None, None, attributes=1)]))
    assert kfuzz("check", "-", stdin=data).returncode == 0
    assert "record-attributes-nonzero" in kfuzz("check", "--profile", "strict", "-", stdin=data, code=1).stdout


@pytest.mark.parametrize(
    ("role", "words", "accepts"),
    [
        ("consumer", "ok, 2 batches, 2 records", True),
        ("broker", "[batch-count-not-one]", False),
        ("log", "too far from the segment's base offset 5 [offset-outside-segment]", False),
    ],
)
def test_check_judges_as_the_role_that_is_named(role: str, words: str, accepts: bool, tmp_path: Path) -> None:
    file = tmp_path / "falling.log"
    file.write_bytes(b"".join(records.encode_batch(RecordBatch(at, at, [Record(at, 1, None, None)])) for at in (5, 4)))
    done = kfuzz("check", "--role", role, file)
    assert words in done.stdout
    assert done.returncode == (0 if accepts else 1)


def test_check_as_broker_in_strict_holds_the_rules_of_producers() -> None:
    data = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, None, None)], transactional=True))
    assert kfuzz("check", "--role", "broker", "-", stdin=data).returncode == 0
    done = kfuzz("check", "--role", "broker", "--profile", "strict", "-", stdin=data, code=1)
    assert "[transactional-without-id]" in done.stdout


def test_check_as_log_accepts_a_batch_that_no_consumer_can_read() -> None:
    batch = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, None, b"v")]))
    batch = seal(batch[:61] + b"\x7f" + batch[62:], length=False, crc=True)
    assert kfuzz("check", "-", stdin=batch).returncode == 1
    done = kfuzz("check", "--role", "log", "-", stdin=batch)
    assert "[records-unreadable]" in done.stdout
    assert done.returncode == 0


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
def test_show_looks_into_compressed_batches(codec: records.Codec) -> None:
    data = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"inside", None)], compression=codec))
    out = kfuzz("show", "-", stdin=data).stdout
    assert "batch[0].payload.records[0]" in out
    assert "key: 'inside'" in out


def test_show_reads_standard_input(good: Path) -> None:
    assert "base_offset: 7" in kfuzz("show", "-", stdin=good.read_bytes()).stdout


def test_show_marks_the_payload_that_cannot_be_decompressed() -> None:
    batch = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", None)], compression="gzip"))
    batch = seal(damaged(batch, 61), length=False, crc=True)
    (line,) = [line for line in kfuzz("show", "-", stdin=batch).stdout.splitlines() if "<--" in line]
    assert line.startswith("0000003d")
    assert line.endswith("bytes, gzip   <-- decompression-failed at 0x3d")


def test_show_stops_after_so_many_batches(good: Path) -> None:
    good.write_bytes(good.read_bytes() * 3)
    out = kfuzz("show", "--dump", "--batches", "2", good).stdout
    assert "batch[1].records[1]" in out
    assert f"batch[2]: {good.stat().st_size // 3} bytes, not shown\n… more batches follow; --batches 4 shows" in out
    assert "batch[2].records" not in out
    assert out.endswith(f"read: 3 batches, 6 records, {good.stat().st_size} bytes\n")
    assert "more batches" not in kfuzz("show", "--dump", "--batches", "3", good).stdout
    listed = kfuzz("show", "--batches", "2", good).stdout
    assert listed.endswith("more batches follow; --batches 4 shows more of them\n")
    assert listed.count("7 to 8") == 3


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Three batches; the second one is damaged."""
    file = tmp_path / "broken.log"
    file.write_bytes(batch(5) + damaged(batch(6), -2) + batch(7))
    return file


TIME = f"{'1970-01-01T00:00:00.001Z':<41}"
LINE = f"{{index:>8}} {{at:>12}}        70  {{offset:<23}}       1  {TIME}  none"


def test_show_lists_a_file_of_several_batches_with_what_is_wrong_after_damage_too(broken: Path) -> None:
    lines = kfuzz("show", broken).stdout.splitlines()
    assert lines[0] == f"{broken}: 210 bytes"
    assert lines[2:4] == [LINE.format(index=i, at=70 * i, offset=5 + i) for i in (0, 1)]
    assert lines[4].startswith("          fatal: batch[1].crc at byte 87: the stored CRC is 0x")
    assert lines[5:] == [
        "          offset 6 is lost; go on at 7",
        LINE.format(index=2, at=140, offset=7),
        "3 batches, 2 records, offsets 5 to 7, 1970-01-01T00:00:00.001Z to 1970-01-01T00:00:00.001Z",
        "1 of them cannot be read: 70 bytes",
        "fatal crc-mismatch in 1 batch, first in batch 1",
        "--finding opens the first of them, --batch N any batch",
    ]


def test_show_blames_the_later_of_two_batches_that_overlap(tmp_path: Path) -> None:
    pieces = [batch(offset, 5) for offset in (0, 5, 8, 20)]
    path = written(tmp_path / "t-0", pieces[0], damaged(pieces[1], -2), *pieces[1:])
    (tmp_path / "t-0" / f"{15:020d}.log").touch()
    lines = kfuzz("show", path).stdout.splitlines()
    lost = [(before.split()[0], line.strip()) for before, line in pairwise(lines) if " lost; " in line]
    assert lost == [
        ("fatal:", "no offset is lost; go on at 5"),
        ("3", "its offsets do not fit: offsets 5 to 7 are lost; go on at 8"),
        ("4", "its offsets do not fit: offsets 13 to 14 are lost; go on at 15"),
    ]


@pytest.mark.parametrize(
    "words",
    ["--batch 1", "--at 70", "--at 0x8b", "--offset 6", "--finding", "--finding crc-mismatch"],
)
def test_show_opens_the_batch_that_is_looked_for_between_its_neighbours(words: str, broken: Path) -> None:
    lines = kfuzz("show", broken, *words.split()).stdout.splitlines()
    assert lines[2] == LINE.format(index=0, at=0, offset=5)
    assert lines[4] == LINE.format(index=1, at=70, offset=6)
    assert lines[5] == f"00000046  {'':47}  batch[1]: magic 2, 70 bytes"
    (marked,) = [line for line in lines if "<--" in line]
    assert marked.startswith("00000057")
    assert marked.endswith("<-- crc-mismatch at 0x57")
    assert lines[-4:] == [
        "refused: batch 1, 1 records, 70 bytes from byte 70 on",
        "offset 6 is lost; go on at 7",
        "",
        LINE.format(index=2, at=140, offset=7),
    ]


def test_the_name_of_the_file_may_follow_finding(broken: Path) -> None:
    assert kfuzz("show", "--finding", broken).stdout == kfuzz("show", broken, "--finding").stdout


def test_show_judges_as_check_does_with_the_same_options(tmp_path: Path) -> None:
    file = tmp_path / "falling.log"
    parts = [RecordBatch(at, at, [Record(at, 1, None, bytes(500))], compression="gzip") for at in (5, 4)]
    file.write_bytes(b"".join(map(records.encode_batch, parts)))
    for words in ([], ["--role", "log"], ["--role", "broker"], ["--limit-bytes", "100"], ["--profile", "strict"]):
        lines = kfuzz("check", file, *words).stdout.splitlines()
        checked = [line.removeprefix(f"{file}: ") for line in lines if line.endswith("]")]
        listed = [line.strip() for line in kfuzz("show", file, *words).stdout.splitlines() if line.endswith("]")]
        dumped = [line for line in kfuzz("show", file, "--dump", *words).stdout.splitlines() if line.endswith("]")]
        assert dumped == checked
        # The list goes on after the batch at which check stops.
        assert listed[: len(checked)] == checked
        assert bool(checked) == bool(words not in ([], ["--profile", "strict"]))


def test_show_list_and_dump_choose(good: Path, broken: Path) -> None:
    assert "7 to 8" in kfuzz("show", "--list", good).stdout
    assert "batch[2].records[0]" in kfuzz("show", "--dump", broken).stdout


def test_show_lists_and_opens_as_json(broken: Path) -> None:
    document = json.loads(kfuzz("show", "--json", broken).stdout)
    assert [one["batch"] for one in document["batches"]] == [0, 1, 2]
    assert document["codes"] == {"crc-mismatch": {"batches": 1, "first": 1, "severity": "fatal"}}
    assert (document["batch_count"], document["record_count"], document["refused_bytes"]) == (3, 2, 70)
    assert [(one["first_lost"], one["next_readable"]) for one in document["lost"]] == [(6, 7)]
    opened = json.loads(kfuzz("show", "--json", "--finding", broken).stdout)
    assert (opened["before"]["batch"], opened["batch"]["batch"], opened["after"]["batch"]) == (0, 1, 2)
    assert opened["findings"] == opened["batch"]["findings"]
    covered = sorted(at for part in opened["parts"] for at in range(part["at"], part["at"] + part["size"]))
    assert covered == list(range(70, 140))


def test_a_pager_shows_what_does_not_fit_on_a_terminal(broken: Path) -> None:
    expected = kfuzz("show", broken).stdout
    # The pager puts <> around what it gets.
    settings = {"PAGER": "sh -c 'echo \\<; cat; echo \\>'", "COLUMNS": "200"}
    assert on_terminal("show", broken, **settings, LINES="100") == expected
    assert on_terminal("show", broken, **settings, LINES="5") == f"<\n{expected}>\n"
    assert on_terminal("show", "--no-pager", broken, **settings, LINES="5") == expected


# ------------------------------------------------------------------------------------------------- messages


def fetch_response(*fields: bytes) -> bytes:
    partitions = [{"partitionIndex": i, "highWatermark": 9, "records": field} for i, field in enumerate(fields)]
    return encode("FetchResponse", 17, {"responses": [{"topicId": bytes(16), "partitions": partitions}]})


def show_fetch(data: bytes, *words: str) -> str:
    done = kfuzz("show", "--message", "FetchResponse", "--version", "17", *words, "-", stdin=data)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_show_a_message(tmp_path: Path) -> None:
    file = tmp_path / "body.bin"
    file.write_bytes(bytes.fromhex("066b66757a7a023100"))
    done = kfuzz("show", "--message", "ApiVersions", "--version", "3", file)
    assert (
        done.stdout
        == f"""\
{file}: 9 bytes
00000000                                                   ApiVersionsRequest: version 3
00000000  06                                                 clientSoftwareName length: 5 bytes
00000001  6b 66 75 7a 7a                                     clientSoftwareName: 'kfuzz'
00000006  02                                                 clientSoftwareVersion length: 1 bytes
00000007  31                                                 clientSoftwareVersion: '1'
00000008  00                                                 tag count: 0

read: ApiVersionsRequest version 3, 9 bytes
"""
    )
    (tmp_path / "empty").touch()
    cut = kfuzz("show", "--message", "ApiVersions", "--version", "3", tmp_path / "empty", code=0)
    assert cut.stdout.splitlines()[2:] == [
        f"00000000  {'':47}    rest: nothing is left   <-- message-cut at 0x0",
        "",
        "fatal: ApiVersionsRequest.clientSoftwareName at byte 0: 1 bytes are needed here, and 0 are left [message-cut]",
        "refused: ApiVersionsRequest version 3",
    ]


def test_show_a_header_and_what_stands_after_it() -> None:
    header = encode("RequestHeader", 2, {"requestApiKey": 18, "correlationId": 7, "clientId": "me"})
    out = kfuzz("show", "--message", "RequestHeader", "--version", "2", "-", stdin=header + b"body").stdout
    assert f"{len(header):08x}  62 6f 64 79 " in out
    assert "rest: 4 bytes after the message   <-- bytes-after-message" in out
    assert out.endswith(f"read: RequestHeader version 2, {len(header)} bytes\n")


def test_show_marks_findings_of_a_messages_batches_where_they_are(good: Path, bad: Path) -> None:
    inside = good.read_bytes()
    # The batch ends where its third record should begin: that is where the next partition does.
    missing = seal(inside[:57] + (3).to_bytes(4, "big") + inside[61:], length=False, crc=True)
    data = fetch_response(missing, bad.read_bytes(), inside)
    out = show_fetch(data)
    one, two = [line for line in out.splitlines() if "<--" in line]
    end = data.index(missing) + len(missing)
    assert one.startswith(f"{end - 1:08x}  78 ")
    assert one.endswith(f"value: 'x'   <-- record-count-too-high at {end:#x}")
    crc = data.index(bad.read_bytes()) + 17
    assert two.endswith(f"<-- crc-mismatch at {crc:#x}")
    assert f"fatal: FetchResponse.responses[0].partitions[1].records.batch[0].crc at byte {crc}: " in out
    assert out.endswith(f"{len(data)} bytes; inside 3 fields of records: 1 batches, 2 records, 2 refused\n")


def test_show_counts_what_is_inside_a_message(good: Path) -> None:
    inside = good.read_bytes()
    out = show_fetch(fetch_response(inside + inside, inside + inside[:20]), "--batches", "1")
    assert out.count(".records.batch[0].records[1]: ") == 2
    assert out.count(" bytes, not shown\n") == 2
    assert "… more batches follow; --batches 2 shows more of them" in out
    assert out.endswith("inside 2 fields of records: 3 batches, 6 records, 1 partial tails\n")
    assert "inside" not in show_fetch(fetch_response())


def test_show_a_message_as_json(bad: Path) -> None:
    data = fetch_response(bad.read_bytes())
    document = json.loads(show_fetch(data, "--json"))
    assert {name: document[name] for name in ("source", "size", "message", "version", "consumed")} == {
        "source": "-",
        "size": len(data),
        "message": "FetchResponse",
        "version": 17,
        "consumed": len(data),
    }
    assert "".join(part["hex"] for part in document["parts"]) == data.hex()
    assert document["parts"][3] == {
        "path": "FetchResponse",
        "field": "responses",
        "at": 10,
        "size": 1,
        "hex": "02",
        "value": "1 element",
    }
    assert [finding["code"] for finding in document["findings"]] == ["crc-mismatch"]


def test_show_a_message_by_other_definitions_and_in_strict(tmp_path: Path) -> None:
    (tmp_path / "tally.json").write_text(
        """{ "name": "TallyRequest", "type": "request", "apiKey": 1, "validVersions": "0", "flexibleVersions": "none",
          "fields": [{ "name": "Sure", "type": "bool", "versions": "0+" }]}"""
    )
    words = ["--message", "tally", "--version", "0", "--definitions", str(tmp_path / "tally.json"), "-"]
    out = kfuzz("show", *words, stdin=b"\2").stdout
    assert "sure: true   <-- bool-not-0-or-1 at 0x0" in out
    assert out.endswith("read: TallyRequest version 0, 1 bytes\n")
    strict = kfuzz("show", "--profile", "strict", *words, stdin=b"\2").stdout
    assert "sure: true   <-- bool-not-0-or-1 at 0x0" in strict
    assert strict.endswith("refused: TallyRequest version 0\n")
    words = ["--message", "ControlledShutdown", "--version", "0", "--definitions", KAFKA_3, "-"]
    assert "brokerId: 0" in kfuzz("show", *words, stdin=bytes(4)).stdout


def test_show_and_check_call_an_empty_file_an_empty_log(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert "valid" in kfuzz("show", empty).stdout
    assert kfuzz("check", empty).stdout == f"{empty}: ok, 0 batches, 0 records, 0 bytes\n"


@given(strategies.batch_bytes(hostile=True, magics=(0, 1, 2)) | st.binary(max_size=500))
@settings(max_examples=40)
def test_no_bytes_make_show_or_check_stumble(data: bytes) -> None:
    shown, checked = kfuzz("show", "-", stdin=data), kfuzz("check", "-", stdin=data)
    if shown.returncode or checked.returncode > 1:
        assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)
        assert re.search(", not record batches; ", shown.stderr)
        assert checked.stderr == shown.stderr


# ------------------------------------------------------------------------------------------------- how much is shown


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A batch of 300 records, one of which has 50 headers; and one after it."""
    made = [Record(i, 1, b"k", b"v%d" % i, ((b"h", b"x"),) * (50 if i == 1 else 0)) for i in range(300)]
    file = tmp_path / "long.log"
    file.write_bytes(records.encode([RecordBatch(0, 299, made), RecordBatch(300, 300, [Record(300, 1, b"k", b"v")])]))
    return file


def test_a_dump_shows_the_first_records_and_counts_the_others(long: Path) -> None:
    shown = kfuzz("show", "--batch", "0", long).stdout
    assert "records[99]: " in shown
    assert "records[100]: " not in shown
    assert re.search(r"… 200 more records, [\d,]+ bytes$", shown, re.M)
    assert re.search(r"… 30 more headers, 120 bytes$", shown, re.M)
    assert "records[299]: " in kfuzz("show", "--batch", "0", "--records", "300", long).stdout
    around = kfuzz("show", "--offset", "250", long).stdout
    assert [int(one) for one in re.findall(r"records\[(\d+)\]: ", around)] == [*range(100), 249, 250, 251]


def test_a_dump_in_json_says_what_it_leaves_out(long: Path) -> None:
    made = json.loads(kfuzz("show", "--json", "--batch", "0", long).stdout)
    assert [(one["path"], one["count"]) for one in made["left_out"]] == [
        ("batch[0].records[1].headers[20]", 30),
        ("batch[0].records[100]", 200),
    ]
    assert "left_out" not in json.loads(kfuzz("show", "--json", "--batch", "1", long).stdout)


def test_a_finding_is_shown_with_few_records(long: Path) -> None:
    long.write_bytes(damaged(long.read_bytes(), 17))
    shown = kfuzz("show", "--finding", long).stdout
    assert "<-- crc-mismatch" in shown
    assert "… 297 more records" in shown
    assert len(shown.splitlines()) < 150
    # A finding in a record is shown with the records around it.
    made = [Record(i, 1, b"k", b"v", attributes=int(i == 200)) for i in range(300)]
    long.write_bytes(records.encode([RecordBatch(0, 299, made)]))
    shown = kfuzz("show", "--finding", long).stdout
    assert [int(one) for one in re.findall(r"records\[(\d+)\]: ", shown)] == [0, 1, 2, 199, 200, 201]
    assert re.search(r"records?.*attributes: 0x01 .*<-- record-attributes-nonzero|attributes: 0x01.*<-- record", shown)


def test_a_control_record_is_json(tmp_path: Path) -> None:
    file = tmp_path / "control.log"
    file.write_bytes(
        bytes.fromhex(
            "000000000000000000000047" + "00000001025de0c5b10020000000000000019a1321221b0000019a1321221b"
            "ffffffffffffffffffffffffffff000000012a00000008000000031600000000019a132121ec0000"
        )
    )
    text = '{"version": 0, "lastContainedLogTimestamp": "1761257529836"}'
    assert f"value: SnapshotHeaderRecord version 0: {text}\n" in kfuzz("show", file).stdout
    value = LeaderChangeMessage(3, (LeaderChangeVoter(3),))
    key, data = encode_control(ControlRecord(ControlRecordKey(ControlRecordType.LEADER_CHANGE), value))
    file.write_bytes(records.encode([RecordBatch(0, 0, [Record(0, 1, key, data)], control=True)]))
    text = '{"version": 0, "leaderId": 3, "voters": [{"voterId": 3}], "grantingVoters": []}'
    shown = kfuzz("show", file).stdout
    assert "key: LEADER_CHANGE\n" in shown
    assert f"value: LeaderChangeMessage version 0: {text}\n" in shown


@pytest.mark.parametrize(
    "words",
    [
        ("check", "{log}"),
        ("check", "{folder}"),
        ("check", "--json", "{folder}"),
        ("show", "{log}"),
        ("show", "--json", "{log}"),
        ("show", "--finding", "{log}"),
        ("show", "--json", "--dump", "{log}"),
        ("show", "{folder}/00000000000000000000.index"),
        ("show", "--frames", "{log}"),
        ("cat", "{folder}", "--keep-going"),
        ("cat", "{folder}"),
        ("cat", "{folder}", "--table", "--keep-going"),
        ("salvage", "{folder}", "--out", "{folder}-out"),
        ("show", "{folder}/missing"),
        ("browse", "{log}"),
    ],
)
def test_names_and_contents_reach_a_terminal_as_escapes(tmp_path: Path, words: tuple[str, ...]) -> None:
    name = b"bad\xff esc\x1b[31m line\nbreak " + "bidi\u202e\x9b-0".encode()
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    folder.mkdir()
    log = folder / "00000000000000000000.log"
    good = records.encode(
        [RecordBatch(0, 0, [Record(0, 1, b"k\x00\x7f", "\x1b\u202e\x85".encode(), ((b"\x9b", b"\n"),))])]
    )
    log.write_bytes(good + good[:-1] + b"\x01")
    (folder / "00000000000000000000.index").write_bytes(bytes(9))
    done = kfuzz(*(word.replace("{log}", str(log)).replace("{folder}", str(folder)) for word in words))
    shown = done.stdout + done.stderr
    assert shown
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in shown
    assert {char for char in shown if not char.isprintable()} <= {"\n"}


def test_a_dump_has_the_first_findings_and_counts_the_others(tmp_path: Path) -> None:
    odd = records.encode([RecordBatch(0, 0, [Record(0, 1, b"k", b"v", attributes=1)])])
    bad = odd[:-1] + b"\x01"
    file = tmp_path / "odd.log"
    file.write_bytes(odd * 3000 + bad)
    made = json.loads(kfuzz("show", "--json", "--dump", file).stdout)
    judged = records.check(file.read_bytes())
    assert (len(made["findings"]), made["more_findings"]) == (1001, 2000)
    assert made["findings"][-1]["code"] == "crc-mismatch"
    assert (made["consumed"], made["partial_tail"]) == (judged.consumed, judged.partial_tail)
    shown = kfuzz("show", "--dump", file).stdout
    assert "[crc-mismatch]\n… 2800 more findings\n" in shown
    assert f"refused: {judged.batch_count} batches, {judged.record_count} records, {judged.consumed} bytes" in shown
