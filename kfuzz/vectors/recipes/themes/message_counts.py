"""Arrays with wrong counts."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.message import Body, Place, body, definitions
from kfuzz.vectors.recipes.theme import SMALL, Theme

__all__ = ["theme"]

ARRAY, NULL = ["MSG-ARRAY-1"], ["MSG-NULL-2", "MSG-ARRAY-1"]
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
    bomb = made.flag(
        "ArrayCountHuge",
        "allocation",
        "An array claims up to 2,147,483,647 elements in a message of a few bytes.",
        "A reader that allocates memory before it checks runs out of memory, even without authentication.",
        links=["redpanda #8513", "KAFKA-14063"],
        cves=["CVE-2022-34917"],
    )
    for definition in definitions("request", "response"):
        whole = body(definition.name)
        count = whole.find("count")
        if count is not None:
            _huge(made, whole, count, bomb)
    for name, versions, path in CURATED:
        for version in versions:
            _lies(made, body(name, version), path, bomb)
    return made


def _huge(made: Theme, whole: Body, count: Place, flag: str) -> None:
    made.message(
        f"{whole.slug}-huge",
        f"{whole.definition.name} in version {whole.version}: {count.path} claims 2,147,483,647 elements",
        # Only four bytes follow the count.
        whole.broken(count, whole.number(count, INT32_MAX), "count-exceeds-message", after=bytes(4)),
        requirements=ARRAY,
        flags=[flag],
        budget=SMALL,
    )


def _lies(made: Theme, whole: Body, path: str, flag: str) -> None:
    count = whole.place("count", path)
    slug = f"{whole.slug}-{path.rpartition('.')[2].lower()}"
    what = f"{whole.definition.name} in version {whole.version}: {path}"
    rest = len(whole.data) - count.at - count.size
    nullable = whole.may_be_null(count)
    wide = [("one-more-than-bytes", rest + 1), ("million", 1_000_000), ("largest-power", 2**30)]
    for name, number in wide:
        made.message(
            f"{slug}-{name}",
            f"{what} claims {number:,} elements, but {rest} bytes are left",
            whole.broken(count, whole.number(count, number), "count-exceeds-message"),
            requirements=ARRAY,
            flags=[flag] if number > 1_000_000 else [],
            budget=SMALL,
        )
    for name, number in (("minus-two", -2), ("lowest", -(2**31))):
        if whole.compact:
            continue
        finding = "length-below-minus-one" if nullable else "null-not-allowed"
        made.message(
            f"{slug}-{name}",
            f"{what} claims {number} elements",
            whole.broken(count, whole.number(count, number), finding, after=whole.after(count)),
            requirements=["MSG-NULL-1"] if nullable else NULL,
        )
    null = whole.number(count, -1)
    made.message(
        f"{slug}-null",
        f"{what} is null, which is {'allowed' if nullable else 'not allowed'}",
        whole.broken(count, null, None if nullable else "null-not-allowed", after=whole.after(count)),
        requirements=["MSG-NULL-1"] if nullable else NULL,
        canonical=nullable,
    )
