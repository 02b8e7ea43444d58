"""Record batches to bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kfuzz.errors import EncodeError
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS, NO_TIMESTAMP
from kfuzz.records.codecs import compress, compress_parts
from kfuzz.records.model import RecordBatch
from kfuzz.wire.batch_writer import encode_batch as encode_batch_bytes
from kfuzz.wire.batch_writer import encode_payload, encode_records
from kfuzz.wire.layout import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from kfuzz.wire.message_set import encode_message, encode_messages

if TYPE_CHECKING:
    from kfuzz.wire.batch_writer import HeaderFields

__all__ = ["encode", "encode_batch", "header_fields", "require_known"]


def encode(batches: Iterable[RecordBatch], *, level: int | None = None) -> bytes:
    """The bytes of ``batches``, one after the other; see :func:`encode_batch`."""
    return b"".join(encode_batch(batch, level=level) for batch in batches)


def encode_batch(batch: RecordBatch, *, level: int | None = None) -> bytes:
    """The bytes of one batch, as its fields say; ``level`` is the codec's own.

    ``EncodeError`` where a value does not fit the format, before anything is written. Mirrors
    ``org.apache.kafka.common.record.MemoryRecordsBuilder``, but takes every field as it is given.
    """
    require_known(batch)
    try:
        return _record_batch(batch, level) if batch.magic == 2 else _messages(batch, level)
    except OverflowError as error:
        raise EncodeError(f"a field does not fit its width: {error}") from None


def require_known(batch: RecordBatch) -> None:
    """``EncodeError`` where the batch has a magic, a codec or a timestamp type that does not exist."""
    if batch.magic not in (0, 1, 2):
        raise EncodeError(f"magic {batch.magic} does not exist; it must be 0, 1 or 2")
    if batch.compression not in CODECS:
        raise EncodeError(f"compression {batch.compression!r} does not exist; it must be one of {', '.join(CODECS)}")
    if batch.magic == 2 and batch.timestamp_type not in ("create", "log-append"):
        raise EncodeError(
            f"timestamp type {batch.timestamp_type!r} does not exist in magic 2; it must be create or log-append"
        )


def _record_batch(batch: RecordBatch, level: int | None) -> bytes:
    fields = header_fields(batch, len(batch.records))
    if batch.compression == "none":
        return encode_batch_bytes(batch.records, fields)
    payload, base, largest = encode_records(batch.records, batch.base_offset, fields[7])
    max_timestamp = largest if batch.max_timestamp is None else batch.max_timestamp
    # Kafka makes empty batches without a codec; with one, its reader wants a stream, if only of no bytes.
    parts = compress_parts(batch.compression, payload, level=level)
    return encode_payload((*fields[:7], base, max_timestamp, *fields[9:]), parts)


def header_fields(batch: RecordBatch, count: int = 0) -> HeaderFields:
    """The header of a batch of ``count`` records, without its length and CRC, in the order of ``HEADER_LAYOUT``.

    Timestamps that the batch does not say are None.
    """
    attributes = (
        CODECS.index(batch.compression)
        | (LOG_APPEND_TIME if batch.timestamp_type == "log-append" else 0)
        | (TRANSACTIONAL if batch.transactional else 0)
        | (CONTROL if batch.control else 0)
        | (DELETE_HORIZON if batch.delete_horizon is not None else 0)
    )
    base_timestamp = batch.base_timestamp if batch.delete_horizon is None else batch.delete_horizon
    return (
        batch.base_offset, 0, batch.partition_leader_epoch, 2, 0, attributes,
        wrap64(batch.last_offset - batch.base_offset), base_timestamp, batch.max_timestamp,
        batch.producer_id, batch.producer_epoch, batch.base_sequence, count,
    )  # fmt: skip


def _messages(batch: RecordBatch, level: int | None) -> bytes:
    lost = [
        name
        for name, present in (
            ("headers", any(record.headers for record in batch.records)),
            ("a transaction", batch.transactional),
            ("control records", batch.control),
            ("a producer id", batch.producer_id != -1),
            ("zstd", batch.compression == "zstd"),
        )
        if present
    ]
    if lost:
        raise EncodeError(f"magic {batch.magic} cannot carry {', '.join(lost)}")
    attributes = LOG_APPEND_TIME if batch.magic == 1 and batch.timestamp_type == "log-append" else 0
    if not batch.records or (batch.compression == "none" and len(batch.records) > 1):
        wanted = "exactly one record" if batch.compression == "none" else "at least one record"
        raise EncodeError(f"a message of magic {batch.magic} has {wanted}; this one has {len(batch.records)}")
    first, last = batch.records[0].offset, batch.records[-1].offset
    if last != batch.last_offset and (batch.compression == "none" or (batch.magic == 1 and batch.last_offset != 0)):
        raise EncodeError(
            f"the last record's offset is {last}, the batch's {batch.last_offset}; a message has room for one"
        )
    if batch.compression == "none":
        return bytes(encode_messages(batch.records, batch.magic, 0, attributes))
    # Inner offsets are absolute in magic 0. In magic 1 they count from the first record, and the wrapper has the last
    # one, from which a reader counts back; where it could not (a wrapper at 0, offsets below 0) they are absolute too.
    base = first if batch.magic == 1 and 0 < first <= batch.last_offset else 0
    inner = encode_messages(batch.records, batch.magic, base, 0)
    timestamp = batch.max_timestamp
    if timestamp is None:
        timestamp = max(NO_TIMESTAMP if r.timestamp is None else r.timestamp for r in batch.records)
    value = compress(batch.compression, inner, magic=batch.magic, level=level)
    attributes |= CODECS.index(batch.compression)
    return encode_message(batch.magic, batch.last_offset, attributes, timestamp, None, value)
