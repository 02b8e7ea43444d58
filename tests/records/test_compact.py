"""The records that one pass of the log cleaner leaves, with Apache Kafka's own filterTo as the judge."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from conftest import counts
from kafka_tools import ask, readable, same
from made_segments import bad
from testee_driver import RunningTestee, running

from kfuzz import records
from kfuzz.errors import EncodeError, RecordsError, UsageError
from kfuzz.kafka import KAFKA_3, LATEST, Codec
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.engine import seal
from kfuzz.records.compaction import BatchRetention, Compacted, LegacyRewrite, compact
from kfuzz.records.model import Record, RecordBatch

NOW_MS = 1_700_000_000_000


def batch_of(*values: bytes | None, first: int = 10, **fields: Any) -> RecordBatch:
    """A batch of magic 2 with the keys ``k0``, ``k1``, … at offsets from ``first``, one millisecond apart."""
    kept = [Record(first + i, NOW_MS + i, b"k%d" % i, value, ((b"h", b"x"),)) for i, value in enumerate(values)]
    return RecordBatch(first, first + len(values) - 1, kept, **fields)


def cleaned(data: bytes, *drop: int, **options: Any) -> Compacted:
    """``data`` compacted at NOW_MS without the records at the offsets ``drop``."""
    return compact(data, lambda batch, record: record.offset not in drop, now_ms=NOW_MS, **options)


def only(data: bytes) -> RecordBatch:
    (batch,) = records.decode(data)
    return batch


@pytest.mark.parametrize("codec", records.CODECS)
def test_a_batch_keeps_its_ends_when_its_first_and_last_record_go(codec: Codec) -> None:
    batch = batch_of(
        b"a", b"b", b"c", b"d", compression=codec, producer_id=7, producer_epoch=2, base_sequence=100,
        transactional=True, partition_leader_epoch=5,
    )  # fmt: skip
    out = cleaned(records.encode([batch]), 10, 13)
    kept = only(out.data)
    assert [record.offset for record in kept.records] == [11, 12]
    assert (kept.base_offset, kept.last_offset, kept.base_sequence) == (10, 13, 100)
    assert (kept.producer_id, kept.producer_epoch, kept.transactional, kept.partition_leader_epoch) == (7, 2, True, 5)
    assert kept.compression == codec
    # Both are those of what is retained.
    assert (kept.base_timestamp, kept.max_timestamp) == (NOW_MS + 1, NOW_MS + 2)
    assert (out.records_read, out.records_retained, out.max_offset) == (4, 2, 12)
    assert (out.max_timestamp, out.offset_of_max_timestamp) == (NOW_MS + 2, 13)


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte() -> None:
    plain = records.encode([batch_of(b"a", b"b", compression="zstd"), batch_of(b"c", first=20)])
    assert cleaned(plain).data == plain
    # An overlong varint and a max timestamp of another time would not survive being written again.
    header = records.encode([batch_of(b"a", max_timestamp=5)])[:61]
    odd = seal(header + b"\x1c\x00\x80\x00\x00\x04k0\x02a\x02\x02h\x02x", True, True)
    assert [finding.code for finding in records.read(odd).findings] == [
        "max-timestamp-below-records", "varint-overlong",
    ]  # fmt: skip
    assert cleaned(odd).data == odd


def test_an_emptied_batch_goes_or_leaves_its_header() -> None:
    batch = batch_of(b"a", b"b", compression="gzip", producer_id=7, producer_epoch=2, base_sequence=5, delete_horizon=9)
    data = records.encode([batch])
    assert cleaned(data, 10, 11).data == b""
    out = cleaned(data, 10, 11, batch_retention=lambda batch: "retain-empty")
    kept = only(out.data)
    assert len(out.data) == 61
    assert (kept.base_offset, kept.last_offset, kept.records) == (10, 11, [])
    assert (kept.producer_id, kept.producer_epoch, kept.base_sequence) == (7, 2, 5)
    assert (kept.compression, kept.delete_horizon, kept.base_timestamp) == ("none", None, -1)
    assert kept.max_timestamp == NOW_MS + 1
    assert (out.records_retained, out.max_offset, out.max_timestamp) == (0, 11, NOW_MS + 1)


def test_a_deleted_batch_is_not_looked_into() -> None:
    data = records.encode([batch_of(b"a"), batch_of(b"b", first=20)])
    seen = []

    def retain(batch: RecordBatch, record: Record) -> bool:
        seen.append(record.offset)
        return True

    out = compact(
        data, retain, now_ms=0, batch_retention=lambda batch: "delete" if batch.base_offset == 10 else "delete-empty"
    )
    assert seen == [20]
    assert [batch.base_offset for batch in records.decode(out.data)] == [20]
    assert (out.bytes_read, out.records_read) == (len(data), 1)


def test_a_tombstone_gets_a_delete_horizon_on_the_first_pass_and_keeps_it_on_the_next() -> None:
    first = cleaned(records.encode([batch_of(b"a", None)]), delete_retention_ms=1000)
    kept = only(first.data)
    assert (kept.delete_horizon, kept.base_timestamp) == (NOW_MS + 1000, NOW_MS + 1000)
    assert [record.timestamp for record in kept.records] == [NOW_MS, NOW_MS + 1]
    assert kept.max_timestamp == NOW_MS + 1
    later = compact(first.data, lambda batch, record: True, now_ms=NOW_MS + 500, delete_retention_ms=1000)
    assert later.data == first.data


def test_a_delete_horizon_stays_when_the_batch_is_written_again() -> None:
    first = cleaned(records.encode([batch_of(b"a", None, b"c")]), delete_retention_ms=1000)
    later = compact(first.data, lambda batch, record: record.offset != 10, now_ms=NOW_MS + 500)
    assert only(later.data).delete_horizon == NOW_MS + 1000
    assert [record.timestamp for record in only(later.data).records] == [NOW_MS + 1, NOW_MS + 2]


@pytest.mark.parametrize(("now_ms", "horizon"), [(-1000, 0), (-999, 1), (-1001, None)])
def test_a_delete_horizon_is_0_or_more(now_ms: int, horizon: int | None) -> None:
    made = compact(
        records.encode([batch_of(b"a", None)]), lambda batch, record: True, now_ms=now_ms, delete_retention_ms=1000
    )
    kept = only(made.data)
    assert (kept.delete_horizon, kept.base_timestamp) == (horizon, NOW_MS if horizon is None else horizon)
    assert [record.timestamp for record in kept.records] == [NOW_MS, NOW_MS + 1]
    # And as before when the batch is written once more.
    later = compact(made.data, lambda batch, record: record.offset != 10, now_ms=-1000, delete_retention_ms=1000)
    assert only(later.data).delete_horizon == (0 if horizon is None else horizon)


def test_a_tombstone_that_goes_leaves_no_delete_horizon() -> None:
    assert only(cleaned(records.encode([batch_of(b"a", None)]), 11).data).delete_horizon is None


def test_the_marker_of_an_empty_transaction_gets_a_delete_horizon() -> None:
    marker = RecordBatch(
        3, 3, [Record(3, NOW_MS, bytes.fromhex("00000001"), bytes(6))], control=True, transactional=True,
        producer_id=7, producer_epoch=0,
    )  # fmt: skip
    data = records.encode([marker])
    assert cleaned(data).data == data
    kept = only(cleaned(data, delete_retention_ms=60, marks_empty_transaction=lambda batch: batch.control).data)
    assert (kept.delete_horizon, kept.control, kept.transactional) == (NOW_MS + 60, True, True)
    assert kept.records[0].timestamp == NOW_MS


def test_log_append_time_stays() -> None:
    batch = batch_of(b"a", b"b", timestamp_type="log-append", max_timestamp=NOW_MS + 77)
    kept = only(cleaned(records.encode([batch]), 10).data)
    assert (kept.timestamp_type, kept.max_timestamp) == ("log-append", NOW_MS + 77)
    assert kept.records[0].timestamp == NOW_MS + 77


def legacy_batch(magic: int, codec: Codec) -> RecordBatch:
    stamp = NOW_MS if magic else None
    kept = [Record(offset, stamp, b"k", b"v%d" % offset) for offset in (5, 6, 8)]
    return RecordBatch(5, 8, kept, magic=magic, compression=codec, timestamp_type="create" if magic else "none")


@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_4_writes_older_formats_as_magic_2(magic: int) -> None:
    data = records.encode([legacy_batch(magic, "lz4")])
    whole, part = only(cleaned(data).data), only(cleaned(data, 5).data)
    assert (whole.magic, whole.compression, whole.base_offset, whole.last_offset) == (2, "lz4", 5, 8)
    assert (part.base_offset, [record.offset for record in part.records]) == (6, [6, 8])
    assert [record.timestamp for record in part.records] == [NOW_MS if magic else -1] * 2


@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_3_kept_the_magic_and_wrapped_what_was_left(magic: int) -> None:
    data = records.encode([legacy_batch(magic, "lz4")])
    assert cleaned(data, legacy="keep").data == data
    part = only(cleaned(data, 5, legacy="keep").data)
    assert (part.magic, part.compression, [record.offset for record in part.records]) == (magic, "lz4", [6, 8])


def test_an_emptied_batch_of_an_older_magic_cannot_leave_a_header() -> None:
    data = records.encode([legacy_batch(1, "gzip")])
    with pytest.raises(EncodeError, match="no empty batches"):
        cleaned(data, 5, 6, 8, batch_retention=lambda batch: "retain-empty")


def test_a_bounded_buffer_ends_the_pass_after_the_batch_that_outgrows_it() -> None:
    data = records.encode([batch_of(b"a" * 50, first=10 * i) for i in range(6)])
    size = len(data) // 6
    whole, parts, at = cleaned(data).data, [], 0
    while at < len(data):
        part = cleaned(data[at:], buffer_bytes=size)
        assert len(part.data) == part.bytes_read == min(2 * size, len(data) - at)
        parts.append(part.data)
        at += part.bytes_read
    assert b"".join(parts) == whole


def test_a_header_key_that_is_no_text_goes_through_javas_when_its_batch_is_written_again() -> None:
    batch = RecordBatch(0, 1, [Record(0, 1, None, b"v", ((b"a\xff\xed\xa0\x80z", b"x"),)), Record(1, 1, None, b"w")])
    data = records.encode([batch])
    assert cleaned(data).data == data
    assert only(cleaned(data, 1).data).records[0].headers[0][0] == "a\ufffd\ufffdz".encode()


def test_a_refused_batch_is_named_by_its_place_in_the_whole() -> None:
    good = records.encode([batch_of(b"a")])
    with pytest.raises(RecordsError) as caught:
        cleaned(good + bad(records.encode([batch_of(b"b", first=20)])))
    assert (caught.value.finding.code, caught.value.finding.path) == ("crc-mismatch", "batch[1].crc")
    assert caught.value.finding.at == len(good) + 17


def test_a_fault_in_a_payload_of_a_later_batch_is_found_where_a_reader_finds_it() -> None:
    good, bad = records.encode([batch_of(b"a")]), records.encode([batch_of(b"b", first=20, compression="gzip")])
    # One record, whose header says two.
    two = bad[:57] + (2).to_bytes(4, "big") + bad[61:]
    data = good + seal(two, length=False, crc=True)
    with pytest.raises(RecordsError) as caught:
        cleaned(data)
    fault = records.read(data).fatal
    assert fault is not None
    assert fault.path.startswith("batch[1].payload")
    assert caught.value.finding == fault


def test_a_partial_tail_is_dropped_and_not_read() -> None:
    good = records.encode([batch_of(b"a")])
    out = cleaned(good + good[:-1])
    assert (out.data, out.bytes_read) == (good, len(good))


@pytest.mark.parametrize(
    "options", [{"legacy": "drop"}, {"buffer_bytes": -1}, {"batch_retention": lambda batch: "retain"}]
)
def test_a_wrong_request_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        cleaned(records.encode([batch_of(b"a")]), **options)


def test_a_second_pass_changes_nothing_more() -> None:
    for data, _ in readable(600, seed=8):
        try:
            once = compact(data, lambda batch, record: record.offset % 2 == 0, now_ms=NOW_MS)
            again = compact(once.data, lambda batch, record: True, now_ms=NOW_MS + 1)
        except EncodeError:
            continue
        assert again.data == once.data


# ------------------------------------------------------------------------------------------------- Apache Kafka


class Choice:
    """The orders to a cleaner for a log, drawn by dice: as a request to Kafka, and as kfuzz's arguments."""

    def __init__(self, reading: records.Reading, dice: Dice) -> None:
        kinds: dict[bool, tuple[BatchRetention, ...]] = {
            True: ("delete", "retain-empty", "retain-empty", "delete-empty", "delete-empty"),
            False: ("delete", "delete-empty", "delete-empty"),
        }
        self.drop = {record.offset for batch in reading.batches for record in batch.records if dice.chance(0.4)}
        self.drop_null_values = dice.chance(0.2)
        self.key_prefix = dice.pick((None, b"k", b"\0"))
        # A batch is told apart by its last offset, as Kafka's filter is shown no more than the batch.
        self.retention = {batch.last_offset: dice.pick(kinds[batch.magic == 2]) for batch in reading.batches}
        self.empty_transactions = {batch.last_offset for batch in reading.batches if dice.chance(0.1)}
        plain = all(batch.compression == "none" for batch in reading.batches)
        self.buffer_bytes = 100 if plain and dice.chance(0.3) else None

    def request(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "drop_offsets": [str(offset) for offset in sorted(self.drop)],
            "drop_null_values": self.drop_null_values,
            "drop_key_prefix": None if self.key_prefix is None else self.key_prefix.hex(),
            "batch_retention": {str(offset): kind for offset, kind in self.retention.items()},
            "empty_transactions": [str(offset) for offset in sorted(self.empty_transactions)],
            "now": str(NOW_MS),
            "delete_retention": "1000",
        }
        return fields if self.buffer_bytes is None else fields | {"buffer_bytes": self.buffer_bytes}

    def retain(self, batch: RecordBatch, record: Record) -> bool:
        if record.offset in self.drop or (self.drop_null_values and record.value is None):
            return False
        return self.key_prefix is None or record.key is None or not record.key.startswith(self.key_prefix)

    def compact(self, data: bytes, legacy: LegacyRewrite) -> Compacted | None:
        """The batches that are left; None where the cleaner refuses."""
        try:
            return compact(
                data,
                self.retain,
                now_ms=NOW_MS,
                delete_retention_ms=1000,
                batch_retention=lambda batch: self.retention[batch.last_offset],
                marks_empty_transaction=lambda batch: batch.last_offset in self.empty_transactions,
                legacy=legacy,
                buffer_bytes=self.buffer_bytes,
            )
        except EncodeError:
            return None


@pytest.mark.java
@pytest.mark.parametrize(
    ("version", "legacy"), [(LATEST, "upgrade"), pytest.param(KAFKA_3, "keep", marks=pytest.mark.full)]
)
@pytest.mark.parametrize("count", counts(200, 3000))
def test_kafkas_cleaner_leaves_the_same(version: str, legacy: LegacyRewrite, count: int) -> None:
    dice = Dice(11)
    seen: Counter[str] = Counter()
    with running("kafka-clients", version) as kafka:
        for data, reading in readable(count, seed=6):
            choice = Choice(reading, dice)
            answer = ask(kafka, "filter-records", data, **choice.request())
            if answer is None:
                continue
            mine = choice.compact(data, legacy)
            assert answer["outcome"] == ("rejected" if mine is None else "accepted"), (data.hex(), answer)
            if mine is None:
                seen["refused"] += 1
                continue
            theirs = bytes.fromhex(answer["hex"])
            assert same(mine.data, theirs), (data.hex(), choice.request(), mine.data.hex(), answer["hex"])
            assert (mine.bytes_read, mine.records_read, mine.records_retained) == (
                answer["bytes_read"], answer["records_read"], answer["records_retained"],
            )  # fmt: skip
            for name in ("max_offset", "max_timestamp", "offset_of_max_timestamp"):
                assert getattr(mine, name) == int(answer[name])
            seen["nothing" if not theirs else "copied" if data.startswith(theirs) else "changed"] += 1
    assert min(seen[kind] for kind in ("refused", "nothing", "copied", "changed")) > count // 60, seen


@pytest.mark.java
def test_kafkas_cleaner_takes_a_horizon_of_0_and_none_below(kafka: RunningTestee) -> None:
    data = records.encode([batch_of(b"a", None)])
    for now_ms in (-1001, -1000, -999):
        request = {"now": str(now_ms), "delete_retention": "1000"}
        theirs = bytes.fromhex(kafka.ask(operation="filter-records", hex=data.hex(), **request)["hex"])
        mine = compact(data, lambda batch, record: True, now_ms=now_ms, delete_retention_ms=1000)
        assert mine.data == theirs
        # Written once more without its first record, a batch keeps the horizon that it has.
        request["drop_offsets"] = ["10"]
        again = bytes.fromhex(kafka.ask(operation="filter-records", hex=theirs.hex(), **request)["hex"])
        later = compact(theirs, lambda batch, record: record.offset != 10, now_ms=now_ms, delete_retention_ms=1000)
        assert later.data == again
