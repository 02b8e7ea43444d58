"""Two processes write the same segment at the same time, one step at a time, in every order that matters."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from conftest import counts

from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.workload import KIB, Topic, Transactions, Workload

TOPIC = replace(Topic("t"), transactions=Transactions(share=0.5, abort_share=0.5))
WORKLOAD = Workload(topics=(TOPIC,), size=128 * KIB, segment_bytes=128 * KIB)
FILES = 4
WAIT_S = 60


def attempt(gate: Connection, name: str, out: Path) -> None:
    """Write the segment in a process of its own. Before each change of a file, tell the step and wait for leave."""

    def stepped(step: str) -> None:
        real: Callable[..., Any] = getattr(os, step)

        def wait(*arguments: Any, **options: Any) -> Any:
            if gate.closed:
                return real(*arguments, **options)
            gate.send(step)
            gate.recv()
            return real(*arguments, **options)

        setattr(os, step, wait)

    for step in ("fsync", "replace", "unlink"):
        stepped(step)
    row = write_segment(Plan(WORKLOAD)[0], 0, WORKLOAD, out, name)
    gate.send(row)
    gate.close()


class Attempt:
    """A process that writes the segment; ``step`` lets it go on until it waits again."""

    def __init__(self, name: str, out: Path) -> None:
        context = multiprocessing.get_context("fork")
        self.gate, inner = context.Pipe()
        self.process = context.Process(target=attempt, args=(inner, name, out))
        self.process.start()
        inner.close()
        self.row: Any = None
        self.waits = self._heard()

    def _heard(self) -> str | None:
        assert self.gate.poll(WAIT_S), "the attempt does not move"
        said = self.gate.recv()
        if isinstance(said, str):
            return said
        self.row = said
        return None

    def step(self) -> None:
        self.gate.send(True)
        self.waits = self._heard()

    def kill(self) -> None:
        self.process.kill()
        self.process.join(WAIT_S)
        self.waits = None


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, str]]:
    """The row and the files as one attempt makes them."""
    out = tmp_path_factory.mktemp("alone")
    row = write_segment(Plan(WORKLOAD)[0], 0, WORKLOAD, out, "alone")
    files = visible(out)
    assert len(files) == FILES
    return row, files


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Attempt, Attempt]]:
    pair = Attempt("one", tmp_path), Attempt("two", tmp_path)
    yield pair
    for one in pair:
        one.kill()
        one.gate.close()


def visible(out: Path) -> dict[str, str]:
    """The files under their final names."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in out.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def must_be_whole(out: Path, files: dict[str, str]) -> None:
    """No file under a final name is half-written, and a log has its indexes."""
    seen = visible(out)
    assert seen.items() <= files.items()
    assert seen == files or not any(name.endswith(".log") for name in seen)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rounds", counts(2, 40))
def test_two_attempts_in_any_order_of_their_steps_leave_the_same_files_and_rows(
    expected: tuple[Any, dict[str, str]], tmp_path: Path, seed: int, rounds: int
) -> None:
    row, files = expected
    rng = random.Random(seed)
    for number in range(rounds):
        out = tmp_path / str(number)
        pair = [Attempt("one", out), Attempt("two", out)]
        while moving := [one for one in pair if one.waits]:
            rng.choice(moving).step()
            must_be_whole(out, files)
        assert [one.row for one in pair] == [row, row]
        assert visible(out) == files
        assert [path for path in out.rglob("*") if path.name.endswith(".tmp")] == []


@pytest.mark.parametrize("steps", [*range(2 * FILES + 1)])
def test_an_attempt_that_dies_at_any_step_does_not_disturb_the_other(
    two: tuple[Attempt, Attempt], expected: tuple[Any, dict[str, str]], tmp_path: Path, steps: int
) -> None:
    row, files = expected
    dying, other = two
    for _ in range(steps):
        dying.step()
        other.step()
        must_be_whole(tmp_path, files)
    dying.kill()
    while other.waits:
        other.step()
        must_be_whole(tmp_path, files)
    assert other.row == row
    assert visible(tmp_path) == files


def test_a_late_attempt_that_comes_back_after_the_other_changes_nothing(
    two: tuple[Attempt, Attempt], expected: tuple[Any, dict[str, str]], tmp_path: Path
) -> None:
    row, files = expected
    late, other = two
    while late.waits == "fsync":
        late.step()
    # All its bytes are there under temporary names, and none has its final name.
    assert visible(tmp_path) == {}
    while other.waits:
        other.step()
    assert visible(tmp_path) == files
    while late.waits:
        late.step()
        # Each file that it renames replaces an equal one.
        assert visible(tmp_path) == files
    assert late.row == row
