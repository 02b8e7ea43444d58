"""Coverage: which vectors stand for each requirement, for Kafka's own test cases, for each incident and each finding.

``vectors/coverage.json`` holds what nobody can derive: the families of cases in Kafka's tests and the incidents, each
with what the vectors about it are. From it and the suite :func:`document` makes ``docs/coverage.md``, and :func:`gaps`
says what has no vector.
"""

from __future__ import annotations

import fnmatch
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, write_whole
from kfuzz.findings import Code
from kfuzz.messages.codec import CODES as MESSAGE_CODES
from kfuzz.records import CODES as RECORD_CODES
from kfuzz.vectors.model import KINDS, REQUIREMENTS_FILE, SuiteFile, Vector, load_files

__all__ = [
    "CODES",
    "COVERAGE_FILE",
    "Coverage",
    "document",
    "expectations",
    "gaps",
    "is_plainly_valid",
    "is_stale",
    "measure",
    "write",
]

COVERAGE_FILE = "coverage.json"
# What a vector of each kind may find. Some words stand in both tables.
TABLES: Mapping[str, Mapping[str, Code]] = {"records": RECORD_CODES, "messages": MESSAGE_CODES}
CODES = {kind.name: TABLES[kind.findings] for kind in KINDS.values()}
# Findings of messages that no vector has, and why.
WITHOUT_VECTOR = {
    "count-too-large": "takes a megabyte; tested by `tests/messages/test_codec.py`",
    "nested-too-deep": "no definition of Kafka's nests so deep; tested by `tests/messages/test_codec.py`",
    "tag-unknown": "nobody may refuse for it; the vectors `messages/tags/*-unknown` are valid",
    "tag-count-too-large": "takes ten thousand tags; tested by `tests/messages/test_codec.py`",
}
# So many ids stand in a cell of the tables; the rest is counted.
SHOWN = 3

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Coverage:
    """What stands for what: ids of vectors, sorted, by requirement (either side), finding, incident and family."""

    requirements: Mapping[str, Json]
    families: Sequence[Json]
    incidents: Sequence[Json]
    vectors: tuple[Vector, ...]
    obeyed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    broken: Mapping[str, Sequence[str]] = field(default_factory=dict)
    findings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    message_findings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    links: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def matching(self, globs: Iterable[str]) -> list[str]:
        """The ids that any of the globs matches."""
        patterns = list(globs)
        return sorted(v.id for v in self.vectors if any(fnmatch.fnmatchcase(v.id, glob) for glob in patterns))

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


def measure(root: Path, files: Sequence[SuiteFile] | None = None) -> Coverage:
    """What the suite under ``root`` covers; raises ``UsageError`` where its tables cannot be read."""
    files = load_files(root) if files is None else files
    vectors = tuple(sorted((v for file in files for v in file.vectors), key=lambda v: v.id))
    obeyed, broken = defaultdict(set), defaultdict(set)
    record_findings: defaultdict[str, set[str]] = defaultdict(set)
    message_findings: defaultdict[str, set[str]] = defaultdict(set)
    for vector in vectors:
        found = {e["finding"] for _, e in expectations(vector) if "finding" in e}
        codes = CODES[vector.kind]
        for code in found & codes.keys():
            (message_findings if codes is MESSAGE_CODES else record_findings)[code].add(vector.id)
        breaks = {codes[code].requirement for code in found & codes.keys()} - {None}
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
    tables = _read(root / COVERAGE_FILE)
    return Coverage(
        requirements={entry["id"]: entry for entry in _read(root / REQUIREMENTS_FILE)["requirements"]},
        families=tables["families"],
        incidents=tables["incidents"],
        vectors=vectors,
        obeyed=_sorted(obeyed),
        broken=_sorted(broken),
        findings=_sorted(record_findings),
        message_findings=_sorted(message_findings),
        links=_sorted(links),
    )


def _sorted(sets: Mapping[Any, set[str]]) -> dict[str, list[str]]:
    return {name: sorted(ids) for name, ids in sorted(sets.items())}


def _read(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path))
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error}); mend the syntax") from None


# --- gaps -----------------------------------------------------------------------------------------------------------


def gaps(coverage: Coverage, repository: Path | None = None) -> Iterator[tuple[str, str]]:
    """What has no vector: where it stands, and a sentence. Paths are looked up in ``repository``, if it is given."""
    for name, entry in coverage.requirements.items():
        if entry["check"] in ("format", "stream"):
            if not coverage.obeyed.get(name):
                yield REQUIREMENTS_FILE, f"no vector obeys {name}"
            if not coverage.broken.get(name) and "one_sided" not in entry:
                yield REQUIREMENTS_FILE, f"no vector breaks {name}; add one, or say in one_sided why there can be none"
        elif "tested" in entry and _is_missing(repository, entry["tested"]):
            yield REQUIREMENTS_FILE, f"{name}: there is no {entry['tested']}"
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


def _is_missing(repository: Path | None, path: str) -> bool:
    """Whether a test's file is not there; in a copy without tests nobody can tell."""
    return repository is not None and (repository / "tests").is_dir() and not (repository / path).is_file()


# --- the document ---------------------------------------------------------------------------------------------------


def document_path(root: Path) -> Path | None:
    """Where the document of the suite under ``root`` stands: in the docs beside it, where there are any."""
    docs = root.resolve().parent / "docs"
    return docs / "coverage.md" if docs.is_dir() else None


def is_stale(root: Path, measured: Coverage | None = None) -> bool:
    """Whether the document is not what the suite under ``root`` makes; never of a suite without the tables."""
    path = document_path(root)
    if path is None or not (root / COVERAGE_FILE).is_file():
        return False
    return not path.is_file() or read_bytes(path) != document(measured or measure(root))


def write(root: Path) -> None:
    """Write the document beside the suite under ``root``, where there are docs and tables for it."""
    path = document_path(root)
    if path is not None and is_stale(root):
        write_whole(path, document(measure(root)))


def document(coverage: Coverage) -> bytes:
    """``docs/coverage.md``."""
    parts = [_head(coverage), _requirements(coverage), _families(coverage), _incidents(coverage)]
    parts += [_findings(coverage), _message_findings(coverage)]
    return "\n".join(parts).encode()


def _head(coverage: Coverage) -> str:
    kinds = Counter(vector.kind for vector in coverage.vectors)
    verdicts = Counter(v.expect["consumer"]["verdict"] for v in coverage.vectors if v.kind == "records")
    read = Counter(v.expect["reader"]["verdict"] for v in coverage.vectors if CODES[v.kind] is MESSAGE_CODES)
    plain = sum(map(is_plainly_valid, coverage.vectors))
    total = len(coverage.vectors)
    counted = ", ".join(f"{kinds[kind]} of kind {kind}" for kind in KINDS)
    return f"""# What the golden suite covers

Written by `kfuzz vectors build` from the suite and `vectors/coverage.json`; `kfuzz vectors lint` fails at a gap.

{total} vectors: {counted}. To a consumer {verdicts["valid"]} are valid, {verdicts["acceptable"]} acceptable and
{verdicts["invalid"]} invalid; to a reader of messages and primitives {read["valid"]}, {read["acceptable"]}
and {read["invalid"]}.
{(total - plain) * 100 // total} % of all are not plainly valid to every role.
"""


def _cell(ids: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in ids[:SHOWN])
    return shown + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")


def _table(title: str, about: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"## {title}", "", about, "", _row(columns), _row(["---"] * len(columns))]
    return "\n".join([*lines, *map(_row, rows), ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _requirements(coverage: Coverage) -> str:
    rows = []
    for name, entry in coverage.requirements.items():
        obeyed, broken = _cell(coverage.obeyed.get(name, ())), _cell(coverage.broken.get(name, ()))
        if entry["check"] == "none":
            obeyed = broken = f"not checked: {entry['why']}"
        elif entry["check"] == "behaviour":
            obeyed = broken = f"tested by `{entry['tested']}`"
        elif not broken:
            broken = f"none: {entry['one_sided']}" if "one_sided" in entry else ""
        rows.append([name, entry["level"], entry["text"], entry["check"], obeyed, broken])
    about = (
        "`vectors/requirements.json` says where each stands in the documents. What the documents define without must,"
        " should or may counts as must. The right column has vectors with a finding, of any role."
    )
    return _table("Requirements", about, ["id", "level", "says", "checked by", "obeyed by", "broken by"], rows)


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
        "Classes of Apache Kafka's own tests and the kinds of cases in them. Bytes and words are ours: neither data nor"
        " code is Kafka's."
    )
    return _table("Kafka's own test cases", about, ["class", "kind of case", "vectors"], rows)


def _incidents(coverage: Coverage) -> str:
    rows = [
        [incident["name"], incident["fault"], _cell(coverage.of_incident(incident))] for incident in coverage.incidents
    ]
    about = "Public reports of readers that failed. The flags of the vectors link those whose threads were read."
    return _table("Incidents", about, ["where", "kind of fault", "vectors"], rows)


def _findings(coverage: Coverage) -> str:
    about = "Each code that kfuzz's reader, broker rules and stream rules give, and the vectors that expect it."
    return _finding_table("Findings", about, RECORD_CODES, coverage.findings)


def _message_findings(coverage: Coverage) -> str:
    about = "The same of messages."
    return _finding_table("Findings of messages", about, MESSAGE_CODES, coverage.message_findings)


def _finding_table(title: str, about: str, codes: Mapping[str, Code], found: Mapping[str, Sequence[str]]) -> str:
    rows = []
    for code, meaning in codes.items():
        ids = _cell(found.get(code, ())) or f"none: {WITHOUT_VECTOR.get(code, '')}"
        rows.append([f"`{code}`", meaning.requirement or "", ids])
    return _table(title, about, ["code", "requirement", "vectors"], rows)
