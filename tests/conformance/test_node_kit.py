"""The kit of the testees in JavaScript hides no error."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from conftest import require_tool

KIT = Path(__file__).resolve().parents[2] / "testees" / "node" / "kfuzz_testee.mjs"

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


def answered(folder: Path, program: str, asked: Iterable[dict[str, Any]], kit: Path = KIT) -> tuple[list[Any], str]:
    """The answers of a program with the kit, its first line in front, and its standard error."""
    node = require_tool("node", "install Node 20")
    script = folder / "testee.mjs"
    script.write_text(program % json.dumps(kit.as_uri()))
    text = "".join(json.dumps(one) + "\n" for one in asked)
    done = subprocess.run([node, str(script)], input=text, capture_output=True, text=True, timeout=60, check=True)
    return list(map(json.loads, done.stdout.splitlines())), done.stderr


def test_a_promise_that_nothing_can_settle_is_stalled_and_the_next_request_is_answered(tmp_path: Path) -> None:
    asked = [
        {"id": str(i), "operation": "decode-records", "hex": text} for i, text in enumerate(["00", "00", "ff", ""])
    ]
    (_, *answers), said = answered(tmp_path, WRAPPER, asked)
    assert [(one["id"], one["outcome"]) for one in answers] == [
        ("0", "stalled"),
        ("1", "stalled"),
        ("2", "fault"),
        ("3", "accepted"),
    ]
    assert answers[2]["error"] == "RangeError: no such byte"
    assert said.count("a library may print") == 4


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
    asked = [
        {"id": hex, "operation": "decode-records", "role": "consumer", "hex": hex} for hex in ("1f8b0900", "1f8b", "ff")
    ]
    (_, garbage, cut, other), _ = answered(tmp_path, PASSES_ON, asked)
    assert garbage["error"] != cut["error"]
    assert garbage["at"] == cut["at"]
    assert garbage["at"].startswith("node:zlib:")
    assert "at" not in other


DRIVES = """
import { drive } from %s
const open = async ({ topic, offset }, inbox) => {
  if (topic === 'cannot start') throw new TypeError('no broker')
  for (let i = 0; i < 2; i++) inbox.put({ offset: String(Number(offset) + i) })
  if (topic === 'fails') inbox.fail(new AggregateError([new Error('wraps', { cause: new RangeError('first') })], 'all'))
  if (topic === 'repeats') {
    let room
    while (!room) room = inbox.put({ offset: '7' })
    room.then(() => inbox.put({ offset: '8' }))
  }
  return { close: () => console.log('closed'), commit: () => console.log('committed') }
}
const send = async (records, topic) => { if (records.length) return ['5']; throw new RangeError(`nothing to ${topic}`) }
const producing = async (request, use) => { await use(send) }
const about = { library: 'toy', isRejection: error => error instanceof AggregateError }
await drive({ version: '7' }, { open, producing }, about)
"""


def test_a_driver_hands_out_records_then_the_error_and_holds_back_a_consumer_that_repeats(tmp_path: Path) -> None:
    def asked(topic: str, *polls: int) -> list[dict[str, object]]:
        polled = [{"do": "poll", "timeout_ms": timeout_ms} for timeout_ms in polls]
        return [{"do": "open", "topic": topic, "offset": "5"}, *polled, {"do": "close"}]

    several = {"do": "produce", "topics": ["u", "t", "u"], "records": [1, 2], "sends": [1, 0, 1]}
    lines = [
        *asked("reads", 0, 5)[:-1],
        *({"do": "commit"}, {"do": "close"}),
        *asked("fails", 10_000, 10_000, 10_000),
        *asked("cannot start", 10_000),
        *asked("repeats", 0, 10_000),
        *({"do": "produce", "topic": "t", "records": records} for records in ([1, 2], [])),
        *({**several, "at_once": at_once} for at_once in (False, True)),
    ]
    (hello, *answers), said = answered(tmp_path, DRIVES, lines, KIT.with_name("kfuzz_driver.mjs"))
    assert hello == {"version": "7"}
    two = {"records": [{"offset": "5"}, {"offset": "6"}]}
    failed = {"outcome": "rejected", "error": "AggregateError: all (RangeError: first)"}
    nothing = {"outcome": "fault", "error": "RangeError: nothing to t"}
    repeated = answers.pop(14)
    assert len(repeated["records"]) == 1000
    assert answers == [
        *({}, two, {"records": []}, {}, {}),
        *({}, two, failed, failed, {}),
        *[{"outcome": "fault", "error": "TypeError: no broker"}] * 2,
        {},
        *({}, {"records": [{"offset": "8"}]}, {}),
        *({"offsets": ["5"]}, nothing),
        *[{"sends": [{"offsets": ["5"]}, nothing, {"offsets": ["5"]}]}] * 2,
    ]
    assert (said.count("closed"), said.count("committed")) == (3, 1)
