"""The last value of each key, as a reader of a compacted topic sees it, and two logs compared by it.

The memory does not grow with the number of keys: sorted runs of them are written to temporary files.
"""

from __future__ import annotations

import heapq
import marshal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import groupby, repeat
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final

from kfuzz.annotate.parts import preview
from kfuzz.kafka import INT64_MAX
from kfuzz.logs.comparing import Compared, Side, pairs_of
from kfuzz.logs.reading import FINDING, read_slice, schema
from kfuzz.logs.segments import Slice, refuse
from kfuzz.logs.slicing import slices
from kfuzz.records import Limits
from kfuzz.records.read.limits import DEFAULT_LIMITS

# How much the keys in memory may take, and how much each of them does beside its bytes.
MEMORY_BYTES: Final = 256 << 20
ENTRY_BYTES: Final = 400
KEY: Final = itemgetter(0)
WANTED: Final = schema(["offset", "key", "value"], mode="tolerant")


class Latest:
    """The last entry that was put under each key, in the order of the keys. ``marshal`` must be able to write it."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._left = self._memory_bytes = memory_bytes
        self._entries: dict[bytes, Any] = {}
        self._runs: list[IO[bytes]] = []

    def put(self, key: bytes, entry: Any) -> None:
        """Put an entry in place of an earlier one."""
        self._left -= 0 if key in self._entries else len(key) + ENTRY_BYTES
        self._entries[key] = entry
        if self._left < 0:
            run = tempfile.TemporaryFile(prefix="kfuzz-keys-")  # noqa: SIM115 (``_pairs`` closes it)
            for pair in sorted(self._entries.items(), key=KEY):
                marshal.dump(pair, run)
            self._runs.append(run)
            self._entries, self._left = {}, self._memory_bytes

    def __iter__(self) -> Iterator[tuple[bytes, Any]]:
        runs = [*map(_pairs, self._runs), iter(sorted(self._entries.items(), key=KEY))]
        # The merge keeps the order of the runs for equal keys, so the last one is the newest.
        for _, same in groupby(heapq.merge(*runs, key=KEY), key=KEY):
            *_, last = same
            yield last


def _pairs(run: IO[bytes]) -> Iterator[tuple[bytes, Any]]:
    run.seek(0)
    try:
        while True:
            yield marshal.load(run)
    except EOFError:
        run.close()


def compare_latest(
    a: str | Path,
    b: str | Path,
    *,
    topics: str = "*",
    limits: Limits = DEFAULT_LIMITS,
    on_bytes: Callable[[int], None] = lambda done: None,
    pass_over: Callable[[Path, str], None] = refuse,
    memory_bytes: int = MEMORY_BYTES,
) -> Iterator[Compared]:
    """As ``comparing.compare``, but a record is the last value of a key, as a reader in read_committed sees it.

    A key whose last value is null counts as missing, and records without a key are passed over. The keys of a side take
    about ``memory_bytes``.
    """
    done = 0
    for name, segments in pairs_of(a, b, topics=topics, pass_over=pass_over):
        made = Compared(name, (Side(segments[0], limits), Side(segments[1], limits)))
        tagged = []
        for number, side in enumerate(made.sides if all(segments) else ()):
            latest = Latest(memory_bytes)
            for part in slices(side.segments, isolation="read_committed"):
                _read(part, side, latest)
                on_bytes(done := done + part.end - part.start)
            tagged.append(zip(latest, repeat(number)))
        for key, same in groupby(heapq.merge(*tagged, key=lambda pair: pair[0][0]), key=lambda pair: pair[0][0]):
            found = {number: entry for (_, entry), number in same if entry[1] is not None}
            if len({entry[1] for entry in found.values()}) > 1 or len(found) == 1:
                offset = max(entry[0] for entry in found.values())
                values = [f"{found[i][2]} at offset {found[i][0]}" if i in found else "none" for i in (0, 1)]
                made.note_record(offset, f"last value of the key {preview(key, (0, len(key)))}", *values)
        yield made


def _read(part: Slice, side: Side, latest: Latest) -> None:
    """Put the last value of each key in a slice: offset, digest (None for null), and text."""
    # Of a part of the offsets, damage would not be reported.
    whole = replace(part, stable_offset=None)
    for rows in read_slice(whole, WANTED, isolation="read_committed", limits=side.limits):
        if not rows.column(FINDING).null_count:
            side.spoil(str(rows.column(FINDING)[0]), {"file": str(part.segment.path), "at": None, "size": None})
            continue
        offsets: list[Any] = rows.column("offset").to_pylist()
        below = INT64_MAX if part.stable_offset is None else part.stable_offset
        last = {key: row for row, key in enumerate(rows.column("key").to_pylist()) if offsets[row] < below}
        for key, row in last.items():
            value = rows.column("value")[row].as_py()
            seen = (None, "") if value is None else (blake2b(value).digest(), preview(value, (0, len(value))))
            if key is not None:
                latest.put(key, (offsets[row], *seen))
