"""No code of ours uses a wide register again once it has cleared the upper halves. While these are in use, SSE code
everywhere else takes up to three times as long on some processors; a compiler once moved a load after ``vzeroupper``.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from conftest import require_tool

ROOT = Path(__file__).parents[2]
FUNCTION = re.compile(r"<(\w[^>]*)>:$")
LEAVES = re.compile(r"\t(ret|jmp|call)")
WIDE = re.compile(r"%[yz]mm\d")


def used_again(listing: Iterable[str]) -> Iterator[str]:
    """The functions in objdump's ``listing`` that use a wide register between ``vzeroupper`` and where they leave."""
    name, cleared = "", False
    for line in listing:
        if found := FUNCTION.search(line):
            name, cleared = found[1], False
        elif "vzeroupper" in line:
            cleared = True
        elif LEAVES.search(line):
            cleared = False
        elif cleared and WIDE.search(line):
            yield name
            cleared = False


def test_such_code_would_be_seen() -> None:
    lines = [
        "0000000000007ff0 <kernel>:",
        "    7ff0:\tvpxor  %ymm0,%ymm1,%ymm0",
        "    8442:\tvzeroupper",
        "    8448:\tvmovdqa -0x20(%rsp),%ymm0",
        "    8490:\tjmp    7c50 <other>",
        "0000000000008500 <good>:",
        "    8500:\tvpxor  %ymm0,%ymm1,%ymm0",
        "    8504:\tvzeroupper",
        "    8508:\tret",
        "    8509:\tvpxor  %ymm0,%ymm1,%ymm0",
    ]
    assert list(used_again(lines)) == ["kernel"]


@pytest.mark.full
def test_upper_halves_stay_clear() -> None:
    require_tool("objdump", "apt-get install binutils")
    if "x86_64" not in sysconfig.get_platform():
        pytest.skip("only processors with AVX have upper halves")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    wide = []
    for module in sorted((ROOT / "kfuzz").rglob(f"*{suffix}")):
        command = ["objdump", "-d", "--no-show-raw-insn", module]
        listing = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
        assert list(used_again(listing)) == [], module.name
        if any(WIDE.search(line) for line in listing):
            wide.append(module.name.partition(".")[0])
    # The checksums have such code, so the listing can be read.
    assert "checksum" in wide
