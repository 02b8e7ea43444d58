"""The planted bugs fit the code, nothing names them, and a campaign finds one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fuzzer_stub import require_clang

from benchmarks.fuzz import Cell, measure, parts_of
from benchmarks.planting import ROOT, Garden, Planted, planted
from kfuzz.fuzz.building import SANITIZERS
from kfuzz.fuzz.targets import TARGETS

BUGS = planted()
# The least that `make bench-fuzz` looks for.
BUGS_LEAST = 12


def test_there_are_bugs_for_every_kind_of_check() -> None:
    assert len(BUGS) >= BUGS_LEAST
    assert {bug.target for bug in BUGS} >= {
        "record-batch",
        "columns",
        "compressed-batch",
        "messages",
        "broker",
        "log-tools",
    }
    assert {bug.truth for bug in BUGS} == {True, False}
    assert {bug.sanitizer for bug in BUGS} == {"none", "address"}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_fits_the_code(bug: Planted) -> None:
    assert bug.target in TARGETS
    assert bug.sanitizer in SANITIZERS
    assert all(name.startswith("kfuzz/") for name in bug.files)
    with bug.patch.open("rb") as patch:
        # No fuzz: the lines around the change are as they were when the bug was made.
        command = ["patch", "-p1", "--dry-run", "--fuzz=0", "--force"]
        done = subprocess.run(command, cwd=ROOT, stdin=patch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert parts_of(bug)[:3] == ["nothing", "coverage", "structure"]


def test_nothing_that_a_campaign_uses_names_a_planted_bug() -> None:
    files = [path for folder in ("kfuzz", "corpus") for path in (ROOT / folder).rglob("*")]
    texts = [path for path in files if path.suffix in (".py", ".pyx", ".h", ".c", ".hex", ".dict")]
    assert len(texts) > 200
    for path in texts:
        text = path.read_text()
        assert not [bug.name for bug in BUGS if bug.name in text], path


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        ((3.0, 1.0, 2.0), "2.0"),
        ((3.0, None, 2.0), "3.0 (2)"),
        ((None, None, 2.0), "– (1 of 3)"),
        ((None,), "– (0 of 1)"),
    ],
)
def test_a_median_says_how_many_seeds_found_it(seconds: tuple[float | None, ...], shown: str) -> None:
    assert str(Cell("bug", "nothing", seconds)) == shown


@pytest.mark.clang
@pytest.mark.nightly
def test_a_campaign_finds_a_planted_bug_and_the_checkout_stays_as_it_is(tmp_path: Path) -> None:
    require_clang()
    [bug] = [bug for bug in BUGS if bug.name == "conversion-drops"]
    before = [(ROOT / name).read_bytes() for name in bug.files]
    garden = Garden()
    with garden.with_bug(bug):
        assert [(garden.folder / name).read_bytes() for name in bug.files] != before
        cell = measure(garden, bug, "nothing", [1], 60, lambda: None)
    assert cell.cpu_seconds[0] is not None
    assert [(ROOT / name).read_bytes() for name in bug.files] == before
    assert [(garden.folder / name).read_bytes() for name in bug.files] == before
