from collections.abc import Callable, Iterator

from typing_extensions import Buffer

from kfuzz.wire.columns.reader import Columns
from kfuzz.wire.io.report import Note
from kfuzz.wire.records.record import Record
from kfuzz.wire.records.record_batch import Place
from kfuzz.wire.walk.policy import Policy

# The results of ``Scan.next``: the end or a partial tail; refused bytes; a batch; a batch whose payload the caller must
# decompress.
END: int
REFUSED: int
BATCH: int
PAYLOAD: int

class Scan:
    """Reads the batches of ``data`` one after the other, without the GIL, until the caller must act.

    ``next`` continues after the batch of the last stop. It does not stop at a batch without findings whose payload it
    can read itself, unless ``each`` or ``with_rows`` asks for every batch. ``with_rows`` keeps the offsets of the
    records in the data, ``with_headers`` those of their headers too. ``columns`` receives the records of each batch
    without a stop. ``policy`` has a role's additional rules. ``limit`` is the largest size, in bytes, to which a
    payload is decompressed without Python (``unpack``); 0 leaves all payloads to Python. Of a batch with more than
    ``rows_most`` records, ``columns`` receives nothing, and ``is_full`` is true at its stop.

    Mirrors ``org.apache.kafka.common.record.MemoryRecords.batches``, ``DefaultRecordBatch.ensureValid`` and
    ``streamingIterator``.
    """

    def __init__(
        self,
        data: Buffer,
        with_rows: bool,
        *,
        with_headers: bool = False,
        each: bool = False,
        columns: Columns | None = None,
        policy: Policy | None = None,
        limit: int = 0,
        rows_most: int = 0,
    ) -> None: ...
    @property
    def at(self) -> int:
        """The byte offset of the batch of this stop; at the end, the offset at which the last complete batch ends."""

    @property
    def size(self) -> int:
        """The size of the batch of this stop, in bytes."""

    @property
    def batch_count(self) -> int:
        """Batches before this stop."""

    @property
    def record_count(self) -> int:
        """Records in the batches before this stop."""

    @property
    def found(self) -> int:
        """Records in the batch of this stop: the header's count, or for a wrapper the number that was found in it."""

    @property
    def magic(self) -> int:
        """The magic of the batch of this stop. A message of magic 0 or 1 is a batch of one record, or a wrapper."""

    @property
    def policy(self) -> Policy | None: ...
    @property
    def payload(self) -> tuple[int, int]:
        """The byte offset and size of the compressed payload; both are -1 for a wrapper with a null value."""

    @property
    def codec(self) -> int:
        """The number of the batch's codec."""

    def next(self) -> int:
        """Continue to the next stop: ``END``, ``REFUSED``, ``BATCH`` or ``PAYLOAD``.

        ``RuntimeError`` if another thread is in this scan's loop.
        """

    def parse(self, payload: bytes, skim: bool = False) -> bool:
        """Parse the decompressed payload of the batch; False if it is refused.

        ``skim`` reads like ``DefaultRecord.readPartiallyFrom``, as a broker does if it stores the payload unchanged.
        ``ValueError`` if the payload has 2**31 - 1 bytes or more.
        """

    @property
    def is_full(self) -> bool:
        """Whether the batch of this stop has more than ``rows_most`` records. It is judged like any other."""

    def records_source(self) -> tuple[Buffer, int]:
        """The bytes that hold the records of this stop, and where these begin; for ``add_rows``."""

    def add_rows(self, columns: Columns, source: Buffer, at: int, record: int) -> tuple[int, int]:
        """Add to ``columns`` up to ``rows_most`` records of a batch that ``is_full``.

        ``at`` is where record number ``record`` begins in ``source``. Returns the same of the next record.
        """

    def apply_policy(self, unreadable: bool = False) -> None:
        """Let the policy judge the batch of this stop; ``notes`` then has its findings.

        Call it after ``parse``, or with ``unreadable`` for a batch that a consumer refuses. Other batches are judged
        before the stop.
        """

    def notes(self, inside: bool = False) -> list[Note]:
        """The findings since the last stop. With ``inside``, those in the payload; offsets then count from there."""

    def message_fields(self) -> tuple[int, int, int]:
        """Offset, timestamp (ms, -1 for none) and attributes of the message of this stop; only for magic 0 and 1."""

    def notes_of_batch(self) -> list[Note]:
        """The findings of ``parse`` about the batch around the payload; offsets count from the start of ``data``."""

    def places(self) -> list[Place]:
        """The positions of the records, counted from the start of the batch or of the decompressed payload.

        They include the headers only with ``with_headers``.
        """

class EachRecord(Iterator[Record]):
    """Iterates over the records of all batches that ``scan`` reads.

    The records of a batch without findings are returned at once. At any other stop, ``handle_stop`` is called with the
    result that ``Scan.next`` would return. It returns True if the batch has records to return; otherwise the iteration
    ends.
    ``RuntimeError`` if two threads use it at once, or if other code has moved the scan to another batch.
    """

    def __init__(self, scan: Scan, handle_stop: Callable[[int], bool]) -> None: ...
    def __iter__(self) -> EachRecord: ...
    def __next__(self) -> Record: ...
