"""The packages for other ecosystems hold the suite, and their runners pass what is right and fail what is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import require_tool

from kfuzz.errors import UsageError
from kfuzz.vectors import load_suite, packaged
from kfuzz.vectors.model import Bomb
from tools import packages


@pytest.fixture(scope="module")
def made() -> bytes:
    return packages.data()


def test_the_data_is_that_of_the_suite(made: bytes) -> None:
    there = {one["id"]: one for one in json.loads(made)["vectors"]}
    wanted = [one for one in load_suite("records/*", kinds=("records",)) if "consumer" in one.expect]
    assert there.keys() == {one.id for one in wanted}
    for vector in wanted:
        one = there[vector.id]
        assert one["verdict"] == vector.expect["consumer"]["verdict"]
        if isinstance(vector.source, Bomb):
            assert (one["recipe"], one["sha256"]) == (vector.source.recipe, vector.source.sha256)
        else:
            assert bytes.fromhex(one["hex"]) == vector.data
            assert ("records" in one) == (one["verdict"] != "invalid")


def test_records_are_those_that_a_consumer_gets(made: bytes) -> None:
    there = {one["id"]: one for one in json.loads(made)["vectors"]}
    minimal = there["records/v2/header/minimal"]
    assert (minimal["codecs"], minimal["magics"]) == (["none"], [2])
    assert len(minimal["records"]) == 1
    assert there["records/v2/codec/zstd"]["codecs"] == ["zstd"]
    # A message of magic 0 has no timestamp.
    assert [one["timestamp"] for one in there["records/v0/message/minimal"]["records"]] == ["-1"]
    # Control batches are not shown to a consumer.
    assert there["records/v2/control/commit"]["records"] == []


@pytest.mark.full
def test_the_codec_of_a_bomb_is_that_of_its_bytes(made: bytes) -> None:
    there = {one["id"]: one for one in json.loads(made)["vectors"]}
    for vector in load_suite("records/*", kinds=("records",)):
        if isinstance(vector.source, Bomb) and vector.id in there:
            one = there[vector.id]
            assert {name: one[name] for name in ("codecs", "magics")} == packaged.needs(vector.data), vector.id


def test_equal_suites_give_equal_files_and_a_package_can_be_made_again(made: bytes, tmp_path: Path) -> None:
    for _ in range(2):
        packages.make("go", tmp_path / "go", made)
        assert (tmp_path / "go" / "vectors.json").read_bytes() == made
        assert "module kfuzz" in (tmp_path / "go" / "go.mod").read_text()
    assert packages.data() == made


@pytest.mark.parametrize("name", packages.PACKAGES)
def test_every_package_has_its_version_and_licence(name: str, made: bytes, tmp_path: Path) -> None:
    packages.make(name, tmp_path / name, made)
    texts = [path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()]
    assert not any(packaged.VERSION in text for text in texts)
    assert (tmp_path / name / "LICENSE").is_file()
    assert (tmp_path / name / packages.PACKAGES[name].data).read_bytes() == made


def test_wrong_use_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert packages.main(["perl"]) == 2
    assert capsys.readouterr().err == "there is no package 'perl'; take go, npm, crate, java\n"
    (tmp_path / "go").mkdir()
    (tmp_path / "go" / "mine.txt").write_text("x")
    assert packages.main(["go", "--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "go" / "mine.txt").read_text() == "x"


def test_a_full_disk_is_reported_with_the_folder_of_the_package(
    made: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(UsageError) as told:
        packages.make("go", tmp_path / "go", made)
    assert str(told.value).startswith(f"{tmp_path / 'go'} cannot be written: No space left on device; free space")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly if name in ("crate", "java") else pytest.mark.full)
        for name in packages.PACKAGES
    ],
)
def test_a_package_passes_on_a_real_decoder_and_fails_where_a_vector_lies(
    name: str, made: bytes, tmp_path: Path
) -> None:
    require_tool(packages.PACKAGES[name].program, packages.PACKAGES[name].remedy)
    folder = tmp_path / name
    packages.make(name, folder, made)
    assert packages.test(name, folder) == ""
    # Another value in the one record of a vector that each example shows.
    data = folder / packages.PACKAGES[name].data
    before, found, after = data.read_text().partition('"id":"records/v2/header/minimal"')
    head, value, rest = after.partition('"value":"')
    assert found
    assert value
    data.write_text(before + found + head + value + ("00" if rest[:2] != "00" else "01") + rest[2:])
    assert "expected" in packages.test(name, folder)


def test_a_missing_toolchain_is_said(
    made: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert packages.main(["go", "--out", str(tmp_path), "--test"]) == 0
    assert "go: not tested, go is missing; install Go" in capsys.readouterr().out
