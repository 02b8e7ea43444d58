"""Two results are compared: versions of one library by their outcomes, and only what both of them answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz
from made_results import made_result

from kfuzz.conformance import report
from kfuzz.conformance.judge.compare import Case, cases_of
from kfuzz.conformance.judge.matrix import Run
from kfuzz.errors import UsageError
from kfuzz.vectors import load_suite

VECTORS = load_suite("records/v2/count/*")
CASES = cases_of(VECTORS)[:60]

Document = dict[str, Any]


def result(*labels: str, cases: list[Case] = CASES) -> Document:
    """A result of made-up implementations; the faults of each depend on its name alone."""
    document = made_result(cases, ["library@1.0", "perfect@1.0"])
    [cells] = [[case["cells"]["library@1.0"] for case in document["cases"]]]
    [testee, _] = document["testees"]
    for cell in cells:
        # Lines move from version to version.
        if at := cell.get("answer", {}).get("at"):
            cell["answer"]["at"] = at.replace(".go:", f".go:{len(labels[0])}")
    document["testees"] = [
        testee | {"label": label, "name": label.partition("@")[0], "version": label.partition("@")[2]}
        for label in labels
    ]
    for case, cell in zip(document["cases"], cells, strict=True):
        case["cells"] = {label: json.loads(json.dumps(cell)) for label in labels}
    return document


def run_of(document: Document) -> Run:
    return report.from_json(document, VECTORS)


def compared(old: Document, new: Document) -> list[str]:
    return report.changes(run_of(old), run_of(new)).sentences()


def failing(document: Document) -> tuple[str, Document]:
    """The first case that fails: its id, and its cells."""
    return next(
        (case["id"], case["cells"])
        for case in document["cases"]
        if case["role"] == "consumer" and next(iter(case["cells"].values()))["outcome"] == "fail"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("kafka-go-reader@0.4.30",), ("kafka-go-reader@0.4.42",)),
        (("kafka-go-reader@0.4.30",), ("kafka-go-reader@path",)),
        (("library@1.0", "other@2.0"), ("library@10.0-beta", "other@2.0")),
        (("library@1.0", "library@1.1"), ("library@1.1", "library@1.2")),
        (("@scope/library@1.0",), ("@scope/library@1.1",)),
        # One is all that there is, so there is no doubt.
        (("library@1.0",), ("library-ng@2.0",)),
        (("library",), ("library@1.0",)),
    ],
)
def test_equal_outcomes_of_another_version_are_no_change(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    changes = report.changes(run_of(result(*old)), run_of(result(*new)))
    assert run_of(result(*old)).causes
    assert not changes
    assert changes.sentences()[-1] == "nothing changed"
    assert [note for note in changes.notes if " is compared with " in note] == [
        f"{one} is compared with {next(label for label in new if label not in old)}" for one in old if one not in new
    ]


def test_two_versions_in_one_result_are_two_causes_with_one_id() -> None:
    run = run_of(result("library@1.0", "library@1.1"))
    ids = [cause.id for cause in run.causes]
    assert len(run.causes) == 2 * len(set(ids)) == len({cause.key for cause in run.causes})
    assert {one["testee"] for one in report.to_json(run)["causes"]} == {"library@1.0", "library@1.1"}
    # Each has a row of its own in the page, which its links open.
    page = report.to_html(run)
    assert len(set(page.split('id="cause-')[1:])) == len(ids)
    assert all(page.count(f'id="cause-{one}"') == page.count(f'id="cause-{one}-2"') == 1 for one in ids)


def test_an_outcome_that_changed_within_a_cause_is_named() -> None:
    new = result("library@1.1")
    id, cells = failing(new)
    cells["library@1.1"] = {"outcome": "pass", "standing": "ok"}
    changes = report.changes(run_of(result("library@1.0")), run_of(new))
    [(before, after, [change])] = changes.moved
    assert (str(change), before.count) == (f"{id} was fail, is pass", after.count + 1)
    assert f"  {change}" in changes.sentences()
    assert changes.to_json()["moved"][0]["outcomes"] == [{"id": id, "role": "consumer", "old": "fail", "new": "pass"}]


def test_an_outcome_without_a_cause_is_a_change() -> None:
    new = result("library@1.1")
    old = result("library@1.0")
    id = new["cases"][0]["id"]
    old["cases"][0]["cells"] = {"library@1.0": {"outcome": "pass", "standing": "ok"}}
    new["cases"][0]["cells"] = {"library@1.1": {"outcome": "unsupported", "standing": "ok", "text": "no longer"}}
    changes = report.changes(run_of(old), run_of(new))
    assert changes
    assert changes.sentences()[-3:-1] == [
        "library@1.1: 1 other outcome without a cause",
        f"  {id} was pass, is unsupported",
    ]
    assert changes.to_json()["others"][0]["testee"] == "library@1.1"


def withheld(document: Document) -> None:
    for case in document["cases"]:
        for label, cell in case["cells"].items():
            if cell["outcome"] != "pass":
                case["cells"][label] = {"outcome": "withheld", "standing": "listed"}


def fewer(document: Document) -> None:
    del document["cases"][::2]


def unknown(document: Document) -> None:
    for case in document["cases"][::2]:
        case["id"] = f"records/old/{case['id'].rpartition('/')[2]}"


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (withheld, "left out, because a result has no outcome (not asked, or withheld)"),
        (fewer, "questions only in the newer result, not compared: "),
        (unknown, "not in this suite, left out: records/old/"),
        (lambda document: document.update(kfuzz="0.0.9"), "kfuzz 0.0.9 judged "),
    ],
)
def test_a_part_that_one_result_lacks_is_left_out_with_a_note(
    tmp_path: Path, change: Callable[[Document], None], note: str
) -> None:
    old, new = result("library@1.0"), result("library@1.0")
    change(old)
    for name, document in (("old", old), ("new", new)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    done = kfuzz("report", tmp_path / "old.json", tmp_path / "new.json")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "nothing changed")
    assert note in done.stdout


def test_a_testee_that_only_one_result_has_is_a_sentence_and_no_cause() -> None:
    old, new = result("library@1.0", "gone@1", "ends@1"), result("library@1.0", "new@1", "ends@1")
    new["testees"][-1]["broken"] = "no handshake"
    sentences = [
        "ends@1 could not be asked in the newer result: no handshake",
        "gone@1 is only in the older result, and is not compared",
        "new@1 is only in the newer result, and is not compared",
    ]
    changes = report.changes(run_of(old), run_of(new))
    assert (bool(changes), changes.sentences()[:-1]) == (True, sentences)


def test_results_with_nothing_in_common_are_refused() -> None:
    one, two = result("a@1", "b@1"), result("c@1", "d@1")
    with pytest.raises(UsageError, match="nothing in common: one is about a@1, b@1, the other about c@1, d@1"):
        compared(one, two)
    with pytest.raises(UsageError, match="nothing in common"):
        compared(result("a@1", cases=CASES[:5]), result("a@1", cases=CASES[5:]))
