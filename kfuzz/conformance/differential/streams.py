"""The differential for rules that need memory: random streams of batches, which kfuzz and a testee must judge alike.

A stream is what a few producers do, mostly rightly: they go on, repeat, leave gaps, come back under another epoch, end
their transactions or do not. What kfuzz makes of it becomes a vector's expectation, and the testee is asked as it is
asked any vector. Equal seeds make equal streams.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as counted
from pathlib import Path
from typing import Any, Final

from kfuzz import records
from kfuzz.conformance.differential.found import Differential
from kfuzz.conformance.judge.compare import Case
from kfuzz.conformance.judge.own import answer_stream
from kfuzz.conformance.judge.runner import run_cases
from kfuzz.conformance.protocol.session import Limits
from kfuzz.conformance.protocol.testees import BuildFailed, Testee
from kfuzz.conformance.protocol.words import APPEND_STREAM, DECODE_STREAM
from kfuzz.errors import RecordsError, UsageError
from kfuzz.kafka import ISOLATIONS
from kfuzz.records.stream import next_sequence, transactions_of
from kfuzz.vectors.model import STREAM_OPTIONS, Vector

__all__ = ["differ_streams", "random_streams", "stream"]

ABORT, COMMIT = 0, 1
INT32_MAX: Final = 2**31 - 1
CREATED_MS: Final = 1_700_000_000_000
BATCHES_MAX: Final = 14
# So many streams are in memory, and asked of one process.
CHUNK: Final = 5000
# The first sequences of a producer: usual, lost its beginning, about to wrap.
FIRST_SEQUENCES: Final = (0, 0, 0, 7, INT32_MAX - 1, INT32_MAX)


def differ_streams(
    testee: Testee, *, seed: int, count: int, on_progress: Callable[[int], None] = lambda done: None
) -> Differential:
    """Ask ``testee`` about ``count`` streams of ``seed``, and compare with what kfuzz makes of them.

    ``UsageError`` where the testee does not begin. That the testee lets an undeclared exception escape where kfuzz
    refuses is agreement, as for single batches: docs/differences.md.
    """
    if reason := testee.missing():
        raise UsageError(f"{reason}; install that, or name another with --testee")
    try:
        testee.make_ready()
    except BuildFailed as error:
        raise UsageError(f"{testee.label}: {error}; see testees/README.md") from None
    found = Differential(testee.label, of="stream")
    for start in range(0, count, CHUNK):
        _differ_on(found, testee, seed, range(start, min(start + CHUNK, count)), on_progress)
    return found


def _differ_on(
    found: Differential, testee: Testee, seed: int, numbers: range, on_progress: Callable[[int], None]
) -> None:
    """The streams of these ``numbers``; no more are in memory at a time."""
    asked = {index: stream(seed, index) for index in numbers}
    cases = {index: Case(_as_vector(index, request), request["role"]) for index, request in asked.items()}
    done = counted(numbers.start + 1)
    outcome = run_cases(
        testee.argv,
        list(cases.values()),
        cwd=testee.folder,
        limits=Limits(start_ms=testee.start_timeout_ms),
        on_cell=lambda: on_progress(next(done)),
    )
    if outcome.broken:
        raise UsageError(f"{testee.label}: {outcome.broken}; docs/testee-protocol.md says how a testee begins")
    for index, case in cases.items():
        cell = outcome.cells[case.key]
        refused = case.expectation["verdict"] == "invalid" and case.operation == DECODE_STREAM
        found.inputs += 1
        if cell.outcome == "unsupported":
            found.unsupported += 1
        elif cell.outcome == "pass" or (cell.outcome == "fault" and refused):
            found.agreements[case.operation] += 1
        else:
            found.differ(index, f"{cell.outcome}: {cell.text}", asked[index], cell.answer)


def random_streams(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """The first ``count`` streams of ``seed``; see :func:`stream`."""
    return (stream(seed, index) for index in range(count))


def stream(seed: int, index: int) -> dict[str, Any]:
    """A request of the testee protocol, without an id: in turn for a broker, a log and a consumer."""
    chance = random.Random(f"{seed}/{index}")
    batches = _Producers(chance).batches()
    return (_append, _read_log, _fetch)[index % 3](chance, batches)


def _append(chance: random.Random, batches: Sequence[records.RecordBatch]) -> dict[str, Any]:
    return {
        "operation": APPEND_STREAM,
        "role": "broker",
        "transaction_version": chance.choice((0, 0, 2)),
        "steps": [records.encode_batch(batch).hex() for batch in batches],
    }


def _read_log(chance: random.Random, batches: Sequence[records.RecordBatch]) -> dict[str, Any]:
    return _reading(chance, "log", _as_log(chance, batches))


def _fetch(chance: random.Random, batches: Sequence[records.RecordBatch]) -> dict[str, Any]:
    log = _as_log(chance, batches, tidy=chance.random() < 0.8)
    try:
        aborted: list[tuple[int, int]] = list(transactions_of(log).aborted)
    except RecordsError:
        aborted = []
    # Mostly the truth; else in any order, with some missing and others that never were.
    if chance.random() < 0.4:
        aborted = [item for item in aborted if chance.random() < 0.7]
        aborted += [(chance.randrange(4000, 4005), chance.randrange(40)) for _ in range(chance.randrange(3))]
        chance.shuffle(aborted)
    told = [{"producer_id": str(producer), "first_offset": str(offset)} for producer, offset in aborted]
    return _reading(chance, "consumer", log) | {"aborted": told}


def _reading(chance: random.Random, role: str, log: Sequence[records.RecordBatch]) -> dict[str, Any]:
    return {
        "operation": DECODE_STREAM,
        "role": role,
        "isolation": chance.choice((*ISOLATIONS, "read_committed")),
        "fetch_offset": str(chance.choice((0, 0, 0, chance.randrange(30)))),
        "steps": [records.encode_batch(batch).hex() for batch in log],
    }


def _as_log(
    chance: random.Random, batches: Sequence[records.RecordBatch], *, tidy: bool = True
) -> list[records.RecordBatch]:
    """The batches under offsets of a log, some of which was compacted away; what is not ``tidy`` goes back at times."""
    log: list[records.RecordBatch] = []
    next_offset = chance.choice((0, 0, 5))
    for batch in batches:
        base_offset = next_offset + chance.choice((0, 0, 0, 0, 3) if tidy else (0, 0, 3, -1, -2))
        shift = base_offset - batch.base_offset
        batch.base_offset += shift
        batch.last_offset += shift
        for record in batch.records:
            record.offset += shift
        next_offset = batch.next_offset
        fate = chance.random()
        if fate < 0.08:
            continue
        if fate < 0.25 and batch.magic == 2:
            batch.records = [record for record in batch.records if chance.random() < 0.5]
        if not tidy and chance.random() < 0.1:
            batch.records.reverse()
        log.append(batch)
    return log


# --- producers ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Producer:
    producer_id: int
    sequence: int
    epoch: int = 0
    coordinator_epoch: int = 0
    transactional: bool = True
    # Epoch, first sequence and count of what it sent.
    sent: list[tuple[int, int, int]] = field(default_factory=list)


class _Producers:
    """A few producers, and what they do next."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.producers = [
            _Producer(4000 + index, chance.choice(FIRST_SEQUENCES), transactional=chance.random() < 0.7)
            for index in range(chance.randrange(1, 4))
        ]

    def batches(self) -> list[records.RecordBatch]:
        return [self._next() for _ in range(self.chance.randrange(1, BATCHES_MAX + 1))]

    def _next(self) -> records.RecordBatch:
        producer = self.chance.choice(self.producers)
        doing = self.chance.choices(
            (self._go_on, self._repeat, self._leap, self._change_epoch, self._mark, self._stand_by),
            (50, 10, 8, 8, 20, 4),
        )[0]
        return doing(producer)

    def _go_on(self, producer: _Producer) -> records.RecordBatch:
        count = self.chance.choice((1, 1, 2, 3))
        made = self._data(producer, producer.epoch, producer.sequence, count)
        producer.sent.append((producer.epoch, producer.sequence, count))
        producer.sequence = next_sequence(producer.sequence, count)
        return made

    def _repeat(self, producer: _Producer) -> records.RecordBatch:
        if not producer.sent:
            return self._go_on(producer)
        epoch, sequence, count = self.chance.choice(producer.sent[-7:])
        # Seldom one that overlaps another without being it.
        return self._data(producer, epoch, sequence, count + self.chance.choice((0, 0, 0, 1)))

    def _leap(self, producer: _Producer) -> records.RecordBatch:
        sequence = (producer.sequence + self.chance.choice((-2, -1, 1, 2, 1 << 30, -(1 << 30)))) & INT32_MAX
        return self._data(producer, producer.epoch, sequence, 1)

    def _change_epoch(self, producer: _Producer) -> records.RecordBatch:
        if self.chance.random() < 0.4 and producer.epoch > 0:
            return self._data(producer, producer.epoch - 1, self.chance.choice((0, producer.sequence)), 1)
        producer.epoch += 1
        producer.sequence = self.chance.choice((0, 0, 0, 3))
        return self._go_on(producer)

    def _mark(self, producer: _Producer) -> records.RecordBatch:
        producer.coordinator_epoch = max(0, producer.coordinator_epoch + self.chance.choice((0, 0, 0, 0, 1, -1)))
        epoch = producer.epoch + self.chance.choice((0, 0, 0, 0, 1, -1))
        if epoch > producer.epoch and self.chance.random() < 0.7:
            producer.epoch, producer.sequence = epoch, 0
        kind = self.chance.choice((ABORT, COMMIT))
        key: bytes | None = struct.pack(">hh", self.chance.choice((0, 0, 0, 0, 0, 1)), kind)
        value: bytes | None = struct.pack(">hi", 0, producer.coordinator_epoch)
        if self.chance.random() < 0.05:
            key = self.chance.choice((None, b"", b"\0\0\0", b"\xff\xff\0\0", b"\0\0\0\2", b"\0\0\0\1\0"))
        if self.chance.random() < 0.05:
            value = self.chance.choice((None, b"", b"\0", b"\0\0\0\0", b"\xff\xff\0\0\0\1", b"\0\1\0\0\0\2\xff"))
        return records.RecordBatch(
            0,
            0,
            [records.Record(0, CREATED_MS, key, value)],
            control=True,
            transactional=self.chance.random() < 0.95,
            producer_id=producer.producer_id,
            producer_epoch=max(0, epoch),
        )

    def _stand_by(self, _: _Producer) -> records.RecordBatch:
        """A batch without a producer id, perhaps of an older format."""
        magic = self.chance.choice((2, 2, 1))
        return records.RecordBatch(0, 0, [records.Record(0, CREATED_MS, None, b"plain")], magic=magic)

    def _data(self, producer: _Producer, epoch: int, sequence: int, count: int) -> records.RecordBatch:
        # Now and then a producer mixes what is transactional with what is not.
        transactional = producer.transactional != (self.chance.random() < 0.03)
        return records.RecordBatch(
            0,
            count - 1,
            [records.Record(index, CREATED_MS, None, b"%d" % (sequence + index)) for index in range(count)],
            compression=self.chance.choice(("none", "none", "none", "gzip")),
            transactional=transactional,
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )


# --- expectations ---------------------------------------------------------------------------------------------------


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    # What escapes from Kafka where a marker cannot be read differs from version to version.
    kept = {name for name in step if name != "error" or step.get("finding") != "end-marker-invalid"}
    verdict = "invalid" if step["outcome"] == "rejected" else "valid"
    return {"verdict": verdict} | {name: step[name] for name in kept}


def _as_vector(index: int, request: Mapping[str, Any]) -> Vector:
    """What kfuzz makes of the stream, as the expectation that the testee's answer is held to."""
    answer = answer_stream(request)
    role, hexes = request["role"], list(request["steps"])
    if request["operation"] == APPEND_STREAM:
        expectations = [_step(step) for step in answer["steps"]]
    else:
        # All in one step, and an empty one, which is the one refused.
        hexes = ["".join(hexes), ""]
        end: dict[str, Any] = {"records": [], "next_offset": answer.get("next_offset"), "verdict": "valid"}
        if answer["outcome"] == "rejected":
            end = {"verdict": "invalid", "finding": answer["finding"]}
        expectations = [{"records": answer["records"], "verdict": "valid"}, end]
    return Vector(
        id=f"streams/{index}",
        kind="stream",
        summary="a random stream",
        level="required",
        requirements=(),
        flags=(),
        source=bytes.fromhex("".join(hexes)),
        canonical=False,
        layout=(),
        expect={},
        kafka={},
        budget=None,
        file=Path("streams"),
        steps=tuple({"hex": text, "expect": {role: want}} for text, want in zip(hexes, expectations, strict=True)),
        options={name: request[name] for name in STREAM_OPTIONS if name in request},
    )
