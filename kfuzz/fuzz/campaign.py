"""Fuzz targets for a given time and report the results.

Targets run one after the other, each in its own process. A campaign starts from ``OUT/<target>/corpus`` and adds to
it. Each crash goes to ``OUT/<target>/crashes``: the input, and a text file beside it. ``log.txt`` is libFuzzer's own
output. ``result.json`` holds the result, also if the campaign was interrupted. Equal seed, ``runs``, build, starting
corpus and environment give equal campaigns, if the machine supports fixed addresses (``setarch -R``).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from kfuzz.errors import UsageError
from kfuzz.files import cannot_write, open_whole, read_bytes, write_whole
from kfuzz.fuzz import targets as table
from kfuzz.fuzz.building import Build, NoNativeCoverage, Sanitizer, build, fallback
from kfuzz.fuzz.seeding import dictionary, inputs, read_hex, seeds
from kfuzz.fuzz.targets import Target

__all__ = ["Crash", "Replay", "Result", "replay", "reproduce", "run"]

RSS_LIMIT_MIB = {"none": 1024, "undefined": 1024, "address": 2048}
INPUT_TIMEOUT_S = 20
# A replay has inputs of any size, and a sanitizer makes many of them slow.
REPLAY_TIMEOUT_S = 300
# libFuzzer ends on its own. If it still runs after this extra time, it is stuck.
GRACE_S = 60
# How long an interrupted libFuzzer may take to finish its current input and print its totals.
WIND_DOWN_S = 5
TRACEBACK_LINES = 12

STATUS = re.compile(r"^#(\d+)\s+[A-Za-z]+\s+cov: (\d+) ft: (\d+) ")
LOADED = re.compile(r"^INFO: Loaded (\d+) modules\s+\((\d+) inline 8-bit counters\)")
EXECUTED = re.compile(r"^stat::number_of_executed_units:\s+(\d+)")
RUNNING = re.compile(r"^Running: .*/(\d+)$")
TIERS = re.compile(r"^tiers: (\d+) inputs, (\d+) in both")
MUTATOR = re.compile(r"^mutator: (\d+) calls, (\d+) structured, (\d+) crossed")
ARTIFACT = re.compile(r"Test unit written to (.+)$")
UNCAUGHT = "=== Uncaught Python exception: ==="
NATIVE_ERROR = re.compile(r"^(==\d+==\s*ERROR: (?!libFuzzer: fuzz target exited)|ALARM: |.*runtime error: )")

Say = Callable[[str], None]
Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Crash:
    """An input that broke a promise. ``kind`` is "crash", "timeout" or "oom"; ``details`` is the short traceback."""

    kind: str
    summary: str
    details: str
    input_hex: str
    file: str


@dataclass(slots=True)
class Result:
    """The result of a campaign on one target.

    ``modules`` and ``counters`` tell how much compiled code libFuzzer watches. If it watches none,
    ``no_native_coverage`` says why. ``coverage`` counts edges of compiled code and of Python code. ``mutator_calls``
    counts calls of the mutation hook, ``structured`` the changes by structure among them, and ``crossed`` the inputs
    that were made from two. They are None if the target does not use the hook, or if the process ended before it
    printed them. ``judged`` counts the inputs of the first tier, and ``judged_twice`` those that met the full oracle as
    well; None if the target has one tier, or if the process ended early. ``interrupted`` means that the user ended the
    campaign early.
    """

    target: str
    seed: int
    sanitizer: Sanitizer
    no_native_coverage: str | None = None
    modules: int = 0
    counters: int = 0
    executions: int = 0
    coverage: int = 0
    features: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    corpus_before: int = 0
    corpus_after: int = 0
    mutator_calls: int | None = None
    structured: int | None = None
    crossed: int | None = None
    judged: int | None = None
    judged_twice: int | None = None
    interrupted: bool = False
    crashes: list[Crash] = field(default_factory=list)

    @property
    def executions_per_cpu_second(self) -> int:
        return round(self.executions / self.cpu_seconds) if self.cpu_seconds else 0

    def to_json(self) -> dict[str, Any]:
        """The result as the JSON object in ``--json`` and ``result.json``. Times are in seconds."""
        out = asdict(self)
        out["executions_per_cpu_second"] = self.executions_per_cpu_second
        for name in ("seconds", "cpu_seconds"):
            out[name] = round(out[name], 2)
        return out


def run(
    names: Sequence[str],
    seconds: int,
    *,
    runs: int | None = None,
    seed: int = 1,
    out: str | Path = "out/fuzz",
    sanitizer: Sanitizer = "none",
    say: Say = lambda line: None,
    progress: Progress = lambda target, done_s: None,
) -> list[Result]:
    """Fuzz each target for ``seconds``, or for ``runs`` inputs if that ends earlier. A target stops at its first crash.

    ``KeyboardInterrupt`` ends the current target and skips the rest; the last result then has ``interrupted`` set.
    Raises ``UsageError`` if a target does not exist, if the fuzzer does not start, or if another campaign runs in the
    same folder.
    """
    chosen = [table.find(name) for name in dict.fromkeys(names)]
    folders = {target: Path(out).resolve() / target.name for target in chosen}
    results = []
    with contextlib.ExitStack() as stack:
        locks = {target: stack.enter_context(_locked(folder)) for target, folder in folders.items()}
        try:
            made = build(sanitizer, say=say)
        except NoNativeCoverage as error:
            made = fallback(str(error))
            say(f"no native coverage: {error}")
        for target, folder in folders.items():
            campaign = _Campaign(target, made, folder, seed, locks[target])
            results.append(campaign.run(seconds, runs, say, progress))
            if results[-1].interrupted:
                break
    return results


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Keep other campaigns out of ``folder``. Yields the descriptor of its file ``lock``, which is locked.

    The lock ends with the last process that holds the descriptor, so a crash leaves no lock behind. The file itself is
    never removed: removing it could unlock the folder under a campaign that has just started.
    """
    path = folder / "lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise cannot_write(path, error) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            raise UsageError(
                f"another campaign (process {owner}) is running in {folder}; wait until it ends, or use another --out"
            ) from None
        except OSError as error:
            raise UsageError(f"{path} cannot be locked: {error.strerror}; use another --out") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def reproduce(name: str, path: str | Path, *, sanitizer: Sanitizer = "none") -> Crash | None:
    """Run one input once through a target, without fuzzing. Returns the crash, or None if there is none.

    ``path`` is a file of raw bytes, or a ``.hex`` file with one input. With a sanitizer, the input runs in the
    instrumented build.
    """
    target = table.find(name)
    path = Path(path)
    data = read_bytes(path)
    if path.suffix == ".hex":
        inputs = read_hex(path)
        if len(inputs) != 1:
            raise UsageError(f"{path} holds {len(inputs)} inputs; give a file with one")
        data = inputs[0]
    if sanitizer == "none":
        return _reproduce_here(target, data, path)
    try:
        made = build(sanitizer)
    except NoNativeCoverage as error:
        raise UsageError(f"--sanitize needs the instrumented build: {error}") from None
    with tempfile.TemporaryDirectory(prefix="kfuzz-fuzz-") as directory:
        file = Path(directory) / "input"
        file.write_bytes(data)
        command = [
            str(made.executable(target)),
            f"-artifact_prefix={directory}/",
            f"-timeout={INPUT_TIMEOUT_S}",
            str(file),
        ]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return None
    summary, details = _explain(done.stderr.splitlines(), done.returncode)
    return Crash("crash", summary, details, data.hex(), str(path))


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of running ``executions`` known inputs of a target once. ``input`` names the input that crashed it."""

    target: str
    sanitizer: Sanitizer
    executions: int
    input: str | None = None
    crash: Crash | None = None


def replay(
    names: Sequence[str],
    *,
    sanitizer: Sanitizer = "none",
    out: str | Path = "out/fuzz",
    say: Say = lambda line: None,
) -> list[Replay]:
    """Run every known input of each target (:func:`kfuzz.fuzz.seeding.inputs`) once through the instrumented build.

    Nothing is mutated. A target stops at its first crash. Raises ``UsageError`` if that build cannot be made.
    """
    chosen = [table.find(name) for name in dict.fromkeys(names)]
    try:
        made = build(sanitizer, say=say)
    except NoNativeCoverage as error:
        raise UsageError(f"a replay needs the instrumented build: {error}") from None
    return [_replay(target, made, Path(out).resolve() / target.name) for target in chosen]


def _replay(target: Target, made: Build, directory: Path) -> Replay:
    known = inputs(target)
    with tempfile.TemporaryDirectory(prefix="kfuzz-replay-") as folder:
        # libFuzzer prints the number, which leads back to the input's name.
        files = [Path(folder) / str(i) for i in range(len(known))]
        for file, (_, data) in zip(files, known, strict=True):
            file.write_bytes(data)
        flags = [
            f"-artifact_prefix={folder}/",
            f"-timeout={REPLAY_TIMEOUT_S}",
            f"-rss_limit_mb={RSS_LIMIT_MIB[made.sanitizer]}",
        ]
        command = [str(made.executable(target)), *flags, *map(str, files)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    lines = done.stderr.splitlines()
    started = [int(match[1]) for line in lines if (match := RUNNING.match(line))]
    if done.returncode == 0 and len(started) == len(known):
        return Replay(target.name, made.sanitizer, len(known))
    summary, details = _explain(lines, done.returncode)
    if not started:
        raise UsageError(f"the replay of {target.name} ended before its first input: {summary}")
    name, data = known[started[-1]]
    return Replay(target.name, made.sanitizer, len(started), name, _keep(directory, "crash", summary, details, data))


def _keep(directory: Path, kind: str, summary: str, details: str, data: bytes) -> Crash:
    """Write the input and a text beside it to ``directory/crashes``, and return the crash."""
    file = directory / "crashes" / f"{kind}-{hashlib.sha1(data).hexdigest()[:12]}"
    write_whole(file, data)
    write_whole(file.with_suffix(".txt"), f"{summary}\n\n{details}\n\ninput: {data.hex()}\n")
    return Crash(kind, summary, details, data.hex(), str(file))


def _reproduce_here(target: Target, data: bytes, path: Path) -> Crash | None:
    try:
        target.tiers(all_twice=True)(data)
    except Exception as error:
        lines = traceback.format_exception(error)
        # Skip this function's own frame.
        details = "".join([lines[0], *lines[2:]])
        return Crash("crash", f"{type(error).__name__}: {error}", details, data.hex(), str(path))
    return None


class _Campaign:
    """A campaign on one target, in one process."""

    def __init__(self, target: Target, made: Build, directory: Path, seed: int, lock: int) -> None:
        self.target = target
        self.lock = lock
        self.build = made
        self.directory = directory
        self.corpus = directory / "corpus"
        self.result = Result(target.name, seed, made.sanitizer, no_native_coverage=made.reason or None)
        self.lines: list[str] = []

    def run(self, seconds: int, runs: int | None, say: Say, progress: Progress) -> Result:
        result = self.result
        self.corpus.mkdir(parents=True, exist_ok=True)
        for data in seeds(self.target, say=say):
            write_once(self.corpus / hashlib.sha1(data).hexdigest(), data)
        result.corpus_before = count_files(self.corpus)
        artifacts = Path(tempfile.mkdtemp(prefix=".artifacts.", dir=self.directory))
        try:
            code = self.fuzz(self.command(seconds, runs, artifacts), seconds, progress)
            self.judge(code)
        finally:
            shutil.rmtree(artifacts, ignore_errors=True)
        result.corpus_after = count_files(self.corpus)
        write_whole(self.directory / "result.json", json.dumps(result.to_json(), indent=2, sort_keys=True) + "\n")
        return result

    def command(self, seconds: int, runs: int | None, artifacts: Path) -> list[str]:
        flags = [
            f"-seed={self.result.seed}",
            f"-max_total_time={seconds}",
            f"-max_len={self.target.length_max}",
            f"-timeout={INPUT_TIMEOUT_S}",
            f"-rss_limit_mb={RSS_LIMIT_MIB[self.build.sanitizer]}",
            f"-artifact_prefix={artifacts}/",
            "-print_final_stats=1",
            # No other process writes to the corpus. Reloading it every second would make runs depend on the clock.
            "-reload=0",
        ]
        if runs is not None:
            flags.append(f"-runs={runs}")
        if words := dictionary(self.target):
            flags.append(f"-dict={words}")
        return [str(self.build.executable(self.target)), *flags, str(self.corpus)]

    def fuzz(self, command: list[str], seconds: int, progress: Progress) -> int:
        """Run libFuzzer until it ends. Returns its exit code, negative for a signal."""
        began = time.monotonic()
        with open_whole(self.directory / "log.txt") as log:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # The fuzzing process also holds the lock, because it writes to the folder.
                pass_fds=[self.lock],
            )
            output = cast(IO[bytes], process.stdout)

            def follow() -> None:
                for raw in output:
                    log.write(raw)
                    self.take(raw.decode(errors="replace").rstrip("\n"))
                    progress(self.target.name, int(time.monotonic() - began))

            # libFuzzer checks the clock only between inputs, and a target may hang where no alarm reaches it.
            watchdog = threading.Timer(seconds + GRACE_S, kill_group, [process.pid])
            watchdog.start()
            try:
                try:
                    follow()
                except KeyboardInterrupt:
                    self.result.interrupted = True
                    watchdog.cancel()
                    watchdog = threading.Timer(WIND_DOWN_S, kill_group, [process.pid])
                    watchdog.start()
                    # At this signal libFuzzer finishes its current input, prints its totals and ends.
                    process.send_signal(signal.SIGUSR1)
                    # A second interrupt kills it at once.
                    with contextlib.suppress(KeyboardInterrupt):
                        follow()
                    kill_group(process.pid)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            except BaseException:
                kill_group(process.pid)
                process.wait()
                raise
            finally:
                watchdog.cancel()
                output.close()
        self.result.seconds = time.monotonic() - began
        self.result.cpu_seconds = usage.ru_utime + usage.ru_stime
        return process.returncode

    def take(self, line: str) -> None:
        """Parse one line of libFuzzer's output."""
        result = self.result
        if match := STATUS.match(line):
            result.executions, result.coverage, result.features = (int(group) for group in match.groups())
            return
        if match := LOADED.match(line):
            result.modules, result.counters = int(match[1]), int(match[2])
        elif match := EXECUTED.match(line):
            result.executions = int(match[1])
        elif match := MUTATOR.match(line):
            result.mutator_calls, result.structured, result.crossed = (int(group) for group in match.groups())
        elif match := TIERS.match(line):
            result.judged, result.judged_twice = int(match[1]), int(match[2])
        self.lines.append(line)

    def judge(self, code: int) -> None:
        """Add a crash to the result if the process found one; raise ``UsageError`` if the fuzzer itself failed."""
        log = self.directory / "log.txt"
        written = next((match[1] for line in reversed(self.lines) if (match := ARTIFACT.search(line))), None)
        if self.result.interrupted and written is None:
            return
        if code == 0:
            if self.build.native and not self.result.counters:
                raise UsageError(
                    f"libFuzzer watches no compiled code; delete {self.build.directory} and run this again ({log})"
                )
            return
        summary, details = _explain(self.lines, code)
        if written is None:
            raise UsageError(
                f"the fuzzer of {self.target.name} ended without a result: {summary}; its output is in {log}"
            )
        data = Path(written).read_bytes()
        kind = Path(written).name.partition("-")[0]
        self.result.crashes.append(_keep(self.directory, kind, summary, details, data))


def _explain(lines: Sequence[str], code: int) -> tuple[str, str]:
    """Why a fuzzing process failed: a summary line, and a few lines of details."""
    for i, line in enumerate(lines):
        if line.strip() == UNCAUGHT:
            block = [line for line in lines[i + 1 : i + 1 + TRACEBACK_LINES] if not line.startswith("==")]
            return block[0] if block else "an exception without a message", "\n".join(block)
    for i, line in enumerate(lines):
        if NATIVE_ERROR.match(line):
            return re.sub(r"^==\d+==\s*", "", line), "\n".join(lines[i : i + TRACEBACK_LINES])
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}", "\n".join(lines[-TRACEBACK_LINES:])
    return (lines[-1] if lines else f"exit code {code} and no output"), "\n".join(lines[-TRACEBACK_LINES:])


def write_once(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``. The name is a digest of ``data``, so an existing file has the same contents."""
    if not path.exists():
        write_whole(path, data)


def count_files(directory: Path) -> int:
    return sum(1 for entry in os.scandir(directory) if entry.is_file())


def kill_group(pid: int) -> None:
    """Kill a session leader and all processes in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
