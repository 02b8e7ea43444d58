"""The Python blocks of the documentation's pages print what the pages show."""

from __future__ import annotations

import doctest
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from conftest import require_tool
from docs.pages import PAGES, ROOT, shows
from docs.samples import environment, make_place
from programs import run_program

from kfuzz.vectors import load_suite
from kfuzz.vectors.recipes import theme
from kfuzz.vectors.recipes.making import builder

BLOCK: Final = re.compile(r"^```python\n(>>> .*?)^```$", re.MULTILINE | re.DOTALL)
# A program, and the block after it: its output.
PROGRAM: Final = re.compile(
    r"^```python\n(?!>>> )(.*?)^```$(?:\n\n```(?:text)?\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
TEXTS: Final = {page: (ROOT / page).read_text() for page in PAGES}
EXAMPLES: Final = {page: blocks for page, text in TEXTS.items() if (blocks := BLOCK.findall(text))}
# Pages whose programs another test runs.
ELSEWHERE: Final = {
    "README.md": "tests/docs/test_commands.py::test_the_library_examples_of_the_readme_run",
    "testees/README.md": "tests/docs/test_commands.py::test_the_commands_of_a_page_run_and_print_what_it_shows",
    "docs/client-tests.md": "tests/docs/test_client_pages.py::test_a_python_section_prints_what_it_shows",
    "docs/dataframes.md": "tests/corpora/test_corpus_logs.py::test_the_examples_of_the_guide_print_what_it_shows",
    "docs/fuzzing.md": "tests/fuzz/test_fuzz_clients.py::test_the_driver_of_the_page_drives_a_client",
    "docs/serve.md": "tests/serve/test_serve.py::test_the_program_of_the_documentation_prints_what_the_page_shows",
    "docs/vectors.md": "tests/docs/test_page_examples.py::test_the_recipe_of_the_page_makes_the_committed_vector",
}
# Pages whose programs take long, and what these need.
SLOW: Final = {"docs/probe.md": ("go",), "docs/real-broker.md": ("java", "mvn"), "docs/strategies.md": ()}
TIMEOUT_S: Final = 300


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_examples_of_the_page_hold(page: str) -> None:
    # All blocks of a page share their names, as if a reader typed them in order.
    examples = doctest.DocTestParser().get_doctest("\n".join(EXAMPLES[page]), {}, page, page, 0)
    assert doctest.DocTestRunner().run(examples).failed == 0


def _programs() -> list[Any]:
    return [
        pytest.param(page, program, output, id=f"{page}-{number}", marks=[pytest.mark.full] if page in SLOW else [])
        for page, text in TEXTS.items()
        if page not in ELSEWHERE
        for number, (program, output) in enumerate(PROGRAM.findall(text))
    ]


@pytest.mark.parametrize(("page", "program", "output"), _programs())
def test_the_programs_of_the_page_print_what_it_shows(page: str, program: str, output: str, tmp_path: Path) -> None:
    assert output, f"{page} shows no output of: {program}"
    for name in SLOW.get(page, ()):
        require_tool(name, "install it")
    make_place(tmp_path)
    (tmp_path / "program.py").write_text(program)
    done = run_program(sys.executable, "program.py", cwd=tmp_path, env=environment(), timeout=TIMEOUT_S)
    assert shows(output, done.stdout), done.stdout


def test_programs_that_another_test_runs_have_that_test() -> None:
    for page, test in ELSEWHERE.items():
        path, _, name = test.partition("::")
        assert PROGRAM.search(TEXTS[page])
        assert f"def {name}(" in (ROOT / path).read_text(), test


def test_the_recipe_of_the_page_makes_the_committed_vector() -> None:
    [(recipe, _)] = PROGRAM.findall(TEXTS["docs/vectors.md"])
    made = theme.Theme("records/v2/count", "The record count.")
    exec(recipe, {**vars(builder), **vars(theme), "made": made})
    [found] = made.recipes
    [committed] = load_suite("records/v2/count/negative-one")
    assert found.data == committed.data
    assert found.document["id"] == committed.id
    assert found.document["summary"] == committed.summary


def test_the_page_about_installation_names_every_extra() -> None:
    table = "\n".join(line.split("|")[1] for line in TEXTS["docs/install.md"].splitlines() if line.startswith("| `"))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"`(\w+)`", table)) == set(extras)
