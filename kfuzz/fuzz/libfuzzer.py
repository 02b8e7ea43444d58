"""One libFuzzer process: its flags, what it prints while it runs, and how it ended."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, cast

import psutil

from kfuzz.files import open_whole
from kfuzz.fuzz.building import Build, Sanitizer
from kfuzz.fuzz.targets import Target
from kfuzz.text import FOREIGN_BYTES_MAX, foreign_text

RSS_LIMIT_MIB: Final[Mapping[Sanitizer, int]] = {"none": 1024, "undefined": 1024, "address": 2048}
# Wall time. An input takes milliseconds, and a suspect is run again alone.
INPUT_TIMEOUT_S = 10
# libFuzzer ends on its own. If it still runs after this extra time, it is stuck.
GRACE_S = 60
# How long an interrupted libFuzzer may take to finish its current input and print its totals.
WIND_DOWN_S = 5
# The last lines say why a process ended. A long campaign prints many more before them.
LINES_KEPT = 2000
# Of a log, the first part and the last part are kept, each of this size. A target may print for each input.
LOG_BYTES_MAX = 4 << 20

STATUS = re.compile(r"^#(\d+)\s+([A-Za-z]+)\s+cov: (\d+) ft: (\d+) (?:corp: (\d+)/)?")
LOADED = re.compile(r"^INFO: Loaded (\d+) modules\s+\((\d+) inline 8-bit counters\)")
EXECUTED = re.compile(r"^stat::number_of_executed_units:\s+(\d+)")
TIERS = re.compile(r"^tiers: (\d+) inputs, (\d+) in both")
MUTATOR = re.compile(r"^mutator: (\d+) calls, (\d+) structured, (\d+) crossed")
STARTED = re.compile(r"^Running: ")
DROPPED = re.compile(r"^MERGE-INNER: '(.+)' caused a failure at the previous merge step$")
EXECUTED_ONE = re.compile(r"^Executed .+ in \d+ ms$")
ARTIFACT = re.compile(r"Test unit written to (.+)$")


@dataclass(slots=True)
class Totals:
    """The output of libFuzzer so far.

    ``seeds`` counts the inputs of the corpus that were run at the start, which took ``start_cpu_seconds``. ``started``
    counts inputs that were given by name, as in a replay. ``dropped`` has the names of files that ended a process of a
    merge. ``new_at`` is when something new was last found, by ``time.monotonic``. Numbers of the hook and of the tiers
    are None until the process ends by itself.
    """

    modules: int = 0
    counters: int = 0
    executions: int = 0
    coverage: int = 0
    features: int = 0
    corpus: int = 0
    seeds: int = 0
    start_cpu_seconds: float = 0.0
    started: int = 0
    dropped: list[str] = field(default_factory=list)
    mutator_calls: int | None = None
    structured: int | None = None
    crossed: int | None = None
    judged: int | None = None
    judged_twice: int | None = None
    new_at: float = field(default_factory=time.monotonic)

    def take(self, line: str) -> bool:
        """Parse one line; returns whether it is a line about progress, which says nothing about how it ends."""
        if match := STATUS.match(line):
            self.executions, self.coverage, self.features = int(match[1]), int(match[3]), int(match[4])
            self.corpus = int(match[5] or self.corpus)
            if match[2] in ("NEW", "INITED"):
                self.new_at = time.monotonic()
            if match[2] == "INITED":
                self.seeds = self.executions
            return True
        if match := LOADED.match(line):
            self.modules, self.counters = int(match[1]), int(match[2])
        elif STARTED.match(line):
            self.started += 1
            return True
        elif EXECUTED_ONE.match(line):
            return True
        elif match := DROPPED.match(line):
            self.dropped.append(Path(match[1]).name)
        elif match := EXECUTED.match(line):
            self.executions = int(match[1])
        elif match := MUTATOR.match(line):
            self.mutator_calls, self.structured, self.crossed = (int(group) for group in match.groups())
        elif match := TIERS.match(line):
            self.judged, self.judged_twice = int(match[1]), int(match[2])
        return False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit code (negative for a signal), its last lines, and the input that ended it, if any.

    ``kind`` is libFuzzer's own word for that input: ``crash``, ``timeout``, ``oom``, ``leak`` or ``slow-unit``.
    """

    code: int
    lines: tuple[str, ...]
    cpu_seconds: float
    kind: str = ""
    data: bytes | None = None


def command_of(
    made: Build,
    target: Target,
    artifacts: Path,
    *more: str | Path,
    seed: int = 1,
    length_max: int = 0,
    timeout_s: int | None = None,
) -> list[str]:
    """The command that runs libFuzzer on a target, with the flags of all runs, and ``more``.

    An input that ends a run goes to ``artifacts``. Inputs are cut at ``length_max`` bytes; 0 means that they are not.
    """
    return [
        str(made.executable(target)),
        f"-seed={seed}",
        f"-max_len={length_max}",
        f"-timeout={INPUT_TIMEOUT_S if timeout_s is None else timeout_s}",
        f"-rss_limit_mb={_rss_limit_mib(made.sanitizer)}",
        f"-artifact_prefix={artifacts}/",
        "-print_final_stats=1",
        *map(str, more),
    ]


def _rss_limit_mib(sanitizer: Sanitizer) -> int:
    """The most memory that libFuzzer allows. It reads the peak, and Linux lets a process inherit its parent's."""
    limit = RSS_LIMIT_MIB[sanitizer]
    inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return limit if inherited < limit // 2 else inherited + limit


class Log:
    """A bounded log. ``write`` puts the first ``LOG_BYTES_MAX`` bytes into the file, and ``close`` the last ones.

    Until then, the last ones are in memory. Whatever came between is left out.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._room = LOG_BYTES_MAX
        self._last = bytearray()
        self._left_out = 0

    def write(self, line: bytes) -> None:
        if self._room >= len(line):
            self._room -= len(line)
            self._file.write(line)
            return
        # Nothing may follow in the first part, so that the lines stay in order.
        self._room = 0
        self._last += line
        if len(self._last) > 2 * LOG_BYTES_MAX:
            self._drop()

    def close(self) -> None:
        self._drop()
        if self._left_out:
            self._file.write(f"\n[kfuzz left out {self._left_out:,} bytes here]\n".encode())
        self._file.write(self._last)

    def _drop(self) -> None:
        many = max(0, len(self._last) - LOG_BYTES_MAX)
        del self._last[:many]
        self._left_out += many


@contextlib.contextmanager
def log_at(path: Path) -> Iterator[Log]:
    """A log that gets its name ``path`` at the end of the block."""
    with open_whole(path) as file, contextlib.closing(Log(file)) as log:
        yield log


class Fuzzer:
    """A libFuzzer process. ``run`` waits for its end in one thread; ``stop`` may be called by another."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        log: Log,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        held: Sequence[int] = (),
    ) -> None:
        self.totals = Totals()
        self._log = log
        self._lines: list[str] = []
        self._timers: list[threading.Timer] = []
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
            pass_fds=held,
        )
        # libFuzzer checks the clock only between inputs, and a target may hang where no alarm reaches it.
        self._kill_after(seconds + GRACE_S)

    def _kill_after(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self.kill)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def run(self) -> Ended:
        """Follow the output until the process ends."""
        output = cast(IO[bytes], self._process.stdout)
        try:
            # A peer may print a line without an end.
            while raw := output.readline(FOREIGN_BYTES_MAX):
                self._log.write(raw)
                line = foreign_text(raw.rstrip(b"\n"))
                if not self.totals.take(line):
                    self._lines.append(line)
                    del self._lines[:-LINES_KEPT]
                elif self.totals.seeds and not self.totals.start_cpu_seconds:
                    self.totals.start_cpu_seconds = self._cpu_seconds()
            _, status, usage = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            for timer in self._timers:
                timer.cancel()
            if self._process.returncode is None:
                self.kill()
                self._process.wait()
            output.close()
        written = next((match[1] for line in reversed(self._lines) if (match := ARTIFACT.search(line))), None)
        kind, data = "", None
        # On a full disk, libFuzzer names a file that it could not write.
        if written is not None and Path(written).is_file():
            kind, data = Path(written).name.partition("-")[0], Path(written).read_bytes()
        cpu_s = usage.ru_utime + usage.ru_stime
        return Ended(self._process.returncode, tuple(self._lines), cpu_s, kind, data)

    def _cpu_seconds(self) -> float:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self._process.pid).cpu_times()
            return float(times.user + times.system)
        return 0.0

    def stop(self) -> None:
        """Ask libFuzzer to finish its current input, print its totals and end; kill it if it does not."""
        self._kill_after(WIND_DOWN_S)
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """End the process and all that it started at once."""
        if self._process.returncode is None:
            kill_group(self._process.pid)


def kill_group(pid: int) -> None:
    """Kill a session leader and all processes in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
