"""What Apache Kafka fixes, once: the releases known here, and the words and numbers that are not part of the C code.

Numbers that the compiled loops need (header places, attribute bits) stand in ``kfuzz/wire/*.pxd``. docs/new-release.md
says what else a new release needs.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

__all__ = [
    "BROKER_RELEASE",
    "CODECS",
    "INDEX_INTERVAL_BYTES",
    "INT32_MAX",
    "INT64_MAX",
    "ISOLATIONS",
    "KAFKA_3",
    "LATEST",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "RELEASES",
    "ROLES",
    "TIMESTAMP_TYPES",
    "Codec",
    "Isolation",
    "Role",
    "TimestampType",
    "major_of",
]

# The releases whose clients are testees and whose message definitions are catalogues, oldest first. Every vector was
# shown to each of them.
RELEASES: Final = ("3.9.2", "4.4.0")
# The release that kfuzz follows: its answer decides a verdict.
LATEST: Final = RELEASES[-1]
# The last release line that still wrote and converted the older formats (magic 0 and 1).
KAFKA_3: Final = RELEASES[0]
# The broker that is started for real; docs/real-broker.md says why it is not the latest.
BROKER_RELEASE: Final = "4.3.1"

# A codec's index here is its number in the attributes; org.apache.kafka.common.record.CompressionType.
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: Final[tuple[Codec, ...]] = get_args(Codec)

TimestampType = Literal["none", "create", "log-append"]
TIMESTAMP_TYPES: Final[tuple[TimestampType, ...]] = get_args(TimestampType)

# Who judges the bytes: a consumer that fetched them, a broker that gets them in a Produce request, a log that loads
# them from a segment.
Role = Literal["consumer", "broker", "log"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

Isolation = Literal["read_uncommitted", "read_committed"]
ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

# What a field holds when it has no value; org.apache.kafka.common.record.RecordBatch.
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1

# A log writes one index entry per this many bytes unless told otherwise (``index.interval.bytes``).
INDEX_INTERVAL_BYTES: Final = 4096


def major_of(release: str) -> str:
    """The release's major version.

    >>> major_of("4.4.0")
    '4'
    """
    return release.partition(".")[0]
