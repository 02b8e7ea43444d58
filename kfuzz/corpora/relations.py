"""How the topics of a workload belong together: key spaces, references, and the rows of partitions.

A key is a number first, its rank. The seed of its space makes bytes of it, so a reference needs only these two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import count
from typing import Any

from kfuzz.corpora.changes import Added, Changes
from kfuzz.corpora.clock import clock_of
from kfuzz.corpora.json_values import Field
from kfuzz.corpora.partition_keys import own_keys
from kfuzz.corpora.partitioners import changed_rows
from kfuzz.corpora.programs import Drawn, Target, To
from kfuzz.corpora.workload import HASHING, KEY_FORMS, Keys, Topic, Values, Workload, program_of
from kfuzz.corpora.writers import seed_of
from kfuzz.errors import UsageError
from kfuzz.forms import Wrong, nearest
from kfuzz.kafka import INT32_MAX

# Topics of a space must agree about these keys of a workload, which decide the bytes of keys.
AGREED = ("cardinality", "size", "form", "schema", "references", "message", "framing", "schema_id", "texts", "fields")
# Takes the name of a reference, and returns the same kind of thing.
Change = Callable[[str, To], To]
# The kinds of changes, as in rounds.pxd.
SNAPSHOT, CREATE, UPDATE, DELETE, TOMBSTONE = range(5)


def key_seed_of(topic: Topic, seed: int) -> int:
    """The seed of the topic's keys; ``seed`` is that of the workload."""
    space = topic.keys.space
    return seed_of(seed, topic.name) if space is None else seed_of(seed, "space", space)


def references_of(side: Keys | Values) -> list[tuple[str, To]]:
    """The references of values or keys, each with its field's name or path."""
    found: list[tuple[str, To]] = []

    def noted(path: str, to: To) -> To:
        found.append((path, to))
        return to

    _mapped(side, noted)
    return found


def numbered(values: Values) -> Values:
    """The same values; the seed of each reference's target is its number among ``references_of``."""
    numbers = count()

    def marked(path: str, to: To) -> To:
        return replace(to, target=replace(to.target or Target(), seed=next(numbers)))

    made: Values = _mapped(values, marked)
    return made


def _mapped(part: Any, change: Change, path: str = "") -> Any:
    """A part of a topic with each reference as ``change`` returns it."""
    if isinstance(part, To):
        return change(path, part)
    if isinstance(part, tuple):
        # The fields of a schema are pairs of a path and the rest.
        path = part[0] if part and isinstance(part[0], str) else path
        return tuple(_mapped(one, change, path) for one in part)
    if isinstance(part, Keys | Values | Changes | Added | Drawn):
        path = part.name if isinstance(part, Field) else path
        return replace(part, **{one.name: _mapped(getattr(part, one.name), change, path) for one in fields(part)})
    return part


def related(workload: Workload, name: str) -> Workload:
    """``workload`` with the targets of all references. ``UsageError`` if topics do not go together."""
    spaces: dict[str, Topic] = {}
    for topic in workload.topics:
        if topic.keys.space is not None:
            _check_space(spaces.setdefault(topic.keys.space, topic), topic, name)
    return replace(
        workload,
        topics=tuple(_referring(workload, topic, f"{name}: topics[{at}]") for at, topic in enumerate(workload.topics)),
    )


def _check_space(first: Topic, topic: Topic, name: str) -> None:
    for key in AGREED:
        one, other = getattr(first.keys, key), getattr(topic.keys, key)
        if one != other:
            key = "type or kind" if key == "form" else key
            raise UsageError(
                f"{name}: the topics {first.name} and {topic.name} have the key space {topic.keys.space!r} and differ "
                f"in keys.{key}; give both the same, or another space"
            )


def _referring(workload: Workload, topic: Topic, place: str) -> Topic:
    for path, _ in references_of(topic.keys):
        raise UsageError(f"{place}.keys.fields: {path} is a reference; keys have none, give both topics one space")

    def found(path: str, to: To) -> To:
        return replace(to, target=_target(workload, to, f"{place}.values.fields: the reference {path}"))

    values = _mapped(topic.values, found)
    try:
        if values != topic.values:
            program_of(values, topic.keys)
    except Wrong as wrong:
        raise UsageError(wrong.sentence(f"{place}.values")) from None
    return replace(topic, values=values)


def referred(workload: Workload, to: To) -> Topic | None:
    """The topic that a reference names; of a space it is the first one."""
    by_space = (topic for topic in workload.topics if topic.keys.space == to.space and not topic.is_own)
    by_name = (topic for topic in workload.topics if topic.name == to.topic)
    return next(by_name if to.space is None else by_space, None)


def _target(workload: Workload, to: To, place: str) -> Target:
    if (to.topic is None) == (to.space is None):
        raise UsageError(f"{place} must have one of topic and space; name one of them")
    other = referred(workload, to)
    if other is None and to.target is not None:
        # A sample of one topic is made, and its target was found with the others.
        return to.target
    if other is None:
        named, what = (to.topic, "topic") if to.space is None else (to.space, "space")
        names = [topic.name if to.space is None else topic.keys.space or "" for topic in workload.topics]
        near = nearest(str(named), names) or f"there is {', '.join(filter(None, names[:20])) or 'none'}"
        raise UsageError(f"{place} is to the {what} {named!r}, which the workload lacks; {near}")
    keys = other.keys
    for is_wrong, what, remedy in (
        (other.is_own, "is one of Kafka's own topics", "name another topic"),
        (keys.null_share == 1, "has no keys", "lower its keys.null_share"),
        (keys.schema, "has keys with a schema, which no field holds", "leave out its keys.schema"),
    ):
        if is_wrong:
            raise UsageError(f"{place} is to {other.name}, which {what}; {remedy}")
    room = {"int": INT32_MAX + 1, "digits": 10 ** min(keys.size.min, 18)}.get(keys.form, 2 * keys.cardinality)
    beyond = min(keys.cardinality, room - keys.cardinality)
    if beyond < 1 and (to.dangling or to.lag_ms is not None):
        raise UsageError(
            f"{place} may dangle, but all keys of this size or type are keys of {other.name}; lower its "
            "keys.cardinality or make its keys longer"
        )
    made = Target(
        seed=key_seed_of(other, workload.seed),
        form=KEY_FORMS.index(keys.form),
        size=keys.size,
        cardinality=keys.cardinality,
        beyond=beyond,
        dangling=round(to.dangling * 10**9),
        partitions=other.partitions,
    )
    return made if to.lag_ms is None else _lagging(made, other, to.lag_ms, place)


def _lagging(target: Target, other: Topic, lag_ms: int, place: str) -> Target:
    times = other.timestamps
    clock = clock_of(times)
    is_steady = len(clock.pieces) == 1 and not times.jitter_ms and not times.late_share and times.end is None
    if other.keys.kind != "sequential" or other.keys.partitioner in HASHING or not is_steady:
        raise UsageError(
            f"{place} has lag_ms, so {other.name} must write its keys in turn at a steady rate; set its keys.kind to "
            '"sequential" without a partitioner, leave out its hours, bursts, jitter, late records and end, or remove '
            "lag_ms"
        )
    if isinstance(times.start, str):
        # It is found again when the start is known.
        return target
    rate, each = clock.pieces[0].rate, clock.units_per_offset
    longest_ms = -(-target.cardinality // target.partitions) * each // rate + 1
    start_ms = times.start + lag_ms
    return replace(target, start_ms=start_ms, longest_ms=longest_ms, rate=rate, units_per_offset=each)


def rows_of(topic: Topic, key_seed: int, partition: int) -> int:
    """The number of rows that a partition with changes of rows has."""
    if topic.keys.partitioner in HASHING:
        return len(own_keys(topic.keys, key_seed, topic.partitions, partition)) // 4
    return -(-(topic.keys.cardinality - partition) // topic.partitions)


def schedule_seed(topic: Topic, key_seed: int, *partition: int) -> int:
    """The seed of the order in which a partition's rows change; without ``partition``, that of the topic's rows."""
    return seed_of(key_seed, topic.name, "changes", *partition)


def changes_at(topic: Topic, key_seed: int, partition: int, offsets: Sequence[int]) -> list[tuple[int, int]]:
    """The key's number and the kind of change (of ``rounds.pxd``) of each of these offsets."""
    rows = rows_of(topic, key_seed, partition)
    made = changed_rows(rows, schedule_seed(topic, key_seed, partition), topic.values.changes.updates, offsets)
    if topic.keys.partitioner in HASHING:
        own = memoryview(own_keys(topic.keys, key_seed, topic.partitions, partition)).cast("I")
        return [(own[row], kind) for row, kind in made]
    return [(row * topic.partitions + partition, kind) for row, kind in made]
