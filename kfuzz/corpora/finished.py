"""The rows of finished segments, kept in the corpus until it is published. A run that was interrupted continues there.

The tasks write them, as JSON lines in ``_rows/<workload>/<run>-<first id>-<last id>-<attempt>.jsonl``. The driver reads
them in order, in bounded memory, however many tasks wrote them. Rows belong to one workload: a corpus of another size
has other segment ids.
"""

from __future__ import annotations

import heapq
import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from kfuzz.corpora.manifest import Row
from kfuzz.corpora.workload import Workload
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.storage import Target, in_parallel

ROWS: Final = "_rows"
# A killed process loses the rows of at most this time, so a run that continues writes those segments again.
FLUSH_S: Final = 10.0
ROWS_PER_FILE: Final = 10_000
NAME: Final = re.compile(r"([0-9]{6,12})-([0-9]{12,18})-([0-9]{12,18})-.+\.jsonl")


class RowWriter:
    """Keeps the rows of one attempt. Added rows are durable after :meth:`flush`, which also runs at the end."""

    def __init__(self, target: Target, workload: Workload, run: int, attempt: str) -> None:
        self._target, self._directory = target, directory_of(workload)
        self._run, self._attempt = run, attempt
        self._rows: list[Row] = []
        self._since_s = time.monotonic()

    def __enter__(self) -> RowWriter:
        return self

    def add(self, row: Row) -> None:
        if not self._rows:
            self._since_s = time.monotonic()
        self._rows.append(row)
        if len(self._rows) >= ROWS_PER_FILE or time.monotonic() - self._since_s >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        rows = sorted(self._rows, key=lambda row: row.segment_id)
        first, last = rows[0].segment_id, rows[-1].segment_id
        name = f"{self._directory}/{self._run:06d}-{first:012d}-{last:012d}-{self._attempt}.jsonl"
        self._target.write(name, "".join(json.dumps(asdict(row)) + "\n" for row in rows))
        self._rows.clear()

    def __exit__(self, *error: object) -> None:
        self.flush()


class _File(NamedTuple):
    first: int
    last: int
    run: int
    name: str


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows that are kept for ``workload``, by segment id. Where two runs wrote one, the later run's row counts."""

    target: Target
    workload: Workload
    files: tuple[_File, ...]

    @staticmethod
    def of(target: Target, workload: Workload) -> KeptRows:
        directory = directory_of(workload)
        files = []
        for name in target.list(directory).files:
            if parts := NAME.fullmatch(name):
                files.append(_File(int(parts[2]), int(parts[3]), int(parts[1]), f"{directory}/{name}"))
        return KeptRows(target, workload, tuple(sorted(files)))

    @property
    def next_run(self) -> int:
        """The number of the run that begins now; 0 is for rows that were carried over from a finished corpus."""
        return 1 + max((file.run for file in self.files), default=0)

    def between(self, first: int, last: int) -> KeptRows:
        """Only the files that may have rows of the segments from ``first`` to ``last``."""
        files = tuple(file for file in self.files if file.first <= last and first <= file.last)
        return KeptRows(self.target, self.workload, files)

    def __iter__(self) -> Iterator[Row]:
        """Merge the files, which are sorted. Only files with overlapping ids are in memory at the same time."""
        contents = in_parallel(self.target.read, [file.name for file in self.files])
        heap: list[tuple[int, int, int, Row, Iterator[Row]]] = []
        done = -1
        for at in range(len(self.files) + 1):
            # Everything below the first id of the next file is complete.
            limit = self.files[at].first if at < len(self.files) else None
            while heap and (limit is None or heap[0][0] < limit):
                segment_id, run, order, row, rest = heapq.heappop(heap)
                if segment_id > done:
                    done = segment_id
                    yield row
                _push(heap, run, order, rest)
            if at < len(self.files):
                _push(heap, -self.files[at].run, at, _rows_of(next(contents)[1]))


def _push(heap: list[tuple[int, int, int, Row, Iterator[Row]]], run: int, order: int, rest: Iterator[Row]) -> None:
    if (row := next(rest, None)) is not None:
        heapq.heappush(heap, (row.segment_id, run, order, row, rest))


def _rows_of(text: bytes | None) -> Iterator[Row]:
    # A file that is gone was swept with its run.
    for line in (text or b"").splitlines():
        try:
            row = Row(**load_json(line, "a row"))
            row.require_types()
        except (UsageError, TypeError):
            # Written by another version of kfuzz: its segment is written again.
            continue
        yield row


def directory_of(workload: Workload) -> str:
    """Where the rows of ``workload`` are kept."""
    return f"{ROWS}/{workload.fingerprint[:16]}"
