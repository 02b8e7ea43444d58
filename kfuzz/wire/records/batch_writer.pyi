from typing_extensions import Buffer

from kfuzz.wire.io.scratch import Scratch
from kfuzz.wire.records.record import Record

# A header's fields in the order of ``HEADER_LAYOUT``. A timestamp of None is computed from the records.
HeaderFields = tuple[int, int, int, int, int, int, int, int | None, int | None, int, int, int, int]

def encode_records(records: list[Record], base_offset: int, base_timestamp: int | None) -> tuple[Scratch, int, int]:
    """Return ``(payload, base timestamp, largest timestamp)``, timestamps in ms.

    With ``base_timestamp`` None, the base is the first record's timestamp. A missing timestamp is written as -1.
    ``EncodeError`` if a value does not fit its field. Mirrors ``DefaultRecord.writeTo``.
    """

def encode_payload(fields: HeaderFields, parts: list[Buffer]) -> bytes:
    """Build a whole batch from header fields and the parts of its payload; length and CRC are computed.

    ``EncodeError`` if the payload is too long for a batch, ``OverflowError`` if a field does not fit.
    """
