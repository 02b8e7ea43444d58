"""``kfuzz conform --testee NAME@VERSION``: any version of a library is built once and judged."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from cli_driver import kfuzz
from conftest import require_tool
from referee_tools import SMALL_LIMITS, WICKED, toy_cases

from kfuzz.conformance.judge.matrix import Places, run
from kfuzz.conformance.protocol import versions
from kfuzz.conformance.protocol.building import BuildFailed
from kfuzz.conformance.protocol.testees import Testee, all_testees, select
from kfuzz.errors import UsageError

# A testee whose only fault is that of wicked/dies.py. Its build writes the version into a file, and counts itself.
TOY = """
name = "toy"
language = "python"
kit = "../kit"
[[versions]]
version = "9.0.0"
run = ["{python}", "toy.py"]

[[any]]
before = "2.0.0"
build = [["sh", "-c", "echo old {version} {major} > made"]]
run = ["{python}", "-S", "toy.py", "{place}"]

[[any]]
before = "5.0.0"
build = [["sh", "-c", "echo {version} >> ../builds"], ["sh", "build.sh", "{version}"]]
run = ["{python}", "-S", "toy.py", "{folder}"]

[[any]]
before = "7.0.0"
python = "1.4"
build = [["{interpreter}", "-m", "venv", "{place}/venv"]]
run = ["{place}/venv/bin/python", "toy.py"]
"""
BUILD = """test $1 != 3.0.0 || { echo 'npm warn a package is old'; echo 'no version 3.0.0 of toy' >&2; exit 3; }
echo $1 > made
"""
DIES = "import sys\nsys.path.insert(0, '../kit')\n" + (WICKED / "dies.py").read_text()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(WICKED, tmp_path / "kit", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "toy"
    folder.mkdir()
    for name, text in {"testee.toml": TOY, "build.sh": BUILD, "toy.py": DIES}.items():
        (folder / name).write_text(text)
    return tmp_path


def other(root: Path, version: str) -> Testee:
    [found] = select(all_testees(root), [f"toy@{version}"])
    return found


def builds(root: Path, version: str) -> list[str]:
    return (root / "toy" / "target" / "versions" / version / "builds").read_text().split()


def test_a_version_is_built_once_and_again_only_after_a_change_of_sources(root: Path) -> None:
    mine = other(root, "2.0.0")
    place = root / "toy" / "target" / "versions" / "2.0.0"
    assert (mine.label, mine.folder, mine.argv[-1]) == ("toy@2.0.0", place / "testee", str(place / "testee"))
    for _ in range(2):
        other(root, "2.0.0").make_ready()
    assert (builds(root, "2.0.0"), (place / "testee" / "made").read_text()) == (["2.0.0"], "2.0.0\n")
    # A new time alone is no change.
    os.utime(root / "toy" / "toy.py", (1, 1))
    other(root, "2.0.0").make_ready()
    assert len(builds(root, "2.0.0")) == 1
    for count, file in enumerate(("toy/toy.py", "kit/toy.py"), start=2):
        with (root / file).open("a") as out:
            out.write("# changed\n")
        other(root, "2.0.0").make_ready()
        assert len(builds(root, "2.0.0")) == count
    assert (place / "testee" / "toy.py").read_text().endswith("# changed\n")
    # The other version and the testee itself have not been touched.
    assert sorted(path.name for path in (root / "toy" / "target" / "versions").iterdir()) == ["2.0.0"]
    assert not (root / "toy" / "made").exists()


def test_the_first_table_for_versions_above_it_is_taken(root: Path) -> None:
    for version in ("1.10.0", "2.0.0-rc.1"):
        mine = other(root, version)
        mine.make_ready()
        assert mine.folder
        assert (mine.folder / "made").read_text() == f"old {version} {version[0]}\n"
    with pytest.raises(UsageError, match=r"toy@7.0.0 cannot be built: versions must be below 7\.0\.0"):
        other(root, "7.0.0")
    # The pinned version is no other version.
    assert other(root, "9.0.0").folder == root / "toy"


def test_a_build_that_was_interrupted_begins_again_in_an_empty_folder(root: Path) -> None:
    place = root / "toy" / "target" / "versions" / "2.0.0"
    (place / "testee").mkdir(parents=True)
    (place / "builds").write_text("half\n")
    (place / "testee" / "made").write_text("half")
    other(root, "2.0.0").make_ready()
    assert builds(root, "2.0.0") == ["2.0.0"]


def test_a_failed_build_never_counts_and_its_error_is_a_sentence(root: Path) -> None:
    for _ in range(2):
        with pytest.raises(BuildFailed, match=r"`sh build.sh 3.0.0` in .* ended with 3: no version 3.0.0 of toy"):
            other(root, "3.0.0").make_ready()
    # The tools' output is used again.
    assert len(builds(root, "3.0.0")) == 2


NO_VERSIONS = ("1", "1.2", "latest", "-1.0.0", "1.0.0;id", "../1.0.0", "1.0.0/..", "^1.0.0", "1.0." + "0" * 70)


def test_what_is_no_version_is_refused_before_anything_is_built(root: Path) -> None:
    for version in NO_VERSIONS:
        with pytest.raises(UsageError, match="names no version; write it with all its numbers"):
            other(root, version)
    assert not (root / "toy" / "target").exists()


def test_a_testee_without_a_table_says_which_versions_there_are(root: Path) -> None:
    (root / "toy" / "testee.toml").write_text(TOY.partition("[[any]]")[0])
    with pytest.raises(UsageError, match=r"no testee 'toy@2.0.0'; did you mean toy@9.0.0\? known are"):
        other(root, "2.0.0")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[any]]\nrun = ['x']\n", r"any\[3\] lacks build"),
        ("[[any]]\nrun = ['x']\nbuild = ['sh']\n", r"any\[3\].build\[0\] is \"sh\"; give a list of words"),
        ("[[any]]\nrun = []\nbuild = []\n", r"any\[3\].run is \[\]; give a list of words"),
        ("[[any]]\nrun = ['x']\nbuild = []\nbefour = '1'\n", "befour is not a key .*; did you mean before"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(root: Path, text: str, complaint: str) -> None:
    (root / "toy" / "testee.toml").write_text(TOY + text)
    with pytest.raises(UsageError, match=complaint):
        all_testees(root)


def test_a_run_over_versions_goes_on_past_broken_ones_and_expects_nothing(root: Path) -> None:
    asked = [other(root, version) for version in ("2.0.0", "3.0.0", "4.0.0", "5.0.0")]
    (root / "expected").mkdir()
    (root / "expected" / "dies@9.0.0.txt").write_text("")
    cases = [case for case in toy_cases() if case.vector.id == "toy/trap"]
    places = Places(root / "expected", root / "embargo")
    done = run(asked, cases, places=places, whole=False, limits=SMALL_LIMITS)
    two, three, four, five = done.testees
    assert [one.broken.rpartition(": ")[2] for one in (two, four)] == ["", ""]
    assert three.broken.endswith("no version 3.0.0 of toy")
    assert "needs Python 1.4, which is not here" in five.broken
    assert [(one.version, one.totals(), one.unexpected) for one in (two, four)] == [
        ("2.0.0", {"crash": 1}, []),
        ("4.0.0", {"crash": 1}, []),
    ]
    assert [cause.is_new for cause in done.causes] == [False, False]
    assert two.notes == (
        "the library says that it is 1",
        "compared with nothing, because no file has expected outcomes of this version",
    )
    # A published report hides a crash of any version that is not public.
    [hidden] = run(asked[:1], cases, places=places, whole=False, limits=SMALL_LIMITS, publish=True).testees
    assert hidden.shown(cases[0].key) == "withheld"
    # A file of one's own says what is expected.
    own = run(asked[:1], cases, places=Places.beside(root, root / "none.txt"), whole=False, limits=SMALL_LIMITS)
    assert len(own.testees[0].unexpected) == 1


def test_expected_outcomes_of_other_versions_go_only_to_a_file_of_ones_own() -> None:
    done = kfuzz("conform", "--testee", "kafkajs@1.12.0", "--update-expected", "--all", code=2)
    assert "expected outcomes are those of pinned versions, and kafkajs@1.12.0 is not" in done.stderr
    done = kfuzz("conform", "--testee", "kafkajs@1.12.0", "--path", ".", "records/v2/count/*")
    assert (done.returncode, "cannot be built with a working copy" in done.stderr) == (2, True)


def test_versions_have_the_order_of_their_numbers() -> None:
    names = ["0.9.0", "0.11.6", "0.11.6.post1", "1.0.0-beta.1", "1.0.0-beta.2", "1.0.0", "1.2.0", "1.10.0", "2.0.0+x"]
    assert sorted(dict.fromkeys([*names[5:], *names]), key=versions.order_of) == names


# The oldest version that each wrapper can be built with, a new one, and some between them. Other tests judge the pinned
# versions.
JUDGED = {
    "aiokafka": ("0.8.0", "0.8.1", "0.10.0", "0.12.0", "0.13.0"),
    "franz-go": ("1.0.0", "1.6.0", "1.14.0", "1.18.0", "1.19.0", "1.22.3"),
    "franz-go-client": ("1.7.1", "1.17.0"),
    "kafka-consumer": ("2.0.0", "2.8.2", "3.6.2", "4.0.0", "4.3.1"),
    "kafka-go": ("0.4.0", "0.4.10", "0.4.20", "0.4.30", "0.4.40", "0.4.47"),
    "kafka-go-client": ("0.2.3", "0.3.3", "0.4.35"),
    "kafka-go-reader": ("0.4.0", "0.4.20", "0.4.30", "0.4.40", "0.4.47"),
    "kafka-protocol": ("0.10.0", "0.11.0", "0.12.0", "0.13.0", "0.14.1", "0.15.1", "0.16.0", "0.17.0"),
    "kafka-python": ("2.0.0", "2.0.2", "2.1.0", "2.3.0", "2.3.1", "3.0.4"),
    "kafka-python-client": ("1.4.1", "2.0.6"),
    "kafkajs": ("1.11.0", "1.12.0", "1.14.0", "1.15.0", "2.0.0", "2.3.0-beta.3"),
    "librdkafka": ("0.11.6", "1.0.0", "1.8.2", "2.0.2", "2.16.1"),
    "platformatic-kafka": ("1.11.0", "1.16.0", "1.22.0", "1.27.0", "2.4.0", "2.12.1"),
    "sarama": ("1.21.0", "1.26.0", "1.30.0", "1.38.1", "1.43.2", "1.50.0"),
    "sarama-client": ("1.28.0", "1.45.2"),
}
# Before 1.19, franz-go has no public decoder of records.
ASKED = ("records/v2/header/minimal", "records/v2/count/of-2")
ASKED_OF = {"franz-go": ("messages/requests/*",)}


@pytest.mark.nightly
@pytest.mark.parametrize("label", [f"{name}@{version}" for name, versions in JUDGED.items() for version in versions])
def test_versions_of_each_library_are_built_and_judged(label: str, tmp_path: Path) -> None:
    name, _, version = label.partition("@")
    for tool in next(testee for testee in all_testees() if testee.name == name).requires:
        require_tool(tool, f"{name} needs it")
    file = tmp_path / "result.json"
    kfuzz("conform", "--testee", label, *ASKED_OF.get(name, ASKED), "--json", file, code=0)
    [judged] = json.loads(file.read_text())["testees"]
    assert (judged["name"], judged["version"]) == (name, version)
    assert judged["totals"]["pass"] >= 2
