"""Records what breaks a target, in the process that fuzzes it, so that the fuzzer continues.

A *find* is all that breaks a target in one way: the same kind of fault at the same line of code. The recorder keeps the
smallest input of each find in a folder, from which the campaign reads it and makes a deviation of it
(:mod:`kfuzz.fuzz.causes`). This module imports little, because its process starts often and counts every branch.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

from kfuzz.files import read_bytes, write_whole
from kfuzz.fuzz.oracle import OracleFailure, Undeclared
from kfuzz.text import foreign_text

# A broken promise; an exception that no promise allows; memory that the input does not justify; a process that ended;
# an input without an end.
Kind = Literal["promise", "exception", "memory", "crash", "timeout"]

# Settings of the fuzzing process in its environment: the folder in which finds are recorded (without it, the first one
# ends the process), after how many seconds the stack of a process that hangs is printed, whether to end after the
# first find, whether to run inputs from standard input without fuzzing, the folder of the testee if it is a peer, and
# the folder of instrumented modules.
FINDS: Final = "KFUZZ_FINDS"
STACK_AFTER: Final = "KFUZZ_STACK_AFTER_S"
STOP_AT_FIRST: Final = "KFUZZ_STOP_AT_FIRST"
TRY: Final = "KFUZZ_TRY"
PEER: Final = "KFUZZ_PEER"
MODULES: Final = "KFUZZ_MODULES"
# Wall time for an input that runs in a child first. The child's CPU time is limited, so this only ends one that waits.
CHILD_TIMEOUT_S: Final = 60
# Enough for the inputs of a corpus that fail. After that, only finds are recorded.
FAILING_MAX: Final = 20_000
# More finds than anybody reads. Later ones are not recorded.
FINDS_MAX: Final = 4096
COUNT: Final = struct.Struct("<q")
NAME_CHARACTERS: Final = 16
DETAILS_BYTES_MAX: Final = 64 * 1024
LINE_CHARACTERS: Final = 40 + 1 + NAME_CHARACTERS
# How many places of a stack tell faults apart: a small function has many callers.
FRAMES: Final = 3
CALLED_BY: Final = " < "
PACKAGE: Final = Path(__file__).resolve().parent.parent
# The words that a broken promise begins with, before what differs from input to input.
_WORDS: Final = re.compile(r"[A-Za-z_ -]*[A-Za-z_]")


@dataclass(frozen=True, slots=True)
class Find:
    """One way in which inputs break a target: ``data`` is the smallest input that does, ``count`` how many inputs did.

    ``summary`` is one line, ``at`` the place in the code (empty if it is not known), ``details`` a short stack.
    """

    kind: Kind
    summary: str
    at: str
    details: str
    data: bytes
    count: int = 1


class Recorder:
    """Takes each input that breaks the target, with its exception, and keeps one file per find in ``folder``.

    The counts are in mapped memory, so that they are right even if the process is killed.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        # The number and the smallest input's size of each find.
        self._known: dict[str, tuple[int, int]] = {}
        self._failing = 0
        self._list = os.open(folder / "failing", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        with (folder / "counts").open("w+b") as file:
            file.truncate(COUNT.size * FINDS_MAX)
            self._counts = mmap.mmap(file.fileno(), 0)

    def __call__(self, data: bytes, error: Exception) -> None:
        self._note(data, _kind(error), _place(error), lambda: of_error(error, data))

    def add(self, find: Find) -> None:
        """Record a find of one input that was made elsewhere."""
        self._note(find.data, find.kind, find.at, lambda: find)

    def _note(self, data: bytes, kind: Kind, at: str, make: Callable[[], Find]) -> None:
        """Count an input. ``make`` is called only if it is the smallest one so far, because a stack takes time."""
        name = hashlib.sha256(f"{kind}\0{at}".encode()).hexdigest()[:NAME_CHARACTERS]
        if self._failing < FAILING_MAX:
            self._failing += 1
            os.write(self._list, f"{hashlib.sha1(data).hexdigest()} {name}\n".encode())
        if name not in self._known and len(self._known) == FINDS_MAX:
            return
        number, size = self._known.setdefault(name, (len(self._known), sys.maxsize))
        [count] = COUNT.unpack_from(self._counts, COUNT.size * number)
        COUNT.pack_into(self._counts, COUNT.size * number, count + 1)
        if len(data) < size:
            self._known[name] = number, len(data)
            # The count is looked up by the number.
            fields = {**asdict(make()), "data": data.hex(), "count": number}
            write_whole(self.folder / f"{name}.json", json.dumps(fields))
        if os.environ.get(STOP_AT_FIRST):
            # libFuzzer then prints its totals and ends.
            os.kill(os.getpid(), signal.SIGUSR1)


def of_error(error: Exception, data: bytes) -> Find:
    """The find of one input that raised ``error``."""
    # The exception of a peer says everything; the one around it is ours.
    shown = error.__cause__ or error if isinstance(error, Undeclared) else error
    summary = foreign_text(traceback.format_exception_only(shown)[-1].strip())
    # A file's place on this machine says nothing.
    details = "".join(traceback.format_exception(shown)).replace(f"{PACKAGE.parent}{os.sep}", "")
    return Find(_kind(error), summary, _place(error), foreign_text(details, bytes_max=DETAILS_BYTES_MAX), data)


def _kind(error: Exception) -> Kind:
    if isinstance(error, OracleFailure):
        return "promise"
    cause = error.__cause__ if isinstance(error, Undeclared) else error
    return "memory" if isinstance(cause, MemoryError) else "exception"


def _place(error: Exception) -> str:
    """The innermost lines of kfuzz's code in the stack, or the innermost one of a peer's.

    For a broken promise, the first words of its text follow.
    """
    if isinstance(error, Undeclared):
        return foreign_text(error.at or type(error.__cause__).__name__)
    places = []
    for file, line in _frames(error.__traceback__):
        head, found, rest = file.replace(os.sep, "/").rpartition(f"{PACKAGE.name}/")
        if found and "site-packages" not in head:
            places.append(f"{found}{rest}:{line}")
    at = called(reversed(places))
    words = _WORDS.match(str(error)) if isinstance(error, OracleFailure) else None
    return f"{at} {words[0]}" if words else at or type(error).__name__


def called(places: Iterable[str], depth: int = FRAMES) -> str:
    """The innermost places of a stack, the innermost first. Which oracle has called says nothing."""
    oracles = f"{PACKAGE.name}/fuzz/"
    found = [place for at, place in enumerate(dict.fromkeys(places)) if not at or not place.startswith(oracles)]
    return CALLED_BY.join(found[:depth])


def _frames(stack: TracebackType | None) -> Iterator[tuple[str, int]]:
    while stack is not None:
        yield stack.tb_frame.f_code.co_filename, stack.tb_lineno
        stack = stack.tb_next


def guarded(run: Callable[[bytes], None], report: Callable[[bytes, Exception], None]) -> Callable[[bytes], None]:
    """``run``, with each exception given to ``report``."""

    def one(data: bytes) -> None:
        try:
            run(data)
        except Exception as error:
            report(data, error)

    return one


def answer(find_in: Callable[[bytes], Find | None], lines: Iterable[bytes], say: Callable[[str], None]) -> None:
    """Run inputs: each comes as a line of hex, and goes as a line of JSON that says what it breaks, or null.

    The first line is sent before the first input: the process is ready.
    """
    say("ready")
    for line in lines:
        found = find_in(bytes.fromhex(line.decode()))
        say(json.dumps(None if found is None else fields_of(found)))


def fields_of(find: Find) -> dict[str, str]:
    """The facts of a find about one input, without the input itself."""
    return {name: getattr(find, name) for name in ("kind", "summary", "at", "details")}


def found_by(run: Callable[[bytes], None], data: bytes) -> Find | None:
    """The fault that one input shows, if it does so by an exception."""
    try:
        run(data)
    except Exception as error:
        return of_error(error, data)
    return None


def failing(folder: Path) -> dict[str, str]:
    """The SHA-1 of inputs that broke the target, as libFuzzer names files, each with the name of its find."""
    listed = folder / "failing"
    if not listed.is_file():
        return {}
    lines = read_bytes(listed).decode().splitlines()
    # A process that was killed may have left a part of a line.
    return dict(line.split(" ", 1) for line in lines if len(line) == LINE_CHARACTERS)


def taken(folder: Path, names: Callable[[], Mapping[str, str]]) -> list[tuple[Find, list[str]]]:
    """The finds that a recorder left in ``folder``, each with the names of its inputs that are known.

    ``names`` returns the names by SHA-1. It is called only if something failed, because it reads all vectors.
    """
    named: dict[str, set[str]] = {}
    failed = failing(folder)
    known = names() if failed else {}
    for digest, name in failed.items():
        if digest in known:
            named.setdefault(name, set()).add(known[digest])
    files = sorted(folder.glob("*.json"))
    counts = read_bytes(folder / "counts") if files else b""
    found = []
    for file in files:
        fields = json.loads(read_bytes(file))
        [count] = COUNT.unpack_from(counts, COUNT.size * fields["count"])
        find = Find(**{**fields, "data": bytes.fromhex(fields["data"]), "count": count})
        found.append((find, sorted(named.get(file.stem, ()))))
    return found
