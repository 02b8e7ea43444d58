from typing import NamedTuple

from typing_extensions import Buffer

from kfuzz.wire.io.report import Note

Span = tuple[int, int]

class Header(NamedTuple):
    """The fields of a batch's header, in the order of ``HEADER_LAYOUT``."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

class Place(NamedTuple):
    """Where a record is, with spans instead of contents. A span is an offset and a length, which is -1 for null."""

    at: int
    length: int
    attributes: int
    timestamp_delta: int
    offset_delta: int
    key: Span
    value: Span
    headers: tuple[tuple[Span, Span], ...]

LIMIT_BYTES: int

def parse_header(data: Buffer, at: int) -> Header:
    """The header; call ``next_frame`` first to see that it is whole. ``IndexError`` unless 61 bytes are at ``at``."""

def parse_places(payload: Buffer, at: int, header: Header, skim: bool = False) -> tuple[bool, list[Place], list[Note]]:
    """Find the records of ``header`` in an uncompressed payload, from byte ``at`` on: ``(ok, places, notes)``.

    Offsets count from the start of ``payload``. ``ok`` is False if the records are refused. ``IndexError`` if ``at``
    lies outside of ``payload``, ``ValueError`` if that has ``LIMIT_BYTES`` or more. Mirrors
    ``DefaultRecordBatch.RecordIterator`` and ``DefaultRecord.readFrom``; with ``skim``, ``readPartiallyFrom``.
    """

def first_places(payload: Buffer, at: int, header: Header, records: int, headers: int) -> tuple[list[Place], int, int]:
    """The first places that ``parse_places`` finds, how many records there are, and where the last of them ends.

    There are at most ``records`` places, with at most ``headers`` headers each; 0 means all.
    """
