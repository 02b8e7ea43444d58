"""The differential for rules that need several batches: kfuzz and a testee must agree on random streams of batches.

A stream holds the batches of a few producers, which mostly follow the rules. They continue, repeat batches, leave gaps,
come back with another epoch, and end their transactions or leave them open. kfuzz's result becomes the expectation of a
vector, and the testee is asked about this vector as about any other. Equal seeds give equal streams.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kfuzz import records
from kfuzz.conformance.differential.found import Asked, Differential
from kfuzz.conformance.judge.compare import Case, Cell
from kfuzz.conformance.judge.harm import DIFFERS
from kfuzz.conformance.judge.own import answer_stream
from kfuzz.conformance.judge.reference import outside_vector
from kfuzz.conformance.judge.runner import cells, judged_answer
from kfuzz.conformance.protocol.lines import APPEND_STREAM, DECODE_STREAM
from kfuzz.conformance.protocol.peer import Question, started
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.errors import RecordsError
from kfuzz.kafka import ISOLATIONS
from kfuzz.records.stream import next_sequence, transactions_of
from kfuzz.vectors.kinds import STREAM_OPTIONS
from kfuzz.vectors.model import Vector

ABORT, COMMIT = 0, 1
INT32_MAX: Final = 2**31 - 1
CREATED_MS: Final = 1_700_000_000_000
BATCHES_MAX: Final = 14
# How many streams are in memory at a time.
CHUNK: Final = 5000
# A producer's possible first sequences: the usual 0, a lost beginning, about to wrap around.
FIRST_SEQUENCES: Final = (0, 0, 0, 7, INT32_MAX - 1, INT32_MAX)


def differ_streams(
    testee: Testee,
    *,
    seed: int,
    count: int,
    first: int = 0,
    on_progress: Callable[[int], None] = lambda done: None,
    begun: Callable[[Differential], None] = lambda found: None,
) -> Differential:
    """Ask ``testee`` about ``count`` streams of ``seed`` from number ``first`` on, and compare answers with kfuzz's.

    ``begun`` gets the result before the first question; it grows with each answer.

    ``UsageError`` if the testee does not start. If kfuzz refuses a stream to be read and the testee lets an undeclared
    exception escape, that counts as agreement, as for single batches: docs/differences.md.
    """
    found = Differential(testee.label, of="stream")
    begun(found)
    with started(testee) as peer:
        for start in range(first, first + count, CHUNK):
            numbers = range(start, min(start + CHUNK, first + count))
            asked = ((index, stream(seed, index)) for index in numbers)
            cases = (Case(_as_vector(index, request), request["role"]) for index, request in asked)
            for case, cell in cells(peer, cases, judged_answer):
                _compare(found, seed, case, cell)
                on_progress(found.inputs)
    found.deviations.sort(key=lambda one: one.number)
    return found


def _compare(found: Differential, seed: int, case: Case, cell: Cell) -> None:
    refused = case.expectation["verdict"] == "invalid" and case.operation == DECODE_STREAM
    found.inputs += 1
    if cell.outcome == "unsupported":
        found.unsupported += 1
    elif cell.outcome == "pass" or (cell.outcome == "fault" and refused):
        found.agreements[case.operation] += 1
    else:
        index = int(case.vector.id.rpartition("/")[2])
        found.add(
            Question(stream(seed, index), Asked(index, cell)),
            cell.answer,
            reason=f"{cell.outcome}: {cell.text}",
            error=cell.text,
            harm=cell.harm or DIFFERS.name,
            finding=case.expectation.get("finding", ""),
        )


def stream(seed: int, index: int) -> dict[str, Any]:
    """Stream ``index`` of ``seed``, as a testee request without an id; in turn for a broker, a log and a consumer."""
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
    # Mostly the true list; otherwise in any order, with some missing and with some invented.
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
    """The batches with the offsets of a partly compacted log; if not ``tidy``, offsets sometimes go backwards."""
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
    # Epoch, first sequence and record count of each batch that it sent.
    sent: list[tuple[int, int, int]] = field(default_factory=list)


class _Producers:
    """A few producers that write random batches."""

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
        # In a few cases the batch overlaps an earlier one without being equal to it.
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
        """A batch without a producer id, perhaps in an older format."""
        magic = self.chance.choice((2, 2, 1))
        return records.RecordBatch(0, 0, [records.Record(0, CREATED_MS, None, b"plain")], magic=magic)

    def _data(self, producer: _Producer, epoch: int, sequence: int, count: int) -> records.RecordBatch:
        # Rarely, a producer mixes transactional and other batches.
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
    # For a marker that it cannot read, Kafka's error differs from version to version, so the error is not compared.
    kept = {name for name in step if name != "error" or step.get("finding") != "end-marker-invalid"}
    verdict = "invalid" if step["outcome"] == "rejected" else "valid"
    return {"verdict": verdict} | {name: step[name] for name in kept}


def _as_vector(index: int, request: Mapping[str, Any]) -> Vector:
    """A vector whose expectation is kfuzz's result for the stream."""
    answer = answer_stream(request)
    role, hexes = request["role"], list(request["steps"])
    if request["operation"] == APPEND_STREAM:
        expectations = [_step(step) for step in answer["steps"]]
    else:
        # One step with all bytes, then an empty step: a refusal comes after the records that were handed out before it.
        hexes = ["".join(hexes), ""]
        end: dict[str, Any] = {"records": [], "next_offset": answer.get("next_offset"), "verdict": "valid"}
        if answer["outcome"] == "rejected":
            end = {"verdict": "invalid", "finding": answer["finding"]}
        expectations = [{"records": answer["records"], "verdict": "valid"}, end]
    return outside_vector(
        f"streams/{index}",
        "stream",
        bytes.fromhex("".join(hexes)),
        {},
        steps=tuple({"hex": text, "expect": {role: want}} for text, want in zip(hexes, expectations, strict=True)),
        options={name: request[name] for name in STREAM_OPTIONS if name in request},
    )
