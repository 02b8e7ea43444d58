from collections.abc import Iterable, Iterator

from typing_extensions import Buffer

from kfuzz.wire.columns import Columns
from kfuzz.wire.record import Record
from kfuzz.wire.record_batch import HeaderTuple, PlaceTuple
from kfuzz.wire.report import Note

# What ``Scan.next`` stopped at: the end or a partial tail; bytes that are refused; a batch of magic 2; one whose
# payload is to be decompressed; a message of magic 0 or 1.
END: int
REFUSED: int
BATCH: int
PAYLOAD: int
MESSAGE: int

class Scan:
    """The batches of ``data``, one after the other, without the interpreter until someone has to look.

    ``next`` goes on behind the batch of the last stop. It passes over batches of magic 2 that are uncompressed and
    about which there is nothing to say, unless ``each`` or ``with_rows`` asks for every one. ``with_rows`` keeps the
    places of the records, ``with_headers`` those of their headers too; ``columns`` takes them batch
    by batch, without a stop.

    Mirrors ``org.apache.kafka.common.record.MemoryRecords.batches``, ``DefaultRecordBatch.ensureValid`` and
    ``streamingIterator``.
    """

    def __init__(
        self,
        data: Buffer,
        *,
        with_rows: bool,
        with_headers: bool = False,
        each: bool = False,
        columns: Columns | None = None,
    ) -> None: ...
    @property
    def at(self) -> int:
        """Where the batch of this stop begins, in bytes; at the end, where the last complete batch ends."""

    @property
    def size(self) -> int:
        """The size of the batch of this stop, in bytes."""

    @property
    def batch_count(self) -> int:
        """Batches before this stop."""

    @property
    def record_count(self) -> int:
        """Records in them."""

    found: int
    """Records in the batch of this stop: the header's count, for a message what its reader sets."""

    @property
    def codec(self) -> int:
        """The number of the batch's codec."""

    @property
    def control(self) -> bool:
        """Whether it is a control batch; its rows are kept whatever ``with_rows`` says."""

    def next(self) -> int:
        """Go on to the next stop."""

    def parse(self, payload: bytes, skim: bool = False) -> bool:
        """Parse the decompressed payload of the batch; False where it is refused.

        ``skim`` reads as ``DefaultRecord.readPartiallyFrom`` does, which is how a broker looks at a payload that it
        will keep as it is.
        """

    def notes(self, inside: bool = False) -> list[Note]:
        """What was noted since the last stop, or by ``parse`` if ``inside``: places then count from the payload."""

    def header(self) -> HeaderTuple:
        """The header of the batch of this stop, if its magic is 2."""

    def records(self) -> list[Record]:
        """Its records. They hold ``data`` if that is bytes, else a copy of the batch, or the payload."""

    def each_record(self) -> Iterator[Record]:
        """The same, each made when its turn comes; ``RuntimeError`` where the scan has gone on meanwhile."""

    def places(self) -> list[PlaceTuple]:
        """Where its records stand, from the start of the batch or of the payload; headers if ``with_headers``."""

class EachRecord(Iterator[Record]):
    """The records of all ``parts``, one after another; each part is what ``Scan.each_record`` gives, or a list."""

    def __init__(self, parts: Iterator[Iterable[Record]]) -> None: ...
    def __iter__(self) -> EachRecord: ...
    def __next__(self) -> Record: ...
