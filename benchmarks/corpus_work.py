"""kfuzz's work on the files of a corpus: the verdict, verification, and writing it beside files of zeros. Imports
``measure``, ``kfuzz.records`` and ``kfuzz.corpora``.
"""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.measure import InProcess, Lap, NotTheSameWork
from kfuzz import records
from kfuzz.corpora.generation import generate
from kfuzz.corpora.layout import MANIFEST
from kfuzz.corpora.manifest import read_manifest
from kfuzz.corpora.storage import LocalTarget, as_they_end
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import BATCH_BYTES_MAX, MIB, Topic, Workload, load

__all__ = [
    "CorpusCensus",
    "Written",
    "check_corpus",
    "generate_corpus",
    "log_sizes",
    "make_corpus",
    "verify_corpus",
    "write_zeros",
]

MIXED: Final = Path(__file__).resolve().parents[1] / "spark_jobs/workloads/mixed.toml"
# Verification opens a corpus once, which takes some milliseconds; a corpus is never small.
CORPUS_BYTES: Final = 256 * 1024 * 1024
CORPUS_BYTES_MIN: Final = 4 * 1024 * 1024
# As verification allows.
LIMITS: Final = records.Limits(decompressed_bytes=2 * BATCH_BYTES_MAX)


class CorpusCensus(NamedTuple):
    """A contestant's counts from reading a corpus."""

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


# --- writing, by the clock ------------------------------------------------------------------------------------------

SEGMENT_BYTES: Final = 64 * MIB
ZEROS: Final = bytes(MIB)


class Written(NamedTuple):
    """The bytes of the logs that were written."""

    bytes: int


class _OnClock(InProcess):
    """``write`` fills the folder ``out``, which is emptied before. A lap is one pass, by the clock."""

    def __init__(self, out: Path, write: Callable[[], int]) -> None:
        def run() -> int:
            self._empty(out)
            return write()

        super().__init__(run, lambda: Written(run()))
        self._out, self._write = out, write

    def warm_up(self) -> None:
        """The census has written once."""

    def lap(self, lap_ms: int) -> Lap:
        self._empty(self._out)
        os.sync()
        start = time.perf_counter_ns()
        written = self._write()
        return Lap(time.perf_counter_ns() - start, written)

    @staticmethod
    def _empty(out: Path) -> None:
        shutil.rmtree(out)
        out.mkdir()


def log_sizes(out: Path, size: int) -> list[int]:
    """The sizes of the logs of a corpus of ``size`` bytes, which is written to ``out``."""
    return [row.bytes for row in generate(_disk_workload(size), out / "corpus")]


def generate_corpus(out: Path, size: int) -> InProcess:
    """Write a corpus with all processors."""
    return _OnClock(out, lambda: sum(row.bytes for row in generate(_disk_workload(size), out / "corpus")))


def write_zeros(out: Path, sizes: Sequence[int], threads: int | None) -> InProcess:
    """Write files of zeros with these sizes, each with fsync; with None as many at a time as the generator."""

    def write(at: int) -> None:
        with open(out / str(at), "wb", buffering=0) as file:
            for start in range(0, sizes[at], len(ZEROS)):
                file.write(ZEROS[: sizes[at] - start])
            os.fsync(file.fileno())

    def write_all() -> int:
        for _ in as_they_end(write, range(len(sizes)), threads or LocalTarget(out).default_jobs()):
            pass
        return sum(sizes)

    return _OnClock(out, write_all)


def _disk_workload(size: int) -> Workload:
    return replace(Workload(topics=(Topic("uniform"),)), size=size, segment_bytes=SEGMENT_BYTES)
