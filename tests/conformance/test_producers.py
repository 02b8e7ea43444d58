"""Apache Kafka takes as a broker what kfuzz takes, of everything that whole producers send."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import the_testee

from kfuzz.conformance.judge.compare import PRODUCE_ROLE, Case, cases_of, declared_unsupported, judge, request
from kfuzz.conformance.judge.reference import as_vector, verdict
from kfuzz.conformance.protocol.lines import PRODUCE, Answer, parse_answer, parse_handshake, to_line
from kfuzz.conformance.protocol.peer import Question, started
from kfuzz.conformance.protocol.testees import all_testees
from kfuzz.vectors import load_suite

CLIENTS = [testee.name for testee in all_testees() if testee.kind == "client"]


def arrived_from(name: str) -> dict[bytes, str]:
    """The bytes that the producer of the testee ``name`` sent, each with the id of a vector for which it did."""
    with started(the_testee(name)) as peer:
        if PRODUCE not in peer.handshake.operations:
            pytest.skip(f"{name} has no producer")
        cases = cases_of(load_suite(kinds=["produce"]), [PRODUCE_ROLE])
        asked = [Question(request(case), case) for case in cases if not declared_unsupported(case, peer.handshake)]
        answers = [(question.about.vector.id, answer) for question, answer in peer.answers(iter(asked))]
    produced = [(id, one) for id, answer in answers if isinstance(answer, Answer) for one in answer.produced or ()]
    return {one.data: id for id, one in produced}


@pytest.mark.java
@pytest.mark.parametrize(
    "name",
    [pytest.param("kfuzz", marks=pytest.mark.full), *(pytest.param(one, marks=pytest.mark.nightly) for one in CLIENTS)],
)
def test_a_broker_of_apache_kafka_takes_what_kfuzz_takes(name: str, kafka: Any) -> None:
    arrived = arrived_from(name)
    assert len(arrived) > 30
    handshake = parse_handshake(to_line(kafka.handshake))
    for data, id in arrived.items():
        case = Case(as_vector(id, data, verdict(data, "broker"), "broker"), "broker")
        answer = parse_answer(to_line(kafka.ask(**request(case))), id=id, operation=case.operation)
        assert judge(case, handshake, answer).text == "", id
