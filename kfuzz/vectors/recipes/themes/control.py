"""Control batches: valid and broken markers, and other control records."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from kfuzz.vectors.recipes.making.builder import CREATED_MS, Raw, Record, batch
from kfuzz.vectors.recipes.theme import SMALL, Theme, refuses
from kfuzz.wire.io.cursor import uvarint

ABORT, COMMIT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = range(7)
# A broker that starts with such a segment parses its markers, and crashes.
BROKEN_MARKER = refuses("end-marker-invalid")


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/control.json``."""
    about = "Control batches: the markers that end a transaction, and others."
    # Their contents are unusual, not their headers.
    made = Theme("records/v2/control", about).having(harmless=True)
    _markers(made)
    _types(made)
    _typed_values(made)
    _bad_keys(made)
    _shape(made)
    _unusual(made)
    return made


def marker_key(kind: int, version: int = 0) -> bytes:
    """A control record's key: version and type, two bytes each."""
    return struct.pack(">hh", version, kind)


def marker(kind: int, *, coordinator_epoch: int = 0, **fields: Any) -> Raw:
    """The control batch that ends a transaction of producer id 4000."""
    record = Record(key=marker_key(kind), value=struct.pack(">hi", 0, coordinator_epoch))
    return batch(record, transactional=True, control=True, producer_id=4000, producer_epoch=3, **fields)


def _markers(made: Theme) -> None:
    made.valid("abort", "an abort marker", marker(ABORT), requirements=["RB-CONTROL-1", "RB-CONTROL-2", "RB-CONTROL-3"])
    made.valid(
        "commit", "a commit marker", marker(COMMIT), requirements=["RB-CONTROL-1", "RB-CONTROL-2", "RB-CONTROL-3"]
    )
    made.valid(
        "commit-at-offset",
        "a commit marker at offset 77 has coordinator epoch 12",
        marker(COMMIT, coordinator_epoch=12, base_offset=77, partition_leader_epoch=5),
        requirements=["RB-CONTROL-1", "RB-CONTROL-4"],
    )
    values = (
        ("value-null", "the commit marker's value is null", None),
        ("value-empty", "the commit marker's value is empty", b""),
        (
            "value-of-later-version",
            "the commit marker's value has version 1 and more bytes",
            bytes.fromhex("0001000000020000ff"),
        ),
    )
    for slug, summary, value in values:
        made.valid(
            slug,
            f"{summary}; it is opaque to clients",
            _control(Record(key=marker_key(COMMIT), value=value)),
            requirements=["RB-CONTROL-4"],
            log=None if value and len(value) >= 6 else BROKEN_MARKER,
        )


def _control(*records: Record, **fields: Any) -> Raw:
    return batch(*records, transactional=True, control=True, producer_id=4000, producer_epoch=3, **fields)


def _types(made: Theme) -> None:
    control_type_other = made.flag("ControlTypeOther", requirements=["RB-CONTROL-3"])
    named = (
        ("leader-change", 2),
        ("snapshot-header", 3),
        ("snapshot-footer", 4),
        ("kraft-version", 5),
        ("kraft-voters", 6),
    )
    for slug, kind in named:
        control_type_other.acceptable(
            f"type-{slug}",
            f"a control record of type {kind} ({slug.replace('-', ' ')}), which the documents do not define",
            batch(Record(key=marker_key(kind), value=b"\x00\x00"), control=True),
        )
    for slug, kind in (("seven", 7), ("largest", 32767), ("negative-one", -1)):
        control_type_other.acceptable(
            f"type-{slug}",
            f"a control record of type {kind}, which is not defined",
            _bad_key(marker_key(kind)),
            finding="control-key-invalid",
            log=BROKEN_MARKER,
        )


def leader_change(version: int, leader: int, voters: Sequence[int]) -> bytes:
    """The value of a leader change: leader, voters, and the voters that granted; version 1 adds directory ids."""
    directory = b"" if version == 0 else bytes(range(16))
    each = b"".join(struct.pack(">i", voter) + directory + NO_TAGS for voter in voters)
    array = uvarint(len(voters) + 1) + each
    return struct.pack(">hi", version, leader) + array + array + NO_TAGS


def voters_value(*voters: int) -> bytes:
    """The value of a voters record: each voter's id, directory id, one endpoint and its range of KRaft versions."""
    endpoint = b"\x0bCONTROLLER" + b"\x0alocalhost" + struct.pack(">H", 9093) + NO_TAGS
    feature = struct.pack(">hh", 0, 1) + NO_TAGS
    each = (struct.pack(">i", voter) + bytes(range(16)) + b"\x02" + endpoint + feature + NO_TAGS for voter in voters)
    return struct.pack(">h", 0) + uvarint(len(voters) + 1) + b"".join(each) + NO_TAGS


# An empty list of tagged fields.
NO_TAGS = b"\x00"


def _typed_values(made: Theme) -> None:
    """Control records that KRaft writes, with right values and with values that may break a parser."""
    right = (
        ("leader-change", LEADER_CHANGE, leader_change(0, 1, [1, 2, 3]), "a leader change of version 0"),
        ("leader-change-directories", LEADER_CHANGE, leader_change(1, 2, [1, 2]), "a leader change of version 1"),
        ("leader-change-no-voters", LEADER_CHANGE, leader_change(0, 1, []), "a leader change without voters"),
        ("snapshot-header", SNAPSHOT_HEADER, struct.pack(">hq", 0, CREATED_MS) + NO_TAGS, "a snapshot's header"),
        ("snapshot-footer", SNAPSHOT_FOOTER, struct.pack(">h", 0) + NO_TAGS, "a snapshot's footer"),
        ("kraft-version", KRAFT_VERSION, struct.pack(">hh", 0, 1) + NO_TAGS, "the version of KRaft"),
        ("kraft-voters", KRAFT_VOTERS, voters_value(1, 2, 3), "three voters"),
    )
    broken = (
        ("leader-change-null", LEADER_CHANGE, None, "a leader change whose value is null"),
        ("leader-change-cut", LEADER_CHANGE, leader_change(0, 1, [1, 2])[:-6], "a truncated leader change"),
        (
            "leader-change-voters-largest",
            LEADER_CHANGE,
            struct.pack(">hi", 0, 1) + uvarint(2**31),
            "a leader change that claims 2^31 - 1 voters but has none",
        ),
        ("snapshot-header-cut", SNAPSHOT_HEADER, struct.pack(">hi", 0, 1), "a truncated snapshot header"),
        ("snapshot-footer-empty", SNAPSHOT_FOOTER, b"", "an empty snapshot footer"),
        ("kraft-version-later", KRAFT_VERSION, struct.pack(">hh", 9, 1) + NO_TAGS, "a KRaft version record, version 9"),
        ("kraft-voters-cut", KRAFT_VOTERS, voters_value(1, 2)[:-20], "a truncated voters record"),
        ("kraft-voters-tail", KRAFT_VOTERS, voters_value(1) + b"\xde\xad", "a voters record followed by two bytes"),
    )
    for slug, kind, value, what in (*right, *broken):
        made.flag("ControlValueTyped").acceptable(
            f"value-{slug}",
            f"{what}; the documents do not define it, and it is opaque to clients",
            batch(Record(key=marker_key(kind), value=value), control=True),
            requirements=["RB-CONTROL-3", "RB-CONTROL-4"],
            budget=SMALL,
        )
    ends = (
        ("coordinator-epoch-negative", struct.pack(">hi", 0, -1), "the coordinator epoch is -1"),
        ("version-negative", struct.pack(">hi", -1, 0), "the version is -1"),
        ("cut", struct.pack(">hh", 0, 0), "two bytes are missing"),
    )
    for slug, value, what in ends:
        made.valid(
            f"value-end-{slug}",
            f"the commit marker's value is unusual: {what}; it is opaque to clients",
            _control(Record(key=marker_key(COMMIT), value=value)),
            requirements=["RB-CONTROL-4"],
            log=BROKEN_MARKER if slug != "coordinator-epoch-negative" else None,
        )


def _unusual(made: Theme) -> None:
    key, value = marker_key(COMMIT), struct.pack(">hi", 0, 0)
    record = Record(key=key, value=value)
    cases = (
        (
            "compressed",
            "a control batch is compressed",
            batch(record, codec="gzip", control=True, transactional=True, producer_id=4000, producer_epoch=3),
        ),
        ("with-headers", "a marker has a header", _control(Record(key=key, value=value, headers=[(b"h", b"v")]))),
        ("with-sequence", "a marker has a base sequence", _control(record, base_sequence=7)),
        ("without-producer", "a marker has the producer id -1", batch(record, control=True, transactional=True)),
        ("log-append", "a marker has LogAppendTime", _control(record, log_append=True, max_timestamp=CREATED_MS)),
        (
            "snapshot-start",
            "one control batch has a snapshot header, the KRaft version and the voters, as KRaft writes them",
            batch(
                Record(key=marker_key(SNAPSHOT_HEADER), value=struct.pack(">hq", 0, CREATED_MS) + NO_TAGS),
                Record(offset_delta=1, key=marker_key(KRAFT_VERSION), value=struct.pack(">hh", 0, 1) + NO_TAGS),
                Record(offset_delta=2, key=marker_key(KRAFT_VOTERS), value=voters_value(1)),
                control=True,
            ),
        ),
        ("key-six-bytes", "a key of version 0 has two bytes after the type", _control(Record(key=key + b"\x00\x09"))),
    )
    for slug, summary, raw in cases:
        made.flag("ControlBatchUnusual").acceptable(
            slug,
            summary,
            raw,
            requirements=["RB-CONTROL-1", "RB-ATTRIBUTES-4"],
            finding="control-record-count" if slug == "snapshot-start" else None,
            log=BROKEN_MARKER if slug == "key-six-bytes" else None,
        )


def _bad_key(key: bytes | None) -> Raw:
    raw = {} if key is None else {"key": key}
    return _control(Record(key=key, value=struct.pack(">hi", 0, 0), raw=raw))


def _bad_keys(made: Theme) -> None:
    cases = (
        ("key-null", "is null", None),
        ("key-empty", "is empty", b""),
        ("key-one-byte", "has one byte", b"\x00"),
        ("key-two-bytes", "has a version but no type", b"\x00\x00"),
        ("key-three-bytes", "has three bytes", b"\x00\x00\x00"),
        ("key-version-smallest", "has version -32768", marker_key(COMMIT, version=-(2**15))),
        ("key-four-ones", "has version and type -1", b"\xff\xff\xff\xff"),
        ("key-version-negative", "has version -1", marker_key(COMMIT, version=-1)),
    )
    for slug, what, key in cases:
        made.flag("ControlKeyBad").acceptable(
            slug,
            f"the control record's key {what}; Kafka's reader does not check it",
            _bad_key(key),
            requirements=["RB-CONTROL-2"],
            finding="control-key-invalid",
            log=BROKEN_MARKER,
        )
    made.acceptable(
        "key-of-later-version",
        "the control record's key has version 1 and two more bytes; today's readers skip them",
        _control(Record(key=marker_key(COMMIT, version=1) + b"\x00\x09", value=struct.pack(">hi", 0, 0))),
        requirements=["RB-CONTROL-2"],
    )


def _shape(made: Theme) -> None:
    control_record_count = made.flag("ControlRecordCount", finding="control-record-count")
    records = [Record(offset_delta=index, key=marker_key(kind)) for index, kind in enumerate((ABORT, COMMIT))]
    control_record_count.acceptable(
        "two-records",
        "a control batch has an abort and a commit marker",
        _control(*records),
        requirements=["RB-CONTROL-1"],
        log=BROKEN_MARKER,
    )
    control_record_count.acceptable(
        "no-record",
        "a control batch has no record, as older compaction left it",
        _control(max_timestamp=1_700_000_000_000),
        requirements=["RB-CONTROL-1", "RB-COUNT-3"],
    )
    made.valid(
        "not-transactional",
        "a commit marker is in a batch that is not transactional: the two bits are independent",
        batch(
            Record(key=marker_key(COMMIT), value=struct.pack(">hi", 0, 0)),
            control=True,
            producer_id=4000,
            producer_epoch=3,
        ),
        requirements=["RB-ATTRIBUTES-3", "RB-ATTRIBUTES-4"],
    )
