"""One module per theme of the golden suite, each making vectors from values through ``builder`` or ``message``.

May import wire/, records/ and messages/.
"""

from __future__ import annotations

import importlib

from kfuzz.vectors.recipes.theme import Theme

__all__ = ["THEMES", "themes"]

THEMES = (
    "header",
    "count",
    "varint",
    "record",
    "headers",
    "codec",
    "codec_gzip",
    "codec_snappy",
    "codec_lz4",
    "codec_zstd",
    "bombs",
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
    "stream_sequence",
    "stream_epoch",
    "stream_transaction",
    "stream_isolation",
    "message_requests",
    "message_responses",
    "message_headers",
    "message_oldest",
    "message_counts",
    "message_lengths",
    "message_tags",
    "message_text",
    "message_numbers",
    "message_truncation",
    "message_printed",
    "primitive_numbers",
    "primitive_lengths",
    "primitive_varints",
)


def themes() -> tuple[Theme, ...]:
    """Every theme, in the order of ``THEMES``."""
    return tuple(importlib.import_module(f"{__name__}.{name}").theme() for name in THEMES)
