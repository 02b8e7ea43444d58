"""Wrappers of magic 0."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.builder import message
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.legacy import three, wrapper
from kfuzz.vectors.recipes.themes.wrapper import common, first_of, old_lz4


def theme() -> Theme:
    """The recipes of ``vectors/records/v0/wrapper.json``."""
    made = Theme("records/v0/wrapper", "Wrappers of magic 0: without contents, hundreds deep, from old producers.")
    common(made, 0)
    _old_lz4(made)
    return made


def _old_lz4(made: Theme) -> None:
    """Frames of Kafka before 0.10, which is the only software that wrote lz4 wrappers of magic 0."""
    lz4_checksum_of_old_producers = made.flag("Lz4ChecksumOfOldProducers", requirements=["RB-LZ4-1", "MS-WRAPPER-1"])
    inner = three(0, first_of(0))
    plain = b"".join(raw.data for raw in inner)
    half = len(plain) // 2
    # A compressed block of literals only: the token 0xf0 means 15 and more.
    assert 15 <= len(plain) < 15 + 255
    literals = bytes([0xF0, len(plain) - 15]) + plain
    frame = old_lz4(b"")
    compressed = frame[:-4] + len(literals).to_bytes(4, "little") + literals + frame[-4:]
    cases = (
        ("one-block", "one stored block", old_lz4(plain)),
        ("two-blocks", "two stored blocks, split in the middle of a message", old_lz4(plain[:half], plain[half:])),
        ("compressed-block", "one compressed block", compressed),
    )
    for slug, what, stream in cases:
        lz4_checksum_of_old_producers.valid(
            f"lz4-of-old-producer-{slug}",
            f"an lz4 frame with the header checksum of old producers, and {what}",
            wrapper(0, inner, "lz4", offset=12, stream=stream),
        )
    lz4_checksum_of_old_producers.valid(
        "lz4-of-old-producer-between-plain",
        "a plain message, an lz4 wrapper with the header checksum of old producers, a plain message",
        message(0, offset=9),
        wrapper(0, inner, "lz4", offset=12, stream=old_lz4(plain)),
        message(0, offset=13),
        requirements=["RB-LZ4-1", "MS-WRAPPER-1", "MS-FRAME-1"],
    )
    lz4_checksum_of_old_producers.valid(
        "lz4-of-old-and-new-producer",
        "two lz4 wrappers: the first has the header checksum of old producers, the second the right one",
        wrapper(0, inner, "lz4", offset=12, stream=old_lz4(plain)),
        wrapper(0, three(0, 13), "lz4", offset=15),
    )
    other = message(1, offset=10)
    lz4_checksum_of_old_producers.acceptable(
        "lz4-of-old-producer-around-magic-1",
        "a wrapper of magic 0 with the lz4 header checksum of old producers holds a message of magic 1",
        wrapper(0, [other], "lz4", offset=10, stream=old_lz4(other.data)),
        requirements=["RB-LZ4-1", "MS-WRAPPER-4"],
        finding="inner-magic-mismatch",
    )
