"""The pages about the suite. ``kfuzz vectors build`` writes ``docs/coverage.md``, the summary.

``make docs`` makes the other pages, which only the site has: those in ``coverage/`` have the details, and
``statements.md`` lists each statement of the documents with the vectors and tests that check it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfuzz.files import read_bytes, write_whole
from kfuzz.findings import Code
from kfuzz.vectors.coverage import COVERAGE_FILE, TABLES, WITHOUT_VECTOR, Coverage, is_plainly_valid, measure
from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.statements import Statement

# The committed page, in ``docs/``.
SUMMARY_PAGE = "coverage.md"

# How many ids a cell of the tables shows; it gives only the number of the others.
SHOWN = 3
SHOWN_TESTS = 2
VERDICT_COLUMNS = ("valid", "acceptable", "invalid", "step by step")


def stale(root: Path, measured: Coverage | None = None) -> list[str]:
    """The committed page, if it differs from what the suite under ``root`` gives; empty if there are no docs or no
    tables.
    """
    return [path.relative_to(root.resolve().parent).as_posix() for path in changed(root, measured)]


def write(root: Path) -> None:
    """Write the committed page into ``docs/`` beside the suite under ``root``, if there are docs and tables."""
    for path, content in changed(root).items():
        write_whole(path, content)


def changed(root: Path, measured: Coverage | None = None) -> dict[Path, bytes]:
    """The right content of the committed page, if it differs from what the suite under ``root`` gives."""
    path = root.resolve().parent / "docs" / SUMMARY_PAGE
    if not path.parent.is_dir() or not (root / COVERAGE_FILE).is_file():
        return {}
    content = summary(measured or measure(root)).encode()
    return {} if path.is_file() and read_bytes(path) == content else {path: content}


def site_pages(coverage: Coverage) -> dict[str, str]:
    """The pages that only the site has, by their names in it."""
    return {
        "coverage/requirements.md": _requirements(coverage),
        "coverage/kafka-tests.md": _families(coverage),
        "coverage/incidents.md": _incidents(coverage),
        "coverage/findings.md": _findings(coverage),
        "statements.md": _statements(coverage),
    }


# --- checks of statements -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Checked:
    """Totals of some statements: their requirements, vectors and tests, and the unchecked statements."""

    statements: Sequence[Statement]
    requirements: frozenset[str]
    vectors: frozenset[str]
    tests: frozenset[str]
    unchecked: Sequence[Statement]

    @property
    def cells(self) -> list[str]:
        counted = (self.statements, self.requirements, self.vectors, self.tests, self.unchecked)
        return [str(len(what)) for what in counted]


def _checked(coverage: Coverage, statements: Sequence[Statement]) -> _Checked:
    vectors = {one.id: _vectors(coverage, one) for one in statements}
    tests = {one.id: one.all_tests(coverage.requirements) for one in statements}
    return _Checked(
        statements,
        frozenset(name for one in statements for name in one.requirements),
        frozenset(name for names in vectors.values() for name in names),
        frozenset(name for names in tests.values() for name in names),
        [one for one in statements if not vectors[one.id] and not tests[one.id]],
    )


def _vectors(coverage: Coverage, one: Statement) -> list[str]:
    return sorted({vector for name in one.requirements for vector in coverage.about.get(name, ())})


# --- the summary ----------------------------------------------------------------------------------------------------


COUNTED = ["statements", "requirements", "vectors", "tests", "not checked"]


def summary(coverage: Coverage) -> str:
    """The committed page."""
    unchecked = _checked(coverage, coverage.statements).unchecked
    vectors = len(coverage.vectors)
    documents = _documents(coverage)
    return rendered(
        "coverage.md.j2",
        documents=len(documents) - 1,
        statements=len(coverage.statements),
        unchecked=len(unchecked),
        noted=sum(bool(one.note) for one in coverage.statements),
        vectors=vectors,
        share=(vectors - sum(map(is_plainly_valid, coverage.vectors))) * 100 // vectors,
        document_table=_rows(["", "document", *COUNTED], documents),
        reason_table=_rows(["reason", "statements", "their numbers"], _reasons(coverage, unchecked)),
        kind_table=_rows(["kind", "judged by", "vectors", *VERDICT_COLUMNS], _kinds(coverage)),
        requirement_table=_rows(
            ["ids", "about", "requirements", "must", "should", "may", "vectors", "tests", "not checked"],
            _groups(coverage),
        ),
        section_table=_rows(["document", "section", *COUNTED], _sections(coverage)),
    )


def rendered(template: str, **values: Any) -> str:
    """The text of a template beside this module, with these values."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    text = read_bytes(Path(__file__).with_name(template)).decode()
    return environment.from_string(text).render(values)


def _documents(coverage: Coverage) -> list[list[str]]:
    rows = [
        [number, title, *_checked(coverage, of_document).cells]
        for number, title in coverage.documents.items()
        if (of_document := _of_document(coverage, number))
    ]
    return [*rows, ["", "all", *_checked(coverage, coverage.statements).cells]]


def _of_document(coverage: Coverage, number: str) -> list[Statement]:
    return [one for one in coverage.statements if one.document == number]


def _reasons(coverage: Coverage, unchecked: Iterable[Statement]) -> list[list[str]]:
    """The reasons why nothing checks statements, the most frequent first."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for one in unchecked:
        found["; ".join(one.reasons(coverage.requirements))].append(one.id)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return [[reason, str(len(ids)), ", ".join(ids)] for reason, ids in ordered]


def _kinds(coverage: Coverage) -> list[list[str]]:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for vector in coverage.vectors:
        # A stream has a verdict for each step, not for the whole.
        role = KINDS[vector.kind].roles[0]
        counts[vector.kind][vector.expect[role]["verdict"] if not vector.steps else "step by step"] += 1
    return [
        [
            kind,
            KINDS[kind].roles[0],
            str(counts[kind].total()),
            *(str(counts[kind][verdict]) for verdict in VERDICT_COLUMNS),
        ]
        for kind in KINDS
        if counts[kind]
    ]


def _groups(coverage: Coverage) -> list[list[str]]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in coverage.requirements:
        groups[name.partition("-")[0]].append(name)
    rows = []
    for group, names in groups.items():
        vectors = {vector for name in names for vector in coverage.about.get(name, ())}
        tests = {test for name in names for test in coverage.requirements[name].get("tested", ())}
        levels = Counter(coverage.requirements[name]["level"] for name in names)
        unchecked = [name for name in names if coverage.requirements[name]["check"] == "none"]
        counts = (len(names), levels["must"], levels["should"], levels["may"], len(vectors), len(tests))
        rows.append([f"{group}-*", GROUPS.get(group, ""), *map(str, counts), ", ".join(unchecked)])
    return rows


GROUPS = {
    "CMP": "compacted batches",
    "CONV": "conversion between formats",
    "DEF": "the language of message definitions",
    "LIM": "limits of size",
    "MS": "messages of magic 0 and 1",
    "MSG": "messages of the protocol",
    "PRO": "what a producer sends",
    "RB": "record batches (magic 2)",
    "TALK": "conversations of clients with brokers",
    "SEG": "log segments",
    "SEQ": "sequences of idempotent producers",
    "TXN": "transactions",
}


def _sections(coverage: Coverage) -> list[list[str]]:
    sections: defaultdict[tuple[str, str], list[Statement]] = defaultdict(list)
    for one in coverage.statements:
        sections[one.document, one.section].append(one)
    return [
        [document, section, *_checked(coverage, statements).cells]
        for (document, section), statements in sections.items()
    ]


# --- statements -----------------------------------------------------------------------------------------------------


def _statements(coverage: Coverage) -> str:
    columns = ["number", "where", "begins", "requirements", "checked by"]
    tables = {
        f"Document {number}: {title}": _rows(columns, [list(_statement(coverage, one)) for one in statements])
        for number, title in coverage.documents.items()
        if (statements := _of_document(coverage, number))
    }
    return rendered("statements.md.j2", tables=tables)


def _statement(coverage: Coverage, one: Statement) -> Iterator[str]:
    yield one.id
    yield f"{one.place}, line {one.line}"
    yield f"“{one.quote}”"
    yield ", ".join(one.requirements)
    vectors, tests = _vectors(coverage, one), one.all_tests(coverage.requirements)
    held = [f"{len(vectors)} vectors: `{vectors[0]}` …" if len(vectors) > 1 else f"`{vectors[0]}`"] if vectors else []
    # The statement's own tests come first.
    ordered = sorted(tests, key=lambda test: test not in one.tests)
    held += [f"`{test}`" for test in ordered[:SHOWN_TESTS]]
    held += [f"and {len(tests) - SHOWN_TESTS} more tests"] if len(tests) > SHOWN_TESTS else []
    said = "; ".join(held) if held else f"nothing: {'; '.join(one.reasons(coverage.requirements))}"
    yield f"{said}. {one.note}" if one.note else said


# --- the details ----------------------------------------------------------------------------------------------------


def _requirements(coverage: Coverage) -> str:
    rows = []
    for name, entry in coverage.requirements.items():
        obeyed, broken = _cell(coverage.obeyed.get(name, ())), _cell(coverage.broken.get(name, ()))
        tested = ", ".join(f"`{test}`" for test in entry.get("tested", ()))
        if entry["check"] == "none":
            obeyed = broken = f"not checked: {entry['why']}"
        elif entry["check"] == "behaviour":
            obeyed = "; ".join(filter(None, (obeyed, f"tested by {tested}")))
        elif not broken:
            broken = f"none: {entry['one_sided']}" if "one_sided" in entry else ""
        rows.append([name, entry["level"], entry["text"], entry["check"], obeyed, broken])
    about = (
        "`vectors/requirements.json` says where the documents state each requirement. A rule without the word must,"
        " should or may counts as must. The right column lists vectors that have a finding in any role."
    )
    return _page("Requirements", about, ["id", "level", "says", "checked by", "obeyed by", "broken by"], rows)


def _families(coverage: Coverage) -> str:
    rows = []
    for family in coverage.families:
        if "vectors" in family:
            ids = coverage.matching(family["vectors"])
            where = f"{len(ids)}: {', '.join(f'`{glob}`' for glob in family['vectors'])}"
        elif "elsewhere" in family:
            where = f"tested by `{family['elsewhere']}`"
        else:
            where = f"none: {family['why']}"
        rows.append([family["class"], family["case"], where])
    about = (
        "Classes of Apache Kafka's own tests, and the kinds of cases in them. kfuzz's vectors contain no data, text or"
        " code from Kafka."
    )
    return _page("Kafka's own test cases", about, ["class", "kind of case", "vectors"], rows)


def _incidents(coverage: Coverage) -> str:
    rows = [
        [incident["name"], incident["fault"], _cell(coverage.of_incident(incident))] for incident in coverage.incidents
    ]
    about = "Public reports of readers that failed. The flags of vectors link the reports whose threads we have read."
    return _page("Incidents", about, ["where", "kind of fault", "vectors"], rows)


def _findings(coverage: Coverage) -> str:
    about = "Each finding code of kfuzz's reader, broker rules and stream rules, with the vectors that expect it."
    columns = ["code", "requirement", "vectors"]
    records = _page("Findings", about, columns, _finding_rows(TABLES["records"], coverage.findings))
    messages = _rows(columns, _finding_rows(TABLES["messages"], coverage.message_findings))
    return f"{records}\n## Findings of messages\n\n{messages}\n"


def _finding_rows(codes: Mapping[str, Code], found: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    for code, meaning in codes.items():
        ids = _cell(found.get(code, ())) or f"none: {WITHOUT_VECTOR.get(code, '')}"
        yield [f"`{code}`", meaning.requirement or "", ids]


def _page(title: str, about: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    summary = "[coverage.md](../coverage.md) is the summary."
    return f"# {title}\n\n{about}\n\n{summary}\n\n{_rows(columns, rows)}\n"


def _cell(ids: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in ids[:SHOWN])
    return shown + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")


def _rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(map(_row, (columns, ["---"] * len(columns), *rows)))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
