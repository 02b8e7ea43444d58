"""The causes of a target: what its campaigns found, as deviations, with the smallest input of each cause.

``FOLDER/causes/`` holds for each cause the input, a text beside it, and ``causes.json`` with all of them. A later
campaign in the same folder reads that file and continues to count.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

from kfuzz.conformance.judge.causes import Cause, Deviation, causes_of
from kfuzz.conformance.judge.harm import HANGS, KILLS, LOSES, MEMORY, PANICS, RANK
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, write_whole
from kfuzz.fuzz.recorder import DETAILS_BYTES_MAX, FRAMES, Find, Kind, called
from kfuzz.fuzz.targets import Target
from kfuzz.kafka import ROLES
from kfuzz.text import foreign_text

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
LAST_LINES: Final = 3
CAUSES_FILE: Final = "causes.json"
# Reading an entry of causes.json raises one of these, if the entry is not the form of a cause.
ERRORS: Final = (ValueError, TypeError, LookupError, AttributeError)
# The texts of a deviation that may come from others, besides its details.
BOUNDED: Final = ("implementation", "error", "reason", "at")
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


class Causes:
    """The causes of one target, in the folder of its campaigns. Of each, only the smallest deviation is kept.

    An input that breaks the target is a deviation of the target's implementation. A deviation of a testee is an input
    that this testee reads otherwise.
    """

    def __init__(self, folder: Path, target: Target) -> None:
        self._folder = folder / "causes"
        self._target = target
        self._before = {cause.id: cause for cause in load(self._folder / CAUSES_FILE)}
        self._now: dict[str, Cause] = {}

    def add(self, find: Find, known: Iterable[str] = (), *, is_again: bool = False) -> None:
        """Count a find. ``known`` names the vectors and seeds among its inputs.

        ``is_again`` means that the inputs may have been counted; then only a new cause is.
        """
        cause = replace(cause_of(self._target, find), known=tuple(known))
        if not (is_again and cause.id in self._now):
            self.add_cause(cause)

    def add_cause(self, cause: Cause) -> None:
        """Count a cause that has only its smallest deviation."""
        earlier = self._now.get(cause.id)
        self._now[cause.id] = cause if earlier is None else _merged(earlier, cause)

    def new(self) -> list[Cause]:
        """The causes of this campaign whose smallest input is smaller than that of earlier campaigns, the worst first.

        Those that only another reader sees are not among them.
        """
        return [
            cause
            for cause in sorted(self._now.values(), key=_by_harm)
            if cause.smallest.implementation == self._target.implementation
            and (cause.id not in self._before or len(cause.smallest.data) < len(self._before[cause.id].smallest.data))
        ]

    def found(self) -> list[Cause]:
        """The causes of this campaign, the worst first."""
        return sorted(self._now.values(), key=_by_harm)

    def replace(self, id: str, smallest: Deviation) -> None:
        """Replace the smallest deviation of a cause of this campaign."""
        self._now[id] = replace(self._now[id], deviations=(smallest,))

    def write(self) -> dict[Path, Cause]:
        """Write all causes, and return those of this campaign by the file of their smallest input so far, the worst
        first.
        """
        written = merged_causes([*self._before.values(), *self._now.values()])
        new = [cause for cause in written if cause.id in self._now]
        for name, data in files_of(new, written) if new else ():
            write_whole(self._folder / name, data)
        now = self._now
        return {
            self._folder / file_name(cause): replace(cause, others=now[cause.id].others, known=now[cause.id].known)
            for cause in new
        }


def cause_of(target: Target, find: Find) -> Cause:
    """A find in the words of the referee."""
    item = Deviation(
        target.implementation,
        HARM_OF[find.kind],
        error=find.summary,
        at=find.at,
        size_bytes=len(find.data),
        data=find.data,
        details=find.details,
    )
    [cause] = causes_of([item])
    return replace(cause, others=find.count - 1)


def file_name(cause: Cause) -> str:
    """The name of the file with the smallest input of a cause."""
    return f"{cause.harm}-{cause.id}"


def files_of(causes: Sequence[Cause], all_causes: Sequence[Cause] | None = None) -> Iterator[tuple[str, bytes]]:
    """The files of a folder of causes: the input and the text of each, and at the end the table of ``all_causes``."""
    for cause in causes:
        yield file_name(cause), cause.smallest.data
        yield f"{file_name(cause)}.txt", _text(cause).encode()
    yield CAUSES_FILE, document_text(causes if all_causes is None else all_causes).encode()


def document_text(causes: Iterable[Cause]) -> str:
    """The text of ``causes.json``."""
    return json.dumps([cause.to_json() for cause in causes], indent=2, sort_keys=True) + "\n"


def _merged(cause: Cause, other: Cause) -> Cause:
    """Both as one: the smaller input, the sum of the counts, all names."""
    smaller, larger = sorted((cause.smallest, other.smallest), key=lambda one: (len(one.data), one.data))
    if smaller.data == larger.data:
        smaller = replace(smaller, kills=smaller.kills or larger.kills)
    known = tuple(sorted({*cause.known, *other.known}))
    return Cause(cause.key, (smaller,), cause.count + other.count - 1, known)


def merged_causes(causes: Iterable[Cause]) -> list[Cause]:
    """Those with one id as one, the worst first."""
    by_id: dict[str, Cause] = {}
    for cause in causes:
        by_id[cause.id] = _merged(cause, by_id[cause.id]) if cause.id in by_id else cause
    return sorted(by_id.values(), key=_by_harm)


def _by_harm(cause: Cause) -> tuple[int, int, str]:
    return RANK[cause.harm], -cause.count, cause.id


def _text(cause: Cause) -> str:
    item = cause.smallest
    known = "".join(f"known as: {name}\n" for name in cause.known)
    known += "".join(f"kills: {field}\n" for field in item.kills)
    return f"{item.error}\n\n{item.details}\n\ninputs: {cause.count}\n{known}input: {item.data.hex()}\n"


def document_of(file: Path, cause: Cause, implementation: str) -> dict[str, Any]:
    """A cause as JSON in the result of a campaign on this implementation."""
    item = cause.smallest
    return {
        "id": cause.id,
        "harm": cause.harm,
        "summary": item.error,
        "at": item.at,
        "details": item.details,
        "count": cause.count,
        "input_hex": item.data.hex(),
        "file": str(file),
        "known": list(cause.known),
        "kills": [field.to_json() for field in item.kills],
        "truth": truth_of(item, implementation),
    }


def truth_of(item: Deviation, implementation: str) -> str:
    """The testee that reads the input otherwise; empty if the input breaks the fuzzed implementation itself."""
    return "" if item.implementation == implementation else item.implementation


def load(path: Path) -> list[Cause]:
    """Read the causes in ``causes.json`` of a campaign. Without that file there are none.

    ``UsageError`` if no campaign of this kfuzz wrote the file.
    """
    if not path.is_file():
        return []
    remedy = "remove it, or use another --out"
    try:
        return [loaded(entry) for entry in load_json(read_bytes(path), str(path), remedy=remedy)]
    except ERRORS:
        raise UsageError(f"{path} is not what a campaign of this kfuzz writes; {remedy}") from None


def loaded(entry: Mapping[str, Any]) -> Cause:
    """The cause that is stored as ``entry``; one of ``ERRORS`` for anything else.

    The folder may come from others, and its names become those of files.
    """
    cause = Cause.from_json(entry)
    [item] = cause.deviations
    if item.harm not in RANK or item.role not in ROLES or type(cause.others) is not int or cause.id != entry["id"]:
        raise ValueError("no cause")
    bounded: dict[str, Any] = {name: foreign_text(getattr(item, name)) for name in BOUNDED}
    item = replace(item, **bounded, details=foreign_text(item.details, bytes_max=DETAILS_BYTES_MAX))
    return replace(cause, deviations=(item,), known=tuple(map(foreign_text, cause.known)))


def of_end(kind: str, lines: Sequence[str], code: int, data: bytes, package: str = "kfuzz") -> Find:
    """The find of an input that ended the process. ``kind`` is libFuzzer's word for it.

    ``package`` holds the code whose lines and functions are places.
    """
    summary, details = explain(lines, code)
    known = KIND_OF.get(kind, "crash")
    # A loop that calls is interrupted at any line. The outermost function is the same each time.
    if known != "timeout":
        at = _place(lines, package)
    else:
        at = _place(lines, package, depth=1) if package == "kfuzz" else _function(lines, package)
    return Find(known, summary, at, details, data)


@cache
def _pattern(pattern: str, package: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("PACKAGE", re.escape(package)))


def _place(lines: Sequence[str], package: str, depth: int = FRAMES) -> str:
    """The innermost places of the package's code in a sanitizer's stack, or in Python's; empty if there is none."""
    for patterns in ((UNDEFINED, FRAME), (NAMELESS_FRAME,), (PYTHON_FRAME,)):
        if found := called(chain.from_iterable(_places(lines, pattern, package) for pattern in patterns), depth):
            return found
    return ""


def _places(lines: Sequence[str], pattern: str, package: str) -> Iterator[str]:
    """The places of the package's code in the first stack. The lines of generated C say nothing, and change with every
    build.
    """
    stacks = 0
    for line in lines:
        # After the stack of the fault, a sanitizer prints the stacks of allocations. Each begins with a frame #0.
        stacks += line.lstrip().startswith("#0 ")
        match = _pattern(pattern, package).match(line) if stacks < 2 else None
        if match is None or match["file"] in CALLERS:
            continue
        if not match["file"].endswith(".c"):
            yield f"{match['file']}:{match['line']}"
        elif pattern is FRAME:
            yield _plain_name(match["function"])


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


def ending(lines: Sequence[str], code: int) -> str:
    """Why a fuzzing process ended without a result: its last lines if a signal ended it, and what a user can do."""
    summary, details = explain(lines, code)
    if code >= 0:
        return summary
    if code == -signal.SIGKILL:
        summary += ", as the system does when memory runs out; give it more, or use fewer --jobs"
    last = [line.strip() for line in details.splitlines() if line.strip()][-LAST_LINES:]
    return f"{summary}; it printed last: {' / '.join(last)}" if last else f"{summary}; it printed nothing"
