"""kfuzz's work on the files of a corpus: the verdict, and verification. Imports ``measure``, ``kfuzz.records`` and
``kfuzz.corpora``.
"""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.measure import InProcess, NotTheSameWork
from kfuzz import records
from kfuzz.corpora.generation import MANIFEST, generate
from kfuzz.corpora.manifest import read_manifest
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import BATCH_BYTES_MAX, Topic, Workload, load

__all__ = ["CorpusCensus", "check_corpus", "make_corpus", "verify_corpus"]

MIXED: Final = Path(__file__).resolve().parents[1] / "spark_jobs/workloads/mixed.toml"
# Verification opens a corpus once, which takes some milliseconds; a corpus is never small.
CORPUS_BYTES: Final = 256 * 1024 * 1024
CORPUS_BYTES_MIN: Final = 4 * 1024 * 1024
# As verification allows.
LIMITS: Final = records.Limits(decompressed_bytes=2 * BATCH_BYTES_MAX)


class CorpusCensus(NamedTuple):
    """What a contestant has read of a corpus."""

    records: int
    batches: int
    bytes: int


def make_corpus(out: Path, kind: str, share: float) -> CorpusCensus:
    """Generate a corpus of uncompressed 100-byte values, or of the mixed workload; say what it holds."""
    workload = load(MIXED) if kind == "mixed" else Workload(topics=(Topic("uniform"),))
    rows = generate(replace(workload, size=max(round(CORPUS_BYTES * share), CORPUS_BYTES_MIN)), out)
    return CorpusCensus(*(sum(getattr(row, name) for row in rows) for name in CorpusCensus._fields))


def verify_corpus(out: Path) -> InProcess:
    """A ``verify`` of the corpus in ``out``."""
    rows = read_manifest(out / MANIFEST)
    # Verification gives problems alone. It has none only if it met exactly what the manifest says.
    census = CorpusCensus(*(sum(getattr(row, name) for row in rows) for name in CorpusCensus._fields))

    def run() -> int:
        if problems := verify(out, jobs=1):
            raise NotTheSameWork(f"verification of the corpus found a problem: {problems[0]}")
        return census.records

    def take_census() -> CorpusCensus:
        run()
        return census

    return InProcess(run, take_census)


def check_corpus(out: Path) -> InProcess:
    """A strict ``records.check`` of each log, mapped as verification maps it."""
    logs = sorted(out.rglob("*.log"))

    def take_census() -> CorpusCensus:
        record_count = batch_count = size = 0
        for log in logs:
            with open(log, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                verdict = records.check(mapped, profile="strict", limits=LIMITS)
                if verdict.findings:
                    raise NotTheSameWork(f"{log.name}: {verdict.findings[0]}")
                record_count += verdict.record_count
                batch_count += verdict.batch_count
                size += len(mapped)
        return CorpusCensus(record_count, batch_count, size)

    return InProcess(lambda: take_census().records, take_census)
