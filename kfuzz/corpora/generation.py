"""Makes a corpus. Two drivers use it: the single process here, and Spark in ``kfuzz.spark``.

The steps: ``prepare``, then ``write_segment`` for each segment in any order on any machine, then ``publish``.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kfuzz.corpora.locks import Lock, is_lock, owned
from kfuzz.corpora.manifest import Row, corpus_fingerprint, part_names, require_pyarrow, write_manifest
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.resolution import WORKLOAD, held, resolve
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.targets import Target, in_parallel
from kfuzz.corpora.workload import Workload, render, show_size
from kfuzz.errors import UsageError

__all__ = [
    "LEADER_EPOCH_CHECKPOINT",
    "claimed",
    "file_sums",
    "generate",
    "holds",
    "inspect",
    "leader_epochs",
    "prepare",
    "publish",
    "success_text",
]

SUCCESS, MANIFEST = "_SUCCESS", "_manifest"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"


def generate(
    workload: Workload,
    out: str | Path | Target,
    *,
    overwrite: bool = False,
    break_lock: bool = False,
    name: str = "the workload",
    set_done: Callable[[int], None] = lambda done: None,
) -> list[Row]:
    """Make the whole corpus in this process and return the manifest's rows. ``name`` names the workload in errors.

    ``out`` is a directory or a URI, see :meth:`Target.of`. ``set_done`` is called with the number of finished segments.
    Raises ``UsageError`` like ``Plan``, ``resolve``, :func:`claimed`, :func:`prepare`, ``write_segment`` and
    :func:`publish`.
    """
    target = Target.of(out)
    workload = resolve(workload, target, name=name)
    plan = Plan(workload, name)
    rows = []
    with claimed(target, plan, overwrite=overwrite, break_lock=break_lock) as lock:
        prepare(target, workload, overwrite=overwrite)
        for segment_id, segment in enumerate(plan):
            rows.append(write_segment(segment, segment_id, workload, target, f"{lock.id}-local"))
            set_done(segment_id + 1)
        lock.check()
        publish(target, plan, rows)
    return rows


@contextlib.contextmanager
def claimed(target: Target, plan: Plan, *, overwrite: bool = False, break_lock: bool = False) -> Iterator[Lock]:
    """Own ``target`` while the block runs, see ``locks.owned``. What :func:`prepare` refuses is refused untouched."""
    inspect(target, plan.workload, overwrite=overwrite)
    with owned(target, [MANIFEST, *plan.directories()], break_lock=break_lock) as lock:
        yield lock


def prepare(out: str | Path | Target, workload: Workload, *, overwrite: bool = False) -> None:
    """Make ``out`` ready for the segments of ``workload``, which must be resolved.

    Raises ``UsageError`` if it holds anything but this corpus; ``overwrite`` first removes another corpus. Nothing is
    ever removed from a place that holds no corpus.
    """
    target = Target.of(out)
    inspect(target, workload, overwrite=overwrite)
    if WORKLOAD in target.list().files and not holds(target, workload):
        _remove(target)
    # From here on, the corpus is incomplete until `publish` writes SUCCESS again.
    target.remove(SUCCESS)
    target.write(WORKLOAD, render(workload))


def inspect(target: Target, workload: Workload, *, overwrite: bool = False) -> None:
    """Raise ``UsageError`` if ``workload`` cannot be generated into ``target``. Changes nothing."""
    require_pyarrow()
    target.check_writable()
    listing = target.list()
    # A driver that was killed at its very start leaves a lock, or half of a file whose name begins with "_".
    others = [name for name in listing.files if not is_lock(name) and not (name[:2] == "._" and name[-4:] == ".tmp")]
    if WORKLOAD in others:
        if not overwrite and not holds(target, workload):
            _refuse_growth(target, workload)
            raise UsageError(f"{target} holds a corpus of another workload; name another directory or add --overwrite")
    elif others or listing.directories:
        raise UsageError(f"{target} is not empty and holds no corpus; name a new or empty directory")
    else:
        _check_room(target, workload)


def _refuse_growth(target: Target, workload: Workload) -> None:
    present = held(target)
    if present is not None and present.resized(workload.size) == workload and not workload.can_grow:
        raise UsageError(
            f"{target} holds a corpus of this workload, and its timestamps.end is fixed, so it cannot change its size; "
            "name another directory, add --overwrite, or use timestamps.start"
        )


def holds(out: str | Path | Target, workload: Workload) -> bool:
    """Whether ``out`` holds a corpus of ``workload``, finished or not."""
    return held(Target.of(out)) == workload


def publish(out: str | Path | Target, plan: Plan, rows: Sequence[Row]) -> None:
    """Write the files of the corpus as a whole: leader epochs, manifest, and last ``_SUCCESS`` with the fingerprint.

    Raises ``UsageError`` if the segments were made with different versions of the codec libraries, because another run
    could give other bytes. Also raises it if a file of a row is missing or has another size.
    """
    target = Target.of(out)
    versions = sorted({row.codec_versions for row in rows})
    if len(versions) > 1:
        raise UsageError(
            f"the segments were made by different codec libraries ({' and '.join(versions)}); "
            "install the same versions on every executor and generate again"
        )
    if [row.segment_id for row in sorted(rows, key=lambda row: row.segment_id)] != list(range(len(plan))):
        raise RuntimeError(f"{len(rows)} rows do not cover the plan's {len(plan)} segments")
    _check_files(target, plan, rows)
    epochs = dict(leader_epochs(plan))
    for _ in in_parallel(lambda name: target.write(f"{name}/{LEADER_EPOCH_CHECKPOINT}", epochs[name]), epochs):
        pass
    target.remove_directory(MANIFEST)
    write_manifest(target.child(MANIFEST), rows)
    target.write(SUCCESS, success_text(target, rows))


def success_text(target: Target, rows: Sequence[Row]) -> str:
    """The content of ``_SUCCESS``: the corpus fingerprint, and the SHA-256 of each file that it does not cover.

    The lines after the first are those of ``sha256sum``.
    """
    sums = file_sums(target).items()
    return "".join([f"{corpus_fingerprint(rows)}\n", *(f"{total}  {name}\n" for name, total in sums)])


def file_sums(target: Target) -> dict[str, str]:
    """The SHA-256 of the workload and of the manifest's files in ``target``, by their names in the corpus."""
    names = [*(f"{MANIFEST}/{name}" for name in part_names(target.child(MANIFEST))), WORKLOAD]
    return {name: hashlib.sha256(target.read(name) or b"").hexdigest() for name in names}


def _check_files(target: Target, plan: Plan, rows: Sequence[Row]) -> None:
    """Check that the driver sees each row's files. Executors may have written to their own disks by mistake.

    An index that no row has is removed: a segment that was written again may have no aborted transaction any more.
    """
    expected: dict[str, dict[str, int | None]] = {}
    for row in rows:
        for name, size in row.files():
            directory, _, base = name.rpartition("/")
            expected.setdefault(directory, {})[base] = size
    wrong = []
    for directory, listing in target.list_all(plan.directories()):
        files = expected.pop(directory, {})
        for base, size in files.items():
            if base not in listing.files:
                wrong.append(f"{directory}/{base} is missing")
            elif size is not None and listing.files[base] != size:
                wrong.append(f"{directory}/{base} has {listing.files[base]} bytes instead of {size}")
        for base in listing.files:
            if base.endswith(".txnindex") and base not in files:
                target.remove(f"{directory}/{base}")
    if wrong:
        more = f" (and {len(wrong) - 1} more files are missing or wrong)" if len(wrong) > 1 else ""
        raise UsageError(
            f"{target}/{wrong[0]} though it was written{more}; "
            "name a directory that the driver and all executors share, and generate again"
        )


def leader_epochs(plan: Plan) -> Iterator[tuple[str, str]]:
    """Each partition's directory, and the content of its ``LeaderEpochCheckpointFile``, version 0."""
    for planned in plan.topics:
        epochs = planned.leader_epochs()
        text = "".join([f"0\n{len(epochs)}\n", *(f"{epoch} {offset}\n" for epoch, offset in epochs)])
        for partition in range(planned.topic.partitions):
            yield f"{planned.topic.name}-{partition}", text


def _check_room(target: Target, workload: Workload) -> None:
    """Refuse a corpus that does not fit on the disk, before hours of work.

    A compressed corpus is not checked, because its size is not known in advance.
    """
    compressed = any(name != "none" for topic in workload.topics for name, _ in topic.batches.codecs)
    free = target.free_bytes()
    if not compressed and free is not None and workload.size > free:
        raise UsageError(
            f"{target}: the corpus takes {show_size(workload.size)}, but {free} B are free there; "
            "lower size or name a directory on another disk"
        )


def _remove(target: Target) -> None:
    """Remove the corpus in ``target``, and no other file."""
    old = held(target)
    if old is None:
        raise UsageError(
            f"{target}/{WORKLOAD} cannot be read, so kfuzz cannot tell what to remove; remove {target} yourself"
        )
    target.remove(SUCCESS)
    target.remove_directory(MANIFEST)
    for directory in Plan(old).directories():
        target.remove_directory(directory)
