"""tools/seeds.py keeps the corpora of campaigns."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfuzz.fuzz.seeding import inputs, read_hex
from kfuzz.fuzz.targets import TARGETS
from tools import seeds


def corpus_of(folder: Path, *data: bytes) -> None:
    corpus = folder / "columns" / "corpus"
    corpus.mkdir(parents=True)
    for i, one in enumerate(data):
        (corpus / str(i)).write_bytes(one)


def test_the_shortest_new_inputs_are_kept_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = inputs(TARGETS["columns"])[0][1]
    corpus_of(tmp_path / "out", b"longer", known, b"", b"b", b"a")
    kept = tmp_path / "seeds"
    assert seeds.main([str(tmp_path / "out"), "--bytes-max", "10"], kept) == 0
    assert read_hex(kept / "columns.hex") == [b"a", b"b"]
    assert capsys.readouterr().out == "columns: 2 of 3 inputs, 6 bytes\n"
    # The inputs that were kept before stay, and only those that fit are added.
    (tmp_path / "out" / "columns" / "corpus" / "5").write_bytes(b"cd")
    (tmp_path / "out" / "columns" / "corpus" / "4").unlink()
    assert seeds.main([str(tmp_path / "out")], kept) == 0
    assert read_hex(kept / "columns.hex") == [b"a", b"b", b"cd", b"longer"]


def test_a_folder_without_a_corpus_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert seeds.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path} has no corpus; name the --out of a campaign, such as out/fuzz\n"
