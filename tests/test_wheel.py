"""The wheel is whole: installed outside any checkout, kfuzz shows, checks, lists, copies and judges."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from programs import run_program

import kfuzz
from kfuzz import records
from kfuzz.records import Record, RecordBatch
from kfuzz.spark import archive
from kfuzz.vectors import load_suite
from kfuzz.vectors.kinds import KINDS
from tools.wheels import KITS, copy_sources

# Building a wheel and installing it takes many seconds.
pytestmark = pytest.mark.full

ROOT = Path(kfuzz.__file__).resolve().parent.parent


def build_wheel(place: Path) -> Path:
    """The wheel, built in a copy of the sources."""
    copy_sources(place)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(place / "dist")]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "."], cwd=place, check=True, timeout=600)
    [wheel] = (place / "dist").iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a virtual environment that has the wheel, and the dependencies of this one by a path file."""
    place = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin" / "python"
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)]
    subprocess.run(pip, check=True)
    # A path file inside a folder that a path file names is not followed: this checkout's own link stays without effect.
    [packages] = (place / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def run(installed: Path, folder: Path, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return run_program(installed / "kfuzz", *words, code=code, cwd=folder, env=environment, timeout=300)


def test_the_wheel_holds_no_source_tree_and_every_vector_file(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"kfuzz", f"kfuzz-{kfuzz.__version__}.dist-info"}
    inside = {name.removeprefix("kfuzz/vectors/suite/") for name in names if name.startswith("kfuzz/vectors/suite/")}
    assert inside == {path.relative_to(ROOT / "vectors").as_posix() for path in (ROOT / "vectors").rglob("*.*")}
    compiled = {name.partition(".")[0] for name in names if name.endswith(".so")}
    assert compiled == {str(path.relative_to(ROOT).with_suffix("")) for path in (ROOT / "kfuzz").rglob("*.pyx")}


def test_the_installed_kfuzz_is_the_wheels_and_not_the_checkouts(installed: Path, empty: Path) -> None:
    code = "import kfuzz, kfuzz.wire.records.record_batch as r; print(kfuzz.__file__); print(r.__file__)"
    done = run_program(installed / "python", "-I", "-c", code, cwd=empty)
    assert len(done.stdout.splitlines()) == 2
    for line in done.stdout.splitlines():
        assert Path(line).is_relative_to(installed.parent)


def test_show_and_list_know_the_suite(installed: Path, empty: Path) -> None:
    shown = run(installed, empty, "show", "records/v2/count/negative-one")
    assert "record-count-negative" in shown.stdout
    listed = run(installed, empty, "vectors", "list", "--json")
    assert [entry["id"] for entry in json.loads(listed.stdout)["vectors"]] == [
        vector.id for vector in load_suite(kinds=KINDS)
    ]


def test_the_archive_for_executors_is_the_same_from_the_wheel_and_from_a_checkout(
    installed: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without pyarrow and numpy, which take twelve seconds to pack.
    code = "from kfuzz.spark import archive; archive.ROOT = 'kfuzz'; archive.make_archive('wheel.zip')"
    subprocess.run([installed / "python", "-I", "-c", code], cwd=empty, check=True, timeout=120)
    monkeypatch.setattr(archive, "ROOT", "kfuzz")
    here = archive.make_archive(empty / "checkout.zip")
    entries = []
    for path in (empty / "wheel.zip", here.path):
        with zipfile.ZipFile(path) as zipped:
            # A compiled module names the folder that it was compiled in.
            entries.append({name: name.endswith(".so") or zipped.read(name) for name in zipped.namelist()})
    assert len(entries[0]) > 200
    assert entries[0] == entries[1]


def test_a_testee_is_written_with_the_one_kit_of_the_repository(installed: Path, empty: Path) -> None:
    for name in KITS[:-1]:
        language = name.partition("/")[2]
        run(installed, empty, "testee", "new", "--language", language, language)
        for path in (empty / language / "kit").rglob("*.*"):
            assert path.read_bytes() == (ROOT / name / path.relative_to(empty / language / "kit")).read_bytes()
    answered = run_program(sys.executable, "python/testee.py", cwd=empty, stdin=subprocess.DEVNULL)
    assert json.loads(answered.stdout)["protocol"] == "kfuzz-testee/1"


def test_check_tells_good_bytes_from_bad_ones(installed: Path, empty: Path) -> None:
    data = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")], compression="zstd"))
    (empty / "good.log").write_bytes(data)
    (empty / "bad.log").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    run(installed, empty, "check", "good.log")
    assert "crc-mismatch" in run(installed, empty, "check", "good.log", "bad.log", code=1).stdout


def test_a_copy_is_whole_and_its_reader_passes(installed: Path, empty: Path) -> None:
    run(installed, empty, "vectors", "copy", "suite")
    reader = run_program(sys.executable, "suite/examples/python/read_suite.py", cwd=empty, timeout=300)
    assert " 0 failed" in reader.stdout


def test_kfuzz_conforms_to_the_suite_it_ships(installed: Path, empty: Path) -> None:
    run(installed, empty, "conform", "--testee", "kfuzz", "--json", "report.json", "--html", "page.html")
    chosen = {vector.id for vector in load_suite(kinds=KINDS)}
    assert len(chosen) > 100
    assert chosen == {case["id"] for case in json.loads((empty / "report.json").read_text())["cases"]}
    page = (empty / "page.html").read_text()
    assert "<style>" in page
    assert "No answer is wrong" in page
    run(installed, empty, "conform", "--testee", "nobody", code=2)


def test_a_type_checker_sees_the_public_types(installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from kfuzz import messages, records\n"
        "reveal_type(records.columns(b''))\n"
        "reveal_type(records.check(b''))\n"
        "reveal_type(messages.check('Fetch', 4, b''))\n"
    )
    options = ("--strict", "--no-incremental", "--python-executable", installed / "python")
    done = run_program(sys.executable, "-m", "mypy", *options, program.name, code=None, cwd=tmp_path, timeout=300)
    seen = re.findall('Revealed type is "(.*)"', done.stdout)
    # The stubs' own module of a class may change; its package and its name do not.
    named = [(name.partition(".")[0], name.rpartition(".")[2]) for name in seen]
    assert named == [("pyarrow", "RecordBatch"), ("kfuzz", "Verdict"), ("kfuzz", "MessageVerdict")], done.stdout
