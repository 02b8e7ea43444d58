"""All processes that one foreign program started, also those that left its process group and its parent.

A process whose parent ends becomes a child of process 1, where nothing shows who started it. On Linux this process
takes such orphans in instead (``PR_SET_CHILD_SUBREAPER``), as long as a :class:`Family` lives. An orphan belongs to the
family that it was seen in, whose session it is in, or whose mark it has: a variable of its environment, and an odd
limit, because a daemon may clear its environment. No other orphan is touched: an embedding program may have children of
its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import resource
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Final

import psutil

# The environment variable that marks the processes of a family.
MARK: Final = "KFUZZ_FAMILY"
# The sizes of message queues, which decoders do not use: a limit between these is the other mark.
LIMIT_MIN: Final = 400_000
LIMIT_MAX: Final = 800_000
# From linux/prctl.h.
PR_SET_CHILD_SUBREAPER: Final = 36
PR_GET_CHILD_SUBREAPER: Final = 37
# How long to wait until killed processes are gone, and how often to look.
GONE_S: Final = 2.0
POLL_S: Final = 0.005
# A program may start processes while its processes are killed.
ROUNDS_MAX: Final = 100


class _Subreaper:
    """Makes this process take in orphans while at least one family lives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families = 0
        self._before = 0

    def enter(self) -> None:
        with self._lock:
            self._families += 1
            if self._families == 1:
                self._before = _subreaper()
                _set_subreaper(1)

    def leave(self) -> None:
        with self._lock:
            self._families -= 1
            if not self._families:
                _set_subreaper(self._before)


def _prctl(option: int, argument: object) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def _subreaper() -> int:
    found = ctypes.c_int(0)
    _prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(found))
    return found.value


def _set_subreaper(value: int) -> None:
    _prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(value))


_SUBREAPER: Final = _Subreaper()


class Family:
    """A program that was started in a session of its own, and its descendants.

    Start it with ``environment`` in its environment, then call ``begin``. ``kill`` must be called at the end.
    """

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex
        self._limit = random.SystemRandom().randrange(LIMIT_MIN, LIMIT_MAX)
        self._pid = 0
        self._members: dict[int, psutil.Process] = {}
        # Processes that ran at the last look and are no members. They do not become members later, unless their parent
        # ends.
        self._strangers: set[int] = set()
        self._ended = False
        _SUBREAPER.enter()

    @property
    def environment(self) -> dict[str, str]:
        """The mark."""
        return {MARK: self._name}

    def begin(self, pid: int) -> None:
        """``pid`` is the program, which leads a session of its own."""
        self._pid = pid
        with contextlib.suppress(OSError, AttributeError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_MSGQUEUE, (self._limit, self._limit))

    def members(self) -> list[psutil.Process]:
        """The program and its descendants, as far as they still run; the program first.

        It asks only new processes for their parent: this runs before every measured request, and a machine has hundreds
        of processes.
        """
        running = set(psutil.pids())
        self._strangers &= running
        known = {pid: one for pid, one in self._members.items() if pid in running and self._runs(one)}
        found: dict[int, psutil.Process] = {}
        parents: dict[int, int] = {}
        for pid in running - self._strangers - known.keys():
            with contextlib.suppress(psutil.Error):
                found[pid] = psutil.Process(pid)
                parents[pid] = found[pid].ppid()
        tree = {self._pid, *known}
        tree |= {pid for pid, parent in parents.items() if parent == os.getpid() and self._is_orphan(found[pid])}
        while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
            tree |= more
        # A process that has lost its parent may be adopted next. And a child of this process may have been forked by
        # another thread, and have no mark yet.
        settled = (parents.keys() | self._strangers | {0, 1}) - {os.getpid()}
        self._strangers |= {pid for pid, parent in parents.items() if pid not in tree and parent in settled}
        self._members = known | {pid: found[pid] for pid in sorted(tree) if pid in found and self._runs(found[pid])}
        first = [self._members[self._pid]] if self._pid in self._members else []
        return [*first, *(one for pid, one in self._members.items() if pid != self._pid)]

    def _is_orphan(self, child: psutil.Process) -> bool:
        """Whether a child of this process is of this family."""
        try:
            mark = child.environ().get(MARK)
        except (OSError, psutil.Error):
            # It has ended.
            mark = None
        if mark:
            return bool(mark == self._name)
        with contextlib.suppress(OSError, AttributeError):
            if os.getsid(child.pid) == self._pid:
                return True
            return bool(resource.prlimit(child.pid, resource.RLIMIT_MSGQUEUE)[1] == self._limit)
        return False

    def _runs(self, one: psutil.Process) -> bool:
        """Whether it still runs. An orphan that has ended is reaped, because it is a child of this process."""
        try:
            if not one.is_running():
                return False
            if one.status() != psutil.STATUS_ZOMBIE:
                return True
            if one.pid != self._pid and one.ppid() == os.getpid():
                os.waitpid(one.pid, os.WNOHANG)
        except (OSError, psutil.Error):
            pass
        return False

    def kill(self) -> None:
        """Kill all members and wait until they are gone. The program itself is left for its starter to reap."""
        if self._ended:
            return
        self._ended = True
        try:
            killed: set[int] = set()
            if self._pid:
                # Not every system has subreapers.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, signal.SIGKILL)
            for _ in range(ROUNDS_MAX if self._pid else 0):
                members = self.members()
                for one in members:
                    with contextlib.suppress(psutil.Error):
                        one.kill()
                killed |= {one.pid for one in members} - {self._pid}
                # Orphans come to this process when their parents are dead.
                _reap(killed)
                if not members:
                    break
                time.sleep(POLL_S)
            deadline = time.monotonic() + GONE_S
            while killed and time.monotonic() < deadline:
                _reap(killed)
                time.sleep(POLL_S)
        finally:
            _SUBREAPER.leave()


def _reap(pids: set[int]) -> None:
    """Remove from ``pids`` what is gone. Those that came to this process as its children are reaped."""
    for pid in list(pids):
        try:
            gone = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            gone = not psutil.pid_exists(pid)
        if gone:
            pids.discard(pid)


def use_of(processes: Iterable[psutil.Process]) -> tuple[float, int]:
    """The CPU time of these processes in seconds, and their resident memory in bytes."""
    cpu_s, resident_bytes = 0.0, 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            with process.oneshot():
                times = process.cpu_times()
                resident_bytes += process.memory_info().rss
            cpu_s += times.user + times.system + times.children_user + times.children_system
    return cpu_s, resident_bytes


def ended_with(status: int) -> str:
    """How a process ended, worded to follow its name. ``status`` is below 0 for a signal, as in :mod:`subprocess`."""
    if status >= 0:
        return f"ended with status {status}"
    names = {one.value: one.name for one in signal.Signals}
    return f"died of {names.get(-status, f'signal {-status}')}"
