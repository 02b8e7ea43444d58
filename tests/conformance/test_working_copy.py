"""``kfuzz conform --path``: a working copy of a library is built, judged, and compared with the pinned version."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cli_driver import kfuzz
from conftest import require_tool, the_testee
from programs import run_program
from referee_tools import SMALL_LIMITS, toy_cases, wicked

from kfuzz.conformance.judge import expected
from kfuzz.conformance.judge.compare import Case, Cell
from kfuzz.conformance.judge.matrix import Places, run
from kfuzz.conformance.protocol import working_copy
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.errors import UsageError
from kfuzz.vectors import load_suite

FAMILY = "records/v2/count/*"
CRCS = "records/v2/header/crc*"


def copy_of(source: Path, target: Path, file: str, old: str, new: str) -> Path:
    """A copy of a library, with one change."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile)
    for folder in (target, *target.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o755)
    text = (target / file).read_text()
    assert old in text
    (target / file).write_text(text.replace(old, new))
    return target


def ready(name: str) -> tuple[Testee, Path]:
    """A testee that can be run, and its folder."""
    testee = the_testee(name)
    testee.make_ready()
    assert testee.folder
    return testee, testee.folder


def conform(name: str, path: Path, *globs: str, code: int = 0) -> list[str]:
    """The last lines: a line for each changed outcome, the counts, and the closing line."""
    lines = kfuzz("conform", "--testee", name, "--path", path, *globs, code=code).stdout.splitlines()
    return [line.removeprefix(f"{name}@path: ") for line in lines if "@path: " in line or "than" in line]


def test_a_worse_python_library_is_shown_beside_the_installed_one(tmp_path: Path) -> None:
    the_testee("kio")
    [package] = importlib.util.find_spec("kio").submodule_search_locations  # type: ignore[union-attr]
    crc = "if crc != crc32c("
    folder = copy_of(
        Path(package), tmp_path / "src" / "kio", "records/readers.py", crc, f"if False and {crc[3:]}"
    ).parents[1]
    lines = conform("kio", folder, CRCS, code=1)
    assert "worse: records/v2/header/crc-wrong consumer was pass, is fail" in lines
    assert lines[-1].startswith("16 worse than kio@")
    assert "16 worse, 0 better, " in lines[-2]


def test_a_better_python_library_is_shown_and_fails_nothing(tmp_path: Path) -> None:
    the_testee("kio")
    [package] = importlib.util.find_spec("kio").submodule_search_locations  # type: ignore[union-attr]
    refused = "records = []\n    if num_records < 0:\n        raise ValueError(num_records)\n"
    folder = copy_of(Path(package), tmp_path / "kio", "records/readers.py", "records = []\n", refused).parent
    lines = conform("kio", folder, FAMILY)
    assert "better: records/v2/count/negative-one-without-records consumer was fail, is pass" in lines
    assert "0 worse, 1 better, " in lines[-2]
    assert lines[-1].startswith("nothing worse than kio@")


@pytest.mark.full
def test_a_change_of_a_node_library_is_shown_and_the_pinned_one_stays(tmp_path: Path) -> None:
    _, folder = ready("kafkajs")
    decoder = "src/protocol/recordBatch/record/v0/decoder.js"
    source = folder / "node_modules" / "kafkajs"
    copy_of(source, tmp_path / "kafkajs", decoder, "add(offsetDelta)", "add(offsetDelta + 1)")
    lines = conform("kafkajs", tmp_path / "kafkajs", FAMILY, code=1)
    assert "worse: records/v2/count/of-200 consumer was pass, is fail" in lines
    assert lines[-1].endswith(" worse than kafkajs@2.2.4; the causes marked with ! have them")
    assert "offsetDelta + 1" not in (source / decoder).read_text()
    # A copy that is right again is copied again.
    shutil.copyfile(source / decoder, tmp_path / "kafkajs" / decoder)
    assert conform("kafkajs", tmp_path / "kafkajs", FAMILY)[-1] == "nothing worse than kafkajs@2.2.4"


GO_PROGRAM = """package main

import (
	"fmt"

	"example.com/lib"
	"example.com/lib/pkg/inner"
)

func main() { fmt.Println(lib.Word, inner.Word) }
"""


def test_a_go_testee_is_built_with_the_module_and_the_modules_inside_it(tmp_path: Path) -> None:
    require_tool("go", "the testees in Go need it")
    toy, lib = tmp_path / "toy", tmp_path / "a lib"
    (lib / "pkg" / "inner").mkdir(parents=True)
    toy.mkdir()
    modules = ("example.com/lib", "example.com/lib/pkg/inner")
    (toy / "go.mod").write_text(
        "module toy\n\ngo 1.26\n\nrequire (\n" + "".join(f"\t{m} v1.0.0\n" for m in modules) + ")\n"
    )
    (toy / "go.sum").write_text("")
    (toy / "main.go").write_text(GO_PROGRAM)
    for module, place in zip(modules, (lib, lib / "pkg" / "inner"), strict=True):
        (place / "go.mod").write_text(f"module {module}\n\ngo 1.26\n")
        (place / "word.go").write_text(f'package {place.name[-5:].strip("a ")}\n\nconst Word = "{place.name}"\n')
    testee = Testee("toy", "1", ("toy",), folder=toy, language="go", library=modules[0], build=("false",))
    mine = working_copy.with_working_copy(testee, lib)
    mine.make_ready()
    assert mine.label == "toy@path"
    assert subprocess.run(mine.argv, capture_output=True, check=True).stdout == b"a lib inner\n"
    assert "replace" not in (toy / "go.mod").read_text()


# Go compiles the library again for each new folder.
@pytest.mark.full
def test_a_change_of_a_go_library_is_shown_and_the_pinned_one_stays(tmp_path: Path) -> None:
    testee, folder = ready("franz-go")
    assert testee.product
    before = {file: file.read_bytes() for file in (testee.product, folder / "go.mod", folder / "go.sum")}
    listed = run_program("go", "list", "-m", "-f", "{{.Dir}}", testee.library, cwd=folder)
    check = "if !o.DisableCRCValidation {"
    source = Path(listed.stdout.strip())
    copy_of(source, tmp_path / "go lib", "pkg/kgo/source.go", check, f"if false && {check[3:]}")
    done = kfuzz(
        "conform", "--testee", "franz-go", "--path", tmp_path / "go lib", CRCS, "--json", tmp_path / "r.json", code=1
    )
    # Without the file in embargo/, stalls are taken for the ones that are withheld, so they do not count.
    [worse] = re.findall(r"^(\d+) worse than franz-go@1\.22\.2", done.stdout, re.MULTILINE)
    assert int(worse) >= 15
    [judged] = json.loads((tmp_path / "r.json").read_text())["testees"]
    assert judged["label"] == "franz-go@path"
    assert "worse: records/v2/header/crc-wrong consumer was pass, is fail" in judged["notes"]
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.nightly
def test_a_change_of_a_rust_library_is_shown_and_the_pinned_one_stays(tmp_path: Path) -> None:
    testee, _ = ready("kafka-protocol")
    assert testee.product
    before = testee.product.read_bytes()
    [source] = (Path.home() / ".cargo" / "registry" / "src").glob(f"*/{testee.library}-{testee.version}")
    check = "if supplied_crc != actual_crc {"
    copy_of(source, tmp_path / "rust", "src/records.rs", check, f"if false && {check[3:]}")
    lines = conform("kafka-protocol", tmp_path / "rust", CRCS, code=1)
    assert "worse: records/v2/header/crc-wrong consumer was pass, is fail" in lines
    assert testee.product.read_bytes() == before


@pytest.mark.parametrize(
    ("files", "compared", "worse"),
    [
        ({"dies@0.9.txt": "toy/trap consumer crash  # x\n"}, "compared with the outcomes of dies@0.9, the pinned", 0),
        # The latest one, by its numbers.
        ({"dies@0.9.txt": "", "dies@0.10.txt": "toy/trap consumer crash  # x\n"}, "the outcomes of dies@0.10, the", 0),
        ({"dies@0.9.txt": ""}, "version; the working copy says that it is 1", 1),
        ({"dies@1.txt": "toy/trap consumer crash  # x\n", "dies@2.txt": ""}, "of dies@1, the pinned version", 0),
        ({"dies-too@0.9.txt": ""}, "nothing says what dies@1 does, so every deviation counts as worse", 1),
    ],
)
def test_a_working_copy_of_any_version_is_compared_with_the_pinned_one(
    tmp_path: Path, files: dict[str, str], compared: str, worse: int
) -> None:
    (tmp_path / "expected").mkdir()
    for name, text in files.items():
        (tmp_path / "expected" / name).write_text(text)
    # Only the handshake names the version, as for a testee in Python.
    testee = Testee("dies", "", tuple(wicked("dies")))
    mine = replace(testee, version=working_copy.VERSION, pinned=testee)
    cases = [case for case in toy_cases() if case.vector.id == "toy/trap"]
    places = Places(tmp_path / "expected", tmp_path / "embargo")
    [judged] = run([mine], cases, places=places, whole=False, limits=SMALL_LIMITS).testees
    assert (judged.label, len(judged.unexpected)) == ("dies@path", worse)
    assert [note for note in judged.notes if compared in note], judged.notes


def test_another_version_than_the_committed_one_is_told_which_file_there_is(tmp_path: Path) -> None:
    (tmp_path / "dies@0.9.txt").write_text("")
    testee = Testee("dies", "", tuple(wicked("dies")))
    done = run([testee], toy_cases()[:1], places=Places(tmp_path, tmp_path), whole=False, limits=SMALL_LIMITS)
    [note] = done.testees[0].notes
    assert note.endswith(f"--expected {tmp_path / 'dies@0.9.txt'} compares with dies@0.9")


def test_a_missing_toolchain_is_a_sentence(tmp_path: Path) -> None:
    testee = replace(the_testee("kio"), requires=("no-such-program",))
    with pytest.raises(UsageError, match="it needs no-such-program; install that to use --path"):
        working_copy.with_working_copy(testee, tmp_path)


def test_expected_outcomes_of_a_working_copy_are_those_of_the_pinned_version_or_better() -> None:
    [vector] = load_suite("records/v2/header/minimal")
    case = Case(vector, "consumer")
    lines = expected.Expectations("toy@1", {case.key: expected.Line(*case.key, "fault", "known")})

    def status(outcome: str, lines: expected.Expectations, one: Case = case) -> str:
        return expected.stand_beside(one, Cell(outcome), lines).status

    assert {outcome: status(outcome, lines) for outcome in ("pass", "fail", "fault", "crash")} == {
        "pass": "ok",
        "fail": "ok",
        "fault": "listed",
        "crash": "unexpected",
    }
    none = expected.Expectations("toy@1")
    assert [status(outcome, none) for outcome in ("pass", "fail")] == ["ok", "unexpected"]
    # A run of the pinned version only marks this; for a working copy it is a change for the worse.
    recommended = Case(replace(vector, level="recommended"), "consumer")
    assert expected.stand(recommended, Cell("fail"), none).status == "miss"
    assert status("fail", none, recommended) == "unexpected"
