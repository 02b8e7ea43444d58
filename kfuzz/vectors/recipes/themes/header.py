"""The header of a record batch: the values of each field, the attribute bits, and the CRC."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import crc32c

from kfuzz.kafka import INT32_MAX, INT64_MAX
from kfuzz.vectors.recipes.making.builder import Raw, Record, batch
from kfuzz.vectors.recipes.theme import SMALL, Expectation, Theme, accepts, refuses

INT16_MAX = 2**15 - 1
# In a log, the batch's offset is below the base offset of its segment.
OUTSIDE = refuses("offset-outside-segment")
CRC_AT, ATTRIBUTES_AT, VALUE_AT = 17, 21, -2


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/header.json``."""
    made = Theme("records/v2/header", "The 61 bytes of a batch's header, field by field, and its CRC.")
    _fields(made)
    _attributes(made)
    _last_offset(made)
    _extremes(made)
    _producers(made)
    _crc(made)
    return made


def _fields(made: Theme) -> None:
    made.valid(
        "minimal",
        "one record with key and value; the layout lists every field",
        batch(Record(), annotate=True),
        requirements=[
            "RB-ATTRIBUTES-1",
            "RB-COUNT-1",
            "RB-CRC-1",
            "RB-CRC-3",
            "RB-CRC-4",
            "RB-CRC-5",
            "RB-HEADER-1",
            "RB-LENGTH-1",
            "RB-LENGTH-2",
            "RB-OFFSET-7",
            "RB-RECORD-1",
            "RB-RECORD-2",
            "RB-TIMESTAMP-6",
            "RB-VARINT-2",
            "LIM-DEFAULT-1",
            "PRO-CONTROL-1",
            "PRO-COUNT-1",
            "PRO-CRC-1",
            "PRO-MAGIC-1",
            "PRO-REQUEST-1",
        ],
        broker=accepts(),
    )
    made.valid(
        "every-field-set",
        "every header field has an unusual value",
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
        requirements=["RB-HEADER-1", "RB-OFFSET-3", "RB-PRODUCER-1", "RB-SEQUENCE-1"],
    )
    made.valid(
        "base-offset-beyond-32-bits",
        "the base offset needs more than 32 bits; a reader must not truncate offsets",
        batch(Record(), Record(offset_delta=1), base_offset=2**32 + 5),
        requirements=["RB-OFFSET-1", "RB-OFFSET-4"],
    )
    made.valid(
        "base-offset-beyond-53-bits",
        "the base offset cannot be represented as a double",
        batch(Record(), base_offset=2**53 + 1),
        requirements=["RB-OFFSET-1"],
    )
    made.valid(
        "base-offset-largest",
        "the base offset is INT64_MAX - 1, the largest one with a next offset",
        batch(Record(), base_offset=INT64_MAX - 1),
        requirements=["RB-OFFSET-1", "RB-OFFSET-5"],
    )
    for slug, offset, what in (
        ("negative", -1, "-1; no document forbids it"),
        ("minus-two", -2, "-2, which clients send to request the earliest offset"),
        ("smallest", -(2**63), "INT64_MIN"),
    ):
        made.flag("NegativeOffset").acceptable(
            f"base-offset-{slug}",
            f"the base offset is {what}",
            batch(Record(), base_offset=offset),
            requirements=["RB-OFFSET-1"],
            finding="base-offset-negative",
            log=OUTSIDE,
        )
    for slug, epoch in (("none", -1), ("largest", INT32_MAX), ("smallest", -(2**31))):
        made.valid(
            f"leader-epoch-{slug}",
            f"the partition leader epoch is {epoch}; clients ignore it",
            batch(Record(), partition_leader_epoch=epoch),
            requirements=["RB-EPOCH-1"],
        )
    made.valid(
        "producer-fields-largest",
        "producer id, epoch and base sequence are the largest values of their types",
        batch(Record(), producer_id=INT64_MAX, producer_epoch=INT16_MAX, base_sequence=INT32_MAX),
        requirements=["RB-PRODUCER-1", "RB-SEQUENCE-1"],
    )


def _attributes(made: Theme) -> None:
    # The attributes are signed.
    single = {bit: 1 << bit for bit in range(7, 15)} | {15: -0x8000}
    for slug, what, bits in (
        *((f"unused-bit-{bit}", f"attribute bit {bit} is set; the bit has no meaning", single[bit]) for bit in single),
        ("unused-bits-all", "attribute bits 7 to 15 are all set", -0x80),
    ):
        made.flag("UnusedAttributeBit").acceptable(
            slug,
            what,
            batch(Record(), attributes=bits),
            requirements=["RB-ATTRIBUTES-1"],
            finding="attributes-unused-bits",
        )
    for codec in (5, 6, 7):
        made.flag("UnknownCodec").invalid(
            f"codec-{codec}",
            f"the attributes name codec {codec}, which is not defined",
            batch(Record(), attributes=codec),
            requirements=["RB-CODEC-1"],
            finding="codec-unknown",
        )


def _last_offset(made: Theme) -> None:
    last_offset_delta_wrong = made.flag(
        "LastOffsetDeltaWrong", requirements=["RB-OFFSET-2"], finding="last-offset-delta-negative"
    )
    two = (Record(), Record(offset_delta=1))
    last_offset_delta_wrong.acceptable(
        "last-offset-delta-too-low",
        "the last offset delta is 0, but the second record's delta is 1",
        batch(*two, last_offset_delta=0),
        finding="offset-delta-beyond-last",
    )
    for slug, delta, what in (
        ("negative", -1, "-1, but there is a record"),
        ("smallest", -(2**31), "INT32_MIN: the batch ends 2^31 offsets before its start"),
    ):
        last_offset_delta_wrong.acceptable(
            f"last-offset-delta-{slug}",
            f"the last offset delta is {what}",
            batch(Record(), last_offset_delta=delta),
            log=OUTSIDE,
        )


def _extremes(made: Theme) -> None:
    """Offsets at the ends of their ranges and beyond."""
    last_offset_delta_wrong = made.flag("LastOffsetDeltaWrong", finding="last-offset-delta-negative")
    offset_extreme = made.flag("OffsetExtreme", requirements=["RB-OFFSET-5", "SEG-OFFSET-1"])
    offset_extreme.acceptable(
        "base-offset-int64-max",
        "the base offset is INT64_MAX, so there is no next offset; Kafka's next offset wraps",
        batch(Record(), base_offset=INT64_MAX),
        log=refuses("log-end-overflow"),
    )
    made.valid(
        "last-offset-at-int64-max-minus-one",
        "the batch spans ten offsets; the last one is INT64_MAX - 1",
        batch(Record(offset_delta=9), base_offset=INT64_MAX - 10, last_offset_delta=9),
        requirements=["RB-OFFSET-4", "RB-OFFSET-5", "RB-OFFSET-6"],
    )
    offset_extreme.acceptable(
        "last-offset-beyond-64-bits",
        "base offset plus last offset delta exceeds INT64_MAX, but the record's offset does not",
        batch(Record(), base_offset=INT64_MAX - 5, last_offset_delta=10),
        log=accepts(finding="log-end-overflow"),
    )
    made.valid(
        "last-offset-delta-largest",
        "the last offset delta is INT32_MAX: compaction left one record out of two billion",
        batch(Record(), last_offset_delta=INT32_MAX),
        requirements=["RB-OFFSET-2", "RB-OFFSET-5"],
    )
    for slug, delta in (("minus-two", -2), ("int32-min-plus-one", -(2**31) + 1)):
        last_offset_delta_wrong.acceptable(
            f"last-offset-delta-{slug}",
            f"the last offset delta is {delta}",
            batch(Record(), base_offset=2**32, last_offset_delta=delta, hostile=["last_offset_delta"]),
            requirements=["RB-OFFSET-2"],
            log=OUTSIDE,
        )
    record = Record()
    unreadable = (
        ("crc-wrong", "the CRC is wrong", batch(record, last_offset_delta=INT32_MAX, crc=0), "crc-mismatch"),
        (
            "codec-unknown",
            "the codec is unknown",
            batch(record, last_offset_delta=INT32_MAX, attributes=7),
            "codec-unknown",
        ),
        (
            "stream-broken",
            "the gzip stream is garbage",
            batch(record, last_offset_delta=INT32_MAX, codec="gzip", payload=b"garbage!", hostile=["payload"]),
            "decompression-failed",
        ),
        ("magic-unknown", "the magic is 5", batch(record, last_offset_delta=INT32_MAX, magic=5), "magic-unknown"),
        (
            "record-cut",
            "its only record is truncated",
            batch(record, last_offset_delta=INT32_MAX, payload=record.encode()[:-2], hostile=["payload"]),
            "record-length-exceeds-payload",
        ),
    )
    for slug, what, raw, finding in unreadable:
        made.flag("LastOffsetDeltaFanOut").invalid(
            f"last-offset-delta-largest-and-{slug}",
            f"the last offset delta is INT32_MAX, and {what}",
            raw,
            requirements=["RB-OFFSET-2", "RB-CRC-3"],
            finding=finding,
            level="recommended" if slug == "crc-wrong" else "required",
            budget=SMALL,
        )
    last_offset_delta_wrong.acceptable(
        "last-offset-delta-negative-empty",
        "the last offset delta of a batch without records is -1: the batch ends before its start",
        batch(last_offset_delta=-1, base_offset=7, hostile=["last_offset_delta"]),
        requirements=["RB-OFFSET-2", "RB-COUNT-3"],
        log=OUTSIDE,
    )


def _producers(made: Theme) -> None:
    """Producer id, epoch and sequence that contradict each other; a reader of a fetch ignores them."""
    producer_fields_contradict = made.flag("ProducerFieldsContradict")
    cases: tuple[tuple[str, str, dict[str, Any]], ...] = (
        (
            "producer-id-without-epoch",
            "there is a producer id, but the epoch is -1",
            {"producer_id": 4000, "base_sequence": 0},
        ),
        (
            "producer-id-without-sequence",
            "there are a producer id and an epoch, but the base sequence is -1",
            {"producer_id": 4000, "producer_epoch": 0},
        ),
        ("epoch-without-producer-id", "there is a producer epoch, but the producer id is -1", {"producer_epoch": 5}),
        ("sequence-without-producer-id", "there is a base sequence, but the producer id is -1", {"base_sequence": 5}),
        ("producer-id-minus-two", "the producer id is -2", {"producer_id": -2}),
        ("producer-id-smallest", "the producer id is INT64_MIN", {"producer_id": -(2**63)}),
        ("producer-epoch-minus-two", "the producer epoch is -2", {"producer_epoch": -2}),
        ("producer-epoch-smallest", "the producer epoch is -32768", {"producer_epoch": -(2**15)}),
        ("base-sequence-minus-two", "the base sequence is -2", {"base_sequence": -2}),
        ("base-sequence-smallest", "the base sequence is INT32_MIN", {"base_sequence": -(2**31)}),
    )
    for slug, summary, fields in cases:
        producer_fields_contradict.acceptable(
            slug,
            f"{summary}; Kafka's reader does not check",
            batch(Record(), **fields),
            requirements=["RB-PRODUCER-1", "RB-SEQUENCE-1"],
            broker=_without_id(fields),
        )
    producer_fields_contradict.acceptable(
        "transactional-without-producer",
        "the batch is transactional, but producer id and epoch are -1",
        batch(Record(), transactional=True),
        requirements=["RB-ATTRIBUTES-3", "RB-PRODUCER-1"],
        broker=accepts(finding="transactional-without-id"),
    )


def _without_id(fields: dict[str, Any]) -> Expectation | None:
    """A broker stores a batch that has no producer id but other producer fields."""
    return None if fields.get("producer_id", -1) >= 0 else accepts(finding="producer-fields-without-id")


def _crc(made: Theme) -> None:
    crc_wrong = made.flag(
        "CrcWrong",
        requirements=["RB-CRC-1", "RB-CRC-3", "RB-CRC-4", "RB-CRC-5", "PRO-CRC-1"],
        finding="crc-mismatch",
        level="recommended",
        broker=refuses("crc-mismatch"),
    )
    good = batch(Record())
    other_crcs = (
        ("wrong", "differs in its lowest bit", int.from_bytes(good.data[CRC_AT:ATTRIBUTES_AT], "big") ^ 1),
        ("zero", "is 0, as if it were never computed", 0),
        ("of-ieee-polynomial", "is CRC-32 (IEEE), as in magic 0 and 1", zlib.crc32(good.data[ATTRIBUTES_AT:])),
        ("from-leader-epoch", "covers the leader epoch and the magic too", _crc_from_epoch(good.data)),
        ("of-records-only", "covers the records but not the header", crc32c.crc32c(good.data[61:])),
        ("byte-swapped", "has the right value, but is little-endian", _swapped(good.data)),
        ("all-ones", "is 0xffffffff, the initial value of the computation", 0xFFFFFFFF),
        ("inverted", "has all bits inverted: the final inversion was left out", _crc_of(good.data) ^ 0xFFFFFFFF),
        ("with-crc-field", "covers its own four bytes, as zeros", crc32c.crc32c(bytes(4) + good.data[ATTRIBUTES_AT:])),
        ("of-whole-batch", "covers the batch from its base offset", crc32c.crc32c(good.data)),
        ("of-length-behind", "does not cover the last byte", crc32c.crc32c(good.data[ATTRIBUTES_AT:-1])),
        ("highest-bit", "differs only in its highest bit", _crc_of(good.data) ^ 0x80000000),
    )
    for slug, what, crc in other_crcs:
        crc_wrong.invalid(f"crc-{slug}", f"the CRC {what}", batch(Record(), crc=crc))
    for slug, what, at in (
        ("attributes", "a bit of the attributes was flipped", ATTRIBUTES_AT + 1),
        ("value", "a bit of the record's value was flipped", VALUE_AT),
        ("last-offset-delta", "a bit of the last offset delta was flipped", 26),
        ("base-timestamp", "a bit of the base timestamp was flipped", 27),
        ("producer-id", "a bit of the producer id was flipped", 50),
        ("record-count", "a bit of the record count was flipped (it is now 17)", 60),
        ("record-length", "a bit of the record's length was flipped", 61),
        ("last-byte", "a bit of the batch's last byte was flipped", -1),
    ):
        crc_wrong.invalid(f"crc-stale-{slug}", f"{what} after the CRC was computed", _flipped(good, at))
    made.valid(
        "crc-outside-fields-changed",
        "the broker set base offset and leader epoch after the CRC was computed; the CRC does not cover them",
        _rebased(good, base_offset=500, leader_epoch=3),
        requirements=["RB-CRC-2", "RB-EPOCH-1"],
    )


def _crc_from_epoch(data: bytes) -> int:
    return crc32c.crc32c(data[12:CRC_AT] + data[ATTRIBUTES_AT:])


def _crc_of(data: bytes) -> int:
    return int.from_bytes(data[CRC_AT:ATTRIBUTES_AT], "big")


def _swapped(data: bytes) -> int:
    return int.from_bytes(data[CRC_AT:ATTRIBUTES_AT], "little")


def _flipped(raw: Raw, at: int) -> Raw:
    data = bytearray(raw.data)
    data[at] ^= 0x10
    return replace(raw, data=bytes(data), layout=batch(Record(), crc=0).layout)


def _rebased(raw: Raw, *, base_offset: int, leader_epoch: int) -> Raw:
    again = batch(Record(), base_offset=base_offset, partition_leader_epoch=leader_epoch)
    return replace(again, data=again.data[:CRC_AT] + raw.data[CRC_AT:])
