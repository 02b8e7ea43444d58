"""kfuzz speaks its own protocol: each line gets one good answer, whatever the line is."""

from __future__ import annotations

import io
import json
from typing import Any, cast

import pytest

from kfuzz import records
from kfuzz.conformance.judge.own import serve
from kfuzz.conformance.protocol.lines import DECODE, ENCODE, parse_answer, parse_handshake
from kfuzz.wire.io.checksum import crc32c

BATCH = records.RecordBatch(3, 3, [records.Record(3, 4, b"k", b"v" * 100_000)], compression="gzip")


def answers(*requests: dict[str, Any] | bytes, profile: str = "kafka") -> list[bytes]:
    lines = [request if isinstance(request, bytes) else json.dumps(request).encode() for request in requests]
    out = io.BytesIO()
    serve(io.BytesIO(b"\n".join(lines)), out, profile=cast(records.Profile, profile))
    said = out.getvalue().splitlines()
    assert parse_handshake(said[0]).name == ("kfuzz" if profile == "kafka" else "kfuzz-strict")
    assert len(said) == 1 + len(requests)
    return said[1:]


def decode(data: bytes, **changes: Any) -> dict[str, Any]:
    return {"id": "a", "operation": DECODE, "role": "consumer", "hex": data.hex()} | changes


def test_good_bytes_are_accepted_with_their_contents_and_long_values_by_their_hash() -> None:
    data = records.encode([BATCH])
    [line] = answers(decode(data + b"\x00"))
    answer = parse_answer(line, id="a", operation=DECODE)
    assert (answer.outcome, answer.consumed) == ("accepted", len(data))
    assert answer.batches is not None
    assert answer.batches[0]["records"][0]["value"]["size"] == 100_000


def test_bad_bytes_are_rejected_with_the_finding_and_the_good_batches_before_them() -> None:
    good = records.encode([BATCH])
    [line] = answers(decode(good + good[:-1] + b"!"))
    answer = parse_answer(line, id="a", operation=DECODE)
    assert (answer.outcome, answer.finding) == ("rejected", "crc-mismatch")
    assert answer.batches is not None
    assert len(answer.batches) == 1


def test_the_strict_profile_refuses_what_the_documents_refuse() -> None:
    data = bytearray(records.encode([BATCH]))
    data[21] |= 0x80
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    for profile, outcome in (("kafka", "accepted"), ("strict", "rejected")):
        [line] = answers(decode(bytes(data)), profile=profile)
        assert json.loads(line)["outcome"] == outcome


def test_a_broker_is_asked_under_the_topic_of_the_request_and_a_consumer_is_not() -> None:
    data = records.encode([records.RecordBatch(0, 0, [records.Record(0, 4, None, b"v")])])
    compacted = {"topic": {"compacted": True}}
    said = answers(
        decode(data, role="broker"),
        decode(data, role="broker", **compacted),
        decode(data, role="consumer", **compacted),
    )
    told = [parse_answer(line, id="a", operation=DECODE) for line in said]
    assert [answer.outcome for answer in told] == ["accepted", "rejected", "accepted"]
    assert told[1].finding == "key-missing"


def test_a_bomb_is_rejected_for_its_size() -> None:
    value = bytes(records.Limits().decompressed_bytes)
    bomb = records.RecordBatch(0, 0, [records.Record(0, 0, None, value)], compression="zstd")
    [line] = answers(decode(records.encode([bomb])))
    assert parse_answer(line, id="a", operation=DECODE).finding == "decompressed-size-exceeded"


def test_encoded_bytes_have_the_requested_contents() -> None:
    [line] = answers({"id": "a", "operation": ENCODE, "batches": records.to_json([BATCH])})
    answer = parse_answer(line, id="a", operation=ENCODE)
    assert answer.data is not None
    assert records.decode(answer.data) == records.decode(records.encode([BATCH]))


def test_contents_that_cannot_be_written_are_rejected() -> None:
    wrong = records.to_json([BATCH])
    wrong[0]["producer_epoch"] = 2**40
    [line] = answers({"id": "a", "operation": ENCODE, "batches": wrong})
    assert parse_answer(line, id="a", operation=ENCODE).outcome == "rejected"


@pytest.mark.parametrize(
    ("request_", "outcome"),
    [
        (b"hello", "fault"),
        (b"[]", "fault"),
        (b'{"id": "a"}', "fault"),
        ({"id": "a", "operation": "dance"}, "unsupported"),
        ({"id": "a", "operation": "decode-message"}, "fault"),
        ({"id": "a", "operation": "decode-message", "message": "NoRequest", "version": 0, "hex": ""}, "unsupported"),
        (
            {"id": "a", "operation": "encode-message", "message": "FetchRequest", "version": 99, "body": {}},
            "unsupported",
        ),
        (
            {"id": "a", "operation": "encode-message", "message": "FetchRequest", "version": 4, "body": {"x": 1}},
            "rejected",
        ),
        (decode(b"", role="nobody"), "unsupported"),
        (decode(b"", hex="zz"), "fault"),
        (decode(b"", role="broker", topic={"colour": "red"}), "fault"),
        ({"id": "a", "operation": ENCODE, "batches": 7}, "rejected"),
    ],
)
def test_a_request_that_makes_no_sense_gets_an_answer_and_the_next_one_too(request_: Any, outcome: str) -> None:
    said = answers(request_, decode(b""))
    assert json.loads(said[0])["outcome"] == outcome
    assert parse_answer(said[1], id="a", operation=DECODE).outcome == "accepted"
