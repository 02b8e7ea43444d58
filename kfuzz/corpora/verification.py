"""Reads a corpus and compares it with its plan and manifest: every batch, offset, sequence, index, sum and file.

One pass over a log gives all that is compared (``log_walk``). It rebuilds the indexes like Kafka's recovery
(``LogSegment.recover``). This code is independent of the generator's, so that both do not share a mistake.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import zip_longest
from pathlib import Path

from kfuzz.corpora.finished import ROWS
from kfuzz.corpora.hostile import hostile_of, moved
from kfuzz.corpora.labels import Label, LabelsDamaged, label_file, labels_of, sums_of
from kfuzz.corpora.layout import MANIFEST, STATISTICS, SUCCESS, WORKLOAD, file_sums, success_text
from kfuzz.corpora.locks import is_lock
from kfuzz.corpora.log_walk import LogWalk
from kfuzz.corpora.manifest import PARTS, Manifest, Row, corpus_fingerprint
from kfuzz.corpora.own_log import LIMITS, files_beside, snapshot_file
from kfuzz.corpora.own_remote import remote_paths
from kfuzz.corpora.plan import Plan, Segment
from kfuzz.corpora.turns import Writers
from kfuzz.corpora.workload import Topic, Workload, parse
from kfuzz.corpora.writers import HOSTILE
from kfuzz.errors import NotRegular, UsageError
from kfuzz.logs import snapshot
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT, snapshot_name
from kfuzz.logs.stored import entry_struct
from kfuzz.records.read.reader import check_with
from kfuzz.storage import Listing, Target, in_parallel
from kfuzz.wire.io.checksum import crc32c

# The columns of a row that the plan fixes, in the order of `Plan.bounds`.
PLANNED = ("path", "first_offset", "last_offset")
# Further problems usually repeat the first ones.
PROBLEMS_PER_SEGMENT = 20
# So many segments may be missing; each is reported.
MISSING_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a corpus.

    ``path`` is relative to the corpus. ``at`` is the byte offset in that file, or None. ``code`` is a stable name for
    the kind of problem.
    """

    path: str
    at: int | None
    code: str
    message: str

    def __str__(self) -> str:
        place = self.path if self.at is None else f"{self.path} at byte {self.at}"
        return f"{place}: {self.message} [{self.code}]"


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus opened for verification."""

    out: Target
    workload: Workload
    plan: Plan
    rows: Manifest

    @staticmethod
    def open(out: str | Path | Target) -> Corpus:
        """Open the corpus in ``out``; ``UsageError`` if it is not a corpus or its manifest cannot be read.

        ``UsageError`` also if the manifest or the workload is about many more segments than there are: both can claim
        any number, and each row takes time and memory.
        """
        target = Target.of(out)
        text, name = target.read(WORKLOAD), f"{target}/{WORKLOAD}"
        if text is None:
            raise UsageError(f"{target} holds no corpus ({WORKLOAD} is missing); name the directory given as --out")
        workload = parse(text.decode(errors="replace"), name)
        corpus = Corpus(target, workload, Plan(workload, name), Manifest(target.child(MANIFEST)))
        claimed = max(len(corpus.plan), len(corpus.rows))
        if claimed > MISSING_MAX and claimed > MISSING_MAX + (held := _held(target)):
            raise UsageError(
                f"{target} has {held} segments, but its manifest has {len(corpus.rows)} rows and its workload "
                f"{len(corpus.plan)} segments; generate it again"
            )
        return corpus

    def segments(self) -> Iterator[tuple[Segment, Row]]:
        """The segments that have a row in the manifest, with that row."""
        for row in self.rows:
            if 0 <= row.segment_id < len(self.plan):
                yield self.plan[row.segment_id], row


def _held(target: Target) -> int:
    """The number of segments in the directories of a corpus."""
    listings = target.list_all(target.list().directories)
    return sum(name.endswith(".log") for _, listing in listings for name in listing.files)


def verify(
    out: str | Path | Target, *, jobs: int | None = None, set_done: Callable[[int], None] = lambda done: None
) -> list[Problem]:
    """Everything that is wrong with the corpus in ``out``, in the plan's order; empty if nothing is wrong.

    ``jobs`` segments are read at a time, in threads; None chooses as many as there are processors, and one if the
    corpus is remote. ``set_done`` is called with the number of verified segments. Raises ``UsageError`` like
    :meth:`Corpus.open`.
    """
    corpus = Corpus.open(out)
    problems = check_whole(corpus)

    def check(known: tuple[Segment, Row]) -> list[Problem]:
        return verify_segment(corpus.out, known[0], corpus.workload, known[1])

    with closing(in_parallel(check, corpus.segments(), jobs or corpus.out.default_jobs(reading=True))) as checked:
        for done, (_, found) in enumerate(checked):
            problems += found
            set_done(done + 1)
    return problems


def check_whole(corpus: Corpus) -> list[Problem]:
    """The problems that show without opening a segment: ``_SUCCESS``, manifest rows, missing and unexpected files."""
    return [*_check_success(corpus), *_check_rows(corpus), *_check_files(corpus)]


def _check_success(corpus: Corpus) -> Iterator[Problem]:
    try:
        success = corpus.out.read(SUCCESS)
    except NotRegular:
        # `_check_files` reports it.
        return
    if success is None:
        yield Problem(SUCCESS, None, "not-finished", "is missing: the generation did not finish; run it again")
        return
    found = success.decode(errors="replace")
    if found == success_text(corpus.out, corpus.rows):
        return
    problems = list(_compare_success(corpus, found))
    yield from problems or [Problem(SUCCESS, None, "fingerprint-mismatch", "is not the file that generation wrote")]


def _compare_success(corpus: Corpus, found: str) -> Iterator[Problem]:
    fingerprint, *lines = found.split("\n")
    if fingerprint != corpus_fingerprint(corpus.rows):
        yield Problem(SUCCESS, None, "fingerprint-mismatch", "is not the fingerprint of the manifest's rows")
    # The caller compares the comments, which hold the partitions' fingerprints.
    sums_said = (line.partition("  ") for line in lines if line and not line.startswith("# "))
    said = {name: total for total, _, name in sums_said}
    sums = file_sums(corpus.out)
    for name, total in sums.items():
        if name not in said:
            yield Problem(name, None, "file-changed", f"has no SHA-256 in {SUCCESS}; generate the corpus again")
        elif said[name] != total:
            yield Problem(name, None, "file-changed", f"has SHA-256 {total}; {SUCCESS} says {said[name]}")
    for name in sorted(set(said) - set(sums)):
        yield Problem(SUCCESS, None, "file-missing", f"has the SHA-256 of {name!r}, which is missing")


def _check_rows(corpus: Corpus) -> Iterator[Problem]:
    place = f"{MANIFEST}/"
    seen = bytearray(len(corpus.plan))
    wrong = []
    for row in corpus.rows:
        if not 0 <= row.segment_id < len(seen):
            message = f"has a row for segment {row.segment_id}, which the plan lacks"
            wrong.append(Problem(place, None, "row-unexpected", message))
            continue
        seen[row.segment_id] = min(2, seen[row.segment_id] + 1)
        for name, planned in zip(PLANNED, corpus.plan.bounds(row.segment_id), strict=True):
            found = getattr(row, name)
            if found != planned:
                message = f"says {name} {found} for segment {row.segment_id}; the plan has {planned}"
                wrong.append(Problem(place, None, "row-off-plan", message))
    for segment_id in _places(seen, 0):
        path, _, _ = corpus.plan.bounds(segment_id)
        yield Problem(place, None, "row-missing", f"has no row for segment {segment_id} ({path})")
    for segment_id in _places(seen, 2):
        yield Problem(place, None, "row-repeated", f"has several rows for segment {segment_id}")
    yield from wrong


def _places(values: bytearray, value: int) -> Iterator[int]:
    at = values.find(value)
    while at >= 0:
        yield at
        at = values.find(value, at + 1)


def _check_files(corpus: Corpus) -> Iterator[Problem]:
    """Compare the files with the rows, one partition at a time, because a corpus may have millions of files."""
    missing, unexpected = [], []
    root = corpus.out.list()
    partitions = corpus.plan.directories()
    if WORKLOAD not in root.files:
        missing.append(WORKLOAD)
    # kfuzz's own files, which the next run removes.
    own = (WORKLOAD, SUCCESS, STATISTICS)
    unexpected += [name for name in root.files if name not in own and not is_lock(name)]
    irregular = dict(root.others)
    labels = _label_files(corpus).union(remote_paths(corpus.workload))
    for directory in sorted(set(root.directories) - set(partitions) - {ROWS}):
        for name, kind in corpus.out.walk(directory):
            inner, _, base = name.rpartition("/")
            if kind:
                irregular[name] = kind
                labels.discard(name)
            elif name in labels:
                labels.remove(name)
            elif inner != MANIFEST or not fnmatchcase(base, PARTS):
                unexpected.append(name)
    missing += labels
    topics = {topic.name: topic for topic in corpus.workload.topics}
    # 1 for segments that have a row, 2 for those with a transaction index.
    known = bytearray(len(corpus.plan))
    for batch in corpus.rows.batches(["segment_id", "txnindex_crc32c"]):
        for segment_id, crc in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            if segment_id is not None and 0 <= segment_id < len(known):
                known[segment_id] = max(known[segment_id], 1 if crc is None else 2)
    wrong = []
    segment_id = 0
    contents = in_parallel(partial(_partition, corpus.out, root.others), partitions)
    for directory, (listing, below, checkpoint) in contents:
        expected = {LEADER_EPOCH_CHECKPOINT}
        bounds = []
        for base in corpus.plan.stems(directory):
            bounds.append(corpus.plan.bounds(segment_id)[1:])
            if known[segment_id]:
                suffixes = (".log", ".index", ".timeindex", ".txnindex")[: 2 + known[segment_id]]
                expected.update(base + suffix for suffix in suffixes)
                expected.add(snapshot_name(bounds[-1][1]))
                has_state = topics[directory.rpartition("-")[0]].things.snapshot
                if has_state and (beside := snapshot_file(corpus.plan[segment_id])):
                    expected.add(beside[0])
            segment_id += 1
        unexpected += [f"{directory}/{base}" for base in listing.files.keys() - expected]
        unexpected += [f"{directory}/{name}" for name in below]
        irregular |= {f"{directory}/{base}": kind for base, kind in listing.others.items()}
        if directory not in root.others:
            missing += [f"{directory}/{base}" for base in expected - listing.files.keys() - listing.others.keys()]
        text = None if checkpoint is None else checkpoint.decode(errors="replace")
        right = _checkpoint(topics[directory.rpartition("-")[0]], bounds)
        if text not in (None, right):
            wrong.append((f"{directory}/{LEADER_EPOCH_CHECKPOINT}", _compare_lines(text, right)))
    for name in sorted(irregular):
        message = f"is {irregular[name]}, and a corpus has regular files only; remove it and generate the corpus again"
        yield Problem(name, None, "file-irregular", message)
    for name in sorted(unexpected):
        yield Problem(name, None, "file-unexpected", "does not belong to the corpus; remove it")
    for name in sorted(missing):
        yield Problem(name, None, "file-missing", "is missing; generate the corpus again")
    for name, message in wrong:
        yield Problem(name, None, "checkpoint-mismatch", message)


def _checkpoint(topic: Topic, segments: Sequence[tuple[int, int]]) -> str:
    """The leader epochs of a partition, from the first and last offsets of its ``segments``.

    The n-th epoch begins at ``n * leader_epoch_offsets``. Messages of the old formats have none, and come first.
    """
    each = topic.leader_epoch_offsets
    epochs: dict[int, int] = {}
    for first, last in segments[topic.legacy.magic0_segments + topic.legacy.magic1_segments :]:
        for epoch in range(first // each, last // each + 1) if each else (0,):
            epochs.setdefault(epoch, max(first, epoch * each))
    return "\n".join(["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs.items()), ""])


def _label_files(corpus: Corpus) -> set[str]:
    """The files of labels that the corpus must have."""
    if not any(topic.adversarial.share for topic in corpus.workload.topics):
        return set()
    return {
        label_file(segment)
        for segment in corpus.plan
        if any(stream.kind == HOSTILE and stream.records for stream in segment.streams)
    }


def _partition(out: Target, others: Collection[str], directory: str) -> tuple[Listing, list[str], bytes | None]:
    """The contents of a partition: its files, the names of files in directories there, and its checkpoint.

    Nothing if ``others`` has it, because it is a link.
    """
    if directory in others:
        return Listing({}, []), [], None
    listing = out.list(directory)
    inner = [f"{name}/{base}" for name in listing.directories for base, _ in out.child(f"{directory}/{name}").walk()]
    is_there = LEADER_EPOCH_CHECKPOINT in listing.files
    return listing, inner, out.read(f"{directory}/{LEADER_EPOCH_CHECKPOINT}") if is_there else None


def _compare_lines(found: str, expected: str) -> str:
    """The first line of ``found`` that is not the ``expected`` one."""
    for at, (here, there) in enumerate(zip_longest(found.split("\n"), expected.split("\n"))):
        if here != there:
            return f"has {here!r} in line {at + 1}; the plan has {there!r}"
    return "has other line ends than the plan"


def verify_segment(out: str | Path | Target, segment: Segment, workload: Workload, row: Row) -> list[Problem]:
    """Everything that is wrong with the files of one segment. :func:`check_whole` reports those that are missing, and
    links, pipes and devices in place of files.
    """
    target = Target.of(out)
    try:
        with target.view(segment.path) as view:
            if view is None:
                return []
            # Compaction may leave nothing of a segment.
            if not view and not (segment.is_cleaned and row.bytes == 0):
                return [Problem(segment.path, 0, "file-truncated", f"is empty; the manifest says {row.bytes} bytes")]
            return _check_log(view, segment, workload, row, target)[:PROBLEMS_PER_SEGMENT]
    except NotRegular:
        return []


def _check_log(view: memoryview, segment: Segment, workload: Workload, row: Row, out: Target) -> list[Problem]:
    walk = LogWalk(segment, workload.index_interval_bytes)
    try:
        labels = labels_of(out, segment) if segment.topic.adversarial.share else []
    except LabelsDamaged as error:
        return [_off_label(segment, str(error).removeprefix(f"{out}/{label_file(segment)} "))]
    problems: list[Problem] = []
    start = 0
    for label in [*labels, None]:
        end = len(view) if label is None else label.at
        if not start <= end <= len(view):
            return [_off_label(segment, f"has a batch at byte {end}, which is not after the one before it")]
        # The generator writes exactly what the documents demand, so every finding between two labels is a problem.
        if start < end:
            reading = check_with(view[start:end], walk, profile="strict", limits=LIMITS)
            problems += [
                Problem(segment.path, start + finding.at, finding.code, str(finding)) for finding in reading.findings
            ]
            if not problems and reading.consumed < end - start:
                message = f"{end - start - reading.consumed} bytes are not a whole batch"
                problems.append(Problem(segment.path, start + reading.consumed, "file-truncated", message))
        if label is not None and not problems:
            problems += _check_hostile(walk, view, segment, label)
            start = label.at + label.bytes
        if problems:
            return problems
    problems += _check_plan(walk, len(view), segment)
    indexes = {".index": walk.offset_index, ".timeindex": walk.time_index, ".txnindex": walk.transaction_index}
    for name, value in sums_of(walk, len(view), [*indexes.values()], labels).items():
        if (said := getattr(row, name)) != value:
            message = f"has {name} {value}; the manifest says {said}"
            problems.append(Problem(segment.path, None, "manifest-mismatch", message))
    for suffix, expected in indexes.items():
        problems += _check_index(out, segment.path.removesuffix(".log") + suffix, expected, entry_struct(suffix))
    problems += _check_snapshot(walk, segment, row, out)
    for name, chunks in files_beside(segment):
        with out.view(name) as found:
            # A file that is missing is reported with the others.
            if found is not None and found != b"".join(map(bytes, chunks)):
                is_state = name.endswith(".checkpoint")
                code, what = (
                    ("snapshot", "state at the end") if is_state else ("remote", "file that its record is about")
                )
                problems.append(Problem(name, None, f"{code}-mismatch", f"is not the {what} of the log"))
    return problems


def _off_label(segment: Segment, message: str) -> Problem:
    return Problem(label_file(segment), None, "label-mismatch", message)


def _check_hostile(walk: LogWalk, view: memoryview, segment: Segment, label: Label) -> list[Problem]:
    """Compare a labelled batch with its vector in the golden suite."""
    known = {one.vector.id: one for one in hostile_of(segment.topic.adversarial)}.get(label.vector)
    if known is None:
        return [_off_label(segment, f"names {label.vector!r}, which is no vector of this workload")]
    each = segment.topic.leader_epoch_offsets
    planned = Label.of(segment.path, label.at, walk.next_offset, known)
    if label != planned:
        return [_off_label(segment, f"says {label} where {planned} is right")]
    data = view[label.at : label.at + label.bytes]
    if data != moved(known.vector.data, label.base_offset, label.base_offset // each if each else 0):
        return [Problem(segment.path, label.at, "label-mismatch", f"is not the vector {label.vector} of its label")]
    walk.hostile(data, label.at, known.offsets)
    return []


def _check_plan(walk: LogWalk, end: int, segment: Segment) -> Iterator[Problem]:
    walk.finish(end)
    for code, text, at, found, planned, producer_id in walk.faults:
        yield Problem(segment.path, at, code, text.format(found=found, planned=planned, producer_id=producer_id))
    # The strict check found no partial tail, so the last batch ends here.
    missing = segment.last_offset + 1 - walk.next_offset
    if missing < 0 or (missing and not segment.is_cleaned):
        message = f"ends before offset {walk.next_offset}; the plan's last offset is {segment.last_offset}"
        yield Problem(segment.path, end, "offset-off-plan", message)
    # The generator repeats these first offsets for the next segment's transaction index.
    stays_open = any(stream.stays_open for stream in segment.streams)
    begun, expected = dict(walk.open_transactions), Writers(segment).open_at_end() if stays_open else {}
    for producer_id in sorted(begun.keys() | expected.keys()):
        if producer_id not in expected:
            message = f"ends inside producer {producer_id}'s transaction from offset {begun[producer_id]}"
            yield Problem(segment.path, end, "transaction-open", message)
        elif segment.is_cleaned and begun.get(producer_id, -1) >= expected[producer_id]:
            # The cleaner may have removed the first batches.
            continue
        elif begun.get(producer_id) != expected[producer_id]:
            where = f"from offset {begun[producer_id]}" if producer_id in begun else "absent"
            message = f"producer {producer_id}'s open transaction is {where}; the plan has {expected[producer_id]}"
            yield Problem(segment.path, end, "transaction-open", message)


def _check_index(out: Target, name: str, expected: bytes, entry: struct.Struct) -> Iterator[Problem]:
    # With an entry for each small batch, an index is larger than what `read` takes.
    with out.view(name) as content:
        found = memoryview(b"") if content is None else content
        if found == expected or (content is None and expected):
            return
        for at in range(0, max(len(found), len(expected)), entry.size):
            here, there = bytes(found[at : at + entry.size]), expected[at : at + entry.size]
            if here != there:
                message = f"entry {at // entry.size} is {_shown(here, entry)}; the log gives {_shown(there, entry)}"
                yield Problem(name, at, "index-mismatch", message)
                return


def _check_snapshot(walk: LogWalk, segment: Segment, row: Row, out: Target) -> Iterator[Problem]:
    """Compare the producer snapshot with the log, as a broker makes it: from the snapshot before, and this segment."""
    data = out.read(segment.snapshot_path)
    if data is None:
        return
    found = snapshot.decode(data)
    if found is None:
        yield Problem(
            segment.snapshot_path, 0, "snapshot-mismatch", "is not a snapshot: its version or its CRC is wrong"
        )
        return
    wrong_sum = f"has snapshot_crc32c {crc32c(data)}; the manifest says {row.snapshot_crc32c}"
    if segment.is_cleaned:
        # The cleaner leaves snapshots as they were, and what they say can be gone from the log.
        if crc32c(data) != row.snapshot_crc32c:
            yield Problem(segment.snapshot_path, None, "manifest-mismatch", wrong_sum)
        return
    # The segment before reports a missing or damaged snapshot.
    before = out.read(f"{segment.directory}/{segment.stem}.snapshot")
    expected = {producer.producer_id: producer for producer in (before and snapshot.decode(before)) or ()}
    snapshot.follow(expected, walk.producers)
    # The generator uses `encode` too, so what it wrote is also read.
    if {producer.producer_id: producer for producer in found} != expected or data != snapshot.encode(expected.values()):
        yield Problem(segment.snapshot_path, None, "snapshot-mismatch", _first_difference(found, expected))
    elif crc32c(data) != row.snapshot_crc32c:
        yield Problem(segment.snapshot_path, None, "manifest-mismatch", wrong_sum)


def _first_difference(found: list[snapshot.Producer], expected: dict[int, snapshot.Producer]) -> str:
    by_id = {producer.producer_id: producer for producer in found}
    for producer_id in sorted(by_id.keys() | expected.keys()):
        here, there = by_id.get(producer_id), expected.get(producer_id)
        if here != there:
            said, right = ("nothing" if one is None else str(asdict(one)) for one in (here, there))
            return f"says of producer {producer_id}: {said}; the log gives: {right}"
    return "has its producers in another order, or twice"


def _shown(data: bytes, entry: struct.Struct) -> str:
    return str(entry.unpack(data)) if len(data) == entry.size else f"{len(data)} bytes" if data else "absent"
