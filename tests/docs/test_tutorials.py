"""Every tutorial works word for word: its files are saved, its changes made, its commands run, in one folder."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from conformance.conversation import SETTINGS
from conftest import require_tool
from docs.following import Step, follow, steps
from docs.pages import ROOT

from kfuzz.conformance.broker.real import Broker
from kfuzz.fuzz.building import COMPILERS

TUTORIALS: Final = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BROKER: Final = "127.0.0.1:9092"


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
    made = steps(page.read_text())
    assert sum(step.language == "console" for step in made) >= 3
    with programs(made, tmp_path) as at_hand:
        for step in made:
            follow(step._replace(block=at_hand(step.block)), tmp_path)
