"""tools/arm64.py compares results on arm64 with those here, and says what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import run_program

from tools import arm64, baseline
from tools.steps import StepFailed, call

ROOT = Path(__file__).resolve().parents[2]
FOUND = {
    "machine": "x86_64",
    "kernels": {"crc32c": True, "crc32": False},
    "digests": {"checksums": "a", "messages": "b"},
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for what is fetched, on a machine that has all tools."""
    monkeypatch.setattr(arm64, "PLACE", tmp_path / "arm64")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    return tmp_path / "arm64"


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        ("aarch64-linux-gnu-gcc", "install gcc-aarch64-linux-gnu and libc6-dev-arm64-cross"),
        ("qemu-aarch64", "install qemu-user"),
        ("apt-get", "run this on Debian 12"),
    ],
)
def test_a_missing_tool_is_named_with_its_remedy(
    missing: str, remedy: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == missing else name)
    assert arm64.main([]) == 2
    assert capsys.readouterr().err == f"arm64: {missing} is not installed; {remedy}\n"
    assert not place.exists()


def test_an_arm64_machine_has_nothing_to_compare(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert arm64.main([]) == 2
    assert capsys.readouterr().err == "arm64: this machine is arm64 itself; run this on x86-64\n"


@pytest.mark.parametrize("main", [arm64.main, baseline.main])
@pytest.mark.parametrize("sample", ["0", "-3", "many"])
def test_a_sample_is_a_number(main: Any, sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"--sample={sample}"])
    assert ended.value.code == 2
    said = f"argument --sample: {sample!r} is not a number of vectors; give 1 or more\n"
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize(
    ("failing", "sentence"),
    [
        ("apt-get", "Python: `apt-get` ended with exit code 100: E: no such package"),
        ("dpkg-deb", "Python: `dpkg-deb` ended with exit code 100: E: no such package"),
    ],
)
def test_a_step_that_fails_is_one_sentence_and_leaves_nothing(
    failing: str,
    sentence: str,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # They make a file each, as apt-get does where it runs, and dpkg-deb in the folder that it is given.
    programs = {"apt-get": "touch one.deb", "dpkg-deb": 'touch "$3/half"'}
    for name, script in programs.items():
        end = "echo E: no such package >&2; exit 100\n" if name == failing else ""
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n{end}")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert arm64.main([]) == 2
    remedy = "it needs the network, and apt's package sources of Debian 12"
    assert capsys.readouterr().err == f"arm64: {sentence}; {remedy}\n"
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("there", "code", "lines"),
    [
        ({"checksums": "a", "messages": "b"}, 0, ["checksums: equal (a)", "messages: equal (b)"]),
        ({"checksums": "a", "messages": "c"}, 1, ["checksums: equal (a)", "messages: differs (here b, there c)"]),
        ({"checksums": "a"}, 1, ["checksums: equal (a)", "messages: differs (here b, there missing)"]),
    ],
)
def test_each_part_has_a_line(
    there: dict[str, str],
    code: int,
    lines: list[str],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("fetch_python", "fetch_wheels", "compile"):
        monkeypatch.setattr(arm64.Copy, name, lambda self: "done")
    monkeypatch.setattr(arm64.Copy, "run_here", lambda self: FOUND)
    kernels = dict.fromkeys(FOUND["kernels"], False)
    monkeypatch.setattr(
        arm64.Copy, "run_there", lambda self: {"machine": "aarch64", "kernels": kernels, "digests": there}
    )
    assert arm64.main([]) == code
    shown = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" (")[0] for line in shown[3:5]] == [
        "here: x86_64; kernels: crc32c",
        "there: aarch64; kernels: none",
    ]
    assert shown[5:] == lines


def test_a_folder_that_is_made_of_something_else_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for made_of in ("one", "two"):
        folder = arm64.Copy(tmp_path, tmp_path, 1).kept("wheels", made_of)
        with arm64.made(folder) as staging:
            (staging / made_of).touch()
            assert not folder.exists()
    (tmp_path / "system-1").mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["system-1", folder.name]
    assert [path.name for path in folder.iterdir()] == ["two"]


def test_a_failed_step_names_the_first_error_of_the_compiler(tmp_path: Path) -> None:
    lines = ["a.c:1:2: warning: odd", "a.c:3:4: error: wrong [-Werror=odd]", "error: command 'gcc' failed"]
    with pytest.raises(StepFailed) as failed:
        call("sh", "-c", f'echo "{chr(10).join(lines)}" >&2; exit 1', cwd=tmp_path)
    assert str(failed.value) == "`sh` ended with exit code 1: a.c:3:4: error: wrong [-Werror=odd]"
    with pytest.raises(StepFailed) as failed:
        call("no-such-program", cwd=tmp_path)
    assert str(failed.value) == "`no-such-program` cannot be run: No such file or directory"


def test_variables_are_added_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFLAGS", "-O0")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    command = ("sh", "-c", 'echo "$CC,$CFLAGS,$PYTHONPATH"')
    assert call(*command, cwd=tmp_path) == ",-O0,\n"
    assert call(*command, cwd=tmp_path, variables={"CC": "cross", "CFLAGS": None}) == "cross,,\n"


@pytest.mark.nightly
def test_results_are_the_same_on_arm64() -> None:
    if platform.machine() == "aarch64":
        pytest.skip("this machine is arm64 itself")
    # CI has no cross compiler, so this is skipped there too.
    for name, remedy in arm64.REMEDIES.items():
        if shutil.which(name) is None:
            pytest.skip(f"{name} is missing; {remedy}")
    command = [sys.executable, "-m", "tools.arm64", "--sample", "20"]
    done = run_program(*command, cwd=ROOT, timeout=3600)
    assert "there: aarch64; kernels: none" in done.stdout
    equal = [line.partition(":")[0] for line in done.stdout.splitlines() if ": equal (" in line]
    assert equal == ["checksums", "batches", "long batches", "messages"]
