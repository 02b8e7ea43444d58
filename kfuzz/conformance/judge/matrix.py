"""A whole run: every testee over every case, against what is expected of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from kfuzz.conformance.judge import expected
from kfuzz.conformance.judge.compare import OUTCOMES, Case, Cell
from kfuzz.conformance.judge.expected import Expectations, Standing
from kfuzz.conformance.judge.runner import Outcome, run_cases
from kfuzz.conformance.protocol.session import Limits
from kfuzz.conformance.protocol.testees import BuildFailed, Testee
from kfuzz.errors import UsageError

__all__ = ["Judged", "Places", "Run", "run", "update_expected"]

Key = tuple[str, str]

_BUILDING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Places:
    """Where the files of expected outcomes are: the committed ones, and those under embargo."""

    expected: Path
    embargo: Path

    @classmethod
    def beside(cls, suite: Path) -> Places:
        """The places that belong to the suite directory ``suite``."""
        return cls(suite / "expected", suite.parent / "embargo")


@dataclass(frozen=True, slots=True)
class Judged:
    """One testee's column: a cell and its standing for each case, or ``broken``, why it could not be asked anything."""

    name: str
    version: str
    language: str
    cells: Mapping[Key, Cell]
    standings: Mapping[Key, Standing]
    expectations: Expectations
    stale: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    broken: str = ""
    # For readers who may not know of what is withheld.
    published: bool = False

    @property
    def label(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def unexpected(self) -> list[Key]:
        """The cases whose outcome fails the run."""
        return [key for key, standing in self.standings.items() if standing.status == "unexpected"]

    @property
    def failed(self) -> bool:
        """Whether this testee fails the run."""
        return bool(self.broken or self.unexpected or self.stale)

    def shown(self, key: Key) -> str:
        """The outcome as a reader may see it."""
        return "withheld" if self.hides(key) else self.cells[key].outcome

    def hides(self, key: Key) -> bool:
        """Whether outcome, words and reason of this cell are kept from the reader."""
        return self.published and self.standings[key].withheld

    def totals(self) -> dict[str, int]:
        """How many cells have each outcome, in the order of ``OUTCOMES``; outcomes that do not occur are left out."""
        shown = [self.shown(key) for key in self.cells]
        return {outcome: shown.count(outcome) for outcome in OUTCOMES if outcome in shown}


@dataclass(frozen=True, slots=True)
class Run:
    """What a report is made of. It holds no time and no path, so that equal behaviour gives equal reports."""

    cases: tuple[Case, ...]
    testees: tuple[Judged, ...]
    # Sentences about testees that could not be asked for want of a toolchain.
    dropped: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether any outcome was not as expected."""
        return any(testee.failed for testee in self.testees)


def run(
    testees: Sequence[Testee],
    cases: Sequence[Case],
    *,
    places: Places,
    whole: bool,
    jobs: int = 1,
    publish: bool = False,
    limits: Limits | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
    on_notice: Callable[[str], None] = lambda text: None,
) -> Run:
    """Judge ``testees`` on ``cases``.

    ``whole`` says that the cases are all there are, so that a line of expected outcomes without a case is out of date.
    ``publish`` makes a run whose reports withhold crashes, hangs and memory faults that no public line tells of.
    ``jobs`` testees run at the same time. ``on_progress`` is told how many cells are done, and
    ``on_notice`` a sentence where a testee keeps the run waiting; both may be called from other threads. Raises
    ``UsageError`` for a file of expected outcomes that cannot be read, and when not one testee could be asked.
    """
    dropped = [reason for testee in testees if (reason := testee.missing())]
    present = [testee for testee in testees if not testee.missing()]
    if not present:
        raise UsageError("; ".join(dropped) or "no testee; name one with --testee or --command")
    tally = _Tally(on_progress)
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(_ask, testee, cases, limits, tally.add, on_notice) for testee in present]
        try:
            outcomes = [future.result() for future in futures]
        except BaseException:
            # An interrupt must not wait for testees to finish.
            tally.stop()
            raise
    judged = [_judged(testee, outcome, cases, places, whole) for testee, outcome in zip(present, outcomes, strict=True)]
    if all(testee.broken for testee in judged):
        broken = "; ".join(f"{testee.label}: {testee.broken}" for testee in judged)
        raise UsageError(f"{broken}; docs/testee-protocol.md says how a testee begins")
    judged = [replace(testee, published=publish) for testee in _unique(judged)]
    return Run(tuple(cases), tuple(judged), tuple(dropped))


class _Stopped(Exception):
    """The run was interrupted; ends a testee's thread at its next cell."""


class _Tally:
    """Counts cells from several threads, and ends them when the run is interrupted."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self.tell = tell
        self.done = 0
        self.lock = threading.Lock()
        self.stopped = False

    def add(self) -> None:
        with self.lock:
            if self.stopped:
                raise _Stopped
            self.done += 1
            self.tell(self.done)

    def stop(self) -> None:
        with self.lock:
            self.stopped = True


def _ask(
    testee: Testee,
    cases: Sequence[Case],
    limits: Limits | None,
    on_cell: Callable[[], None],
    on_notice: Callable[[str], None],
) -> Outcome:
    try:
        # Two versions share a folder, and most build tools use every core by themselves.
        with _BUILDING:
            testee.make_ready()
    except BuildFailed as error:
        return Outcome(broken=str(error))
    limits = limits or Limits(start_ms=testee.start_timeout_ms)
    return run_cases(testee.argv, cases, cwd=testee.folder, limits=limits, on_cell=on_cell, on_notice=on_notice)


def _judged(testee: Testee, outcome: Outcome, cases: Sequence[Case], places: Places, whole: bool) -> Judged:
    handshake = outcome.handshake
    if handshake is None:
        return Judged(testee.name, testee.version, "", {}, {}, Expectations(testee.label), broken=outcome.broken)
    expectations = expected.load(handshake.label, places.expected, places.embargo)
    # In the order of the cases, whatever order they were answered in.
    cells = {case.key: outcome.cells[case.key] for case in cases}
    # Only a whole run has all that is under the seal.
    unsealed = expected.unsealed(cells, expectations) if whole else None
    stale = [*expected.stale(cases, expectations), *([unsealed] if unsealed else [])] if whole else []
    sealed = unsealed is None if whole else expected.may_be_sealed(cells, expectations)
    sealed = sealed and expectations.seal.count > 0
    guessed = 0 if whole or not sealed else len(expected.withholdable(cells, expectations))
    notes = list(outcome.notes)
    if guessed:
        notes.append(f"{guessed} of the outcomes pass for withheld ones; only a whole run can tell")
    return Judged(
        name=handshake.name,
        version=handshake.version,
        language=handshake.language,
        cells=cells,
        standings={case.key: expected.stand(case, cells[case.key], expectations, sealed=sealed) for case in cases},
        expectations=expectations,
        stale=tuple(stale),
        notes=tuple(notes),
    )


def _unique(judged: Sequence[Judged]) -> Sequence[Judged]:
    """Refuse two columns of one name: their cells and expectations could not be told apart."""
    seen: set[str] = set()
    for testee in judged:
        if testee.label in seen:
            raise UsageError(f"two testees call themselves {testee.label}; run them one at a time")
        seen.add(testee.label)
    return judged


def update_expected(done: Run, places: Places) -> list[str]:
    """Rewrite the files of expected outcomes to what the whole run ``done`` has found; returns a sentence each."""
    said = []
    for testee in done.testees:
        if testee.broken:
            said.append(f"{testee.label}: left as it was, for it could not be asked")
            continue
        listed, embargoed = expected.update(
            done.cases, testee.cells, testee.expectations, places.expected, places.embargo
        )
        text = f"{testee.label}: {listed} expected outcomes listed"
        if embargoed:
            text += f", {embargoed} withheld in {places.embargo}; move a line once the maintainers know of it"
        said.append(text)
    return said
