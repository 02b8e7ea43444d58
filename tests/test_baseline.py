"""kfuzz reads and writes the same bytes on processors that have none of its fast loops' instructions."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import require_tool
from programs import run_program

from kfuzz.wire.io import checksum
from tools import baseline

ROOT = Path(__file__).resolve().parent.parent

# Models of QEMU, the options of `tools.baseline`, and the kernels that the model allows. Only SandyBridge has AVX, and
# none has AVX2. NumPy, which PyArrow imports, needs more than Nehalem has.
MODELS = {
    "qemu64": ([], []),
    "core2duo": ([], []),
    "Nehalem": ([], ["crc32c"]),
    "SandyBridge": (["--columns"], ["crc32c", "crc32"]),
}


def run(*command: str) -> Any:
    done = run_program(*command, cwd=ROOT, timeout=1200)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    """The digests of this machine."""
    digests: dict[str, str] = run(sys.executable, "-m", "tools.baseline", "--columns")["digests"]
    return digests


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
def test_results_are_the_same_on_a_processor_without_fast_loops(model: str, here: dict[str, str]) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the models are those of x86-64")
    options, kernels = MODELS[model]
    qemu = require_tool("qemu-x86_64", "install qemu-user")
    found = run(qemu, "-cpu", model, sys.executable, "-m", "tools.baseline", *options)
    assert [name for name, there in found["kernels"].items() if there] == kernels
    assert found["digests"] == {name: digest for name, digest in here.items() if name in found["digests"]}
    assert len(found["digests"]) == 4 + len(options)


def test_the_digests_notice_one_wrong_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = baseline.digest(baseline.checksums())
    assert usual == baseline.digest(baseline.checksums())
    right = checksum.crc32c
    monkeypatch.setattr(checksum, "crc32c", lambda data, value=0: right(data, value) ^ (len(data) == 4097))
    assert baseline.digest(baseline.checksums()) != usual
