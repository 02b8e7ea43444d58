"""What magic 0 and 1 have in common: messages and wrappers. May import ``builder`` and ``containers``."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kfuzz.vectors.recipes.builder import CREATED_MS, Json, Raw, Record, batch, message, record_contents
from kfuzz.vectors.recipes.containers import packed, stored
from kfuzz.vectors.recipes.theme import SMALL, Theme

INT32_MAX = 2**31 - 1


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def wrapper(
    magic: int,
    inner: Sequence[Raw],
    codec: str = "gzip",
    *,
    offset: int,
    first: int = 0,
    stream: bytes | None = None,
    **options: Any,
) -> Raw:
    """A message whose value is ``inner``, compressed; the first inner message reads as offset ``first``.

    The inner messages' own contents are the wrapper's, their offsets moved by ``first``.
    """
    data = b"".join(raw.data for raw in inner)
    contents = options.pop("contents", None)
    if contents is None:
        contents = [_moved(record, first) for raw in inner for record in raw.batches[0]["records"]]
    value = stored(codec, data) if stream is None else stream
    return message(magic, offset=offset, key=None, value=value, codec=codec, contents=contents, **options)


def _moved(record: Json, by: int) -> Json:
    return {**record, "offset": str(int(record["offset"]) + by)}


def three(magic: int, first: int = 0) -> list[Raw]:
    """Three messages with consecutive offsets."""
    values = (b"first", b"second", None)
    return [
        message(magic, offset=first + index, timestamp=CREATED_MS + index, value=value)
        for index, value in enumerate(values)
    ]


def common(made: Theme, magic: int) -> None:
    """The vectors that both magics have."""
    _plain(made, magic)
    _crc(made, magic)
    _lengths(made, magic)
    _attributes(made, magic)
    _wrappers(made, magic)
    _bad_wrappers(made, magic)


def _plain(made: Theme, magic: int) -> None:
    requirements = [f"MS-V{magic}-1", "MS-MESSAGE-1"]
    made.valid("minimal", "one message with key and value", message(magic), requirements=requirements)
    cases: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("null-key", "the key is null", {"key": None}),
        ("null-value", "the value is null", {"value": None}),
        ("null-key-and-value", "key and value are null: the shortest message", {"key": None, "value": None}),
        ("empty-key-and-value", "key and value are empty, which is not null", {"key": b"", "value": b""}),
        ("offset-beyond-53-bits", "an offset that is not representable as a double", {"offset": 2**53 + 1}),
    )
    for slug, summary, options in cases:
        made.valid(slug, summary, message(magic, **options), requirements=["MS-KEY-1", "MS-VALUE-1", "MS-BYTES-1"])
    made.valid(
        "three-messages",
        "three messages with consecutive offsets",
        *three(magic),
        requirements=["MS-FRAME-1"],
    )
    made.valid(
        "offset-gap",
        "the second message's offset is 100 further: compaction took the others",
        message(magic, offset=7),
        message(magic, offset=107),
        requirements=["MS-FRAME-1", "RB-OFFSET-6"],
    )


def _crc(made: Theme, magic: int) -> None:
    made.flag(
        "CrcWrong",
        "corruption",
        "The CRC does not fit the message.",
        "A reader that does not look gives damaged records to the application.",
    )
    good = message(magic)
    damaged = replace(good, data=good.data[:-1] + b"?", layout=message(magic, raw={"crc": good.data[12:16]}).layout)
    for slug, summary, raw in (
        ("crc-wrong", "the CRC is wrong", message(magic, raw={"crc": b"\x00\x00\x00\x01"})),
        ("crc-stale", "the value's last byte changed after the CRC was computed", damaged),
    ):
        made.invalid(
            slug,
            summary,
            raw,
            requirements=["MS-CRC-1"],
            flags=["CrcWrong"],
            finding="crc-mismatch",
            level="recommended",
        )


def _lengths(made: Theme, magic: int) -> None:
    made.flag(
        "MessageLengthWrong",
        "bounds",
        "A length in the message is negative, or more than the message has.",
        "A reader that trusts it reads beyond the message, or goes back in the buffer.",
    )
    for name in ("key", "value"):
        for slug, length, finding in (
            ("one-too-high", 2 if name == "value" else 7, "length-exceeds-record"),
            ("largest", INT32_MAX, "length-exceeds-record"),
        ):
            made.invalid(
                f"{name}-length-{slug}",
                f"the {name}'s length is {length}, more than the message has left",
                message(magic, raw={f"{name}_length": int32(length)}),
                requirements=["MS-BYTES-1"],
                flags=["MessageLengthWrong"],
                finding=finding,
                budget=SMALL,
            )
        made.acceptable(
            f"{name}-length-minus-two",
            f"the {name}'s length is -2; Kafka reads null",
            message(
                magic,
                key=None if name == "key" else b"k",
                value=None if name == "value" else b"v",
                raw={f"{name}_length": int32(-2)},
            ),
            requirements=["MS-BYTES-1"],
            flags=["MessageLengthWrong"],
            finding="length-below-minus-one",
        )
    made.acceptable(
        "bytes-after-value",
        "three bytes follow the value inside the message's size; Kafka does not look at them",
        message(magic, raw={"tail": b"\x01\x02\x03"}),
        requirements=["MS-MESSAGE-1"],
        flags=["MessageLengthWrong"],
        finding="bytes-after-message",
    )
    made.flag(
        "MessageSizeWrong",
        "bounds",
        "The size before the message is below what a message needs, or negative.",
        "A reader that goes on by it stands still for ever or reads before the buffer; processes have ended in it.",
    )
    for slug, size in (("negative-one", -1), ("zero", 0), ("13", 13)):
        made.invalid(
            f"size-{slug}",
            f"the message's size is {size}; the smallest message has 14",
            message(magic, raw={"batch_length": int32(size)}),
            requirements=["MS-FRAME-1"],
            flags=["MessageSizeWrong"],
            finding="batch-length-below-minimum",
            budget=SMALL,
        )


def _attributes(made: Theme, magic: int) -> None:
    made.flag(
        "UnusedAttributeBit",
        "strictness",
        "An attribute bit that should be 0 is set.",
        "A reader that refuses it cannot read what Kafka ignores.",
    )
    for bit in (0x10, 0x80) if magic else (0x08, 0x10, 0x80):
        made.acceptable(
            f"attributes-{bit:02x}",
            f"the attributes are 0x{bit:02x}",
            message(magic, attributes=bit, hostile=[]),
            requirements=["MS-ATTRIBUTES-2"],
            flags=["UnusedAttributeBit"],
            finding="attributes-unused-bits",
        )
    made.flag(
        "CodecNotAllowed",
        "confusion",
        "The attributes name a codec that messages of this magic do not know.",
        "A reader shared with magic 2 decompresses what no broker would have stored.",
    )
    zstd = stored("zstd", message(magic).data)
    made.invalid(
        "codec-zstd",
        "a zstd wrapper, and zstd came after magic 2",
        message(magic, key=None, value=zstd, codec="zstd", raw={"attributes": b"\x04"}),
        requirements=["MS-CODEC-1"],
        flags=["CodecNotAllowed"],
        finding="codec-not-allowed",
    )
    for codec in (5, 7):
        made.invalid(
            f"codec-{codec}",
            f"the attributes name codec {codec}, which is not defined",
            message(magic, raw={"attributes": bytes([codec])}),
            requirements=["MS-CODEC-1"],
            flags=["CodecNotAllowed"],
            finding="codec-unknown",
        )


def _wrappers(made: Theme, magic: int) -> None:
    first = 10
    inner = three(magic, first) if magic == 0 else three(magic)
    move = 0 if magic == 0 else first
    how = "absolute" if magic == 0 else "relative"
    for codec in ("gzip", "snappy", "lz4"):
        made.valid(
            f"{codec}-wrapper",
            f"three messages with {how} offsets in a {codec} wrapper",
            wrapper(magic, inner, codec, offset=first + 2, first=move),
            requirements=["MS-WRAPPER-1", "MS-CODEC-1"],
        )
    plain = b"".join(raw.data for raw in inner)
    made.valid(
        "gzip-wrapper-compressed",
        "three messages in a wrapper, compressed by gzip's usual library",
        wrapper(magic, inner, offset=first + 2, first=move, stream=packed("gzip", plain), by_content=True),
        requirements=["MS-WRAPPER-1"],
    )
    made.valid(
        "gzip-wrapper-of-one",
        "a wrapper that holds a single message",
        wrapper(magic, inner[:1], offset=first, first=move),
        requirements=["MS-WRAPPER-1"],
    )
    made.acceptable(
        "two-wrappers",
        "two wrappers one after another: a producer should send only one, a broker serves many",
        wrapper(magic, inner, offset=first + 2, first=move),
        wrapper(magic, inner, offset=first + 5, first=move + 3) if magic else wrapper(magic, three(0, 13), offset=15),
        requirements=["MS-WRAPPER-5"],
    )
    made.valid(
        "wrapper-between-plain",
        "a plain message, a wrapper, a plain message",
        message(magic, offset=9),
        wrapper(magic, inner, offset=first + 2, first=move),
        message(magic, offset=13),
        requirements=["MS-WRAPPER-1", "MS-FRAME-1"],
    )
    made.valid(
        "wrapper-with-key",
        "the wrapper itself has a key, which nobody asks for",
        _with_key(wrapper(magic, inner, offset=first + 2, first=move), magic),
        requirements=["MS-WRAPPER-1"],
    )


def _with_key(raw: Raw, magic: int) -> Raw:
    """The wrapper ``raw`` again, with the key ``k``."""
    contents = raw.batches[0]
    value_at = 26 if magic == 0 else 34
    value = raw.data[value_at:]
    return message(
        magic,
        offset=int(contents["last_offset"]),
        key=b"k",
        value=value,
        codec=contents["compression"],
        contents=contents["records"],
    )


def _bad_wrappers(made: Theme, magic: int) -> None:
    first = 10 if magic == 0 else 0
    inner = three(magic, first)
    plain = b"".join(raw.data for raw in inner)
    requirements = ["MS-WRAPPER-1"]
    made.flag(
        "WrapperBroken",
        "crash",
        "The wrapper holds nothing, or not what it should.",
        "Readers that take the first inner message without a look end in an exception.",
    )
    cases = (
        (
            "wrapper-value-null",
            "the wrapper's value is null",
            message(magic, value=None, codec="gzip", hostile=["value_length"]),
            "wrapper-value-null",
        ),
        ("wrapper-empty", "the wrapper holds no message", _wrapper_of(magic, b""), "wrapper-empty"),
        (
            "wrapper-garbage",
            "the wrapper's value is no gzip stream",
            _wrapper_of(magic, b"", b"garbage!!!"),
            "decompression-failed",
        ),
        (
            "wrapper-cut",
            "the wrapper's gzip stream is cut",
            _wrapper_of(magic, b"", stored("gzip", plain)[:-20]),
            "decompression-failed",
        ),
        (
            "wrapper-partial-only",
            "the wrapper holds half a message and nothing else",
            _wrapper_of(magic, plain[:15]),
            "wrapper-empty",
        ),
    )
    for slug, summary, raw, finding in cases:
        made.invalid(slug, summary, raw, requirements=requirements, flags=["WrapperBroken"], finding=finding)
    made.acceptable(
        "wrapper-partial-tail",
        "the wrapper's last message is cut; Kafka reads those before it",
        wrapper(magic, inner[:2], offset=first + 1, stream=stored("gzip", plain[:-5])),
        requirements=requirements,
        flags=["WrapperBroken"],
        finding="inner-partial-tail",
    )
    made.flag(
        "WrapperNested",
        "hang",
        "A wrapper inside a wrapper, which old documents permit and Kafka refuses.",
        "A reader that recurses has no bound but its stack.",
    )
    made.invalid(
        "wrapper-nested",
        "a wrapper inside a wrapper",
        wrapper(magic, [wrapper(magic, inner, offset=first + 2)], offset=first + 2, hostile=["value"]),
        requirements=["MS-WRAPPER-2", "RB-CODEC-6"],
        flags=["WrapperNested"],
        finding="wrapper-nested",
    )
    made.invalid(
        "inner-crc-wrong",
        "an inner message's CRC is wrong, the wrapper's is right",
        wrapper(
            magic,
            [inner[0], message(magic, offset=first + 1, raw={"crc": bytes(4)})],
            offset=first + 1,
            hostile=["value"],
        ),
        requirements=["MS-CRC-1"],
        flags=["CrcWrong"],
        finding="crc-mismatch",
        level="recommended",
    )
    made.acceptable(
        "wrapper-crc-wrong",
        "the wrapper's CRC is wrong, the inner messages' are right; Kafka's consumer looks at those only",
        wrapper(magic, inner, offset=first + 2, raw={"crc": bytes(4)}),
        requirements=["MS-CRC-1"],
        flags=["CrcWrong"],
        finding="wrapper-crc-mismatch",
        level="recommended",
    )
    _bad_inner(made, magic, first)


def _bad_inner(made: Theme, magic: int, first: int) -> None:
    inner = three(magic, first)
    made.flag(
        "InnerSizeWrong",
        "allocation",
        "The size of a message inside the wrapper is negative or huge.",
        "A reader that makes room on its word allocates two gigabytes.",
    )
    for slug, size in (("negative-one", -1), ("zero", 0)):
        made.invalid(
            f"inner-size-{slug}",
            f"the size of the second inner message is {size}",
            wrapper(
                magic,
                [inner[0], message(magic, offset=first + 1, raw={"batch_length": int32(size)})],
                offset=first + 1,
                hostile=["value"],
            ),
            requirements=["MS-FRAME-1"],
            flags=["InnerSizeWrong"],
            finding="batch-length-below-minimum",
            budget=SMALL,
        )
    sizes = (
        ("inner-size-beyond-wrapper", 1000, "is 1000: to Kafka a partial tail", "inner-partial-tail"),
        ("inner-size-largest", INT32_MAX, "is INT32_MAX: more than a Java array holds", "batch-length-too-large"),
    )
    for slug, size, what, finding in sizes:
        made.acceptable(
            slug,
            f"the size of the second inner message {what}",
            wrapper(
                magic,
                [inner[0], message(magic, offset=first + 1, raw={"batch_length": int32(size)})],
                offset=first,
                contents=inner[0].batches[0]["records"],
            ),
            requirements=["MS-FRAME-1"],
            flags=["InnerSizeWrong"],
            finding=finding,
            budget=SMALL,
        )
    made.flag(
        "InnerMagicOther",
        "confusion",
        "A message inside the wrapper is of another magic than the wrapper.",
        "Its fields stand at other places; Kafka goes by each message's own magic.",
    )
    other = 1 - magic
    made.acceptable(
        "inner-magic-other",
        f"a message of magic {other} inside a wrapper of magic {magic}",
        wrapper(magic, [message(other, offset=first)], offset=first),
        requirements=["MS-WRAPPER-4"],
        flags=["InnerMagicOther"],
        finding="inner-magic-mismatch",
    )
    made.invalid(
        "inner-magic-2",
        f"a record batch of magic 2 inside a wrapper of magic {magic}",
        wrapper(magic, [batch(Record())], offset=first, hostile=["value"]),
        requirements=["MS-WRAPPER-4"],
        flags=["InnerMagicOther"],
        finding="wrapper-nested",
    )


def _wrapper_of(magic: int, inner: bytes, stream: bytes | None = None) -> Raw:
    """A wrapper around bytes that hold no whole message; nothing is to be read from it."""
    value = stored("gzip", inner) if stream is None else stream
    read = [record_contents(0, None, None, None)]
    return message(magic, key=None, value=value, codec="gzip", contents=read, hostile=["value"])
