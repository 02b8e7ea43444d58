"""Runs each input in a child process first, so that an input that ends or hangs the process does not end the fuzzer.

A peer may break on one input in fifty. To start the fuzzer again takes seconds, and a new child only a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import mmap
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil

from kfuzz.files import read_bytes
from kfuzz.fuzz.causes import of_end
from kfuzz.fuzz.recorder import CHILD_TIMEOUT_S, Find, fields_of, found_by

# An input takes microseconds, and a bomb that a peer accepts takes tenths of a second.
HANG_CPU_S: Final = 2.0
LOOK_S: Final = 0.25
# The fuzzer gets no input that takes longer: in its corpus, the mutants of a few bombs would take most of the time.
SLOW_CPU_S: Final = 0.02
# libFuzzer's own limit is the same. It does not watch the child.
RSS_MAX_BYTES: Final = 2 << 30
# The child prints its stack. libFuzzer uses SIGUSR1.
STACK_SIGNAL: Final = signal.SIGUSR2
STACK_S: Final = 0.5
# All that a library prints lies in memory. Of more than this, only the end is read, where the stack is.
PRINTED_BYTES_MAX: Final = 1 << 20
LENGTH_BYTES: Final = 4
STATUS_BYTES: Final = 4
# The process id of the child, the CPU time of the ended ones and of the process between, and that of the child.
SHARED: Final = struct.Struct("<qdd")
CPU: Final = "cpu"
# No status of a process that has ended is so large.
GOES_ON: Final = 2**32 - 1
SLOW: Final = 2**32 - 2
PR_SET_PDEATHSIG: Final = 1


class Ahead:
    """Calls ``run`` with each input in a child, and says what ends the child. ``package`` is the peer's.

    An exception does not end it. In ``folder``, :func:`cpu_seconds` finds how much time all that took. The child runs
    each input several ``times``, because a read that goes far may hit memory once, and miss it the next time.

    The children are forked by a process between, which is forked here and runs nothing itself. It stays small, so that
    a fork is cheap, and it has the next child ready.
    """

    def __init__(
        self, run: Callable[[bytes], None], package: str, folder: Path | None = None, *, times: int = 1
    ) -> None:
        self._run = run
        self._package = package
        self._times = times
        self._shared = _shared(folder)
        # The children write their stacks here.
        self._errors = os.fdopen(os.memfd_create("stacks"), "w+b")
        self._link, theirs = socket.socketpair()
        if not os.fork():
            try:
                self._link.close()
                self._watch(theirs)
            finally:
                os._exit(1)
        theirs.close()
        self._link.settimeout(LOOK_S)

    def __call__(self, data: bytes) -> tuple[Find | None, bool]:
        """Why the child ended or had to be ended with this input, if so, and whether the fuzzer may have it, too.

        It may not have an input that is slow. Then the find may also be an exception.
        """
        self._link.sendall(len(data).to_bytes(LENGTH_BYTES, "little") + data)
        kind, child, used_s, began = "crash", None, 0.0, time.monotonic()
        while (status := self._status()) is None:
            if kind != "crash":
                continue
            # An ended child is not there any more, and its status is on its way.
            with contextlib.suppress(psutil.Error):
                child = child or psutil.Process(SHARED.unpack_from(self._shared)[0])
                times = child.cpu_times()
                used_s = used_s or times.user + times.system
                if child.memory_info().rss + self._printed() > RSS_MAX_BYTES:
                    kind = "oom"
                elif times.user + times.system - used_s > HANG_CPU_S or time.monotonic() - began > CHILD_TIMEOUT_S:
                    kind = "timeout"
                if kind != "crash":
                    child.send_signal(STACK_SIGNAL)
                    time.sleep(STACK_S)
                    child.kill()
        if status == GOES_ON:
            if self._printed() > PRINTED_BYTES_MAX:
                self._forget()
            return None, True
        find = self._find(kind, status, data) if status != SLOW else self._slow(data)
        self._forget()
        return find, False

    def _printed(self) -> int:
        """The bytes that the children have printed."""
        return os.fstat(self._errors.fileno()).st_size

    def _forget(self) -> None:
        self._errors.seek(0)
        self._errors.truncate()

    def _status(self) -> int | None:
        """The reply: GOES_ON, or the status of a child that ended; None if nothing came in time."""
        try:
            return int.from_bytes(_take(self._link, STATUS_BYTES), "little")
        except TimeoutError:
            return None

    def _slow(self, data: bytes) -> Find | None:
        self._errors.seek(0)
        text = self._errors.read()
        return Find(**json.loads(text), data=data) if text else None

    def _find(self, kind: str, status: int, data: bytes) -> Find:
        self._errors.seek(max(0, self._printed() - PRINTED_BYTES_MAX))
        lines = self._errors.read().decode(errors="replace").splitlines()
        find = of_end(kind, lines, os.waitstatus_to_exitcode(status), data, self._package)
        if kind == "timeout":
            return replace(find, summary=f"no end after {HANG_CPU_S:g} s")
        if kind == "oom":
            return replace(find, summary=f"takes more than {RSS_MAX_BYTES >> 20:,} MiB")
        return find

    def _watch(self, link: socket.socket) -> None:
        """The process between: fork a child, wait for its end, say so, and fork the next one."""
        library = ctypes.CDLL(None)
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(self._errors.fileno(), 2)
        # The first stack takes long: the sanitizer reads all modules and starts a symbolizer. The children share both.
        if print_stack := getattr(library, "__sanitizer_print_stack_trace", None):
            print_stack()
        while True:
            pid = os.fork()
            if not pid:
                self._share(os.getpid(), 0.0)
                library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                self._serve(link)
            _, status = os.waitpid(pid, 0)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            # The child's own time is among that of the ended ones.
            SHARED.pack_into(self._shared, 0, pid, used.ru_utime + used.ru_stime + time.process_time(), 0.0)
            link.sendall(status.to_bytes(STATUS_BYTES, "little"))

    def _serve(self, link: socket.socket) -> None:
        """The work of a child until the fuzzer ends."""
        faulthandler.enable()
        faulthandler.register(STACK_SIGNAL)
        while True:
            length = int.from_bytes(_take(link, LENGTH_BYTES), "little")
            data = _take(link, length)
            status = self._run_all(data)
            self._share(os.getpid(), time.process_time())
            link.sendall(status.to_bytes(STATUS_BYTES, "little"))

    def _run_all(self, data: bytes) -> int:
        """Run an input, and say whether the fuzzer may have it. The find of a slow one goes to the file for stacks."""
        began_s = time.process_time()
        found = found_by(self._run, data)
        if time.process_time() - began_s > SLOW_CPU_S:
            text = json.dumps(fields_of(found)) if found else ""
            # The library may have printed something.
            os.ftruncate(self._errors.fileno(), 0)
            os.pwrite(self._errors.fileno(), text.encode(), 0)
            return SLOW
        for _ in range(self._times - 1):
            found_by(self._run, data)
        return GOES_ON

    def _share(self, pid: int, cpu_s: float) -> None:
        """Write the process id of the child, and how much time it has used."""
        _, ended_s, _ = SHARED.unpack_from(self._shared)
        SHARED.pack_into(self._shared, 0, pid, ended_s, cpu_s)


def _shared(folder: Path | None) -> mmap.mmap:
    """Memory that all processes share, in a file of ``folder``."""
    if folder is None:
        return mmap.mmap(-1, SHARED.size)
    with (folder / CPU).open("w+b") as file:
        file.truncate(SHARED.size)
        return mmap.mmap(file.fileno(), 0)


def cpu_seconds(folder: Path) -> float:
    """The CPU time of all children whose fuzzer wrote to ``folder``; 0 if it had none."""
    file = folder / CPU
    if not file.is_file():
        return 0.0
    _, ended_s, running_s = SHARED.unpack(read_bytes(file))
    return float(ended_s + running_s)


def _take(link: socket.socket, size: int) -> bytes:
    """``size`` bytes. Raises ``EOFError`` if the other side has ended."""
    data = link.recv(size, socket.MSG_WAITALL) if size else b""
    if len(data) < size:
        raise EOFError("the other side has ended")
    return data
