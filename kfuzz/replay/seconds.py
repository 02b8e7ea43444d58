"""The seconds of a run: as JSON, as a log of HdrHistograms, and as a picture in a page of its own."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any, Final

from kfuzz.files import write_whole
from kfuzz.replay.report import Report, percentiles_ms
from kfuzz.text import printable

WIDTH: Final = 1000
HEIGHT: Final = 220
# A longer run is drawn with so many points; each has the highest value of its seconds.
POINTS_MAX: Final = 1000
LINES: Final = ("p50", "p99", "max")


def seconds_json(report: Report) -> list[dict[str, Any]]:
    """One object for each second: the records that were acknowledged in it, and the latencies of what was due in it."""
    return [
        {"second": at, "records": one.answered, "latency_ms": percentiles_ms(one.latency)}
        for at, one in sorted(report.by_second.items())
    ]


def write_histograms(report: Report, path: str | Path) -> None:
    """Write the latencies in µs of each second as a log that HdrHistogram's tools read; its unit of time is seconds."""
    from hdrh.log import HistogramLogWriter

    text = io.StringIO()
    log = HistogramLogWriter(text)
    log.output_log_format_version()
    log.output_comment(f"[StartTime: {report.began:.3f} (seconds since epoch)]")
    log.output_legend()
    for at, one in sorted(report.by_second.items()):
        # The writer takes 0 for a time that is not given.
        log.output_interval_histogram(one.latency, at or 1e-9, at + 1, 1000.0)
    write_whole(path, text.getvalue())


def write_picture(report: Report, title: str, path: str | Path) -> None:
    """Draw the rate and the latencies of each second in one self-contained HTML page."""
    import jinja2

    seconds = seconds_json(report)
    step = -(-len(seconds) // POINTS_MAX)
    groups = [seconds[at : at + step] for at in range(0, len(seconds), step or 1)]
    rates = [max(one["records"] for one in group) for group in groups]
    latencies = {line: [max(one["latency_ms"].get(line, 0.0) for one in group) for group in groups] for line in LINES}
    target = report.target.records_per_s
    rate_max = max([*rates, target or 0, 1])
    latency_max = max([*latencies["max"], 1.0])
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kfuzz.replay", ""), autoescape=True, undefined=jinja2.StrictUndefined
    )
    page = environment.get_template("picture.html.j2").render(
        title=printable(title),
        lines=[printable(line) for line in report.lines(title)],
        width=WIDTH,
        height=HEIGHT,
        seconds=seconds[-1]["second"] + 1 if seconds else 0,
        rate_max=rate_max,
        target=None if target is None else HEIGHT - HEIGHT * target / rate_max,
        rates=_points([rate / rate_max for rate in rates]),
        latency_max=latency_max,
        # From 0.1 ms on, each power of ten takes as much room.
        latencies={
            line: _points([math.log10(max(value, 0.1) * 10) / math.log10(latency_max * 10) for value in values])
            for line, values in latencies.items()
        },
    )
    write_whole(path, page)


def _points(heights: list[float]) -> str:
    """The points of a line, of heights from 0 to 1."""
    width = WIDTH / max(1, len(heights) - 1)
    return " ".join(f"{at * width:.1f},{HEIGHT - HEIGHT * height:.1f}" for at, height in enumerate(heights))
