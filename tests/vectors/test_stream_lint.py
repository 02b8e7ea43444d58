"""Lint of streams: their steps speak of the same roles, and of each Kafka has said what the steps say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfuzz.kafka import KAFKA_3, LATEST
from kfuzz.vectors.building import canonical_json
from kfuzz.vectors.linting import lint
from kfuzz.vectors.model import default_root, load_suite

FILE = "stream/sequence.json"
KEPT = ("goes-on", "gap-of-one", "unknown-producer-at-seven")

Document = dict[str, Any]


def problems(root: Path, spoil: Callable[[dict[str, Document]], Any]) -> list[str]:
    """Lint's problems with a suite of three streams, after ``spoil`` had its way with them, by their last word."""
    document = json.loads((default_root() / FILE).read_bytes())
    vectors = {vector["id"].rpartition("/")[2]: vector for vector in document["vectors"]}
    document |= {"flags": {}, "vectors": [vectors[name] for name in sorted(KEPT)]}
    spoil(vectors)
    path = root / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(canonical_json(document))
    (root / "ids.txt").write_text("".join(f"stream/sequence/{name}\n" for name in sorted(KEPT)))
    shutil.copy(default_root() / "requirements.json", root)
    return [str(problem) for problem in lint(root)]


def test_streams_as_they_are_committed_are_clean(tmp_path: Path) -> None:
    assert problems(tmp_path, lambda vectors: None) == []


DEFECTS: dict[str, tuple[Callable[[dict[str, Document]], Any], str]] = {
    "not-asked": (lambda v: v["goes-on"]["kafka"].pop(LATEST), f"goes-on: Kafka {LATEST} as broker was not asked"),
    "accepts-invalid": (
        lambda v: v["gap-of-one"]["kafka"][KAFKA_3].update(broker="accepted"),
        f"gap-of-one: the answer of Kafka {KAFKA_3} as broker is accepted, which contradicts its steps",
    ),
    "refuses-valid": (
        lambda v: v["goes-on"]["kafka"][LATEST].update(broker="rejected"),
        f"goes-on: the answer of Kafka {LATEST} as broker is rejected, which contradicts its steps",
    ),
    "roles-differ": (
        lambda v: v["goes-on"]["steps"][1].update(
            expect={"log": {"records": [], "next_offset": "0", "verdict": "valid"}}
        ),
        "goes-on: its steps have expectations for different roles",
    ),
    "finding-unknown": (
        lambda v: v["gap-of-one"]["steps"][1]["expect"]["broker"].update(finding="no-such-finding"),
        "gap-of-one: the finding no-such-finding is unknown",
    ),
    "rejected-but-valid": (
        lambda v: v["gap-of-one"]["steps"][1]["expect"]["broker"].update(verdict="valid"),
        "vectors[0].steps[1].expect.broker",
    ),
    "appended-without-offset": (
        lambda v: v["goes-on"]["steps"][0]["expect"]["broker"].pop("base_offset"),
        "'base_offset' is a required property",
    ),
    "isolation-unknown": (lambda v: v["goes-on"].update(isolation="serializable"), "'serializable' is not one of"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_in_a_stream_is_found(defect: str, tmp_path: Path) -> None:
    spoil, sentence = DEFECTS[defect]
    found = problems(tmp_path, spoil)
    assert any(sentence in problem for problem in found), found


def test_kafka_three_need_not_know_versions_of_transactions(tmp_path: Path) -> None:
    def of_version_two(vectors: dict[str, Document]) -> None:
        vectors["goes-on"]["kafka"].pop(KAFKA_3)
        vectors["goes-on"]["transaction_version"] = 2

    assert problems(tmp_path, of_version_two) == []


def test_both_sides_of_every_rule_of_a_broker_have_a_stream() -> None:
    steps = [
        step["expect"]["broker"]
        for vector in load_suite("stream/*", kinds=("stream",))
        for step in vector.steps
        if "broker" in step["expect"]
    ]
    outcomes = {step["outcome"] for step in steps}
    errors = {step["error"] for step in steps if "error" in step}
    assert outcomes == {"appended", "duplicate", "rejected"}
    assert errors == {
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_TXN_STATE",
        "TRANSACTION_COORDINATOR_FENCED",
        "INVALID_RECORD",
        "UNKNOWN_SERVER_ERROR",
    }
