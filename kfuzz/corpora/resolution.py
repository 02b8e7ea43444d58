"""Fixes what a workload leaves open until a corpus is begun. The corpus' ``_workload.toml`` holds the result.

A ``start`` or ``end`` such as ``now-1d`` becomes a number of milliseconds.

``values.ratio`` asks for a compression ratio. The bytes that reach it depend on the codec, and on the sizes of keys,
values and batches. So sample batches are made and compressed with more and less repetition, until the ratio is met. The
result is one whole number for each codec, ``values.fresh_bytes``, and the corpus depends on that number alone.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from kfuzz.corpora.hostile import hostile_digest, hostile_vectors
from kfuzz.corpora.layout import WORKLOAD
from kfuzz.corpora.plan import Plan, Segment, decided
from kfuzz.corpora.segment import synthesiser
from kfuzz.corpora.workload import (
    FRESH_PERIOD_BYTES,
    KIB,
    MIB,
    Adversarial,
    Legacy,
    Producers,
    Timestamps,
    Topic,
    Transactions,
    Workload,
    parse,
)
from kfuzz.errors import UsageError
from kfuzz.schemas import Schema, Store
from kfuzz.storage import Target
from kfuzz.units import relative_ms
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE

SAMPLE_BATCHES = 4
SAMPLE_BYTES_MIN, SAMPLE_BYTES_MAX = MIB, 16 * MIB
# The sample's ratio must come so near to the asked one. The rest of the promised 10 % is for the other batches.
TOLERANCE = 0.05


def resolve(
    workload: Workload, out: Target | None = None, *, name: str = "the workload", now_ms: int | None = None
) -> Workload:
    """The same workload with nothing left open. A resolved workload is returned as it is.

    If ``out`` holds a corpus of this workload, what was left open is as it was when that corpus was begun. Raises
    ``UsageError`` if a compression ratio cannot be met; ``name`` names the workload in that error. ``now_ms`` is the
    time since 1970 (default: that of this machine's clock).
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    begun = None if out is None else held(out)
    topics = []
    for at, topic in enumerate(workload.topics):
        before = begun.topics[at] if begun is not None and at < len(begun.topics) else None
        if before is not None and _as_begun(topic, before) == before:
            topics.append(before)
        else:
            topics.append(_resolved(topic, now_ms, f"{name}: topics[{at}]"))
    if not workload.segment_bytes and begun is not None:
        workload = replace(workload, segment_bytes=begun.segment_bytes)
    return decided(replace(workload, topics=tuple(topics)), name)


def held(out: Target) -> Workload | None:
    """The workload of the corpus in ``out``; None if there is none that can be read."""
    text = out.read(WORKLOAD)
    try:
        return None if text is None else parse(text.decode(), f"{out}/{WORKLOAD}")
    except (UsageError, UnicodeDecodeError):
        return None


def held_schemas(path: str, topics: str = "*") -> tuple[list[Store | Schema], list[str]]:
    """The schemas of a corpus; empty if ``path`` is neither a corpus nor one of its partitions or segments.

    The schema of values without an id is among them if it is that of all topics there that match the glob ``topics``.
    Otherwise the names of the topics with such schemas come after them.
    """
    place = Path(path).absolute()
    folder = next((one for one in (place, *place.parents[:2]) if (one / WORKLOAD).is_file()), None)
    workload = None if folder is None else held(Target.of(folder))
    store = Store(f"{folder}/{WORKLOAD}", is_whole=True)
    alone: dict[str, Schema | None] = {}
    own = "" if folder is None else "".join(place.relative_to(folder).parts[:1]).rpartition("-")[0]
    for topic in workload.topics if workload else ():
        if topic.name != own if own else not fnmatchcase(topic.name, topics):
            continue
        for side in (topic.keys, topic.values):
            schema = None
            if side.schema is not None:
                *references, (_, text) = side.texts
                schema = Schema(side.schema_kind, text, name=side.schema, needed=tuple(references))
                if side.schema_id is not None:
                    store.ids[side.schema_id], schema = schema, None
                elif side.message is not None:
                    schema = replace(schema, indexes=side.indexes)
        alone[topic.name] = schema
    found = list(alone.values())
    only = [one for one in found[:1] if one and found.count(one) == len(found)]
    left = [] if only else [name for name, one in alone.items() if one]
    return [*([store] if store.ids else []), *only], left


def _as_begun(topic: Topic, before: Topic) -> Topic:
    """``topic``; where it leaves a number open, it takes the number of ``before``."""
    if topic.values.ratio and not topic.values.fresh_bytes:
        topic = replace(topic, values=replace(topic.values, fresh_bytes=before.values.fresh_bytes))
    if topic.adversarial.share and not topic.adversarial.digest:
        topic = replace(topic, adversarial=replace(topic.adversarial, digest=before.adversarial.digest))
    times, begun = topic.timestamps, before.timestamps
    start = begun.start if isinstance(times.start, str) else times.start
    end = begun.end if isinstance(times.end, str) else times.end
    return replace(topic, timestamps=replace(times, start=start, end=end))


def _resolved(topic: Topic, now_ms: int, place: str) -> Topic:
    times = topic.timestamps
    start, end = _absolute(times.start, now_ms), _absolute(times.end, now_ms)
    for key, found in (("start", start), ("end", end)):
        if isinstance(found, int) and found < 0:
            raise UsageError(f"{place}.timestamps.{key} is {getattr(times, key)!r}, before 1970; name a later moment")
    assert start is not None
    topic = replace(topic, timestamps=replace(times, start=start, end=end))
    if topic.adversarial.share and not topic.adversarial.digest:
        digest = hostile_digest(hostile_vectors(topic.adversarial.vectors))
        topic = replace(topic, adversarial=replace(topic.adversarial, digest=digest))
    if topic.values.ratio and not topic.values.fresh_bytes:
        fresh = tuple((codec, _fresh_bytes(topic, codec, place)) for codec in topic.compressing_codecs)
        topic = replace(topic, values=replace(topic.values, fresh_bytes=fresh))
    return topic


def _absolute(moment: int | str | None, now_ms: int) -> int | None:
    if not isinstance(moment, str):
        return moment
    added_ms = relative_ms(moment)
    assert added_ms is not None
    return now_ms + added_ms


def _fresh_bytes(topic: Topic, codec: str, place: str) -> int:
    """How many bytes of each period must be fresh, so that ``codec`` reaches the topic's ratio."""
    alone = _alone(topic)
    plain = _payload(alone, "none", 0)

    @cache
    def ratio(fresh: int) -> float:
        return plain / _payload(alone, codec, fresh)

    wanted = topic.values.ratio
    # More fresh bytes give a lower ratio.
    high = 1 + bisect_left(range(1, FRESH_PERIOD_BYTES), -wanted, key=lambda fresh: -ratio(fresh))
    found = min((high - 1, high), key=lambda fresh: abs(ratio(fresh) - wanted))
    reached = ratio(found)
    if abs(reached / wanted - 1) > TOLERANCE:
        limit, remedy = ("at most", "lower") if reached < wanted else ("at least", "raise")
        more = ", or raise batches.records or values.size" if reached < wanted else ""
        raise UsageError(
            f"{place}.values.ratio is {wanted:g}, but with these sizes {codec} reaches {limit} {reached:.2g}; "
            f"{remedy} ratio{more}"
        )
    return found


def _alone(topic: Topic) -> Topic:
    """``topic`` without what does not change the payloads of its batches much."""
    return replace(
        topic,
        partitions=1,
        timestamps=Timestamps(records_per_second=topic.timestamps.records_per_second),
        producers=Producers(),
        transactions=Transactions(),
        legacy=Legacy(),
        adversarial=Adversarial(),
    )


def _payload(topic: Topic, codec: str, fresh: int) -> int:
    """The bytes of sample batches without their headers, with ``fresh`` fresh bytes in each period."""
    values = replace(topic.values, fresh_bytes=((codec, fresh),))
    sampled = replace(topic, values=values, batches=replace(topic.batches, codecs=((codec, 1),)))
    made = synthesiser(_segment(sampled), 4 * KIB)
    size = sum(iter(made.fill, 0))
    return size - made.batches * BATCH_HEADER_SIZE


def _segment(topic: Topic) -> Segment:
    one = Plan(Workload(topics=(topic,), size=1 << 40, segment_bytes=SAMPLE_BYTES_MAX))[0]
    offset_bytes = SAMPLE_BYTES_MAX / one.offsets
    enough = SAMPLE_BATCHES * topic.batches.records.mean * offset_bytes
    offsets = int(min(max(enough, SAMPLE_BYTES_MIN), SAMPLE_BYTES_MAX) / offset_bytes) + 1
    return replace(one, offsets=offsets, streams=(replace(one.streams[0], records=offsets),))
