"""A real broker's answers against what a vector expects: contradictions are found, and cells hold all that was said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mini_suite
import pytest

from kfuzz.kafka import BROKER_RELEASE, LATEST, RELEASES
from kfuzz.vectors import Vector, load_suite
from kfuzz.vectors.confirm import contradiction, step_contradiction, with_broker
from kfuzz.vectors.linting import lint

STREAM = "stream/sequence/gap-of-one"
GAP = "OUT_OF_ORDER_SEQUENCE_NUMBER"

Json = dict[str, Any]


def stream() -> Vector:
    (vector,) = load_suite(STREAM, kinds=["stream"])
    return vector


def answers(**changed: str) -> list[Json]:
    """The answers of a broker that agrees to the two steps of ``STREAM``; ``changed`` in the second."""
    taken = {"outcome": "accepted", "error": "NONE", "base_offset": "0", "last_stable_offset": "2"}
    return [taken, {**taken, "outcome": "rejected", "error": GAP, "base_offset": "-1"} | changed]


def judged(verdict: str) -> Vector:
    """A vector with that verdict for a broker, which stores it with leader epoch 0."""
    (vector,) = load_suite("records/v2/count/of-2")
    expect = dict(vector.expect["consumer"], verdict=verdict)
    return Vector(**{name: getattr(vector, name) for name in Vector.__slots__} | {"expect": {"broker": expect}})


def test_a_refusal_contradicts_valid_and_an_acceptance_invalid() -> None:
    refused = {"outcome": "rejected", "error": "INVALID_RECORD"}
    assert contradiction(judged("valid"), refused, "broker") == (
        "it is valid, but Kafka's answer is rejected: INVALID_RECORD"
    )
    assert contradiction(judged("invalid"), refused, "broker") is None
    assert contradiction(judged("acceptable"), refused, "broker") is None
    assert contradiction(judged("invalid"), {"outcome": "accepted"}, "broker") == (
        "it is invalid, but Kafka accepts it"
    )
    assert contradiction(judged("valid"), {"outcome": "accepted"}, "broker") is None


def test_stored_batches_must_be_the_expected_ones() -> None:
    vector = judged("valid")
    stored = [dict(batch, base_offset="7") for batch in vector.expect["broker"]["batches"]]
    assert contradiction(vector, {"outcome": "accepted", "batches": stored}, "broker") == (
        "batches[0].base_offset is '7'; expected '0'"
    )


def test_a_stream_is_compared_step_by_step() -> None:
    assert step_contradiction(stream(), answers()) is None


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"outcome": "accepted"}, "steps[1].accepted is True; expected False"),
        ({"error": "INVALID_PRODUCER_EPOCH"}, f"steps[1].error is 'INVALID_PRODUCER_EPOCH'; expected '{GAP}'"),
        ({"last_stable_offset": "4"}, "steps[1].last_stable_offset is '4'; expected '2'"),
    ],
)
def test_a_step_of_a_stream_can_contradict(changed: Json, text: str) -> None:
    assert step_contradiction(stream(), answers(**changed)) == text


def test_a_cell_holds_what_the_broker_says_now_and_nothing_older() -> None:
    document = mini_suite.document()
    names = [item["id"] for item in document["vectors"]]
    said = {names[0]: {"produce": "accepted", "recovery": "kept"}}
    readers = ("consumer", "broker", "log")

    def of_readers(cells: list[Json]) -> list[Json]:
        return [
            {name: {role: said for role, said in cell.items() if role in readers} for name, cell in one.items()}
            for one in cells
        ]

    before = [{name: cell for name, cell in item["kafka"].items() if name in RELEASES} for item in document["vectors"]]
    document["vectors"][1]["kafka"]["4.3.1"] = {"produce": "fault", "error": "NONE", "recovery": "aborts"}
    after = [item["kafka"] for item in with_broker(document, BROKER_RELEASE, said)["vectors"]]
    assert of_readers(after) == of_readers(before)
    told = [{name: said for name, said in one[BROKER_RELEASE].items() if name not in readers} for one in after]
    assert told == [said[names[0]], *[{}] * (len(names) - 1)]


def _without_recovery(document: mini_suite.Document) -> None:
    del document["vectors"][0]["kafka"][BROKER_RELEASE]["recovery"]


def _refused_though_valid(document: mini_suite.Document) -> None:
    valid = next(item for item in document["vectors"] if item["id"].endswith("/of-2"))
    valid["expect"]["broker"] = valid["expect"]["consumer"]
    valid["kafka"][LATEST]["broker"] = "accepted"
    valid["kafka"][BROKER_RELEASE] |= {"produce": "rejected", "error": "INVALID_RECORD", "recovery": "kept"}


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (_without_recovery, f"the real broker {BROKER_RELEASE} was not asked; run `kfuzz vectors build --broker`"),
        (_refused_though_valid, f"the answer of the real broker {BROKER_RELEASE} is rejected, but the vector is valid"),
    ],
)
def test_lint_finds_a_cell_that_is_missing_or_contradicts(spoil: Any, text: str, tmp_path: Path) -> None:
    assert [problem.text for problem in lint(mini_suite.write(tmp_path, spoil))] == [text]
