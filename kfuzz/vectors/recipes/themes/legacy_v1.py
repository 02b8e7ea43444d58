"""Messages of magic 1."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.builder import CREATED_MS, LOG_APPEND, message
from kfuzz.vectors.recipes.making.containers import lz4_frame, stored
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.legacy import common, cut, three, wrapper

INT64_MAX = 2**63 - 1


def theme() -> Theme:
    """The recipes of ``vectors/records/v1/message.json``."""
    made = Theme("records/v1/message", "Messages of magic 1: timestamps, relative offsets inside wrappers.")
    common(made, 1)
    _timestamps(made)
    _relative(made)
    _sizes(made)
    return made


def _timestamps(made: Theme) -> None:
    cases = (
        ("timestamp-none", "the timestamp is -1, which means none", -1),
        ("timestamp-zero", "the timestamp is 0, the epoch itself", 0),
        ("timestamp-largest", "the timestamp is INT64_MAX", INT64_MAX),
        ("timestamp-smallest", "the timestamp is INT64_MIN", -(2**63)),
    )
    for slug, summary, timestamp in cases:
        # The documents do not mention times before the epoch. Kafka reads them, but does not write them.
        add = made.acceptable if timestamp < -1 else made.valid
        add(slug, summary, message(1, timestamp=timestamp), requirements=["MS-TIMESTAMP-1", "MS-V1-1"])
    made.valid(
        "log-append",
        "attribute bit 3 is set: the timestamp is the broker's",
        message(1, attributes=LOG_APPEND),
        requirements=["MS-ATTRIBUTES-1"],
    )
    log_append_time = made.flag("LogAppendTime", requirements=["MS-WRAPPER-6", "MS-ATTRIBUTES-1"])
    appended = CREATED_MS + 60_000
    read = [{**record, "timestamp": str(appended)} for raw in three(1) for record in raw.batches[0]["records"]]
    log_append_time.valid(
        "wrapper-log-append",
        "a wrapper with LogAppendTime holds messages with CreateTime",
        wrapper(1, three(1), timestamp=appended, attributes=LOG_APPEND, contents=read),
    )
    made.valid(
        "wrapper-create",
        "a wrapper with CreateTime has the largest timestamp of its messages",
        wrapper(1, three(1), timestamp=CREATED_MS + 2),
        requirements=["MS-TIMESTAMP-1", "MS-WRAPPER-1"],
    )

    log_append_time.acceptable(
        "wrapper-create-inner-log-append",
        "a wrapper with CreateTime holds messages with LogAppendTime; Kafka uses each inner timestamp",
        wrapper(
            1,
            [message(1, offset=index, timestamp=CREATED_MS + index, attributes=LOG_APPEND) for index in range(2)],
            hostile=["value"],
        ),
    )
    none = [{**record, "timestamp": "-1"} for raw in three(1) for record in raw.batches[0]["records"]]
    log_append_time.acceptable(
        "wrapper-log-append-none",
        "a wrapper with LogAppendTime has the timestamp -1",
        wrapper(1, three(1), timestamp=-1, attributes=LOG_APPEND, contents=none, hostile=["timestamp"]),
        requirements=["MS-WRAPPER-6"],
    )
    log_append_time.acceptable(
        "wrapper-create-other-timestamp",
        "a wrapper with CreateTime has a timestamp of no inner message; Kafka does not check it",
        wrapper(1, three(1), timestamp=5, hostile=["timestamp"]),
        requirements=["MS-TIMESTAMP-1", "MS-WRAPPER-6"],
    )
    for codec in ("snappy", "lz4"):
        log_append_time.valid(
            f"wrapper-log-append-{codec}",
            f"the {codec} wrapper has LogAppendTime",
            wrapper(1, three(1), codec, timestamp=appended, attributes=LOG_APPEND, contents=read),
        )


def _relative(made: Theme) -> None:
    relative_offsets = made.flag("RelativeOffsets", requirements=["MS-WRAPPER-3"])
    first, _, third = three(1)
    relative_offsets.valid(
        "relative-with-gap",
        "the relative offsets are 0 and 2: compaction removed the message between",
        wrapper(1, [first, third], first=50),
        requirements=["MS-WRAPPER-3", "RB-OFFSET-6"],
    )
    relative_offsets.valid(
        "relative-not-from-zero",
        "the relative offsets are 1 and 2: compaction removed the first message",
        wrapper(1, three(1)[1:], first=50),
    )
    relative_offsets.acceptable(
        "relative-all-zero",
        "all inner offsets are 0, as some producers wrote them; Kafka returns the same offset three times",
        wrapper(1, [message(1, value=b"%d" % index) for index in range(3)], first=52),
    )
    relative_offsets.acceptable(
        "wrapper-offset-zero",
        "the wrapper's offset is 0, as some producers sent it; Kafka uses the inner offsets unchanged",
        wrapper(1, three(1), offset=0),
        requirements=["MS-WRAPPER-3", "MS-OFFSET-1"],
    )
    relative_offsets.invalid(
        "wrapper-offset-too-low",
        "the wrapper's offset is 1, below the last inner offset 2",
        wrapper(1, three(1), offset=1, hostile=["base_offset"]),
        finding="wrapper-offset-too-low",
    )
    relative_offsets.invalid(
        "wrapper-offset-negative",
        "the wrapper's offset is -1, below its inner offset 0",
        wrapper(1, three(1)[:1], offset=-1, hostile=["base_offset"]),
        requirements=["MS-WRAPPER-3", "MS-OFFSET-1"],
        finding="wrapper-offset-too-low",
    )
    relative_offsets.acceptable(
        "wrapper-offset-largest",
        "the wrapper's offset is INT64_MAX, so there is no next offset",
        wrapper(1, three(1), first=INT64_MAX - 2, hostile=["base_offset"]),
        requirements=["MS-WRAPPER-3", "RB-OFFSET-5"],
    )
    relative_offsets.valid(
        "relative-large",
        "the relative offsets are 0 and 2^31; the second does not fit a signed 32-bit number",
        wrapper(1, [message(1), message(1, offset=2**31)], first=7),
        requirements=["MS-WRAPPER-3", "RB-OFFSET-6"],
    )
    relative_offsets.acceptable(
        "absolute-inner-offsets",
        "the inner offsets are absolute, but should be relative; Kafka reads them unchanged",
        wrapper(1, three(1, 50)),
    )


def _sizes(made: Theme) -> None:
    for size in (14, 21):
        made.flag("MessageTruncated").invalid(
            f"size-{size}",
            f"the message has {size} bytes; magic 1 needs 22",
            cut(1, size),
            requirements=["MS-V1-1", "MS-FRAME-1"],
            finding="message-truncated",
        )
    plain = b"".join(raw.data for raw in three(1))
    right = stored("lz4", plain)[6]
    made.flag("Lz4OldChecksum").invalid(
        "lz4-old-checksum",
        "the lz4 frame's header checksum is wrong; only magic 0 allows that",
        wrapper(1, three(1), "lz4", hostile=["value"], stream=lz4_frame(plain, header_checksum=right ^ 0x5A)),
        requirements=["RB-LZ4-1"],
        finding="decompression-failed",
    )
