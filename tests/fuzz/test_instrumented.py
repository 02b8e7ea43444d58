"""Instrumented modules that a build keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fuzzer_stub import require_atheris

SCRIPT = """
import json, sys
from pathlib import Path
import atheris
from kfuzz.fuzz import instrumented

reserved, traced, made = [], [], []
instrument = atheris.import_hook.patch_code
atheris.import_hook.patch_code = lambda *given: made.append(0) or instrument(*given)
atheris._reserve_counter = lambda: reserved.append(500 + 3 * len(reserved)) or reserved[-1]
atheris._trace_branch = traced.append
with instrumented.kept_in(Path(sys.argv[1])), atheris.instrument_imports(include=["mine"]):
    import mine
del traced[:]
answers = [mine.sign(-7), mine.sign(1000), [mine.WIDE, mine.Box().twice(4)]]
print(json.dumps([answers, reserved, traced, len(made)]))
"""
MINE = """
WIDE = 1 << 70
def sign(x):
    if x < 0:
        return -1
    return 1
class Box:
    def twice(self, x):
        return [y for y in (x, x) if y > 1]
"""


@pytest.mark.clang
def test_a_module_is_instrumented_once_for_each_state_and_reads_the_same(tmp_path: Path) -> None:
    require_atheris()
    (tmp_path / "mine.py").write_text(MINE)
    kept = tmp_path / "kept"

    def run() -> list[Any]:
        path = os.pathsep.join([str(tmp_path), *sys.path])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", SCRIPT, str(kept)], capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr
        found: list[Any] = json.loads(done.stdout)
        return found

    answers, reserved, traced, made = run()
    assert (answers, made) == ([-1, 1, [1 << 70, [4, 4]]], 1)
    # Each branch has a counter of its own, which atheris has reserved.
    assert len({*traced}) > 3
    assert {*traced} <= {*reserved}
    assert run() == [answers, reserved, traced, 0]
    # A damaged file costs only time, as does a folder that cannot be written.
    file = kept / "mine.code"
    file.write_bytes(file.read_bytes()[:-100])
    assert run()[::3] == [answers, 1]
    assert run()[3] == 0
    (tmp_path / "mine.py").write_text(MINE.replace("return -1", "return -2"))
    assert run()[0] == [-2, 1, [1 << 70, [4, 4]]]
    file.unlink()
    kept.rmdir()
    kept.write_text("a file")
    assert run()[3] == 1
