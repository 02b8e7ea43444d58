"""One process answers tens of thousands of questions. Over the second half of them, its memory does not grow."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from conftest import the_testee

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
# Resident memory may grow so much over the second half. The broker of a whole client collects its garbage late, and so
# do these languages.
GROWTH_BYTES_MAX = {"decoder": 1 << 20, "client": 8 << 20}
LATE = {"java", "go", "javascript"}
LATE_GROWTH_BYTES_MAX = 24 << 20
# A pool of threads may grow so much while system calls take long. A leak would be one thread a question or so.
THREADS_GROWTH_MAX = 8
# A connection of the last question may still be closing. A leak would be one handle a question or so.
HANDLES_GROWTH_MAX = 4
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
# CPython may have so many blocks more: one for each thirty questions of a decoder.
BLOCKS_GROWTH_MAX = 1000


class Held(NamedTuple):
    """The resources of a process and all its descendants."""

    resident_bytes: int
    handles: int
    threads: int

    @classmethod
    def by(cls, process: psutil.Process) -> Held:
        tree = [process, *process.children(recursive=True)]
        return cls(
            sum(one.memory_info().rss for one in tree),
            sum(one.num_fds() for one in tree),
            sum(one.num_threads() for one in tree),
        )

    @classmethod
    def least(cls, parts: list[Held]) -> Held:
        """The least of each resource in several parts of a run: the rest was garbage."""
        return cls(*map(min, zip(*parts, strict=True)))


def count_blocks(process: psutil.Process, file: Path) -> int:
    """How many blocks CPython has allocated in a process that runs ``COUNTING`` with an empty ``file``."""
    file.write_text("")
    process.send_signal(signal.SIGUSR1)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if (found := file.read_text()).endswith("\n"):
            return int(found)
        time.sleep(0.01)
    raise AssertionError("the testee did not count its blocks")


def questions(cases: tuple[Case, ...], rounds: int) -> Iterator[Question[Case]]:
    for number in range(rounds * len(cases)):
        case = cases[number % len(cases)]
        yield Question(request(case), case)


def is_script(testee: Testee) -> bool:
    """Whether this Python runs the testee."""
    python, *words = testee.argv
    return python == sys.executable and words[0].endswith(".py")


def asked(peer: TesteeProcess, cases: tuple[Case, ...], rounds: int) -> dict[str, set[str]]:
    """The outcomes of each vector."""
    outcomes: dict[str, set[str]] = {case.vector.id: set() for case in cases}
    for question, result in peer.answers(questions(cases, rounds)):
        outcomes[question.about.vector.id].add(result.outcome)
    return outcomes


@pytest.mark.parametrize("name", sorted({one.name for one in all_testees()} - {"kcat"}))
def test_a_testee_holds_no_more_after_all_questions_than_after_half_of_them(name: str, tmp_path: Path) -> None:
    testee = the_testee(name)
    testee.make_ready()
    counts = is_script(testee)
    blocks = tmp_path / "blocks"
    argv = [testee.argv[0], "-c", COUNTING, str(blocks), *testee.argv[1:]] if counts else testee.argv
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
        for part in range(1, PARTS + 1):
            outcomes = asked(peer, cases, ROUNDS[testee.kind] // PARTS)
            # The same question has the same answer each time.
            assert {vector: len(each) for vector, each in outcomes.items()} == dict.fromkeys(outcomes, 1)
            if part >= PARTS // 2:
                held.append(Held.by(process))
            if counts and part in (PARTS // 2, PARTS):
                counted.append(count_blocks(process, blocks))
        assert process.is_running()
    first, last = Held.least(held[:3]), Held.least(held[-3:])
    assert last.handles - first.handles <= HANDLES_GROWTH_MAX
    assert last.threads - first.threads <= THREADS_GROWTH_MAX
    is_late = peer.handshake.language in LATE
    growth_bytes_max = LATE_GROWTH_BYTES_MAX if is_late else GROWTH_BYTES_MAX[testee.kind]
    assert last.resident_bytes - first.resident_bytes <= growth_bytes_max
    if counts:
        assert counted[1] - counted[0] <= BLOCKS_GROWTH_MAX
