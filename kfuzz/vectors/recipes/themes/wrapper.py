"""Recipes of wrappers that magic 0 and 1 share: wrappers without contents, wrappers hundreds deep, old lz4 frames."""

from __future__ import annotations

from xxhash import xxh32_intdigest

from kfuzz.vectors.recipes.making.builder import Raw, concat, message
from kfuzz.vectors.recipes.making.containers import LZ4_MAGIC, lz4_frame, stored
from kfuzz.vectors.recipes.theme import SMALL, Theme, accepts
from kfuzz.vectors.recipes.themes.legacy import three, unopened, wrapper, wrapper_of

CODECS = ("gzip", "snappy", "lz4")
# The flags and the block size of the frames that Kafka wrote: independent blocks of at most 64 KiB.
LZ4_DESCRIPTOR = b"\x60\x40"
LZ4_OLD_CHECKSUM = xxh32_intdigest(LZ4_MAGIC + LZ4_DESCRIPTOR) >> 8 & 0xFF


def first_of(magic: int) -> int:
    """The first inner offset: magic 0 has absolute offsets inside a wrapper, magic 1 relative ones."""
    return 10 if magic == 0 else 0


def old_lz4(*chunks: bytes) -> bytes:
    """An lz4 frame as producers before Kafka 0.10 wrote it: the header's checksum covers the frame's magic too."""
    return lz4_frame(*chunks, header_checksum=LZ4_OLD_CHECKSUM)


def common(made: Theme, magic: int) -> None:
    """Add the vectors that both magics have."""
    _without_contents(made, magic)
    _deep(made, magic)


def _without_contents(made: Theme, magic: int) -> None:
    wrapper_without_contents = made.flag("WrapperWithoutContents", budget=SMALL)

    def refused(slug: str, summary: str, raw: Raw, finding: str, *, log: bool) -> None:
        wrapper_without_contents.invalid(
            slug,
            summary,
            raw,
            requirements=["MS-WRAPPER-1", "MS-VALUE-1"],
            finding=finding,
            log=accepts(finding="wrapper-start-unknown", batches=unopened(raw)) if log else None,
        )

    null, empty = "wrapper-value-null", "decompression-failed"
    for codec in CODECS:
        bare = message(magic, key=None, value=None, codec=codec, hostile=["value_length"])
        refused(
            f"{codec}-without-key-and-value", f"the {codec} wrapper has neither a key nor a value", bare, null, log=True
        )
        hollow = message(magic, key=b"", value=b"", codec=codec, hostile=["value_length"])
        refused(
            f"{codec}-empty-key-and-value",
            f"the key and the value of the {codec} wrapper are empty",
            hollow,
            empty,
            log=False,
        )
        refused(
            f"{codec}-without-value-behind-message",
            f"a plain message, then a wrapper of {codec} with neither a key nor a value",
            concat(
                message(magic), message(magic, offset=1, key=None, value=None, codec=codec, hostile=["value_length"])
            ),
            null,
            log=False,
        )
        if codec == "gzip":
            # The theme legacy has these for gzip.
            continue
        refused(
            f"{codec}-key-without-value",
            f"the {codec} wrapper has a key, but its value is null",
            message(magic, value=None, codec=codec, hostile=["value_length"]),
            null,
            log=True,
        )
        first = first_of(magic)
        wrapper_without_contents.invalid(
            f"{codec}-inner-without-value",
            f"a message inside the gzip wrapper names {codec}, but its value is null",
            wrapper(
                magic,
                [message(magic, offset=first, key=None, value=None, codec=codec)],
                offset=first,
                hostile=["value"],
            ),
            requirements=["MS-WRAPPER-2"],
            finding="wrapper-nested",
        )


def _nested(magic: int, codec: str, levels: int) -> Raw:
    """Three messages inside ``levels`` wrappers. The codecs store their content, so each level adds some 50 bytes."""
    first = first_of(magic)
    raw = wrapper(magic, three(magic, first), codec, offset=first + 2)
    for level in range(levels - 1):
        outermost = level == levels - 2
        raw = wrapper(magic, [raw], codec, offset=first + 2, hostile=["value"] if outermost else [])
    return raw


def _deep(made: Theme, magic: int) -> None:
    wrapper_nested_deep = made.flag(
        "WrapperNestedDeep", requirements=["MS-WRAPPER-2", "RB-CODEC-6"], finding="wrapper-nested", budget=SMALL
    )
    for codec, depths in (("gzip", (100, 500)), ("snappy", (300,)), ("lz4", (300,))):
        for levels in depths:
            wrapper_nested_deep.invalid(
                f"{codec}-nested-{levels}-deep",
                f"{levels} {codec} wrappers are inside one another",
                _nested(magic, codec, levels),
            )
    first = first_of(magic)
    deep = _nested(magic, "gzip", 100)
    wrapper_nested_deep.invalid(
        "gzip-nested-100-deep-behind-message",
        "a wrapper contains a plain message, then 100 wrappers inside one another",
        wrapper(
            magic,
            [],
            offset=first + 3,
            hostile=["value"],
            stream=stored("gzip", message(magic, offset=first).data + deep.data),
            contents=[],
        ),
    )
    # No wrapper holds a message: every reader must stop, whatever its rule for nesting.
    raw = wrapper_of(magic, b"")
    for _ in range(99):
        raw = wrapper_of(magic, raw.data)
    wrapper_nested_deep.invalid(
        "gzip-nested-100-deep-around-nothing", "100 gzip wrappers are inside one another; the innermost is empty", raw
    )
