"""Every tutorial works word for word: its files are saved, its changes made, its commands run, in one folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from conformance.conversation import SETTINGS
from conftest import require_tool
from docs.pages import FENCE, ROOT, of_block, shows
from docs.samples import environment

from kfuzz.conformance.broker.real import Broker
from kfuzz.fuzz.building import COMPILERS

TUTORIALS: Final = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# The text in front of a block names the file that a reader saves it as.
NAMED: Final = re.compile(r"`([\w./-]+\.(?:py|c|toml))`[^`]*\Z")
# Where a command returns another exit code than 0, because it finds something.
FINDS: Final = re.compile(
    r"^kfuzz (conform --command (?!.*--expected)|report \S+ \S+|check (?!saved)|salvage|fuzz)|\./my-fuzzer"
)
TIMEOUT_S: Final = 300
BROKER: Final = "127.0.0.1:9092"


class Step(NamedTuple):
    """A block of a tutorial: its language, its text, and the text in front of it."""

    language: str
    block: str
    before: str


def steps(page: Path) -> list[Step]:
    """The blocks of a tutorial, in order."""
    text, made, at = page.read_text(), [], 0
    for found in FENCE.finditer(text):
        made.append(Step(found[1], found[2], text[at : found.start()]))
        at = found.end()
    return made


def run(command: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of a tutorial as its reader does."""
    bash = shutil.which("bash")
    assert bash
    return subprocess.run(
        [bash, "-c", command],
        cwd=folder,
        env=environment() | {"PATH": f"{folder / 'bin'}{os.pathsep}{environment()['PATH']}"},
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def follow(step: Step, folder: Path) -> None:
    """Do what a block of a tutorial asks for."""
    if step.language == "diff":
        done = run("git apply -p0 -", folder, step.block)
        assert done.returncode == 0, done.stderr
    elif step.language != "console":
        name = NAMED.search(step.before)
        assert name, f"no file is named in front of: {step.block[:200]}"
        (folder / name[1]).parent.mkdir(parents=True, exist_ok=True)
        (folder / name[1]).write_text(step.block)
    else:
        for _, command, output in of_block("", step.block):
            done = run(command, folder)
            assert done.returncode in ((0, 1) if FINDS.search(command) else (0,)), f"{command}: {done.stderr[-2000:]}"
            assert "Traceback" not in done.stderr, f"{command}: {done.stderr[-2000:]}"
            told = (done.stdout, done.stdout + done.stderr)
            assert not output or any(shows(output, text) for text in told), f"{command} printed:\n{done.stdout[-4000:]}"


@contextlib.contextmanager
def programs(made: list[Step], folder: Path) -> Iterator[Callable[[str], str]]:
    """The programs that a tutorial's reader has: git, a compiler named clang, kcat, a broker.

    Yields a function that gives a block the port of that broker.
    """
    text = "".join(step.block for step in made)
    require_tool("git", "install git")
    if "$ clang" in text:
        # It has its version in its name on some systems.
        compiler = next(filter(shutil.which, COMPILERS), "clang")
        (folder / "bin").mkdir()
        (folder / "bin" / "clang").symlink_to(require_tool(compiler, "install clang"))
    if BROKER not in text:
        yield str
        return
    for tool in ("java", "javac", "mvn", "kcat"):
        require_tool(tool, "install a JDK of version 17 or newer, Maven and kcat")
    with Broker(SETTINGS) as broker:
        yield lambda block: block.replace(BROKER, f"127.0.0.1:{broker.port}")


@pytest.mark.nightly
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_works_word_for_word(page: Path, tmp_path: Path) -> None:
    made = steps(page)
    assert sum(step.language == "console" for step in made) >= 3
    with programs(made, tmp_path) as at_hand:
        for step in made:
            follow(step._replace(block=at_hand(step.block)), tmp_path)
