"""Logs that a program gives to `kfuzz serve`: steps, transactions, and the offsets that a consumer is told."""

from __future__ import annotations

from typing import Any

import pytest
from serve.asking import asked, fed, fetch_of, topics, with_topics

from kfuzz import records
from kfuzz.records.stream import Fetch
from kfuzz.serve import Broker, Topics
from kfuzz.vectors import find_vector, load_suite

COMMITTED = 1


def fetched(broker: Broker, name: str, offset: int, isolation: int = COMMITTED) -> dict[str, Any]:
    values = fetch_of(name, 12, b"", offset) | {"isolationLevel": isolation}
    partition: dict[str, Any] = asked(broker, "Fetch", 12, values)["responses"][0]["partitions"][0]
    return partition


def listed(broker: Broker, name: str, timestamp: int, isolation: int = COMMITTED) -> int:
    one = {"name": name, "partitions": [{"partitionIndex": 0, "timestamp": timestamp}]}
    got = asked(broker, "ListOffsets", 7, {"replicaId": -1, "isolationLevel": isolation, "topics": [one]})
    offset: int = got["topics"][0]["partitions"][0]["offset"]
    return offset


def with_topic(**line: Any) -> Broker:
    return with_topics({"topic": "t"} | line)


def stream(name: str) -> list[str]:
    return [step["hex"] for step in find_vector(f"stream/isolation/{name}").steps]


def test_a_fetch_gets_the_first_step_whose_end_is_above_its_offset() -> None:
    steps = stream("committed-then-aborted")
    broker = with_topic(steps=steps)
    got = [fetched(broker, "t", offset)["records"].hex() for offset in range(7)]
    first, commit, second, abort = steps
    assert got == [first, first, commit, second, second, abort, ""]


def test_a_fetch_inside_a_step_begins_with_the_batch_of_its_offset() -> None:
    first, commit, second, abort = stream("committed-then-aborted")
    whole = first + commit + second + abort
    broker = with_topic(hex=whole)
    got = [fetched(broker, "t", offset)["records"].hex() for offset in range(6)]
    assert got == [whole, whole, commit + second + abort, second + abort, second + abort, abort]
    # A stream may give a client what lies before its offset: the step at whose beginning it fetches comes whole.
    fed(broker.cluster, {"topic": "t", "steps": [first, whole], "fetch_start": "1"})
    assert [fetched(broker, "t", offset)["records"].hex() for offset in (1, 2, 3)] == [first, whole, second + abort]


def test_a_fetch_in_read_committed_lists_the_transactions_that_it_may_meet() -> None:
    aborted = [{"producer_id": "4000", "first_offset": "3"}]
    broker = with_topic(steps=stream("committed-then-aborted"), aborted=aborted)
    told = [fetched(broker, "t", offset)["abortedTransactions"] for offset in (0, 3, 5, 6)]
    one = {"producerId": 4000, "firstOffset": 3}
    # The marker at 5 ends the transaction.
    assert told == [[], [one], [one], []]
    assert fetched(broker, "t", 3, isolation=0)["abortedTransactions"] is None
    broker = with_topic(steps=stream("committed-then-aborted"), aborted=aborted, aborted_always=True)
    assert fetched(broker, "t", 3, isolation=0)["abortedTransactions"] == [one]


@pytest.mark.parametrize(
    ("name", "isolation", "is_listed"),
    [("aborted", 0, False), ("aborted", 1, True), ("uncommitted-aborted", 0, True), ("uncommitted-open", 0, False)],
)
def test_a_vector_in_read_uncommitted_shows_its_list_to_every_fetch(name: str, isolation: int, is_listed: bool) -> None:
    broker = Broker(topics(f"stream/isolation/{name}"))
    listed = fetched(broker, f"stream.isolation.{name}", 0, isolation)["abortedTransactions"]
    assert listed == ([{"producerId": 4000, "firstOffset": 0}] if is_listed else None)


@pytest.mark.parametrize("form", ["hex", "steps"])
def test_nothing_at_or_after_the_last_stable_offset_is_given_to_read_committed(form: str) -> None:
    steps = stream("committed-then-aborted")
    broker = with_topic(**{form: steps if form == "steps" else "".join(steps)}, last_stable_offset="3")
    everything = steps[1] if form == "steps" else "".join(steps[1:])
    assert fetched(broker, "t", 2)["records"].hex() == steps[1]
    assert fetched(broker, "t", 2, isolation=0)["records"].hex() == everything
    at_the_end = fetched(broker, "t", 3)
    assert (at_the_end["records"], at_the_end["lastStableOffset"], at_the_end["highWatermark"]) == (b"", 3, 6)
    assert (listed(broker, "t", -1), listed(broker, "t", -1, isolation=0)) == (3, 6)


def test_a_log_may_begin_later() -> None:
    broker = with_topic(hex="".join(stream("committed-then-aborted")), fetch_start="3")
    assert listed(broker, "t", -2) == 3
    assert fetched(broker, "t", 2)["errorCode"] == 1
    assert fetched(broker, "t", 3)["logStartOffset"] == 3


def test_a_consumer_of_streams_hands_out_what_the_vectors_say() -> None:
    streams = load_suite(kinds=("stream",))
    found = [one for one in streams if all("consumer" in step["expect"] for step in one.steps)]
    made = topics(*(one.id for one in found))
    broker = Broker(made)
    assert len(made) == len(found) > 40
    for vector in found:
        wanted = [step["expect"]["consumer"] for step in vector.steps]
        name = vector.id.replace("/", ".")
        [partition] = made.by_name[name].partitions
        if any(one["verdict"] != "valid" for one in wanted):
            continue
        isolation = vector.options.get("isolation", "read_uncommitted")
        level = COMMITTED if isolation == "read_committed" else 0
        shown, offset = [], listed(broker, name, -2)
        while offset < partition.high_watermark:
            got = fetched(broker, name, offset, level)
            told = [(one["producerId"], one["firstOffset"]) for one in got["abortedTransactions"] or ()]
            # As a client that remembers nothing between two fetches.
            fetch = Fetch(isolation=isolation, aborted=told, fetch_offset=offset)  # type: ignore[arg-type]
            for batch in records.decode(got["records"]):
                shown += [str(record.offset) for record in fetch.records_of(batch)]
            assert fetch.next_offset > offset, vector.id
            offset = fetch.next_offset
        assert shown == [record["offset"] for one in wanted for record in one["records"]], vector.id


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"steps": ["0"]}, "steps[0] is"),
        ({"hex": "", "produce": True}, "one of"),
        ({"hex": "", "aborted": [{"producer_id": "1"}]}, "lacks first_offset"),
        ({"hex": "", "fetch_start": "-1"}, "whole number from 0"),
        ({"produce": False}, "give True"),
        ({"produce": True, "errors": ["NO_SUCH_ERROR"]}, "errors[0]"),
        ({"hex": "", "partition": 1}, "gets partition 0 first"),
        ({"stepps": []}, "did you mean steps?"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(line: dict[str, Any], said: str) -> None:
    broker = Broker(Topics())
    [answer] = fed(broker.cluster, {"topic": "t"} | line)
    assert said in answer["error"]
    assert len(answer["error"]) < 300 or "errors" in said
    assert len(broker.cluster.topics) == 0


def test_one_answer_has_several_partitions_of_several_topics() -> None:
    steps = stream("committed-then-aborted")
    lines = [{"topic": name, "partition": index, "hex": steps[index]} for name in ("a", "b") for index in (0, 1)]
    broker = with_topics(*lines)
    told = asked(broker, "Metadata", 12, {"topics": None})["topics"]
    assert [len(one["partitions"]) for one in told] == [2, 2]
    wanted = [{"partition": index, "fetchOffset": 0, "partitionMaxBytes": 1 << 20} for index in (0, 1, 2)]
    values = {"topics": [{"topic": name, "partitions": wanted} for name in ("a", "b")]}
    got = asked(broker, "Fetch", 12, values)["responses"]
    assert [[one["records"].hex() for one in topic["partitions"][:2]] for topic in got] == [steps[:2]] * 2
    assert [topic["partitions"][2]["errorCode"] for topic in got] == [3, 3]
    assert fed(broker.cluster, {"topic": "b", "partition": 1})[0]["fetch_offset"] == "0"
