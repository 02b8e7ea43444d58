"""Follows a page word for word: saves its files, makes its changes, runs its commands, in one folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from docs.pages import FENCE, of_block, shows
from docs.samples import environment
from programs import run_program

# The text in front of a block names the file that a reader saves it as.
NAMED: Final = re.compile(r"`([\w./-]+\.(?:py|c|toml|java|go|mjs))`[^`]*\Z")
# Where a command returns another exit code than 0, because it finds something.
FINDS: Final = re.compile(
    r"^kfuzz (conform --command (?!.*--expected)|report \S+ \S+|check (?!saved)|salvage|fuzz)|\./my-fuzzer|^pytest"
)
TIMEOUT_S: Final = 300
STEP: Final = re.compile(f"(.*?){FENCE.pattern}", FENCE.flags)


class Step(NamedTuple):
    """A block of a page: its language, its text, and the text in front of it."""

    language: str
    block: str
    before: str


def steps(text: str) -> list[Step]:
    """The blocks of a page, in order."""
    return [Step(language, block, before) for before, language, block in STEP.findall(text)]


def run(command: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of a page as its reader does."""
    bash = shutil.which("bash")
    assert bash
    # A program has the peak of memory of the process that starts it, and libFuzzer reads that. With one command alone,
    # bash becomes that command, which then has the peak of the tests.
    words = (bash, "-c", f"{command}\nexit $?")
    path = f"{folder / 'bin'}{os.pathsep}{environment()['PATH']}"
    return run_program(
        *words, code=None, cwd=folder, env=environment() | {"PATH": path}, input=given, timeout=TIMEOUT_S
    )


def follow(step: Step, folder: Path) -> None:
    """Do what a block of a page asks for."""
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
            shown = (done.stdout, done.stdout + done.stderr)
            assert done.returncode in ((0, 1) if FINDS.search(command) else (0,)), f"{command}: {shown[1][-2000:]}"
            assert "Traceback" not in done.stderr, f"{command}: {done.stderr[-2000:]}"
            assert not output or any(shows(output, text) for text in shown), (
                f"{command} printed:\n{done.stdout[-4000:]}"
            )
