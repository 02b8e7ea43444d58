"""One direction of a connection: bytes come from a socket, frames are seen, bytes go to the other socket.

A frame that nobody may change is passed on as its bytes come, and looked at afterwards. So watching costs no latency.
A frame that may be changed is held until it is whole.

Large frames are copied once, for those who look at them: if they are passed on as they are, the kernel moves its own
bytes from one socket to the other.

Sockets are used within asyncio's loop without its transports, which would copy what a full socket does not take.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import mmap
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from kfuzz.client.tls import why
from kfuzz.relay.loop import unwatch, watch

if TYPE_CHECKING:
    from typing_extensions import Buffer

SIZE: Final = struct.Struct(">i")
# With its size, and the correlation id of a response.
SMALL_MIN: Final = 8
# A larger frame is passed on unread. Kafka's brokers take requests up to 100 MiB.
FRAME_BYTES_MAX: Final = 128 << 20
# The memory that a pipe receives into at first. A fetch of 1 MiB fits, with all that is around its batches.
BUFFER_BYTES: Final = 2 << 20
# The most that one call receives. If so much of a frame is missing, it is received no further than to its end.
RECEIVE_BYTES: Final = 1 << 20
LARGE_BYTES: Final = 64 << 10
# The beginning of a frame that waits for the rest is moved to memory of its own size up to this.
KEPT_BYTES: Final = 16 << 10
# The memory of all pipes together. Above it, pipes get little, and no large frame is kept until it is whole.
BUFFERS_BYTES_MAX: Final = 512 << 20
SMALL_BYTES: Final = 64 << 10
# A pipe that has nothing of a frame receives so much first. Frames that are whole then are small.
SMALL_FRAME_BYTES: Final = 8 << 10
# Memory that stays allocated although no pipe needs it.
SPARE_BYTES_MAX: Final = 64 << 20
# Bytes that may wait for a socket that takes no more, before nothing more is received for it. Each part counts as so
# many bytes at least.
OUT_BYTES_MAX: Final = 1 << 20
PART_BYTES: Final = 256
# The kernel keeps a held frame too if so much of it is missing. One of its pipes holds this much at most.
MIRRORED_BYTES_MIN: Final = 64 << 10
KERNEL_BYTES: Final = 1 << 20
KERNEL_PIPES_MAX: Final = 16
# The flags of splice: move pages, do not wait.
SPLICE_FLAGS: Final = 3
# How many times in a row one pipe may receive before others get their turn.
TURNS_MAX: Final = 4
# A socket that has nothing, or takes nothing, at the moment.
BLOCKED: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
NOTHING: Final = memoryview(b"")

Socket = socket.socket


@dataclass(frozen=True, slots=True)
class Wait:
    """The steps after this one are sent so much later, counted from when this step is put."""

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
    """Looks at the frames of a pipe."""

    # How many bytes of a frame, without its size, :meth:`began` needs.
    head_bytes: int

    def small(self, data: bytes) -> bytes | None:
        """The bytes to send at once in place of a small frame that is whole, with its size; None to call the others."""

    def began(self, head: memoryview, size: int) -> bool:
        """A frame of ``size`` bytes begins with these bytes, without its size. Whether it is to be held."""

    def passed(self, data: memoryview) -> None:
        """A frame was passed on as it is. It may be overwritten after this call."""

    def held(self, data: memoryview) -> Sequence[Step] | None:
        """A frame is whole and was not passed on. The steps in its place; None: the frame as it is.

        It may be overwritten after this call.
        """

    def skipped(self, why: str) -> None:
        """The frame that began last is passed on unread. ``why`` is a sentence."""

    def unread(self, why: str) -> None:
        """From here on, frames are not read but passed on as bytes. ``why`` is a sentence."""

    def ended(self, why: str) -> None:
        """No more bytes come; ``why`` is empty if the sender closed its end between two frames."""

    def drained(self) -> None:
        """After the end, everything that came is sent."""


class Buffers:
    """The memory that pipes receive into. A pipe has some only while a frame is not whole, or not sent.

    So a thousand connections need little, and busy ones use the same memory in turn, which stays in the processor's
    cache.
    """

    def __init__(self, bytes_max: int = BUFFERS_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        # The bytes that pipes have now.
        self.bytes = 0
        self._spare: dict[int, list[memoryview]] = {}
        self._spare_bytes = 0
        # Pipes of the kernel that are empty: the ends to read and to write.
        self.kernel_pipes: list[tuple[int, int]] = []
        # Where small frames are received. They leave it at once, so all pipes share it.
        self.small = memoryview(bytearray(SMALL_FRAME_BYTES))

    @property
    def is_short(self) -> bool:
        """Whether there is only little for the next pipe."""
        return self.bytes + BUFFER_BYTES > self.bytes_max

    def take(self, size: int = BUFFER_BYTES) -> memoryview:
        """Memory of this size; of ``SMALL_BYTES`` if there is not so much."""
        if self.bytes + size > self.bytes_max:
            size = SMALL_BYTES
        self.bytes += size
        if spare := self._spare.get(size):
            self._spare_bytes -= size
            return spare.pop()
        made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= BUFFER_BYTES:
            # With small pages, copying a fetch takes a fifth longer.
            with contextlib.suppress(AttributeError, OSError):
                made.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(made)

    def mirror(self, start: int) -> Mirror | None:
        """An empty mirror; None if the system has no handles left, or cannot do it."""
        if not self.kernel_pipes:
            try:
                ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                return None
            self.kernel_pipes.append(ends)
            with contextlib.suppress(OSError):
                fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, KERNEL_BYTES)
        return Mirror(self, self.kernel_pipes.pop(), start)

    def close(self) -> None:
        """Close the pipes of the kernel."""
        while self.kernel_pipes:
            _close(self.kernel_pipes.pop())

    def give(self, view: memoryview) -> None:
        size = len(view)
        self.bytes -= size
        if self._spare_bytes + size <= SPARE_BYTES_MAX:
            self._spare_bytes += size
            self._spare.setdefault(size, []).append(view)


def _close(ends: tuple[int, int]) -> None:
    for one in ends:
        os.close(one)


@dataclass(slots=True, eq=False)
class Mirror:
    """A part of a held frame as the kernel has it. It is sent without a copy.

    ``start``: where it begins in the frame, with the frame's size; ``size``: its bytes that are not sent.
    """

    _buffers: Buffers
    _ends: tuple[int, int]
    start: int
    size: int = 0
    _is_full: bool = False

    def receive(self, source: Socket, room: memoryview) -> int:
        """As ``source.recv_into``. Once the kernel's pipe is full, nothing more comes into the mirror."""
        if not self._is_full and (count := source.recv_into(room, 0, socket.MSG_PEEK)):
            try:
                count = os.splice(source.fileno(), self._ends[1], count, flags=SPLICE_FLAGS)
            except BlockingIOError:
                self._is_full = True
            else:
                self.size += count
                return count
        return source.recv_into(room)

    def send(self, target: Socket) -> None:
        """Send all of it, and close it. ``BlockingIOError`` if something is left."""
        while self.size:
            self.size -= os.splice(self._ends[0], target.fileno(), self.size, flags=SPLICE_FLAGS)
        self.close()

    def close(self) -> None:
        """Forget its bytes."""
        if self.size or len(self._buffers.kernel_pipes) >= KERNEL_PIPES_MAX:
            _close(self._ends)
        else:
            self._buffers.kernel_pipes.append(self._ends)


class Pipe:
    """Takes from ``source``, gives to ``target``. ``lost`` is called once, when nothing can be sent or received."""

    def __init__(
        self, source: Socket, target: Socket, taker: Taker, lost: Callable[[str], None], buffers: Buffers | None = None
    ) -> None:
        self.source = source
        self.target = target
        self.taker = taker
        self.lost = lost
        self._buffers = buffers or Buffers()
        self._loop = asyncio.get_running_loop()
        self._is_tls = isinstance(source, ssl.SSLSocket)
        self._may_mirror = hasattr(os, "splice") and not self._is_tls and not isinstance(target, ssl.SSLSocket)
        # Of the current frame.
        self._mirror: Mirror | None = None
        self._view = NOTHING
        # Whether ``_view`` is from ``_buffers``.
        self._is_lent = False
        # Of the current frame, with its size: where it begins, how much of it is passed on, and its size if known.
        self._start = self._passed = 0
        self._size = -1
        self._holds = False
        self._end = 0
        # Bytes of the current frame that are passed on unread, or -1 if no frames are read any more.
        self._unread = 0
        # Buffers to send, the time to wait for (seconds of the loop's clock), and marks.
        self._out: deque[Any] = deque()
        self._out_bytes = 0
        # Steps that follow the frame that is being passed on.
        self._later: list[Step] = []
        # Whether something in ``_out`` lies in ``_view``.
        self._shares = False
        self._timer: asyncio.TimerHandle | None = None
        # Whether the loop watches the source, and whether something may be received now.
        self._is_watched = self._is_reading = False
        self._is_writing = self._is_over = False
        # After CLOSE or HALT nothing is passed on.
        self._is_stopped = False
        self._is_finished = False

    @property
    def is_finished(self) -> bool:
        """Whether the source has ended and everything is sent."""
        return self._is_finished and not self._out

    def start(self) -> None:
        self._set_reading(True)

    def close(self) -> None:
        """End. Closes no socket."""
        self._is_over = self._is_stopped = True
        self._is_reading = False
        self._unwatch()
        self._set_writing(False)
        self._forget()
        self._start = self._passed = self._end
        self._release()

    def halt(self) -> None:
        """Pass nothing on any more. Both sockets stay open, and what comes is thrown away."""
        self._is_stopped, self._size = True, -1
        self._set_writing(False)
        self._forget()
        self._balance()

    def _forget(self) -> None:
        """Send nothing of what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for step in self._out:
            if isinstance(step, Mirror):
                step.close()
        self._no_mirror()
        self._out.clear()
        self._later.clear()
        self._out_bytes = 0
        self._shares = False

    # -- receiving

    def _set_reading(self, on: bool) -> None:
        # The loop stops watching the source only when something comes that may not be received. A peer that waits for
        # an answer sends nothing.
        self._is_reading = on = on and not self._is_over
        if not on:
            return
        if not self._is_watched:
            self._is_watched = True
            watch(self._loop, self.source.fileno(), self._readable)
        # A socket of TLS may have decrypted bytes in its own memory, which the loop does not know.
        if isinstance(self.source, ssl.SSLSocket) and self.source.pending():
            self._loop.call_soon(self._readable)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            unwatch(self._loop, self.source.fileno())

    def _readable(self) -> None:
        if not self._is_reading:
            self._unwatch()
            return
        try:
            self._receive()
        except Exception:
            # An error of this program. Nobody waits for a connection that nothing comes out of.
            self.lost("it cannot be read because of an error in kfuzz")
            raise

    def _receive(self) -> None:
        source = self.source
        for _ in range(TURNS_MAX):
            may_be_small = self._view is NOTHING and not (self._out or self._later or self._unread or self._is_stopped)
            room = self._buffers.small if may_be_small else self._room()
            if not self._is_reading:
                break
            try:
                count = self._mirror.receive(source, room) if self._mirror else source.recv_into(room)
            except BLOCKED:
                break
            except ssl.SSLZeroReturnError:
                # TLS ended in both directions.
                count = 0
            except OSError as error:
                self._source_ended(why(error))
                break
            if not count:
                self._source_ended("")
                break
            if may_be_small:
                if self._pass_small(room, count):
                    return
                self._make_room()
                self._view[:count] = room[:count]
            self._end += count
            # While a held frame is not whole, there is nothing to do.
            if not self._holds or self._end - self._start >= self._size:
                self._take()
                if self._holds and self._may_mirror and self._left() >= MIRRORED_BYTES_MIN:
                    self._mirror = self._buffers.mirror(self._end - self._start)
            # There may be more in the socket only if the room is full. TLS gives one of its records at a time.
            if not self._is_reading or (count < len(room) and not self._is_tls):
                break
        else:
            self._set_reading(True)
        self._release()

    def _pass_small(self, room: memoryview, count: int) -> bool:
        """Pass on a small frame that came whole, unless it needs more. Whether it is passed on."""
        if count < SMALL_MIN or self._is_tls or SIZE.unpack_from(room)[0] != count - SIZE.size:
            return False
        data = self.taker.small(bytes(room[:count]))
        if data is None:
            return False
        self._send(data)
        return True

    def _room(self) -> memoryview:
        """Where to receive. A large frame is received to its end and no further, so that little is moved."""
        if self._start == self._end:
            self._start = self._passed = self._end = 0
        left = self._left()
        if self._end + left > len(self._view) or self._end == len(self._view):
            self._make_room()
            left = self._left()
        count = left if left > LARGE_BYTES or self._mirror else RECEIVE_BYTES
        return self._view[self._end : self._end + min(count, RECEIVE_BYTES)]

    def _left(self) -> int:
        """How many bytes of the current frame are missing."""
        return self._size - (self._end - self._start) if self._size >= 0 else 0

    def _make_room(self) -> None:
        view, start, there = self._view, self._start, self._end - self._start
        if start and start < self._end:
            view[:there] = bytes(view[start : self._end])
        self._passed -= start
        self._start, self._end = 0, there
        if there < len(view):
            return
        bigger = self._buffers.take(max(2 * len(view), BUFFER_BYTES) if self._is_lent else BUFFER_BYTES)
        if len(bigger) <= there:
            self._buffers.give(bigger)
            self._skip()
            return
        bigger[:there] = view
        self._give()
        self._view, self._is_lent = bigger, True

    def _skip(self) -> bool:
        """Pass on the current frame unread, because there is no memory for it. Whether all that came of it is sent."""
        self._no_mirror()
        self._unread = self._left()
        self._size = -1
        self._flush(self._end, [])
        self._start = self._passed = self._end = 0
        self.taker.skipped(
            "the connections have too many bytes of frames that are not whole, so it is passed on unread"
        )
        return not self._shares

    def _release(self) -> None:
        """Keep no more memory than what there is of a frame needs."""
        if self._shares or not self._is_lent:
            return
        left = self._end - self._start
        if left > KEPT_BYTES and self._buffers.is_short and self._size >= 0:
            if not self._skip():
                return
            left = 0
        if left <= KEPT_BYTES:
            kept = memoryview(bytearray(self._view[self._start : self._end])) if left else NOTHING
            self._give()
            self._view = kept
            self._passed -= self._start
            self._start, self._end = 0, left

    def _give(self) -> None:
        if self._is_lent:
            self._is_lent = False
            self._buffers.give(self._view)

    def _take(self) -> None:
        """Look at the bytes that came: pass on what may be passed on, then hand over the frames that are whole."""
        if self._stops():
            return
        seen: list[memoryview] = []
        while self._unread >= 0:
            if self._unread:
                part = min(self._unread, self._end - self._start)
                self._start += part
                self._unread -= part
                if self._unread:
                    break
                self._put_later(seen)
            if self._size < 0 and not self._begin(seen):
                break
            if self._size < 0:
                # It is not read.
                continue
            whole = self._start + self._size
            if self._end < whole:
                break
            data = self._view[self._start + SIZE.size : whole]
            self._size = -1
            if self._holds:
                if seen:
                    # They were passed on, and come first.
                    self._flush(self._start, seen)
                self._take_held(data, whole)
                self._start = whole
            else:
                seen.append(data)
                self._start = whole
                self._put_later(seen)
            if self._stops():
                self._flush(self._end, seen)
                return
        if self._unread < 0:
            self._start = self._end
        is_known = self._size >= 0 and not self._holds
        self._flush(self._end if is_known else self._start, seen)

    def _take_held(self, data: memoryview, whole: int) -> None:
        steps = self.taker.held(data)
        mirror, self._mirror = self._mirror, None
        if steps is not None:
            if mirror:
                mirror.close()
            self._flush(self._start, [])
            self._passed = whole
            self.put(steps)
        elif mirror:
            at = self._start + mirror.start
            self._flush(at, [])
            self._passed = at + mirror.size
            # Nothing is received while it waits.
            self._shares = True
            self._append(mirror, 0)
            if not self._is_writing:
                self._write()

    def _no_mirror(self) -> None:
        if self._mirror:
            self._mirror.close()
            self._mirror = None

    def _stops(self) -> bool:
        """Whether nothing is passed on any more. Then what came is thrown away."""
        if self._is_stopped:
            self._start = self._passed = self._end
        return self._is_stopped

    def _begin(self, seen: list[memoryview]) -> bool:
        """The next frame begins, if enough of it is there."""
        view, start = self._view, self._start
        there = self._end - start
        if there < SIZE.size:
            return False
        [size] = SIZE.unpack_from(view, start)
        head = start + SIZE.size
        needed = self.taker.head_bytes
        if size < needed:
            self._unread = -1
            self._flush(start, seen)
            self.taker.unread(f"a frame of {size} bytes")
            return True
        if there < SIZE.size + needed:
            return False
        holds = self.taker.began(view[head : head + needed], size)
        if size > FRAME_BYTES_MAX:
            self._unread = SIZE.size + size
            self._flush(start, seen)
            self.taker.skipped(f"it has {size} bytes and is passed on unread")
            return True
        if self._is_stopped:
            return False
        self._holds = holds
        self._size = SIZE.size + size
        return True

    def _flush(self, end: int, seen: list[memoryview]) -> None:
        """Pass on the bytes up to ``end``, then show the frames among them."""
        if end > self._passed:
            data = self._view[self._passed : end]
            self._passed = end
            if not self._is_stopped:
                self._send(data, shares=True)
        for frame in seen:
            self.taker.passed(frame)
        seen.clear()

    def _put_later(self, seen: list[memoryview]) -> None:
        """A frame ends that was passed on as it came: send what follows it."""
        if self._later:
            self._flush(self._start, seen)
            steps, self._later = self._later, []
            self.put(steps)

    def _source_ended(self, why: str) -> None:
        self._is_reading = False
        self._unwatch()
        self._no_mirror()
        left = self._end - self._start
        if not why and (left or self._unread > 0):
            why = f"{left} bytes of a frame came, and then the end" if left else "a frame ended too early"
        # A held frame that never became whole is passed on too.
        self._flush(self._end, [])
        self._start = self._end
        self._is_finished = True
        self.taker.ended(why)
        if not self._out and not self._is_over:
            self.taker.drained()

    # -- sending

    def put(self, steps: Sequence[Step]) -> None:
        """Send these as well, after everything that waits. Steps after CLOSE or HALT are not sent."""
        for step in steps:
            if self._is_stopped:
                return
            if isinstance(step, bytes):
                self._send(memoryview(step))
                continue
            if not isinstance(step, Wait):
                self._is_stopped, self._size = True, -1
            self._append(self._loop.time() + step.ms / 1000 if isinstance(step, Wait) else step, 0)
            if not self._is_writing:
                self._write()

    def insert(self, steps: Sequence[Step]) -> None:
        """Send these between two frames: after all that came before, but not within a frame that is passed on."""
        if self._unread > 0 or self._passed > self._start:
            self._later.extend(steps)
        else:
            self._flush(self._start, [])
            self.put(steps)

    def _append(self, step: Any, size: int) -> None:
        self._out.append(step)
        self._out_bytes += max(size, PART_BYTES)

    def _send(self, data: bytes | memoryview, *, shares: bool = False) -> None:
        if not self._out:
            try:
                sent = self.target.send(data)
            except BLOCKED:
                sent = 0
            except OSError as error:
                self.lost(why(error))
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._append(data, len(data))
        self._shares = self._shares or shares
        if self._timer is None:
            self._set_writing(True)
        self._balance()

    def _balance(self) -> None:
        """Receive only while what waits is little, and not in the memory that is received into."""
        self._set_reading(not self._is_finished and not self._shares and self._out_bytes <= OUT_BYTES_MAX)

    def _set_writing(self, on: bool) -> None:
        if on and not self._is_writing and not self._is_over:
            self._loop.add_writer(self.target, self._writable)
        elif not on and self._is_writing:
            self._loop.remove_writer(self.target)
        self._is_writing = on and not self._is_over

    def _writable(self) -> None:
        try:
            self._write()
        except Exception:
            self.lost("it cannot be written because of an error in kfuzz")
            raise

    def _write(self) -> None:
        while self._out and self._timer is None:
            first = self._out[0]
            if isinstance(first, float):
                self._set_writing(False)
                self._timer = self._loop.call_at(first, self._waited)
                break
            if first is CLOSE:
                self.lost("")
                return
            if first is HALT:
                self.halt()
                return
            try:
                if isinstance(first, Mirror):
                    first.send(self.target)
                    self._sent(0)
                    continue
                sent = self.target.send(first)
            except BLOCKED:
                self._set_writing(True)
                return
            except OSError as error:
                self.lost(why(error))
                return
            if sent < len(first):
                self._out[0] = first[sent:]
                self._out_bytes -= max(len(first), PART_BYTES) - max(len(first) - sent, PART_BYTES)
                self._set_writing(True)
                return
            self._sent(len(first))
        if not self._out:
            self._shares = False
            self._set_writing(False)
            self._release()
            if self._is_finished:
                self.taker.drained()
        self._balance()

    def _sent(self, size: int) -> None:
        self._out.popleft()
        self._out_bytes -= max(size, PART_BYTES)

    def _waited(self) -> None:
        self._timer = None
        self._sent(0)
        self._writable()
