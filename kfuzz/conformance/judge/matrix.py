"""A whole run: asks every testee every case, and compares the answers with the expected outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path

from kfuzz.conformance.judge import expected
from kfuzz.conformance.judge.causes import Cause, causes_of, deviation
from kfuzz.conformance.judge.choice import chosen_keys
from kfuzz.conformance.judge.compare import NOT_ASKED, OUTCOMES, Case, Cell
from kfuzz.conformance.judge.expected import Expectations, Standing
from kfuzz.conformance.judge.runner import Outcome, Stopped, run_cases
from kfuzz.conformance.protocol.building import BuildFailed
from kfuzz.conformance.protocol.lines import Handshake
from kfuzz.conformance.protocol.session import Limits
from kfuzz.conformance.protocol.testees import CHOSEN, DECODER, Testee
from kfuzz.errors import UsageError

Key = tuple[str, str]

_BUILDING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Places:
    """The folders with the files of expected outcomes: the committed ones and those under embargo."""

    expected: Path
    embargo: Path
    # A file of the user's choice with the outcomes of one testee.
    own: Path | None = None

    @classmethod
    def beside(cls, suite: Path, own: Path | None = None) -> Places:
        """The folders that belong to the suite directory ``suite``, or the file ``own`` in their place."""
        return cls(suite / "expected", suite.parent / "embargo", own)

    def load(self, label: str) -> Expectations:
        """The expected outcomes of the testee ``label``."""
        return expected.load_own(label, self.own) if self.own else expected.load(label, self.expected, self.embargo)

    def labels_of(self, name: str) -> list[str]:
        """The versions of the testee ``name`` (as labels) whose outcomes are here, the latest one last."""
        return [] if self.own else expected.labels_in(self.expected, name)


@dataclass(frozen=True, slots=True)
class Column:
    """One testee's column: a cell and its standing per case, or ``broken``, the reason why it could not be asked."""

    name: str
    version: str
    language: str
    cells: Mapping[Key, Cell]
    standings: Mapping[Key, Standing]
    expectations: Expectations
    stale: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    broken: str = ""
    # Why it was not asked to the end, if its time was over.
    stopped: str = ""
    # The report is public, so it must not show withheld outcomes.
    published: bool = False
    # For a working copy: the pinned version (``name@version``) whose outcomes are expected.
    pinned: str = ""
    # As in testee.toml: what was judged, the name of its library, and what the testee does in the library's place.
    kind: str = DECODER
    of: str = ""
    own: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def library(self) -> str:
        """``name@version`` of a library that several testees show; empty if this testee is the library."""
        return f"{self.of}@{self.version}" if self.of not in ("", self.name) else ""

    @property
    def unexpected(self) -> list[Key]:
        """The cases whose outcome fails the run."""
        return [key for key, standing in self.standings.items() if standing.status == "unexpected"]

    @property
    def failed(self) -> bool:
        """Whether this testee fails the run."""
        return bool(self.broken or self.stopped or self.unexpected or self.stale)

    def shown(self, key: Key) -> str:
        """The outcome that the report may show."""
        return "withheld" if self.hides(key) else self.cells[key].outcome

    def hides(self, key: Key) -> bool:
        """Whether the report hides this cell's outcome, text and reason."""
        return self.published and self.standings[key].withheld

    def totals(self) -> dict[str, int]:
        """The number of cells per outcome, in the order of ``OUTCOMES``; outcomes that do not occur are left out."""
        shown = [self.shown(key) for key in self.cells]
        return {outcome: shown.count(outcome) for outcome in OUTCOMES if outcome in shown}


@dataclass(frozen=True)
class Run:
    """The data of a report. It holds no time and no path, so that equal behaviour gives equal reports."""

    cases: tuple[Case, ...]
    testees: tuple[Column, ...]
    # Sentences about testees that were left out because their toolchain is missing.
    dropped: tuple[str, ...]
    interrupted: bool = False

    @cached_property
    def causes(self) -> list[Cause]:
        """The causes of all deviations that the report may show, worst first."""
        found = [
            deviation(testee.label, case, testee.cells[case.key], testee.standings[case.key].status, testee.library)
            for testee in self.testees
            if not testee.broken
            for case in self.cases
            if not testee.hides(case.key)
        ]
        return causes_of(one for one in found if one)

    @property
    def failed(self) -> bool:
        """Whether the run has an unexpected outcome, a stale line, or a broken testee."""
        return any(testee.failed for testee in self.testees)


def run(
    testees: Sequence[Testee],
    cases: Sequence[Case],
    *,
    places: Places,
    whole: bool,
    choose: bool = False,
    jobs: int = 1,
    publish: bool = False,
    limits: Limits | None = None,
    answer_timeout_ms: int | None = None,
    budget_s: float | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
    on_notice: Callable[[str], None] = lambda text: None,
) -> Run:
    """Judge ``testees`` on ``cases``.

    ``whole``: the cases are the whole suite, so that a line of expected outcomes without a case is out of date.
    ``choose``: testees whose ``testee.toml`` says so are asked only about chosen vectors.
    ``publish``: the run's reports withhold crashes, hangs and memory faults that have no public line.
    ``jobs``: how many testees run at the same time.
    ``answer_timeout_ms``: the CPU time for one answer in place of the default.
    ``budget_s``: the time on the clock for each testee, without its build; after it, the testee is asked no more.
    ``on_progress`` gets the number of cells done. ``on_notice`` gets a sentence when a testee keeps the run waiting.
    Both may be called from other threads. After Ctrl-C, the run has what was answered until then.

    ``UsageError`` for a bad file of expected outcomes, for two testees with one command, and if no testee could be
    asked.
    """
    if len({(testee.argv, testee.folder) for testee in testees}) < len(testees):
        raise UsageError("two testees have the same command; name it once")
    dropped = [reason for testee in testees if (reason := testee.missing())]
    present = [testee for testee in testees if not testee.missing()]
    if not present:
        raise UsageError("; ".join(dropped) or "no testee; name one with --testee or --command")
    if answer_timeout_ms is not None:
        limits = replace(limits or Limits(), cpu_ms=answer_timeout_ms, wall_ms=5 * answer_timeout_ms)
    chosen = chosen_keys(cases) if choose else None

    def ask(testee: Testee, on_cell: Callable[[], None]) -> Outcome:
        try:
            # One build at a time: two versions share a folder, and most build tools use all cores already.
            with _BUILDING:
                testee.make_ready()
        except BuildFailed as error:
            return Outcome(broken=str(error))
        return run_cases(
            testee.argv,
            cases,
            cwd=testee.folder,
            limits=limits or Limits(start_ms=testee.start_timeout_ms),
            chosen=chosen if testee.vectors == CHOSEN else None,
            budget_s=budget_s,
            on_cell=on_cell,
            on_notice=on_notice,
        )

    outcomes, interrupted = _each(present, ask, jobs, on_progress)
    columns = [
        _column(testee, outcome, cases, places, whole) for testee, outcome in zip(present, outcomes, strict=True)
    ]
    if interrupted and all(testee.broken for testee in columns):
        raise KeyboardInterrupt
    if all(testee.broken for testee in columns):
        broken = "; ".join(f"{testee.label}: {testee.broken}" for testee in columns)
        raise UsageError(f"{broken}; docs/testee-protocol.md says how a testee starts")
    columns = [replace(testee, published=publish) for testee in _unique(columns)]
    return Run(tuple(cases), tuple(columns), tuple(dropped), interrupted)


def _each(
    testees: Sequence[Testee],
    ask: Callable[[Testee, Callable[[], None]], Outcome],
    jobs: int,
    on_progress: Callable[[int], None],
) -> tuple[list[Outcome], bool]:
    """The outcome of ``ask`` for each testee, ``jobs`` at a time; ``ask`` calls its second argument for each cell.

    Also whether Ctrl-C ended it early: each testee at its next cell.
    """
    lock, stopped, done = threading.Lock(), threading.Event(), count(1)

    def on_cell() -> None:
        with lock:
            if stopped.is_set():
                raise Stopped
            on_progress(next(done))

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(ask, testee, on_cell) for testee in testees]
        try:
            return [future.result() for future in futures], False
        except KeyboardInterrupt:
            stopped.set()
            left = Outcome(broken="the run was interrupted before it was asked")
            return [left if future.cancel() else future.result() for future in futures], True
        except BaseException:
            stopped.set()
            raise


def _column(testee: Testee, outcome: Outcome, cases: Sequence[Case], places: Places, whole: bool) -> Column:
    handshake = outcome.handshake
    if handshake is None:
        broken = Column(testee.name, testee.version, "", {}, {}, Expectations(testee.label), broken=outcome.broken)
        return replace(broken, kind=testee.kind, of=testee.of)
    pinned = "" if testee.pinned is None else _pinned(testee.pinned, handshake, places)
    # The seal does not know what a working copy fixes, so compare as for a partial run.
    whole = whole and not pinned
    # A file of the user's choice says what is expected of any version.
    is_alone = not testee.is_pinned and places.own is None
    # Answers come in another order; the columns have the order of the cases.
    cells = {case.key: outcome.cells[case.key] for case in cases}
    notes = [*outcome.notes]
    if not testee.is_pinned and handshake.version != testee.version:
        notes.append(f"the library says that it is {handshake.version}")
    column = column_of(
        handshake, cells, cases, places=places, whole=whole, notes=notes, pinned=pinned, is_alone=is_alone
    )
    column = replace(column, stopped=outcome.stopped, kind=testee.kind, of=testee.of, own=testee.own)
    return replace(column, version=testee.version) if pinned or not testee.is_pinned else column


def _pinned(testee: Testee, handshake: Handshake, places: Places) -> str:
    """The label of the pinned version. Where its handshake alone would name it, it is the one with expected outcomes,
    because a working copy may have another version.
    """
    if testee.version:
        return testee.label
    known = places.labels_of(testee.name)
    return handshake.label if handshake.label in known or not known else known[-1]


def column_of(
    handshake: Handshake,
    cells: Mapping[Key, Cell],
    cases: Sequence[Case],
    *,
    places: Places,
    whole: bool,
    notes: Sequence[str] = (),
    publish: bool = False,
    pinned: str = "",
    is_alone: bool = False,
) -> Column:
    """The column with these ``cells``, compared with the expected outcomes in ``places``.

    ``whole`` and ``publish`` as for :func:`run`. ``pinned`` is the label of the version that a working copy is compared
    with. ``is_alone``: without expected outcomes, it is compared with nothing, and no outcome fails the run.
    ``UsageError`` for a bad file of expected outcomes.
    """
    expectations = places.load(pinned or handshake.label)
    stale = expected.stale(cases, expectations) if whole else []
    unasked = [cell for cell in cells.values() if cell.outcome == NOT_ASKED]
    # Those for which the time was too short say so.
    left_out = sum(not cell.text for cell in unasked)
    # Only a whole run has all outcomes that the seal covers.
    whole = whole and not unasked
    unsealed = expected.unsealed(cells, expectations) if whole else None
    stale += [unsealed] if unsealed else []
    sealed = unsealed is None if whole else expected.may_be_sealed(cells, expectations)
    sealed = sealed and expectations.seal.count > 0
    guessed = 0 if whole or not sealed else len(expected.withholdable(cells, expectations))
    notes = list(notes)
    if left_out:
        notes.append(f"{left_out} vectors were not asked; --all asks them")
    if guessed:
        notes.append(f"{guessed} of the outcomes are taken for withheld ones; only a whole run can check that")
    is_alone = is_alone and not expectations.exist
    stand = expected.stand_alone if is_alone else expected.stand_beside if pinned else expected.stand
    standings = {case.key: stand(case, cells[case.key], expectations, sealed=sealed) for case in cases}
    if pinned:
        notes.append(_compared_with(handshake, pinned, expectations, places))
        notes += _beside(pinned, cells, standings, expectations)
    elif is_alone:
        notes.append("compared with nothing, because no file has expected outcomes of this version")
    elif not expectations.exist and (others := places.labels_of(handshake.name)):
        file = places.expected / f"{others[-1]}.txt"
        notes.append(f"no file has expected outcomes of this version; --expected {file} compares with {others[-1]}")
    return Column(
        name=handshake.name,
        version=handshake.version,
        language=handshake.language,
        cells=cells,
        standings=standings,
        expectations=expectations,
        stale=tuple(stale),
        notes=tuple(notes),
        published=publish,
        pinned=pinned,
    )


def published(done: Run, places: Places) -> Run:
    """The run as others may see it: reports on it withhold each crash, hang and memory fault without a public line.

    They also leave out every reason that is not that of a public line.

    ``places`` hold the lines, as for :func:`run`. A result that a user keeps knows all outcomes, so what is public is
    looked up again. ``UsageError`` for a bad file of expected outcomes.
    """
    return replace(done, testees=tuple(_published(testee, places.load(testee.label)) for testee in done.testees))


def _published(testee: Column, expectations: Expectations) -> Column:
    # A reason may come from a line under embargo, which a clean clone does not have; that of a public line is public.
    standings = {
        key: replace(
            standing,
            reason=standing.reason if key in expectations.listed else "",
            withheld=expectations.is_secret(key, testee.cells[key]),
        )
        for key, standing in testee.standings.items()
    }
    # The reason why a probe ended early names a vector.
    stopped = testee.stopped and "it was not asked to the end"
    return replace(testee, standings=standings, expectations=expectations, stopped=stopped, published=True)


def _compared_with(handshake: Handshake, pinned: str, expectations: Expectations, places: Places) -> str:
    """A sentence that says whose outcomes a working copy is compared with."""
    if not expectations.exist:
        return f"nothing says what {pinned} does, so every deviation counts as worse"
    whose = f"in {places.own}" if places.own else f"of {pinned}, the pinned version"
    own = "" if handshake.label == pinned else f"; the working copy says that it is {handshake.version}"
    return f"compared with the outcomes {whose}{own}"


def _beside(
    pinned: str, cells: Mapping[Key, Cell], standings: Mapping[Key, Standing], expectations: Expectations
) -> list[str]:
    """Sentences about the outcomes that are not those of the pinned version: worse ones, better ones, a count."""
    if not expectations.exist:
        return []
    changed: dict[str, list[str]] = {"worse": [], "better": []}
    for key, standing in standings.items():
        line = expectations.of(key)
        word = "worse" if standing.status == "unexpected" else "better"
        if word == "worse" or standing.reason.startswith("better"):
            before, now = line.outcome if line else "pass", cells[key].outcome
            changed[word].append(f"{word}: {' '.join(key)} was {before}, is {now}")
    worse, better = changed.values()
    count = f"{len(worse)} worse, {len(better)} better, {len(cells) - len(worse) - len(better)} the same"
    return [*worse, *better, f"beside {pinned}: {count}"]


def _unique(columns: Sequence[Column]) -> list[Column]:
    """The columns with different names. A testee chooses its name, so one that takes another's must not cost the run:
    it counts as one that could not be asked, because its cells and expectations could not be distinguished.
    """
    kept: dict[str, Column] = {}
    for testee in columns:
        name, number = testee.label, 1
        while name in kept:
            number += 1
            name = f"{testee.label}#{number}"
        if number > 1:
            broken = testee.broken or f"another testee has the name {testee.label} too; run them one at a time"
            testee = Column(name, "", testee.language, {}, {}, Expectations(name), broken=broken)
        kept[name] = testee
    return list(kept.values())


def update_expected(done: Run, places: Places) -> list[str]:
    """Rewrite the files of expected outcomes from the whole run ``done``; returns one sentence per testee."""
    said = []
    for testee in done.testees:
        if why := "it could not be asked" if testee.broken else testee.stopped:
            said.append(f"{testee.label}: its file is unchanged, because {why}")
            continue
        listed, embargoed = expected.update(
            done.cases, testee.cells, testee.expectations, places.expected, places.embargo, places.own
        )
        text = f"{testee.label}: {listed} expected outcomes listed"
        if embargoed:
            text += f", {embargoed} withheld in {places.embargo}; move a line once its fault is public"
        said.append(text)
    return said
