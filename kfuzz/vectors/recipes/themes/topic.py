"""Produce requests whose verdict depends on the topic's configuration."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.builder import CREATED_MS, Raw, Record, batch
from kfuzz.vectors.recipes.theme import Json, Theme, accepts, refuses

DAY_MS = 24 * 60 * 60 * 1000
# No broker's clock is further ahead of the records' timestamps than this.
CENTURY_MS = 100 * 365 * DAY_MS
NO_TIMESTAMP = -1
# A small limit, but enough for the requests that a single-node broker sends to itself.
REQUEST_BYTES_MAX = 16 * 1024


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/topic.json``."""
    made = Theme("records/v2/topic", "Produced batches whose outcome depends on the topic's or broker's configuration.")
    _compacted(made)
    _timestamps(made.having(requirements=["RB-TIMESTAMP-4"]))
    _sizes(made.having(requirements=["LIM-DEFAULT-1"]))
    _codecs(made)
    return made


def _compacted(made: Theme) -> None:
    for codec in ("none", "gzip", "zstd"):
        slug = "" if codec == "none" else f"-{codec}"
        made.valid(
            f"compacted-with-keys{slug}",
            f"a compacted topic gets two records with keys, one of them empty (codec {codec})",
            batch(Record(), Record(offset_delta=1, key=b""), codec=codec),
            requirements=["CMP-KEY-1"],
            broker=accepts(),
            topic={"compacted": True},
        )
        made.flag("KeylessInCompacted").valid(
            f"compacted-without-key{slug}",
            f"a compacted topic gets two records; the second has no key (codec {codec})",
            batch(Record(), Record(offset_delta=1, key=None), codec=codec),
            requirements=["CMP-KEY-1"],
            broker=refuses("key-missing"),
            topic={"compacted": True},
        )


def _timestamps(made: Theme) -> None:
    near: Json = {"now": str(CREATED_MS + 2 * DAY_MS), "timestamp_before_max_ms": str(DAY_MS)}
    far = near | {"timestamp_before_max_ms": str(CENTURY_MS)}
    for codec in ("none", "lz4"):
        slug = "" if codec == "none" else f"-{codec}"
        aged = batch(Record(), codec=codec)
        made.flag("TimestampOutOfRange").valid(
            f"timestamp-too-old{slug}",
            f"the record is two days old, but one day is allowed (codec {codec})",
            aged,
            broker=refuses("timestamp-out-of-range"),
            topic=near,
        )
        made.valid(
            f"timestamp-old{slug}",
            f"the record is two days old, and a century is allowed (codec {codec})",
            aged,
            broker=accepts(),
            topic=far,
        )
    made.valid(
        "timestamp-none",
        "the record has no timestamp, so the bounds do not apply",
        batch(Record(), base_timestamp=NO_TIMESTAMP),
        broker=accepts(),
        topic=near,
    )


def _sizes(made: Theme) -> None:
    largest = batch(Record(value=bytes(100)))
    size = len(largest.data)
    made.valid(
        "batch-at-limit",
        "the batch has as many bytes as max.message.bytes",
        largest,
        broker=accepts(),
        topic={"max_message_bytes": size},
    )
    made.valid(
        "batch-above-limit",
        "the batch has one byte more than max.message.bytes",
        largest,
        broker=refuses("batch-too-large"),
        topic={"max_message_bytes": size - 1},
    )
    made.valid(
        "request-above-limit",
        "the request has more bytes than socket.request.max.bytes; the broker closes the connection without an answer",
        batch(Record(value=bytes(REQUEST_BYTES_MAX))),
        broker=refuses("request-too-large"),
        topic={"max_request_bytes": REQUEST_BYTES_MAX},
    )
    made.valid(
        "batch-above-limit-once-rebuilt",
        "the batch is smaller than max.message.bytes, but larger once the broker has decompressed it",
        batch(Record(value=bytes(1000)), codec="zstd"),
        requirements=["LIM-DEFAULT-1", "RB-CODEC-9"],
        broker=refuses("batch-too-large"),
        topic={"compression": "none", "max_message_bytes": 500},
    )


def _codecs(made: Theme) -> None:
    plain = batch(Record(), Record(offset_delta=1, value=None))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        made.valid(
            f"recompressed-to-{codec}",
            f"a topic with codec {codec} gets an uncompressed batch",
            plain,
            requirements=["RB-CODEC-9"],
            broker=accepts(batches=_under(plain, codec)),
            topic={"compression": codec},
        )
    packed = batch(Record(), Record(offset_delta=1, value=None), codec="lz4")
    made.valid(
        "decompressed",
        "a topic without compression gets an lz4 batch",
        packed,
        requirements=["RB-CODEC-9"],
        broker=accepts(batches=_under(packed, "none")),
        topic={"compression": "none"},
    )
    unborn = batch(Record(), producer_id=7, producer_epoch=-1, base_sequence=0)
    for slug, compression, broker in (
        ("kept", "producer", accepts()),
        ("rebuilt", "gzip", refuses("rebuild-refused")),
    ):
        made.flag("CannotBeBuiltAnew").valid(
            f"producer-without-epoch-{slug}",
            f"producer id 7 has epoch -1, and the topic's compression.type is {compression}",
            unborn,
            requirements=["RB-PRODUCER-1", "RB-CODEC-9"],
            broker=broker,
            topic={"compression": compression},
        )


def _under(raw: Raw, codec: str) -> list[Json]:
    """The contents to read after the broker has compressed them with ``codec``."""
    return [{**contents, "compression": codec} for contents in raw.batches]
