"""kfuzz's own reader against every vector: what it accepts, refuses and reads, in both profiles and on both paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from each_vector import each

from kfuzz import records
from kfuzz.conformance.judge.reference import verdict
from kfuzz.kafka import LATEST
from kfuzz.records.read.topic import Topic
from kfuzz.vectors import Vector, load_suite
from kfuzz.vectors.confirm import first_difference
from kfuzz.vectors.coverage import is_plainly_valid
from kfuzz.vectors.kinds import CONVERSATION, KINDS

SUITE = load_suite()
# Room for the well-formed bombs, which the default limit refuses on purpose.
ROOM = records.Limits(decompressed_bytes=256 * 1024 * 1024)
BOUNDED = "decompressed-size-exceeded"


def consumer(vector: Vector) -> Mapping[str, Any]:
    # As it is: a copy would make the contents of a bomb.
    return vector.expect["consumer"]


def kafka_accepts(vector: Vector) -> bool:
    return vector.kafka[LATEST]["consumer"] == "accepted"


def limits(vector: Vector) -> records.Limits:
    return ROOM if kafka_accepts(vector) and consumer(vector).get("finding") == BOUNDED else records.Limits()


@each(SUITE)
def test_profile_kafka_accepts_what_kafka_accepts_and_reads_the_same(vector: Vector) -> None:
    expect = consumer(vector)
    reading = records.read(vector.data, limits=limits(vector))
    if not kafka_accepts(vector):
        assert reading.fatal is not None
        assert reading.fatal.code == expect["finding"]
        return
    assert reading.fatal is None, reading.fatal
    assert reading.consumed == expect["consumed"]
    assert reading.partial_tail == expect.get("partial_tail", False)
    read = records.to_json(reading.batches)
    readings = [expect["batches"], *expect.get("alternatives", [])]
    assert any(first_difference(read, other) is None for other in readings), first_difference(read, expect["batches"])


@each(SUITE)
def test_profile_strict_refuses_the_deviations_and_nothing_else(vector: Vector) -> None:
    expect = consumer(vector)
    reading = records.read(vector.data, profile="strict", limits=limits(vector))
    finding = expect.get("finding")
    if finding is None or (finding == BOUNDED and kafka_accepts(vector)):
        assert reading.fatal is None, reading.fatal
    else:
        assert finding in {found.code for found in reading.findings}


@each([vector for vector in SUITE if "broker" in vector.expect])
def test_as_a_broker_kfuzz_accepts_what_kafkas_log_validator_accepts(vector: Vector) -> None:
    expect = vector.expect["broker"]
    made = verdict(vector.data, "broker", topic=Topic.from_json(vector.options.get("topic", {})))
    if vector.kafka[LATEST]["broker"] == "accepted":
        assert made.fatal is None, made.fatal
        assert expect.get("finding") in {None, *(found.code for found in made.findings)}
    else:
        assert made.fatal is not None
        assert made.fatal.code == expect["finding"]


@each([vector for vector in SUITE if "broker" not in vector.expect and not vector.budget])
def test_where_a_vector_is_silent_about_the_broker_it_goes_the_consumers_way(vector: Vector) -> None:
    assert (records.read(vector.data, role="broker").fatal is None) == kafka_accepts(vector)


@each([vector for vector in SUITE if consumer(vector)["verdict"] == "valid"])
def test_a_valid_vector_has_no_finding_at_all(vector: Vector) -> None:
    assert records.read(vector.data).findings == []


@each([vector for vector in SUITE if not vector.budget])
def test_the_verdict_only_path_says_what_the_object_path_says(vector: Vector) -> None:
    reading, verdict = records.read(vector.data), records.check(vector.data)
    assert (verdict.findings, verdict.consumed, verdict.partial_tail) == (
        reading.findings,
        reading.consumed,
        reading.partial_tail,
    )


@each([vector for vector in SUITE if vector.canonical])
def test_an_encoder_given_the_contents_of_a_canonical_vector_writes_its_bytes(vector: Vector) -> None:
    assert records.encode(records.from_json(consumer(vector)["batches"])) == vector.data


@each([vector for vector in SUITE if consumer(vector).get("finding") == BOUNDED])
def test_a_bomb_is_refused_at_the_default_limit(vector: Vector) -> None:
    fatal = records.read(vector.data).fatal
    assert fatal is not None
    assert fatal.code == BOUNDED


def test_at_least_900_vectors_and_half_of_them_not_plainly_valid() -> None:
    suite = load_suite(kinds=[kind for kind in KINDS if kind != CONVERSATION])
    assert len(suite) >= 900
    assert sum(map(is_plainly_valid, suite)) <= 0.5 * len(suite)
