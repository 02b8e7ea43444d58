from typing_extensions import Buffer

class TransactionWalk:
    """Follows the transactions of a log through the headers of its batches and the records of its markers.

    Other bytes are not read. A marker with a wrong CRC ends nothing; no other CRC is checked. ``first_open`` is the
    lowest first offset of the transactions that have begun and not ended; None if there is none.
    """

    first_open: int | None
    def begin(self, producer_id: int, first_offset: int) -> None:
        """The producer's transaction is open since ``first_offset``, unless an earlier one is known to be open."""

    def walk(self, data: Buffer, at: int = 0) -> int:
        """Go over the batches of ``data`` from byte ``at`` on.

        Returns where the walk stopped: at the end, at a partial batch, or at a frame that is refused. ``IndexError`` if
        ``at`` is not in ``data``.
        """

    def ends(self) -> list[tuple[int, int, bool]]:
        """The transactions that ended since the last call: producer, offset of the marker, and whether it aborts."""
