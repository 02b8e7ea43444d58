"""Starts the testees of testees/ and speaks the protocol with them, line by line; for tests only."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import the_testee

TESTEES = Path(__file__).resolve().parents[2] / "testees"
LARGEST_LEAD = 64
"""How many requests may be on their way: the protocol's bound."""


class RunningTestee:
    """A testee that runs: its handshake, and answers to requests."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin
        assert process.stdout
        self._in = process.stdin
        self._out = process.stdout
        self.handshake = json.loads(self._out.readline())

    def send_line(self, line: str) -> None:
        self._in.write(line + "\n")
        self._in.flush()

    def read_answer(self) -> dict[str, Any]:
        line = self._out.readline()
        assert line.endswith("\n"), f"the testee ended in the middle of an answer: {line!r}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        self.send_line(json.dumps({"id": "t"} | request))
        answer = self.read_answer()
        assert answer["id"] == request.get("id", "t")
        return answer

    def decode(self, data: bytes) -> dict[str, Any]:
        return self.ask(operation="decode-records", role="consumer", hex=data.hex())

    def encode(self, *batches: dict[str, Any]) -> dict[str, Any]:
        return self.ask(operation="encode-records", batches=list(batches))


@contextmanager
def started(argv: Sequence[str], folder: Path | None) -> Iterator[RunningTestee]:
    """The testee that ``argv`` starts in the folder; at the end its input is closed, and it must leave with 0."""
    with subprocess.Popen(argv, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield RunningTestee(process)
        except BaseException:
            process.kill()
            raise
        assert process.stdin
        process.stdin.close()
        assert process.wait(timeout=20) == 0, "a testee leaves with 0 when its input ends"


@contextmanager
def running(name: str, version: str | None = None) -> Iterator[RunningTestee]:
    """The testee ``name`` of the given version (the first one, where None), built if need be.

    Skips the test where a program that it needs is missing; fails with CI=true.
    """
    testee = the_testee(f"{name}@{version}" if version else name)
    testee.make_ready()
    with started(testee.argv, testee.folder) as running_testee:
        yield running_testee
