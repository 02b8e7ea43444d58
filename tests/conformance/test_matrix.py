"""The committed expectations hold: every testee at hand, against the whole suite, does what its file says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz_process
from conftest import missing

from kfuzz.conformance.protocol.testees import Testee, all_testees
from kfuzz.kafka import KAFKA_3
from kfuzz.vectors import load_suite
from kfuzz.vectors.kinds import CLIENT, KINDS

SEED = 7
# A hundred vectors of these need a process each.
SLOW = {"kio"}


def sample(percent: int) -> list[str]:
    """Ids of as many vectors, and of one bomb: those take most of the time."""
    chosen = random.Random(SEED)
    suite = load_suite(kinds=KINDS)
    plain = [vector.id for vector in suite if not vector.budget]
    bombs = [vector.id for vector in suite if vector.budget]
    return [*chosen.sample(plain, len(plain) * percent // 100), chosen.choice(bombs)]


def runs() -> Iterator[Any]:
    """Each testee with a part of the suite, and with all of it."""
    for testee in all_testees():
        # test_serve_testees.py has the whole clients.
        if testee.kind == "client":
            continue
        marks = [pytest.mark.java] if testee.language == "java" else []
        is_quick = testee.language in ("", "python", "java") and testee.name not in SLOW
        if is_quick and testee.version != KAFKA_3:
            yield pytest.param(testee, 4, id=f"{testee.label}-4", marks=marks)
        # All vectors take minutes in other languages, which have a test of their own for each testee.
        if testee.name != "kfuzz":
            percent = 25 if is_quick else 10
            yield pytest.param(testee, percent, id=f"{testee.label}-{percent}", marks=[*marks, pytest.mark.full])
        whole = pytest.mark.full if testee.name == "kfuzz" else pytest.mark.nightly
        yield pytest.param(testee, 100, id=f"{testee.label}-100", marks=[*marks, whole])


@pytest.mark.parametrize(("testee", "percent"), list(runs()))
def test_a_testee_does_what_its_expected_outcomes_say(testee: Testee, percent: int, tmp_path: Path) -> None:
    if reason := testee.missing():
        # Java and the Python libraries must be there. The other toolchains may be missing.
        if testee.language in ("python", "java"):
            missing(reason, "install it")
        pytest.skip(reason)
    report = tmp_path / "report.json"
    words = [] if percent == 100 else sample(percent)
    # A testee and all vectors take minutes, and so does building it for the first time.
    done = kfuzz_process("conform", "--json", report, "--testee", testee.label, *words, timeout_s=1800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = json.loads(report.read_text())
    [entry] = found["testees"]
    assert entry["unexpected"] == 0
    # kfuzz passes all but conversations, because it is no client.
    others = [case["cells"][entry["label"]]["outcome"] for case in found["cases"] if case["role"] != CLIENT]
    assert testee.name != "kfuzz" or set(others) == {"pass"}
