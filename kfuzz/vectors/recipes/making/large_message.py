"""Messages that are just as large as the buffer of an encoder, or a few bytes smaller or larger."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kfuzz import records
from kfuzz.vectors.recipes.making.builder import CREATED_MS
from kfuzz.vectors.recipes.making.message import Body, body
from kfuzz.vectors.recipes.making.sent import incompressible

KIB = 1024
# Sizes of a whole message. A request's header takes some 20 bytes of the same buffer, so an encoder whose buffer has
# 64 KiB meets its end at messages that are so much smaller.
BYTES_SIZES = (
    *(size + near for size in (4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB) for near in (-1, 0, 1)),
    *range(64 * KIB - 22, 64 * KIB - 14),
    *range(64 * KIB - 2, 64 * KIB + 3),
    128 * KIB - 1,
    128 * KIB,
    128 * KIB + 1,
)
# The same for a message of int32, whose sizes are four bytes apart.
INTEGERS_SIZES = (64 * KIB - 20, 64 * KIB - 4, 64 * KIB, 64 * KIB + 4)
PRODUCE_VERSIONS = (7, 9)


def produce_recipe(version: int, size: int) -> str:
    """The name of the recipe for a ProduceRequest of ``size`` bytes."""
    return f"produce-request-v{version}-of-{size}"


def integers_recipe(size: int) -> str:
    """The name of the recipe for an OffsetFetchRequest of about ``size`` bytes."""
    return f"offset-fetch-request-v5-of-{size}"


def _produce_request(version: int, size: int) -> Body:
    """A ProduceRequest of ``size`` bytes with one batch. Its value is as long as it takes."""

    def made(value_bytes: int) -> Body:
        record = records.Record(0, CREATED_MS, None, incompressible(value_bytes))
        batch = records.encode([records.RecordBatch(0, 0, [record])])
        partition = {"index": 0, "records": batch}
        values = {"acks": -1, "timeoutMs": 1000, "topicData": [{"name": "t", "partitionData": [partition]}]}
        return body("ProduceRequest", version, values)

    value_bytes = size - 120
    while (lacks := size - len(made(value_bytes).data)) > 0:
        value_bytes += lacks
    return made(value_bytes)


def _offset_fetch_request(size: int) -> Body:
    """An OffsetFetchRequest of ``size`` bytes: partitions of four bytes each, in one topic."""
    around = len(body("OffsetFetchRequest", 5, {"groupId": "group", "topics": [_TOPIC]}).data)
    name = "t" * (1 + (size - around) % 4)
    partitions = list(range((size - around) // 4))
    topic = {"name": name, "partitionIndexes": partitions}
    return body("OffsetFetchRequest", 5, {"groupId": "group", "topics": [topic]})


_TOPIC = {"name": "t", "partitionIndexes": []}

# The messages by the names of their recipes.
MESSAGES: dict[str, Callable[[], Body]] = {
    **{
        produce_recipe(version, size): partial(_produce_request, version, size)
        for version in PRODUCE_VERSIONS
        for size in BYTES_SIZES
        if version == PRODUCE_VERSIONS[-1] or size > 32 * KIB + 1
    },
    **{integers_recipe(size): partial(_offset_fetch_request, size) for size in INTEGERS_SIZES},
}
