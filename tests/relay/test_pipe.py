"""A pipe sends the bytes that it receives, in their order, however they were received and sent."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import lru_cache, partialmethod
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from relay.proxied import in_loop

from kfuzz.relay import pipe as pipes
from kfuzz.relay.pipe import CLOSE, HALT, Buffers, Pipe, Step, Wait, framed

HEAD_BYTES = 4
HELD, PASSED, SMALL = b"h", b"p", b"s"
# More than sockets hold.
BIG_BYTES = 3 << 20


class Scripted:
    """A taker that holds the frames that begin with ``h``, and answers them as ``script`` says.

    Small frames that begin with ``s`` are sent at once, as ``smaller`` says.
    """

    head_bytes = HEAD_BYTES

    def __init__(self, script: Callable[[bytes], Sequence[Step] | None] = lambda data: None) -> None:
        self.script = script
        self.seen: list[tuple[str, bytes | str]] = []
        self.drained_count = 0
        self.smaller: Callable[[bytes], bytes | None] = lambda data: data if data[4:5] == SMALL else None

    def small(self, data: bytes) -> bytes | None:
        sent = self.smaller(data)
        if sent is not None:
            self.seen.append(("small", data))
        return sent

    def began(self, head: memoryview, size: int) -> bool:
        assert len(head) == HEAD_BYTES
        return bytes(head[:1]) == HELD

    def passed(self, data: memoryview) -> None:
        self.seen.append(("passed", bytes(data)))

    def held(self, data: memoryview) -> Sequence[Step] | None:
        self.seen.append(("held", bytes(data)))
        return self.script(bytes(data))

    def _note(self, how: str, why: str) -> None:
        self.seen.append((how, why))

    skipped = partialmethod(_note, "skipped")
    unread = partialmethod(_note, "unread")
    ended = partialmethod(_note, "ended")

    def drained(self) -> None:
        self.drained_count += 1

    @property
    def hows(self) -> list[str]:
        return [how for how, _ in self.seen]

    @property
    def frames(self) -> list[bytes | str]:
        return [what for how, what in self.seen if how in ("passed", "held")]


class Choosy(socket.socket):
    """A socket that receives and sends at most as many bytes at once as ``most`` says each time; 0 blocks."""

    most: Iterator[int]

    def recv_into(self, room: Any, *rest: Any) -> int:
        return super().recv_into(room[: max(next(self.most), 1)])

    def send(self, data: Any, *rest: Any) -> int:
        count = next(self.most)
        if not count:
            raise BlockingIOError
        return super().send(data[:count])


class Endless(socket.socket):
    """A socket that always has more to receive, and takes everything."""

    received_count = 0

    def recv_into(self, room: Any, *rest: Any) -> int:
        self.received_count += 1
        assert self.received_count < 100, "no other pipe gets its turn"
        one = frame(PASSED, 12)
        room[:] = one * (len(room) // len(one))
        return len(room)

    def send(self, data: Any, *rest: Any) -> int:
        return len(data)


def _pair(kind: type[socket.socket] = socket.socket) -> tuple[Any, socket.socket]:
    """An end for the pipe, and the other one for the test."""
    left, right = socket.socketpair()
    return kind(left.family, left.type, left.proto, fileno=left.detach()), right


def tcp_pair(kind: type[socket.socket]) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        left = socket.create_connection(listening.getsockname())
        return left, listening.accept()[0]


class Rig:
    """A pipe between two pairs of sockets."""

    def __init__(self, taker: Scripted, sockets: Sequence[Any], buffers: Buffers | None = None):
        self.source, self.sender, self.target, self.receiver = self.sockets = sockets
        for one in self.sockets:
            one.setblocking(False)
        self.taker = taker
        self.lost: list[str] = []
        self.pipe = Pipe(self.source, self.target, taker, self._lost, buffers)
        self.pipe.start()

    def _lost(self, why: str) -> None:
        self.lost.append(why)
        self.pipe.close()
        self.target.close()

    async def send(self, data: bytes, *, ends: bool = False) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sender, data)
        if ends:
            self.sender.shutdown(socket.SHUT_WR)
        await settled()

    async def receive(self, size: int) -> bytes:
        """Exactly so many bytes; fewer if the pipe's end is closed before."""
        data = b""
        loop = asyncio.get_running_loop()
        while len(data) < size and (more := await loop.sock_recv(self.receiver, size - len(data))):
            data += more
        return data

    async def passes(self, data: bytes, *, ends: bool = False) -> None:
        """Send this; the same comes."""
        sending = asyncio.create_task(self.send(data, ends=ends))
        # A reader that rests lets sockets become full.
        await settled()
        assert await self.receive(len(data)) == data
        await sending

    def received_now(self) -> bytes:
        try:
            return self.receiver.recv(1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.pipe.close()
        for one in self.sockets:
            one.close()


async def settled() -> None:
    """Let the loop do everything that can be done now."""
    for _ in range(20):
        await asyncio.sleep(0)


async def no_more_is_seen(taker: Scripted) -> None:
    before = -1
    while before != len(taker.seen):
        before = len(taker.seen)
        await settled()


def rigged(
    taker: Scripted, buffers: Buffers | None = None, kind: type[socket.socket] = socket.socket
) -> AbstractContextManager[Rig]:
    return closing(Rig(taker, (*_pair(kind), *_pair(kind)), buffers))


@lru_cache(maxsize=64)
def frame(kind: bytes, size: int) -> bytes:
    """A frame of ``size`` bytes after its own size, which are different for each size."""
    return framed((kind + random.Random(size).randbytes(size))[:size])


STEPS = st.none() | st.lists(st.binary(max_size=90) | st.just(Wait(0)), max_size=3)
SIZES = st.integers(HEAD_BYTES, 200)
FRAMES = st.lists(st.tuples(st.just(PASSED), SIZES, st.none()) | st.tuples(st.just(HELD), SIZES, STEPS), max_size=12)


@settings(max_examples=60, deadline=None)
@example(frames=[(HELD, 4, None), (PASSED, 4, None), (HELD, 7, None), (PASSED, 8, None)], most=[300], tail=b"")
@given(frames=FRAMES, most=st.lists(st.integers(0, 70), min_size=1, max_size=20), tail=st.binary(max_size=3))
@in_loop
async def test_any_split_gives_the_same_bytes_and_answers_come_in_the_place_of_held_frames(
    frames: list[tuple[bytes, int, list[Step] | None]], most: list[int], tail: bytes
) -> None:
    sent = [frame(kind, size) for kind, size, _ in frames]
    answers = iter([steps for kind, _, steps in frames if kind == HELD])
    expected = tail
    for one, (_, _, steps) in zip(reversed(sent), reversed(frames), strict=True):
        expected = (one if steps is None else b"".join(step for step in steps if isinstance(step, bytes))) + expected
    with rigged(Scripted(lambda data: next(answers)), kind=Choosy) as rig:
        # Something must come through in the end.
        rig.source.most = rig.target.most = itertools.cycle([*most, 1, 300])
        await rig.send(b"".join(sent) + tail, ends=True)
        assert await rig.receive(len(expected)) == expected
        while not rig.taker.drained_count:
            await asyncio.sleep(0)
        await settled()
        assert rig.received_now() == b""
        assert rig.taker.frames == [one[4:] for one in sent]
        assert rig.taker.hows == [*("held" if kind == HELD else "passed" for kind, _, _ in frames), "ended"]
        assert rig.taker.seen[-1][1] == (f"{len(tail)} bytes of a frame came, and then the end" if tail else "")
        assert (rig.taker.drained_count, rig.lost) == (1, [])


@pytest.mark.parametrize("kind", [HELD, PASSED])
@pytest.mark.parametrize("size", [1 << 16, (1 << 20) + 100, (2 << 20) - 4, 2 << 20, (5 << 20) + 1])
@in_loop
async def test_large_frames_and_the_small_ones_around_them_come_whole(kind: bytes, size: int) -> None:
    sent = [frame(PASSED, 10), frame(kind, size), frame(HELD, 20), frame(kind, size // 2), frame(PASSED, 7)]
    buffers = Buffers()
    with rigged(Scripted(), buffers) as rig:
        await rig.passes(b"".join(sent))
        assert rig.taker.frames == [one[4:] for one in sent]
        assert buffers.bytes == len(rig.pipe._view) == 0


@in_loop
async def test_a_small_frame_that_comes_whole_is_sent_as_the_taker_says() -> None:
    taker = Scripted()
    taker.smaller = lambda data: b"else" if data[4:5] == SMALL else None
    with rigged(taker) as rig:
        for _ in range(2):
            await rig.send(frame(SMALL, 20))
            assert await rig.receive(4) == b"else"
            # Two at once are looked at in the usual way.
            await rig.passes(frame(SMALL, 20) + frame(PASSED, 30))
    assert taker.hows == ["small", "passed", "passed"] * 2


@in_loop
async def test_a_small_frame_waits_for_a_socket_that_takes_a_part() -> None:
    with rigged(Scripted(), kind=Choosy) as rig:
        rig.source.most, rig.target.most = itertools.repeat(1 << 20), itertools.chain([7, 0], itertools.repeat(5))
        for size in (50, 60):
            await rig.send(frame(SMALL, size))
        assert await rig.receive(54 + 64) == frame(SMALL, 50) + frame(SMALL, 60)


# --- frames that the kernel moves


@contextmanager
def no_leaks(buffers: Buffers) -> Iterator[None]:
    def handles() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = handles()
    yield
    buffers.close()
    assert (handles(), buffers.bytes) == (before, 0)


@pytest.mark.parametrize(("tcp", "kernel_bytes"), [(False, 1 << 20), (True, 1 << 20), (True, 4096)])
@pytest.mark.parametrize("change", [None, b"else"])
@in_loop
async def test_a_large_held_frame_is_seen_whole_and_comes_from_the_kernel(
    change: bytes | None, tcp: bool, kernel_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "KERNEL_BYTES", kernel_bytes)
    if tcp:
        monkeypatch.setattr(f"{__name__}._pair", tcp_pair)
    sent = [frame(kind, size) for size in (9, 200_000, 1_064_000, (2 << 20) - 4) for kind in (PASSED, HELD)]
    taker = Scripted(lambda data: None if change is None else [change])
    expected = b"".join(one if change is None or one[4:5] == PASSED else change for one in sent)
    buffers = Buffers()
    with no_leaks(buffers), rigged(taker, buffers) as rig:
        for _ in range(2):
            sending = asyncio.create_task(rig.send(b"".join(sent)))
            await settled()
            assert await rig.receive(len(expected)) == expected
            await sending
        assert taker.frames == [one[4:] for one in sent * 2]
        # A pipe of the kernel is used again once it is empty.
        assert len(buffers.kernel_pipes) == (change is None)
        assert buffers.bytes == 0


@pytest.mark.parametrize("size", [1_000_000, 300_000])
@pytest.mark.parametrize("how", ["end", "close", "halt", "lost"])
@in_loop
async def test_an_end_within_such_a_frame_or_while_it_waits_loses_and_leaks_nothing(size: int, how: str) -> None:
    buffers, taker = Buffers(), Scripted()
    with no_leaks(buffers), rigged(taker, buffers) as rig:
        part = frame(HELD, size)[:300_004]
        sending = asyncio.create_task(rig.send(part, ends=how == "end"))
        await settled()
        if how == "end":
            assert await rig.receive(len(part)) == part
            await sending
            cut = "" if size == 300_000 else "300004 bytes of a frame came, and then the end"
            assert taker.seen[-1] == ("ended", cut)
        elif how == "close":
            rig.pipe.close()
        elif how == "halt":
            rig.pipe.put([HALT])
            rig.received_now()
            await settled()
            assert not rig.lost
        else:
            rig.receiver.close()
            rig.pipe.insert([b"x"])
            rig.sender.close()
        sending.cancel()
        await settled()


@in_loop
async def test_without_handles_for_the_kernel_a_frame_comes_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(flags: int) -> tuple[int, int]:
        raise OSError(24, "too many")

    monkeypatch.setattr(os, "pipe2", refused)
    with rigged(Scripted()) as rig:
        await rig.passes(frame(HELD, 1_000_000))
        assert rig.taker.frames == [frame(HELD, 1_000_000)[4:]]


# --- sizes that are not as they should be, and ends


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 3])
@in_loop
async def test_after_a_size_without_a_header_bytes_are_passed_on_unread(size: int) -> None:
    bad = struct.pack(">i", size) + frame(HELD, 30)
    with rigged(Scripted()) as rig:
        await rig.passes(frame(PASSED, 9) + bad)
        await rig.passes(bad, ends=True)
        seen = [("passed", frame(PASSED, 9)[4:]), ("unread", f"a frame of {size} bytes"), ("ended", "")]
        assert rig.taker.seen == seen


@pytest.mark.parametrize("kind", [HELD, PASSED])
@in_loop
async def test_a_frame_that_is_too_large_is_passed_on_unread_and_the_next_is_read(
    kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "FRAME_BYTES_MAX", 100)
    sent = [frame(PASSED, 10), frame(kind, 101), frame(HELD, 100), frame(kind, 5000), frame(PASSED, 100)]
    whole = b"".join(sent)
    with rigged(Scripted()) as rig:
        for piece in (whole[:60], whole[60:200], whole[200:]):
            await rig.send(piece)
        assert await rig.receive(len(whole)) == whole
        assert rig.taker.seen == [
            ("passed", sent[0][4:]),
            ("skipped", "it has 101 bytes and is passed on unread"),
            ("held", sent[2][4:]),
            ("skipped", "it has 5000 bytes and is passed on unread"),
            ("passed", sent[4][4:]),
        ]


@pytest.mark.parametrize(
    ("kind", "size", "why"),
    [
        (HELD, 100, "50 bytes of a frame came, and then the end"),
        (PASSED, 100, "50 bytes of a frame came, and then the end"),
        (PASSED, 200, "a frame ended too early"),
    ],
)
@in_loop
async def test_the_beginning_of_a_frame_is_passed_on_when_its_sender_ends(
    kind: bytes, size: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "FRAME_BYTES_MAX", 100)
    with rigged(Scripted()) as rig:
        await rig.passes(frame(kind, size)[:50], ends=True)
        assert rig.taker.seen[-1] == ("ended", why)
        assert rig.pipe.is_finished


@pytest.mark.parametrize("waits", [True, False])
@in_loop
async def test_a_target_that_is_gone_ends_the_pipe_once(waits: bool) -> None:
    with rigged(Scripted()) as rig:
        if not waits:
            rig.receiver.close()
        sending = asyncio.create_task(rig.send(frame(PASSED, BIG_BYTES)))
        await settled()
        assert bool(rig.lost) == (not waits)
        rig.receiver.close()
        while not rig.lost:
            await asyncio.sleep(0)
        sending.cancel()
        # Nothing more is sent, and nothing is raised.
        rig.pipe.put([b"x", CLOSE])
        assert rig.lost == ["Broken pipe"]


@in_loop
async def test_an_error_in_the_taker_closes_the_connection() -> None:
    def wrong(data: bytes) -> Sequence[Step]:
        raise ZeroDivisionError

    said: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context["exception"]))
    with rigged(Scripted(wrong)) as rig:
        await rig.send(frame(HELD, 10))
        assert rig.lost == ["it cannot be read because of an error in kfuzz"]
        assert [type(one) for one in said] == [ZeroDivisionError]


# --- steps


@pytest.mark.parametrize("last", [b"last", bytes(BIG_BYTES)], ids=["", "with-a-full-socket"])
@pytest.mark.parametrize("end", [CLOSE, HALT], ids=["close", "halt"])
@in_loop
async def test_nothing_is_sent_after_close_or_halt_but_all_before_it(end: Step, last: bytes) -> None:
    taker = Scripted(lambda data: [last, end, b"never"])
    with rigged(taker) as rig:
        await rig.send(frame(PASSED, 10) + frame(HELD, 10) + frame(PASSED, 11) + frame(HELD, 12))
        expected = frame(PASSED, 10) + last
        assert await rig.receive(len(expected)) == expected
        if end is HALT:
            # It is received and thrown away.
            await rig.send(frame(PASSED, BIG_BYTES))
            assert len(rig.pipe._view) == 0
        assert rig.received_now() == b""
        assert rig.lost == ([""] if end is CLOSE else [])
        assert taker.frames == [frame(PASSED, 10)[4:], frame(HELD, 10)[4:]]


@in_loop
async def test_a_wait_delays_what_follows_it_even_with_a_full_socket() -> None:
    big = bytes(BIG_BYTES)
    loop = asyncio.get_running_loop()
    with rigged(Scripted(lambda data: [big, Wait(30), b"after"])) as rig:
        start = loop.time()
        await rig.send(frame(HELD, 10) + frame(PASSED, 10))
        await rig.receive(len(big))
        assert await rig.receive(5 + 14) == b"after" + frame(PASSED, 10)
        assert loop.time() - start >= 0.03


@in_loop
async def test_half_a_frame_that_passes_is_passed_on_at_once_and_inserted_steps_never_fall_into_a_frame() -> None:
    with rigged(Scripted()) as rig:
        await rig.passes(frame(PASSED, 100)[:50])
        assert rig.taker.seen == []
        rig.pipe.insert([b"between"])
        await rig.send(frame(PASSED, 100)[50:] + frame(PASSED, 20) + frame(HELD, 100)[:50])
        expected = frame(PASSED, 100)[50:] + b"between" + frame(PASSED, 20)
        assert await rig.receive(len(expected)) == expected
        rig.pipe.insert([b"before"])
        await rig.send(frame(HELD, 100)[50:])
        assert await rig.receive(110) == b"before" + frame(HELD, 100)


# --- bounds


@in_loop
async def test_a_held_half_frame_and_silence_keep_only_what_came() -> None:
    buffers = Buffers()
    with rigged(Scripted(), buffers) as rig:
        await rig.send(frame(HELD, BIG_BYTES)[:5000])
        assert rig.received_now() == b""
        assert (buffers.bytes, len(rig.pipe._view)) == (0, 5000)
        await rig.send(frame(HELD, BIG_BYTES)[5000:100_000])
        assert buffers.bytes == pipes.BUFFER_BYTES


@in_loop
async def test_a_reader_that_takes_nothing_bounds_what_is_received_and_loses_nothing() -> None:
    whole = (frame(PASSED, 1000) + frame(HELD, 500)) * 4000
    taker, buffers = Scripted(lambda data: [framed(data)]), Buffers()
    with rigged(taker, buffers) as rig:
        sending = asyncio.create_task(rig.send(whole))
        await no_more_is_seen(taker)
        # The sockets, a buffer and the queue hold this much.
        assert sum(len(data) for _, data in taker.seen) < len(whole) / 2
        assert buffers.bytes <= pipes.BUFFER_BYTES
        assert await rig.receive(len(whole)) == whole
        await sending


@in_loop
async def test_delayed_frames_are_bounded_too() -> None:
    taker = Scripted(lambda data: [Wait(60_000), framed(data)])
    with rigged(taker) as rig:
        sending = asyncio.create_task(rig.send(frame(HELD, 8) * 200_000))
        await no_more_is_seen(taker)
        sending.cancel()
        # Each of them is two parts.
        once = pipes.RECEIVE_BYTES // len(frame(HELD, 8))
        assert len(taker.seen) <= pipes.OUT_BYTES_MAX / (2 * pipes.PART_BYTES) + once


@in_loop
async def test_short_of_memory_frames_are_passed_on_unread() -> None:
    buffers = Buffers(bytes_max=pipes.SMALL_BYTES)
    with rigged(Scripted(), buffers) as rig:
        sent = [frame(PASSED, 100), frame(HELD, 200_000), frame(HELD, 1000), frame(PASSED, 200_000), frame(HELD, 9)]
        await rig.passes(b"".join(sent))
        assert rig.taker.hows == ["passed", "skipped", "held", "skipped", "held"]
        assert buffers.bytes <= pipes.SMALL_BYTES


@in_loop
async def test_many_connections_in_half_a_frame_need_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "KEPT_BYTES", 100)
    buffers = Buffers(bytes_max=8 * pipes.BUFFER_BYTES)
    sent = frame(HELD, 8000)
    with ExitStack() as stack:
        rigs = [stack.enter_context(rigged(Scripted(), buffers)) for _ in range(120)]
        for rig in rigs:
            await rig.send(sent[:2000])
        assert buffers.bytes <= 9 * pipes.BUFFER_BYTES
        for rig in rigs:
            await rig.send(sent[2000:])
            assert await rig.receive(len(sent)) == sent
        assert buffers.bytes == 0
        assert sum(rig.taker.frames == [sent[4:]] for rig in rigs) >= 7


@in_loop
async def test_a_busy_pipe_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "RECEIVE_BYTES", 1600)
    with rigged(Scripted(), kind=Endless) as busy, rigged(Scripted()) as quiet:
        busy.sender.send(b"x")
        quiet.sender.send(frame(PASSED, 10))
        assert await quiet.receive(14) == frame(PASSED, 10)
        assert busy.source.received_count
        assert not busy.lost
