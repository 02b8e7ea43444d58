"""A bomb is made when its bytes are asked for, never because the suite was loaded. Makers are counted, not timed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_driver import kfuzz

from kfuzz.errors import UsageError
from kfuzz.vectors import KINDS, Bomb, find_vector, load_files, load_suite
from kfuzz.vectors.model import default_root
from kfuzz.vectors.recipes.making import bombs
from kfuzz.vectors.recipes.making.builder import Raw

MANY = "records/v2/bomb/records-131071"
MANY_HEADERS = "records/v2/header-count/true-65536-zstd"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each bomb was made since the test began."""
    counts: Counter[str] = Counter()

    def counted(name: str, maker: Callable[[], Raw]) -> Callable[[], Raw]:
        def make() -> Raw:
            counts[name] += 1
            return maker()

        return make

    for table in (bombs.RAWS, bombs.MANY_HEADERS, bombs.LARGE):
        for name, maker in table.items():
            monkeypatch.setitem(table, name, counted(name, maker))
    # The bombs of earlier tests are forgotten, or nothing would be counted.
    bombs.raw_of.cache_clear()
    yield counts
    bombs.raw_of.cache_clear()


def test_loading_the_suite_makes_no_bomb(made: Counter[str]) -> None:
    vectors = [*load_suite(kinds=KINDS), *(vector for file in load_files() for vector in file.vectors)]
    vectors += [find_vector(vector.id) for vector in load_suite("records/v2/bomb/*")]
    for vector in vectors:
        assert vector.size >= 0
        assert all("verdict" in expectation for expectation in vector.expect.values())
    assert {vector.source.recipe for vector in vectors if isinstance(vector.source, Bomb)} == bombs.BOMBS.keys()
    assert not made


def test_a_vector_makes_its_own_bytes_and_no_other(made: Counter[str]) -> None:
    vector = find_vector("records/v2/bomb/zstd-value-96mib")
    assert len(vector.data) == vector.size
    assert made == {"zstd-value-96mib": 1}


@pytest.mark.parametrize(
    ("name", "recipe", "counts"),
    [(MANY, "records-131071", (131_071, 0)), (MANY_HEADERS, "headers-65536-zstd", (1, 65_536))],
)
def test_contents_that_the_file_has_the_digest_of_are_made_when_they_are_asked_for(
    name: str, recipe: str, counts: tuple[int, int], made: Counter[str]
) -> None:
    expectation = find_vector(name).expect["consumer"]
    assert (expectation["verdict"], expectation.get("finding"), "batches" in expectation) == ("valid", None, True)
    assert not made
    records = expectation["batches"][0]["records"]
    assert (len(records), len(records[0]["headers"])) == counts
    assert all(header == ["", ""] for header in records[0]["headers"])
    assert dict(expectation)["batches"] == expectation["batches"]
    assert made == {recipe: 1}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["show", "records/v2/header/minimal"], 0),
        (["show", "records/v2/header/minimul"], 2),
        (["vectors", "list"], 0),
        (["vectors", "list", "--json", "records/v2/bomb/*"], 0),
        (["conform", "records/v9/*"], 2),
    ],
    ids=str,
)
def test_a_command_that_needs_no_bomb_makes_none(command: list[str], code: int, made: Counter[str]) -> None:
    assert (kfuzz(*command).returncode, dict(made)) == (code, {})


def test_loading_a_copy_of_the_suite_makes_no_bomb(tmp_path: Path, made: Counter[str]) -> None:
    file = tmp_path / "records" / "v2" / "bomb.json"
    file.parent.mkdir(parents=True)
    file.write_bytes((default_root() / "records/v2/bomb.json").read_bytes())
    vectors = load_suite(root=tmp_path)
    assert len(vectors) == len(bombs.RAWS)
    assert find_vector(MANY, tmp_path).size == find_vector(MANY).size
    assert not made


# --- one vector by its id -------------------------------------------------------------------------------------------


def test_a_vector_is_found_by_its_id_whatever_its_kind() -> None:
    names = ["records/v2/count/negative-one", "messages/counts/fetch-request-v18-huge"]
    names += [next(vector.id for vector in load_suite(kinds=[kind])) for kind in KINDS]
    assert [find_vector(name) for name in names] == [load_suite(name, kinds=KINDS)[0] for name in names]


@pytest.mark.parametrize("name", ["", "records", "records/v2/count/*", "records/v2/count/negative-twelve", "../schema"])
def test_a_name_that_is_no_id_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not the id of a vector"):
        find_vector(name)


def test_a_wrong_glob_is_told_before_the_differentials_and_the_reports_are_loaded() -> None:
    code = """
import sys
from kfuzz.cli.main import main
try:
    main(["conform", "records/v9/*"])
except SystemExit as ended:
    rooms = ("jsonschema", "jinja2", "kfuzz.mutate", "kfuzz.conformance.differential", "kfuzz.conformance.report")
    print(ended.code, [name for name in rooms if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 []\n", done.stderr
