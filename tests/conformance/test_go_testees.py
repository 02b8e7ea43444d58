"""The testees in Go: they build, name the exact version of their library, and do what vectors/expected/ says."""

from __future__ import annotations

import re

import pytest
from conftest import require_tool

from kfuzz.conformance.judge.compare import cases_of
from kfuzz.conformance.judge.matrix import Places, run
from kfuzz.conformance.protocol.testees import Testee, all_testees
from kfuzz.vectors import KINDS, default_root, load_suite

COUNTS = "records/v2/count/*"
MESSAGES = ("messages/requests/heartbeat-request-*", "messages/responses/heartbeat-response-*")

# Each testee's module, and the vectors that it is asked here: one family of batches, and two messages if it reads any.
TESTEES = {
    "franz-go": ("github.com/twmb/franz-go", (COUNTS, *MESSAGES)),
    "kafka-go": ("github.com/segmentio/kafka-go", (COUNTS, *MESSAGES)),
    "kafka-go-reader": ("github.com/segmentio/kafka-go", (COUNTS,)),
    "sarama": ("github.com/IBM/sarama", (COUNTS,)),
}


@pytest.fixture(params=TESTEES)
def testee(request: pytest.FixtureRequest) -> Testee:
    (found,) = [testee for testee in all_testees() if testee.name == request.param]
    require_tool("go", f"{found.label} needs it")
    return found


def test_outcomes_are_as_expected_and_the_handshake_names_the_pinned_version(testee: Testee) -> None:
    module, vectors = TESTEES[testee.name]
    cases = cases_of(load_suite(vectors, kinds=KINDS))
    (judged,) = run([testee], cases, places=Places.beside(default_root()), whole=False).testees
    assert judged.broken == ""
    assert judged.label == testee.label == f"{testee.name}@{pinned(testee, module)}"
    assert {key: judged.cells[key].text for key in judged.unexpected} == {}


def pinned(testee: Testee, module: str) -> str:
    """The version of the module in go.mod."""
    assert testee.folder
    (version,) = re.findall(rf"^\s*{re.escape(module)} v(\S+)$", (testee.folder / "go.mod").read_text(), re.MULTILINE)
    return str(version)
