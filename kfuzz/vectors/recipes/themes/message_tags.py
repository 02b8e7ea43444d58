"""Tagged fields: unknown tags, unusual orders, wrong sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.message import Body, Place, body, definitions, successful
from kfuzz.vectors.recipes.theme import SMALL, Theme
from kfuzz.wire.io.cursor import uvarint

TAG, GONE, UNKNOWN, DEFAULT = ["MSG-TAG-1"], ["MSG-TAG-2"], ["MSG-TAG-3"], ["MSG-TAG-4"]
TAG_MAX = INT32_MAX - 1
UINT32_MAX = 2**32 - 1


def theme() -> Theme:
    """The recipes of ``vectors/messages/tags.json``."""
    made = Theme("messages/tags", "Tagged fields of flexible versions.", "message")
    huge = made.flag("TagCountHuge", budget=SMALL)
    for definition in definitions("request", "response"):
        whole = body(definition.name)
        if whole.version in definition.flexible_versions:
            _unknown_at_the_end(made, whole)
    # The first request of a connection, in the version that many clients have as their newest.
    _unknown_at_the_end(made, body("ApiVersionsRequest", 3))
    for name in ("ApiVersionsRequest", "MetadataRequest", "SaslAuthenticateResponse", "HeartbeatRequest"):
        _of_root(made, huge, body(name))
    _known(made)
    _of_structs(made)
    _of_response(made, huge)
    _known_of_response(made, huge)
    return made


def _root_count(whole: Body) -> Place:
    return whole.place("tag-count", "")


def _unknown_at_the_end(made: Theme, whole: Body) -> None:
    """A tag from a newer writer; every reader must skip it."""
    tagged = body(whole.definition.name, whole.version, {"_unknownTaggedFields": [(1000, b"\x01\x02\x03")]})
    text = f"{whole.title} has the unknown tag 1000"
    made.message(f"{whole.slug}-unknown", text, tagged, requirements=UNKNOWN)


def _tags(*pairs: tuple[int, bytes]) -> bytes:
    """The tags that follow their count."""
    return b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in pairs)


def _of_root(made: Theme, huge: Theme, whole: Body) -> None:
    count = _root_count(whole)
    assert count.at + count.size == len(whole.data), f"{whole.slug} has tags of its own"

    def add(slug: str, text: str, number: bytes, after: bytes, finding: str | None = None, theme: Theme = made) -> None:
        theme.named(
            f"{slug}",
            f"{text}",
            whole.broken(count, number, finding, after=after),
            requirements=UNKNOWN if finding is None else TAG,
        )

    beyond = "tag-count-exceeds-message"
    add("two-unknown", "two unknown tags are in order", b"\x02", _tags((20, b"a"), (21, b"")))
    add("largest-tag", f"there is the unknown tag {TAG_MAX:,}", b"\x01", _tags((TAG_MAX, b"a")))
    add("long-unknown", "an unknown tag has 200 bytes, so its size takes two", b"\x01", _tags((300, bytes(200))))
    descending = _tags((21, b"a"), (20, b"b"))
    add("descending", "two unknown tags are in descending order", b"\x02", descending, "tag-not-ascending")
    add("repeated", "an unknown tag occurs twice", b"\x02", _tags((20, b"a"), (20, b"b")), "tag-repeated")
    add("count-too-high", "the tag count is 2, but there is one tag", b"\x02", _tags((20, b"a")), "message-cut")
    add("count-beyond", "the tag count is larger than the remaining bytes", b"\x04", _tags((20, b"")), beyond)
    most = uvarint(INT32_MAX)
    add("count-huge", "the tag count claims 2,147,483,647 tags", most, _tags((20, b"a")), beyond, huge)
    add("count-cut", "the tag count is truncated", b"\x80", b"", "message-cut")
    add("tag-cut", "the tag is truncated", b"\x01", b"\x94", "message-cut")
    add("size-missing", "the tag has no size", b"\x01", b"\x14", "message-cut")
    beyond = "tag-size-exceeds-message"
    add("size-beyond", "the tag claims one byte more than there is", b"\x01", b"\x14\x02a", beyond)
    add("size-huge", "the tag claims 2,147,483,647 bytes", b"\x01", b"\x14" + most + b"a", beyond, huge)
    add("tag-overlong", "the tag takes two bytes, but one is enough", b"\x01", b"\x94\x00\x01a", "varint-overlong")
    add("size-overlong", "the size takes two bytes, but one is enough", b"\x01", b"\x14\x81\x00a", "varint-overlong")
    padded = b"\x80\x80\x80\x80\x00"
    add("count-overlong", "the tag count takes five bytes, but one is enough", padded, b"", "varint-overlong")
    add("count-of-six-bytes", "the tag count takes six bytes", b"\x80\x80\x80\x80\x80\x00", b"", "varint-too-long")
    add("tag-of-six-bytes", "the tag takes six bytes", b"\x01", b"\x94\x80\x80\x80\x80\x00\x01a", "varint-too-long")


def _known(made: Theme) -> None:
    """FetchRequest has tags 0 and 1 at its root; version 12 defines only tag 0."""
    whole = body("FetchRequest", 12, {})
    count = _root_count(whole)
    cluster = (0, b"\x03ab")
    for slug, text, after, finding, requirements in (
        ("size-too-small", "its size is one too low", b"\x00\x02\x03ab", "tag-size-mismatch", TAG),
        ("size-too-large", "its size is one too high", b"\x00\x04\x03ab", "tag-size-mismatch", TAG),
        ("size-zero", "its size is 0", b"\x00\x00\x03ab", "tag-size-mismatch", TAG),
        ("cut", "its text is truncated", b"\x00\x03\x03a", "length-exceeds-message", TAG),
        ("of-later-versions", "tag 1, which only later versions define", b"\x01\x01\x00", "tag-not-in-version", GONE),
    ):
        made.message(
            f"fetch-request-v12-known-{slug}",
            f"FetchRequest in version 12 with a known tag: {text}",
            whole.broken(count, b"\x01", finding, after=after),
            requirements=requirements,
        )
    made.message(
        "fetch-request-v15-known",
        "FetchRequest in version 15 has tag 1, which version 15 introduced",
        body("FetchRequest", 15, {"replicaState": {"replicaId": 3, "replicaEpoch": 7}}),
        requirements=[*TAG, *GONE],
    )
    made.message(
        "fetch-request-v12-known-default",
        "FetchRequest in version 12 has a known tag with its default value, which a writer omits",
        whole.broken(count, b"\x01", None, after=_tags((0, b"\x00"))),
        requirements=DEFAULT,
        canonical=False,
    )
    made.message(
        "fetch-request-v12-known-left-out",
        "FetchRequest in version 12 has no tags: all tagged fields have their defaults",
        whole,
        requirements=DEFAULT,
    )
    made.message(
        "fetch-request-v12-known-twice",
        "FetchRequest in version 12 has a known tag twice; the last one counts",
        whole.broken(count, b"\x02", "tag-repeated", after=_tags(cluster, (0, b"\x03cd"))),
        requirements=TAG,
    )
    made.message(
        "fetch-request-v12-unknown-then-known",
        "FetchRequest in version 12 has an unknown tag before a known one",
        whole.broken(count, b"\x02", "tag-not-ascending", after=_tags((20, b"x"), cluster)),
        requirements=TAG,
    )
    made.message(
        "fetch-request-v12-known-then-unknown",
        "FetchRequest in version 12 has a known tag, then an unknown one",
        body("FetchRequest", 12, {"clusterId": "ab", "_unknownTaggedFields": [(20, b"x")]}),
        requirements=[*TAG, *UNKNOWN],
    )


def _of_structs(made: Theme) -> None:
    """Every struct has its own tags."""
    partition = {"partition": 3, "currentLeaderEpoch": 1, "fetchOffset": 9, "partitionMaxBytes": 1}
    tagged = {**partition, "_unknownTaggedFields": [(20, b"x")]}
    for slug, topic in (
        ("partition", {"topic": "t", "partitions": [partition, tagged, partition]}),
        ("topic", {"topic": "t", "partitions": [partition], "_unknownTaggedFields": [(20, b"x")]}),
    ):
        made.message(
            f"fetch-request-v12-in-{slug}",
            f"FetchRequest in version 12 has an unknown tag in a {slug}",
            body("FetchRequest", 12, {"topics": [topic]}),
            requirements=UNKNOWN,
        )
    whole = body("FetchRequest", 12, {"topics": [{"topic": "t", "partitions": [partition]}]})
    count = whole.place("tag-count", "topics[0].partitions[0]")
    made.message(
        "fetch-request-v12-in-partition-missing",
        "FetchRequest in version 12 lacks the tag count of a partition, so all later fields are misread",
        whole.broken(count, b"", "message-cut"),
        requirements=TAG,
    )


def _of_response(made: Theme, huge: Theme) -> None:
    """A response, which clients read: numbers beyond an int32, and tags that are large, many or deep."""
    whole = successful("MetadataResponse", 12)
    inner = whole.place("tag-count", "topics[0].partitions[0]")
    outer = _root_count(whole)

    def add(slug: str, text: str, made_body: Body, theme: Theme = made, **options: Any) -> None:
        requirements = UNKNOWN if made_body.verdict == "valid" else TAG
        theme.named(slug, text, made_body, requirements=requirements, **options)

    for number, slug in ((2**31, "2-to-31"), (UINT32_MAX, "2-to-32-less-1")):
        claimed = whole.broken(outer, uvarint(number), "tag-count-exceeds-message")
        # kfuzz and Kafka 4 refuse it, so the contents are those of the message with the count 0.
        read = replace(claimed, contents=whole.contents, places=_with_size(whole, claimed, outer))
        text = f"the tag count is {number:,}; Kafka 3.9.2 reads a negative number, so no tag"
        add(f"count-{slug}", text, read, huge)
        claimed = whole.broken(outer, b"\x01", "tag-size-exceeds-message", after=b"\x14" + uvarint(number) + b"a")
        add(f"size-{slug}", f"an unknown tag claims {number:,} bytes", claimed, huge)
    rest = whole.data[inner.at + inner.size :]
    claimed = whole.broken(inner, uvarint(INT32_MAX), "tag-count-exceeds-message")
    add("count-huge-in-partition", "a partition claims 2,147,483,647 tags", claimed, huge)
    add(
        "size-beyond-in-partition",
        "an unknown tag of a partition claims one byte more than the message has",
        whole.broken(inner, b"\x01", "tag-size-exceeds-message", after=b"\x14" + uvarint(len(rest) + 1) + rest),
    )
    add(
        "repeated-in-partition",
        "an unknown tag of a partition occurs twice",
        whole.broken(inner, b"\x02", "tag-repeated", after=_tags((20, b"a"), (20, b"b")) + rest),
    )
    add(
        "descending-in-partition",
        "two unknown tags of a partition are in descending order",
        whole.broken(inner, b"\x02", "tag-not-ascending", after=_tags((21, b"a"), (20, b"b")) + rest),
    )
    deep = b"\x00"
    for _ in range(300):
        deep = b"\x01" + _tags((20, deep))
    for slug, text, pairs in (
        ("large-unknown", "an unknown tag has 4,000 bytes", [(20, bytes(range(250)) * 16)]),
        ("many-unknown", "there are 200 unknown tags without bytes", [(20 + index, b"") for index in range(200)]),
        ("deep-unknown", "the bytes of an unknown tag look like tagged fields in 300 levels", [(20, deep)]),
        ("message-in-unknown", "the bytes of an unknown tag are this message itself", [(20, whole.data)]),
    ):
        tagged = whole.broken(outer, uvarint(len(pairs)), None, after=_tags(*pairs))
        add(slug, text, tagged, annotate=False)


def _with_size(whole: Body, claimed: Body, count: Place) -> tuple[Place, ...]:
    """The places of ``whole``; the last one, ``count``, has the size and the mark that it has in ``claimed``."""
    return tuple(claimed.places[-1] if one == count else one for one in whole.places)


def _known_of_response(made: Theme, huge: Theme) -> None:
    """ApiVersionsResponse has tags 0 to 3 at its root, two of them with arrays. Every client reads it first."""
    whole = body("ApiVersionsResponse", 3, {})
    count = _root_count(whole)
    # One feature, "f", with the versions 1 to 2; and an epoch.
    feature, epoch = (0, b"\x02\x02f\x00\x01\x00\x02\x00"), (1, bytes(7) + b"\x05")

    def add(theme: Theme, slug: str, text: str, number: int, after: bytes, finding: str | None) -> None:
        theme.named(
            f"known-{slug}", f"{text}", whole.broken(count, uvarint(number), finding, after=after), requirements=TAG
        )

    add(made, "order", "two known tags are in order", 2, _tags(feature, epoch), None)
    descending = _tags(epoch, feature)
    add(made, "descending", "two known tags are in descending order", 2, descending, "tag-not-ascending")
    add(made, "twice", "a known tag occurs twice", 2, _tags(epoch, (1, bytes(7) + b"\x06")), "tag-repeated")
    text = "the array in a known tag claims 2,147,483,647 elements"
    most = _tags((0, uvarint(INT32_MAX + 1) + feature[1][1:]))
    add(huge, "count-huge", text, 1, most, "count-exceeds-message")
    text = "a known tag claims 4,294,967,295 bytes; Kafka reads its fields and ignores the size"
    most = b"\x01" + uvarint(UINT32_MAX) + epoch[1]
    add(huge, "size-2-to-32-less-1", text, 1, most, "tag-size-mismatch")
    text = "the array in a known tag is null, which is not allowed"
    add(made, "null", text, 1, _tags((0, b"\x00")), "null-not-allowed")
