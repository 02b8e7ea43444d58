"""Topics from another program: a line of JSON for each, and a line as the answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Callable
from typing import Any, Final

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.forms import BOOLEAN, TEXT, Form, ListOf, Object, Wrong, choice, integer
from kfuzz.kafka import INT32_MAX, INT64_MAX
from kfuzz.serve.answers import APIS, released
from kfuzz.serve.cluster import NODES_MAX, Cluster, Values, remember
from kfuzz.serve.topics import PARTITIONS_MAX, GivenPartition, Partition
from kfuzz.serve.written import WrittenPartition
from kfuzz.text import foreign_text

# A client that is throttled for longer is only slow.
THROTTLE_MS_MAX: Final = 10_000
# Clients wait for longer than this before they send a batch again.
PRODUCE_MS_MAX: Final = 1000


def _is_hex(value: Any) -> bool:
    try:
        bytes.fromhex(value)
    except (TypeError, ValueError):
        return False
    return True


def _whole(low: int, high: int) -> Form:
    """A whole number as a text, as in the other documents of kfuzz, or as a number."""

    def fits(value: Any) -> bool:
        is_digits = isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value, re.ASCII)
        return bool(is_digits or type(value) is int) and low <= int(value) <= high

    return Form({}, f'give a whole number from {low} to {high}, such as "{max(low, 0)}"', fits, convert=int)


HEX: Final = Form({}, "give hexadecimal digits", _is_hex, convert=bytes.fromhex)
# Null removes the topic.
NULL_OR_HEX: Final = Form(
    {},
    HEX.remedy,
    lambda value: value is None or _is_hex(value),
    convert=lambda value: None if value is None else bytes.fromhex(value),
)
INT64: Final = _whole(-INT64_MAX - 1, INT64_MAX)
OFFSET: Final = _whole(0, INT64_MAX)
ABORTED: Final = Object(
    {"producer_id": INT64, "first_offset": INT64},
    ("producer_id", "first_offset"),
    convert=lambda made: (made["producer_id"], made["first_offset"]),
)
PARTITION: Final = integer(0, PARTITIONS_MAX - 1)
NODE: Final = integer(1, NODES_MAX)
# The highest versions of APIs. Any may be missing.
HIGHEST: Final = Object({api: integer(released(api).lowest, released(api).highest) for api in APIS})
BEHAVIOUR: Final = Object(
    {
        "api_versions_fallback": BOOLEAN,
        "fetch_sessions": BOOLEAN,
        "reads_groups": BOOLEAN,
        "throttle_ms": integer(0, THROTTLE_MS_MAX),
        "produce_ms": integer(0, PRODUCE_MS_MAX),
        "versions": HIGHEST,
        "ends": BOOLEAN,
    }
)
# The first fault of a client, of each of these kinds.
FAULTS: Final = ("not_offered", "unreadable")
# Fields that make a partition, and fields that change one that is there.
CONTENTS: Final = ("hex", "steps", "produce")
# Fields about given bytes.
OF_BYTES: Final = ("next_offset", "aborted", "aborted_always", "last_stable_offset", "fetch_start", "leader_epoch")
LINE: Final = Object(
    {
        "topic": TEXT,
        "partition": PARTITION,
        "hex": NULL_OR_HEX,
        "steps": ListOf(HEX, "give a list of hexadecimal digits"),
        "produce": choice(True),
        "next_offset": INT64,
        "aborted": ListOf(ABORTED),
        "aborted_always": BOOLEAN,
        "last_stable_offset": OFFSET,
        "fetch_start": OFFSET,
        "leader_epoch": _whole(0, INT32_MAX),
        "cut_bytes": integer(1, INT32_MAX),
        "metadata_error": choice(*ERROR_CODES),
        "errors": ListOf(choice(*ERROR_CODES), "give a list of names of Kafka's errors", most=1000),
    },
    ("topic",),
)


async def feed(cluster: Cluster, lines: AsyncIterable[bytes], say: Callable[[Values], None]) -> None:
    """Change the topics of ``cluster`` as each line says, and ``say`` what was done, until there are no more lines.

    A bad line changes nothing; its answer has ``error``.
    """
    async for line in lines:
        if line.strip():
            try:
                answer = done(cluster, line)
            except UsageError as error:
                answer = {"error": str(error)}
            say(answer)


def done(cluster: Cluster, line: bytes) -> Values:
    """Do what one line says, and return its answer. ``UsageError`` if it says nothing that can be done."""
    asked = load_json(line, "the line")
    verb = next((verb for verb in VERBS if isinstance(asked, dict) and verb in asked), "topic")
    form, do = VERBS[verb]
    try:
        form.check(asked)
        return do(cluster, form.make(asked))
    except Wrong as wrong:
        raise UsageError(foreign_text(wrong.sentence("the line"))) from None


def _topic(cluster: Cluster, asked: Values) -> Values:
    name, index, topics = asked["topic"], asked.get("partition", 0), cluster.topics
    if "hex" in asked and asked["hex"] is None:
        topics.remove(name)
        return {"topic": name}
    contents = [one for one in CONTENTS if one in asked]
    if len(contents) > 1:
        raise UsageError(f"a line has one of {', '.join(CONTENTS)}, not {' and '.join(contents)}")
    if contents in ([], ["produce"]) and (unused := [one for one in OF_BYTES if one in asked]):
        raise UsageError(f"a line with {' and '.join(unused)} also needs hex or steps")
    if contents:
        topics.put_partition(name, index, partition := _made(asked))
    else:
        partition = _found(cluster, name, index)
    if "metadata_error" in asked:
        topics.by_name[name].error = ERROR_CODES[asked["metadata_error"]]
    partition.errors.extend(ERROR_CODES[one] for one in asked.get("errors", ()))
    partition.cut_bytes = asked.get("cut_bytes", partition.cut_bytes)
    if contents:
        return {"topic": name, "next_offset": str(partition.end)}
    answer = {
        "topic": name,
        "fetch_offset": str(partition.fetch_offset),
        "times": partition.times,
        "connections": partition.connections,
    }
    if isinstance(partition, WrittenPartition):
        answer["produced"] = [one.json() for one in partition.produced]
    return answer


def _found(cluster: Cluster, name: str, index: int) -> Partition:
    if (partition := cluster.topics.partition(name, index)) is None:
        raise UsageError(f"there is no topic {foreign_text(repr(name))} with partition {index}")
    return partition


def _move(cluster: Cluster, asked: Values) -> Values:
    partition = _found(cluster, asked["move"], asked.get("partition", 0))
    partition.move(_node(cluster, asked["to"]))
    return {"topic": asked["move"], "leader": partition.leader, "leader_epoch": partition.leader_epoch}


def _coordinate(cluster: Cluster, asked: Values) -> Values:
    remember(cluster.coordinators, asked["coordinator"], _node(cluster, asked["to"]))
    return asked


def _node(cluster: Cluster, node: int) -> int:
    if node not in cluster.ports:
        raise UsageError(f"there is no broker {node}; the last one is {max(cluster.ports, default=0)}")
    return node


def _behave(cluster: Cluster, asked: Values) -> Values:
    for name, value in asked["broker"].items():
        setattr(cluster, name, value)
    faults = {name: text for name in FAULTS if (text := getattr(cluster, name))}
    return {"broker": {name: getattr(cluster, name) for name in BEHAVIOUR.keys}} | faults


def _made(asked: Values) -> Partition:
    """The partition that a line describes."""
    if "produce" in asked:
        return WrittenPartition()
    made = GivenPartition(
        [asked["hex"]] if "hex" in asked else asked["steps"],
        asked.get("next_offset"),
        is_exact="hex" in asked,
        start=asked.get("fetch_start", 0),
        aborted=asked.get("aborted", ()),
        aborted_always=asked.get("aborted_always", False),
        last_stable_offset=asked.get("last_stable_offset"),
    )
    if "leader_epoch" in asked:
        made.leader_epoch, made.has_epochs = asked["leader_epoch"], True
    return made


VERBS: Final = {
    "topic": (LINE, _topic),
    "move": (Object({"move": TEXT, "partition": PARTITION, "to": NODE}, ("move", "to")), _move),
    "coordinator": (Object({"coordinator": TEXT, "to": NODE}, ("coordinator", "to")), _coordinate),
    "broker": (Object({"broker": BEHAVIOUR}, ("broker",)), _behave),
}
