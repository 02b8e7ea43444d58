"""Counts and lengths of responses, deep inside them, and claims that multiply. Clients read responses."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.message import Body, body, successful
from kfuzz.vectors.recipes.theme import SMALL, Theme
from kfuzz.vectors.recipes.themes.message_counts import negative_counts
from kfuzz.wire.io.cursor import uvarint

ARRAY, BYTES, NULL, NOT_NULL = ["MSG-ARRAY-1"], ["MSG-BYTES-1"], ["MSG-NULL-1"], ["MSG-NULL-2"]
UINT32_MAX = 2**32 - 1
FILLED_BYTES = 2000
# Where the filling bytes end within something else than a field of fixed size.
FILLED_FINDINGS = {"offset-fetch-response-v8": "tag-size-exceeds-message"}
REPLICAS = "topics[0].partitions[0].replicaNodes"
# Responses with their arrays: a version with fixed counts and one with compact counts, each with the array's path. For
# an array of numbers also the oldest version with compact counts: older releases of libraries know no later one.
RESPONSES = (
    ("MetadataResponse", (4, REPLICAS), (9, REPLICAS), (12, REPLICAS)),
    ("JoinGroupResponse", (5, "members"), (9, "members")),
    ("OffsetFetchResponse", (5, "topics[0].partitions"), (8, "groups[0].topics[0].partitions")),
    ("ApiVersionsResponse", (2, "apiKeys"), (4, "apiKeys")),
    ("ProduceResponse", (8, "responses[0].partitionResponses"), (12, "responses[0].partitionResponses")),
    ("DescribeGroupsResponse", (4, "groups[0].members"), (5, "groups[0].members")),
)
# Message, version, and a field with a length.
LENGTHS = (
    ("MetadataResponse", 4, "topics[0].name"),
    ("MetadataResponse", 12, "topics[0].name"),
    ("JoinGroupResponse", 5, "members[0].metadata"),
    ("JoinGroupResponse", 9, "members[0].metadata"),
    ("JoinGroupResponse", 9, "leader"),
    ("DescribeGroupsResponse", 5, "groups[0].members[0].groupInstanceId"),
    ("FetchResponse", 4, "responses[0].partitions[0].records"),
    ("FetchResponse", 17, "responses[0].partitions[0].records"),
    ("ProduceRequest", 3, "topicData[0].partitionData[0].records"),
    ("ProduceRequest", 9, "topicData[0].partitionData[0].records"),
)


def theme() -> Theme:
    """The recipes of ``vectors/messages/claims.json``."""
    made = Theme("messages/claims", "Counts and lengths deep inside responses, and claims that multiply.", "message")
    nested = made.flag("NestedCountHuge", requirements=ARRAY, budget=SMALL)
    unsigned = made.flag("NegativeAsUnsigned")
    for name, *versions in RESPONSES:
        for version, path in versions:
            _count(nested, unsigned, successful(name, version), path)
    for name, version, path in LENGTHS:
        _length(made, unsigned, successful(name, version), path)
    _multiplied(made)
    _small_elements(made, nested)
    return made


def _count(nested: Theme, unsigned: Theme, whole: Body, path: str) -> None:
    count = whole.place("count", path)
    slug, what = whole.about(count)
    claimed = whole.broken(count, INT32_MAX, "count-exceeds-message")
    nested.message(f"{slug}-largest", f"{what} claims 2,147,483,647 elements", claimed)
    # In these bytes, every text is empty and every number is the same.
    filler = (b"\x01" if whole.compact else b"\x00") * FILLED_BYTES
    nested.message(
        f"{slug}-as-many-as-bytes",
        f"{what} claims {FILLED_BYTES:,} elements, and {FILLED_BYTES:,} bytes are left",
        whole.broken(count, FILLED_BYTES, FILLED_FINDINGS.get(whole.slug, "message-cut"), after=filler),
    )
    if whole.compact:
        unsigned.message(
            f"{slug}-unsigned",
            f"{what} has the count 2^32 - 1, which is -2 as a signed number",
            whole.negative(count, -2, uvarint(UINT32_MAX)),
            requirements=NULL if whole.may_be_null(count) else [*NOT_NULL, *ARRAY],
        )
    negative_counts(nested, whole, count, () if whole.compact else [("minus-two", -2)])


def _length(made: Theme, unsigned: Theme, whole: Body, path: str) -> None:
    length = whole.place("length", path)
    slug, what = whole.about(length)
    requirements = NULL if whole.may_be_null(length) else [*NOT_NULL, *NULL]
    if whole.compact:
        negative = whole.negative(length, -2, uvarint(UINT32_MAX))
        text = f"{what} has the length 2^32 - 1, which is -2 as a signed number"
        unsigned.message(f"{slug}-length-unsigned", text, negative, requirements=requirements)
    else:
        negative = whole.negative(length, -2)
        made.message(f"{slug}-length-minus-two", f"{what} has the length -2", negative, requirements=requirements)


def _multiplied(made: Theme) -> None:
    """Arrays in arrays, where every level claims as many elements as there are bytes."""
    for name, version, paths in (
        ("CreateTopicsRequest", 4, ("topics", "topics[0].assignments", "topics[0].assignments[0].brokerIds")),
        ("CreateTopicsRequest", 7, ("topics", "topics[0].assignments", "topics[0].assignments[0].brokerIds")),
        (
            "StreamsGroupDescribeResponse",
            1,
            (
                "groups",
                "groups[0].members",
                "groups[0].members[0].assignment.activeTasks",
                "groups[0].members[0].assignment.activeTasks[0].partitions",
            ),
        ),
    ):
        whole = successful(name, version)
        last = whole.place("count", paths[-1])
        data = whole.data[: last.at]
        # From the last to the first: a longer count moves only the bytes after it.
        for path in reversed(paths[:-1]):
            place = whole.place("count", path)
            number = whole.number(place, FILLED_BYTES)
            data = data[: place.at] + number + data[place.at + place.size :]
        first = whole.place("count", paths[0])
        after = data[first.at + len(whole.number(first, FILLED_BYTES)) :]
        after += whole.number(last, FILLED_BYTES) + bytes([1]) * FILLED_BYTES
        made.flag("CountsMultiply").named(
            "multiplied",
            f"arrays in {len(paths)} levels claim {FILLED_BYTES:,} elements each",
            whole.broken(first, whole.number(first, FILLED_BYTES), "message-cut", after=after),
            requirements=ARRAY,
            budget=SMALL,
        )


def _small_elements(made: Theme, nested: Theme) -> None:
    """Elements of few bytes on the wire that need much more memory in most languages."""
    for version in (1, 3):
        whole = body("CreatePartitionsRequest", version)
        count = whole.place("count", "topics[0].assignments")
        many = {"topics": [{"name": "t", "count": 9, "assignments": [{"brokerIds": []}] * 500}], "timeoutMs": 1}
        made.named(
            "empty-arrays",
            "an array holds 500 empty arrays",
            body("CreatePartitionsRequest", version, many),
            requirements=ARRAY,
            annotate=False,
        )
        made.named(
            "empty-arrays-claimed",
            "an array claims 100,000,000 empty arrays, and 4 are there",
            whole.broken(
                count,
                whole.number(count, 100_000_000),
                "count-exceeds-message",
                after=(whole.number(count, 0) + (b"\x00" if whole.compact else b"")) * 4,
            ),
            requirements=ARRAY,
            flags=["NestedCountHuge"],
            budget=SMALL,
        )
    for version in (4, 5):
        whole = body("DescribeGroupsRequest", version)
        texts = {"groups": [""] * 1000, "includeAuthorizedOperations": False}
        made.named(
            "thousand-empty-texts",
            "an array holds 1,000 empty texts",
            body("DescribeGroupsRequest", version, texts),
            requirements=[*ARRAY, *BYTES],
            annotate=False,
        )
