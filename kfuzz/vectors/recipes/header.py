"""The header of a record batch: what each field may hold, the attribute bits, and the CRC. May import ``builder``."""

from __future__ import annotations

import zlib
from dataclasses import replace

import crc32c

from kfuzz.vectors.recipes.builder import Raw, Record, batch
from kfuzz.vectors.recipes.theme import Theme

INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
CRC_AT, ATTRIBUTES_AT, VALUE_AT = 17, 21, -2


def theme() -> Theme:
    """records/v2/header"""
    made = Theme("records/v2/header", "The 61 bytes of a batch's header, field by field, and the CRC over the rest.")
    _fields(made)
    _attributes(made)
    _last_offset(made)
    _crc(made)
    return made


def _fields(made: Theme) -> None:
    made.valid(
        "minimal",
        "one record with key and value; every field annotated",
        batch(Record(), annotate=True),
        requirements=["RB-HEADER-1", "RB-LENGTH-1", "RB-RECORD-1"],
    )
    made.valid(
        "every-field-set",
        "no field of the header holds the value that most batches have there",
        batch(
            Record(),
            Record(offset_delta=1, timestamp_delta=5),
            base_offset=1_000_000_007,
            partition_leader_epoch=42,
            producer_id=123_456_789_012,
            producer_epoch=7,
            base_sequence=99,
            transactional=True,
        ),
        requirements=["RB-HEADER-1", "RB-PRODUCER-1", "RB-SEQUENCE-1"],
    )
    made.valid(
        "base-offset-beyond-32-bits",
        "the base offset needs more than 32 bits; record offsets are not to be cut",
        batch(Record(), Record(offset_delta=1), base_offset=2**32 + 5),
        requirements=["RB-OFFSET-1", "RB-OFFSET-4"],
    )
    made.valid(
        "base-offset-beyond-53-bits",
        "the base offset is not representable as a double",
        batch(Record(), base_offset=2**53 + 1),
        requirements=["RB-OFFSET-1"],
    )
    made.valid(
        "base-offset-largest",
        "the base offset is INT64_MAX - 1, the largest after which there is a next one",
        batch(Record(), base_offset=INT64_MAX - 1),
        requirements=["RB-OFFSET-1", "RB-OFFSET-5"],
    )
    made.flag(
        "NegativeOffset",
        "confusion",
        "An offset below 0, which clients keep for special meanings such as 'earliest' (-2).",
        "A consumer may seek to the end or commit an offset that means something else.",
    )
    made.acceptable(
        "base-offset-negative",
        "the base offset is -1; no document says that it may not be",
        batch(Record(), base_offset=-1, hostile=["base_offset"]),
        requirements=["RB-OFFSET-1"],
        flags=["NegativeOffset"],
        finding="base-offset-negative",
    )
    for slug, epoch in (("none", -1), ("largest", INT32_MAX), ("smallest", -(2**31))):
        made.valid(
            f"leader-epoch-{slug}",
            f"the partition leader epoch is {epoch}; no client cares",
            batch(Record(), partition_leader_epoch=epoch),
            requirements=["RB-EPOCH-1"],
        )
    made.valid(
        "producer-fields-largest",
        "producer id, epoch and base sequence are the largest of their types",
        batch(Record(), producer_id=INT64_MAX, producer_epoch=INT16_MAX, base_sequence=INT32_MAX),
        requirements=["RB-PRODUCER-1", "RB-SEQUENCE-1"],
    )


def _attributes(made: Theme) -> None:
    made.flag(
        "UnusedAttributeBit",
        "strictness",
        "An attribute bit that no document defines is set.",
        "A reader that refuses it cannot read what a later version writes; Kafka ignores it.",
    )
    for slug, bits in (("7", 0x80), ("8", 0x100), ("15", -0x8000), ("all", -0x80)):
        made.acceptable(
            f"unused-bit-{slug}" if slug != "all" else "unused-bits-all",
            f"attribute bit {slug} is set, which has no meaning"
            if slug != "all"
            else "attribute bits 7 to 15 are all set",
            batch(Record(), attributes=bits, hostile=["attributes"]),
            requirements=["RB-ATTRIBUTES-1"],
            flags=["UnusedAttributeBit"],
            finding="attributes-unused-bits",
        )
    made.flag(
        "UnknownCodec",
        "crash",
        "The attributes name a codec that does not exist.",
        "Readers that index a table of codecs read past it, or take the records for uncompressed.",
    )
    for codec in (5, 6, 7):
        made.invalid(
            f"codec-{codec}",
            f"the attributes name codec {codec}, which is not defined",
            batch(Record(), attributes=codec, hostile=["attributes"]),
            requirements=["RB-CODEC-1"],
            flags=["UnknownCodec"],
            finding="codec-unknown",
        )


def _last_offset(made: Theme) -> None:
    made.flag(
        "LastOffsetDeltaWrong",
        "lost-data",
        "The last offset delta does not say where the batch ends.",
        "A consumer takes its next fetch offset from it: it reads records again, skips some, or never moves on.",
        links=["KAFKA-6554", "sarama #1026"],
    )
    two = (Record(), Record(offset_delta=1))
    made.acceptable(
        "last-offset-delta-too-low",
        "the last offset delta is 0, but the second record's delta is 1",
        batch(*two, last_offset_delta=0, hostile=["last_offset_delta"]),
        requirements=["RB-OFFSET-2"],
        flags=["LastOffsetDeltaWrong"],
        finding="offset-delta-beyond-last",
    )
    made.acceptable(
        "last-offset-delta-negative",
        "the last offset delta is -1 though there is a record",
        batch(Record(), last_offset_delta=-1, hostile=["last_offset_delta"]),
        requirements=["RB-OFFSET-2"],
        flags=["LastOffsetDeltaWrong"],
        finding="last-offset-delta-negative",
    )
    made.acceptable(
        "last-offset-delta-smallest",
        "the last offset delta is INT32_MIN: the batch seems to end 2^31 before it begins",
        batch(Record(), last_offset_delta=-(2**31), hostile=["last_offset_delta"]),
        requirements=["RB-OFFSET-2"],
        flags=["LastOffsetDeltaWrong"],
        finding="last-offset-delta-negative",
    )


def _crc(made: Theme) -> None:
    made.flag(
        "CrcWrong",
        "corruption",
        "The CRC does not fit the bytes.",
        "A reader that does not look gives damaged records to the application.",
        links=["Dekaf #1727"],
    )
    good = batch(Record())
    other_crcs = (
        ("wrong", "differs in its lowest bit", int.from_bytes(good.data[CRC_AT:ATTRIBUTES_AT], "big") ^ 1),
        ("zero", "is 0, as if nobody had computed it", 0),
        ("of-ieee-polynomial", "is CRC-32 (IEEE), as in magic 0 and 1", zlib.crc32(good.data[ATTRIBUTES_AT:])),
        ("from-leader-epoch", "covers the leader epoch and the magic too", _crc_from_epoch(good.data)),
        ("of-records-only", "covers the records and not the header", crc32c.crc32c(good.data[61:])),
        ("byte-swapped", "is right, but little-endian", _swapped(good.data)),
    )
    for slug, what, crc in other_crcs:
        made.invalid(
            f"crc-{slug}",
            f"the CRC {what}",
            batch(Record(), crc=crc),
            requirements=["RB-CRC-1", "RB-CRC-3"],
            flags=["CrcWrong"],
            finding="crc-mismatch",
            level="recommended",
        )
    for slug, what, at in (
        ("attributes", "a bit of the attributes flipped", ATTRIBUTES_AT + 1),
        ("value", "a bit of the record's value flipped", VALUE_AT),
    ):
        made.invalid(
            f"crc-stale-{slug}",
            f"{what} after the CRC was computed",
            _flipped(good, at),
            requirements=["RB-CRC-1", "RB-CRC-3"],
            flags=["CrcWrong"],
            finding="crc-mismatch",
            level="recommended",
        )
    made.valid(
        "crc-outside-fields-changed",
        "the broker set base offset and leader epoch after the CRC was computed, which does not cover them",
        _rebased(good, base_offset=500, leader_epoch=3),
        requirements=["RB-CRC-2", "RB-EPOCH-1"],
    )


def _crc_from_epoch(data: bytes) -> int:
    return crc32c.crc32c(data[12:CRC_AT] + data[ATTRIBUTES_AT:])


def _swapped(data: bytes) -> int:
    return int.from_bytes(data[CRC_AT:ATTRIBUTES_AT], "little")


def _flipped(raw: Raw, at: int) -> Raw:
    data = bytearray(raw.data)
    data[at] ^= 0x10
    return replace(raw, data=bytes(data), layout=batch(Record(), crc=0).layout)


def _rebased(raw: Raw, *, base_offset: int, leader_epoch: int) -> Raw:
    again = batch(Record(), base_offset=base_offset, partition_leader_epoch=leader_epoch)
    return replace(again, data=again.data[:CRC_AT] + raw.data[CRC_AT:])
