"""Judges the files of a log directory: segments, indexes, snapshots, checkpoints. ``kfuzz check DIR`` prints it.

In role ``log``, it also judges each partition and the directory as a whole (``whole``).

A segment is judged batch by batch, also after damage. Of each code, the first finding of a file is kept, so that the
memory does not grow with the log. This module needs neither numpy nor pyarrow.
"""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from kfuzz.annotate.listing import Listing
from kfuzz.errors import NotRegular, UsageError
from kfuzz.files import map_regular
from kfuzz.findings import Finding, Profile
from kfuzz.kafka import Role
from kfuzz.logs.contents import not_batches
from kfuzz.logs.lost import LOSSES_MAX, Bounds, LostOffsets, is_torn_abort, join, with_losses
from kfuzz.logs.stored import LATER, LEAVING, Kind, kind_of, left_out, offset_index
from kfuzz.logs.whole import Damage, Directory, Judged, Partition, Start, is_partition
from kfuzz.mapped import require_whole
from kfuzz.messages.internal import SNAPSHOT
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits

SEGMENT_TITLE: Final = "log segment"
# A snapshot of a KRaft log holds record batches too.
SEGMENT: Final = re.compile(rf"\d{{20}}\.log|{SNAPSHOT.pattern}")
# In roles other than ``log``, how many batches are judged between two calls of ``on_bytes``.
STEP_BATCHES: Final = 256


@dataclass(slots=True)
class Code:
    """How often a code was found: in how many batches or entries, in how many files, and where first."""

    severity: str
    places: int
    files: int
    first_file: str
    first: Finding


@dataclass(slots=True)
class Checked:
    """One file. ``title`` says what it is; ``batches`` and ``records`` are those of a segment.

    ``findings`` has the first finding of each code, with the number of batches or entries that have it. ``tail`` are
    the bytes of a batch that is cut off at the end. ``lost`` has the offsets of each stretch of damage, at most
    ``LOSSES_MAX``; there are ``more_lost``. ``skipped`` says why the file was not judged, such as "it is a pipe"; then
    nothing else is known. ``whole``: not its own bytes were judged, but the file, or a folder, beside others.
    ``start``: what a broker does with the partition or directory.
    """

    path: Path
    title: str
    size: int
    batches: int = 0
    records: int = 0
    tail: int = 0
    findings: list[tuple[Finding, int]] = field(default_factory=list)
    lost: list[LostOffsets] = field(default_factory=list)
    more_lost: int = 0
    skipped: str = ""
    whole: bool = False
    start: Start | None = None

    @property
    def refused(self) -> bool:
        """Whether a finding is fatal."""
        return any(one.severity == "fatal" for one, _ in self.findings)

    def lose(self, one: LostOffsets) -> None:
        """Note the offsets of a stretch of damage."""
        if len(self.lost) < LOSSES_MAX:
            self.lost.append(one)
        else:
            self.more_lost += 1

    def to_json(self) -> dict[str, Any]:
        """The file as a JSON object."""
        if self.skipped:
            return {"file": str(self.path), "skipped": self.skipped}
        findings = [one.to_json() | {"places": places} for one, places in self.findings]
        names = () if self.whole else ("size", "batches", "records")
        made = {"file": str(self.path), "kind": self.title} | {name: getattr(self, name) for name in names}
        made |= {} if self.whole else {"partial_tail": self.tail}
        made |= {"accepted": not self.refused, "findings": findings, "lost": [one.to_json() for one in self.lost]}
        return made if self.whole else made | {"more_lost": self.more_lost}


@dataclass(slots=True)
class Counts:
    """The sums over a directory. ``unread`` has a sentence about each file that could not be read to its end, and
    ``passed`` the folders that were passed over. ``wrong_as_a_whole`` counts the fatal ``Checked.whole``.
    """

    partitions: set[Path] = field(default_factory=set)
    segments: int = 0
    other_files: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    refused_files: int = 0
    wrong_as_a_whole: int = 0
    skipped_files: int = 0
    unread: list[str] = field(default_factory=list)
    codes: dict[str, Code] = field(default_factory=dict)
    passed: list[Path] = field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        """Whether something is fatal."""
        return self.refused_files + self.wrong_as_a_whole > 0

    def add(self, one: Checked) -> None:
        """Count one file."""
        if one.skipped:
            self.skipped_files += 1
            return
        is_segment = one.title == SEGMENT_TITLE
        self.segments += is_segment
        self.other_files += not (is_segment or one.whole)
        # The first metadata of a cluster are in no partition.
        if is_segment and not one.path.name.startswith("bootstrap"):
            self.partitions.add(one.path.parent)
        self.batches += one.batches
        self.records += one.records
        self.size += one.size
        self.refused_files += one.refused and not one.whole
        self.wrong_as_a_whole += one.refused and one.whole
        for finding, places in one.findings:
            known = self.codes.setdefault(finding.code, Code(finding.severity, 0, 0, str(one.path), finding))
            known.places += places
            known.files += 1

    def to_json(self) -> dict[str, Any]:
        """The sums as a JSON object."""
        return {
            "partitions": len(self.partitions),
            "segments": self.segments,
            "other_files": self.other_files,
            "batches": self.batches,
            "records": self.records,
            "size": self.size,
            "refused_files": self.refused_files,
            "wrong_as_a_whole": self.wrong_as_a_whole,
            "skipped_files": self.skipped_files,
            "passed_over": [str(folder) for folder in self.passed],
            "codes": {code: asdict(found) for code, found in sorted(self.codes.items())},
        }


def files_of(directory: str | Path, passed: list[Path] | None = None) -> list[Path]:
    """The files below ``directory`` that Kafka keeps there and that can be judged, sorted, and links that may lead to
    such folders.

    Folders of ``LEAVING`` below it are added to ``passed`` and left out. Raises ``UsageError`` if there are no files,
    or if the directory cannot be read.
    """
    found: list[Path] = []

    def refuse(error: OSError) -> None:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None

    passed = [] if passed is None else passed
    for folder, inner, names in os.walk(directory, onerror=refuse):
        passed += [Path(folder, name) for name in inner if LEAVING.fullmatch(name)]
        inner[:] = [name for name in inner if not LEAVING.fullmatch(name)]
        found += [Path(folder, name) for name in names if SEGMENT.fullmatch(name) or kind_of(name)]
        # A link may lead out of the directory, or back into it.
        found += [path for name in inner if (path := Path(folder, name)).is_symlink()]
    if not found and (sentence := left_out(passed)):
        raise UsageError(f"{directory} has nothing else; {sentence}")
    if not found:
        raise UsageError(
            f"{directory} has no log segments and no indexes; they are files such as orders-0/00000000000000000000.log"
        )
    # The files of a folder follow each other, and what is beside a segment follows the segment.
    return sorted(found, key=lambda path: (path.parent, path.stem, path.suffix != ".log", path.name))


def check_file(
    path: Path,
    *,
    kind: Kind | None = None,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    on_bytes: Callable[[int], None] = lambda done: None,
    partition: Partition | None = None,
) -> Checked:
    """Judge a segment, or a file of this ``kind``. ``on_bytes`` gets the bytes that are done, from time to time.
    ``partition``, for role ``log`` only, learns what is in the file.

    Raises ``UsageError`` if the file cannot be read, is no regular file, or becomes shorter meanwhile.
    """
    data = map_regular(path)
    if kind is not None:
        placed = None if partition is None else partition.misplaced.get(path.name)
        stored = kind.read(path, data, profile) if placed is None else offset_index(path, data, profile, placed)
        require_whole(data)
        if partition is not None and not path.name.endswith(LATER):
            partition.look(path, stored)
        return Checked(path, stored.title, stored.size, findings=[(one, 1) for one in stored.findings])
    facts = None if partition is None else partition.facts
    if partition is not None:
        partition.begin(path)
    listing = Listing(data, profile=profile, role=role, limits=limits, also=facts)
    made = Checked(path, SEGMENT_TITLE, len(data))
    damage: Damage | None = None
    for entry in with_losses(path, listing, facts):
        if isinstance(entry, LostOffsets):
            made.lose(entry)
            continue
        if facts is not None or entry.number % STEP_BATCHES == 0:
            on_bytes(entry.at)
        if entry.kind == "tail":
            made.tail = entry.size
        if partition is not None and entry.is_refused:
            code = next(one.code for one in entry.findings if one.severity == "fatal")
            damage = damage or Damage(code, partition.facts.next_offset)
            if is_torn_abort(data, entry):
                partition.lose_abort(path, entry)
    made.batches, made.records = listing.batches, listing.records if facts is None else facts.records
    made.findings = [(found.finding, found.batches) for found in listing.found.values()]
    require_whole(data)
    if listing.batches == listing.refused and (other := not_batches(data, profile)) is not None:
        made.findings.append((other, 1))
        made.tail, made.lost, made.more_lost = 0, [], 0
        damage = damage or Damage(other.code, 0 if facts is None else facts.next_offset)
        if (bounds := Bounds(path)).base is not None:
            made.lose(bounds.lost(0, len(data), None, None))
    if partition is not None:
        is_lost = any(one.end == len(data) for one in made.lost) or made.more_lost > 0
        partition.end(path, damage, made.tail > 0, is_lost)
        made.lost[:1] = map(partition.with_gap, made.lost[:1])
    return made


def check_directory(
    directory: str | Path,
    counts: Counts,
    *,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    on_bytes: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Checked]:
    """Judge the files of :func:`files_of`, one after the other, and add them to ``counts``. In role ``log``, partitions
    and directories as a whole follow their files.

    ``on_bytes`` gets the bytes that are done and those of all files. Raises ``UsageError`` as :func:`files_of` does. A
    file that is deleted in between, as a running broker does, is left out. A file that cannot be judged is skipped, the
    others are still judged: links, pipes and devices, and files that cannot be read or become shorter meanwhile.
    """
    files = files_of(directory, counts.passed)
    sizes = {path: _size(path) for path in files}
    total, done = sum(sizes.values()), 0
    directories: dict[Path, Directory] = {}

    def around(path: Path) -> Directory:
        if path not in directories:
            directories[path] = Directory(path, profile)
        return directories[path]

    for folder, inside in groupby(files, lambda path: path.parent):
        whole = None
        # The files from a segment on whose end is lost: the damage may go on in the next segment.
        held: list[Checked] = []
        stretch: list[LostOffsets] = []
        is_held = False
        if role == "log" and not is_partition(folder):
            around(folder)
        elif role == "log":
            # The directory around a partition that is named says something about it, but is not judged.
            is_named = folder == Path(directory)
            beside = Directory(folder.absolute().parent, profile) if is_named else around(folder.parent)
            whole = Partition(folder, beside, profile)
        for path in inside:
            on_bytes(done, total)
            if os.path.lexists(path):
                before = done
                try:
                    made = check_file(
                        path,
                        kind=None if SEGMENT.fullmatch(path.name) else kind_of(path.name),
                        profile=profile,
                        role=role,
                        limits=limits,
                        on_bytes=lambda here, before=before: on_bytes(before + here, total),  # type: ignore[misc]
                        # A snapshot of KRaft's log is no part of that log.
                        partition=None if path.suffix == ".checkpoint" else whole,
                    )
                except UsageError as error:
                    made = Checked(path, "", 0, skipped=f"it {str(error).removeprefix(f'{path} ')}")
                    if not isinstance(error, NotRegular):
                        counts.unread.append(str(error))
                # Unless it was deleted just now.
                if not made.skipped or os.path.lexists(path):
                    counts.add(made)
                    held.append(made)
                if made.title == SEGMENT_TITLE:
                    is_held = bool(made.lost) and made.lost[-1].end == made.size
                    stretch = join(stretch, made.lost)
                if not is_held:
                    yield from held
                    held.clear()
            done += sizes[path]
        yield from held
        yield from _as_checked(whole.close(), "partition", counts) if whole else ()
    on_bytes(total, total)
    for one in directories.values():
        yield from _as_checked(one.close(list(directories.values())), "log directory", counts)


def _as_checked(judged: Judged, title: str, counts: Counts) -> Iterator[Checked]:
    """The findings about a partition or directory as a whole: its folder with the start, and other files."""
    found: dict[Path, dict[str, tuple[Finding, int]]] = defaultdict(dict, {judged.path: {}})
    for path, one in judged.findings:
        first, places = found[path].get(one.code, (one, 0))
        found[path][one.code] = first, places + 1
    for path, _ in judged.lost:
        found.setdefault(path, {})
    for path, codes in found.items():
        start = judged.start if path == judged.path else None
        lost = [one for place, one in judged.lost if place == path]
        made = Checked(path, title, 0, findings=list(codes.values()), lost=lost, whole=True, start=start)
        if made.findings or made.start or made.lost:
            counts.add(made)
            yield made


def _size(path: Path) -> int:
    try:
        found = path.lstat()
        return found.st_size if stat.S_ISREG(found.st_mode) else 0
    except OSError:
        return 0
