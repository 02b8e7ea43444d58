"""Limits on the memory that a reader may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kfuzz.errors import UsageError
from kfuzz.wire.records.record_batch import LIMIT_BYTES


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for a reader. Kafka has no such limits: docs/differences.md.

    ``decompressed_bytes``: the largest allowed size of one batch's payload after decompression; less than 2 GiB.

    >>> from kfuzz import records
    >>> batch = records.RecordBatch(0, 0, [records.Record(0, 1, b"k", bytes(5000))], compression="gzip")
    >>> verdict = records.check(records.encode([batch]), limits=records.Limits(decompressed_bytes=1000))
    >>> verdict.fatal.code
    'decompressed-size-exceeded'
    """

    decompressed_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        if not 0 < self.decompressed_bytes < LIMIT_BYTES:
            raise UsageError(
                f"decompressed_bytes is {self.decompressed_bytes}; it must be between 1 and {LIMIT_BYTES - 1}"
            )


DEFAULT_LIMITS: Final = Limits()
