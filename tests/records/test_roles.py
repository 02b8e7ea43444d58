"""The rules of brokers and segments by themselves: what each asks of values, and where its bounds lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kfuzz.errors import UsageError
from kfuzz.kafka import INT32_MAX, INT64_MAX
from kfuzz.records import Record
from kfuzz.records.read.roles import (
    DEFAULT_TOPIC,
    Header,
    Row,
    Segment,
    Topic,
    is_tail,
    produced_batch,
    produced_header,
    produced_records,
    request,
)
from kfuzz.wire.layout import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL

if TYPE_CHECKING:
    from kfuzz.wire.report import Note

NOW = DEFAULT_TOPIC.now
COMMIT, ABORT = (Record(0, 0, bytes([0, 0, 0, kind]), bytes(6)) for kind in (1, 0))


def header(**changes: int) -> Header:
    """A header as a producer without an id should send it, with one record."""
    fields = {"base_offset": 0, "batch_length": 60, "partition_leader_epoch": -1, "magic": 2, "crc": 0, "attributes": 0}
    fields |= {"last_offset_delta": 0, "base_timestamp": NOW, "max_timestamp": NOW}
    return Header(
        **{**fields, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "record_count": 1, **changes}
    )


def row(**changes: Any) -> Row:
    return Row(**{"offset": 0, "timestamp": NOW, "has_key": True, "size": 8, **changes})


def codes(notes: list[Note]) -> list[str]:
    return [note[0] for note in notes]


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
        ({"colour": "red"}, "a topic has no colour; known are compacted, compression"),
        ({"now": "soon"}, "the topic .* does not fit"),
        ({"max_message_bytes": "7"}, "the topic .* does not fit"),
    ],
)
def test_a_topic_in_json_that_does_not_fit_is_refused_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Topic.from_json(given)


# --- a Produce request ----------------------------------------------------------------------------------------------


def test_a_request_holds_one_batch_and_no_byte_more_than_the_limit() -> None:
    topic = Topic(max_request_bytes=100)
    assert request(100, 1, topic) == []
    assert codes(request(101, 1, topic)) == ["request-too-large"]
    assert codes(request(100, 0, topic)) == codes(request(100, 2, topic)) == ["batch-count-not-one"]


def test_a_batch_is_of_magic_2_from_offset_0_on_and_no_larger_than_the_topic_allows() -> None:
    topic = Topic(max_message_bytes=100)
    assert produced_batch(0, 2, 100, 0, topic) == []
    # Another magic is another format, of which no field is looked at.
    assert produced_batch(5, 1, 200, 7, topic) == [("magic-not-produced", "magic", 7 + 16, -1, -1, 1, 2, 1)]
    assert codes(produced_batch(5, 2, 101, 0, topic)) == ["base-offset-not-zero", "batch-too-large"]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"record_count": 3, "last_offset_delta": 2}, []),
        ({"record_count": 0}, ["record-count-zero"]),
        ({"record_count": 3, "last_offset_delta": 1}, ["last-offset-delta-not-count"]),
        ({"attributes": CONTROL}, ["control-batch-produced"]),
        ({"producer_id": 0, "producer_epoch": 0, "base_sequence": 0}, []),
        ({"producer_id": 0, "producer_epoch": 0}, ["base-sequence-negative"]),
        ({"attributes": LOG_APPEND_TIME}, ["timestamp-type-not-create"]),
        ({"attributes": TRANSACTIONAL}, ["transactional-without-id"]),
        ({"producer_epoch": 0, "base_sequence": 0}, ["producer-fields-without-id"]),
        ({"attributes": 0x40}, ["delete-horizon-produced"]),
    ],
)
def test_a_header_is_held_to_the_rules_of_producers_one_by_one(changes: dict[str, int], found: list[str]) -> None:
    assert codes(produced_header(header(**changes), 0)) == found


def test_offset_deltas_count_up_and_a_skimmed_batch_has_a_code_of_its_own() -> None:
    two = header(record_count=2)
    right, wrong = [row(), row(offset=1)], [row(), row(offset=2)]
    assert produced_records(two, right, 61, DEFAULT_TOPIC, skimmed=True) == []
    assert codes(produced_records(two, wrong, 61, DEFAULT_TOPIC, skimmed=False)) == ["offset-delta-not-index"]
    assert codes(produced_records(two, wrong, 61, DEFAULT_TOPIC, skimmed=True)) == ["compressed-offset-delta-not-index"]


def test_a_note_stands_at_the_first_of_many_records_and_counts_them() -> None:
    (note,) = produced_records(
        header(),
        [row(has_key=index == 0, offset=index) for index in range(4)],
        61,
        Topic(compacted=True),
        skimmed=False,
    )
    code, _, _, record, *_, count = note
    assert (code, record, count) == ("key-missing", 1, 3)


@pytest.mark.parametrize(
    ("timestamp", "is_near"),
    [
        (NOW - 10, True),
        (NOW - 11, False),
        (NOW + 20, True),
        (NOW + 21, False),
        (-1, True),  # No timestamp at all.
        (-2, False),
        # The difference wraps: what is further away than a long can tell seems to lie on the other side.
        (-INT64_MAX - 1, False),
        # Nor has the smallest one a negation.
        (NOW - INT64_MAX - 1, True),
    ],
)
def test_the_bounds_of_timestamps_are_part_of_what_is_allowed(timestamp: int, is_near: bool) -> None:
    topic = Topic(timestamp_before_max_ms=10, timestamp_after_max_ms=20)
    found = produced_records(header(max_timestamp=timestamp), [row(timestamp=timestamp)], 61, topic, skimmed=False)
    assert codes(found) == ([] if is_near else ["timestamp-out-of-range"])


def test_under_log_append_time_no_timestamp_is_out_of_range() -> None:
    topic = Topic(timestamp_type="log-append", timestamp_before_max_ms=10)
    assert produced_records(header(max_timestamp=0), [row(timestamp=0)], 61, topic, skimmed=False) == []


def test_a_record_has_no_byte_more_than_an_array_can_have() -> None:
    most = DEFAULT_TOPIC.max_record_bytes
    assert produced_records(header(), [row(size=most)], 61, DEFAULT_TOPIC, skimmed=True) == []
    found = produced_records(header(), [row(size=most + 1)], 61, DEFAULT_TOPIC, skimmed=True)
    assert codes(found) == ["record-too-large"]


def test_the_max_timestamp_is_the_maximum() -> None:
    rows = [row(timestamp=NOW + 1), row(offset=1)]
    assert produced_records(header(max_timestamp=NOW + 1), rows, 61, DEFAULT_TOPIC, skimmed=False) == []
    found = produced_records(header(max_timestamp=NOW), rows, 61, DEFAULT_TOPIC, skimmed=False)
    assert codes(found) == ["max-timestamp-not-maximum"]


# --- a segment ------------------------------------------------------------------------------------------------------


def taken(*batches: tuple[int, int], size: int = 100) -> list[str]:
    """The codes for a segment of batches with these base and last offsets, its end included."""
    segment, notes, at = Segment(), [], 0
    for base_offset, last_offset in batches:
        notes += segment.batch(base_offset, last_offset, NOW, size, at)
        at += size
    return codes(notes + segment.end(at))


def test_a_segments_offsets_lie_within_an_int32_of_its_first_one() -> None:
    assert taken((5, 5), (5 + INT32_MAX, 5 + INT32_MAX)) == []
    assert taken((5, 5), (6 + INT32_MAX, 6 + INT32_MAX)) == ["offset-outside-segment"]
    assert taken((5, 4)) == ["offset-outside-segment"]
    # A file name has no sign.
    assert taken((-5, -1)) == ["offset-outside-segment"]
    assert taken((-5, 0)) == []


def test_offsets_that_go_back_are_fatal_where_the_index_gets_an_entry() -> None:
    assert taken((0, 9), (5, 5)) == ["offset-not-increasing"]
    assert taken((0, 9), (10, 19), (20, 29), size=4097) == []
    assert taken((0, 9), (10, 19), (15, 15), size=4096) == ["offset-not-increasing"]
    # The first entry comes when more than 4096 bytes are read, which is the second batch's here.
    assert taken((0, 9), (10, 19), (15, 15), size=4097) == ["offset-not-increasing", "indexed-offset-not-increasing"]


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (NOW + 2, ["offset-not-increasing", "indexed-offset-not-increasing"]),
        (NOW + 1, ["offset-not-increasing"]),
        (NOW - 1, ["offset-not-increasing"]),
    ],
)
def test_the_time_index_ends_with_the_first_batch_that_has_the_largest_timestamp(
    timestamp: int, found: list[str]
) -> None:
    segment, notes, at = Segment(), [], 0
    for last_offset, max_timestamp, size in ((9, NOW, 4097), (19, NOW + 1, 10), (15, timestamp, 10)):
        notes += segment.batch(last_offset, last_offset, max_timestamp, size, at)
        at += size
    assert codes(notes + segment.end(at)) == found


def test_a_log_that_ends_before_it_starts_is_deleted() -> None:
    assert taken((INT64_MAX - 1, INT64_MAX - 1)) == []
    assert taken((INT64_MAX, INT64_MAX)) == ["log-end-overflow"]


@pytest.mark.parametrize(
    ("batches", "size", "lost"),
    [
        (((0, None),), 100, True),
        (((0, 0), (9, None)), 100, False),  # The log starts before it.
        (((9, 3), (12, None)), 100, True),  # The first begins below the segment's name, so that the next is looked at.
        (((9, 3), (12, 10), (15, None)), 100, False),
        # The end is looked for from the index's last entry on, which is the second batch here.
        (((0, 0), (9, None)), 4097, True),
        (((0, 0), (9, 9), (12, None)), 4097, True),
        (((0, 0), (9, 9), (12, 12), (15, 15), (18, 18)), 4097, False),
    ],
)
def test_a_wrapper_that_cannot_be_opened_matters_where_a_broker_looks_for_an_offset(
    batches: tuple[tuple[int, int | None], ...], size: int, lost: bool
) -> None:
    segment, at = Segment(), 0
    for offset, begins in batches:
        assert segment.batch(offset, offset, NOW, size, at, lambda begins=begins: begins) == []  # type: ignore[misc]
        at += size
    assert codes(segment.end(at)) == (["wrapper-start-unknown"] if lost else [])


def test_a_leader_epoch_begins_at_no_offset_below_0_and_is_asked_once() -> None:
    segment = Segment()
    assert segment.leader(header(partition_leader_epoch=-1, base_offset=-1), 0) == []
    assert codes(segment.leader(header(partition_leader_epoch=3, base_offset=-1), 0)) == [
        "leader-epoch-offset-negative"
    ]
    assert segment.leader(header(partition_leader_epoch=3, base_offset=-1), 0) == []


def data_batch(attributes: int = TRANSACTIONAL, base_offset: int = 0) -> Header:
    return header(producer_id=4, producer_epoch=0, base_sequence=0, attributes=attributes, base_offset=base_offset)


def test_a_transaction_ends_before_its_producer_writes_without_one() -> None:
    segment = Segment()
    assert segment.producer(data_batch(), None, 0) == []
    assert codes(segment.producer(data_batch(0, 1), None, 0)) == ["transaction-not-ended"]
    assert segment.producer(data_batch(CONTROL | TRANSACTIONAL, 2), COMMIT, 0) == []
    assert segment.producer(data_batch(0, 3), None, 0) == []
    # Which began none.
    assert segment.producer(data_batch(0, 4), None, 0) == []


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
    segment = Segment()
    assert segment.producer(data_batch(), None, 0) == []
    found = segment.producer(data_batch(CONTROL | TRANSACTIONAL, 1), Record(1, 0, key, value), 0)
    assert codes(found) == ([] if is_marker else ["end-marker-invalid"])


def test_aborted_transactions_end_in_the_order_of_their_offsets() -> None:
    segment = Segment()
    for base_offset, marker, found in (
        (0, None, []),
        (9, ABORT, []),
        (10, None, []),
        (9, ABORT, ["end-marker-invalid"]),
    ):
        control = CONTROL if marker else 0
        assert codes(segment.producer(data_batch(control | TRANSACTIONAL, base_offset), marker, 0)) == found


def test_a_tail_is_what_file_log_input_stream_takes_for_one() -> None:
    # No more than a header's 17 bytes are left, whatever they say.
    assert is_tail(-5, 17)
    assert not is_tail(-5, 18)
    assert is_tail(89, 100)
    assert not is_tail(88, 100)
    # Whole or not, a length below that of the smallest message is no length.
    assert is_tail(14, 20)
    assert not is_tail(13, 20)
