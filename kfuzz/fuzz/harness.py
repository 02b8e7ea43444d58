"""The process that atheris fuzzes in: ``python -m kfuzz.fuzz.harness EXECUTABLE [libFuzzer's arguments]``.

``campaign.run`` starts an executable that :mod:`kfuzz.fuzz.building` has written. The executable starts this module
with the right environment.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import atheris

from kfuzz.fuzz.instrumented import kept_in
from kfuzz.fuzz.recorder import (
    CHILD_TIMEOUT_S,
    FINDS,
    MODULES,
    PEER,
    STACK_AFTER,
    TRY,
    Find,
    Recorder,
    answer,
    found_by,
)
from kfuzz.fuzz.sample_pipe import SAMPLES, SAMPLES_WAIT, Sampler

if TYPE_CHECKING:
    from kfuzz.fuzz.forked import Ahead
    from kfuzz.fuzz.targets import Target

# Inputs are small, and what they may decompress to is limited.
ALLOCATION_BYTES_MAX: Final = 16 << 20
# A child has limits of its own. Waiting for one must not end this process, nor memory that a peer's codec claims but
# never touches.
OF_PEERS: Final = (
    f"-timeout={2 * CHILD_TIMEOUT_S}",
    f"-report_slow_units={2 * CHILD_TIMEOUT_S}",
    f"-malloc_limit_mb={1 << 20}",
)
# These read nothing of an input, and each module costs the start some hundredths of a second.
UNINSTRUMENTED: Final = (
    *("kfuzz.findings", "kfuzz.kafka", "kfuzz.mutate", "kfuzz.units", "kfuzz.vectors"),
    *("kfuzz.messages.catalogues", "kfuzz.messages.language", "kfuzz.messages.model", "kfuzz.messages.schemas"),
)
MESSAGES: Final = "messages"
OF_RECORDS: Final = ("record-batch", "compressed-batch", "columns", "broker", "log-tools", "compression", "canary")
# The targets of records do not read the first ones, and the target of messages leaves the others to them. Its oracle,
# kfuzz.fuzz.messages, compares what the counted code has read: counting that, too, took a quarter of the start.
BESIDE_RECORDS: Final = (
    *("kfuzz.annotate", "kfuzz.logs", "kfuzz.messages"),
    *("kfuzz.fuzz.logins", "kfuzz.fuzz.messages", "kfuzz.fuzz.wholes"),
)
BESIDE_MESSAGES: Final = (
    *("kfuzz.annotate.listing", "kfuzz.annotate.records", "kfuzz.control", "kfuzz.logs", "kfuzz.records"),
    *("kfuzz.fuzz.logins", "kfuzz.fuzz.messages", "kfuzz.fuzz.targets", "kfuzz.fuzz.wholes"),
)
# An input runs so many times, because bytes that compiled code reads beyond its memory differ each time.
TIMES: Final = 4


def main(arguments: Sequence[str]) -> None:
    """Fuzz the target with the name of the executable ``arguments[0]``. libFuzzer gets the other arguments."""
    # Child processes, for example a symbolizer, must not load the fuzzer. For a merge the executable sets it again.
    os.environ.pop("LD_PRELOAD", None)
    testee = os.environ.get(PEER)
    answers = 0
    if os.environ.get(TRY):
        # The peer may print to standard output. Its text goes to standard error, so that only answers are read here.
        answers = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with kept_in(Path(os.environ[MODULES])):
        target = _peer(testee) if testee else _target(Path(arguments[0]).name)
    from kfuzz.fuzz import hook
    from kfuzz.fuzz.tiers import Tiers, refuse_allocations_above

    hook.prepare(ctypes.CDLL(None), target)
    refuse_allocations_above(ALLOCATION_BYTES_MAX)
    if answers:
        faulthandler.enable()
        with os.fdopen(answers, "w") as out:
            answer(_finder(target, testee), sys.stdin.buffer, lambda line: print(line, file=out, flush=True))
        return
    recorder = Recorder(Path(folder)) if (folder := os.environ.get(FINDS)) else None
    sampler = Sampler(pipe, waits=SAMPLES_WAIT in os.environ) if (pipe := os.environ.get(SAMPLES)) else None
    run = target.tiers(all_twice=is_replay(arguments[1:]), report=recorder, sample=sampler)
    if testee and recorder:
        run = _after(_ahead(testee, recorder.folder), run, recorder)
    if timeout_s := os.environ.get(STACK_AFTER):
        # For a crash that the campaign runs again alone: where it was in Python.
        faulthandler.enable()
        faulthandler.dump_traceback_later(float(timeout_s))
    atheris.Setup([*arguments, *(OF_PEERS if testee else ())], run)
    stop_timer_at_exit()
    if isinstance(run, Tiers):
        run.tell_at_exit()
    atheris.Fuzz()


def _target(name: str) -> Target:
    """One of kfuzz's own targets. Branches of Python code count as coverage too."""
    beside = BESIDE_RECORDS if name in OF_RECORDS else BESIDE_MESSAGES if name == MESSAGES else ()
    with atheris.instrument_imports(include=["kfuzz"], exclude=modules_in(UNINSTRUMENTED + beside)):
        # The modules that the harness takes from here later must be instrumented, too.
        from kfuzz.fuzz import hook, targets  # noqa: F401
    return targets.find(name)


def modules_in(packages: Sequence[str]) -> list[str]:
    """These modules, and those in these packages: atheris excludes only whole names."""
    root = Path(__file__).parents[2]
    files = [path.relative_to(root).with_suffix("") for path in root.glob("kfuzz/**/*.py")]
    names = {".".join(file.parts).removesuffix(".__init__") for file in files}
    return sorted(name for name in names if f"{name}.".startswith(tuple(f"{one}." for one in packages)))


def _peer(folder: str) -> Target:
    """A peer as a target. Only its own branches count as coverage."""
    from kfuzz.fuzz.peers import in_folder, reader

    peer = in_folder(Path(folder))
    with atheris.instrument_imports(include=[peer.package]):
        reader(peer.folder, peer.package)
    return peer.target


def _ahead(testee: str, folder: Path | None = None) -> Ahead:
    from kfuzz.fuzz.forked import Ahead
    from kfuzz.fuzz.peers import in_folder

    peer = in_folder(Path(testee))
    return Ahead(peer.target.run, peer.package, folder, times=TIMES if peer.compiled else 1)


def _finder(target: Target, testee: str | None) -> Callable[[bytes], Find | None]:
    """A function that says what an input breaks. For a peer, this also holds if the input ends the process."""
    run = target.tiers(all_twice=True)
    if testee is None:
        return partial(found_by, run)
    ahead = _ahead(testee)

    def find_in(data: bytes) -> Find | None:
        find, goes_on = ahead(data)
        return found_by(run, data) if goes_on else find

    return find_in


def _after(ahead: Ahead, run: Callable[[bytes], None], recorder: Recorder) -> Callable[[bytes], None]:
    """``run`` for inputs that end no child and are not slow. The others do not reach this process."""

    def one(data: bytes) -> None:
        find, goes_on = ahead(data)
        if goes_on:
            run(data)
        elif find is not None:
            recorder.add(find)

    return one


def is_replay(arguments: Sequence[str]) -> bool:
    """Whether the process runs given inputs, merges a corpus or shrinks a crash. Then the full oracle judges all."""
    return any(
        argument.startswith(("-merge", "-minimize_crash")) or (argument[:1] != "-" and Path(argument).is_file())
        for argument in arguments
    )


def stop_timer_at_exit() -> None:
    """Stop atheris's timer before the interpreter ends.

    The timer runs until the process is gone, and the interpreter takes back the handler of SIGALRM when it ends.
    A tick after that kills the process, and libFuzzer writes the input of a crash only then.
    """
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
