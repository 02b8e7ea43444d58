"""The rules of a broker for Produce requests that a consumer does not apply to a fetch, checked on a recipe's values.

Mirrors the order of ``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords`` and
``LogValidator.validateBatch``; Kafka confirms each resulting verdict.
"""

from __future__ import annotations

from kfuzz.vectors.recipes.making.builder import Raw
from kfuzz.wire.io.layout import LOG_OVERHEAD

# Kafka's default of message.max.bytes.
BATCH_BYTES_MAX = 1024 * 1024 + LOG_OVERHEAD


def refusal(raw: Raw) -> str | None:
    """The finding code for which a broker refuses bytes that a consumer may read; None if it accepts them."""
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
