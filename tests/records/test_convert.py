"""Conversion between the formats: contents, what is reported as lost, and Apache Kafka's own as the judge."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from conftest import counts
from kafka_tools import ask, readable, same
from testee_driver import RunningTestee, running

from kfuzz import records
from kfuzz.errors import EncodeError, RecordsError, UsageError
from kfuzz.kafka import KAFKA_3, Codec, TimestampType
from kfuzz.mutate import Mutator
from kfuzz.mutate.dice import Dice
from kfuzz.records.conversion import LOSSES, Converted, Loss, LossKind, convert, convert_appended
from kfuzz.records.model import Record, RecordBatch
from kfuzz.wire.records.message_set import encode_message

NOW_MS = 1_700_000_000_000
LEGACY_CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4")
LEAST_INT64 = -(1 << 63)


def batch_of(*offsets: int, magic: int = 2, headers: Any = (), **fields: Any) -> RecordBatch:
    """A batch whose record at offset n has timestamp NOW_MS + n and value ``vn``."""
    stamp = NOW_MS if magic else None
    kept = [
        Record(offset, None if stamp is None else stamp + offset, b"k", b"v%d" % offset, headers) for offset in offsets
    ]
    fields.setdefault("timestamp_type", "create" if magic else "none")
    return RecordBatch(offsets[0], offsets[-1], kept, magic=magic, **fields)


def contents(batches: list[RecordBatch]) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    return [(r.offset, r.timestamp, r.key, r.value) for batch in batches for r in batch.records]


def kinds(converted: Converted) -> list[str]:
    return [loss.kind for loss in converted.losses]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_down_keeps_offsets_keys_values_and_what_timestamps_there_can_be(magic: int, codec: Codec) -> None:
    batch = batch_of(5, 6, 9, compression=codec)
    down = convert([batch], magic)
    assert {made.magic for made in down.batches} == {magic}
    assert {made.compression for made in down.batches} == {codec}
    # Without a codec each message stands alone; with one they share a wrapper.
    assert len(down.batches) == (3 if codec == "none" else 1)
    assert contents(down.batches) == [
        (offset, None if magic == 0 else stamp, key, value) for offset, stamp, key, value in contents([batch])
    ]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_up_keeps_everything_under_its_own_offsets(magic: int, codec: Codec) -> None:
    old = batch_of(5, 6, 9, magic=magic, compression=codec) if codec != "none" else batch_of(5, magic=magic)
    up = convert(records.encode([old]), 2)
    (made,) = up.batches
    assert (made.magic, made.compression, made.timestamp_type) == (2, codec, "create")
    assert (made.base_offset, made.last_offset) == (old.base_offset, old.last_offset)
    assert contents([made]) == [
        (offset, -1 if stamp is None else stamp, key, value) for offset, stamp, key, value in contents([old])
    ]
    assert up.losses == ()


def test_log_append_time_goes_with_the_batch() -> None:
    batch = batch_of(5, 6, compression="gzip", timestamp_type="log-append", max_timestamp=NOW_MS + 77)
    down = convert([batch], 1)
    (made,) = down.batches
    assert (made.timestamp_type, {record.timestamp for record in made.records}) == ("log-append", {NOW_MS + 77})
    (again,) = convert(down.data, 2).batches
    assert (again.timestamp_type, again.max_timestamp) == ("log-append", NOW_MS + 77)


def test_batches_of_the_format_and_below_it_are_copied_byte_for_byte() -> None:
    mixed = records.encode([batch_of(1, magic=0), batch_of(2, 3, magic=1, compression="gzip"), batch_of(4, 5)])
    legacy = len(records.encode([batch_of(1, magic=0), batch_of(2, 3, magic=1, compression="gzip")]))
    assert convert(mixed, 1).data[:legacy] == mixed[:legacy]
    assert convert(mixed, 2).data[legacy - len(mixed) :] == mixed[legacy:]
    assert [batch.magic for batch in convert(mixed, 1).batches] == [0, 1, 1, 1]
    assert [batch.magic for batch in convert(mixed, 2).batches] == [2, 2, 2]


def test_control_and_empty_batches_are_left_out_and_reported() -> None:
    marker = replace(batch_of(1), control=True, transactional=True, producer_id=7, producer_epoch=0)
    empty = RecordBatch(2, 4, [], producer_id=7, producer_epoch=0, base_sequence=0)
    down = convert([marker, empty, batch_of(5)], 1)
    assert contents(down.batches) == contents([batch_of(5)])
    assert down.losses == (Loss("control-batch", 0, 1), Loss("empty-batch", 1))


@pytest.mark.parametrize(
    ("batch", "magic", "expected"),
    [
        (batch_of(1, headers=((b"h", b"x"), (b"h", None))), 1, [Loss("headers", 0, 2)]),
        (batch_of(1, producer_id=7, producer_epoch=0, base_sequence=3), 1, [Loss("producer-state", 0)]),
        (
            batch_of(1, producer_id=7, producer_epoch=0, base_sequence=3, transactional=True),
            1,
            [Loss("producer-state", 0), Loss("transactional", 0)],
        ),
        (batch_of(1, partition_leader_epoch=4), 1, [Loss("partition-leader-epoch", 0)]),
        (batch_of(1, delete_horizon=NOW_MS), 1, [Loss("delete-horizon", 0)]),
        (batch_of(1, 2, compression="gzip"), 0, [Loss("timestamps", 0, 2)]),
        (
            batch_of(1, timestamp_type="log-append", max_timestamp=NOW_MS),
            0,
            [Loss("timestamps", 0, 1), Loss("timestamp-type", 0)],
        ),
        (batch_of(1, max_timestamp=NOW_MS + 9), 1, [Loss("max-timestamp", 0)]),
        (replace(batch_of(1), last_offset=5), 1, [Loss("offset-range", 0)]),
        (batch_of(1, 2), 1, [Loss("batch-bounds", 0)]),
        (replace(batch_of(1), records=[Record(1, NOW_MS, None, b"", (), 3)]), 1, [Loss("record-attributes", 0, 1)]),
        (batch_of(-1, 0, compression="gzip"), 1, [Loss("offsets", 0, 2)]),
        (batch_of(1, magic=1), 0, [Loss("timestamps", 0, 1)]),
        (batch_of(1, 3, compression="gzip"), 1, []),
    ],
)
def test_conversion_reports_what_is_lost(batch: RecordBatch, magic: int, expected: list[Loss]) -> None:
    assert list(convert([batch], magic).losses) == expected


def test_any_input_converts_or_is_refused_by_an_error_of_the_taxonomy() -> None:
    mutator = Mutator(73)
    dice = Dice(73)
    seen: Counter[str] = Counter()
    for _ in range(3000):
        data, magic = mutator.input(), dice.pick((0, 1, 2))
        for way in (
            lambda d=data, m=magic: convert(d, m, compression="none"),
            lambda d=data, m=magic: convert_appended(d, m, base_offset=7),
        ):
            try:
                made = way()
            except (EncodeError, RecordsError) as error:
                seen[type(error).__name__] += 1
            else:
                seen["converted"] += 1
                assert {batch.magic for batch in records.read(made.data).batches} <= set(range(magic + 1))
    assert min(seen["EncodeError"], seen["RecordsError"], seen["converted"]) > 100, seen


def test_the_docs_list_every_loss() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "conversion.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE) == list(LOSSES)


def test_every_loss_says_what_it_is_and_where() -> None:
    assert set(LOSSES) == set(get_args(LossKind))
    for kind in LOSSES:
        text = str(Loss(kind, 4, 3))
        assert text.startswith("batch[4]: ")
        assert text.endswith(f" [{kind}]")
        assert "{" not in text


def without_some_features(batch: RecordBatch, dice: Dice) -> RecordBatch:
    """The batch, mostly without each thing that magic 1 has no place for; those left must be reported as lost."""
    fields: dict[str, Any] = {"records": [replace_headers(record, dice) for record in batch.records]}
    for name, nothing in (
        ("producer_id", -1), ("producer_epoch", -1), ("base_sequence", -1), ("partition_leader_epoch", -1),
        ("transactional", False), ("control", False), ("delete_horizon", None), ("max_timestamp", None),
    ):  # fmt: skip
        if dice.chance(0.95):
            fields[name] = nothing
    if batch.records and dice.chance(0.95):
        fields |= {"base_offset": batch.records[0].offset, "last_offset": batch.records[-1].offset}
    if batch.timestamp_type == "log-append" and batch.records:
        fields["max_timestamp"] = batch.records[0].timestamp
    return replace(batch, **fields)


def replace_headers(record: Record, dice: Dice) -> Record:
    headers = () if dice.chance(0.99) else record.headers
    attributes = 0 if dice.chance(0.99) else record.attributes
    return Record(record.offset, record.timestamp, record.key, record.value, headers, attributes)


def everything(batches: Iterable[RecordBatch]) -> tuple[Any, ...]:
    """The batches' JSON with what it leaves out: the largest timestamps and the records' attributes."""
    batches = list(batches)
    left_out = [(batch.max_timestamp, [record.attributes for record in batch.records]) for batch in batches]
    return records.to_json(batches), left_out


@pytest.mark.full
@pytest.mark.parametrize("count", counts(200, 2500))
def test_nothing_reported_means_nothing_lost(count: int) -> None:
    """Down to magic 1 and up again without a loss gives the batch that there was."""
    dice = Dice(15)
    seen: Counter[str] = Counter()
    for _, reading in readable(count, seed=14):
        for batch in reading.batches:
            if batch.magic < 2:
                continue
            slim = without_some_features(batch, dice)
            try:
                data = records.encode([slim])
                down = convert(data, 1)
                up = convert(down.data, 2)
            except (EncodeError, RecordsError):
                continue
            (whole,) = records.decode(data)
            if down.losses or up.losses:
                seen["lossy"] += 1
                assert everything(up.batches) != everything([whole]), data.hex()
                continue
            seen["clean"] += 1
            assert everything(up.batches) == everything([whole]), data.hex()
    assert min(seen["clean"], seen["lossy"]) > 30, seen


def test_records_before_the_first_offset_asked_for_go_where_messages_stand_alone() -> None:
    down = convert([batch_of(5, 6, 7), batch_of(8, 9, compression="gzip")], 1, first_offset=9)
    assert [record.offset for batch in down.batches for record in batch.records] == [8, 9]
    assert Loss("records-before-first-offset", 0, 3) in down.losses


def test_zstd_goes_down_only_with_another_codec() -> None:
    batch = batch_of(5, 6, compression="zstd")
    with pytest.raises(EncodeError, match="zstd, which magic 1 does not know"):
        convert([batch], 1)
    (made,) = convert([batch], 1, compression="lz4").batches
    assert made.compression == "lz4"
    assert contents([made]) == contents([batch])


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (batch_of(6, 5), "offsets must increase"),
        (replace(batch_of(5), records=[Record(5, -2, None, b"")]), "it must be -1 or more"),
    ],
)
def test_records_that_kafkas_builder_refuses_are_refused(batch: RecordBatch, says: str) -> None:
    with pytest.raises(EncodeError, match=says):
        convert([batch], 1)


def test_a_partial_tail_is_reported_and_refused_bytes_are_refused() -> None:
    data = records.encode([batch_of(5)])
    cut = convert(data + data[:-1], 1)
    assert cut.losses == (Loss("partial-tail", 1, len(data) - 1),)
    with pytest.raises(RecordsError, match=r"batch\[1\]"):
        convert(data + data[:-1] + b"?", 1)


@pytest.mark.parametrize(("magic", "options"), [(3, {}), (1, {"compression": "zip"}), (0, {"compression": "zstd"})])
def test_a_wrong_request_is_refused(magic: int, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        convert(b"", magic, **options)


def test_any_buffer_will_do() -> None:
    data = records.encode([batch_of(5)])
    expected = convert(data, 1).data
    assert convert(bytearray(data), 1).data == expected
    assert convert(memoryview(data), 1).data == expected
    assert convert(iter([batch_of(5)]), 1).data == expected


# ------------------------------------------------------------------------------------------------- on append


def test_messages_that_are_appended_become_one_batch() -> None:
    old = records.encode([batch_of(0, magic=1), batch_of(7, magic=1), batch_of(3, magic=1)])
    up = convert_appended(old, 2, base_offset=50, compression="lz4", partition_leader_epoch=4)
    (made,) = up.batches
    assert (made.base_offset, made.last_offset, made.partition_leader_epoch, made.compression) == (50, 52, 4, "lz4")
    assert [(record.offset, record.value) for record in made.records] == [(50, b"v0"), (51, b"v7"), (52, b"v3")]
    assert [record.timestamp for record in made.records] == [NOW_MS, NOW_MS + 7, NOW_MS + 3]
    assert up.losses == (Loss("offsets", 0, 3), Loss("batch-bounds", 0, 3))


def test_batches_appended_to_a_log_append_topic_are_stamped() -> None:
    up = convert_appended(
        [batch_of(0, magic=0)], 2, base_offset=0, timestamp_type="log-append", log_append_time=NOW_MS + 5
    )
    (made,) = up.batches
    assert (made.timestamp_type, made.max_timestamp, made.records[0].timestamp) == ("log-append", *[NOW_MS + 5] * 2)


@pytest.mark.parametrize(
    ("timestamp", "topic", "taken"),
    [(NOW_MS, "create", True), (-1, "create", False), (NOW_MS, "log-append", False), (-1, "log-append", False)],
)
def test_log_append_time_from_a_producer_passes_where_kafka_lets_it(
    timestamp: int, topic: TimestampType, taken: bool
) -> None:
    batch = replace(
        batch_of(0, magic=1),
        timestamp_type="log-append",
        max_timestamp=timestamp,
        records=[Record(0, timestamp, b"k", b"v")],
    )
    with nullcontext() if taken else pytest.raises(EncodeError, match="a producer may not set this type"):
        made = convert_appended([batch], 2, base_offset=0, timestamp_type=topic, log_append_time=NOW_MS)
        assert contents(made.batches) == [(0, NOW_MS, b"k", b"v")]


@pytest.mark.parametrize(
    ("batches", "magic", "says"),
    [
        ([batch_of(0, magic=0), batch_of(1, magic=1)], 2, "must be the same"),
        ([batch_of(0), batch_of(1)], 1, "only one is allowed"),
        ([batch_of(0, magic=1), batch_of(1, 2, magic=1, compression="gzip")], 2, "only one is allowed"),
        ([replace(batch_of(0), control=True)], 1, "control batch"),
        ([replace(batch_of(0), last_offset=4)], 1, "one record for each offset"),
        ([batch_of(0, producer_id=7, producer_epoch=0, base_sequence=0)], 1, "producer id"),
        ([batch_of(0, headers=((b"h", b""),))], 1, "headers"),
        ([], 2, "no batch"),
    ],
)
def test_batches_that_a_broker_does_not_convert_are_refused(batches: list[RecordBatch], magic: int, says: str) -> None:
    with pytest.raises(EncodeError, match=says):
        convert_appended(batches, magic, base_offset=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base_offset", 1 << 63),
        ("base_offset", (1 << 63) - 1),
        ("log_append_time", -(1 << 63) - 1),
        ("partition_leader_epoch", 1 << 31),
    ],
)
def test_a_field_that_does_not_fit_is_refused(name: str, value: int) -> None:
    options: dict[str, Any] = {"base_offset": 0, "timestamp_type": "log-append"} | {name: value}
    with pytest.raises(EncodeError):
        convert_appended([batch_of(0, magic=1), batch_of(1, magic=1)], 2, **options)


# ------------------------------------------------------------------------------------------------- Apache Kafka


@pytest.fixture(scope="module")
def kafka_3() -> Any:
    with running("kafka-clients", KAFKA_3) as testee:
        yield testee


# In each process, Kafka 3 would be a second JVM, so only full counts ask it.
@pytest.mark.java
@pytest.mark.full
@pytest.mark.parametrize("offsets", [(0, 1, 2), (5, 6, 7), (0, 2, 4), (2, 1, 0)])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_3_accepts_any_offsets_of_a_message_set_and_recompresses_those_not_from_0(
    kafka_3: RunningTestee, magic: int, compression: Codec, offsets: tuple[int, ...]
) -> None:
    """Document 001 asks a producer for inner offsets from 0 by one, to save the broker this work."""
    inner = b"".join(message_of(offset, magic, 0, b"v%d" % offset) for offset in offsets)
    data = inner if compression == "none" else message_of(offsets[-1], magic, 1, gzip.compress(inner, mtime=7))
    topic = {"magic": magic, "first_offset": "100"}
    answer = ask(kafka_3, "convert-records", data, topic=topic)
    assert answer is not None
    assert answer["outcome"] == "accepted", answer
    stored = bytes.fromhex(answer["hex"])
    read = records.read(stored)
    assert contents(read.batches) == [
        (100 + i, NOW_MS if magic else None, None, b"v%d" % offset) for i, offset in enumerate(offsets)
    ]
    kept = gzip.compress(inner, mtime=7) in stored
    assert kept == (compression == "gzip" and magic == 1 and offsets == (0, 1, 2))


def message_of(offset: int, magic: int, attributes: int, value: bytes) -> bytes:
    return bytes(encode_message(magic, offset, attributes, NOW_MS, None, value))


def or_refused(make: Callable[[], Converted]) -> Converted | str:
    try:
        return make()
    except EncodeError as error:
        return str(error)


def agree(kafka: RunningTestee, data: bytes, request: dict[str, Any], mine: Callable[[], Converted]) -> str | None:
    """How kfuzz and Kafka agree about one conversion, which is asserted; None where Kafka ran out of memory."""
    answer = ask(kafka, request.pop("operation"), data, **request)
    if answer is None:
        return None
    made = or_refused(mine)
    assert answer["outcome"] == ("rejected" if isinstance(made, str) else "accepted"), (
        data.hex(),
        request,
        made,
        answer,
    )
    if isinstance(made, str):
        return "refused"
    theirs = bytes.fromhex(answer["hex"])
    assert same(made.data, theirs), (data.hex(), request, made.data.hex(), answer["hex"])
    return "identical" if made.data == theirs else "equal"


@pytest.mark.java
@pytest.mark.full
def test_kafka_3_converts_down_to_the_same(kafka_3: RunningTestee) -> None:
    count, dice = 3000, Dice(21)
    seen: Counter[str | None] = Counter()
    for data, reading in readable(count, seed=22):
        offsets = [record.offset for batch in reading.batches for record in batch.records]
        magic, first = dice.pick((0, 1)), dice.pick((LEAST_INT64, 0, *offsets))
        request = {"operation": "convert-records", "magic": magic, "first_offset": str(first)}
        seen[agree(kafka_3, data, request, lambda d=data, m=magic, f=first: convert(d, m, first_offset=f))] += 1
    assert min(seen[how] for how in ("refused", "identical", "equal")) > count // 60, seen


@pytest.mark.java
@pytest.mark.parametrize("count", counts(300, 6000))
def test_kafka_4_converts_up_to_the_same(kafka: RunningTestee, count: int) -> None:
    """Its log cleaner does, where it takes nothing away and no tombstone gets a delete horizon."""
    seen: Counter[str | None] = Counter()
    for data, reading in readable(count, seed=23):
        values = [record.value for batch in reading.batches for record in batch.records]
        offsets = [record.offset for batch in reading.batches for record in batch.records]
        # The cleaner, which is no converter, drops empty batches, and wants offsets from 0.
        empty = any(not batch.records or batch.last_offset < 0 for batch in reading.batches)
        if None in values or empty or min(offsets) < 0 or all(batch.magic == 2 for batch in reading.batches):
            continue
        request = {"operation": "filter-records"}
        seen[agree(kafka, data, request, lambda d=data: convert(d, 2))] += 1
    assert min(seen[how] for how in ("refused", "identical", "equal")) > count // 600, seen


@pytest.mark.java
@pytest.mark.full
def test_kafka_3_converts_what_is_appended_to_the_same(kafka_3: RunningTestee) -> None:
    count, dice = 4000, Dice(31)
    seen: Counter[str | None] = Counter()
    for data, reading in readable(count, seed=32):
        magic = dice.pick((0, 1, 2, 2, 2))
        # Without conversion the validator works in place; and it checks a wrapper's CRC, which a consumer does not.
        in_place = all(batch.magic == magic for batch in reading.batches)
        if in_place or any(finding.code == "wrapper-crc-mismatch" for finding in reading.findings):
            continue
        options: dict[str, Any] = {
            "base_offset": dice.pick((0, 5, 1 << 40)),
            "compression": dice.pick(LEGACY_CODECS if magic < 2 else records.CODECS),
            "timestamp_type": dice.pick(("create", "log-append")),
            "log_append_time": NOW_MS + 5,
            "partition_leader_epoch": dice.pick((0, 7)),
        }
        topic = {
            "magic": magic,
            "first_offset": str(options["base_offset"]),
            "compression": options["compression"],
            "timestamp_type": options["timestamp_type"],
            "now": str(options["log_append_time"]),
            "leader_epoch": options["partition_leader_epoch"],
        }
        request = {"operation": "convert-records", "topic": topic}
        seen[agree(kafka_3, data, request, lambda d=data, m=magic, o=options: convert_appended(d, m, **o))] += 1
    assert min(seen[how] for how in ("refused", "identical", "equal")) > count // 80, seen
