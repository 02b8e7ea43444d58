"""Arrays with wrong counts."""

from __future__ import annotations

from collections.abc import Iterable

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.message import Body, Place, body, definitions
from kfuzz.vectors.recipes.theme import SMALL, Theme

ARRAY, NULL, NOT_NULL = ["MSG-ARRAY-1"], ["MSG-NULL-1"], ["MSG-NULL-2"]
# Top-level, nested and nullable arrays, each in a version with fixed counts and one with compact counts.
CURATED = (
    ("MetadataRequest", (4, 13), "topics"),
    ("FetchRequest", (11, 17), "topics[0].partitions"),
    ("FetchResponse", (11, 17), "responses[0].partitions[0].abortedTransactions"),
    ("ProduceRequest", (8, 13), "topicData"),
    ("OffsetCommitRequest", (7, 10), "topics"),
    ("CreateTopicsRequest", (4, 7), "topics[0].assignments[0].brokerIds"),
)


def theme() -> Theme:
    """The recipes of ``vectors/messages/counts.json``."""
    made = Theme("messages/counts", "Counts of array elements.", "message")
    huge = made.flag("ArrayCountHuge", requirements=ARRAY, budget=SMALL)
    for definition in definitions("request", "response"):
        whole = body(definition.name)
        count = whole.find("count")
        if count is not None:
            # Only four bytes follow the count.
            claimed = whole.broken(count, INT32_MAX, "count-exceeds-message", after=bytes(4))
            huge.named("huge", f"{count.path} claims 2,147,483,647 elements", claimed)
    for name, versions, path in CURATED:
        for version in versions:
            _lies(huge, body(name, version), path)
    return made


def _lies(huge: Theme, whole: Body, path: str) -> None:
    count = whole.place("count", path)
    slug, what = whole.about(count)
    rest = len(whole.data) - count.at - count.size
    for name, number in (("one-more-than-bytes", rest + 1), ("million", 1_000_000), ("largest-power", 2**30)):
        huge.message(
            f"{slug}-{name}",
            f"{what} claims {number:,} elements, but {rest} bytes are left",
            whole.broken(count, number, "count-exceeds-message"),
            flags=["ArrayCountHuge"] if number > 1_000_000 else [],
        )
    negative_counts(huge, whole, count, () if whole.compact else (("minus-two", -2), ("lowest", -(2**31))))


def negative_counts(made: Theme, whole: Body, count: Place, numbers: Iterable[tuple[str, int]]) -> None:
    """Add the message with the ``numbers`` as its count, and with null."""
    slug, what = whole.about(count)
    nullable = whole.may_be_null(count)
    plain = made.having(requirements=NULL if nullable else [*NOT_NULL, *ARRAY], flags=[], budget=None)
    for name, number in numbers:
        plain.message(f"{slug}-{name}", f"{what} claims {number} elements", whole.negative(count, number))
    text = f"{what} is null, which is {'allowed' if nullable else 'not allowed'}"
    plain.message(f"{slug}-null", text, whole.negative(count, -1))
