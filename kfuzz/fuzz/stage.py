"""The broker and the proxy of a conversation, in the thread that also waits for the client.

Threads would wait for each other at every frame, and a loop of its own for each conversation takes as long to make as
a short conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kfuzz.client.address import Address
from kfuzz.relay.local import NotingProxy
from kfuzz.relay.loop import runner
from kfuzz.relay.proxy import Settings
from kfuzz.relay.rule import Rule
from kfuzz.serve.server import Server
from kfuzz.serve.server import Settings as ServerSettings
from kfuzz.serve.topics import Partition, Topics

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Lets an event loop run while it waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        loop.add_reader(self.fileno(), loop.stop)

    def close(self) -> None:
        self._loop.remove_reader(self.fileno())
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        timer = None if timeout is None else self._loop.call_later(timeout, self._loop.stop)
        self._loop.run_forever()
        if timer is not None:
            timer.cancel()
        return super().select(0)


class Stage:
    """An event loop for the brokers and proxies of conversations. Use it in a ``with`` block.

    The loop runs only while a selector of :meth:`selector` waits.
    """

    def __init__(self) -> None:
        self._runner = runner()
        self._fault: BaseException | None = None

    def __enter__(self) -> Stage:
        self._runner.get_loop().set_exception_handler(self._failed)
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.close()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback has raised an error, which nobody awaits."""
        self._fault = self._fault or context.get("exception")

    def selector(self) -> selectors.BaseSelector:
        """A selector of other files, for this thread."""
        return _Selector(self._runner.get_loop())

    @contextlib.contextmanager
    def between(
        self, bootstrap: str, topics: Mapping[str, Partition], rules: Sequence[Mapping[str, Any]], seed: int
    ) -> Iterator[NotingProxy]:
        """A proxy with rules, in front of the broker at ``bootstrap``; of "", a new one with these topics.

        The block raises the first error in kfuzz's own callbacks at its end.
        """
        self._fault = None
        stack = contextlib.AsyncExitStack()

        async def begin() -> NotingProxy:
            if bootstrap:
                address = Address.parse(bootstrap)
            else:
                held = Topics()
                for name, partition in topics.items():
                    held.put_partition(name, 0, partition)
                server = await stack.enter_async_context(Server(held, ServerSettings()))
                [address] = server.places
            made = NotingProxy([address], Settings(rules=tuple(map(Rule, rules)), seed=seed))
            await stack.enter_async_context(made)
            return made

        try:
            yield self._done(begin())
        finally:
            self._done(stack.aclose())
        if self._fault is not None:
            raise self._fault

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self._runner.get_loop()
        task = loop.create_task(work)
        task.add_done_callback(lambda _: loop.stop())
        # A client may write at any time, which stops the loop too.
        while not task.done():
            loop.run_forever()
        return task.result()
