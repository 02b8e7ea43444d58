"""A conversation with a real broker over kfuzz's client, which writes every request and reads every answer to its end.

It takes place once, at every version that the broker and the catalogue have in common, and its counts are pinned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from conformance.conversation import Conversation, Exchange, converse, exchange_of, start_producers

from kfuzz import records
from kfuzz.client.protocol import first_error
from kfuzz.conformance.broker.real import Broker
from kfuzz.control import ControlRecordType, decode_control
from kfuzz.records.stream import read_committed

# Exchanges, and the versions that both the broker and the latest catalogue have, at which all are asked.
SAID = {
    "ApiVersions": (7, "0-5"),
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
def said(broker: Broker) -> Conversation:
    return converse(broker.port)


def split(data: bytes) -> Iterator[bytes]:
    """The batches, each after its base offset and its length."""
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        yield data[:size]
        data = data[size:]


@pytest.mark.java
@pytest.mark.full
def test_every_api_is_asked_at_every_version_in_common(said: Conversation) -> None:
    asked = Counter(exchange.api for exchange in said.exchanges)
    assert {api: (count, str(said.common[api])) for api, count in asked.items()} == SAID
    for api in SAID:
        versions = {one.version for one in said.of(api) if (one.api, one.version) != TOO_NEW}
        assert versions == set(said.common[api]), api


@pytest.mark.java
@pytest.mark.full
def test_every_answer_is_decoded_fully_and_written_again_to_the_byte(said: Conversation) -> None:
    flaws = {(exchange.api, exchange.version): exchange.flaws() for exchange in said.exchanges}
    assert {what: found for what, found in flaws.items() if found} == {}


@pytest.mark.java
@pytest.mark.full
def test_the_one_error_is_that_of_a_version_that_is_too_new_and_is_said_in_version_0(said: Conversation) -> None:
    errors = {(one.api, one.version): code for one in said.exchanges if (code := first_error(one.values)[0])}
    assert errors == {TOO_NEW: UNSUPPORTED_VERSION}
    first = said.exchanges[0]
    assert (first.api, first.version) == TOO_NEW
    assert first.body_version == 0
    # All that it says is at which versions to ask again.
    assert first.values["apiKeys"] == [{"apiKey": 18, "minVersion": 0, "maxVersion": 5}]


@pytest.mark.java
@pytest.mark.full
def test_every_version_of_fetch_returns_the_produced_batches(said: Conversation) -> None:
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
    """The fields that a producer put into a batch."""
    return [
        (batch.compression, batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.transactional),
        *((record.timestamp, record.key, record.value, list(record.headers)) for record in batch.records),
    ]


@pytest.mark.java
@pytest.mark.full
def test_each_transaction_ends_as_it_was_asked_to(said: Conversation) -> None:
    data = said.of("Fetch")[-1].values["responses"][0]["partitions"][0]["records"]
    ends = [batch.records[0] for batch in records.decode(data) if batch.control]
    types = {True: ControlRecordType.COMMIT, False: ControlRecordType.ABORT}
    assert [decode_control(end.key, end.value).key.type for end in ends] == [types[one] for one in said.transactions]
    assert set(said.transactions) == {True, False}


@pytest.mark.java
@pytest.mark.full
def test_each_start_of_a_transactional_producer_gets_a_higher_epoch(broker: Broker, said: Conversation) -> None:
    idempotent = start_producers(broker.port, [None] * 3)
    ((producer_id, first), *later) = start_producers(broker.port, ["again"] * 3)
    assert [epoch for _, epoch in idempotent] == [0, 0, 0]
    assert later == [(producer_id, first + 1), (producer_id, first + 2)]
    earlier = {one.values["producerId"] for one in said.of("InitProducerId")}
    ids = [*earlier, *(id for id, _ in idempotent), producer_id]
    assert len(set(ids)) == len(said.of("InitProducerId")) + 4
    assert min(ids) >= 0


# --- what is no full decoding, by hand ---

NUMBER = 7
HEADER = "00000007"
BODY = "0000 02 0012 0000 0004 00 00000000 00"


def answered(header: str, body: str) -> Exchange:
    return exchange_of("ApiVersions", 3, NUMBER, bytes.fromhex(header + body))


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


def test_after_a_header_that_is_refused_no_body_is_read() -> None:
    """The last bytes would be a body."""
    exchange = exchange_of("EndTxn", 3, NUMBER, bytes.fromhex("00000007 7f00 00"))
    assert [one.code for one in exchange.header.findings] == ["tag-count-exceeds-message"]
    assert (exchange.body.message, len(exchange.flaws())) == (None, 1)
