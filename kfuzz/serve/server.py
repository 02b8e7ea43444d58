"""The connections of a broker, in one event loop: frames in, answers out, each connection in its order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kfuzz.client.address import Address
from kfuzz.client.protocol import SIZE
from kfuzz.errors import UsageError
from kfuzz.messages.model import Versions
from kfuzz.serve.answers import WRONG_SIZE, Broker
from kfuzz.serve.cluster import FIRST_NODE, Caller, Refused
from kfuzz.serve.topics import Topics
from kfuzz.text import foreign_text
from kfuzz.units import counted

# A producer sends at most some MiB at a time.
FRAME_BYTES_MAX: Final = 16 << 20
CONNECTIONS_MAX: Final = 200
# At the limit of connections, one that has asked nothing for so long makes room for a new one.
MAKES_ROOM_AFTER_S: Final = 1.0
# As connections.max.idle.ms of Kafka.
IDLE_S_MAX: Final = 600.0
# From the first byte of a request to its last, and for an answer to be taken.
SLOW_S_MAX: Final = 30.0
# Of all requests that are on their way, and all answers that are not taken yet.
HELD_BYTES_MAX: Final = 256 << 20

# Kinds of refusals.
TOO_MANY: Final = "too many connections at a time"
TOO_SLOW: Final = "requests that do not end, or answers that are not taken"
TOO_MUCH: Final = "too many bytes on their way"
ENDED: Final = "their broker has ended"

Tell = Callable[[str], None]


async def own_address(host: str, port: int, *, what: str, open_to_others: bool) -> tuple[int, str]:
    """The family and one address of a host on which to listen. A name may have several, each with other free ports.

    ``what`` others could use. ``UsageError`` if it is not of this machine, or if others can reach it and must not.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UsageError(f"{host!r} is no address of this machine; take 127.0.0.1") from None
    family, _, _, _, (address, *_) = found[0]
    if not ipaddress.ip_address(address).is_loopback and not open_to_others:
        raise UsageError(f"{host} lets other machines use this {what}; add --yes if they may, or take 127.0.0.1")
    return family, str(address)


def cannot_open(port: str, error: OSError | OverflowError, *, free: str = "0") -> UsageError:
    """The error for a port that cannot be opened. ``free``: the value with which a user asks for any free port."""
    number = getattr(error, "errno", None)
    why = os.strerror(number) if number else "there is no such port"
    if number == errno.EADDRINUSE:
        why = "another program uses it"
    return UsageError(f"{port} cannot be opened: {why}; take another, or {free} for any free one")


@dataclass(frozen=True, slots=True)
class Settings:
    """``port`` 0 means any free port. ``fetch_versions`` None means all that kfuzz knows.

    ``brokers`` have ports of their own: the next ones, or any free ones.
    ``open_to_others`` must be set if ``host`` can be reached from other machines.
    """

    host: str = "127.0.0.1"
    port: int = 0
    fetch_versions: Versions | None = None
    open_to_others: bool = False
    brokers: int = 1
    fetch_sessions: bool = False
    api_versions_fallback: bool = False


class Server:
    """Brokers that listen. Use it in an ``async with`` block; :attr:`host` and :attr:`port` say where the first is.

    ``tell`` gets a sentence for the first connection that is closed for a kind of reason, and in the end how many more
    there were. ``broker`` answers, instead of one with the ``topics``. Entering the block raises ``UsageError`` if the
    address cannot be used.
    """

    def __init__(
        self,
        topics: Topics,
        settings: Settings,
        *,
        tell: Tell = lambda sentence: None,
        broker: Broker | None = None,
    ) -> None:
        self.broker = broker or Broker(topics, fetch_versions=settings.fetch_versions)
        self.broker.cluster.fetch_sessions = settings.fetch_sessions
        self.broker.cluster.api_versions_fallback = settings.api_versions_fallback
        self.broker.cluster.close = self._end
        self.report = self.broker.report
        self.settings = settings
        self.tell = tell
        self.host, self.port = settings.host, settings.port
        self._servers: dict[int, asyncio.Server] = {}
        self._open: set[_Connection] = set()
        self._held_bytes = 0

    @property
    def places(self) -> list[Address]:
        """Where each broker listens that has not ended."""
        return [Address(self.host, port) for port in self.broker.cluster.ports.values()]

    async def __aenter__(self) -> Server:
        settings = self.settings
        family, address = await own_address(
            settings.host, settings.port, what="broker", open_to_others=settings.open_to_others
        )
        try:
            for node_id in range(1, self.settings.brokers + 1):
                port = self.port and self.port + node_id - 1
                # asyncio would put words of its own around the system's.
                listening = socket.create_server((address, port), family=family)
                # Connections inherit this. Without it, each answer waits 40 ms for the client to acknowledge its size.
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connected = partial(self._connected, node_id)
                self._servers[node_id] = await asyncio.start_server(connected, sock=listening)
                self.broker.cluster.ports[node_id] = listening.getsockname()[1]
        except (OSError, OverflowError) as error:
            self._close()
            raise cannot_open(f"port {port} of {self.host}", error, free="--port 0") from None
        self.host, self.port = self._servers[FIRST_NODE].sockets[0].getsockname()[:2]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._close()
        tasks = [one.task for one in self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers.values():
            await server.wait_closed()
        for kind, count in self.report.reasons.items():
            if count > 1:
                self.tell(f"{counted(count - 1, 'more connection')} closed: {kind}")

    def _close(self) -> None:
        for server in self._servers.values():
            server.close()

    def _end(self, node_id: int) -> None:
        """Close what a broker listens to, and its connections but the one that is being answered."""
        self._servers[node_id].close()
        for one in list(self._open):
            if one.caller.node_id == node_id and one.task is not asyncio.current_task():
                self._evict(one, Refused(ENDED, "as asked for"))

    async def _connected(self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        # A connection may be gone already.
        client = str(Address(*(writer.get_extra_info("peername") or ("?", "?"))[:2]))
        # The address that the client connected to. It may differ from the one we listen on.
        host, port = (writer.get_extra_info("sockname") or (self.host, self.port))[:2]
        one = _Connection(task, Caller(host, port, node_id))
        if len(self._open) >= CONNECTIONS_MAX and not self._make_room():
            self._refuse(client, Refused(TOO_MANY, f"there are {CONNECTIONS_MAX} connections already"))
            writer.close()
            return
        self._open.add(one)
        self.report.connections += 1
        try:
            # A client may close its connection in the middle of a frame. That is no error.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._answer_all(one, reader, writer)
        except Refused as why:
            self._refuse(client, why)
        except asyncio.CancelledError:
            # Only the server cancels a connection, and asyncio would report that as an error.
            if one.evicted is not None:
                self._refuse(client, one.evicted)
        finally:
            self._forget(one)
            self.broker.gone(one.caller)
            if one.evicted is not None or one.is_slow:
                # Answers that the client does not take would stay in memory.
                writer.transport.abort()
            writer.close()

    def _refuse(self, client: str, why: Refused) -> None:
        self.report.reasons[why.kind] += 1
        if self.report.reasons[why.kind] == 1:
            self.tell(foreign_text(f"{client}: connection closed: {why}"))

    def _make_room(self) -> bool:
        """Close the connection that is idle for longest, preferably one that has never asked anything."""
        before = time.monotonic() - MAKES_ROOM_AFTER_S
        idle = [one for one in self._open if not one.has_asked or one.since < before]
        if idle:
            longest = min(idle, key=lambda one: (one.has_asked, one.since))
            self._evict(longest, Refused(TOO_MANY, f"there are {CONNECTIONS_MAX} others, and it has asked nothing"))
        return bool(idle)

    def _evict(self, one: _Connection, why: Refused) -> None:
        self._forget(one)
        one.evicted = why
        one.task.cancel()

    def _forget(self, one: _Connection) -> None:
        self._open.discard(one)
        self._held_bytes -= one.held_bytes
        one.held_bytes = 0

    def _hold(self, one: _Connection, size: int) -> None:
        """Count the bytes that a connection has on their way. If all have too many, close those that have them longest.

        A single connection may have as many as it wants: they are bounded elsewhere.
        """
        one.since = time.monotonic()
        self._held_bytes += size - one.held_bytes
        one.held_bytes = size
        while self._held_bytes > HELD_BYTES_MAX:
            others = [each for each in self._open if each.held_bytes and each is not one]
            if not others:
                return
            self._evict(min(others, key=lambda each: each.since), Refused(TOO_MUCH, "others need the memory"))

    async def _answer_all(self, one: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_S_MAX):
                    head = await reader.readexactly(1)
            except TimeoutError:
                return
            async with one.in_time("a request that has begun is not whole"):
                [size] = SIZE.unpack(head + await reader.readexactly(SIZE.size - 1))
                if not 0 <= size <= FRAME_BYTES_MAX:
                    raise Refused(WRONG_SIZE, f"a request of {size} bytes")
                self._hold(one, size)
                frame = await reader.readexactly(size)
            data, wait_ms, mute_ms, later = self.broker.answer(frame, one.caller)
            one.has_asked = True
            del frame
            # A client may send many requests ahead; the others get their turn in between.
            await asyncio.sleep(wait_ms / 1000)
            if later is not None:
                data = await later()
            self._hold(one, len(data or b""))
            if data is not None:
                # In one piece: TCP may hold back a second one for 40 ms, until the client has confirmed the first.
                # Not by writelines: in early releases of Python 3.12 and 3.13, drain does not wait for what that wrote
                # (python/cpython#127655).
                writer.write(SIZE.pack(len(data)) + data)
            del data
            async with one.in_time("an answer is not taken"):
                await writer.drain()
            self._hold(one, 0)
            # As a broker does with a client that it throttles.
            await asyncio.sleep(mute_ms / 1000)


@dataclass(eq=False)
class _Connection:
    """A connection. ``since``: when it last did something. ``evicted``: why the server closes it before its time."""

    task: asyncio.Task[None]
    caller: Caller
    since: float = field(default_factory=time.monotonic)
    has_asked: bool = False
    held_bytes: int = 0
    evicted: Refused | None = None
    is_slow: bool = False

    @contextlib.asynccontextmanager
    async def in_time(self, what: str) -> AsyncIterator[None]:
        """``Refused`` with this sentence if the block takes longer than ``SLOW_S_MAX``."""
        try:
            async with asyncio.timeout(SLOW_S_MAX):
                yield
        except TimeoutError:
            self.is_slow = True
            raise Refused(TOO_SLOW, f"{what} after {SLOW_S_MAX:g} s") from None


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs, Ctrl-C and SIGTERM call ``stop`` in the event loop."""
    loop = asyncio.get_running_loop()
    # A shell's background job ignores Ctrl-C.
    signals = [one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) is not signal.SIG_IGN]
    try:
        for number in signals:
            loop.add_signal_handler(number, stop)
    except (ValueError, RuntimeError):
        # Not the main thread, which alone can have handlers.
        yield
        return
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
