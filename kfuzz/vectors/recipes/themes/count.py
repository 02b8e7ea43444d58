"""Batches whose record count matches, or contradicts, the records in them."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.builder import Record, batch
from kfuzz.vectors.recipes.making.containers import stored
from kfuzz.vectors.recipes.theme import SMALL, Theme


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/count.json``."""
    made = Theme("records/v2/count", "The record count: right, negative, too high, too low, and zero.")
    _right(made)
    _negative(made)
    _wrong(made)
    _by_codec(made)
    _zero(made)
    return made


def _right(made: Theme) -> None:
    for count in (2, 3, 64, 200):
        made.valid(
            f"of-{count}",
            f"the batch has {count} records, and the record count is right",
            batch(*(Record(offset_delta=index, value=b"%d" % index) for index in range(count))),
            requirements=["RB-COUNT-2", "RB-RECORDS-1"],
        )


def _negative(made: Theme) -> None:
    record_count_negative = made.flag(
        "RecordCountNegative", requirements=["RB-COUNT-1"], finding="record-count-negative", budget=SMALL
    )
    for slug, count in (("one", -1), ("two", -2), ("largest", -(2**31))):
        record_count_negative.invalid(
            f"negative-{slug}", f"the record count is {count}; the CRC is right", batch(Record(), record_count=count)
        )
    record_count_negative.invalid(
        "negative-one-without-records", "the record count is -1, and no record follows", batch(record_count=-1)
    )
    record_count_negative.invalid(
        "negative-one-gzip", "the record count of a gzip batch is -1", batch(Record(), codec="gzip", record_count=-1)
    )


def _wrong(made: Theme) -> None:
    record_count_too_high = made.flag(
        "RecordCountTooHigh", requirements=["RB-COUNT-2"], finding="record-count-too-high", budget=SMALL
    )
    record_count_too_low = made.flag("RecordCountTooLow", requirements=["RB-COUNT-2"], finding="record-count-too-low")
    two = (Record(), Record(offset_delta=1))
    highs = (("one-too-high", 3), ("thousand", 1000), ("hundred-million", 100_000_000), ("largest", INT32_MAX))
    for slug, count in highs:
        record_count_too_high.invalid(
            slug, f"the record count is {count}, but the batch has two records", batch(*two, record_count=count)
        )
    record_count_too_high.invalid(
        "largest-without-records",
        "the record count is INT32_MAX, but the batch is only a header",
        batch(record_count=INT32_MAX),
    )
    record_count_too_high.invalid(
        "one-without-records", "the record count is 1, but the batch is only a header", batch(record_count=1)
    )
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        record_count_too_high.invalid(
            f"largest-{codec}",
            f"the record count of the {codec} batch is INT32_MAX, but there is one record",
            batch(Record(), codec=codec, record_count=INT32_MAX),
        )
    record_count_too_low.invalid(
        "one-too-low", "the record count is 1, but the batch has two records", batch(*two, record_count=1)
    )
    whole = b"".join(record.encode() for record in two)
    for codec in ("none", "gzip", "zstd"):
        payload = stored(codec, whole + b"\x00")
        made.flag("BytesAfterRecords").invalid(
            "byte-after-records" + ("" if codec == "none" else f"-{codec}"),
            "a zero byte follows the last record" + ("" if codec == "none" else f" ({codec})"),
            batch(*two, codec=codec, payload=payload),
            requirements=["RB-RECORDS-1", "RB-COUNT-2"],
            finding="record-count-too-low",
        )
    record_count_too_low.invalid(
        "one-too-low-zstd",
        "the record count of a zstd batch is 1, but there are two records",
        batch(*two, codec="zstd", record_count=1),
    )


def _by_codec(made: Theme) -> None:
    """The same wrong counts with each codec: a reader must open the payload to find out."""
    two = (Record(), Record(offset_delta=1))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        cases = (
            ("negative-two", -2, "RecordCountNegative", "record-count-negative"),
            ("one-too-high", 3, "RecordCountTooHigh", "record-count-too-high"),
            ("one-too-low", 1, "RecordCountTooLow", "record-count-too-low"),
        )
        for slug, count, flag, finding in cases:
            if f"{slug}-{codec}" == "one-too-low-zstd":
                continue
            made.invalid(
                f"{slug}-{codec}",
                f"the record count of the {codec} batch is {count}, but there are two records",
                batch(*two, codec=codec, record_count=count),
                requirements=["RB-COUNT-1" if count < 0 else "RB-COUNT-2", "RB-CODEC-3"],
                flags=[flag],
                finding=finding,
                budget=SMALL,
            )
        made.acceptable(
            f"zero-with-record-{codec}",
            f"the record count of the {codec} batch is 0, but its stream holds two records; Kafka reads none",
            batch(*two, codec=codec, record_count=0, contents=[]),
            requirements=["RB-COUNT-2", "RB-COUNT-3"],
            flags=["CountZeroWithPayload"],
            finding="payload-without-records",
        )


def _zero(made: Theme) -> None:
    count_zero_with_payload = made.flag(
        "CountZeroWithPayload", requirements=["RB-COUNT-2", "RB-COUNT-3"], finding="payload-without-records"
    )
    count_zero_with_payload.acceptable(
        "zero-with-record",
        "the record count is 0, but a whole record follows; Kafka reads none",
        batch(Record(), record_count=0, contents=[]),
    )
    count_zero_with_payload.acceptable(
        "zero-with-garbage",
        "the record count is 0, but three bytes follow that are not a record",
        batch(payload=b"\xff\xff\xff", record_count=0, hostile=["payload"]),
    )
