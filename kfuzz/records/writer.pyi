from collections.abc import Iterable

from kfuzz.records.model import RecordBatch
from kfuzz.wire.batch_writer import HeaderFields

def encode(batches: Iterable[RecordBatch], *, level: int | None = None) -> bytes:
    """The bytes of ``batches``, one after the other; see :func:`encode_batch`."""

def encode_batch(batch: RecordBatch, *, level: int | None = None) -> bytes:
    """The bytes of one batch, as its fields say; ``level`` is the codec's own.

    ``EncodeError`` where a value does not fit the format, before anything is written. Mirrors
    ``org.apache.kafka.common.record.MemoryRecordsBuilder``, but takes every field as it is given.
    """

def require_known(batch: RecordBatch) -> None:
    """``EncodeError`` where the batch has a magic, a codec or a timestamp type that does not exist."""

def header_fields(batch: RecordBatch, count: int = 0) -> HeaderFields:
    """The header of a batch of ``count`` records, without its length and CRC, in the order of ``HEADER_LAYOUT``.

    Timestamps that the batch does not say are None.
    """
