"""Watches a broker on this machine: its memory and threads, and the errors in its log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from kfuzz.conformance.broker.real import TROUBLE
from kfuzz.errors import UsageError
from kfuzz.probe.reactions import Harm
from kfuzz.text import foreign_text

# More than this is a cause; what was needed before does not count again.
STEPS: Final[dict[Harm, int]] = {"memory": 128 << 20, "threads": 32}
# Only the end of more is read.
LOG_BYTES_MAX: Final = 1 << 20
LINE_BYTES_MAX: Final = 300
# Lines of level ERROR of Log4j, SLF4J, tracing and slog, and panics of Go and Rust.
ERROR: Final = re.compile(
    rb"^(?:.{0,100}[\s\[])?(?:ERROR|FATAL|level=ERROR)[\s\]:]|^panic: |^fatal error: |panicked at ", re.M
)
# The text of a request is longer than this only by chance, and an exception comes after it.
EVENT_BYTES_MAX: Final = 64 << 10
# Lines about the same thing differ in what is in brackets, from the first value on, in words with a digit, and in
# topic ids.
BRACKETS: Final = re.compile(r"\[[^][]*\]")
VALUES: Final = re.compile(r"[({'\"=]|[^ -~]")
WORD: Final = re.compile(r"[\w.-]+")
TOPIC_ID_CHARACTERS: Final = 22


class Seen(NamedTuple):
    """``about`` is the same for the same thing."""

    harm: Harm
    text: str
    about: str = ""


class Machine:
    """Watches a process, a log, or both. ``UsageError`` if one is not there, or belongs to somebody else."""

    def __init__(self, pid: int | None, log: Path | None) -> None:
        self._log = log
        if log is not None and not log.is_file():
            raise UsageError(f"{log} is not a file; name the one that the broker logs to")
        try:
            self._process = None if pid is None else psutil.Process(pid)
            self.first = self.last = self._need()
            self._at = log.stat().st_size if log is not None else 0
        except psutil.Error:
            raise UsageError(f"the process {pid} cannot be watched; name a broker of yours on this machine") from None
        self.most = dict(self.first)
        self._marks = dict(self.first)

    def _need(self) -> dict[Harm, int]:
        if self._process is None:
            return {}
        with self._process.oneshot():
            return {"memory": self._process.memory_info().rss, "threads": self._process.num_threads()}

    def look(self) -> list[Seen]:
        """Everything seen since the last look."""
        found = list({one.about: one for one in self._errors()}.values())
        try:
            self.last = self._need()
        except psutil.Error:
            # A broker that has ended is harm of its own.
            return found
        for harm, now in self.last.items():
            self.most[harm] = max(self.most[harm], now)
            if now - self._marks[harm] >= STEPS[harm]:
                found.append(Seen(harm, f"grew from {_amount(harm, self._marks[harm])} to {_amount(harm, now)}"))
                self._marks[harm] = now
        return found

    def _errors(self) -> list[Seen]:
        """The errors in whole lines that were added to the log."""
        if self._log is None:
            return []
        try:
            size = self._log.stat().st_size
            if size == self._at:
                return []
            with self._log.open("rb") as file:
                # A shorter file is a new one.
                file.seek(max(self._at if size > self._at else 0, size - LOG_BYTES_MAX))
                data = file.read(LOG_BYTES_MAX)
                end = data.rfind(b"\n") + 1
                self._at = file.tell() - len(data) + end
        except OSError:
            return []
        return [_seen(data[one.start() : end]) for one in ERROR.finditer(data, 0, end)]

    def __str__(self) -> str:
        return "; ".join(
            f"{harm} {_amount(harm, first)} at first, {_amount(harm, self.most[harm])} at most, "
            f"{_amount(harm, self.last[harm])} at last"
            for harm, first in self.first.items()
        )


def _seen(data: bytes) -> Seen:
    """A line of level ERROR with what follows it. The exception says most, if there is one."""
    line, after, *_ = [one.decode("utf-8", "replace") for one in (*data[:EVENT_BYTES_MAX].split(b"\n", 2), b"")]
    if trouble := TROUBLE.match(after):
        about = trouble[0]
    else:
        about = WORD.sub(_lasting, VALUES.split(BRACKETS.sub("[]", line[:LINE_BYTES_MAX]), 1)[0])
    return Seen("logged", *(foreign_text(one, bytes_max=LINE_BYTES_MAX) for one in (line, about)))


def _lasting(word: re.Match[str]) -> str:
    is_id = len(word[0]) == TOPIC_ID_CHARACTERS and "." not in word[0]
    return "…" if is_id or any(map(str.isdigit, word[0])) else word[0]


def _amount(harm: str, value: int) -> str:
    return f"{value >> 20} MiB" if harm == "memory" else str(value)
