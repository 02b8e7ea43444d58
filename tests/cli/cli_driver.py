"""Runs the command line as a user does, in this process or in one of its own; for tests only."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from programs import run_program

from kfuzz.cli.main import cli, main

# Runs a verb where files may have 8,000 bytes: a write beyond that fails as on a full disk.
FULL_DISK = (
    "import resource, sys; from kfuzz.cli.main import main\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))\n"
    "main(sys.argv[1:])"
)


def kfuzz(*words: str | Path, stdin: bytes = b"", code: int | None = None) -> subprocess.CompletedProcess[str]:
    """The outcome of ``kfuzz WORDS…``, called in this process with standard streams of its own.

    It must have the exit code ``code``, if one is given. A start of Python and its imports cost more than most verbs:
    where no process is the point, this is the one to call.
    """
    argv = [str(word) for word in words]
    out, told = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", told)
        with pytest.raises(SystemExit) as left:
            main(argv)
    for stream in (out, told):
        stream.flush()
    written, said = (stream.buffer.getvalue().decode() for stream in (out, told))
    done = subprocess.CompletedProcess(argv, left.value.code or 0, written, said)
    assert code in (None, done.returncode), written + said
    return done


def refused(*words: str | Path, stdin: bytes = b"") -> str:
    """The one sentence with which ``kfuzz WORDS…`` ends because of wrong use."""
    done = kfuzz(*words, stdin=stdin, code=2)
    assert (done.stdout, done.stderr.splitlines(keepends=True)) == ("", [done.stderr])
    assert done.stderr.startswith("kfuzz: ")
    assert done.stderr.endswith("\n")
    assert len(done.stderr) < 1000
    return done.stderr


def outcome(*words: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``kfuzz WORDS…``."""
    done = kfuzz(*words)
    return done.returncode, done.stdout, done.stderr


def commands(group: click.Group = cli, name: str = "kfuzz") -> Iterator[tuple[str, click.Command]]:
    """Each command and group below ``group``, with its words."""
    context = click.Context(group)
    for inner in group.list_commands(context):
        found = group.get_command(context, inner)
        assert found is not None
        yield f"{name} {inner}", found
        if isinstance(found, click.Group):
            yield from commands(found, f"{name} {inner}")


def kfuzz_process(*words: str | Path, stdin: bytes = b"", timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """The outcome of ``kfuzz WORDS…`` in a process of its own; no traceback ever leaves it."""
    done = subprocess.run(
        [sys.executable, "-m", "kfuzz.cli.main", *map(str, words)], input=stdin, capture_output=True, timeout=timeout_s
    )
    out = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in out.stderr
    return out


def on_full_disk(*words: str | Path, cwd: Path) -> str:
    """The one sentence with which ``kfuzz WORDS…`` ends in ``cwd`` if the disk is full."""
    # -B: bytecode, too, would be cut.
    done = run_program(sys.executable, "-B", "-c", FULL_DISK, *words, cwd=cwd, code=2)
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def on_terminal(*words: str | Path, **variables: str) -> str:
    """The output of ``kfuzz WORDS…`` in a process with these variables and a terminal for all its streams."""
    here, there = pty.openpty()
    argv = [sys.executable, "-m", "kfuzz", *map(str, words)]
    with subprocess.Popen(argv, stdin=there, stdout=there, stderr=there, env=os.environ | variables) as run:
        os.close(there)
        out = b""
        with contextlib.suppress(OSError):
            while piece := os.read(here, 1 << 16):
                out += piece
        run.wait(60)
    os.close(here)
    return out.decode().replace("\r\n", "\n")
