"""Timestamps: create time and log-append time, deltas, the max timestamp."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.builder import CREATED_MS, Record, batch
from kfuzz.vectors.recipes.theme import Theme, accepts, refuses

INT64_MAX = 2**63 - 1


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/timestamp.json``."""
    made = Theme("records/v2/timestamp", "Timestamps of records and batches.")
    _create(made.having(harmless=True))
    _log_append(made)
    _overflow(made)
    _max(made)
    _odd(made)
    return made


def _create(made: Theme) -> None:
    cases = (
        ("create", "three records, one millisecond apart", CREATED_MS, (0, 1, 2)),
        (
            "create-out-of-order",
            "the second record is older than the first, so its delta is negative",
            CREATED_MS,
            (0, -1000, 500),
        ),
        ("zero", "the timestamp is 0, the epoch itself", 0, (0,)),
        ("none", "the timestamp is -1, which means none", -1, (0,)),
        (
            "before-epoch",
            "the timestamps are before the epoch; Kafka's reader returns them unchanged",
            -86_400_000,
            (0, 1),
        ),
        ("across-epoch", "the base timestamp is before the epoch, and one record is after it", -5, (0, 10)),
        ("largest", "the timestamp is INT64_MAX", INT64_MAX, (0,)),
        ("smallest", "the timestamp is INT64_MIN", -(2**63), (0,)),
        ("delta-largest", "the base timestamp is 0 and the delta is INT64_MAX", 0, (INT64_MAX,)),
        ("delta-smallest", "the base timestamp is 0 and the delta is INT64_MIN + 1", 0, (1 - 2**63,)),
    )
    for slug, summary, base, deltas in cases:
        records = (Record(offset_delta=index, timestamp_delta=delta) for index, delta in enumerate(deltas))
        # The documents do not mention times before the epoch. Kafka reads them, but does not write them.
        add = made.acceptable if min(base + delta for delta in deltas) < -1 else made.valid
        add(slug, summary, batch(*records, base_timestamp=base), requirements=["RB-TIMESTAMP-1", "RB-TIMESTAMP-4"])


def _log_append(made: Theme) -> None:
    log_append_time = made.flag("LogAppendTime", requirements=["RB-TIMESTAMP-5", "RB-ATTRIBUTES-2"])
    records = (Record(), Record(offset_delta=1, timestamp_delta=7), Record(offset_delta=2, timestamp_delta=-9))
    appended = CREATED_MS + 60_000
    log_append_time.valid(
        "log-append",
        "the deltas are still the producer's, but do not apply",
        batch(*records, log_append=True, max_timestamp=appended),
    )
    log_append_time.valid(
        "log-append-before-create",
        "the broker's clock is behind the producer's",
        batch(*records, log_append=True, max_timestamp=CREATED_MS - 60_000),
    )
    log_append_time.valid(
        "log-append-none",
        "the max timestamp is -1, and so is every record's",
        batch(*records, log_append=True, max_timestamp=-1),
        broker=refuses("log-append-time-produced"),
    )
    as_written = batch(
        Record(), Record(offset_delta=1), log_append=True, base_timestamp=appended, max_timestamp=appended
    )
    # The topic has CreateTime, so the broker clears the bit. Base and max timestamp are equal.
    stored_again = [{**contents, "timestamp_type": "create"} for contents in as_written.batches]
    log_append_time.valid(
        "log-append-as-kafka-writes",
        "base and max timestamp are the broker's and all deltas are 0, as Kafka's own builder writes it",
        as_written,
        broker=accepts(finding="timestamp-type-not-create", batches=stored_again),
    )
    for codec in ("gzip", "zstd"):
        log_append_time.valid(
            f"log-append-{codec}",
            f"the {codec} batch has LogAppendTime",
            batch(*records, codec=codec, log_append=True, max_timestamp=appended),
        )


def _overflow(made: Theme) -> None:
    cases = (("overflow", INT64_MAX, 1), ("overflow-twice-largest", INT64_MAX, INT64_MAX), ("underflow", -(2**63), -1))
    for slug, base, delta in cases:
        made.flag("TimestampOverflow").acceptable(
            slug,
            f"the base timestamp is {base} and the delta is {delta}; in Kafka the sum wraps",
            batch(
                Record(timestamp_delta=delta), base_timestamp=base, max_timestamp=INT64_MAX, hostile=["base_timestamp"]
            ),
            requirements=["RB-TIMESTAMP-1"],
            finding="timestamp-overflow",
        )


def _max(made: Theme) -> None:
    two = (Record(timestamp_delta=100), Record(offset_delta=1))
    wrong = (
        ("max-of-last", "is the last record's, as document 001 says, but an earlier record is newer", CREATED_MS),
        ("max-minus-one", "is -1, but the records have timestamps", -1),
        ("max-smallest", "is INT64_MIN", -(2**63)),
    )
    for slug, what, value in wrong:
        made.flag("MaxTimestampWrong").acceptable(
            slug,
            f"the max timestamp {what}",
            batch(*two, max_timestamp=value),
            requirements=["RB-TIMESTAMP-2"],
            finding="max-timestamp-below-records",
        )
    made.valid(
        "max-above-records",
        "the max timestamp is above every record's: compaction removed the newest",
        batch(*two, max_timestamp=CREATED_MS + 1_000_000, last_offset_delta=5),
        requirements=["RB-TIMESTAMP-2"],
    )


def _odd(made: Theme) -> None:
    """Timestamps that mean "none" together with real timestamps."""
    max_timestamp_wrong = made.flag(
        "MaxTimestampWrong", requirements=["RB-TIMESTAMP-2"], finding="max-timestamp-below-records"
    )
    timestamp_none = made.flag("TimestampNone")
    first, second = Record(), Record(offset_delta=1, timestamp_delta=5)
    timestamp_none.acceptable(
        "base-none-delta-positive",
        "the base timestamp is -1 and a delta is 5, so the second record's timestamp is 4",
        batch(first, second, base_timestamp=-1),
        requirements=["RB-TIMESTAMP-1", "RB-TIMESTAMP-3"],
    )
    timestamp_none.acceptable(
        "sum-is-none",
        "the base timestamp is 10 and a delta is -11; the sum is -1, which means none",
        batch(first, Record(offset_delta=1, timestamp_delta=-11), base_timestamp=10),
        requirements=["RB-TIMESTAMP-1"],
    )
    made.acceptable(
        "log-append-base-none",
        "the batch has LogAppendTime, and the base timestamp is -1",
        batch(first, log_append=True, base_timestamp=-1, max_timestamp=CREATED_MS, hostile=["base_timestamp"]),
        requirements=["RB-TIMESTAMP-5"],
        flags=["LogAppendTime", "TimestampNone"],
    )
    made.flag("LogAppendTime").acceptable(
        "log-append-smallest",
        "the batch has LogAppendTime, and the max timestamp is INT64_MIN",
        batch(first, log_append=True, max_timestamp=-(2**63)),
        requirements=["RB-TIMESTAMP-5"],
    )
    made.acceptable(
        "log-append-delta-overflow",
        "with LogAppendTime, base plus delta would overflow, but a reader must not add them",
        batch(
            Record(timestamp_delta=INT64_MAX),
            log_append=True,
            base_timestamp=INT64_MAX,
            max_timestamp=CREATED_MS,
            hostile=["base_timestamp"],
        ),
        requirements=["RB-TIMESTAMP-5", "RB-TIMESTAMP-1"],
        flags=["LogAppendTime", "TimestampOverflow"],
    )
    max_timestamp_wrong.acceptable(
        "max-below-first-of-three",
        "the max timestamp is below the first record's, but above the others'",
        batch(
            Record(timestamp_delta=100),
            Record(offset_delta=1, timestamp_delta=10),
            Record(offset_delta=2),
            max_timestamp=CREATED_MS + 50,
        ),
    )
    max_timestamp_wrong.acceptable(
        "max-below-base",
        "the max timestamp is one millisecond below the only record's",
        batch(first, max_timestamp=CREATED_MS - 1),
    )
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        records = (Record(timestamp_delta=100), Record(offset_delta=1))
        max_timestamp_wrong.acceptable(
            f"max-of-last-{codec}",
            f"the max timestamp of the {codec} batch is the last record's, not the largest",
            batch(*records, codec=codec, max_timestamp=CREATED_MS, hostile=["max_timestamp"]),
        )
