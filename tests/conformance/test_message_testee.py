"""Apache Kafka's message classes over the testee protocol: bytes to JSON and back, for each message of each version.

The examples in message_examples.json are computed by hand from the definitions. The rest is held to the definitions in
the jar, as jar_definitions.py reads them, and to Kafka's own JSON converters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from conftest import releases
from jar_definitions import Definition, definitions
from release_counts import COUNTS
from testee_driver import TESTEES, RunningTestee, running

from kfuzz.conformance.protocol.lines import DECODE_MESSAGE, ENCODE_MESSAGE, Answer, parse_answer
from kfuzz.kafka import KAFKA_3, LATEST

pytestmark = pytest.mark.java

EXAMPLES: Final = json.loads(Path(__file__).with_name("message_examples.json").read_text())

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


@pytest.mark.parametrize("example", EXAMPLES["by hand"])
def test_bytes_and_json_are_those_computed_by_hand(kafka: MessageTestee, example: str) -> None:
    name, version, spaced, message = EXAMPLES["by hand"][example].values()
    # The bytes of a long message are several texts.
    data = bytes.fromhex("".join(spaced))
    read = kafka.decode(name, version, data.hex())
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


@pytest.mark.parametrize("case", EXAMPLES["refused to read"])
def test_bytes_that_kafka_checks_are_rejected(kafka: MessageTestee, case: str) -> None:
    name, version, data, error = EXAMPLES["refused to read"][case].values()
    read = kafka.decode(name, version, data)
    assert (read.outcome, read.error[: len(error)]) == ("rejected", error)


def test_a_string_that_is_too_long_is_rejected(kafka: MessageTestee) -> None:
    read = kafka.decode("ApiVersionsRequest", 3, "818002" + "61" * 32768)
    written = kafka.encode("ApiVersionsRequest", 3, {"clientSoftwareName": "a" * 32768})
    assert (read.outcome, written.outcome) == ("rejected", "rejected")
    assert read.error.startswith("RuntimeException: string field")
    assert written.error.startswith("RuntimeException: 'clientSoftwareName'")


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


@pytest.mark.parametrize("case", EXAMPLES["refused to write"])
def test_a_value_that_cannot_be_written_is_rejected(kafka: MessageTestee, case: str) -> None:
    name, version, body, error = EXAMPLES["refused to write"][case].values()
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
