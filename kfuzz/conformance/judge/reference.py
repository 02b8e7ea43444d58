"""What kfuzz makes of bytes in a role: what its testee answers, and what the differential holds others to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kfuzz import records
from kfuzz.errors import RecordsError
from kfuzz.records import Finding, Profile, Reading, Role
from kfuzz.records.appending import append
from kfuzz.records.read.topic import DEFAULT_TOPIC, Topic

__all__ = ["Verdict", "verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome and contents.

    ``batches``: in JSON; for a broker those that it stored, for the others those read, before the fatal one if there is
    one. ``stored``: the bytes for the log, where a broker accepts; ``in_place`` if the payload is the producer's.
    """

    fatal: Finding | None
    findings: tuple[Finding, ...]
    batches: list[dict[str, Any]]
    consumed: int
    stored: bytes | None = None
    in_place: bool = False


def verdict(data: bytes, role: Role = "consumer", profile: Profile = "kafka", topic: Topic = DEFAULT_TOPIC) -> Verdict:
    """What kfuzz makes of ``data``; ``topic`` is what a broker knows of the partition."""
    if role != "broker":
        reading = records.read(data, profile=profile, role=role)
        return Verdict(reading.fatal, tuple(reading.findings), records.to_json(reading.batches), reading.consumed)
    reading = records.read(data, profile=profile, role=role, topic=topic)
    if reading.fatal is not None:
        return Verdict(reading.fatal, tuple(reading.findings), [], 0)
    try:
        appended = append(data, topic)
    except RecordsError as error:
        return Verdict(error.finding, tuple(reading.findings), [], 0)
    batches = records.to_json(_stored(appended.data, reading))
    return Verdict(None, tuple(reading.findings), batches, appended.consumed, appended.data, appended.in_place)


def _stored(data: bytes, reading: Reading) -> list[records.RecordBatch]:
    """The batch as it stands in the log; without its records where no consumer can read them."""
    if not reading.batches[0].unreadable:
        return records.decode(data)
    # A consumer would refuse it; in a segment it may stand.
    return records.read(data, role="log").batches
