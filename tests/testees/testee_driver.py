"""Starts the testees of testees/ as their testee.toml says and speaks the protocol with them; for tests only."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import require_tool

TESTEES = Path(__file__).resolve().parents[2] / "testees"
LARGEST_LEAD = 64
"""How many requests may be on their way: the protocol's bound."""


def _argv(argv: Iterable[str], folder: Path) -> list[str]:
    return [part.replace("{python}", sys.executable).replace("{folder}", str(folder)) for part in argv]


def _sources(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and "target" not in path.relative_to(folder).parts)


def _build(folder: Path, version: dict[str, Any]) -> None:
    """Build this version unless its product is newer than every source."""
    product = folder / version["product"]
    if product.exists() and product.stat().st_mtime >= max(path.stat().st_mtime for path in _sources(folder)):
        return
    done = subprocess.run(_argv(version["build"], folder), cwd=folder, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, f"building {folder.name} {version['version']} failed:\n{done.stdout}{done.stderr}"
    product.touch()


class Testee:
    """A running testee: its handshake, and answers to requests."""

    __test__ = False

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin
        assert process.stdout
        self._process = process
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
def started(argv: list[str], folder: Path) -> Iterator[Testee]:
    """The testee that ``argv`` starts in the folder; at the end its input is closed, and it must leave with 0."""
    with subprocess.Popen(argv, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Testee(process)
        except BaseException:
            process.kill()
            raise
        assert process.stdin
        process.stdin.close()
        assert process.wait(timeout=20) == 0, "a testee leaves with 0 when its input ends"


@contextmanager
def running(name: str, version: str | None = None) -> Iterator[Testee]:
    """The testee ``name`` of the given version (the first one, where None), built if need be.

    Skips the test where a program that it needs is missing; fails with CI=true.
    """
    folder = TESTEES / name
    description = tomllib.loads((folder / "testee.toml").read_text())
    for program in description.get("requires", []):
        require_tool(program, f"the testee {name} needs it")
    chosen = next(v for v in description["versions"] if version in (None, v.get("version")))
    if "build" in chosen:
        _build(folder, chosen)
    with started(_argv(chosen["run"], folder), folder) as testee:
        yield testee
