"""Texts and results of others: bounded, valid Unicode, harmless in every report, and never a traceback."""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli_driver import kfuzz, refused
from made_results import made_result
from referee_tools import make_vector, wicked, write_suite

from kfuzz.conformance.judge.compare import Case, cases_of, judge
from kfuzz.conformance.judge.expected import load
from kfuzz.conformance.protocol.lines import (
    DECODE,
    ELEMENTS_MAX,
    Handshake,
    ProtocolError,
    parse_answer,
    parse_handshake,
)
from kfuzz.conformance.report import disclosure, from_json
from kfuzz.errors import UsageError
from kfuzz.text import FOREIGN_BYTES_MAX
from kfuzz.vectors import load_suite

TEXTS = ("surrogate", "terminal", "lines", "markup", "long", "quotes", "names")
# Characters that must not reach a terminal or a file as they are. Tables and JSON have line breaks of their own.
CONTROLS = {chr(code) for code in (*range(32), *range(0x7F, 0xA0), 0x202E)} - {"\n"}


def is_harmless(text: str) -> bool:
    return not CONTROLS & set(text) and text.encode("utf-8") is not None


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the reports on a testee whose texts are hostile."""
    folder = tmp_path_factory.mktemp("spoken")
    suite = write_suite(folder / "vectors", [{"id": f"toy/trap-{name}"} for name in TEXTS])
    files = [word for name in ("json", "html", "junit") for word in (f"--{name}", folder / f"out.{name}")]
    done = kfuzz("conform", "--vectors", suite, "--command", shlex.join(wicked("speaks")), *files, "--causes", "99")
    (folder / "out.terminal").write_text(done.stdout + done.stderr)
    assert done.returncode == 1, done.stderr
    return folder


@pytest.mark.parametrize("name", ["json", "junit", "terminal", "html"])
def test_hostile_texts_are_harmless_in_each_report(spoken: Path, name: str) -> None:
    text = (spoken / f"out.{name}").read_text()
    assert is_harmless(text if name != "html" else text.partition("<script>")[0])
    assert "<script>alert" not in text or name in ("json", "terminal")
    assert "AAAA" in text
    assert "A" * (FOREIGN_BYTES_MAX + 1) not in text


def test_the_reports_on_hostile_texts_are_well_formed(spoken: Path) -> None:
    document = json.loads((spoken / "out.json").read_text())
    cells = [cell for case in document["cases"] for cell in case["cells"].values()]
    assert len(cells) == len(TEXTS)
    assert all(len(cell["text"].encode()) < 2 * FOREIGN_BYTES_MAX for cell in cells)
    assert len(ElementTree.parse(spoken / "out.junit").findall(".//failure")) == len(TEXTS)


def test_a_kept_result_with_hostile_texts_becomes_every_form_again(spoken: Path, tmp_path: Path) -> None:
    words = ["report", spoken / "out.json", "--vectors", spoken / "vectors"]
    done = kfuzz(
        *words, "--html", tmp_path / "a.html", "--junit", tmp_path / "a.xml", "--disclose", tmp_path / "told", code=1
    )
    assert is_harmless(done.stdout + done.stderr)
    reports = sorted(tmp_path.glob("told/*/*/report.md"))
    assert reports
    assert all(is_harmless(file.read_text()) for file in reports)
    assert kfuzz(*words, spoken / "out.json").stdout == "nothing changed\n"


@pytest.mark.parametrize("what", ["records", "streams"])
def test_a_differential_with_a_hostile_testee_is_reported(tmp_path: Path, what: str) -> None:
    command = shlex.join(wicked("speaks", "always"))
    out = ["--out", tmp_path, "--json", tmp_path / "found.json"]
    done = kfuzz("differential", "--what", what, "--command", command, "--count", "6", *out, code=1)
    assert is_harmless(done.stdout + done.stderr)
    assert json.loads((tmp_path / "found.json").read_text())["deviations"]


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ('"batches":[' + "{}," * ELEMENTS_MAX + "{}]", "elements; at most 2000000 are allowed"),
        ('"message":' + '{"a":' * 90 + "1" + "}" * 90, "nested deeper than 64 levels"),
        ('"value":' + "[" * 100_000, "nested deeper than 64 levels"),
        ('"consumed":' + "1" * 5000, "a number with too many digits"),
        ('"message":{"' + "a" * 1_000_000 + '":[NaN]}', "Infinity"),
    ],
    ids=["elements", "objects", "lists", "digits", "name"],
)
def test_an_answer_that_only_costs_is_a_protocol_error(fields: str, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        parse_answer(f'{{"id":"a","outcome":"accepted",{fields}}}'.encode(), id="a", operation=DECODE)


@pytest.mark.full
def test_the_largest_answer_of_the_suite_is_allowed() -> None:
    # records/v2/bomb/records-131071
    record = '{"offset":"0","timestamp":null,"key":null,"value":null,"headers":[]}'
    line = '{"id":"a","outcome":"accepted","records":[' + ",".join([record] * 131_071) + "]}"
    assert len(parse_answer(line.encode(), id="a", operation=DECODE).records or ()) == 131_071


def test_texts_are_bounded_and_contents_are_not() -> None:
    text, key = "\ud800" * 9000, "k\ud800" * 9000
    record = {"offset": "0", "timestamp": None, "key": None, "value": None, "headers": [[key, None]]}
    step = {"outcome": "rejected", "error": text}
    line = {"id": "a", "outcome": "rejected", "error": text, "at": text, "records": [record], "steps": [step]}
    answer = parse_answer(json.dumps(line).encode(), id="a", operation=DECODE)
    assert answer.records == [record]
    assert answer.steps is not None
    for taken in (answer.error, answer.at, answer.steps[0]["error"], answer.raw["error"]):
        assert len(taken.encode()) <= FOREIGN_BYTES_MAX


HANDSHAKE = Handshake("toy", "1", "c", frozenset({DECODE}), magic=frozenset({2}), codecs=frozenset({"none"}))


def test_half_a_pair_in_a_header_s_key_is_compared_as_its_bytes() -> None:
    record = {"offset": "0", "timestamp": None, "key": None, "value": None, "headers": [[{"hex": "61eda080"}, None]]}
    batch = {"magic": 2, "compression": "none", "control": False, "records": [record]}
    case = Case(make_vector("toy/half", expect={"consumer": {"verdict": "valid", "batches": [batch]}}), "consumer")

    def judged(key: str) -> tuple[str, str]:
        given = {"id": "a", "outcome": "accepted", "records": [{**record, "headers": [[key, None]]}]}
        cell = judge(case, HANDSHAKE, parse_answer(json.dumps(given).encode(), id="a", operation=DECODE))
        return cell.outcome, cell.text

    assert judged("a\ud800") == ("pass", "")
    assert judged("b\ud800") == ("fail", "records[0].headers[0].key is b\\ud800; expected {'hex': '61eda080'}")


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["..", "../x", "a/b", ".hidden", ""])
def test_no_handshake_has_a_name_that_leads_elsewhere(name: str) -> None:
    line = {"protocol": "kfuzz-testee/1", "name": name, "version": "1", "language": "c", "operations": []}
    with pytest.raises(ProtocolError, match="name is"):
        parse_handshake(json.dumps(line).encode())


def test_expected_outcomes_of_any_label_are_looked_up_in_their_folder_only(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("toy/one consumer fail  # a reason\n")
    folder = tmp_path / "expected"
    folder.mkdir()
    assert not load("../secret", folder, folder).exist


def test_each_label_has_a_folder_of_its_own_inside_the_one_that_was_named() -> None:
    labels = ["..", "../..", "a b@1", "a-b@1", "A-B@1", "a/b@1", "toy@1", "x" * 300, "x" * 301, "\u202e", ""]
    folders = disclosure._folder_names(labels)
    assert folders["toy@1"] == "toy@1"
    assert len({name.casefold() for name in folders.values()}) == len(labels)
    assert all("/" not in name and not name.startswith(".") and len(name) < 200 for name in folders.values())


# --- results --------------------------------------------------------------------------------------------------------

SUITE = load_suite("records/v2/count/*")
RESULT = made_result(cases_of(SUITE)[:3])
FIRST = RESULT["cases"][0]["cells"]["alpha@1.0"]


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document = copy.deepcopy(RESULT)
    change(document)
    return document


def with_answer(answer: dict[str, Any]) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["cases"][0]["cells"]["alpha@1.0"].update(answer=answer)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda document: document["cases"].append(document["cases"][0]), "is there twice"),
        (lambda document: document["testees"].append(document["testees"][0]), "two testees have the name"),
        (lambda document: document["cases"][0]["cells"].clear(), "some cases have no outcome of alpha@1.0"),
        (lambda document: document["cases"][0].update(id="x\x1b" * 9999), "the suite has no vector"),
        (lambda document: document["cases"][0].update(role="reader"), "has no question for the role reader"),
        (lambda document: document.update(cases=[None] * 100_000), "None is not of type 'object'"),
        (lambda document: document.update(testees="x" * 100_000), "is not of type 'array'"),
        (lambda document: document.update({"k" * 100_000: 1}), "Additional properties"),
        (with_answer({"batches": 5}), "an answer's batches is 5"),
        (with_answer({"records": [{}]}), "an answer's records\\[0\\] lacks offset"),
    ],
)
def test_a_hostile_result_is_one_sentence(change: Callable[[dict[str, Any]], object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        from_json(changed(change), SUITE)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, '{"a":' + "1" * 5000 + "}", "[" + "[]," * 6_000_000 + "1]", "\xff", '"\\ud800"', "{"],
    ids=["deep", "digits", "elements", "bytes", "surrogate", "cut"],
)
def test_a_file_that_is_no_result_is_one_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "foreign.json").write_bytes(content.encode("latin-1"))
    refused("report", tmp_path / "foreign.json")


def test_names_of_a_foreign_result_are_neither_markup_nor_paths(tmp_path: Path) -> None:
    name = "[/x]\x1b[2J\ud800"

    def rename(document: dict[str, Any]) -> None:
        for testee, new in zip(document["testees"], ("..", "../..", name), strict=False):
            old, testee["label"] = testee["label"], new
            testee["name"], testee["version"] = new, ""
            testee["stale"] = [name]
            for case in document["cases"]:
                case["cells"][new] = case["cells"].pop(old)

    file, told = tmp_path / "foreign.json", tmp_path / "told"
    file.write_text(json.dumps(changed(rename)))
    done = kfuzz(
        "report", file, "--disclose", told, "--html", tmp_path / "a.html", "--junit", tmp_path / "a.xml", code=1
    )
    assert is_harmless(done.stdout + done.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.xml", "foreign.json", "told"]
    assert list(told.glob("*/*/report.md"))
