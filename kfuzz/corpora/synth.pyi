from collections.abc import Callable

from kfuzz.corpora.plan import Segment

DIGEST_BYTES: int

class Synthesiser:
    """Makes the bytes of one segment, a chunk of whole batches at a time.

    ``view`` is the reused buffer: ``view[:fill()]`` is the next chunk, until ``fill()`` is 0. The sums and the index
    bytes are complete then. ``phrases`` are 256 texts of 16 bytes for values of the kind ``text``;
    ``compress`` is ``kfuzz.records.codecs.compress``.
    """

    view: memoryview
    batches: int
    control_batches: int
    records: int
    size: int
    max_timestamp: int
    min_timestamp: int
    def __init__(
        self,
        segment: Segment,
        index_interval_bytes: int,
        batch_bytes_max: int,
        phrases: bytes,
        compress: Callable[..., bytes],
    ) -> None: ...
    def fill(self) -> int:
        """Make batches until a chunk is full; the bytes made, 0 at the segment's end."""

    def offset_index_bytes(self) -> bytes:
        """The ``.index`` as Kafka rebuilds it (``OffsetIndex``)."""

    def time_index_bytes(self) -> bytes:
        """The ``.timeindex`` with the entry that Kafka appends when a segment becomes inactive (``TimeIndex``)."""

    def transaction_index_bytes(self) -> bytes:
        """The ``.txnindex``: one ``AbortedTxn`` for each aborted transaction; empty where there is none."""

    def fingerprint(self) -> str:
        """The content fingerprint in hex: equal for equal contents, whatever the codec libraries' versions."""
