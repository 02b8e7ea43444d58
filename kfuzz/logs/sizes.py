"""The extent of each partition of a log directory: offsets, bytes and times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from kfuzz.logs.heads import BatchHeads
from kfuzz.logs.indexes import Starts
from kfuzz.logs.internal_topics import partitions_with_own
from kfuzz.logs.producers import Notes, end_offset
from kfuzz.logs.segments import Segment
from kfuzz.mapped import mapped, require_whole
from kfuzz.wire.records.framing import frames, next_frame
from kfuzz.wire.walk.search import Search


def extents(path: str, notes: Notes, topics: str) -> dict[str, list[dict[str, Any]]]:
    """``topics``, the largest first, and their ``partitions``, as JSON objects; sizes are those of segments, in bytes.

    Kafka's own topics are there too, unless the glob ``topics`` chooses others. Raises ``UsageError`` if none is there.
    """
    partitions = [_extent(segments, notes) for segments in partitions_with_own(path, topics, "__*", notes)]
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    whole = max(1, sum(one["bytes"] for one in partitions))
    for one in partitions:
        totals[one["topic"]].update(partitions=1, segments=one["segments"], bytes=one["bytes"])
    of_topics = [{"topic": name, **of, "percent": round(100 * of["bytes"] / whole)} for name, of in totals.items()]
    of_topics.sort(key=lambda one: -one["bytes"])
    return {"topics": of_topics, "partitions": partitions}


def _extent(segments: Sequence[Segment], notes: Notes) -> dict[str, Any]:
    filled = [one for one in segments if one.size] or segments[:1]
    first, last = filled[0], filled[-1]
    return {
        "topic": first.topic,
        "partition": first.partition,
        "first_offset": first.base_offset or 0,
        "end_offset": end_offset(segments),
        "segments": len(segments),
        "bytes": sum(one.size for one in segments),
        # A broker deletes a segment when its newest time is old enough.
        "oldest": _newest_ms(first, notes),
        "newest": _newest_ms(last, notes),
    }


def _newest_ms(segment: Segment, notes: Notes) -> int | None:
    """The highest timestamp in a segment; None if no whole batch has one. ``notes`` says where no batch follows."""
    if not segment.size:
        return None
    with segment.open() as file:
        view = mapped(file, 0, segment.size)
        places = [(at, at + size) for at, size, _ in frames(view)]
        heads = BatchHeads(view, [at for at, _ in places], 0)
        # A wrong length may lead over batches; then their offsets are missing after it.
        bases, lasts = (heads.values(name, np.int64) for name in ("base_offset", "last_offset"))
        doubtful = np.flatnonzero(np.append(bases[1:] != lasts[:-1] + 1, len(places) > 0))
        search = Search(view)
        sound = next((number for number in doubtful if not search.holds(places[number][0])), len(places))
        if (end := places[sound - 1][1] if sound else 0) < segment.size:
            sentence = f"{segment.path} is damaged or cut at byte {end}; the batches from there on are not counted"
            after = Starts(segment, file).resume(end, 0, segment.size)
            is_last = segment.next_offset is None and after == segment.size
            notes.damage(sentence, is_tail=is_last and next_frame(view, end)[0] == 0)
        newest = max(heads.values("max_timestamp", int)[:sound], default=-1)
        require_whole(view)
    return int(newest) if newest >= 0 else None
