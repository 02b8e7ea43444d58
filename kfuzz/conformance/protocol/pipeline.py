"""Sends requests ahead and receives the answers. Only this module sends requests to a testee."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from kfuzz.conformance.protocol.session import Budget, Session, Trouble
from kfuzz.conformance.protocol.stacks import library_line
from kfuzz.conformance.protocol.words import AHEAD, Answer, ProtocolError, parse_answer, to_line
from kfuzz.text import foreign_text

__all__ = ["Pipeline", "Result", "ask"]

T = TypeVar("T")
Request = Mapping[str, Any]
Result = Answer | Trouble


def ask(session: Session, request: Request, budget: Budget) -> Result:
    """Send one request and wait for its answer. Returns a ``Trouble`` if there is no valid answer."""
    session.send(to_line(request))
    return _receive(session, request, budget)


class Pipeline(Generic[T]):
    """Requests to one session, with up to 64 unanswered at a time. Answers come in the order of the requests.

    ``waiting`` holds the items that were asked and are not answered yet, the oldest first.
    """

    def __init__(self, session: Session, budget_of: Callable[[T], Budget]) -> None:
        self.waiting: deque[T] = deque()
        self._session = session
        self._budget_of = budget_of
        self._requests: deque[Request] = deque()

    def answers(self, questions: Iterable[tuple[T, Request]]) -> Iterator[tuple[T, Result]]:
        """Send the requests of ``questions`` and yield each item with its answer.

        After a ``Trouble`` nothing more is sent or yielded, and its item stays the first in ``waiting``.
        """
        for item, request in questions:
            self._session.send(to_line(request))
            self.waiting.append(item)
            self._requests.append(request)
            if len(self.waiting) == AHEAD:
                result = self._next()
                yield result
                if isinstance(result[1], Trouble):
                    return
        while self.waiting:
            result = self._next()
            yield result
            if isinstance(result[1], Trouble):
                return

    def _next(self) -> tuple[T, Result]:
        result = _receive(self._session, self._requests[0], self._budget_of(self.waiting[0]))
        if isinstance(result, Trouble):
            return self.waiting[0], result
        self._requests.popleft()
        return self.waiting.popleft(), result


def _receive(session: Session, request: Request, budget: Budget) -> Result:
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
