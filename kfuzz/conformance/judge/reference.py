"""kfuzz's verdict on bytes in a role. kfuzz's testee answers with it, and the differential compares others with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kfuzz import records
from kfuzz.errors import RecordsError
from kfuzz.kafka import BROKER_RELEASE
from kfuzz.records import Finding, Profile, Reading, Role
from kfuzz.records.appending import append
from kfuzz.records.read.topic import DEFAULT_TOPIC, Topic
from kfuzz.vectors.kinds import TOPIC
from kfuzz.vectors.model import Vector


@dataclass(frozen=True, slots=True)
class OwnVerdict:
    """Outcome and contents.

    ``batches``, in JSON: for a broker the batches that it stored; for the other roles the batches read, up to the fatal
    finding if there is one. ``stored``: the bytes that an accepting broker writes to its log. ``in_place``: the stored
    payload is the producer's own.
    """

    fatal: Finding | None
    findings: tuple[Finding, ...]
    batches: list[dict[str, Any]]
    consumed: int
    stored: bytes | None = None
    in_place: bool = False


def verdict(
    data: bytes, role: Role = "consumer", profile: Profile = "kafka", topic: Topic = DEFAULT_TOPIC
) -> OwnVerdict:
    """kfuzz's verdict on ``data``; ``topic`` is the broker's configuration of the partition."""
    if role != "broker":
        reading = records.read(data, profile=profile, role=role)
        return OwnVerdict(reading.fatal, tuple(reading.findings), records.to_json(reading.batches), reading.consumed)
    reading = records.read(data, profile=profile, role=role, topic=topic)
    if reading.fatal is not None:
        return OwnVerdict(reading.fatal, tuple(reading.findings), [], 0)
    try:
        appended = append(data, topic)
    except RecordsError as error:
        return OwnVerdict(error.finding, tuple(reading.findings), [], 0)
    batches = records.to_json(_stored(appended.data, reading))
    return OwnVerdict(None, tuple(reading.findings), batches, appended.consumed, appended.data, appended.in_place)


def as_vector(name: str, data: bytes, made: OwnVerdict, role: Role) -> Vector:
    """A vector with the id ``name``, whose expectation is kfuzz's verdict ``made`` on ``data``."""
    expectation: dict[str, Any] = {"verdict": "valid", "batches": made.batches, "consumed": made.consumed}
    if made.fatal is not None:
        expectation = {"verdict": "invalid", "finding": made.fatal.code, "batches": made.batches}
    return outside_vector(name, "records", data, {role: expectation})


def outside_vector(name: str, kind: str, data: bytes, expect: Mapping[str, Mapping[str, Any]], **more: Any) -> Vector:
    """A vector that belongs to no suite. ``more`` are fields of it that have defaults."""
    return Vector(
        id=name,
        kind=kind,
        summary="bytes that belong to no suite",
        level="required",
        requirements=(),
        flags=(),
        source=data,
        canonical=False,
        layout=(),
        expect=expect,
        kafka={},
        budget=None,
        file=Path(name),
        **more,
    )


def for_broker(vector: Vector) -> Vector:
    """The vector of records with an expectation for the role broker: the suite's, or kfuzz's own verdict.

    Most vectors are about readers, but a broker can be asked about all of them. If Kafka's own broker did something
    else, as with bombs that are above kfuzz's limits, either answer is fine.
    """
    if "broker" in vector.expect:
        return vector
    made = verdict(vector.data, "broker", topic=Topic.from_json(vector.options.get(TOPIC, {})))
    expectation = as_vector(vector.id, vector.data, made, "broker").expect["broker"]
    said = vector.kafka.get(BROKER_RELEASE, {}).get("produce")
    if said is not None and (said == "accepted") != (made.fatal is None):
        expectation = {"verdict": "acceptable"}
    return replace(vector, expect={**vector.expect, "broker": expectation})


def _stored(data: bytes, reading: Reading) -> list[records.RecordBatch]:
    """The batch as stored in the log, without its records if no consumer can read them."""
    if not reading.batches[0].unreadable:
        return records.decode(data)
    # A consumer would refuse this batch, but a log segment may contain it.
    return records.read(data, role="log").batches
