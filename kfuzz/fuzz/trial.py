"""A process that runs inputs through a target, one after the other, and says what each of them breaks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final

from kfuzz.fuzz.building import Build
from kfuzz.fuzz.causes import ending, of_end
from kfuzz.fuzz.libfuzzer import INPUT_TIMEOUT_S, kill_group
from kfuzz.fuzz.recorder import CHILD_TIMEOUT_S, TRY, Find
from kfuzz.fuzz.targets import Target

START_S: Final = 60
READY: Final = b"ready\n"


class CannotTry(Exception):
    """The process that tries inputs does not start. Its text says why."""


class Trier:
    """The process. It is started again after each input that ends it."""

    def __init__(self, made: Build, target: Target) -> None:
        self._command = [str(made.executable(target))]
        self._package = target.package
        # A peer's inputs run in a child first, which has a limit of its own.
        self._timeout_s = INPUT_TIMEOUT_S if target.package == "kfuzz" else 2 * CHILD_TIMEOUT_S
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="kfuzz-shrink-")
        self._errors = Path(self._folder.name) / "errors"

    def __enter__(self) -> Trier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._end()
        self._folder.cleanup()

    def run(self, data: bytes) -> Find | None:
        """The fault that the input shows; None if there is none."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(data.hex().encode() + b"\n")
            process.stdin.flush()
            answer = self._line(process, self._timeout_s)
        except BrokenPipeError:
            answer = b""
        if answer:
            fields = json.loads(answer)
            return Find(**fields, data=data) if fields else None
        is_hanging = answer is None
        code = self._end()
        return of_end("timeout" if is_hanging else "crash", self._printed(), code, data, self._package)

    def _printed(self) -> list[str]:
        return self._errors.read_text(errors="replace").splitlines()

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
        line = self._line(self._process, START_S)
        if line != READY:
            code = self._end()
            raise CannotTry(ending(self._printed(), code) if line == b"" else f"it was not ready within {START_S} s")
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
