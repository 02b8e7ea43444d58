"""The results that ``python -m benchmarks`` writes; for tests only."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

COLUMNS: Final = ["path", "subject", "peer", "ratio_median", "ratio_min", "ratio_max"]


def rows_of(folder: Path) -> list[dict[str, str]]:
    """The lines of ``results.csv``, whose ratios are in order."""
    with (folder / "results.csv").open(newline="") as file:
        lines = csv.DictReader(file)
        rows = list(lines)
    assert lines.fieldnames == COLUMNS
    for row in rows:
        assert 0 < float(row["ratio_min"]) <= float(row["ratio_median"]) <= float(row["ratio_max"])
    return rows
