"""Apache Kafka's own reader reads generated segments record for record as kfuzz.records does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import missing, releases

from kfuzz import records
from kfuzz.conformance.protocol.session import Limits, Session
from kfuzz.conformance.protocol.testees import all_testees
from kfuzz.conformance.protocol.words import parse_answer, to_line
from kfuzz.corpora.plan import Plan, Segment
from kfuzz.corpora.segment import generate_segment
from kfuzz.corpora.workload import KIB, MIB, load

pytestmark = pytest.mark.java

MIXED = Path(__file__).parents[2] / "spark_jobs" / "workloads" / "mixed.toml"


@pytest.fixture(scope="module", params=releases())
def kafka_clients(request: pytest.FixtureRequest) -> Iterator[Session]:
    testee = next(one for one in all_testees() if one.label == f"kafka-clients@{request.param}")
    if reason := testee.missing():
        missing(reason, "install a JDK of version 17 or newer and Maven")
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


def test_kafka_reads_a_generated_segment_record_for_record(
    kafka_clients: Session, segments: list[tuple[Segment, bytes]]
) -> None:
    seen: set[tuple[int, str]] = set()
    for segment, log in segments:
        request = {"id": segment.path, "operation": "decode-records", "role": "consumer", "hex": log.hex()}
        kafka_clients.send(to_line(request))
        line = kafka_clients.next_line(Limits().budget(None))
        assert isinstance(line, bytes), line
        answer = parse_answer(line, id=segment.path, operation="decode-records")
        assert answer.outcome == "accepted", answer.error
        assert answer.consumed == len(log)
        expected = records.to_json(records.decode(log))
        assert answer.batches is not None
        assert len(answer.batches) == len(expected)
        for at, (theirs, ours) in enumerate(zip(answer.batches, expected, strict=True)):
            # What Kafka tells beyond the required is compared as well.
            assert {name: ours[name] for name in theirs} == theirs, f"{segment.path} batch {at}"
            seen.add((ours["magic"], ours["compression"]))
        offsets = [int(record["offset"]) for batch in answer.batches for record in batch["records"]]
        assert offsets == list(range(segment.first_offset, segment.last_offset + 1))
    assert seen == {(2, codec) for codec in records.CODECS} | {(m, c) for m in (0, 1) for c in ("none", "gzip")}
