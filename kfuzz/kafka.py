"""Constants of Apache Kafka: the releases known here, and the names and numbers that the C code does not need.

The numbers that the compiled loops need (header offsets, attribute bits) are in ``kfuzz/wire/io/format.h``.
docs/new-release.md says what else a new release needs.
"""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

# The releases whose clients are testees and whose message definitions are catalogues, oldest first. Every vector has
# been tested against each of them.
RELEASES: Final = ("3.9.2", "4.4.0")
# The release that kfuzz follows: its answer decides each verdict.
LATEST: Final = RELEASES[-1]
# The last release line that still wrote and converted the older formats (magic 0 and 1).
KAFKA_3: Final = RELEASES[0]
# The release of the real broker that the tests start (docs/real-broker.md).
BROKER_RELEASE: Final = "4.4.0"

# A codec's index here is its number in the attributes; org.apache.kafka.common.record.CompressionType. C has these
# numbers in kfuzz/wire/io/format.h, and kfuzz/records/codecs has the functions. docs/new-release.md lists all places.
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: Final[tuple[Codec, ...]] = get_args(Codec)
# Those that messages of magic 0 and 1 know. Later ones need record batches.
MESSAGE_CODECS: Final[tuple[Codec, ...]] = CODECS[: CODECS.index("lz4") + 1]

TimestampType = Literal["none", "create", "log-append"]
TIMESTAMP_TYPES: Final[tuple[TimestampType, ...]] = get_args(TimestampType)

# The part of Kafka that judges the bytes: a consumer that fetched them, a broker that received them in a Produce
# request, or a log that loads them from a segment.
Role = Literal["consumer", "broker", "log"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

Isolation = Literal["read_uncommitted", "read_committed"]
ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

# Values that mean "not set"; org.apache.kafka.common.record.RecordBatch.
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1

# A name that Kafka allows for a topic; org.apache.kafka.common.internals.Topic.
TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")

# A log writes one index entry per this many bytes: the default of ``index.interval.bytes``.
INDEX_INTERVAL_BYTES: Final = 4096


def codecs_of(magic: int) -> tuple[Codec, ...]:
    """The codecs that batches or messages of this magic know.

    >>> codecs_of(1)
    ('none', 'gzip', 'snappy', 'lz4')
    """
    return MESSAGE_CODECS if magic < 2 else CODECS


def major_of(release: str) -> str:
    """The release's major version.

    >>> major_of("4.4.0")
    '4'
    """
    return release.partition(".")[0]


# The topics that Kafka's own components keep their state in. The records of a KRaft log are in a folder as of a topic.
INTERNAL_TOPICS: tuple[str, ...] = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
    "__remote_log_metadata",
)
# Those of them that a broker lets no client write to.
CLOSED_TOPICS: tuple[str, ...] = INTERNAL_TOPICS[:4]
