"""The loops without the interpreter: the CRC kernel against the library, the walk, records made when asked for."""

from __future__ import annotations

import json
import os
import random
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from crc32c import crc32c
from guarded import printed
from made_segments import bad
from programs import run_program
from written_records import written_payload

from kfuzz import records
from kfuzz.errors import RecordsError
from kfuzz.wire.io.checksum import crc32, crc32c_joined, kernel, zlib_kernel, zlib_tables
from kfuzz.wire.records.record_batch import parse_places
from kfuzz.wire.walk.scan import BATCH, END, PAYLOAD, REFUSED, Scan

Record, RecordBatch = records.Record, records.RecordBatch


# Around these sizes, the kernels take other steps.
EDGES = (384, 512, 768, 3584, 3712, 5696, 5952, 6144, 7168, 11_264, 11_392)
SIZES = [*range(70), *range(250, 330), 391, 5632, 7300, *(edge + i for edge in EDGES for i in (-1, 0, 1)), 20_000]


def pieces(places: Sequence[int]) -> Iterator[tuple[int, int, memoryview]]:
    """Bytes of each of ``SIZES`` at each of ``places``: the size, the place and the view."""
    for size in SIZES:
        data = memoryview(random.Random(size).randbytes(size + max(places)))
        for at in places:
            yield size, at, data[at : at + size]


def test_the_tables_of_messages_agree_with_zlib_at_every_alignment() -> None:
    for size, at, view in pieces(range(8)):
        assert zlib_tables(view) == crc32(view), (size, at)
        assert zlib_tables(view, 0xDEADBEEF) == crc32(view, 0xDEADBEEF), (size, at)


def test_the_kernel_of_messages_agrees_with_zlib_at_every_alignment() -> None:
    if zlib_kernel(b"") is None:
        pytest.skip("this processor has not the instructions; tables and zlib do the work")
    for size, at, view in pieces(range(8)):
        assert zlib_kernel(view) == crc32(view), (size, at)
        assert zlib_kernel(view, 0xDEADBEEF) == crc32(view, 0xDEADBEEF), (size, at)


@pytest.mark.parametrize("bits", [64, 256])
def test_the_crc_kernels_agree_with_the_library_at_every_alignment(bits: int) -> None:
    if kernel(b"", 0, bits) is None:
        pytest.skip("this processor has not the instructions; the other kernel or the library does the work")
    for size, at, view in pieces((*range(8), 9, 31, 33, 48, 63)):
        assert kernel(view, 0, bits) == crc32c(view), (size, at)
        assert kernel(view, 0xDEADBEEF, bits) == crc32c(view, 0xDEADBEEF), (size, at)


@pytest.mark.parametrize("portable", [False, True])
def test_the_crc_of_two_parts_follows_from_the_crc_of_each(portable: bool) -> None:
    """With KFUZZ_PORTABLE=1 other code multiplies; the variable is read once, so a process of its own is asked."""
    lengths = [0, 1, 2, 3, 7, 8, 61, 255, 256, 257, 4096, 65535, 65536, 65537, 1 << 24, (1 << 24) + 77]
    data = random.Random(1).randbytes(lengths[-1] + 5)
    asked, right = [], []
    for first in (0, 5):
        for length in lengths:
            whole = memoryview(data)[: first + length]
            asked.append((crc32c(whole[:first]), crc32c(whole[first:]), length))
            right.append(crc32c(whole))
    if not portable:
        assert [crc32c_joined(*one) for one in asked] == right
        return
    code = f"from kfuzz.wire.io.checksum import crc32c_joined; print([crc32c_joined(*one) for one in {asked}])"
    answer = run_program(sys.executable, "-c", code, variables={"KFUZZ_PORTABLE": "1"})
    assert answer.stdout.strip() == str(right)


def batch(offset: int, **fields: object) -> bytes:
    rows = [Record(offset + i, 1_000 + i, b"k%d" % i, None if i % 3 == 0 else b"v" * i) for i in range(5)]
    return records.encode_batch(RecordBatch(offset, offset + 4, rows, **fields))  # type: ignore[arg-type]


def test_the_walk_stops_only_where_someone_has_to_look() -> None:
    message = records.encode_batch(RecordBatch(25, 25, [Record(25, 1, b"k", b"v")], magic=1))
    odd = bytearray(batch(20))
    data = batch(0) + batch(5) + batch(10, compression="gzip") + batch(15) + bytes(odd) + message + b"tail"
    scan = Scan(data, with_rows=False)
    assert scan.next() == PAYLOAD
    assert (scan.batch_count, scan.record_count, scan.at) == (2, 10, len(batch(0) + batch(5)))
    assert scan.notes() == []
    assert scan.next() == END
    assert (scan.batch_count, scan.record_count, scan.at) == (6, 26, len(data) - 4)


def test_the_walk_stops_at_a_batch_that_has_a_finding_and_at_one_that_is_refused() -> None:
    noted = records.encode_batch(RecordBatch(-7, -7, [Record(-7, 1, b"k", b"v")]))
    scan = Scan(batch(0) + noted + bad(batch(0)) + batch(5), with_rows=False)
    assert scan.next() == BATCH
    assert [(note[0], note[2]) for note in scan.notes()] == [("base-offset-negative", len(batch(0)))]
    assert scan.next() == REFUSED
    assert [(note[0], note[2]) for note in scan.notes()] == [("crc-mismatch", len(batch(0) + noted) + 17)]
    assert scan.batch_count == 2


def test_a_skimming_reader_does_not_mind_a_records_length() -> None:
    payload = bytearray(batch(0)[61:])
    payload[0] += 2
    scan = Scan(batch(0, compression="gzip"), with_rows=True)
    assert scan.next() == PAYLOAD
    assert not scan.parse(bytes(payload))
    assert scan.parse(bytes(payload), skim=True)
    assert [note[0] for note in scan.notes(inside=True)] == ["record-length-mismatch"]
    assert len(scan.places()) == 5


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_record_keeps_what_it_was_read_from(kind: type) -> None:
    rows = [Record(0, 1, b"key", b"value", ((b"h", b"1"), (b"h", None), (b"", b"")))]
    data = kind(records.encode_batch(RecordBatch(0, 0, rows)))
    (read,) = records.decode(data)[0].records
    if kind is bytearray:
        data[:] = bytes(len(data))
    del data
    assert read == rows[0]
    assert read.headers is read.headers
    assert read.key is read.key


def test_a_set_field_replaces_one_that_was_not_read_yet() -> None:
    data = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"key", b"value", ((b"h", b"1"),))]))
    (read,) = records.decode(data)[0].records
    read.key, read.value, read.headers = None, b"other", ()
    assert (read.key, read.value, read.headers) == (None, b"other", ())


def test_records_that_were_never_looked_at_are_written_as_they_were_read() -> None:
    rng = random.Random(5)
    values = [None, b"", b"x" * 70]
    rows = [
        Record(
            i,
            rng.randrange(-(10**6), 10**6),
            rng.randbytes(rng.randrange(200)),
            rng.randbytes(rng.randrange(20_000)),
            tuple((b"h%d" % k, rng.choice(values)) for k in range(rng.randrange(4))),
        )
        for i in range(300)
    ]
    data = records.encode_batch(RecordBatch(0, 299, rows))
    assert records.encode(records.decode(data)) == data
    assert records.decode(data)[0].records == rows


def test_a_batch_is_read_without_those_after_it() -> None:
    walk = records.batches(batch(0) + bad(batch(5)))
    assert next(walk).base_offset == 0
    with pytest.raises(RecordsError, match="crc-mismatch"):
        next(walk)


@pytest.mark.parametrize("size", range(19))
def test_a_header_key_is_looked_at_to_its_last_byte_and_no_further(size: int) -> None:
    """The loop tests sixteen bytes at once. Bytes after the key must not count."""
    for byte in (0x00, 0x01, 0x41, 0x7F, 0x80, 0xC3, 0xFF):
        for at in range(size + 1):
            key = bytearray(b"k" * size)
            after = at == size
            if not after:
                key[at] = byte
            value = bytes([byte]) * 20 if after else b"v" * 20
            data = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, None, None, ((bytes(key), value),))]))
            found = {finding.code for finding in records.check(data).findings}
            expected = set()
            if not after and byte >= 0x80:
                expected.add("header-key-not-utf8")
            if not after and byte == 0:
                expected.add("header-key-null-character")
            assert found == expected, (key, byte)


# The results of every loop with a fast form for the same records; run twice, with and without KFUZZ_PORTABLE.
ALL_LOOPS = """
import hashlib, json, random
from kfuzz import records
from kfuzz.wire.io import checksum
from kfuzz.wire.columns import writer
rng = random.Random(7)
rows = [records.Record(i, i, rng.randbytes(rng.randrange(40)), rng.randbytes(rng.randrange(300))) for i in range(500)]
data = records.encode_batch(records.RecordBatch(0, 499, rows))
old = records.encode([records.RecordBatch(i, i, [row], magic=1) for i, row in enumerate(rows)])
table = records.columns(data)
print(json.dumps({
    "fast": [
        checksum.kernel(b"", 0, 256) is not None,
        checksum.zlib_kernel(b"") is not None,
        writer.WIDE,
    ],
    "narrow": checksum.kernel(b"") is not None,
    "results": [
        records.check(data).record_count,
        records.check(old).record_count,
        [len(records.check(changed).findings) for changed in (data[:-1] + b"!", old[:-1] + b"!")],
        hashlib.sha256(repr(table.to_pylist()).encode()).hexdigest(),
        hashlib.sha256(records.encode_columns(table)).hexdigest(),
    ],
}))
"""


def all_loops(**environment: str) -> dict[str, list[object]]:
    inherited = {name: value for name, value in os.environ.items() if name != "KFUZZ_PORTABLE"}
    done = run_program(sys.executable, "-c", ALL_LOOPS, env=inherited | environment)
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


def test_kfuzz_portable_turns_the_fast_loops_off_and_the_results_stay_the_same() -> None:
    usual, portable = all_loops(), all_loops(KFUZZ_PORTABLE="1")
    assert portable["fast"] == [False] * 3
    assert portable["narrow"] == usual["narrow"]
    assert portable["results"] == usual["results"]
    assert portable["results"][:2] == [500, 500]
    assert all_loops(KFUZZ_PORTABLE="0") == usual


FAR = 1 << 62
LOG_APPEND = 0x08
TIMESTAMP_CODES = {"timestamp-overflow", "max-timestamp-below-records"}


def test_runs_of_ordinary_records_are_read_as_the_general_loop_reads_them() -> None:
    rng = random.Random(5)
    refused = odd = 0
    for _ in range(12_000):
        payload, count, last = written_payload(rng)
        # The general loop reads each record of a batch whose timestamps may overflow.
        by_runs = parse_places(payload, 0, (0, 0, 0, 2, 0, LOG_APPEND, last, 0, 0, -1, -1, -1, count))
        one_by_one = parse_places(payload, 0, (0, 0, 0, 2, 0, 0, last, FAR, 2 * FAR - 1, -1, -1, -1, count))
        assert by_runs[:2] == one_by_one[:2], payload.hex()
        assert by_runs[2] == [note for note in one_by_one[2] if note[0] not in TIMESTAMP_CODES], payload.hex()
        refused += not by_runs[0]
        odd += bool(by_runs[2])
    assert 1_000 < refused < 5_000
    assert odd > 3_000


def test_a_verdict_without_rows_says_what_a_reading_with_rows_says() -> None:
    rng = random.Random(6)
    for _ in range(3_000):
        payload, count, last = written_payload(rng)
        fields = struct.pack(">hiqqqhii", 0, last, 0, rng.choice((0, 70, 1 << 40)), -1, -1, -1, count)
        body = fields + payload
        data = struct.pack(">qiibI", 0, len(body) + 9, 0, 2, crc32c(body)) + body
        reading, verdict = records.read(data), records.check(data)
        assert (verdict.findings, verdict.record_count) == (reading.findings, reading.record_count), data.hex()


def test_a_timestamp_above_the_headers_is_found_in_a_run() -> None:
    rows = [Record(i, 100 * i, None, b"v") for i in range(9)]
    for highest in (0, 350, 799, 800):
        data = records.encode_batch(RecordBatch(0, 8, rows, base_timestamp=0, max_timestamp=highest))
        found = [finding.path for finding in records.check(data).findings]
        assert found == ([] if highest == 800 else ["batch[0].records[8].max_timestamp"])


def test_nothing_after_the_last_byte_is_read() -> None:
    assert printed(Path(__file__).with_name("guarded_records.py")) == "15000 True\n"
