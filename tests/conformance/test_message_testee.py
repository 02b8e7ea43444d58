"""Apache Kafka's message classes over the testee protocol: bytes to JSON and back, for each message of each version.

The examples are computed by hand from the definitions. The rest is held to the definitions in the jar, as
jar_definitions.py reads them, and to Kafka's own JSON converters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import releases
from jar_definitions import Definition, definitions
from release_counts import COUNTS
from testee_driver import TESTEES, RunningTestee, running

from kfuzz.conformance.protocol.lines import DECODE_MESSAGE, ENCODE_MESSAGE, Answer, parse_answer
from kfuzz.kafka import KAFKA_3, LATEST

pytestmark = pytest.mark.java

Message = dict[str, Any]


class MessageTestee:
    """One kafka-clients, whose every answer is held to the protocol."""

    def __init__(self, testee: RunningTestee, version: str) -> None:
        self._testee = testee
        jars = TESTEES / "kafka-clients" / "target" / version / "lib"
        self.definitions = definitions(sorted(jars.glob("kafka-*.jar")))
        self.version = version

    def decode(self, message: str, version: int, data: str) -> Answer:
        data = data.replace(" ", "")
        return self._ask(DECODE_MESSAGE, message=message, version=version, hex=data)

    def encode(self, message: str, version: int, body: Message) -> Answer:
        return self._ask(ENCODE_MESSAGE, message=message, version=version, body=body)

    def converted(self, message: str, version: int, data: str) -> Message:
        """The bytes in the words of Kafka's own JSON converter."""
        answer = self._testee.ask(operation="convert-message", message=message, version=version, hex=data)
        assert answer["outcome"] == "accepted"
        said: Message = answer["message"]
        return said

    def of_every_version(self) -> Iterator[tuple[Definition, int]]:
        return ((definition, version) for definition in self.definitions.values() for version in definition.versions)

    def _ask(self, operation: str, **fields: Any) -> Answer:
        answer = self._testee.ask(operation=operation, **fields)
        return parse_answer(json.dumps(answer).encode(), id="t", operation=operation)


@pytest.fixture(scope="module", params=releases())
def kafka(request: pytest.FixtureRequest) -> Iterator[MessageTestee]:
    with running("kafka-clients", request.param) as testee:
        yield MessageTestee(testee, request.param)


# By hand

PARTITION = {
    "partition": 1,
    "currentLeaderEpoch": -1,
    "fetchOffset": "4294967296",
    "lastFetchedEpoch": -1,
    "logStartOffset": "-1",
    "partitionMaxBytes": 1048576,
    "replicaDirectoryId": "_____________________w",
}
FETCH_17 = {
    "clusterId": None,
    "replicaState": {"replicaId": -1, "replicaEpoch": "-1"},
    "maxWaitMs": 500,
    "minBytes": 1,
    "maxBytes": 2147483647,
    "isolationLevel": 1,
    "sessionId": 0,
    "sessionEpoch": -1,
    "topics": [{"topicId": "AAECAwQFBgcICQoLDA0ODw", "partitions": [PARTITION]}],
    "forgottenTopicsData": [],
    "rackId": "",
}
FETCH_17_HEX = (
    "000001f4 00000001 7fffffff 01 00000000 ffffffff"
    "02 000102030405060708090a0b0c0d0e0f"
    "02 00000001 ffffffff 0000000100000000 ffffffff ffffffffffffffff 00100000"
    "01 00 10 ffffffffffffffffffffffffffffffff"
    "00 01 01 00"
)
PRODUCE_9 = {
    "transactionalId": "t",
    "acks": -1,
    "timeoutMs": 30000,
    "topicData": [{"name": "a", "partitionData": [{"index": 0, "records": "00ff"}, {"index": 1, "records": None}]}],
}
BY_HAND: dict[str, tuple[str, int, str, Message]] = {
    "no field": ("ApiVersionsRequest", 0, "", {}),
    "flexible": (
        "ApiVersionsRequest",
        3,
        "06 6b66757a7a 02 31 00",
        {"clientSoftwareName": "kfuzz", "clientSoftwareVersion": "1"},
    ),
    "null array": ("MetadataRequest", 1, "ffffffff", {"topics": None}),
    "empty array": ("MetadataRequest", 1, "00000000", {"topics": []}),
    "equal keys": ("MetadataRequest", 1, "00000002 000161 000161", {"topics": [{"name": "a"}, {"name": "a"}]}),
    "tagged fields, present and missing": ("FetchRequest", 17, FETCH_17_HEX, FETCH_17),
    "records": (
        "ProduceRequest",
        9,
        "02 74 ffff 00007530 02 02 61 03 00000000 03 00ff 00 00000001 00 00 00 00",
        PRODUCE_9,
    ),
    "header": ("ResponseHeader", 0, "00000007", {"correlationId": 7}),
    "flexible header": ("ResponseHeader", 1, "00000007 00", {"correlationId": 7}),
    "header whose client id has never been flexible": (
        "RequestHeader",
        2,
        "0012 0003 00000001 0001 63 00",
        {"requestApiKey": 18, "requestApiVersion": 3, "correlationId": 1, "clientId": "c"},
    ),
    "unknown tags": (
        "ResponseHeader",
        1,
        "00000007 02 05 00 8f4e 02 abcd",
        {"correlationId": 7, "_unknownTaggedFields": [{"tag": 5, "hex": ""}, {"tag": 9999, "hex": "abcd"}]},
    ),
    "null struct": (
        "ConsumerGroupHeartbeatResponse",
        0,
        "00000000 0000 00 00 00000000 00001388 ff 00",
        {
            "throttleTimeMs": 0,
            "errorCode": 0,
            "errorMessage": None,
            "memberId": None,
            "memberEpoch": 0,
            "heartbeatIntervalMs": 5000,
            "assignment": None,
        },
    ),
    "uint16 beyond int16": (
        "BeginQuorumEpochResponse",
        1,
        "0000 01 01 00 0a 02 00000001 02 68 ffff 00",
        {"errorCode": 0, "topics": [], "nodeEndpoints": [{"nodeId": 1, "host": "h", "port": 65535}]},
    ),
    "float64": (
        "AlterClientQuotasRequest",
        0,
        "00000001 00000000 00000002 0001 61 7ff8000000000000 01 0001 62 c000000000000000 00 00",
        {
            "entries": [
                {
                    "entity": [],
                    "ops": [
                        {"key": "a", "value": "NaN", "remove": True},
                        {"key": "b", "value": -2.0, "remove": False},
                    ],
                }
            ],
            "validateOnly": False,
        },
    ),
    "contents of a control record": (
        "LeaderChangeMessage",
        0,
        "0000 00000003 01 01 00",
        {"version": 0, "leaderId": 3, "voters": [], "grantingVoters": []},
    ),
    "record of the metadata log": (
        "TopicRecord",
        0,
        "02 61 000102030405060708090a0b0c0d0e0f 00",
        {"name": "a", "topicId": "AAECAwQFBgcICQoLDA0ODw"},
    ),
    "definition in a file of another name": ("ZkMigrationStateRecord", 0, "02 00", {"zkMigrationState": 2}),
    "record of a coordinator": (
        "OffsetCommitValue",
        3,
        "0000000000000007 ffffffff 0001 6d 0000000000000009",
        {"offset": "7", "leaderEpoch": -1, "metadata": "m", "commitTimestamp": "9"},
    ),
    "record of remote storage": (
        "RemotePartitionDeleteMetadataRecord",
        0,
        "02 61 000102030405060708090a0b0c0d0e0f 00000001 00 00000007 0000000000000009 01 00",
        {
            "topicIdPartition": {"name": "a", "id": "AAECAwQFBgcICQoLDA0ODw", "partition": 1},
            "brokerId": 7,
            "eventTimestampMs": "9",
            "remotePartitionDeleteState": 1,
        },
    ),
    "name that ends in Data": (
        "DefaultPrincipalData",
        0,
        "02 75 02 6e 01 00",
        {"type": "u", "name": "n", "tokenAuthenticated": True},
    ),
}


@pytest.mark.parametrize("example", BY_HAND)
def test_bytes_and_json_are_those_computed_by_hand(kafka: MessageTestee, example: str) -> None:
    name, version, spaced, message = BY_HAND[example]
    data = bytes.fromhex(spaced)
    read = kafka.decode(name, version, spaced)
    assert (read.outcome, read.consumed, read.message) == ("accepted", len(data), message)
    assert kafka.encode(name, version, message).data == data


def test_bytes_after_a_message_are_left_alone(kafka: MessageTestee) -> None:
    read = kafka.decode("ResponseHeader", 0, "00000007 ff")
    assert (read.outcome, read.consumed, read.message) == ("accepted", 4, {"correlationId": 7})


def test_an_answer_reports_how_much_reading_allocated(kafka: MessageTestee) -> None:
    kafka.decode("MetadataRequest", 1, "00000000")
    small = kafka.decode("MetadataRequest", 1, "00000000").allocated_bytes
    large = kafka.decode("MetadataRequest", 1, "00002000" + "0000" * 0x2000).allocated_bytes
    assert small is not None
    assert large is not None
    assert small < 1024 < 0x2000 * 16 < large


def test_infinities_are_named(kafka: MessageTestee) -> None:
    for name, data in {"Infinity": "7ff0000000000000", "-Infinity": "fff0000000000000"}.items():
        body = {"entries": [{"entity": [], "ops": [{"key": "", "value": name, "remove": False}]}]}
        written = kafka.encode("AlterClientQuotasRequest", 0, body).data
        assert written == bytes.fromhex(f"00000001 00000000 00000001 0000 {data} 00 00")
        read = kafka.decode("AlterClientQuotasRequest", 0, written.hex()).message
        assert read == body | {"validateOnly": False}


# Refusals

REFUSED_TO_READ = {
    "cut number": ("ResponseHeader", 0, "000000", "BufferUnderflowException"),
    "cut string": (
        "ApiVersionsRequest",
        3,
        "06 6b66",
        "RuntimeException: Error reading byte array of 5",
    ),
    "null where none may be": ("MetadataRequest", 0, "ffffffff", "RuntimeException: non-nullable field topics was"),
    "more elements than bytes": (
        "MetadataRequest",
        1,
        "7fffffff",
        "RuntimeException: Tried to allocate a",
    ),
    "string too long": ("ApiVersionsRequest", 3, "818002" + "61" * 32768, "RuntimeException: string field"),
    "varint too long": ("ApiVersionsRequest", 3, "808080808000", "IllegalArgumentException: Varint is too long"),
    "records too long": (
        "ProduceRequest",
        9,
        "00 ffff 00000000 02 01 02 00000000 05 00",
        "IllegalArgumentException: newLimit",
    ),
}


@pytest.mark.parametrize("case", REFUSED_TO_READ)
def test_bytes_that_kafka_checks_are_rejected(kafka: MessageTestee, case: str) -> None:
    name, version, data, error = REFUSED_TO_READ[case]
    read = kafka.decode(name, version, data)
    assert (read.outcome, read.error[: len(error)]) == ("rejected", error)


def test_the_size_of_an_unknown_tag_below_zero_is_a_fault_for_kafka_does_not_check_it(kafka: MessageTestee) -> None:
    read = kafka.decode("ResponseHeader", 1, "00000007 01 05 ffffffff0f")
    assert (read.outcome, read.error) == ("fault", "NegativeArraySizeException: -1")


def test_a_tag_count_below_zero_is_none_for_3_9_and_refused_by_4(kafka: MessageTestee) -> None:
    outcome = {KAFKA_3: "accepted", LATEST: "rejected"}[kafka.version]
    assert kafka.decode("ResponseHeader", 1, "00000007 ffffffff0f").outcome == outcome


def test_4_reads_no_more_than_ten_thousand_tags(kafka: MessageTestee) -> None:
    def read(count_hex: str, count: int) -> str:
        return kafka.decode("ResponseHeader", 1, "00000007" + count_hex + "0500" * count).outcome

    beyond = {KAFKA_3: "accepted", LATEST: "rejected"}[kafka.version]
    assert [read("904e", 10_000), read("914e", 10_001)] == ["accepted", beyond]


def test_4_reads_no_more_than_a_million_elements(kafka: MessageTestee) -> None:
    def error(count: int) -> str:
        """The error of an array whose first element is bad: it says so if elements are read at all."""
        return kafka.decode("MetadataRequest", 1, f"{count:08x} ffff" + "00" * count).error

    bad_element = "RuntimeException: non-nullable field name was serialized as null"
    too_many = "RuntimeException: Tried to read a collection of size 1000001, which exceeds the maximum allowed size"
    beyond = {KAFKA_3: bad_element, LATEST: too_many}[kafka.version]
    assert error(1_000_000) == bad_element
    assert error(1_000_001).startswith(beyond)


REFUSED_TO_WRITE: dict[str, tuple[str, int, Message, str]] = {
    "string too long": (
        "ApiVersionsRequest",
        3,
        {"clientSoftwareName": "a" * 32768},
        "RuntimeException: 'clientSoftwareName'",
    ),
    "null where none may be": ("MetadataRequest", 0, {"topics": None}, "NullPointerException"),
    "null in an array": (
        "AddPartitionsToTxnRequest",
        3,
        {"v3AndBelowTopics": [None]},
        "BadMessageException: body.v3AndBelowTopics[0] must be an object",
    ),
    "field of other versions": (
        "FetchRequest",
        17,
        {"topics": [{"topicId": "AAECAwQFBgcICQoLDA0ODw"}], "replicaId": 1},
        "UnsupportedVersionException: Attempted to write a non-default replicaId",
    ),
    "tags before they were invented": (
        "ResponseHeader",
        0,
        {"_unknownTaggedFields": [{"tag": 0, "hex": ""}]},
        "UnsupportedVersionException: Tagged fields were set",
    ),
    "tags out of order": (
        "ResponseHeader",
        1,
        {"_unknownTaggedFields": [{"tag": 6, "hex": ""}, {"tag": 5, "hex": ""}]},
        "RuntimeException: Invalid raw tag field list: tag 5 comes after tag 6",
    ),
    "unknown name": (
        "MetadataRequest",
        1,
        {"topics": [{"name": "a"}, {"title": "a"}]},
        "BadMessageException: body.topics[1].title is no field of MetadataRequestTopic",
    ),
    "number out of range": (
        "ResponseHeader",
        0,
        {"correlationId": 2**31},
        "BadMessageException: body.correlationId must be an integer in -2147483648..2147483647, not 2147483648",
    ),
    "null for a number": (
        "ResponseHeader",
        0,
        {"correlationId": None},
        "BadMessageException: body.correlationId must be",
    ),
    "int64 as a number": ("EndTxnRequest", 0, {"producerId": 1}, "BadMessageException: body.producerId must be"),
    "int64 out of range": ("EndTxnRequest", 0, {"producerId": str(2**63)}, "BadMessageException: body.producerId must"),
    "no uuid": ("FetchRequest", 17, {"topics": [{"topicId": "A"}]}, "BadMessageException: body.topics[0].topicId must"),
    "no hex": ("SaslAuthenticateRequest", 0, {"authBytes": "0g"}, "BadMessageException: body.authBytes must be hex"),
    "no array": ("MetadataRequest", 1, {"topics": {}}, "BadMessageException: body.topics must be an array"),
    "no struct": ("MetadataRequest", 1, {"topics": [[]]}, "BadMessageException: body.topics[0] must be an object"),
}


@pytest.mark.parametrize("case", REFUSED_TO_WRITE)
def test_a_value_that_cannot_be_written_is_rejected(kafka: MessageTestee, case: str) -> None:
    name, version, body, error = REFUSED_TO_WRITE[case]
    written = kafka.encode(name, version, body)
    assert (written.outcome, written.error[: len(error)]) == ("rejected", error)


def test_a_field_of_other_versions_is_passed_over_where_its_definition_says_ignorable(kafka: MessageTestee) -> None:
    plain = kafka.encode("FetchRequest", 4, {})
    assert kafka.encode("FetchRequest", 4, {"rackId": "r"}).data == plain.data


@pytest.mark.parametrize(
    ("name", "version", "error"),
    [
        ("FetchRequest", -1, "FetchRequest has the versions "),
        ("FetchRequest", 99, "FetchRequest has the versions "),
        ("ResponseHeader", 2, "ResponseHeader has the versions 0..1, not 2"),
        ("FetchRequestData", 17, "this kafka-clients has no message FetchRequestData"),
        ("../message/FetchRequest", 17, "this kafka-clients has no message"),
    ],
)
def test_a_name_or_version_that_the_library_lacks_is_unsupported(
    kafka: MessageTestee, name: str, version: int, error: str
) -> None:
    for answer in (kafka.decode(name, version, ""), kafka.encode(name, version, {})):
        assert (answer.outcome, answer.error[: len(error)]) == ("unsupported", error)


def test_a_message_whose_versions_were_all_removed_is_unsupported(kafka: MessageTestee) -> None:
    outcome = {KAFKA_3: "accepted", LATEST: "unsupported"}[kafka.version]
    assert kafka.encode("StopReplicaRequest", 0, {}).outcome == outcome


# Each message of each version


def test_a_field_that_is_left_out_takes_the_default_of_its_definition(kafka: MessageTestee) -> None:
    asked = 0
    for definition, version in kafka.of_every_version():
        written = kafka.encode(definition.name, version, {})
        assert written.outcome == "accepted", (definition.name, version, written.error)
        assert written.data is not None
        read = kafka.decode(definition.name, version, written.data.hex())
        assert read.message == definition.defaults(version), (definition.name, version)
        assert read.consumed == len(written.data), (definition.name, version)
        asked += 1
    assert asked == COUNTS[kafka.version]["versions"] + COUNTS[kafka.version]["record_versions"]


@pytest.mark.parametrize("filling", [Definition.filled, pytest.param(Definition.nulled, marks=pytest.mark.full)])
def test_written_messages_are_read_again_and_kafkas_converters_agree(kafka: MessageTestee, filling: Any) -> None:
    for definition, version in kafka.of_every_version():
        message = filling(definition, version)
        written = kafka.encode(definition.name, version, message)
        assert written.outcome == "accepted", (definition.name, version, written.error)
        assert written.data is not None
        read = kafka.decode(definition.name, version, written.data.hex())
        assert read.message == message, (definition.name, version)
        said = kafka.converted(definition.name, version, written.data.hex())
        assert agrees(message, said), (definition.name, version, said)


def agrees(ours: Any, said: Any) -> bool:
    """Whether JSON of ours says what a converter says; that leaves out unknown tags, tagged nulls and records."""
    if isinstance(said, dict):
        left_out = {"_unknownTaggedFields"} | {name for name, value in ours.items() if value is None}
        return ours.keys() - said.keys() <= left_out and all(agrees(ours[name], said[name]) for name in said)
    if isinstance(said, list):
        return len(ours) == len(said) and all(map(agrees, ours, said))
    if isinstance(said, str) and ours != said:
        return said == "" or base64.b64decode(said).hex() == ours
    return bool(ours == said or (isinstance(said, int) and ours == str(said)))
