from typing_extensions import Buffer

from kfuzz.wire.record import Record
from kfuzz.wire.scratch import Scratch

# A header's fields in the order of ``HEADER_LAYOUT``, with None for timestamps that the records have.
HeaderFields = tuple[int, int, int, int, int, int, int, int | None, int | None, int, int, int, int]

def encode_records(records: list[Record], base_offset: int, base_timestamp: int | None) -> tuple[Scratch, int, int]:
    """``(payload, base timestamp, largest timestamp)``, in ms; a base timestamp of None is the first record's.

    A record without a timestamp counts and is written as -1. ``EncodeError`` where a value does not fit its field.
    Mirrors ``DefaultRecord.writeTo``.
    """

def encode_payload(fields: HeaderFields, parts: list[Buffer]) -> bytes:
    """A whole batch of these header fields and a payload in parts; its length and CRC are made here.

    ``EncodeError`` where the payload is too long for a batch, ``OverflowError`` where a field does not fit.
    """
