"""Makes a corpus directory. Two drivers use it: the single process here, and Spark in ``kfuzz.spark``.

The steps: ``prepare``, then ``write_segment`` for each segment in any order on any machine, then ``publish``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from kfuzz.corpora.manifest import Row, corpus_fingerprint, require_pyarrow, write_manifest
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.workload import Workload, load, render, show_size
from kfuzz.errors import UsageError
from kfuzz.files import cannot_write, local_path, write_whole

__all__ = [
    "LEADER_EPOCH_CHECKPOINT",
    "file_sums",
    "generate",
    "holds",
    "leader_epochs",
    "prepare",
    "publish",
    "success_text",
    "sweep_corpus",
]

WORKLOAD, SUCCESS, MANIFEST = "_workload.toml", "_SUCCESS", "_manifest"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"


def generate(
    workload: Workload,
    out: str | Path,
    *,
    overwrite: bool = False,
    name: str = "the workload",
    set_done: Callable[[int], None] = lambda done: None,
) -> list[Row]:
    """Make the whole corpus in this process and return the manifest's rows. ``name`` names the workload in errors.

    ``set_done`` is called with the number of finished segments. Raises ``UsageError`` like ``Plan``, :func:`prepare`,
    ``write_segment`` and :func:`publish`.
    """
    out = local_path(out)
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


def prepare(out: str | Path, workload: Workload, *, overwrite: bool = False) -> None:
    """Make ``out`` ready for the segments of ``workload``.

    Raises ``UsageError`` if it holds anything but this corpus; ``overwrite`` first removes another corpus. Nothing is
    ever removed from a directory that holds no corpus.
    """
    require_pyarrow()
    out = local_path(out)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a directory; name a new or empty one")
    present = out / WORKLOAD
    if present.exists():
        if not holds(out, workload):
            if not overwrite:
                raise UsageError(f"{out} holds a corpus of another workload; name another directory or add --overwrite")
            _remove(out)
    elif out.is_dir() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty and holds no corpus; name a new or empty directory")
    else:
        _check_room(out, workload)
    # From here on, the corpus is incomplete until `publish` writes SUCCESS again.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(out / SUCCESS)
    write_whole(present, render(workload))


def holds(out: Path, workload: Workload) -> bool:
    """Whether ``out`` holds a corpus of ``workload``, finished or not."""
    return _held(out) == workload


def _held(out: Path) -> Workload | None:
    try:
        return load(out / WORKLOAD)
    except UsageError:
        return None


def publish(out: str | Path, plan: Plan, rows: Sequence[Row]) -> None:
    """Write the files of the corpus as a whole: leader epochs, manifest, and last ``_SUCCESS`` with the fingerprint.

    Raises ``UsageError`` if the segments were made with different versions of the codec libraries, because another run
    could give other bytes. Also raises it if a file of a row is missing or has another size.
    """
    out = local_path(out)
    versions = sorted({row.codec_versions for row in rows})
    if len(versions) > 1:
        raise UsageError(
            f"the segments were made by different codec libraries ({' and '.join(versions)}); "
            "install the same versions on every executor and generate again"
        )
    if [row.segment_id for row in sorted(rows, key=lambda row: row.segment_id)] != list(range(len(plan))):
        raise RuntimeError(f"{len(rows)} rows do not cover the plan's {len(plan)} segments")
    _check_files(out, rows)
    for directory in plan.directories():
        write_whole(out / directory / LEADER_EPOCH_CHECKPOINT, leader_epochs())
        _fsync(out / directory)
    shutil.rmtree(out / MANIFEST, ignore_errors=True)
    write_manifest(out / MANIFEST, rows)
    write_whole(out / SUCCESS, success_text(out, rows))
    _fsync(out)


def success_text(out: Path, rows: Sequence[Row]) -> str:
    """The content of ``_SUCCESS``: the corpus fingerprint, and the SHA-256 of each file that it does not cover.

    The lines after the first are those of ``sha256sum``.
    """
    return "".join([f"{corpus_fingerprint(rows)}\n", *(f"{total}  {name}\n" for name, total in file_sums(out).items())])


def file_sums(out: Path) -> dict[str, str]:
    """The SHA-256 of the workload and of the manifest's files in ``out``, by their names in the corpus."""
    sums = {}
    for path in [*sorted((out / MANIFEST).glob("part-*.parquet")), out / WORKLOAD]:
        with open(path, "rb") as file:
            sums[path.relative_to(out).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def _check_files(out: Path, rows: Sequence[Row]) -> None:
    """Check that the driver sees each row's files. Executors may have written to their own disks by mistake."""
    wrong = []
    for row in rows:
        for name, size in row.files():
            try:
                found = os.stat(out / name).st_size
            except OSError:
                wrong.append(f"{name} is missing")
            else:
                if size is not None and found != size:
                    wrong.append(f"{name} has {found} bytes instead of {size}")
    if wrong:
        more = f" (and {len(wrong) - 1} more files are missing or wrong)" if len(wrong) > 1 else ""
        raise UsageError(
            f"{out}/{wrong[0]} though it was written{more}; "
            "name a directory that the driver and all executors share, and generate again"
        )


def leader_epochs() -> str:
    """The content of ``LeaderEpochCheckpointFile``, version 0, with one entry: epoch 0 begins at offset 0."""
    return "0\n1\n0 0\n"


def sweep_corpus(out: Path, plan: Plan) -> None:
    """Remove the temporary files of dead attempts: the worker of a killed executor cannot remove its own.

    A worker that outlives its executor finds its temporary file gone and fails. That is harmless, because no job waits
    for it.
    """
    for directory in plan.directories():
        for path in (out / directory).glob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _check_room(out: Path, workload: Workload) -> None:
    """Refuse a corpus that does not fit on the disk, before hours of work.

    A compressed corpus is not checked, because its size is not known in advance.
    """
    compressed = any(name != "none" for topic in workload.topics for name, _ in topic.batches.codecs)
    existing = next(path for path in (out.absolute(), *out.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(existing).free
    if not compressed and workload.size > free:
        raise UsageError(
            f"{out}: the corpus takes {show_size(workload.size)}, but {free} B are free there; "
            "lower size or name a directory on another disk"
        )


def _remove(out: Path) -> None:
    """Remove the corpus in ``out``, and no other file."""
    old = _held(out)
    if old is None:
        raise UsageError(f"{out / WORKLOAD} cannot be read, so kfuzz cannot tell what to remove; remove {out} yourself")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(out / SUCCESS)
    shutil.rmtree(out / MANIFEST, ignore_errors=True)
    for directory in Plan(old).directories():
        shutil.rmtree(out / directory, ignore_errors=True)


def _fsync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise cannot_write(directory, error) from None
    finally:
        os.close(descriptor)
