"""Inputs on their way from fuzzing processes to another reader: a named pipe that holds whole inputs.

A wrong value often reaches no new code, so libFuzzer keeps no input that shows it. That is why the other reader also
gets a sample of all inputs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
from pathlib import Path
from typing import Final

# Settings of the fuzzing process in its environment: where the pipe is, and whether to wait if it is full. Without
# that, an input that does not fit is left out, so that a slow reader does not slow down the fuzzer.
SAMPLES: Final = "KFUZZ_SAMPLES"
SAMPLES_WAIT: Final = "KFUZZ_SAMPLES_WAIT"
SIZE: Final = struct.Struct("<H")
# Linux writes up to this many bytes whole, so that several processes can share the pipe. A longer input is left out.
WHOLE_BYTES: Final = select.PIPE_BUF
# After ten seconds in one input, libFuzzer calls that a hang of the target.
WAIT_S: Final = 5.0
# Enough for what a fuzzer makes while the reader waits for answers.
PIPE_BYTES: Final = 256 * 1024


class Samples:
    """The reading end. It makes the pipe ``path``, which must be new. Close it when no process writes any more."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Open for writing too: then it does not end while no fuzzing process runs.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._rest = b""

    def take(self, wait_s: float) -> list[bytes]:
        """The inputs that have come, in their order. Waits up to ``wait_s`` seconds for the first one."""
        if not select.select([self._pipe], [], [], wait_s)[0]:
            return []
        data = self._rest + os.read(self._pipe, PIPE_BYTES)
        found, at = [], 0
        while len(data) - at >= SIZE.size:
            [size] = SIZE.unpack_from(data, at)
            end = at + SIZE.size + size
            if end > len(data):
                break
            found.append(data[at + SIZE.size : end])
            at = end
        self._rest = data[at:]
        return found

    def close(self) -> None:
        """Let writers continue without a reader."""
        os.close(self._pipe)


class Sampler:
    """The writing end, as a function that takes one input."""

    def __init__(self, path: str, *, waits: bool) -> None:
        """``waits``: wait for room instead of leaving an input out, until the reader takes too long once. Without a
        reader, all inputs are left out.
        """
        self._waits = waits
        try:
            # Without O_NONBLOCK this would wait for a reader, which may have failed.
            self._pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            self._pipe = -1

    def __call__(self, data: bytes) -> None:
        if self._pipe < 0 or SIZE.size + len(data) > WHOLE_BYTES:
            return
        if self._waits:
            self._waits = bool(select.select([], [self._pipe], [], WAIT_S)[1])
        try:
            os.write(self._pipe, SIZE.pack(len(data)) + data)
        except BlockingIOError:
            # Another writer may have taken the room.
            if self._waits:
                self(data)
        except BrokenPipeError:
            # The reader failed, and the campaign says so at its end.
            os.close(self._pipe)
            self._pipe = -1
