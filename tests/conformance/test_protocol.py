"""Handshakes and answers: what is refused, and that the sentence says where."""

from __future__ import annotations

import io
import json
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from kfuzz.cli.testee import command
from kfuzz.conformance.judge.compare import cases_of, request
from kfuzz.conformance.judge.own import serve
from kfuzz.conformance.protocol.lines import (
    APPEND_STREAM,
    DECODE,
    DECODE_MESSAGE,
    ENCODE,
    ENCODE_MESSAGE,
    OPERATIONS,
    PRODUCE,
    Produced,
    ProtocolError,
    parse_answer,
    parse_handshake,
    to_line,
)
from kfuzz.conformance.protocol.schema import COMMITTED, protocol_schema, schema_text
from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.model import load_suite

HANDSHAKE: dict[str, Any] = {
    "protocol": "kfuzz-testee/1",
    "name": "toy",
    "version": "1.0",
    "language": "c",
    "operations": ["decode-records"],
    "roles": ["consumer"],
    "magic": [2],
    "codecs": ["none"],
}
RECORD: dict[str, Any] = {"offset": "0", "timestamp": None, "key": None, "value": "00", "headers": [["k", None]]}
BATCH: dict[str, Any] = {"base_offset": "0", "records": [RECORD]}


def answer(**fields: Any) -> bytes:
    return json.dumps({"id": "a", "outcome": "accepted"} | fields).encode()


def refused(line: bytes, operation: str = DECODE) -> str:
    with pytest.raises(ProtocolError) as caught:
        parse_answer(line, id="a", operation=operation)
    return str(caught.value)


def test_a_field_that_a_handshake_leaves_out_has_its_documented_meaning() -> None:
    handshake = parse_handshake(json.dumps(HANDSHAKE).encode())
    assert (handshake.label, handshake.checks_crc, handshake.control) == ("toy@1.0", True, "shown")


WRONG_HANDSHAKES: list[tuple[dict[str, Any], str]] = [
    ({"protocol": "kfuzz-testee/2"}, "the handshake.protocol is"),
    ({"name": "../../etc/passwd"}, "the handshake.name is"),
    ({"version": ""}, "the handshake.version is"),
    ({"operations": ["decode-records", "fly"]}, "the handshake.operations[1] is"),
    ({"magic": [True]}, "the handshake.magic[0] is"),
    ({"magic": ["2"]}, "the handshake.magic[0] is"),
    ({"codecs": "none"}, "the handshake.codecs is"),
    ({"check_crc": False}, "the handshake.check_crc is not a key that kfuzz knows; did you mean checks_crc?"),
    ({"control": None}, "the handshake.control is"),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG_HANDSHAKES)
def test_a_wrong_handshake_is_refused_with_the_field(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_handshake(json.dumps(HANDSHAKE | changes).encode())
    assert str(caught.value).startswith(sentence)


def test_a_testee_for_messages_alone_declares_neither_roles_nor_codecs() -> None:
    whole = HANDSHAKE | {"operations": [DECODE_MESSAGE, ENCODE_MESSAGE]}
    whole["messages"] = {"FetchRequest": [4, 17]}
    line = json.dumps({name: value for name, value in whole.items() if name not in ("roles", "magic", "codecs")})
    handshake = parse_handshake(line.encode())
    assert handshake.operations == {DECODE_MESSAGE, ENCODE_MESSAGE}
    assert handshake.messages == {"FetchRequest": (4, 17)}


@pytest.mark.parametrize("versions", [[], [1], [2, 1], [-1, 0], [0, 40_000], [0, "1"], [0, True], 3, None])
def test_the_versions_of_a_message_are_a_pair(versions: Any) -> None:
    line = json.dumps(HANDSHAKE | {"messages": {"FetchRequest": versions}}).encode()
    with pytest.raises(ProtocolError, match=r"handshake.messages is .* its lowest and highest version"):
        parse_handshake(line)


@pytest.mark.parametrize(
    "hidden", [[], {"fetch": ["a"]}, {"Fetch": []}, {"Fetch": ["A"]}, {"Fetch": ["a."]}, {"Fetch": "a"}]
)
def test_hidden_fields_are_lists_of_places(hidden: Any) -> None:
    with pytest.raises(ProtocolError, match=r"handshake.hidden"):
        parse_handshake(json.dumps(HANDSHAKE | {"hidden": hidden}).encode())
    good = parse_handshake(json.dumps(HANDSHAKE | {"hidden": {"Fetch": ["a", "topics.name"]}}).encode())
    assert good.hidden == {"Fetch": ["a", "topics.name"]}


@pytest.mark.parametrize(
    ("operation", "lacking"),
    [(DECODE_MESSAGE, "messages"), (PRODUCE, "produces"), (APPEND_STREAM, "roles"), (APPEND_STREAM, "magic")],
)
def test_a_testee_declares_what_its_operations_need(operation: str, lacking: str) -> None:
    line = HANDSHAKE | {"operations": [operation]}
    line.pop(lacking, None)
    with pytest.raises(ProtocolError, match=f"lacks {lacking}"):
        parse_handshake(json.dumps(line).encode())


@pytest.mark.parametrize("name", ["protocol", "name", "version", "language", "operations", "roles", "magic", "codecs"])
def test_a_handshake_declares_everything_that_it_must(name: str) -> None:
    line = json.dumps({field: value for field, value in HANDSHAKE.items() if field != name}).encode()
    with pytest.raises(ProtocolError, match=f"the handshake lacks {name}[;:] "):
        parse_handshake(line)


def test_what_arrived_at_a_broker_is_hex_or_an_object_with_its_error() -> None:
    arrived = ["00", {"hex": "01", "error": 6}, {"hex": "", "error": 0, "acks": -1, "transactional_id": "t"}]
    parsed = parse_answer(answer(produced=arrived), id="a", operation=PRODUCE)
    assert parsed.produced == (Produced(b"\x00"), Produced(b"\x01", 6), Produced(b"", 0, "t", -1))
    assert "lacks produced: an accepted answer must" in refused(answer(), PRODUCE)
    assert "produced[1].error is" in refused(answer(produced=["", {"hex": "", "error": "6"}]), PRODUCE)


def test_a_testee_that_produces_declares_what_its_producer_can_do() -> None:
    handshake = parse_handshake(json.dumps(HANDSHAKE | {"operations": [PRODUCE], "produces": ["idempotent"]}).encode())
    assert handshake.produces == {"idempotent"}


def test_a_good_answer_is_taken_over_whole() -> None:
    parsed = parse_answer(answer(batches=[BATCH], consumed=9, allocated_bytes=7), id="a", operation=DECODE)
    assert (parsed.batches, parsed.consumed, parsed.allocated_bytes) == ([BATCH], 9, 7)
    assert parse_answer(answer(hex="00ff"), id="a", operation=ENCODE).data == b"\x00\xff"


WRONG_ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"outcome": "maybe"}, "the answer.outcome"),
    ({"outcome": "rejected", "error": None}, "the answer.error"),
    ({"consumed": -1}, "the answer.consumed"),
    ({"consumed": True}, "the answer.consumed"),
    ({"consumed": "9"}, "the answer.consumed"),
    ({"hex": "0"}, "the answer.hex"),
    ({"hex": "FF"}, "the answer.hex"),
    ({"batches": {}}, "the answer.batches"),
    ({"batches": [7]}, "the answer.batches[0] is 7; give a JSON object"),
    (
        {"batches": [BATCH | {"base_ofset": "0"}]},
        "[0].base_ofset is not a key that kfuzz knows; did you mean base_offset?",
    ),
    ({"batches": [BATCH | {"base_offset": 0}]}, "[0].base_offset is 0; give an integer as a decimal string"),
    ({"batches": [BATCH | {"base_offset": "-0"}]}, "[0].base_offset"),
    ({"batches": [BATCH | {"compression": "brotli"}]}, "[0].compression"),
    ({"records": [RECORD | {"key": "k"}]}, "[0].key"),
    ({"records": [RECORD | {"value": {"sha256": "00", "size": 1}}]}, "[0].value"),
    ({"records": [RECORD | {"headers": {"k": "00"}}]}, "[0].headers"),
    ({"records": [RECORD | {"headers": [["k"]]}]}, "[0].headers"),
    ({"records": [RECORD | {"headers": [[None, "00"]]}]}, "[0].headers"),
    ({"records": [{name: value for name, value in RECORD.items() if name != "timestamp"}]}, "[0] lacks timestamp"),
    ({}, "either batches or records"),
    ({"batches": [], "records": []}, "either batches or records"),
]


@pytest.mark.parametrize(("fields", "place"), WRONG_ANSWERS)
def test_a_wrong_answer_is_refused_with_the_place(fields: dict[str, Any], place: str) -> None:
    assert place in refused(answer(**fields))


def test_an_encoder_that_accepts_gives_bytes() -> None:
    assert refused(answer(), ENCODE) == "the answer lacks hex: an accepted answer must give the encoded bytes"


def test_a_message_is_taken_over_whole() -> None:
    message = {
        "throttleTimeMs": 0,
        "share": 0.5,
        "rate": "-Infinity",
        "topics": [{"name": None, "_unknownTaggedFields": [{"tag": 4294967295, "hex": ""}]}],
    }
    parsed = parse_answer(answer(message=message, consumed=9), id="a", operation=DECODE_MESSAGE)
    assert (parsed.message, parsed.consumed) == (message, 9)
    assert parse_answer(answer(hex="00ff"), id="a", operation=ENCODE_MESSAGE).data == b"\x00\xff"


WRONG_MESSAGES: list[tuple[Any, str]] = [
    (None, "message is null"),
    ([], "message is []"),
    ({"a": [{}, {"Name": 1}]}, "message.a[1].Name is not a field's name; write it in camelCase"),
    ({"a": {"rate": float("nan")}}, "message.a.rate is NaN"),
    ({"_unknownTaggedFields": []}, "message._unknownTaggedFields is []; leave it out if there are none"),
    ({"a": {"_unknownTaggedFields": [{"tag": 0}]}}, "message.a._unknownTaggedFields[0] lacks hex"),
    ({"_unknownTaggedFields": [{"tag": -1, "hex": ""}]}, "message._unknownTaggedFields[0].tag is -1"),
    ({"a": json.loads("[" * 40 + "]" * 40)}, "is nested more than 32 deep"),
]


@pytest.mark.parametrize(("message", "place"), WRONG_MESSAGES)
def test_a_wrong_message_is_refused_with_the_place(message: Any, place: str) -> None:
    assert place in refused(answer(message=message), DECODE_MESSAGE)


@pytest.mark.parametrize(("operation", "lacking"), [(DECODE_MESSAGE, "message"), (ENCODE_MESSAGE, "hex")])
def test_an_answer_that_accepts_a_message_has_the_requested_fields(operation: str, lacking: str) -> None:
    assert refused(answer(), operation).startswith(f"the answer lacks {lacking}: ")


def test_an_answer_to_another_request_is_refused() -> None:
    assert refused(answer(id="b", batches=[])) == 'the answer is to "b", but "a" is next: answer in order'


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"\xff\xfe", b"[" * 100_000, b'{"consumed": ' + b"9" * 5000 + b"}", b"null", b"[]", b"NaN"]
)
def test_no_line_whatever_raises_anything_but_a_protocol_error(line: bytes) -> None:
    assert refused(line)


def test_an_impossible_number_is_a_wrong_reading_and_not_a_wrong_answer() -> None:
    parsed = parse_answer(answer(records=[RECORD | {"offset": str(2**70)}]), id="a", operation=DECODE)
    assert parsed.records is not None
    assert parsed.records[0]["offset"] == str(2**70)


# --- the published schema -------------------------------------------------------------------------------------------

# Rules that depend on the request, or are no question of form, are not in the schema.
NOT_IN_THE_SCHEMA = ("either batches or records", "nested more than 32 deep", "NaN")
VALIDATOR = jsonschema.Draft202012Validator(protocol_schema())


def fits(line: dict[str, Any], name: str) -> bool:
    """Whether the line is what the schema's definition ``name`` says."""
    schema = {**protocol_schema(), "anyOf": [{"$ref": f"#/$defs/{name}"}]}
    return bool(jsonschema.Draft202012Validator(schema).is_valid(line))


def test_the_committed_schema_is_what_the_declarations_make() -> None:
    jsonschema.Draft202012Validator.check_schema(protocol_schema())
    assert COMMITTED.read_text() == schema_text(), "run `python -m kfuzz.conformance.protocol.schema`"


def test_the_schema_refuses_what_the_check_refuses() -> None:
    assert fits(HANDSHAKE, "handshake")
    for changes, sentence in WRONG_HANDSHAKES:
        assert not fits(HANDSHAKE | changes, "handshake"), sentence
    wrong = [(fields, place) for fields, place in WRONG_ANSWERS if place not in NOT_IN_THE_SCHEMA]
    wrong += [
        ({"message": message}, place)
        for message, place in WRONG_MESSAGES
        if not any(words in place for words in NOT_IN_THE_SCHEMA)
    ]
    assert len(wrong) > 20
    for fields, place in wrong:
        assert not fits({"id": "a", "outcome": "accepted"} | fields, "answer"), place


def test_requests_and_the_answers_of_kfuzz_fit_the_schema() -> None:
    asked: dict[str, list[dict[str, Any]]] = {}
    for case in cases_of([vector for vector in load_suite(kinds=KINDS) if not vector.budget]):
        known = asked.setdefault(case.operation, [])
        if len(known) < 12 or ("topic" in case.vector.options and len(known) < 24):
            known.append(request(case))
    assert set(asked) == set(OPERATIONS)
    requests = [one for known in asked.values() for one in known]
    out = io.BytesIO()
    serve(io.BytesIO(b"".join(map(to_line, requests))), out)
    handshake, *answers = map(json.loads, out.getvalue().splitlines())
    assert fits(handshake, "handshake")
    assert len(answers) == len(requests)
    for one, given in zip(requests, answers, strict=True):
        assert fits(one, f"request-{one['operation']}"), one["id"]
        assert fits(given, "answer"), one["id"]
        assert VALIDATOR.is_valid(one)


def test_the_command_prints_the_schema() -> None:
    assert json.loads(CliRunner().invoke(command, ["--schema"]).output) == protocol_schema()
