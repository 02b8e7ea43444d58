"""Apache Kafka's client library over the testee protocol: what it reads and writes, and where its versions differ."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import lz4.frame
import pytest
import zstandard
from conftest import releases
from hand_made import LARGE_VALUE, V1, V2, V2_COMMIT_HOLDS, V2_HOLDS, VALID, batch, of_magic_2, record
from testee_driver import RunningTestee, running

from kfuzz.kafka import KAFKA_3, RELEASES
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.primitives import PRIMITIVES

pytestmark = pytest.mark.java

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
ONE_RECORD = bytes.fromhex("10 00 00 00 02 6b 02 76 00")
COMPRESSED = {
    GZIP: gzip.compress(ONE_RECORD, mtime=0),
    SNAPPY: bytes.fromhex("82534e41505059 00 00000001 00000001 0000000b 0920") + ONE_RECORD,
    LZ4: lz4.frame.compress(ONE_RECORD, block_linked=False),
    ZSTD: zstandard.compress(ONE_RECORD),
}


@pytest.fixture(scope="module", params=releases())
def testee(request: pytest.FixtureRequest) -> Iterator[RunningTestee]:
    with running("kafka-clients", request.param) as started:
        yield started


@pytest.fixture(scope="module", params=["aiokafka", "kafka-python"])
def other_reader(request: pytest.FixtureRequest) -> Iterator[RunningTestee]:
    with running(request.param) as started:
        yield started


def test_each_version_runs_the_library_it_was_built_for() -> None:
    for version in RELEASES:
        with running("kafka-clients", version) as testee:
            assert testee.handshake == {
                "protocol": "kfuzz-testee/1",
                "name": "kafka-clients",
                "version": version,
                "language": "java",
                "operations": [
                    "decode-records",
                    "encode-records",
                    "decode-stream",
                    "append-stream",
                    "decode-message",
                    "encode-message",
                    "decode-primitive",
                    "encode-primitive",
                ],
                "roles": ["consumer", "broker", "log"],
                "magic": [0, 1, 2],
                "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
                "checks_crc": True,
                "control": "shown",
                # Its classes say the same of themselves as the definitions in its jar.
                "messages": {
                    definition.name: [definition.valid_versions.lowest, definition.valid_versions.highest]
                    for definition in catalogue(version).messages.values()
                    if definition.kind in ("request", "response", "header") and definition.valid_versions
                },
                "primitives": list(PRIMITIVES),
            }


# Reading


@pytest.mark.parametrize("name", VALID)
def test_a_valid_batch_is_read_whole(testee: RunningTestee, name: str) -> None:
    data, holds = VALID[name]
    answer = testee.decode(data)
    assert (answer["outcome"], answer["consumed"], answer["batches"]) == ("accepted", len(data), [holds])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_compressed_batch_is_read(testee: RunningTestee, codec: int) -> None:
    (found,) = testee.decode(of_magic_2(COMPRESSED[codec], count=1, attributes=codec))["batches"]
    assert found["records"] == [record(7)]


@pytest.mark.parametrize("name", VALID)
def test_a_wrong_crc_is_rejected(testee: RunningTestee, name: str) -> None:
    data = VALID[name][0]
    answer = testee.decode(data[:-1] + bytes([data[-1] ^ 1]))
    assert answer["outcome"] == "rejected"
    assert answer["error"].startswith("CorruptRecordException: Record is corrupt")


def test_the_crc_of_a_legacy_wrapper_is_left_alone_as_the_consumer_leaves_it(testee: RunningTestee) -> None:
    encoded = testee.encode(batch([record(7), record(8)], magic=1, compression="gzip"))
    wrapper = bytearray.fromhex(encoded["hex"])
    wrapper[12] ^= 0xFF
    (found,) = testee.decode(bytes(wrapper))["batches"]
    assert found["records"] == [record(7), record(8)]


def test_good_batches_before_a_bad_one_are_reported(testee: RunningTestee) -> None:
    answer = testee.decode(V2 + V1 + V2[:-1] + b"\x7f" + V2)
    assert answer["outcome"] == "rejected"
    assert [b["magic"] for b in answer["batches"]] == [2, 1]


@pytest.mark.parametrize("garbage", [b"\x00" * 64, b"\xff" * 64], ids=["length-0", "length-negative"])
def test_garbage_whose_length_cannot_be_is_rejected(testee: RunningTestee, garbage: bytes) -> None:
    answer = testee.decode(V2 + garbage)
    assert answer["outcome"] == "rejected"
    assert answer["error"].startswith("CorruptRecordException: Record size")
    assert answer["batches"] == [V2_HOLDS]


def test_garbage_whose_length_could_be_is_a_partial_tail_until_its_magic_shows(testee: RunningTestee) -> None:
    garbage = b"kfuzz was here, no batch"
    answer = testee.decode(V2 + garbage[:16])
    assert (answer["outcome"], answer["consumed"], answer["batches"]) == ("accepted", len(V2), [V2_HOLDS])
    assert testee.decode(V2 + garbage)["error"] == "CorruptRecordException: Invalid magic found in record: 110"


@pytest.mark.parametrize("cut", [1, len(V2) - 61, len(V2) - 13])
def test_a_partial_tail_is_accepted_without_its_batch(testee: RunningTestee, cut: int) -> None:
    answer = testee.decode(V2 + V2[:-cut])
    assert (answer["outcome"], answer["consumed"], answer["batches"]) == ("accepted", len(V2), [V2_HOLDS])


def test_a_header_key_that_is_not_utf_8_is_reported_as_kafka_shows_it(testee: RunningTestee) -> None:
    (found,) = testee.decode(of_magic_2(bytes.fromhex("14 00 00 00 01 01 02 02 ff 02 00"), count=1))["batches"]
    assert found["records"][0]["headers"] == [["\N{REPLACEMENT CHARACTER}", "00"]]


@pytest.mark.parametrize(
    ("codec", "payload", "outcome"),
    [
        (GZIP, b"", "rejected"),
        (GZIP, b"\xff" * 20, "rejected"),
        (GZIP, COMPRESSED[GZIP][:10], "accepted"),
        (GZIP, COMPRESSED[GZIP], "accepted"),
        (SNAPPY, b"", "rejected"),
        (SNAPPY, b"\xff" * 20, "rejected"),
        (SNAPPY, COMPRESSED[SNAPPY][:16], "accepted"),
        (SNAPPY, COMPRESSED[SNAPPY], "accepted"),
        (LZ4, b"", "rejected"),
        (LZ4, b"\xff" * 20, "rejected"),
        (LZ4, COMPRESSED[LZ4][:7], "rejected"),
        (LZ4, COMPRESSED[LZ4], "accepted"),
        (ZSTD, b"", "accepted"),
        (ZSTD, b"\xff" * 20, "accepted"),
        (0, ONE_RECORD, "accepted"),
    ],
)
def test_a_batch_of_no_records_still_opens_its_stream(
    testee: RunningTestee, codec: int, payload: bytes, outcome: str
) -> None:
    """gzip, snappy and lz4 read the head of their stream when it is opened; zstd reads nothing until it is asked."""
    answer = testee.decode(of_magic_2(payload, count=0, attributes=codec))
    assert answer["outcome"] == outcome
    assert all(not found["records"] for found in answer.get("batches", []))


@pytest.mark.parametrize(
    ("codec", "tail", "outcome"),
    [
        (GZIP, b"\xff" * 5, "accepted"),
        (GZIP, b"\x00" * 4, "accepted"),
        (LZ4, b"\xff" * 5, "accepted"),
        (ZSTD, b"\xff" * 5, "rejected"),
        (ZSTD, b"\x00" * 4, "rejected"),
        (SNAPPY, b"\x00" * 4, "rejected"),
        (SNAPPY, b"\xff" * 5, "fault"),  # SnappyError, an Error that no caller is told to expect
    ],
)
def test_bytes_after_the_compressed_stream(testee: RunningTestee, codec: int, tail: bytes, outcome: str) -> None:
    assert testee.decode(of_magic_2(COMPRESSED[codec] + tail, count=1, attributes=codec))["outcome"] == outcome


def test_a_further_snappy_header_is_known_by_four_bytes_and_its_other_twelve_are_skipped(testee: RunningTestee) -> None:
    header = bytes.fromhex("82534e41") + b"twelve bytes"
    second = bytes.fromhex("0000000b 0920 10 00 00 02 02 6b 02 76 00")
    found = testee.decode(of_magic_2(COMPRESSED[SNAPPY] + header + second, count=2, attributes=SNAPPY))["batches"]
    assert found[0]["records"] == [record(7), record(8)]


@pytest.mark.parametrize("codec", [5, 6, 7])
@pytest.mark.parametrize("count", [0, 1])
def test_an_exception_that_kafka_does_not_declare_is_a_fault(testee: RunningTestee, codec: int, count: int) -> None:
    answer = testee.decode(of_magic_2(ONE_RECORD * count, count=count, attributes=codec))
    assert answer["outcome"] == "fault"
    assert answer["error"] == f"IllegalArgumentException: Unknown compression type id: {codec}"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_record_length_of_int_max_exhausts_memory_in_3_9_and_is_rejected_in_4_4(
    testee: RunningTestee, codec: int
) -> None:
    stream = {GZIP: gzip.compress, LZ4: lz4.frame.compress, ZSTD: zstandard.compress}.get(codec, bytes)
    payload = b"\xfe\xff\xff\xff\x0f" + ONE_RECORD[1:]
    if codec == SNAPPY:
        payload = bytes.fromhex("82534e41505059 00 00000001 00000001 0000000f 0d30") + payload
    answer = testee.decode(of_magic_2(stream(payload), count=1, attributes=codec))
    if testee.handshake["version"] == KAFKA_3:
        assert answer["outcome"] == "fault"
        assert answer["error"].startswith("OutOfMemoryError")
    else:
        assert answer["outcome"] == "rejected"
        assert answer["error"].startswith("InvalidRecordException: Invalid record size: 2147483647")
    assert testee.decode(V2)["outcome"] == "accepted", "and the testee lives on"


def test_an_allocation_by_a_hostile_length_is_counted(testee: RunningTestee) -> None:
    hundred_mb = bytes.fromhex("80a8d65f") + ONE_RECORD[1:]  # zigzag varint of 100,000,000
    answer = testee.decode(of_magic_2(gzip.compress(hundred_mb), count=1, attributes=GZIP))
    assert answer["outcome"] == "rejected"
    assert answer["allocated_bytes"] > 100_000_000
    assert testee.decode(V2)["allocated_bytes"] < 1_000_000


# Writing


def _both_records(magic: int) -> list[dict[str, Any]]:
    timestamp = None if magic == 0 else "1700000000000"
    return [record(7, timestamp=timestamp), record(9, timestamp=timestamp, key=None)]


ENCODABLE = {
    f"v{magic}-{codec}": batch(_both_records(magic), magic=magic, compression=codec)
    for magic in (0, 1, 2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    if not (magic < 2 and codec in ("none", "zstd"))
} | {
    "v0": VALID["v0"][1],
    "v1": VALID["v1"][1],
    "v1-log-append": batch([record(7)], magic=1, timestamp_type="log-append"),
    "v2-headers": V2_HOLDS,
    "v2-log-append": batch([record(7), record(8)], timestamp_type="log-append"),
    "v2-gaps": batch([record(7), record(9)], base_offset="5", last_offset="12"),
    "v2-transactional": batch([record(7)], transactional=True, producer_id="1", producer_epoch=3, base_sequence=0),
    "v2-control": V2_COMMIT_HOLDS,
    "v2-leader-change": batch([record(7, key="00000002")], control=True),
    "v2-delete-horizon": batch(
        [record(7)], delete_horizon="1700000009999", producer_id="1", producer_epoch=0, base_sequence=0
    ),
    "v2-compacted-empty": batch(
        [], base_offset="5", last_offset="12", producer_id="1", producer_epoch=3, base_sequence=0
    ),
}


@pytest.mark.parametrize("name", ENCODABLE)
def test_kafka_reads_its_own_batches_as_they_were_requested(testee: RunningTestee, name: str) -> None:
    encoded = testee.encode(ENCODABLE[name], ENCODABLE[name])
    assert encoded["outcome"] == "accepted"
    assert testee.decode(bytes.fromhex(encoded["hex"]))["batches"] == [ENCODABLE[name]] * 2


@pytest.mark.parametrize("name", VALID)
def test_kafka_writes_the_bytes_that_were_made_by_hand(testee: RunningTestee, name: str) -> None:
    data, holds = VALID[name]
    assert testee.encode(holds)["hex"] == data.hex()


@pytest.mark.parametrize("name", ENCODABLE)
def test_other_readers_agree_on_what_kafka_wrote(testee: RunningTestee, other_reader: RunningTestee, name: str) -> None:
    answer = other_reader.decode(bytes.fromhex(testee.encode(ENCODABLE[name])["hex"]))
    if (other_reader.handshake["name"], name) == ("aiokafka", "v0-lz4"):
        assert answer["error"].startswith("UnsupportedCodecError")
        return
    (found,) = answer["batches"]
    assert found == {field: ENCODABLE[name][field] for field in found}


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (batch([record(7)], magic=3), "magic"),
        (batch([record(7), record(8)], magic=1), "one record"),
        (batch([], magic=1), "no empty batch"),
        (batch([], compression="gzip"), "empty batch"),
        (batch([record(7)], magic=1, compression="gzip", last_offset="9"), "offsets"),
        (batch([record(7)], magic=1, partition_leader_epoch=5), "leader epoch"),
        (batch([record(7, timestamp=None)], magic=0, timestamp_type="create"), "timestamp type"),
        (batch([record(7, timestamp=None)]), "timestamp"),
        (batch([record(7), record(8, timestamp="1")], timestamp_type="log-append"), "one timestamp"),
        (batch([record(7)], delete_horizon="-2"), "delete horizon"),
        (batch([record(7, key=None)], control=True), "key"),
        (batch([record(7, headers=[[{"hex": "ff"}, None]])]), "header keys"),
        (batch([record(7, value=LARGE_VALUE)]), "digest"),
    ],
)
def test_requests_beyond_kafkas_builder_are_unsupported(
    testee: RunningTestee, wish: dict[str, Any], reason: str
) -> None:
    answer = testee.encode(wish)
    assert answer["outcome"] == "unsupported"
    assert reason in answer["error"]


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (batch([record(7), record(7)]), "IllegalArgumentException: Illegal offset 7"),
        (batch([record(7, timestamp="-2")]), "IllegalArgumentException: Invalid negative timestamp -2"),
        (batch([record(7)], transactional=True), "IllegalArgumentException: Cannot write transactional messages"),
        (batch([record(7)], magic=1, compression="zstd"), "IllegalArgumentException: ZStandard"),
        (batch([record(7, headers=[["h", None]])], magic=1), "IllegalArgumentException: Magic v1"),
        (batch([record(7, key="00000063")], control=True), "IllegalArgumentException: Cannot append record"),
        (batch([record(7, key="0000")], control=True), "InvalidRecordException: Invalid value size"),
    ],
)
def test_requests_that_kafkas_builder_refuses_are_rejected(
    testee: RunningTestee, wish: dict[str, Any], error: str
) -> None:
    answer = testee.encode(wish)
    assert answer["outcome"] == "rejected"
    assert answer["error"].startswith(error)


@pytest.mark.parametrize(
    "request_fields",
    [
        {},
        {"operation": "encode-records", "batches": [{"records": [], "magic": 300}]},
        {"operation": "encode-records", "batches": [{"records": [{"offset": 7, "headers": []}]}]},
    ],
)
def test_a_bad_request_is_a_fault(testee: RunningTestee, request_fields: dict[str, Any]) -> None:
    answer = testee.ask(**request_fields)
    assert answer["outcome"] == "fault"
    assert answer["error"].startswith("BadRequest")
    assert testee.decode(V2)["outcome"] == "accepted"
