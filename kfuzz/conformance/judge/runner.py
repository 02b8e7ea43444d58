"""Asks one peer about cases, and judges its answers: the loop for testees, brokers and clients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kfuzz.conformance.judge.compare import NOT_ASKED, Case, Cell, declared_unsupported, judge, request
from kfuzz.conformance.judge.harm import HARM_OF
from kfuzz.conformance.protocol.lines import Handshake
from kfuzz.conformance.protocol.peer import Peer, Question, Result, TesteeProcess
from kfuzz.conformance.protocol.session import Limits, NoHandshake, Trouble

Key = tuple[str, str]
R = TypeVar("R")


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


class Stopped(Exception):
    """Raised by ``on_cell`` to end a run early."""


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
    ``on_cell`` may raise :class:`Stopped`: then no more are asked.

    If ``chosen`` is given, only the cases with these keys are asked. After ``budget_s`` seconds on the clock, no more
    are asked.
    If the handshake takes more than two seconds, ``on_notice`` is called with a sentence.
    """
    cases = list(cases)
    outcome, over = Outcome(), "" if budget_s is None else f"its budget of {budget_s:g} s was over"

    def settle(case: Case, cell: Cell) -> None:
        outcome.cells[case.key] = cell
        on_cell()

    try:
        with TesteeProcess(argv, cwd=cwd, limits=limits, budget_s=budget_s, on_notice=on_notice) as peer:
            outcome.handshake = peer.handshake
            for case, cell in cells(peer, cases, judged_answer, chosen):
                settle(case, cell)
    except NoHandshake as error:
        outcome.broken = str(error)
        return outcome
    except Stopped:
        over, on_cell = "the run was interrupted", lambda: None
    outcome.notes = peer.unexplained
    left = [case for case in cases if case.key not in outcome.cells]
    for case in left:
        settle(case, Cell(NOT_ASKED, over))
    if left:
        asked = sum(not cell.declared and cell.outcome != NOT_ASKED for cell in outcome.cells.values())
        total = asked + len(left)
        outcome.stopped = f"{over} after {asked} of {total} questions"
    return outcome


def cells(
    peer: Peer[R],
    cases: Iterable[Case],
    oracle: Callable[[Case, Handshake, R], Cell],
    chosen: Collection[Key] | None = None,
) -> Iterator[tuple[Case, Cell]]:
    """The judgement of ``oracle`` on what the peer did with each case, as the answers come.

    If ``chosen`` is given, only the cases with these keys are asked. Cases for which there is no time are left out.
    """
    questions = []
    for case in cases:
        if why := declared_unsupported(case, peer.handshake):
            yield case, Cell("unsupported", why, declared=True)
        elif chosen is not None and case.key not in chosen:
            yield case, Cell(NOT_ASKED)
        else:
            questions.append(case)
    asked = (Question(request(case), case, case.vector.budget) for case in questions)
    for question, result in peer.answers(asked):
        yield question.about, oracle(question.about, peer.handshake, result)


def judged_answer(case: Case, handshake: Handshake, result: Result) -> Cell:
    """The judgement on what a testee did: its answer, or how its process ended."""
    if isinstance(result, Trouble):
        answer = {"at": result.at} if result.at else {}
        return Cell(result.outcome, result.text, HARM_OF[result.outcome], answer=answer)
    return judge(case, handshake, result)
