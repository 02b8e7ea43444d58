"""Drawn bugs: which changes alter an answer, and which target looks for each."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks import drawn
from kfuzz.fuzz.targets import TARGETS
from tools.mutants.agreeing import MESSAGES, WORK


class Garden:
    """A copy whose answers are in memory; change 2 alters one, change 3 ends the process for another question."""

    on = 0
    folder = Path()

    def call(self, *words: str, timeout_s: float | None = None) -> Any:
        asked = words[3:]
        if self.on == 3 and (not asked or "columns" in asked):
            raise subprocess.CalledProcessError(-11, "python")
        answers = dict.fromkeys(drawn.TARGETS, "usual")
        if self.on == 2:
            answers["messages"] = "other"
        return subprocess.CompletedProcess(words, 0, json.dumps(answers))


class Page:
    def __init__(self, garden: Garden) -> None:
        self.garden = garden

    def turn_on(self, number: int) -> None:
        self.garden.on = number


def test_a_change_that_alters_an_answer_is_given_to_its_target() -> None:
    garden: Any = Garden()
    page: Any = Page(garden)
    changes: Any = dict.fromkeys((1, 2, 3))
    assert list(drawn.altering(garden, changes, page)) == [(2, "messages"), (3, "columns")]


def test_every_answer_has_a_target() -> None:
    assert {*WORK, MESSAGES} == set(drawn.TARGETS)
    assert set(drawn.TARGETS.values()) <= set(TARGETS)
    assert all(any(Path(drawn.ROOT).glob(pattern)) for pattern in drawn.DECODERS)
