"""Produce and transactions: what a broker stores, refuses and counts; what arrived is told byte for byte."""

from __future__ import annotations

import tracemalloc
from typing import Any

import made_segments
import pytest
from serve.asking import asked, fed, fetch_of, with_topics, writes

from kfuzz import records
from kfuzz.broker_errors import ERROR_CODES
from kfuzz.serve import Broker
from kfuzz.serve.cluster import Refused

VERSION = 9


def opened(*errors: str) -> Broker:
    return with_topics({"topic": "t", "produce": True, "errors": list(errors)})


def batch(sequence: int = -1, producer: tuple[int, int] = (-1, -1), count: int = 2, **fields: Any) -> bytes:
    of = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": sequence}
    return made_segments.batch(0, count, **of, **fields)


def produce(
    broker: Broker, data: bytes, acks: int = -1, transactional_id: str | None = None, version: int = VERSION
) -> tuple[int, int]:
    values = writes(data, acks, transactionalId=transactional_id)
    [got] = asked(broker, "Produce", version, values)["responses"][0]["partitionResponses"]
    return got["errorCode"], got["baseOffset"]


def produced(broker: Broker) -> list[dict[str, Any]]:
    [told] = fed(broker.cluster, {"topic": "t"})
    found: list[dict[str, Any]] = told["produced"]
    return found


def stored(broker: Broker, isolation: int = 0) -> tuple[list[records.RecordBatch], list[tuple[int, int]]]:
    values = fetch_of("t", 12, b"", 0) | {"isolationLevel": isolation}
    [got] = asked(broker, "Fetch", 12, values)["responses"][0]["partitions"]
    aborted = [(one["producerId"], one["firstOffset"]) for one in got["abortedTransactions"] or ()]
    return records.decode(got["records"]), aborted


def new_producer(broker: Broker, transactional_id: str | None = None, **more: Any) -> tuple[int, int]:
    got = asked(broker, "InitProducerId", 4, {"transactionalId": transactional_id, **more})
    assert got["errorCode"] == 0
    return got["producerId"], got["producerEpoch"]


def add(broker: Broker, transactional_id: str, producer: tuple[int, int], version: int = 3) -> int:
    topics = [{"name": "t", "partitions": [0]}]
    if version < 4:
        given = {"TransactionalId": transactional_id, "ProducerId": producer[0], "ProducerEpoch": producer[1]}
        values = {f"v3AndBelow{name}": one for name, one in (given | {"Topics": topics}).items()}
        found = asked(broker, "AddPartitionsToTxn", version, values)["resultsByTopicV3AndBelow"]
    else:
        one = {"transactionalId": transactional_id, "producerId": producer[0], "producerEpoch": producer[1]}
        values = {"transactions": [one | {"topics": topics}]}
        found = asked(broker, "AddPartitionsToTxn", version, values)["resultsByTransaction"][0]["topicResults"]
    code: int = found[0]["resultsByPartition"][0]["partitionErrorCode"]
    return code


def end(
    broker: Broker, transactional_id: str, producer: tuple[int, int], *, commit: bool, version: int = 3
) -> dict[str, Any]:
    values = {"transactionalId": transactional_id, "producerId": producer[0], "producerEpoch": producer[1]}
    return asked(broker, "EndTxn", version, values | {"committed": commit})


def test_what_arrives_is_appended_with_a_brokers_offsets_and_told_as_it_came() -> None:
    broker = opened()
    data = batch()
    assert [produce(broker, data), produce(broker, data, acks=1)] == [(0, 0), (0, 2)]
    batches, _ = stored(broker)
    assert [one.base_offset for one in batches] == [0, 2]
    assert [one.partition_leader_epoch for one in batches] == [0, 0]
    one = {"hex": data.hex(), "transactional_id": None, "acks": -1, "error": 0, "base_offset": "0"}
    assert produced(broker) == [one, one | {"acks": 1, "base_offset": "2"}]


def test_acks_0_get_no_answer_and_a_refusal_closes_the_connection() -> None:
    broker = opened("NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(Refused):
        produce(broker, batch(), acks=0)
    with pytest.raises(AssertionError):
        produce(broker, batch(), acks=0)
    assert [one["error"] for one in produced(broker)] == [6, 0]
    assert len(stored(broker)[0]) == 1


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "INVALID_RECORD"),
        (batch()[:-1] + b"\xff", "CORRUPT_MESSAGE"),
        (batch() + batch(), "INVALID_RECORD"),
        (batch(control=True), "INVALID_RECORD"),
        (batch()[:20], "INVALID_RECORD"),
    ],
)
def test_what_a_broker_refuses_is_refused_and_told(data: bytes, error: str) -> None:
    broker = opened()
    assert produce(broker, data) == (ERROR_CODES[error], -1)
    [one] = produced(broker)
    assert (one["hex"], one["error"], one["base_offset"]) == (data.hex(), ERROR_CODES[error], "-1")
    assert stored(broker)[0] == []


def test_a_repeated_batch_is_stored_once_and_a_gap_is_refused() -> None:
    broker = opened()
    producer = new_producer(broker)
    assert new_producer(broker) != producer
    sent = [produce(broker, batch(sequence, producer)) for sequence in (0, 2, 0, 4, 9)]
    assert sent == [(0, 0), (0, 2), (0, 0), (0, 4), (ERROR_CODES["OUT_OF_ORDER_SEQUENCE_NUMBER"], -1)]
    assert [one.base_offset for one in stored(broker)[0]] == [0, 2, 4]


@pytest.mark.parametrize(
    ("error", "at_first"),
    [("NOT_LEADER_OR_FOLLOWER", 0), ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", 1), ("UNKNOWN_SERVER_ERROR", 1)],
)
def test_a_demanded_error_comes_once_and_a_retry_is_stored_once(error: str, at_first: int) -> None:
    broker = opened(error)
    producer = new_producer(broker)
    assert produce(broker, batch(0, producer))[0] == ERROR_CODES[error]
    assert len(stored(broker)[0]) == at_first
    assert produce(broker, batch(0, producer)) == (0, 0)
    assert len(stored(broker)[0]) == 1
    assert [one["error"] for one in produced(broker)] == [ERROR_CODES[error], 0]


def test_a_repeated_batch_that_is_answered_as_a_duplicate_has_no_offset() -> None:
    broker = opened("REQUEST_TIMED_OUT", "DUPLICATE_SEQUENCE_NUMBER")
    producer = new_producer(broker)
    timed_out, duplicate, last = (produce(broker, batch(sequence, producer)) for sequence in (0, 0, 2))
    assert (timed_out[0], duplicate) == (7, (ERROR_CODES["DUPLICATE_SEQUENCE_NUMBER"], -1))
    assert last == (0, 2)
    assert [one["base_offset"] for one in produced(broker)] == ["0", "-1", "2"]


def test_an_error_of_a_topic_is_all_that_clients_get_of_it_until_it_is_well() -> None:
    broker, denied = opened(), "TOPIC_AUTHORIZATION_FAILED"
    fed(broker.cluster, {"topic": "t", "metadata_error": denied}, {"topic": "other", "produce": True})

    def described(topics: list[dict[str, Any]] | None) -> list[tuple[str, int, int]]:
        found = asked(broker, "Metadata", VERSION, {"topics": topics})["topics"]
        return [(one["name"], one["errorCode"], len(one["partitions"])) for one in found]

    assert described([{"name": "t"}, {"name": "other"}]) == [("t", ERROR_CODES[denied], 0), ("other", 0, 1)]
    assert described(None) == [("other", 0, 1)]
    assert produce(broker, batch()) == (ERROR_CODES[denied], -1)
    fed(broker.cluster, {"topic": "t", "metadata_error": "NONE"})
    assert described([{"name": "t"}]) == [("t", 0, 1)]
    assert produce(broker, batch()) == (0, 0)


def test_an_answer_can_be_lost_after_the_records_are_stored() -> None:
    broker = opened("NETWORK_EXCEPTION")
    with pytest.raises(Refused, match="lost"):
        produce(broker, batch())
    assert len(stored(broker)[0]) == 1


@pytest.mark.parametrize("version", [0, 3, 4, 5])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_with_a_marker(commit: bool, version: int) -> None:
    broker = opened()
    producer = new_producer(broker, "x")
    data = batch(0, producer, transactional=True)
    assert produce(broker, data, transactional_id="x")[0] == ERROR_CODES["INVALID_TXN_STATE"]
    assert add(broker, "x", producer, version) == 0
    assert produce(broker, data, transactional_id="x") == (0, 0)
    assert stored(broker, isolation=1) == ([], [])
    assert end(broker, "x", producer, commit=commit)["errorCode"] == 0
    batches, aborted = stored(broker, isolation=1)
    assert [one.control for one in batches] == [False, True]
    assert aborted == ([] if commit else [(producer[0], 0)])
    assert list(records.read_committed(records.encode(batches))) == (batches[:1] if commit else [])
    # A client that has lost the answer asks again.
    assert end(broker, "x", producer, commit=commit)["errorCode"] == 0
    assert end(broker, "x", producer, commit=not commit)["errorCode"] == ERROR_CODES["INVALID_TXN_STATE"]
    assert len(stored(broker)[0]) == 2


def test_a_transaction_in_the_new_way_registers_itself_and_gets_a_new_epoch() -> None:
    broker = opened()
    producer = new_producer(broker, "x")
    assert produce(broker, batch(0, producer, transactional=True), transactional_id="x", version=12) == (0, 0)
    got = end(broker, "x", producer, commit=True, version=5)
    assert (got["producerId"], got["producerEpoch"]) == (producer[0], producer[1] + 1)
    newer = (producer[0], producer[1] + 1)
    assert produce(broker, batch(0, newer, transactional=True), transactional_id="x", version=12) == (0, 3)
    assert produce(broker, batch(2, producer, transactional=True), transactional_id="x", version=12)[0] == 47


def test_a_second_producer_with_the_same_id_aborts_and_fences_the_first() -> None:
    broker = opened()
    first = new_producer(broker, "x")
    assert add(broker, "x", first) == 0
    assert produce(broker, batch(0, first, transactional=True), transactional_id="x") == (0, 0)
    second = new_producer(broker, "x")
    assert second == (first[0], first[1] + 1)
    assert stored(broker, isolation=1)[1] == [(first[0], 0)]
    assert produce(broker, batch(2, first, transactional=True), transactional_id="x")[0] == 47
    assert add(broker, "x", first) == ERROR_CODES["PRODUCER_FENCED"]
    assert end(broker, "x", first, commit=True, version=1)["errorCode"] == ERROR_CODES["INVALID_PRODUCER_EPOCH"]
    assert end(broker, "y", first, commit=True)["errorCode"] == ERROR_CODES["INVALID_PRODUCER_ID_MAPPING"]
    # A producer that knows itself gets the next epoch; one that was fenced does not.
    assert new_producer(broker, "x", producerId=second[0], producerEpoch=second[1]) == (second[0], second[1] + 1)
    fenced = asked(broker, "InitProducerId", 4, {"transactionalId": "x", "producerId": first[0], "producerEpoch": 0})
    assert fenced["errorCode"] == ERROR_CODES["PRODUCER_FENCED"]


def test_partitions_that_are_not_there_are_not_added() -> None:
    broker = opened()
    producer = new_producer(broker, "x")
    topics = [{"name": "t", "partitions": [0, 7]}]
    one = {"transactionalId": "x", "producerId": producer[0], "producerEpoch": producer[1], "topics": topics}
    got = asked(broker, "AddPartitionsToTxn", 4, {"transactions": [one]})["resultsByTransaction"][0]["topicResults"]
    codes = [each["partitionErrorCode"] for each in got[0]["resultsByPartition"]]
    assert codes == [ERROR_CODES["OPERATION_NOT_ATTEMPTED"], ERROR_CODES["UNKNOWN_TOPIC_OR_PARTITION"]]
    data = batch(0, producer, transactional=True)
    assert produce(broker, data, transactional_id="x")[0] == ERROR_CODES["INVALID_TXN_STATE"]


def test_what_clients_write_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfuzz.serve.producing.WRITTEN_BYTES_MAX", 5000)
    broker = opened()
    codes = [produce(broker, batch())[0] for _ in range(5)]
    assert codes == [0, 0, 0, ERROR_CODES["KAFKA_STORAGE_ERROR"], ERROR_CODES["KAFKA_STORAGE_ERROR"]]
    assert len(produced(broker)) == 3
    fed(broker.cluster, {"topic": "t", "hex": None}, {"topic": "t", "produce": True})
    assert produce(broker, batch())[0] == 0


def test_a_batch_that_decompresses_to_far_more_is_refused_in_little_memory() -> None:
    bomb = made_segments.batch(0, value=bytes(40 << 20), compression="zstd")
    assert len(bomb) < 100_000
    broker = opened()
    tracemalloc.start()
    try:
        assert produce(broker, bomb)[0] == ERROR_CODES["MESSAGE_TOO_LARGE"]
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
