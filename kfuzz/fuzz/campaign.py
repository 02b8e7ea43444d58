"""Fuzz targets for a given time and report the results.

``OUT/<target>/`` holds what a campaign leaves, and the next one continues from it: ``corpus``, ``causes`` (the smallest
input of each cause), ``aside`` (inputs of the corpus that break the target), ``log.txt`` (libFuzzer's own output) and
``result.json``, also if the campaign was interrupted. Nothing that is found ends a campaign. Equal seed, ``runs``,
build, starting corpus and environment give equal campaigns of one job, if the machine supports fixed addresses
(``setarch -R``).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

from kfuzz.conformance.judge.causes import Cause, Deviation
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import read_bytes, write_whole, writing
from kfuzz.fuzz import targets as table
from kfuzz.fuzz.building import Build, NoNativeCoverage, Part, Sanitizer, build, fallback
from kfuzz.fuzz.causes import Causes, document_of, ending, of_end
from kfuzz.fuzz.forked import cpu_seconds
from kfuzz.fuzz.libfuzzer import Ended, Fuzzer, Log, Totals, command_of, log_at
from kfuzz.fuzz.other_reader import Truth, harm_of
from kfuzz.fuzz.peer_building import build_peer, sanitizer_of
from kfuzz.fuzz.peers import Peer
from kfuzz.fuzz.recorder import FINDS, STOP_AT_FIRST, Find, failing, taken
from kfuzz.fuzz.reproducing import run_alone
from kfuzz.fuzz.sample_pipe import SAMPLES, SAMPLES_WAIT
from kfuzz.fuzz.seeding import by_digest, dictionary, inputs, seeds
from kfuzz.fuzz.shrinking import shrink_causes
from kfuzz.fuzz.syncing import INPUT, Shared
from kfuzz.fuzz.targets import Target
from kfuzz.storage import Target as Place

# How often ``watch`` is called.
WATCH_S: Final = 0.5
# How long a merge may take, if the fuzzing was not longer. It runs every input of the corpus once; each is small, but
# one that hangs costs the time limit.
MERGE_S: Final = 300
# How long a testee may take after the fuzzing, if that was not longer. An input without an answer takes 100 seconds.
TRUTH_LATE_S: Final = 120
SEED_MAX: Final = 2**32 - 1
SECONDS_MAX: Final = 7 * 86400
# Each process of a campaign has its own seed.
JOB_STEP: Final = 7919
RESTART_STEP: Final = 104_729

Say = Callable[[str], None]
State = Literal["waiting", "running", "merging", "shrinking", "done"]


@dataclass(slots=True)
class Result:
    """The result of a campaign on one target.

    ``implementation`` is what was fuzzed: kfuzz, or a peer as ``name@version``.
    ``modules`` and ``counters`` say how much compiled code libFuzzer watches. If it watches none,
    ``no_native_coverage`` says why. ``coverage`` counts edges of compiled code and of Python code, by the job that
    reached most. ``start_executions`` counts the inputs of the corpus that processes ran at their start, which took
    ``start_cpu_seconds`` of the ``cpu_seconds``; the rest is the steady rate. ``corpus_before`` and ``corpus_after``
    count the inputs of the corpus before and after the fuzzing, ``corpus_merged`` those that are left of them (None
    without a merge), and ``set_aside`` those that break the target.

    ``mutator_calls`` counts calls of the mutation hook, ``structured`` the changes by structure among them, and
    ``crossed`` the inputs that were made from two. ``judged`` counts the inputs of the first tier, and ``judged_twice``
    those that met the full oracle as well. All five are None if nothing was counted: the target has no hook or one
    tier, or no process ended by itself. ``restarts`` counts how often an input ended the fuzzing process,
    ``unconfirmed`` those of them that did so in no fresh process. ``compared`` counts the questions to ``truth``,
    ``truth_restarts`` how often it was started again, ``truth_unconfirmed`` how often for no one input, and
    ``truth_late`` says that its time was over before it had answered everything.
    ``interrupted`` means that the user ended the campaign early. ``causes`` are by the file of their smallest input,
    the worst first.
    """

    target: str
    seed: int
    sanitizer: Sanitizer
    jobs: int = 1
    implementation: str = "kfuzz"
    no_native_coverage: str | None = None
    modules: int = 0
    counters: int = 0
    executions: int = 0
    coverage: int = 0
    features: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    start_executions: int = 0
    start_cpu_seconds: float = 0.0
    merge_cpu_seconds: float = 0.0
    corpus_before: int = 0
    corpus_after: int = 0
    mutator_calls: int | None = None
    structured: int | None = None
    crossed: int | None = None
    judged: int | None = None
    judged_twice: int | None = None
    restarts: int = 0
    unconfirmed: int = 0
    set_aside: int = 0
    compared: int | None = None
    truth_restarts: int = 0
    truth_unconfirmed: int = 0
    truth_late: bool = False
    corpus_merged: int | None = None
    interrupted: bool = False
    causes: dict[Path, Cause] = field(default_factory=dict)

    @property
    def executions_per_cpu_second(self) -> int:
        return round(self.executions / self.cpu_seconds) if self.cpu_seconds else 0

    @property
    def steady_per_cpu_second(self) -> int:
        """The rate after the start of the processes."""
        seconds = self.cpu_seconds - self.start_cpu_seconds
        return round((self.executions - self.start_executions) / seconds) if seconds > 0 else 0

    @property
    def failed(self) -> bool:
        """Whether something was found, or questions to ``truth`` have no answer."""
        return bool(self.causes or self.truth_late or self.truth_unconfirmed)

    def to_json(self) -> dict[str, Any]:
        """The result as the JSON object in ``--json`` and ``result.json``. Times are in seconds."""
        out = {one.name: getattr(self, one.name) for one in fields(self)}
        out["executions_per_cpu_second"] = self.executions_per_cpu_second
        out["steady_per_cpu_second"] = self.steady_per_cpu_second
        for name in ("seconds", "cpu_seconds", "start_cpu_seconds", "merge_cpu_seconds"):
            out[name] = round(out[name], 2)
        out["causes"] = [document_of(file, cause, self.implementation) for file, cause in self.causes.items()]
        return out


@dataclass(frozen=True, slots=True)
class Row:
    """How far a target is, for a table that moves.

    ``seconds`` counts from its start, ``since_new_s`` from the last time that something new was found. ``per_second``
    counts inputs by the wall, of all jobs. ``corpus`` counts inputs.
    """

    target: str
    state: State
    seconds: float
    executions: int
    per_second: int
    coverage: int
    corpus: int
    causes: int
    since_new_s: float


Watch = Callable[[list[Row]], None]


def run(
    names: Sequence[str],
    seconds: int,
    *,
    runs: int | None = None,
    seed: int = 1,
    jobs: int = 1,
    out: str | Path = "out/fuzz",
    corpus: str | Path | None = None,
    sanitizer: Sanitizer | None = None,
    stop_at_first: bool = False,
    truth: Testee | None = None,
    without: Part | None = None,
    peer: Peer | None = None,
    sync: str | Path | None = None,
    say: Say = lambda line: None,
    watch: Watch = lambda rows: None,
) -> list[Result]:
    """Fuzz each target for ``seconds``, or for ``runs`` inputs if that ends earlier.

    Up to ``jobs`` processes run at the same time. With more jobs than targets, a target has several, which share its
    corpus; ``runs`` counts for each. ``corpus`` is the folder of the corpora, one folder per target; without it they
    are in ``out``. With ``stop_at_first`` a job ends when it has found something. ``truth`` is also asked about each
    input of the corpora and a sample of the others; where it and kfuzz differ, that is a cause, too. The sample is the
    same each time only with ``runs``. ``without`` leaves out a part of the build.
    Campaigns on other machines, or with another ``out``, share inputs and causes at ``sync``, a folder or a URI.
    Without a ``sanitizer`` there is none, but a ``peer`` with compiled code has the address sanitizer. With a ``peer``
    the only target is its reader, and ``names``, ``truth`` and ``without`` must be empty.

    ``KeyboardInterrupt`` ends all targets; those that had begun have a result with ``interrupted`` set. Raises
    ``UsageError`` if a target does not exist, if the fuzzer does not start, if another campaign runs in the same
    folder, or if a peer cannot be built.
    """
    chosen = [peer.target] if peer else [table.find(name) for name in dict.fromkeys(names)]
    root = Path(out).resolve()
    if corpus is not None and Path(corpus).resolve() == root:
        raise UsageError(f"--corpus and --out are both {out}; leave out --corpus, or name another folder")
    if truth and (unknown := [target.name for target in chosen if not Truth.knows(target)]):
        sentence = f"no testee can be asked about an input of {', '.join(unknown)}"
        if len(unknown) == len(chosen):
            raise UsageError(f"{sentence}; leave out --truth")
        say(sentence)
    if peer:
        # A wrong choice leaves no folder.
        sanitizer = sanitizer_of(peer, sanitizer)
    place = None if sync is None else Place.of(sync)
    if place:
        # It leaves no folder either.
        place.check_writable()
    with contextlib.ExitStack() as stack:
        corpora = {target: root / target.name / "corpus" for target in chosen}
        if corpus is not None:
            corpora = {target: Path(corpus).resolve() / target.name for target in chosen}
        locks = {target: [stack.enter_context(_locked(root / target.name))] for target in chosen}
        for target in chosen:
            locks[target].append(stack.enter_context(_locked(corpora[target], "--corpus")))
        made = build_peer(peer, sanitizer, say=say) if peer else _build(sanitizer or "none", without, say)
        campaigns = []
        for i, target in enumerate(chosen):
            own_jobs = max(1, jobs // len(chosen) + (i < jobs % len(chosen)))
            campaigns.append(
                _Campaign(
                    target,
                    made,
                    root / target.name,
                    corpora[target],
                    seed,
                    locks[target],
                    own_jobs,
                    stop_at_first=stop_at_first,
                    truth=Truth(truth, target, corpora[target]) if truth and Truth.knows(target) else None,
                    place=place,
                    say=say,
                )
            )
        try:
            _Crew(campaigns, jobs, seconds, runs).work(watch)
            return [campaign.finish() for campaign in campaigns if campaign.began]
        except KfuzzError:
            # One target has failed; all keep what they have found.
            for campaign in campaigns:
                if campaign.began:
                    campaign.finish()
            raise
        finally:
            for campaign in campaigns:
                campaign.clean()


def _build(sanitizer: Sanitizer, without: Part | None, say: Say) -> Build:
    try:
        made = build(sanitizer, say=say)
    except NoNativeCoverage as error:
        made = fallback(str(error))
        say(f"no native coverage: {error}")
    return made if without is None else made.without(without)


@contextlib.contextmanager
def _locked(folder: Path, option: str = "--out") -> Iterator[int]:
    """Keep other campaigns out of the folder of ``option``, or raise ``UsageError``. Yields the locked descriptor.

    That of ``--out`` has a file ``lock``. It is never removed: removing it could unlock the folder under a campaign
    that has just started. A folder of ``--corpus`` is locked itself, because each file in it is an input. The lock ends
    with the last process that holds the descriptor, so a crash leaves no lock.
    """
    has_file = option == "--out"
    path = folder / "lock" if has_file else folder
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT if has_file else os.O_RDONLY, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip() if has_file else ""
            does = f"(process {owner}) is running in" if has_file else "uses"
            raise UsageError(f"another campaign {does} {folder}; wait until it ends, or use another {option}") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be locked: {error.strerror}; use another {option}") from None
        if has_file:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


class _Crew:
    """The threads that run the jobs of all targets. Each job is a libFuzzer process, and another one if it dies."""

    def __init__(self, campaigns: Sequence[_Campaign], jobs: int, seconds: int, runs: int | None) -> None:
        self._campaigns = campaigns
        self._threads = ThreadPoolExecutor(max(jobs, 1), thread_name_prefix="kfuzz-fuzz")
        self._seconds = seconds
        self._runs = runs
        self._is_over = threading.Event()

    def work(self, watch: Watch) -> None:
        """Run all jobs; call ``watch`` while they run. An interrupt stops them, a second one kills them."""
        futures: set[Future[None]] = {
            self._threads.submit(self._work, campaign, job)
            for campaign in self._campaigns
            for job in range(campaign.result.jobs)
        }
        try:
            self._follow(futures, watch)
        except KeyboardInterrupt:
            # Before anything else, so that no target begins while the others hear of it.
            self._is_over.set()
            for campaign in self._campaigns:
                campaign.stop()
            try:
                self._follow(futures, lambda rows: None)
            except KeyboardInterrupt:
                self._kill()
        except BaseException:
            self._kill()
            raise
        finally:
            self._threads.shutdown(cancel_futures=True)
        for future in futures:
            if not future.cancelled():
                future.result()

    def _work(self, campaign: _Campaign, job: int) -> None:
        if not self._is_over.is_set():
            campaign.work(job, self._seconds, self._runs)

    def _follow(self, futures: set[Future[None]], watch: Watch) -> None:
        waiting = futures
        while waiting:
            done, waiting = wait(waiting, timeout=WATCH_S, return_when=FIRST_EXCEPTION)
            for future in done:
                if not future.cancelled():
                    future.result()
            for campaign in self._campaigns:
                campaign.look_at_truth()
            watch([campaign.row() for campaign in self._campaigns])

    def _kill(self) -> None:
        self._is_over.set()
        for campaign in self._campaigns:
            campaign.stop(at_once=True)


class _Campaign:
    """The campaign on one target: its jobs, what they found, and the merge at the end."""

    def __init__(
        self,
        target: Target,
        made: Build,
        folder: Path,
        corpus: Path,
        seed: int,
        locks: Sequence[int],
        jobs: int,
        *,
        stop_at_first: bool,
        truth: Truth | None,
        place: Place | None,
        say: Say,
    ) -> None:
        self.target = target
        self.began = False
        self.result = Result(
            target.name, seed, made.sanitizer, jobs, target.implementation, no_native_coverage=made.reason or None
        )
        self._build = made
        self._folder = folder
        self._corpus = corpus
        # The fuzzing processes also hold the locks, because they write to the folders.
        self._held = locks
        self._stop_at_first = stop_at_first
        self._truth = truth
        self._place = place
        self._shared: Shared | None = None
        self._say = say
        self._causes = Causes(folder, target)
        # Guards all below; each job has a thread. The first one asks for the causes while it makes the corpus ready.
        self._mutex = threading.RLock()
        self._stopping = False
        self._is_enough = False
        self._state: State = "waiting"
        self._work = folder / f".work.{os.getpid()}"
        self._samples = self._work / "samples"
        self._began_at = self._ended_at = 0.0
        self._left = jobs
        self._running: dict[int, Fuzzer] = {}
        self._numbers = count()
        self._found: set[str] = set()
        self._new_at = 0.0
        self._corpus_size = 0

    # ---------------------------------------------------------------------------------------------- one job

    def work(self, job: int, seconds: int, runs: int | None) -> None:
        """Run one job until its time is up. The first one makes the corpus ready, the last one merges it."""
        with self._mutex:
            if not self._stopping and not self.began:
                self._begin()
        try:
            self._fuzz(job, seconds, runs)
        finally:
            with self._mutex:
                self._left -= 1
                is_last = self._left == 0
        if is_last and self.began:
            self.result.corpus_after = count_files(self._corpus)
            self._learn_truth()
            if self._shared:
                self._shared.stop()
            if not self._stopping:
                if not self._stop_at_first:
                    self._merge()
                self._shrink()
            if self._shared:
                self._shared.finish()
            with self._mutex:
                self._ended_at = time.monotonic()
                if not self._stopping:
                    self._state = "done"

    def _begin(self) -> None:
        self.began = True
        self._began_at = self._new_at = time.monotonic()
        self._state = "running"
        with writing(self._corpus):
            self._corpus.mkdir(parents=True, exist_ok=True)
            self._work.mkdir()
            # libFuzzer gives an input its SHA-1 as its name when it merges. One with another name would be lost then.
            for path in list(self._corpus.iterdir()):
                if path.is_file() and not INPUT.fullmatch(path.name):
                    path.replace(self._corpus / hashlib.sha1(read_bytes(path)).hexdigest())
        own = {hashlib.sha1(data).hexdigest(): data for data in seeds(self.target, say=self._say)}
        for name, data in own.items():
            # The name is a digest, so an existing file has the same contents.
            if not (self._corpus / name).exists():
                write_whole(self._corpus / name, data)
        if self._place:
            self._shared = Shared(self._place, self.target, self._corpus, own, self._found_so_far, self._say)
            self._shared.start()
        self.result.corpus_before = count_files(self._corpus)
        if self._truth:
            self._truth.start(self._samples)

    def _fuzz(self, job: int, seconds: int, runs: int | None) -> None:
        """Run libFuzzer, and run it again after each input that ends it."""
        if self._stopping:
            return
        until = time.monotonic() + seconds
        restarts = executed = 0
        log_file = self._folder / ("log.txt" if job == 0 else f"log-{job + 1}.txt")
        with log_at(log_file) as log:
            while True:
                left_s = until - time.monotonic()
                if (
                    (restarts and left_s < 1)
                    or self._stopping
                    or self._is_enough
                    or (runs is not None and executed >= runs)
                ):
                    return
                name = f"{job}-{restarts}"
                command = self._command(job, restarts, left_s, None if runs is None else runs - executed)
                totals, ended = self._run_one(job, command, log, left_s, name, is_counted=runs is not None)
                executed += totals.executions
                try:
                    if not self._judge(ended, totals, name, log_file, is_late=time.monotonic() > until):
                        return
                except UsageError as error:
                    # It names the log, which has its name only after this block.
                    failed = error
                    break
                restarts += 1
        raise failed

    def _run_one(
        self, job: int, command: list[str], log: Log, left_s: float, name: str, *, is_counted: bool
    ) -> tuple[Totals, Ended]:
        settings = {FINDS: str(self._work / f"finds-{name}")}
        if self._stop_at_first:
            settings[STOP_AT_FIRST] = "1"
        if self._truth:
            settings[SAMPLES] = str(self._samples)
            if is_counted:
                settings[SAMPLES_WAIT] = "1"
        totals, ended = self._follow(job, command, log, left_s, settings)
        self._count(totals, ended.cpu_seconds + cpu_seconds(Path(settings[FINDS])))
        return totals, ended

    def _follow(
        self, job: int, command: list[str], log: Log, seconds: float, settings: Mapping[str, str]
    ) -> tuple[Totals, Ended]:
        """Run one process to its end. Meanwhile it can be stopped."""
        fuzzer = Fuzzer(command, cwd=self._folder, log=log, seconds=seconds, environment=settings, held=self._held)
        with self._mutex:
            self._running[job] = fuzzer
            # An interrupt may have come between.
            if self._stopping:
                fuzzer.stop()
        try:
            return fuzzer.totals, fuzzer.run()
        finally:
            with self._mutex:
                del self._running[job]

    def _command(self, job: int, restarts: int, left_s: float, runs: int | None) -> list[str]:
        seed = 1 + (self.result.seed - 1 + job * JOB_STEP + restarts * RESTART_STEP) % SEED_MAX
        # Reloading the corpus lets jobs share it, and makes runs depend on the clock.
        is_shared = self.result.jobs > 1 or self._shared is not None
        chosen = [f"-max_total_time={max(1, round(left_s))}", f"-reload={int(is_shared)}"]
        if runs is not None:
            chosen.append(f"-runs={runs}")
        if words := dictionary(self.target):
            chosen.append(f"-dict={words}")
        return self._libfuzzer(self._folder_for("artifacts"), seed, *chosen, self._corpus)

    def _libfuzzer(self, artifacts: Path, seed: int, *more: str | Path) -> list[str]:
        return command_of(self._build, self.target, artifacts, *more, seed=seed, length_max=self.target.length_max)

    def _count(self, totals: Totals, cpu_s: float) -> None:
        result = self.result
        with self._mutex:
            result.modules, result.counters = totals.modules, totals.counters
            result.executions += totals.executions
            result.coverage = max(result.coverage, totals.coverage)
            result.features = max(result.features, totals.features)
            result.cpu_seconds += cpu_s
            result.start_executions += totals.seeds
            result.start_cpu_seconds += totals.start_cpu_seconds
            self._new_at = max(self._new_at, totals.new_at)
            for name in ("mutator_calls", "structured", "crossed", "judged", "judged_twice"):
                number = getattr(totals, name)
                if number is not None:
                    setattr(result, name, (getattr(result, name) or 0) + number)

    def _judge(self, ended: Ended, totals: Totals, name: str, log: Path, *, is_late: bool) -> bool:
        """Record what one process found. Returns whether an input ended it, so that another one must continue."""
        self._take(self._work / f"finds-{name}")
        if ended.data is not None:
            self._take_end(ended)
            return not self._stop_at_first
        if self._stopping or self._is_enough:
            return False
        if is_late and ended.code == -signal.SIGKILL:
            # kfuzz has killed it, because it did not end by itself.
            if not totals.executions:
                raise UsageError(f"the fuzzer of {self.target.name} had run no input when its time was over; see {log}")
            self._say(
                f"{self.target.name}: the fuzzer did not end when its time was over; see {log}"
                if totals.seeds
                else f"{self.target.name}: the time was over after {totals.executions:,} inputs of the corpus, before "
                "all had run once; give it more --seconds, or fewer inputs"
            )
            return False
        if ended.code:
            why = ending(ended.lines, ended.code)
            raise UsageError(f"the fuzzer of {self.target.name} ended without a result: {why}; its output is in {log}")
        if self._build.native and not totals.counters:
            raise UsageError(
                f"libFuzzer watches no compiled code; delete {self._build.directory} and run this again ({log})"
            )
        return False

    def _take(self, folder: Path, *, is_again: bool = False) -> None:
        """Add the finds of a recorder."""
        with self._mutex:
            for find, named in taken(folder, lambda: self._known):
                self._causes.add(find, named, is_again=is_again)

    def _take_end(self, ended: Ended) -> bool:
        """Add an input that ended its process, if it also ends a fresh one. It must not stay in the corpus.

        Returns whether it does.
        """
        assert ended.data is not None
        if self._stopping or self._stop_at_first:
            find: Find | None = of_end(ended.kind, ended.lines, ended.code, ended.data, self.target.package)
        else:
            find = run_alone(self._build, self.target, ended.data, self._folder_for("alone"), kind=ended.kind)
        digest = hashlib.sha1(ended.data).hexdigest()
        with self._mutex:
            self.result.restarts += 1
            if find is None:
                self.result.unconfirmed += 1
                self._say(f"{self.target.name}: {ended.kind} that does not come again, for input {digest}")
                return False
            self._causes.add(find, [self._known[digest]] if digest in self._known else [])
            self._set_aside([digest])
        return True

    def _found_so_far(self) -> list[Cause]:
        with self._mutex:
            return self._causes.found()

    @cached_property
    def _known(self) -> dict[str, str]:
        """The names of vectors and seeds by their SHA-1. If the suite cannot be read, ``seeds`` has already said so."""
        try:
            return by_digest(inputs(self.target))
        except UsageError:
            return {}

    def _folder_for(self, what: str) -> Path:
        folder = self._work / f"{what}-{next(self._numbers)}"
        folder.mkdir()
        return folder

    def _set_aside(self, digests: Sequence[str]) -> None:
        """Move inputs out of the corpus, because they break the target."""
        aside = self._folder / "aside"
        for digest in digests:
            with contextlib.suppress(FileNotFoundError):
                aside.mkdir(exist_ok=True)
                # The folder of --corpus may be on another disk.
                shutil.move(self._corpus / digest, aside / digest)
                self.result.set_aside += 1

    # ---------------------------------------------------------------------------------------------- all jobs

    def look_at_truth(self) -> None:
        """End the jobs if the first find is enough, and the testee has found it."""
        if self._stop_at_first and self._truth and self._truth.differences:
            with self._mutex:
                self._is_enough = True
                for fuzzer in self._running.values():
                    fuzzer.stop()

    def _learn_truth(self) -> None:
        """Add what the testee reads otherwise."""
        if self._truth is None:
            return
        late_s = max(TRUTH_LATE_S, time.monotonic() - self._began_at)
        found = self._truth.finish(late_s)
        if found is None:
            return
        self.result.compared, self.result.truth_late = found.inputs, self._truth.is_late
        self.result.truth_restarts, self.result.truth_unconfirmed = found.restarts, found.unconfirmed
        said = f"{self.target.name}: {self._truth.label}"
        if self._truth.is_late:
            self._say(f"{said} had not answered everything after {late_s:.0f} s more; the other inputs are left out")
        if found.unconfirmed:
            self._say(
                f"{said} was started again {found.restarts:,} times, {found.unconfirmed:,} of them for no one input"
            )
        for cause in found.causes:
            item, data = cause.smallest, self._truth.input_of(cause.smallest)
            own = Deviation(
                self._truth.label,
                harm_of(item),
                error=self._truth.described(item),
                role=item.role,
                size_bytes=len(data),
                data=data,
            )
            self._causes.add_cause(Cause(cause.key, (own,), cause.count - 1))

    def _merge(self) -> None:
        """Replace the corpus by the smallest inputs that reach as much. Inputs that break the target are set aside."""
        if self.result.corpus_after == self.result.corpus_before:
            return
        self._state = "merging"
        smaller, ends, failed = self._folder_for("smaller"), self._folder_for("artifacts"), self._work / "finds-merge"
        control = f"-merge_control_file={self._work / 'merge'}"
        command = self._libfuzzer(ends, self.result.seed, control, "-merge=1", smaller, self._corpus)
        with log_at(self._folder / "merge.txt") as log:
            began = time.monotonic()
            limit_s = max(MERGE_S, began - self._began_at)
            totals, ended = self._follow(-1, command, log, limit_s, {FINDS: str(failed)})
        self.result.merge_cpu_seconds = ended.cpu_seconds + cpu_seconds(failed)
        if self._stopping:
            return
        # Some inputs meet the full oracle only here. Those that end its process are not in libFuzzer's new corpus.
        self._take(failed, is_again=True)
        kinds = {digest: kind for kind, _, digest in (file.name.partition("-") for file in ends.iterdir())}
        for file in (self._corpus / name for name in totals.dropped):
            if file.is_file():
                end = replace(ended, kind=kinds.get(file.name, "crash"), data=file.read_bytes())
                if not self._take_end(end):
                    shutil.copy(file, smaller)
        if ended.code:
            why = ended.lines[-1] if ended.lines else ""
            if time.monotonic() - began > limit_s:
                why = f"that takes longer than {limit_s:.0f} s"
            self._say(f"{self.target.name}: the corpus was not merged ({why})")
            return
        broken = failing(failed)
        self._set_aside(sorted(broken))
        kept = {entry.name for entry in os.scandir(smaller)} - broken.keys()
        for entry in list(os.scandir(self._corpus)):
            if entry.name not in kept and entry.is_file():
                os.unlink(entry.path)
        for name in kept:
            # An input that is too long was cut, so it has another name.
            shutil.move(smaller / name, self._corpus / name)
        self.result.corpus_merged = count_files(self._corpus)

    def _shrink(self) -> None:
        """Make the smallest input of each new cause smaller."""
        if not self._stopping:
            self._state = "shrinking"
            shrink_causes(self._build, self.target, self._causes)

    def row(self) -> Row:
        """How far this target is."""
        with self._mutex:
            now = time.monotonic()
            running = [fuzzer.totals for job, fuzzer in self._running.items() if job >= 0]
            folders = self._work.glob("finds-*/*.json") if self.began and self._state == "running" else ()
            self._found.update(file.stem for file in folders)
            seconds = (self._ended_at or now) - self._began_at if self.began else 0.0
            self._corpus_size = max([0, *(totals.corpus for totals in running)]) or self._corpus_size
            differences = self._truth.differences if self._truth else 0
            executions = self.result.executions + sum(totals.executions for totals in running)
            return Row(
                self.target.name,
                self._state,
                seconds,
                executions,
                round(executions / seconds) if seconds else 0,
                max([self.result.coverage, *(totals.coverage for totals in running)]),
                self._corpus_size,
                len(self._found) + self.result.restarts - self.result.unconfirmed + differences,
                now - max([self._new_at, *(totals.new_at for totals in running)]) if self.began else 0.0,
            )

    def stop(self, *, at_once: bool = False) -> None:
        """End the running processes early: they finish their input, or are killed ``at_once``."""
        with self._mutex:
            self._stopping = True
            self.result.interrupted = self._state != "done"
            if self._truth:
                self._truth.stop()
            for fuzzer in self._running.values():
                if at_once:
                    fuzzer.kill()
                else:
                    fuzzer.stop()

    def finish(self) -> Result:
        """Write and return the result."""
        result = self.result
        result.seconds = (self._ended_at or time.monotonic()) - self._began_at
        result.causes = self._causes.write()
        write_whole(self._folder / "result.json", json.dumps(result.to_json(), indent=2, sort_keys=True) + "\n")
        return result

    def clean(self) -> None:
        """Remove what only the running campaign needs."""
        shutil.rmtree(self._work, ignore_errors=True)


def count_files(directory: Path) -> int:
    return sum(1 for entry in os.scandir(directory) if entry.is_file())
