"""The broker and the proxy of a conversation, in the thread that also waits for the client.

Threads would wait for each other at every frame, and a loop of its own for each conversation takes as long to make as
a short conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kfuzz.client.address import Address
from kfuzz.relay.frames import Frame
from kfuzz.relay.local import Applied, Seen
from kfuzz.relay.loop import runner, unwatch, watch
from kfuzz.relay.pipe import BLOCKED, SIZE
from kfuzz.relay.proxy import Proxy, Settings
from kfuzz.relay.rule import Rule
from kfuzz.relay.rules import Live
from kfuzz.serve.answers import Broker
from kfuzz.serve.cluster import FIRST_NODE, Answered, Caller, Refused
from kfuzz.serve.server import FRAME_BYTES_MAX, shown_address
from kfuzz.serve.topics import Partition, Topics

__all__ = ["Between", "Stage"]

# The applied rules that are kept, the last ones.
APPLIED_MAX: Final = 1000
# The address that kfuzz's own broker names in its responses. The proxy puts its own in place of it.
OWN: Final = Address("127.0.0.1", 9092)
RECEIVE_BYTES: Final = 64 << 10


class _Served:
    """The broker's end of a connection. It answers the requests in their order.

    ``kfuzz.serve.server`` does this for any number of strangers. Its bounds take longer than the answers.
    """

    def __init__(self, broker: Broker, end: socket.socket) -> None:
        self._broker = broker
        self._caller = Caller(OWN.host, OWN.port)
        self._end = end
        self._in = bytearray()
        self._late: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        watch(self._loop, end.fileno(), self._readable)

    def close(self) -> None:
        """Close the connection; again too."""
        if self._end.fileno() >= 0:
            unwatch(self._loop, self._end.fileno())
            self._end.close()
            self._broker.gone(self._caller)
            if self._late is not None:
                self._late.cancel()

    def _readable(self) -> None:
        try:
            data = self._end.recv(RECEIVE_BYTES)
        except BLOCKED:
            return
        except OSError:
            data = b""
        self._in += data
        if not data or len(self._in) > FRAME_BYTES_MAX:
            self.close()
        else:
            self._answer()

    def _answer(self) -> None:
        """Answer the requests that are whole. One that takes time holds up the others."""
        while self._late is None and len(self._in) >= SIZE.size:
            end = max(SIZE.unpack_from(self._in)[0], 0) + SIZE.size
            if len(self._in) < end:
                return
            frame = bytes(self._in[SIZE.size : end])
            del self._in[:end]
            try:
                answered = self._broker.answer(frame, self._caller)
            except Refused:
                self.close()
                return
            data = b"" if answered.data is None else SIZE.pack(len(answered.data)) + answered.data
            if not (answered.wait_ms or answered.mute_ms or answered.later):
                with contextlib.suppress(OSError):
                    data = data[self._end.send(data) :]
                if not data:
                    continue
            self._late = self._loop.create_task(self._answer_late(data, answered))

    async def _answer_late(self, data: bytes, answered: Answered) -> None:
        try:
            await asyncio.sleep(answered.wait_ms / 1000)
            if answered.later is not None:
                late = await answered.later()
                data = SIZE.pack(len(late)) + late
            await self._loop.sock_sendall(self._end, data)
        except (OSError, Refused):
            self.close()
            return
        await asyncio.sleep(answered.mute_ms / 1000)
        self._late = None
        self._answer()


class Between(Proxy):
    """The proxy between a client and a broker: the one at an address, or kfuzz's own with some topics.

    - ``applied``: what rules did to frames; ``apis``: the APIs of all responses, and their versions
    """

    def __init__(self, rules: Sequence[Mapping[str, Any]], seed: int, broker: Address | Topics) -> None:
        self._own = Broker(broker) if isinstance(broker, Topics) else None
        self._served: list[_Served] = []
        self._at = broker if isinstance(broker, Address) else OWN
        super().__init__([self._at], Settings(rules=tuple(map(Rule, rules)), seed=seed))
        self.applied: deque[Applied] = deque(maxlen=APPLIED_MAX)
        self.apis: dict[str, int] = {}
        self.on_frame = self._saw
        self.rules.on_applied = self._did
        if self._own is not None:
            self._own.cluster.ports[FIRST_NODE] = OWN.port

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        for one in self._served:
            one.close()

    async def broker_end(self, broker: Address) -> socket.socket:
        """As any proxy's. kfuzz's own broker listens nowhere."""
        if self._own is None:
            return await super().broker_end(broker)
        ends = socket.socketpair()
        for one in ends:
            one.setblocking(False)
        self._served.append(_Served(self._own, ends[1]))
        return ends[0]

    def _saw(self, frame: Frame) -> None:
        if frame.direction == "response":
            self.apis[frame.exchange.name] = frame.exchange.version

    def _did(self, live: Live, before: Frame, after: Frame) -> None:
        self.applied.append(Applied(live.number, Seen(before), Seen(after)))

    @property
    def bootstrap(self) -> str:
        """Where clients connect to, as ``host:port``."""
        return shown_address(*self.places[self._at])


class _Selector(selectors.DefaultSelector):
    """Lets an event loop run while it waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._is_waiting = False
        loop.add_reader(self.fileno(), self._ready)

    def _ready(self) -> None:
        if self._is_waiting:
            self._loop.stop()

    def close(self) -> None:
        self._loop.remove_reader(self.fileno())
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not (ready := super().select(0)) and (timeout is None or timeout > 0):
            timer = None if timeout is None else self._loop.call_later(timeout, self._loop.stop)
            self._is_waiting = True
            try:
                self._loop.run_forever()
            finally:
                self._is_waiting = False
                if timer is not None:
                    timer.cancel()
            ready = super().select(0)
        return ready


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
    ) -> Iterator[Between]:
        """A proxy with rules, in front of the broker at ``bootstrap``; of "", a new one with these topics.

        The block raises the first error in kfuzz's own callbacks at its end.
        """
        loop = self._runner.get_loop()
        self._fault = None
        held = Topics()
        for name, partition in topics.items():
            held.put_partition(name, 0, partition)
        made = Between(rules, seed, Address.parse(bootstrap) if bootstrap else held)
        loop.run_until_complete(made.__aenter__())
        try:
            yield made
        finally:
            loop.run_until_complete(made.__aexit__())
        if self._fault is not None:
            raise self._fault
