"""A corpus directory from its first file to its last, for both drivers: one process here, Spark in ``kfuzz.spark``.

``prepare`` → any number of ``write_segment``, in any order, anywhere → ``publish``. May import ``corpora`` and below.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from kfuzz.corpora.manifest import Row, corpus_fingerprint, require_pyarrow, write_manifest
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.workload import Workload, load, render, show_size
from kfuzz.errors import UsageError
from kfuzz.files import write_whole

__all__ = ["LEADER_EPOCH_CHECKPOINT", "generate", "leader_epochs", "prepare", "publish", "sweep_corpus"]

WORKLOAD, SUCCESS, MANIFEST = "_workload.toml", "_SUCCESS", "_manifest"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"


def generate(
    workload: Workload,
    out: Path,
    *,
    overwrite: bool = False,
    name: str = "the workload",
    set_done: Callable[[int], None] = lambda done: None,
) -> list[Row]:
    """Make the whole corpus in this process; the manifest's rows. ``name`` stands for the workload in errors."""
    plan = Plan(workload, name)
    prepare(out, workload, overwrite=overwrite)
    rows = []
    try:
        for segment_id, segment in enumerate(plan):
            rows.append(write_segment(segment, segment_id, workload, out, "local"))
            set_done(segment_id + 1)
        publish(out, plan, rows)
    finally:
        sweep_corpus(out, plan)
    return rows


def prepare(out: Path, workload: Workload, *, overwrite: bool = False) -> None:
    """Make ``out`` ready for the segments of ``workload``.

    Raises ``UsageError`` where it holds anything else than this corpus; ``overwrite`` removes another corpus first.
    Of a directory that holds no corpus nothing is ever removed.
    """
    require_pyarrow()
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a directory; name a new or empty one")
    present = out / WORKLOAD
    if present.exists():
        try:
            old: Workload | None = load(present)
        except UsageError:
            old = None
        if old != workload:
            if not overwrite:
                raise UsageError(f"{out} holds a corpus of another workload; name another directory or add --overwrite")
            _remove(out, old)
    elif out.is_dir() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty and holds no corpus; name a new or empty directory")
    else:
        _check_room(out, workload)
    # From here on the corpus is not whole until `publish` says so again.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(out / SUCCESS)
    write_whole(present, render(workload))


def publish(out: Path, plan: Plan, rows: Sequence[Row]) -> None:
    """Write what belongs to the corpus as a whole; ``_SUCCESS``, with the corpus fingerprint, last.

    Raises ``UsageError`` where the segments were not all made by equal versions of the codec libraries: their bytes
    would not be those that another run gives.
    """
    versions = sorted({row.codec_versions for row in rows})
    if len(versions) > 1:
        raise UsageError(
            f"the segments were made by different codec libraries ({' and '.join(versions)}); "
            "install the same versions on every executor and generate again"
        )
    if [row.segment_id for row in sorted(rows, key=lambda row: row.segment_id)] != list(range(len(plan))):
        raise RuntimeError(f"{len(rows)} rows do not cover the plan's {len(plan)} segments")
    for directory in plan.directories():
        write_whole(out / directory / LEADER_EPOCH_CHECKPOINT, leader_epochs())
        _fsync(out / directory)
    shutil.rmtree(out / MANIFEST, ignore_errors=True)
    write_manifest(out / MANIFEST, rows)
    write_whole(out / SUCCESS, corpus_fingerprint(rows) + "\n")
    _fsync(out)


def leader_epochs() -> str:
    """``LeaderEpochCheckpointFile``, version 0: one entry, epoch 0 from offset 0."""
    return "0\n1\n0 0\n"


def sweep_corpus(out: Path, plan: Plan) -> None:
    """Remove what dead attempts have left: a killed executor's worker cannot clean up behind itself.

    A worker that outlives its executor finds its temporary file gone and fails, which nobody waits for.
    """
    for directory in plan.directories():
        for path in (out / directory).glob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _check_room(out: Path, workload: Workload) -> None:
    """Refuse now what would fill the disk in an hour. How far codecs shrink a corpus is not known beforehand."""
    compressed = any(name != "none" for topic in workload.topics for name, _ in topic.batches.codecs)
    existing = next(path for path in (out.absolute(), *out.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(existing).free
    if not compressed and workload.size > free:
        raise UsageError(
            f"{out}: the corpus takes {show_size(workload.size)}, but {free} B are free there; "
            "lower size or name a directory on another disk"
        )


def _remove(out: Path, old: Workload | None) -> None:
    """Remove the corpus of ``old``, and only that."""
    if old is None:
        raise UsageError(f"{out / WORKLOAD} cannot be read, so it is unclear what to remove; remove {out} yourself")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(out / SUCCESS)
    shutil.rmtree(out / MANIFEST, ignore_errors=True)
    for directory in Plan(old).directories():
        shutil.rmtree(out / directory, ignore_errors=True)


def _fsync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
