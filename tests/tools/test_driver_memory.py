"""The measurement of a driver's memory runs, and its simulated corpus is a whole one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_a_simulated_corpus_of_a_few_thousand_segments_is_published_and_checked() -> None:
    argv = [sys.executable, "-m", "tools.driver_memory", "--segments", "3000", "--partitions", "7", "--tasks", "40"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3003 segments in 7 partitions, 40 tasks\n")
    assert "peak of the driver: " in done.stdout
