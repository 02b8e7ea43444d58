"""Confirmation: compare Apache Kafka's own answers with the expectations in the recipes.

The command line runs the testee ``kafka-clients`` and a real broker, and passes their answers in. This module compares
the answers with the expectations and fills the ``kafka`` cells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.model import Vector

Json = dict[str, Any]

# A testee may send the digest of a longer value instead of the value.
LARGEST_HEX_VALUE_BYTES = 64 * 1024


def contradiction(vector: Vector, answer: Mapping[str, Any], role: str = "consumer") -> str | None:
    """One sentence on how Kafka's answer contradicts the expectation; None if the answer confirms it.

    ``answer`` comes from a testee or a real broker. It has ``outcome``, and may have ``consumed`` and ``batches``. A
    ``fault`` confirms a refusal: Kafka did not read those bytes. The contents must equal ``batches`` exactly; only
    other testees may read one of the ``alternatives``.
    """
    expect = vector.expect[role]
    verdict = expect["verdict"]
    if answer["outcome"] != "accepted":
        error = answer.get("error", "no reason given")
        return f"it is valid, but Kafka's answer is {answer['outcome']}: {error}" if verdict == "valid" else None
    if verdict == "invalid":
        return "it is invalid, but Kafka accepts it"
    if role == "reader":
        name = str(KINDS[vector.kind].contents)
        difference = first_difference(answer[name], expect[name], name)
        return difference or first_difference(answer["consumed"], expect["consumed"], "consumed")
    if (role == "consumer" or "consumed" in answer) and answer["consumed"] != expect["consumed"]:
        return f"Kafka consumed {answer['consumed']} bytes; expected {expect['consumed']}"
    if role == "consumer" or "batches" in answer:
        return first_difference(answer["batches"], expect["batches"])
    return None


def step_contradiction(vector: Vector, answers: Sequence[Mapping[str, Any]]) -> str | None:
    """One sentence on how a broker's answers to a stream's produce requests contradict its steps; None if they agree.

    Each answer has ``outcome``, ``error`` (Kafka's error name), ``base_offset`` and ``last_stable_offset``.
    """
    for index, (step, answer) in enumerate(zip(vector.steps, answers, strict=True)):
        expect = step["expect"].get("broker")
        if expect is None:
            continue
        names = ["last_stable_offset", "error" if expect["outcome"] == "rejected" else "base_offset"]
        expected = {"accepted": expect["outcome"] != "rejected"} | {name: expect[name] for name in names}
        said = {"accepted": answer["outcome"] == "accepted"} | {name: answer[name] for name in names}
        if difference := first_difference(said, expected, f"steps[{index}]"):
            return difference
    return None


def first_difference(read: Any, expected: Any, place: str = "batches") -> str | None:
    """Where two values in the protocol's JSON form differ, or None. A large value may be given as its digest."""
    if isinstance(read, Mapping) and isinstance(expected, Mapping):
        names = sorted({*read, *expected})
        differences = (first_difference(read.get(name), expected.get(name), f"{place}.{name}") for name in names)
        return next(filter(None, differences), None)
    if isinstance(read, list) and isinstance(expected, list):
        if len(read) != len(expected):
            return f"{place} has {len(read)} entries; expected {len(expected)}"
        pairs = enumerate(zip(read, expected, strict=True))
        return next(filter(None, (first_difference(one, other, f"{place}[{i}]") for i, (one, other) in pairs)), None)
    if read == expected or _as_digest(read) == _as_digest(expected):
        return None
    return f"{place} is {_short(read)}; expected {_short(expected)}"


def _as_digest(value: Any) -> Any:
    """The digest of a long value in hex; any other value unchanged."""
    if not isinstance(value, str) or len(value) <= 2 * LARGEST_HEX_VALUE_BYTES:
        return value
    data = bytes.fromhex(value)
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def _short(value: Any) -> str:
    """The value for people. Null and empty have names, which ``kfuzz.conformance.judge.causes`` knows too."""
    if value is None or value in ("", []):
        return "null" if value is None else "empty"
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


def with_cells(
    document: Mapping[str, Any], answers: Mapping[str, Mapping[str, Mapping[str, Any]]], role: str = "consumer"
) -> Json:
    """Return the vector file's document with the outcome of each Kafka version in ``role`` (``answers[version][id]``).

    The outcomes in other roles stay, because the bytes are the same.
    """

    def cells(item: Mapping[str, Any]) -> Json:
        name, kafka = item["id"], dict(item["kafka"])
        for version, said in answers.items():
            if name in said:
                kafka[version] = {**kafka.get(version, {}), role: said[name]["outcome"]}
        return kafka

    return {**document, "vectors": [{**item, "kafka": cells(item)} for item in document["vectors"]]}


# The answers of a real broker: to a Produce request, and with a segment at its start.
BROKER_CELLS: Final = ("produce", "error", "recovery")


def with_broker(document: Mapping[str, Any], version: str, cells: Mapping[str, Mapping[str, str]]) -> Json:
    """The vector file's document with the answers of the real broker ``version``: ``cells[id]`` has all that it did.

    The answers of any other real broker go, those of Kafka's classes stay.
    """

    def answers_of(item: Mapping[str, Any]) -> Json:
        kafka = {
            name: {did: outcome for did, outcome in cell.items() if did not in BROKER_CELLS}
            for name, cell in item["kafka"].items()
        }
        kafka[version] = {**kafka.get(version, {}), **cells.get(item["id"], {})}
        return {name: cell for name, cell in kafka.items() if cell}

    return {**document, "vectors": [{**item, "kafka": answers_of(item)} for item in document["vectors"]]}
