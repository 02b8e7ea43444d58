"""Files that become shorter while they are mapped: the process lives on, and no result of lost bytes counts."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import SAME_PATHS, run_program

from kfuzz.errors import UsageError
from kfuzz.files import map_bytes
from kfuzz.mapped import Mapped, cut_file, forget_files, mapped, require_whole

SIZE = 16 * mmap.PAGESIZE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "given"
    path.write_bytes(b"x" * SIZE)
    return path


def ran(script: str, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    return run_program(sys.executable, script, *words, code=code, variables=SAME_PATHS, timeout=300)


def written_script(beside: Path, source: str) -> str:
    """The path of a script with this source."""
    script = beside.with_name("script.py")
    script.write_text(source)
    return str(script)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of each verb and reader with a segment that was cut right after it was mapped."""
    done = ran(str(Path(__file__).with_name("cut_files.py")), tmp_path_factory.mktemp("cut"))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_verb_and_a_reader_end_with_one_sentence(outcomes: dict[str, Any]) -> None:
    assert len(outcomes) > 30
    for way, outcome in outcomes.items():
        sentence = f"{outcome['log']} became shorter while it was read; try again, or copy it first\n"
        assert (outcome["code"], outcome["told"].splitlines()[-1] + "\n") == (2, f"kfuzz: {sentence}"), way
        assert "Traceback" not in outcome["told"]


def test_nothing_that_was_made_of_lost_bytes_gets_its_name(outcomes: dict[str, Any]) -> None:
    assert [outcome["made"] for way, outcome in outcomes.items() if way.startswith("salvage")] == [[], [], []]


@pytest.mark.parametrize("left", [0, 3 * mmap.PAGESIZE, 3 * mmap.PAGESIZE + 7, SIZE - 1])
@pytest.mark.parametrize("private", [False, True])
def test_lost_bytes_read_as_zeros_and_are_noticed(path: Path, left: int, private: bool) -> None:
    with path.open("rb") as file:
        view = mapped(file, 100, SIZE, private=private)
    require_whole(view)
    os.truncate(path, left)
    assert bytes(view) == (b"x" * left + bytes(SIZE - left))[100:]
    if private:
        view[-1] = 7
        assert view[-1] == 7
    with pytest.raises(UsageError, match=r"given became shorter while it was read"):
        require_whole(view)
    if left % mmap.PAGESIZE == 0:
        # A reader of zeros does not learn it from the size any more.
        os.truncate(path, SIZE)
        with pytest.raises(UsageError, match=r"given became shorter while it was read"):
            require_whole(view[3:5])


def test_a_cut_is_known_after_the_end_of_the_mapping(path: Path) -> None:
    forget_files()
    with path.open("rb") as file:
        whole, cut = Mapped(file, 0, SIZE), Mapped(file, 0, SIZE)
    whole.close()
    assert cut_file() is None
    os.truncate(path, 0)
    with cut, memoryview(cut) as view:
        with pytest.raises(BufferError):
            cut.close()
        # It is watched again.
        assert view[0] == 0
    assert cut.closed
    assert str(cut_file()).startswith(f"{path} became shorter")
    forget_files()
    assert cut_file() is None


def test_a_file_that_was_shorter_before_it_was_mapped_is_told_so(path: Path) -> None:
    for start, end in ((0, SIZE + 1), (SIZE, SIZE + 1), (4 * SIZE, 5 * SIZE)):
        with path.open("rb") as file, pytest.raises(UsageError, match="given became shorter while it was read"):
            mapped(file, start, end)


def test_many_mappings_are_watched_at_a_time(path: Path) -> None:
    views = []
    for _ in range(300):
        with path.open("rb") as file:
            views.append(mapped(file, 0, SIZE))
    del views[::2]
    views += [memoryview(map_bytes(path)) for _ in range(100)]
    os.truncate(path, 0)
    assert sum(view[-1] for view in views) == 0


def test_a_bus_error_elsewhere_ends_the_process_as_before(path: Path) -> None:
    script = written_script(
        path,
        "import faulthandler, mmap, os, sys\n"
        "from kfuzz.files import map_bytes\n"
        "if sys.argv[2:]: faulthandler.enable()\n"
        "ours = map_bytes(sys.argv[1])\n"
        "with open(sys.argv[1], 'rb') as file: theirs = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "os.truncate(sys.argv[1], 0)\n"
        "print(ours[0], flush=True)\n"
        "theirs[0]\n",
    )
    for options, told in (([], ""), (["faulthandler"], "Fatal Python error: Bus error")):
        path.write_bytes(b"x" * SIZE)
        done = ran(script, path, *options, code=-signal.SIGBUS)
        assert done.stdout == "0\n"
        assert told in done.stderr


def test_a_bus_error_that_another_process_sends_ends_it_as_before(path: Path) -> None:
    script = written_script(
        path,
        "import os, signal, sys\n"
        "from kfuzz.files import map_bytes\n"
        "ours = map_bytes(sys.argv[1])\n"
        "os.kill(os.getpid(), signal.SIGBUS)\n"
        "print('this process survived the signal')\n",
    )
    assert ran(script, path, code=-signal.SIGBUS).stdout == ""
