"""The themes: one module per vector file. Its function ``theme`` returns the recipes of the file.

Themes use :mod:`kfuzz.vectors.recipes.theme` and the builders in :mod:`kfuzz.vectors.recipes.making`. The modules
``legacy`` and ``stream`` hold no theme of their own, only code that several themes share.
"""

from __future__ import annotations

import importlib

from kfuzz.vectors.recipes.theme import Theme

__all__ = ["THEMES", "all_themes"]

THEMES = (
    "header",
    "count",
    "varint",
    "record",
    "headers",
    "header_count",
    "codec",
    "codec_gzip",
    "codec_snappy",
    "codec_lz4",
    "codec_zstd",
    "bomb",
    "control",
    "transaction",
    "compaction",
    "timestamp",
    "produce",
    "topic",
    "segment",
    "framing",
    "truncation",
    "legacy_v0",
    "legacy_v1",
    "wrapper_v0",
    "wrapper_v1",
    "stream_sequence",
    "stream_epoch",
    "stream_transaction",
    "stream_isolation",
    "stream_fetching",
    "stream_brokers",
    "conversation_finding",
    "conversation_reading",
    "conversation_writing",
    "conversation_transactions",
    "conversation_groups",
    "conversation_sharing",
    "message_requests",
    "message_responses",
    "message_headers",
    "message_oldest",
    "message_versions",
    "message_counts",
    "message_lengths",
    "message_claims",
    "message_tags",
    "message_text",
    "message_numbers",
    "message_truncation",
    "message_printed",
    "primitive_numbers",
    "primitive_lengths",
    "primitive_varints",
    "producer_contents",
    "producer_sizes",
    "producer_retries",
    "producer_brokers",
)


def all_themes() -> tuple[Theme, ...]:
    """Every theme, in the order of ``THEMES``."""
    return tuple(importlib.import_module(f"{__name__}.{name}").theme() for name in THEMES)
