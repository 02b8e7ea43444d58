"""The one report of differences: what a person is told, what is kept, and the JSON document."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfuzz.conformance.differential.found import Asked, Differential
from kfuzz.conformance.judge.causes import Deviation
from kfuzz.conformance.protocol.peer import Question
from kfuzz.conformance.report.differences import keep, sentences, to_json
from kfuzz.errors import UsageError


def found_in_messages() -> Differential:
    made = Differential("toy@1", of="message", setting="in 3 versions", inputs=17, rule_names=("counts",))
    made.agreements += Counter(decoded=11, encoded=1)
    made.rules["counts"] = 2
    for i in range(2):
        reason = f"Fetch {i}: other bytes"
        made.add(Question({"hex": f"0{i}"}, Asked(i, None)), {}, reason=reason, error=reason, harm="differs")
    made.add(
        Question({"hex": "02"}, Asked(2, None)),
        {},
        reason="Fetch 2: other bytes",
        error="other bytes",
        harm="accepts",
        finding="too-long",
    )
    return made


def input_of(index: int, role: str, answer: dict[str, Any]) -> Deviation:
    found, words = Differential("toy@1"), "other contents"
    question = Question({"role": role, "hex": f"0{index}"}, Asked(index, None))
    found.add(question, answer, reason=words, error=words, harm="differs")
    return found.deviations[0]


def test_a_difference_is_reported_and_kept_as_the_request_that_shows_it(tmp_path: Path) -> None:
    found = found_in_messages()
    files = keep(found, tmp_path, seed=5)
    # The smallest input of each cause.
    assert [file.name for file in files] == [f"seed-5-message-{i}.json" for i in (2, 0)]
    assert files[1].read_text() == '{\n  "hex": "00",\n  "id": "message"\n}\n'
    assert sentences(found, files, seed=5, shown=2) == [
        "accepts what Kafka refuses: too-long: other bytes (1 message)",
        f"  message 2 of seed 5: Fetch 2: other bytes ({files[0]})",
        "differs where either is allowed: Fetch 0: other bytes (2 messages)",
        f"  message 0 of seed 5: Fetch 0: other bytes ({files[1]})",
        "2 under the rule: counts",
        "toy@1 in 3 versions, seed 5: 12 of 17 messages agree (11 decoded, 1 encoded), 3 differ",
    ]


def test_an_input_of_records_is_kept_as_its_bytes_beside_what_the_testee_made_of_it(tmp_path: Path) -> None:
    answer = {"outcome": "fault", "error": "x", "batches": []}
    found = Differential("toy@1", setting="as log", inputs=2)
    found.deviations += [
        input_of(1, "consumer", answer),
        replace(input_of(2, "log", answer), reason="too few contents", error="too few contents"),
    ]
    first, second = keep(found, tmp_path, seed=5)
    assert (first.name, first.read_bytes()) == ("seed-5-input-1.bin", b"\1")
    [cause, _] = found.causes
    assert json.loads(first.with_suffix(".json").read_text()) == {
        "testee": "toy@1",
        "outcome": "fault",
        "error": "x",
        "cause": replace(cause, deviations=(replace(cause.smallest, data=b"", request={}, answer={}),)).to_json(),
    }
    assert json.loads(second.with_suffix(".json").read_text())["role"] == "log"
    document = to_json(found, seed=5, files=[first, second])
    assert [(cause["file"], cause["kills"]) for cause in document["causes"]] == [(str(first), []), (str(second), [])]
    told = sentences(found, [first, second], seed=5, shown=1)
    assert told[0] == "differs where either is allowed: other contents (1 input)"
    assert told[1] == f"  input 1 of seed 5: other contents\n  01  ({first})"


def test_a_testee_that_was_started_again_is_reported(tmp_path: Path) -> None:
    found = Differential("toy@1", inputs=1, restarts=2, unconfirmed=1)
    assert sentences(found, keep(found, tmp_path, seed=5), seed=5, shown=9) == [
        "toy@1 was started again 2 times; no input alone explains 1 of them",
        "toy@1, seed 5: 0 of 1 inputs agree, 0 differ",
    ]


def test_the_document_has_the_bytes_of_records_and_the_requests_of_all_else() -> None:
    document = to_json(found_in_messages(), seed=5)
    assert document["deviations"][1] == {
        "index": 1, "reason": "Fetch 1: other bytes", "answer": {}, "request": {"hex": "01"},
    }  # fmt: skip
    assert [(cause["harm"], cause["smallest"]["id"], len(cause["cases"])) for cause in document["causes"]] == [
        ("accepts", "message 2", 1),
        ("differs", "message 0", 2),
    ]
    assert (document["of"], document["agreed"], document["rules"]) == ("message", 12, {"counts": 2})
    found = Differential("toy@1", deviations=[input_of(1, "log", {})])
    assert to_json(found, seed=5)["deviations"][0]["hex"] == "01"


def test_a_testee_that_supports_nothing_has_agreed_on_nothing() -> None:
    with pytest.raises(UsageError, match="toy@1 supports none of the 4 inputs"):
        Differential("toy@1", inputs=4, unsupported=4).require_support()
    Differential("toy@1", inputs=4, unsupported=3).require_support()
    assert not Differential("toy@1").failed
    assert Differential("toy@1", restarts=1).failed
