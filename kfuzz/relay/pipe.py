"""One direction of a connection: bytes come from a socket, frames are seen, bytes go to the other socket.

A frame that nobody may change is passed on as its bytes come, and looked at afterwards. So watching costs no latency,
and a large frame is never copied. A frame that may be changed is held until it is whole.

Sockets are used within asyncio's loop without its transports, which would copy what a full socket does not take.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["CLOSE", "FRAME_BYTES_MAX", "HALT", "Pipe", "Step", "Taker", "Wait", "framed"]

SIZE: Final = struct.Struct(">i")
# A larger frame is passed on unread. Kafka's brokers take requests up to 100 MiB.
FRAME_BYTES_MAX: Final = 128 << 20
# The memory of a pipe at first, and what one call may receive.
BUFFER_BYTES: Final = 16 << 10
RECEIVE_BYTES: Final = 1 << 20
# What may wait for a socket that takes no more, before nothing more is received for it.
OUT_BYTES_MAX: Final = 1 << 20
# How many times in a row one pipe may receive before others get their turn.
TURNS_MAX: Final = 16

Socket = socket.socket


@dataclass(frozen=True, slots=True)
class Wait:
    """What follows is sent so much later."""

    ms: float


class _Mark:
    """A step without a value."""


# Close the connection once everything before is sent; pass nothing on any more, but close nothing.
CLOSE: Final = _Mark()
HALT: Final = _Mark()
Step = bytes | Wait | _Mark


def framed(data: Buffer) -> bytes:
    """A frame with its size in front."""
    view = memoryview(data)
    return SIZE.pack(len(view)) + view


class Taker(Protocol):
    """Who looks at the frames of a pipe."""

    # How many bytes of a frame, without its size, :meth:`began` needs.
    head_bytes: int

    def began(self, head: memoryview, size: int) -> bool:
        """A frame of ``size`` bytes begins with these bytes, without its size. Whether it is to be held."""

    def passed(self, data: memoryview) -> None:
        """A frame was passed on as it is. It may be overwritten after this call."""

    def held(self, data: memoryview) -> Sequence[Step] | None:
        """A frame is whole and was not passed on. What is to be sent in its place; None: the frame as it is."""

    def unread(self, why: str) -> None:
        """From here on, frames are not read but passed on as bytes. ``why`` is a sentence."""

    def ended(self, why: str) -> None:
        """No more bytes come; ``why`` is empty if the sender closed its end between two frames."""

    def drained(self) -> None:
        """After the end, everything that came is sent."""


class Pipe:
    """Takes from ``source``, gives to ``target``. ``lost`` is called once, when nothing can be sent or received."""

    def __init__(self, source: Socket, target: Socket, taker: Taker, lost: Callable[[str], None]) -> None:
        self.source = source
        self.target = target
        self.taker = taker
        self.lost = lost
        self._loop = asyncio.get_running_loop()
        self._view = memoryview(bytearray(BUFFER_BYTES))
        # Of the current frame, with its size: where it begins, how much of it is passed on, and its size if known.
        self._start = self._passed = 0
        self._size = -1
        self._holds = False
        self._end = 0
        # Bytes of the current frame that are too many to read, or -1 if no frames are read any more.
        self._unread = 0
        self._out: deque[Any] = deque()
        self._out_bytes = 0
        # Whether something in ``_out`` lies in ``_view``.
        self._shares = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_reading = self._is_writing = self._is_over = self._halted = False
        self._finished = False

    @property
    def buffer_bytes(self) -> int:
        """The memory that it has for frames."""
        return len(self._view)

    def start(self) -> None:
        """Begin."""
        self._set_reading(True)

    def close(self) -> None:
        """End. Closes no socket."""
        self._is_over = True
        self._set_reading(False)
        self._set_writing(False)
        if self._timer is not None:
            self._timer.cancel()
        self._out.clear()

    def halt(self) -> None:
        """Pass nothing on any more. Both sockets stay open, and what comes is thrown away."""
        self._halted = True
        self._out.clear()
        self._out_bytes = 0

    @property
    def is_halted(self) -> bool:
        """Whether nothing is passed on any more."""
        return self._halted

    @property
    def is_finished(self) -> bool:
        """Whether the source has ended and everything is sent."""
        return self._finished and not self._out

    # -- receiving

    def _set_reading(self, on: bool) -> None:
        if on and not self._is_reading and not self._is_over:
            self._loop.add_reader(self.source, self._readable)
            if self._has_pending():
                self._loop.call_soon(self._readable)
        elif not on and self._is_reading:
            self._loop.remove_reader(self.source)
        self._is_reading = on and not self._is_over

    def _readable(self) -> None:
        if not self._is_reading:
            return
        for _ in range(TURNS_MAX):
            room = self._room()
            try:
                count = self.source.recv_into(room)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                self._source_ended(error.strerror or str(error))
                return
            if not count:
                self._source_ended("")
                return
            self._end += count
            self._take()
            # What did not fit into the room waits in the socket.
            if not self._is_reading or (count < len(room) and not self._has_pending()):
                return

    def _has_pending(self) -> bool:
        """Whether a socket of TLS has decrypted bytes in its own memory, which the loop does not know."""
        return isinstance(self.source, ssl.SSLSocket) and self.source.pending() > 0

    def _room(self) -> memoryview:
        """Where to receive. A large frame is received to its end and no further, so that nothing is moved."""
        if self._start == self._end:
            self._start = self._passed = self._end = 0
        left = self._size - (self._end - self._start) if self._size >= 0 else 0
        if self._start and (left > len(self._view) - self._end or self._end == len(self._view)):
            kept = self._view[self._start : self._end]
            self._view[: len(kept)] = bytes(kept)
            self._passed -= self._start
            self._start, self._end = 0, len(kept)
        if self._end == len(self._view) or (left > len(self._view) - self._end and len(self._view) < RECEIVE_BYTES):
            self._grow(min(max(2 * len(self._view), min(self._end + left, RECEIVE_BYTES)), FRAME_BYTES_MAX + SIZE.size))
        end = len(self._view)
        if left > BUFFER_BYTES:
            end = min(end, self._end + left)
        return self._view[self._end : min(end, self._end + RECEIVE_BYTES)]

    def _grow(self, size: int) -> None:
        bigger = memoryview(bytearray(size))
        bigger[: self._end] = self._view[: self._end]
        self._view = bigger

    def shrink(self) -> None:
        """Give memory back that an earlier large frame needed."""
        if self._start == self._end and not self._shares and len(self._view) > BUFFER_BYTES:
            self._start = self._passed = self._end = 0
            self._view = memoryview(bytearray(BUFFER_BYTES))

    def _take(self) -> None:
        """Look at the bytes that came: pass on what may be passed on, then hand over the frames that are whole."""
        seen: list[memoryview] = []
        while self._unread >= 0:
            if self._unread:
                part = min(self._unread, self._end - self._start)
                self._start += part
                self._unread -= part
                if self._unread:
                    break
            if self._size < 0 and not self._begin():
                break
            if self._unread < 0:
                break
            if self._unread:
                continue
            whole = self._start + self._size
            if self._end < whole:
                break
            data = self._view[self._start + SIZE.size : whole]
            self._size = -1
            if self._holds:
                # Frames before it that were passed on come first.
                self._flush(self._start, seen)
                self._start = whole
                if (steps := self.taker.held(data)) is not None:
                    self._passed = whole
                    self.put(steps)
                if self._is_over:
                    return
            else:
                seen.append(data)
                self._start = whole
        if self._unread < 0:
            self._start = self._end
        is_held = self._size >= 0 and self._holds
        self._flush(self._start if is_held or self._size < 0 else self._end, seen)

    def _begin(self) -> bool:
        """The next frame begins, if enough of it is there."""
        view, start = self._view, self._start
        there = self._end - start
        if there < SIZE.size:
            return False
        [size] = SIZE.unpack_from(view, start)
        needed = self.taker.head_bytes
        if size < needed:
            self._unread = -1
            self.taker.unread(f"a frame of {size} bytes")
            return True
        if there < SIZE.size + needed:
            return False
        holds = self.taker.began(view[start + SIZE.size : start + SIZE.size + needed], size)
        if self._is_over:
            return False
        if size > FRAME_BYTES_MAX:
            self._unread = SIZE.size + size
            return True
        self._holds = holds
        self._size = SIZE.size + size
        return True

    def _flush(self, end: int, seen: list[memoryview]) -> None:
        """Pass on the bytes up to ``end``, then show the frames among them."""
        if end > self._passed:
            data = self._view[self._passed : end]
            self._passed = end
            if not self._halted:
                self._send(data, shares=True)
        for frame in seen:
            self.taker.passed(frame)
        seen.clear()

    def _source_ended(self, why: str) -> None:
        self._set_reading(False)
        left = self._end - self._start
        if not why and left and self._unread == 0:
            why = f"{left} bytes of a frame came, and then the end"
        # What was held, but never became whole, is passed on too.
        self._flush(self._end, [])
        self._finished = True
        self.taker.ended(why)
        if not self._out and not self._is_over:
            self.taker.drained()

    # -- sending

    def _put(self, step: Step) -> None:
        if not self._halted:
            if isinstance(step, bytes):
                self._send(memoryview(step))
            else:
                self._out.append(step)
                self._write()

    def put(self, steps: Sequence[Step]) -> None:
        """Send these as well, after everything that waits."""
        for step in steps:
            self._put(step)

    def _send(self, data: memoryview, *, shares: bool = False) -> None:
        if not self._out:
            try:
                sent = self.target.send(data)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                sent = 0
            except OSError as error:
                self.lost(error.strerror or str(error))
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._out.append(data)
        self._out_bytes += len(data)
        self._shares = self._shares or shares
        if self._timer is None:
            self._set_writing(True)
        self._balance()

    def _balance(self) -> None:
        """Receive only while what waits is little, and not in the memory that is received into."""
        self._set_reading(not self._finished and not self._shares and self._out_bytes <= OUT_BYTES_MAX)

    def _set_writing(self, on: bool) -> None:
        if on and not self._is_writing and not self._is_over:
            self._loop.add_writer(self.target, self._write)
        elif not on and self._is_writing:
            self._loop.remove_writer(self.target)
        self._is_writing = on and not self._is_over

    def _write(self) -> None:
        while self._out and self._timer is None:
            first = self._out[0]
            if isinstance(first, Wait):
                self._set_writing(False)
                self._timer = self._loop.call_later(first.ms / 1000, self._waited)
                break
            if first is CLOSE:
                self.lost("")
                return
            if first is HALT:
                self.halt()
                return
            try:
                sent = self.target.send(first)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self._set_writing(True)
                return
            except OSError as error:
                self.lost(error.strerror or str(error))
                return
            self._out_bytes -= sent
            if sent < len(first):
                self._out[0] = first[sent:]
                self._set_writing(True)
                return
            self._out.popleft()
        if not self._out:
            self._shares = False
            self._set_writing(False)
            if self._finished:
                self.taker.drained()
        self._balance()

    def _waited(self) -> None:
        self._timer = None
        self._out.popleft()
        self._write()
