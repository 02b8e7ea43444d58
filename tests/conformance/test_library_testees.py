"""The testees of libraries: they build, name the exact version of their library, and do what vectors/expected/ says."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import version

import pytest
from conftest import the_testee

from kfuzz.conformance.judge.compare import cases_of
from kfuzz.conformance.judge.matrix import Places, run
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.vectors import KINDS, default_root, load_suite

COUNTS = "records/v2/count/*"
MESSAGES = ("messages/requests/heartbeat-request-*", "messages/responses/heartbeat-response-*")
# For whole clients: a consumer and a producer.
BOTH_WAYS = ("records/v2/count/of-*", "produce/contents/key-*")
# For a testee if others of its language are quicker.
SLOW = pytest.mark.full
# The vectors that each testee is asked, and how many of them pass at least. No family needs seconds or a second start.
ASKED = {
    "aiokafka": (("messages/printed/*", "records/v2/produce/*"), 30),
    "kafka-python": (("messages/headers/*", "messages/printed/*", "records/v2/produce/*"), 50),
    "kio": (("messages/headers/*", "messages/printed/*", "primitives/varints/*", "records/v2/header/*"), 150),
    "franz-go": ((COUNTS, *MESSAGES), 1),
    "kafka-go": ((COUNTS, *MESSAGES), 1, SLOW),
    "kafka-go-reader": ((COUNTS,), 1),
    "sarama": ((COUNTS, *MESSAGES), 5),
    "kafka-protocol": ((COUNTS, "messages/headers/*", "messages/requests/api-versions-request-*"), 1, SLOW),
    "rskafka": ((COUNTS, "messages/printed/*"), 5),
    "kafkajs": ((COUNTS, *MESSAGES), 6, SLOW),
    "platformatic-kafka": ((COUNTS, *MESSAGES), 10),
    "kafkajs-client": (BOTH_WAYS, 4, SLOW),
    "platformatic-kafka-client": (BOTH_WAYS, 12, SLOW),
    "rskafka-client": (BOTH_WAYS, 12, SLOW),
    "krafka-client": (BOTH_WAYS, 12, SLOW),
    "franz-go-client": (BOTH_WAYS, 12),
    "sarama-client": (BOTH_WAYS, 4, SLOW),
    "kafka-go-client": (BOTH_WAYS, 12, SLOW),
}


def pinned(testee: Testee) -> str:
    """The exact version in go.mod, Cargo.toml or package.json; of a Python library, the installed one."""
    if testee.language == "python":
        return version(testee.name)
    assert testee.folder
    if testee.language == "go":
        line = rf"^\s*{re.escape(testee.library)} v(\S+)$"
        (found,) = re.findall(line, (testee.folder / "go.mod").read_text(), re.MULTILINE)
        return str(found)
    if testee.language == "rust":
        dependency = tomllib.loads((testee.folder / "Cargo.toml").read_text())["dependencies"][testee.library]
        text = dependency if isinstance(dependency, str) else dependency["version"]
        assert text.startswith("=")
        return str(text[1:])
    return str(json.loads((testee.folder / "package.json").read_text())["dependencies"][testee.library])


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, (_, _, *marks) in ASKED.items()])
def test_outcomes_are_as_expected_and_the_handshake_names_the_pinned_version(name: str) -> None:
    testee = the_testee(name)
    globs, passed_min, *_ = ASKED[name]
    cases = cases_of(load_suite(globs, kinds=KINDS))
    (judged,) = run([testee], cases, places=Places.beside(default_root()), whole=False).testees
    assert judged.broken == ""
    assert judged.label == f"{name}@{pinned(testee)}"
    assert {key: (judged.cells[key].text, judged.standings[key].reason) for key in judged.unexpected} == {}
    assert judged.totals()["pass"] >= passed_min
