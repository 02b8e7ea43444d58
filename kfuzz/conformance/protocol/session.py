"""Runs one testee as a process: writes requests, reads answers, measures use, kills all that it started.

``Session`` knows lines and budgets, but not vectors or verdicts; ``runner`` decides what to do about a ``Trouble``.
All limits are enforced here. Address-space limits need Linux (``prlimit``); elsewhere only resident memory is watched.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import shlex
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from kfuzz.conformance.protocol.lines import LINE_BYTES_MAX, Handshake, ProtocolError, parse_handshake
from kfuzz.conformance.protocol.processes import Family, ended_with, use_of
from kfuzz.conformance.protocol.stacks import headline
from kfuzz.errors import KfuzzError
from kfuzz.text import foreign_text

MIB = 1024 * 1024
# A folder in memory, on systems that have one.
MEMORY = Path("/dev/shm")
POLL_S = 0.05
# If a testee prints nothing for this long at the start, the user gets a notice.
NOTICE_AFTER_S = 2.0
READ_BYTES = 1 * MIB
READS_MAX = 64
# The stack of a crash may name hundreds of functions, the innermost first.
STDERR_TAIL_BYTES = 64 * 1024
LAST_WORDS_CHARACTERS_MAX = 500
# A runtime may also map, besides the allocation under test: a codec library that is loaded late, a thread's stack, one
# 64 MiB heap arena of Go. The allocations that vectors provoke are much larger.
ADDRESS_SPACE_SLACK_BYTES = 96 * MIB
RESIDENT_SLACK_BYTES = 32 * MIB
# Some systems promise any amount of address space, and others refuse it. This refuses a claim of 16 GiB everywhere.
ADDRESS_SPACE_MAX_BYTES = 16 * 1024 * MIB
# A Java heap that is large enough to decode any small vector; the budget is added to it.
JAVA_HEAP_BASE_BYTES = 48 * MIB
JAVA_HEAP_DEFAULT_BYTES = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of one request. CPU time is the process tree's; the wall-clock limit stops a testee that sleeps."""

    cpu_ms: int
    memory_bytes: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets for a vector that states none, and for the start of a testee."""

    cpu_ms: int = 10_000
    # Much more than a reasonable decoder needs, and much less than would harm the machine.
    memory_bytes: int = 2048 * MIB
    wall_ms: int = 30_000
    start_ms: int = 60_000

    def budget(self, stated: Mapping[str, int] | None) -> Budget:
        """The budget of one request. ``stated`` is the vector's own budget; its ``cpu_ms`` replaces the default.

        ``limit_address_space`` uses its ``memory_bytes``; here that is ignored, because resident memory below the hard
        cap is no fault.
        """
        cpu_ms = (stated or {}).get("cpu_ms", self.cpu_ms)
        return Budget(cpu_ms, self.memory_bytes, max(self.wall_ms, 5 * cpu_ms))


@dataclass(frozen=True, slots=True)
class Trouble:
    """An outcome that only the runner assigns: crash, timeout, memory or protocol-error. ``text`` is one sentence."""

    outcome: str
    text: str
    # The library's line of source, if the stack of a crash names one.
    at: str = ""

    @property
    def deed(self) -> str:
        """The way in which the testee ended, worded to follow its name in a sentence."""
        return f"broke the protocol: {self.text}" if self.outcome == "protocol-error" else self.text


def over_memory(budget_bytes: int, at: str = "") -> Trouble:
    """The trouble of a testee that exceeded its memory budget, in the library's line ``at`` if it is known."""
    return Trouble("memory", f"took more than its {_size(budget_bytes)} of memory", at)


class NoHandshake(KfuzzError):
    """The testee could not be started or gave no valid handshake; the text says why."""


class Session:
    """A running testee. Use it in a ``with`` block, which kills all that it started at its end, whatever happens.

    Only one thread may use a session. ``look_s``: the use is not looked at more often.
    ``selector`` waits for the program's pipes, and is closed with the session.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        java_budget_bytes: int | None = None,
        look_s: float = 0,
        selector: selectors.BaseSelector | None = None,
    ) -> None:
        self.argv = list(argv)
        self.cwd = cwd
        self._java_budget_bytes = java_budget_bytes
        self._look_s = look_s
        self._poll_s = max(POLL_S, look_s)
        self._looked_s = 0.0
        self._scratch: Path | None = None
        self.handshake: Handshake
        self._process: subprocess.Popen[bytes]
        self._selector = selector or selectors.DefaultSelector()
        self._lines: deque[bytes] = deque()
        self._partial = bytearray()
        self._to_write = bytearray()
        self._stderr_tail = bytearray()
        self._ended = False
        self._killed = False
        self._family = Family()
        self._tree: list[psutil.Process] = []
        self._tree_seen_s = 0.0
        self._cpu_mark_s = 0.0
        self._resident_baseline_bytes = 0

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self, limits: Limits, on_notice: Callable[[str], None] = lambda text: None) -> Handshake:
        """Start the program and read its handshake; raises ``NoHandshake``.

        If the handshake takes more than two seconds, ``on_notice`` is called with a sentence.
        """
        line = self.begin(limits, on_notice)
        try:
            self.handshake = parse_handshake(line)
        except ProtocolError as error:
            raise self._no_handshake(str(error)) from None
        return self.handshake

    def begin(self, limits: Limits, on_notice: Callable[[str], None] = lambda text: None) -> bytes:
        """Start the program and read its first line, as ``start`` does."""
        self._scratch = Path(tempfile.mkdtemp(prefix="kfuzz-testee-", dir=MEMORY if MEMORY.is_dir() else None))
        try:
            self._process = subprocess.Popen(
                self.argv,
                cwd=self.cwd,
                env=os.environ | _environment(self._java_budget_bytes, self._scratch) | self._family.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise NoHandshake(f"{self.argv[0]} cannot be started: {error.strerror}") from None
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        self._family.begin(self._process.pid)
        _limit_address_space(self._process.pid, ADDRESS_SPACE_MAX_BYTES)
        for stream in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(stream.fileno(), False)
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._selector.register(self._stderr, selectors.EVENT_READ)
        awaited = f"waiting for the handshake of `{shlex.join(self.argv)}` ({limits.start_ms / 1000:g} s at most)"
        line = self.next_line(
            Budget(cpu_ms=limits.start_ms, memory_bytes=limits.memory_bytes, wall_ms=limits.start_ms),
            on_silence=lambda: on_notice(awaited),
        )
        if isinstance(line, Trouble):
            remedy = "; it must print its handshake before it reads, and flush it; --start-timeout allows more time"
            raise self._no_handshake(
                f"no handshake: the testee {line.text}{remedy if line.outcome == 'timeout' else ''}"
            )
        self._resident_baseline_bytes = self._use()[1]
        return line

    def _no_handshake(self, what: str) -> NoHandshake:
        words = self.last_words()
        return NoHandshake(foreign_text(f"{what}; its last words: {words}" if words else what))

    def kill(self) -> None:
        """Kill all processes that the testee started, reap it, and remove its temporary folder.

        Safe to call again, and when the processes are already dead.
        """
        if self._killed:
            return
        self._killed = True
        self._family.kill()
        if hasattr(self, "_process"):
            self._process.wait()
            self._selector.close()
            for stream in (self._stdin, self._stdout, self._stderr):
                # The pipes are unbuffered: closing flushes nothing and cannot fail halfway.
                stream.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def finish(self, wait_s: float = 2.0) -> list[bytes]:
        """Close the testee's input and return the lines that it prints until it ends or ``wait_s`` seconds are over.

        The first of them is enough.
        """
        self._close_input()
        deadline = time.monotonic() + wait_s
        while not (self._ended or self._lines or self._partial) and (left := deadline - time.monotonic()) > 0:
            self._pump(min(left, POLL_S))
        return [*self._lines, *([bytes(self._partial)] if self._partial.strip() else [])]

    # --- lines -------------------------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Write one line, or queue what a full pipe does not take. That is written while we wait for answers."""
        is_first = not self._to_write
        self._to_write += line
        if is_first and not self._write():
            self._selector.register(self._stdin, selectors.EVENT_WRITE)

    def next_line(self, budget: Budget, *, on_silence: Callable[[], None] | None = None) -> bytes | Trouble:
        """The next line that the testee prints, or what stopped it. The time since the last line counts as its cost.

        ``on_silence`` is called once if no line comes for two seconds.
        """
        start = time.monotonic()
        next_poll = start + self._poll_s
        if self._lines:
            return self._lines.popleft()
        while True:
            moved = self._pump(POLL_S)
            now = time.monotonic()
            if on_silence is not None and now - start >= NOTICE_AFTER_S:
                on_silence()
                on_silence = None
            if not moved and self._process.poll() is not None:
                # A descendant that still runs may keep the pipe open forever.
                self._ended = True
            if self._ended or now >= next_poll or (self._lines and now >= self._looked_s + self._look_s):
                next_poll, self._looked_s = now + self._poll_s, now
                if trouble := self._over_budget(budget, now - start):
                    return trouble
            if self._lines:
                return self._lines.popleft()
            if len(self._partial) > LINE_BYTES_MAX:
                return Trouble("protocol-error", f"prints a line of more than {LINE_BYTES_MAX // MIB} MiB")
            if self._ended:
                return Trouble("crash", self._epitaph())

    def _over_budget(self, budget: Budget, wall_s: float) -> Trouble | None:
        cpu_s, resident_bytes = self._use()
        cpu_ms = (cpu_s - self._cpu_mark_s) * 1000
        if self._lines:
            self._cpu_mark_s = cpu_s
        if resident_bytes - self._resident_baseline_bytes > budget.memory_bytes + RESIDENT_SLACK_BYTES:
            return over_memory(budget.memory_bytes)
        if cpu_ms > budget.cpu_ms:
            return Trouble("timeout", f"took more than its {budget.cpu_ms} ms of CPU time")
        if wall_s * 1000 > budget.wall_ms and not self._lines:
            return Trouble("timeout", f"gave no answer within {budget.wall_ms} ms")
        return None

    def _pump(self, timeout_s: float) -> bool:
        """Read and write every pipe that is ready; False if none was."""
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            if key.fileobj is self._stdin:
                if self._write():
                    self._selector.unregister(self._stdin)
            elif key.fileobj is self._stdout:
                self._read()
            elif not self._read_error():
                self._selector.unregister(self._stderr)
        return bool(ready)

    def _read_error(self) -> bool:
        """Read from standard error, and keep its end; False at the end of the pipe."""
        data = os.read(self._stderr.fileno(), READ_BYTES)
        self._stderr_tail = (self._stderr_tail + data)[-STDERR_TAIL_BYTES:]
        return bool(data)

    def _read_errors(self) -> None:
        """Read what is in the pipe. The end of standard output may be seen before it."""
        with contextlib.suppress(OSError, ValueError):
            # A process that still runs may never stop writing.
            for _ in range(READS_MAX):
                if not self._read_error():
                    break

    def _write(self) -> bool:
        """Write what the pipe takes; whether that is all."""
        try:
            # A pipe takes 64 KiB at a time, and a slice of the bytearray would copy up to 1 MiB for each write.
            with memoryview(self._to_write) as waiting:
                done = os.write(self._stdin.fileno(), waiting[:READ_BYTES])
            del self._to_write[:done]
        except BlockingIOError:
            return False
        except OSError:
            # The testee has closed its input, so it is ending. Its end is noticed when its output closes.
            self._to_write.clear()
        return not self._to_write

    def _read(self) -> None:
        data = os.read(self._stdout.fileno(), READ_BYTES)
        if not data:
            self._ended = True
            self._selector.unregister(self._stdout)
            return
        first, *rest = data.split(b"\n")
        self._partial += first
        for piece in rest:
            self._lines.append(bytes(self._partial))
            self._partial = bytearray(piece)

    def _close_input(self) -> None:
        if self._to_write:
            self._selector.unregister(self._stdin)
            self._to_write.clear()
        self._stdin.close()

    # --- meters and limits -------------------------------------------------------------------------------------------

    def limit_address_space(self, budget_bytes: int) -> bool:
        """Limit each process's address space to its current size, the budget and some slack; False if unsupported."""
        if not hasattr(resource, "prlimit"):
            return False
        self._refresh_tree()
        for process in self._tree:
            with contextlib.suppress(psutil.Error):
                bound = process.memory_info().vms + budget_bytes + ADDRESS_SPACE_SLACK_BYTES
                _limit_address_space(process.pid, min(bound, ADDRESS_SPACE_MAX_BYTES))
        return True

    def reset_peak(self) -> None:
        """Restart the measurement of ``peak_growth_bytes`` (Linux only)."""
        self._resident_baseline_bytes = self._use()[1]
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def peak_growth_bytes(self) -> int:
        """The largest growth of resident memory since ``reset_peak``; 0 if the system does not report it."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return 0
        peak = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0)
        return max(0, peak - self._resident_baseline_bytes)

    def _refresh_tree(self) -> None:
        self._tree = self._family.members()
        self._tree_seen_s = time.monotonic()

    def _use(self) -> tuple[float, int]:
        """The CPU time in seconds and the resident memory in bytes of all processes."""
        # Looking for children reads all of /proc, which is too slow to do for every answer.
        if time.monotonic() - self._tree_seen_s >= self._poll_s:
            self._refresh_tree()
        return use_of(self._tree)

    def _epitaph(self) -> str:
        try:
            return ended_with(self._process.wait(timeout=2))
        except subprocess.TimeoutExpired:
            return "closed its output without an answer"

    def last_words(self) -> str:
        """The part of standard error that explains why the testee ended: its headline or last lines; may be empty."""
        self._read_errors()
        text = self.standard_error()
        if said := headline(text):
            return said[:LAST_WORDS_CHARACTERS_MAX]
        lines = text.splitlines()
        last = [line.strip() for line in lines if line.strip() and not line.startswith("Picked up ")]
        return " | ".join(last[-3:])[-LAST_WORDS_CHARACTERS_MAX:]

    def standard_error(self) -> str:
        """The end of what the testee wrote to its standard error, at most 64 KiB."""
        return self._stderr_tail.decode("utf-8", "replace")


def _environment(java_budget_bytes: int | None, scratch: Path) -> dict[str, str]:
    """Environment variables for the testee in addition to ours; only Java reads the Java ones."""
    # One malloc arena, so that a thread's first allocation does not map 128 MiB under an address-space limit.
    chosen = {"MALLOC_ARENA_MAX": "1", "PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch)}
    # A fixed heap gives the same answer on every machine. The testee's command line overrides JAVA_TOOL_OPTIONS, but
    # not _JAVA_OPTIONS.
    own = os.environ.get("JAVA_TOOL_OPTIONS", "")
    chosen["JAVA_TOOL_OPTIONS"] = f'-Xmx{JAVA_HEAP_DEFAULT_BYTES // MIB}m "-Djava.io.tmpdir={scratch}" {own}'.strip()
    if java_budget_bytes is not None:
        chosen["_JAVA_OPTIONS"] = f"-Xmx{(JAVA_HEAP_BASE_BYTES + java_budget_bytes) // MIB}m"
    return chosen


def _size(count: int) -> str:
    return f"{count // MIB} MiB" if count >= MIB else f"{count} bytes"


def _limit_address_space(pid: int, size_bytes: int) -> None:
    """Limit a process to ``size_bytes``, or to its hard limit if that is lower; nothing happens if it has ended."""
    if not hasattr(resource, "prlimit"):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
        soft = size_bytes if hard == resource.RLIM_INFINITY else min(size_bytes, hard)
        resource.prlimit(pid, resource.RLIMIT_AS, (soft, hard))
