"""What a broker asks of a Produce request beyond what a consumer asks of a fetch, from a recipe's own values.

Mirrors the order of ``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords`` and
``LogValidator.validateBatch``; Kafka confirms each verdict that comes of it.
"""

from __future__ import annotations

from kfuzz.vectors.recipes.making.builder import Raw
from kfuzz.wire.layout import LOG_OVERHEAD

__all__ = ["BATCH_BYTES_MAX", "refusal"]

# Kafka's default of message.max.bytes.
BATCH_BYTES_MAX = 1024 * 1024 + LOG_OVERHEAD


def refusal(raw: Raw) -> str | None:
    """Why a broker refuses bytes that a consumer may read, as the code of a finding; None where it asks no more."""
    if len(raw.batches) != 1:
        return "batch-count-not-one"
    (batch,) = raw.batches
    if batch["magic"] != 2:
        return "magic-not-produced"
    if batch["base_offset"] != "0":
        return "base-offset-not-zero"
    if len(raw.data) > BATCH_BYTES_MAX:
        return "batch-too-large"
    last, count = int(batch["last_offset"]), len(batch["records"])
    if last < 0:
        return "last-offset-delta-not-count"
    if count == 0:
        return "record-count-zero"
    if last + 1 != count:
        return "last-offset-delta-not-count"
    if batch["control"]:
        return "control-batch-produced"
    if int(batch["producer_id"]) >= 0 and batch["base_sequence"] < 0:
        return "base-sequence-negative"
    return None
