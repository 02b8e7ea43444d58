"""Topics from another program: a line of JSON for each, and a line as the answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Callable
from typing import Any, Final

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.forms import TEXT, Form, ListOf, Object, Wrong, choice, integer
from kfuzz.kafka import INT64_MAX
from kfuzz.serve.cluster import Cluster
from kfuzz.serve.topics import PARTITIONS_MAX, GivenPartition, Partition
from kfuzz.serve.written import CODES, WrittenPartition
from kfuzz.text import foreign_text

__all__ = ["feed"]


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
# What makes a partition, and what changes one that is there.
CONTENTS: Final = ("hex", "steps", "produce")
LINE: Final = Object(
    {
        "topic": TEXT,
        "partition": integer(0, PARTITIONS_MAX - 1),
        "hex": NULL_OR_HEX,
        "steps": ListOf(HEX, "give a list of hexadecimal digits"),
        "produce": choice(True),
        "next_offset": INT64,
        "aborted": ListOf(ABORTED),
        "last_stable_offset": OFFSET,
        "fetch_start": OFFSET,
        "errors": ListOf(choice(*CODES), "give a list of names of Kafka's errors", most=1000),
    },
    ("topic",),
)


async def feed(cluster: Cluster, lines: AsyncIterable[bytes], say: Callable[[dict[str, Any]], None]) -> None:
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


def done(cluster: Cluster, line: bytes) -> dict[str, Any]:
    """Do what one line says, and return its answer. ``UsageError`` if it says nothing that can be done."""
    asked = load_json(line, "the line")
    try:
        LINE.check(asked)
        asked = LINE.make(asked)
    except Wrong as wrong:
        raise UsageError(foreign_text(wrong.sentence("the line"))) from None
    name, index, topics = asked["topic"], asked.get("partition", 0), cluster.topics
    if "hex" in asked and asked["hex"] is None:
        topics.remove(name)
        return {"topic": name}
    contents = [one for one in CONTENTS if one in asked]
    if len(contents) > 1:
        raise UsageError(f"a line has one of {', '.join(CONTENTS)}, not {' and '.join(contents)}")
    if contents:
        partition = _made(asked)
        topics.put_partition(name, index, partition)
    else:
        topic = topics.by_name.get(name)
        if topic is None or index >= len(topic.partitions):
            raise UsageError(f"there is no topic {foreign_text(repr(name))} with partition {index}")
        partition = topic.partitions[index]
    partition.errors.extend(CODES[one] for one in asked.get("errors", ()))
    if contents:
        return {"topic": name, "next_offset": str(partition.end)}
    told = {"topic": name, "fetch_offset": str(partition.fetch_offset), "times": partition.times}
    if isinstance(partition, WrittenPartition):
        told["produced"] = [one.json() for one in partition.produced]
    return told


def _made(asked: dict[str, Any]) -> Partition:
    """The partition that a line describes."""
    if "produce" in asked:
        return WrittenPartition()
    return GivenPartition(
        [asked["hex"]] if "hex" in asked else asked["steps"],
        asked.get("next_offset"),
        is_exact="hex" in asked,
        start=asked.get("fetch_start", 0),
        aborted=asked.get("aborted", ()),
        last_stable_offset=asked.get("last_stable_offset"),
    )
