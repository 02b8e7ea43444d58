"""Where an allocation fails, a call ends with MemoryError: no crash, no block lost, no wrong answer then or afterwards.

failing_paths.py says what is called, failing_run.py how; failing.c makes allocations fail. All memory of the compiled
modules comes from the interpreter's allocators, so nothing else needs a hook. Left out, for they are not ours: what
cramjam does without memory (it ends the process), and the faults of CPython that failing.c names.
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from conftest import missing, require_tool
from programs import run_program

from kfuzz.wire.records.record_batch import parse_places

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TIMEOUT_S = 1500
# How often what has problems is tried again.
AGAIN = 2
# To make a type, CPython 3.13.0 calls setdefault on a dict. Where the dict cannot grow, it goes on as if it had grown.
# `{…}.setdefault(key, value)` alone shows it; failing.c cannot tell that growth from others. And where ten allocations
# in a row fail as `compact` calls the function that compresses, it says "error return without exception set"; why is
# not known. CPython 3.11 and 3.12 raise MemoryError there.
LOST = ("compile objects of ", "compact") if sys.version_info[:2] == (3, 13) else ()

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="failing.c asks glibc who calls")


def require_sound_cython() -> None:
    """Cython 3.3 frees an element twice where a list that a comprehension makes cannot grow."""
    # Such as _cython_3_2_9: the module of the type of its functions.
    version = re.match(r"_cython_(\d+)_(\d+)", type(parse_places).__module__)
    assert version
    if (int(version[1]), int(version[2])) >= (3, 3):
        missing("a build by Cython below 3.3", "run `make clean build`")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """failing.c, compiled."""
    require_sound_cython()
    compiler = require_tool("cc", "install a C compiler")
    made = tmp_path_factory.mktemp("failing") / "failing.so"
    include = sysconfig.get_path("include")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-I{include}", str(HERE / "failing.c")]
    subprocess.run([*command, "-o", str(made)], check=True)
    return made


def run(library: Path, *words: str) -> dict[str, dict[str, Any]]:
    """The results of each path."""
    # The other folders may name another build of kfuzz (tools/coverage).
    paths = [str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = (sys.executable, HERE / "failing_run.py", library, *words)
    done = run_program(*command, variables={"PYTHONPATH": os.pathsep.join(paths)}, cwd=ROOT, timeout=TIMEOUT_S)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line.pop("path"): line for line in lines}


@pytest.mark.parametrize(
    "every",
    [pytest.param(False, id="some", marks=pytest.mark.full), pytest.param(True, id="all", marks=pytest.mark.nightly)],
)
def test_a_call_whose_nth_allocation_fails_says_so_and_leaves_all_whole(library: Path, every: bool) -> None:
    words = ["--every"] if every else []
    found = run(library, *words)
    assert len(found) > 150
    found = {name: one for name, one in found.items() if not name.startswith(LOST)}
    problems = {name: one["problems"] for name, one in found.items() if one["problems"]}
    # Where a call makes types, the interpreter's own tables seem to lose a block in one process of ten, depending on
    # addresses. A block that kfuzz loses is lost in every process.
    for _ in range(AGAIN if problems else 0):
        again = run(library, *(glob.escape(name) for name in problems), *words)
        problems = {name: one["problems"] for name, one in again.items() if one["problems"]}
        if not problems:
            break
    assert problems == {}
    # A hook that nothing asks would be content with everything.
    assert {name: one for name, one in found.items() if one["calls"] < one["allocations"] / 200} == {}
    assert sum(one["calls"] for one in found.values()) > (60_000 if every else 3_000)


def test_the_run_sees_each_kind_of_fault(library: Path) -> None:
    found = run(library, "--planted")
    # Without the number of the allocation, who asked for it, and the traceback.
    texts = {
        name: [re.sub(r"^allocation.*?: ", "", text).split("\n")[0] for text in one["problems"]]
        for name, one in found.items()
    }
    assert {name: sorted(set(those)) for name, those in texts.items()} == {
        "planted: swallows": ["a wrong answer"],
        "planted: another error": ["ValueError: a sentence"],
        "planted: half done": ["a wrong answer of the next call"],
        "planted: crash": ["the process ended with status -6"],
    }


def test_every_compiled_module_takes_its_memory_from_the_interpreter() -> None:
    sources = [path for kind in ("*.pyx", "*.pxd", "*.h") for path in (ROOT / "kfuzz").rglob(kind)]
    assert len(sources) > 40
    own = re.compile(r"^from libc\.stdlib cimport|\b(?<![_>])(malloc|calloc|realloc|aligned_alloc)\(", re.MULTILINE)
    renamed = re.compile(r"^from cpython\.mem cimport .* as (malloc|realloc)", re.MULTILINE)
    offending = [path.name for path in sources if own.search(path.read_text()) and not renamed.search(path.read_text())]
    assert offending == []
