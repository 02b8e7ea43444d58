"""Kafka's own topics in a workload: which kinds there are, and the numbers of things that their records are about."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Final

from kfuzz.corpora.quantities import Share
from kfuzz.errors import UsageError
from kfuzz.forms import choice, integer
from kfuzz.kafka import INTERNAL_TOPICS

if TYPE_CHECKING:
    from kfuzz.corpora.workload import Topic

# Of each, a table is held in memory that says to which partition it belongs.
THINGS_MAX: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Things:
    """What the records of one of Kafka's own topics are about. Each kind of topic has some of these keys.

    ``partitions`` are those of each topic. ``changes`` is how often each thing changes. Of the things, ``gone_share``
    are deleted at the end, and ``open_share`` have not ended.
    """

    groups: Annotated[int, integer(1, THINGS_MAX)] = 100
    transactional_ids: Annotated[int, integer(1, THINGS_MAX)] = 100
    brokers: Annotated[int, integer(1, 10_000)] = 3
    replicas: Annotated[int, integer(1, 100)] = 3
    topics: Annotated[int, integer(1, THINGS_MAX)] = 5
    partitions: Annotated[int, integer(1, 1_000_000)] = 4
    members: Annotated[int, integer(0, 1000)] = 2
    changes: Annotated[int, integer(0, 1_000_000)] = 3
    consumer_share: Share = 0.5
    gone_share: Share = 0.0
    open_share: Share = 0.0
    snapshot: Annotated[bool, choice(False, True)] = False


# Each kind, its topic, and the keys of ``Things`` that it has.
KINDS: Final = {
    "consumer-offsets": (
        "__consumer_offsets",
        ("groups", "topics", "partitions", "members", "changes", "consumer_share", "gone_share"),
    ),
    "cluster-metadata": (
        "__cluster_metadata",
        ("brokers", "replicas", "topics", "partitions", "changes", "gone_share", "snapshot"),
    ),
    "transaction-state": (
        "__transaction_state",
        ("transactional_ids", "topics", "partitions", "changes", "gone_share", "open_share"),
    ),
    "share-group-state": ("__share_group_state", ("groups", "topics", "partitions", "changes", "gone_share")),
}
# What such a topic has in common with others.
_COMMON: Final = ("name", "kind", "things", "partitions", "weight", "batches", "timestamps")
_TIMES: Final = ("start", "end", "records_per_second")


def check_own(topic: Topic, place: str) -> None:
    """Raise ``UsageError`` if a topic of Kafka's own has no kind, or if its kind does not go with what it has."""
    if topic.kind not in KINDS:
        if topic.name in INTERNAL_TOPICS:
            kinds = ", ".join(f'"{kind}"' for kind, (name, _) in KINDS.items() if name == topic.name)
            raise UsageError(
                f"{place}.name is {topic.name}, a topic of Kafka's own, whose records only Kafka writes; "
                + (f"set its kind to {kinds}, or choose another name" if kinds else "choose another name")
            )
        if topic.things != Things():
            raise UsageError(f"{place}.things needs a kind, such as {next(iter(KINDS))}; set kind or remove things")
        return
    name, used = KINDS[topic.kind]
    if topic.name != name:
        raise UsageError(
            f'{place}.name is {topic.name}, but records of the kind "{topic.kind}" are in {name}; name it so'
        )
    plain = type(topic)(topic.name)
    others = [one.name for one in fields(topic) if one.name not in _COMMON]
    wrong = [key for key in others if getattr(topic, key) != getattr(plain, key)]
    others = [one.name for one in fields(Things) if one.name not in used]
    wrong += [f"things.{key}" for key in others if getattr(topic.things, key) != getattr(Things(), key)]
    times = plain.timestamps
    if replace(topic.timestamps, **{key: getattr(times, key) for key in _TIMES}) != times:
        wrong.append(f"timestamps without {', '.join(_TIMES)}")
    if len(topic.batches.codecs) > 1 or topic.batches.records.min != topic.batches.records.max:
        wrong.append("batches of several codecs or sizes")
    if topic.kind == "cluster-metadata" and topic.partitions > 1:
        wrong.append(f"{topic.partitions} partitions")
    if topic.things.replicas > topic.things.brokers:
        wrong.append(f"more replicas ({topic.things.replicas}) than brokers")
    if wrong:
        raise UsageError(f'{place} of the kind "{topic.kind}" cannot have {wrong[0]}; remove it')
