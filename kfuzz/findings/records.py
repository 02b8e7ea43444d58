"""The finding codes for record batches: for each, its requirement, its severity per profile and role, its sentence.

The parse loops in ``kfuzz.wire`` note only the code. They do not know profiles and roles, so this table maps
(code, profile, role) to a severity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfuzz.findings.model import Code, Finding, Profile
from kfuzz.kafka import Role

if TYPE_CHECKING:
    from kfuzz.wire.io.report import Note

CODES: dict[str, Code] = {
    # framing
    "batch-length-below-minimum": Code("fatal", "RB-LENGTH-1", "the length is {found}; it must be at least {allowed}"),
    "batch-length-too-large": Code("fatal", "RB-LENGTH-2", "the length is {found}; it must be at most {allowed}"),
    "magic-unknown": Code("fatal", "RB-MAGIC-1", "the magic is {found}; it must be 0, 1 or 2"),
    "crc-mismatch": Code("fatal", "RB-CRC-1", "the stored CRC is {found:#010x}; the bytes have {allowed:#010x}"),
    # batch header
    "attributes-unused-bits": Code(
        "deviation", "RB-ATTRIBUTES-1", "the attributes are {found:#06x}; unused bits {allowed:#06x} must be 0"
    ),
    "codec-unknown": Code("fatal", "RB-CODEC-1", "the compression codec is {found}; it must be 0 to 4"),
    "base-offset-negative": Code("deviation", "RB-OFFSET-1", "the base offset is {found}; it must be 0 or more"),
    "last-offset-delta-negative": Code(
        "deviation", "RB-OFFSET-2", "the last offset delta is {found}; it must be 0 or more"
    ),
    "max-timestamp-below-records": Code(
        "deviation", "RB-TIMESTAMP-2", "the max timestamp is {found}, but a record has {allowed}"
    ),
    "record-count-negative": Code("fatal", "RB-COUNT-1", "the record count is {found}; it must be 0 or more"),
    "record-count-too-high": Code(
        "fatal", "RB-COUNT-2", "the record count is {found}, but the payload ends after {allowed} records"
    ),
    "record-count-too-low": Code(
        "fatal", "RB-COUNT-2", "the record count is {found}, but {allowed} bytes follow these records"
    ),
    "payload-without-records": Code(
        "deviation", "RB-COUNT-2", "the record count is 0, but {found} bytes follow; there must be none"
    ),
    # payload
    "decompression-failed": Code("fatal", "RB-CODEC-2", "the compressed payload of {found} bytes is broken"),
    "decompressed-size-exceeded": Code(
        "fatal",
        None,
        "the payload of {found} bytes grows beyond the limit of {allowed} bytes; raise the limit to read it",
    ),
    "bytes-after-compressed-stream": Code(
        "deviation", "RB-CODEC-2", "{found} bytes follow the end of the compressed stream; there must be none"
    ),
    "compressed-content-mismatch": Code(
        "deviation", "RB-LZ4-1", "the lz4 frame's content size or checksum is not that of the {found} bytes in it"
    ),
    # records
    "varint-too-long": Code("fatal", "RB-VARINT-1", "the varint does not end within {allowed} bytes"),
    "varint-overlong": Code("deviation", "RB-VARINT-2", "the varint takes {found} bytes; fewer are enough"),
    "varint-excess-bits": Code(
        "deviation",
        "RB-VARINT-2",
        "the varint's last byte is {found:#04x}; bits above {allowed:#04x} do not fit and are dropped",
    ),
    "record-length-negative": Code("fatal", "RB-RECORD-1", "the record length is {found}; it must be 0 or more"),
    "record-length-exceeds-payload": Code(
        "fatal", "RB-RECORD-1", "the record length is {found}, but the payload has {allowed} bytes left"
    ),
    "record-length-mismatch": Code(
        "fatal", "RB-RECORD-1", "the record length is {found}, but its fields end after {allowed} bytes"
    ),
    "record-truncated": Code("fatal", "RB-RECORD-1", "the record ends before this field does"),
    "record-attributes-nonzero": Code(
        "deviation", "RB-RECORD-2", "the record attributes are {found:#04x}; they must be 0"
    ),
    "timestamp-overflow": Code(
        "deviation", "RB-TIMESTAMP-1", "base timestamp {allowed} and delta {found} overflow 64 bits"
    ),
    "offset-overflow": Code("deviation", "RB-OFFSET-4", "base offset {allowed} and delta {found} overflow 64 bits"),
    "offset-delta-negative": Code("deviation", "RB-OFFSET-3", "the offset delta is {found}; it must be 0 or more"),
    "offset-delta-not-increasing": Code(
        "deviation", "RB-OFFSET-3", "the offset delta is {found}; after the record before it must be at least {allowed}"
    ),
    "offset-delta-beyond-last": Code(
        "deviation", "RB-OFFSET-2", "the offset delta is {found}; the header's last offset delta is {allowed}"
    ),
    "length-below-minus-one": Code(
        "deviation", "RB-RECORD-3", "the length is {found}; it must be {allowed} (null) or more"
    ),
    "length-exceeds-record": Code("fatal", "RB-RECORD-3", "the length is {found}, but {allowed} bytes are left"),
    "header-count-negative": Code("fatal", "RB-HEADERS-1", "the header count is {found}; it must be 0 or more"),
    "header-count-exceeds-record": Code(
        "fatal", "RB-HEADERS-1", "the header count is {found}, but at most {allowed} fit in the rest of the record"
    ),
    "header-key-null": Code("fatal", "RB-HEADERS-2", "the header key's length is {found}; it must be 0 or more"),
    "header-key-not-utf8": Code("deviation", "RB-HEADERS-3", "the header key of {found} bytes is not UTF-8"),
    "header-key-null-character": Code(
        "deviation", "RB-HEADERS-4", "the header key of {found} bytes holds a null character"
    ),
    # control batches
    "control-record-count": Code(
        "deviation", "RB-CONTROL-1", "the control batch has {found} records; it must have {allowed}"
    ),
    "control-key-invalid": Code(
        "deviation",
        "RB-CONTROL-2",
        "the control record's key is not a version (0 or more) and a known type, 2 bytes each",
    ),
    # streams: rules that need state from earlier batches
    "sequence-gap": Code("fatal", "SEQ-ORDER-1", "the base sequence is {found}; the next one must be {allowed}"),
    "sequence-overlap": Code(
        "fatal", "SEQ-ORDER-1", "the base sequence is {found}, which was used already; the next one must be {allowed}"
    ),
    "sequence-duplicate": Code(
        "deviation", "SEQ-DUPLICATE-1", "a batch with base sequence {found} was appended before; this one is dropped"
    ),
    "sequence-of-new-epoch": Code(
        "fatal", "SEQ-EPOCH-1", "the base sequence is {found}; under a new producer epoch it must be {allowed}"
    ),
    # For these two, a broker only logs a warning when it replicates from a leader or loads its own log.
    "producer-epoch-stale": Code(
        "fatal", "SEQ-EPOCH-1", "the producer epoch is {found}; {allowed} was seen already", log="deviation"
    ),
    "coordinator-epoch-stale": Code(
        "fatal",
        "TXN-MARKER-1",
        "the marker's coordinator epoch is {found}; {allowed} was seen already",
        log="deviation",
    ),
    "end-marker-invalid": Code("fatal", "TXN-MARKER-1", "the control record does not end a transaction"),
    "transaction-not-ended": Code(
        "fatal",
        "TXN-BATCH-1",
        "the batch is not transactional, but its producer has an open transaction from offset {allowed} on",
    ),
    # magic 0 and 1
    "message-truncated": Code("fatal", "MS-MESSAGE-1", "the message has {found} bytes left where {allowed} are needed"),
    "bytes-after-message": Code(
        "deviation", "MS-MESSAGE-1", "{found} bytes follow the message's value inside its size"
    ),
    "wrapper-crc-mismatch": Code(
        "deviation",
        "MS-CRC-1",
        "the wrapper's stored CRC is {found:#010x}; its bytes have {allowed:#010x}",
        log="fatal",
    ),
    "codec-not-allowed": Code("fatal", "MS-CODEC-1", "compression codec {found} does not exist before magic 2"),
    "wrapper-value-null": Code("fatal", "MS-WRAPPER-1", "the wrapper message has no value to decompress"),
    "wrapper-empty": Code("fatal", "MS-WRAPPER-1", "the wrapper message holds no message"),
    "wrapper-nested": Code(
        "fatal", "MS-WRAPPER-2", "a message inside the wrapper is compressed again, with codec {found}"
    ),
    "wrapper-offset-too-low": Code(
        "fatal", "MS-WRAPPER-3", "the wrapper's offset is {found}, below its last inner offset {allowed}, and not 0"
    ),
    "inner-magic-mismatch": Code(
        "deviation", "MS-WRAPPER-4", "a message inside the wrapper has magic {found}; the wrapper has {allowed}"
    ),
    "inner-partial-tail": Code(
        "deviation", "MS-WRAPPER-1", "the last {found} bytes inside the wrapper are not a whole message"
    ),
    # what a broker requires of a Produce request
    "batch-count-not-one": Code(
        "fatal", "PRO-REQUEST-1", "the Produce request holds {found} batches for the partition; it must be exactly one"
    ),
    "magic-not-produced": Code(
        "fatal", "PRO-MAGIC-1", "the magic is {found}; today a Produce request may only hold magic {allowed}"
    ),
    "request-too-large": Code("fatal", "LIM-DEFAULT-1", "the request has {found} bytes; the limit is {allowed}"),
    "batch-too-large": Code("fatal", "LIM-DEFAULT-1", "the batch has {found} bytes; the limit is {allowed}"),
    "record-too-large": Code("fatal", "LIM-DEFAULT-1", "the record has {found} bytes; the limit is {allowed}"),
    "base-offset-not-zero": Code(
        "fatal", "RB-OFFSET-7", "the base offset is {found}; a producer counts from 0 and the broker assigns offsets"
    ),
    "record-count-zero": Code("fatal", "PRO-COUNT-1", "the record count is {found}; a producer sends at least one"),
    "last-offset-delta-not-count": Code(
        "fatal", "RB-OFFSET-2", "the last offset delta is {found}; with this record count it must be {allowed}"
    ),
    "control-batch-produced": Code("fatal", "PRO-CONTROL-1", "clients may not write control batches"),
    "base-sequence-negative": Code(
        "fatal", "RB-SEQUENCE-1", "the base sequence is {found}; with producer id {allowed} it must be 0 or more"
    ),
    "log-append-time-produced": Code(
        "fatal", "RB-TIMESTAMP-6", "the timestamp type is LogAppendTime, which only a broker may set"
    ),
    "timestamp-type-not-create": Code(
        "deviation", "RB-TIMESTAMP-6", "the timestamp type is LogAppendTime; a producer should set CreateTime"
    ),
    "timestamp-out-of-range": Code(
        "fatal", "RB-TIMESTAMP-4", "the timestamp is {found}; the topic's limit is {allowed}"
    ),
    "key-missing": Code("fatal", "CMP-KEY-1", "the record has no key; records of a compacted topic must have one"),
    "compressed-offset-delta-not-index": Code(
        "fatal", "RB-OFFSET-7", "the record's offset is {found}; in a compressed batch it must be its index {allowed}"
    ),
    "offset-delta-not-index": Code(
        "deviation", "RB-OFFSET-7", "the record's offset is {found}; a producer counts 0, 1, 2, …: it must be {allowed}"
    ),
    "max-timestamp-not-maximum": Code(
        "deviation", "RB-TIMESTAMP-2", "the max timestamp is {found}; the records' maximum is {allowed}"
    ),
    "producer-fields-without-id": Code(
        "deviation", "RB-PRODUCER-1", "the batch has no producer id, so this field must be {allowed}; it is {found}"
    ),
    "transactional-without-id": Code("deviation", "TXN-BATCH-1", "a transactional batch has producer id {found}"),
    "delete-horizon-produced": Code(
        "deviation", "CMP-HORIZON-1", "the delete horizon is set, which only compaction may do"
    ),
    "rebuild-refused": Code("fatal", None, "the topic has another codec, and the batch cannot be rebuilt with it"),
    # stored in the log, but unreadable for consumers
    "records-unreadable": Code(
        "deviation", "RB-RECORDS-1", "the batch is stored, but no consumer can read its records"
    ),
    # what a broker requires of a segment
    "offset-outside-segment": Code(
        "fatal", "SEG-OFFSET-1", "the last offset is {found}, too far from the segment's base offset {allowed}"
    ),
    "offset-not-increasing": Code(
        "deviation", "SEG-OFFSET-2", "offset {found} is in a batch that follows last offset {allowed}"
    ),
    "indexed-offset-not-increasing": Code(
        "fatal", "SEG-OFFSET-2", "offset {found} cannot be added to the index, which is already at {allowed}"
    ),
    "log-end-overflow": Code(
        "fatal", "SEG-OFFSET-1", "the log ends at {found}, before its start at {allowed}: a broker deletes it"
    ),
    "wrapper-start-unknown": Code(
        "fatal", None, "a broker looking up an offset must open this wrapper to find its first offset, fails, and dies"
    ),
    "leader-epoch-offset-negative": Code(
        "fatal", "RB-OFFSET-1", "leader epoch {allowed} would begin at offset {found}; it must be 0 or more"
    ),
}


def from_note(note: Note, path: str, profile: Profile, role: Role, detail: str = "") -> Finding:
    """The finding for a ``note`` that a parse loop made; ``path`` is where the loop read (``batch[0]``,
    ``batch[0].payload``).
    """
    name, field, at, record, header, found, allowed, count = note
    code = CODES[name]
    if record >= 0:
        path += f".records[{record}]"
    if header >= 0:
        path += f".headers[{header}]"
    if field:
        path += f".{field}"
    message = code.sentence.format(found=found, allowed=allowed, count=count)
    text = f"{message}: {detail}" if detail else message
    return Finding(name, code.severity(profile, role), at, path, code.requirement, text, count)
