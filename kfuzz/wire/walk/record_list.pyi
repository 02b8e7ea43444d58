from kfuzz.wire.records.record import Record

# Reasons why a builder refuses a record.
FALLS: int
TIMESTAMP_LOW: int
HAS_HEADERS: int
FAR: int

class Survey:
    """Facts about a list of records, collected in one pass. A builder needs them.

    - ``refused_at``: the index of the first record that ``org.apache.kafka.common.record.MemoryRecordsBuilder``
      refuses, or -1. ``why`` is the reason.
    - ``largest_timestamp``: milliseconds; -1 if no record has a timestamp.
    - ``largest_timestamp_at``: the index of the first record that has it.
    - ``headers``: the number of headers in all records.
    - ``attributes``, ``timestamps``, ``tombstones``: how many records have attributes, a timestamp, or a null value.
    - ``is_plain``: whether Kafka's builder would write every record unchanged. That needs no attributes, header keys in
      UTF-8, and offset deltas that fit an int32.
    """

    refused_at: int
    why: int
    largest_offset: int
    largest_timestamp: int
    largest_timestamp_at: int
    headers: int
    attributes: int
    timestamps: int
    tombstones: int
    is_plain: bool

def survey(records: list[Record], base_offset: int = 0, with_headers: bool = True) -> Survey:
    """Survey ``records`` in one pass. Unless ``with_headers``, a record with headers is refused.

    Raises ``EncodeError`` if an entry is not a record.
    """

def renumbered(records: list[Record], first_offset: int, keep_attributes: bool) -> list[Record]:
    """Copies of ``records`` with new offsets, which count up from ``first_offset`` and wrap around as in Java.

    Lazy records stay lazy: their keys, values and headers are not created for the copy.
    """

def in_order(records: list[Record], position: int) -> tuple[list[Record], int]:
    """The records that a consumer at offset ``position`` hands out, and its new position.

    A consumer never goes back, so it drops a record below its position. Mirrors
    ``org.apache.kafka.clients.consumer.internals.CompletedFetch.nextFetchedRecord``.
    """
