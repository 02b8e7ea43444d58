"""Makes copies of the checkout and runs tests in them. Imports ``changes`` and ``select``."""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Literal, TypeVar

import coverage
import psutil

from tools.mutants.changes import Change
from tools.mutants.select import Map, Part, keep_part, load_part, recorded_lines, test_files

Outcome = Literal["noticed", "survived", "timed out"]
T = TypeVar("T")
R = TypeVar("R")

NOT_COPIED: Final = (
    ".git", ".venv*", "build", "out", "dist", "embargo", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info",
)  # fmt: skip
# Chosen tests may use CPU_FACTOR times their usual CPU time plus CPU_SECONDS. A program that waits uses no CPU, so the
# wall-clock time has a limit too: CLOCK_FACTOR times the CPU limit.
CPU_FACTOR: Final = 3.0
CPU_SECONDS: Final = 30.0
CLOCK_FACTOR: Final = 5.0
MEMORY_BYTES_MAX: Final = 4 << 30
MAP_SECONDS: Final = 1800.0
POLL_SECONDS: Final = 0.2
PLUGIN: Final = "tools.mutants.plugin"
COVERAGE: Final = Path(__file__).resolve().with_name("coverage.ini")
PYTEST: Final = ("-m", "pytest", "-q", "--no-header", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", PLUGIN)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a change. ``by`` is the test that failed, or a remark."""

    change: Change
    outcome: Outcome
    by: str = ""


class Copy:
    """A copy of the checkout that one pytest process uses at a time."""

    def __init__(self, checkout: Path, folder: Path, marks: str) -> None:
        self.root = folder
        self.marks = marks
        shutil.copytree(checkout, folder, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        compileall.compile_dir(folder / "kfuzz", quiet=2)

    def run(self, tests: Sequence[str], cpu_seconds: float, **names: Path) -> int | None:
        """Pytest's exit code; None if it took too long or too much memory. ``names`` are the plugin's files."""
        # The copy must see neither the settings of an outer run nor the user's own pytest options.
        dropped = ("MUTANTS_", "COVERAGE_", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        environment |= {f"MUTANTS_{name.upper()}": str(path) for name, path in names.items()}
        if "notes" in names:
            environment |= {"COVERAGE_PROCESS_START": str(COVERAGE), "MUTANTS_ROOT": str(self.root)}
        # The plugin comes from this checkout, everything else from the copy.
        folders = (self.root, COVERAGE.parents[2])
        environment |= {"PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONDONTWRITEBYTECODE": "1"}
        # Searching for plugins takes longer than most tests.
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        process = subprocess.Popen(
            [sys.executable, *PYTEST, "-m", self.marks, *tests],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return _watched(process, cpu_seconds)
        finally:
            # Stop programs that the tests started and left running.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def notes_of(self, file: str) -> dict[str, Any]:
        """The tests of ``file``, and the lines that they run."""
        notes, folder = self.root / "notes.json", self.root / "lines"
        notes.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.run([file], MAP_SECONDS, notes=notes)
        if not notes.exists():
            return {"tests": [], "failed": [file], "lines": {}}
        document: dict[str, Any] = json.loads(notes.read_text())
        recorded = coverage.Coverage(data_file=str(folder / "data"), config_file=False, messages=False)
        recorded.combine([str(folder)])
        return document | {"lines": recorded_lines(recorded.get_data(), self.root, document["tests"])}

    def judge(self, change: Change, tests: Sequence[tuple[str, float]]) -> Result:
        """Make the change, run the tests until one fails, and undo the change."""
        if not tests:
            return Result(change, "survived", "no test runs it")
        chosen, seen = self.root / "chosen.json", self.root / "seen.txt"
        chosen.write_text(json.dumps([name for name, _ in tests]))
        seen.unlink(missing_ok=True)
        file = self.root / change.path
        for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            stale.unlink()
        cpu_seconds = CPU_SECONDS + CPU_FACTOR * sum(seconds for _, seconds in tests)
        try:
            file.write_text(change.made())
            files = list(dict.fromkeys(name.split("::")[0] for name, _ in tests))
            code = self.run(["-x", *files], cpu_seconds, chosen=chosen, seen=seen)
        finally:
            file.write_text(change.source)
        if code is None:
            return Result(change, "timed out")
        if code == PASSED:
            return Result(change, "survived")
        return Result(change, "noticed", seen.read_text() if seen.exists() else "the tests cannot be collected")


PASSED: Final = 0


def _watched(process: subprocess.Popen[bytes], cpu_seconds: float) -> int | None:
    ends = time.monotonic() + CLOCK_FACTOR * cpu_seconds
    watched = psutil.Process(process.pid)
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(POLL_SECONDS)
        cpu, memory = 0.0, 0
        with contextlib.suppress(psutil.Error):
            for one in (watched, *watched.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = one.cpu_times()
                    cpu += times.user + times.system
                    memory += one.memory_info().rss
            times = watched.cpu_times()
            cpu += times.children_user + times.children_system
        if cpu > cpu_seconds or memory > MEMORY_BYTES_MAX or time.monotonic() > ends:
            return None


@contextmanager
def copies(checkout: Path, count: int, marks: str) -> Iterator[SimpleQueue[Copy]]:
    """``count`` copies in a temporary folder, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="kfuzz-mutants-", ignore_cleanup_errors=True) as folder:
        queue: SimpleQueue[Copy] = SimpleQueue()
        for i in range(count):
            queue.put(Copy(checkout, Path(folder, f"copy-{i}"), marks))
        yield queue


def spread(free: SimpleQueue[Copy], work: Sequence[T], do: Callable[[Copy, T], R]) -> Iterator[R]:
    """The results of ``do`` for each piece of work, in order. Each copy handles one piece at a time."""

    def one(piece: T) -> R:
        copy = free.get()
        try:
            return do(copy, piece)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(free.qsize()) as pool:
        yield from pool.map(one, work)


def mapped(free: SimpleQueue[Copy], checkout: Path, kept: Path, tell: Callable[[str], None]) -> Map:
    """Which tests run which lines. Reuses saved parts that are up to date, and records the others again."""
    files = test_files(checkout)
    parts = {file: load_part(kept, checkout, file) for file in files}
    missing = [file for file, part in parts.items() if part is None]

    def note(copy: Copy, file: str) -> Part:
        return keep_part(kept, checkout, file, copy.notes_of(file))

    for i, part in enumerate(spread(free, missing, note), 1):
        parts[part.file] = part
        tell(f"recording which lines tests run: {i} of {len(missing)}: {part.file}")
    return Map(checkout, [part for part in parts.values() if part is not None])
