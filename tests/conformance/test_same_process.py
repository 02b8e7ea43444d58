"""The same process again: after tens of thousands of questions, a testee holds no more than it held in the middle."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from conftest import missing

from kfuzz.conformance.judge.compare import Case, cases_of, request
from kfuzz.conformance.protocol.peer import Question, TesteeProcess
from kfuzz.conformance.protocol.session import Limits
from kfuzz.conformance.protocol.testees import Testee, all_testees
from kfuzz.vectors import load_suite

pytestmark = pytest.mark.nightly

# A header without a value, a compressed batch, and the first of these batches that the testee rejects. After anything
# but a rejection, the kit of the whole clients starts their process again.
ACCEPTED = ("records/v2/headers/null-value", "records/v2/codec/gzip")
REFUSED = (
    "records/v2/codec/gzip-garbage",
    "records/v2/count/negative-two",
    "records/framing/magic-3",
    "records/v2/codec/gzip-cut",
)
# How often each is asked. A whole client needs an hour for 20,000: `make campaign` does that.
ROUNDS = {"decoder": 20_000, "client": 20_000 if os.environ.get("KFUZZ_CAMPAIGN") == "1" else 100}
PARTS = 20
# May come in the second half: garbage of the broker's connections, and heaps that are collected later.
GROWTH_BYTES = {"decoder": 1 << 20, "client": 8 << 20}
HEAPS = {"java", "go", "javascript"}
GROWTH_OF_HEAPS_BYTES = 24 << 20
# CPython counts its blocks when it gets this signal, and writes the number into a file.
COUNTING = """
import gc, runpy, signal, sys
file, *sys.argv = sys.argv[1:]
def count(number, frame):
    gc.collect()
    with open(file, "a") as out:
        print(sys.getallocatedblocks(), file=out)
signal.signal(signal.SIGUSR1, count)
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# One in thirty questions.
BLOCKS = 1000


class Held(NamedTuple):
    """All processes of a testee hold this much."""

    resident_bytes: int
    handles: int
    threads: int


@dataclass
class Watched:
    """A testee's process, and the file of its counts of blocks, if CPython runs it."""

    process: psutil.Process
    blocks: Path | None

    def held(self) -> Held:
        tree = [self.process, *self.process.children(recursive=True)]
        return Held(
            sum(one.memory_info().rss for one in tree),
            sum(one.num_fds() for one in tree),
            sum(one.num_threads() for one in tree),
        )

    def counted(self) -> int:
        """How many blocks CPython has allocated."""
        assert self.blocks is not None
        before = len(self.blocks.read_text().split()) if self.blocks.exists() else 0
        self.process.send_signal(signal.SIGUSR1)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = self.blocks.read_text().split() if self.blocks.exists() else []
            if len(found) > before:
                return int(found[-1])
            time.sleep(0.01)
        raise AssertionError("the testee did not count its blocks")


def questions(cases: tuple[Case, ...], rounds: int) -> Iterator[Question[Case]]:
    for number in range(rounds * len(cases)):
        case = cases[number % len(cases)]
        yield Question(request(case), case)


def argv_of(testee: Testee, blocks: Path) -> tuple[list[str], Path | None]:
    """How to start a testee, so that it counts its blocks if it is a program for CPython."""
    python, *rest = testee.argv
    if python == sys.executable and rest and rest[0].endswith(".py"):
        return [python, "-c", COUNTING, str(blocks), *rest], blocks
    return [python, *rest], None


def asked(peer: TesteeProcess, cases: tuple[Case, ...], rounds: int) -> dict[str, set[str]]:
    """The outcomes of each vector."""
    outcomes: dict[str, set[str]] = {case.vector.id: set() for case in cases}
    for question, result in peer.answers(questions(cases, rounds)):
        outcomes[question.about.vector.id].add(result.outcome)
    return outcomes


@pytest.mark.parametrize("name", sorted({one.name for one in all_testees()} - {"kcat"}))
def test_a_testee_holds_no_more_after_all_questions_than_after_half_of_them(name: str, tmp_path: Path) -> None:
    testee = next(one for one in all_testees() if one.name == name)
    if reason := testee.missing():
        missing(reason, "install it")
    testee.make_ready()
    argv, blocks = argv_of(testee, tmp_path / "blocks")
    limits = Limits(start_ms=testee.start_timeout_ms)
    held: list[Held] = []
    counted: list[int] = []
    with TesteeProcess(argv, cwd=testee.folder, limits=limits) as peer:
        tried = asked(peer, cases_of(load_suite(REFUSED), ("consumer",)), 1)
    refused = next((vector for vector in REFUSED if tried[vector] == {"rejected"}), None)
    cases = cases_of(load_suite([*ACCEPTED, *([refused] if refused else [])]), ("consumer",))
    before = set(psutil.Process().children())
    with TesteeProcess(argv, cwd=testee.folder, limits=limits) as peer:
        (process,) = set(psutil.Process().children()) - before
        watched = Watched(process, blocks)
        for part in range(1, PARTS + 1):
            outcomes = asked(peer, cases, ROUNDS[testee.kind] // PARTS)
            # The same question has the same answer each time.
            assert {vector: len(each) for vector, each in outcomes.items()} == dict.fromkeys(outcomes, 1)
            if part >= PARTS // 2:
                held.append(watched.held())
            if blocks is not None and part in (PARTS // 2, PARTS):
                counted.append(watched.counted())
        assert process.is_running()
    # The least of the first three parts and of the last three: what a collection leaves.
    first, last = Held(*map(min, zip(*held[:3], strict=True))), Held(*map(min, zip(*held[-3:], strict=True)))
    assert last.handles <= first.handles
    assert last.threads <= first.threads
    is_heap = peer.handshake.language in HEAPS
    growth_max_bytes = GROWTH_OF_HEAPS_BYTES if is_heap else GROWTH_BYTES[testee.kind]
    assert last.resident_bytes - first.resident_bytes <= growth_max_bytes
    if counted:
        assert counted[1] - counted[0] <= BLOCKS
