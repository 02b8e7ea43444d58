"""The finding codes for stored files: for the length of a segment's batch, and for indexes, snapshots, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kfuzz.findings.model import Code, Finding, Profile
from kfuzz.wire.io.layout import HEADER_AT

LENGTH_WRONG: Final = "batch-length-wrong"

# For each code: Kafka's severity, the requirement that it breaks, and its sentence. Fatal is what a broker does not
# accept when it starts: it makes an index again, and a snapshot that it refuses is left out.
CODES: Final[Mapping[str, Code]] = {
    "aborted-entry-version-unknown": Code("fatal", None, "the entry's version is {found}; Kafka knows {allowed}"),
    LENGTH_WRONG: Code(
        "fatal", None, "the length leads beyond the end of the file, but {found} bytes further on is a batch"
    ),
    "checkpoint-count-mismatch": Code("fatal", None, "the file says {found} entries and has {allowed}"),
    "checkpoint-line-malformed": Code("fatal", None, "line {found} is not as Kafka writes it"),
    "checkpoint-version-unknown": Code("fatal", None, "the version is {found}; Kafka reads {allowed}"),
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
    "index-size-uneven": Code("fatal", None, "the file has {found} bytes; an entry has {allowed}"),
    "last-timestamp-low": Code(
        "fatal", None, "the last entry's timestamp is {found}, and that of the first is {allowed}"
    ),
    "leader-epochs-not-rising": Code(
        "deviation", None, "the {detail} is {found}, and that of the entry before is {allowed}"
    ),
    "not-record-batches": Code("fatal", None, "the file {detail}"),
    "snapshot-crc-mismatch": Code("fatal", None, "the stored CRC is {found:#010x}; the bytes have {allowed:#010x}"),
    "snapshot-cut": Code("fatal", None, "the file has {found} bytes; version and CRC take {allowed}"),
    "snapshot-unreadable": Code("fatal", None, "its entries cannot be read: {detail}"),
    "snapshot-version-unknown": Code("fatal", None, "the version is {found}; Kafka reads {allowed}"),
    "topic-id-missing": Code("fatal", None, "the topic's id is zero or missing"),
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
