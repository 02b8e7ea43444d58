from kfuzz.wire.record import Record

# Why a builder refuses a record.
FALLS: int
TIMESTAMP_LOW: int
HAS_HEADERS: int
FAR: int

class Survey:
    """What a builder has to know of many records.

    ``refused_at``: the first record that ``org.apache.kafka.common.record.MemoryRecordsBuilder`` refuses, and ``why``;
    -1 for none. ``largest_timestamp``: milliseconds; -1 where no record has one. ``largest_timestamp_at``: the first
    record that has it. ``headers``: how many there are in all. ``attributes``, ``timestamps``, ``tombstones``: how many
    records have attributes, a timestamp, no value. ``is_plain``: whether Kafka's builder would write each as it is:
    without attributes, with header keys in UTF-8, and within an int32 of the base offset.
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
    """One pass over ``records``. Without ``with_headers`` a record that has some is refused.

    ``EncodeError`` where an entry is no record.
    """

def renumbered(records: list[Record], first_offset: int, keep_attributes: bool) -> list[Record]:
    """Copies of ``records`` under offsets that count up from ``first_offset``; sums wrap as Java's do.

    A record that has not made its key, value or headers yet does not make them for this.
    """

def in_order(records: list[Record], position: int) -> tuple[list[Record], int]:
    """The records that a consumer at offset ``position`` hands out, and where it is then.

    It never goes back, so a record below its position is lost. Mirrors
    ``org.apache.kafka.clients.consumer.internals.CompletedFetch.nextFetchedRecord``.
    """
