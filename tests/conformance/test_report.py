"""Reports: well formed, self-contained, the same for the same run, and silent about what is withheld."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from referee_tools import SMALL_LIMITS, make_vector, wicked, write_suite
from rich.console import Console

from kfuzz.conformance import report
from kfuzz.conformance.judge.compare import Case, cases_of
from kfuzz.conformance.judge.expected import Seal, Standing
from kfuzz.conformance.judge.harm import HARMS
from kfuzz.conformance.judge.matrix import Places, Run, run
from kfuzz.conformance.judge.matrix import published as make_public
from kfuzz.conformance.protocol.testees import Testee, own
from kfuzz.errors import UsageError
from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.model import load_suite


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on the machine of somebody who may see everything."""
    return toy_run(toy_places(tmp_path_factory.mktemp("done")), publish=False)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same run, for everybody."""
    return toy_run(toy_places(tmp_path_factory.mktemp("published")), publish=True)


def toy_places(folder: Path) -> Places:
    """The expected outcomes of a toy run, in files of ``folder``."""
    places = Places(folder / "expected", folder / "embargo")
    places.expected.mkdir()
    places.embargo.mkdir()
    (places.expected / "dies@1.txt").write_text(
        f"{Seal.of('dies@1', {('toy/trap', 'consumer'): 'crash'})}\ntoy/fails/listed consumer fail  # issue 7\n"
    )
    (places.embargo / "dies@1.txt").write_text("toy/trap consumer crash  # the secret reason\n")
    return places


def toy_run(places: Places, *, publish: bool) -> Run:
    """A run with a pass, a listed failure, an unexpected crash, a withheld crash, a miss, and a broken testee."""
    vectors = [
        make_vector("toy/fails/listed", expect={"consumer": {"verdict": "invalid", "finding": "crc-mismatch"}}),
        make_vector("toy/fails/new", expect={"consumer": {"verdict": "invalid", "finding": "crc-mismatch"}}),
        make_vector("toy/passes/one", summary="<script>alert(1)</script> & more"),
        make_vector("toy/passes/two", b"\xff" * 40, layout=({"at": 8, "size": 4, "field": "length", "hostile": True},)),
        make_vector(
            "toy/recommended", b"", level="recommended", expect={"consumer": {"verdict": "invalid", "finding": "x"}}
        ),
        make_vector("toy/trap"),
    ]
    testees = [
        Testee("dies", "1", tuple(wicked("dies"))),
        Testee("rubbish", "1", tuple(wicked("rubbish", "text"))),
        Testee("broken", "1", ("/nonexistent/testee",)),
        Testee("absent", "1", ("absent",), requires=("no-such-program",)),
    ]
    cases = [Case(vector, "consumer") for vector in vectors]
    return run(testees, cases, places=places, whole=True, jobs=2, publish=publish, limits=SMALL_LIMITS)


SCHEMA = json.loads(resources.files("kfuzz.conformance.report").joinpath("report.schema.json").read_text())


def document_of(run: Run) -> Any:
    """The run as a reader of its JSON gets it, which keeps to the schema."""
    document = json.loads(json.dumps(report.to_json(run)))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


def page_of_kfuzz(cases: Sequence[Case], nowhere: Path, root: Path | None = None) -> str:
    """The page of a run of kfuzz's own decoder without a file of expected outcomes."""
    done = run([own()], cases, places=Places(nowhere, nowhere), whole=False, jobs=1)
    return report.to_html(done, root=root)


def test_the_schema_has_every_role_of_the_suite() -> None:
    roles = {case.role for case in cases_of(load_suite("*", kinds=KINDS))}
    assert roles <= set(SCHEMA["$defs"]["role"]["enum"])


def test_the_json_report_keeps_its_schema_and_says_what_happened(done: Run) -> None:
    document = document_of(done)
    assert document["failed"] is True
    assert document["dropped"] == ["absent@1 is left out: it needs no-such-program"]
    cells = {case["id"]: case["cells"]["dies@1"] for case in document["cases"]}
    assert cells["toy/passes/one"] == {"outcome": "pass", "standing": "ok"}
    assert cells["toy/fails/listed"]["standing"] == "listed"
    assert cells["toy/fails/new"]["standing"] == "unexpected"
    assert cells["toy/recommended"]["standing"] == "miss"
    assert cells["toy/trap"] == {
        "outcome": "crash",
        "standing": "listed",
        "harm": "kills",
        "text": "died of SIGSEGV: wild pointer",
        "reason": "the secret reason",
    }


def test_the_published_json_report_keeps_its_schema_and_withholds_the_crash(published: Run) -> None:
    document = document_of(published)
    cells = {case["id"]: case["cells"]["dies@1"] for case in document["cases"]}
    assert cells["toy/trap"] == {"outcome": "withheld", "standing": "listed"}
    assert document["testees"][0]["totals"]["withheld"] == 1
    assert "crash" not in document["testees"][0]["totals"]


def test_the_junit_report_fails_exactly_what_is_unexpected(done: Run) -> None:
    root = ElementTree.fromstring(report.to_junit(done))
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["dies@1", "rubbish@1", "broken@1"]
    failed = [test.get("name") for test in suites["dies@1"].iter("testcase") if test.find("failure") is not None]
    skipped = [test.get("name") for test in suites["dies@1"].iter("testcase") if test.find("skipped") is not None]
    assert failed == ["new [consumer]"]
    assert skipped == ["listed [consumer]", "recommended [consumer]", "trap [consumer]"]
    assert suites["dies@1"].get("failures") == "1"
    assert suites["broken@1"].get("failures") == "1"


def packs_of(text: str) -> dict[str, Any]:
    """The packs of data in a page or in the script of a site."""
    found = re.findall(r'<script type="application/octet-stream" id="pack-(.*?)">(.*?)</script>', text)
    found += re.findall(r'^kfuzzPack\("(.*?)","(.*?)"\)$', text, re.MULTILINE)
    return {name: json.loads(gzip.decompress(base64.b64decode(pack))) for name, pack in found}


def everything(text: str) -> str:
    """All that a page says, also in its packs."""
    return text + json.dumps(packs_of(text), ensure_ascii=False)


def files_of(directory: Path) -> dict[str, str]:
    return {path.relative_to(directory).as_posix(): path.read_text() for path in directory.rglob("*") if path.is_file()}


class Page(HTMLParser):
    """Collects what a browser would have to fetch, and checks that tags nest."""

    VOID = frozenset({"meta", "input", "br", "link", "img", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.open: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "data", "action", "srcset")]
        self.scripts += [tag] * (tag == "script")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_refers_to_nothing_outside_it(done: Run) -> None:
    text = report.to_html(done)
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.references
    assert all(reference.startswith("#") for reference in page.references)
    # The script may name the addresses of public threads, which only a click opens.
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest", text)
    assert len(page.scripts) - len(packs_of(text)) == 1, "what a vector or a testee says is never markup"
    assert "<script>alert(1)" not in text
    assert "<script>alert(1)" in everything(text)


def test_the_page_shows_every_question_with_its_bytes_and_answers(done: Run) -> None:
    packs = packs_of(report.to_html(done))
    core, themes = packs["core"], packs["core"]["themes"]
    names = [f"{themes[theme]}/{last}" for theme, last, *_ in core["vectors"]]
    assert [(names[number], role) for number, role, _ in core["cases"]] == [case.key for case in done.cases]
    number = names.index("toy/passes/two")
    shown = packs[f"theme-{themes.index('toy/passes')}"]["vectors"][str(number)]
    assert shown["hex"] == "ff" * 40
    assert [part[2:4] for part in shown["parts"] if str(part[-1]).startswith("trap")] == [[8, 4]]
    text = everything(report.to_html(done))
    assert "accepted bytes that must be refused (crc-mismatch)" in text
    assert "issue 7" in text


def test_the_page_says_first_who_gives_wrong_answers(done: Run) -> None:
    text = report.to_html(done)
    lead = re.sub(r"\s+", " ", re.sub("<.*?>", "", text[text.index('class="lead"') : text.index('class="harms"')]))
    assert "2 of 2 implementations give wrong answers" in lead
    assert "4 outcomes not as expected" in lead
    assert "broken@1 could not be asked: /nonexistent/testee cannot be started" in lead
    worst = re.findall(r'<td class="h-(.)"><a href="#impl=(.*?)&amp;family=toy"', text)
    assert worst == [("K", "dies@1"), ("P", "rubbish@1")], "the implementation with the worst class comes first"


def test_a_withheld_cell_counts_as_the_worst_harm(published: Run) -> None:
    text = report.to_html(published)
    worst = re.findall(r'<td class="h-(.)"><a href="#impl=(.*?)&amp;family=toy"', text)
    assert worst == [("W", "dies@1"), ("P", "rubbish@1")]
    assert packs_of(text)["core"]["harms"][0] == ["withheld", "W", "withheld"]


def test_a_run_without_faults_says_so(tmp_path: Path) -> None:
    cases = cases_of(load_suite("records/v2/count/negative-one"), ("consumer",))
    text = page_of_kfuzz(cases, tmp_path)
    assert "<strong>No answer is wrong.</strong>" in text


def test_the_page_of_a_suite_of_ones_own_explains_its_flags_and_kfuzz_s_requirements(tmp_path: Path) -> None:
    """Such a suite has no table of requirements, families or incidents."""
    root = write_suite(tmp_path / "vectors", [{"id": "toy/mine", "flags": ["Mine"]}])
    file = root / "records" / "toy.json"
    document = json.loads(file.read_text())
    document["flags"]["Mine"] = {
        "bug_type": "hang",
        "description": "My trap.",
        "effect": "It waits.",
        "links": ["mine #1"],
    }
    file.write_text(json.dumps(document))
    cases = cases_of(load_suite("*", root), ("consumer",))
    text = page_of_kfuzz(cases, tmp_path, root)
    words = packs_of(text)["words"]
    assert words["flags"] == {"Mine": ["hang", "My trap.", "It waits.", [["mine #1", ""]]]}
    assert list(words["requirements"]) == ["RB-LENGTH-1"]


def test_a_page_is_the_same_for_the_same_run(done: Run, tmp_path: Path) -> None:
    text = report.to_html(done)
    assert report.to_html(done) == text
    packs = re.findall(r'id="pack-.*?">(.*?)</script>', text)
    assert {base64.b64decode(pack)[4:8] for pack in packs} == {b"\0\0\0\0"}, "gzip's header has no time"
    for name in ("one", "two"):
        report.write_site(done, tmp_path / name)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def told_of(run: Run, folder: Path) -> list[str]:
    """All that each form of the report says."""
    report.write_site(run, folder)
    site = "\n".join(files_of(folder).values())
    return [
        json.dumps(report.to_json(run)),
        report.to_junit(run).decode(),
        everything(report.to_html(run)),
        everything(site),
    ]


def test_nothing_of_a_withheld_outcome_is_in_any_published_report(published: Run, tmp_path: Path) -> None:
    for text in told_of(published, tmp_path / "site"):
        assert "withheld" in text
        assert "SIGSEGV" not in text
        assert "wild pointer" not in text
        assert "secret" not in text
    assert not any("SIGSEGV" in sentence for sentence in report.sentences(published))


def test_a_local_report_shows_what_is_withheld_from_others(done: Run, tmp_path: Path) -> None:
    documents = told_of(done, tmp_path / "site")
    assert all("secret" in text for text in documents)
    assert all("withheld" not in text for text in documents[:2])


def test_a_published_result_does_not_say_what_a_line_under_embargo_expected(done: Run, tmp_path: Path) -> None:
    """The crash no longer happens; the reason still names it, and a clean clone does not know that line."""
    document = document_of(done)
    cells = next(case["cells"] for case in document["cases"] if case["id"] == "toy/trap")
    cells["dies@1"] = {
        "outcome": "fail",
        "standing": "unexpected",
        "harm": "loses",
        "text": "batch[0] has 0 records; expected 2",
        "reason": "a line expects crash; now it is fail",
    }
    places = toy_places(tmp_path)
    (places.embargo / "dies@1.txt").unlink()
    kept = report.from_json(document, [case.vector for case in done.cases])
    assert "a line expects crash" in everything(report.to_html(kept))
    public = make_public(kept, places)
    for text in told_of(public, tmp_path / "site"):
        assert "a line expects crash" not in text
        assert "issue 7" in text, "the reason of a public line is public"


@pytest.mark.parametrize("has_embargo", [True, False], ids=["with the embargo", "in a clean clone"])
def test_a_kept_result_is_published_as_a_published_run_would_be(done: Run, tmp_path: Path, has_embargo: bool) -> None:
    """A kept result has no word about what is public, so the committed files decide again."""
    places = toy_places(tmp_path)
    if not has_embargo:
        (places.embargo / "dies@1.txt").unlink()
    kept = report.from_json(document_of(done), [case.vector for case in done.cases])
    public = make_public(kept, places)
    assert public.testees[0].shown(("toy/trap", "consumer")) == "withheld"
    assert public.testees[0].shown(("toy/fails/listed", "consumer")) == "fail"
    for text in told_of(public, tmp_path / "site"):
        assert "withheld" in text
        assert not re.search("SIGSEGV|wild pointer|secret", text)


def test_the_published_page_does_not_name_lines_that_are_out_of_date(published: Run) -> None:
    """Such a line may be one under embargo."""
    stale = replace(published.testees[0], stale=("toy/old consumer is listed, but the suite does not ask it",))
    text = everything(report.to_html(replace(published, testees=(stale,))))
    assert "toy/old" not in text
    assert "dies@1: 1 line of expected outcomes out of date." in text


def test_a_new_crash_fails_a_published_run_without_being_named(published: Run, tmp_path: Path) -> None:
    """One that nobody has put under embargo yet, and the notes, which name vectors too."""
    judged = replace(
        published.testees[0],
        standings={**published.testees[0].standings, ("toy/trap", "consumer"): Standing("unexpected", "new", True)},
        notes=("a process died with 2 requests in flight, toy/trap first",),
    )
    run = replace(published, testees=(judged,))
    assert "dies@1: not as expected: 1 withheld outcome; run without --publish" in report.sentences(run)
    assert not any("toy/trap" in sentence for sentence in report.sentences(run))
    assert "in flight" not in json.dumps(report.to_json(run)) + everything(report.to_html(run))
    failures = ElementTree.fromstring(report.to_junit(run)).iterfind(".//failure")
    assert [failure.get("message") for failure in failures][-1] == "withheld"


def test_a_document_gives_the_same_run_again(done: Run) -> None:
    document = document_of(done)
    again = report.from_json(document, [case.vector for case in done.cases])
    assert report.to_json(again) == document
    assert report.to_junit(again) == report.to_junit(done)
    assert report.to_html(again) == report.to_html(done)
    assert not report.changes(done, again)


def test_a_document_of_another_suite_or_form_is_refused(done: Run) -> None:
    document = document_of(done)
    with pytest.raises(UsageError, match="the suite has no vector toy/fails/listed"):
        report.from_json(document, [])
    with pytest.raises(UsageError, match="not a report of"):
        report.from_json({"format": "kfuzz-report/1"}, [])


def test_changes_between_two_runs_are_causes(done: Run, tmp_path: Path) -> None:
    document = document_of(done)
    for case in document["cases"]:
        if case["id"] == "toy/trap":
            case["cells"]["dies@1"] = {"outcome": "pass", "standing": "ok"}
        if case["id"] == "toy/passes/one":
            case["cells"]["dies@1"] = {
                "outcome": "fail",
                "standing": "unexpected",
                "harm": "loses",
                "text": "batch[0] has 0 records; expected 2",
            }
    newer = report.from_json(document, [case.vector for case in done.cases])
    assert report.changes(done, newer).sentences() == [
        "new: dies@1 loses: batch[0] has 0 records; expected 2; 1 vector, smallest toy/passes/one",
        "gone: dies@1 kills: died of SIGSEGV: wild pointer; 1 vector, smallest toy/trap",
        "1 new, 1 gone, 0 with other vectors",
    ]


def test_causes_come_worst_first_and_count_each_deviation_once(done: Run) -> None:
    causes = done.causes
    ranks = [[harm.name for harm in HARMS].index(cause.harm) for cause in causes]
    assert ranks == sorted(ranks)
    inputs = [(one.implementation, one.input, one.role) for cause in causes for one in cause.deviations]
    assert len(set(inputs)) == len(inputs)
    deviating = [(testee.label, *key) for testee in done.testees for key, cell in testee.cells.items() if cell.harm]
    assert sorted(inputs) == sorted(deviating)
    assert {cause.harm for cause in causes if cause.smallest.implementation == "dies@1"} == {
        "kills",
        "accepts",
        "differs",
    }


def test_each_unexpected_outcome_is_one_sentence(done: Run) -> None:
    accepted = "fail: accepted bytes that must be refused (crc-mismatch)"
    # The testee rubbish has no file of expected outcomes, so no line is spoken of.
    assert report.sentences(done) == [
        f"dies@1: toy/fails/new consumer: {accepted} (no line expects this fail)",
        f"rubbish@1: toy/fails/listed consumer: {accepted}",
        f"rubbish@1: toy/fails/new consumer: {accepted}",
        "rubbish@1: toy/trap consumer: protocol-error: the answer is not a line of JSON: "
        "'Segmentation fault (just kidding)'; print nothing else on standard output",
        "broken@1: /nonexistent/testee cannot be started: No such file or directory",
    ]
    assert report.sentences(done, with_causes=False) == [
        "broken@1: /nonexistent/testee cannot be started: No such file or directory"
    ]


def test_the_page_says_what_roles_streams_and_topics_are_asked(tmp_path: Path) -> None:
    names = ("stream/isolation/interleaved-first-aborted", "records/framing/magic-3", "stream/sequence/gap-of-one")
    vectors = load_suite(names, kinds=KINDS)
    cases = cases_of(vectors, ("consumer", "broker", "log"))
    text = everything(page_of_kfuzz(cases, tmp_path))
    assert 'isolation: \\"read_committed\\"' in text
    assert "steps begin at bytes 0x0, 0x51" in text
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in text
    assert "the magic is N" in text
    assert {role for role in ("consumer", "broker", "log") if f"<option>{role}</option>" in text} == {
        case.role for case in cases
    }


def terminal_text(run: Run, **options: int) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    for part in report.to_terminal(run, **{"causes_shown": 99} | options):  # type: ignore[arg-type]
        console.print(part)
    return console.export_text()


def test_decoders_and_whole_clients_stand_apart_and_share_causes(done: Run) -> None:
    dies = next(testee for testee in done.testees if testee.name == "dies")
    client = replace(dies, name="dies-client", kind="client", of="dies", own=("It seeks.",))
    run = replace(done, testees=(client, *done.testees))
    assert len(run.causes) == len(done.causes)
    text = terminal_text(run)
    assert text.index("decoders") < text.index("dies@1 ") < text.index("whole clients") < text.index("dies-client@1 ")
    assert "dies@1, dies-client@1: died of SIGSEGV" in text
    assert "whole clients" not in terminal_text(done)
    document = document_of(run)
    written = {entry["label"]: entry for entry in document["testees"]}["dies-client@1"]
    assert (written["kind"], written["of"], written["own"]) == ("client", "dies", ["It seeks."])
    assert {"dies@1", "dies-client@1"} in [set(cause.get("testees", ())) for cause in document["causes"]]
    # This also checks the schema.
    assert report.to_json(report.from_json(document, [case.vector for case in done.cases])) == document


def test_the_terminal_shows_causes_worst_first_and_says_how_many_it_left_out(done: Run) -> None:
    def shown(**options: int) -> str:
        return terminal_text(done, **options)

    text = shown()
    assert text.index("kills the process") < text.index("accepts what Kafka refuses") < text.index("differs where")
    assert "! dies@1" in text
    assert "  dies@1: died of SIGSEGV: wild pointer" in text
    assert f"and {len(done.causes) - 1} more; --causes N" in shown(causes_shown=1)
    assert "wild pointer" not in shown(only_new=True)
