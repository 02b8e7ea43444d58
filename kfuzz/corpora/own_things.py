"""Kafka's own topics in a workload: which kinds there are, and the numbers of things that their records are about."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Final

from kfuzz.corpora.quantities import Share, byte_size
from kfuzz.errors import UsageError
from kfuzz.forms import ListOf, choice, integer, matching
from kfuzz.kafka import INTERNAL_TOPICS

if TYPE_CHECKING:
    from kfuzz.corpora.workload import Topic

# A table in memory says of each thing to which partition it belongs. Members and partitions are in lists.
THINGS_MAX, PLACES_MAX, RECORDS_MAX = 10_000_000, 1_000_000, 1 << 40
# All of a segment in remote storage is in memory while it is made.
SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX = 64 << 10, 64 << 20
TOPIC_ID: Final = matching("[A-Za-z0-9_-]{21}[AQgw]", "give the id of a topic, as Kafka shows it")


@dataclass(frozen=True, slots=True)
class Things:
    """Numbers of what the records of one of Kafka's own topics are about. Each kind of topic has some of these keys.

    ``partitions`` are those of each topic. ``changes`` is how often each thing changes. Of the things, ``gone_share``
    are deleted at the end, and ``open_share`` of the others have not ended. ``segments`` of ``segment_bytes`` each are
    those of a partition in remote storage. ``ids`` are those of the first topics.
    """

    groups: Annotated[int, integer(1, THINGS_MAX)] = 100
    transactional_ids: Annotated[int, integer(1, THINGS_MAX)] = 100
    brokers: Annotated[int, integer(1, 10_000)] = 3
    replicas: Annotated[int, integer(1, 100)] = 3
    topics: Annotated[int, integer(1, PLACES_MAX)] = 5
    partitions: Annotated[int, integer(1, PLACES_MAX)] = 4
    members: Annotated[int, integer(0, 1000)] = 2
    changes: Annotated[int, integer(0, PLACES_MAX)] = 3
    consumer_share: Share = 0.5
    gone_share: Share = 0.0
    open_share: Share = 0.0
    snapshot: Annotated[bool, choice(False, True)] = False
    segments: Annotated[int, integer(1, 1000)] = 3
    segment_bytes: Annotated[int, byte_size(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)] = 256 << 10
    ids: Annotated[tuple[str, ...], ListOf(TOPIC_ID, most=PLACES_MAX)] = ()


# The keys of ``Things`` that each kind has. Its topic has the same name.
KINDS: Final = {
    "consumer-offsets": "groups consumer_share members topics partitions changes gone_share",
    "cluster-metadata": "brokers replicas topics partitions changes gone_share snapshot",
    "transaction-state": "transactional_ids topics partitions changes gone_share open_share",
    "share-group-state": "groups topics partitions changes gone_share",
    "remote-log-metadata": "topics partitions segments segment_bytes ids gone_share",
}
# A topic of such a kind has these keys, and these of its timestamps.
_COMMON: Final = "name kind things partitions weight batches timestamps"
_TIMES: Final = ("start", "end", "records_per_second")


def check_own(topic: Topic, place: str) -> None:
    """Raise ``UsageError`` if a topic of Kafka's own has no kind, or if its kind does not go with what it has."""
    names = {kind: f"__{kind.replace('-', '_')}" for kind in KINDS}
    if not topic.is_own:
        if topic.name in INTERNAL_TOPICS:
            kinds = [f'set its kind to "{kind}", or ' for kind, name in names.items() if name == topic.name]
            raise UsageError(
                f"{place}.name is {topic.name}, a topic of Kafka's own, whose records only Kafka writes; "
                f"{''.join(kinds)}choose another name"
            )
        if topic.things != Things():
            raise UsageError(f"{place}.things needs a kind, such as {next(iter(KINDS))}; set kind or remove things")
        return
    name, things = names[topic.kind], topic.things
    if topic.name != name:
        raise UsageError(
            f'{place}.name is {topic.name}, but records of the kind "{topic.kind}" are in {name}; name it so'
        )
    plain = type(topic)(topic.name)
    wrong = _changed(topic, plain, _COMMON) + [f"things.{key}" for key in _changed(things, Things(), KINDS[topic.kind])]
    as_plain = {key: getattr(plain.timestamps, key) for key in _TIMES}
    if replace(topic.timestamps, **as_plain) != plain.timestamps:
        wrong.append(f"timestamps besides {', '.join(_TIMES)}")
    if len(topic.batches.codecs) > 1 or topic.batches.records.min != topic.batches.records.max:
        wrong.append("batches of several codecs or sizes")
    if topic.kind == "cluster-metadata" and topic.partitions > 1:
        wrong.append(f"{topic.partitions} partitions")
    if things.replicas > things.brokers:
        wrong.append(f"more replicas ({things.replicas}) than brokers")
    if len(things.ids) > things.topics or len(set(things.ids)) < len(things.ids):
        wrong.append("more ids than topics, or one twice")
    places = things.topics * max(things.partitions, things.members)
    owned = max(things.groups, things.transactional_ids) * (places if topic.kind == "share-group-state" else 1)
    if places > PLACES_MAX or owned > THINGS_MAX or owned * places * things.changes > RECORDS_MAX:
        wrong.append("so many things")
    if wrong:
        raise UsageError(f'{place} of the kind "{topic.kind}" cannot have {wrong[0]}; change or remove it')


def _changed(one: object, plain: object, but: str) -> list[str]:
    """The keys of a dataclass that differ from ``plain``, except some."""
    names = [field.name for field in fields(one) if field.name not in but.split()]  # type: ignore[arg-type]
    return [name for name in names if getattr(one, name) != getattr(plain, name)]
