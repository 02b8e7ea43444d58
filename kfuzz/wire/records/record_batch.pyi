from typing_extensions import Buffer

from kfuzz.wire.io.report import Note

Span = tuple[int, int]
# (at, length, attributes, timestamp_delta, offset_delta, key, value, headers); a span's length is -1 for null
PlaceTuple = tuple[int, int, int, int, int, Span, Span, tuple[tuple[Span, Span], ...]]
HeaderTuple = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

LIMIT_BYTES: int

def parse_header(data: Buffer, at: int) -> HeaderTuple:
    """The header's fields in the order of ``HEADER_LAYOUT``; ``IndexError`` unless there are 61 bytes at ``at``."""

def parse_places(
    payload: Buffer, at: int, header: HeaderTuple, skim: bool = False
) -> tuple[bool, list[PlaceTuple], list[Note]]:
    """Find the records of ``header`` in an uncompressed payload, from byte ``at`` on: ``(ok, places, notes)``.

    Offsets count from the start of ``payload``. ``ok`` is False if the records are refused. ``IndexError`` if ``at``
    lies outside of ``payload``, ``ValueError`` if that has ``LIMIT_BYTES`` or more. Mirrors
    ``DefaultRecordBatch.RecordIterator`` and ``DefaultRecord.readFrom``; with ``skim``, ``readPartiallyFrom``.
    """

def first_places(
    payload: Buffer, at: int, header: HeaderTuple, records: int, headers: int
) -> tuple[list[PlaceTuple], int, int]:
    """The first places that ``parse_places`` finds, how many records there are, and where the last of them ends.

    There are at most ``records`` places, with at most ``headers`` headers each; 0 means all.
    """
