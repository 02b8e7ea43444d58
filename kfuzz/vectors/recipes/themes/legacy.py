"""Recipes that magic 0 and 1 share: messages and wrappers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.builder import CREATED_MS, Json, Raw, Record, batch, concat, message, record_contents
from kfuzz.vectors.recipes.making.containers import packed, stored
from kfuzz.vectors.recipes.theme import SMALL, Theme, accepts, refuses


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def wrapper(
    magic: int,
    inner: Sequence[Raw],
    codec: str = "gzip",
    *,
    offset: int | None = None,
    first: int = 0,
    stream: bytes | None = None,
    **options: Any,
) -> Raw:
    """A message whose value is ``inner``, compressed. The first inner message reads as offset ``first``.

    Unless ``contents`` is given, the contents are those of the inner messages, with their offsets raised by ``first``.
    The default ``offset`` is that of the last one.
    """
    data = b"".join(raw.data for raw in inner)
    if offset is None:
        offset = int(inner[-1].batches[0]["last_offset"]) + first
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
    """Add the vectors that both magics have."""
    _plain(made, magic)
    _crc(made, magic)
    _lengths(made, magic)
    _attributes(made, magic)
    _wrappers(made.having(requirements=["MS-WRAPPER-1"]), magic)
    _bad_wrappers(made, magic)
    _cuts(made, magic)
    _by_codec(made, magic)
    _inner_sets(made, magic)


def _plain(made: Theme, magic: int) -> None:
    requirements = [f"MS-V{magic}-1", "MS-ATTRIBUTES-2", "MS-CRC-1", "MS-MAGIC-1", "MS-MESSAGE-1"]
    made.valid("minimal", "one message with key and value", message(magic), requirements=requirements)
    cases: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("null-key", "the key is null", {"key": None}),
        ("null-value", "the value is null", {"value": None}),
        ("null-key-and-value", "key and value are null; this is the shortest message", {"key": None, "value": None}),
        ("empty-key-and-value", "key and value are empty, which is not null", {"key": b"", "value": b""}),
        ("offset-beyond-53-bits", "the offset cannot be represented as a double", {"offset": 2**53 + 1}),
    )
    for slug, summary, options in cases:
        made.valid(slug, summary, message(magic, **options), requirements=["MS-KEY-1", "MS-VALUE-1", "MS-BYTES-1"])
    made.valid("three-messages", "three messages with consecutive offsets", *three(magic), requirements=["MS-FRAME-1"])
    made.valid(
        "offset-gap",
        "the second message's offset is 100 higher: compaction removed the others",
        message(magic, offset=7),
        message(magic, offset=107),
        requirements=["MS-FRAME-1", "RB-OFFSET-6"],
    )


def _crc(made: Theme, magic: int) -> None:
    good = message(magic)
    damaged = replace(good, data=good.data[:-1] + b"?", layout=message(magic, raw={"crc": good.data[12:16]}).layout)
    for slug, summary, raw in (
        ("crc-wrong", "the CRC is wrong", message(magic, raw={"crc": b"\x00\x00\x00\x01"})),
        ("crc-stale", "the value's last byte changed after the CRC was computed", damaged),
    ):
        made.flag("CrcWrong").invalid(
            slug, summary, raw, requirements=["MS-CRC-1"], finding="crc-mismatch", level="recommended"
        )


def _lengths(made: Theme, magic: int) -> None:
    message_length_wrong = made.flag("MessageLengthWrong", requirements=["MS-BYTES-1"])
    for name in ("key", "value"):
        for slug, length, finding in (
            ("one-too-high", 2 if name == "value" else 7, "length-exceeds-record"),
            ("largest", INT32_MAX, "length-exceeds-record"),
        ):
            message_length_wrong.invalid(
                f"{name}-length-{slug}",
                f"the {name}'s length is {length}, more than the rest of the message",
                message(magic, raw={f"{name}_length": int32(length)}),
                finding=finding,
                budget=SMALL,
            )
        message_length_wrong.acceptable(
            f"{name}-length-minus-two",
            f"the {name}'s length is -2; Kafka reads null",
            message(
                magic,
                key=None if name == "key" else b"k",
                value=None if name == "value" else b"v",
                raw={f"{name}_length": int32(-2)},
            ),
            finding="length-below-minus-one",
        )
    message_length_wrong.acceptable(
        "bytes-after-value",
        "three bytes follow the value inside the message's size; Kafka ignores them",
        message(magic, raw={"tail": b"\x01\x02\x03"}),
        requirements=["MS-MESSAGE-1"],
        finding="bytes-after-message",
    )
    for slug, size in (("negative-one", -1), ("zero", 0), ("13", 13)):
        made.flag("MessageSizeWrong").invalid(
            f"size-{slug}",
            f"the message's size is {size}; the smallest message has 14",
            message(magic, raw={"batch_length": int32(size)}),
            requirements=["MS-FRAME-1"],
            finding="batch-length-below-minimum",
            budget=SMALL,
        )


def _attributes(made: Theme, magic: int) -> None:
    for bit in (0x10, 0x20, 0x40, 0x80, 0xF0) if magic else (0x08, 0x10, 0x20, 0x40, 0x80, 0xF8):
        made.flag("UnusedAttributeBit").acceptable(
            f"attributes-{bit:02x}",
            f"the attributes are 0x{bit:02x}",
            message(magic, attributes=bit),
            requirements=["MS-ATTRIBUTES-2"],
            finding="attributes-unused-bits",
        )
    codec_not_allowed = made.flag("CodecNotAllowed", requirements=["MS-CODEC-1"])
    zstd = stored("zstd", message(magic).data)
    codec_not_allowed.invalid(
        "codec-zstd",
        "the message is a zstd wrapper, but only magic 2 allows zstd",
        message(magic, key=None, value=zstd, codec="zstd", raw={"attributes": b"\x04"}),
        finding="codec-not-allowed",
    )
    for codec in (5, 6, 7):
        codec_not_allowed.invalid(
            f"codec-{codec}",
            f"the attributes name codec {codec}, which is not defined",
            message(magic, raw={"attributes": bytes([codec])}),
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
            f"the {codec} wrapper holds three messages with {how} offsets",
            wrapper(magic, inner, codec, first=move),
            requirements=["MS-WRAPPER-1", "MS-WRAPPER-2", "MS-WRAPPER-4", "MS-WRAPPER-5", "MS-CODEC-1"],
        )
    plain = b"".join(raw.data for raw in inner)
    made.valid(
        "gzip-wrapper-compressed",
        "three messages in a wrapper, compressed by the usual library for gzip",
        wrapper(magic, inner, first=move, stream=packed("gzip", plain), by_content=True),
    )
    made.valid("gzip-wrapper-of-one", "a wrapper holds a single message", wrapper(magic, inner[:1], first=move))
    made.acceptable(
        "two-wrappers",
        "two wrappers, one after another: a producer should send only one, but a broker serves many",
        wrapper(magic, inner, first=move),
        wrapper(magic, inner, first=move + 3) if magic else wrapper(magic, three(0, 13)),
        requirements=["MS-WRAPPER-5"],
    )
    made.valid(
        "wrapper-between-plain",
        "a plain message, a wrapper, a plain message",
        message(magic, offset=9),
        wrapper(magic, inner, first=move),
        message(magic, offset=13),
        requirements=["MS-WRAPPER-1", "MS-FRAME-1"],
    )
    made.valid(
        "wrapper-with-key",
        "the wrapper itself has a key, which readers ignore",
        _with_key(wrapper(magic, inner, first=move), magic),
    )


def unopened(raw: Raw) -> list[Json]:
    """The contents of an unreadable wrapper: all members except the records and the first offset."""
    hidden = ("base_offset", "records")
    return [{name: value for name, value in contents.items() if name not in hidden} for contents in raw.batches]


def _with_key(raw: Raw, magic: int) -> Raw:
    """A copy of the wrapper ``raw`` with the key ``k``."""
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
    crc_wrong = made.flag("CrcWrong", requirements=["MS-CRC-1"], level="recommended")
    first = 10 if magic == 0 else 0
    inner = three(magic, first)
    plain = b"".join(raw.data for raw in inner)
    requirements = ["MS-WRAPPER-1"]
    wrapper_broken = made.flag("WrapperBroken", requirements=requirements)
    cases = (
        (
            "wrapper-value-null",
            "the wrapper's value is null",
            message(magic, value=None, codec="gzip", hostile=["value_length"]),
            "wrapper-value-null",
        ),
        ("wrapper-empty", "the wrapper holds no message", wrapper_of(magic, b""), "wrapper-empty"),
        (
            "wrapper-garbage",
            "the wrapper's value is not a gzip stream",
            wrapper_of(magic, b"", b"garbage!!!"),
            "decompression-failed",
        ),
        (
            "wrapper-cut",
            "the wrapper's gzip stream is truncated",
            wrapper_of(magic, b"", stored("gzip", plain)[:-20]),
            "decompression-failed",
        ),
        (
            "wrapper-partial-only",
            "the wrapper holds only half a message",
            wrapper_of(magic, plain[:15]),
            "wrapper-empty",
        ),
    )
    for slug, summary, raw, finding in cases:
        wrapper_broken.invalid(
            slug,
            summary,
            raw,
            finding=finding,
            # Kafka 3.9 does not open a wrapper to find the start of a log. Later brokers do, and crash.
            log=accepts(finding="wrapper-start-unknown", batches=unopened(raw)),
        )
    after = concat(message(magic), wrapper_of(magic, b""))
    wrapper_broken.invalid(
        "wrapper-empty-behind-message",
        "a message, then an empty wrapper; in a segment, only a consumer opens it",
        after,
        finding="wrapper-empty",
        log=accepts(finding="records-unreadable", batches=[after.batches[0], *unopened(wrapper_of(magic, b""))]),
    )
    wrapper_broken.acceptable(
        "wrapper-partial-tail",
        "the wrapper's last message is truncated; Kafka reads the messages before it",
        wrapper(magic, inner[:2], stream=stored("gzip", plain[:-5])),
        finding="inner-partial-tail",
    )
    made.flag("WrapperNested").invalid(
        "wrapper-nested",
        "the wrapper contains another wrapper",
        wrapper(magic, [wrapper(magic, inner)], hostile=["value"]),
        requirements=["MS-WRAPPER-2", "RB-CODEC-6"],
        finding="wrapper-nested",
    )
    crc_wrong.invalid(
        "inner-crc-wrong",
        "an inner message's CRC is wrong, but the wrapper's is right",
        wrapper(magic, [inner[0], message(magic, offset=first + 1, raw={"crc": bytes(4)})], hostile=["value"]),
        finding="crc-mismatch",
    )
    crc_wrong.acceptable(
        "wrapper-crc-wrong",
        "the wrapper's CRC is wrong, the inner ones are right; Kafka's consumer checks only the inner ones",
        wrapper(magic, inner, raw={"crc": bytes(4)}),
        finding="wrapper-crc-mismatch",
        log=refuses("wrapper-crc-mismatch"),
    )
    _bad_inner(made, magic, first)


def cut(magic: int, size: int, **options: Any) -> Raw:
    """A message that ends ``size`` bytes after its size field, with the CRC of the remaining bytes."""
    whole = message(magic, **options)
    rest = whole.data[16 : 12 + size]
    data = whole.data[:8] + int32(size) + zlib.crc32(rest).to_bytes(4, "big") + rest
    return replace(whole, data=data, layout=message(magic, raw={"batch_length": int32(size)}).layout)


def _cuts(made: Theme, magic: int) -> None:
    """Messages that end within a field; size and CRC match the remaining bytes."""
    # The key's length follows CRC, magic and attributes, and in magic 1 also the timestamp.
    key_at = 6 if magic == 0 else 14
    key, value = b"a key of twenty byte", b"value"
    cases = (
        ("in-key", key_at + 4 + 12, "within the key", "length-exceeds-record"),
        ("behind-key", key_at + 4 + len(key), "after the key", "message-truncated"),
        ("in-value-length", key_at + 4 + len(key) + 3, "within the value's length", "message-truncated"),
        ("behind-value-length", key_at + 4 + len(key) + 4, "after the value's length", "length-exceeds-record"),
        ("in-value", key_at + 4 + len(key) + 4 + 4, "within the value", "length-exceeds-record"),
    )
    for slug, size, where, finding in cases:
        made.flag("MessageCut").invalid(
            f"cut-{slug}",
            f"the message ends {where}, and its size matches; another message follows",
            cut(magic, size, key=key, value=value),
            message(magic, offset=1),
            requirements=[f"MS-V{magic}-1", "MS-MESSAGE-1", "MS-BYTES-1"],
            finding=finding,
            budget=SMALL,
        )
    ends = (
        (4, "after the CRC"),
        (5, "after the magic"),
        (6, "after the attributes"),
        (10, "four bytes after the attributes"),
    )
    for size, where in ends:
        made.invalid(
            f"cut-at-{size}",
            f"the message has {size} bytes; it ends {where}",
            cut(magic, size),
            message(magic, offset=1),
            requirements=["MS-FRAME-1"],
            flags=["MessageSizeWrong"],
            finding="batch-length-below-minimum",
            budget=SMALL,
        )
    size_too_high = made.flag("SizeTooHigh", budget=SMALL)
    for slug, size in (("one-too-high", len(message(magic).data) - 12 + 1), ("largest-for-kafka", INT32_MAX - 12)):
        size_too_high.valid(
            f"size-{slug}",
            f"the message's size is {size}; Kafka waits for the rest",
            Raw(b"", (), ()),
            tail=message(magic, raw={"batch_length": int32(size)}).data,
            requirements=["MS-FRAME-1", "RB-SEVERAL-1"],
        )
    size_too_high.acceptable(
        "size-largest",
        "the message's size is INT32_MAX; with the 12 bytes before it, the sum overflows an int32, and Kafka fails",
        Raw(b"", (), ()),
        tail=message(magic, raw={"batch_length": int32(INT32_MAX)}).data,
        requirements=["MS-FRAME-1", "RB-LENGTH-2"],
        finding="batch-length-too-large",
        broker=refuses("batch-length-too-large"),
    )


def _by_codec(made: Theme, magic: int) -> None:
    """Broken wrappers of codecs other than gzip, and mislabelled ones."""
    wrapper_broken = made.flag("WrapperBroken", requirements=["MS-WRAPPER-1", "RB-CODEC-2"])
    first = 10 if magic == 0 else 0
    inner = three(magic, first)
    plain = b"".join(raw.data for raw in inner)
    for codec in ("snappy", "lz4"):
        cases = (
            ("garbage", f"is not a stream of {codec}", b"garbage!!! garbage!!! garbage!!!", "decompression-failed"),
            ("cut", "is truncated", stored(codec, plain)[:-20], "decompression-failed"),
            ("holds-nothing", "is an empty stream", stored(codec, b""), "wrapper-empty"),
            ("holds-half-a-message", "holds only half a message", stored(codec, plain[:15]), "wrapper-empty"),
        )
        for slug, what, stream, finding in cases:
            wrapper_broken.invalid(
                f"{codec}-wrapper-{slug}",
                f"the {codec} wrapper's value {what}",
                wrapper_of(magic, b"", stream, codec),
                finding=finding,
                budget=SMALL,
            )
        wrapper_broken.acceptable(
            f"{codec}-wrapper-partial-tail",
            f"the last message in the {codec} wrapper is truncated; Kafka reads the messages before it",
            wrapper(magic, inner[:2], codec, stream=stored(codec, plain[:-5])),
            requirements=["MS-WRAPPER-1"],
            finding="inner-partial-tail",
        )
        made.invalid(
            f"{codec}-wrapper-nested",
            f"the gzip wrapper contains a wrapper with codec {codec}",
            wrapper(magic, [wrapper(magic, inner, codec)], hostile=["value"]),
            requirements=["MS-WRAPPER-2", "RB-CODEC-6"],
            flags=["WrapperNested"],
            finding="wrapper-nested",
            budget=SMALL,
        )
    for codec in ("gzip", "snappy", "lz4"):
        wrapper_broken.invalid(
            f"{codec}-wrapper-value-empty",
            f"the value of the {codec} wrapper has no bytes",
            wrapper_of(magic, b"", b"", codec),
            finding="decompression-failed",
            budget=SMALL,
        )
    codec_mislabelled = made.flag(
        "CodecMislabelled", requirements=["MS-CODEC-1", "RB-CODEC-2"], finding="decompression-failed"
    )
    for named, real in (("gzip", "snappy"), ("snappy", "lz4"), ("lz4", "gzip")):
        codec_mislabelled.invalid(
            f"{named}-wrapper-is-{real}",
            f"the attributes name {named}, but the wrapper's value is a stream of {real}",
            wrapper_of(magic, b"", stored(real, plain), named),
        )
    codec_mislabelled.invalid(
        "gzip-wrapper-is-plain",
        "the attributes name gzip, but the wrapper's value is an uncompressed message set",
        wrapper_of(magic, b"", plain),
    )
    wrapper_broken.acceptable(
        "gzip-wrapper-bytes-after-stream",
        "eight bytes follow the gzip stream inside the wrapper's value; Kafka ignores them",
        wrapper(magic, inner, stream=stored("gzip", plain) + bytes(8), hostile=["value"]),
        finding="bytes-after-compressed-stream",
    )


def _inner_sets(made: Theme, magic: int) -> None:
    """Unusual contents of a wrapper: deeper nesting, other orders, other magics after the first message."""
    message_length_wrong = made.flag("MessageLengthWrong", requirements=["MS-BYTES-1"])
    wrapper_nested = made.flag(
        "WrapperNested", requirements=["MS-WRAPPER-2", "RB-CODEC-6"], finding="wrapper-nested", budget=SMALL
    )
    first = 10 if magic == 0 else 0
    inner = three(magic, first)
    once = wrapper(magic, inner)
    twice = wrapper(magic, [once])
    wrapper_nested.invalid(
        "wrapper-nested-three-deep", "wrappers are nested three deep", wrapper(magic, [twice], hostile=["value"])
    )
    wrapper_nested.invalid(
        "wrapper-nested-behind-plain",
        "a wrapper contains a plain message, then another wrapper",
        wrapper(magic, [message(magic, offset=first), wrapper(magic, three(magic, first + 1))], hostile=["value"]),
    )
    wrapper_nested.invalid(
        "wrapper-nested-without-value",
        "a message inside the wrapper names a codec, but its value is null",
        wrapper(magic, [message(magic, offset=first, value=None, codec="gzip")], hostile=["value"]),
        requirements=["MS-WRAPPER-2"],
    )
    made.invalid(
        "inner-crc-of-first-wrong",
        "the first inner message's CRC is wrong, but the second's is right",
        wrapper(
            magic,
            [message(magic, offset=first, raw={"crc": bytes(4)}), message(magic, offset=first + 1)],
            hostile=["value"],
        ),
        requirements=["MS-CRC-1"],
        flags=["CrcWrong"],
        finding="crc-mismatch",
        level="recommended",
    )
    message_length_wrong.invalid(
        "inner-key-length-largest",
        "the length of an inner message's key is INT32_MAX",
        wrapper(magic, [message(magic, offset=first, raw={"key_length": int32(INT32_MAX)})], hostile=["value"]),
        finding="length-exceeds-record",
        budget=SMALL,
    )
    message_length_wrong.acceptable(
        "inner-value-length-minus-two",
        "the length of an inner message's value is -2; Kafka reads null",
        wrapper(magic, [message(magic, offset=first, value=None, raw={"value_length": int32(-2)})], hostile=["value"]),
        finding="length-below-minus-one",
    )
    message_length_wrong.acceptable(
        "inner-bytes-after-value",
        "three bytes follow an inner message's value inside its size",
        wrapper(magic, [message(magic, offset=first, raw={"tail": b"\x01\x02\x03"})], hostile=["value"]),
        requirements=["MS-MESSAGE-1"],
        finding="bytes-after-message",
    )
    nine = wrapper(
        magic,
        [message(magic, offset=first), message(magic, offset=first + 1, raw={"magic": b"\x09"})],
        hostile=["value"],
    )
    options: dict[str, Any] = {"requirements": ["MS-WRAPPER-4", "MS-MAGIC-1"], "flags": ["InnerMagicOther"]}
    summary = "the second message inside the wrapper has magic 9, which Kafka treats like magic 1"
    if magic == 0:
        made.invalid("inner-magic-9", f"{summary}; it is too short", nine, finding="message-truncated", **options)
    else:
        made.acceptable("inner-magic-9", summary, nine, finding="inner-magic-mismatch", **options)
    orders = (
        ("repeated", (first, first), "repeat"),
        ("decreasing", (first + 1, first), "decrease"),
        ("negative", (-5, first), "begin with a negative one"),
    )
    for slug, offsets, what in orders:
        # In magic 1 the base is the wrapper's offset minus the last inner offset: here 50.
        made.flag("InnerOffsetsDisorder").acceptable(
            f"inner-offsets-{slug}",
            f"the offsets inside the wrapper {what}",
            wrapper(
                magic,
                [message(magic, offset=offset, value=b"%d" % index) for index, offset in enumerate(offsets)],
                first=50 if magic else 0,
                hostile=["value"],
            ),
            requirements=["MS-WRAPPER-3" if magic else "MS-WRAPPER-1"],
        )
    made.valid(
        "wrapper-of-hundred",
        "a wrapper with a hundred messages",
        wrapper(magic, [message(magic, offset=first + index, value=b"%d" % index) for index in range(100)]),
        requirements=["MS-WRAPPER-1"],
    )


def _bad_inner(made: Theme, magic: int, first: int) -> None:
    inner = three(magic, first)
    inner_size_wrong = made.flag("InnerSizeWrong", requirements=["MS-FRAME-1"], budget=SMALL)
    for slug, size in (("negative-one", -1), ("zero", 0)):
        inner_size_wrong.invalid(
            f"inner-size-{slug}",
            f"the size of the second inner message is {size}",
            wrapper(
                magic,
                [inner[0], message(magic, offset=first + 1, raw={"batch_length": int32(size)})],
                hostile=["value"],
            ),
            finding="batch-length-below-minimum",
        )
    sizes = (
        ("inner-size-beyond-wrapper", 1000, "is 1000; Kafka treats it as a partial tail", "inner-partial-tail"),
        ("inner-size-largest", INT32_MAX, "is INT32_MAX, more than a Java array can hold", "batch-length-too-large"),
    )
    for slug, size, what, finding in sizes:
        inner_size_wrong.acceptable(
            slug,
            f"the size of the second inner message {what}",
            wrapper(
                magic,
                [inner[0], message(magic, offset=first + 1, raw={"batch_length": int32(size)})],
                offset=first,
                contents=inner[0].batches[0]["records"],
            ),
            finding=finding,
        )
    inner_magic_other = made.flag("InnerMagicOther", requirements=["MS-WRAPPER-4"])
    other = 1 - magic
    inner_magic_other.acceptable(
        "inner-magic-other",
        f"a message of magic {other} is inside a wrapper of magic {magic}",
        wrapper(magic, [message(other, offset=first)]),
        finding="inner-magic-mismatch",
    )
    inner_magic_other.invalid(
        "inner-magic-2",
        f"a record batch of magic 2 is inside a wrapper of magic {magic}",
        wrapper(magic, [batch(Record())], offset=first, hostile=["value"]),
        finding="wrapper-nested",
    )


def wrapper_of(magic: int, inner: bytes, stream: bytes | None = None, codec: str = "gzip") -> Raw:
    """A wrapper around bytes without a whole message; there is nothing to read in it."""
    value = stored(codec, inner) if stream is None else stream
    read = [record_contents(0, None, None, None)]
    hostile = ["value"] if value else ["value_length"]
    return message(magic, key=None, value=value, codec=codec, contents=read, hostile=hostile)
