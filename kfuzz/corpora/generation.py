"""Makes a corpus. Two drivers use it: the single process here, and Spark in ``kfuzz.spark``.

The steps, under a lock (``claimed``): ``prepare`` says which segments are left to write; ``write_segment`` writes each
of them, in any order on any machine, and its row is kept (``rows``); ``publish`` makes the manifest of the rows.
"""

from __future__ import annotations

import contextlib
import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from threading import Event
from typing import Literal

from kfuzz.corpora.finished import ROWS, KeptRows, RowWriter
from kfuzz.corpora.labels import LABELS
from kfuzz.corpora.layout import MANIFEST, STATISTICS, SUCCESS, WORKLOAD, success_text
from kfuzz.corpora.locks import Lock, is_lock, owned
from kfuzz.corpora.manifest import Manifest, Row, require_pyarrow, write_manifest
from kfuzz.corpora.own_remote import remote_paths
from kfuzz.corpora.plan import Plan, decided
from kfuzz.corpora.prediction import predict
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.verification import verify_segment
from kfuzz.corpora.workload import Workload, parse, render
from kfuzz.errors import UsageError
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT, checkpoint_text, snapshot_name
from kfuzz.storage import Listing, Target, as_they_end, in_parallel
from kfuzz.units import show_size

Resume = Literal["no", "sizes", "verify"]


def generate(
    workload: Workload,
    out: str | Path | Target,
    *,
    overwrite: bool = False,
    resume: Resume = "no",
    break_lock: bool = False,
    jobs: int | None = None,
    name: str = "the workload",
    set_done: Callable[[int], None] = lambda done: None,
) -> Manifest:
    """Make the whole corpus in this process and return the manifest's rows. ``name`` names the workload in errors.

    ``jobs`` segments are made at a time, in threads; None chooses by the target, mostly one more than there are
    processors.

    ``out`` is a directory or a URI, see :meth:`Target.of`. ``resume`` continues an unfinished corpus: ``sizes`` keeps
    segments whose log has the size that its row says, ``verify`` also reads them. ``set_done`` is called with the
    number of finished segments. Raises ``UsageError`` like ``Plan``, :func:`claimed`, ``write_segment`` and
    :func:`publish`.
    """
    target = Target.of(out)
    plan = planned(target, workload, name)
    workload = plan.workload
    with claimed(target, plan, overwrite=overwrite, resume=resume, break_lock=break_lock) as lock:
        work = prepare(target, workload, overwrite=overwrite, resume=resume)
        if resume == "verify":
            kept = work.kept(KeptRows.of(target, workload))
            jobs_reading = jobs or target.default_jobs(reading=True)
            found = as_they_end(lambda row: (row.segment_id, verify_row(target, plan, row)), kept, jobs_reading)
            work.rewrite(segment_id for segment_id, is_wrong in found if is_wrong)
        attempt, cancelled, done = f"{lock.id}-local", Event(), len(plan) - len(work.left)

        def write(segment_id: int) -> Row:
            return write_segment(plan[segment_id], segment_id, workload, target, attempt, cancelled)

        with (
            RowWriter(target, workload, work.run, attempt) as writer,
            contextlib.closing(as_they_end(write, work.left, jobs or target.default_jobs(), cancelled.set)) as written,
        ):
            set_done(done)
            for row in written:
                writer.add(row)
                done += 1
                set_done(done)
        return finish(target, plan, work, lock)


def planned(target: Target, workload: Workload, name: str = "the workload") -> Plan:
    """The plan of ``workload`` in ``target``: what it leaves open is as it was when a corpus was begun there.

    Raises ``UsageError`` like ``resolve`` and ``Plan``.
    """
    return Plan(resolve(workload, target, name=name), name)


@contextlib.contextmanager
def claimed(
    target: Target, plan: Plan, *, overwrite: bool = False, resume: Resume = "no", break_lock: bool = False
) -> Iterator[Lock]:
    """Own ``target`` while the block runs, see ``locks.owned``. If :func:`inspect` refuses it, it stays untouched."""
    inspect(target, plan.workload, overwrite=overwrite, resume=resume)
    with owned(target, [MANIFEST, LABELS, *plan.directories(), *_beside(plan.workload)], break_lock=break_lock) as lock:
        yield lock


@dataclass(slots=True)
class Work:
    """The work of a run: ``left`` are the ids of the segments to write, which may be millions, as an array of int64.
    ``run`` numbers the runs of a corpus.
    """

    run: int
    left: array[int]
    finished: bool

    def rewrite(self, segment_ids: Iterable[int]) -> None:
        """Write these segments too."""
        more = list(segment_ids)
        if more:
            self.left = array("q", heapq.merge(self.left, sorted(more)))
            self.finished = False

    def kept(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows of ``rows``, which are in the plan's order, whose segments are not written again."""
        left = iter(self.left)
        following = next(left, None)
        for row in rows:
            while following is not None and following < row.segment_id:
                following = next(left, None)
            if following != row.segment_id:
                yield row


def prepare(out: str | Path | Target, workload: Workload, *, overwrite: bool = False, resume: Resume = "no") -> Work:
    """Make ``out`` ready for the segments of ``workload``, and say which ones are left to write.

    A finished corpus of this workload keeps the segments that are there. If its ``size`` was smaller, it grows: the
    last segment of each partition is written again. ``overwrite`` first removes any corpus. Raises ``UsageError`` like
    :func:`inspect`. Nothing is ever removed from a place that holds no corpus.
    """
    target = Target.of(out)
    plan = planned(target, workload)
    workload = plan.workload
    inspect(target, workload, overwrite=overwrite, resume=resume)
    names = target.list().files
    if overwrite and WORKLOAD in names:
        _remove(target)
        names = {}
    if WORKLOAD in names:
        held = Plan(held_workload(target))
        if SUCCESS in names:
            rows: Iterable[Row] = Manifest(target.child(MANIFEST))
            left = array("q", _left(target, plan, _carried(held, plan, rows)))
            if held.workload == workload and not left and resume != "verify":
                return Work(0, left, True)
            # From here on, the corpus is incomplete until `publish` writes SUCCESS again. The rows are kept first.
            target.remove_directory(ROWS)
            _carry(target, plan, _carried(held, plan, rows))
            target.remove(SUCCESS)
        elif held.workload != workload:
            _carry(target, plan, _carried(held, plan, KeptRows.of(target, held.workload)))
    kept = KeptRows.of(target, workload)
    target.remove(STATISTICS)
    target.write(WORKLOAD, render(workload))
    return Work(kept.next_run, array("q", _left(target, plan, kept)), False)


def _carried(held: Plan, plan: Plan, rows: Iterable[Row]) -> Iterator[Row]:
    """``rows`` of the corpus ``held`` that are rows of ``plan`` too, with their ids there.

    A larger corpus begins with the smaller one, but the last segment of each partition ends elsewhere.
    """
    for row in rows:
        if held.workload == plan.workload:
            yield row
        elif 0 <= row.segment_id < len(held) and (segment_id := held.carried(row.segment_id, plan)) is not None:
            yield replace(row, segment_id=segment_id)


def _carry(target: Target, plan: Plan, rows: Iterable[Row]) -> None:
    """Keep ``rows`` for a run of ``plan``."""
    with RowWriter(target, plan.workload, 0, "carried") as writer:
        for row in rows:
            writer.add(row)


def _left(target: Target, plan: Plan, rows: Iterable[Row]) -> Iterator[int]:
    """The ids of the segments that have no row, or whose files are not there as their row says."""
    return (segment_id for segment_id, row, problem in matched(target, plan, rows) if row is None or problem)


def finish(target: Target, plan: Plan, work: Work, lock: Lock) -> Manifest:
    """Publish the corpus from the rows that were kept, and drop them. A corpus that was finished stays untouched."""
    if not work.finished:
        lock.check()
        publish(target, plan, KeptRows.of(target, plan.workload))
        target.remove_directory(ROWS)
    return Manifest(target.child(MANIFEST))


def verify_row(target: Target, plan: Plan, row: Row) -> bool:
    """Whether anything is wrong with the files of one segment."""
    return bool(verify_segment(target, plan[row.segment_id], plan.workload, row))


def inspect(target: Target, workload: Workload, *, overwrite: bool = False, resume: Resume = "no") -> None:
    """Raise ``UsageError`` if ``workload`` cannot be generated into ``target``. Changes nothing."""
    require_pyarrow()
    target.check_writable()
    listing = target.list()
    for name, kind in listing.others.items():
        raise UsageError(
            f"{target}/{name} is {kind}, which is no part of a corpus; remove it or name another directory"
        )
    # A driver that was killed at its very start leaves a lock, or half of a file whose name begins with "_".
    others = [name for name in listing.files if not is_lock(name) and not (name[:2] == "._" and name[-4:] == ".tmp")]
    if WORKLOAD in others:
        held = held_workload(target)
        if overwrite:
            return
        # Written before it was decided, or by hand.
        held, workload = decided(held), decided(workload)
        if replace(held, size=workload.size) != workload:
            raise UsageError(
                f"{target} holds a corpus of another workload ({_difference(held, workload)}), and only its size can "
                "grow; name another directory or add --overwrite"
            )
        if held.size != workload.size and not workload.can_grow:
            raise UsageError(
                f"{target} holds a corpus of this workload, and its timestamps.end is fixed, so it cannot change its "
                "size; name another directory, add --overwrite, or use timestamps.start"
            )
        if held.size > workload.size:
            raise UsageError(
                f"{target} holds {show_size(held.size)} of this workload, and a corpus cannot shrink to "
                f"{show_size(workload.size)}; raise size, name another directory or add --overwrite"
            )
        if SUCCESS in others:
            _check_room(target, workload, held.size)
        elif resume == "no":
            raise UsageError(
                f"{target} holds an unfinished corpus of this workload; add --resume to continue it or --overwrite to "
                "begin again"
            )
    elif others or listing.directories:
        raise UsageError(f"{target} is not empty and holds no corpus; name a new or empty directory")
    else:
        _check_room(target, workload)


def _difference(held: Workload, workload: Workload) -> str:
    """The first line in which the files of two workloads differ."""
    pairs = zip_longest(render(held).splitlines(), render(replace(workload, size=held.size)).splitlines())
    there, here = next((there, here) for there, here in pairs if there != here)
    return f"{there or 'nothing'} there, {here or 'nothing'} here"


def held_workload(target: Target) -> Workload:
    """The workload of the corpus in ``target``; ``UsageError`` if this version of kfuzz cannot read it."""
    try:
        return parse((target.read(WORKLOAD) or b"").decode(), WORKLOAD)
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{target} holds a corpus that this version of kfuzz cannot read ({error}), so it cannot know what belongs "
            f"to it; remove {target} yourself or name another directory"
        ) from None


def publish(out: str | Path | Target, plan: Plan, rows: Iterable[Row]) -> None:
    """Write the files of the corpus as a whole: leader epochs, manifest, and last ``_SUCCESS`` with the fingerprint.

    ``rows`` come in the plan's order. Raises ``UsageError`` if the segments were made with different versions of
    kfuzz's generator or of the codec libraries, because another run could give other bytes. Also raises it if a row or
    a file is missing, or if a log has another size than its row says.
    """
    target = Target.of(out)
    target.remove_directory(MANIFEST)
    try:
        write_manifest(target.child(MANIFEST), _whole(target, plan, rows))
    except BaseException:
        target.remove_directory(MANIFEST)
        raise
    epochs = dict(leader_epochs(plan))
    for _ in in_parallel(lambda name: target.write(f"{name}/{LEADER_EPOCH_CHECKPOINT}", epochs[name]), epochs):
        pass
    target.write(SUCCESS, success_text(target, Manifest(target.child(MANIFEST))))


def _whole(target: Target, plan: Plan, rows: Iterable[Row]) -> Iterator[Row]:
    """``rows``, checked; at their end, ``UsageError`` says what was wrong."""
    versions: set[str] = set()
    first, wrong = "", 0
    for segment_id, row, problem in matched(target, plan, rows, tidy=True):
        if row is None or problem:
            first = first or problem or f"{plan.bounds(segment_id)[0]} has no row"
            wrong += 1
        if row is not None:
            versions.add(row.codec_versions)
            yield row
    if len(versions) > 1:
        raise UsageError(
            "the segments were made by different versions of kfuzz or of the codec libraries "
            f"({' and '.join(sorted(versions))}); install the same versions on every executor and generate again "
            "with --overwrite"
        )
    if wrong:
        more = f" (and {wrong - 1} more segments are missing or wrong)" if wrong > 1 else ""
        raise UsageError(
            f"{target}/{first} though it was written{more}; "
            "name a place that the driver and all executors share, and generate again"
        )


def matched(
    target: Target, plan: Plan, rows: Iterable[Row], *, tidy: bool = False
) -> Iterator[tuple[int, Row | None, str]]:
    """Each segment of the plan with its row, and what is wrong with its files as the driver sees them. ``rows`` come
    in the plan's order.

    Executors may have written to their own disks by mistake. ``tidy`` removes what no row has: a segment that was
    written again may have no aborted transaction any more, or another end and so another snapshot.
    """
    left = iter(rows)
    row = next(left, None)
    segment_id = 0
    for directory, listing in target.list_all(plan.directories()):
        expected = set()
        for stem in plan.stems(directory):
            while row is not None and row.segment_id < segment_id:
                row = next(left, None)
            if row is None or row.segment_id > segment_id or row.path != f"{directory}/{stem}.log":
                yield segment_id, None, ""
            else:
                if row.txnindex_crc32c is not None:
                    expected.add(f"{stem}.txnindex")
                expected.add(snapshot_name(row.last_offset))
                yield segment_id, row, next(_missing(row, listing), "")
            segment_id += 1
        if tidy:
            for name in sorted(listing.files.keys() - expected):
                if name.endswith((".txnindex", ".snapshot")):
                    target.remove(f"{directory}/{name}")


def _missing(row: Row, listing: Listing) -> Iterator[str]:
    for name, size in row.files():
        found = listing.files.get(name.rpartition("/")[2])
        if found is None:
            yield f"{name} is missing"
        elif size not in (None, found):
            yield f"{name} has {found} bytes instead of {size}"


def leader_epochs(plan: Plan) -> Iterator[tuple[str, str]]:
    """Each partition's directory, and the content of its ``LeaderEpochCheckpointFile``, version 0."""
    for planned in plan.topics:
        text = checkpoint_text(planned.leader_epochs())
        for partition in planned.partitions:
            yield f"{planned.topic.name}-{partition}", text


def _check_room(target: Target, workload: Workload, there: int = 0) -> None:
    """Refuse a corpus that does not fit on the disk, before hours of work. ``there`` are the bytes that it has already.

    The size of a compressed corpus is predicted, from samples.
    """
    free, needed_bytes = target.free_bytes(), workload.size - there
    if free is not None and needed_bytes > free and any(topic.compressing_codecs for topic in workload.topics):
        needed_bytes = needed_bytes * predict(Plan(workload)).compressed_bytes // workload.size
    if free is not None and needed_bytes > free:
        needed = show_size(needed_bytes) + (" more" if there else "")
        raise UsageError(
            f"{target}: the corpus takes {needed}, but {free} B are free there; "
            "lower size or name a directory on another disk"
        )


def _beside(workload: Workload) -> list[str]:
    """The directories with files of segments in remote storage, and of the ones after them."""
    return list(dict.fromkeys(path.rpartition("/")[0] for path in remote_paths(workload)))


def _remove(target: Target) -> None:
    """Remove the corpus in ``target``, and no other file."""
    held = held_workload(target)
    topics = {topic.name: topic.partitions for topic in held.topics}
    own = [name for name in target.list().directories if _is_partition(name, topics)]
    target.remove(SUCCESS)
    for directory in (MANIFEST, LABELS, ROWS, *own, *_beside(held)):
        target.remove_directory(directory)


def _is_partition(name: str, topics: Mapping[str, int]) -> bool:
    """Whether ``name`` is the directory of a partition; ``topics`` has the number of partitions of each."""
    topic, _, number = name.rpartition("-")
    return topic in topics and number.isdecimal() and str(int(number)) == number and int(number) < topics[topic]
