"""One connection of a client, and the connection to a broker that belongs to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kfuzz.client.tls import say_end, why
from kfuzz.errors import KfuzzError, MessageError
from kfuzz.messages.model import Versions
from kfuzz.relay.frames import (
    API_VERSIONS,
    CORRELATION,
    HEAD,
    SASL_HANDSHAKE,
    Direction,
    Exchange,
    Frame,
    Pairing,
    is_inside,
    offers,
)
from kfuzz.relay.pipe import HALT, SIZE, Pipe, Step, Taker, framed

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.client.address import Address
    from kfuzz.relay.proxy import Proxy

# After one end has closed its side, how long the other may take.
ENDING_S_MAX: Final = 10.0
# A frame that is kept for the next one of its direction is sent after this time in any case.
KEPT_S_MAX: Final = 1.0
# Where a frame with its size has the API key and version, if it is a request, and the correlation id.
KEYS: Final = slice(4, 8)
REQUEST_ID: Final = slice(8, 12)
RESPONSE_ID: Final = slice(4, 8)
AFTER_RESPONSE_ID: Final = slice(8, None)
SMALL_WAITING_MAX: Final = 64
# Frames that are held until they are whole, because the kernel moves them in one piece then. Larger ones are passed on
# as they come.
WHOLE_MIN: Final = 64 << 10
WHOLE_MAX: Final = 2 << 20


class Connection:
    """A client's connection through the proxy. ``broker`` is the broker that the client asked for."""

    def __init__(self, number: int, proxy: Proxy, client: socket.socket, broker: Address) -> None:
        self.number = number
        self.proxy = proxy
        self.broker = broker
        self.pairing = Pairing(number)
        self.responses = Responses(self)
        # The versions that the broker offers, by API key, once it has said so.
        self.offered: Mapping[int, Versions] = {}
        self.client = client
        # The address of the proxy that the client uses. The proxy may listen at all of this machine's.
        self.host = str(client.getsockname()[0]).removeprefix("::ffff:")
        self.server: socket.socket | None = None
        self.pipes: dict[Direction, Pipe] = {}
        # All requests that wait for their responses, with their sizes, if they were small. Empty if one was not.
        self.small: deque[bytes] = deque()
        self.is_closed = False
        # Nothing is passed on any more, although nothing is closed.
        self.is_half_open = False
        # Frames that are sent after the next one of their direction, as steps, and when they are sent in any case.
        self._kept: dict[Direction, tuple[Exchange, Sequence[Step], asyncio.TimerHandle]] = {}
        self._ending: asyncio.TimerHandle | None = None
        self.task = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        watch = self.proxy.watch
        try:
            self.client = await self.proxy.client_end(self.client)
            self.server = await self.proxy.broker_end(self.broker)
        except OSError as error:
            sentence = f"connection {self.number}: the TLS handshake of a client failed: {why(error)}"
            watch.note_broker(self.broker, "tls-handshake", sentence)
            self.close()
            return
        except KfuzzError as error:
            watch.note_broker(self.broker, "broker-unreachable", str(error))
            self.close()
            return
        except BaseException:
            self.close()
            raise
        self.pipes["request"] = Pipe(self.client, self.server, Requests(self), self._lost, self.proxy.buffers)
        self.pipes["response"] = Pipe(self.server, self.client, self.responses, self._lost, self.proxy.buffers)
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
        if self.is_half_open:
            # The client gets no sign of a broker that closes the connection. A client that is gone needs none.
            if direction == "request":
                self.close()
            return
        if all(pipe.is_finished for pipe in self.pipes.values()):
            self.close()
            return
        target = self.pipes[direction].target
        if isinstance(target, ssl.SSLSocket):
            if direction == "request":
                # Peers take the end of TLS in one direction as that of both.
                self.close()
                return
            say_end(target)
        with contextlib.suppress(OSError):
            # That of TLS would take its bytes for plain ones from then on.
            socket.socket.shutdown(target, socket.SHUT_WR)
        loop = asyncio.get_running_loop()
        self._ending = self._ending or loop.call_later(ENDING_S_MAX, self.close)

    def close(self) -> None:
        """Close both ends."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._ending is not None:
            self._ending.cancel()
        for *_, timer in self._kept.values():
            timer.cancel()
        for pipe in self.pipes.values():
            pipe.close()
        for one in (self.client, self.server):
            if one is not None:
                say_end(one)
                one.close()
        self.proxy.gone(self)

    # -- for rules that do more than change a frame

    def half_open(self, direction: Direction) -> Sequence[Step]:
        """Pass nothing on any more in the other direction, and in this one after these steps. Nothing is closed."""
        self.is_half_open = True
        for one, pipe in self.pipes.items():
            if one != direction:
                pipe.put([HALT])
        return [HALT]

    def forget(self, frame: Frame) -> None:
        """A frame is not sent. If it is a request, nobody answers it."""
        if frame.direction == "request":
            self.pairing.forget(frame.exchange)

    def answer(self, exchange: Exchange, steps: Sequence[Step]) -> None:
        """Answer a request in the broker's place, after the responses to the requests before it."""
        if exchange.has_answer:
            self.pairing.reply(exchange, steps)
            self.send_replies()

    def send_replies(self) -> None:
        """Send the proxy's own answers to the requests that wait first, unless a response before them has begun."""
        if not self.responses.begun:
            self.send("response", self.pairing.replies())

    def sends_again(self, frame: Frame) -> None:
        """A frame is sent twice. The client gets only one response to a request."""
        one = frame.exchange
        if frame.direction == "request":
            self.pairing.wait(replace(one, is_copy=True, reply=None))

    def keeps(self, direction: Direction) -> bool:
        """Whether a frame of this direction waits for the next one."""
        return direction in self._kept

    def keep(self, frame: Frame, steps: Sequence[Step]) -> None:
        """Send the steps of a frame after the next frame of its direction, or after a second."""
        self.forget(frame)
        timer = asyncio.get_running_loop().call_later(KEPT_S_MAX, self.release, frame.direction)
        self._kept[frame.direction] = frame.exchange, steps, timer

    def release(self, direction: Direction) -> None:
        """Send the frame that is kept, if one is."""
        self.send(direction, self.kept(direction))

    def kept(self, direction: Direction) -> Sequence[Step]:
        """The steps of the frame that is kept; they are sent now."""
        if direction not in self._kept:
            return ()
        exchange, steps, timer = self._kept.pop(direction)
        timer.cancel()
        if direction == "request":
            self.pairing.wait(exchange)
        return steps

    def send(self, direction: Direction, steps: Sequence[Step]) -> None:
        """Send frames in a direction besides those that come."""
        if steps and not self.is_closed:
            if direction == "response":
                self.record_response(None, steps)
            self.pipes[direction].insert(steps)

    def holds(self, direction: Direction) -> bool:
        """Whether the next frame must be held, because another follows it that does not come from its sender."""
        return direction in self._kept or (direction == "response" and self.pairing.has_replies)

    @property
    def only_watches(self) -> bool:
        """Whether nothing is done to the next frame, except to keep the client inside, and nobody waits to see it."""
        proxy = self.proxy
        return proxy.only_watches and proxy.on_frame is None and not proxy.rules and not self._kept

    def record_response(
        self, exchange: Exchange | None, steps: Sequence[Step] | None, data: memoryview | None = None
    ) -> None:
        """Record what the client gets: these steps in place of a frame of a broker, or the frame as it came."""
        if (recorder := self.proxy.recorder) is None:
            return
        came: list[Buffer] = [] if data is None else [SIZE.pack(len(data)), data]
        sent: list[list[Buffer]] = [came]
        if steps is not None:
            sent = [[one] for one in steps if isinstance(one, bytes)]
        for pieces in sent or [[b""]]:
            of, changed = exchange, False
            if pieces is not came:
                whole = b"".join(pieces)
                changed = whole != b"".join(came)
                # Other responses may follow, which waited.
                number = whole[SIZE.size : HEAD.size]
                if exchange is not None and number and number != CORRELATION.pack(exchange.correlation_id):
                    of = None
            recorder.frame(self.number, self.broker, "response", of, pieces, changed=changed)


class Side(Taker):
    """The parts that both directions of a connection share."""

    direction: Direction

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.proxy = connection.proxy
        # The exchanges of frames that have begun.
        self.begun: deque[Exchange | None] = deque()

    def began(self, head: memoryview, size: int) -> bool:
        # Small frames that came before it are paired first.
        self.proxy.settle()
        self.connection.small.clear()
        return self._holds(self._pair(head)) or WHOLE_MIN <= size <= WHOLE_MAX

    def _pair(self, head: memoryview) -> Exchange | None:
        """The exchange of a frame that begins; None if no request waits for it."""
        raise NotImplementedError

    def settle(self, data: bytes, now_ns: int) -> None:
        """Take note of a small frame, with its size, that was passed on then."""
        view = memoryview(data)[SIZE.size :]
        self._pair(view[: self.head_bytes])
        self._seen(view, now_ns)

    def unread(self, why: str) -> None:
        self._left_out(why)
        self.note(None, "frame-size", f"{why} begins; from here on, bytes are passed on unread")
        if self.proxy.settings.strict:
            self.connection.close()

    def ended(self, why: str) -> None:
        if why:
            self.note(None, "connection-cut", why)
        self.connection.release(self.direction)

    def drained(self) -> None:
        self.connection.end(self.direction)

    def note(self, exchange: Exchange | None, code: str, sentence: str) -> None:
        """Note something about a frame; None if it belongs to no request."""
        exchange = exchange or Exchange(self.connection.number, 0, 0, -1, -1, -1)
        self.proxy.watch.note(code, self.direction, exchange, sentence)

    def _seen(self, data: memoryview, now_ns: int) -> Frame | None:
        """Take note of a frame that was whole then."""
        raise NotImplementedError

    def skipped(self, why: str) -> None:
        self._left_out(why)
        exchange = self.begun.pop()
        self.note(exchange, "frame-too-large", why)
        if exchange is not None and self.direction == "request":
            self.connection.pairing.asked(exchange, b"", time.monotonic_ns())
        api = None if exchange is None or self.direction == "request" else exchange.api
        # The client must not leave the proxy. Responses with record batches name brokers only where a leader has moved.
        leads_out = api is not None and api.is_inside and not api.response.has_records
        if leads_out:
            self.note(exchange, "response-not-inside", "it cannot be read, so the connection is closed")
        if leads_out or self.proxy.settings.strict:
            self.connection.close()
        self.connection.send_replies()

    def _holds(self, exchange: Exchange | None) -> bool:
        """Whether a frame is held until it is whole."""
        if self.connection.holds(self.direction):
            return True
        return exchange is not None and (exchange.is_copy or self.proxy.holds(self.direction, exchange))

    def _treated(self, frame: Frame | None, data: memoryview) -> Sequence[Step] | None:
        """The steps in place of a held frame, and after it; None: the frame as it is."""
        connection = self.connection
        if connection.is_half_open:
            return []
        keeps = connection.keeps(self.direction)
        steps: Sequence[Step] | None = None
        if frame is not None:
            is_copy = frame.direction == "response" and frame.exchange.is_copy
            steps = [] if is_copy else self.proxy.treat(connection, frame)
        kept = connection.kept(self.direction) if keeps else ()
        replies = connection.pairing.replies() if self.direction == "response" else []
        if not kept and not replies:
            return steps
        return [*([framed(data)] if steps is None else steps), *kept, *replies]

    def _left_out(self, why: str) -> None:
        if (recorder := self.proxy.recorder) is not None:
            recorder.left_out(self.connection.number, self.direction, why)


class Requests(Side):
    """Looks at the requests of a connection."""

    head_bytes = HEAD.size
    direction: Direction = "request"

    def small(self, data: bytes) -> bytes | None:
        """A request is not held unless a rule or a strict proxy may change it."""
        one = self.connection
        waiting = one.small
        if not one.only_watches or is_inside(data[KEYS]) is None or len(waiting) >= SMALL_WAITING_MAX:
            return None
        if one.pairing and not waiting:
            # The responses to those that wait may have come.
            self.proxy.settle()
            if one.pairing:
                return None
        waiting.append(data)
        self.proxy.settle_later(self, data)
        return data

    def _pair(self, head: memoryview) -> Exchange:
        exchange = self.connection.pairing.begin(head)
        self.begun.append(exchange)
        offered = self.connection.offered
        if exchange.api is None:
            self.note(exchange, "api-unknown", "no release that kfuzz knows has this API at this version")
        elif offered and exchange.name != API_VERSIONS and exchange.version not in offered.get(exchange.key, ()):
            what = (
                f"offers the versions {offered[exchange.key]}" if exchange.key in offered else "does not offer the API"
            )
            self.note(exchange, "version-not-offered", f"the broker {what}")
        if exchange.key == SASL_HANDSHAKE and exchange.version == 0:
            # Nobody can see where they end, and after them come addresses.
            sentence = "after this version come bytes that are no requests; use a client that knows version 1"
            self.note(exchange, "sasl-without-requests", sentence)
            self.connection.close()
        return exchange

    def passed(self, data: memoryview) -> None:
        self._seen(data, time.monotonic_ns())

    def held(self, data: memoryview) -> Sequence[Step] | None:
        return self._treated(self._seen(data, time.monotonic_ns()), data)

    def _seen(self, data: memoryview, now_ns: int) -> Frame:
        exchange = self.begun.popleft()
        assert exchange is not None
        self.connection.pairing.asked(exchange, data, now_ns)
        frame = Frame(exchange, self.direction, data).check()
        self.proxy.saw(frame)
        if (recorder := self.proxy.recorder) is not None:
            one = self.connection
            recorder.frame(one.number, one.broker, "request", exchange, [SIZE.pack(len(data)), data])
        return frame


class Responses(Side):
    """Looks at the responses of a connection."""

    head_bytes = CORRELATION.size
    direction: Direction = "response"

    def small(self, data: bytes) -> bytes | None:
        """A response is not held if its API needs no changes, or if the same bytes were changed before."""
        one = self.connection
        waiting = one.small
        if not waiting or waiting[0][REQUEST_ID] != data[RESPONSE_ID] or not one.only_watches:
            return None
        sent = data
        if is_inside(keys := waiting[0][KEYS]):
            known = self.proxy.known.get((keys, data[AFTER_RESPONSE_ID]))
            if known is None:
                return None
            if known:
                sent = SIZE.pack(len(known) + CORRELATION.size) + data[RESPONSE_ID] + known
        waiting.popleft()
        self.proxy.settle_later(self, data)
        return sent

    def _pair(self, head: memoryview) -> Exchange | None:
        exchange, skipped = self.connection.pairing.answered(head)
        for one in skipped:
            if one.reply is not None:
                # The proxy answers it itself.
                self.connection.send("response", one.reply)
            elif not one.is_copy:
                self.note(one, "no-response", "the broker answered a later request of the connection first")
        self.begun.append(exchange)
        if exchange is None:
            [number] = CORRELATION.unpack_from(head)
            self.note(None, "correlation-unknown", f"no request waits for a response with the correlation id {number}")
        return exchange

    def passed(self, data: memoryview) -> None:
        frame = self._seen(data, time.monotonic_ns())
        if not self.connection.is_half_open:
            self.connection.record_response(None if frame is None else frame.exchange, None, data)
            self.connection.send_replies()

    def held(self, data: memoryview) -> Sequence[Step] | None:
        frame = self._seen(data, time.monotonic_ns())
        steps = self._treated(frame, data)
        self.connection.record_response(None if frame is None else frame.exchange, steps, data)
        return steps

    def _seen(self, data: memoryview, now_ns: int) -> Frame | None:
        exchange = self.begun.popleft()
        if exchange is None:
            return None
        frame = Frame(exchange, self.direction, data).check()
        if exchange.name == API_VERSIONS and frame.is_read:
            with contextlib.suppress(MessageError):
                self.connection.offered, _ = offers(frame)
        self.proxy.saw(frame, now_ns)
        return frame
