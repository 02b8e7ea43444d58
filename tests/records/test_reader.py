"""The reader's promises whatever the bytes: no exception, one loop for both paths, places that can be trusted."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import pytest
from conftest import counts
from made_segments import bad, batch

from kfuzz import records
from kfuzz.errors import RecordsError, UsageError
from kfuzz.mutate import Mutator
from kfuzz.mutate.engine import seal
from kfuzz.records import Codec, Finding, Record, RecordBatch
from kfuzz.records.codecs import compress
from kfuzz.vectors import load_suite
from kfuzz.wire.io.checksum import crc32
from kfuzz.wire.io.layout import HEADER_AT
from kfuzz.wire.records.message_set import encode_message
from kfuzz.wire.walk.scan import EachRecord, Scan

BATCH = RecordBatch(
    100, 102, [Record(100 + i, 1_000 + i, b"key", None if i == 1 else b"value", ((b"h", None),)) for i in range(3)]
)
DATA = records.encode_batch(BATCH)


def test_every_cut_of_a_batch_is_a_partial_tail_and_no_error() -> None:
    for n in range(1, len(DATA)):
        reading = records.read(DATA + DATA[:n])
        assert reading.fatal is None
        assert reading.partial_tail
        assert reading.consumed == len(DATA)
        assert reading.batch_count == 1


def test_an_empty_buffer_is_an_empty_log() -> None:
    reading = records.read(b"")
    assert (reading.batches, reading.consumed, reading.partial_tail, reading.findings) == ([], 0, False, [])


def test_no_single_bit_flip_raises_and_every_one_under_the_crc_is_found() -> None:
    for at in range(len(DATA)):
        for bit in range(8):
            reading = records.read(bad(DATA, at, 1 << bit))
            if at >= 17:
                assert reading.fatal is not None
                assert reading.fatal.code == "crc-mismatch"


def test_the_verdict_path_says_what_the_object_path_says() -> None:
    for data in islice(Mutator(seed=11), 3_000):
        read, checked = records.read(data), records.check(data)
        # A verdict has no place for batches.
        assert type(checked) is records.Verdict
        assert checked.findings == read.findings
        assert (checked.batch_count, checked.record_count) == (read.batch_count, read.record_count)
        assert (checked.consumed, checked.partial_tail) == (read.consumed, read.partial_tail)
        assert read.batch_count == len(read.batches)
        assert read.record_count == sum(len(batch.records) for batch in read.batches)


def test_strict_refuses_whatever_has_a_finding_and_kafka_only_what_is_fatal() -> None:
    deviations = 0
    for data in islice(Mutator(seed=12), 3_000):
        kafka, strict = records.check(data), records.check(data, profile="strict")
        assert [f.code for f in kafka.findings] == [f.code for f in strict.findings]
        assert (strict.fatal is None) == (not kafka.findings)
        deviations += kafka.fatal is None and strict.fatal is not None
    assert deviations > 100


def test_batches_before_a_bad_one_are_kept() -> None:
    reading = records.read(DATA + bad(DATA))
    assert reading.consumed == len(DATA)
    assert [batch.base_offset for batch in reading.batches] == [100]
    assert reading.fatal is not None
    assert reading.fatal.path == "batch[1].crc"
    assert reading.fatal.at == len(DATA) + 17


def test_decode_raises_the_first_fatal_finding() -> None:
    with pytest.raises(RecordsError, match=r"batch\[0\]\.crc at byte 17: the stored CRC is 0x") as caught:
        records.decode(bad(DATA))
    assert caught.value.finding.code == "crc-mismatch"


def test_a_finding_inside_a_compressed_batch_is_placed_in_its_payload() -> None:
    batch = RecordBatch(0, 0, [Record(0, 1, b"key", None, ((b"a\xff", None),))], compression="lz4")
    (finding,) = records.read(records.encode_batch(batch)).findings
    assert finding.path == "batch[0].payload.records[0].headers[0].key"
    # length, attributes, timestamp and offset deltas, key and its length, value length, header count, key length
    assert finding.at == 1 + 1 + 1 + 1 + 4 + 1 + 1 + 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"profile": "lax"}, "profile 'lax' does not exist; take one of kafka, strict"),
        ({"role": "judge"}, "role 'judge' does not exist; take one of consumer"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(arguments: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        records.read(b"", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_a_limit_outside_what_places_can_hold_is_refused(limit: int) -> None:
    with pytest.raises(UsageError, match="decompressed_bytes"):
        records.Limits(decompressed_bytes=limit)


def test_any_contiguous_buffer_can_be_read() -> None:
    for data in (DATA, bytearray(DATA), memoryview(DATA), memoryview(b"x" + DATA)[1:]):
        assert records.decode(data) == records.decode(DATA)


def test_importing_kfuzz_loads_nothing_heavy() -> None:
    script = "import sys, kfuzz, kfuzz.cli.main; print(*sorted(m.split('.')[0] for m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "pyarrow", "pyspark", "atheris", "jinja2", "jsonschema", "rich", "zstandard"} & set(loaded)


# ------------------------------------------------------------------------------------------------- record by record


def outcome(read: Callable[[bytes], Iterable[Record]], data: bytes) -> list[Record] | Finding:
    try:
        return list(read(data))
    except RecordsError as error:
        return error.finding


@pytest.mark.parametrize("bytes_max", counts(1 << 13, 1 << 20))
def test_iterate_gives_what_decode_gives_over_the_suite(bytes_max: int) -> None:
    def decoded(data: bytes) -> list[Record]:
        return [record for batch in records.decode(data) for record in batch.records]

    for vector in load_suite():
        if len(vector.data) <= bytes_max:
            assert outcome(records.iterate, vector.data) == outcome(decoded, vector.data), vector.id


@pytest.mark.parametrize("kept_every", [1, 2, 3, 7])
@pytest.mark.parametrize("reads", [True, False], ids=["read", "unread"])
def test_a_record_and_its_parts_stay_as_they_are_while_a_loop_continues(kept_every: int, reads: bool) -> None:
    """`iterate` fills only those records again that nobody holds any more, and no bytes or tuple."""
    data = records.encode(
        [
            RecordBatch(
                at, at + 39, [Record(at + i, i, b"key-%d" % i, b"v" * i, ((b"h", b"%d" % i),)) for i in range(40)]
            )
            for at in (0, 40)
        ]
    )
    kept, parts = [], []
    for number, record in enumerate(records.iterate(data)):
        if reads or number % 5 == 0:
            parts.append((record.key, record.value, record.headers))
        if number % kept_every == 0:
            kept.append(record)
    whole = [record for batch in records.decode(data) for record in batch.records]
    assert kept == whole[::kept_every]
    assert parts == [(one.key, one.value, one.headers) for one in whole[:: 1 if reads else 5]]


def test_code_that_a_dropped_record_runs_may_use_the_iterator() -> None:
    class Nested:
        def __del__(self) -> None:
            seen.append(next(found).offset)

    data = records.encode([RecordBatch(0, 39, [Record(i, i, None, None) for i in range(40)])])
    seen: list[int] = []
    found = records.iterate(data)
    for record in found:
        seen.append(record.offset)
        if record.offset % 10 == 0:
            record.key = Nested()
    assert sorted(seen) == list(range(40))


def test_iterate_gives_the_records_before_the_batch_that_is_refused() -> None:
    good = records.encode([RecordBatch(0, 1, [Record(0, 1, b"k", b"v"), Record(1, 1, None, None)])])
    found = records.iterate(good + good[:-1] + bytes([good[-1] ^ 1]))
    assert [record.offset for record in islice(found, 2)] == [0, 1]
    with pytest.raises(RecordsError, match="crc-mismatch"):
        next(found)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_outlive_the_iterator_and_changes_of_a_mutable_buffer(kind: type) -> None:
    rows = [Record(i, i, b"key%d" % i, b"value%d" % i, ((b"h", b"%d" % i),)) for i in range(5)]
    mutable = bytearray(records.encode([RecordBatch(0, 4, rows), RecordBatch(0, 4, rows, compression="gzip")]))
    data = kind(mutable) if kind is not bytearray else mutable
    kept = list(records.iterate(data))
    mutable[:] = bytes(len(mutable))
    assert kept == rows + rows


HEADER_COUNTS: Final = (0, 0, 0, 0, 0, 1, 2, 2, 3)


def drawn_records(count: int) -> list[Record]:
    rng = random.Random(count)

    def some(most: int) -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.randint(0, most))

    return [
        Record(i, i, some(70), some(700), tuple((some(90) or b"", some(90)) for _ in range(rng.choice(HEADER_COUNTS))))
        for i in range(count)
    ]


def encoded(rows: list[Record]) -> bytes:
    """The rows, 300 to a batch, from the first offset of each."""
    parts = [rows[at : at + 300] for at in range(0, len(rows), 300)]
    return records.encode([RecordBatch(part[0].offset, part[-1].offset, part) for part in parts])


def test_records_that_a_loop_keeps_stay_as_they_are() -> None:
    rows = drawn_records(1500)
    kept = []
    for i, record in enumerate(records.iterate(encoded(rows))):
        assert (record.key, record.value, record.headers) == (rows[i].key, rows[i].value, rows[i].headers)
        if i % 3 == 0:
            kept.append(record)
    assert kept == rows[::3]


@pytest.mark.parametrize("read", [True, False])
def test_a_record_is_written_to_by_name_and_nothing_is_taken_away(read: bool) -> None:
    record = Record(0, 1, b"k", b"v", ((b"h", None),))
    if read:
        [record] = records.decode(encoded([record]))[0].records
    record.key = b"other"
    setattr(record, "".join(["val", "ue"]), None)
    record.headers = ()
    record.offset = 7
    assert (record.key, record.value, record.headers, record.offset) == (b"other", None, (), 7)
    assert record == Record(7, 1, b"other", None)
    assert Record(7, 1, b"other", None) == record
    for name in ("key", "value", "headers", "offset"):
        with pytest.raises(AttributeError, match=name):
            delattr(record, name)
        with pytest.raises((AttributeError, TypeError, NotImplementedError)):
            getattr(type(record), name).__delete__(record)
    with pytest.raises(AttributeError, match="colour"):
        record.colour = 1  # type: ignore[attr-defined]
    assert (record.key, record.value, record.headers, record.offset) == (b"other", None, (), 7)
    assert pickle.loads(pickle.dumps(record)) == record
    assert repr(record) == "Record(offset=7, timestamp=1, key=b'other', value=None, headers=(), attributes=0)"


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("field", ["key", "value", "headers"])
@pytest.mark.parametrize("kept_at", [0, 9, 38])
def test_whatever_runs_may_take_the_iterator_into_a_larger_batch(codec: Codec, field: str, kept_at: int) -> None:
    """Code that runs when an old value ends uses the iterator itself. The rows of the batch before are then gone."""

    class Greedy:
        def __del__(self) -> None:
            # Far into the next batch, or to the end of all.
            taken.extend((record.offset, record.key, record.value) for record in islice(found, 60))

    taken: list[tuple[int, bytes | None, bytes | None]] = []
    seen: list[tuple[int, bytes | None, bytes | None]] = []
    rows = [Record(i, i, b"k%d" % i, b"v" * (30 if i < 40 else 5000), ((b"h", b"%d" % i),)) for i in range(400)]
    batches = [RecordBatch(0, 39, rows[:40], compression=codec), RecordBatch(40, 399, rows[40:], compression=codec)]
    found = records.iterate(records.encode(batches))
    for i, record in enumerate(found):
        assert record.headers == rows[record.offset].headers
        seen.append((record.offset, record.key, record.value))
        if i == kept_at:
            setattr(record, field, Greedy())
    assert taken
    assert sorted(seen + taken) == [(row.offset, row.key, row.value) for row in rows]


def test_records_cannot_be_inherited_from() -> None:
    for kind in (Record, type(records.decode(DATA)[0].records[0])):
        with pytest.raises(TypeError, match="not an acceptable base type"):
            type("Mine", (kind,), {})
        assert issubclass(kind, Record)


def test_a_scan_that_has_gone_on_gives_no_records_of_the_batch_before() -> None:
    data = records.encode([RecordBatch(i, i, [Record(i, 1, b"k", b"v")]) for i in range(2)])
    scan = Scan(data, with_rows=True)
    scan.next()
    before = EachRecord(scan, bool)
    scan.next()
    with pytest.raises(RuntimeError, match="moved on"):
        next(before)


@pytest.mark.parametrize("role", ["consumer", "log"])
def test_a_topic_is_refused_where_the_role_does_not_look_at_it(role: records.Role) -> None:
    for call in (records.read, records.check, records.decode):
        with pytest.raises(UsageError, match=f"role '{role}' does not use a topic"):
            call(DATA, role=role, topic=records.Topic(compacted=True))


LARGE = records.encode_batch(RecordBatch(0, 0, [Record(0, 1_000, None, bytes(5_000))]))
WRAPPER = records.encode_batch(
    RecordBatch(
        9,
        11,
        [Record(9 + i, 1_000, None, b"v") for i in range(3)],
        magic=1,
        timestamp_type="create",
        compression="gzip",
    )
)


def test_a_wrapper_beyond_the_limit_is_not_said_to_begin_nowhere() -> None:
    """It may well begin where it should; a bound of kfuzz's own says nothing about Kafka."""
    found = [finding.code for finding in records.check(LARGE + WRAPPER, role="log").findings]
    assert found == []
    limits = records.Limits(decompressed_bytes=20)
    limited = [finding.code for finding in records.check(LARGE + WRAPPER, role="log", limits=limits).findings]
    assert limited
    assert "wrapper-start-unknown" not in limited


def test_a_wrappers_log_append_time_is_that_of_the_messages_of_magic_1_in_it() -> None:
    own, other = encode_message(1, 0, 0, 111, b"k", b"v"), bytearray(encode_message(1, 1, 0, 222, b"k", b"v"))
    # Any magic but 0 has the layout of magic 1, to Kafka as well.
    other[16] = 9
    other[12:16] = crc32(other[16:]).to_bytes(4, "big")
    inner = compress("gzip", own + bytes(other), magic=1)
    reading = records.read(encode_message(1, 7, 0x08 | 1, 999, None, inner))
    assert [finding.code for finding in reading.findings] == ["inner-magic-mismatch"]
    [batch] = reading.batches
    assert (batch.timestamp_type, batch.max_timestamp) == ("log-append", 999)
    assert [(record.offset, record.timestamp) for record in batch.records] == [(6, 999), (7, 222)]


def test_a_wrong_crc_of_a_message_in_a_segment_is_at_its_place() -> None:
    message = records.encode_batch(RecordBatch(9, 9, [Record(9, 1_000, None, b"v")], magic=1, timestamp_type="create"))
    fatal = records.check(LARGE + message[:-1] + b"w", role="log").fatal
    assert fatal is not None
    assert (fatal.code, fatal.path, fatal.at) == ("crc-mismatch", "batch[1].crc", len(LARGE) + 12)


def test_a_verdict_keeps_as_many_findings_as_the_caller_wants_and_the_first_fatal_one() -> None:
    odd = seal(bad(batch(0), HEADER_AT["attributes"], 0x80), length=False, crc=True)
    broken = bad(odd)
    every = records.check(odd * 9 + broken)
    assert len(every.findings) > 9
    for most in (0, 1, 4, 10_000):
        some = records.check(odd * 9 + broken, findings_max=most)
        kept = every.findings[:most]
        assert some.findings == [*kept, *(one for one in [every.fatal] if one not in kept)]
        assert some.more_findings == len(every.findings) - len(some.findings)
        assert (some.fatal, some.batch_count) == (every.fatal, 9)
