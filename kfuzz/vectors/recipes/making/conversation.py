"""The acts of conversations: an application does this with a client, and must get that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kfuzz.vectors.recipes.making.builder import CREATED_MS, Record, batch

Json = dict[str, Any]
# An act, and its result.
Act = tuple[Json, Json]

# A topic that is read has so many records, and a fetch gets so many.
STEP = 3
TOTAL = 15


def given(count: int = TOTAL) -> list[str]:
    """The batches of a topic."""
    batches = []
    for first in range(0, count, STEP):
        made = [Record(offset_delta=delta, key=None, value=b"%d" % (first + delta)) for delta in range(STEP)]
        batches.append(batch(*made, base_offset=first, base_timestamp=CREATED_MS).data.hex())
    return batches


GIVEN = given()


def act(do: str, *, error: str | None = None, gives: Json | None = None, **how: Any) -> Act:
    """Any act. ``error``: it fails, and Kafka's own client says that; "" is any error."""
    outcome = {"outcome": "accepted" if error is None else "rejected"} | ({"error": error} if error else {})
    return {"do": do, **how}, outcome | (gives or {})


def opens(**how: Any) -> Act:
    """Open a consumer of the topic's partition, or of the topic in a group."""
    return act("open", **how)


def reads(last: int, *, first: int = 0, skipped: Iterable[int] = (), **how: Any) -> Act:
    """Read on from the record ``first`` to ``last``."""
    left_out = set(skipped)
    offsets = [str(at) for at in range(first, last + 1) if at not in left_out]
    return act("read", count=len(offsets), gives={"offsets": offsets}, **how)


def fails(last: int, error: str, *, first: int = 0, **how: Any) -> Act:
    """Read on until the consumer gives an error. Before it, the records up to ``last`` may come."""
    offsets = [str(at) for at in range(first, last + 1)]
    return act("read", count=TOTAL, until="error", error=error, gives={"offsets": offsets}, **how)


def values(count: int) -> list[str]:
    """The values that are written."""
    return [f"v{number}" for number in range(count)]


def writes(count: int, *, sends: Sequence[int] = (), first: int = 0, **how: Any) -> Act:
    """Send ``count`` records with a new producer."""
    several: Json = {"sends": list(sends)} if sends else {}
    sent = [f"v{number}" for number in range(first, first + count)]
    return act("produce", records=sent, **several, **how)


def trouble(api: str, nth: int | str = 1, what: str | None = None, **action: Any) -> Json:
    """A rule about the n-th response of an API, or about several. ``what``: "lost", or an error of Kafka."""
    happened = {"disconnect": "before"} if what == "lost" else {"error": what} if what else {}
    return {"api": api, "nth": nth, **happened, **action}


def happens(*rules: Json) -> Act:
    """From here on, these rules apply too."""
    return act("trouble", rules=list(rules))


def phrased(add: Callable[..., None], slug: str, summary: str, **usual: Any) -> Callable[..., None]:
    """``add`` for conversations whose slugs and summaries are alike: ``{}`` is where they differ."""
    return lambda own, what, *rules, **more: add(slug.format(own), summary.format(what), *rules, **usual | more)


def asks(api: str, after_ms: int | None = None, **where: Any) -> Json:
    """A request that must follow. ``where``: values by their paths; two underscores stand for a dot."""
    return _request(api, where) | ({"after_ms": after_ms} if after_ms else {})


def at_most(count: int, api: str, **where: Any) -> Json:
    """A request that may follow so often."""
    return _request(api, where) | {"at_most": count}


# Of the first partition of the first topic.
PLACES = {
    "Fetch": "topics[0].partitions[0].",
    "Produce": "topicData[0].partitionData[0].",
    "Metadata": "topics[0].",
    "ListOffsets": "topics[0].partitions[0].",
    "OffsetCommit": "topics[0].partitions[0].",
}


def _request(api: str, where: Json) -> Json:
    made = {name.replace("__", PLACES.get(api, "")): value for name, value in where.items()}
    return {"api": api} | ({"where": made} if made else {})
