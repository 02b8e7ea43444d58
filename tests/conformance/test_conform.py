"""The command line of the referee: exit codes, files, and one sentence for wrong use."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz
from referee_tools import wicked, write_suite
from signals import KFUZZ, interrupt_when, start

from kfuzz.cli.main import main
from kfuzz.conformance.differential.found import Differential
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.kafka import RELEASES

ACCEPTED = {"id": "toy/empty"}
REFUSED = {"id": "toy/refused", "hex": "ff", "expect": {"consumer": {"verdict": "invalid", "finding": "crc-mismatch"}}}
MISREAD = {"id": "toy/misread", "expect": {"consumer": {"verdict": "invalid", "finding": "crc-mismatch"}}}


def conform(
    suite: Path, *arguments: str, testee: list[str] | None = None, code: int | None = None
) -> subprocess.CompletedProcess[str]:
    command = ["--command", shlex.join(testee if testee is not None else wicked("dies"))]
    return kfuzz("conform", "--vectors", suite, *command, *arguments, code=code)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "vectors", [ACCEPTED, REFUSED])


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "vectors", [ACCEPTED, REFUSED, MISREAD])


def test_a_run_in_which_all_is_as_expected_exits_with_0(good: Path) -> None:
    done = conform(good)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "as expected"


def test_an_unexpected_outcome_exits_with_1_and_is_named(bad: Path) -> None:
    done = conform(bad, code=1)
    assert "! dies@1: crc-mismatch: accepted bytes that must be refused" in done.stdout
    assert "1 vector, smallest toy/misread" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 not as expected; the causes marked with ! have them"


def test_expected_outcomes_are_written_and_then_expected_until_they_pass(bad: Path) -> None:
    assert conform(bad, "--update-expected").returncode == 0
    lines = bad / "expected" / "dies@1.txt"
    assert lines.read_text().splitlines()[1:] == [
        "toy/misread consumer fail  # unexplained: accepted bytes that must be refused (crc-mismatch)"
    ]
    assert conform(bad).returncode == 0
    lines.write_text("toy/misread consumer fail  # a bug\ntoy/empty consumer fail  # mended\n")
    assert "toy/empty consumer: pass (a line expects fail; now it is pass)" in conform(bad, code=1).stdout


@pytest.mark.parametrize("how", [[], pytest.param(["sleep"], marks=pytest.mark.full)], ids=["burning", "sleeping"])
def test_a_testee_whose_time_is_over_is_asked_no_more_and_every_report_says_so(tmp_path: Path, how: list[str]) -> None:
    suite = write_suite(tmp_path / "vectors", [{"id": f"toy/{name}"} for name in ("one", "trap", "two", "three-trap")])
    files = {name: tmp_path / f"out.{name}" for name in ("json", "html", "junit")}
    words = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    done = conform(suite, "--duration", "1s", "--update-expected", *words, testee=wicked("hangs", *how), code=1)
    sentence = "its budget of 1 s was over after 1 of 4 questions"
    assert f"unexpected: hangs@1: {sentence}" in done.stdout
    assert f"hangs@1: its file is unchanged, because {sentence}" in done.stdout
    assert not (suite / "expected").exists()
    document = json.loads(files["json"].read_text())
    assert (document["failed"], document["testees"][0]["stopped"]) == (True, sentence)
    cells = [case["cells"]["hangs@1"] for case in document["cases"]]
    assert [cell["outcome"] for cell in cells] == ["pass", "not-asked", "not-asked", "not-asked"]
    assert cells[1]["text"] == "its budget of 1 s was over"
    for file in files.values():
        assert sentence in file.read_text()
    again = kfuzz("report", files["json"], "--vectors", suite, code=1)
    assert f"hangs@1 was not asked to the end: {sentence}" in again.stdout


def test_an_interrupt_keeps_what_was_answered_until_then(tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(f"""
import subprocess, sys, time
peer = subprocess.Popen([sys.executable, "-m", "kfuzz.cli.main", "testee"], stdout=subprocess.PIPE)
for number, line in enumerate(peer.stdout):
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    if number == 5:
        open({str(tmp_path / "asked")!r}, "x")
    time.sleep(0.05)
""")
    command = shlex.join([sys.executable, str(slow)])
    report = tmp_path / "report.json"
    process = start([*KFUZZ, "conform", "--command", command, "records/v2/*", "--json", report])
    out, said = interrupt_when(process, (tmp_path / "asked").exists, within_s=60)
    assert (process.returncode, said.splitlines()[-1]) == (130, "kfuzz: interrupted")
    document = json.loads(report.read_text())
    [testee] = document["testees"]
    assert testee["stopped"].startswith("the run was interrupted after ")
    assert testee["stopped"] in out
    found = Counter(cell["outcome"] for case in document["cases"] for cell in case["cells"].values())
    assert found["pass"] >= 5
    assert found["not-asked"] > 100


def test_a_testee_within_its_time_is_judged_as_without_one(good: Path) -> None:
    done = conform(good, "--duration", "5m")
    assert (done.returncode, done.stdout) == (0, conform(good).stdout)


def test_files_in_the_current_folder_are_not_run_in_place_of_kfuzz_and_the_library(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "vectors", [ACCEPTED])
    for name in ("kfuzz", "json", "pip", "click"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    kfuzz = [str(Path(sys.executable).with_name("kfuzz")), "conform", "--vectors", str(suite)]
    done = subprocess.run([*kfuzz, "--testee", "kfuzz"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    # A program of the user's own runs as it always does: it finds what is beside it.
    (tmp_path / "testee.py").write_text("import pip")
    done = subprocess.run([*kfuzz, "--command", "python3 testee.py"], capture_output=True, text=True, cwd=tmp_path)
    assert "its last words: the wrong one" in done.stderr


def test_somebody_s_own_file_of_outcomes_withholds_nothing_and_touches_no_other(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "vectors", [ACCEPTED, MISREAD, {"id": "toy/trap"}])
    own = tmp_path / "outcomes.txt"
    assert "no line expects" not in conform(suite, "--expected", str(own), code=1).stdout
    assert conform(suite, "--expected", str(own), "--update-expected").returncode == 0
    assert [line.split("  #")[0] for line in own.read_text().splitlines()[1:]] == [
        "toy/misread consumer fail",
        "toy/trap consumer crash",
    ]
    assert not (suite / "expected").exists()
    assert not (tmp_path / "embargo").exists()
    again = conform(suite, "--expected", str(own), "--only-failures", code=0)
    assert "cause" not in again.stdout.split("Causes by class of harm")[1]
    own.write_text("toy/misread consumer fail  # a bug\n")
    changed = conform(suite, "--expected", str(own), "--only-failures", code=1)
    assert "wild pointer" in changed.stdout
    assert "toy/misread" not in changed.stdout


def test_a_committed_file_is_expected_by_its_name_and_its_seal_counts(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "vectors", [ACCEPTED, MISREAD, {"id": "toy/trap"}])
    assert conform(suite, "--update-expected").returncode == 0
    file = tmp_path / "committed.txt"
    text = (suite / "expected" / "dies@1.txt").read_text()
    assert "withheld 1 scrypt:" in text
    file.write_text(text)
    done = conform(suite, "--expected", str(file))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "as expected")
    file.write_text(text.replace("withheld 1", "withheld 2"))
    assert "2 in the file of expected outcomes, 1 in this run" in conform(suite, "--expected", str(file), code=1).stdout
    done = conform(suite, "--expected", str(file), "--update-expected")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "has a `withheld` line" in done.stderr


def test_lines_with_the_cause_of_an_explained_line_get_its_reason(tmp_path: Path) -> None:
    twice = [{**MISREAD, "id": f"toy/misread-{name}"} for name in ("one", "two")]
    suite = write_suite(tmp_path / "vectors", [ACCEPTED, *twice])
    assert conform(suite, "--update-expected").returncode == 0
    lines = suite / "expected" / "dies@1.txt"
    text = lines.read_text()
    assert text.count("unexplained") == 2
    lines.write_text(
        text.replace("unexplained: accepted bytes that must be refused (crc-mismatch)", "checks no CRC", 1)
    )
    assert conform(suite, "--update-expected").returncode == 0
    assert lines.read_text().splitlines()[1:] == [
        "toy/misread-one consumer fail  # checks no CRC",
        "toy/misread-two consumer fail  # checks no CRC",
    ]


@pytest.mark.full
def test_a_time_limit_for_an_answer_is_kept(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "vectors", [ACCEPTED, {"id": "toy/trap"}])
    assert "hangs or stalls" in conform(suite, "--timeout", "1", testee=wicked("hangs"), code=1).stdout


def test_a_partial_run_says_nothing_about_lines_beyond_it_and_a_whole_one_does(good: Path) -> None:
    (good / "expected").mkdir()
    (good / "expected" / "dies@1.txt").write_text("toy/gone consumer fail  # its vector was removed\n")
    assert conform(good, "toy/e*").returncode == 0
    assert "toy/gone consumer is listed, but the suite does not ask it" in conform(good, code=1).stdout


def test_reports_are_equal_for_equal_runs(bad: Path, tmp_path: Path) -> None:
    names = ["report.json", "report.xml", "report.html"]
    for folder in ("one", "two"):
        files = [str(tmp_path / folder / name) for name in names]
        conform(
            bad, "--json", files[0], "--junit", files[1], "--html", files[2], "--jobs", "1" if folder == "one" else "4"
        )
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert json.loads((tmp_path / "one" / "report.json").read_text())["failed"] is True


def test_a_clean_clone_expects_what_is_withheld_and_notices_what_is_not(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "vectors", [ACCEPTED, {"id": "toy/trap"}])
    assert conform(suite, "--update-expected").returncode == 0
    committed = (suite / "expected" / "dies@1.txt").read_text()
    assert "withheld 1 scrypt:" in committed
    assert "toy/trap" not in committed
    local = conform(suite, code=0)
    assert "toy/trap" in local.stdout
    assert "kills the process" in local.stdout
    public = conform(suite, "--publish", "--json", "-", code=0)
    assert "crash" not in public.stdout
    assert "wild pointer" not in public.stdout
    shutil.rmtree(tmp_path / "embargo")
    assert conform(suite).returncode == 0
    partial = conform(suite, "toy/t*", code=0)
    assert "dies@1: 1 of the outcomes are taken for withheld ones; only a whole run can check that" in partial.stdout
    # Another crash has another digest.
    write_suite(tmp_path / "other" / "vectors", [ACCEPTED, {"id": "toy/trap"}, {"id": "toy/trap-two"}])
    shutil.copytree(suite / "expected", tmp_path / "other" / "vectors" / "expected")
    assert "1 in the file of expected outcomes, 2 in this run" in conform(tmp_path / "other" / "vectors", code=1).stdout
    assert conform(tmp_path / "other" / "vectors", "toy/trap*").returncode == 1
    # One less too.
    write_suite(tmp_path / "less" / "vectors", [ACCEPTED])
    shutil.copytree(suite / "expected", tmp_path / "less" / "vectors" / "expected")
    less = conform(tmp_path / "less" / "vectors")
    assert (less.returncode, "0 in this run" in less.stdout) == (1, True)


def test_json_on_standard_output_is_all_there_is_on_it(bad: Path) -> None:
    assert [case["id"] for case in json.loads(conform(bad, "--json", "-", code=1).stdout)["cases"]][:1] == ["toy/empty"]


def test_a_lone_testee_that_prints_rubbish_first_is_one_sentence(good: Path, tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    done = conform(good, "--html", str(html), testee=["echo", "hello"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kfuzz: echo: the handshake is not a line of JSON: 'hello'")
    assert not html.exists()


def test_a_testee_that_takes_the_name_of_another_does_not_cost_the_run(good: Path) -> None:
    done = conform(good, "--command", shlex.join([*wicked("dies"), "again"]), "--json", "-")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert [testee["label"] for testee in document["testees"]] == ["dies@1", "dies@1#2"]
    assert "has the name dies@1 too" in document["testees"][1]["broken"]
    assert list(document["cases"][0]["cells"]) == ["dies@1"]


def test_kfuzz_is_a_testee_like_any_other(good: Path) -> None:
    done = conform(good, "--testee", "kfuzz", "--json", "-")
    document = json.loads(done.stdout)
    assert [testee["name"] for testee in document["testees"]] == ["kfuzz", "dies"]
    assert document["cases"][0]["cells"][document["testees"][0]["label"]]["outcome"] == "pass"


@pytest.mark.parametrize("asked", ["messages", "streams"])
def test_messages_and_streams_are_each_a_differential_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str
) -> None:
    called: list[str] = []

    def differential(name: str) -> Callable[..., Differential]:
        def run(testee: Testee, *arguments: Any, begun: Callable[[Differential], None], **options: Any) -> Differential:
            called.append(name)
            found = Differential(testee.label, inputs=1)
            begun(found)
            return found

        return run

    for name in ("messages", "streams"):
        monkeypatch.setattr(f"kfuzz.cli.differential.differ_{name}", differential(name))
    command = shlex.join(wicked("dies"))
    monkeypatch.setattr("kfuzz.cli.differential.release_of", lambda testee: RELEASES[0])
    with pytest.raises(SystemExit) as stop:
        main(["differential", "--what", asked, "--command", command, "--out", str(tmp_path)])
    assert stop.value.code == 0
    assert called == [asked]
