"""Explains in one page: a finding, a requirement, a flag, an error code of Kafka's, or a line of a log.

All of it is looked up: in the tables of findings, requirements and flags, and in the vectors' cells, which hold what
Apache Kafka itself answered.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any, Final, Literal, NamedTuple

from kfuzz.broker_errors import ERROR_MEANINGS, ERROR_NAMES
from kfuzz.errors import UsageError
from kfuzz.findings import Code
from kfuzz.findings.messages import CODES as MESSAGE_CODES
from kfuzz.findings.stored import CODES as STORED_CODES
from kfuzz.kafka import BROKER_RELEASE, LATEST, ROLES
from kfuzz.records import CODES as RECORD_CODES
from kfuzz.vectors.coverage import Coverage, expectations, measure
from kfuzz.vectors.log_lines import known_lines, lines_in
from kfuzz.vectors.model import Flag, Vector, default_root, load_files

# A page counts more vectors than this, unless all are asked for.
VECTORS_SHOWN: Final = 8

Kind = Literal[
    "finding of record batches",
    "finding of messages",
    "finding of stored files",
    "requirement",
    "flag",
    "error of a broker",
    "line of a log",
]


@dataclass(frozen=True, slots=True)
class Explanation:
    """All facts about one name.

    - ``what``: sentences that say what it is.
    - ``facts``: pairs of a title and a text, such as a severity or the place in a document.
    - ``kafka``: what Apache Kafka did with ``vectors``: a sentence for each role.
    - ``flags``: what goes wrong in the field: the flags of ``vectors``.
    - ``vectors``: the vectors about it, sorted by id.
    """

    name: str
    kind: Kind
    what: tuple[str, ...]
    facts: tuple[tuple[str, str], ...] = ()
    kafka: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    vectors: tuple[Vector, ...] = field(default=(), repr=False)


class Line(NamedTuple):
    """A line of a page: its text, the spaces before it, and whether it is a heading."""

    text: str
    columns: int = 2
    is_heading: bool = False


def page(one: Explanation, vectors_shown: int | None = VECTORS_SHOWN) -> Iterator[Line]:
    """The lines that a person reads about a name, an empty one between two parts. None shows all vectors."""
    gap = Line("", 0)
    yield Line(f"{one.name}: {_article(one.kind)} {one.kind}", 0, is_heading=True)
    yield from map(Line, one.what)
    if one.facts:
        yield gap
    yield from (Line(f"{title}: {text}") for title, text in one.facts)
    if one.kafka:
        about = "the one vector" if len(one.vectors) == 1 else f"the {len(one.vectors)} vectors"
        yield from (gap, Line(f"What Apache Kafka does with {about} about it", 0, is_heading=True))
        yield from map(Line, one.kafka)
    if one.flags:
        yield from (gap, Line("What goes wrong in the field", 0, is_heading=True))
    for flag in one.flags:
        yield Line(f"{flag.name} ({flag.bug_type}): {flag.description}")
        yield from (Line(text, 4) for text in (flag.effect, *flag.links, *flag.cves))
    if one.vectors:
        yield from (gap, Line("Vectors", 0, is_heading=True))
        yield from (Line(f"{vector.id}  {vector.summary}") for vector in one.vectors[:vectors_shown])
        if vectors_shown is not None and len(one.vectors) > vectors_shown:
            rest = len(one.vectors) - vectors_shown
            yield Line(f"… and {rest} more; `kfuzz explain {one.name} --all` shows them")


def explain_line(line: str) -> Iterator[Explanation]:
    """The pages of a line of a broker's or a client's log; none if it is not known."""
    for one in lines_in(line):
        facts = {"look at": one.look, "command": one.command_for(line), "written by": one.said_by, "thread": one.thread}
        yield Explanation(one.name, "line of a log", (one.means,), tuple(facts.items()))


def _article(kind: str) -> str:
    return "an" if kind[0] in "aeiou" else "a"


class Book:
    """The tables in which names are looked up: those of the suite in the folder ``root``, by default kfuzz's own."""

    def __init__(self, root: Path | None = None) -> None:
        place = root or default_root()
        files = load_files(place)
        self._coverage: Coverage = measure(place, files, planned=False)
        self._vectors = {vector.id: vector for vector in self._coverage.vectors}
        self._flags = {name: flag for file in files for name, flag in sorted(file.flags.items())}

    def tables(self) -> dict[str, list[str]]:
        """All known names by what they are, in the order of their tables."""
        return {
            "findings of record batches": list(RECORD_CODES),
            "findings of messages": list(MESSAGE_CODES),
            "findings of stored files": list(STORED_CODES),
            "requirements": list(self._coverage.requirements),
            "flags": sorted(self._flags),
            "errors of a broker": list(ERROR_NAMES.values()),
            "lines of a log": [one.name for one in known_lines()],
        }

    def explain(self, name: str) -> list[Explanation]:
        """All that ``name`` stands for; some findings of messages have the name of a finding of records.

        ``name`` is a finding's code, a requirement's id, a flag, the name or number of an error, or a line of a log.
        Small and capital letters are the same, but not in lines. Raises ``UsageError`` for an unknown name, with the
        nearest known one.
        """
        found = list(self._look_up(name.casefold())) or list(explain_line(name))
        if not found and any(map(str.isspace, name)):
            raise UsageError(
                "kfuzz does not know this line of a log; without a line, `kfuzz explain` lists those it knows"
            )
        if not found:
            known = {one.casefold(): one for names in self.tables().values() for one in names}
            near = difflib.get_close_matches(name.casefold(), known, n=1)
            remedy = f"did you mean {known[near[0]]}?" if near else "without a name, `kfuzz explain` lists all"
            raise UsageError(f"{name!r} is no finding, requirement, flag or error; {remedy}")
        return found

    def _look_up(self, wanted: str) -> Iterator[Explanation]:
        tables: tuple[tuple[Kind, Mapping[str, Code], Mapping[str, Iterable[str]]], ...] = (
            ("finding of record batches", RECORD_CODES, self._coverage.findings),
            ("finding of messages", MESSAGE_CODES, self._coverage.message_findings),
            ("finding of stored files", STORED_CODES, {}),
        )
        for kind, codes, found in tables:
            yield from (self._finding(code, kind, codes[code], found) for code in codes if code.casefold() == wanted)
        for requirement in self._coverage.requirements:
            if requirement.casefold() == wanted:
                yield self._requirement(requirement)
        for flag in self._flags.values():
            if flag.name.casefold() == wanted:
                yield self._flag(flag)
        for number, error in ERROR_NAMES.items():
            if error.casefold() == wanted or str(number) == wanted:
                yield self._error(number, error)

    def _finding(self, code: str, kind: Kind, row: Code, found: Mapping[str, Iterable[str]]) -> Explanation:
        vectors = self._of(found.get(code, ()))
        facts = [("profile kafka", _severities(row, kind)), ("profile strict", "fatal")]
        if row.requirement:
            facts.append(("requirement", self._rule(row.requirement)))
        return self._about(code, kind, (_with_letters(row.sentence),), facts, vectors)

    def _requirement(self, name: str) -> Explanation:
        entry = self._coverage.requirements[name]
        places = [
            f"{self._coverage.documents[place['document']]}: {place['place']}"
            if place.get("place")
            else self._coverage.documents[place["document"]]
            for place in entry["spec"]
        ]
        facts = [("level", entry["level"]), *(("source", place) for place in places)]
        codes = [code for table in (RECORD_CODES, MESSAGE_CODES) for code in table if table[code].requirement == name]
        if codes:
            facts.append(("findings", ", ".join(dict.fromkeys(codes))))
        return self._about(name, "requirement", (entry["text"],), facts, self._of(self._coverage.about.get(name, ())))

    def _flag(self, flag: Flag) -> Explanation:
        vectors = tuple(vector for vector in self._vectors.values() if flag.name in vector.flags)
        return self._about(flag.name, "flag", (), [], vectors, (flag,))

    def _error(self, number: int, name: str) -> Explanation:
        vectors = tuple(
            vector
            for vector in self._vectors.values()
            if any(cells.get("error") == name for cells in vector.kafka.values())
        )
        meaning = ERROR_MEANINGS.get(number, "Not about records; Kafka's documentation of the protocol says more.")
        codes = Counter(
            expectation["finding"]
            for vector in vectors
            for role, expectation in expectations(vector)
            if role == "broker" and "finding" in expectation
        )
        facts = [("number", str(number))]
        if codes:
            facts.append(("findings", ", ".join(f"{code} ({count})" for code, count in codes.most_common())))
        return self._about(name, "error of a broker", (meaning,), facts, vectors)

    def _about(
        self,
        name: str,
        kind: Kind,
        what: tuple[str, ...],
        facts: Iterable[tuple[str, str]],
        vectors: tuple[Vector, ...],
        flags: tuple[Flag, ...] | None = None,
    ) -> Explanation:
        if flags is None:
            flags = tuple(self._flags[one] for one in sorted({flag for vector in vectors for flag in vector.flags}))
        return Explanation(name, kind, what, tuple(facts), tuple(_answers(vectors)), flags, vectors)

    def _of(self, ids: Iterable[str]) -> tuple[Vector, ...]:
        return tuple(self._vectors[one] for one in sorted(ids))

    def _rule(self, name: str) -> str:
        entry: Mapping[str, Any] = self._coverage.requirements[name]
        return f"{name} ({entry['level']}): {entry['text']}"


def _severities(row: Code, kind: Kind) -> str:
    """The severity in profile kafka: one word, or one for each role where they differ."""
    if kind in ("finding of messages", "finding of stored files"):
        return row.kafka
    by_role = {role: row.severity("kafka", role) for role in ROLES}
    if len(set(by_role.values())) == 1:
        return row.kafka
    return ", ".join(f"{severity} for the {role}" for role, severity in by_role.items())


def _with_letters(sentence: str) -> str:
    """A finding's sentence with letters for its numbers.

    >>> from kfuzz.vectors.explaining import _with_letters
    >>> _with_letters("the length is {found}; it must be at least {allowed:#x}")
    'the length is N; it must be at least M'
    """
    letters = {"found": "N", "allowed": "M", "count": "K", "detail": "…"}
    return "".join(text + letters.get(name or "", "") for text, name, _, _ in Formatter().parse(sentence))


def _answers(vectors: Iterable[Vector]) -> Iterator[str]:
    """The answers of Apache Kafka, counted: its readers of the latest release, and the real broker."""
    answers: dict[str, Counter[str]] = {}
    errors: Counter[str] = Counter()
    starts: Counter[str] = Counter()
    for vector in vectors:
        for role, outcome in vector.kafka.get(LATEST, {}).items():
            if role in _READERS:
                answers.setdefault(role, Counter())[outcome] += 1
        cells = vector.kafka.get(BROKER_RELEASE, {})
        if "error" in cells:
            errors[cells["error"]] += 1
        if "recovery" in cells:
            starts[cells["recovery"]] += 1
    for role in sorted(answers, key=_ORDER.index):
        yield f"{_READERS[role]} {LATEST}: {_counted(answers[role])}"
    if errors:
        yield f"a broker {BROKER_RELEASE} answers a Produce request: {_counted(errors)}"
    if starts:
        yield f"a broker {BROKER_RELEASE} that starts with such a segment: {_counted(starts)}"


_READERS = {
    "consumer": "a consumer",
    "broker": "the broker's check of a Produce request",
    "log": "the check of a segment",
    "reader": "the message classes",
}
_ORDER = list(_READERS)


def _counted(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common())
