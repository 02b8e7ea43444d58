"""Makes the smallest input of a fault smaller, and finds the fields that kill in it. A process of its own tries the
inputs, because they may end it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from kfuzz.annotate.killing import KillingField
from kfuzz.conformance.judge.harm import HANGS, KILLS, MEMORY
from kfuzz.fuzz.bodies import killing_fields_of
from kfuzz.fuzz.building import Build
from kfuzz.fuzz.faults import Fault, Faults, of_end
from kfuzz.fuzz.recorder import TRY, Find
from kfuzz.fuzz.running import INPUT_TIMEOUT_S, kill_group
from kfuzz.fuzz.targets import Target
from kfuzz.mutate.shrinking import shrink

__all__ = ["killing_fields_again", "shrink_faults"]

# What one fault may cost. An input that ends the process costs its start, one that hangs costs the time limit.
TRIES_MAX: Final = 4000
ENDS_MAX: Final = 60
HANGS_MAX: Final = 6
START_S: Final = 60
READY: Final = b"ready\n"
WALK_BREAKS: Final = frozenset({KILLS.name, HANGS.name, MEMORY.name})


class _CannotTry(Exception):
    """The process that tries inputs does not start."""


class _Trier:
    """A process that runs inputs through a target, one after the other. It is started again after each that ends it."""

    def __init__(self, made: Build, target: Target) -> None:
        self._command = [str(made.executable(target))]
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="kfuzz-shrink-")
        self._errors = Path(self._folder.name) / "errors"

    def __enter__(self) -> _Trier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._end()
        self._folder.cleanup()

    def run(self, data: bytes) -> Find | None:
        """What the input breaks; None if it breaks nothing."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(data.hex().encode() + b"\n")
            process.stdin.flush()
            answer = self._line(process, INPUT_TIMEOUT_S)
        except BrokenPipeError:
            answer = b""
        if answer:
            fields = json.loads(answer)
            return Find(**fields, data=data) if fields else None
        is_hanging = answer is None
        code = self._end()
        lines = self._errors.read_text(errors="replace").splitlines()
        return of_end("timeout" if is_hanging else "crash", lines, code, data)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder.name,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, TRY: "1"},
            )
        if self._line(self._process, START_S) != READY:
            self._end()
            raise _CannotTry
        return self._process

    def _line(self, process: subprocess.Popen[bytes], timeout_s: float) -> bytes | None:
        """The next line; empty if the process has ended, None if there was none in time."""
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], timeout_s)[0]:
            return None
        return process.stdout.readline()

    def _end(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        kill_group(process.pid)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                # The process has ended and reads no more input.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        return process.wait()


def shrink_faults(made: Build, target: Target, faults: Faults) -> None:
    """Make the smallest input of each new fault smaller, and replace it in ``faults``.

    What counts as the same is the class of harm and the place in the code.
    """
    with _Trier(made, target) as trier:
        for fault in faults.new():
            smaller = _smaller(trier, faults, fault)
            if smaller is not None:
                faults.replace(fault.id, smaller)
            faults.set_killing(fault.id, _killing(trier, target, faults, fault, faults.smallest(fault.id)))


def killing_fields_again(made: Build, target: Target, faults: Faults, fault: Fault) -> tuple[KillingField, ...]:
    """The fields that kill in the input of a fault of an earlier campaign; empty if there are none, or if the input
    does not break the target in the same way any more.
    """
    with _Trier(made, target) as trier:
        return _killing(trier, target, faults, fault, fault.data)


class _Asking:
    """Asks whether inputs break the target like ``fault``, as long as that does not cost too much."""

    def __init__(self, trier: _Trier, faults: Faults, fault: Fault) -> None:
        self._trier = trier
        self._faults = faults
        self._id = fault.id
        self._tries = self._ends = self._hangs = 0

    @property
    def is_over(self) -> bool:
        """Whether it has cost too much."""
        return self._tries >= TRIES_MAX or self._ends >= ENDS_MAX or self._hangs >= HANGS_MAX

    def find_of(self, data: bytes) -> Find | None:
        """What the input breaks, if that is the same fault."""
        find = self._trier.run(data)
        self._tries += 1
        self._ends += find is not None and find.kind == "crash"
        self._hangs += find is not None and find.kind == "timeout"
        return find if find is not None and self._faults.id_of(find) == self._id else None


def _smaller(trier: _Trier, faults: Faults, fault: Fault) -> Find | None:
    """Look for a smaller input of ``fault``. Returns what it breaks, or None if there is none."""
    best: dict[bytes, Find] = {}
    asking = _Asking(trier, faults, fault)

    def find_first(candidates: Sequence[bytes]) -> int | None:
        for i, data in enumerate(candidates):
            if (find := asking.find_of(data)) is not None:
                best[data] = find
                return i
            if asking.is_over:
                break
        return None

    try:
        # The place may be another one here, without libFuzzer.
        if asking.find_of(fault.data) is None:
            return None
        return best.get(shrink(fault.data, find_first))
    except _CannotTry:
        return None


def _killing(trier: _Trier, target: Target, faults: Faults, fault: Fault, data: bytes) -> tuple[KillingField, ...]:
    """The fields that kill in ``data``, an input of ``fault``; empty if there are none, or if it costs too much."""
    # This process walks through the message too. If the walk itself does not end, neither would this.
    if target.flat_schema_of is not None and fault.harm in WALK_BREAKS:
        return ()
    asking = _Asking(trier, faults, fault)

    def breaks(changed: bytes) -> bool:
        # What was not asked counts as no change.
        return asking.is_over or asking.find_of(changed) is not None

    try:
        return killing_fields_of(target, data, breaks)
    except _CannotTry:
        return ()
    except Exception:
        # What takes the input apart may be what the input breaks. The campaign goes on without the fields.
        return ()
