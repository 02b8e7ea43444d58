"""The contents of the page: the matrix and the causes, and the packs of data that its script opens.

The *core* pack has what lists and filters need. A pack for each theme has the bytes, expectations and answers of its
vectors; it is opened when one of them is. The pack *words* explains flags and requirements.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote

from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.judge.compare import ENCODE_ROLE, NOT_ASKED, PRODUCE_ROLE, Case, shortened
from kfuzz.conformance.judge.harm import HARMS
from kfuzz.conformance.judge.matrix import Column, Run
from kfuzz.conformance.protocol.testees import TESTEE_KINDS
from kfuzz.conformance.report.dump import dumped, step_starts
from kfuzz.conformance.report.threads import address_of
from kfuzz.errors import UsageError
from kfuzz.vectors.explaining import Book, Explanation
from kfuzz.vectors.kinds import CLIENT
from kfuzz.vectors.model import Bomb

# Longer contents are left out; `kfuzz show` has the bytes.
CONTENTS_CHARACTERS_MAX: Final = 20_000
# A square's letter: the first letter of a class of harm, all of which differ, or one of these.
WITHHELD: Final = "W"
PASS: Final = "."
UNSUPPORTED: Final = "u"
UNASKED: Final = "-"
OTHER: Final = "?"
LETTERS: Final = {harm.name: harm.name[0].upper() for harm in HARMS}
# A withheld outcome counts as the worst: a published page does not show that it is better than that.
_WORST_FIRST: Final = (WITHHELD, *(LETTERS[harm.name] for harm in HARMS))
WITHHELD_TITLE: Final = "withheld"
WITHHELD_WHY: Final = "a crash, a panic, a hang or a memory fault that is not public yet; it counts as the worst"


@dataclass(frozen=True)
class Square:
    """One square of the matrix: how many answers an implementation gave in a family, by letter."""

    counts: Mapping[str, int]

    @property
    def worst(self) -> str:
        """The letter of the worst class; that of a pass if nothing is wrong; "u" if nothing was answered."""
        return next((letter for letter in (*_WORST_FIRST, OTHER, PASS) if self.counts.get(letter)), UNSUPPORTED)

    @property
    def wrong(self) -> int:
        """The number of wrong answers, including those that are withheld."""
        return sum(self.counts.get(letter, 0) for letter in _WORST_FIRST)

    @property
    def told(self) -> str:
        """The counts in words, worst first."""
        said = [f"{self.counts[letter]} {TITLES[letter]}" for letter in _WORST_FIRST if self.counts.get(letter)]
        said += [f"{self.counts[letter]} {word}" for letter, word in _OTHERS.items() if self.counts.get(letter)]
        return ", ".join(said)


TITLES: Final = {LETTERS[harm.name]: harm.title for harm in HARMS} | {WITHHELD: WITHHELD_TITLE}
_OTHERS: Final = {PASS: "right", UNSUPPORTED: "not supported", UNASKED: "not asked", OTHER: "other"}


class Contents:
    """The contents of the page about ``run``. ``book`` explains the names of its suite."""

    def __init__(self, run: Run, book: Book) -> None:
        self.run = run
        self._book = book
        self._meanings: dict[tuple[str, str], dict[str, str]] = {}

    @cached_property
    def _names(self) -> dict[tuple[str, ...], str]:
        """The name of each cause in addresses, by its key: its id, and a number if it is that of several versions."""
        seen: Counter[str] = Counter()
        names = {}
        for cause in self.run.causes:
            seen[cause.id] += 1
            names[cause.key] = cause.id if seen[cause.id] == 1 else f"{cause.id}-{seen[cause.id]}"
        return names

    def name_of(self, cause: Cause) -> str:
        """The name of a cause in the page's addresses; no other cause of the page has it."""
        return self._names[cause.key]

    @cached_property
    def judged(self) -> list[Column]:
        """The implementations that could be asked: decoders, then whole clients; those with the worst causes first."""
        counts: dict[str, Counter[str]] = {testee.label: Counter() for testee in self.run.testees}
        for cause in self.run.causes:
            for label in cause.implementations:
                counts[label][LETTERS[cause.harm_in(label)]] += 1
        for testee in self.run.testees:
            counts[testee.label][WITHHELD] = testee.totals().get("withheld", 0)
        judged = [testee for testee in self.run.testees if not testee.broken]

        def place(one: Column) -> tuple[int, list[int], str]:
            return (
                list(TESTEE_KINDS).index(one.kind),
                [-counts[one.label][letter] for letter in _WORST_FIRST],
                one.label,
            )

        return sorted(judged, key=place)

    @cached_property
    def headings(self) -> dict[str, str]:
        """The headings of decoders and whole clients, by the first implementation of each; none if all are alike."""
        first = {testee.kind: testee.label for testee in reversed(self.judged)}
        return {label: TESTEE_KINDS[kind] for kind, label in first.items()} if len(first) > 1 else {}

    @cached_property
    def causes_of(self) -> Counter[str]:
        """The number of causes of each implementation."""
        return Counter(label for cause in self.run.causes for label in cause.implementations)

    @cached_property
    def themes(self) -> list[str]:
        """The themes, in the order of the suite. A theme is a vector's id without its last part."""
        return list(dict.fromkeys(_theme(case) for case in self.run.cases))

    @cached_property
    def families(self) -> dict[str, list[str]]:
        """The themes of each family. Its name is the first part of theirs, or the first two if themes have three."""
        deep = {theme.split("/")[0] for theme in self.themes if theme.count("/") > 1}
        families: dict[str, list[str]] = {}
        for theme in self.themes:
            first = theme.split("/")
            families.setdefault("/".join(first[: 2 if first[0] in deep else 1]), []).append(theme)
        return families

    @cached_property
    def _letters(self) -> list[str]:
        """For each case a letter per implementation."""
        return ["".join(_letter(testee, case) for testee in self.judged) for case in self.run.cases]

    def squares(self) -> list[list[Square]]:
        """The matrix: a row per implementation, a square per family."""
        numbers = {theme: i for i, themes in enumerate(self.families.values()) for theme in themes}
        counts = [[Counter[str]() for _ in self.families] for _ in self.judged]
        for case, letters in zip(self.run.cases, self._letters, strict=True):
            for row, letter in zip(counts, letters, strict=True):
                row[numbers[_theme(case)]][letter] += 1
        return [[Square(one) for one in row] for row in counts]

    def by_harm(self) -> list[dict[str, Any]]:
        """The classes of harm, worst first, each with its letter, its causes and its number of answers."""
        answers = Counter(letter for letters in self._letters for letter in letters)
        rows: list[dict[str, Any]] = [
            {
                "name": harm.name,
                "letter": LETTERS[harm.name],
                "title": harm.title,
                "why": harm.to_readers,
                "to_brokers": harm.to_brokers,
                "causes": [cause for cause in self.run.causes if cause.harm == harm.name],
                "answers": answers[LETTERS[harm.name]],
                "implementations": len(
                    {label for c in self.run.causes for label in c.implementations if c.harm_in(label) == harm.name}
                ),
            }
            for harm in HARMS
        ]
        if answers[WITHHELD]:
            some = sum(WITHHELD in {letters[i] for letters in self._letters} for i in range(len(self.judged)))
            words = {"name": WITHHELD_TITLE, "title": WITHHELD_TITLE, "why": WITHHELD_WHY, "to_brokers": WITHHELD_WHY}
            numbers = {"causes": [], "answers": answers[WITHHELD], "implementations": some}
            rows.insert(0, {"letter": WITHHELD, **words, **numbers})
        return rows

    def core(self) -> dict[str, Any]:
        """The data of lists, filters and the matrix."""
        vectors = list({case.vector.id: case.vector for case in self.run.cases}.values())
        numbers = {vector.id: i for i, vector in enumerate(vectors)}
        labels = [testee.label for testee in self.judged]
        keys = {case.key: i for i, case in enumerate(self.run.cases)}
        themes = {theme: i for i, theme in enumerate(self.themes)}
        return {
            "implementations": [[one.label, one.language, self.headings.get(one.label, "")] for one in self.judged],
            "harms": [[one["name"], one["letter"], one["title"]] for one in self.by_harm()],
            "others": _OTHERS,
            "families": [[name, [themes[one] for one in own]] for name, own in self.families.items()],
            "themes": self.themes,
            "vectors": [
                [
                    themes[vector.id.rpartition("/")[0]],
                    vector.id.rpartition("/")[2],
                    vector.summary,
                    " ".join((*vector.requirements, *vector.flags)),
                    *([1] if vector.level == "recommended" else []),
                ]
                for vector in vectors
            ],
            "cases": [[numbers[case.vector.id], case.role, _finding(case)] for case in self.run.cases],
            "letters": self._letters,
            "unexpected": [[keys[key] for key in testee.unexpected if key in keys] for testee in self.judged],
            "causes": [
                [
                    self.name_of(cause),
                    [
                        [
                            labels.index(label),
                            [keys[one.input, one.role] for one in cause.deviations if one.implementation == label],
                        ]
                        for label in cause.implementations
                    ],
                    LETTERS[cause.harm],
                ]
                for cause in self.run.causes
            ],
        }

    def words(self) -> dict[str, Any]:
        """The explanations of all flags and requirements that the vectors name."""
        vectors = {case.vector.id: case.vector for case in self.run.cases}.values()
        words: dict[str, Any] = {"flags": {}, "requirements": {}}
        for name in sorted({one for vector in vectors for one in vector.flags}):
            if found := self._explained(name, "flag"):
                flag = found.flags[0]
                links = [[link, address_of(link)] for link in (*flag.links, *flag.cves)]
                words["flags"][name] = [flag.bug_type, flag.description, flag.effect, links]
        for name in sorted({one for vector in vectors for one in vector.requirements}):
            if found := self._explained(name, "requirement"):
                facts = [text for title, text in found.facts if title == "source"]
                level = next(text for title, text in found.facts if title == "level")
                words["requirements"][name] = [level, found.what[0], facts]
        return words

    def _explained(self, name: str, kind: str) -> Explanation | None:
        """None for a name that the tables lack, as a suite of somebody's own may have."""
        try:
            return next((one for one in self._book.explain(name) if one.kind == kind and one.name == name), None)
        except UsageError:
            return None

    def themed(self) -> list[dict[str, Any]]:
        """A pack per theme: its vectors' bytes and its cases, both by their numbers, and the different answers."""
        numbers = {theme: i for i, theme in enumerate(self.themes)}
        packs: list[dict[str, Any]] = [{"vectors": {}, "cases": {}, "answers": []} for _ in self.themes]
        seen: list[dict[str, int]] = [{} for _ in self.themes]
        vectors: dict[str, int] = {}
        for i, case in enumerate(self.run.cases):
            theme = numbers[_theme(case)]
            pack, answers = packs[theme], seen[theme]
            if case.vector.id not in vectors:
                vectors[case.vector.id] = len(vectors)
                pack["vectors"][vectors[case.vector.id]] = dumped(case.vector)
            given = []
            for testee in self.judged:
                answer = _answers(testee, case)
                text = json.dumps(answer, sort_keys=True)
                if text not in answers:
                    answers[text] = len(answers)
                    pack["answers"].append(answer)
                given.append(answers[text])
            pack["cases"][i] = _question(case) | self._meaning(case) | {"answers": given}
        return packs

    def _meaning(self, case: Case) -> dict[str, str]:
        """The meaning of the finding that refuses the bytes."""
        # Some codes are those of records and of messages, with other sentences.
        kind = "finding of messages" if case.vector.kind in ("message", "primitive") else "finding of record batches"
        code = _finding(case)
        if code and (code, kind) not in self._meanings:
            found = self._explained(code, kind)
            self._meanings[code, kind] = {"meaning": found.what[0]} if found else {}
        return self._meanings[code, kind] if code else {}


def packed(value: Any) -> str:
    """The value as JSON, compressed with gzip, in base64: what the page's script opens."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half of a surrogate pair, in an answer's contents, becomes JSON's escape.
    data = text.encode("utf-8", "backslashreplace")
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def fragment(**state: str) -> str:
    """The part of the page's address that holds a state, as the script writes it; its names must be in its order."""
    return "#" + "&".join(f"{name}={quote(value, safe='/@:!~*')}" for name, value in state.items())


def _theme(case: Case) -> str:
    return case.vector.id.rpartition("/")[0]


def _letter(testee: Column, case: Case) -> str:
    shown, cell = testee.shown(case.key), testee.cells[case.key]
    if shown == "withheld":
        return WITHHELD
    if cell.harm:
        return LETTERS[cell.harm]
    return {"pass": PASS, "unsupported": UNSUPPORTED, NOT_ASKED: UNASKED}.get(shown, OTHER)


def _finding(case: Case) -> str:
    """The finding that refuses the bytes."""
    return str(case.expectation.get("finding", "")) if case.role != ENCODE_ROLE else ""


def _answers(testee: Column, case: Case) -> list[Any]:
    """An implementation's outcome, its standing, its text, the reason, and its answer; none of it if it is withheld."""
    standing, cell = testee.standings[case.key], testee.cells[case.key]
    told: list[Any] = [testee.shown(case.key), standing.status]
    if not testee.hides(case.key):
        told += [cell.text, standing.reason, shortened(cell.answer)]
    while not told[-1]:
        told.pop()
    return told


# `kfuzz show` opens these.
BYTES_OF_CONVERSATIONS: Final = ("given", "frames")
# The duty of each role with bytes that it does not refuse.
_ACCEPT: Final = {
    "consumer": "accept, and read these contents",
    "broker": "append, and store these contents",
    "log": "keep a segment with these contents",
    "reader": "accept, and read these contents",
    PRODUCE_ROLE: "send exactly these contents",
    CLIENT: "act in this way",
}


def _question(case: Case) -> dict[str, Any]:
    """The question and the expected answer, without empty members."""
    expectation, options = case.expectation, case.vector.options
    shown = [(name.replace("_", " "), value) for name, value in options.items() if name not in BYTES_OF_CONVERSATIONS]
    settings = [f"{name}: {json.dumps(value)}" for name, value in shown]
    if case.vector.kind == "stream":
        settings.insert(0, "steps begin at bytes " + ", ".join(f"{at:#x}" for at in step_starts(case.vector)))
    asked = {
        "verdict": _verdict(case),
        "settings": " · ".join(settings),
        "kafka": _kafka(case),
        "budget": _budget(case.vector.budget or {}),
        "consumed": expectation.get("consumed") if case.role != ENCODE_ROLE else None,
        "partial": bool(expectation.get("partial_tail")) and case.role != ENCODE_ROLE,
    }
    # A bomb's contents are made by its recipe, and are as large as its bytes.
    if not isinstance(case.vector.source, Bomb):
        contents = [_contents(expectation), *(_contents(one) for one in expectation.get("alternatives", ()))]
        kept = [one for one in contents if one is not None and len(json.dumps(one)) <= CONTENTS_CHARACTERS_MAX]
        asked |= {"contents": kept, "long": any(one is not None for one in contents) and not kept}
    return {name: value for name, value in asked.items() if value not in (None, "", False, [])}


def _budget(budget: Mapping[str, int]) -> str:
    """The budget of an answer, as a sentence; empty without one."""
    told = [f"{budget['memory_bytes'] / 2**20:.4g} MiB of memory"] if "memory_bytes" in budget else []
    told += [f"{budget['cpu_ms'] / 1000:g} s of CPU time"] if "cpu_ms" in budget else []
    return f"An answer may take {' and '.join(told)}." if told else ""


def _contents(expectation: Any) -> Any:
    """The contents that must be read, for any kind of vector."""
    if not isinstance(expectation, Mapping):
        return expectation
    names = ("batches", "steps", "message", "value", "acts")
    return next((expectation[name] for name in names if name in expectation), None)


def _verdict(case: Case) -> str:
    if case.role == ENCODE_ROLE:
        return "encode these contents" + (", to exactly the vector's bytes" if case.vector.canonical else "")
    expectation = case.expectation
    if case.vector.kind == "stream":
        return "each step as listed" + (", or a refusal" if expectation["verdict"] == "acceptable" else "")
    accept = _ACCEPT[case.role]
    if more := len(expectation.get("alternatives", ())):
        accept += f", or {'another reading' if more == 1 else f'{more} other readings'}"
    return {"valid": accept, "invalid": "refuse", "acceptable": f"refuse, or {accept}"}[expectation["verdict"]]


def _kafka(case: Case) -> list[str]:
    """The outcome of each Kafka release in the question's role, as the vector file records it."""
    told = []
    for version, cells in case.vector.kafka.items():
        if case.role in cells:
            told.append(f"Apache Kafka {version}: {cells[case.role]}")
        if case.role == "broker" and "produce" in cells:
            words = [cells[name] for name in ("produce", "error") if name in cells]
            told.append(f"a broker {version}: {', '.join(words)}")
        if case.role == "log" and "recovery" in cells:
            told.append(f"a broker {version} at start: {cells['recovery']}")
    return told
