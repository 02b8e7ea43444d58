from typing_extensions import Buffer

def has_batch(data: Buffer, at: int) -> bool:
    """Whether a whole batch or message with a right CRC begins at byte ``at``. ``IndexError`` for an ``at`` outside."""

def find_batch(data: Buffer, start: int, end: int) -> int | None:
    """The first byte from ``start`` on, and before ``end``, at which a batch or message with a right CRC begins.

    None if there is none. A batch with unused bits in its attributes, or with a negative record count, is passed over:
    Kafka writes none. The work is bounded: if the bytes look like headers again and again, the largest of these batches
    are passed over too. ``IndexError`` if the bytes are not inside ``data``.
    """
