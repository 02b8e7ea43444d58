"""Frames are paired with their requests, and read without their record batches."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kfuzz import messages, records
from kfuzz.messages.catalogues import newest
from kfuzz.messages.headers import request_header_version
from kfuzz.relay.frames import HEAD, WAITING_MAX, Exchange, Frame, Pairing, api_of, versions_of

PRODUCE, METADATA, FETCH = 0, 3, 1


def request(
    name: str, version: int, correlation_id: int, values: dict[str, Any], client_id: str | None = "me"
) -> bytes:
    definition = newest(f"{name}Request", version)
    header = {
        "requestApiKey": definition.api_key,
        "requestApiVersion": version,
        "correlationId": correlation_id,
        "clientId": client_id,
    }
    head = messages.encode("RequestHeader", request_header_version(definition, version), header)
    return head + messages.encode(definition, version, values)


def asked(pairing: Pairing, data: bytes) -> Exchange:
    exchange = pairing.begin(data[: HEAD.size])
    pairing.asked(exchange, memoryview(data))
    return exchange


def answer(number: int) -> bytes:
    return struct.pack(">i", number)


def test_responses_find_their_requests_in_order() -> None:
    pairing = Pairing(7)
    first, second = (asked(pairing, request("Metadata", 5, number, {})) for number in (10, 11))
    assert (first.connection, first.number, first.nth, first.name, first.version) == (7, 1, 1, "Metadata", 5)
    assert (second.number, second.nth) == (2, 2)
    assert pairing.answered(answer(10)) == (first, [])
    assert pairing.answered(answer(11)) == (second, [])
    assert pairing.answered(answer(11)) == (None, [])


def test_a_response_out_of_turn_leaves_earlier_requests_without_one() -> None:
    pairing = Pairing(1)
    first, second, third = (asked(pairing, request("Metadata", 5, number, {})) for number in (1, 2, 3))
    assert pairing.answered(answer(9)) == (None, [])
    assert pairing.answered(answer(2)) == (second, [first])
    assert pairing.unanswered == [third]


def test_a_request_that_is_not_passed_on_waits_for_nothing() -> None:
    pairing = Pairing(1)
    first, second = (asked(pairing, request("Metadata", 5, 4, {})) for _ in range(2))
    pairing.forget(first)
    # They have the same correlation id.
    assert pairing.answered(answer(4)) == (second, [])
    pairing.forget(first)
    assert len(pairing) == 0


def test_apis_are_counted_by_themselves_and_unknown_ones_together() -> None:
    pairing = Pairing(1)
    heads = [(3, 5), (1, 4), (3, 99), (900, 0), (-5, 0), (3, 0)]
    found = [pairing.begin(HEAD.pack(key, version, 0)) for key, version in heads]
    assert [one.nth for one in found] == [1, 1, 2, 1, 2, 3]
    assert [one.api is not None for one in found] == [True, True, False, False, False, True]
    assert [one.name for one in found] == ["Metadata", "Fetch", "Metadata", "API 900", "API -5", "Metadata"]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("transactional_id", [None, "", "t", "x" * 300])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_produce_without_acks_has_no_answer(version: int, transactional_id: str | None, acks: int) -> None:
    pairing = Pairing(1)
    data = request("Produce", version, 5, {"transactionalId": transactional_id, "acks": acks, "topicData": []})
    exchange = asked(pairing, data)
    assert exchange.has_answer == (acks != 0)
    assert len(pairing) == (acks != 0)


def test_every_cut_of_a_request_can_be_asked() -> None:
    for version in (0, 3, 9, 13):
        if version not in (versions_of(PRODUCE) or ()):
            continue
        data = request("Produce", version, 5, {"acks": 0, "topicData": []})
        for size in range(HEAD.size, len(data)):
            exchange = asked(Pairing(1), data[:size])
            assert exchange.client_id in ("me", None)


@pytest.mark.parametrize(
    ("written", "read"), [("kfuzz", "kfuzz"), ("", ""), (None, None), ("ä" * 200, "ä" * 125), ("x" * 251, "x" * 250)]
)
def test_the_client_id_is_read_up_to_a_bound(written: str | None, read: str | None) -> None:
    assert asked(Pairing(1), request("Metadata", 12, 1, {}, written)).client_id == read


def test_requests_that_wait_are_bounded() -> None:
    pairing = Pairing(1)
    data = request("Metadata", 0, 1, {"topics": []})
    for _ in range(WAITING_MAX + 5):
        asked(pairing, data)
    assert len(pairing) == WAITING_MAX


@pytest.mark.parametrize("version", [4, 12, 17])
def test_a_frame_knows_where_its_records_are(version: int) -> None:
    api = api_of(FETCH, version)
    assert api is not None
    values = {"responses": [{"partitions": [{"errorCode": 6, "records": b"batches"}, {"errorCode": 6}]}]}
    header = messages.encode("ResponseHeader", api.response.header_version, {"correlationId": 3})
    data = header + messages.encode(api.response.definition, version, values)
    frame = Frame(Exchange(1, 1, 1, FETCH, version, 3, api=api), "response", data)
    frame.check()
    assert (frame.body_at, frame.findings, frame.errors, frame.has_hosts) == (len(header), [], {6: 2}, False)
    ((at, size),) = [(at, size) for at, size in frame.records if size]
    assert data[at : at + size] == b"batches"
    assert frame.values()["responses"][0]["partitions"][0]["records"] == b"batches"
    assert frame.with_values(frame.values()).data == data


def test_offsets_of_findings_count_from_the_start_of_the_frame() -> None:
    api = api_of(METADATA, 12)
    assert api is not None
    data = request("Metadata", 12, 1, {}) + b"rest"
    frame = Frame(Exchange(1, 1, 1, METADATA, 12, 1, api=api), "request", memoryview(data))
    frame.check()
    [finding] = frame.findings
    assert (finding.code, finding.at) == ("bytes-after-message", len(data) - 4)


# --- record batches --------------------------------------------------------------------------------------------------

BATCH = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")])])
DAMAGED = bytearray(BATCH)
DAMAGED[-1] ^= 1


def fetched(name: str, version: int, values: dict[str, Any]) -> Frame:
    definition = newest(f"{name}Response", version)
    key = newest(f"{name}Request", version).api_key
    assert key is not None
    api = api_of(key, version)
    assert api is not None
    data = messages.encode("ResponseHeader", api.response.header_version, {"correlationId": 3})
    data += messages.encode(definition, version, values)
    frame = Frame(Exchange(1, 1, 1, key, version, 3, api=api), "response", memoryview(data))
    frame.check()
    return frame


@pytest.mark.parametrize(("name", "version"), [("Fetch", 4), ("Fetch", 12), ("Fetch", 17), ("ShareFetch", 1)])
def test_findings_in_batches_have_their_place(name: str, version: int) -> None:
    partitions = [{"partitionIndex": 0, "records": BATCH}, {"records": b""}, {"records": bytes(DAMAGED)}]
    frame = fetched(name, version, {"responses": [{"partitions": []}, {"partitions": partitions}]})
    assert frame.findings == []
    frame.check_batches()
    [finding] = frame.findings
    assert finding.code == "crc-mismatch"
    assert finding.path.startswith(f"{name}Response.responses[1].partitions[2].records.batch[0].")
    # The CRC is 17 bytes after the batch's start.
    assert finding.at == bytes(frame.data).index(bytes(DAMAGED)) + 17


def test_right_batches_have_no_findings() -> None:
    frame = fetched("Fetch", 12, {"responses": [{"partitions": [{"records": BATCH * 3 + BATCH[:20]}]}]})
    frame.check_batches()
    assert frame.findings == []


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize(("batches", "count"), [(BATCH, 0), (BATCH * 2, 1), (b"", 1)])
def test_produce_requests_follow_the_rules_of_a_broker(version: int, batches: bytes, count: int) -> None:
    partitions = [{"index": 0, "records": BATCH}, {"index": 1, "records": batches}]
    data = request("Produce", version, 5, {"acks": 1, "topicData": [{"partitionData": partitions}]})
    exchange = asked(Pairing(1), data)
    frame = Frame(exchange, "request", data)
    frame.check()
    frame.check_batches()
    paths = [one.path for one in frame.findings]
    assert len(paths) == count
    assert all(one.startswith("ProduceRequest.topicData[0].partitionData[1].records.batch") for one in paths)
