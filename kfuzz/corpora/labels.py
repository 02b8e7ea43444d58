"""The labels of a corpus: where its hostile batches are. One Parquet file for each segment that has any.

pyarrow is imported only inside the functions that use it, as in ``corpora.manifest``.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kfuzz.corpora.hostile import Hostile
from kfuzz.corpora.manifest import columns_of, open_parquet, plain
from kfuzz.corpora.plan import Segment
from kfuzz.errors import UsageError
from kfuzz.storage import Target
from kfuzz.wire.io.checksum import crc32c

if TYPE_CHECKING:
    from kfuzz.corpora.log_walk import LogWalk
    from kfuzz.corpora.synth import Synthesiser

LABELS = "_labels"
FORMAT = b"kfuzz-labels/1"


class LabelsDamaged(UsageError):
    """A file of labels is not as a generator writes it."""


@dataclass(frozen=True, slots=True)
class Label:
    """One hostile batch: ``at`` is its byte offset in the ``.log`` file ``path``, ``bytes`` its size.

    ``vector`` is the id of a vector of the golden suite; ``verdict`` and ``finding`` are what the suite says of it for
    a consumer.
    """

    path: str
    at: int
    bytes: int
    base_offset: int
    vector: str
    verdict: str
    finding: str | None

    @staticmethod
    def of(path: str, at: int, base_offset: int, one: Hostile) -> Label:
        """The label of the vector ``one`` at this place."""
        return Label(path, at, one.vector.size, base_offset, one.vector.id, one.verdict, one.finding)


def sums_of(
    made: Synthesiser | LogWalk, size: int, indexes: Sequence[bytes], labels: Sequence[Label]
) -> dict[str, Any]:
    """The columns of the manifest that a log of ``size`` bytes and its offset, time and transaction index decide."""
    offset_index, time_index, transaction_index = indexes
    # Every batch without a label is valid.
    verdicts = {name: sum(label.verdict == name for label in labels) for name in ("acceptable", "invalid")}
    return {
        "bytes": size,
        "crc32c": made.crc32c,
        "fingerprint": made.fingerprint(),
        "batches": made.batches,
        "control_batches": made.control_batches,
        "records": made.records,
        "aborted_records": made.aborted_records,
        "min_timestamp": made.min_timestamp if made.max_timestamp >= 0 else None,
        "max_timestamp": made.max_timestamp if made.max_timestamp >= 0 else None,
        "valid": made.batches - sum(verdicts.values()),
        **verdicts,
        "index_crc32c": crc32c(offset_index),
        "timeindex_crc32c": crc32c(time_index),
        "txnindex_crc32c": crc32c(transaction_index) if transaction_index else None,
    }


def label_file(segment: Segment) -> str:
    """The file of the segment's labels, relative to the corpus."""
    return f"{LABELS}/{segment.directory}-{segment.stem}.parquet"


def encode_labels(labels: Sequence[Label]) -> bytes:
    """The Parquet file of ``labels``. Equal labels give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    table = pa.Table.from_pylist([asdict(label) for label in labels], schema=columns_of(Label, FORMAT))
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()


def labels_of(target: Target, segment: Segment) -> list[Label]:
    """The labels of a segment, in the order of their places; empty if it has none.

    Raises ``LabelsDamaged`` if the file is no Parquet file, or has other columns or too many labels.
    """
    import pyarrow as pa

    name = label_file(segment)
    data = target.read(name)
    if data is None:
        return []
    try:
        with open_parquet(data, columns_of(Label, FORMAT)) as file:
            if file is not None:
                if file.metadata.num_rows > sum(stream.records for stream in segment.streams):
                    raise LabelsDamaged(
                        f"{target}/{name} has more labels than its segment has batches; generate it again"
                    )
                batches = file.iter_batches(use_threads=False)
                return [Label(**row) for batch in batches for row in plain(batch).to_pylist()]
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise LabelsDamaged(f"{target}/{name} is not a readable Parquet file; generate the corpus again") from error
    raise LabelsDamaged(f"{target}/{name} has other columns than the labels of this version; generate the corpus again")
