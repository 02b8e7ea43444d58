"""The summaries that both drivers print after generating or verifying a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfuzz.corpora.fingerprints import of_corpus, of_partitions
from kfuzz.corpora.layout import STATISTICS
from kfuzz.corpora.manifest import Manifest, corpus_fingerprint
from kfuzz.corpora.verification import Corpus, Problem
from kfuzz.storage import Target
from kfuzz.text import printable
from kfuzz.units import counted, date

if TYPE_CHECKING:
    from kfuzz.corpora.installation import Installed

PROBLEMS_SHOWN = 50


def generated(out: str | Path | Target, rows: Manifest, seconds: float) -> list[str]:
    """Lines about what was written: totals, the fingerprint, and a warning about retention in a broker."""
    lines = [
        f"{out}: {len(rows)} segments, {rows.total('records')} records, {_rate(rows, seconds)}",
        f"fingerprint {corpus_fingerprint(rows)}",
    ]
    first_ms, last_ms = rows.ends("min_timestamp", "max_timestamp")
    if first_ms is not None and last_ms is not None:
        lines.append(
            f"timestamps run from {date(first_ms)} to {date(last_ms)}: before a broker opens this corpus, set "
            "retention.ms=-1 on its topics, or the broker deletes segments older than its retention (default: 7 days)"
        )
    return lines


def generated_json(out: str | Path | Target, rows: Manifest) -> dict[str, Any]:
    """The same facts as one JSON object; timestamps in ms, null if no record has one."""
    whole = of_corpus(of_partitions(rows))
    first_ms, last_ms = rows.ends("min_timestamp", "max_timestamp")
    return {
        "out": str(out),
        "segments": len(rows),
        "records": rows.total("records"),
        "bytes": rows.total("bytes"),
        "fingerprint": corpus_fingerprint(rows),
        "contents_fingerprint": whole.contents,
        "bytes_fingerprint": whole.bytes,
        "min_timestamp": first_ms,
        "max_timestamp": last_ms,
    }


def verified(corpus: Corpus, problems: Sequence[Problem], seconds: float) -> list[str]:
    """One line for each of the first problems, then a line with the totals."""
    rows = corpus.rows
    lines = [str(problem) for problem in problems[:PROBLEMS_SHOWN]]
    if len(problems) > PROBLEMS_SHOWN:
        lines.append(f"… and {len(problems) - PROBLEMS_SHOWN} more; `kfuzz corpus verify --json` shows all")
    verdict = counted(len(problems), "problem") if problems else "no problem"
    batches, records = rows.total("batches"), rows.total("records")
    lines.append(
        f"{corpus.out}: {verdict} in {len(rows)} segments, {batches} batches, {records} records, {_rate(rows, seconds)}"
    )
    return lines


def compared(corpus: Corpus, checks: int) -> str:
    """One line about the statistics of a corpus."""
    return f"{corpus.out}/{STATISTICS}: {checks} statistics of {len(corpus.workload.topics)} topics"


def installed(out: str | Path | Target, log_dir: Path, done: Installed, *, dry_run: bool) -> list[str]:
    """Lines about what an installation did, or would do."""
    would = "would install" if dry_run else "installed"
    linked = f", {done.linked_bytes / 1e6:.0f} MB linked" if done.linked_bytes else ""
    lines = [
        f"{out}: {would} {done.partitions} partitions with {done.segments} segments in {log_dir}, "
        f"{done.copied_bytes / 1e6:.0f} MB copied{linked}"
    ]
    if done.present:
        lines.append(f"{len(done.present)} partitions were there already: {', '.join(done.present)}")
    if done.absent:
        lines.append(f"{len(done.absent)} partitions are not in {log_dir}: {', '.join(done.absent)}")
    return lines


def related(topic: dict[str, Any]) -> list[str]:
    """Lines about the predicted joins of a topic, and about its rows."""
    lines = []
    if "different_keys" in topic:
        lines.append(f"keys: only {topic['different_keys']} different ones")
    if "different_keys_max" in topic:
        lines.append(f"keys: at most {topic['different_keys_max']} different ones, all that have this size")
    for one in topic.get("references", []):
        about = "" if one["exact"] else "about "
        counts = f"{one['matching']} records match a key of {one['to']}, {one['dangling']} dangle"
        lines.append(f"{printable(one['field'])}: {about}{counts}")
    if rows := topic.get("changes"):
        about = "" if rows["exact"] else "about "
        lines.append(
            f"rows: {about}{rows['live_keys']} live, {rows['deleted_keys']} deleted, {rows['tombstones']} tombstones; "
            f"{rows['records_left']} records after compaction"
        )
    return lines


def _rate(rows: Manifest, seconds: float) -> str:
    megabytes = rows.total("bytes") / 1e6
    return f"{megabytes:.0f} MB in {seconds:.1f} s ({megabytes / max(seconds, 1e-9):.0f} MB/s)"


def show_bytes(size: int) -> str:
    """``size`` in three digits, in the decimal unit in which it is below a thousand."""
    for power, unit in enumerate(("B", "kB", "MB", "GB", "TB")):
        # 999.5 would be printed as 1e+03.
        if size < 999.5 * 1000**power:
            return f"{size / 1000**power:.3g} {unit}"
    return f"{size / 1000**5:.4g} PB"
