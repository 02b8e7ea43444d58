"""aiokafka, kafka-python and the README's example over the testee protocol."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hand_made import V2, V2_HOLDS, VALID, of_magic_2, record
from testee_driver import TESTEES, RunningTestee, running, started


@pytest.fixture(scope="module", params=["aiokafka", "kafka-python"])
def testee(request: pytest.FixtureRequest) -> Iterator[RunningTestee]:
    with running(request.param) as started_testee:
        yield started_testee


def told(answer: dict[str, Any], holds: dict[str, Any]) -> dict[str, Any]:
    """Of what the batch holds, the part that the answer's only batch speaks of."""
    (found,) = answer["batches"]
    assert found.keys() >= {"records"}
    return {field: holds[field] for field in found}


def test_the_handshake_names_the_installed_library_and_its_codecs(testee: RunningTestee) -> None:
    assert testee.handshake["protocol"] == "kfuzz-testee/1"
    assert testee.handshake["name"] in ("aiokafka", "kafka-python")
    assert re.match(r"\d+\.\d+", testee.handshake["version"])
    assert set(testee.handshake["codecs"]) >= {"none", "gzip"}


@pytest.mark.parametrize("name", VALID)
def test_a_valid_batch_is_read_as_it_is(testee: RunningTestee, name: str) -> None:
    data, holds = VALID[name]
    answer = testee.decode(data)
    assert answer["outcome"] == "accepted"
    assert answer["batches"] == [told(answer, holds)]
    assert answer.get("consumed", len(data)) == len(data)


def test_several_batches_are_read_in_order(testee: RunningTestee) -> None:
    answer = testee.decode(V2 + VALID["v2-commit"][0])
    assert [b["records"] for b in answer["batches"]] == [V2_HOLDS["records"], VALID["v2-commit"][1]["records"]]


@pytest.mark.parametrize("name", VALID)
def test_a_wrong_crc_is_rejected(testee: RunningTestee, name: str) -> None:
    data = VALID[name][0]
    answer = testee.decode(data[:-1] + bytes([data[-1] ^ 1]))
    assert answer["outcome"] == "rejected"
    assert "Corrupt" in answer["error"]
    assert "batches" not in answer


def test_good_batches_before_a_bad_one_are_reported(testee: RunningTestee) -> None:
    answer = testee.decode(V2 + V2[:-1] + b"\x7f")
    assert answer["outcome"] == "rejected"
    assert answer["batches"] == [told(answer, V2_HOLDS)]


@pytest.mark.parametrize("cut", [1, len(V2) - 61, len(V2) - 13])
def test_a_partial_tail_is_accepted_without_its_batch(testee: RunningTestee, cut: int) -> None:
    answer = testee.decode(V2 + V2[:-cut])
    assert answer["outcome"] == "accepted"
    assert len(answer["batches"]) == 1
    assert answer.get("consumed", len(V2)) == len(V2)


def test_no_bytes_are_no_batches(testee: RunningTestee) -> None:
    assert testee.decode(b"")["batches"] == []


def test_an_error_that_the_library_does_not_document_is_a_fault(testee: RunningTestee) -> None:
    answer = testee.decode(of_magic_2(b"not gzip", count=1, attributes=1))
    assert answer["outcome"] == "fault"
    assert answer["error"].startswith("BadGzipFile")


def test_an_unknown_codec_is_rejected_by_the_documented_error(testee: RunningTestee) -> None:
    answer = testee.decode(of_magic_2(V2[61:], count=3, attributes=5))
    assert answer["outcome"] == "rejected"
    assert answer["error"].startswith("UnsupportedCodecError")


def test_a_consumer_library_is_no_broker(testee: RunningTestee) -> None:
    assert testee.ask(operation="decode-records", role="broker")["outcome"] == "unsupported"


HEADER_KEYS = """
import sys
sys.path.append({folder!r})
import kfuzz_testee

def read(data):
    keys = ["text", b"text", b"\\xff", b"a\\xc3".decode("utf-8", "surrogateescape"), "\\ufffd", "\\ud800"]
    yield {{"records": [kfuzz_testee.record_json(0, 0, None, None, [(key, None) for key in keys])]}}, None

kfuzz_testee.serve({{"name": "toy", "version": "1", "roles": ["consumer"], "magic": [2], "codecs": ["none"]}}, read, ())
"""


def test_a_header_key_that_is_not_utf8_is_reported_in_hex(tmp_path: Path) -> None:
    script = tmp_path / "keys.py"
    script.write_text(HEADER_KEYS.format(folder=str(TESTEES / "python")))
    with started([sys.executable, str(script)], tmp_path) as toy:
        (batch,) = toy.decode(V2)["batches"]
    keys = [key for key, _ in batch["records"][0]["headers"]]
    assert keys == ["text", "text", {"hex": "ff"}, {"hex": "61c3"}, "\ufffd", {"hex": "eda080"}]


def test_the_example_in_the_readme_is_a_working_testee(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (TESTEES / "README.md").read_text(), flags=re.DOTALL)
    script = tmp_path / "mine.py"
    script.write_text(example)
    with started([sys.executable, str(script)], tmp_path) as mine:
        assert mine.handshake["protocol"] == "kfuzz-testee/1"
        answer = mine.decode(V2 + V2[:-1])
        assert answer["batches"] == [told(answer, V2_HOLDS)]
        assert mine.decode(of_magic_2(V2[61:], count=4))["outcome"] == "rejected"
        assert mine.decode(of_magic_2(bytes.fromhex("0c 00 0a 02 01 00 00"), count=1))["batches"] == [
            {"base_offset": "7", "records": [record(8, timestamp="1700000000005", key=None, value="")]}
        ]
