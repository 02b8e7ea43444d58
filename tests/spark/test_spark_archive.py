"""The archive for executors: what is in it, equal bytes each time, and an empty Python that runs from it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from programs import run_program

from kfuzz.cli.main import main
from kfuzz.errors import UsageError
from kfuzz.spark import archive
from kfuzz.spark.archive import make_archive

PACKAGE = Path(archive.__file__).parents[1]
# In the archive without pyarrow and numpy: everything that makes the bytes of a segment.
PROGRAM = """
import sys
from dataclasses import replace
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import log_chunks
from kfuzz.corpora.workload import Batches, Topic, Workload
from kfuzz.vectors import load_suite
import kfuzz, zlib
batches = replace(Batches(), codecs=tuple((name, 1) for name in ("none", "gzip", "snappy", "lz4", "zstd")))
workload = Workload(topics=(Topic("t", batches=batches),), size=1 << 18, segment_bytes=1 << 17)
assert kfuzz.__file__.startswith(sys.argv[1]), kfuzz.__file__
assert load_suite("records/v2/header/*")
print(*(zlib.crc32(b"".join(map(bytes, log_chunks(segment, workload)))) for segment in Plan(workload)))
"""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives without pyarrow and numpy, which take twelve seconds to pack."""
    monkeypatch.setattr(archive, "ROOT", "kfuzz")


def contents(path: Path) -> dict[str, bytes]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as zipped:
            return {name: zipped.read(name) for name in zipped.namelist()}
    with tarfile.open(path) as packed:
        return {one.name: packed.extractfile(one).read() for one in packed}  # type: ignore[union-attr]


def run_bare(python: Path, folder: Path, program: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return run_program(python, "-c", program, folder, env=environment, cwd=folder.parent).stdout


@pytest.mark.full
def test_a_python_without_packages_makes_the_same_segments_from_the_archive(small: None, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    made = make_archive(tmp_path / "env.zip")
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(made.path).extractall(unpacked)
    here = run_bare(Path(sys.executable), PACKAGE.parent, PROGRAM)
    assert run_bare(python, unpacked, PROGRAM) == here
    assert len(here.split()) == 2
    # The control: without the archive, this Python has no kfuzz.
    with pytest.raises(AssertionError, match="No module named 'kfuzz'"):
        run_bare(python, tmp_path, PROGRAM)


@pytest.mark.full
def test_equal_packages_give_equal_bytes_in_both_forms(small: None, tmp_path: Path) -> None:
    for name in ("env.zip", "env.tar.gz"):
        one, two = make_archive(tmp_path / name), make_archive(tmp_path / f"other-{name}")
        assert one.path.read_bytes() == two.path.read_bytes()
        assert one.bytes == one.path.stat().st_size
    entries = contents(tmp_path / "env.zip")
    assert entries == contents(tmp_path / "env.tar.gz")
    assert list(entries) == sorted(entries)


@pytest.mark.full
def test_the_archive_holds_what_workers_import_and_nothing_that_depends_on_the_installation(
    small: None, tmp_path: Path
) -> None:
    made = make_archive(tmp_path / "env.zip", ["click"])
    entries = contents(made.path)
    about = json.loads(entries[archive.ABOUT])
    assert about["packages"] == made.packages
    assert made.packages.keys() == {
        "kfuzz",
        "click",
        "cramjam",
        "crc32c",
        "lz4",
        "psutil",
        "python-snappy",
        "xxhash",
        "zlib-ng",
        "zstandard",
    }
    compiled = {str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.rglob("*.pyx")}
    assert {
        name.removeprefix("kfuzz/").partition(".")[0]
        for name in entries
        if name.startswith("kfuzz/") and name.endswith(".so")
    } == compiled
    kinds = {PurePosixPath(name).suffix for name in entries}
    assert kinds.isdisjoint({".pyx", ".pxd", ".pyi", ".h", ".pyc"})
    assert not any(name.endswith(("RECORD", "direct_url.json", "INSTALLER")) for name in entries)
    # A package tells its version in the manifest's rows.
    assert f"cramjam-{importlib.metadata.version('cramjam')}.dist-info/METADATA" in entries


def test_the_corpus_extra_brings_arrow_and_leaves_out_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = archive._required([archive.ROOT])
    assert {"pyarrow", "numpy", "lz4"} <= wanted
    assert wanted.isdisjoint({"pyspark", "py4j", "pandas", "click", "rich", "kfuzz"})


@pytest.mark.full
def test_the_verb_prints_commands_that_name_the_archive(
    small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my env.zip"
    with pytest.raises(SystemExit) as ended:
        main(["corpus", "archive", str(out)])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{out}: kfuzz ")
    assert told.count(f"--archives '{out}#kfuzz_env'") == 3
    assert told.count("--conf spark.executorEnv.PYTHONPATH=./kfuzz_env") == 3
    with pytest.raises(SystemExit):
        main(["corpus", "archive", str(out), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["path"] == str(out)
    assert len(report["commands"]) == 3
    assert all(command.startswith("spark-submit ") for command in report["commands"])


@pytest.mark.parametrize(
    ("name", "extra", "told"),
    [
        ("notes.txt", [], r"notes\.txt has none of the endings that Spark unpacks; name a file \.zip or "),
        ("notes.zip", [], r"notes\.zip is there and is no archive; name another file, or remove it first"),
        ("folder.zip", [], r"folder\.zip is there and is no archive"),
        ("new.zip", ["no-such-package"], "no-such-package is not installed here, .*`pip install no-such-package`"),
        ("new.zip", ["two words"], "'two words' is not the name of a package"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_changes_no_file(
    small: None, tmp_path: Path, name: str, extra: list[str], told: str
) -> None:
    (tmp_path / "notes.zip").write_text("my notes")
    (tmp_path / "folder.zip").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=told):
        make_archive(tmp_path / name, extra)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "notes.zip").read_text() == "my notes"


def test_a_missing_or_editable_package_gets_the_remedy(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.metadata.distribution

    def editable(name: str) -> Any:
        return (
            SimpleNamespace(files=[PurePosixPath("__editable___lz4_finder.py")], locate_file=lambda file: __file__)
            if (name == "lz4")
            else real(name)
        )

    with monkeypatch.context() as patched:
        patched.setattr(importlib.metadata, "distribution", editable)
        patched.setattr(importlib.metadata, "version", lambda name: real(name).version)
        patched.setattr(importlib.metadata, "requires", lambda name: real(name).requires)
        with pytest.raises(UsageError, match=r"^lz4 is installed without its modules.*--force-reinstall lz4`$"):
            make_archive(tmp_path / "env.zip")

    def absent(name: str) -> list[str]:
        if name == "lz4":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name).requires or []

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    with pytest.raises(UsageError, match=r"^lz4 is not installed here.*`pip install 'kfuzz\[corpus\]'`$"):
        make_archive(tmp_path / "env.zip")
    assert list(tmp_path.iterdir()) == []
