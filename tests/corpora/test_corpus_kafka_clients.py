"""Apache Kafka's own reader reads generated segments record for record as kfuzz.records does."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from conftest import releases, the_testee
from made_corpora import BUSY, MIXED, generate_segment

from kfuzz import records
from kfuzz.conformance.protocol.lines import Answer, parse_answer, to_line
from kfuzz.conformance.protocol.session import Limits, Session
from kfuzz.corpora.plan import Plan, Segment
from kfuzz.corpora.workload import KIB, MIB, Compaction, Keys, Range, Values, Workload, load
from kfuzz.wire.records.framing import frames

pytestmark = pytest.mark.java

BUSY_WORKLOAD = Workload(topics=(BUSY,), size=768 * KIB, segment_bytes=64 * KIB)


@pytest.fixture(scope="module", params=releases())
def kafka_clients(request: pytest.FixtureRequest) -> Iterator[Session]:
    testee = the_testee(f"kafka-clients@{request.param}")
    testee.make_ready()
    with Session(testee.argv, cwd=testee.folder) as session:
        session.start(Limits())
        yield session


@pytest.fixture(scope="module")
def segments() -> list[tuple[Segment, bytes]]:
    """The first segment of each topic of the workload that has a bit of everything: all codecs, headers, old magics."""
    workload = load(MIXED).resized(4 * MIB)
    plan = Plan(workload)
    firsts = [plan[planned.first_id] for planned in plan.topics]
    made = [(segment, generate_segment(segment, workload).log) for segment in firsts]
    assert all(len(log) > 100 * KIB for _, log in made)
    return made


def asked(session: Session, name: str, operation: str, **request: Any) -> Answer:
    """The answer of a testee that accepts the bytes."""
    session.send(to_line({"id": name, "operation": operation, **request}))
    line = session.next_line(Limits().budget(None))
    assert isinstance(line, bytes), line
    answer = parse_answer(line, id=name, operation=operation)
    assert answer.outcome == "accepted", answer.error
    return answer


def decoded(session: Session, name: str, log: bytes) -> list[dict[str, Any]]:
    """The batches that a testee reads of a whole log."""
    answer = asked(session, name, "decode-records", role="consumer", hex=log.hex())
    assert answer.consumed == len(log)
    assert answer.batches is not None
    return list(answer.batches)


def test_kafka_reads_a_generated_segment_record_for_record(
    kafka_clients: Session, segments: list[tuple[Segment, bytes]]
) -> None:
    seen: set[tuple[int, str]] = set()
    for segment, log in segments:
        found = decoded(kafka_clients, segment.path, log)
        for at, (theirs, ours) in enumerate(zip(found, records.to_json(records.decode(log)), strict=True)):
            # Fields that Kafka tells beyond the required ones are compared as well.
            assert {name: ours[name] for name in theirs} == theirs, f"{segment.path} batch {at}"
            seen.add((ours["magic"], ours["compression"]))
        offsets = [int(record["offset"]) for batch in found for record in batch["records"]]
        assert offsets == list(range(segment.first_offset, segment.last_offset + 1))
    assert seen == {(2, codec) for codec in records.CODECS} | {(m, c) for m in (0, 1) for c in ("none", "gzip")}


def test_kafka_appends_every_batch_of_a_partition_and_ends_every_transaction(kafka_clients: Session) -> None:
    """Sequences, epochs and markers, across segments, as a broker checks them (``ProducerStateManager``)."""
    if "append-stream" not in kafka_clients.handshake.operations:
        pytest.skip("this testee appends no streams")
    steps: dict[str, list[str]] = {}
    indexed: dict[str, dict[int, int]] = {}
    ends: dict[str, int] = {}
    for segment in Plan(BUSY_WORKLOAD):
        made = generate_segment(segment, BUSY_WORKLOAD)
        here = steps.setdefault(segment.directory, [])
        here += [made.log[at : at + size].hex() for at, size, _ in frames(made.log)]
        entries = struct.iter_unpack(">hqqqq", made.transaction_index)
        indexed.setdefault(segment.directory, {}).update({marker: stable for _, _, _, marker, stable in entries})
        ends[segment.directory] = segment.last_offset + 1
    assert len(steps) == 3
    for directory, batches in steps.items():
        answer = asked(kafka_clients, directory, "append-stream", role="broker", steps=batches)
        assert answer.steps is not None
        assert {step["outcome"] for step in answer.steps} == {"appended"}
        stable = {int(step["base_offset"]): int(step["last_stable_offset"]) for step in answer.steps}
        assert list(stable) == [int(batch[:16], 16) for batch in batches]
        # Nothing is open at the end. Each entry of a transaction index has Kafka's last stable offset.
        assert stable[max(stable)] == ends[directory]
        assert len(indexed[directory]) > 20
        assert {marker: stable[marker] for marker in indexed[directory]} == indexed[directory]


def test_kafka_reads_cleaned_segments_record_for_record(kafka_clients: Session) -> None:
    """Gaps, batches without records, and delete horizons as base timestamps."""
    [topic] = BUSY_WORKLOAD.topics
    topic = replace(topic, keys=Keys(null_share=0.1), values=Values(size=Range(0, 60), null_share=0.1))
    workload = replace(BUSY_WORKLOAD, topics=(replace(topic, compaction=Compaction(segments=2)),))
    empty = horizons = 0
    for segment in [one for one in Plan(workload) if one.is_cleaned]:
        log = generate_segment(segment, workload).log
        found = decoded(kafka_clients, segment.path, log)
        expected = records.to_json(records.decode(log))
        assert [{name: ours[name] for name in theirs} for theirs, ours in zip(found, expected, strict=True)] == found
        empty += sum(not batch["records"] for batch in found)
        horizons += sum(batch.delete_horizon is not None for batch in records.decode(log))
    assert empty > 0
    assert horizons > 0
