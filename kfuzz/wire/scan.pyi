from collections.abc import Callable, Iterator

from typing_extensions import Buffer

from kfuzz.wire.columns import Columns
from kfuzz.wire.policy import Policy
from kfuzz.wire.record import Record
from kfuzz.wire.record_batch import PlaceTuple
from kfuzz.wire.report import Note

# What ``Scan.next`` stopped at: the end or a partial tail; bytes that are refused; a batch; one whose
# payload is to be decompressed.
END: int
REFUSED: int
BATCH: int
PAYLOAD: int

class Scan:
    """The batches of ``data``, one after the other, without the interpreter until someone has to look.

    ``next`` goes on behind the batch of the last stop. It passes over batches that are uncompressed and
    about which there is nothing to say, unless ``each`` or ``with_rows`` asks for every one. ``with_rows`` keeps the
    places of the records, ``with_headers`` those of their headers too; ``columns`` takes them batch
    by batch, without a stop. ``policy`` is what a role asks besides. ``limit``: the most bytes that a payload may
    grow to if it is decompressed without Python (``unpack``); 0 leaves all payloads to Python.

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

    @property
    def found(self) -> int:
        """Records in the batch of this stop: the header's count; of a wrapper, what ``parse`` has found in it."""

    @property
    def magic(self) -> int:
        """The magic of the batch of this stop; a message of magic 0 or 1 is a batch of one record, or a wrapper."""

    @property
    def policy(self) -> Policy | None: ...
    @property
    def payload(self) -> tuple[int, int]:
        """Where that which is to be decompressed stands, and its size, in bytes; -1 for a wrapper that has none."""

    @property
    def codec(self) -> int:
        """The number of the batch's codec."""

    def next(self) -> int:
        """Go on to the next stop."""

    def parse(self, payload: bytes, skim: bool = False) -> bool:
        """Parse the decompressed payload of the batch; False where it is refused.

        ``skim`` reads as ``DefaultRecord.readPartiallyFrom`` does, which is how a broker looks at a payload that it
        will keep as it is.
        """

    def ask(self, unreadable: bool = False) -> None:
        """Ask the policy about the batch of this stop, after ``parse``, or though a consumer refuses it.

        Any other batch is asked about before the stop. ``notes`` has the answer.
        """

    def notes(self, inside: bool = False) -> list[Note]:
        """What was noted since the last stop, or by ``parse`` if ``inside``: places then count from the payload."""

    def message_fields(self) -> tuple[int, int, int]:
        """Offset, timestamp (-1 for none) and attributes of the message of this stop, if its magic is 0 or 1."""

    def notes_of_batch(self) -> list[Note]:
        """What ``parse`` noted of the batch around the payload; places count from ``data``'s start."""

    def records(self) -> list[Record]:
        """Its records. They hold ``data`` if that is bytes, else a copy of the batch, or the payload."""

    def places(self) -> list[PlaceTuple]:
        """Where its records stand, from the start of the batch or of the payload; headers if ``with_headers``."""

class EachRecord(Iterator[Record]):
    """The records of all batches that ``scan`` goes over, one after another.

    A batch about which there is nothing to say is gone into at once. At any other stop ``look`` is called with what
    ``Scan.next`` would have returned, and says whether the batch has records to give; if not, there are no more.
    ``RuntimeError`` where two threads ask at once, and where the scan has gone on to another batch meanwhile.
    """

    def __init__(self, scan: Scan, look: Callable[[int], bool]) -> None: ...
    def __iter__(self) -> EachRecord: ...
    def __next__(self) -> Record: ...
