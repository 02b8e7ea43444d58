"""Inputs for the kafka-clients testee's tools, and the comparison of what they answer; for tests only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from testee_driver import LARGEST_LEAD, RunningTestee

from kfuzz import records
from kfuzz.mutate import Mutator
from kfuzz.vectors import load_suite

# A bomb is no test of what becomes of records.
RECORD_BYTES_MAX = 1 << 20


def readable(count: int, seed: int) -> Iterator[tuple[bytes, records.Reading]]:
    """Every vector of the suite and ``count`` mutated inputs, those of them that a consumer reads."""
    mutator = Mutator(seed)
    yield from _readable_of_the_suite()
    yield from _of(mutator.input() for _ in range(count))


@cache
def _readable_of_the_suite() -> list[tuple[bytes, records.Reading]]:
    return list(_of(vector.data for vector in load_suite()))


def _of(inputs: Iterable[bytes]) -> Iterator[tuple[bytes, records.Reading]]:
    for data in inputs:
        reading = records.read(data)
        if reading.fatal is None and reading.batches and _record_bytes(reading) <= RECORD_BYTES_MAX:
            yield data, reading


def _record_bytes(reading: records.Reading) -> int:
    return sum(
        len(record.key or b"") + len(record.value or b"") for batch in reading.batches for record in batch.records
    )


def ask(kafka: RunningTestee, operation: str, data: bytes, **request: Any) -> dict[str, Any] | None:
    """The answer; None where Kafka ran out of memory, which is the one difference allowed (docs/differences.md)."""
    answer = kafka.ask(operation=operation, hex=data.hex(), **request)
    return None if "OutOfMemoryError" in answer.get("error", "") else answer


def ask_all(kafka: RunningTestee, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers to many requests, some of which are on their way at a time."""
    answers = []
    for at in range(0, len(requests), LARGEST_LEAD):
        ahead = requests[at : at + LARGEST_LEAD]
        for request in ahead:
            kafka.send_line(json.dumps({"id": "t"} | request))
        answers += [kafka.read_answer() for _ in ahead]
    return answers


def same(mine: bytes, theirs: bytes) -> bool:
    """Whether two codings of records are equal: in every byte, or, where a codec made other bytes, in all they hold."""
    if mine == theirs:
        return True
    one, other = records.read(mine), records.read(theirs)
    if one.fatal is not None and other.fatal is not None:
        # Kafka writes wrappers that it cannot read, where inner offsets begin below 0.
        return one.fatal.code == other.fatal.code and one.batches == other.batches
    compressed = any(batch.compression != "none" for batch in one.batches)
    return compressed and one.fatal == other.fatal and one.batches == other.batches
