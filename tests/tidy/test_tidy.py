"""The repository itself: no file or name that nothing uses, no link or id that leads nowhere, no room too large."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from conftest import missing

from kfuzz import kafka
from kfuzz.vectors.ids import registered
from tools import words as prose
from tools.coverage.__main__ import UNREACHABLE
from tools.layers import ROOT, circles, undocumented, upward

# Data that is found by its folder, and files that a tool finds by their names.
FOUND_BY_FOLDER = (
    "vectors/", "corpus/", "kfuzz/messages/definitions/", "kfuzz/vectors/recipes/themes/", "tests/", "examples/",
    "testees/", "spark_jobs/workloads/", "fuzzers/", "packages/",
)  # fmt: skip
FOUND_BY_NAME = {
    "Makefile",
    "__init__.py",
    "__main__.py",
    ".gitignore",
    "MANIFEST.in",
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
}
# Files that a command makes and git ignores.
MADE = {"benchmarks/results.csv", "benchmarks/results.svg"}
LINES_MAX = 900


@cache
def tracked() -> tuple[Path, ...]:
    """The files that git tracks."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        missing("git's index", "run this in a clone")
    return tuple(path for line in done.stdout.splitlines() if (path := ROOT / line).is_file())


@cache
def text_of(path: Path) -> str:
    return path.read_text(errors="replace")


@cache
def words() -> Counter[str]:
    """How often each word stands in what people write; not in the vectors."""
    written = (path for path in tracked() if not path.relative_to(ROOT).as_posix().startswith(("vectors/", "corpus/")))
    return Counter(word for path in written for word in re.findall(r"\w+", text_of(path)))


def documents() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


def test_every_file_is_named_by_another() -> None:
    texts = {path: text_of(path) for path in tracked() if path.suffix != ".json"}
    alone = []
    for path in tracked():
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(FOUND_BY_FOLDER) or path.name in FOUND_BY_NAME:
            continue
        name = path.stem if path.suffix in (".py", ".pyx", ".pxd", ".pyi") else path.name
        wanted = re.compile(rf"(?<![\w]){re.escape(name)}(?!\w)")
        # The search for a plain string leaves few texts to the slower pattern.
        if not any(name in text and wanted.search(text) for other, text in texts.items() if other != path):
            alone.append(place)
    assert alone == []


def test_every_line_that_coverage_leaves_out_has_a_reason() -> None:
    wrong = []
    for path in tracked():
        if path.suffix in (".pyx", ".pxd", ".h", ".c") and path.is_relative_to(ROOT / "kfuzz"):
            for number, line in enumerate(text_of(path).splitlines(), 1):
                # Three words at least, at the end of a line with code. gcovr knows marks of its own, without reasons.
                reason = re.match(UNREACHABLE + r"\S*( \S+){2}", line)
                if ("unreachable:" in line and not reason) or "_EXCL_" in line:
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert wrong == []


def test_every_name_of_a_module_is_used() -> None:
    dead = []
    for path in tracked():
        if path.suffix == ".py" and path.is_relative_to(ROOT / "kfuzz"):
            body = ast.parse(text_of(path)).body
            # A decorator may keep a function: click's commands.
            names = [
                node.name
                for node in body
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list
            ]
            for node in body:
                targets = node.targets if isinstance(node, ast.Assign) else []
                if isinstance(node, ast.AnnAssign):
                    targets = [node.target]
                names += [target.id for target in targets if isinstance(target, ast.Name)]
            # Once where it is defined; an entry in __all__ is no use.
            dead += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in names
                if words()[name] - (f'"{name}"' in exported(path)) < 2 and name != "__all__"
            ]
    assert dead == []


def exported(path: Path) -> str:
    found = re.search(r"^__all__ = (\[.*?\])", text_of(path), re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def test_links_of_documents_lead_somewhere() -> None:
    lost = []
    for path in documents():
        for link in re.findall(r"\]\(([^)#:\s]+)[^):]*\)", text_of(path)):
            if not (path.parent / link).exists():
                lost.append(f"{path.relative_to(ROOT)}: {link}")
    assert lost == []


def test_paths_in_documents_are_there() -> None:
    lost = []
    folders = {path.relative_to(ROOT).parts[0] for path in tracked() if len(path.relative_to(ROOT).parts) > 1}
    for path in documents():
        if path.name == "CHANGELOG.md":
            continue
        for place in re.findall(r"`([\w.-]+/[\w./-]+)`", text_of(path)):
            there = any((base / place).exists() for base in (ROOT, path.parent)) or place in MADE
            if place.split("/")[0] in folders and not there and place not in registered(ROOT / "vectors"):
                lost.append(f"{path.relative_to(ROOT)}: {place}")
    assert lost == []


def test_ids_of_vectors_in_what_people_read_exist() -> None:
    ids = registered(ROOT / "vectors")
    lost = []
    for path in tracked():
        place = path.relative_to(ROOT).as_posix()
        if path.suffix in (".md", ".py") and place.startswith(("docs/", "README", "kfuzz/cli/", "testees/")):
            for one in re.findall(r"(?<![\w/])(?:records|stream|messages|primitives)/[\w*-]+/[\w*/-]+", text_of(path)):
                fixed = one.split("*")[0].rstrip("/")
                if not any(name.startswith(fixed) for name in ids):
                    lost.append(f"{place}: {one}")
    assert lost == []


def test_modules_in_documents_can_be_imported() -> None:
    lost = []
    for path in documents():
        if path.name == "CHANGELOG.md":
            continue
        for dotted in sorted(set(re.findall(r"`(kfuzz(?:\.\w+)+)`", text_of(path)))):
            if not importable(dotted):
                lost.append(f"{path.relative_to(ROOT)}: {dotted}")
    assert lost == []


def importable(dotted: str) -> bool:
    """Whether the name is a module, or something in one."""
    module, _, name = dotted.rpartition(".")
    try:
        importlib.import_module(dotted)
    except ImportError:
        if not module:
            return False
        try:
            return hasattr(importlib.import_module(module), name)
        except ImportError:
            return "." in module and importable(module)
    return True


def test_no_file_of_the_house_is_too_long() -> None:
    sources = (path for path in tracked() if path.is_relative_to(ROOT / "kfuzz") and path.suffix in (".py", ".pyx"))
    assert {
        path.relative_to(ROOT).as_posix(): count for path in sources if (count := text_of(path).count("\n")) > LINES_MAX
    } == {}


def test_releases_of_kafka_are_named_in_one_module() -> None:
    releases = {*kafka.RELEASES, kafka.BROKER_RELEASE}
    found = []
    for path in tracked():
        if path.suffix == ".py" and path.is_relative_to(ROOT / "kfuzz") and path.name != "kafka.py":
            constants = (node.value for node in ast.walk(ast.parse(text_of(path))) if isinstance(node, ast.Constant))
            found += [f"{path.relative_to(ROOT)}: {value}" for value in constants if value in releases]
    assert found == []


def test_imports_of_compiled_modules_go_down() -> None:
    assert list(upward()) == []
    assert list(undocumented()) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("wire/new.pyx", "from kfuzz.records.model import Record"),
        ("records/new.pxd", "cimport kfuzz.mutate.dice"),
        ("wire/io/new.pyx", "from kfuzz.wire.walk.scan cimport Scan"),
    ],
)
def test_an_import_that_goes_up_is_reported(tmp_path: Path, file: str, line: str) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    path = tmp_path / "kfuzz" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"\n{line}\n")
    [told] = upward(tmp_path)
    assert told.startswith(f"kfuzz/{file}:2: {file.rpartition('/')[0]}/ may not import ")


def test_no_modules_import_each_other() -> None:
    assert list(circles()) == []


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        ("one.py: def f():\n    from kfuzz import two", "two.py: from kfuzz.one import f", True),
        ("one.py: from kfuzz.two import g", "two.pyx: from kfuzz.one cimport (\n    f,\n)", True),
        ("one.py: if TYPE_CHECKING:\n    from kfuzz import two", "two.py: from kfuzz.one import f", False),
    ],
)
def test_a_circle_is_told_unless_it_is_for_types(tmp_path: Path, here: str, there: str, told: bool) -> None:
    (tmp_path / "kfuzz").mkdir()
    for one in (here, there):
        name, _, text = one.partition(": ")
        (tmp_path / "kfuzz" / name).write_text(text)
    assert [sentence.split(": ")[0] for sentence in circles(tmp_path)] == ["these modules import each other"] * told


@pytest.mark.parametrize(
    ("file", "line", "asks"),
    [
        ("docs/a.md", "It stands behind the batch.", "instead of `behind`"),
        ("docs/a.md", "Read it. What a broker stores is equal.", "the thing that acts"),
        ("docs/a.md", "* **Who writes** must read.", "the thing that acts"),
        ("kfuzz/a.py", '    """What the reader gives."""', "the thing that acts"),
        ("kfuzz/a.pyx", "    n = 0  # Who is first waits", "the thing that acts"),
        ("kfuzz/a.h", "/* What the loop keeps. */", "the thing that acts"),
        ("docs/a.md", "## What never changes", ""),
        ("docs/a.md", "What is in the file?", ""),
        ("docs/a.md", "`crc-of-length-behind`", ""),
        ("kfuzz/a.py", "# Says what the reader gives.", ""),
    ],
)
def test_lint_finds_words_that_a_newcomer_stumbles_over(file: str, line: str, asks: str) -> None:
    found = list(prose.problems(file, f"\n{line}\n"))
    assert [(one.startswith(f"{file}:2: "), asks in one) for one in found] == [(True, True)] * bool(asks)


def test_children_that_run_kfuzz_or_pip_import_nothing_from_the_current_folder() -> None:
    """A file ``kfuzz.py`` there would run in their place."""
    run = re.compile(r"""(?P<safe>-P["',\s]+)?-m["',\s]+(?:kfuzz|pip|venv)\b""")
    starts = re.compile(r"sys\.executable|subprocess|PIP\b|exec ")
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ("kfuzz", "tools", "testees", "spark_jobs")
        for line in text_of(path).splitlines()
        if starts.search(line) and (found := run.search(line)) and not found["safe"]
    ]
    assert not wrong


def test_no_function_is_called_as_its_module() -> None:
    same = []
    for path in tracked():
        if path.suffix == ".py" and path.is_relative_to(ROOT / "kfuzz"):
            names = [node.name for node in ast.parse(text_of(path)).body if isinstance(node, ast.FunctionDef)]
            if path.stem in names and path.stem != "main":
                same.append(path.relative_to(ROOT).as_posix())
    assert same == []
