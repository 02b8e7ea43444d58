"""The worth of an answer: the rules by which the referee compares it with the vector."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from referee_tools import make_vector

from kfuzz import records
from kfuzz.conformance.judge import confirmation
from kfuzz.conformance.judge.compare import Case, Cell, cases_of, declared_unsupported, judge, request
from kfuzz.conformance.judge.differing import batches_differ
from kfuzz.conformance.protocol.lines import ENCODE, Handshake, parse_answer
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.vectors import load_suite
from kfuzz.wire.io.checksum import crc32c

FULL = Handshake(
    name="toy",
    version="1",
    language="python",
    operations=frozenset({"decode-records", "encode-records"}),
    roles=frozenset({"consumer"}),
    magic=frozenset({0, 1, 2}),
    codecs=frozenset({"none", "gzip", "zstd"}),
)

changed = partial(replace, FULL)


def batch(*found: records.Record, **changes: Any) -> records.RecordBatch:
    found = found or (records.Record(5, 100, b"k", b"v", ((b"h", b"\x00"),)), records.Record(6, 101, None, b""))
    return records.RecordBatch(found[0].offset, found[-1].offset, list(found), **changes)


def case_of(*batches: records.RecordBatch, verdict: str = "valid", role: str = "consumer", **changes: Any) -> Case:
    data = records.encode(batches)
    expectation = {"verdict": verdict, "batches": records.to_json(batches), "consumed": len(data)}
    if verdict != "valid":
        expectation["finding"] = "record-count-negative"
    vector = make_vector("toy/case", data, expect={"consumer": expectation | changes.pop("expect", {})}, **changes)
    return Case(vector, role)


def invalid_case(finding: str = "record-count-negative", data: bytes = b"\xff", **expect: Any) -> Case:
    expectation = {"verdict": "invalid", "finding": finding} | expect
    return Case(make_vector("toy/case", data, expect={"consumer": expectation}), "consumer")


def judged(case: Case, *, handshake: Handshake = FULL, **answer: Any) -> Cell:
    line = json.dumps({"id": "toy/case"} | answer).encode()
    return judge(case, handshake, parse_answer(line, id="toy/case", operation=case.operation))


def accepted(case: Case, *, handshake: Handshake = FULL, **changes: Any) -> Cell:
    contents = {} if "records" in changes else {"batches": case.expectation["batches"]}
    return judged(case, handshake=handshake, **({"outcome": "accepted"} | contents | changes))


def without(batches: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in batch.items() if name not in names} for batch in batches]


# --- harm ------------------------------------------------------------------------------------------------------------

EXTRA = changed(outcomes=frozenset({"nothing", "stalled", "panic"}))


@pytest.mark.parametrize(
    ("cell", "outcome", "harm", "text"),
    [
        (judged(case_of(batch()), outcome="rejected", error="too odd"), "fail", "refuses",
         "refused bytes that must be accepted: too odd"),
        (judged(invalid_case(), outcome="accepted", batches=[]), "fail", "accepts",
         "accepted bytes that must be refused (record-count-negative)"),
        (judged(invalid_case(), outcome="rejected", finding="crc-mismatch"), "fail", "differs",
         "refused for crc-mismatch; the fault is record-count-negative"),
        (judged(invalid_case(), outcome="fault", error="KeyError"), "fault", "panics", "KeyError"),
        (judged(invalid_case(), handshake=EXTRA, outcome="panic", error="nil map"), "panic", "panics", "nil map"),
        (judged(invalid_case(), handshake=EXTRA, outcome="stalled"), "stall", "hangs", "answered stalled"),
        (accepted(case_of(batch()), batches=[]), "fail", "loses", "read too few batches: 0; expected 1"),
        (accepted(case_of(batch()), consumed=3), "fail", "differs",
         "consumed 3 bytes; the last complete batch ends at 81"),
        (judged(case_of(batch()), outcome="unsupported", error="its own words"), "unsupported", "", "its own words"),
        (judged(invalid_case(), outcome="rejected"), "pass", "", ""),
        (judged(invalid_case(), outcome="rejected", finding="record-count-negative"), "pass", "", ""),
        (judged(case_of(batch(), verdict="acceptable"), outcome="rejected"), "pass", "", ""),
        (accepted(case_of(batch(), verdict="acceptable")), "pass", "", ""),
        (accepted(case_of(batch(), verdict="acceptable"), batches=[]), "fail", "loses",
         "read too few batches: 0; expected 1"),
        (accepted(case_of(batch())), "pass", "", ""),
        (accepted(case_of(batch()), consumed=81), "pass", "", ""),
    ],
)  # fmt: skip
def test_each_deviation_has_a_class_of_harm_and_a_sentence(cell: Cell, outcome: str, harm: str, text: str) -> None:
    assert (cell.outcome, cell.harm, cell.text, cell.declared) == (outcome, harm, text, False)


def test_a_recommended_verdict_differs_only() -> None:
    case = case_of(batch(), level="recommended")
    assert judged(case, outcome="rejected").harm == "differs"
    assert accepted(case, batches=[]).harm == "loses"


def test_a_stall_is_wrong_even_where_either_verdict_is_allowed() -> None:
    either = case_of(batch(), verdict="acceptable")
    assert judged(either, outcome="rejected").outcome == "pass"
    assert judged(either, handshake=EXTRA, outcome="stalled").outcome == "stall"


def test_records_left_out_in_silence_are_lost_unless_all_good_ones_were_given() -> None:
    for verdict in ("valid", "acceptable"):
        case = case_of(batch(), verdict=verdict)
        lost = judged(case, handshake=EXTRA, outcome="nothing")
        assert (lost.outcome, lost.harm) == ("fail", "loses")
        assert lost.text == "handed out 0 of 2 records, without an error"
        given = case.expectation["batches"]
        assert judged(case, handshake=EXTRA, outcome="nothing", batches=given).outcome == "pass"
    skipped = judged(invalid_case(), handshake=EXTRA, outcome="nothing")
    assert (skipped.outcome, skipped.harm) == ("fail", "accepts")


@pytest.mark.parametrize("outcome", ["nothing", "stalled", "panic"])
def test_an_outcome_that_the_handshake_does_not_declare_breaks_the_protocol(outcome: str) -> None:
    cell = judged(invalid_case(), outcome=outcome)
    assert (cell.outcome, cell.harm) == ("protocol-error", "panics")
    assert "does not declare" in cell.text


@pytest.mark.parametrize(
    ("want", "have", "right"),
    [
        (1500, 1000, True),
        (1500, 2000, True),
        (1500, 2500, False),
        (1500, None, False),
        (10**15, 3, True),
        (-1, 5, True),
        (-1, None, True),
    ],
)
def test_timestamps_are_compared_within_the_declared_range_and_resolution(
    want: int, have: int | None, right: bool
) -> None:
    case = case_of(batch(records.Record(0, want, None, b"v")))
    shown = json.loads(json.dumps(case.expectation["batches"]))
    shown[0]["records"][0]["timestamp"] = None if have is None else str(have)
    coarse = changed(timestamps={"low": "0", "high": "100000", "resolution_ms": 1000})
    assert (accepted(case, handshake=coarse, batches=shown).outcome == "pass") is right
    assert accepted(case, batches=shown).harm == "loses"


def test_headers_of_a_map_have_no_order_and_a_lost_one_is_still_lost() -> None:
    case = case_of(batch(records.Record(0, 1, None, b"v", ((b"b", b"1"), (b"a", b"2"), (b"b", None)))))
    shown = json.loads(json.dumps(case.expectation["batches"]))
    record = shown[0]["records"][0]
    record["headers"] = [record["headers"][i] for i in (1, 2, 0)]
    as_map = changed(headers="map")
    assert accepted(case, handshake=as_map, batches=shown).outcome == "pass"
    assert accepted(case, batches=shown).harm == "loses"
    del record["headers"][1]
    assert accepted(case, handshake=as_map, batches=shown).harm == "loses"


def test_framings_and_tails_that_a_library_does_not_read_are_not_asked() -> None:
    [xerial] = load_suite("records/v2/codec/snappy-xerial-later-version")
    [raw] = load_suite("records/v2/snappy/raw-block-too-short")
    codecs = frozenset({"none", "snappy"})
    for vector, own, other in ((xerial, "xerial", "raw"), (raw, "raw", "xerial")):
        case = Case(vector, "consumer")
        assert declared_unsupported(case, changed(codecs=codecs, snappy=frozenset({own}))) is None
        assert declared_unsupported(case, changed(codecs=codecs, snappy=frozenset({other}))) == (
            f"does not read {own} snappy"
        )
    cut = case_of(batch(), expect={"partial_tail": True})
    assert declared_unsupported(cut, FULL) is None
    assert declared_unsupported(cut, changed(tails="refused")) == "refuses an incomplete batch at the end"


# --- verdicts -------------------------------------------------------------------------------------------------------


def test_reading_the_right_contents_passes() -> None:
    case = case_of(batch(), batch(compression="gzip"))
    assert accepted(case, consumed=len(case.vector.data)) == Cell("pass")


def test_an_alternative_reading_passes_and_any_other_does_not() -> None:
    other = records.to_json([batch(records.Record(7, 1, None, None))])
    case = case_of(batch(), verdict="acceptable", expect={"alternatives": [other]})
    assert accepted(case, batches=other, consumed=1).outcome == "pass"
    assert accepted(case, batches=other + other).outcome == "fail"


# --- good batches before a bad one ----------------------------------------------------------------------------------


def test_the_good_batches_before_a_bad_one_are_compared_when_given() -> None:
    good = records.to_json([batch()])
    case = invalid_case(batches=good)
    assert judged(case, outcome="rejected").outcome == "pass"
    assert judged(case, outcome="rejected", batches=good).outcome == "pass"
    assert judged(case, outcome="rejected", batches=[]).outcome == "fail"


# --- contents -------------------------------------------------------------------------------------------------------

BATCH_FIELDS = [name for name in records.to_json([batch()])[0] if name != "records"]
OTHER_OF_TYPE = {str: "77", int: 77, bool: True, type(None): "77"}
OTHER_WORD = {"compression": "gzip", "timestamp_type": "log-append", "magic": 1}


@pytest.mark.parametrize("name", BATCH_FIELDS)
def test_a_field_of_a_batch_is_compared_when_reported_and_not_missed_when_left_out(name: str) -> None:
    case = case_of(batch())
    expected = case.expectation["batches"]
    other = OTHER_WORD.get(name, OTHER_OF_TYPE[type(expected[0][name])])
    assert accepted(case, batches=[expected[0] | {name: other}]).outcome == "fail"
    assert accepted(case, batches=without(expected, name)).outcome == "pass"


HEX = st.none() | st.binary(max_size=2).map(bytes.hex)
PARTS = {
    "offset": st.integers(0, 9).map(str),
    "timestamp": st.none() | st.integers(-1, 99).map(str),
    "key": HEX,
    "value": HEX,
    "headers": st.lists(st.tuples(st.sampled_from("hH"), HEX).map(list), max_size=2),
}


@given(st.sampled_from([*PARTS]).flatmap(lambda name: PARTS[name].map(lambda value: {name: value})))
def test_every_part_of_a_record_is_compared(part: dict[str, Any]) -> None:
    case = case_of(batch())
    both = case.expectation["batches"][0]["records"]
    for at, right in enumerate(both):
        answer = [*both[:at], right | part, *both[at + 1 :]]
        expected = "pass" if right | part == right else "fail"
        assert accepted(case, batches=[{"records": answer}]).outcome == expected
        assert accepted(case, records=answer).outcome == expected


def test_a_missing_or_surplus_record_or_batch_fails() -> None:
    case = case_of(batch(), batch())
    (one, two), [first, _] = case.expectation["batches"], case.expectation["batches"][0]["records"]
    assert accepted(case, batches=[one]).text == "read too few batches: 1; expected 2"
    assert accepted(case, batches=[one, two, two]).outcome == "fail"
    short = two | {"records": [first]}
    assert accepted(case, batches=[one, short]).text == "batch[1] has too few records: 1; expected 2"


def test_flat_records_are_compared_with_all_batches_in_a_row() -> None:
    case = case_of(batch(), batch())
    flat = [record for batch in case.expectation["batches"] for record in batch["records"]]
    assert accepted(case, records=flat).outcome == "pass"
    assert accepted(case, records=flat[:3]).outcome == "fail"


def test_hidden_control_records_are_not_missed_by_who_declares_to_hide_them() -> None:
    marker = batch(records.Record(7, 1, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00"), control=True)
    case = case_of(batch(), marker)
    data, control = case.expectation["batches"]
    hides = changed(control="hidden")
    for answer in ({"batches": [data]}, {"batches": [data, control | {"records": []}]}, {"records": data["records"]}):
        assert accepted(case, handshake=hides, **answer).outcome == "pass"
        assert accepted(case, handshake=FULL, **answer).outcome == "fail"


def test_a_long_value_is_compared_by_its_hash_on_either_side() -> None:
    value = b"long" * 20_000
    digest = {"sha256": hashlib.sha256(value).hexdigest(), "size": len(value)}
    case = case_of(batch(records.Record(5, 1, None, value)))
    [record] = case.expectation["batches"][0]["records"]
    assert accepted(case, records=[record | {"value": digest}]).outcome == "pass"
    assert accepted(case, records=[record | {"value": digest | {"size": 1}}]).outcome == "fail"
    [whole] = case.expectation["batches"]
    hashed = case_of(batch(), expect={"batches": [whole | {"records": [record | {"value": digest}]}]})
    assert accepted(hashed, records=[record]).outcome == "pass"
    assert accepted(hashed, records=[record | {"value": "00"}]).outcome == "fail"


@pytest.mark.parametrize(
    ("key", "passes"),
    [
        ({"hex": "61ffff62"}, True),
        ("a\ufffd\ufffdb", True),
        # Languages differ in how many replacement characters stand for a run of bad bytes.
        ("a\ufffdb", True),
        ("ab", False),
        ("a\ufffd", False),
        ({"hex": "61ff62"}, False),
    ],
)
def test_a_header_key_that_is_not_utf8_may_be_read_with_replacement_characters(key: Any, passes: bool) -> None:
    case = case_of(batch(records.Record(5, 1, None, None, ((b"a\xff\xffb", b""),))))
    [record] = case.expectation["batches"][0]["records"]
    assert (accepted(case, records=[record | {"headers": [[key, ""]]}]).outcome == "pass") is passes


def test_a_header_key_that_is_utf8_may_be_given_as_hex_but_not_with_replacement_characters() -> None:
    case = case_of(batch(records.Record(5, 1, None, None, (("é".encode(), b""),))))
    [record] = case.expectation["batches"][0]["records"]
    assert accepted(case, records=[record | {"headers": [[{"hex": "c3a9"}, ""]]}]).outcome == "pass"
    assert accepted(case, records=[record | {"headers": [["\ufffd", ""]]}]).outcome == "fail"


def test_a_header_key_with_the_replacement_character_must_be_the_same_text() -> None:
    case = case_of(batch(records.Record(0, 1, None, None, (("a\ufffdb".encode(), b""),))))
    (record,) = case.expectation["batches"][0]["records"]
    assert record["headers"] == [["a\ufffdb", ""]]
    assert accepted(case, records=[record]).outcome == "pass"
    assert accepted(case, records=[record | {"headers": [[{"hex": "61efbfbd62"}, ""]]}]).outcome == "pass"
    for other in ("a\ufffd\ufffdb", {"hex": "61ff62"}, {"hex": "61efbfbdefbfbd62"}):
        assert accepted(case, records=[record | {"headers": [[other, ""]]}]).outcome == "fail"


# --- unsupported is declared ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"operations": frozenset({"encode-records"})}, "does not offer decode-records"),
        ({"roles": frozenset({"broker"})}, "does not offer the role consumer"),
        ({"magic": frozenset({0, 1})}, "does not support magic 2"),
        ({"codecs": frozenset({"none", "zstd"})}, "does not support gzip"),
    ],
)
def test_only_the_handshake_makes_a_case_unsupported(changes: dict[str, Any], why: str | None) -> None:
    assert declared_unsupported(case_of(batch(compression="gzip")), changed(**changes)) == why


def test_the_bytes_of_a_refused_vector_say_what_it_needs() -> None:
    good = records.encode([batch(), batch(compression="gzip")])
    case = invalid_case(data=good)
    assert declared_unsupported(case, changed(codecs=frozenset({"none"}))) == "does not support gzip"
    old = records.encode(
        [records.RecordBatch(0, 0, [records.Record(0, None, None, None)], magic=0, timestamp_type="none")]
    )
    assert declared_unsupported(invalid_case(data=old), changed(magic=frozenset({2}))) == "does not support magic 0"


@pytest.mark.parametrize("data", [b"", b"\x00" * 17, b"\xff" * 40, b"\x00" * 16 + b"\x02" + b"\x07" * 30])
def test_bytes_that_say_nothing_need_nothing(data: bytes) -> None:
    nothing = changed(magic=frozenset({0, 2}), codecs=frozenset({"none"}))
    assert declared_unsupported(invalid_case(data=data), nothing) is None


def test_a_testee_that_declares_no_crc_check_is_excused_only_from_wrong_crcs() -> None:
    lax = changed(checks_crc=False)
    assert declared_unsupported(invalid_case("crc-mismatch"), lax) == "does not check CRCs"
    assert declared_unsupported(invalid_case("record-count-negative"), lax) is None
    assert declared_unsupported(invalid_case("crc-mismatch"), FULL) is None


# --- encoding -------------------------------------------------------------------------------------------------------


def test_a_valid_vector_gives_a_question_to_the_encoder_and_an_invalid_one_does_not() -> None:
    valid, invalid = case_of(batch()).vector, invalid_case().vector
    assert [case.role for case in cases_of([valid])] == ["consumer", "encode"]
    assert [case.role for case in cases_of([invalid])] == ["consumer"]
    assert cases_of([valid], ["broker"]) == ()
    assert request(Case(valid, "encode")) == {
        "id": "toy/case",
        "operation": "encode-records",
        "batches": valid.expect["consumer"]["batches"],
    }


def test_the_topic_is_told_to_a_broker_alone() -> None:
    topic = {"compacted": True}
    for role, told in (("broker", {"topic": topic}), ("consumer", {}), ("log", {})):
        case = case_of(batch(), role=role, options={"topic": topic})
        hexed = case.vector.data.hex()
        assert request(case) == {"id": "toy/case", "operation": "decode-records", "role": role, "hex": hexed, **told}


def test_contents_given_by_a_hash_cannot_be_encoded() -> None:
    case = case_of(batch())
    contents = json.loads(json.dumps(case.expectation["batches"]))
    contents[0]["records"][0]["value"] = {"sha256": "0" * 64, "size": 1}
    assert [case.role for case in cases_of([case_of(batch(), expect={"batches": contents}).vector])] == ["consumer"]


def test_encoded_bytes_are_judged_by_what_they_decode_to() -> None:
    case = case_of(batch(), role="encode")
    right = case.vector.data
    assert judged(case, outcome="accepted", hex=right.hex()).outcome == "pass"
    other = records.encode([batch(records.Record(5, 100, b"k", b"other"))])
    assert judged(case, outcome="accepted", hex=other.hex()).text.startswith("encoded other contents: batch[0].")
    assert judged(case, outcome="accepted", hex=right[:-1].hex()).outcome == "fail"
    assert judged(case, outcome="accepted", hex=(right + b"\x00").hex()).outcome == "fail"
    assert judged(case, outcome="accepted", hex=(right[:-1] + b"!").hex()).text.startswith(
        "encoded bytes that cannot be read"
    )
    assert judged(case, outcome="rejected").outcome == "fail"


def test_only_a_canonical_vector_demands_the_very_bytes() -> None:
    # An attribute bit that Kafka ignores: other bytes, same contents.
    data = bytearray(records.encode([batch()]))
    data[21] |= 0x80
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    for canonical, outcome in ((False, "pass"), (True, "fail")):
        case = case_of(batch(), role="encode", canonical=canonical)
        assert judged(case, outcome="accepted", hex=bytes(data).hex()).outcome == outcome


def test_compressed_bytes_are_never_compared() -> None:
    case = case_of(batch(compression="gzip"), role="encode", canonical=True)
    other = records.encode([batch(compression="gzip")], level=1)
    assert other != case.vector.data
    assert judged(case, outcome="accepted", hex=other.hex()).outcome == "pass"


# --- messages -------------------------------------------------------------------------------------------------------

MESSAGE = {"correlationId": 7}
MESSENGER = changed(operations=frozenset({"decode-message", "encode-message"}), messages={"ResponseHeader": (0, 1)})


def message_case(role: str = "reader", version: int = 0, **expect: Any) -> Case:
    expectation = {"verdict": "valid", "message": MESSAGE, "consumed": 4} | expect
    data = b"\x00\x00\x00\x07"
    options = {"message": "ResponseHeader", "version": version}
    vector = make_vector(
        "toy/case", data, kind="message", expect={"reader": expectation}, options=options, canonical=True
    )
    return Case(vector, role)


def test_a_message_is_asked_by_its_name_and_version_and_encoded_from_its_contents() -> None:
    reading, writing = cases_of([message_case().vector])
    named = {"id": "toy/case", "message": "ResponseHeader", "version": 0}
    assert request(reading) == {**named, "operation": "decode-message", "hex": "00000007"}
    assert request(writing) == {**named, "operation": "encode-message", "body": MESSAGE}


@pytest.mark.parametrize(
    ("handshake", "reason"),
    [
        (FULL, "does not offer decode-message"),
        (changed(operations=frozenset({"decode-message"}), messages={}), "has no ResponseHeader"),
        (
            changed(operations=frozenset({"decode-message"}), messages={"ResponseHeader": (1, 2)}),
            "has ResponseHeader in the versions 1 to 2",
        ),
        (MESSENGER, None),
    ],
)
def test_a_message_that_a_testee_does_not_have_is_unsupported(handshake: Handshake, reason: str | None) -> None:
    assert declared_unsupported(message_case(), handshake) == reason


@pytest.mark.parametrize(
    ("expect", "answer", "outcome", "text"),
    [
        ({}, {"outcome": "accepted", "message": MESSAGE}, "pass", ""),
        ({}, {"outcome": "accepted", "message": MESSAGE, "consumed": 4}, "pass", ""),
        ({}, {"outcome": "accepted", "message": MESSAGE, "consumed": 3}, "fail", "consumed 3 bytes"),
        (
            {},
            {"outcome": "accepted", "message": {"correlationId": 8}},
            "fail",
            "message.correlationId is 8; expected 7",
        ),
        ({}, {"outcome": "accepted", "message": {}}, "fail", "message.correlationId is null; expected 7"),
        ({}, {"outcome": "rejected", "error": "no"}, "fail", "refused bytes that must be accepted"),
        ({"verdict": "invalid", "finding": "message-cut"}, {"outcome": "rejected"}, "pass", ""),
        ({"verdict": "invalid", "finding": "message-cut"}, {"outcome": "fault", "error": "oom"}, "fault", "oom"),
        (
            {"verdict": "invalid", "finding": "message-cut"},
            {"outcome": "accepted", "message": MESSAGE},
            "fail",
            "accepted bytes that must be refused (message-cut)",
        ),
        (
            {"verdict": "acceptable", "finding": "tag-repeated"},
            {"outcome": "rejected", "finding": "message-cut"},
            "fail",
            "refused for message-cut; the fault is tag-repeated",
        ),
        ({"verdict": "acceptable", "finding": "tag-repeated"}, {"outcome": "rejected"}, "pass", ""),
    ],
)
def test_an_answer_about_a_message_is_judged_by_its_contents(
    expect: dict[str, Any], answer: dict[str, Any], outcome: str, text: str
) -> None:
    cell = judged(message_case(**expect), handshake=MESSENGER, **answer)
    assert cell.outcome == outcome
    assert text in cell.text


@pytest.mark.parametrize(
    ("answer", "outcome", "text"),
    [
        ({"outcome": "accepted", "hex": "00000007"}, "pass", ""),
        ({"outcome": "accepted", "hex": "00000008"}, "fail", "the bytes differ at byte 3"),
        ({"outcome": "accepted", "hex": "0000000700"}, "fail", "the bytes are 5, not 4"),
        ({"outcome": "rejected", "error": "no"}, "fail", "refused to encode valid contents: no"),
    ],
)
def test_an_encoded_message_has_the_very_bytes(answer: dict[str, Any], outcome: str, text: str) -> None:
    cell = judged(message_case("encode"), handshake=MESSENGER, **answer)
    assert cell.outcome == outcome
    assert text in cell.text


CLIENT = changed(
    operations=MESSENGER.operations, messages={"FetchRequest": (0, 17), "FetchResponse": (0, 17)}, side="client"
)


@pytest.mark.parametrize(
    ("message", "role", "reason"),
    [
        ("FetchRequest", "reader", "a client reads no requests"),
        ("FetchRequest", "encode", None),
        ("FetchResponse", "reader", None),
        ("FetchResponse", "encode", "a client writes no responses"),
    ],
)
def test_a_client_is_not_asked_to_do_what_only_a_broker_does(message: str, role: str, reason: str | None) -> None:
    vector = make_vector(
        "toy/case", b"", kind="message", expect={"reader": {}}, options={"message": message, "version": 4}
    )
    assert declared_unsupported(Case(vector, role), CLIENT) == reason


@pytest.mark.parametrize(
    ("read", "text"),
    [
        ({"topics": [{"leader": 1}, {"leader": 2}], "error": 3}, ""),
        ({"topics": [{"leader": 1, "tagged": {"id": 5}}, {"leader": 2}], "error": 3}, ""),
        ({"topics": [{"leader": 1, "tagged": {"id": 6}}, {"leader": 2}], "error": 3}, "topics[0].tagged.id is 6"),
        ({"topics": [{"leader": 1}, {"leader": 9}], "error": 3}, "topics[1].leader is 9"),
        ({"topics": [{"leader": 1}], "error": 3}, "topics has 1 entries; expected 2"),
        ({"topics": [{"leader": 1}, {"leader": 2}]}, "error is null"),
        ({"topics": None, "error": 3}, "topics is null"),
    ],
)
def test_a_hidden_field_is_compared_only_if_the_answer_has_it(read: dict[str, Any], text: str) -> None:
    whole = {"topics": [{"leader": 1, "tagged": {"id": 5}}, {"leader": 2, "tagged": {"id": 7}}], "error": 3}
    handshake = changed(
        operations=MESSENGER.operations, messages=MESSENGER.messages, hidden={"ResponseHeader": ["topics.tagged"]}
    )
    cell = judged(message_case(message=whole), handshake=handshake, outcome="accepted", message=read)
    assert cell.outcome == ("fail" if text else "pass")
    assert text in cell.text


SKIPS_TAGS = {"operations": MESSENGER.operations, "messages": MESSENGER.messages, "unknown_tags": "skipped"}
TAGGED = {"topics": [{"leader": 1, "_unknownTaggedFields": [{"tag": 9, "hex": "ab"}]}]}


@pytest.mark.parametrize(
    ("declares", "read", "outcome"),
    [
        ({}, {"topics": [{"leader": 1}]}, "fail"),
        (SKIPS_TAGS, {"topics": [{"leader": 1}]}, "pass"),
        (SKIPS_TAGS, TAGGED, "pass"),
        (SKIPS_TAGS, {"topics": [{"leader": 2}]}, "fail"),
        (SKIPS_TAGS, None, "fail"),
    ],
)
def test_a_testee_that_declares_to_skip_unknown_tags_must_only_read_past_them(
    declares: dict[str, Any], read: dict[str, Any] | None, outcome: str
) -> None:
    handshake = changed(**declares) if declares else MESSENGER
    said = {"outcome": "accepted", "message": read} if read else {"outcome": "rejected"}
    assert judged(message_case(message=TAGGED), handshake=handshake, **said).outcome == outcome
    asked = Case(message_case(message=TAGGED).vector, "encode")
    assert declared_unsupported(asked, handshake) == ("does not keep unknown tagged fields" if declares else None)


@pytest.mark.parametrize(
    ("verdict", "outcome", "contradicted"),
    [
        ("invalid", "accepted", True),
        ("invalid", "rejected", False),
        # An exception that escapes means that the bytes were not read.
        ("invalid", "fault", False),
        ("valid", "fault", True),
    ],
)
def test_kafka_confirms_a_refusal_by_refusing_or_by_an_exception_and_contradicts_it_by_reading(
    monkeypatch: pytest.MonkeyPatch, verdict: str, outcome: str, contradicted: bool
) -> None:
    case = case_of(batch(), verdict=verdict)
    said = {"batches": case.expectation["batches"]} if outcome == "accepted" else {"error": "why"}
    line = json.dumps({"id": "toy/case", "outcome": outcome} | said).encode()
    answer = parse_answer(line, id="toy/case", operation=case.operation)
    monkeypatch.setattr(
        confirmation, "_ask_all_versions", lambda cases, progress: [(Testee("kafka", "1", ()), FULL, case, answer)]
    )
    found = confirmation.confirm_streams([])
    assert bool(found.contradictions) == contradicted


def test_canonical_bytes_of_the_suite_hold_the_contents_that_an_encoder_is_given() -> None:
    # The judge relies on it where an encoder writes just these bytes.
    cases = [case for case in cases_of(load_suite()) if case.operation == ENCODE and case.vector.canonical]
    assert len(cases) > 100
    for case in cases:
        reading = records.read(case.vector.data)
        assert (reading.fatal, reading.partial_tail, reading.consumed) == (None, False, case.vector.size), case.key
        assert batches_differ(case.expectation["batches"], records.to_json(reading.batches)) is None, case.key


# --- the offsets and types that a whole client may report -----------------------------------------------------------

FLAT = records.to_json([batch()])[0]["records"]
ENDING = case_of(batch(), batch(records.Record(7, 1, None, None), control=True))
HIDES = changed(control="hidden")


@pytest.mark.parametrize(
    ("reported", "text"),
    [
        ({"position": "7"}, ""),
        ({"position": "8", "high_watermark": "8", "last_stable_offset": "8"}, ""),
        ({"position": "6"}, "the position is 6; expected 7 to 8"),
        ({"position": "9"}, "the position is 9; expected 7 to 8"),
        ({"high_watermark": "7"}, "the high watermark is 7; expected 8"),
        ({"last_stable_offset": "0"}, "the last stable offset is 0; expected 8"),
    ],
)
def test_a_position_is_between_the_last_record_shown_and_the_end(reported: dict[str, str], text: str) -> None:
    cell = accepted(ENDING, handshake=HIDES, records=FLAT, **reported)
    assert (cell.text, cell.harm) == (text, "loses" if text else "")


def test_a_position_is_not_compared_where_the_bytes_may_be_refused() -> None:
    case = case_of(batch(), verdict="acceptable")
    assert accepted(case, records=FLAT, position="99").outcome == "pass"


def test_the_type_of_a_timestamp_is_compared_where_a_record_has_it() -> None:
    case = case_of(batch(timestamp_type="log-append", max_timestamp=101))
    wanted = [record for one in case.expectation["batches"] for record in one["records"]]
    shown = [{**wanted[0], "timestamp_type": "log-append"}, {**wanted[1], "timestamp_type": "8"}]
    assert accepted(case, records=shown).text == "records[1].timestamp_type is 8; expected log-append"
    assert accepted(case, records=[shown[0], wanted[1]]).outcome == "pass"
