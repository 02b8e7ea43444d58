"""Texts and bytes with wrong lengths, and nulls that are not allowed."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.message import Body, Place, body, definitions
from kfuzz.vectors.recipes.theme import SMALL, Theme
from kfuzz.wire.io.cursor import uvarint

__all__ = ["theme"]

BYTES, NULL, NOT_NULL, LONG = ["MSG-BYTES-1"], ["MSG-NULL-1"], ["MSG-NULL-2"], ["MSG-STRING-2"]
# Message, versions (fixed, then compact lengths), field, whether it is text, whether it may be null in each version.
CURATED = (
    ("MetadataRequest", (4, 13), "topics[0].name", True, (False, True)),
    ("CreateTopicsRequest", (4, 7), "topics[0].name", True, (False, False)),
    ("OffsetCommitRequest", (7, 9), "topics[0].partitions[0].committedMetadata", True, (True, True)),
    ("JoinGroupRequest", (5, 9), "protocols[0].metadata", False, (False, False)),
    ("SaslAuthenticateRequest", (1, 2), "authBytes", False, (False, False)),
    ("SaslHandshakeRequest", (1,), "mechanism", True, (False,)),
    ("ProduceRequest", (8, 12), "topicData[0].partitionData[0].records", False, (True, True)),
    ("FetchResponse", (11, 17), "responses[0].partitions[0].records", False, (True, True)),
)


def theme() -> Theme:
    """The recipes of ``vectors/messages/lengths.json``."""
    made = Theme("messages/lengths", "Lengths of texts and bytes, and nulls.", "message")
    bomb = made.flag(
        "LengthHuge",
        "allocation",
        "A length claims up to 2,147,483,647 bytes in a message of a few bytes.",
        "A reader that allocates memory before it checks runs out of memory, even without authentication.",
        links=["rskafka #64", "KAFKA-14063"],
        cves=["CVE-2022-34917"],
    )
    for definition in definitions("request", "response"):
        whole = body(definition.name)
        length = whole.find("length")
        if length is not None:
            _beyond(made, whole, length)
            if whole.compact and not whole.may_be_null(length):
                _null(made, whole, length)
    for name, versions, path, text, nullable in CURATED:
        for version, null_too in zip(versions, nullable, strict=True):
            _lies(made, body(name, version), path, text, null_too, bomb)
    return made


def _beyond(made: Theme, whole: Body, length: Place) -> None:
    rest = len(whole.data) - length.at - length.size
    number = min(rest + 1, 0x7FFF)
    made.message(
        f"{whole.slug}-beyond",
        f"{whole.definition.name} in version {whole.version}: {length.path} claims more bytes than are left",
        whole.broken(length, whole.number(length, number), "length-exceeds-message"),
        requirements=BYTES,
    )


def _null(made: Theme, whole: Body, length: Place) -> None:
    made.message(
        f"{whole.slug}-null",
        f"{whole.definition.name} in version {whole.version}: its first length ({length.path}) must not be null",
        whole.broken(length, b"\x00", "null-not-allowed", after=whole.after(length)),
        requirements=NOT_NULL,
    )


def _lies(made: Theme, whole: Body, path: str, text: bool, nullable: bool, flag: str) -> None:
    length = whole.place("length", path)
    slug = f"{whole.slug}-{path.rpartition('.')[2].lower()}"
    what = f"{whole.definition.name} in version {whole.version}: {path}"
    huge = 0x7FFF if text else INT32_MAX
    made.message(
        f"{slug}-huge",
        f"{what} claims {huge:,} bytes",
        whole.broken(length, whole.number(length, huge), "length-exceeds-message"),
        requirements=BYTES,
        flags=[flag],
        budget=SMALL,
    )
    if text and whole.compact:
        made.message(
            f"{slug}-longer-than-int16",
            f"{what} claims 32,768 bytes, more than a text may have",
            whole.broken(length, uvarint(0x8001), "string-too-long"),
            requirements=LONG,
        )
        made.message(
            f"{slug}-int32-max",
            f"{what} claims 2,147,483,647 bytes, more than a text may have",
            whole.broken(length, uvarint(INT32_MAX + 1), "string-too-long"),
            requirements=LONG,
            flags=[flag],
            budget=SMALL,
        )
    after = whole.after(length)
    made.message(
        f"{slug}-empty",
        f"{what} is empty, which is not null",
        whole.broken(length, whole.number(length, 0), None, after=after),
        requirements=[*BYTES, *([] if nullable else NOT_NULL), *(LONG if text else [])],
        canonical=True,
    )
    made.message(
        f"{slug}-null",
        f"{what} is null, which is {'' if nullable else 'not '}allowed",
        whole.broken(length, whole.number(length, -1), None if nullable else "null-not-allowed", after=after),
        requirements=NULL if nullable else NOT_NULL,
        canonical=nullable,
    )
    if not whole.compact:
        for name, number in (("minus-two", -2), ("lowest", -(2 ** (8 * length.size - 1)))):
            made.message(
                f"{slug}-{name}",
                f"{what} has the length {number}",
                whole.broken(
                    length,
                    whole.number(length, number),
                    "length-below-minus-one" if nullable else "null-not-allowed",
                    after=after,
                ),
                requirements=NULL if nullable else [*NOT_NULL, *NULL],
            )
