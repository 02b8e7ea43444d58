"""Numbers, flags, varints, floats, and bytes after the last field."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.message import body, definitions
from kfuzz.vectors.recipes.theme import Theme

NUMBER, FLAG, VARINT, END = ["MSG-NUMBER-1"], ["MSG-BOOL-1"], ["MSG-COMPACT-1"], ["MSG-FIELDS-1"]


def theme() -> Theme:
    """The recipes of ``vectors/messages/numbers.json``."""
    made = Theme("messages/numbers", "Numbers, flags, varints, floats, and bytes after the last field.", "message")
    _ends_of_ranges(made)
    _flags(made)
    _presence(made)
    _varints(made)
    _behind(made)
    _floats(made)
    return made


def _ends_of_ranges(made: Theme) -> None:
    for slug, extreme, sign in (("least", "smallest", -1), ("most", "largest", 1)):

        def end(bits: int, sign: int = sign) -> int:
            half = 1 << (bits - 1)
            return -half if sign < 0 else half - 1

        fetch = {
            "maxWaitMs": end(32),
            "minBytes": end(32),
            "isolationLevel": end(8),
            "topics": [{"topic": "t", "partitions": [{"partition": end(32), "fetchOffset": end(64)}]}],
        }
        for version in (4, 12):
            made.message(
                f"fetch-request-v{version}-{slug}",
                f"FetchRequest in version {version}: its 8-, 32- and 64-bit numbers are the {extreme}",
                body("FetchRequest", version, fetch),
                requirements=NUMBER,
            )
        for version in (3, 9):
            made.message(
                f"produce-request-v{version}-{slug}",
                f"ProduceRequest in version {version}: its 16- and 32-bit numbers are the {extreme}",
                body("ProduceRequest", version, {"acks": end(16), "timeoutMs": end(32)}),
                requirements=NUMBER,
            )


def _flags(made: Theme) -> None:
    for version in (4, 13):
        whole = body("MetadataRequest", version)
        place = whole.place("value", "allowAutoTopicCreation")
        for slug, byte, finding in (
            ("zero", 0, None),
            ("one", 1, None),
            ("two", 2, "bool-not-0-or-1"),
            ("ff", 255, "bool-not-0-or-1"),
            ("sign", 128, "bool-not-0-or-1"),
        ):
            made.message(
                f"metadata-request-v{version}-flag-{slug}",
                f"MetadataRequest in version {version}: a flag is {byte}",
                whole.broken(place, bytes([byte]), finding),
                requirements=FLAG,
            )


def _presence(made: Theme) -> None:
    """The byte before a struct that may be null: -1 means null, 1 means present."""
    name = "DescribeTopicPartitionsRequest"
    whole = body(name, 0)
    place = whole.place("presence", "cursor")
    after = whole.data[whole.places[-1].at :]
    for slug, byte, finding, rest in (
        ("null", 0xFF, None, after),
        ("minus-two", 0xFE, "length-below-minus-one", after),
        ("lowest", 0x80, "length-below-minus-one", after),
        ("zero", 0, "bool-not-0-or-1", None),
        ("two", 2, "bool-not-0-or-1", None),
    ):
        made.named(
            f"cursor-{slug}",
            f"the byte before a struct that may be null is {byte:#04x}",
            whole.broken(place, bytes([byte]), finding, after=rest),
            requirements=["MSG-NULL-1"],
        )


def _varints(made: Theme) -> None:
    """Flexible versions write lengths and counts plus one, as varints."""
    whole = body("ApiVersionsRequest", 3)
    length = whole.place("length", "clientSoftwareName")
    size = whole.place("value", "clientSoftwareName").size
    low = (size + 1) | 0x80
    for slug, data, finding, about in (
        ("two-bytes", bytes([low, 0]), "varint-overlong", "has two bytes, but one is enough"),
        ("five-bytes", bytes([low, 0x80, 0x80, 0x80, 0]), "varint-overlong", "has five bytes, but one is enough"),
        (
            "excess-bits",
            bytes([low, 0x80, 0x80, 0x80, 0x10]),
            "varint-overlong",
            "has bits above the 32nd in its fifth byte",
        ),
        ("six-bytes", bytes([low, 0x80, 0x80, 0x80, 0x80, 0]), "varint-too-long", "has six bytes"),
        ("ten-bytes", bytes([low, *[0x80] * 8, 1]), "varint-too-long", "has ten bytes"),
        ("endless", b"\xff" * 12, "varint-too-long", "has no end"),
    ):
        made.named(f"length-{slug}", f"a length {about}", whole.broken(length, data, finding), requirements=VARINT)
    long = "n" * 127
    made.named(
        "length-of-two-bytes",
        "a text has 127 bytes, so its length takes two",
        body("ApiVersionsRequest", 3, {"clientSoftwareName": long, "clientSoftwareVersion": "1"}),
        requirements=VARINT,
    )


def _behind(made: Theme) -> None:
    """Kafka ignores bytes after the last field."""
    for definition in definitions("request", "response"):
        if definition.api_key is not None and definition.api_key <= 22:
            whole = body(definition.name)
            last = whole.places[-1]
            made.named(
                "trailing",
                "three bytes follow its last field",
                whole.broken(last, whole.data[last.at :], "bytes-after-message", after=b"\x00\x01\x02"),
                requirements=END,
            )


def _floats(made: Theme) -> None:
    for slug, value in (
        ("infinity", float("inf")),
        ("minus-infinity", float("-inf")),
        ("minus-zero", -0.0),
        ("least", 5e-324),
    ):
        entity = {"entityType": "user", "entityName": "u"}
        values = {"entries": [{"entity": [entity], "ops": [{"key": "k", "value": value, "remove": False}]}]}
        for version in (0, 1):
            made.message(
                f"alter-client-quotas-request-v{version}-{slug}",
                f"AlterClientQuotasRequest in version {version}: a float is {slug.replace('-', ' ')}",
                body("AlterClientQuotasRequest", version, values),
                requirements=NUMBER,
            )
