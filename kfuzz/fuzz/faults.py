"""The faults of a target: its finds by their cause, in the referee's model, with the smallest input of each.

``FOLDER/causes/`` holds for each cause the input, a text beside it, and ``causes.json`` with all of them. A later
campaign in the same folder reads that file and continues to count.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from kfuzz.annotate.killing import KillingField
from kfuzz.conformance.judge.causes import Cause, Deviation, causes_of
from kfuzz.conformance.judge.harm import HANGS, KILLS, LOSES, MEMORY, PANICS, RANK
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, write_whole
from kfuzz.fuzz.recorder import DETAILS_BYTES_MAX, Find, Kind
from kfuzz.fuzz.targets import Target
from kfuzz.text import foreign_text

__all__ = ["CAUSES_FILE", "Fault", "Faults", "explain", "load", "of_end"]

HARM_OF: Final[Mapping[Kind, str]] = {
    "promise": LOSES.name,
    "exception": PANICS.name,
    "memory": MEMORY.name,
    "crash": KILLS.name,
    "timeout": HANGS.name,
}
# libFuzzer's words for inputs that end the process; all others are crashes.
KIND_OF: Final[Mapping[str, Kind]] = {"timeout": "timeout", "oom": "memory"}
DETAIL_LINES: Final = 12
CAUSES_FILE: Final = "causes.json"
ID: Final = re.compile("[0-9a-f]{8}")
UNCAUGHT: Final = "=== Uncaught Python exception: ==="
NATIVE_ERROR = re.compile(r"^(==\d+==\s*ERROR: (?!libFuzzer: fuzz target exited)|ALARM: |.*runtime error: )")
# The place of undefined behaviour, a frame of a sanitizer's stack with names and one without, and a frame of Python's
# own stack, each in the code of PACKAGE. The folder of a peer's testee may have the name of its package. The first
# place of the package's name is not left again, so that a long line takes no quadratic time.
FILE: Final = r"(?<!/testees/)(?P<file>PACKAGE/[^\s:\"]+)"
UNDEFINED: Final = rf"(?>\S*?{FILE}):(?P<line>\d+):\d+: runtime error: "
FRAME: Final = rf"\s+#\d+ 0x[0-9a-f]+ in (?P<function>\S++) (?>\S*?/{FILE})(?::(?P<line>\d+))?"
NAMELESS_FRAME: Final = r"\s+#\d+ 0x[0-9a-f]+ +\((?>\S*?/(?P<file>PACKAGE/[^\s+]+))\+(?P<line>0x[0-9a-f]+)\)"
PYTHON_FRAME: Final = rf'\s+File "(?>\S*?/{FILE})", line (?P<line>\d+) in (?P<function>.+)'
MANGLED = re.compile(r"__pyx_[a-z]+_(?P<rest>.+)")
LENGTH = re.compile(r"([1-9][0-9]?)(?=[A-Za-z_])")
# These files call the target; they are in every stack.
CALLERS = ("kfuzz/fuzz/harness.py", "kfuzz/fuzz/recorder.py")


@dataclass(frozen=True, slots=True)
class Fault:
    """One cause. ``id`` is the same in every run. ``harm`` is a class of :mod:`kfuzz.conformance.judge.harm`.

    ``summary``, ``at`` and ``details`` say what happened and where, ``count`` how many inputs it broke.
    ``input_hex`` is the smallest one, ``file`` holds it, and ``known`` names the vectors and seeds among the inputs.
    ``kills``: the fields without which the smallest input does not break the target in this way, the most telling one
    first; empty if they were not found. ``truth``: the testee that reads the inputs otherwise; empty if they break the
    target itself.
    """

    id: str
    harm: str
    summary: str
    at: str
    details: str
    count: int
    input_hex: str
    file: str = ""
    known: tuple[str, ...] = ()
    kills: tuple[KillingField, ...] = ()
    truth: str = ""

    @property
    def data(self) -> bytes:
        """The smallest input."""
        return bytes.fromhex(self.input_hex)

    def merged(self, other: Fault) -> Fault:
        """Both as one: the smaller input, the sum of the counts, all names."""
        smaller = min(self, other, key=lambda fault: (len(fault.input_hex), fault.input_hex))
        known = tuple(sorted({*self.known, *other.known}))
        kills = smaller.kills
        if self.input_hex == other.input_hex:
            kills = self.kills or other.kills
        return replace(smaller, count=self.count + other.count, known=known, kills=kills)


class Faults:
    """The faults of one target, in the folder of its campaigns."""

    def __init__(self, folder: Path, target: Target) -> None:
        self._folder = folder / "causes"
        self._target = target
        self._before = {fault.id: fault for fault in load(self._folder / CAUSES_FILE)}
        self._now: dict[str, Fault] = {}
        self._differences: set[str] = set()

    def add(self, find: Find, known: Iterable[str] = (), *, is_again: bool = False) -> None:
        """Count a find. ``known`` names the vectors and seeds among its inputs.

        ``is_again`` means that the inputs may have been counted; then only a new cause is.
        """
        fault = self._fault(find, tuple(known))
        earlier = self._now.get(fault.id)
        if earlier is not None and is_again:
            return
        self._now[fault.id] = fault if earlier is None else earlier.merged(fault)

    def id_of(self, find: Find) -> str:
        """The cause of a find."""
        return self._fault(find).id

    def _fault(self, find: Find, known: tuple[str, ...] = ()) -> Fault:
        [cause] = causes_of([self._deviation(find)])
        return Fault(
            cause.id, cause.harm, find.summary, find.at, find.details, find.count, find.data.hex(), known=known
        )

    def new(self) -> list[Fault]:
        """The faults of this campaign whose smallest input is smaller than that of earlier campaigns, the worst first.

        Faults that only another reader sees are not among them.
        """
        faults = sorted(self._now.values(), key=_by_harm)
        return [
            fault
            for fault in faults
            if fault.id not in self._differences
            and (fault.id not in self._before or len(fault.data) < len(self._before[fault.id].data))
        ]

    def replace(self, id: str, smaller: Find) -> None:
        """Replace the smallest input of a fault."""
        fault = self._fault(smaller)
        self._now[id] = replace(fault, count=self._now[id].count, known=self._now[id].known)

    def set_killing(self, id: str, fields: tuple[KillingField, ...]) -> None:
        """Set the fields that kill in the smallest input of a fault."""
        self._now[id] = replace(self._now[id], kills=fields)

    def smallest(self, id: str) -> bytes:
        """The smallest input of a fault of this campaign."""
        return self._now[id].data

    def add_difference(self, cause: Cause, harm: str, reason: str, data: bytes, truth: str) -> None:
        """Count a cause of a differential: kfuzz and the testee ``truth`` read its inputs differently. ``data`` is the
        smallest one.
        """
        fault = Fault(cause.id, harm, reason, "", "", cause.count, data.hex(), truth=truth)
        earlier = self._now.get(cause.id)
        self._now[cause.id] = fault if earlier is None else earlier.merged(fault)
        self._differences.add(cause.id)

    def _deviation(self, find: Find) -> Deviation:
        return Deviation(
            self._target.implementation,
            HARM_OF[find.kind],
            "",
            find.summary,
            find.at,
            find.data.hex(),
            self._target.name,
            len(find.data),
        )

    def write(self) -> list[Fault]:
        """Write all faults, and return those of this campaign, the worst first, each with its smallest input so far."""
        merged = dict(self._before)
        for fault in self._now.values():
            merged[fault.id] = fault.merged(merged[fault.id]) if fault.id in merged else fault
        written = []
        for fault in sorted(merged.values(), key=_by_harm):
            file = self._folder / f"{fault.harm}-{fault.id}"
            written.append(replace(fault, file=str(file)))
            if fault.id in self._now:
                write_whole(file, fault.data)
                known = "".join(f"known as: {name}\n" for name in fault.known)
                known += "".join(f"kills: {field}\n" for field in fault.kills)
                write_whole(
                    file.with_suffix(".txt"),
                    f"{fault.summary}\n\n{fault.details}\n\ninputs: {fault.count}\n{known}input: {fault.input_hex}\n",
                )
        if self._now:
            text = json.dumps([_stored(fault) for fault in written], indent=2, sort_keys=True)
            write_whole(self._folder / CAUSES_FILE, text + "\n")
        return [
            replace(fault, count=self._now[fault.id].count, known=self._now[fault.id].known)
            for fault in written
            if fault.id in self._now
        ]


def _by_harm(fault: Fault) -> tuple[int, int, str]:
    return RANK[fault.harm], -fault.count, fault.id


def _stored(fault: Fault) -> dict[str, Any]:
    # The path of a folder that was moved would be wrong.
    return {name: value for name, value in asdict(fault).items() if name != "file"}


def load(path: Path) -> list[Fault]:
    """The faults in the file ``causes.json`` of a campaign; none if there is no such file. ``UsageError`` for a file
    that no campaign wrote.
    """
    if not path.is_file():
        return []
    remedy = "remove it, or use another --out"
    try:
        return [_loaded(entry) for entry in load_json(read_bytes(path), str(path), remedy=remedy)]
    except (ValueError, TypeError, LookupError):
        raise UsageError(f"{path} is not what a campaign writes; {remedy}") from None


def _loaded(entry: Mapping[str, Any]) -> Fault:
    """The fault that is stored as ``entry``; ``ValueError``, ``TypeError`` or ``LookupError`` for anything else.

    The folder may come from others, and its names become those of files.
    """
    if entry["harm"] not in RANK or not ID.fullmatch(entry["id"]) or type(entry["count"]) is not int:
        raise ValueError("no fault")
    bytes.fromhex(entry["input_hex"])
    return Fault(
        **{
            **entry,
            **{name: foreign_text(entry[name]) for name in ("summary", "at")},
            "details": foreign_text(entry["details"], bytes_max=DETAILS_BYTES_MAX),
            "known": tuple(map(foreign_text, entry["known"])),
            "kills": tuple(KillingField.from_json(field) for field in entry.get("kills", ())),
        }
    )


def of_end(kind: str, lines: Sequence[str], code: int, data: bytes, package: str = "kfuzz") -> Find:
    """The find of an input that ended the process. ``kind`` is libFuzzer's word for it.

    ``package`` holds the code whose lines and functions are places.
    """
    summary, details = explain(lines, code)
    known = KIND_OF.get(kind, "crash")
    # A loop that calls is interrupted at any line. The outermost function is the same each time.
    is_loop = known == "timeout" and package != "kfuzz"
    return Find(known, summary, _function(lines, package) if is_loop else _place(lines, package), details, data)


@cache
def _pattern(pattern: str, package: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("PACKAGE", re.escape(package)))


def _place(lines: Sequence[str], package: str) -> str:
    """The innermost line of the package's code in a sanitizer's stack, or in Python's; empty if there is none."""
    for pattern in (UNDEFINED, FRAME, NAMELESS_FRAME, PYTHON_FRAME):
        for line in lines:
            match = _pattern(pattern, package).match(line)
            if match is None or match["file"] in CALLERS:
                continue
            # The lines of generated C say nothing, and change with every build.
            if not match["file"].endswith(".c"):
                return f"{match['file']}:{match['line']}"
            if pattern is FRAME:
                return _plain_name(match["function"])
    return ""


def _function(lines: Sequence[str], package: str) -> str:
    """The outermost function of the package in Python's stack; empty if there is none."""
    found = [match for line in lines if (match := _pattern(PYTHON_FRAME, package).match(line))]
    return f"{found[-1]['file']}:{found[-1]['function']}" if found else ""


def _plain_name(function: str) -> str:
    """``kfuzz.wire.io.cursor.skip`` for ``__pyx_f_5kfuzz_4wire_2io_6cursor_skip``, Cython's name in C."""
    name = MANGLED.match(function)
    if name is None:
        return function
    parts, rest = [], name["rest"]
    # Each package, module and class has its length before it. A number that is no length counts functions.
    while (match := LENGTH.match(rest)) and rest[match.end() + int(match[1]) :].startswith("_"):
        end = match.end() + int(match[1])
        parts.append(rest[match.end() : end])
        rest = rest[end + 1 :]
    return ".".join([*parts, rest.lstrip("0123456789")])


def explain(lines: Sequence[str], code: int) -> tuple[str, str]:
    """Why a fuzzing process ended: a summary line, and a few lines of details."""
    for i, line in enumerate(lines):
        if line.strip() == UNCAUGHT:
            block = [line for line in lines[i + 1 : i + 1 + DETAIL_LINES] if not line.startswith("==")]
            return block[0] if block else "an exception without a message", "\n".join(block)
    for i, line in enumerate(lines):
        if NATIVE_ERROR.match(line):
            return re.sub(r"^==\d+==\s*", "", line), "\n".join(lines[i : i + DETAIL_LINES])
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}", "\n".join(lines[-DETAIL_LINES:])
    return (lines[-1] if lines else f"exit code {code} and no output"), "\n".join(lines[-DETAIL_LINES:])
