"""The committed expectations hold: every testee at hand, against the whole suite, does what its file says."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from cli_driver import kfuzz_process
from conftest import counts, missing

from kfuzz.conformance.protocol.testees import all_testees
from kfuzz.vectors import load_suite
from kfuzz.vectors.model import KINDS

SEED = 7
# A hundred vectors of these need a process each, or a client. test_serve_testees.py has the clients.
SLOW = {"kafka-consumer", "kio", "librdkafka"}


def sample(percent: int) -> list[str]:
    """Ids of as many vectors, and of one bomb: those take most of the time."""
    chosen = random.Random(SEED)
    suite = load_suite(kinds=KINDS)
    plain = [vector.id for vector in suite if not vector.budget]
    bombs = [vector.id for vector in suite if vector.budget]
    return [*chosen.sample(plain, len(plain) * percent // 100), chosen.choice(bombs)]


@pytest.mark.java
@pytest.mark.parametrize("percent", counts(4, 100))
def test_every_testee_does_what_its_expected_outcomes_say(percent: int, tmp_path: Path) -> None:
    for testee in all_testees():
        # Java and the Python libraries must be there. The other toolchains may be missing.
        if testee.language in ("python", "java") and (reason := testee.missing()):
            missing(reason, "install it")
    # The version of kcat is the system's, so its outcomes may be unknown.
    there = [testee for testee in all_testees() if not testee.missing() and testee.name != "kcat"]
    if percent < 100:
        # The testees in other languages have a test each; all of them together take minutes.
        there = [one for one in there if one.language in ("", "python", "java") and one.name not in SLOW]
    names = [word for testee in there for word in ("--testee", testee.label)]
    report = tmp_path / "report.json"
    words = [] if percent == 100 else sample(percent)
    # All testees and all vectors take minutes, and so does building them for the first time.
    done = kfuzz_process("conform", "--json", report, *names, *words, timeout_s=1800)
    assert done.returncode == 0, done.stdout[-3000:]
    testees = json.loads(report.read_text())["testees"]
    assert [entry["unexpected"] for entry in testees] == [0] * len(there)
    assert next(entry["totals"] for entry in testees if entry["name"] == "kfuzz").keys() == {"pass"}
