"""A dump's words for each byte of a message, and of the record batches inside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfuzz import records
from kfuzz.annotate.messages import Annotation, annotate
from kfuzz.annotate.parts import Part
from kfuzz.annotate.records import annotate as annotate_records
from kfuzz.errors import UsageError
from kfuzz.kafka import KAFKA_3
from kfuzz.messages import parse_definition
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import check, encode
from kfuzz.messages.sample import filled
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.message import scrambled
from kfuzz.records import Codec, Record, RecordBatch

ALL = [(definition, version) for definition in catalogue().messages.values() for version in definition.valid_versions]
PARTITIONS = "FetchResponse.responses[0].partitions"


def batch(codec: Codec = "none", offset: int = 7) -> bytes:
    return records.encode([RecordBatch(offset, offset, [Record(offset, 1, b"inside", b"v" * 60)], compression=codec)])


def fetch(*fields: bytes | None) -> bytes:
    """A Fetch response with these records, a partition each."""
    partitions = [{"partitionIndex": i, "highWatermark": 9, "records": field} for i, field in enumerate(fields)]
    return encode("FetchResponse", 17, {"responses": [{"topicId": bytes(range(16)), "partitions": partitions}]})


def said(message: str, version: int, data: bytes) -> list[tuple[str, str, str]]:
    """Where, what and as what: each part but headings."""
    parts = annotate(message, version, data).parts
    return [(part.path.removeprefix(message), part.field, part.value) for part in parts if not part.heading]


def of_buffer(made: Annotation) -> list[Part]:
    """The parts with bytes that are not of a decompressed payload."""
    return [part for part in made.parts if part.data and not part.payload]


def assert_each_byte_once(made: Annotation, data: bytes) -> None:
    parts = of_buffer(made)
    assert b"".join(part.data for part in parts) == data
    ends = [part.at + len(part.data) for part in parts]
    assert [part.at for part in parts] == [0, *ends][: len(ends)]


def test_every_byte_of_any_input_is_in_one_part() -> None:
    dice = Dice(5)
    refused = 0
    for definition, version in ALL:
        good = encode(definition, version, filled(definition, version, 2))
        for data in (good, *(scrambled(good, dice) for _ in range(2))):
            made = annotate(definition, version, data)
            assert_each_byte_once(made, data)
            assert made.reading == check(definition, version, data)
            refused += made.reading.fatal is not None
    assert refused > 300


def test_a_flexible_request_in_words() -> None:
    values = {
        "topics": [{"topicId": bytes(15) + b"\xff", "partitions": []}],
        "replicaState": {"replicaId": 3, "replicaEpoch": 4},
        "_unknownTaggedFields": [(9, b"\x01\x02"), (10, b"abc")],
    }
    data = encode("Fetch", 15, values)
    assert said("FetchRequest", 15, data)[6:] == [
        ("", "topics", "1 element"),
        (".topics[0]", "topicId", "AAAAAAAAAAAAAAAAAAAA_w"),
        (".topics[0]", "partitions", "0 elements"),
        (".topics[0]", "tag count", "0"),
        ("", "forgottenTopicsData", "0 elements"),
        ("", "rackId length", "0 bytes"),
        ("", "tag count", "3"),
        ("", "tag", "1 replicaState"),
        ("", "tag size", "13 bytes"),
        (".replicaState", "replicaId", "3"),
        (".replicaState", "replicaEpoch", "4"),
        (".replicaState", "tag count", "0"),
        ("", "tag", "9 unknown"),
        ("", "tag size", "2 bytes"),
        ("", "_unknownTaggedFields[9]", "2 bytes"),
        ("", "tag", "10 unknown"),
        ("", "tag size", "3 bytes"),
        ("", "_unknownTaggedFields[10]", "'abc'"),
    ]


def test_texts_and_nulls_of_a_request_that_is_not_flexible() -> None:
    topic = {"name": "t" * 60, "partitionData": [{"index": 0, "records": None}]}
    data = encode("Produce", 3, {"transactionalId": None, "acks": -1, "timeoutMs": 5, "topicData": [topic]})
    assert said("ProduceRequest", 3, data) == [
        ("", "transactionalId", "null"),
        ("", "acks", "-1"),
        ("", "timeoutMs", "5"),
        ("", "topicData", "1 element"),
        (".topicData[0]", "name length", "60 bytes"),
        (".topicData[0]", "name", f"'{'t' * 48}'…"),
        (".topicData[0]", "partitionData", "1 element"),
        (".topicData[0].partitionData[0]", "index", "0"),
        (".topicData[0].partitionData[0]", "records", "null"),
    ]


@pytest.mark.parametrize(
    ("message", "version", "values", "words"),
    [
        ("DescribeTopicPartitionsRequest", 0, {"cursor": None}, ("", "cursor", "null")),
        ("DescribeTopicPartitionsRequest", 0, {"cursor": {"topicName": "t"}}, ("", "cursor", "present")),
        ("DescribeTopicPartitionsRequest", 0, {"cursor": {"topicName": "t"}}, (".cursor", "topicName", "'t'")),
        ("MetadataRequest", 12, {"topics": None}, ("", "topics", "null")),
        ("MetadataRequest", 12, {"allowAutoTopicCreation": False}, ("", "allowAutoTopicCreation", "false")),
        ("FindCoordinatorRequest", 4, {"coordinatorKeys": ["a", "bc"]}, ("", "coordinatorKeys[1] length", "2 bytes")),
        ("FindCoordinatorRequest", 4, {"coordinatorKeys": ["a", "bc"]}, ("", "coordinatorKeys[1]", "'bc'")),
        ("RequestHeader", 2, {"clientId": "\u00fc"}, ("", "clientId length", "2 bytes")),
        (
            "JoinGroupRequest",
            9,
            {"protocols": [{"name": "p", "metadata": b"\0"}]},
            (".protocols[0]", "metadata", "1 bytes"),
        ),
    ],
)
def test_each_part_of_a_message_names_its_field_and_value(
    message: str, version: int, values: dict[str, object], words: tuple[str, str, str]
) -> None:
    assert words in said(message, version, encode(message, version, values))


@pytest.mark.parametrize(("head", "version"), [("fffb", 3), ("8180808008", 9)])
def test_a_length_below_null_is_null(head: str, version: int) -> None:
    """As an int16, and as the largest that a compact one is sent as."""
    made = annotate("ProduceRequest", version, bytes.fromhex(head))
    assert (made.parts[1].field, made.parts[1].value) == ("transactionalId", "null")
    assert made.findings[0].code == "length-below-minus-one"


def test_structs_have_headings_once_and_in_order() -> None:
    made = annotate("FetchResponse", 17, fetch(None, None))
    assert [(part.path, part.value) for part in made.parts if part.heading] == [
        ("FetchResponse", "version 17"),
        ("FetchResponse.responses[0]", "FetchableTopicResponse"),
        (f"{PARTITIONS}[0]", "PartitionData"),
        (f"{PARTITIONS}[1]", "PartitionData"),
    ]


def test_of_structs_that_begin_together_the_outer_ones_heading_comes_first() -> None:
    definition = parse_definition(
        """{ "name": "BoxData", "type": "data", "validVersions": "0", "flexibleVersions": "none", "fields": [
          { "name": "Boxes", "type": "[]Box", "versions": "0+", "fields": [
            { "name": "Lid", "type": "Lid", "versions": "0+", "fields": [
              { "name": "Weight", "type": "int8", "versions": "0+" }]}]}]}""",
        "box.json",
    )
    made = annotate(definition, 0, encode(definition, 0, {"boxes": [{"lid": {"weight": 5}}]}))
    assert [(part.path, part.at) for part in made.parts if part.heading][1:] == [
        ("BoxData.boxes[0]", 4),
        ("BoxData.boxes[0].lid", 4),
    ]


# ------------------------------------------------------------------------------------------------- records inside


@pytest.mark.parametrize("codec", records.CODECS)
def test_batches_are_shown_as_those_of_a_file_are(codec: Codec) -> None:
    inside = batch(codec) + batch(offset=8)
    data = fetch(None, inside)
    made = annotate("FetchResponse", 17, data)
    under, at = f"{PARTITIONS}[1].records.", data.index(inside)
    shown = [
        replace(part, path=part.path.removeprefix(under), at=part.at if ".payload" in part.path else part.at - at)
        for part in made.parts
        if part.path.startswith(under)
    ]
    assert shown == list(annotate_records(inside))
    assert_each_byte_once(made, data)
    assert (made.findings, [one.record_count for one in made.records]) == ([], [2])


def test_findings_of_records_stand_where_they_are_in_the_message() -> None:
    wrong_crc = bytearray(batch())
    wrong_crc[-1] ^= 1
    record = Record(0, 1, None, b"v" * 60, attributes=1)
    deviant = records.encode([RecordBatch(0, 0, [record], compression="gzip")])
    data = fetch(batch(), bytes(wrong_crc), deviant)
    made = annotate("FetchResponse", 17, data)
    assert made.reading.fatal is None
    assert [(finding.code, finding.path) for finding in made.findings] == [
        ("crc-mismatch", f"{PARTITIONS}[1].records.batch[0].crc"),
        ("record-attributes-nonzero", f"{PARTITIONS}[2].records.batch[0].payload.records[0].attributes"),
    ]
    assert made.findings[0].at == data.index(wrong_crc) + 17
    # In the decompressed payload, after a length of two bytes.
    assert made.findings[1].at == 2
    assert [one.fatal is None for one in made.records] == [True, False, True]
    strict = annotate("FetchResponse", 17, data, profile="strict")
    assert [finding.severity for finding in strict.findings] == ["fatal", "fatal"]


def test_broken_batches_are_shown_as_far_as_they_go() -> None:
    for broken in (batch()[:30], b"no batch, to be sure", batch("zstd")[:-5] + b"wrong", batch() + bytes(20)):
        data = fetch(broken, batch())
        made = annotate("FetchResponse", 17, data)
        assert_each_byte_once(made, data)
        assert made.reading.fatal is None
        assert f"{PARTITIONS}[1].records.batch[0].records[0]" in [part.path for part in made.parts]


def test_so_many_batches_of_each_field_are_shown() -> None:
    data = fetch(batch() + batch(offset=8) + batch(offset=9), batch() + batch(offset=8))
    made = annotate("FetchResponse", 17, data, batches=2)
    headings = [(part.path, part.value) for part in made.parts if part.heading and part.field == ""]
    size = len(batch())
    assert [(path, value) for path, value in headings if path.rpartition(".")[2].startswith("batch[")] == [
        (f"{PARTITIONS}[0].records.batch[0]", f"magic 2, {size} bytes"),
        (f"{PARTITIONS}[0].records.batch[1]", f"magic 2, {size} bytes"),
        (f"{PARTITIONS}[0].records.batch[2]", f"{size} bytes, not shown"),
        (f"{PARTITIONS}[1].records.batch[0]", f"magic 2, {size} bytes"),
        (f"{PARTITIONS}[1].records.batch[1]", f"magic 2, {size} bytes"),
    ]
    # A batch that is not shown is judged all the same.
    assert [one.batch_count for one in made.records] == [3, 2]


# ------------------------------------------------------------------------------------------------- what is not read


@pytest.mark.parametrize(
    ("data", "at", "value", "code"),
    [
        ("", 0, "nothing is left", "message-cut"),
        ("066b66757a7a0231", 8, "nothing is left", "message-cut"),
        ("066b66757a7a023180", 8, "1 bytes, not read", "message-cut"),
        ("066b66757a7a7f3100", 6, "3 bytes, not read", "length-exceeds-message"),
        ("066b66757a7a02310061ff", 9, "2 bytes after the message", "bytes-after-message"),
    ],
)
def test_bytes_after_the_fault_are_the_last_part(data: str, at: int, value: str, code: str) -> None:
    made = annotate("ApiVersionsRequest", 3, bytes.fromhex(data))
    last = made.parts[-1]
    assert (last.path, last.field, last.at, last.value) == ("ApiVersionsRequest", "rest", at, value)
    assert last.data == bytes.fromhex(data)[at:]
    assert [finding.code for finding in made.findings] == [code]


def test_a_message_that_is_whole_ends_with_its_last_field() -> None:
    assert annotate("ApiVersionsRequest", 3, bytes.fromhex("066b66757a7a023100")).parts[-1].field == "tag count"


def test_strict_shows_all_that_is_read_though_it_refuses() -> None:
    data = bytes.fromhex("066b66757a7a02310061")
    made = annotate("ApiVersionsRequest", 3, data, profile="strict")
    assert made.reading.fatal is not None
    assert made.parts == annotate("ApiVersionsRequest", 3, data).parts


def test_the_definitions_of_another_release() -> None:
    definition = catalogue(KAFKA_3).find("ControlledShutdown")
    assert [part.field for part in annotate(definition, 0, bytes(4)).parts] == ["", "brokerId"]
    with pytest.raises(UsageError, match="has no version 0"):
        annotate("ControlledShutdown", 0, bytes(4))
    with pytest.raises(UsageError, match="has no version 9"):
        annotate(definition, 9, bytes(4))
