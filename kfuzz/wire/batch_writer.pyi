from kfuzz.wire.record import Record
from kfuzz.wire.scratch import Scratch

# A header's fields in the order of ``HEADER_LAYOUT``, with None for timestamps that the records have.
HeaderFields = tuple[int, int, int, int, int, int, int, int | None, int | None, int, int, int, int]

def encode_records(records: list[Record], base_offset: int, base_timestamp: int | None) -> tuple[Scratch, int, int]:
    """``(payload, base timestamp, largest timestamp)``, in ms; a base timestamp of None is the first record's.

    A record without a timestamp counts and is written as -1. ``EncodeError`` where a value does not fit its field.
    Mirrors ``DefaultRecord.writeTo``.
    """

def encode_header(fields: HeaderFields) -> bytes:
    """The 61 bytes of a header with these very values, none of them None; ``OverflowError`` where one does not fit."""
