"""The table, the CSV file and the chart of a run. Imports ``measure`` and ``kfuzz.files``.

``python -m benchmarks.report results.csv`` prints a CSV file as a Markdown table with a line for each path.
"""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.table import Table

from benchmarks.measure import Ratio
from kfuzz.files import write_whole

COLUMNS: Final = ("path", "subject", "peer", "ratio_median", "ratio_min", "ratio_max")
SUBJECT: Final = "kfuzz"
ROW_PX: Final = 20
DECADE_PX: Final = 200


def to_table(rows: Sequence[Ratio]) -> Table:
    """A table for a terminal. A ratio above 1 means that kfuzz is faster. Times are ns per record, message or call."""
    table = Table(title="CPU time of the peer divided by kfuzz's")
    for name in ("path", "peer"):
        table.add_column(name, no_wrap=True)
    rated = any(row.mb_per_s for row in rows)
    for name in ("ratio", "least", "most", "kfuzz ns each", "peer ns each", *["kfuzz MB/s"] * rated):
        table.add_column(name, justify="right")
    for at, row in enumerate(rows):
        again = at > 0 and rows[at - 1].path == row.path
        ratios = (f"{ratio:.2f}" for ratio in (row.median, row.least, row.most))
        times = [f"{row.kfuzz_ns:.1f}", f"{row.peer_ns:.1f}"]
        rate = [f"{row.mb_per_s:.0f}" if row.mb_per_s else ""] * rated
        table.add_row("" if again else row.path, row.peer, *ratios, *times, *rate)
    return table


def write(rows: Sequence[Ratio], folder: Path) -> tuple[Path, Path]:
    """Write ``results.csv`` and ``results.svg`` into ``folder``, whole or not at all; returns their paths."""
    table, chart = folder / "results.csv", folder / "results.svg"
    write_whole(table, _to_csv(rows))
    write_whole(chart, _to_svg(rows))
    return table, chart


def _to_csv(rows: Sequence[Ratio]) -> str:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    for row in rows:
        lines.writerow((row.path, SUBJECT, row.peer, *(f"{x:.4f}" for x in (row.median, row.least, row.most))))
    return text.getvalue()


def _to_svg(rows: Sequence[Ratio]) -> str:
    """Draw a bar from 1 to the median on a logarithmic scale, with a whisker from least to most."""
    low = math.floor(math.log10(min(0.5, *(row.least for row in rows))))
    high = math.ceil(math.log10(max(10.0, *(row.most for row in rows))))

    def x(ratio: float) -> float:
        return round((math.log10(ratio) - low) * DECADE_PX, 1)

    bars = [
        {
            "y": at * ROW_PX,
            "label": f"{row.path} / {row.peer}",
            "ratio": f"{row.median:.2f}",
            "from": min(x(1), x(row.median)),
            "width": round(abs(x(row.median) - x(1)), 1),
            "slower": row.median < 1,
            "least": x(row.least),
            "most": x(row.most),
        }
        for at, row in enumerate(rows)
    ]
    ticks = [{"x": x(10.0**power), "label": f"{10.0**power:g}"} for power in range(low, high + 1)]
    environment = Environment(
        loader=PackageLoader("benchmarks", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    template = environment.get_template("chart.svg.j2")
    return template.render(bars=bars, ticks=ticks, plot_width=x(10.0**high), plot_height=len(rows) * ROW_PX)


def to_markdown(results: str) -> str:
    """Convert the text of a ``results.csv`` to a Markdown table with each peer's median, least and most ratio."""
    peers: dict[str, list[str]] = {}
    for row in csv.DictReader(io.StringIO(results)):
        median, least, most = (_short(float(row[name])) for name in COLUMNS[3:])
        peers.setdefault(row["path"], []).append(f"{row['peer']} **{median}** ({least} to {most})")
    lines = ["| path | ratio to each peer: median (least to most) |", "|---|---|"]
    lines += [f"| `{path}` | {', '.join(found)} |" for path, found in peers.items()]
    return "\n".join(lines) + "\n"


def _short(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"


if __name__ == "__main__":
    sys.stdout.write(to_markdown(Path(sys.argv[1]).read_text()))
