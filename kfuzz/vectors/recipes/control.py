"""Control batches: markers, their keys, and what is wrong with them. May import ``builder``."""

from __future__ import annotations

import struct
from typing import Any

from kfuzz.vectors.recipes.builder import Raw, Record, batch
from kfuzz.vectors.recipes.theme import Theme

ABORT, COMMIT = 0, 1


def theme() -> Theme:
    """records/v2/control"""
    made = Theme("records/v2/control", "Control batches: the markers that end a transaction, and others.")
    _markers(made)
    _types(made)
    _bad_keys(made)
    _shape(made)
    return made


def marker_key(kind: int, version: int = 0) -> bytes:
    """A control record's key: version and type, two bytes each."""
    return struct.pack(">hh", version, kind)


def marker(kind: int, *, coordinator_epoch: int = 0, **fields: Any) -> Raw:
    """The control batch that ends a transaction of producer 4000."""
    record = Record(key=marker_key(kind), value=struct.pack(">hi", 0, coordinator_epoch))
    return batch(record, transactional=True, control=True, producer_id=4000, producer_epoch=3, **fields)


def _markers(made: Theme) -> None:
    made.valid("abort", "an abort marker", marker(ABORT), requirements=["RB-CONTROL-1", "RB-CONTROL-2", "RB-CONTROL-3"])
    made.valid(
        "commit", "a commit marker", marker(COMMIT), requirements=["RB-CONTROL-1", "RB-CONTROL-2", "RB-CONTROL-3"]
    )
    made.valid(
        "commit-at-offset",
        "a commit marker at offset 77 with coordinator epoch 12",
        marker(COMMIT, coordinator_epoch=12, base_offset=77, partition_leader_epoch=5),
        requirements=["RB-CONTROL-1", "RB-CONTROL-4"],
    )
    values = (
        ("value-null", "the commit marker's value is null", None),
        ("value-empty", "the commit marker's value is empty", b""),
        (
            "value-of-later-version",
            "the commit marker's value has a version 1 and more bytes",
            bytes.fromhex("0001000000020000ff"),
        ),
    )
    for slug, summary, value in values:
        made.valid(
            slug,
            f"{summary}; it is opaque to clients",
            _control(Record(key=marker_key(COMMIT), value=value)),
            requirements=["RB-CONTROL-4"],
        )


def _control(*records: Record, **fields: Any) -> Raw:
    return batch(*records, transactional=True, control=True, producer_id=4000, producer_epoch=3, **fields)


def _types(made: Theme) -> None:
    made.flag(
        "ControlTypeOther",
        "strictness",
        "A control record of a type that clients have no use for.",
        "A reader that refuses what it does not know stops at the partition's first such marker; Kafka passes over it.",
        links=["rskafka #297"],
    )
    named = (
        ("leader-change", 2),
        ("snapshot-header", 3),
        ("snapshot-footer", 4),
        ("kraft-version", 5),
        ("kraft-voters", 6),
    )
    for slug, kind in named:
        made.acceptable(
            f"type-{slug}",
            f"a control record of type {kind} ({slug.replace('-', ' ')}), which the documents do not know",
            batch(Record(key=marker_key(kind), value=b"\x00\x00"), control=True),
            requirements=["RB-CONTROL-3"],
            flags=["ControlTypeOther"],
        )
    for slug, kind in (("seven", 7), ("largest", 32767), ("negative-one", -1)):
        made.acceptable(
            f"type-{slug}",
            f"a control record of type {kind}, which nobody knows",
            _bad_key(marker_key(kind)),
            requirements=["RB-CONTROL-3"],
            flags=["ControlTypeOther"],
            finding="control-key-invalid",
        )


def _bad_key(key: bytes | None) -> Raw:
    raw = {} if key is None else {"key": key}
    return _control(Record(key=key, value=struct.pack(">hi", 0, 0), raw=raw))


def _bad_keys(made: Theme) -> None:
    made.flag(
        "ControlKeyBad",
        "crash",
        "A control record's key is not a version and a type.",
        "A reader that takes four bytes without a look ends in an exception; a broker that loads the segment dies.",
    )
    cases = (
        ("key-null", "is null", None),
        ("key-empty", "is empty", b""),
        ("key-three-bytes", "has three bytes", b"\x00\x00\x00"),
        ("key-version-negative", "has version -1", marker_key(COMMIT, version=-1)),
    )
    for slug, what, key in cases:
        made.acceptable(
            slug,
            f"the control record's key {what}; Kafka's reader does not look",
            _bad_key(key),
            requirements=["RB-CONTROL-2"],
            flags=["ControlKeyBad"],
            finding="control-key-invalid",
        )
    made.acceptable(
        "key-of-later-version",
        "the control record's key has version 1 and two more bytes, which today's readers pass over",
        _control(Record(key=marker_key(COMMIT, version=1) + b"\x00\x09", value=struct.pack(">hi", 0, 0))),
        requirements=["RB-CONTROL-2"],
    )


def _shape(made: Theme) -> None:
    made.flag(
        "ControlRecordCount",
        "leniency",
        "A control batch does not hold exactly one record.",
        "A reader that looks at the first record only misses the second marker, or fails where there is none.",
    )
    records = [Record(offset_delta=index, key=marker_key(kind)) for index, kind in enumerate((ABORT, COMMIT))]
    made.acceptable(
        "two-records",
        "a control batch with an abort and a commit marker",
        _control(*records),
        requirements=["RB-CONTROL-1"],
        flags=["ControlRecordCount"],
        finding="control-record-count",
    )
    made.acceptable(
        "no-record",
        "a control batch without a record, as compaction once left them",
        _control(max_timestamp=1_700_000_000_000),
        requirements=["RB-CONTROL-1", "RB-COUNT-3"],
        flags=["ControlRecordCount"],
        finding="control-record-count",
    )
    made.valid(
        "not-transactional",
        "a commit marker in a batch that is not transactional: the two bits are independent",
        batch(
            Record(key=marker_key(COMMIT), value=struct.pack(">hi", 0, 0)),
            control=True,
            producer_id=4000,
            producer_epoch=3,
        ),
        requirements=["RB-ATTRIBUTES-3", "RB-ATTRIBUTES-4"],
    )
