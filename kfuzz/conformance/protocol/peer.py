"""Questions, and the peers that answer them: anything that takes questions and returns each with a result.

:class:`Peer` is their interface. A testee's process is one (:class:`TesteeProcess`), a broker on the network another
(:mod:`kfuzz.probe`), Kafka's own broker a third (:mod:`kfuzz.conformance.broker`).

A testee's process survives crashes: it is asked ahead, the question that broke it is found, and it is started again. A
process that ends does not show which request ended it. So the question that was being answered is asked again, alone
in a fresh process. If it does no harm there, every other question that was in flight is asked alone too, until one
breaks its process. That question is to blame, and the untried ones are asked with the others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from kfuzz.conformance.protocol.building import BuildFailed
from kfuzz.conformance.protocol.lines import AHEAD, STALLED, Answer, Handshake, ProtocolError, parse_answer, to_line
from kfuzz.conformance.protocol.session import (
    RESIDENT_SLACK_BYTES,
    Budget,
    Limits,
    NoHandshake,
    Session,
    Trouble,
    over_memory,
)
from kfuzz.conformance.protocol.stacks import library_line
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.errors import UsageError
from kfuzz.text import foreign_text

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
Result = Answer | Trouble


@dataclass(frozen=True, slots=True, eq=False)
class Question(Generic[T]):
    """One request, and what it is about. ``budget`` are the CPU time and the memory that a vector states for it."""

    request: Mapping[str, Any]
    about: T
    budget: Mapping[str, int] | None = None


Results = Iterator[tuple[Question[T], Result]]


class Peer(Protocol[R_co]):
    """Something that answers questions. It bounds what an answer may cost, and nothing that it meets raises."""

    @property
    def handshake(self) -> Handshake:
        """Its name, and what it can be asked."""

    def answers(self, questions: Iterable[Question[T]]) -> Iterator[tuple[Question[T], R_co]]:
        """Ask, and return each question once with what the peer did, in any order.

        Questions for which there is no time do not come back.
        """


class TesteeProcess:
    """A testee as a process, in a ``with`` block, which raises ``NoHandshake`` at its start. Nothing else that it does
    raises.

    ``handshake`` is that of the first process. ``breaks`` counts how often a process ended, hung or broke the protocol
    with requests in flight; ``unexplained`` has a sentence for each of these that no question does alone.
    After ``budget_s`` seconds on the clock, nothing more is asked. If the first handshake takes more than two seconds,
    ``on_notice`` is called with a sentence.
    """

    handshake: Handshake

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        limits: Limits | None = None,
        budget_s: float | None = None,
        on_notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.breaks = 0
        self.unexplained: list[str] = []
        self._argv = argv
        self._cwd = cwd
        self._limits = limits or Limits()
        self._until_s = float("inf") if budget_s is None else time.monotonic() + budget_s
        self._on_notice = on_notice
        self._session: Session | None = None
        # A second process, for answers that must be seen twice.
        self._second: Session | None = None

    def __enter__(self) -> TesteeProcess:
        self._session = Session(self._argv, cwd=self._cwd)
        try:
            self.handshake = self._session.start(self._limits, self._on_notice)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        self._end_second()

    @property
    def is_over(self) -> bool:
        """Whether the testee's time is over. From then on, a trouble may only mean that there was no time to wait."""
        return time.monotonic() >= self._until_s

    def answers(self, questions: Iterable[Question[T]]) -> Results[T]:
        """Ask with up to 64 requests in flight. Then ask those that have a budget, one at a time."""
        measured: list[Question[T]] = []

        def crowd() -> Iterator[Question[T]]:
            for question in questions:
                if question.budget:
                    measured.append(question)
                else:
                    yield question

        for question, result in chain(self._answers(crowd()), self._measured(measured)):
            if not (isinstance(result, Trouble) and self.is_over):
                yield question, result

    # --- processes ---------------------------------------------------------------------------------------------------

    def _running(self) -> Session | Trouble:
        """The process that gets requests; started again if there is none."""
        if self._session is None:
            session = self._another()
            if isinstance(session, Trouble):
                return session
            self._session = session
        return self._session

    def _another(self) -> Session | Trouble:
        """A process that has shaken hands."""
        session = Session(self._argv, cwd=self._cwd)
        if trouble := self._start_again(session):
            session.kill()
            return trouble
        return session

    def _start_again(self, session: Session) -> Trouble | None:
        try:
            session.start(replace(self._limits, start_ms=min(self._limits.start_ms, self._left_ms)))
        except NoHandshake as error:
            return Trouble("crash", f"did not start again: {error}")
        return None

    def _end(self) -> None:
        if self._session is not None:
            self._session.kill()
            self._session = None

    def _end_second(self) -> None:
        if self._second is not None:
            self._second.kill()
            self._second = None

    @property
    def _left_ms(self) -> int:
        return int(min(max(self._until_s - time.monotonic(), 0.0) * 1000, 1 << 40)) + 1

    # --- many requests in flight -------------------------------------------------------------------------------------

    def _answers(self, questions: Iterable[Question[T]]) -> Results[T]:
        rest = iter(questions)
        waiting: deque[Question[T]] = deque()
        while not self.is_over and (waiting or (waiting := deque(islice(rest, 1)))):
            session = self._running()
            if isinstance(session, Trouble):
                yield waiting.popleft(), session
            else:
                waiting = yield from self._ahead(session, waiting, rest)

    def _ahead(
        self, session: Session, waiting: deque[Question[T]], rest: Iterator[Question[T]]
    ) -> Generator[tuple[Question[T], Result], None, deque[Question[T]]]:
        """Ask until there are no more questions or the process breaks. Returns the questions that must wait."""
        flying: deque[Question[T]] = deque()
        # A surplus line is noticed only when the next answer is due. So the last answer counts with the next one.
        last: tuple[Question[T], Answer] | None = None
        while True:
            while len(flying) < AHEAD and not self.is_over:
                question = waiting.popleft() if waiting else next(rest, None)
                if question is None:
                    break
                session.send(to_line(question.request))
                flying.append(question)
            if not flying:
                break
            question = flying.popleft()
            result = _receive(session, question.request, self._budget(question))
            if isinstance(result, Trouble):
                self._end()
                if self.is_over:
                    break
                self.breaks += 1
                if last is not None and result.outcome != "protocol-error":
                    yield last[0], self._seen(*last)
                    last = None
                left = yield from self._blame(question, last, flying, result)
                return deque([*left, *waiting])
            if last is not None:
                yield last[0], self._seen(*last)
            last = question, result
            if self.is_over:
                self._end()
                break
        if last is not None:
            yield last[0], self._seen(*last)
        return waiting

    def _blame(
        self,
        first: Question[T],
        last: tuple[Question[T], Answer] | None,
        flying: Iterable[Question[T]],
        trouble: Trouble,
    ) -> Generator[tuple[Question[T], Result], None, list[Question[T]]]:
        """Ask the suspects alone, in order, until one breaks its process, and return the untried ones.

        ``last`` was answered, but a surplus line may have come from it.
        """
        suspects = [first, *([last[0]] if last else []), *flying]
        tried = 0
        for question in suspects:
            if self.is_over:
                break
            tried += 1
            result = self._under_limit(question) if trouble.outcome == "memory" else self._trial(question)
            yield question, self._seen(question, result)
            if isinstance(result, Trouble):
                break
        else:
            self.unexplained.append(
                f"a process {trouble.deed} with {len(suspects)} requests in flight, {first.request['id']} first; "
                "each was asked again alone, and none of them did it again"
            )
        if last is not None and last[0] in suspects[tried:]:
            yield last[0], self._seen(*last)
        return [question for question in suspects[tried:] if last is None or question is not last[0]]

    # --- measured ----------------------------------------------------------------------------------------------------

    def _measured(self, questions: Sequence[Question[T]]) -> Results[T]:
        if not questions:
            return
        doubtful: list[Question[T]] = []
        self._end()
        for question in questions:
            if self.is_over:
                break
            session = self._running()
            result = session if isinstance(session, Trouble) else self._ask_under_limit(session, question)
            if isinstance(result, Answer):
                if result.outcome == "fault":
                    doubtful.append(question)
                else:
                    yield question, self._seen(question, result)
            elif isinstance(session, Trouble):
                yield question, session
            else:
                self._end()
                yield question, self._seen(question, self._under_limit(question))
        self._end()
        # A fault under a memory limit may be the lack of memory: without a limit the question is asked again.
        for question, result in self._answers(doubtful):
            if isinstance(result, Answer) and result.outcome in ("accepted", "rejected") and not self.is_over:
                # It probably lacked memory.
                result = self._seen(question, self._under_limit(question))
            yield question, result

    def _ask_under_limit(self, session: Session, question: Question[T]) -> Result:
        """The answer under a memory limit; if no limit can be set, memory use is measured instead."""
        budget_bytes = self._memory_bytes(question)
        # Java maps its heap in advance. Only -Xmx limits it, and only when a process starts.
        bounded = self.handshake.language != "java" and session.limit_address_space(budget_bytes)
        session.reset_peak()
        result = self._ask(session, question)
        if isinstance(result, Trouble):
            return result
        if result.allocated_bytes is not None:
            over = result.allocated_bytes > budget_bytes
        else:
            over = not bounded and session.peak_growth_bytes() > budget_bytes + RESIDENT_SLACK_BYTES
        return over_memory(budget_bytes, result.allocated_at) if over else result

    def _under_limit(self, question: Question[T]) -> Result:
        """Ask alone under the memory budget; a failure only with that limit becomes a memory fault."""
        bounded = self._trial(question, bounded=True)
        if not _may_be_memory(bounded):
            return bounded
        free = self._trial(question)
        if isinstance(free, Trouble) and free.outcome == "memory":
            # Without the limit the testee is killed and says nothing. With it, it may have said where it failed.
            return replace(free, at=free.at or bounded.at)
        if _may_be_memory(free) or isinstance(free, Trouble):
            return free
        return over_memory(self._memory_bytes(question), bounded.at)

    # --- one question ------------------------------------------------------------------------------------------------

    def _trial(self, question: Question[T], *, bounded: bool = False) -> Result:
        """Ask in a process of its own."""
        java_budget_bytes = self._memory_bytes(question) if bounded else None
        with Session(self._argv, cwd=self._cwd, java_budget_bytes=java_budget_bytes) as session:
            if trouble := self._start_again(session):
                return trouble
            result = (self._ask_under_limit if bounded else self._ask)(session, question)
            if not isinstance(result, Trouble) and session.finish():
                return Trouble("protocol-error", "printed more than one line for one request")
            return result

    def _asked_again(self, question: Question[T]) -> Result:
        """Ask alone in a second process. It stays until it breaks: whole clients stall often, and start slowly."""
        if self._second is None:
            second = self._another()
            if isinstance(second, Trouble):
                return second
            self._second = second
        result = self._ask(self._second, question)
        if isinstance(result, Trouble):
            self._end_second()
        return result

    def _ask(self, session: Session, question: Question[T]) -> Result:
        session.send(to_line(question.request))
        return _receive(session, question.request, self._budget(question))

    def _seen(self, question: Question[T], result: Result) -> Result:
        """The consequences of an answer besides its words."""
        if isinstance(result, Answer) and result.outcome == STALLED:
            # On a busy machine, waiting can look like a stall: only one that is seen twice counts.
            result = self._asked_again(question)
        most_bytes = self._memory_bytes(question)
        if isinstance(result, Answer) and (result.allocated_bytes or 0) > most_bytes:
            # Untouched pages are not resident, so only the testee can report them.
            return over_memory(most_bytes, result.allocated_at)
        return result

    def _budget(self, question: Question[T]) -> Budget:
        budget = self._limits.budget(question.budget)
        return replace(budget, wall_ms=min(budget.wall_ms, self._left_ms))

    def _memory_bytes(self, question: Question[T]) -> int:
        return (question.budget or {}).get("memory_bytes", self._limits.memory_bytes)


def _may_be_memory(result: Result) -> bool:
    """Whether a lack of memory can have this result."""
    if isinstance(result, Trouble):
        return result.outcome in ("crash", "memory")
    return result.outcome == "fault"


def _receive(session: Session, request: Mapping[str, Any], budget: Budget) -> Result:
    line = session.next_line(budget)
    if isinstance(line, Trouble):
        if line.outcome != "crash":
            return line
        words = session.last_words()
        text = f"{line.text}: {words}" if words else line.text
        return replace(line, text=foreign_text(text), at=library_line(session.standard_error(), session.handshake.name))
    try:
        return parse_answer(line, id=request["id"], operation=request["operation"])
    except ProtocolError as error:
        return Trouble("protocol-error", foreign_text(str(error)))


@contextmanager
def started(testee: Testee) -> Iterator[TesteeProcess]:
    """Build ``testee`` if necessary, start it, and read its handshake. The testee ends with the ``with`` block.

    ``UsageError`` if its toolchain is missing, its build fails, or it gives no handshake.
    """
    if reason := testee.missing():
        raise UsageError(f"{reason}; install that, or name another with --testee")
    try:
        testee.make_ready()
        limits = Limits(start_ms=testee.start_timeout_ms)
        with TesteeProcess(testee.argv, cwd=testee.folder, limits=limits) as peer:
            yield peer
    except (BuildFailed, NoHandshake) as error:
        raise UsageError(f"{testee.label}: {error}; docs/testee-protocol.md says how a testee starts") from None
