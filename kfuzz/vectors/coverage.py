"""Coverage: which vectors stand for each requirement, for Kafka's own test cases, for each incident and each finding.

``vectors/coverage.json`` holds what cannot be derived: the families of cases in Kafka's tests and the incidents, each
with a description of its vectors. From it and the suite :func:`measure` finds the vectors for each entry, and
:func:`gaps` lists the entries without a vector. ``pages.py`` writes the pages.
"""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kfuzz.documents import load_json
from kfuzz.findings import Code
from kfuzz.findings.messages import CODES as MESSAGE_CODES
from kfuzz.records import CODES as RECORD_CODES
from kfuzz.vectors import statements
from kfuzz.vectors.kinds import CONVERSATION, KINDS
from kfuzz.vectors.model import REQUIREMENTS_FILE, SuiteFile, Vector, load_files, load_requirements, read_file
from kfuzz.vectors.statements import STATEMENTS_FILE, Statement, missing_test

COVERAGE_FILE = "coverage.json"
# The findings that a vector of each kind may have. Some words are in both tables.
TABLES: Mapping[str, Mapping[str, Code]] = {"records": RECORD_CODES, "messages": MESSAGE_CODES}
CODES = {kind.name: TABLES[kind.findings] for kind in KINDS.values()}
# Findings of messages that no vector has, with the reason.
WITHOUT_VECTOR = {
    "count-too-large": "needs a megabyte; tested by `tests/messages/test_codec.py`",
    "nested-too-deep": "no definition of Kafka is nested so deeply; tested by `tests/messages/test_codec.py`",
    "tag-unknown": "no reader may refuse it; the vectors `messages/tags/*-unknown` are valid",
    "tag-count-too-large": "needs ten thousand tags; tested by `tests/messages/test_codec.py`",
}

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which vectors cover what: ids of vectors, sorted, by requirement (either side), finding, incident and family."""

    requirements: Mapping[str, Json]
    families: Sequence[Json]
    incidents: Sequence[Json]
    vectors: tuple[Vector, ...]
    documents: Mapping[str, str] = field(default_factory=dict)
    statements: Sequence[Statement] = ()
    # Of each requirement, the vectors that cite it or have a finding that does.
    about: Mapping[str, Sequence[str]] = field(default_factory=dict)
    obeyed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    broken: Mapping[str, Sequence[str]] = field(default_factory=dict)
    findings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    message_findings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    links: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def matching(self, globs: Iterable[str]) -> list[str]:
        """The ids that any of the globs matches."""
        ids = [vector.id for vector in self.vectors]
        return sorted({name for glob in globs for name in fnmatch.filter(ids, glob)})

    def of_incident(self, incident: Json) -> list[str]:
        """The vectors whose flags link the incident's thread, and those that its entry names."""
        return sorted({*self.links.get(incident["name"], ()), *self.matching(incident.get("vectors", ()))})


def expectations(vector: Vector) -> Iterator[tuple[str, Json]]:
    """Each role with what is expected of it: once for plain records, in every step of a stream."""
    yield from vector.expect.items()
    for step in vector.steps:
        yield from step["expect"].items()


def is_plainly_valid(vector: Vector) -> bool:
    """Whether every role accepts all of it, and no document disagrees."""
    return all(expectation["verdict"] == "valid" for _, expectation in expectations(vector))


def measure(root: Path, files: Sequence[SuiteFile] | None = None, *, planned: bool = True) -> Coverage:
    """The coverage of the suite under ``root``; raises ``UsageError`` where its tables cannot be read.

    Without ``planned``, the families and incidents that the suite plans to cover are left out: a user's own suite has
    no table of them.
    """
    files = load_files(root) if files is None else files
    vectors = tuple(sorted((v for file in files for v in file.vectors), key=lambda v: v.id))
    about, obeyed, broken = defaultdict(set), defaultdict(set), defaultdict(set)
    record_findings: defaultdict[str, set[str]] = defaultdict(set)
    message_findings: defaultdict[str, set[str]] = defaultdict(set)
    for vector in vectors:
        found = {e["finding"] for _, e in expectations(vector) if "finding" in e}
        codes = CODES[vector.kind]
        for code in found & codes.keys():
            (message_findings if codes is MESSAGE_CODES else record_findings)[code].add(vector.id)
        breaks = {codes[code].requirement for code in found & codes.keys()} - {None}
        for name in breaks | set(vector.requirements):
            about[name].add(vector.id)
        for name in breaks | (set(vector.requirements) if found else set()):
            broken[name].add(vector.id)
        if any(e["verdict"] == "valid" for _, e in expectations(vector)):
            for name in set(vector.requirements) - breaks:
                obeyed[name].add(vector.id)
    links = defaultdict(set)
    for file in files:
        for vector in file.vectors:
            for flag in vector.flags:
                for link in (*file.flags[flag].links, *file.flags[flag].cves):
                    links[link].add(vector.id)
    tables = _read(root / COVERAGE_FILE) if planned else {"families": (), "incidents": ()}
    requirements, documents = load_requirements(root)
    return Coverage(
        requirements=requirements,
        families=tables["families"],
        incidents=tables["incidents"],
        vectors=vectors,
        documents=documents,
        statements=statements.load(root),
        about=_sorted(about),
        obeyed=_sorted(obeyed),
        broken=_sorted(broken),
        findings=_sorted(record_findings),
        message_findings=_sorted(message_findings),
        links=_sorted(links),
    )


def _sorted(sets: Mapping[Any, set[str]]) -> dict[str, list[str]]:
    return {name: sorted(ids) for name, ids in sorted(sets.items())}


def _read(path: Path) -> Any:
    return load_json(read_file(path), str(path))


# --- gaps -----------------------------------------------------------------------------------------------------------


def gaps(coverage: Coverage, repository: Path | None = None) -> Iterator[tuple[str, str]]:
    """All that has no vector: where it is, and a sentence. Paths are looked up in ``repository``, if it is given."""
    for name, entry in coverage.requirements.items():
        if entry["check"] in ("format", "stream", CONVERSATION):
            if not coverage.obeyed.get(name):
                yield REQUIREMENTS_FILE, f"no vector obeys {name}"
            # In a conversation, a client may break a requirement; the vector does not.
            if entry["check"] != CONVERSATION and not coverage.broken.get(name) and "one_sided" not in entry:
                yield REQUIREMENTS_FILE, f"no vector breaks {name}; add one, or say in one_sided why there can be none"
        for test in entry.get("tested", ()):
            if missing_test(repository, test):
                yield REQUIREMENTS_FILE, f"{name}: there is no test {test}"
    for family in coverage.families:
        name = f"{family['class']}, {family['case']}"
        if "vectors" in family:
            for glob in family["vectors"]:
                if not coverage.matching([glob]):
                    yield COVERAGE_FILE, f"{name}: no vector matches {glob}"
        elif "elsewhere" in family:
            if _is_missing(repository, family["elsewhere"]):
                yield COVERAGE_FILE, f"{name}: there is no {family['elsewhere']}"
        elif "why" not in family:
            yield COVERAGE_FILE, f"{name}: neither vectors nor elsewhere nor why"
    for incident in coverage.incidents:
        if not coverage.of_incident(incident):
            yield COVERAGE_FILE, f"no vector stands for {incident['name']}"
    for code in RECORD_CODES:
        if not coverage.findings.get(code):
            yield COVERAGE_FILE, f"no vector has the finding {code}"
    for code in MESSAGE_CODES:
        if not coverage.message_findings.get(code) and code not in WITHOUT_VECTOR:
            yield COVERAGE_FILE, f"no vector of a message has the finding {code}"
    if coverage.statements:
        faults = statements.gaps(
            coverage.statements, coverage.requirements, coverage.about, coverage.documents, repository
        )
        yield from ((STATEMENTS_FILE, fault) for fault in faults)


def _is_missing(repository: Path | None, path: str) -> bool:
    """Whether a test's file is missing; unknown in a copy without tests, then False."""
    return repository is not None and (repository / "tests").is_dir() and not (repository / path).is_file()
