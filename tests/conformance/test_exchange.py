"""A conversation with a real broker: kfuzz writes every request, and reads every answer to its last byte.

It is had once, at every version that the broker and the catalogue have in common, and its counts are pinned.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from conftest import require_tool

from kfuzz import records
from kfuzz.conformance.broker.exchange import (
    SETTINGS,
    Connection,
    Conversation,
    Exchange,
    converse,
    error_codes,
    exchange_of,
)
from kfuzz.conformance.broker.real import Broker, BrokerFailed
from kfuzz.control import ControlRecordType, decode_control
from kfuzz.errors import EncodeError, UsageError
from kfuzz.messages.codec import encode, read
from kfuzz.records.stream import read_committed

# Exchanges, and the versions that both the broker and the latest catalogue have, at which all are asked.
SAID = {
    "ApiVersions": (6, "0-4"),
    "CreateTopics": (6, "2-7"),
    "Metadata": (14, "0-13"),
    "FindCoordinator": (7, "0-6"),
    "InitProducerId": (7, "0-5"),
    "Produce": (17, "3-13"),
    "AddPartitionsToTxn": (6, "0-5"),
    "EndTxn": (6, "0-5"),
    "ListOffsets": (11, "1-11"),
    "Fetch": (15, "4-18"),
}
TOO_NEW = ("ApiVersions", 6)
UNSUPPORTED_VERSION = 35
# Base offset and leader epoch are the partition's; the CRC covers neither.
LEADER_EPOCH_END = 16


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    for tool in ("java", "javac", "mvn"):
        require_tool(tool, "install a JDK of version 17 or later and Maven")
    with Broker(SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def said(broker: Broker) -> Conversation:
    return converse(broker.port)


def split(data: bytes) -> Iterator[bytes]:
    """The batches, each behind its base offset and its length."""
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        yield data[:size]
        data = data[size:]


@pytest.mark.java
def test_every_api_is_asked_at_every_version_in_common(said: Conversation) -> None:
    asked = Counter(exchange.api for exchange in said.exchanges)
    assert {api: (count, str(said.common[api])) for api, count in asked.items()} == SAID
    for api in SAID:
        versions = {one.version for one in said.of(api) if (one.api, one.version) != TOO_NEW}
        assert versions == set(said.common[api]), api


@pytest.mark.java
def test_every_answer_is_decoded_fully_and_written_again_to_the_byte(said: Conversation) -> None:
    flaws = {(exchange.api, exchange.version): exchange.flaws() for exchange in said.exchanges}
    assert {what: found for what, found in flaws.items() if found} == {}


@pytest.mark.java
def test_the_one_error_is_that_of_a_version_that_is_too_new_and_is_said_in_version_0(said: Conversation) -> None:
    errors = {(one.api, one.version): codes for one in said.exchanges if (codes := list(error_codes(one.values)))}
    assert errors == {TOO_NEW: [UNSUPPORTED_VERSION]}
    first = said.exchanges[0]
    assert (first.api, first.version) == TOO_NEW
    assert (first.body_version, first.header_version) == (0, 0)
    # All that it says is at which versions to ask again.
    assert first.values["apiKeys"] == [{"apiKey": 18, "minVersion": 0, "maxVersion": 4}]


@pytest.mark.java
def test_what_was_produced_comes_back_at_every_version_of_fetch(said: Conversation) -> None:
    stored = set()
    for exchange in said.of("Fetch"):
        partition = exchange.values["responses"][0]["partitions"][0]
        stored.add(partition["records"])
        aborted = [(one["producerId"], one["firstOffset"]) for one in partition["abortedTransactions"]]
        batches = records.decode(partition["records"])
        assert partition["lastStableOffset"] == partition["highWatermark"] == batches[-1].next_offset
        assert len(aborted) == said.transactions.count(False)
        # The last of what was produced are the transactions.
        plain = len(said.batches) - len(said.transactions)
        committed = said.batches[:plain] + [
            data for data, kept in zip(said.batches[plain:], said.transactions, strict=True) if kept
        ]
        assert [contents(batch) for batch in read_committed(batches, aborted)] == [
            contents(batch) for data in committed for batch in records.decode(data)
        ]
    (data,) = stored
    assert [one[LEADER_EPOCH_END:] for one in split(data) if not records.decode(one)[0].control] == [
        one[LEADER_EPOCH_END:] for one in said.batches
    ]


def contents(batch: records.RecordBatch) -> list[object]:
    """What a producer put into a batch."""
    return [
        (batch.compression, batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.transactional),
        *((record.timestamp, record.key, record.value, list(record.headers)) for record in batch.records),
    ]


@pytest.mark.java
def test_each_transaction_ends_as_it_was_asked_to(said: Conversation) -> None:
    data = said.of("Fetch")[-1].values["responses"][0]["partitions"][0]["records"]
    ends = [batch.records[0] for batch in records.decode(data) if batch.control]
    types = {True: ControlRecordType.COMMIT, False: ControlRecordType.ABORT}
    assert [decode_control(end.key, end.value).key.type for end in ends] == [types[one] for one in said.transactions]
    assert set(said.transactions) == {True, False}


@pytest.mark.java
def test_a_broker_gives_each_producer_its_id_and_each_start_of_a_transactional_one_a_higher_epoch(
    broker: Broker, said: Conversation
) -> None:
    version = said.common["InitProducerId"].highest
    with Connection(broker.port) as connection:

        def started(transactional_id: str | None) -> tuple[int, int]:
            values = {"transactionalId": transactional_id, "transactionTimeoutMs": 60_000}
            answer = connection.ask("InitProducerId", version, values).values
            assert answer["errorCode"] == 0
            return answer["producerId"], answer["producerEpoch"]

        idempotent = [started(None) for _ in range(3)]
        again = [started("again") for _ in range(3)]
    earlier = {one.values["producerId"] for one in said.of("InitProducerId")}
    assert [epoch for _, epoch in idempotent] == [0, 0, 0]
    ((producer_id, first), *later) = again
    assert later == [(producer_id, first + 1), (producer_id, first + 2)]
    ids = [*earlier, *(name for name, _ in idempotent), producer_id]
    assert len(set(ids)) == len(said.of("InitProducerId")) + 4
    assert min(ids) >= 0


# --- what is no full decoding, by hand ---

ASKED = bytes.fromhex("0000000d 0012 0003 00000007 0001 63 00 00")
HEADER = "00000007"
BODY = "0000 02 0012 0000 0004 00 00000000 00"


def answered(header: str, body: str) -> Exchange:
    data = bytes.fromhex(header + body)
    return exchange_of("ApiVersions", 3, ASKED, len(data).to_bytes(4, "big") + data)


def test_an_answer_without_a_flaw() -> None:
    exchange = answered(HEADER, BODY)
    assert exchange.flaws() == []
    assert exchange.values["apiKeys"] == [{"apiKey": 18, "minVersion": 0, "maxVersion": 4}]


@pytest.mark.parametrize(
    ("header", "body", "flaw"),
    [
        ("000000", "", "ResponseHeader.correlationId at byte 0: 4 bytes are needed here, and 3 are left [message-cut]"),
        (HEADER, BODY[:-2], "[message-cut]"),
        (HEADER, BODY + "00", "[bytes-after-message]"),
        (HEADER, BODY[:-2] + "01 09 00", "[tag-unknown]"),
        (HEADER, BODY.replace("02", "8200", 1), "[varint-overlong]"),
        ("00000008", BODY, "it answers request 8, not 7"),
        # A tagged field at its default, which no writer of Kafka's sends: only written again it shows.
        (HEADER, BODY[:-2] + "01 03 01 00", "its values are encoded as"),
    ],
)  # fmt: skip
def test_whatever_is_not_read_or_would_be_written_otherwise_is_a_flaw(header: str, body: str, flaw: str) -> None:
    assert any(flaw in found for found in answered(header, body).flaws())


def test_an_answer_that_cannot_be_read_has_no_values() -> None:
    for cut in (answered(HEADER, BODY[:-2]), answered("000000", "")):
        with pytest.raises(BrokerFailed, match=r"the response to ApiVersions 3 cannot be read: .* \[message-cut\]"):
            _ = cut.values


def test_behind_a_header_that_is_refused_no_body_is_looked_for() -> None:
    """These seven bytes would be a body of their own."""
    response = bytes.fromhex("00000007 00000007 7f00 00")
    exchange = exchange_of("EndTxn", 3, ASKED, response)
    assert [one.code for one in exchange.header.findings] == ["tag-count-exceeds-message"]
    assert (exchange.body.message, len(exchange.flaws())) == (None, 1)
    assert list(error_codes(read("EndTxnResponse", 3, response[4:]).message)) == [0x7F00]


def test_a_frame_of_another_size_than_it_says_is_a_flaw() -> None:
    right = answered(HEADER, BODY).response
    (flaw,) = exchange_of("ApiVersions", 3, ASKED, b"\x00\x00\x00\x01" + right[4:]).flaws()
    assert flaw.startswith("its values are encoded as")


# --- a peer that is no broker ---


@contextmanager
def peer(answer: bytes, pause_s: float = 0) -> Iterator[int]:
    """Whoever listens on the port given takes one request, says ``answer`` byte by byte and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            taken, _ = server.accept()
            with taken:
                taken.recv(1024)
                with contextlib.suppress(ConnectionError):
                    for byte in answer:
                        taken.sendall(bytes([byte]))
                        time.sleep(pause_s)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("", "no answer to ApiVersions 0: the broker closed the connection after 0 of 4 bytes"),
        ("00000008 0000", "no answer to ApiVersions 0: the broker closed the connection after 2 of 8 bytes"),
        ("7fffffff", "no answer to ApiVersions 0: a response of 2147483647 bytes; the limit is 16777216"),
        ("ffffffff", "no answer to ApiVersions 0: a response of -1 bytes; the limit is 16777216"),
    ],
)
def test_a_peer_that_does_not_answer_is_told_of(answer: str, says: str) -> None:
    with peer(bytes.fromhex(answer)) as port, Connection(port) as connection, pytest.raises(BrokerFailed, match=says):
        connection.ask("ApiVersions", 0, {})


def test_an_answer_has_to_be_whole_in_time_however_many_bytes_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfuzz.conformance.broker.exchange._ANSWER_TIMEOUT_S", 0.2)
    slow = bytes.fromhex("00000100") + bytes(30)
    with (
        peer(slow, 0.02) as port,
        Connection(port) as connection,
        pytest.raises(BrokerFailed, match="no answer to Api"),
    ):
        connection.ask("ApiVersions", 0, {})


def test_a_port_that_nobody_listens_on_is_told_of() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BrokerFailed, match=f"no broker answers on 127.0.0.1:{port}"):
        Connection(port)


def test_nothing_is_sent_where_a_value_does_not_fit() -> None:
    with peer(b"") as port, Connection(port) as connection:
        with pytest.raises(EncodeError, match=r"MetadataRequest\.topics is None"):
            connection.ask("Metadata", 0, {"topics": None})
        with pytest.raises(UsageError, match="MetadataRequest has no version 99"):
            connection.ask("Metadata", 99, {})
        # The peer takes one request, which is this.
        with pytest.raises(BrokerFailed, match="no answer to Metadata 1: the broker closed the connection"):
            connection.ask("Metadata", 1, {"topics": None})


def test_error_codes_are_found_wherever_they_stand() -> None:
    values = {"errorCode": 0, "a": [{"partitionErrorCode": 3, "b": {"topicConfigErrorCode": 29}}, {"errorCode": -1}]}
    assert list(error_codes(values)) == [3, 29, -1]


def test_a_request_is_framed_behind_the_header_of_its_version() -> None:
    """Header 2 keeps the client id as it was, and has tags behind it."""
    with peer(bytes.fromhex("00000004 00000001")) as port, Connection(port) as connection:
        exchange = connection.ask("ApiVersions", 9, {"clientSoftwareName": "me"})
    body = encode("ApiVersions", 5, {"clientSoftwareName": "me"})
    head = bytes.fromhex("0012 0009 00000001 0005") + b"kfuzz" + b"\x00"
    assert exchange.request == (len(head) + len(body)).to_bytes(4, "big") + head + body
