"""Every command of the documentation runs, and prints what its page shows.

``commands.toml`` says how: with less work, with another exit code, or by which other test.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from cli_driver import kfuzz
from conftest import require_tool
from docs.pages import ROOT, Command, commands, shows
from docs.samples import environment, make_place
from programs import run_program

from kfuzz.fuzz.building import COMPILERS

SHOWN: Final = list(commands())
LISTED: Final[dict[str, dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("commands.toml").read_text())
TABLE: Final[dict[str, Any]] = (
    LISTED["other"]
    | {text: {"exit": code} for text, code in LISTED["exit"].items()}
    | {text: {"skip": why, "test": test} for text, (why, test) in LISTED["skip"].items()}
)
KEYS: Final = {"run", "exit", "needs", "slow", "skip", "test", "traceback"}
TIMEOUT_S: Final = 300
# Verbs that may run until Ctrl-C.
ENDLESS: Final = ("play", "proxy", "serve")
# Characters that a shell would do something with, outside of quotes or even inside.
SHELL: Final = set("|&;<>$`*?~#(){}\\\n")
# A line of progress without a terminal: `conform: 512 of 1280`.
PROGRESS: Final = re.compile(r"^[a-z ]+: [\d,]+ of [\d,]+.*\n", re.MULTILINE)


def test_the_table_has_no_entry_that_no_page_shows() -> None:
    shown = {command.text for command in SHOWN}
    assert [text for text in TABLE if text not in shown] == []
    assert [entry for entry in TABLE.values() if not entry.keys() <= KEYS] == []


def test_a_command_that_is_not_run_names_the_test_that_stands_for_it() -> None:
    for entry in TABLE.values():
        if "skip" in entry:
            path, _, name = entry["test"].partition("::")
            assert f"def {name}(" in (ROOT / path).read_text() if name else (ROOT / path).exists()


def test_output_is_compared_with_what_a_page_shows() -> None:
    assert shows("one\n…\nfour", "one\ntwo\nthree\nfour\n")
    assert shows("took … s", "took 1.5 s\n")
    assert not shows("took … s", "took 1.5 s\nmore\n")
    assert not shows("one\nfour", "one\ntwo\nfour\n")
    assert shows("a (b) [c]*", "a (b) [c]*")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with what a reader of the documentation has at hand."""
    return make_place(tmp_path)


def _done(line: str, place: Path) -> subprocess.CompletedProcess[str]:
    """The outcome of a line of shell. A plain call of kfuzz is made in this process, which saves a start of Python.

    One that may run until Ctrl-C is not: nothing would end it.
    """
    if line.startswith("kfuzz ") and not SHELL & set(line) and line.split()[1] not in ENDLESS:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            patch.setattr(os, "environ", environment())
            return kfuzz(*shlex.split(line)[1:])
    words = (shutil.which("bash") or "bash", "-c", line)
    return run_program(*words, code=None, cwd=place, env=environment(), timeout=TIMEOUT_S)


def _problem(command: Command, place: Path) -> str | None:
    """The first problem when the command is run; None where there is none."""
    entry = TABLE.get(command.text, {})
    for program in entry.get("needs", []):
        # clang has its version in its name on some systems.
        named = next(filter(shutil.which, COMPILERS), program) if program == "clang" else program
        require_tool(named, "install it")
    done = _done(entry.get("run", command.text), place)
    told = done.stdout + done.stderr
    if done.returncode != entry.get("exit", 0) or ("Traceback" in told and not entry.get("traceback")):
        return f"{command.text}: exit {done.returncode}: {told[-1500:]}"
    # Progress goes to standard error, and only slow commands have it. A page need not show either.
    slow = done.stdout + PROGRESS.sub("", done.stderr)
    if (
        command.output is not None
        and "run" not in entry
        and not any(shows(command.output, text) for text in (told, slow, done.stdout))
    ):
        return f"{command.text} printed: {told[:3000]}"
    return None


def _pages() -> list[Any]:
    """Each page. ``make test`` has the README alone; slow commands are left to ``make test-nightly``."""
    made = []
    for page in dict.fromkeys(command.page for command in SHOWN):
        run = [command for command in SHOWN if command.page == page and "skip" not in TABLE.get(command.text, {})]
        quick = [command for command in run if "slow" not in TABLE.get(command.text, {})]
        if quick:
            made.append(pytest.param(quick, id=page, marks=[] if page == "README.md" else pytest.mark.full))
        if len(quick) < len(run):
            made.append(pytest.param(run, id=f"{page}-all", marks=pytest.mark.nightly))
    return made


@pytest.mark.parametrize("shown", _pages())
def test_the_commands_of_a_page_run_and_print_what_it_shows(shown: list[Command], place: Path) -> None:
    assert [problem for command in shown if (problem := _problem(command, place))] == []


def test_the_library_examples_of_the_readme_run(place: Path) -> None:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names = {"data": (place / "good.log").read_bytes(), "body": (place / "metadata-body.bin").read_bytes()}
    assert len(blocks) >= 2
    for block in blocks:
        exec(block, names)
