"""Every verb that looks into a file takes bounded memory, however much a small file holds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bombs import (
    BOMBS,
    LOG_LOOKS,
    MEMORY_KIB_MAX,
    MIB,
    Bomb,
    Looked,
    headers_bomb,
    look,
    looks_at,
    records_bomb,
    words_of,
)

from kfuzz.vectors import load_suite
from kfuzz.vectors.model import Bomb as BombSource


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two bombs of about a kilobyte, and a smaller one of many records."""
    folder = tmp_path_factory.mktemp("bombs")
    made = {"headers": headers_bomb("zstd", 50 * MIB), "records": records_bomb("zstd", 16 * MIB)}
    for name, data in made.items():
        assert len(data) < 5000
        (folder / f"{name}.log").write_bytes(data)
    return {name: folder / f"{name}.log" for name in made}


def require_bounded(done: Looked) -> None:
    assert done.code in (0, 1), done.told
    assert "Traceback" not in done.told
    assert done.memory_kib <= MEMORY_KIB_MAX, done


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("headers", ("show",), "read: 1 batches, 1 records"),
        pytest.param("headers", ("browse",), " parts", marks=pytest.mark.full),
        pytest.param("headers", ("cat", "--table"), "= = =", marks=pytest.mark.full),
        ("headers", ("cat", "-n", "1", "--columns", "offset"), '{"offset":0}\n'),
        ("records", ("show", "--json", "--dump"), '"source"'),
        ("records", ("cat",), '{"offset":0,"timestamp":0,"key":null,"value":null,"headers":[]}\n'),
    ],
)
def test_a_small_file_with_very_many_parts_takes_little_memory(
    files: dict[str, Path], name: str, words: tuple[str, ...], said: str
) -> None:
    done = look((*words, str(files[name])))
    require_bounded(done)
    assert said in done.told


# All of them take half an hour: `make campaign` runs them, and full counts every 72nd.
STEP = 1 if os.environ.get("KFUZZ_CAMPAIGN") == "1" else 72


def some_looks() -> Iterator[tuple[Bomb, tuple[str, ...]]]:
    return itertools.islice(((bomb, one) for bomb in BOMBS for one in looks_at(bomb)), 0, None, STEP)


@pytest.mark.full
@pytest.mark.parametrize(
    ("bomb", "words"), [pytest.param(bomb, one, id=f"{bomb.name} {' '.join(one)}") for bomb, one in some_looks()]
)
def test_a_look_at_a_bomb_takes_bounded_memory(bomb: Bomb, words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / bomb.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bomb.make())
    done = look(words_of(words, bomb, path, tmp_path / "out"))
    if "--finding" in words and done.code == 2:
        assert "no findings" in done.told
        return
    require_bounded(done)


@pytest.mark.nightly
def test_every_look_at_every_bomb_of_the_suite_takes_bounded_memory(tmp_path: Path) -> None:
    bombs = [vector for vector in load_suite("*bomb*") if isinstance(vector.source, BombSource)]
    assert len(bombs) > 8
    for i, vector in enumerate(bombs):
        path = tmp_path / f"{i}.log"
        path.write_bytes(vector.data)
        for k, words in enumerate(LOG_LOOKS[i % 3 :: 1 if STEP == 1 else 3]):
            done = look(words_of(words, Bomb(path.name, bytes), path, tmp_path / f"out-{i}-{k}"))
            assert done.code in (0, 1, 2), (vector.id, words, done.told)
            assert done.memory_kib <= MEMORY_KIB_MAX, (vector.id, words, done)
