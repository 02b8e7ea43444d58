"""Completion in a shell: what a person gets after Tab."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kfuzz.vectors import load_suite

BIN = Path(sys.executable).parent
SCRIPT = """\
eval "$(_KFUZZ_COMPLETE=bash_source kfuzz)"
COMP_WORDS=(%s) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_kfuzz_completion kfuzz
printf '%%s\\n' "${COMPREPLY[@]}"
"""


def completed(words: str) -> list[str]:
    """The words that bash offers for the last one. ``''`` is a word that is still empty."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", SCRIPT % words], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("kfuzz expl", ["explain"]),
        ("kfuzz explain crc-", ["crc-mismatch"]),
        ("kfuzz conform --testee kafka-clients@4", ["kafka-clients@4.4.0"]),
        ("kfuzz conform --testee kafka-p", ["kafka-protocol", "kafka-python", "kafka-python-client"]),
        ("kfuzz differential --testee aiok", ["aiokafka", "aiokafka-client"]),
        ("kfuzz fuzz log-", ["log-tools", "log-directory"]),
        ("kfuzz export afl out --target mess", ["messages"]),
        ("kfuzz show records/v2/header/minim", ["records/v2/header/minimal"]),
    ],
)
def test_the_shell_completes_the_names_that_a_verb_takes(words: str, offered: list[str]) -> None:
    assert completed(words) == offered


def test_the_shell_completes_folders_and_ids_of_the_suite() -> None:
    offered = completed("kfuzz vectors list records/v2/count")
    ids = [vector.id for vector in load_suite("records/v2/count/*")]
    assert sorted(offered) == sorted(["records/v2/count", *ids])
    assert len(ids) > 10


def test_the_shell_completes_files_where_no_id_begins_so() -> None:
    """For files, click leaves the reply empty, and bash completes them itself."""
    assert completed("kfuzz show 00000") == []
