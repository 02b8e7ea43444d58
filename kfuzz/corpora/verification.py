"""Reads a corpus and compares it with its plan and manifest: every batch, offset, sequence, index, sum and file.

It rebuilds the indexes from the log like Kafka's recovery (``LogSegment.recover``). This code is independent of the
generator's, so that both do not share a mistake.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from kfuzz import records
from kfuzz.control import ControlRecordType, decode_control
from kfuzz.corpora.generation import LEADER_EPOCH_CHECKPOINT, MANIFEST, SUCCESS, WORKLOAD, leader_epochs
from kfuzz.corpora.manifest import Row, corpus_fingerprint, read_manifest
from kfuzz.corpora.plan import SEQUENCES, Plan, Segment
from kfuzz.corpora.synth import DIGEST_BYTES
from kfuzz.corpora.workload import BATCH_BYTES_MAX, Workload, load
from kfuzz.errors import UsageError
from kfuzz.files import local_path
from kfuzz.kafka import NO_TIMESTAMP
from kfuzz.records.codecs import decompress
from kfuzz.wire.checksum import crc32c
from kfuzz.wire.framing import frames
from kfuzz.wire.layout import (
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL,
    HEADER_LAYOUT,
    LOG_APPEND_TIME,
    MESSAGE_LAYOUT,
    TRANSACTIONAL,
)
from kfuzz.wire.record_batch import parse_header

__all__ = ["Corpus", "Problem", "verify", "verify_segment"]

OFFSET_ENTRY, TIME_ENTRY, ABORTED_ENTRY = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")
# The place of each header field, for messages (magic 0 and 1) and record batches (magic 2).
PLACES = {
    magic: {name: slice(at, at + width) for name, at, width in layout}
    for magic, layout in {**MESSAGE_LAYOUT, 2: HEADER_LAYOUT}.items()
}
# These fields depend on the codec libraries, so the content fingerprint treats them as 0.
NOT_CONTENT = ("batch_length", "crc")
# Further problems usually repeat the first ones.
PROBLEMS_PER_SEGMENT = 20


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

    out: Path
    workload: Workload
    plan: Plan
    rows: list[Row]

    @staticmethod
    def open(out: str | Path) -> Corpus:
        """Open the corpus in ``out``; ``UsageError`` if it is not a corpus or its manifest cannot be read."""
        out = local_path(out)
        if not (out / WORKLOAD).is_file():
            raise UsageError(f"{out} holds no corpus ({WORKLOAD} is missing); name the directory given as --out")
        workload = load(out / WORKLOAD)
        return Corpus(out, workload, Plan(workload, str(out / WORKLOAD)), read_manifest(out / MANIFEST))

    def segments(self) -> Iterator[tuple[Segment, Row]]:
        """The segments that have a row in the manifest, with that row."""
        for row in self.rows:
            if 0 <= row.segment_id < len(self.plan):
                yield self.plan[row.segment_id], row


def verify(out: str | Path, *, set_done: Callable[[int], None] = lambda done: None) -> list[Problem]:
    """Everything that is wrong with the corpus in ``out``, in the plan's order; empty if nothing is wrong.

    ``set_done`` is called with the number of verified segments. Raises ``UsageError`` like :meth:`Corpus.open`.
    """
    corpus = Corpus.open(out)
    problems = check_whole(corpus)
    for done, (segment, row) in enumerate(corpus.segments()):
        problems += verify_segment(corpus.out, segment, corpus.workload, row)
        set_done(done + 1)
    return problems


def check_whole(corpus: Corpus) -> list[Problem]:
    """The problems that show without opening a segment: ``_SUCCESS``, manifest rows, missing and unexpected files."""
    return [*_check_success(corpus), *_check_rows(corpus), *_check_files(corpus)]


def _check_success(corpus: Corpus) -> Iterator[Problem]:
    success = corpus.out / SUCCESS
    if not success.is_file():
        yield Problem(SUCCESS, None, "not-finished", "is missing: the generation did not finish; run it again")
    elif success.read_text(errors="replace") != corpus_fingerprint(corpus.rows) + "\n":
        yield Problem(SUCCESS, None, "fingerprint-mismatch", "is not the fingerprint of the manifest's rows")


def _check_rows(corpus: Corpus) -> Iterator[Problem]:
    place = f"{MANIFEST}/"
    ids = Counter(row.segment_id for row in corpus.rows)
    for segment_id in sorted(set(range(len(corpus.plan))) - set(ids)):
        path = corpus.plan[segment_id].path
        yield Problem(place, None, "row-missing", f"has no row for segment {segment_id} ({path})")
    for segment_id in sorted(segment_id for segment_id, count in ids.items() if count > 1):
        yield Problem(place, None, "row-repeated", f"has several rows for segment {segment_id}")
    for row in corpus.rows:
        if not 0 <= row.segment_id < len(corpus.plan):
            yield Problem(
                place, None, "row-unexpected", f"has a row for segment {row.segment_id}, which the plan lacks"
            )
            continue
        segment = corpus.plan[row.segment_id]
        for name in ("path", "first_offset", "last_offset"):
            found, planned = getattr(row, name), getattr(segment, name)
            if found != planned:
                message = f"says {name} {found} for segment {row.segment_id}; the plan has {planned}"
                yield Problem(place, None, "row-off-plan", message)


def _check_files(corpus: Corpus) -> Iterator[Problem]:
    expected = {WORKLOAD, SUCCESS}
    for segment, row in corpus.segments():
        # Take the path from the plan: `_check_rows` reports a wrong path.
        expected.update(name for name, _ in replace(row, path=segment.path).files())
    for directory in corpus.plan.directories():
        expected.add(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
    for path in sorted(corpus.out.rglob("*")):
        name = path.relative_to(corpus.out).as_posix()
        in_manifest = path.parent == corpus.out / MANIFEST and path.match("part-*.parquet")
        if path.is_file() and name not in expected and not in_manifest:
            yield Problem(name, None, "file-unexpected", "does not belong to the corpus; remove it")
    for name in sorted(expected - {SUCCESS}):
        path = corpus.out / name
        if not path.is_file():
            yield Problem(name, None, "file-missing", "is missing; generate the corpus again")
        elif name.endswith(LEADER_EPOCH_CHECKPOINT) and path.read_text(errors="replace") != leader_epochs():
            yield Problem(name, None, "checkpoint-mismatch", f"is not {leader_epochs()!r}")


def verify_segment(out: Path, segment: Segment, workload: Workload, row: Row) -> list[Problem]:
    """Everything that is wrong with the files of one segment. :func:`check_whole` reports missing files."""
    log = out / segment.path
    if not log.is_file():
        return []
    if log.stat().st_size == 0:
        return [Problem(segment.path, 0, "file-truncated", f"is empty; the manifest says {row.bytes} bytes")]
    with (
        open(log, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        return _check_log(view, segment, workload, row, out)[:PROBLEMS_PER_SEGMENT]


def _check_log(view: memoryview, segment: Segment, workload: Workload, row: Row, out: Path) -> list[Problem]:
    limits = records.Limits(decompressed_bytes=2 * BATCH_BYTES_MAX)
    # The generator writes exactly what the documents demand, so every finding is a problem.
    reading = records.check(view, profile="strict", limits=limits)
    problems = [Problem(segment.path, finding.at, finding.code, str(finding)) for finding in reading.findings]
    if not problems and reading.consumed < len(view):
        message = f"{len(view) - reading.consumed} bytes are not a whole batch"
        problems.append(Problem(segment.path, reading.consumed, "file-truncated", message))
    if problems:
        return problems
    walk = _Walk(segment, workload.index_interval_bytes)
    problems += walk.run(view)
    problems += _check_sums(walk, view, segment, row)
    for suffix, expected, entry in (
        (".index", walk.offset_index, OFFSET_ENTRY),
        (".timeindex", walk.closed_time_index(), TIME_ENTRY),
        (".txnindex", walk.transaction_index, ABORTED_ENTRY),
    ):
        problems += _check_index(out, segment.path.removesuffix(".log") + suffix, bytes(expected), entry)
    return problems


def _check_sums(walk: _Walk, view: memoryview, segment: Segment, row: Row) -> Iterator[Problem]:
    found = {
        "bytes": len(view),
        "crc32c": crc32c(view),
        "fingerprint": walk.digest.hexdigest(),
        "batches": walk.batches,
        "control_batches": walk.control_batches,
        "records": walk.records,
        "min_timestamp": walk.min_timestamp,
        "max_timestamp": walk.max_timestamp if walk.max_timestamp >= 0 else None,
        "valid": walk.batches,
        "acceptable": 0,
        "invalid": 0,
        "index_crc32c": crc32c(bytes(walk.offset_index)),
        "timeindex_crc32c": crc32c(bytes(walk.closed_time_index())),
        "txnindex_crc32c": crc32c(bytes(walk.transaction_index)) if walk.transaction_index else None,
    }
    for name, value in found.items():
        said = getattr(row, name)
        if said != value:
            yield Problem(segment.path, None, "manifest-mismatch", f"has {name} {value}; the manifest says {said}")


def _check_index(out: Path, name: str, expected: bytes, entry: struct.Struct) -> Iterator[Problem]:
    path = out / name
    found = path.read_bytes() if path.is_file() else b""
    if found == expected or (not path.is_file() and expected):
        return
    for at in range(0, max(len(found), len(expected)), entry.size):
        here, there = found[at : at + entry.size], expected[at : at + entry.size]
        if here != there:
            message = f"entry {at // entry.size} is {_shown(here, entry)}; the log gives {_shown(there, entry)}"
            yield Problem(name, at, "index-mismatch", message)
            return


def _number(data: memoryview) -> int:
    return int.from_bytes(data, "big", signed=True)


def _shown(data: bytes, entry: struct.Struct) -> str:
    return str(entry.unpack(data)) if len(data) == entry.size else f"{len(data)} bytes" if data else "absent"


@dataclass(slots=True)
class _Walk:
    """One pass over a log whose batches have no findings: computes sums, and the indexes as recovery rebuilds them."""

    segment: Segment
    index_interval: int
    offset_index: bytearray = field(default_factory=bytearray)
    time_index: bytearray = field(default_factory=bytearray)
    transaction_index: bytearray = field(default_factory=bytearray)
    batches: int = 0
    control_batches: int = 0
    records: int = 0
    max_timestamp: int = NO_TIMESTAMP
    min_timestamp: int | None = None
    digest: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=DIGEST_BYTES))
    _next_offset: int = 0
    _sequences: dict[int, int] = field(default_factory=dict)
    _open: dict[int, int] = field(default_factory=dict)
    _top: tuple[int, int] = (-1, -1)
    _indexed_at: int = 0
    _problems: list[Problem] = field(default_factory=list)

    def run(self, view: memoryview) -> list[Problem]:
        self._next_offset = self.segment.first_offset
        self._sequences = {s.producer_id: s.first_sequence for s in self.segment.streams if s.producer_id >= 0}
        for at, size, magic in frames(view):
            batch = view[at : at + size]
            if magic == 2:
                self._batch(at, batch)
            else:
                self._message(at, batch, magic)
        # The strict check found no partial tail, so the last batch ends here.
        at = len(view)
        if self._next_offset != self.segment.last_offset + 1:
            message = f"ends before offset {self._next_offset}; the plan's last offset is {self.segment.last_offset}"
            self._problem(at, "offset-off-plan", message)
        for producer_id, offset in sorted(self._open.items()):
            message = f"ends inside producer {producer_id}'s transaction from offset {offset}"
            self._problem(at, "transaction-open", message)
        return self._problems

    def closed_time_index(self) -> bytearray:
        """The time index with the entry that ``onBecomeInactiveSegment`` appends."""
        return self.time_index + self._time_entry()

    def _problem(self, at: int, code: str, message: str) -> None:
        if len(self._problems) < PROBLEMS_PER_SEGMENT:
            self._problems.append(Problem(self.segment.path, at, code, message))

    def _batch(self, at: int, batch: memoryview) -> None:
        (base_offset, _, _, _, _, attributes, last_offset_delta, base_timestamp, max_timestamp,
         producer_id, _, base_sequence, count) = parse_header(batch, 0)  # fmt: skip
        self._digest(batch[:BATCH_HEADER_SIZE], 2, self._content(batch, BATCH_HEADER_SIZE, attributes, 2))
        earliest = max_timestamp if attributes & LOG_APPEND_TIME else base_timestamp
        self._append(at, base_offset, base_offset + last_offset_delta, max_timestamp, earliest)
        if attributes & CONTROL:
            self._marker(at, batch, producer_id, base_offset)
        elif producer_id >= 0:
            self._data(at, producer_id, base_sequence, count, base_offset, attributes)

    def _data(self, at: int, producer_id: int, base_sequence: int, count: int, offset: int, attributes: int) -> None:
        expected = self._sequences.get(producer_id)
        if base_sequence != expected:
            message = f"has base sequence {base_sequence} of producer {producer_id}; the plan gives {expected}"
            self._problem(at, "sequence-off-plan", message)
        self._sequences[producer_id] = (base_sequence + count) % SEQUENCES
        if attributes & TRANSACTIONAL:
            self._open.setdefault(producer_id, offset)

    def _marker(self, at: int, batch: memoryview, producer_id: int, offset: int) -> None:
        self.control_batches += 1
        first = self._open.pop(producer_id, None)
        if first is None:
            self._problem(at, "transaction-unknown", f"ends a transaction of producer {producer_id} that did not begin")
            return
        [marker] = records.decode(batch)[0].records
        if decode_control(marker.key, marker.value).key.type == ControlRecordType.ABORT:
            stable = min(self._open.values(), default=offset + 1)
            self.transaction_index += ABORTED_ENTRY.pack(0, producer_id, first, offset, stable)

    def _message(self, at: int, message: memoryview, magic: int) -> None:
        places = PLACES[magic]
        attributes = _number(message[places["attributes"]])
        start = places["key_length"].start
        self._digest(message[:start], magic, self._content(message, start, attributes, magic))
        last = _number(message[places["base_offset"]])
        timestamp = _number(message[places["timestamp"]]) if "timestamp" in places else NO_TIMESTAMP
        count = len(records.decode(message)[0].records) if attributes & CODEC_MASK else 1
        self._append(at, last - count + 1, last, timestamp, timestamp)

    def _digest(self, header: memoryview, magic: int, content: memoryview | bytes) -> None:
        blanked = bytearray(header)
        for name in NOT_CONTENT:
            place = PLACES[magic][name]
            blanked[place] = bytes(place.stop - place.start)
        self.digest.update(blanked + crc32c(content).to_bytes(4, "big"))

    def _content(self, batch: memoryview, start: int, attributes: int, magic: int) -> memoryview | bytes:
        """The uncompressed bytes after a header of ``start`` bytes."""
        codec = records.CODECS[attributes & CODEC_MASK]
        if codec == "none":
            return batch[start:]
        if magic < 2:
            # The length of a wrapper's null key and the length of its value precede the compressed bytes.
            key_length = PLACES[magic]["key_length"]
            start += 2 * (key_length.stop - key_length.start)
        return decompress(codec, batch[start:], 2 * BATCH_BYTES_MAX, magic=magic).data

    def _append(self, at: int, first: int, last: int, max_timestamp: int, earliest: int) -> None:
        if first != self._next_offset:
            self._problem(at, "offset-off-plan", f"has base offset {first}; {self._next_offset} must follow")
        self._next_offset = last + 1
        if max_timestamp > self._top[0]:
            self._top = (max_timestamp, last)
        if at - self._indexed_at > self.index_interval:
            self.offset_index += OFFSET_ENTRY.pack(last - self.segment.first_offset, at)
            self.time_index += self._time_entry()
            self._indexed_at = at
        self.batches += 1
        self.records += last - first + 1
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        if earliest >= 0:
            self.min_timestamp = earliest if self.min_timestamp is None else min(self.min_timestamp, earliest)

    def _time_entry(self) -> bytes:
        timestamp, offset = self._top
        indexed = TIME_ENTRY.unpack(self.time_index[-TIME_ENTRY.size :])[0] if self.time_index else -1
        return TIME_ENTRY.pack(timestamp, offset - self.segment.first_offset) if timestamp > indexed else b""
