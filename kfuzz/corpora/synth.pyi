from collections.abc import Callable

from kfuzz.corpora.plan import Segment

DIGEST_BYTES: int

class Synthesiser:
    """Makes the bytes of one segment in chunks of whole batches.

    ``view`` is the reused buffer: ``view[:fill()]`` is the next chunk, until ``fill()`` returns 0. Then the totals and
    the index bytes are complete. ``crc32c`` is the CRC-32C of all chunks so far. ``phrases`` holds 256 phrases of 16
    bytes for values of the kind ``text``; ``compress`` is ``kfuzz.records.codecs.compress``. Raises ``ValueError`` if
    ``phrases`` has another size.
    """

    view: memoryview
    batches: int
    control_batches: int
    records: int
    aborted_records: int
    size: int
    crc32c: int
    max_timestamp: int
    min_timestamp: int
    # Of each hostile batch so far: its byte offset in the log, its size in bytes, its base offset, and its number
    # among ``hostile_of`` of the topic's table.
    labels: list[tuple[int, int, int, int]]
    def __init__(
        self,
        segment: Segment,
        index_interval_bytes: int,
        batch_bytes_max: int,
        phrases: bytes,
        compress: Callable[..., bytes],
    ) -> None: ...
    def fill(self) -> int:
        """Make batches until a chunk is full. Returns the number of bytes made; 0 at the segment's end."""

    @property
    def offset_index(self) -> bytes:
        """The ``.index`` file as Kafka rebuilds it from the log (``OffsetIndex``)."""

    @property
    def time_index(self) -> bytes:
        """The ``.timeindex`` file, with the entry that Kafka adds when a segment becomes inactive (``TimeIndex``)."""

    @property
    def transaction_index(self) -> bytes:
        """The ``.txnindex`` file: one ``AbortedTxn`` for each aborted transaction; empty if there is none."""

    @property
    def producers(self) -> list[tuple[int, int, int, int, int, int, int, int]]:
        """Kafka's state of each producer that wrote to this segment: the fields of ``snapshot.Producer``."""

    def fingerprint(self) -> str:
        """The content fingerprint in hex. It does not depend on the versions of the codec libraries."""
