"""Measures how ``kfuzz export`` helps other fuzzers: ``python -m benchmarks.foreign``.

Each decoder of ``fuzzers/`` is fuzzed from one ordinary batch, from the exported seeds with the dictionary, and with
the whole kit. All runs take the same CPU time. A cell is the median of the coverage that the final corpora reach, and
its range. Every corpus of a decoder is replayed by the same program. So its cells can be compared with each other, but
not with those of another decoder.

A fuzzer that stops at a find is started again with the time that is left.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Final

import click
import psutil
from rich.table import Table

from benchmarks.commands import console, exit_code
from kfuzz.cli import options
from kfuzz.cli.console import echo_json
from kfuzz.display import progress
from kfuzz.errors import UsageError
from kfuzz.files import locked
from kfuzz.fuzz.exporting import DICTIONARY, LIBRARY, Format, export

ROOT: Final = Path(__file__).resolve().parent.parent
FUZZERS: Final = ROOT / "fuzzers"
# The files that the commands of docs/fuzzing.md make there.
MADE: Final = shutil.ignore_patterns(
    "target", "hfuzz_target", "kit", "corpus", "findings", "testdata", "librdkafka", "harness", "*.tgz", "*.test"
)
# The seeds of a campaign. The target `canary` has one seed: an ordinary batch of two records.
ONE_BATCH: Final = "one batch"
SEEDS: Final = "seeds"
KIT: Final = "kit"
STARTS: Final = (ONE_BATCH, SEEDS, KIT)
POLL_S: Final = 0.2
STOP_S: Final = 20
REPLAY_S: Final = 600


@dataclass(frozen=True, slots=True)
class Cell:
    """The coverage after each run of one decoder with one start, and how often the fuzzer had to start again."""

    decoder: str
    start: str
    coverage: tuple[int, ...]
    restarts: int

    def __str__(self) -> str:
        return f"{statistics.median(self.coverage):,.0f} ({min(self.coverage):,} to {max(self.coverage):,})"


class Decoder(ABC):
    """A decoder under a fuzzer that is not ours. It is built in ``folder``, which is a copy of ``fuzzers/NAME``."""

    name: ClassVar[str]
    fuzzer: ClassVar[str]
    counts: ClassVar[str]
    tools: ClassVar[tuple[str, ...]]
    starts: ClassVar[tuple[str, ...]] = STARTS
    form: ClassVar[Format]
    environment: ClassVar[Mapping[str, str]] = {}
    build: ClassVar[tuple[tuple[str, ...], ...]]
    # How the log names the input that stopped the fuzzer. AFL++ continues after a find; if it stops, that is an error.
    found: ClassVar[str] = ""

    def __init__(self, work: Path) -> None:
        self.folder = work / self.name

    def prepare(self) -> None:
        """Copy and build it, unless that is done. Raises ``click.ClickException`` if a tool is missing or fails."""
        for tool in self.tools:
            if not shutil.which(tool):
                raise click.ClickException(f"{self.name} is built with {tool}, which is not installed; install it")
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            # The copies keep their times, so that nothing is built twice.
            shutil.copytree(FUZZERS / self.name, self.folder, ignore=MADE, dirs_exist_ok=True)
            for command in self.build:
                done = _call(command, self.folder, {"CARGO_TARGET_DIR": str(self.folder / "target")})
                if done.returncode:
                    raise _failed(f"{self.name} does not build", done)

    def export(self, place: Path, start: str) -> None:
        """Write what a campaign in ``place`` begins with, into ``place/kit``."""
        export(self.form, self.seeds_to(place), target="canary" if start == ONE_BATCH else "record-batch")

    def seeds_to(self, place: Path) -> Path:
        """The folder that ``export`` gets."""
        return place / "kit"

    def fuzz(self, place: Path, start: str, seed: int, cpu_seconds: float) -> int:
        """Fuzz in the new folder ``place``. Returns how often the fuzzer stopped early and was started again."""
        self.export(place, start)
        left, restarts = cpu_seconds, 0
        while True:
            environment = {**self.environment, **(self.mutator(place) if start == KIT else {})}
            command = self.command(place, start, seed + 1000 * restarts)
            log = place / "log"
            used, stopped = _run(command, place, {**environment, **self.seeded(seed + 1000 * restarts)}, log, left)
            left -= used
            if stopped or left <= 0:
                return restarts
            restarts += 1
            if not self.set_aside(place, log.read_text(errors="replace")):
                raise click.ClickException(f"the fuzzer of {self.name} has stopped, and {log} says why")

    def mutator(self, place: Path) -> dict[str, str]:
        """The environment that loads the mutator."""
        return {}

    def seeded(self, seed: int) -> dict[str, str]:
        """The environment with the seed, if it is not in the command."""
        return {}

    @abstractmethod
    def command(self, place: Path, start: str, seed: int) -> list[str]:
        """The command that fuzzes in ``place`` until it is interrupted."""

    def set_aside(self, place: Path, log: str) -> bool:
        """Remove the input that stopped the fuzzer from what it begins with. False if there is no such input."""
        found = re.findall(self.found, log, re.MULTILINE) if self.found else []
        for name in found:
            for folder in (place / "corpus", self.seeds_to(place), self.seeds_to(place) / "seeds"):
                (folder / name).unlink(missing_ok=True)
        return bool(found)

    @abstractmethod
    def coverage(self, place: Path, start: str) -> int:
        """Replay the corpus in ``place``."""


class KafkaProtocol(Decoder):
    """A crate of Rust under libFuzzer."""

    name = "kafka-protocol"
    fuzzer = "libFuzzer"
    counts = "edges"
    tools = ("cargo", "c++")
    form = "libfuzzer"
    environment: ClassVar[Mapping[str, str]] = {"KEEP_GOING": "1", "RUST_BACKTRACE": "0"}
    build = (("cargo", "build", "--release", "--quiet"),)
    found = r"Test unit written to \S*-([0-9a-f]{40})$"

    @property
    def program(self) -> list[str]:
        """The command of the fuzzer, without libFuzzer's options. A folder is named after the platform."""
        return [str(next(self.folder.glob("target/*/release/fuzz-kafka-protocol")))]

    def mutator(self, place: Path) -> dict[str, str]:
        return {"LD_PRELOAD": str(place / "kit" / LIBRARY)}

    def command(self, place: Path, start: str, seed: int) -> list[str]:
        words = [] if start == ONE_BATCH else [f"-dict={place / 'kit' / DICTIONARY}"]
        (place / "corpus").mkdir(exist_ok=True)
        (place / "found").mkdir(exist_ok=True)
        options = [f"-seed={seed}", "-rss_limit_mb=4096", "-timeout=10", f"-artifact_prefix={place / 'found'}/"]
        return [*self.program, *options, *words, str(place / "corpus"), str(place / "kit" / "seeds")]

    def coverage(self, place: Path, start: str) -> int:
        command = [*self.program, "-runs=0", "-rss_limit_mb=4096", str(place / "corpus"), str(place / "kit/seeds")]
        done = _call(command, place, self.environment)
        if reached := re.search(r"INITED cov: (\d+)", done.stderr):
            return int(reached[1])
        raise _failed(f"the corpus of {self.name} cannot be replayed", done)


class KafkaClients(KafkaProtocol):
    """Apache Kafka's own reader under Jazzer, which has libFuzzer inside."""

    name = "kafka-clients"
    fuzzer = "Jazzer"
    tools = ("java", "mvn")
    build = (("mvn", "-q", "-B", "prepare-package"),)

    @property
    def program(self) -> list[str]:
        target = self.folder / "target"
        return [
            *("java", "-Xmx512m", "-cp", f"{target / 'classes'}:{target / 'lib'}/*"),
            *("com.code_intelligence.jazzer.Jazzer", "--target_class=FuzzMemoryRecords", "--keep_going=1000"),
        ]


class FranzGo(Decoder):
    """A library of Go under Go's own fuzzer. It takes no mutator: in its place, the harness repairs CRCs."""

    name = "franz-go"
    fuzzer = "Go"
    counts = "statements"
    tools = ("go",)
    form = "go"
    function = "FuzzProcessFetchPartition"
    found = rf"{function}/([0-9a-f]+)$"
    environment: ClassVar[Mapping[str, str]] = {"KEEP_GOING": "1", "REPAIR": "0"}
    build = (
        ("go", "test", "-c", f"-fuzz={function}", "-o", "fuzz.test", "."),
        ("go", "test", "-c", "-cover", "-coverpkg=github.com/twmb/franz-go/pkg/...", "-o", "cover.test", "."),
    )

    def seeds_to(self, place: Path) -> Path:
        return place / "testdata" / "fuzz" / self.function

    def mutator(self, place: Path) -> dict[str, str]:
        return {"REPAIR": "1"}

    def seeded(self, seed: int) -> dict[str, str]:
        return {"GODEBUG": f"fuzzseed={seed}"}

    def command(self, place: Path, start: str, seed: int) -> list[str]:
        # Go makes each new input smaller for up to a minute before it continues.
        options = [f"-test.fuzz={self.function}", "-test.run=^$", "-test.parallel=1", "-test.fuzzminimizetime=10x"]
        return [str(self.folder / "fuzz.test"), *options, f"-test.fuzzcachedir={place / 'cache'}"]

    def coverage(self, place: Path, start: str) -> int:
        replay = place / "replay"
        # The client's work before it gets bytes is the same in all columns.
        before = self._reached(replay / "nothing", None, start)
        return sum(count for _, count in self._reached(replay / "all", place, start) - before)

    def _reached(self, replay: Path, place: Path | None, start: str) -> set[tuple[str, int]]:
        """The blocks that the corpus in ``place`` reaches, each with its place and its number of statements."""
        seeds = self.seeds_to(replay)
        seeds.mkdir(parents=True)
        for folder in (self.seeds_to(place), place / "cache" / self.function) if place else ():
            if folder.is_dir():
                shutil.copytree(folder, seeds, dirs_exist_ok=True)
        command = [str(self.folder / "cover.test"), f"-test.run={self.function}", "-test.coverprofile=profile"]
        # The harness reads the repaired inputs only if it did so before.
        done = _call(command, replay, {**self.environment, **(self.mutator(replay) if start == KIT else {})})
        if done.returncode:
            raise _failed(f"the corpus of {self.name} cannot be replayed", done)
        blocks = (line.rsplit(" ", 2) for line in (replay / "profile").read_text().splitlines()[1:])
        return {(block, int(statements)) for block, statements, count in blocks if int(count)}


class Librdkafka(Decoder):
    """A library of C under AFL++."""

    name = "librdkafka"
    fuzzer = "AFL++"
    counts = "edges"
    tools = ("afl-fuzz", "afl-clang-fast", "npm", "make")
    form = "afl"
    # No report of crashes by the system is needed, and the fuzzers of other columns may run beside this one.
    environment: ClassVar[Mapping[str, str]] = {
        "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES": "1",
        "AFL_SKIP_CPUFREQ": "1",
        "AFL_NO_AFFINITY": "1",
        "AFL_NO_UI": "1",
    }
    build = (("make", "--silent"),)
    # Milliseconds. Inputs that take longer are set aside, also seeds (`+`).
    timeout = "100+"

    def mutator(self, place: Path) -> dict[str, str]:
        return {"AFL_CUSTOM_MUTATOR_LIBRARY": str(place / "kit" / LIBRARY)}

    def command(self, place: Path, start: str, seed: int) -> list[str]:
        words = [] if start == ONE_BATCH else ["-x", str(place / "kit" / DICTIONARY)]
        options = ["-s", str(seed), "-t", self.timeout, "-i", str(place / "kit" / "seeds"), "-o", str(place / "out")]
        return ["afl-fuzz", *options, *words, "--", str(self.folder / "harness")]

    def coverage(self, place: Path, start: str) -> int:
        queue = place / "out" / "default" / "queue"
        options = ["-C", "-q", "-t", self.timeout.rstrip("+"), "-i", str(queue), "-o", str(place / "edges")]
        done = _call(["afl-showmap", *options, "--", str(self.folder / "harness")], place, self.environment)
        edges = (place / "edges").read_text().splitlines() if (place / "edges").is_file() else []
        if not edges:
            raise _failed(f"the corpus of {self.name} cannot be replayed", done)
        return len(edges)


DECODERS: Final[tuple[type[Decoder], ...]] = (KafkaProtocol, FranzGo, Librdkafka, KafkaClients)


def _call(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=REPLAY_S,
        check=False,
    )


def _failed(what: str, done: subprocess.CompletedProcess[str]) -> click.ClickException:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return click.ClickException(f"{what}: {lines[-1] if lines else f'exit code {done.returncode}'}")


def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path, cpu_seconds: float
) -> tuple[float, bool]:
    """Run a fuzzer until it has used its CPU time. Returns what it used, and whether it was stopped for that."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    used, family = 0.0, [psutil.Process(process.pid)]
    try:
        while process.poll() is None:
            family = _family(process.pid) or family
            used = max(used, sum(_cpu_s(one) for one in family))
            if used >= cpu_seconds:
                return used, True
            time.sleep(POLL_S)
        return used, False
    finally:
        _stop(process, family)


def _stop(process: subprocess.Popen[bytes], family: Sequence[psutil.Process]) -> None:
    """End the fuzzer and the processes that it has started; a fuzzer that is interrupted ends them itself."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    for one in family:
        # psutil compares start times, so a number that was given to another process is left alone.
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()


def _family(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return []


def _cpu_s(process: psutil.Process) -> float:
    """CPU time of a process and of its children that have ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0


def measure(
    decoder: Decoder, start: str, seeds: Sequence[int], cpu_seconds: float, work: Path, done: Callable[[], None]
) -> Cell:
    """Fuzz once with each seed; ``done`` is called after each run."""
    coverage, restarts = [], 0
    for seed in seeds:
        place = work / f"{decoder.name}-{start.replace(' ', '-')}-{seed}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        restarts += decoder.fuzz(place, start, seed, cpu_seconds)
        coverage.append(decoder.coverage(place, start))
        done()
    return Cell(decoder.name, start, tuple(coverage), restarts)


@click.command()
@click.argument("names", nargs=-1, metavar="[DECODER]...")
@click.option("--seeds", type=click.IntRange(1, 100), default=5, show_default=True, help="How many runs of each kind.")
@click.option("--cpu-seconds", type=click.IntRange(1), default=60, show_default=True, help="CPU time of each run.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out/foreign"),
    show_default=True,
    help="For the builds, corpora and finds.",
)
@options.as_json
def main(names: tuple[str, ...], seeds: int, cpu_seconds: int, folder: Path, as_json: bool) -> None:
    """Print the coverage that other fuzzers reach with and without what kfuzz exports.

    The decoders are kafka-protocol, franz-go, librdkafka and kafka-clients; all of them if none is given.

    \b
    Example:
      python -m benchmarks.foreign franz-go --seeds 1 --cpu-seconds 10
    """
    known = {decoder.name: decoder for decoder in DECODERS}
    if unknown := [name for name in names if name not in known]:
        raise click.UsageError(f"there is no decoder {unknown[0]}; take {', '.join(known)}")
    folder = folder.resolve()
    decoders = [known[name](folder / "build") for name in names or known]
    for decoder in decoders:
        click.echo(f"building {decoder.name}", err=True)
        decoder.prepare()
    work = [(decoder, start) for decoder in decoders for start in decoder.starts]
    runs = itertools.count(1)
    with progress("runs", seeds * len(work), quiet=as_json) as set_done:
        cells = [
            measure(decoder, start, range(1, seeds + 1), cpu_seconds, folder, lambda: set_done(next(runs)))
            for decoder, start in work
        ]
    if as_json:
        echo_json([asdict(cell) for cell in cells])
        return
    table = Table("decoder", "fuzzer", "counted", *STARTS)
    for decoder in decoders:
        by_start = {cell.start: str(cell) for cell in cells if cell.decoder == decoder.name}
        table.add_row(decoder.name, decoder.fuzzer, decoder.counts, *(by_start.get(start, "–") for start in STARTS))
    console().print(table)


def _run_main() -> None:
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        raise UsageError(error.format_message()) from None
    except click.Abort:
        raise KeyboardInterrupt from None


if __name__ == "__main__":
    sys.exit(exit_code("python -m benchmarks.foreign", _run_main))
