"""``python -m benchmarks.spark_cost`` on a small corpus: figures for everyone who works, and nothing is left over."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from conftest import require_tool
from programs import run_program

from benchmarks.spark_cost import main

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.nightly
def test_the_cost_is_printed_and_the_corpus_removed(tmp_path: Path) -> None:
    require_tool("java", "install a Java runtime of version 17 or newer")
    command = [sys.executable, "-m", "benchmarks.spark_cost", "--size", "256MiB", "--in", tmp_path]
    done = run_program(*command, cwd=ROOT, timeout=300)
    for name in ("one process", "Python workers, running", "Python workers, start", "JVM, start and first job"):
        assert float(re.search(rf"^{name} +([\d.]+)", done.stdout, re.MULTILINE)[1]) > 0  # type: ignore[index]
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_size_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--size", "much"]) == 2
    assert capsys.readouterr().err.startswith("python -m benchmarks.spark_cost: --size is 'much'; give a size")
