"""Lint: the rules of a suite beyond its schema. Each rule yields problems; none raises."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crc32c

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.kafka import BROKER_RELEASE, KAFKA_3, LATEST, RELEASES
from kfuzz.messages.catalogues import has_same_names
from kfuzz.vectors import coverage, pages
from kfuzz.vectors.building import canonical_json
from kfuzz.vectors.coverage import CODES, expectations, is_plainly_valid
from kfuzz.vectors.ids import REGISTER_FILE, digest_of, registered
from kfuzz.vectors.kinds import CLIENT, CONVERSATION, KINDS
from kfuzz.vectors.model import (
    EXPECTED_DIRECTORY,
    REQUIREMENTS_FILE,
    SuiteFile,
    Vector,
    load_file,
    read_file,
    suite_paths,
)
from kfuzz.wire.io.layout import BATCH_CRC_COVERS_FROM, HEADER_AT, MAGIC_AT, MESSAGE_AT, MESSAGE_CRC_COVERS_FROM
from kfuzz.wire.records.framing import frames

FILE_BYTES_MAX = 8_000_000
# The minimum shares of the suite, in percent.
SMALLEST_SHARES = {"valid": 20, "not valid": 50}
# In these roles, only the latest release is asked.
APPENDING = ("broker", "log")
CHECKS = frozenset({"format", "stream", CONVERSATION, "behaviour", "none"})
# The flag of a vector that turned out to be wrong (docs/suite-policy.md): it stays, but fails no run.
WITHDRAWN = "Withdrawn"
LEVELS = ("must", "should", "may")
LINK = re.compile(r"[A-Za-z][\w.-]*(?: [\w.-]+)? #\d+|[A-Z]+-\d+|https://\S+")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to fix: ``place`` is a file, or a file and a vector's id."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(frozen=True, slots=True)
class Suite:
    """The input of every rule."""

    root: Path
    files: tuple[SuiteFile, ...]
    requirements: Mapping[str, Any]
    documents: Mapping[str, str]

    @property
    def vectors(self) -> Iterator[Vector]:
        return (vector for file in self.files for vector in file.vectors)


def lint(root: Path) -> list[Problem]:
    """All problems of the suite under ``root``, in the order of the rules; empty for a clean suite."""
    problems: list[Problem] = []
    files = []
    for path in suite_paths(root):
        try:
            file = load_file(path)
            # Building a bomb's bytes checks them against size and digest.
            for vector in file.vectors:
                _ = vector.data
            files.append(file)
        except UsageError as error:
            problems.append(Problem(_name(root, path), str(error)))
    requirements, documents = _requirements(root, problems)
    suite = Suite(root, tuple(files), requirements, documents)
    for rule in RULES:
        problems += rule(suite)
    return problems


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _place(suite: Suite, vector: Vector) -> str:
    return f"{_name(suite.root, vector.file)}: {vector.id}"


def _requirements(root: Path, problems: list[Problem]) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    try:
        document = load_json(read_file(root / REQUIREMENTS_FILE), REQUIREMENTS_FILE)
        return {entry["id"]: entry for entry in document["requirements"]}, dict(document["documents"])
    except (UsageError, ValueError, KeyError, TypeError) as error:
        problems.append(Problem(REQUIREMENTS_FILE, f"cannot be read: {error}"))
        return {}, {}


# --- files ----------------------------------------------------------------------------------------------------------


def _canonical_form(suite: Suite) -> Iterator[Problem]:
    for file in suite.files:
        content = read_file(file.path)
        if content != canonical_json(file.document):
            yield Problem(_name(suite.root, file.path), "not in canonical form; run `kfuzz vectors build`")
        if len(content) > FILE_BYTES_MAX:
            text = f"has {len(content)} bytes; at most {FILE_BYTES_MAX} are allowed, so split it"
            yield Problem(_name(suite.root, file.path), text)


def _flags(suite: Suite) -> Iterator[Problem]:
    for file in suite.files:
        place = _name(suite.root, file.path)
        used = {flag for vector in file.vectors for flag in vector.flags}
        for name in sorted(used - file.flags.keys()):
            yield Problem(place, f"the flag {name} is used but not explained")
        for name in sorted(file.flags.keys() - used):
            yield Problem(place, f"the flag {name} is explained but not used")
        for flag in file.flags.values():
            for link in flag.links:
                if not LINK.fullmatch(link):
                    yield Problem(
                        place, f"the link {link!r} of {flag.name} is neither 'project #1', 'KAFKA-1' nor an address"
                    )


def _ids(suite: Suite) -> Iterator[Problem]:
    seen: Counter[str] = Counter(vector.id for vector in suite.vectors)
    for file in suite.files:
        prefix = _name(suite.root, file.path).removesuffix(".json") + "/"
        for vector in file.vectors:
            if seen[vector.id] > 1:
                yield Problem(_place(suite, vector), "the id is given more than once")
            if not vector.id.startswith(prefix):
                yield Problem(_place(suite, vector), f"the id does not begin with its file's path, {prefix}")
            if vector.id.rpartition("/")[2].isdigit():
                yield Problem(_place(suite, vector), "the id ends in a number; give it a name")
        if [vector.id for vector in file.vectors] != sorted(vector.id for vector in file.vectors):
            yield Problem(_name(suite.root, file.path), "the vectors are not sorted by id")


def _permanent(suite: Suite) -> Iterator[Problem]:
    given = registered(suite.root)
    present = {item["id"]: digest_of(item) for file in suite.files for item in file.document["vectors"]}
    for name in sorted(given.keys() - present.keys()):
        yield Problem(REGISTER_FILE, f"the id {name} was given and is gone; ids are permanent, so restore the vector")
    for name in sorted(present.keys() - given.keys()):
        yield Problem(REGISTER_FILE, f"the id {name} is not registered; run `kfuzz vectors build`")
    for name in sorted(present.keys() & given.keys()):
        if given[name] and given[name] != present[name]:
            yield Problem(
                REGISTER_FILE,
                f"the bytes of {name} have changed; give the new bytes a new id"
                " (if no release contains the id yet, remove its line)",
            )


def _withdrawn(suite: Suite) -> Iterator[Problem]:
    for vector in suite.vectors:
        if WITHDRAWN in vector.flags and vector.level != "recommended":
            yield Problem(_place(suite, vector), f"it has the flag {WITHDRAWN}, so its level must be recommended")


def _summaries(suite: Suite) -> Iterator[Problem]:
    for file in suite.files:
        counts = Counter(vector.summary for vector in file.vectors)
        for vector in file.vectors:
            if counts[vector.summary] > 1:
                yield Problem(_place(suite, vector), "another vector of the file has the same summary")


# --- requirements and findings --------------------------------------------------------------------------------------


def _requirement_entries(suite: Suite) -> Iterator[Problem]:
    for name, entry in suite.requirements.items():
        if set(entry) - {"one_sided", "tested", "why"} != {"check", "id", "level", "spec", "text"}:
            text = f"{name} must have check, id, level, spec and text, and may have one_sided, tested and why"
            yield Problem(REQUIREMENTS_FILE, text)
        elif entry["level"] not in LEVELS:
            yield Problem(REQUIREMENTS_FILE, f"{name}: the level {entry['level']!r} is not one of {', '.join(LEVELS)}")
        elif entry["check"] not in CHECKS:
            yield Problem(
                REQUIREMENTS_FILE, f"{name}: the check {entry['check']!r} is not one of {', '.join(sorted(CHECKS))}"
            )
        elif (entry["check"] == "none") != ("why" in entry):
            yield Problem(REQUIREMENTS_FILE, f"{name}: 'why' is required if check is 'none', and otherwise not allowed")
        elif (entry["check"] == "behaviour") != ("tested" in entry):
            text = f"{name}: 'tested' is required if check is 'behaviour', and otherwise not allowed"
            yield Problem(REQUIREMENTS_FILE, text)
        elif "tested" in entry and not (entry["tested"] and isinstance(entry["tested"], list)):
            yield Problem(REQUIREMENTS_FILE, f'{name}: tested is a list of tests, such as ["tests/a.py::test_a"]')
        elif not entry["spec"]:
            yield Problem(REQUIREMENTS_FILE, f"{name} cites no place in the spec")


def _document_keys(suite: Suite) -> Iterator[Problem]:
    cited = {place["document"]: name for name, entry in suite.requirements.items() for place in entry.get("spec", ())}
    for key in sorted(cited.keys() - suite.documents.keys()):
        yield Problem(REQUIREMENTS_FILE, f"{cited[key]} cites the document {key}, which documents does not name")
    for key in sorted(suite.documents.keys() - cited.keys()):
        yield Problem(REQUIREMENTS_FILE, f"documents names {key}, which no requirement cites")


def _cited(suite: Suite) -> Iterator[Problem]:
    for vector in suite.vectors:
        for name in vector.requirements:
            if name not in suite.requirements:
                yield Problem(_place(suite, vector), f"the requirement {name} is not in {REQUIREMENTS_FILE}")
        for _, expectation in expectations(vector):
            finding = expectation.get("finding")
            if finding is not None and finding not in CODES[vector.kind]:
                yield Problem(_place(suite, vector), f"the finding {finding} is unknown")
    for codes in CODES.values():
        for code, meaning in codes.items():
            if meaning.requirement is not None and meaning.requirement not in suite.requirements:
                yield Problem(REQUIREMENTS_FILE, f"{meaning.requirement} is missing; the finding {code} cites it")


# --- vectors --------------------------------------------------------------------------------------------------------


def _layouts(suite: Suite) -> Iterator[Problem]:
    for vector in suite.vectors:
        for place in vector.layout:
            if place["at"] + place["size"] > vector.size:
                yield Problem(_place(suite, vector), f"the layout's {place['field']} ends beyond the bytes")


def _hostile(suite: Suite) -> Iterator[Problem]:
    for vector in suite.vectors:
        verdicts = {expectation["verdict"] for expectation in vector.expect.values()}
        if vector.steps:
            continue
        if verdicts == {"invalid"} and not any(place.get("hostile") for place in vector.layout):
            yield Problem(_place(suite, vector), "it is invalid, but its layout marks no hostile field")


def _budgets(suite: Suite) -> Iterator[Problem]:
    for file in suite.files:
        greedy = {flag.name for flag in file.flags.values() if flag.bug_type == "allocation"}
        for vector in file.vectors:
            verdicts = {expectation["verdict"] for _, expectation in expectations(vector)}
            if vector.budget is None and greedy & set(vector.flags) and verdicts != {"valid"}:
                yield Problem(_place(suite, vector), "it provokes a large allocation but has no budget")


def _kafka_cells(suite: Suite) -> Iterator[Problem]:
    for vector in (vector for vector in suite.vectors if not vector.steps):
        for release, role in _judges(vector):
            said = vector.kafka.get(release, {}).get(role)
            verdict = vector.expect[role]["verdict"]
            who = f"Kafka {release}" + (f" as {role}" if role in APPENDING else "")
            if said is None:
                yield Problem(_place(suite, vector), f"{who} was not asked; run `kfuzz vectors build --confirm`")
            elif (verdict == "valid" and said != "accepted") or (verdict == "invalid" and said == "accepted"):
                yield Problem(_place(suite, vector), f"it is {verdict}, but the answer of {who} is {said}")


def _judges(vector: Vector) -> Iterator[tuple[str, str]]:
    """The releases that must have judged the vector, and the roles."""
    role = KINDS[vector.kind].roles[0]
    for release in RELEASES if role not in (*APPENDING, CLIENT) else ():
        # A release without this message, or with other names for its fields, has no cell.
        if (
            vector.kind != "message"
            or role in vector.kafka.get(release, {})
            or has_same_names(release, vector.options["message"], vector.options["version"])
        ):
            yield release, role
    # For the roles broker and log, kafka-clients runs Kafka's LogValidator and LogSegment in its own process.
    # Conversations need a client and brokers of one release.
    yield from ((LATEST, role) for role in (*APPENDING, CLIENT) if role in vector.expect)


def _stream_cells(suite: Suite) -> Iterator[Problem]:
    for vector in (vector for vector in suite.vectors if vector.kind == "stream"):
        roles = {frozenset(step["expect"]) for step in vector.steps}
        if len(roles) != 1:
            yield Problem(_place(suite, vector), "its steps have expectations for different roles")
            continue
        for role in sorted(*roles):
            verdicts = {step["expect"][role]["verdict"] for step in vector.steps}
            for version in RELEASES:
                said = vector.kafka.get(version, {}).get(role)
                who = f"Kafka {version} as {role}"
                # Kafka 3 has no transaction versions.
                if said is None and not (version == KAFKA_3 and "transaction_version" in vector.options):
                    yield Problem(_place(suite, vector), f"{who} was not asked; run `kfuzz vectors build --confirm`")
                elif ("invalid" in verdicts and said == "accepted") or (verdicts == {"valid"} and said == "rejected"):
                    yield Problem(_place(suite, vector), f"the answer of {who} is {said}, which contradicts its steps")


def _real_broker_cells(suite: Suite) -> Iterator[Problem]:
    who = f"the real broker {BROKER_RELEASE}"
    for vector in suite.vectors:
        said = vector.kafka.get(BROKER_RELEASE, {})
        if vector.kind == "records" and not {"produce", "recovery"} <= said.keys():
            yield Problem(_place(suite, vector), f"{who} was not asked; run `kfuzz vectors build --broker`")
        verdicts = {expectation["verdict"] for role, expectation in expectations(vector) if role == "broker"}
        answer = said.get("produce", "accepted" if "invalid" not in verdicts else "rejected")
        if ("invalid" in verdicts and answer == "accepted") or (verdicts == {"valid"} and answer != "accepted"):
            wanted = ", ".join(sorted(verdicts))
            yield Problem(_place(suite, vector), f"the answer of {who} is {answer}, but the vector is {wanted}")


def _crcs(suite: Suite) -> Iterator[Problem]:
    for vector in suite.vectors:
        if (
            KINDS[vector.kind].batches
            and not _is_about_crc(vector)
            and not all(
                crc_is_right(vector.data[at : at + size]) for at, size, _ in frames(vector.data, any_magic=True)
            )
        ):
            yield Problem(_place(suite, vector), "a CRC is wrong, but the vector is not about the CRC")


def _is_about_crc(vector: Vector) -> bool:
    """Whether a hostile CRC, magic (it decides what the CRC covers) or length explains a wrong CRC."""
    hostile = {place["field"].rpartition(".")[2] for place in vector.layout if place.get("hostile")}
    codes = {expectation.get("finding", "") for _, expectation in expectations(vector)}
    return bool(hostile & {"batch_length", "crc", "magic"}) or any("crc" in code for code in codes)


def crc_is_right(frame: bytes) -> bool:
    """Whether the CRC of one batch or message is right: CRC-32C from magic 2 on, CRC-32 before."""
    if frame[MAGIC_AT] >= 2:
        return frame[HEADER_AT["crc"] :][:4] == crc32c.crc32c(frame[BATCH_CRC_COVERS_FROM:]).to_bytes(4, "big")
    return frame[MESSAGE_AT[0]["crc"] :][:4] == zlib.crc32(frame[MESSAGE_CRC_COVERS_FROM:]).to_bytes(4, "big")


def _balance(suite: Suite) -> Iterator[Problem]:
    # The hostile part of a conversation is not in its bytes.
    judged = (vector for vector in suite.vectors if vector.kind != CONVERSATION)
    counts = Counter("valid" if is_plainly_valid(vector) else "not valid" for vector in judged)
    total = counts.total()
    for name, percent in SMALLEST_SHARES.items():
        if counts[name] * 100 < total * percent:
            yield Problem(
                "the suite", f"only {counts[name]} of {total} vectors are {name}; at least {percent} % must be"
            )


# --- coverage -------------------------------------------------------------------------------------------------------


def _covered(suite: Suite) -> Iterator[Problem]:
    """Everything has a vector, and the pages are current. Skipped if the suite has no coverage tables."""
    if not (suite.root / coverage.COVERAGE_FILE).is_file():
        return
    try:
        measured = coverage.measure(suite.root, suite.files)
        problems = list(coverage.gaps(measured, suite.root.resolve().parent))
    except (UsageError, KeyError, TypeError, AttributeError) as error:
        yield Problem(coverage.COVERAGE_FILE, f"cannot be read: {error}")
        return
    yield from (Problem(place, text) for place, text in problems)
    for page in pages.stale(suite.root, measured):
        yield Problem(page, "is out of date; run `kfuzz vectors build`")


# --- expected outcomes ----------------------------------------------------------------------------------------------


def _expected(suite: Suite) -> Iterator[Problem]:
    vectors = {vector.id: vector for vector in suite.vectors}
    for path in sorted((suite.root / EXPECTED_DIRECTORY).glob("*.txt")):
        try:
            text = read_file(path).decode("utf-8", "replace")
        except UsageError as error:
            yield Problem(_name(suite.root, path), str(error))
            continue
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            # The line `withheld N scrypt:…` stands for outcomes that are not public (docs/testee-protocol.md).
            if not words or words[0] == "withheld":
                continue
            place = f"{_name(suite.root, path)}:{number}"
            reason = line.partition("#")[2].strip()
            if words[0] not in vectors:
                yield Problem(place, f"no vector has the id {words[0]}")
            if not reason or reason.startswith("unexplained"):
                yield Problem(place, "the line gives no reason; add a reason or a link")


Rule = Callable[[Suite], Iterable[Problem]]

RULES: Sequence[Rule] = (
    _canonical_form,
    _flags,
    _ids,
    _permanent,
    _withdrawn,
    _summaries,
    _requirement_entries,
    _document_keys,
    _cited,
    _layouts,
    _hostile,
    _budgets,
    _kafka_cells,
    _stream_cells,
    _real_broker_cells,
    _crcs,
    _balance,
    _covered,
    _expected,
)
