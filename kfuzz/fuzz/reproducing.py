"""Run given inputs of a target once, without fuzzing: one that broke it, or all that are known."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes
from kfuzz.fuzz import targets as table
from kfuzz.fuzz.building import Build, NoNativeCoverage, Sanitizer, build
from kfuzz.fuzz.causes import Causes, document_of, ending, of_end
from kfuzz.fuzz.libfuzzer import INPUT_TIMEOUT_S, Ended, Fuzzer, command_of, log_at
from kfuzz.fuzz.other_reader import Truth, asked_once
from kfuzz.fuzz.peer_building import build_peer
from kfuzz.fuzz.peers import Peer
from kfuzz.fuzz.recorder import CHILD_TIMEOUT_S, FINDS, STACK_AFTER, Find, found_by, taken
from kfuzz.fuzz.seeding import by_digest, inputs, read_hex
from kfuzz.fuzz.targets import Target
from kfuzz.fuzz.trial import CannotTry, Trier

# A replay has inputs of any size, and a sanitizer makes many of them slow.
REPLAY_TIMEOUT_S = 300
REPLAY_S = 3600
WRONG_USE = 2


def read_input(path: str | Path) -> bytes:
    """The input in a file of raw bytes, or in a ``.hex`` file that has one."""
    path = Path(path)
    if path.suffix != ".hex":
        return read_bytes(path)
    found = read_hex(path)
    if len(found) != 1:
        raise UsageError(f"{path} holds {len(found)} inputs; give a file with one")
    return found[0]


def reproduce_peer(
    peer: Peer,
    path: str | Path,
    *,
    sanitizer: Sanitizer | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Find | None:
    """Run one input once through a peer's reader, in its instrumented build. Returns what it breaks, or None.

    ``path`` and ``sanitizer`` are those of :func:`reproduce` and of :func:`kfuzz.fuzz.campaign.run`.
    """
    data = read_input(path)
    with Trier(build_peer(peer, sanitizer, say=say), peer.target) as trier:
        try:
            return trier.run(data)
        except CannotTry as error:
            raise UsageError(f"the reader of {peer.label} does not start: {error}") from None


def reproduce(name: str, given: str | Path | bytes, *, sanitizer: Sanitizer = "none") -> Find | None:
    """Run one input once through a target, without fuzzing. Returns what it breaks, or None if there is nothing.

    ``given`` is the input, or a file of raw bytes, or a ``.hex`` file with one input. With a sanitizer, the input runs
    in the instrumented build.
    """
    target = table.find(name)
    data = given if isinstance(given, bytes) else read_input(given)
    if sanitizer == "none":
        return found_by(target.tiers(all_twice=True), data)
    try:
        made = build(sanitizer)
    except NoNativeCoverage as error:
        raise UsageError(f"--sanitize needs the instrumented build: {error}") from None
    with tempfile.TemporaryDirectory(prefix="kfuzz-fuzz-") as directory:
        return run_alone(made, target, data, Path(directory))


def compare(name: str, path: str | Path, testee: Testee) -> Find | None:
    """Ask a testee about one input of a target. Returns how it reads it otherwise. ``path`` is as for
    :func:`reproduce`.
    """
    target, data = table.find(name), read_input(path)
    if not Truth.knows(target):
        raise UsageError(f"no testee can be asked about an input of {name}; leave out --truth")
    found = asked_once(testee, target, data)
    return None if found is None else Find("promise", found.reason, "", "", data)


def breaks_now(target: Target, data: bytes, *, natively: bool) -> bool:
    """Whether an input breaks a target of kfuzz as it is now, in a process of its own: the input may end it.

    ``natively``: if it does not, it also runs in the instrumented builds with a sanitizer. ``UsageError`` if these
    cannot be made.
    """
    with tempfile.TemporaryDirectory(prefix="kfuzz-once-") as directory:
        file = Path(directory) / "input"
        file.write_bytes(data)
        command = [sys.executable, "-P", "-m", "kfuzz", "fuzz", target.name, "--reproduce", str(file)]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=CHILD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return True
        if done.returncode == WRONG_USE:
            raise UsageError(done.stderr.decode(errors="replace").strip().removeprefix("kfuzz: "))
    return done.returncode != 0 or (
        natively and any(reproduce(target.name, data, sanitizer=one) for one in ("address", "undefined"))
    )


def run_alone(made: Build, target: Target, data: bytes, folder: Path, *, kind: str = "crash") -> Find | None:
    """Run one input in a fresh process of the instrumented build, in an existing ``folder``.

    Returns what it breaks, or None if it breaks nothing. ``kind`` is libFuzzer's word for how an earlier process ended.
    """
    file = folder / "input"
    file.write_bytes(data)
    command = command_of(made, target, folder, file)
    settings = {STACK_AFTER: str(INPUT_TIMEOUT_S - 2)}
    with log_at(folder / "log") as log:
        ended = Fuzzer(command, cwd=folder, log=log, seconds=INPUT_TIMEOUT_S, environment=settings).run()
    if ended.code == 0:
        return None
    return of_end(ended.kind or kind, ended.lines, ended.code, data, target.package)


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of running ``executions`` known inputs of a target once, and what they broke, by the file of the
    smallest input.
    """

    target: str
    sanitizer: Sanitizer
    executions: int
    causes: Mapping[Path, Cause] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The result as the JSON object in ``--json``."""
        causes = [document_of(file, cause, "kfuzz") for file, cause in self.causes.items()]
        return {**{one.name: getattr(self, one.name) for one in fields(self)}, "causes": causes}


def replay(
    names: Sequence[str],
    *,
    sanitizer: Sanitizer = "none",
    out: str | Path = "out/fuzz",
    say: Callable[[str], None] = lambda line: None,
) -> list[Replay]:
    """Run every known input of each target (:func:`kfuzz.fuzz.seeding.inputs`) once through the instrumented build.

    Nothing is mutated, and nothing that is found ends it. Raises ``UsageError`` if that build cannot be made.
    """
    chosen = [table.find(name) for name in dict.fromkeys(names)]
    try:
        made = build(sanitizer, say=say)
    except NoNativeCoverage as error:
        raise UsageError(f"a replay needs the instrumented build: {error}") from None
    return [replay_all(made, target, inputs(target), Path(out).resolve() / target.name) for target in chosen]


def replay_all(made: Build, target: Target, known: Sequence[tuple[str, bytes]], directory: Path) -> Replay:
    """Run these inputs, each with its name, once through a target, and write what they break to ``directory``."""
    names = by_digest(known)
    causes = Causes(directory, target)
    with tempfile.TemporaryDirectory(prefix="kfuzz-replay-") as name:
        folder = Path(name)
        # In order, because an input that ends the process is the last one that it began.
        files = [folder / str(i) for i in range(len(known))]
        for file, (_, data) in zip(files, known, strict=True):
            file.write_bytes(data)
        done = rounds = 0
        while done < len(known):
            recorded = folder / f"finds-{rounds}"
            fuzzer, ended = _run_all(made, target, files[done:], folder, recorded)
            started = fuzzer.totals.started
            if not started or (ended.code == 0 and started != len(known) - done):
                why = ending(ended.lines, ended.code)
                raise UsageError(f"the replay of {target.name} ended before its first input: {why}")
            for find, named in taken(recorded, lambda: names):
                causes.add(find, named)
            done += started
            rounds += 1
            if ended.code:
                name, data = known[done - 1]
                causes.add(of_end(ended.kind, ended.lines, ended.code, data), [name])
    return Replay(target.name, made.sanitizer, len(known), causes.write())


def _run_all(made: Build, target: Target, files: Sequence[Path], folder: Path, recorded: Path) -> tuple[Fuzzer, Ended]:
    command = command_of(made, target, folder, *files, timeout_s=REPLAY_TIMEOUT_S)
    with log_at(folder / "log") as log:
        fuzzer = Fuzzer(command, cwd=folder, log=log, seconds=REPLAY_S, environment={FINDS: str(recorded)})
        return fuzzer, fuzzer.run()
