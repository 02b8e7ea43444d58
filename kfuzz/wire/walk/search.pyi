from typing_extensions import Buffer

class Search:
    """Looks for batches in ``data``; it holds the buffer.

    All searches of one object together take time that is linear in the data, also if the bytes look like headers of
    long batches again and again; in that case they take 16 MiB of memory, or a sixteenth of the data if that is less.
    """

    def __init__(self, data: Buffer) -> None: ...
    def holds(self, at: int) -> bool:
        """Whether a whole batch or message with a right CRC begins at byte ``at``. ``IndexError`` for an ``at``
        outside.
        """

    def find(self, start: int, end: int) -> int | None:
        """The first byte from ``start`` on, and before ``end``, at which a batch or message with a right CRC begins.

        None if there is none. A batch with unused bits in its attributes or a negative record count is passed over,
        and a message that does not end with its value: Kafka writes none. ``IndexError`` if the bytes are not inside
        ``data``.
        """

    def after(self, bad: int, size: int, end: int) -> int:
        """Where reading continues after the bad batch at ``bad``, at most at ``end``. ``size`` is the batch's size, or
        not above 0 if it has none.

        If a batch follows where its length leads, or the data ends there, that is the place: bytes inside a batch may
        look like one. But if the end of these bytes is nothing but sound batches, the length is wrong, and the first of
        them is the place. Otherwise it is the next batch that :meth:`find` finds, or ``end``.
        """

def find_batch(data: Buffer, start: int, end: int) -> int | None:
    """One call of :meth:`Search.find`."""
