"""Runs one testee on its cases: sends ahead, finds the case that broke the testee, restarts the testee and goes on.

A session that breaks does not show which request broke it. So the case that was being answered runs again, alone in a
fresh process. If it does no harm there, every other case that was in flight runs alone too, until one breaks its
process. That case is to blame, and the untried ones go back into the queue.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kfuzz.conformance.judge.compare import NOT_ASKED, Case, Cell, declared_unsupported, judge, request
from kfuzz.conformance.judge.harm import HARM_OF
from kfuzz.conformance.protocol.pipeline import Pipeline, Result, ask
from kfuzz.conformance.protocol.session import (
    RESIDENT_SLACK_BYTES,
    Budget,
    Limits,
    NoHandshake,
    Session,
    Trouble,
    over_memory,
)
from kfuzz.conformance.protocol.words import STALLED, Answer, Handshake

__all__ = ["Outcome", "run_cases"]

Key = tuple[str, str]


@dataclass(slots=True)
class Outcome:
    """One testee's results: its handshake and a cell per case, or ``broken``, the reason why it did not start."""

    handshake: Handshake | None = None
    cells: dict[Key, Cell] = field(default_factory=dict)
    broken: str = ""
    # A sentence that says that the testee's time was over before all questions were asked.
    stopped: str = ""
    # Remarks about the whole run that belong to no single cell.
    notes: list[str] = field(default_factory=list)


def run_cases(
    argv: Sequence[str],
    cases: Iterable[Case],
    *,
    cwd: Path | None = None,
    limits: Limits | None = None,
    chosen: Collection[Key] | None = None,
    budget_s: float | None = None,
    on_cell: Callable[[], None] = lambda: None,
    on_notice: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Ask the testee ``argv`` every case; ``on_cell`` is called once per cell. Nothing a testee does makes this raise.

    If ``chosen`` is given, only the cases with these keys are asked. After ``budget_s`` seconds on the clock, no more
    are asked.
    If the handshake takes more than two seconds, ``on_notice`` is called with a sentence.
    """
    runner = _Runner(argv, cwd, limits or Limits(), budget_s, on_cell, on_notice)
    try:
        runner.run(list(cases), chosen)
    except NoHandshake as error:
        runner.outcome.broken = str(error)
    return runner.outcome


class _Runner:
    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path | None,
        limits: Limits,
        budget_s: float | None,
        on_cell: Callable[[], None],
        on_notice: Callable[[str], None],
    ) -> None:
        self.argv = argv
        self.cwd = cwd
        self.limits = limits
        self.budget_s = budget_s
        self.until_s = float("inf") if budget_s is None else time.monotonic() + budget_s
        self.on_cell = on_cell
        self.on_notice = on_notice
        self.outcome = Outcome()
        self.stalled: set[Key] = set()
        self.handshake: Handshake

    def run(self, cases: list[Case], chosen: Collection[Key] | None) -> None:
        with self._session() as session:
            self.handshake = self.outcome.handshake = session.start(self.limits, self.on_notice)
            asked = self._declare(cases, chosen)
            crowd = deque(case for case in asked if not case.vector.budget)
            self._stream(session, crowd)
        # Cases with a budget of their own run one at a time, so that each can be measured.
        measured = deque(case for case in asked if case.vector.budget)
        doubtful: deque[Case] = deque()
        self._work_through(crowd, self._stream)
        self._work_through(measured, lambda session, queue: self._one_by_one(session, queue, doubtful))
        self._settle_doubtful(doubtful)
        self._leave_out(asked)

    def _leave_out(self, asked: Sequence[Case]) -> None:
        """Settle those of the cases for which there was no time."""
        left = [case for case in asked if case.key not in self.outcome.cells]
        for case in left:
            self._settle(case, Cell(NOT_ASKED, f"the budget of {self.budget_s:g} s was over"))
        if left:
            done = len(asked) - len(left)
            self.outcome.stopped = f"its budget of {self.budget_s:g} s was over after {done} of {len(asked)} questions"

    def _is_over(self) -> bool:
        """Whether the testee's time is over. From then on, a trouble may only mean that there was no time to wait."""
        return time.monotonic() >= self.until_s

    @property
    def _left_ms(self) -> int:
        return int(min(max(self.until_s - time.monotonic(), 0.0) * 1000, 1 << 40)) + 1

    def _work_through(self, queue: deque[Case], work: Callable[[Session, deque[Case]], None]) -> None:
        """Run ``work`` on ``queue`` until it is empty, with a new session each time that one breaks."""
        while queue and not self._is_over():
            with self._session() as session:
                try:
                    self._start_again(session)
                except NoHandshake as error:
                    if self._is_over():
                        return
                    self._settle(queue.popleft(), Cell("crash", f"did not start again: {error}", HARM_OF["crash"]))
                    continue
                work(session, queue)

    def _start_again(self, session: Session) -> None:
        session.start(replace(self.limits, start_ms=min(self.limits.start_ms, self._left_ms)))

    def _session(self, java_budget_bytes: int | None = None) -> Session:
        return Session(self.argv, cwd=self.cwd, java_budget_bytes=java_budget_bytes)

    def _declare(self, cases: list[Case], chosen: Collection[Key] | None) -> list[Case]:
        """Settle the cases that the handshake declares unsupported or that are not chosen; return the others."""
        asked = []
        for case in cases:
            if why := declared_unsupported(case, self.handshake):
                self._settle(case, Cell("unsupported", why, declared=True))
            elif chosen is not None and case.key not in chosen:
                self._settle(case, Cell(NOT_ASKED))
            else:
                asked.append(case)
        return asked

    def _settle(self, case: Case, cell: Cell) -> None:
        new = case.key not in self.outcome.cells
        self.outcome.cells[case.key] = cell
        if new:
            self.on_cell()

    def _judge(self, case: Case, result: Result) -> None:
        if isinstance(result, Answer) and result.outcome == STALLED and case.key not in self.stalled:
            # On a busy machine, waiting can look like a stall: only one that is seen twice counts.
            self.stalled.add(case.key)
            result = self._trial(case)
        most_bytes = self._memory_bytes(case)
        if isinstance(result, Answer) and (result.allocated_bytes or 0) > most_bytes:
            # Untouched pages are not resident, so only the testee can report them.
            result = over_memory(most_bytes, result.allocated_at)
        if isinstance(result, Trouble) and self._is_over():
            return
        if isinstance(result, Trouble):
            answer = {"at": result.at} if result.at else {}
            self._settle(case, Cell(result.outcome, result.text, HARM_OF[result.outcome], answer=answer))
        else:
            self._settle(case, judge(case, self.handshake, result))

    # --- many requests in flight -------------------------------------------------------------------------------------

    def _stream(self, session: Session, queue: deque[Case]) -> None:
        """Work through ``queue`` with up to 64 requests ahead, until it is empty or the session breaks."""
        pipeline: Pipeline[Case] = Pipeline(session, self._budget)
        before: list[Case] = []
        for case, result in pipeline.answers(self._taken(queue)):
            if self._is_over():
                session.kill()
                queue.extendleft(reversed(pipeline.waiting))
                if isinstance(result, Answer):
                    self._judge(case, result)
                return
            if isinstance(result, Trouble):
                session.kill()
                # A surplus answer is noticed only when the next one is due, so the case before is a suspect too.
                also = before if result.outcome == "protocol-error" else []
                _, *rest = pipeline.waiting
                queue.extendleft(reversed(self._blame([case, *also, *rest], result)))
                return
            before = [case]
            self._judge(case, result)

    def _blame(self, suspects: Sequence[Case], trouble: Trouble) -> list[Case]:
        """Run the suspects alone, in order, until one breaks its process; settle those and return the untried ones."""
        for index, case in enumerate(suspects):
            if self._is_over():
                return [other for other in suspects[index:] if other.key not in self.outcome.cells]
            result = self._alone(case, trouble)
            self._judge(case, result)
            if isinstance(result, Trouble):
                return [other for other in suspects[index + 1 :] if other.key not in self.outcome.cells]
        self.outcome.notes.append(
            f"a process {trouble.deed} with {len(suspects)} requests in flight, {suspects[0].vector.id} first; "
            "each was asked again alone, and none of them did it again"
        )
        return []

    # --- measured ----------------------------------------------------------------------------------------------------

    def _one_by_one(self, session: Session, queue: deque[Case], doubtful: deque[Case]) -> None:
        """Ask the cases of ``queue``, each under its memory budget, until it is empty or the session breaks."""
        while queue and not self._is_over():
            case = queue.popleft()
            result = self._ask_under_limit(session, case)
            if isinstance(result, Trouble):
                session.kill()
                self._judge(case, self._under_limit(case))
                return
            if result.outcome == "fault":
                doubtful.append(case)
            else:
                self._judge(case, result)

    def _settle_doubtful(self, cases: deque[Case]) -> None:
        """Ask cases that gave a fault under a memory limit again without one.

        A case that passes or fails now probably lacked memory, so it runs once more, alone and under the limit.
        """
        asked = list(cases)
        self._work_through(cases, self._stream)
        for case in asked:
            cell = self.outcome.cells.get(case.key)
            if cell and cell.outcome in ("pass", "fail") and not self._is_over():
                self._judge(case, self._under_limit(case))

    def _ask_under_limit(self, session: Session, case: Case) -> Result:
        """The answer to ``case`` under a memory limit; if no limit can be set, memory use is measured instead."""
        budget_bytes = self._memory_bytes(case)
        # Java maps its heap in advance. Only -Xmx limits it, and only when a process starts.
        bounded = self.handshake.language != "java" and session.limit_address_space(budget_bytes)
        session.reset_peak()
        result = self._ask(session, case)
        if isinstance(result, Trouble):
            return result
        if result.allocated_bytes is not None:
            over = result.allocated_bytes > budget_bytes
        else:
            over = not bounded and session.peak_growth_bytes() > budget_bytes + RESIDENT_SLACK_BYTES
        return over_memory(budget_bytes, result.allocated_at) if over else result

    # --- alone -------------------------------------------------------------------------------------------------------

    def _alone(self, case: Case, suspicion: Trouble) -> Result:
        """Run the case in a process of its own."""
        return self._under_limit(case) if suspicion.outcome == "memory" else self._trial(case)

    def _under_limit(self, case: Case) -> Result:
        """Run the case alone under its memory budget; a failure only with that limit becomes a memory fault."""
        bounded = self._trial(case, bounded=True)
        if not _may_be_memory(bounded):
            return bounded
        free = self._trial(case)
        if isinstance(free, Trouble) and free.outcome == "memory":
            # Without the limit the testee is killed and says nothing. With it, it may have said where it failed.
            return replace(free, at=free.at or bounded.at)
        if _may_be_memory(free) or isinstance(free, Trouble):
            return free
        return over_memory(self._memory_bytes(case), bounded.at)

    def _trial(self, case: Case, *, bounded: bool = False) -> Result:
        with self._session(self._memory_bytes(case) if bounded else None) as session:
            try:
                self._start_again(session)
            except NoHandshake as error:
                return Trouble("crash", f"did not start again: {error}")
            if bounded:
                result = self._ask_under_limit(session, case)
            else:
                result = self._ask(session, case)
            if not isinstance(result, Trouble) and session.finish():
                return Trouble("protocol-error", "printed more than one line for one request")
            return result

    # --- one answer --------------------------------------------------------------------------------------------------

    def _ask(self, session: Session, case: Case) -> Result:
        return ask(session, request(case), self._budget(case))

    def _taken(self, queue: deque[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
        """Take the cases from ``queue`` one by one, each with its request, as long as there is time."""
        while queue and not self._is_over():
            case = queue.popleft()
            yield case, request(case)

    def _budget(self, case: Case) -> Budget:
        budget = self.limits.budget(case.vector.budget)
        return replace(budget, wall_ms=min(budget.wall_ms, self._left_ms))

    def _memory_bytes(self, case: Case) -> int:
        stated = case.vector.budget or {}
        return stated.get("memory_bytes", self.limits.memory_bytes)


def _may_be_memory(result: Result) -> bool:
    """Whether a lack of memory can have this result."""
    if isinstance(result, Trouble):
        return result.outcome in ("crash", "memory")
    return result.outcome == "fault"
