"""Wrappers of magic 1."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.builder import message
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.legacy import three, wrapper
from kfuzz.vectors.recipes.themes.wrapper import common, old_lz4


def theme() -> Theme:
    """The recipes of ``vectors/records/v1/wrapper.json``."""
    made = Theme("records/v1/wrapper", "Wrappers of magic 1: without contents, hundreds deep, with old lz4 frames.")
    common(made, 1)
    _old_lz4(made)
    return made


def _old_lz4(made: Theme) -> None:
    """Kafka wrote the right checksum from magic 1 on, and requires it there."""
    plain = b"".join(raw.data for raw in three(1))
    cases = (
        ("", "the wrapper's lz4 frame has the header checksum of old producers", three(1), old_lz4(plain)),
        (
            "-around-magic-0",
            "a wrapper of magic 1 with the lz4 header checksum of old producers holds a message of magic 0",
            [message(0)],
            old_lz4(message(0).data),
        ),
    )
    for slug, summary, inner, stream in cases:
        made.flag("Lz4ChecksumOfOldProducers").invalid(
            f"lz4-of-old-producer{slug}",
            summary,
            wrapper(1, inner, "lz4", offset=len(inner) - 1, stream=stream, hostile=["value"]),
            requirements=["RB-LZ4-1"],
            finding="decompression-failed",
        )
