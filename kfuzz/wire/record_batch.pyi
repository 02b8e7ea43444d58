from typing import Literal, overload

from typing_extensions import Buffer

from kfuzz.wire.record import Record
from kfuzz.wire.report import Note

Span = tuple[int, int]
# (at, length, attributes, timestamp_delta, offset_delta, key, value, headers); a span's length is -1 for null
PlaceTuple = tuple[int, int, int, int, int, Span, Span, tuple[tuple[Span, Span], ...]]
HeaderTuple = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

HEADER_LAYOUT: tuple[tuple[str, int, int], ...]
BATCH_HEADER_SIZE: int
LIMIT_BYTES: int

def parse_header(data: Buffer, at: int) -> HeaderTuple:
    """The header's fields in the order of ``HEADER_LAYOUT``; ``IndexError`` unless 61 bytes stand at ``at``."""

@overload
def parse_records(
    payload: Buffer, at: int, header: HeaderTuple, want: Literal["records"]
) -> tuple[bool, list[Record], list[Note]]: ...
@overload
def parse_records(
    payload: Buffer, at: int, header: HeaderTuple, want: Literal["places"]
) -> tuple[bool, list[PlaceTuple], list[Note]]: ...
@overload
def parse_records(
    payload: Buffer, at: int, header: HeaderTuple, want: Literal["verdict"]
) -> tuple[bool, None, list[Note]]:
    """Parse the records of ``header`` from byte ``at`` of an uncompressed payload to its end: ``(ok, made, notes)``.

    One loop whatever is wanted. Mirrors ``DefaultRecordBatch.RecordIterator`` and ``DefaultRecord.readFrom``.
    """

def timestamp_range(records: list[Record]) -> tuple[int, int]:
    """The first and the largest timestamp in milliseconds, -1 where there is none."""

def encode_records(records: list[Record], base_offset: int, base_timestamp: int) -> bytes:
    """The uncompressed payload; ``EncodeError`` where a value does not fit. Mirrors ``DefaultRecord.writeTo``."""

def encode_header(
    base_offset: int,
    batch_length: int,
    partition_leader_epoch: int,
    crc: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytes:
    """The 61 bytes of a header with these very values; ``OverflowError`` where one does not fit its field."""
