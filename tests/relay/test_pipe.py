"""A pipe sends the bytes that it receives, in their order, however they were received and sent."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import socket
import struct
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfuzz.relay import pipe as pipes
from kfuzz.relay.pipe import CLOSE, HALT, Buffers, Pipe, Step, Wait, framed

HEAD_BYTES = 4
HELD, PASSED, SMALL = b"h", b"p", b"s"
PATIENCE_S = 20


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

    def opaque(self, data: memoryview) -> tuple[int, bool]:
        return 0, False

    def passes(self, data: memoryview) -> bool:
        raise AssertionError("no frame has a gap")

    def skipped(self, why: str) -> None:
        self.seen.append(("skipped", why))

    def unread(self, why: str) -> None:
        self.seen.append(("unread", why))

    def ended(self, why: str) -> None:
        self.seen.append(("ended", why))

    def drained(self) -> None:
        self.drained_count += 1

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


def _pair(kind: type[socket.socket] = socket.socket) -> tuple[Any, socket.socket]:
    """An end for the pipe, and the other one for the test."""
    left, right = socket.socketpair()
    ours = kind(left.family, left.type, left.proto, fileno=left.detach())
    for one in (ours, right):
        one.setblocking(False)
    return ours, right


class Rig:
    """A pipe between two pairs of sockets."""

    def __init__(self, taker: Scripted, kind: type[socket.socket] = socket.socket, buffers: Buffers | None = None):
        self.source, self.sender = _pair(kind)
        self.target, self.receiver = _pair(kind)
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

    async def receive(self, size: int) -> bytes:
        """Exactly so many bytes; fewer if the pipe's end is closed before."""
        data = b""
        loop = asyncio.get_running_loop()
        while len(data) < size and (more := await loop.sock_recv(self.receiver, size - len(data))):
            data += more
        return data

    def received_now(self) -> bytes:
        try:
            return self.receiver.recv(1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.pipe.close()
        for one in (self.source, self.sender, self.target, self.receiver):
            one.close()


async def settled() -> None:
    """Let the loop do everything that can be done now."""
    for _ in range(20):
        await asyncio.sleep(0)


def ran(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await work()

    return asyncio.run(bounded())


@contextmanager
def rigged(taker: Scripted, *arguments: Any) -> Iterator[Rig]:
    rig = Rig(taker, *arguments)
    try:
        yield rig
    finally:
        rig.close()


def frame(kind: bytes, size: int) -> bytes:
    """A frame of ``size`` bytes after its own size, which are all different for some way."""
    return framed((kind + random.Random(size).randbytes(size))[:size])


# --- the bytes ------------------------------------------------------------------------------------------------------

FRAMES = st.lists(st.tuples(st.sampled_from([HELD, PASSED]), st.integers(HEAD_BYTES, 200)), max_size=12)


@settings(max_examples=60, deadline=None)
@given(frames=FRAMES, most=st.lists(st.integers(0, 70), min_size=1, max_size=20), tail=st.binary(max_size=3))
def test_any_split_of_receives_and_sends_gives_the_same_bytes(
    frames: list[tuple[bytes, int]], most: list[int], tail: bytes
) -> None:
    sent = [frame(kind, size) for kind, size in frames]
    # 1 among them: something must come through in the end.
    amounts = [*most, 1, 300]

    async def work() -> None:
        taker = Scripted()
        with rigged(taker, Choosy) as rig:
            turns = [0]

            def following() -> Iterator[int]:
                while True:
                    turns[0] += 1
                    yield amounts[turns[0] % len(amounts)]

            rig.source.most = rig.target.most = following()
            await rig.send(b"".join(sent) + tail, ends=True)
            assert await rig.receive(len(b"".join(sent) + tail)) == b"".join(sent) + tail
            await settled()
            assert taker.frames == [one[4:] for one in sent]
            assert [how for how, _ in taker.seen][:-1] == ["held" if kind == HELD else "passed" for kind, _ in frames]
            end = f"{len(tail)} bytes of a frame came, and then the end" if tail else ""
            assert taker.seen[-1] == ("ended", end)
            assert taker.drained_count == 1
            assert not rig.lost

    ran(work)


@settings(max_examples=40, deadline=None)
@given(frames=FRAMES, most=st.lists(st.integers(0, 70), min_size=1, max_size=20), data=st.data())
def test_changed_frames_come_in_the_place_of_those_that_were_held(
    frames: list[tuple[bytes, int]], most: list[int], data: st.DataObject
) -> None:
    sent = [frame(kind, size) for kind, size in frames]
    answers: list[list[Step] | None] = [
        data.draw(st.one_of(st.none(), st.lists(st.one_of(st.binary(max_size=90), st.just(Wait(0))), max_size=3)))
        for kind, _ in frames
        if kind == HELD
    ]
    script = iter(answers)
    expected = b""
    following_answer = iter(answers)
    for (kind, _), one in zip(frames, sent, strict=True):
        steps = next(following_answer) if kind == HELD else None
        expected += one if steps is None else b"".join(step for step in steps if isinstance(step, bytes))

    async def work() -> None:
        with rigged(Scripted(lambda data: next(script)), Choosy) as rig:
            turns = [0]

            def following() -> Iterator[int]:
                while True:
                    turns[0] += 1
                    yield [*most, 1, 300][turns[0] % (len(most) + 2)]

            rig.source.most = rig.target.most = following()
            await rig.send(b"".join(sent), ends=True)
            assert await rig.receive(len(expected)) == expected
            while not rig.taker.drained_count:
                await asyncio.sleep(0)
            assert rig.received_now() == b""

    ran(work)


@pytest.mark.parametrize("kind", [HELD, PASSED])
@pytest.mark.parametrize("size", [1 << 16, (1 << 20) + 100, (2 << 20) - 4, 2 << 20, (5 << 20) + 1])
def test_large_frames_and_the_small_ones_around_them_come_whole(kind: bytes, size: int) -> None:
    sent = [frame(PASSED, 10), frame(kind, size), frame(HELD, 20), frame(kind, size // 2), frame(PASSED, 7)]

    async def work() -> None:
        buffers = Buffers()
        with rigged(Scripted(), socket.socket, buffers) as rig:
            whole = b"".join(sent)
            sending = asyncio.create_task(rig.send(whole))
            assert await rig.receive(len(whole)) == whole
            await sending
            await settled()
            assert rig.taker.frames == [one[4:] for one in sent]
            assert buffers.bytes == rig.pipe.buffer_bytes == 0

    ran(work)


# --- small frames ---------------------------------------------------------------------------------------------------


def test_a_small_frame_that_comes_whole_is_sent_as_the_taker_says() -> None:
    async def work() -> list[bytes | str]:
        taker = Scripted()
        taker.smaller = lambda data: b"else" if data[4:5] == SMALL else None
        with rigged(taker) as rig:
            await rig.send(frame(SMALL, 20))
            assert await rig.receive(4) == b"else"
            # Two at once, or one with a part of the next, are looked at in the usual way.
            both = frame(SMALL, 20) + frame(PASSED, 30)
            await rig.send(both)
            assert await rig.receive(len(both)) == both
            await rig.send(frame(SMALL, 20))
            assert await rig.receive(4) == b"else"
        return [how for how, _ in taker.seen]

    assert ran(work) == ["small", "passed", "passed", "small"]


def test_a_small_frame_waits_for_a_socket_that_takes_a_part() -> None:
    async def work() -> None:
        with rigged(Scripted(), Choosy) as rig:
            rig.source.most, rig.target.most = itertools.repeat(1 << 20), itertools.chain([7, 0], itertools.repeat(5))
            await rig.send(frame(SMALL, 50))
            await settled()
            await rig.send(frame(SMALL, 60))
            assert await rig.receive(54 + 64) == frame(SMALL, 50) + frame(SMALL, 60)

    ran(work)


# --- parts that the kernel moves ------------------------------------------------------------------------------------


class Leaving(Scripted):
    """Leaves all of a frame to the kernel but its last 100 bytes; ``passing`` frames that it holds pass as they are."""

    def __init__(
        self, script: Callable[[bytes], Sequence[Step] | None], *, passing: bool, reading: bool = False
    ) -> None:
        super().__init__(script)
        self.passing = passing
        self.reading = reading
        self.sizes: list[int] = []

    def began(self, head: memoryview, size: int) -> bool:
        self.sizes.append(size)
        return super().began(head, size)

    def opaque(self, data: memoryview) -> tuple[int, bool]:
        return self.sizes[-1] - 100, self.reading

    def passes(self, data: memoryview) -> bool:
        if self.passing:
            self.seen.append(("passes", bytes(data)))
        return self.passing

    def ends_of_frames(self) -> list[tuple[str, bytes, bytes]]:
        """How each frame was seen, its first bytes and its last."""
        return [(how, what[:1000], what[-100:]) for how, what in self.seen if isinstance(what, bytes)]


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        left = socket.create_connection(listening.getsockname())
        right, _ = listening.accept()
    for one in (left, right):
        one.setblocking(False)
    return left, right


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("kernel_bytes", [1 << 20, 4096])
@pytest.mark.parametrize("passing", [True, False])
@pytest.mark.parametrize("kind", [HELD, PASSED])
@pytest.mark.parametrize("reading", [True, False])
@pytest.mark.parametrize("tcp", [True, False])
def test_a_frame_with_a_part_for_the_kernel_comes_whole(
    kind: bytes, passing: bool, tcp: bool, reading: bool, kernel_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "KERNEL_BYTES", kernel_bytes)
    if tcp:
        monkeypatch.setattr(f"{__name__}._pair", lambda kind: tcp_pair())
    big = [frame(kind, size) for size in (200_000, 1_064_000, (2 << 20) - 4, 600_000)]
    sent = [frame(PASSED, 10), big[0], frame(HELD, 20), big[1], big[2], big[3], frame(HELD, 9)]
    whole = b"".join(sent)

    async def work() -> int:
        buffers = Buffers()
        taker = Leaving(lambda data: None, passing=passing, reading=reading)
        before = handles()
        with rigged(taker, socket.socket, buffers) as rig:
            for _ in range(2):
                sending = asyncio.create_task(rig.send(whole))
                # A reader that rests lets sockets become full.
                await settled()
                assert await rig.receive(len(whole)) == whole
                await sending
            await settled()
            seen = taker.ends_of_frames()
            assert [(first, last) for _, first, last in seen] == [(one[4:1004], one[4:][-100:]) for one in sent] * 2
            # With a small pipe of the kernel, a held frame cannot stay there.
            is_left = passing and kernel_bytes == 1 << 20
            if reading or (kind == HELD and not is_left):
                # They have all their bytes.
                assert [what for _, what in taker.seen] == [one[4:] for one in sent] * 2
            how = "passed" if kind == PASSED else "passes" if is_left else "held"
            assert buffers.kernel_pipes_made > 0
            assert how in {one for one, _, _ in seen}
            assert buffers.bytes == 0
        buffers.close()
        return handles() - before

    assert ran(work) == 0


@pytest.mark.parametrize("kind", [HELD, PASSED])
@pytest.mark.parametrize("how", ["end", "close", "halt", "lost"])
def test_an_end_within_such_a_part_loses_and_leaks_nothing(kind: bytes, how: str) -> None:
    async def work() -> int:
        buffers = Buffers()
        taker = Leaving(lambda data: None, passing=True)
        before = handles()
        with rigged(taker, socket.socket, buffers) as rig:
            part = frame(kind, 1_000_000)[:300_000]
            sending = asyncio.create_task(rig.send(part, ends=how == "end"))
            await settled()
            assert buffers.kernel_pipes_made == 1
            if how == "end":
                assert await rig.receive(len(part)) == part
                await settled()
                assert taker.seen[-1] == ("ended", "300000 bytes of a frame came, and then the end")
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
        buffers.close()
        assert buffers.bytes == 0
        return handles() - before

    assert ran(work) == 0


def test_without_handles_for_the_kernel_a_frame_comes_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(flags: int) -> tuple[int, int]:
        raise OSError(24, "too many")

    monkeypatch.setattr(os, "pipe2", refused)

    async def work() -> None:
        taker = Leaving(lambda data: None, passing=True)
        with rigged(taker) as rig:
            sending = asyncio.create_task(rig.send(frame(HELD, 1_000_000)))
            assert await rig.receive(1_000_004) == frame(HELD, 1_000_000)
            await sending
            assert taker.frames == [frame(HELD, 1_000_000)[4:]]

    ran(work)


# --- sizes that are not as they should be ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 3])
def test_after_a_size_without_a_header_bytes_are_passed_on_unread(size: int) -> None:
    bad = struct.pack(">i", size) + frame(HELD, 30)

    async def work() -> None:
        with rigged(Scripted()) as rig:
            await rig.send(frame(PASSED, 9) + bad)
            assert await rig.receive(13 + len(bad)) == frame(PASSED, 9) + bad
            await rig.send(bad, ends=True)
            assert await rig.receive(len(bad)) == bad
            await settled()
            assert rig.taker.seen == [
                ("passed", frame(PASSED, 9)[4:]),
                ("unread", f"a frame of {size} bytes"),
                ("ended", ""),
            ]

    ran(work)


@pytest.mark.parametrize("size", [4, 7, 8])
def test_a_frame_of_only_a_header_is_read(size: int) -> None:
    async def work() -> None:
        with rigged(Scripted()) as rig:
            await rig.send(frame(HELD, size) + frame(PASSED, size))
            assert await rig.receive(2 * size + 8) == frame(HELD, size) + frame(PASSED, size)
            assert rig.taker.frames == [frame(HELD, size)[4:], frame(PASSED, size)[4:]]

    ran(work)


@pytest.mark.parametrize("kind", [HELD, PASSED])
def test_a_frame_that_is_too_large_is_passed_on_unread_and_the_next_is_read(
    kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "FRAME_BYTES_MAX", 100)

    async def work() -> None:
        with rigged(Scripted()) as rig:
            sent = [frame(PASSED, 10), frame(kind, 101), frame(HELD, 100), frame(kind, 5000), frame(PASSED, 100)]
            for piece in (b"".join(sent)[:60], b"".join(sent)[60:200], b"".join(sent)[200:]):
                await rig.send(piece)
                await settled()
            assert await rig.receive(len(b"".join(sent))) == b"".join(sent)
            await settled()
            assert rig.taker.seen == [
                ("passed", sent[0][4:]),
                ("skipped", "it has 101 bytes and is passed on unread"),
                ("held", sent[2][4:]),
                ("skipped", "it has 5000 bytes and is passed on unread"),
                ("passed", sent[4][4:]),
            ]

    ran(work)


# --- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [HELD, PASSED])
def test_the_beginning_of_a_frame_is_passed_on_when_its_sender_ends(kind: bytes) -> None:
    async def work() -> None:
        with rigged(Scripted()) as rig:
            await rig.send(frame(kind, 100)[:50], ends=True)
            assert await rig.receive(50) == frame(kind, 100)[:50]
            await settled()
            assert rig.taker.seen == [("ended", "50 bytes of a frame came, and then the end")]
            assert rig.pipe.is_finished

    ran(work)


def test_the_end_within_a_frame_that_is_too_large_is_no_clean_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "FRAME_BYTES_MAX", 100)

    async def work() -> None:
        with rigged(Scripted()) as rig:
            await rig.send(frame(PASSED, 200)[:150], ends=True)
            assert await rig.receive(150) == frame(PASSED, 200)[:150]
            await settled()
            assert rig.taker.seen[-1] == ("ended", "a frame ended too early")

    ran(work)


def test_a_held_half_frame_and_silence_keep_only_what_came() -> None:
    async def work() -> None:
        buffers = Buffers()
        with rigged(Scripted(), socket.socket, buffers) as rig:
            await rig.send(frame(HELD, 3 << 20)[:5000])
            await settled()
            assert rig.received_now() == b""
            assert (buffers.bytes, rig.pipe.buffer_bytes) == (0, 5000)
            await rig.send(frame(HELD, 3 << 20)[5000:100_000])
            await settled()
            assert buffers.bytes == pipes.BUFFER_BYTES

    ran(work)


def test_a_passed_half_frame_and_silence_are_passed_on_at_once() -> None:
    async def work() -> None:
        with rigged(Scripted()) as rig:
            await rig.send(frame(PASSED, 100)[:60])
            assert await rig.receive(60) == frame(PASSED, 100)[:60]
            assert rig.taker.seen == []

    ran(work)


def test_a_target_that_is_gone_ends_the_pipe_once() -> None:
    async def work() -> None:
        with rigged(Scripted()) as rig:
            rig.receiver.close()
            await rig.send(frame(PASSED, 100) * 3)
            await settled()
            assert rig.lost == ["Broken pipe"]
            # Nothing more is sent, and nothing is raised.
            rig.pipe.put([b"x", CLOSE])
            assert len(rig.lost) == 1

    ran(work)


def test_a_target_that_goes_while_something_waits_ends_the_pipe() -> None:
    async def work() -> None:
        with rigged(Scripted()) as rig:
            sending = asyncio.create_task(rig.send(frame(PASSED, 4 << 20)))
            await settled()
            rig.receiver.close()
            while not rig.lost:
                await asyncio.sleep(0)
            sending.cancel()
            assert rig.lost == ["Broken pipe"]

    ran(work)


def test_an_error_in_the_taker_closes_the_connection() -> None:
    def wrong(data: bytes) -> Sequence[Step]:
        raise ZeroDivisionError

    async def work() -> None:
        said: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context["exception"]))
        with rigged(Scripted(wrong)) as rig:
            await rig.send(frame(HELD, 10))
            await settled()
            assert rig.lost == ["it cannot be read because of an error in kfuzz"]
            assert [type(one) for one in said] == [ZeroDivisionError]

    ran(work)


# --- steps ----------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_after_close() -> None:
    async def work() -> None:
        taker = Scripted(lambda data: [b"last", CLOSE, b"never"])
        with rigged(taker) as rig:
            await rig.send(frame(PASSED, 10) + frame(HELD, 10) + frame(PASSED, 11) + frame(HELD, 12))
            assert await rig.receive(1000) == frame(PASSED, 10) + b"last"
            assert rig.lost == [""]
            assert taker.frames == [frame(PASSED, 10)[4:], frame(HELD, 10)[4:]]

    ran(work)


def test_close_waits_for_what_is_before_it() -> None:
    big = bytes(3 << 20)

    async def work() -> None:
        with rigged(Scripted(lambda data: [big, CLOSE])) as rig:
            await rig.send(frame(HELD, 10) + frame(PASSED, 10))
            await settled()
            assert not rig.lost
            assert await rig.receive(len(big) + 100) == big
            assert rig.lost == [""]

    ran(work)


def test_halt_throws_away_what_comes_and_closes_nothing() -> None:
    async def work() -> None:
        with rigged(Scripted(lambda data: [b"last", HALT, b"never"])) as rig:
            await rig.send(frame(HELD, 10) + frame(PASSED, 10))
            # More than sockets hold: it is received.
            await rig.send(frame(PASSED, 3 << 20))
            assert await rig.receive(4) == b"last"
            await settled()
            assert rig.received_now() == b""
            assert not rig.lost
            assert rig.pipe.buffer_bytes == 0

    ran(work)


def test_halt_with_a_full_socket_waits_for_what_is_before_it() -> None:
    big = bytes(3 << 20)

    async def work() -> None:
        with rigged(Scripted(lambda data: [big, HALT])) as rig:
            await rig.send(frame(HELD, 10))
            assert await rig.receive(len(big)) == big
            await rig.send(frame(PASSED, 1 << 20))
            await settled()
            assert rig.received_now() == b""

    ran(work)


def test_a_wait_delays_what_follows_it_even_with_a_full_socket() -> None:
    big = bytes(3 << 20)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        with rigged(Scripted(lambda data: [big, Wait(30), b"after"])) as rig:
            start = loop.time()
            await rig.send(frame(HELD, 10) + frame(PASSED, 10))
            await rig.receive(len(big))
            assert await rig.receive(5 + 14) == b"after" + frame(PASSED, 10)
            assert loop.time() - start >= 0.03

    ran(work)


def test_inserted_steps_never_fall_into_a_frame() -> None:
    async def work() -> None:
        with rigged(Scripted()) as rig:
            await rig.send(frame(PASSED, 100)[:50])
            await settled()
            rig.pipe.insert([b"between"])
            await rig.send(frame(PASSED, 100)[50:] + frame(PASSED, 20))
            expected = frame(PASSED, 100) + b"between" + frame(PASSED, 20)
            assert await rig.receive(len(expected)) == expected
            await rig.send(frame(HELD, 100)[:50])
            await settled()
            rig.pipe.insert([b"before"])
            await rig.send(frame(HELD, 100)[50:])
            assert await rig.receive(110) == b"before" + frame(HELD, 100)

    ran(work)


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_a_reader_that_takes_nothing_bounds_what_is_received_and_loses_nothing() -> None:
    one = frame(PASSED, 1000) + frame(HELD, 500)
    whole = one * 6000

    async def work() -> None:
        taker = Scripted(lambda data: [framed(data)])
        buffers = Buffers()
        with rigged(taker, socket.socket, buffers) as rig:
            sending = asyncio.create_task(rig.send(whole))
            before = -1
            while before != len(taker.seen):
                before = len(taker.seen)
                await settled()
            # The sockets, a buffer and the queue hold this much.
            assert sum(len(data) for _, data in taker.seen) < len(whole) / 2
            assert buffers.bytes <= pipes.BUFFER_BYTES
            assert await rig.receive(len(whole)) == whole
            await sending

    ran(work)


def test_delayed_frames_are_bounded_too() -> None:
    async def work() -> None:
        taker = Scripted(lambda data: [Wait(60_000), framed(data)])
        with rigged(taker) as rig:
            sending = asyncio.create_task(rig.send(frame(HELD, 8) * 200_000))
            before = -1
            while before != len(taker.seen):
                before = len(taker.seen)
                await settled()
            sending.cancel()
            # Each of them is two parts.
            once = pipes.RECEIVE_BYTES // len(frame(HELD, 8))
            assert len(taker.seen) <= pipes.OUT_BYTES_MAX / (2 * pipes.PART_BYTES) + once

    ran(work)


def test_short_of_memory_frames_are_passed_on_unread() -> None:
    async def work() -> None:
        buffers = Buffers(bytes_max=pipes.SMALL_BYTES)
        with rigged(Scripted(), socket.socket, buffers) as rig:
            sent = [frame(PASSED, 100), frame(HELD, 200_000), frame(HELD, 1000), frame(PASSED, 200_000), frame(HELD, 9)]
            whole = b"".join(sent)
            sending = asyncio.create_task(rig.send(whole))
            assert await rig.receive(len(whole)) == whole
            await sending
            await settled()
            assert [how for how, _ in rig.taker.seen] == ["passed", "skipped", "held", "skipped", "held"]
            assert buffers.bytes <= pipes.SMALL_BYTES

    ran(work)


def test_hundreds_of_connections_in_half_a_frame_need_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "KEPT_BYTES", 100)

    async def work() -> None:
        buffers = Buffers(bytes_max=8 * pipes.BUFFER_BYTES)
        rigs = [Rig(Scripted(), socket.socket, buffers) for _ in range(240)]
        try:
            sent = frame(HELD, 8000)
            for rig in rigs:
                await rig.send(sent[:2000])
                await settled()
            assert buffers.bytes <= 9 * pipes.BUFFER_BYTES
            for rig in rigs:
                await rig.send(sent[2000:])
                assert await rig.receive(len(sent)) == sent
            assert buffers.bytes == 0
            assert sum(rig.taker.frames == [sent[4:]] for rig in rigs) >= 7
        finally:
            for rig in rigs:
                rig.close()

    ran(work)


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


def test_a_busy_pipe_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "RECEIVE_BYTES", 1600)

    async def work() -> None:
        with rigged(Scripted(), Endless) as busy, rigged(Scripted()) as quiet:
            await busy.send(b"x")
            await quiet.send(frame(PASSED, 10))
            assert await quiet.receive(14) == frame(PASSED, 10)
            assert busy.source.received_count
            assert not busy.lost

    ran(work)
