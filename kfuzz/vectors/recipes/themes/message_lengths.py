"""Texts and bytes with wrong lengths, and nulls that are not allowed."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.message import Body, Place, body, definitions
from kfuzz.vectors.recipes.theme import SMALL, Theme

BYTES, NULL, NOT_NULL, LONG = ["MSG-BYTES-1"], ["MSG-NULL-1"], ["MSG-NULL-2"], ["MSG-STRING-2"]
# Message, versions (fixed, then compact lengths), field, whether it is text.
CURATED = (
    ("MetadataRequest", (4, 13), "topics[0].name", True),
    ("CreateTopicsRequest", (4, 7), "topics[0].name", True),
    ("OffsetCommitRequest", (7, 9), "topics[0].partitions[0].committedMetadata", True),
    ("JoinGroupRequest", (5, 9), "protocols[0].metadata", False),
    ("SaslAuthenticateRequest", (1, 2), "authBytes", False),
    ("SaslHandshakeRequest", (1,), "mechanism", True),
    ("ProduceRequest", (8, 12), "topicData[0].partitionData[0].records", False),
    ("FetchResponse", (11, 17), "responses[0].partitions[0].records", False),
)


def theme() -> Theme:
    """The recipes of ``vectors/messages/lengths.json``."""
    made = Theme("messages/lengths", "Lengths of texts and bytes, and nulls.", "message")
    huge = made.flag("LengthHuge", requirements=BYTES, budget=SMALL)
    for definition in definitions("request", "response"):
        whole = body(definition.name)
        length = whole.find("length")
        if length is not None:
            _beyond(made, whole, length)
            if whole.compact and not whole.may_be_null(length):
                _null(made, whole, length)
    for name, versions, path, text in CURATED:
        for version in versions:
            _lies(made, huge, body(name, version), path, text)
    return made


def _beyond(made: Theme, whole: Body, length: Place) -> None:
    rest = len(whole.data) - length.at - length.size
    made.named(
        "beyond",
        f"{length.path} claims more bytes than are left",
        whole.broken(length, min(rest + 1, 0x7FFF), "length-exceeds-message"),
        requirements=BYTES,
    )


def _null(made: Theme, whole: Body, length: Place) -> None:
    text = f"{whole.title}: its first length ({length.path}) must not be null"
    made.message(f"{whole.slug}-null", text, whole.negative(length, -1), requirements=NOT_NULL)


def _lies(made: Theme, huge: Theme, whole: Body, path: str, text: bool) -> None:
    length = whole.place("length", path)
    slug, what = whole.about(length)
    most = 0x7FFF if text else INT32_MAX
    claimed = whole.broken(length, most, "length-exceeds-message")
    huge.message(f"{slug}-huge", f"{what} claims {most:,} bytes", claimed)
    if text and whole.compact:
        for name, number, theme in (("longer-than-int16", 0x8000, made), ("int32-max", INT32_MAX, huge)):
            theme.message(
                f"{slug}-{name}",
                f"{what} claims {number:,} bytes, more than a text may have",
                whole.broken(length, number, "string-too-long"),
                requirements=LONG,
            )
    nullable = whole.may_be_null(length)
    made.message(
        f"{slug}-empty",
        f"{what} is empty, which is not null",
        whole.broken(length, 0, None, after=whole.after(length)),
        requirements=[*BYTES, *([] if nullable else NOT_NULL), *(LONG if text else [])],
    )
    made.message(
        f"{slug}-null",
        f"{what} is null, which is {'' if nullable else 'not '}allowed",
        whole.negative(length, -1),
        requirements=NULL if nullable else NOT_NULL,
    )
    if not whole.compact:
        for name, number in (("minus-two", -2), ("lowest", -(2 ** (8 * length.size - 1)))):
            made.message(
                f"{slug}-{name}",
                f"{what} has the length {number}",
                whole.negative(length, number),
                requirements=NULL if nullable else [*NOT_NULL, *NULL],
            )
