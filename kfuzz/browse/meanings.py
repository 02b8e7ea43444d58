"""The purpose of each field, in a sentence: of batches, records and messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kfuzz.annotate.messages import field_of
from kfuzz.annotate.parts import Part
from kfuzz.messages.model import Definition

# Fields of a batch of magic 2. Messages of magic 0 and 1 have some of them too.
_BATCH: Final[Mapping[str, str]] = {
    "base_offset": "The offset of the first record. Each record adds its offset delta. A producer sends 0; the broker "
    "writes the real one.",
    "batch_length": "How many bytes of the batch follow this field.",
    "partition_leader_epoch": "The epoch of the leader that appended the batch. The broker sets it; the CRC does not "
    "cover it.",
    "magic": "The format: 2 for record batches, 0 and 1 for the messages before them.",
    "crc": "The checksum of all bytes from the attributes on: CRC-32C in a batch, CRC-32 from the magic on in a "
    "message.",
    "attributes": "Bits 0 to 2 are the codec, bit 3 says that the broker set the times, bit 4 that the batch belongs "
    "to a transaction, bit 5 that it is a control batch, bit 6 that the base timestamp is a delete horizon.",
    "last_offset_delta": "The last record's offset, counted from the base offset. It stays when compaction removes "
    "the record.",
    "base_timestamp": "The time of the first record in milliseconds; records count from it. With bit 6: when the "
    "batch may be removed.",
    "max_timestamp": "The latest time in the batch in milliseconds; with log-append time, the time of every record.",
    "producer_id": "The number of an idempotent or transactional producer; -1 for none.",
    "producer_epoch": "Raised when a producer starts again, so that the broker can refuse the one before it; -1 for "
    "none.",
    "base_sequence": "The producer's count of records before this batch, from which the broker sees gaps and "
    "repetitions; -1 for none.",
    "record_count": "How many records the batch says that it holds. 0 is right only after compaction.",
    "payload": "All records of the batch, compressed as one stream.",
    "timestamp": "The message's time in milliseconds, -1 for none; in a wrapper, the latest of those inside.",
    "key_length": "The size of the key in bytes; -1 for null.",
    "value_length": "The size of the value in bytes; -1 for null.",
    "key": "The key. Records with equal keys usually go to the same partition, and compaction keeps the last of them.",
    "value": "The value. Null marks a key as deleted; in a wrapper it holds the compressed messages.",
    "message": "These bytes are too short for a message.",
    "rest": "Bytes that belong to no field.",
}
_RECORD: Final[Mapping[str, str]] = {
    "length": "How many bytes of the record follow, as a zigzag varint.",
    "attributes": "Not used; Kafka writes 0 and ignores other numbers.",
    "timestamp_delta": "The record's time, counted from the base timestamp in milliseconds.",
    "offset_delta": "The record's offset, counted from the base offset.",
    "key_length": "The size of the key in bytes as a zigzag varint; -1 for null.",
    "key": _BATCH["key"],
    "value_length": "The size of the value in bytes as a zigzag varint; -1 for null.",
    "value": "The value. Null marks a key as deleted.",
    "header_count": "How many headers follow, as a zigzag varint; it must not be negative.",
}
_HEADER: Final[Mapping[str, str]] = {
    "key_length": "The size of the header's key in bytes as a zigzag varint; it must not be negative.",
    "key": "The header's key, in UTF-8. It may occur several times in a record.",
    "value_length": "The size of the header's value in bytes as a zigzag varint; -1 for null.",
    "value": "The header's value.",
}
_MESSAGE: Final[Mapping[str, str]] = {
    "tag count": "How many tagged fields follow. Readers skip those that they do not know.",
    "tag": "The number of a tagged field.",
    "tag size": "The size of the tagged field in bytes.",
    "rest": "Bytes that belong to no field.",
}
_IN_BATCH: Final = re.compile(r"(?:^|\.)batch\[\d+\](?P<inside>.*)$")


def meaning_of(part: Part, magic: int = 2, definition: Definition | None = None) -> str:
    """A sentence about the part; "" if nothing is known of it.

    ``magic`` is that of the part's batch: inner messages of magic 0 and 1 are not records. ``definition`` is that of
    the message that the part is in.
    """
    if batch := _IN_BATCH.search(part.path):
        return _in_batch(part, batch["inside"], magic)
    if definition is None:
        return ""
    if part.field in _MESSAGE:
        return _MESSAGE[part.field]
    is_length = part.name.endswith(" length")
    field = field_of(definition, part.name.removesuffix(" length"))
    if field is None:
        return ""
    words = f"{'The length of a' if is_length else 'A'} field of type {field.type}, in versions {field.versions}"
    if str(field.nullable) != "none":
        words += f"; may be null in versions {field.nullable}"
    if field.tag is not None:
        words += f"; tag {field.tag} in versions {field.tagged}"
    return f"{words}. {field.about}".rstrip()


def _in_batch(part: Part, inside: str, magic: int) -> str:
    if part.heading:
        if not inside:
            return "A record batch, or before magic 2 a message."
        if inside.endswith(".payload"):
            return "What the compressed payload holds. Offsets count from its first byte here."
        return "A record." if magic == 2 else "A message inside the wrapper."
    if "].headers[" in inside:
        return _HEADER.get(part.field, "")
    if ".records[" in inside and magic == 2:
        return _RECORD.get(part.field, "")
    return _BATCH.get(part.field, "")
