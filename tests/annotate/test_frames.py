"""The frames of a connection: every request is named and has its answer, and every byte of a frame is shown."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz

from kfuzz import records
from kfuzz.annotate import frames
from kfuzz.annotate.frames import Sums, dump_frame, frames_of, line_of, summary
from kfuzz.kafka import LATEST, RELEASES
from kfuzz.messages import encode
from kfuzz.messages.catalogues import catalogue, newest
from kfuzz.messages.headers import request_header_version, response_header_version
from kfuzz.messages.sample import filled
from kfuzz.records import Record, RecordBatch

BATCH = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")], compression="gzip"))


def request(name: str, version: int, number: int, values: dict[str, Any], client: str | None = "me") -> bytes:
    definition = newest(f"{name}Request", version)
    header = {
        "requestApiKey": definition.api_key,
        "requestApiVersion": version,
        "correlationId": number,
        "clientId": client,
    }
    header_version = request_header_version(definition, version)
    body = encode(newest("RequestHeader", header_version), header_version, header)
    body += encode(definition, version, values)
    return len(body).to_bytes(4, "big") + body


def response(name: str, version: int, number: int, values: dict[str, Any]) -> bytes:
    definition = newest(f"{name}Response", version)
    body = encode("ResponseHeader", response_header_version(definition, version), {"correlationId": number})
    body += encode(definition, version, values)
    return len(body).to_bytes(4, "big") + body


def fetched(*batches: bytes) -> dict[str, Any]:
    partitions = [{"partitionIndex": i, "highWatermark": 9, "records": one} for i, one in enumerate(batches)]
    return {"responses": [{"topicId": bytes(16), "partitions": partitions}]}


SENT = [
    request("ApiVersions", 3, 1, {"clientSoftwareName": "me"}),
    request("Metadata", 12, 2, {"topics": None}, None),
    request("Produce", 9, 3, {"acks": 0, "topicData": []}),
    request("Fetch", 17, 4, {}),
    request("Heartbeat", 2, 5, {}),
]
RECEIVED = [
    response("ApiVersions", 3, 1, {"apiKeys": [{"apiKey": 18, "maxVersion": 4}]}),
    response("Metadata", 12, 2, {}),
    response("Fetch", 17, 4, fetched(BATCH)),
]


@pytest.mark.parametrize("release", RELEASES)
def test_every_request_and_response_of_every_version_is_named_and_matched(release: str) -> None:
    sent, received, names = [], [], []
    for definition in catalogue(release).messages.values():
        if definition.kind != "request":
            continue
        name = definition.name.removesuffix("Request")
        for version in definition.valid_versions:
            number = len(sent)
            ours, theirs = newest(definition.name, version), newest(f"{name}Response", version)
            sent.append(request(name, version, number, filled(ours, version, 1)))
            received.append(response(name, version, number, filled(theirs, version, 1)))
            # A later release may give the API another name.
            names.append((definition.api_key, version))
    found = list(frames_of(b"".join(sent), b"".join(received)))
    assert [(one.definition.api_key if one.definition else None, one.version) for one in found] == names
    assert [one.correlation_id for one in found] == list(range(len(sent)))
    assert all(one.answer and one.answer.name == f"{one.name[:-7]}Response" for one in found)
    # Random bytes are no records.
    assert [one for one in found if one.error or (one.answer and one.answer.error)] == []


def test_a_request_without_an_answer_has_none() -> None:
    found = list(frames_of(b"".join(SENT), b"".join(RECEIVED)))
    assert [one.answer.number if one.answer else None for one in found] == [0, 1, None, 2, None]
    assert [one.client_id for one in found] == ["me", None, "me", "me", "me"]
    assert all(one.answer is None for one in frames_of(b"".join(SENT)))


def test_a_response_to_no_request_comes_last() -> None:
    stray = response("Metadata", 12, 99, {})
    *others, last = frames_of(b"".join(SENT), RECEIVED[0] + stray + RECEIVED[1])
    assert (last.is_stray, last.error, last.at) == (True, "no request has the correlation id 99", len(RECEIVED[0]))
    assert others[1].answer is not None
    assert line_of(last)[1].endswith(f"fatal: a response at byte {last.at}: no request has the correlation id 99")


def test_responses_to_requests_before_the_capture_are_no_error_and_said_once() -> None:
    early = [response("Metadata", 12, number, {}) for number in (-7, -6, -5)]
    sums = Sums()
    found = list(sums.counted(frames_of(b"".join(SENT), b"".join((*early, *RECEIVED)))))
    assert [(one.is_early, one.error, one.is_refused) for one in found[len(SENT) :]] == [(True, "", False)] * 3
    assert all(len(line_of(one)) == 1 for one in found[len(SENT) :])
    assert (sums.early, sums.strays, sums.refused) == (3, 0, 0)
    assert sum("3 responses answer requests before it" in line for line in summary(sums)) == 1
    # Without any answer, the correlation ids say it: a client counts.
    *_, first, stray = frames_of(SENT[2], early[0] + response("Metadata", 12, 99, {}))
    assert (first.is_early, stray.is_early, bool(stray.error)) == (True, False, True)


def test_findings_of_batches_inside_are_those_of_the_frame() -> None:
    bad = BATCH[:-1] + bytes([BATCH[-1] ^ 1])
    received = RECEIVED[0] + response("Fetch", 17, 4, fetched(BATCH, bad))
    found = list(frames_of(b"".join(SENT), received))[3]
    assert found.answer is not None
    (finding,) = found.answer.findings
    assert finding.code == "crc-mismatch"
    assert finding.at == received.index(bad) + 17
    assert found.answer.is_refused
    assert f"at byte {finding.at}: " in line_of(found)[1]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\0\0", "2 bytes are left"),
        (b"\0\0\0\x09abc", "the length is 9, and 3 bytes are left"),
        (b"\xff\xff\xff\xff", "the length is -1, and 0 bytes are left"),
        (b"\0\0\0\2\0\1", "the frame is shorter than a request's header"),
        (b"\0\0\0\x08\3\xe7\0\0\0\0\0\1", "no release that kfuzz knows has an API with the key 999"),
        (
            request("Fetch", 17, 1, {})[:6] + b"\0\x63" + request("Fetch", 17, 1, {})[8:],
            f"no Kafka from {RELEASES[0]} to {LATEST} has version 99 of a message called 'FetchRequest'",
        ),
    ],
)
def test_a_frame_that_is_no_request_says_why(data: bytes, error: str) -> None:
    *before, last = frames_of(SENT[0] + data)
    assert len(before) == 1
    assert (last.at, last.size, last.error) == (len(SENT[0]), len(data), error)
    assert last.is_refused


def test_every_byte_of_a_frame_is_in_its_dump_once() -> None:
    sent, received = b"".join(SENT), b"".join(RECEIVED)
    for frame in frames_of(sent, received):
        for data, one in ((sent, frame), (received, frame.answer)):
            if one is None:
                continue
            dump = dump_frame(data, one)
            covered = [
                at
                for part in dump.parts
                if ".payload." not in f"{part.path}.{part.field}"
                for at in range(part.at, part.at + len(part.data))
            ]
            assert sorted(covered) == list(range(one.at, one.at + one.size))
            assert dump.findings == one.findings == []
            # Offsets inside a payload count from its start.
            inside = [part.at for part in dump.parts if ".payload.records[0]" in part.path]
            assert inside[:1] == ([0] if one.name == "FetchResponse" else [])


def test_no_bytes_make_the_frames_stumble() -> None:
    source = random.Random(3)
    sent, received = b"".join(SENT), b"".join(RECEIVED)
    for _ in range(300):
        changed = []
        for good in (sent, received):
            data = bytearray(good)
            for _ in range(source.randint(0, 4)):
                at = source.randrange(len(data))
                data[at : at + source.choice([1, 1, 2])] = source.randbytes(source.choice([0, 1, 3]))
            changed.append(bytes(data))
        at = 0
        for frame in frames_of(*changed):
            line_of(frame)
            frame.to_json()
            dump_frame(changed[frame.is_stray], frame)
            if not frame.is_stray:
                assert frame.at == at
                at += frame.size
        assert at == len(changed[0])


def test_show_lists_frames_and_opens_one_with_its_answer(tmp_path: Path) -> None:
    sent, received = tmp_path / "sent.bin", tmp_path / "received.bin"
    sent.write_bytes(b"".join(SENT))
    received.write_bytes(b"".join(RECEIVED))
    lines = kfuzz("show", "--frames", sent, "--responses", received).stdout.splitlines()
    assert lines[0] == f"{sent}: {sent.stat().st_size} bytes"
    line = f"0 0 {len(SENT[0])} ApiVersions 3 1 me {len(RECEIVED[0])} bytes at byte 0"
    assert " ".join(lines[2].split()) == line
    assert len(lines) == 2 + len(SENT) + 1
    assert lines[-1] == "5 requests, 3 with a response, 0 frames cannot be read"
    opened = kfuzz("show", sent, "--frame", "3", "--responses", received).stdout
    assert "requestApiKey: 1" in opened
    assert "batch[0].payload.records[0].key" not in opened.splitlines()[0]
    assert "key: 'k'" in opened
    assert opened.endswith("inside 1 fields of records: 1 batches, 1 records\n")
    document = json.loads(kfuzz("show", "--json", "--frames", sent, "--responses", received).stdout)
    assert [one["message"] for one in document["frames"]] == [
        "ApiVersionsRequest",
        "MetadataRequest",
        "ProduceRequest",
        "FetchRequest",
        "HeartbeatRequest",
    ]
    assert (document["requests"], document["answers"], document["refused"]) == (5, 3, 0)
    one = json.loads(kfuzz("show", "--json", "--frame", "3", sent, "--responses", received).stdout)
    assert one["frame"]["correlation_id"] == 4
    assert one["answer"]["frame"]["message"] == "FetchResponse"
    empty = tmp_path / "empty"
    empty.touch()
    assert json.loads(kfuzz("show", "--json", "--frames", empty).stdout)["frames"] == []


def test_only_the_next_responses_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "WAITING_MAX", 3)
    sent = b"".join(request("ApiVersions", 3, number, {}) for number in range(20))
    # One in five belongs to no request.
    given = [response("ApiVersions", 3, number if number % 5 else 100 + number, {}) for number in range(20)]
    found = list(frames_of(sent, b"".join(given)))
    answered = {one.number: one.answer.correlation_id for one in found if one.answer is not None}
    assert answered == {number: number for number in range(20) if number % 5}
    assert [one.correlation_id for one in found if one.is_stray] == [100, 105, 110, 115]


def test_a_list_fits_the_terminal() -> None:
    for frame in frames_of(b"".join(SENT)):
        assert len(line_of(frame, 80)[0]) <= 80
    assert len(frames.heading(80)) <= 80


def test_a_strict_reader_reads_what_follows_the_header() -> None:
    [*found] = frames_of(b"".join(SENT), b"".join(RECEIVED), profile="strict")
    assert [one.name for one in found if one.body_at] == [one.name for one in found]
    assert not [one for frame in found for one in frame.findings]


def test_an_answer_that_a_version_is_not_supported_is_in_version_0() -> None:
    asked = request("ApiVersions", 3, 1, {"clientSoftwareName": "a", "clientSoftwareVersion": "1"})
    offered = {"apiKey": 18, "minVersion": 0, "maxVersion": 2}
    said = response("ApiVersions", 0, 1, {"errorCode": 35, "apiKeys": [offered]})
    [frame] = frames_of(asked, said)
    assert frame.answer is not None
    assert (frame.version, frame.answer.version, frame.answer.findings) == (3, 0, [])
    said = response("ApiVersions", 3, 1, {"errorCode": 0, "apiKeys": [offered]})
    [frame] = frames_of(asked, said)
    assert frame.answer is not None
    assert (frame.answer.version, frame.answer.findings) == (3, [])
