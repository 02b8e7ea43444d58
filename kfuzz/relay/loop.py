"""The event loop of a proxy: it calls readers of sockets without asyncio's queue of callbacks.

In a small exchange, this queue takes as long as receiving and sending.
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import selectors
import socket
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# The parts of a connection refer to each other, with its buffers. `kfuzz` itself lets a million new objects come first.
NEW_OBJECTS_MAX: Final = 10_000
HAS_EPOLL: Final = hasattr(select, "epoll")
if HAS_EPOLL:
    WRITE: Final = select.EPOLLOUT
    # All that a reader may find: bytes, the end, an error.
    READ: Final = ~select.EPOLLOUT


def run(main: Coroutine[Any, Any, T]) -> T:
    """As ``asyncio.run``, in a loop that is quick where the system has epoll."""
    with runner() as made:
        return made.run(main)


def runner() -> asyncio.Runner:
    """A runner of such a loop. It lets Python search for unreachable cycles as often as a server needs."""
    gc.set_threshold(min(gc.get_threshold()[0], NEW_OBJECTS_MAX))
    return asyncio.Runner(loop_factory=_Loop if HAS_EPOLL else None)


def watch(loop: asyncio.AbstractEventLoop, fd: int, call: Callable[[], None]) -> None:
    """As ``loop.add_reader``. In a loop of :func:`run`, the call skips asyncio's queue."""
    loop.add_reader(fd, call)
    if HAS_EPOLL and isinstance(loop, _Loop):
        loop.selector.calls[fd] = call


def unwatch(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    """End :func:`watch`."""
    loop.remove_reader(fd)
    if HAS_EPOLL and isinstance(loop, _Loop):
        loop.selector.calls.pop(fd, None)


if HAS_EPOLL:

    class _Selector(selectors.EpollSelector):
        """Calls those that :func:`watch` knows itself, and gives the loop only what is left."""

        def __init__(self) -> None:
            super().__init__()
            self.calls: dict[int, Callable[[], None]] = {}
            # Whether the loop has something to do besides waiting.
            self.is_due = False
            # The same epoll, whose events have no keys.
            self._events = select.epoll.fromfd(os.dup(self.fileno()))

        def close(self) -> None:
            self._events.close()
            super().close()

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            calls, poll, self.is_due = self.calls, self._events.poll, False
            found: list[tuple[selectors.SelectorKey, int]] = []
            until = None if timeout is None else time.monotonic() + timeout
            # The epoll rounds it up to whole milliseconds.
            wait_s = -1.0 if timeout is None else max(timeout, 0.0)
            while True:
                for fd, event in poll(wait_s):
                    call = calls.get(fd)
                    if call is not None and event & READ:
                        call()
                        event &= WRITE
                    # A call may have ended others.
                    if event and (key := self.get_map().get(fd)) is not None:
                        ready = selectors.EVENT_READ if event & READ else 0
                        ready |= selectors.EVENT_WRITE if event & ~select.EPOLLIN else 0
                        found.append((key, ready & key.events))
                if found or self.is_due:
                    return found
                if until is not None:
                    wait_s = until - time.monotonic()
                    if wait_s <= 0:
                        return found

    class _Loop(asyncio.SelectorEventLoop):
        def __init__(self) -> None:
            self.selector = _Selector()
            super().__init__(self.selector)

        def call_soon(
            self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
        ) -> asyncio.Handle:
            self.selector.is_due = True
            return super().call_soon(callback, *args, context=context)

        def call_at(
            self,
            when: float,
            callback: Callable[[Unpack[Ts]], object],
            *args: *Ts,
            context: Context | None = None,
        ) -> asyncio.TimerHandle:
            self.selector.is_due = True
            return super().call_at(when, callback, *args, context=context)

        async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
            """As asyncio's, which takes a thread. A numeric address needs none."""
            numeric = {**how, "flags": how.get("flags", 0) | socket.AI_NUMERICHOST}
            try:
                return socket.getaddrinfo(host, port, **numeric)
            except OSError:
                return await super().getaddrinfo(host, port, **how)
