"""One driver at a time owns a target: it names itself in a lock file, and a second one is refused.

A driver first writes a lock file of its own and then lists all of them. So of two drivers that begin at the same time,
at least one sees the other. This needs only listings that show every finished write, which POSIX, S3, Google Cloud
Storage and Azure give. It also works where no file can be created exclusively, and taking over a dead driver's lock is
not a race.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import psutil

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.storage import Target

PREFIX = "_lock-"
# A driver on another machine is dead if its heart has not beaten for ten times as long as it should.
HEARTBEAT_S = 60.0
DEAD_S = 600.0
# psutil gives start times in steps of the clock, 1/100 s.
SAME_START_S = 0.5


@dataclass(frozen=True, slots=True)
class Owner:
    """A driver: ``started`` is the start time of the process ``pid`` in seconds since 1970."""

    id: str
    host: str
    pid: int
    started: float

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.id}"

    @staticmethod
    def us() -> Owner:
        process = psutil.Process()
        return Owner(secrets.token_hex(6), socket.gethostname(), process.pid, process.create_time())

    @staticmethod
    def read(target: Target, name: str) -> Owner | None:
        """The owner of the lock file ``name``; None if the file is gone. An unreadable file is an unknown host's."""
        text = target.read(name)
        if text is None:
            return None
        try:
            values = load_json(text, name)
            owner = Owner(name.removeprefix(PREFIX), str(values["host"]), int(values["pid"]), float(values["started"]))
            # An error shows it. A damaged start may be beyond the calendar.
            str(owner)
            return owner
        except (UsageError, ValueError, KeyError, TypeError, OverflowError):
            return Owner(name.removeprefix(PREFIX), "an unknown machine", 0, 0.0)

    def __str__(self) -> str:
        started = f"{datetime.fromtimestamp(int(self.started), UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"process {self.pid} on {self.host}, which began at {started}"


class Lock:
    """The lock of this process on ``target``. The attempts of this driver begin their names with ``id``."""

    def __init__(self, target: Target, owner: Owner) -> None:
        self._target, self._owner = target, owner
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True, name="kfuzz lock")

    @property
    def id(self) -> str:
        return self._owner.id

    def check(self) -> None:
        """Raise ``UsageError`` if another driver has broken the lock: then this one must not publish."""
        if self._owner.name not in self._target.list().files:
            raise UsageError(f"{self._target}: another driver has taken over this corpus; let it finish, then verify")

    def write(self) -> None:
        self._target.write(self._owner.name, json.dumps(asdict(self._owner)) + "\n")

    def start(self) -> None:
        self._beating.start()

    def release(self) -> None:
        self._ended.set()
        if self._beating.ident is not None:
            self._beating.join()
        self._target.remove(self._owner.name)

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            # The target may be out of reach for a moment. The next beat tries again.
            with contextlib.suppress(UsageError, CancelledError):
                self.check()
                self.write()


def is_lock(name: str) -> bool:
    """Whether a file in the root of a target is a lock."""
    return name.startswith(PREFIX)


@contextlib.contextmanager
def owned(target: Target, directories: Iterable[str], *, break_lock: bool = False) -> Iterator[Lock]:
    """Own ``target`` while the block runs. At the start, everything that dead drivers left in ``directories`` is swept;
    at the end, what this driver's own dead attempts left. A directory that was made for the lock does not stay empty.

    Raises ``UsageError`` if another driver owns it and is alive. ``break_lock`` treats all other drivers as dead.
    """
    directories = ["", *directories]
    owner = Owner.us()
    lock = Lock(target, owner)
    existed = target.exists()
    try:
        lock.write()
        dead = []
        for name in target.list().files:
            if is_lock(name) and name != owner.name and (other := Owner.read(target, name)) is not None:
                if not break_lock and _is_alive(target, other, owner):
                    raise UsageError(
                        f"{target} belongs to {other}; wait until it ends, or add --break-lock if it is dead"
                    )
                dead.append(name)
        for name in dead:
            target.remove(name)
        lock.start()
        target.sweep(directories)
        try:
            yield lock
        finally:
            target.sweep(directories, lock.id)
    finally:
        lock.release()
        if not existed:
            target.remove_if_empty()


def _is_alive(target: Target, other: Owner, us: Owner) -> bool:
    if other.host == us.host:
        try:
            process = psutil.Process(other.pid)
            started = process.create_time()
            return bool(abs(started - other.started) < SAME_START_S and process.status() != psutil.STATUS_ZOMBIE)
        # ValueError: its number is below 0, as no process has it.
        except (psutil.NoSuchProcess, ValueError):
            return False
    # Both times come from the clock of the file system, so the clocks of the machines may differ.
    now_s, beat_s = target.modified_s(us.name), target.modified_s(other.name)
    return now_s is not None and beat_s is not None and now_s - beat_s < DEAD_S
