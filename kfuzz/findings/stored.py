"""The finding codes for stored files: for the length of a segment's batch, for indexes, snapshots and checkpoints, and
for a log as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kfuzz.findings.model import Code, Finding, Profile
from kfuzz.wire.io.layout import HEADER_AT

LENGTH_WRONG: Final = "batch-length-wrong"

# For each code: Kafka's severity, the requirement that it breaks, and its sentence. Fatal is what a broker does not
# accept when it starts: it makes an index again, and a snapshot that it refuses is left out. In a log as a whole,
# fatal is also what loses records.
CODES: Final[Mapping[str, Code]] = {
    "aborted-entry-version-unknown": Code("fatal", None, "the entry's version is {found}; Kafka knows {allowed}"),
    "aborted-missing": Code(
        "deviation",
        None,
        "the index has no entry of producer {found} and offsets {detail}, which the log aborts: consumers get them",
    ),
    "aborted-unknown": Code(
        "deviation",
        None,
        "the index says that offsets {detail} of producer {found} were aborted, and the log does not",
    ),
    LENGTH_WRONG: Code(
        "fatal", None, "the length leads beyond the end of the file, but {found} bytes further on is a batch"
    ),
    "checkpoint-count-mismatch": Code("fatal", None, "the file says {found} entries and has {allowed}"),
    "checkpoint-line-malformed": Code("fatal", None, "line {found} is not as Kafka writes it"),
    "checkpoint-offset-beyond-log": Code(
        "deviation", None, "the offset of {detail} is {found}; its log ends at offset {allowed}"
    ),
    "checkpoint-partition-missing": Code(
        "deviation", None, "the file has a line about {detail}, which is not in this directory"
    ),
    "checkpoint-version-unknown": Code("fatal", None, "the version is {found}; Kafka reads {allowed}"),
    "folder-unknown": Code(
        "fatal",
        None,
        "the folder is not named as a partition is, such as orders-0: a broker refuses to start; move it away",
    ),
    "index-entry-beyond-log": Code(
        "deviation", None, "the entry's offset is {found}; the last offset of the segment is {allowed}"
    ),
    "index-entry-misplaced": Code(
        "deviation", None, "no batch with the last offset {found} begins at byte {allowed} of the segment"
    ),
    "index-last-offset-low": Code(
        "fatal", None, "the last entry's offset is {found}; the segment begins with {allowed}"
    ),
    "index-not-rising": Code(
        "deviation", None, "the entry's {detail} is {found}, and that of the entry before is {allowed}"
    ),
    "index-of-zeros": Code(
        "deviation", None, "the index has {found} bytes of zeros and no entry, but its segment is not the last one"
    ),
    "index-size-uneven": Code("fatal", None, "the file has {found} bytes; an entry has {allowed}"),
    "index-timestamp-wrong": Code(
        "deviation", None, "the entry's timestamp is {found}; the batch with its offset has {allowed}"
    ),
    "last-timestamp-low": Code(
        "fatal", None, "the last entry's timestamp is {found}, and that of the first is {allowed}"
    ),
    "leader-epoch-falls": Code(
        "deviation",
        None,
        "the leader epoch of the batch at offset {detail} is {found}; a batch before it has {allowed}",
    ),
    "leader-epoch-mismatch": Code("deviation", None, "leader epoch {found} at offset {allowed}: {detail}"),
    "leader-epochs-not-rising": Code(
        "deviation", None, "the {detail} is {found}, and that of the entry before is {allowed}"
    ),
    "log-start-beyond-log": Code(
        "fatal",
        None,
        "the log of {detail} begins at offset {found} by this file, and ends at offset {allowed}: a broker deletes it",
    ),
    "meta-properties-differ": Code(
        "deviation", None, "the file has {detail}: a broker with both in log.dirs refuses to start"
    ),
    "meta-properties-incomplete": Code("fatal", None, "the file has no {detail}; a broker refuses to start"),
    "meta-properties-missing": Code(
        "fatal", None, "the file is missing in a log directory of a broker; a broker refuses to start"
    ),
    "not-record-batches": Code("fatal", None, "the file {detail}"),
    "meta-properties-other-node": Code(
        "deviation", None, "the file has {detail}: they can only be directories of two brokers"
    ),
    "meta-properties-zookeeper": Code(
        "deviation",
        None,
        "a broker with ZooKeeper wrote this directory; Kafka 4 does not serve its partitions: migrate the cluster with "
        "Kafka 3.9 first",
    ),
    "partition-metadata-missing": Code(
        "fatal",
        None,
        "the file with the topic id is missing; a broker renames the partition to -stray and begins an empty one",
    ),
    "partition-twice": Code(
        "fatal", None, "the partition is in {detail} too, with the same topic id; a broker refuses to start"
    ),
    "segment-gap": Code(
        "fatal", None, "offsets {detail} are in no segment, and nothing shows that the log was compacted"
    ),
    "segment-gap-compacted": Code("deviation", None, "offsets {detail} are in no segment; compaction leaves such gaps"),
    "segment-missing": Code(
        "deviation", None, "no segment belongs to this file of offset {found}; a broker deletes it"
    ),
    "segment-name-high": Code(
        "fatal",
        None,
        "the name says offset {found}, but the first batch ends at {allowed}: a broker that recovers it ends",
    ),
    "segments-overlap": Code(
        "fatal", None, "the segment begins at offset {found}, but the one before it ends before offset {allowed}"
    ),
    "snapshot-beyond-log": Code(
        "fatal", None, "the snapshot shows that the log had offsets up to {found}; it ends before offset {allowed}"
    ),
    "snapshot-crc-mismatch": Code("fatal", None, "the stored CRC is {found:#010x}; the bytes have {allowed:#010x}"),
    "snapshot-cut": Code("fatal", None, "the file has {found} bytes; version and CRC take {allowed}"),
    "snapshot-mismatch": Code("deviation", None, "the snapshot says of producer {found}: {detail}"),
    "snapshot-unreadable": Code("fatal", None, "its entries cannot be read: {detail}"),
    "snapshot-version-unknown": Code("fatal", None, "the version is {found}; Kafka reads {allowed}"),
    "topic-id-missing": Code("fatal", None, "the topic's id is zero or missing"),
    "topic-ids-differ": Code("fatal", None, "the topic's id is {detail}; a broker takes one of them for -stray"),
}


def stored_finding(
    code: str, path: str, at: int, profile: Profile, *, found: int = 0, allowed: int = 0, detail: str = ""
) -> Finding:
    """The finding with this code about byte ``at`` of a file; ``path`` names the entry or the field."""
    known = CODES[code]
    sentence = known.sentence.format(found=found, allowed=allowed, detail=detail)
    return Finding(code, known.severity(profile, "log"), at, path, known.requirement, sentence)


def length_wrong(index: int, at: int, after: int, profile: Profile) -> Finding:
    """The finding about batch ``index`` at byte ``at``, whose length leads beyond the end although a batch begins at
    byte ``after``.
    """
    path = f"batch[{index}].batch_length"
    return stored_finding(LENGTH_WRONG, path, at + HEADER_AT["batch_length"], profile, found=after - at)
