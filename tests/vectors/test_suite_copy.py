"""``kfuzz vectors copy``: what a copy holds, what it leaves alone, and that half a copy never stands."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import mini_suite
import pytest
from cli_driver import kfuzz, outcome, refused

from kfuzz.errors import UsageError
from kfuzz.vectors import copying as copy_module
from kfuzz.vectors import load_suite, suite_version
from kfuzz.vectors.copying import MANIFEST_FILE, copy
from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.model import default_root, suite_paths

README_LINES_MOST = 85
ROOT = Path(__file__).resolve().parents[2]


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the whole committed suite."""
    return copy(tmp_path_factory.mktemp("whole") / "a" / "suite").directory


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small suite, for what does not depend on the vectors: the whole one takes its time."""
    return mini_suite.write(tmp_path_factory.mktemp("own"))


def test_the_vector_files_are_copied_byte_for_byte(whole: Path) -> None:
    root = default_root()
    committed = {path.relative_to(root).as_posix(): path.read_bytes() for path in suite_paths(root)}
    assert committed
    assert {name: (whole / name).read_bytes() for name in committed} == committed
    for name in ("schema.json", "requirements.json"):
        assert (whole / name).read_bytes() == (root / name).read_bytes()


@pytest.mark.full
def test_kfuzz_reads_a_copy_as_its_own_suite(whole: Path) -> None:
    chosen = "records/v2/count/*"
    assert [(v.id, v.data) for v in load_suite(chosen, whole)] == [(v.id, v.data) for v in load_suite(chosen)]


def test_the_manifest_names_every_other_file_with_its_digest(whole: Path) -> None:
    manifest = json.loads((whole / MANIFEST_FILE).read_bytes())
    assert manifest["format"] == "kfuzz-copy/1"
    assert set(manifest["files"]) == files(whole) - {MANIFEST_FILE}
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((whole / name).read_bytes()).hexdigest() == digest
    assert manifest["vectors"] == sorted(path.relative_to(whole).as_posix() for path in suite_paths(whole))


def test_the_page_is_one_page_and_names_only_files_that_are_there(whole: Path) -> None:
    text = (whole / "README.md").read_text()
    assert len(text.splitlines()) <= README_LINES_MOST
    total = len(load_suite(kinds=KINDS))
    assert f" {total} vectors. " in text
    named = re.findall(r"examples/\S+\.(?:py|go|mjs)", text)
    assert len(named) == 3
    for name in [*named, "manifest.json", "schema.json", "requirements.json"]:
        assert name in text
        assert (whole / name).is_file()
    assert "bombs/*.bin" not in text


def test_two_copies_are_equal(whole: Path, tmp_path: Path) -> None:
    again = copy(tmp_path).directory
    assert files(again) == files(whole)
    assert all((again / name).read_bytes() == (whole / name).read_bytes() for name in files(whole))


def test_globs_choose_vectors_and_the_flags_that_they_bear(tmp_path: Path) -> None:
    done = copy(tmp_path, ["records/v2/count/negative-one", "records/v2/bomb/zstd-value-*"])
    assert (done.vectors, done.bombs, done.bomb_bytes) == (2, 1, 0)
    assert done.verdicts == {"invalid": 1, "acceptable": 1}
    assert done.kinds == {"records": 2}
    document = json.loads((tmp_path / "records/v2/count.json").read_bytes())
    assert [vector["id"] for vector in document["vectors"]] == ["records/v2/count/negative-one"]
    assert list(document["flags"]) == document["vectors"][0]["flags"]
    assert not (tmp_path / "records/v0").exists()


def test_bombs_are_written_when_asked_for_under_the_name_of_their_recipe(tmp_path: Path) -> None:
    [bomb] = load_suite("records/v2/bomb/zstd-value-96mib")
    done = copy(tmp_path, [bomb.id], bombs=True)
    assert (tmp_path / "bombs/zstd-value-96mib.bin").read_bytes() == bomb.data
    assert done.bomb_bytes == len(bomb.data)
    assert "bombs/*.bin" in (tmp_path / "README.md").read_text()


def test_a_folder_that_holds_anything_is_refused(own: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    said = refused("vectors", "copy", tmp_path, "--vectors", own)
    assert said.startswith(f"kfuzz: {tmp_path} is not empty; name another folder, or use --overwrite")
    assert files(tmp_path) == {"mine.txt"}


def test_force_replaces_an_earlier_copy_and_leaves_other_files_alone(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "mine.txt").write_text("mine")
    assert outcome("vectors", "copy", tmp_path, "records/v0/*", "records/v2/count/*", "--overwrite")[0] == 0
    assert outcome("vectors", "copy", tmp_path, "records/v2/count/of-2", "--overwrite")[0] == 0
    assert not (tmp_path / "records/v0/message.json").exists()
    assert (tmp_path / "records" / "mine.txt").read_text() == "mine"
    assert len(load_suite(root=tmp_path)) == 1
    assert set(json.loads((tmp_path / MANIFEST_FILE).read_bytes())["files"]) == files(tmp_path) - {
        MANIFEST_FILE,
        "records/mine.txt",
    }


def test_a_manifest_of_somebody_elses_making_deletes_nothing_outside(own: Path, tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.write_text("precious")
    target = tmp_path / "suite"
    target.mkdir()
    (target / "mine").mkdir()
    names = {"../precious": "", str(outside): "", "": "", "mine": "", "a\0b": ""}
    (target / MANIFEST_FILE).write_text(json.dumps({"format": "kfuzz-copy/1", "files": names}))
    copy(target, root=own, force=True)
    assert outside.read_text() == "precious"
    assert (target / "mine").is_dir()


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"format": "kfuzz-copy/1", "files": 7}'])
def test_a_broken_manifest_is_no_earlier_copy(own: Path, tmp_path: Path, manifest: str) -> None:
    (tmp_path / MANIFEST_FILE).write_text(manifest)
    assert copy(tmp_path, ["*/of-2"], root=own, force=True).vectors == 1


def test_a_copy_that_fails_on_the_way_leaves_nothing(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = copy_module.write_whole

    def write_whole(path: Path, data: bytes) -> None:
        if path.name == MANIFEST_FILE:
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(copy_module, "write_whole", write_whole)
    (tmp_path / "there").mkdir()
    for name in ("there", "not-there"):
        with pytest.raises(UsageError, match=f"{name} cannot be written: No space left on device; name another folder"):
            copy(tmp_path / name, root=own)
    assert files(tmp_path) == set()
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("inside", ["", "new/", "there/", "there/new/"])
def test_a_forbidden_folder_is_one_sentence_and_leaves_neither_a_file_nor_a_folder(
    inside: str, own: Path, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / inside / ("x" * 300)
    with pytest.raises(UsageError, match="File name too long; name another"):
        copy(target, root=own)
    with pytest.raises(UsageError, match="is not a directory; name another place"):
        copy(f"/dev/null/{inside}x", root=own)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("name", ["new", "new/inner", "there"])
def test_a_copy_that_cannot_name_its_files_takes_them_back(
    name: str, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if target.name == "requirements.json":
            raise PermissionError(13, "Permission denied")
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match=f"{name} cannot be written: Permission denied; name another folder"):
        copy(tmp_path / name, root=own)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_a_folder_below_that_lets_nobody_write_is_told_before_anything_is_written(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "records").mkdir()
    allowed = copy_module.os.access
    monkeypatch.setattr(
        copy_module.os, "access", lambda path, mode: Path(path).name != "records" and allowed(path, mode)
    )
    with pytest.raises(UsageError, match="records cannot be written: permission denied"):
        copy(tmp_path, root=own, force=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["records"]


def test_every_copy_has_the_license_and_the_version_of_the_suite(own: Path, tmp_path: Path) -> None:
    for name, globs, root, version in (
        ("whole", ["*"], None, suite_version()),
        ("part", ["records/v2/count/of-2"], None, suite_version()),
        ("own", ["*"], own, None),
    ):
        done = copy(tmp_path / name, globs, root=root)
        assert (tmp_path / name / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
        manifest = json.loads((tmp_path / name / MANIFEST_FILE).read_bytes())
        assert done.version == manifest["suite"] == suite_version(tmp_path / name) == version
        assert "LICENSE" in manifest["files"]
        readme = (tmp_path / name / "README.md").read_text()
        assert (f"The suite's version is {version}." in readme) == (version is not None)
        assert "## What may change in a later copy" in readme


@pytest.mark.parametrize("taken", ["README.md/x", "records"])
def test_a_name_that_is_taken_is_refused_before_anything_is_written(own: Path, tmp_path: Path, taken: str) -> None:
    path = tmp_path / taken
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    with pytest.raises(UsageError, match="something else has that name"):
        copy(tmp_path, root=own, force=True)
    assert files(tmp_path) == {taken}


def test_a_suite_of_ones_own_is_copied_with_kfuzz_s_schema(own: Path, tmp_path: Path) -> None:
    report = json.loads(kfuzz("vectors", "copy", tmp_path / "copy", "--vectors", own, "--json", code=0).stdout)
    assert report["vectors"] == sum(report["verdicts"].values()) == len(load_suite(root=own))
    assert set(report["files"]) | {MANIFEST_FILE} == files(tmp_path / "copy")
    assert (tmp_path / "copy/schema.json").read_bytes() == (default_root() / "schema.json").read_bytes()


def test_the_text_says_where_to_read_on_and_what_is_left_away(tmp_path: Path) -> None:
    out = kfuzz("vectors", "copy", tmp_path, "records/v2/bomb/*", code=0).stdout
    assert "README.md there says how to run them" in out
    assert "bombs, without their bytes" in out
