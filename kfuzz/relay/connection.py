"""One connection of a client, and the connection to a broker behind it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kfuzz.errors import MessageError
from kfuzz.messages.model import Versions
from kfuzz.relay.frames import API_VERSIONS, CORRELATION, HEAD, Direction, Exchange, Frame, Pairing
from kfuzz.relay.pipe import FRAME_BYTES_MAX, SIZE, Pipe, Step

if TYPE_CHECKING:
    from kfuzz.client.address import Address
    from kfuzz.relay.proxy import Proxy

__all__ = ["Connection"]

# After one end has closed its side, how long the other may take.
ENDING_S_MAX: Final = 10.0


class Connection:
    """A client's connection through the proxy. ``broker`` is the broker that the client asked for."""

    def __init__(self, number: int, proxy: Proxy, client: socket.socket, broker: Address) -> None:
        self.number = number
        self.proxy = proxy
        self.broker = broker
        self.pairing = Pairing(number)
        # The versions that the broker offers, by API key, once it has said so.
        self.offered: dict[int, Versions] = {}
        self.client = client
        self.server: socket.socket | None = None
        self.pipes: dict[Direction, Pipe] = {}
        self.is_closed = False
        self._ending: asyncio.TimerHandle | None = None
        self.task = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        try:
            self.client, self.server = await self.proxy.ends(self.client, self.broker)
        except OSError as error:
            self.proxy.watch.note_broker(
                self.broker, "broker-unreachable", f"it cannot be reached: {error.strerror or error}"
            )
            self.close()
            return
        except BaseException:
            self.close()
            raise
        self.pipes["request"] = Pipe(self.client, self.server, Requests(self), self._lost)
        self.pipes["response"] = Pipe(self.server, self.client, Responses(self), self._lost)
        for pipe in self.pipes.values():
            pipe.start()
        if (recorder := self.proxy.recorder) is not None:
            recorder.opened(self.number, self.broker)

    def _lost(self, why: str) -> None:
        self.close()

    def end(self, direction: Direction) -> None:
        """The sender of a direction has closed its end, and everything is sent: so the receiver's end is closed too."""
        if self.is_closed:
            return
        if all(pipe.is_finished for pipe in self.pipes.values()):
            self.close()
            return
        target = self.pipes[direction].target
        if isinstance(target, ssl.SSLSocket):
            self.close()
            return
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        loop = asyncio.get_running_loop()
        self._ending = self._ending or loop.call_later(ENDING_S_MAX, self.close)

    def close(self) -> None:
        """Close both ends."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._ending is not None:
            self._ending.cancel()
        for pipe in self.pipes.values():
            pipe.close()
        self.client.close()
        if self.server is not None:
            self.server.close()
        self.proxy.gone(self)

    def halt(self) -> None:
        """Pass nothing on any more in either direction, but keep both ends open."""
        for pipe in self.pipes.values():
            pipe.halt()

    def send(self, direction: Direction, steps: Sequence[Step]) -> None:
        """Send frames in a direction besides those that come."""
        if direction == "response":
            self.record_response(None, steps)
        self.pipes[direction].put(steps)

    def record_response(self, exchange: Exchange | None, given: memoryview | Sequence[Step]) -> None:
        """Record what the client gets: a frame as it came, or the steps in its place."""
        if (recorder := self.proxy.recorder) is None or self.pipes["response"].is_halted:
            return
        record = partial(recorder.frame, self.number, self.broker, "response", exchange)
        if isinstance(given, memoryview):
            record([SIZE.pack(len(given)), given])
            return
        sent = [one for one in given if isinstance(one, bytes)]
        for one in sent or [b""]:
            record([one], changed=True)


class _Side:
    """What both directions of a connection have in common."""

    head_bytes = 0
    direction: Direction

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.proxy = connection.proxy
        # The exchanges of frames that have begun.
        self._begun: deque[Exchange | None] = deque()

    def unread(self, why: str) -> None:
        """No frames are read any more."""
        self._left_out(0)
        self.note(None, "frame-size", f"{why} begins; from here on, bytes are passed on unread")
        if self.proxy.settings.strict:
            self.connection.close()

    def ended(self, why: str) -> None:
        """The sender has ended."""
        if why:
            self.note(None, "connection-cut", why)

    def drained(self) -> None:
        """Everything is sent."""
        self.connection.end(self.direction)

    def note(self, exchange: Exchange | None, code: str, sentence: str) -> None:
        """Note something about a frame; None if it belongs to no request."""
        exchange = exchange or Exchange(self.connection.number, 0, 0, -1, -1, -1)
        self.proxy.watch.note(code, self.direction, exchange, sentence)

    def large(self, exchange: Exchange | None, size: int) -> None:
        """Note a frame that is too large to be read."""
        if size > FRAME_BYTES_MAX:
            self._left_out(size)
            self.note(exchange, "frame-too-large", f"it has {size} bytes and is passed on unread")

    def _left_out(self, size: int) -> None:
        if (recorder := self.proxy.recorder) is not None:
            recorder.left_out(self.connection.number, self.direction, size)


class Requests(_Side):
    """Looks at the requests of a connection."""

    head_bytes = HEAD.size
    direction: Direction = "request"

    def began(self, head: memoryview, size: int) -> bool:
        """A request begins."""
        exchange = self.connection.pairing.begin(head)
        self.large(exchange, size)
        if size <= FRAME_BYTES_MAX:
            self._begun.append(exchange)
        offered = self.connection.offered
        if exchange.api is None:
            self.note(exchange, "api-unknown", "no release that kfuzz knows has this API at this version")
        elif offered and exchange.name != API_VERSIONS and exchange.version not in offered.get(exchange.key, ()):
            what = (
                f"offers the versions {offered[exchange.key]}" if exchange.key in offered else "does not offer the API"
            )
            self.note(exchange, "version-not-offered", f"the broker {what}")
        return self.proxy.holds(self.direction, exchange)

    def passed(self, data: memoryview) -> None:
        """A request was passed on."""
        self._seen(data)

    def held(self, data: memoryview) -> Sequence[Step] | None:
        """A request may be changed."""
        return self.proxy.treat(self.connection, self._seen(data))

    def _seen(self, data: memoryview) -> Frame:
        exchange = self._begun.popleft()
        assert exchange is not None
        self.connection.pairing.asked(exchange, data)
        frame = Frame(exchange, self.direction, data)
        frame.check()
        self.proxy.saw(self.connection, frame)
        if (recorder := self.proxy.recorder) is not None:
            one = self.connection
            recorder.frame(one.number, one.broker, "request", exchange, [SIZE.pack(len(data)), data])
        return frame


class Responses(_Side):
    """Looks at the responses of a connection."""

    head_bytes = CORRELATION.size
    direction: Direction = "response"

    def began(self, head: memoryview, size: int) -> bool:
        """A response begins."""
        exchange, skipped = self.connection.pairing.answered(head)
        for one in skipped:
            self.note(one, "no-response", "the broker answered a later request of the connection first")
        self.large(exchange, size)
        if exchange is None:
            [number] = CORRELATION.unpack_from(head)
            self.note(None, "correlation-unknown", f"no request waits for a response with the correlation id {number}")
        if size <= FRAME_BYTES_MAX:
            self._begun.append(exchange)
        return exchange is not None and self.proxy.holds(self.direction, exchange)

    def passed(self, data: memoryview) -> None:
        """A response was passed on."""
        frame = self._seen(data)
        self.connection.record_response(None if frame is None else frame.exchange, data)

    def held(self, data: memoryview) -> Sequence[Step] | None:
        """A response may be changed."""
        frame = self._seen(data)
        assert frame is not None
        steps = self.proxy.treat(self.connection, frame)
        self.connection.record_response(frame.exchange, data if steps is None else steps)
        return steps

    def _seen(self, data: memoryview) -> Frame | None:
        now_ns = time.monotonic_ns()
        exchange = self._begun.popleft()
        if exchange is None:
            return None
        frame = Frame(exchange, self.direction, data)
        frame.check()
        if exchange.name == API_VERSIONS:
            self._learn(frame)
        self.proxy.saw(self.connection, frame, now_ns)
        return frame

    def _learn(self, frame: Frame) -> None:
        """Take the versions that the broker offers."""
        if not frame.is_read:
            return
        with contextlib.suppress(MessageError):
            values = frame.values()
            if not values["errorCode"]:
                offered = values["apiKeys"]
                self.connection.offered = {
                    one["apiKey"]: Versions(one["minVersion"], one["maxVersion"]) for one in offered
                }
