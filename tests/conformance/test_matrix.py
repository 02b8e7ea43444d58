"""The committed expectations hold: every testee at hand, against the whole suite, does what its file says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_driver import kfuzz_process
from conftest import missing

from kfuzz.conformance.protocol.testees import all_testees


@pytest.mark.java
def test_every_testee_does_what_its_expected_outcomes_say(tmp_path: Path) -> None:
    for testee in all_testees():
        if reason := testee.missing():
            missing(reason, "install it")
    report = tmp_path / "report.json"
    done = kfuzz_process("conform", "--json", report)
    assert done.returncode == 0, done.stdout[-3000:]
    testees = json.loads(report.read_text())["testees"]
    assert [entry["unexpected"] for entry in testees] == [0] * len(all_testees())
    assert next(entry["totals"] for entry in testees if entry["name"] == "kfuzz").keys() == {"pass"}
