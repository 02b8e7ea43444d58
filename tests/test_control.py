"""Control records: their layouts, what is refused, and Apache Kafka's own classes as the judge of both."""

from __future__ import annotations

import base64
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_tools import ask_all
from testee_driver import RunningTestee

from kfuzz import records
from kfuzz.control import (
    ControlRecord,
    ControlRecordKey,
    ControlRecordType,
    Endpoint,
    EndTransactionMarker,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TaggedField,
    Voter,
    VotersRecord,
    decode_control,
    encode_control,
)
from kfuzz.errors import EncodeError, RecordsError
from kfuzz.findings import Finding
from kfuzz.messages import codec
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.sample import filled
from kfuzz.mutate.dice import Dice
from kfuzz.vectors import load_suite

DIRECTORY = bytes(range(16))

# One record of each type, and the bytes of its value worked out by hand from the message definitions.
KNOWN = [
    (ControlRecordType.ABORT, EndTransactionMarker(5), "0000 00000005"),
    (ControlRecordType.COMMIT, EndTransactionMarker(-1), "0000 ffffffff"),
    (
        ControlRecordType.LEADER_CHANGE,
        LeaderChangeMessage(3, (LeaderChangeVoter(1), LeaderChangeVoter(3)), (LeaderChangeVoter(3),)),
        "0000 00000003 03 00000001 00 00000003 00 02 00000003 00 00",
    ),
    (
        ControlRecordType.LEADER_CHANGE,
        LeaderChangeMessage(3, (LeaderChangeVoter(1, DIRECTORY),), version=1),
        f"0001 00000003 02 00000001 {DIRECTORY.hex()} 00 01 00",
    ),
    (ControlRecordType.SNAPSHOT_HEADER, SnapshotHeaderRecord(1_700_000_000_000), "0000 0000018bcfe56800 00"),
    (
        ControlRecordType.SNAPSHOT_FOOTER,
        SnapshotFooterRecord(tagged_fields=(TaggedField(1, b"ab"), TaggedField(300, b""))),
        "0000 02 01 02 6162 ac02 00",
    ),
    (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(1), "0000 0001 00"),
    (
        ControlRecordType.KRAFT_VOTERS,
        VotersRecord((Voter(2, DIRECTORY, (Endpoint("C", "h", 65535),), KRaftVersionFeature(0, 1)),)),
        f"0000 02 00000002 {DIRECTORY.hex()} 02 02 43 02 68 ffff 00 0000 0001 00 00 00",
    ),
]


def read_or_refused(key: bytes, value: bytes) -> ControlRecord | Finding:
    try:
        return decode_control(key, value)
    except RecordsError as error:
        return error.finding


def record_of(kind: ControlRecordType, value: Any) -> ControlRecord:
    return ControlRecord(ControlRecordKey(kind), value)


@pytest.mark.parametrize(("kind", "value", "data"), KNOWN, ids=lambda part: getattr(part, "name", ""))
def test_each_type_is_read_and_written_in_its_layout(kind: ControlRecordType, value: Any, data: str) -> None:
    key = b"\0\0" + int(kind).to_bytes(2, "big")
    assert encode_control(record_of(kind, value)) == (key, bytes.fromhex(data))
    assert decode_control(key, bytes.fromhex(data)) == record_of(kind, value)


def test_every_type_is_known_by_hand() -> None:
    assert {kind for kind, _, _ in KNOWN} == set(ControlRecordType)


@pytest.mark.parametrize(("kind", "value", "data"), KNOWN, ids=lambda part: getattr(part, "name", ""))
def test_every_cut_of_a_value_is_refused_at_a_place_inside_it(kind: ControlRecordType, value: Any, data: str) -> None:
    whole = bytes.fromhex(data)
    for size in range(len(whole)):
        with pytest.raises(RecordsError) as caught:
            decode_control(b"\0\0" + int(kind).to_bytes(2, "big"), whole[:size])
        finding = caught.value.finding
        assert finding.code == "control-value-invalid"
        assert finding.path.startswith("value")
        assert 0 <= finding.at <= size


@pytest.mark.parametrize("kind", list(ControlRecordType), ids=lambda kind: kind.name)
@pytest.mark.parametrize("value", [b"", b"\5", b"\xff"])
def test_a_value_without_a_version_is_refused(kind: ControlRecordType, value: bytes) -> None:
    with pytest.raises(
        RecordsError, match=f"value.version at byte 0: 2 bytes are needed here, and {len(value)} are left"
    ):
        decode_control(b"\0\0" + int(kind).to_bytes(2, "big"), value)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0\0", b"\xff\xff\0\0", None])
def test_a_key_without_a_version_from_0_and_a_type_is_refused(key: bytes | None) -> None:
    with pytest.raises(RecordsError, match="control-key-invalid"):
        decode_control(key, b"")


def test_a_later_key_keeps_the_bytes_that_follow_the_type() -> None:
    record = decode_control(bytes.fromhex("0001 0001 beef"), bytes.fromhex("0000 00000001"))
    assert record.key == ControlRecordKey(ControlRecordType.COMMIT, 1, b"\xbe\xef")
    assert encode_control(record)[0] == bytes.fromhex("0001 0001 beef")


@pytest.mark.parametrize("value", [b"", b"anything", None])
def test_the_value_of_an_unknown_type_stays_bytes(value: bytes | None) -> None:
    record = decode_control(bytes.fromhex("0000 0007"), value)
    assert record.value == value
    assert encode_control(record) == (bytes.fromhex("0000 0007"), value)


@pytest.mark.parametrize(("kind", "version"), [(2, 2), (3, 1), (4, 1), (5, 1), (6, 32767)])
def test_the_value_of_a_later_version_stays_bytes(kind: int, version: int) -> None:
    key, value = b"\0\0" + kind.to_bytes(2, "big"), version.to_bytes(2, "big") + b"whatever"
    record = decode_control(key, value)
    assert record.value == value
    assert encode_control(record) == (key, value)


def test_a_later_marker_is_read_as_version_0_and_keeps_its_rest() -> None:
    value = bytes.fromhex("0003 00000009 cafe")
    record = decode_control(bytes.fromhex("0000 0000"), value)
    assert (record.value, record.rest) == (EndTransactionMarker(9, version=3), b"\xca\xfe")
    assert encode_control(record)[1] == value


@pytest.mark.parametrize("kind", list(ControlRecordType), ids=lambda kind: kind.name)
def test_a_known_type_has_a_value_of_a_version_from_0(kind: ControlRecordType) -> None:
    key = b"\0\0" + int(kind).to_bytes(2, "big")
    with pytest.raises(RecordsError, match="null"):
        decode_control(key, None)
    with pytest.raises(RecordsError, match="must be 0 or more"):
        decode_control(key, b"\xff\xff" + bytes(40))


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        (2, "0000 00000003 00 01 00", "null"),
        (2, "0000 00000003 ffffffff0f 01 00", "null"),
        (2, "0000 00000003 7f 01 00", "the array has 126 elements, and 2 bytes are left"),
        (3, "0000 0000018bcfe56800 ffffffff0f", "there are 4294967295 tagged fields, and 0 bytes are left"),
        (3, "0000 0000018bcfe56800 05", "5 tagged fields"),
        (3, "0000 0000018bcfe56800 01 01 ffffffff0f", "the tagged field has 4294967295 bytes, and 0 are left"),
        (3, "0000 0000018bcfe56800 808080808000", "the varint takes 6 bytes or more; at most 5 are allowed"),
        (6, f"0000 02 00000002 {DIRECTORY.hex()} 02 00 02 68 ffff 00 0000 0001 00 00 00", "null"),
        (
            6,
            f"0000 02 00000002 {DIRECTORY.hex()} 02 818002 {'61' * 32768}",
            "the text takes 32768 bytes; at most 32767 are allowed",
        ),
    ],
)
def test_values_that_kafka_refuses_are_refused(kind: int, data: str, says: str) -> None:
    with pytest.raises(RecordsError, match=re.escape(says)):
        decode_control(b"\0\0" + kind.to_bytes(2, "big"), bytes.fromhex(data))


def test_excess_bits_of_a_varint_are_dropped_as_in_java() -> None:
    value = bytes.fromhex("0000 00000003 8180808070 01 00")
    assert decode_control(b"\0\0\0\x02", value).value == LeaderChangeMessage(3)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (KRaftVersionRecord(1 << 15), "value.kraft_version is 32768; it does not fit int16"),
        (SnapshotFooterRecord(1), "has versions 0 to 0"),
        (
            SnapshotFooterRecord(tagged_fields=(TaggedField(2, b""), TaggedField(2, b""))),
            "tag 2 comes after tag 2; give tags in ascending order",
        ),
        (SnapshotFooterRecord(tagged_fields=(TaggedField((1 << 31) - 1, b""),)), "tags go from 0 to 2147483646"),
        (LeaderChangeMessage(1, (LeaderChangeVoter(1, DIRECTORY),)), "voters[0].voter_directory_id is b"),
        (VotersRecord((Voter(1, b"short", (), KRaftVersionFeature(0, 0)),)), "a uuid has 16"),
        (
            VotersRecord((Voter(1, DIRECTORY, (Endpoint("é" * 16384, "", 0),), KRaftVersionFeature(0, 0)),)),
            "takes 32768 bytes",
        ),
        (
            VotersRecord((Voter(1, DIRECTORY, (Endpoint("", "", -1),), KRaftVersionFeature(0, 0)),)),
            "endpoints[0].port is -1; it does not fit uint16",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused_before_it_is_written(value: Any, says: str) -> None:
    kinds = {KRaftVersionRecord: 5, SnapshotFooterRecord: 4, LeaderChangeMessage: 2, VotersRecord: 6}
    with pytest.raises(EncodeError, match=re.escape(says)):
        encode_control(record_of(ControlRecordType(kinds[type(value)]), value))


def test_a_value_of_another_type_than_the_keys_is_refused() -> None:
    with pytest.raises(EncodeError, match="type 1 cannot have a value of class SnapshotFooterRecord"):
        encode_control(record_of(ControlRecordType.COMMIT, SnapshotFooterRecord()))


# ------------------------------------------------------------------------------------------------- any values

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
UUID = st.binary(min_size=16, max_size=16)
TEXT = st.text(max_size=20)
TAGGED = st.dictionaries(st.integers(0, (1 << 31) - 2), st.binary(max_size=9), max_size=3).map(
    lambda found: tuple(TaggedField(*pair) for pair in sorted(found.items()))
)


@pytest.mark.parametrize(("kind", "value", "data"), KNOWN, ids=lambda part: getattr(part, "name", ""))
def test_layouts_are_those_of_the_definitions(kind: ControlRecordType, value: Any, data: str) -> None:
    name = "EndTxnMarker" if isinstance(value, EndTransactionMarker) else type(value).__name__
    definition = catalogue().find(name)
    # A marker's version stands in front of it.
    names = {field.name for field in definition.fields}
    for version in definition.valid_versions:
        for seed in range(20):
            values = filled(definition, version, seed) | ({"version": version} if "Version" in names else {})
            written = (b"" if "Version" in names else b"\0\0") + codec.encode(definition, version, values)
            record = decode_control(b"\0\0" + int(kind).to_bytes(2, "big"), written)
            assert not isinstance(record.value, bytes | None)
            assert encode_control(record)[1] == written
    assert isinstance(decode_control(b"\0\0" + int(kind).to_bytes(2, "big"), b"\0\2" + written[2:]).value, bytes) == (
        "Version" in names
    )


def several(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=4).map(tuple)


VOTER_0 = st.builds(LeaderChangeVoter, INT32, tagged_fields=TAGGED)
VOTER_1 = st.builds(LeaderChangeVoter, INT32, UUID, TAGGED)
ENDPOINT = st.builds(Endpoint, TEXT, TEXT, st.integers(0, 65535), TAGGED)
FEATURE = st.builds(KRaftVersionFeature, INT16, INT16, TAGGED)
VALUES = {
    ControlRecordType.ABORT: st.builds(EndTransactionMarker, INT32),
    ControlRecordType.COMMIT: st.builds(EndTransactionMarker, INT32),
    ControlRecordType.LEADER_CHANGE: st.builds(
        LeaderChangeMessage, INT32, several(VOTER_0), several(VOTER_0), st.just(0), TAGGED
    )
    | st.builds(LeaderChangeMessage, INT32, several(VOTER_1), several(VOTER_1), st.just(1), TAGGED),
    ControlRecordType.SNAPSHOT_HEADER: st.builds(
        SnapshotHeaderRecord, st.integers(-(1 << 63), (1 << 63) - 1), tagged_fields=TAGGED
    ),
    ControlRecordType.SNAPSHOT_FOOTER: st.builds(SnapshotFooterRecord, tagged_fields=TAGGED),
    ControlRecordType.KRAFT_VERSION: st.builds(KRaftVersionRecord, INT16, tagged_fields=TAGGED),
    ControlRecordType.KRAFT_VOTERS: st.builds(
        VotersRecord,
        several(st.builds(Voter, INT32, UUID, several(ENDPOINT), FEATURE, TAGGED)),
        tagged_fields=TAGGED,
    ),
}
RECORDS = st.sampled_from(list(ControlRecordType)).flatmap(
    lambda kind: VALUES[kind].map(lambda value: record_of(kind, value))
)


@given(RECORDS, st.binary(max_size=3))
def test_written_control_records_are_read_again(record: ControlRecord, rest: bytes) -> None:
    record = replace(record, rest=rest)
    assert decode_control(*encode_control(record)) == record


@given(st.integers(0, 7), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_by_a_finding(kind: int, value: bytes) -> None:
    key = b"\0\0" + kind.to_bytes(2, "big")
    read = read_or_refused(key, value)
    if isinstance(read, Finding):
        assert read.severity == "fatal"
        assert 0 <= read.at <= len(value)
    else:
        assert read.key.type == kind


# ------------------------------------------------------------------------------------------------- Apache Kafka


def camel(name: str) -> str:
    name = {"kraft_version": "k_raft_version", "kraft_version_feature": "k_raft_version_feature"}.get(name, name)
    return re.sub("_(.)", lambda found: found[1].upper(), name)


def as_kafka(value: Any, version: int) -> Any:
    """The value in the JSON of Kafka's converters, which leave unknown tagged fields out."""
    if is_dataclass(value):
        return {
            camel(field.name): as_kafka(getattr(value, field.name), version)
            for field in fields(value)
            if field.name != "tagged_fields"
            and not (isinstance(value, EndTransactionMarker) and field.name == "version")
            and not (isinstance(value, LeaderChangeVoter) and field.name == "voter_directory_id" and version == 0)
        }
    if isinstance(value, bytes):
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return [as_kafka(part, version) for part in value] if isinstance(value, tuple) else value


def changed(data: bytes, dice: Dice) -> bytes:
    """``data`` with one or two bytes other, gone or new."""
    out = bytearray(data)
    for _ in range(1 + dice.below(2)):
        at = dice.below(max(len(out), 1))
        how = dice.below(3)
        if how == 0 and out:
            out[at] = dice.pick((0, 1, 2, 0x7F, 0x80, 0xFF, dice.below(256)))
        elif how == 1 and out:
            del out[at]
        else:
            out.insert(at, dice.below(256))
    return bytes(out)


def agrees(key: bytes, value: bytes, answer: dict[str, Any]) -> str:
    """Which way kfuzz and Kafka agree about a value of a known type and version; asserts that they do."""
    record = read_or_refused(key, value)
    if isinstance(record, Finding):
        assert answer["outcome"] != "accepted", (str(record), key.hex(), value.hex(), answer)
        return "refused"
    assert answer["outcome"] == "accepted", (record, key.hex(), value.hex(), answer)
    assert not isinstance(record.value, bytes)
    assert record.value is not None
    assert answer["type"] == ControlRecordType(record.key.type).name
    assert answer["message"] == as_kafka(record.value, record.value.version)
    assert answer["left"] == len(record.rest)
    try:
        written = (encode_control(replace(record, rest=b""))[1] or b"").hex()
    except EncodeError:
        written = None
    # Kafka writes a marker as version 0, whatever it read.
    if not isinstance(record.value, EndTransactionMarker):
        assert answer["value"] == written
    return "accepted"


def from_the_suite() -> list[tuple[bytes, bytes]]:
    """Keys and values of the control records in the golden vectors, of the types that Kafka knows."""
    found = [
        (record.key or b"", record.value or b"")
        for vector in load_suite()
        for batch in records.read(vector.data).batches
        for record in batch.records
        if batch.control
    ]
    assert len(found) > 30
    return [(key, value) for key, value in found if len(key) >= 4 and int.from_bytes(key[2:4], "big") < 7]


@pytest.mark.full
@pytest.mark.java
def test_kafka_reads_and_writes_the_same(kafka: RunningTestee) -> None:
    examples: list[ControlRecord] = [record_of(kind, value) for kind, value, _ in KNOWN]

    @given(st.lists(RECORDS, min_size=8, max_size=8))
    def collect(found: list[ControlRecord]) -> None:
        examples.extend(found)

    collect()
    dice = Dice(4)
    whole = [encode_control(record) for record in examples]
    broken = [(key, changed(value or b"", dice)) for key, value in whole for _ in range(3)] + from_the_suite()
    # Versions beyond those that Kafka defines are ours to keep as bytes, and negative ones are ours to refuse.
    broken = [(key, value) for key, value in broken if value[:2] == b"\0\0" or len(value) < 2]

    def request(key: bytes, value: bytes | None) -> dict[str, Any]:
        layout = 1 if key[3] == ControlRecordType.LEADER_CHANGE and value and value[:2] == b"\0\1" else 0
        told = {"key": key.hex(), "value": (value or b"").hex(), "layout": layout}
        return {"operation": "control-records"} | told

    written = ask_all(kafka, [request(*pair) for pair in whole])
    damaged = ask_all(kafka, [request(*pair) for pair in broken])
    for record, (key, value), answer in zip(examples, whole, written, strict=True):
        assert value is not None
        assert agrees(key, value, answer) == "accepted"
        assert (answer["key"], answer["value"]) == (key.hex(), value.hex()), record
    outcomes = [agrees(key, value, answer) for (key, value), answer in zip(broken, damaged, strict=True)]
    assert min(outcomes.count("accepted"), outcomes.count("refused")) > 100
