"""Messages of magic 0."""

from __future__ import annotations

from xxhash import xxh32_intdigest

from kfuzz.vectors.recipes.making.builder import message
from kfuzz.vectors.recipes.making.containers import LZ4_MAGIC, lz4_frame, stored
from kfuzz.vectors.recipes.theme import Theme, refuses
from kfuzz.vectors.recipes.themes.legacy import common, three, wrapper


def theme() -> Theme:
    """The recipes of ``vectors/records/v0/message.json``."""
    made = Theme("records/v0/message", "Messages of magic 0: no timestamps, absolute offsets inside wrappers.")
    common(made, 0)
    _offsets(made)
    _lz4(made)
    return made


def _offsets(made: Theme) -> None:
    made.valid(
        "wrapper-offset-zero",
        "the wrapper's offset is 0, but the inner offsets are not; in magic 0 the inner ones count",
        wrapper(0, three(0, 10), offset=0),
        requirements=["MS-WRAPPER-1", "MS-OFFSET-1"],
    )
    made.acceptable(
        "wrapper-offset-off",
        "the wrapper's offset is below the last inner offset; in magic 0 the inner ones count",
        wrapper(0, three(0, 10), offset=11, hostile=["base_offset"]),
        requirements=["MS-WRAPPER-1", "MS-OFFSET-1"],
    )
    made.acceptable(
        "offset-negative",
        "the message's offset is -1; a producer may send that, but no log holds it",
        message(0, offset=-1, hostile=["base_offset"]),
        requirements=["MS-OFFSET-1", "RB-OFFSET-1"],
        finding="base-offset-negative",
        log=refuses("offset-outside-segment"),
    )
    made.valid(
        "wrapper-inner-gap",
        "the inner offsets have a gap, as after compaction",
        wrapper(0, [*three(0, 10)[:1], *three(0, 20)[:1]]),
        requirements=["MS-WRAPPER-1", "RB-OFFSET-6"],
    )


def _lz4(made: Theme) -> None:
    lz4_old_checksum = made.flag("Lz4OldChecksum", requirements=["RB-LZ4-1"])
    inner = three(0, 10)
    plain = b"".join(raw.data for raw in inner)
    right = stored("lz4", plain)[6]
    lz4_old_checksum.acceptable(
        "lz4-old-checksum",
        "the lz4 frame's header checksum is wrong; Kafka ignores it in magic 0",
        wrapper(0, inner, "lz4", stream=lz4_frame(plain, header_checksum=right ^ 0x5A)),
    )
    old = xxh32_intdigest(LZ4_MAGIC + b"\x60\x40") >> 8 & 0xFF
    lz4_old_checksum.acceptable(
        "lz4-checksum-with-magic",
        "the header checksum is the one that old Kafka computed, over the magic number too",
        wrapper(0, inner, "lz4", stream=lz4_frame(plain, header_checksum=old)),
    )
    lz4_old_checksum.invalid(
        "lz4-block-checksum-wrong",
        "a block's checksum is wrong; only a wrong header checksum is ignored",
        wrapper(0, inner, "lz4", stream=lz4_frame(plain, block_checksums=1), hostile=["value"]),
        requirements=["RB-LZ4-1", "RB-CODEC-2"],
        finding="decompression-failed",
    )
