"""Bounds on what a reader may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kfuzz.errors import UsageError
from kfuzz.wire.record_batch import LIMIT_BYTES

__all__ = ["DEFAULT_LIMITS", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that the caller sets. Kafka has none of them: docs/differences.md.

    ``decompressed_bytes``: the most that one batch's payload may grow to; below 2 GiB.
    """

    decompressed_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        if not 0 < self.decompressed_bytes < LIMIT_BYTES:
            raise UsageError(
                f"decompressed_bytes is {self.decompressed_bytes}; it must be between 1 and {LIMIT_BYTES - 1}"
            )


DEFAULT_LIMITS: Final = Limits()
