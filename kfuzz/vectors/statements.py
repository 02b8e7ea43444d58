"""Statements: each sentence of the documents that says something testable, and what checks it.

``vectors/statements.json`` quotes at most ten words of each, says where it is, and names requirements, tests, or
the reason why nothing checks it. The vectors are found through the requirements.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes
from kfuzz.vectors.model import read_file

STATEMENTS_FILE = "statements.json"
QUOTED_WORDS_MAX = 10
ALWAYS = frozenset({"document", "id", "line", "place", "quote"})
SOMETIMES = frozenset({"note", "requirements", "tests", "why"})
# Chinese has no spaces between words: each character counts as one.
_WORD = re.compile(r"[\u2e80-\u9fff\uff00-\uffef]|[^\s\u2e80-\u9fff\uff00-\uffef]+")
_NUMBER = re.compile(r"S-(\w+)-(\d{3})")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence, row or line of a document: ``line`` counts from 1, ``place`` is the heading above it."""

    id: str
    document: str
    line: int
    place: str
    quote: str
    requirements: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    why: str = ""
    note: str = ""

    @property
    def section(self) -> str:
        """The first part of the place."""
        return re.split(r" / |: ", self.place)[0]

    def all_tests(self, requirements: Mapping[str, Json]) -> list[str]:
        """Its own tests and those of its requirements."""
        of_requirements = (test for name in self.requirements for test in requirements[name].get("tested", ()))
        return sorted({*self.tests, *of_requirements})

    def reasons(self, requirements: Mapping[str, Json]) -> list[str]:
        """Why nothing checks it: its own reason, or that of its requirements."""
        return (
            [self.why] if self.why else [requirements[n]["why"] for n in self.requirements if "why" in requirements[n]]
        )


def load(root: Path) -> tuple[Statement, ...]:
    """The statements of the suite under ``root``, none where it has no such file; ``UsageError`` for a broken one."""
    path = root / STATEMENTS_FILE
    if not path.is_file():
        return ()
    try:
        entries = load_json(read_file(path), str(path))["statements"]
        return tuple(map(_statement, entries))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: no table of statements ({error}); fix it") from None


def _statement(entry: Json) -> Statement:
    if not ALWAYS <= entry.keys() <= ALWAYS | SOMETIMES:
        names = f"must have {', '.join(sorted(ALWAYS))}, and may have {', '.join(sorted(SOMETIMES))}"
        raise ValueError(f"{entry.get('id', 'a statement')} {names}")
    lists = {name: tuple(entry[name]) for name in ("requirements", "tests") if name in entry}
    return Statement(**{**entry, **lists})


# --- gaps -----------------------------------------------------------------------------------------------------------


def gaps(
    statements: Sequence[Statement],
    requirements: Mapping[str, Json],
    vectors: Mapping[str, Sequence[str]],
    documents: Iterable[str],
    repository: Path | None = None,
) -> Iterator[str]:
    """A sentence for each fault. ``vectors`` are those of each requirement; tests are sought in ``repository``."""
    yield from _numbering(statements, documents)
    for one in statements:
        count = len(_WORD.findall(one.quote))
        if not 1 <= count <= QUOTED_WORDS_MAX:
            yield f"{one.id}: the quote has {count} words; quote 1 to {QUOTED_WORDS_MAX}"
        unknown = [name for name in one.requirements if name not in requirements]
        yield from (f"{one.id}: the requirement {name} does not exist" for name in unknown)
        yield from (f"{one.id}: there is no test {test}" for test in one.tests if missing_test(repository, test))
        if not unknown:
            yield from _unchecked(one, requirements, vectors)
    for name in _unstated(statements, requirements):
        yield f"no statement of {name}"


def _numbering(statements: Sequence[Statement], documents: Iterable[str]) -> Iterator[str]:
    known = sorted(documents)
    counts: Counter[str] = Counter()
    for one in statements:
        counts[one.document] += 1
        wanted = f"S-{one.document}-{counts[one.document]:03d}"
        if one.id != wanted:
            yield f"{one.id}: number it {wanted}"
        if one.document not in known:
            yield f"{one.id}: the document {one.document} is none of {', '.join(known)}"


def _unchecked(one: Statement, requirements: Mapping[str, Json], vectors: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name in one.requirements:
        entry = requirements[name]
        if not vectors.get(name) and not entry.get("tested") and "why" not in entry:
            yield f"{one.id}: the requirement {name} has neither vectors nor tests"
    checked = any(vectors.get(name) for name in one.requirements) or one.all_tests(requirements)
    if not checked and not one.reasons(requirements):
        yield f"{one.id}: it has neither a requirement nor a test; add one, or say why there is none"
    if checked and one.why:
        yield f"{one.id}: it is checked, and why says that nothing does; take why out"


def _unstated(statements: Sequence[Statement], requirements: Mapping[str, Json]) -> Iterator[str]:
    """Requirements that cite a document in which no statement has them."""
    stated = {(one.document, name) for one in statements for name in one.requirements}
    written = {one.document for one in statements}
    for name, entry in requirements.items():
        for document in sorted({place["document"] for place in entry["spec"]}):
            if document in written and (document, name) not in stated:
                yield f"document {document} cites {name}, although requirements.json says that the document has it"


def missing_test(repository: Path | None, reference: str) -> bool:
    """Whether ``path::name`` is not a test; unknown in a copy without tests, then False."""
    if repository is None or not (repository / "tests").is_dir():
        return False
    path, _, name = reference.partition("::")
    return name not in _tests_of(repository / path)


@cache
def _tests_of(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    return frozenset(re.findall(r"^def (test_\w+)\(", read_bytes(path).decode(), re.MULTILINE))
