"""Judges logs as a whole: the files of a partition against each other, and the checkpoints of a broker's directory
against its partitions. It says what a broker does with each partition at its next start.

The facts come from the walk that judges each segment, so no byte of a segment is read twice. Mirrors what
``LogManager.loadLogs``, ``LogLoader.load`` and ``ProducerStateManager`` look at. This module needs neither numpy nor
pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from kfuzz.annotate.listing import Entry, Listing
from kfuzz.errors import UsageError
from kfuzz.files import map_regular, read_small
from kfuzz.findings import Finding, Profile
from kfuzz.findings.model import WHOLE
from kfuzz.findings.stored import stored_finding
from kfuzz.kafka import INT32_MAX, INT64_MAX
from kfuzz.logs.log_facts import LogFacts
from kfuzz.logs.lost import INDEXED, OUTSIDE, Bounds, LostOffsets
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT, Producer, read_snapshot
from kfuzz.logs.stored import (
    CLEAN_SHUTDOWN,
    CLEANER,
    FOLDER,
    INDEXES,
    LEAVING,
    LOG_START,
    META_PROPERTIES,
    METADATA_NAME,
    OF_PARTITIONS,
    RECOVERY_POINT,
    REPLICATION,
    Stored,
    broker_end,
    broker_offsets,
    entry_struct,
    has_right_crc,
    last_offset,
    names_in,
    offset_entries,
    partition_offsets,
    read_stored,
)
from kfuzz.places import is_tiered
from kfuzz.text import printable
from kfuzz.units import counted

# A walk stops after so many bytes, to show how far it is and to give memory back.
STEP_BYTES: Final = 16 << 20
NAMED: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
META_BYTES_MAX: Final = 1 << 16
META_NEEDED: Final = ("cluster.id", "node.id")
# KRaft's own log has no line in the checkpoints.
KRAFT: Final = "__cluster_metadata"
# Folders in a log directory that are not logs.
OTHER_FOLDERS: Final = ("remote-log-index-cache",)
# A broker that meets one of these in a segment that it recovers ends. It truncates at all others that are fatal: to
# nothing at INDEXED, if it does not end because it rebuilds the index. It splits a segment that ends with OUTSIDE.
ENDING: Final = (
    "end-marker-invalid",
    "leader-epoch-offset-negative",
    "transaction-not-ended",
    "wrapper-start-unknown",
)
# A broker may not see these: it does not ask for the magic, and knows a segment's base offset by its name.
MAGIC_UNKNOWN: Final = "magic-unknown"
UNSEEN: Final = (MAGIC_UNKNOWN, OUTSIDE)
# The findings about a transaction index that a broker does not use. It asks nothing of the other indexes.
UNUSABLE: Final = ("aborted-entry-version-unknown", "index-last-offset-low")
# The findings about a directory with which a broker does not start.
REFUSED: Final = ("folder-unknown", "meta-properties-incomplete", "meta-properties-missing", "partition-twice")
LOADS: Final = "loads it"
# A fetch of an offset that no segment has gets the batches of the next segment.
WITH_GAP: Final = f"{LOADS}, and consumers pass over the offsets in no segment"


@dataclass(frozen=True, slots=True)
class Start:
    """The actions of a broker at its next start: after a clean shutdown, and without one. ``was_clean``: which is next;
    None if the directory does not say it.
    """

    clean: str
    unclean: str
    was_clean: bool | None

    @property
    def is_plain(self) -> bool:
        """Whether it loads what is there, and changes nothing."""
        return self.clean == self.unclean == LOADS

    def __str__(self) -> str:
        if self.clean == self.unclean:
            return f"at its next start, a broker {self.clean}"
        if self.was_clean:
            return f"at its next start, a broker {self.clean}; without a clean shutdown, it {self.unclean}"
        first = "at its next start" if self.was_clean is False else "at a start without a clean shutdown"
        return f"{first}, a broker {self.unclean}; after a clean shutdown, it {self.clean}"

    def to_json(self) -> dict[str, Any]:
        """The sentences as a JSON object."""
        return {"after_clean_shutdown": self.clean, "otherwise": self.unclean, "was_clean": self.was_clean}


@dataclass(slots=True)
class Damage:
    """The first fatal finding of a segment, and the offset up to which the segment can be read."""

    code: str
    offset: int


@dataclass(slots=True)
class _Segment:
    name: str
    base: int
    first: int
    first_last: int
    end: int
    damage: Damage | None
    has_tail: bool
    # The bytes after its last batch that are named as damage.
    is_lost: bool
    # Whether its last batch has an offset that is too high for its indexes.
    overflows: bool
    # Whether the offsets in no segment before it are named with the damage at its beginning.
    names_gap: bool = False

    @property
    def is_bad(self) -> bool:
        """Whether a broker that recovers it changes it."""
        return self.damage is not None or self.has_tail

    @property
    def kept_to(self) -> int:
        """The offset to which a broker that recovers it truncates it."""
        if self.damage is None:
            return self.end
        return self.base if self.damage.code == INDEXED else self.damage.offset

    @property
    def ends_badly(self) -> bool:
        """Whether no sound batch follows the first damage."""
        return self.has_tail or (self.damage is not None and self.damage.offset == self.end)

    def is_ending(self, *, is_rebuilt: bool) -> bool:
        """Whether a broker ends that recovers it: because of its unclean shutdown, or for the sake of its indexes."""
        code = self.damage.code if self.damage else ""
        return (
            self.is_above
            or code in ENDING
            or (code == INDEXED and is_rebuilt)
            or (code == OUTSIDE and not self.overflows)
        )

    @property
    def is_above(self) -> bool:
        """Whether the name says a higher offset than the first batch has."""
        return self.first >= 0 and self.first_last < self.base


class _State(NamedTuple):
    """The values of a producer that a snapshot and the log must agree on. No transaction is open if one began before
    the log.
    """

    epoch: int
    sequence: int
    offset: int
    open_at: int

    def __str__(self) -> str:
        text = f"epoch {self.epoch}, sequence {self.sequence}, offset {self.offset}"
        return text if self.open_at < 0 else f"{text}, a transaction open since offset {self.open_at}"


@dataclass(slots=True)
class Judged:
    """The findings about a partition or a directory as a whole, and the offsets that are in no segment, by the file or
    folder that each is about.
    """

    path: Path
    profile: Profile
    findings: list[tuple[Path, Finding]] = field(default_factory=list)
    lost: list[tuple[Path, LostOffsets]] = field(default_factory=list)
    start: Start | None = None

    def find(self, path: Path, code: str, found: int = 0, allowed: int = 0, detail: str = "") -> None:
        """Add a finding about ``path``."""
        one = stored_finding(code, WHOLE, 0, self.profile, found=found, allowed=allowed, detail=detail)
        self.findings.append((path, one))


def is_partition(path: Path) -> bool:
    """Whether a folder has files of a partition."""
    return any(NAMED.fullmatch(name) or name in (METADATA_NAME, LEADER_EPOCH_CHECKPOINT) for name in names_in(path))


class Directory:
    """A broker's log directory: what it says about its partitions. ``path`` may also be any folder with partitions."""

    def __init__(self, path: Path, profile: Profile) -> None:
        self.path = path
        self.judged = Judged(path, profile)
        self.names = names_in(path)
        self.meta = self._meta() if META_PROPERTIES in self.names else {}
        self.points = {name: partition_offsets(path / name) for name in OF_PARTITIONS if name in self.names}
        # A broker takes this directory offline for one of these, and ends if it has no other one.
        self.refused = [path / name for name in OF_PARTITIONS if name in self.names and _is_refused(path / name)]
        self.is_brokers = bool(self.points or {META_PROPERTIES, CLEAN_SHUTDOWN} & self.names)
        self.was_clean = (CLEAN_SHUTDOWN in self.names) if self.is_brokers else None
        self.ends: dict[tuple[str, int], int] = {}
        # The folders that a broker loads, by topic, number and topic id.
        self.folders: dict[tuple[str, int, str], Path] = {}
        self.topic_ids: dict[str, tuple[str, Path]] = {}
        # The files with which a broker does not start: after a clean shutdown (True), and without one.
        self.refusing: dict[bool, list[Path]] = {True: [], False: []}

    def _meta(self) -> dict[str, str]:
        try:
            text = read_small(self.path / META_PROPERTIES, bytes_max=META_BYTES_MAX).decode("utf-8", "replace")
        except UsageError:
            return {}
        lines = (line.strip().partition("=") for line in text.splitlines() if not line.startswith("#"))
        found = {name.strip(): value.strip() for name, _, value in lines if name}
        return {"node.id": found.get("broker.id", "")} | found if found.get("version", "0") == "0" else found

    @property
    def is_zookeepers(self) -> bool:
        """Whether a broker with ZooKeeper wrote it. A broker of Kafka 4 keeps the version and adds an id."""
        meta = self.meta.get
        return meta("version", "0") == "0" and bool(meta("node.id")) and not meta("directory.id")

    @property
    def lacks(self) -> str:
        """The names in ``meta.properties`` that a broker needs and that are not there; empty if all are."""
        return "" if self.is_zookeepers else " and ".join(name for name in META_NEEDED if not self.meta.get(name))

    def point(self, name: str, partition: tuple[str, int] | None) -> int:
        """A partition's offset in a checkpoint; 0 if there is none, as a broker takes it."""
        return self.points.get(name, {}).get(partition, 0) if partition else 0

    def close(self, others: list[Directory]) -> Judged:
        """Judge the directory when all its partitions are closed, and other directories of the same broker."""
        find, path = self.judged.find, self.path
        if self.is_brokers:
            self._close_meta(others)
            for name in sorted(self.names):
                is_known = name in OTHER_FOLDERS or FOLDER.fullmatch(name) or LEAVING.fullmatch(name)
                if not is_known and (path / name).is_dir():
                    find(path / name, "folder-unknown")
        for name, rows in self.points.items():
            for partition, offset in rows.items():
                called = printable("-".join(map(str, partition)))
                end = self.ends.get(partition)
                if end is None:
                    find(path / name, "checkpoint-partition-missing", detail=called)
                elif offset > end:
                    code = "log-start-beyond-log" if name == LOG_START else "checkpoint-offset-beyond-log"
                    find(path / name, code, offset, end, called)
        always = self.refused + [place for place, one in self.judged.findings if one.code in REFUSED]
        clean, unclean = (_refusal(self.refusing[is_clean] + always, path) for is_clean in (True, False))
        start = Start(clean, unclean, self.was_clean)
        self.judged.start = None if start.is_plain else start
        return self.judged

    def _close_meta(self, others: list[Directory]) -> None:
        path = self.path / META_PROPERTIES
        if META_PROPERTIES not in self.names:
            self.judged.find(path, "meta-properties-missing")
            return
        if self.is_zookeepers:
            self.judged.find(path, "meta-properties-zookeeper")
        elif self.lacks:
            self.judged.find(path, "meta-properties-incomplete", detail=self.lacks)
        for other in others:
            if not other.meta or other.path >= self.path:
                continue
            here, there = self.meta.get, other.meta.get
            wrong = [name for name in ("node.id", "cluster.id") if here(name) != there(name)][:1]
            # Each directory has an id of its own.
            wrong += ["directory.id"] if here("directory.id") and here("directory.id") == there("directory.id") else []
            twice = sorted(self.folders.keys() & other.folders.keys()) if here("node.id") == there("node.id") else []
            for one in twice:
                detail = printable(str(other.folders[one]))
                self.judged.find(self.folders[one], "partition-twice", detail=detail)
            for name in wrong:
                code = "meta-properties-other-node" if name == "node.id" else "meta-properties-differ"
                detail = f"{name} {here(name)}; {other.path / META_PROPERTIES} has {there(name)}"
                self.judged.find(path, code, detail=printable(detail))


class Partition:
    """A partition's folder while its files are judged: first each segment, in order, and the files beside it."""

    def __init__(self, path: Path, directory: Directory, profile: Profile) -> None:
        self.path = path
        self.directory = directory
        self.judged = Judged(path, profile)
        self.facts = LogFacts(STEP_BYTES)
        self.names = names_in(path)
        found = [match.groups() for name in self.names if (match := NAMED.fullmatch(name))]
        self.stems = {suffix: sorted(int(stem) for stem, one in found if one == suffix) for _, suffix in found}
        self.bases = self.stems.get(".log", [])
        match = FOLDER.fullmatch(path.absolute().name)
        self.partition = (match["topic"], int(match["partition"])) if match else None
        # KRaft loads its log itself: always as after a crash, and never as a stray one.
        self.is_krafts = match is not None and match["topic"] == KRAFT
        self.segments: list[_Segment] = []
        # Whether the segments so far are sound, and have every offset from the first to the last one.
        self.is_joined = True
        # None if the file is refused.
        self.epochs: list[tuple[int, int]] | None = []
        self.topic_id = ""
        # Segments that a broker recovers because an index is missing or refused.
        self.rebuilt = set(self.bases) - set(self.stems.get(".index", []))
        # The first file with which a broker does not start. It cannot read a number above the highest offset.
        above = (one for one in sorted(self.names) if NAMED.fullmatch(one) and int(one.partition(".")[0]) > INT64_MAX)
        self.refusing = next(map(path.joinpath, above), None)
        # Segments with an index that is damaged, and that a broker keeps if it does not recover the segment.
        self.kept: dict[str, int] = {}
        # Whether a file beside the segments has a finding.
        self.has_wrong_file = False
        # By the name of an offset index: its first wrong entry, or -1.
        self.misplaced: dict[str, int] = {}

    # -- while its files are judged

    def begin(self, path: Path) -> None:
        """The segment at ``path`` is judged next."""
        self._compare_snapshot(int(path.stem))
        self.facts.begin_segment(min(int(path.stem), INT64_MAX), offset_entries(path))

    def end(self, path: Path, damage: Damage | None, has_tail: bool, is_lost: bool) -> None:
        """The segment at ``path`` was judged. ``is_lost``: the offsets after its last batch are named already."""
        facts = self.facts
        first, last = facts.first_offset, facts.first_last_offset
        base = min(int(path.stem), INT64_MAX)
        self.is_joined &= damage is None and not facts.is_cleaned and base == (base if first < 0 else first)
        self.is_joined &= not self.segments or self.segments[-1].end == base
        if damage is None:
            self.misplaced[f"{path.stem}.index"] = facts.misplaced
        end, overflows = facts.next_offset, False
        if damage and damage.code in UNSEEN:
            damage, end = self._seen(path, base)
        if damage and damage.code == OUTSIDE:
            *_, offset = None, *broker_offsets(memoryview(map_regular(path)))
            overflows = offset is not None and offset > base + INT32_MAX
        self.segments.append(_Segment(path.name, base, first, last, end, damage, has_tail, is_lost, overflows))
        self._compare_aborted(path.with_suffix(".txnindex"))
        if int(path.stem) == self.bases[-1] and facts.next_offset != base:
            self._compare_snapshot(facts.next_offset)

    def with_gap(self, lost: LostOffsets) -> LostOffsets:
        """The offsets that the last segment lost, with those before it that are in no segment if it lost its beginning.

        A cleaner may have removed those.
        """
        *_, before, one = None, *self.segments
        if lost.at > 0 or before is None or before.is_lost or before.end >= one.base or self._is_cleaned:
            return lost
        one.names_gap = True
        return replace(lost, first=before.end)

    def _seen(self, path: Path, base: int) -> tuple[Damage | None, int]:
        """The first damage that a broker sees that recovers the segment, and the offset after the last batch."""
        log, facts, damage = memoryview(map_regular(path)), LogFacts(STEP_BYTES), None
        facts.begin_segment(base)
        # The last batch that only a broker takes for sound: the sound ones before it, and the offset after it.
        passed = (-1, 0)
        for entry in Listing(log, profile=self.judged.profile, role="log", also=facts):
            code = next((one.code for one in entry.findings if one.severity == "fatal"), "")
            is_near = code == OUTSIDE and 0 <= entry.last_offset - base <= INT32_MAX
            if is_near or (code == MAGIC_UNKNOWN and has_right_crc(log, entry.at)):
                passed = (facts.batches, last_offset(log[entry.at :]) + 1)
            elif code and damage is None:
                damage = Damage(code, passed[1] if passed[0] == facts.batches else facts.next_offset)
        return damage, passed[1] if passed[0] == facts.batches else facts.next_offset

    def lose_abort(self, path: Path, marker: Entry) -> None:
        """The segment at ``path`` has an ABORT marker that cannot be read."""
        index = path.with_suffix(".txnindex")
        if index.name not in self.names:
            last = marker.last_offset
            self.judged.find(index, "aborted-missing", marker.producer_id, last, f"up to {last}")

    def look(self, path: Path, stored: Stored) -> None:
        """A file beside the segments was judged."""
        self.has_wrong_file |= bool(stored.findings)
        if path.name == METADATA_NAME:
            self.topic_id = stored.facts.get("topic_id", "")
        elif path.name == LEADER_EPOCH_CHECKPOINT:
            self.epochs = None if stored.is_refused else [row for _, row in stored.entries()]
        if stored.is_refused and (path.name in (METADATA_NAME, LEADER_EPOCH_CHECKPOINT)):
            self.refusing = self.refusing or path
        if not (match := NAMED.fullmatch(path.name)):
            return
        base, suffix = int(match[1]), match[2]
        if suffix != ".snapshot" and base not in self.bases:
            self.judged.find(path, "segment-missing", base)
        elif suffix == ".txnindex" and any(one.code in UNUSABLE for one in stored.findings):
            self.rebuilt.add(base)
        elif suffix in INDEXES and stored.is_refused:
            self.kept[path.name] = base
        elif suffix == ".index" and not stored.count and stored.room and base != self.bases[-1]:
            self.judged.find(path, "index-of-zeros", stored.size)

    def _compare_snapshot(self, offset: int) -> None:
        """Compare the snapshot at ``offset`` with the state of the producers after the segments so far."""
        path = self._snapshot(offset)
        if path.name not in self.names or not self.segments or not self.is_joined or self.segments[-1].end != offset:
            return
        if (found := read_snapshot(path)) is None:
            return
        start = self.segments[0].first
        log = {fields[0]: _state(Producer(*fields), start) for fields in self.facts.producers}
        # The log does not show the time before it begins.
        said = [(one.producer_id, _state(one, start)) for one in found if one.last_offset >= start]
        # A broker forgets producers after a time, but not those with an open transaction.
        known = {one.producer_id for one in found}
        forgotten = [(one, None) for one, mine in log.items() if one not in known and mine.open_at >= 0]
        for producer_id, says in [*said, *forgotten]:
            if says != (mine := log.get(producer_id)):
                detail = f"{says or 'nothing'}; the log gives {mine or 'nothing'}"
                self.judged.find(path, "snapshot-mismatch", producer_id, detail=detail)
                return

    def _compare_aborted(self, path: Path) -> None:
        """Compare a transaction index with the aborted transactions that the walk over its segment found."""
        layout = entry_struct(".txnindex")
        try:
            data = bytes(map_regular(path)) if path.name in self.names else b""
        except UsageError:
            return
        walked = self.facts.transaction_index
        if data == walked or not self.is_joined:
            return
        whole = data[: len(data) // layout.size * layout.size]
        log, found = ({row[1:4] for row in layout.iter_unpack(one)} for one in (walked, whole))
        start = self.segments[0].first
        # Of a transaction that began before the log does, the log shows a part.
        begun = {(producer, last) for producer, first, last in found if first < start}
        log = {row for row in log if (row[0], row[2]) not in begun}
        for code, rows in (("aborted-missing", log - found), ("aborted-unknown", found - log)):
            for producer, first, last in sorted(rows, key=lambda row: row[2]):
                if first >= start:
                    self.judged.find(path, code, producer, last, f"{first} to {last}")
                    break

    # -- when all are judged

    @property
    def _is_cleaned(self) -> bool:
        """Whether the batches so far, or the checkpoint of the log cleaner, show that the log was compacted."""
        return self.facts.is_cleaned or self.partition in self.directory.points.get(CLEANER, {})

    @property
    def end_offset(self) -> int:
        """The offset after the last batch."""
        return self.segments[-1].end if self.segments else 0

    def close(self) -> Judged:
        """Judge the partition as a whole."""
        find, directory, segments = self.judged.find, self.directory, self.segments
        for one in segments:
            if one.is_above:
                find(self.path / one.name, "segment-name-high", one.base, one.first_last)
        for before, one in pairwise(segments):
            start = min(one.base, one.first) if one.first >= 0 else one.base
            if start < before.end:
                find(self.path / one.name, "segments-overlap", start, before.end)
            elif start > before.end and (before.has_tail or not before.is_lost):
                code = "segment-gap-compacted" if self._is_cleaned else "segment-gap"
                find(self.path / one.name, code, detail=f"{before.end} to {one.base - 1}")
                if not (self._is_cleaned or before.is_lost or one.names_gap):
                    self._lose(one.name, before)
        self._close_epochs()
        for offset in self.stems.get(".snapshot", []):
            if segments and offset not in self.bases and offset <= self.bases[-1]:
                find(self._snapshot(offset), "segment-missing", offset)
            elif (segments or not self.bases) and offset > max([self.end_offset, *self.bases[-1:]]):
                find(self._snapshot(offset), "snapshot-beyond-log", offset - 1, self.end_offset)
        reached = max(directory.point(name, self.partition) for name in (RECOVERY_POINT, REPLICATION))
        is_doubtful = self.has_wrong_file or self.judged.findings or (reached > self.end_offset and not self.was_closed)
        if segments and not segments[-1].is_lost and is_doubtful:
            self._lose(segments[-1].name, segments[-1])
        is_named = METADATA_NAME in self.names or not self.partition or self.is_krafts or directory.is_zookeepers
        if not is_named and (directory.is_brokers or directory.topic_ids):
            find(self.path / METADATA_NAME, "partition-metadata-missing")
        elif self.partition and not self.is_krafts:
            first = directory.folders.setdefault((*self.partition, self.topic_id), self.path)
            if first != self.path:
                # Such as orders-0 and orders-00.
                directory.judged.find(self.path, "partition-twice", detail=printable(str(first)))
        if self.partition and self.topic_id:
            known, place = directory.topic_ids.setdefault(self.partition[0], (self.topic_id, self.path))
            if known != self.topic_id:
                detail = printable(f"{self.topic_id}; {place} has {known}")
                find(self.path / METADATA_NAME, "topic-ids-differ", detail=detail)
        if self.partition and not self.is_krafts:
            directory.ends[self.partition] = self.end_offset
        for is_clean, places in directory.refusing.items():
            refusing = self._refusing(is_clean=is_clean)
            places += [refusing] if refusing else []
        # No broker starts with the files of tiered storage.
        if not is_tiered(self.path):
            self.judged.start = Start(self._start(is_clean=True), self._start(is_clean=False), directory.was_clean)
        return self.judged

    @property
    def was_closed(self) -> bool:
        """Whether a snapshot or the high watermark shows that the log ended where it ends now. Then a recovery point
        above it is that of another log.
        """
        shown = {self.directory.point(REPLICATION, self.partition), *self.stems.get(".snapshot", ())} - {*self.bases}
        return 0 < self.end_offset == max(shown, default=0)

    def _snapshot(self, offset: int) -> Path:
        return self.path / f"{offset:020d}.snapshot"

    def _lose(self, name: str, before: _Segment) -> None:
        """Note the offsets that are missing after the segment ``before``."""
        bounds = Bounds(self.path / before.name)
        lost = bounds.missing(0, before.end - 1)
        if lost and lost.next is None and self.was_closed:
            seen = max((one for one in bounds.indexed() if one >= before.end), default=None)
            lost = None if seen is None else replace(lost, seen=seen)
        if lost:
            self.judged.lost.append((self.path / name, lost))

    def _close_epochs(self) -> None:
        facts, path = self.facts, self.path / LEADER_EPOCH_CHECKPOINT
        if facts.epoch_fell_at >= 0:
            self.judged.find(
                self.path, "leader-epoch-falls", facts.fallen_epoch, facts.epoch_before, str(facts.epoch_fell_at)
            )
        is_missing = path.name not in self.names
        if (is_missing and not self.directory.is_brokers) or facts.is_cleaned or self.epochs is None:
            return
        known = dict(self.epochs)
        # A broker removes the epochs before the log's start from the file.
        start = max(self.directory.point(LOG_START, self.partition), self.segments[0].first if self.segments else 0)
        end = self.end_offset
        for (epoch, offset), (_, after) in pairwise([*facts.leader_epochs, (-1, end)]):
            offset = max(offset, start)
            begins = known.get(epoch, offset if after <= start else None)
            # The log may begin inside an epoch.
            if begins is None or begins > offset or (begins < offset and offset > start):
                detail = "the file does not have it" if begins is None else f"the file says {begins}"
                detail = "the file is missing" if is_missing else detail
                self.judged.find(path, "leader-epoch-mismatch", epoch, offset, detail)
                return
        for epoch, offset in self.epochs:
            if offset > end:
                self.judged.find(path, "leader-epoch-mismatch", epoch, offset, f"the log ends at offset {end}")
                return

    def _recovered(self, is_clean: bool) -> Iterator[tuple[int, _Segment]]:
        """The segments that a broker recovers when it starts, with their numbers."""
        point = self.directory.point(RECOVERY_POINT, self.partition)
        # The segment in which the recovery point is, and those after it.
        first = max((one.base for one in self.segments if one.base <= point), default=0)
        for number, one in enumerate(self.segments):
            if one.base in self.rebuilt or ((self.is_krafts or not is_clean) and one.base >= first):
                yield number, one

    def _refusing(self, *, is_clean: bool) -> Path | None:
        """The first file with which a broker refuses to start; None if it starts."""
        if self.refusing or not any(map(self._is_odd, self.segments)):
            return self.refusing
        done: list[_Segment] = []
        # First those with indexes to rebuild, when it opens them.
        for one in sorted((one for _, one in self._recovered(is_clean)), key=self._keeps_index):
            # The producers up to there come from the newest snapshot and the batches after it.
            if found := self._unread(one.base, done):
                return found
            if one.is_ending(is_rebuilt=not self._keeps_index(one)):
                return self.path / one.name
            # It deletes the segments that follow.
            if one.is_bad and self._keeps_index(one):
                return None
            done.append(one)
        if self.segments[-1] in done:
            return None
        if self._broker_end is None:
            return self.path / self.segments[-1].name
        return self._unread(self._broker_end, done) if self.stems.get(".snapshot") else None

    def _keeps_index(self, one: _Segment) -> bool:
        return one.base not in self.rebuilt

    def _is_odd(self, one: _Segment) -> bool:
        """Whether a broker may read another log than the one that is there."""
        is_misplaced = self.misplaced.get(f"{one.base:020d}.index", -1) >= 0
        return one.is_bad or one.is_above or is_misplaced

    @cached_property
    def _broker_end(self) -> int | None:
        """The end of the log for a broker that does not recover the last segment."""
        return broker_end(self.path / self.segments[-1].name) if self._is_odd(self.segments[-1]) else self.end_offset

    def _unread(self, end: int, done: list[_Segment]) -> Path | None:
        """The segment with which a broker ends that reads producers from the newest snapshot up to ``end``. It has
        recovered those that are ``done``.
        """
        start = max(self.directory.point(LOG_START, self.partition), self.segments[0].base)
        known = (one for one in reversed(self.stems.get(".snapshot", [])) if start < one <= end)
        begin = next((one for one in known if read_snapshot(self._snapshot(one)) is not None), start)
        ends = [*(one.base for one in self.segments[1:]), INT64_MAX]
        for one, after in zip(self.segments, ends, strict=True):
            if one.base < end and begin < min(after, end) and one.is_bad and one not in done:
                with suppress(UsageError):
                    if None in broker_offsets(memoryview(map_regular(self.path / one.name))):
                        return self.path / one.name
        return None

    def _start(self, *, is_clean: bool) -> str:
        """The actions of a broker that starts, on this log."""
        if place := self._refusing(is_clean=is_clean):
            return _refusal([place], self.path)
        if any(one.code == "partition-metadata-missing" for _, one in self.judged.findings):
            return "renames it to -stray and begins an empty one"
        acts: list[str] = []
        recovered = dict(self._recovered(is_clean))
        cut = next((number for number, one in recovered.items() if one.is_bad and self._keeps_index(one)), INT64_MAX)
        made = self.rebuilt | {one.base for number, one in recovered.items() if number <= cut} & set(self.kept.values())
        if rebuilt := [one.name for one in self.segments if one.base in made]:
            acts.append(f"rebuilds the indexes of {rebuilt[0] if len(rebuilt) == 1 else f'{len(rebuilt)} segments'}")
        reached = {one.base for one in recovered.values()}
        if kept := [name for name, base in self.kept.items() if base not in reached]:
            acts.append(f"keeps {f'the damaged {kept[0]}' if len(kept) == 1 else f'{len(kept)} damaged indexes'}")
        end = self.end_offset
        for number, one in recovered.items():
            # Such a segment is recovered for the sake of its indexes.
            is_rebuilt = one.base in self.rebuilt
            later = len(self.segments) - number - 1
            if one.damage and one.damage.code == OUTSIDE:
                acts.append(f"splits {one.name}, whose offsets are too far apart")
                break
            if one.damage:
                acts.append(f"truncates {one.name if is_rebuilt and later else 'it'} to offset {one.kept_to}")
            elif one.has_tail:
                acts.append(f"cuts off the partial batch at the end of {one.name}")
            if one.is_bad and not is_rebuilt:
                end = one.kept_to
                others = "the segment" if later == 1 else f"the {later} segments"
                acts += [f"deletes {others} after {one.name}"] if later else []
                break
        if self.segments and len(self.segments) - 1 not in recovered:
            assert self._broker_end is not None
            last, end = self.segments[-1], self._broker_end
            if end != last.end:
                acts.append(f"takes offset {end} for its end")
            elif last.ends_badly:
                acts.append(f"keeps the damaged end of {last.name}, and writes after it")
        log_start = self.directory.point(LOG_START, self.partition)
        if log_start > end:
            acts.append(f"deletes its segments and begins an empty log at offset {log_start}")
        has_gap = any(one.code == "segment-gap" for _, one in self.judged.findings)
        return ", then ".join(acts) or (WITH_GAP if has_gap else LOADS)


def _is_refused(path: Path) -> bool:
    """Whether a broker does not start with this checkpoint.

    If a line has the right number of words, and one of them is no number, the broker starts, and writes a new one.
    """
    stored = read_stored(path)
    if stored is None or not stored.is_refused:
        return False
    one = stored.findings[0]
    words = bytes(map_regular(path)[one.at :]).split(b"\n")[0].split()
    return one.code != "checkpoint-line-malformed" or len(words) != len(stored.columns)


def _refusal(places: list[Path], folder: Path) -> str:
    """The sentence about a start with these files of ``folder``: a broker refuses it, if there are any."""
    if not places:
        return LOADS
    more = f" and {counted(len(places) - 1, 'more reason')}" if len(places) > 1 else ""
    return f"refuses to start, because of {printable(str(places[0].relative_to(folder)))}{more}"


def _state(one: Producer, start: int) -> _State:
    open_at = one.current_txn_first_offset
    return _State(one.epoch, one.last_sequence, one.last_offset, open_at if open_at >= start else -1)


def leaving_starts(folders: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """The actions of a broker that starts, on folders that are passed over, by their names."""
    for folder in folders:
        match = LEAVING.fullmatch(folder.name)
        if match is None:
            continue
        # The name of the partition's own folder.
        own = printable((match["partition"] or "").partition(".")[0]) or "the partition"
        acts = {"delete": "deletes it", "stray": "loads it, and leaves it alone"}
        # Seen if this is the directory to which the cluster's metadata assign the partition.
        acts["future"] = f"puts it in the place of {own}, if that is assigned to this directory"
        if (folder.parent / own).is_dir():
            acts["future"] = f"refuses to start if {own}, which is here too, is assigned to this directory"
        yield folder, acts[match["why"]]
