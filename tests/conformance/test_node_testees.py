"""The testees in JavaScript: their outcomes are as the committed files say, and their kit hides no error."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import require_tool

from kfuzz.conformance.judge.compare import cases_of
from kfuzz.conformance.judge.matrix import Places, run
from kfuzz.conformance.protocol.testees import Testee, all_testees
from kfuzz.vectors.model import default_root, load_suite

KIT = Path(__file__).resolve().parents[2] / "testees" / "node" / "kfuzz_testee.mjs"
TOOLS = {
    "node": "install Node 20",
    "npm": "install npm",
    "make": "install make",
    "g++": "install a C++ compiler",
}
# Every outcome that needs seconds is in other families.
FAMILY = "records/v2/count/*"


def ready(name: str) -> Testee:
    [testee] = [testee for testee in all_testees() if testee.name == name]
    for tool in testee.requires:
        require_tool(tool, TOOLS[tool])
    return testee


@pytest.mark.parametrize("name", ["kafkajs", "platformatic-kafka"])
def test_outcomes_are_as_expected_and_the_handshake_names_the_pinned_version(name: str) -> None:
    testee = ready(name)
    assert testee.folder
    [judged] = run([testee], cases_of(load_suite(FAMILY)), places=Places.beside(default_root()), whole=False).testees
    assert judged.broken == ""
    assert judged.label == testee.label
    pinned = json.loads((testee.folder / "package.json").read_text())["dependencies"]
    assert judged.version in pinned.values()
    unexpected = {key: (judged.cells[key], judged.standings[key].reason) for key in judged.unexpected}
    assert unexpected == {}
    assert judged.totals()["pass"] > 5


WRAPPER = """
import { serve } from %s
const never = () => new Promise(() => {})
const reader = async ({ hex }, said) => {
  console.log('a library may print')
  if (hex === 'ff') throw new RangeError('no such byte')
  if (hex) await never()
  said.records = []
}
await serve({ name: 'toy', version: '1' }, { 'decode-records': reader }, { library: 'toy', isRejection: () => false })
"""


def test_a_promise_that_nothing_can_settle_is_stalled_and_the_next_request_is_answered(tmp_path: Path) -> None:
    node = require_tool("node", TOOLS["node"])
    wrapper = tmp_path / "testee.mjs"
    wrapper.write_text(WRAPPER % json.dumps(KIT.as_uri()))
    asked = [
        {"id": str(i), "operation": "decode-records", "hex": text} for i, text in enumerate(["00", "00", "ff", ""])
    ]
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    done = subprocess.run([node, str(wrapper)], input=lines, capture_output=True, text=True, timeout=30)
    _, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["id"], one["outcome"]) for one in answers] == [
        ("0", "stalled"),
        ("1", "stalled"),
        ("2", "fault"),
        ("3", "accepted"),
    ]
    assert answers[2]["error"] == "RangeError: no such byte"
    assert done.stderr.count("a library may print") == 4


PASSES_ON = """
import { serve } from %s
import { promisify } from 'node:util'
import { unzip } from 'node:zlib'
const reader = async ({ hex }) => {
  if (hex === 'ff') throw new RangeError('no such byte')
  await promisify(unzip)(Buffer.from(hex, 'hex'))
}
await serve({ name: 'toy', version: '1' }, { 'decode-records': reader }, { library: 'toy', isRejection: () => false })
"""


def test_an_error_of_a_module_of_node_that_is_passed_on_names_its_line(tmp_path: Path) -> None:
    require_tool("node", TOOLS["node"])
    script = tmp_path / "toy.mjs"
    script.write_text(PASSES_ON % json.dumps(KIT.as_uri()))
    asked = [
        {"id": hex, "operation": "decode-records", "role": "consumer", "hex": hex} for hex in ("1f8b0900", "1f8b", "ff")
    ]
    lines = "".join(json.dumps(request) + "\n" for request in asked)
    done = subprocess.run(["node", str(script)], input=lines, capture_output=True, text=True, timeout=60, check=True)
    _, garbage, cut, other = map(json.loads, done.stdout.splitlines())
    assert garbage["error"] != cut["error"]
    assert garbage["at"] == cut["at"]
    assert garbage["at"].startswith("node:zlib:")
    assert "at" not in other
