"""The connections of a broker, in one event loop: frames in, answers out, each connection in its order."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kfuzz.errors import UsageError
from kfuzz.messages.model import Versions
from kfuzz.serve.answers import Broker, Place, Refused, Report
from kfuzz.serve.topics import Topics

__all__ = ["CONNECTIONS_MAX", "FRAME_BYTES_MAX", "Server", "Settings"]

SIZE: Final = struct.Struct(">i")
# As socket.request.max.bytes of Kafka.
FRAME_BYTES_MAX: Final = 100 << 20
CONNECTIONS_MAX: Final = 200

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """``port`` 0 means any free port. ``fetch_versions`` None means all that kfuzz knows.

    ``open_to_others`` must be set if ``host`` can be reached from other machines.
    """

    host: str = "127.0.0.1"
    port: int = 0
    fetch_versions: Versions | None = None
    open_to_others: bool = False


class Server:
    """A broker that listens. Use it in an ``async with`` block; :attr:`host` and :attr:`port` say where it is.

    ``tell`` gets a sentence for each connection that is closed because of what it sent. Entering the block raises
    ``UsageError`` if the address cannot be used.
    """

    def __init__(self, topics: Topics, settings: Settings, *, tell: Tell = lambda sentence: None) -> None:
        self.broker = Broker(topics, fetch_versions=settings.fetch_versions)
        self.settings = settings
        self.tell = tell
        self.host = settings.host
        self.port = settings.port
        self._server: asyncio.Server
        self._open: set[asyncio.Task[None]] = set()

    @property
    def report(self) -> Report:
        """What clients have asked for so far."""
        return self.broker.report

    async def __aenter__(self) -> Server:
        family, address = await self._address()
        try:
            self._server = await asyncio.start_server(self._connected, *address, family=family)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if "address already in use" in why.lower():
                why = "another program uses it"
            raise UsageError(
                f"port {self.port} of {self.host} cannot be opened: {why}; take another, or --port 0 for any free one"
            ) from None
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _address(self) -> tuple[int, tuple[str, int]]:
        """One address of the host. A name may have several, and each would get another free port."""
        host, port = self.settings.host, self.settings.port
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise UsageError(f"{host!r} is no address of this machine; take 127.0.0.1") from None
        family, _, _, _, (address, *_) = found[0]
        if not ipaddress.ip_address(address).is_loopback and not self.settings.open_to_others:
            raise UsageError(f"{host} lets other machines use this broker; add --yes if they may, or take 127.0.0.1")
        return family, (str(address), port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        client = "{}:{}".format(*writer.get_extra_info("peername", ("?", "?"))[:2])
        if len(self._open) >= CONNECTIONS_MAX:
            self._refuse(client, f"there are {CONNECTIONS_MAX} connections already")
            writer.close()
            return
        self._open.add(task)
        self.report.connections += 1
        try:
            # A client may close its connection in the middle of a frame. That is no error.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer_all(reader, writer)
        except Refused as why:
            self._refuse(client, str(why))
        except asyncio.CancelledError:
            # Only the end of the server cancels a connection. asyncio would report it as an error.
            pass
        finally:
            self._open.discard(task)
            writer.close()

    def _refuse(self, client: str, why: str) -> None:
        self.report.refused += 1
        self.tell(f"{client}: connection closed: {why}")

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Return the address that the client connected to. It may differ from the one we listen on.
        place = Place(*writer.get_extra_info("sockname")[:2])
        while True:
            [size] = SIZE.unpack(await reader.readexactly(SIZE.size))
            if not 0 <= size <= FRAME_BYTES_MAX:
                raise Refused(f"a request of {size} bytes")
            data, wait_ms = self.broker.answer(await reader.readexactly(size), place)
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)
            writer.write(SIZE.pack(len(data)))
            writer.write(data)
            await writer.drain()


@contextlib.contextmanager
def stopped_by(signals: tuple[int, ...], stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs, each of the ``signals`` calls ``stop`` in the event loop."""
    loop = asyncio.get_running_loop()
    # A shell's background job ignores Ctrl-C.
    signals = tuple(number for number in signals if signal.getsignal(number) is not signal.SIG_IGN)
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
