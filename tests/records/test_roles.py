"""The rules of brokers and segments one by one: what each asks, and where its bounds lie."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kfuzz import records
from kfuzz.errors import RecordsError, UsageError
from kfuzz.findings import Profile
from kfuzz.java import wrap64
from kfuzz.kafka import INT32_MAX, INT64_MAX
from kfuzz.mutate.engine import seal
from kfuzz.records import Record, RecordBatch
from kfuzz.records.appending import append
from kfuzz.records.read.topic import DEFAULT_TOPIC, Topic
from kfuzz.wire.io.layout import CONTROL, HEADER_LAYOUT, LOG_APPEND_TIME, TRANSACTIONAL

NOW = DEFAULT_TOPIC.now
INT64 = st.integers(-INT64_MAX - 1, INT64_MAX)
COMMIT, ABORT = (Record(0, 0, bytes([0, 0, 0, kind]), bytes(6)) for kind in (1, 0))
AT = {name: (at, width) for name, at, width in HEADER_LAYOUT}


def row(offset: int = 0, timestamp: int = NOW, key: bytes | None = b"k") -> Record:
    return Record(offset, timestamp, key, b"value")


def batch(*rows: Record, compression: records.Codec = "none", **fields: int) -> bytes:
    """A batch of magic 2, with these numbers in its header, and a CRC that is right."""
    rows = rows or (row(),)
    last = max(fields.get("base_offset", 0), rows[-1].offset)
    given = RecordBatch(fields.pop("base_offset", rows[0].offset), last, list(rows), compression=compression)
    data = bytearray(records.encode_batch(given))
    for name, value in fields.items():
        at, width = AT[name]
        data[at : at + width] = value.to_bytes(width, "big", signed=True)
    return seal(bytes(data), length=False, crc=True)


def produced(data: bytes, topic: Topic = DEFAULT_TOPIC) -> list[str]:
    """The codes of what a broker finds; the same whether objects are made or not."""
    found = records.read(data, role="broker", profile="strict", topic=topic)
    assert records.check(data, role="broker", profile="strict", topic=topic).findings == found.findings
    return [finding.code for finding in found.findings]


def stored(*batches: bytes) -> list[str]:
    """The codes of what a broker finds in a segment."""
    found = records.read(b"".join(batches), role="log", profile="strict")
    assert records.check(b"".join(batches), role="log", profile="strict").findings == found.findings
    return [finding.code for finding in found.findings]


# --- a topic --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"compression": "brotli"}, "compression 'brotli' does not exist; take producer or none"),
        ({"timestamp_type": "none"}, "timestamp type 'none' does not exist; take create or log-append"),
        ({"now": -1}, "now is -1; it must be 0 or more"),
        ({"first_offset": INT64_MAX + 1}, "first_offset is 9223372036854775808"),
        ({"max_message_bytes": 0}, "max_message_bytes is 0; it must be between 1 and 2147483647"),
        ({"max_request_bytes": INT32_MAX + 1}, "max_request_bytes is 2147483648"),
    ],
)
def test_a_topic_that_no_broker_has_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Topic(**changes)


def test_a_topic_in_json_has_64_bit_numbers_as_text_and_defaults_for_the_rest() -> None:
    assert Topic.from_json({}) == DEFAULT_TOPIC
    # docs/testee-protocol.md says so.
    assert DEFAULT_TOPIC.now == 1_700_000_000_000
    given = {"now": "9223372036854775807", "max_message_bytes": 7, "compacted": True, "compression": "zstd"}
    assert Topic.from_json(given) == Topic(now=INT64_MAX, max_message_bytes=7, compacted=True, compression="zstd")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"colour": "red"}, "a topic has no field colour; the fields are compacted, compression"),
        ({"now": "soon"}, "the topic .* does not fit"),
        ({"max_message_bytes": "7"}, "the topic .* does not fit"),
    ],
)
def test_a_topic_in_json_that_does_not_fit_is_refused_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Topic.from_json(given)


# --- a Produce request ----------------------------------------------------------------------------------------------


def test_a_request_holds_one_batch_and_no_byte_more_than_the_limit() -> None:
    data = batch()
    assert produced(data, Topic(max_request_bytes=len(data))) == []
    assert produced(data, Topic(max_request_bytes=len(data) - 1)) == ["request-too-large"]
    assert produced(b"") == produced(data[:-1]) == produced(data + data) == ["batch-count-not-one"]
    # A frame that is refused comes before all, wherever it stands.
    assert produced(data + bytes(20)) == ["batch-length-below-minimum"]


def sized(size: int) -> bytes:
    """An uncompressed batch of one record with as many bytes."""
    given = RecordBatch(0, 0, [Record(0, NOW, None, bytes(size - 100))])
    more = size - len(records.encode_batch(given))
    given.records[0] = Record(0, NOW, None, bytes(size - 100 + more))
    data = records.encode_batch(given)
    assert len(data) == size
    return data


def test_the_limits_are_kafkas_by_default() -> None:
    # 1 MiB and the twelve bytes in front of a batch's leader epoch; 100 MiB. The test above shows what the limit of a
    # request does.
    assert (DEFAULT_TOPIC.max_message_bytes, DEFAULT_TOPIC.max_request_bytes) == (1_048_588, 104_857_600)
    assert produced(sized(1_048_588)) == []
    assert produced(sized(1_048_589)) == ["batch-too-large"]
    # A consumer and a log take a batch of any size.
    for role in ("consumer", "log"):
        assert records.check(sized(1_048_589), role=role, profile="strict").findings == []


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_the_size_limit_is_about_the_compressed_batch_not_its_records(
    compression: records.Codec,
) -> None:
    data = batch(Record(0, NOW, b"k", bytes(5_000_000)), compression=compression)
    assert len(data) < 1_000_000
    assert produced(data) == stored(data) == []
    assert records.check(data, profile="strict").findings == []
    # The topic's codec is another: the broker writes the batch again, and asks once more.
    with pytest.raises(RecordsError, match="batch-too-large"):
        append(data, Topic(compression="none"))
    # A broker may be told how large a record may be that it decompresses.
    assert produced(data, Topic(max_record_bytes=4_000_000)) == ["record-too-large"]


@pytest.mark.parametrize("profile", ["kafka", "strict"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_an_older_magic_is_refused_before_its_offsets_are_looked_at(
    magic: int, compression: records.Codec, profile: Profile
) -> None:
    message = records.encode_batch(RecordBatch(9, 9, [row(9, NOW)], magic=magic, compression=compression))
    found = records.check(message, role="broker", profile=profile).findings
    assert [finding.code for finding in found] == ["magic-not-produced"]


def test_a_partial_tail_is_dropped() -> None:
    data = batch()
    verdict = records.check(data + data[:-1], role="broker")
    assert (verdict.fatal, verdict.partial_tail, verdict.consumed) == (None, True, len(data))


def test_a_batch_is_of_magic_2_from_offset_0_on_and_no_larger_than_the_topic_allows() -> None:
    data = batch(row(5))
    assert produced(batch(), Topic(max_message_bytes=len(data))) == []
    assert produced(data, Topic(max_message_bytes=len(data) - 1)) == ["base-offset-not-zero", "batch-too-large"]
    # Another magic is another format, of which no field is looked at.
    message = records.encode_batch(RecordBatch(5, 5, [row(5)], magic=1))
    verdict = records.check(message, role="broker")
    assert [(finding.code, finding.at) for finding in verdict.findings] == [("magic-not-produced", 16)]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, []),
        ({"record_count": 0}, ["record-count-zero"]),
        ({"last_offset_delta": 1}, ["last-offset-delta-not-count"]),
        ({"attributes": CONTROL}, ["control-batch-produced"]),
        ({"producer_id": 0, "producer_epoch": 0, "base_sequence": 0}, []),
        ({"producer_id": 0, "producer_epoch": 0}, ["base-sequence-negative"]),
        ({"attributes": TRANSACTIONAL}, ["transactional-without-id"]),
        ({"producer_epoch": 0, "base_sequence": 0}, ["producer-fields-without-id"]),
        ({"base_sequence": 0}, ["producer-fields-without-id"]),
        ({"producer_id": -2}, ["producer-fields-without-id"]),
        ({"attributes": 0x40}, ["delete-horizon-produced"]),
    ],
)
def test_a_header_is_held_to_the_rules_of_producers_one_by_one(fields: dict[str, int], found: list[str]) -> None:
    assert produced(batch(**fields)) == found


def test_log_append_time_is_a_brokers_alone() -> None:
    data = batch(attributes=LOG_APPEND_TIME)
    assert produced(data) == ["timestamp-type-not-create"]
    assert "log-append-time-produced" in produced(data, Topic(timestamp_type="log-append"))


@pytest.mark.parametrize("compression", records.CODECS)
def test_offset_deltas_count_up_and_a_kept_payload_has_a_code_of_its_own(compression: records.Codec) -> None:
    right = batch(row(), row(1), compression=compression)
    wrong = batch(row(), row(2), compression=compression, last_offset_delta=1)
    kept = ["offset-delta-not-index" if compression == "none" else "compressed-offset-delta-not-index"]
    assert produced(right) == []
    assert [code for code in produced(wrong) if "index" in code] == kept
    other = Topic(compression="gzip" if compression != "gzip" else "lz4")
    assert [code for code in produced(wrong, other) if "index" in code] == ["offset-delta-not-index"]


def test_a_finding_stands_at_the_first_of_many_records_and_counts_them() -> None:
    rows = [row(index, key=b"k" if index == 0 else None) for index in range(4)]
    (finding,) = records.check(batch(*rows), role="broker", topic=Topic(compacted=True)).findings
    assert (finding.code, finding.path, finding.count) == ("key-missing", "batch[0].records[1].key", 3)


@given(INT64 | st.integers(-50, 50).map(NOW.__add__) | st.integers(-50, 50).map((NOW - INT64_MAX).__add__))
@example(-1)
@example(-2)
def test_the_bounds_of_timestamps_are_part_of_what_is_allowed(timestamp: int) -> None:
    topic = Topic(timestamp_before_max_ms=10, timestamp_after_max_ms=20)
    data = batch(row(timestamp=timestamp))
    # As Java's: a difference that a long cannot hold seems to lie on the other side.
    is_near = timestamp == -1 or (wrap64(NOW - timestamp) <= 10 and wrap64(timestamp - NOW) <= 20)
    assert ("timestamp-out-of-range" in produced(data, topic)) == (not is_near)
    log_append = Topic(timestamp_type="log-append", timestamp_before_max_ms=10)
    assert "timestamp-out-of-range" not in produced(data, log_append)
    assert records.check(data, role="broker", topic=topic).largest_timestamp == timestamp


def test_only_a_payload_is_asked_for_the_sizes_of_its_records() -> None:
    size = 6 + len(b"k" + b"value")
    assert produced(batch(compression="lz4"), Topic(max_record_bytes=size)) == []
    assert produced(batch(compression="lz4"), Topic(max_record_bytes=size - 1)) == ["record-too-large"]
    assert produced(batch(), Topic(max_record_bytes=size - 1)) == []


def test_the_max_timestamp_is_the_maximum() -> None:
    rows = [row(timestamp=NOW + 1), row(1)]
    assert produced(batch(*rows)) == []
    assert "max-timestamp-not-maximum" in produced(batch(*rows, max_timestamp=NOW))
    assert "max-timestamp-not-maximum" in produced(batch(*rows, max_timestamp=NOW + 2))


# --- a segment ------------------------------------------------------------------------------------------------------


def spanning(base_offset: int, last_offset: int, size: int = 0, **fields: Any) -> bytes:
    """A batch from one offset to another, of so many bytes, with its one record at the first."""
    filler = max(size - 100, 0)
    for _ in range(3):
        rows = [Record(base_offset, fields.get("timestamp", NOW), b"k", bytes(filler))]
        data = records.encode_batch(RecordBatch(base_offset, last_offset, rows))
        filler += size - len(data) if size else 0
    assert len(data) == size or not size
    return data


def test_a_segments_offsets_lie_within_an_int32_of_its_first_one() -> None:
    assert stored(spanning(5, 5), spanning(5 + INT32_MAX, 5 + INT32_MAX)) == []
    assert stored(spanning(5, 5), spanning(6 + INT32_MAX, 6 + INT32_MAX)) == ["offset-outside-segment"]
    assert "offset-outside-segment" in stored(batch(row(5), last_offset_delta=-1))
    # A file name has no sign.
    assert stored(spanning(-5, -1)) == ["base-offset-negative", "offset-outside-segment"]
    assert stored(spanning(-5, 0)) == ["base-offset-negative"]


def test_offsets_that_go_back_are_fatal_where_the_index_gets_an_entry() -> None:
    assert stored(spanning(0, 9), spanning(5, 5)) == ["offset-not-increasing"]
    assert stored(*(spanning(at, at + 9, 4097) for at in (0, 10, 20))) == []
    back = ((0, 9), (10, 19), (15, 15))
    assert stored(*(spanning(*offsets, 4096) for offsets in back)) == ["offset-not-increasing"]
    # The first entry comes when more than 4096 bytes are read, which is the second batch's here.
    found = stored(*(spanning(*offsets, 4097) for offsets in back))
    assert sorted(found) == ["indexed-offset-not-increasing", "offset-not-increasing"]


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (NOW + 2, ["indexed-offset-not-increasing", "offset-not-increasing"]),
        (NOW + 1, ["offset-not-increasing"]),
        (NOW - 1, ["offset-not-increasing"]),
    ],
)
def test_the_time_index_ends_with_the_first_batch_that_has_the_largest_timestamp(
    timestamp: int, found: list[str]
) -> None:
    batches = (spanning(9, 9, 4097), spanning(19, 19, timestamp=NOW + 1), spanning(15, 15, timestamp=timestamp))
    assert sorted(stored(*batches)) == found


def test_a_log_that_ends_before_it_starts_is_deleted() -> None:
    assert stored(spanning(INT64_MAX - 1, INT64_MAX - 1)) == []
    assert stored(spanning(INT64_MAX, INT64_MAX)) == ["log-end-overflow"]


def wrapper(offset: int, begins: int | None, size: int) -> bytes:
    """A wrapper of two messages, the first at ``begins``; None makes it one that cannot be opened."""
    first = offset if begins is None else begins
    filler = max(size - 200, 0)
    for _ in range(3):
        # Bytes that no codec makes smaller, so that the wrapper has its size.
        noise = b"".join(noise_of(i) for i in range(filler // 32 + 1))[:filler]
        rows = [Record(at, NOW, b"k", noise if at == offset else b"") for at in sorted({first, offset})]
        data = records.encode_batch(RecordBatch(first, offset, rows, magic=1, compression="gzip"))
        filler += size - len(data)
    if begins is None:
        # The gzip stream's first byte, and the CRC over it.
        data = seal(data[:34] + b"\0" + data[35:], length=False, crc=True)
    return data


def noise_of(i: int) -> bytes:
    return hashlib.sha256(i.to_bytes(4, "big")).digest()


@pytest.mark.parametrize(
    ("wrappers", "lost"),
    [
        (((0, None, 200),), True),
        (((0, 0, 200), (9, None, 200)), False),  # The log starts before it.
        # The end is looked for from the index's last entry on, which is the second batch here.
        (((0, 0, 4200), (9, None, 200)), True),
        (((0, 0, 4200), (9, 9, 200), (12, None, 200)), False),
        (((0, 0, 4200), (9, 8, 200), (12, None, 200)), True),
        (((0, 0, 4200), (9, 9, 4200), (12, None, 200)), True),
    ],
)
def test_a_wrapper_that_cannot_be_opened_matters_where_a_broker_looks_for_an_offset(
    wrappers: tuple[tuple[int, int | None, int], ...], lost: bool
) -> None:
    found = stored(*(wrapper(*given) for given in wrappers))
    assert ("wrapper-start-unknown" in found) == lost
    assert ("records-unreadable" in found) == any(begins is None for _, begins, _ in wrappers)


def test_a_leader_epoch_begins_at_no_offset_below_0_and_is_asked_once() -> None:
    def of_epoch(epoch: int, base_offset: int) -> bytes:
        return batch(row(base_offset), partition_leader_epoch=epoch, last_offset_delta=9)

    assert stored(of_epoch(-1, -1), of_epoch(3, 10)) == ["base-offset-negative"]
    assert "leader-epoch-offset-negative" in stored(of_epoch(3, -1))
    assert "leader-epoch-offset-negative" not in stored(of_epoch(3, 0), of_epoch(3, -1))
    assert "leader-epoch-offset-negative" in stored(of_epoch(3, 0), of_epoch(4, -1))


def of_producer(offset: int, marker: Record | None = None, attributes: int = TRANSACTIONAL, id: int = 4) -> bytes:
    """A batch of a producer, or the marker that ends its transaction."""
    if marker is None:
        return batch(row(offset), attributes=attributes, producer_id=id, producer_epoch=0, base_sequence=0)
    record = Record(offset, NOW, marker.key, marker.value)
    return batch(record, attributes=TRANSACTIONAL | CONTROL, producer_id=id, producer_epoch=0)


def test_a_transaction_ends_before_its_producer_writes_without_one() -> None:
    begun = of_producer(0)
    assert stored(begun, of_producer(1, attributes=0)) == ["transaction-not-ended"]
    assert stored(begun, of_producer(1, attributes=0, id=5)) == []
    assert stored(begun, of_producer(1, COMMIT), of_producer(2, attributes=0), of_producer(3, attributes=0)) == []
    # A marker without a transaction ends nothing.
    assert stored(of_producer(0, COMMIT), of_producer(1, ABORT)) == []


def test_many_producers_have_a_transaction_each() -> None:
    ids = [(7919 * i) % 1000 for i in range(1000)]
    begun = [of_producer(at, id=id) for at, id in enumerate(ids)]
    ended = [of_producer(1000 + at, COMMIT, id=id) for at, id in enumerate(sorted(ids))]
    last = [of_producer(2000 + at, attributes=0, id=id) for at, id in enumerate(ids)]
    assert stored(*begun, *ended, *last) == []
    # Each but one is ended.
    assert stored(*begun, *ended[:500], *ended[501:], *last) == ["transaction-not-ended"]


@pytest.mark.parametrize(
    ("key", "value", "is_marker"),
    [
        (bytes(4), bytes(6), True),
        (b"\x00\x07\x00\x01more", bytes(8), True),
        (None, bytes(6), False),
        (bytes(3), bytes(6), False),
        (b"\xff\xff\x00\x01", bytes(6), False),
        (b"\x00\x00\x00\x02", bytes(6), False),
        (bytes(4), None, False),
        (bytes(4), bytes(5), False),
        (bytes(4), b"\x80" + bytes(5), False),
    ],
)
def test_a_marker_has_a_type_and_a_coordinator_epoch(key: bytes | None, value: bytes | None, is_marker: bool) -> None:
    found = stored(of_producer(0), of_producer(1, Record(1, NOW, key, value)))
    assert ("end-marker-invalid" in found) == (not is_marker)


def test_aborted_transactions_end_in_the_order_of_their_offsets() -> None:
    assert stored(of_producer(0), of_producer(9, ABORT), of_producer(10), of_producer(11, ABORT)) == []
    found = stored(of_producer(0), of_producer(9, ABORT), of_producer(10), of_producer(9, ABORT))
    assert sorted(found) == ["end-marker-invalid", "offset-not-increasing"]


def test_two_transactions_that_began_at_one_offset_end_once() -> None:
    begun = (of_producer(0, id=1), of_producer(0, id=2))
    assert "end-marker-invalid" not in stored(*begun, of_producer(1, COMMIT, id=1))
    assert "end-marker-invalid" in stored(*begun, of_producer(1, COMMIT, id=1), of_producer(2, COMMIT, id=2))


@given(st.integers(-20, 120) | st.integers(-(1 << 31), INT32_MAX), st.integers(0, 120))
@example(14, 8)
@example(13, 8)
@example(89, 88)
@example(88, 88)
def test_a_tail_is_what_file_log_input_stream_takes_for_one(length: int, more: int) -> None:
    tail = bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(more)
    # No more than a header's 17 bytes are left, whatever they say. The smallest message has 14 bytes.
    is_tail = len(tail) <= 17 or (length >= 14 and length > more)
    verdict = records.check(batch() + tail, role="log")
    assert verdict.partial_tail == is_tail
    assert (verdict.fatal is None) == is_tail


@pytest.mark.parametrize("length", [0x7F000042, 1 << 20, 1000])
@pytest.mark.parametrize("profile", ["kafka", "strict"])
def test_a_tail_of_a_segment_that_hides_sound_batches_is_refused(profile: Profile, length: int) -> None:
    first, *others = (batch(row(i), row(i + 1)) for i in range(0, 10, 2))
    cut = others[0][:8] + length.to_bytes(4, "big") + others[0][12:]
    data = first + cut + b"".join(others[1:])
    verdict = records.check(data, role="log", profile=profile)
    assert verdict.fatal is not None
    assert (verdict.fatal.code, verdict.fatal.at) == ("batch-length-wrong", len(first) + 8)
    assert (verdict.partial_tail, verdict.batch_count, verdict.consumed) == (False, 1, len(first))
    assert verdict.next_batch == len(first + cut)
    assert records.check(first + cut, role="log", profile=profile).next_batch == -1
    reading = records.read(data, role="log", profile=profile)
    assert (reading.findings, len(reading.batches)) == (verdict.findings, 1)
    with pytest.raises(RecordsError, match="batch-length-wrong"):
        list(records.batches(data, role="log", profile=profile))
    # A fetch may end anywhere, and a segment too, if nothing sound follows.
    assert records.check(data).partial_tail
    damaged = [one[:-2] + b"?" + one[-1:] for one in others]
    assert records.check(first + cut + b"".join(damaged), role="log").partial_tail
