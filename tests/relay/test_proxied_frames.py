"""Frames are paired with their requests, and read without their record batches."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from made_segments import bad, batch
from relay.framing import exchange, frame
from serve.asking import request

from kfuzz.relay.frames import HEAD, WAITING_MAX, Exchange, Frame, Pairing

BATCH = batch(0)
DAMAGED = bad(BATCH)


def asked(pairing: Pairing, data: bytes) -> Exchange:
    exchange = pairing.begin(data[: HEAD.size])
    pairing.asked(exchange, memoryview(data))
    return exchange


def metadata(*numbers: int, pairing: Pairing) -> list[Exchange]:
    return [asked(pairing, request("Metadata", 5, {}, number)) for number in numbers]


def answer(number: int) -> bytes:
    return struct.pack(">i", number)


def test_responses_find_their_requests_in_order() -> None:
    pairing = Pairing(7)
    first, second = metadata(10, 11, pairing=pairing)
    assert (first.connection, first.number, first.nth, first.name, first.version) == (7, 1, 1, "Metadata", 5)
    assert (second.number, second.nth) == (2, 2)
    assert pairing.answered(answer(10)) == (first, [])
    assert pairing.answered(answer(11)) == (second, [])
    assert pairing.answered(answer(11)) == (None, [])


def test_a_response_out_of_turn_leaves_earlier_requests_without_one() -> None:
    pairing = Pairing(1)
    first, second, third = metadata(1, 2, 3, pairing=pairing)
    assert pairing.answered(answer(9)) == (None, [])
    assert pairing.answered(answer(2)) == (second, [first])
    assert pairing.answered(answer(3)) == (third, [])


def test_a_request_that_is_not_passed_on_waits_for_nothing() -> None:
    pairing = Pairing(1)
    # They have the same correlation id.
    first, second, third = metadata(4, 4, 4, pairing=pairing)
    pairing.forget(second)
    assert [pairing.answered(answer(4)) for _ in range(2)] == [(first, []), (third, [])]
    pairing.forget(first)
    assert len(pairing) == 0


def test_requests_that_wait_are_bounded() -> None:
    pairing = Pairing(1)
    data = request("Metadata", 0, {"topics": []})
    for _ in range(WAITING_MAX + 5):
        last = asked(pairing, data)
    assert len(pairing) == WAITING_MAX
    pairing.reply(last, [b""])
    assert not pairing.has_replies


def test_apis_are_counted_by_themselves_and_unknown_ones_together() -> None:
    heads = [(3, 5), (1, 4), (3, 99), (900, 0), (-5, 0), (3, 0)]
    pairing = Pairing(1)
    found = [pairing.begin(HEAD.pack(key, version, 0)) for key, version in heads]
    assert [(one.name, one.nth, one.api is not None) for one in found] == [
        ("Metadata", 1, True),
        ("Fetch", 1, True),
        ("Metadata", 2, False),
        ("API 900", 1, False),
        ("API -5", 2, False),
        ("Metadata", 3, True),
    ]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("transactional_id", [None, "", "t", "x" * 300], ids=["null", "empty", "short", "long"])
def test_produce_without_acks_has_no_answer(version: int, transactional_id: str | None) -> None:
    for acks in (0, 1, -1):
        pairing = Pairing(1)
        data = request("Produce", version, {"transactionalId": transactional_id, "acks": acks, "topicData": []})
        assert asked(pairing, data).has_answer == (acks != 0)
        assert len(pairing) == (acks != 0)
        # No cut of it is an error.
        for size in range(HEAD.size, len(data)):
            assert asked(pairing, data[:size]).client_id in ("test", None)


@pytest.mark.parametrize(
    ("written", "read"), [("kfuzz", "kfuzz"), ("", ""), (None, None), ("ä" * 200, "ä" * 125), ("x" * 251, "x" * 250)]
)
def test_the_client_id_is_read_up_to_a_bound(written: str | None, read: str | None) -> None:
    data = frame(exchange("Metadata", 12, client_id=written), "request", {}).data
    assert asked(Pairing(1), bytes(data)).client_id == read


@pytest.mark.parametrize("version", [4, 12, 17])
def test_a_frame_knows_where_its_records_are(version: int) -> None:
    values = {"responses": [{"partitions": [{"errorCode": 6, "records": b"batches"}, {"errorCode": 6}]}]}
    one = frame(exchange("Fetch", version), "response", values)
    data = bytes(one.data)
    assert (one.findings, one.errors, one.has_hosts) == ([], {6: 2}, False)
    [at] = [at for at, size in one.records if size]
    assert data[at : at + 7] == b"batches"
    assert one.values()["responses"][0]["partitions"][0]["records"] == b"batches"
    assert one.with_values(one.values()).data == data


def test_offsets_of_findings_count_from_the_start_of_the_frame() -> None:
    data = request("Metadata", 12, {}) + b"rest"
    one = Frame(exchange("Metadata", 12), "request", memoryview(data))
    one.check()
    [finding] = one.findings
    assert (finding.code, finding.at) == ("bytes-after-message", len(data) - 4)


@pytest.mark.parametrize(("name", "version"), [("Fetch", 4), ("Fetch", 12), ("Fetch", 17), ("ShareFetch", 1)])
def test_findings_in_batches_have_their_place(name: str, version: int) -> None:
    right: dict[str, Any] = {"partitionIndex": 0, "records": BATCH * 3 + BATCH[:20]}
    partitions = [right, {"records": b""}, {"records": DAMAGED}]
    one = frame(exchange(name, version), "response", {"responses": [{"partitions": []}, {"partitions": partitions}]})
    assert one.findings == []
    one.check_batches()
    [finding] = one.findings
    assert finding.code == "crc-mismatch"
    assert finding.path.startswith(f"{name}Response.responses[1].partitions[2].records.batch[0].")
    # The CRC is 17 bytes after the batch's start.
    assert finding.at == bytes(one.data).index(DAMAGED) + 17


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize(("batches", "count"), [(BATCH, 0), (BATCH * 2, 1), (b"", 1)])
def test_produce_requests_follow_the_rules_of_a_broker(version: int, batches: bytes, count: int) -> None:
    partitions = [{"index": 0, "records": BATCH}, {"index": 1, "records": batches}]
    one = frame(exchange("Produce", version), "request", {"acks": 1, "topicData": [{"partitionData": partitions}]})
    one.check_batches()
    paths = [found.path for found in one.findings]
    assert len(paths) == count
    assert all(path.startswith("ProduceRequest.topicData[0].partitionData[1].records.batch") for path in paths)
